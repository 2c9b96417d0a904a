# SPDX-License-Identifier: GPL-2.0-only
"""Check the patches and the tools; at most 25 minutes on two processors.

The tests of the tools, the patch files, and both kernels with their selftests.
Ends with what has not run on these patches, such as 'make gates', and the line
`N passed, N failed, N skipped`.  A skip that tools/configs/expected-skips does
not list is a failure.
"""

import argparse
import contextlib
import functools
import os
import re
import shutil
import subprocess
import sys
import time
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any
from xml.etree import ElementTree

from tools import ktap, measure_ports, measure_yield
from tools.build import (BENCH, build_selftests, build_sides, make_arguments,
                         selftest_names, source)
from tools.core import (BUILD, CPUS, GIT_IDENTITY, KERNEL, LOGS, ROOT, SIDES,
                        Fail, at_once, build_lock, duration, git, need_space,
                        need_tool, run_logged, run_main, say, scratch,
                        shown_path, stage, tail, write_atomically)
from tools.count import Count, run_groups
from tools.guest import boot, check_splat, choose_kvm
from tools.guest.tiny import EMULATED, boot_tiny
from tools.mutants import read_mutants
from tools.selftests import (ALL_PORTS, RACE, RACE_CASES, YIELD_TESTS,
                             arguments_of, boot_yield, count_yield, install,
                             port_tests, race_command, race_result,
                             run_installed)
from tools.records import gaps
from tools.series.apply import (PATCHES, begin, has_yield, series_patches,
                                sparse_tree, touched_files)
from tools.series.base import ME, REPO
from tools.series.checkpatch import checkpatch, checkpatch_tree
from tools.series.export import differences, write_export

TESTS = ROOT / "tools/tests"
LTP_CALLS = BENCH / "ltp_calls.pl"
TESTS_SECONDS = 900
TAGS = r"^(Signed-off-by|Reviewed-by|Acked-by|Tested-by|Co-developed-by):"
# The drop window is one instruction boundary: on the base, the case that is
# hardest to hit is hit 13 times in 200000 wake-ups.
RACE_SECONDS = 1200
RACE_WAKES = 100000
RACE_SEEDS = 12
# Cases of these names must fail on the base, or they prove nothing.
YIELD_CONTROLS = ("share",)


# --- the tools -------------------------------------------------------------

def group_scripts(count: Count) -> None:
    """The tests of the tools (tools/tests)."""
    need_space(BUILD, 0.5, "the tests of the tools")
    report, log = LOGS / "scripts.xml", LOGS / "scripts.log"
    report.unlink(missing_ok=True)
    status = run_logged(
        [sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider",
         "--continue-on-collection-errors", f"--junitxml={report}",
         str(TESTS)],
        log, cwd=ROOT, timeout=TESTS_SECONDS, check=False,
        progress=lambda log: "".join(
            re.findall(r"\[ *\d+%\]", log.read_text())[-1:]))
    cases: list[ElementTree.Element] = []
    # On a full disk there is half a report.
    with contextlib.suppress(OSError, ElementTree.ParseError):
        cases = [*ElementTree.parse(report).iter("testcase")]
    # pytest's own status: 0 all passed, 1 some failed, 2 and more no result.
    if status not in (0, 1) or not cases:
        raise Fail(f"pytest did not run ('make deps' installs it); the end "
                   f"of {shown_path(log)}:\n{tail(log)}")
    for case in cases:
        place = case.get("classname", "").rpartition(".")[2]
        why = next((child for child in case if child.tag in (
            "failure", "error", "skipped")), None)
        word = "ok" if why is None else \
            "skip" if why.tag == "skipped" else "fail"
        # A row of expected-skips may ask for the reason of a skip.
        count.add(word, f"scripts: {place}: {case.get('name')}", "" if why is
                  None else why.get("message", "").partition("\n")[0]
                  + f" (all of it: {shown_path(log)})" * (word == "fail"))


# --- the patch files -------------------------------------------------------

def check_tags(text: str) -> None:
    """A patch says who made it, and has no tag that only people may give."""
    found = re.search(TAGS, text, re.M)
    if found:
        raise Fail(f"{found.group(0)} is for people to give")
    if not re.search(r"^Assisted-by: LLM", text, re.M):
        raise Fail("no Assisted-by: tag")


def check_readme(tip: str) -> None:
    """The lines of README.md apply the series, with quilt and git am, and
    quilt pop -a takes it back: from a clone with core.autocrlf=true, by a user
    with a quiltrc, to a tree that has a .pc.

    Without fuzz.  A patch that several kernels share may find its place at an
    offset.
    """
    need_tool("quilt", "quilt")
    names, log = series_patches(), LOGS / "readme.log"
    touched = touched_files(names)
    choice, quiltrc, quilt, am = re.findall(
        "^(?:series=|export QUILT|quilt|git am).*",
        (ROOT / "README.md").read_text(), re.M)
    path = f"$repo/patches/{KERNEL}/series" if KERNEL else "$repo/series"
    if path not in choice:
        raise Fail(f"README.md does not name {path}")

    with scratch("readme") as place:
        def run(tree: Path, lines: str) -> str:
            run_logged(["sh", "-ec", f"series={path}\n{lines}"], log, cwd=tree,
                       env=os.environ | GIT_IDENTITY | {
                           "repo": str(place / "clone"), "HOME": str(place)},
                       what="what README.md says")
            return log.read_text(errors="replace")

        (place / ".quiltrc").write_text("QUILT_PATCHES=debian/patches\n")
        for name in (".gitattributes", "series"):
            shutil.copy(ROOT / name, place)
        shutil.copytree(PATCHES, place / "patches")
        git("init", "-q", cwd=place)
        git("add", ".", cwd=place)
        git("commit", "-q", "-m", "all", cwd=place, env=ME)
        git("clone", "-q", "-c", "core.autocrlf=true", place, place / "clone")
        with sparse_tree("base", touched) as tree:
            # As dpkg-source leaves it.
            for name, text in ((".version", "2"), (".quilt_series", "series"),
                               (".quilt_patches", "debian/patches"),
                               ("applied-patches", "own.patch")):
                write_atomically(tree / ".pc" / name, text + "\n")
            write_atomically(tree / "debian/patches/series", "own.patch\n")
            said = run(tree, f"{quiltrc}\n{quilt}")
            if "with fuzz" in said or "offset" in said and not KERNEL:
                raise Fail("quilt needed fuzz or an offset; see "
                           + shown_path(log))
            if said.split()[-2:] != [str(len(names))] * 2:
                raise Fail(f"quilt applied {said.split()[-2:]} of "
                           f"{len(names)} patches")
            git("add", "-f", "--", *touched, cwd=tree)
            wrong = git("diff", "--cached", "--name-only", tip, cwd=tree)
            run(tree, f"{quiltrc}\nquilt --quiltrc - pop -a")
        # As an editor of another system saves it.
        for file in (place / "clone").glob("**/series"):
            file.write_bytes(file.read_bytes().replace(b"\n", b"\r\n"))
        with sparse_tree("base", touched) as tree:
            run(tree, am)
            wrong += git("diff", "--name-only", "HEAD", tip, cwd=tree)
    if wrong:
        raise Fail(f"README.md gives a different {wrong.strip()}")


def check_export(tip: str) -> None:
    """Exporting what the patches give changes nothing, byte for byte.

    So the names and numbers of patches/ are right and series has all of them.
    """
    with scratch("export") as place:
        write_export(tip, place)
        changes = differences(place)
    if changes:
        raise Fail("not in sync ('make tree', then 'make export'): "
                   + "; ".join(map(" ".join, changes.items())))


def check_mutants(tip: str) -> None:
    """Each diff of tools/mutants applies to the series."""
    found, wrong = read_mutants(""), []
    with scratch("mutants") as place:
        index = {"GIT_INDEX_FILE": str(place / "index")}
        git("read-tree", tip, cwd=REPO, env=index)
        for job in found:
            try:
                git("apply", "--cached", "--check", "-", cwd=REPO, env=index,
                    data=job.diff)
            except Fail:
                wrong.append(job.name)
    if wrong:
        raise Fail(f"of {len(found)}, these do not: {', '.join(wrong)}")


def check_checkpatch(tree: Path, text: str) -> None:
    """checkpatch refuses a trailing space in a patch."""
    try:
        checkpatch(re.sub(r"^(\+.*;)$", r"\1 ", text, count=1, flags=re.M),
                   tree, "--no-signoff")
    except Fail as failure:
        if "TRAILING_WHITESPACE" in str(failure):
            return
    raise Fail("it is not seen")


def group_series(count: Count) -> None:
    """The patch files: git am, quilt, names, copies, tags, checkpatch."""
    tip = begin()
    count.ok("series: git am")
    count.run("series: README's lines apply it", check_readme, tip)
    count.run("series: names and exported copies in sync", check_export, tip)
    if not KERNEL:
        count.run("tools/mutants applies to the series", check_mutants, tip)
    texts = {name: (PATCHES / name).read_text(errors="replace")
             for name in series_patches()}
    for name, text in texts.items():
        count.run(f"tags: {name}", check_tags, text)
    with scratch("checkpatch") as place, \
            ThreadPoolExecutor(CPUS) as pool:
        tree = checkpatch_tree(place)
        count.run("checkpatch: sees a trailing space", check_checkpatch, tree,
                  texts[series_patches()[0]])
        # The person who submits adds the Signed-off-by.
        jobs = {name: pool.submit(checkpatch, text, tree, "--no-signoff")
                for name, text in texts.items()}
        for name, job in jobs.items():
            count.run(f"checkpatch: {name}", job.result)


# --- kernels and their tests -----------------------------------------------

Folders = dict[str, Path]  # the objects of base and series


def check_boot(folder: Path, side: str, kvm: bool) -> None:
    """A kernel boots, is the one that was built, and warns of nothing; LTP's
    calls do there what LTP expects."""
    built = (folder / "include/config/kernel.release").read_text().strip()
    result = boot(folder, f"[ $(uname -r) = {built} ] || exit 9; "
                  + ktap.script({"LTP": str(LTP_CALLS)}), cpus=2, kvm=kvm,
                  timeout=180, name=f"boot-{side}")
    if result.status == 9:
        raise Fail(f"it is not {built}")
    verdict, words = ktap.verdict(ktap.split(result.output, ["LTP"])["LTP"])
    if verdict != "pass":
        raise Fail(f"LTP's calls: {words}; see {shown_path(LOGS)}/"
                   f"boot-{side}.ktap")
    check_splat(result.console)


def compare_selftests(count: Count, folders: Folders, kvm: bool) -> None:
    """No x86 selftest does worse on the series than on the base.

    What passes on the series does not, so the base only runs the others.
    """
    trees = {"base": source("base"), "series": source("applied")}
    places = {side: install(side, trees[side], ("x86",),
                            make_arguments(side)) for side in SIDES}
    wanted = {side: {Path(name).name for name in selftest_names(
        trees[side], "x86")} for side in SIDES}
    found: dict[str, dict[str, str]] = {side: {} for side in SIDES}

    def run(side: str, names: set[str], again: str = "") -> None:
        chosen = sorted(names & wanted[side])
        if chosen:
            with stage(f"running {len(chosen)} of selftests/x86 of {side}"):
                found[side] |= run_installed(
                    folders[side], places[side], f"kselftest-{side}{again}",
                    kvm, chosen)

    def verdicts(name: str) -> list[str | None]:
        return [found[side].get(name) for side in SIDES]

    run("series", wanted["series"])
    run("base", {name for name in wanted["series"]
                 if found["series"].get(name) != "pass"})
    # Emulation makes tests of timing and of faults flaky. One more run of
    # both sides tells a flake of the base from a fault of the series; a test
    # of I/O ports gets no second chance.
    again = {name for name in wanted["series"]
             if ktap.is_worse(*verdicts(name)) and not name.startswith("iop")}
    for side in SIDES:
        run(side, again, "-again")
    for name in sorted(wanted["series"]):
        before, after = verdicts(name)
        verdict = "fail" if ktap.is_worse(before, after) else \
            "pass" if after == "pass" else "skip"
        count.add(verdict, f"selftests/x86: {name}", "" if verdict == "pass"
                  else f"{after or 'did not run'}, {before or 'not there'} on "
                  f"the base; see {shown_path(LOGS)}/kselftest-series.ktap")


def run_twice(measure: Callable[[str], list[Any]], number: int) -> list[Any]:
    """Return what a measurement gives, so many cases, and gives again at the
    same time; measure: takes the name of its guest."""
    one, other = at_once({
        f"measuring, run {turn} of 2": functools.partial(
            measure, f"repeat-{turn}") for turn in (1, 2)}).values()
    if len(one) != number:
        raise Fail(f"{len(one)} of {number} cases ran")
    if one != other:
        raise Fail("; ".join(f"{first} and {second}" for first, second
                             in zip(one, other) if first != second))
    return one


def check_ports(folder: Path) -> None:
    """The medians repeat to the digit, and the base pays for a high port.

    That is what was observed in 2004: a measurement that does not show it on
    the base does not measure it.
    """
    cases = ("none", "pair-0x80-0x81", "pair-0x80-65535")
    measure_ports.build_programs()
    none, low, high = (p50 for _, p50 in run_twice(lambda name: [
        (case["name"], case["p50"]) for case in measure_ports.measure_ports(
            folder, name, cases)["cases"] if case["status"] == "ok"], 3))
    if low >= 1.15 * none or not 2.5 * none < high < 8 * none:
        raise Fail(f"a low and a high port cost {low / none:.2f} and "
                   f"{high / none:.2f} times as much as none")


def check_yields(folder: Path) -> None:
    """All figures of the series repeat, with the feature bit off and on."""
    cases = ("switch-proc-10", "switch-thread-2",
             "polite-100us-slice-2.8ms-hogs-3")
    measure_yield.build_program()
    run_twice(lambda name: [case for case in measure_yield.measure_yield(
        folder, "series", cases, name=name)["cases"]
        if case["status"] == "ok"], 2 * len(cases))


def count_controls(count: Count, title: str, texts: dict[str, str]) -> None:
    """Count that some tests of sched_yield() fail on the base."""
    failed = [case for text in texts.values()
              for case in ktap.parse(text).those("fail")]
    for kind in YIELD_CONTROLS:
        fails = any(case.startswith(f"yield.{kind}_") for case in failed)
        count.test(f"{title}: {kind}_* fails on the base", not fails and (
            "it does not: this proves nothing; see "
            f"{shown_path(LOGS)}/yield-tests-base.ktap"))


def check_counted(count: Count, folders: Folders) -> None:
    """The drop window is there on the base alone, and the tests of
    sched_yield() pass on the series, and not all of them on the base.

    The clock of their guests counts instructions, and in those of the window
    skips idle time.  On the base each case of the window is tried with one
    seed after the other until it hits, because zero hits on the series prove
    something only then.
    """
    program, = build_selftests([RACE]).values()
    commands = {
        "series": f"{program} --seed 1 --wakes {RACE_WAKES}",
        "base": race_command(program, RACE_CASES, range(1, RACE_SEEDS + 1),
                             RACE_WAKES // 4)}
    # Each keeps one processor busy; the longest comes first.
    work: dict[str, Callable[[], Any]] = {
        f"drop window on the {side}": functools.partial(
            boot, folders[side], command, f"race-{side}", cpus=1,
            icount="skip-idle", timeout=RACE_SECONDS)
        for side, command in commands.items()}
    title = "selftests/sched"
    if has_yield():
        programs = list(build_selftests(
            [f"sched/{name}" for name in YIELD_TESTS]).values())
        work |= {f"{title} on the {side}": functools.partial(
            boot_yield, folders[side], programs, f"yield-tests-{side}")
            for side in commands}
    done = at_once(work)
    for side in commands:
        said = done[f"drop window on the {side}"].output
        for case in RACE_CASES:
            figures, fault = race_result(said, case, side, RACE_WAKES)
            count.test(f"drop window: {case} on {side}", fault and (
                f"{fault} ({figures}); see {shown_path(LOGS)}/race-{side}.ktap"
                ))
    if has_yield():
        count_yield(count, title, done[f"{title} on the series"],
                    "yield-tests-series")
        count_controls(count, title, done[f"{title} on the base"])


def ports_read(folder: Path, name: str, programs: Sequence[Path]) -> set[int]:
    """Return the ports without a device, and 0x80, that are read in a guest
    which runs programs."""
    trace = LOGS / f"{name}.trace"
    trace.unlink(missing_ok=True)
    boot_tiny(folder / "arch/x86/boot/bzImage", [(path, [
        word for word in arguments_of(path) if word != ALL_PORTS])
        for path in programs], bits=64, name=name, seconds=400, timeout=1200,
        machine=(*EMULATED, "-trace", "memory_region_ops_read", "-D",
                 str(trace)), append="no_timer_check")
    return {port for first, size in re.findall(
        r"addr (0x\w+) value \w+ size (\d) name 'io(?:port80)?'$",
        trace.read_text(), re.M)
        for port in range(int(first, 16), int(first, 16) + int(size))}


def check_reads(folder: Path, side: str, programs: Sequence[Path]) -> str:
    """Without --all-ports the tests read few ports, and below 0x1000 only the
    delay ports.  What firmware and kernel read does not count."""
    found = ports_read(folder, f"reads-{side}", programs) - ports_read(
        folder, f"reads-{side}-none", [])
    low = {port for port in found if port < 0x1000}
    if low != {0x80, 0xed} or not 10 < len(found) <= 64:
        raise Fail(f"{len(found)} ports, below 0x1000 are "
                   + ", ".join(map(hex, sorted(low)[:9])))
    return f"{len(found)} ports"


def accessor_uses(tree: Path) -> list[str]:
    """Return what tools/coccinelle/io_bitmap.cocci finds in a kernel tree."""
    need_tool("spatch", "coccinelle")
    files = git("grep", "-lw", "io_bitmap", "--", "arch/x86",
                ":!arch/x86/kernel/ioport.c", cwd=tree).split()
    done = subprocess.run(
        ["spatch", "--no-includes", "--include-headers", "-D", "report",
         "--sp-file", str(ROOT / "tools/coccinelle/io_bitmap.cocci"), *files],
        cwd=tree, capture_output=True, text=True)
    if done.returncode or "HANDLING" not in done.stderr + done.stdout:
        raise Fail(f"spatch did not run: {done.stderr.strip()[-300:]}")
    return [row for row in done.stdout.splitlines()
            if "direct use of an I/O bitmap" in row]


def check_accessor() -> None:
    """Only ioport.c looks into an I/O bitmap; the rule finds the base's."""
    if not accessor_uses(source("base")):
        raise Fail("the rule finds nothing on the base, where three files "
                   "do: it does not work")
    found = accessor_uses(source("applied"))
    if found:
        raise Fail("; ".join(found))


def group_kernels(count: Count) -> None:
    """Both kernels build, boot, and pass the in-tree tests."""
    folders = build_sides()
    count.ok("kernel: base and series build")
    count.run("coccinelle: only ioport.c looks into an I/O bitmap",
              check_accessor)
    kvm = choose_kvm(folders["base"])
    for side in SIDES:
        if not count.run(f"kernel: {side} boots, LTP's calls do as LTP expects",
                         check_boot, folders[side], side, kvm):
            return
    count.run("ioperm_latency: repeats, and the base pays for a high port",
              check_ports, folders["base"])
    if has_yield():
        count.run("yield_latency: repeats", check_yields, folders["series"])
    count.run("drop window, selftests/sched: both sides ran", check_counted,
              count, folders)
    programs = list(build_selftests(port_tests(source("applied"), "_64"),
                                    flags=("-static",)).values())
    for side in SIDES:
        count.run(f"selftests/x86: few ports are read on the {side}",
                  check_reads, folders[side], side, programs)
    count.run("selftests/x86: both sides ran", compare_selftests, count,
              folders, kvm)


GROUPS: dict[str, Callable[[Count], None]] = {
    "scripts": group_scripts, "series": group_series,
    "kernels": group_kernels}


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.partition("\n\n")[0])
    parser.add_argument("--only", action="append", choices=list(GROUPS),
                        metavar="GROUP", help="only this group, may be given "
                        f"again: {', '.join(GROUPS)}")
    options = parser.parse_args()
    # The tools are the same for all kernels.
    names = options.only or [name for name in GROUPS
                             if not (KERNEL and name == "scripts")]
    start, count = time.monotonic(), Count()
    with build_lock():
        run_groups(count, {name: GROUPS[name] for name in names}, "check")
    say(f"took {duration(time.monotonic() - start)}")
    for line in gaps():
        say(line)
    say(count.last_line())
    return count.status()


if __name__ == "__main__":
    run_main(main)
