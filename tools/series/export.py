# SPDX-License-Identifier: GPL-2.0-only
"""Write patches/, series, selftests/ and Documentation/ from build/tree.

One patch for each commit above the base, and copies of the tests and documents
that the series adds, to be read without a kernel tree.  An unchanged tree
changes nothing, byte for byte.

With KERNEL=, patches/KERNEL/series names the file of patches/ where that does
the same, and one of patches/KERNEL/ where it does not; copies are not made.
"""

import itertools
import re
from pathlib import Path

from tools.core import (PATCHES, ROOT, Fail, Given, Kernel, build_lock, git,
                        run_git, say, scratch, write_atomically)

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


def copies(kernel: Kernel) -> dict[str, str]:
    """Return the folders whose added files are copied, and to where."""
    return {} if kernel.name else {"tools/testing/selftests/": "selftests/",
                                   "Documentation/": "Documentation/"}


def rebasing(tree: Path) -> list[Path]:
    """Return the folders that keep an unfinished rebase of build/tree."""
    places = [tree / git("rev-parse", "--git-path", state, cwd=tree).strip()
              for state in ("rebase-merge", "rebase-apply")]
    return [place for place in places if place.exists()]


def heading(patch: Path) -> str:
    """Return the heading under which a patch belongs."""
    text = patch.read_text(errors="surrogateescape")
    # An empty commit's is an empty file, or (git 2.47) a mail without a diff.
    changes = "\ndiff --git " in text
    for pattern, title in HEADINGS:
        if changes and re.search(pattern, text, re.M):
            return title
    raise Fail(f"the commit of {patch.name} " + ("has no subject" if changes
               else "changes nothing") + ": mend it with 'git rebase -i base'")


def does_the_same(kernel: Kernel, patch: Path, other: Path,
                  commit: str) -> bool:
    """Tell whether a patch has the author, subject and changelog of another
    one, and makes, without fuzz, that one's commit of its parent."""
    one, two = (path.read_text(errors="surrogateescape").partition("\n---\n")[
        0].partition("\n")[2] for path in (patch, other))
    with scratch("same") as place:
        where = {"cwd": kernel.repo,
                 "env": {"GIT_INDEX_FILE": str(place / "index")}}
        git("read-tree", f"{commit}^", **where)
        return one == two \
            and not run_git("apply", "--cached", patch, **where).returncode \
            and git("write-tree", **where) == \
            git("rev-parse", f"{commit}^{{tree}}", **where)


def share(kernel: Kernel, place: Path, tip: str) -> list[str]:
    """Remove from place the patches that patches/ has; return all names, which
    are relative to patches/.  What it has in another form gets its number."""
    ours = {path.name[5:]: path for path in PATCHES.glob("*.patch")}
    commits = git("rev-list", "--reverse", f"base..{tip}",
                  cwd=kernel.repo).split()
    names = []
    for path, commit in zip(sorted(place.iterdir()), commits, strict=True):
        own = ours.get(path.name[5:], path)
        if own != path and does_the_same(kernel, own, path, commit):
            path.unlink()
            names.append(own.name)
        else:
            path.rename(place / own.name)
            names.append(f"{kernel.name}/{own.name}")
    return names


def write_export(kernel: Kernel, tip: str, place: Path) -> list[str]:
    """Write the export of base..tip below place; return the patch names."""
    if git("rev-list", "--merges", f"base..{tip}", cwd=kernel.repo):
        raise Fail("the work tree's history has a merge: rebase it to one "
                   "line of commits above 'base'")
    patches = place / "patches" / kernel.name
    patches.mkdir(parents=True)
    # The user's own configuration is not read, see tools/gitconfig.
    git("format-patch", "-q", "--no-numbered", "--zero-commit",
        "--no-signature", "--no-renames", "--diff-algorithm=histogram",
        "--stat=72", "--filename-max-length=60", "-o", patches,
        f"base..{tip}", cwd=kernel.repo)
    names = share(kernel, patches, tip) if kernel.name else \
        sorted(path.name for path in patches.iterdir())
    job = "make export" + (kernel.name and f" KERNEL={kernel.name}")
    rows = ["# SPDX-License-Identifier: GPL-2.0-only",
            f"# Linux v{kernel.version}: apply in this order, from the top of "
            "the tree, with -p1.", f"# Written by '{job}'."]
    for title, group in itertools.groupby(names, lambda name: heading(
            max(place / "patches" / name, PATCHES / name, key=Path.exists))):
        rows += ["", f"# {title}", *group]
    (place / kernel.series.relative_to(ROOT)).write_text(
        "\n".join(rows) + "\n")
    for folder, copy in copies(kernel).items():
        for path in git("diff", "--name-only", "--no-renames",
                        "--diff-filter=A", f"base..{tip}", "--", folder,
                        cwd=kernel.repo).split():
            write_atomically(
                place / copy / path.removeprefix(folder),
                git("cat-file", "blob", f"{tip}:{path}", cwd=kernel.repo,
                    raw=True))
    return names


def differences(kernel: Kernel, place: Path) -> dict[str, str]:
    """Return {file: how} the repository differs from an export at place."""
    ours, theirs = ({
        str(path.relative_to(top)): path.read_bytes()
        for path in (top / kernel.series.relative_to(ROOT),
                     *(top / "patches" / kernel.name).glob("*"),
                     *(path for copy in copies(kernel).values()
                       for path in (top / copy).rglob("*")))
        # A README.md beside the copies is the repository's own.
        if path.is_file() and path.suffix != ".md"} for top in (ROOT, place))
    return {name: "is not exported" if name not in theirs else
            "is missing" if name not in ours else "differs"
            for name in sorted(ours | theirs)
            if ours.get(name) != theirs.get(name)}


def check_tree(tree: Path) -> None:
    """Raise Fail when build/tree cannot be exported."""
    if not (tree / ".git").exists():
        raise Fail("there is no work tree to export: run 'make tree'")
    if rebasing(tree):
        raise Fail("build/tree is in the middle of a rebase: finish it (git "
                   "rebase --continue) or give it up (git rebase --abort)")
    if git("status", "--porcelain", "-uno", cwd=tree).strip():
        raise Fail("build/tree has uncommitted changes: commit them to the "
                   "patch they belong to (git commit --fixup, git rebase -i "
                   "--autosquash base), or stash them")
    if run_git("merge-base", "--is-ancestor", "base", "HEAD",
               cwd=tree).returncode:
        raise Fail("build/tree is not on top of 'base': rebase it (git "
                   "rebase base)")


def main(kernel: Kernel, given: Given) -> None:
    tree = kernel.build / "tree"
    with build_lock(kernel), scratch("export") as place:
        check_tree(tree)
        names = write_export(
            kernel, git("rev-parse", "HEAD", cwd=tree).strip(), place)
        changes = differences(kernel, place)
        for name in changes:
            if (place / name).exists():
                write_atomically(ROOT / name, (place / name).read_bytes())
                say(f"    written: {name}")
            else:
                (ROOT / name).unlink()
                say(f"    removed: {name}")
    say(f"exported {len(names)} patches"
        + ("" if changes else ": nothing changed"))
