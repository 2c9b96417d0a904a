# SPDX-License-Identifier: GPL-2.0-only
"""What the tests share: fake kernels, and the fixture `box`, in which a job
runs as a user runs it, with a build folder of its own."""

import os
import re
import shutil
import signal
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path
from types import ModuleType
from typing import NamedTuple

import pytest

ROOT = Path(__file__).resolve().parent.parent.parent
sys.path.insert(0, str(ROOT))
# Ignored in what a shell starts in the background, and inherited from there.
signal.signal(signal.SIGINT, signal.default_int_handler)

from tools import core  # noqa: E402

BASE = "VERSION PACKAGE SUITE TESTED TESTED_PACKAGE\n" \
    "7.3 linux-source-7.3 trixie-backports 7.3.4 7.3.4-1\n"
Files = dict[str, str | bytes]  # by name
Patches = dict[str, bytes]


def lines(word: str, count: int = 40) -> str:
    return "".join(f"/* {word} {n} */\n" for n in range(1, count + 1))


IOPORT, MMAP = "arch/x86/kernel/ioport.c", "mm/mmap.c"
YIELD = "kernel/sched/syscalls.c"
WINDOW = "tools/testing/selftests/x86/window.c"
FILES = {"Kconfig": "# SPDX\n", ".gitignore": "*.o\n",
         IOPORT: lines("ioport"), YIELD: lines("syscalls"),
         MMAP: lines("mmap"), "Documentation/index.rst": lines("index", 5)}
CLOSED = FILES[IOPORT].replace("/* ioport 10 */", "closed();")
# One commit for each heading of the series file.
COMMITS = {
    "x86/ioperm: Close the window\n\nFixes: 0123456789ab (\"x86: Open it\")":
        {IOPORT: CLOSED},
    "selftests/x86: Add a test of the window": {WINDOW: lines("window", 12)},
    "sched: Yield one tick":
        {YIELD: FILES[YIELD].replace("/* syscalls 20 */", "tick();")},
    "Documentation: Describe the I/O bitmap":
        {"Documentation/arch/x86/iobitmap.rst": "I/O bitmap\n==========\n"},
    "x86/ioport: Copy less\n\nFaster.":
        {IOPORT: CLOSED.replace("ioport 30", "ioport thirty")},
    "mm: Say more\n\nMore.":
        {MMAP: FILES[MMAP].replace("/* mmap 3 */", "say();")}}


def environment(**more: object) -> dict[str, str]:
    return {"PATH": os.environ["PATH"], "LC_ALL": "C.UTF-8",
            "HOME": "/dev/null", "GIT_CONFIG_NOSYSTEM": "1",
            **{name: str(value) for name, value in more.items()}}


def git(place: Path, *args: object) -> str:
    """Run git as a user who has a name; return its stdout."""
    when = "2026-02-03T04:05:06+0000"
    done = subprocess.run(
        ["git", "-c", "safe.directory=*", "-c", "user.name=A Tester", "-c",
         "user.email=tester@example.org", *map(str, args)], cwd=place,
        env=environment(GIT_CONFIG_GLOBAL="/dev/null", GIT_AUTHOR_DATE=when,
                        GIT_COMMITTER_DATE=when),
        capture_output=True, text=True)
    assert not done.returncode, done.stderr + done.stdout
    return done.stdout.strip()


def write(place: Path, files: Files) -> None:
    for name, text in files.items():
        path = place / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(text if isinstance(text, bytes) else text.encode())


def write_program(path: Path, text: str) -> Path:
    """Write a program, which is a script of the shell."""
    write(path.parent, {path.name: "#!/bin/sh\n" + text})
    path.chmod(0o755)
    return path


def make_kernel(place: Path, version: str = "7 3 4") -> Path:
    """Write a plain kernel tree; version: words of its Makefile."""
    number, level, sublevel, *extra = version.split()
    write(place, {**FILES, "Makefile":
                  f"VERSION = {number}\nPATCHLEVEL = {level}\n"
                  f"SUBLEVEL = {sublevel}\nEXTRAVERSION ={''.join(extra)}\n"
                  "NAME = Test\n"})
    return place


def commit(place: Path, message: str, files: Files = {}) -> None:
    write(place, files)
    git(place, "add", "-A", ".")
    git(place, "commit", "-q", "--allow-empty", "-m", message)


def make_clone(place: Path, version: str = "7 3 4") -> Path:
    make_kernel(place, version)
    git(place, "init", "-q", "-b", "master")
    commit(place, "Linux")
    return place


def snapshot(place: Path) -> dict[Path, tuple]:
    """Return what is below a folder: contents, modes, owners, times."""
    return {path: (state.st_mode, state.st_uid, state.st_mtime_ns,
                   state.st_ino, path.is_file() and path.read_bytes())
            for path in [place, *place.rglob("*")] for state in [path.lstat()]}


def heed_signals() -> None:
    """Be as a job in a terminal: nohup and & let signals be ignored."""
    for sig in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP):
        signal.signal(sig, signal.SIG_DFL)


# How a process ended.
Run = NamedTuple("Run", [("status", int), ("out", str), ("err", str)])


class Box:
    """A copy of the repository without patches, in a temporary folder with a
    build folder and stubs."""

    def __init__(self, temp: Path) -> None:
        self.temp, self.bin = temp, temp / "bin"
        self.repo, self.build = temp / "repo", temp / "build"
        self.bin.mkdir()
        shutil.copytree(ROOT / "tools", self.repo / "tools",
                        ignore=shutil.ignore_patterns("__pycache__", "tests",
                                                      "*.patch"))
        shutil.copy(ROOT / "Makefile", self.repo)
        write(self.repo, {"tools/BASE": BASE})
        self.set_patches({})

    def set_patches(self, patches: Patches) -> None:
        """Replace patches/ and series of the repository."""
        shutil.rmtree(self.repo / "patches", ignore_errors=True)
        write(self.repo, {
            "series": "# A heading.\n\n" + "\n".join(sorted(patches)),
            **{f"patches/{name}": patches[name] for name in patches}})

    def stub(self, name: str, text: str) -> None:
        write_program(self.bin / name, text)

    def start(self, job: str, *args: object, **env: object
              ) -> subprocess.Popen:
        """Start a job, make, a shell script of tools/ or lines of code."""
        command = [sys.executable, "-c", job] if "\n" in job else \
            [str(self.repo / job)] if "/" in job else \
            [job] if job == "make" else [sys.executable, "-m", "tools", job]
        more = {"SERIES_BUILD_DIR": self.build, "TMPDIR": self.temp,
                "PYTHONPATH": self.repo, "PYTHONDONTWRITEBYTECODE": 1,
                "PATH": f"{self.bin}:{os.environ['PATH']}"}
        return subprocess.Popen(
            [*command, *map(str, args)], cwd=self.repo, text=True,
            env=environment(**more | env), stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE, stderr=subprocess.PIPE,
            start_new_session=True, preexec_fn=heed_signals)

    @staticmethod
    def end(process: subprocess.Popen) -> Run:
        try:
            out, err = process.communicate(timeout=120)
        finally:
            if process.returncode is None:
                os.killpg(process.pid, signal.SIGKILL)
        return Run(process.returncode, out, err)

    def run(self, job: str, *args: object, **env: object) -> Run:
        return self.end(self.start(job, *args, **env))

    def interrupted(self, job: str, sig: signal.Signals = signal.SIGINT,
                    after: str = "", **env: object) -> Run:
        """Send a signal when a stub has written to the file 'hangs', or, to
        the job alone, to the file `after`: it ends, all is clean."""
        hangs = self.temp / (after or "hangs")
        hangs.unlink(missing_ok=True)
        process = self.start(job, **env)
        wait_for(hangs)
        (os.kill if after else os.killpg)(process.pid, sig)
        run = self.end(process)
        if sig != signal.SIGKILL:
            assert run.status == 130, run
            assert re.fullmatch("interrupted:.*\n", run.err), run
            self.check_nothing_left()
        return run

    def done(self, job: str, *args: object, say: str = "",
             **env: object) -> Run:
        """Run a job, which must end well and say some words."""
        run = self.run(job, *args, **env)
        assert (run.status, run.err) == (0, "") and say in run.out, run
        return run

    def refused(self, job: str, *args: object, say: str = "",
                **env: object) -> Run:
        """Run a job, which must end with one clear error."""
        run = self.run(job, *args, **env)
        assert run.status == 1 and say in run.err, run
        assert re.findall("^(?:error:|Traceback|  File)", run.err, re.M) == [
            "error:"] and run.err.startswith("error:"), run
        self.check_nothing_left()
        return run

    def check_nothing_left(self) -> None:
        """No partial file, temporary folder or stale work tree is left."""
        assert [path for pattern in (
            "*.partial", "tmp/*", "linux.git/**/*.lock",
            "linux.git/worktrees/*") for path in self.build.glob(pattern)
            if path.name != "tree"] == []


def left(place: Path) -> list[int]:
    """Return the processes that have a place in their environment."""
    found = subprocess.getoutput(f"grep -ls '{place}' /proc/[0-9]*/environ")
    return [int(row.split("/")[2]) for row in found.split()]


def wait_until(what: str, condition: Callable[[], bool],
               seconds: float = 60) -> None:
    end = time.monotonic() + seconds
    while not condition():
        assert time.monotonic() < end, f"not in {seconds} s: {what}"
        time.sleep(0.02)


def check_none_left(place: Path) -> None:
    """They have ended, or soon do; if not, they are killed."""
    try:
        wait_until("they end", lambda: not left(place), 8)
    finally:
        for pid in left(place):
            os.kill(pid, signal.SIGKILL)


def wait_for(path: Path) -> None:
    wait_until(f"there is {path}", lambda: path.exists()
               and path.read_text() != "")


def check_gone(record: Path) -> None:
    """The process whose number a file holds has ended, or soon does."""
    state = Path(f"/proc/{int(record.read_text())}/stat")
    # What is left of a process that nobody waits for is Z.
    wait_until(f"{record.name} ends", lambda: not state.exists()
               or ") Z " in state.read_text())


@pytest.fixture
def replace(monkeypatch: pytest.MonkeyPatch) -> Callable[..., None]:
    """Replace names of a module for one test: replace(module, name=new)."""
    def replace(module: ModuleType, **names: object) -> None:
        for name, new in names.items():
            monkeypatch.setattr(module, name, new)

    return replace


@pytest.fixture
def kernel(tmp_path: Path, replace: Callable[..., None]) -> core.Kernel:
    """The first kernel, with a build folder of its own."""
    replace(core, BUILD=tmp_path)
    return core.kernel_of("")


@pytest.fixture
def box(tmp_path: Path) -> Box:
    return Box(tmp_path.resolve())


@pytest.fixture(scope="session")
def patches(tmp_path_factory: pytest.TempPathFactory) -> Patches:
    """What git format-patch alone makes of COMMITS."""
    clone = make_clone(tmp_path_factory.mktemp("patched"))
    for message, files in COMMITS.items():
        commit(clone, message, files)
    git(clone, "format-patch", "-q", "--no-signature", "--no-numbered",
        f"-{len(COMMITS)}")
    return {path.name: path.read_bytes() for path in clone.glob("*.patch")}
