# SPDX-License-Identifier: GPL-2.0-only
"""Copy what ran on these patches from build/ to results/: make publish.

Takes the records of all kernels and the files that they name, and writes the
table of results/tested.md.  Nothing else writes to results/, and no job reads
it.  What a later run, that did not come to its end, has changed stays as it
was published.
"""

import re
from collections.abc import Iterable
from pathlib import Path
from typing import Any

from tools import boards
from tools.core import (ROOT, Fail, Given, Kernel, digest, kernels, read_json,
                        say, shown_path, write_atomically)
from tools.records import CHECKS, NAME, checks, same
from tools.tables import table

RESULTS = ROOT / "results"
TESTED = RESULTS / "tested.md"
# Files that become a part of a page: {name: (page, mark)}.
PARTS = {"bench-readme.md": (ROOT / "README.md", "bench")}
CELL = re.compile(r"(\d{4}-\d\d-\d\d), ([0-9a-f]+): \d+ / \d+ / \d+")
ABOUT = ("A cell: day of the run, commit of this repository, which has patches "
         "and tools; tests that", "passed / failed / were skipped. Empty: it "
         "has not run on these patches. A dash: not for this kernel.")


def filled(page: Path, mark: str, lines: Iterable[str]) -> bytes:
    """Return a page with lines between <!-- MARK:begin --> and its end."""
    begin, end = (f"<!-- {mark}:{word} -->" for word in ("begin", "end"))
    text = page.read_text()
    if re.findall(f"{begin}|{end}", text) != [begin, end]:
        raise Fail(f"{shown_path(page)} must have one {begin} and one {end}")
    return "\n".join([text.partition(begin)[0] + begin, "", *lines, "",
                      end + text.partition(end)[2]]).encode()


def command(name: str) -> str:
    """Return what runs a check, by its name in CHECKS."""
    job, _, part = name.partition(" ")
    return f"`make {job}" + (
        f" {'JOB' if job == 'soak' else 'ONLY'}={part}`" if part else "`")


def published() -> dict[str, list[str]]:
    """Return {command: cells} of the table of results/tested.md."""
    rows = [[cell.strip() for cell in line.strip("|").split("|")]
            for line in TESTED.read_text().splitlines()
            if line.startswith("| `make")]
    return {first: cells for first, *cells in rows}


def files_of(kernel: Kernel, name: str, row: Any) -> dict[str, bytes] | None:
    """Return the files of a record, None with a notice unless it can be
    published."""
    found = {file: (kernel.results / file).read_bytes()
             for file in row["files"] if (kernel.results / file).exists()}
    if {file: digest(data) for file, data in found.items()} != row["files"]:
        why = f"{shown_path(kernel.results)} is not what it ended with"
    elif not re.fullmatch("[0-9a-f]+", row["commit"]):
        why = "its patches or tools were not committed"
    elif not same(kernel, name, row["commit"]):
        why = "it ran on other patches or tools"
    else:
        return found
    say(f"    notice: '{command(name)}' of {row['date'][:10]} for "
        f"{kernel.version} is not published: {why}")
    return None


def publish() -> None:
    """Write results/; all is read before, so that an error writes none."""
    cells, before = {}, published()
    texts: dict[Path, bytes] = {}
    for column, kernel in enumerate(kernels()):
        rows = read_json(kernel.results / NAME, {})
        for name in CHECKS:
            old = before.get(command(name), [""] * 9)[column]
            found = CELL.fullmatch(old)
            cells[name, kernel] = old if found and same(
                kernel, name, found[2]) else ""
            row = rows.get(name)
            if not row or found and row["date"][:10] < found[1]:
                continue
            files = files_of(kernel, name, row)
            if files is None:
                continue
            cells[name, kernel] = f"{row['date'][:10]}, {row['commit']}: " \
                + " / ".join(map(str, row["numbers"]))
            for file, data in files.items():
                if file not in PARTS:
                    texts[RESULTS / kernel.name / file] = data
                elif not kernel.name:
                    page, mark = PARTS[file]
                    texts[page] = filled(page, mark, data.decode().splitlines())
    there = {kernel: checks(kernel) for kernel in kernels()}
    pages = [f"[{path.stem}](boards/{path.name})"
             for path in sorted(RESULTS.glob("boards/*.md"))]
    texts[TESTED] = filled(TESTED, "tested", [*table(
        ["", *(kernel.version for kernel in there)], [[command(name), *(
            cells[name, kernel] if name in there[kernel] else "–"
            for kernel in there)] for name in CHECKS],
        left=len(there) + 1), "", *ABOUT, "", "Real hardware: "
        + (", ".join(pages) or "none yet.")])
    new = {path: data for path, data in texts.items()
           if not path.exists() or path.read_bytes() != data}
    for path, data in new.items():
        write_atomically(path, data)
    say("written: " + ", ".join(map(shown_path, new)) if new else
        "nothing is new: nothing was written")
    for kernel in there:
        left = [name for name in there[kernel] if not cells[name, kernel]]
        if left:
            say(f"{kernel.version}: not run on these patches: "
                + ", ".join(left))


def look(kernel: Kernel, given: Given) -> dict[Path, str]:
    """Return the page of BOARD=, a file of the stick."""
    if "BOARD" not in given:
        return {}
    path = Path(given["BOARD"])
    return {RESULTS / f"boards/{path.stem}.md": boards.page(path)}


def main(kernel: Kernel, given: Given) -> None:
    for path, text in look(kernel, given).items():
        write_atomically(path, text)
        say(f"written: {shown_path(path)}")
    publish()
