# SPDX-License-Identifier: GPL-2.0-only
"""What has run on these patches: records, and make publish."""

import re

import pytest
from conftest import ROOT, Box, Patches, git, snapshot, write

PAGE = "# Tested\n\n<!-- tested:begin -->\nold\n<!-- tested:end -->\n\nMore.\n"
BASE = "VERSION PACKAGE SUITE TESTED TESTED_PACKAGE\n7.3 l sid 7.3.4 1\n" \
    "6.12 l sid 6.12.9 1\n"
HEAD = "from tools.core import *\nfrom tools.records import *\n" \
    "k = kernel_of('{}')\n"


@pytest.fixture
def ready(box: Box, patches: Patches) -> Box:
    """A repository with its patches, tools and pages committed."""
    box.set_patches(patches)
    write(box.repo, {
        "results/tested.md": PAGE, "tools/BASE": BASE,
        "README.md": "Why.\n<!-- bench:begin -->\n<!-- bench:end -->\nHow.\n",
        "Makefile": "publish: ## x\n",
        "patches/6.12/series": sorted(patches)[0]})
    git(box.repo, "init", "-q")
    save(box)
    return box


def save(box: Box) -> None:
    git(box.repo, "add", "-A", ".")
    git(box.repo, "commit", "-q", "--allow-empty", "-m", "all")


def change(box: Box, pattern: str, old: str, new: str) -> None:
    path, = box.repo.glob(pattern)
    text = path.read_text()
    assert old in text
    path.write_text(text.replace(old, new, 1))


def note(box: Box, name: str, *numbers: int, kernel: str = "",
         files: tuple[str, ...] = ()) -> None:
    box.done(HEAD.format(kernel)
             + f"record(k, '{name}', {numbers}, begun(), {files})\n")


def row(box: Box, name: str) -> list[str]:
    """Return the cells of a row of the table, 7.3 and 6.12."""
    line, = (line for line in (box.repo / "results/tested.md").read_text()
             .splitlines() if line.startswith(f"| `make {name}` |"))
    return [cell.strip() for cell in line.split("|")[2:-1]]


@pytest.mark.parametrize("name, old, other", (
    ("patches/0001*", "Subject: ", "1111"),
    ("patches/0001*", "/* ioport 10 */", "0001"),
    ("patches/0002*", "/* window 3 */", "1001"),
    ("patches/0004*", "I/O bitmap\n+=", "1101"),
    ("tools/clean", "set -eu", "1110"), ("README.md", "Why", "1111")))
def test_what_a_check_reads(ready: Box, name: str, old: str,
                            other: str) -> None:
    """A change of the patches empties the cells of what reads it."""
    change(ready, name, old, "# X" + old)
    checks = "gates sparse", "gates gcc", "gates docs", "check scripts"
    ready.done(HEAD.format("") + "print(*[int(same(k, name, 'HEAD')) for name "
               f"in {checks}], sep='')\n", say=other)


def test_what_ran_is_published(ready: Box) -> None:
    ready.done("publish", say="7.3: not run on these patches: check scripts")
    assert row(ready, "gates ONLY=gcc") == ["", ""]
    assert row(ready, "check ONLY=scripts") == ["", "–"]
    # Pages are neither patches nor tools.
    old = git(ready.repo, "rev-parse", "--short=12", "HEAD")
    save(ready)
    note(ready, "gates gcc", 7, 1, 2)
    note(ready, "mutants", 9, 0, 0, kernel="6.12")
    write(ready.build, {"results/bench.md": "figures\n",
                        "results/bench-readme.md": "| few |\n"})
    note(ready, "bench", 1, 0, 0, files=("bench.md", "bench-readme.md"))
    ready.done("publish", say="written: ")
    cell = row(ready, "gates ONLY=gcc")[0]
    assert re.fullmatch(rf"\d{{4}}-\d\d-\d\d, {old}: 7 / 1 / 2", cell)
    assert [cell[12:] for cell in row(ready, "mutants")] == [
        "", f"{old}: 9 / 0 / 0"]
    assert (ready.repo / "results/tested.md").read_text().endswith("\nMore.\n")
    assert (ready.repo / "results/bench.md").read_text() == "figures\n"
    assert "\n\n| few |\n\n" in (ready.repo / "README.md").read_text()
    before = snapshot(ready.repo)
    ready.done("publish", say="nothing is new: nothing was written")
    assert snapshot(ready.repo) == before
    # In another clone it has run, too; with other patches it has not.
    save(ready)
    ready.done("tools/clean")
    ready.done("publish")
    assert row(ready, "gates ONLY=gcc")[0] == cell
    change(ready, "patches/0001*", "ioport 10", "ioport ten")
    ready.done("publish")
    assert row(ready, "gates ONLY=gcc") == ["", ""]


def test_what_is_not_published(ready: Box) -> None:
    """A run of nothing, of what was not committed, or of other patches."""
    note(ready, "gates gcc", 0, 0, 5)
    assert not (ready.build / "results/ran.json").exists()
    change(ready, "tools/core.py", "# SPDX", "# More. SPDX")
    note(ready, "gates gcc", 1, 0, 0)
    ready.done("publish", say="its patches or tools were not committed")
    assert row(ready, "gates ONLY=gcc") == ["", ""]
    save(ready)
    note(ready, "gates gcc", 1, 0, 0)
    change(ready, "patches/0001*", "ioport 10", "ioport ten")
    save(ready)
    ready.done("publish", say="it ran on other patches or tools")
    assert row(ready, "gates ONLY=gcc") == ["", ""]


def test_an_interrupted_run_leaves_the_published(ready: Box) -> None:
    page = ready.repo / "results/bench.md"
    write(ready.build, {"results/bench.md": "whole\n"})
    note(ready, "bench", 1, 0, 0, files=("bench.md",))
    ready.done("publish")
    cell = row(ready, "bench")
    # A record of a second run, the files of a third.
    note(ready, "bench", 2, 0, 0, files=("bench.md",))
    write(ready.build, {"results/bench.md": "third\n"})
    ready.done("publish", say="results is not what it ended with")
    assert page.read_text() == "whole\n" and row(ready, "bench") == cell
    # An error writes nothing.
    note(ready, "bench", 2, 0, 0, files=("bench.md",))
    write(ready.repo, {"results/tested.md": "no marks\n"})
    ready.refused("publish", say="must have one <!-- tested:begin -->")
    assert page.read_text() == "whole\n"


def test_what_is_published_is_no_input_of_a_job() -> None:
    """Only publish knows the folder."""
    names = {path.name for path in (ROOT / "tools").rglob("*.py")
             if re.search(r"""ROOT / f?["']results""", path.read_text())
             and path.parent.name != "tests"}
    assert names == {"publish.py"}
