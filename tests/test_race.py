# SPDX-License-Identifier: GPL-2.0-only
"""What 'make race' makes of what ioperm_drop_race prints."""

import argparse
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
            [race.read_hits(OUTPUT, case)
             for case in ("iopl-migrate", "exit-migrate", "exit")],
            [(40000, 38), (500, 0), (0, 0)])


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
        words = race.command("prog", "base", "iopl", 800, 3)
        self.assertIn("for s in 3 4 5", words)
        self.assertIn("--wakes 100 || break", words)

    def test_the_series_runs_a_case_once(self):
        self.assertEqual(race.command("prog", "series", "iopl", 800, 3),
                         "prog --case iopl --seed 3 --wakes 800; true")


class SingleStep(Case):
    def qemu(self, text):
        done = subprocess.CompletedProcess([], 0, text, "")
        with mock.patch.object(race.subprocess, "run", return_value=done):
            return race.single_step()

    def test_an_old_qemu(self):
        self.assertIn("-singlestep",
                      self.qemu("-S  freeze\n-singlestep  always run\n"))

    def test_a_new_one_is_refused(self):
        with self.assertRaisesRegex(Fail, "--only 1"):
            self.qemu("-S  freeze\n")


class Parts(Case):
    def parts(self, **options):
        options = argparse.Namespace(**{"only": None, "wakes": 2000,
                                        "stepped": 1000, **options})
        with mock.patch.object(race, "single_step", lambda: "-singlestep"):
            return race.parts(options)

    def test_each_guest_looks_at_the_series(self):
        found = self.parts()
        self.assertEqual([(part.cpus, part.wakes) for part in found],
                         [(1, 2000), (2, 1000), (2, 2000)])
        for part in found:
            self.assertIn("series", part.sides)

    def test_the_base_runs_where_it_can_be_hit(self):
        for part in self.parts():
            self.assertEqual("base" in part.sides,
                             bool(part.icount or part.qemu), part.title)

    def test_with_two_cpus_tasks_migrate(self):
        for part in self.parts(only=2):
            for case in part.cases():
                self.assertTrue(case.endswith("-migrate"), case)
        self.assertEqual(self.parts(only=1)[0].cases(), list(race.CASES))


class Look(Case):
    """A second run knows what passed, and tries again what did not."""

    def look(self, hits, commit="c1"):
        ran = []

        def run_case(part, side, case, tree, program, seed):
            ran.append(case)
            wrong = race.judge(side, 100, hits, part.wakes)
            return {"guest": part.title, "side": side, "case": case,
                    "wakes": 100, "hits": hits, "wrong": wrong}

        part = race.Part("1 CPU", 1, 100, ("series",))
        with mock.patch.multiple(
                race, REPORT=self.temp / "race.json", run_case=run_case,
                build_sides=lambda sides: {"base": "b", "series": "s"},
                git=lambda *words, cwd: commit, compiler=lambda: "cc",
                source_key=lambda commit: commit), \
                mock.patch.object(race.bench, "build_test"), \
                mock.patch("builtins.print"):
            rows = race.look([part], 1)
        self.assertEqual(len(rows), len(race.CASES))
        return ran

    def test_what_passed_is_not_run_again(self):
        self.assertEqual(self.look(0), list(race.CASES))
        self.assertEqual(self.look(0), [])
        self.assertEqual(self.look(0, "c2"), list(race.CASES))

    def test_what_failed_is(self):
        self.assertEqual(self.look(1), list(race.CASES))
        self.assertEqual(self.look(0), list(race.CASES))


if __name__ == "__main__":
    unittest.main()
