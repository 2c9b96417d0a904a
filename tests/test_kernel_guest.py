# SPDX-License-Identifier: GPL-2.0-only
"""Building and booting, with stubs for make and for the guest.

No kernel is built and none boots here: the stub of make writes the files
that a build leaves, the stub of vng runs the guest's command on the host.
"""

import json
import signal
import unittest
from unittest import mock

from helper import GIB, Case, git, make_kernel, snapshot, write

import guest

MERGE_CONFIG = """#!/bin/sh
# The last argument is a fragment: take it as .config, without one setting.
for fragment; do :; done
grep -v "${STUB_LACKS:-nothing at all}" "$fragment" >.config
"""
MAKE = """
tree=
while [ $# -gt 0 ]; do
	case "$1" in
	-C) tree=$2; shift ;;
	OUTPUT=*) output=${1#*=} ;;
	esac
	last=$1
	shift
done
echo "$tree $last" >>"$STUB_TEMP/made"
if [ "$STUB_MAKE" = hang ]; then
	sleep 60 &
	echo $! >"$STUB_TEMP/hangs"
	wait
fi
[ "$STUB_MAKE" != fail ] || { echo "x.c:1: error: no"; exit 2; }
case "$last" in
headers)
	mkdir -p "$tree/arch/x86/boot" "$tree/include/config"
	echo 7.3.4 >"$tree/include/config/kernel.release"
	echo kernel >"$tree/arch/x86/boot/bzImage" ;;
*)
	cp "$STUB_TEMP/program" "$last"
	chmod +x "$last" ;;
esac
"""
VNG = """#!/bin/sh
echo "$*" >>"$STUB_TEMP/guests"
case "$* " in
*" --disable-kvm "*) guest=$STUB_GUEST ;;
*) guest=$STUB_KVM ;;
esac
case "$guest" in
hang)
	echo "Booting the kernel."
	sleep 60 &
	echo $! >"$STUB_TEMP/hangs"
	wait ;;
panic) echo "Kernel panic - not syncing: No init found"; exit 0 ;;
esac
for last; do :; done
exec "$last"
"""
# What stands for ioperm_latency and ioperm_memory.
PROGRAM = """#!/bin/sh
echo "${0##*/} $*" >>"$STUB_TEMP/programs"
[ "$1" != --tasks ] || shift 2
[ "$1" = --json ] || exit 2
[ -z "$STUB_TEST" ] || { echo "not ok 1 none"; exit 1; }
cat >"$2" <<END
{"cases": [{"name": "none", "kind": "switch", "status": "ok", "p50": 7,
 "rounds": 5, "highest_port": [null, null]}]}
END
echo "ok 1 none"
"""


class Stubbed(Case):
    """A fake kernel that configures itself, and all the stubs."""

    def setUp(self):
        super().setUp()
        self.copy_repo()
        self.ksrc = make_kernel(self.temp / "linux")
        script = self.ksrc / "scripts/kconfig/merge_config.sh"
        write(self.ksrc, {"scripts/kconfig/merge_config.sh": MERGE_CONFIG,
                          ".gitignore": "*.o\n.*\n!.gitignore\nbzImage\n"
                          "/include/config/\n"})
        script.chmod(0o755)
        write(self.temp, {"program": PROGRAM})
        self.stub("make", MAKE)
        for name in ("ccache", "flex", "bison", "bc", "gcc"):
            self.stub(name, "exit 0\n")
        self.stub("qemu-system-x86_64", "echo QEMU emulator version 0\n")
        write(self.build, {"venv/bin/vng": VNG})
        (self.build / "venv/bin/vng").chmod(0o755)

    def environment(self, **more):
        return super().environment(**{"STUB_TEMP": self.temp,
                                      "KSRC": self.ksrc, "ACCEL": "tcg"}
                                   | more)

    def lines(self, name):
        """Return the lines (list of str) of a file that a stub writes."""
        path = self.temp / name
        return path.read_text().splitlines() if path.exists() else []

    def assertNoGuestLeft(self):
        self.assertEqual(list(self.build.glob("guest-*")), [])
        self.assertEqual(list(self.build.glob("bench-*")), [])


class Kernels(Stubbed):
    """kernel.py: two trees, each at its commit, built again as needed."""

    def build_kernels(self, *sides, **env):
        return self.run_script("kernel.py", *sides, **env)

    def test_both_are_built_at_their_commits(self):
        self.assertDone(self.build_kernels(), "base: 7.3.4", "series: 7.3.4")
        for side, branch in (("base", "base"), ("series", "applied")):
            self.assertEqual(
                git(self.build / side, "rev-parse", "HEAD").strip(),
                self.tip(branch))
            self.assertEqual(git(self.build / side, "status",
                                 "--porcelain"), "")
            self.assertTrue((self.build / side / "arch/x86/boot/bzImage")
                            .exists())

    def test_one_can_be_built_alone(self):
        self.assertDone(self.build_kernels("base"), "base: 7.3.4")
        self.assertFalse((self.build / "series").exists())

    def test_a_second_run_keeps_the_files_as_they_are(self):
        self.assertDone(self.build_kernels("base"))
        before = snapshot(self.build / "base")
        self.stub("make", "exit 0\n")
        self.assertDone(self.build_kernels("base"))
        self.assertUntouched(self.build / "base", before)

    def test_a_source_edited_by_hand_is_put_right(self):
        self.assertDone(self.build_kernels("base"))
        write(self.build / "base", {"mm/mmap.c": "by hand\n"})
        self.assertDone(self.build_kernels("base"))
        self.assertEqual(git(self.build / "base", "status", "--porcelain"),
                         "")

    def test_a_build_that_fails_shows_the_end_of_its_log(self):
        run = self.build_kernels(STUB_MAKE="fail")
        self.assertEqual(run.status, 1, run)
        self.assertTrue(run.err.startswith(
            "error: building the base kernel failed with status 2"), run)
        self.assertIn("    | x.c:1: error: no", run.err)
        self.assertNotIn("Traceback", run.err)
        self.assertDone(self.build_kernels())

    def test_settings_that_kconfig_drops_are_named(self):
        run = self.build_kernels("base", STUB_LACKS="CONFIG_SMP=")
        self.assertEqual(run.status, 1, run)
        self.assertIn("does not take CONFIG_SMP=y of", run.err)
        self.assertEqual(self.lines("made"), [])
        self.assertDone(self.build_kernels("base"))

    def test_too_little_space_for_a_kernel(self):
        self.assertDone(self.run_script("apply.py"))
        run = self.build_kernels(FAKE_FREE=3 * GIB)
        self.assertEqual(run.status, 1, run)
        self.assertIn("the base kernel needs 4 GiB", run.err)
        self.assertFalse((self.build / "base").exists())

    def test_a_missing_tool_is_named_with_its_package(self):
        code = ("import shutil\nfound = shutil.which\n"
                "shutil.which = lambda name: None if name == 'bison' "
                "else found(name)\n"
                "import common, kernel\ncommon.run_main(kernel.main)\n")
        run = self.run_python(code)
        self.assertEqual(run.status, 1, run)
        self.assertEqual(run.err, "error: the command 'bison' is missing: "
                         "apt-get install bison\n")

    def test_an_interrupted_build_goes_on(self):
        for sig in (signal.SIGINT, signal.SIGTERM):
            with self.subTest(sig.name):
                run = self.interrupt("kernel.py", sig, STUB_MAKE="hang")
                self.assertEqual(run.status, 130, run)
                self.assertTrue(run.err.startswith("interrupted:"), run)
                self.assertEqual(run.err.count("\n"), 1, run)
                self.assertGone(self.temp / "hangs")
        self.assertDone(self.build_kernels(), "series: 7.3.4")

    def test_an_interrupted_checkout_is_not_taken(self):
        for sig in (signal.SIGINT, signal.SIGKILL):
            with self.subTest(sig.name):
                self.stub_git("base.partial", after=True)
                self.interrupt("kernel.py", sig)
                self.assertFalse((self.build / "base").exists())
                (self.bin / "git").unlink()
        self.assertDone(self.build_kernels(), "base: 7.3.4")
        self.assertFalse((self.build / "base.partial").exists())

    def test_a_lock_of_a_killed_git_does_not_stand_in_the_way(self):
        self.assertDone(self.build_kernels("base"))
        name = git(self.build / "base", "rev-parse", "--git-dir").strip()
        write(self.temp / name, {"index.lock": ""})
        write(self.build / "base", {"mm/mmap.c": "half\n"})
        self.assertDone(self.build_kernels("base"))
        self.assertEqual(git(self.build / "base", "status", "--porcelain"),
                         "")


class Guest(Stubbed):
    """guest.py: a guest that ends, one that hangs, one that panics."""

    def setUp(self):
        super().setUp()
        self.kernel = self.temp / "kernel"
        write(self.kernel, {"arch/x86/boot/bzImage": "kernel"})

    def guest(self, *args, **env):
        return self.run_script("guest.py", "--kernel", self.kernel, *args,
                               **env)

    def test_output_and_status_come_back(self):
        run = self.guest("echo said; exit 3")
        self.assertEqual((run.status, run.out, run.err), (3, "said\n", ""))
        self.assertNoGuestLeft()

    def test_words_are_passed_on_as_they_are(self):
        run = self.guest("--", "printf", "%s.", "a  b", "$HOME", "it's")
        self.assertEqual(run.out, "a  b.$HOME.it's.")

    def test_a_guest_that_hangs_is_ended_and_its_console_shown(self):
        run = self.guest("--timeout", 2, "true", STUB_GUEST="hang")
        self.assertRefused(run, "did not end within 2 s and was stopped",
                           "    | Booting the kernel.",
                           f"{self.build}/logs/guest.console")
        self.assertGone(self.temp / "hangs")
        self.assertIn("Booting", (self.build / "logs/guest.console")
                      .read_text())

    def test_a_guest_that_panics_is_an_error(self):
        run = self.guest("true", STUB_GUEST="panic")
        self.assertRefused(run, "ended before its command did",
                           "    | Kernel panic - not syncing")

    def test_what_a_command_said_before_the_end_is_shown(self):
        run = self.guest("--timeout", 2, "echo so far; sleep 60")
        self.assertRefused(run, "did not end within 2 s", "    | so far")

    def test_an_interrupted_guest_is_ended(self):
        run = self.interrupt("guest.py", STUB_GUEST="hang",
                             arguments=["--kernel", self.kernel, "true"])
        self.assertInterrupted(run)
        self.assertGone(self.temp / "hangs")
        self.assertNoGuestLeft()

    def test_a_kernel_that_was_not_built(self):
        run = self.run_script("guest.py", "--kernel", self.temp, "true")
        self.assertRefused(run, "there is no kernel in", "make kernels")

    def test_icount_is_for_one_cpu(self):
        self.assertRefused(self.guest("--icount", "--cpus", 2, "true"),
                           "one CPU")

    def test_icount_never_uses_kvm(self):
        self.assertEqual(self.guest("--icount", "--", "true").status, 0)
        call, = self.lines("guests")
        self.assertIn("--disable-kvm", call)
        self.assertIn("-icount shift=0,sleep=on", call)

    def test_an_unknown_accelerator_is_refused(self):
        self.assertRefused(self.guest("true", ACCEL="fast"),
                           "ACCEL=fast is not known: use tcg or kvm")
        self.assertEqual(self.lines("guests"), [])

    def choose(self, there=True, seconds=20, **env):
        """Let choose_kvm() decide; its answer is the last line said."""
        return self.run_python(
            "import os, guest, common\nfrom pathlib import Path\n"
            "real = os.access\n"
            "os.access = lambda path, *rest: "
            f"{there} if path == '/dev/kvm' else real(path, *rest)\n"
            f"guest.PROBE_SECONDS = {seconds}\n"
            "def main():\n"
            f"    print(guest.choose_kvm(Path('{self.kernel}')))\n"
            "common.run_main(main)\n", **{"ACCEL": ""} | env)

    def test_kvm_is_taken_when_a_guest_boots_under_it(self):
        run = self.choose()
        self.assertDone(run, "KVM works")
        self.assertEqual(run.out.splitlines()[-1], "True")

    def test_a_kvm_that_hangs_is_not_taken_nor_tried_again(self):
        run = self.choose(seconds=2, STUB_KVM="hang")
        self.assertDone(run, "software emulation (TCG)")
        self.assertEqual(run.out.splitlines()[-1], "False")
        self.assertGone(self.temp / "hangs")
        self.assertEqual(len(self.lines("guests")), 1)
        self.assertEqual(self.choose(STUB_KVM="hang").out, "False\n")
        self.assertEqual(len(self.lines("guests")), 1)
        self.assertRefused(self.choose(ACCEL="kvm"), "no guest boots under "
                           "KVM here", "ACCEL=tcg")

    def test_without_kvm_nothing_is_tried(self):
        self.assertEqual(self.choose(there=False).out, "False\n")
        self.assertEqual(self.lines("guests"), [])

    def test_tcg_is_not_probed(self):
        self.assertEqual(self.choose(ACCEL="tcg").out, "False\n")
        self.assertEqual(self.lines("guests"), [])

    def test_an_answer_from_before_a_reboot_does_not_count(self):
        write(self.build, {"kvm.json": json.dumps(
            {"boot_id": "another", "works": False})})
        self.assertEqual(self.choose().out.splitlines()[-1], "True")

    def test_a_broken_record_does_not_count(self):
        write(self.build, {"kvm.json": "{"})
        self.assertEqual(self.choose().out.splitlines()[-1], "True")


class StrayBreakpoint(Case):
    """A guest that the emulation ended starts again, no other one does."""

    def boot(self, said, *, hung=False, cpus=2, kvm=False):
        """boot() with guests that end like this; returns how many."""
        console = self.temp / "console"
        write(self.temp, {"console": said})
        started = []

        def boot_once(kernel, command, **options):
            started.append(options)
            raise guest.Lost("lost", hung, "", console)

        with mock.patch.object(guest, "boot_once", boot_once), \
                mock.patch("builtins.print"), \
                self.assertRaises(guest.Lost):
            guest.boot("kernel", "true", cpus=cpus, kvm=kvm)
        return len(started)

    def test_it_starts_again_a_few_times(self):
        self.assertEqual(self.boot("x\nOops: int3: 0000 [#1] SMP\n"),
                         guest.TRIES)

    def test_it_is_the_first_oops_that_counts(self):
        self.assertEqual(self.boot("BUG: unable to handle\nOops: int3: 1\n"),
                         1)

    def test_another_end_is_not_tried_again(self):
        said = "Oops: int3: 0000 [#1] SMP\n"
        self.assertEqual(self.boot("Oops: 0002 [#1]\n"), 1)
        self.assertEqual(self.boot("Kernel panic\n"), 1)
        self.assertEqual(self.boot(said, hung=True), 1)
        self.assertEqual(self.boot(said, cpus=1), 1)
        self.assertEqual(self.boot(said, kvm=True), 1)


class Bench(Stubbed):
    """The main job from the base to the figures, and how it can end."""

    def bench(self, seconds=60, **env):
        return self.run_python(
            "import json, bench, common, copycost\n"
            "copycost.measure = lambda tree: {}\n"
            f"bench.GUEST_SECONDS = {seconds}\n"
            "def main():\n"
            "    with common.build_lock():\n"
            "        print(json.dumps(bench.run()))\n"
            "common.run_main(main)\n", **env)

    def test_the_report_has_both_sides_and_what_they_are(self):
        run = self.bench()
        self.assertDone(run, "measuring the base kernel (TCG, -icount)",
                        "measuring the series kernel (TCG, -icount)")
        report = json.loads(run.out.splitlines()[-1])
        self.assertEqual(report["accel"], "tcg")
        self.assertEqual(report["wanted_base"], "7.3.4")
        self.assertRegex(report["date"], r"^\d{4}-\d\d-\d\dT.*\+00:00$")
        for side, branch in (("base", "base"), ("series", "applied")):
            found = report["sides"][side]
            self.assertEqual(found["release"], "7.3.4")
            self.assertEqual(found["commit"], self.tip(branch))
            self.assertEqual(found["ioperm_latency"]["cases"][0]["p50"], 7)
        self.assertNoGuestLeft()

    def test_guests_have_one_cpu_and_count_instructions(self):
        self.assertDone(self.bench())
        calls = self.lines("guests")
        # Two for time, and two for memory, which has nothing to count.
        self.assertEqual(len(calls), 4)
        for call in calls:
            self.assertIn("--cpus 1 ", call)
            self.assertIn("--disable-kvm", call)
        for call in calls[:2]:
            self.assertIn("-icount shift=0", call)
        for call in calls[2:]:
            self.assertNotIn("-icount", call)

    def test_the_report_has_the_memory_of_both_sides(self):
        run = self.bench()
        self.assertDone(run, "measuring memory on the base kernel",
                        "measuring memory on the series kernel")
        report = json.loads(run.out.splitlines()[-1])
        for side in ("base", "series"):
            self.assertIn("cases", report["sides"][side]["ioperm_memory"])
        # Fewer are the program's default, and too few for a figure.
        for line in self.lines("programs")[2:]:
            self.assertRegex(line, "^ioperm_memory --tasks 1000 --json ")

    def test_a_kernel_that_never_boots(self):
        run = self.bench(seconds=2, STUB_GUEST="hang")
        self.assertEqual(run.status, 1, run)
        self.assertTrue(run.err.startswith("error: the guest 'bench-base'"),
                        run)
        self.assertIn("did not end within 2 s", run.err)
        self.assertIn("    | Booting the kernel.", run.err)
        self.assertGone(self.temp / "hangs")
        self.assertNoGuestLeft()
        self.assertDone(self.bench())

    def test_a_test_that_fails_is_an_error_with_its_output(self):
        run = self.bench(STUB_TEST="fail")
        self.assertEqual(run.status, 1, run)
        self.assertTrue(run.err.startswith("error: ioperm_latency_64 ended "
                                           "with status 1"), run)
        self.assertIn("not ok 1 none", run.err)
        self.assertNoGuestLeft()

    def test_an_interrupted_measurement_leaves_no_result(self):
        run = self.interrupt("bench.py", STUB_GUEST="hang")
        self.assertEqual(run.status, 130, run)
        self.assertEqual(run.err.count("\n"), 1, run)
        self.assertGone(self.temp / "hangs")
        self.assertNoGuestLeft()
        self.assertFalse((self.build / "results").exists())
        self.assertDone(self.bench())


if __name__ == "__main__":
    unittest.main()
