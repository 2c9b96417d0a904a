# SPDX-License-Identifier: GPL-2.0-only
"""What the tests share: fake kernels, and the fixture `box`, in which a
module of tools/ runs as a user runs it, with a build folder of its own."""

import os
import shutil
import signal
import stat
import subprocess
import sys
import time
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from types import ModuleType
from typing import NamedTuple

import pytest

ROOT = Path(__file__).resolve().parent.parent.parent
sys.path.insert(0, str(ROOT))
# Ignored in what a shell starts in the background, and inherited from there.
signal.signal(signal.SIGINT, signal.default_int_handler)

# Read by every Python that a test starts: FAKE_FREE GiB of disk are free.
SITECUSTOMIZE = """\
import os, shutil, types
free = int(os.environ.get("FAKE_FREE", 100)) * 2**30
shutil.disk_usage = lambda path: types.SimpleNamespace(free=free)
"""
BASE = """\
VERSION PACKAGE SUITE TESTED
7.3 linux-source-7.3 trixie-backports 7.3.4
"""

Patches = dict[str, bytes]  # by name


def lines(word: str, count: int = 40) -> str:
    return "".join(f"/* {word} {n} */\n" for n in range(1, count + 1))


IOPORT, MMAP = "arch/x86/kernel/ioport.c", "mm/mmap.c"
YIELD = "kernel/sched/syscalls.c"
FILES = {"Kconfig": "# SPDX\n", ".gitignore": "*.o\n",
         IOPORT: lines("ioport"), YIELD: lines("syscalls"),
         MMAP: lines("mmap"), "Documentation/index.rst": lines("index", 5)}
CLOSED = FILES[IOPORT].replace("/* ioport 10 */", "closed();")
# One commit for each heading of the series file: subject, body, files.
COMMITS = (
    ("x86/ioperm: Close the window",
     "Wrong.\n\nFixes: 0123456789ab (\"x86: Open the window\")",
     {IOPORT: CLOSED}),
    ("selftests/x86: Add a test of the window", "It opens it.",
     {"tools/testing/selftests/x86/window.c": lines("window", 12)}),
    ("sched: Yield one tick", "Why.",
     {YIELD: FILES[YIELD].replace("/* syscalls 20 */", "tick();")}),
    ("Documentation: Describe the I/O bitmap", "How it works.",
     {"Documentation/arch/x86/iobitmap.rst": "I/O bitmap\n==========\n"}),
    ("x86/ioport: Copy less", "Faster.",
     {IOPORT: CLOSED.replace("ioport 30", "ioport thirty")}),
    ("mm: Say more", "More.",
     {MMAP: FILES[MMAP].replace("/* mmap 3 */", "say();")}))


def environment(**more: object) -> dict[str, str]:
    return {"PATH": os.environ["PATH"], "LC_ALL": "C.UTF-8",
            "HOME": "/dev/null", "GIT_CONFIG_NOSYSTEM": "1",
            **{name: str(value) for name, value in more.items()}}


def git(place: Path, *args: object) -> str:
    """Run git as a user who has a name; return its stdout."""
    who = {f"GIT_{role}_{part}": value for role in ("AUTHOR", "COMMITTER")
           for part, value in (("NAME", "A Tester"),
                               ("EMAIL", "tester@example.org"),
                               ("DATE", "2026-02-03T04:05:06+0000"))}
    done = subprocess.run(
        ["git", "-c", "safe.directory=*", *map(str, args)], cwd=place,
        env=environment(GIT_CONFIG_GLOBAL="/dev/null", **who),
        capture_output=True, text=True)
    assert not done.returncode, done.stderr + done.stdout
    return done.stdout.strip()


def write(place: Path, files: dict[str, str | bytes]) -> None:
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


def commit(place: Path, subject: str, body: str = "",
           files: dict[str, str | bytes] | None = None) -> None:
    write(place, files or {})
    git(place, "add", "-A", ".")
    git(place, "commit", "-q", "--allow-empty", "-m", f"{subject}\n\n{body}")


def make_clone(place: Path, version: str = "7 3 4") -> Path:
    make_kernel(place, version)
    git(place, "init", "-q", "-b", "master")
    commit(place, "Linux")
    return place


def snapshot(place: Path) -> dict[str, tuple]:
    """Return what is below a folder: contents, modes, owners, times."""
    found = {}
    for path in [place, *sorted(place.rglob("*"))]:
        state = path.lstat()
        content = path.read_bytes() if stat.S_ISREG(state.st_mode) else None
        found[str(path)] = (state.st_mode, state.st_uid, state.st_mtime_ns,
                            state.st_ino, content)
    return found


def heed_signals() -> None:
    """Be as a job in a terminal: nohup and & let signals be ignored."""
    for sig in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP):
        signal.signal(sig, signal.SIG_DFL)


class Run(NamedTuple):
    """How a process ended."""

    status: int
    out: str
    err: str


@dataclass
class Box:
    """A temporary folder with a repository, a build folder and stubs."""

    temp: Path
    repo: Path
    build: Path
    bin: Path

    def set_patches(self, patches: Patches) -> None:
        """Replace patches/ and series of the repository."""
        shutil.rmtree(self.repo / "patches", ignore_errors=True)
        (self.repo / "patches").mkdir()
        write(self.repo / "patches", patches)
        write(self.repo, {"series": "# A heading.\n\n"
                          + "\n".join(sorted(patches))})

    def stub(self, name: str, text: str) -> None:
        write_program(self.bin / name, text)

    def stub_git(self, word: str, do: str, after: bool = False) -> None:
        """Let git do something before, or after, it works with a word."""
        real = shutil.which("git")
        self.stub("git", f'case " $* " in *"{word}"*)\n'
                  + (f'"{real}" "$@"; {do}' if after else do)
                  + f';; esac\nexec "{real}" "$@"\n')

    @property
    def hang(self) -> str:
        """What a stub does until interrupt() sends its signal."""
        return f'echo $$ >"{self.temp}/hangs"; sleep 60'

    def start(self, module: str, *args: object, **env: object
              ) -> subprocess.Popen:
        """Start a module, a shell script of tools/ or some lines of code."""
        command = [sys.executable, "-c", module] if "\n" in module else \
            [str(self.repo / module)] if "/" in module else \
            [module] if module == "make" else \
            [sys.executable, "-m", module]
        more = {"SERIES_BUILD_DIR": self.build, "TMPDIR": self.temp,
                "PYTHONPATH": f"{self.temp}/site:{self.repo}",
                "PYTHONDONTWRITEBYTECODE": 1,
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

    def run(self, module: str, *args: object, **env: object) -> Run:
        return self.end(self.start(module, *args, **env))

    def interrupted(self, module: str, *args: object,
                    sig: signal.Signals = signal.SIGINT, after: str = "",
                    **env: object) -> Run:
        """Send a signal when a stub hangs: the module ends, all is clean.

        after: a file that tells when; the signal is to the job alone.
        """
        hangs = self.temp / (after or "hangs")
        hangs.unlink(missing_ok=True)
        process = self.start(module, *args, **env)
        wait_for(hangs)
        (os.kill if after else os.killpg)(process.pid, sig)
        run = self.end(process)
        if sig != signal.SIGKILL:
            assert run.status == 130, run
            assert run.err.startswith("interrupted:"), run
            assert run.err.count("\n") == 1, run
            self.check_nothing_left()
        return run

    def done(self, module: str, *args: object, say: str = "",
             **env: object) -> Run:
        """Run a module, which must end well and say some words."""
        run = self.run(module, *args, **env)
        assert (run.status, run.err) == (0, ""), run
        assert say in run.out, run
        return run

    def refused(self, module: str, *args: object, say: str = "",
                **env: object) -> Run:
        """Run a module, which must end with one clear error."""
        run = self.run(module, *args, **env)
        assert run.status == 1, run
        assert run.err.startswith("error: "), run
        assert "\nerror:" not in run.err and "Traceback" not in run.err, run
        assert say in run.err, run
        self.check_nothing_left()
        return run

    def check_nothing_left(self) -> None:
        """No partial file, temporary folder or stale work tree is left."""
        left = [*self.build.glob("*.partial"), *self.build.glob("tmp/*"),
                *self.build.glob("linux.git/**/*.lock"),
                *self.build.glob("linux.git/worktrees/*")]
        assert [path for path in left if path.name != "tree"] == []

    def tip(self, name: str) -> str:
        return git(self.build / "linux.git", "rev-parse", name)


def running(*words: str) -> int:
    """Count the processes whose command has these words."""
    return subprocess.run(
        ["sh", "-c", "cat /proc/[0-9]*/cmdline"],
        capture_output=True).stdout.count("\0".join(words).encode())


def left(place: Path) -> list[int]:
    """Return the processes that have a place in their environment."""
    found = []
    for path in Path("/proc").glob("[0-9]*/environ"):
        with suppress(OSError):
            if str(place).encode() in path.read_bytes():
                found.append(int(path.parent.name))
    return found


def check_none_left(place: Path) -> None:
    """They have ended, or soon do; if not, they are killed."""
    end = time.monotonic() + 8
    while (pids := left(place)) and time.monotonic() < end:
        time.sleep(0.05)
    for pid in pids:
        subprocess.run(["kill", "-9", str(pid)])
    assert not pids


def wait_until(what: str, condition: Callable[[], bool]) -> None:
    end = time.monotonic() + 60
    while not condition():
        assert time.monotonic() < end, f"not in a minute: {what}"
        time.sleep(0.02)


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
def box(tmp_path: Path) -> Box:
    """A copy of the repository without patches, in a temporary folder."""
    place = tmp_path.resolve()
    found = Box(place, place / "repo", place / "build", place / "bin")
    found.bin.mkdir()
    shutil.copytree(ROOT / "tools", found.repo / "tools",
                    ignore=shutil.ignore_patterns("__pycache__", "tests",
                                                  "*.patch"))
    write(found.repo, {"tools/BASE": BASE})
    write(place / "site", {"sitecustomize.py": SITECUSTOMIZE})
    found.set_patches({})
    return found


@pytest.fixture(scope="session")
def patches(tmp_path_factory: pytest.TempPathFactory) -> Patches:
    """What git format-patch alone makes of COMMITS."""
    clone = make_clone(tmp_path_factory.mktemp("patched"))
    for subject, body, files in COMMITS:
        commit(clone, subject, body, files)
    out = tmp_path_factory.mktemp("patches")
    git(clone, "format-patch", "--no-signature", "--no-numbered", "-o", out,
        f"-{len(COMMITS)}")
    return {path.name: path.read_bytes() for path in out.iterdir()}
