#!/usr/bin/env python3
# SPDX-License-Identifier: GPL-2.0-only
"""Try the series on another kernel tree and tell which patch fails where.

BASE= is a git clone or a plain source tree of the kernel that the series
should move to.  It is only read: everything happens in a throw-away tree
with the few files that the patches touch.  A patch that does not fit is
applied as far as possible, so that the ones after it are judged too.
"""

import argparse
import os
import re
import shutil
import tempfile
from pathlib import Path

from apply import touched_files
from base import REPO, version_of
from common import (BUILD, PATCHES, Fail, build_lock, git, run_git, run_main,
                    say, series_patches, stage)
from submit import borrow_objects

ME = {"GIT_AUTHOR_NAME": "series", "GIT_AUTHOR_EMAIL": "series@localhost"}


def find_tree(base, revision):
    """Check BASE; returns (top, commit): Path, str or None for a folder.

    Raises Fail when it is no kernel.
    """
    if not base:
        raise Fail("give BASE=path, the kernel tree to try the series on")
    top = Path(os.path.expanduser(base)).resolve()
    if not top.is_dir():
        raise Fail(f"BASE={base} is not a folder")
    inside = run_git("rev-parse", "--show-toplevel", cwd=top)
    commit = None
    if not inside.returncode and Path(os.fsdecode(
            inside.stdout.rstrip(b"\n"))).resolve() == top:
        commit = git("rev-parse", "-q", "--verify", f"{revision}^{{commit}}",
                     cwd=top, check=False).strip()
        if not commit:
            raise Fail(f"BASE={base} has no commit {revision}")
    return top, commit


def try_tree(tree, top, commit, names):
    """Make the throw-away tree; returns the kernel's version (str)."""
    paths = touched_files(names)
    lenders = [place for place in (REPO, top if commit else None)
               if place and place.exists()]
    borrow_objects(tree, lenders)
    if commit:
        git("update-ref", "refs/heads/base", commit, cwd=tree)
        git("sparse-checkout", "set", "--no-cone", "--stdin", cwd=tree,
            data="".join(f"/{path}\n" for path in ["Makefile", *paths]))
        git("checkout", "-q", "-f", "base", cwd=tree)
    else:
        for path in ["Makefile", *paths]:
            if (top / path).is_file():
                (tree / path).parent.mkdir(parents=True, exist_ok=True)
                shutil.copyfile(top / path, tree / path)
        git("add", "-A", "-f", ".", cwd=tree)
        git("commit", "-q", "--allow-empty", "-m", "base", cwd=tree, env=ME)
    try:
        return version_of((tree / "Makefile").read_text(errors="replace"))
    except (OSError, Fail):
        raise Fail(f"{top} is not a Linux source tree: its top folder has "
                   "no kernel Makefile") from None


def rejects(words, text):
    """Read what 'git apply --reject --verbose' said about a patch.

    words: its output (str).  text: the patch (str).  Returns a list of
    (file, hunk or None, reason): str, int, str.
    """
    found = []
    path = None
    for row in words.splitlines():
        for pattern in (r"Checking patch (?:\S+ => )?(\S+)\.\.\.",
                        r"Applying patch (\S+) with \d+ rejects?\.\.\."):
            match = re.fullmatch(pattern, row)
            if match:
                path = match.group(1)
        match = re.fullmatch(r"Rejected hunk #(\d+)\.", row)
        if match:
            number = int(match.group(1))
            found.append((path, number, hunk_place(text, path, number)))
        match = re.fullmatch(r"error: (\S+): (already exists in (?:working "
                             r"directory|index)|No such file or directory|"
                             r"does not exist in index)", row)
        if match:
            found.append((match.group(1), None,
                          "is there already" if "already" in match.group(2)
                          else "is not there"))
    return list(dict.fromkeys(found))


def hunk_place(text, path, number):
    """Return where a patch's hunk belongs, as 'line 12, in function'."""
    part = re.split(r"^diff --git ", text, flags=re.M)
    for piece in part[1:]:
        if piece.split("\n", 1)[0].endswith(f" b/{path}"):
            heads = re.findall(r"^@@ -(\d+)\S* \S+ @@ ?(.*)$", piece, re.M)
            if number <= len(heads):
                line, where = heads[number - 1]
                return f"line {line}" + (f", {where.strip()}" if where else
                                         "")
    return "line unknown"


def try_patch(tree, name):
    """Apply one patch; returns (verdict, rows): str, list of str.

    The verdict is 'ok', 'moved' (fits at other lines), 'merged' (only a
    three-way merge takes it) or 'FAIL'.  Afterwards the tree has as much of
    the patch as fits, committed.
    """
    mail = PATCHES / name
    text = mail.read_text(errors="surrogateescape")
    checked = run_git("apply", "--check", "--verbose", mail, cwd=tree)
    words = (checked.stdout + checked.stderr).decode(errors="replace")
    if not checked.returncode:
        git("am", "-q", "--no-3way", "--keep-cr", mail, cwd=tree)
        moved, path = [], ""
        for row in words.splitlines():
            match = re.fullmatch(r"Checking patch (\S+)\.\.\.", row)
            path = match.group(1) if match else path
            match = re.match(r"Hunk #(\d+) succeeded at \d+ \(offset (.+?)\)",
                             row)
            if match:
                moved.append(f"{path}: hunk {match.group(1)}, "
                             f"{match.group(2)} off")
        return ("moved" if moved else "ok"), moved
    done = run_git("am", "-q", "--3way", "--keep-cr", mail, cwd=tree)
    if not done.returncode:
        return "merged", [f"{path}: only with a three-way merge" for path in
                          sorted({row[0] for row in failed(words)})]
    run_git("am", "--abort", cwd=tree)
    git("reset", "-q", "--hard", cwd=tree)
    applied = run_git("apply", "--reject", "--verbose", mail, cwd=tree)
    words = (applied.stdout + applied.stderr).decode(errors="replace")
    for path in tree.rglob("*.rej"):
        path.unlink()
    git("add", "-A", "-f", "--sparse", ".", cwd=tree)
    git("commit", "-q", "--allow-empty", "-m", f"{name}, in part", cwd=tree,
        env=ME)
    rows = [f"{path}: hunk {hunk} ({why})" if hunk else f"{path} {why}"
            for path, hunk, why in rejects(words, text)]
    # Whatever git says in other words is better than nothing.
    return "FAIL", rows or [row for row in words.splitlines()
                            if row.startswith(("error:", "fatal:"))]


def failed(words):
    """Return [(file, line)] (str, str) that 'git apply --check' names."""
    return re.findall(r"^error: (?:patch failed: )?([^:\n]+)"
                      r":(\d+| already exists.*| No such file.*"
                      r"| does not exist.*)$", words, re.M)


def main():
    parser = argparse.ArgumentParser(
        description=__doc__.split("\n\n")[0],
        epilog="Status 0: every patch applies.  Nothing is changed, neither "
               "the tree nor the series.")
    parser.add_argument("--base", default=os.environ.get("BASE", ""),
                        metavar="PATH", help="the tree (default: $BASE)")
    parser.add_argument("--onto", default=os.environ.get("ONTO") or "HEAD",
                        metavar="COMMIT", help="the commit of it, if it is a "
                        "git clone (default: HEAD)")
    options = parser.parse_args()
    names = series_patches()
    tally = {"ok": 0, "moved": 0, "merged": 0, "FAIL": 0}
    with build_lock(), tempfile.TemporaryDirectory(
            prefix="rebase-", dir=BUILD) as temp:
        top, commit = find_tree(options.base, options.onto)
        tree = Path(temp) / "tree"
        version = try_tree(tree, top, commit, names)
        with stage(f"trying {len(names)} patches on Linux {version}"
                   + (f", {commit[:12]}" if commit else "")):
            for name in names:
                verdict, rows = try_patch(tree, name)
                if verdict == "FAIL" and tally["FAIL"]:
                    rows.append("may follow from the failure above")
                tally[verdict] += 1
                say(f"    {verdict:<6}  {name}")
                for row in rows:
                    say(f"              {row}")
    say(f"{tally['ok']} apply as they are, {tally['moved']} at other lines, "
        f"{tally['merged']} only with a three-way merge, {tally['FAIL']} "
        "fail")
    if tally["FAIL"]:
        say("how to take a new base: CONTRIBUTING.md")
    return 1 if tally["FAIL"] else 0


if __name__ == "__main__":
    run_main(main)
