# SPDX-License-Identifier: GPL-2.0-only
"""Turn the results of 'make study' into results/report.md.

Reads results/study, build/results/study and what boards of a lab brought
back (build/results/lab.json), and puts the figures of the literature (data/)
beside today's.  What is not there is said, not guessed.
"""

import argparse
import math
from collections import Counter
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from tools import plots
from tools.core import (PUBLISHED, RESULTS, ROOT, Fail, read_json, run_main,
                        say, shown_path, write_atomically)
from tools.figures import (BETTER, CHANCE, COLUMNS, ENOUGH, FIGURES, READING,
                           SIDES, WORSE, Key, Row, Samples, add_cells,
                           collect, compare, plain, read_cells)
from tools.tables import table

DATA = ROOT / "data"
STUDY = RESULTS / "study"
PAIRS = (SIDES, ("base_server", "series_server"),
         ("base_softrt", "series_softrt"))
LISTED = 40  # rows of the lists of what is worse and better, at most
# Of each program: a heading, files of data/, what is said of today's figures.
SECTIONS = {
    "ioperm_latency": (
        "Switches between tasks with I/O ports", ("2004-ioperm",),
        "the same call in instructions of the guest. They repeat to the "
        "digit, but are not cycles: compare what is relative to no ports. "
        "`history/` puts the behaviour of 2004 back on the base."),
    "yield_latency": (
        "sched_yield()", ("1998-sched-yield", "1998-scheduler"),
        "the loop over all tasks that the gain of 1998 came from is gone. "
        "What a yielder is charged matters beside tasks that do not yield. A "
        "call that switches nobody takes a microsecond: where there are many, "
        "their number and the task's share are compared, not the percentiles "
        "of the time."),
    "pi_ping": (
        "Deadlines beside processes that compute", ("2009-pi-ping",),
        "as threads of one process, as processes of two sessions, in two "
        "cgroups (group scheduling), and as SCHED_BATCH."),
    "interactive_latency": (
        "Interactive tasks under load", ("2009-interbench",),
        "task and load as threads of one process (in 2009: in one shell), as "
        "processes of two sessions (two shells), and in one or two cgroups "
        "(group scheduling)."),
    "hackbench": (
        "Hackbench", (),
        "groups of 20 senders and 20 receivers on one CPU. In a loop each "
        "sender sends a message to each receiver of its group."),
}
# A figure and cases that stand beside the literature's.
BESIDE = {
    "ioperm_latency": ("p50", {"none": "none", **plots.SAME_AS_2004}),
    "yield_latency": ("ns_per_call", {
        f"switch-proc-{tasks}": f"{tasks} tasks, ns a call"
        for tasks in (2, 4, 8, 10, 20, 40)}),
}


@dataclass
class Page:
    """The page: blocks of Markdown, and pictures by file name."""

    blocks: list[str] = field(default_factory=list)
    pictures: dict[str, str] = field(default_factory=dict)

    def add(self, *blocks: str) -> None:
        """Add headings, paragraphs and lists."""
        self.blocks += blocks

    def table(self, head: list[str], rows: list[list[str]],
              folded: str = "") -> None:
        """Add a table; folded: a title to be clicked on."""
        text = "\n".join(table(head, rows))
        self.add(f"<details><summary>{folded}</summary>\n\n"
                 f"{text}\n\n</details>" if folded else text)

    def write(self, place: Path) -> None:
        """Write the page and its pictures into a folder."""
        for old in place.glob("report-*.svg"):
            if old.name not in self.pictures:
                old.unlink()
        for name, text in {"report.md": "\n\n".join(self.blocks) + "\n",
                           **self.pictures}.items():
            write_atomically(place / name, text)


def literature(page: Page, name: str) -> None:
    """Add the figures of a file of data/, with their source."""
    data = read_json(DATA / f"{name}.json")
    found = data["source"]
    links = ", ".join(f"[{url.split('/')[2]}]({url})"
                      for url in (found["url"], *found.get("more", ())))
    said = [f"**{data['title']}:** {data['measures']}; {data['unit']}.",
            data.get("note"), data["missing"],
            f"Source: {found['author']}, \"{found['title']}\", "
            f"{found['in']} ({links})."]
    page.add(" ".join(filter(None, said)))
    if data["rows"]:
        about = [word for word in data["rows"][0] if word != "values"]
        page.table([*about, *(": ".join(filter(None, (
            column["name"], column.get("what"))))
            for column in data["columns"])],
            [[*(str(row[word]) for word in about), *map(str, row["values"])]
             for row in data["rows"]])


def all_figures(page: Page, samples: Samples, key: Key) -> None:
    """Add all figures of a program, what is worse on the series first."""
    columns = samples.columns(key)
    compared = {(row.case, row.figure): row for row in compare(samples, key)}
    rows = []
    # Some have figures only of other columns.
    for case, figure in dict.fromkeys([*compared, *(
            (case, figure) for case in samples.cases[key]
            for figure in FIGURES[key[0]])]):
        values = samples.medians(key, columns, case, figure.name,
                                 figure.scale)
        if any(value is not None for value in values):
            row = compared.get((case, figure))
            rows.append([f"`{case}`", figure.unit, *map(plain, values), *(
                [*row.texts()[3:],
                 f"**{WORSE}**" if row.verdict == WORSE else row.verdict]
                if row else ["", "", ""])])
    page.table(["case", "figure", *(COLUMNS[name] for name in columns),
                "series / base", "noise", "verdict"], rows,
               f"All figures of {' '.join(filter(None, key))}: "
               + counted(list(compared.values())))


def counted(rows: list[Row]) -> str:
    """Say how many figures have which verdict."""
    count = Counter({WORSE: 0, BETTER: 0})
    count.update(row.verdict for row in rows)
    return ", ".join(f"{number} {word}" for word, number in count.items())


def section(page: Page, samples: Samples, program: str) -> None:
    """Add a program: the literature's figures, then today's."""
    title, sources, said = SECTIONS[program]
    page.add(f"## {title}")
    for name in sources:
        literature(page, name)
    keys = samples.keys(program)
    if not keys or not all(set(SIDES) <= samples.measured[key]
                           for key in keys):
        page.add(f"**Today: no result of `{program}`.** `make study` "
                 "measures it.")
        return
    page.add(f"**Today:** {said}")
    if program in BESIDE:
        figure, cases = BESIDE[program]
        columns = samples.columns(keys[0])
        page.table(["", *(COLUMNS[name] for name in columns)], [
            [text.replace("\n", " "),
             *map(plain, samples.medians(keys[0], columns, case, figure))]
            for case, text in cases.items()])
    for name, draw, alt in plots.PICTURES[program]:
        page.pictures[f"report-{name}.svg"] = draw(samples)
        page.add(f"![{alt}](report-{name}.svg)")
    for key in keys:
        all_figures(page, samples, key)


def kernels(page: Page, samples: Samples) -> None:
    """Say what was measured, and what was left out."""
    page.add("## What was measured",
             "`server` is `configs/study-server.config` (HZ=100, "
             "PREEMPT_LAZY), `soft real-time` is "
             "`configs/study-softrt.config` (HZ=1000, PREEMPT): what the "
             "options of 2009 are called today. `scx_simple` and `scx_qmap` "
             "are examples of the tree's `tools/sched_ext`, loaded on the "
             "base; neither is meant for this work.")
    rows = [f"- `{column}`: {about['release']}, {about['compiler']}, "
            f"`{about['config']}`."
            for column, about in samples.kernels.items()]
    rows += [f"- `{' '.join(filter(None, key))}` on `{column}`: {len(cases)} "
             "cases have no figure: "
             + "; ".join(sorted(set(cases.values()))[:3]) + "."
             for (key, column), cases in samples.skipped.items()]
    rows += [f"- `{column}`: not measured." for column in COLUMNS
             if column not in samples.kernels and column != "off"]
    page.add("\n".join(rows))


def summary(page: Page, rows: list[Row]) -> None:
    """Say what is worse and better, and how that is judged."""
    several = [row.runs for row in rows if row.runs >= ENOUGH]
    chance = sum(CHANCE[min(runs, max(CHANCE))] for runs in several)
    page.add(
        "## In short",
        f"{len(rows)} figures of base and series are compared: "
        f"{counted(rows)}.",
        "A figure is worse or better when the medians are further apart than "
        "the runs of either side (the noise). A wait must also differ by the "
        f"{READING} ns that a reading of the clock takes. With fewer than "
        f"{ENOUGH} runs only figures that do not depend on the tick are "
        f"judged. Of the {len(several)} figures with {ENOUGH} runs or more, "
        f"noise alone would call at most {chance:.1f} worse and as many "
        "better; a figure that jumps, such as a maximum, more often.")
    for verdict in (WORSE, BETTER):
        page.add(f"### {verdict.capitalize()}")
        those = [row for row in rows if row.verdict == verdict]
        if those:
            listed(page, those)
        else:
            page.add("None.")


def listed(page: Page, rows: list[Row]) -> None:
    """List rows of one verdict, what moved most first."""
    found = []
    for row in sorted(rows, key=moved, reverse=True)[:LISTED]:
        kernel = "" if row.columns == SIDES else COLUMNS[row.columns[1]]
        more = ", ".join(filter(None, (row.key[1], kernel)))
        found.append([f"`{row.key[0]}`: `{row.case}`"
                      + (f" ({more})" if more else ""), *row.texts()])
    page.table(["case", "figure", "base", "series", "series / base", "noise"],
               found)
    if len(rows) > LISTED:
        page.add(f"and {len(rows) - LISTED} more, see below.")


def moved(row: Row) -> float:
    """Return how far the sides are apart; what was or became 0 is most."""
    return abs(math.log(row.series / row.base)) if row.series * row.base \
        else math.inf


def board(page: Page, name: str, found: dict[str, Any]) -> None:
    """Add what a board of a lab brought back, as tools/lab.py keeps it."""
    page.add(f"## The board {name}")
    sides = [found.get(side, {"cases": {}, "figures": {}}) for side in SIDES]
    page.table(["tests", *SIDES], [
        [word, *(str(list(side["cases"].values()).count(word))
                 for side in sides)] for word in ("pass", "fail", "skip")])
    for program, figure in (("ioperm_latency", "p50"),
                            ("yield_latency", "ns_per_switch")):
        reports = [side["figures"].get(program, {}) for side in sides]
        before, after = ({case["name"]: case.get(figure)
                          for case in report.get("cases", ())}
                         for report in reports)
        rows = [[f"`{case}`", plain(before.get(case)), plain(value)]
                for case, value in after.items() if value is not None]
        if rows:
            page.table([f"{program}: {figure}, {reports[1].get('unit', '?')}",
                        *SIDES], rows, f"{program} on {name}")


def build(samples: Samples, boards: dict[str, Any]) -> Page:
    """Make the page; boards: {name: what it brought back}."""
    page = Page()
    page.add("<!-- written by 'make report' -->",
             "# The measurements of the literature on today's kernel",
             "In 1998, 2004 and 2009 switches with I/O ports, sched_yield() "
             "and interactive tasks were found to be slow. Here are the same "
             "experiments on Linux 7.3 (`base`) and with this series "
             "(`series`). [How it is measured]"
             "(../Documentation/measurement.md).")
    summary(page, [row for key in samples.cases for pair in PAIRS
                   for row in compare(samples, key, pair)])
    for program in SECTIONS:
        section(page, samples, program)
    for name, found in boards.items():
        board(page, name, found)
    kernels(page, samples)
    return page


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.split("\n\n")[0])
    parser.add_argument("--publish", action="store_true",
                        help="first take build/results/study over into "
                        "results/study, to be committed")
    options = parser.parse_args()
    if options.publish:
        cells = read_cells(STUDY)
        if not cells:
            raise Fail(f"there is no result in {shown_path(STUDY)} to "
                       "publish: run 'make study' first")
        add_cells(PUBLISHED / "study", cells)
    page = build(collect(PUBLISHED / "study", STUDY),
                 read_json(RESULTS / "lab.json", {}))
    page.write(PUBLISHED)
    say(f"written: {shown_path(PUBLISHED / 'report.md')} and "
        f"{len(page.pictures)} pictures")


if __name__ == "__main__":
    run_main(main)
