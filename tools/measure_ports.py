# SPDX-License-Identifier: GPL-2.0-only
"""Measure in a guest what I/O ports cost: time of a switch, and memory.

ioperm_latency is a selftest of the series; ioperm_memory, in bench/, reads
what the slab allocator takes for the bitmaps of many tasks.
"""

import contextlib
import functools
import json
import shlex
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from tools.build import SIDES, build_bench, build_selftests
from tools.core import LOGS, Fail, scratch, shown_path, tail, write_atomically
from tools.guest import boot
from tools.tables import ratio, table

PORTS, MEMORY = "ioperm_latency", "ioperm_memory"
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
}


def result_of(program: str, name: str, status: int | None, output: str,
              report: str) -> dict[str, Any]:
    """Return what a program's --json wrote in a guest; keep its output.

    Raises Fail when it failed, skipped as a whole, or the JSON is not whole.
    """
    log = LOGS / f"{name}.ktap"
    write_atomically(log, output)
    with contextlib.suppress(ValueError):
        if status == 0:
            return json.loads(report)
    raise Fail(f"{program} ended with status {status} and no result in the "
               f"guest '{name}'; the end of {shown_path(log)}:\n{tail(log)}")


def run_in_guest(folder: Path, name: str, program: Path, words: list[str],
                 **options: Any) -> dict[str, Any]:
    """Run a program in a guest; name: of that.  Returns its result."""
    with scratch("bench") as place:
        report = place / "report.json"
        report.touch()
        found = boot(folder, shlex.join(
            [str(program), "--json", str(report), *words]), cpus=1, name=name,
            share=place, timeout=GUEST_SECONDS, **options)
        return result_of(program.name, name, found.status, found.output,
                         report.read_text())


@functools.cache
def selftest(name: str, *flags: str) -> Path:
    """Build a selftest of the series once; flags: of the compiler."""
    return build_selftests([name], flags=flags)[name]


def measure_ports(folder: Path, side: str, cases: tuple[str, ...] = (),
                  kvm: bool = False) -> dict[str, Any]:
    """Time switches and calls on a kernel; returns what the program wrote.

    side: names the logs.  cases: only these, by default all.
    """
    return run_in_guest(
        folder, f"bench-{side}", selftest(f"x86/{PORTS}_64"),
        [word for name in cases for word in ("--case", name)],
        icount="" if kvm else "wait-idle", kvm=kvm)


def measure_memory(folder: Path, side: str,
                   kvm: bool = False) -> dict[str, Any]:
    """Measure the slab growth of TASKS tasks; as measure_ports()."""
    return run_in_guest(folder, f"memory-{side}", build_bench(MEMORY),
                        ["--tasks", str(TASKS)], kvm=kvm)


def p50(report: dict[str, Any], side: str) -> dict[str, int]:
    """Return {case: p50} of the cases of a side that ran."""
    return {case["name"]: case["p50"]
            for case in report["sides"][side][PORTS]["cases"]
            if case["status"] == "ok"}


def grown(report: dict[str, Any], side: str) -> dict[str, dict[str, Any]]:
    """Return {case: case} of the memory of a side."""
    return {case["name"]: case
            for case in report["sides"][side][MEMORY]["cases"]}


def label(name: str) -> str:
    """Return what a row of the tables is called."""
    words = f": {WORDS[name]}" if name in WORDS else ""
    return name.removeprefix("call-") + words


def latency_tables(report: dict[str, Any]) -> Iterator[str]:
    """Yield switches, sweep and calls of both sides as Markdown."""
    base, series = p50(report, "base"), p50(report, "series")
    names: dict[str, list[str]] = {"switch": [], "sweep": [], "call": []}
    rounds = {}
    for case in report["sides"]["series"][PORTS]["cases"]:
        name, kind = case["name"], case["kind"]
        names["sweep" if name.startswith("sweep-") else kind].append(name)
        rounds[kind] = case.get("rounds") or rounds.get(kind, 0)

    def sides(name: str) -> list[str]:
        a, b = base.get(name), series.get(name)
        return [label(name), str(a or "skipped"), str(b or "skipped"),
                ratio(b, a)]

    yield from (
        f"Unit: {report['unit']}; p50 of {rounds.get('switch')} calls.",
        "", "One sched_yield() between two SCHED_FIFO tasks, that is, two "
        "switches:", "")
    yield from table(
        ["ports of the two tasks", "base", "series", "series / base",
         "base / none", "series / none"],
        ([*sides(name), ratio(base.get(name), base.get("none")),
          ratio(series.get(name), series.get("none"))]
         for name in names["switch"]))
    swept = [name for name in names["sweep"]
             if name in base and name in series]
    if swept:
        low, high = ([choose(side[name] for name in swept)
                      for side in (base, series)] for choose in (min, max))
        yield from (
            "", f"One port each, at {len(swept)} port numbers from 0 to "
            "65535, dearest divided by cheapest: "
            f"base {high[0]}/{low[0]} = {ratio(high[0], low[0])}, "
            f"series {high[1]}/{low[1]} = {ratio(high[1], low[1])}.")
    yield from (
        "", f"The calls themselves, p50 of {rounds.get('call')}:", "")
    yield from table(["call", "base", "series", "series / base"],
                     map(sides, names["call"]))


def memory_tables(report: dict[str, Any]) -> Iterator[str]:
    """Yield the slab growth of both sides as Markdown."""
    base, series = grown(report, "base"), grown(report, "series")

    def row(name: str) -> list[str]:
        a, b = (side[name].get("unreclaimable") for side in (base, series))
        return [name,
                *("skipped" if value is None else f"{value // 1024} kB"
                  for value in (a, b)), ratio(b, a, 3),
                *(str(side[name].get("object") or "-")
                  for side in (base, series))]

    tasks = report["sides"]["series"][MEMORY].get("tasks")
    yield from (
        "", f"Slab growth when {tasks} tasks enable these ports, each for "
        "itself, and the size in bytes of the object that one bitmap takes:",
        "")
    yield from table(
        ["ports of each task", "base", "series", "series / base",
         "object, base", "object, series"],
        (row(name) for name in series if name in base))


def tables(report: dict[str, Any]) -> list[str]:
    """Return what a report has of ports and memory as Markdown."""
    return [line for what, make in ((PORTS, latency_tables),
                                    (MEMORY, memory_tables))
            if all(what in report["sides"][side] for side in SIDES)
            for line in make(report)]
