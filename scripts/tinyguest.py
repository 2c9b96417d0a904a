#!/usr/bin/env python3
# SPDX-License-Identifier: GPL-2.0-only
"""Boot a kernel into an initramfs that runs programs.

For kernels that cannot use the host's files (a 32-bit kernel beside a 64-bit
user land), and for measurements that shall repeat to the last digit: nothing
from outside comes in but the clock, and REPEATABLE takes that away too.  The
init is scripts/tinyinit.c; what the programs print comes over the serial
console.  Programs are static, or what they load comes along (closure()).
"""

import argparse
import re
import shutil
import stat
import subprocess
import sys
import tempfile
from pathlib import Path

from common import (BUILD, LOGS, ROOT, Fail, build_lock, need_tool,
                    run_logged, run_main, shown_path, tail)

# Of itself qemu-system-i386 has an Athlon, which the kernel warns of when
# there are several.
EMULATED = ("-accel", "tcg", "-cpu", "max,family=15,model=107")
HARDWARE = ("-accel", "kvm", "-cpu", "host")
# One instruction is one ns, idle time is skipped, the date is always the same
# and no random numbers come from the host.
REPEATABLE = ("-accel", "tcg", "-cpu", "max,-rdrand,-rdseed",
              "-icount", "shift=0,sleep=off",
              "-rtc", "base=2026-01-01,clock=vm")
# What scripts/tinyinit.c has room for.
MAX_ROWS, MAX_WORDS = 64, 256
# No addresses drawn by lot, and no check of the timer against the loops of
# another clock.
REPEATABLE_KERNEL = "nokaslr norandmaps no_timer_check"


class Run:
    """What one program did: status (int or None), output (str), seconds."""

    def __init__(self, status, output, seconds=0):
        self.status = status
        self.output = output
        self.seconds = seconds


def cpio_entry(number, name, mode, data=b"", device=(0, 0)):
    """Return one file (bytes) of a cpio archive in the newc format."""
    raw = name.encode() + b"\0"
    head = b"070701" + b"".join(b"%08X" % field for field in (
        number, mode, 0, 0, 1, 0, len(data), 0, 0, *device, len(raw), 0))
    entry = head + raw
    entry += b"\0" * (-len(entry) % 4) + data
    return entry + b"\0" * (-len(data) % 4)


def closure(programs):
    """Return {path in the guest (str): Path} of programs and their libraries.

    programs: names that are in PATH, or Paths.  Raises Fail when one is
    missing, or a library of it.
    """
    found = {}
    for program in programs:
        path = shutil.which(program)
        if not path:
            raise Fail(f"the command '{program}' is missing")
        found[f"/bin/{Path(path).name}"] = Path(path).resolve()
        run = subprocess.run(["ldd", path], capture_output=True, text=True)
        lacking = re.search(r"^\s*(\S+) => not found", run.stdout, re.M)
        if lacking:
            raise Fail(f"{program} lacks {lacking.group(1)}")
        # A static program has none.
        for library in re.findall(r"^\s*(?:\S+ => )?(/\S+) \(0x", run.stdout,
                                  re.M):
            found[library] = Path(library).resolve()
    return found


def make_initramfs(init, programs, seconds, files=(), settle=0, also=None):
    """Return an initramfs (bytes).

    init: Path of the static init.  programs: [(Path, [argument, ...])].
    seconds: time limit of each program.  files: paths (str) in the guest
    that are shown afterwards.  settle: seconds to wait before.  also: more
    files, {path in the guest (str): Path}.
    """
    names, parts = dict(also or {}), []
    rows = [f"{settle} wait"] if settle else []
    for path, arguments in programs:
        names["/" + path.name] = path
        rows.append(" ".join([str(seconds), "/" + path.name, *arguments]))
    rows += [f"0 show {name}" for name in files]
    if len(rows) > MAX_ROWS or \
            any(len(row.split(" ")) > MAX_WORDS for row in rows):
        raise Fail(f"a guest runs at most {MAX_ROWS} programs with "
                   f"{MAX_WORDS} words each: ask for less in one")
    parts.append(("dev", stat.S_IFDIR | 0o755, b"", (0, 0)))
    parts.append(("dev/console", stat.S_IFCHR | 0o600, b"", (5, 1)))
    parts.append(("init", stat.S_IFREG | 0o755, init.read_bytes(), (0, 0)))
    parts.append(("tests", stat.S_IFREG | 0o644,
                  "".join(row + "\n" for row in rows).encode(), (0, 0)))
    folders = {str(place) for name in names for place in Path(name).parents}
    parts += [(folder[1:], stat.S_IFDIR | 0o755, b"", (0, 0))
              for folder in sorted(folders - {"/"})]
    for name, path in sorted(names.items()):
        parts.append((name[1:], stat.S_IFREG | 0o755, path.read_bytes(),
                      (0, 0)))
    archive = b"".join(cpio_entry(number, *part[:3], device=part[3])
                       for number, part in enumerate(parts, 1))
    return archive + cpio_entry(0, "TRAILER!!!", 0)


def read_console(text):
    """Return the runs ([(program, Run)]) that a console (str) tells of.

    A program that began and did not end has the status None.
    """
    text = text.replace("\r", "")
    found = []
    for name, output, end, seconds in re.findall(
            r"^@@ begin /(\S+)\n(.*?)(?:^@@ end /\1 (-?\d+) (\d+)$|\Z)",
            text, re.M | re.S):
        found.append((name, Run(int(end) if end else None, output,
                                int(seconds or 0))))
    return found


def boot_tiny(image, programs, *, cpus=2, memory="512M", timeout=600,
              seconds=120, name="tiny", bits=32, machine=EMULATED, append="",
              files=(), settle=0, also=None):
    """Boot a bzImage and run programs; returns [(name, Run)].

    programs: [(Path, [argument, ...])], static, or with what they load in
    also (see make_initramfs() and closure()).  timeout: of the guest, in
    seconds; seconds: of each program, by the guest's clock.
    machine: QEMU's options for the processor.  append: kernel parameters.
    files: paths (str) in the guest; what they hold at the end comes back
    like the output of programs of these names.  settle: seconds that the
    guest waits before the first program.  Raises Fail when the guest does
    not come to the end, or one of the programs did not start.  The console
    is kept in build/logs/NAME.console.
    """
    need_tool("qemu-system-x86_64", "qemu-system-x86")
    console = LOGS / f"{name}.console"
    BUILD.mkdir(parents=True, exist_ok=True)
    job = Path(tempfile.mkdtemp(prefix="guest-", dir=BUILD))
    try:
        archive = write_archive(job, programs, seconds, files, settle, bits,
                                also)
        status = run_logged(
            [f"qemu-system-{'i386' if bits == 32 else 'x86_64'}",
             *machine, "-smp", str(cpus), "-m", memory, "-nodefaults",
             "-display", "none", "-serial", "stdio",
             "-no-reboot", "-kernel", str(image), "-initrd", str(archive),
             "-append", f"console=ttyS0 panic=-1 {append}".strip()],
            console, timeout=timeout, check=False, what="the guest")
    finally:
        shutil.rmtree(job, ignore_errors=True)
    text = console.read_text(errors="replace").replace("\r", "")
    return finished_runs(text, programs, files, settle, console,
                         None if status is not None else timeout)


def write_archive(job, programs, seconds, files, settle, bits, also=None):
    """Compile the init and write the initramfs into a folder (Path).

    The rest is as boot_tiny() has it.  Returns the initramfs's Path.
    """
    init = job / "init"
    run_logged(["gcc", f"-m{bits}", "-static", "-O2", "-Wall", "-o",
                str(init), str(ROOT / "scripts/tinyinit.c")],
               LOGS / "tinyinit.log", what="compiling tinyinit.c")
    archive = job / "initramfs"
    archive.write_bytes(make_initramfs(init, programs, seconds, files,
                                       settle, also))
    return archive


def finished_runs(text, programs, files, settle, console, limit):
    """Return the runs of a console's text (str), when all is in it.

    console: the Path it is kept in.  limit: the seconds after which the
    guest was stopped, or None when it ended by itself.  The rest is as
    boot_tiny() has it.
    """
    name = console.stem
    runs = read_console(text)
    rows = bool(settle) + len(programs) + len(files)
    if not re.search(rf"^@@ done {rows}$", text, re.M):
        why = ("ended too early: a panic, or a kernel that does not boot"
               if limit is None else f"did not end within {limit} s")
        raise Fail(f"the guest '{name}' {why}; the end of "
                   f"{shown_path(console)}:\n{tail(console)}")
    if [name for name, _ in runs] != [path.name for path, _ in programs] \
            + [path.lstrip("/") for path in files]:
        raise Fail(f"not all programs ran; see {shown_path(console)}")
    return runs


def main():
    parser = argparse.ArgumentParser(
        description=__doc__.split("\n\n")[0],
        epilog="The programs must be static.")
    parser.add_argument("--image", type=Path, required=True,
                        help="the kernel's bzImage")
    parser.add_argument("--bits", type=int, choices=(32, 64), default=32)
    parser.add_argument("--cpus", type=int, default=2)
    parser.add_argument("--timeout", type=int, default=600,
                        help="seconds until the guest is stopped "
                             "(default: 600)")
    parser.add_argument("program", nargs="+", type=Path)
    options = parser.parse_args()
    with build_lock():
        runs = boot_tiny(options.image,
                         [(path, []) for path in options.program],
                         cpus=options.cpus, timeout=options.timeout,
                         bits=options.bits)
    for name, run in runs:
        sys.stdout.write(f"{run.output}{name}: exit status {run.status}\n")
    return max(run.status or 0 for _, run in runs)


if __name__ == "__main__":
    run_main(main)
