# SPDX-License-Identifier: GPL-2.0-only
"""What 'make repeat' takes for a pass, a skip and a failure."""

import fnmatch
import json
import unittest
from unittest import mock

from helper import Case

import repeat
from common import Fail
from guest import Result
from tinyguest import Run

KTAP = """TAP version 13
1..3
ok 1 global.one
ok 2 global.two # SKIP no permission
ok 3 global.three
# Totals: pass:2 fail:0 xfail:0 xpass:0 skip:1 error:0
"""


class ReadCases(unittest.TestCase):
    """read_cases(): KTAP to verdicts."""

    def test_pass_and_skip(self):
        self.assertEqual(repeat.read_cases(KTAP), {
            "global.one": "pass", "global.two": "skip",
            "global.three": "pass"})

    def test_a_failure(self):
        self.assertEqual(repeat.read_cases("1..1\nnot ok 1 a\n"),
                         {"a": "fail"})

    def test_two_of_one_name_pass_only_together(self):
        self.assertEqual(repeat.read_cases("1..2\nok 1 a\nnot ok 2 a\n"),
                         {"a": "fail"})

    def test_a_skip_that_names_its_case_last(self):
        self.assertEqual(repeat.read_cases("1..1\nok 1 # SKIP a: no root\n"),
                         {"a": "skip"})

    def test_all_skipped_at_once(self):
        self.assertEqual(repeat.read_cases("1..0 # SKIP not root\n"),
                         {"all": "skip"})

    def test_a_case_that_did_not_report(self):
        with self.assertRaisesRegex(Fail, "2 of its 3"):
            repeat.read_cases("1..3\nok 1 a\nok 2 b\n")

    def test_no_plan_and_no_case(self):
        for text in ("ok 1 a\n", "1..0\n", ""):
            with self.assertRaises(Fail):
                repeat.read_cases(text)


    def test_a_skip_without_a_reason(self):
        with self.assertRaisesRegex(Fail, "without a reason"):
            repeat.read_cases("1..1\nok 1 a # SKIP\n")


class NotPassed(unittest.TestCase):
    """not_passed(): what a kind of guest must not skip."""

    def test_a_case_that_was_skipped(self):
        row = repeat.Row("row", must=(("iopl_??", "refused.*"),))
        self.assertEqual(repeat.not_passed(
            row, {"iopl_64": {"refused.a": "pass"}}), [])
        self.assertEqual(repeat.not_passed(
            row, {"iopl_64": {"refused.a": "skip"},
                  "ioperm_64": {"refused.a": "pass"}}),
            ["iopl_64: refused.*"])
        self.assertEqual(repeat.not_passed(row, {}), ["iopl_??: refused.*"])

    def test_each_width_must_pass(self):
        row = repeat.Row("row", must=(("iopl_??", "refused.*"),))
        self.assertEqual(repeat.not_passed(
            row, {"iopl_32": {"refused.a": "skip"},
                  "iopl_64": {"refused.a": "pass"}}),
            ["iopl_32: refused.*"])


class Judge(unittest.TestCase):
    """judge(): what is wrong with a run."""

    def judge(self, text, status=0, skips=(("*", "*", "global.two"),)):
        return repeat.judge("2cpus", "ioperm_64", text, status, skips)[1]

    def test_an_expected_skip_is_fine(self):
        self.assertEqual(self.judge(KTAP), "")

    def test_another_skip_is_not(self):
        self.assertIn("global.two", self.judge(KTAP, skips=()))
        self.assertIn("global.two", self.judge(
            KTAP, skips=(("1cpu", "*", "*"),)))
        self.assertIn("global.two", self.judge(
            KTAP, skips=(("*", "iopl_*", "*"),)))

    def test_a_failed_case(self):
        self.assertIn("failed: a", self.judge("1..1\nnot ok 1 a\n", 1))

    def test_an_exit_status_that_no_case_explains(self):
        self.assertIn("exit status 139", self.judge(KTAP, 139))
        self.assertIn("exit status 4", self.judge(KTAP, 4))

    def test_all_skipped_may_exit_with_4(self):
        self.assertEqual(self.judge("1..0 # SKIP not root\n", 4,
                                    (("*", "*", "all"),)), "")

    def test_it_never_ended(self):
        self.assertIn("did not end", self.judge(KTAP, None))


class ReadSkips(unittest.TestCase):
    """The list of skips."""

    def test_a_case_may_hold_colons(self):
        self.assertEqual(
            repeat.read_skips("# words\n1cpu: ioperm_*: a:b  # why\n"),
            [("1cpu", "ioperm_*", "a:b")])

    def test_a_line_that_is_none(self):
        with self.assertRaisesRegex(Fail, "nonsense"):
            repeat.read_skips("nonsense\n")

    def test_each_line_of_ours_names_a_row(self):
        for row, _, _ in repeat.read_skips(repeat.SKIPS.read_text()):
            self.assertTrue(fnmatch.filter(repeat.ROWS, row), row)


class SplitOutput(unittest.TestCase):
    """split_output(): one guest, several programs."""

    def test_the_last_did_not_end(self):
        self.assertEqual(
            repeat.split_output("noise\n@@ begin a\n1..1\n\n@@ end a 4 17\n"
                                "@@ begin b\n1..2\n"),
            {"a": ("1..1\n\n", 4, 17), "b": ("1..2\n", None, None)})


class Longest(unittest.TestCase):
    """longest(): the slowest program of some runs."""

    def test_the_slowest_of_all_runs(self):
        runs = [{"took": {"a": 3, "b": None}}, {"took": {"a": 5, "c": 4}}]
        self.assertEqual(repeat.longest(runs), "a 5 s")

    def test_none(self):
        self.assertEqual(repeat.longest([{"took": {"a": None}}, {}]), "-")


class Again(Case):
    """A second run knows what passed, and tries again what did not."""

    def setUp(self):
        super().setUp()
        self.report = self.temp / "repeat.json"
        self.booted = []
        self.bad = set()
        for name, value in {
                "REPORT": self.report, "LOGS": self.temp,
                "PUBLISHED": self.temp / "published.json",
                "get_base": lambda: None, "apply_series": lambda: "1234",
                "gate_tree": lambda name: self.temp,
                "test_sources": lambda tree: [],
                "build_programs": lambda *words: (
                    [self.temp / "ioperm_64"], 1),
                "source_key": lambda commit: "s",
                "test_key": lambda commit: "t", "compiler": lambda: "c",
                "check_splat": lambda console: None,
                "choose_kvm": lambda folder: False,
                "build_kernel": lambda side: self.temp,
                "boot": self.boot}.items():
            patch = mock.patch.object(repeat, name, value)
            patch.start()
            self.addCleanup(patch.stop)

    def boot(self, folder, script, name, **rest):
        self.booted.append(name)
        verdict = "not ok" if name in self.bad else "ok"
        return Result(0, f"@@ begin ioperm_64\n1..1\n{verdict} 1 a\n"
                         "@@ end ioperm_64 0 3\n", self.temp / "console")

    def run_rows(self, times=2, *how, **more):
        self.booted.clear()
        with mock.patch("builtins.print"):
            return repeat.repeat(["1cpu", "2cpus"], times,
                                 *(how or (False,)), **more)

    def test_known_runs_are_not_run_again(self):
        self.assertEqual(self.run_rows(), 0)
        self.assertEqual(len(self.booted), 4)
        self.assertEqual(self.run_rows(3), 0)
        self.assertEqual(self.booted, ["repeat-1cpu-3", "repeat-2cpus-3"])
        self.assertEqual(self.run_rows(3, True), 0)
        self.assertEqual(len(self.booted), 6)

    def test_after_a_failed_run_the_row_begins_anew(self):
        self.bad = {"repeat-2cpus-2"}
        self.assertEqual(self.run_rows(3), 1)
        self.assertEqual(len(self.booted), 6)
        self.bad = set()
        # The third one was good, and is the first in a row.
        self.assertEqual(self.run_rows(3), 0)
        self.assertEqual(self.booted, ["repeat-2cpus-2", "repeat-2cpus-3"])

    def test_two_guests_at_a_time(self):
        self.bad = {"repeat-2cpus-2"}
        self.assertEqual(self.run_rows(3, False, jobs=2), 1)
        runs = list(json.loads(self.report.read_text())["runs"].values())
        self.assertEqual([len(row) for row in runs], [3, 3])
        self.assertEqual([bool(run["wrong"]) for row in runs
                          for run in row].count(True), 1)
        self.bad = set()
        self.assertEqual(self.run_rows(3, False, jobs=2), 0)

    def test_an_interruption_keeps_the_runs_that_ended(self):
        def boot(*words, name, **more):
            if name == "repeat-2cpus-2":
                raise KeyboardInterrupt
            return self.boot(*words, name=name, **more)

        for times, jobs in ((2, 1), (3, 2)):
            with mock.patch.object(repeat, "boot", boot):
                if jobs == 1:
                    with self.assertRaises(KeyboardInterrupt):
                        self.run_rows(times)
                else:
                    # That of a child is one that gave no result.
                    with self.assertRaisesRegex(Fail, "run 2"):
                        self.run_rows(times, False, jobs=jobs)
            runs = json.loads(self.report.read_text())["runs"].values()
            self.assertEqual([len(row) for row in runs],
                             [2, 1] if jobs == 1 else [3, 2])

    def test_published_runs_count_when_they_are_asked_for(self):
        self.assertEqual(self.run_rows(), 0)
        with mock.patch("builtins.print"):
            repeat.publish()
            self.report.unlink()
            self.assertRaises(Fail, repeat.publish)
        self.run_rows(2, published=True)
        self.assertEqual(self.booted, [])
        self.report.unlink()
        self.run_rows()
        self.assertEqual(len(self.booted), 4)
        # More of its own are not forgotten for fewer published ones.
        self.run_rows(3)
        self.run_rows(3, published=True)
        self.assertEqual(self.booted, [])

    def test_runs_of_another_configuration_do_not_count(self):
        fragment = self.temp / "a.config"
        fragment.write_text("CONFIG_A=y\n")
        with mock.patch.dict(repeat.KERNELS,
                             series=("applied", (fragment,))):
            self.run_rows()
            self.run_rows()
            self.assertEqual(self.booted, [])
            fragment.write_text("CONFIG_A=n\n")
            self.run_rows()
        self.assertEqual(len(self.booted), 4)

    def test_a_kernel_that_cannot_use_the_hosts_files(self):
        runs = [("ioperm_32", Run(0, "1..1\nok 1 a\n", 3)),
                ("iopl_32", Run(None, "1..1\n"))]
        row = repeat.Row("row", "i386", bits=32)
        with mock.patch.object(repeat, "boot_tiny", lambda *a, **k: runs), \
                mock.patch.object(repeat, "build_image",
                                  lambda name: (self.temp, None)):
            run = repeat.run_row("row", row, self.temp,
                                 [self.temp / "ioperm_32",
                                  self.temp / "iopl_32"], 1, ())
        self.assertEqual(run["programs"]["ioperm_32"], {"pass": 1})
        self.assertEqual(run["took"]["ioperm_32"], 3)
        self.assertEqual(list(run["wrong"]), ["iopl_32"])

    def test_another_kernel_starts_afresh(self):
        self.assertEqual(self.run_rows(), 0)
        known = json.loads(self.report.read_text())
        known["key"] = "other"
        self.report.write_text(json.dumps(known))
        self.run_rows()
        self.assertEqual(len(self.booted), 4)


if __name__ == "__main__":
    unittest.main()
