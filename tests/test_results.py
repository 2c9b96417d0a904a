# SPDX-License-Identifier: GPL-2.0-only
"""What is made of results: settings, tables, and the count of tests."""

import copy
import io
import json
import unittest
from contextlib import redirect_stdout
from pathlib import Path
from unittest import mock

from helper import Case, write

import bench
import check
import memory
import stress
import throughput
from common import Fail
from guest import Result
from kernel import missing_settings
from tinyguest import Run
import yieldbench
import yieldstress


class MissingSettings(unittest.TestCase):
    """missing_settings(): what a .config does not have of a fragment."""

    CONFIG = ("CONFIG_A=y\nCONFIG_B=m\n# CONFIG_C is not set\n"
              'CONFIG_NAME="text"\nCONFIG_AB=y\n')

    def missing(self, fragment):
        return missing_settings(self.CONFIG, fragment)

    def test_all_is_there(self):
        self.assertEqual(self.missing(
            '# Why.\n\nCONFIG_A=y\nCONFIG_B=m\nCONFIG_NAME="text"\n'), [])

    def test_a_setting_that_is_not_there_or_another(self):
        self.assertEqual(
            self.missing("CONFIG_D=y\nCONFIG_B=y\nCONFIG_NAME=\"te\"\n"),
            ["CONFIG_D=y", "CONFIG_B=y", 'CONFIG_NAME="te"'])

    def test_a_setting_that_is_off_or_unknown_is_off(self):
        self.assertEqual(self.missing(
            "# CONFIG_C is not set\nCONFIG_C=n\n# CONFIG_E is not set\n"
            "CONFIG_E=n\n"), [])

    def test_a_setting_that_is_on_is_not_off(self):
        self.assertEqual(
            self.missing("# CONFIG_A is not set\nCONFIG_B=n\n"),
            ["# CONFIG_A is not set", "CONFIG_B=n"])

    def test_a_name_that_begins_alike_is_another(self):
        self.assertEqual(missing_settings("CONFIG_AB=y\n",
                                          "CONFIG_A=n\n"), [])
        self.assertEqual(missing_settings("CONFIG_AB=y\n",
                                          "CONFIG_A=y\n"), ["CONFIG_A=y"])


def case(name, p50, kind="switch"):
    """Return one case of a report; p50 None stands for a skip."""
    return {"name": name, "kind": kind,
            "status": "skip" if p50 is None else "ok",
            "reason": "no such port" if p50 is None else None,
            "highest_port": [None, None], "rounds": 2000, "p50": p50}


def report(base, series):
    """Return a report from {name: p50}; call-* are calls."""
    sides = {side: {"release": "7.3.4", bench.TEST: {"cases": [
        case(name, p50, "call" if name.startswith("call-") else "switch")
        for name, p50 in cases.items()]}}
        for side, cases in (("base", base), ("series", series))}
    return {"unit": "instructions", "accel": "tcg", "sides": sides}


class Splat(Case):
    """check_splat(): the kernel's own reports, and only those."""

    def console(self, text):
        write(self.temp, {"console": text})
        return self.temp / "console"

    def test_reports_of_the_kernel(self):
        for line in ("[    1.2] WARNING: kernel/sched/fair.c:1 at x, CPU#0",
                     "WARNING: possible circular locking dependency detected",
                     "[    3.4] BUG: KASAN: slab-out-of-bounds in x",
                     "[    5.6] UBSAN: array-index-out-of-bounds in x",
                     "[    7.8]  Call Trace:"):
            with self.subTest(line):
                with self.assertRaises(Fail) as caught:
                    check.check_splat(self.console(f"[ 0.1] a\n{line}\nb\n"))
                self.assertIn(line.strip(), str(caught.exception))

    def test_a_memory_limit_is_no_report(self):
        oom = ("a invoked oom-killer: gfp_mask=0xcc0, order=2\n"
               "CPU: 0 UID: 0 PID: 1 Comm: a\n Call Trace:\n f+0x1/0x2\n")
        check.check_splat(self.console(oom + "x\n" + oom))
        for text in (oom + "b\n Call Trace:\n",
                     oom.replace("CPU: 0", "WARNING: x\nCPU: 0")):
            with self.assertRaises(Fail):
                check.check_splat(self.console(text))

    def test_what_virtme_ng_misses_is_no_report(self):
        check.check_splat(self.console(
            "[    0.9] virtme-ng-init: WARNING: failed to run: "
            '"systemd-tmpfiles" (error: No such file)\n'))


class KunitResults(unittest.TestCase):
    """kunit_results(): a suite that did not run is not one that passed."""

    HEAD = ("KTAP version 1\n1..1\n    KTAP version 1\n"
            "    # Subtest: suite\n    1..2\n")

    def test_cases_and_suite(self):
        self.assertEqual(check.kunit_results(
            self.HEAD + "        ok 1 parameter\n    ok 1 one\n"
            "    ok 2 two # SKIP no memory\nok 1 suite\n"),
            {"suite.one": "ok", "suite.two": "skip", "suite": "ok"})

    def test_a_case_that_fails(self):
        self.assertEqual(check.kunit_results(
            self.HEAD + "    ok 1 one\n    not ok 2 two\nnot ok 1 suite\n"),
            {"suite.one": "ok", "suite.two": "not ok", "suite": "not ok"})

    def test_a_suite_whose_cases_never_ran(self):
        self.assertEqual(check.kunit_results(self.HEAD + "ok 1 suite\n"),
                         {"suite": "not ok"})

    def test_a_suite_of_which_a_case_is_missing(self):
        self.assertEqual(check.kunit_results(
            self.HEAD + "    ok 1 one\nok 1 suite\n"),
            {"suite.one": "ok", "suite": "not ok"})

    def test_nothing(self):
        self.assertEqual(check.kunit_results("cat: no such file\n"), {})


class HarnessReason(unittest.TestCase):
    """harness_reason(): what a case that failed said of itself."""

    TEXT = ("TAP version 13\n"
            "#  RUN           charge.nice_0.alone ...\n"
            "# a.c:9:alone:1 call\n"
            "#            OK  charge.nice_0.alone\n"
            "ok 1 charge.nice_0.alone\n"
            "#  RUN           charge.nice_0.one_hog ...\n"
            "# a.c:7:one_hog:Expected 0 (0) == tally.wrong (2)\n"
            "# a.c:8:one_hog:slice 700000: charged 1 ns\n"
            "# one_hog: Test failed\n"
            "#          FAIL  charge.nice_0.one_hog\n"
            "not ok 2 charge.nice_0.one_hog\n")

    def test_its_own_lines_only(self):
        self.assertEqual(
            check.harness_reason(self.TEXT, "charge.nice_0.one_hog"),
            "a.c:7:one_hog:Expected 0 (0) == tally.wrong (2) | "
            "a.c:8:one_hog:slice 700000: charged 1 ns | one_hog: Test failed")

    def test_nothing_is_said(self):
        for text in ("", self.TEXT.partition("#          FAIL")[0]):
            self.assertEqual(
                check.harness_reason(text, "charge.nice_0.one_hog"),
                "it does not say why")

    def test_a_few_lines_are_enough(self):
        text = self.TEXT.replace("# one_hog:", "# more\n# lines\n# one_hog:")
        found = check.harness_reason(text, "charge.nice_0.one_hog")
        self.assertEqual(found.count(" | "), 3)


class YieldTests(Case):
    """check_yield(): the cases on the series, and the control on the base."""

    GOOD = ("TAP version 13\n1..3\nok 1 yield.charge_20ms.test\n"
            "ok 2 yield.share_20ms.test\n"
            "ok 3 yield.many_cpus.test # SKIP one CPU\n")
    BASE = GOOD.replace("ok 1", "not ok 1").replace("ok 2", "not ok 2")
    MANY = "1..1\nok 1 yield.many_cpus.test\n"

    def check(self, series=GOOD, many=MANY, base=BASE):
        """Run it; returns (passed, failed, skipped) and what it printed."""
        said = {("series", 1): series, ("series", 2): many,
                ("base", 1): base}

        def boot(kernel, command, cpus, icount, append, **_):
            self.assertEqual(icount, "wait-idle" if cpus == 1 else None)
            self.assertEqual(append, ("tsc=reliable",) if cpus == 1 else ())
            self.assertEqual("-v many_cpus" in command, cpus == 2)
            return Result(0, "## yield_test\n" + said[kernel, cpus], None)

        tally, out = check.Tally(), io.StringIO()
        with mock.patch.multiple(check, boot=boot, LOGS=self.temp), \
                mock.patch.object(check.bench, "build_test",
                                  lambda *_, name, folder: Path(name)), \
                redirect_stdout(out):
            check.check_yield(tally, {"base": "base", "series": "series"})
        return ((tally.passed, tally.failed, tally.skipped), out.getvalue())

    def test_all_is_well(self):
        self.assertEqual(self.check()[0], (5, 0, 1))

    def test_a_case_fails_or_is_missing(self):
        self.assertEqual(self.check(series=self.BASE)[0], (3, 2, 1))
        self.assertEqual(self.check(series=self.GOOD.replace("3", "4", 2))[0],
                         (5, 1, 1))

    def test_a_loaded_host_may_spoil_two_cpus(self):
        self.assertEqual(self.check(many=self.MANY.replace(
            "\nok 1 yield.many_cpus.test",
            "\nok 1 yield.many_cpus.test # SKIP others used the CPUs"))[0],
            (4, 0, 2))

    def test_both_kinds_must_fail_on_the_base(self):
        counts, text = self.check(base=self.BASE.replace("not ok 2", "ok 2"))
        self.assertEqual(counts, (4, 1, 1))
        self.assertIn("FAIL  selftests/sched: share_* fails on the base",
                      text)


class Tables(unittest.TestCase):
    """tables() and console_table() of bench.py."""

    BASE = {"none": 1000, "pair-0x80-65535": 4000, "sweep-0": 1100,
            "sweep-100": 1200, "sweep-65535": 4400, "call-ioperm": 500}
    SERIES = {"none": 1000, "pair-0x80-65535": 1500, "sweep-0": 1100,
              "sweep-100": 1000, "sweep-65535": 1200, "call-ioperm": 250}

    def rows(self, base=(), series=()):
        return bench.tables(report(self.BASE | dict(base),
                                   self.SERIES | dict(series)))

    def test_a_switch_has_both_costs_and_three_ratios(self):
        self.assertIn("| pair-0x80-65535 | 4000 | 1500 | 0.38 | 4.00 | 1.50 "
                      "|", self.rows())
        self.assertIn("| none | 1000 | 1000 | 1.00 | 1.00 | 1.00 |",
                      self.rows())

    def test_each_side_is_divided_by_its_own_none(self):
        self.assertIn("| pair-0x80-65535 | 4000 | 1500 | 0.38 | 4.00 | 3.00 "
                      "|", self.rows(series={"none": 500}))

    def test_the_unit_is_said(self):
        self.assertEqual(self.rows()[0],
                         "Unit: instructions; p50 of 2000 calls.")

    def test_a_call_has_both_costs_and_their_ratio(self):
        self.assertIn("| ioperm | 500 | 250 | 0.50 |", self.rows())

    def test_the_rows_have_an_order_and_words_where_a_name_is_not_enough(self):
        names = ["pair-pciutils", "shared-0x80", "none", "pair-0x80-none",
                 "pair-0x80-0x81", "call-ioperm-all", "call-ioperm-first"]
        cases = dict.fromkeys(names, 7)
        self.assertEqual(
            [row.split(" | ")[0] for row in bench.tables(report(cases, cases))
             if " | 7 | " in row],
            ["| none", "| pair-0x80-none", "| shared-0x80",
             "| pair-pciutils: 0xcf8-0xcff and 0xc000-0xcffe, both alike",
             "| pair-0x80-0x81", "| ioperm-all: 0 to 0xffff at once",
             "| ioperm-first"])

    def test_the_sweep_is_one_line(self):
        rows = self.rows()
        line, = (row for row in rows if "65535, dearest" in row)
        self.assertIn("at 3 port numbers", line)
        self.assertIn("base 4400/1100 = 4.00", line)
        self.assertIn("series 1200/1000 = 1.20", line)
        self.assertFalse([row for row in rows if row.startswith("| sweep")])

    def test_a_skipped_case_says_so_and_has_no_ratio(self):
        self.assertIn("| pair-0x80-65535 | 4000 | skipped | - | 4.00 | - |",
                      self.rows(series={"pair-0x80-65535": None}))
        self.assertIn("| pair-0x80-65535 | skipped | 1500 | - | - | 1.50 |",
                      self.rows(base={"pair-0x80-65535": None}))
        self.assertIn("| ioperm | skipped | skipped | - |",
                      self.rows({"call-ioperm": None}, {"call-ioperm": None}))

    def test_without_none_nothing_is_divided_by_it(self):
        self.assertIn("| pair-0x80-65535 | 4000 | 1500 | 0.38 | - | 1.50 |",
                      self.rows(base={"none": None}))

    def test_a_sweep_port_that_one_side_skipped_is_left_out(self):
        line, = (row for row in self.rows(base={"sweep-65535": None})
                 if "dearest" in row)
        self.assertIn("at 2 port numbers", line)
        self.assertIn("base 1200/1100", line)
        self.assertIn("series 1100/1000", line)

    def test_without_a_sweep_there_is_no_line(self):
        skip = {name: None for name in self.BASE if "sweep" in name}
        self.assertFalse([row for row in self.rows(skip, skip)
                          if "dearest" in row])

    def test_the_report_is_not_changed(self):
        given = report(self.BASE, self.SERIES)
        before = copy.deepcopy(given)
        bench.tables(given)
        self.assertEqual(given, before)

    def test_the_console_has_aligned_columns(self):
        self.assertEqual(
            bench.console_table(["Title:", "", "| call | base |",
                                 "|---|---:|", "| ioperm | 5 |", "",
                                 "| a | b |", "|---|---:|",
                                 "| long name | 12345 |", "end"]),
            "Title:\n\ncall    base\nioperm     5\n\n"
            "a              b\nlong name  12345\nend")

    def test_the_console_has_every_row(self):
        text = bench.console_table(self.rows())
        self.assertNotIn("|", text)
        self.assertNotIn("---", text)
        for word in ("pair-0x80-65535", "4000", "0.38", "ioperm"):
            self.assertIn(word, text)


class MemoryTables(unittest.TestCase):
    """tables() of memory.py: the slab growth and the object of both sides."""

    @staticmethod
    def report(base, series):
        """Return a report from {name: (growth, object)}, None for a skip."""
        return {"sides": {side: {memory.TEST: {"tasks": 1000, "cases": [
            {"name": name, "status": "ok", "unreclaimable": given[0],
             "object": given[1]} if given else
            {"name": name, "status": "skip", "reason": "not root"}
            for name, given in cases.items()]}}
            for side, cases in (("base", base), ("series", series))}}

    def rows(self, base, series):
        return memory.tables(self.report(base, series))

    def test_growth_and_objects_are_compared(self):
        rows = self.rows({"port-0x80": (16384000, 16384)},
                         {"port-0x80": (131072, 128)})
        self.assertEqual(rows[-1], "| 0x80 | 16000 kB | 128 kB | 0.008 "
                                   "| 16384 | 128 |")
        self.assertIn("1000 tasks", "".join(rows))

    def test_an_object_that_was_not_found_is_a_dash(self):
        row = self.rows({"all": (16384000, 16384)}, {"all": (4096, None)})[-1]
        self.assertEqual(row, "| all | 16000 kB | 4 kB | 0.000 | 16384 "
                              "| - |")

    def test_a_skipped_case_says_so(self):
        row = self.rows({"all": None}, {"all": (4096, 128)})[-1]
        self.assertEqual(row, "| all | skipped | 4 kB | - | - | 128 |")

    def test_no_growth_at_all_has_no_ratio(self):
        row = self.rows({"all": (0, None)}, {"all": (0, None)})[-1]
        self.assertEqual(row, "| all | 0 kB | 0 kB | - | - | - |")

    def test_a_case_that_one_side_lacks_is_left_out(self):
        rows = self.rows({"all": (1024, 64)}, {"port-0x80": (1024, 64)})
        self.assertTrue(rows[-1].startswith("|---"))

    def test_an_older_result_has_no_table(self):
        self.assertEqual(memory.tables({"sides": {"base": {},
                                                  "series": {}}}), [])
        self.assertEqual(bench.tables(report(Tables.BASE, Tables.SERIES))[-1],
                         "| ioperm | 500 | 250 | 0.50 |")

    def test_the_table_is_part_of_the_benchmark(self):
        given = report(Tables.BASE, Tables.SERIES)
        more = self.report({"all": (2048, 64)}, {"all": (1024, 32)})
        for side in ("base", "series"):
            given["sides"][side] |= more["sides"][side]
        self.assertEqual(bench.tables(given)[-1],
                         "| all | 2 kB | 1 kB | 0.500 | 64 | 32 |")


STRESS = """\
TAP version 13
1..6
# seed 7, 600 s, 4 tasks, 2 observers, 2 CPUs
# 60 s: accesses 100, of which allowed 10, bitmaps 5, calls 50
# 60 s: forks 3, threads 2, execs 1, moves 4, ENOMEM 6, offline 2
# 600 s: accesses 1000, of which allowed 100, bitmaps 50, calls 500
# 600 s: forks 30, threads 20, execs 10, moves 40, ENOMEM 60, offline 20
ok 1 accesses
ok 2 bitmaps
ok 3 calls
ok 4 tasks
ok 5 hotplug
ok 6 failslab
# Totals: pass:6 fail:0 xfail:0 xpass:0 skip:0 error:0
status: 0
leaks:
end of leaks
"""


class Stress(unittest.TestCase):
    """judge() and figures() of stress.py."""

    def judge(self, output):
        """Return passed, failed, skipped, and what was printed."""
        text = io.StringIO()
        with redirect_stdout(text):
            tally = check.Tally()
            stress.judge(tally, output)
        return (tally.passed, tally.failed, tally.skipped), text.getvalue()

    def assertOneFails(self, output, *words):
        counts, text = self.judge(output)
        self.assertEqual(counts, (7, 1, 0), text)
        for word in words:
            self.assertIn(word, text)

    def test_a_run_without_fault(self):
        self.assertEqual(self.judge(STRESS)[0], (8, 0, 0))

    def test_a_mismatch(self):
        counts, text = self.judge(
            STRESS.replace("ok 1 acc", "not ok 1 acc")
            .replace("status: 0", "status: 1"))
        self.assertEqual(counts, (6, 2, 0))
        self.assertIn("FAIL  ioperm_random: accesses", text)

    def test_a_result_that_is_missing(self):
        self.assertOneFails(STRESS.replace("ok 5 hotplug\n", ""),
                            "FAIL  ioperm_random: hotplug: no result")

    def test_a_skip_is_a_failure(self):
        self.assertOneFails(
            STRESS.replace("ok 6 failslab",
                           "ok 6 # SKIP failslab: no failslab in debugfs"),
            "FAIL  ioperm_random: failslab", "no failslab in debugfs")

    def test_a_program_that_dies(self):
        self.assertOneFails(STRESS.replace("status: 0", "status: 139"),
                            "comes to its end: status 139")

    def test_a_leak(self):
        self.assertOneFails(
            STRESS.replace("leaks:\n", "leaks:\nunreferenced object 0x1\n"),
            "FAIL  kmemleak: nothing leaked: unreferenced object 0x1")

    def test_no_kmemleak(self):
        self.assertOneFails(
            STRESS.replace("leaks:\n", "leaks:\nkmemleak cannot be read\n"),
            "kmemleak cannot be read")
        self.assertOneFails(STRESS.replace("end of leaks\n", ""),
                            "kmemleak: nothing leaked: it did not run")

    def test_nothing_at_all(self):
        self.assertEqual(self.judge("")[0], (0, 8, 0))

    def test_the_last_figures_are_shown(self):
        rows = stress.figures(STRESS)
        self.assertEqual(rows[0], "# seed 7, 600 s, 4 tasks, 2 observers, "
                                  "2 CPUs")
        self.assertEqual(len(rows), 3)
        self.assertIn("ENOMEM 60", rows[2])


def yield_case(name, kind, features="as-is", **figures):
    """Return one case of yield_latency; without figures it was skipped."""
    work = int(name.split("-")[1][:-2]) if kind == "polite" else 0
    return {"name": name, "kind": kind, "features": features,
            "status": "ok" if figures else "skip",
            "reason": None if figures else "no such feature",
            "tasks": 2 if kind == "switch" else 0, "work_us": work,
            "slice_us": 100000 if "100ms" in name else
            2800 if "2.8ms" in name else 0,
            "hogs": int(name[-1]) if kind == "polite" else 0, **figures}


POLITE = "polite-100us-slice-100ms-hogs-1"


def yield_report(switch=(1000, 1010, 1020), share=(0.12, 0.13, 8.2)):
    """Return a report of yieldbench; the figures are base, off and on."""
    sides = {"base": [], "series": []}
    for number, (side, features) in enumerate(
            yieldbench.COLUMNS.values()):
        def add(name, kind, missing=False, **figures):
            sides[side].append(yield_case(
                name, kind, features, **({} if missing else figures)))
        add("switch-proc-2", "switch", switch[number] is None,
            ns_per_switch=switch[number])
        add("switch-thread-2", "switch", ns_per_switch=900)
        add("switch-proc-2-slice-2.8ms", "switch", ns_per_switch=1100)
        add(POLITE, "polite", share[number] is None, share=share[number],
            calls=200, p50=99900000.0, p99=1e8, stuck=3)
        add("lock-2x", "lock", acquisitions_per_s=5000.4,
            yields_per_acquisition=1.5, p99=2e6)
        add("wake-hogs-1", "wake", p99=1500000)
        add("storm-slice-100ms", "storm", longest_wait_yielder=1e8,
            longest_wait_hog=3e6)
    return {"benchmark": yieldbench.TEST, "version": 1,
            "sides": {side: {"tick_ns": 1000000, "cases": cases}
                      for side, cases in sides.items()}}


class YieldMeasure(Case):
    """measure() of yieldbench.py: what comes out of the guest."""

    def measure(self, status, shown, output="TAP version 13\n"):
        runs = [("yield_latency", Run(status, output)),
                ("tmp/report.json", Run(*shown))]
        with mock.patch.object(yieldbench, "boot_tiny",
                               return_value=runs) as boot, \
                mock.patch.object(yieldbench, "LOGS", self.temp):
            report = yieldbench.measure(self.temp, self.temp / "program",
                                        "series", False)
        return report, boot.call_args

    def test_what_the_program_wrote_comes_back(self):
        report, call = self.measure(0, (0, '{"cases": []}\n\n'))
        self.assertEqual(report, {"cases": []})
        (program, words), = call.args[1]
        self.assertEqual(program, self.temp / "program")
        self.assertIn("--features", words)
        # Nothing from outside: else the figures do not repeat.
        self.assertIn("shift=0,sleep=off", call.kwargs["machine"])
        self.assertEqual(call.kwargs["cpus"], 1)

    def test_no_result_is_an_error(self):
        for status, shown in ((1, (0, "{}")), (None, (2, "")), (0, (2, "")),
                              (0, (0, '{"cut off'))):
            with self.subTest(status=status, shown=shown), \
                    self.assertRaises(Fail):
                self.measure(status, shown)


YIELDS = "".join(f"{name}: said\n@@ end {name} 0\n"
                 for name in yieldstress.parts_of("hotplug")) \
    + "stress-ng: stress-ng: info: [7] yield          1234  1.0  2.0\n"


class YieldStress(unittest.TestCase):
    """judge() and script() of yieldstress.py."""

    def judge(self, output):
        """Return passed, failed, skipped, and what was printed."""
        text = io.StringIO()
        with redirect_stdout(text):
            tally = check.Tally()
            yieldstress.judge(tally, output, "hotplug")
        return (tally.passed, tally.failed, tally.skipped), text.getvalue()

    def test_a_run_without_fault(self):
        self.assertEqual(self.judge(YIELDS)[0],
                         (len(yieldstress.parts_of("hotplug")) + 1,
                          0, 0))

    def test_what_fails(self):
        for old, new, word in (
                ("@@ end nice 0\n", "", "nice: it did not end"),
                ("end idle 0", "end idle 2", "exit status 2: said"),
                ("yield          1234", "yield          0", "none were"),
                ("nice: said", "no cgroup\nnice: said", "cpu.max")):
            with self.subTest(new):
                counts, text = self.judge(YIELDS.replace(old, new))
                self.assertEqual(counts[1], 1, text)
                self.assertIn(word, text)

    def test_the_script_is_one_for_a_shell(self):
        import subprocess
        for guest in yieldstress.GUESTS:
            text = yieldstress.script("/bin/true", 1, guest)
            done = subprocess.run(["sh", "-n"], input=text, text=True,
                                  capture_output=True)
            self.assertEqual(done.returncode, 0, done.stderr)
            self.assertEqual(text.count("@@ end"),
                             len(yieldstress.parts_of(guest)))

    def test_each_part_runs_in_one_of_the_guests(self):
        self.assertEqual({name for guest in yieldstress.GUESTS
                          for name in yieldstress.parts_of(guest)},
                         set(yieldstress.PARTS))


class YieldTables(Case):
    """tables() of yieldbench.py: base, and the series with bits off and on."""

    def test_a_switch_has_three_times_and_two_ratios(self):
        rows = yieldbench.tables(yield_report())
        self.assertIn("| 2 processes | 1000 | 1010 | 1020 | 1.01 | 1.02 |",
                      rows)
        self.assertIn("| 2 threads | 900 | 900 | 900 | 1.00 | 1.00 |", rows)
        self.assertIn("| 2 processes, slices 2.8 ms | 1100 | 1100 | 1100 "
                      "| 1.00 | 1.00 |", rows)

    def test_a_skipped_case_is_a_dash(self):
        rows = yieldbench.tables(yield_report(switch=(None, 1010, 1020)))
        self.assertIn("| 2 processes | - | 1010 | 1020 | - | - |", rows)

    def test_a_polite_worker(self):
        row, = (row for row in yieldbench.tables(yield_report())
                if row.startswith("| 100 us"))
        self.assertEqual(
            row, "| 100 us | 100 ms | 1 | 8.3 % | 0.12 % | 0.13 % | 8.20 % "
            "| 100 | 100 | 100 | 100.00 | 100.00 | 100.00 "
            "| 2 % | 2 % | 2 % |")

    def test_a_median_between_two_kinds_of_calls(self):
        for p40, p60, text in ((1e3, 20.01e6, "0.00 or 20"),
                               (9.98e6, 9.99e6, "9.99"),
                               (1e3, 2e3, "9.99")):
            with self.subTest(text):
                self.assertEqual(yieldbench.median(
                    {"p50": 9.99e6, "p40": p40, "p60": p60}), text)
        self.assertEqual(yieldbench.median({"p50": 1.5e6}), "1.50")
        self.assertEqual(yieldbench.median(None), "-")

    def test_the_fair_limit(self):
        limit = yieldbench.fair_limit
        self.assertAlmostEqual(limit({"work_us": 100, "hogs": 3}, 1000000),
                               2.94, 2)
        self.assertAlmostEqual(limit({"work_us": 1000, "hogs": 1}, 1000000),
                               100 / 3, 6)

    def test_the_other_figures(self):
        rows = yieldbench.tables(yield_report())
        for row in ("| lock-2x | acquisitions/s | 5000 | 5000 | 5000 |",
                    "| lock-2x | yields per acquisition | 1.50 | 1.50 "
                    "| 1.50 |",
                    "| wake-hogs-1 | p99 of the wake-up, ms | 1.50 | 1.50 "
                    "| 1.50 |",
                    "| storm-slice-100ms | longest wait of the hog, ms "
                    "| 3.0 | 3.0 | 3.0 |"):
            self.assertIn(row, rows)

    def test_every_row_has_the_columns_of_its_table(self):
        count = 0
        for row in yieldbench.tables(yield_report(share=(None, 1, 2))):
            if not row.startswith("|"):
                count = 0
                continue
            count = count or row.count("|")
            self.assertEqual(row.count("|"), count, row)

    def test_the_report_is_not_changed(self):
        given = yield_report()
        before = copy.deepcopy(given)
        yieldbench.tables(given)
        self.assertEqual(given, before)

    def test_the_plot_is_drawn(self):
        try:
            import matplotlib  # noqa: F401
        except ImportError:
            self.skipTest("no matplotlib")
        yieldbench.plot(yield_report(), self.temp / "yield.svg")
        self.assertIn("<svg", (self.temp / "yield.svg").read_text())
        self.assertTrue((self.temp / "yield.png").exists())

    def test_a_result_with_and_without_it_is_shown(self):
        whole = report(Tables.BASE, Tables.SERIES)
        write(self.temp, {
            "without.json": json.dumps(whole),
            "with.json": json.dumps(whole | {"yield": yield_report()})})
        run = self.run_script("bench.py", "--show", self.temp / "with.json")
        self.assertDone(run, "pair-0x80-65535", "2 processes", "8.20 %")
        run = self.run_script("bench.py", "--show",
                              self.temp / "without.json")
        self.assertDone(run, "pair-0x80-65535")
        self.assertNotIn("processes", run.out)
        run = self.run_script("yieldbench.py", self.temp / "without.json")
        self.assertRefused(run, "has no figures of yield_latency")


HACKBENCH = """\
Running in process mode with 2 groups using 40 file descriptors each (== 80 \
tasks)
Each sender will pass 200 messages of 100 bytes
Time: 1.600
"""
STRESS_NG = """\
stress-ng: info:  [9] dispatching hogs: 2 sockpair
stress-ng: metrc: [9] stressor       bogo ops real time  usr time  sys time\
   bogo ops/s     bogo ops/s
stress-ng: metrc: [9]                           (secs)    (secs)    (secs)\
   (real time) (usr+sys time)
stress-ng: metrc: [9] sockpair         120396      1.19      0.17      0.93\
    101183.81      109546.71
stress-ng: metrc: [9] miscellaneous metrics:
stress-ng: metrc: [9] sockpair             743.90 MB written per sec \
(geometic mean of 1 instances)
stress-ng: info:  [9] successful run completed in 1.19s
"""


class Throughput(Case):
    """throughput.py: what hackbench and stress-ng print, and the table."""

    def report(self, series=99000.0):
        """Return a report (dict) with one workload."""
        return {"benchmark": "throughput", "version": 1, "repeats": 3,
                "sides": {side: {"throughput": {"hackbench-pipes": values}}
                          for side, values in (
                              ("base", [100000.0, 101000.0, 90000.0]),
                              ("series", [series] * 3))}}

    def test_the_figures(self):
        self.assertEqual(throughput.figure(HACKBENCH), 100000)
        self.assertEqual(throughput.figure(STRESS_NG), 101183.81)
        self.assertEqual(
            throughput.figures(f"## a\n{HACKBENCH}## b\n{STRESS_NG}"
                               f"## a\n{HACKBENCH}"),
            {"a": [100000, 100000], "b": [101183.81]})

    def test_what_failed_is_named(self):
        for text, why in (("", "no figure"), ("Time: 1.0\nstatus: 3", "3"),
                          (HACKBENCH + "status: 1\n", "status: 1")):
            with self.subTest(text), self.assertRaisesRegex(
                    Fail, f"^pipes failed: .*{why}"):
                throughput.figures(f"## pipes\n{text}")

    def test_every_workload_runs_as_often_as_asked(self):
        text = throughput.script(["hackbench-pipes", "stress-ng-wait"], 3)
        self.assertEqual(text.count("## hackbench-pipes"), 3)
        self.assertEqual(text.count("--wait 2"), 3)

    def test_the_table_has_medians(self):
        rows = throughput.tables(self.report())
        self.assertEqual(
            rows[-1], "| hackbench-pipes | messages/s | 100000 (11.0 %) "
            "| 99000 (0.0 %) | 0.990 |")

    def test_a_result_is_shown_and_judged(self):
        write(self.temp, {"good.json": json.dumps(self.report()),
                          "bad.json": "{}"})
        good = self.temp / "good.json"
        self.assertDone(self.run_script("throughput.py", "--show", good),
                        "0.990")
        run = self.run_script("throughput.py", "--show", good, "--at-least",
                              "0.995")
        self.assertRefused(run, "less than 0.995", "hackbench-pipes 0.990")
        run = self.run_script("throughput.py", "--show",
                              self.temp / "bad.json")
        self.assertRefused(run, "is not a result of 'make throughput'")

    def test_no_run_is_refused(self):
        run = self.run_script("throughput.py", "--repeats", "0")
        self.assertEqual(run.status, 2, run)
        self.assertIn("--repeats takes 1 or more", run.err)


class WantedSelftests(Case):
    """wanted_selftests(): what the Makefile of selftests/x86 promises."""

    def wanted(self, text):
        write(self.temp, {"tools/testing/selftests/x86/Makefile": text})
        return check.wanted_selftests(self.temp)

    def test_both_bits_and_one(self):
        self.assertEqual(self.wanted(
            "TARGETS_C_BOTHBITS := a b\n"
            "TARGETS_C_32BIT_ONLY := c\n"
            "TARGETS_C_64BIT_ONLY := d\n"
            "TARGETS_C_32BIT_NEEDED := e\n"),
            {"a_32", "a_64", "b_32", "b_64", "c_32", "d_64", "e_32", "e_64"})

    def test_continued_and_added_lines(self):
        self.assertEqual(self.wanted(
            "TARGETS_C_BOTHBITS := a \\\n\t\t\tb \\\n\t\t\tc\n"
            "TARGETS_C_BOTHBITS += d\n"),
            {f"{name}_{bits}" for name in "abcd" for bits in (32, 64)})

    def test_lists_made_of_lists_add_nothing(self):
        self.assertEqual(self.wanted(
            "TARGETS_C_64BIT_ONLY := a\n"
            "TARGETS_C_64BIT_ALL := $(TARGETS_C_BOTHBITS) "
            "$(TARGETS_C_64BIT_ONLY)\n"
            "BINARIES_64 := $(TARGETS_C_64BIT_ALL:%=%_64)\n"), {"a_64"})


class Tally(Case):
    """Tally: a skip that nobody expects is a failure."""

    def setUp(self):
        super().setUp()
        write(self.temp, {"configs/expected-skips":
                          "# Why.\nselftests/x86: amx_64\n"
                          "selftests/x86: sig_*  # emulation\n\n"})
        self.output = io.StringIO()
        with mock.patch.object(check, "CONFIGS", self.temp / "configs"):
            self.tally = check.Tally()

    def counts(self):
        """Return passed, failed, skipped (tuple of int)."""
        return self.tally.passed, self.tally.failed, self.tally.skipped

    def call(self, method, *arguments):
        with redirect_stdout(self.output):
            return getattr(self.tally, method)(*arguments)

    def test_nothing_is_counted_at_first(self):
        self.assertEqual(self.counts(), (0, 0, 0))

    def test_ok_and_fail(self):
        self.call("ok", "one")
        self.call("fail", "two", "the reason")
        self.assertEqual(self.counts(), (1, 1, 0))
        self.assertIn("ok    one\n", self.output.getvalue())
        self.assertIn("FAIL  two: the reason\n", self.output.getvalue())

    def test_an_expected_skip_is_a_skip(self):
        self.call("skip", "selftests/x86: amx_64", "no AMX")
        self.call("skip", "selftests/x86: sig_return_32", "slow")
        self.assertEqual(self.counts(), (0, 0, 2))

    def test_an_unexpected_skip_is_a_failure(self):
        for name in ("selftests/x86: amx_32", "amx_64", "", "# Why.",
                     "other: selftests/x86: amx_64"):
            self.call("skip", name, "no AMX")
        self.assertEqual(self.counts(), (0, 5, 0))
        self.assertIn("skipped (no AMX), which configs/expected-skips does "
                      "not list", self.output.getvalue())

    def test_run_counts_what_a_function_says(self):
        self.assertTrue(self.call("run", "one", lambda: None))
        self.assertFalse(self.call("run", "two", self.refuse, "so"))
        self.assertEqual(self.counts(), (1, 1, 0))
        self.assertIn("FAIL  two: so\n", self.output.getvalue())

    @staticmethod
    def refuse(why):
        raise Fail(why)


SAMPLE = """\
import unittest

class Sample(unittest.TestCase):
    def test_good(self):
        self.assertTrue(True)
"""
BAD = """\
    def test_bad(self):
        self.assertEqual(1, 2)
    def test_broken(self):
        raise OSError("broken")
"""
SKIPPED = """\
    def test_skipped(self):
        self.skipTest("no such tool")
"""


class Group(Case):
    """check.py --only scripts: the last line counts, the status follows."""

    def check(self, text, expected=""):
        """Run check.py on a repository with these tests."""
        self.copy_repo()
        write(self.repo, {"tests/test_sample.py": text,
                          "configs/expected-skips": expected})
        return self.run_script("check.py", "--only", "scripts")

    def assertCounts(self, run, status, line):
        self.assertEqual(run.status, status, run)
        self.assertEqual(run.out.splitlines()[-1], line, run)
        self.assertNotIn("Traceback", run.err)

    def test_all_pass(self):
        self.assertCounts(self.check(SAMPLE), 0,
                          "1 passed, 0 failed, 0 skipped")

    def test_failures_and_errors_are_failures(self):
        run = self.check(SAMPLE + BAD)
        self.assertCounts(run, 1, "1 passed, 2 failed, 0 skipped")
        self.assertIn("FAIL  scripts: Sample.test_bad: AssertionError",
                      run.out)
        self.assertIn("Traceback",
                      (self.build / "logs/scripts.log").read_text())

    def test_an_unexpected_skip_is_a_failure(self):
        self.assertCounts(self.check(SAMPLE + SKIPPED), 1,
                          "1 passed, 1 failed, 0 skipped")

    def test_an_expected_skip_is_a_skip(self):
        self.assertCounts(
            self.check(SAMPLE + SKIPPED, "scripts: Sample.test_skipped\n"),
            0, "1 passed, 0 failed, 1 skipped")

    def test_no_test_at_all_is_a_failure(self):
        self.assertCounts(self.check("import unittest\n"), 1,
                          "0 passed, 1 failed, 0 skipped")

    def test_a_test_file_that_does_not_load_is_a_failure(self):
        run = self.check("import no_such_module\n")
        self.assertCounts(run, 1, "0 passed, 1 failed, 0 skipped")


class Show(Case):
    """bench.py --show, and readme.py without a result."""

    def test_a_result_is_shown_again(self):
        write(self.temp, {"report.json": json.dumps(
            report(Tables.BASE, Tables.SERIES))})
        run = self.run_script("bench.py", "--show",
                              self.temp / "report.json")
        self.assertDone(run, "pair-0x80-65535", "0.38")
        self.assertFalse(self.build.exists())

    def test_readme_without_a_result(self):
        self.copy_repo()
        write(self.repo, {"README.md": "x\n"})
        run = self.run_script("readme.py")
        self.assertRefused(run, "there is no result yet: run 'make bench'")
        self.assertEqual((self.repo / "README.md").read_text(), "x\n")


if __name__ == "__main__":
    unittest.main()
