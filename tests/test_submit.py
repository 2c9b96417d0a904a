# SPDX-License-Identifier: GPL-2.0-only
"""Mails are prepared in a user's clone, and nothing else happens to it."""

import email
import email.header
import email.utils
import functools
import io
import os
import re
import shutil
import subprocess
import sys
import unittest
from contextlib import redirect_stdout
from pathlib import Path
from unittest import mock

from helper import (FIX, SELFTEST, Case, commit, environment, git,
                    make_clone, snapshot, workshop, write)

import check
import common
import gates
import submit
from common import Fail

TAG = "\n\nAssisted-by: LLM [checkpatch]"
COVER = "x86: {0}\n\nWhy all of this.\n\nIn two paragraphs.\n"
STUBS = {
    "scripts/get_maintainer.pl": """#!/bin/sh
cat >/dev/null
case " $* " in
*" --nom "*) echo 'linux-kernel@vger.kernel.org' ;;
*) echo 'A Maintainer <maintainer@example.org>' ;;
esac
""",
    "scripts/checkpatch.pl": """#!/bin/sh
found=0
grep -q 'bad style' - && found=1
echo "total: 0 errors, $found warnings, 0 checks, 9 lines checked"
exit $found
""",
}
B4 = Path(sys.prefix) / "bin/b4"


@functools.cache
def submitted():
    """Return {name: bytes} of two patches, the first one a fix."""
    clone = make_clone(workshop() / "submitted")
    for subject, body, files in (FIX, SELFTEST):
        fix = "Fixes:" in body
        commit(clone, subject, body + ("\n" if fix else "\n\n") + TAG.strip()
               + ("\nCc: stable@vger.kernel.org" if fix else ""), files)
    names = git(clone, "format-patch", "--no-signature", "--no-numbered",
                "-o", workshop() / "submitted-patches", "-2").split()
    return {Path(name).name: Path(name).read_bytes() for name in names}


class Sets(unittest.TestCase):
    """chosen(): which patches of the repository's series are in a set."""

    def test_each_patch_has_a_maintainer(self):
        everything = submit.chosen("all")
        x86, sched = submit.chosen("x86"), submit.chosen("sched")
        self.assertEqual(sorted(x86 + sched), sorted(everything))
        self.assertTrue(all("sched" in name for name in sched), sched)

    def test_the_fixes_are_the_first_of_x86(self):
        fixes = submit.chosen("fixes")
        self.assertEqual(submit.chosen("x86")[:len(fixes)], fixes)
        # Those of the tests are not for stable, nor for its people.
        self.assertFalse([name for name in fixes if "selftests" in name])

    def test_each_has_a_letter(self):
        for name, (_, cover, _) in submit.SETS.items():
            with self.subTest(name):
                text = (submit.ROOT / "submit" / cover).read_text()
                self.assertNotIn("@", text)
                self.assertEqual([row for row in text.splitlines()
                                  if len(row) > 75], [])


class Authored(unittest.TestCase):
    """authored(): whose the patch is, in the order of the tip tree."""

    TEXT = ("From: A Team\n <team@example.org>\nSubject: [PATCH] x\n\nWhy.\n\n"
            "Fixes: 0123456789ab (\"y\")\nAssisted-by: LLM checkpatch\n{}---\n"
            " a | 1 +\n\n+Assisted-by: in a text\n")

    def test_order_of_the_tags(self):
        for more in ("", "Cc: stable@vger.kernel.org\n"):
            text = submit.authored(self.TEXT.format(more), "Jane Doe",
                                   "jane@example.org")
            self.assertIn("From: Jane Doe <jane@example.org>\nSubject", text)
            self.assertIn("Assisted-by: LLM checkpatch\nSigned-off-by: Jane "
                          f"Doe <jane@example.org>\n{more}---\n", text)
            self.assertEqual(text.count("Signed-off-by"), 1)

    def test_what_is_no_patch_of_ours_is_refused(self):
        for words in ("From: A", "Assisted-by: LLM"):
            with self.assertRaises(Fail):
                submit.authored(self.TEXT.format("").replace(words, "x"),
                                "Jane Doe", "jane@example.org")


class Gates(Case):
    """What these patches have passed is known, what they have not is run."""

    def setUp(self):
        super().setUp()
        for module, names in (
                (common, {"GATED": self.temp / "gates.json",
                          "RESULTS": self.temp,
                          "series_key": lambda: self.key}),
                (check, {"series_key": lambda: self.key})):
            patch = mock.patch.multiple(module, **names)
            patch.start()
            self.addCleanup(patch.stop)
        self.key = "the series"

    def passed(self, job, *groups):
        """The series passed these groups of tests."""
        for name in groups:
            common.record_gate(f"{job}: {name}", self.key, 10, 1)

    def run_gates(self, wish, passing):
        """pass_gates() when the scripts pass or not; returns what it said
        and the command lines (list of list of str)."""
        ran = []

        def script(command, **_):
            command = [str(word) for word in command]
            if command[0] == sys.executable:
                ran.append([Path(command[1]).stem, *command[2:]])
                if passing:
                    self.passed(Path(command[1]).stem, *command[3::2])

        with mock.patch("subprocess.run", script), \
                redirect_stdout(io.StringIO()):
            return submit.pass_gates(wish), ran

    def test_only_what_was_not_passed_is_run(self):
        self.passed("check", *(name for name in check.USUAL
                               if name != "kernels"))
        rows, ran = self.run_gates("check", True)
        self.assertEqual(ran, [["check", "--only", "kernels"]])
        self.assertIn(f"{10 * len(check.USUAL)} passed, 0 failed, "
                      f"{len(check.USUAL)} skipped", rows[0])
        self.assertEqual(self.run_gates("check", False), (rows, []))

    def test_other_patches_have_passed_nothing(self):
        self.passed("check", *check.USUAL)
        self.assertEqual(submit.owed("check"), {})
        self.key = "changed"
        self.assertEqual(submit.owed("check"), {"check": list(check.USUAL)})

    def test_all_is_what_check_all_runs(self):
        rows, ran = self.run_gates("all", True)
        self.assertEqual([words[0] for words in ran], ["check", "gates"])
        self.assertEqual(ran[0][2::2], [name for name in (
            *check.USUAL, "debug") if name != "matrix"])
        self.assertEqual(ran[1][2::2], list(gates.ALL_GATES))
        self.assertIn("make check-all", rows[0])
        # Its matrix is the wider one.
        self.assertEqual(self.run_gates("check", False)[1], [])

    def test_a_failure_ends_it(self):
        with self.assertRaisesRegex(Fail, "series, prefixes"):
            self.run_gates("check", False)

    def test_no_asks_for_none(self):
        self.assertEqual(self.run_gates("no", False), ([], []))

    def test_what_failed_or_was_a_part_is_not_kept(self):
        def good(tally):
            tally.ok("a test")

        with redirect_stdout(io.StringIO()):
            check.run_groups(check.Tally(), {"one": good}, "check")
            check.run_groups(check.Tally(), {"part": good})
            tally = check.Tally()
            check.run_groups(tally, {
                "bad": lambda tally: tally.fail("a test", "why"),
                "after": good, "none": lambda tally: None}, "check")
        self.assertEqual(list(common.gated()),
                         ["check: one", "check: after"])
        self.assertEqual(tally.failed, 2)


@unittest.skipUnless(B4.exists(), f"there is no {B4}")
class Submit(Case):
    """A user's clone, and a repository with two patches."""

    def setUp(self):
        super().setUp()
        self.copy_repo(submitted())
        write(self.repo, {"submit/cover-letter.txt": COVER.format("All"),
                          "submit/cover-letter-fixes.txt":
                          COVER.format("Fixes")})
        self.clone = make_clone(self.temp / "clone")
        write(self.clone, STUBS)
        for name in STUBS:
            (self.clone / name).chmod(0o755)
        commit(self.clone, "Scripts")
        self.base = git(self.clone, "rev-parse", "HEAD").strip()

    def submit(self, *args, **env):
        """Run submit.py for a user, unless the test names another one."""
        more = {"KSRC": self.clone, "NAME": "Jane Doe",
                "EMAIL": "jane@example.org", "GATES": "no"} | env
        return self.run_script("submit.py", *args, **more)

    def mails(self, kind="all"):
        """Return the written mails (list of Message), cover first."""
        return [email.message_from_bytes(path.read_bytes()) for path in
                sorted((self.build / "submit" / kind).glob("*.eml"))]

    def branch(self, name="b4/ioports-yield"):
        """Return the tip (str) of a branch of the clone, or ''."""
        found = git(self.clone, "for-each-ref", "--format=%(objectname)",
                    f"refs/heads/{name}")
        return found.strip()

    def assertNothingMade(self):
        """No branch and no mail came out of it."""
        self.assertEqual(git(self.clone, "branch", "--list", "b4/*"), "")
        self.assertEqual(list(self.build.glob("submit/*/*.eml")), [])

    def refuse(self, *words, args=(), **env):
        """It is refused, and the clone is as it was."""
        before = self.state()
        self.assertRefused(self.submit(*args, **env), *words)
        self.assertEqual(self.state(), before)
        self.assertNothingMade()

    def state(self):
        """Return the snapshot of the clone.

        Of git's objects only the names: git marks an object as in use when
        a tree that borrows it makes the same one.
        """
        return {name: None if "/.git/objects/" in name else state
                for name, state in snapshot(self.clone).items()}


class Written(Submit):
    """What a user gets."""

    def test_the_series_becomes_mails_of_the_user(self):
        config = (self.clone / ".git/config").read_bytes()
        index = (self.clone / ".git/index").read_bytes()
        self.assertDone(self.submit(), "are on b4/ioports-yield of your clone",
                        "nothing was sent")
        cover, fix, test = self.mails()
        self.assertEqual(cover["Subject"], "[PATCH 0/2] x86: All")
        self.assertIn("Why all of this.",
                      cover.get_payload(decode=True).decode())
        self.assertEqual(fix["Subject"], f"[PATCH 1/2] {FIX[0]}")
        for mail in (cover, fix, test):
            self.assertEqual(mail["From"], "Jane Doe <jane@example.org>")
            self.assertIn("maintainer@example.org", mail["To"])
            self.assertIn("linux-kernel@vger.kernel.org", mail["Cc"])
            self.assertNotIn("tester@example.org", mail.as_string())
            self.assertNotIn("stable@", mail["To"] + mail["Cc"])
        self.assertIn("\nCc: stable@vger.kernel.org\n", fix.get_payload())
        for mail in (fix, test):
            self.assertEqual(re.findall("^Signed-off-by: .*$",
                                        mail.get_payload(), re.M),
                             ["Signed-off-by: Jane Doe <jane@example.org>"])
        # The branch is new, all else is as it was.
        self.assertEqual(git(self.clone, "log", "--format=%an %ae",
                             f"{self.base}..b4/ioports-yield"),
                         "Jane Doe jane@example.org\n" * 3)
        self.assertEqual(git(self.clone, "rev-parse", "HEAD").strip(),
                         self.base)
        self.assertEqual(git(self.clone, "status", "--porcelain"), "")
        self.assertEqual((self.clone / ".git/config").read_bytes(), config)
        self.assertEqual((self.clone / ".git/index").read_bytes(), index)
        self.assertEqual(git(self.clone, "branch", "--format=%(refname)"),
                         "refs/heads/b4/ioports-yield\n"
                         "refs/heads/master\n")
        self.assertNothingHalfDone()

    def test_there_is_no_such_set(self):
        self.refuse("check, all, no", GATES="some")
        run = self.submit("--set", "none")
        self.assertNotEqual(run.status, 0)
        self.assertIn("there are all, fixes, x86, sched", run.err)
        self.assertNothingMade()

    def test_the_fixes_stand_alone(self):
        self.assertDone(self.submit("--fixes"),
                        "1 patches by Jane Doe <jane@example.org> are on")
        cover, fix = self.mails("fixes")
        self.assertEqual(cover["Subject"], "[PATCH] x86: Fixes")
        self.assertEqual(fix["Subject"], f"[PATCH] {FIX[0]}")
        for words in ("b4 shazam", "Not checked here: whether it builds"):
            self.assertIn(words, (self.build / "submit/fixes/REVIEW.txt")
                          .read_text())
        self.assertIn("SECURITY-FIX", (self.build / "submit/fixes/REVIEW.txt")
                      .read_text())

    def test_the_mails_apply_with_git_am_b4_and_quilt(self):
        self.assertDone(self.submit())
        want = git(self.clone, "rev-parse", "b4/ioports-yield^{tree}")
        place = self.build / "submit/all"

        git(self.clone, "checkout", "-q", "-b", "am")
        git(self.clone, "am", "-q", *sorted(place.glob("*.eml"))[1:])
        self.assertEqual(git(self.clone, "rev-parse", "HEAD^{tree}"), want)

        git(self.clone, "checkout", "-q", "-B", "b4am", self.base)
        done = subprocess.run(
            [B4, "-n", "--offline-mode", "am", "-m", place / "series.mbox",
             "-o", self.temp / "am"], cwd=self.clone, capture_output=True,
            text=True, env=environment(HOME=self.temp,
                                       GIT_CONFIG_GLOBAL="/dev/null"))
        self.assertEqual(done.returncode, 0, done.stderr)
        box, = (self.temp / "am").glob("*.mbx")
        git(self.clone, "am", "-q", box)
        self.assertEqual(git(self.clone, "rev-parse", "HEAD^{tree}"), want)

        git(self.clone, "checkout", "-q", "-B", "quilt", self.base)
        for words in (["import", *sorted(place.glob("*.eml"))[1:]],
                      ["push", "-a", "--fuzz=0"]):
            done = subprocess.run(
                ["quilt", "--quiltrc", "-", *map(str, words)],
                cwd=self.clone, capture_output=True, text=True,
                env=environment(HOME=self.temp))
            self.assertEqual(done.returncode, 0, done.stdout + done.stderr)
        shutil.rmtree(self.clone / "patches")
        shutil.rmtree(self.clone / ".pc")
        git(self.clone, "add", "-A")
        self.assertEqual(git(self.clone, "write-tree"), want)

    def test_a_name_may_have_any_letter(self):
        self.assertDone(self.submit("--fixes", NAME="Jürgen Źółw"))
        mail = self.mails("fixes")[1]
        name = email.utils.parseaddr(str(email.header.make_header(
            email.header.decode_header(mail["From"]))))[0]
        self.assertEqual(name, "Jürgen Źółw")
        self.assertIn("Signed-off-by: Jürgen Źółw <jane@example.org>",
                      mail.get_payload(decode=True).decode())

    def test_a_second_run_replaces_what_the_first_one_made(self):
        self.assertDone(self.submit("--fixes"))
        first = self.branch("b4/ioports-fixes")
        write(self.repo, {"submit/cover-letter-fixes.txt":
                          COVER.format("Better")})
        self.assertDone(self.submit("--fixes"))
        self.assertNotEqual(self.branch("b4/ioports-fixes"), first)
        self.assertEqual(self.mails("fixes")[0]["Subject"],
                         "[PATCH] x86: Better")

    def test_a_branch_that_the_user_changed_stays(self):
        self.assertDone(self.submit("--fixes"))
        git(self.clone, "checkout", "-q", "b4/ioports-fixes")
        before = snapshot(self.clone)
        self.assertRefused(self.submit("--fixes"), "is checked out")
        commit(self.clone, "Mine", files={"mine": "mine\n"})
        git(self.clone, "checkout", "-q", "master")
        before = snapshot(self.clone)
        self.assertRefused(self.submit("--fixes"), "branch b4/ioports-fixes",
                           "rename it")
        self.assertUntouched(self.clone, before)
        self.assertDone(self.submit("--fixes", BRANCH="again"),
                        "b4/again")


class Refused(Submit):
    """What is wrong is said before anything happens."""

    def test_it_needs_an_identity(self):
        self.refuse("give NAME=", NAME="")
        self.refuse("give NAME=", EMAIL="")
        self.refuse("EMAIL=jane is not an address", EMAIL="jane")
        self.refuse("cannot stand before an address", NAME="Jane <x>")

    def test_it_needs_a_clone(self):
        self.refuse("give KSRC=path", KSRC="")
        self.refuse("is not a folder", KSRC=self.temp / "nowhere")
        plain = self.temp / "plain"
        shutil.copytree(self.clone, plain,
                        ignore=shutil.ignore_patterns(".git"))
        self.refuse("is not the top of a git clone", KSRC=plain)
        self.refuse("is not the top of a git clone",
                    KSRC=self.clone / "arch")

    def test_it_needs_a_clean_clone(self):
        write(self.clone, {"mm/mmap.c": "changed\n"})
        self.refuse("has uncommitted changes")

    def test_it_needs_a_clone_at_rest(self):
        write(self.clone, {".git/MERGE_HEAD": self.base + "\n"})
        self.refuse("in the middle of something (MERGE_HEAD)")

    def test_it_needs_the_right_version(self):
        self.clone = make_clone(self.temp / "old", ("6", "12", "1", ""))
        self.refuse("the tree is Linux 6.12.1", "ONTO=commit")

    def test_it_needs_a_commit_that_is_there(self):
        self.refuse("has no commit nowhere", ONTO="nowhere")

    def test_it_needs_a_kernel(self):
        (self.clone / "Makefile").write_text("all:\n")
        commit(self.clone, "No kernel")
        self.refuse("is not a Linux tree")

    def test_a_foreign_branch_is_left_alone(self):
        git(self.clone, "branch", "b4/ioports-yield")
        before = snapshot(self.clone)
        self.assertRefused(self.submit(), "not as this program made it")
        self.assertUntouched(self.clone, before)

    def test_a_patch_that_does_not_apply_is_named(self):
        write(self.clone, {"arch/x86/kernel/ioport.c": "all new\n"})
        commit(self.clone, "All new")
        self.refuse("0001-x86-ioperm-Close-the-window", "does not apply",
                    "arch/x86/kernel/ioport.c", "make rebase")

    def test_what_checkpatch_finds_stops_it(self):
        write(self.clone, {"scripts/checkpatch.pl": STUBS[
            "scripts/checkpatch.pl"].replace("bad style", "closed")})
        commit(self.clone, "Stricter")
        self.refuse("1 warnings")

    def test_a_checkpatch_that_did_not_run_stops_it(self):
        write(self.clone, {"scripts/checkpatch.pl": "#!/bin/sh\nexit 0\n"})
        commit(self.clone, "Broken")
        self.refuse("checkpatch did not really run")

    def test_a_tag_that_only_a_person_may_give_stops_it(self):
        patches = {name: text.replace(
            b"\n\nAssisted-by", b"\n\nReviewed-by: A Person <a@b.org>\n"
            b"Assisted-by") for name, text in submitted().items()}
        self.set_patches(patches)
        self.refuse("Reviewed-by: is for people to give")

    def test_a_cover_letter_that_b4_rearranges_stops_it(self):
        def mail(body):
            return email.message_from_string("Subject: x\n\n" + body)

        text = "x86: All\n\nFirst.\n\nTools: some of\nthem.\n"
        submit.check_cover(mail("First.\n\nTools: some of\nthem.\n---\n"),
                           text)
        with self.assertRaises(Fail) as caught:
            submit.check_cover(mail("First.\n\nthem.\n\nTools: some of\n"),
                               text)
        self.assertIn("Tools: some of them.", str(caught.exception))

    def test_a_gap_in_the_cover_letter_stops_it(self):
        write(self.repo, {"submit/cover-letter.txt":
                          COVER.format("All") + "\n@NUMBERS@\n"})
        self.refuse("not filled in: @NUMBERS@")

    def test_nobody_to_send_it_to_stops_it(self):
        write(self.clone, {"scripts/get_maintainer.pl":
                           "#!/bin/sh\ncat >/dev/null\n"})
        commit(self.clone, "Nobody")
        self.refuse("does not go to the kernel's list")

    def test_an_interruption_leaves_nothing(self):
        self.stub_git(" am ")
        before = self.state()
        self.assertInterrupted(self.interrupt(
            "submit.py", KSRC=self.clone, NAME="Jane Doe",
            EMAIL="jane@example.org", GATES="no"))
        self.assertEqual(self.state(), before)
        self.assertNothingMade()
        os.remove(self.bin / "git")
        self.assertDone(self.submit(), "nothing was sent")


if __name__ == "__main__":
    unittest.main()
