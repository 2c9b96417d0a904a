# SPDX-License-Identifier: GPL-2.0-only
"""Planting bugs: what is read from a mutant, what counts as caught.

No kernel is built and none boots here: a kernel is a copy of one source
file, and the program in the guest fails when it finds a bug's name in it.
"""

import difflib
import json
import signal
import unittest
from pathlib import Path
from unittest import mock

from helper import FILES, Case, git, plain_patches, write
from test_kernel_guest import Stubbed

import mutants
from common import Fail

SOURCE = "arch/x86/kernel/ioport.c"
# What the series of plain_patches() makes of it.
PATCHED = FILES[SOURCE].replace("/* ioport 10 */", "closed();").replace(
    "ioport 30", "ioport thirty")
MERGE_CONFIG = """#!/bin/sh
shift
cat "$@" >.config
"""
MAKE = """
tree=
while [ $# -gt 0 ]; do
	[ "$1" != -C ] || { tree=$2; shift; }
	last=$1
	shift
done
echo "$(basename "$tree") $(basename "$last")" >>"$STUB_TEMP/made"
kernel() {
	mkdir -p "$tree/arch/x86/boot"
	cp "$tree/arch/x86/kernel/ioport.c" "$tree/arch/x86/boot/bzImage"
}
case "$last" in
bzImage | headers)
	if [ "$STUB_MAKE" = hang ]; then
		sleep 60 &
		echo $! >"$STUB_TEMP/hangs"
		wait
	fi
	if grep -q "does not compile" "$tree/arch/x86/kernel/ioport.c"; then
		echo "ioport.c:3:1: error: no"
		exit 2
	fi
	kernel ;;
*)
	cp "$STUB_TEMP/program" "$last"
	chmod +x "$last" ;;
esac
"""
VNG = """#!/bin/sh
echo "$*" >>"$STUB_TEMP/guests"
export STUB_KERNEL="$2/arch/x86/boot/bzImage"
[ -e "$2/.config" ] || exit 1
if [ "$STUB_GUEST" = hang ] || grep -q hangs "$STUB_KERNEL"; then
	sleep 60 &
	echo $! >"$STUB_TEMP/hangs"
	wait
fi
[ -z "$STUB_FLAKY" ] || [ -e "$STUB_TEMP/tried" ] || {
	touch "$STUB_TEMP/tried"
	exit 0
}
grep -q panics "$STUB_KERNEL" && { echo "Kernel panic"; exit 0; }
grep -q warns "$STUB_KERNEL" && echo "WARNING: CPU: 0 PID: 1 at here"
for last; do :; done
exec "$last"
"""
# What stands for a selftest.
PROGRAM = """#!/bin/sh
number=0
verdict() {
	number=$((number + 1))
	if grep -q "$2" "$STUB_KERNEL"; then
		echo "not ok $number $1"
	else
		echo "ok $number $1"
	fi
}
echo "TAP version 13"
verdict one "bug one"
verdict two "bug two"
verdict three "bug three"
verdict window "ioport 10"
verdict series "${STUB_FAILS:-nothing}"
echo "ok 6 elsewhere # SKIP not here"
"""
DMESG = """
echo "KTAP version 1"
echo "1..1"
echo "    KTAP version 1"
echo "    # Subtest: x86_io_bitmap"
echo "    1..2"
echo "        ok 1 a parameter"
echo "    ok 1 load_test"
if grep -q "bug one" "$STUB_KERNEL"; then
	echo "    not ok 2 one_test"
	echo "not ok 1 x86_io_bitmap"
else
	echo "    ok 2 one_test"
	echo "ok 1 x86_io_bitmap"
fi
"""


def diff(new, name=SOURCE, old=PATCHED):
    """Return a diff (str) against the series of plain_patches()."""
    return f"diff --git a/{name} b/{name}\n" + "".join(difflib.unified_diff(
        old.splitlines(keepends=True), new.splitlines(keepends=True),
        f"a/{name}", f"b/{name}"))


def patch(bug, *headers, line=20):
    """Return a mutant (str) that puts a bug into one line of SOURCE."""
    return "What the bug is.\n\n" + "".join(f"{row}\n" for row in headers) \
        + "---\n" + diff(PATCHED.replace(f"/* ioport {line} */", f"{bug};"))


def mutant(name="01-window-bug.patch", text=None, **fields):
    """Return a parsed mutant."""
    return mutants.Mutant(Path(name), text or patch(
        "bug", "Caught-by: window: one",
        *(f"{key}: {value}" for key, value in fields.items())))


class Reading(unittest.TestCase):
    """Mutant: what a patch says, and what is wrong with one."""

    def refused(self, words, name="01-window-bug.patch", text=None,
                **fields):
        with self.assertRaises(Fail) as caught:
            mutant(name, text, **fields)
        self.assertIn(words, str(caught.exception))

    def test_all_that_a_patch_says(self):
        found = mutant(text=patch(
            "bug", "Caught-by: window: one", "Caught-by: window: t*: 2",
            "Caught-by: splat", "Kernel: debug", "Cpus: 4",
            "Append: a=1 b", "Arguments: --seed 1", "Timeout: 9"))
        self.assertEqual(found.about, "What the bug is.")
        self.assertEqual(found.program, "window")
        self.assertEqual(found.wanted, [("case", "one"), ("case", "t*: 2"),
                                        ("splat", "")])
        self.assertEqual(found.files, [SOURCE])
        self.assertEqual(found.setup.words(), [
            "window", "debug", 4, "", "a=1 b", "--seed 1"])
        self.assertEqual(found.setup.timeout, 9)
        self.assertEqual(found.setup.parameters(), (
            "no_timer_check", "a=1", "b", "no5lvl"))
        self.assertEqual(found.setup.command("/x/window_64"),
                         "/x/window_64 --seed 1")

    def test_a_name_that_is_none(self):
        for name in ("1-window-bug.patch", "01_window.patch",
                     "01-window.patch", "01-win.dow-bug.patch"):
            self.refused("NN-PROGRAM-BUG", name)

    def test_who_must_catch_it(self):
        self.refused("has no Caught-by", text=patch("bug"))
        for value in ("one", "other: one", "window", "oops"):
            self.refused("is neither a case of window", text=patch(
                "bug", f"Caught-by: {value}"))

    def test_headers_that_are_wrong(self):
        self.refused("unknown header: Kernal: debug", Kernal="debug")
        self.refused("none of guest, faults, debug, kvm", Kernel="fast")
        self.refused("not a number", Cpus="two")
        self.refused("more than one Cpus", text=patch(
            "bug", "Caught-by: window: one", "Cpus: 1", "Cpus: 2"))
        self.refused("does not say what the bug is", text=patch(
            "bug", "Caught-by: window: one").replace("What the bug is.", ""))

    def test_only_the_kernel_is_changed(self):
        head = "A bug.\n\nCaught-by: window: one\n---\n"
        self.refused("has no diff", text=head)
        self.refused("has no line ---", text=head.replace("---\n", ""))
        for name in ("tools/testing/selftests/x86/window.c",
                     "Documentation/index.rst",
                     "arch/x86/kernel/io_bitmap_test.c"):
            self.refused("which is not the kernel", text=head
                         + diff("a\n", name, "b\n"))
        self.refused("adds, removes or renames", text=head + diff(
            "a\n", SOURCE, "b\n").replace("\n", "\nnew file mode 100644\n",
                                          1))

    def test_the_race_counts_instructions_and_the_suite_has_no_program(self):
        race = mutants.Setup("ioperm_drop_race")
        self.assertEqual((race.cpus, race.icount), (1, "skip-idle"))
        self.assertIn("/x --case $c --seed $s", race.command("/x"))
        self.assertEqual(mutants.Setup("ioperm_drop_race",
                                       cpus=2).icount, None)
        suite = mutants.Setup("x86_io_bitmap")
        self.assertEqual(suite.command(""), "dmesg")
        self.assertIn("kunit.autorun=1", suite.parameters())

    def test_what_the_repository_has(self):
        found = mutants.read_mutants()
        self.assertGreaterEqual(len(found), 20)
        for one in found:
            for kind, case in one.wanted:
                self.assertNotEqual((kind, case), ("case", "*"), one.name)


class SchedTests(Case):
    """Programs of selftests/sched: their guest, and the names of runs."""

    def setUp(self):
        super().setUp()
        write(self.temp, {"selftests/sched/yielder.c": ""})
        patched = mock.patch.object(mutants, "ROOT", self.temp)
        patched.start()
        self.addCleanup(patched.stop)

    def test_one_cpu_whose_clock_counts_instructions(self):
        setup = mutants.Setup("yielder", append="a=1")
        self.assertEqual(setup.words(), [
            "yielder", "guest", 1, "wait-idle", "tsc=reliable a=1", ""])
        self.assertEqual(setup.command("/x"), "/x")
        setup = mutants.Setup("yielder", "kvm", cpus=4)
        self.assertEqual(setup.words(), ["yielder", "kvm", 4, "", "", ""])
        self.assertEqual(mutants.Setup("window").words(),
                         ["window", "guest", 2, "", "", ""])

    def test_each_folder_has_its_own_key(self):
        place = f"\t{mutants.SELFTESTS}/"
        rows = {name: f"1 {name}{place}{name}\n" for name in (
            "kselftest.h", "lib.mk", "sched", "sched_ext", "x86")}

        def key(folder, **changed):
            text = "".join((rows | changed).values())
            with mock.patch.object(mutants, "git", lambda *_, **__: text):
                return mutants.test_key("commit", folder)

        self.assertEqual(key("x86"), mutants.digest(
            rows["kselftest.h"].strip(), rows["x86"].strip()))
        self.assertEqual(key("x86"), key("x86", sched=f"2{place}sched\n"))
        self.assertNotEqual(key("sched"),
                            key("sched", sched=f"2{place}sched\n"))
        self.assertEqual(key("sched"), key("sched", x86=f"2{place}x86\n"))


class Ktap(unittest.TestCase):
    """parse_ktap(): the cases and how they ended."""

    def test_a_selftest(self):
        self.assertEqual(mutants.parse_ktap(
            "TAP version 13\n1..5\n# ok 9 not this\nok 1 global.one\n"
            "not ok 2 two words\nok 3 - three\nok 4 four # SKIP no vt\n"
            "ok 5 # SKIP five: needs two CPUs\nok six\n"),
            {"global.one": "pass", "two words": "fail", "three": "pass",
             "four": "skip", "five": "skip"})

    def test_a_kunit_suite(self):
        self.assertEqual(mutants.parse_ktap(
            "[    0.4] KTAP version 1\nok 9 no case\n"
            "[    0.5]     # Subtest: x86_io_bitmap\n"
            "[    0.5]         not ok 1 a parameter\n"
            "[    0.6]     not ok 1 step_test\n    ok 2 size_test\n"
            "not ok 1 x86_io_bitmap\n", True),
            {"step_test": "fail", "size_test": "pass"})

    def test_of_several_runs_the_worst_counts(self):
        text = "ok 1 a\nok 2 b # SKIP no\nnot ok 1 a\nok 1 a\nok 2 b\n"
        self.assertEqual(mutants.parse_ktap(text),
                         {"a": "fail", "b": "pass"})


class Judging(unittest.TestCase):
    """judge(): killed, survived, or nothing can be said."""

    CONTROL = {"end": "done", "splat": "", "status": 0,
               "cases": {"one": "pass", "two": "pass", "three": "skip"}}

    def judge(self, wanted, control=None, **run):
        bug = mutant(text=patch("bug", *(f"Caught-by: {one}"
                                         for one in wanted)))
        return mutants.judge(bug, self.CONTROL | run, control
                             or self.CONTROL)

    def cases(self, **cases):
        return self.CONTROL["cases"] | cases

    def test_the_named_case_fails(self):
        self.assertEqual(self.judge(["window: one"],
                                    cases=self.cases(one="fail")),
                         ("killed", "one"))
        self.assertEqual(self.judge(["window: o*"],
                                    cases=self.cases(one="fail")),
                         ("killed", "one"))

    def test_nothing_fails(self):
        verdict, how = self.judge(["window: one"])
        self.assertEqual(verdict, "survived")
        self.assertIn("nor by anything else", how)

    def test_another_case_is_not_the_named_one(self):
        verdict, how = self.judge(["window: one"],
                                  cases=self.cases(two="fail"))
        self.assertEqual(verdict, "survived")
        self.assertIn("but: two", how)

    def test_a_case_that_vanished_or_skips_caught_nothing(self):
        for cases in ({}, self.cases(one="skip")):
            self.assertEqual(self.judge(["window: one"],
                                        cases=cases)[0], "survived")

    def test_each_line_must_hold(self):
        wanted = ["window: one", "window: two"]
        self.assertEqual(self.judge(wanted, cases=self.cases(
            one="fail"))[0], "survived")
        self.assertEqual(self.judge(wanted, cases=self.cases(
            one="fail", two="fail")), ("killed", "one; two"))

    def test_a_guest_that_dies_counts_only_when_it_was_said(self):
        for end in ("panic", "hang"):
            verdict, how = self.judge(["window: one"], end=end, cases={})
            self.assertEqual(verdict, "survived")
            self.assertIn(f"but: {end}", how)
            self.assertEqual(self.judge([end], end=end, cases={}),
                             ("killed", end))
            self.assertEqual(self.judge([end])[0], "survived")

    def test_a_splat_counts_only_when_it_was_said(self):
        self.assertEqual(self.judge(["splat"], splat="WARNING: x"),
                         ("killed", "WARNING: x"))
        self.assertEqual(self.judge(["window: one"],
                                    splat="WARNING: x")[0], "survived")

    def test_without_a_good_control_nothing_can_be_said(self):
        failed = self.cases(one="fail")
        for control in (
                self.CONTROL | {"cases": self.cases(two="fail")},
                self.CONTROL | {"cases": self.cases(one="skip")},
                self.CONTROL | {"cases": {}},
                self.CONTROL | {"end": "hang"},
                {"error": "does not build"}):
            self.assertEqual(self.judge(["window: one"], control,
                                        cases=failed)[0], "error")
        self.assertEqual(self.judge(
            ["splat"], self.CONTROL | {"splat": "WARNING: y"},
            splat="WARNING: x")[0], "error")

    def test_what_could_not_be_built(self):
        self.assertEqual(mutants.judge(mutant(), {"error": "no\nmore"},
                                       self.CONTROL), ("error", "no"))

    def test_cases_that_caught_nothing(self):
        self.assertEqual(mutants.idle_cases(
            {"window": self.CONTROL}, {"window: two": ["base"]}),
            ["window: one"])


class Campaign(Stubbed):
    """mutants.py as a whole, from the patches to the table."""

    def setUp(self):
        super().setUp()
        self.set_patches(plain_patches())
        write(self.ksrc, {"scripts/kconfig/merge_config.sh": MERGE_CONFIG})
        self.stub("make", MAKE)
        self.stub("dmesg", DMESG)
        write(self.temp, {"program": PROGRAM})
        write(self.build, {"venv/bin/vng": VNG})
        self.plant({"01-window-one.patch": patch(
            "bug one", "Caught-by: window: one")})

    def plant(self, files):
        """Put these mutants into the copy, and no others."""
        for old in (self.repo / "mutants").glob("*"):
            old.unlink()
        write(self.repo / "mutants", files)

    def mutants(self, *args, **env):
        return self.run_script("mutants.py", *args, **env)

    def made(self, word="mutants bzImage"):
        """Count what make was asked for since the last time."""
        count = self.lines("made").count(word)
        (self.temp / "made").unlink(missing_ok=True)
        return count

    def report(self):
        return json.loads((self.build / "results/mutants.json").read_text())

    def test_a_mutant_is_caught(self):
        run = self.mutants()
        self.assertDone(run, "01-window-one | window ", "| one\n",
                        "1 killed, 0 survived, 0 could not be tested",
                        "3 of 5 test cases caught none of these",
                        "    window: series\n    window: three\n"
                        "    window: two\n")
        report = self.report()
        self.assertEqual(report["series"], self.tip("applied"))
        self.assertEqual(report["kills"], {
            "window: one": ["01-window-one"], "window: window": ["base"]})
        row, = report["mutants"]
        self.assertEqual((row["verdict"], row["failed"]),
                         ("killed", ["one"]))
        self.assertNoGuestLeft()
        self.assertEqual(list((self.build / "mutants.images").glob(
            "*.partial")), [])

    def test_the_kernel_suite_is_a_test_too(self):
        self.plant({"01-x86_io_bitmap-one.patch": patch(
            "bug one", "Caught-by: x86_io_bitmap: one_test")})
        self.assertDone(self.mutants(), "1 killed",
                        "    x86_io_bitmap: load_test")
        self.assertIn("kunit.autorun=1", self.lines("guests")[-1])

    def test_a_program_of_sched_and_a_kernel_with_kvm(self):
        name = "selftests/sched/yielder.c"
        write(self.ksrc, {f"tools/testing/{name}": "\n"})
        write(self.repo, {name: "\n"})
        self.plant({"01-yielder-one.patch": patch(
            "bug one", "Caught-by: yielder: one", "Kernel: kvm")})
        self.assertDone(self.mutants(), "1 killed")
        self.assertIn("sched yielder", self.lines("made"))
        self.assertIn("mutants_kvm bzImage", self.lines("made"))
        for word in ("--cpus 1 ", "-icount ", "--append tsc=reliable "):
            self.assertIn(word, self.lines("guests")[-1])

    def test_one_that_survives_fails_the_whole_but_not_the_others(self):
        self.plant({
            "01-window-harmless.patch": patch(
                "no harm", "Caught-by: window: one"),
            "02-window-other.patch": patch(
                "bug two", "Caught-by: window: one"),
            "03-window-three.patch": patch(
                "bug three", "Caught-by: window: three")})
        run = self.mutants("--no-base")
        self.assertEqual((run.status, run.err), (1, ""), run)
        self.assertIn("01-window-harmless | SURVIVED ", run.out)
        self.assertIn("not by one, but: two", run.out)
        self.assertIn("1 killed, 2 survived, 0 could", run.out)
        run = self.mutants("--no-base", "--fail-fast")
        self.assertIn("0 killed, 1 survived, 0 could", run.out)

    def test_one_that_does_not_apply_or_build(self):
        self.plant({
            "01-window-old.patch": patch(
                "bug one", "Caught-by: window: one").replace(
                    "ioport 19", "ioport nineteen"),
            "02-window-broken.patch": patch(
                "does not compile", "Caught-by: window: one"),
            "03-window-one.patch": patch(
                "bug one", "Caught-by: window: one")})
        run = self.mutants("--no-base")
        self.assertEqual(run.status, 1, run)
        self.assertIn(f"does not apply: error: patch failed: {SOURCE}:17",
                      run.out)
        self.assertIn("does not build: ioport.c:3:1: error: no", run.out)
        self.assertIn("1 killed, 0 survived, 2 could not", run.out)
        run = self.mutants("--build-only")
        self.assertEqual(run.status, 1, run)
        self.assertIn("1 built, 2 failed", run.out)

    def test_guests_that_die(self):
        self.plant({
            "01-window-panic.patch": patch("panics", "Caught-by: panic"),
            "02-window-hang.patch": patch("hangs", "Caught-by: hang",
                                          "Timeout: 2"),
            "03-window-warning.patch": patch("warns", "Caught-by: splat"),
            "04-window-silent.patch": patch("panics",
                                            "Caught-by: window: one")})
        run = self.mutants("--no-base")
        self.assertEqual(run.status, 1, run)
        self.assertIn("3 killed, 1 survived, 0 could", run.out)
        self.assertIn("not by one, but: panic", run.out)
        self.assertGone(self.temp / "hangs")
        self.assertNoGuestLeft()

    def test_a_guest_that_does_not_come_up_is_tried_again(self):
        run = self.mutants("--no-base", STUB_FLAKY=1)
        self.assertDone(run, "1 killed")
        self.assertEqual(len(self.lines("guests")), 3)

    def test_a_test_that_fails_on_the_series_proves_nothing(self):
        run = self.mutants(STUB_FAILS="closed();")
        self.assertEqual(run.status, 1, run)
        self.assertIn("fails on the series itself: series", run.out)
        self.assertIn("0 killed, 0 survived, 1 could not", run.out)

    def test_a_test_that_the_series_does_not_have(self):
        self.plant({"01-missing-one.patch": patch(
            "bug one", "Caught-by: missing: one")})
        run = self.mutants()
        self.assertEqual(run.status, 1, run)
        self.assertEqual(run.err, "error: the series has no tools/testing/"
                         "selftests/x86/missing.c, which mutants are named "
                         "after\n")

    def test_a_second_run_does_nothing_again(self):
        first = self.mutants()
        self.assertDone(first)
        self.assertEqual(self.made(), 2)
        guests = len(self.lines("guests"))
        self.assertEqual(guests, 3)
        second = self.mutants()
        self.assertDone(second, "1 killed")
        self.assertEqual(self.made(), 0)
        self.assertEqual(len(self.lines("guests")), guests)

        def shown(run):
            return [row for row in run.out.splitlines() if " | " in row]
        self.assertEqual(shown(first), shown(second))

    def test_only_what_changed_is_done_again(self):
        self.assertDone(self.mutants("--no-base"))
        self.made()
        # The header decides what counts, not what is built and run.
        self.plant({"01-window-one.patch": patch(
            "bug one", "Caught-by: window: two")})
        self.assertIn("SURVIVED", self.mutants("--no-base").out)
        self.assertEqual(self.made(), 0)
        self.assertEqual(len(self.lines("guests")), 2)
        # Another bug is another kernel.
        self.plant({"01-window-one.patch": patch(
            "bug two", "Caught-by: window: two")})
        self.assertDone(self.mutants("--no-base"), "1 killed")
        self.assertEqual(self.made(), 1)
        self.assertEqual(len(self.lines("guests")), 3)

    def test_an_interrupted_run_goes_on(self):
        self.plant({f"0{n}-window-{word}.patch": patch(
            f"bug {word}", f"Caught-by: window: {word}")
            for n, word in enumerate(("one", "two"), 1)})
        self.assertDone(self.mutants("--no-base", "01-"))
        for env in ({"STUB_MAKE": "hang"}, {"STUB_GUEST": "hang"}):
            for sig in (signal.SIGINT, signal.SIGTERM):
                with self.subTest(f"{env} {sig.name}"):
                    run = self.interrupt("mutants.py", sig,
                                         arguments=["--no-base"], **env)
                    self.assertEqual(run.status, 130, run)
                    self.assertEqual(run.err.count("\n"), 1, run)
                    self.assertGone(self.temp / "hangs")
                    self.assertNoGuestLeft()
        self.made()
        guests = len(self.lines("guests"))
        self.assertDone(self.mutants("--no-base"), "2 killed")
        self.assertEqual(self.made(), 0)
        self.assertEqual(len(self.lines("guests")), guests + 1)

    def test_a_planted_bug_does_not_stay(self):
        self.plant({
            "01-window-one.patch": patch("bug one", "Caught-by: window: one",
                                         line=15),
            "02-window-two.patch": patch("bug two", "Caught-by: window: two",
                                         line=25)})
        self.assertDone(self.mutants("--no-base"), "2 killed")
        self.assertEqual([row["failed"] for row in self.report()["mutants"]],
                         [["one"], ["two"]])
        self.assertEqual(git(self.build / "linux.git", "show",
                             f"applied:{SOURCE}"), PATCHED)

    def test_every_test_on_each_mutant(self):
        self.plant({
            "01-window-one.patch": patch("bug one",
                                         "Caught-by: window: one"),
            "02-x86_io_bitmap-one.patch": patch(
                "bug one ", "Caught-by: x86_io_bitmap: one_test")})
        self.assertDone(self.mutants("--no-base", "--every-test"))
        both = ["01-window-one", "02-x86_io_bitmap-one"]
        self.assertEqual(self.report()["kills"], {
            "window: one": both, "x86_io_bitmap: one_test": both})

    def test_names_and_list(self):
        self.plant({"01-window-one.patch": patch(
            "bug one", "Caught-by: window: one"),
            "02-window-two.patch": patch("bug two", "Caught-by: window: two",
                                         "Caught-by: splat")})
        self.assertDone(self.mutants("--list", "*two"),
                        "02-window-two: two; splat\n    What the bug is.\n")
        self.assertNotIn("01-", self.mutants("--list", "02").out)
        self.assertRefused(self.mutants("none"),
                           "'none' names none of the 2 mutants")
        self.plant({"01-window-one.patch": patch(
            "bug one", "Caught-by: window: one"),
            "01-window-two.patch": patch("x", "Caught-by: window: two")})
        self.assertRefused(self.mutants(), "two mutants have the number 01")
        self.plant({})
        self.assertRefused(self.mutants(), "there is no mutant in mutants/")

    def test_a_broken_report_is_made_anew(self):
        for text in ("{", "[]", '{"runs": 1}', "{}"):
            write(self.build, {"results/mutants.json": text})
            self.assertDone(self.mutants("--no-base"), "1 killed")


class Listed(unittest.TestCase):
    """The list of what each case caught."""

    def test_a_case_with_kills_and_one_without(self):
        text = mutants.listed(
            {"iopl": {"cases": {"a.b": "pass", "c.d": "pass"}}},
            {"iopl: a.b": ["base", "47-iopl-keeps", "47-iopl-keeps"]})
        self.assertIn("| iopl: a.b | base, 47 |\n", text)
        self.assertIn("| iopl: c.d | none |\n", text)


if __name__ == "__main__":
    unittest.main()
