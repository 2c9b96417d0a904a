# SPDX-License-Identifier: GPL-2.0-only
"""report and figures: what is said of figures, and how it is drawn."""

import json
import random
import re
import xml.etree.ElementTree as ElementTree
from pathlib import Path
from typing import Any

import pytest

from tools import figures, plots, report
from tools.core import ROOT, Fail
from tools.figures import (BETTER, ENOUGH, FEW, READING, SAME, TINY, WORSE,
                           Samples, compare, judge, noise)


def case(name: str, **more: Any) -> dict[str, Any]:
    return {"name": name, "status": "ok", "reason": None, **more}


def ping(column: str, *met: float) -> dict[str, dict[str, Any]]:
    """Return cells of pi_ping, one for each figure."""
    return {f"pi_ping.processes.{column}.{run}": {
        "kernel": {"release": "7.3.4", "compiler": "gcc", "config": "c"},
        "result": {"cases": [
            case("reference", load=1, interactive=False,
                 relative=100 if column == "base" else 110),
            case("load-1", load=1, interactive=True, met_percent=value,
                 p99=1e6)]}} for run, value in enumerate(met, 1)}


# --- what is better and what is worse --------------------------------------

def verdict(base: list[float], series: list[float], more: bool = False,
            assumed: float | None = None) -> str:
    return judge(base, series, more, noise(base, series, assumed))


@pytest.mark.parametrize("base, series, expected", (
    # Only what is beyond the spread.
    ([100, 110, 105, 105], [108, 112, 109, 109], SAME),
    ([100, 101, 102, 101], [110, 111, 112, 111], WORSE),
    ([100, 101, 102, 101], [90, 91, 92, 91], BETTER),
    ([100] * ENOUGH, [105] * ENOUGH, WORSE),
    # Nothing to divide by: half of the runs are as good as the others.
    ([0], [0], SAME), ([0] * 4, [5] * 4, WORSE),
    ([0, 0, 0, 3], [2, 2, 2, 2], SAME), ([2, 2, 2, 2], [0, 0, 0, 3], SAME),
    ([0, 0, 0, 1], [2, 2, 2, 2], WORSE),
    ([2, 2, 2, 2], [0, 0, 0, 1], BETTER)))
def test_what_is_worse(base: list[float], series: list[float],
                       expected: str) -> None:
    assert verdict(base, series) == expected
    other = {WORSE: BETTER, BETTER: WORSE}
    assert verdict(base, series, True) == other.get(expected, expected)


@pytest.mark.parametrize("runs", range(1, ENOUGH))
def test_few_runs_are_judged_by_what_is_assumed(runs: int) -> None:
    assert verdict([100] * runs, [900] * runs) == FEW
    assert verdict([100] * runs, [100] * runs) == SAME
    assert verdict([100] * runs, [104] * runs, assumed=0.05) == SAME
    assert verdict([100] * runs, [106] * runs, assumed=0.05) == WORSE


def test_chance_is_what_a_simulation_gives() -> None:
    source, trials = random.Random(1), 20000
    for runs, share in figures.CHANCE.items():
        worse = sum(verdict([source.gauss(100, 1) for _ in range(runs)],
                            [source.gauss(100, 1) for _ in range(runs)])
                    == WORSE for _ in range(trials))
        # Four standard deviations of a count.
        assert abs(worse - trials * share) < 4 * (trials * share) ** 0.5 + 1


TICK = {"p40": 7e5, "p50": 7e5, "p60": 14e5}
SWITCHED, STUCK = ({"calls": 100, "stuck": stuck, "p50": p50}
                   for stuck, p50 in ((0, 1e6), (30, 1e3)))


@pytest.mark.parametrize("base, series, expected", (
    # A call that switches nobody is not fast, on either side.
    (STUCK, SWITCHED, {"stuck_percent": BETTER}),
    (SWITCHED, STUCK, {"stuck_percent": WORSE}),
    # A few of them do not hide the others.
    ({"calls": 1000, "stuck": 9, "p50": 1e6},
     {"calls": 1000, "stuck": 9, "p50": 2e6},
     {"stuck_percent": SAME, "p50": WORSE}),
    # One tick or two.
    (TICK, TICK | {"p50": 14e5}, {"p50": SAME}),
    (TICK, {"p40": 14e5 + 1, "p50": 14e5 + 2, "p60": 14e5 + 2},
     {"p50": WORSE}),
    # Less than a reading of the clock; a mean is not read once.
    ({"p99": 5e4}, {"p99": 5e4 + READING - 1}, {"p99": TINY}),
    ({"p99": 5e4}, {"p99": 5e4 + READING}, {"p99": WORSE}),
    ({"p99": 5e4}, {"p99": 5e4 - READING}, {"p99": BETTER}),
    ({"ns_per_call": 500}, {"ns_per_call": 510}, {"ns_per_call": WORSE})))
def test_what_a_time_of_a_yield_can_tell(base: dict, series: dict,
                                         expected: dict) -> None:
    samples = Samples()
    for column, found in (("base", base), ("series", series)):
        for _ in range(ENOUGH):
            samples.add("yield_latency", column,
                        {"cases": [case("polite", **found)]})
    assert {row.figure.name: row.verdict
            for row in compare(samples, "yield_latency")} == expected


def test_features_off_are_a_column_of_the_series_only() -> None:
    samples = Samples()
    for column, old in (("series", 1), ("series_server", 9)):
        samples.add("yield_latency", column, {"cases": [
            case("a", features="old", p50=old),
            case("a", features="new", p50=2),
            {"name": "b", "status": "skip", "reason": "no such file"}]})
    assert {name: samples.median("yield_latency", name, "a", "p50")
            for name in samples.columns("yield_latency")} == {
        "off": 1, "series": 2, "series_server": 2}
    assert samples.skipped["yield_latency", "series"] == {"b": "no such file"}


# --- the page --------------------------------------------------------------

def page(tmp_path: Path, *cells: dict[str, dict]) -> str:
    """Return report.md of cells."""
    for one in cells:
        figures.add_cells(tmp_path / "study", one)
    report.write(figures.collect(tmp_path / "study"), {}, tmp_path)
    return (tmp_path / "report.md").read_text()


def test_the_figures_of_the_literature_have_sources(tmp_path: Path) -> None:
    text = page(tmp_path)
    files = sorted((ROOT / "tools/study-data").glob("*.json"))
    assert {path.stem for path in files} == {
        name for _, names, _ in report.SECTIONS.values() for name in names}
    for path in files:
        data = json.loads(path.read_text())
        assert f"]({data['source']['url']})" in text
        assert data["source"]["author"] in text
        assert all(len(row["values"]) == len(data["columns"])
                   for row in data["rows"])
        # Without figures it says why.
        assert data["rows"] or data["missing"] in text
    assert "| 65535 | 10517 | 10607 | 2481 |" in text


def test_what_is_not_there_is_said(tmp_path: Path) -> None:
    text = page(tmp_path, ping("base", 50))
    for words in ("- `series`: not measured.", "- `base`: 7.3.4", *(
            f"**Today: no result of `{name}`.**" for name in report.SECTIONS)):
        assert words in text


def test_worse_is_told_first(tmp_path: Path) -> None:
    text = page(tmp_path, ping("base", 92, 92, 94, 90),
                ping("series", 82, 82, 84, 80),
                ping("base_server", 70, 70, 70, 70),
                ping("series_server", 90, 90, 90, 90),
                ping("base_softrt", 90, 90, 90, 90),
                ping("series_softrt", 10, 10, 10, 10))
    short = text.split("### Worse\n")[1].split("\n## ")[0]
    assert re.findall(r"^\| `.*", short, re.M) == [
        "| `pi_ping`: `load-1` (processes, series, soft real-time) | % of "
        "the deadlines met | 90 | 10 | 0.111 | 0.0 % |",
        "| `pi_ping`: `load-1` (processes) | % of the deadlines met | 92 | "
        "82 | 0.891 | 4.9 % |",
        "| `pi_ping`: `load-1` (processes, series, server) | % of the "
        "deadlines met | 70 | 90 | 1.286 | 0.0 % |",
        "| `pi_ping`: `reference` (processes) | % of one task's digits | 100 "
        "| 110 | 1.100 | 0.0 % |"]
    assert short.index("soft real-time") < short.index("### Better")
    assert "9 figures of base and series are compared: 2 worse, 2 better, " \
        "5 within the noise." in text
    assert "All figures of pi_ping processes: 1 worse, 1 better, 1 within " \
        "the noise" in text
    # All columns are beside each other, and what is worse is marked.
    assert "| `load-1` | % of the deadlines met | 92 | 82 | 70 | 90 | 90 | " \
        "10 | 0.891 | 4.9 % | **worse** |" in text
    assert text.index("| **worse** |") < text.index("| better |") < \
        text.index("| within the noise |")


def test_what_became_nothing_moved_most() -> None:
    rows = [figures.Row("pi_ping", "", figures.FIGURES["pi_ping"][0],
                        figures.SIDES, base, series, 0, 4, WORSE)
            for base, series in ((10, 9), (1, 4), (0, 1), (10, 1))]
    assert [row.series for row in sorted(rows, key=report.moved)] == [
        9, 4, 1, 1]


def test_every_picture_is_drawn_and_shown(tmp_path: Path) -> None:
    """The page of the results that are in the repository."""
    (tmp_path / "report-of-old.svg").touch()
    report.write(figures.collect(ROOT / "results/study"), {}, tmp_path)
    names = {f"report-{name}.svg" for pictures in plots.PICTURES.values()
             for name, _, _ in pictures}
    assert {path.name for path in tmp_path.glob("*.svg")} == names
    text = (tmp_path / "report.md").read_text()
    for name in names:
        ElementTree.parse(tmp_path / name)
        assert f"]({name})" in text
    assert text.count("<details>") == text.count("|\n\n</details>") > 5
    drawn = (tmp_path / "report-ioperm.svg").read_text()
    for words in ("as 2.6.8.1: 8 KB, every switch", ">4.18<", ">base<"):
        assert words in drawn


@pytest.mark.parametrize("to, values", (
    (("base", ""), {"base": [1, 1, None], "series": [0.5, 2, None]}),
    (("", "a"), {"base": [1, 2, None], "series": [1, 8, None]})))
def test_a_chart_of_what_is_relative(to: tuple[str, str],
                                     values: dict[str, list]) -> None:
    samples = Samples()
    for column, a, b in (("base", 4, 8), ("series", 2, 16)):
        samples.add("hackbench", column, {"cases": [
            case("a", ms_per_loop=a), case("b", ms_per_loop=b)]})
    cases = {"a": "1", "b": "2", "gone": "3"}
    assert plots.chart(samples, "hackbench", cases, "ms_per_loop",
                       to=to).values == values


def test_what_a_board_brought_back() -> None:
    text = "\n".join(report.board("apu2", {side: {
        "cases": {"x86.iopl_64": "pass", "x86.amx_64": "skip"},
        "figures": {"ioperm_latency": {"unit": "tsc", "cases": [
            {"name": "none", "p50": p50}, {"name": "pair"}]}},
    } for side, p50 in (("base", 4100), ("series", 4000))}))
    for words in ("## The board apu2", "| skip | 1 | 1 |", "p50, tsc",
                  "| `none` | 4100 | 4000 |"):
        assert words in text
    assert "pair" not in text and "yield_latency" not in text


def test_a_file_that_is_no_result(tmp_path: Path) -> None:
    for text in ("[]", '{"a": 1}', '{"a": {}}'):
        (tmp_path / "x.json").write_text(text)
        with pytest.raises(Fail, match="x.json is not a result of"):
            figures.read_cells(tmp_path)


def test_own_results_go_before_published_ones_and_are_published(
        tmp_path: Path, monkeypatch: pytest.MonkeyPatch, replace) -> None:
    replace(report, PUBLISHED=tmp_path, STUDY=tmp_path / "mine",
            RESULTS=tmp_path)
    monkeypatch.setattr("sys.argv", ["report", "--publish"])
    with pytest.raises(Fail, match="run 'make study' first"):
        report.main()
    figures.add_cells(tmp_path / "study",
                      ping("base", 5, 5) | ping("series", 7))
    figures.add_cells(tmp_path / "mine", ping("base", 6))
    for words in ([], ["--publish"]):
        monkeypatch.setattr("sys.argv", ["report", *words])
        report.main()
        assert "| `load-1` | % of the deadlines met | 5.5 | 7 |" in (
            tmp_path / "report.md").read_text()
    found = figures.read_cells(tmp_path / "study")
    assert [cell["result"]["cases"][1]["met_percent"]
            for cell in found.values()] == [6, 5, 7]
