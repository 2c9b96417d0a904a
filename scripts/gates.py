#!/usr/bin/env python3
# SPDX-License-Identifier: GPL-2.0-only
"""Run the gates: compilers, checkers, documents, more kernels, bisection.

Each compares the series with the base on the files that the series touches,
and fails when its tool did not really run.  Ends with the line `N passed, N
failed, N skipped`.
"""

import argparse
import contextlib
import fnmatch
import hashlib
import json
import os
import re
import shlex
import shutil
import subprocess
import tempfile
import time
import unittest
from collections import Counter
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import check
import mutants
from apply import apply_series, touched_files
from base import DOWNLOAD, REPO, get_base, private_apt
from check import GROUPS, USUAL, Tally, check_splat, flatten
from common import (BUILD, LOGS, PATCHES, RESULTS, ROOT, Fail, build_lock,
                    duration, git, need_space, need_tool, run_logged,
                    run_main, say, series_patches, shown_path, stage, tail,
                    write_atomically)
from export import COPIES, differences, write_export
from guest import boot, choose_kvm
from kernel import (BUILD_TIMEOUT, build_kernel, compiled,
                    make_environment)
from objects import (CLANG, COMPILERS, KNOWN, MATRIX, PLACE, build_programs,
                     check_prefix, check_programs, compare, compile_objects,
                     compiler_tools, configure, gate_tree, is_kernel,
                     new_warnings, object_make, objects_folder, planted,
                     prefixes, program_names, warnings_in)
from tinyguest import boot_tiny
from xenguest import boot_xen, build_probe, failed_cases, get_xen, judge

SPARSE = BUILD / "sparse"
# Where a sparse that 7.3 takes is found; the distribution's own is too old.
SPARSE_SUITES = ("forky", "sid")
SPARSE_CONFIGS = ("wide", "noioperm", "i386")
DOCS_VENV = BUILD / "docs-venv"
DOCS = "arch/x86"
COCCI_SECONDS = 300
# Rules about helpers that only the kernel has: not for user-space programs.
KERNEL_RULES = ("api/string_choices.cocci", "misc/minmax.cocci",
                "misc/swap.cocci")
# The programs that more kernels and each prefix run, and arguments that keep
# them short. All others run as they are.
TESTS = ("iop*",)
ARGUMENTS = {"ioperm_latency": ["--rounds", "50", "--warmup", "5"],
             "ioperm_drop_race": ["--wakes", "500"]}
# Without what the kernel's own W=1 leaves out: handlers of one kind have one
# signature.
PROGRAM_FLAGS = ("-Wall", "-Wextra", "-Wno-unused-parameter")
# More kernels: configuration, what it is.
BOOTS = {"rt": "PREEMPT_RT", "lazy": "the least preemption"}
XEN_SECONDS = 2400
# They stay on the first CPU that they may use, and Xen's guests start all
# others in another way.
XEN_PINNED = ("ioperm_64", "ioperm_boundaries_64", "iopl_64",
              "ioport_regset_64")
BISECT = "kunit"
BISECTED = RESULTS / "bisect.json"
PUBLISHED = ROOT / "results/bisect.json"
# Where to look for prefixes that are known to pass.
KNOWN_PREFIXES = [BISECTED]
KUNIT_SUITE = "x86_io_bitmap"
# How the selftests are installed: what it is, the arguments of make, given a
# folder for objects.  {0} is that folder, {1} the same seen from the tree.
INSTALLS = {"in the tree": (), "O= absolute": ("O={0}",),
            "O= relative": ("O={1}",),
            "O= and clang": ("O={0}", f"LLVM=-{CLANG}")}
# The configurations of --config; none for all.
CHOSEN = []
QUICK_TESTS = ("test_common", "test_gates", "test_results")


# --- compilers -------------------------------------------------------------

def group_matrix(tally, clang=tuple(MATRIX)):
    """The touched objects in each configuration, gcc and clang, W=1."""
    # clang: the configurations for which it runs, too.
    begin()
    touched = touched_files(series_patches())
    seen = set()
    for name in CHOSEN or MATRIX:
        for compiler in COMPILERS:
            if compiler == "clang" and name not in clang:
                continue
            title = f"W=1: {name}, {compiler}"
            try:
                objects = compare(name, compiler, touched)
            except Fail as failure:
                tally.fail(title, failure)
                continue
            seen |= set(objects)
            tally.ok(f"{title}: {len(objects)} objects")
    if not CHOSEN:
        tally.run("W=1: each touched file is in one of them", check_coverage,
                  touched, seen)


def check_coverage(touched, objects):
    """Each .c file of the kernel that the series touches was compiled."""
    tree = gate_tree("applied")
    missing = []
    for path in touched:
        if not is_kernel(path) or not path.endswith(".c") or \
                not (tree / path).exists():
            continue
        inside = [other for other in (tree / path).parent.glob("*.c")
                  if f'#include "{Path(path).name}"' in
                  other.read_text(errors="replace")]
        names = [path[:-2] + ".o"] + [
            str(other.relative_to(tree))[:-2] + ".o" for other in inside]
        if not objects & set(names):
            missing.append(path)
    if missing:
        raise Fail(f"no configuration compiles {', '.join(missing)}")


def group_programs(tally, compilers=tuple(COMPILERS)):
    """The touched selftests build with gcc and clang, -Wall -Wextra."""
    begin()
    touched = touched_files(series_patches())
    for compiler in compilers:
        title = f"selftests: -Wall -Wextra, {compiler}"
        try:
            compiler_tools(compiler)
            count = check_programs("applied", touched, compiler,
                                   PROGRAM_FLAGS)
        except Fail as failure:
            tally.fail(title, failure)
            continue
        tally.ok(f"{title}: {count} programs")


# --- sparse ----------------------------------------------------------------

def get_sparse():
    """Build sparse from the newer source package; returns its Path."""
    program = SPARSE / "sparse"
    if program.exists():
        return program
    need_tool("dpkg-source", "dpkg-dev")
    SPARSE.mkdir(parents=True, exist_ok=True)
    with stage("getting and building sparse"):
        for suite in SPARSE_SUITES:
            config = private_apt(suite, source=True)
            environment = os.environ | {"APT_CONFIG": str(config)}
            if run_logged(["apt-get", "update"], LOGS / "sparse-apt.log",
                          env=environment, check=False):
                continue
            place = DOWNLOAD / "sparse"
            shutil.rmtree(place, ignore_errors=True)
            place.mkdir(parents=True)
            if run_logged(["apt-get", "source", "--only-source", "sparse"],
                          LOGS / "sparse-apt.log", env=environment,
                          cwd=place, check=False):
                continue
            folders = [path for path in place.iterdir() if path.is_dir()]
            if len(folders) == 1:
                break
        else:
            raise Fail("the source package of sparse is not to be had from "
                       f"{' or '.join(SPARSE_SUITES)}; apt's words are in "
                       f"{shown_path(LOGS)}/sparse-apt.log")
        # The package names a compiler that only its own suite has.
        run_logged(["make", "-C", str(folders[0]), f"-j{os.cpu_count()}",
                    "CC=gcc", "NO_LLVM=1", "sparse"],
                   LOGS / "sparse-build.log", env=make_environment(),
                   what="building sparse")
        shutil.copy2(folders[0] / "sparse", program)
        shutil.rmtree(place, ignore_errors=True)
    return program


def sparse_warnings(tree, name, touched, title, strict=True):
    """Return sparse's warnings (Counter) about the touched objects.

    Raises Fail when the kernel's build did not run it on each of them.
    """
    built = compile_objects(tree, name, "gcc", touched,
                            ("C=2", f"CHECK={SPARSE / 'sparse'}"), title,
                            strict)
    text = built.log.read_text(errors="replace")
    if "is not available or not up to date" in text:
        raise Fail(f"the kernel does not take {shown_path(SPARSE)}/sparse "
                   "and skips it")
    checked = set(re.findall(r"^  CHECK +\S*?([\w-]+)\.c$", text, re.M))
    silent = [obj for obj in built.objects
              if Path(obj).stem not in checked]
    if silent:
        raise Fail(f"sparse did not run on {', '.join(silent)}; see "
                   f"{shown_path(built.log)}")
    if built.failed:
        raise Fail(f"the build failed; see {shown_path(built.log)}")
    # What includers and untouched headers have is the base's own.
    return Counter({row: count for row, count in built.warnings.items()
                    if row.split(":")[0] in touched}), len(built.objects)


PLANT_SPARSE = """
static int __user *planted_pointer;
int planted_read(void);
int planted_read(void)
{
	return *planted_pointer;
}
"""


def victim():
    """Return a touched .c file (str) of the kernel, to plant a fault in."""
    for path in sorted(touched_files(series_patches()),
                       key=lambda path: path != "arch/x86/kernel/ioport.c"):
        if is_kernel(path) and path.endswith(".c"):
            return path
    raise Fail("the series touches no .c file of the kernel")


def check_sparse_runs():
    """A wrong address space that is planted is found."""
    tree, path = gate_tree("applied"), victim()
    clean, _ = sparse_warnings(tree, "wide", [path], "sparse-planted")
    with planted(tree, path, PLANT_SPARSE):
        found, _ = sparse_warnings(tree, "wide", [path], "sparse-planted")
    fresh = new_warnings(clean, found)
    if not any("dereference of noderef" in row for row in fresh):
        raise Fail(f"sparse does not see it: {fresh}")


def group_sparse(tally, configs=SPARSE_CONFIGS):
    """sparse (C=2) says nothing new about the touched files."""
    begin()
    try:
        get_sparse()
    except Fail as failure:
        tally.fail("sparse", failure)
        return
    touched = touched_files(series_patches())
    if not tally.run("sparse: really runs, finds a planted fault",
                     check_sparse_runs):
        return
    for name in configs:
        title = f"sparse: {name}"
        try:
            after, count = sparse_warnings(gate_tree("applied"), name,
                                           touched, f"sparse-{name}")
            before = Counter()
            if after:
                before, _ = sparse_warnings(gate_tree("base"), name, touched,
                                            f"sparse-{name}-base", False)
            report(tally, f"{title}, {count} objects", before, after)
        except Fail as failure:
            tally.fail(title, failure)


def report(tally, title, before, after):
    """Count one test: after (Counter) has nothing that before lacks."""
    fresh = new_warnings(before, after)
    if fresh:
        tally.fail(title, f"{len(fresh)} new\n" + "\n".join(
            "    | " + row for row in fresh[:20]))
    else:
        tally.ok(f"{title}: {after.total()} warnings, none new")


# --- coccinelle ------------------------------------------------------------

def cocci_rules(tree):
    """Return the kernel's Coccinelle rules (list of Path), absolute."""
    return sorted((tree / "scripts/coccinelle").rglob("*.cocci"))


def run_rule(rule, files, tree):
    """Run one rule in report mode, as scripts/coccicheck does.

    Returns (findings, None), a list of str, or (None, why) for a rule that
    could not run.
    """
    if not files:
        return None, "there is no file for it"
    text = rule.read_text()
    if not re.search(r"^virtual\s+(?:\w+\s*,\s*)*report\b", text, re.M):
        return None, "has no report mode"
    wanted = re.search(r"^// Options?:(.*)$", text, re.M)
    options = wanted.group(1).split() if wanted else []
    try:
        done = subprocess.run(
            ["spatch", "-D", "report", "--no-show-diff", "--very-quiet",
             "--cocci-file", str(rule), *options,
             *[word for part in (
                 "arch/x86/include", "include", "arch/x86/include/uapi",
                 "include/uapi") for word in ("-I", str(tree / part))],
             *map(str, files)],
            cwd=tree, capture_output=True, text=True, errors="replace",
            timeout=COCCI_SECONDS)
    except subprocess.TimeoutExpired:
        return None, f"did not end within {COCCI_SECONDS} s"
    if done.returncode or re.search(r"exception|fatal error|EXN:|"
                                    r"semantic error|not found", done.stderr,
                                    re.I):
        words = (done.stderr or done.stdout).strip().splitlines()
        return None, words[-1] if words else f"status {done.returncode}"
    return cocci_findings(done.stdout, files), None


def cocci_findings(text, files):
    """Return the rows of spatch's report (list of str) about files."""
    names = {str(path) for path in files}
    found = []
    for row in text.splitlines():
        path = re.match(r"(?:\* (?:TODO )?\[\[view:)?(/[^:]+):", row)
        if path and path.group(1) in names:
            found.append(re.sub(r"^/\S*/gates/tree/|:\d+(?:-\d+)?(?=:)|"
                                r"\bline \d+|(?<=:)\d+-\d+(?=:)", "", row))
    return found


def run_rules(rules, paths, tree):
    """Run rules over paths of a tree; returns {rule's name: result}."""
    files = [tree / path for path in paths
             if path.endswith((".c", ".h")) and (tree / path).exists()]
    inside = [tree / path for path in paths
              if is_kernel(path) and tree / path in files]
    names = [str(rule.relative_to(tree / "scripts/coccinelle"))
             for rule in rules]
    with ThreadPoolExecutor(os.cpu_count()) as pool:
        return dict(zip(names, pool.map(
            lambda name: run_rule(tree / "scripts/coccinelle" / name,
                                  inside if name in KERNEL_RULES else files,
                                  tree), names)))


def check_cocci_runs(tree):
    """A rule of the kernel finds what is planted."""
    rule = tree / "scripts/coccinelle/misc/semicolon.cocci"
    with tempfile.TemporaryDirectory(prefix="checkpatch-",
                                     dir=BUILD) as place:
        file = Path(place) / "planted.c"
        file.write_text("int f(int a)\n{\n\tif (a) {\n\t\ta = 1;\n\t};\n"
                        "\treturn a;\n}\n")
        found, why = run_rule(rule, [file], tree)
    if not found:
        raise Fail(f"semicolon.cocci finds nothing ({why})")


def group_cocci(tally):
    """The kernel's Coccinelle rules find nothing new."""
    begin()
    try:
        need_tool("spatch", "coccinelle")
    except Fail as failure:
        tally.fail("coccicheck", failure)
        return
    touched = touched_files(series_patches())
    tree = gate_tree("applied")
    if not tally.run("coccicheck: really runs, finds a planted fault",
                     check_cocci_runs, tree):
        return
    rules = cocci_rules(tree)
    with stage(f"running {len(rules)} Coccinelle rules"):
        after = run_rules(rules, touched, tree)
    hits = [rule for rule in rules if
            after[str(rule.relative_to(tree / "scripts/coccinelle"))][0]]
    before = {}
    if hits:
        names = [rule.relative_to(tree) for rule in hits]
        tree = gate_tree("base")
        before = run_rules([tree / name for name in names], touched, tree)
    ran = [name for name, (found, _) in after.items() if found is not None]
    for name, (found, why) in after.items():
        title = f"coccicheck: {name}"
        if found is None:
            tally.skip(title, why)
        elif found:
            report(tally, title, Counter(before[name][0] or ()),
                   Counter(found))
    title = f"coccicheck: {len(ran)} of {len(rules)} rules ran"
    if len(ran) * 10 < len(rules) * 9:
        tally.fail(title, "that is too few")
    else:
        tally.ok(title)


# --- kernel-doc, smatch ----------------------------------------------------

def kernel_doc(tree, paths):
    """Return kernel-doc's warnings (Counter) about paths of a tree."""
    tool = tree / "tools/docs/kernel-doc"
    if not tool.exists():
        tool = tree / "scripts/kernel-doc"
    files = [path for path in paths if path.endswith((".c", ".h"))
             and (tree / path).exists()]
    # With the distribution's Python: the venv's may lack what it imports.
    done = subprocess.run(
        [str(tool), "-none", "-Wall", *files], cwd=tree, text=True,
        capture_output=True, errors="replace", env=make_environment())
    words = done.stdout + done.stderr
    if "Traceback" in words or "No such file" in words:
        raise Fail(f"kernel-doc did not run: {words.strip()[-300:]}")
    return warnings_in(words)


def check_kernel_doc_runs(tree):
    """An undescribed parameter that is planted is found."""
    path = victim()
    with planted(tree, path, "\n/**\n * planted_doc() - Do it.\n */\n"
                 "int planted_doc(int number)\n{\n\treturn number;\n}\n"):
        if not any("number" in row for row in kernel_doc(tree, [path])):
            raise Fail("kernel-doc does not see it")


def group_kerneldoc(tally):
    """kernel-doc says nothing new; smatch where it is to be had."""
    begin()
    touched = touched_files(series_patches())
    tree = gate_tree("applied")
    if tally.run("kernel-doc: really runs, finds a planted fault",
                 check_kernel_doc_runs, tree):
        try:
            after = kernel_doc(tree, touched)
            before = kernel_doc(gate_tree("base"), touched) if after \
                else Counter()
            report(tally, "kernel-doc", before, after)
        except Fail as failure:
            tally.fail("kernel-doc", failure)
    if not shutil.which("smatch"):
        tally.skip("smatch", "not installed, and no Debian package holds it")
        return
    try:
        counts = {}
        for side in ("base", "applied"):
            built = compile_objects(
                gate_tree(side), "wide", "gcc", touched,
                ("C=2", "CHECK=smatch -p=kernel"), f"smatch-{side}",
                side == "applied")
            if "CHECK " not in built.log.read_text(errors="replace"):
                raise Fail("it did not run")
            counts[side] = built.warnings
        report(tally, "smatch", counts["base"], counts["applied"])
    except Fail as failure:
        tally.fail("smatch", failure)


# --- documents -------------------------------------------------------------

def get_sphinx():
    """Make the documents' venv; returns its bin folder."""
    wanted = (ROOT / "scripts/requirements-docs.txt").read_text()
    stamp = DOCS_VENV / "complete"
    if not stamp.exists() or stamp.read_text() != wanted:
        shutil.rmtree(DOCS_VENV, ignore_errors=True)
        with stage(f"making {shown_path(DOCS_VENV)}"):
            run_logged(["python3", "-m", "venv", str(DOCS_VENV)],
                       LOGS / "docs-venv.log", what="python3 -m venv")
            run_logged([str(DOCS_VENV / "bin/pip"),
                        "--disable-pip-version-check", "install", "-r",
                        str(ROOT / "scripts/requirements-docs.txt")],
                       LOGS / "docs-venv.log", what="pip install Sphinx")
        stamp.write_text(wanted)
    return DOCS_VENV / "bin"


def docs_folders(touched):
    """Return the folders (list of str) below Documentation to build."""
    found = {DOCS}
    for path in touched:
        if path.startswith("Documentation/") and path.endswith(".rst"):
            folder = str(Path(path).parent.relative_to("Documentation"))
            if folder != ".":
                found.add(folder)
    return sorted(found)


def docs_warnings(tree, folders, wanted=()):
    """Build documents with the kernel's own set-up.

    Returns the warnings (Counter).  Raises Fail when a page of wanted (.rst
    paths) or a folder's index does not come out.
    """
    binaries = get_sphinx()
    output = PLACE / "obj/docs"
    log = LOGS / "gates-docs.log"
    text = ""
    for folder in folders:
        # A page that is not read again does not warn again.
        shutil.rmtree(output, ignore_errors=True)
        output.mkdir(parents=True)
        environment = make_environment() | {
            "PATH": f"{binaries}:{os.environ['PATH']}"}
        status = run_logged(
            ["make", "-C", str(tree), f"O={output}", f"SPHINXDIRS={folder}",
             "htmldocs"], log, env=environment, timeout=1800, check=False)
        words = log.read_text(errors="replace")
        text += words
        pages = {path.name for path in
                 (output / "Documentation/output").rglob("*.html")}
        missing = [path for path in wanted
                   if str(Path(path).parent) == f"Documentation/{folder}"
                   and Path(path).stem + ".html" not in pages]
        if status or "index.html" not in pages or missing:
            raise Fail(f"{folder}: {', '.join(missing) or 'the pages'} did "
                       f"not come out; the end of {shown_path(log)}:\n"
                       f"{tail(log)}")
    log.write_text(text)
    return warnings_in(text)


def group_docs(tally):
    """The documents build with the kernel's Sphinx without new warnings."""
    begin()
    touched = touched_files(series_patches())
    folders = docs_folders(touched)
    wanted = [path for path in touched
              if path.startswith("Documentation/") and path.endswith(".rst")]
    title = f"documents: {', '.join(folders)}, {len(wanted)} pages touched"
    try:
        with stage(f"building {', '.join(folders)}"):
            after = docs_warnings(gate_tree("applied"), folders, wanted)
        before = Counter()
        if after:
            shutil.copyfile(LOGS / "gates-docs.log",
                            LOGS / "gates-docs-series.log")
            with stage("building those of the base"):
                before = docs_warnings(gate_tree("base"), folders)
        report(tally, title, before, after)
    except Fail as failure:
        tally.fail(title, failure)


# --- more kernels ----------------------------------------------------------

def build_image(name, commit="applied", strict=True, tree=None):
    """Build a configuration's bzImage in its folder of objects.

    tree: the gates' tree as it is, when something is planted there, which
    gate_tree() would undo.  Returns (folder, warnings), a Path and a Counter.
    """
    tree = tree or gate_tree(commit)
    need_space(BUILD, 3, f"the {name} kernel")
    configure(tree, name, "gcc", strict)
    log = LOGS / f"gates-build-{name}.log"
    with stage(f"building the {name} kernel"):
        run_logged(object_make(name, "gcc", "bzImage"), log,
                   timeout=BUILD_TIMEOUT, env=make_environment(),
                   what=f"building the {name} kernel", progress=compiled)
    return objects_folder(name, "gcc"), \
        warnings_in(log.read_text(errors="replace"))


def test_sources(tree):
    """Return the .c files (list of str) of the tests of TESTS."""
    folder = "tools/testing/selftests/x86"
    return [f"{folder}/{path.name}"
            for path in sorted((tree / folder).glob("*.c"))
            if any(fnmatch.fnmatch(path.stem, row) for row in TESTS)
            and program_names(tree, f"{folder}/{path.name}")]


def command_of(program):
    """Return a test's arguments (list of str)."""
    return ARGUMENTS.get(re.sub(r"_(32|64)$", "", program.name), [])


def count_result(tally, title, status, log):
    """Count a test's exit status, as kselftest has it."""
    if status == 0:
        tally.ok(title)
    elif status == 4:
        tally.skip(title, f"skipped itself; see {shown_path(log)}")
    else:
        tally.fail(title, f"exit status {status}; see {shown_path(log)}")


def count_kunit(tally, title, text, log):
    """Count the series' KUnit suite in what debugfs or a console says."""
    found = {name: verdict for name, verdict in
             check.kunit_results(text).items()
             if name.split(".")[0] == KUNIT_SUITE}
    if KUNIT_SUITE not in found:
        tally.fail(f"{title}: KUnit {KUNIT_SUITE}",
                   f"did not run; see {shown_path(log)}")
    for name, verdict in found.items():
        count_result(tally, f"{title}: KUnit {name}",
                     {"ok": 0, "skip": 4}.get(verdict, 1), log)


def group_i386(tally):
    """A 32-bit kernel boots, and the static 32-bit tests pass on it."""
    begin()
    if not tally.run("i386: builds", build_image, "i386"):
        return
    tree = gate_tree("applied")
    try:
        programs, _ = build_programs(tree, test_sources(tree),
                                     PLACE / "programs/static", "gcc",
                                     ("-static",), "_32")
        image = objects_folder("i386", "gcc") / "arch/x86/boot/bzImage"
        with stage(f"running {len(programs)} programs on the i386 kernel"):
            runs = boot_tiny(
                image, [(path, command_of(path)) for path in programs],
                timeout=1200, seconds=400, name="gates-i386")
    except Fail as failure:
        tally.fail("i386: boots", failure)
        return
    console = LOGS / "gates-i386.console"
    tally.ok("i386: boots")
    for name, run in runs:
        count_result(tally, f"i386: {name}", run.status, console)
    # No user land reads debugfs here: what the kernel prints as it boots.
    count_kunit(tally, "i386", console.read_text(
        errors="replace").replace("\r", ""), console)
    tally.run("i386: no splat", check_splat, console)


def count_xen(tally, title, runs, log):
    """Count what programs ([(name, Run)]) came to in Xen's domain."""
    for name, run in runs:
        verdict, words = judge(run)
        if verdict == "pass":
            tally.ok(f"{title}: {name}, {words}")
        else:
            {"skip": tally.skip, "fail": tally.fail}[verdict](
                f"{title}: {name}", f"{words}; see {shown_path(log)}")


# What a CPU has to which nobody gave a bitmap.
PLANT_OPEN = """
static int __init planted_open(void)
{
	int cpu;

	for_each_online_cpu(cpu)
		memset(&per_cpu(cpu_tss_rw, cpu).io_bitmap, 0,
		       sizeof(struct x86_io_bitmap));
	return 0;
}
late_initcall(planted_open);
"""


def xen_image():
    """Return where the bzImage of the kernel for Xen is (Path)."""
    return objects_folder("xendom0", "gcc") / "arch/x86/boot/bzImage"


def check_probe(probe):
    """The probe finds ports that are open on each CPU in a planted kernel."""
    tree = gate_tree("applied")
    with planted(tree, "arch/x86/kernel/process.c", PLANT_OPEN):
        build_image("xendom0", tree=tree)
        (_, run), = boot_xen(xen_image(), [(probe, [])], timeout=XEN_SECONDS,
                             name="gates-xen-planted")
    wrong = [f"cpu{cpu}.no_other_port" for cpu in range(2)]
    if failed_cases(run) != wrong:
        raise Fail(f"what fails is {failed_cases(run)} and not {wrong}; see "
                   f"{shown_path(LOGS)}/gates-xen-planted.dom0")


def run_xen(tally, title, programs, name, append=""):
    """Boot the kernel as Xen's first domain and count what programs do.

    programs: static ones (list of Path).  append: kernel parameters.
    """
    log = LOGS / f"{name}.dom0"
    try:
        with stage(f"running {len(programs)} programs on {title}"):
            runs = boot_xen(
                xen_image(), [(path, command_of(path)) for path in programs],
                timeout=XEN_SECONDS, name=name, append=append)
    except Fail as failure:
        tally.fail(f"{title}: boots", failure)
        return
    tally.ok(f"{title}: boots")
    count_xen(tally, title, runs, log)
    tally.run(f"{title}: no splat", check_splat, log)


def group_xen(tally):
    """As Xen's first domain the kernel boots and passes the static tests."""
    begin()
    title = "Xen PV dom0"
    if not tally.run(f"{title}: there is a hypervisor", get_xen):
        return
    tree = gate_tree("applied")
    try:
        programs, _ = build_programs(tree, test_sources(tree),
                                     PLACE / "programs/static", "gcc",
                                     ("-static",), "_64")
        probe = build_probe(PLACE / "programs/static")
    except Fail as failure:
        tally.fail(f"{title}: the tests build", failure)
        return
    tally.run(f"{title}: finds planted open ports", check_probe, probe)
    # Without what was planted.
    if not tally.run(f"{title}: builds", build_image, "xendom0"):
        return
    # The probe comes first: it finds what a CPU was started with, and who
    # enables many ports leaves none of that.
    run_xen(tally, title, [probe, *programs], "gates-xen")
    run_xen(tally, f"{title}, second CPU",
            [path for path in programs if path.name in XEN_PINNED],
            "gates-xen-cpu1", "isolcpus=0")


def run_tests(tally, title, folder, programs, name, kunit=False):
    """Boot a built kernel and run programs; count each."""
    rows = "".join(
        f"{path} {' '.join(command_of(path))}; s=$?; echo; "
        f"echo \"@@ end {path.name} $s\"; " for path in programs)
    if kunit:
        rows += f"cat /sys/kernel/debug/kunit/{KUNIT_SUITE}/results; "
    try:
        with stage(f"running {len(programs)} programs on {title}"):
            result = boot(folder, rows + "true", cpus=2,
                          kvm=choose_kvm(folder), timeout=900, name=name)
    except Fail as failure:
        tally.fail(f"{title}: boots", failure)
        return
    log = LOGS / f"{name}.ktap"
    write_atomically(log, result.output)
    tally.ok(f"{title}: boots")
    ends = dict(re.findall(r"^@@ end (\S+) (\d+)$", result.output, re.M))
    for path in programs:
        if path.name in ends:
            count_result(tally, f"{title}: {path.name}",
                         int(ends[path.name]), log)
        else:
            tally.fail(f"{title}: {path.name}",
                       f"did not end; see {shown_path(log)}")
    if kunit:
        count_kunit(tally, title, result.output, log)
    tally.run(f"{title}: no splat", check_splat, result.console)


def group_preempt(tally):
    """Kernels with other preemption boot, and the tests pass on them."""
    begin()
    tree = gate_tree("applied")
    try:
        programs, _ = build_programs(tree, test_sources(tree),
                                     PLACE / "programs/tests", "gcc")
    except Fail as failure:
        tally.fail("preemption: the tests build", failure)
        return
    for name, what in BOOTS.items():
        if tally.run(f"{what}: builds", build_image, name):
            run_tests(tally, what, objects_folder(name, "gcc"), programs,
                      f"gates-{name}")


def slug(words):
    """Return words (str) as a part of a file's name."""
    return re.sub(r"\W+", "-", words).strip("-")


def install(tree, config, what, arguments, targets):
    """Install selftests with make kselftest-install; returns the folder.

    config: the configuration (Path) for one with O=.
    Raises Fail when one that the Makefiles promise is not there.
    """
    name = slug(what)
    objects, place = PLACE / f"obj/install-{name}", PLACE / "installed" / name
    for folder in (objects, place):
        shutil.rmtree(folder, ignore_errors=True)
        folder.mkdir(parents=True)
    words = [word.format(objects, os.path.relpath(objects, tree))
             for word in arguments]
    # Both targets want a configuration, also with O=, and 'make kselftest'
    # asks the compiler for hundreds of things when that is of another one:
    # here, where it takes seconds, and not in the guest.
    if arguments:
        shutil.copyfile(config, objects / ".config")
    for target in ("olddefconfig", "syncconfig"):
        run_logged(["make", "-C", str(tree), *words, target],
                   LOGS / f"gates-install-{name}-{target}.log",
                   env=make_environment(), what=f"make {target}, {what}")
    run_logged(["make", "-C", str(tree), f"-j{os.cpu_count()}", *words,
                f"TARGETS={' '.join(targets)}", "FORCE_TARGETS=1",
                f"INSTALL_PATH={place}", "kselftest-install"],
               LOGS / f"gates-install-{name}.log", env=make_environment(),
               what=f"make kselftest-install, {what}")
    missing = sorted(name for name in check.wanted_selftests(tree)
                     if not (place / "x86" / name).exists())
    missing += [name for name in check.YIELD_TESTS
                if not (place / "sched" / name).exists()]
    if missing:
        raise Fail(f"not installed: {', '.join(missing)}")
    return place


def make_kselftest(kernel, tree, what, arguments, kvm):
    """Run make kselftest TARGETS=x86 in a guest, where install() has built.

    Returns what check.read_kselftest() does.
    """
    name = f"gates-make-{slug(what)}"
    objects = PLACE / f"obj/install-{slug(what)}"
    words = [word.format(objects, os.path.relpath(objects, tree))
             for word in arguments]
    # With the same PATH, or there is a Rust compiler more or less, and it
    # configures again.
    result = boot(kernel, f"PATH={shlex.quote(os.environ['PATH'])} make -C "
                  f"{tree} {' '.join(words)} TARGETS=x86 FORCE_TARGETS=1 "
                  "kselftest", cpus=2, kvm=kvm,
                  timeout=2 * check.SELFTEST_SECONDS, name=name,
                  share=objects if arguments else tree)
    write_atomically(LOGS / f"{name}.ktap", result.output)
    return check.read_kselftest(result.output)


def count_selftests(tally, title, chosen, found, log):
    """Count what kselftest's runner found of the chosen programs."""
    for name in chosen:
        count_result(tally, f"{title}: {name}",
                     {"pass": 0, "skip": 4}.get(found.get(name), 1), log)


def group_installs(tally):
    """The selftests install and run in the tree, with O= and with clang."""
    begin()
    series = build_kernel("series")
    compiler_tools("clang")
    kvm = choose_kvm(series)
    for what, arguments in INSTALLS.items():
        title = f"installs: {what}"
        # A tree in which something was built takes no O=.
        tree = gate_tree("applied") if arguments else series
        try:
            with stage(f"make kselftest-install, {what}"):
                place = install(tree, series / ".config", what, arguments,
                                ("x86", "sched"))
        except Fail as failure:
            tally.fail(title, failure)
            continue
        tally.ok(title)
        chosen = sorted(path.name for path in (place / "x86").iterdir()
                        if re.fullmatch(r"iop\w+_(32|64)", path.name))
        try:
            with stage(f"run_kselftest.sh, {what}: {len(chosen)} programs"):
                found = check.run_selftests(
                    series, place, f"gates-{slug(what)}", kvm, chosen)
        except Fail as failure:
            tally.fail(f"{title}: run_kselftest.sh", failure)
            continue
        count_selftests(tally, title, chosen, found,
                        LOGS / f"kselftest-gates-{slug(what)}-again.ktap")
        title = f"make kselftest: {what}"
        try:
            with stage(title):
                found = make_kselftest(series, tree, what, arguments, kvm)
        except Fail as failure:
            tally.fail(title, failure)
            continue
        count_selftests(tally, title, chosen, found,
                        LOGS / f"gates-make-{slug(what)}.ktap")


# --- bisection -------------------------------------------------------------

class Noted:
    """Hands results on to a Tally, and keeps them in rows.

    rows: a list of (method of Tally, its arguments...).
    """

    def __init__(self, tally):
        self.tally = tally
        self.rows = []

    @property
    def failed(self):
        """How many failed (int), of all that the Tally has."""
        return self.tally.failed

    def note(self, kind, *words):
        self.rows.append((kind, *map(str, words)))
        getattr(self.tally, kind)(*words)

    def ok(self, name):
        """As Tally.ok()."""
        self.note("ok", name)

    def fail(self, name, why):
        """As Tally.fail()."""
        self.note("fail", name, why)

    def skip(self, name, why):
        """As Tally.skip()."""
        self.note("skip", name, why)

    run = Tally.run


def bisect_key(number, commit):
    """Return the name (str) of what a prefix's result depends on."""
    trees = [git("rev-parse", f"{name}^{{tree}}", cwd=REPO)
             for name in (commit, "base")]
    return mutants.digest(
        number, *trees,
        *(path.read_text() for path in KNOWN[BISECT].fragments),
        mutants.compiler(), TESTS, ARGUMENTS, check.YIELD_TESTS)


def group_bisect(tally):
    """Every prefix of the series builds, boots and passes its tests."""
    begin()
    done = {}
    for path in KNOWN_PREFIXES:
        with contextlib.suppress(OSError, ValueError, TypeError):
            done.update(json.loads(path.read_text()))
    rows = [(number, bisect_key(number, row[0]), *row)
            for number, row in enumerate(prefixes(), 1)]
    done = {key: done[key] for _, key, *_ in rows if key in done}
    known, passed = None, set()
    for number, key, commit, subject, paths in rows:
        if key in done:
            # It is the same to the byte, and so are its tests.
            for kind, *words in done[key]["rows"]:
                getattr(tally, kind)(*words)
            passed.update(map(tuple, done[key]["passed"]))
            continue
        if known is None:
            known = build_image(BISECT, "base", strict=False)[1]
        failed, noted, before = tally.failed, Noted(tally), set(passed)
        bisect_prefix(noted, f"bisect {number}", commit, subject, known,
                      passed)
        if tally.failed == failed:
            done[key] = {"rows": noted.rows, "passed": sorted(passed - before)}
            RESULTS.mkdir(parents=True, exist_ok=True)
            write_atomically(BISECTED, json.dumps(done, indent=1) + "\n")


def publish():
    """Copy the prefixes that pass to results/bisect.json, to be committed."""
    try:
        done = json.loads(BISECTED.read_text())
    except (OSError, ValueError):
        raise Fail(f"there is no {shown_path(BISECTED)} to publish: run "
                   "'make bisect-check'") from None
    write_atomically(PUBLISHED, json.dumps(done, indent=0) + "\n")
    say(f"written: {shown_path(PUBLISHED)}, {len(done)} prefixes")


def bisect_prefix(tally, title, commit, subject, known, passed):
    """Build and boot a prefix, run its tests.

    known: the base's warnings.  passed: a set of tuples, what makes a kernel
    that booted and, where it is a program that passed on it, its name and what
    it is; this adds to it.  What is the same to the byte is not run again: a
    patch that only adds a test has the kernel of the one before, and all tests
    but one.
    """
    tree = gate_tree(commit)
    place = PLACE / "programs/bisect"
    source = mutants.source_key(commit)
    x86, sched = test_sources(tree), [
        path for path in (f"tools/testing/selftests/sched/{name}.c"
                          for name in check.YIELD_TESTS)
        if (tree / path).exists()]
    try:
        shutil.rmtree(place, ignore_errors=True)
        programs, _ = build_programs(tree, x86, place / "x86", "gcc")
        yields, _ = build_programs(tree, sched, place / "sched", "gcc")
        folder, found = build_image(BISECT, commit, strict=False)
    except Fail as failure:
        tally.fail(f"{title}: {subject}: builds", failure)
        return
    fresh = sorted(set(found) - set(known))
    if fresh:
        tally.fail(f"{title}: {subject}: builds",
                   f"{len(fresh)} new warnings\n" + "\n".join(
                       "    | " + row for row in fresh[:20]))
    else:
        tally.ok(f"{title}: {subject}: builds")

    def names(paths):
        return {path: (source, path.name, hashlib.sha256(
            path.read_bytes()).hexdigest()) for path in paths}

    wanted, wanted_yields = ({path: name for path, name in
                              names(paths).items() if name not in passed}
                             for paths in (programs, yields))
    same = len(programs) + len(yields) - len(wanted) - len(wanted_yields)
    if same:
        say(f"    {title}: {same} programs passed on the same kernel before, "
            "to the byte: not run again")
    job = f"gates-{title.replace(' ', '-')}"
    failed = tally.failed
    if wanted or (source,) not in passed:
        run_tests(tally, title, folder, list(wanted), job,
                  (tree / "arch/x86/kernel/io_bitmap_test.c").exists())
    if wanted_yields:
        check.run_yield(tally, f"{title}: selftests/sched", folder,
                        list(wanted_yields), f"{job}-sched")
    if tally.failed == failed:
        passed.update(((source,), *wanted.values(), *wanted_yields.values()))


# --- planted faults --------------------------------------------------------

def must_find(what, found, *words):
    """Raise Fail unless one of the rows found (strings) has all words."""
    if not any(all(word in row for word in words) for row in found):
        raise Fail(f"{what} does not see it ({list(found)[:5]})")


def plant_space():
    """checkpatch refuses a trailing space in a patch."""
    name = next(name for name in series_patches()
                if re.search(r"^\+\t\w.*;$", (PATCHES / name).read_text(
                    errors="surrogateescape"), re.M))
    text = (PATCHES / name).read_text(errors="surrogateescape")
    with tempfile.TemporaryDirectory(prefix="checkpatch-",
                                     dir=BUILD) as place:
        tree = check.checkpatch_tree(Path(place))
        wrong = Path(place) / "0001-planted.patch"
        wrong.write_text(re.sub(r"^(\+\t\w.*;)$", r"\1 ", text, count=1,
                                flags=re.M), errors="surrogateescape")
        must_fail(check.checkpatch, wrong, check.codespell_dictionary(),
                  tree, says="TRAILING_WHITESPACE")


def must_fail(function, *arguments, says):
    """Raise Fail unless function fails, and its words have says in them."""
    try:
        function(*arguments)
    except Fail as failure:
        if says in str(failure):
            return
        raise Fail(f"it fails for another reason: {failure}") from None
    raise Fail("it does not fail")


def compile_planted(text, compiler="gcc", more=()):
    """Compile a touched file with a text added; returns a Built."""
    tree, path = gate_tree("applied"), victim()
    with planted(tree, path, text):
        return compile_objects(tree, "wide", compiler, [path], more,
                               "planted")


def plant_include():
    """W=1 fails where a header is not included."""
    built = compile_planted(
        "\nint planted_size(void);\nint planted_size(void)\n{\n"
        "\treturn zlib_inflate_workspacesize();\n}\n")
    if not built.failed:
        raise Fail("make says that all is well")
    must_find("gcc", built.warnings, "zlib_inflate_workspacesize")


PLANT_UNUSED = """
void planted_count(int times);
void planted_count(int times)
{
	int planted_unused = 0;

	while (times--)
		planted_unused++;
}
"""


def plant_unused():
    """W=1 sees an unused variable that only clang knows to be one."""
    compiler_tools("clang")
    rows = compile_planted(PLANT_UNUSED).warnings
    if any("planted_unused" in row for row in rows):
        raise Fail("gcc sees it too: this proves nothing")
    must_find("clang", compile_planted(PLANT_UNUSED, "clang").warnings,
              "planted_unused")


def plant_sparse():
    """sparse sees a user pointer that is dereferenced."""
    get_sparse()
    check_sparse_runs()


def plant_link():
    """The documents' build sees a link to nowhere."""
    tree = gate_tree("applied")
    pages = [path for path in touched_files(series_patches())
             if path.startswith(f"Documentation/{DOCS}/")
             and path.endswith(".rst")]
    page = (pages + [f"Documentation/{DOCS}/buslock.rst"])[0]
    with planted(tree, page, "\nSee :ref:`planted-nowhere`.\n"):
        must_find("Sphinx", docs_warnings(tree, [DOCS]), "planted-nowhere")


def commit_file(parent, path, text, subject):
    """Commit a file's text above a commit; returns the new commit (str)."""
    with tempfile.TemporaryDirectory(prefix="export-", dir=BUILD) as place:
        index = {"GIT_INDEX_FILE": str(Path(place) / "index")}
        git("read-tree", parent, cwd=REPO, env=index)
        blob = git("hash-object", "-w", "--stdin", cwd=REPO,
                   data=text).strip()
        git("update-index", "--cacheinfo", f"100644,{blob},{path}", cwd=REPO,
            env=index)
        tree = git("write-tree", cwd=REPO, env=index).strip()
    who = {"GIT_AUTHOR_NAME": "series", "GIT_AUTHOR_EMAIL": "s@localhost"}
    return git("commit-tree", tree, "-p", parent, "-m", subject, cwd=REPO,
               env=who).strip()


def plant_prefix():
    """The short bisection sees a patch that needs the next one to build."""
    path = victim()
    text = git("show", f"applied:{path}", cwd=REPO)
    user = "\nint planted_user(void)\n{\n\treturn planted_helper();\n}\n"
    first = commit_file("applied", path, text + user, "Use it")
    second = commit_file(
        first, path, text + "\nint planted_user(void);\n"
        "static int planted_helper(void)\n{\n\treturn 1;\n}\n" + user,
        "Define it")
    check_prefix(second, [path], Counter())
    must_fail(check_prefix, first, [path], Counter(), says="planted_helper")


def plant_copy():
    """The comparison sees an exported copy that is out of sync."""
    with tempfile.TemporaryDirectory(prefix="export-", dir=BUILD) as place:
        write_export(git("rev-parse", "applied", cwd=REPO).strip(),
                     Path(place))
        copies = [path for copy in COPIES.values()
                  for path in sorted((Path(place) / copy).rglob("*"))
                  if path.is_file()]
        if not copies:
            raise Fail("nothing is exported as a copy")
        if differences(place):
            raise Fail("the copies are out of sync without it")
        with open(copies[0], "a") as file:
            file.write("\n")
        name = str(copies[0].relative_to(place))
        must_find("the comparison", differences(place), name, "differs")


PLANTS = {"a trailing space": plant_space,
          "a missing include": plant_include,
          "a new sparse warning": plant_sparse,
          "an unused variable only clang sees": plant_unused,
          "a broken rst link": plant_link,
          "a patch that does not build alone": plant_prefix,
          "an exported copy out of sync": plant_copy}


def group_planted(tally):
    """Planted faults are caught."""
    begin()
    for name, function in PLANTS.items():
        tally.run(f"planted: {name}", function)


# --- the edit loop ---------------------------------------------------------

def group_quick(tally):
    """Patch files, touched objects with gcc, some tests of the scripts."""
    check.group_series(tally)
    touched = touched_files(series_patches())
    title = "W=1: wide, gcc"
    try:
        objects = compare("wide", "gcc", touched)
        tally.ok(f"{title}: {len(objects)} objects")
    except Fail as failure:
        tally.fail(title, failure)
    try:
        count = check_programs("applied", touched)
        tally.ok(f"selftests: -Wall, gcc: {count} programs")
    except Fail as failure:
        tally.fail("selftests: -Wall, gcc", failure)
    for name in QUICK_TESTS:
        suite = unittest.defaultTestLoader.discover(
            str(ROOT / "tests"), pattern=f"{name}.py")
        result = unittest.TestResult()
        for test in flatten(suite):
            test.run(result)
        title = f"scripts: {name}, {result.testsRun} tests"
        wrong = result.failures + result.errors
        if wrong or not result.testsRun:
            tally.fail(title, wrong[0][1].strip().splitlines()[-1]
                       if wrong else "no test ran")
        else:
            tally.ok(title)


def begin():
    """Make sure of the base, the series and the logs' folder."""
    LOGS.mkdir(parents=True, exist_ok=True)
    get_base()
    apply_series()


GATES = {"matrix": group_matrix, "programs": group_programs,
         "sparse": group_sparse, "coccicheck": group_cocci,
         "kerneldoc": group_kerneldoc, "docs": group_docs,
         "i386": group_i386, "xen": group_xen, "preempt": group_preempt,
         "installs": group_installs, "planted": group_planted,
         "bisect": group_bisect, "quick": group_quick}
USUAL_GATES = tuple(name for name in GATES if name not in ("bisect",
                                                           "quick"))
# What 'make check' runs as they are.
CHECKED = ("programs", "coccicheck", "kerneldoc", "docs")
# What 'make check-all' runs besides.
ALL_GATES = tuple(name for name in (*USUAL_GATES, "bisect")
                  if name not in CHECKED)


def main():
    parser = argparse.ArgumentParser(description=__doc__.split("\n\n")[0])
    parser.add_argument("--only", action="append", choices=list(GATES),
                        help="run only this gate (may be repeated; default: "
                             f"{', '.join(USUAL_GATES)})")
    parser.add_argument("--all", action="store_true",
                        help="run what 'make check' and 'make check-debug' "
                             "run too, the gates and the bisection")
    parser.add_argument("--config", action="append", choices=list(MATRIX),
                        help="matrix: only this configuration (may be "
                             "repeated)")
    parser.add_argument("--published", action="store_true",
                        help="bisect: take the prefixes of "
                        "results/bisect.json, which are the same to the "
                        "byte, as passed")
    parser.add_argument("--publish", action="store_true",
                        help="only copy the prefixes known to pass to "
                        "results/bisect.json")
    options = parser.parse_args()
    if options.publish:
        publish()
        return 0
    if options.published:
        KNOWN_PREFIXES.append(PUBLISHED)
    CHOSEN.extend(options.config or ())
    first, groups = {}, {name: GATES[name]
                         for name in options.only or USUAL_GATES}
    if options.all:
        first = {name: GROUPS[name] for name in (*USUAL, "debug")
                 if name != "matrix"}
        groups = {name: GATES[name] for name in ALL_GATES}
    start = time.monotonic()
    tally = Tally()
    LOGS.mkdir(parents=True, exist_ok=True)
    with build_lock():
        check.run_groups(tally, first, "check")
        check.run_groups(tally, groups, None if CHOSEN else "gates")
    say(f"took {duration(time.monotonic() - start)}")
    say(f"{tally.passed} passed, {tally.failed} failed, "
        f"{tally.skipped} skipped")
    return 1 if tally.failed or not tally.passed else 0


if __name__ == "__main__":
    run_main(main)
