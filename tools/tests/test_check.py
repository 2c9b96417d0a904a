# SPDX-License-Identifier: GPL-2.0-only
"""make check: what counts as passed, on tests, patches and kernels.

No kernel is built and none boots here.
"""

from contextlib import nullcontext
from pathlib import Path
from typing import Any

import pytest
from conftest import Box, commit, git, make_kernel, write

from tools import check
from tools.core import Fail
from tools.count import Count
from tools.guest import Result

GOOD = "Subject: a\n\nWhy.\n\nAssisted-by: LLM\n---\n"


def verdicts(count: Count) -> str:
    return "".join(row[0][0] for row in count.rows)


def test_each_test_of_the_tools_counts(tmp_path: Path, replace) -> None:
    replace(check, LOGS=tmp_path / "logs", TESTS=tmp_path)
    write(tmp_path, {"test_it.py": "import pytest\ndef test_a(): pass\n"
                     "def test_b(): assert 0, 'no b'\n"
                     "@pytest.mark.skip(reason='no c')\n"
                     "def test_c(): pass\n"
                     "@pytest.mark.parametrize('n', 'xy')\n"
                     "def test_d(n): pass\n", "test_that.py": "import bad\n"})
    count = Count()
    count.expected = ["scripts: test_it: test_c"]
    check.group_scripts(count)
    assert verdicts(count) == "fofsoo"
    assert "no b" in count.rows[2][2] and "no c" in count.rows[3][2]
    replace(check, TESTS=tmp_path / "none")
    with pytest.raises(Fail, match="pytest did not run"):
        check.group_scripts(count)


@pytest.mark.parametrize("text, says", [
    (GOOD, None), (GOOD.replace("Assisted", "X"), "no Assisted-by"),
    (GOOD.replace("---", "Reviewed-by: A <a@b.c>\n---"), "Reviewed-by: is")])
def test_tags(text: str, says: str | None) -> None:
    count = Count()
    assert count.run("tags", check.check_tags, text) == (not says)
    assert (says or "") in count.rows[0][-1]


PATCHES = """
from tools import check
from tools.core import build_lock, run_main, say
def main():
    with build_lock():
        check.{}(check.begin())
        say('it holds')
run_main(main)
"""


def test_patches_and_mutants_apply(box: Box,
                                   patches: dict[str, bytes]) -> None:
    kernel = make_kernel(box.temp / "kernel")
    box.set_patches(patches)
    box.done(PATCHES.format("check_quilt"), say="it holds", KSRC=kernel)
    name = sorted(patches)[0]
    diff = patches[name].partition(b"\n---\n")[2]
    write(box.repo / "tools/mutants", {
        "a/01-b.patch": b"What.\n\nCaught-by: hang\n---\n" + diff})
    box.refused(PATCHES.format("check_mutants"), KSRC=kernel,
                say="of 1, these do not: 01-a-b")
    # git am takes an offset, quilt push shall not.
    name = sorted(patches)[-1]
    moved = patches[name].replace(b"@@ -1,", b"@@ -2,").replace(
        b" +1,", b" +2,")
    assert moved != patches[name]
    box.set_patches(patches | {name: moved})
    box.refused(PATCHES.format("check_quilt"), KSRC=kernel,
                say="quilt needed fuzz or an offset")


@pytest.fixture
def folders(tmp_path: Path, replace) -> dict[str, Path]:
    """Two kernels; nothing is built for them."""
    replace(check, LOGS=tmp_path, source=tmp_path.joinpath,
            install=lambda side, *_: tmp_path / side,
            at_once=lambda work: {
                name: function() for name, function in work.items()},
            build_selftests=lambda names: {
                name: tmp_path / name for name in names})
    return {side: tmp_path / side for side in check.SIDES}


@pytest.mark.parametrize("name, base, series, verdict", [
    ("a", [], ["pass"], "o"), ("a", ["fail"], ["fail"], "s"),
    ("b", [], ["skip"], "s"), ("b", [], ["fail", "fail"], "f"),
    ("a", ["pass", "pass"], ["fail", "pass"], "o"),
    ("a", ["pass", "fail"], ["skip", "skip"], "s"),
    ("a", ["fail", "fail"], ["", ""], "f"),
    # A test of I/O ports gets no second chance.
    ("ioperm_64", ["pass"], ["fail"], "f")])
def test_selftests_are_compared(
        name: str, base: list[str], series: list[str], verdict: str,
        folders: dict[str, Path], replace) -> None:
    """The base, which has no 'b', only runs what does not pass."""
    left = {folders["base"]: list(base), folders["series"]: list(series)}

    def run(folder: Path, place: Path, guest: str, kvm: bool,
            only: list[str]) -> dict[str, str]:
        assert only == [name]
        word = left[folder].pop(0)
        return {name: word} if word else {}

    replace(check, run_installed=run, selftest_names=lambda tree, _: [
        f"x86/{name}"] if (tree.name, name) != ("base", "b") else [])
    count = Count()
    count.expected = ["selftests/x86: *"]
    check.compare_selftests(count, folders, False)
    assert verdicts(count) == f"o{verdict}"
    assert not any(left.values())


@pytest.mark.parametrize("runs, says", [
    ([(110, 325)] * 2, ""), ([(300, 325)] * 2, "3.00 and 3.25"),
    ([(110, 110)] * 2, "1.10 and 1.10"),
    ([(110, 325), (111, 325)], "110.* and .*111"),
    ([(0, 325)] * 2, "2 of 3 cases")])
def test_the_base_pays_for_a_high_port(
        runs: list[tuple[int, int]], says: str, replace) -> None:
    built = []

    def measure(folder: Path, name: str, cases: tuple[str, ...]
                ) -> dict[str, Any]:
        # Two guests neither build it nor share a log.
        assert built
        found = runs[("repeat-1", "repeat-2").index(name)]
        return {"cases": [{"name": case, "p50": p50,
                           "status": "ok" if p50 else "skip"}
                          for case, p50 in zip(cases, (100, *found))]}

    replace(check.measure_ports, measure_ports=measure,
            build_programs=lambda: built.append(1))
    with pytest.raises(Fail, match=says) if says else nullcontext():
        check.check_ports(Path())


@pytest.mark.parametrize("base, series, short, wanted", [
    ("3", "0", 0, "oo"), ("0", "0", 0, "fo"), ("1", "1", 0, "of"),
    ("1", "", 0, "of"), ("", "0", 0, "fo"), ("1", "0", 1, "of")])
def test_the_drop_window(base: str, series: str, short: int, wanted: str,
                         folders: dict[str, Path], replace) -> None:
    """One that ended early proves nothing."""
    hits = {"base": base, "series": series}

    def boot(folder: Path, *_: Any, **__: Any) -> Result:
        return Result(0, f"# iopl: CPU 0: wakes {check.RACE_WAKES - short} "
                      f"hits {hits[folder.name]}\n", Path())

    replace(check, RACE_CASES=("iopl",), boot=boot)
    count = Count()
    check.check_race(count, folders)
    assert verdicts(count) == wanted


@pytest.mark.parametrize("line, found", [
    ("p->bitmap[0] = 0;", 1), ("q->bitmap[0] = p->max;", 0)])
def test_only_ioport_looks_into_a_bitmap(tmp_path: Path, line: str,
                                         found: int) -> None:
    git(tmp_path, "init", "-q")
    text = "void f(struct io_bitmap *p, struct x *q)\n{\n\t%s\n}\n"
    commit(tmp_path, "one", files={"arch/x86/kernel/ioport.c": text % "x();",
                                   "arch/x86/kernel/a.c": text % line})
    assert len(check.accessor_uses(tmp_path)) == found
