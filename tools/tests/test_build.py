# SPDX-License-Identifier: GPL-2.0-only
"""Building kernels and programs, with a real make and a small fake kernel."""

import pytest

from conftest import commit, git, write
from tools import build
from tools.core import Fail

# Kconfig takes all but what LACKS names. The objects say who made them.
MAKEFILE = """\
allnoconfig:
\tgrep -v "$${LACKS:-nothing}" $(KCONFIG_ALLCONFIG) >$(O)/.config
\techo made >>$(O)/times
bzImage:
\t@test ! -e broken || { echo "x.c:1: error: no"; exit 1; }
\tmkdir -p $(O)/arch/x86/boot $(O)/include/config
\tcat version >$(O)/arch/x86/boot/bzImage
\techo 7.3.4 >$(O)/include/config/kernel.release
headers:
\tmkdir -p $(O)/usr/include
sleep:
\tsleep 60
"""
# As those of x86 and of sched.
SELFTESTS = """\
CAN_BUILD_I386 := 0
NAMES := a_64
ifeq ($(CAN_BUILD_I386),1)
NAMES += a_32
endif
emit_tests:
\tfor NAME in $(NAMES); do echo "$(COLLECTION):$$NAME"; done
$(NAMES:%=$(OUTPUT)/%):
\t@echo "a.c:3:4: warning: odd"; echo $(CC) >>$@
"""
FILES = {"Makefile": MAKEFILE, "Kconfig": "1\n", "same": "same\n",
         "version": "base\n",
         "tools/testing/selftests/x86/Makefile": SELFTESTS}


@pytest.fixture
def place(tmp_path, replace):
    """A build folder with a repository of two commits, base and applied."""
    repo = tmp_path / "linux.git"
    git(tmp_path, "init", "-q", "-b", "base", repo)
    for name, files in (("base", FILES), ("applied", {"version": "new\n"})):
        git(repo, "checkout", "-q", "-B", name)
        commit(repo, name, files=files)
    git(repo, "checkout", "-q", "--detach")
    replace(build, REPO=repo, BUILD=tmp_path, SOURCES=tmp_path / "src",
            OBJECTS=tmp_path / "obj", LOGS=tmp_path / "logs",
            PROGRAMS=tmp_path / "programs", CONFIGS=tmp_path / "configs")
    write(tmp_path / "configs", {
        "guest.config": "# Why.\nCONFIG_A=y\nCONFIG_HZ=1000\n",
        "debug.config": "# CONFIG_A is not set\nCONFIG_B=\"b c\"\n"})
    return tmp_path


def test_sources_are_at_their_commits_and_keep_what_is_the_same(place):
    trees = [build.source(name) for name in ("base", "applied", "base~0")]
    assert [tree.name for tree in trees] == ["base", "applied", "other"]
    assert [(tree / "version").read_text() for tree in trees] == [
        "base\n", "new\n", "base\n"]
    # What make goes by. Reading a file, as Git may do, changes its atime.
    same = (trees[2] / "same").stat().st_mtime_ns
    write(trees[2], {"version": "by hand\n", "untracked": "\n"})
    # As a git that was killed in the middle of a checkout leaves it.
    (trees[2] / "Makefile").unlink()
    write(place / "linux.git/.git/worktrees/other", {"index.lock": ""})
    for name, version in (("base~0", "base\n"), ("applied~0", "new\n")):
        assert build.source(name) == trees[2]
        assert (trees[2] / "version").read_text() == version
        assert (trees[2] / "Makefile").read_text() == MAKEFILE
    assert (trees[2] / "same").stat().st_mtime_ns == same


def test_keys_name_what_counts(place):
    base, applied = map(build.source_key, ("base", "applied"))
    assert base != applied
    commit(place / "linux.git", "test", files={
        "tools/testing/selftests/x86/a.c": "", "Documentation/x.rst": ""})
    assert build.source_key("HEAD") == applied
    assert build.test_key("HEAD") != build.test_key("applied")
    assert build.test_key("HEAD", "sched") == build.test_key("base", "sched")


def test_settings_that_kconfig_drops_are_named(place, monkeypatch):
    tree, old = build.source("applied"), "CONFIG_A=y\nCONFIG_HZ=1000\n"
    for _ in range(2):
        assert build.configure("series", tree) == old
    assert (build.objects("series") / "times").read_text() == "made\n"
    monkeypatch.setenv("LACKS", "CONFIG_HZ")
    write(place / "configs", {"guest.config": "CONFIG_A=y\nCONFIG_HZ=1\n"})
    for _ in range(2):
        with pytest.raises(Fail, match="does not take CONFIG_HZ=1: "):
            build.configure("series", tree)
    # The base may not know what the series adds.
    assert build.configure("series", build.source("base")) == "CONFIG_A=y\n"
    # The .config of what failed is not taken for the one before.
    monkeypatch.delenv("LACKS")
    write(place / "configs", {"guest.config": old})
    assert build.configure("series", build.source("applied")) == old


def test_a_kernel_is_built_described_and_saved(place):
    for name, said in (("base", "base\n"), ("series", "new\n")):
        folder = build.build_kernel(name)
        assert build.image(name).read_text() == said
    assert build.describe("series")["commit"] == \
        git(place / "linux.git", "rev-parse", "applied")
    build.save_image(folder, place / "saved/image")
    assert sorted(path.name for path in (place / "saved").rglob("*")
                  if path.is_file()) == [".config", "bzImage"]
    # With a change that goes away.
    tree = build.source("applied")
    with pytest.raises(Fail), build.planted(tree, "version", "planted\n"):
        build.build_kernel("series", tree)
        raise Fail
    assert build.image("series").read_text() == "new\nplanted\n"
    assert (tree / "version").read_text() == "new\n"


def test_a_build_that_fails_or_hangs(place):
    write(build.source("applied"), {"broken": ""})
    with pytest.raises(Fail, match="(?s)building the series kernel failed "
                       "with status 2.*    | x.c:1: error: no"):
        build.build_kernel("series")
    text = build.make("series", "-k", "bzImage", check=False).read_text()
    assert build.warnings_in(text) == {"x.c: error: no": 1}
    with pytest.raises(Fail, match="make sleep did not end"):
        build.make("series", "sleep", check=False, timeout=0.1)


def test_selftests(place):
    tree = build.source("applied")
    # Also those that this machine's compiler cannot make.
    assert build.selftest_names(tree, "x86") == ["x86/a_64", "x86/a_32"]
    assert build.selftest_names(tree, "x86", ("a*_32",)) == ["x86/a_32"]
    made = build.build_selftests(["x86/a_64"])["x86/a_64"]
    made.write_text("old\n")
    assert build.build_selftests(["x86/a_64"]) == {"x86/a_64": made}
    assert made.read_text() == "gcc\n"
    other = build.build_selftests(["x86/a_64"], flags=("-static",))
    assert other["x86/a_64"].read_text() == "gcc -static\n"
    assert made.exists() and other["x86/a_64"] != made
    assert build.warnings_in(build.selftest_log("x86").read_text()) == {
        "a.c: warning: odd": 1}
    with pytest.raises(Fail, match="(?s)not built with clang: b_64.*b_64"):
        build.build_selftests(["x86/b_64"], compiler="clang")
    with pytest.raises(Fail, match="sched does not say what it makes"):
        build.selftest_names(tree, "sched")


def test_warnings_without_line_numbers_and_folders(place):
    text = (f"{place}/src/applied/a.c:3:4: warning: one\n"
            "../a.c:7:1: warning: one\n  CC  b.o\n"
            "a.rst:9: WARNING: two, also in "
            f"{place}/src/base/b.rst\nld: error: three\n")
    assert build.warnings_in(text) == {
        "a.c: warning: one": 2, "ld: error: three": 1,
        "a.rst: WARNING: two, also in b.rst": 1}
