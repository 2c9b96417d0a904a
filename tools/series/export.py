# SPDX-License-Identifier: GPL-2.0-only
"""Write patches/, series, selftests/ and Documentation/ from build/tree.

One patch file per commit of build/tree above the base.  selftests/ and
Documentation/ get copies of the files that the series adds below
tools/testing/selftests and Documentation, to be read without a kernel tree.
An unchanged tree changes nothing, byte for byte.

With KERNEL=, patches/KERNEL/series names the file of patches/ where that does
the same, and one of patches/KERNEL/ where it does not; copies are not made.
"""

import argparse
import itertools
import re
from pathlib import Path

from tools.core import (BUILD, KERNEL, ROOT, Fail, build_lock, git, run_git,
                        run_main, say, scratch, write_atomically)
from tools.series.apply import PATCHES, SERIES
from tools.series.base import REPO, wanted

TREE = BUILD / "tree"
# The folders of a kernel tree whose added files are copied, and to where.
COPIES = {} if KERNEL else {"tools/testing/selftests/": "selftests/",
                            "Documentation/": "Documentation/"}
# Headings of the series file: the first pattern that is found in a patch.
HEADINGS = (
    (r"^Fixes: [0-9a-f]{12} ", "Fixes: these need none of the others"),
    (r"^Subject: \[PATCH\] sched", "sched_yield(): a tick"),
    (r"^Subject: \[PATCH\] selftests?/", "Tests and measurements"),
    (r"^Subject: \[PATCH\] (Documentation|docs)", "Documents"),
    (r"^Subject: \[PATCH\] x86/(ioperm|iopl|ioport|process)",
     "x86: I/O bitmaps"),
    (r"^Subject: \[PATCH\] \S", "Others"),
)


def rebasing() -> list[Path]:
    """Return the folders that keep an unfinished rebase of build/tree."""
    places = [TREE / git("rev-parse", "--git-path", state, cwd=TREE).strip()
              for state in ("rebase-merge", "rebase-apply")]
    return [place for place in places if place.exists()]


def heading(patch: Path) -> str:
    """Return the heading under which a patch belongs."""
    text = patch.read_text(errors="surrogateescape")
    # Of an empty commit git 2.39 writes an empty file, 2.47 a mail without a
    # diff.
    changes = "\ndiff --git " in text
    for pattern, title in HEADINGS:
        if changes and re.search(pattern, text, re.M):
            return title
    raise Fail(f"the commit of {patch.name} " + ("has no subject" if changes
               else "changes nothing") + ": mend it with 'git rebase -i base'")


def does_the_same(patch: Path, other: Path, commit: str) -> bool:
    """Tell whether a patch has the author, subject and changelog of another
    one, and makes, without fuzz, that one's commit of its parent."""
    one, two = (path.read_text(errors="surrogateescape").partition("\n---\n")[
        0].partition("\n")[2] for path in (patch, other))
    with scratch("same") as place:
        index = {"GIT_INDEX_FILE": str(place / "index")}
        git("read-tree", f"{commit}^", cwd=REPO, env=index)
        if one != two or run_git("apply", "--cached", patch, cwd=REPO,
                                 env=index).returncode:
            return False
        return git("write-tree", cwd=REPO, env=index) == \
            git("rev-parse", f"{commit}^{{tree}}", cwd=REPO)


def share(place: Path, tip: str) -> list[str]:
    """Remove from place the patches that patches/ has; return all names, which
    are relative to patches/.  What it has in another form gets its number."""
    ours = {path.name[5:]: path for path in PATCHES.glob("*.patch")}
    commits = git("rev-list", "--reverse", f"base..{tip}", cwd=REPO).split()
    names = []
    for path, commit in zip(sorted(place.iterdir()), commits, strict=True):
        own = ours.get(path.name[5:], path)
        if own != path and does_the_same(own, path, commit):
            path.unlink()
            names.append(own.name)
        else:
            path.rename(place / own.name)
            names.append(f"{KERNEL}/{own.name}")
    return names


def write_export(tip: str, place: Path) -> list[str]:
    """Write the export of base..tip below place; return the patch names.

    Raises Fail when a commit is a merge, changes nothing or has no subject.
    """
    if git("rev-list", "--merges", f"base..{tip}", cwd=REPO):
        raise Fail("the work tree's history has a merge: rebase it to one "
                   "line of commits above 'base'")
    patches = place / "patches" / KERNEL
    patches.mkdir(parents=True)
    # The user's own configuration is not read, see tools/gitconfig.
    git("format-patch", "-q", "--no-numbered", "--zero-commit",
        "--no-signature", "--no-renames", "--diff-algorithm=histogram",
        "--stat=72", "--filename-max-length=60", "-o", patches,
        f"base..{tip}", cwd=REPO)
    names = share(patches, tip) if KERNEL else \
        sorted(path.name for path in patches.iterdir())
    rows = ["# SPDX-License-Identifier: GPL-2.0-only",
            f"# Linux v{wanted()['VERSION']}: apply in this order, from the "
            "top of the tree, with -p1.", "# Written by 'make export"
            f"{f' KERNEL={KERNEL}' if KERNEL else ''}'."]
    for title, group in itertools.groupby(names, lambda name: heading(
            max(place / "patches" / name, PATCHES / name, key=Path.exists))):
        rows += ["", f"# {title}", *group]
    (place / SERIES.relative_to(ROOT)).write_text("\n".join(rows) + "\n")

    for folder, copy in COPIES.items():
        for path in git("diff", "--name-only", "--no-renames",
                        "--diff-filter=A", f"base..{tip}", "--", folder,
                        cwd=REPO).split():
            write_atomically(
                place / copy / path.removeprefix(folder),
                git("cat-file", "blob", f"{tip}:{path}", cwd=REPO, raw=True))
    return names


def exported(place: Path) -> dict[str, bytes]:
    """Return the exported files below place."""
    paths = [place / SERIES.relative_to(ROOT),
             *(place / "patches" / KERNEL).glob("*")]
    for part in COPIES.values():
        paths += (place / part).rglob("*")
    # A README.md beside the copies, for instance, is the repository's own.
    return {str(path.relative_to(place)): path.read_bytes()
            for path in paths if path.is_file() and path.suffix != ".md"}


def differences(place: Path) -> dict[str, str]:
    """Return {file: how} the repository differs from an export at place."""
    ours, theirs = exported(ROOT), exported(place)
    return {name: "is not exported" if name not in theirs else
            "is missing" if name not in ours else "differs"
            for name in sorted(ours | theirs)
            if ours.get(name) != theirs.get(name)}


def tree_tip() -> str:
    """Return the commit of build/tree; Fail when it cannot be exported."""
    if not (TREE / ".git").exists():
        raise Fail("there is no work tree to export: run 'make tree'")
    if rebasing():
        raise Fail("build/tree is in the middle of a rebase: finish it (git "
                   "rebase --continue) or give it up (git rebase --abort)")
    if git("status", "--porcelain", "-uno", cwd=TREE).strip():
        raise Fail("build/tree has uncommitted changes: commit them to the "
                   "patch they belong to (git commit --fixup, git rebase -i "
                   "--autosquash base), or stash them")
    if git("merge-base", "base", "HEAD", cwd=TREE, check=False) != \
            git("rev-parse", "base", cwd=TREE):
        raise Fail("build/tree is not on top of 'base': rebase it (git "
                   "rebase base)")
    return git("rev-parse", "HEAD", cwd=TREE).strip()


def main() -> None:
    argparse.ArgumentParser(description=__doc__).parse_args()
    with build_lock(), scratch("export") as place:
        names = write_export(tree_tip(), place)
        changes = differences(place)
        for name in changes:
            if (place / name).exists():
                write_atomically(ROOT / name, (place / name).read_bytes())
                say(f"    written: {name}")
            else:
                (ROOT / name).unlink()
                say(f"    removed: {name}")
    say(f"exported {len(names)} patches"
        + ("" if changes else ": nothing changed"))


if __name__ == "__main__":
    run_main(main)
