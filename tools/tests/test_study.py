# SPDX-License-Identifier: GPL-2.0-only
"""study, its page, and measure: what is run, resumed, said and refused."""

import json
import signal
import subprocess
import sys
import xml.etree.ElementTree as ElementTree
from pathlib import Path
from typing import Any

import pytest
from conftest import check_gone, write, write_program

from tools import build, core, measure, report, study
from tools.core import ROOT, Fail
from tools.figures import DATA, STUDY

OK = {"cases": [{"name": "none", "status": "ok", "reason": None, "p50": 1}]}


def cells(change: float = 1) -> dict[str, Any]:
    """Return cells of 'make study' with the figures of the tables; those of
    the series are the base's times change."""
    used = [(*row, *(experiment["figure"], experiment["program"])[
        len(row) - 2:]) for experiment in STUDY["experiments"]
        for row in experiment["rows"]]
    return {cell.name: {
        "kernel": {"release": "7.3.4", "compiler": "gcc"}, "result": {
            "cases": [{"name": case, "status": "ok", figure: (
                1000 + cell.run) * (change if "series" in cell.column else 1)}
                for _, case, figure, key in used if key == cell.key]}}
            for cell in study.plan()}


def test_the_plan_is_short_enough_and_both_sides_are_alike() -> None:
    plan = {cell.name: cell for cell in study.plan()}
    # On two cores, half of the 90 minutes: machines differ.
    assert sum(STUDY["programs"][cell.key]["seconds"]
               for cell in plan.values()) / 2 < 45 * 60
    for name, cell in plan.items():
        assert plan[name.replace(".base.", ".series.")].words == cell.words \
            or ".base." not in name
    assert [study.Cell("yield_latency.worker", "base", run).words[6]
            for run in (1, 2, 3)] == ["0", "300", "700"]
    assert len(study.plan(["history_8k", "blas_yield"])) == 3 + 2 * 3
    with pytest.raises(Fail, match="ONLY=x!: no cell"):
        study.plan(["x!"])


def test_it_goes_on_with_what_is_missing(
        tmp_path: Path, replace, capsys: pytest.CaptureFixture) -> None:
    plan, ran, wrong = study.plan(["blas_yield"]), [], []

    def run_cell(cell: study.Cell) -> dict[str, Any]:
        if cell in wrong:
            raise Fail("a panic")
        ran.append(cell)
        return OK

    program = tmp_path / "program"
    program.write_text("one")
    replace(study, PLACE=tmp_path, begin=str, build_column=str,
            run_cell=run_cell, build_program=lambda key: program)
    replace(build, describe=lambda name: {}, source_key=lambda commit: commit)
    wrong.append(plan[1])
    with pytest.raises(Fail, match=f"1 cells failed.*{plan[1].name}"):
        study.run(plan, False)
    wrong.clear()
    study.run(plan, True)
    assert f"{plan[1].name}\n1 of 6 cells left" in capsys.readouterr().out
    study.run(plan, False)
    assert len(ran) == len(plan) and ran[-1] == plan[1]
    program.write_text("another")
    study.run(plan, False)
    assert len(ran) == 2 * len(plan)
    replace(build, source_key=lambda commit: commit.replace("base", "new"))
    study.run(plan, False)
    assert ran[2 * len(plan):] == [
        cell for cell in plan if "base" in cell.column]


# The next state, the last one for ever.
GREP = """read -r now <"$0.d"
[ "$(wc -l <"$0.d")" = 1 ] || sed -i 1d "$0.d"
[ "$now" = enabled ]
"""


@pytest.mark.parametrize("states, command, status, said", (
    (["disabled", "enabled"], "exit 4", 4, ""),
    (["disabled"], "echo ran", 1, "does not load"),
    (["enabled", "disabled"], "true", 1, "thrown out")))
def test_a_guest_under_a_scheduler(tmp_path: Path, states: list[str],
                                   command: str, status: int,
                                   said: str) -> None:
    write(tmp_path, {"grep.d": "\n".join(states) + "\n"})
    guest = (DATA / "guest.sh").read_text().replace("INT", "TERM").replace(
        "/tmp/scheduler", str(tmp_path / "said"))
    for name, text in (
            ("grep", GREP), ("loader", "echo said so\nexec /bin/sleep 60\n"),
            ("sleep", ""), ("guest.sh", guest)):
        write_program(tmp_path / name, text)
    done = subprocess.run(
        [tmp_path / "guest.sh", "9", "loader", "sh", "-c", command],
        text=True, stdout=-1, timeout=60,
        env={"GUEST_PATH": f"{tmp_path}:/usr/bin:/bin"})
    assert done.returncode == status, done
    assert said in done.stdout and "ran" not in done.stdout


def test_the_page_is_short_and_has_all_pictures(tmp_path: Path) -> None:
    report.study_page(cells(2), tmp_path)
    text = (tmp_path / "study.md").read_text()
    assert len(text.splitlines()) <= 150 and "| not run |" not in text
    assert "| 65535, one bitmap | 10517 | 10607 | - | 1002 | 2004 |" in text
    published = core.read_json(ROOT / "results/study/study.json", {})
    report.study_page(published, tmp_path)
    assert (tmp_path / "study.md").read_text() == \
        (ROOT / "results/study.md").read_text()
    # Two runs tell nothing.
    assert report.judge([100] * 2, [900] * 2, "less") == ""
    for experiment in STUDY["experiments"]:
        name = f"study/{experiment['name']}.svg"
        ElementTree.parse(tmp_path / name)
        assert f"]({name})" in text and len(experiment["rows"]) <= 10


def test_what_was_not_run_is_said_and_not_published(
        tmp_path: Path, replace, monkeypatch: pytest.MonkeyPatch) -> None:
    noted = []
    monkeypatch.setattr("sys.argv", ["report"])
    replace(core, BUILD=tmp_path)
    replace(report, PLACE=tmp_path / "study", RESULTS=tmp_path,
            begin=lambda: None, cell_key=lambda cell: "key",
            record=lambda *words: noted.append(words))
    found = {f"{name}.json": json.dumps(cell | {"key": "key"})
             for name, cell in cells().items() if ".ext_" not in name}
    write(tmp_path / "study", found | {
        name: cell.replace('"key": "key"', '"key": "old"')
        for name, cell in found.items() if ".series." in name})
    report.main()
    assert "not run | not run |" in (tmp_path / "study.md").read_text()
    assert not noted
    write(tmp_path / "study", found)
    report.main()
    (name, *numbers, files), = noted
    assert name == "study" and {"study.md", "study/study.json"} < {*files}
    kept = tmp_path / "study/study.json"
    assert "hackbench.series.1" in json.loads(kept.read_text())
    assert kept.stat().st_size < 300_000


def test_measure_needs_the_standard_library_only() -> None:
    # Without the packages of a venv, its own hooks included.
    subprocess.run([sys.executable, "-ISc", "import sys\n"
                    f"sys.path.insert(0, {str(ROOT)!r})\n"
                    "import tools.measure"], check=True)


def test_a_program_ends_with_measure(box) -> None:
    program = write_program(box.temp / "program", (
        f'echo $$ >"{box.temp}/hangs"\nexec sleep 90\n'))
    box.interrupted("from pathlib import Path\nfrom tools import measure\n"
                    "measure.run_program('port_readers', 1, "
                    f"Path({str(program)!r}))", sig=signal.SIGKILL)
    check_gone(box.temp / "hangs")


def test_measure_writes_and_compares(tmp_path: Path, replace, capsys) -> None:
    refused = {"cases": [{"name": "a", "status": "skip", "reason": "refused"}]}

    def run_logged(words: list[str], log: Path, **more: Any) -> int:
        words = words[4:]
        if words[0] == "blas_yield":
            raise Fail("planted")
        Path(words[2]).write_text(json.dumps(
            refused if words[0] == "port_readers" else OK))
        return 4

    replace(core, BUILD=tmp_path)
    replace(measure, RESULTS=tmp_path, LOGS=tmp_path, run_logged=run_logged,
            build_program=Path)
    with pytest.raises(Fail, match="blas_yield.3 failed"):
        measure.run(["ioperm_turns", "port_readers", "blas_yield"])
    said = capsys.readouterr().out
    assert "run 1 of 3; about 4 min 45 s left" in said
    assert said.count(" port_readers: refused\n") == said.count("refused") == 1
    path, = tmp_path.glob("measure-*.json")
    assert ":" not in path.name
    found = json.loads(path.read_text())
    assert len(found["cells"]) == 6 and "CPUs" in found["machine"]
    other = tmp_path / "other.json"
    other.write_text(path.read_text().replace('"p50": 1', '"p50": 2'))
    measure.compare([path, other])
    page = (tmp_path / "compare/study.md").read_text()
    assert "| no ports | 2528 | 2423 | 2478 | 1 | 2 | 2.00 (worse) |" in page
    other.write_text("{}")
    with pytest.raises(Fail, match="is not a result"):
        measure.compare([path, other])
