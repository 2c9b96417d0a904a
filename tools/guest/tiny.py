# SPDX-License-Identifier: GPL-2.0-only
"""Boot a kernel into an initramfs that runs programs.

For kernels that cannot use the host's files (a 32-bit kernel beside a 64-bit
user land), and for measurements that shall repeat to the last digit: the guest
is isolated, and with REPEATABLE, which counts instructions, deterministic.  The
init is init.c; what the programs print comes over the serial console, with
the marks of tools.ktap.  Programs are static, or what they load comes along
(closure()).
"""

import re
import shutil
import subprocess
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from tools.core import (LOGS, Fail, need_tool, run_logged, scratch,
                        shown_path, tail)
from tools.ktap import Run, split

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


@dataclass
class Job:
    """What a guest shall do.

    programs: each with its arguments.  seconds: time limit of each, by the
    guest's clock.  files: of the guest, whose content comes back like the
    output of a program of that name.  settle: seconds to wait first.  also:
    more files, {path in the guest: file}.
    """

    programs: Sequence[tuple[Path, Sequence[str]]]
    seconds: int = 120
    files: Sequence[str] = ()
    settle: int = 0
    also: dict[str, Path] = field(default_factory=dict)

    def rows(self) -> list[str]:
        """Return the rows that init.c reads."""
        rows = [f"{self.settle} wait"] if self.settle else []
        rows += [" ".join([str(self.seconds), f"/{path.name}", *arguments])
                 for path, arguments in self.programs]
        return rows + [f"0 show {name}" for name in self.files]


def closure(programs: Iterable[str | Path]) -> dict[str, Path]:
    """Return programs, files or names that are in PATH, and their libraries:
    {path in the guest: file}."""
    found = {}
    for program in programs:
        path = shutil.which(program)
        if not path:
            raise Fail(f"the command '{program}' is missing")
        found[f"/bin/{Path(path).name}"] = Path(path).resolve()
        listed = subprocess.run(["ldd", path], capture_output=True,
                                text=True).stdout
        lacking = re.search(r"^\s*(\S+) => not found", listed, re.M)
        if lacking:
            raise Fail(f"{program} lacks {lacking.group(1)}")
        # A static program has none.
        for library in re.findall(r"^\s*(?:\S+ => )?(/\S+) \(0x", listed,
                                  re.M):
            found[library] = Path(library).resolve()
    return found


def write_archive(place: Path, job: Job, bits: int) -> Path:
    """Compile init.c and write a job's initramfs into a folder."""
    rows = job.rows()
    if len(rows) > MAX_ROWS or \
            any(len(row.split(" ")) > MAX_WORDS for row in rows):
        raise Fail(f"a guest runs at most {MAX_ROWS} programs with "
                   f"{MAX_WORDS} words each: ask for less in one")
    root, archive = place / "root", place / "initramfs"
    root.mkdir()
    files = {f"/{path.name}": path for path, _ in job.programs} | job.also
    for name, path in files.items():
        copy = root / name.lstrip("/")
        copy.parent.mkdir(parents=True, exist_ok=True)
        shutil.copyfile(path, copy)
    (root / "tests").write_text("".join(f"{row}\n" for row in rows))
    run_logged(["gcc", f"-m{bits}", "-static", "-O2", "-Wall", "-o",
                f"{root}/init", str(Path(__file__).with_name("init.c"))],
               LOGS / "init.log", what="compiling init.c")
    # Of other dates it would be another archive, which takes another number
    # of instructions to read.  /dev/console is in the kernel's own initramfs.
    run_logged(["sh", "-ec", "cd $0; chmod -R 755 .; "
                "find . -mindepth 1 -exec touch -d @0 {} +; "
                "find . -mindepth 1 | sort | cpio -o -H newc "
                "--reproducible -R 0:0 >$1", str(root), str(archive)],
               LOGS / "initramfs.log", what="cpio")
    return archive


def finished_runs(text: str, job: Job, console: Path,
                  late: bool) -> list[tuple[str, Run]]:
    """Return the runs in a console's text, when all of a job is in it; late:
    the guest was stopped because it took too long."""
    runs = split(text)
    if not re.search(rf"^@@ done {len(job.rows())}$", text, re.M):
        why = "did not end in time" if late else \
            "ended too early: a panic, or a kernel that does not boot"
        raise Fail(f"the guest '{console.stem}' {why}; the end of "
                   f"{shown_path(console)}:\n{tail(console)}")
    if [*runs] != [*(f"/{path.name}" for path, _ in job.programs), *job.files]:
        raise Fail(f"not all programs ran; see {shown_path(console)}")
    return [(name.removeprefix("/"), run) for name, run in runs.items()]


def boot_tiny(image: Path, programs: Sequence[tuple[Path, Sequence[str]]], *,
              cpus: int = 2, memory: str = "512M", timeout: float = 600,
              name: str = "tiny", bits: int = 32, append: str = "",
              machine: Sequence[str] = EMULATED, **more: Any
              ) -> list[tuple[str, Run]]:
    """Boot a bzImage and run programs; return the runs of these and of files.

    timeout: of the guest, in seconds; machine: QEMU's options for the
    processor; append: kernel parameters; more: as Job has it.  The console is
    kept in build/logs/NAME.console.  Raises Fail when the guest does not
    come to the end, or one of the programs did not start.
    """
    need_tool("qemu-system-x86_64", "qemu-system-x86")
    job, console = Job(programs, **more), LOGS / f"{name}.console"
    with scratch("guest") as place:
        archive = write_archive(place, job, bits)
        status = run_logged(
            [f"qemu-system-{'i386' if bits == 32 else 'x86_64'}",
             *machine, "-smp", str(cpus), "-m", memory, "-nodefaults",
             "-display", "none", "-serial", "stdio",
             "-no-reboot", "-kernel", str(image), "-initrd", str(archive),
             "-append", f"console=ttyS0 panic=-1 {append}".strip()],
            console, timeout=timeout, check=False)
    return finished_runs(console.read_text(errors="replace"), job, console,
                         status is None)
