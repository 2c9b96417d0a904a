# SPDX-License-Identifier: GPL-2.0-only
"""bench, study and measure: what is run, resumed and said, the pages, the
programs of tools/bench."""

import ctypes
import errno
import json
import shutil
import signal
import struct
import subprocess
import sys
from contextlib import nullcontext, suppress
from pathlib import Path
from threading import current_thread, main_thread
from typing import Any

import pytest
from conftest import (ROOT, check_none_left, environment, heed_signals, write,
                      write_program)

from tools import (bench, build, core, measure, measure_copy, page, report,
                   study)
from tools.core import SIDES, Fail, Given, Kernel, kernels, read_json
from tools.figures import DATA, Samples, compact, result_of
from tools.records import Begun

RESULTS = ROOT / "results"


@pytest.mark.parametrize("kernel", kernels(), ids=lambda row: row.version)
def test_pages_are_made_of_what_is_published(tmp_path, replace,
                                             kernel) -> None:
    replace(core, BUILD=tmp_path)
    place = RESULTS / kernel.name
    found = read_json(place / "bench.json")
    assert compact(found) == (place / "bench.json").read_text()
    names = bench.write_pages(kernel, found)
    text = (place / "bench.md").read_text()
    assert (kernel.results / "bench.md").read_text() == text
    assert "| - | - |" not in text
    assert {path.name for path in place.iterdir()} >= {
        *names} - {"bench-readme.md"}
    if not kernel.name:
        short = (kernel.results / "bench-readme.md").read_text()
        assert f"begin -->\n\n{short}\n<!-- bench:end" in (
            ROOT / "README.md").read_text()


@pytest.mark.parametrize("status, text", [
    (0, '{"cases": []}\n\n'), (1, "{}"), (None, "{}"), (0, '{"cut off')])
def test_what_a_program_wrote_is_read_or_there_is_an_error(
        tmp_path: Path, status: int | None, text: str) -> None:
    write(tmp_path, {"log": "said\n"})
    with nullcontext() if "cases" in text else pytest.raises(
            Fail, match=rf"status {status} .*\n    \| said"):
        assert result_of("it", status, tmp_path / "log", text) == {"cases": []}


OK = {"cases": [{"name": "none", "status": "ok", "reason": None, "p50": 1}]}


def test_it_goes_on_with_what_is_missing(kernel: Kernel, replace,
                                         capsys) -> None:
    cells = study.look(kernel, Given(ONLY="history_8k mpi_yield"))
    assert len(cells) == 3 + 2 * 3
    plan, ran, wrong, noted = study.plan(), [], "", []
    program = kernel.build / "program"

    def run_cell(kernel: Kernel, cell: study.Cell) -> dict[str, Any]:
        # By the host's clock, so alone.
        assert cell.cpus == 1 or current_thread() is main_thread()
        if cell.column in wrong.split():
            raise Fail("a panic")
        ran.append(cell)
        return OK

    program.write_text("one")
    replace(study, begin=str, build_recipe=lambda *name: None,
            history_branch=lambda *name: None, run_cell=run_cell,
            begun=lambda: Begun(str(len(ran)), "commit"),
            build_program=lambda *key: program,
            record=lambda _, *words: noted.append(words))
    replace(page, section=lambda *experiment: ["x"])
    replace(build, source_key=lambda kernel, commit: commit,
            describe=lambda *_: {"release": "7.3.4", "compiler": "gcc"})
    # Those of base and series are needed, the others are not.
    for wrong in ("base ext_qmap", "ext_qmap"):
        assert not noted
        failed = [cell.name for cell in plan if cell.column in wrong.split()]
        with pytest.raises(Fail, match=f"{len(failed)} cells failed.*ext_"):
            study.run(kernel, plan, False)
    (name, numbers, since, files), = noted
    assert (name, since) == ("study", ("0", "commit"))
    assert numbers == (len(plan) - len(failed), 0, len(failed))
    kept = read_json(kernel.results / "study/study.json")
    assert len(kept) == numbers[0] and {"study.md",
                                        "study/study.json"} <= {*files}
    ran.clear()
    study.run(kernel, plan, True)
    assert f"{failed[0]}\n" in capsys.readouterr().out and not ran
    # Of another program, or another kernel, they run again.
    program.write_text("another")
    study.run(kernel, cells, False)
    replace(build, source_key=lambda _, commit: commit.replace("base", "new"))
    study.run(kernel, cells, False)
    assert len(ran) == 9 + 3 and len(noted) == 1


# The next state, the last one for ever.
GREP = """read -r now <"$0.d"
[ "$(wc -l <"$0.d")" = 1 ] || sed -i 1d "$0.d"
[ "$now" = enabled ]
"""


@pytest.mark.parametrize("states, command, status, said", (
    ("disabled\nenabled\n", "exit 4", 4, ""),
    ("disabled\n", "echo ran", 1, "does not load"),
    ("enabled\ndisabled\n", "true", 1, "thrown out")))
def test_a_guest_under_a_scheduler(tmp_path: Path, states: str, command: str,
                                   status: int, said: str) -> None:
    guest = (DATA / "guest.sh").read_text().replace("INT", "TERM").replace(
        "/tmp/scheduler", str(tmp_path / "said"))
    for name, text in {"grep": GREP, "loader": "exec /bin/sleep 60\n",
                       "sleep": "", "hostname": "", "ip": "",
                       "guest.sh": guest}.items():
        write_program(tmp_path / name, text)
    write(tmp_path, {"grep.d": states})
    done = subprocess.run(
        [tmp_path / "guest.sh", "9", "loader", "sh", "-c", command],
        text=True, stdout=-1, timeout=60,
        env={"GUEST_PATH": f"{tmp_path}:/usr/bin:/bin"})
    assert done.returncode == status, done
    assert said in done.stdout and "ran" not in done.stdout


def test_the_page_is_made_of_what_is_published(tmp_path: Path) -> None:
    cells = read_json(RESULTS / "study/study.json")
    page.study_page(cells, len(study.plan()), tmp_path)
    text = (tmp_path / "study.md").read_text()
    assert text == (RESULTS / "study.md").read_text()
    assert f"({page.UNSURE}) |" in text
    assert "| not run |" not in text
    page.study_page({name: cell for name, cell in cells.items()
                     if name.startswith("port_readers")}, 156, tmp_path)
    text = (tmp_path / "study.md").read_text()
    assert "**Today: not run.**" in text
    assert "Not run: as 2.6.8.1, as" in text.replace("\n", " ")


@pytest.mark.parametrize("base, series, runs, verdict", (
    (100, 150, 3, "worse"), (100, 100.4, 3, ""), (150, 100, 3, "better"),
    (100, 900, 2, page.UNSURE)))
def test_verdicts(base: float, series: float, runs: int, verdict: str) -> None:
    assert page.judge([base] * runs, [series] * runs, "less") == verdict


def test_measure_writes_and_compares(kernel: Kernel, replace, capsys) -> None:
    refused = {"cases": [{"name": "a", "status": "skip", "reason": "refused"}]}

    def run_logged(words: list[str], log: Path, **more: Any) -> int:
        if "blas_yield" in words:
            raise Fail("planted")
        Path(words[words.index("--json") + 1]).write_text(json.dumps(
            refused if "port_readers" in words else OK))
        return 4

    replace(measure, run_logged=run_logged,
            build_program=lambda kernel, name: Path(name))
    with pytest.raises(Fail, match="blas_yield.3 failed"):
        measure.run(kernel, ["ioperm_turns", "port_readers", "blas_yield"])
    said = capsys.readouterr().out
    assert "run 1 of 3; about 4 min 45 s left" in said
    assert said.count(" port_readers: refused\n") == said.count("refused") == 1
    path, = kernel.results.glob("measure-*.json")
    found = read_json(path)
    assert len(found["cells"]) == 6 and "CPUs" in found["machine"]
    other = kernel.build / "other.json"
    other.write_text(path.read_text().replace('"p50": 1', '"p50": 2'))
    replace(report, build_lock=nullcontext)
    report.main(kernel, Given(A=str(path), B=str(other)))
    text = (kernel.results / "compare/study.md").read_text()
    assert "| no ports | 2528 | 2423 | 2478 | 1 | 2 | 2.00 (worse) |" in text


def test_measure_without_a_program_is_an_error(kernel: Kernel, replace,
                                               capsys) -> None:
    def no_compiler(*_: Any) -> Path:
        raise Fail("planted")

    replace(measure, build_program=no_compiler)
    with pytest.raises(Fail, match="nothing was measured: .*glibc-static"):
        measure.run(kernel, ["ioperm_turns", "port_readers"])
    assert "written" not in capsys.readouterr().out
    assert not kernel.results.exists()


@pytest.mark.parametrize("tool", ("gcc", "make"))
def test_a_program_needs_a_compiler(kernel: Kernel, replace,
                                    tool: str) -> None:
    replace(shutil, which=lambda name: name != tool)
    with pytest.raises(Fail, match=f"the command '{tool}' is missing"):
        measure.build_program(kernel, "port_readers")


def test_an_interrupted_measure_tells_what_is_there(kernel: Kernel,
                                                    replace) -> None:
    def run_program(*words: Any) -> dict[str, Any]:
        if words[2] == 2:
            raise KeyboardInterrupt
        return OK

    replace(measure, run_program=run_program,
            build_program=lambda kernel, name: Path(name))
    with pytest.raises(KeyboardInterrupt) as found:
        measure.run(kernel, ["ioperm_turns"])
    path, = kernel.results.glob("measure-*.json")
    assert f"{core.shown_path(path)} has what was measured" in str(found.value)


@pytest.mark.parametrize("accel, pages, says", (
    ("tcg", True, "bench.json, and its pages: 'make publish' takes them"),
    ("kvm", False, "bench.json, in TSC cycles of KVM, and no page: 'make "
     "bench ACCEL=tcg' counts instructions, as in README.md\n")))
def test_bench_tells_what_it_wrote(kernel: Kernel, replace, capsys, accel: str,
                                   pages: bool, says: str) -> None:
    wrote = []
    replace(bench, record=lambda *_: None, build_lock=nullcontext,
            write_pages=lambda *_: wrote.append("pages"),
            measure=lambda *_: {"accel": accel, "results": {}},
            tables=lambda *_: [])
    bench.main(kernel, Given())
    assert says in capsys.readouterr().out and bool(wrote) == pages


# What is taken of the headers and of the source of each side.
HEADER = """\
#define IO_BITMAP_BITS 65536
#define IO_BITMAP_BYTES (IO_BITMAP_BITS / BITS_PER_BYTE)
#define IO_BITMAP_LONGS (IO_BITMAP_BYTES / sizeof(long))
struct x86_io_bitmap_slot {
    unsigned long bitmap[IO_BITMAP_LONGS + 1];
};
struct x86_io_bitmap {
    unsigned long bitmap[IO_BITMAP_LONGS + 1];
    struct x86_io_bitmap_slot slots[2];
};
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
COPIES = {"base": """\
static void tss_copy_io_bitmap(struct tss_struct *tss, struct io_bitmap *iobm)
{
    memcpy(tss->io_bitmap.bitmap, iobm->bitmap, IO_BITMAP_BYTES);
}
""", "series": """\
static int io_bitmap_is_in(const struct io_bitmap *iobm, unsigned int i)
{
    return i >= iobm->first && i < iobm->end;
}
static void tss_copy_io_bitmap(struct x86_io_bitmap_slot *to,
                               struct io_bitmap *iobm)
{
    for (unsigned int i = 0; i < IO_BITMAP_LONGS; i++)
        to->bitmap[i] = io_bitmap_is_in(iobm, i) ?
                           iobm->bitmap[i - iobm->first] : ~0UL;
}
"""}


@pytest.mark.parametrize("old, new, words", [
    ("", "", ""),
    ("iobm->end", "iobm->end - 1", "wrong copy: series, pair-0x80-0x81"),
    (", IO_BITMAP_BYTES);", ", 32);", "wrong copy: base, pair-0x80-65535"),
    ("int io_bitmap_is_in(", "int gone(", "failed with status"),
    ("tss_copy", "gone", r"no function tss_copy_io_bitmap\(\)")])
def test_copies_are_timed_if_right(kernel: Kernel, replace, old: str,
                                   new: str, words: str) -> None:
    replace(measure_copy, RUNS=2)
    trees = {side: kernel.build / side for side in SIDES}
    for side, tree in trees.items():
        write(tree, dict(zip(
            (*measure_copy.HEADERS, measure_copy.SOURCE),
            (HEADER, "", COPIES[side].replace(old, new)))))
    with pytest.raises(Fail, match=words) if words else nullcontext():
        samples = Samples({"copycost": measure_copy.measure_copy(
            kernel, trees, rounds=2)})
        assert samples.medians("copycost", SIDES, "pair-0x80-65535",
                               "warm") > [0]
        assert len([*measure_copy.tables(samples, measure_copy.machine())
                    ]) == 5 + len(samples.cases["copycost"])


def test_of_several_phases_the_range_is_shown() -> None:
    samples = Samples({"yield_latency": {side: {"cases": [
        {"name": "one", "status": "ok", "longest_wait": value * 1e6}
        for value in values]} for side, values in
        {"base": (8, 1, 2), "series": (4.2, 3.9, 4)}.items()}})
    assert samples.row("yield_latency", (*SIDES, "off"), "one",
                       "longest_wait", "wait") == [
        "wait, ms", "1 to 8", "4", "-", "-", "less"]
    assert samples.row("yield_latency", SIDES, "one", "longest_wait",
                       "wait")[3] == "2.00"


# A few tenths of a second, but for those without cases; then what takes long,
# unless ioperm() or KVM is refused.
PROGRAMS = {
    "pi_ping": ("--seconds 0.1 0 2", "reference load-0 load-2",
                "--seconds 20 8"),
    "interactive_latency": (
        "--seconds 0.2 audio-none-processes audio-memload-processes",
        "audio-none-processes audio-memload-processes", "--seconds 20"),
    "yield_latency": ("--seconds 0", "", "--seconds 20"),
    "directed_yield": ("--hogs", "", ""),
    "ioperm_memory": ("--tasks 2", "port-0x80 port-65535 below-0x400 "
                      "every-line all", "--tasks 500"),
    "ioperm_random": ("--seconds 0", "", "--seconds 20"),
    "ioperm_turns": ("none=none,none", "none", "pair=0x80,none " * 60),
    "port_readers": ("--turns", "", "")}


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
        found = json.loads(report.read_text())["cases"]
        assert [case["name"] for case in found] == cases
        states = {case["status"] for case in found}
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
        process.send_signal(number)
        check_none_left(tmp_path)
        # These two find out that no port is enabled.
        assert process.wait(30) in (-number, 0, 4) or number and name in (
            "ioperm_random", "port_readers")
