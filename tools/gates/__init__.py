# SPDX-License-Identifier: GPL-2.0-only
"""Run the gates: compilers, checkers, documents, more kernels, installs.

They take hours; results/tested.md tells which have run on these patches.  The
series is compared with the base; a tool that did not really run fails.
"""

from functools import partial

from tools.core import Given, Kernel, build_lock
from tools.count import Groups, chosen, run_groups
from tools.gates import (bare, boots, checkers, compile, package, stick,
                         versions)
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


def look(kernel: Kernel, given: Given) -> Groups:
    """Return the gates to run."""
    return chosen(kernel, given, "gates", GROUPS)


def main(kernel: Kernel, given: Given) -> int:
    """Run the job."""
    with build_lock(kernel):
        begin(kernel)
        return run_groups(kernel, "gates", look(kernel, given))
