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

from tools.core import (KERNEL, ROOT, TOP_BUILD, Fail, build_lock, git,
                        read_settings, run_main, say, scratch, shown_path,
                        stage)
from tools.series.apply import begin
from tools.series.base import REPO

RELEASES = TOP_BUILD / "release"


def version() -> str:
    """Return the version that CHANGELOG.md begins with."""
    found = re.search(r"^## (\d+\.\d+(?:\.\d+)?)\b",
                      (ROOT / "CHANGELOG.md").read_text(), re.M)
    if not found:
        raise Fail("CHANGELOG.md has no heading '## NUMBER.NUMBER'")
    return found.group(1)


def combined() -> bytes:
    """Return what the series of KERNEL changes, as one patch."""
    tip = begin()
    # Names of blobs in full, because how short they may be depends on the
    # repository.
    return git("diff", "--no-renames", "--full-index", "--binary",
               "--diff-algorithm=histogram", "base", tip, cwd=REPO, raw=True)


def kernels() -> list[str]:
    """Return the kernels that there is a series for; "" is that of BASE."""
    return ["", *sorted(path.name.partition("-")[2]
                        for path in ROOT.glob("BASE-*"))]


def write(kernel: str, path: str) -> None:
    """Write the combined patch of a kernel, with the settings that are its
    own: in another process."""
    done = subprocess.run(
        [sys.executable, "-m", "tools.release", "--combined", path],
        cwd=ROOT, env=os.environ | {"KERNEL": kernel})
    if done.returncode:
        raise Fail(f"the patch for KERNEL={kernel or 'the default'} was not "
                   "made: see above")


def release() -> None:
    """Write all files; they are there only when all of them are."""
    if git("status", "--porcelain", "--", ".", cwd=ROOT).strip():
        raise Fail("the repository has changes that are not committed: "
                   "commit them, a release is of a commit")
    number = version()
    name = f"ioport-yield-{number}"
    with build_lock(), scratch("release") as whole:
        place = whole / number
        place.mkdir()
        for kernel in kernels():
            settings = ROOT / (f"BASE-{kernel}" if kernel else "BASE")
            of = read_settings(settings)["VERSION"]
            write(kernel, str(place / f"linux-{of}-{name}.patch"))
        with stage("packing the repository"):
            tar = git("archive", "--format=tar", f"--prefix={name}/", "HEAD",
                      cwd=ROOT, raw=True)
            packed = subprocess.run(["xz", "-c", "-T1", "-6"], input=tar,
                                    check=True, capture_output=True).stdout
            (place / f"{name}.tar.xz").write_bytes(packed)
        sums = "".join(
            f"{hashlib.sha256(path.read_bytes()).hexdigest()}  {path.name}\n"
            for path in sorted(place.iterdir()))
        (place / "SHA256SUMS").write_text(sums)
        shutil.rmtree(RELEASES / number, ignore_errors=True)
        RELEASES.mkdir(exist_ok=True)
        place.rename(RELEASES / number)
    say(sums + f"written: {shown_path(RELEASES / number)}")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.split("\n\n")[0])
    parser.add_argument("--combined", metavar="FILE", help="write the patch "
                        "for KERNEL to this file, and nothing else")
    path = parser.parse_args().combined
    if path:
        with build_lock(), open(path, "wb") as file:
            file.write(combined())
    elif KERNEL:
        raise Fail("a release is of all kernels: run it without KERNEL=")
    else:
        release()


if __name__ == "__main__":
    run_main(main)
