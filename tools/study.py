# SPDX-License-Identifier: GPL-2.0-only
"""Run the measurements of the literature on many kernels: hours, resumable.

Columns are kernels (results/measurement.md), and a cell is one program
on one kernel, once.  Finished cells are in build/results/study; the same
command goes on with what is missing, and measures again what was measured of
another kernel or program.  'make report' turns the cells into a page.

Nothing comes into the guest from outside, so a cell has the same figures on a
busy host as on an idle one, and several are measured at once.  What differs
from one run to the next is when the program begins, and the seed if it takes
one.
"""

import argparse
import functools
import os
import re
import shlex
import time
from pathlib import Path
from typing import Any, NamedTuple

from tools import build
from tools.core import (BUILD, LOGS, RESULTS, ROOT, Fail, build_lock, digest,
                        git, in_parallel, need_tool, run_logged, run_main,
                        say, scratch, shown_path)
from tools.figures import (PROGRAMS, SIDES, add_cells, now, read_cells,
                           result_of)
from tools.guest.tiny import REPEATABLE, REPEATABLE_KERNEL, closure
from tools.measure_ports import TASK_WORDS
from tools.measure_yield import run_isolated
from tools.series.apply import begin, sparse_tree
from tools.series.base import ME, REPO

STUDY = RESULTS / "study"
HISTORY = {"history_8k": ROOT / "tools/study-data/2.6.8.1-copy-8k.patch",
           "history_prefix": ROOT / "tools/study-data/2.6.9-copy-prefix.patch"}
# Runs of base and series, and of the other columns at most. With two or
# three of each, one noisy figure in ten or thirty differs by more than its
# spread (see CHANCE in figures.py), and hundreds of figures are compared.
REPEAT = 6
REPEAT_OTHERS = 2
GUEST_SECONDS = 4 * 3600
# By the guest's clock, which skips what is idle.
PROGRAM_SECONDS = 12 * 3600
MEMORY = "2G"
REPORT = "/tmp/report.json"
# What the scripts in the guest run.
TOOLS = ("sh", "grep", "ip", "sleep", "tail")
# Each run begins this many rounds of a loop later than the one before: about
# a third of a millisecond, of a tick of 1 to 10.
DELAY = 1000

# The kernel with sched_ext, and who schedules in which column.
EXT = "base_ext"
SCHEDULERS = {"ext_simple": "scx_simple", "ext_qmap": "scx_qmap"}
# The verifier refuses what clang 19 makes of scx_qmap.
CLANG = "-22"
STATE = "/sys/kernel/sched_ext/state"
START_SECONDS = 30

SCHEDULED = SIDES + ("base_server", "series_server", "base_softrt",
                     "series_softrt") + tuple(SCHEDULERS)
PAST = SIDES + tuple(HISTORY)
# Messages of each sender, times the groups: fewer groups send more, so that
# no case is too short for hackbench's three digits.
HACKBENCH = {
    f"{tasks}-{via}-{groups}": {"tasks": tasks, "via": via, "groups": groups,
                                "loops": max(200 // groups, 10)}
    for tasks in ("processes", "threads") for via in ("sockets", "pipes")
    for groups in (1, 2, 4, 10, 20, 40)}
# Program and part, columns, arguments. {seed} is the number of the run, the
# same on all columns.
PLAN = (
    ("ioperm_latency", PAST, shlex.join(TASK_WORDS)),
    ("yield_latency", SCHEDULED, "{features}"),
    ("pi_ping.threads", SIDES, "--layout threads"),
    ("pi_ping.processes", SCHEDULED, "--layout processes"),
    ("pi_ping.cgroups", SIDES, "--layout cgroups"),
    ("pi_ping.batch", SIDES, "--layout processes --policy batch"),
    ("interactive_latency.threads", SIDES,
     "--all --layout threads --seed {seed}"),
    ("interactive_latency.processes", SCHEDULED,
     "--all --layout processes --seed {seed}"),
    ("interactive_latency.cgroup", SIDES,
     "--all --layout cgroup --seed {seed}"),
    ("interactive_latency.cgroups", SIDES,
     "--all --layout cgroups --seed {seed}"),
    ("hackbench", SCHEDULED, ""),
)


class Cell(NamedTuple):
    """One program, on one kernel, once; name: as the results know it."""

    name: str
    program: str
    column: str
    repeat: int
    arguments: str

    @property
    def kernel(self) -> str:
        """The kernel that it measures, a name of build.KERNELS."""
        return EXT if self.column in SCHEDULERS else self.column


def plan(repeat: int) -> list[Cell]:
    """Return all cells, first runs first; repeat: of base and series."""
    return [Cell(f"{key}.{column}.{number}", key.split(".")[0], column,
                 number, arguments.format(
                     seed=number, features="--features both"
                     if column.startswith("series") else ""))
            for number in range(1, repeat + 1)
            for key, columns, arguments in PLAN for column in columns
            if column in SIDES or number <= REPEAT_OTHERS]


def chosen(cells: list[Cell], patterns: list[str]) -> list[Cell]:
    """Return the cells whose names have all words of one of the patterns,
    such as 'pi_ping.base'; all without patterns."""
    def has(cell: Cell, pattern: str) -> bool:
        return set(pattern.split(".")) <= set(cell.name.split("."))

    for pattern in patterns:
        if not any(has(cell, pattern) for cell in cells):
            raise Fail(f"--only {pattern}: no cell has this name, see --list")
    return [cell for cell in cells if not patterns
            or any(has(cell, pattern) for pattern in patterns)]


# --- what a cell runs ------------------------------------------------------

def hackbench_script() -> str:
    """Return the shell script of a cell of hackbench."""
    return "\n".join(["ulimit -n 16384", *(
        f"echo case: {name}; hackbench -g {case['groups']} "
        f"-l {case['loops']} {'-P' if case['tasks'] == 'processes' else '-T'}"
        f" {'-p' if case['via'] == 'pipes' else ''} 2>&1"
        for name, case in HACKBENCH.items())])


def hackbench_result(output: str) -> dict[str, Any]:
    """Return what hackbench printed in the form of a --json."""
    parts = re.split(r"^case: (\S+)$", output, flags=re.M)
    printed = dict(zip(parts[1::2], parts[2::2]))
    cases = []
    for name, case in HACKBENCH.items():
        text = printed.get(name, "").strip()
        found = re.search(r"^Time: ([0-9.]+)$", text, re.M)
        if found:
            seconds = float(found.group(1))
            more = {"status": "ok", "reason": None, "seconds": seconds,
                    "ms_per_loop": 1000 * seconds / case["loops"]}
        else:
            more = {"status": "fail",
                    "reason": (text or "it did not run").splitlines()[-1]}
        cases.append({"name": name, **case, **more})
    return {"cases": cases}


def under(loader: str, command: str) -> str:
    """Return a shell command that runs another under a scheduler.

    loader: the program that loads it and unloads it when it ends.  The
    command fails when the scheduler was not there all the time: the kernel
    throws one out that lets a task wait for 30 s.
    """
    return (
        f"{shlex.quote(loader)} >/tmp/scheduler 2>&1 & scheduler=$!; "
        f"left={START_SECONDS}; "
        f"until grep -qx enabled {STATE}; do sleep 1; left=$((left - 1)); "
        "if [ $left = 0 ]; then echo 'the scheduler does not load:'; "
        "tail -n 20 /tmp/scheduler; exit 1; fi; done; "
        f"{command}; status=$?; "
        f"if ! grep -qx enabled {STATE}; then "
        "echo 'the scheduler was thrown out:'; tail -n 20 /tmp/scheduler; "
        "exit 1; fi; kill -INT $scheduler; wait $scheduler; exit $status")


def cell_script(cell: Cell) -> str:
    """Return what a guest's shell runs for a cell."""
    if cell.program == "hackbench":
        command = hackbench_script()
    else:
        name = Path(PROGRAMS[cell.program] or cell.program).name
        command = f"/bin/{name} --json {REPORT} {cell.arguments}".rstrip()
    if cell.column in SCHEDULERS:
        command = under(f"/bin/{SCHEDULERS[cell.column]}", command)
    return ("#!/bin/sh\nexport PATH=/bin\nip link set lo up\n"
            f"left={DELAY * cell.repeat}\n"
            "while [ $left -gt 0 ]; do left=$((left - 1)); done\n"
            f"{command}\n")


@functools.cache
def kernel_key(name: str) -> str:
    """Return a name of the sources and the configuration of a kernel."""
    kernel = build.KERNELS[name]
    return digest(build.source_key(kernel.commit), kernel.wanted())


@functools.cache
def program_key(program: str) -> str:
    """Return a name of what a program is made of."""
    if program == "hackbench":
        return ""
    if not PROGRAMS[program]:
        return digest(*((build.BENCH / file).read_bytes() for file in (
            f"{program}.c", "bench_helpers.h", "Makefile")))
    folder = PROGRAMS[program].split("/")[0]
    rows = git("ls-tree", f"applied:{build.SELFTESTS}/{folder}", cwd=REPO)
    return digest(*(row for row in rows.splitlines()
                    if row.endswith((".h", f"\t{program}.c"))))


def cell_key(cell: Cell) -> str:
    """Return what a cell measures: of another it is done again."""
    return digest(kernel_key(cell.kernel), program_key(cell.program),
                  CLANG if cell.column in SCHEDULERS else "", cell.name,
                  cell_script(cell), *REPEATABLE, REPEATABLE_KERNEL)


# --- kernels and programs --------------------------------------------------

def history_branch(column: str) -> None:
    """Make the branch of a kernel of HISTORY: the base and its patch."""
    patch = HISTORY[column]
    with sparse_tree("base", ["arch/x86/kernel/process.c"]) as tree:
        try:
            git("apply", "--index", patch, cwd=tree)
        except Fail as failure:
            raise Fail(f"{shown_path(patch)} does not apply to the base: "
                       f"{failure}") from None
        git("commit", "-q", "-m", patch.stem, cwd=tree, env=ME)
        git("update-ref", f"refs/heads/{column}", git(
            "rev-parse", "HEAD", cwd=tree).strip(), cwd=REPO)


def build_schedulers() -> dict[str, Path]:
    """Build {column: what loads its scheduler}; EXT must be built."""
    for tool, package in ((f"clang{CLANG}", f"clang{CLANG}"),
                          (f"llvm-strip{CLANG}", f"llvm{CLANG}"),
                          ("pahole", "dwarves")):
        need_tool(tool, package)
    place = BUILD / "programs/sched_ext"
    place.mkdir(parents=True, exist_ok=True)
    run_logged(["make", "-C", str(build.source("base") / "tools/sched_ext"),
                f"-j{os.cpu_count()}", f"O={place}",
                f"VMLINUX_BTF={build.objects(EXT) / 'vmlinux'}",
                f"CLANG=clang{CLANG}", f"LLVM_STRIP=llvm-strip{CLANG}",
                *SCHEDULERS.values()], LOGS / "build-sched_ext.log",
               env=build.make_environment(), what="building tools/sched_ext")
    return {column: place / "build/bin" / name
            for column, name in SCHEDULERS.items()}


def build_all(cells: list[Cell]) -> tuple[dict[str, Path], dict[str, Fail]]:
    """Build what cells need: programs and loaders, {kernel: why not}.

    Programs are static, as the guest has no libraries.  A kernel that does
    not build leaves the others to be measured.
    """
    names = {cell.program for cell in cells} - {"hackbench"}
    tests = sorted(filter(None, map(PROGRAMS.get, names)))
    made = build.build_selftests(tests, flags=("-static",)) if tests else {}
    programs = {name: made.get(PROGRAMS[name])
                or build.build_bench(name, static=True) for name in names}
    broken = {}
    for name in dict.fromkeys(cell.kernel for cell in cells):
        try:
            build.build_kernel(name)
            if name == EXT:
                programs |= build_schedulers()
        except Fail as failure:
            broken[name] = failure
    return programs, broken


# --- measuring -------------------------------------------------------------

def run_cell(cell: Cell, programs: dict[str, Path]) -> dict[str, Any]:
    """Measure a cell and return its result.

    Raises Fail when the guest is lost, the program fails or writes no JSON.
    """
    program, loader = programs.get(cell.program), programs.get(cell.column)
    log = LOGS / f"study-{cell.name}.ktap"
    with scratch("study") as place:
        script = place / "script"
        script.write_text(cell_script(cell))
        run, report = run_isolated(
            build.image(cell.kernel), script, [], log, timeout=GUEST_SECONDS,
            report=REPORT if program else "", seconds=PROGRAM_SECONDS,
            memory=MEMORY, also=closure([*TOOLS, program or "hackbench",
                                         *filter(None, [loader])]))
    if not program and not (loader and run.status):
        return hackbench_result(run.output)
    # 4: all cases were skipped, which the JSON says.
    return result_of(cell.name, run.status, log, report, (0, 4))


def run(cells: list[Cell], jobs: int) -> None:
    """Measure the cells that are not finished, some at a time.

    A cell that fails does not stop the others; in the end it raises Fail.
    """
    begin()
    for column in {cell.column for cell in cells} & set(HISTORY):
        history_branch(column)
    keys = {cell.name: cell_key(cell) for cell in cells}
    done = read_cells(STUDY)
    rest = [cell for cell in cells
            if done.get(cell.name, {}).get("key") != keys[cell.name]]
    say(f"==> {len(rest)} of {len(cells)} cells to measure, {jobs} at a time; "
        "it can be interrupted at any time, the same command goes on")
    programs, broken = build_all(rest)

    def measure(cell: Cell) -> None:
        if cell.kernel in broken:
            raise broken[cell.kernel]
        start = time.monotonic()
        result = run_cell(cell, programs)
        add_cells(STUDY, {cell.name: {
            "key": keys[cell.name], "date": now(),
            "seconds": round(time.monotonic() - start, 1),
            "arguments": cell.arguments,
            "kernel": build.describe(cell.kernel), "result": result}})

    ended = in_parallel({cell.name: functools.partial(measure, cell)
                         for cell in rest}, jobs)
    failed = [name for name, found in ended.items() if found]
    say(f"{len(cells) - len(failed)} of {len(cells)} cells are there; 'make "
        "report' shows them")
    if failed:
        raise Fail(f"{len(failed)} cells failed, the same command tries them "
                   f"again: {', '.join(failed)}")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.split("\n\n")[0])
    parser.add_argument("--repeat", type=int, default=REPEAT,
                        help=f"runs of base and series (default: {REPEAT}); "
                        f"of the others at most {REPEAT_OTHERS}")
    parser.add_argument("--jobs", type=int, default=os.cpu_count(),
                        help="cells at a time (default: one for each "
                        "processor)")
    parser.add_argument("--only", action="append", default=[],
                        metavar="NAME", help="cells with these words in their "
                        "names, such as pi_ping or ioperm_latency.history_8k "
                        "(may be repeated)")
    parser.add_argument("--list", action="store_true",
                        help="print the cells and when they were measured; "
                        "measure nothing")
    options = parser.parse_args()
    if min(options.repeat, options.jobs) < 1:
        raise Fail("--repeat and --jobs must be 1 or more")
    cells = chosen(plan(options.repeat), options.only)
    if options.list:
        done = read_cells(STUDY)
        for cell in cells:
            say(f"{cell.name:44} {done.get(cell.name, {}).get('date', '-')}")
        return
    with build_lock():
        run(cells, options.jobs)


if __name__ == "__main__":
    run_main(main)
