# SPDX-License-Identifier: GPL-2.0-only
"""Run tests for long, again and again, or under load.

A job has rows in tools/configs/soak.toml, each a kind of guest that boots as
often as TIMES= says.  What has run here of the same kernel and tests counts:
the same command goes on.  After a run with a failure its row begins anew.
"""

import contextlib
import fnmatch
import functools
import re
import subprocess
import tomllib
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from tools import build, guest, ktap, measure_yield, selftests
from tools.core import (CONFIGS, ROOT, Fail, Given, Kernel, bound, build_lock,
                        digest, end_group, read_json, say, stage, write_json)
from tools.count import Count, listed
from tools.guest.tiny import boot_tiny
from tools.records import Begun, begun, checks, record
from tools.series.apply import begin, has_yield
from tools.tables import console

SCRIPTS = ROOT / "tools/soak"
# How often a guest boots if nobody says so, others once; for how long.
TIMES, SECONDS = {"repeat": 10, "load": 2}, 600
GUEST_SECONDS = 3600

Row = dict[str, Any]  # of soak.toml, with its name
built = functools.cache(build.build_kernel)


def rows_of(job: str, seconds: int = SECONDS, cpus: int = 2) -> list[Row]:
    """Return the rows of a job."""
    jobs = tomllib.loads((CONFIGS / "soak.toml").read_text())
    rows = [jobs["usual"] | {"name": name} | row
            for name, row in jobs[job].items()]
    if job == "race":
        return [row | {"name": f"{row['name']}-{case}",
                       "case": case + "-migrate" * (row["cpus"] == 2)}
                for row in rows for case in selftests.RACE_CASES]
    return [row | {"cpus": cpus, "seconds": max(seconds // row["part"], 1)}
            if row["script"] else row for row in rows]


@contextlib.contextmanager
def busy(count: int) -> Iterator[None]:
    """Keep as many processes of the host busy, at normal priority."""
    # Each is a session of its own, as the scheduler may share out the CPU by
    # sessions.
    loops = [subprocess.Popen(bound(
        ["timeout", str(GUEST_SECONDS), "sh", "-c", "while :; do :; done"]),
        start_new_session=True) for _ in range(count)]
    try:
        yield
    finally:
        for loop in loops:
            end_group(loop)


def single_step() -> str:
    """Return QEMU's options for one instruction at a time."""
    words = subprocess.run(["qemu-system-x86_64", "-help"], check=True,
                           capture_output=True, text=True).stdout
    # QEMU 8.1 has the first, 10 no longer the second.  A byte of "rep movsb"
    # is an instruction then: an observer would seldom come at the window.
    return "-cpu max,-erms,-fsrm " + (
        "-accel tcg,one-insn-per-tb=on" if "one-insn-per-tb" in words
        else "-singlestep")


@functools.cache
def programs(kernel: Kernel, tests: str, *flags: str) -> list[Path]:
    """Build the selftests of a pattern 'FOLDER/NAME'."""
    folder, name = tests.split("/")
    with stage(f"building the tests {tests}"):
        return [*build.build_selftests(kernel, build.selftest_names(
            build.source(kernel, "applied"), folder, (name,)),
            flags=flags).values()]


def boot_row(kernel: Kernel, row: Row, count: Count, log: Path, command: str,
             **options: Any) -> str:
    """Run a shell command in a row's guest; return what it printed."""
    folder = built(kernel, row["recipe"])
    found = guest.boot(folder, command, log, append=tuple(
        row["append"].split()), **{name: row[name] for name in (
            "cpus", "memory", "icount")} | {
        "timeout": GUEST_SECONDS,
        "kvm": not row["icount"] and guest.choose_kvm(folder)} | options)
    count.run("no splat", guest.check_splat, found.console)
    return found.output


def boot_selftests(kernel: Kernel, row: Row, count: Count,
                   log: Path) -> dict[str, ktap.Run]:
    """Run a row's selftests; a 32-bit kernel takes them with it."""
    built(kernel, row["recipe"])  # on a host that is not yet busy
    small = build.RECIPES[row["recipe"]].arch == "i386"
    words = {path: selftests.arguments_of(path) for path in programs(
        kernel, row["tests"], *["-static"] * small)}
    if small:
        runs = boot_tiny(build.image(kernel, row["recipe"]), [*words.items()],
                         log, cpus=row["cpus"], timeout=GUEST_SECONDS,
                         append=row["append"])
        count.run("no splat", guest.check_splat, Path(f"{log}.console"))
        return dict(runs)
    commands = {path.name: " ".join([str(path), *more])
                for path, more in words.items()}
    with busy(row["load"]):
        return ktap.split(boot_row(kernel, row, count, log, ktap.script(
            commands, row["wrap"])), commands)


def run_selftests(kernel: Kernel, row: Row, count: Count, log: Path) -> None:
    """Run selftests; two files say which cases may skip and which must pass;
    under load any may skip."""
    skips, passes = ([line.partition(": ")[2] for line in listed(
        CONFIGS / name) if fnmatch.fnmatch(
            row["name"], line.partition(": ")[0])]
        for name in ("repeat-skips", "repeat-passes"))
    runs, cases = boot_selftests(kernel, row, count, log), {}
    if not runs:
        raise Fail(f"there is no test {row['tests']}")
    count.expected = ["*"]
    for name, run in runs.items():
        selftests.count_run(count, name, run, Path(f"{log}.ktap"))
        cases |= {f"{name}: {case}": verdict for case, verdict
                  in ktap.parse(run.output).cases.items()}
    for case in (case for case, verdict in cases.items() if verdict == "skip"):
        if not row["load"] and not any(
                fnmatch.fnmatch(case, line) for line in skips):
            count.fail(case, "a skip that repeat-skips does not list")
    for program, case in (line.split(": ") for line in passes):
        for name in fnmatch.filter(runs, program) or [program]:
            count.test(f"{name}: {case} has to pass", "it does not" if
                       cases.get(f"{name}: {case}") != "pass" else "")


def run_race(kernel: Kernel, row: Row, count: Count, log: Path) -> None:
    """Run a case of ioperm_drop_race, on the base with more seeds."""
    program, = programs(kernel, selftests.RACE)
    parts, seeds = (8, 24) if row["recipe"] == "base" else (1, 1)
    first = (row["number"] - 1) * seeds + 1
    said = boot_row(
        kernel, row, count, log, selftests.race_command(
            program, [row["case"]], range(first, first + seeds),
            row["wakes"] // row["cpus"] // parts),  # each has an observer
        kvm=False, qemu=single_step() if row["step"] else "",
        # Two cores of 2024 do 25 such wake-ups a second, less than half as
        # many beside another job.  The others take no longer.
        timeout=300 + 20000 * seeds // parts // 8)
    note, fault = selftests.race_result(said, row["case"], row["recipe"],
                                        row["wakes"])
    count.add("fail" if fault else "ok", row["case"], fault or note)


def run_script(kernel: Kernel, row: Row, count: Count, log: Path) -> str:
    """Run a script with a program; no case of its KTAP may skip."""
    said = boot_row(
        kernel, row, count, log,
        f"sh {SCRIPTS / row['script']} {row['seconds']} "
        f"{build.build_bench(kernel, row['program'])} {row['name']}",
        qemu=f"-smp {row['cpus']},threads={row['threads']}",
        # A loaded machine may take minutes to boot the debug kernel.
        timeout=row["seconds"] * 3 + 900)
    selftests.count_cases(count, row["name"], said, Path(f"{log}.ktap"))
    return ", ".join(re.findall(r"^# (?:\d+ s|in all): (.*)$", said,
                                re.M)[-1:])


def run_yield(kernel: Kernel, row: Row, count: Count, log: Path) -> str:
    """Run yield_latency as in make bench, its feature bit off, which is what
    the base does, and on.  A slice of a tick or less is charged as there."""
    folder = built(kernel, row["recipe"])
    figures = measure_yield.measure_yield(
        kernel, folder, "series", kvm=guest.choose_kvm(folder), name=log.name)
    return "\n" + console(measure_yield.tables({"sides": {"series": figures}}))


RUNS = {"repeat": run_selftests, "load": run_selftests, "race": run_race,
        "stress": run_script, "yield-stress": run_script,
        "yield-hz": run_yield}


def soak(kernel: Kernel, job: str, rows: list[Row], times: int,
         whole: bool) -> int:
    """Run what is left of rows of a job, the whole of it or not, print what
    all came to and return the status."""
    commit, since, ran = begin(kernel), begun(), False
    report = kernel.results / f"soak-{job}.json"
    kept, used = read_json(report, {}), []
    key = [build.source_key(kernel, commit), build.compiler_version(), *(
        build.test_key(kernel, commit, folder) for folder in ("x86", "sched")),
        *(path.read_text() for folder in (build.BENCH, SCRIPTS)
          for path in sorted(folder.glob("*.[chs]*")))]
    for row in rows:
        # Of each run, what it came to, when it began and the commit.
        runs = kept.setdefault(digest(*key, repr(row), build.RECIPES[
            row["recipe"]].wanted(kernel)), [])
        # What counts is so many in a row.
        while any(failed for (_, failed, _), _ in runs):
            del runs[0]
        wanted = 1 if row["once"] else times
        for number in range(len(runs) + 1, wanted + 1):
            count, ran = Count(), True
            count.expected = []  # what may be skipped
            title = f"{job} {row['name']} {number}"
            with stage(f"{title} of {wanted}"):
                count.run(title, RUNS[job], kernel, row | {"number": number},
                          count, kernel.logs / re.sub(r"\W", "-", title))
            runs.append((count.numbers(), since))
            write_json(report, kept)
        used += runs[:wanted]
    numbers = tuple(map(sum, zip(*(numbers for numbers, _ in used))))
    if not ran:
        say("nothing was left to run, so nothing is noted")
    elif whole:
        record(kernel, f"soak {job}", numbers,
               min(Begun(*since) for _, since in used))
    say("{} passed, {} failed, {} skipped".format(*numbers))
    return 1 if numbers[1] or not numbers[0] else 0


def look(kernel: Kernel, given: Given) -> tuple[str, list[Row], int, bool]:
    """Return the job, the rows that ONLY= names, how often they run, and
    whether that is all of it."""
    job = given.one("JOB", [name for name in RUNS
                            if f"soak {name}" in checks(kernel)])
    times = given.number("TIMES", TIMES.get(job, 1))
    seconds = given.number("SECONDS", SECONDS)
    rows = [row for row in rows_of(
        job, seconds, int(given.one("CPUS", ("2", "4", "8"), "2")))
        if row["name"] != "yield" or has_yield(kernel)]
    names: list[str] = []
    for pattern in given.get("ONLY", "*").split():
        found = fnmatch.filter([row["name"] for row in rows], pattern)
        if not found:
            raise Fail(f"ONLY={pattern} names none of {job}'s rows: "
                       + ", ".join(row["name"] for row in rows))
        names += found
    return job, [row for row in rows if row["name"] in names], times, \
        {*names} == {row["name"] for row in rows} and \
        times >= TIMES.get(job, 1) and seconds >= SECONDS


def main(kernel: Kernel, given: Given) -> int:
    asked = look(kernel, given)
    with build_lock(kernel):
        return soak(kernel, *asked)
