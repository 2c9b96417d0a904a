# SPDX-License-Identifier: GPL-2.0-only
"""Copy what ran on these patches from build/ to results/: make publish.

Takes the records of all kernels and the files that they name (record() of
tools/records.py), and writes the table of results/tested.md.  Nothing else
writes to results/.  What a later run, that did not come to its end, has
changed stays as it was published.
"""

import argparse
import json
import re
from collections.abc import Iterable
from pathlib import Path

from tools.core import (ROOT, TOP_BUILD, Fail, digest, read_json, run_main,
                        say, shown_path, work_begins, write_atomically)
from tools.records import (CHECKS, PUBLISHED, Row, checks, columns, current,
                           patches_key, recorded)
from tools.tables import table

TESTED = PUBLISHED.with_name("tested.md")
# Files that become a part of a page: {name: (page, mark)}.
PARTS = {"bench-readme.md": (ROOT / "README.md", "bench")}
ABOUT = ("A cell: day of the run, how many tests passed / failed / were "
         "skipped, commit of the patches.")
MORE = ("Empty: nothing has run on these patches. A dash: not for this kernel.")


def filled(page: Path, mark: str, lines: Iterable[str]) -> bytes:
    """Return a page with lines between <!-- MARK:begin --> and its end."""
    begin, end = (f"<!-- {mark}:{word} -->" for word in ("begin", "end"))
    text = page.read_text()
    if re.findall(f"{begin}|{end}", text) != [begin, end]:
        raise Fail(f"{shown_path(page)} must have one {begin} and one {end}")
    return "\n".join([text.partition(begin)[0] + begin, "", *lines, "",
                      end + text.partition(end)[2]]).encode()


def cell(row: Row | None) -> str:
    """Return a cell of the table."""
    if not row:
        return ""
    numbers = " / ".join(str(row[word])
                         for word in ("passed", "failed", "skipped"))
    return f"{row['date'][:10]}: {numbers}, {row['commit'] or row['key'][:7]}"


def command(name: str) -> str:
    """Return what runs a check, by its name in CHECKS."""
    job, _, part = name.partition(" ")
    if job == "real":
        return f"{name}, [tools/lab](../tools/lab/README.md)"
    return f"`make {job}" + (
        f" {'JOB' if job == 'soak' else 'ONLY'}={part}`" if part else "`")


def tested(records: dict[str, dict[str, Row]]) -> list[str]:
    """Return the lines of the table, kernel by check."""
    kernels = columns()
    there = {version: checks(kernel) for version, kernel in kernels}
    rows = [[command(name), *(
        cell(records[version].get(name)) if name in there[version] else "–"
        for version, _ in kernels)] for name in CHECKS]
    keys = [f"`{patches_key('all', kernel)[:12]}`" for _, kernel in kernels]
    return [*table(["", *there], [["hash of the patches", *keys], *rows],
                   left=len(kernels) + 1), "", ABOUT, MORE]


def finished(kernel: str, name: str, row: Row) -> dict[str, bytes] | None:
    """Return the files of a record, None unless they are what it noted."""
    here = TOP_BUILD / kernel / "results"
    found = {file: (here / file).read_bytes() for file in row["files"]
             if (here / file).exists()}
    if {file: digest(data) for file, data in found.items()} == row["files"]:
        return found
    say(f"    notice: {shown_path(here)} is not what 'make {name}' ended "
        "with: run it again; not published")
    return None


def publish() -> None:
    """Write results/; all is read before, so that an error writes none."""
    records: dict[str, dict[str, Row]] = {}
    texts: dict[Path, bytes] = {}
    for version, kernel in columns():
        records[version] = current(
            read_json(PUBLISHED, {}).get(version, {}), kernel)
        for name, row in recorded(kernel).items():
            if row == records[version].get(name):
                continue
            files = finished(kernel, name, row)
            if files is None:
                continue
            records[version][name] = row
            for file, data in files.items():
                if file not in PARTS:
                    texts[PUBLISHED.parent / kernel / file] = data
                elif not kernel:
                    page, mark = PARTS[file]
                    texts[page] = filled(page, mark, data.decode().splitlines())
    texts[TESTED] = filled(TESTED, "tested", tested(records))
    texts[PUBLISHED] = (json.dumps(records, indent=1) + "\n").encode()
    new = {path: data for path, data in texts.items()
           if not path.exists() or path.read_bytes() != data}
    for path, data in new.items():
        write_atomically(path, data)
    say("written: " + ", ".join(map(shown_path, new)) if new else
        "nothing is new: nothing was written")


def main() -> None:
    argparse.ArgumentParser(
        description=__doc__.partition("\n\n")[0]).parse_args()
    work_begins()
    publish()


if __name__ == "__main__":
    run_main(main)
