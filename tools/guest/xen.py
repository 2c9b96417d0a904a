# SPDX-License-Identifier: GPL-2.0-only
"""Boot a kernel as Xen's first domain and run static programs there.

As a PV guest, where the kernel has no TSS of the hardware's: it tells the
hypervisor which bitmap is in force, and starts its processors in a way of its
own.  QEMU's software emulation starts Debian's Xen, the kernel and an
initramfs as tiny.py makes it; nothing is installed.
"""

import gzip
import re
from collections.abc import Sequence
from pathlib import Path

from tools.core import (BUILD, LOGS, Fail, need_tool, run_logged, scratch,
                        shown_path, tail, write_atomically)
from tools.guest.tiny import Job, finished_runs, write_archive
from tools.ktap import Run
from tools.series.base import DOWNLOAD, download, unpack

HYPERVISOR = BUILD / "xen/xen"
# One of these is taken, whatever the machine itself runs.
PACKAGES = {"bookworm": "xen-hypervisor-4.17-amd64",
            "trixie": "xen-hypervisor-4.20-amd64"}
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


def get_xen() -> Path:
    """Get the hypervisor, once; return its path, an uncompressed image."""
    if HYPERVISOR.exists():
        return HYPERVISOR
    failures = []
    for suite, name in PACKAGES.items():
        try:
            package = download(name, suite)
            with scratch("unpack") as place:
                unpack(["dpkg-deb", "-x", str(package), str(place)], package)
                packed, = place.glob("boot/xen-*.gz")
                write_atomically(HYPERVISOR,
                                 gzip.decompress(packed.read_bytes()))
            return HYPERVISOR
        except Fail as failure:
            failures.append(str(failure))
        except (EOFError, OSError, ValueError) as error:
            failures.append(f"{shown_path(package)} is damaged ({error}): "
                            "remove it and run this again")
    raise Fail("no Xen hypervisor is to be had: mend the network or the apt "
               f"sources, or put one of {', '.join(PACKAGES.values())} as "
               f"NAME_VERSION_amd64.deb into {shown_path(DOWNLOAD)}\n"
               + "\n".join(failures))


def qemu_command(hypervisor: Path, cpus: int, memory: int,
                 append: str = "") -> list[str]:
    """Return QEMU's command, to be run where bzImage and initramfs are;
    memory: MiB of the machine, of which Xen needs some."""
    xen = [*XEN_OPTIONS, f"dom0_mem={memory - 256}M",
           f"dom0_max_vcpus={cpus}"]
    # QEMU cuts at each comma that is not doubled.
    kernel = " ".join(["bzImage", *KERNEL_OPTIONS,
                       *append.split()]).replace(",", ",,")
    return ["qemu-system-x86_64", *MACHINE, "-smp", str(cpus),
            "-m", f"{memory}M", "-nodefaults", "-display", "none",
            "-serial", "stdio", "-no-reboot", "-kernel", str(hypervisor),
            "-append", " ".join(xen), "-initrd", f"{kernel},initramfs"]


def split_console(text: str) -> tuple[str, str]:
    """Cut a console into what Xen and what the domain said: Xen writes a line
    of its own wherever the domain happens to be."""
    text = text.replace("\r", "")
    own = re.compile(r"\(XEN\)(?: [^\n]*)?(?:\n|\Z)")
    return "".join(own.findall(text)), own.sub("", text)


def boot_xen(image: Path, programs: Sequence[tuple[Path, Sequence[str]]], *,
             cpus: int = 2, memory: int = 1024, timeout: float = 2400,
             seconds: int = 400, name: str = "xen",
             append: str = "") -> list[tuple[str, Run]]:
    """Boot a bzImage as Xen's first domain; return [(program, Run)].

    programs: static ones with their arguments.  memory: MiB of the machine.
    timeout: of the guest, in seconds; seconds: of each program, by the
    guest's clock.  append: kernel parameters.  Raises Fail when Xen or the
    domain does not come up, it is not a PV domain with so many processors, or
    one of the programs did not start.  The console is kept in
    build/logs/NAME.console, what the domain wrote there in
    build/logs/NAME.dom0.
    """
    need_tool("qemu-system-x86_64", "qemu-system-x86")
    hypervisor = get_xen()
    console = LOGS / f"{name}.console"
    job = Job(programs, seconds, [*FACTS, ONLINE])
    # QEMU would take a space or a comma in a module's path for its end.
    with scratch("guest") as place:
        write_archive(place, job, 64)
        (place / "bzImage").symlink_to(image.resolve(strict=True))
        status = run_logged(qemu_command(hypervisor, cpus, memory, append),
                            console, timeout=timeout, check=False, cwd=place)
    # As bytes: of the "\r\r\n" that Xen makes, a text file has two lines.
    said, text = split_console(console.read_bytes().decode(errors="replace"))
    (LOGS / f"{name}.dom0").write_text(text)
    panic = re.search(r"Panic on CPU \d+:\n\(XEN\) (.*)", said)
    if panic or BUILDS_PV not in said:
        raise Fail((f"Xen panics: {panic[1]}" if panic else "Xen came up, but "
                    "built no PV domain" if said else "Xen did not start")
                   + f"; the end of {shown_path(console)}:\n{tail(console)}")
    runs = finished_runs(text, job, console, status is None)
    wanted = FACTS | {ONLINE: f"0-{cpus - 1}" if cpus > 1 else "0"}
    for path, run in runs[len(programs):]:
        value = wanted[f"/{path}"]
        if run.output.strip() != value:
            raise Fail(f"the guest's /{path} is '{run.output.strip()}' and "
                       f"not '{value}'")
    return runs[:len(programs)]


def build_probe(place: Path) -> Path:
    """Compile probe.c into a folder; return the program."""
    place.mkdir(parents=True, exist_ok=True)
    probe = place / "probe"
    run_logged(["gcc", "-static", "-O2", "-Wall", "-o", str(probe),
                str(Path(__file__).with_name("probe.c"))], LOGS / "probe.log",
               what="compiling probe.c")
    return probe
