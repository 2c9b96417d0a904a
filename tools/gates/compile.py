# SPDX-License-Identifier: GPL-2.0-only
"""Gates that compile: by each recipe, the tests, each prefix."""

import re
import tomllib
from collections import Counter
from collections.abc import Callable, Iterable, Sequence
from pathlib import Path

from tools import build
from tools.build import SELFTESTS, source, warnings_in
from tools.core import (BUILD, CONFIGS, ROOT, Fail, Kernel, git, shown_path,
                        tail)
from tools.count import Count
from tools.records import NO_RT
from tools.selftests import YIELD_TESTS, port_tests
from tools.series.apply import is_kernel, series_patches, touched_files

TABLE = tomllib.loads((CONFIGS / "gates.toml").read_text())
# By each recipe this one is compiled; faults are planted there.
VICTIM = "arch/x86/kernel/ioport.c"
SPARSE = BUILD / "sparse/sparse"


def touched(kernel: Kernel, tree: Path, *ends: str) -> list[str]:
    """Return what the series touches, with such an end, and a tree has."""
    return [path for path in touched_files(series_patches(kernel))
            if path.endswith(ends) and (tree / path).exists()]


def refuse(before: Counter[str], after: Counter[str]) -> None:
    """Raise Fail when there are new warnings."""
    if fresh := sorted((after - before).elements()):
        raise Fail("\n    | ".join([f"{len(fresh)} new warnings or errors",
                                    *fresh[:20]]))


def included(tree: Path, paths: Iterable[str]) -> set[str]:
    """Return what these files include from their own folders; those that a
    build made are not in the tree."""
    return {f"{Path(path).parent}/{name}" for path in paths
            if (tree / path).exists() for name in re.findall(
                r'#include "(.*)"', (tree / path).read_text())}


def compiled(kernel: Kernel, name: str, tree: Path, tool: str = "gcc",
             targets: Iterable[str] = ()) -> tuple[set[str], Counter[str]]:
    """Compile what the series touches, or targets, by a recipe at W=1; return
    the .c files that were read, and the warnings.

    tool: gcc, clang, or sparse beside gcc.
    """
    sparse, compiler = tool == "sparse", "clang" if tool == "clang" else "gcc"
    config = build.settings(build.configure(kernel, name, tree, compiler))
    files = set(filter(is_kernel, touched(kernel, tree, ".c")))
    files -= included(tree, files)  # KUnit tests, which are not objects
    targets = targets or [target for target in (
        *(f"{path[:-2]}.o" for path in sorted(files)), *TABLE["folders"])
        if all(config.get(option) == "y" for place, option
               in TABLE["options"].items() if target.startswith(place))]
    for target in targets:
        # What is not compiled again does not warn again.
        place = build.objects(kernel, name, compiler) / target
        for path in place.rglob("*.o") if place.is_dir() else (place,):
            path.unlink(missing_ok=True)
    log = build.make(
        kernel, name, "-k", "W=1", *([f"CHECK={SPARSE}", "C=2"] * sparse),
        *targets, tree=tree, compiler=compiler, check=False,
        log=kernel.logs / f"gates-{tool}-{name}-{tree.name}.log")
    text = log.read_text(errors="replace")
    # What sparse says of other files is about them.
    warnings = Counter({
        row: number for row, number in warnings_in(kernel, text).items()
        if not row.startswith(("scripts/", "tools/")) and (
            not sparse or row.partition(":")[0] in touched(kernel, tree, ""))})
    if re.search(r"^make(\[\d+\])?: \*\*\* |sparse is not available or not",
                 text, re.M):
        refuse(Counter(), warnings)
        raise Fail(f"make failed; the end of {shown_path(log)}:\n{tail(log)}")
    # Other names that are absolute are of objtool, for example.
    return {f"{path}.c" for path in re.findall(
        rf"^  {'CHECK' if sparse else 'CC'} +(?:\[M\] +)?([^\s/]\S*)\.[co]$",
        text.replace(f"{tree}/", ""), re.M) if is_kernel(path)}, warnings


def check_coverage(tree: Path, sources: set[str],
                   paths: Iterable[str]) -> None:
    """Each .c file of the kernel that is among paths was read, or one that
    includes it."""
    missing = {path for path in paths if is_kernel(path)
               and path.endswith(".c") and (tree / path).exists()}
    missing -= sources | included(tree, sources)
    if missing or not sources:
        raise Fail(f"nothing looked at {', '.join(missing) or 'any file'}")


def find_fault(kernel: Kernel, count: Count, title: str,
               tool: Callable[[Path], Iterable[str]],
               path: str = VICTIM) -> None:
    """Count whether a tool finds its fault that is added to a file."""
    row, tree = TABLE[title], source(kernel, "applied")
    fault = ROOT / "tools/planted" / row["fault"]
    with build.planted(tree, path, fault.read_text()):
        try:
            found = list(tool(tree))
        except Fail as failure:
            found = [str(failure)]
    count.test(f"{title}: finds {fault.name}", row["says"] not in str(found)
               and f"it is not seen; what is: {found[:5]}")


def tests_in(tree: Path) -> list[str]:
    """Return the series' selftests in a tree."""
    return port_tests(tree) + build.selftest_names(tree, "sched", YIELD_TESTS)


def check_programs(kernel: Kernel, tree: Path, compiler: str,
                   flags: Sequence[str]) -> str:
    """Build the series' selftests; say how many, Fail if one warns."""
    names = tests_in(tree)
    build.build_selftests(kernel, names, compiler=compiler, flags=flags,
                          tree=tree)
    for folder in {name.partition("/")[0] for name in names}:
        log = build.selftest_log(kernel, folder, compiler)
        refuse(Counter(), Counter(
            row for row in warnings_in(kernel, log.read_text(errors="replace"))
            if re.search(r"\b(iop|yield_)\w+\.[ch]\b", row)))
    return f"{len(names)} programs"


def group(kernel: Kernel, count: Count, tool: str) -> None:
    """A compiler or checker says nothing new, by each recipe (W=1)."""
    tree, sources = source(kernel, "applied"), set()

    def compare(name: str) -> str:
        read, after = compiled(kernel, name, tree, tool)
        sources.update(read)
        # The base is compiled if the series warns.
        refuse(compiled(kernel, name, source(kernel, "base"), tool)[1]
               if after else after, after)
        check_coverage(tree, read, [VICTIM])
        return f"{len(read)} files"

    find_fault(kernel, count, tool, lambda tree: compiled(
        kernel, "wide", tree, tool, [f"{VICTIM[:-2]}.o"])[1])
    for name in TABLE[tool]["recipes"]:
        if name != "rt" or kernel.version not in NO_RT:
            count.run(f"{tool}: {name}", compare, name)
    count.run(f"{tool}: each touched file is in one of them", check_coverage,
              tree, sources, touched(kernel, tree, ""))
    if tool != "sparse":
        count.run(f"{tool}: selftests", check_programs, kernel, tree, tool,
                  TABLE["program_flags"])


def prefixes(kernel: Kernel) -> dict[str, str]:
    """Return {patch: commit of the series up to it}, in order."""
    commits = git("rev-list", "--reverse", "base..applied", cwd=kernel.repo)
    return dict(zip(series_patches(kernel), commits.split(), strict=True))


def check_prefix(kernel: Kernel, name: str, commit: str,
                 known: Counter[str]) -> None:
    """Compile what the last patch of a prefix touches, where the base has
    known warnings."""
    tree, paths = source(kernel, commit, "other"), touched_files([name])
    if any(is_kernel(path) and path.endswith((".c", ".h")) for path in paths):
        read, warnings = compiled(kernel, "wide", tree)
        refuse(known, warnings)
        check_coverage(tree, read, paths)
    if any(path.startswith(SELFTESTS) for path in paths):
        check_programs(kernel, tree, "gcc", ["-Wall"])


def group_prefixes(kernel: Kernel, count: Count) -> None:
    """Every prefix of the series compiles what its last patch touches."""
    _, known = compiled(kernel, "wide", source(kernel, "base", "other"))
    for name, commit in prefixes(kernel).items():
        count.run(f"prefix: {name}", check_prefix, kernel, name, commit, known)
