# SPDX-License-Identifier: GPL-2.0-only
"""What the stick runs and shows; the gate boots it."""

from pathlib import Path

import pytest

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
