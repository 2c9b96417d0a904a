# SPDX-License-Identifier: GPL-2.0-only
"""What the guest that installs packages shows, and how it is counted."""

from collections.abc import Callable
from pathlib import Path

import pytest

from tools import core, package
from tools.core import Fail
from tools.count import Count
from tools.ktap import Run

OURS, THEIRS = "7.3.4+ioport2.0-all", "6.1.0-50-amd64"
GOOD = "TAP version 13\n1..1\nok 1 case\n"
# A QEMU whose guest runs the script on the second disk, of whole sectors.
QEMU = r"""#!/bin/sh
for word in "$@"; do case "$word" in
file=*) disk=${word#file=} disk=${disk%%,*} ;;
esac; done
[ $(($(stat -c %s "$disk") % 512)) = 0 ] || exit 9
sh "$disk" | sed 's/$/\r/'
"""


@pytest.fixture
def place(tmp_path: Path, replace: Callable,
          monkeypatch: pytest.MonkeyPatch) -> Path:
    """A folder for all that is written, and a QEMU that boots nothing."""
    replace(core, BUILD=tmp_path)
    replace(package, PLACE=tmp_path / "package", LOGS=tmp_path)
    for name in ("bin", "package"):
        (tmp_path / name).mkdir()
    qemu = tmp_path / "bin/qemu-system-x86_64"
    qemu.write_text(QEMU)
    qemu.chmod(0o755)
    monkeypatch.setenv("PATH", f"{qemu.parent}:/usr/bin:/bin:/usr/sbin:/sbin")
    return tmp_path


def test_a_boot_runs_commands(place: Path) -> None:
    runs = package.boot(place / "disk", "one", {
        "release": "echo 1.2", "false": "(echo no; exit 3)"})
    assert package.release(runs) == "1.2"
    assert runs["false"].status == 3
    package.succeed(runs, "release")
    with pytest.raises(Fail, match="false: status 3: no"):
        package.succeed(runs, "release", "false")


@pytest.mark.parametrize("commands, lost", [
    ({"release": "exit"}, "release"),
    ({"release": "echo 1", "last": "exit"}, "last")])
def test_a_lost_guest_is_a_failure(place: Path, commands: dict[str, str],
                                   lost: str) -> None:
    with pytest.raises(Fail, match=f"'one' did not run {lost};"):
        package.boot(place / "disk", "one", commands)


def boots(**changes: Run) -> Callable[..., dict[str, Run]]:
    """Return a boot(): what each command shows, by guest and command."""
    kernels = {"install": THEIRS, "tests": OURS, "removed": THEIRS}

    def boot(disk: Path, name: str, commands: dict[str, str],
             direct: tuple[str, ...] = ()) -> dict[str, Run]:
        (package.LOGS / f"package-{name}.console").write_text("")
        usual = {"release": Run(kernels.get(name, THEIRS) + "\n", 0, 1),
                 "preemption": Run("#1 SMP PREEMPT_DYNAMIC\n", 0, 1),
                 "left": Run("", 2, 1)}
        return {word: changes.get(
            f"{name}_{word}".replace(" ", "_"),
            usual.get(word, Run(GOOD, 0, 1))) for word in commands}

    return boot


@pytest.mark.parametrize("changes, failed", [
    ({}, None),
    ({"boot_loader_grub": Run("", 1, 1)}, "whole"),
    ({"install_install": Run("", 100, 1)}, "whole"),
    ({"install_release": Run(OURS, 0, 1)}, "the distribution's kernel boots"),
    ({"tests_release": Run(THEIRS, 0, 1)}, "its kernel boots first"),
    ({"tests_preemption": Run("#1 SMP PREEMPT_RT", 0, 1)},
     "PREEMPT_RT as configured"),
    ({"tests_x86/ioperm": Run(GOOD.replace("ok 1", "not ok 1"), 1, 1)}, "ioperm"),
    ({"tests_headers": Run("", 1, 1)}, "headers, removal"),
    ({"tests_remove": Run("", 1, 1)}, "headers, removal"),
    ({"removed_release": Run(OURS, 0, 1)}, "the old kernel boots again"),
    ({"removed_left": Run("/boot/x", 0, 1)}, "nothing is left")])
def test_what_counts(place: Path, replace: Callable, changes: dict[str, Run],
                     failed: str | None) -> None:
    pretend(place, replace, changes)
    count = Count()
    if failed == "whole":
        with pytest.raises(Fail):
            package.run(count, "package", "debian")
        return
    package.run(count, "package", "debian")
    assert [name for word, name, _ in count.rows if word == "fail"] == (
        [f"package: {failed}"] if failed else [])


@pytest.mark.parametrize("kernel, failed", [
    ("PREEMPT_RT", []),
    ("PREEMPT_DYNAMIC", ["package-rt: PREEMPT_RT as configured"])])
def test_a_real_time_kernel_has_to_run(place: Path, replace: Callable,
                                       kernel: str, failed: list[str]) -> None:
    pretend(place, replace, {
        "tests_preemption": Run(f"#1 SMP {kernel} 2026\n", 0, 1)})
    replace(package, why_not=lambda: "", need_tool=lambda *words: None,
            begin=lambda: None)
    count = Count()
    package.group_rt(count)
    assert [name for word, name, _ in count.rows if word == "fail"] == failed


def pretend(place: Path, replace: Callable, changes: dict[str, Run]) -> None:
    """Let nothing be built; guests show what is usual, but for changes."""
    def make_root(root: Path, packages: object, log: Path) -> None:
        for folder in ("srv", "boot"):
            (root / folder).mkdir(parents=True)
        (root / f"boot/vmlinuz-{THEIRS}").touch()

    debs = [place / f"linux-{part}-{OURS}_1_amd64.deb"
            for part in ("headers", "image")]
    for path in (*debs, place / "ioperm"):
        path.touch()
    replace(package, build=lambda *words: debs, make_root=make_root,
            make_disk=lambda *paths: None, boot=boots(**changes),
            port_tests=lambda tree: ["x86/ioperm"], source=lambda name: place,
            build_selftests=lambda *names, **flags: {
                "x86/ioperm": place / "ioperm"})
