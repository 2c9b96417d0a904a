# SPDX-License-Identifier: GPL-2.0-only
"""The gate of the point releases that Debian ships."""

import os
import subprocess

from tools.core import LOGS, Fail, run_logged, scratch
from tools.count import Count
from tools.series.apply import PATCHES, series_patches, touched_files
from tools.series.base import private_apt, wanted

SUITES = ("bookworm", "bookworm-security", "bookworm-backports", "trixie",
          "trixie-security", "trixie-backports")
# What the patches add is not there yet.
APPLY = """apt-get download "$0"
dpkg-deb --fsys-tarfile *.deb | tar -xO --wildcards './usr/src/*.tar.xz' |
	tar -xJ --strip-components=1 --no-anchored -T files ||
	[ -e arch/x86/kernel/ioport.c ]
for patch; do
	echo "$patch"
	patch -p1 --fuzz=0 <"$patch"
done
"""


def check_version(package: str, env: dict[str, str]) -> None:
    """The files of a package, NAME=VERSION, take the series without fuzz."""
    names = series_patches()
    with scratch("version") as place:
        (place / "files").write_text("\n".join(touched_files(names)) + "\n")
        run_logged(["sh", "-ec", APPLY, package,
                    *(str(PATCHES / name) for name in names)],
                   LOGS / "version.log", cwd=place, env=env, what=package)


def group(count: Count) -> None:
    """The series applies without fuzz to all versions that Debian ships."""
    package, done = wanted()["PACKAGE"], set()
    for suite in SUITES:
        env = os.environ | {"APT_CONFIG": str(private_apt(suite))}
        run_logged(["apt-get", "update"], LOGS / "apt.log", env=env)
        rows = subprocess.run(["apt-cache", "madison", package], env=env,
                              capture_output=True, text=True).stdout
        for row in rows.splitlines():
            version = row.split("|")[1].strip()
            # Of those of one point release, the newest in a suite.
            if (point := version.partition("-")[0]) not in done:
                done.add(point)
                count.run(f"versions: {version} of {suite}", check_version,
                          f"{package}={version}", env)
    if not done:
        raise Fail(f"no {package} in {', '.join(SUITES)}")
