# SPDX-License-Identifier: GPL-2.0-only
"""Install selftests, run them in a guest and count what they came to."""

import fnmatch
import re
import shutil
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Any

from tools import ktap
from tools.build import JOBS, make_environment, selftest_names
from tools.core import Fail, Kernel, run_logged, say, shown_path, stage
from tools.count import Count
from tools.guest import Lost, Result, boot, check_splat, choose_kvm

SECONDS = 1500
# Guests that one run of all selftests may take: emulation loses some.
GUESTS = 4
# A guest has no device that minds, so these tests may read what they like.
ALL_PORTS = "--all-ports"
# Arguments that keep the tests of I/O ports short in more kernels and in each
# prefix of the series. All others run as they are.
ARGUMENTS = {"ioperm_latency": ["--rounds", "50"],
             "ioperm_drop_race": ["--wakes", "500"]}
RACE = "x86/ioperm_drop_race_64"
RACE_CASES = ("last-port", "unshare", "iopl", "exit")
# Those that the base passes as well: a mutant shows what they find.
RACE_OTHERS = ("iopl-shared",)
YIELD_TESTS = ("yield_test",)
# The guests' clock is good: with one CPU there is no other to check it by, and
# the kernel would have no timers finer than the tick.
STEADY = ("tsc=reliable",)
# What such a test says of a case that a loaded host spoilt.
SPOILT = "others used the CPU"
KUNIT_SUITE = "x86_io_bitmap"
KUNIT_RESULTS = f"/sys/kernel/debug/kunit/{KUNIT_SUITE}/results"


def port_tests(tree: Path, suffix: str = "") -> list[str]:
    """Return the x86 selftests of I/O ports, such as 'x86/iopl_32'; suffix:
    "_32" or "_64" for these only."""
    return selftest_names(tree, "x86", (f"iop*{suffix}",))


def arguments_of(program: Path) -> list[str]:
    """Return the arguments of a test program in a guest."""
    return [ALL_PORTS] * program.name.startswith("iop") + ARGUMENTS.get(
        re.sub("_(32|64)$", "", program.name), [])


def install(kernel: Kernel, what: str, tree: Path,
            targets: Sequence[str] = ("x86",),
            arguments: Sequence[str] = ()) -> Path:
    """Install selftests with make kselftest-install; return the folder.

    arguments: of make, such as make_arguments() of a built kernel.  Raises
    Fail when one that the Makefiles promise is missing.
    """
    place = kernel.build / "installed" / what
    shutil.rmtree(place, ignore_errors=True)
    run_logged(["make", "-C", str(tree), JOBS, *arguments,
                f"TARGETS={' '.join(targets)}", "FORCE_TARGETS=1",
                f"INSTALL_PATH={place}", "kselftest-install"],
               kernel.logs / f"install-{what}.log", env=make_environment(),
               what=f"installing the selftests of {what}")
    if missing := [name for folder in targets
                   for name in selftest_names(tree, folder)
                   if not (place / name).exists()]:
        raise Fail(f"not installed: {', '.join(sorted(missing))}")
    return place


def boot_runner(folder: Path, command: str, log: Path,
                **options: Any) -> Result:
    """As boot(), for a command that starts kselftest's runner."""
    # The runner opens /dev/stdout for what the programs print, and in the
    # guest that is the console.  Two who write a file by offsets of their own
    # would overwrite each other, hence the pipe.
    return boot(folder, "ln -sf /proc/self/fd/1 /dev/stdout && "
                f"{{ {command}; }} | cat", log, **options)


def run_installed(folder: Path, place: Path, log: Path, kvm: bool,
                  left: Sequence[str], guests: int = GUESTS) -> dict[str, str]:
    """Run programs of the x86 selftests that are installed in place; return
    {program: verdict}.  That with which a guest dies has failed, and another
    guest runs the rest."""
    chosen = " ".join(f"-t x86:{program}" for program in left)
    # As the runner takes the arguments of a program.
    words = " ".join(f"KSELFTEST_{program.upper()}_ARGS={ALL_PORTS}"
                     for program in left if program.startswith("iop"))
    try:
        return ktap.runner(boot_runner(
            folder, f"cd {place} && {words} ./run_kselftest.sh {chosen}",
            log, cpus=2, kvm=kvm, timeout=SECONDS, share=place).output)
    except Lost as lost:
        begun = re.findall(r"^# selftests: x86: (\S+)$", lost.output, re.M)
        if not begun or guests == 1:
            raise
        found = {begun[-1]: "fail"} | ktap.runner(lost.output)
    say(f"    the guest died in {begun[-1]}: another one goes on")
    rest = [program for program in left if program not in found]
    return found | (run_installed(
        folder, place, Path(f"{log}-rest"), kvm, rest, guests - 1)
        if rest else {})


def count_run(count: Count, title: str, run: ktap.Run, log: Path) -> None:
    """Count a test program as one test."""
    verdict, words = ktap.verdict(run)
    count.add(verdict, title, words if verdict == "pass" else
              f"{words}; see {shown_path(log)}")


def count_cases(count: Count, title: str, text: str, log: Path,
                only: str = "*") -> None:
    """Count the cases of KTAP whose name matches a shell pattern; output that
    is not whole, or has none of them, is a failure."""
    report, see = ktap.parse(text), f"; see {shown_path(log)}"
    cases = fnmatch.filter(report.cases, only)
    if report.wrong or not cases:
        count.fail(title, (report.wrong or "it did not run") + see)
    if len(cases) > 1 and {report.cases[case] for case in cases} == {"skip"}:
        count.fail(title, f"all cases skipped{see}")
    for case in cases:
        verdict = report.cases[case]
        count.add(verdict, f"{title}: {case}", report.reasons[case]
                  + see * (verdict == "fail"))


def count_kunit(count: Count, title: str, text: str, log: Path) -> None:
    """Count the series' KUnit suite in what debugfs or a console says."""
    count_cases(count, f"{title}: KUnit", text, log, f"{KUNIT_SUITE}*")


def run_programs(count: Count, title: str, folder: Path,
                 programs: Sequence[Path], log: Path, kunit: bool = False,
                 **options: Any) -> None:
    """Boot a kernel, run test programs and count each; kunit: and what the
    kernel's KUnit suite came to.  options: of boot()."""
    commands = {path.name: " ".join([str(path), *arguments_of(path)])
                for path in programs}
    if kunit:
        commands["KUnit"] = f"cat {KUNIT_RESULTS}"
    options = {"cpus": 2, "timeout": 900, "kvm": choose_kvm(folder)} | options
    try:
        with stage(f"running {len(programs)} programs on {title}"):
            result = boot(folder, ktap.script(commands), log, **options)
    except Fail as failure:
        count.fail(f"{title}: boots", failure)
        return
    count.ok(f"{title}: boots")
    said = Path(f"{log}.ktap")
    for name, run in ktap.split(result.output, commands).items():
        if name == "KUnit":
            count_kunit(count, title, run.output, said)
        else:
            count_run(count, f"{title}: {name}", run, said)
    count.run(f"{title}: no splat", check_splat, result.console)


def boot_yield(folder: Path, programs: Sequence[Path],
               log: Path) -> dict[str, str]:
    """Boot a kernel and run tests of sched_yield(); return {program: KTAP}.

    In a guest whose clock counts instructions: a host that takes the CPU away
    in mid-call would otherwise make them skip what it spoilt.  Where it still
    does, they run up to twice more, and the KTAP of that follows.
    """
    commands = {path.name: str(path) for path in programs}
    texts = dict.fromkeys(commands, "")
    for more in ("", "-1", "-2"):
        output = boot(folder, ktap.script(commands), Path(f"{log}{more}"),
                      timeout=900, icount="wait-idle", append=STEADY).output
        for program, run in ktap.split(output, commands).items():
            texts[program] += run.output
        if SPOILT not in output:
            break
    return texts


def count_yield(count: Count, title: str, texts: dict[str, str],
                log: Path) -> None:
    """Count the cases of what boot_yield() returned for a guest of a log; of
    several runs of one the worse verdict counts, skips apart."""
    for program, text in texts.items():
        count_cases(count, f"{title}: {program}", text, Path(f"{log}.ktap"))


def race_command(program: Path | str, cases: Iterable[str],
                 seeds: Iterable[int], wakes: int) -> str:
    """Return a shell command that runs cases of ioperm_drop_race: each with
    one seed after the other, until one hits.  Where the guest's clock jumps, a
    case ends early and fails without a hit: that says nothing, so the same
    seed has three tries."""
    return (f"for c in {' '.join(cases)}; do "
            f"for s in {' '.join(map(str, seeds))}; do for t in 1 2 3; do "
            f"said=$({program} --case $c --seed $s --wakes {wakes} 2>&1); "
            "case $said in *hits\\ [1-9]*) break;; *not\\ ok*) ;; "
            "*) break;; esac; done; echo \"$said\"; "
            "case $said in *hits\\ [1-9]*) break;; esac; done; done")


def race_result(text: str, case: str, side: str,
                wanted: int) -> tuple[str, str]:
    """Return the figures of a case of ioperm_drop_race, and what is wrong: the
    base must be hit, or its case proves nothing, and the series must not, in
    so many wake-ups."""
    counts = re.findall(rf"^# {case}: CPU \d+: wakes (\d+) hits (\d+)$",
                        text, re.M)
    wakes, hits = (sum(int(row[column]) for row in counts)
                   for column in (0, 1))
    fault = "" if side == "base" else "did not run to its end" \
        if wakes < wanted else ""
    if bool(hits) != (side == "base"):
        fault = "hit" if hits else "not hit, although the window is there"
    return f"{hits} hits in {wakes} wake-ups", fault
