# SPDX-License-Identifier: GPL-2.0-only
"""The jobs of tools/lab, what comes back, and the roots they run in."""

import json
import os
import subprocess
from collections.abc import Callable
from pathlib import Path

import pytest
from conftest import environment, running, wait_until, write, write_program

from tools import core, debian, lab
from tools.core import Fail
from tools.count import Count

KSELFTEST = """\
echo "# options: $*"
echo '# ok 1 not the outermost level'
echo 'ok 1 selftests: x86: good_64'
echo 'not ok 2 selftests: x86: bad_64 # exit=1'
echo 'ok 3 selftests: x86: missing_64 # SKIP'
"""
GOOD = dict.fromkeys(lab.NEEDED, "pass")


@pytest.fixture(autouse=True)
def place(tmp_path: Path, replace: Callable) -> Path:
    """A folder for all that is written."""
    replace(core, BUILD=tmp_path)
    replace(lab, BOARDS=tmp_path / "boards", RESULTS=tmp_path / "results")
    return tmp_path


@pytest.mark.skipif(not lab.SCHEMA.exists(), reason="needs lava-common")
def test_a_job_boots_both_kernels_on_one_board(place: Path) -> None:
    lab.check_jobs()
    write(place, {"boards/kernels.json": '{"base": "aa", "series": "bb"}'})
    lab.write_jobs("http://x/", "")
    text = (place / "boards/apu2.yaml").read_text()
    for word in ("http://x/bzImage-base", "http://x/bzImage-series",
                 "run.sh base aa", "run.sh series bb"):
        assert word in text


def test_a_wrong_row_is_refused(place: Path, replace: Callable) -> None:
    replace(lab, LAB=place)
    for rows, line in (("a qemu x\n\nx86 floppy\n", 3), ('x86 grub a"b\n', 1)):
        write(place, {"boards.txt": rows})
        with pytest.raises(Fail, match=f"line {line}: want a device type"):
            lab.boards()


def run_board(place: Path, *more: str, runner: str = KSELFTEST,
              latency: str = "") -> list[str]:
    write(place, {"kselftest/kselftest-list.txt": "x86:good_64",
                  "notes": "GNU\0bb\0"})
    for name, text in (("kselftest/run_kselftest.sh", runner),
                       ("kselftest/x86/ioperm_latency_64", latency),
                       ("dmesg", "echo all is well\n"),
                       ("lava-test-case", 'echo "$1 $3"\n')):
        write_program(place / name, text)
    return subprocess.run(
        ["sh", core.ROOT / "tools/lab/run.sh", "series", *more], text=True,
        env=environment(LAB_TOP=place, LAB_NOTES=place / "notes",
                        PATH=f"{place}:{os.environ['PATH']}"),
        capture_output=True, timeout=60).stdout.splitlines()


def test_each_selftest_is_a_result(place: Path) -> None:
    told = run_board(place, "6262", "x86:one", "x86:two")
    assert [row for row in told if row.split()[-1] in
            ("pass", "fail", "skip")] == [
        "kernel pass", "x86.good_64 pass", "x86.bad_64 fail",
        "x86.missing_64 skip", "kselftest-ran pass", "ioperm_latency fail",
        "dmesg pass"]
    assert "# options: -c x86 -S x86:one -S x86:two" in told
    assert run_board(place, "6363")[-1] == "kernel fail"
    assert "kselftest-ran fail" in run_board(place, runner="")


def test_results_and_figures_come_back(place: Path) -> None:
    def collect(cases: dict[str, str], told: list[str]) -> lab.Found:
        rows = [f'"results", "msg": {{"case": "{name}", "definition": '
                f'"0_series", "endtc": ! "4", "result": "{verdict}"}}'
                for name, verdict in cases.items()]
        rows += [f'"target", "msg": "{row}"' for row in told]
        write(place, {"log": "".join(
            f'- {{"dt": "2026-11-20", "lvl": {row}}}\n' for row in rows)})
        return lab.collect(place / "log")

    report = {"cases": [{"name": "none", "p50": n} for n in range(99)]}
    told = run_board(place, latency='cat >"$2" <<END\n'
                     f"{json.dumps(report)}\nEND\n")
    assert collect(GOOD, told)["series"] == {
        "cases": GOOD, "figures": {"ioperm_latency": report}}
    told.remove(next(row for row in told if row.startswith("LAB-DATA")))
    for cases, words in ((GOOD, "latency measured .* damaged"),
                         ({}, "is it the raw log")):
        with pytest.raises(Fail, match=words):
            collect(cases, told)


@pytest.mark.parametrize("base, series, pattern, failed", [
    ({}, {}, "", 0), ({"dmesg": "fail"}, {}, "", 1),
    ({"x86.iopl": "skip"}, {"x86.iopl": "fail"}, lab.OWN, 1),
    ({"x86.iopl": "fail"}, {"x86.iopl": "fail"}, "", 0),
    ({"x86.amx": "pass"}, {"x86.amx": "fail"}, lab.OWN, 0),
    ({"x86.amx": "pass"}, {"x86.amx": "fail"}, "", 1),
    ({"x86.iopl": "fail"}, {}, lab.OWN, 1),
    ({}, {"sched.new": "fail"}, lab.OWN, 1)])
def test_no_test_may_be_worse(place: Path, base: dict, series: dict,
                              pattern: str, failed: int) -> None:
    found = {side: {"cases": GOOD | cases, "figures": {}} for side, cases
             in (("base", base), ("series", series))}
    count = Count()
    lab.count_board(count, "apu2", found, pattern)
    assert count.failed == failed
    assert json.loads((place / "results/lab.json").read_text()) == {
        "apu2": found}


def test_nothing_outlives_a_root() -> None:
    if reason := debian.no_mounts():
        pytest.skip(reason)
    process = subprocess.Popen(debian.inside(
        Path("/"), ["sh", "-c", "setsid sleep 98765 & sleep 100"],
        network=False))
    wait_until("it runs", lambda: running("sleep", "98765") > 0)
    process.kill()
    process.wait(timeout=30)
    wait_until("it ends", lambda: running("sleep", "98765") == 0)
