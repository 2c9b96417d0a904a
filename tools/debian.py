# SPDX-License-Identifier: GPL-2.0-only
"""Debian roots, for jobs that need a machine to themselves.

debootstrap makes one from the archives that this machine's apt uses.  What
runs in it has its own mounts and process numbers: when the first process
ends, or is killed, all that it started ends.
"""

import contextlib
import os
import re
import shutil
import subprocess
from collections.abc import Callable, Sequence
from pathlib import Path

from tools.core import Fail, need_space, run_logged, shown_path, stage
from tools.series.base import mirror

SUITE = "bookworm"
OWN = ("unshare", "--mount", "--pid", "--fork", "--kill-child")
# What is in 'dev' and 'sys' stays this machine's; the rest is the root's.
# A root that is a mount can be entered by jobs that make roots of their own.
ENTER = """set -e
mount --rbind "$0" "$0"
for place in dev sys; do mount --rbind "/$place" "$0/$place"; done
mount -t proc proc "$0/proc"
for place in run tmp; do mount -t tmpfs tmpfs "$0/$place"; done
exec chroot "$0" "$@"
"""
# How this machine reaches others, where it is not by itself.
NETWORK_FILES = ("/etc/resolv.conf", "/etc/hosts", "/etc/pip.conf",
                 "/usr/local/share/ca-certificates")
NETWORK_NAMES = r"(?i)(https?|ftp|no)_proxy|PIP_(CERT|INDEX_URL|EXTRA_.*)"


def inside(root: Path, command: Sequence[str],
           network: bool = True) -> list[str]:
    """Return a command that runs another one in a root, without network with a
    loopback interface only, which is down."""
    kept = [f"{name}={value}" for name, value in os.environ.items()
            if network and re.fullmatch(NETWORK_NAMES, name)]
    return [*OWN, *([] if network else ["--net"]), "sh", "-c", ENTER,
            str(root), "env", "-i", "PATH=/usr/sbin:/usr/bin:/sbin:/bin",
            "HOME=/root", "LC_ALL=C.UTF-8", "DEBIAN_FRONTEND=noninteractive",
            *kept, *command]


def no_mounts() -> str:
    """Return why inside() runs nothing here, or nothing."""
    if os.geteuid() != 0:
        return "needs root"
    done = subprocess.run(inside(Path("/"), ["true"], network=False),
                          capture_output=True, text=True)
    return f"needs its own mounts: {done.stderr.strip()}" \
        if done.returncode else ""


def why_not() -> str:
    """Return why no root can be made here, or nothing."""
    if reason := no_mounts():
        return reason
    if not shutil.which("debootstrap"):
        return "needs debootstrap: apt-get install debootstrap"
    try:
        mirror("Debian")
    except Fail as failure:
        return str(failure)
    return ""


def last(pattern: str) -> Callable[[Path], str]:
    """Return a progress of run_logged(): the last match in the log."""
    return lambda log: "".join(re.findall(
        pattern, log.read_text(errors="replace"), re.M)[-1:])


def make_root(root: Path, packages: Sequence[str], log: Path,
              suite: str = SUITE) -> None:
    """Make a minimal root with these packages, in place of an old one."""
    if reason := why_not():
        raise Fail(f"{shown_path(root)} cannot be made: {reason}")
    need_space(root, 1, f"Debian in {shown_path(root)}")
    partial = root.with_name(f"{root.name}.partial")
    for path in (root, partial):
        shutil.rmtree(path, ignore_errors=True)
    with stage(f"making Debian {suite} in {shown_path(root)}"):
        # It mounts things, which must not outlive it.
        run_logged([*OWN, "debootstrap", "--variant=minbase",
                    f"--include={','.join(packages)}", suite, str(partial),
                    mirror("Debian")],
                   log, what="debootstrap", progress=last(r"^I: (.*)$"))
        rows = f"deb {mirror('Debian')} {suite} main\n"
        with contextlib.suppress(Fail):
            rows += (f"deb {mirror('Debian-Security')} {suite}-security "
                     "main\n")
        (partial / "etc/apt/sources.list").write_text(rows)
        settings = subprocess.run(["apt-config", "dump"], text=True,
                                  capture_output=True).stdout
        (partial / "etc/apt/apt.conf.d/90machine").write_text("".join(
            re.findall(r"^Acquire::(?:https?|Check).*\n", settings, re.M)))
        for name in NETWORK_FILES:
            if Path(name).is_dir():
                shutil.copytree(name, f"{partial}{name}", dirs_exist_ok=True)
            elif Path(name).exists():
                shutil.copyfile(name, f"{partial}{name}")
        partial.rename(root)
