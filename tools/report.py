# SPDX-License-Identifier: GPL-2.0-only
"""Turn what 'make study' left into one page with pictures.

The figures of the literature stand beside today's.  What was not measured is
shown as not run.
"""

import argparse
import json
import statistics
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from tools.core import (RESULTS, Fail, build_lock, read_json, run_main, say,
                        shown_path, write_atomically)
from tools.figures import STUDY, Samples
from tools.records import record
from tools.series.apply import begin
from tools.study import PLACE, RUNS, cell_key, plan
from tools.tables import ratio, table, wrapped

PAIRS = (("base", "series"), ("base_server", "series_server"),
         ("base_softrt", "series_softrt"))
# Of three runs of normal noise on each side, in 0.6 % of the cases the
# medians are further apart than this many times the larger range.
NOISE = 2
# Less than this share of a figure is not called a difference.
LEAST = 0.005
# Figures that a sentence names, of each kind.
LISTED = 2
RULE = (f"Medians of {RUNS} runs. A difference is called better or worse when "
        f"it is larger than {NOISE} times the range of the runs of either "
        f"side, and than {100 * LEAST:g} %.")


def judge(base: list[float], series: list[float], better: str) -> str:
    """Say whether a side is better or worse than the other, beyond noise."""
    a, b = statistics.median(base), statistics.median(series)
    noise = max(max(runs) - min(runs) for runs in (base, series))
    if min(len(base), len(series)) < RUNS or abs(a - b) <= max(
            NOISE * noise, LEAST * max(abs(a), abs(b))):
        return ""
    return "better" if (b > a) == (better == "more") else "worse"


def plain(value: float | None, none: str = "not run") -> str:
    """Format a figure with three or more digits."""
    return none if value is None else \
        f"{value:.0f}" if abs(value) >= 1000 else f"{value:.3g}"


def section(experiment: dict[str, Any], samples: Samples,
            names: dict[str, str], place: Path) -> Iterator[str]:
    """Yield an experiment and write its picture; names: {column: title}."""
    from tools import plots  # here, because it needs matplotlib

    usual = experiment["figure"], experiment["program"]
    old = {column: column for column in experiment.get("old", ())}
    for column in old:
        for case, value in experiment["old"][column].items():
            samples.values[usual[1], column, case, usual[0]] = [value]
    today = {column: names[column] for column in
             STUDY["lists"][experiment["columns"]] if column in names}
    pairs = [pair for pair in PAIRS if set(pair) <= set(today)]
    rows: list[list[str]] = []
    # What moved most comes first.
    said: dict[str, list[tuple[float, str]]] = {
        "": [], "worse": [], "better": []}
    for what, case, *more in experiment["rows"]:
        figure, key = *more, *usual[len(more):]
        scale, better = STUDY["figures"][figure]
        ends = []
        for pair in pairs:
            a, b = samples.medians(key, pair, case, figure, scale)
            verdict = "" if None in (a, b) else judge(*(
                samples.values[key, column, case, figure]
                for column in pair), better)
            ends.append(ratio(b, a) + (verdict and f" ({verdict})"))
            if None not in (a, b):
                said[verdict].append((
                    -max(a, b) / (min(a, b) or 1e-9),
                    f"{what}: {plain(b)} instead of {plain(a)}"
                    f"{f' ({today[pair[1]]})' * (len(pairs) > 1)}"))
        rows.append([what, *(plain(value, "-") for value in samples.medians(
            key, old, case, figure, scale)), *map(plain, samples.medians(
                key, today, case, figure, scale)), "; ".join(ends)])
    yield from (f"## {experiment['title']}", "")
    if any(said.values()):
        name = f"study/{experiment['name']}.svg"
        charts = [{"figure": usual[0], "program": usual[1]} | chart
                  for chart in experiment["charts"]]
        # First base and series, which look the same in all pictures.
        columns = {column: names[column] for column in PAIRS[0]} | today | old
        write_atomically(place / name, plots.draw(samples, columns, [
            chart | {"scale": STUDY["figures"][chart["figure"]][0]}
            for chart in charts], wide=len(charts)))
        yield f"![{experiment['title']}]({name})\\"
    yield from (" ".join([
        experiment["said"], *([
            f"**Today:** of {sum(map(len, said.values()))} figures "
            f"{len(said['worse'])} are worse and {len(said['better'])} "
            "better."] if any(said.values()) else [
            "**Today: not run.** `make study` measures it."]), *(
            f"{word.capitalize()}: "
            f"{'; '.join(text for _, text in sorted(said[word])[:LISTED])}"
            f"{f'; {more} more' * (more > 0)}."
            for word in ("worse", "better") if said[word]
            for more in [len(said[word]) - LISTED])]), "",
        *table(["what", *old, *today.values(), "; ".join(
            f"{today[b]} / {today[a]}" for a, b in pairs)], rows), "")


def write(samples: Samples, names: dict[str, str], head: list[str],
          place: Path) -> None:
    """Write study.md and its pictures into a folder."""
    lines = [*head, "", *(line for experiment in STUDY["experiments"]
                          for line in section(experiment, samples, names,
                                              place))]
    write_atomically(place / "study.md", "\n".join(wrapped(lines)))
    say(f"written: {shown_path(place / 'study.md')} and its pictures")


def study_page(cells: dict[str, Any], place: Path) -> None:
    """Write the page of cells of 'make study', {name: cell}."""
    samples = Samples()
    for name, cell in cells.items():
        samples.add(*name.rsplit(".", 2)[:2], cell["result"])
    about = "; ".join(sorted({
        f"{cell['kernel']['release']}, {cell['kernel']['compiler']}"
        for cell in cells.values()})) or "nothing has been run yet"
    write(samples, STUDY["columns"], [
        "<!-- written by 'make report' -->", "",
        "# The measurements of the literature, on today's kernels", "",
        f"{STUDY['said']} {RULE} [How it is measured](measurement.md). "
        f"{len(cells)} of {len(plan())} runs are there: {about}."], place)


def write_pages(cells: dict[str, Any]) -> None:
    """Write the page, and with all runs note it for 'make publish'."""
    study_page(cells, RESULTS)
    begin()
    missing = [cell.name for cell in plan() if cell.column in PAIRS[0]
               and cells.get(cell.name, {}).get("key") != cell_key(cell)]
    if missing:
        say(f"{len(missing)} runs of base and series are missing or of other "
            f"patches, such as {missing[0]}: 'make study' makes them, then "
            "the page can be published")
        return
    write_atomically(PLACE / "study.json", "{\n" + ",\n".join(
        f'"{name}": {json.dumps(cell)}' for name, cell in cells.items())
        + "\n}\n")
    record("study", len(cells), 0, len(plan()) - len(cells), [
        "study.md", "study/study.json", *(
            f"study/{path.name}" for path in sorted(PLACE.glob("*.svg")))])


def main() -> None:
    """Write the page."""
    argparse.ArgumentParser(
        description=__doc__.split("\n\n", maxsplit=1)[0]).parse_args()
    cells = {path.stem: read_json(path)
             for path in sorted(PLACE.glob("*.json"))
             if path.name != "study.json"}
    if not cells:
        raise Fail(f"there is nothing in {shown_path(PLACE)}: run 'make "
                   "study', or give A= and B=, two files of 'make measure'")
    with build_lock():
        write_pages(cells)


if __name__ == "__main__":
    run_main(main)
