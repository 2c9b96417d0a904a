# SPDX-License-Identifier: GPL-2.0-only
"""Reading KTAP, counting tests, and what selftests in a guest came to."""

import subprocess

import pytest
from conftest import write, write_program

from tools import count as counting
from tools import guest, selftests
from tools.core import Fail
from tools.count import Count, run_groups
from tools.guest import Result
from tools.ktap import Run, parse, runner, script, split, verdict


HARNESS = """\
TAP version 13
1..3
ok 1 - global.first
#  RUN           ports.line.second ...
# ioperm.c:5:second:Expected 0 (0) == status (256)
# second: Test terminated by assertion
#          FAIL  ports.line.second
not ok 2 ports.line.second
#      SKIP      one CPU
ok 3 global.third # SKIP one CPU
# Totals: pass:1 fail:1 xfail:0 xpass:0 skip:1 error:0
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
CONSOLE = "".join(f"[    1.{number:06}] {row}\r\n"
                  for number, row in enumerate(KUNIT.splitlines()))


@pytest.mark.parametrize("text, names, why", [
    (HARNESS, ("global.first", "ports.line.second", "global.third"),
     ("ioperm.c:5:second:Expected 0 (0) == status (256) | second: Test "
      "terminated by assertion", "one CPU")),
    *((text, ("suite.one", "suite.two", "suite.three"),
       ("x.c:3 | Expected a == b", "no memory")) for text in (KUNIT, CONSOLE))
])
def test_a_selftest_and_kunit(text: str, names: tuple[str, ...],
                              why: tuple[str, ...]) -> None:
    report = parse(text)
    assert report.cases == dict(zip(names, ("pass", "fail", "skip")))
    assert all(report.reasons[name].endswith(reason)
               for name, reason in zip(names[1:], why, strict=True))
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
    ("skip", 0, "1..1\nok 1 # SKIP a: no"), ("skip", 4, "hello"),
    ("fail", 0, "1..1\nnot ok 1 a"), ("fail", 139, "1..1\nok 1 a"),
    ("fail", None, "1..1\nok 1 a"), ("fail", 0, "1..2\nok 1 a")])
def test_verdicts(wanted: str, status: int | None, text: str) -> None:
    assert verdict(Run(text, status, 1))[0] == wanted


@pytest.mark.parametrize("said, result, wanted", [
    ("[OK] old\n", "ok 1 NAME", "pass"), ("\n", "ok 1 NAME # SKIP", "skip"),
    # One case passes, or all skip, whatever the runner says.
    ("1..2\n# ok 1 # SKIP a: no\n# ok 2 b\n", "ok 1 NAME", "pass"),
    ("1..2\n# ok 1 # SKIP a: no\n# ok 2 b # SKIP no\n", "ok 1 NAME", "skip"),
    # One that ends in mid-line.
    ("1..1\n# ok 1 a\n# so", "not ok 1 NAME # exit=9", "fail")])
def test_the_kselftest_runner(said: str, result: str, wanted: str) -> None:
    name = result.replace("NAME", "selftests: x86: a")
    # What another one prints does not count.
    assert runner("TAP version 13\n1..2\n# ok 1 c\nok 1 selftests: sched: b\n"
                  f"# {said}{name}\n# ok 1 d\n") == {"b": "pass", "a": wanted}


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


@pytest.fixture
def count(tmp_path, replace):
    """A Count that expects some skips only, of one row by its reason."""
    write(tmp_path, {"expected-skips": "# Why.\nslow*  # too slow\n\n"
                     f"*: {selftests.SPOILT}\n"})
    replace(counting, CONFIGS=tmp_path)
    return Count()


def verdicts(count):
    return "".join(row[0][0] for row in count.rows)


def test_groups(count, capsys, replace):
    def group(*words):
        def run(kernel, count):
            """Good ones."""
            for word in words:
                if word == "skip":
                    count.skip("slow", "x")
                elif count.run("a", lambda: "7 files") and word != "ok":
                    raise word

        return run

    groups = {"good": group("ok", "skip"), "bad": group(Fail("no")),
              "empty": group("skip"), "ended": group(KeyboardInterrupt())}
    noted, times = [], iter("abcdefghi")
    replace(counting, begun=lambda: next(times),
            record=lambda *words: noted.append(words))
    with pytest.raises(KeyboardInterrupt):
        run_groups("k", "job", groups)
    out = capsys.readouterr().out
    for words in ("==> good (1 of 4): Good ones.", "    ok    a: 7 files\n",
                  "    FAIL  bad: no\n", "empty: nothing of it ran"):
        assert words in out
    # What does not come to its end is not noted, nor what did not run.
    assert noted == [("k", "job good", (1, 0, 1), "a"),
                     ("k", "job bad", (1, 1, 0), "b")]
    del groups["ended"]
    assert run_groups("k", "job", groups) == 1
    assert capsys.readouterr().out.endswith(
        "\n2 passed, 2 failed, 2 skipped\n")
    assert run_groups("k", "job", {"good": groups["good"]}) == 0
    assert run_groups("k", "job", {}) == 1


def test_skips_that_fail(count, tmp_path):
    for name, why in (("slow c", "x"), ("other", "x"), ("other", "no time"),
                      ("other", selftests.SPOILT)):
        count.skip(name, why)
    # Listed ones are a failure, too, when they are all that there is.
    selftests.count_cases(count, "slow", "1..2\nok 1 a # SKIP x\n"
                          "ok 2 b # SKIP x\n", tmp_path)
    assert verdicts(count) == "sffsfss"


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

    replace(selftests, boot=boot, choose_kvm=lambda _: False)
    yield texts
    assert not texts


def said(name, *rows, status=0):
    return "\n".join([f"@@ begin {name}", f"1..{len(rows)}", *rows,
                      f"@@ end {name} {status} 1\n"])


def test_programs_count_as_one_each(count, texts, tmp_path):
    programs = [tmp_path / name for name in ("good", "bad", "idle", "lost")]
    texts += [said("good", "ok 1 a") + said("bad", "not ok 1 a", status=1)
              + said("idle", "ok 1 # SKIP a: no", status=4)
              + "@@ begin KUnit\n1..1\n    1..2\n    ok 1 b\n"
              "    not ok 2 c\nnot ok 1 x86_io_bitmap\n", "died"]
    for title in ("slow", "hangs"):
        selftests.run_programs(count, title, tmp_path, programs,
                               tmp_path / "name", True)
    # Cases that are not there.
    selftests.count_kunit(count, "a", "1..1\nok 1 another_suite\n", tmp_path)
    assert {name: kind for kind, name, _ in count.rows} == {
        "slow: boots": "ok", "slow: good": "ok", "slow: bad": "fail",
        "slow: idle": "skip", "slow: lost": "fail", "slow: no splat": "ok",
        "slow: KUnit: x86_io_bitmap.b": "ok", "hangs: boots": "fail",
        "slow: KUnit: x86_io_bitmap.c": "fail", "a: KUnit": "fail"}


SPOILT = f"ok 2 b # SKIP {selftests.SPOILT}"


@pytest.mark.parametrize("rows, verdict", [
    (["not ok 2 b"], "f"), ([SPOILT, "ok 2 b"], "o"),
    ([SPOILT, "not ok 2 b"], "f"), ([SPOILT] * 3, "s")])
def test_the_host_spoilt_it(count, texts, tmp_path, rows, verdict):
    texts += [said("yield_test", "ok 1 a", row) for row in rows]
    selftests.count_yield(count, "sched", selftests.boot_yield(
        tmp_path, [tmp_path / "yield_test"], tmp_path / "yield"), tmp_path)
    assert verdicts(count) == "o" + verdict


def test_another_guest_runs_what_is_left(texts, tmp_path):
    # With the first guest b_32 dies.
    texts += ["# selftests: x86: a_32\nok 1 selftests: x86: a_32\n"
              "# selftests: x86: b_32\ndied", "ok 1 selftests: x86: c_32\n",
              "died"]
    what = tmp_path, tmp_path, tmp_path / "all", False
    assert selftests.run_installed(*what, ["a_32", "b_32", "c_32"]) == {
        "a_32": "pass", "b_32": "fail", "c_32": "pass"}
    with pytest.raises(guest.Lost):
        selftests.run_installed(*what, ["a_32"])


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
    program = write_program(tmp_path / "race", f"echo $4; echo '{row}' >&2\n")
    command = selftests.race_command(program, ["a"], (1, 2), 9)
    assert subprocess.getoutput(command).split("\n") == [
        line for seed in tried for line in (seed, row)]


@pytest.mark.parametrize("early, hits, tries", [
    (1, 0, 2), (2, 0, 3), (3, 0, 3), (3, 5, 1)])
def test_a_seed_that_ends_early_is_tried_again(tmp_path, early, hits, tries):
    log = tmp_path / "tries"
    program = write_program(
        tmp_path / "race", f"echo >>{log}\n[ $(wc -l <{log}) -le {early} ] && "
        f"not='not '\necho wakes 9 hits {hits}\necho ${{not}}ok 1 a\n")
    assert subprocess.getoutput(selftests.race_command(
        program, ["a"], (1,), 9)).split("\n") == [
            f"wakes 9 hits {hits}", "not ok 1 a" if early == 3 else "ok 1 a"]
    assert len(log.read_text().split("\n")) == tries + 1
