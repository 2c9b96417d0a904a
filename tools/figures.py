# SPDX-License-Identifier: GPL-2.0-only
"""The one table of figures, and what programs measured, kept by it.

Nothing but the standard library, because measure runs without build/venv.
"""

import contextlib
import json
import re
import statistics
import tomllib
from collections import defaultdict
from collections.abc import Iterable
from pathlib import Path
from typing import Any, NamedTuple

from tools.core import ROOT, SIDES, Fail, shown_path, tail
from tools.tables import number, numbers, ratio, table

DATA = ROOT / "tools/study-data"
# What study, measure and report are about.
STUDY = tomllib.loads((DATA / "experiments.toml").read_text())
RUNS = 3
TABLE = tomllib.loads((ROOT / "tools/figures.toml").read_text())


class Figure(NamedTuple):
    """What a figure of a program is divided by and is called."""

    scale: float
    unit: str
    digits: int
    better: str  # "less" or "more"


def figure_of(key: str, name: str) -> Figure:
    """Return a row of the table; key: a program and its part, such as
    "pi_ping.threads"."""
    return Figure(*TABLE["figures"][key.partition(".")[0]][name])


def words_of(key: str, run: int) -> list[str]:
    """Return a program of the study and its arguments, for one of its RUNS,
    which begin at three points of a tick."""
    return STUDY["programs"][key]["run"].format(
        run=run, phase=(0, 300, 700)[run - 1]).split()


def result_of(name: str, status: int | None, log: Path, report: str,
              good: tuple[int, ...] = (0,)) -> dict[str, Any]:
    """Return what a program's --json wrote; Fail with the end of its log.

    status: how it ended, None if it was stopped.  good: when that is a
    result.
    """
    with contextlib.suppress(ValueError):
        if status in good:
            return json.loads(report)
    raise Fail(f"{name} ended with status {status} and no result; the end of "
               f"its output, {shown_path(log)}:\n{tail(log)}")


def compact(value: Any) -> str:
    """Return a result as JSON with one line for each case."""
    return re.sub(r' ?(\{"name"|"\w+": \{)', r"\n\1",
                  json.dumps(value)) + "\n"


def shown(key: str, result: dict[str, Any]) -> dict[str, Any]:
    """Return what the page of the study shows of a program's result."""
    names = ("name", "status", *TABLE["figures"][key.partition(".")[0]])
    return {"cases": [{name: value for name, value in case.items()
                       if name in names} for case in result["cases"]]}


class Samples:
    """The figures of all columns, one value a run, and what cases there are.

    A key is a program and its part, a column a kernel.  values has the figures
    by key, column, case and name, as the program wrote them; medians are in
    the units of the table.
    """

    def __init__(self, results: dict[str, dict[str, Any]] | None = None
                 ) -> None:
        """results: {key: {column: result}}."""
        self.values: dict[tuple[str, ...], list[float]] = defaultdict(list)
        self.cases: dict[str, dict[str, dict[str, Any]]] = defaultdict(dict)
        for key, columns in (results or {}).items():
            for column, result in columns.items():
                self.add(key, column, result)

    def add(self, key: str, column: str, result: dict[str, Any]) -> None:
        """Add one run's result, as the program's --json writes it.

        yield_latency may run each case of the series twice, with its
        scheduler feature off and on: these are two columns.
        """
        names = TABLE["figures"][key.partition(".")[0]]
        for case in result["cases"]:
            if case.get("status") != "ok":
                continue
            where = "off" if case.get("features") == "old" else column
            more = {}
            if case.get("calls") and "stuck" in case:
                more["stuck_percent"] = 100 * case["stuck"] / case["calls"]
            if "hogs_share" in case:
                more["taken"] = 100 - case["hogs_share"]
            self.cases[key].setdefault(case["name"], case)
            for figure, value in (case | more).items():
                if figure in names and value is not None:
                    self.values[key, where, case["name"], figure].append(value)

    def those(self, key: str, **wanted: Any) -> list[dict[str, Any]]:
        """Return the cases with these values."""
        return [case for case in self.cases[key].values()
                if wanted.items() <= case.items()]

    def medians(self, key: str, columns: Iterable[str], case: str,
                figure: str) -> list[float | None]:
        """Return the median of a figure for each of some columns, None where
        it was not measured."""
        scale = figure_of(key, figure).scale
        runs = [self.values.get((key, column, case, figure))
                for column in columns]
        return [statistics.median(run) / scale if run else None
                for run in runs]

    def ranges(self, key: str, columns: Iterable[str], case: str, figure: str,
               digits: int) -> list[str]:
        """Return a figure as text for each of some columns: the least and the
        most of its runs, one number where these are shown alike."""
        scale = figure_of(key, figure).scale
        runs = [self.values.get((key, column, case, figure))
                for column in columns]
        return [" to ".join(dict.fromkeys(numbers(
            (min(run) / scale, max(run) / scale), digits))) if run
            else number(None) for run in runs]

    def row(self, key: str, columns: Iterable[str], case: str, figure: str,
            what: str) -> list[str]:
        """Return a row of a table: what it is with its unit, the figures, the
        last median in relation to the first, and what is good; none when
        nothing was measured."""
        about = figure_of(key, figure)
        first, *_, last = self.medians(key, columns, case, figure)
        cells = self.ranges(key, columns, case, figure, about.digits)
        # What is shown as 0 has no ratio.
        base = first if number(first, about.digits).strip("0.") else None
        return [f"{what}, {about.unit}", *cells, ratio(last, base),
                about.better] if {*cells} != {"-"} else []

    def sides(self, key: str, head: str, figures: dict[str, str],
              one: str = "", **wanted: Any) -> list[str]:
        """Return a table of cases with these values, base beside series.

        figures: what each is called in the head.  one: a case in relation to
        which the last figure is shown, too.
        """
        rows = []
        for case in self.those(key, **wanted):
            name = case["name"]
            row = [": ".join(filter(None, (
                name.removeprefix("call-"), TABLE["words"].get(name))))]
            for figure in figures:
                both = self.medians(key, SIDES, name, figure)
                row += [*numbers(both, 0, "", "skipped"),
                        ratio(*reversed(both))]
            rows.append(row + [ratio(*pair) for pair in zip(
                both, self.medians(key, SIDES, one, figure)) if one])
        return table([head, *(word for what in figures.values() for word in (
            f"{what}base", "series", "series / base"))] + [
                f"{side} / {one}" for side in SIDES if one], rows)
