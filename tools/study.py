# SPDX-License-Identifier: GPL-2.0-only
"""Run the measurements of the literature: make study, hours, resumable.

A cell is one program of tools/study-data/experiments.toml on one kernel, once.
The same command goes on with the cells that are not in build/results/study, or
are of another kernel or program there.  In the end it writes a page.

The guest is isolated and, with one CPU, deterministic, so a busy host changes
no figure.  Between two runs differ when the program begins, its seed and its
phase.  A program with more CPUs runs alone, by the host's clock.
"""

import functools
import json
from collections.abc import Sequence
from pathlib import Path
from typing import Any, NamedTuple

from tools import build
from tools.core import (CPUS, SIDES, Fail, Given, Kernel, at_once, build_lock,
                        digest, duration, git, need_tool, read_json,
                        run_logged, say, write_atomically, write_json)
from tools.figures import DATA, RUNS, STUDY, shown, words_of
from tools.guest.tiny import closure
from tools.measure_yield import machine_of, run_isolated
from tools.records import Begun, begun, record
from tools.series.apply import begin, sparse_tree
from tools.series.base import ME

HISTORY = {"history_8k": DATA / "2.6.8.1-copy-8k.patch",
           "history_prefix": DATA / "2.6.9-copy-prefix.patch"}
# The kernel with sched_ext, and who schedules in which column.
EXT = "base_ext"
SCHEDULERS = {"ext_simple": "scx_simple", "ext_qmap": "scx_qmap"}
REPORT = "/tmp/report.json"
# What the scripts in the guest run.
TOOLS = ("sh", "env", "grep", "hostname", "ip", "sed", "sleep", "tail", "tr")
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
    def recipe(self) -> str:
        """The kernel that it measures, a name of build.RECIPES."""
        return EXT if self.column in SCHEDULERS else self.column

    @property
    def cpus(self) -> int:
        """How many the guest has."""
        return STUDY["programs"][self.key].get("cpus", 1)

    @property
    def words(self) -> list[str]:
        """What guest.sh gets."""
        program, *words = words_of(self.key, self.run)
        return [str(DELAY * self.run), SCHEDULERS.get(self.column, "-"),
                *STUDY["programs"][self.key].get("before", ()),
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


def history_branch(kernel: Kernel, name: str) -> None:
    """Make the branch of a kernel of HISTORY: the base and its patch."""
    with sparse_tree(kernel, "base", ["arch/x86/kernel/process.c"]) as tree:
        git("apply", "--index", HISTORY[name], cwd=tree)
        git("commit", "-q", "-m", name, cwd=tree, env=ME)
        git("update-ref", f"refs/heads/{name}", git(
            "rev-parse", "HEAD", cwd=tree).strip(), cwd=kernel.repo)


@functools.cache
def build_program(kernel: Kernel, key: str) -> Path:
    """Build a program of the study, static where it can be."""
    program = words_of(key, 1)[0]
    if program.endswith(".sh"):
        need_tool("hackbench", "rt-tests")
        return DATA / program
    if "/" in program:
        return build.build_selftests(
            kernel, [program], flags=("-static",))[program]
    return build.build_bench(kernel, program, static=True)


@functools.cache
def build_recipe(kernel: Kernel, name: str) -> Fail | None:
    """Build a kernel, and the schedulers for that of them; return why not."""
    try:
        folder = build.build_kernel(kernel, name)
        if name == EXT:
            run_logged([str(DATA / "schedulers.sh"),
                        str(build.source(kernel, "base")),
                        str(kernel.build / "programs/scx"),
                        str(folder / "vmlinux"), *SCHEDULERS.values()],
                       kernel.logs / "build-sched_ext.log",
                       env=build.make_environment(),
                       what="building tools/sched_ext")
    except Fail as failure:
        return failure
    return None


def cell_key(kernel: Kernel, cell: Cell) -> str:
    """Return what a cell measures: of another it is done again."""
    recipe = build.RECIPES[cell.recipe]
    try:
        program = build_program(kernel, cell.key).read_bytes()
    except Fail:
        program = b""  # run_cell() says why
    return digest(build.source_key(kernel, recipe.commit),
                  recipe.wanted(kernel), program,
                  (DATA / "guest.sh").read_bytes(), *cell.words,
                  *machine_of(cell.cpus))


def run_cell(kernel: Kernel, cell: Cell) -> dict[str, Any]:
    """Measure a cell; return the figures that the page shows.

    Raises Fail when the guest is lost, the program fails or writes no JSON.
    """
    if failure := build_recipe(kernel, cell.recipe):
        raise failure
    row = STUDY["programs"][cell.key]
    files = [*TOOLS, build_program(kernel, cell.key), *row.get("needs", ())]
    if cell.column in SCHEDULERS:
        files.append(kernel.build / "programs/scx/build/bin"
                     / SCHEDULERS[cell.column])
    # 4: all cases were skipped, which the JSON says.
    return shown(cell.key, run_isolated(
        build.image(kernel, cell.recipe), DATA / "guest.sh", cell.words,
        kernel.logs / f"study-{cell.name}", REPORT, good=(0, 4), timeout=3600,
        memory="2G", cpus=cell.cpus,
        also=closure(files, row.get("folders", ()))))


def run(kernel: Kernel, cells: list[Cell], only_list: bool) -> None:
    """Measure the cells that are not finished, one a processor, or list them.

    A cell that fails does not stop the others; in the end it raises Fail.
    """
    begin(kernel)
    place = kernel.results / "study"
    for name in HISTORY:
        history_branch(kernel, name)
    keys = {cell: cell_key(kernel, cell) for cell in cells}
    rest = [cell for cell in cells if read_json(
        place / f"{cell.name}.json", {}).get("key") != keys[cell]]

    seconds = sum(STUDY["programs"][cell.key]["seconds"] for cell in rest)
    left = (f"{len(rest)} of {len(cells)} cells left, about "
            f"{duration(seconds / CPUS)} and what is to be built")
    def measure(cell: Cell) -> None:
        since, result = begun(), run_cell(kernel, cell)
        write_json(place / f"{cell.name}.json", {
            "key": keys[cell], **since._asdict(),
            "kernel": build.describe(kernel, cell.recipe), "result": result})

    if only_list:
        say("\n".join([*(cell.name for cell in rest), left]))
        return
    say(left)
    # One after the other: a kernel takes all processors.
    for cell in rest:
        build_recipe(kernel, cell.recipe)
    found = {}
    for alone in (False, True):
        found |= at_once({f"{cell.name}, {number} of {len(rest)}":
                          functools.partial(measure, cell)
                          for number, cell in enumerate(rest, 1)
                          if (cell.cpus > 1) == alone}, alone, go_on=True)
    failed = [name.partition(",")[0] for name, end in found.items() if end]
    report(kernel, [cell for cell in cells if cell.name not in failed])
    if failed:
        raise Fail(f"{len(failed)} cells failed, the same command tries them "
                   f"again: {', '.join(failed)}")


def report(kernel: Kernel, done: list[Cell]) -> None:
    """Write the page of what is done and, when that is all of base and
    series, note it for 'make publish'."""
    from tools import page  # here, because it needs matplotlib

    place, cells = kernel.results / "study", plan()
    found = {cell.name: read_json(place / f"{cell.name}.json")
             for cell in done}
    page.study_page(found, len(cells), kernel.results)
    if {cell for cell in cells if cell.column in SIDES} - {*done}:
        return
    write_atomically(place / "study.json", "{\n" + ",\n".join(
        f'"{name}": {json.dumps(cell)}' for name, cell in found.items())
        + "\n}\n")
    record(kernel, "study", (len(found), 0, len(cells) - len(found)),
           Begun(*min((cell["date"], cell.get("commit", ""))
                      for cell in found.values())),
           ["study.md", "study/study.json", *(
               f"study/{path.name}" for path in sorted(place.glob("*.svg")))])


def look(kernel: Kernel, given: Given) -> list[Cell]:
    """Return the cells that ONLY= names."""
    return plan(given.get("ONLY", "").split() or ("",))


def main(kernel: Kernel, given: Given) -> None:
    """Measure, or list what is left."""
    cells = look(kernel, given)
    with build_lock(kernel):
        run(kernel, cells, "LIST" in given)
