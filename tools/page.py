# SPDX-License-Identifier: GPL-2.0-only
"""The page of the study: a table and a picture for each experiment, with the
figures of the literature beside today's.  What was not measured is shown as
not run."""

import statistics
from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from tools import plots
from tools.core import say, shown_path, write_atomically
from tools.figures import RUNS, STUDY, Samples, figure_of
from tools.tables import ratio, table, wrapped

PAIRS = (("base", "series"), ("base_server", "series_server"),
         ("base_softrt", "series_softrt"))
# Of three runs of normal noise on each side, in 0.6 % of the cases the
# medians are further apart than this many times the larger range.
NOISE = 2
# Less than this share of a figure is not called a difference; more than that
# one is worth a word.
LEAST, MUCH = 0.005, 0.1
UNSURE = "not told apart"
RULE = (f"Medians of {RUNS} runs. A difference is called better or worse when "
        f"it is larger than {NOISE} times the range of the runs of either "
        f"side, and than {100 * LEAST:g} %. One of more than {100 * MUCH:g} % "
        f"that is not is called {UNSURE}: so few runs cannot tell.")


def judge(base: list[float], series: list[float], better: str) -> str:
    """Say whether a side is better or worse than the other, beyond noise."""
    if not base or not series:
        return ""
    a, b = statistics.median(base), statistics.median(series)
    noise = max(max(runs) - min(runs) for runs in (base, series))
    if min(len(base), len(series)) < RUNS or abs(a - b) <= max(
            NOISE * noise, LEAST * max(abs(a), abs(b))):
        return UNSURE if abs(a - b) > MUCH * abs(a) else ""
    return "better" if (b > a) == (better == "more") else "worse"


def plain(value: float | None, none: str = "not run") -> str:
    """Format a figure with three or more digits."""
    return none if value is None else \
        f"{value:.0f}" if abs(value) >= 1000 else f"{value:.3g}"


def section(experiment: dict[str, Any], samples: Samples,
            names: dict[str, str], place: Path) -> Iterator[str]:
    """Yield an experiment and write its picture; names: {column: title}."""
    usual = experiment["figure"], experiment["program"]
    old = {column: column for column in experiment.get("old", ())}
    for column in old:
        for case, value in experiment["old"][column].items():
            samples.values[usual[1], column, case, usual[0]] = [value]
    today = {column: names[column] for column in
             STUDY["lists"][experiment["columns"]] if column in names}
    pairs = [pair for pair in PAIRS if set(pair) <= set(today)]
    rows, said = [], Counter()
    for what, case, *more in experiment["rows"]:
        figure, key = *more, *usual[len(more):]
        ends = []
        for pair in pairs:
            base, series = samples.medians(key, pair, case, figure)
            runs = [samples.values.get((key, column, case, figure), [])
                    for column in pair]
            verdict = judge(*runs, figure_of(key, figure).better)
            ends.append(ratio(series, base) + (verdict and f" ({verdict})"))
            said.update([verdict] * (None not in (base, series)))
        rows.append([what, *(plain(value, "-") for value in samples.medians(
            key, old, case, figure)), *map(plain, samples.medians(
                key, today, case, figure)), "; ".join(ends)])
    yield from (f"## {experiment['title']}", "")
    if said:
        name = f"study/{experiment['name']}.svg"
        charts = [{"figure": usual[0], "program": usual[1]} | chart
                  for chart in experiment["charts"]]
        # First base and series, which look the same in all pictures.
        columns = {column: names[column] for column in PAIRS[0]} | today | old
        write_atomically(place / name, plots.draw(samples, columns, charts))
        yield f"![{experiment['title']}]({name})\\"
    yield from (experiment["said"] + (
        f" **Today:** of {said.total()} figures {said['worse']} are worse, "
        f"{said['better']} better and {said[UNSURE]} {UNSURE}." if said else
        " **Today: not run.** `make study` measures it."), "")
    yield from (*table(["what", *old, *today.values(), "; ".join(
        f"{today[b]} / {today[a]}" for a, b in pairs)], rows), "")


def write(samples: Samples, names: dict[str, str], head: list[str],
          place: Path) -> None:
    """Write study.md and its pictures into a folder."""
    lines = [*head, "", *(line for experiment in STUDY["experiments"]
                          for line in section(experiment, samples, names,
                                              place))]
    write_atomically(place / "study.md", "\n".join(wrapped(lines)))
    say(f"written: {shown_path(place / 'study.md')} and its pictures")


def study_page(cells: dict[str, Any], number: int, place: Path) -> None:
    """Write the page of cells of 'make study', {name: cell}, of a number."""
    samples = Samples()
    for name, cell in cells.items():
        samples.add(*name.rsplit(".", 2)[:2], cell["result"])
    about = "; ".join(sorted({
        f"{cell['kernel']['release']}, {cell['kernel']['compiler']}"
        for cell in cells.values()}))
    there = {column for _, column, *_ in samples.values}
    names = {column: title for column, title in STUDY["columns"].items()
             if column in there or column in PAIRS[0]}
    missing = [title for column, title in STUDY["columns"].items()
               if column not in names]
    write(samples, names, [
        "<!-- written by 'make study' -->", "",
        "# The measurements of the literature, on today's kernels", "",
        f"{STUDY['said']} {RULE} [How it is measured](measurement.md). "
        f"{len(cells)} of {number} runs are there: {about}."
        + f" Not run: {', '.join(missing)}." * bool(missing)], place)
