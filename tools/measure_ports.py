# SPDX-License-Identifier: GPL-2.0-only
"""Measure in a guest what I/O ports cost: time of a switch, and memory.

ioperm_latency is a selftest of the series.  In tools/bench, ioperm_turns
times rounds of more tasks and of one that changes its ports, and
ioperm_memory reads what the slab allocator takes for bitmaps of many tasks.
"""

import functools
import shlex
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from tools.build import build_bench, build_selftests
from tools.core import SIDES, Kernel, scratch
from tools.figures import TABLE, Samples, result_of
from tools.guest import boot

PORTS, MEMORY, TURNS = "ioperm_latency", "ioperm_memory", "ioperm_turns"
TASKS = 1000
GUEST_SECONDS = 900


def run_in_guest(kernel: Kernel, folder: Path, name: str, program: Path,
                 words: list[str], **options: Any) -> dict[str, Any]:
    """Run a program in a guest; name: of the log.  Returns its result."""
    log = kernel.logs / name
    with scratch("bench") as place:
        report = place / "report.json"
        report.touch()
        found = boot(folder, shlex.join(
            [str(program), "--json", str(report), *words]), log, cpus=1,
            share=place, timeout=GUEST_SECONDS, **options)
        return result_of(program.name, found.status, Path(f"{log}.ktap"),
                         report.read_text())


@functools.cache
def build_programs(kernel: Kernel) -> tuple[Path, Path, Path]:
    """Build what runs in the guests, once: PORTS, TURNS and MEMORY."""
    selftest = f"x86/{PORTS}_64"
    return (build_selftests(kernel, [selftest])[selftest],
            build_bench(kernel, TURNS), build_bench(kernel, MEMORY))


def measure_ports(kernel: Kernel, folder: Path, name: str,
                  cases: tuple[str, ...] = (), kvm: bool = False
                  ) -> dict[str, Any]:
    """Time switches and calls on a kernel; returns what the programs wrote.

    name: of the logs.  cases: only these, by default all.
    """
    ports, turns, _ = build_programs(kernel)
    run = functools.partial(run_in_guest, kernel, folder, kvm=kvm,
                            icount="" if kvm else "wait-idle")
    found = run(f"bench-{name}", ports,
                [word for case in cases for word in ("--case", case)])
    if not cases:
        found["cases"] += run(f"turns-{name}", turns, [
            "=".join(item) for item in TABLE["turns"].items()])["cases"]
    return found


def measure_memory(kernel: Kernel, folder: Path, name: str,
                   kvm: bool = False) -> dict[str, Any]:
    """Measure the slab growth of TASKS tasks; as measure_ports()."""
    return run_in_guest(kernel, folder, f"memory-{name}",
                        build_programs(kernel)[2], ["--tasks", str(TASKS)],
                        kvm=kvm)


def tables(samples: Samples, unit: str) -> Iterator[str]:
    """Yield switches, rounds, calls and memory as Markdown; unit: that of the
    clock."""
    calls = samples.those(PORTS, kind="switch")[0]["rounds"]
    yield from (
        f"Medians of {calls} calls. One sched_yield() between two SCHED_FIFO "
        "tasks, that is, two switches; sweep-N: N and the port beside it:", "",
        *samples.sides(PORTS, f"{unit}, by the ports of the two tasks",
                       {"p50": ""}, "none", kind="switch"),
        "", "A round: one sched_yield() of the first of several tasks that "
        "run in turn. Who changes enables or disables a port in each turn:",
        "", *samples.sides(PORTS, f"{unit}, by the ports of the tasks",
                           {"p50": ""}, kind="round"),
        "", "The calls themselves:", "", *samples.sides(
            PORTS, f"{unit}, by the call", {"p50": ""}, kind="call"),
        "", f"What the slab allocator takes when {TASKS} tasks enable these "
        "ports, each for itself, and the object of one bitmap:", "",
        *samples.sides(MEMORY, "by the ports of each task", {
            "unreclaimable": "kB: ", "object": "object, bytes: "}))
