# SPDX-License-Identifier: GPL-2.0-only
"""Applying the series: what is said when a patch does not apply."""

import unittest

from helper import (Case, commit, git, make_clone, make_kernel,
                    patched_tree, plain_patches, write)

IOPORT = "arch/x86/kernel/ioport.c"


class Apply(Case):
    """scripts/apply.py on a copy of the repository."""

    def setUp(self):
        super().setUp()
        self.patches = dict(plain_patches())
        self.names = sorted(self.patches)
        self.ksrc = make_kernel(self.temp / "linux")

    def apply(self, **env):
        return self.run_script("apply.py", KSRC=self.ksrc, **env)

    def edit(self, number, old, new):
        """Replace bytes of a patch, which must be there."""
        name = self.names[number - 1]
        self.assertIn(old, self.patches[name])
        self.patches[name] = self.patches[name].replace(old, new)
        return name

    def refuse(self, *words):
        """The series is refused and leaves no branch behind."""
        run = self.apply()
        self.assertRefused(run, *words)
        self.assertFalse((self.build / "applied.key").exists())
        self.assertNotIn("applied", git(self.build / "linux.git", "branch"))
        return run

    def test_each_patch_is_one_commit(self):
        self.copy_repo(self.patches)
        self.assertDone(self.apply(), "applying 6 patches",
                        "the series applies: ", "(6 patches)")
        self.assertNothingHalfDone()
        self.assertEqual(self.tree("applied"), patched_tree())
        self.assertEqual(git(self.build / "linux.git", "rev-list", "--count",
                             "base..applied").strip(), "6")

    def test_the_commits_have_the_same_names_everywhere(self):
        self.copy_repo(self.patches)
        self.assertDone(self.apply())
        first = self.tip("applied")
        self.build = self.temp / "build2"
        self.assertDone(self.apply(GIT_COMMITTER_NAME="Other",
                                   GIT_COMMITTER_EMAIL="other@example.org",
                                   TZ="Asia/Tokyo"))
        self.assertEqual(self.tip("applied"), first)

    def test_a_second_run_applies_nothing_again(self):
        self.copy_repo(self.patches)
        self.assertDone(self.apply(), "applying")
        first = self.tip("applied")
        self.stub("git", 'case " $* " in *" am "*) exit 99; esac\n'
                  'PATH=${PATH#*:}; exec git "$@"\n')
        run = self.apply()
        self.assertDone(run, "(6 patches)")
        self.assertNotIn("applying", run.out)
        self.assertEqual(self.tip("applied"), first)

    def test_a_changed_patch_is_applied_again(self):
        self.copy_repo(self.patches)
        self.assertDone(self.apply())
        self.edit(1, b"+closed();", b"+locked();")
        del self.patches[self.names[4]]
        self.set_patches(self.patches)
        self.assertDone(self.apply(), "applying 5 patches")
        self.assertIn("locked();", git(self.build / "linux.git", "show",
                                       f"applied:{IOPORT}"))

    def test_a_changed_order_is_applied_again(self):
        self.copy_repo(self.patches)
        self.assertDone(self.apply())
        first = self.tip("applied")
        self.set_patches(self.patches, [self.names[1], self.names[0],
                                        *self.names[2:]])
        self.assertDone(self.apply(), "applying")
        self.assertNotEqual(self.tip("applied"), first)
        self.assertEqual(self.tree("applied"), patched_tree())

    def test_going_back_to_earlier_patches_after_an_interruption(self):
        self.copy_repo(self.patches)
        self.assertDone(self.apply())
        first = self.tip("applied")
        self.set_patches(self.patches, self.names[:3])
        self.stub_git(" refs/heads/applied ", after=True)
        self.assertInterrupted(self.interrupt("apply.py", KSRC=self.ksrc))
        (self.bin / "git").unlink()
        self.set_patches(self.patches)
        self.assertDone(self.apply(), "(6 patches)")
        self.assertEqual(self.tip("applied"), first)

    def test_another_base_is_applied_to_again(self):
        self.copy_repo(self.patches)
        self.assertDone(self.apply())
        write(self.ksrc, {"mm/other.c": "other\n"})
        self.assertDone(self.apply(), "applying")
        self.assertIn("mm/other.c", git(self.build / "linux.git", "ls-tree",
                                        "-r", "--name-only", "applied"))

    def test_a_context_that_does_not_match_names_patch_file_and_line(self):
        name = self.edit(5, b" /* ioport 28 */", b" /* no port 28 */")
        self.copy_repo(self.patches)
        run = self.refuse(f"patches/{name} does not apply: {IOPORT}, line 27")
        self.assertNotIn("git am", run.err)

    def test_fuzz_is_not_accepted(self):
        name = self.edit(1, b" /* ioport 7 */", b" /* other */")
        self.copy_repo(self.patches)
        self.refuse(name, IOPORT)

    def test_a_base_without_the_file_names_the_file(self):
        (self.ksrc / "mm/mmap.c").unlink()
        self.copy_repo(self.patches)
        self.refuse(f"patches/{self.names[5]} does not apply: mm/mmap.c")

    def test_a_base_that_has_the_new_file_names_the_file(self):
        path = "tools/testing/selftests/x86/window.c"
        write(self.ksrc, {path: "there\n"})
        self.copy_repo(self.patches)
        self.refuse(f"patches/{self.names[1]} does not apply: {path}")

    def test_a_base_that_has_the_patch_already(self):
        ksrc = make_clone(self.temp / "patched")
        write(ksrc, {IOPORT: (ksrc / IOPORT).read_text().replace(
            "/* ioport 10 */", "closed();")})
        commit(ksrc, "Fixed upstream")
        self.ksrc = ksrc
        self.copy_repo(self.patches)
        self.refuse(f"patches/{self.names[0]} does not apply: {IOPORT}, "
                    "line 7")

    def test_every_file_that_does_not_match_is_named(self):
        clone = make_clone(self.temp / "clone")
        for path in ("mm/mmap.c", "Documentation/index.rst"):
            write(clone, {path: (clone / path).read_text().replace(
                "3 */", "three */")})
        commit(clone, "Two files")
        name = git(clone, "format-patch", "-1").strip()
        for path in ("mm/mmap.c", "Documentation/index.rst"):
            write(self.ksrc, {path: "other\n"})
        self.copy_repo({name: (clone / name).read_bytes()})
        self.refuse("mm/mmap.c, line ", "Documentation/index.rst, line ")

    def test_a_corrupt_patch_is_named_with_the_reason(self):
        name = self.names[0]
        self.patches[name] = self.patches[name].replace(
            b"-/* ioport 10 */\n", b"")
        self.copy_repo(self.patches)
        run = self.refuse(f"patches/{name} does not apply: ", "corrupt patch")
        self.assertEqual(run.err.count("\n"), 1, run)

    def test_a_file_that_is_no_patch_is_named(self):
        self.patches[self.names[2]] = b"no patch at all\n"
        self.copy_repo(self.patches)
        self.refuse(f"patches/{self.names[2]} does not apply: ")

    def test_an_empty_file_is_named(self):
        self.patches[self.names[2]] = b""
        self.copy_repo(self.patches)
        self.refuse(f"patches/{self.names[2]} does not apply: ")

    def test_a_failure_leaves_what_was_applied_before(self):
        self.copy_repo(self.patches)
        self.assertDone(self.apply())
        first = self.tip("applied")
        good = dict(self.patches)
        name = self.edit(3, b"-/* syscalls 20 */", b"-/* other */")
        self.set_patches(self.patches)
        self.assertRefused(self.apply(), name, "kernel/sched/syscalls.c")
        self.assertEqual(self.tip("applied"), first)
        self.set_patches(good)
        run = self.apply()
        self.assertDone(run)
        self.assertNotIn("applying", run.out)

    def test_a_series_entry_without_a_file_is_named(self):
        self.copy_repo(self.patches, [*self.names, "0007-missing.patch"])
        self.refuse("series names 0007-missing.patch, but there is no "
                    "patches/0007-missing.patch")

    def test_no_series_file(self):
        self.copy_repo(self.patches)
        (self.repo / "series").unlink()
        self.refuse("no file 'series'")

    def test_an_empty_series_gives_the_base(self):
        self.copy_repo({})
        self.assertDone(self.apply(), "(0 patches)")
        self.assertEqual(self.tip("applied"), self.tip("base"))
        self.assertNothingHalfDone()

    def test_comments_and_blank_lines_of_series_do_not_count(self):
        self.copy_repo(self.patches)
        text = "# all\n\n" + "".join(f"  {name}  # why\n\n"
                                     for name in self.names)
        write(self.repo, {"series": text})
        self.assertDone(self.apply(), "(6 patches)")
        self.assertEqual(self.tree("applied"), patched_tree())

    def test_leftovers_of_a_killed_job_do_not_stand_in_the_way(self):
        self.copy_repo(self.patches)
        write(self.build / "apply", {"mm/mmap.c": "half\n"})
        self.assertDone(self.apply())
        self.assertEqual(self.tree("applied"), patched_tree())
        self.assertNothingHalfDone()

    def test_the_git_of_a_caller_is_left_alone(self):
        """A git hook or rebase --exec says GIT_DIR to all it starts."""
        self.copy_repo(self.patches)
        other = make_clone(self.temp / "other")
        before = git(other, "rev-parse", "HEAD"), git(other, "branch")
        self.assertDone(self.apply(GIT_DIR=other / ".git",
                                   GIT_WORK_TREE=other,
                                   GIT_INDEX_FILE=other / ".git/index"))
        self.assertEqual((git(other, "rev-parse", "HEAD"),
                          git(other, "branch")), before)
        self.assertEqual(git(other, "status", "--porcelain"), "")
        self.assertEqual(self.tree("applied"), patched_tree())

    def test_the_users_git_configuration_does_not_matter(self):
        self.copy_repo(self.patches)
        self.assertDone(self.apply())
        first = self.tip("applied")
        self.build = self.temp / "build2"
        write(self.temp, {"home/.gitconfig":
                          "[am]\nthreeWay = true\n[core]\nautocrlf = true\n"
                          "[commit]\ngpgSign = true\n[user]\nname = Other\n"
                          "[apply]\nwhitespace = error\n"})
        self.assertDone(self.apply(HOME=self.temp / "home"))
        self.assertEqual(self.tip("applied"), first)


if __name__ == "__main__":
    unittest.main()
