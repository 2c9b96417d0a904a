# SPDX-License-Identifier: GPL-2.0-only
"""The series' test programs that measure: where they are, how they are built.

Used by scripts/study.py, which runs them in guests, and scripts/measure.py,
which runs them on the kernel that runs.
"""

from pathlib import Path

from common import LOGS, Fail, run_logged, shown_path
from kernel import make_environment

SELFTESTS = "tools/testing/selftests"
# Folder below SELFTESTS, source, program.
PROGRAMS = {
    "ioperm_latency": ("x86", "ioperm_latency.c", "ioperm_latency_64"),
    "yield_latency": ("sched", "yield_latency.c", "yield_latency"),
    "pi_ping": ("sched", "pi_ping.c", "pi_ping"),
    "interactive_latency": ("sched", "interactive_latency.c",
                            "interactive_latency"),
}


def source(name):
    """Return the source of a program as a path (str) in a kernel tree."""
    folder, file, _ = PROGRAMS[name]
    return f"{SELFTESTS}/{folder}/{file}"


def build(tree, name, output, static=False):
    """Build a program of a kernel tree (Path) into a folder (Path).

    static: whether it shall need no library.  Returns the program's Path.  Needs no kernel that was built there.
    """
    folder, _, target = PROGRAMS[name]
    output.mkdir(parents=True, exist_ok=True)
    program = output / target
    program.unlink(missing_ok=True)
    run_logged(["make", "-C", str(Path(tree) / SELFTESTS / folder),
                f"OUTPUT={output}", *(["CC=gcc -static"] if static else []),
                str(program)],
               LOGS / f"build-{name}.log", env=make_environment(),
               what=f"building {name}")
    if not program.exists():
        raise Fail(f"building {name} made no {shown_path(program)}")
    return program
