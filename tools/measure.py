# SPDX-License-Identifier: GPL-2.0-only
"""Run the programs of the study on the kernel that runs: make measure.

No kernel is built and nothing is installed: the programs are built below
build/measure, with Python, gcc, make and the static C library alone, or taken
from there where there is no gcc.  What needs root, or a package that is
missing, is left out with the reason.  The figures go into one JSON file, which
names the machine; 'make report' makes a page of two of them.
"""

import os
import shutil
from collections import defaultdict
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from tools.build import SELFTESTS, build_bench, make_environment
from tools.core import (Fail, Given, Kernel, bound, build_lock, duration,
                        need_tool, run_logged, say, scratch, shown_path,
                        stage, write_json)
from tools.figures import DATA, RUNS, STUDY, result_of, shown, words_of
from tools.measure_copy import cpuinfo
from tools.series.apply import begin, sparse_tree

# What building the selftests needs of a kernel tree.
SOURCES = [f"{SELFTESTS}/{name}" for name in (
    "lib.mk", "kselftest.h", "kselftest_harness.h", "x86")] + ["tools/scripts"]
TIMEOUT = 1200


def build_program(kernel: Kernel, name: str) -> Path:
    """Return a program of the study, built if there is a compiler."""
    if name.endswith(".sh"):
        need_tool("hackbench", "rt-tests")
        return DATA / name
    place = kernel.build / "measure"
    path = place / Path(name).name
    if not all(map(shutil.which, ("gcc", "make"))):
        if not path.exists():
            need_tool("gcc", "gcc make libc6-dev")
            need_tool("make", "make")
        return path
    place.mkdir(parents=True, exist_ok=True)
    if "/" not in name:
        return Path(shutil.copy2(build_bench(
            kernel, name, static=True), path))
    begin(kernel)
    path.unlink(missing_ok=True)
    with sparse_tree(kernel, "applied", SOURCES) as tree:
        run_logged(["make", "-C", str(tree / SELFTESTS / name.split("/")[0]),
                    f"OUTPUT={place}", "CC=gcc -static", str(path)],
                   kernel.logs / f"build-{path.name}.log",
                   env=make_environment(), what=f"building {name}")
    return path


def run_program(kernel: Kernel, key: str, number: int,
                program: Path) -> dict[str, Any]:
    """Run a program of the study the number-th time; return its result."""
    log = kernel.logs / f"measure-{key}.ktap"
    with scratch("measure") as place:
        report = place / "report.json"
        report.touch()
        status = run_logged(
            bound([*STUDY["programs"][key].get("before", ()), str(program),
                   "--json", str(report), *words_of(key, number)[1:]]),
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


def run(kernel: Kernel, keys: list[str]) -> None:
    """Build and run programs; the file is written after each run."""
    date = datetime.now(UTC).isoformat(timespec="seconds")
    document = {"machine": machine(), "date": date, "cells": {}}
    # Without a colon, which other systems do not take.
    output = kernel.results / (f"measure-{os.uname().release}-"
                               f"{date[:19].replace(':', '')}.json")
    programs, failed, skipped = {}, [], defaultdict(dict)
    for key in keys:
        try:
            with stage(f"building {key}"):
                programs[key] = build_program(kernel, words_of(key, 1)[0])
        except Fail as failure:
            say(f"    left out: {failure}")
    if not programs:
        raise Fail("no program could be built or found, so nothing was "
                   "measured: install a C compiler, make and the static C "
                   "library (Debian: gcc make libc6-dev; Fedora: gcc make "
                   "glibc-static), or rt-tests for hackbench")
    say(document["machine"])
    rest = [(number, key) for number in range(1, RUNS + 1) for key in programs]
    while rest:
        # About as long as in a guest.
        left = sum(STUDY["programs"][key]["seconds"] for _, key in rest)
        number, key = rest.pop(0)
        try:
            with stage(f"{key}, run {number} of {RUNS}; "
                       f"about {duration(left)} left"):
                found = run_program(kernel, key, number, programs[key])
            document["cells"][f"{key}.{number}"] = shown(key, found)
            for case in found["cases"]:
                if case["status"] == "skip":
                    skipped[case.get("reason")][key] = None
        except Fail as failure:
            say(f"    FAILED: {failure}")
            failed.append(f"{key}.{number}")
        except KeyboardInterrupt:
            raise KeyboardInterrupt(
                f"{shown_path(output)} has what was measured, and another "
                "run begins anew" if document["cells"] else "") from None
        write_json(output, document)
    for reason, those in skipped.items():
        say(f"skipped, all or a part: {', '.join(those)}: {reason}")
    say(f"written: {shown_path(output)}")
    if failed:
        raise Fail(f"{', '.join(failed)} failed; the others were written")


def look(kernel: Kernel, given: Given) -> list[str]:
    """Return the programs that ONLY= names."""
    return given.words("ONLY", STUDY["programs"])


def main(kernel: Kernel, given: Given) -> None:
    """Measure."""
    keys = look(kernel, given) or list(STUDY["programs"])
    with build_lock(kernel):
        run(kernel, keys)
