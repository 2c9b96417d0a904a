# SPDX-License-Identifier: GPL-2.0-only
"""study.py and measure.py: what is run, what is resumed, what is refused."""

import io
import json
import os
import subprocess
import time
import unittest
from contextlib import redirect_stdout
from pathlib import Path
from types import SimpleNamespace
from unittest import mock

from helper import ROOT, Case, write

import measure
import programs
import schedext
import study
from common import Fail
from kernel import KERNELS, last_said, missing_settings


class Plan(unittest.TestCase):
    """plan() and chosen(): the cells, and the pattern that picks some."""

    def test_every_column_is_a_kernel_and_every_name_is_one_cell(self):
        cells = study.plan(3)
        self.assertLessEqual({study.kernel_of(cell.column) for cell in cells},
                             set(KERNELS))
        names = [cell.name for cell in cells]
        self.assertEqual(len(names), len(set(names)))

    def test_both_sides_have_the_same_arguments_and_seeds(self):
        cells = {cell.name: cell for cell in study.plan(2)}
        seeds = 0
        for name, cell in cells.items():
            other = cells.get(name.replace(".base", ".series"))
            if other and cell.column.startswith("base") \
                    and cell.benchmark != "yield_latency":
                self.assertEqual(cell.arguments, other.arguments)
                seeds += "--seed" in cell.arguments
        self.assertTrue(seeds)
        self.assertNotEqual(
            cells["interactive_latency.threads.base.1"].arguments,
            cells["interactive_latency.threads.base.2"].arguments)

    def test_only_the_series_has_feature_bits(self):
        for cell in study.plan(1):
            self.assertEqual("--features" in cell.arguments,
                             cell.benchmark == "yield_latency"
                             and cell.column.startswith("series"), cell.name)

    def test_how_often(self):
        for repeat in (1, 2, 5):
            runs = {}
            for cell in study.plan(repeat):
                runs.setdefault(cell.column, set()).add(cell.repeat)
            for column, numbers in runs.items():
                most = repeat if column in study.SIDES else \
                    min(repeat, study.REPEAT_OTHERS)
                self.assertEqual(numbers, set(range(1, most + 1)), column)

    def test_only(self):
        cells = study.plan(2)
        names = [cell.name for cell in study.chosen(
            cells, ["ioperm_latency.history_8k", "hackbench.base.2"])]
        self.assertEqual(names, ["ioperm_latency.history_8k.1",
                                 "ioperm_latency.history_8k.2",
                                 "hackbench.base.2"])
        with self.assertRaises(Fail):
            study.chosen(cells, ["pi_pong"])

    def test_history_kernels_have_their_patches(self):
        for column, name in study.HISTORY_PATCHES.items():
            self.assertIn(column, KERNELS)
            text = (ROOT / "history" / name).read_text()
            self.assertIn("+++ b/arch/x86/kernel/process.c", text)
            # It is beside the series, not in it.
            self.assertNotIn(name, (ROOT / "series").read_text())


class Cells(Case):
    """Finished cells: read, estimated from, and measured again."""

    def setUp(self):
        super().setUp()
        patch = mock.patch.object(study, "STUDY", self.temp)
        patch.start()
        self.addCleanup(patch.stop)
        self.cell = study.plan(1)[0]

    def finish(self, **more):
        write(self.temp, {self.cell.path.name: json.dumps(
            {"cell": self.cell.name, "benchmark": self.cell.benchmark,
             "part": self.cell.part, "column": self.cell.column,
             "seconds": 20, "key": "k", "result": {"cases": [{}]}} | more)})

    def test_a_file_that_is_no_cell_is_not_finished(self):
        self.assertIsNone(study.done_cell(self.cell.path))
        for text in ("", "{}", "[]", '{"cell": "x", "result": null}'):
            write(self.temp, {self.cell.path.name: text})
            self.assertIsNone(study.done_cell(self.cell.path), text)

    def test_measured_times_take_the_place_of_guesses(self):
        guess = study.expected(self.cell, study.measured_seconds())
        self.assertEqual(guess, self.cell.guess)
        self.finish()
        seconds = study.measured_seconds()
        self.assertEqual(study.expected(self.cell, seconds), 20)
        other = next(cell for cell in study.plan(1)
                     if cell.kind == self.cell.kind
                     and cell.column == "series")
        self.assertEqual(study.expected(other, seconds), 20)

    def test_another_compiler_makes_another_scheduler(self):
        cells = {cell.column: cell for cell in study.chosen(
            study.plan(1), ["yield_latency"])}
        with mock.patch.object(study, "git", lambda *words, cwd: "blob"), \
                mock.patch.object(study, "source_key", lambda branch: "s"):
            for column, same in (("base", True), ("ext_qmap", False)):
                first = study.cell_key(cells[column], "tcg")
                with mock.patch.object(study.schedext, "CLANG", "-99"):
                    self.assertEqual(study.cell_key(cells[column], "tcg")
                                     == first, same, column)

    def run_study(self, measured, jobs=1):
        """Run two cells without kernels; returns what was printed."""
        cells = study.chosen(study.plan(1), ["ioperm_latency"])[:2]
        patches = {
            "prepare": lambda columns: None, "missing_programs":
            lambda cells: {}, "build_kernel": Path, "checkout": Path,
            "cell_key": lambda cell, accel: f"key {cell.column}",
            "choose_kvm": lambda tree: False, "describe": lambda tree: {},
            "run_cell": measured}
        out = io.StringIO()
        with mock.patch.multiple(study, **patches), redirect_stdout(out), \
                mock.patch.object(programs, "build", lambda *_: None), \
                mock.patch.dict("os.environ", ACCEL="tcg"):
            study.run(cells, jobs=jobs)
        return out.getvalue()

    def test_it_goes_on_with_what_is_missing(self):
        ran = []

        def measured(cell, tree, program, loader, kvm):
            ran.append(cell.column)
            return {"cases": [{"name": "none", "status": "ok"}]}

        text = self.run_study(measured)
        self.assertEqual(ran, ["base", "series"])
        self.assertIn("2 of 2 cells to measure", text)
        text = self.run_study(measured)
        self.assertEqual(ran, ["base", "series"])
        self.assertIn("0 of 2 cells to measure", text)
        # Another kernel: the file is there and says so.
        self.finish(key="key of another kernel")
        self.run_study(measured)
        self.assertEqual(ran, ["base", "series", "base"])

    def test_published_cells_are_taken_when_they_are_of_the_same(self):
        name = self.cell.name
        cell = json.dumps({"cell": name, "key": "k",
                           "result": {"cases": [{}]}})
        write(self.temp / "published", {f"{name}.json": cell})
        path = self.temp / f"{name}.json"
        with mock.patch.object(study, "PUBLISHED", self.temp / "published"), \
                redirect_stdout(io.StringIO()) as out:
            study.adopt({name: "of another kernel"})
            self.assertFalse(path.exists())
            study.adopt({name: "k", "not measured": "k"})
            self.assertEqual(path.read_text(), cell)
            # What was measured here stays.
            self.finish(seconds=1)
            study.adopt({name: "k"})
        self.assertEqual(json.loads(path.read_text())["seconds"], 1)
        self.assertEqual([int(word) for word in out.getvalue().split()
                          if word.isdigit()], [0, 1, 0])

    def test_an_interruption_keeps_what_is_finished(self):
        def measured(cell, tree, program, loader, kvm):
            if cell.column == "series":
                raise KeyboardInterrupt
            return {"cases": [{"name": "none", "status": "ok"}]}

        with self.assertRaises(KeyboardInterrupt):
            self.run_study(measured)
        self.assertEqual([path.name for path in self.temp.glob("*.json")],
                         ["ioperm_latency.base.1.json"])

    def test_a_failure_does_not_stop_the_others(self):
        def measured(cell, tree, program, loader, kvm):
            if cell.column == "base":
                raise Fail("a panic")
            return {"cases": [{"name": "none", "status": "ok"}]}

        with self.assertRaises(Fail) as caught:
            self.run_study(measured)
        self.assertIn("ioperm_latency.base.1", str(caught.exception))
        self.assertEqual([path.name for path in self.temp.glob("*.json")],
                         ["ioperm_latency.series.1.json"])

    def test_several_at_a_time(self):
        def measured(cell, tree, program, loader, kvm):
            # Each waits for the other.
            mine, other = (self.temp / name for name in
                           sorted(("base", "series"),
                                  key=lambda name: name != cell.column))
            mine.touch()
            for _ in range(500):
                if other.exists():
                    break
                time.sleep(0.02)
            else:
                raise Fail("it is alone")
            return {"cases": [{"name": "none", "status": "ok"}]}

        text = self.run_study(measured, jobs=2)
        self.assertIn("2 at a time", text)
        self.assertEqual(len(list(self.temp.glob("*.json"))), 2)

    def test_a_failure_among_several(self):
        def measured(cell, tree, program, loader, kvm):
            if cell.column == "base":
                raise Fail("a panic")
            return {"cases": [{"name": "none", "status": "ok"}]}

        with self.assertRaises(Fail) as caught:
            self.run_study(measured, jobs=2)
        self.assertIn("1 cells failed", str(caught.exception))
        self.assertIn("ioperm_latency.base.1", str(caught.exception))
        self.assertEqual([path.name for path in self.temp.glob("*.json")],
                         ["ioperm_latency.series.1.json"])

    def test_a_kernel_that_does_not_build_is_tried_once(self):
        tried = []

        def build(name):
            tried.append(name)
            raise Fail("no space")

        cells = study.chosen(study.plan(2), ["ioperm_latency.base"])
        with mock.patch.multiple(
                study, prepare=lambda columns: None, build_kernel=build,
                missing_programs=lambda cells: {}, cell_key=lambda *_: "",
                choose_kvm=lambda tree: False), \
                redirect_stdout(io.StringIO()) as out, \
                mock.patch.dict("os.environ", ACCEL="tcg"), \
                self.assertRaises(Fail):
            study.run(cells)
        self.assertEqual((len(cells), tried), (2, ["base"]))
        self.assertIn("no space", out.getvalue())

    def test_list_measures_nothing(self):
        done = self.run_script("study.py", "--list", "--only", "hackbench")
        self.assertDone(done, "hackbench.base.1", "24 cells, 0 done")
        self.assertRefused(self.run_script("study.py", "--only", "x"),
                           "no cell has this name")
        self.assertRefused(self.run_script("study.py", "--repeat", "0"),
                           "--repeat")


class Crew(Case):
    """Crew: several pieces of work at once, and how they end."""

    def do(self, jobs, *works):
        with redirect_stdout(io.StringIO()) as self.out, \
                study.Crew(jobs) as crew:
            for number, work in enumerate(works):
                crew.do(f"title {number}", f"name {number}", work)
            crew.finish()
        return crew

    def test_each_says_what_went_wrong(self):
        def good():
            pass

        def bad():
            raise Fail("planted")

        for jobs in (1, 2, 5):
            crew = self.do(jobs, bad, good, bad)
            self.assertEqual(sorted(crew.failed), ["name 0", "name 2"])
            self.assertEqual(self.out.getvalue().count("FAILED: planted"), 2)

    def test_one_that_dies(self):
        crew = self.do(2, lambda: os._exit(3), lambda: None)
        self.assertEqual(crew.failed, ["name 0"])
        self.assertIn("name 0 ended without a word", self.out.getvalue())

    def test_its_time_ends_with_it(self):
        with redirect_stdout(io.StringIO()) as out, \
                study.Crew(2) as crew:
            crew.do("one", "one", lambda: None)
            # Meanwhile a kernel is built.
            time.sleep(1.6)
            crew.finish()
        self.assertIn("one: 0 s\n", out.getvalue())

    def test_no_more_than_there_is_room_for(self):
        room = self.temp / "room"
        room.mkdir()

        def work():
            place = room / str(os.getpid())
            place.touch()
            if len(list(room.iterdir())) > 2:
                raise Fail("too many")
            time.sleep(0.1)
            place.unlink()

        self.assertEqual(self.do(2, *[work] * 6).failed, [])

    def test_an_interruption_ends_those_that_run(self):
        def work():
            (self.temp / "pid").write_text(str(os.getpid()))
            time.sleep(20)

        def interrupted():
            while not (self.temp / "pid").exists():
                time.sleep(0.02)
            raise KeyboardInterrupt

        start = time.monotonic()
        with self.assertRaises(KeyboardInterrupt), \
                redirect_stdout(io.StringIO()), study.Crew(2) as crew:
            crew.do("one", "one", work)
            interrupted()
        self.assertLess(time.monotonic() - start, 15)
        # Gone, not only told to go.
        with self.assertRaises(ProcessLookupError):
            os.kill(int((self.temp / "pid").read_text()), 0)


class RunCell(Case):
    """run_cell(): what comes out of a guest."""

    def run_cell(self, status, shown):
        """Run a cell whose program ended so; shown: its JSON (str) or None."""
        run = SimpleNamespace(output="the last line\n", status=status)
        files = [] if shown is None else \
            [("report", SimpleNamespace(output=shown))]
        cell = study.chosen(study.plan(1), ["pi_ping.threads.base"])[0]
        with mock.patch.multiple(
                study, BUILD=self.temp, LOGS=self.temp,
                closure=lambda names: [], image_path=lambda tree: tree,
                boot_tiny=lambda *words, **more: [("script", run), *files]):
            return study.run_cell(cell, self.temp, self.temp / "pi_ping",
                                  None, False)

    def test_a_result(self):
        for status in (0, 4):
            self.assertEqual(self.run_cell(status, '{"cases": []}'),
                             {"cases": []})

    def test_none(self):
        for status, shown in ((0, None), (0, ""), (0, "{"),
                              (1, '{"cases": []}'), (None, None)):
            with self.assertRaises(Fail) as caught:
                self.run_cell(status, shown)
            self.assertIn("the last line", str(caught.exception))


class Scripts(unittest.TestCase):
    """cell_script(): what the guest of a cell runs."""

    def script(self, name, number=1):
        cell, = (cell for cell in study.plan(number)
                 if cell.name == f"{name}.{number}")
        return study.cell_script(cell, "tcg")

    def test_the_benchmark_with_its_arguments(self):
        text, cases = self.script("pi_ping.batch.series")
        self.assertIsNone(cases)
        self.assertTrue(text.endswith(
            f"\n/bin/pi_ping --json {study.REPORT} --layout processes "
            "--policy batch\n"), text)

    def test_runs_begin_at_other_times(self):
        one, two = (self.script("yield_latency.base", number)[0]
                    for number in (1, 2))
        self.assertNotEqual(one, two)
        self.assertEqual(one, self.script("yield_latency.base", 1)[0])
        self.assertEqual(one.replace("both", ""),
                         self.script("yield_latency.base_server", 1)[0])

    def test_under_a_scheduler(self):
        text, _ = self.script("pi_ping.processes.ext_simple")
        self.assertIn("/bin/scx_simple >", text)
        text, cases = self.script("hackbench.ext_qmap")
        self.assertIn("/bin/scx_qmap >", text)
        self.assertEqual(len(cases), 24)

    def test_it_runs(self):
        # As the guest does, but for the setting of the network.
        text = self.script("ioperm_latency.base")[0].replace(
            "ip link", "true").replace("export PATH=/bin\n", "").replace(
            "/bin/ioperm_latency_64", "echo")
        run = subprocess.run(["sh", "-ec", text], capture_output=True,
                             text=True, timeout=60)
        self.assertEqual((run.stdout, run.stderr),
                         (f"--json {study.REPORT}\n", ""))


class Hackbench(unittest.TestCase):
    """What hackbench and perf print."""

    def test_both_forms_and_a_failure(self):
        cases = [{"name": name, "loops": 50} for name in "abcd"]
        found = study.hackbench_result(
            "case: a\nRunning in process mode with 2 groups\nTime: 0.125\n"
            "case: b\n1.5\ncase: c\nfork() (error: no memory)\n",
            cases)["cases"]
        self.assertEqual([case.get("seconds") for case in found],
                         [0.125, 1.5, None, None])
        self.assertEqual(found[0]["ms_per_loop"], 2.5)
        self.assertEqual([case["status"] for case in found],
                         ["ok", "ok", "fail", "fail"])
        self.assertIn("no memory", found[2]["reason"])
        self.assertEqual(found[3]["reason"], "it did not run")

    def test_script_has_every_case_in_either_form(self):
        for tool in ("hackbench", "perf"):
            with mock.patch("shutil.which",
                            lambda name: name if name == tool else None):
                script, cases = study.hackbench_script("tcg")
            self.assertEqual(len(cases), 4 * len(study.GROUPS))
            self.assertEqual(script.count("case: "), len(cases))
            self.assertEqual(subprocess.run(["sh", "-n"], input=script,
                                            text=True).returncode, 0)
            self.assertNotIn("{", script)


class SchedExt(Case):
    """The columns with a scheduler of tools/sched_ext."""

    def guest(self, command, states, ends=0):
        """Run under()'s script with a state that changes; returns its end."""
        state = self.temp / "state"
        grep = self.temp / "grep"
        write(self.temp, {"states": "\n".join(states) + "\n", "grep": """\
#!/bin/sh
# The next state, the last one for ever.
read -r now <"$0.d"
[ "$(wc -l <"$0.d")" = 1 ] || sed -i 1d "$0.d"
[ "$now" = enabled ]
""", "grep.d": "\n".join(states) + "\n"})
        grep.chmod(0o755)
        loader = self.temp / "loader"
        write(self.temp, {"loader": "#!/bin/sh\necho said so\n"
                          f"[ {ends} = 0 ] || exit {ends}\nexec sleep 60\n"})
        loader.chmod(0o755)
        script = schedext.under(loader, command).replace(
            schedext.STATE, str(state)).replace("sleep 1", "sleep 0.01") \
            .replace("/tmp/scheduler", str(self.temp / "said")) \
            .replace("kill -INT", "kill -TERM")
        return subprocess.run(
            ["sh", "-c", f"PATH={self.temp}:$PATH; {script}"], text=True,
            capture_output=True, timeout=30)

    def test_the_status_is_the_programs(self):
        for status in (0, 4):
            done = self.guest(f"(exit {status})", ["disabled", "enabled"])
            self.assertEqual(done.returncode, status, done.stdout)

    def test_a_scheduler_that_does_not_load(self):
        with mock.patch.object(schedext, "START_SECONDS", 3):
            done = self.guest("echo ran", ["disabled"], 1)
        self.assertEqual(done.returncode, 1)
        self.assertIn("does not load", done.stdout)
        self.assertIn("said so", done.stdout)
        self.assertNotIn("ran", done.stdout)

    def test_a_scheduler_that_was_thrown_out(self):
        done = self.guest("true", ["enabled", "disabled"])
        self.assertEqual(done.returncode, 1)
        self.assertIn("thrown out", done.stdout)

    def test_no_column_without_its_tools(self):
        cells = study.chosen(study.plan(1), ["hackbench"])
        with mock.patch.object(schedext.shutil, "which", lambda tool: None), \
                mock.patch.object(study, "hackbench_command", lambda: "h"):
            missing = study.missing_programs(cells)
        self.assertEqual(set(missing), set(schedext.SCHEDULERS))
        self.assertIn("dwarves", missing["ext_simple"])

    def test_one_kernel_for_all_schedulers(self):
        self.assertEqual({study.kernel_of(column)
                          for column in schedext.SCHEDULERS},
                         {schedext.KERNEL})
        self.assertEqual(study.kernel_of("series"), "series")


class Fragments(unittest.TestCase):
    """configs/study-*.config over guest.config."""

    def test_the_last_word_counts(self):
        self.assertEqual(
            last_said("CONFIG_A=y\n# why\nCONFIG_B=y\nCONFIG_AB=y\n"
                      "CONFIG_A=n\n# CONFIG_B is not set\n"),
            "CONFIG_AB=y\nCONFIG_A=n\n# CONFIG_B is not set\n")

    def test_both_are_over_guest_config(self):
        for column, hz in (("series_server", "CONFIG_HZ_100=y"),
                           ("series_softrt", "CONFIG_HZ_1000=y")):
            wanted = last_said("".join(path.read_text() for path
                                       in KERNELS[column][1]))
            self.assertIn(hz, wanted)
            self.assertIn("CONFIG_PREEMPT_DYNAMIC=n", wanted)
            # A .config that has just these settings is what is wanted.
            config = "".join(row for row in wanted.splitlines(True)
                             if not row.endswith("=n\n"))
            self.assertEqual(missing_settings(config, wanted), [])


def document(value, repeat=1):
    """Return what measure.py writes (text); one figure per run."""
    return json.dumps({
        "benchmark": "measure", "date": "2026-01-01T00:00", "repeat": repeat,
        "interrupted": False, "machine": {"kernel": "7.3", "cpu": "a CPU"},
        "results": {"yield_latency": [{"cases": [
            {"name": "switch-proc-2", "features": "as-is", "status": "ok",
             "ns_per_call": value + run}]} for run in range(repeat)]}})


class Measure(Case):
    """measure.py: what it refuses, and two results side by side."""

    def test_what_the_machine_lacks(self):
        for words, text in ((("--cpu", 9999), "--cpu 9999"),
                            (("--mem-mb", 10 ** 9), "available"),
                            (("--max-load", 10 ** 9), "--max-load"),
                            (("--io-mb", 10 ** 9), "--io-mb"),
                            (("--repeat", 0), "--repeat")):
            self.assertRefused(self.run_script("measure.py", *words), text)
        # Nothing was begun.
        self.assertFalse(self.build.exists())

    def test_too_many_tasks(self):
        options = SimpleNamespace(cpu=None, repeat=1, mem_mb=None, io_mb=None,
                                  max_load=500)
        with mock.patch.object(measure, "task_limit", lambda: 400), \
                self.assertRaisesRegex(Fail, "no more than 400 tasks"):
            measure.refuse(options)

    def test_compare(self):
        write(self.temp, {"a": document(1000, 3), "b": document(1500, 3),
                          "c": document(1001), "d": "{}"})
        done = self.run_script("measure.py", "--compare", self.temp / "a",
                               self.temp / "b")
        self.assertDone(done, "1001", "1501", "1.500", "worse")
        done = self.run_script("measure.py", "--compare", self.temp / "a",
                               self.temp / "c")
        self.assertDone(done, "1.000", "--repeat 3")
        self.assertNotIn("worse", done.out)
        self.assertRefused(self.run_script(
            "measure.py", "--compare", self.temp / "a", self.temp / "d"),
            "is not a result")

    def test_arguments_of_the_programs(self):
        options = SimpleNamespace(cpu=1, max_load=8, all=False, mem_mb=64,
                                  io_mb=None, dir=None, seconds=0.5)
        self.assertEqual(measure.command("pi_ping", "p", options, 1),
                         ["p", "--cpu", "1", "--max-load", "8", "--seconds",
                          "0.5"])
        self.assertEqual(
            measure.command("interactive_latency", "p", options, 2),
            ["p", "--cpu", "1", "--layout=processes", "--seed", "2",
             "--mem-mb", "64", "--seconds", "0.5"])
        self.assertEqual(measure.command("ioperm_latency", "p", options, 1),
                         ["p", "--cpu", "1"])

    def test_an_interruption_writes_what_is_measured(self):
        def program(name, words):
            if name == "yield_latency":
                raise KeyboardInterrupt
            return {"cases": [{"name": "none", "status": "ok"}]}

        (self.temp / "logs").mkdir()
        options = SimpleNamespace(only=["ioperm_latency", "yield_latency"],
                                  repeat=1, cpu=None, seconds=None,
                                  output=self.temp / "out.json")
        for name in options.only:
            write(self.temp, {programs.source(name): ""})
        with mock.patch.multiple(measure, unpack=lambda: self.temp,
                                 run_program=program), \
                mock.patch.object(programs, "build", lambda *_: Path("x")), \
                redirect_stdout(io.StringIO()), \
                self.assertRaises(KeyboardInterrupt):
            measure.run(options)
        found = json.loads((self.temp / "out.json").read_text())
        self.assertTrue(found["interrupted"])
        self.assertEqual(list(found["results"]), ["ioperm_latency"])


if __name__ == "__main__":
    unittest.main()
