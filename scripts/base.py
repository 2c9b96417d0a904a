#!/usr/bin/env python3
# SPDX-License-Identifier: GPL-2.0-only
"""Get the base kernel into build/linux.git as one commit, branch `base`.

From KSRC= (a git clone or a plain source tree, which is only read), or from
the source package that the file BASE names.
"""

import argparse
import os
import re
import shutil
import subprocess
import tempfile
import urllib.parse
from pathlib import Path

from common import (BUILD, LOGS, ROOT, Fail, build_lock, git, need_space,
                    need_tool, read_settings, run_git, run_logged, run_main,
                    say, shown_path, stage, tail, write_atomically)

REPO = BUILD / "linux.git"
DOWNLOAD = BUILD / "download"
RECORD = BUILD / "base.source"
# One commit of the same tree has the same name everywhere.
EPOCH = "2000-01-01T00:00:00+0000"


def wanted():
    """Return the settings of BASE (dict of str)."""
    return read_settings(ROOT / "BASE")


def version_of(makefile):
    """Return the kernel version (str) that a top Makefile's text states.

    Raises Fail when the text is not that of a kernel's top Makefile.
    """
    part = {}
    for name in ("VERSION", "PATCHLEVEL", "SUBLEVEL", "EXTRAVERSION"):
        found = re.search(rf"^{name} *=[ \t]*(\S*)[ \t]*$", makefile, re.M)
        part[name] = found.group(1) if found else ""
    if not part["VERSION"] or not part["PATCHLEVEL"]:
        raise Fail("not a kernel")
    version = f"{part['VERSION']}.{part['PATCHLEVEL']}"
    if part["SUBLEVEL"] not in ("", "0"):
        version += f".{part['SUBLEVEL']}"
    return version + part["EXTRAVERSION"]


def accept(version, force):
    """Check a found version (str) against BASE.

    Another 7.3.y gives a notice; any other version raises Fail unless force
    is set.
    """
    want = wanted()
    if version == want["TESTED"]:
        return
    exact = re.escape(want["VERSION"])
    if re.fullmatch(rf"{exact}(\.\d+)?", version):
        say(f"    notice: this is {version}; the series was tested on "
            f"{want['TESTED']}")
        return
    if not force:
        raise Fail(f"the tree is Linux {version}, the series is for "
                   f"{want['VERSION']}.y (tested on {want['TESTED']}): give a "
                   f"v{want['VERSION']} tree with KSRC=, or try the series on "
                   "this one with FORCE=1")
    say(f"    notice: this is {version}, not {want['VERSION']}.y: trying the "
        "series all the same (FORCE)")


def commit_tree(tree, version):
    """Make `base` a parentless commit of a git tree and return its name."""
    dates = {"GIT_AUTHOR_NAME": "series",
             "GIT_AUTHOR_EMAIL": "series@localhost",
             "GIT_AUTHOR_DATE": EPOCH, "GIT_COMMITTER_DATE": EPOCH}
    commit = git("commit-tree", tree, "-m", f"Linux {version}", cwd=REPO,
                 env=dates).strip()
    # An interruption must not leave a record of another base.
    RECORD.unlink(missing_ok=True)
    git("update-ref", "refs/heads/base", commit, cwd=REPO)
    return commit


def make_repo():
    """Create the bare repository that all work trees hang on."""
    if (REPO / "HEAD").exists():
        return
    need_space(BUILD, 9, "the base, two kernels and their tests")
    partial = BUILD / "linux.git.partial"
    shutil.rmtree(partial, ignore_errors=True)
    try:
        git("init", "-q", "--bare", "-b", "base", partial)
        partial.rename(REPO)
    except BaseException:
        shutil.rmtree(partial, ignore_errors=True)
        raise


def tree_from_folder(folder, index, everything):
    """Add a folder's files to REPO and return the git tree's name (str).

    The folder is only read.  everything: take files that its .gitignore
    names too (right for an unpacked archive, wrong for a tree that was
    built in).
    """
    where = {"GIT_DIR": str(REPO), "GIT_WORK_TREE": str(folder),
             "GIT_INDEX_FILE": str(index)}
    # The index is ours alone: its lock is left from a job that was killed.
    Path(f"{index}.lock").unlink(missing_ok=True)
    git("add", "-A", *(["-f"] if everything else []), ".", cwd=folder,
        env=where)
    return git("write-tree", cwd=folder, env=where).strip()


def from_ksrc(ksrc, force):
    """Take the user's tree as base; returns the base commit's name."""
    path = Path(os.path.expanduser(ksrc)).resolve()
    if not path.is_dir():
        raise Fail(f"KSRC={ksrc} is not a folder")
    inside = run_git("rev-parse", "--show-toplevel", cwd=path)
    is_clone = inside.returncode == 0 and \
        Path(os.fsdecode(inside.stdout.rstrip(b"\n"))).resolve() == path
    try:
        if is_clone:
            makefile = git("show", "HEAD:Makefile", cwd=path, check=False)
        else:
            makefile = (path / "Makefile").read_text(errors="replace")
        version = version_of(makefile)
        if is_clone:
            git("cat-file", "-e", "HEAD:Kconfig", cwd=path)
        elif not (path / "Kconfig").exists():
            raise Fail("not a kernel")
    except (OSError, Fail):
        raise Fail(f"KSRC={ksrc} is not a Linux source tree: its top folder "
                   "has no kernel Makefile") from None
    accept(version, force)
    make_repo()
    if is_clone:
        head = git("rev-parse", "HEAD", cwd=path).strip()
        if git("status", "--porcelain", "-uno", "--ignore-submodules",
               cwd=path, env={"GIT_OPTIONAL_LOCKS": "0"}).strip():
            say("    notice: KSRC has uncommitted changes; its commit "
                f"{head[:12]} is taken without them")
        with stage(f"taking Linux {version} ({head[:12]}) from KSRC"):
            git("fetch", "-q", "--depth=1", "--no-tags",
                "file://" + urllib.parse.quote(os.fsencode(path)),
                "+HEAD:refs/heads/ksrc", cwd=REPO)
            tree = git("rev-parse", "refs/heads/ksrc^{tree}",
                       cwd=REPO).strip()
    else:
        with stage(f"taking Linux {version} from KSRC"):
            tree = tree_from_folder(path, BUILD / "ksrc.index", False)
    commit = commit_tree(tree, version)
    write_atomically(RECORD, f"KSRC {path}\n")
    return commit


def private_apt(suite, source=False):
    """Write an apt set-up of our own for one suite; returns its config path.

    source: for source packages instead of binary ones.

    The mirror is the one that this machine's apt sources name for Debian's
    main archive, so nothing in the system changes and no address is needed
    here.  Raises Fail when there is no such source.
    """
    need_tool("apt-get", "apt")
    listed = subprocess.run(
        ["apt-get", "indextargets", "--format",
         "$(REPO_URI)|$(ORIGIN)|$(LABEL)|$(COMPONENT)",
         "Created-By: Packages"], capture_output=True, text=True).stdout
    mirrors = [row.split("|")[0] for row in listed.splitlines()
               if row.split("|")[1:3] == ["Debian", "Debian"]]
    if not mirrors:
        raise Fail("no Debian archive is among this machine's apt sources "
                   "(or 'apt-get update' was never run): run 'apt-get "
                   f"update', or give a v{wanted()['VERSION']} tree with "
                   "KSRC=path")
    home = DOWNLOAD / ("apt-source" if source else "apt")
    for part in ("state/lists/partial", "cache/archives/partial", "parts"):
        (home / part).mkdir(parents=True, exist_ok=True)
    keyring = "/usr/share/keyrings/debian-archive-keyring.gpg"
    signed = f" [signed-by={keyring}]" if Path(keyring).exists() else ""
    (home / "sources.list").write_text(
        f"deb{'-src' if source else ''}{signed} {mirrors[0]} {suite} main\n")
    (home / "apt.conf").write_text(
        f'Dir::Etc::sourcelist "{home}/sources.list";\n'
        f'Dir::Etc::sourceparts "{home}/parts";\n'
        f'Dir::Etc::preferencesparts "{home}/parts";\n'
        f'Dir::State "{home}/state";\n'
        f'Dir::Cache "{home}/cache";\n'
        'Dir::State::status "/var/lib/dpkg/status";\n'
        'APT::Sandbox::User "root";\n'
        'Acquire::Languages "none";\n')
    return home / "apt.conf"


def download():
    """Download BASE's source package and return its path.

    apt checks the archive's signature and the package's checksum; the file
    gets its name only when it is whole.
    """
    want = wanted()
    package, suite = want["PACKAGE"], want["SUITE"]
    DOWNLOAD.mkdir(parents=True, exist_ok=True)
    whole = sorted(DOWNLOAD.glob(f"{package}_*.deb"))
    if whole:
        return whole[-1]
    need_space(DOWNLOAD, 2, "the kernel source package")
    with stage(f"downloading {package} from {suite}"):
        environment = os.environ | {"APT_CONFIG": str(private_apt(suite))}
        log = LOGS / "apt-update.log"
        if run_logged(["apt-get", "update"], log, env=environment,
                      check=False) != 0:
            raise Fail(f"{package} was looked for in {suite}, which "
                       "'apt-get update' cannot read: mend the network or "
                       f"the apt sources, or give a v{want['VERSION']} tree "
                       f"with KSRC=path; the end of {shown_path(log)}:\n"
                       f"{tail(log)}")
        partial = DOWNLOAD / "partial"
        shutil.rmtree(partial, ignore_errors=True)
        partial.mkdir()
        status = run_logged(["apt-get", "download", package],
                            LOGS / "apt-download.log", env=environment,
                            cwd=partial, check=False)
        found = list(partial.glob("*.deb"))
        if status != 0 or not found:
            policy = subprocess.run(["apt-cache", "search", "^linux-source-"],
                                    env=environment, capture_output=True,
                                    text=True).stdout
            there = ", ".join(sorted(row.split(" ")[0]
                                     for row in policy.splitlines()))
            raise Fail(f"{package} was looked for in {suite} and is not to "
                       "be had" + (f" (there are: {there})" if there else "")
                       + f": give a v{want['VERSION']} tree with KSRC=path; "
                       f"apt's words are in {shown_path(LOGS)}/"
                       "apt-download.log")
        name = found[0].name.replace("%3a", ":")
        found[0].rename(DOWNLOAD / name)
        partial.rmdir()
    return DOWNLOAD / name


def unpack(command, package):
    """Run a command (list of str) that takes a package (Path) apart."""
    log = LOGS / "unpack.log"
    if run_logged(command, log, check=False) != 0:
        raise Fail(f"{shown_path(package)} cannot be unpacked: when it is "
                   "damaged, remove it and run this again; the end of "
                   f"{shown_path(log)}:\n{tail(log)}")


def from_package(force):
    """Take the base from the source package; returns the commit's name."""
    make_repo()
    package = download()
    known = RECORD.read_text().split("\n")[0] if RECORD.exists() else ""
    if known == f"package {package.name}":
        commit = git("rev-parse", "-q", "--verify", "refs/heads/base",
                     cwd=REPO, check=False).strip()
        if commit:
            makefile = git("show", "base:Makefile", cwd=REPO)
            accept(version_of(makefile), force)
            return commit
    need_space(BUILD, 8, "unpacking the kernel source")
    with tempfile.TemporaryDirectory(prefix="unpack-", dir=BUILD) as place:
        with stage(f"unpacking {package.name}"):
            unpack(["dpkg-deb", "-x", str(package), place], package)
            archives = list(Path(place).glob("usr/src/*.tar.*"))
            if len(archives) != 1:
                raise Fail(f"{shown_path(package)} holds {len(archives)} "
                           "source archives instead of one: give a "
                           f"v{wanted()['VERSION']} tree with KSRC=path")
            unpack(["tar", "-xf", str(archives[0]), "-C", place], package)
            trees = [path.parent for path in Path(place).glob("*/Kconfig")]
            if len(trees) != 1:
                raise Fail(f"{shown_path(package)} holds {len(trees)} kernel "
                           "trees instead of one: give a "
                           f"v{wanted()['VERSION']} tree with KSRC=path")
        tree_folder = trees[0]
        version = version_of((tree_folder / "Makefile").read_text())
        accept(version, force)
        with stage(f"committing Linux {version} to {shown_path(REPO)}"):
            tree = tree_from_folder(tree_folder, Path(place) / "index", True)
            commit = commit_tree(tree, version)
    write_atomically(RECORD, f"package {package.name}\n")
    return commit


def get_base():
    """Make sure that `base` is there, as KSRC and FORCE ask.

    Returns the base commit's name (str).
    """
    need_tool("git", "git")
    BUILD.mkdir(parents=True, exist_ok=True)
    force = os.environ.get("FORCE") == "1"
    ksrc = os.environ.get("KSRC")
    return from_ksrc(ksrc, force) if ksrc else from_package(force)


def main():
    parser = argparse.ArgumentParser(
        description=__doc__.split("\n\n")[0],
        epilog="KSRC=path takes a tree of your own, FORCE=1 one of another "
               "version.")
    parser.parse_args()
    with build_lock():
        commit = get_base()
        version = version_of(git("show", "base:Makefile", cwd=REPO))
    say(f"base: Linux {version}, commit {commit[:12]} of {shown_path(REPO)}")


if __name__ == "__main__":
    run_main(main)
