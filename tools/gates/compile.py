# SPDX-License-Identifier: GPL-2.0-only
"""Gates that compile: each configuration, the tests, each prefix."""

import re
from collections import Counter
from collections.abc import Callable, Iterable
from pathlib import Path

from tools.build import (BUILD, COMPILERS, SELFTESTS, build_selftests,
                         configure, make, objects, planted, selftest_log,
                         selftest_names, settings, source, warnings_in)
from tools.core import (KERNEL, LOGS, ROOT, Fail, git, need_space, shown_path,
                        stage, tail)
from tools.count import Count
from tools.records import NO_RT
from tools.selftests import port_tests
from tools.series.apply import is_kernel, series_patches, touched_files
from tools.series.base import REPO

CONFIGS = tuple(name for name in (
    "wide", "x86-64", "noioperm", "xenpv", "sev", "rt", "lazy", "hz100",
    "x86-debug", "i386", "i386-up", "allmod")
    if name != "rt" or KERNEL not in NO_RT)
# In which configurations a tool looks, a planted fault, what it says of that.
TOOLS = {"gcc": (CONFIGS, "include.c", "zlib_inflate_workspacesize"),
         "clang": (CONFIGS, "unused.c", "planted_unused"),
         "sparse": (("wide", "noioperm", "i386"), "sparse.c",
                    "dereference of noderef")}
# Compiled beside the files that the series touches, as they include a header
# that it touches; and what is there with an option only.
FOLDERS = ("arch/x86/entry/", "arch/x86/xen/", "kernel/entry/",
           "kernel/sched/", "kernel/fork.o")
OPTIONS = {"arch/x86/xen/": "CONFIG_XEN_PV",
           "arch/x86/coco/": "CONFIG_AMD_MEM_ENCRYPT",
           "arch/x86/kernel/sev.": "CONFIG_AMD_MEM_ENCRYPT"}  # of 6.1
# In each configuration this one is compiled; faults are planted there.
VICTIM = "arch/x86/kernel/ioport.c"
# As the kernel itself is compiled: -Wextra without these.  A handler has the
# parameters of its kind; a row of a table changes a usual value.
PROGRAM_FLAGS = ("-Wall", "-Wextra", "-Wno-unused-parameter",
                 "-Wno-missing-field-initializers", "-Wno-sign-compare",
                 "-Wno-override-init")
SPARSE = BUILD / "sparse/sparse"

Built = tuple[set[str], Counter[str]]  # .c files that were read, warnings


def touched(tree: Path, *ends: str) -> list[str]:
    """Return the files that the series touches, with one of these ends, and
    which a tree has."""
    return [path for path in touched_files(series_patches())
            if path.endswith(ends) and (tree / path).exists()]


def refuse(before: Counter[str], after: Counter[str]) -> None:
    """Raise Fail when there are new warnings."""
    fresh = sorted((after - before).elements())
    if fresh:
        raise Fail("\n    | ".join([f"{len(fresh)} new warnings or errors",
                                    *fresh[:20]]))


def included(tree: Path, paths: Iterable[str]) -> set[str]:
    """Return what these files include from their own folders; those that a
    build made are not in the tree."""
    return {f"{Path(path).parent}/{name}" for path in paths
            if (tree / path).exists() for name in re.findall(
                r'#include "(.*)"', (tree / path).read_text())}


def compiled(name: str, tree: Path, tool: str = "gcc",
             targets: Iterable[str] = ()) -> Built:
    """Compile what the series touches, or targets, of a kernel at W=1; tool:
    gcc, clang, or sparse beside gcc."""
    sparse, compiler = tool == "sparse", "gcc" if tool == "sparse" else tool
    need_space(BUILD, 3, f"the objects of {name}")
    config = settings(configure(name, tree, compiler))
    files = set(filter(is_kernel, touched(tree, ".c")))
    files -= included(tree, files)  # KUnit tests, which are not objects
    targets = targets or [target for target in (
        *(f"{path[:-2]}.o" for path in sorted(files)), *FOLDERS) if all(
        config.get(option) == "y" for place, option in OPTIONS.items()
        if target.startswith(place))]
    for target in targets:
        # What is not compiled again does not warn again.
        place = objects(name, compiler) / target
        for path in place.rglob("*.o") if place.is_dir() else (place,):
            path.unlink(missing_ok=True)
    log = make(name, "-k", "W=1", *([f"CHECK={SPARSE}", "C=2"] * sparse),
               *targets, tree=tree, compiler=compiler, check=False,
               log=LOGS / f"gates-{tool}-{name}-{tree.name}.log")
    text = log.read_text(errors="replace")
    # What sparse says of other files is about them.
    warnings = Counter({
        row: number for row, number in warnings_in(text).items()
        if not row.startswith(("scripts/", "tools/"))
        and (not sparse or row.partition(":")[0] in touched(tree, ""))})
    if re.search(r"^make(\[\d+\])?: \*\*\* |sparse is not available or not",
                 text, re.M):
        refuse(Counter(), warnings)
        raise Fail(f"make failed; the end of {shown_path(log)}:\n{tail(log)}")
    # Other names that are absolute are of objtool, for example.
    return {f"{path}.c" for path in re.findall(
        rf"^  {'CHECK' if sparse else 'CC'} +(?:\[M\] +)?([^\s/]\S*)\.[co]$",
        text.replace(f"{tree}/", ""), re.M) if is_kernel(path)}, warnings


def check_coverage(tree: Path, sources: set[str],
                   paths: Iterable[str] = ()) -> None:
    """Each touched .c file of the kernel, or of paths, was read, or one that
    includes it."""
    missing = {path for path in touched(tree, ".c") if is_kernel(path)
               and (not paths or path in paths)} - sources
    if missing:
        missing -= included(tree, sources)
    if missing or not sources:
        raise Fail(f"nothing looked at {', '.join(missing) or 'any file'}")


def find_fault(tool: Callable[[Path], Iterable[str]], name: str, path: str,
               words: str) -> None:
    """A fault of tools/planted that is added to a file is found by a tool."""
    tree = source("applied")
    with planted(tree, path, (ROOT / "tools/planted" / name).read_text()):
        try:
            found = list(tool(tree))
        except Fail as failure:
            found = [str(failure)]
    if words not in str(found):
        raise Fail(f"it is not seen; what is: {found[:5]}")


def check_programs(tree: Path, compiler: str, flags: tuple[str, ...]) -> str:
    """Build the series' selftests; say how many, Fail if one warns."""
    names = port_tests(tree) + selftest_names(tree, "sched", ("yield_*",))
    build_selftests(names, compiler=compiler, flags=flags, tree=tree)
    for folder in {name.partition("/")[0] for name in names}:
        refuse(Counter(), Counter(row for row in warnings_in(selftest_log(
            folder, compiler).read_text(errors="replace"))
            if re.search(r"\b(iop|yield_)\w+\.[ch]\b", row)))
    if not names:
        raise Fail("there is no program to build")
    return f"{len(names)} programs"


def group(count: Count, tool: str) -> None:
    """A compiler or checker says nothing new in each configuration (W=1)."""
    names, fault, words = TOOLS[tool]
    tree, sources = source("applied"), set()

    def compare(name: str) -> str:
        read, after = compiled(name, tree, tool)
        sources.update(read)
        # The base is compiled if the series warns.
        refuse(compiled(name, source("base"), tool)[1] if after else after,
               after)
        check_coverage(tree, read, [VICTIM])
        return f"{len(read)} files"

    count.run(f"{tool}: finds {fault}", find_fault, lambda tree: compiled(
        "wide", tree, tool, [f"{VICTIM[:-2]}.o"])[1], fault, VICTIM, words)
    for name in names:
        with stage(f"{tool}: {name}"):
            count.run(f"{tool}: {name}", compare, name)
    count.run(f"{tool}: each touched file is in one of them", check_coverage,
              tree, sources)
    if tool in COMPILERS:
        count.run(f"{tool}: selftests", check_programs, tree, tool,
                  PROGRAM_FLAGS)


def prefixes() -> dict[str, str]:
    """Return {patch: commit of the series up to it}, in order."""
    commits = git("rev-list", "--reverse", "base..applied", cwd=REPO).split()
    return dict(zip(series_patches(), commits, strict=True))


def check_prefix(name: str, commit: str, known: Counter[str]) -> str:
    """Compile what the last patch of a prefix touches; say what that was.

    known: the base's warnings.
    """
    tree, paths, words = source(commit, "other"), touched_files([name]), []
    if any(is_kernel(path) and path.endswith((".c", ".h")) for path in paths):
        read, warnings = compiled("wide", tree)
        refuse(known, warnings)
        check_coverage(tree, read, paths)
        words.append(f"{len(read)} objects")
    if any(path.startswith(SELFTESTS) for path in paths):
        words.append(check_programs(tree, "gcc", ("-Wall",)))
    return ", ".join(words) or "nothing to compile"


def group_prefixes(count: Count) -> None:
    """Every prefix of the series compiles what its last patch touches."""
    with stage("compiling the base"):
        _, known = compiled("wide", source("base", "other"))
    for name, commit in prefixes().items():
        count.run(f"prefix: {name}", check_prefix, name, commit, known)
