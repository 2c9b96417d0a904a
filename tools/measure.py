# SPDX-License-Identifier: GPL-2.0-only
"""Measure the kernel that runs, with the programs of tools/bench and of
the series.

No kernel is built and nothing is installed: the programs are built below
build/ and run from there, with python3, gcc and make alone.  Root is needed
only where a case needs it, which is skipped with the reason otherwise.  The
figures go into one JSON file; --compare shows two of them, from two kernels,
side by side.
"""

import argparse
import itertools
import json
import os
import time
from pathlib import Path
from typing import Any

from tools.build import SELFTESTS, build_bench, make_environment
from tools.core import (BUILD, LOGS, RESULTS, Fail, build_lock, need_tool,
                        run_logged, run_main, say, scratch, shown_path, stage,
                        write_json)
from tools.figures import (BETTER, ENOUGH, PROGRAMS, WORSE, Samples, compare,
                           now, result_of)
from tools.measure_copy import cpuinfo
from tools.series.apply import begin, sparse_tree
from tools.tables import console, table

# What building the selftests needs of a kernel tree.
SOURCES = [f"{SELFTESTS}/{name}" for name in (
    "lib.mk", "kselftest.h", "kselftest_harness.h", "x86", "sched")] + [
    "tools/scripts"]
TIMEOUT = 4 * 3600
# How far figures of one kernel were seen apart on real machines. Only used
# when there are few runs of each.
ASSUMED = 0.10


def build_programs(names: list[str]) -> dict[str, Path]:
    """Build programs, selftests from the few files that they need."""
    need_tool("gcc", "gcc")
    need_tool("make", "make")
    begin()
    place, found = BUILD / "measure", {}
    place.mkdir(parents=True, exist_ok=True)
    with sparse_tree("applied", SOURCES) as tree:
        for name in names:
            test = Path(PROGRAMS[name])
            if not test.name:
                found[name] = build_bench(name)
                continue
            found[name] = place / test.name
            found[name].unlink(missing_ok=True)
            run_logged(["make", "-C", str(tree / SELFTESTS / test.parent),
                        f"OUTPUT={place}", str(found[name])],
                       LOGS / f"build-{name}.log", env=make_environment(),
                       what=f"building {name}")
    return found


def run_program(name: str, program: Path, number: int) -> dict[str, Any]:
    """Run a program, for the number-th time; return what its --json wrote."""
    seed = ["--seed", str(number)] if name == "interactive_latency" else []
    log = LOGS / f"measure-{name}.ktap"
    with scratch("measure") as place:
        report = place / "report.json"
        report.touch()
        status = run_logged([str(program), *seed, "--json", str(report)], log,
                            timeout=TIMEOUT, check=False)
        # 4: all was skipped; the JSON says why.
        return result_of(name, status, log, report.read_text(), (0, 4))


def run(names: list[str], repeat: int) -> None:
    """Build and run programs; the file is written after each run."""
    programs = build_programs(names)
    start, date = time.monotonic(), now()
    output = RESULTS / f"measure-{os.uname().release}-{date[:19]}.json"
    failed = []
    results: dict[str, list[Any]] = {name: [] for name in names}
    for name, number in itertools.product(names, range(1, repeat + 1)):
        if name in failed:
            continue
        with stage(f"{name}, run {number} of {repeat}"):
            try:
                found = run_program(name, programs[name], number)
            except Fail as failure:
                say(f"    FAILED: {failure}")
                failed.append(name)
                continue
        results[name].append(found)
        skipped = [str(case.get("reason")) for case in found["cases"]
                   if case.get("status") == "skip"]
        if skipped:
            say(f"    {len(skipped)} of {len(found['cases'])} cases skipped: "
                + "; ".join(sorted(set(skipped))[:3]))
        write_json(output, {
            "benchmark": "measure", "version": 1, "machine": {
                "cpu": cpuinfo("model name"),
                "cpus": len(os.sched_getaffinity(0)),
                "kernel": os.uname().release, "build": os.uname().version,
                "virtual": "hypervisor" in cpuinfo("flags").split(),
                "load": os.getloadavg()[0], "root": os.geteuid() == 0},
            "date": date, "seconds": round(time.monotonic() - start, 1),
            "repeat": repeat, "results": results,
            "complete": (name, number) == (names[-1], repeat)})
        say(f"    written: {shown_path(output)}")
    if failed:
        raise Fail(f"{', '.join(failed)} failed; the figures of the others "
                   "were written")


def compare_files(paths: dict[str, Path]) -> None:
    """Print the comparison of two files, called A and B."""
    samples, processors = Samples(), set()
    for letter, path in paths.items():
        try:
            document = json.loads(path.read_text())
            for name, runs in document["results"].items():
                for found in runs:
                    samples.add(name, letter, found)
            about = document["machine"]
            say(f"{letter}: {about['kernel']} on {about['cpu']}, "
                f"{document['date'][:16]}, {document['repeat']} runs"
                + ("" if document["complete"] else ", interrupted"))
        except (OSError, ValueError, KeyError, TypeError, AttributeError) \
                as failure:
            raise Fail(f"{path} is not a result of 'make measure': "
                       f"{failure!r}") from None
        processors.add(about["cpu"])
    rows = [row for key in samples.cases
            for row in compare(samples, key, ("A", "B"), ASSUMED)]
    if not rows:
        raise Fail("the two files have no figure in common")
    if len(processors) > 1:
        say("These are two machines: a ratio says nothing about the kernels.")
    say(console(table(
        ["case", "figure", "A", "B", "B / A", "noise", "beyond it"],
        [[f"{row.key}: {row.case}",
          row.texts()[0].replace("instructions", "cycles"), *row.texts()[1:],
          row.verdict if row.verdict in (WORSE, BETTER) else ""]
         for row in rows])))
    if min(row.runs for row in rows) < ENOUGH:
        say(f"With fewer than {ENOUGH} runs the noise is taken as "
            f"{100 * ASSUMED} % at least; --repeat {ENOUGH} measures it.")


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__.split("\n\n")[0],
        epilog="Run it on an idle machine, once under each kernel.  'taskset "
               "-c N' before it chooses the processor.")
    parser.add_argument("--only", action="append", metavar="NAME",
                        choices=list(PROGRAMS),
                        help="only this program (may be repeated): "
                             + ", ".join(PROGRAMS))
    parser.add_argument("--repeat", type=int, default=1,
                        help="runs of each (default: 1)")
    parser.add_argument("--compare", type=Path, nargs=2,
                        metavar=("A", "B"),
                        help="measure nothing, compare two such files")
    options = parser.parse_args()
    if options.compare:
        compare_files(dict(zip("AB", options.compare)))
        return
    if options.repeat < 1:
        raise Fail("--repeat must be 1 or more")
    with build_lock():
        run(options.only or list(PROGRAMS), options.repeat)


if __name__ == "__main__":
    run_main(main)
