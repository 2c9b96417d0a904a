# SPDX-License-Identifier: GPL-2.0-only
"""The front door: arguments, make help, what is installed and removed."""

import os
import re
import shutil
import subprocess
import unittest

from helper import ROOT, SCRIPTS, Case, commit, make_kernel, write

# They are no jobs of their own.
LIBRARIES = ("common.py", "crew.py", "programs.py", "schedext.py", "svgplot.py")
JOBS = sorted(path.name for path in SCRIPTS.iterdir()
              if path.suffix in (".py", "") and path.is_file()
              and path.name not in (*LIBRARIES, "gitconfig"))


class Arguments(Case):
    """Every script says what it does, and does nothing it does not know."""

    def test_every_script_has_help(self):
        for job in JOBS:
            with self.subTest(job):
                run = self.run_script(job, "--help", KSRC="/missing")
                self.assertDone(run, "usage: ")
                self.assertGreater(len(run.out.splitlines()), 3, run)
                self.assertFalse(self.build.exists())

    def test_an_unknown_argument_is_refused(self):
        # What bench.py does not know goes to the program that it runs.
        for job in set(JOBS) - {"bench.py"}:
            with self.subTest(job):
                more = {"guest.py": ["true"], "yieldbench.py": ["none.json"],
                        "tinyguest.py": ["--image", "none", "true"],
                        "xenguest.py": ["--image", "none"]
                        }.get(job, [])
                run = self.run_script(job, "--no-such-option", *more)
                self.assertNotEqual(run.status, 0, run)
                self.assertEqual(len(re.findall("error: ", run.err)), 1, run)
                self.assertIn("--no-such-option", run.err)
                self.assertNotIn("Traceback", run.err)
                self.assertFalse(self.build.exists())

    def test_a_group_of_tests_that_is_not_known(self):
        run = self.run_script("check.py", "--only", "nonsense")
        self.assertEqual(run.status, 2, run)
        self.assertIn("nonsense", run.err)

    def test_a_kernel_that_is_not_known(self):
        self.assertRefused(self.run_script("kernel.py", "nonsense"),
                           "'nonsense' is none of base, series")

    def test_make_help_has_one_line_for_each_target(self):
        if not shutil.which("make"):
            self.skipTest("make is not there")
        text = (ROOT / "Makefile").read_text()
        targets = re.search(r"^\.PHONY: (.*)$", text, re.M).group(1).split()
        done = subprocess.run(["make", "help"], cwd=ROOT, text=True,
                              env=self.environment(), capture_output=True)
        self.assertEqual(done.returncode, 0, done.stderr)
        rows = done.stdout.splitlines()[1:]
        self.assertCountEqual([row.split()[0] for row in rows], targets)
        for row in rows:
            self.assertGreater(len(row.split()), 2, row)
            self.assertLess(len(row), 80)


class Deps(Case):
    """scripts/deps, with stubs for the system's package tools."""

    def setUp(self):
        super().setUp()
        self.stub("uname", "echo x86_64\n")
        self.stub("id", 'echo "${STUB_UID:-1000}"\n')
        self.stub("dpkg-query", 'for name; do :; done\n'
                  'case " $STUB_MISSING " in\n'
                  '*" $name "*) exit 1 ;;\n'
                  '*" -$name "*) printf config-files ;;\n'
                  '*) printf installed ;;\nesac\n')
        self.stub("apt-get", f'echo "$*" >>"{self.temp}/calls"\n'
                  'echo "apt says: $1"\n'
                  'case "$1" in "$STUB_FAILS") exit 100 ;; esac\n')

    def calls(self):
        """Return the calls of apt-get (list of str)."""
        path = self.temp / "calls"
        return path.read_text().splitlines() if path.exists() else []

    def make_venv(self):
        """Write what marks the Python packages as installed."""
        python = "/usr/bin/python3"
        if not os.access(python, os.X_OK):
            python = "python3"
        done = subprocess.run([python, "-V"], capture_output=True, text=True)
        write(self.build, {"venv/complete": done.stdout + (
            SCRIPTS / "requirements.txt").read_text()})

    def test_without_root_it_prints_one_command(self):
        run = self.run_script("deps", STUB_MISSING="quilt bc")
        self.assertRefused(run, "packages are missing")
        commands = [row.strip() for row in run.err.splitlines()
                    if "apt-get" in row]
        self.assertEqual(commands, [
            "sudo apt-get install -y --no-install-recommends bc quilt"])
        self.assertEqual(self.calls(), [])
        self.assertFalse((self.build / "venv").exists())

    def test_a_removed_package_is_missing(self):
        run = self.run_script("deps", STUB_MISSING="-flex")
        self.assertRefused(run, "--no-install-recommends flex\n")

    def test_with_root_it_installs_what_is_missing_only(self):
        self.make_venv()
        run = self.run_script("deps", STUB_MISSING="quilt bc", STUB_UID=0)
        self.assertDone(run, "installing bc quilt")
        self.assertEqual(self.calls(), [
            "update", "install -y --no-install-recommends bc quilt"])

    def test_more_packages_for_more_jobs(self):
        for group, package in (("gates", "clang-19"),
                               ("throughput", "stress-ng")):
            with self.subTest(group):
                run = self.run_script("deps", "--list", "--with", group)
                self.assertDone(run)
                self.assertIn(package, run.out.splitlines())
                self.assertNotIn(
                    package, self.run_script("deps", "--list").out)
        run = self.run_script("deps", "--with", "nonsense")
        self.assertEqual(run.status, 1, run)
        self.assertIn("--with takes: gates, study, throughput", run.err)

    def test_a_failed_installation_shows_the_end_of_the_log(self):
        for step in ("update", "install"):
            with self.subTest(step):
                run = self.run_script("deps", STUB_MISSING="bc", STUB_UID=0,
                                      STUB_FAILS=step)
                self.assertEqual(run.status, 1, run)
                self.assertIn(f"apt says: {step}", run.err)
                self.assertEqual(run.err.count("error:"), 1, run)
                self.assertIn(f"{self.build}/logs/deps.log", run.err)

    def test_nothing_is_done_when_all_is_there(self):
        self.make_venv()
        run = self.run_script("deps")
        self.assertDone(run)
        self.assertEqual(run.out, "")
        self.assertEqual(self.calls(), [])

    def test_another_machine_is_refused(self):
        self.stub("uname", "echo aarch64\n")
        self.assertRefused(self.run_script("deps"), "aarch64", "x86-64")

    def test_list_is_one_package_a_line(self):
        run = self.run_script("deps", "--list")
        self.assertDone(run)
        self.assertIn("quilt", run.out.splitlines())
        for row in run.out.splitlines():
            self.assertRegex(row, r"^[a-z0-9.+-]+$")

    def test_without_dpkg_it_names_the_missing_tool(self):
        for name in ("cat", "dirname", "git", "make", "mkdir", "python3",
                     "sed", "sh", "tail"):
            if not (self.bin / name).exists():
                (self.bin / name).symlink_to(shutil.which(name))
        (self.bin / "dpkg-query").unlink()
        run = self.run_script("deps", PATH=self.bin)
        self.assertRefused(run, "'bc' is missing and this is not Debian",
                           "quilt")


class Clean(Case):
    """scripts/clean removes what can be built again, and nothing else."""

    def setUp(self):
        super().setUp()
        self.copy_repo()

    def fill(self):
        """Make a build folder with something of everything."""
        ksrc = make_kernel(self.temp / "linux")
        self.assertDone(self.run_script("tree.py", KSRC=ksrc))
        write(self.build, {name: "x" for name in (
            "download/x.deb", "venv/complete", "base/x", "series/x",
            "debug/x", "debug.partial/x", "results/bench.json", "bench/x",
            "kselftest/base/x", "guest-1/x", "unpack-1/x")})

    def left(self):
        """Return the names (list of str) in the build folder."""
        return sorted(path.name for path in self.build.iterdir())

    def test_what_takes_long_to_get_stays(self):
        self.fill()
        self.assertDone(self.run_script("clean"))
        self.assertEqual(self.left(), [".lock", "base.source", "download",
                                       "ksrc.index", "linux.git", "tree",
                                       "venv"])
        self.assertNothingHalfDone()

    def test_a_clean_folder_can_be_worked_in(self):
        self.fill()
        self.assertDone(self.run_script("clean"))
        self.assertDone(self.run_script("tree.py",
                                        KSRC=self.temp / "linux"))

    def test_all_removes_the_folder(self):
        self.fill()
        self.assertDone(self.run_script("clean", "--all"))
        self.assertFalse(self.build.exists())

    def test_all_keeps_work_that_was_not_exported(self):
        self.fill()
        commit(self.build / "tree", "mm: New", "", {"mm/new.c": "new\n"})
        run = self.run_script("clean", "--all")
        self.assertEqual(run.status, 1, run)
        self.assertEqual(run.err.count("error:"), 1, run)
        self.assertIn("build/tree has work that patches/ does not have (",
                      run.err)
        self.assertTrue((self.build / "tree/mm/new.c").exists())
        self.assertTrue((self.build / "download/x.deb").exists())

    def test_all_keeps_a_file_that_was_never_added(self):
        self.fill()
        write(self.build / "tree", {"mm/new.c": "new\n"})
        run = self.run_script("clean", "--all")
        self.assertEqual(run.status, 1, run)
        self.assertIn("(?? mm/new.c)", run.err)
        self.assertTrue((self.build / "tree/mm/new.c").exists())

    def test_force_removes_work_too(self):
        self.fill()
        write(self.build / "tree", {"mm/mmap.c": "mine\n"})
        self.assertDone(self.run_script("clean", "--all", FORCE=1))
        self.assertFalse(self.build.exists())

    def test_nothing_to_clean(self):
        for arguments in ((), ("--all",)):
            self.assertDone(self.run_script("clean", *arguments))
        self.assertFalse(self.build.exists())

    def test_not_under_a_job_that_runs(self):
        self.fill()
        before = self.left()
        process = subprocess.Popen(
            ["flock", self.build / ".lock", "sh", "-c",
             f"echo x >{self.temp}/held; sleep 60"], start_new_session=True,
            stdout=subprocess.PIPE)
        self.addCleanup(self.end, process)
        self.wait_for(self.temp / "held")
        for arguments in ((), ("--all",)):
            run = self.run_script("clean", *arguments, FORCE=1)
            self.assertEqual(run.status, 1, run)
            self.assertEqual(run.err.count("error:"), 1, run)
            self.assertIn("another job is running", run.err)
            self.assertEqual(self.left(), before)


if __name__ == "__main__":
    unittest.main()
