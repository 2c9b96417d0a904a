# SPDX-License-Identifier: GPL-2.0-only
"""Build kernels, selftests of a kernel tree and the programs of tools/bench.

Sources are git worktrees below build/src, the objects of a kernel of KERNELS
are in build/obj.  ccache would slow a first build, and each kernel keeps its
objects.
"""

import contextlib
import fnmatch
import functools
import os
import re
import shutil
import subprocess
from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

from tools.core import (BUILD, CONFIGS, CPUS, KERNEL, LOGS, ROOT, SIDES,
                        Fail, at_once, digest, git, need_space, run_logged,
                        shown_path, stage, tail, write_atomically)
from tools.series.apply import begin
from tools.series.base import REPO

SOURCES, OBJECTS, PROGRAMS = BUILD / "src", BUILD / "obj", BUILD / "programs"
BENCH = ROOT / "tools/bench"
SELFTESTS = "tools/testing/selftests"
CLANG = "19"
COMPILERS = {"gcc": [], "clang": [f"LLVM=-{CLANG}"], "musl-gcc": []}
JOBS = f"-j{CPUS}"
BUILD_SECONDS = 3 * 3600


@dataclass(frozen=True)
class Kernel:
    """What a kernel is built of: fragments of tools/configs, and one of its
    tree, over a target of make such as allnoconfig."""

    commit: str = "applied"
    fragments: tuple[str, ...] = ("guest",)
    arch: str = "x86_64"
    target: str = "allnoconfig"
    from_tree: str = ""

    def wanted(self) -> str:
        """Return the text of the fragments, and what the older kernel that
        a job is about calls in another way: of all kernels, of an
        architecture, of a fragment."""
        own = [KERNEL, *(f"{KERNEL}-{Path(name).name}" for name in (
            self.arch, *self.fragments))] if KERNEL else []
        paths = [CONFIGS / f"{name}.config" for name in self.fragments] + [
            path for name in own
            if (path := CONFIGS / f"{name}.config").exists()]
        # Whose it is makes no other kernel.
        return "".join(re.sub(r"^# SPDX-.*\n", "", path.read_text())
                       for path in paths)


def _guest(*more: str, commit: str = "applied", **rest: str) -> Kernel:
    return Kernel(commit, ("guest", *more), **rest)


COMMITS = {"base": "base", "series": "applied"}
KERNELS = {
    **{side: _guest(commit=COMMITS[side]) for side in SIDES},
    **{name: _guest(name) for name in ("debug", "faults")},
    **{f"{side}_kvm": _guest("kvm", commit=COMMITS[side]) for side in SIDES},
    **{f"series_{name}": _guest(f"gates/{name}")
       for name in ("hz100", "hz250")},
    **{name: _guest(commit=name) for name in ("history_8k", "history_prefix")},
    **{f"{side}_{name}": _guest(f"study-{name}", commit=COMMITS[side])
       for name in ("server", "softrt") for side in SIDES},
    "base_ext": _guest("study-ext", commit="base"),
    # Those of the gates, which compile both sides with each of them.
    **{name: _guest(f"gates/{name}") for name in (
        "wide", "noioperm", "xenpv", "sev", "rt", "lazy", "hz100", "kunit")},
    "x86-64": _guest(),
    "x86-debug": _guest("gates/kunit",
                        from_tree="kernel/configs/x86_debug.config"),
    "xendom0": _guest("gates/xenpv", "gates/xendom0"),
    "i386": Kernel("applied", ("guest-i386",), "i386"),
    **{name: Kernel("applied", ("guest-i386", f"gates/{name}"), "i386")
       for name in ("i386-up", "i386-repeat")},
    "allmod": Kernel(fragments=("gates/allmod",), target="allmodconfig"),
    # That of the series, with objects of its own: they have bugs.
    "mutants": _guest(),
    **{f"lab_{side}": Kernel(
        COMMITS[side], ("lab",), target="alldefconfig",
        from_tree="arch/x86/configs/x86_64_defconfig") for side in SIDES},
}


# --- sources ---------------------------------------------------------------

def source(commit: str, place: str = "") -> Path:
    """Return the tree build/src/PLACE with the files of a commit.

    Only files that differ are touched; what was changed by hand is undone.
    place: by default 'base' or 'applied', or 'other' for any other commit.
    """
    tree = SOURCES / (place or (
        commit if commit in ("base", "applied") else "other"))
    wanted = git("rev-parse", f"{commit}^{{commit}}", cwd=REPO).strip()
    if not (tree / ".git").exists():
        need_space(BUILD, 2, f"the source tree {shown_path(tree)}")
        shutil.rmtree(tree, ignore_errors=True)
        git("worktree", "prune", cwd=REPO)
        git("worktree", "add", "-q", "--no-checkout", "--detach", tree,
            wanted, cwd=REPO)
    at = git("rev-parse", "-q", "--verify", "HEAD", cwd=tree, check=False)
    if at.strip() != wanted or git("status", "--porcelain", "-uno", cwd=tree,
                                   check=False):
        # A git that was killed may have left its lock.
        lock = git("rev-parse", "--git-path", "index.lock", cwd=tree)
        (tree / lock.strip()).unlink(missing_ok=True)
        with stage(f"checking out {shown_path(tree)}"):
            git("checkout", "-q", "-f", "--detach", wanted, cwd=tree)
    return tree


@contextlib.contextmanager
def planted(tree: Path, path: str, more: str) -> Iterator[None]:
    """Add a text to a file of a tree for a while."""
    text = (tree / path).read_text()
    (tree / path).write_text(text + more)
    try:
        yield
    finally:
        (tree / path).write_text(text)


def source_key(commit: str) -> str:
    """Return a name of all files of a commit that make a kernel."""
    rows = git("ls-tree", commit, "./", "tools/", cwd=REPO).splitlines()
    return digest(*(row for row in rows if row.split("\t")[1] not in
                    ("Documentation", "tools", "tools/testing")))


def test_key(commit: str, folder: str = "x86") -> str:
    """Return a name of the sources of a commit's selftests in a folder."""
    rows = git("ls-tree", commit, f"{SELFTESTS}/", cwd=REPO).splitlines()
    return digest(*(row for row in rows if re.search(
        rf"\t{SELFTESTS}/({folder}|kselftest.*\.h)$", row)))


# --- kernels ---------------------------------------------------------------

def make_environment() -> dict[str, str]:
    """Return the environment of a build, with nothing of this machine, so
    that two builds of one tree are the same."""
    environment = os.environ | {
        "KBUILD_BUILD_USER": "series", "KBUILD_BUILD_HOST": "series",
        "KBUILD_BUILD_TIMESTAMP": "2000-01-01", "KBUILD_BUILD_VERSION": "1",
        "LOCALVERSION": ""}
    # What a make above this one set is not meant for the kernel's make.
    for name in ("MAKEFLAGS", "MFLAGS", "MAKELEVEL", "MAKEOVERRIDES",
                 "ARCH", "O", "KSRC", "FORCE", "V"):
        environment.pop(name, None)
    return environment


def compiler_version() -> str:
    """Return what gcc says of itself: another one makes other kernels."""
    return subprocess.run(["gcc", "--version"], capture_output=True,
                          text=True).stdout.partition("\n")[0]


def objects(name: str, compiler: str = "gcc") -> Path:
    """Return the folder of a kernel's objects, which make calls O=."""
    return OBJECTS / (name if compiler == "gcc" else f"{name}-{compiler}")


def image(name: str) -> Path:
    """Return where a kernel's bzImage is."""
    return objects(name) / "arch/x86/boot/bzImage"


def make_arguments(name: str, compiler: str = "gcc") -> list[str]:
    """Return the arguments of make that say which kernel is built."""
    return [f"O={objects(name, compiler)}", f"ARCH={KERNELS[name].arch}",
            JOBS, *COMPILERS[compiler]]


def settings(text: str) -> dict[str, str]:
    """Read a .config or fragments: {name: its last value}; 'n' is not set."""
    rows = re.findall(r"^(CONFIG_\w+)=(.*)$|^# (CONFIG_\w+) is not set$",
                      text, re.M)
    return {name or unset: value.strip() or "n"
            for name, value, unset in rows}


def configure(name: str, tree: Path, compiler: str = "gcc") -> str:
    """Write a kernel's .config, unless it is there; return its text.

    Raises Fail with the settings that Kconfig did not take, unless the tree
    is of another commit than the kernel's, which may not know them.
    """
    kernel, folder = KERNELS[name], objects(name, compiler)
    config, stamp = folder / ".config", folder / "configured"
    wanted = settings(kernel.wanted())
    more = settings((tree / kernel.from_tree).read_text()) \
        if kernel.from_tree else {}
    text = "".join(f"{option}={value}\n"
                   for option, value in (wanted | more).items())
    key = digest(kernel.target, text,
                 git("ls-files", "-s", "--", "*Kconfig*", cwd=tree))
    if config.exists() and stamp.exists() and stamp.read_text() == key:
        return config.read_text()
    stamp.unlink(missing_ok=True)
    write_atomically(folder / "fragments", text)
    run_logged(["make", "-C", str(tree), *make_arguments(name, compiler),
                f"KCONFIG_ALLCONFIG={folder / 'fragments'}", kernel.target],
               LOGS / f"config-{folder.name}.log", env=make_environment(),
               what=f"configuring the {name} kernel")
    taken = settings(config.read_text())
    lacking = [f"{option}={value}" for option, value in wanted.items()
               if taken.get(option, "n") != value]
    if lacking and git("rev-parse", "HEAD", cwd=tree) == \
            git("rev-parse", kernel.commit, cwd=REPO):
        raise Fail(f"the {name} kernel does not take {', '.join(lacking)}: "
                   "they have other dependencies here; see tools/configs")
    write_atomically(stamp, key)
    return config.read_text()


def steps(log: Path) -> str:
    """Say how far a build has come by its log."""
    return f"{log.read_bytes().count(10)} steps"


def make(name: str, *targets: str, tree: Path | None = None,
         compiler: str = "gcc", check: bool = True, log: Path | None = None,
         timeout: float = BUILD_SECONDS) -> Path:
    """Configure a kernel and make targets of it; return the log.

    targets: also arguments such as 'W=1'.  tree: by default that of the
    kernel's commit.  Without check, make may fail.
    """
    tree = tree or source(KERNELS[name].commit)
    configure(name, tree, compiler)
    log = log or LOGS / f"make-{objects(name, compiler).name}.log"
    status = run_logged(
        ["make", "-C", str(tree), *make_arguments(name, compiler), *targets],
        log, timeout=timeout, env=make_environment(), check=check,
        what=f"building the {name} kernel", progress=steps)
    if status is None:
        raise Fail(f"make {' '.join(targets)} did not end; see "
                   + shown_path(log))
    return log


def build_kernel(name: str, tree: Path | None = None) -> Path:
    """Build a kernel and its headers, by default of its own commit; return
    its objects."""
    need_space(BUILD, 3, f"the {name} kernel")
    with stage(f"building the {name} kernel"):
        make(name, "bzImage", "headers", tree=tree,
             log=LOGS / f"build-{name}.log")
    return objects(name)


def build_sides(names: Sequence[str] = SIDES) -> dict[str, Path]:
    """Apply the series and build kernels; return {name: objects}.

    At once: configuring and linking keep one processor busy.
    """
    begin()
    for name in names:
        # One after the other: git adds no two worktrees at once.
        source(KERNELS[name].commit)
    built = at_once({f"building the {name} kernel": functools.partial(
        build_kernel, name) for name in names})
    return dict(zip(names, built.values()))


def describe(name: str) -> dict[str, str]:
    """Return what a built kernel is: release, commit, config, compiler."""
    folder, kernel = objects(name), KERNELS[name]
    release = (folder / "include/config/kernel.release").read_text()
    compiler = settings((folder / ".config").read_text()).get(
        "CONFIG_CC_VERSION_TEXT", "unknown")
    return {"release": release.strip(),
            "commit": git("rev-parse", kernel.commit, cwd=REPO).strip(),
            "config": " + ".join(f"tools/configs/{fragment}.config"
                                 for fragment in kernel.fragments),
            "compiler": compiler.strip('"')}


def save_image(folder: Path, place: Path) -> None:
    """Copy what boots of a kernel's objects; vng takes that as a kernel."""
    partial = place.with_suffix(".partial")
    shutil.rmtree(partial, ignore_errors=True)
    for name in (".config", "arch/x86/boot/bzImage"):
        (partial / name).parent.mkdir(parents=True, exist_ok=True)
        shutil.copy2(folder / name, partial / name)
    partial.rename(place)


# --- programs --------------------------------------------------------------

def selftest_names(tree: Path, folder: str,
                   patterns: Sequence[str] = ("*",)) -> list[str]:
    """Return what a folder of selftests makes, such as 'x86/ioperm_32', and
    matches one of the shell patterns."""
    # x86 leaves out what the compiler cannot make, but that it is missing
    # shall be seen.
    done = subprocess.run(
        ["make", "-s", "-C", str(tree / SELFTESTS / folder), "emit_tests",
         f"OUTPUT={tree}", "COLLECTION=", "CAN_BUILD_I386=1",
         "CAN_BUILD_X86_64=1"], env=make_environment(), capture_output=True,
        text=True)
    names = re.findall(r"^:(\S+)$", done.stdout, re.M)
    if done.returncode or not names:
        raise Fail(f"{SELFTESTS}/{folder} does not say what it makes: "
                   + done.stderr.strip()[-300:])
    return [f"{folder}/{name}" for name in names
            if any(fnmatch.fnmatch(name, row) for row in patterns)]


def selftest_log(folder: str, compiler: str = "gcc") -> Path:
    """Return the log of the last build of a folder's selftests."""
    return LOGS / f"programs-{folder}-{compiler}.log"


def build_selftests(names: Sequence[str], commit: str = "applied",
                    compiler: str = "gcc", flags: Sequence[str] = (),
                    tree: Path | None = None) -> dict[str, Path]:
    """Build selftests, as selftest_names() has them, anew; return {name:
    program}.

    flags: of the compiler, before those of the Makefiles.  Raises Fail when
    one is not built.
    """
    tree = tree or source(commit)
    at = git("rev-parse", "HEAD", cwd=tree)[:12]
    place = PROGRAMS / f"{at}-{compiler}-{digest(*flags)[:8]}"
    # They take no configuration.
    headers = OBJECTS / "headers"
    run_logged(["make", "-C", str(tree), f"O={headers}", JOBS,
                "headers"], LOGS / "headers.log",
               env=make_environment(), what="make headers")
    command = {"clang": f"clang-{CLANG}"}.get(compiler, compiler)
    made = {name: place / name for name in names}
    for folder in sorted({name.split("/")[0] for name in names}):
        wanted = [path for path in made.values() if path.parent.name == folder]
        (place / folder).mkdir(parents=True, exist_ok=True)
        for path in wanted:
            path.unlink(missing_ok=True)
        log = selftest_log(folder, compiler)
        run_logged(["make", "-C", str(tree / SELFTESTS / folder), JOBS,
                    f"OUTPUT={place / folder}",
                    f"CC={' '.join([command, *flags])}",
                    f"KHDR_INCLUDES=-isystem {headers}/usr/include",
                    *COMPILERS[compiler], *map(str, wanted)],
                   log, env=make_environment(), check=False)
        missing = [path.name for path in wanted if not path.exists()]
        if missing:
            raise Fail(f"not built with {compiler}: {', '.join(missing)}; "
                       f"the end of {shown_path(log)}:\n{tail(log)}")
    return made


def build_bench(name: str, static: bool = False) -> Path:
    """Build a program of tools/bench; return its path."""
    program = PROGRAMS / ("bench-static" if static else "bench") / name
    program.parent.mkdir(parents=True, exist_ok=True)
    run_logged(["make", "-C", str(BENCH), f"OUTPUT={program.parent}",
                f"CC=gcc{' -static' if static else ''}", str(program)],
               LOGS / f"programs-{name}.log", env=make_environment(),
               what=f"building {name}")
    return program


# --- warnings --------------------------------------------------------------

def warnings_in(text: str) -> Counter[str]:
    """Return the warnings and errors in a build's output, without line
    numbers, which a patch moves, and the folder of the tree."""
    found: Counter[str] = Counter()
    for line in text.splitlines():
        if re.search(r"\b(warning|error):", line, re.I):
            line = re.sub(rf"{re.escape(str(SOURCES))}/\w+/|^(?:\.\./)+", "",
                          line.strip())
            found[re.sub(r"(?<=[\w.]):\d+(?::\d+)?(?=:| )", "", line)] += 1
    return found
