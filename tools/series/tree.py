# SPDX-License-Identifier: GPL-2.0-only
"""Make build/tree: a git tree of the base with one commit per patch.

Branch `work` on top of `base`.  Rebase it freely, then 'make export'.  A
tree with work that was not exported is never touched, but with FORCE=1.
"""

import shutil
from pathlib import Path

from tools.core import (Fail, Given, Kernel, build_lock, git, need_space, say,
                        scratch, shown_path, stage)
from tools.series.apply import begin
from tools.series.base import commit_of
from tools.series.export import differences, rebasing, write_export


def check_exported(kernel: Kernel) -> None:
    """Raise Fail when build/tree holds work that would be lost."""
    tree = kernel.build / "tree"
    # A file that was never added is work too.
    rows = git("status", "--porcelain", cwd=tree).splitlines()
    if rebasing(tree):
        rows.append("a rebase that is not finished")
    head = git("rev-parse", "HEAD", cwd=tree).strip()
    # Untouched since it was made, there is nothing to lose.
    if not rows and head != commit_of(kernel, "refs/made"):
        with scratch("export") as place:
            write_export(kernel, head, place)
            rows = [*map(" ".join, differences(kernel, place).items())]
    if rows:
        raise Fail("build/tree has work that patches/ does not have "
                   f"({', '.join(row.strip() for row in rows[:3])}"
                   f"{', ...' if rows[3:] else ''}): 'make export' to keep "
                   "it, FORCE=1 to throw it away")


def check_out(kernel: Kernel, tree: Path, tip: str) -> None:
    """Make build/tree at a commit; it is there only when it is whole."""
    need_space(kernel.build, 3, "the work tree")
    shutil.rmtree(tree, ignore_errors=True)
    git("worktree", "prune", cwd=kernel.repo)
    with stage("checking out build/tree"), scratch("tree") as place:
        try:
            git("worktree", "add", "-q", "-f", "-B", "work", place / "tree",
                tip, cwd=kernel.repo)
            git("worktree", "move", place / "tree", tree, cwd=kernel.repo)
        finally:
            shutil.rmtree(place, ignore_errors=True)
            git("worktree", "prune", cwd=kernel.repo, check=False)


def move(tree: Path, tip: str) -> None:
    """Check build/tree out at a commit, whatever it holds."""
    for state in rebasing(tree):
        shutil.rmtree(state)
    with stage("moving build/tree to the patches' state"):
        try:
            git("checkout", "-q", "-f", "-B", "work", tip, cwd=tree)
        except BaseException:
            # Half way between two commits it would look like work.
            git("reset", "-q", "--hard", cwd=tree, check=False)
            raise


def main(kernel: Kernel, given: Given) -> None:
    tree, force = kernel.build / "tree", "FORCE" in given
    with build_lock(kernel):
        tip = begin(kernel)
        if not (tree / ".git").exists():
            check_out(kernel, tree, tip)
        elif force or git("rev-parse", "HEAD", cwd=tree).strip() != tip \
                or git("status", "--porcelain", "-uno", cwd=tree).strip():
            if not force:
                check_exported(kernel)
            move(tree, tip)
        git("update-ref", "refs/made", tip, cwd=kernel.repo)
    job = "make export" + (kernel.name and f" KERNEL={kernel.name}")
    say(f"{shown_path(tree)}: branch work, one commit per patch above base; "
        f"change it, then '{job}'")
