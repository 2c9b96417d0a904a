# SPDX-License-Identifier: GPL-2.0-only
"""How the guest that installs packages runs a script on its second disk."""

from collections.abc import Callable
from pathlib import Path

import pytest

from tools import package
from tools.core import Fail

# A QEMU whose guest runs the script on the second disk, of whole sectors.
QEMU = r"""#!/bin/sh
for word in "$@"; do case "$word" in
file=*) disk=${word#file=} disk=${disk%%,*} ;;
esac; done
[ $(($(stat -c %s "$disk") % 512)) = 0 ] || exit 9
sh "$disk" | sed 's/$/\r/'
"""


@pytest.fixture
def disk(tmp_path: Path, replace: Callable,
         monkeypatch: pytest.MonkeyPatch) -> Path:
    """A disk; QEMU boots nothing."""
    replace(package, LOGS=tmp_path)
    qemu = tmp_path / "qemu-system-x86_64"
    qemu.write_text(QEMU)
    qemu.chmod(0o755)
    monkeypatch.setenv("PATH", f"{tmp_path}:/usr/bin:/bin:/usr/sbin:/sbin")
    return tmp_path / "disk"


def test_a_boot_runs_commands(disk: Path) -> None:
    runs = package.boot(disk, "one", {
        "release": "echo 1.2", "left": "! ls /nowhere", "bad": "(exit 3)"})
    assert runs["release"].output.strip() == "1.2"
    assert [run.status for run in runs.values()] == [0, 0, 3]


@pytest.mark.parametrize("commands, lost", [
    ({"release": "exit"}, "release"),
    ({"release": "echo 1", "last": "exit"}, "last")])
def test_a_lost_guest_is_a_failure(disk: Path, commands: dict[str, str],
                                   lost: str) -> None:
    with pytest.raises(Fail, match=f"'one' did not run {lost};"):
        package.boot(disk, "one", commands)
