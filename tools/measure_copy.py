# SPDX-License-Identifier: GPL-2.0-only
"""Time the copy of an I/O bitmap on base and series, in cycles.

Takes the function that copies and what it calls out of each kernel tree,
compiles both as one user-space program with the kernel's flags (copycost.c),
checks that they copy correctly, and times them warm, with L1 displaced and
with L2 displaced.
"""

import os
import re
import statistics
import subprocess
from collections import defaultdict
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from tools.core import (LOGS, ROOT, SIDES, Fail, need_tool, run_logged,
                        scratch)
from tools.measure_ports import label
from tools.tables import numbers, ratio, table

# Which cache sets the pages of a process share is chance: several processes.
RUNS, ROUNDS = 10, 200
SECONDS = 600
# Where the function is.
SOURCE, FUNCTION = "arch/x86/kernel/process.c", "tss_copy_io_bitmap"
HEADERS = ("arch/x86/include/asm/processor.h",
           "arch/x86/include/asm/io_bitmap.h")
# What it works on. Each side has its own.
STRUCTS = ("x86_io_bitmap_slot", "x86_io_bitmap", "io_bitmap", "tss_struct")
# The kernel's, as far as they change the code of these functions. popcnt is
# for the builtin only, which the kernel patches in.
FLAGS = ["-std=gnu11", "-O2", "-m64", "-march=x86-64", "-mtune=generic",
         "-mpopcnt", "-mgeneral-regs-only", "-mno-red-zone",
         "-fno-strict-aliasing", "-fno-strict-overflow",
         "-fno-delete-null-pointer-checks", "-fomit-frame-pointer",
         "-fno-stack-protector", "-fno-jump-tables", "-fcf-protection=none",
         "-fno-pie", "-no-pie", "-fconserve-stack", "-falign-functions=16",
         "-falign-jumps=1", "-falign-loops=1", "-U_FORTIFY_SOURCE", "-Wall",
         "-Werror=implicit-function-declaration"]
# For a machine that does not say: a size that is common.
CACHES = {"LEVEL1_DCACHE_SIZE": 48 << 10, "LEVEL2_CACHE_SIZE": 2 << 20}
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


def machine() -> dict[str, Any]:
    """Return what the figures depend on; the last CPU is used."""
    sizes = {}
    for name, default in CACHES.items():
        said = subprocess.run(["getconf", name], capture_output=True,
                              text=True).stdout.strip()
        # Some hypervisors show nonsense.
        sizes[name] = int(said) if said.isdigit() and \
            4096 <= int(said) <= 1 << 30 else default
    l1d, l2 = sizes.values()
    flags = cpuinfo("flags").split()
    return {"cpu": cpuinfo("model name"),
            "cpu_number": max(os.sched_getaffinity(0)),
            "l1d_bytes": l1d, "l2_bytes": l2,
            "virtual": "hypervisor" in flags,
            "fsrm": "fsrm" in flags, "fsrs": "fsrs" in flags}


def summary(text: str) -> dict[str, dict[str, dict[str, float]]]:
    """Return {case: {side: {state: cycles}}} of what copycost wrote.

    That is per copy, without the empty call.  The rounds time the one and the
    other task in turn: the mean of both medians is taken.
    """
    samples: dict[tuple[str, ...], list[float]] = defaultdict(list)
    for line in text.splitlines():
        *key, calls, ticks = line.split()
        samples[tuple(key)].append(int(ticks) / int(calls))
    middle = {key: statistics.mean((statistics.median(ticks[::2]),
                                    statistics.median(ticks[1::2])))
              for key, ticks in samples.items()}
    return {case: {side: {state: round(max(0, middle[case, side, state]
                                           - middle[case, "nothing", state]),
                                       1)
                          for state in STATES} for side in SIDES}
            for case in dict.fromkeys(case for case, _, _ in middle)}


def measure_copy(trees: dict[str, Path],
                 rounds: int = ROUNDS) -> dict[str, Any]:
    """Check and time the copies of both sides.

    trees: {side: source tree}.  rounds: samples of each figure in each of
    several processes.  Raises Fail when a function is not found, does not
    compile or copies wrongly; never because of a time.
    """
    need_tool("gcc", "build-essential")
    here, log = machine(), LOGS / "copycost.log"
    # As many TSSs as stay in L2, with their tasks, while L1 is displaced.
    room = here["l2_bytes"] * 3 // 4 - 4 * here["l1d_bytes"]
    areas = min(max(room // 25600, 1), 16)
    with scratch("copycost") as place:
        program = place / "copycost"
        program.with_suffix(".h").write_text(
            "".join(extract(side, trees[side]) for side in SIDES))
        run_logged(["gcc", *FLAGS, f"-I{place}", "-o", str(program),
                    str(ROOT / "tools/copycost.c")], log,
                   what="compiling the copies in user space")
        text = ""
        for _ in range(RUNS):
            run_logged(["taskset", "-c", *map(str, (
                here["cpu_number"], program, here["l1d_bytes"],
                here["l2_bytes"], areas, rounds))], log, timeout=SECONDS,
                what="the test of the copies")
            text += log.read_text()
    return {"benchmark": "copycost", "version": 3,
            "unit": "TSC cycles per copy", "machine": here,
            "rounds": RUNS * rounds, "areas": areas, "cases": summary(text)}


def tables(result: dict[str, Any]) -> Iterator[str]:
    """Yield a result of measure_copy() as Markdown."""
    here = result["machine"]
    yield from (
        "", "The copy of the bitmap alone, in user space, which the series "
        "makes only when three or more tasks with ports run in turn. Unit: "
        f"TSC cycles of {here['cpu']}"
        f"{' (a virtual machine)' if here['virtual'] else ''}, L1d "
        f"{here['l1d_bytes'] >> 10} KB, L2 {here['l2_bytes'] >> 10} KB, "
        f"{'FSRM' if here['fsrm'] else 'no FSRM'} and "
        f"{'FSRS' if here['fsrs'] else 'no FSRS'}; median of "
        f"{result['rounds']} samples in {RUNS} processes:", "")
    head, rows = ["ports of the two tasks"], []
    for name in STATES.values():
        head += [f"{name}: base", "series", "ratio"]
    for case, sides in result["cases"].items():
        rows.append([label(case)])
        for state in STATES:
            base, series = (sides[side][state] for side in SIDES)
            rows[-1] += [*numbers((base, series)), ratio(series, base)]
    yield from table(head, rows)
