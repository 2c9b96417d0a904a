#!/usr/bin/env python3
# SPDX-License-Identifier: GPL-2.0-only
"""Measure process-switch latency on the base and the series kernel.

Builds what is missing, boots both kernels one after the other with the same
test programs, times the series' copy routine on this machine's own processor,
prints the comparison and writes JSON and plots to build/results.
"""

import argparse
import datetime
import json
import os
import re
import shlex
import shutil
import subprocess
import sys
import tempfile
from pathlib import Path

import copycost
import memory
import yieldbench
from base import wanted
from common import (BUILD, LOGS, RESULTS, Fail, build_lock, git, run_logged,
                    run_main, say, shown_path, stage, write_atomically, ROOT)
from guest import boot, choose_kvm
from kernel import SIDES, build_sides, describe, make_environment

TEST = "ioperm_latency"
GUEST_SECONDS = 900
REFERENCE = "none"
# The rows of the table of switches: by how these names begin, then as the
# program has them.
ROWS = ("none", "pair-0x80-none", "shared-", "pair-", "")
# What a name alone does not tell.
WORDS = {
    "pair-interleaved": "one port in each even line, each odd line",
    "pair-eight-lines": "one port in each of eight lines, apart",
    "pair-parallel-ports": "0x378-0x37a and 8 high ones each",
    "pair-pciutils": "0xcf8-0xcff and 0xc000-0xcffe, both alike",
    "pair-all-but-one": "all but port 0, all but port 1",
    "call-ioperm-low-1k": "0 to 0x3ff at once",
    "call-ioperm-all": "0 to 0xffff at once",
}
UNITS = {
    "tcg": "instructions of the guest (QEMU TCG, -icount): exact and "
           "repeatable, but not cycles",
    "kvm": "TSC cycles of the host (KVM)",
}
SHORT_UNITS = {"tcg": "instructions", "kvm": "TSC cycles"}


def build_test(tree, bits=64, name=TEST, folder="x86"):
    """Build one selftest of a kernel tree; returns the program's path."""
    output = BUILD / "bench"
    output.mkdir(parents=True, exist_ok=True)
    program = output / (f"{name}_{bits}" if folder == "x86" else name)
    program.unlink(missing_ok=True)
    run_logged(["make", "-C", str(tree / "tools/testing/selftests" / folder),
                f"OUTPUT={output}", str(program)],
               LOGS / f"build-{name}.log", env=make_environment(),
               what=f"building {name}")
    if not program.exists():
        raise Fail(f"building {name} made no {shown_path(program)}")
    return program


def measure(tree, program, side, kvm, arguments=()):
    """Run the latency test on one kernel.

    Returns what its --json wrote (dict).  Raises Fail when the test fails,
    skips as a whole, or writes no JSON.
    """
    with tempfile.TemporaryDirectory(prefix="bench-", dir=BUILD) as place:
        report = Path(place) / "report.json"
        command = " ".join([str(program), "--json", str(report), *arguments])
        result = boot(tree, command, cpus=1,
                      icount=None if kvm else "wait-idle", kvm=kvm,
                      timeout=GUEST_SECONDS, name=f"bench-{side}",
                      share=Path(place))
        write_atomically(LOGS / f"bench-{side}.ktap", result.output)
        if result.status != 0 or not report.exists():
            raise Fail(f"{program.name} ended with status {result.status} on "
                       f"the {side} kernel; the end of its output, "
                       f"{shown_path(LOGS)}/bench-{side}.ktap:\n    "
                       + "\n    ".join(result.output.splitlines()[-12:]))
        return json.loads(report.read_text())


def machine():
    """Return what machine this is (dict of str)."""
    cpu = re.search(r"^model name\s*: (.*)$",
                    Path("/proc/cpuinfo").read_text(), re.M)
    qemu = subprocess.run(["qemu-system-x86_64", "--version"],
                          capture_output=True, text=True).stdout
    return {"cpu": cpu.group(1) if cpu else "unknown",
            "cpus": str(os.cpu_count()),
            "qemu": qemu.split("\n")[0]}


def by_name(report, side):
    """Return {case name: p50 (int)} of the cases of one side that ran."""
    return {case["name"]: case["p50"]
            for case in report["sides"][side][TEST]["cases"]
            if case["status"] == "ok"}


def ratio(a, b):
    """Format a/b with two decimals, or a dash where there is none."""
    return f"{a / b:.2f}" if a and b else "-"


def switches(cases):
    """Return the names (list of str) of the rows for switches, in order."""
    names = [case["name"] for case in cases if case["kind"] == "switch"
             and not case["name"].startswith("sweep-")]
    return sorted(names, key=lambda name: next(
        number for number, start in enumerate(ROWS) if name.startswith(start)))


def label(name):
    """Return what a row of the tables is called (str)."""
    words = f": {WORDS[name]}" if name in WORDS else ""
    return name.removeprefix("call-") + words


def tables(report):
    """Return the comparison as Markdown lines (list of str).

    Per case the p50 of base and series, their ratio, and for switches each
    divided by `none` of its own kernel.
    """
    base, series = by_name(report, "base"), by_name(report, "series")
    cases = report["sides"]["series"][TEST]["cases"]
    rounds = {case["kind"]: case["rounds"] for case in cases
              if case["status"] == "ok"}
    rows = [f"Unit: {report['unit']}; p50 of "
            f"{rounds.get('switch', 0)} calls.",
            "",
            "One sched_yield() between two SCHED_FIFO tasks, that is, two "
            "switches:",
            "",
            "| ports of the two tasks | base | series | series / base "
            "| base / none | series / none |",
            "|---|---:|---:|---:|---:|---:|"]
    for name in switches(cases):
        a, b = base.get(name), series.get(name)
        rows.append(f"| {label(name)} | {a or 'skipped'} | {b or 'skipped'} "
                    f"| {ratio(b, a)} | {ratio(a, base.get(REFERENCE))} "
                    f"| {ratio(b, series.get(REFERENCE))} |")
    swept = [case["name"] for case in cases
             if case["name"].startswith("sweep-") and case["name"] in base
             and case["name"] in series]
    if swept:
        low = [min(side[name] for name in swept) for side in (base, series)]
        high = [max(side[name] for name in swept) for side in (base, series)]
        rows += ["", f"One port each, at {len(swept)} port numbers from 0 to "
                 f"65535, dearest divided by cheapest: base "
                 f"{high[0]}/{low[0]} = {ratio(high[0], low[0])}, series "
                 f"{high[1]}/{low[1]} = {ratio(high[1], low[1])}."]
    rows += ["", f"The calls themselves, p50 of {rounds.get('call', 0)}:", "",
             "| call | base | series | series / base |",
             "|---|---:|---:|---:|"]
    for case in cases:
        if case["kind"] == "call":
            name = case["name"]
            a, b = base.get(name), series.get(name)
            rows.append(f"| {label(name)} | {a or 'skipped'} "
                        f"| {b or 'skipped'} | {ratio(b, a)} |")
    return rows + memory.tables(report)


def show(report):
    """Return all that a report (dict) holds as text for a terminal (str)."""
    rows = tables(report)
    if "copycost" in report:
        rows += ["", *copycost.tables(report["copycost"])]
    if "yield" in report:
        rows += ["", *yieldbench.tables(report["yield"])]
    return console_table(rows)


def console_table(rows):
    """Align Markdown table lines for a terminal; returns a str."""
    out, block = [], []

    def flush():
        if not block:
            return
        cells = [[cell.strip() for cell in row.strip("|").split("|")]
                 for row in block if not set(row) <= set("|-: ")]
        widths = [max(len(row[i]) for row in cells)
                  for i in range(len(cells[0]))]
        for row in cells:
            out.append("  ".join(
                cell.ljust(width) if i == 0 else cell.rjust(width)
                for i, (cell, width) in enumerate(zip(row, widths))))
        block.clear()

    for row in rows:
        if row.startswith("|"):
            block.append(row)
        else:
            flush()
            out.append(row)
    flush()
    return "\n".join(out)


def plot(report, path):
    """Draw switch cost against highest enabled port; path: Path of an SVG.

    A PNG of the same name is written beside it.
    """
    import matplotlib
    matplotlib.use("Agg")
    matplotlib.rcParams["svg.hashsalt"] = "series"
    from matplotlib import pyplot

    figure, axes = pyplot.subplots(figsize=(7.2, 4.2), layout="constrained")
    figure.patch.set_facecolor("white")
    for side, colour, style, marker in (("base", "#b3400f", "-", "o"),
                                        ("series", "#1f5fa8", "--", "s")):
        points = sorted(
            (max(case["highest_port"]), case["p50"])
            for case in report["sides"][side][TEST]["cases"]
            if case["name"].startswith("sweep-") and case["status"] == "ok")
        none = by_name(report, side).get(REFERENCE)
        release = report["sides"][side]["release"]
        axes.plot([x for x, _ in points], [y for _, y in points], style,
                  color=colour, marker=marker, markersize=4,
                  label=f"{side} ({release})")
        if none and side == "base":
            axes.axhline(none, color="#777777", linewidth=1, linestyle=":",
                         label="no ports at all (base)")
    axes.set_xlabel("highest enabled port of the two tasks")
    axes.set_ylabel(f"{SHORT_UNITS[report['accel']]} per sched_yield() call "
                    "(two switches)")
    axes.set_title("Cost of a switch between two tasks with one I/O port each",
                   fontsize=11)
    axes.set_xticks(range(0, 65537, 8192))
    axes.set_xlim(-1000, 66536)
    axes.set_ylim(bottom=0)
    axes.grid(alpha=0.3)
    axes.legend(loc="best", fontsize=9)
    for target in (path, path.with_suffix(".png")):
        partial = target.with_name("partial-" + target.name)
        figure.savefig(partial, dpi=110,
                       metadata={"Date": None} if target == path else None)
        partial.replace(target)
    pyplot.close(figure)


def run(arguments=(), with_yield=True):
    """Build, measure both sides and return the report (dict).

    arguments: for the test of the I/O bitmaps; with_yield: measure
    sched_yield() as well, where the series has a test for it.
    """
    trees = build_sides()
    kvm = choose_kvm(trees["base"])
    accel = "kvm" if kvm else "tcg"
    program = build_test(trees["series"])
    report = {"benchmark": TEST, "version": 1, "accel": accel,
              "unit": UNITS[accel], "machine": machine(),
              "date": datetime.datetime.now(datetime.timezone.utc)
              .isoformat(timespec="seconds"),
              "wanted_base": wanted()["TESTED"],
              "repository": git("rev-parse", "-q", "--verify", "HEAD",
                                cwd=ROOT, check=False).strip() or None,
              "sides": {}}
    for side in SIDES:
        with stage(f"measuring the {side} kernel "
                   f"({'KVM' if kvm else 'TCG, -icount'})"):
            report["sides"][side] = describe(trees[side]) | {
                TEST: measure(trees[side], program, side, kvm, arguments)}
    program = memory.build()
    for side in SIDES:
        with stage(f"measuring memory on the {side} kernel"):
            report["sides"][side][memory.TEST] = memory.measure(
                trees[side], program, side, kvm)
    with stage("timing the series' copy of I/O bitmaps in user space"):
        report["copycost"] = copycost.measure(trees["series"])
    if with_yield and yieldbench.available(trees["series"]):
        program = yieldbench.build_test(trees["series"])
        report["yield"] = {"benchmark": yieldbench.TEST, "version": 1,
                           "sides": {}}
        for side in SIDES:
            with stage(f"measuring sched_yield() on the {side} kernel"):
                report["yield"]["sides"][side] = yieldbench.measure(
                    trees[side], program, side, kvm)
    return report


def load(path):
    """Read a result of this script (dict) from a JSON file (Path)."""
    try:
        report = json.loads(path.read_text())
        report["sides"]["base"][TEST]["cases"]
    except (OSError, ValueError, KeyError, TypeError) as failure:
        raise Fail(f"{path} is not a result of 'make bench': {failure!r}") \
            from None
    return report


def main():
    parser = argparse.ArgumentParser(
        description=__doc__.split("\n\n")[0],
        epilog="ACCEL=tcg|kvm overrides the choice of the accelerator.")
    parser.add_argument("--rounds", type=int, help="calls per case")
    parser.add_argument("--warmup", type=int, help="calls before these")
    parser.add_argument("--case", action="append", default=[],
                        help="only this case or pattern, 'sweep-*' (may be "
                             "repeated)")
    parser.add_argument("--no-yield", action="store_true",
                        help="do not measure sched_yield()")
    parser.add_argument("--show", type=Path, metavar="JSON",
                        help="measure nothing, show this result again")
    options = parser.parse_args()
    if options.show:
        print(show(load(options.show)))
        return
    arguments = [word for name in options.case
                 for word in ("--case", shlex.quote(name))]
    for name in ("rounds", "warmup"):
        value = getattr(options, name)
        if value is not None:
            arguments += [f"--{name}", str(value)]
    with build_lock():
        report = run(arguments, not options.no_yield)
        RESULTS.mkdir(parents=True, exist_ok=True)
        latest = RESULTS / "bench.json"
        write_atomically(latest, json.dumps(report, indent=1) + "\n")
        stamp = re.sub(r"\D", "", report["date"][:19])
        shutil.copyfile(latest, RESULTS / f"bench-{stamp}.json")
        plot(report, RESULTS / "bench.svg")
        if "yield" in report:
            yieldbench.plot(report["yield"], RESULTS / "yield.svg")
    sys.stdout.write("\n" + show(report) + "\n\n")
    say(f"written: {shown_path(latest)}, the plots beside it")


if __name__ == "__main__":
    run_main(main)
