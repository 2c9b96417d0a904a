# SPDX-License-Identifier: GPL-2.0-only
"""The jobs of lab/ are valid, and their results come back."""

import base64
import json
import os
import shutil
import subprocess
import sys
import tarfile
import unittest
from pathlib import Path

from helper import ROOT, SCRIPTS, Case, environment, write

sys.path.insert(0, str(SCRIPTS))
import lab  # noqa: E402

KSELFTEST = """\
#!/bin/sh
echo 'TAP version 13'
echo '# ok 1 not the outermost level'
echo 'ok 1 selftests: x86: good_64'
echo 'not ok 2 selftests: x86: bad_64 # exit=1'
echo 'ok 3 selftests: x86: missing_64 # SKIP'
"""
URLS = ("--files", "http://files.example.org/x",
        "--rootfs", "http://files.example.org/r.tar.xz")


class Lab(Case):
    """A repository with lab/, and two packed kernels."""

    def setUp(self):
        super().setUp()
        self.copy_repo()
        shutil.copytree(ROOT / "lab", self.repo / "lab")

    def lab(self, *args, **env):
        return self.run_script("lab.py", *args, **env)

    def kernel(self, side, release):
        """Make a built kernel and installed tests; returns --pack's words."""
        tree = self.temp / side
        write(tree, {"arch/x86/boot/bzImage": f"image of {side}",
                     "include/config/kernel.release": release + "\n",
                     "kselftest/run_kselftest.sh": KSELFTEST,
                     "kselftest/kselftest-list.txt": "x86:good_64\n"})
        return "--pack", side, tree, tree / "kselftest"

    def pack(self, base="7.3.4-base", series="7.3.4-series"):
        self.assertDone(self.lab(*self.kernel("base", base)), base)
        self.assertDone(self.lab(*self.kernel("series", series)), series)

    def need_schema(self):
        if not lab.SCHEMA.exists():
            self.skipTest(f"there is no {lab.SCHEMA}")


class Jobs(Lab):
    """What is sent to a lab."""

    def test_each_board_has_a_valid_job(self):
        self.need_schema()
        self.assertDone(self.lab("--check"), f"{len(lab.boards())} job "
                        "definitions are valid")

    def test_a_wrong_definition_is_found(self):
        self.need_schema()
        for old, new in (("to: tftp", "to: tftpp"),
                         ("    namespace: $side\n    method", "    method"),
                         ("minutes: 45", "minutes: 451")):
            path = self.repo / "lab/side.yaml"
            text = (ROOT / "lab/side.yaml").read_text()
            path.write_text(text.replace(old, new))
            if path.read_text() != text:
                self.assertRefused(self.lab("--check"), "is not a job")

    def test_a_job_boots_both_kernels_on_one_board(self):
        self.need_schema()
        self.pack()
        self.assertDone(self.lab("--jobs", *URLS), "nothing was submitted")
        text = (self.build / "lab/jobs/x86.yaml").read_text()
        for word in ("http://files.example.org/x/bzImage-base",
                     "http://files.example.org/x/bzImage-series",
                     "./run.sh base 7.3.4-base",
                     "./run.sh series 7.3.4-series"):
            self.assertIn(word, text)

    def test_kernels_that_look_alike_are_refused(self):
        self.pack("7.3.4", "7.3.4")
        self.assertRefused(self.lab("--jobs", *URLS), "LOCALVERSION")

    def test_what_is_missing_is_said(self):
        self.assertRefused(self.lab("--jobs", *URLS), "base is not packed")
        self.assertRefused(self.lab("--jobs"), "give FILES=URL")
        self.assertRefused(self.lab("--pack", "base", self.temp, self.temp),
                           "build the kernel")
        self.assertRefused(self.lab("--pack", "left", self.temp, self.temp),
                           "not left")

    def test_a_wrong_row_of_the_boards_is_refused(self):
        write(self.repo, {"lab/boards.txt": "# none\n"})
        self.assertRefused(self.lab("--check"), "names no board")
        write(self.repo, {"lab/boards.txt": "# one\n\nx86 floppy\n"})
        self.assertRefused(self.lab("--check"), "boards.txt, line 3")

    def test_what_a_board_loads_belongs_to_root(self):
        words = self.kernel("base", "7.3.4-base")
        if os.geteuid() == 0:
            # As if a user had built it.
            os.chown(self.repo / "lab/run.sh", 1234, 1234)
        self.assertDone(self.lab(*words))
        with tarfile.open(self.build / "lab/files/lab-base.tar.xz") as tar:
            names = {member.name: member for member in tar}
        self.assertEqual(names["opt/lab/run.sh"].uid, 0)
        self.assertEqual(names["opt/lab/run.sh"].uname, "root")
        self.assertTrue(names["opt/lab/run.sh"].mode & 0o111)
        self.assertIn("opt/lab/kselftest/run_kselftest.sh", names)


class Board(Lab):
    """What runs on the board."""

    def run_board(self, release=os.uname().release, **files):
        """Run lab/run.sh as a board would; returns its output (str)."""
        top = self.temp / "board"
        write(top, {"kselftest/run_kselftest.sh": KSELFTEST,
                    "kselftest/kselftest-list.txt": "x86:good_64\n", **files})
        for path in (top / "kselftest").rglob("*"):
            path.chmod(0o755)
        self.stub("dmesg", "echo all is well\n")
        done = subprocess.run(
            ["sh", self.repo / "lab/run.sh", "series", release],
            env=environment(LAB_TOP=top, PATH=f"{self.bin}:"
                            + os.environ["PATH"]),
            capture_output=True, text=True, timeout=60)
        self.log = self.temp / "log"
        self.log.write_text(done.stdout)
        return done.stdout

    def test_each_selftest_is_a_result(self):
        out = self.run_board()
        self.assertEqual(
            [row for row in out.splitlines() if row.startswith("LAB-RES")],
            ["LAB-RESULT series kernel-release pass",
             "LAB-RESULT series x86.good_64 pass",
             "LAB-RESULT series x86.bad_64 fail",
             "LAB-RESULT series x86.missing_64 skip",
             "LAB-RESULT series kselftest-ran pass",
             "LAB-RESULT series dmesg pass"])

    def test_lava_is_told(self):
        self.stub("lava-test-case", 'echo "told $*"\n')
        self.assertIn("told x86.bad_64 --result fail", self.run_board())

    def test_another_kernel_is_not_tested(self):
        out = self.run_board(release="1.2.3")
        self.assertIn("LAB-RESULT series kernel-release fail", out)
        self.assertNotIn("x86.good_64", out)

    def test_a_run_of_nothing_fails(self):
        out = self.run_board(**{"kselftest/run_kselftest.sh": "#!/bin/sh\n"})
        self.assertIn("LAB-RESULT series kselftest-ran fail", out)

    def test_figures_come_back(self):
        report = {"cases": [{"name": "none", "p50": n} for n in range(99)]}
        self.run_board(**{"kselftest/x86/ioperm_latency_64":
                          "#!/bin/sh\ncat >\"$2\" <<'END'\n"
                          + json.dumps(report) + "\nEND\n"})
        # A log of LAVA has a time before each line.
        rows = self.log.read_text().splitlines()
        self.log.write_text("".join(f"2026-11-20T12:00:00 {row}\n"
                                    for row in rows))
        self.assertDone(self.lab("--collect", f"apu2={self.log}"), "apu2")
        path = self.build / "lab/results/apu2/series/ioperm_latency.json"
        self.assertEqual(json.loads(path.read_text()), report)

    def test_a_benchmark_without_figures_fails(self):
        out = self.run_board(**{"kselftest/x86/ioperm_latency_64":
                                "#!/bin/sh\nexit 1\n"})
        self.assertIn("LAB-RESULT series ioperm_latency fail", out)

    def test_a_log_without_figures_is_refused(self):
        log = self.temp / "log"
        log.write_text("nothing\n")
        self.assertRefused(self.lab("--collect", f"apu2={log}"),
                           "has no LAB-DATA")
        half = base64.b64encode(b'{"a": 1').decode()
        log.write_text(f"LAB-DATA series ioperm_latency {half}\n")
        self.assertRefused(self.lab("--collect", f"apu2={log}"), "damaged")
        self.assertRefused(self.lab("--collect", "apu2"), "not BOARD=LOG")
        self.assertEqual(list(Path(self.build).glob("lab/results/*")), [])


if __name__ == "__main__":
    unittest.main()
