# SPDX-License-Identifier: GPL-2.0-only
"""Getting the base: KSRC= in all its forms, and the source package."""

import os
import shutil
import subprocess
import tarfile
import unittest

from helper import (FILES, GIB, MAKEFILE, Case, change, commit, git,
                    make_clone, make_kernel, snapshot, write)

from base import version_of
from common import Fail

PACKAGE = "linux-source-7.3"
DEB = f"{PACKAGE}_7.3.4-1~bpo13+1_all.deb"


class VersionOf(unittest.TestCase):
    """version_of() reads a top Makefile as kbuild does."""

    def text(self, *parts):
        return MAKEFILE.format(*parts)

    def test_three_numbers(self):
        self.assertEqual(version_of(self.text(7, 3, 4, "")), "7.3.4")

    def test_sublevel_0_is_left_out(self):
        self.assertEqual(version_of(self.text(7, 3, 0, "")), "7.3")

    def test_a_missing_sublevel_is_left_out(self):
        self.assertEqual(version_of("VERSION = 7\nPATCHLEVEL = 3\n"), "7.3")

    def test_extraversion_follows(self):
        self.assertEqual(version_of(self.text(7, 3, 0, " -rc2")), "7.3-rc2")

    def test_trailing_blanks_do_not_count(self):
        self.assertEqual(
            version_of("VERSION = 7 \nPATCHLEVEL = 3\t\nSUBLEVEL = 12 \n"
                       "EXTRAVERSION = \n"), "7.3.12")

    def test_an_empty_extraversion_does_not_take_the_next_line(self):
        self.assertEqual(
            version_of("VERSION = 7\nPATCHLEVEL = 3\nSUBLEVEL = 1\n"
                       "EXTRAVERSION =\nNAME = Test\n"), "7.3.1")

    def test_another_makefile_is_refused(self):
        for text in ("", "all:\n\tcc x.c\n", "VERSION = 7\n",
                     "# VERSION = 7\n# PATCHLEVEL = 3\n"):
            with self.subTest(text), self.assertRaises(Fail):
                version_of(text)


class Ksrc(Case):
    """KSRC= that is taken: plain trees and git clones, never changed."""

    def setUp(self):
        super().setUp()
        self.ksrc = self.temp / "linux"

    def take(self, *words, **env):
        """Take KSRC as base and check that it did not change."""
        before = snapshot(self.ksrc)
        run = self.run_script("base.py", KSRC=self.ksrc, **env)
        self.assertUntouched(self.ksrc, before)
        self.assertDone(run, *words)
        self.assertNothingHalfDone()
        return run

    def wanted_tree(self):
        """Return the git tree (str) of a fake kernel's files."""
        return git(make_clone(self.temp / "wanted"), "rev-parse",
                   "HEAD^{tree}").strip()

    def test_a_plain_tree_is_taken_whole_and_unchanged(self):
        make_kernel(self.ksrc)
        run = self.take("base: Linux 7.3.4, commit ")
        self.assertNotIn("notice", run.out)
        self.assertEqual(self.tree("base"), self.wanted_tree())

    def test_a_clone_is_taken_whole_and_unchanged(self):
        make_clone(self.ksrc)
        run = self.take("base: Linux 7.3.4, commit ")
        self.assertNotIn("notice", run.out)
        self.assertEqual(self.tree("base"),
                         git(self.ksrc, "rev-parse", "HEAD^{tree}").strip())

    def test_plain_tree_and_clone_give_the_same_commit(self):
        make_clone(self.ksrc)
        self.take()
        first = self.tip("base")
        shutil.rmtree(self.ksrc / ".git")
        self.take()
        self.assertEqual(self.tip("base"), first)
        self.assertEqual(git(self.build / "linux.git", "rev-list", "--count",
                             "base").strip(), "1")

    def test_a_clone_with_history_gives_one_commit(self):
        make_clone(self.ksrc)
        commit(self.ksrc, "More", files={"mm/new.c": "int new;\n"})
        self.take()
        listed = git(self.build / "linux.git", "rev-list", "base")
        self.assertEqual(len(listed.split()), 1)

    def test_a_shallow_clone_is_taken(self):
        make_clone(self.temp / "full")
        commit(self.temp / "full", "More", files={"mm/new.c": "int new;\n"})
        git(self.temp, "clone", "-q", "--depth=1",
            f"file://{self.temp}/full", self.ksrc)
        self.take()
        self.assertEqual(self.tree("base"),
                         git(self.ksrc, "rev-parse", "HEAD^{tree}").strip())

    def test_a_git_worktree_is_taken(self):
        make_clone(self.temp / "full")
        git(self.temp / "full", "worktree", "add", "-q", "--detach",
            self.ksrc)
        before = snapshot(self.temp / "full")
        self.take()
        self.assertUntouched(self.temp / "full", before)

    def test_another_sublevel_gives_a_notice(self):
        make_kernel(self.ksrc, ("7", "3", "9", ""))
        self.take("notice: this is 7.3.9; the series was tested on 7.3.4",
                  "base: Linux 7.3.9")

    def test_another_sublevel_of_a_clone_gives_a_notice(self):
        make_clone(self.ksrc, ("7", "3", "0", ""))
        self.take("notice: this is 7.3; the series was tested on 7.3.4")

    def test_force_takes_another_version_with_a_notice(self):
        make_kernel(self.ksrc, ("6", "12", "1", ""))
        self.take("notice: this is 6.12.1, not 7.3.y", "base: Linux 6.12.1",
                  FORCE=1)

    def test_force_takes_a_clone_of_another_version(self):
        make_clone(self.ksrc, ("7", "4", "0", " -rc1"))
        self.take("notice: this is 7.4-rc1, not 7.3.y", FORCE=1)

    def test_force_must_be_1(self):
        make_kernel(self.ksrc, ("6", "12", "1", ""))
        for value in ("", "0"):
            with self.subTest(value):
                self.assertRefused(self.run_script(
                    "base.py", KSRC=self.ksrc, FORCE=value), "FORCE=1")

    def test_uncommitted_changes_give_a_notice_and_stay_out(self):
        make_clone(self.ksrc)
        write(self.ksrc, {"mm/mmap.c": change("mm/mmap.c", 5, "changed")})
        git(self.ksrc, "add", "mm/mmap.c")
        write(self.ksrc, {"Kconfig": "changed\n", "untracked.c": "new\n"})
        head = git(self.ksrc, "rev-parse", "HEAD").strip()
        self.take(f"notice: KSRC has uncommitted changes; its commit "
                  f"{head[:12]} is taken without them")
        self.assertEqual(self.tree("base"),
                         git(self.ksrc, "rev-parse", "HEAD^{tree}").strip())

    def test_the_version_of_a_clone_is_that_of_its_commit(self):
        make_clone(self.ksrc)
        write(self.ksrc, {"Makefile": MAKEFILE.format(6, 1, 1, "")})
        self.take("base: Linux 7.3.4")

    def test_a_clone_of_another_user_is_taken_as_a_clone(self):
        if os.getuid() != 0:
            self.skipTest("only root can give a tree to another user")
        make_clone(self.ksrc)
        write(self.ksrc, {"mm/mmap.c": "changed\n"})
        for path in [self.ksrc, *self.ksrc.rglob("*")]:
            os.chown(path, 65534, 65534, follow_symlinks=False)
        self.take("notice: KSRC has uncommitted changes")
        self.assertEqual(self.tree("base"), self.wanted_tree())

    def test_a_path_with_a_blank_and_a_percent_sign(self):
        for make in (make_kernel, make_clone):
            with self.subTest(make.__name__):
                self.ksrc = self.temp / f"my %41 {make.__name__} tree"
                make(self.ksrc)
                self.take()
                self.assertEqual(
                    git(self.build / "linux.git", "show", "base:mm/mmap.c"),
                    FILES["mm/mmap.c"])

    def test_a_symbolic_link_to_a_clone(self):
        make_clone(self.temp / "real")
        self.ksrc.symlink_to(self.temp / "real")
        before = snapshot(self.temp / "real")
        self.take()
        self.assertUntouched(self.temp / "real", before)

    def test_what_a_build_left_in_a_plain_tree_stays_out(self):
        make_kernel(self.ksrc)
        write(self.ksrc, {"mm/mmap.o": b"\x7fELF"})
        self.take()
        self.assertEqual(self.tree("base"), self.wanted_tree())

    def test_the_users_own_git_ignore_file_is_not_heeded(self):
        make_kernel(self.ksrc)
        write(self.temp, {"home/.config/git/ignore": "*.c\n"})
        self.take(HOME=self.temp / "home")
        self.assertEqual(self.tree("base"), self.wanted_tree())

    def test_a_change_of_the_tree_is_taken_by_the_next_run(self):
        make_kernel(self.ksrc)
        self.take()
        write(self.ksrc, {"mm/mmap.c": "other\n"})
        (self.ksrc / "Documentation/index.rst").unlink()
        self.take()
        repository = self.build / "linux.git"
        self.assertEqual(git(repository, "show", "base:mm/mmap.c"), "other\n")
        self.assertNotIn("index.rst", git(repository, "ls-tree", "-r",
                                          "base"))

    def test_leftovers_of_a_killed_job_do_not_stand_in_the_way(self):
        make_kernel(self.ksrc)
        write(self.build, {
            "linux.git.partial/HEAD": "ref: refs/heads/none\n",
            "ksrc.index.lock": "half", "unpack-1234/linux/Kconfig": "half"})
        self.take()
        self.assertEqual(self.tree("base"), self.wanted_tree())

    def test_an_empty_build_folder_variable_means_the_default(self):
        self.copy_repo()
        self.ksrc = make_kernel(self.temp / "linux")
        self.take(SERIES_BUILD_DIR="")
        self.assertTrue((self.repo / "build/linux.git").is_dir())
        self.assertFalse((self.repo / "linux.git").exists())


class BadKsrc(Case):
    """KSRC= that is refused, with nothing left and nothing changed."""

    def refuse(self, ksrc, *words, **env):
        before = snapshot(ksrc) if ksrc.exists() else None
        run = self.run_script("base.py", KSRC=ksrc, **env)
        self.assertRefused(run, *words)
        if before:
            self.assertUntouched(ksrc, before)
        self.assertFalse((self.build / "base.source").exists())
        self.assertFalse((self.build / "linux.git/refs/heads/base").exists())

    def test_a_plain_tree_of_another_version_names_both(self):
        self.refuse(make_kernel(self.temp / "linux", ("6", "12", "1", "")),
                    "the tree is Linux 6.12.1, the series is for 7.3.y",
                    "KSRC=", "FORCE=1")

    def test_a_clone_of_another_version_names_both(self):
        self.refuse(make_clone(self.temp / "linux", ("7", "4", "0", "")),
                    "the tree is Linux 7.4, the series is for 7.3.y",
                    "FORCE=1")

    def test_a_version_that_only_begins_like_ours(self):
        self.refuse(make_kernel(self.temp / "a", ("7", "30", "4", "")),
                    "Linux 7.30.4")
        self.refuse(make_kernel(self.temp / "b", ("17", "3", "4", "")),
                    "Linux 17.3.4")

    def test_a_release_candidate(self):
        self.refuse(make_kernel(self.temp / "linux",
                                ("7", "3", "0", " -rc5")),
                    "the tree is Linux 7.3-rc5, the series is for 7.3.y")

    def test_a_vendor_version(self):
        self.refuse(make_kernel(self.temp / "linux",
                                ("7", "3", "4", " -vendor1")),
                    "Linux 7.3.4-vendor1")

    def test_an_empty_folder(self):
        (self.temp / "empty").mkdir()
        self.refuse(self.temp / "empty", f"KSRC={self.temp}/empty is not a "
                    "Linux source tree")

    def test_a_file(self):
        write(self.temp, {"file": "text"})
        self.refuse(self.temp / "file", "file is not a folder")

    def test_a_path_that_is_not_there(self):
        self.refuse(self.temp / "missing", "missing is not a folder")

    def test_a_home_folder_of_nobody(self):
        run = self.run_script("base.py", KSRC="~no-such-user/linux")
        self.assertRefused(run, "KSRC=~no-such-user/linux is not a folder")

    def test_a_git_repository_that_is_no_kernel(self):
        place = self.temp / "other"
        write(place, {"Makefile": "all:\n"})
        git(place, "init", "-q")
        commit(place, "Other")
        self.refuse(place, "other is not a Linux source tree")

    def test_a_git_repository_without_a_commit(self):
        place = make_kernel(self.temp / "new")
        git(place, "init", "-q")
        self.refuse(place, "new is not a Linux source tree")

    def test_a_clone_of_a_program_with_such_a_makefile(self):
        place = self.temp / "program"
        write(place, {"Makefile": MAKEFILE.format(7, 3, 4, "")})
        git(place, "init", "-q")
        commit(place, "Program")
        self.refuse(place, "program is not a Linux source tree")

    def test_a_plain_program_with_such_a_makefile(self):
        place = self.temp / "program"
        write(place, {"Makefile": MAKEFILE.format(7, 3, 4, "")})
        self.refuse(place, "program is not a Linux source tree")

    def test_a_subfolder_of_a_clone(self):
        clone = make_clone(self.temp / "linux")
        before = snapshot(clone)
        self.refuse(clone / "tools/testing/selftests/x86",
                    "x86 is not a Linux source tree")
        self.refuse(clone / "mm", "mm is not a Linux source tree")
        self.assertUntouched(clone, before)

    def test_force_does_not_take_what_is_no_kernel(self):
        (self.temp / "empty").mkdir()
        self.refuse(self.temp / "empty", "not a Linux source tree", FORCE=1)

    def test_a_refusal_leaves_the_base_that_was_there(self):
        good = make_kernel(self.temp / "good")
        self.assertDone(self.run_script("base.py", KSRC=good))
        before = snapshot(self.build)
        bad = make_kernel(self.temp / "bad", ("6", "12", "1", ""))
        self.assertRefused(self.run_script("base.py", KSRC=bad))
        after = snapshot(self.build)
        lock = str(self.build / ".lock")
        for state in (before, after):
            del state[lock], state[str(self.build)]
        self.assertEqual(after, before)


class NoSpace(Case):
    """A full disk: one error, before the work where it can be foreseen."""

    def test_too_little_space_is_said_before_the_work(self):
        ksrc = make_kernel(self.temp / "linux")
        run = self.run_script("base.py", KSRC=ksrc, FAKE_FREE=3 * GIB)
        self.assertRefused(run, "the base, two kernels and their tests needs "
                           "9 GiB", "3.0 GiB are free", "make room")
        self.assertFalse((self.build / "linux.git").exists())
        self.assertDone(self.run_script("base.py", KSRC=ksrc))

    def test_a_disk_that_fills_up_while_writing(self):
        ksrc = make_kernel(self.temp / "linux")
        run = self.run_script("base.py", KSRC=ksrc, FAKE_FULL="base.source")
        self.assertRefused(run, "no disk space left", "make room")
        self.assertEqual(run.err.count("\n"), 1, run)
        self.assertDone(self.run_script("base.py", KSRC=ksrc))

    def test_a_disk_that_fills_up_under_git(self):
        ksrc = make_kernel(self.temp / "linux")
        real = shutil.which("git")
        self.stub("git", f"""case " $* " in *" add "*)
echo "error: unable to write file: No space left on device" >&2
echo "error: unable to index file" >&2
echo "fatal: adding files failed" >&2
exit 128;; esac
exec "{real}" "$@"
""")
        self.assertRefused(self.run_script("base.py", KSRC=ksrc),
                           "No space left on device")
        (self.bin / "git").unlink()
        self.assertDone(self.run_script("base.py", KSRC=ksrc))


class Package(Case):
    """The distribution's source package, from an archive made of stubs."""

    def setUp(self):
        super().setUp()
        self.stub("apt-get", f"""echo "$*" >>"{self.temp}/apt-calls"
case "$1" in
indextargets)
	echo "$STUB_SOURCES" ;;
update)
	[ -z "$STUB_DOWN" ] || {{ echo "E: Failed to fetch"; exit 100; }} ;;
download)
	[ -z "$STUB_HALF" ] || printf half >{DEB}
	[ "$STUB_HALF" != hang ] || {{ echo x >"{self.temp}/hangs"; sleep 60; }}
	[ -f "{self.temp}/{DEB}" ] || {{
		echo "E: Unable to locate package $2"; exit 100; }}
	cp "{self.temp}/{DEB}" . ;;
esac
""")
        self.stub("apt-cache", 'echo "linux-source-6.12 - Linux source"\n')

    def environment(self, **more):
        return {"STUB_SOURCES": "http://archive.invalid/debian"
                "|Debian|Debian|main"} | super().environment(**more)

    def make_package(self, version=("7", "3", "4", ""), archives=1,
                     top="linux-source-7.3"):
        """Write a Debian source package of a fake kernel."""
        if not shutil.which("dpkg-deb"):
            self.skipTest("dpkg-deb is not there to make a package")
        place = self.temp / "package"
        shutil.rmtree(place, ignore_errors=True)
        kernel = make_kernel(self.temp / "kernel", version)
        # Some files of a release are named by its .gitignore.
        write(kernel, {"mm/shipped.o": b"\x7fELF"})
        write(place, {"DEBIAN/control":
                      f"Package: {PACKAGE}\nVersion: 7.3.4-1~bpo13+1\n"
                      "Architecture: all\nMaintainer: A Tester <a@b.org>\n"
                      "Description: test\n"})
        (place / "usr/src").mkdir(parents=True)
        for number in range(archives):
            name = f"usr/src/linux-source-7.{3 + number}.tar.gz"
            with tarfile.open(place / name, "w:gz", compresslevel=1) as tar:
                tar.add(kernel, top)
        subprocess.run(["dpkg-deb", "-Znone", "--root-owner-group", "-b",
                        place, self.temp / DEB], check=True,
                       capture_output=True)

    def downloads(self):
        """Return how often apt-get was asked for the package (int)."""
        calls = self.temp / "apt-calls"
        return calls.read_text().count(f"download {PACKAGE}") \
            if calls.exists() else 0

    def test_it_is_downloaded_and_taken_whole(self):
        self.make_package()
        self.assertDone(self.run_script("base.py"),
                        f"downloading {PACKAGE} from trixie-backports",
                        "base: Linux 7.3.4")
        self.assertNothingHalfDone()
        clone = make_clone(self.temp / "wanted")
        write(clone, {"mm/shipped.o": b"\x7fELF"})
        git(clone, "add", "-f", "mm/shipped.o")
        self.assertEqual(self.tree("base"), git(clone, "write-tree").strip())

    def test_a_second_run_takes_what_is_there(self):
        self.make_package()
        self.assertDone(self.run_script("base.py"))
        first = self.tip("base")
        run = self.run_script("base.py")
        self.assertDone(run, "base: Linux 7.3.4")
        self.assertNotIn("==>", run.out)
        self.assertEqual(self.tip("base"), first)
        self.assertEqual(self.downloads(), 1)

    def test_after_a_ksrc_the_package_is_taken_again(self):
        self.make_package()
        self.assertDone(self.run_script("base.py"))
        first = self.tip("base")
        other = make_kernel(self.temp / "other", ("7", "3", "9", ""))
        self.assertDone(self.run_script("base.py", KSRC=other))
        self.assertNotEqual(self.tip("base"), first)
        self.assertDone(self.run_script("base.py"), "base: Linux 7.3.4")
        self.assertEqual(self.tip("base"), first)
        self.assertEqual(self.downloads(), 1)

    def test_an_interrupted_ksrc_is_not_taken_for_the_package(self):
        self.make_package()
        self.assertDone(self.run_script("base.py"))
        first = self.tip("base")
        other = make_kernel(self.temp / "other", ("7", "3", "9", ""))
        self.stub_git(" update-ref ", after=True)
        self.assertInterrupted(self.interrupt("base.py", KSRC=other))
        (self.bin / "git").unlink()
        self.assertDone(self.run_script("base.py"), "base: Linux 7.3.4")
        self.assertEqual(self.tip("base"), first)

    def test_a_package_that_the_archive_does_not_have(self):
        run = self.run_script("base.py")
        self.assertRefused(run, f"{PACKAGE} was looked for in "
                           "trixie-backports and is not to be had",
                           "there are: linux-source-6.12", "KSRC=")
        self.assertEqual(list((self.build / "download").glob("*.deb")), [])

    def test_an_archive_that_cannot_be_read(self):
        run = self.run_script("base.py", STUB_DOWN=1)
        self.assertRefused(run, PACKAGE, "trixie-backports", "KSRC=",
                           "Failed to fetch")
        self.assertEqual(self.downloads(), 0)

    def test_no_debian_archive_among_the_sources(self):
        run = self.run_script(
            "base.py", STUB_SOURCES="http://x.invalid|Other|Other|main")
        self.assertRefused(run, "no Debian archive", "KSRC=")

    def test_a_download_that_fails_half_way_is_not_taken(self):
        run = self.run_script("base.py", STUB_HALF=1)
        self.assertRefused(run, "not to be had")
        self.make_package()
        self.assertDone(self.run_script("base.py"), "base: Linux 7.3.4")
        self.assertEqual(self.downloads(), 2)

    def test_an_interrupted_download_is_not_taken(self):
        self.make_package()
        run = self.interrupt("base.py", STUB_HALF="hang")
        self.assertInterrupted(run)
        half = self.build / "download/partial" / DEB
        self.assertEqual(half.read_text(), "half")
        self.assertEqual(list((self.build / "download").glob("*.deb")), [])
        self.assertDone(self.run_script("base.py"), "base: Linux 7.3.4")
        self.assertFalse(half.parent.exists())

    def test_a_half_file_of_an_earlier_job_is_not_taken(self):
        self.make_package()
        write(self.build / "download/partial",
              {DEB: "half", f"{PACKAGE}_9_all.deb": "other half"})
        self.assertDone(self.run_script("base.py"), "base: Linux 7.3.4")
        self.assertEqual(self.downloads(), 1)

    def test_a_half_unpacked_tree_is_not_taken(self):
        self.make_package()
        kernel = make_kernel(self.build / "unpack-abc/linux-source-7.3",
                             ("7", "3", "8", ""))
        (kernel / "mm/mmap.c").unlink()
        self.assertDone(self.run_script("base.py"), "base: Linux 7.3.4")
        self.assertNothingHalfDone()
        self.assertEqual(
            git(self.build / "linux.git", "show", "base:mm/mmap.c"),
            FILES["mm/mmap.c"])

    def test_an_interruption_while_unpacking(self):
        self.make_package()
        real = shutil.which("tar")
        self.stub("tar", f'"{real}" "$@"; echo x >"{self.temp}/hangs"\n'
                  'case "$*" in *unpack-*) sleep 60; esac\n')
        self.assertInterrupted(self.interrupt("base.py"))
        self.assertFalse((self.build / "base.source").exists())
        (self.bin / "tar").unlink()
        self.assertDone(self.run_script("base.py"), "base: Linux 7.3.4")
        self.assertEqual(self.downloads(), 1)

    def test_a_damaged_package_is_named(self):
        write(self.build / "download", {DEB: "not a package"})
        self.assertRefused(self.run_script("base.py"), DEB,
                           "cannot be unpacked", "remove it")

    def test_a_package_without_a_source_archive(self):
        self.make_package(archives=0)
        self.assertRefused(self.run_script("base.py"), DEB,
                           "holds 0 source archives", "KSRC=")

    def test_a_package_without_a_kernel(self):
        self.make_package(top="deeper/linux-source-7.3")
        self.assertRefused(self.run_script("base.py"), DEB,
                           "holds 0 kernel trees", "KSRC=")

    def test_a_package_of_another_version(self):
        self.make_package(("6", "12", "1", ""))
        self.assertRefused(self.run_script("base.py"),
                           "the tree is Linux 6.12.1", "7.3.y")
        self.assertFalse((self.build / "base.source").exists())
        self.assertDone(self.run_script("base.py", FORCE=1),
                        "notice: this is 6.12.1, not 7.3.y")
        self.assertRefused(self.run_script("base.py"), "Linux 6.12.1")

    def test_nothing_of_the_systems_apt_is_changed(self):
        """The set-up of apt that is used lies below the build folder."""
        self.make_package()
        self.assertDone(self.run_script("base.py"))
        home = self.build / "download/apt"
        self.assertIn("http://archive.invalid/debian trixie-backports main",
                      (home / "sources.list").read_text())
        text = (home / "apt.conf").read_text()
        for name in ("Dir::Etc::sourcelist", "Dir::Etc::sourceparts",
                     "Dir::State", "Dir::Cache"):
            self.assertIn(f'{name} "{home}/', text)

    def test_too_little_space_for_the_download(self):
        git(self.temp, "init", "-q", "--bare", self.build / "linux.git")
        run = self.run_script("base.py", FAKE_FREE=GIB)
        self.assertRefused(run, "the kernel source package needs 2 GiB")
        self.assertEqual(self.downloads(), 0)


if __name__ == "__main__":
    unittest.main()
