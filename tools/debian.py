# SPDX-License-Identifier: GPL-2.0-only
"""Debian packages of a kernel, and Debian roots for what needs a machine."""

import os
import re
import subprocess
from collections.abc import Sequence
from pathlib import Path

from tools.build import JOBS, make_environment, settings, source, steps
from tools.core import (CONFIGS, ROOT, Fail, Kernel, need_space, need_tool,
                        run_logged, shown_path, stage)
from tools.series.apply import series_patches
from tools.series.base import download, mirror, version_of

# How many headings of the file series a set takes.
SETS = {"fixes": 1, "ports": 2, "all": 100}
# Configurations of the distribution: patterns of their files' names, which
# are amd64_rt_amd64 and, since 7.x, amd64_none_rt-amd64.
DISTRIBUTED = {"debian": "config.amd64_none_amd64.xz",
               "debian-rt": "config.amd64_*rt[-_]amd64.xz"}


def distributed(kernel: Kernel, name: str) -> str:
    """Return the text of a configuration of DISTRIBUTED."""
    package = download(kernel, f"linux-config-{kernel.version}", kernel.suite)
    done = subprocess.run(
        ["sh", "-c", 'dpkg-deb --fsys-tarfile "$0" | '
         f"tar -xO --wildcards './usr/src/*/{DISTRIBUTED[name]}' | xz -dc",
         str(package)], capture_output=True, text=True)
    if done.returncode:
        raise Fail(f"{shown_path(package)} has no whole {DISTRIBUTED[name]}: "
                   "when it is damaged, remove it and run this again")
    return done.stdout


def build_packages(kernel: Kernel, kind: str, config: str,
                   modules: str) -> list[Path]:
    """Build linux-image and linux-headers with a set of the patches, by the
    kernel's own bindeb-pkg; return their paths.

    config: a path, or one of DISTRIBUTED.  modules: the path of what lsmod
    printed, to build only these, or nothing.
    """
    need_tool("dpkg-buildpackage", "dpkg-dev")
    need_tool("dh_listpackages", "debhelper")
    need_space(kernel.build, 4 if modules else 12,
               "a kernel with its modules")
    # Each heading follows a blank line; what is before the first is a title.
    parts = kernel.series.read_text().split("\n\n# ")[:SETS[kind] + 1]
    left = sum(name not in "\n".join(parts) for name in series_patches(kernel))
    tree = source(kernel, f"applied~{left}", "deb")
    text = distributed(kernel, config) if config in DISTRIBUTED else \
        Path(config).read_text(errors="replace")
    version, *_ = re.findall(r"^## (\d+(?:\.\d+)+)", (
        ROOT / "CHANGELOG.md").read_text(), re.M)
    release = f"+ioport{version}-{kind}"
    if settings(text).get("CONFIG_PREEMPT_RT") == "y":
        release += "-rt"
    place = kernel.build / "deb" / release.lstrip("+")
    written = place / "obj/.config"
    written.parent.mkdir(parents=True, exist_ok=True)
    # Of two lines about one option the last counts.
    written.write_text(text + (CONFIGS / "deb.config").read_text())
    make = ["make", "-C", str(tree), f"O={written.parent}", JOBS,
            f"LOCALVERSION={release}"]
    fewer = [f"LSMOD={os.path.abspath(modules)}", "localmodconfig"]
    # localmodconfig asks about what nobody has decided yet.
    run_logged(["sh", "-c", "yes '' 2>/dev/null | \"$@\"", "sh", *make,
                "olddefconfig", *(fewer if modules else [])],
               kernel.logs / "deb-config.log", env=make_environment(),
               what="make olddefconfig")
    if settings(written.read_text()).get("CONFIG_DEBUG_INFO") == "y":
        raise Fail("the configuration keeps debug information on: turn off "
                   "in it what selects CONFIG_DEBUG_INFO")
    # bindeb-pkg puts them beside O=.  Its version of the packages would be a
    # commit's name, which does not sort.
    for old in place.glob("*.deb"):
        old.unlink()
    number = version_of((tree / "Makefile").read_text()) + release + "-1"
    with stage(f"building packages in {shown_path(place)}"):
        run_logged([*make, "bindeb-pkg"], kernel.logs / "deb.log", 12 * 3600,
                   progress=steps, what="make bindeb-pkg",
                   env=make_environment() | {
                       "DEBFULLNAME": "series", "KDEB_PKGVERSION": number,
                       "DEBEMAIL": "series@localhost"})
    # The C library's headers are the distribution's business.
    for path in place.glob("linux-libc-dev_*"):
        path.unlink()
    return sorted(place.glob("*.deb"))


def make_root(target: Path, suite: str, packages: Sequence[str], log: Path,
              *options: str, env: dict[str, str] | None = None) -> None:
    """Make a minimal Debian from where this machine's apt finds it, with
    options of mmdebstrap; what that started ends with it."""
    if os.geteuid():
        raise Fail("only root makes a Debian: run it as root")
    need_tool("mmdebstrap", "mmdebstrap")
    dump = subprocess.run(["apt-config", "dump"], text=True,
                          capture_output=True).stdout
    for row in re.findall("^Acquire::(?:https?|Check).*(?=;)", dump, re.M):
        options += f"--aptopt={row}",
    run_logged(["unshare", "--mount", "--pid", "--fork", "--kill-child",
                "mmdebstrap", "--variant=minbase",
                f"--include={','.join(packages)}", *options, suite,
                str(target), mirror("Debian")], log, 12 * 3600, env=env,
               what="mmdebstrap", progress=lambda log: "".join(re.findall(
                   "^(?:==>|I:) .{,60}", log.read_text(errors="replace"),
                   re.M)[-1:]))
