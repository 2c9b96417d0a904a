# SPDX-License-Identifier: GPL-2.0-only
"""make bench: its tables, README.md, what is timed."""

import json
from pathlib import Path
from typing import Any

import pytest
from conftest import ROOT, Box, write

from tools import bench, measure_copy, measure_ports, measure_yield
from tools.core import Fail
from tools.guest import Result
from tools.tables import console, table

SIDES = ("base", "series")
PORTS, MEMORY = "ioperm_latency", "ioperm_memory"


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


# --- tables and README.md --------------------------------------------------

def test_a_table_in_markdown_and_for_a_terminal() -> None:
    rows = table(["call", "base"], [["ioperm", "5"], ["longer name", "123"]])
    assert rows[1:3] == ["|---|---:|", "| ioperm | 5 |"]
    assert console(["Title:", "", *rows, "", "![a picture](a.svg)",
                    "word " * 17]) == (
        "Title:\n\ncall         base\nioperm          5\nlonger name   123\n"
        "\n" + ("word " * 16).strip() + "\nword")


def test_what_is_skipped_says_so_and_has_no_ratio() -> None:
    rows = "\n".join(bench.tables(published(**{
        "none": (1000, 1000), "pair-all": (4000, None),
        "pair-0x80-65535": (4000, 1500), "sweep-0": (100, 90),
        "sweep-65535": (None, 1), "port-0x80": (None, 131072)})))
    for row in ("| pair-0x80-65535 | 4000 | 1500 | 0.38 | 4.00 | 1.50 |",
                "| pair-all | 4000 | skipped | - | 4.00 | - |",
                # Of the sweep, what both sides have.
                "/90 = ", "| port-0x80 | skipped | 128 kB | - |"):
        assert row in rows, row


def test_a_median_between_two_kinds_of_calls() -> None:
    for figures, text in (((9.99e6, 1e3, 20.01e6), "0.00 or 20"),
                          ((9.99e6, 9.98e6, 9.99e6), "9.99"),
                          ((None, None, None), "-")):
        assert measure_yield.median(*figures) == text


def test_what_is_worse_says_so() -> None:
    for figures, text in (((4, 5), "1.25 (worse)"), ((4, 5, True), "1.25"),
                          ((5, 4, True), "0.80 (worse)"), ((5, 4), "0.80"),
                          ((500, 501), "1.00"), ((None, 4), "-")):
        assert bench.change(*figures) == text


def test_what_is_published_is_what_publish_makes_of_the_figures(
        box: Box) -> None:
    readme = (ROOT / "README.md").read_text()
    begin, end = (f"<!-- bench:{word} -->" for word in ("begin", "end"))
    before, rest = readme.split(begin)
    write(box.build / "results", {"bench.json": json.dumps(published())})
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
        write(box.build / "results",
              {"bench.json": json.dumps(published() | change)})
    box.refused("tools.bench", "--pages", say=words)
    assert not (box.build / "results/bench.md").exists()


@pytest.mark.parametrize("status, text", [
    (0, '{"cases": []}\n\n'), (1, "{}"), (None, "{}"), (0, '{"cut off')])
@pytest.mark.parametrize("module, name, clock", [
    (measure_ports, "boot", "'icount': 'wait-idle'"),
    (measure_yield, "boot_tiny", "shift=0,sleep=off")])
def test_what_the_program_wrote_comes_back_or_there_is_an_error(
        replace, tmp_path, module, name, clock, status, text) -> None:
    def boot(_, command, share=tmp_path, **options):
        # Else the figures do not repeat.
        assert clock in str(options) and options["cpus"] == 1
        write(share, {"report.json": text})
        result = Result(status, "said\n", tmp_path)
        return result if name == "boot" else [
            ("", result), ("", Result(0, text, tmp_path))]

    builder = "selftest" if name == "boot" else "build_bench"
    replace(module, **{name: boot, builder: lambda *_, **__: Path("program")})
    measure = getattr(module, module.__name__.split(".")[1])
    if "cases" in text:
        assert measure(tmp_path, "series", ("none",)) == {"cases": []}
        return
    with pytest.raises(Fail, match=rf"status {status} .*\n    \| said"):
        measure(tmp_path, "series", ("none",))


def test_rows_are_of_this_kernel_and_the_worst_phase_counts(
        replace, tmp_path) -> None:
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
    ("series", "tss_clean", "gone", r"no function tss_clean_io_bitmap\(\)")])
def test_copies_are_timed_if_they_are_right(tmp_path, side, old, new,
                                            words) -> None:
    trees = {name: tmp_path / name for name in SIDES}
    for name, tree in trees.items():
        text = (ROOT / f"tools/tests/copies/{name}.c").read_text()
        write(tree, dict(zip(measure_copy.HEADERS, (text, ""))) | {
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
