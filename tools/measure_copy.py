# SPDX-License-Identifier: GPL-2.0-only
"""Time the copy of an I/O bitmap on base and series, in cycles.

Takes the function that copies and what it calls out of each kernel tree,
compiles both as one user-space program with the kernel's flags (bench/
copycost.c), checks that they copy correctly, and times them warm, with L1
displaced and with L2 displaced.
"""

import os
import re
import statistics
import subprocess
from collections import defaultdict
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from tools.build import BENCH, make_environment
from tools.core import SIDES, Fail, Kernel, need_tool, run_logged, scratch
from tools.figures import Samples

COPY = "copycost"
# Which cache sets the pages of a process share is chance: several processes.
RUNS, ROUNDS = 10, 200
SECONDS = 600
# Where the function is.
SOURCE, FUNCTION = "arch/x86/kernel/process.c", "tss_copy_io_bitmap"
HEADERS = ("arch/x86/include/asm/processor.h",
           "arch/x86/include/asm/io_bitmap.h")
# What it works on. Each side has its own.
STRUCTS = ("x86_io_bitmap_slot", "x86_io_bitmap", "io_bitmap", "tss_struct")
STATES = {"warm": "warm", "l1": "L1 displaced", "l2": "L2 displaced"}


def functions(text: str, name: str) -> list[str]:
    """Return a function of a C file and what it uses of it, in order.

    That are functions, to a brace in column 0, and constants.
    """
    found: dict[str, re.Match] = {}
    wanted = [name]
    while wanted:
        one = wanted.pop()
        match = re.search(
            rf"^[A-Za-z_](?:[\w \t*]|\n(?=[A-Za-z_]))*?\b{one}"
            r"\([^;{}]*\)\s*^\{$.*?^\}$", text, re.M | re.S) or re.search(
                rf"^static const [^;(]*?\b{one}\b[^;]*;$", text, re.M)
        if match and one not in found:
            found[one] = match
            wanted += re.findall(r"\b(?:io_bitmap_\w+|[A-Za-z_]\w*(?=\())",
                                 match.group())
    if not found:
        raise Fail(f"there is no function {name}() to be timed: is the "
                   "series applied?")
    return [match.group() for match in
            sorted(found.values(), key=re.Match.start)]


def extract(side: str, tree: Path) -> str:
    """Return what a side copies with, as C for copycost.c."""
    headers = "\n".join((tree / header).read_text() for header in HEADERS)
    parts = re.findall(r"^#[ \t]*define[ \t]+IO_BITMAP_(?:.*\\\n)*.*$",
                       headers, re.M)
    parts += [row for tag in STRUCTS for row in re.findall(
        rf"^struct {tag} \{{$.*?^\}}[^;\n]*;", headers, re.M | re.S)]
    # The structure in the TSS is a part of the others.
    parts += functions((tree / SOURCE).read_text(), FUNCTION)
    return re.sub(rf"\b(struct (?:{'|'.join(STRUCTS)})|tss_\w+_io_bitmap)\b",
                  rf"\1_{side}", "\n\n".join(parts)) + "\n"


def cpuinfo(name: str) -> str:
    """Return a field of /proc/cpuinfo."""
    found = re.search(rf"^{name}\s*: (.*)$",
                      Path("/proc/cpuinfo").read_text(), re.M)
    return found.group(1) if found else "unknown"


def cache(name: str, common: int) -> int:
    """Return the size of a cache; of one that is not said, or is nonsense, as
    some hypervisors say it, a common one."""
    said = subprocess.run(["getconf", name], capture_output=True,
                          text=True).stdout.strip()
    return int(said) if said.isdigit() and 4096 <= int(said) <= 1 << 30 \
        else common


def machine() -> dict[str, Any]:
    """Return what the figures depend on; the last CPU is used."""
    flags = cpuinfo("flags").split()
    return {"cpu": cpuinfo("model name"),
            "cpu_number": max(os.sched_getaffinity(0)),
            "l1d_bytes": cache("LEVEL1_DCACHE_SIZE", 48 << 10),
            "l2_bytes": cache("LEVEL2_CACHE_SIZE", 2 << 20),
            "virtual": "hypervisor" in flags,
            "fsrm": "fsrm" in flags, "fsrs": "fsrs" in flags}


def summary(text: str) -> dict[str, list[dict[str, Any]]]:
    """Return the cases of each side, in cycles, of what copycost wrote.

    That is per copy, without the empty call.  The rounds time the one and the
    other task in turn: the mean of both medians is taken.
    """
    samples: dict[tuple[str, ...], list[float]] = defaultdict(list)
    for line in text.splitlines():
        *key, calls, ticks = line.split()
        samples[tuple(key)].append(int(ticks) / int(calls))
    middle = {key: (statistics.median(ticks[::2])
                    + statistics.median(ticks[1::2])) / 2
              for key, ticks in samples.items()}
    return {side: [{"name": case, "status": "ok"} | {
        state: round(max(0, middle[case, side, state]
                         - middle[case, "nothing", state]), 1)
        for state in STATES} for case in dict.fromkeys(
            key[0] for key in middle)] for side in SIDES}


def measure_copy(kernel: Kernel, trees: dict[str, Path],
                 rounds: int = ROUNDS) -> dict[str, Any]:
    """Check and time the copies of both sides; return their results.

    trees: {side: source tree}.  rounds: samples of each figure in each of
    several processes.  Raises Fail when a function is not found, does not
    compile or copies wrongly; never because of a time.
    """
    need_tool("gcc", "build-essential")
    here, log = machine(), kernel.logs / "copycost.log"
    # As many TSSs as stay in L2, with their tasks, while L1 is displaced.
    room = here["l2_bytes"] * 3 // 4 - 4 * here["l1d_bytes"]
    areas, text = min(max(room // 25600, 1), 16), ""
    with scratch("copycost") as place:
        program = place / "copycost"
        program.with_suffix(".h").write_text(
            "".join(extract(side, trees[side]) for side in SIDES))
        run_logged(["make", "-C", str(BENCH), f"OUTPUT={place}", str(program)],
                   log, env=make_environment(),
                   what="compiling the copies in user space")
        for _ in range(RUNS):
            run_logged(["taskset", "-c", *map(str, (
                here["cpu_number"], program, here["l1d_bytes"],
                here["l2_bytes"], areas, rounds))], log, timeout=SECONDS,
                what="the test of the copies")
            text += log.read_text()
    return {side: {"rounds": RUNS * rounds, "areas": areas, "cases": cases}
            for side, cases in summary(text).items()}


def tables(samples: Samples, here: dict[str, Any]) -> Iterator[str]:
    """Yield the copies of both sides as Markdown; here: the machine."""
    yield from (
        "", "The copy of the bitmap alone, in user space, which the series "
        "makes only when three or more tasks with ports run in turn. Cycles "
        f"of the TSC of {here['cpu']}"
        f"{' (a virtual machine)' if here['virtual'] else ''}, L1d "
        f"{here['l1d_bytes'] >> 10} KB, L2 {here['l2_bytes'] >> 10} KB, "
        f"{'FSRM' if here['fsrm'] else 'no FSRM'} and "
        f"{'FSRS' if here['fsrs'] else 'no FSRS'}; medians of "
        f"{RUNS * ROUNDS} samples in {RUNS} processes:", "",
        *samples.sides(COPY, "cycles, by the ports of the two tasks", {
            state: f"{words}: " for state, words in STATES.items()}))
