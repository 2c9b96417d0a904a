# SPDX-License-Identifier: GPL-2.0-only
"""Run README's commands on Debians with nothing but git and make, as the
forge does in containers: with root, a network, 9 GiB and two hours."""

import os
import re
from pathlib import Path

from tools.core import ROOT, Kernel, git, need_space, scratch
from tools.count import Count
from tools.debian import make_root

SUITES = ("bookworm", "trixie")
# How this machine reaches others, where it is not by itself.
FILES = "/etc/hosts /etc/pip.conf /usr/local/share/ca-certificates"
NAMES = r"(?i)(https?|ftp|no)_proxy|PIP_(CERT|INDEX_URL|EXTRA_.*)"


def group(kernel: Kernel, count: Count) -> None:
    """README's commands work on a bare Debian with git and make."""
    commands = sorted({*re.findall(
        r"^make (?:bench|check)\b", (ROOT / "README.md").read_text(), re.M)})
    count.test("bare: README names the commands", len(commands) != 2)
    need_space(kernel.build, 9, "a clone and its kernels")
    env = {"PATH": "/usr/sbin:/usr/bin:/sbin:/bin", "HOME": "/root"} | {
        name: value for name, value in os.environ.items()
        if name == "TMPDIR" or re.fullmatch(NAMES, name)}
    with scratch("bare") as place:
        git("clone", "-q", "--no-hardlinks", ROOT, place / "series")
        for suite in SUITES:
            count.run(f"bare: README's commands on {suite}", lambda: make_root(
                Path("/dev/null"), suite, ("git", "make"),
                kernel.logs / f"bare-{suite}.log",
                f"--customize-hook=for path in {FILES}; do [ ! -e $path ] || "
                "cp -rL --parents $path $1; done",
                f"--customize-hook=copy-in {place}/series /root",
                *("--chrooted-customize-hook=cd /root/series && " + command
                  for command in commands), env=env))
