# SPDX-License-Identifier: GPL-2.0-only
"""What the scripts share: errors, the lock, commands with a time limit."""

import os
import signal
import subprocess
import sys
import unittest
from unittest import mock

from helper import (GIB, SCRIPTS, Case, git, heed_signals, make_kernel,
                    write)

import common


class Texts(unittest.TestCase):
    """Small functions on texts and files."""

    def test_duration(self):
        self.assertEqual(common.duration(0.4), "0 s")
        self.assertEqual(common.duration(59.4), "59 s")
        self.assertEqual(common.duration(59.6), "1 min 00 s")
        self.assertEqual(common.duration(184), "3 min 04 s")

    def test_shown_path_is_short_inside_the_repository_only(self):
        self.assertEqual(common.shown_path(common.ROOT / "a/b"), "a/b")
        self.assertEqual(common.shown_path("/a/b"), "/a/b")


class Files(Case):
    """Functions that read and write files."""

    def test_tail_is_the_last_lines_without_blank_ones(self):
        write(self.temp, {"log": "".join(f"{n}\n\n" for n in range(50))})
        self.assertEqual(common.tail(self.temp / "log", 3),
                         "    | 47\n    | 48\n    | 49")

    def test_tail_of_a_short_log_and_of_none(self):
        write(self.temp, {"log": "one\r\ntwo\n"})
        self.assertEqual(common.tail(self.temp / "log"),
                         "    | one\n    | two")
        self.assertEqual(common.tail(self.temp / "missing"), "")

    def test_write_atomically_replaces_the_whole_file(self):
        path = self.temp / "deep/file"
        common.write_atomically(path, "long old text\n")
        common.write_atomically(path, "new\n")
        self.assertEqual(path.read_text(), "new\n")
        self.assertEqual(list(path.parent.iterdir()), [path])

    def test_write_atomically_keeps_the_old_file_when_it_fails(self):
        path = self.temp / "file"
        common.write_atomically(path, "old\n")
        with mock.patch("pathlib.Path.replace", side_effect=OSError), \
                self.assertRaises(OSError):
            common.write_atomically(path, "new\n")
        self.assertEqual(path.read_text(), "old\n")
        self.assertFalse((self.temp / "file.partial").exists())

    def test_read_settings(self):
        write(self.temp, {"file": "# A=1\n\n B = two = 2 \nC=\n"})
        self.assertEqual(common.read_settings(self.temp / "file"),
                         {"B": "two = 2", "C": ""})

    def test_need_space_looks_at_a_folder_that_will_be_made(self):
        with mock.patch("shutil.disk_usage") as usage:
            usage.return_value.free = 5 * GIB
            common.need_space(self.temp / "not/yet/there", 5, "it")
            with self.assertRaises(common.Fail) as caught:
                common.need_space(self.temp / "not/yet/there", 6, "it")
        self.assertEqual(
            str(caught.exception),
            f"it needs 6 GiB of disk space below {self.temp}, 5.0 GiB are "
            "free: make room and run it again")

    def test_need_tool_names_the_package(self):
        with self.assertRaises(common.Fail) as caught:
            common.need_tool("no-such-tool", "its-package")
        self.assertIn("'no-such-tool'", str(caught.exception))
        self.assertIn("apt-get install its-package", str(caught.exception))


class RunLogged(Case):
    """run_logged(): the log, the status, and nothing left running."""

    def setUp(self):
        super().setUp()
        self.log = self.temp / "logs/log"

    def shell(self, script, **options):
        return common.run_logged(["sh", "-c", script], self.log, **options)

    def test_output_and_errors_are_in_the_log(self):
        self.assertEqual(self.shell("echo out; echo err >&2"), 0)
        self.assertEqual(self.log.read_text(), "out\nerr\n")

    def test_a_failure_shows_status_and_the_end_of_the_log(self):
        with self.assertRaises(common.Fail) as caught:
            self.shell("echo first; echo last words; exit 3", what="the job")
        text = str(caught.exception)
        self.assertIn("the job failed with status 3", text)
        self.assertIn(str(self.log), text)
        self.assertTrue(text.endswith("    | last words"), text)

    def test_without_check_the_status_is_returned(self):
        self.assertEqual(self.shell("exit 3", check=False), 3)

    def test_it_reads_no_input(self):
        self.assertEqual(self.shell("cat"), 0)

    def test_the_time_limit_ends_children_and_grandchildren(self):
        status = self.shell(
            f"sh -c 'echo $$ >{self.temp}/child; sleep 60; true' &"
            f"sh -c \"trap '' TERM; echo \\$\\$ >{self.temp}/stubborn;"
            " sleep 60; true\" & wait",
            timeout=1.5, check=False)
        self.assertIsNone(status)
        for name in ("child", "stubborn"):
            self.assertGone(self.temp / name)

    def test_the_time_limit_is_an_error_that_names_it(self):
        with self.assertRaises(common.Fail) as caught:
            self.shell("echo before; sleep 60", timeout=1.5, what="the job")
        self.assertIn("the job did not end within 2 s",
                      str(caught.exception))
        self.assertIn("    | before", str(caught.exception))

    def test_a_job_without_a_time_limit_is_not_ended(self):
        self.assertEqual(self.shell("sleep 1.2; exit 4", check=False), 4)


class RunMain(Case):
    """run_main(): every way to end gives its status and one message."""

    def main(self, body, **env):
        return self.run_python(
            "import errno, os, common\n"
            f"def main():\n    {body}\ncommon.run_main(main)\n", **env)

    def test_status_0(self):
        self.assertDone(self.main("return None"))

    def test_a_status_is_passed_on(self):
        run = self.main("return 7")
        self.assertEqual((run.status, run.err), (7, ""))

    def test_fail_is_one_error(self):
        self.assertRefused(self.main("raise common.Fail('it is so')"),
                           "error: it is so\n")

    def test_no_space_is_one_error(self):
        for name in ("ENOSPC", "EDQUOT"):
            with self.subTest(name):
                run = self.main(f"raise OSError(errno.{name}, 'x', 'a/file')")
                self.assertRefused(run, "no disk space left (a/file)",
                                   "make room")

    def test_no_permission_is_one_error(self):
        run = self.main("raise PermissionError(errno.EACCES, 'no', 'a/file')")
        self.assertRefused(run, "a/file", "make it writable")

    def test_a_bug_keeps_its_traceback(self):
        run = self.main("raise OSError(errno.EBADF, 'a bug')")
        self.assertIn("Traceback", run.err)
        self.assertNotEqual(run.status, 0)

    def test_signals_end_what_it_started(self):
        for sig in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP):
            with self.subTest(sig.name):
                self.check_signal(sig)

    def check_signal(self, sig):
        """A signal to the script alone ends a job of another session."""
        record = self.temp / sig.name
        process = subprocess.Popen(
            [sys.executable, "-c", "import common\n"
             "def main():\n    common.run_logged(['sh', '-c', 'sleep 60 &"
             f" echo $! >{record}; wait'], '{self.temp}/log')\n"
             "common.run_main(main)\n"], cwd=SCRIPTS,
            env=self.environment(), stderr=subprocess.PIPE, text=True,
            start_new_session=True, preexec_fn=heed_signals)
        self.addCleanup(self.end, process)
        self.wait_for(record)
        os.kill(process.pid, sig)
        _, err = process.communicate(timeout=20)
        self.assertInterrupted(type("Run", (), {
            "status": process.returncode, "err": err, "out": ""}))
        self.assertGone(record)

    def test_a_signal_while_a_job_is_being_started(self):
        record = self.temp / "early"
        run = self.run_python(
            "import os, signal, subprocess, time\n"
            "import common\n"
            "start = subprocess.Popen\n"
            "def signalled(*args, **more):\n"
            "    process = start(*args, **more)\n"
            f"    while not os.path.exists('{record}'):\n"
            "        time.sleep(0.01)\n"
            "    os.kill(os.getpid(), signal.SIGTERM)\n"
            "    time.sleep(0.1)\n"
            "    return process\n"
            "def main():\n"
            "    common.subprocess.Popen = signalled\n"
            f"    common.run_logged(['sh', '-c', 'echo $$ >{record}.part; "
            f"mv {record}.part {record}; exec sleep 60'],"
            f" '{self.temp}/log')\n"
            "common.run_main(main)\n")
        self.assertInterrupted(run)
        self.assertGone(record)

    def test_a_build_folder_of_another_user_is_one_error(self):
        self.build.mkdir()
        ksrc = make_kernel(self.temp / "linux")
        self.build.chmod(0o555)
        run = self.run_python(
            "import base, common, os\n"
            "if os.getuid() == 0:\n    os.setuid(65534)\n"
            "common.run_main(base.main)\n", KSRC=ksrc)
        self.assertRefused(run, str(self.build), "make it writable")
        self.assertEqual(list(self.build.iterdir()), [])


class Lock(Case):
    """One job at a time below a build folder."""

    def hold(self):
        """Start a job that holds the lock; returns the process."""
        process = subprocess.Popen(
            [sys.executable, "-c", "import common, time\n"
             "with common.build_lock():\n"
             f"    open('{self.temp}/held', 'w').write('yes')\n"
             "    time.sleep(60)\n"], cwd=SCRIPTS, env=self.environment(),
            stderr=subprocess.DEVNULL, start_new_session=True)
        self.addCleanup(self.end, process)
        self.wait_for(self.temp / "held")
        return process

    def test_a_second_job_is_refused_and_changes_nothing(self):
        self.hold()
        for script in ("base.py", "apply.py", "tree.py", "export.py"):
            with self.subTest(script):
                run = self.run_script(script, KSRC=self.temp)
                self.assertRefused(run, "another job is running",
                                   str(self.build), "wait for it")
        self.assertEqual([path.name for path in self.build.iterdir()],
                         [".lock"])

    def test_the_lock_of_a_killed_job_does_not_last(self):
        process = self.hold()
        process.kill()
        process.wait()
        ksrc = make_kernel(self.temp / "linux")
        self.assertDone(self.run_script("base.py", KSRC=ksrc))

    def test_a_job_that_a_job_starts_goes_on(self):
        self.hold()
        ksrc = make_kernel(self.temp / "linux")
        self.assertDone(self.run_script("base.py", KSRC=ksrc,
                                        SERIES_LOCKED=self.build))

    def test_the_lock_of_another_build_folder_does_not_count(self):
        self.hold()
        run = self.run_script("base.py", SERIES_LOCKED=self.temp / "other")
        self.assertRefused(run, "another job is running")

    def test_temporary_folders_of_a_killed_job_are_removed(self):
        kept = ["download/x.deb", "bench/x", "logs/guest-1.console"]
        write(self.build, {name: "x" for name in (
            "unpack-1/x", "export-1/x", "guest-1/x", "bench-1/x", *kept)})
        ksrc = make_kernel(self.temp / "linux")
        self.assertDone(self.run_script("base.py", KSRC=ksrc))
        self.assertNothingHalfDone()
        for name in kept:
            self.assertTrue((self.build / name).exists(), name)


class Git(Case):
    """git(): its own configuration, its words in the error."""

    def test_an_error_has_the_words_of_git_in_one_message(self):
        run = self.run_python("import common\n"
                              "common.run_main(lambda: common.git("
                              "'rev-parse', 'no-such', cwd='/'))")
        self.assertRefused(run, "git rev-parse failed: fatal: ")

    def test_an_interrupted_git_can_take_its_locks_away(self):
        self.stub("git", f"trap 'rm {self.temp}/lock; exit 1' TERM\n"
                  f"echo x >{self.temp}/lock\necho $$ >{self.temp}/hangs\n"
                  "while :; do sleep 0.05; done\n")
        process = self.start_script("base.py", KSRC=self.temp)
        self.wait_for(self.temp / "hangs")
        os.kill(process.pid, signal.SIGTERM)
        self.assertIn("interrupted:", process.communicate(timeout=20)[1])
        self.assertGone(self.temp / "hangs")
        self.assertFalse((self.temp / "lock").exists())

    def test_raw_output_is_not_changed(self):
        git(self.temp, "init", "-q")
        content = b"\xe9\r\nline\rend"
        (self.temp / "file").write_bytes(content)
        name = git(self.temp, "hash-object", "-w", "file").strip()
        self.assertEqual(common.git("cat-file", "blob", name, cwd=self.temp,
                                    raw=True), content)


if __name__ == "__main__":
    unittest.main()
