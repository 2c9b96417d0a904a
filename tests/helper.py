# SPDX-License-Identifier: GPL-2.0-only
"""What the tests share: fake kernels, copies of the repository, runs.

A test runs a script as a user would, as a process, with a build folder and
mostly a repository of its own.  The classes have no setUpClass(): 'make
unit' runs each test for itself.
"""

import atexit
import functools
import os
import shutil
import signal
import stat
import subprocess
import sys
import tempfile
import time
import unittest
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
SCRIPTS = ROOT / "scripts"
GIB = 2**30
sys.path.insert(0, str(SCRIPTS))

# A shell starts a job in the background with SIGINT ignored, and what these
# tests start and interrupt would inherit that.
signal.signal(signal.SIGINT, signal.default_int_handler)

# Read by every Python that a test starts: the disk is as full as the test
# says, and renaming a file to FAKE_FULL hits a full disk.
SITECUSTOMIZE = """\
import collections, errno, os, pathlib, shutil
usage = collections.namedtuple("usage", "total used free")
free = int(os.environ.get("FAKE_FREE", 100 * 2**30))
shutil.disk_usage = lambda path: usage(200 * 2**30, 0, free)
replace = pathlib.Path.replace
def full(self, target):
    if pathlib.Path(target).name == os.environ.get("FAKE_FULL"):
        raise OSError(errno.ENOSPC, "No space left on device", str(self))
    return replace(self, target)
pathlib.Path.replace = full
"""

MAKEFILE = """\
# SPDX-License-Identifier: GPL-2.0
VERSION = {0}
PATCHLEVEL = {1}
SUBLEVEL = {2}
EXTRAVERSION ={3}
NAME = Test

all:
"""


def lines(word, count=40):
    """Return a source file's text: count numbered lines."""
    return "".join(f"/* {word} {n} */\n" for n in range(1, count + 1))


FILES = {
    "Kconfig": "# SPDX-License-Identifier: GPL-2.0\n",
    ".gitignore": "*.o\n",
    "arch/x86/kernel/ioport.c": lines("ioport"),
    "kernel/sched/syscalls.c": lines("syscalls"),
    "mm/mmap.c": lines("mmap"),
    "tools/testing/selftests/x86/Makefile": lines("selftests", 5),
    "Documentation/index.rst": lines("index", 5),
}


def change(name, number, text):
    """Return a file's text (str) with one line of FILES replaced."""
    rows = FILES[name].splitlines(keepends=True)
    rows[number - 1] = text + "\n"
    return "".join(rows)


FIX = ("x86/ioperm: Close the window",
       "What is wrong.\n\nFixes: 0123456789ab (\"x86: Open the window\")",
       {"arch/x86/kernel/ioport.c":
        change("arch/x86/kernel/ioport.c", 10, "closed();")})
SELFTEST = ("selftests/x86: Add a test of the window", "It opens it.",
            {"tools/testing/selftests/x86/window.c": lines("window", 12)})
# One commit for each heading of the series file.
COMMITS = (
    FIX, SELFTEST,
    ("sched: Yield one tick", "Why.", {"kernel/sched/syscalls.c":
                                       change("kernel/sched/syscalls.c", 20,
                                              "tick();")}),
    ("Documentation: Describe the I/O bitmap", "How it works.",
     {"Documentation/arch/x86/iobitmap.rst": "I/O bitmap\n==========\n"}),
    ("x86/ioport: Copy less", "Faster.",
     {"arch/x86/kernel/ioport.c":
      change("arch/x86/kernel/ioport.c", 10, "closed();").replace(
          "ioport 30", "ioport thirty")}),
    ("mm: Say more", "More.", {"mm/mmap.c": change("mm/mmap.c", 3, "say();")}),
)


def environment(**more):
    """Return an environment (dict) without anything of the caller's."""
    # Without waiting for the disk at every object that git writes.
    return {"PATH": os.environ["PATH"], "LC_ALL": "C.UTF-8",
            "HOME": "/nonexistent", "GIT_CONFIG_NOSYSTEM": "1",
            "GIT_TEST_FSYNC": "0",
            **{name: str(value) for name, value in more.items()}}


def git(place, *args, data=None):
    """Run git as a user who has a name; returns its stdout (str)."""
    who = {f"GIT_{role}_{part}": value
           for role in ("AUTHOR", "COMMITTER")
           for part, value in (("NAME", "A Tester"),
                               ("EMAIL", "tester@example.org"),
                               ("DATE", "2026-02-03T04:05:06+0000"))}
    done = subprocess.run(
        ["git", "-c", "safe.directory=*", *map(str, args)], cwd=place,
        env=environment(GIT_CONFIG_GLOBAL="/dev/null", **who), input=data,
        capture_output=True, text=True)
    if done.returncode:
        raise AssertionError(f"git {args}: {done.stderr}{done.stdout}")
    return done.stdout


def write(place, files):
    """Write files (dict of path to text or bytes) below place (Path)."""
    for name, text in files.items():
        path = Path(place) / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(text if isinstance(text, bytes) else text.encode())


def make_kernel(place, version=("7", "3", "4", "")):
    """Write a plain kernel tree and return its Path."""
    write(place, {"Makefile": MAKEFILE.format(
        *version[:3], f" {version[3]}" if version[3] else ""), **FILES})
    return Path(place)


def commit(place, subject, body="", files=None):
    """Write files below a git tree and commit them."""
    write(place, files or {})
    git(place, "add", "-A", ".")
    git(place, "commit", "-q", "--allow-empty", "-m", f"{subject}\n\n{body}")


def make_clone(place, version=("7", "3", "4", "")):
    """Make a git repository with a kernel in it and return its Path."""
    make_kernel(place, version)
    git(place, "init", "-q", "-b", "master")
    commit(place, "Linux")
    return Path(place)


@functools.cache
def workshop():
    """Return a folder (Path) for what is made once for all tests."""
    place = Path(tempfile.mkdtemp(prefix="series-test-"))
    atexit.register(shutil.rmtree, place, ignore_errors=True)
    return place


@functools.cache
def plain_patches():
    """Return {name: bytes} of COMMITS, from git format-patch alone."""
    clone = make_clone(workshop() / "patched")
    for subject, body, files in COMMITS:
        commit(clone, subject, body, files)
    names = git(clone, "format-patch", "--no-signature", "--no-numbered",
                "-o", workshop() / "patches", f"-{len(COMMITS)}").split()
    return {Path(name).name: Path(name).read_bytes() for name in names}


@functools.cache
def patched_tree():
    """Return the name (str) of the git tree that COMMITS end in."""
    plain_patches()
    return git(workshop() / "patched", "rev-parse", "HEAD^{tree}").strip()


def snapshot(place):
    """Return what is below a folder: names, contents, times, owners.

    The access time is left out: reading is what the scripts may do.
    """
    found = {}
    for path in [place, *sorted(Path(place).rglob("*"))]:
        state = path.lstat()
        content = None
        if stat.S_ISLNK(state.st_mode):
            content = os.readlink(path)
        elif stat.S_ISREG(state.st_mode):
            content = path.read_bytes()
        found[str(path)] = (state.st_mode, state.st_uid, state.st_mtime_ns,
                            state.st_ino, content)
    return found


def heed_signals():
    """Be as a job in a terminal: nohup and a shell's & ignore signals."""
    for sig in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP):
        signal.signal(sig, signal.SIG_DFL)


class Run:
    """How a script ended: status (int), out, err (str)."""

    def __init__(self, status, out, err):
        self.status = status
        self.out = out
        self.err = err

    def __str__(self):
        return f"status {self.status}\n{self.out}\n{self.err}"


class Case(unittest.TestCase):
    """A test with a temporary folder, build folder and stubs of its own."""

    maxDiff = None

    def setUp(self):
        self.temp = Path(tempfile.mkdtemp(prefix="series-test-")).resolve()
        self.addCleanup(shutil.rmtree, self.temp, ignore_errors=True)
        self.temp.chmod(0o755)
        self.build = self.temp / "build"
        self.bin = self.temp / "bin"
        self.bin.mkdir()
        self.repo = ROOT
        write(self.temp / "site", {"sitecustomize.py": SITECUSTOMIZE})

    # --- what a test starts from ---

    def copy_repo(self, patches=None, series=None):
        """Work on a copy of the repository with these patches.

        patches: {name: bytes}; series: the names in order (default: all).
        """
        self.repo = self.temp / "repo"
        self.repo.mkdir()
        for name in ("scripts", "configs"):
            shutil.copytree(ROOT / name, self.repo / name,
                            ignore=shutil.ignore_patterns("__pycache__"))
        for name in ("BASE", "Makefile"):
            shutil.copy2(ROOT / name, self.repo / name)
        self.set_patches(patches or {}, series)

    def set_patches(self, patches, series=None):
        """Replace patches/ and series of the copy."""
        shutil.rmtree(self.repo / "patches", ignore_errors=True)
        (self.repo / "patches").mkdir()
        write(self.repo / "patches", patches)
        names = sorted(patches) if series is None else series
        write(self.repo, {"series": "# A heading.\n\n"
                          + "".join(f"{name}\n" for name in names)})

    def stub(self, name, text):
        """Put a shell script before the rest of the PATH."""
        path = self.bin / name
        path.write_text("#!/bin/sh\n" + text)
        path.chmod(0o755)

    def stub_git(self, word, after=False):
        """Let git hang at a command whose arguments hold a word.

        Before it works or after; the file `hangs` is there when it does.
        """
        real = shutil.which("git")
        hang = f'echo $$ >"{self.temp}/hangs"; sleep 60'
        self.stub("git", f'case " $* " in *"{word}"*)\n'
                  + (f'"{real}" "$@"; {hang}' if after else hang)
                  + f';; esac\nexec "{real}" "$@"\n')

    # --- runs ---

    def environment(self, **more):
        """Return the environment (dict) that scripts run in."""
        found = environment(SERIES_BUILD_DIR=self.build,
                            PYTHONPATH=self.temp / "site",
                            PYTHONDONTWRITEBYTECODE=1, TMPDIR=self.temp)
        found["PATH"] = f"{self.bin}:{found['PATH']}"
        return found | {name: str(value) for name, value in more.items()}

    def command(self, script):
        """Return the command (list of str) that starts a script."""
        path = str(self.repo / "scripts" / script)
        return [sys.executable, path] if path.endswith(".py") else [path]

    def run_script(self, script, *args, **env):
        """Run a script to its end and return a Run."""
        done = subprocess.run(
            [*self.command(script), *map(str, args)], cwd=self.repo,
            env=self.environment(**env), capture_output=True, text=True,
            stdin=subprocess.DEVNULL, timeout=180)
        return Run(done.returncode, done.stdout, done.stderr)

    def run_python(self, code, **env):
        """Run Python code that may import the scripts; returns a Run."""
        done = subprocess.run(
            [sys.executable, "-c", code], cwd=self.repo / "scripts",
            env=self.environment(**env), capture_output=True, text=True,
            stdin=subprocess.DEVNULL, timeout=180)
        return Run(done.returncode, done.stdout, done.stderr)

    def start_script(self, script, *args, **env):
        """Start a script as the leader of a process group."""
        process = subprocess.Popen(
            [*self.command(script), *map(str, args)], cwd=self.repo,
            env=self.environment(**env), stdout=subprocess.PIPE,
            stderr=subprocess.PIPE, stdin=subprocess.DEVNULL, text=True,
            start_new_session=True, preexec_fn=heed_signals)
        self.addCleanup(self.end, process)
        return process

    @staticmethod
    def end(process):
        """End a process group that a failed test left."""
        try:
            os.killpg(process.pid, signal.SIGKILL)
        except ProcessLookupError:
            pass
        process.communicate()

    def wait_for(self, path, seconds=60):
        """Wait until a file is there and not empty."""
        end = time.monotonic() + seconds
        while not path.exists() or not path.read_text():
            if time.monotonic() > end:
                self.fail(f"{path.name} did not appear in {seconds} s")
            time.sleep(0.02)

    def interrupt(self, script, sig=signal.SIGINT, arguments=(), **env):
        """Start a script, send a signal to its group when a stub hangs."""
        hangs = self.temp / "hangs"
        hangs.unlink(missing_ok=True)
        process = self.start_script(script, *arguments, **env)
        self.wait_for(hangs)
        os.killpg(process.pid, sig)
        out, err = process.communicate(timeout=60)
        return Run(process.returncode, out, err)

    # --- what must hold ---

    def assertDone(self, run, *words):
        """A run ended well and said these words."""
        self.assertEqual(run.status, 0, run)
        self.assertEqual(run.err, "", run)
        for word in words:
            self.assertIn(word, run.out)

    def assertRefused(self, run, *words):
        """A run ended with one clear error that has these words."""
        self.assertEqual(run.status, 1, run)
        self.assertNotIn("Traceback", run.err)
        errors = [row for row in run.err.splitlines()
                  if row.startswith("error:")]
        self.assertEqual(len(errors), 1, run)
        self.assertTrue(run.err.startswith("error:"), run)
        for word in words:
            self.assertIn(word, run.err)
        self.assertNothingHalfDone()

    def assertInterrupted(self, run):
        """A run was interrupted, said so once, and left nothing."""
        self.assertEqual(run.status, 130, run)
        self.assertEqual(run.err.count("\n"), 1, run)
        self.assertTrue(run.err.startswith("interrupted:"), run)
        self.assertNothingHalfDone()

    def assertGone(self, record):
        """The process whose number a file holds has ended, or soon does."""
        state = Path(f"/proc/{int(record.read_text())}/stat")
        end = time.monotonic() + 5
        while time.monotonic() < end:
            try:
                # What is left of a process that nobody waits for is Z.
                if state.read_text().rsplit(")", 1)[1].split()[0] == "Z":
                    return
            except OSError:
                return
            time.sleep(0.02)
        self.fail(f"{record.name} still runs")

    def assertNothingHalfDone(self):
        """No partial file, temporary folder or stale work tree is left."""
        if not self.build.exists():
            return
        left = [path.name for path in self.build.iterdir()
                if path.name.endswith((".partial", ".index.lock"))
                or path.name == "apply"
                or "-" in path.name]
        self.assertEqual(left, [])
        repository = self.build / "linux.git"
        if repository.exists():
            locks = [str(path) for path in repository.rglob("*.lock")]
            self.assertEqual(locks, [])
            listed = [row.split(" ", 1)[1] for row in git(
                repository, "worktree", "list", "--porcelain").splitlines()
                if row.startswith("worktree ")]
            self.assertLessEqual(
                set(listed), {str(repository), str(self.build / "tree")})

    def assertUntouched(self, place, before):
        """A folder is what snapshot() found before, to the time stamp."""
        after = snapshot(place)
        self.assertEqual(sorted(after), sorted(before))
        for name, state in before.items():
            self.assertEqual(after[name], state, name)

    def tip(self, branch):
        """Return the commit (str) of a branch of the base repository."""
        return git(self.build / "linux.git", "rev-parse", branch).strip()

    def tree(self, branch):
        """Return the git tree (str) of a branch of the base repository."""
        return self.tip(branch + "^{tree}")
