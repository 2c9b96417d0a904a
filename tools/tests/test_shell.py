# SPDX-License-Identifier: GPL-2.0-only
"""The front door: arguments, what is installed and removed; what
tools/affected says of kernels, by version and configuration."""

import gzip
import os
import re
import subprocess
from pathlib import Path

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


@pytest.mark.parametrize("words, env, says", (
    ("check --only nonsense", {}, "invalid choice: 'nonsense'"),
    ("gates --only nonsense", {}, "invalid choice: 'nonsense'"),
    ("soak bogus", {}, "invalid choice: 'bogus'"),
    ("soak race --only bogus", {}, "names no row"),
    ("study --only bogus", {}, "no cell has this"),
    ("nothing", {}, "there is no job 'nothing'"),
    ("bench", {"KERNEL": "5.15"}, "KERNEL=5.15: the series is for 7.3"),
    ("bench", {"ACCEL": "x"}, "ACCEL=x is not known"),
    ("series.tree", {"KSRC": "/none"}, "KSRC=/none is not a folder"),
    ("series.tree", {"KSRC": "/"}, "KSRC=/ is not a Linux source tree")))
def test_arguments_are_looked_at_before_anything_is_installed(
        system: Box, words: str, env: dict[str, str], says: str) -> None:
    run = system.run("tools/deps", *words.split(), USER_ID=0,
                     MISSING="git bc", **env)
    assert run.status != 0 and says in run.err and "Trace" not in run.err
    assert not (system.temp / "calls").exists()


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
    complete.write_text(re.sub("b4==.*", "b4==0", complete.read_text()))
    system.done("tools/deps", "bench")
    system.done("tools/deps", "submit", say="==> installing b4==")
    assert "install b4==" in (system.temp / "calls").read_text()
    assert system.done("tools/deps", "submit").out == ""


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


PORTS = "CONFIG_X86_IOPL_IOPERM=y\n"
FULL = PORTS + "CONFIG_PREEMPT=y\n"
DYNAMIC = PORTS + "CONFIG_PREEMPT_DYNAMIC=y\nCONFIG_PREEMPT_VOLUNTARY=y\n"
WINDOW, PV, SEV = "window", "Xen PV guest", "x86/sev"


def ask(box: Box, release: str, config: str, machine: str = "x86_64",
        **files: str) -> Run:
    """Run it on a root with these files; '_' in a name is '/'."""
    root = box.temp / "root"
    write(root, {"proc/sys/kernel/osrelease": release, "proc/cmdline": "quiet",
                 "proc/cpuinfo": "flags : fpu", "proc/kallsyms": ""})
    if config:
        write(root, {f"boot/config-{release}": config})
    write(root, {name.replace("__", "/"): text
                 for name, text in files.items()})
    return box.run("tools/affected", AFFECTED_ROOT=root,
                   AFFECTED_MACHINE=machine)


def verdicts(run: Run, *fixes: str) -> list[str]:
    """Return the verdicts on some fixes."""
    return [row.split()[0] for fix in fixes
            for row in run.out.splitlines() if fix in row]


@pytest.mark.parametrize("release, config, cmdline, verdict", [
    ("6.12.117-rt-amd64", PORTS + "CONFIG_PREEMPT_RT=y\n", "", "lacks"),
    ("6.1.0-49-amd64", DYNAMIC, "ro quiet", "no"),
    ("6.1.0-49-amd64", DYNAMIC, "ro preempt=full quiet", "lacks"),
    ("7.3.4", PORTS + "CONFIG_PREEMPT_LAZY=y\n", "", "lacks"),
    ("5.4.0", FULL, "", "no"), ("5.5", FULL, "", "lacks"),
    ("10.0-rc1", FULL, "", "lacks"), ("6.1.1", "CONFIG_PREEMPT=y\n", "", "no"),
    ("6.1.1", PORTS, "", "lacks")])
def test_the_window(box: Box, release: str, config: str, cmdline: str,
                    verdict: str) -> None:
    """It needs ioperm() and preemption."""
    run = ask(box, release, config, proc__cmdline=cmdline)
    assert verdicts(run, WINDOW) == [verdict]
    assert run.status == (verdict == "lacks") and run.err == ""


def test_a_kernel_with_the_series_is_known(box: Box) -> None:
    run = ask(box, "7.3.4", FULL, proc__kallsyms="0 T io_bitmap_view\n",
              sys__kernel__debug__sched__features="YIELD_TICK YIELD_SKIP\n")
    assert verdicts(run, WINDOW) == ["has"] and run.status == 0
    assert "sched_yield() is that of the series" in run.out


def test_guests(box: Box) -> None:
    for release, flag, verdict in ("6.1.1", "hypervisor", "lacks"), (
            "5.10.1", "mmx", "no"):
        run = ask(box, release, "CONFIG_AMD_MEM_ENCRYPT=y\n",
                  sys__hypervisor__guest_type="PV\n",
                  proc__cpuinfo=f"flags : {flag} sev sev_es\n")
        assert verdicts(run, PV, SEV) == [verdict] * 2
        assert run.status == (verdict == "lacks")


def test_what_cannot_be_told(box: Box, tmp_path: Path) -> None:
    run = ask(box, "6.1.1", "")
    assert run.status == 2 and run.err.startswith("error: the configuration")
    write(tmp_path / "root", {"proc/config.gz": gzip.compress(FULL.encode())})
    assert verdicts(ask(box, "6.1.1", ""), WINDOW) == ["lacks"]
    run = ask(box, "6.1.1", "", machine="aarch64")
    assert run.status == 0 and "not x86" in run.out
