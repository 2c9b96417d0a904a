# SPDX-License-Identifier: GPL-2.0-only
"""Counting tests, and counting what selftests in a guest came to."""

import subprocess

import pytest
from conftest import write, write_program

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
    assert count.run("d", lambda: "7 files") and not count.run("e", refuse)
    # A skip that is not listed is a failure; a row may ask for the reason.
    count.expected.append("loaded: the host*")
    for name, why in (("slow c", "x"), ("other", "x"),
                      ("loaded", "the host was busy"), ("loaded", "no time")):
        count.skip(name, why)
    assert "".join(row[0][0] for row in count.rows) == "oofsfsf"
    out = capsys.readouterr().out
    assert "    FAIL  e: no\n" in out and "    ok    d: 7 files\n" in out
    assert count.last_line() == "2 passed, 3 failed, 2 skipped"
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

    groups = {"good": good, "bad": bad, "empty": empty, "ended": ended}
    noted, keys = [], iter("abcd")
    replace(counting, patches_key=lambda reads: next(keys),
            CHECKS={f"job {name}": "all" for name in groups},
            record=lambda *words, key: noted.append((*words, key)))
    with pytest.raises(KeyboardInterrupt):
        run_groups(count, groups, "job")
    out = capsys.readouterr().out
    assert "==> good (1 of 4): Good ones." in out
    assert "FAIL  bad: no" in out and "empty: nothing of it ran" in out
    # What does not come to its end is not noted.
    assert noted == [("job good", 1, 0, 1, "a"), ("job bad", 1, 1, 0, "b"),
                     ("job empty", 0, 1, 1, "c")]


@pytest.fixture
def texts(tmp_path, replace):
    """What boot() gives, one after the other; 'died' at its end: Lost."""
    texts = []
    write(tmp_path, {"console": "Linux\n"})

    def boot(folder, command, name, **options):
        text = texts.pop(0)
        if text.endswith("died"):
            raise guest.Lost("it died", False, text, tmp_path / "console")
        return Result(0, text, tmp_path / "console")

    replace(selftests, boot=boot, choose_kvm=lambda _: False, LOGS=tmp_path)
    return texts


def said(name, *rows, status=0):
    return "\n".join([f"@@ begin {name}", f"1..{len(rows)}", *rows,
                      f"@@ end {name} {status} 1\n"])


def test_programs_count_as_one_each(count, texts, tmp_path):
    programs = [tmp_path / name for name in ("good", "bad", "idle", "lost")]
    texts += [said("good", "ok 1 a") + said("bad", "not ok 1 a", status=1)
              + said("idle", "ok 1 # SKIP a: no", status=4)
              + "@@ begin KUnit\n1..1\n    1..2\n    ok 1 b\n"
              "    not ok 2 c\nnot ok 1 x86_io_bitmap\n", "died"]
    selftests.run_programs(count, "slow", tmp_path, programs, "name", True)
    assert {name: kind for kind, name, _ in count.rows} == {
        "slow: boots": "ok", "slow: good": "ok", "slow: bad": "fail",
        "slow: idle": "skip", "slow: lost": "fail", "slow: no splat": "ok",
        "slow: KUnit: x86_io_bitmap.b": "ok",
        "slow: KUnit: x86_io_bitmap.c": "fail"}
    selftests.run_programs(count, "hangs", tmp_path, programs, "name")
    assert count.rows[-1][:2] == ("fail", "hangs: boots")
    # Cases that are not there.
    selftests.count_kunit(count, "a", "1..1\nok 1 another_suite\n", tmp_path)
    assert count.rows[-1][:2] == ("fail", "a: KUnit")


SPOILT = f"ok 2 b # SKIP {selftests.SPOILT}"


@pytest.mark.parametrize("rows, verdict", [
    (["not ok 2 b"], "fail"), ([SPOILT, "ok 2 b"], "ok"),
    ([SPOILT, "not ok 2 b"], "fail"), ([SPOILT] * 3, "skip")])
def test_the_host_spoilt_it(count, texts, tmp_path, rows, verdict):
    count.expected.append(f"sched: *: {selftests.SPOILT}")
    texts += [said("yield_test", "ok 1 a", row) for row in rows]
    selftests.count_yield(count, "sched", selftests.boot_yield(
        tmp_path, [tmp_path / "yield_test"], "yield"), "yield")
    assert not texts
    assert [row[:2] for row in count.rows] == [
        ("ok", "sched: yield_test: a"), (verdict, "sched: yield_test: b")]


def test_another_guest_runs_what_is_left(texts, tmp_path):
    # With the first guest b_32 dies.
    texts += ["# selftests: x86: a_32\nok 1 selftests: x86: a_32\n"
              "# selftests: x86: b_32\ndied", "ok 1 selftests: x86: c_32\n",
              "died"]
    assert selftests.run_installed(
        tmp_path, tmp_path, "all", False, ["a_32", "b_32", "c_32"]) == {
        "a_32": "pass", "b_32": "fail", "c_32": "pass"}
    with pytest.raises(guest.Lost):
        selftests.run_installed(tmp_path, tmp_path, "none", False, ["a_32"])


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


@pytest.mark.parametrize("row, tried", [
    ("wakes 9 hits 0", "12"), ("Alarm clock", "12"), ("wakes 9 hits 10", "1")])
def test_one_seed_after_the_other_until_one_hits(tmp_path, row, tried):
    program = write_program(tmp_path / "race",
                            f"echo $4\necho '{row}' >&2\nexit 1\n")
    done = subprocess.run(
        ["sh", "-c", selftests.race_command(program, ["a"], (1, 2), 9)],
        capture_output=True, text=True, check=True)
    assert done.stdout == "".join(f"{n}\n{row}\n" for n in tried)
