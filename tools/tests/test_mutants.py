# SPDX-License-Identifier: GPL-2.0-only
"""Planting bugs: what is read from a mutant, what counts as caught."""

import difflib
import shutil
from pathlib import Path

import pytest
from conftest import FILES, IOPORT, git, write

from tools import mutants, planted_bugs
from tools.core import Fail, Given, Kernel
from tools.guest import Lost, Result

TEXT = FILES[IOPORT]
CAUGHT = "Caught-by: window: one"


def patch(bug: str, *headers: str, name: str = IOPORT) -> str:
    """Return a mutant that puts a bug into a line of a file."""
    new = TEXT.replace("/* ioport 20 */", f"{bug};")
    return "What the\nbug is.\n\n" + "".join(f"{row}\n" for row in headers) \
        + f"---\ndiff --git a/{name} b/{name}\n" + "".join(
            difflib.unified_diff(TEXT.splitlines(True), new.splitlines(True),
                                 f"a/{name}", f"b/{name}"))


def read(place: Path, text: str, name: str = "window/01-bug"
         ) -> planted_bugs.Trial:
    write(place, {f"{name}.patch": text})
    return planted_bugs.read_mutant(place / f"{name}.patch")


def test_all_that_a_patch_says(tmp_path: Path) -> None:
    text = patch(
        "bug", CAUGHT, "Caught-by: window: t*: 2", "Caught-by: splat",
        "Kernel: faults", "Cpus: 4", "Append: a=1 b", "Arguments: -t c")
    setup = planted_bugs.Setup("window", "faults", "4", "a=1 b", "-t c")
    assert read(tmp_path, text) == planted_bugs.Trial(
        "01-window-bug", setup, "applied", text.partition("---\n")[2],
        "What the bug is.", ("one", "t*: 2", "splat"))
    with pytest.raises(Fail, match="is not called NN-BUG"):
        read(tmp_path, text, "window/1-bug")


@pytest.mark.parametrize("text, words", [
    (patch("bug", "Caught-by: other: one"), "wrong: Caught-by: other"),
    (patch("bug", CAUGHT, "Kernal: faults"), "wrong: Kernal"),
    (patch("bug", "Cpus: 1"), "has no Caught-by"),
    (f"A.\n\n{CAUGHT}\n---\n", "is not what the bug is"),
    (patch("bug", CAUGHT).replace("\n@@", "\nnew file mode 100644\n@@", 1),
     "it adds one"),
    *((patch("bug", CAUGHT, name=name), f"kernel: {name}")
      for name in ("tools/testing/selftests/x86/window.c",
                   "arch/x86/kernel/io_bitmap_test.c"))])
def test_a_patch_that_is_wrong(tmp_path: Path, text: str, words: str) -> None:
    with pytest.raises(Fail, match=words):
        read(tmp_path, text)


CONTROL = {"one": "pass", "two": "pass", "three": "skip", "panic": "pass",
           "hang": "pass", "splat": "pass"}


@pytest.mark.parametrize("wanted, run, verdict, how", [
    ("o*,two", {"one": "fail", "two": "fail"}, "killed", "one; two"),
    ("one,two", {"one": "fail"}, "survived", "not by two, but: one"),
    ("one", {"one": "skip"}, "survived", "not by one, nor by anything else"),
    ("two", {"three": "fail"}, "survived", "not by two, nor by anything else"),
    ("hang", {"panic": "fail"}, "survived", "not by hang, but: panic")])
def test_verdicts(wanted: str, run: dict[str, str], verdict: str,
                  how: str) -> None:
    bug = planted_bugs.Trial("1", planted_bugs.Setup("window"),
                             wanted=tuple(wanted.split(",")))
    assert mutants.judge(bug, CONTROL | run, CONTROL) == (verdict, how)
    # Nothing can be said without a good control.
    for bad in (CONTROL | {"two": "fail"}, CONTROL | {"splat": "fail"}, {}):
        assert mutants.judge(bug, run, bad)[0] == "error"


BUGS = {"old": patch("bug", CAUGHT).replace("ioport 19", "19"),
        "broken": patch("does not compile", CAUGHT),
        "panic": patch("panics", "Caught-by: panic"),
        "silent": patch("panics very", CAUGHT),
        "warns": patch("warns", "Caught-by: splat"),
        "flaky": patch("flaky bug one", CAUGHT),
        "stops": patch("stops bug two", "Caught-by: window: two")}
SAID = f"""\
01-window-old: git apply failed: error: patch failed: {IOPORT}
02-window-broken: make failed:
killed: 03-window-panic: panic
survived: 04-window-silent: not by one, but: panic
killed: 05-window-warns: splat
killed: 06-window-flaky: one
killed: 07-window-stops: two
of 4 test cases, 1 caught none
4 killed, 1 survived, 2 could not be tested"""


def test_all_that_may_happen(kernel: Kernel, replace, capsys) -> None:
    """A kernel is its source, and a case fails where that has 'bug CASE'."""
    done, place = [], kernel.build
    tree, base = place / "tree", place / "base"
    git(place, "init", "-q", tree)

    def source(*_: object) -> Path:
        write(tree, {IOPORT: TEXT})
        return tree

    def make(*_: object, **__: object) -> None:
        if "does not compile" in (tree / IOPORT).read_text():
            raise Fail("make failed:\n    | x")

    def boot(image: Path, command: str, log: Path, **_: object) -> Result:
        done.append(log.name)
        # Two guests run at once.
        console = place / f"{log.name}.console"
        text, first = image.read_text(), done.count(log.name) == 1
        console.write_text("WARNING: here" if "warns" in text else "")
        if "stops" in text and first:
            raise KeyboardInterrupt
        # One that does not come up is tried again.
        if "panics" in text or "flaky" in text and first:
            raise Lost("it died", False, "" if "flaky" in text else mutants.UP,
                       console)
        rows = [f"{'not ' * (f'bug {one}' in text)}ok 1 {one}"
                for one in ("one", "two", "three", "base")]
        return Result(0, "\n".join([mutants.UP, "1..4", *rows]), console)

    base.write_text("bug base")
    replace(planted_bugs, MUTANTS=place / "mutants")
    replace(mutants, source=source, make=make, boot=boot,
            objects=lambda *_: tree / IOPORT, save_image=shutil.copy,
            choose_kvm=lambda image: False, begin=lambda kernel: "tip",
            setup_key=lambda *words: f"{words[1:]}",
            record=lambda *words: done.append(words[1:3]),
            build_kernel=lambda *_: base, build_selftests=lambda _, names:
            {name: Path(name) for name in names})
    for number, name in enumerate(BUGS, 1):
        write(place, {f"mutants/window/{number:02}-{name}.patch": BUGS[name]})
    with pytest.raises(KeyboardInterrupt):
        mutants.main(kernel, Given())
    assert done.count("mutant-06-window-flaky") == 2
    # The same command goes on, and a third one has nothing to do.
    before = len(done)
    assert mutants.main(kernel, Given()) == 1
    assert done[before:] == ["mutant-07-window-stops", ("mutants", (4, 3, 0))]
    out = capsys.readouterr().out
    assert not [words for words in SAID.split("\n") if words not in out], out
    for name in ("01-old", "02-broken"):
        (place / f"mutants/window/{name}.patch").unlink()
    mutants.main(kernel, Given())
    assert len(done) == before + 2
    assert "nothing was left to run" in capsys.readouterr().out
