# SPDX-License-Identifier: GPL-2.0-only
"""Errors, the lock, commands with a time limit, work in parallel."""

import os
import signal
from pathlib import Path
from unittest import mock

import pytest
from conftest import Box, check_gone, wait_for, write

from tools import core, soak


def test_json_is_written_whole_or_not_at_all(tmp_path: Path) -> None:
    path = tmp_path / "deep/file"
    core.write_json(path, [1])
    with mock.patch("pathlib.Path.replace", side_effect=OSError), \
            pytest.raises(OSError):
        core.write_json(path, 2)
    assert list(path.parent.iterdir()) == [path]
    assert core.read_json(path) == [1]
    path.write_text("{")
    with pytest.raises(core.Fail, match="file is not JSON .* remove it"):
        core.read_json(path)


def shell(place: Path, script: str, **options: object) -> int | None:
    return core.run_logged(["sh", "-c", script], place / "log", **options)


def test_a_logged_command_and_its_time_limit(tmp_path: Path) -> None:
    # Longer than the sign of life waits.
    assert shell(tmp_path, "cat; echo out; echo err >&2; sleep 0.7; exit 4",
                 check=False) == 4
    assert (tmp_path / "log").read_text() == "out\nerr\n"
    with pytest.raises(core.Fail, match="it failed with status 3; the end of "
                       ".*/log:\n    | first\n    | last"):
        shell(tmp_path, "printf 'first\\r\\n\\nlast\\n'; exit 3", what="it")
    with pytest.raises(core.Fail, match="it did not end within 3 s"):
        shell(tmp_path, f"sh -c 'echo $$ >{tmp_path}/child; sleep 60; true' &"
              f"sh -c \"trap '' TERM; echo \\$\\$ >{tmp_path}/stubborn;"
              " sleep 60; true\" & wait", timeout=3, what="it")
    for name in ("child", "stubborn"):
        check_gone(tmp_path / name)


def test_a_time_limit_counts_less_beside_other_work(tmp_path: Path) -> None:
    with soak.busy(8 * (os.cpu_count() or 1)):
        assert shell(tmp_path, "sleep 2", timeout=1) == 0


@pytest.mark.parametrize("running, share", [
    (1, 1), (3, 1), (5, 0.5), (99, 0.1)])
def test_a_share_is_of_all_processors_and_bounded(running: int,
                                                  share: float) -> None:
    with mock.patch("os.cpu_count", return_value=2), mock.patch(
            "pathlib.Path.read_text", return_value=f"9 9 9 {running}/999 9"):
        assert core._share() == share


def test_an_error_in_one_piece_ends_what_the_others_run(
        tmp_path: Path) -> None:
    def bad() -> None:
        wait_for(tmp_path / "child")
        raise core.Fail("it is so")

    def long() -> None:
        shell(tmp_path, f"echo $$ >{tmp_path}/child; exec sleep 60")

    with pytest.raises(core.Fail, match="it is so"):
        core.at_once({"long": long, "bad": bad, "later": bad}, 2)
    check_gone(tmp_path / "child")
    found = core.at_once({"bad": bad, "good": lambda: 1}, 2, go_on=True)
    assert found["good"] == 1 and "it is so" in str(found["bad"])


def main(*body: str) -> str:
    return ("import errno, os, signal, subprocess, time\n"
            "from tools.core import *\nK = kernel_of('')\ndef main():\n"
            + "".join(f"    {line}\n" for line in body) + "run_main(main)\n")


def test_a_job_is_the_same_everywhere(box: Box) -> None:
    box.stub("git", 'echo "$LC_ALL $TMPDIR $GIT_CONFIG_GLOBAL" `umask`')
    box.done("import os; os.umask(0o77)\n"
             "os.sched_setaffinity(0, [min(os.sched_getaffinity(0))])\n"
             + main("with build_lock(K):", "    say(f'{CPUS} {git(0)}')"),
             LC_ALL="tr_TR", TMPDIR="/no such", say=f"1 C {box.build}/tmp "
             f"{box.repo}/tools/gitconfig 0022\n")
    box.refused(main("pass"), SERIES_BUILD_DIR=box.temp / "a b",
                say="no kernel can be built below a path with ' '")
    box.refused(main("raise OSError(errno.ENOSPC, 'full', 'a/file')"),
                say="error: a/file: full: make room and run it again")
    box.refused(main("raise OSError(errno.EACCES, 'denied', 'a/file')"),
                say="error: a/file: denied: make it accessible and run it")
    for words, said in ("", "nothing is broken"), ("a file", "a file\n"):
        run = box.run(main(f"raise KeyboardInterrupt('{words}')"))
        assert run.err.startswith(f"interrupted: {said}") and run.status == 130
    box.refused("import sys\nsys.version_info = 3, 9, 2\nimport tools\n",
                say="error: Python is 3.9, 3.11 or newer is needed\n")
    process = box.start(main("time.sleep(0.3)", "say('to nobody')"))
    process.stdout.close()
    process.stdout = None
    run = box.end(process)
    assert (run.status, run.err) == (141, "")


@pytest.mark.parametrize("sig, end, children", (
    (signal.SIGHUP, "work('a')", "a"),
    (signal.SIGINT, "at_once({n: lambda n=n: work(n) for n in 'abc'}, 2)",
     "ab")))
def test_a_signal_to_the_job_alone_ends_what_it_started(
        box: Box, sig: signal.Signals, end: str, children: str) -> None:
    # The second waits for the first, so both run when the signal comes.
    script = ("[ $0 != b ] || until [ -s a ]; do sleep 0.02; done; "
              "sleep 600 & echo $! >$0; wait")
    run = box.interrupted(main(
        f"work = lambda name: run_logged(['sh', '-c', '{script}', name], "
        f"K.logs / name, cwd='{box.temp}')", end), sig=sig, after=children[-1])
    for name in children:
        check_gone(box.temp / name)
    # No more than asked run at once, and what had not begun never does.
    assert not (box.temp / "c").exists() and "==> c" not in run.out


def test_a_second_job_is_refused_until_the_first_is_dead(box: Box) -> None:
    process = box.start(main("with build_lock(K):",
                             "    write_atomically(BUILD / 'held', 'yes')",
                             "    time.sleep(60)"))
    wait_for(box.build / "held")
    use = main("with build_lock(K):", "    say('mine')")
    box.refused(use, say="another job is running")
    # One that the first has started goes on.
    box.done(use, SERIES_LOCKED=box.build, say="mine")
    process.kill()
    box.end(process)
    # What one that was killed could not take away.
    write(box.build, {"tmp/guest-1/x": "left"})
    box.done(use, say="mine")
    box.check_nothing_left()


@pytest.mark.parametrize("seconds", (0, 1))
def test_an_interrupted_git_can_take_its_locks_away(box: Box,
                                                    seconds: int) -> None:
    """Also while it is started."""
    box.stub("git", f"trap 'rm {box.temp}/lock; exit 1' TERM\n"
             f"echo x >{box.temp}/lock\nwhile :; do sleep 0.05; done\n")
    box.interrupted(main(
        "init = subprocess.Popen.__init__", "def slow(*a, **b):",
        f"    init(*a, **b); time.sleep({seconds})",
        "subprocess.Popen.__init__ = slow", "git('gc')"),
        sig=signal.SIGTERM, after="lock")
    assert not (box.temp / "lock").exists()
