# SPDX-License-Identifier: GPL-2.0-only
"""Measure base and series beside each other.

Builds what is missing, boots both kernels with the same programs, times the
copy of I/O bitmaps on this machine's own processor, prints the tables, and
writes JSON to build/results, and of instructions, which ACCEL=tcg counts, a
page and plots.  'make publish' takes that to results/ and the short table to
README.md.
"""

import functools
import subprocess
from collections import Counter
from collections.abc import Iterator
from typing import Any

from tools import measure_copy, measure_ports, measure_yield
from tools.build import build_sides, describe, source
from tools.core import (CPUS, SIDES, Given, Kernel, at_once, build_lock, say,
                        shown_path, stage, write_atomically)
from tools.figures import TABLE, Samples, compact
from tools.guest import choose_kvm
from tools.measure_copy import COPY
from tools.measure_ports import MEMORY, PORTS
from tools.measure_yield import YIELD
from tools.records import begun, record
from tools.series.apply import has_yield
from tools.tables import console, table, wrapped


def measure(kernel: Kernel, whole: bool) -> dict[str, Any]:
    """Build both kernels and measure each; whole: all of sched_yield()."""
    folders = build_sides(kernel)
    kvm = choose_kvm(folders["base"])
    qemu = subprocess.run(["qemu-system-x86_64", "--version"],
                          capture_output=True, text=True).stdout
    report = {"accel": "kvm" if kvm else "tcg",
              "machine": measure_copy.machine() | {
                  "cpus": CPUS, "qemu": qemu.partition("\n")[0]},
              "sides": {side: describe(kernel, side) for side in SIDES}}
    jobs = {PORTS: measure_ports.measure_ports,
            MEMORY: measure_ports.measure_memory}
    # Before two guests want them at once.
    measure_ports.build_programs(kernel)
    if has_yield(kernel):
        measure_yield.build_program(kernel)
        if whole:
            build_sides(kernel, [f"{side}_kvm" for side in SIDES])
        # The longest comes first.
        jobs = {YIELD: functools.partial(measure_yield.measure_yield,
                                         whole=whole)} | jobs
    pieces = [(name, side) for name in jobs for side in reversed(SIDES)]
    # Instructions are the same beside another guest, cycles are not.
    done = at_once({f"{name} on the {side} kernel ({report['accel']})":
                    functools.partial(jobs[name], kernel, folders[side], side,
                                      kvm=kvm)
                    for name, side in pieces}, int(kvm))
    found = dict(zip(pieces, done.values()))
    with stage("timing the copies of I/O bitmaps in user space"):
        copies = measure_copy.measure_copy(
            kernel, {side: source(kernel, commit) for side, commit in zip(
                SIDES, ("base", "applied"))})
    return report | {"results": {
        name: {side: found[name, side] for side in SIDES}
        for name in jobs} | {COPY: copies}}


def tables(report: dict[str, Any], samples: Samples) -> Iterator[str]:
    """Yield all tables of a result as Markdown."""
    yield from measure_ports.tables(samples, {
        "tcg": "instructions", "kvm": "TSC cycles"}[report["accel"]])
    yield from measure_copy.tables(samples, report["machine"])
    if YIELD in report["results"]:
        yield ""
        yield from measure_yield.tables({"sides": report["results"][YIELD]})


def summary(samples: Samples) -> list[str]:
    """Return the table of README.md, without what was not measured."""
    return table(
        ["what, unit", "base", "series", "series / base", "good"],
        filter(None, (samples.row(program, SIDES, case, figure, what)
                      for what, program, case, figure
                      in TABLE["bench"]["readme"])))


def write_pages(kernel: Kernel, report: dict[str, Any]) -> list[str]:
    """Write a result in instructions, its page and plots; return the names of
    all its files below build/results."""
    from tools import plots  # here, because matplotlib is slow to load

    samples, place = Samples(report["results"]), kernel.results
    pictures = {name: charts for name, charts in TABLE["pictures"].items()
                if charts[0]["program"] in report["results"]}
    for name, charts in pictures.items():
        write_atomically(place / name, plots.draw(
            samples, dict(zip(SIDES, SIDES)), charts))
    base, series = (report["sides"][side] for side in SIDES)
    short = summary(samples)
    whole = "phase_us" in report["results"].get(YIELD, {}).get("series", ())
    job = "make bench" + " ALL=1" * whole + (
        f" KERNEL={kernel.name}" if kernel.name else "")
    write_atomically(place / "bench.md", "\n".join(wrapped([
        f"# Results of `{job}`", "", f"Measured on {report['date'][:10]}: "
        f"base {base['release']} and the series on it, {series['compiler']}, "
        f"`{series['config']}`, {report['machine']['qemu']} on "
        f"{report['machine']['cpu']}.", "", *short, "",
        *tables(report, samples), "",
        *(f"![plot]({name})" for name in pictures), ""])))
    write_atomically(place / "bench-readme.md", "\n".join([*short, ""]))
    return ["bench.json", "bench.md", "bench-readme.md", *pictures]


def count_cases(report: dict[str, Any]) -> tuple[int, int, int]:
    """Return how many cases of both sides were measured, failed, skipped."""
    found = Counter(case["status"] for sides in report["results"].values()
                    for result in sides.values() for case in result["cases"])
    return (found["ok"], found.total() - found["ok"] - found["skip"],
            found["skip"])


def main(kernel: Kernel, given: Given) -> None:
    """Measure, and write the pages of what was measured."""
    with build_lock(kernel):
        since = begun()
        report = {"version": 2, "date": since.date,
                  "repository": since.commit} | measure(kernel, "ALL" in given)
        samples = Samples(report["results"])
        say("\n" + console(tables(report, samples)) + "\n")
        write_atomically(kernel.results / "bench.json", compact(report))
        what = ("in TSC cycles of KVM, and no page: 'make bench ACCEL=tcg' "
                "counts instructions, as in README.md")
        if report["accel"] == "tcg":
            record(kernel, "bench", count_cases(report), since,
                   write_pages(kernel, report))
            what = "and its pages: 'make publish' takes them to results/"
        say(f"written: {shown_path(kernel.results)}/bench.json, {what}")
