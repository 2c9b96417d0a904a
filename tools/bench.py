# SPDX-License-Identifier: GPL-2.0-only
"""Measure base and series beside each other.

Builds what is missing, boots both kernels one after the other with the same
programs, times the copy of I/O bitmaps on this machine's own processor,
prints the tables, and writes JSON and plots to build/results.  With --publish
the last result goes to results/ and into README.md instead.  With KERNEL= the
results go to results/KERNEL, and README.md stays as it is.
"""

import argparse
import os
import shutil
import subprocess
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from tools import measure_copy, measure_ports, measure_yield
from tools.build import KERNELS, SIDES, build_sides, describe, source
from tools.core import (KERNEL, PUBLISHED, RESULTS, ROOT, Fail, build_lock,
                        git, read_json, run_main, say, shown_path, stage,
                        write_atomically, write_json)
from tools.figures import Key, Samples, now
from tools.guest import choose_kvm
from tools.measure_ports import MEMORY, PORTS
from tools.measure_yield import KEY, YIELD
from tools.series.apply import has_yield
from tools.tables import console, number, ratio, table

PLOTS = ("bench.svg", "yield.svg")
BEGIN, END = "<!-- bench:begin -->", "<!-- bench:end -->"
UNITS = {
    "tcg": "instructions of the guest (QEMU TCG, -icount): exact and "
           "repeatable, but not cycles",
    "kvm": "TSC cycles of the host (KVM)",
}
# The first rows of README.md.
SWITCHES = {
    "pair-0x80-0x81": "switch between tasks with one low port each",
    "pair-0x80-65535": "switch, port 0x80 and port 65535",
    "pair-all": "switch, all ports",
    "pair-every-line": "switch, one port in every line",
    "call-ioperm-first": "first ioperm()",
}
WORKER = "polite-20us-slice-2.8ms-hogs-1"
POLLERS = "poll-15-hogs-1"
COLUMNS = ["what", "base", "series", "series / base", "copy, cycles: base",
           "series"]


# --- measuring -------------------------------------------------------------

def measure() -> dict[str, Any]:
    """Build both kernels and measure each."""
    folders = build_sides()
    kvm = choose_kvm(folders["base"])
    accel = "kvm" if kvm else "tcg"
    qemu = subprocess.run(["qemu-system-x86_64", "--version"],
                          capture_output=True, text=True).stdout
    sides: dict[str, Any] = {side: describe(side) for side in SIDES}
    yields: dict[str, Any] = {}
    with_yield = has_yield()
    report = {"benchmark": PORTS, "version": 1, "accel": accel,
              "unit": UNITS[accel],
              "machine": {"cpu": measure_copy.cpuinfo("model name"),
                          "cpus": str(os.cpu_count()),
                          "qemu": qemu.partition("\n")[0]},
              "date": now(),
              "repository": git("rev-parse", "-q", "--verify", "HEAD",
                                cwd=ROOT, check=False).strip() or None,
              "sides": sides}
    if with_yield:
        report["yield"] = {"benchmark": YIELD, "version": 1, "sides": yields}
    for side, folder in folders.items():
        with stage(f"measuring I/O ports on the {side} kernel ({accel})"):
            sides[side][PORTS] = measure_ports.measure_ports(folder, side,
                                                             kvm=kvm)
        with stage(f"measuring memory on the {side} kernel"):
            sides[side][MEMORY] = measure_ports.measure_memory(folder, side,
                                                               kvm)
        if not with_yield:
            continue
        with stage(f"measuring sched_yield() on the {side} kernel"):
            yields[side] = measure_yield.measure_yield(folder, side, kvm=kvm)
    with stage("timing the copies of I/O bitmaps in user space"):
        report["copycost"] = measure_copy.measure_copy(
            {side: source(KERNELS[side].commit) for side in SIDES})
    return report


def load(path: Path) -> dict[str, Any]:
    """Read a whole result from a JSON file."""
    report = read_json(path)
    try:
        report["copycost"]["areas"]
        for side in SIDES:
            report["sides"][side][PORTS]["cases"]
            report["sides"][side][MEMORY]["cases"]
            if has_yield():
                report["yield"]["sides"][side]["cases"]
    except (KeyError, TypeError):
        raise Fail(f"{shown_path(path)} is no whole result of 'make bench': "
                   "run that first") from None
    return report


def samples_of(report: dict[str, Any]) -> Samples:
    """Return all figures of the guests."""
    samples = measure_ports.samples_of(report)
    if "yield" in report:
        for side in SIDES:
            samples.add(KEY, side, report["yield"]["sides"][side])
    return samples


def draw(report: dict[str, Any], folder: Path) -> None:
    """Write the plots of a whole result in instructions to a folder."""
    from tools import plots  # here, because matplotlib is slow to load

    samples = samples_of(report)
    write_atomically(folder / PLOTS[0], plots.sweep(samples=samples))
    if "yield" in report:
        write_atomically(folder / PLOTS[1], plots.polite(
            samples=samples, columns=SIDES))


# --- showing ---------------------------------------------------------------

def tables(report: dict[str, Any]) -> Iterator[str]:
    """Yield all tables of a result as Markdown."""
    yield from measure_ports.tables(report)
    yield from measure_copy.tables(report["copycost"])
    if "yield" in report:
        yield ""
        yield from measure_yield.tables(report["yield"])


def measured(report: dict[str, Any]) -> str:
    """Say in a paragraph what was measured on what."""
    sides = report["sides"]
    return (f"Measured on {report['date'][:10]} by `make bench`: base "
            f"{sides['base']['release']} and the series on it, "
            f"{sides['series']['compiler']}, `{sides['series']['config']}`, "
            f"{report['machine']['qemu']} on {report['machine']['cpu']}.")


def change(base: float | None, series: float | None,
           more_is_better: bool = False) -> str:
    """Format series / base, and say so when that is worse."""
    text = ratio(series, base)
    worse = text not in ("-", "1.00") and \
        (series < base) == more_is_better
    return f"{text} (worse)" if worse else text


def summary(report: dict[str, Any]) -> Iterator[list[str]]:
    """Yield the rows of README.md: what, base, series, ratio, cycles."""
    samples = samples_of(report)

    def get(key: Key, case: str, figure: str,
            scale: float = 1) -> list[float | None]:
        return samples.medians(key, SIDES, case, figure, scale)

    for case, what in SWITCHES.items():
        p50, copies = get((PORTS, ""), case, "p50"), ["-", "-"]
        if case.startswith("pair-"):
            # The base copies the same when all ports but one are enabled.
            # The series copies nothing: the TSS has a map of all ports.
            copied = case.replace("pair-all", "pair-all-but-one")
            found = report["copycost"]["cases"][copied]
            copies = [number(found[side]["warm"])
                      if case == copied or side == "base" else "no copy"
                      for side in SIDES]
        yield [f"{what}, instructions", *map(number, p50), change(*p50),
               *copies]
    kilobytes = get((MEMORY, ""), "port-0x80", "unreclaimable", 1024)
    tasks = report["sides"]["series"][MEMORY].get("tasks")
    yield [f"memory of the bitmaps of {tasks} tasks with one port, kB",
           *map(number, kilobytes), change(*kilobytes), "-", "-"]
    if "yield" not in report:
        return

    share, p99 = get(KEY, WORKER, "share"), get(KEY, WORKER, "p99", 1e6)
    limit = measure_yield.fair_limit(
        20, 1, report["yield"]["sides"]["series"]["tick_ns"])
    yield ["sched_yield() after each 20 us, beside one hog, slices 2.8 ms: "
           f"share of the CPU (fair: {limit:.1f} %); p99 of the call",
           *(f"{number(a, 2, ' %')}; {number(b, 2, ' ms')}"
             for a, b in zip(share, p99)),
           f"{change(*share, more_is_better=True)}; {change(*p99)}",
           "-", "-"]
    cost = [value and 100 - value
            for value in get(KEY, POLLERS, "hogs_share")]
    yield ["15 tasks that poll with sched_yield(): what a hog loses",
           *(number(value, 1, " %") for value in cost), change(*cost),
           "-", "-"]


# --- publishing ------------------------------------------------------------

def section(report: dict[str, Any]) -> list[str]:
    """Return the lines between the marks of README.md."""
    return ["", measured(report), "Cycles are of the copy of the bitmap "
            "alone, in user space with warm caches. A switch is one "
            "sched_yield() between two tasks, that is, two of them. All "
            "tables: [results/bench.md](results/bench.md).", "",
            *table(COLUMNS, summary(report)), "",
            "![cost of a switch against the highest enabled port]"
            "(results/bench.svg)", ""]


def publish() -> None:
    """Copy the last result to results/ and put its table into README.md."""
    report = load(RESULTS / "bench.json")
    if report["accel"] != "tcg":
        raise Fail("results/ has instructions, not cycles: measure with "
                   "ACCEL=tcg")
    readme = ROOT / "README.md"
    text = readme.read_text()
    if text.count(BEGIN) != 1 or text.count(END) != 1:
        raise Fail(f"README.md must have one {BEGIN} and one {END}")
    before, rest = text.split(BEGIN)
    PUBLISHED.mkdir(exist_ok=True)
    pictures = PLOTS if "yield" in report else PLOTS[:1]
    for name in ("bench.json", *pictures):
        shutil.copyfile(RESULTS / name, PUBLISHED / name)
    short = [] if not KERNEL else ["", *table(COLUMNS, summary(report))]
    write_atomically(PUBLISHED / "bench.md", "\n".join(
        [f"# Results of `make bench{f' KERNEL={KERNEL}' if KERNEL else ''}`",
         "", measured(report), *short, *tables(report),
         "", *(f"![plot]({name})" for name in pictures), ""]))
    if not KERNEL:
        write_atomically(readme, "\n".join(
            [before + BEGIN, *section(report), END + rest.split(END)[1]]))
    say(f"{shown_path(PUBLISHED)}/{'' if KERNEL else ' and README.md'} have "
        f"the figures of {report['date']}")


def main() -> None:
    """Measure or publish."""
    parser = argparse.ArgumentParser(
        description=__doc__.split("\n\n")[0],
        epilog="ACCEL=tcg|kvm overrides the choice of the accelerator.")
    parser.add_argument("--publish", action="store_true",
                        help="measure nothing, put the last result into "
                             "results/ and README.md")
    if parser.parse_args().publish:
        publish()
        return
    with build_lock():
        report = measure()
        say("\n" + console(tables(report)) + "\n")
        write_json(RESULTS / "bench.json", report)
        if report["accel"] == "tcg":
            draw(report, RESULTS)
        say(f"written: {shown_path(RESULTS)}/bench.json and plots")


if __name__ == "__main__":
    run_main(main)
