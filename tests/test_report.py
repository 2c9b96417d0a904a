# SPDX-License-Identifier: GPL-2.0-only
"""report.py and svgplot.py: what is said of figures, and how it is drawn."""

import json
import random
import re
import unittest
import xml.etree.ElementTree as ElementTree

from helper import ROOT, Case, write

import report
import svgplot
from common import Fail

SVG = "{http://www.w3.org/2000/svg}"


def ioperm(none, low, high):
    """Return what ioperm_latency writes (dict), for these p50."""
    cases = [{"name": name, "kind": "switch", "status": "ok", "reason": None,
              "highest_port": ports, "p50": value}
             for name, ports, value in (
                 ("none", [None, None], none),
                 ("shared-0x80", [128, 128], low),
                 ("sweep-0", [0, 1], low), ("sweep-65535", [65535, 65534],
                                            high))]
    return {"benchmark": "ioperm_latency", "cases": cases}


def yields(*features):
    """Return what yield_latency writes (dict), once for each feature."""
    return {"benchmark": "yield_latency", "cases": [
        {"name": "switch-proc-2", "kind": "switch", "features": feature,
         "status": "ok", "reason": None, "ns_per_call": value}
        for feature, value in features]}


def cell(benchmark, column, result, repeat=1, part=""):
    """Return what study.py writes (text) of one cell."""
    return json.dumps({
        "cell": f"{benchmark}.{column}.{repeat}", "benchmark": benchmark,
        "part": part, "column": column, "repeat": repeat, "accel": "tcg",
        "seconds": 5, "kernel": {"release": "7.3.4"}, "result": result})


def ping(met):
    """Return what pi_ping writes (dict): load and % met of each case."""
    return {"benchmark": "pi_ping", "cases": [
        {"name": "reference", "status": "ok", "reason": None, "load": 1,
         "interactive": False, "digits_per_s": 1e6}] + [
        {"name": f"load-{load}", "status": "ok", "reason": None,
         "load": load, "interactive": True, "met_percent": value,
         "p99": 1e6, "relative": 99.0} for load, value in met.items()]}


class Judge(unittest.TestCase):
    """judge(): only what is beyond the noise is better or worse."""

    @staticmethod
    def verdict(base, series, more=False, assumed=None):
        return report.judge(base, series, more,
                            report.noise(base, series, assumed))[1]

    def test_within_the_spread_of_either_side(self):
        self.assertEqual(self.verdict([100, 110, 105, 105],
                                      [108, 112, 109, 109]), report.SAME)

    def test_beyond_it(self):
        for more, verdict in ((False, report.WORSE), (True, report.BETTER)):
            self.assertEqual(self.verdict([100, 101, 102, 101],
                                          [110, 111, 112, 111], more),
                             verdict)
        self.assertEqual(self.verdict([100, 101, 102, 101],
                                      [90, 91, 92, 91]), report.BETTER)

    def test_few_runs_are_not_judged(self):
        for runs in range(1, report.ENOUGH):
            self.assertEqual(self.verdict([100] * runs, [900] * runs),
                             report.FEW)
            self.assertEqual(self.verdict([100] * runs, [100] * runs),
                             report.SAME)
        self.assertEqual(self.verdict([100] * report.ENOUGH,
                                      [105] * report.ENOUGH), report.WORSE)

    def test_few_runs_have_at_least_the_noise_that_is_assumed(self):
        for runs in range(1, report.ENOUGH):
            for value, verdict in ((104, report.SAME), (106, report.WORSE)):
                self.assertEqual(self.verdict([100] * runs, [value] * runs,
                                              assumed=0.05), verdict)
        self.assertEqual(self.verdict([100, 120], [110, 115], assumed=0.05),
                         report.SAME)

    def test_nothing_to_divide_by(self):
        self.assertEqual(report.judge([0], [5], False, 0.1),
                         (None, report.WORSE))
        self.assertEqual(report.judge([0], [0], False, 0.1)[1], report.SAME)
        # Half of the runs are as good as any of the others.
        self.assertEqual(self.verdict([0, 0, 0, 3], [2, 2, 2, 2]),
                         report.SAME)
        self.assertEqual(self.verdict([2, 2, 2, 2], [0, 0, 0, 3]),
                         report.SAME)
        self.assertEqual(self.verdict([0, 0, 0, 1], [2, 2, 2, 2]),
                         report.WORSE)


class Chance(unittest.TestCase):
    """What noise alone would call worse."""

    def test_the_table_is_what_a_simulation_gives(self):
        source = random.Random(1)
        trials = 20000
        for runs, share in report.CHANCE.items():
            worse = sum(Judge.verdict(
                [source.gauss(100, 1) for _ in range(runs)],
                [source.gauss(100, 1) for _ in range(runs)])
                == report.WORSE for _ in range(trials))
            # Four standard deviations of a count.
            self.assertLess(abs(worse - trials * share),
                            4 * (trials * share) ** 0.5 + 1, runs)

    def test_sum_over_the_figures(self):
        self.assertAlmostEqual(report.by_chance(
            [{"runs": 4}, {"runs": 5}, {"runs": 9}]), 0.0060 + 0.0019 + 0.0003)
        self.assertEqual(report.numbers([2, 6, 3]), "2 to 6")
        self.assertEqual(report.numbers([6, 6]), "6")


class Yield(unittest.TestCase):
    """compare(): what the times of a call of sched_yield() can tell."""

    @staticmethod
    def verdicts(base, series):
        """Return {figure: verdict} of a case with these figures (dicts)."""
        samples = report.Samples()
        for column, figures in (("base", base), ("series", series)):
            for _ in range(report.ENOUGH):
                samples.add("yield_latency", "", column, {"cases": [
                    {"name": "polite", "status": "ok", **figures}]})
        return {row["figure"]: row["verdict"] for row in
                report.compare(samples, ("yield_latency", ""))}

    def test_a_call_that_switches_nobody_is_not_fast(self):
        found = self.verdicts(
            {"calls": 100, "stuck": 30, "p50": 1e3, "p99": 2e6},
            {"calls": 100, "stuck": 0, "p50": 1e6, "p99": 2e6})
        self.assertEqual(found, {"stuck_percent": report.BETTER})

    def test_nor_does_the_series_get_away_with_it(self):
        found = self.verdicts(
            {"calls": 100, "stuck": 0, "p50": 1e6, "p99": 2e6},
            {"calls": 100, "stuck": 30, "p50": 1e3, "p99": 2e6})
        self.assertEqual(found, {"stuck_percent": report.WORSE})

    def test_a_few_do_not_hide_the_others(self):
        found = self.verdicts(
            {"calls": 1000, "stuck": 9, "p50": 1e6},
            {"calls": 1000, "stuck": 9, "p50": 2e6})
        self.assertEqual(found, {"stuck_percent": report.SAME,
                                 "p50": report.WORSE})

    def test_one_tick_or_two(self):
        base = {"p40": 7e5, "p50": 7e5, "p60": 14e5}
        series = {"p40": 7e5, "p50": 14e5, "p60": 14e5}
        self.assertEqual(self.verdicts(base, series), {"p50": report.SAME})
        series["p40"] = 14e5 + 1
        series["p60"] = 14e5 + 2
        self.assertEqual(self.verdicts(base, series), {"p50": report.WORSE})

    def test_less_than_a_reading_of_the_clock(self):
        for more, verdict in ((report.READING - 1, report.SAME),
                              (report.READING, report.WORSE),
                              (1 - report.READING, report.SAME),
                              (-report.READING, report.BETTER)):
            self.assertEqual(self.verdicts({"p99": 5e4}, {"p99": 5e4 + more}),
                             {"p99": verdict}, more)
        # A mean over many calls is not read once.
        self.assertEqual(self.verdicts({"ns_per_call": 500},
                                       {"ns_per_call": 510}),
                         {"ns_per_call": report.WORSE})


class Data(unittest.TestCase):
    """data/: figures of the literature, each with where it is from."""

    def test_every_file_has_its_source(self):
        files = sorted((ROOT / "data").glob("*.json"))
        self.assertGreaterEqual(len(files), 5)
        for path in files:
            with self.subTest(path.name):
                data = json.loads(path.read_text())
                self.assertTrue(data["source"]["author"])
                self.assertRegex(data["source"]["url"], r"^https?://")
                for row in data["rows"]:
                    self.assertEqual(len(row["values"]),
                                     len(data["columns"]))
                # Without figures it says why.
                self.assertTrue(data["rows"] or data["missing"])


class Pages(Case):
    """report.py as a user runs it."""

    def report(self, **cells):
        study = self.temp / "study"
        study.mkdir(exist_ok=True)
        write(study, {f"{name}.json": text for name, text in cells.items()})
        return self.run_script("report.py", "--study", study, "--output",
                               self.temp / "out", "--bench",
                               self.temp / "bench.json")

    def bench(self, base=(1000, 1200, 4000), series=(1000, 1100, 1100)):
        write(self.temp, {"bench.json": json.dumps({
            "date": "2026-01-01", "unit": "instructions", "accel": "tcg",
            "machine": {}, "sides": {
                "base": {"ioperm_latency": ioperm(*base)},
                "series": {"ioperm_latency": ioperm(*series)}},
            "yield": {"sides": {
                "base": yields(("as-is", 2000)),
                "series": yields(("old", 2010), ("new", 2500))}}})})

    def text(self, name="report.md"):
        return (self.temp / "out" / name).read_text()

    def test_what_is_not_there_is_said(self):
        self.bench()
        self.assertDone(self.report(), "report.md")
        text = self.text()
        for name in ("pi_ping", "interactive_latency"):
            self.assertIn(f"**Today: no result of `{name}`.**", text)
        self.assertIn("No result of `pi_ping`, `interactive_latency`, "
                      "`hackbench`", text)
        self.assertIn("Not measured yet: the kernels of `history/`", text)
        self.assertIn("columns of 2009 are left out", text)

    def test_worse_and_better_are_told(self):
        self.bench()
        self.report()
        text = self.text()
        self.assertRegex(text, r"`yield_latency`: `switch-proc-2` \| ns per "
                         r"call \| 2000 \| 2500 \| 1.250")
        self.assertIn("| 65535 | 10517 | 10607 | 2481 |", text)
        self.assertIn("3 better, **1 worse** beyond the noise, 1 within it",
                      text)
        self.assertNotIn("-schedulers.svg", text)
        self.assertIn('<td class="worse">', self.text("report.html"))
        better = text.split("### Better beyond the noise\n")[1].split("\n#")[0]
        ratios = [float(ratio) for ratio in re.findall(
            r"^\| `.*\| ([0-9.]+) \| [0-9.]+ % \|$", better, re.M)]
        self.assertEqual(len(ratios), 3)
        self.assertEqual(ratios, sorted(ratios))

    def test_what_moved_most_comes_first(self):
        rows = [{"ratio": ratio} for ratio in (0.9, 4, None, 0.1, 0)]
        rows.sort(key=report.moved)
        self.assertEqual([row["ratio"] for row in rows],
                         [0.9, 4, 0.1, None, 0])

    def test_the_study_comes_first_when_it_has_both_sides(self):
        self.bench()
        self.report(a=cell("ioperm_latency", "base", ioperm(7, 8, 9)),
                    b=cell("ioperm_latency", "history_8k",
                           ioperm(7, 33, 33)))
        self.assertIn("| none | nobody | 7 | 1000 | 1000 | ", self.text())
        self.report(c=cell("ioperm_latency", "series", ioperm(5, 5, 5)))
        self.assertIn("| none | nobody | 7 | 7 | 5 | ", self.text())

    def test_spread_of_several_runs(self):
        self.bench()
        cells = {f"{side}{n}": cell("pi_ping", side, ping({0: 100, 8: value}),
                                    n, "processes")
                 for side, first in (("base", 90), ("series", 80))
                 for n, value in enumerate((first, first + 2, first + 2,
                                            first + 4), 1)}
        self.report(**cells)
        text = self.text()
        self.assertRegex(text, r"`load-8` \| % of the deadlines met \| 92 \| "
                         r"82 \| 0.891 \| 4.3 % \| 4.9 % \| \*\*worse\*\*")
        self.assertIn("report-pi-ping-processes-met_percent.svg", text)
        self.assertNotIn("`reference`", text)

    def test_interactive_tasks_in_all_layouts(self):
        def latency(met):
            return {"cases": [
                {"name": f"video-{load}", "task": "video", "load": load,
                 "status": "ok", "reason": None, "mean": 1e6, "sd": 1e5,
                 "p99": 3e6, "max": 4e6, "desired_cpu": 100,
                 "deadlines_met": met} for load in ("none", "burn")]}

        self.bench()
        self.report(**{
            f"{part}{column}": cell("interactive_latency", column,
                                    latency(met), 1, part)
            for part, column, met in (
                ("threads", "base", 50), ("threads", "series", 60),
                ("cgroups", "base", 90), ("cgroups", "series", 91),
                ("cgroups", "base_server", 70), ("cgroups", "base_softrt",
                                                 80))})
        text = self.text()
        self.assertIn("| video | burn | 50 / 60 | 90 / 91 |", text)
        self.assertIn("report-interactive-threads.svg", text)
        self.assertIn("`interactive_latency`, cgroups: base, server against "
                      "base, soft real-time, 10 figures", text)
        self.assertIn("1 ± 0.1", text)

    def test_each_picture_shows_one_family(self):
        self.assertEqual(set(report.COLUMNS), {
            column for _, columns in report.FAMILIES.values()
            for column in columns})
        met = {column: value for value, column in enumerate(
            ("base", "series", "base_server", "series_server", "base_softrt",
             "series_softrt", "ext_simple", "ext_qmap"), 70)}
        met["series_server"] = 40
        self.bench()
        self.report(**{f"{column}{n}": cell("pi_ping", column,
                                            ping({1: value}), n, "processes")
                       for column, value in met.items()
                       for n in range(report.ENOUGH)})
        for which, (_, columns) in report.FAMILIES.items():
            svg = (self.temp / "out" / (report.picture_name(
                "pi-ping-processes-met_percent", which) + ".svg")).read_text()
            for column in met:
                self.assertEqual(f">{report.COLUMNS[column]}<" in svg,
                                 column in columns, (which, column))
        text = self.text()
        self.assertIn("base, server against series, server", text)
        self.assertIn("base against scx_simple", text)
        # What is worse in another configuration is on the list too.
        self.assertIn("| `pi_ping`: `load-1` (processes, series, server) | "
                      "% of the deadlines met | 72 | 40 |", text)

    def test_html_needs_no_other_file(self):
        self.bench()
        self.report()
        page = self.text("report.html")
        self.assertNotRegex(page, r"<(?:img|script|link)\b")
        self.assertIn("prefers-color-scheme: dark", page)
        self.assertGreater(page.count("<svg"), 3)
        for path in (self.temp / "out").glob("*.svg"):
            ElementTree.parse(path)
            self.assertIn(f"({path.name})", self.text())

    def test_published_cells_give_way_to_ones_own(self):
        write(self.temp / "a", {"x.json": cell("pi_ping", "base",
                                               ping({1: 5}))})
        write(self.temp / "b", {"x.json": cell("pi_ping", "base",
                                               ping({1: 6}))})
        cells = report.read_cells([self.temp / "a", self.temp / "b",
                                   self.temp / "none"])
        self.assertEqual([one["result"]["cases"][1]["met_percent"]
                          for one in cells], [6])

    def test_nothing_to_publish(self):
        self.copy_repo()
        self.assertRefused(self.run_script("report.py", "--publish"),
                           "run 'make study' first")

    def test_without_any_result(self):
        write(self.temp, {"bench.json": "{}"})
        self.assertRefused(self.report(bad="{"), "bad.json")
        done = self.run_script("report.py", "--bench", self.temp / "none")
        self.assertRefused(done, "there is no")


class Charts(unittest.TestCase):
    """svgplot.py: axes, labels that do not touch, both colour schemes."""

    def texts(self, svg):
        return [(float(text.get("x")), float(text.get("y")), text.text,
                 text.get("text-anchor"))
                for text in ElementTree.fromstring(svg).iter(SVG + "text")]

    def test_ticks(self):
        self.assertEqual(svgplot.ticks(0, 100, False),
                         [0, 20, 40, 60, 80, 100])
        self.assertEqual(svgplot.ticks(0, 9227, False)[-1], 10000)
        self.assertEqual(svgplot.ticks(0.5, 300, True),
                         [0.1, 1, 10, 100, 1000])
        self.assertEqual(len(svgplot.ticks(5, 5, True)), 2)
        self.assertEqual(svgplot.ticks(0, 0, False)[0], 0)

    def test_no_text_touches_another_or_leaves_the_picture(self):
        names = [f"column number {n}" for n in range(9)]
        svg = svgplot.line_chart(
            "A title", "x", "y", [str(2 ** n) for n in range(11)] * 4,
            [(name, name, [n + k for k in range(44)])
             for n, name in enumerate(names)])
        boxes = []
        for x, y, text, anchor in self.texts(svg):
            wide = svgplot.width_of(text)
            left = x - {"start": 0, "middle": wide / 2, "end": wide}[anchor]
            self.assertGreaterEqual(left, 0, text)
            self.assertLessEqual(left + wide, svgplot.WIDTH + 1, text)
            boxes.append((left, y, left + wide, text))
        for number, (left, y, right, text) in enumerate(boxes):
            for left2, y2, right2, other in boxes[:number]:
                self.assertFalse(
                    abs(y - y2) < svgplot.FONT - 1 and left < right2
                    and left2 < right, f"{text} and {other}")

    def test_gaps_and_zero_on_a_logarithmic_axis(self):
        svg = svgplot.line_chart("t", "x", "y", list("abcd"),
                                 [("base", "base", [1, None, 100, 0])],
                                 logarithmic=True)
        self.assertEqual(svg.count("<circle"), 2)
        self.assertNotIn("polyline", svg)
        svgplot.line_chart("t", "x", "y", ["a"], [("base", "b", [None])],
                           logarithmic=True)

    def test_colours_follow_the_reader(self):
        svg = svgplot.bar_chart("<t>", "x", "y", ["a", "b"],
                                [("base", "base", [1, 2])])
        self.assertIn("currentColor", svg)
        self.assertIn("prefers-color-scheme:dark", svg)
        self.assertIn("&lt;t&gt;", svg)
        self.assertFalse(re.search(r'fill="(?:white|#fff|black|#000)', svg))


class Inline(unittest.TestCase):
    """inline(): the little Markdown of a cell."""

    def test_code_bold_links_and_nothing_else(self):
        self.assertEqual(report.inline("`a<b>` **c** [d](https://e.org/f)"),
                         '<code>a&lt;b&gt;</code> <strong>c</strong> '
                         '<a href="https://e.org/f">d</a>')
        self.assertEqual(report.inline("[x](javascript:y)"),
                         "[x](javascript:y)")

    def test_a_file_that_is_no_json(self):
        with self.assertRaises(Fail):
            report.read_json(ROOT / "COPYING")


if __name__ == "__main__":
    unittest.main()
