#!/usr/bin/env python3
# SPDX-License-Identifier: GPL-2.0-only
"""Plant the bugs of mutants/ in the kernel of the series, one after the
other, and see that each is caught by the test it is named after.

A mutant is a file mutants/NN-PROGRAM-BUG.patch: what the bug is, header
lines, a line `---`, and a diff against the series.  PROGRAM is a selftest
of tools/testing/selftests/x86 or sched, or the KUnit suite x86_io_bitmap.
Headers:

  Caught-by: PROGRAM: CASE   a test case (shell pattern) that must fail
  Caught-by: panic           ... or what the guest must do instead: panic,
                             hang, splat (a warning or report of the kernel)
  Kernel: faults             with KUnit and allocations that can be made to
                             fail, debug: with KASAN, UBSAN and lockdep, or
                             kvm: with a /dev/kvm
                             (default: guest, as it is measured)
  Cpus: 4                    processors of the guest (default: 2; for a test
                             of sched one, with a clock that counts
                             instructions)
  Append: slab_debug=P       kernel parameters
  Arguments: --seconds 5     arguments of the program
  Timeout: 600               seconds for the guest

Of several Caught-by lines each must hold.  Before the first mutant the same
tests run on the series without a bug, where every case has to pass, and on
the base.  Kernels and results are kept, so a second run only does what a
changed patch, kernel or test asks for.
"""

import argparse
import fnmatch
import hashlib
import json
import re
import shutil
import subprocess
import time
from pathlib import Path

from apply import apply_series
from base import REPO, get_base
from bench import build_test
from common import (BUILD, LOGS, RESULTS, ROOT, Fail, build_lock, duration,
                    git, need_space, need_tool, run_git, run_logged,
                    run_main, say, shown_path, stage, write_atomically)
from guest import Lost, boot, choose_kvm
from kernel import (KERNELS, build_kernel, checkout, compiled, configure,
                    kernel_make, make_environment)

MUTANTS = ROOT / "mutants"
IMAGES = BUILD / "mutants.images"
REPORT = RESULTS / "mutants.json"
LISTED = RESULTS / "mutants.md"
SELFTESTS = "tools/testing/selftests"
SUITE = "x86_io_bitmap"
RACE = "ioperm_drop_race"
# Which of KERNELS a header's word for the kernel means.
TREES = {"guest": "mutants", "faults": "mutants_faults",
         "debug": "mutants_debug", "kvm": "mutants_kvm"}
# What a guest can do other than fail a test case.
EVENTS = ("panic", "hang", "splat")
SPLAT = r"^.*(WARNING: |BUG: |UBSAN: |Oops|refcount_t: ).*$"
HEADERS = ("Caught-by", "Kernel", "Cpus", "Append", "Arguments", "Timeout")
BUILD_TIMEOUT = 2 * 3600
TEST_SECONDS = 400
# On a busy machine an emulated guest may not come up, for want of a timer
# interrupt. That says nothing about a bug, so it is tried again.
BOOT_TRIES = 3
UP = "# the guest is up"
# See check.py: on the base, each case is hit with the first seed.
RACE_WAKES = 25000
RACE_SEEDS = 2


# --- the patches -----------------------------------------------------------

class Mutant:
    """One planted bug: what a file of mutants/ says."""

    def __init__(self, path, text):
        """Parse a patch (str); raises Fail naming what is wrong with it."""
        self.path = path
        self.name = path.stem
        named = re.fullmatch(r"(\d\d+)-([a-z0-9_]+)-([a-z0-9-]+)", self.name)
        if not named:
            raise Fail(f"{path.name} is not called NN-PROGRAM-BUG.patch")
        self.program = named.group(2)
        head, dashes, self.diff = text.partition("\n---\n")
        if not dashes:
            raise Fail(f"{path.name} has no line --- before its diff")
        fields = {}
        about = []
        for line in head.splitlines():
            key, colon, value = line.partition(": ")
            if colon and key in HEADERS:
                fields.setdefault(key, []).append(value.strip())
            elif re.match(r"[A-Z][a-z]+(-[a-z]+)*: ", line) and fields:
                raise Fail(f"{path.name} has an unknown header: {line}")
            else:
                about.append(line.strip())
        self.about = " ".join(about).strip()
        if not self.about:
            raise Fail(f"{path.name} does not say what the bug is")
        self.wanted = self.read_wanted(fields.pop("Caught-by", []))
        for key, values in fields.items():
            if len(values) > 1:
                raise Fail(f"{path.name} has more than one {key}: line")
        single = {key: values[0] for key, values in fields.items()}
        self.kernel = single.get("Kernel", "guest")
        if self.kernel not in TREES:
            raise Fail(f"{path.name}: Kernel: {self.kernel} is none of "
                       + ", ".join(TREES))
        self.setup = Setup(
            self.program, self.kernel, self.number(single, "Cpus"),
            single.get("Append", ""), single.get("Arguments", ""),
            self.number(single, "Timeout"))
        self.files = self.read_files()

    def read_wanted(self, values):
        """Return [(event or "case", pattern)] of the Caught-by values."""
        wanted = []
        for value in values:
            program, _, case = value.partition(": ")
            if value in EVENTS:
                wanted.append((value, ""))
            elif program == self.program and case:
                wanted.append(("case", case))
            else:
                raise Fail(f"{self.path.name}: Caught-by: {value} is neither "
                           f"a case of {self.program}, as '{self.program}: "
                           f"CASE', nor one of {', '.join(EVENTS)}")
        if not wanted:
            raise Fail(f"{self.path.name} has no Caught-by: line")
        return wanted

    def number(self, single, key):
        """Return a header's number (int) or None."""
        if key not in single:
            return None
        if not re.fullmatch(r"[1-9]\d*", single[key]):
            raise Fail(f"{self.path.name}: {key}: {single[key]} is not a "
                       "number")
        return int(single[key])

    def read_files(self):
        """Return the files (list of str) that the diff changes."""
        pairs = re.findall(r"^diff --git a/(\S+) b/(\S+)$", self.diff, re.M)
        if not pairs:
            raise Fail(f"{self.path.name} has no diff")
        for old, new in pairs:
            if old != new or re.search(r"^(new|deleted) file mode|^rename ",
                                       self.diff, re.M):
                raise Fail(f"{self.path.name} adds, removes or renames a "
                           "file")
            if re.match(r"(tools|Documentation)/", new) or \
                    new.endswith(("_test.c", "_kunit.c")):
                raise Fail(f"{self.path.name} changes {new}, which is not "
                           "the kernel but its tests or documents")
        return [new for _, new in pairs]


def folder_of(program):
    """Return the folder (str) of SELFTESTS that has a program.

    Those of sched are the series' own, so selftests/ has a copy.
    """
    return "sched" if (ROOT / f"selftests/sched/{program}.c").exists() \
        else "x86"


class Setup:
    """How a test program is run: one guest."""

    def __init__(self, program, kernel="guest", cpus=None, append="",
                 arguments="", timeout=None):
        self.program = program
        self.kernel = kernel
        self.folder = folder_of(program)
        race, sched = program == RACE, self.folder == "sched"
        self.cpus = cpus or (1 if race or sched else 2)
        self.icount = None
        if race and self.cpus == 1:
            # The window is hit only where time is counted in instructions.
            self.icount = "skip-idle"
        elif sched and not cpus:
            # As make check runs it.
            self.icount = "wait-idle"
            append = f"tsc=reliable {append}".strip()
        self.append = append
        self.arguments = arguments
        self.timeout = timeout or TEST_SECONDS * \
            (3 if race or sched or kernel == "debug" else 1)

    def words(self):
        """Return what makes two runs the same test (list)."""
        return [self.program, self.kernel, self.cpus, self.icount or "",
                self.append, self.arguments]

    def parameters(self):
        """Return the kernel parameters (tuple of str)."""
        words = ["no_timer_check", *self.append.split()]
        if self.kernel == "debug":
            words.append("no5lvl")
        if self.program == SUITE:
            # The suite is built into a kernel that runs none by itself.
            words += ["kunit.enable=1", "kunit.autorun=1"]
        return tuple(words)

    def command(self, program):
        """Return the guest's shell command (str); program: its path."""
        if self.program == SUITE:
            return "dmesg"
        line = f"{program} {self.arguments}".strip()
        if self.program == RACE and self.icount and not self.arguments:
            # As make check does on the base: one seed after the other, until
            # one hits.
            seeds = " ".join(map(str, range(1, RACE_SEEDS + 1)))
            return ("for c in last-port unshare iopl exit; do "
                    f"for s in {seeds}; do {line} --case $c --seed $s "
                    f"--wakes {RACE_WAKES} || break; done; done; true")
        return line


def read_mutants(patterns=()):
    """Return the mutants (list) whose name matches one of the patterns.

    A pattern is a shell pattern, or a part of the name.  Raises Fail when a
    file is not a mutant, when two have one number, or when a pattern names
    none.
    """
    found = [Mutant(path, path.read_text(errors="surrogateescape"))
             for path in sorted(MUTANTS.glob("*.patch"))]
    if not found:
        raise Fail(f"there is no mutant in {shown_path(MUTANTS)}/")
    numbers = [mutant.name.split("-")[0] for mutant in found]
    twice = sorted({n for n in numbers if numbers.count(n) > 1})
    if twice:
        raise Fail(f"two mutants have the number {twice[0]}")
    if not patterns:
        return found
    chosen = []
    for pattern in patterns:
        match = [mutant for mutant in found
                 if fnmatch.fnmatchcase(mutant.name, pattern)
                 or pattern in mutant.name]
        if not match:
            raise Fail(f"'{pattern}' names none of the {len(found)} mutants "
                       "(--list shows them)")
        chosen += [mutant for mutant in match if mutant not in chosen]
    return sorted(chosen, key=lambda mutant: mutant.name)


# --- results ---------------------------------------------------------------

def parse_ktap(text, suite=None):
    """Return {case: "pass"|"fail"|"skip"} of KTAP output (str).

    A case that is there more than once passes only if it never fails.
    suite: the KUnit suite whose cases, one level in, are wanted.
    """
    cases = {}
    rank = {"skip": 0, "pass": 1, "fail": 2}
    for line in text.splitlines():
        line = re.sub(r"^\[ *\d+\.\d+\] ", "", line)
        found = re.match(r"( *)(ok|not ok) \d+(?: -)?(?: (.*))?$", line)
        if not found or (len(found.group(1)) != (4 if suite else 0)):
            continue
        name, hash_sign, directive = (found.group(3) or "").partition("#")
        verdict = "pass" if found.group(2) == "ok" else "fail"
        if re.match(r" *SKIP\b", directive, re.I):
            verdict = "skip"
            if not name.strip():
                # 'ok 5 # SKIP NAME: the reason'
                name = directive.split("SKIP", 1)[-1].partition(":")[0]
        name = name.strip()
        if name and rank[verdict] >= rank.get(cases.get(name), -1):
            cases[name] = verdict
    return cases


def sum_up(end, output, console, status, setup):
    """Return what one guest showed (dict).

    end: "done", "panic" or "hang"; output, console (str): what the program
    and the kernel wrote; status: the program's exit status or None.
    """
    splat = re.search(SPLAT, console, re.M)
    return {"end": end, "status": status,
            "cases": parse_ktap(output, setup.program == SUITE),
            "splat": splat.group(0).strip()[:200] if splat else ""}


def judge(mutant, run, control):
    """Tell whether a mutant was caught as it says.

    run, control: what sum_up() returned with the bug and without it.
    Returns (verdict, how): "killed", "survived" or "error", and a str.
    """
    if "error" in run:
        return "error", run["error"].splitlines()[0]
    if control is None or "error" in control:
        return "error", "the series itself could not be tested"
    failed = failures(run, control)
    wrong = wrong_control(mutant, control)
    if wrong:
        return "error", wrong
    how, lacking = [], []
    for kind, pattern in mutant.wanted:
        if kind == "case":
            hits = [name for name in failed
                    if fnmatch.fnmatchcase(name, pattern)]
            (how if hits else lacking).append(", ".join(hits) or pattern)
        elif kind == "splat" and run["splat"]:
            how.append(run["splat"])
        elif kind == run["end"]:
            how.append(kind)
        else:
            lacking.append(kind)
    if not lacking:
        return "killed", "; ".join(how)
    # A guest that died has proven nothing about the cases.
    seen = [*failed, *([run["end"]] if run["end"] != "done" else []),
            *([run["splat"]] if run["splat"] else [])]
    return "survived", (f"not by {', '.join(lacking)}, "
                        + (f"but: {', '.join(seen)}" if seen
                           else "nor by anything else"))


def wrong_control(mutant, control):
    """Say (str) why a test says nothing about this mutant, or ""."""
    if control["end"] != "done":
        return f"the series itself: {control['end']}"
    bad = [name for name, verdict in control["cases"].items()
           if verdict == "fail"]
    if bad:
        return f"fails on the series itself: {', '.join(bad)}"
    if any(kind == "splat" for kind, _ in mutant.wanted) and \
            control["splat"]:
        return f"on the series itself: {control['splat']}"
    for kind, pattern in mutant.wanted:
        if kind == "case" and not any(
                verdict == "pass" and fnmatch.fnmatchcase(name, pattern)
                for name, verdict in control["cases"].items()):
            return (f"on the series itself no case '{pattern}' of "
                    f"{mutant.program} passes")
    return ""


def failures(run, control):
    """Return the cases (list) that fail with a bug and pass without."""
    return [name for name, verdict in run.get("cases", {}).items()
            if verdict == "fail"
            and control.get("cases", {}).get(name) == "pass"]


def idle_cases(controls, kills):
    """Return the cases that pass on the series and caught nothing.

    controls: {program: run}; kills: {"program: case": [mutant or base]}.
    Returns a sorted list of "program: case".
    """
    return sorted(f"{program}: {name}"
                  for program, control in controls.items()
                  for name, verdict in control.get("cases", {}).items()
                  if verdict == "pass" and f"{program}: {name}" not in kills)


class Store:
    """The runs that are known, in build/results/mutants.json."""

    def __init__(self, path=None):
        self.path = path or REPORT
        try:
            self.runs = dict(json.loads(self.path.read_text())["runs"])
        except (OSError, ValueError, KeyError, TypeError):
            self.runs = {}
        self.used = set()

    def find(self, key):
        """Return the run with this key or None."""
        run = self.runs.get(key)
        if run is not None:
            self.used.add(key)
        return run

    def add(self, key, run, **report):
        """Keep a run, on the disk too."""
        self.runs[key] = run
        self.used.add(key)
        self.write(**report)

    def write(self, **report):
        """Write everything; report: what goes beside the runs."""
        write_atomically(self.path, json.dumps(
            report | {"runs": self.runs}, indent=1) + "\n")

    def forget_unused(self):
        """Drop the runs that nobody asked for since this was made."""
        self.runs = {key: run for key, run in self.runs.items()
                     if key in self.used}


# --- kernels and guests ----------------------------------------------------

class Broken(Fail):
    """A mutant that does not apply or build."""


def digest(*parts):
    """Return a short name (str) of some strings."""
    return hashlib.sha256("\0".join(map(str, parts)).encode(
        errors="surrogateescape")).hexdigest()[:20]


def source_key(commit):
    """Return a name (str) of all of a commit that makes a kernel."""
    rows = git("ls-tree", commit, cwd=REPO) + \
        git("ls-tree", commit, "tools/", cwd=REPO)
    return digest(*(row for row in rows.splitlines()
                    if row.split("\t")[1] not in
                    ("Documentation", "tools", "tools/testing")))


def test_key(commit, folder="x86"):
    """Return a name (str) of the sources of a commit's tests in a folder."""
    rows = git("ls-tree", commit, f"{SELFTESTS}/", cwd=REPO).splitlines()
    return digest(*(row for row in rows if re.search(
        rf"\t{SELFTESTS}/({folder}|kselftest.*\.h)$", row)))


def compiler():
    """Return the compiler's own name (str)."""
    need_tool("gcc", "gcc")
    return subprocess.run(["gcc", "--version"], capture_output=True,
                          text=True).stdout.partition("\n")[0]


class Workshop:
    """Makes kernels with bugs, and runs tests on them."""

    def __init__(self, commit, programs, kvm=None):
        self.commit = commit
        self.source = source_key(commit)
        self.tests = {folder: test_key(commit, folder)
                      for folder in ("x86", "sched")}
        self.compiler = compiler()
        self.wanted = sorted(programs - {SUITE})
        self.programs = {}
        self.ready = {}
        self.kvm = kvm

    def image_key(self, kernel, diff=""):
        """Return the name (str) of the kernel with this diff."""
        return digest(self.source, self.compiler, kernel, diff,
                      *(path.read_text() for path in
                        KERNELS[TREES[kernel]][1]))

    def run_key(self, setup, image):
        """Return the name (str) of a test run on an image."""
        return digest(image, self.tests[setup.folder],
                      setup.command("program"), *setup.words())

    def tree(self, kernel):
        """Return a configured tree without a bug, built at least once."""
        side = TREES[kernel]
        tree = checkout(side)
        if kernel not in self.ready:
            configure(tree, KERNELS[side][1], LOGS / f"config-{side}.log")
            self.ready[kernel] = tree
        return tree

    def make(self, tree, what, log, *targets):
        """Run make in a tree, with its output in a log of this name."""
        run_logged(kernel_make(tree, *targets), LOGS / f"{log}.log",
                   timeout=BUILD_TIMEOUT, env=make_environment(),
                   what=what, progress=compiled)

    def image(self, kernel, name, diff=""):
        """Return the folder (Path) of a kernel, built if need be.

        Raises Broken when the diff does not apply or the kernel not build.
        """
        place = IMAGES / self.image_key(kernel, diff)
        if (place / "arch/x86/boot/bzImage").exists():
            return place
        tree = self.tree(kernel)
        if diff:
            done = run_git("apply", "-", cwd=tree, data=diff.encode(
                errors="surrogateescape"))
            if done.returncode:
                raise Broken("does not apply: " + done.stderr.decode(
                    errors="replace").strip().splitlines()[0])
        try:
            self.make(tree, "the kernel", f"mutant-{name}.build", "bzImage")
        except Fail as failure:
            words = (LOGS / f"mutant-{name}.build.log").read_text(
                errors="replace")
            error = re.search(r"^.*\berror: .*$", words, re.M)
            raise Broken("does not build: " + (
                error.group(0) if error else str(failure))) from None
        # vng takes a folder with these two for a built tree.
        partial = place.with_suffix(".partial")
        shutil.rmtree(partial, ignore_errors=True)
        (partial / "arch/x86/boot").mkdir(parents=True)
        shutil.copy2(tree / ".config", partial / ".config")
        shutil.copy2(tree / "arch/x86/boot/bzImage",
                     partial / "arch/x86/boot/bzImage")
        partial.rename(place)
        return place

    def program(self, name):
        """Return the path of a test program, or "" for the KUnit suite.

        All are built when the first is asked for.  Raises Fail when the
        series has no such test.
        """
        if name == SUITE:
            return ""
        if not self.programs:
            tree = self.tree("guest")
            with stage(f"building {len(self.wanted)} tests"):
                self.make(tree, "make headers", "mutants-headers", "headers")
                for one in self.wanted:
                    folder = folder_of(one)
                    source = f"{SELFTESTS}/{folder}/{one}.c"
                    if not (tree / source).exists():
                        raise Fail(f"the series has no {source}, which "
                                   "mutants are named after")
                    self.programs[one] = build_test(tree, name=one,
                                                    folder=folder)
        return self.programs[name]

    def test(self, setup, image, name):
        """Run one test program on a kernel; returns what sum_up() does."""
        program = self.program(setup.program)
        if self.kvm is None:
            self.kvm = choose_kvm(image)
        guest = f"mutant-{name}"
        console, output = LOGS / f"{guest}.console", ""
        for _ in range(BOOT_TRIES):
            try:
                result = boot(
                    image, f"echo '{UP}'\n{setup.command(program)}",
                    cpus=setup.cpus, icount=setup.icount,
                    memory="2G" if setup.kernel == "debug" else "1G",
                    kvm=self.kvm and not setup.icount, name=guest,
                    timeout=setup.timeout, append=setup.parameters())
                end, status, output = "done", result.status, result.output
            except Lost as lost:
                end, status = "hang" if lost.hung else "panic", None
                output = lost.output
            if UP in output:
                break
        write_atomically(LOGS / f"{guest}.ktap", output)
        words = console.read_text(errors="replace").replace("\r", "\n")
        if setup.program == SUITE and end != "done":
            output = words
        return sum_up(end, output, words, status, setup)


# --- the whole -------------------------------------------------------------

class Campaign:
    """Runs mutants and keeps count."""

    def __init__(self, workshop, store):
        self.workshop = workshop
        self.store = store
        self.controls = {}
        self.base = {}
        self.rows = []
        self.kills = {}

    def tested(self, setup, name, diff=""):
        """Return a run's result (dict), a known one if there is one.

        What keeps the test from running is in it as "error".
        """
        key = self.workshop.run_key(
            setup, self.workshop.image_key(setup.kernel, diff))
        run = self.store.find(key)
        if run is not None:
            return run
        start = time.monotonic()
        try:
            image = self.workshop.image(setup.kernel, name, diff)
        except Broken as failure:
            # Kept in no file: it may work the next time.
            return {"error": str(failure)}
        built = time.monotonic()
        self.workshop.program(setup.program)
        run = self.workshop.test(setup, image, f"{name}-{setup.program}"
                                 if not name.endswith(setup.program)
                                 else name)
        run["seconds"] = {"build": round(built - start, 1),
                          "test": round(time.monotonic() - built, 1)}
        self.store.add(key, run, **self.report())
        return run

    def control(self, setup):
        """Run a test on the series without a bug; returns the run."""
        words = json.dumps(setup.words())
        if words not in self.controls:
            with stage(f"control: {setup.program} on the series"
                       + (f" ({' '.join(map(str, setup.words()[1:]))})"
                          if setup.kernel != "guest" else "")):
                run = self.tested(setup, f"control-{setup.program}")
            self.controls[words] = run
            bad = [name for name, verdict in run.get("cases", {}).items()
                   if verdict == "fail"]
            if run.get("error") or run.get("end") != "done" or bad:
                say(f"    FAIL  {setup.program} on the series: "
                    + (run.get("error") or ", ".join(bad) or run["end"]))
        return self.controls[words]

    def on_base(self, setups):
        """Run the tests on the base: what fails there, proves itself."""
        tree = None
        for setup in setups:
            if setup.program == SUITE or setup.kernel != "guest":
                continue
            commit = git("rev-parse", "base", cwd=REPO).strip()
            key = self.workshop.run_key(
                setup, digest("base", commit, self.workshop.compiler,
                              *(path.read_text()
                                for path in KERNELS["base"][1])))
            run = self.store.find(key)
            if run is None:
                tree = tree or build_kernel("base")
                with stage(f"{setup.program} on the base"):
                    run = self.workshop.test(setup, tree,
                                             f"base-{setup.program}")
                self.store.add(key, run, **self.report())
            self.base[setup.program] = run
            for name in failures(run, self.control(setup)):
                self.kills.setdefault(f"{setup.program}: {name}",
                                      []).append("base")

    def try_mutant(self, mutant, setups):
        """Run a mutant through its own test, and through other setups."""
        control = self.control(mutant.setup)
        run = self.tested(mutant.setup, mutant.name, mutant.diff)
        verdict, how = judge(mutant, run, control)
        for setup in setups:
            other = run if setup is mutant.setup else \
                self.tested(setup, mutant.name, mutant.diff)
            for name in failures(other, self.control(setup)):
                self.kills.setdefault(f"{setup.program}: {name}",
                                      []).append(mutant.name)
        self.rows.append({"mutant": mutant.name, "verdict": verdict,
                          "how": how, "about": mutant.about,
                          "failed": failures(run, control),
                          "end": run.get("end"), "splat": run.get("splat"),
                          "seconds": run.get("seconds")})
        return verdict

    def by_program(self):
        """Return {program: control run} of all that was tested."""
        found = {}
        for words, run in self.controls.items():
            found.setdefault(json.loads(words)[0], run)
        return found

    def report(self):
        """Return what goes into the JSON file (dict)."""
        return {"series": self.workshop.commit, "mutants": self.rows,
                "controls": self.by_program(), "base": self.base,
                "kills": self.kills,
                "idle": idle_cases(self.by_program(), self.kills)}


def table(rows):
    """Return lines (list of str): mutant | caught by | how."""
    if not rows:
        return []
    width = max(len(row["mutant"]) for row in rows)
    lines = [f"{'mutant':{width}} | {'caught by':20} | how"]
    for row in rows:
        program = row["mutant"].split("-")[1]
        caught = program if row["verdict"] == "killed" else \
            row["verdict"].upper()
        lines.append(f"{row['mutant']:{width}} | {caught:20} | {row['how']}")
    return lines


def listed(controls, kills):
    """Return Markdown (str): for each test case, what it caught.

    controls: {program: control run}; kills: {"program: case": [mutant or
    "base", ...]}, as in the JSON file.
    """
    lines = ["<!-- written by 'make mutants' -->", "",
             "# Which planted bug each test case caught", "",
             "`base`: the case fails on the kernel without the series. The "
             "bugs are in [`mutants/`](../mutants). Each ran only its own "
             "test program.", "", "| test case | caught |", "|---|---|"]
    for program, run in sorted(controls.items()):
        for name in run.get("cases", {}):
            caught = kills.get(f"{program}: {name}", [])
            numbers = [word if word == "base" else word.split("-")[0]
                       for word in dict.fromkeys(caught)]
            lines.append(f"| {program}: {name} | "
                         f"{', '.join(numbers) or 'none'} |")
    return "\n".join(lines) + "\n"


def run_all(mutants, every_test, with_base, fail_fast):
    """Test mutants and print the table; returns the exit status (int)."""
    get_base()
    commit = apply_series()
    for side in {TREES[mutant.kernel] for mutant in mutants}:
        if not (BUILD / side).exists():
            need_space(BUILD, 4, f"the kernel in build/{side}")
    workshop = Workshop(commit, {mutant.program for mutant in mutants})
    campaign = Campaign(workshop, Store())
    setups = []
    for mutant in mutants:
        if mutant.setup.words() not in [one.words() for one in setups]:
            setups.append(mutant.setup)
    start = time.monotonic()
    for setup in setups:
        campaign.control(setup)
    if with_base:
        campaign.on_base(setups)
    began = time.monotonic()
    for number, mutant in enumerate(mutants, 1):
        left = ""
        if number > 1:
            each = (time.monotonic() - began) / (number - 1)
            left = f", about {duration(each * (len(mutants) - number + 1))}" \
                   " left"
        say(f"==> {mutant.name} ({number} of {len(mutants)}{left})")
        verdict = campaign.try_mutant(
            mutant, setups if every_test else [mutant.setup])
        row = campaign.rows[-1]
        say(f"    {verdict}: {row['how']}")
        campaign.store.write(**campaign.report())
        if fail_fast and verdict != "killed":
            break
    if len(mutants) == len(list(MUTANTS.glob("*.patch"))) and with_base:
        campaign.store.forget_unused()
        write_atomically(LISTED, listed(campaign.by_program(),
                                        campaign.kills))
    campaign.store.write(**campaign.report())
    return sum_up_all(campaign, time.monotonic() - start)


def sum_up_all(campaign, seconds):
    """Print what came out; returns the exit status (int)."""
    say("")
    for line in table(campaign.rows):
        say(line)
    idle = campaign.report()["idle"]
    tested = [name for run in campaign.by_program().values()
              for name, verdict in run.get("cases", {}).items()
              if verdict == "pass"]
    say("")
    if idle:
        say(f"{len(idle)} of {len(tested)} test cases caught none of these "
            "and pass on the base:")
        for name in idle:
            say(f"    {name}")
    elif tested:
        say(f"each of the {len(tested)} test cases caught a mutant or fails "
            "on the base")
    verdicts = [row["verdict"] for row in campaign.rows]
    say(f"took {duration(seconds)}; all of it: {shown_path(REPORT)}")
    say(f"{verdicts.count('killed')} killed, "
        f"{verdicts.count('survived')} survived, "
        f"{verdicts.count('error')} could not be tested")
    return 0 if verdicts and set(verdicts) == {"killed"} else 1


def build_all(mutants):
    """Build the kernel of each mutant, and boot none of them.

    Returns the exit status (int).
    """
    get_base()
    workshop = Workshop(apply_series(), set())
    bad = 0
    for number, mutant in enumerate(mutants, 1):
        try:
            with stage(f"building {mutant.name} ({number} of "
                       f"{len(mutants)})"):
                workshop.image(mutant.kernel, mutant.name, mutant.diff)
        except Broken as failure:
            bad += 1
            say(f"    FAIL  {failure}")
    say(f"{len(mutants) - bad} built, {bad} failed")
    return 1 if bad else 0


def main():
    parser = argparse.ArgumentParser(
        description=__doc__.split("\n\n")[0],
        epilog="A mutant survives when its own test does not catch it. Ends "
               "with status 1 when one survives or could not be tested.")
    parser.add_argument("mutant", nargs="*",
                        help="run only these: a part of the name or a shell "
                             "pattern (default: all)")
    parser.add_argument("--list", action="store_true",
                        help="print the mutants and what must catch them")
    parser.add_argument("--build-only", action="store_true",
                        help="build their kernels, which are kept, and boot "
                             "none")
    parser.add_argument("--every-test", action="store_true",
                        help="run all tests on each mutant, not only its "
                             "own, to see what else catches it")
    parser.add_argument("--no-base", action="store_true",
                        help="do not look at which cases fail on the base")
    parser.add_argument("--fail-fast", action="store_true",
                        help="stop at the first that survives (default: "
                             "keep going)")
    options = parser.parse_args()
    mutants = read_mutants(options.mutant)
    if options.list:
        for mutant in mutants:
            say(f"{mutant.name}: "
                + "; ".join(case if kind == "case" else kind
                            for kind, case in mutant.wanted))
            say(f"    {mutant.about}")
        return 0
    with build_lock():
        if options.build_only:
            return build_all(mutants)
        return run_all(mutants, options.every_test, not options.no_base,
                       options.fail_fast)


if __name__ == "__main__":
    run_main(main)
