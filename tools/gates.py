# SPDX-License-Identifier: GPL-2.0-only
"""Run the gates: compilers, checkers, documents, more kernels, bisection.

They take hours, so 'make check' only looks whether these patches passed them:
each group that passes is written to results/gates.json.  The series is
compared with the base; a tool that did not really run fails.
"""

import argparse
import contextlib
import os
import re
import shutil
import subprocess
import time
from collections import Counter
from collections.abc import Callable, Iterable, Iterator
from concurrent.futures import ThreadPoolExecutor
from fnmatch import fnmatch
from pathlib import Path
from typing import NamedTuple

from tools import bare, ktap, lab, package
from tools.build import (CLANG, COMPILERS, JOBS, KERNELS, SELFTESTS,
                         build_kernel, build_selftests, compiler_tools,
                         compiler_version, configure, image, make,
                         make_environment, make_failed, new_warnings, objects,
                         planted, selftest_log, selftest_names, settings,
                         source, source_key, test_key, warnings_in)
from tools.core import (BUILD, LOGS, PUBLISHED, ROOT, Fail, build_lock,
                        digest, duration, git, need_space, need_tool,
                        read_json, run_logged, run_main, say, scratch,
                        shown_path, stage, tail, write_json)
from tools.count import GATES_RECORD, Count, run_groups
from tools.guest import VENV, check_splat, choose_kvm
from tools.guest.tiny import boot_tiny
from tools.guest.xen import boot_xen, build_probe, failed_cases, get_xen
from tools.selftests import (ARGUMENTS, SECONDS, YIELD_TESTS, arguments_of,
                             boot_runner, count_kunit, count_run, install,
                             port_tests, run_installed, run_programs,
                             run_yield)
from tools.series.apply import (PATCHES, begin, is_kernel, series_patches,
                                touched_files)
from tools.series.base import REPO, private_apt
from tools.series.checkpatch import checkpatch, checkpatch_tree

MATRIX = ("wide", "x86-64", "noioperm", "xenpv", "sev", "rt", "lazy", "hz100",
          "x86-debug", "i386", "i386-up", "allmod")
# What is compiled: the files that the series touches, and what includes a
# header that it touches; those that hang on an option only with it.
FOLDERS = {"arch/x86/entry/": "", "arch/x86/xen/": "CONFIG_XEN_PV",
           "kernel/entry/": "", "kernel/sched/": "", "kernel/fork.o": ""}
OPTIONS = {"arch/x86/coco/": "CONFIG_AMD_MEM_ENCRYPT",
           "arch/x86/kernel/io_bitmap_test.c":
           "CONFIG_X86_IO_BITMAP_KUNIT_TEST"}
# Where faults are planted.
VICTIM = "arch/x86/kernel/ioport.c"
PAGE = "Documentation/arch/x86/ioperm.rst"
PLANTED = ROOT / "tools/planted"
# The kernel's own W=1 leaves the last one out, too: handlers of one kind have
# one signature.
PROGRAM_FLAGS = ("-Wall", "-Wextra", "-Wno-unused-parameter")
SPARSE = BUILD / "sparse/sparse"
# Where a sparse that 7.3 takes is found; the distribution's own is too old.
SPARSE_SUITES = ("forky", "sid")
SPARSE_CONFIGS = ("wide", "noioperm", "i386")
# Rules about helpers that only the kernel has: not for user-space programs.
KERNEL_RULES = ("api/string_choices.cocci", "misc/minmax.cocci",
                "misc/swap.cocci")
BOOTS = {"rt": "PREEMPT_RT", "lazy": "the least preemption"}
XEN = "Xen PV dom0"
XEN_SECONDS = 2400
# They stay on the first CPU that they may use; Xen's guests start all others
# in another way.
XEN_PINNED = ("ioperm_64", "ioperm_boundaries_64", "iopl_64",
              "ioport_regset_64")
# How the selftests are installed: arguments of make. {0} is a folder for
# objects, {1} the same seen from the tree.
INSTALLS = {"in the tree": (), "O= absolute": ("O={0}",),
            "O= relative": ("O={1}",),
            "O= and clang": ("O={0}", f"LLVM=-{CLANG}")}
# Added to kselftest's runner: 'make kselftest' builds, and says what it runs.
RUNNER = f"{SELFTESTS}/kselftest/runner.sh"
NAMES_ONLY = """run_many() { printf '# to run: %s\\n' "$@"; }\n"""
BISECTED = PUBLISHED / "bisect.json"


def touched() -> list[str]:
    """Return the files of the kernel tree that the series touches."""
    return touched_files(series_patches())


def present(tree: Path, paths: Iterable[str], *ends: str) -> list[str]:
    """Return the paths with one of these ends that are files of a tree."""
    return [path for path in paths
            if path.endswith(ends) and (tree / path).exists()]


@contextlib.contextmanager
def counted(count: Count, title: str) -> Iterator[None]:
    """Count a Fail in the block as one failed test."""
    try:
        yield
    except Fail as failure:
        count.fail(title, failure)


def refuse(fresh: list[str], log: Path | None = None) -> None:
    """Raise Fail when there are new warnings."""
    if fresh:
        raise Fail(f"{len(fresh)} new warnings or errors"
                   + (f"; the log is {shown_path(log)}" if log else "")
                   + "".join(f"\n    | {row}" for row in fresh[:20]))


# --- objects: compilers and sparse -----------------------------------------

class Built(NamedTuple):
    """What one make showed; sources: the .c files that were looked at."""

    sources: set[str]
    warnings: Counter[str]
    failed: bool
    log: Path


def compile_folders(name: str, tree: Path, compiler: str = "gcc",
                    fresh: bool = True,
                    targets: tuple[str, ...] = ()) -> Built:
    """Compile the touched files and FOLDERS, or targets, of a kernel at W=1.

    compiler: or "sparse", gcc with C=2 for the touched files only.  fresh:
    also what was compiled before, which would not warn again.
    """
    step, more, files = "CC", (), None
    if compiler == "sparse":
        step, compiler, files = "CHECK", "gcc", set(touched())
        more = ("C=2", f"CHECK={SPARSE}")
    compiler_tools(compiler)
    need_space(BUILD, 3, f"the objects of {name}")
    config = settings(configure(name, tree, compiler)) | {"": "y"}
    targets = targets or tuple(
        f"{path[:-2]}.o" for path in filter(is_kernel, present(
            tree, touched(), ".c"))
        if all(config.get(option) == "y" for place, option in OPTIONS.items()
               if path.startswith(place))) + tuple(
        folder for folder, option in FOLDERS.items()
        if step == "CC" and config.get(option) == "y")
    # sparse looks at each file every time.
    for target in targets if fresh and step == "CC" else ():
        place = objects(name, compiler) / target
        for path in place.rglob("*.o") if place.is_dir() else (place,):
            path.unlink(missing_ok=True)
    log = LOGS / f"gates-{step}-{name}-{compiler}-{tree.name}.log"
    make(name, "-k", "W=1", *more, *targets, tree=tree, compiler=compiler,
         check=False, log=log)
    text = log.read_text(errors="replace")
    if "is not available or not up to date" in text:
        raise Fail(f"the kernel does not take {shown_path(SPARSE)} and skips "
                   "it: remove it, and 'make gates ONLY=sparse' gets another")
    warnings = Counter({
        row: number for row, number in warnings_in(text).items()
        if not row.startswith(("scripts/", "tools/"))
        and (files is None or row.partition(":")[0] in files)})
    if make_failed(text) and not warnings:
        raise Fail(f"make failed; the end of {shown_path(log)}:\n{tail(log)}")
    sources = {f"{path}.c" for path in re.findall(
        rf"^  {step} +(?:\[M\] +)?([^\s/]\S*)\.[co]$", text, re.M)}
    return Built(set(filter(is_kernel, sources)), warnings,
                 make_failed(text), log)


def judge(built: Built, known: Counter[str], paths: list[str],
          tree: Path) -> None:
    """Raise Fail when a make warns of what is not known, failed, or did not
    look at the paths."""
    refuse(new_warnings(known, built.warnings), built.log)
    if built.failed:
        raise Fail(f"make failed; see {shown_path(built.log)}")
    check_coverage(paths, built.sources, tree)


def compare(name: str, compiler: str) -> set[str]:
    """Compile the series, and the base if that warns; return the sources."""
    after = compile_folders(name, source("applied"), compiler)
    before = compile_folders(name, source("base"), compiler).warnings \
        if after.warnings else Counter()
    judge(after, before, [VICTIM], source("applied"))
    return after.sources


def check_coverage(paths: list[str], sources: set[str], tree: Path) -> None:
    """Each .c file of the kernel among paths was looked at, or one that
    includes it."""
    missing = []
    for path in filter(is_kernel, present(tree, paths, ".c")):
        outer = {str(other.relative_to(tree))
                 for other in (tree / path).parent.glob("*.c")
                 if f'#include "{Path(path).name}"' in
                 other.read_text(errors="replace")}
        if not sources & {path, *outer}:
            missing.append(path)
    if missing or not sources:
        raise Fail(f"nothing looked at {', '.join(missing) or 'any file'}")


def compare_all(count: Count, what: str,
                rows: list[tuple[str, str]]) -> None:
    """Count configurations and compilers in which nothing warns anew."""
    sources = set()
    for name, compiler in rows:
        title = f"{what}: {name}, {compiler}"
        with counted(count, title), stage(title):
            found = compare(name, compiler)
            sources |= found
            count.ok(title, f"{len(found)} files")
    count.run(f"{what}: each touched file is in one of them", check_coverage,
              touched(), sources, source("applied"))


def group_matrix(count: Count) -> None:
    """The touched folders in each configuration, gcc and clang, W=1."""
    compare_all(count, "W=1", [(name, compiler) for name in MATRIX
                               for compiler in COMPILERS])


def get_sparse() -> str:
    """Build sparse from the newer source package; return why there is none,
    which is no fault of the patches."""
    if SPARSE.exists():
        return ""
    need_tool("dpkg-source", "dpkg-dev")
    log = LOGS / "sparse-apt.log"
    with stage("getting and building sparse"), scratch("sparse") as place:
        for suite in SPARSE_SUITES:
            config = private_apt(suite, source=True)
            status = run_logged(
                ["sh", "-c", "apt-get update && "
                 "apt-get source --only-source sparse"], log, cwd=place,
                env=os.environ | {"APT_CONFIG": str(config)}, check=False)
            folders = [path for path in place.iterdir() if path.is_dir()]
            if status == 0 and len(folders) == 1:
                break
        else:
            return (
                f"no sparse from {' or '.join(SPARSE_SUITES)} ("
                + ("the mirror is older than it may be" if "is expired" in
                   log.read_text(errors="replace") else
                   f"apt's words: {shown_path(log)}")
                + "): name another mirror in the apt sources, or put a sparse "
                f"of 0.6.5 or later at {shown_path(SPARSE)}; then 'make gates "
                "ONLY=sparse'")
        # The package names a compiler that only its own suite has.
        run_logged(["make", "-C", str(folders[0]), f"-j{os.cpu_count()}",
                    "CC=gcc", "NO_LLVM=1", "sparse"],
                   LOGS / "sparse-build.log", env=make_environment(),
                   what="building sparse")
        SPARSE.parent.mkdir(parents=True, exist_ok=True)
        shutil.copy2(folders[0] / "sparse", SPARSE)
    return ""


def group_sparse(count: Count) -> None:
    """sparse (C=2) says nothing new about the touched files."""
    why = get_sparse()
    if why:
        count.skip("sparse", why)
    elif count.run("sparse: finds a planted fault", find_fault, "sparse.c"):
        compare_all(count, "C=2", [(name, "sparse")
                                   for name in SPARSE_CONFIGS])


# --- programs and prefixes -------------------------------------------------

def check_programs(tree: Path, compiler: str, flags: tuple[str, ...]) -> int:
    """Build the series' selftests; return how many, Fail if one warns."""
    names = port_tests(tree) + selftest_names(tree, "sched", ("yield_*",))
    if not names:
        raise Fail("there is no program to build")
    build_selftests(names, compiler=compiler, flags=flags, tree=tree)
    for folder in {name.partition("/")[0] for name in names}:
        log = selftest_log(folder, compiler)
        refuse([row for row in warnings_in(log.read_text(errors="replace"))
                if re.search(r"\b(iop|yield_)\w+\.[ch]\b", row)], log)
    return len(names)


def group_programs(count: Count) -> None:
    """The series' selftests build with gcc and clang, -Wall -Wextra."""
    for compiler in COMPILERS:
        title = f"selftests: -Wall -Wextra, {compiler}"
        with counted(count, title):
            number = check_programs(source("applied"), compiler,
                                    PROGRAM_FLAGS)
            count.ok(title, f"{number} programs")


def prefixes() -> dict[str, str]:
    """Return {patch: commit of the series up to it}, in order."""
    commits = git("rev-list", "--reverse", "base..applied", cwd=REPO).split()
    return dict(zip(series_patches(), commits, strict=True))


def check_prefix(tree: Path, paths: list[str], known: Counter[str]) -> str:
    """Compile what the last patch of a prefix touches; say what that was.

    What the prefix before had compiled and has not changed is not compiled
    again.  known: the base's warnings.
    """
    words = []
    if any(is_kernel(path) and path.endswith((".c", ".h")) for path in paths):
        built = compile_folders("wide", tree, fresh=False)
        judge(built, known, paths, tree)
        words.append(f"{len(built.sources)} objects")
    if any(path.startswith(SELFTESTS) for path in paths):
        words.append(f"{check_programs(tree, 'gcc', ('-Wall',))} programs")
    return ", ".join(words) or "nothing to compile"


def group_prefixes(count: Count) -> None:
    """Every prefix of the series compiles what its last patch touches."""
    with stage("compiling the base"):
        known = compile_folders("wide", source("base", "other")).warnings
    for name, commit in prefixes().items():
        with counted(count, f"prefix: {name}"):
            words = check_prefix(source(commit, "other"),
                                 touched_files([name]), known)
            count.ok(f"prefix: {name}", words)


# --- Coccinelle, kernel-doc, documents -------------------------------------

def run_rule(name: str, files: list[str],
             tree: Path) -> tuple[Counter[str], str]:
    """Run a Coccinelle rule in report mode; return its findings, without line
    numbers, and why it could not run."""
    rule = tree / "scripts/coccinelle" / name
    if not re.search(r"^virtual\s+(?:\w+\s*,\s*)*report\b",
                     rule.read_text(), re.M):
        return Counter(), "has no report mode"
    options = re.findall(r"^// Options?:(.*)$", rule.read_text(), re.M)[:1]
    done = subprocess.run(
        ["spatch", "-D", "report", "--no-show-diff", "--very-quiet",
         "--timeout", "300", "--cocci-file", str(rule),
         *" ".join(options).split(), "-I", "arch/x86/include", "-I",
         "include", "-I", "arch/x86/include/uapi", "-I", "include/uapi",
         *files], cwd=tree, capture_output=True, text=True, errors="replace")
    if done.returncode or re.search(
            r"exception|fatal error|EXN:|semantic error|not found",
            done.stderr, re.I):
        words = (done.stderr or done.stdout).strip().splitlines()
        return Counter(), words[-1] if words else f"status {done.returncode}"
    return Counter(re.sub(r"\d+", "N", row)
                   for row in done.stdout.splitlines()
                   if any(path in row for path in files)), ""


def run_rules(names: list[str], tree: Path
              ) -> dict[str, tuple[Counter[str], str]]:
    """Run rules of scripts/coccinelle over the touched files of a tree."""
    files = present(tree, touched(), ".c", ".h")
    kernel = list(filter(is_kernel, files))
    with stage(f"running {len(names)} Coccinelle rules"), \
            ThreadPoolExecutor(os.cpu_count()) as pool:
        return dict(zip(names, pool.map(
            lambda name: run_rule(
                name, kernel if name in KERNEL_RULES else files, tree),
            names)))


def group_cocci(count: Count) -> None:
    """The kernel's Coccinelle rules find nothing new."""
    need_tool("spatch", "coccinelle")
    count.run("coccicheck: finds a planted fault", find_fault, "semicolon.c")
    rules = source("applied") / "scripts/coccinelle"
    names = sorted(str(path.relative_to(rules))
                   for path in rules.rglob("*.cocci"))
    after = run_rules(names, source("applied"))
    before = run_rules([name for name in names if after[name][0]],
                       source("base"))
    for name, (found, why) in after.items():
        title = f"coccicheck: {name}"
        if why:
            count.skip(title, why)
        elif found:
            count.run(title, refuse, new_warnings(before[name][0], found))
    ran = sum(not why for _, why in after.values())
    (count.ok if ran * 10 >= len(names) * 9 else count.fail)(
        f"coccicheck: {ran} of {len(names)} rules ran", "9 in 10 have to")


def kernel_doc(tree: Path) -> Counter[str]:
    """Return kernel-doc's warnings about the touched files of a tree."""
    tool = tree / "tools/docs/kernel-doc"
    if not tool.exists():
        tool = tree / "scripts/kernel-doc"
    done = subprocess.run(
        [str(tool), "-none", "-Wall", *present(tree, touched(), ".c", ".h")],
        cwd=tree, text=True, capture_output=True, errors="replace",
        env=make_environment())
    words = done.stdout + done.stderr
    if "Traceback" in words or "No such file" in words:
        raise Fail(f"kernel-doc did not run: {words.strip()[-300:]}")
    return warnings_in(words)


def group_kerneldoc(count: Count) -> None:
    """kernel-doc says nothing new."""
    count.run("kernel-doc: finds a planted fault", find_fault, "parameter.c")
    count.run("kernel-doc", refuse, new_warnings(
        kernel_doc(source("base")), kernel_doc(source("applied"))))


def docs_warnings(tree: Path, folders: list[str],
                  wanted: list[str]) -> Counter[str]:
    """Build documents with the kernel's own set-up; return the warnings, Fail
    when a page of wanted (.rst files) or a folder's index does not come
    out."""
    run_logged([f"{VENV}/bin/pip", "--disable-pip-version-check", "install",
                "-r", str(ROOT / "tools/requirements-docs.txt")],
               LOGS / "docs-pip.log", what="pip install Sphinx")
    environment = make_environment() | {
        "PATH": f"{VENV}/bin:{os.environ['PATH']}"}
    output, found = BUILD / "obj/docs", Counter()
    for folder in folders:
        # A page that is not read again does not warn again.
        shutil.rmtree(output, ignore_errors=True)
        output.mkdir(parents=True)
        log = LOGS / f"docs-{tree.name}-{Path(folder).name}.log"
        with stage(f"building the documents of {tree.name}: {folder}"):
            status = run_logged(
                ["make", "-C", str(tree), f"O={output}",
                 f"SPHINXDIRS={folder.partition('/')[2]}", "htmldocs"], log,
                env=environment, timeout=1800, check=False)
        pages = {path.stem for path in
                 (output / "Documentation/output").rglob("*.html")}
        missing = {"index", *(Path(path).stem for path in wanted if str(
            Path(path).parent) == folder)} - pages
        if status or missing:
            raise Fail(f"{folder}: {', '.join(sorted(missing)) or 'a page'} "
                       f"did not come out; the end of {shown_path(log)}:\n"
                       f"{tail(log)}")
        found += warnings_in(log.read_text(errors="replace"))
    return found


def group_docs(count: Count) -> None:
    """The documents build with the kernel's Sphinx without new warnings."""
    pages = [path for path in touched() if path.endswith(".rst")]
    folders = sorted({str(Path(page).parent) for page in pages}
                     - {"Documentation"})
    after = docs_warnings(source("applied"), folders, pages)
    before = docs_warnings(source("base"), folders, [])
    count.run(f"documents: {', '.join(folders)}, {len(pages)} pages touched",
              refuse, new_warnings(before, after))


# --- more kernels ----------------------------------------------------------

def static_tests(suffix: str) -> list[tuple[Path, list[str]]]:
    """Build the tests of I/O ports ("_32" or "_64") for a guest without
    libraries; return each with its arguments."""
    made = build_selftests(port_tests(source("applied"), suffix),
                           flags=("-static",))
    return [(path, arguments_of(path)) for path in made.values()]


def group_i386(count: Count) -> None:
    """A 32-bit kernel boots, and the static 32-bit tests pass on it."""
    build_kernel("i386")
    programs = static_tests("_32")
    with stage(f"running {len(programs)} programs on the i386 kernel"):
        runs = boot_tiny(image("i386"), programs, timeout=1200, seconds=400,
                         name="gates-i386")
    count.ok("i386: boots")
    console = LOGS / "gates-i386.console"
    for name, run in runs:
        count_run(count, f"i386: {name}", run, console)
    # No user land reads debugfs here: what the kernel prints as it boots.
    count_kunit(count, "i386", console.read_text(errors="replace"), console)
    count.run("i386: no splat", check_splat, console)


def run_xen(count: Count, title: str,
            programs: list[tuple[Path, list[str]]], name: str,
            append: str = "") -> None:
    """Boot the kernel as Xen's first domain and count what programs do."""
    log = LOGS / f"{name}.dom0"
    with counted(count, f"{title}: boots"):
        with stage(f"running {len(programs)} programs on {title}"):
            runs = boot_xen(image("xendom0"), programs, timeout=XEN_SECONDS,
                            name=name, append=append)
        count.ok(f"{title}: boots")
        for program, run in runs:
            count_run(count, f"{title}: {program}", run, log)
        count.run(f"{title}: no splat", check_splat, log)


def group_xen(count: Count) -> None:
    """As Xen's first domain the kernel boots and passes the static tests."""
    get_xen()
    programs = static_tests("_64")
    probe = build_probe(BUILD / "programs/xen")
    count.run(f"{XEN}: finds planted open ports", find_open_ports, probe)
    build_kernel("xendom0")
    # The probe comes first: it finds what a CPU was started with, and who
    # enables many ports leaves none of that.
    run_xen(count, XEN, [(probe, []), *programs], "gates-xen")
    run_xen(count, f"{XEN}, second CPU",
            [row for row in programs if row[0].name in XEN_PINNED],
            "gates-xen-cpu1", "isolcpus=0")


def group_preempt(count: Count) -> None:
    """Kernels with other preemption boot, and the tests pass on them."""
    programs = build_selftests(port_tests(source("applied"))).values()
    for name, what in BOOTS.items():
        with counted(count, f"{what}: builds"):
            run_programs(count, what, build_kernel(name), list(programs),
                         f"gates-{name}")


def group_debug(count: Count) -> None:
    """KUnit passes on a kernel with KASAN, UBSAN and lockdep, no splat."""
    # KASAN reports an address of the interrupt code early in a boot with five
    # page table levels, which QEMU's largest processor has.
    run_programs(count, "debug", build_kernel("debug"), [], "gates-debug",
                 kunit=True, memory="2G", append=("no5lvl",))


def make_kselftest(tree: Path, words: list[str], log: Path) -> list[str]:
    """Let 'make kselftest' build, here where it takes minutes; return the
    programs that it would run."""
    with planted(tree, RUNNER, NAMES_ONLY):
        run_logged(["make", "-C", str(tree), JOBS, *words, "TARGETS=x86",
                    "FORCE_TARGETS=1", "kselftest"], log,
                   env=make_environment(), what="make kselftest")
    return re.findall(r"^# to run: (.*)$", log.read_text(errors="replace"),
                      re.M)


def run_made(folder: Path, tree: Path, programs: list[str], share: Path,
             name: str, kvm: bool) -> dict[str, str]:
    """Run programs in a guest as 'make kselftest' does; return {program:
    verdict}."""
    result = boot_runner(
        folder, f"cd {tree}/{SELFTESTS}/x86; BASE_DIR=${{PWD%/*}}; "
        f". {tree}/{RUNNER}; run_many {' '.join(programs)}", name, cpus=2,
        kvm=kvm, timeout=SECONDS, share=share)
    return ktap.runner(result.output)


def group_installs(count: Count) -> None:
    """The selftests install and run in the tree, with O= and with clang."""
    compiler_tools("clang")
    folder = build_kernel("series")
    kvm = choose_kvm(folder)
    for what, arguments in INSTALLS.items():
        name = f"gates-{re.sub(r'[^a-zA-Z]+', '-', what)}"
        # A tree in which something was built takes no O=.
        tree = source("applied", "" if arguments else "intree")
        place = objects(name) if arguments else tree
        words = [word.format(place, os.path.relpath(place, tree))
                 for word in arguments]
        with counted(count, f"installs: {what}"), stage(f"installs: {what}"):
            # Both targets want a configuration of the same compiler.
            place.mkdir(parents=True, exist_ok=True)
            shutil.copyfile(folder / ".config", place / ".config")
            run_logged(["make", "-C", str(tree), *words, "olddefconfig",
                        "syncconfig"], LOGS / f"{name}-config.log",
                       env=make_environment(), what="make syncconfig")
            installed = install(name, tree, ("x86", "sched"), words)
            count.ok(f"installs: {what}")
            made = [path for path in make_kselftest(
                tree, words, LOGS / f"{name}-make.log")
                if fnmatch(path, "*/iop*_[36][24]")]
            chosen = sorted(path.name for path in
                            (installed / "x86").glob("iop*_[36][24]"))
            for title, log, found in (
                    (f"installs: {what}", name, run_installed(
                        folder, installed, name, kvm, chosen)),
                    (f"make kselftest: {what}", f"{name}-make", run_made(
                        folder, tree, made, place, f"{name}-make", kvm))):
                for program in chosen:
                    count_verdict(count, f"{title}: {program}",
                                  found.get(program, "did not run"),
                                  LOGS / f"{log}.ktap")


def count_verdict(count: Count, title: str, verdict: str, log: Path) -> None:
    """Count what kselftest's runner says of a program."""
    if verdict == "pass":
        count.ok(title)
    else:
        (count.skip if verdict == "skip" else count.fail)(
            title, f"{verdict}; see {shown_path(log)}")


def group_bisect(count: Count) -> None:
    """Every prefix of the series builds, boots and passes its tests."""
    # Of a kernel and tests that are the same to the byte, the results are,
    # too.
    same = compiler_version(), KERNELS["kunit"].wanted(), repr(
        (ARGUMENTS, YIELD_TESTS))
    keys = {name: {part: digest(source_key(commit), test_key(commit, part),
                                *same) for part in ("x86", "sched")}
            for name, commit in prefixes().items()}
    known = read_json(BISECTED, {})
    passed = {key: known[key] for parts in keys.values()
              for key in parts.values() if key in known}
    for name, commit in prefixes().items():
        title = f"bisect {name[:4]}"
        left = [part for part, key in keys[name].items()
                if key not in passed]
        if not left:
            count.ok(title, f"passed on {passed[keys[name]['sched']]}")
            continue
        with counted(count, f"{title}: builds"):
            tree = source(commit, "other")
            folder = build_kernel("kunit", tree)
            for part in left:
                failed = count.failed
                bisect_part(count, title, part, tree, folder)
                if count.failed == failed:
                    passed[keys[name][part]] = time.strftime("%Y-%m-%d")
                    write_json(BISECTED, passed)


def bisect_part(count: Count, title: str, part: str, tree: Path,
                folder: Path) -> None:
    """Run the tests of a prefix; part: "x86" or "sched"."""
    name = f"{title.replace(' ', '-')}-{part}"
    names = port_tests(tree) if part == "x86" else \
        selftest_names(tree, "sched", YIELD_TESTS)
    programs = list(build_selftests(names, tree=tree).values())
    if part == "x86":
        run_programs(
            count, title, folder, list(map(with_ktap, programs)), name,
            kunit=(tree / "arch/x86/kernel/io_bitmap_test.c").exists())
    elif programs:
        run_yield(count, f"{title}: selftests/sched", folder, programs, name)


def with_ktap(program: Path) -> Path:
    """Return a program with KTAP: those of the first prefixes have none."""
    if b"TAP version" in program.read_bytes():
        return program
    script = program.parent / "ktap" / program.name
    script.parent.mkdir(exist_ok=True)
    script.write_text(f"#!/bin/sh\n{program} && result=ok || "
                      "result='not ok'\necho 1..1\n"
                      f'echo "$result 1 {program.name}"\n')
    script.chmod(0o755)
    return script


# --- planted faults --------------------------------------------------------

# A file of tools/planted/, what it is added to, the tool that has to see it,
# and what that says.
FAULTS: dict[str, tuple[str, Callable[[Path], Iterable[str]], str]] = {
    "include.c": (VICTIM, lambda tree: compile_victim(tree, "gcc"),
                  "zlib_inflate_workspacesize"),
    "unused.c": (VICTIM, lambda tree: compile_victim(tree, "clang"),
                 "planted_unused"),
    "sparse.c": (VICTIM, lambda tree: compile_victim(tree, "sparse"),
                 "dereference of noderef"),
    "semicolon.c": (VICTIM, lambda tree: run_rule(
        "misc/semicolon.cocci", [VICTIM], tree)[0], "semicolon"),
    "parameter.c": (VICTIM, lambda tree: kernel_doc(tree), "planted_number"),
    "link.rst": (PAGE, lambda tree: docs_warnings(
        tree, [str(Path(PAGE).parent)], []), "planted-nowhere"),
}


def find_fault(name: str) -> None:
    """A planted fault is found."""
    path, tool, words = FAULTS[name]
    tree = source("applied")
    with planted(tree, path, (PLANTED / name).read_text()):
        found = list(tool(tree))
    if not any(words in row for row in found):
        raise Fail(f"it is not seen; what is: {found[:5]}")


def compile_victim(tree: Path, compiler: str) -> Counter[str]:
    """Compile the file in which faults are planted."""
    return compile_folders("wide", tree, compiler,
                           targets=(VICTIM[:-2] + ".o",)).warnings


def find_space() -> None:
    """checkpatch refuses a trailing space in a patch."""
    text = (PATCHES / series_patches()[0]).read_text(errors="replace")
    text = re.sub(r"^(\+.*;)$", r"\1 ", text, count=1, flags=re.M)
    with scratch("checkpatch") as place:
        try:
            checkpatch(text, checkpatch_tree(place), "--no-signoff")
        except Fail as failure:
            if "TRAILING_WHITESPACE" in str(failure):
                return
            raise
    raise Fail("it is not seen")


def find_open_ports(probe: Path) -> None:
    """The probe sees ports that are open on each CPU of Xen's domain."""
    tree = source("applied")
    with planted(tree, "arch/x86/kernel/process.c",
                 (PLANTED / "ports.c").read_text()):
        build_kernel("xendom0", tree)
        (_, run), = boot_xen(image("xendom0"), [(probe, [])],
                             timeout=XEN_SECONDS, name="gates-xen-planted")
    wrong = [f"cpu{cpu}.no_other_port" for cpu in range(2)]
    if failed_cases(run) != wrong:
        raise Fail(f"what fails is {failed_cases(run)} and not {wrong}; see "
                   f"{shown_path(LOGS)}/gates-xen-planted.dom0")


def group_planted(count: Count) -> None:
    """Planted faults are found; the checkers' are in their own groups."""
    count.run("planted: a trailing space", find_space)
    for name in ("include.c", "unused.c", "link.rst"):
        count.run(f"planted: {name}", find_fault, name)


# --- all of them -----------------------------------------------------------

GROUPS: dict[str, Callable[[Count], None]] = {
    "matrix": group_matrix, "programs": group_programs,
    "sparse": group_sparse, "coccicheck": group_cocci,
    "kerneldoc": group_kerneldoc, "docs": group_docs,
    "prefixes": group_prefixes, "i386": group_i386, "xen": group_xen,
    "preempt": group_preempt, "installs": group_installs,
    "debug": group_debug, "planted": group_planted,
    "package": package.group, "package-rt": package.group_rt,
    "bare": bare.group, "lab": lab.group, "bisect": group_bisect}
USUAL = tuple(name for name in GROUPS if name != "bisect")
# What these patches must have passed. The other two are about this
# repository.
RECORDED = tuple(name for name in GROUPS if name not in ("bare", "lab"))


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.partition("\n\n")[0])
    parser.add_argument("--only", action="append", choices=list(GROUPS),
                        metavar="GROUP", help="only this group, may be given "
                        f"again: {', '.join(GROUPS)} (default: all but "
                        "bisect, which goes on where results/bisect.json "
                        "ends)")
    options = parser.parse_args()
    start = time.monotonic()
    count = Count()
    names = options.only or USUAL
    with build_lock():
        if set(names) & set(RECORDED):
            begin()
        run_groups(count, {name: GROUPS[name] for name in names},
                   GATES_RECORD)
    say(f"took {duration(time.monotonic() - start)}")
    say(count.last_line())
    return count.status()


if __name__ == "__main__":
    run_main(main)
