# SPDX-License-Identifier: GPL-2.0-only
"""Get the base kernel into build/linux.git as one commit, branch `base`.

From KSRC= (a git clone or a plain source tree, which is only read), or from
the source package that the file tools/BASE names.
"""

import os
import re
import shutil
import subprocess
import urllib.parse
from pathlib import Path

from tools.core import (Fail, Kernel, digest, git, need_space, need_tool,
                        run_logged, say, scratch, shown_path, stage, tail)

# One commit of the same tree has the same name everywhere.
ME = {"GIT_AUTHOR_NAME": "series", "GIT_AUTHOR_EMAIL": "series@localhost",
      "GIT_AUTHOR_DATE": "2000-01-01T00:00:00+0000",
      "GIT_COMMITTER_DATE": "2000-01-01T00:00:00+0000"}


def version_of(makefile: str) -> str:
    """Return the version in a kernel's top Makefile; Fail if it has none."""
    found = dict(re.findall(r"^([A-Z]+) *=[ \t]*(\S*)[ \t]*$", makefile, re.M))
    number, level, sublevel, extra = (found.get(name, "") for name in (
        "VERSION", "PATCHLEVEL", "SUBLEVEL", "EXTRAVERSION"))
    if not number or not level:
        raise Fail("not a kernel")
    return ".".join((number, level, sublevel.lstrip("0"))).strip(".") + extra


def accept(kernel: Kernel, version: str) -> str:
    """Return what is to say of a tree's version; Fail unless the series goes
    to it, or FORCE is given."""
    if re.fullmatch(re.escape(kernel.version) + r"(\.\d+)?", version):
        return "" if version == kernel.tested else (
            f"this is {version}; the series was tested on {kernel.tested}")
    if os.environ.get("FORCE") == "1":
        return (f"this is {version}, not {kernel.version}.y: trying the "
                "series all the same (FORCE)")
    raise Fail(f"the tree is Linux {version}, the series is for "
               f"{kernel.version}.y (tested on {kernel.tested}): give a "
               f"v{kernel.version} tree with KSRC=, or try the series on this "
               "one with FORCE=1")


def commit_tree(kernel: Kernel, tree: str | Path, version: str,
                *options: str) -> str:
    """Make a parentless commit of a git tree, or of a folder, which is only
    read; return its name."""
    if isinstance(tree, Path):
        with scratch("index") as place:
            where = {"GIT_DIR": str(kernel.repo), "GIT_WORK_TREE": str(tree),
                     "GIT_INDEX_FILE": str(place / "index")}
            git("add", "-A", *options, ".", cwd=tree, env=where)
            tree = git("write-tree", cwd=tree, env=where).strip()
    return git("commit-tree", tree, "-m", f"Linux {version}", cwd=kernel.repo,
               env=ME).strip()


def commit_of(kernel: Kernel, name: str) -> str:
    """Return the commit that a kernel's repository knows by a name, or ""."""
    return git("rev-parse", "-q", "--verify", name, cwd=kernel.repo,
               check=False).strip()


def mirror(label: str) -> str:
    """Return where this machine's apt finds "Debian" or "Debian-Security"."""
    if not shutil.which("apt-get"):
        raise Fail("this is not Debian: there is no apt-get to download with")
    listed = subprocess.run(
        ["apt-get", "indextargets", "--format",
         "$(REPO_URI)|$(ORIGIN)|$(LABEL)", "Created-By: Packages"],
        capture_output=True, text=True).stdout
    if found := re.search(rf"^(.*)\|Debian\|{label}$", listed, re.M):
        return found[1]
    raise Fail(f"no {label} archive is among this machine's apt sources, or "
               "'apt-get update' was never run: run it")


def private_apt(kernel: Kernel, suite: str, source: bool = False) -> Path:
    """Write an apt set-up of our own for a suite's packages, or their sources;
    return its config.  Nothing in the system changes."""
    home = kernel.build / "download" / ("apt-source" if source else "apt")
    for part in ("state/lists/partial", "cache/archives/partial", "parts"):
        (home / part).mkdir(parents=True, exist_ok=True)
    keyring = "/usr/share/keyrings/debian-archive-keyring.gpg"
    signed = f" [signed-by={keyring}]" * Path(keyring).exists()
    where = mirror("Debian" + "-Security" * suite.endswith("-security"))
    (home / "sources.list").write_text(
        f"deb{'-src' * source}{signed} {where} {suite} main\n")
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


def download(kernel: Kernel, package: str, suite: str) -> Path:
    """Download a Debian package, once; return its path.  apt checks signature
    and checksum; the file gets its name when it is whole."""
    there = kernel.build / "download"
    if whole := sorted(there.glob(f"{package}_*.deb")):
        return whole[-1]
    need_space(there, 2, f"the package {package}")
    log = kernel.logs / "apt.log"
    with stage(f"downloading {package} from {suite}"), \
            scratch("apt") as place:
        status = run_logged(
            ["sh", "-c", f"apt-get update && apt-get download {package}"],
            log, cwd=place, check=False,
            env=os.environ | {"APT_CONFIG": str(private_apt(kernel, suite))},
            progress=lambda _: "{} MiB".format(sum(
                path.stat().st_size for path in place.iterdir()) >> 20))
        if status:
            raise Fail(f"{package} cannot be had from {suite}: mend the "
                       "network or the apt sources; the end of "
                       f"{shown_path(log)}:\n{tail(log)}")
        found, = place.glob("*.deb")
        return found.rename(there / found.name.replace("%3a", ":"))


def unpack(kernel: Kernel, command: list[str], package: Path) -> None:
    """Run a command that takes a package apart."""
    log = kernel.logs / "unpack.log"
    if run_logged(command, log, check=False) != 0:
        raise Fail(f"{shown_path(package)} cannot be unpacked: when it is "
                   "damaged, remove it and run this again; the end of "
                   f"{shown_path(log)}:\n{tail(log)}")


def from_package(kernel: Kernel) -> str:
    """Return the commit of the source package."""
    try:
        package = download(kernel, kernel.package, kernel.suite)
    except Fail as failure:
        raise Fail(f"{failure}\nwithout that, give a v{kernel.version} tree "
                   "with KSRC=path") from None
    name = f"refs/packages/{digest(package.name)}"
    if commit := commit_of(kernel, name):
        return commit
    need_space(kernel.build, 8, "unpacking the kernel source")
    with scratch("unpack") as place, stage(f"unpacking {package.name}"):
        unpack(kernel, ["dpkg-deb", "-x", str(package), str(place)], package)
        archive, = place.glob("usr/src/*.tar.*")
        unpack(kernel, ["tar", "-xf", str(archive), "-C", str(place)], package)
        tree, = (path.parent for path in place.glob("*/Kconfig"))
        # -f: some files of a release are named by its .gitignore.
        commit = commit_tree(kernel, tree, version_of(
            (tree / "Makefile").read_text()), "-f")
    git("update-ref", name, commit, cwd=kernel.repo)
    return commit


def look_at(kernel: Kernel, ksrc: str) -> tuple[Path, bool, str]:
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
    accept(kernel, version)
    return path, clone, version


def from_ksrc(kernel: Kernel, ksrc: str) -> str:
    """Return the commit of the user's tree, a git clone or a folder, of which
    what its .gitignore names is left out: it may have been built in."""
    path, clone, version = look_at(kernel, ksrc)
    with stage(f"taking Linux {version} from KSRC"):
        if not clone:
            return commit_tree(kernel, path, version)
        if git("status", "--porcelain", "-uno", "--ignore-submodules",
               cwd=path, env={"GIT_OPTIONAL_LOCKS": "0"}).strip():
            say("    notice: the tree has uncommitted changes; they are left "
                "out")
        git("fetch", "-q", "--depth=1", "--no-tags",
            "file://" + urllib.parse.quote(os.fsencode(path)),
            "+HEAD:refs/heads/ksrc", cwd=kernel.repo)
        return commit_tree(kernel, "ksrc^{tree}", version)


def get_base(kernel: Kernel) -> str:
    """Make sure that `base` is as KSRC and FORCE ask; return its commit."""
    need_tool("git", "git")
    if not kernel.repo.exists():
        need_space(kernel.build, 9, "the base, two kernels and their tests")
        with scratch("repo") as place:
            git("init", "-q", "--bare", "-b", "base", place / "git")
            # Or the first commit by hand starts a repack of minutes.
            git("config", "gc.auto", "0", cwd=place / "git")
            (place / "git").rename(kernel.repo)
    ksrc = os.environ.get("KSRC")
    commit = from_ksrc(kernel, ksrc) if ksrc else from_package(kernel)
    if notice := accept(kernel, version_of(
            git("show", f"{commit}:Makefile", cwd=kernel.repo))):
        say(f"    notice: {notice}")
    git("update-ref", "refs/heads/base", commit, cwd=kernel.repo)
    return commit
