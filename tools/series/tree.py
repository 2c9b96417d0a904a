# SPDX-License-Identifier: GPL-2.0-only
"""Make build/tree: a git tree of the base with one commit per patch.

Branch `work` on top of `base`.  Rebase it freely, then 'make export'.  A
tree with work that was not exported is never touched.
"""

import argparse
import os
import shutil

from tools.core import (BUILD, KERNEL, Fail, build_lock, git, need_space,
                        run_main, say, scratch, shown_path, stage)
from tools.series.apply import begin
from tools.series.base import REPO, commit_of
from tools.series.export import TREE, differences, rebasing, write_export


def check_exported() -> None:
    """Raise Fail when build/tree holds work that would be lost."""
    # A file that was never added is work too.
    rows = git("status", "--porcelain", cwd=TREE).splitlines()
    if rebasing():
        rows.append("a rebase that is not finished")
    head = git("rev-parse", "HEAD", cwd=TREE).strip()
    # Untouched since it was made, there is nothing to lose.
    if not rows and head != commit_of("refs/made"):
        with scratch("export") as place:
            write_export(head, place)
            rows = [*map(" ".join, differences(place).items())]
    if rows:
        raise Fail("build/tree has work that patches/ does not have "
                   f"({', '.join(row.strip() for row in rows[:3])}"
                   f"{', ...' if rows[3:] else ''}): 'make export' to keep "
                   "it, FORCE=1 to throw it away")


def check_out(tip: str) -> None:
    """Make build/tree at a commit; it is there only when it is whole."""
    need_space(BUILD, 3, "the work tree")
    shutil.rmtree(TREE, ignore_errors=True)
    git("worktree", "prune", cwd=REPO)
    with stage("checking out build/tree"), scratch("tree") as place:
        try:
            git("worktree", "add", "-q", "-f", "-B", "work", place / "tree",
                tip, cwd=REPO)
            git("worktree", "move", place / "tree", TREE, cwd=REPO)
        finally:
            shutil.rmtree(place, ignore_errors=True)
            git("worktree", "prune", cwd=REPO, check=False)


def move(tip: str) -> None:
    """Check build/tree out at a commit, whatever it holds."""
    for state in rebasing():
        shutil.rmtree(state)
    with stage("moving build/tree to the patches' state"):
        try:
            git("checkout", "-q", "-f", "-B", "work", tip, cwd=TREE)
        except BaseException:
            # Half way between two commits it would look like work.
            git("reset", "-q", "--hard", cwd=TREE, check=False)
            raise


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__.split("\n\n")[0],
        epilog="FORCE=1 throws away what build/tree has and starts again.")
    parser.add_argument("--is-exported", action="store_true",
                        help="change nothing: fail when build/tree has what "
                             "patches/ does not have")
    options = parser.parse_args()
    with build_lock():
        there = (TREE / ".git").exists()
        if options.is_exported:
            if there:
                check_exported()
            return
        tip = begin()
        if not there:
            check_out(tip)
        elif os.environ.get("FORCE") == "1":
            move(tip)
        elif git("rev-parse", "HEAD", cwd=TREE).strip() != tip \
                or git("status", "--porcelain", "-uno", cwd=TREE).strip():
            check_exported()
            move(tip)
        git("update-ref", "refs/made", tip, cwd=REPO)
    say(f"{shown_path(TREE)}: branch work, one commit per patch above base; "
        "change it, then 'make export" + f" KERNEL={KERNEL}" * bool(KERNEL)
        + "'")


if __name__ == "__main__":
    run_main(main)
