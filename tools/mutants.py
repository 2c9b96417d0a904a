# SPDX-License-Identifier: GPL-2.0-only
"""Plant the bugs of tools/mutants in the kernel of the series, one after the
other, and see that each is caught by the test it is named after.

Before them the same tests run on the series without a bug, the controls, where
every case has to pass; with all mutants, also on the base.  Runs are kept in
build/results/mutants.json: a second run only does what a changed patch,
kernel, test or compiler asks for.
"""

import fnmatch
import functools
import json
import shutil
from collections import Counter
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

from tools import ktap
from tools.build import (RECIPES, build_kernel, build_selftests,
                         compiler_version, make, objects, save_image, source,
                         source_key, test_key)
from tools.core import (Fail, Given, Kernel, at_once, build_lock, digest, git,
                        need_space, read_json, say, scratch, write_json)
from tools.guest import Lost, Result, boot, check_splat, choose_kvm
from tools.planted_bugs import EVENTS, Setup, Trial, read_mutants
from tools.records import Begun, begun, record
from tools.selftests import KUNIT_SUITE
from tools.series.apply import begin

# On a busy machine an emulated guest may not come up, for want of a timer
# interrupt. That says nothing about a bug, so it is tried again.
TRIES = 3
# So many guests at once, beside a build: one leaves a processor of two idle.
GUESTS = 2
UP = "# the guest is up"

Cases = dict[str, str]  # {case: "pass", "fail" or "skip"}


def failures(run: Cases | Fail, control: Cases) -> list[str]:
    """Return the cases that fail with a bug and pass without."""
    return [] if isinstance(run, Fail) else [
        case for case, verdict in run.items()
        if verdict == "fail" and control.get(case) == "pass"]


def judge(mutant: Trial, run: Cases | Fail,
          control: Cases) -> tuple[str, str]:
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


@functools.cache
def setup_key(kernel: Kernel, commit: str, setup: Setup) -> str:
    """Return a name of all that makes a run, apart from a bug."""
    return digest(
        source_key(kernel, commit), compiler_version(),
        RECIPES[setup.recipe].wanted(kernel),
        test_key(kernel, "applied", setup.target().partition("/")[0]),
        json.dumps([setup.program, setup.command(""),
                    setup.options() | {"timeout": ""}]))


def build_image(kernel: Kernel, trial: Trial, place: Path) -> Path:
    """Return a folder that boots: place, if the kernel may have a bug."""
    if trial.commit == "base":
        return build_kernel(kernel, "base")
    # That undoes the bug of the one before.
    tree = source(kernel, trial.commit)
    git("apply", "--allow-empty", "-", cwd=tree, data=trial.diff)
    make(kernel, trial.setup.recipe, "bzImage", tree=tree,
         log=kernel.logs / f"mutant-{trial.name}.build.log")
    shutil.rmtree(place, ignore_errors=True)
    save_image(objects(kernel, trial.setup.recipe), place)
    return place


def run_test(kernel: Kernel, trial: Trial, program: Path | str,
             image: Path | Fail) -> Cases | Fail:
    """Boot a kernel and run a test program; return what it showed."""
    if isinstance(image, Fail):
        return image
    options = trial.setup.options()
    kvm = not options["icount"] and choose_kvm(image)
    for _ in range(TRIES):
        events = dict.fromkeys(EVENTS, "pass")
        try:
            said: Result | Lost = boot(
                image, f"echo '{UP}'\n{trial.setup.command(program)}",
                kernel.logs / f"mutant-{trial.name}", kvm=kvm, **options)
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


def build_images(kernel: Kernel, trials: list[Trial],
                 places: list[Path]) -> list[Path | Fail]:
    """Build the kernels of trials, one after the other; return what
    build_image() does, or why there is none."""
    images: list[Path | Fail] = []
    for trial, place in zip(trials, places):
        try:
            images.append(build_image(kernel, trial, place))
        except Fail as failure:
            images.append(failure)
    return images


def run_trials(kernel: Kernel, trials: list[Trial]
               ) -> Iterator[tuple[Trial, Cases | Fail]]:
    """Yield what trials show.  While the guests of some run, the kernels of
    the next are built."""
    programs = {"": ""} | build_selftests(kernel, sorted({
        trial.setup.target() for trial in trials} - {""}))
    parts = [trials[first:first + GUESTS]
             for first in range(0, len(trials), GUESTS)]
    images: list[Path | Fail] = []
    with scratch("images") as place:
        for number, (part, ahead) in enumerate(
                zip([[], *parts], [*parts, []])):
            work: dict[str, Callable[[], Any]] = {
                f"testing {trial.name} ({trials.index(trial) + 1} of "
                f"{len(trials)})": functools.partial(
                    run_test, kernel, trial, programs[trial.setup.target()],
                    image) for trial, image in zip(part, images, strict=True)}
            if ahead:
                work["building " + ", ".join(trial.name for trial in ahead)] \
                    = functools.partial(build_images, kernel, ahead, [
                        place / f"{number % 2}-{one}"
                        for one in range(GUESTS)])
            done = [*at_once(work, len(work), go_on=True).values()]
            images = done.pop() if ahead else []
            yield from zip(part, done, strict=True)


def run_all(kernel: Kernel, mutants: list[Trial], whole: bool) -> int:
    """Test mutants and print what came out; return the exit status.  whole:
    these are all, so tell which cases caught none of them."""
    begin(kernel)
    need_space(kernel.build, 5, "the kernels with planted bugs")
    report, since = kernel.results / "mutants.json", begun()
    kept: dict[str, Any] = read_json(report, {}).get("kept", {})
    controls = {setup: Trial(f"control-{number}-{setup.program}", setup)
                for number, setup in enumerate(dict.fromkeys(
                    mutant.setup for mutant in mutants), 1)}
    bases = [Trial(trial.name.replace("control", "base"), setup, "base")
             for setup, trial in controls.items()
             if whole and setup.recipe == Setup.recipe]
    keys = {trial: digest(setup_key(kernel, trial.commit, trial.setup),
                          trial.diff)
            for trial in [*controls.values(), *bases, *mutants]}
    runs: dict[Trial, Cases | Fail] = {
        trial: kept[key]["cases"] for trial, key in keys.items()
        if key in kept}
    todo = [trial for trial in keys if trial not in runs]
    for trial, run in run_trials(kernel, todo) if todo else ():
        runs[trial] = run
        # What kept a kernel from being built may have gone next time.
        if not isinstance(run, Fail):
            kept[keys[trial]] = {"begun": since, "cases": run}
            write_json(report, {"kept": kept})
        elif trial in controls.values():
            raise run
        if trial.diff:
            say("    {1}: {0}: {2}".format(trial.name, *judge(
                trial, run, runs[controls[trial.setup]])))
    if whole:
        caught = {f"{trial.setup.program}: {case}" for trial in keys for case
                  in failures(runs[trial], runs[controls[trial.setup]])}
        cases = {f"{setup.program}: {case}" for setup, trial
                 in controls.items() for case, verdict in runs[trial].items()
                 if verdict == "pass" and case not in EVENTS}
        idle = sorted(cases - caught)
        say("\n    ".join([f"of {len(cases)} test cases, {len(idle)} caught "
                           "none of these and pass on the base", *idle]))
    count: Counter[str] = Counter()
    for mutant in mutants:
        verdict, how = judge(mutant, runs[mutant],
                             runs[controls[mutant.setup]])
        count[verdict] += 1
        if verdict != "killed":
            say(f"{verdict}: {mutant.name}: {how}")
    if not todo:
        say("nothing was left to run, so nothing is noted")
    elif whole:
        kept = {key: kept[key] for key in keys.values() if key in kept}
        write_json(report, {"kept": kept})
        record(kernel, "mutants",
               (count["killed"], len(mutants) - count["killed"], 0),
               min(Begun(*run["begun"]) for run in kept.values()))
    say(f"{count['killed']} killed, {count['survived']} survived, "
        f"{count['error']} could not be tested")
    return 0 if count["killed"] == len(mutants) else 1


def look(kernel: Kernel, given: Given) -> list[Trial]:
    """Return the mutants that ONLY= names."""
    return read_mutants(kernel, given.get("ONLY", "").split())


def main(kernel: Kernel, given: Given) -> int:
    """Run the job; it fails when a mutant survives or cannot be tested."""
    mutants = look(kernel, given)
    if "LIST" in given:
        for mutant in mutants:
            say(f"{mutant.name}: {'; '.join(mutant.wanted)}\n    "
                + mutant.about)
        return 0
    with build_lock(kernel):
        return run_all(kernel, mutants, "ONLY" not in given)
