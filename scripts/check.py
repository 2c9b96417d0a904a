#!/usr/bin/env python3
# SPDX-License-Identifier: GPL-2.0-only
"""Run the tests of the series and of the scripts.

Ends with the line `N passed, N failed, N skipped`.  A skip that the file
configs/expected-skips does not list is a failure, and so is a group that
ran nothing.
"""

import argparse
import fnmatch
import os
import re
import shutil
import subprocess
import tempfile
import time
import unittest
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import bench
import yieldbench
from apply import apply_series, touched_files
from base import REPO, get_base
from common import (BUILD, CONFIGS, LOGS, PATCHES, ROOT, Fail, build_lock,
                    duration, git, need_tool, record_gate, run_logged,
                    run_main, say, series_key, series_patches, shown_path,
                    stage, write_atomically)
from export import differences, write_export
from guest import boot, choose_kvm
from kernel import SIDES, build_kernel, make_environment
from objects import check_prefixes

# What clang and sparse look at here: both architectures. 'make gates' has
# more configurations.
TWO_CONFIGS = ("wide", "i386")
TAGS = r"^(Signed-off-by|Reviewed-by|Acked-by|Tested-by|Co-developed-by):"
SELFTEST_SECONDS = 1500
RACE_SECONDS = 1200
# The drop window is one instruction boundary: on the base, the case that is
# hardest to hit is hit 13 times in 200000 wake-ups.
RACE_WAKES = 100000
RACE_SEEDS = 12
YIELD_TESTS = ("yield_test",)
# Cases of these names must fail on the base, or they prove nothing.
YIELD_CONTROLS = ("charge", "share")


class Tally:
    """Counts results and prints one line for each."""

    def __init__(self):
        self.passed = self.failed = self.skipped = 0
        self.expected = [
            line.split("#")[0].strip()
            for line in (CONFIGS / "expected-skips").read_text().splitlines()]

    def ok(self, name):
        """Count a test that passed."""
        self.passed += 1
        say(f"    ok    {name}")

    def fail(self, name, why):
        """Count a test that failed; why is shown."""
        self.failed += 1
        say(f"    FAIL  {name}: {why}")

    def skip(self, name, why):
        """Count a skip, or a failure when the list does not expect it."""
        if any(fnmatch.fnmatch(name, row) for row in self.expected if row):
            self.skipped += 1
            say(f"    skip  {name}: {why}")
        else:
            self.fail(name, f"skipped ({why}), which configs/expected-skips "
                      "does not list")

    def run(self, name, function, *arguments):
        """Count one test: function raises Fail when it does not hold."""
        try:
            function(*arguments)
        except Fail as failure:
            self.fail(name, failure)
            return False
        self.ok(name)
        return True


# --- the series as files ---------------------------------------------------

def check_names():
    """series and patches/ name the same files, numbered without a gap."""
    names = series_patches()
    there = sorted(path.name for path in PATCHES.glob("*.patch"))
    if names != there:
        raise Fail("series and patches/ disagree about "
                   + ", ".join(sorted(set(names) ^ set(there)) or ["order"]))
    if not names:
        raise Fail("there is no patch")
    for number, name in enumerate(names, 1):
        if not name.startswith(f"{number:04d}-"):
            raise Fail(f"{name} should be number {number:04d}")


def check_tags(name):
    """A patch carries no tag that only a person may give."""
    text = (PATCHES / name).read_text(errors="replace")
    found = re.search(TAGS, text, re.M)
    if found:
        raise Fail(f"{found.group(0)} is for people to give")
    if not re.search(r"^Assisted-by: LLM", text, re.M):
        raise Fail("no Assisted-by: tag")


def sparse_copy(place, names):
    """Write the base's files that the named patches touch below place."""
    present = git("ls-tree", "-r", "--name-only", "base", "--",
                  *touched_files(names), cwd=REPO).split()
    archive = Path(place) / "base.tar"
    git("archive", "-o", archive, "base", *present, cwd=REPO)
    tree = Path(place) / "tree"
    tree.mkdir()
    run_logged(["tar", "-xf", str(archive), "-C", str(tree)],
               LOGS / "quilt.log", what="tar")
    return tree


def check_quilt(tip):
    """quilt push -a applies everything without fuzz or offset, and gives
    what git am gave; quilt pop -a takes it all back."""
    need_tool("quilt", "quilt")
    names = series_patches()
    with tempfile.TemporaryDirectory(prefix="quilt-", dir=BUILD) as place:
        tree = sparse_copy(place, names)
        environment = os.environ | {
            "QUILT_PATCHES": str(PATCHES),
            "QUILT_SERIES": str(ROOT / "series"), "QUILT_PC": ".pc",
            "LC_ALL": "C"}
        log = LOGS / "quilt.log"
        run_logged(["quilt", "--quiltrc", "-", "push", "-a", "--fuzz=0"], log,
                   cwd=tree, env=environment, what="quilt push -a --fuzz=0")
        text = log.read_text(errors="replace")
        if "with fuzz" in text or "offset" in text:
            raise Fail("quilt needed fuzz or an offset; see "
                       + shown_path(log))
        if text.count("Applying patch") != len(names):
            raise Fail(f"quilt applied {text.count('Applying patch')} of "
                       f"{len(names)} patches")
        for path in touched_files(names):
            if git("show", f"{tip}:{path}", cwd=REPO) != \
                    (tree / path).read_text(errors="surrogateescape"):
                raise Fail(f"quilt and git am give a different {path}")
        run_logged(["quilt", "--quiltrc", "-", "pop", "-a"], log, cwd=tree,
                   env=environment, what="quilt pop -a")


def check_export(tip):
    """Exporting what the patches give changes nothing, byte for byte."""
    with tempfile.TemporaryDirectory(prefix="export-", dir=BUILD) as place:
        write_export(tip, Path(place))
        changes = differences(place)
    if changes:
        raise Fail("not in sync ('make tree', then 'make export'): "
                   + "; ".join(changes))


def checkpatch(name, dictionary, tree):
    """checkpatch --strict --codespell finds nothing in a patch.

    Left out: the Signed-off-by, which the person who submits adds.
    """
    run_checkpatch((PATCHES / name).read_text(errors="replace"), tree,
                   dictionary, "--no-signoff")


def run_checkpatch(mail: str, tree: Path, dictionary: Path, *options: str):
    """Run checkpatch --strict --codespell on a patch; raises Fail.

    Left out: commits that the base, one commit without history, cannot know;
    the reminder about MAINTAINERS, whose patterns cover the new files'
    folders; what excused() knows.
    """
    ignored = ["UNKNOWN_COMMIT_ID", "FILE_PATH_CHANGES"]
    # A test of a system call that may be missing has to look at ENOSYS.
    if re.search(r"^\+\+\+ b/tools/testing/selftests/", mail, re.M):
        ignored.append("ENOSYS")
    done = subprocess.run(
        ["./scripts/checkpatch.pl", "--strict", "--codespell", *options,
         f"--codespellfile={dictionary}", "--show-types",
         f"--ignore={','.join(ignored)}", "-"], input=mail,
        cwd=tree, capture_output=True, text=True, errors="replace",
        env=make_environment())
    words = done.stdout + done.stderr
    total = re.search(r"^total: (\d+) errors, (\d+) warnings, (\d+) checks",
                      words, re.M)
    if not total or "No codespell typos will be found" in words:
        raise Fail(f"checkpatch did not really run: {words.strip()[-300:]}")
    findings = [text for text in words.split("\n\n")
                if re.match(r"(ERROR|WARNING|CHECK):", text)]
    if len(findings) != sum(map(int, total.groups())):
        raise Fail("\n" + words.strip())
    findings = [text for text in findings if not excused(text)]
    if findings:
        raise Fail("\n" + "\n\n".join(findings))


def excused(finding: str) -> bool:
    """Tell whether checkpatch took a macro for a type's name for arithmetic.

    FIXTURE_DATA() and FIXTURE_VARIANT() of kselftest_harness.h and ElfW() of
    the C library are types.
    """
    return bool(re.match(r"CHECK:SPACING|CHECK:CAMELCASE|WARNING:LINE_SPACING",
                         finding)
                and re.search(r"^\+.*\b(FIXTURE_DATA|FIXTURE_VARIANT|ElfW)\(",
                              finding, re.M))


def codespell_dictionary():
    """Return the path (Path) of codespell's word list."""
    need_tool("codespell", "codespell")
    for pattern in ("/usr/lib/python3/dist-packages/codespell_lib/data",
                    "/usr/share/codespell"):
        path = Path(pattern) / "dictionary.txt"
        if path.exists():
            return path
    raise Fail("codespell's dictionary.txt is nowhere to be found")


def checkpatch_tree(tree):
    """Write the base's files that checkpatch reads below tree (Path)."""
    for part in ("scripts", "Documentation/dev-tools",
                 "Documentation/devicetree/bindings/vendor-prefixes.yaml",
                 "include/linux", "MAINTAINERS", "COPYING", "CREDITS",
                 "Kbuild", "README", "Makefile", "arch/x86/Makefile",
                 "init/Kconfig", "ipc/util.h", "kernel/sched/sched.h",
                 "lib/Kconfig", "drivers/Kconfig", "fs/Kconfig",
                 "Documentation/Makefile"):
        archive = subprocess.run(["git", "archive", "base", part],
                                 cwd=REPO, capture_output=True)
        if archive.returncode == 0:
            subprocess.run(["tar", "-x", "-C", str(tree)], check=True,
                           input=archive.stdout)
    return tree


def check_mutants(tip):
    """Each diff of mutants/ applies to the series."""
    paths = sorted((ROOT / "mutants").glob("*.patch"))
    if not paths:
        raise Fail("there is no patch in mutants/")
    wrong = []
    with tempfile.TemporaryDirectory(prefix="export-", dir=BUILD) as place:
        index = {"GIT_INDEX_FILE": str(Path(place) / "index")}
        git("read-tree", tip, cwd=REPO, env=index)
        for path in paths:
            diff = path.read_text(errors="surrogateescape").partition(
                "\n---\n")[2]
            try:
                git("apply", "--cached", "--check", "-", cwd=REPO, env=index,
                    data=diff)
            except Fail:
                wrong.append(path.name)
    if wrong:
        raise Fail(f"of {len(paths)}, these do not: {', '.join(wrong)}")


def group_series(tally):
    """The patch files: names, tags, quilt, git am, copies, checkpatch."""
    if not tally.run("series: names and numbers", check_names):
        return
    names = series_patches()
    get_base()
    try:
        tip = apply_series()
        tally.ok("series: git am")
    except Fail as failure:
        tally.fail("series: git am", failure)
        return
    tally.run("series: quilt push -a, fuzz 0", check_quilt, tip)
    tally.run("series: exported copies in sync", check_export, tip)
    tally.run("mutants/ applies to the series", check_mutants, tip)
    for name in names:
        tally.run(f"tags: {name}", check_tags, name)
    dictionary = codespell_dictionary()
    with tempfile.TemporaryDirectory(prefix="checkpatch-",
                                     dir=BUILD) as place:
        tree = checkpatch_tree(Path(place))
        with ThreadPoolExecutor(os.cpu_count()) as pool:
            jobs = [pool.submit(checkpatch, name, dictionary, tree)
                    for name in names]
            for name, job in zip(names, jobs):
                tally.run(f"checkpatch: {name}", job.result)


# --- the scripts -----------------------------------------------------------

def group_scripts(tally):
    """The tests of the scripts themselves (tests/)."""
    suite = unittest.defaultTestLoader.discover(str(ROOT / "tests"))
    with open(LOGS / "scripts.log", "w") as log:
        for test in flatten(suite):
            result = unittest.TestResult()
            test.run(result)
            name = f"scripts: {test.id().split('.', 1)[-1]}"
            wrong = [trace for _, trace in result.failures + result.errors]
            if result.unexpectedSuccesses:
                wrong.append("passes, but is marked as an expected failure")
            if wrong:
                log.write(f"{name}\n" + "\n".join(wrong) + "\n")
                tally.fail(name, wrong[0].strip().splitlines()[-1]
                           + f" (all of it: {shown_path(log.name)})")
            elif result.skipped:
                tally.skip(name, result.skipped[-1][1])
            else:
                tally.ok(name)


def flatten(suite):
    """Yield the single tests of a unittest suite."""
    for test in suite:
        if isinstance(test, unittest.TestSuite):
            yield from flatten(test)
        else:
            yield test


# --- kernels and their tests -----------------------------------------------

def check_boot(tree, side, kvm):
    """A kernel boots, is the one that was built, and warns of nothing."""
    result = boot(tree, "uname -r; dmesg --level=warn,err,crit,alert,emerg",
                  cpus=2, kvm=kvm, timeout=180, name=f"boot-{side}")
    release = (tree / "include/config/kernel.release").read_text().strip()
    if not result.output.startswith(release):
        raise Fail(f"it says it is {result.output.splitlines()[:1]}")
    check_splat(result.console)


def check_splat(console):
    """A console log (Path) has no warning, bug or sanitizer report."""
    # A test runs into a memory limit, and the OOM killer tells from where.
    text = re.sub(r"(invoked oom-killer: (?:.*\n){1,9}?.*)Call Trace:", r"\1",
                  console.read_text(errors="replace"))
    # virtme-ng warns of what the machine lacks in the same words.
    splat = re.search(r"^(?!.*virtme-ng-init: )"
                      r".*(WARNING: |BUG: |UBSAN: |Oops|Call Trace).*$",
                      text, re.M)
    if splat:
        raise Fail(f"the console has: {splat.group(0).strip()} (all of it: "
                   f"{shown_path(console)})")


def wanted_selftests(tree):
    """Return the names (set of str) that selftests/x86/Makefile promises."""
    text = (tree / "tools/testing/selftests/x86/Makefile").read_text()
    text = text.replace("\\\n", " ")

    def names(variable):
        rows = re.findall(rf"^{variable} \+?:?= *(.*)$", text, re.M)
        return {name for row in rows for name in row.split()}

    both = names("TARGETS_C_BOTHBITS")
    needed = names("TARGETS_C_32BIT_NEEDED")
    return {f"{name}_32" for name in
            both | names("TARGETS_C_32BIT_ONLY") | needed} | \
           {f"{name}_64" for name in
            both | names("TARGETS_C_64BIT_ONLY") | needed}


def install_selftests(tree, side):
    """Build and install the x86 selftests; returns the folder.

    Raises Fail when one that the Makefile promises is not there.
    """
    place = BUILD / "kselftest" / side
    shutil.rmtree(place, ignore_errors=True)
    run_logged(["make", "-C", str(tree / "tools/testing/selftests"),
                f"-j{os.cpu_count()}", "TARGETS=x86", "FORCE_TARGETS=1",
                f"INSTALL_PATH={place}", "install"],
               LOGS / f"kselftest-build-{side}.log", env=make_environment(),
               what=f"building the selftests of {side}")
    missing = sorted(name for name in wanted_selftests(tree)
                     if not (place / "x86" / name).exists())
    if missing:
        raise Fail(f"not built: {', '.join(missing)}")
    return place


def read_kselftest(text):
    """Return {name: "pass"|"fail"|"skip"} of what kselftest's runner says
    (str) of the x86 tests."""
    found = {}
    for verdict, name, rest in re.findall(
            r"^(ok|not ok) \d+ selftests: x86: (\S+)(.*)$", text, re.M):
        found[name] = "fail" if verdict != "ok" else \
            "skip" if "# SKIP" in rest else "pass"
    return found


def run_selftests(tree, place, side, kvm, only=()):
    """Run installed x86 selftests in a guest.

    Returns {name: "pass"|"fail"|"skip"}.  The output is kept in
    build/logs/kselftest-SIDE.ktap.
    """
    chosen = " ".join(f"-t x86:{name}" for name in only) or "-c x86"
    result = boot(tree, f"cd {place} && ./run_kselftest.sh {chosen}",
                  cpus=2, kvm=kvm, timeout=SELFTEST_SECONDS,
                  name=f"kselftest-{side}", share=place)
    write_atomically(LOGS / f"kselftest-{side}"
                     f"{'-again' if only else ''}.ktap", result.output)
    return read_kselftest(result.output)


def compare_selftests(tally, trees, kvm):
    """Every x86 selftest does no worse on the series than on the base."""
    places, results = {}, {}
    for side in SIDES:
        try:
            places[side] = install_selftests(trees[side], side)
        except Fail as failure:
            tally.fail(f"selftests/x86 of {side} build, 32 and 64 bit",
                       failure)
            return
        tally.ok(f"selftests/x86 of {side} build, 32 and 64 bit")
    for side in SIDES:
        with stage(f"running selftests/x86 of {side}"):
            results[side] = run_selftests(trees[side], places[side], side,
                                          kvm)
    rank = {"fail": 0, "skip": 1, "pass": 2, None: -1}
    wanted = wanted_selftests(trees["series"])
    worse = [name for name in sorted(wanted)
             if rank[results["series"].get(name)]
             < rank[results["base"].get(name)]]
    # Emulation makes tests of timing and of faults flaky. One more run of
    # both sides tells a flake of the base from a fault of the series; a test
    # of I/O ports gets no second chance.
    again = [name for name in worse if not name.startswith("iop")]
    if again:
        say(f"    once more, both sides: {', '.join(again)}")
        for side in SIDES:
            results[side] |= run_selftests(trees[side], places[side], side,
                                           kvm, again)
    for name in sorted(wanted):
        before = results["base"].get(name)
        after = results["series"].get(name)
        title = f"selftests/x86: {name}"
        log = f"{shown_path(LOGS)}/kselftest-series.ktap"
        if after is None:
            tally.fail(title, f"did not run; see {log}")
        elif rank[after] < rank[before]:
            tally.fail(title, f"{before} on the base, {after} on the series; "
                       f"see {log}")
        elif after == "pass":
            tally.ok(title + (" (new)" if before is None else ""))
        elif before is None and after == "skip":
            tally.skip(title, f"new, and skips itself; see {log}")
        elif before is None:
            tally.fail(title, f"new, and {after} on the series; see {log}")
        else:
            tally.skip(title, f"{after} on the base too")


def group_kernels(tally):
    """Both kernels build, boot, and pass the in-tree tests."""
    get_base()
    apply_series()
    trees = {}
    for side in SIDES:
        try:
            trees[side] = build_kernel(side)
        except Fail as failure:
            tally.fail(f"kernel: {side} builds", failure)
            return
        tally.ok(f"kernel: {side} builds")
    kvm = choose_kvm(trees["base"])
    for side in SIDES:
        if not tally.run(f"kernel: {side} boots", check_boot, trees[side],
                         side, kvm):
            return
    compare_selftests(tally, trees, kvm)
    check_latency(tally, trees)
    check_yield_latency(tally, trees)
    check_race(tally, trees)
    check_yield(tally, trees)
    tally.run("coccinelle: only ioport.c looks into an I/O bitmap",
              check_accessor, trees)


def group_debug(tally):
    """The KUnit tests, on a kernel with KASAN, UBSAN and lockdep."""
    get_base()
    apply_series()
    try:
        debug = build_kernel("debug")
    except Fail as failure:
        tally.fail("kernel: debug builds", failure)
        return
    tally.ok("kernel: debug builds")
    check_kunit(tally, debug, choose_kvm(debug))


def check_latency(tally, trees):
    """The benchmark's figures are there, sane, and repeat to the digit."""
    program = bench.build_test(trees["series"])
    cases = ["none", "pair-0x80-0x81", "pair-0x80-65535"]
    picked = [word for name in cases for word in ("--case", name)]
    runs = []
    for number in (1, 2):
        with stage(f"measuring the base kernel, run {number} of 2"):
            found = bench.measure(trees["base"], program, f"repeat{number}",
                                  False, picked)
        runs.append({case["name"]: case["p50"] for case in found["cases"]
                     if case["status"] == "ok"})
    title = "latency: two runs give the same p50"
    if set(runs[0]) != set(cases):
        tally.fail(title, f"only {', '.join(runs[0]) or 'nothing'} ran")
        return
    if runs[0] == runs[1]:
        tally.ok(title)
    else:
        tally.fail(title, f"{runs[0]} and {runs[1]}")
    # What the 2004 observation is about must be visible on the base, or the
    # measurement does not measure it.
    title = "latency: the base pays for a high port, not for a low one"
    low = runs[0]["pair-0x80-0x81"] / runs[0]["none"]
    high = runs[0]["pair-0x80-65535"] / runs[0]["none"]
    if low < 1.15 and 2.5 < high < 8:
        tally.ok(f"{title} ({low:.2f} and {high:.2f} times none)")
    else:
        tally.fail(title, f"{low:.2f} and {high:.2f} times none")


def check_yield_latency(tally, trees):
    """Two runs of yield_latency give the same figures, all of them."""
    title = "yield_latency: two runs give the same figures"
    names = ("switch-proc-10", "switch-thread-2",
             "polite-100us-slice-2.8ms-hogs-3")
    picked = [word for name in names for word in ("--case", name)]
    try:
        program = yieldbench.build_test(trees["series"])
        runs = []
        for number in (1, 2):
            with stage(f"measuring yields on the series, run {number} of 2"):
                runs.append(yieldbench.measure(
                    trees["series"], program, "series", False, picked,
                    f"repeat{number}"))
    except Fail as failure:
        tally.fail(title, failure)
        return
    measured = [case for case in runs[0]["cases"] if case["status"] == "ok"]
    # With the feature bits off and on.
    if len(measured) < 2 * len(names):
        tally.fail(title, f"only {len(measured)} cases ran")
    elif runs[0] != runs[1]:
        tally.fail(title, "; ".join(
            f"{one['name']}: {one} and {other}" for one, other in zip(
                runs[0]["cases"], runs[1]["cases"]) if one != other)
            or "the settings differ")
    else:
        tally.ok(title)


def accessor_uses(tree):
    """Return coccinelle's findings (list of str) in a kernel tree.

    Raises Fail when spatch did not run over the files.
    """
    need_tool("spatch", "coccinelle")
    files = [name for name in git("grep", "-lw", "io_bitmap", "--",
                                  "arch/x86", cwd=tree).split()
             if name != "arch/x86/kernel/ioport.c"]
    done = subprocess.run(
        ["spatch", "--no-includes", "--include-headers", "-D", "report",
         "--sp-file", str(ROOT / "coccinelle/io_bitmap.cocci"), *files],
        cwd=tree, capture_output=True, text=True)
    if done.returncode or "HANDLING" not in done.stderr + done.stdout:
        raise Fail(f"spatch did not run: {done.stderr.strip()[-300:]}")
    return [row for row in done.stdout.splitlines()
            if "direct use of an I/O bitmap" in row]


def check_accessor(trees):
    """Only ioport.c looks into an I/O bitmap; the rule finds the base's."""
    if not accessor_uses(trees["base"]):
        raise Fail("the rule finds nothing on the base, where three files "
                   "do: it does not work")
    found = accessor_uses(trees["series"])
    if found:
        raise Fail("; ".join(found))


def kunit_results(text):
    """Read what debugfs says of KUnit suites (str).

    Returns {"suite" or "suite.case": "ok"|"not ok"|"skip"}.  A suite whose
    plan promises other cases than those that reported is "not ok": debugfs
    says "ok" of a suite that never ran.
    """
    found, cases, plan = {}, [], None
    for row in text.splitlines():
        plan_row = re.fullmatch(r"    1\.\.(\d+)", row)
        result = re.fullmatch(r"((?:    )?)(ok|not ok) \d+ (\S+)(.*)", row)
        if plan_row:
            plan, cases = int(plan_row.group(1)), []
        elif result:
            indent, verdict, name, rest = result.groups()
            verdict = "skip" if "# SKIP" in rest else verdict
            if indent:
                cases.append((name, verdict))
                continue
            found |= {f"{name}.{case}": value for case, value in cases}
            whole = plan is not None and plan == len(cases) and plan > 0
            found[name] = verdict if whole or verdict == "skip" else "not ok"
            plan, cases = None, []
    return found


def check_kunit(tally, tree, kvm):
    """The KUnit tests pass on the debug kernel, and it has no splat."""
    with stage("running KUnit on the debug kernel"):
        # KASAN reports an address of the interrupt code early in a boot
        # with five page table levels, which QEMU's largest processor has.
        result = boot(tree, "cat /sys/kernel/debug/kunit/*/results",
                      cpus=2, memory="2G", kvm=kvm, timeout=900,
                      name="kunit", append=("no5lvl",))
    results = LOGS / "kunit.ktap"
    write_atomically(results, result.output)
    found = kunit_results(result.output)
    if "x86_io_bitmap" not in found:
        tally.fail("kunit: x86_io_bitmap", "no test ran; see "
                   + shown_path(results))
    for name, verdict in found.items():
        if verdict == "skip":
            tally.skip(f"kunit: {name}", "skipped itself")
        elif verdict == "ok":
            tally.ok(f"kunit: {name}")
        else:
            tally.fail(f"kunit: {name}", "failed, or not all of its cases "
                       f"ran; see {shown_path(results)}")
    tally.run("kunit: no splat with KASAN, UBSAN and lockdep", check_splat,
              result.console)


def check_race(tally, trees):
    """The drop-window test hits on the base and never on the series.

    Both in a guest whose clock counts instructions and skips idle time. On
    the base each case is tried with one seed after the other until it hits,
    because zero hits on the series prove something only then.
    """
    name = "ioperm_drop_race"
    program = bench.build_test(trees["series"], name=name)
    cases = ("last-port", "unshare", "iopl", "exit")
    seeds = " ".join(map(str, range(1, RACE_SEEDS + 1)))
    commands = {
        "base": f"for c in {' '.join(cases)}; do for s in {seeds}; do "
                f"{program} --case $c --seed $s --wakes {RACE_WAKES // 4} "
                "|| break; done; done; true",
        "series": f"{program} --seed 1 --wakes {RACE_WAKES}"}
    for side in SIDES:
        try:
            with stage(f"looking for the drop window on {side}"):
                result = boot(trees[side], commands[side], cpus=1,
                              icount="skip-idle", timeout=RACE_SECONDS,
                              name=f"race-{side}")
        except Fail as failure:
            tally.fail(f"{name} on {side}", failure)
            continue
        write_atomically(LOGS / f"race-{side}.ktap", result.output)
        for case in cases:
            title = f"{name}: {case} on {side}"
            counts = re.findall(rf"^# {case}: CPU \d+: wakes (\d+) hits "
                                rf"(\d+)$", result.output, re.M)
            wakes = sum(int(wakes) for wakes, _ in counts)
            hits = sum(int(hits) for _, hits in counts)
            figures = f"{hits} hits in {wakes} wake-ups"
            if not counts or side == "series" and wakes < RACE_WAKES:
                tally.fail(title, f"did not run to its end ({figures}); see "
                           f"{shown_path(LOGS)}/race-{side}.ktap")
            elif side == "base" and not hits:
                tally.fail(title, f"{figures}, although the window is "
                           "there: this proves nothing")
            elif side == "series" and hits:
                tally.fail(title, figures)
            else:
                tally.ok(f"{title}: {figures}")


def group_prefixes(tally):
    """Every prefix of the series compiles what its last patch touches."""
    get_base()
    apply_series()
    check_prefixes(tally)


def group_tools(tally):
    """Warnings of the tests, sparse, coccicheck, kernel-doc: nothing new."""
    # Here, because gates imports this file.
    import gates
    gates.group_programs(tally)
    gates.group_sparse(tally, TWO_CONFIGS)
    gates.group_cocci(tally)
    gates.group_kerneldoc(tally)


def group_docs(tally):
    """The documents build with the kernel's Sphinx without new warnings."""
    import gates
    gates.group_docs(tally)


def group_matrix(tally):
    """The touched objects at W=1: all configurations, two also with clang."""
    import gates
    gates.group_matrix(tally, TWO_CONFIGS)


def check_yield(tally, trees):
    """The tests of sched_yield() pass, and some cases fail on the base."""
    title = "selftests/sched"
    try:
        programs = [bench.build_test(trees["series"], name=name,
                                     folder="sched") for name in YIELD_TESTS]
    except Fail as failure:
        tally.fail(title, failure)
        return
    run_yield(tally, title, trees["series"], programs, "yield-tests")
    run_yield(tally, f"{title}, 2 CPUs", trees["series"], programs,
              "yield-tests-cpus", cpus=2, arguments="-v many_cpus")
    try:
        with stage("running the tests of sched_yield() on the base"):
            found = boot_yield(trees["base"], programs, "yield-tests-base")
    except Fail as failure:
        tally.fail(f"{title} on the base", failure)
        return
    for kind in YIELD_CONTROLS:
        what = f"{title}: {kind}_* fails on the base"
        if any(re.search(rf"^not ok \d+ yield\.{kind}_", text, re.M)
               for text in found.values()):
            tally.ok(what)
        else:
            tally.fail(what, "it does not: this proves nothing; see "
                       f"{shown_path(LOGS)}/yield-tests-base.ktap")


def harness_reason(text, case):
    """Return what the kselftest harness said of a case that failed (str).

    text: KTAP (str) of the program; its comments stand between the case's
    "RUN" and its result.
    """
    found = re.search(rf"^# +RUN +{re.escape(case)} \.\.\.\n(.*?)"
                      rf"^# +FAIL +{re.escape(case)}$", text, re.M | re.S)
    lines = [line.lstrip("# ") for line in found.group(1).splitlines()
             if line.strip("# ")] if found else []
    return " | ".join(lines[:4]) or "it does not say why"


def boot_yield(kernel, programs, name, cpus=1, arguments=""):
    """Boot a built kernel and run tests of sched_yield() in it.

    With one CPU, in a guest whose clock counts instructions: a host that
    takes the CPU away in mid-call would otherwise make them skip what it
    spoilt.  Without another clock to check it by, the kernel has to be told
    that it is good enough for timers that are finer than the tick.
    Returns {program: KTAP (str)}; all of it is in build/logs/NAME.ktap.
    """
    result = boot(
        kernel, "; ".join([*(f"echo '## {path.name}'; {path} {arguments}"
                             for path in programs), "true"]),
        cpus=cpus, icount="wait-idle" if cpus == 1 else None, timeout=900,
        name=name, append=("tsc=reliable",) if cpus == 1 else ())
    write_atomically(LOGS / f"{name}.ktap", result.output)
    return dict(part.split("\n", 1) for part in
                result.output.split("## ")[1:] if "\n" in part)


def run_yield(tally, title, kernel, programs, name, **options):
    """Run tests of sched_yield() on a built kernel; count each case.

    programs: paths (Path) of some of YIELD_TESTS; name: of the guest and its
    log; options: of boot_yield().
    """
    try:
        with stage(f"running the tests of sched_yield(), {title}"):
            parts = boot_yield(kernel, programs, name, **options)
    except Fail as failure:
        tally.fail(title, failure)
        return
    log = LOGS / f"{name}.ktap"
    for path in programs:
        text = parts.get(path.name, "")
        rows = re.findall(r"^(ok|not ok) \d+ (\S+)(.*)$", text, re.M)
        plan = re.search(r"^1\.\.(\d+)$", text, re.M)
        if not plan or len(rows) != int(plan.group(1)):
            tally.fail(f"{title}: {path.name}", f"{len(rows)} of its cases "
                       f"ran; see {shown_path(log)}")
        for verdict, case, rest in rows:
            what = f"{title}: {path.name}: {case}"
            if "# SKIP" in rest:
                tally.skip(what, rest.split("# SKIP")[1].strip())
            elif verdict == "ok":
                tally.ok(what)
            else:
                tally.fail(what, f"{harness_reason(text, case)}; "
                           f"see {shown_path(log)}")


GROUPS = {"scripts": group_scripts, "series": group_series,
          "prefixes": group_prefixes, "tools": group_tools,
          "docs": group_docs, "matrix": group_matrix,
          "kernels": group_kernels, "debug": group_debug}
# Another kernel to build, so it is run by its name: make check-debug.
USUAL = tuple(name for name in GROUPS if name != "debug")


def run_groups(tally, groups, job=None):
    """Run groups (dict from name to function); each must count a test.

    job: "check" or "gates", to keep that this series passed a group; None
    when only a part of it runs.
    """
    key = series_key() if job else None
    for name, function in groups.items():
        passed, skipped, bad = tally.passed, tally.skipped, tally.failed
        say(f"==> {name}: {function.__doc__}")
        try:
            function(tally)
        except Fail as failure:
            tally.fail(name, failure)
        if tally.passed + tally.failed == passed + bad:
            tally.fail(name, "nothing of it ran")
        if job and tally.failed == bad:
            record_gate(f"{job}: {name}", key, tally.passed - passed,
                        tally.skipped - skipped)


def main():
    parser = argparse.ArgumentParser(description=__doc__.split("\n\n")[0])
    parser.add_argument("--only", action="append", choices=list(GROUPS),
                        help="run only this group (may be repeated; "
                             f"default: {', '.join(USUAL)})")
    options = parser.parse_args()
    start = time.monotonic()
    tally = Tally()
    LOGS.mkdir(parents=True, exist_ok=True)
    with build_lock():
        run_groups(tally, {name: GROUPS[name]
                           for name in options.only or USUAL}, "check")
    say(f"took {duration(time.monotonic() - start)}")
    say(f"{tally.passed} passed, {tally.failed} failed, "
        f"{tally.skipped} skipped")
    return 1 if tally.failed or not tally.passed else 0


if __name__ == "__main__":
    run_main(main)
