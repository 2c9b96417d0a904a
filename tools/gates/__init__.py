# SPDX-License-Identifier: GPL-2.0-only
"""Run the gates: compilers, checkers, documents, more kernels, installs.

They take hours, so 'make check' only tells which have not run on these
patches.  The series is compared with the base; a tool that did not really run
fails.
"""

from functools import partial

from tools.core import Given, Kernel, build_lock, say
from tools.count import Count, run_groups
from tools.gates import (bare, boots, checkers, compile, package, stick,
                         versions)
from tools.records import checks
from tools.series.apply import begin

# Those of tools/records.py, in an order in which the first tell most.
GROUPS = {
    "gcc": partial(compile.group, tool="gcc"),
    "clang": partial(compile.group, tool="clang"),
    "prefixes": compile.group_prefixes, "sparse": checkers.group_sparse,
    "coccicheck": checkers.group_cocci, "kerneldoc": checkers.group_kerneldoc,
    "docs": checkers.group_docs, "versions": versions.group,
    "i386": boots.group_i386, "musl": boots.group_musl,
    "xen": boots.group_xen, "boots": boots.group_boots,
    "installs": boots.group_installs, "bisect": boots.group_bisect,
    "package": partial(package.group, config="debian"),
    "package-rt": partial(package.group, config="debian-rt"),
    "bare": bare.group, "stick": stick.group_stick}


def look(kernel: Kernel, given: Given) -> list[str]:
    """Return the names of the gates to run."""
    names = [name for name in GROUPS if f"gates {name}" in checks(kernel)]
    return given.words("ONLY", names) or names


def main(kernel: Kernel, given: Given) -> int:
    names, count = look(kernel, given), Count()
    with build_lock(kernel):
        begin(kernel)
        run_groups(kernel, count, {name: GROUPS[name] for name in names},
                   "gates")
    say(count.last_line())
    return count.status()
