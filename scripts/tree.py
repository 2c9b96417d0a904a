#!/usr/bin/env python3
# SPDX-License-Identifier: GPL-2.0-only
"""Make build/tree: a git tree of the base with one commit per patch.

Branch `work` on top of `base`.  Rebase it freely, then 'make export'.  A
tree with work that was not exported is never touched.
"""

import argparse
import os
import shutil
import tempfile
from pathlib import Path

from apply import apply_series
from base import REPO, get_base
from common import (BUILD, Fail, build_lock, git, need_space, run_main, say,
                    stage)
from export import TREE, differences, rebasing, write_export


def made():
    """Return the commit (str) that build/tree was made at, or ''."""
    return git("rev-parse", "-q", "--verify", "refs/made", cwd=REPO,
               check=False).strip()


def unexported():
    """Return what build/tree holds that patches/ does not (list of str)."""
    # A file that was never added is work too.
    rows = git("status", "--porcelain", cwd=TREE).splitlines()
    if rebasing():
        rows.append("a rebase that is not finished")
    # Untouched since it was made, so there is nothing to lose.
    if rows or git("rev-parse", "HEAD", cwd=TREE).strip() == made():
        return rows
    with tempfile.TemporaryDirectory(prefix="export-", dir=BUILD) as temp:
        write_export(git("rev-parse", "HEAD", cwd=TREE).strip(), Path(temp))
        rows += differences(temp)
    return rows


def check_exported():
    """Raise Fail when build/tree holds work that would be lost."""
    rows = unexported()
    if rows:
        raise Fail("build/tree has work that patches/ does not have "
                   f"({', '.join(row.strip() for row in rows[:3])}"
                   f"{', ...' if rows[3:] else ''}): 'make export' to keep "
                   "it, FORCE=1 to throw it away")


def move(tip):
    """Check build/tree out at a commit, whatever it holds."""
    for state in rebasing():
        shutil.rmtree(state)
    try:
        git("checkout", "-q", "-f", "-B", "work", tip, cwd=TREE)
    except BaseException:
        # Half way between two commits it would look like unexported work.
        git("reset", "-q", "--hard", cwd=TREE, check=False)
        raise


def main():
    parser = argparse.ArgumentParser(
        description=__doc__.split("\n\n")[0],
        epilog="FORCE=1 throws away what build/tree has and starts again.")
    parser.add_argument("--is-exported", action="store_true",
                        help="change nothing: fail when build/tree has what "
                             "patches/ does not have")
    options = parser.parse_args()
    with build_lock():
        if options.is_exported:
            if (TREE / ".git").exists():
                check_exported()
            return
        get_base()
        tip = apply_series()
        if (TREE / ".git").exists():
            at = git("rev-parse", "HEAD", cwd=TREE).strip()
            dirty = git("status", "--porcelain", "-uno", cwd=TREE).strip()
            force = os.environ.get("FORCE") == "1"
            if at == tip and not dirty and not (force and rebasing()):
                git("update-ref", "refs/made", tip, cwd=REPO)
                say("build/tree is up to date (branch work)")
                return
            if not force:
                check_exported()
            with stage("moving build/tree to the patches' state"):
                move(tip)
        else:
            need_space(BUILD, 3, "the work tree")
            partial = BUILD / "tree.partial"
            for place in (TREE, partial):
                shutil.rmtree(place, ignore_errors=True)
            git("worktree", "prune", cwd=REPO)
            with stage("checking out build/tree"):
                try:
                    git("worktree", "add", "-q", "-f", "-B", "work", partial,
                        tip, cwd=REPO)
                    git("worktree", "move", partial, TREE, cwd=REPO)
                except BaseException:
                    shutil.rmtree(partial, ignore_errors=True)
                    git("worktree", "prune", cwd=REPO, check=False)
                    raise
        git("update-ref", "refs/made", tip, cwd=REPO)
    say("build/tree: branch work, one commit per patch above base; change "
        "it, then 'make export'")


if __name__ == "__main__":
    run_main(main)
