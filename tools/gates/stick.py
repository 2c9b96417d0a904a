# SPDX-License-Identifier: GPL-2.0-only
"""The gate of the stick: QEMU boots its image, with BIOS and with UEFI."""

import shutil
from pathlib import Path

from tools.boards import build_stick, page, write_image
from tools.core import Fail, Kernel, read_json, run_logged, scratch, stage
from tools.count import Count

# One thread: QEMU runs no code that another CPU is patching.  Without erms the
# kernel clears no page byte by byte, which takes QEMU long.
QEMU = """\
qemu-system-x86_64 -machine q35 -accel tcg,thread=single -m 2G
-cpu max,-erms,-fsrm -nodefaults -vga std -display none -serial stdio
-device qemu-xhci""".split()
FIRMWARE = {"BIOS": [], "UEFI": """\
-drive if=pflash,format=raw,readonly=on,file=/usr/share/OVMF/OVMF_CODE_4M.fd
-drive if=pflash,format=raw,snapshot=on,file=/usr/share/OVMF/OVMF_VARS_4M.fd
""".split()}
# Ends QEMU without a word when its console, $1, has the text $2.
PULL = """log=$1 text=$2; shift 2; "$@" &
until grep -q "$text" "$log"; do sleep 1; done; kill -9 $!"""
# A busy host may not deliver the timer's interrupts in time for this check.
MORE = "more=no_timer_check"
SHORT = f"{MORE} only=test.iop"
WHOLE = ("base", "series", "again")
CASES = (("BIOS 1", MORE, "", WHOLE), ("UEFI 2", MORE, "", WHOLE),
         ("UEFI 2 panic", f"{SHORT} crash=series", "", ("base", "again")),
         ("BIOS 2 hang", f"{SHORT} hang=series", "", ("base", "again")),
         ("BIOS 1 pulled", SHORT, "series: ioperm", ("base",)),
         ("BIOS 1 locked", SHORT, "", ("base",)))
# Results are in the image $1, or where that is locked on the console, $2.
CHECK = """cd $0; tail -c +1048577 $1 >part; fsck.fat -n part
mcopy -i part '::results/*.json' json || {
	grep -q 'please photograph it' $2
	{ echo {; sed -n 's/.*STICK //p' $2 | base64 -di | zcat; echo }; } >json
}"""
SECONDS = 3 * 3600


def boot(kernel: Kernel, title: str, disks: list[Path], more: str, pull: str,
         sides: tuple[str, ...]) -> None:
    """Boot the first disk until the machine powers off, or until its console
    has a text: then it is pulled out.  These kernels have all results, nothing
    failed on the series, and the page says what did on the base.

    title: begins with firmware and processors, ends with "locked" if nothing
    can be written.  more: a line of grubenv.
    """
    log = kernel.logs / f"stick-{title.replace(' ', '-')}"
    firmware, cpus, *_ = title.split()
    command = [*QEMU, *FIRMWARE[firmware], "-smp", cpus]
    lock = ",readonly=on" * title.endswith("locked")
    for number, path in enumerate(disks):
        command += ["-drive",
                    f"if=none,format=raw,id=d{number},file={path}{lock}",
                    "-device", f"usb-storage,drive=d{number},"
                    f"bootindex={number}"]
    with scratch("gate") as place, stage(f"booting the stick: {title}"):
        (place / "grubenv").write_text(
            f"# GRUB Environment Block\n{more}\n".ljust(1024, "#"))
        run_logged(["mcopy", "-o", "-i", f"{disks[0]}@@1M",
                    f"{place}/grubenv", "::grub"], log)
        console = log.with_suffix(".console")
        run_logged(["sh", "-c", PULL, "sh", str(console), pull, *command]
                   if pull else command, console, timeout=SECONDS, what=title)
        run_logged(["sh", "-ec", CHECK, str(place), str(disks[0]),
                    str(console)], log, what="the check of it")
        found, text = read_json(place / "json"), page(place / "json")
    failed = [f"{side}: {name}" for side, part in found.items()
              for name, verdict in part["verdicts"].items()
              # Measurements fail nowhere; a busy host spoils yield_test.
              if verdict == "fail" and ("." in name or side == "series")
              and name != "yield_test"]
    if failed or [*found] != [*sides] or \
            more == MORE and ("| - |" in text or "not ok" not in text):
        raise Fail(f"failed: {', '.join(failed)}; the page:\n{text}")


def group_stick(kernel: Kernel, count: Count) -> None:
    """The stick measures base and series, and writes nothing else."""
    image = build_stick(kernel)
    with scratch("stick") as place:
        write_image(kernel, place / "again")
        count.test("stick: two runs write the same", "other bytes" * (
            image.read_bytes() != (place / "again").read_bytes()))
        foreign = shutil.copyfile(image, place / "foreign")
        run_logged(["mlabel", "-i", f"{foreign}@@1M", "-N", "12345678", "::"],
                   kernel.logs / "stick.log")
        before = foreign.read_bytes()
        for title, *what in CASES:
            stick = shutil.copyfile(image, place / "stick")
            count.run(f"stick: {title}", boot, kernel, title,
                      [stick, foreign], *what)
        count.test("stick: the other disk is as before", "it was written" * (
            foreign.read_bytes() != before))
