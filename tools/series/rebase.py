# SPDX-License-Identifier: GPL-2.0-only
"""Try the series on another kernel tree and tell which patch fails where.

BASE= is a git clone or a plain source tree of the kernel that the series
should move to; it is only read.  A patch that does not fit is applied as far
as possible, so that the ones after it are judged too.
"""

import argparse
import os
import re
from collections import Counter
from pathlib import Path

from tools.core import Fail, build_lock, git, run_git, run_main, say, stage
from tools.series.apply import (PATCHES, series_patches, sparse_tree,
                                touched_files)
from tools.series.base import ME, commit_tree, kernel_version, take


def rejected(tree: Path, words: str) -> list[str]:
    """Return what `git apply --reject`, which said words, left out."""
    rows = [f"{path}: {why}" for path, why in re.findall(
        r"^error: (\S+): (already exists|No such file|does not exist)",
        words, re.M)]
    for file in sorted(tree.rglob("*.rej")):
        rows += [f"{file.relative_to(tree).with_suffix('')}: hunk {hunk}"
                 for hunk in re.findall(r"^@@ .*", file.read_text(
                     errors="replace"), re.M)]
        file.unlink()
    # Whatever git says in other words is better than nothing.
    return rows or re.findall(r"^(?:error|fatal): .*", words, re.M)


def try_patch(tree: Path, name: str) -> tuple[str, list[str]]:
    """Apply one patch, at least what fits, and commit it; return 'ok',
    'merged' (with a three-way merge only) or 'FAIL', and why."""
    mail = PATCHES / name
    done = run_git("am", "--3way", "--keep-cr", mail, cwd=tree)
    if not done.returncode:
        merged = re.findall(rb"^Auto-merging (.*)", done.stdout, re.M)
        return ("merged" if b"base tree" in done.stdout else "ok",
                [path.decode(errors="replace") for path in merged])
    run_git("am", "--abort", cwd=tree)
    git("reset", "-q", "--hard", cwd=tree)
    done = run_git("apply", "--reject", mail, cwd=tree)
    rows = rejected(tree, done.stderr.decode(errors="replace"))
    git("add", "-A", "-f", "--sparse", ".", cwd=tree)
    git("commit", "-q", "--allow-empty", "-m", f"{name}, in part", cwd=tree,
        env=ME)
    return "FAIL", rows


def main() -> int:
    parser = argparse.ArgumentParser(
        description=__doc__.split("\n\n")[0],
        epilog="Status 0: every patch applies.")
    parser.add_argument("--base", default=os.environ.get("BASE", ""),
                        metavar="PATH", help="the tree (default: $BASE)")
    parser.add_argument("--onto", default=os.environ.get("ONTO") or "HEAD",
                        metavar="COMMIT", help="the commit of it, if it is a "
                        "git clone (default: HEAD)")
    options = parser.parse_args()
    if not options.base:
        raise Fail("give BASE=path, the kernel tree to try the series on")
    names = series_patches()
    path = Path(os.path.expanduser(options.base)).resolve()
    version = kernel_version(path, f"BASE={options.base}", options.onto)
    count: Counter[str] = Counter()
    with build_lock():
        with stage(f"taking Linux {version} from BASE"):
            base = commit_tree(take(path, options.onto), version)
        with stage(f"trying {len(names)} patches on Linux {version}"), \
                sparse_tree(base, touched_files(names)) as tree:
            for name in names:
                verdict, rows = try_patch(tree, name)
                if verdict == "FAIL" and count["FAIL"]:
                    rows.append("may follow from the failure above")
                count[verdict] += 1
                say(f"    {verdict:<6}  {name}")
                for row in rows:
                    say(f"              {row}")
    say(f"{count['ok']} apply, {count['merged']} only with a three-way "
        f"merge, {count['FAIL']} fail")
    if count["FAIL"]:
        say("how to take a new base: CONTRIBUTING.md")
    return 1 if count["FAIL"] else 0


if __name__ == "__main__":
    run_main(main)
