# SPDX-License-Identifier: GPL-2.0-only
"""The jobs of tools/lab, what comes back, and the roots they run in."""

import json
import os
import shutil
import subprocess
import tarfile
import time
from collections.abc import Callable
from pathlib import Path

import pytest
from conftest import environment, write

from tools import bare, core, debian, lab
from tools.core import Fail
from tools.count import Count

KSELFTEST = """#!/bin/sh
echo "# options: $*"
echo '# ok 1 not the outermost level'
echo 'ok 1 selftests: x86: good_64'
echo 'not ok 2 selftests: x86: bad_64 # exit=1'
echo 'ok 3 selftests: x86: missing_64 # SKIP'
"""
GOOD = dict.fromkeys(lab.NEEDED, "pass")
needs_schema = pytest.mark.skipif(not lab.SCHEMA.exists(),
                                  reason="needs lava-common")


@pytest.fixture(autouse=True)
def place(tmp_path: Path, replace: Callable) -> Path:
    """A folder for all that is written, with a copy of tools/lab."""
    shutil.copytree(core.ROOT / "tools/lab", tmp_path / "lab")
    replace(core, BUILD=tmp_path)
    replace(lab, LAB=tmp_path / "lab", BOARDS=tmp_path / "boards",
            RESULTS=tmp_path / "results", LOGS=tmp_path / "logs")
    replace(bare, PLACE=tmp_path / "bare/root", LOGS=tmp_path / "logs")
    return tmp_path


def program(path: Path, text: str) -> None:
    write(path.parent, {path.name: text})
    path.chmod(0o755)


@needs_schema
def test_a_wrong_job_is_found(place: Path) -> None:
    lab.check_jobs()
    for name, old, new in (("board", "to: tftp", "to: tftpp"),
                           ("test", "minutes: 120", "minutes: 1201")):
        path = place / f"lab/{name}.yaml"
        text = path.read_text()
        path.write_text(text.replace(old, new))
        with pytest.raises(Fail, match="is not a job"):
            lab.check_jobs()
        path.write_text(text)


@needs_schema
def test_a_job_boots_both_kernels_on_one_board(place: Path) -> None:
    write(place, {"lab/boards.txt": "qemu qemu\napu2 ipxe console=ttyS0\n"})
    with pytest.raises(Fail, match="give FILES=URL"):
        lab.write_jobs("", "")
    with pytest.raises(Fail, match="lab --pack"):
        lab.write_jobs("http://x", "")
    write(place, {"boards/kernels.json": '{"base": "aa", "series": "bb"}'})
    lab.write_jobs("http://x/", "")
    text = (place / "boards/apu2.yaml").read_text()
    for word in ("http://x/bzImage-base", "http://x/bzImage-series",
                 "http://x/root.cpio.gz", "./run.sh base aa",
                 "./run.sh series bb", "method: ipxe", "console=ttyS0"):
        assert word in text
    assert not (place / "boards/qemu.yaml").exists()


@pytest.mark.parametrize("rows, why", [
    ("qemu qemu\n\nx86 floppy\n", "line 3"), ("x86 grub\n", "no row"),
    ('x86 grub a"b\n', "line 1")])
def test_a_wrong_row_is_refused(place: Path, rows: str, why: str) -> None:
    write(place, {"lab/boards.txt": rows})
    with pytest.raises(Fail, match=why):
        lab.boards()


def test_what_a_board_loads(place: Path, replace: Callable) -> None:
    write(place, {"k/x/iopl_64": "", "obj/bzImage": "image", "root": ""})
    subprocess.run(["gcc", "-shared", "-nostdlib", "-x", "c", "/dev/null",
                    "-Wl,--build-id=0xab12cd34", "-o", place / "obj/vmlinux"],
                   check=True)
    replace(lab, build_sides=tuple, source=str, make_arguments=str,
            install=lambda *_: place / "k", board_root=lambda: place / "root",
            image=lambda _: place / "obj/bzImage",
            objects=lambda _: place / "obj")
    assert lab.pack({"series": "x"}, lab.BOARDS) == {"series": "ab12cd34"}
    assert (lab.BOARDS / "bzImage-series").read_text() == "image"
    with tarfile.open(lab.BOARDS / "lab.tar.xz") as tar:
        names = {member.name: member for member in tar}
    assert names["opt/lab/run.sh"].mode & 0o111
    assert names["opt/lab/kselftest/x/iopl_64"].uid == 0


def run_board(place: Path, *more: str, runner: str = KSELFTEST,
              latency: str = "") -> list[str]:
    write(place, {"notes": "GNU\0bb\0",
                  "top/kselftest/kselftest-list.txt": "x86:good_64"})
    program(place / "top/kselftest/run_kselftest.sh", runner)
    program(place / "top/kselftest/x86/ioperm_latency_64", latency)
    program(place / "bin/dmesg", "echo all is well")
    program(place / "bin/lava-test-case", 'echo "$1 $3"')
    return subprocess.run(
        ["sh", place / "lab/run.sh", "series", *more], text=True,
        env=environment(LAB_TOP=place / "top", LAB_NOTES=place / "notes",
                        PATH=f"{place / 'bin'}:{os.environ['PATH']}"),
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
    assert "kselftest-ran fail" in run_board(place, runner="#!/bin/sh\n")


def log_of(place: Path, cases: dict[str, str], told: list[str]) -> Path:
    rows = [f'"results", "msg": {{"case": "{name}", "definition": "0_series"'
            f', "endtc": ! "4", "result": "{verdict}"}}'
            for name, verdict in cases.items()]
    rows += [f'"target", "msg": "{row}"' for row in told]
    write(place, {"log": "".join(
        f'- {{"dt": "2026-11-20", "lvl": {row}}}\n' for row in rows)})
    return place / "log"


def test_results_and_figures_come_back(place: Path) -> None:
    report = {"cases": [{"name": "none", "p50": n} for n in range(99)]}
    told = run_board(place, latency="#!/bin/sh\ncat >\"$2\" <<'END'\n"
                     f"{json.dumps(report)}\nEND\n")
    assert lab.collect(log_of(place, GOOD, told)) == {
        "series": {"cases": GOOD, "figures": {"ioperm_latency": report}}}
    first = next(row for row in told if row.startswith("LAB-DATA"))
    told.remove(first)
    with pytest.raises(Fail, match="ioperm_latency measured .* damaged"):
        lab.collect(log_of(place, GOOD, told))
    with pytest.raises(Fail, match="is it the raw log"):
        lab.collect(log_of(place, {}, []))
    write(place, {"log": '- {"lvl": "error", "msg": "JobError: no disk"}'})
    with pytest.raises(Fail, match="no disk"):
        lab.collect(place / "log")


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
    lab.count_board(count, "x86", {"series": found["series"]}, pattern)
    assert count.failed >= failed + len(lab.NEEDED)


@pytest.mark.skipif(os.geteuid() != 0, reason="needs root")
@pytest.mark.parametrize("killed", [False, True])
def test_nothing_outlives_a_root(killed: bool) -> None:
    def wait_for(there: bool) -> None:
        end = time.monotonic() + 30
        while (f"sleep\0{98765 + killed}\0".encode() in subprocess.run(
                ["sh", "-c", "cat /proc/[0-9]*/cmdline 2>/dev/null"],
                capture_output=True).stdout) != there:
            assert time.monotonic() < end

    process = subprocess.Popen(debian.inside(
        Path("/"), ["sh", "-c", f"setsid sleep {98765 + killed} & sleep "
                    f"{100 if killed else 2}"], network=False))
    wait_for(True)
    if killed:
        process.kill()
    process.wait(timeout=30)
    wait_for(False)


@pytest.mark.parametrize("command, wrong", [
    ("echo", ""), ("false", "status 1"),
    ("make check", "its last line is 'make: 1 passed, 1 failed'")])
def test_commands_on_a_bare_debian(
        place: Path, replace: Callable, monkeypatch: pytest.MonkeyPatch,
        command: str, wrong: str) -> None:
    program(place / "bin/make", "echo 'make: 1 passed, 1 failed'\n")
    monkeypatch.setenv("PATH", f"{place / 'bin'}:{os.environ['PATH']}")
    replace(bare, why_not=str, git=lambda *_, **__: "",
            make_root=lambda root, *_: root.mkdir(parents=True),
            inside=lambda root, words: [*words[:2], command])
    count = Count()
    bare.group(count, (command,))
    assert count.failed == bool(wrong)
    assert wrong in "".join(row[2] for row in count.rows if row[0] == "fail")
    assert not (place / "bare").exists()
    replace(bare, why_not=lambda: "needs root")
    count.expected.append("bare: *")
    bare.group(count, (command,))
    assert count.skipped == 1
