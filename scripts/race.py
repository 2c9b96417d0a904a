#!/usr/bin/env python3
# SPDX-License-Identifier: GPL-2.0-only
"""Look for the window in which another task gets dropped ports, for longer.

ioperm_drop_race on base and series: with one CPU in a guest whose clock
counts instructions and skips idle time, and with two CPUs, between which the
tasks migrate, in a guest that emulates one instruction at a time: the window
is one instruction, and whole blocks of them are never interrupted.

The base must be hit in each case, or nothing is proven; the series must not.
"""

import argparse
import json
import re
import subprocess

import bench
from base import REPO
from common import (LOGS, RESULTS, Fail, build_lock, git, run_main, say,
                    shown_path, stage, write_atomically)
from guest import boot
from kernel import SIDES, build_sides

NAME = "ioperm_drop_race"
CASES = ("last-port", "unshare", "iopl", "exit")
WAKES = 200000
SEEDS = 12
REPORT = RESULTS / "race.json"
# Wake-ups each second, on two cores of 2024; only for the time limit.
RATE = 100
BOOT_SECONDS = 300


def single_step():
    """Return QEMU's option (str) to emulate one instruction at a time.

    Raises Fail when this QEMU has none that virtme-ng can pass on.
    """
    words = subprocess.run(["qemu-system-x86_64", "-help"], text=True,
                           capture_output=True).stdout
    if not re.search(r"^-singlestep\b", words, re.M):
        raise Fail("this QEMU has no -singlestep (it went with QEMU 10): "
                   "two CPUs can be looked at with an older one; use "
                   "--only 1")
    return "-singlestep"


def command(program, side, cases, wakes, seed):
    """Return the guest's shell command (str) for some cases.

    On the base a case is tried with one seed after the other until it hits.
    """
    if side == "series":
        return "; ".join(f"{program} --case {case} --seed {seed} "
                         f"--wakes {wakes}" for case in cases) + "; true"
    seeds = " ".join(str(seed + i) for i in range(SEEDS))
    return (f"for c in {' '.join(cases)}; do for s in {seeds}; do {program} "
            f"--case $c --seed $s --wakes {max(wakes // 8, 1)} || break; "
            "done; done; true")


def read_hits(text, cases):
    """Return {case: (wakes, hits)} of what the program printed (str)."""
    found = {}
    for case in cases:
        counts = re.findall(rf"^# {case}: CPU \d+: wakes (\d+) hits (\d+)$",
                            text, re.M)
        found[case] = (sum(int(wakes) for wakes, _ in counts),
                       sum(int(hits) for _, hits in counts))
    return found


def judge(side, wakes, hits, wanted):
    """Return what is wrong (str), or "" when nothing is."""
    if not wakes:
        return "did not run"
    if side == "base":
        return "" if hits else "not hit, although the window is there"
    if hits:
        return "hit"
    return "" if wakes >= wanted else "did not run to its end"


def main():
    parser = argparse.ArgumentParser(
        description=__doc__.split("\n\n")[0])
    parser.add_argument("--wakes", type=int, default=WAKES,
                        help="wake-ups of the observer in each case on the "
                             f"series (default: {WAKES})")
    parser.add_argument("--seed", type=int, default=1, help="default: 1")
    parser.add_argument("--only", type=int, choices=(1, 2),
                        help="only the guest with so many CPUs")
    options = parser.parse_args()
    if options.wakes < 1000:
        raise Fail("--wakes: at least 1000 are needed")
    rows, wrong = [], 0
    with build_lock():
        trees = build_sides(SIDES)
        program = bench.build_test(trees["series"], name=NAME)
        for cpus in (1, 2):
            if options.only not in (None, cpus):
                continue
            cases = [case + ("-migrate" if cpus == 2 else "")
                     for case in CASES]
            # Each CPU has an observer.
            wakes = -(-options.wakes // cpus)
            for side in SIDES:
                with stage(f"{NAME} on {side}, {cpus} CPU"
                           f"{'s' if cpus > 1 else ''}"):
                    result = boot(
                        trees[side],
                        command(program, side, cases, wakes, options.seed),
                        cpus=cpus, icount="skip-idle" if cpus == 1 else None,
                        qemu="" if cpus == 1 else single_step(),
                        timeout=BOOT_SECONDS + 4 * wakes // RATE,
                        name=f"race-{side}-{cpus}")
                log = LOGS / f"race-{side}-{cpus}.ktap"
                write_atomically(log, result.output)
                for case, (done, hits) in read_hits(result.output,
                                                    cases).items():
                    why = judge(side, done, hits, wakes * cpus)
                    wrong += bool(why)
                    rows.append({"cpus": cpus, "side": side, "case": case,
                                 "wakes": done, "hits": hits, "wrong": why})
                    say(f"    {'FAIL' if why else 'ok':4}  {case} on {side}: "
                        f"{hits} hits in {done} wake-ups"
                        + (f": {why}; see {shown_path(log)}" if why else ""))
    write_atomically(REPORT, json.dumps(
        {"series": git("rev-parse", "applied", cwd=REPO).strip(),
         "seed": options.seed, "rows": rows}, indent=1) + "\n")
    say(f"all of it: {shown_path(REPORT)}")
    say(f"{len(rows) - wrong} passed, {wrong} failed, 0 skipped")
    return 1 if wrong or not rows else 0


if __name__ == "__main__":
    run_main(main)
