# SPDX-License-Identifier: GPL-2.0-only
"""make bench: what is measured, its tables, README.md; bench/ itself."""

import json
import shutil
import signal
import subprocess
import time
from pathlib import Path
from typing import Any

import pytest
from conftest import ROOT, Box, heed_signals, write

from tools import bench, measure_copy, measure_ports, measure_yield
from tools.core import Fail
from tools.guest import Result
from tools.tables import console, table

P50 = {"none": (1000, 1000), "pair-0x80-0x81": (1100, 1210),
       "pair-0x80-65535": (4000, 1500), "pair-all": (4000, 1050),
       "pair-every-line": (4000, 4100), "sweep-0": (1100, 1100),
       "sweep-65535": (4400, 1200), "call-ioperm-first": (500, 250)}
POLITE = "polite-100us-slice-100ms-hogs-1"


def make_report(p50: dict[str, tuple] = P50) -> dict[str, Any]:
    """Return a whole result; a p50 of None is a case that was skipped."""
    sides: dict[str, Any] = {}
    yields: dict[str, Any] = {}
    for place, side in enumerate(("base", "series")):
        sides[side] = {
            "release": "7.3.4", "compiler": "gcc", "config": "guest.config",
            "ioperm_latency": {"cases": [
                {"name": name, "rounds": 2000, "p50": both[place],
                 "kind": "call" if name.startswith("call-") else "switch",
                 "highest_port": [1, 65535],
                 "status": "ok" if both[place] else "skip"}
                for name, both in p50.items()]},
            "ioperm_memory": {"tasks": 1000, "cases": [
                {"name": "port-0x80", "object": None, "status": "ok",
                 "unreclaimable": (16384000, 131072)[place]}]}}
        yields[side] = {"tick_ns": 1000000, "storm_seconds": 2, "cases": [
            case for features in (("as-is",), ("old", "new"))[place]
            for case in yield_cases(features)]}
    cycles = {"base": dict.fromkeys(measure_copy.STATES, 200.0),
              "series": dict.fromkeys(measure_copy.STATES, 50.0)}
    return {"date": "2026-11-24T00:00:00+00:00", "accel": "tcg",
            "unit": "instructions", "sides": sides,
            "machine": {"qemu": "QEMU 7", "cpu": "a CPU"},
            "copycost": {
                "machine": measure_copy.machine(), "rounds": 2, "areas": 1,
                "cases": dict.fromkeys([*P50, "pair-all-but-one"], cycles)},
            "yield": {"sides": yields}}


def yield_cases(features: str) -> list[dict[str, Any]]:
    """Return what yield_latency writes with its feature bits in one state."""
    better = features == "new"
    polite = {"kind": "polite", "work_us": 100, "slice_us": 100000, "hogs": 1,
              "calls": 200, "stuck": 4, "p50": 99.9e6, "p99": 1e8,
              "share": 8.2 if better else 0.12}
    return [case | {"features": features, "status": "ok"} for case in (
        {"name": "switch-proc-2", "kind": "switch", "tasks": 2,
         "slice_us": 0, "ns_per_switch": 1020 if better else 1000},
        {"name": "switch-thread-4-slice-2.8ms", "kind": "switch", "tasks": 4,
         "slice_us": 2800, "ns_per_switch": 900},
        polite | {"name": POLITE},
        polite | {"name": bench.WORKER, "work_us": 20, "slice_us": 2800,
                  "share": 2.4 if better else 0.8, "p99": 2e6},
        {"name": bench.POLLERS, "kind": "poll",
         "hogs_share": 90.0 if better else 96.0},
        {"name": "storm-slice-100ms", "kind": "storm",
         "longest_wait_yielder": 1e8, "longest_wait_hog": 3e6})]


# --- tables ----------------------------------------------------------------

def test_a_table_in_markdown_and_for_a_terminal():
    rows = table(["call", "base"], [["ioperm", "5"], ["longer name", "123"]])
    assert rows == ["| call | base |", "|---|---:|", "| ioperm | 5 |",
                    "| longer name | 123 |"]
    assert console(["Title:", "", *rows, "", "![a picture](a.svg)",
                    "word " * 30]) == (
        "Title:\n\ncall         base\nioperm          5\nlonger name   123\n"
        "\n" + ("word " * 16).strip() + "\n" + ("word " * 14).strip())


def test_switches_sweep_calls_and_memory():
    rows = list(measure_ports.tables(make_report()))
    assert rows[0] == "Unit: instructions; p50 of 2000 calls."
    assert "| pair-0x80-65535 | 4000 | 1500 | 0.38 | 4.00 | 1.50 |" in rows
    assert "| ioperm-first | 500 | 250 | 0.50 |" in rows
    sweep, = (row for row in rows if "dearest" in row)
    assert "at 2 port numbers" in sweep and "1100 = 4.00, series " in sweep
    assert not [row for row in rows if row.startswith("| sweep")]
    assert rows[-1] == "| port-0x80 | 16000 kB | 128 kB | 0.008 | - | - |"


def test_a_skipped_case_says_so_and_has_no_ratio():
    report = make_report(P50 | {
        "pair-all": (4000, None), "sweep-65535": (None, 1200),
        "sweep-511": (1200, 1100), "sweep-512": (1300, None)})
    case, = report["sides"]["base"]["ioperm_memory"]["cases"]
    case["status"] = "skip"
    rows = list(measure_ports.tables(report))
    assert "| pair-all | 4000 | skipped | - | 4.00 | - |" in rows
    sweep, = (row for row in rows if "dearest" in row)
    assert "base 1200/1100 = 1.09, series 1100/1100" in sweep
    assert rows[-1] == "| port-0x80 | skipped | 128 kB | - | - | - |"
    rows = measure_ports.tables(make_report(P50 | {"none": (None, 1000)}))
    assert "| pair-all | 4000 | 1050 | 0.26 | - | 1.05 |" in rows


def test_yields_have_the_series_with_its_features_off_and_on():
    result = make_report()["yield"]
    rows = list(measure_yield.tables(result))
    for row in ("| 2 processes | 1000 | 1000 | 1020 | 1.00 | 1.02 |",
                "| 4 threads, slices 2.8 ms | 900 | 900 | 900 | 1.00 | 1.00 |",
                "| 100 us | 100 ms | 1 | 8.3 % | 0.12 % | 0.12 % | 8.20 % "
                "| 100 | 100 | 100 | 100.00 | 100.00 | 100.00 "
                "| 2 % | 2 % | 2 % |",
                "| storm-slice-100ms | longest wait of the hog, ms "
                "| 3.0 | 3.0 | 3.0 |"):
        assert row in rows
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
        monkeypatch, tmp_path, module, name, clock, status, text):
    calls = []

    def boot(_, command, **options):
        calls.append(f"{command} {options}")
        result = Result(status, "said\n", tmp_path)
        if name == "boot_tiny":
            return [("", result), ("", Result(0, text, tmp_path))]
        write(options["share"], {"report.json": text})
        return result
    monkeypatch.setattr(module, name, boot)
    monkeypatch.setattr(module, "selftest", lambda *_: Path("/program"))
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


# --- the copy --------------------------------------------------------------

HEADER = """\
#define IO_BITMAP_BITS 65536
#define IO_BITMAP_BYTES (IO_BITMAP_BITS / BITS_PER_BYTE)
#define IO_BITMAP_LONGS (IO_BITMAP_BYTES / sizeof(long))
#define IO_BITMAP_LINE_BYTES 64
#define IO_BITMAP_LINE_BITS (IO_BITMAP_LINE_BYTES * BITS_PER_BYTE)
#define IO_BITMAP_LINE_LONGS 8
struct x86_io_bitmap {
    u64 prev_sequence;
    unsigned int prev_max;
    unsigned long bitmap[IO_BITMAP_LONGS + 1];
};
struct tss_struct {
    struct x86_hw_tss x86_tss;
    struct x86_io_bitmap io_bitmap;
} __aligned(PAGE_SIZE);
struct io_bitmap {
    unsigned int max, first_line, nr_lines;
    DECLARE_BITMAP(lines, 128);
    unsigned long bitmap[] __aligned(64);
};
"""
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
static const unsigned long io_bitmap_ones[] = { [0 ... 7] = ~0UL };
static const unsigned long *io_bitmap_line(const struct io_bitmap *iobm,
                                           unsigned int line)
{
    line -= iobm->first_line;
    return line < iobm->nr_lines ? iobm->bitmap + line * 8 : io_bitmap_ones;
}

void io_bitmap_load(struct x86_io_bitmap *to, const struct io_bitmap *iobm)
{
    for (unsigned int line = 0; line < 128; line++)
        memcpy(to->bitmap + line * 8, io_bitmap_line(iobm, line), 64);
}
"""


@pytest.fixture
def trees(tmp_path):
    """What copycost takes of the two kernel trees."""
    found = {side: tmp_path / side for side in measure_copy.FUNCTIONS}
    for (side, tree), text in zip(found.items(), (BASE, SERIES)):
        write(tree, {measure_copy.HEADERS[0]: HEADER,
                     measure_copy.HEADERS[1]: "",
                     measure_copy.FUNCTIONS[side][0]: text})
    return found


@pytest.fixture(autouse=True)
def place(tmp_path, monkeypatch):
    """Keep what is built and logged out of build/."""
    monkeypatch.setattr("tools.core.BUILD", tmp_path / "build")
    for module in (measure_copy, measure_ports, measure_yield):
        monkeypatch.setattr(module, "LOGS", tmp_path / "logs")


def test_both_copies_are_timed(trees):
    found = measure_copy.measure_copy(trees, rounds=2)
    for sides in found["cases"].values():
        assert {side: set(states) for side, states in sides.items()} == \
            dict.fromkeys(("base", "series"), set(measure_copy.STATES))
    # What README.md shows.
    for name in ("0x80-0x81", "0x80-65535", "every-line", "all-but-one"):
        assert found["cases"][f"pair-{name}"]["base"]["warm"] > 0
    rows = list(measure_copy.tables(found))
    assert len({row.count("|") for row in rows if row[:1] == "|"}) == 1


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
    ("series", "line < iobm->nr", "line + 1 < iobm->nr",
     "wrong copy: series, pair-0x80-0x81"),
    ("base", "= iobm->max;", "= 0;", "wrong copy: base, pair-0x80-65535"),
    ("series", "*io_bitmap_line(", "*gone(", "failed with status"),
    ("series", "io_bitmap_load", "gone", r"no function io_bitmap_load\(\)")])
def test_a_copy_that_is_wrong_or_not_there(trees, side, old, new, words):
    path = trees[side] / measure_copy.FUNCTIONS[side][0]
    path.write_text(path.read_text().replace(old, new))
    with pytest.raises(Fail, match=words):
        measure_copy.measure_copy(trees, rounds=2)


# --- results ---------------------------------------------------------------

def test_the_small_table_has_eight_rows_and_what_is_worse():
    rows = [" | ".join(row) for row in bench.summary(make_report())]
    assert len(rows) == 8
    for place, end in ((0, "1100 | 1210 | 1.10 (worse) | 200 | 50"),
                       (2, "4000 | 1050 | 0.26 | 200 | no copy"),
                       (4, "500 | 250 | 0.50 | - | -"),
                       (5, "16000 | 128 | 0.01 | - | -"),
                       (6, "0.80 %; 2.00 ms | 2.40 %; 2.00 ms | 3.00; 1.00 "
                        "| - | -"),
                       (7, "4.0 % | 10.0 % | 2.50 (worse) | - | -")):
        assert rows[place].endswith(f" | {end}"), rows[place]


def test_what_is_measured_is_a_whole_result_and_drawn(monkeypatch, tmp_path):
    report, calls = make_report(), []

    def measured(what: str) -> Any:
        return lambda folder, side, *_, **__: calls.append((what, folder)) \
            or (report["yield"]["sides"][side] if what == "yield"
                else report["sides"][side][what])
    folders = {"base": Path("a"), "series": Path("b")}
    for module, name, value in (
            (bench, "build_sides", lambda: folders),
            (bench, "choose_kvm", lambda _: False),
            (bench, "describe", lambda name: {
                "release": "7", "compiler": "gcc", "config": name}),
            (bench, "source", Path), (bench, "RESULTS", tmp_path),
            (measure_ports, "measure_ports", measured("ioperm_latency")),
            (measure_ports, "measure_memory", measured("ioperm_memory")),
            (measure_yield, "measure_yield", measured("yield")),
            (measure_copy, "measure_copy", lambda trees: report["copycost"]
             | {"trees": [str(tree) for tree in trees.values()]})):
        monkeypatch.setattr(module, name, value)
    monkeypatch.setattr("sys.argv", ["bench"])
    bench.main()
    assert sorted(calls) == [
        (what, folder) for what in ("ioperm_latency", "ioperm_memory", "yield")
        for folder in folders.values()]
    found = bench.load(tmp_path / "bench.json")
    assert found["copycost"]["trees"] == ["base", "applied"]
    for side, had in report["sides"].items():
        assert found["sides"][side] == had | {
            "release": "7", "compiler": "gcc", "config": side}
    assert found["yield"]["sides"] == report["yield"]["sides"]
    assert len([*bench.summary(found)]) == 8
    for name in bench.PLOTS:
        assert "<svg" in (tmp_path / name).read_text()


def test_a_result_is_published(box: Box):
    write(box.build / "results", {"bench.json": json.dumps(make_report()),
                                  **dict.fromkeys(bench.PLOTS, "a plot")})
    write(box.repo, {"README.md": f"a\n{bench.BEGIN}\nold\n{bench.END}\nz\n"})
    for _ in range(2):
        box.done("tools.bench", "--publish", say="have the figures of 2026")
        text = (box.repo / "README.md").read_text()
        assert text.startswith(f"a\n{bench.BEGIN}\n\nMeasured on 2026-11-24")
        assert text.endswith(f"\n{bench.END}\nz\n") and "old" not in text
        assert text.count("| first ioperm()") == 1
    published = {path.name for path in (box.repo / "results").iterdir()}
    assert published == {"bench.json", "bench.md", *bench.PLOTS}
    whole = (box.repo / "results/bench.md").read_text()
    for words in ("| pair-0x80-65535 | 4000", "| 2 processes |", "(yield.svg)",
                  "| pair-all-but-one: all but port 0"):
        assert words in whole


@pytest.mark.parametrize("change, words", [
    (None, "run that first"), ({"copycost": None}, "no whole"),
    ({"accel": "kvm"}, "ACCEL=tcg"), ({}, "must have one")])
def test_what_cannot_be_published_changes_nothing(box: Box, change, words):
    write(box.repo, {"README.md": "x"})
    if change is not None:
        write(box.build / "results",
              {"bench.json": json.dumps(make_report() | change)})
    box.refused("tools.bench", "--publish", say=words)
    assert (box.repo / "README.md").read_text() == "x"
    assert not (box.repo / "results").exists()


# --- bench/ ----------------------------------------------------------------

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
    """A program of bench/, compiled without a warning by each compiler."""
    path = tmp_path / request.param
    for compiler in filter(shutil.which, ("clang-19", "gcc")):
        subprocess.run(["make", "-B", "-C", ROOT / "bench", path,
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
