# SPDX-License-Identifier: GPL-2.0-only
"""make check: what counts as passed, on tests, patches and kernels.

No kernel is built and none boots here.
"""

from contextlib import nullcontext
from pathlib import Path

import pytest
from conftest import Box, commit, git, make_kernel, write

from tools import check
from tools.core import Fail
from tools.count import Count

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
    with pytest.raises(Fail, match=says) if says else nullcontext():
        check.check_tags(text)


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
    diff = b"diff --git" + patches[name].partition(b"diff --git")[2]
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
    assert verdicts(count) == verdict
    assert not any(left.values())


@pytest.mark.parametrize("line, found", [
    ("p->bitmap[0] = 0;", 1), ("q->bitmap[0] = p->max;", 0)])
def test_only_ioport_looks_into_a_bitmap(tmp_path: Path, line: str,
                                         found: int) -> None:
    git(tmp_path, "init", "-q")
    text = "void f(struct io_bitmap *p, struct x *q)\n{\n\t%s\n}\n"
    commit(tmp_path, "one", files={"arch/x86/kernel/ioport.c": text % "x();",
                                   "arch/x86/kernel/a.c": text % line})
    assert len(check.accessor_uses(tmp_path)) == found
