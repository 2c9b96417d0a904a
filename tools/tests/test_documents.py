# SPDX-License-Identifier: GPL-2.0-only
"""The links and lines of the .md files, the licence of every file, and the
figures that stand in texts by hand."""

import functools
import re
import statistics
import tomllib
from pathlib import Path

import pytest
from conftest import ROOT, git

from tools.core import SIDES, read_json
from tools.figures import Figure, Samples, figure_of


def faults(page: Path) -> list[str]:
    """Return the dead links and the long lines of a page."""
    found = []
    for link in re.findall(r"\]\((?![a-z]+:)([^)\s]+)\)", page.read_text()):
        path, _, anchor = link.partition("#")
        other = page.parent / path if path else page
        # A forge makes them of the headings.
        if not other.exists() or anchor and anchor not in (
                re.sub(r"[^\w -]", "", title).lower().replace(" ", "-")
                for title in re.findall("^#+ (.*)", other.read_text(), re.M)):
            found.append(link)
    # A table or a link cannot be wrapped.
    return found + [row for row in page.read_text().splitlines() if len(
        re.sub(r"\]\([^)]*\)", "]", row)) > 100 and row[0] != "|"]


def test_links_and_lines_of_all_pages() -> None:
    names = git(ROOT, "ls-files", "*.md").splitlines()
    assert "README.md" in names
    assert {name: found for name in names
            if (found := faults(ROOT / name))} == {}


def test_every_file_tells_its_licence() -> None:
    # JSON, patches and mails cannot; README.md does at its end.
    cannot = r"(patches|tools)/.*\.patch|tools/study-data/.*\.json|" \
        r"results/.*|selftests/.*|submit/.*\.(txt|2)|COPYING|README.md|" \
        "tools/stick/(figures|steps)"
    names = git(ROOT, "ls-files").splitlines()
    assert "tools/core.py" in names
    assert [name for name in names if not re.fullmatch(cannot, name)
            and "SPDX-License-Identifier" not in
            (ROOT / name).read_text()[:200]] == []


TEXTS = tomllib.loads((ROOT / "tools/tests/texts.toml").read_text())
NUMBER = r"\d+(?:[ ,]\d{3}(?!\d))*(?:\.\d+)?"
# What looks as if it had been measured: a fraction, three digits, a unit.
MEASURED = (rf"(?<![\w.,/-])(?:(?=\d*\.\d|\d{{3}}|\d+[ ,]\d{{3}}){NUMBER}|"
            rf"{NUMBER}(?= ?(?:%|[mun]?s\b|/s|cycles|instructions|bytes|times|"
            r"instead of)))(?!\w)")


# The figures of results/; those of the study have a key more.
PUBLISHED = Samples(read_json(ROOT / "results/bench.json")["results"])
for _name, _cell in read_json(ROOT / "results/study/study.json").items():
    _key, _column, _ = _name.rsplit(".", 2)
    PUBLISHED.add(f"{_key}.study", _column, _cell["result"])


def runs(column: str, case: str, name: str, of: str
         ) -> tuple[Figure, list[float]]:
    """Return what a figure is and its values: of 'make bench', one for each
    phase, or of a program of the study, one for each run."""
    keys = {key for key, *rest in PUBLISHED.values
            if rest == [column, case, name]
            and (key == f"{of}.study" or not of and ".study" not in key)}
    assert len(keys) == 1, f"{case}, {name} of {column}: {keys}"
    about = figure_of(key := keys.pop(), name)
    return about, [value / about.scale for value in
                   PUBLISHED.values[key, column, case, name]]


def median(column: str, case: str, name: str, of: str = "") -> float:
    return statistics.median(runs(column, case, name, of)[1])


def worst(column: str, case: str, name: str = "p50") -> float:
    about, values = runs(column, case, name, "")
    return max(values) if about.better == "less" else min(values)


def span(name: str, *cases: str) -> tuple[float, float]:
    found = [median("series", case, name) / median("base", case, name)
             for case in cases]
    return min(found), max(found)


def values_of(row: str) -> list[float | None]:
    """Return what a row of texts.toml stands for."""
    case, _, name = row.partition(" @ ")
    return eval(f"[{row}]", {
        "study": lambda of, *rest: median(*rest, of), "span": span,
        **{column: functools.partial(worst, column)
           for column in ("base", "off", "series")}}) if "'" in row else [
        worst(side, case, name or "p50") for side in SIDES]


def by_hand(path: Path) -> str:
    """Return what people wrote in a file: of a patch its changelog."""
    text = path.read_text()
    if path.suffix == ".patch":
        text = text.partition("\n---\n")[0].partition("\nSubject: ")[2]
    return re.sub(r"<!-- bench:begin -->.*<!-- bench:end -->|"
                  r"\[[^][]*\]\([^)]*\)", "", text, flags=re.S)


def wrong_figures(text: str, rows: dict[str, str],
                  found: set[str]) -> list[str]:
    """Return the numbers of a text that do not agree, or are in no row; found
    gets the rows that it has."""
    faults = []

    def check(row: str, match: re.Match) -> str:
        found.add(row)
        values = values_of(rows[row]) if rows[row] else \
            [None] * row.count("#")
        faults.extend(
            f"{row}: {number} is {value:.6g}"
            for number, value in zip(match.groups(), values, strict=True)
            if value is not None and abs(
                float(re.sub("[ ,]", "", number)) - value)
            > 0.5001 * 10 ** -len(number.partition(".")[2]))
        return re.sub(r"\d", "_", match[0])

    # Of two that fit, the one with more numbers, or words.
    for row in sorted(rows, key=lambda row: (-row.count("#"), -len(row))):
        text = re.sub(r"(?<!\w)" + r"\s+".join(
            re.escape(word).replace(r"\#", f"({NUMBER})")
            for word in row.split()), functools.partial(check, row), text)
    for pattern in TEXTS["plain"]:
        text = re.sub(pattern, "_", text)
    return faults + [f"{match[0]} is in no row: {line.strip()}"
                     for line in text.splitlines()
                     for match in re.finditer(MEASURED, line)]


@pytest.mark.parametrize("group", TEXTS["texts"],
                         ids=lambda group: group["files"][0])
def test_figures_in_texts_are_those_of_results(group) -> None:
    rows = group["rows"] | dict.fromkeys(group.get("unsourced", ()), "")
    found: set[str] = set()
    faults = {str(path.relative_to(ROOT)): faults
              for pattern in group["files"] for path in ROOT.glob(pattern)
              if (faults := wrong_figures(by_hand(path), rows, found))}
    assert faults == {}
    assert {*rows} - found == set(), "these are in no text"


def test_what_is_wrong_with_figures() -> None:
    rows = {"none # #": "none", "it keeps # %":
            "study('blas_yield', 'base', 'threads-4-hogs-1', 'hogs_percent')"}
    found: set[str] = set()
    faults = wrong_figures("On 7.3.4, 0x80, 16 KB: none 2840\n 2841;\n"
                           "it keeps 43.3 %, then 12 %; 345 1.5\n",
                           rows, found)
    assert [fault.partition(":")[0] for fault in faults] == [
        "none # #", "12 is in no row", "345 is in no row", "1.5 is in no row"]
    assert found == {*rows}
