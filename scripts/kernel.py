#!/usr/bin/env python3
# SPDX-License-Identifier: GPL-2.0-only
"""Build the base, series and debug kernels in build/base, build/series and
build/debug.

In their source trees and through ccache: what is the same in two of them is
compiled once.  The debug kernel is the series with configs/debug.config.
Those named mutants are for scripts/mutants.py, which plants bugs in them;
those named history, server, softrt and ext for scripts/study.py; those named
hz for scripts/yieldhz.py.
"""

import argparse
import os
import re
import shutil
from pathlib import Path

from apply import apply_series
from base import REPO, get_base
from common import (BUILD, CONFIGS, LOGS, Fail, build_lock, git, need_space,
                    need_tool, run_logged, run_main, say, shown_path, stage)

GUEST = CONFIGS / "guest.config"
DEBUG = CONFIGS / "debug.config"
FAULTS = CONFIGS / "faults.config"
KVM = CONFIGS / "kvm.config"
SERVER = CONFIGS / "study-server.config"
SOFTRT = CONFIGS / "study-softrt.config"
EXT = CONFIGS / "study-ext.config"
HZ100 = CONFIGS / "gates/hz100.config"
HZ250 = CONFIGS / "gates/hz250.config"
# The two that are compared.
SIDES = ("base", "series")
# Branch of build/linux.git and configuration fragments of each kernel.
KERNELS = {"base": ("base", (GUEST,)),
           "series": ("applied", (GUEST,)),
           "debug": ("applied", (GUEST, DEBUG)),
           "mutants": ("applied", (GUEST,)),
           "mutants_faults": ("applied", (GUEST, FAULTS)),
           "mutants_debug": ("applied", (GUEST, DEBUG)),
           "mutants_kvm": ("applied", (GUEST, KVM)),
           "series_hz100": ("applied", (GUEST, HZ100)),
           "series_hz250": ("applied", (GUEST, HZ250)),
           "history_8k": ("history_8k", (GUEST,)),
           "history_prefix": ("history_prefix", (GUEST,)),
           "base_server": ("base", (GUEST, SERVER)),
           "series_server": ("applied", (GUEST, SERVER)),
           "base_softrt": ("base", (GUEST, SOFTRT)),
           "series_softrt": ("applied", (GUEST, SOFTRT)),
           "base_ext": ("base", (GUEST, EXT))}
BUILD_TIMEOUT = 3 * 3600


def make_environment():
    """Return the environment (dict) for a kernel build.

    No name or time of this machine, so that ccache hits and two builds of
    one tree are the same.
    """
    environment = os.environ | {
        "KBUILD_BUILD_USER": "series", "KBUILD_BUILD_HOST": "series",
        "KBUILD_BUILD_TIMESTAMP": "2000-01-01", "KBUILD_BUILD_VERSION": "1",
        "LOCALVERSION": "", "CCACHE_NOHASHDIR": "1", "LC_ALL": "C"}
    # What a make above this one set is not meant for the kernel's make.
    for name in ("MAKEFLAGS", "MFLAGS", "MAKELEVEL", "MAKEOVERRIDES",
                 "ARCH", "O", "KSRC", "FORCE", "V"):
        environment.pop(name, None)
    return environment


def kernel_make(tree, *targets):
    """Return the command (list of str) that makes targets in a tree."""
    return ["make", "-C", str(tree), f"-j{os.cpu_count()}",
            "CC=ccache gcc", "HOSTCC=ccache gcc", *targets]


def missing_settings(config, fragment):
    """Return the lines of a fragment (str) that a .config (str) lacks."""
    have = set(config.splitlines())
    lacking = []
    for line in fragment.splitlines():
        line = line.strip()
        off = re.fullmatch(r"(CONFIG_\w+)=n|# (CONFIG_\w+) is not set", line)
        if off:
            name = off.group(1) or off.group(2)
            if any(row.startswith(f"{name}=") for row in have):
                lacking.append(line)
        elif line.startswith("CONFIG_") and line not in have:
            lacking.append(line)
    return lacking


def last_said(fragments):
    """Return fragments (str) without what a later line says otherwise."""
    said = {}
    for line in fragments.splitlines():
        name = re.match(r"(?:# )?(CONFIG_\w+)(?==| is not set)", line.strip())
        if name:
            said.pop(name.group(1), None)
            said[name.group(1)] = line.strip()
    return "".join(line + "\n" for line in said.values())


def configure(tree, fragments, log):
    """Write tree/.config from fragments (paths), when it is not that already.

    Raises Fail naming the settings that Kconfig did not take.
    """
    config = tree / ".config"
    stamp = tree / ".config.fragments"
    wanted = "".join(path.read_text() for path in fragments)
    if config.exists() and stamp.exists() and stamp.read_text() == wanted:
        return
    stamp.unlink(missing_ok=True)
    run_logged(["./scripts/kconfig/merge_config.sh", "-n",
                *map(str, fragments)],
               log, cwd=tree, env=make_environment(), what="merge_config.sh")
    lacking = missing_settings(config.read_text(), last_said(wanted))
    if lacking:
        names = ", ".join(shown_path(path) for path in fragments)
        raise Fail(f"this kernel does not take {', '.join(lacking)} of "
                   f"{names}: they have other dependencies here")
    stamp.write_text(wanted)


def checkout(side):
    """Put build/SIDE at its commit, touching only files that differ.

    Returns the tree's path.
    """
    tree = BUILD / side
    commit = git("rev-parse", KERNELS[side][0], cwd=REPO).strip()
    if (tree / ".git").exists():
        at = git("rev-parse", "-q", "--verify", "HEAD", cwd=tree,
                 check=False).strip()
        dirty = git("status", "--porcelain", "-uno", cwd=tree,
                    check=False).strip()
        if at != commit or dirty:
            (git_dir(tree) / "index.lock").unlink(missing_ok=True)
            git("checkout", "-q", "-f", "--detach", commit, cwd=tree)
    else:
        need_space(BUILD, 4, f"the {side} kernel")
        shutil.rmtree(tree, ignore_errors=True)
        git("worktree", "prune", cwd=REPO)
        with stage(f"checking out build/{side}"):
            partial = BUILD / f"{side}.partial"
            shutil.rmtree(partial, ignore_errors=True)
            git("worktree", "prune", cwd=REPO)
            git("worktree", "add", "-q", "-f", "--detach", partial, commit,
                cwd=REPO)
            git("worktree", "move", partial, tree, cwd=REPO)
    return tree


def git_dir(tree):
    """Return the path of a work tree's git folder."""
    return REPO / "worktrees" / (tree / ".git").read_text().split("/")[-1] \
        .strip()


def compiled(log):
    """Say (str) how far a kernel build's log has come."""
    with open(log, "rb") as file:
        return f"{sum(1 for _ in file)} steps"


def build_kernel(side):
    """Build one side's bzImage and headers; returns the tree's path."""
    for tool, package in (("ccache", "ccache"), ("flex", "flex"),
                          ("bison", "bison"), ("bc", "bc"),
                          ("gcc", "gcc"), ("make", "make")):
        need_tool(tool, package)
    tree = checkout(side)
    log = LOGS / f"build-{side}.log"
    configure(tree, KERNELS[side][1], LOGS / f"config-{side}.log")
    with stage(f"building the {side} kernel"):
        run_logged(kernel_make(tree, "bzImage", "headers"), log,
                   timeout=BUILD_TIMEOUT, env=make_environment(),
                   what=f"building the {side} kernel", progress=compiled)
    return tree


def image_path(tree):
    """Return where the bzImage of a kernel tree (Path) is (Path)."""
    return Path(tree) / "arch/x86/boot/bzImage"


def describe(tree):
    """Return what a built kernel is (dict): version, commit, config, gcc."""
    fragments = KERNELS.get(Path(tree).name, ("", (GUEST,)))[1]
    release = (tree / "include/config/kernel.release").read_text().strip()
    config = (tree / ".config").read_text()
    compiler = re.search(r'^CONFIG_CC_VERSION_TEXT="(.*)"$', config, re.M)
    return {"release": release,
            "commit": git("rev-parse", "HEAD", cwd=tree).strip(),
            "config": " + ".join(shown_path(path) for path in fragments),
            "compiler": compiler.group(1) if compiler else "unknown"}


def build_sides(sides=SIDES):
    """Get the base, apply the series and build the kernels of sides.

    Returns a dict from side (str) to its tree (Path).
    """
    get_base()
    apply_series()
    return {side: build_kernel(side) for side in sides}


def main():
    parser = argparse.ArgumentParser(description=__doc__.split("\n\n")[0])
    parser.add_argument("side", nargs="*", default=list(SIDES),
                        help="base, series, debug (default: the first two)")
    options = parser.parse_args()
    for side in options.side:
        if side not in KERNELS:
            raise Fail(f"'{side}' is none of {', '.join(KERNELS)}")
    with build_lock():
        trees = build_sides(options.side)
        for side, tree in trees.items():
            about = describe(tree)
            say(f"{side}: {about['release']}, {about['compiler']}, "
                f"{shown_path(image_path(tree))}")


if __name__ == "__main__":
    run_main(main)
