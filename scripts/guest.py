#!/usr/bin/env python3
# SPDX-License-Identifier: GPL-2.0-only
"""Boot a kernel that was built here under virtme-ng and run a command in it.

The guest sees the host's files read-only and one job folder read-write, and
leaves the command's output and exit status there: virtme-ng's own script
ports need udev in the guest.
"""

import argparse
import json
import os
import re
import shlex
import shutil
import sys
import tempfile
from pathlib import Path

from common import (BUILD, LOGS, Fail, build_lock, need_tool, run_logged,
                    run_main, say, shown_path, tail, write_atomically)

VENV = BUILD / "venv"
PROBE_SECONDS = 25
# virtme-ng gives the guest several serial devices of 31 ports each, of which
# one is used.  QEMU polls two event file descriptors for each port, hundreds
# of times a second: that takes more of a processor than the guest.
FEW_PORTS = "-global virtio-serial-pci.max_ports=2"
# While one CPU patches a branch, an emulated other one may run into the
# breakpoint that is there for a moment, and get to the handler when it has
# gone: the kernel dies of an int3 that it knows nothing of.  No test has to do
# with that, so such a guest starts again.  One in five did on an AMD EPYC.
STRAY_BREAKPOINT = "Oops: int3:"
TRIES = 6
# With sleep=off an idle guest jumps to its next timer. A test that sleeps a
# lot gets through faster, but a page read from the host can make a watchdog
# of many seconds fire at once.
ICOUNT = {"wait-idle": "-icount shift=0,sleep=on",
          "skip-idle": "-icount shift=0,sleep=off"}


class Lost(Fail):
    """A guest did not come to the end of its command.

    hung (bool): it ran into its time limit; if not, it ended by itself, as
    after a panic.  output (str): what the command had written by then.
    console (Path).
    """

    def __init__(self, text, hung, output, console):
        super().__init__(text)
        self.hung = hung
        self.output = output
        self.console = console


class Result:
    """What a guest left: status (int), output (str), console (Path)."""

    def __init__(self, status, output, console):
        self.status = status
        self.output = output
        self.console = console


def need_guest(kernel):
    """Raise Fail unless all that a guest needs is there."""
    need_tool("qemu-system-x86_64", "qemu-system-x86")
    if not (VENV / "bin/vng").exists():
        raise Fail(f"virtme-ng is not in {shown_path(VENV)}: run 'make deps'")
    if not (Path(kernel) / "arch/x86/boot/bzImage").exists():
        raise Fail(f"there is no kernel in {shown_path(kernel)}: "
                   "run 'make kernels' first")


def boot(kernel, command, *, cpus=1, kvm=False, **options):
    """Run a shell command (str) as root in a guest and return a Result.

    As boot_once(), which has the options, but a guest that an emulated CPU's
    stray breakpoint ended starts again.
    """
    for number in range(1, TRIES + 1):
        try:
            return boot_once(kernel, command, cpus=cpus, kvm=kvm, **options)
        except Lost as lost:
            if kvm or cpus == 1 or lost.hung or number == TRIES \
                    or not stray_breakpoint(lost.console):
                raise
            say("    a stray breakpoint of the emulation ended the guest: "
                "starting it again")


def stray_breakpoint(console):
    """Tell whether it was a breakpoint that ended a guest (bool).

    console: Path of what it said; its first oops counts.
    """
    found = re.search(r"\b(?:Oops|BUG|kernel BUG at|general protection fault)"
                      r"\b[^\n]*", console.read_text(errors="replace"))
    return bool(found) and found.group().startswith(STRAY_BREAKPOINT)


def boot_once(kernel, command, *, cpus=1, memory="1G", icount=None, kvm=False,
              timeout=600, name="guest", share=None, append=(), qemu=""):
    """Run a shell command (str) as root in a guest and return a Result.

    kernel: Path of a built kernel tree.  timeout: seconds for the guest as
    a whole.  icount: None or a key of ICOUNT, for a clock that counts
    instructions.  share: Path of a folder that the guest may write, mounted at
    the same place.  append: kernel parameters.  qemu: more options (str) for
    QEMU.  Raises Lost, a Fail, when the
    guest does not come to the end of the command: a hang, a panic, a kernel
    that never boots.  The console is kept in build/logs/NAME.console.
    """
    need_guest(kernel)
    if icount and cpus != 1:
        raise Fail("-icount counts the instructions of one CPU: use --cpus 1")
    BUILD.mkdir(parents=True, exist_ok=True)
    console = LOGS / f"{name}.console"
    job = Path(tempfile.mkdtemp(prefix="guest-", dir=BUILD))
    try:
        script = job / "script"
        script.write_text(
            "#!/bin/sh\n"
            f"cd {shlex.quote(str(job))}\n"
            f"( {command}\n) >output 2>&1 </dev/null\n"
            "echo $? >status.partial\n"
            "mv status.partial status\n"
            "sync\n")
        script.chmod(0o755)
        arguments = [
            str(VENV / "bin/vng"), "--run", str(kernel), "--verbose",
            "--force-9p", "--user", "root", "--cpus", str(cpus),
            "--memory", memory, "--rwdir", str(job)]
        if share:
            arguments += ["--rwdir", str(share)]
        if not kvm:
            # On a busy host the kernel's check whether timer interrupts
            # arrive may end too early, in a panic.
            arguments += ["--disable-kvm", "--append", "no_timer_check"]
        arguments.append("--qemu-opts=" + " ".join(
            filter(None, (FEW_PORTS, icount and ICOUNT[icount], qemu))))
        for parameter in append:
            arguments += ["--append", parameter]
        arguments += ["--", str(script)]
        environment = os.environ | {
            "PATH": f"{VENV / 'bin'}:{os.environ['PATH']}"}
        end = run_logged(arguments, console, timeout=timeout, cwd=job,
                         env=environment, check=False, what="the guest")
        output = ""
        if (job / "output").exists():
            output = (job / "output").read_text(errors="replace")
        if not (job / "status").exists():
            why = (f"did not end within {timeout} s and was stopped"
                   if end is None else
                   "ended before its command did: a panic, or a kernel that "
                   "does not boot")
            raise Lost(f"the guest '{name}' on {shown_path(kernel)} {why}; "
                       f"the end of its console, {shown_path(console)}:\n"
                       f"{tail(console)}"
                       + ("\nand of its output:\n    | " + "\n    | ".join(
                           output.splitlines()[-10:]) if output else ""),
                       end is None, output, console)
        return Result(int((job / "status").read_text()), output, console)
    finally:
        shutil.rmtree(job, ignore_errors=True)


def kvm_works(kernel):
    """Tell whether a guest really boots under KVM here (bool).

    /dev/kvm may exist and yet hang every guest, so a probe guest with a
    time limit decides.  The answer holds until the host reboots.
    """
    if not os.access("/dev/kvm", os.R_OK | os.W_OK):
        return False
    need_guest(kernel)
    record = BUILD / "kvm.json"
    boot_id = Path("/proc/sys/kernel/random/boot_id").read_text().strip()
    try:
        known = json.loads(record.read_text())
        if known["boot_id"] == boot_id:
            return known["works"]
    except (OSError, ValueError, KeyError):
        pass
    say(f"    /dev/kvm is there: trying it for at most {PROBE_SECONDS} s")
    try:
        works = boot(kernel, "true", kvm=True, timeout=PROBE_SECONDS,
                     name="kvm-probe").status == 0
    except Fail:
        works = False
    say("    KVM works" if works else
        "    KVM boots no guest here: using software emulation (TCG)")
    write_atomically(record, json.dumps(
        {"boot_id": boot_id, "works": works}) + "\n")
    return works


def choose_kvm(kernel):
    """Follow ACCEL=tcg|kvm, or probe; returns True for KVM.

    Raises Fail when ACCEL asks for a KVM that does not work, or is neither.
    """
    wish = os.environ.get("ACCEL") or "auto"
    if wish == "tcg":
        return False
    if wish == "kvm":
        if not kvm_works(kernel):
            raise Fail("ACCEL=kvm, but no guest boots under KVM here: use "
                       "ACCEL=tcg")
        return True
    if wish != "auto":
        raise Fail(f"ACCEL={wish} is not known: use tcg or kvm")
    return kvm_works(kernel)


def main():
    parser = argparse.ArgumentParser(
        description=__doc__.split("\n\n")[0],
        epilog="example: scripts/guest.py --kernel build/series --icount -- "
               "build/series/tools/testing/selftests/x86/ioperm_latency_64")
    parser.add_argument("--kernel", type=Path, default=BUILD / "series",
                        help="built kernel tree (default: build/series)")
    parser.add_argument("--cpus", type=int, default=1, help="default: 1")
    parser.add_argument("--memory", default="1G", help="default: 1G")
    parser.add_argument("--icount", nargs="?", choices=list(ICOUNT),
                        const="wait-idle",
                        help="software emulation whose clock counts "
                             "instructions (one CPU); idle time passes as "
                             "it does outside, or is skipped")
    parser.add_argument("--timeout", type=int, default=600,
                        help="seconds until the guest is stopped "
                             "(default: 600)")
    parser.add_argument("--share", type=Path,
                        help="folder that the guest may write")
    parser.add_argument("--append", action="append", default=[],
                        help="kernel parameter")
    parser.add_argument("command", nargs="+", help="command to run as root")
    options = parser.parse_args()

    with build_lock():
        kvm = not options.icount and choose_kvm(options.kernel)
        result = boot(options.kernel.resolve(), shlex.join(options.command)
                      if len(options.command) > 1 else options.command[0],
                      cpus=options.cpus, memory=options.memory,
                      icount=options.icount, kvm=kvm,
                      timeout=options.timeout,
                      share=options.share and options.share.resolve(),
                      append=options.append)
    sys.stdout.write(result.output)
    return result.status


if __name__ == "__main__":
    run_main(main)
