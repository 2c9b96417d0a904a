# SPDX-License-Identifier: GPL-2.0-only
"""The base, the patches on it, the way to a git tree and back."""

import os
import re
import shutil
import signal
import subprocess
import tarfile
from pathlib import Path

import pytest
from conftest import (BASE, COMMITS, FILES, IOPORT, MMAP, ROOT, YIELD, Box,
                      Patches, commit, environment, git, make_clone,
                      make_kernel, snapshot, write)

# Applies the patches, and tells how their export differs from what is there.
CHECK = ("from tools.core import *\nfrom tools.series.apply import *\n"
         "from tools.series.export import *\ndef main():\n"
         "    with build_lock(), scratch('export') as place:\n"
         "        write_export(begin(), place); say(repr(differences(place)))"
         "\nrun_main(main)\n")
BEGIN = CHECK.replace("write_export(begin(), place)", "begin(); return")
TREE, EXPORT = "tools.series.tree", "tools.series.export"
WINDOW = "tools/testing/selftests/x86/window.c"
DEB = "linux-source-7.3_7.3.4-1~bpo13+1_all.deb"


@pytest.fixture
def ksrc(box: Box) -> Path:
    return make_kernel(box.temp / "linux")


def changed(link: Path) -> Path:
    """A link to a changed worktree of a shallow clone of another user."""
    temp = link.parent
    clone, work = temp / "shallow", temp / "my %41 tree"
    commit(make_clone(temp / "origin"), "More")
    git(temp, "clone", "-q", "--depth=1", f"file://{temp}/origin", clone)
    git(clone, "worktree", "add", "-q", "--detach", work)
    write(work, {MMAP: "changed\n", "Makefile": "VERSION = 6\n"})
    git(work, "add", MMAP)
    if os.getuid() == 0:
        for path in [clone, *clone.rglob("*"), work, *work.rglob("*")]:
            os.chown(path, 65534, 65534)
    link.symlink_to(work)
    return link


@pytest.mark.parametrize("is_changed", (False, True))
def test_every_kind_of_tree_gives_the_same_base(box: Box,
                                                is_changed: bool) -> None:
    path = (changed if is_changed else make_kernel)(box.temp / "linux")
    write(path, {"mm/mmap.o": b"of a build"})
    before = snapshot(path)
    run = box.done(BEGIN, KSRC=path, say="taking Linux 7.3.4 from KSRC")
    assert snapshot(path) == before
    assert ("notice" in run.out) == is_changed
    # Nothing of this machine and time is in its name.
    assert box.tip("base") == "0f667794a2b75d68b15f7e2c9951058d39f110d6"


def test_a_wrong_tree_is_refused(box: Box, ksrc: Path) -> None:
    box.done(BEGIN, KSRC=ksrc)
    base = box.tip("base")
    for version, shown in (("7 30 4", "7.30.4"), ("7 3 0 -rc5", "7.3-rc5"),
                           ("7 4 0", "7.4")):
        make_kernel(ksrc, version)
        box.refused(BEGIN, KSRC=ksrc, say=f"the tree is Linux {shown}, the "
                    "series is for 7.3.y (tested on 7.3.4): give a v7.3 tree")
    program = make_clone(box.temp / "program")
    git(program, "rm", "-q", "Kconfig")
    commit(program, "No kernel")
    for path, what in ((box.bin, "Linux source tree"), (
            program, "Linux source tree"), (ksrc / "Makefile", "folder")):
        box.refused(BEGIN, KSRC=path, FORCE=1, say=f"KSRC={path} is not a "
                    + what)
    assert box.tip("base") == base
    box.done(BEGIN, KSRC=ksrc, FORCE=1, say="notice: this is 7.4, not 7.3.y")
    box.done(BEGIN, KSRC=make_clone(box.temp / "new", "7 3 9"),
             say="notice: this is 7.3.9; the series was tested on 7.3.4")


def test_the_source_package_is_taken_whole_and_once(box: Box) -> None:
    """From a Debian archive, which is a stub of apt-get."""
    there = box.build / "download" / DEB
    box.stub("apt-get", f"""case "$1" in
indextargets) echo "http://a.invalid/debian|Debian|Debian" ;;
update) [ -z "$DOWN" ] || {{ echo "E: $DOWN"; exit 100; }} ;;
download)
    printf half >{DEB}
    [ -z "$HANG" ] || {{ {box.hang}; }}
    cp "{box.temp}/{DEB}" . || exit 100
esac
""")
    for env, words in (({"DOWN": "no way"}, "    | E: no way\nor give a v7.3"),
                       ({}, "mend the network"), ({"FAKE_FREE": 1}, "2 GiB")):
        box.refused(BEGIN, say=words, **env)
    # Some files of a release are named by its .gitignore.
    shipped = {"mm/shipped.o": b"\x7fELF"}
    kernel, place = make_kernel(box.temp / "kernel"), box.temp / "package"
    write(kernel, shipped)
    write(place, {"DEBIAN/control": "Package: linux-source-7.3\nVersion: 7\n"
                  "Architecture: all\nMaintainer: A Tester <a@b.org>\n"
                  "Description: test\n", "usr/src/README": "x"})
    with tarfile.open(place / "usr/src/linux.tar.gz", "w:gz") as tar:
        tar.add(kernel, "linux-source-7.3")
    subprocess.run(["dpkg-deb", "-Znone", "--root-owner-group", "-b", place,
                    box.temp / DEB], check=True, capture_output=True)
    box.interrupted(BEGIN, HANG=1)
    assert not there.exists()
    box.stub("tar", box.hang)
    box.interrupted(BEGIN)
    (box.bin / "tar").unlink()
    box.stub("apt-get", "exit 1")
    box.done(BEGIN, say="unpacking linux-source-7.3")
    clone = make_clone(box.temp / "wanted")
    write(clone, shipped)
    git(clone, "add", "-f", *shipped)
    assert box.tip("base^{tree}") == git(clone, "write-tree")
    assert "==>" not in box.done(BEGIN).out
    shutil.rmtree(box.build / "linux.git")
    there.write_text("damaged")
    box.refused(BEGIN, say=f"{DEB} cannot be unpacked")


def test_each_patch_is_one_commit(box: Box, ksrc: Path,
                                  patches: Patches) -> None:
    box.set_patches(patches)
    box.done(BEGIN, KSRC=ksrc, say="applying 6 patches")
    first = box.tip("applied")
    assert git(box.build / "linux.git", "log", "--reverse", "--format=%s",
               "base..applied").splitlines() == [row[0] for row in COMMITS]
    assert "applying" not in box.done(BEGIN, KSRC=ksrc).out
    # Another user, with other settings, below a git hook.
    write(box.temp, {"home/.gitconfig": "[am]\nthreeWay = true\n[core]\n"
                     "autocrlf = true\n[commit]\ngpgSign = true\n"})
    other = make_clone(box.temp / "other")
    before = snapshot(other)
    box.build = box.temp / "build2"
    box.done(BEGIN, KSRC=ksrc, HOME=box.temp / "home", TZ="Asia/Tokyo",
             GIT_COMMITTER_NAME="Other", GIT_DIR=other / ".git",
             GIT_WORK_TREE=other)
    assert box.tip("applied") == first
    assert snapshot(other) == before


def test_a_patch_that_does_not_apply_is_named_with_file_and_line(
        box: Box, ksrc: Path, patches: Patches) -> None:
    for number, old, new, words in (
            (5, b" /* ioport 28 */", b" /* no port */", f"{IOPORT}:27"),
            (6, b"mm/mmap.c", b"mm/none.c", "mm/none.c: does not exist"),
            (2, WINDOW.encode(), b"Kconfig", "Kconfig: already exists")):
        name = sorted(patches)[number - 1]
        box.set_patches(patches | {name: patches[name].replace(old, new)})
        assert words in box.refused(BEGIN, KSRC=ksrc, say=(
            f"patches/{name} does not apply: ")).err
    (box.repo / "patches" / name).unlink()
    box.refused(BEGIN, KSRC=ksrc, say=f"series names {name}, but")


class Repository:
    """A repository with the patches of COMMITS and a tree made from them."""

    def __init__(self, box: Box, ksrc: Path) -> None:
        self.box, self.ksrc, self.work = box, ksrc, box.build / "tree"
        write(box.repo, {"selftests/README.md": ""})
        self.tree()
        for subject, body, files in COMMITS:
            commit(self.work, subject, body, files)
        self.export(say="exported 6 patches\n")
        self.tree()

    def tree(self, say: str = "branch work", **env: object) -> None:
        self.box.done(TREE, say=say, **{"KSRC": self.ksrc} | env)

    def export(self, say: str = "", **env: object) -> None:
        self.box.done(EXPORT, say=say, **env)
        self.box.done(CHECK, say="{}\n", **{"KSRC": self.ksrc} | env)

    def files(self) -> dict[str, bytes]:
        return {str(path.relative_to(self.box.repo)): path.read_bytes()
                for path in self.box.repo.rglob("*") if path.is_file()
                and path.relative_to(self.box.repo).parts[0] != "tools"}


@pytest.fixture
def repository(box: Box, ksrc: Path) -> Repository:
    return Repository(box, ksrc)


def test_an_export_is_the_same_everywhere(repository: Repository) -> None:
    box, before = repository.box, repository.files()
    names = sorted(path[8:] for path in before if path.startswith("patches/"))
    assert re.findall("^# (\\w+).*\n(00.*)", before["series"].decode(),
                      re.M) == [*zip((
                          "Fixes", "Tests", "sched_yield", "Documents", "x86",
                          "Others"), names, strict=True)]
    assert before["selftests/x86/window.c"].decode() == COMMITS[1][2][WINDOW]
    assert "Documentation/arch/x86/iobitmap.rst" in before
    text = before[f"patches/{names[0]}"].decode()
    assert text.startswith("From " + 40 * "0" + " Mon Sep 17 00:00:00 2001\n")
    assert git(box.temp, "version").split()[2] not in text
    # Not even a time stamp changes when nothing has.
    state = snapshot(box.repo)
    box.build = box.temp / "build2"
    repository.tree(say="checking out build/tree")
    repository.export(say="exported 6 patches: nothing changed")
    assert snapshot(box.repo) == state


def test_an_export_writes_what_changed(repository: Repository) -> None:
    work, before = repository.work, repository.files()
    odd = {"Documentation/odd.bin": b"\xe9\r\nline\rend\0"}
    git(work, "reset", "-q", "--hard", "HEAD~1")
    commit(work, "mm: Réparer", "Grüße.", odd)
    repository.export(say="written: patches/0006-mm-R-parer.patch")
    after = repository.files()
    assert "patches/0006-mm-Say-more.patch" not in after
    assert after["Documentation/odd.bin"] == odd["Documentation/odd.bin"]
    assert [name for name in before if after.get(name, before[name])
            != before[name]] == ["series"]
    git(work, "reset", "-q", "--hard", "base")
    repository.export(say="removed: selftests/x86/window.c")
    assert sorted(repository.files()) == ["selftests/README.md", "series"]


def test_a_series_for_an_older_kernel(repository: Repository) -> None:
    box, before = repository.box, repository.files()
    names = sorted(path[8:] for path in before if path.startswith("patches/"))
    ports, work = box.repo / "patches/6.1", box.build / "6.1/tree"
    write(box.repo, {
        "tools/BASE": f"{BASE}6.1 linux-source-6.1 bookworm 6.1.2\n",
        "patches/6.1/series": "\n".join(names[:5])})
    old = make_kernel(box.temp / "old", "6 1 2")
    write(old, {YIELD: "more\n" + FILES[YIELD],
                MMAP: FILES[MMAP].replace("mmap 2 ", "mmap two ")})
    where = {"KSRC": old, "KERNEL": "6.1"}
    repository.tree(say="applying 5 patches", **where)
    commit(work, "mm: Say more", "More.", {
        MMAP: (work / MMAP).read_text().replace("/* mmap 3 */", "say();")})
    repository.export(say="exported 6 patches\n", **where)
    assert re.findall("^[^#\n].*", (ports / "series").read_text(), re.M) == [
        *names[:5], "6.1/0006-mm-Say-more.patch"]
    # The first series has not seen any of that.
    assert before.items() <= repository.files().items()
    repository.export(say="nothing changed")
    # Other words of a changelog are a patch of its own.
    git(work, "reset", "-q", "--hard", "HEAD~1")
    git(work, "commit", "-q", "--amend", "-m", "x86/ioport: Copy less\n\nNo.")
    repository.export(say="exported 5 patches\n", **where)
    assert [path.name for path in ports.glob("*.patch")] == [names[4]]
    box.refused(TREE, KSRC=old, KERNEL="5.10", say="KERNEL=5.10: the series "
                "is for 7.3, which needs no KERNEL=, and for 6.1\n")


def shell(place: Path, commands: str, **env: object) -> None:
    subprocess.run(["sh", "-ec", commands], cwd=place, check=True,
                   env=environment(GIT_AUTHOR_NAME="x", GIT_COMMITTER_NAME="x",
                                   EMAIL="x@y", **env))


def test_without_force_no_work_is_lost(repository: Repository) -> None:
    box, work = repository.box, repository.work
    for change, export, tree in (
            ("echo >mm/mmap.c", "uncommitted changes", "M mm/mmap.c"),
            ("git checkout -qb side work~1; git commit -q --allow-empty -m s; "
             "git checkout -q work; git merge -q side", *["has a merge"] * 2),
            (f"echo >{IOPORT}; git commit -qam 'x86: Once more'; "
             "git rebase -q --onto base work~1 || true",
             "in the middle of a rebase", "UU"),
            ("git commit -q --allow-empty -m x", *["changes nothing"] * 2),
            ("git checkout -q --orphan other; git commit -qm Other",
             "not on top of 'base'", "patches/0001-Other.patch is missing"),
            ("echo >mm/new.c; git add .; git commit -qm 'mm: New'", "",
             "patches/0007-mm-New.patch is missing"),
            # In a patch, or the tree need not move.
            ("echo >mm/newer.c; sed -i s/+say/+shout/ "
             f"{box.repo}/patches/0006*", "", "?? mm/newer.c")):
        shell(work, change)
        before = snapshot(work), snapshot(box.repo)
        if export:
            box.refused(EXPORT, say=export)
        box.refused(TREE, KSRC=repository.ksrc, say=tree)
        assert (snapshot(work), snapshot(box.repo)) == before
        repository.tree(FORCE=1, say="moving build/tree")
        assert git(work, "rev-parse", "HEAD") == box.tip("applied")
    assert "shout();" in (work / MMAP).read_text()
    # What git leaves that is ended between two files.
    shell(work, "rm mm/newer.c; sed -i s/+shout/+cry/ "
          f"{box.repo}/patches/0006*")
    box.stub_git(" -B work ", f"echo half >{MMAP}; rm Kconfig; {box.hang}")
    box.interrupted(TREE, KSRC=repository.ksrc)
    (box.bin / "git").unlink()
    repository.tree(say="moving build/tree")
    repository.export(say="exported 6 patches")


@pytest.mark.parametrize("sig", (signal.SIGINT, signal.SIGKILL))
@pytest.mark.parametrize("word", (
    " init ", " add -A ", "/0003-", " -B work ", " worktree move "))
def test_an_interruption_anywhere_and_once_more(
        box: Box, ksrc: Path, patches: Patches, word: str,
        sig: signal.Signals) -> None:
    box.set_patches(patches)
    box.stub_git(word, box.hang, after=word != " add -A ")
    box.interrupted(TREE, KSRC=ksrc, sig=sig)
    (box.bin / "git").unlink()
    box.done(TREE, KSRC=ksrc, say="branch work")
    box.check_nothing_left()
    work = box.build / "tree"
    assert git(work, "rev-parse", "HEAD") == box.tip("applied")
    assert git(work, "status", "--porcelain") == ""


def test_the_guide_takes_a_new_base(repository: Repository) -> None:
    """The commands of CONTRIBUTING.md, where nothing conflicts."""
    newer = make_clone(repository.box.temp / "home/linux", "7 4 0")
    git(newer, "tag", "-am", "Linux", "v7.4")
    text = (ROOT / "CONTRIBUTING.md").read_text().partition("# Take a new ")[2]
    commands = re.findall(r"^git -C build/.*", text, re.M)
    shell(repository.box.temp, "\n".join(commands), HOME=newer.parent)
    write(repository.box.repo, {"tools/BASE": BASE.replace("7.3", "7.4")})
    repository.export(say="written: series", KSRC=newer)
