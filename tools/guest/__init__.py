# SPDX-License-Identifier: GPL-2.0-only
"""Boot a kernel that was built here under virtme-ng, and run a command.

The guest sees the host's files read-only and one job folder read-write, and
leaves the command's output and exit status there: virtme-ng's own script
ports need udev in the guest.
"""

import fcntl
import os
import re
import shlex
from pathlib import Path
from typing import NamedTuple

from tools.core import (BUILD, Fail, need_tool, read_json, run_logged, say,
                        scratch, shown_path, tail, write_atomically,
                        write_json)

VENV = BUILD / "venv"
QEMU = Path(__file__).with_name("qemu")
PROBE_SECONDS = 25
# virtme-ng gives the guest several serial devices of 31 ports each, of which
# one is used.  QEMU polls two event file descriptors for each port, hundreds
# of times a second: that takes more of a processor than the guest.
FEW_PORTS = "-global virtio-serial-pci.max_ports=2"
# A clock that counts instructions.  With sleep=off an idle guest jumps to its
# next timer: a test that sleeps a lot gets through faster, but a page read
# from the host can make a watchdog of many seconds fire at once.
ICOUNT = {"wait-idle": "-icount shift=0,sleep=on",
          "skip-idle": "-icount shift=0,sleep=off"}
# While one CPU patches a branch, an emulated other one may run into the
# breakpoint that is there for a moment, and get to the handler when it has
# gone: the kernel dies of an int3 that it knows nothing of.  No test has to do
# with that, so such a guest starts again.  One in five did on an AMD EPYC.
# 6.1 does not say "Oops" there.  QEMU 7.2 crashed once as such a guest booted.
# The first oops counts; that of an emulation has a group.
OOPS = (r"\b(?:((?:Oops: )?int3:|QEMU crashed:)|"
        r"(?:Oops|BUG|general protection fault)\b)[^\n]*")
TRIES = 6


class Result(NamedTuple):
    """What a guest left: the command's exit status and output."""

    status: int
    output: str
    console: Path


class Lost(Fail):
    """A guest did not come to the end of its command: it hung till its time
    was over, or ended by itself, as after a panic.  output: what the command
    had written by then."""

    def __init__(self, text: str, hung: bool, output: str,
                 console: Path) -> None:
        super().__init__(text)
        self.hung, self.output, self.console = hung, output, console


def boot(folder: Path, command: str, log: Path, *, cpus: int = 1,
         memory: str = "1G", icount: str = "", kvm: bool = False,
         timeout: float = 600, share: Path | None = None,
         append: tuple[str, ...] = (), qemu: str = "") -> Result:
    """Run a shell command as root in a guest.

    folder: objects of a built kernel.  timeout: of the whole, in seconds.
    icount: a key of ICOUNT.  share: a folder that the guest may write, at the
    same place.  append: kernel parameters.  qemu: more of its options.  The
    output is kept in LOG.ktap, the console in LOG.console.  Raises Lost.
    """
    need_tool("qemu-system-x86_64", "qemu-system-x86")
    if not (VENV / "bin/vng").exists():
        raise Fail(f"virtme-ng is not in {shown_path(VENV)}: run 'make deps'")
    arguments = [
        str(VENV / "bin/vng"), "--run", str(folder), "--verbose",
        "--qemu", str(QEMU), "--force-9p", "--user", "root", "--cpus",
        str(cpus), "--memory", memory, "--qemu-opts="
        + f"{FEW_PORTS} {ICOUNT.get(icount, '')} {qemu}".strip()]
    if share:
        arguments += ["--rwdir", str(share)]
    if not kvm:
        # On a busy host the kernel's check whether timer interrupts arrive
        # may end too early, in a panic.
        arguments.append("--disable-kvm")
        append = ("no_timer_check", *append)
    for parameter in append:
        arguments += ["--append", parameter]
    tries = 1 if kvm or cpus == 1 else TRIES
    while True:
        tries -= 1
        try:
            return _boot_once(arguments, command, timeout, log)
        except Lost as lost:
            if lost.hung or not tries or not emulation_ended(lost.console):
                raise


def emulation_ended(console: Path) -> bool:
    """Tell whether the emulation ended a guest, which then starts again."""
    oops = re.search(OOPS, console.read_text(errors="replace"))
    if not oops or not oops[1]:
        return False
    say(f"    the emulation ended the guest, with '{oops[0]}': "
        "starting it again")
    return True


def _boot_once(arguments: list[str], command: str, timeout: float,
               log: Path) -> Result:
    console = Path(f"{log}.console")
    with scratch("guest") as job:
        script, output, status = job / "script", job / "output", job / "status"
        script.write_text(
            f"#!/bin/sh\ncd {shlex.quote(str(job))}\n"
            f"( {command}\n) >output 2>&1 </dev/null\n"
            "echo $? >status.partial\nmv status.partial status\nsync\n")
        script.chmod(0o755)
        with open(job / "alive", "w") as alive:
            fcntl.flock(alive, fcntl.LOCK_EX)
            end = run_logged(
                [*arguments, "--rwdir", str(job), "--", str(script)], console,
                timeout=timeout, cwd=job, check=False, env=os.environ | {
                    # The user's virtme-ng.conf is not read.
                    "HOME": str(job), "ALIVE": alive.name,
                    "PATH": f"{VENV / 'bin'}:{os.environ['PATH']}"})
        said = output.read_text(errors="replace") if output.exists() else ""
        write_atomically(Path(f"{log}.ktap"), said)
        if status.exists():
            return Result(int(status.read_text()), said, console)
        rows = f"\nand of its output:\n{tail(output, 10)}" if said else ""
    why = (f"did not end within {timeout} s and was stopped" if end is None
           else "ended before its command did: a panic, or a kernel that "
           "does not boot")
    raise Lost(f"the guest '{log.name}' {why}; the end of its console, "
               f"{shown_path(console)}:\n{tail(console)}{rows}",
               end is None, said, console)


def choose_kvm(folder: Path) -> bool:
    """Tell whether guests run under KVM, by ACCEL= or by what works.

    /dev/kvm may exist and yet hang every guest, so a guest with a time limit
    decides.  The answer holds until the host reboots.
    """
    wish = os.environ.get("ACCEL")
    works = wish != "tcg" and os.access("/dev/kvm", os.R_OK | os.W_OK) and \
        _kvm_works(folder)
    if wish == "kvm" and not works:
        raise Fail("ACCEL=kvm, but no guest boots under KVM here: use "
                   "ACCEL=tcg")
    return works


def _kvm_works(folder: Path) -> bool:
    record = BUILD / "kvm.json"
    host = Path("/proc/sys/kernel/random/boot_id").read_text().strip()
    known = read_json(record, {})
    if known.get("boot_id") == host:
        return known["works"]
    say(f"    /dev/kvm is there: trying it for about {PROBE_SECONDS} s")
    try:
        works = boot(folder, "true", BUILD / "logs/kvm-probe", kvm=True,
                     timeout=PROBE_SECONDS).status == 0
    except Lost:
        works = False
    say("    KVM works" if works else
        "    KVM boots no guest here: using software emulation (TCG)")
    write_json(record, {"boot_id": host, "works": works})
    return works


def check_splat(console: Path) -> None:
    """Raise Fail when a console has a warning, bug or sanitizer report."""
    # A test runs into a memory limit, and the OOM killer tells from where.
    text = re.sub(r"(invoked oom-killer: (?:.*\n){1,9}?.*)Call Trace:", r"\1",
                  console.read_text(errors="replace"))
    # virtme-ng warns of what the machine lacks in the same words.
    if splat := re.search(r"^(?!.*virtme-ng-init: )"
                          r".*(WARNING: |BUG: |UBSAN: |Oops|Call Trace).*$",
                          text, re.M):
        raise Fail(f"the console has: {splat[0].strip()} (all of it: "
                   f"{shown_path(console)})")
