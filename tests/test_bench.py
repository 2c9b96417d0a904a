# SPDX-License-Identifier: GPL-2.0-only
"""The programs of bench/: they compile without a warning, and work."""

import json
import shutil
import signal
import subprocess
import time
import unittest

from helper import Case, heed_signals

import programs

NAMES = ("interactive_latency", "ioperm_memory", "ioperm_random", "pi_ping")
# A few tenths of a second each.
RUNS = (
    ("pi_ping", ("--loads", "0,2", "--seconds", "0.1", "--via", "pipe"),
     ["reference", "load-0", "load-2"]),
    ("interactive_latency", ("--task", "audio", "--load", "none,memload",
                             "--seconds", "0.2", "--mem-mb", "1"),
     ["audio-none-processes", "audio-memload-processes"]),
    ("ioperm_memory", ("--tasks", "2"),
     ["port-0x80", "port-65535", "below-0x400", "every-line", "all"]),
)


class Programs(Case):
    """Built with bench/Makefile, run on this machine."""

    def compile(self, name, *variables):
        """Make a program in the temporary folder; returns its path."""
        if not shutil.which("make") or not shutil.which("gcc"):
            self.skipTest("no compiler")
        program = self.temp / name
        done = subprocess.run(
            ["make", "-B", "-C", programs.BENCH, f"OUTPUT={self.temp}",
             *variables, program], capture_output=True, text=True)
        self.assertEqual(done.returncode, 0, done.stderr)
        return program

    def test_no_compiler_has_a_warning(self):
        for name in NAMES:
            for compiler in filter(shutil.which, ("gcc", "clang-19")):
                self.compile(name, f"CC={compiler}", "CFLAGS=-O2 -Werror")

    def test_each_writes_its_figures(self):
        for name, arguments, cases in RUNS:
            program, report = self.compile(name), self.temp / "report"
            done = subprocess.run([program, "--json", report, *arguments],
                                  capture_output=True, text=True)
            found = json.loads(report.read_text())
            self.assertEqual(found["benchmark"], name)
            self.assertEqual([case["name"] for case in found["cases"]], cases)
            states = {case["status"] for case in found["cases"]}
            self.assertNotIn("fail", states, done.stdout)
            self.assertEqual(done.returncode, 0 if "ok" in states else 4)

    def test_a_wrong_option(self):
        for name, arguments, _ in RUNS:
            program = self.compile(name)
            for wrong in (["--none"], ["more"], [arguments[0], "-1"],
                          ["--json", self.temp / "no/file"]):
                done = subprocess.run([program, *wrong], capture_output=True)
                self.assertEqual(done.returncode, 1, (name, wrong))

    def test_ioperm_random_with_a_wrong_option(self):
        # It is not run here: it reads ports.
        program = self.compile("ioperm_random")
        for wrong in (["--none"], ["more"], ["--seconds", "0"],
                      ["--tasks", "65"], ["--seed", "-1"]):
            done = subprocess.run([program, *wrong], capture_output=True)
            self.assertEqual(done.returncode, 1, wrong)
        done = subprocess.run([program, "--help"], capture_output=True,
                              text=True)
        self.assertEqual(done.returncode, 0)
        for option in ("--seconds", "--tasks", "--seed", "--hotplug",
                       "--failslab"):
            self.assertIn(option, done.stdout)

    def test_an_interrupted_one_leaves_no_task(self):
        for name in ("pi_ping", "interactive_latency"):
            program = self.compile(name)
            process = subprocess.Popen(
                [program, "--seconds", "20"], stdout=subprocess.PIPE,
                preexec_fn=heed_signals)
            with process:
                process.stdout.readline()
                time.sleep(0.3)
                process.send_signal(signal.SIGTERM)
                # Every task of it has the pipe, so this waits for all.
                process.stdout.read()
            self.assertEqual(process.returncode, -signal.SIGTERM)

    def test_the_key_is_that_of_the_sources(self):
        keys = {programs.bench_key(name) for name in NAMES}
        self.assertEqual(len(keys), len(NAMES))
        self.assertIsNone(programs.source("pi_ping"))
        self.assertIn("/sched/yield_latency.c",
                      programs.source("yield_latency"))


if __name__ == "__main__":
    unittest.main()
