# SPDX-License-Identifier: GPL-2.0-only
"""Guests, with stubs that do what virtme-ng or QEMU would."""

import os
import shutil
import subprocess
import sys
from contextlib import nullcontext

import pytest
from conftest import ROOT, check_none_left, wait_for, write, write_program

from tools import guest
from tools.core import Fail
from tools.guest import Lost, boot, check_splat, choose_kvm, tiny
from tools.ktap import Run

# With Xen's lines where they happened to come.
UP = ("(XEN) *** Building a PV Dom0 ***\r\n"
      "[    0.000000] Booting ker(XEN) one\r\nnel on Xen PV\r\r\n")
SAID = UP + "@@ begin /a\r\r\n1..1\nok 1 one\n\n@@ end /a 0 2\r\n" + "".join(
    f"@@ begin {path}\n{value}\n\n@@ end {path} 0 0\r\r\n"
    for path, value in tiny.FACTS.items()) + "@@ done 4\n"
RUN = ("a", Run("1..1\nok 1 one\n\n", 0, 2))


@pytest.fixture
def place(tmp_path, monkeypatch, replace):
    """A build folder; vng runs the command here, QEMU says the file `said`."""
    replace(guest, BUILD=tmp_path, VENV=tmp_path / "venv")
    replace(tiny, HYPERVISOR=tmp_path / "a")
    write_program(tmp_path / "venv/bin/vng",
                  'echo "$*" >>$BOX/guests\necho "Booting the kernel."\n'
                  'case "$*" in *--disable-kvm*) ;; *) sleep $KVM ;; esac\n'
                  'for last; do :; done\nexec "$last"\n')
    for name in ("i386", "x86_64"):
        write_program(tmp_path / f"bin/qemu-system-{name}",
                      "ls; echo $$ >$BOX/qemu; exec cat $BOX/said\n")
    write(tmp_path, {"a": "", "image": "", "tmp/x": ""})
    with monkeypatch.context() as patch:
        for name, value in (("BOX", tmp_path), ("KVM", "0"), ("ACCEL", ""),
                            ("PATH", f"{tmp_path}/bin:{os.environ['PATH']}")):
            patch.setenv(name, str(value))
        patch.setattr("tempfile.tempdir", str(tmp_path / "tmp"))
        yield tmp_path
    check_none_left(tmp_path)
    assert os.listdir(tmp_path / "tmp") == ["x"]


def test_output_and_status_come_back(place):
    result = boot(place, "printf '%s.' 'a  b' \"it's\"; echo err >&2; exit 3",
                  place / "logs/guest", append=("x=1", "y"))
    assert (result.status, result.output) == (3, "a  b.it's.err\n")
    assert (place / "logs/guest.ktap").read_text() == result.output
    assert "--append x=1 --append y" in (place / "guests").read_text()


def test_a_guest_that_hangs_is_ended(place):
    with pytest.raises(Lost, match="(?s)did not end within 3 s.*Booting the "
                       "kernel.*    | so far") as caught:
        boot(place, "echo so far; sleep 90", place / "logs/job", timeout=3)
    assert caught.value.hung and caught.value.output == "so far\n"
    assert caught.value.console == place / "logs/job.console"


@pytest.mark.parametrize("said, options, times", [
    ("x\\nOops: int3: 0000 [#1] SMP", {}, guest.TRIES),
    ("x\\nQEMU crashed: signal 11", {}, guest.TRIES),
    # The first oops counts, and no other end is tried again.
    ("BUG: unable to handle\\nOops: int3: 1", {}, 1), ("Kernel panic", {}, 1),
    ("int3: 0000", {"cpus": 1}, 1), ("int3: 0000", {"kvm": True}, 1),
    ("int3: 0000", {"timeout": 3}, 1)])
def test_the_emulation_ends_a_guest(place, said, options, times):
    write_program(place / "venv/bin/vng",
                  f"echo >>$BOX/guests; printf '{said}\\n'\n"
                  + "sleep 60" * ("timeout" in options))
    with pytest.raises(Lost, match="ended before its|did not end") as caught:
        boot(place, "true", place / "logs/x", **{"cpus": 2} | options)
    assert caught.value.hung == ("timeout" in options)
    assert (place / "guests").read_text() == times * "\n"


@pytest.mark.parametrize("said, options, times", [
    ("Oops: int3: 0000", {}, guest.TRIES), ("Kernel panic", {}, 1),
    ("Oops: int3: 0000", {"cpus": 1}, 1),
    ("Oops: int3: 0000", {"machine": tiny.HARDWARE}, 1),
    ("Oops: int3: 0000", {"timeout": 3}, 1)])
def test_the_emulation_ends_a_tiny_guest(place, said, options, times):
    write_program(place / "bin/qemu-system-i386",
                  f"echo >>$BOX/guests; echo '{said}'\n"
                  + "exec sleep 60" * ("timeout" in options))
    with pytest.raises(Fail, match="ended too early|did not end in time"):
        tiny.boot_tiny(place / "image", [], place / "logs/x", **options)
    assert (place / "guests").read_text() == times * "\n"


def test_what_a_guest_takes_along(tmp_path):
    """A program, where all are, and a folder's files, where they are; and the
    libraries of both."""
    write(tmp_path, {"etc/conf": "x"})
    shutil.copy("/bin/true", tmp_path / "etc/plugin")
    found = tiny.closure([write_program(tmp_path / "run", "true")],
                         [str(tmp_path / "etc")])
    etc = tmp_path / "etc"
    assert found.items() > {"/bin/run": tmp_path / "run", f"{etc}/plugin":
                            etc / "plugin", f"{etc}/conf": etc / "conf"}.items()
    assert any("/libc.so." in name for name in found)


@pytest.mark.parametrize("accel, there, seconds, tried", [
    ("", True, 0, 1), ("", True, 60, 1), ("", False, 0, 0),
    ("tcg", True, 0, 0)])
def test_when_kvm_is_taken(place, monkeypatch, replace, accel, there, seconds,
                           tried):
    replace(guest.os, access=lambda *_: there)
    replace(guest, PROBE_SECONDS=3 if seconds else 20)
    monkeypatch.setenv("ACCEL", accel)
    monkeypatch.setenv("KVM", str(seconds))
    # Once; an answer of before a reboot does not count.
    write(place, {"kvm.json": '{"boot_id": "another", "works": false}',
                  "guests": ""})
    assert {choose_kvm(place), choose_kvm(place)} == {tried > seconds}
    assert (place / "guests").read_text().count("\n") == tried


@pytest.mark.parametrize("row, fails", [
    ("[    1.0] WARNING: CPU: 0 PID: 1 at x.c:3", True),
    ("[    1.0] BUG: KASAN: use-after-free", True),
    ("UBSAN: shift-out-of-bounds in x.c", True),
    ("virtme-ng-init: WARNING: no network", False),
    ("a invoked oom-killer: gfp\nCPU: 1\nCall Trace:\n <TASK>", False)])
def test_splats(tmp_path, row, fails):
    write(tmp_path, {"x": f"Linux\n{row}\nmore\n"})
    with pytest.raises(Fail, match="has: ") if fails else nullcontext():
        check_splat(tmp_path / "x")


@pytest.mark.parametrize("old, new, words", [
    ("", "", ""), (SAID, UP, "ended too early"), ("n /a", "n /b", "not all"),
    ("PV Dom0", "PVH Dom0", "no PV domain"), ("\nPV\n", "\nPVH\n", "'PVH'"),
    ("0-1", "0", "'/sys/devices/system/cpu/online': '0'"),
    ("@@ done", "(XEN) Panic on CPU 0:\n(XEN) No room\n", "panics: No room")])
def test_a_tiny_guest_and_a_domain_of_xen(kernel, place, old, new, words):
    write(place, {"said": SAID.replace(old, new)})
    what = place / "image", [(place / "a", [])], place / "logs/a"
    with pytest.raises(Fail, match=words) if words else nullcontext():
        assert tiny.boot_xen(kernel, *what) == [RUN]
        assert tiny.boot_tiny(*what, files=tiny.FACTS)[0] == RUN
    said = (place / "logs/a.dom0").read_text()
    # The former is where QEMU is.
    assert "bzImage\ninitramfs\n" in said and "Booting kernel on Xen" in said


@pytest.mark.parametrize("call", [
    "boot(P, f'{QEMU} | cat', P / 'log')",
    "tiny.boot_tiny(P / 'image', [], P / 'log')"])
def test_qemu_ends_with_a_job_that_is_killed(place, call):
    """Also where others are between them, as virtme-ng is."""
    os.mkfifo(place / "said")  # to which nobody writes
    with subprocess.Popen(
            [sys.executable, "-c", "from pathlib import Path\nP = Path()\n"
             f"from tools.guest import QEMU, boot, tiny\n{call}"], cwd=place,
            env=os.environ | {"SERIES_BUILD_DIR": str(place), "PYTHONPATH":
                              str(ROOT), "TMPDIR": str(place)}) as job:
        wait_for(place / "qemu")
        job.kill()
