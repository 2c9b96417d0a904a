# SPDX-License-Identifier: GPL-2.0-only
"""Build Debian packages of the kernel with the series, in build/deb: make deb.

Of the user's configuration and of a prefix of the series.
"""

import os
import re
from pathlib import Path

from tools.build import settings
from tools.core import Fail, Given, Kernel, build_lock, say, shown_path
from tools.debian import DISTRIBUTED, SETS, build_packages
from tools.records import begun, record
from tools.series.apply import begin


def look(kernel: Kernel, given: Given) -> tuple[str, str, str]:
    """Return the set of patches, the configuration, which is a path or one of
    DISTRIBUTED, and the path of what lsmod printed, or nothing."""
    kind = given.one("SET", SETS, "all")
    config = os.path.expanduser(given.get(
        "KCONFIG", f"/boot/config-{os.uname().release}"))
    if config not in DISTRIBUTED:
        path = Path(config)
        if not path.is_file():
            raise Fail(f"KCONFIG={path} is not there: give the .config of "
                       "your kernel, or debian or debian-rt for that of the "
                       "distribution")
        if "CONFIG_X86_64" not in settings(path.read_text(errors="replace")):
            raise Fail(f"KCONFIG={path} is not the configuration of an x86-64 "
                       "kernel")
    modules = os.path.expanduser(given.get("LSMOD", ""))
    if modules and not (os.path.isfile(modules) and re.search(
            "^Module ", Path(modules).read_text(errors="replace"), re.M)):
        raise Fail(f"LSMOD={modules} is not a file with what lsmod prints: "
                   "lsmod >FILE on the machine that it is for")
    return kind, config, modules


def main(kernel: Kernel, given: Given) -> None:
    kind, config, modules = look(kernel, given)
    with build_lock(kernel):
        since = begun()
        begin(kernel)
        made = build_packages(kernel, kind, config, modules)
        if kind == "all":
            record(kernel, "deb", (len(made), 0, 0), since)
    image, = (path for path in made if path.name.startswith("linux-image-"))
    say("install: apt install "
        + " ".join(f"./{shown_path(path)}" for path in made)
        + f"\nremove: apt remove {image.name.partition('_')[0]}")
