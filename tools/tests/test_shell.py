# SPDX-License-Identifier: GPL-2.0-only
"""The front door: arguments, what is installed and removed; what
tools/affected says of kernels, by version and configuration."""

import gzip
import os
import re
import shutil
import subprocess
import sys
from pathlib import Path
from typing import NamedTuple

import pytest
from conftest import (ROOT, Box, Run, make_kernel, snapshot, wait_for, write,
                      write_program)

TREE = "tools.series.tree"
JOBS = sorted(
    ".".join(path.relative_to(ROOT).with_suffix("").parts)
    for path in (ROOT / "tools").rglob("*.py")
    if "__main__" in path.read_text() and path.parent.name != "tests")
APT = "apt-get install -y --no-install-recommends"


@pytest.mark.parametrize("job", [*JOBS, "tools/deps", "tools/clean",
                                 "tools/affected"])
def test_a_job_has_help_and_refuses_the_unknown(box: Box, job: str) -> None:
    run = box.done(job, "--help", KSRC="/none", say="usage: ")
    assert len(run.out.splitlines()) > 3
    run = box.run(job, "--no-such-option")
    assert run.status != 0
    assert run.err.count("error: ") == 1 and "Traceback" not in run.err
    assert not box.build.exists()


@pytest.fixture
def system(box: Box) -> Box:
    """A Debian system, made of stubs; build/venv is there."""
    box.stub("uname", 'echo "${MACHINE-x86_64}"\n')
    box.stub("id", 'echo "${USER_ID-1000}"\n')
    box.stub("dpkg-query", 'for name; do :; done\ncase " $MISSING " in\n'
             '*" $name "*) exit 1 ;;\n*" -$name "*) printf config-files ;;\n'
             '*) printf installed ;;\nesac\n')
    box.stub("apt-get", f'echo "$*" >>"{box.temp}/calls"\ncase "$*" in\n'
             '*--assume-no*) echo "Need to get 7 MB of archives." ;;\n'
             'esac\necho "apt says: $1"; [ "$1" != "$FAILS" ]\n')
    python = "/usr/bin/python3"
    version = subprocess.run(
        [python if os.access(python, os.X_OK) else "python3", "-V"],
        capture_output=True, text=True).stdout
    rows = (ROOT / "tools/requirements.txt").read_text()
    write(box.build, {"venv/complete": f"{version.strip()} in {box.build}\n"
                      + re.sub(" *#.*", "", rows)})
    write_program(box.build / "venv/bin/pip",
                  f'echo "$*" >>"{box.temp}/calls"\n')
    return box


REFUSED = (
    ("check ONLY=x", "ONLY=x is not known: use scripts, series, kernels"),
    ("gates ONLY=x", "ONLY=x is not known: use gcc, "),
    ("measure ONLY=x", "ONLY=x is not known: use ioperm_turns, "),
    ("mutants ONLY=x!", "ONLY=x! names none of the "),
    ("study ONLY=blas|x!", "ONLY=x!: no cell "),
    ("soak", "give JOB=: repeat, load, "),
    ("soak JOB=x", "JOB=x is not known: use repeat, load, "),
    ("soak JOB=repeat|x", "JOB=repeat x is not known: "),
    ("soak JOB=repeat ONLY=1cpu|x", "ONLY=x names none of repeat's rows: 1"),
    *((f"soak JOB=race {name}={value}", f"{name}={value} is not known: use ")
      for name, value in (("TIMES", "abc"), ("TIMES", "0"), ("SECONDS", "-1"),
                          ("SECONDS", "1h"), ("CPUS", "3"), ("CPUS", "x"))),
    ("report", "there is nothing in "), ("report A=/x", "A=/x is not a result"),
    ("report B=/x", "A= is not a result "),
    ("report A=results/records.json B=/x", "A=results/records.json is not a "),
    ("deb SET=x", "SET=x is not known: use fixes, ports, all"),
    ("deb KCONFIG=/x", "KCONFIG=/x is not there"),
    ("deb KCONFIG=README.md", "KCONFIG=README.md is not the configuration "),
    ("deb LSMOD=/x KCONFIG=debian", "LSMOD=/x is not a file with "),
    ("deb LSMOD=README.md KCONFIG=debian", "LSMOD=README.md is not a file "),
    ("submit", "NAME= cannot sign off: give NAME='Your Name' and EMAIL="),
    ("submit NAME=A", "EMAIL= cannot sign off: "),
    ("submit NAME=A EMAIL=b", "EMAIL=b cannot sign off: "),
    ("submit NAME=A EMAIL=b@c.org SET=x", "SET=x has no patch: use all, "),
    ("submit NAME=A EMAIL=b@c.org GATES=x", "GATES=x is not known: use no"),
    ("lab FILES=x", "FILES=x is no URL: "),
    ("lab FILES=http://x ROOTFS=y", "ROOTFS=y is no URL: "),
    ("lab FILES=http://x", "FILES=: there is nothing in "),
    ("lab ROOTFS=http://x", "FILES= is no URL: "),
    ("bench KERNEL=9.9", "KERNEL=9.9: the series is for 7.3, "),
    ("bench ACCEL=x", "ACCEL=x is not known: use tcg or kvm"),
    ("tree FORCE=yes", "FORCE=yes is not known: use 1"),
    ("clean ALL=0", "ALL=0 is not known: use 1"),
    ("tree KSRC=/none", "KSRC=/none is not a folder"),
    ("tree KSRC=/", "KSRC=/ is not a Linux source tree"),
    ("check ONYL=x", "ONYL=x: 'make check' takes ONLY, KERNEL, "),
    ("bench ONLY=x", "ONLY=x: 'make bench' takes KERNEL, "),
    ("release KERNEL=6.1", "KERNEL=6.1: 'make release' takes no variable"),
    ("deps ONLY=x", "ONLY=x: 'make deps' takes no variable"))


@pytest.mark.parametrize("words, says", REFUSED)
def test_make_refuses_before_anything_is_installed(system: Box, words: str,
                                                   says: str) -> None:
    """By the name that the user typed."""
    system.repo = ROOT
    run = system.run("make", *(word.replace("|", " ")
                               for word in words.split()),
                     USER_ID=0, MISSING="git bc b4")
    error, make = run.err.splitlines()
    assert error.startswith(f"error: {says}") and "make: ***" in make, run
    assert not re.search(r"--(?!pack)\w|\.py", error) and run.out == ""
    assert not (system.temp / "calls").exists()
    assert [*system.build.iterdir()] == [system.build / "venv"]


@pytest.mark.parametrize("job", JOBS)
def test_no_job_needs_a_library_to_read_its_arguments(box: Box,
                                                      job: str) -> None:
    """Python without its site has none."""
    run = subprocess.run([sys.executable, "-S", "-m", job, "--help"],
                         cwd=ROOT, capture_output=True, text=True)
    assert run.returncode == 0 and run.stderr == "", run
    box.repo = ROOT
    run = box.run("tools.arguments", job.removeprefix("tools."))
    assert "Traceback" not in run.err and not box.build.exists(), run


def test_make_help_has_all_variables(box: Box) -> None:
    """Those that a target reads, and that the documents name."""
    shutil.copy(ROOT / "Makefile", box.repo)
    help = box.done("make").out
    assert help == box.done("make", "help").out
    takes = {target: set(names.replace("=", "").split()) for target, names in
             re.findall(r"^  (\w+) .*\n +([A-Z]+=.*)\n +make ", help, re.M)}
    rules = re.findall(r"^(\w+):.* ## .*\n((?:[#\t].*\n)*)",
                       (ROOT / "Makefile").read_text(), re.M)
    for target, recipe in rules:
        assert set(re.findall(r"\$\(([A-Z]+)\)", recipe)) <= takes.get(
            target, set()), target
    texts = [path.read_text() for path in (
        *ROOT.glob("*.md"), *ROOT.glob("submit/*.md"), ROOT / "Makefile",
        *ROOT.glob("tools/**/*.md"), ROOT / ".github/workflows/check.yml")]
    used = re.findall(r"\bmake ([a-z]+)((?: +[A-Z]+=(?:\"[^\"]*\"|\S*))+)",
                      "\n".join(texts))
    assert len(used) > 30
    for target, words in used:
        assert target == "kselftest" or set(re.findall(
            r"([A-Z]+)=", words)) <= takes[target], (target, words)


def test_a_job_that_is_not_there(system: Box) -> None:
    system.refused("tools/deps", "nothing", say="there is no job 'nothing'")


def test_a_job_gets_what_it_needs(system: Box) -> None:
    assert system.done("tools/deps").out == ""
    assert system.done("tools/deps", "bench").out == ""
    assert not (system.temp / "calls").exists()
    for job, there in ("series.tree", "git"), ("check", "git quilt"), (
            "gates", "git quilt clang-19"):
        out = system.done("tools/deps", "--list", job).out.splitlines()
        assert [name for name in ("git", "quilt", "clang-19")
                if name in out] == there.split()
    complete = system.build / "venv/complete"
    complete.write_text(re.sub("(tuxlava==).*", r"\1", complete.read_text()))
    system.done("tools/deps", "bench")
    system.done("tools/deps", "lab", "--run", say="==> installing tuxlava==")
    assert "install tuxlava==" in (system.temp / "calls").read_text()
    assert system.done("tools/deps", "lab", "--run").out == ""


@pytest.mark.parametrize("env, words", (
    ({"MISSING": "quilt bc"}, f"again:\n  sudo {APT} bc quilt\n"),
    ({"MISSING": "-flex"}, f"again:\n  sudo {APT} flex\n"),
    ({"MACHINE": "aarch64"}, "this is a aarch64 machine")))
def test_deps_tells_what_to_do(system: Box, env: dict[str, str],
                               words: str) -> None:
    system.refused("tools/deps", say=words, **env)
    assert not (system.temp / "calls").exists()


def test_deps_installs_as_root_what_is_missing_only(system: Box) -> None:
    run = system.run("tools/deps", MISSING="bc", USER_ID=0, FAILS="update")
    assert run.status == 1
    assert run.err.startswith("apt says: update\nerror: 'apt-get update")
    assert run.err.endswith(f"{system.build}/logs/deps.log\n")
    (system.temp / "calls").unlink()
    system.stub("df", "echo disk 9 9 500000 9% /")
    system.refused("tools/deps", MISSING="bc", USER_ID=0, say="make room")
    (system.bin / "df").unlink()
    out = system.done("tools/deps", MISSING="quilt bc", USER_ID=0).out
    assert out == ("==> installing bc quilt\n"
                   "    Need to get 7 MB of archives.\n")
    calls = (system.temp / "calls").read_text().splitlines()
    assert (calls[0], calls[-1]) == ("update", f"{APT[8:]} bc quilt")


KEPT = [".lock", "6.1", "download", "linux.git", "sparse", "tree", "venv",
        "xen"]


@pytest.fixture
def used(box: Box) -> Box:
    """A build folder with something of everything."""
    box.done(TREE, KSRC=make_kernel(box.temp / "linux"))
    write(box.build, {f"{name}/x": "x" for name in (
        "obj", "src", "programs", "logs", "results", "tmp/guest-1",
        "a-kind-of-kernel-to-come", "download", "sparse", "venv",
        "xen", "6.1/obj", "6.1/download")})
    return box


def left(box: Box) -> list[str]:
    return sorted(path.name for path in box.build.iterdir())


def test_clean_keeps_what_takes_long_to_get(used: Box) -> None:
    before = snapshot(used.build / "tree")
    used.done("tools/clean")
    assert left(used) == KEPT
    assert [path.name for path in (used.build / "6.1").iterdir()] == [
        "download"]
    assert snapshot(used.build / "tree") == before
    # Work that was not exported stays.
    write(used.build / "tree", {"mm/newer.c": "newer\n"})
    used.refused("tools/clean", "--all", say="(?? mm/newer.c)")
    assert set(KEPT) == set(left(used))
    used.done("tools/clean", "--all", FORCE=1)
    used.done("tools/clean")
    assert not used.build.exists()


def test_clean_disturbs_no_job(used: Box) -> None:
    before = left(used)
    process = subprocess.Popen(
        ["flock", used.build / "6.1/.lock", "sh", "-c",
         f"echo x >{used.temp}/held; exec sleep 60"])
    try:
        wait_for(used.temp / "held")
        for args in ((), ("--all",)):
            run = used.run("tools/clean", *args, FORCE=1)
            assert run.status == 1
            assert run.err.startswith("error: another job is running")
    finally:
        process.kill()
        process.wait()
    assert left(used) == before


PORTS = "CONFIG_X86=y\nCONFIG_X86_IOPL_IOPERM=y\n"
OLD = "CONFIG_X86=y\nCONFIG_PREEMPT=y\n"
NONE = PORTS + "CONFIG_PREEMPT_NONE=y\n"
FULL = PORTS + "CONFIG_PREEMPT=y\n"
RT = PORTS + "CONFIG_PREEMPT_LAZY=y\nCONFIG_PREEMPT_RT=y\n"
DYNAMIC = PORTS + "CONFIG_PREEMPT_DYNAMIC=y\nCONFIG_PREEMPT_VOLUNTARY=y\n"
GUEST = NONE + "CONFIG_XEN_PV=y\nCONFIG_AMD_MEM_ENCRYPT=y\n"
DEBUG = "sys/kernel/debug/sched/"
XEN = {"sys/hypervisor/guest_type": "PV\n"}
AMD = {"proc/cpuinfo": "vendor_id : AuthenticAMD\nflags : a hypervisor b\n\n",
       "sys/hypervisor/x": ""}
SEV = AMD | {"dmesg": "Memory Encryption Features active: AMD SEV SEV-ES\n"}
VIEW = {"proc/kallsyms": "0 T a\n0 T io_bitmap_view\n0 T z\n"}
FIXED, NOT, BAD, UNTOLD = "fixed", "not affected", "vulnerable", "cannot be told"


def preempt(modes: str) -> dict[str, str]:
    return {DEBUG + "features": "A B\n", DEBUG + "preempt": modes + "\n"}


# What one runs, its configuration and other files, and the verdict, with words
# of the reason.
KERNELS = (
    # The window: ioperm() and preemption.
    ("6.12.30-0-lts", FULL, {}, BAD, "'full'"),  # Alpine
    ("7.3.4-arch1-1", DYNAMIC.replace("VOLUNTARY", "LAZY"),
     preempt("full (lazy)"), BAD, "'lazy'"),
    ("6.8.0-45-generic", DYNAMIC, preempt("none (voluntary) full"), NOT,
     "'voluntary'"),
    ("6.8.0-45-generic", DYNAMIC, preempt("none voluntary (full)"), BAD,
     "'full'"),
    ("6.8.0-45-generic", DYNAMIC.replace("VOLUNTARY", "LAZY"),
     preempt("(none) voluntary full lazy"), NOT, "'none'"),
    ("6.8.0-45-generic", DYNAMIC, {"proc/cmdline": "preempt=none\n"}, BAD,
     "may have been changed: debugfs is not mounted"),
    ("4.18.0-553.el8_10.x86_64", OLD, {}, NOT, "came with 5.5"),
    ("4.18.0-553.el8_10.x86_64", FULL, {}, BAD, "'full'"),  # a backport
    ("5.15.153.1-microsoft-standard-WSL2", NONE, {}, NOT, "'none'"),
    ("6.1.0-49-amd64", DYNAMIC, {}, BAD, "may have been changed"),
    ("6.12.117-rt-amd64", RT, {}, BAD, "'full'"),
    ("6.12.117-rt-amd64", RT + "CONFIG_PREEMPT_DYNAMIC=y\n",
     preempt("none"), BAD, "'full'"),
    ("7.3.0-rc4", FULL, {}, BAD, "'full'"), ("7.3-rc4", NONE, {}, NOT, ""),
    ("10.0.1", FULL, {}, BAD, ""), ("5.5", FULL, {}, BAD, ""),
    ("5.4.0", OLD, {}, NOT, "came with 5.5"),
    ("6.1.1", OLD + "# CONFIG_X86_IOPL_IOPERM is not set\n", {}, NOT, ""),
    ("6.1.1", OLD, {}, UNTOLD, "not whole"),
    ("6.1.1", PORTS, {}, UNTOLD, "not whole"),
    # What has the series has all of it, also in a guest.
    ("7.3.4", FULL, VIEW, FIXED, "io_bitmap_view()"),
    ("7.3.4", GUEST, VIEW | XEN | SEV, FIXED, "io_bitmap_view()"),
    ("7.3.4+ioport2.0-fixes", GUEST, XEN | SEV, FIXED, "'make deb'"),
    ("7.3.4+ioport2.0-all-rt", RT, {}, FIXED, "'make deb'"),
    ("7.3.4", FULL, {"proc/kallsyms": "0 T io_bitmap_viewer\n"}, BAD, ""),
    # Guests.
    ("6.1.1", GUEST, XEN, BAD, "Xen"),
    ("5.13.0", GUEST, XEN, NOT, ""), ("6.1.1", NONE, XEN | SEV, NOT, ""),
    ("6.1.1", GUEST, {"sys/hypervisor/guest_type": "PVH\n"}, NOT, ""),
    ("6.1.1", GUEST, {}, UNTOLD, "no /sys/hypervisor"),
    ("6.1.1", GUEST, SEV, BAD, "SEV-ES"),
    ("4.18.0-553.el8_10.x86_64", GUEST, SEV, BAD, "SEV-ES"),
    ("6.1.1", GUEST, AMD | {"dmesg": "Linux version 6.1.1 ()\n"}, NOT, ""),
    ("6.1.1", GUEST, AMD, UNTOLD, "dmesg"),
    ("6.1.1", GUEST, AMD | {"proc/cpuinfo": "x\n"}, UNTOLD, "dmesg"),
    ("6.1.1", GUEST, AMD | {"proc/cpuinfo": "vendor_id : AuthenticAMD\n"},
     NOT, ""),
    ("6.1.1", GUEST, AMD | {"proc/cpuinfo": "vendor_id : GenuineIntel\n"
                            "flags : a hypervisor\n"}, NOT, ""),
    # What is no kernel of x86 that says what it is.
    ("6.1.1", "", {}, UNTOLD, "modprobe configs"),
    ("6.1.1", "CONFIG_ARM=y\n", {}, UNTOLD, "no configuration of an x86"),
    ("6.1.1", FULL, {"proc/config.gz": b"\x1f\x8b\x08\0"}, BAD, "'full'"),
    ("unknown", FULL, {}, UNTOLD, "version"),
    ("6.x", FULL, {}, UNTOLD, "version"),
    ("", FULL, {}, UNTOLD, "version"))


class Asked(NamedTuple):
    """tools/affected with one shell; root has what it reads."""

    root: Path
    command: list[str]
    path: str

    def __call__(self, *args: object, **env: str) -> Run:
        done = subprocess.run(
            [*self.command, str(ROOT / "tools/affected"), *map(str, args)],
            capture_output=True, text=True, env={
                "AFFECTED_ROOT": str(self.root), "PATH": self.path,
                "AFFECTED_MACHINE": "x86_64", **env})
        return Run(done.returncode, done.stdout, done.stderr)


@pytest.fixture(params=("dash", "busybox"))
def ask(request: pytest.FixtureRequest, tmp_path: Path) -> Asked:
    """With busybox there is nothing else in PATH, as in an initramfs."""
    found, bin = shutil.which(request.param), tmp_path / "bin"
    assert found, f"apt-get install {request.param}"
    write_program(bin / "dmesg", f"cat {tmp_path}/root/dmesg\n")
    if request.param == "dash":
        return Asked(tmp_path / "root", [found], f"{bin}:{os.environ['PATH']}")
    (tmp_path / "applets").mkdir()
    subprocess.run([found, "--install", "-s", tmp_path / "applets"])
    return Asked(tmp_path / "root", [found, "sh"], f"{bin}:{tmp_path}/applets")


def check(run: Run, verdict: str, words: str) -> None:
    assert run.out.splitlines()[-1] == verdict and words in run.out, run
    assert run.err == "" and run.status == {BAD: 1, UNTOLD: 2}.get(verdict, 0)


@pytest.mark.parametrize("release, config, files, verdict, words", KERNELS)
def test_the_verdict(ask: Asked, release: str, config: str,
                     files: dict[str, str | bytes], verdict: str,
                     words: str) -> None:
    write(ask.root, {"proc/sys/kernel/osrelease": f"{release}\n",
                     "proc/cpuinfo": "flags : a\n", **files})
    # It is found plain and compressed, whatever its name.
    plain = ask.root / f"boot/config-{release}"
    for place, text in ((plain, config.encode()), (
            ask.root / f"lib/modules/{release}/config",
            gzip.compress(config.encode()))):
        plain.unlink(missing_ok=True)
        if config:
            write(place.parent, {place.name: text})
        check(ask(), verdict, words)


@pytest.mark.parametrize("release, config, verdict, words", (
    ("6.1.0-50-amd64", DYNAMIC, BAD, "may have been changed"),
    ("6.1.0-50-amd64", NONE, NOT, "'none'"),
    ("6.1.0-50-amd64", GUEST, BAD, "a SEV-ES guest"),
    ("7.3.4+ioport2.0-ports", FULL, FIXED, "'make deb'"),
    ("6.1.0", "CONFIG_ARM64=y\n", UNTOLD, "no configuration of an x86"),
    ("6.1.0", "", UNTOLD, "no configuration of an x86")))
def test_a_kernel_that_does_not_run(ask: Asked, release: str, config: str,
                                    verdict: str, words: str) -> None:
    """Nothing is read of the one that does."""
    write(ask.root, VIEW | {"proc/sys/kernel/osrelease": "5.4.0\n",
                            **({"config": config} if config else {})})
    run = ask("--release", release, "--config", ask.root / "config",
              AFFECTED_MACHINE="aarch64")
    check(run, verdict, words)
    assert run.out.startswith(f"Linux {release}:\n")


@pytest.mark.parametrize("words, says", (
    ("--release 6.1", "need each other"), ("--config /dev/null", "need each"),
    ("--release", "--release needs a value"), ("6.1", "argument: 6.1")))
def test_wrong_arguments(ask: Asked, words: str, says: str) -> None:
    run = ask(*words.split())
    assert run.status == 2 and says in run.err.splitlines()[-1], run
    assert run.out == ""


def test_other_machines_and_sched_yield(ask: Asked) -> None:
    check(ask(), UNTOLD, "/proc is not mounted")
    write(ask.root, {"proc/sys/kernel/osrelease": "6.1.1\n"})
    check(ask(AFFECTED_MACHINE="aarch64"), NOT, "aarch64 is not x86")
    assert "debugfs is not mounted" in ask().out
    for features, words in ("A NO_YIELD_TICK", "is that"), ("A", "is not that"):
        write(ask.root, {DEBUG + "features": features + "\n"})
        assert f"sched_yield() {words} of the series" in ask().out


@pytest.mark.parametrize("tool", ("cat", "grep", "gzip", "uname"))
def test_a_tool_that_fails(ask: Asked, tool: str) -> None:
    """Then it finds out in another way, or says that it cannot."""
    write(ask.root, VIEW | {"proc/sys/kernel/osrelease": "6.1.1\n",
                            "proc/config.gz": gzip.compress(NONE.encode())})
    write_program(ask.root.parent / "bin" / tool, "exit 3\n")
    check(ask(), UNTOLD if tool == "grep" else FIXED, "")
    write(ask.root, {"proc/kallsyms": "0 T a\n"})
    check(ask(AFFECTED_MACHINE=""), UNTOLD if tool in ("grep", "gzip")
          else NOT, "")
