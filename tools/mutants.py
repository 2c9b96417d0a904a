# SPDX-License-Identifier: GPL-2.0-only
"""Plant the bugs of tools/mutants in the kernel of the series, one after the
other, and see that each is caught by the test it is named after.

tools/mutants/README.md has the form of a mutant.  Before them the same tests
run on the series without a bug, the controls, where every case has to pass;
with all mutants, also on the base.  While a guest runs, the next one's kernel
is built.  Runs are kept in build/results/mutants.json: a second run only does
what a changed patch, kernel, test or compiler asks for.
"""

import argparse
import fnmatch
import functools
import json
import re
import shutil
import time
from collections import Counter
from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from tools import ktap
from tools.build import (KERNELS, build_kernel, build_selftests,
                         compiler_version, make, objects, save_image, source,
                         source_key, test_key)
from tools.core import (BUILD, KERNEL, LOGS, RESULTS, ROOT, Fail, build_lock,
                        digest, duration, in_parallel, need_space, read_json,
                        run_git, run_main, say, shown_path, work_begins,
                        write_json)
from tools.guest import Lost, Result, boot, check_splat, choose_kvm
from tools.records import CHECKS, patches_key, record
from tools.selftests import (ALL_PORTS, KUNIT_SUITE, RACE, RACE_CASES,
                             STEADY, race_command)
from tools.series.apply import begin, is_kernel

MUTANTS = ROOT / "tools/mutants"
IMAGES = BUILD / "images"
REPORT = RESULTS / "mutants.json"
KINDS = ("mutants", "faults")
# What a guest can do other than fail a test case: in a run, a case like the
# others.
EVENTS = ("panic", "hang", "splat")
SECONDS = 400
# On a busy machine an emulated guest may not come up, for want of a timer
# interrupt. That says nothing about a bug, so it is tried again.
TRIES = 3
UP = "# the guest is up"
# On the base, each case is hit with the first seed.
RACE_WAKES, RACE_SEEDS = 25000, (1, 2)

# What the bug is, headers, a diff.
FORM = re.compile(r"(?P<about>.+?)\n\n(?P<headers>(?:[A-Z][a-z-]+: [^\n]+\n)+)"
                  r"---\n(?P<diff>diff --git .+)", re.S)

# {case: "pass", "fail" or "skip"}, or why it did not take place.
Run = dict[str, str] | Fail


# --- the patches -----------------------------------------------------------

@dataclass(frozen=True)
class Setup:
    """How a test program is run; cpus: 0 for those that it usually has."""

    program: str
    kernel: str = "mutants"
    cpus: int = 0
    append: str = ""
    arguments: str = ""

    def target(self) -> str:
        """Return the program as build_selftests() has it; "" for KUnit."""
        # Those of sched are the series' own, so selftests/ has a copy.
        name = f"sched/{self.program}"
        return "" if self.program == KUNIT_SUITE else \
            name if (ROOT / f"selftests/{name}.c").exists() else \
            f"x86/{self.program}_64"

    def options(self) -> dict[str, Any]:
        """Return the options of boot()."""
        race, sched = self.target() == RACE, self.target()[:5] == "sched"
        cpus = self.cpus or (1 if race or sched else 2)
        # The window is hit only where time is counted in instructions, and
        # make check runs those of sched in that way.
        icount = "skip-idle" if race and cpus == 1 else \
            "wait-idle" if sched and not self.cpus else ""
        # The suite is built into a kernel that runs none by itself.
        more = STEADY if icount == "wait-idle" else () if \
            self.program != KUNIT_SUITE else ("kunit.enable=1",
                                              "kunit.autorun=1")
        return {"cpus": cpus, "icount": icount,
                "append": (*self.append.split(), *more),
                "timeout": SECONDS * (3 if race or sched else 1)}

    def command(self, program: Path | str) -> str:
        """Return the guest's shell command."""
        if self.program == KUNIT_SUITE:
            return "dmesg"
        if self.target() != RACE or self.cpus:
            more = ALL_PORTS if self.program.startswith("iop") else ""
            return " ".join(f"{program} {more} {self.arguments}".split())
        return race_command(program, RACE_CASES, RACE_SEEDS, RACE_WAKES)


@dataclass(frozen=True)
class Job:
    """A test on a kernel: of the base, or of the series with a diff; of a
    mutant, also what the bug is, and patterns of what must all fail."""

    name: str
    setup: Setup
    commit: str = "applied"
    diff: str = ""
    about: str = ""
    wanted: tuple[str, ...] = ()

    def image_key(self) -> str:
        """Return a name of the kernel: what it is built of."""
        return digest(kernel_key(self.commit, self.setup.kernel), self.diff)

    def key(self) -> str:
        """Return a name of the run: the kernel, the test and the guest."""
        folder = self.setup.target().partition("/")[0]
        return digest(self.image_key(), tests_key(folder), json.dumps([
            self.setup.program, self.setup.command(""),
            self.setup.options() | {"timeout": ""}]))


tests_key = functools.cache(functools.partial(test_key, "applied"))


@functools.cache
def kernel_key(commit: str, name: str) -> str:
    """Return a name of a kernel's source, compiler and configuration."""
    return digest(source_key(commit), compiler_version(),
                  KERNELS[name].wanted())


def read_mutant(path: Path) -> Job:
    """Read a patch; Fail names what is wrong with it."""
    where = f"{path.parent.name}/{path.name}"
    text = FORM.fullmatch(path.read_text(errors="surrogateescape"))
    named = re.fullmatch(r"(\d\d+)-([a-z0-9-]+)", path.stem)
    if not text or not named:
        raise Fail(f"{where} is not called NN-BUG.patch, or is not what the "
                   "bug is, headers, --- and a diff: see tools/mutants/README"
                   ".md")
    wanted, setup = [], Setup(path.parent.name)
    for name, value in re.findall("(.+?): (.+)", text["headers"]):
        program, _, case = value.partition(": ")
        if name == "Caught-by" and (
                value in EVENTS or case and program == setup.program):
            wanted.append(case or value)
        elif name == "Kernel" and value in KINDS or \
                name in ("Append", "Arguments"):
            setup = replace(setup, **{name.lower(): value})
        elif name == "Cpus" and re.fullmatch("[1-9]", value):
            setup = replace(setup, cpus=int(value))
        else:
            raise Fail(f"{where} has a header that is wrong: {name}: {value}")
    names = re.findall(r"^diff --git a/\S+ b/(\S+)$", text["diff"], re.M)
    other = [name for name in names if not is_kernel(name)
             or name.endswith(("_test.c", "_kunit.c"))]
    if other or not wanted or re.search("^(new|deleted) file|^rename ",
                                        text["diff"], re.M):
        raise Fail(f"{where} has no Caught-by:, or does not only change files "
                   f"of the kernel: {', '.join(other) or 'it adds one'}")
    return Job(f"{named[1]}-{setup.program}-{named[2]}", setup, "applied",
               text["diff"], " ".join(text["about"].split()), tuple(wanted))


def read_all() -> Iterator[Job]:
    """Yield all mutants: an older kernel has own files, KERNEL/PROGRAM/, where
    the others do not apply, and no patch of sched_yield()."""
    for path in sorted(MUTANTS.glob("*/*.patch"), key=lambda path: path.name):
        own = MUTANTS / KERNEL / path.relative_to(MUTANTS)
        job = read_mutant(own if own.exists() else path)
        if not KERNEL or own.exists() or \
                not job.setup.target().startswith("sched/"):
            yield job


def read_mutants(pattern: str) -> list[Job]:
    """Return the mutants whose name has a part that begins with a pattern."""
    found = list(read_all())
    (number, times), = Counter(job.name.split("-")[0]
                               for job in found).most_common(1) or [("", 0)]
    if times != 1:
        raise Fail(f"two mutants have the number {number}" if times else
                   f"there is no mutant in {shown_path(MUTANTS)}/")
    chosen = [job for job in found if fnmatch.fnmatchcase(
        f"-{job.name}", f"*-{pattern}*")]
    if not chosen:
        raise Fail(f"ONLY={pattern} names none of the {len(found)} mutants: "
                   "LIST=1 shows them")
    return chosen


# --- what a run says -------------------------------------------------------

def failures(run: dict[str, str], control: dict[str, str]) -> list[str]:
    """Return the cases that fail with a bug and pass without."""
    return [case for case, verdict in run.items()
            if verdict == "fail" and control.get(case) == "pass"]


def judge(mutant: Job, run: Run, control: dict[str, str]) -> tuple[str, str]:
    """Return "killed" for a mutant that was caught as it says, "survived" or
    "error", and how."""
    bad = [case for case, verdict in control.items() if verdict == "fail"]
    idle = [pattern for pattern in mutant.wanted if "pass" not in [
        control[case] for case in fnmatch.filter(control, pattern)]]
    if bad or idle:
        return "error", "without the bug, " + (
            f"{', '.join(bad)} fails" if bad else
            f"no case '{idle[0]}' of {mutant.setup.program} passes")
    if isinstance(run, Fail):
        return "error", str(run).splitlines()[0]
    failed = failures(run, control)
    hits = {pattern: fnmatch.filter(failed, pattern)
            for pattern in mutant.wanted}
    # A guest that died has proven nothing about the cases.
    lacking = [pattern for pattern, found in hits.items() if not found]
    if not lacking:
        return "killed", "; ".join(dict.fromkeys(sum(hits.values(), [])))
    return "survived", f"not by {', '.join(lacking)}, " + (
        f"but: {', '.join(failed)}" if failed else "nor by anything else")


def passing(controls: dict[Setup, dict[str, str]]) -> list[str]:
    """Return 'program: case' of all that passes in some control."""
    found: dict[str, bool] = {}
    for setup, run in sorted(controls.items(), key=lambda row: row[0].program):
        for case in [case for case in run if case not in EVENTS]:
            title = f"{setup.program}: {case}"
            found[title] = found.get(title, False) or run[case] == "pass"
    return [title for title, passed in found.items() if passed]


# --- kernels and guests ----------------------------------------------------

def build_image(job: Job) -> Path:
    """Return a folder that boots, built if need be."""
    if job.commit == "base":
        return build_kernel("base")
    place = IMAGES / job.image_key()
    if (place / "arch/x86/boot/bzImage").exists():
        return place
    # That undoes the bug of the one before.
    tree = source(job.commit)
    done = run_git("apply", "--allow-empty", "-", cwd=tree,
                   data=job.diff.encode(errors="surrogateescape"))
    if done.returncode:
        raise Fail("does not apply: "
                   + done.stderr.decode(errors="replace").partition("\n")[0])
    try:
        make(job.setup.kernel, "bzImage", tree=tree,
             log=LOGS / f"mutant-{job.name}.build.log")
    except Fail as failure:
        error = re.search(r"^[ |]*(.*\berror: .*)$", str(failure), re.M)
        raise Fail(f"does not build: {error[1] if error else failure}"
                   ) from None
    save_image(objects(job.setup.kernel), place)
    return place


@functools.cache
def build_program(target: str) -> Path | str:
    """Build a test program of Setup.target(); return its path."""
    return build_selftests([target])[target] if target else ""


def test(job: Job, built: tuple[Path, Path | str] | Fail) -> Run:
    """Boot a kernel and run a test program; return what it showed."""
    if isinstance(built, Fail):
        return built
    image, program = built
    name, options = f"mutant-{job.name}", job.setup.options()
    command = f"echo '{UP}'\n{job.setup.command(program)}"
    kvm = not options["icount"] and choose_kvm(image)
    for _ in range(TRIES):
        events = dict.fromkeys(EVENTS, "pass")
        try:
            said: Result | Lost = boot(image, command, name, kvm=kvm,
                                       **options)
        except Lost as lost:
            events["hang" if lost.hung else "panic"] = "fail"
            said = lost
        if UP in said.output:
            break
    try:
        check_splat(said.console)
    except Fail:
        events["splat"] = "fail"
    return events | {case.removeprefix(f"{KUNIT_SUITE}."): verdict for
                     case, verdict in ktap.parse(said.output).cases.items()}


def run_jobs(jobs: list[Job], runs: dict[str, dict[str, str]]
             ) -> Iterator[tuple[Job, Run]]:
    """Yield each job with its run: first those that are among runs.  While
    the guest of one runs, the kernel of the next is built."""
    todo = [job for job in jobs if job.key() not in runs]
    yield from ((job, runs[job.key()]) for job in jobs if job not in todo)
    built: Any = None
    for number, (job, ahead) in enumerate(zip([None, *todo], [*todo, None])):
        work: dict[str, Callable[[], Any]] = {}
        if job:
            work[f"testing {job.name} ({number} of {len(todo)})"] = \
                functools.partial(test, job, built)
        if ahead:
            work[f"building {ahead.name}"] = functools.partial(
                lambda job: (build_image(job), build_program(
                    job.setup.target())), ahead)
        *done, built = [*in_parallel(work, len(work)).values(),
                        *([] if ahead else [None])]
        if job:
            run, = done
            # What kept a kernel from being built may have gone next time.
            if not isinstance(run, Fail):
                # Of a mutant's run only what fails counts.
                runs[job.key()] = {
                    case: verdict for case, verdict in run.items()
                    if not job.diff or verdict == "fail"}
                write_json(REPORT, {"runs": runs})
            yield job, run


# --- the whole -------------------------------------------------------------

def run_all(mutants: list[Job], whole: bool) -> int:
    """Test mutants and print what came out; return the exit status.  whole:
    these are all, so tell which cases caught none of them."""
    start, key = time.monotonic(), patches_key(CHECKS["mutants"])
    begin()
    need_space(BUILD, 8, "the kernels with planted bugs")
    runs = read_json(REPORT, {}).get("runs", {})
    setups = dict.fromkeys(mutant.setup for mutant in mutants)
    first = [Job(f"control-{number}-{setup.program}", setup)
             for number, setup in enumerate(setups, 1)]
    others = [Job(job.name.replace("control", "base"), job.setup, "base")
              for job in first if whole and job.setup.kernel == KINDS[0]]
    controls, found = {}, {}
    for job, run in run_jobs(first, runs):
        if isinstance(run, Fail):
            raise run
        controls[job.setup] = run
    kills: dict[str, list[str]] = {}
    for job, run in run_jobs(others + mutants, runs):
        if job.diff:
            found[job.name] = judge(job, run, controls[job.setup])
            say("    {1}: {0}: {2}".format(job.name, *found[job.name]))
        for case in failures({} if isinstance(run, Fail) else run,
                             controls[job.setup]):
            kills.setdefault(f"{job.setup.program}: {case}", []).append(
                job.name)
    if whole:
        used = {job.key(): job.image_key() for job in first + others + mutants}
        runs = {key: run for key, run in runs.items() if key in used}
        for place in IMAGES.iterdir():
            if place.name not in used.values():
                shutil.rmtree(place)
        cases = passing(controls)
        idle = [case for case in cases if case not in kills]
        say("\n    ".join([f"of {len(cases)} test cases, {len(idle)} caught "
                           "none of these and pass on the base", *idle]))
    write_json(REPORT, {"mutants": found, "kills": kills, "runs": runs})
    for name, (verdict, how) in sorted(found.items()):
        if verdict != "killed":
            say(f"{verdict}: {name}: {how}")
    say(f"took {duration(time.monotonic() - start)}; all of it: "
        + shown_path(REPORT))
    count = Counter(verdict for verdict, _ in found.values())
    if whole:
        record("mutants", count["killed"], len(found) - count["killed"], 0,
               key=key)
    say(f"{count['killed']} killed, {count['survived']} survived, "
        f"{count['error']} could not be tested")
    return 0 if count["killed"] == len(mutants) else 1


def main() -> int:
    """Run the job."""
    parser = argparse.ArgumentParser(
        description=__doc__.split("\n\n")[0],
        epilog="A mutant survives when its own test does not catch it. Ends "
               "with status 1 when one survives or could not be tested.")
    parser.add_argument("mutant", nargs="*", type=read_mutants,
                        help="only these: the number, the beginning of a "
                             "word of the name, or a shell pattern")
    parser.add_argument("--list", action="store_true",
                        help="print the mutants and what must catch them")
    options = parser.parse_args()
    chosen = {job for jobs in options.mutant or [read_mutants("")]
              for job in jobs}
    mutants = [job for job in read_mutants("") if job in chosen]
    work_begins()
    if options.list:
        for job in mutants:
            say(f"{job.name}: {'; '.join(job.wanted)}\n    {job.about}")
        return 0
    with build_lock():
        return run_all(mutants, not options.mutant)


if __name__ == "__main__":
    run_main(main)
