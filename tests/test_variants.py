# SPDX-License-Identifier: GPL-2.0-only
"""scripts/variants.py: the files of variants/, and the table."""

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
                text, diff = variants.read_variant(path)
                self.assertTrue(text.endswith("."), text)
                self.assertIn("+++ b/kernel/sched/", diff)

    def test_what_is_no_variant(self):
        for text in ("", "words\n", "---\ndiff --git a b\n", "words\n---\n"):
            path = self.temp / "x.patch"
            path.write_text(text)
            with self.subTest(text), self.assertRaises(Fail):
                variants.read_variant(path)


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
