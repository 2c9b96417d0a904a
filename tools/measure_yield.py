# SPDX-License-Identifier: GPL-2.0-only
"""Measure what sched_yield() does, on base and series and with its bit off.

On the series each case runs twice in one boot, with the scheduler's feature
YIELD_TICK off and on.  The guest is isolated and deterministic (see
guest/tiny.py): how long a call takes depends on where in a tick it falls.

Run as a program, it measures all cases in several phases of the tick, on base
and series, and prints the worst; with --kvm, KVM's directed yield instead.
"""

import argparse
import functools
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

from tools.build import SIDES, build_bench, build_sides, image
from tools.core import (LOGS, RESULTS, Fail, at_once, build_lock, digest,
                        read_json, run_main, say, shown_path,
                        write_atomically, write_json)
from tools.figures import Samples, result_of
from tools.guest.tiny import (HARDWARE, REPEATABLE, REPEATABLE_KERNEL,
                              boot_tiny)
from tools.ktap import Run
from tools.tables import console, number, numbers, ratio, table

YIELD, DIRECTED = "yield_latency", "directed_yield"
COLUMNS = ("base", "off", "series")
REPORT = "/report.json"
GUEST_SECONDS = 900
# By the guest's clock, which may run at a tenth of the speed or ten times it.
PROGRAM_SECONDS = 1800
# The guest takes another clock some time after boot, when it has calibrated
# it: not in the middle of a run.
SETTLE_SECONDS = 5
# Longer than by default, so that also the median of calls which take 300 ms
# settles.
DURATION = ("--seconds", "0.3", "--calls", "9")
# Kind of case, figure, what the tables call it if they have it, its scale,
# digits, and whether more is better.
FIGURES = (
    ("switch", "ns_per_switch", "", 1, 0, False),
    ("polite", "share", "", 1, 2, True), ("polite", "p99", "", 1e6, 2, False),
    ("polite", "stuck_percent", "", 1, 0, False),
    ("weight", "share", "share of the worker, %", 1, 2, True),
    ("poll", "hogs_share", "share of the hog, %", 1, 1, True),
    ("poll", "hogs_preempted_per_s", "", 1, 0, False),
    ("ring", "passes_per_s", "passes/s", 1, 0, True),
    ("lock", "acquisitions_per_s", "acquisitions/s", 1, 0, True),
    ("lock", "light_per_s", "of these by light tasks", 1, 0, True),
    ("lock", "p99", "p99 of the wait, ms", 1e6, 2, False),
    *((kind, figure, "", scale, 0, scale == 1)
      for kind in ("ticket", "barrier") for figure, scale in (
          ("acquisitions_per_s", 1), ("light_per_s", 1), ("p99", 1e6))),
    *((kind, "longest_wait", "", 1e6, 0, False)
      for kind in ("lock", "ticket", "barrier")),
    ("short", "p90", "", 1e6, 2, False),
    ("short", "p99", "p99 of its waits, ms", 1e6, 2, False),
    ("period", "p99", "p99 of when it is done, ms", 1e6, 2, False),
    ("period", "missed", "", 1, 0, False),
    ("wake", "p99", "p99 of the wake-up, ms", 1e6, 2, False),
    ("sleeper", "p99", "p99 of the wake-up, ms", 1e6, 2, False),
    ("storm", "longest_wait_yielder", "longest wait of the yielder, ms",
     1e6, 1, False),
    ("storm", "longest_wait_hog", "longest wait of the hog, ms", 1e6, 1,
     False))


def run_isolated(kernel: Path, program: Path, words: Sequence[str], log: Path,
                 report: str = "", kvm: bool = False, cpus: int = 1,
                 **more: Any
                 ) -> tuple[Run, str]:
    """Run a program in an isolated, deterministic guest.

    log: keeps its output, and names the console.  report: a file of the
    guest, whose text is returned with the run.  more: as boot_tiny() has it.
    """
    (_, run), *files = boot_tiny(
        kernel, [(program, words)], cpus=cpus, bits=64, name=log.stem,
        machine=HARDWARE if kvm else REPEATABLE,
        append="" if kvm else REPEATABLE_KERNEL, settle=SETTLE_SECONDS,
        files=[report] if report else [], **more)
    write_atomically(log, run.output)
    return run, "".join(file.output for _, file in files)


def build_program() -> Path:
    """Build what runs in the guests."""
    return build_bench(YIELD, static=True)


def measure_yield(folder: Path, side: str, cases: tuple[str, ...] = (),
                  kvm: bool = False, name: str = "") -> dict[str, Any]:
    """Run the test on a kernel; returns what it wrote.

    side: of the kernel; the base has no features.  cases: only these, by
    default all.  name: of the logs, when not the side's.
    """
    log = LOGS / f"yield-{name or side}.ktap"
    words = ["--json", REPORT, *DURATION,
             *(("--features", "both") if side == "series" else ()),
             *(word for case in cases for word in ("--case", case))]
    run, report = run_isolated(
        folder / "arch/x86/boot/bzImage", build_program(), words, log,
        REPORT, kvm, timeout=GUEST_SECONDS, seconds=PROGRAM_SECONDS)
    return result_of(YIELD, run.status, log, report)


def fair_limit(work_us: int, hogs: int, tick: int) -> float:
    """Return the share in percent that a polite worker can have at best.

    tick: ns that each hog gets in a round.
    """
    work = work_us * 1000
    return 100 * work / (hogs * (work + tick) + work)


def slices(length: int) -> str:
    """Format slices, of which 0 us is the default."""
    return f"{length / 1000:g} ms" if length else "default"


def median(middle: float | None, low: float | None,
           high: float | None) -> str:
    """Format the p50, p40 and p60 of a polite worker's calls in ms.

    Long calls end at a tick, give or take what the worker did in its own:
    they have no digits below a millisecond that repeat.  Where the calls are
    of two kinds, about as many of each, it would be one of the two by chance:
    then both are shown.
    """
    def text(value: float | None) -> str:
        return number(value and value / 1e6, 0 if (value or 0) >= 10e6 else 2)

    if None not in (low, high) and high - low > max(0.05e6, 0.05 * high):
        return f"{text(low)} or {text(high)}"
    return text(middle)


def tables(result: dict[str, Any]) -> Iterator[str]:
    """Yield what was measured, {"sides": {side: result}}, as Markdown."""
    samples, series = Samples(), result["sides"]["series"]
    for side, found in result["sides"].items():
        samples.add(YIELD, side, found)

    def get(name: str, figure: str, scale: float = 1) -> list[float | None]:
        return samples.medians(YIELD, COLUMNS, name, figure, scale)

    def switch_row(case: dict[str, Any]) -> list[str]:
        base, off, on = times = get(case["name"], "ns_per_switch")
        what = "threads" if "-thread-" in case["name"] else "processes"
        size = slices(case["slice_us"]) if case["slice_us"] else ""
        return [f"{case['tasks']} {what}{size and ', slices '}{size}",
                *numbers(times), ratio(off, base), ratio(on, base)]

    def polite_row(case: dict[str, Any]) -> list[str]:
        name, work, hogs = case["name"], case["work_us"], case["hogs"]
        return [f"{work} us", slices(case["slice_us"]), str(hogs),
                number(fair_limit(work, hogs, series["tick_ns"]), 1, " %"),
                *numbers(get(name, "share"), 2, " %"),
                *map(median, *(get(name, figure)
                               for figure in ("p50", "p40", "p60"))),
                *numbers(get(name, "p99", 1e6), 2),
                *numbers(get(name, "stuck_percent"), 0, " %")]

    yield from (
        "sched_yield(): `base`; the series with its feature bit `off`, and "
        "`on`, as it is by default. Times are guest time.", "",
        "All tasks of one CPU do nothing but yield, ns per switch (from the "
        "first call to the end of the last, ticks included, divided by the "
        "number of switches):", "")
    yield from table(
        ["tasks", "base", "off", "on", "off / base", "on / base"],
        map(switch_row, samples.those(YIELD, kind="switch")))
    yield from (
        "", "A worker computes, yields, and so on, beside hogs with the same "
        "slices. The fair limit is its share when each hog gets a tick for a "
        "yield:", "")
    yield from table(
        ["work", "slices", "hogs", "fair limit", "share: base", "off", "on",
         "p50 ms: base", "off", "on", "p99 ms: base", "off", "on",
         "nobody else ran: base", "off", "on"],
        map(polite_row, samples.those(YIELD, kind="polite")), left=0)
    yield from (
        "", "Locks that yield, a worker beside a hog of another nice value, "
        "tasks that poll or pass a ball, a task that yields and sleeps, one "
        "that sleeps beside a worker and hogs, a task that yields for "
        f"{series.get('storm_seconds', 0):g} s and then spins:", "")
    yield from table(
        ["case", "figure", "base", "off", "on"],
        ([case["name"], text,
          *numbers(get(case["name"], figure, scale), digits)]
         for kind, figure, text, scale, digits, _ in FIGURES if text
         for case in samples.those(YIELD, kind=kind)), left=2)


def polite(samples: Samples) -> str:
    """Draw what a task that yields gets beside tasks that do not."""
    from tools import plots  # here, because matplotlib is slow to load

    return plots.draw(samples, dict(zip(SIDES, SIDES)), [{
        "program": YIELD, "figure": figure, "scale": scale, "points": [
            (slices(case["slice_us"]), case["name"])
            for case in samples.those(YIELD, kind="polite", work_us=100,
                                      hogs=hogs)],
        "title": f"100 us of work, then a yield, beside {hogs}: {what}",
        "axes": {"xlabel": "slice of all tasks", "yscale": "log"}}
        for figure, scale, what in (("share", 1, "its share, %"),
                                    ("p50", 1e6, "a yield, p50, ms"))
        for hogs in (1, 3)])


# --- all cases, in several phases -------------------------------------------

ROWS = RESULTS / "yield-rows.json"


def measure_rows(images: dict[str, Path], phases: Sequence[int],
                 arguments: Sequence[str]) -> Samples:
    """Return the figures of both sides, one value a phase.

    What ROWS has of the same kernel, program and arguments is not measured
    again.
    """
    kept, program, samples = read_json(ROWS, {}), build_program(), Samples()
    made = {side: digest(kernel.read_bytes(), program.read_bytes(),
                         *REPEATABLE, REPEATABLE_KERNEL)
            for side, kernel in images.items()}
    for phase in phases:
        words = [*arguments, "--phase", str(phase)]
        names = {side: " ".join([side, made[side], *words]) for side in images}
        runs = at_once({name: functools.partial(
            run_isolated, images[side], program, ["--json", REPORT, *words],
            LOGS / f"yield-rows-{side}-{phase}.ktap", REPORT,
            timeout=4 * GUEST_SECONDS, seconds=20 * PROGRAM_SECONDS)
            for side, name in names.items() if name not in kept})
        for name, (run, report) in runs.items():
            kept[name] = result_of(YIELD, run.status, LOGS, report)
        write_json(ROWS, kept)
        for side, name in names.items():
            samples.add(YIELD, side, kept[name])
    return samples


def worst_rows(samples: Samples) -> Iterator[list[str]]:
    """Yield case, figure, the worst of each side, and of the ratios."""
    for kind, figure, _, scale, digits, more in FIGURES:
        for case in samples.those(YIELD, kind=kind):
            sides = [samples.values[YIELD, side, case["name"], figure]
                     for side in SIDES]
            if all(sides):
                pick = min if more else max
                ratios = [new / old for old, new in zip(*sides) if old]
                yield [case["name"], figure, *(
                    number(pick(runs) / scale, digits) for runs in sides),
                    number(pick(ratios) if ratios else None, 2)]


def print_directed() -> None:
    """Let KVM run in emulated guests, and print how often a directed yield
    runs the virtual CPU that it names."""
    for side in SIDES:
        folder = build_sides([f"{side}_kvm"])[f"{side}_kvm"]
        run, _ = run_isolated(
            folder / "arch/x86/boot/bzImage",
            build_bench(DIRECTED, static=True), [],
            LOGS / f"{DIRECTED}-{side}.ktap", timeout=GUEST_SECONDS,
            seconds=PROGRAM_SECONDS)
        if run.status:
            raise Fail(f"{DIRECTED} measured nothing on the {side}:\n"
                       f"{run.output}")
        say(f"{side}\n{run.output}")


def main() -> None:
    """Measure all cases of yield_latency in several phases of the tick, and
    print the worst."""
    parser = argparse.ArgumentParser(description=main.__doc__)
    parser.add_argument("--phase", type=int, action="append",
                        help="microseconds after a tick (0, 300 and 700)")
    parser.add_argument("arguments", nargs="*", default=["--all"],
                        help="of yield_latency, after -- (--all)")
    parser.add_argument("--kvm", action="store_true", help="measure KVM's "
                        "directed yield instead; no KVM is needed here")
    options = parser.parse_args()
    with build_lock():
        if options.kvm:
            print_directed()
            return
        build_sides()
        found = measure_rows({side: image(side) for side in SIDES},
                             options.phase or [0, 300, 700],
                             options.arguments)
    say(console(table(["case", "figure", *SIDES, "worst ratio"],
                      worst_rows(found), left=2)))
    say(f"all of it: {shown_path(ROWS)}")


if __name__ == "__main__":
    run_main(main)
