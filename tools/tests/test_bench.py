# SPDX-License-Identifier: GPL-2.0-only
"""make bench: its tables, README.md, what is timed, the programs for that."""

import ctypes
import errno
import json
import os
import re
import resource
import shutil
import signal
import struct
import subprocess
import sys
from contextlib import nullcontext, suppress
from pathlib import Path
from typing import Any

import pytest
from conftest import (ROOT, Box, check_none_left, environment, heed_signals,
                      left, write)

from tools import bench, measure_copy, measure_yield
from tools.core import Fail
from tools.figures import result_of
from tools.guest import Result

SIDES = ("base", "series")
PUBLISHED = (ROOT / "results/bench.json").read_text()


def test_what_is_skipped_says_so_and_has_no_ratio() -> None:
    figures = {"none": (1000, 1000), "pair-all": (4000, None),
               "pair-0x80-65535": (4000, 1500), "sweep-0": (100, 90),
               "sweep-65535": (None, 1), "port-0x80": (None, 131072)}
    report = json.loads(PUBLISHED)
    for place, programs in enumerate(report["sides"].values()):
        for program, figure in (("ioperm_latency", "p50"),
                                ("ioperm_memory", "unreclaimable")):
            for case in programs[program]["cases"]:
                if case["name"] in figures:
                    case[figure] = figures[case["name"]][place]
                    case["status"] = "skip" if case[figure] is None else "ok"
    rows = "\n".join(bench.tables(report))
    for row in ("| pair-0x80-65535 | 4000 | 1500 | 0.38 | 4.00 | 1.50 |",
                "| pair-all | 4000 | skipped | - | 4.00 | - |",
                # Of the sweep, what both sides have.
                "/90 = ", "| port-0x80 | skipped | 128 kB | - |"):
        assert row in rows, row
    assert measure_yield.median(None, None, None) == bench.change(None, 4) == \
        "-"


def test_publish_makes_what_is_published(box: Box) -> None:
    readme = (ROOT / "README.md").read_text()
    begin, end = (f"<!-- bench:{word} -->" for word in ("begin", "end"))
    before, rest = readme.split(begin)
    write(box.build / "results", {"bench.json": PUBLISHED})
    write(box.repo, {
        "README.md": f"{before}{begin}old{end}{rest.split(end)[1]}",
        "results/tested.md": "<!-- tested:begin -->\n<!-- tested:end -->\n"})
    box.done("from tools import bench\nreport = bench.load()\n"
             "bench.record('bench', *bench.count_cases(report), "
             "bench.write_pages(report))\n")
    box.done("tools.publish", say="results/bench.md")
    for name in ("README.md", "results/bench.md"):
        assert (box.repo / name).read_text() == (ROOT / name).read_text()
    assert all((box.repo / "results" / name).exists() for name in bench.PLOTS)
    assert readme.count("\n") <= 100
    assert rest.split(end)[0].count("\n| ") <= 1 + 8


@pytest.mark.parametrize("change, words", [
    (None, "run that first"), ({"copycost": None}, "no whole"),
    ({"accel": "kvm"}, "ACCEL=tcg")])
def test_what_has_no_pages(box: Box, change, words) -> None:
    if change is not None:
        write(box.build / "results", {
            "bench.json": json.dumps(json.loads(PUBLISHED) | change)})
    box.refused("tools.bench", "--pages", say=words)
    assert not (box.build / "results/bench.md").exists()


@pytest.mark.parametrize("status, text", [
    (0, '{"cases": []}\n\n'), (1, "{}"), (None, "{}"), (0, '{"cut off')])
def test_what_a_program_wrote_is_read_or_there_is_an_error(
        tmp_path: Path, status: int | None, text: str) -> None:
    write(tmp_path, {"log": "said\n"})
    with nullcontext() if "cases" in text else pytest.raises(
            Fail, match=rf"status {status} .*\n    \| said"):
        assert result_of("it", status, tmp_path / "log", text) == {"cases": []}


def test_the_worst_phases_of_this_kernel(replace, tmp_path) -> None:
    """Of a share the lowest, of a time the highest."""
    ran, found = [], {("base", "0"): (4, 2e6), ("base", "9"): (2, 3e6),
                      ("series", "0"): (6, 1e6), ("series", "9"): (8, 2e6)}

    def run_isolated(kernel: Path, _: Path, words: list[str], *__: Any,
                     **more: Any) -> Any:
        ran.append(kernel.name)
        share, p99 = found[kernel.name, words[-1]]
        return Result(0, "", tmp_path), json.dumps({"cases": [
            {"name": "polite-a", "kind": "polite", "status": "ok",
             "share": share, "p99": p99}]})
    write(tmp_path, dict.fromkeys((*SIDES, "program"), "built"))
    replace(measure_yield, ROWS=tmp_path / "rows", run_isolated=run_isolated,
            build_program=lambda: tmp_path / "program")
    images = {side: tmp_path / side for side in SIDES}
    for _ in range(2):
        samples = measure_yield.measure_rows(images, (0, 9), ["--all"])
        assert [*measure_yield.worst_rows(samples)] == [
            ["polite-a", "share", "2.00", "6.00", "1.50"],
            ["polite-a", "p99", "3.00", "2.00", "0.67"]]
    assert len(ran) == 4
    images["series"].write_text("another kernel")
    measure_yield.measure_rows(images, (0, 9), ["--all"])
    assert ran[4:] == ["series"] * 2


@pytest.mark.parametrize("side, old, new, words", [
    ("base", "", "", ""),
    ("series", "i < iobm->end", "i + 1 < iobm->end",
     "wrong copy: series, pair-0x80-0x81"),
    ("base", "= iobm->max;", "= 0;", "wrong copy: base, pair-0x80-65535"),
    ("series", "int io_bitmap_is_in(", "int gone(", "failed with status"),
    ("series", "tss_copy", "gone", r"no function tss_copy_io_bitmap\(\)")])
def test_copies_are_timed_if_right(tmp_path, side, old, new, words) -> None:
    trees = {name: tmp_path / name for name in SIDES}
    common, *parts = re.split("// (?:base|series)\n", (
        ROOT / "tools/tests/copies.c").read_text())
    for (name, tree), text in zip(trees.items(), parts, strict=True):
        write(tree, dict(zip(measure_copy.HEADERS, (common, text))) | {
            measure_copy.SOURCE: text if name != side
            else text.replace(old, new)})
    if words:
        with pytest.raises(Fail, match=words):
            measure_copy.measure_copy(trees, rounds=2)
        return
    found = measure_copy.measure_copy(trees, rounds=2)
    assert found["cases"]["pair-0x80-65535"]["base"]["warm"] > 0
    rows = [row for row in measure_copy.tables(found) if row[:1] == "|"]
    assert len(rows) == 2 + len(found["cases"])


# A few tenths of a second, but for those without cases; then what takes long,
# unless ioperm() or KVM is refused.
PROGRAMS = {
    "pi_ping": ("--loads 0,2 --seconds 0.1", "reference load-0 load-2",
                "--seconds 20 --loads 8"),
    "interactive_latency": (
        "--task audio --load none,memload --seconds 0.2 --mem-mb 1",
        "audio-none-processes audio-memload-processes", "--seconds 20"),
    "yield_latency": ("--seconds 0", "", "--storm 9 --case storm-*"),
    "directed_yield": ("--hogs", "", ""),
    "ioperm_memory": ("--tasks 2", "port-0x80 port-65535 below-0x400 "
                      "every-line all", "--tasks 500"),
    "ioperm_random": ("--seconds 0", "", "--seconds 20"),
    "ioperm_turns": ("none=none,none", "none", "pair=0x80,none " * 60),
    "port_readers": ("--turns 0", "", "--turns 9999999")}


@pytest.fixture(scope="session")
def programs(tmp_path_factory) -> Path:
    """A folder with those of tools/bench, which no compiler warns of."""
    place = tmp_path_factory.mktemp("programs")
    for compiler in filter(shutil.which, ("clang-19", "gcc")):
        subprocess.run(["make", "-B", "-C", ROOT / "tools/bench",
                        f"OUTPUT={place}", f"CC={compiler}",
                        "CFLAGS=-O2 -Werror"], check=True)
    return place


@pytest.mark.parametrize("name", PROGRAMS)
def test_a_program_writes_its_figures_or_refuses(programs, tmp_path,
                                                 name) -> None:
    program, report = programs / name, tmp_path / "report"
    words, cases = (text.split() for text in PROGRAMS[name][:2])
    if cases:
        done = subprocess.run([program, "--json", report, *words])
        found = json.loads(report.read_text())
        assert found["benchmark"] == name
        assert [case["name"] for case in found["cases"]] == cases
        states = {case["status"] for case in found["cases"]}
        assert "fail" not in states
        assert done.returncode == (0 if "ok" in states else 4)
    for wrong in (["--none"], ["more"], [words[0], "-1"],
                  ["--json", tmp_path / "no/file"]):
        assert subprocess.run([program, *wrong]).returncode == 1, wrong


def filter_calls(error: int) -> None:
    """Let ioperm(), iopl() and ioctl() do nothing and return an error, or 0:
    no port or virtual CPU of the machine is used."""
    rules = b"".join(struct.pack("HBBI", *rule) for rule in (
        (0x20, 0, 0, 0), (0x15, 3, 0, 173), (0x15, 2, 0, 172),
        (0x15, 1, 0, 16), (6, 0, 0, 0x7fff0000), (6, 0, 0, 0x50000 | error)))
    text = ctypes.create_string_buffer(rules)
    prog = struct.pack("HxxxxxxP", len(rules) // 8, ctypes.addressof(text))
    prctl = ctypes.CDLL(None).prctl
    if prctl(38, 1, 0, 0, 0) or prctl(22, 2, prog, 0, 0):
        sys.exit("no seccomp filter")


@pytest.mark.skipif(subprocess.run(["chrt", "-f", "1", "true"]).returncode,
                    reason="SCHED_FIFO is not allowed")
@pytest.mark.parametrize("name, way", [
    (name, way) for name in PROGRAMS for way in (
        "INT TERM KILL" + " EPERM ENOSYS" * (name[:2] in "iopo")).split()])
def test_nothing_of_a_program_is_left(programs, tmp_path, name, way) -> None:
    """A signal goes to the first task, early or later."""
    number = getattr(signal, f"SIG{way}", 0)
    for delay in (0.01, 0.3) if number else (30,):
        process = subprocess.Popen(
            [programs / name, *PROGRAMS[name][2].split()],
            env=environment(PLACE=tmp_path), preexec_fn=lambda: (
                heed_signals(), filter_calls(getattr(errno, way, 0))))
        with suppress(subprocess.TimeoutExpired):
            process.wait(delay)
        limits = []
        for pid in left(tmp_path):
            with suppress(ProcessLookupError):  # it has just ended
                limits.append((os.sched_getscheduler(pid) & os.SCHED_FIFO,
                               resource.prlimit(
                                   pid, resource.RLIMIT_RTTIME)[1]))
        if number:
            process.send_signal(number)
        check_none_left(tmp_path)
        assert all(0 < limit < 60e6 for fifo, limit in limits if fifo)
        # These two find out that no port is enabled.
        assert process.wait(30) in (-number, 0, 4) or number and name in (
            "ioperm_random", "port_readers")
