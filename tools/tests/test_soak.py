# SPDX-License-Identifier: GPL-2.0-only
"""Tests in a row and under load: what is a pass, a skip and a failure."""

import argparse
import contextlib
import fnmatch
import json
import os
import re
import subprocess
import time
from collections.abc import Callable
from contextlib import nullcontext
from pathlib import Path

import pytest

from tools import build, ktap, soak
from tools.core import ROOT, Fail
from tools.guest import Result

OPTIONS = argparse.Namespace(times=None, seconds=8, cpus=2, only=None,
                             publish=False)


def rows(job: str) -> dict[str, soak.Row]:
    return {row.name: row for row in soak.JOBS[job](OPTIONS)}


def counts(found: soak.Found) -> tuple[int, int, int]:
    return found.passed, found.failed, found.skipped


def whys(found: soak.Found) -> str:
    return "; ".join(f"{name}: {why}" for word, name, why in found.rows
                     if word == "fail")


# --- repeat and load -------------------------------------------------------

KTAP = "1..3\nok 1 global.one\nok 2 a.two # SKIP no\nok 3 global.three\n"
MIGRATE = "1..2\nok 1 a\nok 2 # SKIP exit-migrate: needs two CPUs\n"


def judge(row: str, text: str, program: str = "ioperm_64") -> soak.Found:
    found = soak.Found()
    (rows("repeat") | rows("load"))[row].judge(
        found, {program: ktap.Run(text, 0, 3)}, Path("log"))
    return found


@pytest.mark.parametrize("row, program, text, passed, why, skipped", [
    ("2cpus", "ioperm_64", "1..1\nok 1 a\n", 1, "", 0),
    ("2cpus", "ioperm_64", "1..1\nnot ok 1 a\n", 0, "1 failed", 0),
    # A skip that is not listed, one of another row, and listed ones.
    ("2cpus", "ioperm_64", KTAP, 1, "does not list a.two", 0),
    ("2cpus", "ioperm_drop_race_32", MIGRATE, 1, "list exit-migrate", 0),
    ("1cpu", "ioperm_drop_race_32", MIGRATE, 1, "", 0),
    # One of which nothing passed is no pass.
    ("4cpus", "ioperm_faults_64", "1..1\nok 1 task.a # SKIP no\n", 0, "", 1),
    # Under load anything may skip, and nothing may fail.
    ("ports", "ioperm_64", KTAP, 1, "", 0),
    ("ports", "ioperm_64", "1..1\nnot ok 1 a\n", 0, "1 failed", 0)])
def test_what_may_skip(row: str, program: str, text: str, passed: int,
                       why: str, skipped: int) -> None:
    """What else is wrong with KTAP is in test_ktap.py."""
    found = judge(row, text, program)
    assert counts(found) == (passed, bool(why), skipped)
    assert why in whys(found)


def test_what_must_pass_where_ports_are_refused() -> None:
    cases = ["ioperm_refused.nothing_at_first",
             "ioperm_refused.unprivileged_enables_nothing"]
    text = f"1..2\nok 1 {cases[0]}\nok 2 {cases[1]}\n"

    def missing(row: str, text: str) -> set[str]:
        return set(re.findall(r"ioperm_64: (\S+): it has to",
                              whys(judge(row, text))))

    assert missing("nobody", text) == missing("noioperm", text) == set()
    less = text.replace("2 " + cases[1], f"2 {cases[1]} # SKIP no")
    assert missing("nobody", less) == {cases[1]}
    assert missing("noioperm", less) == set()
    assert missing("noioperm", "1..0 # SKIP no\n") == {cases[0]}
    # A program that is gone is missing, too.
    assert "iopl_??: iopl_refused" in whys(judge("nobody", text))


def test_each_skip_and_each_must_is_of_a_row_and_of_a_test() -> None:
    """The patterns follow the tests when these are renamed."""
    source = "".join(path.read_text() for path in
                     (ROOT / "selftests/x86").glob("*.c"))
    wanted = [(row, *must) for row in rows("repeat").values()
              for must in row.must] + [
        words for line in soak.SKIPS.read_text().splitlines()
        if (words := line.split("#")[0].strip().split(": "))[0]]
    for row, program, case in wanted:
        assert isinstance(row, soak.Row) or fnmatch.filter(
            rows("repeat"), row), row
        name = re.sub(r"_(\*|\?\?)$", "", program)
        assert program == "*" or (
            ROOT / f"selftests/x86/{name}.c").exists() or \
            name in ("ioperm", "iopl"), program
        # The last part of a name is TEST(name), TEST_F(.., name), "name".
        word = case.split(".")[-1].strip("*")
        assert name in ("ioperm", "iopl") or word in source, case


def test_the_host_is_busy_meanwhile() -> None:
    def loops() -> int:
        # A bare Debian has no ps.
        found = 0
        for process in Path("/proc").glob("[0-9]*"):
            with contextlib.suppress(OSError):
                words = (process / "stat").read_text().rpartition(")")[2]
                found += int(words.split()[1]) == os.getpid() and (
                    process / "cmdline").read_bytes().startswith(
                        b"timeout\0" b"3600\0sh\0-c\0while :;")
        return found

    def wait_until(holds: Callable[[], bool]) -> None:
        end = time.monotonic() + 60
        while not holds():
            assert time.monotonic() < end

    with pytest.raises(KeyboardInterrupt), soak.busy(3):
        wait_until(lambda: loops() == 3)
        raise KeyboardInterrupt
    wait_until(lambda: loops() == 0)


def test_the_race_looks_where_it_can_be_hit() -> None:
    found = rows("race")
    series = found["1-cpu-series-iopl"].command("prog", 1)
    assert "for c in iopl; do for s in 1; do " in series
    assert "prog --case $c --seed $s --wakes 200000 " in series
    # On the base with other seeds in the second run; test_count.py tells
    # which of them.
    base = found["1-cpu-base-iopl"].command("prog", 2)
    assert "for s in 13 14 15 " in base and "--wakes 25000 " in base
    # An emulator that interrupts between blocks only never hits the base.
    assert {row.wakes for row in found.values()
            if row.kernel == "base" and row.cpus == 2} == {soak.STEPPED}


def test_what_the_race_showed() -> None:
    """What else is wrong with it is in test_count.py."""
    for row, wakes, failed in (("1-cpu-base-iopl", 50, 1), (
            "1-cpu-series-iopl", 200000, 0), ("1-cpu-series-iopl", 50, 1)):
        found = soak.Found()
        rows("race")[row].judge(found, f"# iopl: CPU 0: wakes {wakes} hits 0")
        assert counts(found) == (1 - failed, failed, 0)


@pytest.mark.parametrize("said, wanted", [
    ("-singlestep     one at a time\n", "-singlestep"),
    ("-singlestep     deprecated\n  one-insn-per-tb=on|off\n",
     "-accel tcg,one-insn-per-tb=on"),
    ("  one-insn-per-tb=on|off\n", "-accel tcg,one-insn-per-tb=on")])
def test_single_steps_with_old_and_new_qemu(monkeypatch, said: str,
                                            wanted: str) -> None:
    monkeypatch.setattr(soak.subprocess, "run", lambda *_, **__:
                        subprocess.CompletedProcess([], 0, said))
    assert soak.single_step.__wrapped__().endswith(f"-fsrm {wanted}")


STRESS = """@@ begin ioperm_random
1..6
# 600 s: accesses 9
ok 1 accesses
ok 2 bitmaps
ok 3 calls
ok 4 tasks
ok 5 hotplug
ok 6 failslab
@@ end ioperm_random 0 600
@@ begin kmemleak
@@ end kmemleak 0 0
"""


@pytest.mark.parametrize("old, new, words", [
    ("", "", ""), ("ok 1 acc", "not ok 1 acc", "accesses: fail"),
    ("ok 5 hotplug\n", "", "hotplug: no result"),
    ("ok 6 failslab", "ok 6 # SKIP failslab: no debugfs", "skip: no debugfs"),
    ("random 0", "random 139", "exit status: 139"),
    ("begin kmemleak\n", "begin kmemleak\nunreferenced 1\n",
     "leaked: unreferenced 1"),
    ("kmemleak 0", "kmemleak 1", "kmemleak cannot be read")])
def test_what_the_stress_showed(old: str, new: str, words: str) -> None:
    found = soak.Found()
    rows("stress")["ioperm_random"].judge(found, STRESS.replace(old, new, 1))
    assert (found.failed, words in whys(found)) == (bool(words), True)
    assert found.note == "accesses 9"


@pytest.mark.parametrize("guest", ["hotplug", "core-scheduling"])
def test_yields_run_beside_each_other(tmp_path: Path, guest: str) -> None:
    row = rows("yield-stress")[guest]
    # The commands are there, and take no time.
    for name in ("stress-ng", "hackbench", "python3", "chrt", "nice", "mount",
                 "sleep", "program"):
        path = tmp_path / name
        path.write_text("#!/bin/sh\necho \"] yield 7 \"\nexit "
                        f"{int(name == 'chrt')}\n")
        path.chmod(0o755)
    text = row.script("program").replace("/tmp/", f"{tmp_path}/").replace(
        "/sys/", f"{tmp_path}/sys/").replace(
        "end=$(($(date +%s) + seconds))", "end=0")
    for place in ("throttled", "heavy"):
        (tmp_path / "sys/fs/cgroup" / place).mkdir(parents=True)
    done = subprocess.run(["sh", "-c", text], capture_output=True, text=True,
                          env={"PATH": f"{tmp_path}:/usr/bin:/bin"})
    found = soak.Found()
    row.judge(found, done.stdout)
    assert re.findall(r"(\S+): exit status 1: \] yield 7", whys(found)) == \
        ["idle", "batch", "fifo"]
    assert counts(found)[1] == 3, whys(found)
    # The part moves itself there, not the shell that started it.
    assert (tmp_path / "sys/fs/cgroup/throttled/cgroup.procs").read_text() \
        == "0\n"


def test_each_kind_of_yield_runs_in_a_guest() -> None:
    assert {name for row in rows("yield-stress").values()
            for name in row.parts()} == set(soak.PARTS)
    # One whose cgroup cannot be made, and of which nothing is heard.
    found = soak.Found()
    rows("yield-stress")["core-scheduling"].judge(found, "no cgroup\n")
    assert counts(found)[0] == 0


HACKBENCH = "Running\nTime: 1.600\n"
STRESS_NG = ("stress-ng: metrc: [9] sockpair  120396  1.19  0.17  0.93"
             "  101183.81  109546.71\nstress-ng: metrc: [9] sockpair  743.90 "
             "MB written per sec\n")


def test_rates() -> None:
    for text, status, figure in (
            (HACKBENCH, 0, 100000), (STRESS_NG, 0, 101183.81),
            (HACKBENCH, 1, None), ("", 0, None)):
        assert soak.rate(ktap.Run(text, status, 1)) == figure


def test_base_and_series_are_compared() -> None:
    found = {side: [dict.fromkeys(soak.WORKLOADS, value) for value in values]
             for side, values in (("base", (1000, 1010, 900)),
                                  ("series", (990, 990, 990)))}
    *_, row = soak.throughput_tables(found)
    assert row == "| stress-ng-sockpair | 1000 | 990 | 0.990 | 11.0 % |"
    del found["base"]
    assert "hackbench" not in "".join(soak.throughput_tables(found))


# --- the whole -------------------------------------------------------------

@pytest.fixture
def guests(tmp_path: Path, replace) -> dict[str, list[str]]:
    """Guests in which one test runs: those that booted, and what is bad."""
    found: dict[str, list[str]] = {"booted": [], "bad": [], "stop": []}

    def boot(folder: Path, command: str, name: str, **more: object) -> Result:
        found["booted"].append(name)
        found["icount"] = [str(more.get("icount"))]
        if name in found["stop"]:
            raise KeyboardInterrupt
        verdict = "not ok" if name in found["bad"] else "ok"
        status = int(name in found["bad"])
        return Result(0, f"@@ begin iopl_64\n1..1\n{verdict} 1 a\n@@ end "
                      f"iopl_64 {status} 3\n", tmp_path / "console")

    replace(soak, boot=boot, RESULTS=tmp_path, PUBLISHED=tmp_path,
            LOGS=tmp_path, begin=lambda: "tip", built=lambda name: tmp_path,
            job_key=lambda *_: "key", choose_kvm=lambda folder: False,
            programs=lambda *_: (Path("/iopl_64"),),
            check_splat=lambda console: None)
    return found


def repeat(times: int, guests: dict[str, list[str]], **more: object) -> int:
    guests["booted"].clear()
    return soak.soak("repeat", argparse.Namespace(
        **vars(OPTIONS) | {"times": times, "only": ["[12]cpu*"]} | more))


def test_known_runs_are_not_run_again(guests, capsys, monkeypatch) -> None:
    assert repeat(2, guests) == 0
    assert len(guests["booted"]) == 4
    assert capsys.readouterr().out.endswith("8 passed, 0 failed, 0 skipped\n")
    assert repeat(3, guests, publish=True) == 0
    assert guests["booted"] == ["repeat-1cpu-3", "repeat-2cpus-3"]
    published = json.loads((soak.PUBLISHED / "repeat.json").read_text())
    assert sorted(map(len, published["runs"].values())) == [3, 3]
    capsys.readouterr()
    assert repeat(1, guests) == 0
    assert capsys.readouterr().out.endswith("4 passed, 0 failed, 0 skipped\n")
    # Another clone has what was published only.
    (soak.RESULTS / "soak-repeat.json").unlink()
    assert repeat(3, guests) == 0
    assert guests["booted"] == []
    # Another configuration is another kernel, and so is another source.
    kernel = build.Kernel(fragments=("guest", "faults"))
    monkeypatch.setitem(soak.KERNELS, "series", kernel)
    for key in ("key", "other"):
        monkeypatch.setattr(soak, "job_key", lambda *_: key)
        repeat(1, guests)
        assert len(guests["booted"]) == 2


def test_after_a_failure_the_row_begins_anew(guests, capsys) -> None:
    guests["bad"] = ["repeat-2cpus-2"]
    assert repeat(3, guests) == 1
    assert len(guests["booted"]) == 6
    assert "1 failed, 0 skipped" in capsys.readouterr().out
    guests["bad"] = []
    # The third one was good, and is the first in a row.
    assert repeat(3, guests) == 0
    assert guests["booted"] == ["repeat-2cpus-2", "repeat-2cpus-3"]


def test_an_interrupted_job_goes_on(guests) -> None:
    guests["stop"] = ["repeat-2cpus-2"]
    with pytest.raises(KeyboardInterrupt):
        repeat(2, guests)
    guests["stop"] = []
    assert repeat(2, guests) == 0
    assert guests["booted"] == ["repeat-2cpus-2"]


def test_a_guest_that_dies_is_a_failure(guests, monkeypatch, capsys) -> None:
    def lost(*_: object, **__: object) -> None:
        raise Fail("a panic")

    monkeypatch.setattr(soak, "boot", lost)
    assert repeat(1, guests) == 1
    assert "FAIL  the guest: a panic" in capsys.readouterr().out


def test_what_runs_once_and_what_under_load(guests, replace) -> None:
    assert repeat(3, guests, only=["noioperm"]) == 1
    assert guests["booted"] == ["repeat-noioperm-1"]
    busy = []
    replace(soak, busy=lambda count: nullcontext(busy.append(count)))
    assert soak.soak("load", argparse.Namespace(
        **vars(OPTIONS) | {"only": ["ports"]})) == 0
    assert busy == [8, 8]
    # The window is hit only where time is counted in instructions.
    rows("race")["1-cpu-base-iopl"].run(soak.Found(), "guest", 1)
    assert guests["icount"] == ["skip-idle"]


def test_a_32_bit_kernel_takes_the_programs_along(guests, replace) -> None:
    replace(soak, boot_tiny=lambda image, programs, **_: [
        (path.name, ktap.Run("1..1\nok 1 a\n", 0, 3)) for path, _ in programs])
    assert repeat(1, guests, only=["i386"]) == 0
    assert guests["booted"] == []
    with pytest.raises(Fail, match="names none of repeat's rows: 1cpu, "):
        repeat(1, guests, only=["3cpus"])


@pytest.mark.parametrize("job, cpus", [("stress", 1), ("yield-stress", 3)])
def test_a_cpu_has_to_go_offline(job: str, cpus: int) -> None:
    options = argparse.Namespace(**vars(OPTIONS) | {"cpus": cpus})
    with pytest.raises(Fail, match="--cpus 2"):
        soak.JOBS[job](options)
