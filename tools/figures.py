# SPDX-License-Identifier: GPL-2.0-only
"""Figures of the programs that measure: stored, read and compared.

Nothing but the standard library, because measure runs without build/venv.
"""

import contextlib
import datetime
import json
import math
import statistics
import threading
from collections import defaultdict
from collections.abc import Iterable
from pathlib import Path
from typing import Any, NamedTuple

from tools.build import SIDES
from tools.core import Fail, read_json, shown_path, tail, write_json
from tools.tables import number, ratio

# A selftest of the series (folder/program), or "" for one of tools/bench.
PROGRAMS = {"ioperm_latency": "x86/ioperm_latency_64",
            "yield_latency": "",
            "pi_ping": "", "interactive_latency": ""}
# What a column is called. The order is that of the tables.
COLUMNS = {
    "history_8k": "as 2.6.8.1: 8 KB, every switch",
    "history_prefix": "as 2.6.9: prefix, every switch",
    "base": "base", "off": "series, features off", "series": "series",
    "base_server": "base, server", "series_server": "series, server",
    "base_softrt": "base, soft real-time",
    "series_softrt": "series, soft real-time",
    "ext_simple": "scx_simple", "ext_qmap": "scx_qmap",
}
PARTS = ("", "threads", "processes", "cgroup", "cgroups", "batch")


class Figure(NamedTuple):
    """A figure of a case that is compared.

    assumed: by how much two runs of one kernel were seen to differ, for a
    figure that does not depend on where in a tick something falls.
    """

    name: str
    unit: str
    scale: float = 1
    more_is_better: bool = False
    assumed: float | None = None


WAIT = 1e6  # the scale of a time in ns that is shown in ms
FIGURES = {
    "ioperm_latency": (Figure("p50", "instructions", assumed=0.002),),
    "yield_latency": (
        Figure("ns_per_call", "ns per call", assumed=0.05),
        Figure("share", "% of the CPU", 1, True),
        Figure("stuck_percent", "% of the calls switched nobody"),
        Figure("acquisitions_per_s", "acquisitions/s", 1, True),
        Figure("p50", "ms, p50", WAIT), Figure("p99", "ms, p99", WAIT),
        Figure("longest_wait_yielder", "ms, longest wait of the yielder",
               WAIT),
        Figure("longest_wait_hog", "ms, longest wait of the hog", WAIT)),
    "pi_ping": (
        Figure("met_percent", "% of the deadlines met", 1, True),
        Figure("p50", "ms, p50", WAIT), Figure("p99", "ms, p99", WAIT),
        Figure("max", "ms, max", WAIT),
        Figure("relative", "% of one task's digits", 1, True)),
    "interactive_latency": (
        Figure("mean", "ms, mean", WAIT),
        Figure("sd", "ms, standard deviation", WAIT),
        Figure("max", "ms, max", WAIT),
        Figure("desired_cpu", "% of the desired CPU", 1, True),
        Figure("deadlines_met", "% of the deadlines met", 1, True)),
    "hackbench": (Figure("ms_per_loop", "ms per loop"),),
}
# Runs whose spread can be trusted, see CHANCE.
ENOUGH = 4
# Nanoseconds to read the clock in the guest of the study: the mean of a
# million calls of clock_gettime(). A wait is timed with two readings, so a
# smaller difference says nothing, however well it repeats.
READING = 64
# Percent of the calls of sched_yield(). A call that switches nobody takes a
# microsecond: with more of them than this on one side, percentiles of the
# time of a call would call it slow to hand the CPU over.
STUCK = 1
# In how many cases (a share) the medians of two sides of this many runs are
# further apart in one direction than the larger range of the two, when there
# is nothing but normal noise. By simulation; the tests do it again.
CHANCE = {4: 0.0060, 5: 0.0019, 6: 0.0003}
WORSE, BETTER, FEW, TINY, SAME = (
    "worse", "better", "too few runs to tell",
    "less apart than a reading of the clock", "within the noise")

_writing = threading.Lock()


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


def read_cells(*folders: Path) -> dict[str, dict[str, Any]]:
    """Return the study's results in folders, the last of the same name.

    That is {PROGRAM[.PART].COLUMN.RUN: cell}; a folder has a file for each
    program.
    """
    cells: dict[str, dict[str, Any]] = {}
    for path in (path for folder in folders
                 for path in sorted(folder.glob("*.json"))):
        found = read_json(path)
        if not isinstance(found, dict) or not all(
                isinstance(cell, dict) and cell.get("result")
                for cell in found.values()):
            raise Fail(f"{shown_path(path)} is not a result of 'make study': "
                       "remove it and run that again")
        cells |= found
    return cells


def add_cells(folder: Path, cells: dict[str, dict[str, Any]]) -> None:
    """Add cells to those of a folder; threads may do so at once."""
    with _writing:
        for program in {name.split(".")[0] for name in cells}:
            path = folder / f"{program}.json"
            mine = {name: cell for name, cell in cells.items()
                    if name.split(".")[0] == program}
            write_json(path, dict(sorted(
                (read_json(path, {}) | mine).items())))


class Samples:
    """The figures of all columns, one value a run, and what cases there are.

    A key is a program and its part, such as "pi_ping.threads".  values has
    the figures by key, column, case and name.
    """

    def __init__(self) -> None:
        self.values: dict[tuple[str, ...], list[float]] = defaultdict(list)
        self.cases: dict[str, dict[str, dict[str, Any]]] = defaultdict(dict)
        self.skipped: dict[tuple[str, str], dict[str, str]] = \
            defaultdict(dict)
        self.kernels: dict[str, dict[str, str]] = {}
        self._measured: dict[str, set[str]] = defaultdict(set)

    def add(self, key: str, column: str, result: dict[str, Any]) -> None:
        """Add one run's result, as the program's --json writes it.

        yield_latency runs each case of the series twice, with its scheduler
        feature off and on: these are two columns.
        """
        for case in result["cases"]:
            where, name = column, case["name"]
            if case.get("features") == "old":
                if column != "series":
                    continue
                where = "off"
            if case.get("status") != "ok":
                self.skipped[key, where][name] = \
                    case.get("reason") or str(case.get("status"))
                continue
            if case.get("calls") and "stuck" in case:
                case = case | {
                    "stuck_percent": 100 * case["stuck"] / case["calls"]}
            self.cases[key].setdefault(name, case)
            self._measured[key].add(where)
            for figure, value in case.items():
                if isinstance(value, (int, float)):
                    self.values[key, where, name, figure].append(value)

    def those(self, key: str, **wanted: Any) -> list[dict[str, Any]]:
        """Return the cases with these values."""
        return [case for case in self.cases[key].values()
                if wanted.items() <= case.items()]

    def keys(self, program: str) -> list[str]:
        """Return the keys of a program that has figures, in order."""
        every = (f"{program}.{part}".rstrip(".") for part in PARTS)
        return [key for key in every if key in self.cases]

    def columns(self, key: str) -> list[str]:
        """Return the columns that have figures, in order."""
        return [name for name in COLUMNS if name in self._measured[key]]

    def median(self, key: str, column: str, case: str, figure: str,
               scale: float = 1) -> float | None:
        """Return the median of a figure, None when it was skipped."""
        values = self.values.get((key, column, case, figure))
        return statistics.median(values) / scale if values else None

    def medians(self, key: str, columns: Iterable[str], case: str,
                figure: str, scale: float = 1) -> list[float | None]:
        """Return the median of a figure for each of some columns."""
        return [self.median(key, column, case, figure, scale)
                for column in columns]


def collect(*folders: Path) -> Samples:
    """Return what the study left in folders."""
    samples = Samples()
    for name, cell in read_cells(*folders).items():
        key, column, _ = name.rsplit(".", 2)
        samples.add(key, column, cell["result"])
        samples.kernels[column] = cell["kernel"]
    return samples


def noise(base: list[float], series: list[float],
          assumed: float | None = None) -> float | None:
    """Return by how much two sides may differ by chance (0.1 is 10 %).

    That is the larger (max - min) / median of the two; with fewer than
    ENOUGH runs at least what is assumed, and None when nothing is.
    """
    spread = max((max(runs) - min(runs))
                 / (statistics.median(runs) or math.inf)
                 for runs in (base, series))
    if min(len(base), len(series)) >= ENOUGH:
        return spread
    return None if assumed is None else max(spread, assumed)


def judge(base: list[float], series: list[float], more_is_better: bool,
          limit: float | None) -> str:
    """Compare the runs of two sides; limit: what noise() says."""
    a, b = statistics.median(base), statistics.median(series)
    if a == b:
        return SAME
    if limit is None:
        return FEW
    # There is no share of nothing: then the ranges must not overlap.
    if 0 in (a, b) and max(min(base), min(series)) <= min(max(base),
                                                          max(series)):
        return SAME
    if a and abs(b / a - 1) <= limit:
        return SAME
    return BETTER if (b > a) == more_is_better else WORSE


class Row(NamedTuple):
    """One figure of a case, base beside series; runs: of the fewer."""

    key: str
    case: str
    figure: Figure
    columns: tuple[str, str]
    base: float
    series: float
    noise: float | None
    runs: int
    verdict: str

    def texts(self) -> list[str]:
        """Return unit, base, series, series / base and noise."""
        return [self.figure.unit, plain(self.base, self.figure.scale),
                plain(self.series, self.figure.scale),
                ratio(self.series, self.base, 3),
                number(self.noise and 100 * self.noise, 1, " %")]


def compare(samples: Samples, key: str, columns: tuple[str, str] = SIDES,
            assumed: float | None = None) -> list[Row]:
    """Compare two columns of a program, what is worse first.

    assumed: see noise(); it goes before that of a figure.
    """
    rows = []
    for case in samples.cases[key]:
        stuck, low, high = (samples.medians(key, columns, case, name)
                            for name in ("stuck_percent", "p40", "p60"))
        # A time that is one tick or two has a p50 of either, by chance.
        overlap = None not in low + high and max(low) <= min(high)
        for figure in FIGURES[key.split(".")[0]]:
            base, series = (samples.values[key, column, case, figure.name]
                            for column in columns)
            # Percentiles of a yield only where the calls of both switch.
            if not base or not series or figure.name in ("p50", "p99") \
                    and max(share or 0 for share in stuck) > STUCK:
                continue
            limit = noise(base, series, assumed or figure.assumed)
            verdict = judge(base, series, figure.more_is_better, limit)
            a, b = statistics.median(base), statistics.median(series)
            if figure.name == "p50" and overlap and verdict != FEW:
                verdict = SAME
            elif verdict in (BETTER, WORSE) and figure.scale == WAIT \
                    and abs(a - b) < READING:
                verdict = TINY
            rows.append(Row(key, case, figure, columns, a, b, limit,
                            min(len(base), len(series)), verdict))
    order = (WORSE, BETTER, FEW, TINY, SAME)
    return sorted(rows, key=lambda row: order.index(row.verdict))


def plain(value: float | None, scale: float = 1) -> str:
    """Format a figure with three or more digits, a dash for none."""
    if value is None:
        return "-"
    value /= scale
    if value == int(value) and abs(value) < 1e7:
        return str(int(value))
    if abs(value) >= 1000:
        return f"{value:.0f}"
    return f"{value:.3g}" if abs(value) < 100 else f"{value:.1f}"
