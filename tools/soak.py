# SPDX-License-Identifier: GPL-2.0-only
"""Run tests for long, again and again, or under load.

A job of JOBS has rows, each a kind of guest that boots as often as --times
says.  Runs are kept for a kernel and its tests in build/results/, and with
--publish in results/, so the same command goes on there.  After a run with a
failure its row begins anew: what counts is so many in a row.  Remove the file
to begin afresh.
"""

import argparse
import contextlib
import fnmatch
import functools
import re
import statistics
import subprocess
import time
from collections import Counter
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from tools import ktap, measure_yield
from tools.build import (BENCH, KERNELS, SIDES, build_bench, build_kernel,
                         build_selftests, compiler_version, selftest_names,
                         source, source_key, test_key)
from tools.core import (CONFIGS, LOGS, PUBLISHED, RESULTS, Fail, build_lock,
                        digest, duration, end_group, need_tool, read_json,
                        run_main, say, shown_path, stage, write_json)
from tools.count import Count, listed
from tools.guest import boot, check_splat, choose_kvm
from tools.guest.tiny import boot_tiny
from tools.selftests import (RACE, RACE_CASES, STEADY, arguments_of,
                             count_run, race_command, race_result)
from tools.series.apply import begin
from tools.tables import console, table

SKIPS = CONFIGS / "repeat-skips"
GUEST_SECONDS = 3600
# A loaded machine may take minutes to boot the debug kernel under emulation.
BOOT_SECONDS = 900
# KASAN reports an address of the interrupt code early in a boot with five
# page table levels, which QEMU's largest processor has.
DEBUG = ("no5lvl",)

built = functools.cache(build_kernel)


@functools.cache
def programs(tests: str, static: bool = False) -> tuple[Path, ...]:
    """Build the selftests of a pattern 'FOLDER/NAME'."""
    folder, _, name = tests.partition("/")
    names = selftest_names(source("applied"), folder, (name,))
    with stage(f"building {len(names)} tests"):
        return tuple(build_selftests(
            names, flags=("-static",) if static else ()).values())


class Found(Count):
    """What a guest showed; a skip is no failure here.

    note: what the table shows of it.  figures: what is kept beside.
    """

    note = ""
    figures: Any = None

    def __init__(self) -> None:
        super().__init__()
        self.expected = ["*"]


@dataclass(frozen=True)
class Row:
    """A kind of guest; often: it runs as often as --times says, not once.

    run() boots one of the name `guest` and counts in `found` what it shows;
    number: of the run in its row, from 1.
    """

    name: str
    kernel: str = "series"
    cpus: int = 2
    append: tuple[str, ...] = ()
    often: bool = True

    def run(self, found: Found, guest: str, number: int) -> None:
        raise NotImplementedError

    def boot(self, found: Found, command: str, guest: str,
             **options: Any) -> str:
        """Run a shell command in the guest; return what it printed."""
        folder = built(self.kernel)
        options = {"timeout": GUEST_SECONDS,
                   "memory": "2G" if self.kernel == "debug" else "1G",
                   "kvm": not options.get("icount") and choose_kvm(folder)
                   } | options
        result = boot(folder, command, guest, cpus=self.cpus,
                      append=self.append, **options)
        found.run("no splat", check_splat, result.console)
        return result.output


# --- repeat and load: the selftests ----------------------------------------

# A kernel with KASAN and lockdep takes half a millisecond for a signal, and a
# case with 65536 of them has 30 seconds otherwise.
SLOW = "env KSFT_MACHINE_SLOW=yes"
# The user that is not root, in a folder that it may read.
NOBODY = "setpriv --reuid 65534 --regid 65534 --clear-groups --"
# What must pass, by program: without the system calls it can be seen that
# nobody has a port, ...
HAS_NONE = (("ioperm_??", "ioperm_refused.nothing_at_first"),
            ("iopl_??", "iopl_refused.nothing_at_first"),
            ("ioperm_boundaries_??", "unprivileged.all_ports_denied"),
            ("ioperm_security_??", "global.eflags_iopl_from_sigreturn"),
            ("ioperm_security_??", "global.eflags_iopl_from_tracer"))
# ... and whoever is refused can be seen to be refused.
REFUSED = (*HAS_NONE,
           ("ioperm_??", "ioperm_refused.unprivileged_enables_nothing"),
           ("iopl_??", "iopl_refused.unprivileged_raises_nothing"),
           ("ioperm_boundaries_??", "unprivileged.invalid_ranges"),
           ("ioperm_security_??", "global.unprivileged_gets_nothing"),
           ("ioperm_security_??", "global.user_namespace_root_gets_nothing"))


@contextlib.contextmanager
def busy(count: int) -> Iterator[None]:
    """Keep as many processes of the host busy, at normal priority."""
    # Each is a session of its own, as the scheduler may share out the CPU by
    # sessions.  They end by themselves when this process is killed outright.
    loops = [subprocess.Popen(["timeout", str(GUEST_SECONDS), "sh", "-c",
                               "while :; do :; done"], start_new_session=True)
             for _ in range(count)]
    try:
        yield
    finally:
        for loop in loops:
            end_group(loop)


@dataclass(frozen=True)
class Selftests(Row):
    """Programs of selftests; one run of one is one test.

    tests: of programs().  wrap: what runs them.  must: patterns of programs,
    each with a case that must pass.  load: how many processes keep the host
    busy; then any case may skip, and otherwise those of
    tools/configs/repeat-skips.
    """

    tests: str = "x86/iop*"
    wrap: str = ""
    arguments: str = ""
    icount: str = ""
    must: tuple[tuple[str, str], ...] = ()
    load: int = 0

    def run(self, found: Found, guest: str, number: int) -> None:
        # A 32-bit kernel takes them with it.
        static = KERNELS[self.kernel].arch == "i386"
        words = {path: [*arguments_of(path), *self.arguments.split()]
                 for path in programs(self.tests, static)}
        with busy(self.load):
            if static:
                runs = dict(boot_tiny(
                    built(self.kernel) / "arch/x86/boot/bzImage",
                    list(words.items()), cpus=self.cpus, seconds=400,
                    timeout=GUEST_SECONDS, name=guest,
                    append=" ".join(self.append)))
                found.run("no splat", check_splat, LOGS / f"{guest}.console")
            else:
                runs = ktap.split(self.boot(found, ktap.script({
                    path.name: " ".join([str(path), *more])
                    for path, more in words.items()}, self.wrap), guest,
                    icount=self.icount), (path.name for path in words))
        self.judge(found, runs, LOGS / f"{guest}.ktap")

    def judge(self, found: Found, runs: dict[str, ktap.Run],
              log: Path) -> None:
        reports = {name: ktap.parse(run.output) for name, run in runs.items()}
        for name, run in runs.items():
            count_run(found, name, run, log)
            surprise = [case for case in reports[name].those("skip")
                        if not (self.load or may_skip(self.name, name, case))]
            if surprise:
                found.fail(f"{name}: skips", f"{shown_path(SKIPS)} does not "
                           f"list {', '.join(surprise)}")
        for pattern, case in self.must:
            for name in fnmatch.filter(runs, pattern) or [pattern]:
                if case not in reports.get(name, ktap.Report()).those("pass"):
                    found.fail(f"{name}: {case}", "it has to pass here")
        slowest = max(runs, key=lambda name: runs[name].seconds or 0)
        cases = Counter(verdict for report in reports.values()
                        for verdict in report.cases.values())
        found.note = (f"{cases['pass']} cases passed, {cases['skip']} "
                      f"skipped; {slowest} took {runs[slowest].seconds} s")


def may_skip(*names: str) -> bool:
    """Tell whether tools/configs/repeat-skips lists a row, program, case."""
    return any(all(map(fnmatch.fnmatch, names, row.split(": ")))
               for row in listed(SKIPS))


def repeat_rows(options: argparse.Namespace) -> list[Row]:
    """the tests of I/O ports on many kinds of guests"""
    return [
        Selftests("1cpu", cpus=1), Selftests("2cpus"),
        Selftests("4cpus", cpus=4),
        # With KASAN, UBSAN and lockdep. The job stress looks for leaks.
        Selftests("debug", "debug", append=(*DEBUG, "kmemleak=off"),
                  wrap=SLOW),
        Selftests("i386", "i386-repeat", append=("loglevel=5",),
                  tests="x86/iop*_32"),
        Selftests("noioperm", "noioperm", often=False, must=HAS_NONE),
        Selftests("nobody", often=False, wrap=NOBODY, must=REFUSED),
        Selftests("lockdown", often=False, append=("lockdown=integrity",),
                  must=(*REFUSED, ("ioperm_security_??",
                                   "global.lockdown_gives_nothing")))]


def load_rows(options: argparse.Namespace) -> list[Row]:
    """tests while 8 processes keep the host busy: they may skip"""
    return [
        Selftests("ports", load=8),
        # As make check runs it, with one CPU and with two.
        Selftests("yield", cpus=1, append=STEADY, load=8,
                  tests="sched/yield_test", icount="wait-idle")]


# --- race: the window in which another task gets dropped ports -------------

# Wake-ups of the observer. Where one instruction is emulated at a time, four
# times what the base takes for a hit in the case that takes longest, unshare.
WAKES, STEPPED = 200000, 20000
SEEDS = 12
# Wake-ups each second, on two cores of 2024; only for the time limit.
RATE = 25
# A byte of "rep movsb" is an instruction then, and copying 8 KB most of a
# drop on the base: an observer would seldom come at the window.
NO_REP = "-cpu max,-erms,-fsrm"


@functools.cache
def single_step() -> str:
    """Return QEMU's options for one instruction at a time."""
    words = subprocess.run(["qemu-system-x86_64", "-help"], check=True,
                           capture_output=True, text=True).stdout
    # QEMU 8.1 has the first, 10 no longer the second.
    return f"{NO_REP} -accel tcg,one-insn-per-tb=on" \
        if "one-insn-per-tb" in words else f"{NO_REP} -singlestep"


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

    def run(self, found: Found, guest: str, number: int) -> None:
        program, = programs(RACE)
        self.judge(found, self.boot(
            found, self.command(program, number), guest, kvm=False,
            icount="skip-idle" if self.cpus == 1 else "",
            qemu=single_step() if self.wakes == STEPPED else "",
            timeout=300 + self.wakes // RATE))

    def command(self, program: Path | str, number: int) -> str:
        """Return the guest's shell command: on the base, with more seeds."""
        # Each CPU has an observer.
        wakes, seeds = self.wakes // self.cpus, 1
        if self.kernel == "base":
            wakes, seeds = wakes // 8, SEEDS
        first = (number - 1) * seeds + 1
        return race_command(program, [self.case],
                            range(first, first + seeds), wakes)

    def judge(self, found: Found, output: str) -> None:
        found.note, fault = race_result(output, self.case, self.kernel,
                                        self.wakes)
        found.test(self.case, fault)


def race_rows(options: argparse.Namespace) -> list[Row]:
    """a long look for the window of dropped ports, with 1 and 2 CPUs"""
    return [Race(f"{name}-{side}-{case}", side, cpus, wakes=wakes,
                 case=case + "-migrate" * (cpus == 2))
            for name, cpus, wakes, sides in (
                ("1-cpu", 1, WAKES, SIDES),
                ("2-cpus-single-steps", 2, STEPPED, SIDES),
                ("2-cpus", 2, WAKES, ("series",)))
            for side in sides for case in RACE_CASES]


# --- stress: random permissions against a model ----------------------------

STRESS_TESTS = ("accesses", "bitmaps", "calls", "tasks", "hotplug",
                "failslab")
LEAKS = "/sys/kernel/debug/kmemleak"


@dataclass(frozen=True)
class Stress(Row):
    """ioperm_random: ioperm, iopl, fork, threads, exec, exit and moves at
    random, while CPUs go off- and online and allocations fail."""

    seconds: int = 0

    def run(self, found: Found, guest: str, number: int) -> None:
        program = build_bench("ioperm_random")
        # kmemleak takes an object for a leak only some seconds after its
        # allocation, and a pointer that moves can hide from one scan.
        scan = f"; sleep 6; echo scan >{LEAKS}"
        self.judge(found, self.boot(found, f"echo clear >{LEAKS}; "
                   + ktap.script({"ioperm_random": f"{program} --seconds "
                                  f"{self.seconds} --seed {int(time.time())} "
                                  "--hotplug --failslab"})
                   + scan + scan + "; "
                   + ktap.script({"kmemleak": f"cat {LEAKS}"}), guest,
                   timeout=self.seconds * 2 + BOOT_SECONDS))

    def judge(self, found: Found, output: str) -> None:
        """Count what the program and kmemleak printed: no case may skip."""
        for line in re.findall(
                r"^# (?:seed .*|MISMATCH .*|.*\btask \d+ depth .*|"
                r"  \d+: tid .*)$", output, re.M):
            say(f"    {line}")
        random, leaks = ktap.split(
            output, ("ioperm_random", "kmemleak")).values()
        report = ktap.parse(random.output)
        for name in STRESS_TESTS:
            verdict = report.cases.get(name, "no result")
            found.test(name, "" if verdict == "pass" else
                       f"{verdict}: {report.reasons.get(name, '')}")
        found.test("exit status", "" if random.status == 0
                   else str(random.status))
        found.test("nothing leaked", leaks.output.strip().partition("\n")[0]
                   if leaks.status == 0 else "kmemleak cannot be read")
        found.note = ", ".join(re.findall(r"^# \d+ s: (.*)$", output,
                                          re.M)[-2:])


def stress_rows(options: argparse.Namespace) -> list[Row]:
    """random I/O permissions against a model, on the debug kernel"""
    if options.cpus < 2:
        raise Fail("one CPU cannot go offline: use --cpus 2 or more")
    return [Stress("ioperm_random", "debug", options.cpus, DEBUG,
                   seconds=options.seconds)]


# --- yield-stress: yields of all kinds on the debug kernel -----------------

# A SCHED_IDLE task beside twenty others has its turn every twenty seconds, and
# may have been preempted where RCU waits for it.
STALL = "rcupdate.rcu_cpu_stall_timeout=300"
STRESSOR = "stress-ng --temp-path /tmp --timeout $seconds --metrics-brief"
# A cookie of its own for what comes after it: prctl(PR_SCHED_CORE,
# PR_SCHED_CORE_CREATE, ...).
COOKIE = ("python3 -c 'import ctypes, os, sys; "
          "ctypes.CDLL(None).prctl(62, 1, 0, 0, 0) and "
          "sys.exit(\"no core scheduling\"); "
          "os.execvp(sys.argv[1], sys.argv[1:])' ")
AGAIN = "while [ $(date +%s) -lt $end ]; do"
CPU = "/sys/devices/system/cpu/cpu1/online"
GROUP = "/sys/fs/cgroup"
PARTS = {
    "nice": f"nice -n 19 {STRESSOR} --yield 1",
    "idle": f"chrt --idle 0 {STRESSOR} --yield 1",
    "stress-ng": f"{STRESSOR} --yield 4 --switch 2 --wait 2 --sockpair 1",
    "batch": f"chrt --batch 0 {STRESSOR} --yield 1",
    "fifo": f"chrt --fifo 1 {STRESSOR} --cpu 1 --cpu-load 20",
    "throttled": f"echo 0 >{GROUP}/throttled/cgroup.procs && "
                 f"{STRESSOR} --yield 2",
    "core-1": f"{COOKIE}{STRESSOR} --yield 2 --sockpair 1",
    "core-2": f"{COOKIE}{STRESSOR} --yield 1 --switch 1",
    "hackbench": f"{AGAIN} hackbench -g 1 -l 20 || exit 1; done",
    # Its own watchdog takes what is this slow for a hang: it gets its share.
    "yield_latency": f"echo 0 >{GROUP}/heavy/cgroup.procs && {AGAIN} "
                     "$program --cpu 0 --seconds 0.02 --rounds 500 "
                     "--storm 0.1 || exit 1; done",
    # While it starts, stress-ng 0.15 reads about each CPU in /sys. When that
    # fails, as a CPU goes offline, it zeroes buffer[-errno] on its stack.
    "hotplug": f"sleep $calm; {AGAIN} echo 0 >{CPU} && sleep 1 && "
               f"echo 1 >{CPU} && sleep 2 || exit 1; done",
}
# What is left out in which guest. Not both at once: a CPU is in its sibling's
# mask before sched_core_cpu_starting() has made them share a lock, so the
# sibling picks for it without its lock, and lockdep says so; with the feature
# bit off, too.
LEFT_OUT = {"hotplug": ("core-1", "core-2"), "core-scheduling": ("hotplug",)}
# Who writes 0 there moves itself: in a subshell, $$ is the shell outside.
YIELDS = f"""\
mount -t cgroup2 none {GROUP} 2>/dev/null
echo +cpu >{GROUP}/cgroup.subtree_control
mkdir -p {GROUP}/throttled {GROUP}/heavy
echo 1000 >{GROUP}/heavy/cpu.weight || echo "no cgroup"
echo "20000 100000" >{GROUP}/throttled/cpu.max || echo "no cgroup"
"""


@dataclass(frozen=True)
class YieldStress(Row):
    """stress-ng's stressors beside yielders of other policies, of nice levels
    and in a throttled cgroup, hackbench, and yield_latency, which sets custom
    slices.

    The feature bit stays as it is: a guest with two CPUs under QEMU 7.2's
    TCG may die of the breakpoint (int3) that patching code which both of them
    run puts there for a moment.
    """

    seconds: int = 0

    def parts(self) -> dict[str, str]:
        """Return the commands that run beside each other."""
        return {name: command for name, command in PARTS.items()
                if name not in LEFT_OUT[self.name]}

    def script(self, program: Path | str) -> str:
        """Return the guest's shell command; program: yield_latency."""
        lines = [f"seconds={self.seconds} program={program} "
                 f"calm={min(90, self.seconds // 4)}",
                 "end=$(($(date +%s) + seconds))"]
        for name, command in self.parts().items():
            lines.append(f"( ( {command} ) >/tmp/{name}.out 2>&1; "
                         f"echo $? >/tmp/{name}.status ) &")
            if name == "idle":
                # Beside the others these two hardly get the CPU to start,
                # with the base's sched_yield() as well.
                lines.append("sleep 20")
        return YIELDS + "\n".join(lines) + "\nwait\n" + ktap.script({
            name: f"tail -n 40 /tmp/{name}.out; grep '^not ok' /tmp/{name}.out"
                  f"; (exit $(cat /tmp/{name}.status))"
            for name in self.parts()})

    def run(self, found: Found, guest: str, number: int) -> None:
        program = build_bench("yield_latency")
        self.judge(found, self.boot(
            found, self.script(program), guest,
            timeout=self.seconds * 3 + BOOT_SECONDS,
            qemu=f"-smp {self.cpus},threads=2"))

    def judge(self, found: Found, output: str) -> None:
        for name, run in ktap.split(output, self.parts()).items():
            found.test(name, "" if run.status == 0 else
                       f"exit status {run.status}: "
                       + run.output.strip().rpartition("\n")[2])
        yields = sum(map(int, re.findall(r"\] yield +(\d+) ", output)))
        found.note = f"{yields} calls of sched_yield()"
        found.test("sched_yield()", "" if yields else "no call was counted")
        found.test("throttling", "cpu.max cannot be set"
                   if "no cgroup" in output else "")


def yield_stress_rows(options: argparse.Namespace) -> list[Row]:
    """yields of all kinds on the debug kernel"""
    if options.cpus < 2 or options.cpus % 2:
        raise Fail("two threads to a core, one of which goes offline: use "
                   "--cpus 2 or another even number")
    return [YieldStress(name, "debug", options.cpus, (*DEBUG, STALL),
                        seconds=max(options.seconds // divisor, 1))
            for name, divisor in (("hotplug", 1), ("core-scheduling", 5))]


# --- throughput and yield-hz: figures --------------------------------------

# Groups of 20 senders and 20 receivers; each sender sends so many messages to
# each receiver.
GROUPS, LOOPS, PAIRS = 2, 200, 20 * 20
HACKBENCH = f"hackbench -g {GROUPS} -l {LOOPS}"
SECOND = ("stress-ng --no-rand-seed --temp-path /tmp --metrics-brief "
          "--timeout 1s")
WORKLOADS = {"hackbench-sockets": HACKBENCH,
             "hackbench-pipes": f"{HACKBENCH} -p",
             "hackbench-threads": f"{HACKBENCH} -T",
             "hackbench-threads-pipes": f"{HACKBENCH} -T -p",
             "stress-ng-yield": f"{SECOND} --yield 4",
             "stress-ng-switch": f"{SECOND} --switch 2",
             "stress-ng-wait": f"{SECOND} --wait 2",
             "stress-ng-sockpair": f"{SECOND} --sockpair 2"}


def rate(run: ktap.Run) -> float | None:
    """Return the messages or operations per second of a workload; None when
    it failed."""
    text = run.output if run.status == 0 else ""
    if found := re.search(r"^Time: ([\d.]+)$", text, re.M):
        return GROUPS * PAIRS * LOOPS / float(found[1])
    # Name, operations, seconds of real, user and system time, then the
    # operations by real and by CPU time.
    found = re.search(r"^stress-ng: (?:info|metrc): .*\] [a-z]+\s+\d+"
                      r"(?:\s+[\d.]+){3}\s+([\d.]+)\s+[\d.]+\s*$", text, re.M)
    return float(found[1]) if found else None


@dataclass(frozen=True)
class Throughput(Row):
    """What a change of the scheduler should not make slower."""

    def run(self, found: Found, guest: str, number: int) -> None:
        runs = ktap.split(self.boot(
            found, ktap.script(WORKLOADS), guest,
            icount="" if choose_kvm(built(self.kernel)) else "wait-idle"),
            WORKLOADS)
        found.figures = {name: rate(runs[name]) for name in WORKLOADS}
        for name, figure in found.figures.items():
            found.test(name, "" if figure else "it printed no figure")


def throughput_rows(options: argparse.Namespace) -> list[Row]:
    """hackbench and stress-ng on base and series"""
    return [Throughput(side, side, 1) for side in SIDES]


def throughput_tables(runs: dict[str, list[Any]]) -> Iterator[str]:
    """Yield base and series beside each other."""
    rows = []
    for name in WORKLOADS if len(runs) == 2 else ():
        sides = [[run[name] for run in runs[side]] for side in SIDES]
        base, series = map(statistics.median, sides)
        spread = max(100 * (max(side) - min(side)) / statistics.median(side)
                     for side in sides)
        rows.append([name, f"{base:.0f}", f"{series:.0f}",
                     f"{series / base:.3f}", f"{spread:.1f} %"])
    yield from ("Per second of the guest's clock, one CPU, medians, and how "
                "far apart the runs are:", "")
    yield from table(["workload", *SIDES, "series / base", "apart"], rows)


@dataclass(frozen=True)
class YieldHz(Row):
    """yield_latency as in make bench, its feature bit off, which is what the
    base does, and on.  A slice of a tick or less is charged as there."""

    def run(self, found: Found, guest: str, number: int) -> None:
        folder = built(self.kernel)
        found.figures = measure_yield.measure_yield(
            folder, "series", kvm=choose_kvm(folder), name=guest)
        found.ok("yield_latency")


def yield_hz_rows(options: argparse.Namespace) -> list[Row]:
    """what sched_yield() does on kernels with a longer tick"""
    return [YieldHz(f"HZ={hz}", f"series_hz{hz}", 1) for hz in (100, 250)]


def yield_hz_tables(runs: dict[str, list[Any]]) -> Iterator[str]:
    """Yield the tables of make bench for each HZ."""
    for name, figures in runs.items():
        yield from (name, "", *measure_yield.tables(
            {"sides": {"series": figures[-1]}}), "")


# --- the whole -------------------------------------------------------------

JOBS: dict[str, Callable[[argparse.Namespace], list[Row]]] = {
    "repeat": repeat_rows, "load": load_rows, "race": race_rows,
    "stress": stress_rows, "yield-stress": yield_stress_rows,
    "throughput": throughput_rows, "yield-hz": yield_hz_rows}
# How often a guest boots if nobody says so; others once.
TIMES = {"repeat": 10, "load": 2, "throughput": 3}
# Lines about the figures, {row: those of its runs}.
TABLES: dict[str, Callable[[dict[str, list[Any]]], Iterator[str]]] = {
    "throughput": throughput_tables, "yield-hz": yield_hz_tables}

# What is kept of a guest: {"rows": those of Found, "note", "figures",
# "seconds"}.
Run = dict[str, Any]


def run_once(row: Row, guest: str, number: int) -> Run:
    """Boot a row's guest; return what it showed."""
    found, start = Found(), time.monotonic()
    try:
        built(row.kernel)
        start = time.monotonic()
        row.run(found, guest, number)
    except Fail as failure:
        found.fail("the guest", failure)
    return {"rows": found.rows, "note": found.note, "figures": found.figures,
            "seconds": round(time.monotonic() - start, 1)}


def count(runs: list[Run]) -> list[int]:
    """Return how many tests of runs passed, failed, were skipped."""
    words = Counter(row[0] for run in runs for row in run["rows"])
    return [words[word] for word in ("ok", "fail", "skip")]


def in_a_row(runs: list[Run]) -> list[Run]:
    """Return the runs after the last one with a failure."""
    bad = [number for number, run in enumerate(runs, 1) if count([run])[1]]
    return runs[max(bad, default=0):]


def job_key(name: str, commit: str) -> str:
    """Return a name of a kernel, its tests, and what else a job runs."""
    return digest(source_key(commit), test_key(commit),
                  test_key(commit, "sched"), compiler_version(),
                  *(path.read_text() for path in sorted(BENCH.glob("*.[ch]"))
                    if name == "stress"))


def soak(name: str, options: argparse.Namespace) -> int:
    """Run a job and print a table; return the exit status."""
    if name in ("yield-stress", "throughput"):
        need_tool("hackbench", "rt-tests")
        need_tool("stress-ng", "stress-ng")
    there = JOBS[name](options)
    rows = [row for row in there if any(
        fnmatch.fnmatch(row.name, only) for only in options.only or ["*"])]
    if not rows:
        raise Fail(f"--only names none of {name}'s rows: "
                   + ", ".join(row.name for row in there))
    commit = begin()
    key, report = job_key(name, commit), RESULTS / f"soak-{name}.json"
    kept = next((one for one in (read_json(report, {}), read_json(
        PUBLISHED / f"{name}.json", {})) if one.get("key") == key),
        {"key": key, "commit": commit, "runs": {}})
    runs: dict[str, list[Run]] = {}
    for row in rows:
        wanted = options.times or TIMES.get(name, 1) if row.often else 1
        place = digest(repr(row), KERNELS[row.kernel].wanted())
        mine = in_a_row(kept["runs"].get(place, []))
        for number in range(len(mine) + 1, wanted + 1):
            guest = re.sub(r"\W", "-", f"{name}-{row.name}-{number}")
            with stage(f"{row.name}: run {number} of {wanted}"):
                mine.append(run_once(row, guest, number))
            kept["runs"][place] = mine
            write_json(report, kept)
        runs[row.name] = mine[:wanted]
    if options.publish:
        write_json(PUBLISHED / f"{name}.json", kept)
    passed, failed, skipped = count(sum(runs.values(), []))
    if name in TABLES and not failed:
        say("\n" + console(TABLES[name]({
            row: [run["figures"] for run in mine]
            for row, mine in runs.items()})))
    say("\n" + console(table(
        ["guest", "runs", "passed", "failed", "skipped", "each took",
         "in the last"],
        ([row, str(len(mine)), *map(str, count(mine)),
          duration(statistics.mean(run["seconds"] for run in mine)),
          mine[-1]["note"]] for row, mine in runs.items()))))
    say(f"all of it: {shown_path(report)}")
    say(f"{passed} passed, {failed} failed, {skipped} skipped")
    return 1 if failed or not passed else 0


def main() -> int:
    """Run the job."""
    parser = argparse.ArgumentParser(
        description=__doc__.split("\n\n")[0],
        formatter_class=argparse.RawDescriptionHelpFormatter,
        epilog="jobs:\n" + "\n".join(
            f"  {name:13}{rows.__doc__}" for name, rows in JOBS.items()))
    parser.add_argument("job", choices=list(JOBS))
    parser.add_argument("--times", type=int, help="runs of each guest")
    parser.add_argument("--seconds", type=int, default=600,
                        help="how long stress and yield-stress run "
                             "(default: %(default)s)")
    parser.add_argument("--cpus", type=int, default=2,
                        help="CPUs of their guests (default: %(default)s)")
    parser.add_argument("--only", action="append", metavar="ROW",
                        help="only this row, or rows of a pattern (may be "
                             "repeated)")
    parser.add_argument("--publish", action="store_true",
                        help="copy the runs to results/JOB.json")
    options = parser.parse_args()
    with build_lock():
        return soak(options.job, options)


if __name__ == "__main__":
    run_main(main)
