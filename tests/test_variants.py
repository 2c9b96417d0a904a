# SPDX-License-Identifier: GPL-2.0-only
"""scripts/variants.py: the files of variants/, and the table."""

import contextlib
import io
import unittest

from helper import Case

import variants
from common import Fail


class Files(Case):
    """read_variant(): a few words and a diff."""

    def test_those_of_the_repository(self):
        paths = sorted(variants.VARIANTS.glob("*.patch"))
        self.assertGreater(len(paths), 3)
        for path in paths:
            with self.subTest(path.name):
                text, diff, _ = variants.read_variant(path)
                self.assertTrue(text.endswith("."), text)
                self.assertIn("+++ b/kernel/sched/", diff)

    def test_what_is_no_variant(self):
        for text in ("", "words\n", "---\ndiff --git a b\n", "words\n---\n",
                     "Caught-by: yield_charge: x\n---\ndiff --git a b\n",
                     "words\nCaught-by: other: x\n---\ndiff --git a b\n"):
            path = self.temp / "x.patch"
            path.write_text(text)
            with self.subTest(text), self.assertRaises(Fail):
                variants.read_variant(path)


    def test_what_catches_it(self):
        path = self.temp / "x.patch"
        path.write_text("two\nwords\nCaught-by: yield_charge: a.*\n"
                        "Caught-by: yield_handover: b\n---\ndiff --git a b\n")
        self.assertEqual(variants.read_variant(path),
                         ("two words", "diff --git a b\n",
                          ["yield_charge: a.*", "yield_handover: b"]))


class Judge(unittest.TestCase):
    """judge(): what must fail does, and on the series nothing."""

    def judged(self, caught, failures, passed=3):
        found = variants.Found()
        for case in failures:
            found.fail(f"selftests/sched: {case}", "why")
        for _ in range(passed):
            found.ok("selftests/sched: x")
        tally = variants.check.Tally()
        with contextlib.redirect_stdout(io.StringIO()) as shown:
            variants.judge(tally, "name", caught, found)
        self.assertIn("name: ", shown.getvalue())
        return tally.passed, tally.failed

    def test_a_variant(self):
        bad = ["yield_charge: charge.nice_0.one_hog"]
        self.assertEqual(self.judged(["yield_charge: charge.*"], bad), (1, 0))
        self.assertEqual(self.judged(["yield_charge: charge.*",
                                      "yield_charge: weights.*"], bad), (1, 1))
        self.assertEqual(self.judged(["yield_charge: *"], []), (0, 1))
        # A guest that does not boot catches nothing.
        self.assertEqual(self.judged(["yield_charge: *"], [""], 0), (0, 1))

    def test_the_series(self):
        self.assertEqual(self.judged(None, []), (1, 0))
        self.assertEqual(self.judged(None, ["yield_charge: a"]), (0, 1))
        self.assertEqual(self.judged(None, [], 0), (0, 1))


class Table(unittest.TestCase):
    """table(): a column per kernel, a row per figure."""

    def test_figures_and_what_is_not_there(self):
        case = {"name": "polite-100us-slice-100ms-hogs-1", "status": "ok",
                "share": 9.571, "p99": 1.9e6, "stuck": 5, "calls": 50}
        rows = variants.table({"base": [], "series": [case]})
        self.assertEqual(rows[0], "| | base | series |")
        self.assertIn("| 1 hog, 100 ms: share % | - | 9.57 |", rows)
        self.assertIn("| nobody else ran % | - | 10 |", rows)
        self.assertEqual(len(rows), 2 + len(variants.FIGURES))


if __name__ == "__main__":
    unittest.main()
