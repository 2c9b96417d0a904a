# SPDX-License-Identifier: GPL-2.0-only
"""Run the programs of the study on the kernel that runs: ten minutes.

No kernel is built and nothing is installed: the programs are built below
build/measure, with python3, gcc and make alone, or taken from there where
there is no gcc.  What needs root, or a package that is missing, is left out
with the reason.  The figures go into one JSON file, which names the machine;
--compare makes a page of two of them.
"""

import argparse
import json
import os
import shutil
import sys
import time
from collections import defaultdict
from pathlib import Path
from typing import Any

from tools.build import SELFTESTS, build_bench, make_environment
from tools.core import (BUILD, LOGS, RESULTS, Fail, build_lock, duration,
                        need_tool, run_logged, run_main, say, scratch,
                        shown_path, stage, work_begins, write_json)
from tools.figures import (DATA, STUDY, Samples, now, result_of, shown,
                           words_of)
from tools.measure_copy import cpuinfo
from tools.series.apply import begin, sparse_tree

PLACE = BUILD / "measure"
# What building the selftests needs of a kernel tree.
SOURCES = [f"{SELFTESTS}/{name}" for name in (
    "lib.mk", "kselftest.h", "kselftest_harness.h", "x86")] + ["tools/scripts"]
RUNS = 3
TIMEOUT = 1200
# Runs a program so that it ends with this process, also if that is killed:
# prctl(PR_SET_PDEATHSIG, SIGTERM).
BOUND = ("import ctypes, os, sys; ctypes.CDLL(None).prctl(1, 15); "
         "os.getppid() == int(sys.argv[1]) and "
         "os.execv(sys.argv[2], sys.argv[2:])")


def build_program(name: str) -> Path:
    """Return a program of the study, built if there is a compiler."""
    if name.endswith(".sh"):
        need_tool("hackbench", "rt-tests")
        return DATA / name
    path = PLACE / Path(name).name
    if not shutil.which("gcc"):
        if not path.exists():
            need_tool("gcc", "gcc make")
        return path
    PLACE.mkdir(parents=True, exist_ok=True)
    if "/" not in name:
        return Path(shutil.copy2(build_bench(
            name, static=name != "blas_yield"), path))
    begin()
    path.unlink(missing_ok=True)
    with sparse_tree("applied", SOURCES) as tree:
        run_logged(["make", "-C", str(tree / SELFTESTS / name.split("/")[0]),
                    f"OUTPUT={PLACE}", "CC=gcc -static", str(path)],
                   LOGS / f"build-{path.name}.log", env=make_environment(),
                   what=f"building {name}")
    return path


def run_program(key: str, number: int, program: Path) -> dict[str, Any]:
    """Run a program of the study, for the number-th time; return its result."""
    log = LOGS / f"measure-{key}.ktap"
    with scratch("measure") as place:
        report = place / "report.json"
        report.touch()
        status = run_logged(
            [sys.executable, "-c", BOUND, str(os.getpid()), str(program),
             "--json", str(report), *words_of(key, number)[1:]],
            log, timeout=TIMEOUT, check=False)
        # 4: all was skipped; the JSON says why.
        return result_of(key, status, log, report.read_text(), (0, 4))


def machine() -> str:
    """Say on what the figures were measured."""
    board = [path.read_text().strip() for path in (
        Path("/sys/class/dmi/id") / name for name in (
            "sys_vendor", "product_name", "board_name")) if path.exists()]
    return "; ".join([
        f"Linux {os.uname().release} {os.uname().version}",
        f"{cpuinfo('model name')}, {len(os.sched_getaffinity(0))} CPUs",
        *filter(None, [" ".join(board)]),
        *["a virtual machine"] * ("hypervisor" in cpuinfo("flags").split()),
        f"load {os.getloadavg()[0]:.1f}",
        "root" if os.geteuid() == 0 else "not root"])


def run(keys: list[str]) -> None:
    """Build and run programs; the file is written after each run."""
    document = {"machine": machine(), "date": now(), "cells": {}}
    # Without a colon, which other systems do not take.
    output = RESULTS / f"measure-{os.uname().release}-" \
        f"{document['date'][:19].replace(':', '')}.json"
    programs, failed, took, skipped = {}, [], {}, defaultdict(dict)
    for key in keys:
        try:
            with stage(f"building {key}"):
                programs[key] = build_program(words_of(key, 1)[0])
        except Fail as failure:
            say(f"    left out: {failure}")
    say(document["machine"])
    rest = [(number, key) for number in range(1, RUNS + 1) for key in programs]
    while rest:
        # As long as before; the first time, as long as in a guest.
        left = sum(took.get(key, STUDY["programs"][key]["seconds"])
                   for _, key in rest)
        number, key = rest.pop(0)
        start = time.monotonic()
        try:
            with stage(f"{key}, run {number} of {RUNS}; "
                       f"about {duration(left)} left"):
                found = run_program(key, number, programs[key])
            document["cells"][f"{key}.{number}"] = shown(found)
            for case in found["cases"]:
                if case["status"] == "skip":
                    skipped[case.get("reason")][key] = None
        except Fail as failure:
            say(f"    FAILED: {failure}")
            failed.append(f"{key}.{number}")
        took[key] = time.monotonic() - start
        write_json(output, document)
    for reason, those in skipped.items():
        say(f"skipped, all or a part: {', '.join(those)}: {reason}")
    say(f"written: {shown_path(output)}")
    if failed:
        raise Fail(f"{', '.join(failed)} failed; the others were written")


def compare(paths: list[str]) -> None:
    """Write the page of two files, A and B."""
    from tools import report  # here, because that takes 'make study'

    samples, head = Samples(), []
    for letter, column, path in zip("AB", report.PAIRS[0], paths):
        try:
            found = json.loads(Path(path).read_text())
            head += ["", f"{letter}: {found['machine']}; "
                     f"{found['date'][:16]}, {len(found['cells'])} runs."]
            for name, result in found["cells"].items():
                samples.add(name.rpartition(".")[0], column, result)
        except (OSError, ValueError, KeyError, TypeError,
                AttributeError) as failure:
            raise Fail(f"{letter}={path} is not a result of 'make measure': "
                       f"{failure!r}") from None
    work_begins()
    report.write(samples, dict(zip(report.PAIRS[0], "AB")), [
        "# Two kernels, measured with `make measure`", *head, "",
        f"{report.RULE} Figures of two machines tell nothing about two "
        "kernels. Times of I/O ports are in ticks of the TSC."],
        RESULTS / "compare")


def main() -> None:
    """Measure, or compare."""
    parser = argparse.ArgumentParser(
        description=__doc__.split("\n\n", maxsplit=1)[0],
        epilog="Run it on an idle machine, once under each kernel.  'taskset "
               "-c N' before it chooses the processor.")
    parser.add_argument("--only", action="append", metavar="NAME",
                        choices=list(STUDY["programs"]),
                        help="only this program (may be repeated): "
                             + ", ".join(STUDY["programs"]))
    parser.add_argument("--compare", nargs=2, metavar=("A", "B"),
                        help="measure nothing, write a page of two such files")
    options = parser.parse_args()
    if options.compare:
        compare(options.compare)
        return
    with build_lock():
        run(options.only or list(STUDY["programs"]))


if __name__ == "__main__":
    run_main(main)
