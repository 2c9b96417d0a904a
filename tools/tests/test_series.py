# SPDX-License-Identifier: GPL-2.0-only
"""The base, the patches on it, the way to a git tree and back."""

import os
import shutil
import signal
import subprocess
import tarfile
from pathlib import Path

import pytest
from conftest import (BASE, CLOSED, COMMITS, FILES, IOPORT, MMAP, YIELD,
                      Box, commit, git, make_clone, make_kernel, snapshot,
                      write)

from tools.core import Fail
from tools.series.checkpatch import excused
from tools.series.export import heading

BEGIN = ("from tools.core import *\nfrom tools.series.apply import begin\n"
         "def main():\n    with build_lock():\n        say(begin())\n"
         "run_main(main)\n")
TREE, EXPORT = "tools.series.tree", "tools.series.export"
REBASE = "tools.series.rebase"
WINDOW = "tools/testing/selftests/x86/window.c"
DEB = "linux-source-7.3_7.3.4-1~bpo13+1_all.deb"


@pytest.fixture
def ksrc(box: Box) -> Path:
    return make_kernel(box.temp / "linux")


# --- KSRC= ---

def plain(temp: Path) -> Path:
    # What a build left in it stays out.
    write(temp / "linux", {"mm/mmap.o": b"\x7fELF"})
    return make_kernel(temp / "linux")


def changed(temp: Path) -> Path:
    """A link to a worktree of a shallow clone, with changes, of another user.
    """
    clone, work = temp / "shallow", temp / "my %41 tree"
    commit(make_clone(temp / "origin"), "More")
    git(temp, "clone", "-q", "--depth=1", f"file://{temp}/origin", clone)
    git(clone, "worktree", "add", "-q", "--detach", work)
    write(work, {MMAP: "changed\n", "Makefile": "VERSION = 6\n"})
    git(work, "add", MMAP)
    if os.getuid() == 0:
        for path in [clone, *clone.rglob("*"), work, *work.rglob("*")]:
            os.chown(path, 65534, 65534)
    (temp / "linux").symlink_to(work)
    return temp / "linux"


@pytest.mark.parametrize("make", (plain, changed))
def test_every_kind_of_tree_gives_the_same_base(box: Box, make) -> None:
    path = make(box.temp)
    before = snapshot(path)
    run = box.done(BEGIN, KSRC=path, say="taking Linux 7.3.4 from KSRC")
    assert snapshot(path) == before
    assert ("notice" in run.out) == (make == changed)
    # One commit, with nothing of this machine and time in its name.
    assert box.tip("base") == "0f667794a2b75d68b15f7e2c9951058d39f110d6"


def test_another_version_needs_force_and_a_sublevel_does_not(
        box: Box, ksrc: Path) -> None:
    for version, shown in (("17 3 4", "17.3.4"), ("7 30 4", "7.30.4"),
                           ("7 3 0 -rc5", "7.3-rc5"), ("7 4 0", "7.4")):
        make_kernel(ksrc, version)
        box.refused(BEGIN, KSRC=ksrc, FORCE=0,
                    say=f"the tree is Linux {shown}, the series is for 7.3.y "
                    "(tested on 7.3.4): give a v7.3 tree")
    assert not (box.build / "linux.git").exists()
    box.done(BEGIN, KSRC=ksrc, FORCE=1, say="notice: this is 7.4, not 7.3.y")
    run = box.done(BEGIN, KSRC=make_clone(box.temp / "new", "7 3 9"),
                   say="notice: this is 7.3.9; the series was tested on 7.3.4")
    assert "uncommitted" not in run.out


def test_what_is_no_kernel_is_refused_and_the_base_stays(
        box: Box, ksrc: Path) -> None:
    box.done(BEGIN, KSRC=ksrc)
    base = box.tip("base")
    program = make_clone(box.temp / "program")
    git(program, "rm", "-q", "Kconfig")
    commit(program, "No kernel")
    other = make_kernel(box.temp / "other")
    write(other, {"Makefile": "VERSION = 7\n# PATCHLEVEL = 3\n"})
    for path in (box.bin, program, other):
        box.refused(BEGIN, KSRC=path, FORCE=1,
                    say=f"KSRC={path} is not a Linux source tree")
    for given in (ksrc / "Makefile", "~no-such-user/linux"):
        box.refused(BEGIN, KSRC=given, say=f"KSRC={given} is not a folder")
    assert box.tip("base") == base


def test_a_full_disk_is_one_error_and_the_next_run_goes_on(
        box: Box, ksrc: Path) -> None:
    box.stub_git(" add ", "echo fatal: No space left on device >&2; exit 128")
    box.refused(BEGIN, KSRC=ksrc, say="No space left on device")
    box.unstub("git")
    box.done(BEGIN, KSRC=ksrc)


# --- the source package ---

def make_package(box: Box, version: str = "7 3 4",
                 top: str = "linux-source-7.3") -> None:
    place = box.temp / "package"
    kernel = make_kernel(box.temp / "kernel", version)
    # Some files of a release are named by its .gitignore.
    write(kernel, {"mm/shipped.o": b"\x7fELF"})
    write(place, {"DEBIAN/control": "Package: linux-source-7.3\nVersion: 7\n"
                  "Architecture: all\nMaintainer: A Tester <a@b.org>\n"
                  "Description: test\n", "usr/src/README": "x"})
    with tarfile.open(place / "usr/src/linux.tar.gz", "w:gz") as tar:
        tar.add(kernel, top)
    subprocess.run(["dpkg-deb", "-Znone", "--root-owner-group", "-b", place,
                    box.temp / DEB], check=True, capture_output=True)


@pytest.fixture
def archive(box: Box) -> Box:
    """A Debian archive, made of a stub of apt-get."""
    if not shutil.which("dpkg-deb"):
        pytest.skip("dpkg-deb is not there to make a package")
    box.stub("apt-get", f"""echo "$*" >>"{box.temp}/calls"
case "$1" in
indextargets) echo "http://a.invalid/debian|${{SOURCE-Debian|Debian}}" ;;
update) [ -z "$DOWN" ] || {{ echo "E: $DOWN"; exit 100; }} ;;
download)
    printf half >{DEB}
    [ -z "$HANG" ] || {{ {box.hang}; }}
    cp "{box.temp}/{DEB}" . || exit 100
esac
""")
    return box


def downloads(box: Box) -> int:
    return (box.temp / "calls").read_text().count("download")


def test_the_package_is_taken_whole_once_and_again_after_a_ksrc(
        archive: Box) -> None:
    make_package(archive)
    archive.done(BEGIN, say="downloading linux-source-7.3 from trixie-back")
    archive.check_nothing_left()
    first = archive.tip("base")
    clone = make_clone(archive.temp / "wanted")
    write(clone, {"mm/shipped.o": b"\x7fELF"})
    git(clone, "add", "-f", "mm/shipped.o")
    assert archive.tip("base^{tree}") == git(clone, "write-tree")
    assert "==>" not in archive.done(BEGIN).out
    # Also when the change to a KSRC was interrupted.
    other = make_kernel(archive.temp / "other", "7 3 9")
    archive.stub_git(" update-ref ", archive.hang, after=True)
    archive.interrupted(BEGIN, KSRC=other)
    archive.unstub("git")
    assert archive.tip("base") != first
    archive.done(BEGIN)
    assert archive.tip("base") == first
    assert downloads(archive) == 1
    # Nothing of the system's own apt is used or changed.
    home = archive.build / "download/apt"
    assert "http://a.invalid/debian trixie-backports main" in (
        home / "sources.list").read_text()
    for name in ("Dir::Etc::sourcelist", "Dir::State", "Dir::Cache"):
        assert f'{name} "{home}/' in (home / "apt.conf").read_text()


@pytest.mark.parametrize("env, words", (
    ({"DOWN": "Failed to fetch"}, "    | E: Failed to fetch\nor give a v7.3"),
    ({}, "trixie-backports: mend the network"),
    ({"DOWN": "Release file is expired (invalid since 3d)"},
     "the mirror is older than it may be: give another in the apt sources"),
    ({"SOURCE": "Other|Other"}, "no Debian archive is among this"),
    ({"FAKE_FREE": 1}, "needs 9 GiB")))
def test_what_apt_cannot_fetch_is_one_error(archive: Box, words: str,
                                            env: dict[str, object]) -> None:
    archive.refused(BEGIN, say=words, **env)
    assert list((archive.build / "download").glob("*.deb")) == []
    make_package(archive)
    archive.done(BEGIN)


def test_an_interrupted_download_and_unpacking_start_again(
        archive: Box) -> None:
    make_package(archive)
    archive.interrupted(BEGIN, HANG=1)
    assert not (archive.build / "download" / DEB).exists()
    archive.stub("tar", archive.hang)
    archive.interrupted(BEGIN)
    archive.unstub("tar")
    archive.done(BEGIN)
    assert downloads(archive) == 2


def test_a_package_that_does_not_serve_is_named(archive: Box) -> None:
    there = archive.build / "download" / DEB
    write(there.parent, {DEB: "not a package"})
    archive.refused(BEGIN, say=f"{DEB} cannot be unpacked: when it is damaged")
    there.unlink()
    make_package(archive, top="deeper/linux")
    archive.refused(BEGIN, say=f"{DEB} holds 0 kernel trees instead of one")
    there.unlink()
    make_package(archive, "6 12 1")
    archive.refused(BEGIN, say="the tree is Linux 6.12.1")
    archive.done(BEGIN, FORCE=1, say="notice: this is 6.12.1, not 7.3.y")
    archive.refused(BEGIN, say="the tree is Linux 6.12.1")


def test_each_patch_is_one_commit_with_the_same_name_everywhere(
        box: Box, ksrc: Path, patches: dict[str, bytes]) -> None:
    box.set_patches(patches)
    box.done(BEGIN, KSRC=ksrc, say="applying 6 patches")
    first, tree = box.tip("applied"), box.tip("applied^{tree}")
    log = git(box.build / "linux.git", "log", "--reverse", "--format=%s",
              "base..applied").splitlines()
    assert log == [subject for subject, _, _ in COMMITS]
    # Not again, as long as nothing changed.
    box.stub_git(" am ", "exit 99")
    box.done(BEGIN, KSRC=ksrc)
    box.unstub("git")
    # Another order is another series, also after an interruption.
    one, two, *more = sorted(patches)
    box.set_patches(patches, two, one + " # why", *more)
    box.stub_git(" refs/heads/applied ", box.hang, after=True)
    box.interrupted(BEGIN, KSRC=ksrc)
    box.unstub("git")
    assert box.tip("applied") != first
    assert box.tip("applied^{tree}") == tree
    box.set_patches(patches)
    box.done(BEGIN, KSRC=ksrc)
    assert box.tip("applied") == first
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


@pytest.mark.parametrize("number, old, new, words", (
    (5, b" /* ioport 28 */", b" /* no port */", f"{IOPORT}:27"),
    (6, b"mm/mmap.c", b"mm/none.c", "mm/none.c: does not exist"),
    (2, WINDOW.encode(), b"Kconfig", "Kconfig: already exists"),
    (3, b"@@", b"##", "")))
def test_a_patch_that_does_not_apply_is_named_with_file_and_line(
        box: Box, ksrc: Path, patches: dict[str, bytes], number: int,
        old: bytes, new: bytes, words: str) -> None:
    box.set_patches(patches)
    box.done(BEGIN, KSRC=ksrc)
    first = box.tip("applied")
    name = sorted(patches)[number - 1]
    assert old in patches[name]
    box.set_patches(patches | {name: patches[name].replace(old, new)})
    run = box.refused(BEGIN, KSRC=ksrc,
                      say=f"patches/{name} does not apply: ")
    assert words in run.err
    (box.repo / "patches" / name).unlink()
    box.refused(BEGIN, KSRC=ksrc, say=f"series names {name}, but")
    (box.repo / "series").unlink()
    box.refused(BEGIN, KSRC=ksrc, say="no file 'series'")
    assert box.tip("applied") == first


def test_checkpatch_excuses_only_types_that_look_like_calls() -> None:
    text = "CHECK:SPACING: spaces\n#1: FILE: x.c:1:\n+\tFIXTURE_DATA(x) *y;\n"
    assert excused(text)
    assert not excused(text.replace("FIXTURE_DATA", "mul"))
    assert not excused(text.replace("CHECK:SPACING", "ERROR:CODE_INDENT"))
    text = ("WARNING:PREFER_DEFINED_ATTRIBUTE_MACRO: Prefer __printf(a, b)\n"
            "+#define __printf(a, b) __attribute__((format(printf, a, b)))\n")
    assert excused(text)
    assert not excused(text.replace("#define __printf(a, b)", "int f()"))


# --- build/tree and the export ---

class Repository:
    """A repository with the patches of COMMITS and a tree made from them."""

    def __init__(self, box: Box, ksrc: Path) -> None:
        self.box, self.ksrc = box, ksrc
        self.work = box.build / "tree"
        write(box.repo, {"selftests/README.md": ""})
        self.tree(say="branch work")
        for subject, body, files in COMMITS:
            commit(self.work, subject, body, files)
        self.export(say="exported 6 patches\n")
        self.tree(say="branch work")

    def tree(self, **more: object) -> None:
        self.box.done(TREE, KSRC=self.ksrc, **more)

    def export(self, *args: object, say: str = "") -> None:
        self.box.done(EXPORT, *args, say=say, KSRC=self.ksrc)

    def files(self) -> dict[str, bytes]:
        return {str(path.relative_to(self.box.repo)): path.read_bytes()
                for part in ("", "patches/", "selftests/**/",
                             "Documentation/**/")
                for path in self.box.repo.glob(part + "*")
                if path.is_file()}

    def conflict(self) -> None:
        commit(self.work, "x86: Once more", "", {IOPORT: "all new\n"})
        git(self.work, "rebase", "-q", "--onto", "base", "work~1",
            check=False)

    def merge(self) -> None:
        git(self.work, "checkout", "-q", "-b", "side", "work~1")
        commit(self.work, "side", "", {"mm/side.c": "side\n"})
        git(self.work, "checkout", "-q", "work")
        git(self.work, "merge", "-q", "--no-edit", "side")

    def uncommitted(self) -> None:
        write(self.work, {MMAP: "changed\n"})

    def no_subject(self) -> None:
        self.uncommitted()
        git(self.work, "commit", "-qa", "--allow-empty-message", "-m", "")

    def new_commit(self) -> None:
        commit(self.work, "mm: New", "", {"mm/new.c": "new\n"})

    def new_file(self) -> None:
        """Add a file only, to a tree that has to move."""
        write(self.work, {"mm/newer.c": "newer\n"})
        self.shout()

    def shout(self) -> None:
        """Change a patch by hand, in a way that applies."""
        path = self.box.repo / "patches/0006-mm-Say-more.patch"
        path.write_text(path.read_text().replace("+say();", "+shout();"))

    def check_fresh(self) -> None:
        assert git(self.work, "rev-parse", "HEAD") == self.box.tip("applied")
        assert git(self.work, "branch", "--show-current") == "work"
        assert git(self.work, "status", "--porcelain", "-uno") == ""


@pytest.fixture
def repository(box: Box, ksrc: Path) -> Repository:
    return Repository(box, ksrc)


def test_an_export_is_the_same_to_the_byte_everywhere(
        repository: Repository) -> None:
    box, before = repository.box, repository.files()
    names = sorted(path[8:] for path in before if path.startswith("patches/"))
    titles = ["Fixes: these need none of the others",
              "Tests and measurements",
              "sched_yield(): a tick", "Documents",
              "x86: I/O bitmaps", "Others"]
    assert before["series"].decode().splitlines()[3:] == [
        row for title, name in zip(titles, names, strict=True)
        for row in ("", f"# {title}", name)]
    assert before["selftests/x86/window.c"].decode() == COMMITS[1][2][WINDOW]
    assert [name for name in before if name.startswith("Doc")] == [
        "Documentation/arch/x86/iobitmap.rst"]
    text = before["patches/0001-x86-ioperm-Close-the-window.patch"].decode()
    assert text.startswith("From " + 40 * "0" + " Mon Sep 17 00:00:00 2001\n")
    assert git(box.temp, "version").split()[2] not in text
    # Not even a time stamp changes when nothing has.
    state = snapshot(box.repo)
    repository.export(say="exported 6 patches: nothing changed")
    repository.export("--check", say="in sync: 6 patches")
    assert snapshot(box.repo) == state
    box.build = box.temp / "build2"
    repository.tree(say="checking out build/tree")
    repository.export(say="nothing changed")


def test_an_export_writes_what_changed_and_removes_what_is_gone(
        repository: Repository) -> None:
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
    repository.tree()
    repository.export("--check", say="in sync")
    git(work, "reset", "-q", "--hard", "base")
    repository.export(say="removed: selftests/x86/window.c")
    assert sorted(repository.files()) == ["selftests/README.md", "series"]


def test_a_series_for_an_older_kernel(repository: Repository) -> None:
    """It shares what does the same there, also at an offset."""
    box, before = repository.box, repository.files()
    write(box.repo, {
        "tools/BASE": f"{BASE}6.1 linux-source-6.1 bookworm 6.1.2\n",
        "patches/6.1/series": "\n".join(sorted(
            path[8:] for path in before if path.startswith("patches/"))[:5])})
    old = make_kernel(box.temp / "old", "6 1 2")
    write(old, {YIELD: "more\n" + FILES[YIELD],
                MMAP: FILES[MMAP].replace("mmap 2 ", "mmap two ")})
    work = box.build / "6.1/tree"
    box.done(TREE, KSRC=old, KERNEL="6.1", say="applying 5 patches")
    commit(work, "mm: Say more", "More.", {
        MMAP: (work / MMAP).read_text().replace("/* mmap 3 */", "say();")})
    box.done(EXPORT, KSRC=old, KERNEL="6.1", say="exported 6 patches\n")
    box.done(EXPORT, "--check", KSRC=old, KERNEL="6.1",
             say="in sync: 6 patches")
    rows = (box.repo / "patches/6.1/series").read_text().splitlines()
    assert [row for row in rows if row[:1] not in ("", "#")] == [
        path[8:] for path in sorted(before) if path.startswith("patches/")
        ][:5] + ["6.1/0006-mm-Say-more.patch"]
    ports = box.repo / "patches/6.1"
    assert [path.name for path in ports.glob("*.patch")] == [
        "0006-mm-Say-more.patch"]
    # The first series has not seen any of that.
    assert before.items() <= repository.files().items()
    repository.export("--check", say="in sync: 6 patches")
    # Other words of a changelog are a patch of its own.
    git(work, "reset", "-q", "--hard", "HEAD~1")
    git(work, "commit", "-q", "--amend", "-m", "x86/ioport: Copy less\n\nNo.")
    box.done(EXPORT, KSRC=old, KERNEL="6.1", say="exported 5 patches\n")
    assert [path.name for path in ports.glob("*.patch")] == [
        "0005-x86-ioport-Copy-less.patch"]
    box.refused(TREE, KSRC=old, KERNEL="5.10", say="KERNEL=5.10: the series "
                "is for 7.3, which needs no KERNEL=, and for 6.1\n")


def test_check_tells_what_was_edited_by_hand(
        repository: Repository) -> None:
    box, patch = repository.box, "patches/0006-mm-Say-more.patch"
    files = repository.files()
    write(box.repo, {name: files[name] + b"# mine\n"
                     for name in (patch, "series")} | {
        "patches/0007-more.patch": "more\n", "Documentation/old.rst": "old\n",
        "Documentation/own.md": "mine\n"})
    (box.repo / "Documentation/arch/x86/iobitmap.rst").unlink()
    before = snapshot(box.repo)
    box.refused(EXPORT, "--check", KSRC=repository.ksrc, say=f"""
  Documentation/arch/x86/iobitmap.rst is missing
  Documentation/old.rst is not exported
  {patch} differs
  patches/0007-more.patch is not exported
  series differs
""")
    assert snapshot(box.repo) == before


def test_the_tree_follows_the_patches(repository: Repository) -> None:
    before = snapshot(repository.work)
    repository.tree(say="branch work")
    assert snapshot(repository.work) == before
    repository.shout()
    repository.box.done(TREE, "--is-exported")
    # What git leaves that is ended between two files.
    repository.box.stub_git(" -B work ", f"echo half >{MMAP}; rm Kconfig; "
                            + repository.box.hang)
    repository.box.interrupted(TREE, KSRC=repository.ksrc)
    repository.box.unstub("git")
    repository.tree(say="moving build/tree")
    repository.check_fresh()
    assert "shout();" in (repository.work / MMAP).read_text()


@pytest.mark.parametrize("change, export, tree", (
    (Repository.uncommitted, "uncommitted changes", f"M {MMAP}"),
    (Repository.no_subject, "has no subject", "has no subject"),
    (Repository.merge, "has a merge", "has a merge"),
    (Repository.conflict, "in the middle of a rebase", "UU"),
    (lambda found: commit(found.work, "mm: Nothing"), "changes nothing",
     "changes nothing"),
    (lambda found: (git(found.work, "checkout", "-q", "--orphan", "other"),
                    commit(found.work, "Other")), "not on top of 'base'",
     "patches/0001-Other.patch is missing"),
    (Repository.new_commit, "", "patches/0007-mm-New.patch is missing"),
    (Repository.new_file, "", "?? mm/newer.c")))
def test_work_is_exported_or_kept_without_force(
        repository: Repository, change, export: str, tree: str) -> None:
    change(repository)
    box = repository.box
    before = snapshot(repository.work), snapshot(box.repo)
    if export:
        box.refused(EXPORT, say=export)
    for args in ((), ("--is-exported",)):
        box.refused(TREE, *args, KSRC=repository.ksrc, say=tree)
    assert (snapshot(repository.work), snapshot(box.repo)) == before
    repository.tree(FORCE=1, say="moving build/tree")
    repository.check_fresh()
    repository.export(say="exported 6 patches")
    (repository.work / ".git").unlink()
    box.refused(EXPORT, say="run 'make tree'")


@pytest.mark.parametrize("mail", (
    "", "Subject: [PATCH] x86/ioperm: Nothing\n\n---\n\n"))
def test_an_empty_commit_is_refused(tmp_path: Path, mail: str) -> None:
    write(tmp_path, {"0001-nothing.patch": mail})
    with pytest.raises(Fail, match="0001-nothing.patch changes nothing"):
        heading(tmp_path / "0001-nothing.patch")


@pytest.mark.parametrize("sig", (signal.SIGINT, signal.SIGKILL))
@pytest.mark.parametrize("word", (
    " init ", " add -A ", " commit-tree ", " sparse-checkout ", "/0003-",
    " refs/heads/applied ", " -B work ", " worktree move "))
def test_an_interruption_anywhere_and_once_more(
        box: Box, ksrc: Path, patches: dict[str, bytes], word: str,
        sig: signal.Signals) -> None:
    box.set_patches(patches)
    box.stub_git(word, box.hang, after=word != " add -A ")
    box.interrupted(TREE, KSRC=ksrc, sig=sig)
    box.unstub("git")
    box.done(TREE, KSRC=ksrc, say="branch work")
    box.check_nothing_left()
    work = box.build / "tree"
    assert git(work, "rev-parse", "HEAD") == box.tip("applied")
    assert git(work, "status", "--porcelain") == ""


# --- another base ---

def test_the_series_on_another_tree(box: Box,
                                    patches: dict[str, bytes]) -> None:
    box.set_patches(patches)
    newer = make_clone(box.temp / "newer", "7 4 0")
    before = snapshot(newer)
    box.done(REBASE, BASE=newer, say="6 apply, 0 only with a three-way "
             "merge, 0 fail")
    assert snapshot(newer) == before
    box.check_nothing_left()
    git(newer, "rm", "-q", MMAP)
    commit(newer, "Newer", files={
        IOPORT: FILES[IOPORT].replace("ioport 10 ", "other "),
        YIELD: FILES[YIELD].replace("/* syscalls 17 */", "/* new */\n\n"),
        WINDOW: "other\n"})
    run = box.run(REBASE, BASE=newer)
    assert (run.status, run.err) == (1, "")
    rows = [row.strip() for row in run.out.splitlines()
            if "done in" not in row]
    assert rows[rows.index(next(row for row in rows if "FAIL" in row)):] == [
        "FAIL    0001-x86-ioperm-Close-the-window.patch",
        f"{IOPORT}: hunk @@ -7,7 +7,7 @@",
        "FAIL    0002-selftests-x86-Add-a-test-of-the-window.patch",
        f"{WINDOW}: already exists", "may follow from the failure above",
        "merged  0003-sched-Yield-one-tick.patch", YIELD,
        "ok      0004-Documentation-Describe-the-I-O-bitmap.patch",
        "ok      0005-x86-ioport-Copy-less.patch",
        "FAIL    0006-mm-Say-more.patch", f"{MMAP}: No such file",
        "may follow from the failure above",
        "2 apply, 1 only with a three-way merge, 3 fail",
        "how to take a new base: CONTRIBUTING.md"]
    box.check_nothing_left()
    box.done(REBASE, "--onto", "HEAD~1", BASE=newer, say="6 apply")
    shutil.rmtree(newer / ".git")
    box.stub_git("/0003-", box.hang)
    box.interrupted(REBASE, BASE=newer)


def test_a_patch_is_applied_as_far_as_it_fits(box: Box) -> None:
    clone = make_clone(box.temp / "two")
    nine = {MMAP: FILES[MMAP].replace("mmap 9 ", "nine ")}
    commit(clone, "x86: Both", "", nine | {IOPORT: CLOSED})
    commit(clone, "mm: Again", "", {MMAP: nine[MMAP].replace("nine ", "9 ")})
    names = git(clone, "format-patch", "-o", box.temp, "-2").split()
    box.set_patches({Path(name).name: Path(name).read_bytes()
                     for name in names})
    commit(clone, "Newer", files=FILES | {IOPORT: "all new\n"})
    run = box.run(REBASE, BASE=clone)
    assert "1 apply, 0 only with a three-way merge, 1 fail" in run.out, run


def test_a_base_that_is_none(box: Box) -> None:
    make_clone(box.temp / "linux")
    for args, base, words in (
            ((), "", "give BASE=path"), ((), "/none", "/none is not a folder"),
            ((), "tools", "BASE=tools is not a Linux source tree"),
            (("--onto", "nowhere"), "../linux", "top of its nowhere")):
        box.refused(REBASE, *args, BASE=base, say=words)
