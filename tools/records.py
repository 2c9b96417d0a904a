# SPDX-License-Identifier: GPL-2.0-only
"""What has been run, and on what.

A job that ran all of a check notes what came out with record(), in
build/results/ran.json, with the commit of the repository that has both the
patches and the tools.  'make publish' takes that to results/tested.md.  What
ran on other patches counts for nothing.
"""

import datetime
import functools
import re
from collections.abc import Iterable
from typing import NamedTuple

from tools.core import (PATCHES, ROOT, Fail, Kernel, digest, git, read_json,
                        run_git, say, write_json)
from tools.series.apply import has_yield, is_kernel

# What each check reads of the patches, so that no other change makes it out of
# date: "kernel", neither tests nor documents; "code", no documents; or "all".
# That of the tools reads "tools".
GATES = {"gcc": "code", "clang": "code", "prefixes": "code",
         "sparse": "kernel", "coccicheck": "code", "kerneldoc": "code",
         "docs": "all", "versions": "all", "i386": "code", "musl": "code",
         "xen": "code", "boots": "code", "installs": "code", "bisect": "code",
         "package": "code", "package-rt": "code", "bare": "all",
         "stick": "code"}
SOAK = ("repeat", "load", "race", "stress", "yield-stress", "yield-hz")
CHECKS = {"check scripts": "tools", "check series": "all",
          "check kernels": "code",
          **{f"gates {name}": reads for name, reads in GATES.items()},
          "mutants": "code", **{f"soak {name}": "code" for name in SOAK},
          "bench": "code", "study": "code", "deb": "kernel"}
# They are about the repository, which is the same for each kernel.
FIRST_ONLY = ("check scripts", "gates bare", "study")
YIELD_ONLY = ("soak yield-stress", "soak yield-hz")
# x86 has PREEMPT_RT since 6.12.
NO_RT = {"6.1": ("gates package-rt",)}
NAME = "ran.json"


class Begun(NamedTuple):
    """When a run began, and the commit that it is of."""

    date: str
    commit: str


def begun() -> Begun:
    """Return that of a run that begins now.  The commit is the last one of the
    patches and the tools, with a + when they are not quite those, and empty
    where there is no git."""
    now = datetime.datetime.now(datetime.UTC).isoformat(timespec="seconds")
    names = ("--", "patches", "series", "tools", "Makefile")
    try:
        commit = git("log", "-1", "--abbrev=12", "--format=%h", *names,
                     cwd=ROOT).strip()
        return Begun(now, commit + "+" * bool(
            git("status", "--porcelain", *names, cwd=ROOT)))
    except Fail:
        return Begun(now, "")


def checks(kernel: Kernel) -> list[str]:
    """Return the names of what there is to run on a kernel."""
    none = (FIRST_ONLY if kernel.name else ()) + (
        () if has_yield(kernel) else YIELD_ONLY) + NO_RT.get(kernel.name, ())
    return [name for name in CHECKS if name not in none]


@functools.cache
def changes(kernel: Kernel, commit: str = "") -> tuple[str, ...]:
    """Return the row of tools/BASE and what each patch changes, in each file,
    in a commit or as they are; Fail where there is none."""
    def read(name: str) -> str:
        return git("show", f"{commit}:{name}", cwd=ROOT) if commit else \
            (ROOT / name).read_text(errors="surrogateescape")

    base = [row for row in read("tools/BASE").splitlines()
            if row.startswith(f"{kernel.version} ")]
    rows = [row.split("#")[0].strip() for row in read(
        str(kernel.series.relative_to(ROOT))).splitlines()]
    return *base, *(change for row in rows if row for change in re.split(
        "^diff --git a/", read(f"{PATCHES.name}/{row}"), flags=re.M)[1:])


def same(kernel: Kernel, name: str, commit: str) -> bool:
    """Tell whether what a check reads is as it was in a commit.  The words of
    a patch never count."""
    reads = CHECKS[name]
    if reads == "tools":
        return not run_git("diff", "--quiet", commit, "--", "tools",
                           "Makefile", cwd=ROOT).returncode

    def read(change: str) -> bool:
        return reads == "all" or is_kernel(change) or (
            reads == "code" and not change.startswith("Documentation/"))

    try:
        return [*filter(read, changes(kernel, commit))] == [
            *filter(read, changes(kernel))]
    except Fail:
        return False  # there is no such commit


def record(kernel: Kernel, name: str, numbers: tuple[int, int, int],
           since: Begun, files: Iterable[str] = ()) -> None:
    """Note what all of a check came to, when it ran to its end.

    numbers: how many tests passed, failed, were skipped; nothing is noted
    where none ran.  since: when the oldest run that counts began.  files:
    below build/results, what is to be published, all of it.
    """
    if not numbers[0] + numbers[1]:
        say(f"    notice: nothing of '{name}' ran, so it is not noted")
        return
    path = kernel.results / NAME
    write_json(path, read_json(path, {}) | {name: {
        **since._asdict(), "numbers": numbers, "files": {
            file: digest((kernel.results / file).read_bytes())
            for file in files}}})
