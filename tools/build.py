# SPDX-License-Identifier: GPL-2.0-only
"""Build kernels, selftests of a kernel tree and the programs of tools/bench.

Sources are git worktrees below build/src, the objects of a recipe are in
build/obj.  ccache would only slow a first build.
"""

import contextlib
import fnmatch
import functools
import os
import re
import shutil
import subprocess
import tomllib
from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

from tools.core import (CONFIGS, CPUS, ROOT, SIDES, Fail, Kernel, at_once,
                        digest, git, need_space, run_logged, shown_path, stage,
                        tail, write_atomically)
from tools.series.apply import begin

BENCH = ROOT / "tools/bench"
# These of them load libraries, which are not static.
DYNAMIC = ("blas_yield", "mpi_yield")
SELFTESTS = "tools/testing/selftests"
CLANG = "19"
COMPILERS = {"gcc": [], "clang": [f"LLVM=-{CLANG}"], "musl-gcc": []}
JOBS = f"-j{CPUS}"


@dataclass(frozen=True)
class Recipe:
    """What a kernel is built of: a commit, fragments of tools/configs, and
    one of its tree, over a target of make such as allnoconfig."""

    commit: str = "applied"
    fragments: Sequence[str] = ("guest",)
    arch: str = "x86_64"
    target: str = "allnoconfig"
    from_tree: str = ""

    def wanted(self, kernel: Kernel) -> str:
        """Return the text of the fragments, and what an older kernel calls in
        another way: of all recipes, of an architecture, of a fragment."""
        own = [kernel.name, *(f"{kernel.name}-{Path(name).name}"
                              for name in (self.arch, *self.fragments))]
        names = [*self.fragments, *(
            name for name in own if (CONFIGS / f"{name}.config").exists())]
        # Whose it is makes no other kernel.
        return "".join(re.sub(r"^# SPDX-.*\n", "", (
            CONFIGS / f"{name}.config").read_text()) for name in names)


RECIPES = {name: Recipe(**row) for name, row in tomllib.loads(
    (CONFIGS / "recipes.toml").read_text()).items()}


def source(kernel: Kernel, commit: str, place: str = "") -> Path:
    """Return the tree build/src/PLACE with the files of a commit.

    Only files that differ are touched; what was changed by hand is undone.
    place: by default 'base' or 'applied', or 'other' for any other commit.
    """
    place = place or (commit if commit in ("base", "applied") else "other")
    tree = kernel.build / "src" / place
    wanted = git("rev-parse", f"{commit}^{{commit}}", cwd=kernel.repo).strip()
    if not (tree / ".git").exists():
        need_space(kernel.build, 2, f"the source tree {shown_path(tree)}")
        shutil.rmtree(tree, ignore_errors=True)
        git("worktree", "prune", cwd=kernel.repo)
        git("worktree", "add", "-q", "--no-checkout", "--detach", tree,
            wanted, cwd=kernel.repo)
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
def planted(tree: Path, name: str, more: str) -> Iterator[None]:
    """Add a text to a file of a tree for a while."""
    path = tree / name
    text = path.read_text()
    try:
        path.write_text(text + more)
        yield
    finally:
        path.write_text(text)


def source_key(kernel: Kernel, commit: str) -> str:
    """Return a name of all files of a commit that make a kernel."""
    rows = git("ls-tree", commit, "./", "tools/", cwd=kernel.repo).splitlines()
    return digest(*(row for row in rows if row.split("\t")[1] not in
                    ("Documentation", "tools", "tools/testing")))


def test_key(kernel: Kernel, commit: str, folder: str = "x86") -> str:
    """Return a name of the sources of a commit's selftests in a folder."""
    rows = git("ls-tree", commit, f"{SELFTESTS}/", cwd=kernel.repo)
    return digest(*(row for row in rows.splitlines() if re.search(
        rf"\t{SELFTESTS}/({folder}|kselftest.*\.h)$", row)))


def make_environment() -> dict[str, str]:
    """Return the environment of a build: two of one tree are the same."""
    environment = os.environ | {
        "KBUILD_BUILD_USER": "series", "KBUILD_BUILD_HOST": "series",
        "KBUILD_BUILD_TIMESTAMP": "2000-01-01", "KBUILD_BUILD_VERSION": "1",
        "LOCALVERSION": ""}
    # What a make above this one set is not meant for the kernel's make.
    above = "MAKEFLAGS MFLAGS MAKELEVEL MAKEOVERRIDES ARCH O KSRC FORCE V"
    return {name: value for name, value in environment.items()
            if name not in above.split()}


def compiler_version() -> str:
    """Return what gcc says of itself: another one makes other kernels."""
    return subprocess.run(["gcc", "--version"], capture_output=True,
                          text=True).stdout.partition("\n")[0]


def objects(kernel: Kernel, name: str, compiler: str = "gcc") -> Path:
    """Return the folder of a kernel's objects, which make calls O=."""
    more = "" if compiler == "gcc" else f"-{compiler}"
    return kernel.build / f"obj/{name}{more}"


def image(kernel: Kernel, name: str) -> Path:
    """Return where a kernel's bzImage is."""
    return objects(kernel, name) / "arch/x86/boot/bzImage"


def make_arguments(kernel: Kernel, name: str,
                   compiler: str = "gcc") -> list[str]:
    """Return the arguments of make that say which kernel is built."""
    return [f"O={objects(kernel, name, compiler)}",
            f"ARCH={RECIPES[name].arch}", JOBS, *COMPILERS[compiler]]


def settings(text: str) -> dict[str, str]:
    """Read a .config or fragments: {name: its last value}; 'n' is not set."""
    return {name or unset: value.strip() or "n" for name, value, unset in
            re.findall(r"^(CONFIG_\w+)=(.*)$|^# (CONFIG_\w+) is not set$",
                       text, re.M)}


def configure(kernel: Kernel, name: str, tree: Path,
              compiler: str = "gcc") -> str:
    """Write a kernel's .config, unless it is there; return its text.  Fail
    when Kconfig does not take it in a tree of the recipe's own commit."""
    recipe, folder = RECIPES[name], objects(kernel, name, compiler)
    config, stamp = folder / ".config", folder / "configured"
    wanted = all_ = settings(recipe.wanted(kernel))
    if recipe.from_tree:
        all_ = wanted | settings((tree / recipe.from_tree).read_text())
    text = "".join(f"{option}={value}\n" for option, value in all_.items())
    key = digest(recipe.target, text,
                 git("ls-files", "-s", "--", "*Kconfig*", cwd=tree))
    if config.exists() and stamp.exists() and stamp.read_text() == key:
        return config.read_text()
    stamp.unlink(missing_ok=True)
    write_atomically(folder / "fragments", text)
    run_logged(
        ["make", "-C", str(tree), *make_arguments(kernel, name, compiler),
         f"KCONFIG_ALLCONFIG={folder / 'fragments'}", recipe.target],
        kernel.logs / f"config-{folder.name}.log", env=make_environment(),
        what=f"configuring the {name} kernel")
    taken = settings(config.read_text())
    lacking = [f"{option}={value}" for option, value in wanted.items()
               if taken.get(option, "n") != value]
    if lacking and git("rev-parse", "HEAD", cwd=tree) == \
            git("rev-parse", recipe.commit, cwd=kernel.repo):
        raise Fail(f"the {name} kernel does not take {', '.join(lacking)}: "
                   "they have other dependencies here; see tools/configs")
    write_atomically(stamp, key)
    return config.read_text()


def steps(log: Path) -> str:
    """Say how far a build has come by its log."""
    return f"{log.read_bytes().count(10)} steps"


def make(kernel: Kernel, name: str, *targets: str, tree: Path | None = None,
         compiler: str = "gcc", check: bool = True, log: Path | None = None,
         timeout: float = 3 * 3600) -> Path:
    """Configure a kernel and make targets of it; return the log.

    targets: also 'W=1'.  tree: by default that of its commit.  check: as of
    run_logged().
    """
    tree = tree or source(kernel, RECIPES[name].commit)
    configure(kernel, name, tree, compiler)
    words = make_arguments(kernel, name, compiler)
    log = log or kernel.logs / f"make-{Path(words[0]).name}.log"
    if run_logged(["make", "-C", str(tree), *words, *targets], log,
                  check=check, timeout=timeout, env=make_environment(),
                  what=f"building the {name} kernel", progress=steps) is None:
        raise Fail(f"make {' '.join(targets)} did not end; see "
                   + shown_path(log))
    return log


def build_kernel(kernel: Kernel, name: str, tree: Path | None = None) -> Path:
    """Build a kernel and its headers, as make(); return its objects."""
    need_space(kernel.build, 3, f"the {name} kernel")
    with stage(f"building the {name} kernel"):
        make(kernel, name, "bzImage", "headers", tree=tree,
             log=kernel.logs / f"build-{name}.log")
    return objects(kernel, name)


def build_sides(kernel: Kernel,
                names: Sequence[str] = SIDES) -> dict[str, Path]:
    """Apply the series and build kernels; return {name: objects}."""
    begin(kernel)
    for name in names:
        # One after the other: git adds no two worktrees at once.
        source(kernel, RECIPES[name].commit)
    # At once: configuring and linking keep one processor busy.
    built = at_once({f"building the {name} kernel": functools.partial(
        build_kernel, kernel, name) for name in names})
    return dict(zip(names, built.values()))


def describe(kernel: Kernel, name: str) -> dict[str, str]:
    """Return what a built kernel is: release, commit, config, compiler."""
    folder, recipe = objects(kernel, name), RECIPES[name]
    release = (folder / "include/config/kernel.release").read_text()
    config = settings((folder / ".config").read_text())
    return {"release": release.strip(),
            "commit": git("rev-parse", recipe.commit, cwd=kernel.repo).strip(),
            "config": " + ".join(f"tools/configs/{fragment}.config"
                                 for fragment in recipe.fragments),
            "compiler": config.get("CONFIG_CC_VERSION_TEXT", "?").strip('"')}


def save_image(folder: Path, place: Path) -> None:
    """Copy what boots of a kernel's objects; vng takes that as a kernel."""
    partial = place.with_suffix(".partial")
    shutil.rmtree(partial, ignore_errors=True)
    for name in (".config", "arch/x86/boot/bzImage"):
        (partial / name).parent.mkdir(parents=True, exist_ok=True)
        shutil.copy2(folder / name, partial / name)
    partial.rename(place)


def selftest_names(tree: Path, folder: str,
                   patterns: Sequence[str] = ("*",)) -> list[str]:
    """Return what a folder of selftests makes, such as 'x86/ioperm_32', and
    matches one of the shell patterns."""
    # Without these words, x86 leaves out what the compiler cannot make.
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


def selftest_log(kernel: Kernel, folder: str, compiler: str = "gcc") -> Path:
    """Return the log of the last build of a folder's selftests."""
    return kernel.logs / f"programs-{folder}-{compiler}.log"


def build_selftests(kernel: Kernel, names: Sequence[str],
                    commit: str = "applied", compiler: str = "gcc",
                    flags: Sequence[str] = (),
                    tree: Path | None = None) -> dict[str, Path]:
    """Build selftests, as selftest_names() has them, anew; return {name:
    program}.  flags: of the compiler, before those of the Makefiles."""
    tree = tree or source(kernel, commit)
    at = git("rev-parse", "HEAD", cwd=tree)[:12]
    place = kernel.build / f"programs/{at}-{compiler}-{digest(*flags)[:8]}"
    # They take no configuration.
    headers = kernel.build / "obj/headers"
    run_logged(["make", "-C", str(tree), f"O={headers}", JOBS, "headers"],
               kernel.logs / "headers.log", env=make_environment(),
               what="make headers")
    command = f"clang-{CLANG}" if compiler == "clang" else compiler
    made = {name: place / name for name in names}
    for folder in sorted({path.parent for path in made.values()}):
        wanted = [path for path in made.values() if path.parent == folder]
        folder.mkdir(parents=True, exist_ok=True)
        for path in wanted:
            path.unlink(missing_ok=True)
        log = selftest_log(kernel, folder.name, compiler)
        run_logged(["make", "-C", str(tree / SELFTESTS / folder.name), JOBS,
                    f"OUTPUT={folder}", f"CC={' '.join([command, *flags])}",
                    f"KHDR_INCLUDES=-isystem {headers}/usr/include",
                    *COMPILERS[compiler], *map(str, wanted)],
                   log, env=make_environment(), check=False)
        missing = [path.name for path in wanted if not path.exists()]
        if missing:
            raise Fail(f"not built with {compiler}: {', '.join(missing)}; "
                       f"the end of {shown_path(log)}:\n{tail(log)}")
    return made


def build_bench(kernel: Kernel, name: str, static: bool = False) -> Path:
    """Build a program of tools/bench, static where it can be; return it."""
    static &= name not in DYNAMIC
    place = kernel.build / f"programs/bench{'-static' * static}"
    program = place / name
    place.mkdir(parents=True, exist_ok=True)
    run_logged(["make", "-C", str(BENCH), f"OUTPUT={place}",
                f"CC=gcc{' -static' * static}", str(program)],
               kernel.logs / f"programs-{name}.log", env=make_environment(),
               what=f"building {name}")
    return program


def warnings_in(kernel: Kernel, text: str) -> Counter[str]:
    """Return the warnings and errors in a build's output, without line
    numbers, which a patch moves, and the folder of the tree."""
    place = rf"{re.escape(str(kernel.build))}/src/\w+/|^(?:\.\./)+"
    number = r"(?<=[\w.]):\d+(?::\d+)?(?=:| )"
    return Counter(re.sub(number, "", re.sub(place, "", line.strip()))
                   for line in text.splitlines()
                   if re.search(r"\b(warning|error):", line, re.I))
