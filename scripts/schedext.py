# SPDX-License-Identifier: GPL-2.0-only
"""The columns of scripts/study.py with a scheduler of the tree's
tools/sched_ext: how it is built, and how a guest measures under it.
"""

import os
import shlex
import shutil

from common import BUILD, LOGS, Fail, run_logged, shown_path
from kernel import make_environment

# The kernel (a key of kernel.KERNELS), and who schedules in which column.
KERNEL = "base_ext"
SCHEDULERS = {"ext_simple": "scx_simple", "ext_qmap": "scx_qmap"}
# Of what clang 19 makes of scx_qmap the verifier says that a pointer is none.
CLANG = "-22"
# What it takes besides a kernel's own tools: Debian's package of each.
TOOLS = {f"clang{CLANG}": f"clang{CLANG}",
         f"llvm-strip{CLANG}": f"llvm{CLANG}", "pahole": "dwarves"}
# A BPF scheduler that lets a task wait for 30 s is thrown out.
STATE = "/sys/kernel/sched_ext/state"
START_SECONDS = 30


def missing():
    """Return the packages (list of str) without which there is no column."""
    return [package for tool, package in TOOLS.items()
            if not shutil.which(tool)]


def build(tree):
    """Build the schedulers of a kernel tree (Path) whose vmlinux is there.

    Returns {column: Path of the program that loads it}.
    """
    place = BUILD / "bench/sched_ext"
    place.mkdir(parents=True, exist_ok=True)
    run_logged(["make", "-C", str(tree / "tools/sched_ext"),
                f"-j{os.cpu_count()}", f"O={place}",
                f"VMLINUX_BTF={tree / 'vmlinux'}", f"CLANG=clang{CLANG}",
                f"LLVM_STRIP=llvm-strip{CLANG}", *SCHEDULERS.values()],
               LOGS / "build-sched_ext.log", env=make_environment(),
               what="building tools/sched_ext")
    found = {column: place / "build/bin" / name
             for column, name in SCHEDULERS.items()}
    for path in found.values():
        if not path.exists():
            raise Fail(f"building tools/sched_ext made no {shown_path(path)}")
    return found


def under(loader, command):
    """Return a shell command (str) that runs another under a scheduler.

    loader: the program that loads it and, when it ends, unloads it.  It fails
    when the scheduler was not there from the beginning to the end.
    """
    return (
        f"{shlex.quote(str(loader))} >/tmp/scheduler 2>&1 & scheduler=$!; "
        f"left={START_SECONDS}; "
        f"until grep -qx enabled {STATE}; do sleep 1; left=$((left - 1)); "
        "if [ $left = 0 ]; then echo 'the scheduler does not load:'; "
        "tail -n 20 /tmp/scheduler; exit 1; fi; done; "
        f"{command}; status=$?; "
        f"if ! grep -qx enabled {STATE}; then "
        "echo 'the scheduler was thrown out:'; tail -n 20 /tmp/scheduler; "
        "exit 1; fi; kill -INT $scheduler; wait $scheduler; exit $status")
