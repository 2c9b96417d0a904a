# SPDX-License-Identifier: GPL-2.0-only
"""Gates that read the code: sparse, Coccinelle, kernel-doc, Sphinx.

Each has to find a fault that is planted before it counts.
"""

import os
import re
import shutil
import subprocess
from collections import Counter
from collections.abc import Callable
from functools import partial
from pathlib import Path

from tools.build import make_environment, source, warnings_in
from tools.core import (BUILD, Fail, Kernel, at_once, need_tool, run_logged,
                        scratch, shown_path, tail)
from tools.count import Count
from tools.gates.compile import (SPARSE, TABLE, VICTIM, find_fault, group,
                                 refuse, touched)
from tools.series.apply import is_kernel
from tools.series.base import private_apt


def group_sparse(kernel: Kernel, count: Count) -> None:
    """sparse (C=2) says nothing new about the touched files."""
    if not SPARSE.exists():
        # The distribution's own is too old for 7.3; that of sid names a
        # compiler that only sid has.
        config = {"APT_CONFIG": str(private_apt(kernel, "sid", source=True))}
        SPARSE.parent.mkdir(parents=True, exist_ok=True)
        with scratch("sparse") as place:
            run_logged(["sh", "-ec", "apt-get update; apt-get source sparse; "
                        "make -C sparse-*/ CC=gcc NO_LLVM=1 sparse; "
                        f"cp sparse-*/sparse {SPARSE}"],
                       kernel.logs / "sparse.log", cwd=place,
                       env=make_environment() | config, what="building sparse "
                       f"(or put 0.6.5 or later at {shown_path(SPARSE)})")
    group(kernel, count, "sparse")


def run_rule(rule: Path, tree: Path, files: list[str]) -> Counter[str]:
    """Return what a Coccinelle rule reports, without line numbers; Fail when
    it did not run."""
    options = re.findall(r"^// Options?:(.*)$", rule.read_text(), re.M)[:1]
    done = subprocess.run(
        ["spatch", *TABLE["coccicheck"]["options"].split(), "--cocci-file",
         str(rule), *" ".join(options).split(), *files], cwd=tree,
        capture_output=True, text=True, errors="replace")
    if done.returncode or re.search(
            r"exception|fatal error|EXN:|semantic error|not found",
            done.stderr, re.I):
        words = (done.stderr or done.stdout).strip()
        raise Fail(words.rpartition("\n")[2] or f"status {done.returncode}")
    return Counter(re.sub(r"\d+", "N", row)
                   for row in done.stdout.splitlines()
                   if any(path in row for path in files))


def group_cocci(kernel: Kernel, count: Count) -> None:
    """The kernel's Coccinelle rules find nothing new."""
    need_tool("spatch", "coccinelle")
    trees = [source(kernel, commit) for commit in ("base", "applied")]
    place = trees[1] / "scripts/coccinelle"
    find_fault(kernel, count, "coccicheck", lambda tree: run_rule(
        place / "misc/semicolon.cocci", tree, [VICTIM]))

    def compare(rule: str) -> None:
        refuse(*(run_rule(place / rule, tree, [
            path for path in touched(kernel, tree, ".c", ".h")
            if is_kernel(path) or rule not in TABLE["coccicheck"]["kernel"]])
            for tree in trees))

    rules = [str(path.relative_to(place)) for path in place.rglob("*.cocci")]
    for title, failure in at_once({
            f"coccicheck: {rule}": partial(compare, rule)
            for rule in sorted({*rules} - {*TABLE["coccicheck"]["left_out"]})},
            go_on=True).items():
        count.test(title, failure)


def kernel_doc(kernel: Kernel, tree: Path) -> Counter[str]:
    """Return kernel-doc's warnings about the touched files of a tree."""
    tool = tree / "scripts/kernel-doc"
    # That of 6.1 has no more warnings to turn on.
    more = ["-Wall"] * ("-Wall" in tool.read_text())
    done = subprocess.run(
        [tool, "-none", *more, *touched(kernel, tree, ".c", ".h")], cwd=tree,
        text=True, capture_output=True, errors="replace",
        env=make_environment())
    words = done.stdout + done.stderr
    if re.search("Traceback|No such file|^usage:", words, re.I | re.M):
        raise Fail(f"kernel-doc did not run: {words.strip()[-300:]}")
    return warnings_in(kernel, words)


def compare(kernel: Kernel, count: Count, title: str,
            tool: Callable[[Kernel, Path], Counter[str]], path: str) -> None:
    """Count whether a tool finds its fault in a file, and nothing new."""
    find_fault(kernel, count, title, partial(tool, kernel), path)
    count.run(title, lambda: refuse(*(
        tool(kernel, source(kernel, side)) for side in ("base", "applied"))))


def group_kerneldoc(kernel: Kernel, count: Count) -> None:
    """kernel-doc says nothing new."""
    compare(kernel, count, "kernel-doc", kernel_doc, VICTIM)


def docs_warnings(kernel: Kernel, tree: Path) -> Counter[str]:
    """Build the documents of the touched pages' folders with the kernel's own
    set-up; return the warnings, Fail when a page does not come out."""
    pages = [page for page in touched(kernel, tree, ".rst")
             if page.count("/") > 1]
    folders = {str(Path(page).parent).partition("/")[2] for page in pages}
    output = kernel.build / "obj/docs"
    log = kernel.logs / f"docs-{tree.name}.log"
    # A page that is not read again does not warn again.
    shutil.rmtree(output, ignore_errors=True)
    output.mkdir(parents=True)
    run_logged(["make", "-C", str(tree), f"O={output}", "htmldocs",
                f"SPHINXDIRS={' '.join(sorted(folders))}"],
               log, timeout=1800, what="make htmldocs",
               env=make_environment() | {
                   "PATH": f"{BUILD}/venv/bin:{os.environ['PATH']}"})
    missing = {Path(page).stem for page in pages} - {
        path.stem for path in output.rglob("*.html")}
    if missing or not pages:
        raise Fail(f"{', '.join(missing)} did not come out; the end of "
                   f"{shown_path(log)}:\n{tail(log)}")
    return warnings_in(kernel, log.read_text(errors="replace"))


def group_docs(kernel: Kernel, count: Count) -> None:
    """The documents build with the kernel's Sphinx without new warnings."""
    page, = touched(kernel, source(kernel, "applied"), "/ioperm.rst")
    compare(kernel, count, "documents", docs_warnings, page)
