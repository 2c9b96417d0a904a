# SPDX-License-Identifier: GPL-2.0-only
"""Check the patches and the tools: make check.

The tests of the tools, the patch files, and both kernels with their selftests.
A skip that tools/configs/expected-skips does not list is a failure.
"""

import os
import re
import subprocess
import sys
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from pathlib import Path
from typing import Any

from tools import build, guest, ktap, measure_ports, measure_yield, selftests
from tools.core import (CPUS, GIT_IDENTITY, PATCHES, ROOT, SIDES, Fail, Given,
                        Kernel, at_once, build_lock, git, need_space,
                        need_tool, run_git, run_logged, scratch,
                        shown_path, stage, tail)
from tools.count import Count, Groups, chosen, run_groups
from tools.guest.tiny import EMULATED, boot_tiny
from tools.planted_bugs import read_mutants
from tools.selftests import RACE, RACE_CASES, RACE_OTHERS, YIELD_TESTS
from tools.series.apply import (begin, has_yield, series_patches, sparse_tree,
                                touched_files)
from tools.series.base import ME
from tools.series.checkpatch import checkpatch, checkpatch_tree
from tools.series.export import differences, write_export

TESTS = ROOT / "tools/tests"
TAGS = r"^(Signed-off-by|Reviewed-by|Acked-by|Tested-by|Co-developed-by):"
# The drop window is one instruction boundary: on the base, the case that is
# hardest to hit is hit 13 times in 200000 wake-ups.
RACE_SECONDS, RACE_WAKES, RACE_SEEDS = 1200, 100000, 12


def group_scripts(kernel: Kernel, count: Count) -> None:
    """The tests of the tools (tools/tests)."""
    need_space(kernel.build, 0.5, "the tests of the tools")
    log = kernel.logs / "scripts.log"
    status = run_logged(
        [sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider",
         "-rap", "--no-fold-skipped", "--continue-on-collection-errors",
         str(TESTS)], log, cwd=ROOT, timeout=900, check=False)
    rows = re.findall(
        r"^(PASSED|FAILED|ERROR|SKIPPED) \S*?(test_\w+\.py.*?)(?: - (.*))?$",
        log.read_text().rpartition("short test summary info")[2], re.M)
    # 0: all passed, 1: some failed, others: no result.
    if status not in (0, 1) or not rows:
        raise Fail(f"pytest did not run ('make deps' installs it); the end "
                   f"of {shown_path(log)}:\n{tail(log)}")
    for word, name, why in rows:
        count.add({"PASSED": "ok", "SKIPPED": "skip"}.get(word, "fail"),
                  f"scripts: {name}", why)


# --- the patch files -------------------------------------------------------

def check_tags(text: str) -> None:
    """A patch says who made it, and has no tag that only people may give."""
    if found := re.search(TAGS, text, re.M):
        raise Fail(f"{found[0]} is for people to give")
    if not re.search(r"^Assisted-by: LLM", text, re.M):
        raise Fail("no Assisted-by: tag")


def check_readme(kernel: Kernel, tip: str) -> None:
    """The lines of README.md apply the series, without fuzz; a patch that
    several kernels share may find its place at an offset."""
    need_tool("quilt", "quilt")
    names, log = series_patches(kernel), kernel.logs / "readme.log"
    touched = touched_files(names)
    with scratch("readme") as place, \
            sparse_tree(kernel, "base", touched) as one, \
            sparse_tree(kernel, "base", touched) as two:
        run_logged([str(ROOT / "tools/apply-readme"),
                    str(kernel.series.relative_to(ROOT)), tip, str(one),
                    str(two), *touched], log, cwd=place,
                   # quilt leaves a folder in TMPDIR when it fails.
                   env=os.environ | GIT_IDENTITY | ME | {
                       "HOME": str(place), "TMPDIR": str(place)},
                   what="what README.md says")
    said = log.read_text(errors="replace")
    if "with fuzz" in said or "(offset" in said and not kernel.name:
        raise Fail(f"quilt needed fuzz or an offset; see {shown_path(log)}")
    if f"\n{len(names)}\n{len(names)}\n" not in said:
        raise Fail(f"quilt did not apply all; see {shown_path(log)}")


def check_export(kernel: Kernel, tip: str) -> None:
    """Exporting what the patches give changes nothing, byte for byte."""
    with scratch("export") as place:
        write_export(kernel, tip, place)
        changes = differences(kernel, place)
    if changes:
        raise Fail("not in sync ('make tree', then 'make export'): "
                   + "; ".join(map(" ".join, changes.items())))


def check_mutants(kernel: Kernel, tip: str) -> str:
    """Each diff of tools/mutants applies to the series."""
    found = read_mutants(kernel)
    with scratch("mutants") as place:
        index = {"GIT_INDEX_FILE": str(place / "index")}
        git("read-tree", tip, cwd=kernel.repo, env=index)
        wrong = [bug.name for bug in found if run_git(
            "apply", "--cached", "--check", "-", cwd=kernel.repo, env=index,
            data=bug.diff.encode()).returncode]
    if wrong:
        raise Fail(f"of {len(found)}, these do not: {', '.join(wrong)}")
    return f"{len(found)} bugs"


def check_checkpatch(kernel: Kernel, tree: Path, text: str) -> None:
    """checkpatch refuses a trailing space in a patch."""
    wrong = re.sub(r"^(\+.*;)$", r"\1 ", text, count=1, flags=re.M)
    try:
        checkpatch(kernel, wrong, tree, "--no-signoff")
    except Fail as failure:
        if "TRAILING_WHITESPACE" in str(failure):
            return
    raise Fail("it is not seen")


def group_series(kernel: Kernel, count: Count) -> None:
    """The patch files: git am, quilt, names, copies, tags, checkpatch."""
    tip = begin(kernel)
    count.ok("series: git am")
    count.run("series: README's lines apply it", check_readme, kernel, tip)
    count.run("series: names and exported copies in sync", check_export,
              kernel, tip)
    count.run("tools/mutants applies to the series", check_mutants, kernel,
              tip)
    texts = {name: (PATCHES / name).read_text(errors="replace")
             for name in series_patches(kernel)}
    for name, text in texts.items():
        count.run(f"tags: {name}", check_tags, text)
    with scratch("checkpatch") as place, ThreadPoolExecutor(CPUS) as pool:
        tree = checkpatch_tree(kernel, place)
        count.run("checkpatch: sees a trailing space", check_checkpatch,
                  kernel, tree, [*texts.values()][0])
        # The person who submits adds the Signed-off-by.
        jobs = {name: pool.submit(checkpatch, kernel, text, tree,
                                  "--no-signoff")
                for name, text in texts.items()}
        for name, job in jobs.items():
            count.run(f"checkpatch: {name}", job.result)


# --- kernels and their tests -----------------------------------------------

def check_accessor(kernel: Kernel) -> None:
    """Only ioport.c looks into an I/O bitmap; the rule finds the base's."""
    need_tool("spatch", "coccinelle")
    found = {}
    for commit in ("base", "applied"):
        tree = build.source(kernel, commit)
        files = git("grep", "-lw", "io_bitmap", "--", "arch/x86",
                    ":!arch/x86/kernel/ioport.c", cwd=tree).split()
        done = subprocess.run(
            ["spatch", "--no-includes", "--include-headers", "-D", "report",
             "--sp-file", str(ROOT / "tools/coccinelle/io_bitmap.cocci"),
             *files], cwd=tree, capture_output=True, text=True)
        if done.returncode or "HANDLING" not in done.stderr + done.stdout:
            raise Fail(f"spatch did not run: {done.stderr.strip()[-300:]}")
        found[commit] = re.findall(".*direct use of an I/O bitmap.*",
                                   done.stdout)
    if found["applied"] or not found["base"]:
        raise Fail("; ".join(found["applied"]) or "the rule does not work: it "
                   "finds nothing on the base, where three files do")


def check_boot(kernel: Kernel, folder: Path, side: str, kvm: bool) -> None:
    """A kernel boots, is the one that was built, and warns of nothing; LTP's
    calls do there what LTP expects."""
    log = kernel.logs / f"boot-{side}"
    built = (folder / "include/config/kernel.release").read_text().strip()
    result = guest.boot(
        folder, f"[ $(uname -r) = {built} ] || exit 9; " + ktap.script(
            {"LTP": str(build.BENCH / "ltp_calls.pl")}),
        log, cpus=2, kvm=kvm, timeout=180)
    if result.status == 9:
        raise Fail(f"it is not {built}")
    verdict, words = ktap.verdict(ktap.split(result.output, ["LTP"])["LTP"])
    if verdict != "pass":
        raise Fail(f"LTP's calls: {words}; see {shown_path(log)}.ktap")
    guest.check_splat(result.console)


def run_twice(measure: Callable[[str], list[Any]], number: int) -> list[Any]:
    """Return the figures that a measurement gives, of so many cases, and gives
    again at the same time; measure: takes the name of its guest."""
    one, other = at_once({f"measuring, {name}": partial(measure, name)
                          for name in ("repeat-1", "repeat-2")}).values()
    if len(one) != number:
        raise Fail(f"{len(one)} of {number} cases ran")
    if one != other:
        raise Fail("; ".join(f"{first} and {second}" for first, second
                             in zip(one, other) if first != second))
    return one


def check_ports(kernel: Kernel, folder: Path) -> None:
    """The medians repeat to the digit, and the base pays for a high port, as
    was observed in 2004: what does not show that does not measure it."""
    cases = ("none", "pair-0x80-0x81", "pair-0x80-65535")
    measure_ports.build_programs(kernel)
    none, low, high = run_twice(lambda name: [
        case["p50"] for case in measure_ports.measure_ports(
            kernel, folder, name, cases)["cases"] if case["status"] == "ok"],
        3)
    if low >= 1.15 * none or not 2.5 * none < high < 8 * none:
        raise Fail(f"a low and a high port cost {low / none:.2f} and "
                   f"{high / none:.2f} times as much as none")


def check_yields(kernel: Kernel, folder: Path) -> None:
    """All figures of the series repeat, with the feature bit off and on."""
    cases = ("switch-proc-10", "switch-thread-2",
             "polite-100us-slice-2.8ms-hogs-3")
    measure_yield.build_program(kernel)
    run_twice(lambda name: [case for case in measure_yield.measure_yield(
        kernel, folder, "series", cases, name=name)["cases"]
        if case["status"] == "ok"], 2 * len(cases))


def check_counted(kernel: Kernel, count: Count,
                  folders: dict[str, Path]) -> None:
    """The drop window is there on the base alone, and the tests of
    sched_yield() pass on the series, and not all of them on the base.

    The clock of their guests counts instructions.  On the base each case of
    the window is tried with one seed after the other until it hits, because
    zero hits on the series prove something only then.
    """
    title, logs, both = "selftests/sched", kernel.logs, has_yield(kernel)
    program, = build.build_selftests(kernel, [RACE]).values()
    programs = [*build.build_selftests(kernel, [
        f"sched/{name}" for name in YIELD_TESTS] * both).values()]
    commands = {
        "series": f"{program} --seed 1 --wakes {RACE_WAKES}",
        "base": selftests.race_command(
            program, RACE_CASES, range(1, RACE_SEEDS + 1), RACE_WAKES // 4)}
    # Each keeps one processor busy; the longest comes first.
    done = at_once({f"drop window on the {side}": partial(
        guest.boot, folders[side], command, logs / f"race-{side}", cpus=1,
        icount="skip-idle", timeout=RACE_SECONDS)
        for side, command in commands.items()} | {
        f"{title} on the {side}": partial(
            selftests.boot_yield, folders[side], programs,
            logs / f"yield-tests-{side}") for side in commands if both})
    for side in commands:
        said = done[f"drop window on the {side}"].output
        for case in RACE_CASES + RACE_OTHERS * (side == "series"):
            figures, fault = selftests.race_result(said, case, side,
                                                   RACE_WAKES)
            count.test(f"drop window: {case} on {side}", fault and
                       f"{fault} ({figures}); see {shown_path(logs)}/race-*")
    if both:
        selftests.count_yield(count, title, done[f"{title} on the series"],
                              logs / "yield-tests-series")
        failed = [case for text in done[f"{title} on the base"].values()
                  for case in ktap.parse(text).those("fail")]
        # They must fail there, or they prove nothing.
        count.test(f"{title}: share_* fails on the base", not any(
            case.startswith("yield.share_") for case in failed) and
            f"it does not; see {shown_path(logs)}/yield-tests-base.ktap")


def check_reads(folder: Path, log: Path, programs: Sequence[Path]) -> str:
    """Without --all-ports the tests read few of the ports that have no device,
    and below 0x1000 only the delay ports.  What firmware and kernel read, as
    in a guest without tests, does not count."""
    found: list[set[int]] = []
    trace = Path(f"{log}.trace")
    for chosen in ((), programs):
        trace.unlink(missing_ok=True)
        boot_tiny(folder / "arch/x86/boot/bzImage", [(path, [
            word for word in selftests.arguments_of(path)
            if word != selftests.ALL_PORTS]) for path in chosen], log, bits=64,
            timeout=1200, append="no_timer_check",
            machine=(*EMULATED, "-trace", "memory_region_ops_read", "-D",
                     str(trace)))
        found.append({port for first, size in re.findall(
            r"addr (0x\w+) value \w+ size (\d) name 'io(?:port80)?'$",
            trace.read_text(), re.M)
            for port in range(int(first, 16), int(first, 16) + int(size))})
    ports = found[1] - found[0]
    low = {port for port in ports if port < 0x1000}
    if low != {0x80, 0xed} or not 10 < len(ports) <= 64:
        raise Fail(f"{len(ports)} ports, below 0x1000 are "
                   + ", ".join(map(hex, sorted(low)[:9])))
    return f"{len(ports)} ports"


def compare_selftests(kernel: Kernel, count: Count, folders: dict[str, Path],
                      kvm: bool) -> None:
    """No x86 selftest does worse on the series than on the base, which only
    runs what does not pass on the series."""
    there, places, found = {}, {}, {"base": {}, "series": {}}
    for side, commit in zip(SIDES, ("base", "applied")):
        tree = build.source(kernel, commit)
        there[side] = {Path(name).name
                       for name in build.selftest_names(tree, "x86")}
        places[side] = selftests.install(
            kernel, side, tree, arguments=build.make_arguments(kernel, side))

    def run(side: str, names: set[str], again: str) -> None:
        if chosen := sorted(names & there[side]):
            with stage(f"running {len(chosen)} of selftests/x86 of {side}"):
                found[side] |= selftests.run_installed(
                    folders[side], places[side],
                    kernel.logs / f"kselftest-{side}{again}", kvm, chosen)

    def verdicts(name: str) -> list[str | None]:
        return [found[side].get(name) for side in SIDES]

    left = there["series"]
    for again in ("", "-again"):
        run("series", left, again)
        run("base", {name for name in left
                     if found["series"].get(name) != "pass"}, again)
        # Emulation makes tests of timing and of faults flaky. One more run of
        # both sides tells a flake of the base from a fault of the series; a
        # test of I/O ports gets no second chance.
        left = {name for name in left if ktap.is_worse(*verdicts(name))
                and not name.startswith("iop")}
    for name in sorted(there["series"]):
        before, after = verdicts(name)
        verdict = "fail" if ktap.is_worse(before, after) else \
            "pass" if after == "pass" else "skip"
        count.add(verdict, f"selftests/x86: {name}", "" if verdict == "pass"
                  else f"{after or 'did not run'}, {before or 'not there'} on "
                  f"the base; see {shown_path(kernel.logs)}/kselftest-*.ktap")


def group_kernels(kernel: Kernel, count: Count) -> None:
    """Both kernels build, boot, and pass the in-tree tests."""
    folders = build.build_sides(kernel)
    count.ok("kernel: base and series build")
    count.run("coccinelle: only ioport.c looks into an I/O bitmap",
              check_accessor, kernel)
    kvm = guest.choose_kvm(folders["base"])
    for side in SIDES:
        if not count.run(
                f"kernel: {side} boots, LTP's calls do as LTP expects",
                check_boot, kernel, folders[side], side, kvm):
            return
    count.run("ioperm_latency: repeats, and the base pays for a high port",
              check_ports, kernel, folders["base"])
    if has_yield(kernel):
        count.run("yield_latency: repeats", check_yields, kernel,
                  folders["series"])
    count.run("drop window, selftests/sched: both sides ran", check_counted,
              kernel, count, folders)
    programs = [*build.build_selftests(kernel, selftests.port_tests(
        build.source(kernel, "applied"), "_64"), flags=("-static",)).values()]
    for side in SIDES:
        count.run(f"selftests/x86: few ports are read on the {side}",
                  check_reads, folders[side], kernel.logs / f"reads-{side}",
                  programs)
    count.run("selftests/x86: both sides ran", compare_selftests, kernel,
              count, folders, kvm)


GROUPS = {"scripts": group_scripts, "series": group_series,
          "kernels": group_kernels}


def look(kernel: Kernel, given: Given) -> Groups:
    """Return the groups to run."""
    return chosen(kernel, given, "check", GROUPS)


def main(kernel: Kernel, given: Given) -> int:
    """Run the job."""
    with build_lock(kernel):
        return run_groups(kernel, "check", look(kernel, given))
