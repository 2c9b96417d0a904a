# SPDX-License-Identifier: GPL-2.0-only
"""Run a kernel tree's checkpatch.pl with codespell on a patch.

As a program, on the patch on its stdin, in the tree that it is started in:
b4 does, see submit/README.md.
"""

import argparse
import os
import re
import subprocess
import sys
from pathlib import Path

from tools.core import KERNEL, Fail, git, need_tool, run_main, work_begins
from tools.series.base import REPO

# What checkpatch.pl reads of a kernel tree, or takes one by.
PARTS = ("scripts", "Documentation/dev-tools", "include/linux", "MAINTAINERS",
         "Documentation/devicetree/bindings/vendor-prefixes.yaml", "COPYING",
         "CREDITS", "Kbuild", "README", "Makefile", "arch/x86/Makefile",
         "init/Kconfig", "ipc/util.h", "kernel/sched/sched.h", "lib/Kconfig",
         "drivers/Kconfig", "fs/Kconfig", "Documentation/Makefile")


def checkpatch_tree(place: Path) -> Path:
    """Write the base's files that checkpatch reads below place."""
    parts = git("ls-tree", "--name-only", "base", *PARTS, cwd=REPO).split()
    archive = git("archive", "base", *parts, cwd=REPO, raw=True)
    subprocess.run(["tar", "-x", "-C", str(place)], check=True, input=archive)
    return place


def excused(finding: str) -> bool:
    """Tell whether checkpatch wants what cannot be.

    It takes the types FIXTURE_DATA(), FIXTURE_VARIANT() and ElfW() for calls,
    and wants a macro in its own definition and no name twice in
    __TEST_F_IMPL().
    """
    if re.match(r"WARNING:PREFER_DEFINED_ATTRIBUTE_MACRO|CHECK:MACRO_ARG_REUSE",
                finding):
        return bool(re.search(
            r"^\+#define (__\w+(\(.*\))? __attribute__|__TEST_F_IMPL\()",
            finding, re.M))
    return bool(re.match(r"CHECK:SPACING|CHECK:CAMELCASE|WARNING:LINE_SPACING",
                         finding)
                and re.search(r"^\+.*\b(FIXTURE_DATA|FIXTURE_VARIANT|ElfW)\(",
                              finding, re.M))


def checkpatch(mail: str, tree: Path, *options: str) -> None:
    """Run checkpatch --strict --codespell on a patch; Fail with findings.

    Left out: commits, of which the base has one; MAINTAINERS, whose patterns
    cover the new files' folders; what excused() knows.
    """
    ignored = ["UNKNOWN_COMMIT_ID", "FILE_PATH_CHANGES"]
    # A test of a system call that may be missing has to look at ENOSYS.
    if re.search(r"^\+\+\+ b/tools/testing/selftests/", mail, re.M):
        ignored.append("ENOSYS")
    # Older kernels want other words after Assisted-by:.
    if KERNEL:
        ignored.append("BAD_SIGN_OFF")
    need_tool("codespell", "codespell")
    done = subprocess.run(
        ["./scripts/checkpatch.pl", "--strict", "--codespell", *options,
         "--show-types", f"--ignore={','.join(ignored)}", "-"], input=mail,
        cwd=tree, capture_output=True, text=True, errors="replace",
        # The distribution's python3 knows where codespell's dictionary is.
        env=os.environ | {"PATH": f"/usr/bin:{os.environ['PATH']}"})
    words = done.stdout + done.stderr
    total = re.search(r"^total: (\d+) errors, (\d+) warnings, (\d+) checks",
                      words, re.M)
    if not total or "No codespell typos will be found" in words:
        raise Fail(f"checkpatch did not really run: {words.strip()[-300:]}")
    findings = [text for text in words.split("\n\n")
                if re.match(r"(ERROR|WARNING|CHECK):", text)]
    if len(findings) != sum(map(int, total.groups())):
        raise Fail("\n" + words.strip())
    findings = [text for text in findings if not excused(text)]
    if findings:
        raise Fail("\n" + "\n\n".join(findings))


def main() -> None:
    argparse.ArgumentParser(description=__doc__).parse_args()
    work_begins()
    checkpatch(sys.stdin.read(), Path.cwd())


if __name__ == "__main__":
    run_main(main)
