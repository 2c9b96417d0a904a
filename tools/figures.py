# SPDX-License-Identifier: GPL-2.0-only
"""Figures of the programs that measure: read, kept by column, and medians.

Nothing but the standard library, because measure runs without build/venv.
"""

import contextlib
import datetime
import json
import statistics
import tomllib
from collections import defaultdict
from collections.abc import Iterable
from pathlib import Path
from typing import Any

from tools.core import ROOT, Fail, shown_path, tail

DATA = ROOT / "tools/study-data"
# What study, measure and report are about.
STUDY = tomllib.loads((DATA / "experiments.toml").read_text())


def words_of(key: str, run: int) -> list[str]:
    """Return a program of the study and its arguments, for one of its runs:
    the first, second, third begin at three points of a tick."""
    return STUDY["programs"][key]["run"].format(
        run=run, phase=(0, 300, 700)[(run - 1) % 3]).split()


def now() -> str:
    """Return the date and time for a result."""
    return datetime.datetime.now(datetime.UTC).isoformat(timespec="seconds")


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


def shown(result: dict[str, Any]) -> dict[str, Any]:
    """Return what the page of the study shows of a result."""
    return {"cases": [{name: value for name, value in case.items() if name in (
        "name", "status", *STUDY["figures"])} for case in result["cases"]]}


class Samples:
    """The figures of all columns, one value a run, and what cases there are.

    A key is a program and its part, such as "pi_ping.threads".  values has
    the figures by key, column, case and name.
    """

    def __init__(self) -> None:
        self.values: dict[tuple[str, ...], list[float]] = defaultdict(list)
        self.cases: dict[str, dict[str, dict[str, Any]]] = defaultdict(dict)

    def add(self, key: str, column: str, result: dict[str, Any]) -> None:
        """Add one run's result, as the program's --json writes it.

        yield_latency may run each case of the series twice, with its
        scheduler feature off and on: these are two columns.
        """
        for case in result["cases"]:
            if case.get("status") != "ok":
                continue
            where = "off" if case.get("features") == "old" else column
            if case.get("calls") and "stuck" in case:
                case = case | {
                    "stuck_percent": 100 * case["stuck"] / case["calls"]}
            self.cases[key].setdefault(case["name"], case)
            for figure, value in case.items():
                if isinstance(value, (int, float)):
                    self.values[key, where, case["name"], figure].append(value)

    def those(self, key: str, **wanted: Any) -> list[dict[str, Any]]:
        """Return the cases with these values."""
        return [case for case in self.cases[key].values()
                if wanted.items() <= case.items()]

    def median(self, key: str, column: str, case: str, figure: str,
               scale: float = 1) -> float | None:
        """Return the median of a figure, None when it was not measured."""
        values = self.values.get((key, column, case, figure))
        return statistics.median(values) / scale if values else None

    def medians(self, key: str, columns: Iterable[str], case: str,
                figure: str, scale: float = 1) -> list[float | None]:
        """Return the median of a figure for each of some columns."""
        return [self.median(key, column, case, figure, scale)
                for column in columns]
