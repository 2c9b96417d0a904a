# SPDX-License-Identifier: GPL-2.0-only
"""Install the packages of 'make deb' on a Debian, boot them, remove them.

The guest has a disk of its own, made of the distribution's packages: kernel,
initramfs and boot loader are Debian's.  It boots three times, runs a script
on its second disk each time, and ends.
"""

import re
from pathlib import Path

from tools import ktap
from tools.build import build_selftests, source
from tools.core import (CONFIGS, ROOT, Kernel, bound, need_space, run_logged,
                        scratch, shown_path)
from tools.count import Count
from tools.debian import build_packages, make_root
from tools.guest import check_splat
from tools.selftests import arguments_of, count_run, port_tests

PACKAGES = ("grub-pc", "initramfs-tools", "linux-image-amd64", "systemd-sysv",
            "udev")
# A line of the kernel's log in between would spoil the output of a test, so
# no messages but warnings.
CONSOLE = "console=ttyS0 loglevel=5 systemd.show_status=0"


def boot_disk(count: Count, title: str, disk: Path, console: Path,
              commands: dict[str, str], *direct: str) -> None:
    """Boot a disk, run shell commands, {name: command}, and count each: a
    test program, or what has to end well.

    direct: QEMU's options for a kernel that is not on the disk.
    """
    script, text = disk.with_name("script"), ktap.script(commands)
    script.write_text(text + "\n" * (-len(text) % 512))
    run_logged(
        bound(["qemu-system-x86_64", "-accel", "tcg", "-cpu", "max", "-smp",
               "2", "-m", "2G", "-nodefaults", "-display", "none", "-serial",
               "stdio", "-no-reboot", *direct, *(
                   word for file in (disk, script) for word in (
                       "-drive", f"file={file},format=raw,if=virtio"))]),
        console, timeout=3600, what=f"the guest {console.stem}")
    runs = ktap.split(console.read_text(errors="replace"), commands)
    for name, run in runs.items():
        if name.startswith("x86/"):
            count_run(count, f"{title}: {Path(name).name}", run, console)
        else:
            count.test(f"{title}: {name}", run.status != 0 and
                       f"{run.output[-300:]}; see {shown_path(console)}")


def group(kernel: Kernel, count: Count, config: str) -> None:
    """The packages install, boot, pass the tests and go away again."""
    title, logs = "package" + config.removeprefix("debian"), kernel.logs
    need_space(kernel.build, 6, "a disk with Debian")
    programs = build_selftests(kernel, port_tests(source(kernel, "applied")),
                               flags=("-static",))
    with scratch("package") as place:
        root, disk = place / "root", place / "disk"
        # With the modules that the guest needs.
        debs = build_packages(kernel, "all", config,
                              str(CONFIGS / "package.lsmod"))
        count.ok(f"{title}: builds", ", ".join(path.name for path in debs))
        make_root(root, "bookworm", PACKAGES, logs / "package-root.log")
        run_logged([f"{ROOT}/tools/gates/disk.sh", str(root), str(disk),
                    CONSOLE, *map(str, [*debs, *programs.values()])],
                   logs / "package-disk.log", what="making a disk")
        ours, = (found[1] for path in debs if (found := re.match(
            "linux-image-(.*?)_", path.name)))
        image, = root.glob("boot/vmlinuz-*")
        theirs = image.name.removeprefix("vmlinuz-")
        boot_disk(count, title, disk, logs / "package-install.console", {
            "the boot loader is installed":
                "grub-install /dev/vda && update-grub",
            "apt installs it": "apt-get install -y /srv/*.deb"},
            "-kernel", str(image), "-initrd", f"{root}/boot/initrd.img-"
            + theirs, "-append", f"root=/dev/vda1 {CONSOLE}")
        console = logs / "package-tests.console"
        boot_disk(count, title, disk, console, {
            name: " ".join([f"/srv/{path.name}", *arguments_of(path)])
            for name, path in programs.items()} | {
            "its kernel boots first": f"test $(uname -r) = {ours}",
            "PREEMPT_RT as configured": "test $(uname -v | grep -c PREEMPT_RT"
            f") = {int(config.endswith('-rt'))}",
            "headers": f"test -f /lib/modules/{ours}/build/Makefile",
            "removal": f"apt-get remove -y linux-image-{ours} "
                       f"linux-headers-{ours}"})
        count.run(f"{title}: no splat", check_splat, console)
        boot_disk(count, title, disk, logs / "package-removed.console", {
            "the old kernel boots again": f"test $(uname -r) = {theirs}",
            "nothing is left": f"! ls -d /boot/*{ours}* /lib/modules/{ours}"})
