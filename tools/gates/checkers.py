# SPDX-License-Identifier: GPL-2.0-only
"""Gates that read the code: sparse, Coccinelle, kernel-doc, Sphinx.

Each has to find a fault that is planted before it counts.
"""

import os
import re
import shutil
import subprocess
from collections import Counter
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

from tools.build import make_environment, source, warnings_in
from tools.core import (BUILD, CPUS, LOGS, Fail, need_tool, run_logged,
                        scratch, shown_path, stage, tail)
from tools.count import Count
from tools.gates.compile import (SPARSE, VICTIM, find_fault, group, refuse,
                                 touched)
from tools.guest import VENV
from tools.series.apply import is_kernel
from tools.series.base import private_apt

# Where a sparse that 7.3 takes is found; the distribution's own is too old.
SPARSE_SUITES = ("forky", "sid")
# Rules about helpers that only the kernel has: not for user-space programs.
KERNEL_RULES = ("api/string_choices.cocci", "misc/minmax.cocci",
                "misc/swap.cocci")


def get_sparse() -> None:
    """Build sparse from a newer source package, once."""
    need_tool("dpkg-source", "dpkg-dev")
    log = LOGS / "sparse.log"
    SPARSE.parent.mkdir(parents=True, exist_ok=True)
    for suite in SPARSE_SUITES:
        config = {"APT_CONFIG": str(private_apt(suite, source=True))}
        with stage(f"building sparse of {suite}"), scratch("sparse") as place:
            # The package names a compiler that only its own suite has.
            if not run_logged(
                    ["sh", "-ec", "apt-get update; apt-get source sparse; "
                     "make -C sparse-*/ CC=gcc NO_LLVM=1 sparse; "
                     f"cp sparse-*/sparse {SPARSE}"], log, cwd=place,
                    env=make_environment() | config, check=False):
                return
    raise Fail(f"no sparse from {' or '.join(SPARSE_SUITES)}: name another "
               "mirror in the apt sources, or put a sparse of 0.6.5 or later "
               f"at {shown_path(SPARSE)}; the end of {shown_path(log)}:\n"
               + tail(log))


def group_sparse(count: Count) -> None:
    """sparse (C=2) says nothing new about the touched files."""
    if not SPARSE.exists():
        get_sparse()
    group(count, "sparse")


def run_rule(rule: Path, tree: Path, files: list[str]
             ) -> Counter[str] | str:
    """Run a Coccinelle rule in report mode; return its findings, without line
    numbers, or why it could not run."""
    text = rule.read_text()
    if not re.search(r"^virtual\s+(?:\w+\s*,\s*)*report\b", text, re.M):
        return "has no report mode"
    options = re.findall(r"^// Options?:(.*)$", text, re.M)[:1]
    done = subprocess.run(
        ["spatch", "-D", "report", "--no-show-diff", "--very-quiet",
         "--timeout", "300", "--cocci-file", str(rule),
         *" ".join(options).split(), "-I", "arch/x86/include", "-I",
         "include", "-I", "arch/x86/include/uapi", "-I", "include/uapi",
         *files], cwd=tree, capture_output=True, text=True, errors="replace")
    words = (done.stderr or done.stdout).strip()
    if done.returncode or re.search(
            r"exception|fatal error|EXN:|semantic error|not found",
            done.stderr, re.I):
        return words.rpartition("\n")[2] or f"status {done.returncode}"
    return Counter(re.sub(r"\d+", "N", row)
                   for row in done.stdout.splitlines()
                   if any(path in row for path in files))


def group_cocci(count: Count) -> None:
    """The kernel's Coccinelle rules find nothing new."""
    need_tool("spatch", "coccinelle")
    place = source("applied") / "scripts/coccinelle"
    rules = {str(path.relative_to(place)): path
             for path in sorted(place.rglob("*.cocci"))}
    count.run("coccicheck: finds semicolon.c", find_fault,
              lambda tree: run_rule(rules["misc/semicolon.cocci"], tree,
                                    [VICTIM]),
              "semicolon.c", VICTIM, "semicolon")

    def run_all(tree: Path) -> list[Counter[str] | str]:
        files = touched(tree, ".c", ".h")
        with stage(f"running {len(rules)} Coccinelle rules"), \
                ThreadPoolExecutor(CPUS) as pool:
            return list(pool.map(lambda name: run_rule(
                rules[name], tree, [path for path in files if is_kernel(path)
                                    or name not in KERNEL_RULES]), rules))

    base, series = run_all(source("base")), run_all(source("applied"))
    for name, before, after in zip(rules, base, series):
        if isinstance(after, str):
            count.skip(f"coccicheck: {name}", after)
        elif after:
            count.run(f"coccicheck: {name}", refuse, before, after)
    ran = sum(not isinstance(after, str) for after in series)
    count.test(f"coccicheck: {ran} of {len(rules)} rules ran",
               ran * 10 < len(rules) * 9 and "9 in 10 have to")


def kernel_doc(tree: Path) -> Counter[str]:
    """Return kernel-doc's warnings about the touched files of a tree."""
    tool = next(tree / place for place in ("tools/docs", "scripts")
                if (tree / place / "kernel-doc").exists())
    # That of 6.1 has no more warnings to turn on.
    more = ["-Wall"] * ("-Wall" in (tool / "kernel-doc").read_text())
    done = subprocess.run(
        [f"{tool}/kernel-doc", "-none", *more, *touched(tree, ".c", ".h")],
        cwd=tree, text=True, capture_output=True, errors="replace",
        env=make_environment())
    words = done.stdout + done.stderr
    if re.search("Traceback|No such file|^usage:", words, re.I | re.M):
        raise Fail(f"kernel-doc did not run: {words.strip()[-300:]}")
    return warnings_in(words)


def group_kerneldoc(count: Count) -> None:
    """kernel-doc says nothing new."""
    count.run("kernel-doc: finds parameter.c", find_fault, kernel_doc,
              "parameter.c", VICTIM, "planted_number")
    count.run("kernel-doc", refuse, kernel_doc(source("base")),
              kernel_doc(source("applied")))


def docs_warnings(tree: Path) -> Counter[str]:
    """Build the documents of the touched pages' folders with the kernel's own
    set-up; return the warnings, Fail when a page does not come out."""
    pages = [page for page in touched(tree, ".rst") if page.count("/") > 1]
    folders = sorted({str(Path(page).parent) for page in pages})
    output, log = BUILD / "obj/docs", LOGS / f"docs-{tree.name}.log"
    # A page that is not read again does not warn again.
    shutil.rmtree(output, ignore_errors=True)
    output.mkdir(parents=True)
    with stage(f"building the documents of {tree.name}"):
        run_logged(["make", "-C", str(tree), f"O={output}", "htmldocs",
                    "SPHINXDIRS=" + " ".join(
                        folder.partition("/")[2] for folder in folders)],
                   log, timeout=1800, what="make htmldocs",
                   env=make_environment() | {
                       "PATH": f"{VENV}/bin:{os.environ['PATH']}"})
    missing = {Path(page).stem for page in pages} - {
        path.stem for path in output.rglob("*.html")}
    if missing or not pages:
        raise Fail(f"{', '.join(missing)} did not come out; the end of "
                   f"{shown_path(log)}:\n{tail(log)}")
    return warnings_in(log.read_text(errors="replace"))


def group_docs(count: Count) -> None:
    """The documents build with the kernel's Sphinx without new warnings."""
    page, = touched(source("applied"), "/ioperm.rst")
    count.run("documents: finds link.rst", find_fault, docs_warnings,
              "link.rst", page, "planted-nowhere")
    count.run("documents", refuse, docs_warnings(source("base")),
              docs_warnings(source("applied")))
