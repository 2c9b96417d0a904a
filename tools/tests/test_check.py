# SPDX-License-Identifier: GPL-2.0-only
"""make check: what counts as passed, on tests, patches and kernels.

No kernel is built and none boots here.
"""

import re
import subprocess
from contextlib import nullcontext
from pathlib import Path
from typing import Any

import pytest
from conftest import Box, make_kernel, write

from tools import check, ktap
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


@pytest.mark.parametrize("release, calls, log, says", [
    ("7.3.4", "TAP version 13\n1..1\nok 1 iopl01\n", "", None),
    ("7.3.5", "TAP version 13\n1..1\nok 1 iopl01\n", "", "it says it is 7.3.5"),
    ("7.3.4", "TAP version 13\n1..1\nnot ok 1 iopl01\n", "",
     "LTP's calls: .*iopl01"),
    ("7.3.4", "", "", "LTP's calls"),
    ("7.3.4", "TAP version 13\n1..1\nok 1 iopl01\n", "BUG: bad\n", "BUG")])
def test_what_a_boot_shows(tmp_path: Path, replace, release: str, calls: str,
                           log: str, says: str | None) -> None:
    write(tmp_path, {"include/config/kernel.release": "7.3.4\n", "log": log})

    def boot(folder: Path, command: str, **_: Any) -> Result:
        assert f" {check.LTP_CALLS};" in command and "uname -r;" in command
        return Result(0, f"@@ begin release\n{release}\n@@ end release 0 0\n"
                      f"@@ begin LTP\n{calls}\n@@ end LTP 0 0\n",
                      tmp_path / "log")

    replace(check, boot=boot)
    count = Count()
    assert count.run("boots", check.check_boot, tmp_path, "base", False) == (
        not says)
    assert not says or re.search(says, count.rows[0][-1])


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


@pytest.mark.parametrize("said, verdict", [("not ok", "o"), ("ok", "f")])
def test_yields_must_fail_on_the_base(said: str, verdict: str,
                                      folders: dict[str, Path],
                                      replace) -> None:
    def boots(folder: Path, programs: list[Path], name: str
              ) -> dict[str, ktap.Run]:
        assert folder == folders["base"]
        return {"yield_test": ktap.Run(
            f"1..2\n{said} 1 yield.share_one\nnot ok 2 yield.lock\n", 1, 9)}

    replace(check, run_yield=lambda *_, **__: None, boot_yield=boots)
    count = Count()
    check.check_yield(count, folders)
    assert verdicts(count) == verdict


@pytest.mark.parametrize("base, series, status, says", [
    ("use", "", 0, ""), ("", "", 0, "does not work"),
    ("use", "use", 0, "a.c: direct use"), ("use", "", 1, "did not run")])
def test_only_ioport_looks_into_a_bitmap(
        base: str, series: str, status: int, says: str,
        folders: dict[str, Path], replace) -> None:
    def spatch(command: list[str], cwd: Path, **_: Any
               ) -> subprocess.CompletedProcess:
        said = {"base": base, "applied": series}[cwd.name]
        return subprocess.CompletedProcess(
            command, status, f"a.c: direct {said} of an I/O bitmap\n",
            "HANDLING: a.c\n")

    replace(check, need_tool=lambda *_: None, git=lambda *_, **__: "a.c\n")
    replace(check.subprocess, run=spatch)
    count = Count()
    assert count.run("rule", check.check_accessor) == (not says)
    assert says in count.rows[0][-1]


def test_the_gates_must_have_passed(replace) -> None:
    known = {name: {"passed": 3, "skipped": 1, "date": "2026-11-23T12:26"}
             for name in check.RECORDED}
    replace(check, recorded=lambda: known)
    count = Count()
    check.group_record(count)
    assert (count.passed, count.failed) == (len(check.RECORDED), 0)
    del known["xen"]
    count = Count()
    count.expected = []
    check.group_record(count)
    assert [row[1] for row in count.rows if row[0] == "fail"] == ["gates: xen"]
