#!/usr/bin/env python3
# SPDX-License-Identifier: GPL-2.0-only
"""Measure other ways to do what the patches of sched_yield() do.

Each file of variants/ is a few words and a diff against the series.  Builds
the kernel of each, one after the other in one tree, and measures the cases
in which they differ, beside the base and the series.  Prints a table; writes
it and all figures to build/results/variants.md and variants.json.

With --tests they are bugs, for the tests to find: after the words stand lines
`Caught-by: PROGRAM: CASE`, each a case (shell pattern) of a test of
sched_yield() that must fail on that kernel.  On the series none may.
"""

import argparse
import fnmatch
import json

import check
import yieldbench
from bench import console_table
from common import (LOGS, RESULTS, ROOT, Fail, build_lock, run_git,
                    run_logged, run_main, say, shown_path, stage,
                    write_atomically)
from guest import choose_kvm
from kernel import (BUILD_TIMEOUT, KERNELS, build_sides, checkout, compiled,
                    configure, kernel_make, make_environment)

VARIANTS = ROOT / "variants"
CAUGHT = "Caught-by:"
TREE = "variants"
# A pattern of cases, a figure, what it is called, its unit, scale, digits.
FIGURES = [
    ("polite-100us-slice-default-hogs-1", "share", "1 hog, default: share %",
     1, 2),
    ("polite-100us-slice-default-hogs-1", "p99", "p99 ms", 1e6, 2),
    ("polite-100us-slice-default-hogs-1", "lost", "hog loses %", 1, 2),
    ("polite-500us-slice-default-hogs-1", "share",
     "1 hog, default, 500 us of work: share %", 1, 2),
    ("polite-500us-slice-default-hogs-1", "p99", "p99 ms", 1e6, 2),
    ("polite-500us-slice-default-hogs-1", "stuck", "nobody else ran %", None,
     0),
    ("polite-500us-slice-default-hogs-3", "share",
     "3 hogs, default, 500 us of work: share %", 1, 2),
    ("polite-500us-slice-default-hogs-3", "p99", "p99 ms", 1e6, 2),
    ("polite-20us-slice-1.4ms-hogs-1", "share",
     "1 hog, 1.4 ms, 20 us of work: share %", 1, 2),
    ("polite-20us-slice-1.4ms-hogs-1", "p99", "p99 ms", 1e6, 2),
    ("polite-20us-slice-1.4ms-hogs-1", "lost", "hog loses %", 1, 2),
    ("polite-20us-slice-1.4ms-hogs-1", "stuck", "nobody else ran %", None,
     0),
    ("polite-20us-slice-2.1ms-hogs-1", "share",
     "1 hog, 2.1 ms, 20 us of work: share %", 1, 2),
    ("polite-20us-slice-2.1ms-hogs-1", "p99", "p99 ms", 1e6, 2),
    ("polite-20us-slice-2.1ms-hogs-1", "lost", "hog loses %", 1, 2),
    ("polite-20us-slice-2.1ms-hogs-1", "stuck", "nobody else ran %", None,
     0),
    ("polite-100us-slice-2.8ms-hogs-1", "share", "1 hog, 2.8 ms: share %",
     1, 2),
    ("polite-100us-slice-2.8ms-hogs-1", "p99", "p99 ms", 1e6, 1),
    ("polite-100us-slice-2.8ms-hogs-1", "lost", "hog loses %", 1, 2),
    ("polite-100us-slice-2.8ms-hogs-3", "share", "3 hogs, 2.8 ms: share %",
     1, 2),
    ("polite-100us-slice-2.8ms-hogs-3", "p99", "p99 ms", 1e6, 1),
    ("polite-100us-slice-100ms-hogs-1", "share", "1 hog, 100 ms: share %",
     1, 2),
    ("polite-100us-slice-100ms-hogs-1", "p99", "p99 ms", 1e6, 1),
    ("polite-100us-slice-100ms-hogs-1", "stuck", "nobody else ran %", None,
     0),
    ("polite-100us-slice-100ms-hogs-3", "share", "3 hogs, 100 ms: share %",
     1, 2),
    ("polite-100us-slice-100ms-hogs-3", "p99", "p99 ms", 1e6, 1),
    ("switch-proc-10-slice-2.8ms", "ns_per_switch",
     "10 yielders, 2.8 ms: ns/switch", 1, 0),
    ("storm-slice-1.4ms", "longest_wait_hog",
     "storm, 1.4 ms: hog waits ms", 1e6, 2),
    ("storm-slice-1.4ms", "longest_wait_yielder", "yielder waits ms", 1e6, 2),
    ("storm-slice-100ms", "longest_wait_hog",
     "storm, 100 ms: hog waits ms", 1e6, 1),
    ("storm-slice-100ms", "longest_wait_yielder", "yielder waits ms", 1e6, 1),
]


def read_variant(path):
    """Return (what it is, diff, what catches it) of a file of variants/.

    Two strs and a list of str: "PROGRAM: CASE" with a shell pattern.
    """
    text, _, diff = path.read_text().partition("---\n")
    words, _, caught = text.partition(CAUGHT)
    caught = [line.strip() for line in caught.split(CAUGHT)] if caught else []
    if not words.strip() or not diff.startswith("diff "):
        raise Fail(f"{shown_path(path)}: not a few words, '---' and a diff")
    for pattern in caught:
        if pattern.partition(": ")[0] not in check.YIELD_TESTS:
            raise Fail(f"{shown_path(path)}: {CAUGHT} {pattern}: not one of "
                       f"{', '.join(check.YIELD_TESTS)}, a colon and a case")
    return " ".join(words.split()), diff, caught


def build_variant(name, diff):
    """Build the kernel of a variant; returns its tree (Path)."""
    tree = checkout(TREE)
    configure(tree, KERNELS[TREE][1], LOGS / f"config-{TREE}.log")
    done = run_git("apply", "-", cwd=tree, data=diff.encode())
    if done.returncode:
        raise Fail(f"variants/{name}.patch does not apply to the series: "
                   + done.stderr.decode(errors="replace").strip())
    with stage(f"building {name}"):
        run_logged(kernel_make(tree, "bzImage"),
                   LOGS / f"variant-{name}.build.log", timeout=BUILD_TIMEOUT,
                   env=make_environment(), what=f"building {name}",
                   progress=compiled)
    return tree


def cell(cases, name, figure, scale, digits):
    """Format a figure of {case name: case}; scale None: percent of calls."""
    case = cases.get(name, {})
    if case.get(figure) is None:
        return "-"
    value = 100 * case[figure] / case["calls"] if scale is None \
        else case[figure] / scale
    return f"{value:.{digits}f}"


def table(measured):
    """Return Markdown rows of {variant: [case, ...]}, a row per figure."""
    names = list(measured)
    found = {name: {case["name"]: case for case in cases
                    if case["status"] == "ok"}
             for name, cases in measured.items()}
    rows = ["| | " + " | ".join(names) + " |", "|---|" + "---:|" * len(names)]
    for case, figure, title, scale, digits in FIGURES:
        rows.append(f"| {title} | " + " | ".join(
            cell(found[name], case, figure, scale, digits)
            for name in names) + " |")
    return rows


class Found(check.Tally):
    """Keeps what run_yield() counts, for the caller to judge."""

    def __init__(self):
        super().__init__()
        self.failures = {}

    def ok(self, name):
        self.passed += 1

    def fail(self, name, why):
        self.failures[name.partition(": ")[2]] = why


def judge(tally, name, caught, found):
    """Count what the tests said of one kernel.

    caught: the cases that must fail (list of patterns), None for the
    series, on which none may; found: a Found.
    """
    if caught is None:
        for case, why in found.failures.items():
            tally.fail(f"{name}: {case}", why)
        if not found.failures:
            tally.run(f"{name}: {found.passed} cases pass", need_cases, found)
    for pattern in caught or ():
        cases = [case for case in found.failures
                 if fnmatch.fnmatch(case, pattern)]
        if cases:
            tally.ok(f"{name}: caught by {len(cases)} of {pattern}")
        else:
            tally.fail(f"{name}: {pattern}",
                       f"passes; {len(found.failures)} others fail")


def need_cases(found):
    """Refuse a run in which no case passed."""
    if not found.passed:
        raise Fail("no case ran")


def run_tests(chosen):
    """See that the tests find each variant; returns a Tally.

    chosen: {name: (what it is, diff, what catches it)}.
    """
    tally = check.Tally()
    wanted = {name: caught for name, (_, _, caught) in chosen.items()
              if caught}
    if not wanted:
        raise Fail(f"no line {CAUGHT!r} in what was chosen of variants/")
    with build_lock():
        series = build_sides()["series"]
        programs = check.build_yield_tests(series)
        for name in ("series", *wanted):
            tree = series if name == "series" else \
                build_variant(name, chosen[name][1])
            found = Found()
            say(f"==> {name}")
            check.run_yield(found, "selftests/sched", tree, programs,
                            f"variant-{name}-tests")
            judge(tally, name, wanted.get(name), found)
    return tally


def main():
    parser = argparse.ArgumentParser(description=__doc__.split("\n\n")[0])
    parser.add_argument("--only", metavar="PATTERN", default="*",
                        help="only these variants")
    parser.add_argument("--tests", action="store_true",
                        help="do not measure: see that the tests find those "
                        "that have a line Caught-by")
    options = parser.parse_args()
    chosen = {path.stem: read_variant(path)
              for path in sorted(VARIANTS.glob("*.patch"))
              if fnmatch.fnmatch(path.stem, options.only)}
    if not chosen:
        raise Fail(f"--only {options.only}: no such file in variants/")
    LOGS.mkdir(parents=True, exist_ok=True)
    if options.tests:
        tally = run_tests(chosen)
        say(f"{tally.passed} passed, {tally.failed} failed, "
            f"{tally.skipped} skipped")
        return 1 if tally.failed else 0
    picked = [word for case in dict.fromkeys(row[0] for row in FIGURES)
              for word in ("--case", case)]
    measured = {}
    with build_lock():
        trees = build_sides()
        program = yieldbench.build_test(trees["series"])
        kvm = choose_kvm(trees["base"])
        for name in ("base", "series", *chosen):
            tree = trees.get(name) or build_variant(name, chosen[name][1])
            with stage(f"measuring {name}"):
                measured[name] = yieldbench.measure(
                    tree, program, "base", kvm, picked,
                    f"variant-{name}")["cases"]
        RESULTS.mkdir(parents=True, exist_ok=True)
        write_atomically(RESULTS / "variants.json",
                         json.dumps(measured, indent=1) + "\n")
        rows = table(measured)
        words = [f"- `{name}`: {text}"
                 for name, (text, *_) in chosen.items()]
        write_atomically(RESULTS / "variants.md",
                         "\n".join([*rows, "", *words]) + "\n")
    say("\n" + console_table(rows) + "\n")
    say("\n".join(words))
    say(f"written: {shown_path(RESULTS / 'variants.md')}")
    return 0


if __name__ == "__main__":
    run_main(main)
