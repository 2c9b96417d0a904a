#!/usr/bin/env python3
# SPDX-License-Identifier: GPL-2.0-only
"""Measure the kernel that runs, with bench/ and the series' test programs.

No kernel is built and nothing is installed: the programs are built below
build/ and run from there.  Root is needed only where a test needs it, which
skips with the reason otherwise.  What the machine lacks (CPUs, memory, disk
space) is refused before anything runs.  The figures go into one JSON file;
--compare shows two of them, from two kernels, side by side.
"""

import argparse
import contextlib
import datetime
import json
import os
import re
import resource
import shutil
import statistics
import sys
import tarfile
import tempfile
import time
from io import BytesIO
from pathlib import Path

import programs
import report
from apply import apply_series
from base import REPO, get_base
from bench import console_table
from common import (BUILD, LOGS, RESULTS, Fail, build_lock, git, need_tool,
                    run_logged, run_main, say, shown_path, stage, tail,
                    write_atomically)

# What building the tests of the series needs of a kernel tree.
SOURCES = [f"{programs.SELFTESTS}/{name}" for name in (
    "lib.mk", "kselftest.h", "kselftest_harness.h", "x86", "sched")] + [
    "tools/scripts"]
# A load process of pi_ping, generously, in bytes.
LOAD_BYTES = 1 << 20
# No program may take longer than this, in seconds.
TIMEOUT = 4 * 3600
# How far figures of one kernel were seen apart on real machines. Only used
# when there is one run of each.
ASSUMED = 0.10


def available_memory():
    """Return how much memory (bytes, int) programs may take."""
    found = re.search(r"^MemAvailable:\s*(\d+) kB",
                      Path("/proc/meminfo").read_text(), re.M)
    return int(found.group(1)) * 1024 if found else 0


def task_limit():
    """Return how many more tasks (int) this user may start."""
    limits = [int(Path("/proc/sys/kernel/pid_max").read_text()),
              int(Path("/proc/sys/kernel/threads-max").read_text())]
    soft = resource.getrlimit(resource.RLIMIT_NPROC)[0]
    if soft != resource.RLIM_INFINITY and os.geteuid() != 0:
        limits.append(soft)
    for path in ("/sys/fs/cgroup/pids.max",
                 "/sys/fs/cgroup/pids/pids.max"):
        with contextlib.suppress(OSError, ValueError):
            limits.append(int(Path(path).read_text()))
    return min(limits) - 200


def refuse(options):
    """Raise Fail when the machine lacks what options ask for."""
    cpus = sorted(os.sched_getaffinity(0))
    if options.cpu is not None and options.cpu not in cpus:
        raise Fail(f"--cpu {options.cpu}: this machine lets me use "
                   f"{', '.join(map(str, cpus))}")
    if options.repeat < 1:
        raise Fail("--repeat must be 1 or more")
    memory = available_memory()
    for name, need in (("mem-mb", (options.mem_mb or 0) << 20),
                       ("max-load", options.max_load * LOAD_BYTES)):
        if need > memory * 3 // 4:
            raise Fail(f"--{name} {getattr(options, name.replace('-', '_'))} "
                       f"takes {need >> 20} MiB of memory, "
                       f"{memory >> 20} MiB are available, of which I take "
                       "three quarters at most")
    if options.max_load > task_limit():
        raise Fail(f"--max-load {options.max_load}: no more than "
                   f"{task_limit()} tasks can be started here")
    if options.io_mb:
        place = options.dir or Path(os.environ.get("TMPDIR") or "/tmp")
        free = shutil.disk_usage(place).free
        if options.io_mb << 21 > free:
            raise Fail(f"--io-mb {options.io_mb} takes two files of that "
                       f"size below {place}, {free >> 20} MiB are free")


def machine():
    """Return what machine and kernel this is (dict)."""
    cpu = re.search(r"^model name\s*: (.*)$",
                    Path("/proc/cpuinfo").read_text(), re.M)
    governor = Path("/sys/devices/system/cpu/cpu0/cpufreq/scaling_governor")
    release = os.uname()
    return {"cpu": cpu.group(1) if cpu else "unknown",
            "cpus": len(os.sched_getaffinity(0)),
            "memory_mb": available_memory() >> 20,
            "kernel": release.release, "build": release.version,
            "virtual": "hypervisor" in Path("/proc/cpuinfo").read_text(),
            "governor": governor.read_text().strip()
            if governor.exists() else None,
            "load": os.getloadavg()[0], "root": os.geteuid() == 0}


def unpack():
    """Unpack what the programs are made of; returns the tree (Path)."""
    get_base()
    apply_series()
    tree = BUILD / "measure/tree"
    commit = git("rev-parse", "applied", cwd=REPO).strip()
    stamp = BUILD / "measure/commit"
    if tree.exists() and stamp.exists() and stamp.read_text() == commit:
        return tree
    shutil.rmtree(BUILD / "measure", ignore_errors=True)
    tree.mkdir(parents=True)
    archive = git("archive", "--format=tar", "applied", *SOURCES, cwd=REPO,
                  raw=True)
    with tarfile.open(fileobj=BytesIO(archive)) as packed:
        packed.extractall(tree, filter="data")
    write_atomically(stamp, commit)
    return tree


def command(name, program, options, number):
    """Return the command (list of str) for one run of a program."""
    words = [str(program)]
    cpu = [] if options.cpu is None else ["--cpu", str(options.cpu)]
    if name == "pi_ping":
        words += cpu + ["--max-load", str(options.max_load)]
    elif name == "interactive_latency":
        words += cpu + ["--all" if options.all else "--layout=processes",
                        "--seed", str(number)]
        for option in ("mem_mb", "io_mb", "dir"):
            if getattr(options, option):
                words += [f"--{option.replace('_', '-')}",
                          str(getattr(options, option))]
    else:
        words += cpu
    if options.seconds and name != "ioperm_latency":
        words += ["--seconds", str(options.seconds)]
    return words


def run_program(name, words):
    """Run a program; returns what its --json wrote (dict).

    Raises Fail when it fails or writes no JSON.
    """
    with tempfile.TemporaryDirectory(prefix="bench-", dir=BUILD) as place:
        result = Path(place) / "report.json"
        log = LOGS / f"measure-{name}.ktap"
        status = run_logged([*words, "--json", str(result)], log,
                            timeout=TIMEOUT, check=False)
        # 4: all was skipped; the JSON says why.
        if status in (0, 4) and result.exists():
            return json.loads(result.read_text())
        raise Fail(f"{name} " + ("did not end in time" if status is None else
                                 f"ended with status {status}")
                   + f"; the end of {shown_path(log)}:\n{tail(log, 6)}")


def measure(options, built, results, failed):
    """Run all programs; fills results (dict) and failed (dict) as it goes."""
    for name, program in built.items():
        for number in range(1, options.repeat + 1):
            title = f"{name}" + (f", run {number} of {options.repeat}"
                                 if options.repeat > 1 else "")
            with stage(title):
                try:
                    found = run_program(name, command(name, program, options,
                                                      number))
                except Fail as failure:
                    failed[name] = str(failure).splitlines()[0]
                    say(f"    FAILED: {failure}")
                    break
            results.setdefault(name, []).append(found)
            skipped = {case.get("reason") for case in found["cases"]
                       if case.get("status") == "skip"}
            count = sum(case.get("status") == "skip"
                        for case in found["cases"])
            if count:
                say(f"    {count} of {len(found['cases'])} cases skipped: "
                    + "; ".join(sorted(map(str, skipped))[:3]))


def run(options):
    """Build, measure and write the file."""
    need_tool("gcc", "gcc")
    need_tool("make", "make")
    tree = unpack()
    wanted = options.only or list(programs.PROGRAMS)
    built, missing = {}, {}
    for name in wanted:
        source = programs.source(name)
        if not source or (tree / source).exists():
            built[name] = programs.build(tree, name, BUILD / "measure/bin")
        else:
            missing[name] = f"the series has no {source}"
            say(f"    {name}: left out, {missing[name]}")
    start = time.monotonic()
    results, failed = {}, {}
    document = {"benchmark": "measure", "version": 1,
                "date": datetime.datetime.now(datetime.timezone.utc)
                .isoformat(timespec="seconds"),
                "machine": machine(), "repeat": options.repeat,
                "interrupted": True, "missing": missing, "failed": failed,
                "results": results}
    try:
        measure(options, built, results, failed)
        document["interrupted"] = False
    finally:
        document["seconds"] = round(time.monotonic() - start, 1)
        if results:
            options.output.parent.mkdir(parents=True, exist_ok=True)
            write_atomically(options.output,
                             json.dumps(document, indent=1) + "\n")
            say(f"written: {shown_path(options.output)}"
                + (", what was measured until the interruption"
                   if document["interrupted"] else ""))
    if failed:
        raise Fail(f"{', '.join(failed)} failed; the figures of the others "
                   "were written")
    if not results:
        raise Fail("there was nothing to measure")


# --- comparing two files ----------------------------------------------------

def load(path):
    """Read a file that this script wrote (Path); returns report.Samples."""
    try:
        document = json.loads(path.read_text())
        samples = report.Samples()
        for name, runs in document["results"].items():
            for found in runs:
                samples.add(name, "", "one", found)
    except (OSError, ValueError, KeyError, TypeError, AttributeError) \
            as failure:
        raise Fail(f"{path} is not a result of 'make measure': {failure!r}") \
            from None
    return document, samples


def differences(first, second):
    """Compare two Samples; returns rows (list of dict)."""
    rows = []
    for key in first.values:
        for case in first.cases.get(key, {}):
            for figure, unit, scale, more in report.FIGURES[key[0]]:
                a = first.get(key, "one", case, figure)
                b = second.get(key, "one", case, figure)
                if not a or not b:
                    continue
                if key[0] == "ioperm_latency":
                    unit = "cycles"
                limit = max(report.spread(a) or 0, report.spread(b) or 0) \
                    if len(a) > 1 and len(b) > 1 else ASSUMED
                ratio, verdict = report.judge(a, b, more, limit)
                rows.append((key[0], case, unit, scale, statistics.median(a),
                             statistics.median(b), ratio, limit, verdict))
    return rows


def compare(paths):
    """Print the comparison of two files (list of Path)."""
    (first, a), (second, b) = (load(path) for path in paths)
    rows = differences(a, b)
    if not rows:
        raise Fail("the two files have no figure in common")
    for letter, document in (("A", first), ("B", second)):
        about = document["machine"]
        say(f"{letter}: {about['kernel']} on {about['cpu']}, "
            f"{document['date'][:16]}, {document['repeat']} runs"
            + (", interrupted" if document["interrupted"] else ""))
    if first["machine"]["cpu"] != second["machine"]["cpu"]:
        say("These are two machines: a ratio says nothing about the kernels.")
    table = ["| case | figure | A | B | B / A | noise | beyond it |",
             "|---|---|---:|---:|---:|---:|---|"]
    for name, case, unit, scale, x, y, ratio, limit, verdict in rows:
        table.append(f"| {name}: {case} | {unit} | {report.plain(x, scale)} "
                     f"| {report.plain(y, scale)} | "
                     + ("-" if ratio is None else f"{ratio:.3f}")
                     + f" | {report.percent(limit)} | "
                     + ("" if verdict == report.SAME else verdict) + " |")
    print(console_table(table))
    if first["repeat"] < 2 or second["repeat"] < 2:
        say(f"One run has no spread: the noise is taken as "
            f"{report.percent(ASSUMED)}; --repeat 3 measures it.")


def main():
    parser = argparse.ArgumentParser(
        description=__doc__.split("\n\n")[0],
        epilog="Run it on an idle machine, once under each kernel.")
    parser.add_argument("--only", action="append", metavar="NAME",
                        choices=list(programs.PROGRAMS), default=[],
                        help="only this program (may be repeated): "
                             + ", ".join(programs.PROGRAMS))
    parser.add_argument("--repeat", type=int, default=1,
                        help="runs of each (default: 1)")
    parser.add_argument("--cpu", type=int,
                        help="the CPU to measure on (default: the first)")
    parser.add_argument("--seconds", type=float,
                        help="how long each case takes (default: the "
                             "program's own)")
    parser.add_argument("--max-load", type=int, default=1024,
                        help="pi_ping: load processes at most (default: "
                             "1024)")
    parser.add_argument("--all", action="store_true",
                        help="interactive_latency: all loads, as threads, "
                             "processes and in cgroups")
    parser.add_argument("--mem-mb", type=int,
                        help="interactive_latency: size of its memory load")
    parser.add_argument("--io-mb", type=int,
                        help="interactive_latency: size of its files")
    parser.add_argument("--dir", type=Path,
                        help="interactive_latency: where they are")
    parser.add_argument("--output", type=Path, metavar="JSON",
                        help="file to write (default: "
                             "build/results/measure-KERNEL-DATE.json)")
    parser.add_argument("--compare", type=Path, nargs=2,
                        metavar=("A", "B"),
                        help="measure nothing, compare two such files")
    options = parser.parse_args()
    if options.compare:
        compare(options.compare)
        return 0
    refuse(options)
    if not options.output:
        now = datetime.datetime.now().strftime("%Y%m%d%H%M%S")
        options.output = RESULTS / f"measure-{os.uname().release}-{now}.json"
    options.output = options.output.resolve()
    with build_lock():
        try:
            run(options)
        except KeyboardInterrupt:
            print("interrupted: run it again to measure all of it",
                  file=sys.stderr, flush=True)
            return 130
    return 0


if __name__ == "__main__":
    run_main(main)
