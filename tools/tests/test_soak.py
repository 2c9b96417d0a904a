# SPDX-License-Identifier: GPL-2.0-only
"""What guests of tools/soak.py show, its scripts, and where a job goes on."""

import os
import shutil
import signal
import subprocess
from contextlib import nullcontext
from pathlib import Path

import pytest
from conftest import (check_none_left, environment, heed_signals, left,
                      wait_until, write_program)

from tools import ktap, records, soak
from tools.core import Fail, Given, Kernel
from tools.count import Count

ROWS = {row["name"]: (job, row | {"number": 1}) for job in soak.RUNS
        for row in soak.rows_of(job)}
KTAP = "1..3\nok 1 global.one\nok 2 a.two # SKIP no\nok 3 global.three\n"
MIGRATE = "1..2\nok 1 a\nok 2 # SKIP exit-migrate: needs two CPUs\n"
FAULTS = "1..1\nok 1 without_memory.a # SKIP no\n"
WAKES = "# iopl: CPU 0: wakes 25000 hits 0\n"
NOTHING = "1..1\nok 1 ioperm_refused.nothing_at_first\n"


@pytest.mark.parametrize("row, program, text, fails", [
    # A skip that is not listed, one of another row, and listed ones.
    ("2cpus", "ioperm_64", KTAP, "'ioperm_64: a.two', 'a skip that"),
    ("2cpus", "ioperm_drop_race_32", MIGRATE, "exit-migrate', 'a skip that"),
    ("1cpu", "ioperm_drop_race_32", MIGRATE, ""),
    ("4cpus", "ioperm_boundaries_64", FAULTS, ""),
    # Under load anything may skip, and nothing may fail.
    ("ports", "ioperm_64", KTAP, ""),
    ("ports", "ioperm_64", KTAP.replace("ok 3", "not ok 3"), "1 failed"),
    # What has to pass where ports are refused; also of a program that is gone.
    ("nobody", "ioperm_64", NOTHING, "unprivileged_enables_nothing has to"),
    ("noioperm", "ioperm_64", FAULTS, "nothing_at_first has to pass"),
    ("noioperm", "ioperm_64", NOTHING, "iopl_??: iopl_refused.nothing_at"),
    # What else is wrong with it is in test_count.py.
    ("1-cpu-base-iopl", "", WAKES, "not hit"),
    # No case of a script may skip, and none may be missing.
    ("ioperm_random", "", KTAP, "a.two', 'skipped"),
    ("ioperm_random", "", KTAP[:-20], "2 of its 3 cases")])
def test_what_a_guest_shows(kernel: Kernel, replace, row: str, program: str,
                            text: str, fails: str) -> None:
    replace(soak, boot_selftests=lambda *_: {program: ktap.Run(text, 0, 3)},
            boot_row=lambda *_, **__: text, programs=lambda *_: ["prog"])
    replace(soak.build, build_bench=lambda *_: Path("prog"))
    count, (job, row) = Count(), ROWS[row]
    count.expected = []
    soak.RUNS[job](kernel, row, count, Path("log"))
    assert (bool(fails), fails in str(count.rows)) == (
        bool(count.failed), True), count.rows


def start(root: Path, words: str, commands: dict[str, str]
          ) -> subprocess.Popen:
    """Start a script of soak in a root that has these commands."""
    for name, text in commands.items():
        write_program(root / name, text)
    for place in ("tmp", "sys/kernel/debug", "sys/fs/cgroup/heavy",
                  "sys/fs/cgroup/throttled", "sys/devices/system/cpu/cpu1"):
        (root / place).mkdir(parents=True)
    return subprocess.Popen(
        ["sh", "-c", f"exec sh {soak.SCRIPTS}/{words}"], text=True,
        stdout=subprocess.PIPE, stderr=subprocess.DEVNULL,
        preexec_fn=heed_signals, env=environment(
            SOAK_ROOT=root, PATH=f"{root}:{os.environ['PATH']}"))


@pytest.mark.parametrize("words, bad, fails, number", [
    ("stress.sh 1 program", "program", "exit_status nothing_leaked", 2),
    ("yield-stress.sh 4 program hotplug", "chrt", "idle batch fifo", 11),
    ("yield-stress.sh 4 program core-scheduling", "stress-ng hackbench",
     "nice stress-ng throttled hackbench", 12)])
def test_a_script_tells_what_failed(tmp_path: Path, words: str, bad: str,
                                    fails: str, number: int) -> None:
    """Where the commands are there, and take no time."""
    names = "stress-ng hackbench python3 chrt nice mount sleep program".split()
    with start(tmp_path, words, {
            name: 'shift 2; exec "$@"\n' * (name == "nice")
            + f"echo '] yield 7 '\nexit {int(name in bad.split())}\n"
            for name in names}) as run:
        report = ktap.parse(run.communicate()[0])
    assert report.those("fail") == fails.split()
    assert len(report.cases) == number and not report.wrong


@pytest.mark.parametrize("sig", ["INT", "TERM", "KILL"])
@pytest.mark.parametrize("words", [
    "stress.sh 40 program", "yield-stress.sh 40 program hotplug",
    "yield-stress.sh 40 program core-scheduling"])
def test_nothing_of_a_script_is_left(tmp_path: Path, words: str,
                                     sig: str) -> None:
    sleep, run = f"exec {shutil.which('sleep')} ", 'shift 2; exec "$@"\n'
    process = start(tmp_path, words, {
        "sleep": f"{sleep} 0.2\n", "stress-ng": f"{sleep} 30\n",
        "program": f"{sleep} 1\n", "hackbench": f"{sleep} 1\n",
        "mount": "", "python3": run, "nice": run, "chrt": run})
    wait_until("its parts run",
               lambda: len(left(tmp_path)) > 1 + 8 * ("yield" in words))
    process.send_signal(getattr(signal, f"SIG{sig}"))
    process.communicate()
    check_none_left(tmp_path)


def test_what_ran_here_counts_with_its_date(kernel: Kernel, replace) -> None:
    """A job goes on, and a row with a failure begins anew."""
    boots, noted, dates = [], [], iter("123456")

    def run(*_: object) -> None:
        word = boots.pop(0)
        if word == "stop":
            raise KeyboardInterrupt
        if word == "bad":
            raise Fail("it is bad")

    replace(soak, begin=lambda kernel: "1", RUNS={"load": run, "repeat": run},
            begun=lambda: records.Begun(next(dates), "c"),
            record=lambda kernel, *words: noted.append(words))
    replace(soak.build, source_key=lambda *_: "", test_key=lambda *_: "")
    for more, words, numbers in (
            ({}, "a stop", ()), ({}, "b c bad", (3, 1, 0)),
            # The row, then nothing, a part, one that runs once.
            ({}, "d e", (4, 0, 0)), ({}, "", ()),
            ({"ONLY": "ports", "TIMES": "3"}, "f", ()),
            ({"JOB": "repeat", "ONLY": "nobody"}, "g", ())):
        boots[:] = words.split()
        noted.clear()
        with pytest.raises(KeyboardInterrupt) if "stop" in words else \
                nullcontext():
            assert soak.main(kernel, Given({"JOB": "load"} | more)) == int(
                "bad" in words)
        assert boots == [] and noted == [
            ("soak load", numbers, ("1", "c"))] * bool(numbers)
