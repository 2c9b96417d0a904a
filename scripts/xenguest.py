#!/usr/bin/env python3
# SPDX-License-Identifier: GPL-2.0-only
"""Boot a kernel as Xen's first domain and run static programs there.

As a PV guest, where the kernel has no TSS of the hardware's: it tells the
hypervisor which bitmap is in force, and starts its processors in a way of its
own.  QEMU's software emulation starts Debian's Xen, the kernel and an
initramfs as scripts/tinyguest.py makes it; nothing is installed.
"""

import argparse
import gzip
import os
import re
import shutil
import subprocess
import sys
import tempfile
from pathlib import Path

from base import DOWNLOAD, private_apt, unpack
from common import (BUILD, LOGS, ROOT, Fail, build_lock, need_tool,
                    run_logged, run_main, say, shown_path, stage, tail)
from mutants import parse_ktap
from tinyguest import finished_runs, write_archive

HYPERVISOR = BUILD / "xen/xen"
# The packages of these are taken, whatever the machine itself runs.
SUITES = ("bookworm", "trixie")
PACKAGE = r"^xen-hypervisor-[0-9.]+-amd64$"
# The first word of a header that QEMU looks for, within so many bytes.
MULTIBOOT = (0x1badb002).to_bytes(4, "little")
MULTIBOOT_BYTES = 8192
# QEMU 7.2 reads the stack of an IRET as if it were the hypervisor that does
# it, which SMAP forbids: the kernel, in ring 3 here, would fault.
MACHINE = ("-accel", "tcg", "-cpu", "max,-smap")
# Without a word about each odd thing that the domain does: such lines come
# between those of the programs.
XEN_OPTIONS = ("console=com1", "com1=115200", "loglvl=info",
               "guest_loglvl=error", "no-real-mode")
# The emulated TSC is not steady enough for the kernel, which says so while the
# programs run.
KERNEL_OPTIONS = ("console=hvc0", "panic=-1", "tsc=unstable")
# What Xen says of a domain that it builds, and what the kernel says that it
# runs on.
BUILDS_PV = "*** Building a PV Dom0 ***"
FACTS = {"/sys/hypervisor/type": "xen", "/sys/hypervisor/guest_type": "PV"}
ONLINE = "/sys/devices/system/cpu/online"


def newest(listed):
    """Return the package (str) with the highest version of what apt-cache
    search listed (str), or None."""
    names = [row.split(" ")[0] for row in listed.splitlines()
             if re.match(PACKAGE, row.split(" ")[0])]
    return max(names, default=None, key=lambda name: [
        int(part) for part in re.findall(r"\d+", name)])


def download_xen():
    """Download the hypervisor's package; returns its Path."""
    place = DOWNLOAD / "xen"
    there = sorted(place.glob("xen-hypervisor-*.deb"))
    if there:
        return there[-1]
    need_tool("dpkg-deb", "dpkg")
    log = LOGS / "xen-apt.log"
    for suite in SUITES:
        environment = os.environ | {"APT_CONFIG": str(private_apt(suite))}
        if run_logged(["apt-get", "update"], log, env=environment,
                      check=False):
            continue
        package = newest(subprocess.run(
            ["apt-cache", "--names-only", "search", PACKAGE],
            env=environment, capture_output=True, text=True).stdout)
        partial = DOWNLOAD / "xen.partial"
        shutil.rmtree(partial, ignore_errors=True)
        partial.mkdir(parents=True)
        if not package or run_logged(["apt-get", "download", package], log,
                                     env=environment, cwd=partial,
                                     check=False):
            continue
        found = list(partial.glob("xen-hypervisor-*.deb"))
        if len(found) == 1:
            shutil.rmtree(place, ignore_errors=True)
            partial.rename(place)
            return place / found[0].name
    raise Fail("no Xen hypervisor is to be had from "
               f"{' or '.join(SUITES)}: mend the network or the apt sources, "
               "or put a package xen-hypervisor-VERSION-amd64 as a .deb into "
               f"{shown_path(place)}; apt's words are in {shown_path(log)}")


def check_multiboot(image):
    """Raise Fail unless QEMU can start a hypervisor (bytes)."""
    if MULTIBOOT not in image[:MULTIBOOT_BYTES]:
        raise Fail("this Xen is not one that QEMU can start: it has no "
                   f"multiboot header in its first {MULTIBOOT_BYTES} bytes")


def get_xen():
    """Get the hypervisor; returns its Path, an uncompressed image."""
    if HYPERVISOR.exists():
        return HYPERVISOR
    with stage("getting Xen"):
        package = download_xen()
        with tempfile.TemporaryDirectory(prefix="unpack-",
                                         dir=BUILD) as place:
            unpack(["dpkg-deb", "-x", str(package), place], package)
            packed = sorted(Path(place).glob("boot/xen-*.gz"))
            if len(packed) != 1:
                raise Fail(f"{shown_path(package)} holds {len(packed)} "
                           "hypervisors instead of one")
            try:
                image = gzip.decompress(packed[0].read_bytes())
            except (EOFError, OSError) as error:
                raise Fail(f"{shown_path(package)} is damaged ({error}): "
                           "remove it and run this again") from None
        check_multiboot(image)
        HYPERVISOR.parent.mkdir(parents=True, exist_ok=True)
        partial = HYPERVISOR.with_name("xen.partial")
        partial.write_bytes(image)
        partial.rename(HYPERVISOR)
    return HYPERVISOR


def qemu_command(hypervisor, cpus, memory, append=""):
    """Return QEMU's command (list of str), to be run where `bzImage` and
    `initramfs` are.

    memory: MiB of the machine; the domain gets that less what Xen needs.
    append: kernel parameters.
    """
    xen = [*XEN_OPTIONS, f"dom0_mem={memory - 256}M",
           f"dom0_max_vcpus={cpus}"]
    # QEMU cuts at each comma that is not doubled.
    kernel = " ".join(["bzImage", *KERNEL_OPTIONS,
                       *append.split()]).replace(",", ",,")
    return ["qemu-system-x86_64", *MACHINE, "-smp", str(cpus),
            "-m", f"{memory}M", "-nodefaults", "-display", "none",
            "-serial", "stdio", "-no-reboot", "-kernel", str(hypervisor),
            "-append", " ".join(xen), "-initrd", f"{kernel},initramfs"]


def split_console(text):
    """Cut a console (str) into what Xen and what the domain said (strs).

    Xen writes a line of its own wherever the domain happens to be.
    """
    text = text.replace("\r", "")
    own = re.compile(r"\(XEN\)(?: [^\n]*)?(?:\n|\Z)")
    return "".join(own.findall(text)), own.sub("", text)


def check_xen(said, console):
    """Raise Fail unless Xen came up and built a PV domain.

    said: what it said (str); console: the Path it is kept in.
    """
    panic = re.search(r"Panic on CPU \d+:\n\(XEN\) (.*)", said)
    if panic:
        raise Fail(f"Xen panics: {panic.group(1)}; see {shown_path(console)}")
    if BUILDS_PV not in said:
        raise Fail(("Xen came up, but built no PV domain" if said
                    else "Xen did not start")
                   + f"; the end of {shown_path(console)}:\n{tail(console)}")


def check_facts(found, cpus):
    """Raise Fail unless the domain is what it should be.

    found: {path (str): what is in that file of the guest (str)}.
    """
    wanted = FACTS | {ONLINE: f"0-{cpus - 1}" if cpus > 1 else "0"}
    for path, value in wanted.items():
        if found.get(path, "").strip() != value:
            raise Fail(f"the guest's {path} is "
                       f"'{found.get(path, '').strip()}' and not '{value}'")


def boot_xen(image, programs, *, cpus=2, memory=1024, timeout=1800,
             seconds=400, name="xen", append=""):
    """Boot a bzImage as Xen's first domain; returns [(program, Run)].

    programs: [(Path of a static program, [argument, ...])].  cpus: of the
    machine and of the domain.  memory: MiB of the machine.  timeout: of the
    guest, in seconds; seconds: of each program, by the guest's clock.
    append: kernel parameters.  Raises Fail when Xen or the domain does not
    come up, it is not a PV domain with so many processors, or one of the
    programs did not start.  The console is kept in build/logs/NAME.console,
    what the domain wrote there alone in build/logs/NAME.dom0.
    """
    need_tool("qemu-system-x86_64", "qemu-system-x86")
    hypervisor = get_xen()
    image = Path(image).resolve()
    if not image.is_file():
        raise Fail(f"there is no kernel {shown_path(image)}")
    console = LOGS / f"{name}.console"
    files = [*FACTS, ONLINE]
    BUILD.mkdir(parents=True, exist_ok=True)
    # QEMU would take a space or a comma in a module's path for its end.
    job = Path(tempfile.mkdtemp(prefix="guest-", dir=BUILD))
    try:
        write_archive(job, programs, seconds, files, 0, 64)
        (job / "bzImage").symlink_to(image)
        status = run_logged(qemu_command(hypervisor, cpus, memory, append),
                            console, timeout=timeout, check=False, cwd=job,
                            what="Xen")
    finally:
        shutil.rmtree(job, ignore_errors=True)
    # As bytes: of the "\r\r\n" that Xen makes, a text file has two lines.
    said, text = split_console(console.read_bytes().decode(errors="replace"))
    (LOGS / f"{name}.dom0").write_text(text)
    check_xen(said, console)
    runs = finished_runs(text, programs, files, 0, console,
                         None if status is not None else timeout)
    check_facts({"/" + path: run.output
                 for path, run in runs[len(programs):]}, cpus)
    return runs[:len(programs)]


def build_probe(place):
    """Compile scripts/xenports.c into a folder (Path); returns its Path."""
    place.mkdir(parents=True, exist_ok=True)
    probe = place / "xenports"
    run_logged(["gcc", "-static", "-O2", "-Wall", "-o", str(probe),
                str(ROOT / "scripts/xenports.c")], LOGS / "xenports.log",
               what="compiling xenports.c")
    return probe


def count_cases(run):
    """Count the cases of a Run of a program that prints KTAP.

    Returns {"pass": int, "fail": int, "skip": int}.  Raises Fail when other
    than what its plan promises has reported.
    """
    plan = re.search(r"^1\.\.(\d+)", run.output, re.M)
    reported = len(re.findall(r"^(?:not )?ok \d+\b", run.output, re.M))
    if not plan:
        raise Fail("it printed no plan")
    if reported != int(plan.group(1)):
        raise Fail(f"{reported} of its {plan.group(1)} cases reported")
    verdicts = list(parse_ktap(run.output).values())
    return {what: verdicts.count(what) for what in ("pass", "fail", "skip")}


def failed_cases(run):
    """Return the cases (list of str) of a Run's KTAP that failed."""
    return [case for case, verdict in parse_ktap(run.output).items()
            if verdict == "fail"]


def judge(run):
    """Say what a Run of a test came to.

    Returns ("pass"|"fail"|"skip", words).  A test that ended well and of
    which no case passed is no pass.
    """
    if run.status is None:
        return "fail", "it did not end"
    try:
        counts = count_cases(run)
    except Fail as failure:
        if run.status == 4:
            return "skip", "it skipped itself"
        return "fail", f"{failure} (exit status {run.status})"
    words = ", ".join(f"{count} {what}" for what, count in counts.items())
    if counts["fail"] or run.status not in (0, 4):
        return "fail", f"{words}: exit status {run.status}, " \
            f"failed: {', '.join(failed_cases(run)) or 'no case'}"
    if not counts["pass"]:
        return "skip", words
    return "pass", words


def main():
    parser = argparse.ArgumentParser(
        description=__doc__.split("\n\n")[0],
        epilog="The programs must be static. Without one, scripts/xenports.c "
               "tells what a task with one port can read on each processor.")
    parser.add_argument("--image", type=Path, required=True,
                        help="the kernel's bzImage, with CONFIG_XEN_PV_DOM0")
    parser.add_argument("--cpus", type=int, default=2)
    parser.add_argument("--append", default="", help="kernel parameters")
    parser.add_argument("--timeout", type=int, default=1800,
                        help="seconds until the guest is stopped "
                             "(default: 1800)")
    parser.add_argument("program", nargs="*", type=Path)
    options = parser.parse_args()
    with build_lock():
        LOGS.mkdir(parents=True, exist_ok=True)
        programs = options.program or [build_probe(BUILD / "xen")]
        runs = boot_xen(options.image, [(path, []) for path in programs],
                        cpus=options.cpus, timeout=options.timeout,
                        append=options.append)
    for name, run in runs:
        sys.stdout.write(run.output)
        say(f"{name}: exit status {run.status}, {run.seconds} s")
    return max(1 if run.status is None else run.status for _, run in runs)


if __name__ == "__main__":
    run_main(main)
