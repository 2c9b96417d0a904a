#!/usr/bin/env python3
# SPDX-License-Identifier: GPL-2.0-only
"""Run random I/O permissions against a model for long, on the debug kernel.

The kernel has KASAN, UBSAN, lockdep, kmemleak and failslab.  ioperm_random, a
program of bench/, does ioperm, iopl, fork, threads, exec, exit and moves at
random, while CPUs go off- and online and allocations fail.  Every access has
to agree with the model, the console must have no splat, and kmemleak must find
nothing.  The last line counts; what may be skipped is nothing.
"""

import argparse
import re
import time

from check import Tally, check_splat
from common import (BUILD, LOGS, Fail, build_lock, run_main, say, shown_path,
                    stage, write_atomically)
from guest import boot, choose_kvm
from kernel import build_sides
from programs import build_bench

TEST = "ioperm_random"
RESULTS = ("accesses", "bitmaps", "calls", "tasks", "hotplug", "failslab")
# A loaded machine may take minutes to boot the debug kernel under emulation.
BOOT_SECONDS = 900
# kmemleak takes an object for a leak only some seconds after its allocation,
# and a pointer that is on the move can hide from one scan.
SCRIPT = """\
leak=/sys/kernel/debug/kmemleak
echo clear >$leak
{program} --seconds {seconds} --seed {seed} --hotplug --failslab
echo "status: $?"
sleep 6
echo scan >$leak
sleep 6
echo scan >$leak
echo "leaks:"
cat $leak || echo "kmemleak cannot be read"
echo "end of leaks"
"""


def judge(tally, output):
    """Count the results in what the guest printed (str)."""
    found = {name: (verdict, rest) for verdict, name, rest in re.findall(
        r"^(ok|not ok) \d+ (\w+)(.*)$", output, re.M)}
    # A skip has its reason behind the name: `ok 6 # SKIP failslab: why`.
    skipped = dict(re.findall(r"^ok \d+ # SKIP (\w+): (.*)$", output, re.M))
    for name in RESULTS:
        title = f"{TEST}: {name}"
        if name in skipped:
            tally.skip(title, skipped[name])
        elif name not in found:
            tally.fail(title, "no result")
        elif found[name][0] == "ok":
            tally.ok(title)
        else:
            tally.fail(title, "see what it printed")
    ended = re.search(r"^status: (\d+)$", output, re.M)
    title = f"{TEST}: comes to its end"
    if ended and ended.group(1) == "0":
        tally.ok(title)
    else:
        tally.fail(title, f"status {ended.group(1)}" if ended else "no status")
    leaks = re.search(r"^leaks:\n(.*)^end of leaks$", output, re.M | re.S)
    title = "kmemleak: nothing leaked"
    if not leaks:
        tally.fail(title, "it did not run")
    elif leaks.group(1).strip():
        tally.fail(title, leaks.group(1).strip().splitlines()[0])
    else:
        tally.ok(title)


def figures(output):
    """Return what ioperm_random says that it did (list of str)."""
    notes = re.findall(r"^# (?:seed .*|MISMATCH .*|.*\btask \d+ depth .*|"
                       r"  \d+: tid .*)$", output, re.M)
    return notes + re.findall(r"^# \d+ s: .*$", output, re.M)[-2:]


def main():
    parser = argparse.ArgumentParser(description=__doc__.split("\n\n")[0])
    parser.add_argument("--seconds", type=int, default=600,
                        help="how long (default: 600)")
    parser.add_argument("--cpus", type=int, default=2,
                        help="CPUs of the guest (default: 2)")
    parser.add_argument("--seed", type=int, default=int(time.time()),
                        help="start of the random numbers (default: the time)")
    options = parser.parse_args()
    if options.cpus < 2:
        raise Fail("one CPU cannot go offline: use --cpus 2 or more")
    with build_lock():
        tree = build_sides(("debug",))["debug"]
        program = build_bench(TEST, BUILD / "bench")
        script = SCRIPT.format(program=program, seconds=options.seconds,
                               seed=options.seed)
        tally = Tally()
        with stage(f"{TEST} on {options.cpus} CPUs, {options.seconds} s, "
                   f"seed {options.seed}"):
            # KASAN reports an address of the interrupt code early in a boot
            # with five page table levels, which QEMU's largest processor has.
            result = boot(tree, script, cpus=options.cpus, memory="2G",
                          kvm=choose_kvm(tree), name="stress",
                          timeout=options.seconds * 2 + BOOT_SECONDS,
                          append=("no5lvl",))
        write_atomically(LOGS / "stress.ktap", result.output)
        for row in figures(result.output):
            say(f"    {row}")
        judge(tally, result.output)
        tally.run("no splat with KASAN, UBSAN and lockdep", check_splat,
                  result.console)
    say(f"all of it: {shown_path(LOGS / 'stress.ktap')}, the console: "
        f"{shown_path(result.console)}")
    say(f"{tally.passed} passed, {tally.failed} failed, "
        f"{tally.skipped} skipped")
    return 1 if tally.failed or tally.skipped or not tally.passed else 0


if __name__ == "__main__":
    run_main(main)
