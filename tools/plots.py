# SPDX-License-Identifier: GPL-2.0-only
"""The pictures of the report, drawn with matplotlib as SVG texts."""

import io
import re
from collections import defaultdict
from dataclasses import dataclass
from functools import partial
from typing import Any

import matplotlib

from tools.core import ROOT, read_json
from tools.figures import COLUMNS, SIDES, Key, Samples

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
PAST = ("history_8k", "history_prefix", "base", "off", "series")
TODAY = SIDES + ("base_server", "series_server", "base_softrt",
                 "series_softrt", "ext_simple", "ext_qmap")
SLICES = {0: "default", 2800: "2.8 ms", 20000: "20 ms", 100000: "100 ms"}
# Cases of ioperm_latency that are 2004's, by the port and by who has it.
SAME_AS_2004 = {"shared-0x80": "0x80,\none bitmap for both",
                "shared-65535": "65535,\none bitmap for both",
                "pair-0x80-none": "0x80,\none task only",
                "pair-0x80-0x81": "0x80 and 0x81,\neach its own",
                "pair-65534-65535": "65534 and 65535,\neach its own"}


@dataclass
class Chart:
    """One chart: values of each column, a point or bar for each tick.

    places: where the ticks are, for a scale.  bars: how a value is written
    above its bar; without it there are lines.
    """

    title: str
    ticks: list[str]
    values: dict[str, list[float | None]]
    x_label: str = ""
    y_label: str = ""
    places: list[int] | None = None
    logarithmic: bool = False
    bars: str = ""


def draw(title: str, charts: list[Chart], wide: int = 2,
         high: float = 2.6) -> str:
    """Return charts as one SVG; wide: how many in a row, high: inches."""
    rows = -(-len(charts) // wide)
    picture, axes = pyplot.subplots(
        rows, wide, figsize=(10, high * rows + 1.1), squeeze=False,
        sharey="row", layout="constrained")
    picture.suptitle(title, fontweight="bold")
    legend: dict[str, Any] = {}
    for axis, chart in zip(axes.flat, charts):
        places = chart.places or list(range(len(chart.ticks)))
        thick = 0.86 / max(len(chart.values), 1)
        for number, (column, values) in enumerate(chart.values.items()):
            colour, line = LOOKS[column]
            found = [float("nan") if value is None else value
                     for value in values]
            if chart.bars:
                drawn = axis.bar([place - 0.43 + thick * (number + 0.5)
                                  for place in places], found, thick * 0.92,
                                 color=colour)
                axis.bar_label(drawn, fmt=chart.bars, fontsize=7, padding=1)
                axis.grid(axis="x", visible=False)
            else:
                drawn, = axis.plot(places, found, color=colour,
                                   linestyle=line, marker="o")
            legend[COLUMNS[column]] = drawn
        if not chart.places:
            axis.set_xticks(places, chart.ticks, fontsize=9)
        axis.set(title=chart.title, xlabel=chart.x_label,
                 ylabel=chart.y_label)
        if chart.logarithmic:
            axis.set_yscale("log")
            axis.yaxis.set_major_formatter("{x:g}")
        else:
            axis.set_ylim(bottom=0)
    picture.legend(legend.values(), legend.keys(), ncols=4,
                   loc="outside lower center")
    text = io.StringIO()
    picture.savefig(text, format="svg", metadata={"Date": None})
    pyplot.close(picture)
    return re.sub(r"[ \t]+$", "", text.getvalue(), flags=re.M)


def medians(samples: Samples, key: Key, columns: tuple[str, ...],
            cases: list[str], figure: str, scale: float = 1
            ) -> dict[str, list[float | None]]:
    """Return the medians of some cases, for each column that has them."""
    return {column: [samples.median(key, column, case, figure, scale)
                     for case in cases]
            for column in columns if column in samples.measured[key]}


def ioperm(samples: Samples) -> str:
    """Draw a switch with I/O ports against one without: 2004 and today."""
    key = "ioperm_latency", ""
    then = read_json(ROOT / "data/2004-ioperm.json")
    none, *rows = then["rows"]
    old = {column["today"]: [row["values"][place] / none["values"][place]
                             for row in rows]
           for place, column in enumerate(then["columns"])}
    new = {column: [samples.ratio(key, (column, case), (column, "none"),
                                  "p50") for case in SAME_AS_2004]
           for column in samples.columns(key)}
    return draw("A switch between two tasks with I/O ports, between tasks "
                "without = 1", [
                    Chart("2004: 2.6.8.1, prefix, and prefix that is cached",
                          [f"port {row['port']}" for row in rows], old,
                          bars="{:.2f}"),
                    Chart("Linux 7.3", list(SAME_AS_2004.values()), new,
                          bars="{:.2f}")], wide=1)


def sweep(samples: Samples) -> str:
    """Draw the cost of a switch against the highest port."""
    key = "ioperm_latency", ""
    found = sorted((max(port for port in case["highest_port"]
                        if port is not None), name)
                   for name, case in samples.cases[key].items()
                   if name.startswith("sweep-"))
    return draw("Two tasks with one port each: on the base the number of the "
                "port counts", [Chart(
                    "", [], medians(samples, key, PAST,
                                    [name for _, name in found], "p50"),
                    "highest port", "instructions a call (two switches)",
                    [port for port, _ in found])], wide=1, high=3.2)


def polite(columns: tuple[str, ...], samples: Samples) -> str:
    """Draw what a task that yields gets beside tasks that do not."""
    key = "yield_latency", ""
    cases: dict[int, list[tuple[int, str]]] = defaultdict(list)
    for name, case in samples.cases[key].items():
        if case.get("kind") == "polite" and case["work_us"] == 100:
            cases[case["hogs"]].append((case["slice_us"], name))
    return draw("A task works 100 us and yields, beside others that never "
                "yield", [
                    Chart("beside " + ("one" if hogs == 1 else str(hogs)),
                          [SLICES.get(size, f"{size} us")
                           for size, _ in sorted(found)],
                          medians(samples, key, columns,
                                  [name for _, name in sorted(found)],
                                  figure, scale),
                          "slice of all tasks", label, logarithmic=True)
                    for figure, scale, label in (
                        ("share", 1, "its share, % of the CPU"),
                        ("p50", 1e6, "a yield takes, p50, ms"))
                    for hogs, found in sorted(cases.items())])


def ping(samples: Samples) -> str:
    """Draw deadlines met and latency against the load."""
    charts = []
    for figure, scale, label in (("met_percent", 1, "% of the deadlines met"),
                                 ("p99", 1e6, "latency, p99, ms")):
        for part in ("processes", "cgroups"):
            key = "pi_ping", part
            loads = {name: str(case["load"]) for name, case
                     in samples.cases[key].items() if case.get("interactive")}
            charts.append(Chart(
                part, list(loads.values()), medians(
                    samples, key, TODAY, list(loads), figure, scale),
                "processes that compute", label, logarithmic=scale > 1))
    return draw("A task must answer every 100 ms beside processes that "
                "compute", charts, high=3)


def interactive(samples: Samples) -> str:
    """Draw the latency of each task beside four that compute."""
    charts = []
    for part in ("processes", "cgroups"):
        key = "interactive_latency", part
        tasks = {name: case["task"] for name, case
                 in samples.cases[key].items() if case["load"] == "burn"}
        charts.append(Chart(part, list(tasks.values()), medians(
            samples, key, TODAY, list(tasks), "p99", 1e6), bars="{:.1f}"))
    return draw("Beside four tasks that compute: latency, p99, ms", charts,
                wide=1)


def hackbench(samples: Samples) -> str:
    """Draw the time of a loop relative to the base's."""
    key = "hackbench", ""
    kinds: dict[str, dict[str, str]] = defaultdict(dict)
    for name, case in samples.cases[key].items():
        kinds[f"{case['tasks']}, {case['via']}"][name] = str(case["groups"])
    return draw("hackbench: time of a loop, base = 1", [
        Chart(kind, list(cases.values()),
              {column: [samples.ratio(key, (column, case), ("base", case),
                                      "ms_per_loop") for case in cases]
               for column in samples.columns(key)}, "groups")
        for kind, cases in kinds.items()])


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
        ("yield-kernels", partial(polite, TODAY[2:]), "lines: the same as a "
         "server, for soft real time, with schedulers of sched_ext")),
    "pi_ping": (("pi-ping", ping, "lines: deadlines met and latency against "
                 "the number of processes"),),
    "interactive_latency": (("interactive", interactive, "bars: latency of "
                             "each task beside four that compute"),),
    "hackbench": (("hackbench", hackbench, "lines: time of a loop relative "
                   "to the base"),),
}
