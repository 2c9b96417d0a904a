# SPDX-License-Identifier: GPL-2.0-only
"""Planting bugs: what is read from a mutant, what counts as caught.

No kernel is built and none boots here: a kernel is a copy of one source
file, and the guest says that a case fails when it finds a bug's name in it.
"""

import difflib
import json
import subprocess
import threading
from pathlib import Path

import pytest
from conftest import FILES, IOPORT

from tools import build, mutants
from tools.core import Fail
from tools.guest import Lost, Result

TEXT = FILES[IOPORT]


def diff(line: int, bug: str, name: str = IOPORT) -> str:
    """Return a diff that puts a bug into a line of IOPORT."""
    new = TEXT.replace(f"/* ioport {line} */", f"{bug};")
    return f"diff --git a/{name} b/{name}\n" + "".join(difflib.unified_diff(
        TEXT.splitlines(True), new.splitlines(True), f"a/{name}",
        f"b/{name}"))


def patch(bug: str, *headers: str, line: int = 20) -> str:
    return "What the\nbug is.\n\n" + "".join(f"{row}\n" for row in headers) \
        + "---\n" + diff(line, bug)


CAUGHT = "Caught-by: window: one"


def put(place: Path, name: str, text: str) -> Path:
    """Write the mutant PROGRAM/NN-BUG."""
    path = place / f"{name}.patch"
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(text)
    return path


def read(place: Path, text: str, name: str = "window/01-bug") -> mutants.Job:
    return mutants.read_mutant(put(place, name, text))


# --- reading ---------------------------------------------------------------

def test_all_that_a_patch_says(tmp_path: Path) -> None:
    job = read(tmp_path, patch(
        "bug", CAUGHT, "Caught-by: window: t*: 2", "Caught-by: splat",
        "Kernel: faults", "Cpus: 4", "Append: a=1 b"))
    assert job.name == "01-window-bug"
    assert job.about == "What the bug is."
    assert job.wanted == ("one", "t*: 2", "splat")
    assert job.setup == mutants.Setup("window", "faults", 4, "a=1 b")
    assert job.setup.options() == {"cpus": 4, "icount": "", "timeout": 400,
                                   "append": ("a=1", "b")}
    assert job.diff == diff(20, "bug")


@pytest.mark.parametrize("text, words", [
    (patch("bug", "Caught-by: other: one"), "wrong: Caught-by: other"),
    (patch("bug", CAUGHT, "Kernal: faults"), "wrong: Kernal"),
    (patch("bug", CAUGHT, "Cpus: two"), "wrong: Cpus: two"),
    (patch("bug", CAUGHT, "Cpus: 1", "Cpus: 2"), "two headers"),
    (patch("bug", "Cpus: 1"), "has no Caught-by"),
    (f"{CAUGHT}\n---\n{diff(1, 'bug')}", "does not say what"),
    (f"A.\n\n{CAUGHT}\n{diff(1, 'bug')}", "no line ---"),
    (f"A.\n\n{CAUGHT}\n---\n", "has no diff"),
    (patch("bug", CAUGHT).replace("\n@@", "\nnew file mode 100644\n@@", 1),
     "adds, removes or renames"),
    *((f"A.\n\n{CAUGHT}\n---\n{diff(1, 'bug', name)}", "not the kernel")
      for name in ("tools/testing/selftests/x86/window.c",
                   "Documentation/index.rst",
                   "arch/x86/kernel/io_bitmap_test.c"))])
def test_what_is_wrong_with_a_patch(tmp_path: Path, text: str,
                                    words: str) -> None:
    with pytest.raises(Fail, match=words):
        read(tmp_path, text)


@pytest.mark.parametrize("name", ["window/1-bug", "window/01", "w.o/01-bug"])
def test_a_name_that_is_none(tmp_path: Path, name: str) -> None:
    with pytest.raises(Fail, match="PROGRAM/NN-BUG"):
        read(tmp_path, patch("bug", CAUGHT), name)


def test_guests_of_other_kinds(tmp_path: Path, monkeypatch) -> None:
    (tmp_path / "selftests/sched").mkdir(parents=True)
    (tmp_path / "selftests/sched/yielder.c").touch()
    monkeypatch.setattr(mutants, "ROOT", tmp_path)
    race, suite, sched, more = (mutants.Setup(*words) for words in (
        ["ioperm_drop_race"], ["x86_io_bitmap"], ["yielder"],
        ["yielder", "kvm", 4]))
    # Time is counted in instructions where it matters, and one CPU does it.
    assert [(one.options()["cpus"], one.options()["icount"])
            for one in (race, suite, sched, more)] == [
        (1, "skip-idle"), (2, ""), (1, "wait-idle"), (4, "")]
    assert [one.target() for one in (race, suite, sched)] == [
        "x86/ioperm_drop_race_64", "", "sched/yielder"]


def test_an_older_kernel_has_its_own(tmp_path: Path, monkeypatch) -> None:
    (tmp_path / "selftests/sched").mkdir(parents=True)
    (tmp_path / "selftests/sched/yielder.c").touch()
    for name, bug in (("window/01-bug", "one"), ("yielder/02-bug", "two"),
                      ("yielder/03-bug", "three"), ("6.12/yielder/02-bug",
                                                    "old")):
        put(tmp_path, name, patch(
            bug, CAUGHT.replace("window", name.split("/")[-2])))
    monkeypatch.setattr(mutants, "ROOT", tmp_path)
    monkeypatch.setattr(mutants, "MUTANTS", tmp_path)
    for kernel, wanted in (("", "one two three"), ("6.12", "one old"),
                           ("6.1", "one")):
        monkeypatch.setattr(mutants, "KERNEL", kernel)
        assert [job.diff for job in mutants.read_mutants([])] == [
            diff(20, bug) for bug in wanted.split()]


def test_what_the_repository_has() -> None:
    found = mutants.read_mutants([])
    assert len(found) > 100
    assert not [job.name for job in found if "*" in job.wanted]
    assert [job.name for job in mutants.read_mutants(["00", "two-ti?ks"])
            ] == ["00-ioperm_drop_race-no-preempt-off",
                  "102-yield_test-two-ticks"]
    with pytest.raises(Fail, match="'none' names none of the 1"):
        mutants.read_mutants(["none"])


# --- judging ---------------------------------------------------------------

CONTROL = {"one": "pass", "two": "pass", "three": "skip", "panic": "pass",
           "hang": "pass", "splat": "pass"}


@pytest.mark.parametrize("wanted, run, verdict, how", [
    ("one", {"one": "fail"}, "killed", "one"),
    ("o*,two", {"one": "fail", "two": "fail"}, "killed", "one; two"),
    ("one,two", {"one": "fail"}, "survived", "not by two, but: one"),
    ("one", {}, "survived", "not by one, nor by anything else"),
    ("one", {"two": "fail"}, "survived", "not by one, but: two"),
    ("one", {"one": "skip"}, "survived", "not by one, nor by anything else"),
    ("two", {"three": "fail"}, "survived", "not by two, nor by anything else"),
    ("panic", {"panic": "fail"}, "killed", "panic"),
    ("hang", {"panic": "fail"}, "survived", "not by hang, but: panic"),
    ("one", Fail("does not build: no\nmore"), "error",
     "does not build: no")])
def test_verdicts(tmp_path: Path, wanted: str, run: mutants.Run,
                  verdict: str, how: str) -> None:
    job = read(tmp_path, patch("bug", *(
        f"Caught-by: {one if one in mutants.EVENTS else f'window: {one}'}"
        for one in wanted.split(","))))
    if isinstance(run, dict):
        run = CONTROL | run
    assert mutants.judge(job, run, CONTROL) == (verdict, how)
    # A guest that died has proven nothing about the cases.
    died = {"panic": "fail", "hang": "pass", "splat": "pass"}
    assert mutants.judge(job, died, CONTROL)[0] == (
        "killed" if wanted == "panic" else "survived")


def test_without_a_good_control_nothing_can_be_said(tmp_path: Path) -> None:
    job = read(tmp_path, patch("bug", CAUGHT, "Caught-by: splat"))
    run = CONTROL | {"one": "fail", "splat": "fail"}
    assert mutants.judge(job, run, CONTROL)[0] == "killed"
    for bad in ({"two": "fail"}, {"one": "skip"}, {"splat": "fail"}):
        assert mutants.judge(job, run, CONTROL | bad)[0] == "error"
    assert mutants.judge(job, run, {})[0] == "error"


# --- the whole -------------------------------------------------------------

class Fake:
    """Takes the place of builds and guests; notes what was done.  A kernel
    is its source, and a case fails where that has 'bug CASE'."""

    def __init__(self, place: Path) -> None:
        self.place, self.tree = place, place / "tree"
        (self.tree / IOPORT).parent.mkdir(parents=True)
        subprocess.run(["git", "init", "-q"], cwd=self.tree, check=True)
        self.done: list[str] = []
        self.ahead: threading.Event | None = None
        self.stops = "nothing"

    def source(self, commit: str) -> Path:
        assert commit == "applied"
        (self.tree / IOPORT).write_text(TEXT)
        return self.tree

    def make(self, name: str, target: str, tree: Path, log: Path) -> None:
        self.done.append(f"build {log.name.split('.')[0]}")
        if tree == self.place:
            raise Fail("make failed")
        text = (tree / IOPORT).read_text()
        if "does not compile" in text:
            raise Fail("make failed:\n    | ioport.c:3: error: no\n    | x")
        self.kernel(build.objects(name), text)
        if self.ahead and "mutant-02" in log.name:
            self.ahead.set()

    def kernel(self, folder: Path, text: str = "the base") -> Path:
        for name in (".config", "arch/x86/boot/bzImage"):
            (folder / name).parent.mkdir(parents=True, exist_ok=True)
            (folder / name).write_text(text)
        return folder

    def boot(self, image: Path, command: str, name: str,
             **options: object) -> Result:
        self.done.append(f"boot {name}")
        text = (image / "arch/x86/boot/bzImage").read_text()
        console = self.place / "console"
        console.write_text("WARNING: here" if "warns" in text else "")
        if self.ahead and "mutant-01" in name:
            assert self.ahead.wait(60), "the next kernel was not built"
        if self.stops in text:
            raise KeyboardInterrupt
        first = self.done.count(f"boot {name}") == 1
        if "panics" in text or "flaky" in text and first:
            up = "" if "flaky" in text else mutants.UP
            raise Lost("it died", False, up, console)
        # The base has a bug of its own.
        text = text.replace("the base", "bug base")
        rows = [f"{'not ' * (f'bug {one}' in text)}ok {number} {one}"
                for number, one in enumerate(
                    ("one", "two", "three", "base"), 1)]
        return Result(0, "\n".join([mutants.UP, "1..4", *rows]), console)


@pytest.fixture
def fake(tmp_path: Path, replace) -> Fake:
    found = Fake(tmp_path)
    replace(mutants, source=found.source, make=found.make, boot=found.boot,
            MUTANTS=tmp_path / "mutants", IMAGES=tmp_path / "images",
            REPORT=tmp_path / "mutants.json", LOGS=tmp_path,
            LISTED=tmp_path / "mutants.md", begin=lambda: "tip",
            kernel_key=lambda *words: "-".join(words),
            tests_key=lambda folder: folder,
            build_program=lambda target: Path("/program"),
            choose_kvm=lambda image: False,
            build_kernel=lambda name: found.kernel(tmp_path / "base"))
    replace(build, OBJECTS=tmp_path / "obj")
    (tmp_path / "mutants").mkdir()
    plant(found, {"01-window-one": patch("bug one", CAUGHT)})
    return found


def plant(fake: Fake, files: dict[str, str]) -> None:
    for path in mutants.MUTANTS.glob("*/*"):
        path.unlink()
    for name, text in files.items():
        number, program, bug = name.split("-")
        put(mutants.MUTANTS, f"{program}/{number}-{bug}", text)
    fake.done.clear()


def run(capsys, *patterns: str) -> tuple[int, str]:
    status = mutants.run_all(mutants.read_mutants(list(patterns)),
                             not patterns)
    return status, capsys.readouterr().out


TWO = {"01-window-one": patch("bug one", CAUGHT, line=15),
       "02-window-two": patch("bug two", "Caught-by: window: two", line=25)}


def test_each_mutant_is_caught_by_its_test(fake: Fake, capsys) -> None:
    plant(fake, TWO)
    status, out = run(capsys)
    assert status == 0, out
    assert "of 4 test cases, 1 caught none of these" in out
    assert "2 killed, 0 survived, 0 could not be tested" in out
    report = json.loads(mutants.REPORT.read_text())
    # Of a mutant's run what fails is kept.
    assert {"one": "fail"} in report["runs"].values()
    # A bug that was planted before is gone.
    assert report["kills"] == {
        "window: base": ["base-1-window"], "window: one": ["01-window-one"],
        "window: two": ["02-window-two"]}
    for row in ("two | 02", "base | base", "three | none"):
        assert f"| window: {row} |\n" in mutants.LISTED.read_text()


def test_a_kernel_is_built_while_a_guest_runs(fake: Fake, capsys) -> None:
    plant(fake, TWO)
    fake.ahead = threading.Event()
    assert run(capsys, "0")[0] == 0
    assert fake.done[-1] == "boot mutant-02-window-two"


def test_only_what_changed_is_done_again(fake: Fake, capsys) -> None:
    run(capsys)
    assert len([one for one in fake.done if "boot" in one]) == 3
    fake.done.clear()
    assert run(capsys)[0] == 0
    assert fake.done == []
    # The header decides what counts, not what is built and run.
    plant(fake, {"01-window-one": patch("bug one", "Caught-by: window: two")})
    status, out = run(capsys)
    assert (status, fake.done) == (1, [])
    assert "survived: 01-window-one: not by two, but: one" in out
    # Another bug is another kernel, and the old one's is not kept.
    plant(fake, {"01-window-one": patch("bug two", "Caught-by: window: two")})
    assert run(capsys)[0] == 0
    assert fake.done == ["build mutant-01-window-one",
                         "boot mutant-01-window-one"]
    assert len(list(mutants.IMAGES.iterdir())) == 2
    assert len(json.loads(mutants.REPORT.read_text())["runs"]) == 3
    # And so is another guest.
    assert len({mutants.Job("name", mutants.Setup("window", *words)).key()
                for words in ((), ("faults",), ("mutants", 4),
                              ("mutants", 0, "a=1"))}) == 4


def test_what_does_not_apply_or_build_is_told(fake: Fake, capsys,
                                              monkeypatch) -> None:
    plant(fake, {
        "01-window-old": patch("bug", CAUGHT).replace("ioport 19", "19"),
        "02-window-broken": patch("does not compile", CAUGHT),
        "03-window-one": patch("bug one", CAUGHT)})
    status, out = run(capsys, "0")
    assert status == 1
    assert f"does not apply: error: patch failed: {IOPORT}:17" in out
    assert "does not build: ioport.c:3: error: no" in out
    assert "1 killed, 0 survived, 2 could not be tested" in out
    # Nothing can be said without a kernel that has no bug.
    monkeypatch.setattr(mutants, "IMAGES", fake.place / "others")
    monkeypatch.setattr(mutants, "REPORT", fake.place / "other.json")
    monkeypatch.setattr(mutants, "source", lambda *_: fake.place)
    with pytest.raises(Fail, match="does not"):
        run(capsys, "03")


def test_guests_that_die_warn_or_do_not_come_up(fake: Fake, capsys) -> None:
    plant(fake, {
        "01-window-panic": patch("panics", "Caught-by: panic"),
        "02-window-silent": patch("panics", CAUGHT),
        "03-window-warns": patch("warns", "Caught-by: splat"),
        "04-window-flaky": patch("flaky bug one", CAUGHT),
        "05-window-one": patch("bug one", CAUGHT)})
    status, out = run(capsys, "0")
    assert (status, "4 killed, 1 survived, 0 could" in out) == (1, True), out
    assert "survived: 02-window-silent: not by one, but: panic" in out
    assert fake.done.count("boot mutant-04-window-flaky") == 2


def test_the_kunit_suite_is_a_test_too(tmp_path: Path, fake: Fake,
                                       monkeypatch) -> None:
    output = (f"{mutants.UP}\n1..1\n    1..1\n    not ok 1 one_test\n"
              "not ok 1 x86_io_bitmap\n")
    (tmp_path / "console").touch()
    monkeypatch.setattr(mutants, "boot", lambda *_, **__: Result(
        0, output, tmp_path / "console"))
    job = mutants.Job("name", mutants.Setup("x86_io_bitmap"))
    assert mutants.test(job, (tmp_path, "")) == dict.fromkeys(
        mutants.EVENTS, "pass") | {"one_test": "fail"}


def test_an_interrupted_run_goes_on(fake: Fake, capsys) -> None:
    plant(fake, TWO)
    fake.stops = "bug two"
    with pytest.raises(KeyboardInterrupt):
        run(capsys)
    fake.stops = "nothing"
    fake.done.clear()
    assert run(capsys)[0] == 0
    assert fake.done == ["boot mutant-02-window-two"]


@pytest.mark.parametrize("names, words", [
    (["01-window-a", "01-window-b"], "two mutants have the number 01"),
    ([], "there is no mutant")])
def test_two_of_one_number_and_none(fake: Fake, names: list[str],
                                    words: str) -> None:
    plant(fake, {name: patch("a", CAUGHT) for name in names})
    with pytest.raises(Fail, match=words):
        mutants.read_mutants([])
