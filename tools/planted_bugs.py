# SPDX-License-Identifier: GPL-2.0-only
"""Read the bugs of tools/mutants, whose README.md has the form of a patch."""

import fnmatch
import re
from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from tools.core import ROOT, Fail, Kernel
from tools.selftests import (ALL_PORTS, KUNIT_SUITE, RACE, RACE_CASES, STEADY,
                             YIELD_TESTS, race_command)
from tools.series.apply import has_yield, is_kernel

MUTANTS = ROOT / "tools/mutants"
# What else a patch may say: fields of Setup.
HEADERS = {"Kernel": ("recipe", "faults"), "Cpus": ("cpus", "[1-9]"),
           "Append": ("append", ".+"), "Arguments": ("arguments", ".+")}
# What a guest can do other than fail a test case: in a run, a case like the
# others.
EVENTS = ("panic", "hang", "splat")
SECONDS = 400
# On the base, each case is hit with the first seed.
RACE_WAKES, RACE_SEEDS = 25000, (1, 2)
# What the bug is, headers, a diff.
FORM = re.compile(r"(?P<about>.+?)\n\n(?P<headers>(?:[A-Z][a-z-]+: [^\n]+\n)+)"
                  r"---\n(?P<diff>diff --git .+)", re.S)


@dataclass(frozen=True)
class Setup:
    """How a test program is run; cpus: "" for those that it usually has."""

    program: str
    recipe: str = "mutants"
    cpus: str = ""
    append: str = ""
    arguments: str = ""

    def target(self) -> str:
        """Return the program as build_selftests() has it; "" for KUnit."""
        return "" if self.program == KUNIT_SUITE else \
            f"sched/{self.program}" if self.program in YIELD_TESTS else \
            f"x86/{self.program}_64"

    def options(self) -> dict[str, Any]:
        """Return the options of boot()."""
        race, sched = self.target() == RACE, self.program in YIELD_TESTS
        cpus = int(self.cpus or (1 if race or sched else 2))
        # The window is hit only where time is counted in instructions, and
        # make check runs those of sched in that way.
        icount = "skip-idle" if race and cpus == 1 else \
            "wait-idle" if sched and not self.cpus else ""
        # The suite is built into a kernel that runs none by itself.
        more = STEADY if icount == "wait-idle" else () if self.target() else (
            "kunit.enable=1", "kunit.autorun=1")
        return {"cpus": cpus, "icount": icount,
                "append": (*self.append.split(), *more),
                "timeout": SECONDS * (3 if race or sched else 1)}

    def command(self, program: Path | str) -> str:
        """Return the guest's shell command."""
        if not self.target():
            return "dmesg"
        if self.target() == RACE and not self.cpus:
            return race_command(program, RACE_CASES, RACE_SEEDS, RACE_WAKES)
        more = ALL_PORTS if self.program.startswith("iop") else ""
        return " ".join(f"{program} {more} {self.arguments}".split())


@dataclass(frozen=True)
class Trial:
    """A test on a kernel: of the base, or of the series with a diff; of a
    mutant, also what the bug is, and patterns of what must all fail."""

    name: str
    setup: Setup
    commit: str = "applied"
    diff: str = ""
    about: str = ""
    wanted: tuple[str, ...] = ()


def read_mutant(path: Path) -> Trial:
    """Read a patch; Fail names what is wrong with it."""
    where = f"{path.parent.name}/{path.name}"
    text = FORM.fullmatch(path.read_text(errors="replace"))
    named = re.fullmatch(r"(\d\d+)-([a-z0-9-]+)", path.stem)
    if not text or not named:
        raise Fail(f"{where} is not called NN-BUG.patch, or is not what the "
                   "bug is, headers, --- and a diff: see tools/mutants/README"
                   ".md")
    wanted, setup = [], Setup(path.parent.name)
    start = f"{setup.program}: "
    for header, value in re.findall("(.+?): (.+)", text["headers"]):
        if header == "Caught-by" and (
                value in EVENTS or value.startswith(start)):
            wanted.append(value.removeprefix(start))
        elif header in HEADERS and re.fullmatch(HEADERS[header][1], value):
            setup = replace(setup, **{HEADERS[header][0]: value})
        else:
            raise Fail(f"{where} has a header that is wrong: {header}: "
                       f"{value}")
    other = [name for name in re.findall(
        r"^diff --git a/\S+ b/(\S+)$", text["diff"], re.M)
        if not is_kernel(name) or name.endswith(("_test.c", "_kunit.c"))]
    if other or not wanted or re.search("^(new|deleted) file|^rename ",
                                        text["diff"], re.M):
        raise Fail(f"{where} has no Caught-by:, or does not only change files "
                   f"of the kernel: {', '.join(other) or 'it adds one'}")
    return Trial(f"{named[1]}-{setup.program}-{named[2]}", setup, "applied",
                 text["diff"], " ".join(text["about"].split()), tuple(wanted))


def read_mutants(kernel: Kernel, only: Sequence[str] = ()) -> list[Trial]:
    """Return the mutants, or those whose name has a part that begins with one
    of some patterns.

    An older kernel has own files, KERNEL/PROGRAM/, where the others do not
    apply, and maybe no patch of sched_yield().
    """
    found: dict[str, Trial] = {}
    skipped = () if has_yield(kernel) else YIELD_TESTS
    for path in sorted(MUTANTS.glob("*/*.patch"), key=lambda path: path.name):
        own = MUTANTS / kernel.name / path.relative_to(MUTANTS)
        bug = read_mutant(own if own.exists() else path)
        number = bug.name.partition("-")[0]
        if number in found:
            raise Fail(f"two mutants have the number {number}")
        if bug.setup.program not in skipped:
            found[number] = bug
    chosen: set[str] = set()
    for pattern in only or [""]:
        names = fnmatch.filter((f"-{bug.name}" for bug in found.values()),
                               f"*-{pattern}*")
        if not names:
            raise Fail(f"ONLY={pattern} names none of the {len(found)} "
                       "mutants: LIST=1 shows them")
        chosen.update(names)
    return [bug for bug in found.values() if f"-{bug.name}" in chosen]
