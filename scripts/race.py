#!/usr/bin/env python3
# SPDX-License-Identifier: GPL-2.0-only
"""Look for the window in which another task gets dropped ports, for longer.

ioperm_drop_race on base and series: with one CPU in a guest whose clock
counts instructions and skips idle time, and with two CPUs, between which the
tasks migrate.  The window is one instruction, and an emulator interrupts
between blocks of them only; so with two CPUs the base, and the series for a
part of its wake-ups, run in a guest that emulates one instruction at a time.

The base must be hit in each case, or nothing is proven; the series must not.
Results are kept for a kernel and its test, so a second run goes on where the
first stopped.
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
from mutants import compiler, digest, source_key

NAME = "ioperm_drop_race"
SELFTESTS = "tools/testing/selftests/x86"
CASES = ("last-port", "unshare", "iopl", "exit")
WAKES = 200000
# As many when one instruction is emulated at a time: four times what the base
# takes for a hit in the case that takes longest, unshare.
STEPPED = 20000
SEEDS = 12
REPORT = RESULTS / "race.json"
# Wake-ups each second, on two cores of 2024; only for the time limit.
RATE = 25
BOOT_SECONDS = 300
# A byte of "rep movsb" is an instruction here, and copying 8 KB most of a
# drop on the base: an observer would seldom come at the window.
SHORT_COPY = "-cpu max,-erms,-fsrm"


def single_step():
    """Return QEMU's options (str) to emulate one instruction at a time.

    Raises Fail when this QEMU has none that virtme-ng can pass on.
    """
    words = subprocess.run(["qemu-system-x86_64", "-help"], text=True,
                           capture_output=True).stdout
    if not re.search(r"^-singlestep\b", words, re.M):
        raise Fail("this QEMU has no -singlestep (it went with QEMU 10): "
                   "two CPUs can be looked at with an older one; use "
                   "--only 1")
    return f"{SHORT_COPY} -singlestep"


def command(program, side, case, wakes, seed):
    """Return the guest's shell command (str) for a case.

    On the base a case is tried with one seed after the other until it hits.
    """
    if side == "series":
        return f"{program} --case {case} --seed {seed} --wakes {wakes}; true"
    seeds = " ".join(str(seed + i) for i in range(SEEDS))
    return (f"for s in {seeds}; do {program} --case {case} --seed $s "
            f"--wakes {max(wakes // 8, 1)} || break; done; true")


def read_hits(text, case):
    """Return (wakes, hits) of a case in what the program printed (str)."""
    counts = re.findall(rf"^# {case}: CPU \d+: wakes (\d+) hits (\d+)$",
                        text, re.M)
    return (sum(int(wakes) for wakes, _ in counts),
            sum(int(hits) for _, hits in counts))


def judge(side, wakes, hits, wanted):
    """Return what is wrong (str), or "" when nothing is."""
    if not wakes:
        return "did not run"
    if side == "base":
        return "" if hits else "not hit, although the window is there"
    if hits:
        return "hit"
    return "" if wakes >= wanted else "did not run to its end"


class Part:
    """A kind of guest: title (str), cpus, sides, wakes of a case (int).

    icount and qemu are what boot() takes.
    """

    def __init__(self, title, cpus, wakes, sides=SIDES, icount=None, qemu=""):
        self.title = title
        self.cpus = cpus
        self.wakes = wakes
        self.sides = sides
        self.icount = icount
        self.qemu = qemu

    def cases(self):
        """Return the names (list of str) of the test's cases."""
        return [case + ("-migrate" if self.cpus == 2 else "")
                for case in CASES]


def parts(options):
    """Return what is to be run (list of Part)."""
    found = []
    if options.only != 2:
        found.append(Part("1 CPU", 1, options.wakes, icount="skip-idle"))
    if options.only != 1:
        found.append(Part("2 CPUs, single steps", 2, options.stepped,
                          qemu=single_step()))
        found.append(Part("2 CPUs", 2, options.wakes, ("series",)))
    return found


def run_case(part, side, case, tree, program, seed):
    """Run a case of a Part on a side; returns what it found (dict)."""
    # Each CPU has an observer.
    wakes = -(-part.wakes // part.cpus)
    name = re.sub(r"\W+", "-", f"race-{side}-{part.title}-{case}").lower()
    with stage(f"{case} on {side}, {part.title}"):
        result = boot(tree, command(program, side, case, wakes, seed),
                      cpus=part.cpus, icount=part.icount, qemu=part.qemu,
                      timeout=BOOT_SECONDS + part.wakes // RATE, name=name)
    log = LOGS / f"{name}.ktap"
    write_atomically(log, result.output)
    done, hits = read_hits(result.output, case)
    why = judge(side, done, hits, part.wakes)
    return {"guest": part.title, "side": side, "case": case, "wakes": done,
            "hits": hits, "wrong": why and f"{why}; see {shown_path(log)}"}


def load(key):
    """Return the rows (list of dict) that are known for this key."""
    try:
        known = json.loads(REPORT.read_text())
    except (OSError, ValueError):
        return []
    return known["rows"] if known.get("key") == key else []


def look(wanted, seed):
    """Run all cases of some Parts; returns what each found (list of dict)."""
    trees = build_sides(SIDES)
    program = bench.build_test(trees["series"], name=NAME)
    commit = git("rev-parse", "applied", cwd=REPO).strip()
    key = digest(source_key(commit), compiler(), str(seed), *(
        git("rev-parse", f"{commit}:{SELFTESTS}/{file}", cwd=REPO)
        for file in (f"{NAME}.c", "ioport_helper.h")))
    known, rows = load(key), []
    for part in wanted:
        for side in part.sides:
            for case in part.cases():
                row = next((row for row in known if not row["wrong"]
                            and (row["guest"], row["side"], row["case"])
                            == (part.title, side, case)
                            and (row["hits"] or row["wakes"] >= part.wakes)),
                           None)
                if not row:
                    row = run_case(part, side, case, trees[side], program,
                                   seed)
                    known.append(row)
                    write_atomically(REPORT, json.dumps(
                        {"key": key, "series": commit, "seed": seed,
                         "rows": known}, indent=1) + "\n")
                say(f"    {'FAIL' if row['wrong'] else 'ok':4}  {case} on "
                    f"{side}, {part.title}: {row['hits']} hits in "
                    f"{row['wakes']} wake-ups"
                    + (f": {row['wrong']}" if row["wrong"] else ""))
                rows.append(row)
    return rows


def main():
    parser = argparse.ArgumentParser(
        description=__doc__.split("\n\n")[0])
    parser.add_argument("--wakes", type=int, default=WAKES,
                        help="wake-ups of the observer in each case on the "
                             f"series (default: {WAKES})")
    parser.add_argument("--stepped", type=int, default=STEPPED,
                        help="as many where one instruction is emulated at a "
                             f"time (default: {STEPPED})")
    parser.add_argument("--seed", type=int, default=1, help="default: 1")
    parser.add_argument("--only", type=int, choices=(1, 2),
                        help="only the guests with so many CPUs")
    options = parser.parse_args()
    for name in ("wakes", "stepped"):
        if getattr(options, name) < 1000:
            raise Fail(f"--{name}: at least 1000 are needed")
    with build_lock():
        rows = look(parts(options), options.seed)
    wrong = sum(bool(row["wrong"]) for row in rows)
    say(f"all of it: {shown_path(REPORT)}")
    say(f"{len(rows) - wrong} passed, {wrong} failed, 0 skipped")
    return 1 if wrong or not rows else 0


if __name__ == "__main__":
    run_main(main)
