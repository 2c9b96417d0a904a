#!/usr/bin/env python3
# SPDX-License-Identifier: GPL-2.0-only
"""Measure what sched_yield() does, on base and series and with its bits off.

Part of 'make bench'.  The series' own test program runs on both kernels; on
the series' each case runs twice in one boot, with the scheduler's features
YIELD_TICK and YIELD_SKIP off and on.

The guest is one into which nothing comes from outside (see tinyguest.py): how
long a call takes depends on where in a tick it falls, so the figures repeat
only where everything does, from the first instruction of the boot.
"""

import argparse
import json
from pathlib import Path

from common import (BUILD, LOGS, Fail, run_logged, run_main, shown_path,
                    write_atomically)
from kernel import image_path, make_environment
from tinyguest import HARDWARE, REPEATABLE, REPEATABLE_KERNEL, boot_tiny

TEST = "yield_latency"
FOLDER = "tools/testing/selftests/sched"
REPORT = "/tmp/report.json"
GUEST_SECONDS = 900
# By the guest's clock, which may run at a tenth of the speed or ten times it.
PROGRAM_SECONDS = 1800
# The guest takes another clock some time after boot, when it has calibrated
# it: not in the middle of a run.
SETTLE_SECONDS = 5
# Which column of the tables is which run: side, features.
COLUMNS = {"base": ("base", "as-is"), "off": ("series", "old"),
           "on": ("series", "new")}
ARGUMENTS = {"base": (), "series": ("--features", "both")}
PLOTTED_WORK = 100
# Longer than by default, so that also the median of calls which take 300 ms
# settles.
DURATION = ("--seconds", "0.3", "--calls", "9", "--storm", "2")


def available(tree):
    """Tell whether a kernel tree (Path) has the test (bool)."""
    return (tree / FOLDER / f"{TEST}.c").exists()


def build_test(tree):
    """Build the test of a kernel tree (Path); returns the program's path."""
    output = BUILD / "bench"
    output.mkdir(parents=True, exist_ok=True)
    program = output / TEST
    program.unlink(missing_ok=True)
    run_logged(["make", "-C", str(tree / FOLDER), f"OUTPUT={output}",
                "USERLDFLAGS=-static", str(program)],
               LOGS / f"build-{TEST}.log", env=make_environment(),
               what=f"building {TEST}")
    if not program.exists():
        raise Fail(f"building {TEST} made no {shown_path(program)}")
    return program


def measure(tree, program, side, kvm, arguments=(), name=""):
    """Run the test on one kernel; returns what its --json wrote (dict).

    name: of the kernel where it is not the side's.  Raises Fail when the
    test fails, skips as a whole, or writes no JSON.
    """
    name = f"yield-{name or side}"
    words = ["--json", REPORT, *DURATION, *ARGUMENTS[side], *arguments]
    runs = boot_tiny(image_path(tree), [(program, words)], cpus=1, bits=64,
                     machine=HARDWARE if kvm else REPEATABLE,
                     append="" if kvm else REPEATABLE_KERNEL,
                     timeout=GUEST_SECONDS, seconds=PROGRAM_SECONDS,
                     settle=SETTLE_SECONDS, files=[REPORT],
                     name=name)
    (_, result), (_, shown) = runs
    log = LOGS / f"{name}.ktap"
    write_atomically(log, result.output)
    if result.status != 0 or shown.status != 0:
        raise Fail(f"{TEST} ended with status {result.status} on the "
                   f"{name.removeprefix('yield-')} kernel; the end of its "
                   "output, "
                   f"{shown_path(log)}:\n    "
                   + "\n    ".join(result.output.splitlines()[-12:]))
    try:
        return json.loads(shown.output)
    except ValueError as failure:
        raise Fail(f"what {TEST} wrote on the {side} kernel is no JSON "
                   f"({failure}); the console: "
                   f"{shown_path(LOGS)}/{name}.console") from None


def columns(report):
    """Return {column: {case name: case (dict)}} of a report (dict).

    A column is empty where its side was not measured.
    """
    return {column: {case["name"]: case
                     for case in report["sides"].get(side, {"cases": ()})
                     ["cases"]
                     if case["features"] == features
                     and case["status"] == "ok"}
            for column, (side, features) in COLUMNS.items()}


def names(report, kind):
    """Return the names (list of str) of a kind's cases, in their order."""
    seen = {}
    for side in report["sides"].values():
        seen |= {case["name"]: case for case in side["cases"]
                 if case["kind"] == kind}
    return [(name, seen[name]) for name in seen]


def slice_text(size):
    """Return how a slice (int, us; 0 for the default) is shown (str)."""
    return f"{size / 1000:g} ms" if size else "default"


def cell(case, figure, scale=1.0, digits=0):
    """Format a figure of a case (dict or None); a dash where it is not."""
    if not case or case.get(figure) is None:
        return "-"
    return f"{case[figure] / scale:.{digits}f}"


def ratio(case, other, figure):
    """Format case/other with two decimals, a dash where one is not there."""
    if not case or not other or not other.get(figure):
        return "-"
    return f"{case[figure] / other[figure]:.2f}"


def median(case):
    """Format the p50 of a polite worker's calls (dict or None) in ms.

    Long calls end at a tick, give or take what the worker did in its own:
    they have no digits below a millisecond that repeat.  Where the calls are
    of two kinds, about as many of each, it would be one of the two by chance:
    then both are shown.
    """
    if not case or case.get("p50") is None:
        return "-"

    def text(value):
        return f"{value:.0f}" if value >= 10 else f"{value:.2f}"

    low, middle, high = (case.get(name, case["p50"]) / 1e6
                         for name in ("p40", "p50", "p60"))
    if high - low > max(0.05, 0.05 * high):
        return f"{text(low)} or {text(high)}"
    return text(middle)


def fair_limit(case, tick):
    """The share in percent that a polite worker's task can have at best.

    case: with work_us and hogs; tick: ns that each hog gets in a round.
    """
    work = case["work_us"] * 1000
    return 100 * work / (case["hogs"] * (work + tick) + work)


def polite_rows(report, found):
    """Return the table of the polite workers (list of str)."""
    tick = report["sides"]["series"]["tick_ns"]
    rows = ["| work | slices | hogs | fair limit "
            "| share: base | off | on "
            "| p50 ms: base | off | on "
            "| p99 ms: base | off | on "
            "| nobody else ran: base | off | on |",
            "|---:|---:|---:|---:|" + "---:|" * 12]
    for name, case in names(report, "polite"):
        sides = [found[column].get(name) for column in COLUMNS]
        stuck = ["-" if not side or not side["calls"] else
                 f"{100 * side['stuck'] / side['calls']:.0f} %"
                 for side in sides]
        rows.append(
            f"| {case['work_us']} us "
            f"| {slice_text(case['slice_us'])} "
            f"| {case['hogs']} | {fair_limit(case, tick):.1f} % "
            + "".join(f"| {cell(side, 'share', 1, 2)} % " for side in sides)
            + "".join(f"| {median(side)} " for side in sides)
            + "".join(f"| {cell(side, 'p99', 1e6, 2)} " for side in sides)
            + "".join(f"| {text} " for text in stuck) + "|")
    return rows


def tables(report):
    """Return the comparison (Markdown lines, list of str) of a report."""
    found = columns(report)
    rows = ["sched_yield(): `base`; the series with its feature bits `off`, "
            "and `on`, as they are by default. Times are guest time.", "",
            "All tasks of one CPU do nothing but yield, ns per switch (from "
            "the first call to the end of the last, ticks included, divided "
            "by the number of switches):", "",
            "| tasks | base | off | on | off / base | on / base |",
            "|---|---:|---:|---:|---:|---:|"]
    for name, case in names(report, "switch"):
        base, off, on = (found[column].get(name) for column in COLUMNS)
        what = "threads" if "-thread-" in name else "processes"
        if case["slice_us"]:
            what += f", slices {slice_text(case['slice_us'])}"
        figure = "ns_per_switch"
        rows.append(f"| {case['tasks']} {what} "
                    + "".join(f"| {cell(side, figure)} "
                              for side in (base, off, on))
                    + f"| {ratio(off, base, figure)} "
                    f"| {ratio(on, base, figure)} |")
    rows += ["", "A worker computes, yields, and so on, beside hogs with the "
             "same slices. The fair limit is its share when each hog gets a "
             "tick for a yield:", "", *polite_rows(report, found)]
    others = [("weight", "share", "share of the worker, %", 1, 2),
              ("poll", "hogs_share", "share of the hog, %", 1, 1),
              ("ping", "passes_per_s", "passes/s", 1, 0),
              ("lock", "acquisitions_per_s", "acquisitions/s", 1, 0),
              ("lock", "yields_per_acquisition", "yields per acquisition",
               1, 2),
              ("lock", "p99", "p99 of the wait, ms", 1e6, 2),
              ("wake", "p99", "p99 of the wake-up, ms", 1e6, 2),
              ("sleeper", "p99", "p99 of the wake-up, ms", 1e6, 2),
              ("storm", "longest_wait_yielder", "longest wait of the yielder, "
               "ms", 1e6, 1),
              ("storm", "longest_wait_hog", "longest wait of the hog, ms",
               1e6, 1)]
    seconds = report["sides"]["series"].get("storm_seconds")
    rows += ["", "Locks that yield, a worker beside a hog of another nice "
             "value, tasks that poll or pass a ball, a task that yields and "
             "sleeps, one that sleeps beside a worker and hogs, a task "
             f"that yields {f'for {seconds:g} s ' if seconds else ''}and then "
             "spins:", "",
             "| case | figure | base | off | on |", "|---|---|---:|---:|---:|"]
    for kind, figure, text, scale, digits in others:
        for name, _ in names(report, kind):
            rows.append(f"| {name} | {text} " + "".join(
                f"| {cell(found[column].get(name), figure, scale, digits)} "
                for column in COLUMNS) + "|")
    return rows


def plot(report, path):
    """Draw share and time of a call against the slice; path: an SVG (Path).

    A PNG of the same name is written beside it.
    """
    import matplotlib
    matplotlib.use("Agg")
    matplotlib.rcParams["svg.hashsalt"] = "series"
    from matplotlib import pyplot

    found = columns(report)
    tick = report["sides"]["series"]["tick_ns"]
    figure, axes = pyplot.subplots(2, 2, figsize=(8.4, 6.2), sharex=True,
                                   layout="constrained")
    figure.patch.set_facecolor("white")
    colours = {"base": "#b3400f", "on": "#1f5fa8"}
    labels = {"base": "base", "on": "series"}
    cases = [(name, case) for name, case in names(report, "polite")
             if case["work_us"] == PLOTTED_WORK]
    order = sorted({case["slice_us"] for _, case in cases})
    for number, hogs in enumerate((1, 3)):
        share, times = axes[0][number], axes[1][number]
        for column, colour in colours.items():
            points = [(order.index(case["slice_us"]), found[column][name])
                      for name, case in cases if case["hogs"] == hogs
                      and name in found[column]]
            x = [place for place, _ in points]
            share.plot(x, [case["share"] for _, case in points], "-o",
                       color=colour, markersize=4, label=labels[column])
            for which, style in (("p50", "-o"), ("p99", "--s")):
                times.plot(x, [case[which] / 1e6 for _, case in points],
                           style, color=colour, markersize=4,
                           label=f"{labels[column]}, {which}")
        share.axhline(fair_limit({"work_us": PLOTTED_WORK, "hogs": hogs},
                                 tick), color="#777777", linewidth=1,
                      linestyle=":", label="fair limit at one tick")
        share.set_title(f"{PLOTTED_WORK} us of work between yields, {hogs} "
                        + ("hog" if hogs == 1 else "hogs"), fontsize=10)
        share.set_ylim(bottom=0)
        # matplotlib refuses a logarithmic axis for nothing.
        if any(len(line.get_xdata()) for line in times.get_lines()):
            times.set_yscale("log")
        times.set_xlabel("slice of all tasks")
        times.set_xticks(range(len(order)), [slice_text(one) for one in order])
        for one in (share, times):
            one.grid(alpha=0.3)
            one.legend(fontsize=8)
    axes[0][0].set_ylabel("share of the CPU in percent")
    axes[1][0].set_ylabel("time of a sched_yield() call in ms")
    for target in (path, path.with_suffix(".png")):
        partial = target.with_name("partial-" + target.name)
        figure.savefig(partial, dpi=110,
                       metadata={"Date": None} if target == path else None)
        partial.replace(target)
    pyplot.close(figure)


def load(path):
    """Read the yield part of a result of bench.py (Path); returns a dict."""
    try:
        report = json.loads(path.read_text())["yield"]
        columns(report)
    except (OSError, ValueError, KeyError, TypeError) as failure:
        raise Fail(f"{path} has no figures of {TEST}: {failure!r}") from None
    return report


def main():
    # Here, because bench imports this file.
    from bench import console_table
    parser = argparse.ArgumentParser(
        description=__doc__.split("\n\n")[0],
        epilog="The measurement itself is part of scripts/bench.py.")
    parser.add_argument("json", type=Path,
                        help="a result of 'make bench', to show again")
    parser.add_argument("--plot", type=Path, metavar="SVG",
                        help="draw the plot as well")
    options = parser.parse_args()
    report = load(options.json)
    print(console_table(tables(report)))
    if options.plot:
        plot(report, options.plot)


if __name__ == "__main__":
    run_main(main)
