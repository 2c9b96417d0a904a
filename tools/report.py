# SPDX-License-Identifier: GPL-2.0-only
"""Turn the results of 'make study' into results/report.md.

Reads results/study, build/results/study and what boards of a lab brought
back (build/results/lab.json), and puts the figures of the literature
(tools/study-data) beside today's.  What is not there is said, not guessed.
"""

import argparse
import itertools
import math
from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from pathlib import Path
from typing import Any

from tools import plots
from tools.core import (PUBLISHED, RESULTS, ROOT, Fail, read_json, run_main,
                        say, shown_path, write_atomically)
from tools.figures import (BETTER, CHANCE, COLUMNS, ENOUGH, FIGURES, READING,
                           SIDES, WORSE, Row, Samples, add_cells,
                           collect, compare, plain, read_cells)
from tools.tables import table

DATA = ROOT / "tools/study-data"
STUDY = RESULTS / "study"
PAIRS = (SIDES, ("base_server", "series_server"),
         ("base_softrt", "series_softrt"))
LISTED = 40  # rows of the lists of what is worse and better, at most
# Of each program: a heading, files of DATA, what is said of today's figures.
SECTIONS = {
    "ioperm_latency": (
        "Switches between tasks with I/O ports", ("2004-ioperm",),
        "the same call in instructions of the guest. They repeat to the "
        "digit, but are not cycles: compare what is relative to no ports. "
        "`history_*` puts the behaviour of 2004 back on the base."),
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


def text_of(head: Sequence[str], rows: Iterable[Sequence[str]],
            folded: str = "") -> str:
    """Return a table; folded: a title to be clicked on."""
    text = "\n".join(table(head, rows))
    return (f"<details><summary>{folded}</summary>\n\n{text}\n\n</details>"
            if folded else text)


def literature(name: str) -> Iterator[str]:
    """Yield the figures of a file of DATA, with their source."""
    data = read_json(DATA / f"{name}.json")
    found = data["source"]
    links = ", ".join(f"[{url.split('/')[2]}]({url})"
                      for url in (found["url"], *found.get("more", ())))
    yield " ".join(filter(None, (
        f"**{data['title']}:** {data['measures']}; {data['unit']}.",
        data.get("note"), data["missing"],
        f"Source: {found['author']}, \"{found['title']}\", {found['in']} "
        f"({links}).")))
    if data["rows"]:
        about = [word for word in data["rows"][0] if word != "values"]
        columns = [": ".join(filter(None, (column["name"],
                                           column.get("what"))))
                   for column in data["columns"]]
        yield text_of([*about, *columns], [
            [str(value) for value in (*map(row.get, about), *row["values"])]
            for row in data["rows"]])


def all_figures(samples: Samples, key: str) -> str:
    """Return all figures of a program, what is worse on the series first."""
    columns = samples.columns(key)
    compared = {(row.case, row.figure): row for row in compare(samples, key)}
    rows = []
    # Some have figures only of other columns.
    for case, figure in dict.fromkeys([*compared, *itertools.product(
            samples.cases[key], FIGURES[key.split(".")[0]])]):
        values = samples.medians(key, columns, case, figure.name,
                                 figure.scale)
        row = compared.get((case, figure))
        said = [*row.texts()[3:],
                row.verdict.replace(WORSE, f"**{WORSE}**")] \
            if row else ["", "", ""]
        if any(value is not None for value in values):
            rows.append([f"`{case}`", figure.unit, *map(plain, values),
                         *said])
    return text_of(["case", "figure", *map(COLUMNS.get, columns),
                    "series / base", "noise", "verdict"], rows,
                   f"All figures of {key.replace('.', ' ')}: "
                   + counted(compared.values()))


def counted(rows: Iterable[Row]) -> str:
    """Say how many figures have which verdict."""
    count = Counter({WORSE: 0, BETTER: 0})
    count.update(row.verdict for row in rows)
    return ", ".join(f"{number} {word}" for word, number in count.items())


def section(samples: Samples, program: str) -> Iterator[str]:
    """Yield a program: the literature's figures, then today's."""
    title, sources, said = SECTIONS[program]
    yield f"## {title}"
    for name in sources:
        yield from literature(name)
    keys = samples.keys(program)
    if not keys or not all(set(SIDES) <= set(samples.columns(key))
                           for key in keys):
        yield (f"**Today: no result of `{program}`.** `make study` measures "
               "it.")
        return
    yield f"**Today:** {said}"
    if program in BESIDE:
        figure, cases = BESIDE[program]
        columns = samples.columns(keys[0])
        yield text_of(["", *map(COLUMNS.get, columns)], [
            [text.replace("\n", " "),
             *map(plain, samples.medians(keys[0], columns, case, figure))]
            for case, text in cases.items()])
    for name, _, alt in plots.PICTURES[program]:
        yield f"![{alt}](report-{name}.svg)"
    for key in keys:
        yield all_figures(samples, key)


def kernels(samples: Samples) -> Iterator[str]:
    """Say what was measured, and what was left out."""
    rows = [f"- `{column}`: {about['release']}, {about['compiler']}, "
            f"`{about['config']}`."
            for column, about in samples.kernels.items()]
    rows += [f"- `{key.replace('.', ' ')}` on `{column}`: {len(cases)} cases "
             f"have no figure: {'; '.join(sorted(set(cases.values()))[:3])}."
             for (key, column), cases in samples.skipped.items()]
    rows += [f"- `{column}`: not measured." for column in COLUMNS
             if column not in samples.kernels and column != "off"]
    yield from (
        "## What was measured",
        "`server` is `tools/configs/study-server.config` (HZ=100, "
        "PREEMPT_LAZY), `soft real-time` is "
        "`tools/configs/study-softrt.config` (HZ=1000, "
        "PREEMPT): what the options of 2009 are called today. `scx_simple` "
        "and `scx_qmap` are examples of the tree's `tools/sched_ext`, loaded "
        "on the base; neither is meant for this work.", "\n".join(rows))


def summary(rows: list[Row]) -> Iterator[str]:
    """Say what is worse and better, and how that is judged."""
    several = [row.runs for row in rows if row.runs >= ENOUGH]
    chance = sum(CHANCE[min(runs, max(CHANCE))] for runs in several)
    yield from (
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
        those = sorted((row for row in rows if row.verdict == verdict),
                       key=moved, reverse=True)
        yield f"### {verdict.capitalize()}"
        yield text_of(["case", "figure", "base", "series", "series / base",
                       "noise"], map(listed, those[:LISTED])) \
            if those else "None."
        if len(those) > LISTED:
            yield f"and {len(those) - LISTED} more, see below."


def listed(row: Row) -> list[str]:
    """Return a row of the lists of what is worse and better."""
    program, _, part = row.key.partition(".")
    kernel = "" if row.columns == SIDES else COLUMNS[row.columns[1]]
    more = ", ".join(filter(None, (part, kernel)))
    return [f"`{program}`: `{row.case}`{more and f' ({more})'}", *row.texts()]


def moved(row: Row) -> float:
    """Return how far the sides are apart; what was or became 0 is most."""
    return abs(math.log(row.series / row.base)) if row.series * row.base \
        else math.inf


def board(name: str, found: dict[str, Any]) -> Iterator[str]:
    """Yield what a board of a lab brought back, as tools/lab.py keeps it."""
    yield f"## The board {name}"
    sides = [found.get(side, {"cases": {}, "figures": {}}) for side in SIDES]
    yield text_of(["tests", *SIDES], [
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
            yield text_of(
                [f"{program}: {figure}, {reports[1].get('unit', '?')}",
                 *SIDES], rows, f"{program} on {name}")


def page(samples: Samples, boards: dict[str, Any]) -> Iterator[str]:
    """Yield the page, in blocks; boards: {name: what it brought back}."""
    yield from (
        "<!-- written by 'make report' -->",
        "# The measurements of the literature on today's kernel",
        "In 1998, 2004 and 2009 switches with I/O ports, sched_yield() and "
        "interactive tasks were found to be slow. Here are the same "
        "experiments on Linux 7.3 (`base`) and with this series (`series`). "
        "[How it is measured](measurement.md).")
    yield from summary([row for key in samples.cases for pair in PAIRS
                        for row in compare(samples, key, pair)])
    for program in SECTIONS:
        yield from section(samples, program)
    for name, found in boards.items():
        yield from board(name, found)
    yield from kernels(samples)


def write(samples: Samples, boards: dict[str, Any], place: Path) -> None:
    """Write the page and its pictures into a folder."""
    files = {"report.md": "\n\n".join(page(samples, boards)) + "\n"}
    for name, draw, _ in sum(plots.PICTURES.values(), ()):
        if f"(report-{name}.svg)" in files["report.md"]:
            files[f"report-{name}.svg"] = draw(samples)
    for old in place.glob("report-*.svg"):
        if old.name not in files:
            old.unlink()
    for name, text in files.items():
        write_atomically(place / name, text)
    say(f"written: {shown_path(place / 'report.md')} and {len(files) - 1} "
        "pictures")


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
    write(collect(PUBLISHED / "study", STUDY),
          read_json(RESULTS / "lab.json", {}), PUBLISHED)


if __name__ == "__main__":
    run_main(main)
