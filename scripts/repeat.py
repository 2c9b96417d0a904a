#!/usr/bin/env python3
# SPDX-License-Identifier: GPL-2.0-only
"""Run the tests of I/O ports again and again, on several kinds of guests.

A test that passes once may still be flaky, or be right only with as many
processors as it was written on.  Each kind of guest is a row: with 1, 2 and
4 processors, on the kernel with KASAN, UBSAN and lockdep, on a 32-bit kernel,
without X86_IOPL_IOPERM, as a user that is not root, under lockdown.  A case
that skips itself and is not on the list configs/repeat-skips is a failure; so
is a program of which nothing passed, unless each of its cases is on that list.

Results are kept for a kernel and its tests, so a second run goes on where
the first stopped; after a run with something wrong the row begins anew, as
what counts is so many in a row.  --publish copies the results to
results/repeat.json, and --published goes on from there.  Ends with the line `N passed, N failed, N skipped`, where
one run of one program is one test.
"""

import argparse
import fnmatch
import json
import re
import time
from collections import Counter

from apply import apply_series
from base import get_base
from check import check_splat
from common import (BUILD, CONFIGS, LOGS, RESULTS, ROOT, Fail, build_lock,
                    duration, run_main, say, shown_path, stage,
                    write_atomically)
from crew import Crew
from gates import build_image, command_of, test_sources
from guest import boot, choose_kvm
from kernel import KERNELS, build_kernel
from mutants import (compiler, digest, parse_ktap, source_key,
                     test_key)
from objects import KNOWN, PLACE, build_programs, gate_tree
from tinyguest import boot_tiny

REPORT = RESULTS / "repeat.json"
PUBLISHED = ROOT / "results/repeat.json"
SKIPS = CONFIGS / "repeat-skips"
TIMES = 10
SECONDS = 3600
# A kernel with KASAN and lockdep takes half a millisecond for a signal, and a
# case with 65536 of them has 30 seconds otherwise.
SLOW = "env KSFT_MACHINE_SLOW=yes"
# The user that is not root, in a folder that it may read.
NOBODY = "setpriv --reuid 65534 --regid 65534 --clear-groups --"


class Row:
    """A kind of guest.

    kernel: what build_kernel() or build_image() takes.  wrap: what runs a
    program.  often: whether it is run as often as --times says, or once.
    must: [(program, case)], patterns of what must not be skipped.  bits: 32
    for a kernel that cannot use the host's files.
    """

    def __init__(self, title, kernel="series", cpus=2, append=(), wrap="",
                 often=False, must=(), bits=64):
        self.title = title
        self.kernel = kernel
        self.cpus = cpus
        self.append = append
        self.wrap = wrap
        self.often = often
        self.must = must
        self.bits = bits

    def folder(self):
        """Build the kernel if need be; returns its folder (Path)."""
        if self.kernel in KERNELS:
            return build_kernel(self.kernel)
        return build_image(self.kernel)[0]

    def fragments(self):
        """Return the parts (list of Path) of its kernel's configuration."""
        return KERNELS[self.kernel][1] if self.kernel in KERNELS \
            else KNOWN[self.kernel].fragments

    def words(self):
        """Return what a result is known by (list)."""
        return [self.title, self.kernel, self.cpus, *self.append, self.wrap,
                digest(*(path.read_text() for path in self.fragments()))]


# Whoever is refused can be seen to be refused.
REFUSED = (("ioperm_??", "ioperm_refused.*"), ("iopl_??", "iopl_refused.*"),
           ("ioperm_boundaries_*", "unprivileged.*"),
           ("ioperm_security_*", "global.unprivileged_gets_nothing"),
           ("ioperm_security_*", "global.eflags_*"))
# Without the system calls it still has to be seen that nobody has a port.
NOBODY_HAS = (("ioperm_??", "ioperm_refused.nothing_at_first"),
              ("iopl_??", "iopl_refused.nothing_at_first"),
              ("ioperm_boundaries_*", "unprivileged.all_ports_denied"),
              ("ioperm_security_*", "global.eflags_*"))
ROWS = {
    "1cpu": Row("1 CPU", cpus=1, often=True),
    "2cpus": Row("2 CPUs", often=True),
    "4cpus": Row("4 CPUs", cpus=4, often=True),
    # KASAN reports an address of the interrupt code early in a boot with
    # five page table levels, which QEMU's largest processor has.
    # Leaks are looked for by stress.py; here kmemleak would only take time.
    "debug": Row("KASAN, UBSAN, lockdep", "debug",
                 append=("no5lvl", "kmemleak=off"),
                 often=True, wrap=SLOW),
    "i386": Row("32-bit kernel", "i386-repeat", often=True, bits=32,
                append=("loglevel=5",)),
    "noioperm": Row("without X86_IOPL_IOPERM", "noioperm",
                    must=NOBODY_HAS),
    "nobody": Row("not root", wrap=NOBODY, must=REFUSED),
    "lockdown": Row("lockdown=integrity", append=("lockdown=integrity",),
                    must=(*REFUSED, ("ioperm_security_*",
                                     "global.lockdown_gives_nothing"))),
}


def read_cases(text):
    """Read the KTAP output of a program (str).

    Returns {case: "pass"|"fail"|"skip"}.  Raises Fail when its plan promises
    other than what came.
    """
    plan = re.search(r"^1\.\.(\d+)(.*)$", text, re.M)
    if not plan:
        raise Fail("it printed no plan")
    cases = parse_ktap(text)
    results = len(re.findall(r"^(?:not )?ok \d+\b", text, re.M))
    if results != int(plan.group(1)):
        raise Fail(f"{results} of its {plan.group(1)} cases reported")
    silent = re.findall(r"^ok \d+\b.*# SKIP *$", text, re.M | re.I)
    if silent:
        raise Fail(f"a skip without a reason: {silent[0]}")
    if not cases:
        if "SKIP" not in plan.group(2).upper():
            raise Fail("it has no case")
        cases["all"] = "skip"
    return cases


def read_skips(text):
    """Parse configs/repeat-skips (str): [(row, program, case)] patterns."""
    found = []
    for line in text.splitlines():
        line = line.split("#")[0].strip()
        if line:
            words = [word.strip() for word in line.split(":", 2)]
            if len(words) != 3:
                raise Fail(f"{shown_path(SKIPS)}: '{line}' is not "
                           "ROW: PROGRAM: CASE")
            found.append(tuple(words))
    return found


def judge(row, program, text, status, skips):
    """Say what a run of a program came to.

    row: name of the row; skips: what read_skips() gives; status: exit
    status (int) or None when it did not end.  Returns (cases, why): why is
    "" when nothing is wrong.
    """
    try:
        cases = read_cases(text)
    except Fail as failure:
        return {}, str(failure) + (f" (exit status {status})" if status
                                   else "")
    if status is None:
        return cases, "it did not end"
    failed = [name for name, verdict in cases.items() if verdict == "fail"]
    if failed:
        return cases, "failed: " + ", ".join(failed)
    surprise = [name for name, verdict in cases.items() if verdict == "skip"
                and not any(all(map(fnmatch.fnmatch, (row, program, name),
                                    known)) for known in skips)]
    if surprise:
        return cases, "skipped, not expected: " + ", ".join(surprise)
    wanted = (0,) if "pass" in cases.values() else (0, 4)
    if status not in wanted:
        return cases, f"exit status {status}, although no case failed"
    return cases, ""


def not_passed(row, programs):
    """Return the patterns (list of str) that a Row's must holds and that no
    case of a run's programs, {program: {case: verdict}}, passed."""
    missing = []
    for program, case in row.must:
        # Of each, the 64-bit and the 32-bit one.
        for name in fnmatch.filter(programs, program) or [program]:
            if not any(fnmatch.fnmatch(one, case) and verdict == "pass"
                       for one, verdict in programs.get(name, {}).items()):
                missing.append(f"{name}: {case}")
    return missing


def split_output(text):
    """Cut a guest's output (str).

    Returns {program: (text, exit status or None, seconds or None)}.
    """
    found = {}
    for part in re.split(r"^@@ begin ", text, flags=re.M)[1:]:
        name, _, body = part.partition("\n")
        end = re.search(rf"^@@ end {re.escape(name)} (\d+) (\d+)$", body,
                        re.M)
        found[name] = (body[:end.start()], *map(int, end.groups())) if end \
            else (body, None, None)
    return found


def boot_row(row, folder, programs, job):
    """Run the programs (list of Path) in a Row's guest named job (str).

    folder: where the kernel was built (Path).  Returns (what it printed, its
    console), a str and a Path.
    """
    if row.bits == 32:
        runs = boot_tiny(folder / "arch/x86/boot/bzImage",
                         [(path, command_of(path)) for path in programs],
                         cpus=row.cpus, timeout=SECONDS, seconds=400,
                         name=job, append=" ".join(row.append))
        return "".join(f"@@ begin {name}\n{run.output}\n"
                       + ("" if run.status is None else
                          f"@@ end {name} {run.status} {run.seconds}\n")
                       for name, run in runs), LOGS / f"{job}.console"
    script = "".join(
        f"echo; echo '@@ begin {path.name}'; t=$(date +%s); {row.wrap} "
        f"{path} {' '.join(command_of(path))}; s=$?; echo; "
        f"echo \"@@ end {path.name} $s $(($(date +%s) - t))\"; "
        for path in programs)
    result = boot(folder, script + "true", cpus=row.cpus,
                  memory="2G" if row.kernel == "debug" else "1G",
                  kvm=choose_kvm(folder), timeout=SECONDS, name=job,
                  append=row.append)
    return result.output, result.console


def run_row(name, row, folder, programs, number, skips):
    """Boot a guest and run the programs; returns a run (dict).

    folder: where its kernel was built (Path).
    {"programs": {program: {verdict: cases (int)}}, "took": {program:
    seconds}, "wrong": {what: why}, "seconds": float}.
    """
    job = f"repeat-{name}-{number}"
    run = {"programs": {}, "took": {}, "wrong": {}}
    start = time.monotonic()
    try:
        output, console = boot_row(row, folder, programs, job)
    except Fail as failure:
        run["wrong"]["the guest"] = str(failure)
        return run
    run["seconds"] = round(time.monotonic() - start, 1)
    log = LOGS / f"{job}.ktap"
    write_atomically(log, output)
    found = split_output(output)
    for path in programs:
        text, status, took = found.get(path.name, ("", None, None))
        run["took"][path.name] = took
        cases, why = judge(name, path.name, text, status, skips)
        run["programs"][path.name] = cases
        if why:
            run["wrong"][path.name] = f"{why}; see {shown_path(log)}"
    missing = not_passed(row, run["programs"])
    run["programs"] = {program: dict(Counter(cases.values()))
                       for program, cases in run["programs"].items()}
    if missing:
        run["wrong"]["what must pass"] = ", ".join(missing)
    try:
        check_splat(console)
    except Fail as failure:
        run["wrong"]["the kernel"] = str(failure)
    return run


def count(run):
    """Return (cases passed, cases skipped) of a run, two ints."""
    counts = run["programs"].values()
    return (sum(cases.get("pass", 0) for cases in counts),
            sum(cases.get("skip", 0) for cases in counts))


def longest(runs):
    """Return the slowest program (str) of runs, and its seconds."""
    took = [(seconds, name) for run in runs
            for name, seconds in run.get("took", {}).items()
            if seconds is not None]
    return "{1} {0} s".format(*max(took)) if took else "-"


def load(key, published=False):
    """Return the runs known for this key: {row's words: [run, ...]}.

    published: of each row, those of results/repeat.json if they are more.
    """
    runs = {}
    for path in (REPORT, PUBLISHED) if published else (REPORT,):
        try:
            known = json.loads(path.read_text())
            if known["key"] == key:
                for row, mine in known["runs"].items():
                    runs[row] = max(runs.get(row, []), mine, key=len)
        except (OSError, ValueError, KeyError, TypeError):
            continue
    return runs


def save(key, commit, runs):
    """Write the report."""
    write_atomically(REPORT, json.dumps(
        {"key": key, "commit": commit, "runs": runs}, indent=1) + "\n")


def publish():
    """Copy what is known to results/repeat.json, to be committed."""
    try:
        known = json.loads(REPORT.read_text())
    except (OSError, ValueError):
        raise Fail(f"there is no {shown_path(REPORT)} to publish") from None
    write_atomically(PUBLISHED, json.dumps(known) + "\n")
    say(f"written: {shown_path(PUBLISHED)}")


def in_a_row(runs):
    """Return the runs (list) after the last one with something wrong."""
    bad = [number for number, run in enumerate(runs, 1) if run["wrong"]]
    return runs[max(bad, default=0):]


def add_runs(name, programs, skips, mine, wanted, jobs, keep):
    """Run a row until it has as many runs as wanted (int).

    programs: as in run_row().  mine: the list of its runs, which grows by
    each as it ends.  jobs: how many guests at a time.  keep: called after
    each.
    """
    row, first = ROWS[name], len(mine) + 1
    folder = row.folder()
    files = {}

    def collect():
        for number, path in list(files.items()):
            if path.exists():
                run = json.loads(path.read_text())
                path.unlink()
                del files[number]
                mine.append(run)
                keep()
                for what, why in run["wrong"].items():
                    say(f"    FAIL  {row.title}: {what}: {why}")

    with Crew(jobs) as crew:
        try:
            for number in range(first, wanted + 1):
                path = LOGS / f"repeat-{name}-{number}.json"
                path.unlink(missing_ok=True)
                files[number] = path
                crew.do(f"{row.title}: run {number} of {wanted}, "
                        f"{len(programs)} programs", f"run {number}",
                        lambda number=number, path=path: write_atomically(
                            path, json.dumps(run_row(
                                name, row, folder, programs, number, skips))))
                collect()
            crew.finish()
        finally:
            collect()
    if crew.failed:
        raise Fail(f"{row.title}: {', '.join(crew.failed)} gave no result")


def repeat(names, times, afresh, published=False, jobs=1):
    """Run rows (names) and print a table; returns the exit status (int).

    afresh: forget what is known; published: see load(); jobs: guests at a
    time.
    """
    get_base()
    commit = apply_series()
    skips = read_skips(SKIPS.read_text())
    tree = gate_tree("applied")
    with stage("building the tests"):
        programs, _ = build_programs(tree, test_sources(tree),
                                     PLACE / "programs/repeat", "gcc")
        static, _ = build_programs(tree, test_sources(tree),
                                   PLACE / "programs/repeat-static", "gcc",
                                   ("-static",), "_32")
    key = digest(source_key(commit), test_key(commit), compiler())
    runs = {} if afresh else load(key, published)
    save(key, commit, runs)
    lines, passed, failed, skipped = [], 0, 0, 0
    for name in names:
        row = ROWS[name]
        mine = runs.setdefault(json.dumps(row.words()), [])
        mine[:] = in_a_row(mine)
        wanted = times if row.often else 1
        if len(mine) < wanted:
            add_runs(name, static if row.bits == 32 else programs, skips,
                     mine, wanted, jobs,
                     lambda: save(key, commit, runs))
        for run in mine[:wanted]:
            failed += len(run["wrong"])
            for program, cases in run["programs"].items():
                if program in run["wrong"]:
                    continue
                if cases.get("pass"):
                    passed += 1
                else:
                    skipped += 1
        good, left = map(sum, zip(*map(count, mine[:wanted])))
        wrong = sum(len(run["wrong"]) for run in mine[:wanted])
        seconds = [run["seconds"] for run in mine[:wanted]
                   if "seconds" in run]
        lines.append(
            f"{row.title:24} | {wanted:4} | {good:12} | {left:13} | "
            f"{wrong:5} | "
            + (duration(sum(seconds) / len(seconds)) if seconds else "-")
            + f" | {longest(mine[:wanted])}")
    say("")
    say(f"{'guest':24} | runs | cases passed | cases skipped | wrong | "
        "a run took | the longest program")
    for line in lines:
        say(line)
    say(f"all of it: {shown_path(REPORT)}")
    say(f"{passed} passed, {failed} failed, {skipped} skipped")
    return 1 if failed or not passed else 0


def main():
    parser = argparse.ArgumentParser(
        description=__doc__.split("\n\n")[0],
        epilog="rows: " + "; ".join(f"{name}: {row.title}"
                                    for name, row in ROWS.items()))
    parser.add_argument("--only", action="append", choices=list(ROWS),
                        help="only this row (may be repeated; default: all)")
    parser.add_argument("--times", type=int, default=TIMES,
                        help="runs of "
                             + ", ".join(name for name, row in ROWS.items()
                                         if row.often)
                             + f" (default: {TIMES})")
    parser.add_argument("--jobs", type=int, default=1,
                        help="guests at a time (default: %(default)s)")
    parser.add_argument("--afresh", action="store_true",
                        help="forget the runs that are known")
    parser.add_argument("--published", action="store_true",
                        help="count the runs of results/repeat.json, which "
                        "were made of the same kernel and tests")
    parser.add_argument("--publish", action="store_true",
                        help="only copy what is known to results/repeat.json")
    options = parser.parse_args()
    if options.publish:
        publish()
        return 0
    if options.jobs < 1:
        raise Fail(f"--jobs {options.jobs}: at least one guest is needed")
    if options.times < 1:
        raise Fail(f"--times {options.times}: at least one run is needed")
    LOGS.mkdir(parents=True, exist_ok=True)
    BUILD.mkdir(parents=True, exist_ok=True)
    with build_lock():
        return repeat(options.only or list(ROWS), options.times,
                      options.afresh, options.published, options.jobs)


if __name__ == "__main__":
    run_main(main)
