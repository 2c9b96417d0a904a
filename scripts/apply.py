#!/usr/bin/env python3
# SPDX-License-Identifier: GPL-2.0-only
"""Apply patches/ to the base with git am: one commit per patch, branch
`applied` of build/linux.git.

Works in a scratch tree that holds only the files that the patches touch, so
it takes seconds and leaves the built trees alone.
"""

import argparse
import hashlib
import re
import shutil

from base import REPO, get_base
from common import (BUILD, PATCHES, Fail, build_lock, git, run_git, run_main,
                    say, series_patches, stage, write_atomically)

SCRATCH = BUILD / "apply"
RECORD = BUILD / "applied.key"


def touched_files(names):
    """Return the sorted paths (list of str) that the named patches touch."""
    paths = set()
    for name in names:
        text = (PATCHES / name).read_text(errors="surrogateescape")
        for old, new in re.findall(r"^diff --git a/(\S+) b/(\S+)$", text,
                                   re.M):
            paths |= {old, new}
    return sorted(paths)


def scratch_tree(place, paths):
    """Check the base out at place (Path), but only the given paths."""
    git("worktree", "prune", cwd=REPO)
    if place.exists():
        git("worktree", "remove", "--force", place, cwd=REPO, check=False)
        shutil.rmtree(place, ignore_errors=True)
        git("worktree", "prune", cwd=REPO)
    git("worktree", "add", "-q", "--no-checkout", "--detach", place, "base",
        cwd=REPO)
    patterns = "\n".join("/" + path for path in paths) + "\n"
    git("sparse-checkout", "set", "--no-cone", "--stdin", cwd=place,
        data=patterns)
    git("checkout", "-q", "--detach", "base", cwd=place)


def why_not(output, name):
    """Turn git am's words (str) into one sentence that names the file."""
    files = re.findall(r"error: (?:patch failed: ([^:\n]+):(\d+)"
                       r"|([^:\n]+): (?:does not exist in index"
                       r"|already exists in index|No such file.*))", output)
    where = ", ".join(sorted({f"{a}, line {b}" if a else c
                              for a, b, c in files}))
    if where:
        return f"patches/{name} does not apply: {where}"
    # The last lines are advice about 'git am', which is over by now.
    words = re.findall(r"^(?:error|fatal): (.*)", output, re.M) or \
        output.strip().splitlines() or ["git am does not say why"]
    return f"patches/{name} does not apply: {words[0]}"


def apply_series():
    """Apply the series onto `base`; returns the tip's commit name (str).

    Raises Fail naming the patch and the file when one does not apply.  A
    series and a base that were applied before are not applied again.
    """
    base = git("rev-parse", "refs/heads/base", cwd=REPO).strip()
    names = series_patches()
    digest = hashlib.sha256(base.encode())
    for name in names:
        digest.update(name.encode() + b"\0" + (PATCHES / name).read_bytes())
    key = digest.hexdigest()
    if RECORD.exists() and RECORD.read_text().strip() == key:
        tip = git("rev-parse", "-q", "--verify", "refs/heads/applied",
                  cwd=REPO, check=False).strip()
        if tip:
            return tip
    with stage(f"applying {len(names)} patches to the base"):
        try:
            scratch_tree(SCRATCH, touched_files(names))
            for name in names:
                done = run_git("am", "-q", "--no-3way", "--keep-cr",
                               "--committer-date-is-author-date",
                               PATCHES / name, cwd=SCRATCH)
                if done.returncode:
                    words = (done.stderr + done.stdout).decode(
                        errors="replace")
                    raise Fail(why_not(words, name))
            tip = git("rev-parse", "HEAD", cwd=SCRATCH).strip()
        finally:
            git("worktree", "remove", "--force", SCRATCH, cwd=REPO,
                check=False)
            shutil.rmtree(SCRATCH, ignore_errors=True)
            git("worktree", "prune", cwd=REPO, check=False)
    RECORD.unlink(missing_ok=True)
    git("update-ref", "refs/heads/applied", tip, cwd=REPO)
    write_atomically(RECORD, key + "\n")
    return tip


def main():
    argparse.ArgumentParser(
        description=__doc__.split("\n\n")[0]).parse_args()
    with build_lock():
        get_base()
        tip = apply_series()
    say(f"the series applies: {tip[:12]} ({len(series_patches())} patches)")


if __name__ == "__main__":
    run_main(main)
