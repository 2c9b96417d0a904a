# SPDX-License-Identifier: GPL-2.0-only
"""The programs that measure: where they are, how they are built.

Used by scripts/study.py, which runs them in guests, scripts/measure.py, which
runs them on the kernel that runs, scripts/memory.py and scripts/stress.py.
Two are tests of the series, in a kernel tree; the others are in bench/ and
need no tree.
"""

import hashlib
from pathlib import Path

from common import LOGS, ROOT, Fail, run_logged, shown_path
from kernel import make_environment

SELFTESTS = "tools/testing/selftests"
BENCH = ROOT / "bench"
# Folder below SELFTESTS or None for BENCH, source, program.
PROGRAMS = {
    "ioperm_latency": ("x86", "ioperm_latency.c", "ioperm_latency_64"),
    "yield_latency": ("sched", "yield_latency.c", "yield_latency"),
    "pi_ping": (None, "pi_ping.c", "pi_ping"),
    "interactive_latency": (None, "interactive_latency.c",
                            "interactive_latency"),
}


def source(name: str) -> str | None:
    """Return a program's path in a kernel tree, None for one of bench/."""
    folder, file, _ = PROGRAMS[name]
    return f"{SELFTESTS}/{folder}/{file}" if folder else None


def bench_key(name: str) -> str:
    """Return a name of what a program of bench/ is made of."""
    digest = hashlib.sha256()
    for file in (f"{name}.c", "bench_helpers.h", "Makefile"):
        digest.update((BENCH / file).read_bytes())
    return digest.hexdigest()


def make(folder: Path, name: str, program: Path, static: bool) -> Path:
    """Make a program with the Makefile of a folder; returns its path."""
    program.parent.mkdir(parents=True, exist_ok=True)
    program.unlink(missing_ok=True)
    run_logged(["make", "-C", str(folder), f"OUTPUT={program.parent}",
                *(["CC=gcc -static"] if static else []), str(program)],
               LOGS / f"build-{name}.log", env=make_environment(),
               what=f"building {name}")
    if not program.exists():
        raise Fail(f"building {name} made no {shown_path(program)}")
    return program


def build_bench(name: str, output: Path, static: bool = False) -> Path:
    """Build a program of bench/ into a folder; returns its path."""
    return make(BENCH, name, output / name, static)


def build(tree, name, output, static=False):
    """Build a program of PROGRAMS into a folder (Path); returns its Path.

    tree: the kernel tree (Path) of a test of the series; no kernel need have
    been built there.  static: whether it shall need no library.
    """
    folder, _, target = PROGRAMS[name]
    if not folder:
        return build_bench(name, output, static)
    return make(Path(tree) / SELFTESTS / folder, name, output / target, static)
