# SPDX-License-Identifier: GPL-2.0-only
"""Gates that boot: other architectures, Xen, preemption, each prefix."""

import os
import re
import shutil
from collections.abc import Sequence
from fnmatch import fnmatch
from pathlib import Path

from tools import ktap
from tools.build import (CLANG, JOBS, KERNELS, SELFTESTS, build_kernel,
                         build_selftests, compiler_version,
                         image, make_environment, objects, planted,
                         selftest_names, source, source_key)
from tools.core import (BUILD, KERNEL, LOGS, RESULTS, ROOT, Fail, digest,
                        read_json, run_logged, shown_path, stage, write_json)
from tools.count import Count
from tools.gates.compile import CONFIGS, prefixes
from tools.guest import check_splat, choose_kvm
from tools.guest.tiny import (EMULATED, REPEATABLE, REPEATABLE_KERNEL,
                              boot_tiny)
from tools.guest.xen import boot_xen, build_probe
from tools.selftests import (SECONDS, YIELD_TESTS, arguments_of, boot_runner,
                             boot_yield, count_kunit, count_run, count_yield,
                             install, port_tests, run_installed, run_programs)
from tools.series.apply import has_yield

XEN = "Xen PV dom0"
# They stay on the first CPU that they may use; Xen's guests start all others
# in another way.
XEN_PINNED = ("ioperm_64", "ioperm_boundaries_64", "iopl_64",
              "ioport_regset_64")
# How the selftests are installed: arguments of make. {0} is a folder for
# objects, {1} the same seen from the tree.
INSTALLS = {"in the tree": (), "O= absolute": ("O={0}",),
            "O= relative": ("O={1}",),
            "O= and clang": ("O={0}", f"LLVM=-{CLANG}")}
# What the kernel says of CLI might come into the line of a case.
QUIET = "loglevel=4"
RUNNER = f"{SELFTESTS}/kselftest/runner.sh"
BISECTED = RESULTS / "bisect.json"

def static_tests(suffix: str, compiler: str = "gcc",
                 ) -> list[tuple[Path, list[str]]]:
    """Build the tests of I/O ports ("_32" or "_64"), or of sched_yield() (""),
    for a guest without libraries; return each with its arguments."""
    tree = source("applied")
    names = port_tests(tree, suffix) if suffix else \
        selftest_names(tree, "sched", YIELD_TESTS)
    return [(path, arguments_of(path)) for path in build_selftests(
        names, compiler=compiler, flags=("-static",)).values()]


def count_runs(count: Count, title: str, runs: list[tuple[str, ktap.Run]],
               console: Path) -> None:
    """Count what programs came to in a guest, which may not have warned."""
    for name, run in runs:
        count_run(count, f"{title}: {name}", run, console)
    count.run(f"{title}: no splat", check_splat, console)


def group_i386(count: Count) -> None:
    """A 32-bit kernel boots, and the static 32-bit tests pass on it."""
    build_kernel("i386")
    console = LOGS / "gates-i386.console"
    count_runs(count, "i386", boot_tiny(
        image("i386"), static_tests("_32"), timeout=1200, seconds=400,
        name="gates-i386"), console)
    # No user land reads debugfs here: what the kernel prints as it boots.
    count_kunit(count, "i386", console.read_text(errors="replace"), console)


def group_musl(count: Count) -> None:
    """Built with musl, the tests come to the same as with glibc."""
    build_kernel("series")
    for title, suffix, options in (
            # One thread: QEMU runs no code that another CPU is patching.
            ("ports", "_64", {"machine": (
                "-accel", "tcg,thread=single", *EMULATED[2:])}),
            ("yield", "", {"cpus": 1, "machine": REPEATABLE})):
        if not suffix and not has_yield():
            continue
        cases = []
        for compiler in ("gcc", "musl-gcc"):
            name = f"gates-{compiler}-{title}"
            runs = boot_tiny(image("series"), static_tests(suffix, compiler),
                             timeout=1800, seconds=900, bits=64, name=name,
                             append=f"{REPEATABLE_KERNEL} {QUIET}", **options)
            cases.append({(program, case): verdict for program, run in runs
                          for case, verdict in ktap.parse(
                              run.output).cases.items()})
        for program, run in runs:
            count_run(count, f"musl: {program}", run,
                      LOGS / f"{name}.console")
        other = [f"{': '.join(case)} {verdict}" for case, verdict
                 in cases[1].items() if verdict != cases[0].get(case)]
        count.test(f"musl: {title}: as with glibc", ", ".join(other))


def find_open_ports(probe: Path) -> None:
    """The probe sees ports that are open on each CPU of Xen's domain."""
    tree = source("applied")
    with planted(tree, "arch/x86/kernel/process.c",
                 (ROOT / "tools/planted/ports.c").read_text()):
        build_kernel("xendom0", tree)
        (_, run), = boot_xen(image("xendom0"), [(probe, [])],
                             name="gates-xen-planted")
    failed = ktap.parse(run.output).those("fail")
    if failed != [f"cpu{cpu}.no_other_port" for cpu in range(2)]:
        raise Fail(f"what fails is {failed}; see {shown_path(LOGS)}/"
                   "gates-xen-planted.dom0")


def group_xen(count: Count) -> None:
    """As Xen's first domain the kernel boots and passes the static tests."""
    programs, probe = static_tests("_64"), build_probe(BUILD / "programs/xen")
    count.run(f"{XEN}: finds planted open ports", find_open_ports, probe)
    build_kernel("xendom0")
    # The probe comes first: it finds what a CPU was started with, and who
    # enables many ports leaves none of that.
    for title, name, chosen, append in (
            (XEN, "gates-xen", [(probe, []), *programs], ""),
            (f"{XEN}, second CPU", "gates-xen-cpu1",
             [row for row in programs if row[0].name in XEN_PINNED],
             "isolcpus=0")):
        count_runs(count, title, boot_xen(
            image("xendom0"), chosen, name=name, append=append),
            LOGS / f"{name}.dom0")


def group_boots(count: Count) -> None:
    """Kernels with other preemption, and with KASAN and lockdep, pass."""
    ports = list(build_selftests(port_tests(source("applied"))).values())
    for name, what in (("rt", "PREEMPT_RT"), ("lazy", "the least preemption")):
        if name in CONFIGS:
            run_programs(count, what, build_kernel(name), ports,
                         f"gates-{name}")
    # KASAN reports an address of the interrupt code early in a boot with five
    # page table levels, which QEMU's largest processor has.
    run_programs(count, "debug", build_kernel("debug"), [], "gates-debug",
                 kunit=True, memory="2G", append=("no5lvl",))


def make_kselftest(tree: Path, words: Sequence[str], log: Path) -> list[str]:
    """Let 'make kselftest' build, here where it takes minutes; return the
    programs that it would run."""
    with planted(tree, RUNNER, "run_many() { printf '# to run: %s\\n' \"$@\"; "
                               "}\n"):
        run_logged(["make", "-C", str(tree), JOBS, *words, "TARGETS=x86",
                    "FORCE_TARGETS=1", "kselftest"], log,
                   env=make_environment(), what="make kselftest")
    return re.findall(r"^# to run: (.*)$", log.read_text(errors="replace"),
                      re.M)


def check_install(count: Count, title: str, arguments: Sequence[str],
                  folder: Path) -> None:
    """Install and run the selftests, and let 'make kselftest' run them;
    folder: objects of the kernel."""
    name, kvm = f"gates-{re.sub(r'[^a-z]+', '-', title)}", choose_kvm(folder)
    # A tree in which something was built takes no O=.
    tree = source("applied", "" if arguments else "intree")
    place = objects(name) if arguments else tree
    words = [word.format(place, os.path.relpath(place, tree))
             for word in arguments]
    # Both targets want a configuration of the same compiler.
    place.mkdir(parents=True, exist_ok=True)
    shutil.copyfile(folder / ".config", place / ".config")
    run_logged(["make", "-C", str(tree), *words, "olddefconfig", "syncconfig"],
               LOGS / f"{name}-config.log", env=make_environment(),
               what="make syncconfig")
    installed = install(name, tree, ("x86", "sched"), words)
    made = [path for path in make_kselftest(
        tree, words, LOGS / f"{name}-make.log")
        if fnmatch(path, "*/iop*_[36][24]")]
    chosen = sorted(path.name for path in installed.glob("x86/iop*_[36][24]"))
    # As 'make kselftest' does it.
    command = f"cd {tree}/{SELFTESTS}/x86; BASE_DIR=${{PWD%/*}}; " \
        f". {tree}/{RUNNER}; run_many {' '.join(made)}"
    for way, found in (
            ("installed", run_installed(folder, installed, name, kvm, chosen)),
            ("make kselftest", ktap.runner(boot_runner(
                folder, command, f"{name}-make", cpus=2, kvm=kvm,
                timeout=SECONDS, share=place).output))):
        for program in chosen:
            verdict = found.get(program, "fail")
            count.add(verdict, f"{title}: {way}: {program}", "" if verdict ==
                      "pass" else f"see {shown_path(LOGS)}/{name}*.ktap")


def group_installs(count: Count) -> None:
    """The selftests install and run in the tree, with O= and with clang."""
    folder = build_kernel("series")
    for what, arguments in INSTALLS.items():
        # Later kernels have this in a file of assembly.
        if KERNEL == "6.1" and "clang" in what:
            count.skip(f"installs: {what}", "clang does not compile 6.1's own "
                       "fsgsbase_restore_32")
            continue
        count.run(f"installs: {what}", check_install, count,
                  f"installs: {what}", arguments, folder)


def with_ktap(program: Path) -> Path:
    """Return a program with KTAP: those of the first prefixes have none."""
    if b"TAP version" in program.read_bytes():
        return program
    script = program.parent / "ktap" / program.name
    script.parent.mkdir(exist_ok=True)
    script.write_text(f"#!/bin/sh\n{program} || not='not '\n"
                      f'echo 1..1; echo "${{not}}ok 1 {program.name}"\n')
    script.chmod(0o755)
    return script


def run_prefix(count: Count, title: str, tree: Path, programs: list[Path],
               kunit: bool) -> str:
    """Boot the kernel of a prefix and run programs; say how many."""
    folder, name = build_kernel("kunit", tree), title.replace(" ", "-")
    run_programs(count, title, folder, [with_ktap(path) for path in programs
                                        if path.parent.name == "x86"],
                 name, kunit=kunit)
    yields = [path for path in programs if path.parent.name == "sched"]
    if yields:
        with stage(f"running the tests of sched_yield(), {title}"):
            texts = boot_yield(folder, yields, f"{name}-yield")
        count_yield(count, f"{title}: selftests/sched", texts, f"{name}-yield")
    return f"{len(programs)} programs"


def group_bisect(count: Count) -> None:
    """Every prefix of the series builds, boots and passes its tests."""
    passed = read_json(BISECTED, {})
    for name, commit in prefixes().items():
        title, tree = f"bisect {name[:4]}", source(commit, "other")
        kernel = digest(source_key(commit), compiler_version(),
                        KERNELS["kunit"].wanted())
        # The same program, to the byte, does the same on the same kernel.
        keys = {path: digest(kernel, path.read_bytes(), *arguments_of(path))
                for path in build_selftests(port_tests(tree) + selftest_names(
                    tree, "sched", YIELD_TESTS), tree=tree).values()}
        left = [path for path, key in keys.items() if key not in passed]
        kunit = kernel not in passed and \
            (tree / "arch/x86/kernel/io_bitmap_test.c").exists()
        failed = count.failed
        if not left and kernel in passed:
            count.ok(title, f"as {passed[kernel]}")
        elif count.run(title, run_prefix, count, title, tree, left, kunit) \
                and count.failed == failed:
            passed |= dict.fromkeys([kernel, *keys.values()], name[:4])
            write_json(BISECTED, passed)
