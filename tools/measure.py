# SPDX-License-Identifier: GPL-2.0-only
"""Measure the kernel that runs, with the programs of bench/ and the series.

No kernel is built and nothing is installed: the programs are built below
build/ and run from there, with python3, gcc and make alone.  Root is needed
only where a case needs it, which is skipped with the reason otherwise.  What
the machine lacks is refused before anything runs.  The figures go into one
JSON file; --compare shows two of them, from two kernels, side by side.
"""

import argparse
import datetime
import io
import json
import os
import re
import shutil
import tarfile
import time
from pathlib import Path
from typing import Any

from tools.build import SELFTESTS, build_bench, make_environment
from tools.core import (BUILD, LOGS, RESULTS, Fail, build_lock, git,
                        need_tool, read_json, run_logged, run_main, say,
                        scratch, shown_path, stage, tail, write_json)
from tools.figures import (BETTER, ENOUGH, PROGRAMS, WORSE, Samples, compare,
                           percent)
from tools.series.apply import begin
from tools.series.base import REPO
from tools.tables import console, table

# What building the selftests needs of a kernel tree.
SOURCES = [f"{SELFTESTS}/{name}" for name in (
    "lib.mk", "kselftest.h", "kselftest_harness.h", "x86", "sched")] + [
    "tools/scripts"]
LOAD_BYTES = 1 << 20  # a load process of pi_ping, generously
TIMEOUT = 4 * 3600
# How far figures of one kernel were seen apart on real machines. Only used
# when there are few runs of each.
ASSUMED = 0.10


def available_memory() -> int:
    """Return how many bytes programs may take."""
    found = re.search(r"^MemAvailable:\s*(\d+) kB",
                      Path("/proc/meminfo").read_text(), re.M)
    return int(found.group(1)) * 1024 if found else 0


def task_limit() -> int:
    """Return how many more tasks may be started."""
    limits = [Path(name) for name in (
        "/proc/sys/kernel/pid_max", "/proc/sys/kernel/threads-max",
        "/sys/fs/cgroup/pids.max", "/sys/fs/cgroup/pids/pids.max")]
    found = [path.read_text().strip() for path in limits if path.exists()]
    return min(int(text) for text in found if text.isdigit()) - 200


def refuse(options: argparse.Namespace) -> None:
    """Raise Fail when the machine lacks what options ask for."""
    cpus = sorted(os.sched_getaffinity(0))
    if options.cpu is not None and options.cpu not in cpus:
        raise Fail(f"--cpu {options.cpu}: this machine lets me use "
                   f"{', '.join(map(str, cpus))}")
    if options.repeat < 1:
        raise Fail("--repeat must be 1 or more")
    # Some memory and some tasks are left to the others.
    most = min(available_memory() * 3 // 4 // LOAD_BYTES, task_limit())
    if options.max_load > most:
        raise Fail(f"--max-load {options.max_load}: the memory and the "
                   f"limits of tasks here let me start {most}")


def machine() -> dict[str, Any]:
    """Return what machine and kernel this is."""
    info = Path("/proc/cpuinfo").read_text()
    cpu = re.search(r"^model name\s*: (.*)$", info, re.M)
    governor = Path("/sys/devices/system/cpu/cpu0/cpufreq/scaling_governor")
    return {"cpu": cpu.group(1) if cpu else "unknown",
            "cpus": len(os.sched_getaffinity(0)),
            "memory_mb": available_memory() >> 20,
            "kernel": os.uname().release, "build": os.uname().version,
            "virtual": "hypervisor" in info,
            "governor": governor.read_text().strip()
            if governor.exists() else None,
            "load": os.getloadavg()[0], "root": os.geteuid() == 0}


def build_programs(names: list[str]) -> dict[str, Path]:
    """Build programs, selftests from the few files that they need."""
    need_tool("gcc", "gcc")
    need_tool("make", "make")
    begin()
    tree = BUILD / "measure"
    shutil.rmtree(tree, ignore_errors=True)
    packed = io.BytesIO(git("archive", "--format=tar", "applied", *SOURCES,
                            cwd=REPO, raw=True))
    with tarfile.open(fileobj=packed) as archive:
        archive.extractall(tree, filter="data")
    found = {}
    for name in names:
        test = PROGRAMS[name]
        if not test:
            found[name] = build_bench(name)
            continue
        folder = tree / SELFTESTS / test.split("/")[0]
        found[name] = folder / Path(test).name
        run_logged(["make", "-C", str(folder), f"OUTPUT={folder}",
                    str(found[name])], LOGS / f"build-{name}.log",
                   env=make_environment(), what=f"building {name}")
    return found


def command(name: str, program: Path, options: argparse.Namespace,
            number: int) -> list[str]:
    """Return the command for one run of a program."""
    words = [str(program)]
    if options.cpu is not None:
        words += ["--cpu", str(options.cpu)]
    if name == "pi_ping":
        words += ["--max-load", str(options.max_load)]
    if name == "interactive_latency":
        words += ["--all" if options.all else "--layout=processes",
                  "--seed", str(number)]
    if options.seconds and name != "ioperm_latency":
        words += ["--seconds", str(options.seconds)]
    return words


def run_program(name: str, words: list[str]) -> dict[str, Any]:
    """Run a program; return what its --json wrote."""
    with scratch("measure") as place:
        result = place / "report.json"
        log = LOGS / f"measure-{name}.ktap"
        status = run_logged([*words, "--json", str(result)], log,
                            timeout=TIMEOUT, check=False)
        # 4: all was skipped; the JSON says why.
        if status in (0, 4) and result.exists():
            return read_json(result)
    raise Fail(f"{name} " + ("did not end in time" if status is None else
                             f"ended with status {status}")
               + f"; the end of {shown_path(log)}:\n{tail(log, 6)}")


def run(options: argparse.Namespace) -> None:
    """Build and run all programs; the file is written after each run."""
    programs = build_programs(options.only or list(PROGRAMS))
    start = time.monotonic()
    now = datetime.datetime.now(datetime.timezone.utc)
    output = options.output or RESULTS / (
        f"measure-{os.uname().release}-{now:%Y%m%d%H%M%S}.json")
    failed: list[str] = []
    results: dict[str, list[Any]] = {name: [] for name in programs}
    todo = [(name, number) for name in programs
            for number in range(1, options.repeat + 1)]
    for name, number in todo:
        if name in failed:
            continue
        with stage(f"{name}, run {number} of {options.repeat}"):
            try:
                found = run_program(name, command(name, programs[name],
                                                  options, number))
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
            "benchmark": "measure", "version": 1, "machine": machine(),
            "date": now.isoformat(timespec="seconds"),
            "seconds": round(time.monotonic() - start, 1),
            "repeat": options.repeat, "complete": (name, number) == todo[-1],
            "results": results})
        say(f"    written: {shown_path(output)}")
    if failed:
        raise Fail(f"{', '.join(failed)} failed; the figures of the others "
                   "were written")


def compare_files(paths: dict[str, Path]) -> None:
    """Print the comparison of two files, called A and B."""
    samples, documents = Samples(), {}
    for letter, path in paths.items():
        try:
            documents[letter] = json.loads(path.read_text())
            for name, runs in documents[letter]["results"].items():
                for found in runs:
                    samples.add((name, ""), letter, found)
        except (OSError, ValueError, KeyError, TypeError, AttributeError) \
                as failure:
            raise Fail(f"{path} is not a result of 'make measure': "
                       f"{failure!r}") from None
        about = documents[letter]["machine"]
        say(f"{letter}: {about['kernel']} on {about['cpu']}, "
            f"{documents[letter]['date'][:16]}, "
            f"{documents[letter]['repeat']} runs"
            + ("" if documents[letter]["complete"] else ", interrupted"))
    rows = [row for key in samples.cases
            for row in compare(samples, key, ("A", "B"), ASSUMED)]
    if not rows:
        raise Fail("the two files have no figure in common")
    if len({found["machine"]["cpu"] for found in documents.values()}) > 1:
        say("These are two machines: a ratio says nothing about the kernels.")
    say(console(table(
        ["case", "figure", "A", "B", "B / A", "noise", "beyond it"],
        [[f"{row.key[0]}: {row.case}",
          row.texts()[0].replace("instructions", "cycles"), *row.texts()[1:],
          row.verdict if row.verdict in (WORSE, BETTER) else ""]
         for row in rows])))
    if min(row.runs for row in rows) < ENOUGH:
        say(f"With fewer than {ENOUGH} runs the noise is taken as "
            f"{percent(ASSUMED)} at least; --repeat {ENOUGH} measures it.")


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__.split("\n\n")[0],
        epilog="Run it on an idle machine, once under each kernel.")
    parser.add_argument("--only", action="append", metavar="NAME",
                        choices=list(PROGRAMS), default=[],
                        help="only this program (may be repeated): "
                             + ", ".join(PROGRAMS))
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
    parser.add_argument("--output", type=Path, metavar="JSON",
                        help="file to write (default: "
                             "build/results/measure-KERNEL-DATE.json)")
    parser.add_argument("--compare", type=Path, nargs=2,
                        metavar=("A", "B"),
                        help="measure nothing, compare two such files")
    options = parser.parse_args()
    if options.compare:
        compare_files(dict(zip("AB", options.compare)))
        return
    refuse(options)
    with build_lock():
        run(options)


if __name__ == "__main__":
    run_main(main)
