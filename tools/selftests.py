# SPDX-License-Identifier: GPL-2.0-only
"""Install selftests, run them in a guest and count what they came to."""

import fnmatch
import os
import re
import shutil
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from tools import ktap
from tools.build import make_environment, selftest_names
from tools.core import (BUILD, LOGS, Fail, run_logged, say, shown_path,
                        stage, write_atomically)
from tools.count import Count
from tools.guest import Lost, Result, boot, check_splat, choose_kvm

INSTALLED = BUILD / "installed"
SECONDS = 1500
# Guests that one run of all selftests may take: emulation loses some.
GUESTS = 4
# Arguments that keep the tests of I/O ports short in more kernels and in each
# prefix of the series. All others run as they are.
ARGUMENTS = {"ioperm_latency": "--rounds 50 --warmup 5",
             "ioperm_drop_race": "--wakes 500"}
YIELD_TESTS = ("yield_test",)
# What such a test says of a case that a loaded host spoilt; and how many more
# runs such cases get.
SPOILT = "the host used the CPU"
MORE_RUNS = 2
KUNIT_SUITE = "x86_io_bitmap"
KUNIT_RESULTS = f"/sys/kernel/debug/kunit/{KUNIT_SUITE}/results"


def wanted_x86(tree: Path) -> set[str]:
    """Return the names of all x86 selftests, 32 and 64 bit."""
    return {Path(name).name for name in selftest_names(tree, "x86")}


def port_tests(tree: Path, suffix: str = "") -> list[str]:
    """Return the x86 selftests of I/O ports, such as 'x86/iopl_32'.

    suffix: "_32" or "_64" for these only.
    """
    return selftest_names(tree, "x86", (f"iop*{suffix}",))


def arguments_of(program: Path) -> list[str]:
    """Return the arguments of a test program."""
    return ARGUMENTS.get(re.sub(r"_(32|64)$", "", program.name), "").split()


# --- installed tests -------------------------------------------------------

def install(what: str, tree: Path, targets: Sequence[str] = ("x86",),
            arguments: Sequence[str] = ()) -> Path:
    """Install selftests with make kselftest-install; return the folder.

    arguments: of make, such as make_arguments() of a kernel that was built.
    Raises Fail when one that the Makefiles promise is missing.
    """
    place = INSTALLED / what
    shutil.rmtree(place, ignore_errors=True)
    run_logged(["make", "-C", str(tree), f"-j{os.cpu_count()}", *arguments,
                f"TARGETS={' '.join(targets)}", "FORCE_TARGETS=1",
                f"INSTALL_PATH={place}", "kselftest-install"],
               LOGS / f"install-{what}.log", env=make_environment(),
               what=f"installing the selftests of {what}")
    missing = [name for folder in targets
               for name in selftest_names(tree, folder)
               if not (place / name).exists()]
    if missing:
        raise Fail(f"not installed: {', '.join(sorted(missing))}")
    return place


def run_installed(folder: Path, place: Path, name: str, kvm: bool,
                  only: Sequence[str] = ()) -> dict[str, str]:
    """Run installed x86 selftests in a guest; return {program: verdict}.

    folder: objects of the kernel.  place: where they are installed.  only:
    the programs to run, by default all.  The output is kept in
    build/logs/NAME.ktap.  The program with which a guest dies has failed, and
    another guest runs those that are left.
    """
    left = list(only) or re.findall(
        r"^x86:(.*)$", (place / "kselftest-list.txt").read_text(), re.M)
    found: dict[str, str] = {}
    for number in range(1, GUESTS + 1):
        guest = name if number == 1 else f"{name}-{number}"
        chosen = " ".join(f"-t x86:{program}" for program in left)
        try:
            boot_logged(folder, f"cd {place} && ./run_kselftest.sh {chosen}",
                        guest, cpus=2, kvm=kvm, timeout=SECONDS, share=place)
            lost = None
        except Lost as failure:
            lost = failure
        text = (LOGS / f"{guest}.ktap").read_text()
        begun = re.findall(r"^# selftests: x86: (\S+)$", text, re.M)
        if lost and (not begun or number == GUESTS):
            raise lost
        if lost:
            say(f"    the guest died in {begun[-1]}: another one goes on")
            found[begun[-1]] = "fail"
        found |= {program.removeprefix("x86: "): verdict for program, verdict
                  in ktap.runner(text).items()}
        left = [program for program in left if program not in found]
        if not lost or not left:
            break
    return found


# --- counting --------------------------------------------------------------

def count_run(count: Count, title: str, run: ktap.Run | None,
              log: Path) -> None:
    """Count a test program as one test; None: it did not run."""
    verdict, words = ktap.verdict(run) if run else ("fail", "it did not run")
    if verdict == "pass":
        count.ok(title, words)
    else:
        {"skip": count.skip, "fail": count.fail}[verdict](
            title, f"{words}; see {shown_path(log)}")


def count_status(count: Count, title: str, status: int | None,
                 log: Path) -> None:
    """Count a test program's exit status, as kselftest has it."""
    if status == 0:
        count.ok(title)
    elif status == 4:
        count.skip(title, f"skipped itself; see {shown_path(log)}")
    else:
        count.fail(title, f"exit status {status}; see {shown_path(log)}")


def count_cases(count: Count, title: str, text: str, log: Path,
                only: str = "*") -> None:
    """Count the cases of KTAP whose name matches a shell pattern.

    Output that is not whole, or has none of them, is a failure.
    """
    report = ktap.parse(text)
    cases = fnmatch.filter(report.cases, only)
    if report.wrong or not cases:
        count.fail(title, f"{report.wrong or 'it did not run'}; see "
                   + shown_path(log))
    if len(cases) > 1 and cases == fnmatch.filter(report.those("skip"), only):
        count.fail(title, f"all cases skipped; see {shown_path(log)}")
    for case in cases:
        name, why = f"{title}: {case}", report.reasons.get(case, "")
        if report.cases[case] == "pass":
            count.ok(name)
        elif report.cases[case] == "skip":
            count.skip(name, why)
        else:
            count.fail(name, f"{why}; see {shown_path(log)}")


def count_kunit(count: Count, title: str, text: str, log: Path) -> None:
    """Count the series' KUnit suite in what debugfs or a console says."""
    count_cases(count, f"{title}: KUnit", text, log, f"{KUNIT_SUITE}*")


# --- programs in a guest ---------------------------------------------------

def boot_logged(folder: Path, command: str, name: str,
                **options: Any) -> Result:
    """As boot(), with the output in build/logs/NAME.ktap, also of a guest
    that died."""
    try:
        result = boot(folder, command, name=name, **options)
    except Lost as lost:
        write_atomically(LOGS / f"{name}.ktap", lost.output)
        raise
    write_atomically(LOGS / f"{name}.ktap", result.output)
    return result


def run_programs(count: Count, title: str, folder: Path,
                 programs: Sequence[Path], name: str, kunit: bool = False,
                 **options: Any) -> None:
    """Boot a kernel, run test programs and count each.

    folder: objects of the kernel.  name: of the guest and its log.  kunit:
    count what the kernel's KUnit suite came to, too.  options: of boot().
    """
    commands = {path.name: " ".join([str(path), *arguments_of(path)])
                for path in programs}
    if kunit:
        commands["KUnit"] = f"cat {KUNIT_RESULTS}"
    options = {"cpus": 2, "timeout": 900, "kvm": choose_kvm(folder)} | options
    try:
        with stage(f"running {len(programs)} programs on {title}"):
            result = boot_logged(folder, ktap.script(commands), name,
                                 **options)
    except Fail as failure:
        count.fail(f"{title}: boots", failure)
        return
    count.ok(f"{title}: boots")
    log, runs = LOGS / f"{name}.ktap", ktap.split(result.output)
    for path in programs:
        count_run(count, f"{title}: {path.name}", runs.get(path.name), log)
    if kunit:
        count_kunit(count, title, runs["KUnit"].output, log)
    count.run(f"{title}: no splat", check_splat, result.console)


def boot_yield(folder: Path, programs: Sequence[Path], name: str,
               cpus: int = 1, arguments: str = "") -> dict[str, ktap.Run]:
    """Boot a kernel and run tests of sched_yield(); return {program: Run}.

    With one CPU, in a guest whose clock counts instructions: a host that
    takes the CPU away in mid-call would otherwise make them skip what it
    spoilt.  Without another clock to check it by, the kernel has to be told
    that it is good enough for timers that are finer than the tick.
    """
    commands = {path.name: f"{path} {arguments}" for path in programs}
    options = {"icount": "wait-idle", "append": ("tsc=reliable",)} \
        if cpus == 1 else {}
    return ktap.split(boot_logged(
        folder, ktap.script(commands), name, cpus=cpus, timeout=900,
        **options).output)


def run_yield(count: Count, title: str, folder: Path,
              programs: Sequence[Path], name: str, cpus: int = 1,
              arguments: str = "") -> None:
    """As boot_yield(), and count each case; those that the host spoilt get
    more runs, and of several runs the worse verdict counts, skips apart."""
    texts = {path.name: "" for path in programs}
    try:
        with stage(f"running the tests of sched_yield(), {title}"):
            for number in range(1 + MORE_RUNS):
                runs = boot_yield(folder, programs, f"{name}-{number}"
                                  if number else name, cpus, arguments)
                for program in texts:
                    texts[program] += runs[program].output \
                        if program in runs else ""
                if not any(SPOILT in ktap.parse(text).reasons.values()
                           for text in texts.values()):
                    break
    except Fail as failure:
        count.fail(title, failure)
        return
    for program, text in texts.items():
        count_cases(count, f"{title}: {program}", text,
                    LOGS / f"{name}.ktap")
