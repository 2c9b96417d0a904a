# SPDX-License-Identifier: GPL-2.0-only
"""Run tests for long, again and again, or under load.

A job has rows, each a kind of guest that boots as often as --times says.
Runs are kept for a kernel and its tests in build/results/: the same command
goes on there.  After a run with a failure its row begins anew, as what counts
is so many in a row.
"""

import argparse
import contextlib
import fnmatch
import functools
import json
import re
import statistics
import subprocess
import time
from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from tools import ktap, measure_yield
from tools.build import (BENCH, KERNELS, SIDES, build_bench, build_kernel,
                         build_selftests, compiler_version, image,
                         selftest_names, source, source_key, test_key)
from tools.core import (CONFIGS, LOGS, RESULTS, ROOT, Fail, build_lock,
                        digest, duration, end_group, read_json,
                        run_main, say, shown_path, stage, write_atomically)
from tools.count import Count, listed
from tools.guest import boot, check_splat, choose_kvm
from tools.guest.tiny import boot_tiny
from tools.records import CHECKS, patches_key, record
from tools.selftests import (RACE, RACE_CASES, STEADY, arguments_of,
                             count_cases, count_run, race_command, race_result)
from tools.series.apply import begin, has_yield
from tools.tables import console

SCRIPTS = ROOT / "tools/soak"
# How often a guest boots if nobody says so; others once.
TIMES = {"repeat": 10, "load": 2}
GUEST_SECONDS = 3600
# KASAN reports an address of the interrupt code early in a boot with five
# page table levels, which QEMU's largest processor has.
DEBUG = ("no5lvl",)
# A SCHED_IDLE task beside twenty others has its turn every twenty seconds, and
# may have been preempted where RCU waits for it.
PATIENT = ("rcupdate.rcu_cpu_stall_timeout=300",)
# Wake-ups of the observer. Where one instruction is emulated at a time, the
# bases of 7.3, 6.12 and 6.1 were hit 17 times in 220,000: there one run of the
# series, 20,000, may miss a hole one time in five; --times 4 says more.
WAKES, STEPPED = 200000, 20000

built = functools.cache(build_kernel)


@functools.cache
def programs(tests: str, *flags: str) -> tuple[Path, ...]:
    """Build the selftests of a pattern 'FOLDER/NAME'."""
    folder, _, name = tests.partition("/")
    names = selftest_names(source("applied"), folder, (name,))
    if not names:
        raise Fail(f"there is no test {tests}")
    with stage(f"building the tests {tests}"):
        return tuple(build_selftests(names, flags=flags).values())


@contextlib.contextmanager
def busy(count: int) -> Iterator[None]:
    """Keep as many processes of the host busy, at normal priority."""
    # Each is a session of its own, as the scheduler may share out the CPU by
    # sessions.  They end when this process is killed outright.
    loops = [subprocess.Popen(
        ["setpriv", "--pdeathsig", "TERM", "timeout", str(GUEST_SECONDS), "sh",
         "-c", "while :; do :; done"], start_new_session=True)
        for _ in range(count)]
    try:
        yield
    finally:
        for loop in loops:
            end_group(loop)


@functools.cache
def single_step() -> str:
    """Return QEMU's options for one instruction at a time."""
    words = subprocess.run(["qemu-system-x86_64", "-help"], check=True,
                           capture_output=True, text=True).stdout
    # QEMU 8.1 has the first, 10 no longer the second.  A byte of "rep movsb"
    # is an instruction then: an observer would seldom come at the window.
    return "-cpu max,-erms,-fsrm " + (
        "-accel tcg,one-insn-per-tb=on" if "one-insn-per-tb" in words
        else "-singlestep")


@dataclass(frozen=True)
class Row:
    """A kind of guest; often: it runs as often as --times says, not once.

    run() boots one of the name `guest`, counts what it shows and returns a
    note for the table; number: of the run in its row, from 1.
    """

    name: str
    kernel: str = "series"
    cpus: int = 2
    append: tuple[str, ...] = ()
    often: bool = True

    def run(self, count: Count, guest: str, number: int) -> Any:
        raise NotImplementedError

    def boot(self, count: Count, guest: str, command: str,
             **options: Any) -> str:
        """Run a shell command in the guest; return what it printed."""
        folder = built(self.kernel)
        result = boot(folder, command, guest, cpus=self.cpus,
                      append=self.append, **{
                          "kvm": choose_kvm(folder), "timeout": GUEST_SECONDS,
                          "memory": "2G" if self.kernel == "debug" else "1G"}
                      | options)
        count.run("no splat", check_splat, result.console)
        return result.output


@dataclass(frozen=True)
class Selftests(Row):
    """Programs of selftests; wrap: what runs them; icount: of boot(); load:
    how many processes keep the host busy, and then any case may skip."""

    tests: str = "x86/iop*"
    wrap: str = ""
    icount: str = ""
    load: int = 0

    def run(self, count: Count, guest: str, number: int) -> str:
        runs = self.runs(count, guest)
        # Of files with lines 'ROW: PROGRAM: CASE' what is about this row.
        skips, passes = ([row.partition(": ")[2] for row in listed(
            CONFIGS / name) if fnmatch.fnmatch(
                self.name, row.partition(": ")[0])]
            for name in ("repeat-skips", "repeat-passes"))
        count.expected, passed = ["*"], set()
        for name, run in runs.items():
            count_run(count, name, run, LOGS / f"{guest}.ktap")
            report = ktap.parse(run.output)
            passed |= {f"{name}: {case}" for case in report.those("pass")}
            for title in (f"{name}: {case}" for case in report.those("skip")):
                if not self.load and not any(
                        fnmatch.fnmatch(title, row) for row in skips):
                    count.fail(title, "a skip that repeat-skips does not list")
        for program, case in (row.split(": ") for row in passes):
            for name in fnmatch.filter(runs, program) or [program]:
                count.test(f"{name}: {case} has to pass",
                           f"{name}: {case}" not in passed and "it does not")
        return f"{len(passed)} cases passed"

    def runs(self, count: Count, guest: str) -> dict[str, ktap.Run]:
        """Boot the guest; a 32-bit kernel takes the programs with it."""
        if KERNELS[self.kernel].arch == "i386":
            built(self.kernel)
            runs = boot_tiny(
                image(self.kernel), [(path, arguments_of(path)) for path
                                     in programs(self.tests, "-static")],
                cpus=self.cpus, seconds=400, timeout=GUEST_SECONDS,
                name=guest, append=" ".join(self.append))
            count.run("no splat", check_splat, LOGS / f"{guest}.console")
            return dict(runs)
        commands = {path.name: " ".join([str(path), *arguments_of(path)])
                    for path in programs(self.tests)}
        more = {"icount": self.icount, "kvm": False} if self.icount else {}
        built(self.kernel)  # on a host that is not yet busy
        with busy(self.load):
            said = self.boot(count, guest, ktap.script(commands, self.wrap),
                             **more)
        return ktap.split(said, commands)


@dataclass(frozen=True)
class Race(Row):
    """A case of ioperm_drop_race.

    The window is one instruction, and an emulator interrupts between blocks
    of them only; so with one CPU the clock counts instructions, and with two,
    between which the tasks migrate, one instruction is emulated at a time:
    on the base, and on the series for a part of its wake-ups.
    """

    case: str = ""
    wakes: int = WAKES

    def run(self, count: Count, guest: str, number: int) -> str:
        program, = programs(RACE)
        # Each CPU has an observer.  The base is tried with more seeds.
        parts, seeds = (8, 24) if self.kernel == "base" else (1, 1)
        output = self.boot(
            count, guest, race_command(program, [self.case], range(
                (number - 1) * seeds + 1, number * seeds + 1),
                self.wakes // self.cpus // parts),
            kvm=False, icount="skip-idle" if self.cpus == 1 else "",
            qemu=single_step() if self.wakes == STEPPED else "",
            # Two cores of 2024 do 25 such wake-ups a second, less than
            # half as many beside another job.  The others take no longer.
            timeout=300 + STEPPED * seeds // parts // 8)
        note, fault = race_result(output, self.case, self.kernel, self.wakes)
        count.test(self.case, fault)
        return note


@dataclass(frozen=True)
class Script(Row):
    """A script of tools/soak with a program of tools/bench; it prints KTAP,
    of which no case may skip."""

    script: str = ""
    program: str = ""
    seconds: int = 0
    qemu: str = ""

    def run(self, count: Count, guest: str, number: int) -> str:
        output = self.boot(
            count, guest, f"sh {SCRIPTS / self.script} {self.seconds} "
            f"{build_bench(self.program)} {self.name}", qemu=self.qemu,
            # A loaded machine may take minutes to boot the debug kernel.
            timeout=self.seconds * 3 + 900)
        count_cases(count, self.name, output, LOGS / f"{guest}.ktap")
        return ", ".join(re.findall(r"^# (?:\d+ s|in all): (.*)$", output,
                                    re.M)[-2:])


@dataclass(frozen=True)
class YieldHz(Row):
    """yield_latency as in make bench, its feature bit off, which is what the
    base does, and on.  A slice of a tick or less is charged as there."""

    def run(self, count: Count, guest: str, number: int) -> dict[str, Any]:
        folder = built(self.kernel)
        figures = measure_yield.measure_yield(
            folder, "series", kvm=choose_kvm(folder), name=guest)
        count.ok("yield_latency")
        return figures


def jobs(seconds: int, cpus: int) -> dict[str, list[Row]]:
    """Return the rows of each job; CONTRIBUTING.md says what it is."""
    return {
        "repeat": [
            Selftests("1cpu", cpus=1), Selftests("2cpus"),
            Selftests("4cpus", cpus=4),
            # A signal takes half a millisecond there, and a case with 65536
            # has 30 seconds otherwise.  The job stress looks for leaks.
            Selftests("debug", "debug", append=(*DEBUG, "kmemleak=off"),
                      wrap="env KSFT_MACHINE_SLOW=yes"),
            Selftests("i386", "i386-repeat", append=("loglevel=5",),
                      tests="x86/iop*_32"),
            Selftests("noioperm", "noioperm", often=False),
            Selftests("nobody", often=False, wrap="setpriv --reuid 65534 "
                      "--regid 65534 --clear-groups --"),
            Selftests("lockdown", often=False,
                      append=("lockdown=integrity",))],
        # The second as make check runs it.
        "load": [Selftests("ports", load=8),
                 Selftests("yield", cpus=1, append=STEADY, load=8,
                           tests="sched/yield_test", icount="wait-idle")],
        "race": [Race(f"{name}-{side}-{case}", side, number, wakes=wakes,
                      case=case + "-migrate" * (number == 2))
                 for name, number, wakes, sides in (
                     ("1-cpu", 1, WAKES, SIDES),
                     ("2-cpus-single-steps", 2, STEPPED, SIDES),
                     ("2-cpus", 2, WAKES, ("series",)))
                 for side in sides for case in RACE_CASES],
        "stress": [Script("ioperm_random", "debug", cpus, DEBUG,
                          script="stress.sh", program="ioperm_random",
                          seconds=seconds)],
        "yield-stress": [
            Script(name, "debug", cpus, (*DEBUG, *PATIENT),
                   script="yield-stress.sh", program="yield_latency",
                   seconds=max(seconds // part, 1),
                   qemu=f"-smp {cpus},threads=2")
            for name, part in (("hotplug", 1), ("core-scheduling", 5))],
        "yield-hz": [YieldHz(f"HZ={hz}", f"series_hz{hz}", 1)
                     for hz in (100, 250)]}


def run_once(row: Row, guest: str, number: int) -> dict[str, Any]:
    """Boot a row's guest; return what is kept of it."""
    count, note, start = Count(), "", time.monotonic()
    count.expected = []  # what may be skipped
    try:
        note = row.run(count, guest, number)
    except Fail as failure:
        count.fail("the guest", failure)
    return {"rows": count.rows, "note": note,
            "seconds": round(time.monotonic() - start, 1)}


def keep(report: Path, kept: dict[str, Any]) -> None:
    """Write what is kept of all rows, one line for each run."""
    write_atomically(report, json.dumps(kept).replace('{"rows"', '\n{"rows"')
                     + "\n")


def counted(runs: list[dict[str, Any]]) -> list[int]:
    """Return how many tests of runs passed, failed, were skipped."""
    words = Counter(row[0] for run in runs for row in run["rows"])
    return [words[word] for word in ("ok", "fail", "skip")]


def run_rows(job: str, rows: list[Row], times: int, kept: dict[str, Any],
             report: Path) -> dict[str, list[dict[str, Any]]]:
    """Run what the report of earlier runs, kept, lacks; return all runs."""
    runs: dict[str, list[dict[str, Any]]] = {}
    for row in rows:
        place = digest(repr(row), KERNELS[row.kernel].wanted())
        mine, wanted = kept["runs"].get(place, []), times if row.often else 1
        bad = [number for number, run in enumerate(mine) if counted([run])[1]]
        kept["runs"][place] = mine = mine[max(bad, default=-1) + 1:]
        for number in range(len(mine) + 1, wanted + 1):
            guest = re.sub(r"\W", "-", f"{job}-{row.name}-{number}")
            with stage(f"{row.name}: run {number} of {wanted}"):
                mine.append(run_once(row, guest, number))
            keep(report, kept)
        runs[row.name] = mine[:wanted]
    return runs


def soak(job: str, rows: list[Row], times: int, whole: bool) -> int:
    """Run rows of a job, the whole of it or not, print what they showed and
    return the status."""
    patches = patches_key(CHECKS[f"soak {job}"])
    commit, report = begin(), RESULTS / f"soak-{job}.json"
    key = digest(source_key(commit), test_key(commit),
                 test_key(commit, "sched"), compiler_version(), *(
                     path.read_text() for folder in (BENCH, SCRIPTS)
                     for path in sorted(folder.glob("*.[chs]*"))
                     if "stress" in job))
    # What is published is of another machine: here it has not run.
    kept = read_json(report, {})
    if kept.get("key") != key:
        kept = {"key": key, "commit": commit, "runs": {}}
    start = json.dumps(kept)
    runs = run_rows(job, rows, times, kept, report)
    ran = json.dumps(kept) != start
    for row, mine in runs.items():
        note = mine[-1]["note"]
        if isinstance(note, dict):
            say(console([f"\n{row}", "", *measure_yield.tables(
                {"sides": {"series": note}}), ""]))
        say("{}: {} runs, {} passed, {} failed, {} skipped, {} each{}".format(
            row, len(mine), *counted(mine), duration(statistics.mean(
                run["seconds"] for run in mine)),
            f"; the last: {note}" if isinstance(note, str) else ""))
    passed, failed, skipped = counted(sum(runs.values(), []))
    if not ran:
        say("nothing was left to run: all of it is of earlier runs here, and "
            "no record is made")
    elif whole:
        record(f"soak {job}", passed, failed, skipped, [report.name], patches)
    say(f"all of it: {shown_path(report)}\n{passed} passed, {failed} failed, "
        f"{skipped} skipped")
    return 1 if failed or not passed else 0


def positive(text: str) -> int:
    """Return a number above 0; ValueError where it is none."""
    number = int(text)
    if number < 1:
        raise ValueError
    return number


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.split("\n\n")[0])
    parser.add_argument("job", choices=list(jobs(1, 2)))
    parser.add_argument("--times", type=positive, help="runs of each guest")
    parser.add_argument("--seconds", type=positive, default=600, help="how long "
                        "the stress jobs run (default: %(default)s)")
    parser.add_argument("--cpus", type=int, default=2, choices=(2, 4, 8),
                        help="of their guests (default: %(default)s)")
    parser.add_argument("--only", action="append", metavar="ROW",
                        help="only this row, or rows of a "
                        "pattern (may be repeated)")
    options = parser.parse_args()
    there = [row for row in jobs(options.seconds, options.cpus)[options.job]
             if row.name != "yield" or has_yield()]
    names: list[str] = []
    for only in options.only or ["*"]:
        found = fnmatch.filter([row.name for row in there], only)
        if not found:
            raise Fail(f"ONLY={only} names none of {options.job}'s rows: "
                       + ", ".join(row.name for row in there))
        names += found
    rows = [row for row in there if row.name in names]
    usual = TIMES.get(options.job, 1)
    times = options.times or usual
    with build_lock():
        return soak(options.job, rows, times,
                    rows == there and times >= usual)


if __name__ == "__main__":
    run_main(main)
