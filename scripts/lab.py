#!/usr/bin/env python3
# SPDX-License-Identifier: GPL-2.0-only
"""LAVA jobs that test base and series on real boards, and their results.

lab/README.md is the guide.  Each of the four steps is one option: what the
boards load (--pack), the job definitions (--jobs), their validation
(--check), and the figures in the logs of finished jobs (--collect).
"""

import argparse
import base64
import binascii
import json
import os
import re
import shutil
import string
import subprocess
import tarfile
import tempfile
from pathlib import Path

from base import wanted
from common import (BUILD, ROOT, Fail, build_lock, run_main, say,
                    shown_path, write_atomically)

LAB = ROOT / "lab"
PLACE = BUILD / "lab"
SIDES = ("base", "series")
METHODS = ("ipxe", "grub")
# Debian's lava-common has it, with the schema of the server.
SCHEMA = Path("/usr/share/lava-common/lava-schema.py")
EXAMPLE = {"files": "http://files.example.org/ioports",
           "rootfs": "http://files.example.org/rootfs/debian.tar.xz"}


def boards():
    """Return the rows (list of (device type, method, arguments): str) of
    lab/boards.txt.  Raises Fail for a row that cannot be a board."""
    rows = []
    for number, line in enumerate(
            (LAB / "boards.txt").read_text().splitlines(), 1):
        words = line.split("#")[0].split(None, 2)
        if not words:
            continue
        if len(words) < 2 or words[1] not in METHODS or \
                not re.fullmatch(r"[A-Za-z0-9._-]+", words[0]):
            raise Fail(f"lab/boards.txt, line {number}: want a device type, "
                       f"a boot method ({', '.join(METHODS)}) and kernel "
                       "arguments")
        rows.append((words[0], words[1], words[2].strip()
                     if words[2:] else ""))
    if not rows:
        raise Fail("lab/boards.txt names no board")
    return rows


def render(board, method, arguments, files, rootfs, releases):
    """Return the definition (str, YAML) of the job for one board.

    files, rootfs: URL.  releases: {side: str}, what 'uname -r' must say.
    """
    values = {"board": board, "method": method, "arguments": arguments,
              "files": files.rstrip("/"), "rootfs": rootfs,
              "version": wanted()["VERSION"]}
    for value in values.values():
        if re.search(r"[\"\\\n]", value):
            raise Fail(f"'{value}' cannot stand in a job definition")
    text = string.Template((LAB / "job.yaml").read_text()).substitute(values)
    side_text = string.Template((LAB / "side.yaml").read_text())
    for side in SIDES:
        text += side_text.substitute(values, side=side,
                                     release=releases[side])
    return text


def validate(path):
    """Raise Fail unless LAVA's schema accepts a job definition (Path)."""
    if not SCHEMA.exists():
        raise Fail(f"there is no {SCHEMA}: apt-get install lava-common")
    # Not this Python: the schema and its modules are Debian's.
    done = subprocess.run(
        ["/usr/bin/python3", str(SCHEMA), "job", str(path)],
        capture_output=True, text=True)
    words = (done.stdout + done.stderr).strip()
    if done.returncode or "invalid" in words:
        raise Fail(f"{shown_path(path)} is not a job: "
                   + words.replace("\n", "; "))


def check():
    """Render the job of each board and validate it; returns how many."""
    releases = {side: "7.3.4" for side in SIDES}
    with tempfile.TemporaryDirectory(prefix="lab-", dir=BUILD) as place:
        rows = boards()
        for row in rows:
            path = Path(place) / f"{row[0]}.yaml"
            path.write_text(render(*row, **EXAMPLE, releases=releases))
            validate(path)
            say(f"    ok    {row[0]}")
    return len(rows)


def pack(side, tree, kselftest):
    """Write what a board loads for one side below build/lab/files.

    tree: a built kernel tree (Path).  kselftest: a folder that 'make
    kselftest-install' made from the same sources (Path).
    """
    if side not in SIDES:
        raise Fail(f"a side is one of {', '.join(SIDES)}, not {side}")
    image = tree / "arch/x86/boot/bzImage"
    release = tree / "include/config/kernel.release"
    for path in (image, release, kselftest / "run_kselftest.sh",
                 kselftest / "kselftest-list.txt"):
        if not path.exists():
            raise Fail(f"there is no {path}: build the kernel, then 'make "
                       "kselftest-install'")
    files = PLACE / "files"
    files.mkdir(parents=True, exist_ok=True)
    shutil.copyfile(image, files / f"bzImage-{side}.partial")
    archive = files / f"lab-{side}.tar.xz"
    partial = files / f"lab-{side}.partial"

    def owned_by_root(member):
        member.uid = member.gid = 0
        member.uname = member.gname = "root"
        return member

    try:
        with tarfile.open(partial, "w:xz") as tar:
            tar.add(LAB / "run.sh", "opt/lab/run.sh", filter=owned_by_root)
            tar.add(kselftest, "opt/lab/kselftest", filter=owned_by_root)
        partial.replace(archive)
        (files / f"bzImage-{side}.partial").replace(
            files / f"bzImage-{side}")
    finally:
        partial.unlink(missing_ok=True)
        (files / f"bzImage-{side}.partial").unlink(missing_ok=True)
    write_atomically(files / f"release-{side}", release.read_text())
    say(f"{side}: Linux {release.read_text().strip()}, "
        f"{archive.stat().st_size / 2**20:.1f} MiB of tests")


def jobs(files, rootfs):
    """Write a job definition for each board; returns the paths."""
    releases = {}
    for side in SIDES:
        path = PLACE / f"files/release-{side}"
        if not path.exists():
            raise Fail(f"{side} is not packed: scripts/lab.py --pack {side} "
                       "TREE KSELFTEST, see lab/README.md")
        releases[side] = path.read_text().strip()
    if releases["base"] == releases["series"]:
        raise Fail(f"both kernels call themselves {releases['base']}, so no "
                   "board could tell which one it runs: build them with "
                   "LOCALVERSION=-base and LOCALVERSION=-series")
    paths = []
    (PLACE / "jobs").mkdir(parents=True, exist_ok=True)
    for row in boards():
        path = PLACE / "jobs" / f"{row[0]}.yaml"
        write_atomically(path, render(*row, files, rootfs, releases))
        validate(path)
        paths.append(path)
    return paths


def collect(log, board, place):
    """Take the figures out of the log of a finished job.

    log: Path.  Writes place/BOARD/SIDE/NAME.json and returns the paths.
    Raises Fail when the log has none, or what it has is damaged.
    """
    chunks = {}
    for side, name, data in re.findall(
            r"LAB-DATA (\w+) (\w+) ([A-Za-z0-9+/=]+)",
            log.read_text(errors="replace")):
        chunks.setdefault((side, name), []).append(data)
    if not chunks:
        raise Fail(f"{log} has no LAB-DATA lines: is it the log of a job "
                   "that ran its tests?")
    paths = []
    for (side, name), data in sorted(chunks.items()):
        try:
            report = json.loads(base64.b64decode("".join(data),
                                                 validate=True))
        except (binascii.Error, ValueError):
            raise Fail(f"{log}: what {name} measured on {side} is "
                       "damaged") from None
        path = place / board / side / f"{name}.json"
        write_atomically(path, json.dumps(report, indent=1) + "\n")
        paths.append(path)
    return paths


def main():
    parser = argparse.ArgumentParser(
        description=__doc__.split("\n\n")[0],
        epilog="lab/README.md tells how they fit together.")
    what = parser.add_mutually_exclusive_group()
    what.add_argument("--check", action="store_true",
                      help="validate the job of each board against LAVA's "
                           "schema")
    what.add_argument("--pack", nargs=3,
                      metavar=("SIDE", "TREE", "KSELFTEST"),
                      help="write what a board loads for base or series")
    what.add_argument("--jobs", action="store_true",
                      help="write the job definitions; needs --files and "
                           "--rootfs")
    what.add_argument("--collect", nargs="+", metavar="BOARD=LOG",
                      help="write the figures of finished jobs")
    parser.add_argument("--files", metavar="URL",
                        default=os.environ.get("FILES", ""),
                        help="where the boards find build/lab/files "
                             "(default: $FILES)")
    parser.add_argument("--rootfs", metavar="URL",
                        default=os.environ.get("ROOTFS", ""),
                        help="a Debian root file system, .tar.xz (default: "
                             "$ROOTFS)")
    options = parser.parse_args()
    with build_lock():
        if options.check:
            say(f"{check()} job definitions are valid")
        elif options.pack:
            side, tree, kselftest = options.pack
            pack(side, Path(tree), Path(kselftest))
        elif options.jobs:
            if not options.files or not options.rootfs:
                raise Fail("give FILES=URL, where the boards find "
                           "build/lab/files, and ROOTFS=URL of a Debian "
                           "root file system (.tar.xz)")
            paths = jobs(options.files, options.rootfs)
            say(f"{len(paths)} job definitions in {shown_path(PLACE)}/jobs: "
                "nothing was submitted")
        elif options.collect:
            for row in options.collect:
                board, equals, log = row.partition("=")
                if not equals or not re.fullmatch(r"[A-Za-z0-9._-]+", board):
                    raise Fail(f"'{row}' is not BOARD=LOG")
                if not Path(log).is_file():
                    raise Fail(f"there is no {log}")
                for path in collect(Path(log), board, PLACE / "results"):
                    say(f"    {shown_path(path)}")
        else:
            raise Fail("say what to do: --pack, --jobs, --check or "
                       "--collect; see lab/README.md")


if __name__ == "__main__":
    run_main(main)
