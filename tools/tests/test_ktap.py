# SPDX-License-Identifier: GPL-2.0-only
"""Reading KTAP: selftests, KUnit, kselftest's runner, several programs."""

import subprocess

import pytest

from tools.ktap import Run, parse, runner, script, split, verdict

HARNESS = """\
TAP version 13
1..4
ok 1 global.first
#  RUN           ports.line.second ...
# ioperm.c:5:second:Expected 0 (0) == status (256)
# second: Test terminated by assertion
#          FAIL  ports.line.second
not ok 2 ports.line.second
#      SKIP      one CPU
ok 3 global.third # SKIP one CPU
ok 4 - fourth
# Totals: pass:2 fail:1 xfail:0 xpass:0 skip:1 error:0
"""
# As debugfs has it; a console puts the time before each line.
KUNIT = """\
KTAP version 1
1..1
    KTAP version 1
    # Subtest: suite
    1..3
    ok 1 one
        KTAP version 1
        1..2
        ok 1 seed 1
        not ok 2 seed 2
    # two: EXPECTATION FAILED at x.c:3
    Expected a == b
    not ok 2 two
    ok 3 three # SKIP no memory
# suite: pass:1 fail:1 skip:1 total:3
not ok 1 suite
"""


def test_a_selftest() -> None:
    report = parse(HARNESS)
    assert report.cases == {"global.first": "pass",
                            "ports.line.second": "fail",
                            "global.third": "skip", "fourth": "pass"}
    assert report.reasons == {
        "ports.line.second": "ioperm.c:5:second:Expected 0 (0) == status "
        "(256) | second: Test terminated by assertion",
        "global.third": "one CPU"}
    assert (report.wrong, report.those("skip")) == ("", ["global.third"])


def test_kunit_in_debugfs_and_in_a_console() -> None:
    console = "".join(f"[    1.{number:06}] {row}\r\n" for number, row in
                      enumerate(KUNIT.splitlines()))
    for report in map(parse, (KUNIT, console)):
        assert report.cases == {"suite.one": "pass", "suite.two": "fail",
                                "suite.three": "skip"}
        assert report.reasons["suite.three"] == "no memory"
        assert "x.c:3 | Expected a == b" in report.reasons["suite.two"]
        assert report.wrong == ""


@pytest.mark.parametrize("text, cases, wrong", [
    ("hello\n", {}, "it printed no plan"), ("1..0\n", {}, "it has no case"),
    ("1..2\nok 1 a\n", {"a": "pass"}, "1 of its 2 cases reported"),
    ("1..1\nok 1 a\nok 2 b\n", {"a": "pass", "b": "pass"}, "2 of its 1"),
    ("1..1\nok 1 a # SKIP\n", {"a": "skip"}, "a skip without a reason: a"),
    ("1..1\n    1..2\n    ok 1 a\nok 1 s\n", {"s.a": "pass"}, "s: 1 of its 2"),
    ("1..1\n    1..1\n    ok 1 a\n", {}, "0 of its 1 cases reported"),
    ("1..0 # SKIP no port\n", {"all": "skip"}, ""),
    ("1..1\nok 1 # SKIP a: no\n", {"a": "skip"}, ""),
    # Of one that ran twice, the failure counts; a pass beats a skip.
    ("1..1\nnot ok 1 a\n1..1\nok 1 a\n", {"a": "fail"}, ""),
    ("1..1\nok 1 a # SKIP no\n1..1\nok 1 a\n", {"a": "pass"}, ""),
    # The suite's own code failed.
    ("1..1\n    1..1\n    ok 1 a\nnot ok 1 s\n",
     {"s.a": "pass", "s": "fail"}, "")])
def test_other_forms(text: str, cases: dict[str, str], wrong: str) -> None:
    report = parse(text)
    assert report.cases == cases
    assert report.wrong.startswith(wrong) and bool(report.wrong) == bool(wrong)


@pytest.mark.parametrize("wanted, status, text", [
    ("pass", 0, "1..2\nok 1 a\nok 2 # SKIP b: no"),
    ("skip", 4, "1..1\nok 1 # SKIP a: no"),
    ("skip", 0, "1..1\nok 1 # SKIP a: no"), ("skip", 4, "hello"),
    ("fail", 0, "1..1\nnot ok 1 a"), ("fail", 139, "1..1\nok 1 a"),
    ("fail", None, "1..1\nok 1 a"), ("fail", 0, "1..2\nok 1 a")])
def test_verdicts(wanted: str, status: int | None, text: str) -> None:
    assert verdict(Run(text, status, 1))[0] == wanted


@pytest.mark.parametrize("said, result, verdict", [
    ("# [OK] old\n", "ok 1 NAME", "pass"), ("", "ok 1 NAME # SKIP", "skip"),
    # One case passes, or all skip, whatever the runner says.
    ("# 1..2\n# ok 1 # SKIP a: no\n# ok 2 b\n", "ok 1 NAME", "pass"),
    ("# 1..2\n# ok 1 # SKIP a: no\n# ok 2 b # SKIP no\n", "ok 1 NAME",
     "skip"),
    # One that ends in mid-line.
    ("# 1..1\n# ok 1 a\n# so", "not ok 1 NAME # exit=9", "fail")])
def test_the_kselftest_runner(said: str, result: str, verdict: str) -> None:
    text = f"# selftests: x86: a\n{said}{result}\n".replace(
        "NAME", "selftests: x86: a")
    # What another one prints does not count.
    assert runner("TAP version 13\n1..2\n# ok 1 c\nok 1 selftests: sched: b\n"
                  f"{text}# ok 1 d\n") == {"b": "pass", "a": verdict}


def test_what_a_shell_prints_can_be_split() -> None:
    said = subprocess.run(["sh", "-c", script({"one": "printf 'ok 1'", "two":
                                               "sh -c 'exit 3'"}, "nice")],
                          capture_output=True, text=True).stdout
    assert {name: (run.output.strip(), run.status) for name, run in
            split(said).items()} == {"one": ("ok 1", 0), "two": ("", 3)}
    # A program that did not end, and one that did not begin.
    assert split("@@ begin a\nx\n@@ end a -1 7\n@@ begin b\nso far\n",
                 ("c", "a")) == {
        "a": Run("x\n", -1, 7), "b": Run("so far\n", None, None),
        "c": Run("", None, None)}
