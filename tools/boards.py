# SPDX-License-Identifier: GPL-2.0-only
"""The image that boards boot from a stick, and the page of what comes back.

One FAT partition has both kernels, their initramfs, GRUB for BIOS and UEFI,
and gets the results: tools/stick/README.md.  It is written without root, loop
devices and mounts.
"""

import json
import shutil
import subprocess
from pathlib import Path

from tools.build import (BENCH, build_bench, build_selftests, build_sides,
                         describe, image, objects, selftest_names, settings,
                         source)
from tools.core import (ROOT, SIDES, Fail, Kernel, git, run_logged, scratch,
                        shown_path, stage)
from tools.guest.tiny import closure
from tools.selftests import YIELD_TESTS, port_tests
from tools.series.apply import has_yield

STICK = ROOT / "tools/stick"


def build_programs(kernel: Kernel) -> list[Path]:
    """Build what runs on both kernels, static."""
    names = port_tests(source(kernel, "applied"), "_64")
    if has_yield(kernel):
        names += selftest_names(source(kernel, "applied"), "sched",
                                YIELD_TESTS)
    tests = build_selftests(kernel, names, flags=("-static",))
    benches = {row.split()[3] for row in
               (STICK / "steps").read_text().splitlines()}
    return [*tests.values(), *(
        build_bench(kernel, name, static=True) for name in sorted(benches)
        if (BENCH / f"{name}.c").exists())]


def write_image(kernel: Kernel, output: Path) -> None:
    """Write the image of built kernels."""
    config = (objects(kernel, "stick_series") / ".config").read_text()
    about = describe(kernel, "stick_series") | {
        "HZ": settings(config)["CONFIG_HZ"], "patches": git(
            "log", "-1", "--format=%h", cwd=ROOT, check=False).strip()}
    with stage(f"writing {shown_path(output)}"), scratch("stick") as place:
        for name, path in closure(["busybox"]).items():
            copy = place / f"root{name}"
            copy.parent.mkdir(parents=True, exist_ok=True)
            shutil.copyfile(path, copy)
        (place / "root/about").write_text("".join(
            f'"{name}": "{about[name]}",\n'
            for name in ("HZ", "patches", "config", "compiler")))
        run_logged(["sh", str(STICK / "pack.sh"), *map(str, (
            place, *(image(kernel, f"stick_{side}") for side in SIDES),
            *build_programs(kernel)))], kernel.logs / "stick.log",
            what="packing the stick")
        output.parent.mkdir(parents=True, exist_ok=True)
        shutil.move(place / "image", output)


def build_stick(kernel: Kernel) -> Path:
    """Build kernels and programs, write the image; return its path."""
    build_sides(kernel, [f"stick_{side}" for side in SIDES])
    output = kernel.build / f"stick/ioport-yield-{kernel.tested}.img"
    write_image(kernel, output)
    return output


def page(path: Path) -> str:
    """Return the page of a board, results/boards/NAME.md."""
    if not path.is_file():
        raise Fail(f"BOARD={shown_path(path)}: there is no such file")
    try:
        found = json.loads(path.read_text())
    except ValueError:
        found = None
    if not isinstance(found, dict) or not {*found} & {*SIDES}:
        raise Fail(f"BOARD={shown_path(path)} is not from a stick, or not "
                   "all of what it wrote")
    table = subprocess.run(
        ["awk", "-f", str(STICK / "table.awk"), str(STICK / "figures"),
         str(path)], capture_output=True, text=True, check=True).stdout
    about = [*found.values()][0]
    return "\n".join([
        f"# {about['product'].strip()}", "",
        "Under a hypervisor, not real hardware.\n" if about["hypervisor"]
        else "", table, *(f"- {name}: {text.strip()}" for name, text in
                          about.items()
                          if isinstance(text, str) and name != "failed"),
        *(f"- failed, {side}: {part['failed'].strip()}"
          for side, part in found.items() if part.get("failed")), ""])
