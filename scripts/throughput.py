#!/usr/bin/env python3
# SPDX-License-Identifier: GPL-2.0-only
"""Measure the throughput of usual programs on the base and the series kernel.

hackbench and some stressors of stress-ng, which are what a change of the
scheduler should not make slower.  Boots both kernels with the same programs,
prints the comparison and writes JSON to build/results/throughput.json.
"""

import argparse
import datetime
import json
import re
import statistics
from pathlib import Path

import bench
from check import check_splat
from common import (BUILD, LOGS, RESULTS, Fail, build_lock, need_tool,
                    run_main, say, shown_path, stage, write_atomically)
from guest import boot, choose_kvm
from kernel import SIDES, build_sides, describe

NAME = "throughput"
GUEST_SECONDS = 1800
PACKAGES = {"hackbench": "rt-tests", "stress-ng": "stress-ng"}
# What hackbench does: groups of 20 senders and 20 receivers, each sender
# sends so many messages to each receiver.
GROUPS, LOOPS, PAIRS = 2, 200, 20 * 20
HACKBENCH = f"hackbench -g {GROUPS} -l {LOOPS}"
STRESS = ("stress-ng --no-rand-seed --temp-path /tmp "
          "--metrics-brief --timeout 1s")
# Name of a workload: command, what its figure counts.
WORKLOADS = {
    "hackbench-sockets": (HACKBENCH, "messages/s"),
    "hackbench-pipes": (f"{HACKBENCH} -p", "messages/s"),
    "hackbench-threads": (f"{HACKBENCH} -T", "messages/s"),
    "hackbench-threads-pipes": (f"{HACKBENCH} -T -p", "messages/s"),
    "stress-ng-yield": (f"{STRESS} --yield 4", "ops/s"),
    "stress-ng-switch": (f"{STRESS} --switch 2", "ops/s"),
    "stress-ng-wait": (f"{STRESS} --wait 2", "ops/s"),
    "stress-ng-sockpair": (f"{STRESS} --sockpair 2", "ops/s"),
}


def script(names, repeats):
    """Return the shell commands (str) that run workloads (list of str)."""
    return "; ".join(
        f"echo '## {name}'; {WORKLOADS[name][0]} 2>&1 || echo \"status: $?\""
        for _ in range(repeats) for name in names)


def figure(text):
    """Return the figure (float, 1/s) in what one program printed (str).

    Raises ValueError when there is none, or the program failed.
    """
    if re.search(r"^status: ", text, re.M):
        raise ValueError(text.strip().splitlines()[-1])
    if found := re.search(r"^Time: ([\d.]+)$", text, re.M):
        return GROUPS * PAIRS * LOOPS / float(found.group(1))
    # Name, operations, seconds of real, user and system time, then the
    # operations by real and by CPU time.
    if found := re.search(r"^stress-ng: (?:info|metrc): .*\] ([a-z]+)\s+"
                          r"(\d+)((?:\s+[\d.]+){5})\s*$", text, re.M):
        return float(found.group(3).split()[3])
    raise ValueError("it printed no figure")


def figures(output):
    """Return {workload: [figure, ...]} of what a guest printed (str).

    Raises Fail for a workload that did not come to its end.
    """
    found = {}
    for part in output.split("## ")[1:]:
        name, _, text = part.partition("\n")
        try:
            found.setdefault(name, []).append(figure(text))
        except ValueError as why:
            raise Fail(f"{name} failed: {why}") from None
    return found


def measure(tree, side, names, repeats, kvm):
    """Run the workloads on one kernel; returns what figures() does.

    Raises Fail when one of them fails, is missing, or the kernel complains.
    """
    result = boot(tree, script(names, repeats), cpus=1,
                  icount=None if kvm else "wait-idle", kvm=kvm,
                  timeout=GUEST_SECONDS, name=f"{NAME}-{side}")
    log = LOGS / f"{NAME}-{side}.log"
    write_atomically(log, result.output)
    try:
        found = figures(result.output)
        check_splat(result.console)
    except Fail as failure:
        raise Fail(f"on the {side} kernel, {failure}; see "
                   f"{shown_path(log)}") from None
    for name in names:
        if len(found.get(name, ())) != repeats:
            raise Fail(f"{name} ran {len(found.get(name, ()))} times on the "
                       f"{side} kernel and not {repeats}: see "
                       f"{shown_path(log)}")
    return found


def ratios(report):
    """Return {workload: series / base} (dict of float), by the medians."""
    base, series = (report["sides"][side][NAME] for side in SIDES)
    return {name: statistics.median(series[name])
            / statistics.median(base[name])
            for name in base if name in series}


def spread(values):
    """Return how far apart values (list of float) are, in percent."""
    return 100 * (max(values) - min(values)) / statistics.median(values)


def tables(report):
    """Return the comparison (Markdown lines, list of str) of a report."""
    base, series = (report["sides"][side][NAME] for side in SIDES)
    rows = [f"Throughput per second of the guest's clock, one CPU, median of "
            f"{report['repeats']}; in brackets, how far apart they are:", "",
            "| workload | unit | base | series | series / base |",
            "|---|---|---:|---:|---:|"]
    for name, value in ratios(report).items():
        rows.append(
            f"| {name} | {WORKLOADS[name][1]} " + "".join(
                f"| {statistics.median(side[name]):.0f} "
                f"({spread(side[name]):.1f} %) " for side in (base, series))
            + f"| {value:.3f} |")
    return rows


def run(names, repeats):
    """Measure both sides; returns the report (dict)."""
    trees = build_sides()
    kvm = choose_kvm(trees["base"])
    accel = "kvm" if kvm else "tcg"
    report = {"benchmark": NAME, "version": 1, "accel": accel,
              "repeats": repeats, "machine": bench.machine(),
              "date": datetime.datetime.now(datetime.timezone.utc)
              .isoformat(timespec="seconds"), "sides": {}}
    for side in SIDES:
        with stage(f"running hackbench and stress-ng on the {side} kernel "
                   f"({'KVM' if kvm else 'TCG, -icount'})"):
            report["sides"][side] = describe(trees[side]) | {
                NAME: measure(trees[side], side, names, repeats, kvm)}
    return report


def load(path):
    """Read a result of this script (dict) from a JSON file (Path)."""
    try:
        report = json.loads(path.read_text())
        tables(report)
    except (OSError, ValueError, KeyError, TypeError) as failure:
        raise Fail(f"{path} is not a result of 'make throughput': "
                   f"{failure!r}") from None
    return report


def main():
    parser = argparse.ArgumentParser(
        description=__doc__.split("\n\n")[0],
        epilog="ACCEL=tcg|kvm overrides the choice of the accelerator.")
    parser.add_argument("--repeats", type=int, default=3,
                        help="how often each one runs (default: 3)")
    parser.add_argument("--only", action="append", choices=list(WORKLOADS),
                        help="only this workload (may be repeated)")
    parser.add_argument("--at-least", type=float, metavar="RATIO",
                        help="fail when a workload has less of the base's "
                             "throughput than this, as 0.98")
    parser.add_argument("--show", type=Path, metavar="JSON",
                        help="measure nothing, show this result again")
    options = parser.parse_args()
    if options.repeats < 1:
        parser.error("--repeats takes 1 or more")
    if options.show:
        report = load(options.show)
    else:
        for tool, package in PACKAGES.items():
            need_tool(tool, package)
        with build_lock():
            report = run(options.only or list(WORKLOADS), options.repeats)
            path = RESULTS / f"{NAME}.json"
            write_atomically(path, json.dumps(report, indent=1) + "\n")
    say("\n" + bench.console_table(tables(report)) + "\n")
    if not options.show:
        say(f"written: {shown_path(path)}")
    low = {name: value for name, value in ratios(report).items()
           if options.at_least and value < options.at_least}
    if low:
        raise Fail(f"less than {options.at_least} of the base's throughput: "
                   + ", ".join(f"{name} {value:.3f}"
                               for name, value in low.items()))


if __name__ == "__main__":
    run_main(main)
