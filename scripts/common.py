# SPDX-License-Identifier: GPL-2.0-only
"""What the scripts share: paths, errors, stages with progress, commands.

Every script is one job.  It raises Fail for anything the user can mend, and
is started through run_main(), which turns Fail, Ctrl-C and a full disk into
one clear message and a non-zero exit.
"""

import contextlib
import datetime
import errno
import fcntl
import hashlib
import json
import os
import shutil
import signal
import subprocess
import sys
import time
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
BUILD = Path(os.environ.get("SERIES_BUILD_DIR") or ROOT / "build").resolve()
LOGS = BUILD / "logs"
RESULTS = BUILD / "results"
GATED = RESULTS / "gates.json"
PATCHES = ROOT / "patches"
SERIES = ROOT / "series"
CONFIGS = ROOT / "configs"

# A commit of the same content must have the same name on every machine.
GIT_IDENTITY = {
    "GIT_CONFIG_GLOBAL": str(ROOT / "scripts/gitconfig"),
    "GIT_CONFIG_SYSTEM": "/dev/null",
    "GIT_COMMITTER_NAME": "series",
    "GIT_COMMITTER_EMAIL": "series@localhost",
    "GIT_TERMINAL_PROMPT": "0",
}
# A git hook or `git rebase --exec` sets these, and every git started below
# would work on the repository they name.
for _name in ("GIT_DIR", "GIT_WORK_TREE", "GIT_INDEX_FILE", "GIT_PREFIX",
              "GIT_COMMON_DIR", "GIT_OBJECT_DIRECTORY", "GIT_NAMESPACE",
              "GIT_ALTERNATE_OBJECT_DIRECTORIES", "GIT_CONFIG_PARAMETERS",
              "GIT_CONFIG_COUNT"):
    os.environ.pop(_name, None)
# Folders below BUILD that live as long as the job that made them.
TEMPORARY = ("unpack-*", "export-*", "bench-*", "guest-*", "quilt-*",
             "checkpatch-*", "copycost-*", "submit-*", "rebase-*",
             "lab-*")


class Fail(Exception):
    """An error that the user can do something about; its text says what."""


def say(text):
    """Print one line at once, also when the output goes to a file."""
    print(text, flush=True)


def duration(seconds):
    """Format seconds (float) as '12 s' or '3 min 04 s'."""
    whole = round(seconds)
    if whole < 60:
        return f"{whole} s"
    return f"{whole // 60} min {whole % 60:02d} s"


@contextlib.contextmanager
def stage(title):
    """Announce a stage, and say how long it took when it is done."""
    say(f"==> {title}")
    start = time.monotonic()
    yield
    took = time.monotonic() - start
    if took >= 1:
        say(f"    done in {duration(took)}")


def need_space(path, gib, what):
    """Raise Fail unless the file system of path has gib GiB free.

    Checked before a long job, because a disk that fills half way through
    costs the user the whole wait.
    """
    path = Path(path)
    while not path.exists():
        path = path.parent
    free = shutil.disk_usage(path).free / 2**30
    if free < gib:
        raise Fail(f"{what} needs {gib} GiB of disk space below {path}, "
                   f"{free:.1f} GiB are free: make room and run it again")


def need_tool(name, package):
    """Raise Fail unless the command name is there; package provides it."""
    if not shutil.which(name):
        raise Fail(f"the command '{name}' is missing: "
                   f"apt-get install {package}")


def end_group(process):
    """End a child and all that it started, gently first."""
    for sig, wait in ((signal.SIGTERM, 5), (signal.SIGKILL, 5)):
        with contextlib.suppress(ProcessLookupError):
            os.killpg(process.pid, sig)
        try:
            process.wait(timeout=wait)
        except subprocess.TimeoutExpired:
            continue
        # The leader can be gone while its children still run.
        with contextlib.suppress(ProcessLookupError):
            os.killpg(process.pid, signal.SIGKILL)
        return


def tail(log, lines=20):
    """Return the last lines of a log as one indented string."""
    try:
        text = Path(log).read_text(errors="replace")
    except OSError:
        return ""
    # A console writes carriage returns and escape sequences of its own.
    rows = [row.rstrip() for row in text.replace("\r", "\n").split("\n")]
    return "\n".join("    | " + row for row in rows if row)[-8000:] \
        if len(rows) <= lines else \
        "\n".join("    | " + row for row in [r for r in rows if r][-lines:])


def hold_signals():
    """Keep back the signals that interrupt; returns what lets them in again.

    A signal that arrives while a process is being started would leave that
    process behind, because nobody knows it yet.
    """
    pending, handlers = [], {}

    def release():
        for sig, handler in handlers.items():
            signal.signal(sig, handler)
        if pending:
            raise KeyboardInterrupt

    for sig in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP):
        handler = signal.getsignal(sig)
        # Neither the default, which ends this process, nor ignored.
        if callable(handler):
            handlers[sig] = handler
            signal.signal(sig, lambda number, _: pending.append(number))
    return release


def run_logged(command, log, timeout=None, cwd=None, env=None, check=True,
               what=None, progress=None):
    """Run a long command with its output in a log and a sign of life.

    command: list of str.  timeout: seconds (float) or None.  progress: a
    function from the log's path to a short str, shown beside the time.
    Returns the exit status (int); a command that ran into its time limit is
    ended with all its children and gives None.  Raises Fail on a status
    other than 0 when check is set, with the log's last lines.
    """
    log = Path(log)
    log.parent.mkdir(parents=True, exist_ok=True)
    start = time.monotonic()
    shown = start
    tty = sys.stdout.isatty()
    status = 0
    with open(log, "wb") as out:
        release = hold_signals()
        try:
            process = subprocess.Popen(
                command, stdout=out, stderr=subprocess.STDOUT,
                stdin=subprocess.DEVNULL, cwd=cwd, env=env,
                start_new_session=True)
        except BaseException:
            release()
            raise
        try:
            release()
            while True:
                try:
                    status = process.wait(timeout=1)
                    break
                except subprocess.TimeoutExpired:
                    pass
                now = time.monotonic()
                if timeout and now - start > timeout:
                    end_group(process)
                    status = None
                    break
                if now - shown >= (2 if tty else 60):
                    shown = now
                    note = progress(log) if progress else ""
                    line = f"    {duration(now - start)} {note}".rstrip()
                    if tty:
                        print(f"\r\033[K{line}", end="", flush=True)
                    else:
                        say(line)
        except BaseException:
            end_group(process)
            raise
        finally:
            if tty:
                print("\r\033[K", end="", flush=True)
    if check and status != 0:
        why = (f"did not end within {duration(timeout)}" if status is None
               else f"failed with status {status}")
        raise Fail(f"{what or command[0]} {why}; the end of {shown_path(log)}:"
                   f"\n{tail(log)}")
    return status


def shown_path(path):
    """Return a path as a user would type it from the top folder."""
    try:
        return str(Path(path).resolve().relative_to(ROOT))
    except ValueError:
        return str(path)


def run_git(*args, cwd=None, env=None, data=None):
    """Run git without the user's configuration.

    Returns a CompletedProcess with bytes.  When this job is interrupted, git
    is given the time to take its lock files and half-made trees away.
    """
    environment = os.environ | GIT_IDENTITY | (env or {})
    command = ["git", *map(str, args)]
    with subprocess.Popen(
            command, cwd=cwd, env=environment, stdout=subprocess.PIPE,
            stderr=subprocess.PIPE, stdin=subprocess.DEVNULL
            if data is None else subprocess.PIPE) as process:
        try:
            out, err = process.communicate(data)
        except BaseException:
            process.terminate()
            with contextlib.suppress(subprocess.TimeoutExpired):
                process.wait(timeout=30)
            process.kill()
            raise
    return subprocess.CompletedProcess(command, process.returncode, out, err)


def git(*args, cwd=None, check=True, env=None, data=None, raw=False):
    """Run git and return its stdout: a str, or bytes when raw is set.

    data: str for its stdin.  Raises Fail with git's own words when it fails
    and check is set.
    """
    done = run_git(*args, cwd=cwd, env=env,
                   data=None if data is None else data.encode())
    if check and done.returncode:
        words = (done.stderr or done.stdout).decode(errors="replace")
        raise Fail(f"git {args[0]} failed: "
                   + words.strip().replace("\n", "\n    | "))
    if raw:
        return done.stdout
    text = done.stdout.decode(errors="surrogateescape")
    # As Python reads a text file.
    return text.replace("\r\n", "\n").replace("\r", "\n")


def write_atomically(path, text):
    """Write a text file so that a reader sees the old or the new one."""
    path = Path(path)
    path.parent.mkdir(parents=True, exist_ok=True)
    partial = path.with_name(path.name + ".partial")
    try:
        partial.write_text(text)
        partial.replace(path)
    except BaseException:
        partial.unlink(missing_ok=True)
        raise


def read_settings(path):
    """Read NAME=value lines with # comments; returns a dict of str."""
    settings = {}
    for line in Path(path).read_text().splitlines():
        line = line.strip()
        if line and not line.startswith("#"):
            name, _, value = line.partition("=")
            settings[name.strip()] = value.strip()
    return settings


def series_key():
    """Return a name (str) of the series: of its patches and its base."""
    found = hashlib.sha256((ROOT / "BASE").read_bytes())
    for name in series_patches():
        found.update(name.encode() + b"\0"
                     + (PATCHES / name).read_bytes() + b"\0")
    return found.hexdigest()[:20]


def gated():
    """Return what is known of the groups of tests that this series passed.

    {group: {"key", "passed", "skipped", "date"}}, such as "check: kernels".
    """
    try:
        known = json.loads(GATED.read_text())
        key = series_key()
        return {group: row for group, row in known.items()
                if row["key"] == key}
    except (OSError, ValueError, KeyError, TypeError, AttributeError):
        return {}


def record_gate(group, key, passed, skipped):
    """Keep that a series passed a group (str) of tests.

    key: series_key() when it began; passed, skipped: counts (int).
    """
    RESULTS.mkdir(parents=True, exist_ok=True)
    now = datetime.datetime.now(datetime.timezone.utc)
    write_atomically(GATED, json.dumps(gated() | {group: {
        "key": key, "passed": passed, "skipped": skipped,
        "date": now.isoformat(timespec="minutes")}}, indent=1) + "\n")


def series_patches():
    """Return the patch names (list of str) of `series`, in order."""
    if not SERIES.exists():
        raise Fail("there is no file 'series' at the top of the repository")
    names = []
    for line in SERIES.read_text().splitlines():
        line = line.split("#")[0].strip()
        if line:
            names.append(line)
    missing = [name for name in names if not (PATCHES / name).is_file()]
    if missing:
        raise Fail(f"series names {missing[0]}, but there is no "
                   f"patches/{missing[0]}")
    return names


@contextlib.contextmanager
def build_lock():
    """Let only one job at a time work below the build folder.

    A job that a locked job starts inherits the lock instead of waiting for
    itself.
    """
    BUILD.mkdir(parents=True, exist_ok=True)
    if os.environ.get("SERIES_LOCKED") == str(BUILD):
        yield
        return
    with open(BUILD / ".lock", "w") as lock:
        try:
            fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except OSError:
            raise Fail(f"another job is running below {shown_path(BUILD)}: "
                       "wait for it or end it, then run this again") from None
        # What a job that was killed outright could not take away.
        for pattern in TEMPORARY:
            for place in BUILD.glob(pattern):
                shutil.rmtree(place, ignore_errors=True)
        os.environ["SERIES_LOCKED"] = str(BUILD)
        try:
            yield
        finally:
            del os.environ["SERIES_LOCKED"]


def run_main(main):
    """Start a script's main() and turn its errors into one message."""
    def terminated(*_):
        raise KeyboardInterrupt

    for sig in (signal.SIGTERM, signal.SIGHUP):
        # Not when nohup has it ignored.
        if signal.getsignal(sig) != signal.SIG_IGN:
            signal.signal(sig, terminated)
    try:
        sys.exit(main() or 0)
    except Fail as failure:
        print(f"error: {failure}", file=sys.stderr, flush=True)
        sys.exit(1)
    except KeyboardInterrupt:
        print("interrupted: nothing is broken, the same command goes on "
              "from here", file=sys.stderr, flush=True)
        sys.exit(130)
    except OSError as failure:
        if failure.errno in (errno.ENOSPC, errno.EDQUOT):
            text = (f"no disk space left ({failure.filename or BUILD}): "
                    "make room and run it again")
        elif failure.errno in (errno.EACCES, errno.EPERM, errno.EROFS):
            text = (f"{failure.filename or BUILD}: {failure.strerror}: make "
                    "it writable, or run this as the user it belongs to")
        else:
            raise
        print(f"error: {text}", file=sys.stderr, flush=True)
        sys.exit(1)
