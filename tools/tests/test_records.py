# SPDX-License-Identifier: GPL-2.0-only
"""What has run on these patches: records, and make publish."""

import json

import pytest
from conftest import Box, Patches, git, snapshot, write

PAGE = "# Tested\n\n<!-- tested:begin -->\nold\n<!-- tested:end -->\n\nMore.\n"
RECORD = "from tools.records import *\nrecord({})\n"


@pytest.fixture
def ready(box: Box, patches: Patches) -> Box:
    box.set_patches(patches)
    write(box.repo, {
        "results/tested.md": PAGE,
        "README.md": "Why.\n<!-- bench:begin -->\n<!-- bench:end -->\nHow.\n",
        "tools/BASE": "VERSION PACKAGE SUITE TESTED\n7.3 l sid 7.3.4\n"
        "6.12 l sid 6.12.9\n",
        "patches/6.12/series": sorted(patches)[0]})
    return box


def row(box: Box, name: str) -> list[str]:
    """Return the cells of a row of the table, 7.3 and 6.12."""
    line, = (line for line in (box.repo / "results/tested.md").read_text()
             .splitlines() if line.startswith(f"| {name} |"))
    return [cell.strip() for cell in line.split("|")[2:-1]]


def test_what_a_record_is_of(box: Box, patches: Patches) -> None:
    def keys(patches: Patches) -> list[str]:
        box.set_patches(patches)
        return box.done("from tools.records import *\nprint(*map(patches_key, "
                        "('kernel', 'code', 'all')))\n").out.split()

    names = sorted(patches)
    for name, old, changed in (
            (names[0], b"Subject: ", "000"),
            (names[0], b"/* ioport 10 */", "111"),
            (names[1], b"/* window 3 */", "011"),
            (names[3], b"I/O bitmap\n+=", "001")):
        assert old in patches[name]
        other = patches | {name: patches[name].replace(old, b"X" + old)}
        assert "".join(str(int(one != two)) for one, two in zip(
            keys(patches), keys(other), strict=True)) == changed


def test_what_ran_is_published(ready: Box) -> None:
    git(ready.repo, "init", "-q")
    ready.done("tools.publish", say="written: results/tested.md")
    assert row(ready, "`make gates ONLY=gcc`") == ["", ""]
    assert row(ready, "`make check ONLY=scripts`") == ["", "–"]
    ready.done(RECORD.format("'gates gcc', 7, 1, 2"))
    ready.done(RECORD.format("'mutants', 9, 0, 0"), KERNEL="6.12")
    write(ready.build, {"results/bench.md": "figures\n",
                        "results/bench-readme.md": "| few |\n"})
    ready.done(RECORD.format(
        "'bench', 1, 0, 0, ['bench.md', 'bench-readme.md']"))
    out = ready.done("from tools.records import *\nprint(*gaps(), sep='\\n')\n"
                     "print(*open_gates())\n").out.splitlines()
    assert out[0].startswith("not run on these patches: check scripts, ")
    assert "gcc" not in out[0] and out[1].endswith(": gates gcc")
    assert out[2].startswith("gcc clang ") and "bare" not in out[2]
    ready.done("tools.publish")
    assert row(ready, "`make gates ONLY=gcc`")[0].split(": ")[1].startswith(
        "7 / 1 / 2, ")
    assert row(ready, "`make mutants`")[0] == ""
    assert ": 9 / 0 / 0, " in row(ready, "`make mutants`")[1]
    assert (ready.repo / "results/tested.md").read_text().endswith("\nMore.\n")
    assert (ready.repo / "results/bench.md").read_text() == "figures\n"
    assert "\n\n| few |\n\n" in (ready.repo / "README.md").read_text()
    # Nothing is new.
    before = snapshot(ready.repo)
    ready.done("tools.publish", say="nothing is new: nothing was written")
    assert snapshot(ready.repo) == before
    # In another clone it has run, too; with other patches it has not.
    ready.done("tools/clean")
    ready.done("tools.publish")
    assert row(ready, "`make gates ONLY=gcc`")[0] != ""
    patch = next((ready.repo / "patches").glob("0001*"))
    patch.write_text(patch.read_text().replace("ioport 10", "ioport ten"))
    ready.done("tools.publish")
    assert row(ready, "`make gates ONLY=gcc`") == ["", ""]


def test_an_interrupted_run_leaves_the_published(ready: Box) -> None:
    write(ready.build, {"results/bench.md": "whole\n"})
    ready.done(RECORD.format("'bench', 1, 0, 0, ['bench.md']"))
    ready.done("tools.publish")
    write(ready.build, {"results/bench.md": "half\n"})
    before = snapshot(ready.repo / "results/bench.md")
    cell = row(ready, "`make bench`")
    ready.done("tools.publish")
    assert snapshot(ready.repo / "results/bench.md") == before
    # A record of a second run, the files of a third.
    ready.done(RECORD.format("'bench', 2, 0, 0, ['bench.md']"))
    write(ready.build, {"results/bench.md": "third\n"})
    ready.done("tools.publish", say="results is not what 'make bench' ended")
    assert snapshot(ready.repo / "results/bench.md") == before
    assert row(ready, "`make bench`") == cell
    # An error writes nothing.
    write(ready.build, {"results/bench.md": "half\n"})
    ready.done(RECORD.format("'bench', 2, 0, 0, ['bench.md']"))
    write(ready.repo, {"results/tested.md": "no marks\n"})
    ready.refused("tools.publish", say="must have one <!-- tested:begin -->")
    assert snapshot(ready.repo / "results/bench.md") == before
    assert json.loads((ready.repo / "results/records.json").read_text())[
        "7.3"]["bench"]["passed"] == 1
