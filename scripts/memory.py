#!/usr/bin/env python3
# SPDX-License-Identifier: GPL-2.0-only
"""Measure the memory that I/O bitmaps take on the base and the series kernel.

Boots both kernels with the same program, bench/ioperm_memory, which reads
what the slab allocator takes for the bitmaps of many tasks, and prints the
comparison.  `make bench` does the same and puts it into its result.
"""

import argparse
import json
import tempfile
from pathlib import Path

from common import (BUILD, LOGS, Fail, build_lock, run_main, say, shown_path,
                    stage, write_atomically)
from guest import boot, choose_kvm
from kernel import SIDES, build_sides
from programs import build_bench

TEST = "ioperm_memory"
TASKS = 1000
GUEST_SECONDS = 900
# What a case is called in the table.
CASES = {
    "port-0x80": "0x80",
    "port-65535": "65535",
    "below-0x400": "0 to 0x3ff",
    "every-line": "one in every line",
    "all": "all",
}


def build() -> Path:
    """Build the program; returns its path."""
    return build_bench(TEST, BUILD / "bench")


def measure(tree, program, side, kvm):
    """Run the program on one kernel.

    Returns what its --json wrote (dict).  Raises Fail when it fails,
    skips as a whole, or writes no JSON.
    """
    with tempfile.TemporaryDirectory(prefix="bench-", dir=BUILD) as place:
        report = Path(place) / "report.json"
        result = boot(tree, f"{program} --tasks {TASKS} --json {report}",
                      cpus=1, kvm=kvm, timeout=GUEST_SECONDS,
                      name=f"memory-{side}", share=Path(place))
        log = LOGS / f"memory-{side}.ktap"
        write_atomically(log, result.output)
        try:
            found = json.loads(report.read_text())
        except (OSError, ValueError):
            found = None
        if result.status != 0 or not found:
            raise Fail(f"{program.name} ended with status {result.status} on "
                       f"the {side} kernel; the end of its output, "
                       f"{shown_path(log)}:\n    "
                       + "\n    ".join(result.output.splitlines()[-12:]))
        return found


def kilobytes(case):
    """Return the slab growth of a case (dict) as text, in kB of 1024."""
    if case.get("unreclaimable") is None:
        return "skipped"
    return f"{case['unreclaimable'] // 1024} kB"


def tables(report):
    """Return the comparison as Markdown lines (list of str).

    report: what bench.py writes (dict).  Without the figures of both sides
    there is no table.
    """
    sides = [report["sides"][side].get(TEST) for side in SIDES]
    if None in sides:
        return []
    base, series = ({case["name"]: case for case in side["cases"]}
                    for side in sides)
    rows = ["", f"Slab growth when {sides[1].get('tasks')} tasks enable these "
            "ports, each for itself, and the size in bytes of the object that "
            "one bitmap takes:", "",
            "| ports of each task | base | series | series / base "
            "| object, base | object, series |",
            "|---|---:|---:|---:|---:|---:|"]
    for name, title in CASES.items():
        if name not in base or name not in series:
            continue
        a, b = base[name], series[name]
        before, after = a.get("unreclaimable"), b.get("unreclaimable")
        ratio = f"{after / before:.3f}" if before and after is not None \
            else "-"
        rows.append(f"| {title} | {kilobytes(a)} | {kilobytes(b)} | {ratio} "
                    f"| {a.get('object') or '-'} | {b.get('object') or '-'} |")
    return rows


def main():
    # bench.py imports this file, and what it has is needed only here.
    import bench
    argparse.ArgumentParser(
        description=__doc__.split("\n\n")[0],
        epilog="ACCEL=tcg|kvm overrides the choice of the accelerator."
    ).parse_args()
    with build_lock():
        trees = build_sides()
        kvm = choose_kvm(trees["base"])
        program = build()
        report = {"sides": {}}
        for side in SIDES:
            with stage(f"measuring memory on the {side} kernel"):
                report["sides"][side] = {
                    TEST: measure(trees[side], program, side, kvm)}
    say(bench.console_table(tables(report)))


if __name__ == "__main__":
    run_main(main)
