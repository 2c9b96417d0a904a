# SPDX-License-Identifier: GPL-2.0-only
"""Measure in a guest what I/O ports cost: time of a switch, and memory.

ioperm_latency is a selftest of the series.  In tools/bench, ioperm_turns
times rounds of more tasks and of one that changes its ports, and
ioperm_memory reads what the slab allocator takes for the bitmaps of many tasks.
"""

import functools
import shlex
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from tools.build import SIDES, build_bench, build_selftests
from tools.core import LOGS, scratch, write_atomically
from tools.figures import Samples, result_of
from tools.guest import boot
from tools.tables import numbers, ratio, table

PORTS, MEMORY, TURNS = "ioperm_latency", "ioperm_memory", "ioperm_turns"
TASKS = 1000
GUEST_SECONDS = 900
# What a name alone does not tell.
WORDS = {
    "pair-interleaved": "one port in each even line, each odd line",
    "pair-eight-lines": "one port in each of eight lines, apart",
    "pair-parallel-ports": "0x378-0x37a and 8 high ones each",
    "pair-pciutils": "0xcf8-0xcff and 0xc000-0xcffe, both alike",
    "pair-all-but-one": "all but port 0, all but port 1",
    "pair-half-or-one": "0 to 32767, 16384",
    "call-ioperm-low-1k": "0 to 0x3ff at once",
    "call-ioperm-all": "0 to 0xffff at once",
    "growth-up": "a port in each of 128 lines, one by one",
    "growth-down": "the same from the highest",
}
# Ports of the tasks as ioperm_turns takes them.
CARDS = ("0x378-0x37a+0xd800-0xd807", "0x378-0x37a+0xdc00-0xdc07")
PCIUTILS = "0xcf8-0xcff+0xc000-0xcffe"
# What ioperm_turns times beside the cases of ioperm_latency.
PAIRS = {
    "shared-65535": "65535,=",
    "pair-1024-1025": "1024,1025",
    "pair-65534-65535": "65534,65535",
    "pair-every-line": "0/512,1/512",
    "pair-interleaved": "0/1024,512/1024",
    "pair-eight-lines": "0/8192,4096/8192",
    "pair-parallel-ports": ",".join(CARDS),
    "pair-pciutils": f"{PCIUTILS},{PCIUTILS}",
    "pair-all-but-one": "1-65535,0+2-65535",
    "pair-iopl": "iopl,iopl",
    # On both sides of the edges of bytes, longs and lines.
    **{f"sweep-{port}": f"{port},{port ^ 1}" for port in (
        0, 31, 63, 64, 127, 511, 512, 1023, 1024, 2048, 4096, 8192, 12288,
        16384, 24576, 32768, 40960, 49152, 57344, 65535)},
}
ROUNDS = {
    "none, none, none": "none,none,none",
    "0x62 and 0x66, 0x70": "0x62+0x66,0x70-0x71",
    "0x80, 0x81, iopl(3)": "0x80,0x81,iopl",
    "0x80, 65535, iopl(3)": "0x80,65535,iopl",
    "0x80, 65535, two parallel ports": f"0x80,65535,{CARDS[0]}",
    "two parallel ports, every other line, iopl(3)": f"{CARDS[0]},0/1024,iopl",
    "0x80, 0x81, 0x82, iopl(3)": "0x80,0x81,0x82,iopl",
    "0x81, one that changes": "0x81,~0x80",
    "65535, one that changes": "65535,~0x80",
    "iopl(3), one that changes": "iopl,~0x80",
    "two parallel ports, one that changes": f"{CARDS[0]},~0x80",
}
GROWTH = {"growth-up": "up", "growth-down": "down"}


def run_in_guest(folder: Path, name: str, program: Path, words: list[str],
                 **options: Any) -> dict[str, Any]:
    """Run a program in a guest; name: of that.  Returns its result."""
    log = LOGS / f"{name}.ktap"
    with scratch("bench") as place:
        report = place / "report.json"
        report.touch()
        found = boot(folder, shlex.join(
            [str(program), "--json", str(report), *words]), cpus=1, name=name,
            share=place, timeout=GUEST_SECONDS, **options)
        write_atomically(log, found.output)
        return result_of(program.name, found.status, log, report.read_text())


@functools.cache
def selftest(name: str, *flags: str) -> Path:
    """Build a selftest of the series once; flags: of the compiler."""
    return build_selftests([name], flags=flags)[name]


def build_programs() -> None:
    """Build what runs in the guests."""
    selftest(f"x86/{PORTS}_64")
    build_bench(MEMORY)
    build_bench(TURNS)


def measure_ports(folder: Path, side: str, cases: tuple[str, ...] = (),
                  kvm: bool = False) -> dict[str, Any]:
    """Time switches and calls on a kernel; returns what the program wrote.

    side: names the logs.  cases: only these, by default all.
    """
    words = [word for case in cases for word in ("--case", case)]
    options = {"icount": "" if kvm else "wait-idle", "kvm": kvm}
    found = run_in_guest(folder, f"bench-{side}",
                         selftest(f"x86/{PORTS}_64"), words, **options)
    if not cases:
        found["cases"] += measure_turns(folder, f"turns-{side}", **options)
    return found


def measure_turns(folder: Path, name: str,
                  **options: Any) -> list[dict[str, Any]]:
    """Time PAIRS, ROUNDS and GROWTH in a guest; return them as cases."""
    words = [f"{name}={spec}"
             for name, spec in (PAIRS | ROUNDS | GROWTH).items()]
    return run_in_guest(folder, name, build_bench(TURNS), words,
                        **options)["cases"]


def measure_memory(folder: Path, side: str,
                   kvm: bool = False) -> dict[str, Any]:
    """Measure the slab growth of TASKS tasks; as measure_ports()."""
    return run_in_guest(folder, f"memory-{side}", build_bench(MEMORY),
                        ["--tasks", str(TASKS)], kvm=kvm)


def sweep(samples: Samples) -> str:
    """Draw the cost of a switch against the highest port."""
    from tools import plots  # here, because matplotlib is slow to load

    points = sorted((int(name.removeprefix("sweep-")) | 1, name)
                    for name in samples.cases[PORTS]
                    if name.startswith("sweep-"))
    return plots.draw(samples, dict(zip(SIDES, SIDES)), [{
        "program": PORTS, "figure": "p50", "points": points,
        "title": "Two tasks with one port each: instructions of a switch "
                 "there and back", "axes": {"xlabel": "highest port"}}], 1)


def label(name: str) -> str:
    """Return what a row of the tables is called."""
    words = f": {WORDS[name]}" if name in WORDS else ""
    return name.removeprefix("call-") + words


def tables(report: dict[str, Any], samples: Samples) -> Iterator[str]:
    """Yield switches, sweep, calls and memory of both sides as Markdown.

    samples: the figures of a report of bench.
    """
    cases = {case["name"]: case
             for case in report["sides"]["series"][PORTS]["cases"]}
    rounds = {case["kind"]: case["rounds"] for case in cases.values()
              if case["status"] == "ok" and "rounds" in case}

    def names(kind: str) -> list[str]:
        return [name for name, case in cases.items()
                if case["kind"] == kind and not name.startswith("sweep-")]

    def p50(name: str) -> list[float | None]:
        return samples.medians(PORTS, SIDES, name, "p50")

    def row(name: str) -> list[str]:
        base, series = sides = p50(name)
        return [label(name), *numbers(sides, 0, "", "skipped"),
                ratio(series, base)]

    def memory_row(name: str) -> list[str]:
        base, series = sides = samples.medians(
            MEMORY, SIDES, name, "unreclaimable", 1024)
        return [name, *numbers(sides, 0, " kB", "skipped"),
                ratio(series, base, 3),
                *numbers(samples.medians(MEMORY, SIDES, name, "object"))]

    yield from (
        f"Unit: {report['unit']}; p50 of {rounds.get('switch')} calls.",
        "", "One sched_yield() between two SCHED_FIFO tasks, that is, two "
        "switches:", "")
    yield from table(
        ["ports of the two tasks", "base", "series", "series / base",
         "base / none", "series / none"],
        ([*row(name), *map(ratio, p50(name), p50("none"))]
         for name in names("switch")))
    swept = [p50(name) for name in cases
             if name.startswith("sweep-") and None not in p50(name)]
    if swept:
        base, series = (
            f"{max(side):.0f}/{min(side):.0f} = {max(side) / min(side):.2f}"
            for side in zip(*swept))
        yield from (
            "", f"One port each, at {len(swept)} port numbers from 0 to "
            "65535, dearest divided by cheapest: "
            f"base {base}, series {series}.")
    if names("round"):
        yield from (
            "", "One sched_yield() of the first of several tasks that run in "
            "turn, that is, a round of all of them; who changes, enables or "
            "disables a port in each turn:", "")
        yield from table(["ports of the tasks", "base", "series",
                          "series / base"], map(row, names("round")))
    yield from (
        "", f"The calls themselves, p50 of {rounds.get('call')}:", "")
    yield from table(["call", "base", "series", "series / base"],
                     map(row, names("call")))
    tasks = report["sides"]["series"][MEMORY].get("tasks")
    yield from (
        "", f"Slab growth when {tasks} tasks enable these ports, each for "
        "itself, and the size in bytes of the object that one bitmap takes:",
        "")
    yield from table(
        ["ports of each task", "base", "series", "series / base",
         "object, base", "object, series"],
        map(memory_row, samples.cases[MEMORY]))
