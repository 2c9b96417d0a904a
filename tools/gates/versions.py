# SPDX-License-Identifier: GPL-2.0-only
"""The gate of the point releases that Debian ships."""

import os
import subprocess

from tools.core import PATCHES, ROOT, Fail, Kernel, run_logged
from tools.count import Count
from tools.series.apply import series_patches
from tools.series.base import private_apt

SUITES = ("bookworm", "bookworm-security", "bookworm-backports", "trixie",
          "trixie-security", "trixie-backports")


def group(kernel: Kernel, count: Count) -> None:
    """The series applies without fuzz to all versions that Debian ships."""
    patches = [str(PATCHES / name) for name in series_patches(kernel)]
    name, done = kernel.package, set()
    for suite in SUITES:
        env = os.environ | {"APT_CONFIG": str(private_apt(kernel, suite))}
        run_logged(["apt-get", "update"], kernel.logs / "apt.log", env=env)
        rows = subprocess.run(["apt-cache", "madison", name], env=env,
                              capture_output=True, text=True).stdout
        for row in rows.splitlines():
            version = row.split("|")[1].strip()
            # Of those of one point release, the newest in a suite.
            if (point := version.partition("-")[0]) in done:
                continue
            done.add(point)
            command = [f"{ROOT}/tools/gates/apply.sh", f"{name}={version}"]
            count.run(f"versions: {version} of {suite}", lambda: run_logged(
                [*command, *patches], kernel.logs / "version.log", env=env))
    if not done:
        raise Fail(f"no {name} in {', '.join(SUITES)}")
