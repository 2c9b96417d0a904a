# SPDX-License-Identifier: GPL-2.0-only
"""Install the packages of 'make deb' on a Debian, boot them, remove them.

The guest has a disk of its own, made of the distribution's packages: kernel,
initramfs and boot loader are Debian's.  It boots three times, runs a script
on its second disk each time, and ends.
"""

import re
import shutil
from collections.abc import Sequence
from pathlib import Path

from tools import ktap
from tools.build import build_selftests, source
from tools.core import (BUILD, LOGS, Fail, need_space, need_tool, run_logged,
                        scratch, stage)
from tools.count import Count
from tools.deb import build
from tools.debian import make_root, why_not
from tools.guest import check_splat
from tools.selftests import arguments_of, count_run, port_tests
from tools.series.apply import begin

PACKAGES = ("grub-pc", "initramfs-tools", "linux-image-amd64", "systemd-sysv",
            "udev")
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
# One partition, and no boot loader yet; GRUB 2.06 reads neither of these
# features.
DISK = """set -e
truncate -s 4G "$1"
echo 2048,,L,* | sfdisk "$1"
mke2fs -q -t ext4 -O ^metadata_csum_seed,^orphan_file -E offset=1048576 \\
    -d "$0" "$1" $(($(stat -c %s "$1") / 1024 - 1024))
"""


def boot(disk: Path, name: str, commands: dict[str, str],
         direct: Sequence[str] = ()) -> dict[str, ktap.Run]:
    """Boot a disk and run shell commands; return {name: Run}.

    direct: QEMU's options for a kernel that is not on the disk.  The console
    is kept in build/logs/package-NAME.console.
    """
    script, log = disk.with_name("script"), LOGS / f"package-{name}.console"
    text = ktap.script(commands)
    script.write_text(text + "\n" * (-len(text) % 512))
    with stage(f"the guest with a disk: {name}"):
        run_logged(
            ["qemu-system-x86_64", "-accel", "tcg", "-cpu", "max", "-smp",
             "2", "-m", "2G", "-nodefaults", "-display", "none", "-serial",
             "stdio", "-no-reboot", *direct, *(
                 word for file in (disk, script) for word in (
                     "-drive", f"file={file},format=raw,if=virtio"))],
            log, timeout=3600, what=f"the guest {name}")
    runs = ktap.split(log.read_text(errors="replace"), commands)
    missing = [word for word in commands if runs[word].status is None]
    if missing:
        raise Fail(f"the guest '{name}' did not run {', '.join(missing)}; see "
                   f"{log.name} in build/logs")
    return runs


def group(count: Count, config: str = "debian") -> None:
    """The packages install, boot, pass the tests and go away again."""
    for tool, package in (("sfdisk", "fdisk"), ("mke2fs", "e2fsprogs")):
        need_tool(tool, package)
    if reason := why_not():
        raise Fail(f"no Debian to install them on: {reason}")
    need_space(BUILD, 6, "a disk with Debian")
    begin()
    with scratch("package") as place:
        run(count, "package" + config.removeprefix("debian"), config, place)


def group_rt(count: Count) -> None:
    """So do those with the distribution's configuration of PREEMPT_RT."""
    group(count, "debian-rt")


def run(count: Count, title: str, config: str, place: Path) -> None:
    """Build, install, boot, test, remove, boot the old one.

    title: what the tests are counted as; config: the KCONFIG of 'make deb'.
    """
    def check(what: str, runs: dict[str, ktap.Run], name: str,
              wanted: str = "") -> None:
        """Count a command: it ended well, and printed what is wanted."""
        count.test(f"{title}: {what}", "" if runs[name].status == 0
                   and wanted in runs[name].output else runs[name])

    (place / "modules").write_text(MODULES)
    debs = build("all", config, str(place / "modules"))
    count.ok(f"{title}: builds", ", ".join(path.name for path in debs))
    ours, = (found[1] for path in debs if (found := re.match(
        "linux-image-(.*?)_", path.name)))
    programs = build_selftests(port_tests(source("applied")),
                               flags=("-static",))
    root, disk = place / "root", place / "disk"
    make_root(root, PACKAGES, LOGS / "package-root.log")
    for path in (*debs, *programs.values()):
        shutil.copy(path, root / "srv")
    for name, text in FILES.items():
        (root / name).parent.mkdir(parents=True, exist_ok=True)
        (root / name).write_text(text)
    (root / "etc/rc.local").chmod(0o755)
    run_logged(["sh", "-c", DISK, str(root), str(disk)],
               LOGS / "package-disk.log", what="making a disk")
    kernel, = root.glob("boot/vmlinuz-*")
    theirs = kernel.name.removeprefix("vmlinuz-")
    runs = boot(disk, "install", {
        "grub": "grub-install /dev/vda && update-grub",
        "install": "apt-get install -y /srv/*.deb"}, (
            "-kernel", str(kernel), "-initrd", f"{root}/boot/initrd.img-"
            + theirs, "-append", f"root=/dev/vda1 {CONSOLE}"))
    check("the boot loader is installed", runs, "grub")
    check("apt installs it", runs, "install")
    packages = " ".join(f"linux-{part}-{ours}" for part in ("image", "headers"))
    runs = boot(disk, "tests", {
        name: " ".join([f"/srv/{Path(name).name}", *arguments_of(path)])
        for name, path in programs.items()} | {
        "release": "uname -r; uname -v",
        "headers": f"test -f /lib/modules/{ours}/build/Makefile",
        "remove": f"apt-get remove -y {packages}"})
    check("its kernel boots first", runs, "release", f"{ours}\n")
    real_time = "PREEMPT_RT" in runs["release"].output
    count.test(f"{title}: PREEMPT_RT as configured",
               real_time != config.endswith("-rt") and runs["release"].output)
    log = LOGS / "package-tests.console"
    for name in programs:
        count_run(count, f"{title}: {Path(name).name}", runs[name], log)
    count.run(f"{title}: no splat", check_splat, log)
    check("headers", runs, "headers")
    check("removal", runs, "remove")
    runs = boot(disk, "removed", {"release": "uname -r", "left":
                                  f"! ls -d /boot/*{ours}* /lib/modules/{ours}"})
    check("the old kernel boots again", runs, "release", f"{theirs}\n")
    check("nothing is left", runs, "left")
