#!/usr/bin/env python3
# SPDX-License-Identifier: GPL-2.0-only
"""Turn results into one page: results/report.md and results/report.html.

Reads the result of 'make bench' in results/ and what 'make study' left in
build/results/study, or published in results/study, and puts the figures of
the literature (data/) beside today's.  What is not there is said, not
guessed.  The pictures are SVG texts that follow the reader's colour scheme;
the HTML page needs no other file.
"""

import argparse
import json
import math
import re
import shutil
import statistics
from html import escape
from pathlib import Path

import svgplot
from common import (RESULTS, ROOT, Fail, run_main, say, shown_path,
                    write_atomically)

DATA = ROOT / "data"
PUBLISHED = ROOT / "results"
STUDY = RESULTS / "study"
BENCHMARKS = ("ioperm_latency", "yield_latency", "pi_ping",
              "interactive_latency", "hackbench")
SIDES = ("base", "series")
# What a column is called. The order is that of the tables.
COLUMNS = {
    "history_8k": "as 2.6.8.1: 8 KB, every switch",
    "history_prefix": "as 2.6.9: prefix, every switch",
    "base": "base", "off": "series, bits off", "series": "series",
    "base_server": "base, server", "series_server": "series, server",
    "base_softrt": "base, soft real-time",
    "series_softrt": "series, soft real-time",
    "ext_simple": "scx_simple", "ext_qmap": "scx_qmap",
}
# Which columns are drawn together, and what their pictures are called: with
# all of them in one, no line can be told from another.
FAMILIES = {
    "": ("", ("history_8k", "history_prefix", "base", "off", "series")),
    "configured": (", configured", ("base_server", "series_server",
                                    "base_softrt", "series_softrt")),
    "schedulers": (", schedulers", ("base", "ext_simple", "ext_qmap")),
}
# The order of the parts of a benchmark.
PARTS = ("threads", "processes", "cgroup", "cgroups", "batch")
# How many rows the lists of what is worse and better have at most.
LISTED = 40
# Which figures of a case are compared: name, unit, scale, whether more is
# better.
FIGURES = {
    "ioperm_latency": (("p50", "instructions", 1, False),),
    "yield_latency": (
        ("ns_per_call", "ns per call", 1, False),
        ("share", "% of the CPU", 1, True),
        ("stuck_percent", "% of the calls switched nobody", 1, False),
        ("acquisitions_per_s", "acquisitions/s", 1, True),
        ("p50", "ms, p50", 1e6, False), ("p99", "ms, p99", 1e6, False),
        ("longest_wait_yielder", "ms, longest wait of the yielder", 1e6,
         False),
        ("longest_wait_hog", "ms, longest wait of the hog", 1e6, False)),
    "pi_ping": (
        ("met_percent", "% of the deadlines met", 1, True),
        ("p50", "ms, p50", 1e6, False), ("p99", "ms, p99", 1e6, False),
        ("max", "ms, max", 1e6, False),
        ("relative", "% of one task's digits", 1, True)),
    "interactive_latency": (
        ("mean", "ms, mean", 1e6, False),
        ("sd", "ms, standard deviation", 1e6, False),
        ("max", "ms, max", 1e6, False),
        ("desired_cpu", "% of the desired CPU", 1, True),
        ("deadlines_met", "% of the deadlines met", 1, True)),
    "hackbench": (("ms_per_loop", "ms per loop", 1, False),),
}
# Runs whose spread can be trusted, see CHANCE.
ENOUGH = 4
# What two runs of the same kernel were seen to differ by, of figures that do
# not depend on where in a tick something falls: ioperm_latency's p50 counts
# instructions and repeats to the digit.  Only these are judged by fewer runs.
ASSUMED = {("ioperm_latency", "p50"): 0.002,
           ("yield_latency", "ns_per_call"): 0.05}
# Nanoseconds that a reading of the clock takes in the guest of the study
# (clock_gettime(), a million calls; half as long on a real machine).  Waits
# are timed with two of them: a difference smaller than one tells nobody a
# thing, however well it repeats.
READING = 64
# Waits have this scale, as they are shown in ms.
WAIT = 1e6
# Percent of the calls of sched_yield().  A call that switches nobody takes a
# microsecond: with more of them than this on one side, percentiles of the
# time of a call would call it slow to hand the CPU over at all.
STUCK = 1
PERCENTILES = ("p50", "p99")
# In how many cases (a share) the medians of two sides of this many runs are
# further apart in one direction than the larger range of the two, when there
# is nothing but normal noise.  By simulation; test_report.py does it again.
CHANCE = {4: 0.0060, 5: 0.0019, 6: 0.0003}
BETTER, WORSE, SAME = "better", "worse", "within the noise"
FEW = "too few runs to tell"
MARK = {BETTER: "better", WORSE: "**worse**", SAME: "·", FEW: "?"}

PAGE = """\
<!DOCTYPE html>
<html lang="en">
<head>
<meta charset="utf-8">
<meta name="viewport" content="width=device-width, initial-scale=1">
<meta name="color-scheme" content="light dark">
<title>{title}</title>
<style>
:root {{ color-scheme: light dark; }}
body {{ margin: 2rem auto; max-width: 62rem; padding: 0 1rem;
  font: 16px/1.5 system-ui, -apple-system, "Segoe UI", "DejaVu Sans",
  sans-serif; background: #fff; color: #1f2328; }}
h1, h2, h3 {{ line-height: 1.25; margin: 2em 0 .6em; }}
h1 {{ margin-top: 0; }}
h2 {{ border-bottom: 1px solid #8886; padding-bottom: .2em; }}
a {{ color: #0969da; }}
code {{ font-size: .9em; background: #8882; padding: .1em .3em;
  border-radius: 4px; }}
.table {{ overflow-x: auto; }}
table {{ border-collapse: collapse; font-size: .9rem; margin: 1em 0; }}
th, td {{ border: 1px solid #8886; padding: .25em .6em; text-align: right;
  font-variant-numeric: tabular-nums; }}
th:first-child, td:first-child {{ text-align: left; white-space: nowrap; }}
td:last-child {{ white-space: nowrap; }}
td.worse {{ background: #f8514933; }}
td.better {{ background: #2da44e33; }}
figure {{ margin: 1.5em 0; }}
summary {{ cursor: pointer; }}
@media (prefers-color-scheme: dark) {{
  body {{ background: #0d1117; color: #e6edf3; }}
  a {{ color: #4493f8; }}
}}
</style>
</head>
<body>
{body}
</body>
</html>
"""


# --- the figures ------------------------------------------------------------

class Samples:
    """All figures: what each column of each benchmark measured, and where.

    values[benchmark, part][column][case][figure] is a list of float, one a
    run; skips[benchmark, part][column] the reasons why cases have none;
    about[column] what kernel it was (dict).
    """

    def __init__(self):
        self.values = {}
        self.skips = {}
        self.about = {}
        self.accel = {}
        self.cases = {}
        # Where each benchmark's figures are from: 'bench' or 'study'.
        self.origin = {}

    def add(self, benchmark, part, column, result):
        """Add one run's result (dict, as the program's --json writes it).

        yield_latency runs each case of the series twice, with its feature
        bits off and on: these are two columns.
        """
        key = benchmark, part
        for case in result.get("cases", ()):
            where = column
            if case.get("features") == "old":
                if column != "series":
                    continue
                where = "off"
            skipped = self.skips.setdefault(key, {}).setdefault(where, {})
            name = case["name"]
            if case.get("status") != "ok":
                skipped[name] = case.get("reason") or case.get("status")
                continue
            self.cases.setdefault(key, {}).setdefault(name, case)
            found = self.values.setdefault(key, {}).setdefault(where, {}) \
                .setdefault(name, {})
            for figure, value in case.items():
                if isinstance(value, (int, float)) and \
                        not isinstance(value, bool):
                    found.setdefault(figure, []).append(float(value))
            if case.get("calls") and "stuck" in case:
                found.setdefault("stuck_percent", []).append(
                    100 * case["stuck"] / case["calls"])

    def columns(self, key):
        """Return the columns (list of str) that have figures, in order."""
        have = self.values.get(key, {})
        return [name for name in COLUMNS if name in have] + \
            sorted(set(have) - set(COLUMNS))

    def get(self, key, column, case, figure):
        """Return the values (list of float) of a figure, none when skipped."""
        return self.values.get(key, {}).get(column, {}).get(case, {}) \
            .get(figure, [])

    def median(self, key, column, case, figure):
        """Return the median (float) of a figure or None."""
        values = self.get(key, column, case, figure)
        return statistics.median(values) if values else None

    def parts(self, benchmark):
        """Return the parts (list of str) of a benchmark that have figures."""
        return sorted((part for name, part in self.values
                       if name == benchmark),
                      key=lambda part: (PARTS.index(part) if part in PARTS
                                        else len(PARTS), part))


def add_bench(samples, report, benchmarks):
    """Add what 'make bench' wrote (dict) for these benchmarks (set)."""
    for side, found in report["sides"].items():
        samples.about.setdefault(side, found)
        if "ioperm_latency" in benchmarks:
            samples.add("ioperm_latency", "", side, found["ioperm_latency"])
    if "yield_latency" in benchmarks:
        for side, found in report.get("yield", {}).get("sides", {}).items():
            samples.add("yield_latency", "", side, found)


def read_json(path):
    """Read a JSON file (Path); raises Fail that names it."""
    try:
        return json.loads(path.read_text())
    except (OSError, ValueError) as failure:
        raise Fail(f"{shown_path(path)} cannot be read: {failure}") from None


def read_cells(folders):
    """Read the finished cells (list of dict) of folders (Paths).

    Of cells with the same name that of the last folder counts.
    """
    found = {path.name: path for folder in folders
             for path in sorted(folder.glob("*.json"))}
    cells = [read_json(path) for path in found.values()]
    return [cell for cell in cells if isinstance(cell, dict)
            and "cell" in cell and cell.get("result")]


def collect(bench, folders):
    """Read all results; returns Samples.

    bench: Path of the result of 'make bench'.  folders: Paths with what
    'make study' wrote.  A benchmark is taken from the study when that has
    base and series of it.
    """
    samples = Samples()
    cells = read_cells(folders)
    sides = {}
    for cell in cells:
        sides.setdefault(cell["benchmark"], set()).add(cell["column"])
    from_study = {name for name, have in sides.items()
                  if {"base", "series"} <= have}
    report = read_json(bench) if bench.exists() else None
    if report:
        add_bench(samples, report, set(BENCHMARKS) - from_study)
        samples.accel["bench"] = report.get("accel")
    for cell in cells:
        if cell["benchmark"] in from_study \
                or cell["column"] not in SIDES:
            samples.add(cell["benchmark"], cell.get("part", ""),
                        cell["column"], cell["result"])
            samples.about.setdefault(cell["column"], cell.get("kernel", {}))
            samples.accel["study"] = cell.get("accel")
    samples.origin = {name: "study" if name in from_study else "bench"
                      for name in BENCHMARKS}
    samples.report = report
    return samples


def spread(values):
    """Return (max - min) / median of values (list of float), None for one."""
    middle = statistics.median(values)
    if len(values) < 2 or not middle:
        return None
    return (max(values) - min(values)) / abs(middle)


def noise(base, series, assumed=None):
    """Return by how much two sides may differ by chance (float, 0.1 = 10 %).

    base, series: the runs' values.  The larger spread of the two; with fewer
    than ENOUGH runs at least what is assumed, None when nothing is.
    """
    spreads = [spread(base), spread(series)]
    if min(len(base), len(series)) < ENOUGH:
        if assumed is None:
            return None
        spreads.append(assumed)
    return max((value for value in spreads if value is not None), default=0)


def judge(base, series, more_is_better, limit):
    """Compare two sides' values; returns (ratio or None, verdict).

    limit: what counts as noise (float), None when that is not known.
    """
    a, b = statistics.median(base), statistics.median(series)
    ratio = b / a if a else None
    if a == b:
        return 1.0, SAME
    if limit is None:
        return ratio, FEW
    # There is no share of nothing.
    if 0 in (a, b) and max(min(base), min(series)) <= min(max(base),
                                                          max(series)):
        return ratio, SAME
    if ratio is not None and abs(ratio - 1) <= limit:
        return ratio, SAME
    return ratio, BETTER if (b > a) == more_is_better else WORSE


def hands_over(samples, key, case, columns):
    """Tell whether hardly a call of a case switched nobody, on any column."""
    return all((samples.median(key, column, case, "stuck_percent") or 0)
               <= STUCK for column in columns)


def middles_overlap(samples, key, case, columns):
    """Tell whether the ranges from p40 to p60 of all columns overlap.

    A time that is one tick or two has a p50 of either, by chance.
    """
    ranges = [[samples.median(key, column, case, figure)
               for figure in ("p40", "p60")] for column in columns]
    if any(None in ends for ends in ranges):
        return False
    return max(low for low, _ in ranges) <= min(high for _, high in ranges)


def compare(samples, key, base="base", series="series"):
    """Return rows (list of dict) that compare two columns of a benchmark.

    Percentiles of the time of a yield only where the calls of both switch:
    see STUCK.
    """
    rows = []
    both = base, series
    for case in samples.cases.get(key, {}):
        for figure, unit, scale, more in FIGURES[key[0]]:
            a = samples.get(key, base, case, figure)
            b = samples.get(key, series, case, figure)
            if not a or not b or figure in PERCENTILES and \
                    not hands_over(samples, key, case, both):
                continue
            limit = noise(a, b, ASSUMED.get((key[0], figure)))
            ratio, verdict = judge(a, b, more, limit)
            if figure == "p50" and verdict != FEW \
                    and middles_overlap(samples, key, case, both):
                verdict = SAME
            medians = statistics.median(a), statistics.median(b)
            tiny = verdict in (BETTER, WORSE) and scale == WAIT \
                and abs(medians[1] - medians[0]) < READING
            rows.append({"benchmark": key[0], "part": key[1], "case": case,
                         "columns": both,
                         "figure": figure, "unit": unit, "scale": scale,
                         "base": medians[0], "series": medians[1],
                         "ratio": ratio, "tiny": tiny,
                         "noise": limit, "runs": min(len(a), len(b)),
                         "base_spread": spread(a),
                         "series_spread": spread(b),
                         "verdict": SAME if tiny else verdict})
    return rows


# --- the page ---------------------------------------------------------------

def plain(value, scale=1.0):
    """Format a figure (float or None) with four digits, a dash for none."""
    if value is None:
        return "-"
    value /= scale
    if value == int(value) and abs(value) < 1e7:
        return str(int(value))
    if abs(value) >= 1000:
        return f"{value:.0f}"
    return f"{value:.3g}" if abs(value) < 100 else f"{value:.1f}"


def percent(value):
    """Format a share (float or None) in percent."""
    return "-" if value is None else f"{100 * value:.1f} %"


class Page:
    """A page as a list of blocks, to be written as Markdown and as HTML."""

    def __init__(self, title):
        self.title = title
        self.blocks = [("head", 1, title)]
        self.pictures = {}

    def head(self, text, level=2):
        """Begin a section."""
        self.blocks.append(("head", level, text))

    def text(self, text):
        """Add a paragraph; `code`, **bold** and [text](address) are known."""
        self.blocks.append(("text", text))

    def points(self, rows):
        """Add a list."""
        self.blocks.append(("points", list(rows)))

    def table(self, heads, rows, folded=None):
        """Add a table of str; folded: a title to be clicked on (str)."""
        self.blocks.append(("table", heads, rows, folded))

    def picture(self, name, svg, alt):
        """Add an SVG (str), which Markdown shows from a file NAME.svg."""
        self.pictures[name] = svg
        self.blocks.append(("picture", name, alt))

    def markdown(self):
        """Return the page as Markdown (str)."""
        out = ["<!-- written by 'make report', do not edit -->"]
        for kind, *block in self.blocks:
            if kind == "head":
                out.append("#" * block[0] + " " + block[1])
            elif kind == "text":
                out.append(block[0])
            elif kind == "points":
                out.append("\n".join("- " + row for row in block[0]))
            elif kind == "picture":
                out.append(f"![{block[1]}]({block[0]}.svg)")
            else:
                heads, rows, folded = block
                table = "\n".join(
                    ["| " + " | ".join(heads) + " |",
                     "|---|" + "---:|" * (len(heads) - 1)]
                    + ["| " + " | ".join(row) + " |" for row in rows])
                out.append(f"<details><summary>{folded}</summary>\n\n{table}"
                           "\n\n</details>" if folded else table)
        return "\n\n".join(out) + "\n"

    def html(self):
        """Return the page as HTML (str) that needs no other file."""
        out = []
        for kind, *block in self.blocks:
            if kind == "head":
                out.append(f"<h{block[0]}>{inline(block[1])}</h{block[0]}>")
            elif kind == "text":
                out.append(f"<p>{inline(block[0])}</p>")
            elif kind == "points":
                out.append("<ul>" + "".join(f"<li>{inline(row)}</li>"
                                            for row in block[0]) + "</ul>")
            elif kind == "picture":
                out.append(f'<figure aria-label="{escape(block[1])}">'
                           f"{self.pictures[block[0]]}</figure>")
            else:
                out.append(self.html_table(*block))
        return PAGE.format(title=escape(self.title), body="\n".join(out))

    @staticmethod
    def html_table(heads, rows, folded):
        """Return a table as HTML (str)."""
        marks = {MARK[WORSE]: ' class="worse"', MARK[BETTER]:
                 ' class="better"'}
        table = ('<div class="table"><table><thead><tr>'
                 + "".join(f"<th>{inline(head)}</th>" for head in heads)
                 + "</tr></thead><tbody>"
                 + "".join("<tr>" + "".join(
                     f"<td{marks.get(cell, '')}>{inline(cell)}</td>"
                     for cell in row) + "</tr>\n" for row in rows)
                 + "</tbody></table></div>")
        if folded:
            return (f"<details><summary>{inline(folded)}</summary>{table}"
                    "</details>")
        return table


def inline(text):
    """Turn `code`, **bold** and [text](address) of a str into HTML."""
    text = escape(text, quote=False)
    text = re.sub(r"`([^`]+)`", r"<code>\1</code>", text)
    text = re.sub(r"\*\*([^*]+)\*\*", r"<strong>\1</strong>", text)
    return re.sub(r"\[([^\]]+)\]\((https?://[^)\s]+)\)",
                  r'<a href="\2">\1</a>', text)


def source(data):
    """Say (str) where historical figures (dict of data/) are from."""
    found = data["source"]
    links = [f"[{found['url'].split('//')[1].split('/')[0]}]({found['url']})"]
    links += [f"[{more.split('//')[1].split('/')[0]}]({more})"
              for more in found.get("more", ())]
    return (f"Source: {found['author']}, \"{found['title']}\", {found['in']} "
            f"({', '.join(links)}).")


def ratio_text(a, b):
    """Format a/b with two decimals, a dash where there is none."""
    return f"{a / b:.2f}" if a is not None and b else "-"


def comparison(page, samples, key, title, base="base", series="series"):
    """Add the table that compares two columns, what is worse first."""
    rows = compare(samples, key, base, series)
    if not rows:
        return rows
    order = {WORSE: 0, BETTER: 1, FEW: 2, SAME: 3}
    count = {verdict: sum(row["verdict"] == verdict for row in rows)
             for verdict in order}
    page.table(
        ["case", "figure", COLUMNS[base], COLUMNS[series], "ratio",
         "spread", "spread", "beyond the noise"],
        [[f"`{row['case']}`", row["unit"], plain(row["base"], row["scale"]),
          plain(row["series"], row["scale"]),
          "-" if row["ratio"] is None else f"{row['ratio']:.3f}",
          percent(row["base_spread"]), percent(row["series_spread"]),
          MARK[row["verdict"]]]
         for row in sorted(rows, key=lambda row: order[row["verdict"]])],
        folded=f"{title}: {COLUMNS[base]} against {COLUMNS[series]}, "
        f"{len(rows)} figures: "
        f"{count[BETTER]} better, {count[WORSE]} worse, {count[SAME]} within "
        "the noise"
        + (f", {count[FEW]} of too few runs to tell" if count[FEW] else ""))
    return rows


# Cases of ioperm_latency that are 2004's, by the port and by whether one or
# both of the tasks have it.
SAME_AS_2004 = (
    ("none", "nobody", "none"),
    ("0x80", "one bitmap for both, as fork() leaves it", "shared-0x80"),
    ("65535", "one bitmap for both, as fork() leaves it", "shared-65535"),
    ("0x80", "one task only", "pair-0x80-none"),
    ("0x80, 0x81", "both, each its own", "pair-0x80-0x81"),
    ("65534, 65535", "both, each its own", "pair-65534-65535"),
)


def ports_section(page, samples):
    """Switches with I/O ports: 2004 beside today's."""
    data = read_json(DATA / "2004-ioperm.json")
    page.head("Switches between tasks with I/O ports")
    page.text(f"2004: {data['measures']}, in {data['unit']}. "
              + data["note"] + " " + source(data))
    none = data["rows"][0]["values"]
    page.table(
        ["ports"] + [f"{column['name']}: {column['what']}"
                     for column in data["columns"]]
        + [f"{column['name']} / none" for column in data["columns"]],
        [[row["port"]] + [str(value) for value in row["values"]]
         + [f"{value / first:.2f}" for value, first
            in zip(row["values"], none)] for row in data["rows"]])
    key = "ioperm_latency", ""
    columns = samples.columns(key)
    if not columns:
        page.text("Today: no result. `make bench` measures base and series, "
                  "`make study` also the old behaviour on today's kernel.")
        return []
    cycles = samples.accel.get(samples.origin["ioperm_latency"]) == "kvm"
    unit = "TSC cycles" if cycles else \
        "guest instructions, exact and repeatable, but not cycles"
    page.text(f"Today: the same call, p50, in {unit}. `history/` puts the "
              "behaviour of 2004 back on the base's kernel."
              + ("" if any(column.startswith("history") for column in columns)
                 else " These kernels have not been measured yet: "
                 "`make study` does."))
    page.table(
        ["ports", "who has them"] + [COLUMNS.get(column, column)
                                     for column in columns]
        + [f"{COLUMNS.get(column, column).split(':')[0]} / none"
           for column in columns],
        [[port, who]
         + [plain(samples.median(key, column, case, "p50"))
            for column in columns]
         + [ratio_text(samples.median(key, column, case, "p50"),
                       samples.median(key, column, "none", "p50"))
            for column in columns]
         for port, who, case in SAME_AS_2004])
    bars = []
    for number, column in enumerate(data["columns"]):
        bars.append((column["today"], f"2004: {column['name']}",
                     [row["values"][number] / data["rows"][0]["values"]
                      [number] for row in data["rows"][1:]]))
    page.picture(
        "report-ioperm-2004",
        svgplot.bar_chart("2004: a switch with I/O ports, against one without",
                          "port", "times the switch without ports",
                          [f"port {row['port']}" for row in data["rows"][1:]],
                          bars, form=lambda value: f"{value:.2f}"),
        "bars: cost of a switch in 2004, relative to none")
    groups = [case for _, _, case in SAME_AS_2004[1:]]
    page.picture(
        "report-ioperm-today",
        svgplot.bar_chart(
            "Today: the same on 7.3, against a switch without ports",
            "case of ioperm_latency", "times the switch without ports",
            groups,
            [(column, COLUMNS.get(column, column),
              [relative(samples, key, column, case, "none")
               for case in groups]) for column in columns],
            form=lambda value: f"{value:.2f}"),
        "bars: cost of a switch today, relative to none")
    swept = sorted((max(port for port in case["highest_port"]
                        if port is not None), name)
                   for name, case in samples.cases[key].items()
                   if name.startswith("sweep-") and case.get("highest_port"))
    if swept:
        page.picture(
            "report-ioperm-sweep",
            svgplot.line_chart(
                "Two tasks with one port each: the number of the port decides "
                "on the base",
                "highest enabled port",
                f"{'cycles' if cycles else 'instructions'} per call (two "
                "switches)",
                [(port, str(port)) for port in range(0, 65537, 8192)],
                [(column, COLUMNS.get(column, column),
                  [samples.median(key, column, name, "p50")
                   for _, name in swept]) for column in columns],
                positions=[port for port, _ in swept]),
            "lines: cost of a switch against the highest port")
    if not cycles:
        page.text("2004 counted cycles, today's figures count instructions: "
                  "compare the ratios to `none`, not the numbers. A copy of "
                  "8 KB takes more of the instructions than of the cycles "
                  "where the CPU copies many bytes at once.")
    return comparison(page, samples, key, "`ioperm_latency`")


def relative(samples, key, column, case, reference):
    """Return a case's p50 relative to another case's, or None."""
    a = samples.median(key, column, case, "p50")
    b = samples.median(key, column, reference, "p50")
    return a / b if a is not None and b else None


def family(samples, key, name):
    """Return the columns (list of str) of FAMILIES that have figures."""
    return [column for column in samples.columns(key)
            if column in FAMILIES[name][1]]


def lines(samples, key, columns, names, figure, scale=1):
    """Return what svgplot draws: (column, title, values) of each column.

    names: of the cases, in the order of the values.
    """
    return [(column, COLUMNS[column],
             [scaled(samples.median(key, column, name, figure), scale)
              for name in names]) for column in columns]


def picture_name(name, which):
    """Return the name of a picture (str) of a family."""
    return f"report-{name}" + (f"-{which}" if which else "")


def yield_section(page, samples):
    """sched_yield(): 1998 beside today's."""
    data = read_json(DATA / "1998-sched-yield.json")
    page.head("sched_yield() and the length of the run queue")
    page.text(f"1998, on a {data['machine']}: {data['measures']}, "
              f"{data['unit']}. " + source(data) + " " + data["missing"])
    key = "yield_latency", ""
    columns = family(samples, key, "")
    rows = queues(samples)
    then = {row["tasks"]: row["values"] for row in data["rows"]}
    if not rows:
        page.table(["tasks"] + [f"{column['name']}: {column['what']}, us"
                                for column in data["columns"]],
                   [[str(tasks)] + [str(value) for value in values]
                    for tasks, values in then.items()])
        page.text("Today: no result, run `make bench`.")
        return []
    page.table(
        ["tasks"] + [f"{column['name']}: {column['what']}, us"
                     for column in data["columns"]] + ["then: ratio"]
        + [f"{COLUMNS[column]}, ns" for column in columns]
        + ["series / base"],
        [[f"{tasks} {'processes' if kind == 'proc' else 'threads'}"]
         + ([str(value) for value in then[tasks]]
            + [f"{then[tasks][1] / then[tasks][0]:.2f}"]
            if kind == "proc" and tasks in then else ["", "", ""])
         + [plain(samples.median(key, column, case, "ns_per_call"))
            for column in columns]
         + [ratio_text(samples.median(key, "series", case, "ns_per_call"),
                       samples.median(key, "base", case, "ns_per_call"))]
         for case, (kind, tasks) in rows.items()])
    draw_queues(page, samples, "")
    page.text("The 1998 gain came from a loop that went over all tasks "
              "when their counters were used up. That loop is gone: what a "
              "yielder is charged hardly matters to a queue of nothing but "
              "yielders. What is left of the mistake of 1998 is what it pays "
              "beside tasks that do not yield:")
    draw_polite(page, samples, "")
    gooch = read_json(DATA / "1998-scheduler.json")
    page.head("The same instrument in 1998: two real-time tasks", 3)
    page.text(f"{gooch['measures'].capitalize()}, {gooch['unit']}. "
              + source(gooch) + " It is what `ioperm_latency` does today, "
              "where a call is two switches.")
    page.table(["machine", "kernel"] + [column["name"]
                                        for column in gooch["columns"]],
               [[row["machine"], row["kernel"]]
                + [str(value) for value in row["values"]]
                for row in gooch["rows"]])
    rows = comparison(page, samples, key, "`yield_latency`")
    if rows:
        page.text("A call that switches nobody takes a microsecond. Where "
                  f"more than {STUCK} % of the calls of base or series are "
                  "such calls, it is their number that is compared and the "
                  "worker's share, not the percentiles of the time. Two p50 "
                  "whose ranges from p40 to p60 overlap count as equal.")
    return rows


def queues(samples):
    """Return {case: ("proc" or "thread", number of tasks)} of yields."""
    found = {case: re.fullmatch(r"switch-(proc|thread)-(\d+)", case)
             for case in samples.cases.get(("yield_latency", ""), {})}
    return {case: (match.group(1), int(match.group(2)))
            for case, match in found.items() if match}


def draw_queues(page, samples, which):
    """Draw the time of a yield of a family against the tasks."""
    key = "yield_latency", ""
    processes = [(tasks, case) for case, (kind, tasks)
                 in queues(samples).items() if kind == "proc"]
    page.picture(
        picture_name("yield-queue", which),
        svgplot.line_chart(
            "All tasks of one CPU do nothing but yield" + FAMILIES[which][0],
            "processes on the run queue", "ns per call",
            [str(tasks) for tasks, _ in processes],
            lines(samples, key, family(samples, key, which),
                  [case for _, case in processes], "ns_per_call")),
        "lines: time of a yield against the number of tasks")


def draw_polite(page, samples, which):
    """Draw what a polite worker gets, against the slice of all tasks."""
    key = "yield_latency", ""
    cases = {}
    for name, case in samples.cases.get(key, {}).items():
        if case.get("kind") == "polite" and case.get("work_us") == 100:
            cases.setdefault(case["hogs"], []).append((case["slice_us"],
                                                       name))
    texts = {0: "default", 2800: "2.8 ms", 20000: "20 ms", 100000: "100 ms"}
    for hogs, found in sorted(cases.items()):
        found.sort()
        beside = f"{hogs} hog" + ("s" if hogs > 1 else "")
        for figure, title, label, scale, log in (
                ("share", f"100 us of work, then a yield, beside {beside}: "
                 "the worker's share", "% of the CPU", 1, False),
                ("p50", f"... and how long its calls take (p50), beside "
                 f"{beside}", "ms", 1e6, True)):
            page.picture(
                picture_name(f"yield-{figure}-{hogs}", which),
                svgplot.line_chart(
                    title + FAMILIES[which][0], "slice of all tasks", label,
                    [texts.get(size, f"{size} us") for size, _ in found],
                    lines(samples, key, family(samples, key, which),
                          [name for _, name in found], figure, scale),
                    logarithmic=log, height=190),
                f"lines: {figure} of a worker beside {beside}")


def scaled(value, scale):
    """Return value / scale, None for None."""
    return None if value is None else value / scale


def no_result(page, benchmark):
    """Say that a benchmark has no figures yet."""
    page.text(f"**Today: no result of `{benchmark}`.** `make study` measures "
              "it in guests" + ("." if benchmark == "hackbench" else
                                ", `make measure` on the kernel that runs."))


def ping_section(page, samples):
    """pi_ping: 2009 beside today's."""
    data = read_json(DATA / "2009-pi-ping.json")
    page.head("Deadlines beside processes that compute digits of pi")
    page.text(f"2009: {data['measures']}. " + source(data) + " **"
              + data["missing"] + "**")
    parts = samples.parts("pi_ping")
    if not parts:
        no_result(page, "pi_ping")
        return []
    rows = []
    for part in parts:
        key = "pi_ping", part
        page.head(f"{part or 'pi_ping'}", 3)
        draw_ping(page, samples, part, "")
        rows += comparison(page, samples, key, f"`pi_ping`, {part}")
    return rows


def draw_ping(page, samples, part, which):
    """Draw the figures of 2009 of a family against the load."""
    key = "pi_ping", part
    loads = sorted((int(case["load"]), name) for name, case
                   in samples.cases[key].items()
                   if case.get("interactive", True)
                   and case.get("load") is not None)
    for figure, title, label, log, high in (
            ("met_percent", "deadlines met", "% of the deadlines", False,
             100),
            ("relative", "digits of pi per second, against one task alone",
             "%", False, 100),
            ("p99", "latency, p99", "ms", True, None)):
        # Without a load there are no digits.
        shown = [(load, name) for load, name in loads
                 if load or figure != "relative"]
        drawn = lines(samples, key, family(samples, key, which),
                      [name for _, name in shown], figure,
                      1e6 if figure == "p99" else 1)
        if not any(value is not None for line in drawn for value in line[2]):
            continue
        page.picture(
            picture_name(f"pi-ping-{part or 'all'}-{figure}", which),
            svgplot.line_chart(
                f"pi_ping, {part}{FAMILIES[which][0]}: {title}",
                "load processes", label, [str(load) for load, _ in shown],
                drawn, logarithmic=log, high=high, height=210),
            f"lines: {title} against the number of load processes")


def interactive_section(page, samples):
    """interactive_latency: Table 1 of 2009 beside today's."""
    data = read_json(DATA / "2009-interbench.json")
    page.head("Interactive tasks under load")
    page.text(f"2009: {data['measures']}. " + source(data) + " **"
              + data["missing"] + "**")
    parts = samples.parts("interactive_latency")
    if not parts:
        no_result(page, "interactive_latency")
        return []
    layouts_table(page, samples, parts)
    rows = []
    for part in parts:
        key = "interactive_latency", part
        columns = family(samples, key, "")
        page.head(f"{part or 'interactive_latency'}", 3)
        draw_interactive(page, samples, part, "")
        page.table(
            ["case"] + [f"{COLUMNS[column]}: {text}"
                        for column in columns
                        for text in ("mean ± deviation, ms", "max, ms",
                                     "% met")],
            [[f"`{case}`"] + [cell for column in columns for cell in (
                f"{plain(samples.median(key, column, case, 'mean'), 1e6)} ± "
                f"{plain(samples.median(key, column, case, 'sd'), 1e6)}",
                plain(samples.median(key, column, case, "max"), 1e6),
                plain(samples.median(key, column, case, "deadlines_met")))]
             for case in samples.cases[key]],
            folded=f"all figures, {part}")
        rows += comparison(page, samples, key,
                           f"`interactive_latency`, {part}")
    return rows


def draw_interactive(page, samples, part, which):
    """Draw the latency of each task of a family beside four that compute."""
    key = "interactive_latency", part
    beside = [(case["task"], name) for name, case
              in samples.cases[key].items()
              if case.get("load") == "burn" and case.get("task")]
    if beside:
        page.picture(
            picture_name(f"interactive-{part or 'all'}", which),
            svgplot.bar_chart(
                f"Beside four tasks that compute, as {part}"
                f"{FAMILIES[which][0]}: latency, p99", "measured task", "ms",
                [task for task, _ in beside],
                lines(samples, key, family(samples, key, which),
                      [name for _, name in beside], "p99", 1e6),
                height=190, form=plain),
            "bars: p99 of the latency of each task beside burn")


def layouts_table(page, samples, parts):
    """Add what Table 1 of 2009 was about: who is grouped with whom."""
    tasks = {}
    for part in parts:
        for name, case in samples.cases["interactive_latency", part].items():
            tasks.setdefault((case.get("task"), case.get("load")),
                             {})[part] = name
    if len(parts) < 2:
        return

    def met(column, part, names):
        return plain(samples.median(("interactive_latency", part), column,
                                    names.get(part), "deadlines_met"))

    page.text("Deadlines met in %, base / series. Task and load are threads "
              "of one process (in 2009: in one shell), processes of two "
              "sessions (two shells), or in one or two cgroups (group "
              "scheduling):")
    page.table(["task", "beside"] + parts,
               [[str(task), str(load)]
                + [f"{met('base', part, names)} / "
                   f"{met('series', part, names)}" for part in parts]
                for (task, load), names in tasks.items()])


def draw_all(page, samples, which):
    """Draw each benchmark's pictures of a family that has figures."""
    def there(*key):
        return set(family(samples, key, which)) - set(SIDES)

    if there("yield_latency", ""):
        draw_queues(page, samples, which)
        draw_polite(page, samples, which)
    for benchmark, draw in (("pi_ping", draw_ping),
                            ("interactive_latency", draw_interactive),
                            ("hackbench", draw_hackbench)):
        for part in samples.parts(benchmark):
            if there(benchmark, part):
                draw(page, samples, part, which)


def with_columns(samples, *columns):
    """Return the benchmarks and parts (list) that have all these columns."""
    return [key for key in samples.values
            if set(columns) <= set(samples.columns(key))]


def configurations_section(page, samples):
    """Server against soft real-time configuration."""
    page.head("Server against soft real-time configuration")
    page.text("`configs/study-server.config` (HZ=100, PREEMPT_LAZY) and "
              "`configs/study-softrt.config` (HZ=1000, PREEMPT) say what the "
              "options of 2009 are called today.")
    draw_all(page, samples, "configured")
    there = with_columns(samples, "base_server", "base_softrt")
    rows = []
    if not there:
        page.text("**Today: no result.** `make study` measures it.")
    for key in there:
        title = f"`{key[0]}`" + (f", {key[1]}" if key[1] else "")
        for side in SIDES:
            comparison(page, samples, key, title, f"{side}_server",
                       f"{side}_softrt")
        for kind in ("server", "softrt"):
            rows += comparison(page, samples, key, title, f"base_{kind}",
                               f"series_{kind}")
    return rows


def schedulers_section(page, samples):
    """EEVDF against schedulers that are loaded through sched_ext."""
    page.head("EEVDF against schedulers of tools/sched_ext")
    page.text("The base without and with a scheduler of the tree's own, "
              "which it calls examples: `scx_simple`, a global queue in the "
              "order of virtual time, and `scx_qmap`, five queues by weight. "
              "Neither is meant to be a good one for this work.")
    there = with_columns(samples, "base", "ext_simple") or \
        with_columns(samples, "base", "ext_qmap")
    if not there:
        page.text("**Today: no result.** `make study` measures it.")
    draw_all(page, samples, "schedulers")
    for key in there:
        title = f"`{key[0]}`" + (f", {key[1]}" if key[1] else "")
        for column in FAMILIES["schedulers"][1][1:]:
            comparison(page, samples, key, title, "base", column)
    return []


def hackbench_section(page, samples):
    """hackbench: throughput of many tasks that send messages."""
    page.head("Hackbench")
    page.text("Groups of 20 senders and 20 receivers, all on one CPU; the "
              "guest time of a loop, in which each sender sends a message to "
              "each receiver of its group.")
    parts = samples.parts("hackbench")
    if not parts:
        no_result(page, "hackbench")
        return []
    rows = []
    for part in parts:
        draw_hackbench(page, samples, part, "")
        rows += comparison(page, samples, ("hackbench", part), "`hackbench`")
    return rows


def draw_hackbench(page, samples, part, which):
    """Draw the time of a loop of a family against the groups."""
    key = "hackbench", part
    kinds = {}
    for name, case in samples.cases[key].items():
        kind = f"{case.get('tasks', '')}, {case.get('via', '')}"
        kinds.setdefault(kind, []).append((case.get("groups", 0), name))
    for kind, found in kinds.items():
        found.sort()
        words = re.sub(r"\W+", "-", f"{part} {kind}").strip("-")
        page.picture(
            picture_name(f"hackbench-{words}", which),
            svgplot.line_chart(
                f"hackbench{FAMILIES[which][0]}: {kind}", "groups",
                "ms per loop", [str(groups) for groups, _ in found],
                lines(samples, key, family(samples, key, which),
                      [name for _, name in found], "ms_per_loop"),
                height=190),
            f"lines: time of hackbench, {kind}")


def kernel_text(samples):
    """Say (list of str) what was measured, and where."""
    out = []
    report = samples.report
    if report:
        machine = report.get("machine", {})
        out.append(f"`make bench` of {report['date'][:10]}: "
                   f"{report.get('unit', '')}; {machine.get('qemu', '')} on "
                   f"{machine.get('cpu', '')}.")
    for column, about in samples.about.items():
        if about.get("release"):
            out.append(f"`{column}`: {about['release']}, "
                       f"{about.get('compiler', '')}, "
                       f"`{about.get('config', '')}`.")
    for benchmark, part in sorted(samples.skips):
        for column, cases in samples.skips[benchmark, part].items():
            if cases:
                reasons = sorted(set(cases.values()))
                out.append(f"`{benchmark}` {part} on `{column}`: "
                           f"{len(cases)} cases have no figure: "
                           + "; ".join(reasons[:3]) + ".")
    return out


def build(samples):
    """Return the Page of Samples."""
    page = Page("The measurements of the literature on today's kernel")
    page.text("What made switches with I/O ports, sched_yield() and "
              "interactive tasks slow in 1998, 2004 and 2009, beside what "
              "the same experiments say about Linux 7.3 (`base`) and about "
              "this series on it (`series`).")
    place = len(page.blocks)
    rows = []
    for section in (ports_section, yield_section, ping_section,
                    interactive_section, hackbench_section,
                    configurations_section, schedulers_section):
        rows += section(page, samples)
    page.head("What was measured")
    page.points(kernel_text(samples) or ["Nothing yet."])
    later, page.blocks = page.blocks[place:], page.blocks[:place]
    summary(page, samples, rows)
    page.blocks += later
    return page


def numbers(values):
    """Return the ends of a range of int (list) as text: '6' or '2 to 6'."""
    low, high = min(values), max(values)
    return str(low) if low == high else f"{low} to {high}"


def by_chance(rows):
    """Return how many of rows (compare()) noise alone would call worse."""
    most = max(CHANCE)
    return sum(CHANCE[min(row["runs"], most)] for row in rows)


def where(row):
    """Say (str) of which case a row of compare() is."""
    more = [row["part"]] if row["part"] else []
    if row["columns"] != SIDES:
        more.append(COLUMNS[row["columns"][1]])
    return f"`{row['benchmark']}`: `{row['case']}`" \
        + (f" ({', '.join(more)})" if more else "")


def summary(page, samples, rows):
    """Add the summary: what is better, worse, and not there."""
    page.head("In short")
    missing = [name for name in BENCHMARKS if not samples.parts(name)]
    worse = [row for row in rows if row["verdict"] == WORSE]
    better = [row for row in rows if row["verdict"] == BETTER]
    points = []
    if rows:
        points.append(f"{len(rows)} figures of base and series compared: "
                      f"{len(better)} better, **{len(worse)} worse** beyond "
                      "the noise, "
                      f"{sum(row['verdict'] == SAME for row in rows)} within "
                      "it.")
        tiny = [row for row in rows if row["tiny"]]
        if tiny:
            longer = [f"{where(row)} {row['figure']} {row['base']:.0f} and "
                      f"{row['series']:.0f} ns" for row in tiny
                      if row["series"] > row["base"]]
            points.append(
                f"{len(tiny)} of those within it are waits further apart than "
                "the runs of a side, but by less than a reading of the clock "
                f"takes ({READING} ns). On the series "
                f"{len(tiny) - len(longer)} of them are shorter and "
                f"{len(longer)} longer"
                + (": " + ", ".join(longer) if longer else "") + ".")
        few = [row for row in rows if row["verdict"] == FEW]
        if few:
            points.append(f"{len(few)} of them cannot be judged, as there "
                          f"are fewer than {ENOUGH} runs of each side: "
                          + ", ".join(sorted({f"`{row['benchmark']}`"
                                              for row in few})) + ".")
        assumed = sorted({(row["benchmark"], row["figure"]) for row in rows
                          if row["runs"] < ENOUGH
                          and (row["benchmark"], row["figure"]) in ASSUMED})
        if assumed:
            points.append(
                f"Fewer than {ENOUGH} runs, so that the noise is assumed: "
                + ", ".join(f"`{name}` ({percent(ASSUMED[name, figure])})"
                            for name, figure in assumed) + ".")
        several = [row for row in rows if row["runs"] >= ENOUGH]
        if several:
            points.append(
                f"{len(several)} were measured "
                + numbers([row["runs"] for row in several])
                + " times a side. Were all of them nothing but normal noise, "
                f"at most {by_chance(several):.1f} would be called worse by "
                "chance and as many better; figures that jump, such as a "
                "maximum, are called so more often.")
    if missing:
        points.append("No result of " + ", ".join(f"`{name}`"
                                                  for name in missing)
                      + ": not measured yet.")
    history = [name for name in ("history_8k", "history_prefix")
               if name not in samples.columns(("ioperm_latency", ""))]
    if history:
        points.append("Not measured yet: the kernels of `history/` ("
                      + ", ".join(f"`{name}`" for name in history) + ").")
    page.points(points)
    listed(page, WORSE, worse)
    listed(page, BETTER, better)


def listed(page, verdict, rows):
    """Add a table of rows (compare()) of one verdict, what moved most first."""
    if not rows:
        return
    page.head(f"{verdict.capitalize()} beyond the noise", 3)
    rows = sorted(rows, key=moved, reverse=True)
    page.table(
        ["case", "figure", "base", "series", "series / base", "noise"],
        [[where(row), row["unit"],
          plain(row["base"], row["scale"]),
          plain(row["series"], row["scale"]),
          "-" if row["ratio"] is None else f"{row['ratio']:.3f}",
          percent(row["noise"])] for row in rows[:LISTED]])
    if len(rows) > LISTED:
        page.text(f"and {len(rows) - LISTED} more, see below.")


def moved(row):
    """Return how far (float) a row's ratio is from 1, the same both ways.

    What was or became nothing moved most.
    """
    return abs(math.log(row["ratio"])) if row["ratio"] else math.inf


def publish(place):
    """Copy the finished cells into results/study, to be committed."""
    cells = sorted(STUDY.glob("*.json"))
    if not cells:
        raise Fail(f"there is no result in {shown_path(STUDY)} to publish: "
                   "run 'make study' first")
    place.mkdir(parents=True, exist_ok=True)
    for path in cells:
        shutil.copyfile(path, place / path.name)
    say(f"{len(cells)} cells are in {shown_path(place)}")


def write(page, place):
    """Write the page and its pictures into a folder (Path)."""
    place.mkdir(parents=True, exist_ok=True)
    for old in place.glob("report-*.svg"):
        if old.stem not in page.pictures:
            old.unlink()
    for name, svg in page.pictures.items():
        write_atomically(place / f"{name}.svg", svg)
    write_atomically(place / "report.md", page.markdown())
    write_atomically(place / "report.html", page.html())


def main():
    parser = argparse.ArgumentParser(description=__doc__.split("\n\n")[0])
    parser.add_argument("--bench", type=Path, metavar="JSON",
                        help="result of 'make bench' (default: "
                             "results/bench.json)")
    parser.add_argument("--study", type=Path, metavar="DIR",
                        help="results of 'make study' (default: "
                             "results/study and build/results/study)")
    parser.add_argument("--publish", action="store_true",
                        help="first copy build/results/study to "
                             "results/study, to be committed")
    parser.add_argument("--output", type=Path, default=PUBLISHED,
                        metavar="DIR", help="where the page goes (default: "
                        "results)")
    options = parser.parse_args()
    if options.bench and not options.bench.exists():
        raise Fail(f"there is no {options.bench}")
    if options.publish:
        publish(PUBLISHED / "study")
    samples = collect(options.bench or PUBLISHED / "bench.json",
                      [options.study] if options.study else
                      [PUBLISHED / "study", STUDY])
    page = build(samples)
    write(page, options.output)
    say(f"written: {shown_path(options.output / 'report.md')} and "
        f"report.html, {len(page.pictures)} pictures")


if __name__ == "__main__":
    run_main(main)
