# SPDX-License-Identifier: GPL-2.0-only
"""Kernels, paths, errors, progress, commands and files: what every job uses.

A job raises Fail for anything the user can mend; run_main() turns Fail, Ctrl-C
and a full disk into one message.
"""

import contextlib
import errno
import fcntl
import hashlib
import json
import os
import re
import shutil
import signal
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Callable, Iterable, Iterator, Sequence
from concurrent.futures import FIRST_COMPLETED, ThreadPoolExecutor, wait
from dataclasses import dataclass
from pathlib import Path
from typing import Any, NoReturn, TypeVar

T = TypeVar("T")

ROOT = Path(__file__).resolve().parent.parent
PATCHES = ROOT / "patches"
CONFIGS = ROOT / "tools/configs"
BUILD = Path(os.environ.get("SERIES_BUILD_DIR") or ROOT / "build").resolve()
# What this job may use: os.cpu_count() is that of the machine.
CPUS = len(os.sched_getaffinity(0))
# What is compared: the base, and the series on it.
SIDES = ("base", "series")

# A commit of the same content must have the same name on every machine.
GIT_IDENTITY = {
    "GIT_CONFIG_GLOBAL": str(ROOT / "tools/gitconfig"),
    "GIT_CONFIG_SYSTEM": "/dev/null",
    "GIT_COMMITTER_NAME": "series",
    "GIT_COMMITTER_EMAIL": "series@localhost",
    "GIT_TERMINAL_PROMPT": "0",
}
# A git hook or `git rebase --exec` sets more, and every git started below
# would work on the repository that they name.
for _name in [name for name in os.environ if name.startswith("GIT_")]:
    del os.environ[_name]
# What programs say is read in English; tests also run as other users.
os.environ["LC_ALL"] = "C"
os.umask(0o022)

_stopping = threading.Event()  # ends what run_logged() runs
_polling = threading.local()  # .now: this thread looks at _stopping


class Fail(Exception):
    """An error that the user can mend; its text says how."""


def say(text: str) -> None:
    """Print one line at once; nothing in a thread of at_once()."""
    if threading.current_thread() is threading.main_thread():
        print(text, flush=True)


def duration(seconds: float) -> str:
    """Format seconds as '12 s' or '3 min 04 s'."""
    minutes, rest = divmod(round(seconds), 60)
    return f"{minutes} min {rest:02d} s" if minutes else f"{rest} s"


@contextlib.contextmanager
def stage(title: str) -> Iterator[None]:
    """Announce a stage, and say how long it took when it is done."""
    say(f"==> {title}")
    start = time.monotonic()
    yield
    took = time.monotonic() - start
    if took >= 1:
        say(f"    done in {duration(took)}")


def need_space(path: Path, gib: float, what: str) -> None:
    """Raise Fail, before a long job, unless gib GiB are free at path."""
    while not path.exists():
        path = path.parent
    free = shutil.disk_usage(path).free / 2**30
    if free < gib:
        raise Fail(f"{what} needs {gib} GiB of disk space below {path}, "
                   f"{free:.1f} GiB are free: make room and run it again")


def need_tool(name: str, package: str) -> None:
    """Raise Fail unless the command is there; package provides it."""
    if not shutil.which(name):
        raise Fail(f"the command '{name}' is missing: "
                   f"apt-get install {package}")


def shown_path(path: Path) -> str:
    """Return a path as a user would type it from the top folder."""
    return str(path.relative_to(ROOT) if path.is_relative_to(ROOT) else path)


def tail(log: Path, lines: int = 20) -> str:
    """Return the last lines of a log, blank ones left out, indented."""
    text = log.read_text(errors="replace") if log.exists() else ""
    # A console writes carriage returns of its own.
    rows = [row.rstrip() for row in re.split("[\r\n]+", text) if row.strip()]
    return "\n".join("    | " + row for row in rows[-lines:])[-8000:]


def end_group(process: subprocess.Popen) -> None:
    """End a child and all that it started, gently first."""
    for sig in (signal.SIGTERM, signal.SIGKILL):
        with contextlib.suppress(ProcessLookupError):
            os.killpg(process.pid, sig)
        with contextlib.suppress(subprocess.TimeoutExpired):
            process.wait(timeout=5)


def _interrupt(*_: Any) -> None:
    """Handle a signal: end this job, once, and what it runs."""
    if not _stopping.is_set():
        _stopping.set()
        if not getattr(_polling, "now", False):
            raise KeyboardInterrupt


def _share() -> float:
    """Return the part of a processor that each running task of this machine
    has, 0.1 to 1; this process has asked, so it is one of them."""
    running = Path("/proc/loadavg").read_text().split()[3].partition("/")[0]
    # Of the whole machine, as its load is.
    return max(0.1, min(1, (os.cpu_count() or 1) / max(int(running) - 1, 1)))


def run_logged(command: list[str], log: Path, timeout: float | None = None,
               cwd: Path | None = None, env: dict[str, str] | None = None,
               check: bool = True, what: str | None = None,
               progress: Callable[[Path], str] | None = None) -> int | None:
    """Run a long command with its output in a log and a sign of life.

    Returns the exit status, or None when it was ended, with its children,
    after timeout seconds, up to ten times as many where more tasks run than
    there are processors; with check, both raise Fail with the log's last
    lines.  progress makes a short text from the log, shown beside the time.
    """
    log.parent.mkdir(parents=True, exist_ok=True)
    process = status = None
    start = shown = now = time.monotonic()
    spent = 0.0
    tty = sys.stdout.isatty() and os.environ.get("TERM", "dumb") != "dumb"
    # A signal while the child is made must not lose it.
    _polling.now = True
    try:
        if not _stopping.is_set():
            with open(log, "wb") as out:
                process = subprocess.Popen(
                    command, stdout=out, stderr=subprocess.STDOUT,
                    stdin=subprocess.DEVNULL, cwd=cwd, env=env,
                    start_new_session=True)
        while status is None and not _stopping.is_set() and (
                not timeout or spent <= timeout):
            with contextlib.suppress(subprocess.TimeoutExpired):
                status = process.wait(timeout=0.5)
            before, now = now, time.monotonic()
            spent += (now - before) * _share()
            if now - shown >= (2 if tty else 60):
                shown, note = now, ""
                # A file that it looks at may go.
                with contextlib.suppress(OSError):
                    note = progress(log) if progress else ""
                text = f"    {duration(shown - start)} {note}".rstrip()
                # On a terminal, the next line overwrites this one.
                say(f"\033[K{text}\033[A" if tty else text)
    finally:
        if process and status is None:
            end_group(process)
        _polling.now = False
    if _stopping.is_set():
        raise KeyboardInterrupt
    if check and status != 0:
        why = (f"did not end within {duration(timeout)}" if status is None
               else f"failed with status {status}")
        raise Fail(f"{what or command[0]} {why}; the end of {shown_path(log)}:"
                   f"\n{tail(log)}")
    return status


def at_once(work: dict[str, Callable[[], T]], jobs: int = 0,
            go_on: bool = False) -> dict[str, Any]:
    """Do named pieces of work in threads, by default one for each processor;
    say when each begins and ends; return what they return.

    The first error, and Ctrl-C, ends what the others run by run_logged();
    with go_on, a Fail is the value of its piece and ends none.
    """
    begun: dict[str, float] = {}

    def do(name: str) -> T | Fail:
        if _stopping.is_set():
            raise KeyboardInterrupt
        begun[name] = start = time.monotonic()
        # One write, or the lines of two threads mix.
        print(f"==> {name}\n", end="", flush=True)
        try:
            return work[name]()
        except Fail as failure:
            if not go_on:
                raise
            print(f"    {name}: FAILED: {failure}\n", end="", flush=True)
            return failure
        finally:
            took = duration(time.monotonic() - start)
            print(f"    {name}: {took}\n", end="", flush=True)
            del begun[name]

    jobs = jobs or CPUS
    if jobs == 1:
        # In this thread, where a command shows its progress.
        return {name: do(name) for name in work}
    try:
        with ThreadPoolExecutor(jobs) as pool:
            try:
                done = {name: pool.submit(do, name) for name in work}
                left = {*done.values()}
                while left:
                    ended, left = wait(left, 60, FIRST_COMPLETED)
                    for future in ended:
                        future.result()
                    if not ended:
                        say("    " + ", ".join(
                            f"{name} {duration(time.monotonic() - start)}"
                            for name, start in list(begun.items())))
            except BaseException:
                # What has not begun does not, what runs ends.
                _stopping.set()
                raise
    finally:
        # By now all threads have ended.
        _stopping.clear()
    return {name: future.result() for name, future in done.items()}


def bound(command: Sequence[str]) -> list[str]:
    """Return a command that ends with the thread which starts it, also when
    that is killed outright."""
    return ["setpriv", "--pdeathsig", "TERM", "--", *command]


def run_git(*args: Any, cwd: Path | None = None,
            env: dict[str, str] | None = None,
            data: bytes | None = None) -> subprocess.CompletedProcess:
    """Run git without the user's configuration; the output is bytes."""
    command = ["git", *map(str, args)]
    late = _stopping.is_set()
    # A signal while git is started must not lose it.
    _polling.now = True
    with subprocess.Popen(
            command, cwd=cwd, env=os.environ | GIT_IDENTITY | (env or {}),
            stdout=subprocess.PIPE, stderr=subprocess.PIPE,
            stdin=subprocess.DEVNULL if data is None
            else subprocess.PIPE) as process:
        try:
            _polling.now = False
            if _stopping.is_set() and not late:
                raise KeyboardInterrupt
            out, err = process.communicate(data)
        except BaseException:
            # git takes its lock files and half-made trees away.
            process.terminate()
            with contextlib.suppress(subprocess.TimeoutExpired):
                process.wait(timeout=30)
            process.kill()
            raise
    return subprocess.CompletedProcess(command, process.returncode, out, err)


def git(*args: Any, cwd: Path | None = None, check: bool = True,
        env: dict[str, str] | None = None, data: str | None = None,
        raw: bool = False) -> Any:
    """Run git; return its stdout, a str or (raw) bytes; Fail has its words."""
    done = run_git(*args, cwd=cwd, env=env,
                   data=None if data is None else data.encode())
    if check and done.returncode:
        words = (done.stderr or done.stdout).decode(errors="replace")
        raise Fail(f"git {args[0]} failed: "
                   + words.strip().replace("\n", "\n    | "))
    if raw:
        return done.stdout
    return done.stdout.decode(errors="surrogateescape")


def write_atomically(path: Path, content: str | bytes) -> None:
    """Write a file so that a reader sees the old or the new one."""
    path.parent.mkdir(parents=True, exist_ok=True)
    partial = path.with_name(path.name + ".partial")
    try:
        partial.write_bytes(content if isinstance(content, bytes)
                            else content.encode())
        partial.replace(path)
    except BaseException:
        partial.unlink(missing_ok=True)
        raise


def read_json(path: Path, default: Any = None) -> Any:
    """Return what a JSON file holds, or default when there is none."""
    try:
        return json.loads(path.read_text())
    except FileNotFoundError:
        return default
    except ValueError as failure:
        raise Fail(f"{shown_path(path)} is not JSON ({failure}): remove it "
                   "and run this again") from None


def write_json(path: Path, value: Any) -> None:
    """Write a value as JSON, atomically."""
    write_atomically(path, json.dumps(value, indent=1) + "\n")


@dataclass(frozen=True)
class Kernel:
    """A kernel that the series is for, a row of tools/BASE, and its places.

    version: as in "7.3".  name: what KERNEL= calls it; "" for the first one.
    """

    version: str
    package: str
    suite: str
    tested: str
    tested_package: str
    name: str

    @property
    def build(self) -> Path:
        """What is made for it: build/, or build/6.12."""
        return BUILD / self.name

    @property
    def logs(self) -> Path:
        return self.build / "logs"

    @property
    def results(self) -> Path:
        return self.build / "results"

    @property
    def repo(self) -> Path:
        """The bare repository with the branches `base` and `applied`."""
        return self.build / "linux.git"

    @property
    def series(self) -> Path:
        """The file that names its patches."""
        return PATCHES / self.name / "series" if self.name else ROOT / "series"


def kernels() -> list[Kernel]:
    """Return the rows of tools/BASE, whose head has the fields' names."""
    head, *rows = (line.split() for line in
                   (ROOT / "tools/BASE").read_text().splitlines()
                   if line and line[0] != "#")
    names = [word.lower() for word in head]
    return [Kernel(**dict(zip(names, row, strict=True)),
                   name="" if row is rows[0] else row[0]) for row in rows]


def kernel_of(name: str) -> Kernel:
    """Return the kernel that KERNEL= asks for; "" is the first."""
    first, *ports = kernels()
    for kernel in (first, *ports):
        if kernel.name == name:
            return kernel
    raise Fail(f"KERNEL={name}: the series is for {first.version}, which needs "
               "no KERNEL=, and for "
               + (", ".join(port.version for port in ports) or "no other"))


class Given(dict[str, str]):
    """The variables that a job was given, by name, none of them empty."""

    def words(self, name: str, known: Iterable[str]) -> list[str]:
        """Return the words of one, each of which has to be known."""
        known, words = [*known], self.get(name, "").split()
        for word in words:
            if word not in known:
                raise Fail(f"{name}={word} is not known: use "
                           + ", ".join(known))
        return words

    def one(self, name: str, known: Iterable[str],
            default: str | None = None) -> str:
        """Return one, which has to be known, and there without a default."""
        known, value = [*known], self.get(name, default)
        if value is None:
            raise Fail(f"give {name}=: {', '.join(known)}")
        if value not in (*known, default):
            raise Fail(f"{name}={value} is not known: use {', '.join(known)}")
        return value

    def number(self, name: str, default: int) -> int:
        """Return one that is a number above 0."""
        value = self.get(name, str(default))
        if not re.fullmatch("0*[1-9][0-9]*", value):
            raise Fail(f"{name}={value} is not known: use a number above 0")
        return int(value)


def check_place() -> None:
    """Raise Fail without /proc, which compilers and tests read, and where
    make or QEMU would not take the build's path."""
    if not Path("/proc/self").exists():
        raise Fail("/proc is not mounted: mount -t proc proc /proc")
    if odd := re.search(r"[^\w/.+@~-]", str(BUILD)):
        raise Fail(f"{BUILD}: no kernel can be built below a path with "
                   f"'{odd[0]}': move this repository")


def digest(*parts: str | bytes) -> str:
    """Return 20 hex digits that name the parts, in this order."""
    found = hashlib.sha256()
    for part in parts:
        data = part if isinstance(part, bytes) else os.fsencode(part)
        found.update(b"%d:" % len(data) + data)
    return found.hexdigest()[:20]


@contextlib.contextmanager
def scratch(name: str) -> Iterator[Path]:
    """Make a folder that is removed at the end of the block: with build_lock()
    below the kernel's build folder."""
    with tempfile.TemporaryDirectory(prefix=f"{name}-",
                                     ignore_cleanup_errors=True) as place:
        yield Path(place)


@contextlib.contextmanager
def build_lock(kernel: Kernel) -> Iterator[None]:
    """Let only one job at a time, and what it starts, work on a kernel."""
    place, tmp = kernel.build, kernel.build / "tmp"
    place.mkdir(parents=True, exist_ok=True)
    if os.environ.get("SERIES_LOCKED") == str(place):
        yield
        return
    with open(place / ".lock", "w") as lock:
        try:
            fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except OSError:
            raise Fail(f"another job is running below {shown_path(place)}: "
                       "wait for it or end it, then run this again") from None
        # What a job that was killed outright could not take away.
        shutil.rmtree(tmp, ignore_errors=True)
        # /tmp may be small, or allow no program to run.
        tmp.mkdir(exist_ok=True)
        before, tempfile.tempdir = dict(os.environ), str(tmp)
        os.environ |= {"TMPDIR": str(tmp), "SERIES_LOCKED": str(place)}
        try:
            yield
        finally:
            # git leaves files where a patch does not apply.
            shutil.rmtree(tmp, ignore_errors=True)
            tempfile.tempdir = None
            os.environ.clear()
            os.environ |= before


def run_main(main: Callable[[], int | None]) -> NoReturn:
    """Start a job and turn its errors into one message."""
    for sig in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP):
        # Not when nohup has it ignored.
        if signal.getsignal(sig) != signal.SIG_IGN:
            signal.signal(sig, _interrupt)
    status, text = 1, ""
    try:
        check_place()
        status = main() or 0
    except Fail as failure:
        text = f"error: {failure}"
    except KeyboardInterrupt as why:
        status = 130
        text = "interrupted: " + (
            str(why) or "nothing is broken, run it again to continue")
    except BrokenPipeError:
        # Whoever read what it says has ended, as 'head' does.
        status = 141
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
    except OSError as failure:
        advice = {errno.ENOSPC: "make room", errno.EDQUOT: "make room",
                  errno.EACCES: "make it accessible",
                  errno.EROFS: "make it writable",
                  errno.EPERM: "be the user it belongs to"}
        if failure.errno not in advice:
            raise
        text = (f"error: {failure.filename or BUILD}: {failure.strerror}: "
                f"{advice[failure.errno]} and run it again")
    if text:
        print(text, file=sys.stderr, flush=True)
    sys.exit(status)
