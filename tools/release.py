# SPDX-License-Identifier: GPL-2.0-only
"""Write the files of a release to build/release, the same bytes everywhere.

The version is the first of CHANGELOG.md.  For each kernel one patch with all
that the series changes, the repository's commit as a tarball, and SHA256SUMS.
"""

import argparse
import hashlib
import os
import re
import shutil
import subprocess
import sys
from pathlib import Path

from tools.core import (KERNEL, ROOT, TOP_BUILD, Fail, build_lock, git,
                        kernels, run_main, say, scratch, shown_path, stage)
from tools.series.apply import begin
from tools.series.base import REPO, wanted

RELEASES = TOP_BUILD / "release"


def combined() -> bytes:
    """Return what the series of KERNEL changes, as one patch."""
    tip = begin()
    # Names of blobs in full, because how short they may be depends on the
    # repository.
    return git("diff", "--no-renames", "--full-index", "--binary",
               "--diff-algorithm=histogram", "base", tip, cwd=REPO, raw=True)


def version() -> str:
    """Return the version that CHANGELOG.md begins with."""
    found = re.search(r"^## (\d+\.\d+(?:\.\d+)?)\b",
                      (ROOT / "CHANGELOG.md").read_text(), re.M)
    if not found:
        raise Fail("CHANGELOG.md has no heading '## NUMBER.NUMBER'")
    return found[1]


def write_all(place: Path, name: str) -> None:
    """Write the files of a release into a folder."""
    for row in kernels():
        of = row["VERSION"]
        # In another process, whose KERNEL it is.
        if subprocess.run(
                [sys.executable, "-m", "tools.release", "--combined",
                 str(place / f"linux-{of}-{name}.patch")], cwd=ROOT,
                env=os.environ | {"KERNEL": "" if row == wanted() else of}
                ).returncode:
            raise Fail(f"the patch for {of} was not made: see above")
    with stage("packing the repository"):
        tar = git("archive", "--format=tar", f"--prefix={name}/", "HEAD",
                  cwd=ROOT, raw=True)
        (place / f"{name}.tar.xz").write_bytes(subprocess.run(
            ["xz", "-c", "-T1", "-6"], input=tar, check=True,
            capture_output=True).stdout)
    (place / "SHA256SUMS").write_text("".join(
        f"{hashlib.sha256(path.read_bytes()).hexdigest()}  {path.name}\n"
        for path in sorted(place.iterdir())))


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.split("\n\n")[0])
    parser.add_argument("--combined", metavar="FILE", help="write the patch "
                        "for KERNEL to this file, and nothing else")
    path = parser.parse_args().combined
    if path:
        with build_lock():
            Path(path).write_bytes(combined())
        return
    if KERNEL:
        raise Fail("a release is of all kernels: run it without KERNEL=")
    if git("status", "--porcelain", "--", ".", cwd=ROOT).strip():
        raise Fail("the repository has changes that are not committed: "
                   "commit them, a release is of a commit")
    number = version()
    target = RELEASES / number
    with build_lock(), scratch("release") as place:
        (place / number).mkdir()
        write_all(place / number, f"ioport-yield-{number}")
        shutil.rmtree(target, ignore_errors=True)
        RELEASES.mkdir(exist_ok=True)
        (place / number).rename(target)
    say((target / "SHA256SUMS").read_text()
        + f"written: {shown_path(target)}")


if __name__ == "__main__":
    run_main(main)
