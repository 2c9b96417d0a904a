# SPDX-License-Identifier: GPL-2.0-only
"""make check and make gates: what counts as passed."""

import shutil

import pytest
from conftest import ROOT, Box, Patches, commit, git, make_kernel, write

from tools import check, gates, records
from tools.core import Fail, Kernel
from tools.count import Count
from tools.gates import compile


def verdicts(count: Count) -> str:
    return "".join(row[0][0] for row in count.rows)


def test_each_test_of_the_tools_counts(kernel: Kernel, replace) -> None:
    replace(check, TESTS=kernel.build)
    write(kernel.build, {
        "test_it.py": "import pytest\ndef test_a(): pass\n"
        "def test_b(): assert 0, 'no b'\n"
        "@pytest.mark.skip(reason='no c')\ndef test_c(): pass\n"
        "@pytest.mark.parametrize('n', ['x y'])\ndef test_d(n): pass\n",
        "test_that.py": "import bad\n"})
    for listed, word in (["scripts: test_it.py::test_c: *no c"], "skip"), (
            [], "fail"):
        count = Count()
        count.expected = listed
        check.group_scripts(kernel, count)
        assert {name[9:]: word for word, name, _ in count.rows} == {
            "test_it.py::test_a": "ok", "test_it.py::test_b": "fail",
            "test_it.py::test_c": word, "test_it.py::test_d[x y]": "ok",
            "test_that.py": "fail"}
    replace(check, TESTS=kernel.build / "none")
    with pytest.raises(Fail, match="pytest did not run"):
        check.group_scripts(kernel, count)


def test_tags_and_gates() -> None:
    good = "Subject: a\n\nWhy.\n\nAssisted-by: LLM\n---\n"
    check.check_tags(good)
    for old, new, says in (("Assisted", "X", "no Assisted-by"),
                           ("---", "Reviewed-by: A <a@b.c>", "for people")):
        with pytest.raises(Fail, match=says):
            check.check_tags(good.replace(old, new))
    assert {*gates.GROUPS} == {*records.GATES}


PATCHES = """
from tools import check
from tools.core import build_lock, kernel_of, run_main, say
def main():
    kernel = kernel_of("")
    with build_lock(kernel):
        check.{}(kernel, check.begin(kernel))
        say('it holds')
run_main(main)
"""


def test_patches_and_mutants_apply(box: Box, patches: Patches) -> None:
    readme, tree = PATCHES.format("check_readme"), box.temp / "kernel"
    make_kernel(tree)
    box.set_patches(patches)
    for name in ("README.md", ".gitattributes"):
        shutil.copy(ROOT / name, box.repo)
    box.done(readme, say="it holds", KSRC=tree)
    for old in ("*", " --quiltrc -", "QUILT_PC=.pc-ioport", " | wc -l",
                "QUILT_SERIES=$series", "applied | wc -l", "s/\\r$//; ",
                "s|^|$repo/patches/|"):
        path = box.repo / (".gitattributes" if old == "*" else "README.md")
        text = path.read_text()
        path.write_text(text.replace(old, ""))
        box.refused(readme, KSRC=tree, say="quilt did not apply all" if
                    old == " | wc -l" else "what README.md says failed")
        path.write_text(text)
    first, *_, last = sorted(patches)
    write(box.repo, {
        "tools/mutants/a/01-b.patch": b"What.\n\nCaught-by: hang\n---\n"
        b"diff --git" + patches[first].partition(b"diff --git")[2]})
    box.refused(PATCHES.format("check_mutants"), KSRC=tree,
                say="of 1, these do not: 01-a-b")
    # git am takes an offset, quilt push shall not.
    moved = patches[last].replace(b"@@ -1,", b"@@ -2,").replace(
        b" +1,", b" +2,")
    box.set_patches(patches | {last: moved})
    box.refused(readme, KSRC=tree, say="quilt needed fuzz or an offset")


@pytest.mark.parametrize("name, base, series, verdict", [
    ("a", [], ["pass"], "o"), ("a", ["fail"], ["fail"], "s"),
    ("b", [], ["skip"], "s"), ("b", [], ["fail", "fail"], "f"),
    ("a", ["pass"], ["fail", "pass"], "o"),
    ("a", ["pass", "fail"], ["skip", "skip"], "s"),
    ("a", ["fail", "fail"], ["", ""], "f"),
    # A test of I/O ports gets no second chance.
    ("ioperm_64", ["pass"], ["fail"], "f")])
def test_selftests_are_compared(kernel: Kernel, replace, name: str,
                                base: list[str], series: list[str],
                                verdict: str) -> None:
    """The base, which has no 'b', only runs what does not pass."""
    left = {"base": [*base], "series": [*series]}

    def run(folder: str, *_: object) -> dict[str, str]:
        word = left[folder].pop(0)
        return {name: word} if word else {}

    replace(check.selftests, run_installed=run, install=lambda *_, **__: "")
    replace(check.build, source=lambda _, commit: commit,
            make_arguments=lambda *_: [], selftest_names=lambda commit, _: [
                f"x86/{name}"] * ((commit, name) != ("base", "b")))
    count = Count()
    count.expected = ["selftests/x86: *"]
    check.compare_selftests(kernel, count, dict(zip(left, left)), False)
    assert verdicts(count) == verdict
    assert not any(left.values())


FAIR = "kernel/sched/fair.c"
# It says what it compiles, and that what a file has after 'says:' is wrong.
MAKEFILE = """\
allnoconfig:
\tcp $(KCONFIG_ALLCONFIG) $(O)/.config
%.o:
\t@echo "  CC      $@"; sed -n 's,.*says:,$*.c:1:2: warning: ,p' $*.c; \\
\tsed -n 's,.*zlib_inf,$*.c:1:2: error: zlib_inf,p' $*.c
"""


def test_the_series_is_compared_with_the_base(kernel: Kernel,
                                              replace) -> None:
    tree = kernel.repo
    git(kernel.build, "init", "-q", "-b", "base", tree)
    commit(tree, "base", files={"Makefile": MAKEFILE, "Kconfig": "",
                                compile.VICTIM: "\n", FAIR: "// says: old\n"})
    git(tree, "checkout", "-q", "-b", "applied")
    row = compile.TABLE["gcc"] | {"recipes": ["wide"]}
    replace(compile, touched_files=lambda _: [FAIR, compile.VICTIM],
            check_programs=lambda *_: "",
            TABLE=compile.TABLE | {"folders": [], "gcc": row})
    # The planted fault, the configuration, all files, the selftests. The last
    # but one does not compile, the last one is not compiled.
    for wanted, files in (
            ("oooo", {compile.VICTIM: "new\n"}),
            ("ofoo", {FAIR: "// says: old\n// says: new\n"}),
            ("fffo", {FAIR: "", "Makefile": MAKEFILE.replace(
                "sed", "exit 1;", 1)}),
            ("oofo", {"Makefile": MAKEFILE.replace(
                "%.o:", f"{FAIR[:-2]}.o: ;\n%.o:")})):
        commit(tree, "applied", files)
        count = Count()
        compile.group(kernel, count, "gcc")
        assert verdicts(count) == wanted
