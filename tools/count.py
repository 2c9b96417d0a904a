# SPDX-License-Identifier: GPL-2.0-only
"""Count tests that passed, failed and were skipped, and keep what passed."""

import datetime
import fnmatch
import functools
from collections.abc import Callable
from pathlib import Path
from typing import Any

from tools.core import CONFIGS, PUBLISHED, Fail, read_json, say, write_json
from tools.series.apply import series_key

GATES_RECORD = PUBLISHED / "gates.json"
# Groups that read only what the series changes of the kernel itself.
KERNEL_ONLY = ("matrix", "sparse")


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
        """Count a test: function raises Fail when it does not hold."""
        try:
            function(*arguments)
        except Fail as failure:
            self.fail(name, failure)
            return False
        self.ok(name)
        return True

    def last_line(self) -> str:
        """Return the line that a job of tests ends with."""
        return (f"{self.passed} passed, {self.failed} failed, "
                f"{self.skipped} skipped")

    def status(self) -> int:
        """Return the exit status of a job of tests."""
        return 1 if self.failed or not self.passed else 0


def run_groups(count: Count, groups: dict[str, Callable[[Count], None]],
               record: Path | None = None) -> None:
    """Run groups of tests, {name: function}; each has to count something.

    record: the file that keeps which groups this series passed, if all of
    each group runs.
    """
    for name, function in groups.items():
        passed, failed, skipped = count.passed, count.failed, count.skipped
        say(f"==> {name}: {function.__doc__}")
        try:
            function(count)
        except Fail as failure:
            count.fail(name, failure)
        if (count.passed, count.failed) == (passed, failed):
            count.fail(name, "nothing of it ran")
        if record and count.failed == failed:
            now = datetime.datetime.now(datetime.timezone.utc)
            write_json(record, recorded(record) | {name: {
                "key": series_key(name in KERNEL_ONLY),
                "passed": count.passed - passed,
                "skipped": count.skipped - skipped,
                "date": now.isoformat(timespec="minutes")}})


def recorded(record: Path = GATES_RECORD) -> dict[str, dict]:
    """Return the groups that this series passed.

    {group: {"key", "passed", "skipped", "date"}}.
    """
    keys = {only: series_key(only) for only in (False, True)}
    return {group: row for group, row in read_json(record, {}).items()
            if row["key"] == keys[group in KERNEL_ONLY]}
