# SPDX-License-Identifier: GPL-2.0-only
"""What 'make race' makes of what ioperm_drop_race prints."""

import subprocess
import unittest
from unittest import mock

from helper import Case

import race
from common import Fail

OUTPUT = """# iopl-migrate: CPU 0: wakes 20000 hits 20
# iopl-migrate: CPU 1: wakes 20000 hits 18
not ok 1 iopl-migrate
# exit-migrate: CPU 0: wakes 500 hits 0
"""


class ReadHits(Case):
    def test_the_observers_are_added_up(self):
        self.assertEqual(
            race.read_hits(OUTPUT, ["iopl-migrate", "exit-migrate", "exit"]),
            {"iopl-migrate": (40000, 38), "exit-migrate": (500, 0),
             "exit": (0, 0)})


class Judge(Case):
    def test_the_base_must_be_hit(self):
        self.assertEqual(race.judge("base", 100, 1, 200), "")
        self.assertIn("not hit", race.judge("base", 100, 0, 200))

    def test_the_series_must_not(self):
        self.assertEqual(race.judge("series", 200, 0, 200), "")
        self.assertEqual(race.judge("series", 200, 1, 200), "hit")

    def test_too_few_prove_nothing(self):
        self.assertIn("to its end", race.judge("series", 199, 0, 200))
        self.assertIn("did not run", race.judge("series", 0, 0, 200))
        self.assertIn("did not run", race.judge("base", 0, 0, 200))


class Command(Case):
    def test_the_base_ends_a_case_with_its_first_hit(self):
        words = race.command("prog", "base", ["iopl"], 800, 3)
        self.assertIn("for s in 3 4 5", words)
        self.assertIn("--wakes 100 || break", words)

    def test_the_series_runs_each_case_once(self):
        self.assertEqual(
            race.command("prog", "series", ["iopl", "exit"], 800, 3),
            "prog --case iopl --seed 3 --wakes 800; "
            "prog --case exit --seed 3 --wakes 800; true")


class SingleStep(Case):
    def qemu(self, text):
        done = subprocess.CompletedProcess([], 0, text, "")
        with mock.patch.object(race.subprocess, "run", return_value=done):
            return race.single_step()

    def test_an_old_qemu(self):
        self.assertEqual(self.qemu("-S  freeze\n-singlestep  always run\n"),
                         "-singlestep")

    def test_a_new_one_is_refused(self):
        with self.assertRaisesRegex(Fail, "--only 1"):
            self.qemu("-S  freeze\n")


if __name__ == "__main__":
    unittest.main()
