# SPDX-License-Identifier: GPL-2.0-only
"""Test base and series in a LAVA lab: one of your own boards, or QEMU here.

tools/lab/README.md is the guide.  --run needs no lab: it makes a LAVA server,
a worker and an emulated board in a root of their own below build/lab, and runs
the job there.  --pack, --jobs and --collect are the steps for real boards.
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
from pathlib import Path
from typing import Any

from tools.build import (SIDES, build_bench, build_sides, image,
                         make_arguments, objects, source)
from tools.core import (BUILD, LOGS, RESULTS, ROOT, Fail, build_lock, digest,
                        need_space, need_tool, read_json, run_logged,
                        run_main, say, scratch, shown_path, stage,
                        write_atomically, write_json)
from tools.count import Count
from tools.debian import inside, last, make_root, why_not
from tools.selftests import install
from tools.series.base import wanted

LAB = ROOT / "tools/lab"
PLACE = BUILD / "lab"
BOARDS = PLACE / "boards"  # what real boards load, and their jobs
SERVER = PLACE / "server"  # the root with LAVA
SHARED = SERVER / "srv/lab"  # what the emulated board loads, and its job
ROW = re.compile(r"(?P<board>[\w.-]+)\s+(?P<method>grub|ipxe|qemu)"
                 r"(?:\s+(?P<arguments>[^\"\\]*))?")
EXAMPLE = "http://files.example.org"
SECONDS = 5 * 3600
STEP = last(r"^step: (.*)$")  # what server.sh does, by its log
# Debian's lava-common has it, with the schema of the server.
SCHEMA = Path("/usr/share/lava-common/lava-schema.py")
# What must pass on both kernels, and the tests that are about the series:
# emulation makes some of the others flaky.
NEEDED = ("kernel", "kselftest-ran", "dmesg")
OWN = r"x86\.iop|sched\."
# The emulation makes any kernel oops when these run.
WITHOUT = "x86:test_syscall_vdso_32 x86:sysret_ss_attrs_64"
FIGURES = ("pair-0x80-0x81", "pair-0x80-65535")

# By side: {"cases": {name: "pass"|"fail"|"skip"}, "figures": {name: report}}
Found = dict[str, dict[str, dict[str, Any]]]


# --- jobs ------------------------------------------------------------------

def boards() -> list[dict[str, str]]:
    """Return the rows of tools/lab/boards.txt: board, method, arguments."""
    rows = []
    lines = (LAB / "boards.txt").read_text().splitlines()
    for number, line in enumerate(lines, 1):
        text = line.split("#")[0].strip()
        row = ROW.fullmatch(text)
        if row:
            rows.append(row.groupdict(""))
        elif text:
            raise Fail(f"tools/lab/boards.txt, line {number}: want a device "
                       "type, grub, ipxe or qemu, and kernel arguments")
    if "qemu" not in [row["method"] for row in rows]:
        raise Fail("tools/lab/boards.txt has no row with the method qemu")
    return rows


def write_job(path: Path, row: dict[str, str], files: str, ids: dict[str, str],
              rootfs: str = "") -> None:
    """Write the job of a board; Fail unless LAVA's schema accepts it.

    files, rootfs: URLs.  ids: the build ID of each side's kernel.
    """
    files = files.rstrip("/")
    qemu = row["method"] == "qemu"
    values = row | {
        "files": files, "rootfs": rootfs or f"{files}/root.cpio.gz",
        "version": wanted()["VERSION"], "without": WITHOUT if qemu else ""}
    head, load, test = (
        string.Template((LAB / f"{name}.yaml").read_text())
        for name in ("job", "qemu" if qemu else "board", "test"))
    write_atomically(path, head.substitute(values) + "".join(
        part.substitute(values, side=side, build_id=ids[side])
        for side in SIDES for part in (load, test)))
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


def check_jobs() -> None:
    """LAVA's schema accepts the job of each board."""
    with scratch("lab") as place:
        for row in boards():
            write_job(place / f"{row['board']}.yaml", row, EXAMPLE,
                      {side: "0" for side in SIDES})


def write_jobs(files: str, rootfs: str) -> None:
    """Write the jobs of the real boards."""
    if not files:
        raise Fail("give FILES=URL, where the boards find "
                   + shown_path(BOARDS))
    ids = read_json(BOARDS / "kernels.json")
    if not ids:
        raise Fail(f"there is nothing in {shown_path(BOARDS)} yet: run "
                   "python -m tools.lab --pack")
    rows = [row for row in boards() if row["method"] != "qemu"]
    for row in rows:
        write_job(BOARDS / f"{row['board']}.yaml", row, files, ids, rootfs)
    say(f"{len(rows)} jobs in {shown_path(BOARDS)}: nothing was submitted")


# --- what a board loads ----------------------------------------------------

def build_id(folder: Path) -> str:
    """Return the build ID of a built kernel, which a running one shows."""
    need_tool("readelf", "binutils")
    said = subprocess.run(["readelf", "-n", str(folder / "vmlinux")],
                          capture_output=True, text=True).stdout
    found = re.search(r"Build ID: ([0-9a-f]+)", said)
    if not found:
        raise Fail(f"{shown_path(folder)} has no vmlinux with a build ID")
    return found[1]


def pack(kernels: dict[str, str], place: Path) -> dict[str, str]:
    """Write what a board loads, {side: kernel}, into a folder; return {side:
    build ID}.  Both get the series' tests, so that one program measures
    both."""
    build_sides(tuple(kernels.values()))
    tests = install("lab", source("applied"), ("x86", "sched"),
                    make_arguments(kernels["series"]))
    archive = board_root()
    place.mkdir(parents=True, exist_ok=True)
    with stage(f"packing {shown_path(place)}"), scratch("lab") as root:
        for side, name in kernels.items():
            shutil.copyfile(image(name), place / f"bzImage-{side}")
        shutil.copyfile(archive, place / archive.name)
        shutil.copytree(tests, root / "opt/lab/kselftest", symlinks=True)
        for file in (LAB / "run.sh",
                     build_bench("yield_latency", static=True)):
            shutil.copy(file, root / "opt/lab")
        run_logged(["tar", "-cJf", str(place / "lab.tar.xz"), "--owner=0",
                    "--group=0", "-C", str(root), "opt"],
                   LOGS / "lab-tar.log", what="packing the tests")
    ids = {side: build_id(objects(name)) for side, name in kernels.items()}
    write_json(place / "kernels.json", ids)
    return ids


def board_root() -> Path:
    """Make the initramfs of all boards, once: a Debian with a root shell."""
    archive, root = PLACE / "root.cpio.gz", PLACE / "board"
    key, stamp = digest((LAB / "init").read_text()), PLACE / "board.key"
    if stamp.exists() and stamp.read_text() == key:
        return archive
    make_root(root, ("libc6-i386",), LOGS / "lab-board.log")
    shutil.copy(LAB / "init", root)
    with stage(f"packing {shown_path(archive)}"):
        run_logged(["sh", "-c", 'cd "$0" && find . -path "./usr/share/[dlm]*"'
                    ' -prune -o -path "./var/[cl]*/apt/*" -prune -o -print0 '
                    '| cpio -0o -H newc -R 0:0 | gzip >"$1"', str(root),
                    str(archive)],
                   LOGS / "lab-cpio.log", what="packing the board's root")
    write_atomically(stamp, key)
    return archive


# --- a lab of its own ------------------------------------------------------

def why_no_lab() -> str:
    """Return why no lab can be made and run here, or nothing."""
    library = os.confstr("CS_GNU_LIBC_VERSION") or "0"
    newer = tuple(map(int, re.findall(r"\d+", library))) > (2, 36)
    return why_not() or (f"the boards' Debian 12 does not run programs of "
                         f"this machine's {library}" if newer else "")


def make_server() -> None:
    """Make the root with a LAVA server and worker, once."""
    board_root()
    text = (LAB / "server.sh").read_text()
    key, stamp = digest(text.split("run_job")[0]), PLACE / "server.key"
    if stamp.exists() and stamp.read_text() == key:
        return
    stamp.unlink(missing_ok=True)
    need_space(PLACE, 3, "LAVA's packages")
    shutil.rmtree(SERVER, ignore_errors=True)
    with stage(f"installing LAVA in {shown_path(SERVER)}"):
        run_logged(["cp", "-a", str(PLACE / "board"), str(SERVER)],
                   LOGS / "lab-cp.log")
        shutil.copy(LAB / "server.sh", SERVER / "srv")
        run_logged(inside(SERVER, ["sh", "/srv/server.sh", "install"]),
                   LOGS / "lab-install.log", what="installing LAVA",
                   progress=STEP)
    write_atomically(stamp, key)


def run_emulated() -> Found:
    """Run the job of the emulated board in a lab of its own."""
    row = next(row for row in boards() if row["method"] == "qemu")
    make_server()
    ids = pack({side: side for side in SIDES}, SHARED)
    log, copy = SHARED / "job.log", LOGS / "lab-job.log"
    log.unlink(missing_ok=True)
    write_job(SHARED / "job.yaml", row, "http://localhost:8080", ids)
    shutil.copy(LAB / "server.sh", SERVER / "srv")
    try:
        with stage("running the job of the emulated board in LAVA"):
            run_logged(inside(SERVER, ["sh", "/srv/server.sh", "run",
                                       "/srv/lab"], network=False),
                       LOGS / "lab-run.log", timeout=SECONDS,
                       what="the LAVA server", progress=STEP)
    finally:
        if log.exists():
            shutil.copyfile(log, copy)
    return collect(copy)


# --- results ---------------------------------------------------------------

def collect(log: Path) -> Found:
    """Return what the raw log of a finished job says; Fail when that is
    nothing, or damaged."""
    if not log.is_file():
        raise Fail(f"there is no {shown_path(log)}")
    text = log.read_text(errors="replace")
    found: Found = {}
    for row in re.findall(r'"lvl": "results", "msg": (.*)', text):
        # Other rows of the log are YAML, not always JSON.
        word = dict(re.findall(r'"(case|definition|result)": "([^"]*)"', row))
        test = re.fullmatch(r"\d+_(base|series)", word["definition"])
        if test:
            found.setdefault(test[1], {"cases": {}, "figures": {}})[
                "cases"][word["case"]] = word["result"]
    if not found:
        errors = re.findall(r'"lvl": "error", "msg": "(.*)"}|'
                            r'"error_msg": "(.*)", "error_type"', text)
        raise Fail(f"{shown_path(log)} has no results of base or series: "
                   + (" ".join(map("".join, errors[-2:]))
                      or "is it the raw log of a job that ran its tests?"))
    data: dict[tuple[str, str], str] = {}
    for side, name, part in re.findall(
            r"LAB-DATA (base|series) (\w+) ([A-Za-z0-9+/=]+)", text):
        data[side, name] = data.get((side, name), "") + part
    for (side, name), parts in data.items():
        try:
            found[side]["figures"][name] = json.loads(
                base64.b64decode(parts, validate=True))
        except (binascii.Error, ValueError, KeyError):
            raise Fail(f"{shown_path(log)}: what {name} measured on {side} "
                       "is damaged") from None
    return found


def count_board(count: Count, board: str, found: Found,
                pattern: str = "") -> None:
    """Keep a board's results in build/results/lab.json and count them: no test
    (whose name begins like the pattern) may be worse on the series."""
    path = RESULTS / "lab.json"
    write_json(path, read_json(path, {}) | {board: found})
    sides = {side: found.get(side, {"cases": {}, "figures": {}})
             for side in SIDES}
    for side in SIDES:
        for name in NEEDED:
            verdict = sides[side]["cases"].get(name, "did not run")
            if verdict == "pass":
                count.ok(f"{board}: {side}: {name}")
            else:
                count.fail(f"{board}: {side}: {name}", verdict)
    base, series = (sides[side]["cases"] for side in SIDES)
    rank = ("missing", "fail", "skip", "pass")
    for name in sorted({*base, *series} - {*NEEDED}):
        before, after = base.get(name, "skip"), series.get(name, "missing")
        words = f"{after}, on the base {before}"
        worse = rank.index(after) < rank.index(before)
        if worse and re.match(pattern, name):
            count.fail(f"{board}: {name}", words)
        elif after == "pass":
            count.ok(f"{board}: {name}")
        else:
            say(f"    notice: {name}: {words}")
    for side in SIDES:
        report = sides[side]["figures"].get("ioperm_latency", {"cases": []})
        medians = {case["name"]: case["p50"] for case in report["cases"]}
        say(f"    {side}: " + ", ".join(
            f"{name} {medians.get(name, '?')}" for name in FIGURES))


def group(count: Count) -> None:
    """The job of tools/lab runs in a LAVA lab of its own."""
    count.run("lab: LAVA's schema accepts the jobs", check_jobs)
    if why_no_lab():
        count.skip("lab: the job runs in LAVA", why_no_lab())
        return
    count_board(count, "qemu", run_emulated(), OWN)


def main() -> int:
    parser = argparse.ArgumentParser(
        description=__doc__.partition("\n\n")[0],
        epilog="tools/lab/README.md tells how they fit together.")
    what = parser.add_mutually_exclusive_group(required=True)
    for name, text in (
            ("run", "run the job of an emulated board here, as root"),
            ("check", "check the jobs against LAVA's schema"),
            ("pack", "build what real boards load, as root"),
            ("jobs", "write the jobs of real boards; needs --files")):
        what.add_argument(f"--{name}", action="store_true", help=text)
    what.add_argument("--collect", nargs=2, metavar=("BOARD", "LOG"),
                      help="keep and count the results of a finished job")
    parser.add_argument("--files", default=os.environ.get("FILES", ""),
                        metavar="URL",
                        help="where the boards find build/lab/boards "
                             "(default: $FILES)")
    parser.add_argument("--rootfs", default=os.environ.get("ROOTFS", ""),
                        metavar="URL",
                        help="another initramfs for them, .cpio.gz, with a "
                             "root shell (default: $ROOTFS)")
    options = parser.parse_args()
    count = Count()
    with build_lock():
        if options.jobs:
            write_jobs(options.files, options.rootfs)
            return 0
        if options.pack:
            pack({side: f"lab_{side}" for side in SIDES}, BOARDS)
            return 0
        if options.check:
            count.run("LAVA's schema accepts the jobs", check_jobs)
        elif options.run:
            group(count)
        else:
            board, log = options.collect
            count_board(count, board, collect(Path(log)))
    say(count.last_line())
    return count.status()


if __name__ == "__main__":
    run_main(main)
