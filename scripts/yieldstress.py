#!/usr/bin/env python3
# SPDX-License-Identifier: GPL-2.0-only
"""Yield for long on the debug kernel, in as many ways as there are.

The kernel has KASAN, UBSAN and lockdep.  stress-ng's stressors yield, switch,
wait and sockpair run beside yielders of other policies, of nice levels and in
a throttled cgroup, hackbench, and yield_latency, which sets custom slices:
while a CPU goes off- and online, and for a fifth of that time in a guest whose
CPUs are the threads of one core and which has two cookies of core scheduling.
Each program has to come to its end, and the console must have no splat.

Not both at once: a CPU is in its sibling's mask before
sched_core_cpu_starting() has made them share a lock, so the sibling picks for
it without its lock, and lockdep says so; with the feature bits off, too.  The
bits stay as they are: a guest with two CPUs under QEMU 7.2's TCG may die of
the breakpoint (int3) that patching code which both of them run puts there for
a moment.
"""

import argparse
import re

import yieldbench
from check import Tally, check_splat
from common import (LOGS, Fail, build_lock, need_tool, run_main, say,
                    shown_path, stage, write_atomically)
from guest import boot, choose_kvm
from kernel import build_sides
from throughput import PACKAGES

NAME = "yield-stress"
BOOT_SECONDS = 900
# A SCHED_IDLE task beside twenty others has its turn every twenty seconds, and
# may have been preempted where RCU waits for it.
STALL = "rcupdate.rcu_cpu_stall_timeout=300"
# Each is a shell loop or program that ends by itself after {seconds}.  Those
# of LIGHT come first and have some time to start: beside the others they
# hardly get the CPU, with the base's sched_yield() as well.
LIGHT = ("nice", "idle")
LIGHT_SECONDS = 20
# How long before a CPU goes offline for the first time.
CALM_SECONDS = 90
STRESS = "stress-ng --temp-path /tmp --timeout {seconds}s --metrics-brief"
# A cookie of its own for what comes after it: prctl(PR_SCHED_CORE,
# PR_SCHED_CORE_CREATE, ...).
COOKIE = ("python3 -c 'import ctypes, os, sys; "
          "ctypes.CDLL(None).prctl(62, 1, 0, 0, 0) and "
          "sys.exit(\"no core scheduling\"); "
          "os.execvp(sys.argv[1], sys.argv[1:])' ")
PARTS = {
    "nice": "nice -n 19 " + STRESS + " --yield 1",
    "idle": "chrt --idle 0 " + STRESS + " --yield 1",
    "stress-ng": STRESS + " --yield 4 --switch 2 --wait 2 --sockpair 1",
    "batch": "chrt --batch 0 " + STRESS + " --yield 1",
    "fifo": "chrt --fifo 1 " + STRESS + " --cpu 1 --cpu-load 20",
    "throttled": "echo 0 >/sys/fs/cgroup/throttled/cgroup.procs && "
                 + STRESS + " --yield 2",
    "core-1": COOKIE + STRESS + " --yield 2 --sockpair 1",
    "core-2": COOKIE + STRESS + " --yield 1 --switch 1",
    "hackbench": "while [ $(date +%s) -lt $end ]; do "
                 "hackbench -g 1 -l 20 || exit 1; done",
    # Its own watchdog takes what is this slow for a hang: it gets its share.
    "yield_latency": "echo 0 >/sys/fs/cgroup/heavy/cgroup.procs && "
                     "while [ $(date +%s) -lt $end ]; do {program} "
                     "--cpu 0 --seconds 0.02 --rounds 500 --storm 0.1 "
                     "|| exit 1; done",
    # While it starts, stress-ng 0.15 reads about each CPU in /sys. When that
    # fails, as a CPU goes offline, it zeroes buffer[-errno] on its stack.
    "hotplug": "sleep {calm}; while [ $(date +%s) -lt $end ]; do "
               "echo 0 >/sys/devices/system/cpu/cpu1/online || exit 1; "
               "sleep 1; echo 1 >/sys/devices/system/cpu/cpu1/online || "
               "exit 1; sleep 2; done",
}
# What is left out, of how long.
GUESTS = {"hotplug": (("core-1", "core-2"), 1),
          "core scheduling": (("hotplug",), 5)}
SCRIPT = """\
mount -t cgroup2 none /sys/fs/cgroup 2>/dev/null
echo +cpu >/sys/fs/cgroup/cgroup.subtree_control
mkdir -p /sys/fs/cgroup/throttled /sys/fs/cgroup/heavy
echo 1000 >/sys/fs/cgroup/heavy/cpu.weight || echo "no cgroup"
echo "20000 100000" >/sys/fs/cgroup/throttled/cpu.max || echo "no cgroup"
end=$(($(date +%s) + {seconds}))
{parts}
wait
grep . /sys/kernel/debug/sched/features
"""


def parts_of(guest):
    """Return the parts ({name: command}) of one of GUESTS."""
    return {name: command for name, command in PARTS.items()
            if name not in GUESTS[guest][0]}


def script(program, seconds, guest):
    """Return the shell commands (str) of one of GUESTS."""
    parts = "\n".join(
        "( ( " + command.format(seconds=seconds, program=program,
                                calm=min(CALM_SECONDS, seconds // 4))
        + f" ) >/tmp/{name}.out 2>&1; s=$?; "
        # What it printed and its end are one write, or others get between.
        f"{{ sed 's/^/{name}: /' /tmp/{name}.out >/tmp/{name}.said; "
        f"grep 'not ok' /tmp/{name}.said; tail -n 40 /tmp/{name}.said; "
        f"echo \"@@ end {name} $s\"; }} >/tmp/{name}.all; "
        f"cat /tmp/{name}.all ) &"
        + (f"\nsleep {LIGHT_SECONDS}" if name == LIGHT[-1] else "")
        for name, command in parts_of(guest).items())
    return SCRIPT.format(seconds=seconds, parts=parts)


def judge(tally, output, guest):
    """Count what each part came to, in what one of GUESTS printed (str)."""
    ends = dict(re.findall(r"@@ end ([\w-]+) (\d+)$", output, re.M))
    for name in parts_of(guest):
        title = f"{guest}: {name}"
        if name not in ends:
            tally.fail(title, "it did not end")
        elif ends[name] != "0":
            said = re.findall(rf"^{name}: (.*)$", output, re.M)
            tally.fail(title, f"exit status {ends[name]}: "
                       + (said[-1] if said else "it said nothing"))
        else:
            tally.ok(title)
    yields = yielded(output)
    if yields:
        tally.ok(f"{guest}: {yields} calls of sched_yield()")
    else:
        tally.fail(f"{guest}: calls of sched_yield()", "none were counted")
    if "no cgroup" in output:
        tally.fail(f"{guest}: throttling", "cpu.max cannot be set")


def yielded(output):
    """Return how many yields stress-ng counted (int)."""
    return sum(map(int, re.findall(r"\] yield +(\d+) ", output)))


def run(tally, guest, tree, program, seconds, cpus):
    """Boot one of GUESTS on a debug kernel's tree and count what it shows."""
    name = f"{NAME}-{guest.replace(' ', '-')}"
    try:
        with stage(f"yields on {cpus} CPUs, {guest}, {seconds} s"):
            result = boot(tree, script(program, seconds, guest), cpus=cpus,
                          memory="2G", qemu=f"-smp {cpus},threads=2",
                          kvm=choose_kvm(tree), name=name,
                          timeout=seconds * 3 + BOOT_SECONDS,
                          append=("no5lvl", STALL))
    except Fail as failure:
        tally.fail(guest, failure)
        return
    log = LOGS / f"{name}.out"
    write_atomically(log, result.output)
    judge(tally, result.output, guest)
    tally.run(f"{guest}: no splat with KASAN, UBSAN and lockdep", check_splat,
              result.console)
    say(f"    all of it: {shown_path(log)}, the console: "
        f"{shown_path(result.console)}")


def main():
    parser = argparse.ArgumentParser(description=__doc__.split("\n\n")[0])
    parser.add_argument("--seconds", type=int, default=600,
                        help="how long (default: 600)")
    parser.add_argument("--cpus", type=int, default=2,
                        help="CPUs of the guest (default: 2)")
    options = parser.parse_args()
    if options.cpus < 2 or options.cpus % 2:
        raise Fail("two threads to a core, one of which goes offline: use "
                   "--cpus 2 or another even number")
    for tool, package in PACKAGES.items():
        need_tool(tool, package)
    with build_lock():
        tree = build_sides(("debug",))["debug"]
        program = yieldbench.build_test(tree)
        tally = Tally()
        for guest, (_, divisor) in GUESTS.items():
            run(tally, guest, tree, program,
                max(options.seconds // divisor, 1), options.cpus)
    say(f"{tally.passed} passed, {tally.failed} failed, "
        f"{tally.skipped} skipped")
    return 1 if tally.failed or not tally.passed else 0


if __name__ == "__main__":
    run_main(main)
