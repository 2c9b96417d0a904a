# SPDX-License-Identifier: GPL-2.0-only
"""make bench: what is measured, its tables, README.md; tools/bench itself."""

import json
import os
import shutil
import signal
import subprocess
import time
from pathlib import Path
from typing import Any

import pytest
from conftest import ROOT, Box, heed_signals, write

from tools import bench, core, measure_copy, measure_ports, measure_yield
from tools.core import Fail
from tools.guest import Result
from tools.tables import console, table

SIDES = ("base", "series")
PORTS, MEMORY, YIELD = "ioperm_latency", "ioperm_memory", "yield_latency"


def published(**figures: tuple[float | None, float | None]) -> dict[str, Any]:
    """Return the published result with other figures.

    They are the p50 of a switch or call, or the memory of ports, on base and
    series, by the name of the case; None skips it.
    """
    report = json.loads((ROOT / "results/bench.json").read_text())
    for place, side in enumerate(SIDES):
        for program, figure in ((PORTS, "p50"), (MEMORY, "unreclaimable")):
            for case in report["sides"][side][program]["cases"]:
                if case["name"] in figures:
                    case[figure] = figures[case["name"]][place]
                    case["status"] = "skip" if case[figure] is None else "ok"
    return report


# --- tables ----------------------------------------------------------------

def test_a_table_in_markdown_and_for_a_terminal():
    rows = table(["call", "base"], [["ioperm", "5"], ["longer name", "123"]])
    assert rows == ["| call | base |", "|---|---:|", "| ioperm | 5 |",
                    "| longer name | 123 |"]
    assert console(["Title:", "", *rows, "", "![a picture](a.svg)",
                    "word " * 30]) == (
        "Title:\n\ncall         base\nioperm          5\nlonger name   123\n"
        "\n" + ("word " * 16).strip() + "\n" + ("word " * 14).strip())


def test_what_is_skipped_says_so_and_has_no_ratio():
    rows = "\n".join(bench.tables(published(**{
        "none": (1000, 1000), "pair-all": (4000, None),
        "pair-0x80-65535": (4000, 1500), "sweep-0": (100, 90),
        "sweep-65535": (None, 1), "port-0x80": (None, 131072),
        "port-65535": (16384000, 131072)})))
    for row in ("| pair-0x80-65535 | 4000 | 1500 | 0.38 | 4.00 | 1.50 |",
                "| pair-all | 4000 | skipped | - | 4.00 | - |",
                # Of the sweep, what both sides have.
                "/90 = ", "| port-0x80 | skipped | 128 kB | - |",
                "| port-65535 | 16000 kB | 128 kB | 0.008 |"):
        assert row in rows, row
    assert "| pair-all | 4000 | 1050 | 0.26 | - | 1.05 |" in bench.tables(
        published(**{"none": (None, 1000), "pair-all": (4000, 1050)}))


def test_a_base_that_was_not_measured_has_no_ratio():
    result = published()["yield"]
    off, on = (case for case in result["sides"]["series"]["cases"]
               if case["name"] == "switch-proc-2")
    off["ns_per_switch"], on["ns_per_switch"] = 1000, 1020
    del result["sides"]["base"]
    assert "| 2 processes | - | 1000 | 1020 | - | - |" in \
        measure_yield.tables(result)


@pytest.mark.parametrize("figures, text", [
    ((9.99e6, 1e3, 20.01e6), "0.00 or 20"),
    ((9.99e6, 9.98e6, 9.99e6), "9.99"),
    ((1.5e6, None, None), "1.50"), ((None, None, None), "-")])
def test_a_median_between_two_kinds_of_calls(figures, text):
    assert measure_yield.median(*figures) == text


def test_the_fair_limit():
    assert measure_yield.fair_limit(100, 3, 10**6) == pytest.approx(2.94, .01)
    assert measure_yield.fair_limit(1000, 1, 10**6) == pytest.approx(100 / 3)


# --- guests ----------------------------------------------------------------

@pytest.mark.parametrize("status, text", [
    (0, '{"cases": []}\n\n'), (1, "{}"), (None, "{}"), (0, ""),
    (0, '{"cut off')])
@pytest.mark.parametrize("module, name, clock", [
    (measure_ports, "boot", "'icount': 'wait-idle'"),
    (measure_yield, "boot_tiny", "shift=0,sleep=off")])
def test_what_the_program_wrote_comes_back_or_there_is_an_error(
        replace, tmp_path, module, name, clock, status, text):
    calls = []

    def boot(_, command, **options):
        calls.append(f"{command} {options}")
        result = Result(status, "said\n", tmp_path)
        if name == "boot_tiny":
            return [("", result), ("", Result(0, text, tmp_path))]
        write(options["share"], {"report.json": text})
        return result
    builder = "selftest" if name == "boot" else "build_bench"
    replace(module, **{builder: lambda *_, **__: Path("/program"), name: boot})
    measure = getattr(module, module.__name__.split(".")[1])
    if "cases" in text:
        assert measure(tmp_path, "series", ("none",)) == {"cases": []}
    else:
        with pytest.raises(Fail, match=rf"status {status} .*\n    \| said"):
            measure(tmp_path, "series", ("none",))
    # Else the figures do not repeat.
    assert clock in calls[0] and "'cpus': 1" in calls[0]
    assert "--case" in calls[0] and \
        ("--features" in calls[0]) == (name == "boot_tiny")


def test_the_worst_phase_counts() -> None:
    """Of a share the lowest, of a time the highest."""
    def result(share: float, p99: float) -> dict:
        return {"cases": [{"name": "polite-a", "kind": "polite", "status":
                           "ok", "share": share, "p99": p99}]}
    found = {"base --all --phase 0": result(4, 2e6),
             "base --all --phase 9": result(2, 3e6),
             "series --all --phase 0": result(6, 1e6),
             "series --all --phase 9": result(8, 2e6)}
    assert [*measure_yield.worst_rows(found, (0, 9), ["--all"])] == [
        ["polite-a", "share", "2.00", "6.00", "1.50"],
        ["polite-a", "p99", "3.00", "2.00", "0.67"]]


# --- the copy --------------------------------------------------------------

HEADER = """\
#define IO_BITMAP_BITS 65536
#define IO_BITMAP_BYTES (IO_BITMAP_BITS / BITS_PER_BYTE)
#define IO_BITMAP_LONGS (IO_BITMAP_BYTES / sizeof(long))
%s
struct tss_struct {
    struct x86_hw_tss x86_tss;
    struct x86_io_bitmap io_bitmap;
} __aligned(PAGE_SIZE);
struct io_bitmap {
    u64 sequence;
    unsigned int max, first, end;
    unsigned long bitmap[IO_BITMAP_LONGS];
};
"""
BASE_TSS = """\
struct x86_io_bitmap {
    u64 prev_sequence;
    unsigned int prev_max;
    unsigned long bitmap[IO_BITMAP_LONGS + 1];
};"""
SERIES_TSS = """\
struct x86_io_bitmap_slot {
    unsigned long bitmap[IO_BITMAP_LONGS + 1];
};
struct x86_io_bitmap {
    struct x86_io_bitmap_slot slots[2];
};"""
BASE = """\
static void tss_copy_io_bitmap(struct tss_struct *tss, struct io_bitmap *iobm)
{
    memcpy(tss->io_bitmap.bitmap, iobm->bitmap,
           max(tss->io_bitmap.prev_max, iobm->max));
    tss->io_bitmap.prev_max = iobm->max;
}
"""
SERIES = """\
int other(void)
{
    return gone;
}
static int io_bitmap_is_in(const struct io_bitmap *iobm, unsigned int i)
{
    return i >= iobm->first && i < iobm->end;
}

static void tss_copy_io_bitmap(struct x86_io_bitmap_slot *to, struct io_bitmap *iobm)
{
    for (unsigned int i = 0; i < IO_BITMAP_LONGS; i++)
        to->bitmap[i] = io_bitmap_is_in(iobm, i) ?
                           iobm->bitmap[i - iobm->first] : ~0UL;
}
"""


@pytest.fixture
def trees(tmp_path):
    """What copycost takes of the two kernel trees."""
    found = {side: tmp_path / side for side in SIDES}
    for (side, tree), text, tss in zip(found.items(), (BASE, SERIES),
                                       (BASE_TSS, SERIES_TSS)):
        write(tree, dict(zip(measure_copy.HEADERS, (HEADER % tss, "")))
              | {measure_copy.SOURCE: text})
    return found


@pytest.fixture(autouse=True)
def place(tmp_path, replace, monkeypatch):
    """Keep what is built and logged out of build/."""
    monkeypatch.setattr("tools.core.BUILD", tmp_path / "build")
    for module in (measure_copy, measure_ports, measure_yield):
        replace(module, LOGS=tmp_path / "logs")


def test_both_copies_are_timed(trees):
    found = measure_copy.measure_copy(trees, rounds=2)
    # What README.md shows.
    for name in ("0x80-0x81", "0x80-65535", "every-line", "all-but-one"):
        assert found["cases"][f"pair-{name}"]["base"]["warm"] > 0
    rows = [row for row in measure_copy.tables(found) if row[:1] == "|"]
    assert len(rows) == 2 + len(found["cases"])
    assert {row.count("|") for row in rows} == {11}


def test_cycles_are_per_copy_without_the_empty_call():
    # The two tasks take turns: 10 and 30 cycles, and 100 of the fence.
    text = "".join(f"case {side} {state} 64 {64 * ticks}\n"
                   for state in measure_copy.STATES
                   for side, took in (("nothing", (100, 100, 100, 100)),
                                      ("base", (110, 130, 110, 130)),
                                      ("series", (99, 99, 99, 99)))
                   for ticks in took)
    assert measure_copy.summary(text) == {"case": {
        "base": dict.fromkeys(measure_copy.STATES, 20.0),
        "series": dict.fromkeys(measure_copy.STATES, 0)}}


@pytest.mark.parametrize("side, old, new, words", [
    ("series", "i < iobm->end", "i + 1 < iobm->end",
     "wrong copy: series, pair-0x80-0x81"),
    ("base", "= iobm->max;", "= 0;", "wrong copy: base, pair-0x80-65535"),
    ("series", "int io_bitmap_is_in(", "int gone(", "failed with status"),
    ("series", "tss_copy", "gone", r"no function tss_copy_io_bitmap\(\)")])
def test_a_copy_that_is_wrong_or_not_there(trees, side, old, new, words):
    path = trees[side] / measure_copy.SOURCE
    path.write_text(path.read_text().replace(old, new))
    with pytest.raises(Fail, match=words):
        measure_copy.measure_copy(trees, rounds=2)


# --- results ---------------------------------------------------------------

@pytest.mark.parametrize("figures, text", [
    ((4, 5), "1.25 (worse)"), ((4, 5, True), "1.25"), ((5, 4), "0.80"),
    ((5, 4, True), "0.80 (worse)"), ((500, 501), "1.00"), ((None, 4), "-")])
def test_what_is_worse_says_so(figures, text):
    assert bench.change(*figures) == text


def test_what_is_measured_is_a_whole_result_and_drawn(
        replace, monkeypatch, tmp_path):
    report = published()
    folders = {"base": Path("a"), "series": Path("b")}

    def taken(program: str) -> Any:
        def measure(folder: Path, side: str, *_: Any, **__: Any) -> Any:
            assert folder == folders[side]
            return report["yield"]["sides"][side] if program == YIELD \
                else report["sides"][side][program]
        return measure

    def describe(name: str) -> dict[str, str]:
        return {word: report["sides"][name][word]
                for word in ("release", "commit", "config", "compiler")}

    built: list[str] = []

    def at_once(work: dict[str, Any], jobs: int) -> Any:
        # All that the guests run is there before two of them begin.
        assert built == ["ports", "yield"]
        assert jobs == ("kvm" in "".join(work))
        return core.at_once(work, jobs)

    replace(bench, RESULTS=tmp_path, build_sides=lambda: folders,
            choose_kvm=lambda _: False, describe=describe, source=Path,
            at_once=at_once)
    replace(measure_ports, measure_ports=taken(PORTS),
            measure_memory=taken(MEMORY),
            build_programs=lambda: built.append("ports"))
    replace(measure_yield, measure_yield=taken(YIELD),
            build_program=lambda: built.append("yield"))
    replace(measure_copy, measure_copy=lambda trees: report["copycost"]
            | {"trees": [str(tree) for tree in trees.values()]})
    monkeypatch.setattr("sys.argv", ["bench"])
    bench.main()
    found = bench.load()
    assert found["copycost"].pop("trees") == ["base", "applied"]
    here = ("date", "machine", "repository")
    assert found | {word: report[word] for word in here} == report
    for name in bench.PLOTS:
        assert "<svg" in (tmp_path / name).read_text()
    # Cycles are not taken beside another guest; a guest that fails is told.
    built.clear()
    replace(bench, choose_kvm=lambda _: True)
    bench.main()
    assert bench.load()["accel"] == "kvm"

    def lost(*_: Any, **__: Any) -> Any:
        raise Fail("lost")

    built.clear()
    replace(measure_yield, measure_yield=lost)
    with pytest.raises(Fail, match="lost"):
        bench.main()


def test_what_is_published_is_what_publish_makes_of_the_figures(box: Box):
    write(box.build / "results", {"bench.json": json.dumps(published()),
                                  **dict.fromkeys(bench.PLOTS, "a plot")})
    readme = (ROOT / "README.md").read_text()
    before, rest = readme.split(bench.BEGIN)
    write(box.repo, {"README.md": before + bench.BEGIN + "old" + bench.END
                     + rest.split(bench.END)[1]})
    for _ in range(2):
        box.done("tools.bench", "--publish", say="have the figures of 20")
        assert (box.repo / "README.md").read_text() == readme
    assert {path.name for path in (box.repo / "results").iterdir()} == {
        "bench.json", "bench.md", *bench.PLOTS}
    assert (box.repo / "results/bench.md").read_text() == \
        (ROOT / "results/bench.md").read_text()


MARKS = f"{bench.BEGIN}{bench.END}"


@pytest.mark.parametrize("change, readme, words", [
    (None, MARKS, "run that first"), ({"copycost": None}, MARKS, "no whole"),
    ({"accel": "kvm"}, MARKS, "ACCEL=tcg"), ({}, "x", "must have one"),
    ({}, MARKS * 2, "must have one"),
    ({}, bench.END + bench.BEGIN, "must have one")])
def test_what_cannot_be_published_changes_nothing(
        box: Box, change, readme, words):
    write(box.repo, {"README.md": readme})
    if change is not None:
        write(box.build / "results",
              {"bench.json": json.dumps(published() | change)})
    box.refused("tools.bench", "--publish", say=words)
    assert (box.repo / "README.md").read_text() == readme
    assert not (box.repo / "results").exists()


# --- tools/bench -----------------------------------------------------------

# A few tenths of a second each. ioperm_random is not run: it reads ports.
PROGRAMS = {
    "pi_ping": (("--loads", "0,2", "--seconds", "0.1", "--via", "pipe"),
                ["reference", "load-0", "load-2"]),
    "interactive_latency": (
        ("--task", "audio", "--load", "none,memload", "--seconds", "0.2",
         "--mem-mb", "1"),
        ["audio-none-processes", "audio-memload-processes"]),
    "ioperm_memory": (("--tasks", "2"), ["port-0x80", "port-65535",
                                         "below-0x400", "every-line", "all"]),
    "ioperm_random": (("--seconds", "0"), [])}


@pytest.fixture(params=PROGRAMS)
def program(request, tmp_path):
    """A program of tools/bench, which no compiler warns of."""
    path = tmp_path / request.param
    for compiler in filter(shutil.which, ("clang-19", "gcc")):
        subprocess.run(["make", "-B", "-C", ROOT / "tools/bench", path,
                        f"OUTPUT={tmp_path}", f"CC={compiler}",
                        "CFLAGS=-O2 -Werror"], check=True)
    return path


def test_a_program_writes_its_figures_or_refuses(program, tmp_path):
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
def test_an_interrupted_program_leaves_no_task(program):
    with subprocess.Popen([program, "--seconds", "20"], text=True,
                          stdout=subprocess.PIPE,
                          preexec_fn=heed_signals) as process:
        process.stdout.readline()
        time.sleep(0.3)
        process.send_signal(signal.SIGTERM)
        # Every task of it has the pipe, so this waits for all.
        process.stdout.read()
    assert process.returncode == -signal.SIGTERM
