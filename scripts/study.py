#!/usr/bin/env python3
# SPDX-License-Identifier: GPL-2.0-only
"""Run the measurements of the literature on many kernels: hours, resumable.

Columns are kernels: base, series, two with the behaviour of 2004 put back
(history/), base and series configured as a server and for soft real time,
and the base with a scheduler of tools/sched_ext.  A cell is one benchmark on
one kernel, once.  Each finished cell is a file in build/results/study; the
same command goes on with what is missing, and measures again what was
measured of another kernel or program.  'make report' turns the files into a
page.

The guest is one into which nothing comes from outside (see tinyguest.py), so
under emulation a cell has the same figures on a busy host as on an idle one,
and several are measured at once.  What differs from one run to the next is
when the benchmark begins, and the seed where it takes one.
"""

import argparse
import datetime
import hashlib
import json
import os
import re
import shutil
import statistics
import tempfile
import time
from pathlib import Path

import programs
import schedext
from apply import apply_series
from base import REPO, get_base
from common import (BUILD, GIT_IDENTITY, LOGS, RESULTS, ROOT, Fail,
                    build_lock, duration, git, run_main, say, shown_path,
                    tail, write_atomically)
from crew import Crew
from guest import choose_kvm
from kernel import KERNELS, build_kernel, checkout, describe, image_path
from mutants import source_key
from tinyguest import (HARDWARE, REPEATABLE, REPEATABLE_KERNEL, boot_tiny,
                       closure)

STUDY = RESULTS / "study"
PUBLISHED = ROOT / "results/study"
HISTORY = ROOT / "history"
HISTORY_PATCHES = {"history_8k": "2.6.8.1-copy-8k.patch",
                   "history_prefix": "2.6.9-copy-prefix.patch"}
# Runs of base and series, and of the other columns at most.  With two or
# three of each, one noisy figure in ten or thirty differs by more than its
# spread (see CHANCE in report.py), and hundreds of figures are compared.
REPEAT = 6
REPEAT_OTHERS = 2
GUEST_SECONDS = 4 * 3600
# By the guest's clock, which skips what is idle.
PROGRAM_SECONDS = 12 * 3600
# The guest takes another clock some time after boot, when it has calibrated
# it: not in the middle of a run.
SETTLE_SECONDS = 5
MEMORY = "2G"
REPORT = "/tmp/report.json"
# What the scripts in the guest run.
TOOLS = ("sh", "grep", "ip", "sleep", "tail")
# Each run begins this many rounds of a loop later than the one before: about
# a third of a millisecond, of a tick of 1 to 10.
DELAY = 1000

SIDES = ("base", "series")
CONFIGURED = SIDES + ("base_server", "series_server", "base_softrt",
                      "series_softrt")
SCHEDULED = CONFIGURED + tuple(schedext.SCHEDULERS)
PAST = SIDES + ("history_8k", "history_prefix")
GROUPS = (1, 2, 4, 10, 20, 40)
# Messages of each sender, times the groups: fewer groups send more, so that
# no case is too short for hackbench's three digits.
LOOPS = {"tcg": 200, "kvm": 20000}
MIN_LOOPS = 10
# Benchmark, part, columns, arguments, seconds of one cell on one core under
# emulation.  {seed} is the number of the run, the same on all columns.
PLAN = (
    ("ioperm_latency", "", PAST, "", 12),
    ("yield_latency", "", SCHEDULED, "{features}", 200),
    ("pi_ping", "threads", SIDES, "--layout threads", 30),
    ("pi_ping", "processes", SCHEDULED, "--layout processes", 30),
    ("pi_ping", "cgroups", SIDES, "--layout cgroups", 30),
    ("pi_ping", "batch", SIDES, "--layout processes --policy batch", 30),
    ("interactive_latency", "threads", SIDES,
     "--all --layout threads --seed {seed}", 140),
    ("interactive_latency", "processes", SCHEDULED,
     "--all --layout processes --seed {seed}", 140),
    ("interactive_latency", "cgroup", SIDES,
     "--all --layout cgroup --seed {seed}", 140),
    ("interactive_latency", "cgroups", SIDES,
     "--all --layout cgroups --seed {seed}", 140),
    ("hackbench", "", SCHEDULED, "", 55),
)
# Seconds to build a kernel from nothing, and when it is there.
BUILD_SECONDS = {False: 360, True: 15}


def kernel_of(column):
    """Return the kernel (str, a key of KERNELS) that a column measures."""
    return schedext.KERNEL if column in schedext.SCHEDULERS else column


class Cell:
    """One benchmark, on one kernel, once."""

    def __init__(self, benchmark, part, column, arguments, guess, repeat):
        self.benchmark = benchmark
        self.part = part
        self.column = column
        self.repeat = repeat
        self.guess = guess
        self.arguments = arguments.format(
            seed=repeat, features="--features both"
            if KERNELS[kernel_of(column)][0] == "applied" else "").strip()

    @property
    def kind(self):
        """What cells of the same work have in common (str)."""
        return self.benchmark + (f".{self.part}" if self.part else "")

    @property
    def name(self):
        """The name (str) by which --only knows it, and its file."""
        return f"{self.kind}.{self.column}.{self.repeat}"

    @property
    def path(self):
        """The file (Path) that a finished cell is."""
        return STUDY / f"{self.name}.json"


def plan(repeat):
    """Return all cells (list of Cell), each column's first runs first.

    repeat: runs (int) of base and series.
    """
    return [Cell(benchmark, part, column, arguments, guess, number)
            for number in range(1, repeat + 1)
            for benchmark, part, columns, arguments, guess in PLAN
            for column in columns
            if column in SIDES or number <= REPEAT_OTHERS]


def chosen(cells, patterns):
    """Return the cells whose names a pattern (list of str) is a part of.

    A pattern is one or more words of a name: 'pi_ping', 'pi_ping.base',
    'series_server'.  Raises Fail for one that no cell has.
    """
    if not patterns:
        return cells
    found = []
    for pattern in patterns:
        words = pattern.split(".")
        have = [cell for cell in cells
                if set(words) <= set(cell.name.split("."))]
        if not have:
            raise Fail(f"--only {pattern}: no cell has this name, see --list")
        found += have
    return [cell for cell in cells if cell in found]


def done_cell(path):
    """Read a finished cell (dict), or None when it is not one."""
    try:
        cell = json.loads(path.read_text())
        return cell if cell["cell"] and cell["result"]["cases"] else None
    except (OSError, ValueError, KeyError, TypeError):
        return None


def measured_seconds():
    """Return {(kind, column): seconds (float)} of the finished cells.

    With (kind, None) as the mean over all columns.
    """
    found = {}
    for path in STUDY.glob("*.json"):
        cell = done_cell(path)
        if cell and cell.get("seconds"):
            kind = cell["benchmark"] + (f".{cell['part']}"
                                        if cell["part"] else "")
            for column in (cell["column"], None):
                found.setdefault((kind, column), []).append(cell["seconds"])
    return {key: statistics.mean(values) for key, values in found.items()}


def expected(cell, seconds):
    """Return how long a cell will take (float), from those before or PLAN."""
    return seconds.get((cell.kind, cell.column),
                       seconds.get((cell.kind, None), cell.guess))


def expected_builds(columns):
    """Return the seconds (float) that the kernels of columns will take."""
    return sum(BUILD_SECONDS[(BUILD / name / "arch/x86/boot/bzImage")
                             .exists()] for name in set(map(kernel_of,
                                                            columns)))


def history_branch(column):
    """Make the branch of a kernel of history/: the base and its patch."""
    patch = HISTORY / HISTORY_PATCHES[column]
    with tempfile.TemporaryDirectory(prefix="unpack-", dir=BUILD) as place:
        index = {"GIT_INDEX_FILE": f"{place}/index"}
        git("read-tree", "base", cwd=REPO, env=index)
        try:
            git("apply", "--cached", patch, cwd=REPO, env=index)
        except Fail as failure:
            raise Fail(f"history/{patch.name} does not apply to the base: "
                       f"{failure}") from None
        tree = git("write-tree", cwd=REPO, env=index).strip()
    stamp = {"GIT_AUTHOR_NAME": "series", "GIT_AUTHOR_EMAIL":
             GIT_IDENTITY["GIT_COMMITTER_EMAIL"],
             "GIT_AUTHOR_DATE": "2000-01-01T00:00:00+0000",
             "GIT_COMMITTER_DATE": "2000-01-01T00:00:00+0000"}
    commit = git("commit-tree", tree, "-p", "base", "-m", patch.stem,
                 cwd=REPO, env=stamp).strip()
    git("update-ref", f"refs/heads/{KERNELS[column][0]}", commit, cwd=REPO)


def prepare(columns):
    """Get the base, apply the series, make the branches of columns."""
    get_base()
    apply_series()
    for column in columns:
        if column in HISTORY_PATCHES:
            history_branch(column)


def has(path):
    """Tell whether the series has a file (str), before it is checked out."""
    return bool(git("rev-parse", "-q", "--verify", f"applied:{path}",
                    cwd=REPO, check=False).strip())


def missing_programs(cells):
    """Return {benchmark or column: what is missing (str)} of cells."""
    missing = {}
    for name in sorted({cell.benchmark for cell in cells}):
        if name == "hackbench":
            if not hackbench_command():
                missing[name] = ("neither hackbench nor perf is here: "
                                 "apt-get install rt-tests")
        elif (source := programs.source(name)) and not has(source):
            missing[name] = f"the series has no {source}"
    lacking = schedext.missing()
    for column in sorted({cell.column for cell in cells}
                         & set(schedext.SCHEDULERS)):
        if lacking:
            missing[column] = ("its scheduler cannot be built: apt-get "
                               f"install {' '.join(lacking)}")
    return missing


def hackbench_command():
    """Return how to run hackbench (str with {groups}...), or None."""
    if shutil.which("hackbench"):
        return "hackbench -g {groups} -l {loops} {mode} {via}"
    if shutil.which("perf"):
        return "perf bench -f simple sched messaging -g {groups} " \
            "-l {loops} {mode} {via}"
    return None


def hackbench_script(accel):
    """Return (shell script (str), cases (list of dict)) of a cell."""
    command = hackbench_command()
    perf = command.startswith("perf")
    rows, cases = ["ulimit -n 16384"], []
    for tasks, mode in (("processes", "" if perf else "-P"),
                        ("threads", "-t" if perf else "-T")):
        for via, option in (("sockets", ""), ("pipes", "-p")):
            for groups in GROUPS:
                name = f"{tasks}-{via}-{groups}"
                loops = max(LOOPS[accel] // groups, MIN_LOOPS)
                cases.append({"name": name, "tasks": tasks, "via": via,
                              "groups": groups, "loops": loops})
                rows.append(f"echo case: {name}; " + command.format(
                    groups=groups, loops=loops, mode=mode, via=option)
                    + " 2>&1")
    return "\n".join(rows), cases


def hackbench_result(output, cases):
    """Return what hackbench printed (str) in the form of a --json (dict)."""
    parts = re.split(r"^case: (\S+)$", output, flags=re.M)
    printed = dict(zip(parts[1::2], parts[2::2]))
    for case in cases:
        text = printed.get(case["name"], "")
        found = re.search(r"^(?:Time: )?([0-9.]+)\s*$", text, re.M)
        case["status"] = "ok" if found else "fail"
        case["reason"] = None if found else \
            (text.strip().splitlines() or ["it did not run"])[-1]
        if found:
            case["seconds"] = float(found.group(1))
            case["ms_per_loop"] = 1000 * case["seconds"] / case["loops"]
    return {"benchmark": "hackbench", "version": 1, "unit": "s",
            "cases": cases}


def cell_script(cell, accel):
    """Return (shell script (str) of a cell, hackbench's cases or None)."""
    cases = None
    if cell.benchmark == "hackbench":
        command, cases = hackbench_script(accel)
    else:
        target = programs.PROGRAMS[cell.benchmark][2]
        command = f"/bin/{target} --json {REPORT} {cell.arguments}".rstrip()
    if cell.column in schedext.SCHEDULERS:
        command = schedext.under(
            f"/bin/{schedext.SCHEDULERS[cell.column]}", command)
    return ("export PATH=/bin\nip link set lo up\n"
            f"left={DELAY * cell.repeat}\n"
            "while [ $left -gt 0 ]; do left=$((left - 1)); done\n"
            f"{command}\n"), cases


def cell_key(cell, accel):
    """Return what a cell measures (str): of another it is done again."""
    digest = hashlib.sha256()
    branch, fragments = KERNELS[kernel_of(cell.column)]
    digest.update(source_key(branch).encode())
    for path in fragments:
        digest.update(path.read_bytes())
    if cell.column in schedext.SCHEDULERS:
        digest.update(schedext.CLANG.encode())
    if cell.benchmark != "hackbench":
        source = programs.source(cell.benchmark)
        digest.update((git("rev-parse", f"applied:{source}", cwd=REPO)
                       if source else
                       programs.bench_key(cell.benchmark)).encode())
    digest.update(" ".join((cell.name, accel, cell_script(cell, accel)[0],
                            *guest_options(accel == "kvm"))).encode())
    return digest.hexdigest()


def guest_options(kvm):
    """Return (QEMU's options for the processor, kernel parameters) (str)."""
    return ((" ".join(HARDWARE), "") if kvm else
            (" ".join(REPEATABLE), REPEATABLE_KERNEL))


def run_cell(cell, tree, program, loader, kvm):
    """Measure a cell and return its result (dict).

    loader: what loads a scheduler (Path), or None.
    Raises Fail when the guest is lost, the test fails or writes no JSON.
    """
    text, cases = cell_script(cell, "kvm" if kvm else "tcg")
    machine, append = guest_options(kvm)
    also = closure((*TOOLS, *filter(None, (loader, program)),
                    *(() if cases is None else
                      [hackbench_command().split()[0]])))
    files = [] if cases else [REPORT]
    with tempfile.TemporaryDirectory(prefix="bench-", dir=BUILD) as place:
        script = Path(place) / "script"
        script.write_text(f"#!/bin/sh\n{text}")
        (_, run), *shown = boot_tiny(
            image_path(tree), [(script, [])], cpus=1, memory=MEMORY, bits=64,
            machine=machine.split(), append=append, timeout=GUEST_SECONDS,
            seconds=PROGRAM_SECONDS, settle=SETTLE_SECONDS, files=files,
            also=also, name=f"study-{cell.name}")
    log = LOGS / f"study-{cell.name}.ktap"
    write_atomically(log, run.output)
    if cases and not (loader and run.status):
        return hackbench_result(run.output, cases)
    # 4: all cases were skipped, which the JSON says.
    try:
        if run.status in (0, 4):
            return json.loads(shown[0][1].output)
    except (IndexError, ValueError):
        pass
    raise Fail(f"{cell.name} ended with status {run.status}; the end of its "
               f"output, {shown_path(log)}:\n{tail(log)}")


def measure(cell, tree, program, loader, kvm, key):
    """Measure a cell and write its file."""
    start = time.monotonic()
    result = run_cell(cell, tree, program, loader, kvm)
    STUDY.mkdir(parents=True, exist_ok=True)
    write_atomically(cell.path, json.dumps({
        "cell": cell.name, "benchmark": cell.benchmark, "part": cell.part,
        "column": cell.column, "repeat": cell.repeat,
        "arguments": cell.arguments, "accel": "kvm" if kvm else "tcg",
        "seconds": round(time.monotonic() - start, 1), "key": key,
        "date": datetime.datetime.now(datetime.timezone.utc)
        .isoformat(timespec="seconds"),
        "kernel": describe(tree), "result": result}, indent=1) + "\n")
    bad = [case["name"] for case in result["cases"]
           if case.get("status") == "skip"]
    if bad:
        say(f"    {len(bad)} of {len(result['cases'])} cases were skipped")


def show_plan(cells):
    """Print all cells, which are finished, and how long each takes."""
    seconds = measured_seconds()
    for cell in cells:
        done = done_cell(cell.path)
        say(f"{cell.name:44} " + (
            f"done {done['date'][:16]}, {duration(done['seconds'])}" if done
            else f"about {duration(expected(cell, seconds))}"))
    rest = [cell for cell in cells if not done_cell(cell.path)]
    say(f"{len(cells)} cells, {len(cells) - len(rest)} done; the others "
        f"take about {duration(sum(expected(c, seconds) for c in rest))} "
        "of a processor, and the time to build their kernels")


def announce(cells, rest, missing, jobs):
    """Say how much there is to do, and how long it will take."""
    seconds = measured_seconds()
    columns = sorted({cell.column for cell in rest})
    for name, why in missing.items():
        say(f"    {name}: left out, {why}")
    work = sum(expected(cell, seconds) for cell in rest) / jobs
    builds = expected_builds(columns)
    known = sum((cell.kind, None) in seconds for cell in rest)
    say(f"==> {len(rest)} of {len(cells)} cells to measure, {jobs} at a "
        "time: about "
        f"{duration(work + builds)}, of it {duration(builds)} for "
        f"{len(set(map(kernel_of, columns)))} kernels ({known} cells "
        "estimated from finished ones); it can be interrupted at any time, "
        "the same command goes on")


def adopt(keys):
    """Copy cells of results/study that are not in build/results/study.

    keys: {name of a cell: its cell_key()}.  Only those that were measured of
    the same kernel source, program and options are taken; how many, is
    printed.
    """
    taken = 0
    for name, key in keys.items():
        path = PUBLISHED / f"{name}.json"
        here = done_cell(STUDY / path.name) or {}
        if here.get("key") != key and \
                (done_cell(path) or {}).get("key") == key:
            STUDY.mkdir(parents=True, exist_ok=True)
            write_atomically(STUDY / path.name, path.read_text())
            taken += 1
    say(f"    {taken} cells taken from {shown_path(PUBLISHED)}")


def run(cells, published=False, jobs=0):
    """Measure the cells that are not finished.

    published: take over what adopt() finds.  jobs: how many at a time, 0 for
    as many as there are processors, or one under KVM, where they would
    disturb each other.  A cell that fails does not stop the others; in the
    end it raises Fail.
    """
    prepare({cell.column for cell in cells})
    missing = missing_programs(cells)
    cells = [cell for cell in cells if cell.benchmark not in missing
             and cell.column not in missing]
    wish = os.environ.get("ACCEL") or "auto"
    # Whether KVM works is tried with a kernel, which may have to be built.
    kvm = wish != "tcg" and (wish != "auto" or os.path.exists("/dev/kvm")) \
        and choose_kvm(build_kernel("base"))
    accel = "kvm" if kvm else "tcg"
    jobs = 1 if kvm else jobs or os.cpu_count()
    keys = {cell.name: cell_key(cell, accel) for cell in cells}
    if published:
        adopt(keys)
    rest = [cell for cell in cells
            if (done_cell(cell.path) or {}).get("key") != keys[cell.name]]
    announce(cells, rest, missing, jobs)
    trees, built, loaders, broken = {}, {}, {}, {}
    with Crew(jobs) as crew:
        for number, cell in enumerate(rest, 1):
            kernel = kernel_of(cell.column)
            try:
                # Whatever is wrong with it, the other columns go on.
                if kernel in broken:
                    raise Fail(broken[kernel])
                if kernel not in trees:
                    trees[kernel] = build_kernel(kernel)
                if kernel == schedext.KERNEL and not loaders:
                    loaders = schedext.build(trees[kernel])
                if cell.benchmark not in built \
                        and cell.benchmark != "hackbench":
                    series = trees.get("series") or checkout("series")
                    built[cell.benchmark] = programs.build(
                        series, cell.benchmark, BUILD / "bench/study", True)
            except Fail as failure:
                if kernel not in trees:
                    broken[kernel] = f"the {kernel} kernel is not there"
                crew.fail(cell.name, str(failure))
                continue
            crew.do(f"{number} of {len(rest)}: {cell.name}", cell.name,
                    lambda cell=cell, kernel=kernel: measure(
                        cell, trees[kernel], built.get(cell.benchmark),
                        loaders.get(cell.column), kvm, keys[cell.name]))
        crew.finish()
    failed = crew.failed
    say(f"{len(cells) - len(failed)} of {len(cells)} cells are there, in "
        f"{shown_path(STUDY)}; 'make report' shows them")
    if failed:
        raise Fail(f"{len(failed)} cells failed, the same command tries them "
                   f"again: {', '.join(failed)}")


def main():
    parser = argparse.ArgumentParser(
        description=__doc__.split("\n\n")[0],
        epilog="ACCEL=tcg|kvm overrides the choice of the accelerator.")
    parser.add_argument("--repeat", type=int, default=REPEAT,
                        help=f"runs of base and series (default: {REPEAT}); "
                        f"of the others at most {REPEAT_OTHERS}")
    parser.add_argument("--jobs", type=int, default=0,
                        help="cells at a time (default: one for each "
                        "processor; with KVM always 1)")
    parser.add_argument("--only", action="append", default=[],
                        metavar="NAME", help="cells with these words in their "
                        "names, such as pi_ping or ioperm_latency.history_8k "
                        "(may be repeated)")
    parser.add_argument("--published", action="store_true",
                        help="take the cells of results/study that were "
                        "measured of the same kernels and programs, on "
                        "whatever machine, as finished")
    parser.add_argument("--list", action="store_true",
                        help="print the cells and how long they take; measure "
                        "nothing")
    options = parser.parse_args()
    if options.repeat < 1:
        raise Fail("--repeat must be 1 or more")
    if options.jobs < 0:
        raise Fail("--jobs must be 0 or more")
    cells = chosen(plan(options.repeat), options.only)
    if options.list:
        show_plan(cells)
        return
    with build_lock():
        run(cells, options.published, options.jobs)


if __name__ == "__main__":
    run_main(main)
