# SPDX-License-Identifier: GPL-2.0-only
"""What guests of tools/soak.py show, its scripts, and where a job goes on."""

import fnmatch
import os
import re
import shutil
import signal
import subprocess
from collections.abc import Callable
from contextlib import nullcontext
from pathlib import Path

import pytest
from conftest import (ROOT, check_none_left, environment, heed_signals, left,
                      running, wait_until, write_program)

from tools import ktap, soak
from tools.core import read_json
from tools.count import Count, listed

ROWS = {row.name: row for rows in soak.jobs(8, 2).values() for row in rows}
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
def test_what_a_guest_shows(replace: Callable, row: str, program: str,
                            text: str, fails: str) -> None:
    replace(soak.Selftests, runs=lambda *_: {program: ktap.Run(text, 0, 3)})
    replace(soak.Row, boot=lambda *_, **__: text)
    replace(soak, programs=lambda *_: (Path("prog"),), build_bench=Path)
    count = Count()
    count.expected = []
    ROWS[row].run(count, "guest", 1)
    assert (bool(fails), fails in str(count.rows)) == (
        bool(count.failed), True), count.rows


def test_only_what_ran_here_is_recorded(replace: Callable,
                                        tmp_path: Path) -> None:
    """What is published is no run; nor is it one when nothing was left."""
    rows, made = [ROWS["2cpus"]], []
    replace(soak, RESULTS=tmp_path, begin=lambda: "1", stage=nullcontext,
            source_key=str, test_key=lambda *_: "", compiler_version=str,
            patches_key=str, record=lambda *words: made.append(words[1:4]),
            run_once=lambda *_: {"rows": [["ok", "a", ""]], "note": "",
                                 "seconds": 1})
    for _ in range(2):
        assert soak.soak("repeat", rows, 3, True) == 0
    assert made == [(3, 0, 0)]


def test_each_listed_case_is_of_a_row_and_of_a_test() -> None:
    """The patterns follow the tests when these are renamed."""
    for line in (*listed(soak.CONFIGS / "repeat-skips"),
                 *listed(soak.CONFIGS / "repeat-passes")):
        row, program, case = line.split(": ")
        assert fnmatch.filter(ROWS, row), line
        source = ROOT / f"selftests/x86/{re.sub('_[*?]+$', '', program)}.c"
        # The last part of a name is TEST(name), TEST_F(.., name), "name".
        assert program in ("*", "ioperm_??", "iopl_??") or \
            case.split(".")[-1].strip("*") in source.read_text(), line


def test_the_host_is_busy_until_the_end() -> None:
    loop = "timeout", "3600", "sh", "-c", "while :;"
    before = running(*loop)
    with pytest.raises(KeyboardInterrupt), soak.busy(3):
        wait_until("they run", lambda: running(*loop) == before + 3)
        raise KeyboardInterrupt
    assert running(*loop) == before


def start(root: Path, words: str) -> subprocess.Popen:
    """Start a script of soak in a root that has its commands."""
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
    """In a root in which the commands are there, and take no time."""
    for name in ("stress-ng", "hackbench", "python3", "chrt", "nice", "mount",
                 "sleep", "program"):
        write_program(tmp_path / name, 'shift 2; exec "$@"\n' * (
            name == "nice") + 'echo "] yield 7 "\n'
            f"exit {int(name in bad.split())}\n")
    with start(tmp_path, words) as process:
        report = ktap.parse(process.communicate()[0])
    assert report.those("fail") == fails.split()
    assert len(report.cases) == number and not report.wrong


@pytest.mark.parametrize("sig", ["INT", "TERM", "KILL"])
@pytest.mark.parametrize("words", [
    "stress.sh 40 program", "yield-stress.sh 40 program hotplug",
    "yield-stress.sh 40 program core-scheduling"])
def test_nothing_of_a_script_is_left(tmp_path: Path, words: str,
                                     sig: str) -> None:
    sleep, run = f"exec {shutil.which('sleep')} ", 'shift 2; exec "$@"\n'
    for name, text in {
            "sleep": f"{sleep} 0.2\n", "stress-ng": f"{sleep} 30\n",
            "program": f"{sleep} 1\n", "hackbench": f"{sleep} 1\n",
            "mount": "", "python3": run, "nice": run, "chrt": run}.items():
        write_program(tmp_path / name, text)
    process = start(tmp_path, words)
    wait_until("its parts run",
               lambda: len(left(tmp_path)) > 1 + 8 * ("yield" in words))
    process.send_signal(getattr(signal, f"SIG{sig}"))
    process.communicate()
    check_none_left(tmp_path)


def test_a_job_goes_on_and_a_failed_row_begins_anew(tmp_path: Path) -> None:
    class Fake(soak.Row):
        def run(self, count: Count, guest: str, number: int) -> str:
            count.test("it", boots[0] == "bad")
            if boots[0] == "stop":
                raise KeyboardInterrupt
            return boots.pop(0)

    report, rows = tmp_path / "report", [Fake("one"), Fake("1", often=False)]
    for times, boots, notes in (
            (2, ["a", "stop"], []), (2, ["b", "c"], ["a", "b", "c"]),
            (3, ["bad"], ["a", "b", "bad", "c"]),
            # Those after the failure count, of which there are none yet.
            (2, ["d", "e"], ["d", "e", "c"]), (1, [], ["d", "c"])):
        kept = read_json(report, {"runs": {}})
        with nullcontext() if notes else pytest.raises(KeyboardInterrupt):
            runs = soak.run_rows("job", rows, times, kept, report)
            assert notes == [run["note"] for row in runs for run in runs[row]]
