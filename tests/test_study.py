# SPDX-License-Identifier: GPL-2.0-only
"""study and measure: what is run, what is resumed, what is refused."""

import json
import re
import subprocess
import sys
import threading
import time
from argparse import Namespace
from dataclasses import dataclass, field
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from conftest import Box, write

from tools import build, core, figures, measure, study
from tools.core import ROOT, Fail, duration, read_json
from tools.figures import PROGRAMS, SIDES, add_cells, read_cells

OK = {"cases": [{"name": "none", "status": "ok"}]}


def cells(*patterns: str, repeat: int = 1) -> list[study.Cell]:
    return study.chosen(study.plan(repeat), list(patterns))


# --- the plan --------------------------------------------------------------

def test_every_column_is_a_kernel_and_every_name_is_one_cell() -> None:
    every = study.plan(3)
    assert {cell.kernel for cell in every} <= set(build.KERNELS)
    assert len({cell.name for cell in every}) == len(every)
    assert {cell.program for cell in every} == {*PROGRAMS, "hackbench"}
    for column in {cell.column for cell in every}:
        assert {cell.repeat for cell in every if cell.column == column} == (
            {1, 2, 3} if column in SIDES else {1, 2})


def test_both_sides_have_the_same_arguments_and_seeds() -> None:
    every = {cell.name: cell for cell in study.plan(2)}
    for name, cell in every.items():
        other = every.get(name.replace(".base", ".series"))
        if other and cell.program != "yield_latency":
            assert cell.arguments == other.arguments
        assert ("--features" in cell.arguments) == (
            cell.program == "yield_latency"
            and cell.column.startswith("series"))
    one, two = cells("interactive_latency.threads.base", repeat=2)
    assert (one.arguments, two.arguments) == (
        "--all --layout threads --seed 1", "--all --layout threads --seed 2")


def test_only_takes_words_of_a_name() -> None:
    names = [cell.name for cell in cells("ioperm_latency.history_8k",
                                         "hackbench.base.2", repeat=2)]
    assert names == ["ioperm_latency.history_8k.1",
                     "ioperm_latency.history_8k.2", "hackbench.base.2"]
    with pytest.raises(Fail, match="no cell has this name"):
        cells("pi_ping", "pi_pong")


def test_history_is_beside_the_series_and_touches_one_file() -> None:
    for column, patch in study.HISTORY.items():
        assert build.KERNELS[column].commit == column
        assert re.findall(r"^\+\+\+ b/(.*)$", patch.read_text(), re.M) == [
            "arch/x86/kernel/process.c"]
        assert patch.name not in (ROOT / "series").read_text()


# --- what is resumed -------------------------------------------------------

@dataclass
class Ran:
    """study without kernels: what ran, in order, and what goes wrong."""

    columns: list[str] = field(default_factory=list)
    built: list[str] = field(default_factory=list)
    wrong: dict[str, BaseException] = field(default_factory=dict)

    def run_cell(self, cell: study.Cell, programs: dict) -> dict[str, Any]:
        if cell.column in self.wrong:
            raise self.wrong[cell.column]
        self.columns.append(cell.column)
        return OK

    def build_kernel(self, name: str) -> None:
        self.built.append(name)
        if f"build {name}" in self.wrong:
            raise self.wrong[f"build {name}"]


@pytest.fixture
def ran(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Ran:
    found = Ran()
    for name, value in {
            "STUDY": tmp_path / "study", "PUBLISHED": tmp_path / "published",
            "begin": str, "left_out": dict, "run_cell": found.run_cell,
            "history_branch": str, "build_programs": lambda names: {},
            "cell_key": lambda cell: f"key {cell.name}"}.items():
        monkeypatch.setattr(study, name, value)
    monkeypatch.setattr(build, "build_kernel", found.build_kernel)
    monkeypatch.setattr(build, "describe", lambda name: {})
    monkeypatch.setattr(build, "image", lambda name: tmp_path)
    return found


def finish(place: Path, column: str, key: str) -> None:
    """Store a cell of ioperm_latency, measured of some key."""
    add_cells(place, {f"ioperm_latency.{column}.1": {
        "key": key, "seconds": 1, "result": OK}})


def two(jobs: int = 1, published: bool = False) -> None:
    study.run(cells("ioperm_latency")[:2], published, jobs)


def test_it_goes_on_with_what_is_missing(
        ran: Ran, capsys: pytest.CaptureFixture) -> None:
    two()
    assert ran.columns == ["base", "series"]
    assert "2 of 2 cells to measure" in capsys.readouterr().out
    two()
    assert ran.columns == ["base", "series"]
    assert "0 of 2 cells to measure" in capsys.readouterr().out
    finish(study.STUDY, "base", "of another kernel")
    two()
    assert ran.columns == ["base", "series", "base"]


def test_published_cells_count_when_they_are_of_the_same(ran: Ran) -> None:
    finish(study.PUBLISHED / "study", "base", "key ioperm_latency.base.1")
    finish(study.PUBLISHED / "study", "series", "of another kernel")
    two(published=True)
    assert ran.columns == ["series"]
    two()
    assert ran.columns == ["series", "base"]


@pytest.mark.parametrize("jobs", (1, 2))
def test_a_failure_does_not_stop_the_others(ran: Ran, jobs: int) -> None:
    ran.wrong["base"] = Fail("a panic")
    with pytest.raises(Fail, match="1 cells failed.*: ioperm_latency.base.1"):
        two(jobs)
    assert list(read_cells(study.STUDY)) == ["ioperm_latency.series.1"]


def test_an_interruption_keeps_what_is_finished(ran: Ran) -> None:
    ran.wrong["series"] = KeyboardInterrupt()
    with pytest.raises(KeyboardInterrupt):
        two()
    assert list(read_cells(study.STUDY)) == ["ioperm_latency.base.1"]


def test_several_at_a_time_lose_no_cell(
        ran: Ran, monkeypatch: pytest.MonkeyPatch) -> None:
    def read_slowly(*words: Any) -> Any:
        found = read_json(*words)
        time.sleep(0.02)
        return found

    together = threading.Barrier(2, timeout=10)
    monkeypatch.setattr(study, "run_cell",
                        lambda *_: [together.wait(), OK][1])
    monkeypatch.setattr(figures, "read_json", read_slowly)
    every = cells("ioperm_latency", repeat=2)
    study.run(every, False, 2)
    assert set(read_cells(study.STUDY)) == {cell.name for cell in every}


def test_a_kernel_that_does_not_build_is_tried_once(ran: Ran) -> None:
    ran.wrong["build base"] = Fail("no space")
    with pytest.raises(Fail, match="2 cells failed"):
        study.run(cells("ioperm_latency.base", "ioperm_latency.series",
                        repeat=2), False, 1)
    assert ran.built == ["base", "series"]
    assert ran.columns == ["series", "series"]


def test_what_a_cell_depends_on(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(study, "kernel_key", lambda name: f"of {name}")
    monkeypatch.setattr(study, "program_key", lambda name: name)
    one = {cell.column: cell for cell in cells("yield_latency")}
    keys = {column: study.cell_key(cell) for column, cell in one.items()}
    assert len(set(keys.values())) == len(keys)
    with monkeypatch.context() as patch:
        patch.setattr(study, "CLANG", "-99")
        assert study.cell_key(one["base"]) == keys["base"]
        assert study.cell_key(one["ext_qmap"]) != keys["ext_qmap"]
    for name in ("kernel_key", "program_key"):
        with monkeypatch.context() as patch:
            patch.setattr(study, name, lambda _: "another")
            assert study.cell_key(one["base"]) != keys["base"], name


def test_list_measures_nothing(box: Box) -> None:
    write(box.build, {"results/study/hackbench.json": json.dumps(
        {"hackbench.base.1": {"date": "2026-01-01", "seconds": 200,
                              "result": OK}})})
    run = box.done("tools.study", "--list", "--only", "hackbench", "--jobs",
                   1, say="2026-01-01, 3 min 20 s")
    # The others take as long, and seven kernels are to be built.
    assert "23 of 24 cells to measure" in run.out
    assert f"about {duration(23 * 200 + 7 * 360)}," in run.out
    assert not (box.build / "linux.git").exists()
    box.refused("tools.study", "--only", "x", say="no cell has this name")
    box.refused("tools.study", "--repeat", 0, say="--repeat")
    write(box.build, {"results/study/hackbench.json": "[]"})
    box.refused("tools.study", "--list", say="hackbench.json is not a "
                "result of 'make study'")


# --- what a guest runs -----------------------------------------------------

@pytest.mark.parametrize("name, status, shown, whole", (
    ("pi_ping.threads.base", 0, '{"cases": []}', True),
    ("pi_ping.threads.base", 4, '{"cases": []}', True),
    ("pi_ping.threads.base", 0, None, False),
    ("pi_ping.threads.base", 0, "{", False),
    ("pi_ping.threads.base", 1, '{"cases": []}', False),
    ("pi_ping.threads.base", None, None, False),
    ("hackbench.base", 1, None, True),
    ("hackbench.ext_qmap", 0, None, True),
    # The scheduler does not load, or was thrown out.
    ("hackbench.ext_qmap", 1, None, False)))
def test_what_comes_out_of_a_guest(
        tmp_path: Path, monkeypatch: pytest.MonkeyPatch, name: str,
        status: int | None, shown: str | None, whole: bool) -> None:
    files = [] if shown is None else [
        ("report", SimpleNamespace(output=shown))]
    monkeypatch.setattr(study, "LOGS", tmp_path)
    monkeypatch.setattr(core, "BUILD", tmp_path)
    monkeypatch.setattr(study, "closure", lambda names: {})
    monkeypatch.setattr(study, "boot_tiny", lambda *_, **more: [
        ("script", SimpleNamespace(output="the last line\n",
                                   status=status)), *files])
    cell, = cells(name)
    programs = dict.fromkeys({"pi_ping", "ext_qmap"}, Path("program"))
    if whole:
        assert len(study.run_cell(cell, programs)["cases"]) in (0, 24)
    else:
        with pytest.raises(Fail, match="the last line"):
            study.run_cell(cell, programs)


def test_the_script_of_a_cell() -> None:
    cell, = cells("pi_ping.batch.series")
    assert study.cell_script(cell).endswith(
        f"\n/bin/pi_ping --json {study.REPORT} --layout processes --policy "
        "batch\n")
    # Each run begins at another time.
    one, again = (study.cell_script(cell) for cell in
                  cells("ioperm_latency.base", repeat=2))
    assert one != again
    done = subprocess.run(
        ["sh", "-ec", one.replace("ip link", "true")
         .replace("export PATH=/bin\n", "")
         .replace("/bin/ioperm_latency_64", "echo")],
        capture_output=True, text=True, timeout=60)
    assert (done.stdout, done.stderr) == (f"--json {study.REPORT}\n", "")


def test_hackbench() -> None:
    cell, = cells("hackbench.ext_qmap")
    text, cases = study.hackbench_script()
    assert len(cases) == text.count("case: ") == 4 * len(study.GROUPS)
    assert text in study.cell_script(cell)
    assert "/bin/scx_qmap >" in study.cell_script(cell)
    found = study.hackbench_result(
        "case: a\nRunning in process mode with 2 groups\nTime: 0.125\n"
        "case: c\nfork() (error: no memory)\n",
        [{"name": name, "loops": 50} for name in "acd"])["cases"]
    assert [case.get("ms_per_loop") for case in found] == [2.5, None, None]
    assert [case["status"] for case in found] == ["ok", "fail", "fail"]
    assert "no memory" in found[1]["reason"]
    assert found[2]["reason"] == "it did not run"


@pytest.mark.parametrize("states, command, status, said", (
    (["disabled", "enabled"], "(exit 4)", 4, ""),
    (["disabled"], "echo ran", 1, "does not load"),
    (["enabled", "disabled"], "true", 1, "thrown out")))
def test_under_a_scheduler(tmp_path: Path, monkeypatch: pytest.MonkeyPatch,
                           states: list[str], command: str, status: int,
                           said: str) -> None:
    monkeypatch.setattr(study, "START_SECONDS", 3)
    # The next state, the last one for ever.
    write(tmp_path, {"grep.d": "\n".join(states) + "\n", "grep": """\
#!/bin/sh
read -r now <"$0.d"
[ "$(wc -l <"$0.d")" = 1 ] || sed -i 1d "$0.d"
[ "$now" = enabled ]
""", "loader": "#!/bin/sh\necho said so\nexec sleep 60\n"})
    for name in ("grep", "loader"):
        (tmp_path / name).chmod(0o755)
    script = study.under(str(tmp_path / "loader"), command) \
        .replace("sleep 1", "sleep 0.01").replace("kill -INT", "kill -TERM") \
        .replace("/tmp/scheduler", str(tmp_path / "said"))
    done = subprocess.run(["sh", "-c", f"PATH={tmp_path}:$PATH; {script}"],
                          text=True, capture_output=True, timeout=30)
    assert done.returncode == status, done.stdout
    assert said in done.stdout
    assert ("said so" in done.stdout) == bool(said)
    assert "ran" not in done.stdout


def test_what_the_host_lacks_is_left_out(
        monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(study.shutil, "which", lambda tool: None)
    missing = study.left_out()
    assert set(missing) == {*study.SCHEDULERS, "hackbench"}
    assert "clang-22 llvm-22 dwarves" in missing["ext_simple"]
    monkeypatch.setattr(study.shutil, "which", lambda tool: tool)
    assert study.left_out() == {}


# --- measure ---------------------------------------------------------------

def test_measure_needs_the_standard_library_only() -> None:
    done = subprocess.run(
        [sys.executable, "-c", "import sys, tools.measure\n"
         "print(*sorted({name.split('.')[0] for name in sys.modules}"
         " - sys.stdlib_module_names - {'tools', '__main__'}))"],
        cwd=ROOT, capture_output=True, text=True, check=True)
    # A venv's own hooks may be there.
    assert not {"matplotlib", "markdown"} & set(done.stdout.split())


@pytest.mark.parametrize("words, say", (
    (("--cpu", 9999), "--cpu 9999"), (("--repeat", 0), "--repeat"),
    (("--max-load", 10 ** 9), "let me start")))
def test_what_the_machine_lacks(box: Box, words: tuple, say: str) -> None:
    box.refused("tools.measure", *words, say=say)
    assert not box.build.exists()


def test_arguments_of_the_programs() -> None:
    options = Namespace(cpu=1, max_load=8, all=False, seconds=0.5)
    assert [measure.command(name, Path("p"), options, 2)[1:]
            for name in PROGRAMS] == [
        ["--cpu", "1"], ["--cpu", "1", "--seconds", "0.5"],
        ["--cpu", "1", "--max-load", "8", "--seconds", "0.5"],
        ["--cpu", "1", "--layout=processes", "--seed", "2", "--seconds",
         "0.5"]]


@pytest.mark.parametrize("error", (KeyboardInterrupt, Fail))
def test_what_was_measured_is_written(
        tmp_path: Path, monkeypatch: pytest.MonkeyPatch,
        error: type[BaseException]) -> None:
    def run_program(name: str, words: list[str]) -> dict[str, Any]:
        if name == "yield_latency":
            raise error("planted")
        return OK

    monkeypatch.setattr(measure, "run_program", run_program)
    monkeypatch.setattr(measure, "build_programs",
                        lambda names: dict.fromkeys(names, Path("x")))
    options = Namespace(only=["ioperm_latency", "yield_latency"], repeat=2,
                        cpu=None, seconds=None, output=tmp_path / "out.json")
    with pytest.raises(error):
        measure.run(options)
    found = json.loads((tmp_path / "out.json").read_text())
    assert not found["complete"]
    assert found["results"] == {"ioperm_latency": [OK, OK],
                                "yield_latency": []}


def document(value: float, repeat: int) -> str:
    """Return what measure writes, with one figure a run."""
    return json.dumps({
        "date": "2026-01-01T00:00", "repeat": repeat, "complete": True,
        "machine": {"kernel": "7.3", "cpu": "a CPU"},
        "results": {"yield_latency": [{"cases": [
            {"name": "switch-proc-2", "features": "as-is", "status": "ok",
             "ns_per_call": value + run}]} for run in range(repeat)]}})


def test_measure_compares_two_files(box: Box) -> None:
    write(box.temp, {"a": document(1000, 4), "b": document(1500, 4),
                     "c": document(1050, 1), "d": "{}"})
    a, b, c, d = (box.temp / name for name in "abcd")
    run = box.done("tools.measure", "--compare", a, b, say="1.499")
    assert "worse" in run.out and "--repeat" not in run.out
    run = box.done("tools.measure", "--compare", a, c, say="--repeat 4")
    assert "10.0 %" in run.out and "worse" not in run.out
    box.refused("tools.measure", "--compare", a, d, say="is not a result")
