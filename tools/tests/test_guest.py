# SPDX-License-Identifier: GPL-2.0-only
"""Guests, with stubs that do what virtme-ng or QEMU would."""

import os
from contextlib import nullcontext

import pytest

from conftest import check_gone, write, write_program
from tools import core, guest
from tools.core import Fail
from tools.guest import Lost, boot, check_splat, choose_kvm, tiny, xen
from tools.ktap import Run

VNG = """\
echo "$*" >>guests
case "$* " in *" --disable-kvm "*) how=$GUEST ;; *) how=$KVM ;; esac
if [ "$how" = hang ]; then
	echo "Booting the kernel."; sleep 60 & echo $! >../../hangs; wait
fi
for last; do :; done
exec "$last"
"""


@pytest.fixture
def place(tmp_path, monkeypatch):
    """A build folder with a stub of vng, which runs the command here."""
    for module in (core, guest, tiny, xen):
        for name, value in (("BUILD", tmp_path), ("LOGS", tmp_path / "logs"),
                            ("need_tool", lambda *_: None)):
            monkeypatch.setattr(module, name, value, raising=False)
    monkeypatch.setattr(guest, "VENV", tmp_path / "venv")
    write_program(tmp_path / "venv/bin/vng", VNG.replace(
        "guests", str(tmp_path / "guests")))
    write(tmp_path, {"arch/x86/boot/bzImage": "kernel"})
    for name in ("GUEST", "KVM", "ACCEL"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setenv("PATH", f"{tmp_path}/bin:{os.environ['PATH']}")
    yield tmp_path
    assert not list((tmp_path / "tmp").glob("*"))


def test_output_and_status_come_back(place):
    result = boot(place, "printf '%s.' 'a  b' \"it's\"; echo err >&2; exit 3",
                  append=("x=1", "y"))
    assert (result.status, result.output) == (3, "a  b.it's.err\n")
    assert (place / "logs/guest.ktap").read_text() == result.output
    assert "--append x=1 --append y" in (place / "guests").read_text()


def test_a_guest_that_hangs_is_ended(place, monkeypatch):
    with pytest.raises(Lost, match="    | so far") as caught:
        boot(place, "echo so far; sleep 60", timeout=3)
    assert caught.value.output == "so far\n"
    assert (place / "logs/guest.ktap").read_text() == "so far\n"
    monkeypatch.setenv("GUEST", "hang")
    with pytest.raises(Lost, match="(?s)did not end within 3 s.*Booting the "
                       "kernel") as caught:
        boot(place, "true", timeout=3, name="job")
    assert caught.value.hung
    assert caught.value.console == place / "logs/job.console"
    check_gone(place / "hangs")


@pytest.mark.parametrize("said, options, times", [
    ("x\\nOops: int3: 0000 [#1] SMP", {}, guest.TRIES),
    ("x\\nQEMU crashed: signal 11", {}, guest.TRIES),
    # The first oops counts, and no other end is tried again.
    ("BUG: unable to handle\\nOops: int3: 1", {}, 1),
    ("Kernel panic", {}, 1),
    ("Oops: int3: 0000", {"timeout": 3}, 1),
    ("Oops: int3: 0000", {"cpus": 1}, 1),
    ("Oops: int3: 0000", {"kvm": True}, 1)])
def test_the_emulation_ends_a_guest(place, said, options, times):
    write_program(place / "venv/bin/vng",
                  f"echo >>{place}/guests; printf '{said}\\n'\n"
                  + "sleep 60" * ("timeout" in options))
    with pytest.raises(Lost, match="ended before its|did not end") as caught:
        boot(place, "true", **{"cpus": 2} | options)
    assert caught.value.hung == ("timeout" in options)
    assert (place / "guests").read_text() == times * "\n"


@pytest.mark.parametrize("accel, there, how, works", [
    ("", True, "", True), ("", True, "hang", False), ("", False, "", False),
    ("tcg", True, "", False)])
def test_when_kvm_is_taken(place, monkeypatch, accel, there, how, works):
    monkeypatch.setattr(guest.os, "access", lambda *_: there)
    monkeypatch.setattr(guest, "PROBE_SECONDS", 3 if how else 20)
    monkeypatch.setenv("ACCEL", accel)
    monkeypatch.setenv("KVM", how)
    # Once; an answer of before a reboot does not count.
    write(place, {"kvm.json": '{"boot_id": "another", "works": false}',
                  "guests": ""})
    assert [choose_kvm(place) for _ in range(2)] == [works, works]
    assert (place / "guests").read_text().count("\n") == (
        there and accel != "tcg")


@pytest.mark.parametrize("row, bad", [
    ("[    1.0] WARNING: CPU: 0 PID: 1 at x.c:3", True),
    ("[    1.0] BUG: KASAN: use-after-free", True),
    ("UBSAN: shift-out-of-bounds in x.c", True),
    ("virtme-ng-init: WARNING: no network", False),
    ("a invoked oom-killer: gfp\nCPU: 1\nCall Trace:\n <TASK>", False)])
def test_splats(tmp_path, row, bad):
    write(tmp_path, {"console": f"Linux\n{row}\nmore\n"})
    with pytest.raises(Fail, match="console has: ") if bad else nullcontext():
        check_splat(tmp_path / "console")


BOOT = ("Linux\n@@ begin /a\r\n1..1\nok 1 one\n\n@@ end /a 0 2\r\n"
        "@@ begin /proc/x\n7\n\n@@ end /proc/x 0 0\n@@ done 2\n")


def boot_tiny(place, said, **options):
    """boot_tiny() with a QEMU that says this."""
    write(place, {"said": said, "a": "", "image": ""})
    for name in ("i386", "x86_64"):
        write_program(place / f"bin/qemu-system-{name}",
                      f"echo {name} >>{place}/qemu; cat {place}/said\n")
    return tiny.boot_tiny(place / "image", [(place / "a", [])],
                          files=["/proc/x"], **options)


def test_what_programs_and_files_said_comes_back(place):
    (name, run), (shown, text) = boot_tiny(place, BOOT)
    assert (name, run) == ("a", Run("1..1\nok 1 one\n\n", 0, 2))
    assert (shown, text.output.strip()) == ("proc/x", "7")
    boot_tiny(place, BOOT, bits=64, append="quiet")
    assert (place / "qemu").read_text().split() == ["i386", "x86_64"]
    with pytest.raises(Fail, match="not all programs ran"):
        boot_tiny(place, BOOT.replace("begin /a", "begin /b"))


# What is really there, with Xen's lines where they happened to come.
UP = ("(XEN) Xen version 4.17\r\n(XEN) *** Building a PV Dom0 ***\r\n"
      "[    0.000000] Booting ker(XEN) one\r\nnel on Xen PV\r\r\n")
FACTS = "".join(f"@@ begin {path}\n{value}\n\n@@ end {path} 0 0\r\r\n"
                for path, value in {**xen.FACTS, xen.ONLINE: "0-1"}.items())
XEN = UP + BOOT[:BOOT.index("@@ begin /proc")].replace("\r", "\r\r") + \
    FACTS + "@@ done 4\n"


def boot_xen(place, said):
    write(place, {"said": said, "a": "", "image": "", "xen/xen": ""})
    write_program(place / "bin/qemu-system-x86_64",
                  f"ls >{place}/files; cat {place}/said\n")
    return xen.boot_xen(place / "image", [(place / "a", [])])


def test_a_domain_of_xen(place, monkeypatch):
    monkeypatch.setattr(xen, "HYPERVISOR", place / "xen/xen")
    assert boot_xen(place, XEN) == [("a", Run("1..1\nok 1 one\n\n", 0, 2))]
    assert (place / "files").read_text().split() == ["bzImage", "initramfs",
                                                     "root"]
    assert "Booting kernel on Xen PV\nLinux\n@@" in (
        place / "logs/xen.dom0").read_text()
    for said, words in (
            ("", "Xen did not start"), (UP, "ended too early"),
            (UP.replace("PV Dom0", "PVH Dom0"), "built no PV domain"),
            (UP + "(XEN) Panic on CPU 0:\n(XEN) No room\n", "panics: No room"),
            (XEN.replace("\nPV\n", "\nPVH\n"), "and not 'PV'"),
            (XEN.replace("0-1", "0"), "and not '0-1'")):
        with pytest.raises(Fail, match=words):
            boot_xen(place, said)
