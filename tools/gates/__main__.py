# SPDX-License-Identifier: GPL-2.0-only
"""Run the gates: compilers, checkers, documents, more kernels, installs.

They take hours, so 'make check' only tells which have not run on these
patches.  The series is compared with the base; a tool that did not really run
fails.
"""

import argparse
import time
from functools import partial

from tools import bare, lab, package
from tools.core import build_lock, duration, run_main, say
from tools.count import Count, run_groups
from tools.gates import boots, checkers, compile, versions
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
    "package": package.group, "package-rt": package.group_rt,
    "bare": bare.group, "bare-13": partial(bare.group, suite="trixie"),
    "lab": lab.group}


def main() -> int:
    parser = argparse.ArgumentParser(
        prog="tools.gates", description=__doc__.partition("\n\n")[0])
    parser.add_argument("--only", action="append", choices=list(GROUPS),
                        metavar="GROUP", help="only this group, may be given "
                        f"again: {', '.join(GROUPS)}")
    names = parser.parse_args().only or [
        name for name in GROUPS if f"gates {name}" in checks()]
    start, count = time.monotonic(), Count()
    with build_lock():
        begin()
        run_groups(count, {name: GROUPS[name] for name in names}, "gates")
    say(f"took {duration(time.monotonic() - start)}")
    say(count.last_line())
    return count.status()


if __name__ == "__main__":
    run_main(main)
