# SPDX-License-Identifier: GPL-2.0-only
"""tools/bench: the programs compile without a warning, measure and refuse."""

import json
import shutil
import signal
import subprocess
import time
from pathlib import Path

import pytest
from conftest import ROOT, heed_signals

# A few tenths of a second each. ioperm_random is not run: it reads ports, and
# so does port_readers.
PROGRAMS = {
    "pi_ping": (("--loads", "0,2", "--seconds", "0.1"),
                ["reference", "load-0", "load-2"]),
    "interactive_latency": (
        ("--task", "audio", "--load", "none,memload", "--seconds", "0.2",
         "--mem-mb", "1"),
        ["audio-none-processes", "audio-memload-processes"]),
    "ioperm_memory": (("--tasks", "2"), ["port-0x80", "port-65535",
                                         "below-0x400", "every-line", "all"]),
    "ioperm_random": (("--seconds", "0"), []),
    "port_readers": (("--turns", "0"), [])}


@pytest.fixture(params=PROGRAMS)
def program(request, tmp_path) -> Path:
    """A program of tools/bench, which no compiler warns of."""
    path = tmp_path / request.param
    for compiler in filter(shutil.which, ("clang-19", "gcc")):
        subprocess.run(["make", "-B", "-C", ROOT / "tools/bench", path,
                        f"OUTPUT={tmp_path}", f"CC={compiler}",
                        "CFLAGS=-O2 -Werror"], check=True)
    return path


def test_a_program_writes_its_figures_or_refuses(program, tmp_path) -> None:
    words, cases = PROGRAMS[program.name]
    if cases:
        report = tmp_path / "report"
        done = subprocess.run([program, "--json", report, *words])
        found = json.loads(report.read_text())
        assert found["benchmark"] == program.name
        assert [case["name"] for case in found["cases"]] == cases
        states = {case["status"] for case in found["cases"]}
        assert "fail" not in states
        assert done.returncode == (0 if "ok" in states else 4)
    for wrong in (["--none"], ["more"], [words[0], "-1"],
                  ["--json", tmp_path / "no/file"]):
        assert subprocess.run([program, *wrong]).returncode == 1, wrong


@pytest.mark.parametrize("program", ["pi_ping", "interactive_latency"],
                         indirect=True)
def test_an_interrupted_program_leaves_no_task(program) -> None:
    with subprocess.Popen([program, "--seconds", "20"], text=True,
                          stdout=subprocess.PIPE,
                          preexec_fn=heed_signals) as process:
        process.stdout.readline()
        time.sleep(0.3)
        process.send_signal(signal.SIGTERM)
        # Every task of it has the pipe, so this waits for all.
        process.stdout.read()
    assert process.returncode == -signal.SIGTERM
