# SPDX-License-Identifier: GPL-2.0-only
"""Releases: which files, of what, and the same bytes twice."""

import shutil
import subprocess
from pathlib import Path

import pytest
from conftest import IOPORT, Box, git, make_kernel, write

RELEASE = "tools.release"
NAME = "ioport-yield-2.0"


@pytest.fixture
def committed(box: Box, patches: dict[str, bytes]) -> Box:
    """A repository with patches, in git; build/ is not in it."""
    box.set_patches(patches)
    write(box.repo, {"CHANGELOG.md": "# Changes\n\n## 2.0, not yet\n"})
    git(box.repo, "init", "-q")
    git(box.repo, "add", "-A")
    git(box.repo, "commit", "-q", "-m", "All")
    return box


def test_a_release_is_the_same_to_the_byte(committed: Box) -> None:
    ksrc, place = make_kernel(committed.temp / "linux"), \
        committed.build / "release/2.0"
    found = []
    for _ in range(2):
        shutil.rmtree(committed.build, ignore_errors=True)
        committed.done(RELEASE, KSRC=ksrc, say=f"{NAME}.tar.xz")
        found.append({path.name: path.read_bytes()
                      for path in place.iterdir()})
    assert found[0] == found[1]
    assert sorted(found[0]) == ["SHA256SUMS", f"{NAME}.tar.xz",
                                f"linux-7.3-{NAME}.patch"]
    assert subprocess.run(["sha256sum", "-c", "SHA256SUMS"], cwd=place,
                          capture_output=True).returncode == 0
    # The patch gives what the series gives.
    subprocess.run(["patch", "-p1", "-s", "-d", ksrc, "-i",
                    place / f"linux-7.3-{NAME}.patch"], check=True)
    assert (ksrc / IOPORT).read_text().strip() == git(
        committed.build / "linux.git", "show", f"applied:{IOPORT}")


def test_a_release_is_of_a_commit_with_a_version(committed: Box) -> None:
    committed.refused(RELEASE, KERNEL="7.3", say="which needs no KERNEL=")
    changes = Path(committed.repo / "CHANGELOG.md")
    changes.write_text("# Changes\n")
    committed.refused(RELEASE, say="changes that are not committed")
    git(committed.repo, "commit", "-qam", "No version")
    committed.refused(RELEASE, say="no heading")
    assert not (committed.build / "release").exists()
