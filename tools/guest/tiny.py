# SPDX-License-Identifier: GPL-2.0-only
"""Boot a kernel into an initramfs that runs programs.

For kernels that cannot use the host's files (a 32-bit kernel beside a 64-bit
user land; Xen's first domain), and for measurements that shall repeat to the
last digit: the guest is isolated, and with REPEATABLE, which counts
instructions, deterministic.  The init is init.c; what the programs print comes
over the serial console, with the marks of tools.ktap.  Programs are static, or
what they load comes along (closure()).
"""

import gzip
import re
import shutil
import subprocess
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Any

from tools.core import (BUILD, Fail, Kernel, bound, need_tool, run_logged,
                        scratch, shown_path, tail, write_atomically)
from tools.guest import TRIES, emulation_ended
from tools.ktap import Run, split
from tools.series.base import download, unpack

# Of itself qemu-system-i386 has an Athlon, which the kernel warns of when
# there are several.
EMULATED = ("-accel", "tcg", "-cpu", "max,family=15,model=107")
HARDWARE = ("-accel", "kvm", "-cpu", "host")
# One instruction is one ns, idle time is skipped, the date is always the same
# and no random numbers come from the host.
REPEATABLE = ("-accel", "tcg", "-cpu", "max,-rdrand,-rdseed",
              "-icount", "shift=0,sleep=off",
              "-rtc", "base=2026-01-01,clock=vm")
# No addresses drawn by lot, and no check of the timer against the loops of
# another clock.
REPEATABLE_KERNEL = "nokaslr norandmaps no_timer_check"
# What init.c has room for.
MAX_ROWS, MAX_WORDS = 64, 256
HYPERVISOR = BUILD / "xen/xen"
# One of these is taken, whatever the machine itself runs.
PACKAGES = {"bookworm": "xen-hypervisor-4.17-amd64",
            "trixie": "xen-hypervisor-4.20-amd64"}
# QEMU 7.2 reads the stack of an IRET as if it were the hypervisor that does
# it, which SMAP forbids: the kernel, in ring 3 here, would fault.
XEN_MACHINE = ("-accel", "tcg", "-cpu", "max,-smap")
# Without a word about each odd thing that the domain does: such lines come
# between those of the programs.  Xen needs some of the guest's 1 GiB.
XEN_OPTIONS = ("console=com1 com1=115200 loglvl=info guest_loglvl=error "
               "no-real-mode dom0_mem=768M dom0_max_vcpus=2")
# The emulated TSC is not steady enough for the kernel, which says so while the
# programs run.
DOMAIN_OPTIONS = "console=hvc0 panic=-1 tsc=unstable"
# What Xen says of a domain that it builds, and what the kernel says that it
# runs on.
BUILDS_PV = "*** Building a PV Dom0 ***"
FACTS = {"/sys/hypervisor/type": "xen", "/sys/hypervisor/guest_type": "PV",
         "/sys/devices/system/cpu/online": "0-1"}

# Static programs with their arguments; names with what each came to.
Programs = Sequence[tuple[Path, Sequence[str]]]
Runs = list[tuple[str, Run]]


def closure(programs: Iterable[str | Path],
            folders: Iterable[str] = ()) -> dict[str, Path]:
    """Return programs, files or names that are in PATH, the files of folders,
    and the libraries of all: {path in the guest: file}."""
    found = {}
    for program in programs:
        path = shutil.which(program)
        if not path:
            raise Fail(f"the command '{program}' is missing")
        found[f"/bin/{Path(path).name}"] = Path(path)
    for folder in folders:
        found |= {str(path): path for path in Path(folder).iterdir()
                  if path.is_file()}
    for path in [*found.values()]:
        # A static program has none.
        found |= {library: Path(library) for library in re.findall(
            r"^\s*(?:\S+ => )?(/\S+) \(0x",
            subprocess.getoutput(f"ldd {path}"), re.M)}
    return {name: path.resolve() for name, path in found.items()}


def write_archive(place: Path, programs: Programs, rows: list[str],
                  also: dict[str, Path], bits: int) -> None:
    """Compile init.c, which reads the rows, and write an initramfs into a
    folder."""
    if len(rows) > MAX_ROWS or \
            any(len(row.split(" ")) > MAX_WORDS for row in rows):
        raise Fail(f"a guest runs at most {MAX_ROWS} programs with "
                   f"{MAX_WORDS} words each: ask for less in one")
    root = place / "root"
    root.mkdir()
    files = {f"/{path.name}": path for path, _ in programs} | also
    for name, path in files.items():
        copy = root / name.lstrip("/")
        copy.parent.mkdir(parents=True, exist_ok=True)
        shutil.copyfile(path, copy)
    (root / "tests").write_text("".join(f"{row}\n" for row in rows))
    # Of other dates it would be another archive, which takes another number
    # of instructions to read.  /dev/console is in the kernel's own initramfs.
    run_logged(["sh", "-ec", f"gcc -m{bits} -static -O2 -Wall -o root/init "
                f"{Path(__file__).with_name('init.c')}; cd root; "
                "chmod -R 755 .; find . -mindepth 1 -exec touch -d @0 {} +; "
                "find . -mindepth 1 | sort | cpio -o -H newc "
                "--reproducible -R 0:0 >../initramfs"], place / "log",
               cwd=place, what="making the initramfs")


def boot_tiny(image: Path, programs: Programs, log: Path, *, append: str = "",
              **more: Any) -> Runs:
    """Boot a bzImage and run programs; return the runs of these and of files.

    append: kernel parameters.  more: as run_guest() has it.  The console is
    kept in LOG.console.  Raises Fail when the guest does not come to the end,
    or one of the programs did not start.
    """
    return run_guest(image, programs, log, append=(
        f"console=ttyS0 panic=-1 {append}".strip()), **more)[1]


def run_guest(image: Path, programs: Programs, log: Path, *, append: str,
              bits: int = 32, cpus: int = 2, memory: str = "512M",
              machine: Sequence[str] = EMULATED, starts: str = "bzImage",
              initrd: str = "initramfs", timeout: float = 600,
              settle: int = 0, files: Iterable[str] = (),
              also: dict[str, Path] | None = None) -> tuple[str, Runs]:
    """Run QEMU; return what Xen said, and the runs of programs and files.

    machine: QEMU's options for the processor.  append: words for what it
    starts.  timeout: of the guest, in seconds; settle: to wait first.  files:
    of the guest, whose content comes back like the output of a program of that
    name.  also: more files, {path in the guest: file}.
    """
    qemu = f"qemu-system-{'i386' if bits == 32 else 'x86_64'}"
    need_tool(qemu, "qemu-system-x86")
    rows = [f"wait {settle}"] * bool(settle) + [
        " ".join([f"/{path.name}", *arguments])
        for path, arguments in programs] + [f"show {name}" for name in files]
    console = Path(f"{log}.console")
    # QEMU would take a space or a comma in a module's path for its end.
    with scratch("guest") as place:
        write_archive(place, programs, rows, also or {}, bits)
        (place / "bzImage").symlink_to(image.resolve(strict=True))
        emulated = cpus > 1 and HARDWARE[1] not in machine
        for left in reversed(range(TRIES if emulated else 1)):
            status = run_logged(bound(
                [qemu, *machine, "-smp", str(cpus), "-m", memory,
                 "-nodefaults", "-display", "none", "-serial", "stdio",
                 "-no-reboot", "-kernel", starts, "-initrd", initrd,
                 "-append", append]),
                console, timeout=timeout, check=False, cwd=place)
            if status is None or not left or not emulation_ended(console):
                break
    # As bytes: of the "\r\r\n" that Xen makes, a text file has two lines.
    text = console.read_bytes().decode(errors="replace").replace("\r", "")
    # Xen writes a line of its own wherever the domain happens to be.
    own = re.compile(r"\(XEN\)(?: [^\n]*)?(?:\n|\Z)")
    said, text = "".join(own.findall(text)), own.sub("", text)
    if said:
        Path(f"{log}.dom0").write_text(text)
    panic = re.search(r"Panic on CPU \d+:\n\(XEN\) (.*)", said)
    if panic or not re.search(rf"^@@ done {len(rows)}$", text, re.M):
        why = f"Xen panics: {panic[1]}" if panic else \
            "did not end in time" if status is None else \
            "ended too early: a panic, or a kernel that does not boot"
        raise Fail(f"the guest '{log.name}' {why}; the end of "
                   f"{shown_path(console)}:\n{tail(console)}")
    runs = split(text)
    if [*runs] != [*(f"/{path.name}" for path, _ in programs), *files]:
        raise Fail(f"not all programs ran; see {shown_path(console)}")
    return said, [(name.removeprefix("/"), run) for name, run in runs.items()]


def get_xen(kernel: Kernel) -> Path:
    """Get the hypervisor, once; return its path, an uncompressed image."""
    failures = []
    for suite, name in PACKAGES.items():
        if HYPERVISOR.exists():
            break
        try:
            package = download(kernel, name, suite)
            with scratch("unpack") as place:
                unpack(kernel, ["dpkg-deb", "-x", str(package), str(place)],
                       package)
                packed, = place.glob("boot/xen-*.gz")
                write_atomically(HYPERVISOR,
                                 gzip.decompress(packed.read_bytes()))
        except Fail as failure:
            failures.append(str(failure))
    if not HYPERVISOR.exists():
        raise Fail("\n".join([
            "there is no Xen hypervisor; one of these packages would do, also "
            f"in {shown_path(kernel.build)}/download: "
            + ", ".join(PACKAGES.values()), *failures]))
    return HYPERVISOR


def boot_xen(kernel: Kernel, image: Path, programs: Programs, log: Path,
             append: str = "") -> Runs:
    """Boot a bzImage as Xen's first domain; return [(program, Run)].

    As a PV guest, where it has no TSS of the hardware's: it tells the
    hypervisor which bitmap is in force, and starts its processors in a way of
    its own.  Raises Fail also when it is not one, with two processors.  QEMU's
    software emulation starts Debian's Xen, which is not installed.  What the
    domain said is kept in LOG.dom0, too.
    """
    # QEMU cuts at each comma that is not doubled.
    words = f"bzImage {DOMAIN_OPTIONS} {append}".strip().replace(",", ",,")
    said, runs = run_guest(
        image, programs, log, starts=str(get_xen(kernel)), append=XEN_OPTIONS,
        initrd=f"{words},initramfs", bits=64, memory="1G", timeout=2400,
        machine=XEN_MACHINE, files=FACTS)
    facts = {f"/{path}": run.output.strip()
             for path, run in runs[len(programs):]}
    if BUILDS_PV not in said or facts != FACTS:
        raise Fail(f"this is no PV domain with two processors: {facts}; see "
                   f"{shown_path(log)}.console")
    return runs[:len(programs)]


def build_probe(place: Path, log: Path) -> Path:
    """Compile probe.c into a folder; return the program."""
    place.mkdir(parents=True, exist_ok=True)
    probe = place / "probe"
    run_logged(["gcc", "-static", "-O2", "-Wall", "-o", str(probe),
                str(Path(__file__).with_name("probe.c"))], log,
               what="compiling probe.c")
    return probe
