# SPDX-License-Identifier: GPL-2.0-only
"""Count tests that passed, failed and were skipped."""

import fnmatch
import functools
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

from tools.core import CONFIGS, Fail, duration, say
from tools.records import CHECKS, patches_key, record


def listed(path: Path) -> list[str]:
    """Return the rows of a file without # comments."""
    rows = (row.split("#")[0].strip() for row in path.read_text().splitlines())
    return [row for row in rows if row]


class Count:
    """Counts results and prints one line for each.

    rows: what was counted: ("ok"|"fail"|"skip", name, why).
    """

    def __init__(self) -> None:
        self.passed = self.failed = self.skipped = 0
        self.rows: list[tuple[str, str, str]] = []
        self.expected = listed(CONFIGS / "expected-skips")

    def add(self, word: str, name: str, why: Any = "") -> None:
        """Count a test by a verdict: "pass" or "ok", "fail", or "skip".

        A skip that tools/configs/expected-skips lacks has failed.  A row there
        is a pattern of the name, or of 'NAME: WHY'.
        """
        if word == "skip" and not any(
                fnmatch.fnmatch(text, row) for row in self.expected
                for text in (name, f"{name}: {why}")):
            word, why = "fail", (f"skipped ({why}), which "
                                 "tools/configs/expected-skips does not list")
        word = "ok" if word == "pass" else word
        self.passed += word == "ok"
        self.failed += word == "fail"
        self.skipped += word == "skip"
        self.rows.append((word, name, str(why)))
        say(f"    {'FAIL' if word == 'fail' else word:4}  {name}"
            + (f": {why}" if str(why) else ""))

    ok = functools.partialmethod(add, "ok")
    fail = functools.partialmethod(add, "fail")
    skip = functools.partialmethod(add, "skip")

    def test(self, name: str, fault: Any) -> None:
        """Count a test that failed, or passed when there is no fault."""
        self.add("fail" if fault else "ok", name, fault or "")

    def run(self, name: str, function: Callable[..., Any],
            *arguments: Any) -> bool:
        """Count a test: function raises Fail when it does not hold; what it
        returns is shown."""
        try:
            self.ok(name, function(*arguments) or "")
        except Fail as failure:
            self.fail(name, failure)
            return False
        return True

    def numbers(self) -> tuple[int, int, int]:
        """Return how many passed, failed and were skipped."""
        return self.passed, self.failed, self.skipped

    def last_line(self) -> str:
        """Return the line that a job of tests ends with."""
        return (f"{self.passed} passed, {self.failed} failed, "
                f"{self.skipped} skipped")

    def status(self) -> int:
        """Return the exit status of a job of tests."""
        return 1 if self.failed or not self.passed else 0


def run_groups(count: Count, groups: dict[str, Callable[[Count], None]],
               job: str = "") -> None:
    """Run groups of tests, {name: function}; each has to count something.

    job: what they are called in tools/records.py, where each that ran to its
    end is noted.
    """
    for number, (name, function) in enumerate(groups.items(), 1):
        before, start = count.numbers(), time.monotonic()
        # The patches may change while it runs.
        title = f"{job} {name}".strip()
        key = patches_key(CHECKS[title]) if job else ""
        about = getattr(function, "func", function).__doc__ or ""
        say(f"==> {name} ({number} of {len(groups)}): "
            + about.partition("\n")[0])
        try:
            function(count)
        except Fail as failure:
            count.fail(name, failure)
        if count.numbers()[:2] == before[:2]:
            count.fail(name, "nothing of it ran")
        say(f"    {name} took {duration(time.monotonic() - start)}")
        if job:
            record(title, *map(int.__sub__, count.numbers(), before), key=key)
