# SPDX-License-Identifier: GPL-2.0-only
"""Install the packages of 'make deb' on a Debian, boot them, remove them.

The guest has a disk of its own, made of the distribution's packages: kernel,
initramfs and boot loader are Debian's.  It boots four times, runs a script on
its second disk each time, and ends.
"""

import re
import shutil
from pathlib import Path

from tools import ktap
from tools.build import build_selftests, source
from tools.core import (BUILD, LOGS, Fail, need_space, need_tool, run_logged,
                        stage)
from tools.count import Count
from tools.deb import build
from tools.debian import make_root, why_not
from tools.guest import check_splat
from tools.selftests import arguments_of, count_run, port_tests
from tools.series.apply import begin

PLACE = BUILD / "package"
PACKAGES = ("grub-pc", "initramfs-tools", "linux-image-amd64", "systemd-sysv",
            "udev")
SIZE = "4G"
SECONDS = 3600
# What the guest needs of modules, in the words of lsmod.
MODULES = "Module Size Used by\n" + "".join(
    f"{name} 1 0\n" for name in ("ext4", "virtio_blk", "virtio_pci"))
# A line of the kernel's log in between would spoil the output of a test, so
# no messages but warnings.
CONSOLE = "console=ttyS0 loglevel=5 systemd.show_status=0"
FILES = {
    "etc/fstab": "/dev/vda1 / ext4 defaults 0 1\n",
    "etc/default/grub": "GRUB_DEFAULT=0\nGRUB_TIMEOUT=0\n"
    f'GRUB_CMDLINE_LINUX="{CONSOLE}"\nGRUB_TERMINAL=serial\n',
    "etc/rc.local": "#!/bin/sh\ncat /dev/vdb >/run/script\n"
    "sh /run/script </dev/null >/dev/ttyS0 2>&1\npoweroff\n",
    # It would hang up who writes there.
    "etc/systemd/system/serial-getty@ttyS0.service": ""}


def make_disk(root: Path, disk: Path) -> None:
    """Make a disk of a root, with one partition and no boot loader yet."""
    need_space(PLACE, 6, "a disk with Debian")
    for name, text in FILES.items():
        (root / name).parent.mkdir(parents=True, exist_ok=True)
        (root / name).write_text(text)
    (root / "etc/rc.local").chmod(0o755)
    log = LOGS / "package-disk.log"
    disk.unlink(missing_ok=True)
    for command in (f"truncate -s {SIZE} {disk}",
                    f"echo 2048,,L,* | sfdisk {disk}",
                    # GRUB 2.06 reads neither of these features.
                    "mke2fs -q -t ext4 -O ^metadata_csum_seed,^orphan_file "
                    f"-E offset=1048576 -d {root} {disk} "
                    f"$(( $(stat -c %s {disk}) / 1024 - 1024 ))"):
        run_logged(["sh", "-c", command], log, what="making a disk")


def boot(disk: Path, name: str, commands: dict[str, str],
         direct: tuple[str, ...] = ()) -> dict[str, ktap.Run]:
    """Boot a disk and run shell commands; return {name: Run}.

    direct: QEMU's options for a kernel that is not on the disk.  The console
    is kept in build/logs/package-NAME.console.
    """
    script, log = PLACE / "script", LOGS / f"package-{name}.console"
    text = ktap.script(commands)
    script.write_text(text + "\n" * (-len(text) % 512))
    with stage(f"the guest with a disk: {name}"):
        status = run_logged(
            ["qemu-system-x86_64", "-accel", "tcg", "-cpu", "max", "-smp",
             "2", "-m", "2G", "-nodefaults", "-display", "none", "-serial",
             "stdio", "-no-reboot", *direct, *(
                 word for file in (disk, script) for word in (
                     "-drive", f"file={file},format=raw,if=virtio"))],
            log, timeout=SECONDS, what=f"the guest {name}")
    runs = ktap.split(log.read_text(errors="replace"))
    missing = [command for command in commands
               if command not in runs or runs[command].status is None]
    if status or missing:
        raise Fail(f"the guest '{name}' did not run {', '.join(missing)}; see "
                   f"{log.name} in build/logs")
    return runs


def succeed(runs: dict[str, ktap.Run], *names: str) -> None:
    """Raise Fail unless these commands ended with status 0."""
    for name in names:
        if runs[name].status != 0:
            raise Fail(f"{name}: status {runs[name].status}: "
                       + runs[name].output[-1000:])


def release(runs: dict[str, ktap.Run]) -> str:
    """Return which kernel ran."""
    return runs["release"].output.strip()


def group(count: Count) -> None:
    """The packages install, boot, pass the tests and go away again."""
    prove(count, "package", "debian")


def group_rt(count: Count) -> None:
    """So do those with the distribution's configuration of PREEMPT_RT."""
    prove(count, "package-rt", "debian-rt")


def prove(count: Count, title: str, config: str) -> None:
    """Make what run() needs, run it, remove all of it."""
    if why_not():
        raise Fail(f"no Debian to install them on: {why_not()}")
    for tool, package in (("sfdisk", "fdisk"), ("mke2fs", "e2fsprogs")):
        need_tool(tool, package)
    begin()
    shutil.rmtree(PLACE, ignore_errors=True)
    PLACE.mkdir(parents=True)
    try:
        run(count, title, config)
    finally:
        shutil.rmtree(PLACE, ignore_errors=True)


def run(count: Count, title: str, config: str) -> None:
    """Build, install, boot, test, remove, boot the old one.

    title: what the tests are counted as; config: the KCONFIG of 'make deb'.
    """
    (PLACE / "modules").write_text(MODULES)
    debs = build("all", config, str(PLACE / "modules"))
    count.ok(f"{title}: builds", ", ".join(path.name for path in debs))
    ours = next(re.findall(r"linux-image-(.*?)_", path.name)[0]
                for path in debs if path.name.startswith("linux-image-"))
    programs = build_selftests(port_tests(source("applied")),
                               flags=("-static",))
    root, disk = PLACE / "root", PLACE / "disk"
    make_root(root, PACKAGES, LOGS / "package-root.log")
    for path in (*debs, *programs.values()):
        shutil.copy(path, root / "srv")
    make_disk(root, disk)
    kernel, = root.glob("boot/vmlinuz-*")
    theirs = kernel.name.removeprefix("vmlinuz-")
    uname = {"release": "uname -r"}
    succeed(boot(disk, "boot loader", uname | {
        "grub": "grub-install /dev/vda && update-grub"}, (
            "-kernel", str(kernel), "-initrd", f"{root}/boot/initrd.img-"
            + theirs, "-append", f"root=/dev/vda1 {CONSOLE}")), "grub")
    runs = boot(disk, "install", uname | {
        "install": "apt-get install -y /srv/*.deb"})
    succeed(runs, "install")
    count.run(f"{title}: the distribution's kernel boots", expect,
              release(runs), theirs)
    packages = " ".join(f"linux-{part}-{ours}" for part in ("image", "headers"))
    runs = boot(disk, "tests", uname | {
        name: " ".join([f"/srv/{Path(name).name}", *arguments_of(path)])
        for name, path in programs.items()} | {
        "preemption": "uname -v",
        "headers": f"test -f /lib/modules/{ours}/build/Makefile",
        "remove": f"apt-get remove -y {packages}"})
    count.run(f"{title}: its kernel boots first", expect, release(runs), ours)
    version = runs["preemption"].output
    real_time = "PREEMPT_RT" in version
    count.test(f"{title}: PREEMPT_RT as configured",
               "" if real_time == config.endswith("-rt") else version)
    for name in programs:
        count_run(count, f"{title}: {Path(name).name}", runs[name],
                  LOGS / "package-tests.console")
    count.run(f"{title}: no splat", check_splat,
              LOGS / "package-tests.console")
    count.run(f"{title}: headers, removal", succeed, runs, "headers", "remove")
    runs = boot(disk, "removed", uname | {
        "left": f"ls -d /boot/*{ours}* /lib/modules/{ours}"})
    count.run(f"{title}: the old kernel boots again", expect, release(runs),
              theirs)
    if runs["left"].status == 0:
        count.fail(f"{title}: nothing is left", runs["left"].output)
    else:
        count.ok(f"{title}: nothing is left")


def expect(found: str, wanted: str) -> None:
    """Raise Fail unless the two are the same."""
    if found != wanted:
        raise Fail(f"{found} runs, and not {wanted}")
