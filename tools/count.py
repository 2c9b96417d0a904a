# SPDX-License-Identifier: GPL-2.0-only
"""Count tests that passed, failed and were skipped."""

import fnmatch
import functools
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

from tools.core import CONFIGS, Fail, Given, Kernel, duration, say
from tools.records import begun, checks, record


def listed(path: Path) -> list[str]:
    """Return the rows of a file without # comments."""
    rows = (row.split("#")[0].strip() for row in path.read_text().splitlines())
    return [row for row in rows if row]


class Count:
    """Counts results and prints one line for each; rows: all of them, each
    "ok", "fail" or "skip", the name, and why."""

    def __init__(self) -> None:
        self.passed = self.failed = self.skipped = 0
        self.rows: list[tuple[str, str, str]] = []
        self.expected = listed(CONFIGS / "expected-skips")

    def add(self, word: str, name: str, why: Any = "") -> None:
        """Count a test by a verdict: "pass" or "ok", "fail", or "skip", which
        is a failure when tools/configs/expected-skips has no pattern of the
        name or of 'NAME: WHY'."""
        word = "ok" if word == "pass" else word
        if word == "skip" and not any(
                fnmatch.fnmatch(text, row) for row in self.expected
                for text in (name, f"{name}: {why}")):
            word, why = "fail", (f"skipped ({why}), which "
                                 "tools/configs/expected-skips does not list")
        self.passed += word == "ok"
        self.failed += word == "fail"
        self.skipped += word == "skip"
        self.rows.append((word, name, str(why)))
        say(f"    {word.replace('fail', 'FAIL'):4}  {name}"
            + f": {why}" * bool(str(why)))

    ok = functools.partialmethod(add, "ok")
    fail = functools.partialmethod(add, "fail")
    skip = functools.partialmethod(add, "skip")

    def test(self, name: str, fault: Any) -> None:
        """Count a test that failed, or passed when there is no fault."""
        self.add("fail" if fault else "ok", name, fault or "")

    def run(self, name: str, function: Callable[..., Any],
            *arguments: Any) -> bool:
        """Count a test: function raises Fail when it does not hold; what it
        returns is shown.  Return whether it holds."""
        try:
            self.ok(name, function(*arguments) or "")
        except Fail as failure:
            self.fail(name, failure)
        return self.rows[-1][0] == "ok"

    def numbers(self) -> tuple[int, int, int]:
        """Return how many passed, failed and were skipped."""
        return self.passed, self.failed, self.skipped

    def last_line(self) -> str:
        """Return the line that a job of tests ends with."""
        return "{} passed, {} failed, {} skipped".format(*self.numbers())

    def status(self) -> int:
        """Return the exit status of a job of tests."""
        return 1 if self.failed or not self.passed else 0


Groups = dict[str, Callable[[Kernel, Count], None]]


def chosen(kernel: Kernel, given: Given, job: str, groups: Groups) -> Groups:
    """Return the groups that ONLY= names, by default all of the kernel."""
    names = [name for name in groups if f"{job} {name}" in checks(kernel)]
    return {name: groups[name] for name in given.words("ONLY", names) or names}


def run_groups(kernel: Kernel, job: str, groups: Groups) -> int:
    """Run groups of tests, each of which has to count something, and note
    those that ran to their end in the job's name; return the status."""
    count = Count()
    for number, (name, function) in enumerate(groups.items(), 1):
        before, since, start = count.numbers(), begun(), time.monotonic()
        about = getattr(function, "func", function).__doc__
        say(f"==> {name} ({number} of {len(groups)}): "
            + about.partition("\n")[0])
        try:
            function(kernel, count)
        except Fail as failure:
            count.fail(name, failure)
        ran = tuple(map(int.__sub__, count.numbers(), before))
        if ran[0] + ran[1]:
            record(kernel, f"{job} {name}", ran, since)
        else:
            count.fail(name, "nothing of it ran")
        say(f"    {name} took {duration(time.monotonic() - start)}")
    say(count.last_line())
    return count.status()
