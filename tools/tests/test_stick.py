# SPDX-License-Identifier: GPL-2.0-only
"""What the stick runs and shows; the gate boots it."""

import base64
import gzip
import json
import re
import shutil
import subprocess
from collections.abc import Callable
from pathlib import Path

import pytest
from conftest import snapshot

from tools.boards import STICK, page
from tools.core import Fail
from tools.figures import STUDY, words_of


def side(name: str, *values: float, more: str = "") -> str:
    """Return a kernel's results as run.sh writes them: runs of one case."""
    cells = ",\n".join(f'"ioperm_turns.{run}":\n{{"cases": [\n'
                       f'{{"name": "none", "p50": {value}}}\n]}}'
                       for run, value in enumerate(values, 1))
    return f'"{name}":\n{{\n"product": "A board",\n"hypervisor": "",\n{more}' \
        f'"verdicts": {{\n"x_64": "fail"\n}}, "cells": {{\n{cells}\n}}}}\n'


def test_page(tmp_path: Path) -> None:
    path = tmp_path / "board.json"
    path.write_text("{\n" + side("base", 200, 100, 180) + ",\n" + side(
        "series", 90, more='"tsc": "Marking TSC unstable",\n'
        '"failed": "x_64: why, not ok 1",\n') + "}\n")
    text = page(path)
    assert text.startswith("# A board\n") and "hypervisor, not" not in text
    assert "|180|90.00|-|0.50|56|" in text.replace(" ", "")
    assert "Failed: base/x_64 series/x_64. The TSC is unstable" in text
    assert "\n- failed, series: x_64: why, not ok 1\n" in text
    assert "Missing: again" in text and "Missing: series" not in text
    path.write_text("[]")
    with pytest.raises(Fail, match="is not from a stick"):
        page(path)


def test_steps() -> None:
    """All takes a third of 25 minutes, is as in 'make measure', and has the
    figures, which fit the screen."""
    rows = [row.split() for row in (STICK / "steps").read_text().splitlines()]
    assert sum(int(row[0]) for row in rows) <= 500
    runs = [(*row[2].rpartition("."), *row[3:]) for row in rows]
    for key, _, run, *words in runs:
        if key in STUDY["programs"]:
            assert words == words_of(key, int(run))
    for row in (STICK / "figures").read_text().splitlines():
        words, key, *_ = row.split("; ")
        assert len(words) <= 20 and key in {run[0] for run in runs}


# Instead of what needs a machine.  What is on the stick is in /part until it
# is mounted.  Its lock is a file in place of a folder: root may write to any.
STUBS = """
mount() {
	[ $way != none ] || return
	mv /part/* /stick
	[ $way != locked ] || { mv /stick/results /part; : >/stick/results; }
}
umount() {
	[ $way != locked ] || rm /stick/results
	mv /stick/* /part
}
run_steps() { echo '"x": "pass",' >/tmp/verdicts; : >/tmp/cells; }
describe() { echo '"machine": "A PC",'; }
findfs() { echo /dev/sdz1; }
feed() { :; }
sleep() { :; }
crash= hang= tour=2024-1-2-3-4
main
"""
Boot = Callable[[str, str], str]


@pytest.fixture
def boot(tmp_path: Path) -> Boot:
    """Runs main of run.sh below tmp_path, with busybox: stick=, a way that the
    stick fails; returns what it prints."""
    path, shell = tmp_path / "applets", shutil.which("busybox")
    assert shell, "apt-get install busybox"
    for name in ("applets", "tmp", "dev", "stick", "part/results", "part/grub"):
        (tmp_path / name).mkdir(parents=True)
    subprocess.run([shell, "--install", "-s", path], check=True)
    for name in ("table.awk", "figures"):
        shutil.copy(STICK / name, tmp_path)
    text = (STICK / "run.sh").read_text().partition("/bin/busybox mkdir")[0]
    text = re.sub(
        r"(?<=[ >=<])/(bin|tmp|dev|stick|part|table|figures|proc/sysrq)\b",
        lambda match: str(path if match[1] == "bin" else tmp_path / match[1]),
        text + STUBS)

    def boot(stick: str, way: str) -> str:
        return subprocess.run(
            [shell, "sh", "-c", text], capture_output=True, text=True,
            check=True, env={"stick": stick, "way": way, "after": "off" if
                             stick == "report" else "reboot"}).stdout

    return boot


def test_the_stick_has_the_results(boot: Boot, tmp_path: Path) -> None:
    assert "STICK" not in boot("base", "works") + boot("series", "works")
    path, = tmp_path.glob("part/results/*.json")
    assert [*json.loads(path.read_text())] == ["base", "series"]
    shown = boot("report", "works")
    assert "Missing: again" in shown and "photograph" not in shown
    assert f"This is results/{path.stem}.txt on the stick" in shown


@pytest.mark.parametrize("way", ("none", "locked"))
def test_the_stick_cannot_be_written(boot: Boot, tmp_path: Path,
                                     way: str) -> None:
    """The table is shown, and nothing says that the stick has it.  No other
    kernel runs: that would clear the screen."""
    boot("base", "works")
    before = snapshot(tmp_path / "part/results")
    shown = boot("series", way)
    packed = base64.b64decode("".join(re.findall("STICK (.*)", shown)))
    assert [*json.loads(f"{{{gzip.decompress(packed).decode()}}}")] == [
        "series"]
    assert "| base |" in " ".join(shown.split()) and "A PC" in shown
    assert "photograph" in shown and "powers off" in shown
    assert "on the stick" not in shown and (tmp_path / "tmp/lost").exists()
    assert snapshot(tmp_path / "part/results") == before
