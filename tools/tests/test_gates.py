# SPDX-License-Identifier: GPL-2.0-only
"""The gates: what is compared, and what counts as a tool that ran.

No kernel is built and none boots here: make, spatch and the guests are
replaced by what they would say.
"""

import re
import subprocess
from collections import Counter
from collections.abc import Callable
from contextlib import nullcontext
from pathlib import Path
from typing import Any

import pytest
from conftest import write

from tools import gates, ktap
from tools.core import Fail
from tools.count import Count
from tools.guest import Result

IOPORT, FAIR = "arch/x86/kernel/ioport.c", "kernel/sched/fair.c"
WARNING = "kernel/sched/fair.c:{}:1: warning: wrong\n"
ROW = "kernel/sched/fair.c: warning: wrong"


@pytest.fixture
def tree(tmp_path: Path, replace: Callable) -> Path:
    """A tree with two touched files, in place of each source tree."""
    tree = tmp_path / "tree"
    write(tree, {IOPORT: "\n", FAIR: "\n"})
    replace(gates, source=lambda commit, place="": tree,
            touched=lambda: [FAIR, IOPORT], LOGS=tmp_path / "logs",
            need_tool=lambda *_: None, need_space=lambda *_: None,
            compiler_tools=lambda _: None,
            objects=lambda name, compiler="gcc": tmp_path / "obj")
    return tree


# --- compiling -------------------------------------------------------------

class Make:
    """Stands for make: says something, and notes what it was asked for."""

    def __init__(self) -> None:
        # objtool is compiled first, elsewhere.
        self.said = (f"  CC      {IOPORT[:-2]}.o\n  CC [M]  {FAIR[:-2]}.o\n"
                     "  CC      scripts/mod/empty.o\n  CC      /b/check.o\n"
                     "scripts/a.c:1:1: warning: of a tool\n")
        self.config = "\nCONFIG_XEN_PV=y\n# CONFIG_AMD_MEM_ENCRYPT is off\n"
        self.asked: tuple[str, ...] = ()

    def __call__(self, name: str, *asked: str, log: Path,
                 **options: Any) -> None:
        self.asked = asked
        write(log.parent, {log.name: self.said})


@pytest.fixture
def make(tree: Path, replace: Callable) -> Make:
    make = Make()
    replace(gates, configure=lambda *_: make.config, make=make)
    return make


def test_folders_are_those_of_the_configuration(
        tree: Path, make: Make, tmp_path: Path, replace: Callable) -> None:
    more = ["arch/x86/coco/sev/vc-handle.c", "arch/x86/kernel/io_bitmap_test.c"]
    write(tree, dict.fromkeys(more, "\n"))
    replace(gates, touched=lambda: [IOPORT, FAIR, *more, "mm/gone.c"])
    built = gates.compile_folders("wide", tree)
    assert (built.sources, built.warnings) == ({IOPORT, FAIR}, Counter())
    assert {"-k", "W=1", IOPORT[:-2] + ".o", "arch/x86/xen/"} <= \
        set(make.asked)
    # Not what the configuration or the tree does not have.
    assert not re.search("coco|_test|gone", " ".join(make.asked))
    make.config = "CONFIG_AMD_MEM_ENCRYPT=y\n"
    gates.compile_folders("wide", tree)
    assert "arch/x86/coco/sev/vc-handle.o" in make.asked
    assert "arch/x86/xen/" not in make.asked
    # What was compiled is compiled again.
    old = [tmp_path / "obj" / name for name in (
        "kernel/sched/fair.o", "kernel/fork.o", "mm/mmap.o")]
    write(tmp_path, {str(path): "" for path in old})
    for fresh in (False, True):
        gates.compile_folders("wide", tree, fresh=fresh)
        assert [path.exists() for path in old] == [
            not fresh, not fresh, True]


def test_a_make_that_fails(tree: Path, make: Make) -> None:
    make.said += "make[1]: *** [Makefile:1: all] Error 2\n"
    with pytest.raises(Fail, match="make failed"):
        gates.compile_folders("wide", tree)
    make.said += WARNING.format(1).replace("warning", "error")
    # The base fails in the same way, and yet nothing is well.
    with pytest.raises(Fail, match="make failed"):
        gates.compare("wide", "gcc")


def test_sparse_counts_touched_files(tree: Path, make: Make) -> None:
    make.said = (f"  CHECK   {IOPORT}\n" + WARNING.format(1)
                 + "include/linux/x.h:1:1: warning: wrong\n"
                 "scripts/a.c:1:1: warning: wrong\n")
    built = gates.compile_folders("wide", tree, "sparse")
    assert "C=2" in make.asked
    assert (built.sources, list(built.warnings)) == ({IOPORT}, [ROW])
    make.said = "C=2 specified, but sparse is not available or not up to date"
    with pytest.raises(Fail, match="skips it"):
        gates.compile_folders("wide", tree, "sparse")


@pytest.mark.parametrize("series, base, sides, says", [
    ("", "", ["applied"], None),
    (WARNING.format(2), WARNING.format(1), ["applied", "base"], None),
    (WARNING.format(1) * 2, WARNING.format(1), ["applied", "base"],
     f"1 new .*\n    \\| {ROW}")])
def test_series_is_compared_with_base(
        tree: Path, make: Make, replace: Callable, series: str, base: str,
        sides: list[str], says: str | None) -> None:
    said, asked = make.said, []

    def source(commit: str) -> Path:
        make.said = said + {"applied": series, "base": base}[commit]
        asked.append(commit)
        return tree

    replace(gates, source=source)
    with pytest.raises(Fail, match=says) if says else nullcontext():
        assert gates.compare("wide", "gcc") == {IOPORT, FAIR}
    assert list(dict.fromkeys(asked)) == sides


def test_every_touched_file_is_looked_at(tree: Path, make: Make) -> None:
    count = Count()
    gates.compare_all(count, "W=1", [("wide", "gcc")])
    assert (count.passed, count.failed) == (2, 0)
    make.said = f"  CC      {IOPORT[:-2]}.o\n"
    gates.compare_all(count, "W=1", [("wide", "gcc")])
    assert (count.passed, count.failed) == (3, 1)
    assert FAIR in count.rows[-1][2]
    # It may be a part of another one.
    write(tree, {"kernel/sched/build.c": '#include "fair.c"\n'})
    make.said += "  CC      kernel/sched/build.o\n"
    gates.compare_all(count, "W=1", [("wide", "gcc")])
    assert (count.passed, count.failed) == (5, 1)
    # Nor does a patch to a header that nobody includes pass.
    with pytest.raises(Fail, match="nothing looked at any file"):
        gates.check_coverage(["kernel/sched/sched.h"], set(), tree)


def test_every_planted_fault_is_looked_for() -> None:
    assert {path.name for path in gates.PLANTED.iterdir()} == \
        {*gates.FAULTS, "ports.c"}
    assert set(gates.GROUPS) - set(gates.RECORDED) == {"bare", "lab"}


@pytest.mark.parametrize("said, words", [
    ("E: Release file for http://x is expired", "older than it may be"),
    ("E: no such host", "apt's words")])
def test_no_sparse_is_a_skip(tree: Path, tmp_path: Path, said: str,
                             words: str, replace: Callable) -> None:
    def fetch(command: list[str], log: Path, **_: Any) -> int:
        write(log.parent, {log.name: said})
        return 100

    replace(gates, SPARSE=tmp_path / "sparse", run_logged=fetch,
            private_apt=lambda *_, **__: tmp_path)
    count = Count()
    count.expected = ["sparse"]
    gates.group_sparse(count)
    assert (count.passed, count.failed, count.skipped) == (0, 0, 1)
    assert words in count.rows[0][2]


def test_warnings_of_the_series_programs(tree: Path, tmp_path: Path,
                                         replace: Callable) -> None:
    log = tmp_path / "log"
    replace(gates, port_tests=lambda _: ["x86/iopl_32"],
            selftest_names=lambda *_: [], selftest_log=lambda *_: log,
            build_selftests=lambda *_, **__: {})
    log.write_text("../kselftest_harness.h:3:1: warning: not ours\n")
    assert gates.check_programs(tree, "gcc", ()) == 1
    log.write_text("ioport_helper.h:3:1: warning: ours\n")
    with pytest.raises(Fail, match="ours"):
        gates.check_programs(tree, "gcc", ())
    replace(gates, port_tests=lambda _: [])
    with pytest.raises(Fail, match="no program"):
        gates.check_programs(tree, "gcc", ())


def test_a_prefix_by_what_its_patch_touches(tree: Path, make: Make,
                                            replace: Callable) -> None:
    replace(gates, check_programs=lambda *_: 4)
    test = ["tools/testing/selftests/x86/iopl.c"]
    for paths, says in ((["Documentation/a.rst"], "nothing to compile"),
                        (test, "4 programs"),
                        ([FAIR, *test], "2 objects, 4 programs")):
        assert gates.check_prefix(tree, paths, Counter()) == says
    make.said = f"  CC      {IOPORT[:-2]}.o\n" + WARNING.format(1)
    with pytest.raises(Fail, match="looked at kernel/sched/fair.c"):
        gates.check_prefix(tree, [FAIR], Counter({ROW: 1}))
    # As of a patch that needs the next one.
    with pytest.raises(Fail, match="1 new"):
        gates.check_prefix(tree, [IOPORT], Counter())


# --- Coccinelle, documents -------------------------------------------------

@pytest.mark.parametrize("out, err, status, mode, found, why", [
    ("", "", 0, "report", [], ""),
    (f"{FAIR}:3:7-9: no semicolon\nmm/b.c:1:2-3: other\n", "", 0, "report",
     [f"{FAIR}:N:N-N: no semicolon"], ""),
    ("", "no such macro", 1, "report", [], "no such macro"),
    ("", "EXN: Failure(no python)", 0, "report", [],
     "EXN: Failure(no python)"),
    ("", "", 2, "report", [], "status 2"),
    ("", "", 0, "patch", [], "has no report mode")])
def test_a_rule(tree: Path, replace: Callable, out: str, err: str,
                status: int, mode: str, found: list[str], why: str) -> None:
    def spatch(command: list[str], **_: Any) -> subprocess.CompletedProcess:
        assert command[:3] == ["spatch", "-D", "report"]
        assert "--no-includes" in command and command[-1] == FAIR
        return subprocess.CompletedProcess(command, status, out, err)

    write(tree, {"scripts/coccinelle/a.cocci":
                 f"// Options: --no-includes\nvirtual {mode}\n"})
    replace(gates.subprocess, run=spatch)
    assert gates.run_rule("a.cocci", [FAIR], tree) == (Counter(found), why)


def test_most_rules_must_run(tree: Path, replace: Callable) -> None:
    write(tree, {f"scripts/coccinelle/{n}.cocci": "" for n in range(10)})
    old, new = Counter({"old": 1}), Counter({"old": 1, "new": 1})
    after = {f"{n}.cocci": (Counter(), "") for n in range(9)} | {
        "0.cocci": (new, ""), "1.cocci": (old, ""),
        "9.cocci": (Counter(), "no OCaml")}
    before = {"0.cocci": (old, ""), "1.cocci": (old, "")}
    none = {name: (Counter(), "no OCaml") for name in after}
    results = iter([after, before, none, {}])
    replace(gates, run_rules=lambda *_: next(results),
            find_fault=lambda _: None)
    count = Count()
    gates.group_cocci(count)
    # The fault, rule 1 and their number; rule 0 and a skip of no list.
    assert (count.passed, count.failed) == (3, 2)
    gates.group_cocci(count)
    assert count.rows[-1][0] == "fail"


def test_pages_must_come_out(tree: Path, tmp_path: Path,
                             replace: Callable) -> None:
    made = ["index.html", "ioperm.html"]

    def run(command: list[str], log: Path, **_: Any) -> int:
        if "htmldocs" in command:
            assert "SPHINXDIRS=arch/x86" in command
            write(tmp_path / "obj/docs/Documentation/output",
                  dict.fromkeys(made, ""))
            write(log.parent, {log.name: "/a.rst:7: WARNING: undefined"})
        return 0

    replace(gates, BUILD=tmp_path, run_logged=run)
    page = "Documentation/arch/x86/ioperm.rst"
    replace(gates, touched=lambda: [page, "Documentation/index.rst"])
    count = Count()
    gates.group_docs(count)
    assert count.passed == 1
    made.remove("ioperm.html")
    with pytest.raises(Fail, match="ioperm did not come out"):
        gates.group_docs(count)


def test_a_planted_fault(tree: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    for words, found in (("planted_pointer", True), ("something", False)):
        monkeypatch.setitem(gates.FAULTS, "sparse.c", (
            IOPORT, lambda files: (files / IOPORT).open(), words))
        assert Count().run("it", gates.find_fault, "sparse.c") == found
        assert (tree / IOPORT).read_text() == "\n"


# --- kernels ---------------------------------------------------------------

def test_make_kselftest_builds_here_and_runs_in_a_guest(
        tmp_path: Path, replace: Callable) -> None:
    tree, log = tmp_path / "tree", tmp_path / "log"
    write(tree, {
        gates.RUNNER: "run_many() { for t; do echo ok 1 selftests: "
        '"${PWD#$BASE_DIR/}: ${t##*/}"; done; }\n',
        # As lib.mk does it.
        f"{gates.SELFTESTS}/x86/Makefile": "DIR = $(CURDIR:%/x86=%)\nall:\n"
        '\t@BASE_DIR="$(DIR)"; . $(DIR)/kselftest/runner.sh; \\\n'
        "\trun_many $(O)/iopl_64 $(O)/amx_64\n",
        "Makefile": f"kselftest:\n\t$(MAKE) -C {gates.SELFTESTS}/$(TARGETS)"})
    before = (tree / gates.RUNNER).read_text()
    assert gates.make_kselftest(tree, ["O=/x"], log) == [
        "/x/iopl_64", "/x/amx_64"]
    assert (tree / gates.RUNNER).read_text() == before
    write(tree, {f"{gates.SELFTESTS}/x86/Makefile": "all:\n\tfalse\n"})
    with pytest.raises(Fail, match="make kselftest failed"):
        gates.make_kselftest(tree, [], log)
    replace(gates, boot_runner=lambda folder, command, *_, **__: Result(
        0, subprocess.run(command, shell=True, text=True,
                          capture_output=True).stdout, log))
    assert gates.run_made(tree, tree, ["iopl_64"], tree, "x", False) == {
        "iopl_64": "pass"}


def test_bisection_goes_on(tree: Path, tmp_path: Path,
                           replace: Callable) -> None:
    ran, failing = [], {"bisect 0002 sched"}

    def part(count: Count, title: str, part: str, *_: Any) -> None:
        ran.append(f"{title[-4:]} {part}")
        (count.fail if f"{title} {part}" in failing else count.ok)(title, "")

    commits = {"0001-a.patch": "a", "0002-b.patch": "b"}
    replace(gates, prefixes=lambda: commits, bisect_part=part,
            build_kernel=lambda *_: tmp_path,
            BISECTED=tmp_path / "bisect.json",
            source_key=lambda commit: commit,
            test_key=lambda commit, part: f"{part} of {commit}")
    count = Count()
    gates.group_bisect(count)
    assert ran == ["0001 x86", "0001 sched", "0002 x86", "0002 sched"]
    assert (count.passed, count.failed) == (3, 1)
    # What passed does not run again, what failed does.
    failing.clear()
    gates.group_bisect(count)
    assert ran[4:] == ["0002 sched"]
    # Another kernel does.
    commits["0001-a.patch"] = "c"
    gates.group_bisect(count)
    assert ran[5:] == ["0001 x86", "0001 sched"]
    assert count.rows[-1][1] == "bisect 0002"


def test_an_exit_status_as_ktap(tmp_path: Path) -> None:
    program = tmp_path / "iopl_32"
    for status, verdict in (0, "pass"), (1, "fail"):
        program.write_text(f"#!/bin/sh\nexit {status}\n")
        program.chmod(0o755)
        out = subprocess.run([gates.with_ktap(program)], text=True,
                             capture_output=True).stdout
        assert ktap.verdict(ktap.Run(out, 0, 1))[0] == verdict
    program.write_text("#!/bin/sh\necho TAP version 13\n")
    assert gates.with_ktap(program) == program
