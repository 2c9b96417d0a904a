# SPDX-License-Identifier: GPL-2.0-only
"""The base, the patches on it, the way to a git tree and back."""

import os
import re
import shutil
import signal
import subprocess
import tarfile
from pathlib import Path
from types import SimpleNamespace

import pytest
from conftest import (BASE, COMMITS, FILES, IOPORT, MMAP, ROOT, YIELD, Box,
                      Patches, commit, environment, git, make_clone,
                      make_kernel, snapshot, write)

from tools.core import Fail, Kernel
from tools.series.base import download, from_package

DEB = "linux-source-7.3_7.3.4-1~bpo13+1_all.deb"
CONTROL = "Package: linux-source-7.3\nVersion: 7\nArchitecture: all\n" \
    "Maintainer: A Tester <a@b.org>\nDescription: test\n"


def tree(box: Box, say: str = "branch work", **env: object) -> str:
    return box.done("tree", say=say, **{"KSRC": box.temp / "linux"} | env).out


def export(box: Box, say: str, **env: object) -> None:
    """Export; a tree of what was written exports the same."""
    box.done("export", say=say, **env)
    tree(box, **env)
    box.done("export", say="nothing changed", **env)


def shell(place: Path, commands: str, **env: object) -> None:
    subprocess.run(["sh", "-ec", commands], cwd=place, check=True,
                   env=environment(GIT_AUTHOR_NAME="x", GIT_COMMITTER_NAME="x",
                                   EMAIL="x@y", **env))


def hang(box: Box, word: str, do: str = "", after: bool = False) -> None:
    """Let git do something and hang before, or after, it works on a word."""
    real = f'{shutil.which("git")} "$@"'
    box.stub("git", f'case " $* " in *"{word}"*)\n{real if after else ":"}\n'
             f"{do}\necho $$ >{box.temp}/hangs; sleep 60 ;; esac\n{real}\n")


def files(box: Box) -> dict[str, str]:
    """Return what an export may write."""
    return {str(path.relative_to(box.repo)): path.read_text("latin1")
            for path in box.repo.rglob("*") if path.is_file()
            and not path.is_relative_to(box.repo / "tools")}


@pytest.fixture
def ready(box: Box) -> Box:
    """With the patches of COMMITS, exported from build/tree."""
    make_kernel(box.temp / "linux")
    write(box.repo, {"selftests/README.md": ""})
    tree(box)
    for message, changes in COMMITS.items():
        commit(box.build / "tree", message, changes)
    export(box, "exported 6 patches\n")
    return box


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
        shell(temp, "chown -R 65534:65534 shallow my*")
    link.symlink_to(work)
    return link


@pytest.mark.parametrize("make", (changed, make_kernel))
def test_every_kind_of_tree_gives_the_same_base(box: Box, make) -> None:
    path = make(box.temp / "linux")
    write(path, {"mm/mmap.o": b"of a build"})
    before = snapshot(path)
    out = tree(box, say="taking Linux 7.3.4 from KSRC")
    assert snapshot(path) == before
    assert ("notice" in out) == (make == changed)
    # Nothing of this machine and time is in its name.
    assert git(box.build / "linux.git", "rev-parse", "base") == \
        "0f667794a2b75d68b15f7e2c9951058d39f110d6"


def test_a_wrong_tree_is_refused(box: Box) -> None:
    path = box.temp / "linux"
    for version, shown in (("7 30 4", "7.30.4"), ("7 3 0 -rc5", "7.3-rc5"),
                           ("7 4 0", "7.4")):
        box.refused("tree", KSRC=make_kernel(path, version), say=(
            f"the tree is Linux {shown}, the series is for 7.3.y (tested on "
            "7.3.4): give a v7.3 tree"))
    program = make_clone(box.temp / "program")
    git(program, "rm", "-q", "Kconfig")
    commit(program, "No kernel")
    for other in box.bin, program:
        box.refused("tree", KSRC=other, FORCE=1, say=f"KSRC={other} is not a ")
    tree(box, FORCE=1, say="notice: this is 7.4, not 7.3.y")
    tree(box, KSRC=make_clone(box.temp / "new", "7 3 9"),
         say="notice: this is 7.3.9; the series was tested on 7.3.4")


def test_a_disk_that_is_full(kernel: Kernel, replace) -> None:
    replace(shutil, disk_usage=lambda path: SimpleNamespace(free=2**30))
    with pytest.raises(Fail, match="package x needs 2 GiB .*1.0 GiB are free"):
        download(kernel, "x", "sid")


def test_the_source_package_is_taken_whole_and_once(box: Box) -> None:
    """From a Debian archive, which is a stub of apt-get."""
    wait, there = f"echo >{box.temp}/hangs; sleep 60", box.build / "download"
    box.stub("apt-get", f"""case "$1" in
indextargets) echo "http://a.invalid/debian|Debian|Debian" ;;
download) printf half >{DEB}; [ -z "$HANG" ] || {{ {wait}; }}
    cp {box.temp}/{DEB} . || {{ echo "E: no way"; exit 100; }} ;;
esac
""")
    run = box.refused("tree", say="    | E: no way\nwithout that, give a v7.3")
    assert "mend the network" in run.err
    clone, place = make_clone(box.temp / "linux"), box.temp / "package"
    # Some files of a release are named by its .gitignore.
    write(clone, {"mm/shipped.o": b"\x7fELF"})
    git(clone, "add", "-f", "mm/shipped.o")
    made = git(clone, "write-tree")
    shutil.rmtree(clone / ".git")
    write(place, {"DEBIAN/control": CONTROL})
    (place / "usr/src").mkdir(parents=True)
    with tarfile.open(place / "usr/src/linux.tar.gz", "w:gz") as tar:
        tar.add(clone, "linux-source-7.3")
    subprocess.run(["dpkg-deb", "-Znone", "--root-owner-group", "-b", place,
                    box.temp / DEB], check=True, capture_output=True)
    box.interrupted("tree", HANG=1)
    assert not (there / DEB).exists()
    box.stub("tar", wait)
    box.interrupted("tree")
    (box.bin / "tar").unlink()
    box.stub("apt-get", "exit 1")
    box.done("tree", say="unpacking linux-source-7.3")
    assert git(box.build / "tree", "rev-parse", "base^{tree}") == made
    assert "==>" not in box.done("tree").out
    shutil.rmtree(box.build / "linux.git")
    (there / DEB).write_text("damaged")
    box.refused("tree", say=f"{DEB} cannot be unpacked")


def test_elsewhere_a_tree_is_asked_for(kernel: Kernel, replace) -> None:
    replace(shutil, which=lambda name: None)
    kernel.build.mkdir(parents=True, exist_ok=True)
    with pytest.raises(Fail, match="^this is not Debian: .*\n.*give a v7.3 "
                       "tree with KSRC=path$"):
        from_package(kernel)


def test_another_user_makes_the_same_commits(box: Box,
                                             patches: Patches) -> None:
    """With other settings, below a git hook."""
    box.set_patches(patches)
    other = make_clone(box.temp / "linux")
    show = box.build / "tree", "log", "--reverse", "--format=%B%H", "base.."
    tree(box, say="applying 6 patches")
    log = git(*show)
    assert re.split("\n+[0-9a-f]{40}\n*", log)[:-1] == [*COMMITS]
    assert "==> applying" not in tree(box)
    write(box.temp, {"home/.gitconfig": "[am]\nthreeWay = true\n[core]\n"
                     "autocrlf = true\n[commit]\ngpgSign = true\n"})
    before = snapshot(other)
    shutil.rmtree(box.build)
    tree(box, HOME=box.temp / "home", TZ="Asia/Tokyo", GIT_WORK_TREE=other,
         GIT_COMMITTER_NAME="Other", GIT_DIR=other / ".git")
    assert git(*show) == log and snapshot(other) == before


def test_a_patch_that_does_not_apply(box: Box, patches: Patches) -> None:
    name = sorted(patches)[4]
    box.set_patches(patches | {name: patches[name].replace(
        b" /* ioport 28 */", b" /* no port */")})
    where = {"KSRC": make_kernel(box.temp / "linux")}
    run = box.refused("tree", say=f"patches/{name} does not apply: ", **where)
    assert f"{IOPORT}:27" in run.err
    (box.repo / "patches" / name).unlink()
    box.refused("tree", say=f"series names {name}, but", **where)


def test_an_export(ready: Box) -> None:
    before, state = files(ready), snapshot(ready.repo)
    names = sorted(path[8:] for path in before if path.startswith("patches/"))
    assert re.findall(r"^# (\w+).*\n(00.*)", before["series"], re.M) == [*zip((
        "Fixes", "Tests", "sched_yield", "Documents", "x86", "Others"), names,
        strict=True)]
    text = before[f"patches/{names[0]}"]
    assert text.startswith("From " + 40 * "0" + " Mon Sep 17 00:00:00 2001\n")
    assert git(ready.temp, "version").split()[2] not in text
    # Elsewhere not even a time stamp changes when nothing has.
    ready.build = ready.temp / "build2"
    tree(ready, say="checking out build/tree")
    export(ready, "exported 6 patches: nothing changed")
    assert snapshot(ready.repo) == state
    # All that has changed, and no more, is written.
    work, odd = ready.build / "tree", b"\xe9\r\nline\rend\0"
    git(work, "reset", "-q", "--hard", "HEAD~1")
    commit(work, "mm: Réparer\n\nGrüße.", {"Documentation/odd.bin": odd})
    export(ready, "written: patches/0006-mm-R-parer.patch")
    after = files(ready)
    assert (ready.repo / "Documentation/odd.bin").read_bytes() == odd
    assert {name for name in before if after.get(name) != before[name]} == {
        "patches/0006-mm-Say-more.patch", "series"}
    git(work, "reset", "-q", "--hard", "base")
    export(ready, "removed: selftests/x86/window.c")
    assert sorted(files(ready)) == ["Makefile", "selftests/README.md",
                                    "series"]


def test_a_series_for_an_older_kernel(ready: Box) -> None:
    before, work = files(ready), ready.build / "6.1/tree"
    names = sorted(path[8:] for path in before if path.startswith("patches/"))
    ports = ready.repo / "patches/6.1"
    write(ready.repo, {
        "tools/BASE": f"{BASE}6.1 linux-source-6.1 bookworm 6.1.2 6.1.2-1\n",
        "patches/6.1/series": "\n".join(names[:5])})
    old = make_kernel(ready.temp / "old", "6 1 2")
    write(old, {YIELD: "more\n" + FILES[YIELD],
                MMAP: FILES[MMAP].replace("mmap 2 ", "mmap two ")})
    where = {"KSRC": old, "KERNEL": "6.1"}
    tree(ready, say="applying 5 patches", **where)
    # Other words of a changelog are a patch of its own.
    git(work, "commit", "-q", "--amend", "-m", "x86/ioport: Copy less\n\nNo.")
    commit(work, "mm: Say more\n\nMore.", {
        MMAP: (work / MMAP).read_text().replace("/* mmap 3 */", "say();")})
    export(ready, "exported 6 patches\n", **where)
    assert re.findall("^[^#\n].*", (ports / "series").read_text(), re.M) == [
        *names[:4], f"6.1/{names[4]}", "6.1/0006-mm-Say-more.patch"]
    assert {path.name for path in ports.iterdir()} == {"series", *names[4:]}
    # The first series has not seen any of that.
    assert before.items() <= files(ready).items()
    ready.refused("tree", KERNEL="5.10", say="KERNEL=5.10: the series is for "
                  "7.3, which needs no KERNEL=, and for 6.1\n")


def test_without_force_no_work_is_lost(ready: Box) -> None:
    work, last = ready.build / "tree", f"{ready.repo}/patches/0006*"
    for change, refused, says in (
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
            (f"echo >mm/newer.c; sed -i s/+say/+shout/ {last}", "",
             "?? mm/newer.c")):
        shell(work, change)
        before = snapshot(work), snapshot(ready.repo)
        if refused:
            ready.refused("export", say=refused)
        ready.refused("tree", KSRC=ready.temp / "linux", say=says)
        assert (snapshot(work), snapshot(ready.repo)) == before
        tree(ready, FORCE=1, say="moving build/tree")
        assert git(work, "diff", "applied") == ""
    assert "shout();" in (work / MMAP).read_text()
    # What git leaves that is ended between two files.
    shell(work, f"rm mm/newer.c; sed -i s/+shout/+cry/ {last}")
    hang(ready, " -B work ", f"echo half >{MMAP}; rm Kconfig")
    ready.interrupted("tree", KSRC=ready.temp / "linux")
    (ready.bin / "git").unlink()
    tree(ready, say="moving build/tree")
    export(ready, "exported 6 patches")


@pytest.mark.parametrize("sig", (signal.SIGINT, signal.SIGKILL))
@pytest.mark.parametrize("word", (
    " init ", " add -A ", "/0003-", " -B work ", " worktree move "))
def test_an_interruption_anywhere_and_once_more(
        box: Box, patches: Patches, word: str, sig: signal.Signals) -> None:
    box.set_patches(patches)
    hang(box, word, after=word != " add -A ")
    box.interrupted("tree", KSRC=make_kernel(box.temp / "linux"), sig=sig)
    (box.bin / "git").unlink()
    tree(box)
    box.check_nothing_left()
    assert git(box.build / "tree", "diff", "applied") == ""
    assert git(box.build / "tree", "status", "--porcelain") == ""


def test_the_guide_takes_a_new_base(ready: Box) -> None:
    """The commands of CONTRIBUTING.md, where nothing conflicts."""
    newer = make_clone(ready.temp / "home/linux", "7 4 0")
    git(newer, "tag", "-am", "Linux", "v7.4")
    text = (ROOT / "CONTRIBUTING.md").read_text().partition("# Take a new ")[2]
    shell(ready.temp, "\n".join(re.findall(r"^git -C build/.*", text, re.M)),
          HOME=newer.parent)
    write(ready.repo, {"tools/BASE": BASE.replace("7.3", "7.4")})
    export(ready, "written: series", KSRC=newer, FORCE=1)
