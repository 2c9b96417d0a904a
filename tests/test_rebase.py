# SPDX-License-Identifier: GPL-2.0-only
"""The series is tried on another tree, and nothing else happens to it."""

import shutil
from pathlib import Path

from helper import (FILES, Case, commit, git, make_clone, plain_patches,
                    snapshot, write)

IOPORT = "arch/x86/kernel/ioport.c"


class Rebase(Case):
    """A repository with the patches of COMMITS, and a newer kernel."""

    def setUp(self):
        super().setUp()
        self.copy_repo(plain_patches())
        self.newer = make_clone(self.temp / "newer", ("7", "4", "0", ""))

    def rebase(self, *args, **env):
        return self.run_script("rebase.py", *args,
                               **({"BASE": self.newer} | env))

    def change(self, **files):
        """Commit changes of the newer kernel: new texts by short name."""
        names = {"ioport": IOPORT, "mmap": "mm/mmap.c",
                 "syscalls": "kernel/sched/syscalls.c"}
        commit(self.newer, "Newer", files={names[name]: text
                                           for name, text in files.items()})

    def rows(self, run):
        """Return {number of the patch (int): its rows (list of str)}."""
        found, number = {}, 0
        for row in run.out.splitlines():
            words = row.split()
            if len(words) == 2 and words[1].endswith(".patch"):
                number = int(words[1][:4])
                found[number] = [words[0]]
            elif row.startswith(" " * 10):
                found[number].append(row.strip())
        return found

    def assertFails(self, run, summary):
        """It found a patch that does not fit, and says so."""
        self.assertEqual((run.status, run.err), (1, ""), run)
        self.assertIn(summary, run.out)
        self.assertNothingHalfDone()

    def test_a_tree_that_all_patches_fit(self):
        before = snapshot(self.newer)
        self.assertDone(self.rebase(), "Linux 7.4", "6 apply as they are, 0 "
                        "at other lines, 0 only with a three-way merge, 0 "
                        "fail")
        self.assertUntouched(self.newer, before)
        self.assertNothingHalfDone()

    def test_a_plain_tree_will_do(self):
        shutil.rmtree(self.newer / ".git")
        before = snapshot(self.newer)
        self.assertDone(self.rebase(), "6 apply as they are")
        self.assertUntouched(self.newer, before)

    def test_another_commit_of_the_clone(self):
        self.change(ioport="all new\n")
        self.assertDone(self.rebase("--onto", "HEAD~1"), "6 apply as they")

    def test_lines_that_moved_are_told(self):
        self.change(syscalls="/* new */\n\n" + FILES["kernel/sched/"
                                                     "syscalls.c"])
        run = self.rebase()
        self.assertDone(run, "5 apply as they are, 1 at other lines")
        self.assertEqual(self.rows(run)[3], [
            "moved", "kernel/sched/syscalls.c: hunk 1, 2 lines off"])

    def test_the_hunk_that_fails_is_told(self):
        # The hunk of the last x86 patch that stands alone is at line 30.
        self.change(ioport=FILES[IOPORT].replace("ioport 30 ", "other "))
        run = self.rebase()
        self.assertFails(run, "5 apply as they are, 0 at other lines, 0 only "
                         "with a three-way merge, 1 fail")
        verdict, *rows = self.rows(run)[5]
        self.assertEqual(verdict, "FAIL")
        self.assertEqual(len(rows), 1)
        self.assertIn(f"{IOPORT}: hunk 1 (line 27", rows[0])
        self.assertIn("CONTRIBUTING.md", run.out)

    def test_what_follows_from_a_failure_is_said(self):
        self.change(ioport="all new\n")
        run = self.rebase()
        self.assertFails(run, "4 apply as they are")
        self.assertIn("hunk 1", self.rows(run)[1][1])
        self.assertIn("may follow from the failure above",
                      self.rows(run)[5])

    def test_a_patch_that_fails_is_applied_as_far_as_it_fits(self):
        clone = make_clone(self.temp / "two")
        both = {IOPORT: FILES[IOPORT].replace("ioport 10 ", "ten "),
                "mm/mmap.c": FILES["mm/mmap.c"].replace("mmap 9 ", "nine ")}
        commit(clone, "x86: Both", "", both)
        commit(clone, "mm: Again", "", {"mm/mmap.c": both[
            "mm/mmap.c"].replace("nine ", "nine again ")})
        names = git(clone, "format-patch", "--no-signature", "-o",
                    self.temp / "out", "-2").split()
        self.set_patches({path.rsplit("/", 1)[1]: Path(path).read_bytes()
                          for path in names})
        self.change(ioport="all new\n")
        run = self.rebase()
        self.assertFails(run, "1 apply as they are, 0 at other lines, 0 only "
                         "with a three-way merge, 1 fail")
        self.assertEqual(len(self.rows(run)[1]), 2, run)
        self.assertIn(f"{IOPORT}: hunk 1", self.rows(run)[1][1])

    def test_a_file_that_is_gone_is_told(self):
        git(self.newer, "rm", "-q", "mm/mmap.c")
        commit(self.newer, "Gone")
        run = self.rebase()
        self.assertFails(run, "1 fail")
        self.assertIn("mm/mmap.c is not there", self.rows(run)[6])

    def test_a_file_that_is_there_already_is_told(self):
        path = "tools/testing/selftests/x86/window.c"
        commit(self.newer, "There", files={path: "other\n"})
        run = self.rebase()
        self.assertFails(run, "1 fail")
        self.assertIn(f"{path} is there already", self.rows(run)[2])

    def test_a_three_way_merge_is_told(self):
        # As if the base was got before: its objects can be merged with.
        shutil.copytree(self.temp / "newer", self.build / "linux.git.tmp")
        shutil.move(self.build / "linux.git.tmp/.git",
                    self.build / "linux.git")
        shutil.rmtree(self.build / "linux.git.tmp")
        self.change(syscalls=FILES["kernel/sched/syscalls.c"].replace(
            "/* syscalls 17 */", "/* seventeen */\n/* new */"))
        run = self.rebase()
        self.assertDone(run, "1 only with a three-way merge")
        self.assertEqual(self.rows(run)[3][0], "merged")

    def test_what_is_no_kernel_is_refused(self):
        self.assertRefused(self.rebase(BASE=""), "give BASE=path")
        self.assertRefused(self.rebase(BASE=self.temp / "none"),
                           "is not a folder")
        write(self.temp / "empty", {"README": "empty\n"})
        self.assertRefused(self.rebase(BASE=self.temp / "empty"),
                           "is not a Linux source tree")
        self.assertRefused(self.rebase("--onto", "nowhere"),
                           "has no commit nowhere")

    def test_the_way_to_a_new_base(self):
        """What CONTRIBUTING.md tells to do."""
        old = make_clone(self.temp / "old")
        run = self.run_script("tree.py", KSRC=old)
        self.assertDone(run, "branch work")
        tree = self.build / "tree"
        self.change(ioport=FILES[IOPORT].replace("ioport 30 ", "other "))
        self.assertFails(self.rebase(), "1 fail")

        was = git(tree, "rev-parse", "base").strip()
        text = (self.repo / "BASE").read_text()
        (self.repo / "BASE").write_text(text.replace("7.3", "7.4"))
        self.assertDone(self.run_script("base.py", KSRC=self.newer))
        with self.assertRaises(AssertionError):
            git(tree, "rebase", "-q", "--onto", "base", was)
        write(tree, {IOPORT: FILES[IOPORT].replace(
            "ioport 30 ", "other thirty ").replace(
                "/* ioport 10 */", "closed();")})
        git(tree, "add", "-A")
        git(tree, "-c", "core.editor=true", "rebase", "--continue")
        self.assertDone(self.run_script("export.py", KSRC=self.newer),
                        "exported 6 patches")
        self.assertDone(self.run_script("apply.py", KSRC=self.newer))
        self.assertDone(self.rebase(), "6 apply as they are")

    def test_an_interruption_leaves_nothing(self):
        self.stub_git(" am ")
        before = snapshot(self.newer)
        self.assertInterrupted(self.interrupt("rebase.py", BASE=self.newer))
        self.assertUntouched(self.newer, before)
