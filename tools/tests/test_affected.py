# SPDX-License-Identifier: GPL-2.0-only
"""What tools/affected says of kernels, by version and configuration."""

import gzip
from pathlib import Path

import pytest
from conftest import Box, Run, write

PORTS = "CONFIG_X86_IOPL_IOPERM=y\n"
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


def says(run: Run, what: str) -> str:
    """Return the verdict on one fix."""
    row, = (row for row in run.out.splitlines() if what in row)
    return row.split()[0]


@pytest.mark.parametrize("release, config, cmdline, verdict", [
    ("6.12.117-rt-amd64", PORTS + "CONFIG_PREEMPT_RT=y\n", "", "lacks"),
    ("6.1.0-49-amd64", PORTS + "CONFIG_PREEMPT_DYNAMIC=y\n"
     "CONFIG_PREEMPT_VOLUNTARY=y\n", "ro quiet", "no"),
    ("6.1.0-49-amd64", PORTS + "CONFIG_PREEMPT_DYNAMIC=y\n"
     "CONFIG_PREEMPT_VOLUNTARY=y\n", "ro preempt=full quiet", "lacks"),
    ("7.3.4", PORTS + "CONFIG_PREEMPT_LAZY=y\n", "", "lacks"),
    ("5.4.0", PORTS + "CONFIG_PREEMPT=y\n", "", "no"),
    ("5.5", PORTS + "CONFIG_PREEMPT=y\n", "", "lacks"),
    ("10.0-rc1", PORTS + "CONFIG_PREEMPT=y\n", "", "lacks"),
    ("6.1.1", "CONFIG_PREEMPT=y\n", "", "no"),
    ("6.1.1", PORTS, "", "lacks")])
def test_the_window_needs_ioperm_and_preemption(
        box: Box, release: str, config: str, cmdline: str,
        verdict: str) -> None:
    run = ask(box, release, config, proc__cmdline=cmdline)
    assert says(run, WINDOW) == verdict
    assert run.status == (verdict == "lacks") and run.err == ""


def test_a_kernel_with_the_series_is_known(box: Box) -> None:
    run = ask(box, "7.3.4", PORTS + "CONFIG_PREEMPT=y\n",
              proc__kallsyms="0 T io_bitmap_view\n",
              sys__kernel__debug__sched__features="YIELD_TICK YIELD_SKIP\n")
    assert says(run, WINDOW) == "has" and run.status == 0
    assert "sched_yield() is that of the series" in run.out


def test_guests(box: Box) -> None:
    run = ask(box, "6.1.1", "CONFIG_AMD_MEM_ENCRYPT=y\n",
              sys__hypervisor__guest_type="PV\n",
              proc__cpuinfo="flags : hypervisor sev sev_es\n")
    assert [says(run, what) for what in (PV, SEV)] == ["lacks", "lacks"]
    assert run.status == 1
    run = ask(box, "5.10.1", "CONFIG_AMD_MEM_ENCRYPT=y\n",
              proc__cpuinfo="flags : sev sev_es\n")
    assert [says(run, what) for what in (PV, SEV)] == ["no", "no"]


def test_what_cannot_be_told(box: Box, tmp_path: Path) -> None:
    run = ask(box, "6.1.1", "")
    assert run.status == 2 and run.err.startswith("error: the configuration")
    write(tmp_path / "root", {"proc/config.gz": gzip.compress(
        f"{PORTS}CONFIG_PREEMPT=y\n".encode())})
    assert says(ask(box, "6.1.1", ""), WINDOW) == "lacks"
    run = ask(box, "6.1.1", "", machine="aarch64")
    assert run.status == 0 and "not x86" in run.out
