# SPDX-License-Identifier: GPL-2.0-only
"""Tables of results: in Markdown, and aligned for a terminal."""

import textwrap
from collections.abc import Iterable, Sequence
from typing import Any


def number(value: float | None, digits: int = 0, unit: str = "",
           none: str = "-") -> str:
    """Format a figure; none: the text where there is no figure."""
    return none if value is None else f"{value:.{digits}f}{unit}"


def numbers(values: Iterable[float | None], *how: Any) -> list[str]:
    """Format figures; how: as number() has it."""
    return [number(value, *how) for value in values]


def ratio(a: float | None, b: float | None, digits: int = 2) -> str:
    """Format a / b, a dash where there is none; small ones get a digit more."""
    return number(a / b, digits + (0 < a < b / 100)) \
        if a is not None and b else "-"


def table(head: Sequence[str], rows: Iterable[Sequence[str]],
          left: int = 1) -> list[str]:
    """Return a Markdown table's lines; left: columns that are words."""
    lines = ["---" if place < left else "---:" for place in range(len(head))]
    return ["|" + "|".join(lines) + "|" if row is lines else
            "| " + " | ".join(row) + " |" for row in (head, lines, *rows)]


def wrapped(lines: Iterable[str]) -> list[str]:
    """Return Markdown with text of at most 100 columns."""
    return [part for line in lines for part in (
        [line] if line.startswith(("|", "!", "#")) else textwrap.wrap(
            line, 100, break_long_words=False, break_on_hyphens=False)
        or [""])]


def console(lines: Iterable[str]) -> str:
    """Return Markdown for a terminal: its tables aligned, its text wrapped.

    Pictures are left out.
    """
    out: list[str] = []
    block: list[list[str]] = []
    for line in [*lines, ""]:
        if line.startswith("|"):
            block.append([cell.strip() for cell in line.strip("|").split("|")])
            continue
        if block:
            del block[1]  # the rule below the head
            widths = [max(map(len, column)) for column in zip(*block)]
            out += ["  ".join(
                cell.rjust(width) if place else cell.ljust(width)
                for place, (cell, width) in enumerate(zip(row, widths)))
                .rstrip() for row in block]
            block = []
        if not line.startswith("!["):
            out += textwrap.wrap(line, 79) or [""]
    return "\n".join(out).rstrip("\n")
