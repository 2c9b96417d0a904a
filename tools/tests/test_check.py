# SPDX-License-Identifier: GPL-2.0-only
"""make check and make gates: what counts as passed."""

import re
import shutil
import subprocess
import tarfile
from contextlib import nullcontext
from pathlib import Path

import pytest
from conftest import (IOPORT, ROOT, Box, Patches, commit, git, make_kernel,
                      write, write_program)

from tools import build, check, ktap, records
from tools.core import Fail
from tools.count import Count
from tools.gates import __main__ as gates
from tools.gates import boots, compile

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
    count.expected = ["scripts: test_it: *no c"]
    check.group_scripts(count)
    assert verdicts(count) == "fofsoo"
    assert "no b" in count.rows[2][2] and "of it: " in count.rows[2][2]
    # As a full disk leaves it.
    write(tmp_path, {"conftest.py": "import atexit\natexit.register(open, "
                     f"'{tmp_path}/logs/scripts.xml', 'w')\n"})
    for place in tmp_path, tmp_path / "none":
        replace(check, TESTS=place)
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


def test_patches_and_mutants_apply(box: Box, patches: Patches) -> None:
    kernel = make_kernel(box.temp / "kernel")
    box.set_patches(patches)
    for name in ("README.md", ".gitattributes"):
        shutil.copy(ROOT / name, box.repo)
    box.done(PATCHES.format("check_readme"), say="it holds", KSRC=kernel)
    for name, old in (("README.md", " --quiltrc -"), (".gitattributes", "*"),
                      ("README.md", "QUILT_PC=.pc-ioport"),
                      ("README.md", "QUILT_SERIES=$series"),
                      ("README.md", "applied | wc -l"),
                      ("README.md", "s/\\r$//; "),
                      ("README.md", "s|^|$repo/patches/|")):
        path = box.repo / name
        text = path.read_text()
        path.write_text(text.replace(old, ""))
        box.refused(PATCHES.format("check_readme"), KSRC=kernel,
                    say="what README.md says failed")
        path.write_text(text)
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
    box.refused(PATCHES.format("check_readme"), KSRC=kernel,
                say="quilt needed fuzz or an offset")


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
        tmp_path: Path, replace) -> None:
    """The base, which has no 'b', only runs what does not pass."""
    folders = {side: tmp_path / side for side in check.SIDES}
    left = {folders["base"]: list(base), folders["series"]: list(series)}

    def run(folder: Path, place: Path, guest: str, kvm: bool,
            only: list[str]) -> dict[str, str]:
        assert only == [name]
        word = left[folder].pop(0)
        return {name: word} if word else {}

    replace(check, run_installed=run, LOGS=tmp_path, source=tmp_path.joinpath,
            install=lambda side, *_: folders[side],
            build_selftests=lambda names: dict.fromkeys(names, tmp_path),
            selftest_names=lambda tree, _: [
                f"x86/{name}"] if (tree.name, name) != ("base", "b") else [])
    count = Count()
    count.expected = ["selftests/x86: *"]
    check.compare_selftests(count, folders, False)
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


def test_the_series_is_compared_with_the_base(tmp_path: Path, replace) -> None:
    tree = tmp_path / "linux.git"
    git(tmp_path, "init", "-q", "-b", "base", tree)
    commit(tree, "base", files={"Makefile": MAKEFILE, "Kconfig": "",
                                compile.VICTIM: "\n", FAIR: "// says: old\n"})
    git(tree, "checkout", "-q", "-b", "applied")
    commit(tree, "applied", files={compile.VICTIM: "new\n"})
    replace(build, REPO=tree, BUILD=tmp_path, SOURCES=tmp_path / "src",
            OBJECTS=tmp_path / "obj", LOGS=tmp_path / "logs")
    replace(compile, touched_files=lambda _: [FAIR, compile.VICTIM],
            CONFIGS=("wide",), COMPILERS={}, FOLDERS=(), LOGS=build.LOGS,
            TOOLS={"gcc": (("wide",), *compile.TOOLS["gcc"][1:])})

    def compiled() -> str:
        count = Count()
        compile.group(count, "gcc")
        return verdicts(count)

    # The planted fault, the configuration, all files.
    assert compiled() == "ooo"
    commit(tree, "applied", files={FAIR: "// says: old\n// says: new\n"})
    assert compiled() == "ofo"
    # What does not compile, and what is not compiled.
    commit(tree, "applied", files={FAIR: "", "Makefile": MAKEFILE.replace(
        "sed", "exit 1;", 1)})
    assert compiled() == "fff"
    commit(tree, "applied", files={"Makefile": MAKEFILE.replace(
        "%.o:", f"{FAIR[:-2]}.o: ;\n%.o:")})
    assert compiled() == "oof"


def test_every_gate_and_every_planted_fault_is_used() -> None:
    assert set(gates.GROUPS) == set(records.GATES)
    text = "".join(path.read_text()
                   for path in (ROOT / "tools/gates").glob("*.py"))
    for path in (ROOT / "tools/planted").iterdir():
        assert f'{path.name}"' in text


def test_an_exit_status_as_ktap(tmp_path: Path) -> None:
    program = tmp_path / "iopl_32"
    for status, verdict in (0, "pass"), (1, "fail"):
        write_program(program, f"exit {status}\n")
        out = subprocess.run([boots.with_ktap(program)], text=True,
                             capture_output=True).stdout
        assert ktap.verdict(ktap.Run(out, 0, 1))[0] == verdict


VERSIONS = """
from tools.count import Count
from tools.gates import versions
versions.group(Count())
"""


def test_the_versions_that_debian_ships(box: Box, patches: Patches) -> None:
    """One needs fuzz: it has another line near a change."""
    box.set_patches(patches)
    write(box.temp / "deb", {
        "usr/src/README": "x", "DEBIAN/control": "Package: x\nVersion: 7\n"
        "Architecture: all\nMaintainer: A <a@b.org>\nDescription: test\n"})
    for number, line in (7, "ioport 9 "), (8, "another line "):
        kernel = make_kernel(box.temp / f"linux-{number}")
        path = kernel / IOPORT
        path.write_text(path.read_text().replace("ioport 9 ", line))
        with tarfile.open(box.temp / "deb/usr/src/x.tar.xz", "w:xz") as tar:
            tar.add(kernel, "linux-source-7.3")
        subprocess.run(["dpkg-deb", "-Znone", "-b", box.temp / "deb",
                        box.temp / f"linux-source-7.3=7.3.{number}-1"],
                       check=True, capture_output=True)
    box.stub("apt-get", f"""case "$1" in
indextargets) for name in Debian Debian-Security; do
    echo "http://a.invalid/debian|Debian|$name"; done ;;
download) cp "{box.temp}/$2" "$2.deb" ;;
esac
""")
    box.stub("apt-cache", "for n in 8 7 7; do echo \"$3 | 7.3.$n-1 | x\"; done")
    out = box.done(VERSIONS).out
    assert re.findall(r"(\w+) +versions: (\S+) of bookworm", out) == [
        ("FAIL", "7.3.8-1"), ("ok", "7.3.7-1")], out
    assert "Hunk #1 FAILED" in out
