# SPDX-License-Identifier: GPL-2.0-only
"""study and measure: what is run, what is resumed, what is refused."""

import json
import re
import subprocess
import sys
import threading
import time
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from conftest import Box, write

from tools import build, core, figures, measure, study
from tools.core import ROOT, Fail, read_json
from tools.figures import PROGRAMS, SIDES, add_cells, read_cells

OK = {"cases": [{"name": "none", "status": "ok"}]}


def cells(*patterns: str, repeat: int = 1) -> list[study.Cell]:
    return study.chosen(study.plan(repeat), list(patterns))


# --- the plan --------------------------------------------------------------

def test_the_plan_has_each_cell_once_and_both_sides_alike() -> None:
    every = {cell.name: cell for cell in study.plan(3)}
    assert len(every) == len(study.plan(3))
    assert {cell.kernel for cell in every.values()} <= set(build.KERNELS)
    assert {cell.program for cell in every.values()} == {*PROGRAMS,
                                                         "hackbench"}
    for name, cell in every.items():
        more = name.rpartition(".")[0] + ".3"
        assert (more in every) == (cell.column in SIDES)
        assert ("--features" in cell.arguments) == (
            cell.program == "yield_latency"
            and cell.column.startswith("series"))
        other = every.get(name.replace(".base", ".series"), cell)
        if cell.program != "yield_latency":
            assert cell.arguments == other.arguments
    assert [cell.arguments for cell in cells(
        "interactive_latency.threads.base", repeat=2)] == [
        "--all --layout threads --seed 1", "--all --layout threads --seed 2"]


def test_only_takes_words_of_a_name() -> None:
    names = [cell.name for cell in cells("ioperm_latency.history_8k",
                                         "hackbench.base.2", repeat=2)]
    assert names == ["ioperm_latency.history_8k.1",
                     "ioperm_latency.history_8k.2", "hackbench.base.2"]


def test_history_is_beside_the_series_and_touches_one_file() -> None:
    for column, patch in study.HISTORY.items():
        assert build.KERNELS[column].commit == column
        assert re.findall(r"^\+\+\+ b/(.*)$", patch.read_text(), re.M) == [
            "arch/x86/kernel/process.c"]
        assert patch.name not in (ROOT / "series").read_text()


# --- what is resumed -------------------------------------------------------

class Ran:
    """study without kernels: what ran and was built, and what goes wrong."""

    def __init__(self) -> None:
        self.columns: list[str] = []
        self.built: list[str] = []
        self.wrong: dict[str, BaseException] = {}

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
def ran(tmp_path: Path, replace) -> Ran:
    found = Ran()
    replace(study, STUDY=tmp_path / "study", begin=str, history_branch=str,
            run_cell=found.run_cell, cell_key=lambda cell: f"key {cell.name}")
    replace(build, build_kernel=found.build_kernel, describe=lambda name: {},
            build_selftests=lambda names, flags: dict.fromkeys(names, *flags),
            build_bench=lambda name, static: f"{name} {static}")
    return found


def two(jobs: int = 1) -> None:
    study.run(cells("ioperm_latency")[:2], jobs)


def test_static_programs_are_built_and_no_hackbench(ran: Ran) -> None:
    programs, broken = study.build_all(
        cells("ioperm_latency", "pi_ping.threads", "hackbench.base"))
    assert programs == {"ioperm_latency": "-static", "pi_ping": "pi_ping True"}
    assert not broken


def test_it_goes_on_with_what_is_missing(
        ran: Ran, capsys: pytest.CaptureFixture) -> None:
    for number in (2, 0):
        two()
        assert ran.columns == ["base", "series"]
        assert f"{number} of 2 cells to measure" in capsys.readouterr().out
    add_cells(study.STUDY, {"ioperm_latency.base.1": {
        "key": "of another kernel", "result": OK}})
    two()
    assert ran.columns == ["base", "series", "base"]


@pytest.mark.parametrize("column, wrong, jobs, words, kept", (
    ("base", Fail("a panic"), 1, "1 cells .*: ioperm_latency.base", "series"),
    ("base", Fail("a panic"), 2, "1 cells .*: ioperm_latency.base", "series"),
    ("series", KeyboardInterrupt(), 1, None, "base")))
def test_what_is_finished_is_kept(
        ran: Ran, column: str, wrong: BaseException, jobs: int,
        words: str | None, kept: str) -> None:
    ran.wrong[column] = wrong
    with pytest.raises(type(wrong), match=words):
        two(jobs)
    assert list(read_cells(study.STUDY)) == [f"ioperm_latency.{kept}.1"]


def test_several_at_a_time_lose_no_cell(
        ran: Ran, replace) -> None:
    def read_slowly(*words: Any) -> Any:
        found = read_json(*words)
        time.sleep(0.02)
        return found

    together = threading.Barrier(2, timeout=10)
    replace(study, run_cell=lambda *_: [together.wait(), OK][1])
    replace(figures, read_json=read_slowly)
    every = cells("ioperm_latency", repeat=2)
    study.run(every, 2)
    assert set(read_cells(study.STUDY)) == {cell.name for cell in every}


def test_what_is_not_built_is_tried_once_and_leaves_the_others(
        ran: Ran, monkeypatch: pytest.MonkeyPatch,
        capsys: pytest.CaptureFixture) -> None:
    monkeypatch.setattr("shutil.which", lambda tool: None)
    ran.wrong["build base"] = Fail("no space")
    with pytest.raises(Fail, match="4 cells failed"):
        study.run(cells("pi_ping.processes.base", "pi_ping.ext_qmap",
                        "pi_ping.processes.series", repeat=2), 1)
    assert ran.built == ["base", "series", study.EXT]
    assert ran.columns == ["series", "series"]
    said = capsys.readouterr().out
    assert said.count("no space") == 2
    assert said.count("'clang-22' is missing: apt-get install clang-22") == 2


def test_what_a_cell_depends_on(monkeypatch: pytest.MonkeyPatch,
                                replace) -> None:
    replace(study, kernel_key=lambda name: f"of {name}",
            program_key=lambda name: name)
    one = {cell.column: cell for cell in cells("yield_latency")}
    keys = {column: study.cell_key(cell) for column, cell in one.items()}
    assert len(set(keys.values())) == len(keys)
    for name, value, changed in (
            ("CLANG", "-99", {"ext_simple", "ext_qmap"}),
            ("kernel_key", lambda _: "another", set(keys)),
            ("program_key", lambda _: "another", set(keys))):
        with monkeypatch.context() as patch:
            patch.setattr(study, name, value)
            assert {column for column, cell in one.items()
                    if study.cell_key(cell) != keys[column]} == changed


def test_list_measures_nothing(box: Box) -> None:
    write(box.build, {"results/study/hackbench.json": json.dumps(
        {"hackbench.base.1": {"date": "2026-01-01", "result": OK}})})
    run = box.done("tools.study", "--list", "--only", "hackbench")
    assert re.findall("^.*2026-01-01$", run.out, re.M) == [
        f"{'hackbench.base.1':44} 2026-01-01"]
    assert run.out.count("\n") == 24
    assert not (box.build / "linux.git").exists()
    for words, say in ((("--only", "x"), "no cell has this name"),
                       (("--repeat", 0), "--repeat")):
        box.refused("tools.study", *words, say=say)


# --- what a guest runs -----------------------------------------------------

@pytest.mark.parametrize("name, status, shown, whole", (
    ("pi_ping.threads.base", 0, '{"cases": []}', True),
    ("pi_ping.threads.base", 4, '{"cases": []}', True),
    ("pi_ping.threads.base", 0, "{", False),
    ("pi_ping.threads.base", 1, '{"cases": []}', False),
    ("pi_ping.threads.base", None, "", False),
    ("hackbench.base", 1, "", True),
    ("hackbench.ext_qmap", 0, "", True),
    # The scheduler does not load, or was thrown out.
    ("hackbench.ext_qmap", 1, "", False)))
def test_what_comes_out_of_a_guest(
        tmp_path: Path, replace, name: str, status: int | None, shown: str,
        whole: bool) -> None:
    def run_isolated(_: Path, script: Path, words: list, log: Path,
                     report: str, **more: Any) -> tuple:
        assert (report == study.REPORT) == ("pi_ping" in name)
        log.write_text("the last line\n")
        return SimpleNamespace(output="case: x\n", status=status), shown

    replace(core, BUILD=tmp_path)
    replace(study, LOGS=tmp_path, closure=lambda names: {},
            run_isolated=run_isolated)
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
    assert done.stdout.split() == ["--json", study.REPORT,
                                   *study.TASK_WORDS]
    assert not done.stderr


def test_hackbench() -> None:
    cell, = cells("hackbench.ext_qmap")
    text = study.cell_script(cell)
    assert "/bin/scx_qmap >" in text
    assert re.findall("case: (.*); hackbench", text) == [*study.HACKBENCH]
    assert "threads-pipes-4; hackbench -g 4 -l 50 -T -p 2>&1\n" in text
    found = study.hackbench_result(
        "case: threads-pipes-4\nRunning in threaded mode\nTime: 0.125\n"
        "case: threads-pipes-1\nfork() (error: no memory)\n")["cases"]
    assert len(found) == len(study.HACKBENCH)
    shown = {case["name"]: (case["status"], case.get("ms_per_loop"),
                            case["reason"]) for case in found}
    assert shown["threads-pipes-4"] == ("ok", 2.5, None)
    assert shown["threads-pipes-1"] == (
        "fail", None, "fork() (error: no memory)")
    assert shown["threads-pipes-2"] == ("fail", None, "it did not run")


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
until [ -s "${0%/*}/said" ]; do sleep 0.01; done
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


# --- measure ---------------------------------------------------------------

def test_measure_needs_the_standard_library_only() -> None:
    # Without the packages of a venv, its own hooks included.
    subprocess.run([sys.executable, "-ISc", "import sys\n"
                    f"sys.path.insert(0, {str(ROOT)!r})\n"
                    "import tools.measure"], check=True)


@pytest.mark.parametrize("error", (KeyboardInterrupt, Fail))
def test_what_was_measured_is_written(
        tmp_path: Path, replace, error: type[BaseException]) -> None:
    def run_logged(words: list[str], log: Path, **more: Any) -> int:
        if words[0] == "yield_latency":
            raise error("planted")
        words.pop(0)
        Path(words.pop()).write_text(json.dumps(OK | {"words": words}))
        return 4

    replace(core, BUILD=tmp_path)
    replace(measure, RESULTS=tmp_path, run_logged=run_logged,
            build_programs=lambda names: {name: Path(name) for name in names})
    with pytest.raises(error):
        measure.run(["interactive_latency", "yield_latency", "pi_ping"], 2)
    path, = tmp_path.glob("measure-*.json")
    found = json.loads(path.read_text())
    # What follows a program that fails is measured.
    assert found["complete"] == (error == Fail)
    assert found["results"] == {
        "interactive_latency": [
            OK | {"words": ["--seed", seed, "--json"]} for seed in "12"],
        "yield_latency": [],
        "pi_ping": [OK | {"words": ["--json"]}] * (2 * (error == Fail))}


def document(value: float, repeat: int) -> str:
    """Return what measure writes, with one figure a run."""
    return json.dumps({
        "date": "2026-01-01T00:00", "repeat": repeat, "complete": True,
        "machine": {"kernel": "7.3", "cpu": "a CPU"},
        "results": {"yield_latency": [{"cases": [
            {"name": "switch-proc-2", "features": "as-is", "status": "ok",
             "ns_per_call": value + run}]} for run in range(repeat)]}})


def test_measure_compares_two_files(box: Box) -> None:
    # Of c, more than is assumed of this figure in a guest.
    write(box.temp, {"a": document(1000, 4), "b": document(1500, 4),
                     "c": document(1080, 1), "d": "{}"})
    a, b, c, d = (box.temp / name for name in "abcd")
    run = box.done("tools.measure", "--compare", a, b, say="1.499")
    assert "worse" in run.out and "--repeat" not in run.out
    run = box.done("tools.measure", "--compare", a, c, say="--repeat 4")
    assert "10.0 %" in run.out and "worse" not in run.out
    box.refused("tools.measure", "--compare", a, d, say="is not a result")
    box.refused("tools.measure", "--repeat", 0, say="--repeat")
