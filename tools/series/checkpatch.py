# SPDX-License-Identifier: GPL-2.0-only
"""Run a kernel tree's checkpatch.pl with codespell on a patch.

As a program, on the patch on its stdin, in the tree that it is started in:
b4 does, see submit/README.md.
"""

import os
import re
import subprocess
import sys
from pathlib import Path

from tools.core import Fail, Kernel, git, kernel_of, need_tool, run_main

# What checkpatch.pl reads of a kernel tree, or takes one by.
PARTS = ("scripts", "Documentation/dev-tools", "include/linux", "MAINTAINERS",
         "Documentation/devicetree/bindings/vendor-prefixes.yaml", "COPYING",
         "CREDITS", "Kbuild", "README", "Makefile", "arch/x86/Makefile",
         "init/Kconfig", "ipc/util.h", "kernel/sched/sched.h", "lib/Kconfig",
         "drivers/Kconfig", "fs/Kconfig", "Documentation/Makefile")

# Findings, and lines of a patch, where it wants what cannot be: it takes the
# types FIXTURE_DATA(), FIXTURE_VARIANT() and ElfW() for calls, and wants a
# macro in its own definition and no name twice in __TEST_F_IMPL().
EXCUSED = (
    ("WARNING:PREFER_DEFINED_ATTRIBUTE_MACRO|CHECK:MACRO_ARG_REUSE",
     r"^\+#define (__\w+(\(.*\))? __attribute__|__TEST_F_IMPL\()"),
    ("CHECK:SPACING|CHECK:CAMELCASE|WARNING:LINE_SPACING",
     r"^\+.*\b(FIXTURE_DATA|FIXTURE_VARIANT|ElfW)\("))


def checkpatch_tree(kernel: Kernel, place: Path) -> Path:
    """Write the base's files that checkpatch reads below place."""
    parts = git("ls-tree", "--name-only", "base", *PARTS, cwd=kernel.repo)
    archive = git("archive", "base", *parts.split(), cwd=kernel.repo, raw=True)
    subprocess.run(["tar", "-x", "-C", str(place)], check=True, input=archive)
    return place


def checkpatch(kernel: Kernel, mail: str, tree: Path, *options: str) -> None:
    """Run checkpatch --strict --codespell on a patch; Fail with findings.

    Left out: commits, of which the base has one; MAINTAINERS, whose patterns
    cover the new files' folders; what EXCUSED has.
    """
    ignored = "UNKNOWN_COMMIT_ID,FILE_PATH_CHANGES"
    # A test of a system call that may be missing has to look at ENOSYS.
    if re.search(r"^\+\+\+ b/tools/testing/selftests/", mail, re.M):
        ignored += ",ENOSYS"
    # Older kernels want other words after Assisted-by:.
    if kernel.name:
        ignored += ",BAD_SIGN_OFF"
    need_tool("codespell", "codespell")
    done = subprocess.run(
        ["./scripts/checkpatch.pl", "--strict", "--codespell", *options,
         "--show-types", f"--ignore={ignored}", "-"], input=mail, cwd=tree,
        capture_output=True, text=True, errors="replace",
        # The distribution's python3 knows where codespell's dictionary is.
        env=os.environ | {"PATH": f"/usr/bin:{os.environ['PATH']}"})
    words = (done.stdout + done.stderr).strip()
    total = re.search(r"^total: (\d+) errors, (\d+) warnings, (\d+) checks",
                      words, re.M)
    if not total or "No codespell typos will be found" in words:
        raise Fail(f"checkpatch did not really run: {words[-300:]}")
    findings = [text for text in words.split("\n\n")
                if re.match("(ERROR|WARNING|CHECK):", text)]
    if len(findings) != sum(map(int, total.groups())):
        raise Fail("\n" + words)
    if findings := [text for text in findings if not any(
            re.match(kinds, text) and re.search(line, text, re.M)
            for kinds, line in EXCUSED)]:
        raise Fail("\n" + "\n\n".join(findings))


if __name__ == "__main__":
    run_main(lambda: checkpatch(kernel_of(""), sys.stdin.read(), Path.cwd()))
