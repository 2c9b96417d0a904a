# SPDX-License-Identifier: GPL-2.0-only
"""Apply patches/ to the base: one commit per patch, branch `applied` of
build/linux.git.

Works in a scratch tree that holds only the files that the patches touch.
"""

import contextlib
import re
from collections.abc import Iterator
from pathlib import Path

from tools.core import (PATCHES, Fail, Kernel, digest, git, run_git, scratch,
                        shown_path, stage)
from tools.series.base import commit_of, get_base


def series_patches(kernel: Kernel) -> list[str]:
    """Return the patch names of its `series`, in order, below patches/."""
    names = re.findall(r"^[^\s#]+", kernel.series.read_text(), re.M)
    for name in names:
        if not (PATCHES / name).is_file():
            raise Fail(f"{shown_path(kernel.series)} names {name}, but there "
                       f"is no patches/{name}")
    return names


def touched_files(names: list[str]) -> list[str]:
    """Return the sorted paths that the named patches touch."""
    text = "\n".join((PATCHES / name).read_text(errors="surrogateescape")
                     for name in names)
    pairs = re.findall(r"^diff --git a/(\S+) b/(\S+)$", text, re.M)
    return sorted({path for pair in pairs for path in pair})


def has_yield(kernel: Kernel) -> bool:
    """Tell whether the series has a part on sched_yield()."""
    return any(path.startswith("kernel/sched/")
               for path in touched_files(series_patches(kernel)))


def is_kernel(path: str) -> bool:
    """Tell whether a file of a kernel tree is part of the kernel itself."""
    return not path.startswith(("tools/", "Documentation/", "scripts/",
                                "samples/"))


@contextlib.contextmanager
def sparse_tree(kernel: Kernel, commit: str,
                paths: list[str]) -> Iterator[Path]:
    """Check a commit out for a while, but only the given paths."""
    with scratch("tree") as place:
        tree = place / "tree"
        try:
            git("worktree", "add", "-q", "--no-checkout", "--detach", tree,
                commit, cwd=kernel.repo)
            git("sparse-checkout", "set", "--no-cone", "--stdin", cwd=tree,
                data="".join(f"/{path}\n" for path in paths))
            git("checkout", "-q", "--detach", commit, cwd=tree)
            yield tree
        finally:
            git("worktree", "remove", "--force", tree, cwd=kernel.repo,
                check=False)


def begin(kernel: Kernel) -> str:
    """Get the base and apply the series; return the tip's commit."""
    base, names = get_base(kernel), series_patches(kernel)
    made = "refs/series/" + digest(base, *(part for name in names for part in (
        name, (PATCHES / name).read_bytes())))
    tip = commit_of(kernel, made)
    if not tip:
        with stage(f"applying {len(names)} patches to the base"), \
                sparse_tree(kernel, base, touched_files(names)) as tree:
            for name in names:
                done = run_git("am", "-q", "--no-3way", "--keep-cr",
                               "--committer-date-is-author-date",
                               PATCHES / name, cwd=tree)
                if done.returncode:
                    # Without the advice about a 'git am' that is over by now.
                    why = re.findall(
                        r"^(?:error|fatal): (?!.*: patch does not apply)(.*)",
                        done.stderr.decode(errors="replace"), re.M)
                    raise Fail(f"patches/{name} does not apply: "
                               + (", ".join(why) or "git am does not say why"))
            tip = git("rev-parse", "HEAD", cwd=tree).strip()
        git("update-ref", made, tip, cwd=kernel.repo)
    git("update-ref", "refs/heads/applied", tip, cwd=kernel.repo)
    return tip
