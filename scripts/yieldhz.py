#!/usr/bin/env python3
# SPDX-License-Identifier: GPL-2.0-only
"""Measure what sched_yield() does on kernels with a longer tick.

The same cases as in 'make bench', on the series with HZ=100 and HZ=250, with
its feature bits off and on in one boot.  With them off it does what the base
does ('make bench' has both).  A slice
of a tick or less is charged as on the base.
"""

import argparse
import json

import yieldbench
from bench import console_table
from common import (LOGS, RESULTS, build_lock, run_main, say, shown_path,
                    stage, write_atomically)
from guest import choose_kvm
from kernel import build_sides, describe

KERNELS = {100: "series_hz100", 250: "series_hz250"}


def measure(rates, only, seconds=None):
    """Measure kernels of these rates (ints, Hz); returns a report (dict).

    only: patterns (list of str) of cases; none for all.  seconds: how long
    the shortest of them takes (float), as the program's --seconds.
    """
    trees = build_sides([KERNELS[rate] for rate in rates])
    program = yieldbench.build_test(trees[KERNELS[rates[0]]])
    arguments = [word for name in only for word in ("--case", name)]
    if seconds:
        arguments += ["--seconds", str(seconds)]
    report = {"benchmark": yieldbench.TEST, "version": 1, "rates": {}}
    for rate in rates:
        tree = trees[KERNELS[rate]]
        with stage(f"measuring sched_yield() with HZ={rate}"):
            found = yieldbench.measure(tree, program, "series",
                                       choose_kvm(tree), arguments,
                                       name=KERNELS[rate])
        report["rates"][str(rate)] = {
            "sides": {"series": describe(tree) | found}}
    return report


def main():
    parser = argparse.ArgumentParser(
        description=__doc__.split("\n\n")[0],
        epilog="Builds a kernel for each HZ, 2 GB each.")
    parser.add_argument("--hz", type=int, choices=list(KERNELS),
                        action="append",
                        help="only this HZ (may be repeated)")
    parser.add_argument("--case", action="append", default=[],
                        help="only this case or pattern, 'polite-*' (may be "
                             "repeated)")
    parser.add_argument("--seconds", type=float,
                        help="how long the shortest case takes (default: as "
                             "in make bench); the longer, the less depends "
                             "on the phase of the ticks")
    options = parser.parse_args()
    LOGS.mkdir(parents=True, exist_ok=True)
    with build_lock():
        report = measure(options.hz or list(KERNELS), options.case,
                         options.seconds)
        RESULTS.mkdir(parents=True, exist_ok=True)
        path = RESULTS / "yield-hz.json"
        write_atomically(path, json.dumps(report, indent=1) + "\n")
    for rate, part in report["rates"].items():
        say(f"\nHZ={rate}\n\n"
            + console_table(yieldbench.tables(part)))
    say(f"\nwritten: {shown_path(path)}")


if __name__ == "__main__":
    run_main(main)
