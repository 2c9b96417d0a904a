#!/usr/bin/env python3
# SPDX-License-Identifier: GPL-2.0-only
"""Compile the objects that the series touches, and list the warnings.

One commit, one configuration, one compiler, W=1.  The objects are those of
the files that the series touches and of a few that include a header that it
touches.  Works in build/gates: one source tree that moves from commit to
commit, and one folder of objects for each configuration and compiler.
"""

import argparse
import contextlib
import hashlib
import os
import re
import shutil
from collections import Counter
from pathlib import Path

from apply import apply_series, touched_files
from base import REPO, get_base
from common import (BUILD, CONFIGS, LOGS, Fail, build_lock, git, need_space,
                    need_tool, run_git, run_logged, run_main, say,
                    series_patches, shown_path, stage, tail)
from kernel import make_environment, missing_settings

PLACE = BUILD / "gates"
TREE = PLACE / "tree"
CLANG = "19"
COMPILERS = {"gcc": ["CC=ccache gcc", "HOSTCC=ccache gcc"],
             "clang": [f"LLVM=-{CLANG}", f"CC=ccache clang-{CLANG}",
                       f"HOSTCC=ccache clang-{CLANG}"]}
GUEST = CONFIGS / "guest.config"
GUEST32 = CONFIGS / "guest-i386.config"
KUNIT = CONFIGS / "gates/kunit.config"
# How many files are compiled for each touched header, besides ALWAYS.
INCLUDERS = 8
ALWAYS = ("arch/x86/kernel/traps.c", "arch/x86/kernel/process_32.c",
          "arch/x86/kernel/process_64.c", "kernel/fork.c")
# What the base does not compile (7.3.4). With allmodconfig: asm/mshyperv.h asks
# for CONFIG_MSHV_ROOT with #ifdef, which does not see a module. Without
# CONFIG_ACPI_PROCESSOR: an ifneq in the Makefile, which conditions() cannot read.
BROKEN = ("arch/x86/hyperv/hv_crash.c", "arch/x86/kernel/acpi/cstate.c")
COMPILE_TIMEOUT = 3600


class Config:
    """A kernel configuration: fragments (paths) over an architecture's
    allnoconfig, or a make target (str) that writes the whole of it.

    from_tree: a fragment (str) of the kernel's own, below its top folder.
    It names options that are long gone, so it is not checked.
    """

    def __init__(self, *fragments, arch="x86_64", target=None,
                 from_tree=None):
        self.fragments = [CONFIGS / "gates" / f"{part}.config"
                          if isinstance(part, str) else part
                          for part in fragments]
        self.arch = arch
        self.target = target
        self.from_tree = from_tree


MATRIX = {
    "wide": Config(GUEST, "wide"),
    "x86-64": Config(GUEST),
    "noioperm": Config(GUEST, "noioperm"),
    "xenpv": Config(GUEST, "xenpv"),
    "sev": Config(GUEST, "sev"),
    "rt": Config(GUEST, "rt"),
    "lazy": Config(GUEST, "lazy"),
    "hz100": Config(GUEST, "hz100"),
    "x86-debug": Config(GUEST, "kunit",
                        from_tree="kernel/configs/x86_debug.config"),
    "i386": Config(GUEST32, arch="i386"),
    "i386-up": Config(GUEST32, "i386-up", arch="i386"),
    "allmod": Config(target="allmodconfig"),
}
# And those that only boot.
KNOWN = MATRIX | {"kunit": Config(GUEST, "kunit"),
                  "xendom0": Config(GUEST, "xenpv", "xendom0"),
                  "i386-repeat": Config(GUEST32, "i386-repeat",
                                        arch="i386")}


# --- warnings --------------------------------------------------------------

def warnings_in(text):
    """Return the warnings (Counter of str) of a build's output.

    Without line numbers, which a patch moves, and without the folder of the
    source tree: '../' or an absolute path.
    """
    found = Counter()
    for line in text.splitlines():
        if not re.search(r"\b(warning|error):", line, re.I):
            continue
        # An 'error' that make or ld reports about another line.
        line = re.sub(r"^(?:\.\./)+|^/\S*/gates/(?:tree|prefix)/", "",
                      line.strip())
        line = re.sub(r"(?<=[\w.]):\d+(?::\d+)?(?=:| )", "", line)
        found[line] += 1
    return found


def new_warnings(before, after):
    """Return what after (Counter) has more than before (sorted list)."""
    return sorted((after - before).elements())


# --- which objects ---------------------------------------------------------

def conditions(makefile, word, bits):
    """Return the conditions (list of str) under which a Makefile (str) takes
    word, an object or a folder: 'y', 'm' or a CONFIG_ name.

    An object that is part of another one has the conditions of that.
    """
    text = makefile.replace("\\\n", " ").replace("$(BITS)", str(bits)) \
        .replace("$(SRCARCH)", "x86")
    text = re.sub(r"\$\(subst m,y,(\$\(CONFIG_\w+\))\)", r"\1", text)
    found = []
    for name, value in re.findall(
            r"^[ \t]*([\w-]+-(?:\$\(CONFIG_\w+\)|y|m|objs))[ \t]*[:+]?="
            r"[ \t]*(.*)$",
            text, re.M):
        if word not in value.split("#")[0].split():
            continue
        stem, _, condition = name.partition("-$(") if "$(" in name else \
            name.rpartition("-")
        condition = condition.rstrip(")")
        if stem in ("obj", "lib", "core", "drivers", "libs"):
            found.append(condition)
        else:
            outer = conditions(makefile, f"{stem}.o", bits) \
                if f"{stem}.o" != word else []
            if condition in ("y", "objs"):
                found += outer
            elif outer:
                found.append(condition)
    return found


def is_on(names, config):
    """Tell whether one of the conditions (list of str) holds."""
    return any(name in ("y", "m") or re.search(rf"^{name}=[ym]$", config,
                                               re.M)
               for name in names)


def kbuild_text(folder):
    """Return the text of a folder's Kbuild or Makefile ('' for none)."""
    for name in ("Kbuild", "Makefile"):
        if (folder / name).exists():
            return (folder / name).read_text()
    return ""


def objects_of(source, tree, config):
    """Return the objects (list of str) that hold a .c file in a build.

    source: path in the tree.  config: the text of a .config.  Empty when
    this configuration does not compile it.  A file that no Makefile names is
    looked for in the #include lines of its folder.
    """
    bits = 64 if re.search(r"^CONFIG_64BIT=y$", config, re.M) else 32
    path = Path(source)
    if not (tree / path).exists():
        return []
    folder = path.parent
    while folder != Path("."):
        names = conditions(kbuild_text(tree / folder.parent),
                           folder.name + "/", bits)
        if names and not is_on(names, config):
            return []
        folder = folder.parent
    names = conditions(kbuild_text(tree / path.parent), path.stem + ".o",
                       bits)
    if names:
        return [str(path.with_suffix(".o"))] if is_on(names, config) else []
    found = []
    for other in sorted((tree / path.parent).glob("*.c")):
        if other.name != path.name and re.search(
                rf'^#\s*include "{re.escape(path.name)}"$',
                other.read_text(errors="replace"), re.M):
            found += objects_of(str(path.parent / other.name), tree, config)
    return found


def includers(header, tree):
    """Return .c files (list of str) that include a header of the tree."""
    name = re.sub(r"^(arch/x86/)?include/(uapi/)?", "", header)
    if name == header:
        pattern, below = f'#include "{Path(header).name}"', \
            str(Path(header).parent)
    else:
        pattern, below = f"#include <{name}>", "."
    listed = git("grep", "-lF", pattern, "--", f"{below}/*.c", cwd=tree,
                 check=False).split()
    near = [path for path in listed
            if path.startswith(("arch/x86/", "kernel/"))
            and path not in BROKEN]
    return near[:INCLUDERS]


def is_kernel(path):
    """Tell whether a touched path belongs to the kernel itself."""
    return not path.startswith(("tools/", "Documentation/", "scripts/",
                                "samples/"))


def sources_for(touched, tree):
    """Return the .c files (list of str) to compile for touched paths."""
    touched = [path for path in touched if is_kernel(path)]
    headers = [path for path in touched if path.endswith(".h")]
    found = [path for path in touched if path.endswith(".c")]
    for header in headers:
        found += includers(header, tree)
    if headers:
        found += ALWAYS
    return sorted(set(found))


# --- the tree and its objects ----------------------------------------------

def gate_tree(commit):
    """Put build/gates/tree at a commit; returns its path."""
    wanted = git("rev-parse", f"{commit}^{{commit}}", cwd=REPO).strip()
    if (TREE / ".git").exists():
        at = git("rev-parse", "-q", "--verify", "HEAD", cwd=TREE,
                 check=False).strip()
        dirty = git("status", "--porcelain", "-uno", cwd=TREE,
                    check=False).strip()
        if at != wanted or dirty:
            lock = git("rev-parse", "--git-path", "index.lock", cwd=TREE)
            (TREE / lock.strip()).unlink(missing_ok=True)
            git("checkout", "-q", "-f", "--detach", wanted, cwd=TREE)
        return TREE
    need_space(BUILD, 6, "the gates' source tree and objects")
    shutil.rmtree(TREE, ignore_errors=True)
    PLACE.mkdir(parents=True, exist_ok=True)
    git("worktree", "prune", cwd=REPO)
    with stage(f"checking out {shown_path(TREE)}"):
        partial = PLACE / "tree.partial"
        shutil.rmtree(partial, ignore_errors=True)
        git("worktree", "prune", cwd=REPO)
        git("worktree", "add", "-q", "-f", "--detach", partial, wanted,
            cwd=REPO)
        git("worktree", "move", partial, TREE, cwd=REPO)
    return TREE


@contextlib.contextmanager
def planted(tree, path, change):
    """Change a file of the gates' tree for a while.

    change: a function from the file's text to another, or a text to add at
    its end.
    """
    file = tree / path
    text = file.read_text()
    file.write_text(change(text) if callable(change) else text + change)
    try:
        yield
    finally:
        file.write_text(text)


def compiler_tools(compiler):
    """Raise Fail unless the compiler is installed."""
    need_tool("ccache", "ccache")
    if compiler == "clang":
        for tool in ("clang", "ld.lld", "llvm-ar"):
            need_tool(f"{tool}-{CLANG}",
                      f"clang-{CLANG} lld-{CLANG} llvm-{CLANG} (or "
                      "scripts/deps --with gates)")
    else:
        need_tool("gcc", "gcc")


def object_make(name, compiler, *more):
    """Return the command (list of str) that makes in one folder of objects.
    """
    return ["make", "-C", str(TREE), f"O={objects_folder(name, compiler)}",
            f"-j{os.cpu_count()}", f"ARCH={KNOWN[name].arch}",
            *COMPILERS[compiler], *more]


def objects_folder(name, compiler):
    """Return the folder (Path) of a configuration's objects."""
    return PLACE / "obj" / f"{name}-{compiler}"


def configure(tree, name, compiler, strict=True):
    """Write the .config of a folder of objects, when it is not that already.

    strict: raise Fail naming the settings that Kconfig did not take.  The
    base does not know those that the series adds.
    """
    config = KNOWN[name]
    folder = objects_folder(name, compiler)
    folder.mkdir(parents=True, exist_ok=True)
    wanted = "".join(path.read_text() for path in config.fragments)
    more = [tree / config.from_tree] if config.from_tree else []
    kconfig = [path for path in touched_files(series_patches())
               if Path(path).name.startswith("Kconfig")]
    digest = hashlib.sha256(f"{config.target} {wanted}".encode())
    for path in [*more, *(tree / path for path in kconfig)]:
        digest.update(path.read_bytes() if path.exists() else b"-")
    stamp = folder / ".config.wanted"
    if (folder / ".config").exists() and stamp.exists() and \
            stamp.read_text() == digest.hexdigest():
        return (folder / ".config").read_text()
    stamp.unlink(missing_ok=True)
    log = LOGS / f"gates-config-{name}-{compiler}.log"
    environment = make_environment() | {"ARCH": config.arch}
    if compiler == "clang":
        environment["LLVM"] = f"-{CLANG}"
    if config.target:
        run_logged(object_make(name, compiler, config.target), log,
                   env=make_environment(), what=f"make {config.target}")
    else:
        run_logged(["./scripts/kconfig/merge_config.sh", "-n", "-O",
                    str(folder), *map(str, [*config.fragments, *more])],
                   log, cwd=tree, env=environment, what="merge_config.sh")
    text = (folder / ".config").read_text()
    lacking = missing_settings(text, wanted) if strict else []
    # The last word counts: a fragment may undo a setting of the one below.
    if config.fragments[1:]:
        undone = config.fragments[-1].read_text()
        names = set(re.findall(r"CONFIG_\w+", undone))
        lacking = [row for row in lacking if row in undone
                   or re.search(r"CONFIG_\w+", row).group(0) not in names]
    if lacking:
        raise Fail(f"configuration {name} ({compiler}): the kernel does not "
                   f"take {', '.join(lacking)}: other dependencies here?")
    stamp.write_text(digest.hexdigest())
    return text


class Built:
    """What compile_objects() found: objects (list of str), warnings
    (Counter), failed (bool), log (Path)."""

    def __init__(self, objects, warnings, failed, log):
        self.objects = objects
        self.warnings = warnings
        self.failed = failed
        self.log = log


def compile_objects(tree, name, compiler, touched, more=(), title="",
                    strict=True):
    """Compile the objects for touched paths anew; returns a Built.

    more: make arguments.  Raises Fail when the build says it is well and yet
    did not compile each of them: nothing was checked then.
    """
    compiler_tools(compiler)
    config = configure(tree, name, compiler, strict)
    folder = objects_folder(name, compiler)
    objects = sorted({obj for source in sources_for(touched, tree)
                      for obj in objects_of(source, tree, config)})
    log = LOGS / f"gates-{title or name}-{compiler}.log"
    if not objects:
        return Built([], Counter(), False, log)
    # What is there would not be compiled, and would not warn.
    for obj in objects:
        (folder / obj).unlink(missing_ok=True)
    status = run_logged(object_make(name, compiler, "-k", "W=1", *more,
                                    *objects), log, env=make_environment(),
                        timeout=COMPILE_TIMEOUT, check=False)
    text = log.read_text(errors="replace")
    if status is None:
        raise Fail(f"{name}, {compiler}: did not end; see {shown_path(log)}")
    if status == 0:
        silent = [obj for obj in objects
                  if not re.search(rf"^  CC (?:\[M\])? +{re.escape(obj)}$",
                                   text, re.M)
                  or not (folder / obj).exists()]
        if silent:
            raise Fail(f"{name}, {compiler}: make did not compile "
                       f"{', '.join(silent)}; see {shown_path(log)}")
    warnings = Counter({row: count for row, count
                        in warnings_in(text).items()
                        if not row.startswith(("scripts/", "tools/"))})
    if status and not warnings:
        raise Fail(f"{name}, {compiler}: make failed; the end of "
                   f"{shown_path(log)}:\n{tail(log)}")
    return Built(objects, warnings, status != 0, log)


def compare(name, compiler, touched, more=(), title=""):
    """Compile the touched objects of the series, and of the base when those
    of the series warn.

    Returns the objects (list of str).  Raises Fail with the new warnings.
    """
    after = compile_objects(gate_tree("applied"), name, compiler, touched,
                            more, title)
    before = Counter()
    if after.warnings:
        before = compile_objects(gate_tree("base"), name, compiler, touched,
                                 more, (title or name) + "-base",
                                 strict=False).warnings
    fresh = new_warnings(before, after.warnings)
    if fresh or after.failed:
        raise Fail(f"{len(fresh)} new; the log is {shown_path(after.log)}\n"
                   + "\n".join("    | " + row for row in fresh[:20]))
    return after.objects


# --- prefixes --------------------------------------------------------------

def prefixes(first="base", last="applied"):
    """Return [(commit, subject, paths)] of the series, oldest first.

    paths: the files (list of str) that the commit touches.
    """
    found = []
    for row in git("log", "--reverse", "--format=%H %s",
                   f"{first}..{last}", cwd=REPO).splitlines():
        commit, _, subject = row.partition(" ")
        paths = git("diff-tree", "-r", "--no-commit-id", "--name-only",
                    "--no-renames", commit, cwd=REPO).split()
        found.append((commit, subject, paths))
    return found


def check_prefix(commit, paths, known, name="wide", compiler="gcc"):
    """A prefix of the series compiles what its last patch touches.

    known: warnings (Counter) of the base and of earlier prefixes.  Returns
    the objects (list of str); raises Fail with the new warnings.
    """
    paths = [path for path in paths if is_kernel(path)]
    built = compile_objects(gate_tree(commit), name, compiler, paths,
                            title="prefix", strict=False)
    fresh = new_warnings(known, built.warnings)
    if fresh or built.failed:
        kept = built.log.with_name(f"gates-prefix-{commit[:12]}.log")
        shutil.copyfile(built.log, kept)
        raise Fail(f"{len(fresh)} new warnings or errors; the log is "
                   f"{shown_path(kept)}\n"
                   + "\n".join("    | " + row for row in fresh[:20]))
    return built.objects


def check_prefixes(tally, first="base", last="applied"):
    """Every prefix of the series compiles what its last patch touches.

    A patch whose objects the series leaves without a warning in the end is
    compared with nothing; else with the base's warnings.
    """
    known = None
    for number, (commit, subject, paths) in enumerate(
            prefixes(first, last), 1):
        title = f"prefix {number}: {subject}"
        if not any(is_kernel(path) and path.endswith((".c", ".h"))
                   for path in paths):
            if any(path.endswith((".c", ".h")) for path in paths):
                tally.run(title, check_programs, commit, paths)
            else:
                tally.ok(f"{title}: nothing to compile")
            continue
        try:
            objects = check_prefix(commit, paths, known or Counter())
        except Fail as failure:
            if known is None:
                # Is that the base's own?
                everything = touched_files(series_patches())
                known = compile_objects(
                    gate_tree("base"), "wide", "gcc", everything,
                    title="prefix-base", strict=False).warnings
                try:
                    objects = check_prefix(commit, paths, known)
                    tally.ok(f"{title}: {len(objects)} objects")
                    continue
                except Fail as again:
                    failure = again
            tally.fail(title, failure)
            continue
        if objects:
            tally.ok(f"{title}: {len(objects)} objects")
        else:
            tally.fail(title, "nothing was compiled")


# --- programs --------------------------------------------------------------

def user_headers(tree, name="wide", compiler="gcc"):
    """Install the kernel's headers for programs; returns the folder."""
    configure(tree, name, compiler, strict=False)
    run_logged(object_make(name, compiler, "headers"),
               LOGS / "gates-headers.log", env=make_environment(),
               what="make headers")
    return objects_folder(name, compiler) / "usr/include"


def wrapper(compiler, *flags):
    """Write a compiler command with flags of its own; returns its Path.

    The selftests' Makefiles have no variable that adds to their flags.
    """
    flags = " ".join(flags)
    digest = hashlib.sha256(flags.encode()).hexdigest()[:8]
    path = PLACE / "bin" / f"{compiler}-{digest}"
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(f'#!/bin/sh\nexec {compiler} {flags} "$@"\n')
    path.chmod(0o755)
    return path


def program_names(tree, source):
    """Return the targets (list of str) that a selftest's .c file makes."""
    folder = tree / Path(source).parent
    stem = Path(source).stem
    text = (folder / "Makefile").read_text()
    text = text.replace("\\\n", " ")
    if folder.name != "x86":
        return [stem] if re.search(rf"\b{re.escape(stem)}\b", text) else []
    found = []
    for variable, suffixes in (("TARGETS_C_BOTHBITS", ("_32", "_64")),
                               ("TARGETS_C_32BIT_ONLY", ("_32",)),
                               ("TARGETS_C_64BIT_ONLY", ("_64",)),
                               ("TARGETS_C_32BIT_NEEDED", ("_32", "_64"))):
        for row in re.findall(rf"^{variable} \+?:?= *(.*)$", text, re.M):
            if stem in row.split():
                found += [stem + suffix for suffix in suffixes]
    return found


def build_programs(tree, sources, place, compiler, flags=(), only=None):
    """Build selftests from .c files (list of str); returns (paths, log).

    only: a suffix that a program's name must have.  Raises Fail when one
    was not built.
    """
    headers = user_headers(tree)
    command = wrapper(f"clang-{CLANG}" if compiler == "clang" else "gcc",
                      *flags)
    log = LOGS / f"gates-programs-{compiler}.log"
    made, text = [], ""
    folders = sorted({str(Path(source).parent) for source in sources})
    for folder in folders:
        names = [name for source in sources
                 if str(Path(source).parent) == folder
                 for name in program_names(tree, source)]
        names = [name for name in names if not only or name.endswith(only)]
        output = place / Path(folder).name
        output.mkdir(parents=True, exist_ok=True)
        for name in names:
            (output / name).unlink(missing_ok=True)
        if not names:
            raise Fail(f"no program is made from {', '.join(sources)}")
        arguments = ["make", "-C", str(tree / folder), f"OUTPUT={output}",
                     f"CC={command}", f"KHDR_INCLUDES=-isystem {headers}",
                     *[str(output / name) for name in names]]
        if compiler == "clang":
            arguments.append(f"LLVM=-{CLANG}")
        run_logged(arguments, log, env=make_environment(), check=False,
                   what="building selftests")
        text += log.read_text(errors="replace")
        missing = [name for name in names if not (output / name).exists()]
        if missing:
            raise Fail(f"not built with {compiler}: {', '.join(missing)}; "
                       f"the end of {shown_path(log)}:\n{tail(log)}")
        made += [output / name for name in names]
    log.write_text(text)
    return made, log


def check_programs(commit, paths, compiler="gcc", flags=("-Wall",)):
    """The selftests that a commit touches build without a warning of their
    own; returns their number."""
    tree = gate_tree(commit)
    sources = [path for path in paths
               if path.startswith("tools/testing/selftests/")
               and path.endswith(".c") and (tree / path).exists()
               and program_names(tree, path)]
    if not sources:
        raise Fail("there is no program to build")
    made, log = build_programs(tree, sources, PLACE / "programs" / compiler,
                               compiler, flags)
    wrong = [row for row in warnings_in(log.read_text(errors="replace"))
             if any(Path(path).name in row for path in paths)]
    if wrong:
        raise Fail(f"the log is {shown_path(log)}\n"
                   + "\n".join("    | " + row for row in wrong[:20]))
    return len(made)


def main():
    parser = argparse.ArgumentParser(description=__doc__.split("\n\n")[0])
    parser.add_argument("--config", default="wide", choices=list(KNOWN),
                        help="configuration (default: wide)")
    parser.add_argument("--compiler", default="gcc", choices=list(COMPILERS))
    parser.add_argument("--commit", default="applied",
                        help="commit of build/linux.git (default: applied)")
    options = parser.parse_args()
    with build_lock():
        get_base()
        apply_series()
        if run_git("rev-parse", "-q", "--verify", options.commit,
                   cwd=REPO).returncode:
            raise Fail(f"there is no commit '{options.commit}'")
        built = compile_objects(gate_tree(options.commit), options.config,
                                options.compiler,
                                touched_files(series_patches()),
                                strict=False)
    for obj in built.objects:
        say(f"    {obj}")
    for row in built.warnings.elements():
        say(f"    {row}")
    say(f"{len(built.objects)} objects, {built.warnings.total()} warnings; "
        f"the log is {shown_path(built.log)}")
    return 1 if built.failed or not built.objects else 0


if __name__ == "__main__":
    run_main(main)
