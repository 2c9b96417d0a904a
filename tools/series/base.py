# SPDX-License-Identifier: GPL-2.0-only
"""Get the base kernel into build/linux.git as one commit, branch `base`.

From KSRC= (a git clone or a plain source tree, which is only read), or from
the source package that the file tools/BASE names.
"""

import os
import re
import subprocess
import urllib.parse
from pathlib import Path

from tools.core import (BUILD, KERNEL, LOGS, Fail, digest, git, kernels,
                        need_space, need_tool, run_logged, say, scratch,
                        shown_path, stage, tail)

REPO = BUILD / "linux.git"
DOWNLOAD = BUILD / "download"
# One commit of the same tree has the same name everywhere.
ME = {"GIT_AUTHOR_NAME": "series", "GIT_AUTHOR_EMAIL": "series@localhost",
      "GIT_AUTHOR_DATE": "2000-01-01T00:00:00+0000",
      "GIT_COMMITTER_DATE": "2000-01-01T00:00:00+0000"}


def wanted(kernel: str = KERNEL) -> dict[str, str]:
    """Return the row of tools/BASE for a kernel."""
    return next(row for row in kernels()
                if kernel in ("", row["VERSION"]))


def version_of(makefile: str) -> str:
    """Return the version in a kernel's top Makefile; Fail if it has none."""
    found = dict(re.findall(r"^([A-Z]+) *=[ \t]*(\S*)[ \t]*$", makefile, re.M))
    number, level, sublevel, extra = (found.get(name, "") for name in (
        "VERSION", "PATCHLEVEL", "SUBLEVEL", "EXTRAVERSION"))
    if not number or not level:
        raise Fail("not a kernel")
    return f"{number}.{level}" + (
        f".{sublevel}" if sublevel.strip("0") else "") + extra


def accept(version: str) -> None:
    """Check a found version against tools/BASE, as FORCE asks."""
    want = wanted()
    if re.fullmatch(re.escape(want["VERSION"]) + r"(\.\d+)?", version):
        if version != want["TESTED"]:
            say(f"    notice: this is {version}; the series was tested on "
                f"{want['TESTED']}")
    elif os.environ.get("FORCE") == "1":
        say(f"    notice: this is {version}, not {want['VERSION']}.y: trying "
            "the series all the same (FORCE)")
    else:
        raise Fail(f"the tree is Linux {version}, the series is for "
                   f"{want['VERSION']}.y (tested on {want['TESTED']}): give a "
                   f"v{want['VERSION']} tree with KSRC=, or try the series on "
                   "this one with FORCE=1")


def make_repo() -> None:
    """Create the bare repository that all work trees hang on."""
    if (REPO / "HEAD").exists():
        return
    need_space(BUILD, 9, "the base, two kernels and their tests")
    with scratch("repo") as place:
        git("init", "-q", "--bare", "-b", "base", place / "linux.git")
        # The first commit by hand would start a repack that takes both cores
        # for minutes.
        git("config", "gc.auto", "0", cwd=place / "linux.git")
        (place / "linux.git").rename(REPO)


def add_folder(folder: Path, *options: str) -> str:
    """Add a folder, which is only read, to REPO; return the git tree."""
    with scratch("index") as place:
        where = {"GIT_DIR": str(REPO), "GIT_WORK_TREE": str(folder),
                 "GIT_INDEX_FILE": str(place / "index")}
        git("add", "-A", *options, ".", cwd=folder, env=where)
        return git("write-tree", cwd=folder, env=where).strip()


def commit_tree(tree: str, version: str) -> str:
    """Make a parentless commit of a git tree in REPO; return its name."""
    return git("commit-tree", tree, "-m", f"Linux {version}", cwd=REPO,
               env=ME).strip()


def commit_of(name: str) -> str:
    """Return the commit that REPO knows by a name, or nothing."""
    return git("rev-parse", "-q", "--verify", name, cwd=REPO,
               check=False).strip()


def mirror(label: str) -> str:
    """Return where this machine's apt finds "Debian" or "Debian-Security"."""
    need_tool("apt-get", "apt")
    listed = subprocess.run(
        ["apt-get", "indextargets", "--format",
         "$(REPO_URI)|$(ORIGIN)|$(LABEL)", "Created-By: Packages"],
        capture_output=True, text=True).stdout
    for row in listed.splitlines():
        uri, *whose = row.split("|")
        if whose == ["Debian", label]:
            return uri
    raise Fail(f"no {label} archive is among this machine's apt sources, or "
               "'apt-get update' was never run: run it")


def private_apt(suite: str, source: bool = False) -> Path:
    """Write an apt set-up of our own for a suite's packages, or their sources;
    return its config.  Nothing in the system changes."""
    label = "Debian-Security" if suite.endswith("-security") else "Debian"
    home = DOWNLOAD / ("apt-source" if source else "apt")
    for part in ("state/lists/partial", "cache/archives/partial", "parts"):
        (home / part).mkdir(parents=True, exist_ok=True)
    keyring = "/usr/share/keyrings/debian-archive-keyring.gpg"
    signed = f" [signed-by={keyring}]" if Path(keyring).exists() else ""
    kind = "deb-src" if source else "deb"
    (home / "sources.list").write_text(
        f"{kind}{signed} {mirror(label)} {suite} main\n")
    (home / "apt.conf").write_text(f'''\
Dir::Etc::sourcelist "{home}/sources.list";
Dir::Etc::sourceparts "{home}/parts";
Dir::Etc::preferencesparts "{home}/parts";
Dir::State "{home}/state";
Dir::Cache "{home}/cache";
Dir::State::status "/var/lib/dpkg/status";
APT::Sandbox::User "root";
APT::Update::Error-Mode "any";
Acquire::Languages "none";
''')
    return home / "apt.conf"


def download(package: str, suite: str) -> Path:
    """Download a Debian package, once; return its path.

    apt checks signature and checksum; the file gets its name when it is whole.
    """
    whole = sorted(DOWNLOAD.glob(f"{package}_*.deb"))
    if whole:
        return whole[-1]
    need_space(DOWNLOAD, 2, f"the package {package}")
    log = LOGS / "apt.log"
    with stage(f"downloading {package} from {suite}"), \
            scratch("apt") as place:
        status = run_logged(
            ["sh", "-c", f"apt-get update && apt-get download {package}"],
            log, cwd=place, check=False,
            env=os.environ | {"APT_CONFIG": str(private_apt(suite))},
            progress=lambda _: "{} MiB".format(sum(
                path.stat().st_size for path in place.iterdir()) >> 20))
        found = list(place.glob("*.deb"))
        if status or not found:
            raise Fail(f"{package} cannot be had from {suite}: mend the "
                       "network or the apt sources; the end of "
                       f"{shown_path(log)}:\n{tail(log)}")
        return found[0].rename(DOWNLOAD / found[0].name.replace("%3a", ":"))


def unpack(command: list[str], package: Path) -> None:
    """Run a command that takes a package apart."""
    log = LOGS / "unpack.log"
    if run_logged(command, log, check=False) != 0:
        raise Fail(f"{shown_path(package)} cannot be unpacked: when it is "
                   "damaged, remove it and run this again; the end of "
                   f"{shown_path(log)}:\n{tail(log)}")


def from_package() -> str:
    """Return the commit of the source package."""
    make_repo()
    want = wanted()
    or_else = f"or give a v{want['VERSION']} tree with KSRC=path"
    try:
        package = download(want["PACKAGE"], want["SUITE"])
    except Fail as failure:
        raise Fail(f"{failure}\n{or_else}") from None
    name = f"refs/packages/{digest(package.name)}"
    if commit := commit_of(name):
        accept(version_of(git("show", f"{name}:Makefile", cwd=REPO)))
        return commit
    need_space(BUILD, 8, "unpacking the kernel source")
    with scratch("unpack") as place:
        with stage(f"unpacking {package.name}"):
            unpack(["dpkg-deb", "-x", str(package), str(place)], package)
            for archive in place.glob("usr/src/*.tar.*"):
                unpack(["tar", "-xf", str(archive), "-C", str(place)],
                       package)
        trees = [path.parent for path in place.glob("*/Kconfig")]
        if len(trees) != 1:
            raise Fail(f"{shown_path(package)} holds {len(trees)} kernel "
                       f"trees instead of one: remove it, {or_else}")
        version = version_of((trees[0] / "Makefile").read_text())
        accept(version)
        with stage(f"committing Linux {version} to {shown_path(REPO)}"):
            # -f: some files of a release are named by its .gitignore.
            commit = commit_tree(add_folder(trees[0], "-f"), version)
            git("update-ref", name, commit, cwd=REPO)
            return commit


def look_at(ksrc: str) -> tuple[Path, bool, str]:
    """Return the path of the user's tree, whether it is a git clone, and its
    version; Fail unless the series goes to it."""
    path = Path(os.path.expanduser(ksrc)).resolve()
    clone = (path / ".git").exists()
    if not path.is_dir():
        raise Fail(f"KSRC={ksrc} is not a folder")
    try:
        makefile, _ = (git("show", f"HEAD:{name}", cwd=path) if clone
                       else (path / name).read_text(errors="replace")
                       for name in ("Makefile", "Kconfig"))
        version = version_of(makefile)
    except (OSError, Fail):
        raise Fail(f"KSRC={ksrc} is not a Linux source tree: it has no kernel "
                   "Makefile and Kconfig at its top") from None
    accept(version)
    return path, clone, version


def from_ksrc(ksrc: str) -> str:
    """Return the commit of the user's tree, a git clone or a folder, of which
    what its .gitignore names is left out: it may have been built in."""
    path, clone, version = look_at(ksrc)
    make_repo()
    with stage(f"taking Linux {version} from KSRC"):
        if not clone:
            return commit_tree(add_folder(path), version)
        if git("status", "--porcelain", "-uno", "--ignore-submodules",
               cwd=path, env={"GIT_OPTIONAL_LOCKS": "0"}).strip():
            say("    notice: the tree has uncommitted changes; they are left "
                "out")
        git("fetch", "-q", "--depth=1", "--no-tags",
            "file://" + urllib.parse.quote(os.fsencode(path)),
            "+HEAD:refs/heads/ksrc", cwd=REPO)
        return commit_tree("ksrc^{tree}", version)


def get_base() -> str:
    """Make sure that `base` is as KSRC and FORCE ask; return its commit."""
    need_tool("git", "git")
    BUILD.mkdir(parents=True, exist_ok=True)
    ksrc = os.environ.get("KSRC")
    commit = from_ksrc(ksrc) if ksrc else from_package()
    git("update-ref", "refs/heads/base", commit, cwd=REPO)
    return commit
