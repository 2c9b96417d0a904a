# SPDX-License-Identifier: GPL-2.0-only
"""Measure what sched_yield() does, on base and series and with its bit off.

On the series each case runs twice in one boot, with the scheduler's feature
YIELD_TICK off and on.  The guest is isolated and deterministic (see
guest/tiny.py): how long a call takes depends on where in a tick it falls.
"""

from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

from tools.build import build_bench, image
from tools.core import SIDES, Kernel, write_atomically
from tools.figures import TABLE, Samples, result_of
from tools.guest.tiny import (EMULATED, HARDWARE, REPEATABLE, REPEATABLE_KERNEL,
                              boot_tiny)
from tools.tables import number, numbers, table

YIELD, DIRECTED = "yield_latency", "directed_yield"
COLUMNS = ("base", "off", "series")
REPORT = "/report.json"
# Of a guest.
SECONDS = 900
# The guest takes another clock some time after boot, when it has calibrated
# it: not in the middle of a run.
SETTLE_SECONDS = 5
# Longer than by default, so that also the median of calls which take 300 ms
# settles.
DURATION = ("--seconds", "0.3", "--calls", "9")
# Microseconds after a tick at which the cases begin when all are measured.
PHASES = (0, 300, 700)
PHASED = ": the least and the most are shown; p50 and ratios are of medians"


def machine_of(cpus: int) -> tuple[str, ...]:
    """Return QEMU's options and the kernel's parameters for an emulated guest.

    With several CPUs it runs by the host's clock: when it counts instructions,
    QEMU 7.2 lets one of them go on till the next timer of the guest, and a
    task that waits for another CPU waits as long.
    """
    return (*REPEATABLE, REPEATABLE_KERNEL) if cpus == 1 else (
        *EMULATED, "no_timer_check")


def run_isolated(bzimage: Path, program: Path, words: Sequence[str],
                 log: Path, report: str = REPORT, kvm: bool = False,
                 good: tuple[int, ...] = (0,), **more: Any) -> dict[str, Any]:
    """Run a program in an isolated guest, deterministic with one CPU; return
    what it wrote to a file of the guest, with --json.

    log: of its output and, with another ending, of the console.  good: as
    result_of() has it.  more: as boot_tiny() has it.
    """
    cpus = more.setdefault("cpus", 1)
    *machine, append = (*HARDWARE, "") if kvm else machine_of(cpus)
    (_, run), (_, file) = boot_tiny(
        bzimage, [(program, words)], log, bits=64, machine=machine,
        append=append, settle=SETTLE_SECONDS, files=[report], **more)
    said = Path(f"{log}.ktap")
    write_atomically(said, run.output)
    return result_of(log.name, run.status, said, file.output, good)


def build_program(kernel: Kernel) -> Path:
    """Build what runs in the guests."""
    return build_bench(kernel, YIELD, static=True)


def measure_yield(kernel: Kernel, folder: Path, side: str,
                  cases: tuple[str, ...] = (), kvm: bool = False,
                  name: str = "", whole: bool = False) -> dict[str, Any]:
    """Run the test on a kernel; returns what it wrote.

    side: of the kernel; the base has no features.  cases: only these, by
    default the usual ones; whole: all of them, in each of PHASES.  name: of
    the logs, when not the side's.
    """
    words = ["--json", REPORT, *DURATION,
             *(("--both",) if side == "series" else ()),
             *cases]
    log = kernel.logs / f"yield-{name or side}"
    bzimage, program = folder / "arch/x86/boot/bzImage", build_program(kernel)
    if not whole:
        return run_isolated(bzimage, program, words, log, kvm=kvm,
                            timeout=SECONDS)
    found, *more = *(run_isolated(
        bzimage, program, [*words, "--all", "--phase", str(phase)],
        log.with_name(f"{log.name}-{phase}"), kvm=kvm, timeout=7200)
        for phase in PHASES), run_isolated(
            image(kernel, f"{side}_kvm"), build_bench(kernel, DIRECTED, True),
            words[:2], kernel.logs / f"{DIRECTED}-{side}", timeout=SECONDS)
    found["cases"] += [{"kind": "directed"} | case
                       for one in more for case in one["cases"]]
    return found | {"phase_us": ", ".join(map(str, PHASES))}


def slices(length: int) -> str:
    """Format slices, of which 0 us is the default."""
    return f"{length / 1000:g} ms" if length else "default"


def median(middle: float | None, low: float | None,
           high: float | None) -> str:
    """Format the p50, p40 and p60 of a polite worker's calls in ms.

    Where these are of two kinds, about as many of each, the p50 would be one
    of the two by chance: then both are shown.
    """
    if None not in (low, high) and high - low > max(0.05, 0.05 * high):
        return " or ".join(numbers((low, high), 2))
    return number(middle, 2)


def tables(result: dict[str, Any]) -> Iterator[str]:
    """Yield what was measured, {"sides": {side: result}}, as Markdown."""
    samples = Samples({YIELD: result["sides"]})
    series = result["sides"]["series"]
    tick = series["tick_ns"] / 1000

    def get(name: str, figure: str) -> list[float | None]:
        return samples.medians(YIELD, COLUMNS, name, figure)

    def ranges(name: str, figure: str, digits: int) -> list[str]:
        return samples.ranges(YIELD, COLUMNS, name, figure, digits)

    def polite_row(case: dict[str, Any]) -> list[str]:
        name, work, hogs = case["name"], case["work_us"], case["hogs"]
        paid = tick if work < tick else work + tick
        return [f"{work} us", slices(case["slice_us"]), str(hogs),
                number(100 * work / (hogs * paid + work), 1),
                *ranges(name, "share", 2),
                *map(median, *(get(name, figure)
                               for figure in ("p50", "p40", "p60"))),
                *ranges(name, "p99", 2), *ranges(name, "stuck_percent", 0)]

    yield from (
        "sched_yield(): `base`; the series with its feature bit `off`, and "
        "`on`, as it is by default. Times are guest time; the cases begin "
        f"{series.get('phase_us', 0)} us after a tick"
        f"{PHASED * ('phase_us' in series)}.", "",
        "A worker computes, yields, and so on, beside hogs with the same "
        "slices. Fair is about its share if each call costs a tick; in vain: "
        "calls after which nobody else ran:", "")
    yield from table(
        ["work", "slices", "hogs", "fair, %", "share, %: base", "off",
         "on", "p50, ms: base", "off", "on", "p99, ms: base", "off", "on",
         "in vain, %: base", "off", "on"],
        map(polite_row, samples.those(YIELD, kind="polite")), left=0)
    yield from (
        "", "Tasks of one CPU that do nothing but yield, a worker beside a "
        "hog of another nice value, tasks that poll, pass a ball or a "
        "barrier, locks that yield, a task that yields and sleeps, one that "
        "sleeps beside a worker and hogs, a task that yields for 2 s and then "
        "spins:", "")
    yield from table(
        ["case: figure, unit", "base", "off", "on", "on / base", "good"],
        filter(None, (samples.row(YIELD, COLUMNS, case["name"], figure,
                                  f"{case['name']}: {what}")
                      for kind, figure, what in TABLE["bench"]["kinds"]
                      for case in samples.those(YIELD, kind=kind))))
