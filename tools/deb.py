# SPDX-License-Identifier: GPL-2.0-only
"""Build Debian packages of the kernel with the series: make deb.

The kernel's own bindeb-pkg makes linux-image and linux-headers, from the
user's configuration and a prefix of the series, in build/deb/.  Modules are
signed with a key that is made here, debug information is left out.
"""

import argparse
import os
import re
from pathlib import Path

from tools.build import JOBS, make_environment, settings, source, steps
from tools.core import (BUILD, LOGS, ROOT, Fail, build_lock, git, need_space,
                        need_tool, run_logged, run_main, say, scratch,
                        shown_path, stage)
from tools.records import CHECKS, patches_key, record
from tools.series.apply import SERIES, begin, series_patches
from tools.series.base import REPO, download, unpack, version_of, wanted

# How many headings of the file series a set takes.
SETS = {"fixes": 1, "ports": 2, "all": 100}
# Configurations of the distribution: patterns of their files' names, which
# are amd64_rt_amd64 and, since 7.x, amd64_none_rt-amd64.
DEBIAN = {"debian": "config.amd64_none_amd64.xz",
          "debian-rt": "config.amd64_*rt[-_]amd64.xz"}
# What cannot be as the user has it: keys that only the distribution holds, and
# the debug information, which makes the build three times as large.
CHANGES = """CONFIG_SYSTEM_TRUSTED_KEYS=""
CONFIG_SYSTEM_REVOCATION_KEYS=""
CONFIG_MODULE_SIG_KEY="certs/signing_key.pem"
CONFIG_BUILD_SALT=""
# CONFIG_LOCALVERSION_AUTO is not set
# CONFIG_DEBUG_INFO_DWARF_TOOLCHAIN_DEFAULT is not set
# CONFIG_DEBUG_INFO_DWARF4 is not set
# CONFIG_DEBUG_INFO_DWARF5 is not set
CONFIG_DEBUG_INFO_NONE=y
"""


def version() -> str:
    """Return the version that CHANGELOG.md begins with."""
    found = re.search(r"^## (\d+(?:\.\d+)+)",
                      (ROOT / "CHANGELOG.md").read_text(), re.M)
    if not found:
        raise Fail("CHANGELOG.md has no heading '## NUMBER.NUMBER'")
    return found[1]


def tip(kind: str) -> str:
    """Apply the series; return the commit at which a set ends."""
    begin()
    # Each heading follows a blank line; what is before the first is a title.
    part = "\n\n# ".join(SERIES.read_text().split("\n\n# ")[:SETS[kind] + 1])
    left = sum(name not in part for name in series_patches())
    return git("rev-parse", f"applied~{left}", cwd=REPO).strip()


def distributed(name: str) -> str:
    """Return the text of a configuration of DEBIAN."""
    package = download(f"linux-config-{wanted()['VERSION']}",
                       wanted()["SUITE"])
    with scratch("config") as place:
        unpack(["dpkg-deb", "-x", str(package), str(place)], package)
        for file in place.glob(f"usr/src/*/{DEBIAN[name]}"):
            unpack(["xz", "-d", str(file)], package)
            return file.with_suffix("").read_text()
    raise Fail(f"{shown_path(package)} has no {DEBIAN[name]}")


def configuration(given: str) -> str:
    """Return the text of the configuration that KCONFIG= names, by default
    that of the kernel that runs; nothing for one of DEBIAN."""
    if given in DEBIAN:
        return ""
    path = Path(os.path.expanduser(
        given or f"/boot/config-{os.uname().release}"))
    if not path.is_file():
        raise Fail(f"KCONFIG={path} is not there: give the .config of your "
                   "kernel, or debian or debian-rt for that of the "
                   "distribution")
    text = path.read_text(errors="replace")
    if "CONFIG_X86_64" not in settings(text):
        raise Fail(f"KCONFIG={path} is not the configuration of an x86-64 "
                   "kernel")
    return text


def module_list(given: str) -> list[str]:
    """Return what make gets for the file that LSMOD= names."""
    path = Path(os.path.expanduser(given)).resolve()
    if not path.is_file() or not path.read_text(
            errors="replace").startswith("Module "):
        raise Fail(f"LSMOD={given} is not a file with what lsmod prints: "
                   "lsmod >FILE on the machine that it is for")
    return [f"LSMOD={path}", "localmodconfig"]


def build(kind: str, text: str, modules: list[str]) -> list[Path]:
    """Build the packages of a set with the text of a configuration; return
    their paths.  modules: of module_list()."""
    for tool, package in (("dpkg-buildpackage", "dpkg-dev"),
                          ("dh_listpackages", "debhelper")):
        need_tool(tool, package)
    need_space(BUILD, 4 if modules else 12, "a kernel with its modules")
    commit = tip(kind)
    tree = source(commit, "deb")
    release = f"+ioport{version()}-{kind}"
    if settings(text).get("CONFIG_PREEMPT_RT") == "y":
        release += "-rt"
    place = BUILD / "deb" / release.lstrip("+")
    config = place / "obj/.config"
    config.parent.mkdir(parents=True, exist_ok=True)
    # Of two lines about one option the last counts.
    config.write_text(text + CHANGES)
    make = ["make", "-C", str(tree), f"O={config.parent}", JOBS,
            f"LOCALVERSION={release}"]
    # localmodconfig asks about what nobody has decided yet.
    run_logged(["sh", "-c", "yes '' 2>/dev/null | \"$@\"", "sh", *make,
                "olddefconfig", *modules], LOGS / "deb-config.log",
               env=make_environment(), what="make olddefconfig")
    if settings(config.read_text()).get("CONFIG_DEBUG_INFO") == "y":
        raise Fail("the configuration keeps debug information on: turn off "
                   "in it what selects CONFIG_DEBUG_INFO")
    # bindeb-pkg puts them beside O=.
    for old in place.glob("*.deb"):
        old.unlink()
    with stage(f"building packages in {shown_path(place)}"):
        run_logged([*make, "bindeb-pkg"], LOGS / "deb.log", 12 * 3600,
                   progress=steps, what="make bindeb-pkg",
                   env=make_environment() | {
                       "DEBFULLNAME": "series", "DEBEMAIL": "series@localhost",
                       # By default it has a commit's name, which does not
                       # sort.
                       "KDEB_PKGVERSION": version_of(
                           (tree / "Makefile").read_text()) + release + "-1"})
    # The C library's headers are the distribution's business.
    for path in place.glob("linux-libc-dev_*"):
        path.unlink()
    return sorted(place.glob("*.deb"))


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.partition("\n\n")[0])
    parser.add_argument("--set", choices=list(SETS), default="all",
                        help="fixes, these and the I/O bitmaps, or all "
                        "patches (default)")
    parser.add_argument("--config", default="", metavar="FILE",
                        help="the configuration, also 'debian' or "
                        "'debian-rt' (default: that of the running kernel)")
    parser.add_argument("--lsmod", default="", metavar="FILE",
                        help="what lsmod printed: build only these modules")
    options = parser.parse_args()
    text = configuration(options.config)
    modules = module_list(options.lsmod) if options.lsmod else []
    with build_lock():
        key = patches_key(CHECKS["deb"])
        made = build(options.set, text or distributed(options.config), modules)
        if options.set == "all":
            record("deb", len(made), 0, 0, key=key)
    image, = (path for path in made if path.name.startswith("linux-image-"))
    say("install: apt install "
        + " ".join(f"./{shown_path(path)}" for path in made)
        + f"\nremove: apt remove {image.name.partition('_')[0]}")


if __name__ == "__main__":
    run_main(main)
