# SPDX-License-Identifier: GPL-2.0-only
"""Building kernels and programs, with a real make and a small fake kernel."""

from pathlib import Path

import pytest
from conftest import commit, git, write

from tools import build
from tools.core import Fail, Kernel

# Kconfig takes all but what LACKS names. The objects say who made them. The
# second is as those of x86 and of sched.
FILES = {"Kconfig": "1\n", "same": "same\n", "version": "base\n",
         "Makefile": """\
allnoconfig:
\tgrep -v "$${LACKS:-nothing}" $(KCONFIG_ALLCONFIG) >$(O)/.config
bzImage:
\t@test ! -e broken || { echo "x.c:1: error: no"; exit 1; }
\tmkdir -p $(O)/arch/x86/boot $(O)/include/config
\tcat version >$(O)/arch/x86/boot/bzImage
\techo 7.3.4 >$(O)/include/config/kernel.release
headers:
\tmkdir -p $(O)/usr/include
sleep:
\tsleep 60
""", "tools/testing/selftests/x86/Makefile": """\
CAN_BUILD_I386 := 0
NAMES := a_64
ifeq ($(CAN_BUILD_I386),1)
NAMES += a_32
endif
emit_tests:
\tfor NAME in $(NAMES); do echo "$(COLLECTION):$$NAME"; done
$(NAMES:%=$(OUTPUT)/%):
\t@echo "a.c:3:4: warning: odd"; echo $(CC) >>$@
"""}
CONFIG = "CONFIG_A=y\nCONFIG_HZ=1000\n"


@pytest.fixture(autouse=True)
def repo(kernel: Kernel, replace) -> Path:
    """A repository of two commits, base and applied."""
    git(kernel.build, "init", "-q", "-b", "base", kernel.repo)
    for name, files in (("base", FILES), ("applied", {"version": "new\n"})):
        git(kernel.repo, "checkout", "-q", "-B", name)
        commit(kernel.repo, name, files)
    git(kernel.repo, "checkout", "-q", "--detach")
    replace(build, CONFIGS=kernel.build)
    write(kernel.build, {"guest.config": CONFIG})
    return kernel.repo


def test_sources_are_at_their_commits_and_keep_what_is_the_same(
        kernel: Kernel, repo: Path) -> None:
    trees = [build.source(kernel, name)
             for name in ("base", "applied", "base~0")]
    assert [(tree.name, (tree / "version").read_text()) for tree in trees] == [
        ("base", "base\n"), ("applied", "new\n"), ("other", "base\n")]
    tree = trees[2]
    # What make goes by. Reading a file, as Git may do, changes its atime.
    same = (tree / "same").stat().st_mtime_ns
    write(tree, {"version": "by hand\n", "untracked": "\n"})
    # As a git that was killed in the middle of a checkout leaves it.
    (tree / "Makefile").unlink()
    write(repo / ".git/worktrees/other", {"index.lock": ""})
    for name, version in (("base~0", "base\n"), ("applied~0", "new\n")):
        assert build.source(kernel, name) == tree
        assert (tree / "version").read_text() == version
        assert (tree / "Makefile").exists()
    assert (tree / "same").stat().st_mtime_ns == same


def test_keys_name_what_counts(kernel: Kernel, repo: Path) -> None:
    commit(repo, "test", {"tools/testing/selftests/x86/a.c": "",
                          "Documentation/x.rst": ""})
    base, applied, new = (build.source_key(kernel, name)
                          for name in ("base", "applied", "HEAD"))
    assert base != applied == new
    x86, new, *sched = (build.test_key(kernel, *what) for what in (
        ("base",), ("HEAD",), ("base", "sched"), ("HEAD", "sched")))
    assert x86 != new and sched[0] == sched[1]


def test_settings_that_kconfig_drops_are_named(kernel: Kernel,
                                               monkeypatch) -> None:
    tree = build.source(kernel, "applied")
    assert build.configure(kernel, "series", tree) == CONFIG
    monkeypatch.setenv("LACKS", "CONFIG_HZ")
    # Kconfig is not asked again.
    assert build.configure(kernel, "series", tree) == CONFIG
    write(kernel.build, {"guest.config": "CONFIG_A=y\nCONFIG_HZ=1\n"})
    # The .config of what failed is not taken for the one before.
    for _ in range(2):
        with pytest.raises(Fail, match="does not take CONFIG_HZ=1: "):
            build.configure(kernel, "series", tree)
    # The base may not know what the series adds.
    assert build.configure(
        kernel, "series", build.source(kernel, "base")) == "CONFIG_A=y\n"


def test_a_kernel_is_built_and_described(kernel: Kernel,
                                               repo: Path) -> None:
    for name, said in (("base", "base\n"), ("series", "new\n")):
        build.build_kernel(kernel, name)
        assert build.image(kernel, name).read_text() == said
    assert build.describe(kernel, "series")["commit"] == git(
        repo, "rev-parse", "applied")
    # With a change that goes away.
    tree = build.source(kernel, "applied")
    with pytest.raises(Fail), build.planted(tree, "version", "planted\n"):
        build.build_kernel(kernel, "series", tree)
        raise Fail
    assert build.image(kernel, "series").read_text() == "new\nplanted\n"
    assert (tree / "version").read_text() == "new\n"


def test_a_build_that_fails_or_hangs(kernel: Kernel) -> None:
    write(build.source(kernel, "applied"), {"broken": ""})
    with pytest.raises(Fail, match="(?s)building the series kernel failed "
                       "with status 2.*    | x.c:1: error: no"):
        build.build_kernel(kernel, "series")
    with pytest.raises(Fail, match="make sleep did not end"):
        build.make(kernel, "series", "sleep", check=False, timeout=0.1)


def test_selftests(kernel: Kernel) -> None:
    tree, name = build.source(kernel, "applied"), "x86/a_64"
    # Also those that this machine's compiler cannot make.
    assert build.selftest_names(tree, "x86") == [name, "x86/a_32"]
    assert build.selftest_names(tree, "x86", ("a*_32",)) == ["x86/a_32"]
    with pytest.raises(Fail, match="sched does not say what it makes"):
        build.selftest_names(tree, "sched")
    made = build.build_selftests(kernel, [name])[name]
    made.write_text("old\n")
    assert build.build_selftests(kernel, [name]) == {name: made}
    assert made.read_text() == "gcc\n"
    other, = build.build_selftests(kernel, [name], flags=["-static"]).values()
    assert other.read_text() == "gcc -static\n" and other != made
    with pytest.raises(Fail, match="(?s)not built with clang: b_64.*b_64"):
        build.build_selftests(kernel, ["x86/b_64"], compiler="clang")


def test_warnings_without_line_numbers_and_folders(kernel: Kernel) -> None:
    text = (f"{kernel.build}/src/applied/a.c:3:4: warning: one\n"
            "../a.c:7:1: warning: one\n  CC  b.o\n"
            "a.rst:9: WARNING: two, also in "
            f"{kernel.build}/src/base/b.rst\nld: error: three\n")
    assert build.warnings_in(kernel, text) == {
        "a.c: warning: one": 2, "ld: error: three": 1,
        "a.rst: WARNING: two, also in b.rst": 1}
