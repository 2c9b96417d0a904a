# SPDX-License-Identifier: GPL-2.0-only
"""Errors, the lock, commands with a time limit, work in parallel."""

import signal
import threading
import time
from pathlib import Path
from unittest import mock

import pytest
from conftest import Box, check_gone, wait_for, write

from tools import core


def test_logs_and_settings(tmp_path: Path) -> None:
    write(tmp_path, {"log": "".join(f"{n}\r\n\n" for n in range(50)),
                     "tools/BASE": "# Why.\n\nVERSION  TESTED\n7.3  7.3.4\n"})
    assert core.tail(tmp_path / "log", 2) == "    | 48\n    | 49"
    assert core.tail(tmp_path / "none") == ""
    with mock.patch.object(core, "ROOT", tmp_path):
        assert core.kernels() == [{"VERSION": "7.3", "TESTED": "7.3.4"}]
    for row in core.kernels()[1:]:
        assert (core.ROOT / f"patches/{row['VERSION']}/series").exists()


def test_digest_tells_where_a_part_ends() -> None:
    assert core.digest("a", "b") == core.digest(b"a", b"b")
    assert len({core.digest("ab"), core.digest("a", "b"),
                core.digest("b", "a"), core.digest("a", "", "b")}) == 4


def test_json_is_written_whole_or_not_at_all(tmp_path: Path) -> None:
    path = tmp_path / "deep/file"
    core.write_atomically(path, b"\xe9")
    assert path.read_bytes() == b"\xe9"
    core.write_json(path, {"long": "old text"})
    core.write_json(path, [1])
    with mock.patch("pathlib.Path.replace", side_effect=OSError), \
            pytest.raises(OSError):
        core.write_json(path, 2)
    assert path.read_text() == "[\n 1\n]\n"
    assert list(path.parent.iterdir()) == [path]
    assert core.read_json(path) == [1]
    assert core.read_json(tmp_path / "none", 7) == 7
    path.write_text("{")
    with pytest.raises(core.Fail, match="file is not JSON .* remove it"):
        core.read_json(path)


def test_what_is_missing_is_named(tmp_path: Path) -> None:
    with mock.patch("shutil.disk_usage") as usage:
        usage.return_value.free = 5 * 2**30
        core.need_space(tmp_path / "not/yet", 5, "it")
        with pytest.raises(core.Fail, match=f"it needs 6 GiB .* {tmp_path}, "
                           "5.0 GiB are free: make room"):
            core.need_space(tmp_path / "not/yet", 6, "it")
    with pytest.raises(core.Fail, match="'no-such-tool' .* install package"):
        core.need_tool("no-such-tool", "package")


# --- run_logged ---

def shell(place: Path, script: str, **options: object) -> int | None:
    return core.run_logged(["sh", "-c", script], place / "logs/log",
                           **options)


def test_run_logged(tmp_path: Path) -> None:
    assert shell(tmp_path, "cat; echo out; echo err >&2") == 0
    assert (tmp_path / "logs/log").read_text() == "out\nerr\n"
    # Longer than the sign of life waits.
    assert shell(tmp_path, "sleep 1.1; exit 4", check=False) == 4
    with pytest.raises(core.Fail) as caught:
        shell(tmp_path, "echo first; echo last; exit 3", what="the job")
    assert str(caught.value) == (
        "the job failed with status 3; the end of "
        f"{tmp_path}/logs/log:\n    | first\n    | last")


def test_the_time_limit_ends_children_and_grandchildren(
        tmp_path: Path) -> None:
    with pytest.raises(core.Fail, match="it did not end within 1 s"):
        shell(tmp_path, f"sh -c 'echo $$ >{tmp_path}/child; sleep 60; true' &"
              f"sh -c \"trap '' TERM; echo \\$\\$ >{tmp_path}/stubborn;"
              " sleep 60; true\" & wait", timeout=0.9, what="it")
    for name in ("child", "stubborn"):
        check_gone(tmp_path / name)


# --- in_parallel ---

@pytest.mark.parametrize("jobs", (1, 2))
def test_a_fail_becomes_the_value_of_its_piece(
        jobs: int, tmp_path: Path, capsys: pytest.CaptureFixture) -> None:
    found = core.in_parallel({"bad": lambda: shell(tmp_path, "exit 2"),
                              "good": lambda: 1}, jobs)
    assert found["good"] == 1
    assert "failed with status 2" in str(found["bad"])
    assert "s: FAILED: sh failed with status 2" in capsys.readouterr().out


def test_work_done_at_once_has_no_fail(tmp_path: Path) -> None:
    assert core.at_once({"a": lambda: 1, "b": lambda: 2}) == {"a": 1, "b": 2}
    assert core.at_once({"alone": threading.current_thread}, 1) == {
        "alone": threading.main_thread()}
    with pytest.raises(core.Fail, match="failed with status 2"):
        core.at_once({"good": lambda: 1,
                      "bad": lambda: shell(tmp_path, "exit 2")})


def test_a_bug_in_one_piece_ends_what_the_others_run(tmp_path: Path) -> None:
    def bug() -> None:
        wait_for(tmp_path / "child")
        raise ValueError("a bug")

    def long() -> None:
        shell(tmp_path, f"echo $$ >{tmp_path}/child; exec sleep 60")

    start = time.monotonic()
    with pytest.raises(ValueError, match="a bug"):
        core.in_parallel({"long": long, "bug": bug, "later": bug}, 2)
    assert time.monotonic() - start < 40
    check_gone(tmp_path / "child")
    assert shell(tmp_path, "true") == 0


# --- run_main ---

def main(*body: str) -> str:
    return ("import errno, os, signal, subprocess, time\n"
            "from tools.core import *\ndef main():\n"
            + "".join(f"    {line}\n" for line in body) + "run_main(main)\n")


@pytest.mark.parametrize("body, words", (
    ("raise Fail('it is so')", "error: it is so\n"),
    ("raise OSError(errno.ENOSPC, 'full', 'a/file')",
     "error: a/file: full: make room and run it again"),
    ("raise PermissionError(errno.EACCES, 'no', 'a/file')",
     "a/file: no: make it writable"),
    ("git('rev-parse', 'no-such', cwd='/')",
     "git rev-parse failed: fatal: ")))
def test_what_a_user_can_mend_is_one_error(box: Box, body: str,
                                           words: str) -> None:
    box.refused(main(body), say=words)


def test_a_status_is_passed_on_and_a_bug_keeps_its_traceback(
        box: Box) -> None:
    assert box.run(main("return 7")) == (7, "", "")
    run = box.run(main("raise OSError(errno.EBADF, 'a bug')"))
    assert run.status == 1 and "Traceback" in run.err


PARALLEL = "in_parallel({n: lambda n=n: work(n) for n in 'abc'}, 2)"
# The signal comes while the second piece is submitted, and both run.
SUBMITTED = (
    "real = ThreadPoolExecutor.submit; ThreadPoolExecutor.submit = "
    "lambda *a: (real(*a), a[2] == 'b' and time.sleep(9))[0]; " + PARALLEL)


@pytest.mark.parametrize("sig, end, children", (
    (signal.SIGINT, "work('a')", "a"), (signal.SIGHUP, "work('a')", "a"),
    (signal.SIGINT, PARALLEL, "ab"), (signal.SIGTERM, PARALLEL, "ab"),
    (signal.SIGINT, SUBMITTED, "ab")))
def test_a_signal_to_the_job_alone_ends_what_it_started(
        box: Box, sig: signal.Signals, end: str, children: str) -> None:
    # The second waits for the first, so both run when the signal comes.
    script = ("[ $0 != b ] || until [ -s a ]; do sleep 0.02; done; "
              "sleep 600 & echo $! >$0; wait")
    run = box.interrupted(main(
        f"work = lambda name: run_logged(['sh', '-c', '{script}', name], "
        f"LOGS / name, cwd='{box.temp}')", end), sig=sig, after=children[-1])
    for name in children:
        check_gone(box.temp / name)
    # No more than asked run at once, and what had not begun never does.
    assert not (box.temp / "c").exists() and "==> c" not in run.out


def test_a_signal_while_a_job_is_being_started(box: Box) -> None:
    box.interrupted(main(
        "from tools import core",
        "start = subprocess.Popen",
        "def slow(*args, **more):",
        "    process = start(*args, **more)",
        "    while not core._stopping.is_set():",
        "        time.sleep(0.01)",
        "    return process",
        "subprocess.Popen = slow",
        f"run_logged(['sh', '-c', 'echo $$ >{box.temp}/child; exec sleep 60'"
        "], LOGS / 'log')"), sig=signal.SIGTERM, after="child")
    check_gone(box.temp / "child")


# --- the lock, git ---

def test_a_second_job_is_refused_until_the_first_is_dead(box: Box) -> None:
    process = box.start(main("with build_lock():",
                             "    write_atomically(BUILD / 'held', 'yes')",
                             "    time.sleep(60)"))
    wait_for(box.build / "held")
    use = main("with build_lock():", "    say('mine')")
    for other in ("", box.temp / "other"):
        box.refused(use, SERIES_LOCKED=other, say="another job is running")
    # One that the first has started goes on.
    box.done(use, SERIES_LOCKED=box.build, say="mine")
    process.kill()
    box.end(process)
    # What one that was killed could not take away.
    write(box.build, {"tmp/guest-1/x": "left"})
    box.done(use, say="mine")
    box.check_nothing_left()


def test_an_interrupted_git_can_take_its_locks_away(box: Box) -> None:
    box.stub("git", f"trap 'rm {box.temp}/lock; exit 1' TERM\n"
             f"echo x >{box.temp}/lock\nwhile :; do sleep 0.05; done\n")
    box.interrupted(main("git('gc')"), sig=signal.SIGTERM, after="lock")
    assert not (box.temp / "lock").exists()
