# SPDX-License-Identifier: GPL-2.0-only
"""The .md files: links that lead somewhere, lines that are not too long."""

import re
from pathlib import Path

import pytest
from conftest import ROOT, git, write

COLUMNS = 100


def anchors(page: Path) -> set[str]:
    """Return the anchors that a forge gives the headings of a page."""
    return {re.sub(r"[^\w -]", "", title).lower().replace(" ", "-")
            for title in re.findall(r"^#+ (.*)$", page.read_text(), re.M)}


def faults(page: Path) -> list[str]:
    """Return the dead links and the long lines of a page."""
    found = []
    for link in re.findall(r"\]\(([^)\s]+)\)", page.read_text()):
        path, _, anchor = link.partition("#")
        other = page.parent / path if path else page
        if not re.match(r"[a-z]+:", link) and not (
                other.exists() and (not anchor or anchor in anchors(other))):
            found.append(link)
    # A table or a link cannot be wrapped.
    return found + [row for row in page.read_text().splitlines() if len(
        re.sub(r"\]\([^)]*\)", "]", row)) > COLUMNS and row[0] != "|"]


def test_links_and_lines_of_all_pages() -> None:
    names = git(ROOT, "ls-files", "*.md").splitlines()
    assert "README.md" in names
    assert {name: found for name in names
            if (found := faults(ROOT / name))} == {}


@pytest.mark.parametrize("text, wrong", [
    ("[a](b.md) [b](#a-title-of-it) [c](https://x/y#z) [d](d/)", []),
    ("[a](b.md#none)", ["b.md#none"]), ("[a](#none)", ["#none"]),
    ("[a](none.md) [b](/b.md)", ["none.md", "/b.md"]),
    ("x" * 101, ["x" * 101]), (f"|{'x' * 200}|", []),
    (f"{'x' * 90} [a](b.md)", [])])
def test_what_is_wrong_with_a_page(tmp_path: Path, text: str,
                                   wrong: list[str]) -> None:
    write(tmp_path, {"page.md": f"# A title, of it\n\n{text}\n", "b.md": "",
                     "d/x": ""})
    assert faults(tmp_path / "page.md") == wrong
