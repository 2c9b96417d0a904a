# SPDX-License-Identifier: GPL-2.0-only
"""Measure base and series beside each other.

Builds what is missing, boots both kernels with the same programs, times the
copy of I/O bitmaps on this machine's own processor, prints the tables, and
writes JSON, a page and plots to build/results.  'make publish' takes that to
results/ and the short table to README.md.
"""

import argparse
import functools
import subprocess
from collections import Counter
from collections.abc import Callable, Iterator
from typing import Any, NamedTuple

from tools import measure_copy, measure_ports, measure_yield
from tools.build import KERNELS, build_sides, describe, source
from tools.core import (CPUS, KERNEL, RESULTS, ROOT, SIDES, Fail, at_once,
                        build_lock, git, read_json, run_main, say,
                        shown_path, stage, write_atomically, write_json)
from tools.figures import Samples, now
from tools.guest import choose_kvm
from tools.measure_ports import MEMORY, PORTS, TASKS
from tools.measure_yield import YIELD
from tools.records import CHECKS, patches_key, record
from tools.series.apply import has_yield
from tools.tables import console, numbers, ratio, table, wrapped

PLOTS = ("bench.svg", "yield.svg")
UNITS = {
    "tcg": "instructions of the guest (QEMU TCG, -icount): exact and "
           "repeatable, but not cycles",
    "kvm": "TSC cycles of the host (KVM)",
}


class Row(NamedTuple):
    """A row of README.md, of one figure; lost: what is left to 100 % of it."""

    what: str
    program: str
    case: str
    figure: str = "p50"
    scale: float = 1
    digits: int = 0
    unit: str = ""
    more_is_better: bool = False
    lost: bool = False


ROWS = (
    Row("switch there and back, one program with ports beside one without",
        PORTS, "pair-0x80-none"),
    Row("the same, two parallel-port cards", PORTS, "pair-parallel-ports"),
    Row("a round of three programs with one low port each", PORTS,
        "round-0x80-0x81-0x82"),
    Row("first ioperm()", PORTS, "call-ioperm-first"),
    Row(f"memory of the bitmaps of {TASKS} programs with one port", MEMORY,
        "port-0x80", "unreclaimable", 1024, unit=" kB"),
    Row("share of a worker that yields each 20 us, beside a hog, slices 2.8 "
        "ms", YIELD, "polite-20us-slice-2.8ms-hogs-1", "share", 1, 2, " %",
        more_is_better=True),
    Row("how long its yields take, p99", YIELD,
        "polite-20us-slice-2.8ms-hogs-1", "p99", 1e6, 2, " ms"),
    Row("what 15 programs that poll with sched_yield() take from a hog",
        YIELD, "poll-15-hogs-1", "hogs_share", 1, 1, " %", lost=True),
)


# --- measuring -------------------------------------------------------------

def measure() -> dict[str, Any]:
    """Build both kernels and measure each."""
    folders = build_sides()
    kvm = choose_kvm(folders["base"])
    accel = "kvm" if kvm else "tcg"
    qemu = subprocess.run(["qemu-system-x86_64", "--version"],
                          capture_output=True, text=True).stdout
    commit = git("rev-parse", "-q", "--verify", "HEAD", cwd=ROOT, check=False)
    sides: dict[str, Any] = {side: describe(side) for side in SIDES}
    report = {"benchmark": PORTS, "version": 1, "accel": accel,
              "unit": UNITS[accel],
              "machine": {"cpu": measure_copy.cpuinfo("model name"),
                          "cpus": str(CPUS),
                          "qemu": qemu.partition("\n")[0]},
              "date": now(), "repository": commit.strip() or None,
              "sides": sides}
    # Before two guests want them at once.
    measure_ports.build_programs()
    jobs: dict[str, Callable[..., dict[str, Any]]] = {
        PORTS: measure_ports.measure_ports,
        MEMORY: measure_ports.measure_memory}
    if has_yield():
        measure_yield.build_program()
        # The longest comes first, and that on the series is longer.
        jobs = {YIELD: measure_yield.measure_yield} | jobs
    pieces = [(name, side) for name in jobs for side in reversed(SIDES)]
    # Instructions are the same beside another guest, cycles are not.
    done = at_once({f"{name} on the {side} kernel ({accel})":
                    functools.partial(jobs[name], folders[side], side, kvm=kvm)
                    for name, side in pieces}, int(kvm))
    found = dict(zip(pieces, done.values()))
    for side in SIDES:
        sides[side] |= {name: found[name, side] for name in (PORTS, MEMORY)}
    if has_yield():
        report["yield"] = {"benchmark": YIELD, "version": 1, "sides": {
            side: found[YIELD, side] for side in SIDES}}
    with stage("timing the copies of I/O bitmaps in user space"):
        report["copycost"] = measure_copy.measure_copy(
            {side: source(KERNELS[side].commit) for side in SIDES})
    return report


def load() -> dict[str, Any]:
    """Return the last result, which must be whole."""
    path = RESULTS / "bench.json"
    report = read_json(path)
    try:
        samples_of(report)
        report["copycost"]["areas"]
        if has_yield():
            report["yield"]
    except (KeyError, TypeError):
        raise Fail(f"{shown_path(path)} is no whole result of 'make bench': "
                   "run that first") from None
    return report


def samples_of(report: dict[str, Any]) -> Samples:
    """Return all figures of the guests."""
    samples = Samples()
    for side in SIDES:
        for program in (PORTS, MEMORY):
            samples.add(program, side, report["sides"][side][program])
        if "yield" in report:
            samples.add(YIELD, side, report["yield"]["sides"][side])
    return samples


# --- showing ---------------------------------------------------------------

def tables(report: dict[str, Any]) -> Iterator[str]:
    """Yield all tables of a result as Markdown."""
    yield from measure_ports.tables(report, samples_of(report))
    yield from measure_copy.tables(report["copycost"])
    if "yield" in report:
        yield ""
        yield from measure_yield.tables(report["yield"])


def change(base: float | None, series: float | None,
           more_is_better: bool = False) -> str:
    """Format series / base, and say so when that is worse."""
    text = ratio(series, base)
    if text not in ("-", "1.00") and (series < base) == more_is_better:
        return f"{text} (worse)"
    return text


def summary(samples: Samples) -> Iterator[str]:
    """Yield the table of README.md, without what was not measured."""
    rows = []
    for row in ROWS:
        sides = samples.medians(row.program, SIDES, row.case, row.figure,
                                row.scale)
        if row.lost:
            sides = [side and 100 - side for side in sides]
        if any(side is not None for side in sides):
            rows.append([row.what, *numbers(sides, row.digits, row.unit),
                         change(*sides, row.more_is_better)])
    yield from table(["what", "base", "series", "series / base"], rows)


def draw(report: dict[str, Any]) -> None:
    """Write the plots of a result in instructions."""
    samples = samples_of(report)
    write_atomically(RESULTS / PLOTS[0], measure_ports.sweep(samples))
    if "yield" in report:
        write_atomically(RESULTS / PLOTS[1], measure_yield.polite(samples))


def write_pages(report: dict[str, Any]) -> list[str]:
    """Write the pages and plots of a result in instructions; return the names
    of all its files below build/results."""
    draw(report)
    pictures = PLOTS if "yield" in report else PLOTS[:1]
    base, series = (report["sides"][side] for side in SIDES)
    short = [*summary(samples_of(report))]
    write_atomically(RESULTS / "bench.md", "\n".join(wrapped([
        f"# Results of `make bench{f' KERNEL={KERNEL}' if KERNEL else ''}`",
        "", f"Measured on {report['date'][:10]} by `make bench`: base "
        f"{base['release']} and the series on it, {series['compiler']}, "
        f"`{series['config']}`, {report['machine']['qemu']} on "
        f"{report['machine']['cpu']}.", "", *short, "", *tables(report), "",
        *(f"![plot]({name})" for name in pictures), ""])))
    write_atomically(RESULTS / "bench-readme.md", "\n".join([*short, ""]))
    return ["bench.json", "bench.md", "bench-readme.md", *pictures]


def count_cases(report: dict[str, Any]) -> tuple[int, int, int]:
    """Return how many cases of both sides were measured, failed, skipped."""
    results = [report["sides"][side][program] for side in SIDES
               for program in (PORTS, MEMORY)] + [
        *report.get("yield", {"sides": {}})["sides"].values()]
    found = Counter(case["status"] for result in results
                    for case in result["cases"])
    return (found["ok"], found.total() - found["ok"] - found["skip"],
            found["skip"])


def main() -> None:
    """Measure, or write the pages of what was measured."""
    parser = argparse.ArgumentParser(
        description=__doc__.split("\n\n")[0],
        epilog="ACCEL=tcg|kvm overrides the choice of the accelerator.")
    parser.add_argument("--pages", action="store_true",
                        help="measure nothing, write the pages of the last "
                             "result anew")
    pages = parser.parse_args().pages
    with build_lock():
        if pages:
            report = load()
            if report["accel"] != "tcg":
                raise Fail("the pages have instructions, not cycles: measure "
                           "with ACCEL=tcg")
            write_pages(report)
            return
        key = patches_key(CHECKS["bench"])
        report = measure()
        say("\n" + console(tables(report)) + "\n")
        write_json(RESULTS / "bench.json", report)
        if report["accel"] == "tcg":
            record("bench", *count_cases(report), write_pages(report), key)
        say(f"written: {shown_path(RESULTS)}/bench.json and its pages; 'make "
            "publish' takes them to results/")


if __name__ == "__main__":
    run_main(main)
