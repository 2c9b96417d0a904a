# SPDX-License-Identifier: GPL-2.0-only
"""The gates: what counts as a tool that ran, and as a new warning."""

import subprocess
from collections import Counter
from pathlib import Path

import pytest
from conftest import ROOT, commit, git, write

from tools import build, ktap, records
from tools.core import Fail
from tools.count import Count
from tools.gates import __main__ as gates
from tools.gates import boots, checkers, compile

FAIR = "kernel/sched/fair.c"
# It says what it compiles, and of what a file has after 'says:' that it is
# wrong.
MAKEFILE = """\
allnoconfig:
\tcp $(KCONFIG_ALLCONFIG) $(O)/.config
%.o:
\t@echo "  CC      $@"; sed -n 's,.*says:,$*.c:1:2: warning: ,p' $*.c; \\
\tsed -n 's,.*zlib_inf,$*.c:1:2: error: zlib_inf,p' $*.c
"""


@pytest.fixture
def tree(tmp_path: Path, replace) -> Path:
    """A repository with base and applied, which warns; its work tree."""
    repo = tmp_path / "linux.git"
    git(tmp_path, "init", "-q", "-b", "base", repo)
    warns = "// says: old\n"
    commit(repo, "base", files={"Makefile": MAKEFILE, "Kconfig": "",
                                compile.VICTIM: "\n", FAIR: warns})
    git(repo, "checkout", "-q", "-b", "applied")
    commit(repo, "applied", files={compile.VICTIM: "new\n"})
    replace(build, REPO=repo, BUILD=tmp_path, SOURCES=tmp_path / "src",
            OBJECTS=tmp_path / "obj", LOGS=tmp_path / "logs")
    replace(compile, touched_files=lambda _: [FAIR, compile.VICTIM],
            CONFIGS=("wide",), COMPILERS={}, FOLDERS=(), LOGS=tmp_path / "logs",
            TOOLS={"gcc": (("wide",), *compile.TOOLS["gcc"][1:])})
    return repo


def test_the_series_is_compared_with_the_base(tree: Path) -> None:
    def verdicts() -> list[str]:
        count = Count()
        compile.group(count, "gcc")
        return [row[0] for row in count.rows]

    # The planted fault, the configuration, all files.
    assert verdicts() == ["ok", "ok", "ok"]
    commit(tree, "applied", files={FAIR: "// says: old\n// says: new\n"})
    assert verdicts() == ["ok", "fail", "ok"]
    # What does not compile, and what is not compiled.
    commit(tree, "applied", files={FAIR: "", "Makefile": MAKEFILE.replace(
        "sed", "exit 1;", 1)})
    assert verdicts() == ["fail", "fail", "fail"]
    commit(tree, "applied", files={"Makefile": MAKEFILE.replace(
        "%.o:", f"{FAIR[:-2]}.o: ;\n%.o:")})
    assert verdicts() == ["ok", "ok", "fail"]


def test_a_file_that_another_one_includes_is_read(tree: Path) -> None:
    write(tree, {"kernel/sched/build.c": '#include "fair.c"\n'})
    compile.check_coverage(tree, {"kernel/sched/build.c", compile.VICTIM})
    with pytest.raises(Fail, match=f"nothing looked at {FAIR}"):
        compile.check_coverage(tree, {compile.VICTIM})
    with pytest.raises(Fail, match="nothing looked at any file"):
        compile.check_coverage(tree, set(), ["none.h"])


def test_every_gate_and_every_planted_fault_is_used() -> None:
    assert set(gates.GROUPS) == set(records.GATES)
    text = "".join(path.read_text()
                   for path in (ROOT / "tools/gates").glob("*.py"))
    for path in (ROOT / "tools/planted").iterdir():
        assert f'{path.name}"' in text


def test_a_rule_of_coccinelle(tmp_path: Path) -> None:
    head, rule = "virtual report\n", (
        "@r@ position p; @@\n f@p(...);\n@script:python depends on report@ "
        "p << r.p; @@\ncoccilib.report.print_report(p[0], 'calls f')\n")
    write(tmp_path, {"a.c": "int g(void)\n{\n\tf(1);\n}\n",
                     "good.cocci": head + rule, "patch.cocci": rule,
                     "bad.cocci": head + "@@ @@\n- (\n"})
    results = [checkers.run_rule(tmp_path / f"{name}.cocci", tmp_path, ["a.c"])
               for name in ("good", "patch", "bad")]
    assert isinstance(results[0], Counter) and "calls f" in str(results[0])
    assert results[1] == "has no report mode"
    assert isinstance(results[2], str)


def test_make_kselftest_tells_what_it_would_run(tmp_path: Path) -> None:
    x86 = f"{boots.SELFTESTS}/x86/Makefile"
    write(tmp_path, {
        boots.RUNNER: "run_many() { echo ran; }\n",
        # As lib.mk does it.
        x86: "DIR = $(CURDIR:%/x86=%)\nall:\n\t@. $(DIR)/kselftest/runner.sh; "
        "run_many $(O)/iopl_64 $(O)/amx_64\n",
        "Makefile": f"kselftest:\n\t$(MAKE) -C {boots.SELFTESTS}/$(TARGETS)"})
    assert boots.make_kselftest(tmp_path, ["O=/x"], tmp_path / "log") == [
        "/x/iopl_64", "/x/amx_64"]
    assert (tmp_path / boots.RUNNER).read_text().count("run_many") == 1
    write(tmp_path, {x86: "all:\n\tfalse\n"})
    with pytest.raises(Fail, match="make kselftest failed"):
        boots.make_kselftest(tmp_path, [], tmp_path / "log")


def test_an_exit_status_as_ktap(tmp_path: Path) -> None:
    program = tmp_path / "iopl_32"
    for status, verdict in (0, "pass"), (1, "fail"):
        program.write_text(f"#!/bin/sh\nexit {status}\n")
        program.chmod(0o755)
        out = subprocess.run([boots.with_ktap(program)], text=True,
                             capture_output=True).stdout
        assert ktap.verdict(ktap.Run(out, 0, 1))[0] == verdict
