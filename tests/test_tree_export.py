# SPDX-License-Identifier: GPL-2.0-only
"""The way from patches to a git tree and back, byte for byte."""

import shutil
import signal
import unittest

from helper import (COMMITS, FIX, GIB, SELFTEST, Case, commit, git,
                    make_clone, make_kernel, patched_tree, snapshot, workshop,
                    write)

EXPORTED = ("patches", "series", "selftests", "Documentation")
# What COMMITS give, {path: bytes}, once a test has exported them.
EXPORT = {}


class Tree(Case):
    """A repository without patches, and a base for it."""

    commits = ()

    def setUp(self):
        super().setUp()
        self.copy_repo()
        self.work = self.build / "tree"
        self.ksrc = make_kernel(self.temp / "linux")

    def make_tree(self, **env):
        return self.run_script("tree.py", KSRC=self.ksrc, **env)

    def export(self, *args):
        return self.run_script("export.py", *args, KSRC=self.ksrc)

    def start(self, commits=COMMITS):
        """Make the tree, commit in it, export and return the export."""
        self.assertDone(self.make_tree(), "branch work")
        for subject, body, files in commits:
            commit(self.work, subject, body, files)
        self.assertDone(self.export(), f"exported {len(commits)} patches")
        return self.exported()

    def start_exported(self, applied=True):
        """Start with what start() exports, made once, and no tree.

        applied: with a build folder in which the series was applied.
        """
        template = workshop() / "applied"
        if not EXPORT:
            EXPORT.update(self.start())
            self.build = template
            self.assertDone(self.run_script("apply.py", KSRC=self.ksrc))
            self.build = self.temp / "build2"
            self.work = self.build / "tree"
        write(self.repo, EXPORT)
        if applied:
            shutil.copytree(template, self.build, dirs_exist_ok=True)

    def ready(self):
        """Start with patches and a tree that was made from them."""
        self.start_exported()
        self.assertDone(self.make_tree(), "branch work")

    def conflict(self):
        """Leave the tree in a rebase that stopped at a conflict."""
        commit(self.work, "x86: Once more", "",
               {"arch/x86/kernel/ioport.c": "all new\n"})
        with self.assertRaises(AssertionError):
            git(self.work, "rebase", "-q", "--onto", "base", "work~1")

    def exported(self):
        """Return {path: bytes} of what an export writes."""
        paths = [path for part in EXPORTED
                 for path in [self.repo / part,
                              *(self.repo / part).rglob("*")]]
        return {str(path.relative_to(self.repo)): path.read_bytes()
                for path in paths if path.is_file()}

    def patch(self, number):
        """Return the path of an exported patch."""
        path, = (self.repo / "patches").glob(f"{number:04d}-*.patch")
        return path

    def refuse_export(self, *words):
        """An export is refused and writes nothing."""
        before = snapshot(self.repo)
        self.assertRefused(self.export(), *words)
        self.assertUntouched(self.repo, before)

    def refuse_tree(self, *words):
        """A new tree is refused and the tree stays as it is."""
        before = git(self.work, "rev-parse", "HEAD"), \
            git(self.work, "status", "--porcelain")
        self.assertRefused(self.make_tree(), *words)
        self.assertEqual((git(self.work, "rev-parse", "HEAD"),
                          git(self.work, "status", "--porcelain")), before)

    def assertFresh(self):
        """The tree is on branch work, at what the patches give."""
        self.assertEqual(git(self.work, "rev-parse", "HEAD").strip(),
                         self.tip("applied"))
        self.assertEqual(git(self.work, "branch", "--show-current"),
                         "work\n")
        self.assertEqual(git(self.work, "status", "--porcelain"), "")


class Export(Tree):
    """What export writes."""

    def test_a_patch_is_one_commit_and_gives_the_same_tree(self):
        self.start()
        clone = make_clone(self.temp / "clone")
        for name in self.series():
            git(clone, "am", "-q", self.repo / "patches" / name)
        self.assertEqual(git(clone, "rev-parse", "HEAD^{tree}").strip(),
                         patched_tree())

    def series(self):
        return [row for row in (self.repo / "series").read_text().split("\n")
                if row and not row.startswith("#")]

    def test_series_has_a_heading_for_each_group(self):
        self.start()
        self.assertEqual((self.repo / "series").read_text(), """\
# Linux v7.3: apply in this order, from the top of the tree, with -p1.
# Written by 'make export'.

# Fixes: these need none of the others
0001-x86-ioperm-Close-the-window.patch

# Tests and measurements
0002-selftests-x86-Add-a-test-of-the-window.patch

# sched_yield(): one tick, and the CPU handed over
0003-sched-Yield-one-tick.patch

# Documents
0004-Documentation-Describe-the-I-O-bitmap.patch

# x86: I/O bitmaps
0005-x86-ioport-Copy-less.patch

# Others
0006-mm-Say-more.patch
""")

    def test_patches_of_one_group_share_a_heading(self):
        first, second = COMMITS[0], COMMITS[4]
        third = ("x86/iopl: Say more", "More.", COMMITS[5][2])
        self.start((first, second, third))
        text = (self.repo / "series").read_text()
        self.assertEqual(text.count("\n# x86: I/O bitmaps\n"), 1)
        self.assertIn("0002-x86-ioport-Copy-less.patch\n"
                      "0003-x86-iopl-Say-more.patch\n", text)

    def test_a_fixes_tag_needs_a_commit_name(self):
        subject, _, files = FIX
        self.start(((subject, "Fixes: a bug that I saw", files),))
        text = (self.repo / "series").read_text()
        self.assertNotIn("# Fixes", text)
        self.assertIn("# x86: I/O bitmaps", text)

    def test_copies_are_the_files_that_the_series_adds(self):
        found = self.start()
        self.assertEqual(
            sorted(name for name in found if "/" in name
                   and not name.startswith("patches/")),
            ["Documentation/arch/x86/iobitmap.rst",
             "selftests/x86/window.c"])
        self.assertEqual(
            found["selftests/x86/window.c"].decode(),
            SELFTEST[2]["tools/testing/selftests/x86/window.c"])

    def test_a_copy_has_the_last_state_of_its_file(self):
        path = "tools/testing/selftests/x86/window.c"
        found = self.start((SELFTEST, ("selftests/x86: More", "Why.",
                                       {path: "more\n"})))
        self.assertEqual(found["selftests/x86/window.c"], b"more\n")

    def test_a_copy_is_the_same_to_the_byte(self):
        files = {"Documentation/latin1.txt": b"\xe9t\xe9\r\nline\rend",
                 "Documentation/image.png": b"\x89PNG\r\n\x00\xff"}
        found = self.start((("Documentation: Add two", "Why.", files),))
        for name, content in files.items():
            self.assertEqual(found[name], content)

    def test_nothing_of_the_time_or_the_machine_is_in_a_patch(self):
        self.start()
        text = self.patch(1).read_text()
        self.assertTrue(text.startswith("From " + 40 * "0" + " Mon Sep 17 "
                                        "00:00:00 2001\n"))
        self.assertNotIn(git(self.work, "version").split()[2], text)
        self.assertIn("Subject: [PATCH] x86/ioperm: Close", text)

    def test_a_second_export_changes_nothing(self):
        self.start()
        before = snapshot(self.repo)
        self.assertDone(self.export(), "exported 6 patches: nothing changed")
        self.assertUntouched(self.repo, before)

    def test_tree_and_export_give_the_same_bytes_on_another_machine(self):
        before = self.start()
        self.build = self.temp / "build2"
        self.work = self.build / "tree"
        self.assertDone(self.make_tree())
        self.assertDone(self.export(), "nothing changed")
        self.assertEqual(self.exported(), before)

    def test_a_rewritten_commit_with_the_same_text_changes_nothing(self):
        before = self.start()
        git(self.work, "rebase", "-q", "--force-rebase", "base")
        self.assertDone(self.export(), "nothing changed")
        self.assertEqual(self.exported(), before)

    def test_non_ascii_names_and_texts_come_back_the_same(self):
        before = self.start((("mm: Réparer", "Grüße an José.",
                              {"mm/mmap.c": "/* é */\n"}),))
        self.assertDone(self.make_tree())
        self.assertDone(self.export("--check"), "in sync")
        self.assertEqual(self.exported(), before)

    def test_a_changed_commit_rewrites_its_patch_only(self):
        self.start()
        before = {path: path.stat().st_mtime_ns
                  for path in (self.repo / "patches").iterdir()}
        write(self.work, {"mm/mmap.c": "all new\n"})
        git(self.work, "commit", "-q", "-a", "--amend", "--no-edit")
        run = self.export()
        self.assertDone(run, "0006-mm-Say-more.patch differs: written")
        changed = [path.name for path, then in before.items()
                   if path.stat().st_mtime_ns != then]
        self.assertEqual(changed, ["0006-mm-Say-more.patch"])

    def test_what_is_gone_from_the_tree_is_removed(self):
        self.start()
        git(self.work, "reset", "-q", "--hard", "base")
        commit(self.work, *FIX)
        self.assertDone(self.export(), "exported 1 patches",
                        "selftests/x86/window.c is not exported: removed")
        self.assertEqual(sorted(self.exported()),
                         ["patches/0001-x86-ioperm-Close-the-window.patch",
                          "series"])

    def test_a_readme_beside_the_copies_stays(self):
        write(self.repo, {"selftests/README.md": "mine\n"})
        found = self.start()
        self.assertEqual(found["selftests/README.md"], b"mine\n")

    def test_an_empty_series_is_exported(self):
        self.assertDone(self.make_tree())
        self.assertDone(self.export(), "exported 0 patches")
        self.assertDone(self.export("--check"), "in sync: 0 patches")


class ExportRefused(Tree):
    """What export does not take; it then writes nothing."""

    def test_no_tree(self):
        self.refuse_export("no work tree to export: run 'make tree'")

    def test_an_empty_folder_in_the_place_of_the_tree(self):
        git(self.repo, "init", "-q")
        commit(self.repo, "The repository's own commit")
        self.work.mkdir(parents=True)
        self.refuse_export("no work tree to export: run 'make tree'")

    def test_uncommitted_changes(self):
        self.ready()
        write(self.work, {"mm/mmap.c": "changed\n"})
        self.refuse_export("uncommitted changes")
        git(self.work, "add", "-A")
        self.refuse_export("uncommitted changes")

    def stop_in_rebase(self):
        """Leave the tree in the middle of a rebase, without changes."""
        git(self.work, "-c", "sequence.editor=sed -i 2s/pick/edit/",
            "rebase", "-q", "-i", "base")

    def test_the_middle_of_a_rebase(self):
        self.ready()
        self.stop_in_rebase()
        self.refuse_export("in the middle of a rebase")
        git(self.work, "rebase", "--continue")
        self.assertDone(self.export(), "nothing changed")

    def test_a_conflict_of_a_rebase(self):
        self.ready()
        self.conflict()
        self.refuse_export("in the middle of a rebase")

    def test_a_merge(self):
        self.ready()
        git(self.work, "checkout", "-q", "-b", "side", "work~1")
        commit(self.work, "side", "", {"mm/side.c": "side\n"})
        git(self.work, "checkout", "-q", "work")
        git(self.work, "merge", "-q", "--no-edit", "side")
        self.refuse_export("has a merge")

    def test_a_tree_that_is_not_above_the_base(self):
        self.ready()
        git(self.work, "checkout", "-q", "--orphan", "other")
        commit(self.work, "Other")
        self.refuse_export("not on top of 'base'")

    def test_an_empty_commit(self):
        self.ready()
        commit(self.work, "mm: Nothing")
        self.refuse_export("(mm: Nothing) changes nothing")

    def test_a_commit_without_a_subject(self):
        self.ready()
        write(self.work, {"mm/mmap.c": "changed\n"})
        git(self.work, "commit", "-q", "-a", "--allow-empty-message", "-m",
            "")
        self.refuse_export("has no subject")


class ExportCheck(Tree):
    """export.py --check: patches/ and the copies are what export writes."""

    def setUp(self):
        super().setUp()
        self.start_exported()

    def check_fails(self, *words):
        before = snapshot(self.repo)
        self.assertRefused(self.export("--check"), *words)
        self.assertUntouched(self.repo, before)

    def test_in_sync(self):
        before = snapshot(self.repo)
        self.assertDone(self.export("--check"), "in sync: 6 patches")
        self.assertUntouched(self.repo, before)

    def test_it_needs_no_tree(self):
        self.assertDone(self.export("--check"), "in sync: 6 patches")
        self.assertFalse((self.build / "tree").exists())

    def test_a_patch_edited_by_hand(self):
        path = self.patch(1)
        path.write_text(path.read_text().replace("\n---\n",
                                                 "\n---\nby hand\n", 1))
        self.check_fails(f"patches/{path.name} differs")

    def test_a_patch_renamed_by_hand(self):
        path = self.patch(6)
        path.rename(path.with_name("0006-mm-Other.patch"))
        text = (self.repo / "series").read_text()
        write(self.repo, {"series": text.replace(path.name,
                                                 "0006-mm-Other.patch")})
        self.check_fails("patches/0006-mm-Other.patch is not exported",
                         f"patches/{path.name} is missing",
                         "series differs")

    def test_a_patch_that_series_does_not_name(self):
        write(self.repo / "patches", {"0007-more.patch": "more\n"})
        self.check_fails("patches/0007-more.patch is not exported")

    def test_a_series_edited_by_hand(self):
        text = (self.repo / "series").read_text()
        write(self.repo, {"series": text + "# by hand\n"})
        self.check_fails("series differs")

    def test_a_copy_edited_by_hand(self):
        path = self.repo / "selftests/x86/window.c"
        path.write_text(path.read_text() + "/* by hand */\n")
        self.check_fails("selftests/x86/window.c differs")

    def test_a_copy_that_is_missing(self):
        (self.repo / "Documentation/arch/x86/iobitmap.rst").unlink()
        self.check_fails("Documentation/arch/x86/iobitmap.rst is missing")

    def test_a_copy_of_nothing(self):
        write(self.repo, {"Documentation/old.rst": "old\n"})
        self.check_fails("Documentation/old.rst is not exported")


class MakeTree(Tree):
    """tree.py never loses work, unless it is told to."""

    def test_a_commit_for_each_patch(self):
        self.start_exported(applied=False)
        self.assertDone(self.make_tree(), "checking out build/tree")
        self.assertNothingHalfDone()
        self.assertFresh()
        subjects = git(self.work, "log", "--reverse", "--format=%s",
                       "base..work").splitlines()
        self.assertEqual(subjects, [row[0] for row in COMMITS])
        self.assertEqual(git(self.work, "rev-parse", "HEAD^{tree}").strip(),
                         patched_tree())
        self.assertEqual(git(self.work, "status", "--porcelain"), "")

    def test_a_second_run_leaves_the_tree_alone(self):
        self.ready()
        before = snapshot(self.work)
        self.assertDone(self.make_tree(), "build/tree is up to date")
        self.assertUntouched(self.work, before)

    def test_an_exported_tree_moves_on_with_the_patches(self):
        self.ready()
        path = self.patch(6)
        path.write_text(path.read_text().replace("+say();", "+shout();"))
        self.assertDone(self.make_tree(), "moving build/tree")
        self.assertFresh()
        self.assertIn("shout();", (self.work / "mm/mmap.c").read_text())

    def test_a_commit_that_was_not_exported_is_kept(self):
        self.ready()
        commit(self.work, "mm: New", "", {"mm/new.c": "new\n"})
        self.refuse_tree("build/tree has work", "make export", "FORCE=1")
        self.assertDone(self.export())
        self.assertDone(self.make_tree())
        self.assertEqual((self.work / "mm/new.c").read_text(), "new\n")

    def test_an_uncommitted_change_is_kept(self):
        self.ready()
        write(self.work, {"mm/mmap.c": "mine\n"})
        self.refuse_tree("build/tree has work")
        self.assertEqual((self.work / "mm/mmap.c").read_text(), "mine\n")

    def test_force_throws_away_a_change_and_a_commit(self):
        self.ready()
        commit(self.work, "mm: New", "", {"mm/new.c": "new\n"})
        write(self.work, {"mm/mmap.c": "mine\n"})
        self.assertDone(self.make_tree(FORCE=1), "moving build/tree")
        self.assertFresh()

    def test_force_throws_away_a_merge(self):
        self.ready()
        git(self.work, "checkout", "-q", "-b", "side", "work~1")
        commit(self.work, "side", "", {"mm/side.c": "side\n"})
        git(self.work, "checkout", "-q", "work")
        git(self.work, "merge", "-q", "--no-edit", "side")
        self.refuse_tree("merge")
        self.assertDone(self.make_tree(FORCE=1))
        self.assertFresh()

    def test_force_throws_away_a_rebase_that_is_not_finished(self):
        self.ready()
        self.conflict()
        self.refuse_tree("build/tree has work")
        self.assertDone(self.make_tree(FORCE=1))
        self.assertFresh()
        self.assertDone(self.export(), "nothing changed")

    def test_is_exported_says_whether_there_is_work(self):
        def ask():
            return self.run_script("tree.py", "--is-exported")

        self.assertDone(ask())
        self.ready()
        self.assertDone(ask())
        write(self.work, {"mm/new.c": "never added\n"})
        self.assertRefused(ask(), "build/tree has work", "(?? mm/new.c)")
        (self.work / "mm/new.c").unlink()
        commit(self.work, "mm: New", "", {"mm/new.c": "new\n"})
        self.assertRefused(ask(), "build/tree has work",
                           "patches/0007-mm-New.patch is missing")

    def test_patches_that_moved_on_are_no_work_of_the_tree(self):
        self.ready()
        path = self.patch(6)
        path.write_text(path.read_text().replace("+say();", "+shout();"))
        self.assertDone(self.run_script("tree.py", "--is-exported"))

    def test_too_little_space_for_the_tree(self):
        self.assertDone(self.run_script("base.py", KSRC=self.ksrc))
        self.assertRefused(self.make_tree(FAKE_FREE=2 * GIB),
                           "the work tree needs 3 GiB", "2.0 GiB are free")
        self.assertFalse(self.work.exists())
        self.assertDone(self.make_tree())

    def test_a_patch_that_does_not_apply_leaves_the_tree(self):
        self.ready()
        path = self.patch(1)
        path.write_text(path.read_text().replace("ioport 9", "ioport nine"))
        self.refuse_tree(f"patches/{path.name} does not apply: "
                         "arch/x86/kernel/ioport.c, line 7")


class Interrupted(Tree):
    """Ctrl-C, or worse, and then the same command once more."""

    def setUp(self):
        super().setUp()
        self.start_exported(applied=False)

    def again(self, word, after=False, sig=signal.SIGINT):
        """Interrupt tree.py at a git command, then run it to the end."""
        self.stub_git(word, after)
        run = self.interrupt("tree.py", sig, KSRC=self.ksrc)
        if sig == signal.SIGINT:
            self.assertInterrupted(run)
        (self.bin / "git").unlink()
        self.assertDone(self.make_tree(), "branch work")
        self.assertFresh()
        self.assertEqual(self.tree("work"), patched_tree())
        self.assertNothingHalfDone()

    def test_while_the_repository_is_made(self):
        self.again(" init ", after=True)

    def test_while_the_files_are_added(self):
        self.again(" add -A ")

    def test_while_the_base_is_committed(self):
        self.again(" commit-tree ", after=True)

    def test_while_the_scratch_tree_is_made(self):
        self.again(" sparse-checkout ", after=True)

    def test_while_the_third_patch_is_applied(self):
        self.again("/0003-", after=True)

    def test_after_the_series_was_applied(self):
        self.again(" refs/heads/applied ", after=True)

    def test_while_the_tree_is_checked_out(self):
        self.again(" -B work ", after=True)

    def test_while_the_tree_is_put_in_its_place(self):
        self.again(" worktree move ", after=True)

    def test_killed_while_a_patch_is_applied(self):
        self.again("/0003-", after=True, sig=signal.SIGKILL)

    def test_killed_while_the_tree_is_checked_out(self):
        self.again(" -B work ", after=True, sig=signal.SIGKILL)

    def test_while_the_tree_is_moved(self):
        self.assertDone(self.make_tree())
        path = self.patch(6)
        path.write_text(path.read_text().replace("+say();", "+shout();"))
        self.assertDone(self.run_script("apply.py", KSRC=self.ksrc))
        # What git leaves that is ended between two files.
        self.stub_git(" -B work ")
        hang = (self.bin / "git").read_text()
        self.stub("git", hang.split("\n", 1)[1].replace(
            "echo $$", "echo half >mm/mmap.c; rm mm/../Kconfig; echo $$"))
        self.assertInterrupted(self.interrupt("tree.py", KSRC=self.ksrc))
        (self.bin / "git").unlink()
        self.assertDone(self.make_tree(), "moving build/tree")
        self.assertFresh()
        self.assertIn("shout();", (self.work / "mm/mmap.c").read_text())

    def test_while_an_export_is_written(self):
        self.assertDone(self.make_tree())
        commit(self.work, "mm: New", "", {"mm/new.c": "new\n"})
        before = snapshot(self.repo)
        self.stub_git(" format-patch ", after=True)
        self.assertInterrupted(self.interrupt("export.py"))
        self.assertUntouched(self.repo, before)
        (self.bin / "git").unlink()
        self.assertDone(self.export(), "exported 7 patches")


    def test_while_a_clone_is_fetched(self):
        self.ksrc = make_clone(self.temp / "clone")
        before = snapshot(self.ksrc)
        for after in (False, True):
            with self.subTest(after=after):
                self.build = self.temp / f"build-{after}"
                self.work = self.build / "tree"
                self.again(" fetch ", after=after)
                self.assertUntouched(self.ksrc, before)


if __name__ == "__main__":
    unittest.main()
