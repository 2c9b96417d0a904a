# SPDX-License-Identifier: GPL-2.0-only
"""Planting bugs: what is read from a mutant, what counts as caught."""

import difflib
import json
from pathlib import Path

import pytest
from conftest import FILES, IOPORT, git, write

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
    write(place, {f"{name}.patch": text})
    return place / f"{name}.patch"


def read(place: Path, text: str, name: str = "window/01-bug") -> mutants.Job:
    return mutants.read_mutant(put(place, name, text))


def test_all_that_a_patch_says(tmp_path: Path) -> None:
    job = read(tmp_path, patch(
        "bug", CAUGHT, "Caught-by: window: t*: 2", "Caught-by: splat",
        "Kernel: faults", "Cpus: 4", "Append: a=1 b", "Arguments: -t c"))
    assert job.name == "01-window-bug"
    assert job.about == "What the bug is."
    assert job.wanted == ("one", "t*: 2", "splat")
    assert job.setup == mutants.Setup("window", "faults", 4, "a=1 b", "-t c")
    assert job.diff == diff(20, "bug")


@pytest.mark.parametrize("text, words", [
    (patch("bug", "Caught-by: other: one"), "wrong: Caught-by: other"),
    (patch("bug", CAUGHT, "Kernal: faults"), "wrong: Kernal"),
    (patch("bug", CAUGHT, "Cpus: two"), "wrong: Cpus: two"),
    (patch("bug", "Cpus: 1"), "has no Caught-by"),
    (f"{CAUGHT}\n---\n{diff(1, 'bug')}", "is not what the bug is"),
    (f"A.\n\n{CAUGHT}\n---\n", "is not what the bug is"),
    (patch("bug", CAUGHT).replace("\n@@", "\nnew file mode 100644\n@@", 1),
     "it adds one"),
    *((f"A.\n\n{CAUGHT}\n---\n{diff(1, 'bug', name)}", f"kernel: {name}")
      for name in ("tools/testing/selftests/x86/window.c",
                   "arch/x86/kernel/io_bitmap_test.c"))])
def test_a_patch_that_is_wrong(tmp_path: Path, text: str, words: str) -> None:
    with pytest.raises(Fail, match=words):
        read(tmp_path, text)
    with pytest.raises(Fail, match="is not called NN-BUG"):
        read(tmp_path, patch("bug", CAUGHT), "window/1-bug")


def test_what_the_repository_has(replace) -> None:
    found = mutants.read_mutants("")
    assert len(found) > 100
    assert not [job.name for job in found if "*" in job.wanted]
    assert [job.name for pattern in ("00", "two-ti?ks")
            for job in mutants.read_mutants(pattern)] == [
        "00-ioperm_drop_race-no-preempt-off", "102-yield_test-two-ticks"]
    with pytest.raises(Fail, match="ONLY=none names none of the 1"):
        mutants.read_mutants("none")
    # An older kernel has its own, where these do not apply.
    replace(mutants, KERNEL="6.12")
    older = {job.name: job.diff for job in mutants.read_mutants("")}
    assert 100 < len(older) < len(found)
    assert {path.stem.replace("-", f"-{path.parent.name}-", 1) for path in
            mutants.MUTANTS.glob("6.12/*/*")} == {
        job.name for job in found if older.get(job.name, job.diff) != job.diff}


CONTROL = {"one": "pass", "two": "pass", "three": "skip", "panic": "pass",
           "hang": "pass", "splat": "pass"}


@pytest.mark.parametrize("wanted, run, verdict, how", [
    ("o*,two", {"one": "fail", "two": "fail"}, "killed", "one; two"),
    ("one,two", {"one": "fail"}, "survived", "not by two, but: one"),
    ("one", {"one": "skip"}, "survived", "not by one, nor by anything else"),
    ("two", {"three": "fail"}, "survived", "not by two, nor by anything else"),
    ("hang", {"panic": "fail"}, "survived", "not by hang, but: panic")])
def test_verdicts(tmp_path: Path, wanted: str, run: dict[str, str],
                  verdict: str, how: str) -> None:
    job = read(tmp_path, patch("bug", *(
        f"Caught-by: {one if one in mutants.EVENTS else f'window: {one}'}"
        for one in wanted.split(","))))
    run = CONTROL | run
    assert mutants.judge(job, run, CONTROL) == (verdict, how)
    # Nothing can be said without a good control.
    for bad in ({"two": "fail"}, {"splat": "fail"}):
        assert mutants.judge(job, run, CONTROL | bad)[0] == "error"
    assert mutants.judge(job, run, {})[0] == "error"


BUGS = {"old": patch("bug", CAUGHT).replace("ioport 19", "19"),
        "broken": patch("does not compile", CAUGHT),
        "panic": patch("panics", "Caught-by: panic"),
        "silent": patch("panics very", CAUGHT),
        "warns": patch("warns", "Caught-by: splat"),
        "flaky": patch("flaky bug one", CAUGHT),
        "stops": patch("stops bug two", "Caught-by: window: two")}


def test_all_that_may_happen(tmp_path: Path, replace, capsys) -> None:
    """A kernel is its source, and a case fails where that has 'bug CASE'."""
    done, tree = [], tmp_path / "tree"
    git(tmp_path, "init", "-q", tree)

    def source(commit: str) -> Path:
        write(tree, {IOPORT: TEXT})
        return tree

    def kernel(folder: Path, text: str = "bug base") -> Path:
        write(folder, {".config": text, "arch/x86/boot/bzImage": text})
        return folder

    def make(name: str, target: str, tree: Path, log: Path) -> None:
        text = (tree / IOPORT).read_text()
        if "does not compile" in text:
            raise Fail("make failed:\n    | ioport.c:3: error: no\n    | x")
        kernel(build.objects(name), text)

    def boot(image: Path, command: str, name: str, **_: object) -> Result:
        done.append(name)
        text = (image / "arch/x86/boot/bzImage").read_text()
        console = tmp_path / "console"
        console.write_text("WARNING: here" if "warns" in text else "")
        if "stops" in text and done.count(name) == 1:
            raise KeyboardInterrupt
        # One that does not come up is tried again.
        if "panics" in text or "flaky" in text and done.count(name) == 1:
            raise Lost("it died", False, "" if "flaky" in text else mutants.UP,
                       console)
        rows = [f"{'not ' * (f'bug {one}' in text)}ok {number} {one}"
                for number, one in enumerate(
                    ("one", "two", "three", "base"), 1)]
        return Result(0, "\n".join([mutants.UP, "1..4", *rows]), console)

    replace(mutants, source=source, make=make, boot=boot, LOGS=tmp_path,
            MUTANTS=tmp_path / "mutants", IMAGES=tmp_path / "images",
            REPORT=tmp_path / "mutants.json", begin=lambda: "tip",
            choose_kvm=lambda image: False, tests_key=lambda folder: folder,
            kernel_key=lambda *words: "-".join(words),
            record=lambda *words, key: done.append(words),
            build_program=lambda target: Path("/program"),
            build_kernel=lambda name: kernel(tmp_path / "base"))
    replace(build, OBJECTS=tmp_path / "obj")
    for number, (name, text) in enumerate(BUGS.items(), 1):
        put(mutants.MUTANTS, f"window/{number:02}-{name}", text)
    with pytest.raises(KeyboardInterrupt):
        mutants.run_all(mutants.read_mutants(""), True)
    assert done.count("mutant-06-window-flaky") == 2
    # The same command goes on.
    before = len(done)
    assert mutants.run_all(mutants.read_mutants(""), True) == 1
    assert done[before:] == ["mutant-07-window-stops", ("mutants", 4, 3, 0)]
    out = capsys.readouterr().out
    for words in (
            f"01-window-old: does not apply: error: patch failed: {IOPORT}:17",
            "02-window-broken: does not build: ioport.c:3: error: no",
            "killed: 03-window-panic: panic",
            "survived: 04-window-silent: not by one, but: panic",
            "killed: 05-window-warns: splat", "killed: 06-window-flaky: one",
            "killed: 07-window-stops: two", "of 4 test cases, 1 caught none",
            "4 killed, 1 survived, 2 could not be tested"):
        assert words in out, out
    # The base fails a case of its own.
    kills = json.loads(mutants.REPORT.read_text())["kills"]
    assert kills["window: base"] == ["base-1-window"]
    assert kills["window: two"] == ["07-window-stops"]
