#!/usr/bin/env python3
# SPDX-License-Identifier: GPL-2.0-only
"""Write patches/, series, selftests/ and Documentation/ from the work tree.

One patch file per commit of build/tree above the base.  selftests/ and
Documentation/ get copies of the files that the series adds below
tools/testing/selftests and Documentation, to be read without a kernel tree.
An unchanged tree changes nothing, byte for byte.
"""

import argparse
import filecmp
import re
import shutil
import tempfile
from pathlib import Path

from apply import apply_series
from base import REPO, get_base
from common import (BUILD, ROOT, Fail, build_lock, git, run_main, say)

TREE = BUILD / "tree"
# The folders of a kernel tree whose added files are copied, and to where.
COPIES = {"tools/testing/selftests/": "selftests/",
          "Documentation/": "Documentation/"}
EXPORTED = ("patches", "series", *(v.rstrip("/") for v in COPIES.values()))
# Headings of the series file: the first pattern that the patch's subject
# matches, or its Fixes: tag.
HEADINGS = (
    (r"^sched", "sched_yield(): one tick, and the CPU handed over"),
    (r"^selftests?/", "Tests and measurements"),
    (r"^Documentation|^docs", "Documents"),
    (r"^x86/(ioperm|iopl|ioport|process)", "x86: I/O bitmaps"),
)
FIXES = "Fixes: these need none of the others"


def heading(text):
    """Return the heading (str) under which a patch's text belongs."""
    subject = re.search(r"^Subject: \[PATCH\] (.*)$", text, re.M).group(1)
    if re.search(r"^Fixes: [0-9a-f]{12} ", text, re.M):
        return FIXES
    for pattern, title in HEADINGS:
        if re.search(pattern, subject):
            return title
    return "Others"


def rebasing():
    """Return the folders (list of Path) that keep an unfinished rebase."""
    places = [TREE / git("rev-parse", "--git-path", state, cwd=TREE).strip()
              for state in ("rebase-merge", "rebase-apply")]
    return [place for place in places if place.exists()]


def check_commits(tip):
    """Raise Fail when a commit of base..tip cannot become a patch."""
    if git("rev-list", "--merges", f"base..{tip}", cwd=REPO).strip():
        raise Fail("the work tree's history has a merge: rebase it to one "
                   "line of commits above 'base'")
    rows = git("log", "--format=%H %T %P %s", f"base..{tip}",
               cwd=REPO).splitlines()
    rows = [row.split(" ", 3) for row in rows]
    trees = {commit: tree for commit, tree, _, _ in rows}
    base_tree = git("rev-parse", "base^{tree}", cwd=REPO).strip()
    for commit, tree, parent, subject in rows:
        if not subject.strip():
            raise Fail(f"commit {commit[:12]} has no subject: give it one "
                       "(git rebase -i base, reword)")
        if trees.get(parent, base_tree) == tree:
            raise Fail(f"commit {commit[:12]} ({subject}) changes nothing: "
                       "drop it (git rebase -i base)")


def write_export(tip, place):
    """Write the export of base..tip below place (Path).

    Returns the patch names (list of str).  Raises Fail when a commit is a
    merge or does not fit (empty, no subject).
    """
    check_commits(tip)
    patches = place / "patches"
    patches.mkdir(parents=True)
    listed = git("format-patch", "-q", "--no-numbered", "--zero-commit",
                 "--no-signature", "--no-renames", "--no-base",
                 "--no-thread", "--diff-algorithm=histogram", "--unified=3",
                 "--stat=72", "--abbrev=12", "--src-prefix=a/",
                 "--dst-prefix=b/", "--filename-max-length=60",
                 "-o", patches, f"base..{tip}", cwd=REPO)
    del listed
    names = sorted(path.name for path in patches.iterdir())
    rows = ["# Linux v7.3: apply in this order, from the top of the tree, "
            "with -p1.", "# Written by 'make export'."]
    last = None
    for name in names:
        title = heading((patches / name).read_text(errors="surrogateescape"))
        if title != last:
            rows += ["", f"# {title}"]
            last = title
        rows.append(name)
    (place / "series").write_text("\n".join(rows) + "\n")

    added = git("diff", "--name-only", "--no-renames", "--diff-filter=A",
                f"base..{tip}", cwd=REPO).split()
    for source, copy in COPIES.items():
        (place / copy).mkdir(exist_ok=True)
        for path in added:
            if path.startswith(source):
                target = place / copy / path[len(source):]
                target.parent.mkdir(parents=True, exist_ok=True)
                target.write_bytes(git("cat-file", "blob", f"{tip}:{path}",
                                       cwd=REPO, raw=True))
    return names


def listing(place):
    """Return the exported files below place (set of str paths)."""
    found = set()
    for part in EXPORTED:
        path = Path(place) / part
        if path.is_file():
            found.add(part)
        found |= {str(file.relative_to(place))
                  for file in path.rglob("*") if file.is_file()}
    # What the repository keeps beside the copies is not an export.
    return {name for name in found if not name.endswith("/README.md")}


def differences(place):
    """Return what differs (list of str) between place and the repository."""
    ours, theirs = listing(ROOT), listing(place)
    rows = [f"{name} is not exported" for name in sorted(ours - theirs)]
    rows += [f"{name} is missing" for name in sorted(theirs - ours)]
    rows += [f"{name} differs" for name in sorted(ours & theirs)
             if not filecmp.cmp(ROOT / name, Path(place) / name, False)]
    return rows


def install(place):
    """Make the repository's exported files those below place."""
    ours, theirs = listing(ROOT), listing(place)
    for name in sorted(ours - theirs):
        (ROOT / name).unlink()
    for name in sorted(theirs):
        target = ROOT / name
        if not target.exists() or not filecmp.cmp(
                target, Path(place) / name, False):
            target.parent.mkdir(parents=True, exist_ok=True)
            partial = target.with_name(target.name + ".partial")
            shutil.copyfile(Path(place) / name, partial)
            partial.replace(target)


def main():
    parser = argparse.ArgumentParser(
        description=__doc__.split("\n\n")[0])
    parser.add_argument("--check", action="store_true",
                        help="change nothing: fail when patches/ would come "
                             "out different if applied and exported again, "
                             "or a copy does not match")
    options = parser.parse_args()
    with build_lock():
        if options.check:
            get_base()
            tip = apply_series()
        else:
            if not (TREE / ".git").exists():
                raise Fail("there is no work tree to export: run 'make tree'")
            if rebasing():
                raise Fail("build/tree is in the middle of a rebase: finish "
                           "it (git rebase --continue) or give it up (git "
                           "rebase --abort)")
            if git("status", "--porcelain", "-uno", cwd=TREE).strip():
                raise Fail("build/tree has uncommitted changes: commit them "
                           "to the patch they belong to (git commit --fixup, "
                           "git rebase -i --autosquash base), or stash them")
            tip = git("rev-parse", "HEAD", cwd=TREE).strip()
            if git("merge-base", "base", tip, cwd=TREE,
                   check=False) != git("rev-parse", "base", cwd=TREE):
                raise Fail("build/tree is not on top of 'base': rebase it "
                           "(git rebase base)")
        with tempfile.TemporaryDirectory(prefix="export-", dir=BUILD) as temp:
            names = write_export(tip, Path(temp))
            changes = differences(temp)
            if options.check:
                if changes:
                    raise Fail("the exported files are not what the patches "
                               "give ('make tree', then 'make export'):\n  "
                               + "\n  ".join(changes))
                say(f"in sync: {len(names)} patches and their copies")
                return
            install(temp)
    for change in changes:
        say(f"    {change}: written" if "not exported" not in change
            else f"    {change}: removed")
    say(f"exported {len(names)} patches"
        + ("" if changes else ": nothing changed"))


if __name__ == "__main__":
    run_main(main)
