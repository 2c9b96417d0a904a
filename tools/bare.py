# SPDX-License-Identifier: GPL-2.0-only
"""Run README's commands on a Debian with nothing but git and make.

As the forge does in containers (.github/workflows), here in a root of its own
in build/bare.  Needs root, a network, 9 GiB and an hour.
"""

import re
import shutil

from tools.core import BUILD, LOGS, ROOT, git, need_space, run_logged
from tools.count import Count
from tools.debian import SUITE, inside, last, make_root, why_not

PLACE = BUILD / "bare"


def group(count: Count, suite: str = SUITE) -> None:
    """README's commands work on a bare Debian with git and make."""
    commands = sorted(set(re.findall(
        r"^make (?:bench|check)\b", (ROOT / "README.md").read_text(), re.M)))
    count.test("bare: README names the commands", len(commands) != 2)
    if reason := why_not():
        count.skip("bare: README's commands", reason)
        return
    need_space(BUILD, 9, "a clone and its kernels in build/bare")
    try:
        make_root(PLACE, ("git", "make"), LOGS / "bare-root.log", suite)
        git("clone", "-q", "--no-hardlinks", ROOT, PLACE / "root/series")
        for command in commands:
            title = f"bare: {command} on {suite}"
            count.run(title, lambda: run_logged(
                inside(PLACE, ["make", "-C", "/root/series", command[5:]]),
                LOGS / f"bare-{suite}-{command[5:]}.log", 12 * 3600,
                what=title, progress=last("^==> .{,60}")))
    finally:
        shutil.rmtree(PLACE, ignore_errors=True)
