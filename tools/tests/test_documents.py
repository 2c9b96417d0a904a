# SPDX-License-Identifier: GPL-2.0-only
"""The links and lines of the .md files, and the licence of every file."""

import re
from pathlib import Path

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


def test_what_is_wrong_with_a_page(tmp_path: Path) -> None:
    wrong = ["b.md#none", "#none", "none.md", "/b.md"]
    write(tmp_path, {"b.md": "", "d/x": "", "page.md": "\n".join([
        "# A title, of it", *map("[a]({})".format, wrong), "x" * 101,
        "[a](b.md) [b](#a-title-of-it) [c](https://x/y#z) [d](d/)",
        f"|{'x' * 200}|", f"{'x' * 90} [a](b.md)"])})
    assert faults(tmp_path / "page.md") == [*wrong, "x" * 101]


def test_every_file_tells_its_licence() -> None:
    # JSON, patches and mails cannot; README.md does at its end.
    cannot = r"(patches|tools)/.*\.patch|tools/study-data/.*\.json|" \
        r"results/.*|selftests/.*|submit/.*\.(txt|2)|COPYING|README.md"
    names = git(ROOT, "ls-files").splitlines()
    assert "tools/core.py" in names
    assert [name for name in names if not re.fullmatch(cannot, name)
            and "SPDX-License-Identifier" not in
            (ROOT / name).read_text()[:200]] == []
