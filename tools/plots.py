# SPDX-License-Identifier: GPL-2.0-only
"""The pictures of the report, drawn with matplotlib as SVG texts."""

import io
import math
import re
from collections.abc import Callable, Iterable
from functools import partial
from typing import Any, NamedTuple

import matplotlib

from tools.core import ROOT, read_json
from tools.figures import COLUMNS, Samples
from tools.measure_yield import slices

matplotlib.use("svg")
from matplotlib import pyplot  # noqa: E402  (after the choice of a backend)

# One text for the same figures: no names drawn by lot.
pyplot.rcParams.update({
    "svg.hashsalt": "series", "svg.fonttype": "none",
    "font.size": 10, "axes.titlesize": 10.5, "axes.grid": True,
    "grid.alpha": 0.3, "axes.axisbelow": True,
    "axes.spines.top": False, "axes.spines.right": False,
    "lines.markersize": 4, "legend.frameon": False})
# Colour and line of each column: a base is always dashed.
LOOKS = {"base": ("#d9730d", "--"), "series": ("#2f81f7", "-"),
         "off": ("#2da44e", ":"), "history_8k": ("#8b949e", "-."),
         "history_prefix": ("#a371f7", "-."),
         "base_server": ("#8c2a66", "--"), "series_server": ("#e06fb0", "-"),
         "base_softrt": ("#0f6b78", "--"), "series_softrt": ("#35c4d7", "-"),
         "ext_simple": ("#2da44e", "-."), "ext_qmap": ("#8b949e", "-.")}
# Cases of ioperm_latency that are 2004's, by the port and by who has it.
SAME_AS_2004 = {"shared-0x80": "0x80,\none bitmap for both",
                "shared-65535": "65535,\none bitmap for both",
                "pair-0x80-none": "0x80,\none task only",
                "pair-0x80-0x81": "0x80 and 0x81,\neach its own",
                "pair-65534-65535": "65534 and 65535,\neach its own"}


class Chart(NamedTuple):
    """One chart: values of each column, a point or bar for each tick.

    ticks: words, or numbers on a scale.  bars: how a value is written above
    its bar; without it there are lines.  more: as Axes.set() has it.
    """

    ticks: list[Any]
    values: dict[str, list[float | None]]
    bars: str
    more: dict[str, str]


def draw(title: str, charts: list[Chart], wide: int = 2,
         high: float = 2.6) -> str:
    """Return charts as one SVG; wide: how many in a row, high: inches."""
    rows = -(-len(charts) // wide)
    picture, axes = pyplot.subplots(
        rows, wide, figsize=(10, high * rows + 1.1), squeeze=False,
        sharey="row", layout="constrained")
    picture.suptitle(title, fontweight="bold")
    legend: dict[str, Any] = {}
    for axis, (ticks, columns, bars, more) in zip(axes.flat, charts):
        words = all(isinstance(tick, str) for tick in ticks)
        places = list(range(len(ticks))) if words else ticks
        for number, (column, values) in enumerate(columns.items()):
            colour, line = LOOKS[column]
            found = [math.nan if value is None else value for value in values]
            if bars:
                thick = 0.86 / len(columns)
                drawn = axis.bar([place - 0.43 + thick * (number + 0.5)
                                  for place in places], found, thick * 0.92,
                                 color=colour)
                axis.bar_label(drawn, fmt=bars, fontsize=7, padding=1)
                axis.grid(axis="x", visible=False)
            else:
                drawn, = axis.plot(places, found, color=colour,
                                   linestyle=line, marker="o")
            legend[COLUMNS[column]] = drawn
        if words:
            axis.set_xticks(places, ticks, fontsize=9)
        axis.set(**more)
        if "yscale" in more:
            axis.yaxis.set_major_formatter("{x:g}")
        else:
            axis.set_ylim(bottom=0)
    picture.legend(legend.values(), legend.keys(), ncols=4,
                   loc="outside lower center")
    text = io.StringIO()
    picture.savefig(text, format="svg", metadata={"Date": None})
    pyplot.close(picture)
    return re.sub(r"[ \t]+$", "", text.getvalue(), flags=re.M)


def chart(samples: Samples, key: str, cases: dict[str, Any], figure: str,
          scale: float = 1, to: tuple[str, str] = ("", ""), bars: str = "",
          columns: Iterable[str] = COLUMNS, **more: str) -> Chart:
    """Return a chart of the medians of a figure.

    cases: {name: tick}.  to: what is 1, a case of the same column or a
    column of the same case.  columns: of those that have figures.
    """
    def value(column: str, case: str) -> float | None:
        found = samples.median(key, column, case, figure, scale)
        one = samples.median(key, to[0] or column, to[1] or case, figure) \
            if any(to) else 1
        return found / one if found is not None and one else None

    return Chart(list(cases.values()), {
        column: [value(column, case) for case in cases]
        for column in samples.columns(key) if column in columns}, bars, more)


def ticks(samples: Samples, key: str, word: str,
          show: Callable[[Any], str] = str, **wanted: Any) -> dict[str, str]:
    """Return {name: what it has for a word} of the cases that are wanted."""
    return {case["name"]: show(case[word])
            for case in samples.those(key, **wanted)}


def ioperm(samples: Samples) -> str:
    """Draw a switch with I/O ports against one without: 2004 and today."""
    then = read_json(ROOT / "tools/study-data/2004-ioperm.json")
    none, *rows = then["rows"]
    old = {column["today"]: [row["values"][place] / none["values"][place]
                             for row in rows]
           for place, column in enumerate(then["columns"])}
    return draw("A switch between two tasks with I/O ports, between tasks "
                "without = 1", [
                    Chart([f"port {row['port']}" for row in rows], old,
                          "{:.2f}", {"title": "2004: 2.6.8.1, prefix, and "
                                     "prefix that is cached"}),
                    chart(samples, "ioperm_latency", SAME_AS_2004, "p50",
                          to=("", "none"), bars="{:.2f}", title="Linux 7.3")],
                wide=1)


def sweep(samples: Samples) -> str:
    """Draw the cost of a switch against the highest port."""
    found = sorted((max(port for port in case["highest_port"]
                        if port is not None), name)
                   for name, case in samples.cases["ioperm_latency"].items()
                   if name.startswith("sweep-"))
    return draw("Two tasks with one port each: on the base the number of the "
                "port counts", [chart(
                    samples, "ioperm_latency",
                    {name: port for port, name in found}, "p50",
                    xlabel="highest port",
                    ylabel="instructions a call (two switches)")],
                wide=1, high=3.2)


def polite(columns: Iterable[str], samples: Samples) -> str:
    """Draw what a task that yields gets beside tasks that do not."""
    key = "yield_latency"
    return draw(
        "A task works 100 us and yields, beside others that never yield", [
            chart(samples, key, ticks(samples, key, "slice_us", slices,
                                      kind="polite", work_us=100, hogs=hogs),
                  figure, scale, columns=columns, title=title,
                  xlabel="slice of all tasks", ylabel=label, yscale="log")
            for figure, scale, label in (
                ("share", 1, "its share, % of the CPU"),
                ("p50", 1e6, "a yield takes, p50, ms"))
            for hogs, title in ((1, "beside one"), (3, "beside 3"))])


def ping(samples: Samples) -> str:
    """Draw deadlines met and latency against the load."""
    return draw(
        "A task must answer every 100 ms beside processes that compute", [
            chart(samples, f"pi_ping.{part}", ticks(
                samples, f"pi_ping.{part}", "load", interactive=True),
                figure, scale, title=part, xlabel="processes that compute",
                **more)
            for figure, scale, more in (
                ("met_percent", 1, {"ylabel": "% of the deadlines met"}),
                ("p99", 1e6, {"ylabel": "latency, p99, ms",
                              "yscale": "log"}))
            for part in ("processes", "cgroups")], high=3)


def interactive(samples: Samples) -> str:
    """Draw the latency of each task beside four that compute."""
    return draw("Beside four tasks that compute: latency, p99, ms", [
        chart(samples, f"interactive_latency.{part}", ticks(
            samples, f"interactive_latency.{part}", "task", load="burn"),
            "p99", 1e6, bars="{:.1f}", title=part)
        for part in ("processes", "cgroups")], wide=1)


def hackbench(samples: Samples) -> str:
    """Draw the time of a loop relative to the base's."""
    return draw("hackbench: time of a loop, base = 1", [
        chart(samples, "hackbench", ticks(
            samples, "hackbench", "groups", tasks=tasks, via=via),
            "ms_per_loop", to=("base", ""), title=f"{tasks}, {via}",
            xlabel="groups")
        for tasks in ("processes", "threads") for via in ("sockets", "pipes")])


# Columns of the two pictures of yields.
PAST, KERNELS = tuple(COLUMNS)[:5], tuple(COLUMNS)[5:]
# The pictures of each program: the name, what draws it, what is seen.
PICTURES = {
    "ioperm_latency": (
        ("ioperm", ioperm, "bars: a switch between tasks with I/O ports "
         "against one without, 2004 and today"),
        ("ioperm-sweep", sweep, "lines: instructions of a switch against the "
         "highest port")),
    "yield_latency": (
        ("yield", partial(polite, PAST), "lines: share and time of a yield "
         "beside tasks that do not yield"),
        ("yield-kernels", partial(polite, KERNELS), "lines: the same as a "
         "server, for soft real time, with schedulers of sched_ext")),
    "pi_ping": (("pi-ping", ping, "lines: deadlines met and latency against "
                 "the number of processes"),),
    "interactive_latency": (("interactive", interactive, "bars: latency of "
                             "each task beside four that compute"),),
    "hackbench": (("hackbench", hackbench, "lines: time of a loop relative "
                   "to the base"),),
}
