# SPDX-License-Identifier: GPL-2.0-only
"""Counting tests, and counting what selftests in a guest came to."""

import subprocess

import pytest

from conftest import write
from tools import count as counting
from tools import guest, selftests
from tools.core import Fail
from tools.count import Count, run_groups
from tools.guest import Result


@pytest.fixture
def count(tmp_path, replace):
    """A Count that expects the skips of 'slow*' only."""
    (tmp_path / "expected-skips").write_text("# Why.\nslow*  # too slow\n\n")
    replace(counting, CONFIGS=tmp_path)
    return Count()


def refuse(*_):
    raise Fail("no")


def test_each_is_counted_and_shown(count, capsys):
    assert count.status() == 1
    count.ok("a")
    assert count.status() == 0
    count.fail("b", "why")
    count.skip("slow c", "slow")
    assert count.run("d", lambda: "7 files") and not count.run("e", refuse)
    # A skip that is not listed is a failure; a row may ask for the reason.
    count.skip("other", "slow")
    count.expected.append("loaded: the host*")
    count.skip("loaded", "the host was busy")
    count.skip("loaded", "no time")
    assert [row[:2] for row in count.rows] == [
        ("ok", "a"), ("fail", "b"), ("skip", "slow c"), ("ok", "d"),
        ("fail", "e"), ("fail", "other"), ("skip", "loaded"),
        ("fail", "loaded")]
    out = capsys.readouterr().out
    assert "    FAIL  b: why\n" in out and "    ok    d: 7 files\n" in out
    assert count.last_line() == "2 passed, 4 failed, 2 skipped"
    assert count.status() == 1


def test_groups(count, capsys, replace):
    def good(count):
        """Good ones."""
        count.ok("a")
        count.skip("slow", "slow")

    def bad(count):
        count.ok("a")
        refuse()

    def empty(count):
        count.skip("slow", "slow")

    def ended(count):
        raise KeyboardInterrupt

    noted, keys = [], iter("abcd")
    replace(counting, patches_key=lambda reads: next(keys),
            CHECKS={f"job {name}": "all" for name in (
                "good", "bad", "empty", "ended")},
            record=lambda *words, key: noted.append((*words, key)))
    with pytest.raises(KeyboardInterrupt):
        run_groups(count, {"good": good, "bad": bad, "empty": empty,
                           "ended": ended}, "job")
    out = capsys.readouterr().out
    assert "==> good (1 of 4): Good ones." in out
    assert "FAIL  bad: no" in out and "empty: nothing of it ran" in out
    # What does not come to its end is not noted.
    assert noted == [("job good", 1, 0, 1, "a"), ("job bad", 1, 1, 0, "b"),
                     ("job empty", 0, 1, 1, "c")]
    run_groups(count, {"good": good})
    assert len(noted) == 3


# --- selftests in a guest --------------------------------------------------

@pytest.fixture
def booted(tmp_path, replace):
    """Let boot() give the texts put in, and return what it was asked for."""
    texts, asked = [], []
    console = tmp_path / "console"
    console.write_text("Linux\n")

    def fake(folder, command, name, **options):
        asked.append((command, options))
        if not texts:
            raise guest.Lost("it hangs", True, "", console)
        text = texts.pop(0)
        if text.endswith("died"):
            raise guest.Lost("it died", False, text, console)
        return Result(0, text, console)

    replace(selftests, boot=fake, choose_kvm=lambda _: False,
            LOGS=tmp_path / "LOGS", INSTALLED=tmp_path / "INSTALLED")
    return texts, asked, console


def said(name, *rows, status=0):
    return "\n".join([f"@@ begin {name}", f"1..{len(rows)}", *rows,
                      f"@@ end {name} {status} 1\n"])


def test_programs_count_as_one_each(count, booted, tmp_path):
    texts, asked, console = booted
    programs = [tmp_path / name for name in (
        "iopl_32", "ioperm_latency_64", "bad", "idle", "lost")]
    texts.append(said("iopl_32", "ok 1 a")
                 + said("ioperm_latency_64", "ok 1 a")
                 + said("bad", "not ok 1 a", status=1)
                 + said("idle", "ok 1 # SKIP a: no", status=4)
                 + "@@ begin KUnit\n1..1\n    1..2\n    ok 1 b\n"
                 "    not ok 2 c\nnot ok 1 x86_io_bitmap\n")
    selftests.run_programs(count, "slow", tmp_path, programs, "name",
                           kunit=True, memory="2G")
    (command, options), = asked
    assert f"{tmp_path}/ioperm_latency_64 --rounds 50;" in command
    assert options["memory"] == "2G"
    rows = {name: kind for kind, name, _ in count.rows}
    assert rows == {
        "slow: boots": "ok", "slow: iopl_32": "ok",
        "slow: ioperm_latency_64": "ok", "slow: bad": "fail",
        "slow: idle": "skip", "slow: lost": "fail", "slow: no splat": "ok",
        "slow: KUnit: x86_io_bitmap.b": "ok",
        "slow: KUnit: x86_io_bitmap.c": "fail"}
    # A guest that hangs, and a kernel that warns.
    selftests.run_programs(count, "hangs", tmp_path, programs, "name")
    assert count.rows[-1][:2] == ("fail", "hangs: boots")
    console.write_text("WARNING: CPU: 0\n")
    texts.append(said("iopl_32", "ok 1 a"))
    selftests.run_programs(count, "warns", tmp_path, programs[:1], "name")
    assert count.rows[-1][:2] == ("fail", "warns: no splat")


def test_cases_that_are_not_whole_or_not_there_fail(count, tmp_path):
    selftests.count_cases(count, "a", "1..2\nok 1 b\n", tmp_path)
    assert count.numbers() == (1, 1, 0)
    selftests.count_kunit(count, "a", "1..1\nok 1 another_suite\n", tmp_path)
    assert count.numbers() == (1, 2, 0)


def test_tests_of_yield(count, booted, tmp_path):
    texts, asked, _ = booted
    texts += [said("yield_test", "ok 1 a", "not ok 2 b")] * 2
    selftests.run_yield(count, "sched", tmp_path, [tmp_path / "yield_test"],
                        "yield")
    assert [row[:2] for row in count.rows] == [
        ("ok", "sched: yield_test: a"), ("fail", "sched: yield_test: b")]
    selftests.boot_yield(tmp_path, [tmp_path / "yield_test"], "yield", cpus=2)
    # Only one CPU's instructions can be counted.
    assert [(options["cpus"], options["icount"], options["append"])
            for _, options in asked] == [
        (1, "wait-idle", ("tsc=reliable",)), (2, "", ("tsc=reliable",))]
    # What the host spoilt is run again; of all runs the worse counts.
    spoilt = f"ok 2 b # SKIP {selftests.SPOILT}"
    for second, verdict in (("ok 2 b", "ok"), ("not ok 2 b", "fail"),
                            (spoilt, "fail")):
        more = [said("yield_test", "ok 1 a", row)
                for row in [spoilt, second, spoilt][:2 + (second == spoilt)]]
        texts += more
        selftests.run_yield(count, "sched", tmp_path,
                            [tmp_path / "yield_test"], "yield")
        assert not texts
        assert count.rows[-1][:2] == (verdict, "sched: yield_test: b")
    count.expected.append(f"sched: *: {selftests.SPOILT}")
    texts += [said("yield_test", spoilt.replace("2", "1"),
                   spoilt.replace("b", "c"))] * 3
    selftests.run_yield(count, "sched", tmp_path, [tmp_path / "yield_test"],
                        "yield")
    assert [row[0] for row in count.rows[-3:]] == ["fail", "skip", "skip"]
    assert count.rows[-3][2].startswith("all cases skipped")
    # It does not come up.
    selftests.run_yield(count, "sched", tmp_path, [], "yield")
    assert count.rows[-1][:2] == ("fail", "sched")


def test_installed_tests(booted, tmp_path, replace):
    texts, asked, _ = booted

    def make(command, log, **_):
        write(tmp_path / "INSTALLED/series", {"x86/a_32": ""})

    names = ["x86/a_32"]
    replace(selftests, run_logged=make, selftest_names=lambda *_: names)
    place = selftests.install("series", tmp_path)
    assert place == tmp_path / "INSTALLED/series"
    names.append("x86/a_64")
    with pytest.raises(Fail, match="not installed: x86/a_64"):
        selftests.install("series", tmp_path)
    texts.append("ok 1 selftests: x86: a_32\n# 1..1\n# ok 1 c # SKIP no\n"
                 "ok 2 selftests: x86: b\n")
    assert selftests.run_installed(tmp_path, place, "name", False,
                                   ["a_32"]) == {"a_32": "pass", "b": "skip"}
    assert "-t x86:a_32" in asked[0][0] and asked[0][1]["share"] == place
    # With the first guest b_32 dies, and another one runs what is left.
    texts += ["# selftests: x86: a_32\nok 1 selftests: x86: a_32\n"
              "# selftests: x86: b_32\ndied", "ok 1 selftests: x86: c_32\n"]
    assert selftests.run_installed(
        tmp_path, place, "all", False, ["a_32", "b_32", "c_32"]) == {
        "a_32": "pass", "b_32": "fail", "c_32": "pass"}
    assert "x86:c_32" in asked[-1][0] and "x86:b_32" not in asked[-1][0]
    with pytest.raises(guest.Lost):
        selftests.run_installed(tmp_path, place, "none", False, ["a_32"])


@pytest.mark.parametrize("side, wakes, hits, fault", [
    ("base", 50, 1, ""), ("base", 50, 0, "not hit"),
    ("series", 100000, 0, ""), ("series", 100000, 1, "hit"),
    ("series", 99999, 0, "did not run to its end")])
def test_what_the_race_showed(side, wakes, hits, fault):
    """The wake-ups of both CPUs count, those of other cases do not."""
    figures, why = selftests.race_result(
        f"# iopl: CPU 0: wakes {wakes} hits {hits}\n# iopl: CPU 1: wakes "
        "100000 hits 0\n# iopl-migrate: CPU 1: wakes 9 hits 9\n", "iopl",
        side, 200000)
    assert figures == f"{hits} hits in {100000 + wakes} wake-ups"
    assert why.startswith(fault) and bool(why) == bool(fault)


def test_what_the_programs_of_the_runner_print_is_kept(tmp_path, replace):
    """It opens /dev/stdout, which is the console of the guest."""
    (tmp_path / "stdout").symlink_to(tmp_path / "console")

    def boot(folder, command, name):
        with open(tmp_path / "output", "w") as out:
            subprocess.run(command.replace("/dev", str(tmp_path)), shell=True,
                           check=True, stdout=out)

    replace(selftests, boot=boot)
    selftests.boot_runner(
        tmp_path, "echo 1; echo 2 >>/dev/stdout; echo 3", "name")
    assert (tmp_path / "output").read_text() == "1\n2\n3\n"


def test_one_seed_after_the_other_until_one_hits(tmp_path):
    # What the first seed says, and the seeds that are tried.
    for said, tried in (("wakes 9 hits 0", "12"), ("Alarm clock", "12"),
                        ("wakes 9 hits 10", "1")):
        program = tmp_path / "race"
        program.write_text(f"#!/bin/sh\necho $4\necho '{said}' >&2\nexit 1\n")
        program.chmod(0o755)
        done = subprocess.run(
            ["sh", "-c", selftests.race_command(program, ["a"], (1, 2), 9)],
            capture_output=True, text=True)
        assert done.returncode == 0
        assert done.stdout == "".join(f"{n}\n{said}\n" for n in tried)
