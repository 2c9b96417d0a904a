# SPDX-License-Identifier: GPL-2.0-only
"""Run the measurements of the literature: at most 90 minutes, resumable.

A cell is one program of tools/study-data/experiments.toml on one kernel, once.
The same command goes on with the cells that are not in build/results/study, or
are of another kernel or program there.  'make report' turns them into a page.

The guest is isolated and deterministic, so a busy host changes no figure.
Between two runs differ when the program begins, its seed and its phase.
"""

import argparse
import functools
from collections.abc import Sequence
from pathlib import Path
from typing import Any, NamedTuple

from tools import build
from tools.core import (BUILD, CPUS, LOGS, RESULTS, Fail, build_lock, digest,
                        duration, git, at_once, need_tool, read_json,
                        run_logged, run_main, say, write_json)
from tools.figures import DATA, STUDY, now, result_of, shown, words_of
from tools.guest.tiny import REPEATABLE, REPEATABLE_KERNEL, closure
from tools.measure_yield import run_isolated
from tools.series.apply import begin, sparse_tree
from tools.series.base import ME, REPO

PLACE = RESULTS / "study"
HISTORY = {"history_8k": DATA / "2.6.8.1-copy-8k.patch",
           "history_prefix": DATA / "2.6.9-copy-prefix.patch"}
# The kernel with sched_ext, and who schedules in which column.
EXT = "base_ext"
SCHEDULERS = {"ext_simple": "scx_simple", "ext_qmap": "scx_qmap"}
LOADERS = BUILD / "programs/scx/build/bin"
RUNS = 3
REPORT = "/tmp/report.json"
# What the scripts in the guest run.
TOOLS = ("sh", "grep", "sed", "sleep", "tail", "tr")
# Each run begins this many rounds of a loop later than the one before: about
# a third of a millisecond, of a tick of 1 to 10.
DELAY = 1000


class Cell(NamedTuple):
    """One program of the study, on one kernel, once."""

    key: str
    column: str
    run: int

    @property
    def name(self) -> str:
        """What the results call it."""
        return ".".join(map(str, self))

    @property
    def kernel(self) -> str:
        """The kernel that it measures, a name of build.KERNELS."""
        return EXT if self.column in SCHEDULERS else self.column

    @property
    def words(self) -> list[str]:
        """What guest.sh gets."""
        program, *words = words_of(self.key, self.run)
        return [str(DELAY * self.run), SCHEDULERS.get(self.column, "-"),
                Path(program).name, "--json", REPORT, *words]


def plan(only: Sequence[str] = ("",)) -> list[Cell]:
    """Return the cells with one of these words in their names, first runs
    first; Fail where a word is in none."""
    cells = [Cell(key, column, run) for run in range(1, RUNS + 1)
             for key, program in STUDY["programs"].items()
             for column in STUDY["lists"][program["columns"]]]
    for word in only:
        if not any(word in cell.name for cell in cells):
            raise Fail(f"ONLY={word}: no cell has this in its name")
    return [cell for cell in cells if any(word in cell.name for word in only)]


def history_branch(column: str) -> None:
    """Make the branch of a kernel of HISTORY: the base and its patch."""
    with sparse_tree("base", ["arch/x86/kernel/process.c"]) as tree:
        git("apply", "--index", HISTORY[column], cwd=tree)
        git("commit", "-q", "-m", column, cwd=tree, env=ME)
        git("update-ref", f"refs/heads/{column}", git(
            "rev-parse", "HEAD", cwd=tree).strip(), cwd=REPO)


@functools.cache
def build_program(key: str) -> Path:
    """Build a program of the study, static where it can be."""
    program = words_of(key, 1)[0]
    if program.endswith(".sh"):
        need_tool("hackbench", "rt-tests")
        return DATA / program
    if "/" in program:
        return build.build_selftests([program], flags=("-static",))[program]
    return build.build_bench(program, static=program != "blas_yield")


@functools.cache
def build_column(column: str) -> Fail | None:
    """Build the kernel of a column and its scheduler; return why not."""
    name = EXT if column in SCHEDULERS else column
    try:
        build.build_kernel(name)
        if name == EXT:
            run_logged([str(DATA / "schedulers.sh"),
                        str(build.source("base")), str(LOADERS.parents[1]),
                        str(build.objects(EXT) / "vmlinux"),
                        *SCHEDULERS.values()], LOGS / "build-sched_ext.log",
                       env=build.make_environment(),
                       what="building tools/sched_ext")
    except Fail as failure:
        return failure
    return None


def cell_key(cell: Cell) -> str:
    """Return what a cell measures: of another it is done again."""
    kernel = build.KERNELS[cell.kernel]
    try:
        program = build_program(cell.key).read_bytes()
    except Fail:
        program = b""  # run_cell() says why
    return digest(build.source_key(kernel.commit), kernel.wanted(), program,
                  (DATA / "guest.sh").read_bytes(), *cell.words, *REPEATABLE,
                  REPEATABLE_KERNEL)


def run_cell(cell: Cell) -> dict[str, Any]:
    """Measure a cell; return the figures that the page shows.

    Raises Fail when the guest is lost, the program fails or writes no JSON.
    """
    if failure := build_column(cell.column):
        raise failure
    files = [*TOOLS, build_program(cell.key)]
    if cell.key == "hackbench":
        files.append("hackbench")
    if cell.column in SCHEDULERS:
        files.append(LOADERS / SCHEDULERS[cell.column])
    log = LOGS / f"study-{cell.name}.ktap"
    # seconds: by the guest's clock, which skips what is idle.
    run, report = run_isolated(
        build.image(cell.kernel), DATA / "guest.sh", cell.words, log, REPORT,
        timeout=3600, seconds=12 * 3600, memory="2G",
        cpus=STUDY["programs"][cell.key].get("cpus", 1), also=closure(files))
    # 4: all cases were skipped, which the JSON says.
    return shown(result_of(cell.name, run.status, log, report, (0, 4)))


def run(cells: list[Cell], only_list: bool) -> None:
    """Measure the cells that are not finished, one a processor, or list them.

    A cell that fails does not stop the others; in the end it raises Fail.
    """
    begin()
    for column in {cell.column for cell in cells} & set(HISTORY):
        history_branch(column)
    keys = {cell: cell_key(cell) for cell in cells}
    rest = [cell for cell in cells if read_json(
        PLACE / f"{cell.name}.json", {}).get("key") != keys[cell]]

    def left(number: int) -> str:
        seconds = sum(STUDY["programs"][cell.key]["seconds"]
                      for cell in rest[number:]) / CPUS
        return (f"{len(rest) - number} of {len(cells)} cells left, about "
                f"{duration(seconds)}")

    def measure(cell: Cell) -> Fail | None:
        # A cell that fails does not end the others.
        try:
            result = run_cell(cell)
        except Fail as fail:
            return fail
        write_json(PLACE / f"{cell.name}.json", {
            "key": keys[cell], "date": now(),
            "kernel": build.describe(cell.kernel), "result": result})
        return None

    if only_list:
        say("\n".join([*(cell.name for cell in rest), left(0)]))
        return
    # One after the other: a kernel takes all processors.
    for cell in rest:
        build_column(cell.column)
    found = at_once({f"{cell.name} ({left(number)})": functools.partial(
        measure, cell) for number, cell in enumerate(rest)}, CPUS)
    failed = [name.split()[0] for name, end in found.items() if end]
    if failed:
        raise Fail(f"{len(failed)} cells failed, the same command tries them "
                   f"again: {', '.join(failed)}")
    say(f"all {len(cells)} cells are there; 'make report' shows them")


def main() -> None:
    """Measure, or list what is left."""
    parser = argparse.ArgumentParser(
        description=__doc__.split("\n\n", maxsplit=1)[0])
    parser.add_argument("--only", action="append", metavar="WORD",
                        help="cells with this in their names, "
                        "such as pi_ping.cgroups or history (may be repeated)")
    parser.add_argument("--list", action="store_true",
                        help="print the cells that are left; measure nothing")
    options = parser.parse_args()
    cells = plan(options.only or ("",))
    with build_lock():
        run(cells, options.list)


if __name__ == "__main__":
    run_main(main)
