# SPDX-License-Identifier: GPL-2.0-only
"""Test base and series in a LAVA lab: one of your own boards, or QEMU here.

tools/lab/README.md is the guide.  --run needs no lab: it makes a LAVA server,
a worker and an emulated board in a root of their own below build/lab, and runs
the job there.  --pack, --jobs and --collect are the steps for real boards.
"""

import argparse
import base64
import json
import os
import re
import shutil
import subprocess
from pathlib import Path
from typing import Any

from tools import ktap
from tools.build import (SIDES, build_bench, build_sides, image,
                         make_arguments, objects, source)
from tools.core import (BUILD, LOGS, RESULTS, ROOT, Fail, build_lock, digest,
                        need_space, need_tool, read_json, run_logged,
                        run_main, say, scratch, shown_path, stage,
                        write_atomically, write_json)
from tools.count import Count
from tools.debian import inside, last, make_root, why_not
from tools.selftests import install

LAB = ROOT / "tools/lab"
PLACE = BUILD / "lab"
BOARDS = PLACE / "boards"  # what real boards load, and their jobs
SERVER = PLACE / "server"  # the root with LAVA; srv/lab is as BOARDS
STEP = last(r"^step: (.*)$")  # what server.sh does, by its log
# Debian's lava-common has it, with the schema of the server.
SCHEMA = Path("/usr/share/lava-common/lava-schema.py")
# What must pass on both kernels, and the tests that are about the series:
# emulation makes some of the others flaky.
NEEDED = ("kernel", "kselftest-ran", "dmesg")
OWN = r"x86\.iop|sched\."
# The emulation makes any kernel oops when these run.
WITHOUT = ("x86:test_syscall_vdso_32", "x86:sysret_ss_attrs_64")
FIGURES = ("pair-0x80-0x81", "pair-0x80-65535")

# By side: {"cases": {name: "pass"|"fail"|"skip"}, "figures": {name: report}}
Found = dict[str, dict[str, dict[str, Any]]]


def boards() -> list[list[str]]:
    """Return the rows of tools/lab/boards.txt: board, method, arguments."""
    lines = (LAB / "boards.txt").read_text().splitlines()
    rows = [line.split("#")[0].split(None, 2) for line in lines]
    for number, row in enumerate(rows, 1):
        if row and (len(row) < 3 or row[1] not in ("grub", "ipxe", "qemu")
                    or re.search(r'["\\]', row[2])):
            raise Fail(f"tools/lab/boards.txt, line {number}: want a device "
                       "type, grub, ipxe or qemu, and kernel arguments")
    return [[word.strip() for word in row] for row in rows if row]


def write_job(path: Path, row: list[str], files: str, ids: dict[str, str],
              rootfs: str = "") -> None:
    """Write the job of a board, which boots both kernels, one after the other;
    Fail unless LAVA's schema accepts it.

    files, rootfs: URLs.  ids: the build ID of each side's kernel.
    """
    # Here, because nothing else needs them.
    import yaml
    from tuxlava.devices.nfs import NfsX86_64
    from tuxlava.devices.qemu import QemuX86_64
    from tuxlava.jobs import Job

    (board, method, arguments), files = row, files.rstrip("/")
    kind, parent = ("qemu", QemuX86_64) if method == "qemu" else \
        ("nfs", NfsX86_64)
    # tuxlava finds a device by its name.  Only an emulated one has options:
    # with one thread for all CPUs QEMU never runs code that another CPU is
    # changing.
    type(board, (parent,), {
        "name": f"{kind}-{board}", "boot_method": method, "cpu": "max",
        "memory": "2048",
        "extra_options": ["-accel tcg,thread=single", "-smp 2"]})
    whole: dict[str, Any] = {}
    for side in SIDES:
        job = Job(device=f"{kind}-{board}", kernel=f"{files}/bzImage-{side}",
                  rootfs=rootfs or f"{files}/root.cpio.gz",
                  overlays=[[f"{files}/lab.tar.xz", "/"]], tests=[],
                  parameters={}, commands=["true"], boot_args=arguments,
                  tmpdir=path.parent,
                  timeouts={"deploy": 15, "boot": 15, "commands": 120})
        job.initialize()
        part = yaml.safe_load(job.render())
        deploy, boot, test = (action[name] for action, name in zip(
            part["actions"], ("deploy", "boot", "test")))
        for step in (deploy, boot, test):
            step["namespace"] = side
        deploy["os"] = "debian"
        if "ramdisk" in deploy:
            deploy["ramdisk"] |= {"format": "cpio.newc", "overlays": {"lab": {
                "url": f"{files}/lab.tar.xz", "format": "tar",
                "compression": "xz", "path": "/"}}}
        # tools/lab/init gives a shell without a login.
        del boot["auto_login"]
        boot["prompts"] = ["root@lab:.*#"]
        test["definitions"][0] |= {"name": side, "path": f"inline/{side}.yaml"}
        test["definitions"][0]["repository"]["run"]["steps"] = [
            " ".join(["/opt/lab/run.sh", side, ids[side],
                      *(WITHOUT if method == "qemu" else ())])]
        whole = part | {"job_name": f"ioports-yield {board}", "timeouts": {
            "job": {"minutes": 300}, "connection": {"minutes": 5}},
            "actions": [*whole.get("actions", ()), *part["actions"]]}
    # Debian 12's LAVA does not know it.
    whole["context"].pop("no_network", None)
    write_atomically(path, yaml.safe_dump(whole, sort_keys=False))
    if not SCHEMA.exists():
        raise Fail(f"there is no {SCHEMA}: apt-get install lava-common")
    # Not this Python: the schema and its modules are Debian's.
    done = subprocess.run(["/usr/bin/python3", str(SCHEMA), "job", str(path)],
                          capture_output=True, text=True)
    words = (done.stdout + done.stderr).strip()
    if done.returncode or "invalid" in words:
        raise Fail(f"{shown_path(path)} is not a job: "
                   + words.replace("\n", "; "))


def check_jobs() -> None:
    """LAVA's schema accepts the job of each board."""
    with scratch("lab") as place:
        for row in boards():
            write_job(place / row[0], row, "http://files.example.org",
                      dict.fromkeys(SIDES, "0"))


def write_jobs(files: str, rootfs: str) -> None:
    """Write the jobs of the real boards."""
    ids = read_json(BOARDS / "kernels.json")
    for row in boards():
        if row[1] != "qemu":
            write_job(BOARDS / f"{row[0]}.yaml", row, files, ids, rootfs)
    say(f"the jobs are in {shown_path(BOARDS)}: nothing was submitted")


def pack(kernels: dict[str, str], place: Path) -> dict[str, str]:
    """Write what a board loads, {side: kernel}, into a folder; return {side:
    build ID}.  Both get the series' tests, so that one program measures
    both."""
    need_tool("readelf", "binutils")
    build_sides(tuple(kernels.values()))
    tests = install("lab", source("applied"), ("x86", "sched"),
                    make_arguments(kernels["series"]))
    archive, ids = board_root(), {}
    place.mkdir(parents=True, exist_ok=True)
    with stage(f"packing {shown_path(place)}"), scratch("lab") as root:
        shutil.copytree(tests, root / "opt/lab/kselftest", symlinks=True)
        for file in (LAB / "run.sh", build_bench("yield_latency", static=True)):
            shutil.copy(file, root / "opt/lab")
        run_logged(["tar", "-cJf", str(place / "lab.tar.xz"), "--owner=0",
                    "--group=0", "-C", str(root), "opt"],
                   LOGS / "lab-tar.log", what="packing the tests")
        shutil.copyfile(archive, place / archive.name)
        for side, name in kernels.items():
            shutil.copyfile(image(name), place / f"bzImage-{side}")
            # A kernel that runs shows it, too.
            said = subprocess.run(
                ["readelf", "-n", str(objects(name) / "vmlinux")],
                capture_output=True, text=True, check=True).stdout
            ids[side] = said.partition("Build ID: ")[2].split()[0]
    write_json(place / "kernels.json", ids)
    return ids


def board_root() -> Path:
    """Make the initramfs of all boards, once: a Debian with a root shell."""
    text = (LAB / "init").read_text()
    archive, root = PLACE / f"{digest(text)}/root.cpio.gz", PLACE / "board"
    if archive.exists():
        return archive
    make_root(root, ("libc6-i386",), LOGS / "lab-board.log")
    shutil.copy(LAB / "init", root)
    archive.parent.mkdir(exist_ok=True)
    with stage(f"packing {shown_path(archive)}"):
        run_logged(["sh", "-c", 'cd "$0" && find . -path "./usr/share/[dlm]*"'
                    ' -prune -o -path "./var/[cl]*/apt/*" -prune -o -print0 '
                    '| cpio -0o -H newc -R 0:0 | gzip >"$1.partial" && '
                    'mv "$1.partial" "$1"', str(root), str(archive)],
                   LOGS / "lab-cpio.log", what="packing the board's root")
    return archive


def run_emulated() -> Found:
    """Run the job of the emulated board in a lab of its own."""
    # Made again when what install_all() does changes.
    stamp = PLACE / digest((LAB / "server.sh").read_text().partition(
        "run_job")[0])
    board_root()
    if not stamp.exists():
        need_space(PLACE, 3, "LAVA's packages")
        shutil.rmtree(SERVER, ignore_errors=True)
        with stage(f"installing LAVA in {shown_path(SERVER)}"):
            run_logged(["cp", "-a", str(PLACE / "board"), str(SERVER)],
                       LOGS / "lab-cp.log")
            shutil.copy(LAB / "server.sh", SERVER / "srv")
            run_logged(inside(SERVER, ["sh", "/srv/server.sh", "install"]),
                       LOGS / "lab-install.log", what="installing LAVA",
                       progress=STEP)
        stamp.touch()
    shutil.copy(LAB / "server.sh", SERVER / "srv")
    shared, copy = SERVER / "srv/lab", LOGS / "lab-job.log"
    ids = pack({side: side for side in SIDES}, shared)
    (shared / "job.log").unlink(missing_ok=True)
    write_job(shared / "job.yaml", next(row for row in boards() if
                                        row[1] == "qemu"),
              "http://localhost:8080", ids)
    try:
        with stage("running the job of the emulated board in LAVA"):
            run_logged(inside(SERVER, ["sh", "/srv/server.sh", "run",
                                       "/srv/lab"], network=False),
                       LOGS / "lab-run.log", timeout=5 * 3600,
                       what="the LAVA server", progress=STEP)
    finally:
        if (shared / "job.log").exists():
            shutil.copyfile(shared / "job.log", copy)
    return collect(copy)


def collect(log: Path) -> Found:
    """Return what the raw log of a finished job says; Fail when that is
    nothing, or damaged."""
    if not log.is_file():
        raise Fail(f"there is no {shown_path(log)}")
    text = log.read_text(errors="replace")
    found: Found = {side: {"cases": {}, "figures": {}} for side in SIDES}
    for row in re.findall(r'"lvl": "results", "msg": (.*)', text):
        # Other rows of the log are YAML, not always JSON.
        word = dict(re.findall(r'"(case|definition|result)": "([^"]*)"', row))
        if test := re.fullmatch(r"\d+_(base|series)", word["definition"]):
            found[test[1]]["cases"][word["case"]] = word["result"]
    if not any(side["cases"] for side in found.values()):
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
        except ValueError:
            raise Fail(f"{shown_path(log)}: what {name} measured on {side} "
                       "is damaged") from None
    return found


def count_board(count: Count, board: str, found: Found,
                pattern: str = "") -> None:
    """Keep a board's results in build/results/lab.json and count them: no test
    (whose name begins like the pattern) may be worse on the series."""
    path = RESULTS / "lab.json"
    write_json(path, read_json(path, {}) | {board: found})
    base, series = (found[side]["cases"] for side in SIDES)
    for name in sorted({*base, *series, *NEEDED}):
        before, after = base.get(name), series.get(name)
        worse = (before, after) != ("pass", "pass") if name in NEEDED else \
            ktap.is_worse(before, after)
        words = f"{after or 'missing'}, on the base {before or 'missing'}"
        if worse and (name in NEEDED or re.match(pattern, name)):
            count.fail(f"{board}: {name}", words)
        elif after == "pass":
            count.ok(f"{board}: {name}")
        else:
            say(f"    notice: {name}: {words}")
    for side in SIDES:
        report = found[side]["figures"].get("ioperm_latency", {"cases": []})
        medians = {case["name"]: case["p50"] for case in report["cases"]}
        say(f"    {side}: " + ", ".join(
            f"{name} {medians.get(name, '?')}" for name in FIGURES))


def group(count: Count) -> None:
    """The job of tools/lab runs in a LAVA lab of its own."""
    count.run("lab: LAVA's schema accepts the jobs", check_jobs)
    library = os.confstr("CS_GNU_LIBC_VERSION") or "0"
    newer = tuple(map(int, re.findall(r"\d+", library))) > (2, 36)
    reason = why_not() or newer and (
        f"the boards' Debian 12 does not run programs of {library}")
    if reason:
        count.skip("lab: the job runs in LAVA", reason)
    else:
        count_board(count, "qemu", run_emulated(), OWN)


def main() -> int:
    parser = argparse.ArgumentParser(
        description=__doc__.partition("\n\n")[0],
        epilog="tools/lab/README.md tells how they fit together.")
    what = parser.add_mutually_exclusive_group(required=True)
    for name, text in (
            ("run", "run the job of an emulated board here, as root"),
            ("pack", "build what real boards load, as root"),
            ("jobs", "write the jobs of real boards; needs --files")):
        what.add_argument(f"--{name}", action="store_true", help=text)
    what.add_argument("--collect", nargs=2, metavar=("BOARD", "LOG"),
                      help="keep and count the results of a finished job")
    for name, text in (
            ("files", "where the boards find build/lab/boards"),
            ("rootfs", "another initramfs for them, .cpio.gz, with a root "
             "shell")):
        parser.add_argument(f"--{name}", default=os.environ.get(
            name.upper(), ""), metavar="URL", help=text)
    options = parser.parse_args()
    for name in ("files", "rootfs"):
        value = getattr(options, name)
        if (value or options.jobs and name == "files") and not re.match(
                r"\w+://.", value):
            raise Fail(f"{name.upper()}={value} is no URL: give FILES=URL, "
                       f"where boards find {shown_path(BOARDS)}, and perhaps "
                       "ROOTFS=URL")
    if options.rootfs and not options.jobs:
        raise Fail("ROOTFS= goes with FILES=")
    if options.jobs and not (BOARDS / "kernels.json").exists():
        raise Fail(f"FILES=: there is nothing in {shown_path(BOARDS)} yet: "
                   "run python -m tools.lab --pack")
    count = Count()
    with build_lock():
        if options.jobs:
            write_jobs(options.files, options.rootfs)
            return 0
        if options.pack:
            pack({side: f"lab_{side}" for side in SIDES}, BOARDS)
            return 0
        if options.run:
            group(count)
        else:
            board, log = options.collect
            count_board(count, board, collect(Path(log)))
    say(count.last_line())
    return count.status()


if __name__ == "__main__":
    run_main(main)
