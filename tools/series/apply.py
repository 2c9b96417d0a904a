# SPDX-License-Identifier: GPL-2.0-only
"""Apply patches/ to the base: one commit per patch, branch `applied` of
build/linux.git.

Works in a scratch tree that holds only the files that the patches touch.
"""

import contextlib
import re
from collections.abc import Iterator
from pathlib import Path

from tools.core import (KERNEL, ROOT, Fail, digest, git, run_git, scratch,
                        shown_path, stage)
from tools.series.base import REPO, commit_of, get_base

PATCHES = ROOT / "patches"


def series_file(kernel: str = KERNEL) -> Path:
    """Return the file that names a kernel's patches, below patches/: those of
    an older kernel are there, too."""
    return PATCHES / kernel / "series" if kernel else ROOT / "series"


SERIES = series_file()


def series_patches(kernel: str = KERNEL) -> list[str]:
    """Return the patch names of `series`, in order, below patches/."""
    series = series_file(kernel)
    if not series.exists():
        raise Fail(f"there is no file '{shown_path(series)}' in the "
                   "repository")
    rows = [line.split("#")[0].strip()
            for line in series.read_text().splitlines()]
    names = [row for row in rows if row]
    for name in names:
        if not (PATCHES / name).is_file():
            raise Fail(f"{shown_path(series)} names {name}, but there is no "
                       f"patches/{name}")
    return names


def touched_files(names: list[str]) -> list[str]:
    """Return the sorted paths that the named patches touch."""
    text = "\n".join((PATCHES / name).read_text(errors="surrogateescape")
                     for name in names)
    pairs = re.findall(r"^diff --git a/(\S+) b/(\S+)$", text, re.M)
    return sorted({path for pair in pairs for path in pair})


def has_yield(kernel: str = KERNEL) -> bool:
    """Tell whether the series has a part on sched_yield()."""
    return any(path.startswith("kernel/sched/")
               for path in touched_files(series_patches(kernel)))


def is_kernel(path: str) -> bool:
    """Tell whether a file of a kernel tree is part of the kernel itself."""
    return not path.startswith(("tools/", "Documentation/", "scripts/",
                                "samples/"))


@contextlib.contextmanager
def sparse_tree(commit: str, paths: list[str]) -> Iterator[Path]:
    """Check a commit of REPO out for a while, but only the given paths."""
    with scratch("tree") as place:
        tree = place / "tree"
        try:
            git("worktree", "add", "-q", "--no-checkout", "--detach", tree,
                commit, cwd=REPO)
            git("sparse-checkout", "set", "--no-cone", "--stdin", cwd=tree,
                data="".join(f"/{path}\n" for path in paths))
            git("checkout", "-q", "--detach", commit, cwd=tree)
            yield tree
        finally:
            git("worktree", "remove", "--force", tree, cwd=REPO, check=False)


def why_not(output: str) -> str:
    """Return what git am said of a patch that does not apply, in one line."""
    # Not its advice about 'git am', which is over by now.
    words = re.findall(r"^(?:error|fatal): (?!.*: patch does not apply)(.*)",
                       output, re.M)
    return ", ".join(words) or "git am does not say why"


def apply_to(base: str) -> str:
    """Return the commit of the series on a base, made if there is none."""
    names = series_patches()
    key = digest(base, *(part for name in names for part in (
        name, (PATCHES / name).read_bytes())))
    if commit_of(f"refs/series/{key}"):
        return commit_of(f"refs/series/{key}")
    with stage(f"applying {len(names)} patches to the base"), \
            sparse_tree(base, touched_files(names)) as tree:
        for name in names:
            done = run_git("am", "-q", "--no-3way", "--keep-cr",
                           "--committer-date-is-author-date",
                           PATCHES / name, cwd=tree)
            if done.returncode:
                raise Fail(f"patches/{name} does not apply: "
                           + why_not(done.stderr.decode(errors="replace")))
        tip = git("rev-parse", "HEAD", cwd=tree).strip()
    git("update-ref", f"refs/series/{key}", tip, cwd=REPO)
    return tip


def begin() -> str:
    """Get the base and apply the series; return the tip's commit."""
    tip = apply_to(get_base())
    git("update-ref", "refs/heads/applied", tip, cwd=REPO)
    return tip
