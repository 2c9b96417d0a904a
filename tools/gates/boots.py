# SPDX-License-Identifier: GPL-2.0-only
"""Gates that boot: other architectures, Xen, preemption, each prefix."""

import os
import re
import shutil
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from tools import build, guest, ktap, selftests
from tools.build import SELFTESTS, build_kernel, source
from tools.core import Kernel, run_logged, shown_path
from tools.count import Count
from tools.gates.compile import TABLE, find_fault, prefixes, tests_in
from tools.guest import tiny
from tools.records import NO_RT
from tools.series.apply import has_yield

RUNNER = f"{SELFTESTS}/kselftest/runner.sh"


def static_tests(kernel: Kernel, folder: str, pattern: str,
                 compiler: str = "gcc") -> list[tuple[Path, list[str]]]:
    """Build selftests for a guest without libraries; return each with its
    arguments."""
    names = build.selftest_names(source(kernel, "applied"), folder, (pattern,))
    made = build.build_selftests(kernel, names, compiler=compiler,
                                 flags=("-static",))
    return [(path, selftests.arguments_of(path)) for path in made.values()]


def count_runs(count: Count, title: str, runs: list[tuple[str, ktap.Run]],
               console: Path) -> None:
    """Count what programs came to in a guest, which may not have warned."""
    for name, run in runs:
        selftests.count_run(count, f"{title}: {name}", run, console)
    count.run(f"{title}: no splat", guest.check_splat, console)


def group_i386(kernel: Kernel, count: Count) -> None:
    """A 32-bit kernel boots, and the static 32-bit tests pass on it."""
    build_kernel(kernel, "i386")
    console = kernel.logs / "gates-i386.console"
    count_runs(count, "i386", tiny.boot_tiny(
        build.image(kernel, "i386"), static_tests(kernel, "x86", "iop*_32"),
        console.with_suffix(""), timeout=1200), console)
    # No user land reads debugfs here: what the kernel prints as it boots.
    selftests.count_kunit(count, "i386", console.read_text(errors="replace"),
                          console)


def group_musl(kernel: Kernel, count: Count) -> None:
    """Built with musl, the tests come to the same as with glibc."""
    build_kernel(kernel, "series")
    kinds: list[tuple[str, str, Any]] = [
        ("x86", "iop*_64", {}),
        ("sched", "yield_*", {"cpus": 1, "machine": tiny.REPEATABLE})]
    for folder, pattern, options in kinds[:1 + has_yield(kernel)]:
        cases = []
        for compiler in ("gcc", "musl-gcc"):
            console = kernel.logs / f"gates-{compiler}-{folder}.console"
            # What the kernel says of CLI might come into the line of a case.
            runs = tiny.boot_tiny(
                build.image(kernel, "series"),
                static_tests(kernel, folder, pattern, compiler),
                console.with_suffix(""), timeout=1800, bits=64,
                append=f"{tiny.REPEATABLE_KERNEL} loglevel=4", **options)
            cases.append({
                f"{program}: {case} {verdict}" for program, run in runs
                for case, verdict in ktap.parse(run.output).cases.items()})
        for program, run in runs:
            selftests.count_run(count, f"musl: {program}", run, console)
        count.test(f"musl: {folder}: as with glibc",
                   ", ".join(sorted(cases[1] - cases[0])))


def group_xen(kernel: Kernel, count: Count) -> None:
    """As Xen's first domain the kernel boots and passes the static tests."""
    programs = static_tests(kernel, "x86", "iop*_64")
    probe = tiny.build_probe(kernel.build / "programs/xen",
                            kernel.logs / "probe.log")

    def boot(name: str, *chosen: tuple[Path, list[str]],
             tree: Path | None = None, append: str = "") -> Any:
        build_kernel(kernel, "xendom0", tree)
        return tiny.boot_xen(kernel, build.image(kernel, "xendom0"), chosen,
                            kernel.logs / name, append=append)

    find_fault(kernel, count, "xen", lambda tree: ktap.parse(
        boot("gates-xen-planted", (probe, []), tree=tree)[0][1].output
        ).those("fail"), "arch/x86/kernel/process.c")
    # The probe comes first: it finds what a CPU was started with, and who
    # enables many ports leaves none of that.
    count_runs(count, "xen", boot("gates-xen", (probe, []), *programs),
               kernel.logs / "gates-xen.dom0")
    # They stay on the first CPU that they may use; Xen's guests start all
    # others in another way.
    count_runs(count, "xen, second CPU", boot("gates-xen-cpu1", *(
        row for row in programs if row[0].name in TABLE["xen"]["pinned"]),
        append="isolcpus=0"), kernel.logs / "gates-xen-cpu1.dom0")


def group_boots(kernel: Kernel, count: Count) -> None:
    """Kernels with other preemption, and with KASAN and lockdep, pass."""
    ports = [*build.build_selftests(kernel, selftests.port_tests(
        source(kernel, "applied"))).values()]
    for name, options in TABLE["boots"].items():
        if name != "rt" or kernel.version not in NO_RT:
            selftests.run_programs(
                count, name, build_kernel(kernel, name),
                [] if "kunit" in options else ports,
                kernel.logs / f"gates-{name}", **options)


def check_install(kernel: Kernel, count: Count, title: str,
                  arguments: Sequence[str]) -> None:
    """Install and run the selftests, and let 'make kselftest' run them."""
    log = kernel.logs / f"gates-{re.sub('[^a-z]+', '-', title)}"
    folder, env = build.objects(kernel, "series"), build.make_environment()
    # A tree in which something was built takes no O=.
    tree = source(kernel, "applied", "" if arguments else "intree")
    place = build.objects(kernel, log.name) if arguments else tree
    words = [word.format(place, os.path.relpath(place, tree), build.CLANG)
             for word in arguments]
    make = ["make", "-C", str(tree), build.JOBS, *words]
    # Both targets want a configuration of the same compiler.
    place.mkdir(parents=True, exist_ok=True)
    shutil.copyfile(folder / ".config", place / ".config")
    run_logged([*make, "olddefconfig", "syncconfig"],
               Path(f"{log}-config.log"), env=env, what="make syncconfig")
    installed = selftests.install(kernel, log.name, tree, ("x86", "sched"),
                                  words)
    # It builds, here where that takes minutes, and says what it would run.
    made = Path(f"{log}-make.log")
    with build.planted(tree, RUNNER,
                       "run_many() { printf '# to run: %s\\n' \"$@\"; }\n"):
        run_logged([*make, "TARGETS=x86", "FORCE_TARGETS=1", "kselftest"],
                   made, env=env, what="make kselftest")
    programs = re.findall(r"^# to run: (.*/iop\w*_(?:32|64))$",
                          made.read_text(errors="replace"), re.M)
    # As 'make kselftest' does it.
    command = f"cd {tree}/{SELFTESTS}/x86; BASE_DIR=${{PWD%/*}}; " \
        f". {tree}/{RUNNER}; run_many {' '.join(programs)}"
    kvm = guest.choose_kvm(folder)
    chosen = sorted(path.name for path in installed.glob("x86/iop*_[36][24]"))
    for way, found in {
            "installed": selftests.run_installed(folder, installed, log, kvm,
                                                 chosen),
            "make kselftest": ktap.runner(selftests.boot_runner(
                folder, command, Path(f"{log}-make"), cpus=2, kvm=kvm,
                timeout=selftests.SECONDS, share=place).output)}.items():
        for program in chosen:
            count.add(found.get(program, "fail"), f"{title}: {way}: {program}",
                      f"see {shown_path(log)}*.ktap")


def group_installs(kernel: Kernel, count: Count) -> None:
    """The selftests install and run in the tree, with O= and with clang."""
    build_kernel(kernel, "series")
    for title, arguments in TABLE["installs"].items():
        title = f"installs: {title}"
        # Later kernels have this in a file of assembly.
        if kernel.version == "6.1" and "clang" in title:
            count.skip(title, "clang does not compile 6.1's own "
                       "fsgsbase_restore_32")
        else:
            count.run(title, check_install, kernel, count, title, arguments)


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


def run_prefix(kernel: Kernel, count: Count, title: str, commit: str,
               done: set[tuple[str, bytes]]) -> str:
    """Boot the kernel of a prefix and run its programs; say how many.

    done: what has run on which kernel: the same program, to the byte, does
    the same on the same one.
    """
    tree = source(kernel, commit, "other")
    key = build.source_key(kernel, commit)
    folder = build_kernel(kernel, "kunit", tree)
    log = kernel.logs / title.replace(" ", "-")
    made = build.build_selftests(kernel, tests_in(tree), tree=tree)
    programs = {path: (key, path.read_bytes()) for path in made.values()}
    left = [path for path, row in programs.items() if row not in done]
    done.update(programs.values())
    selftests.run_programs(
        count, title, folder,
        [with_ktap(path) for path in left if path.parent.name == "x86"], log,
        kunit=(tree / "arch/x86/kernel/io_bitmap_test.c").exists())
    if yields := [path for path in left if path.parent.name == "sched"]:
        log = Path(f"{log}-yield")
        selftests.count_yield(count, f"{title}: selftests/sched",
                              selftests.boot_yield(folder, yields, log), log)
    return f"{len(left)} programs"


def group_bisect(kernel: Kernel, count: Count) -> None:
    """Every prefix of the series builds, boots and passes its tests."""
    done: set[tuple[str, bytes]] = set()
    for name, commit in prefixes(kernel).items():
        title = f"bisect {Path(name).name[:4]}"
        count.run(title, run_prefix, kernel, count, title, commit, done)
