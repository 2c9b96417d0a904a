#!/usr/bin/env python3
# SPDX-License-Identifier: GPL-2.0-only
"""Time the series' copy of an I/O bitmap against mainline's, in cycles.

Takes io_bitmap_load() and what it calls from the text of a kernel tree,
compiles that as a user-space program with the kernel's flags, checks that it
copies correctly, and times it warm, with L1 displaced and with L2 displaced.
"""

import argparse
import hashlib
import json
import os
import re
import statistics
import sys
import tempfile
import textwrap
from pathlib import Path

from common import (BUILD, LOGS, ROOT, Fail, build_lock, need_tool,
                    run_logged, run_main, say, shown_path, stage,
                    write_atomically)

HARNESS = ROOT / "scripts/copycost.c"
LOG = LOGS / "copycost.log"
ROUNDS = 2000
SECONDS = 600
# What is taken where: the routine itself, and what it works on.
ROUTINE = ("arch/x86/kernel/ioport.c", "io_bitmap_load")
STRUCTS = (("arch/x86/include/asm/processor.h", "x86_io_bitmap"),
           ("arch/x86/include/asm/io_bitmap.h", "io_bitmap"))
DEFINES = (("arch/x86/include/asm/processor.h",
            "arch/x86/include/asm/io_bitmap.h"), "IO_BITMAP_")
# The kernel's, as far as they change the code of these functions.
FLAGS = ["-std=gnu11", "-O2", "-m64", "-march=x86-64", "-mtune=generic",
         "-mgeneral-regs-only", "-mno-red-zone", "-fno-strict-aliasing",
         "-fno-strict-overflow", "-fno-delete-null-pointer-checks",
         "-fomit-frame-pointer", "-fno-stack-protector", "-fno-jump-tables",
         "-fcf-protection=none", "-fno-pie", "-no-pie", "-fconserve-stack",
         "-falign-functions=16", "-falign-jumps=1", "-falign-loops=1",
         "-U_FORTIFY_SOURCE", "-Wall", "-Werror=implicit-function-declaration"]
# For a machine that does not say: sizes that are common.
DEFAULT_L1D, DEFAULT_L2 = 48 * 1024, 2048 * 1024
STATES = {"warm": "warm", "l1": "L1 displaced", "l2": "L2 displaced"}
# When a copy has ended.
ENDS = {"done": "Until the instructions of the copy are done. Its last stores "
                "may still be in the store buffer, which takes a few lines:",
        "stored": "Until its stores are in the cache, too:"}
# The ports of two tasks which alternate, and what the series copies for them.
CASES = {
    "one-line": "65534 / 65535: 1 line",
    "two-lines": "0x80 / 65535: 2 lines apart",
    "parallel": "0x378-0x37a with 0xd800-0xd807 / 0xdc00-0xdc07: 3 lines",
    "pciutils": "0xcf8-0xcff, 0xc000-0xcffe / the same: 9 lines",
    "eight-apart": "8 lines / 8 others: 16 lines apart",
    "half-or-one": "lines 0-63 / line 32: 64 lines",
    "all-but-one": "all but 0 / all but 65535: 128 lines",
    "interleaved": "every even line / every odd one: 128 lines",
    "every-second": "every even line / the same: 64 lines apart",
    "two-of-three": "two lines of three / the same: 86 lines, 43 runs",
    "two-of-four": "two lines of four / the same: 64 lines, 32 runs",
}
COPIES = ("memcpy", "memcpy-mainline")


# --- the text of the tree --------------------------------------------------

def read_source(tree, name):
    """Return the text (str) of a file of a kernel tree; Fail without it."""
    try:
        return (Path(tree) / name).read_text()
    except (OSError, UnicodeDecodeError) as failure:
        raise Fail(f"cannot read {name} of the kernel tree "
                   f"{shown_path(tree)}: {failure}") from None


def find_definition(text, name):
    """Return the match of a function (to a brace in column 0) or constant."""
    return re.search(
        rf"^[A-Za-z_](?:[\w \t*]|\n(?=[A-Za-z_]))*?\b{name}"
        r"\([^;{}]*\)\s*^\{$.*?^\}$", text, re.M | re.S) or re.search(
            rf"^static const [^;(]*?\b{name}\b[^;]*;$", text, re.M)


def names_of(text):
    """Return the names (set of str) that C text may call or use."""
    return set(re.findall(r"\b(?:io_bitmap_\w+|[A-Za-z_]\w*(?=\())", text))


def take_functions(tree):
    """Return [(line number, name, text)] of the routine and what it uses.

    Only functions and constants of the same file, in the file's order; the
    rest is up to copycost.c.  Raises Fail when the routine is not there, or
    one that it uses and that its name says is of this file.
    """
    name, root = ROUTINE
    text = read_source(tree, name)
    found, open_names = {}, [root]
    while open_names:
        wanted = open_names.pop()
        if wanted in found:
            continue
        match = find_definition(text, wanted)
        if match:
            found[wanted] = match
            open_names += sorted(names_of(match.group(0)))
        elif wanted == root:
            raise Fail(f"there is no function {root}() in {name} of "
                       f"{shown_path(tree)}: is the series applied there?")
        elif wanted.startswith("io_bitmap_"):
            raise Fail(f"{root}() uses {wanted}, but there is no "
                       f"{wanted} in {name} of {shown_path(tree)}")
    return [(text.count("\n", 0, match.start()) + 1, called, match.group(0))
            for called, match in sorted(found.items(),
                                        key=lambda item: item[1].start())]


def take_struct(tree, name, tag):
    """Return (line number, text) of `struct tag` in a file of the tree.

    Raises Fail when it is not there.
    """
    text = read_source(tree, name)
    match = re.search(rf"^struct {tag} \{{$.*?^\}}[^;\n]*;", text,
                      re.M | re.S)
    if not match:
        raise Fail(f"there is no struct {tag} in {name} of "
                   f"{shown_path(tree)}")
    return text.count("\n", 0, match.start()) + 1, match.group(0)


def take_defines(tree, names, prefix):
    """Return the text (str) of the #defines whose name has a prefix.

    names: files of the tree.  Raises Fail when the size of a line is not
    among them.
    """
    found = [row for name in names for row in re.findall(
        rf"^#[ \t]*define[ \t]+{prefix}(?:.*\\\n)*.*$",
        read_source(tree, name), re.M)]
    text = "\n".join(found)
    if not re.search(rf"^#[ \t]*define[ \t]+{prefix}LINE_BYTES\b", text,
                     re.M):
        raise Fail(f"there is no #define {prefix}LINE_BYTES in {names[0]} "
                   f"of {shown_path(tree)}: is the series applied there?")
    return text


def extract(tree):
    """Take the routine out of a kernel tree.

    Returns (text of the header: str, names of the functions: list of str).
    Raises Fail, naming what was not found.
    """
    functions = take_functions(tree)
    parts = ["/* Generated by copycost.py from a kernel tree */",
             take_defines(tree, *DEFINES)]
    for name, tag in STRUCTS:
        line, text = take_struct(tree, name, tag)
        parts.append(f'#line {line} "{name}"\n{text}')
    for line, _, text in functions:
        parts.append(f'#line {line} "{ROUTINE[0]}"\n{text}')
    return "\n\n".join(parts) + "\n", [name for _, name, _ in functions]


# --- the machine -----------------------------------------------------------

def cache_size(cpu, level):
    """Return the bytes (int) of a CPU's data cache, None when not known."""
    folder = Path(f"/sys/devices/system/cpu/cpu{cpu}/cache")
    for index in sorted(folder.glob("index[0-9]*")):
        try:
            kind = (index / "type").read_text().strip()
            found = int((index / "level").read_text())
            size = re.fullmatch(r"(\d+)([KM]?)",
                                (index / "size").read_text().strip())
        except (OSError, ValueError):
            continue
        if kind in ("Data", "Unified") and found == level and size:
            size = int(size.group(1)) << {"": 0, "K": 10, "M": 20}[
                size.group(2)]
            # Zero and nonsense are what some hypervisors show.
            return size if 4096 <= size <= 2**30 else None
    return None


def machine(cpu):
    """Return what a result depends on (dict) for one CPU (int)."""
    text = Path("/proc/cpuinfo").read_text()
    model = re.search(r"^model name\s*: (.*)$", text, re.M)
    flags = re.search(r"^flags\s*: (.*)$", text, re.M)
    flags = flags.group(1).split() if flags else []
    l1d, l2 = cache_size(cpu, 1), cache_size(cpu, 2)
    known = bool(l1d and l2 and l1d < l2)
    return {"cpu": model.group(1) if model else "unknown",
            "cpu_number": cpu,
            "l1d_bytes": l1d if known else DEFAULT_L1D,
            "l2_bytes": l2 if known else DEFAULT_L2, "caches_known": known,
            "virtual": "hypervisor" in flags,
            "constant_tsc": "constant_tsc" in flags,
            "fsrm": "fsrm" in flags, "fsrs": "fsrs" in flags}


def choose_cpu():
    """Return the CPU (int) to run on: the last one that we may use."""
    return max(os.sched_getaffinity(0))


# --- measuring -------------------------------------------------------------

def read_samples(path):
    """Return {(state, end): {name: (calls, [ticks of a sample])}} of a file.

    Raises Fail when it is not whole.
    """
    samples = {(state, end): {} for state in STATES for end in ENDS}
    for line in Path(path).read_text().splitlines():
        state, end, name, calls, *ticks = line.split()
        samples[state, end][name] = int(calls), [int(value)
                                                 for value in ticks]
    for key, subjects in samples.items():
        for name in ("nothing", *COPIES, *CASES,
                     *(f"{case}-mainline" for case in CASES)):
            if not subjects.get(name, (0, []))[1]:
                raise Fail(f"copycost wrote no samples of {name}, "
                           + ", ".join(key))
    return samples


def summary(samples, name):
    """Return {state: {end: {"median", "minimum"}}} of one subject (str).

    TSC cycles (float) per call, without those of an empty loop.  The rounds
    time the one and the other task in turn, and the mean of both is taken.
    """
    result = {state: {} for state in STATES}
    for (state, end), subjects in samples.items():
        calls, ticks = subjects[name]
        empty = statistics.median(subjects["nothing"][1])
        result[state][end] = {
            key: round(max(statistics.mean((take(ticks[::2]),
                                            take(ticks[1::2]))) - empty, 0)
                       / calls, 1)
            for key, take in (("median", statistics.median),
                              ("minimum", min))}
    return result


def build_and_run(header, place, here, rounds):
    """Compile a header (str) with the harness in a folder, and run it.

    here: what machine() returned.  Returns what read_samples() returns.
    Raises Fail with the compiler's or the program's words.
    """
    need_tool("gcc", "build-essential")
    place = Path(place)
    (place / "copycost.h").write_text(header)
    program, samples = place / "copycost", place / "samples"
    run_logged(["gcc", *FLAGS, f"-I{place}", str(HARNESS), "-o",
                str(program)], LOG, timeout=SECONDS,
               what="compiling the copy routine in user space")
    run_logged([str(program), str(here["cpu_number"]), str(here["l1d_bytes"]),
                str(here["l2_bytes"]), str(rounds), str(samples)], LOG,
               timeout=SECONDS, what="the test of the copy routine")
    return read_samples(samples)


def measure(tree, rounds=ROUNDS, cpu=None):
    """Check and time the copy routine of a kernel tree.

    tree: path of a kernel tree with the series.  rounds: samples (int) of
    each figure.  cpu: the number (int) of the CPU to run on, or None.
    Returns a dict that json can write; its times are TSC cycles per copy.
    Raises Fail when the routine is not found, does not compile or copies
    wrongly; never because of a time.
    """
    header, functions = extract(tree)
    here = machine(choose_cpu() if cpu is None else cpu)
    BUILD.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory(prefix="copycost-", dir=BUILD) as place:
        samples = build_and_run(header, place, here, rounds)
    return {"benchmark": "copycost", "version": 2,
            "unit": "TSC cycles per copy", "machine": here,
            "rounds": rounds,
            "warm_calls": samples["warm", "done"]["nothing"][0],
            "displaced_calls": samples["l1", "done"]["nothing"][0],
            "functions": functions,
            "routine_sha256": hashlib.sha256(header.encode()).hexdigest(),
            "cases": {name: summary(samples, name) for name in CASES},
            "mainline": {name: summary(samples, f"{name}-mainline")
                         for name in CASES},
            "copies": {name: summary(samples, name) for name in COPIES}}


# --- showing ---------------------------------------------------------------

def cycles(value):
    """Format cycles (float): one decimal below 100."""
    return f"{value:.0f}" if value >= 100 else f"{value:.1f}"


def ratio(a, b):
    """Format a/b with two decimals, or a dash where there is none."""
    return f"{a / b:.2f}" if b > 0 else "-"


def notes(result):
    """Return the paragraphs (list of str) that say what the figures are."""
    here = result["machine"]
    caches = (f"L1d {here['l1d_bytes'] >> 10} KB, "
              f"L2 {here['l2_bytes'] >> 10} KB")
    if not here["caches_known"]:
        caches += " (assumed: this machine does not say)"
    lines = [
        f"Unit: TSC cycles of {here['cpu']}"
        f"{' (a virtual machine)' if here['virtual'] else ''}, {caches}; "
        f"median of {result['rounds']} samples and, in brackets, the "
        "minimum. The TSC has a frequency of its own: these need not be "
        "cycles of the core. It may also count in steps, and therefore a "
        f"sample is the mean of {result['warm_calls']} copies in turn when "
        f"warm, and of one each to {result['displaced_calls']} TSSs when "
        "displaced.",
        "In user space, from the text of the series with the kernel's "
        "compiler flags. Displaced is the data of both tasks and of the TSS; "
        "the code may be displaced from L2 with it, and the branch predictor "
        "is warm. A memcpy or memset that is called is `rep movsb` or `rep "
        "stosb`, as in the kernel on a CPU with FSRM and FSRS. The empty "
        "loop is subtracted; what overlaps with the fence that ends each "
        "copy does not show, so that figures of a few cycles are too low. A "
        "long copy can take three times as long on some pages as on others: "
        "warm figures are of all TSSs in turn."]
    lacks = [flag.upper() for flag in ("fsrm", "fsrs") if not here[flag]]
    if lacks:
        lines.append(f"/proc/cpuinfo shows no {' and no '.join(lacks)} here: "
                     "the kernel runs a loop instead of rep movsb without "
                     "FSRM, and of rep stosb without FSRS.")
    return lines


def tables(result):
    """Return a result of measure() as Markdown lines (list of str).

    Per pair of tasks and state of the caches: the cycles of the series, of
    what mainline copies for the same pair (a prefix), and of 8 KB.
    """
    def cell(figures):
        return f"{cycles(figures['median'])} ({cycles(figures['minimum'])})"

    rows = [*"\n\n".join(notes(result)).split("\n")]
    for end, title in ENDS.items():
        rows += ["", title, "",
                 "| ports of the two tasks | caches | series | mainline "
                 "| ratio | mainline, 8 KB | ratio | 8 KB, aligned |",
                 "|---|---|---:|---:|---:|---:|---:|---:|"]
        for name, ports in CASES.items():
            for state, caches in STATES.items():
                ours, same, whole, best = (
                    figures[state][end] for figures in (
                        result["cases"][name], result["mainline"][name],
                        *reversed(result["copies"].values())))
                rows.append(" | ".join((
                    f"| {ports}", caches, cell(ours), cell(same),
                    ratio(ours["median"], same["median"]), cell(whole),
                    ratio(ours["median"], whole["median"]),
                    f"{cell(best)} |")))
    whole = result["copies"]["memcpy-mainline"]
    for of in "median", "minimum":
        value, name, state, end = max(
            (ours[state][end][of] / (whole[state][end][of] or 1), name, state,
             end) for name, ours in result["cases"].items()
            for state in STATES for end in ENDS)
        rows += ["", f"worst ratio series / mainline's 8 KB copy, {of}: "
                 f"{value:.2f} ({CASES[name]}; {STATES[state]}, {end})"]
    return rows


def show(result):
    """Return a result as text (str) for a terminal."""
    # Here, because bench imports this file.
    from bench import console_table

    rows = []
    for row in tables(result):
        rows += [row] if row.startswith("|") else textwrap.wrap(row) or [""]
    return console_table(rows)


def main():
    parser = argparse.ArgumentParser(
        description=__doc__.split("\n\n")[0],
        epilog="The figures are TSC cycles of this machine and vary between "
               "runs; a time never makes this fail, a wrong copy does.")
    parser.add_argument("--tree", type=Path, default=BUILD / "series",
                        metavar="PATH",
                        help="a kernel tree with the series, only read "
                             "(default: build/series)")
    parser.add_argument("--json", type=Path, metavar="FILE",
                        help="write the result there too")
    parser.add_argument("--rounds", type=int, default=ROUNDS,
                        help="samples of each figure (default: %(default)s)")
    parser.add_argument("--cpu", type=int,
                        help="the CPU to run on (default: the last)")
    parser.add_argument("--show", type=Path, metavar="JSON",
                        help="measure nothing, show this result again")
    options = parser.parse_args()
    if options.show:
        print(show(json.loads(options.show.read_text())))
        return
    if not 2 <= options.rounds <= 100000:
        parser.error("--rounds takes 2 to 100000")
    with build_lock(), stage("timing the copy routine in user space"):
        result = measure(options.tree, options.rounds, options.cpu)
    if options.json:
        write_atomically(options.json, json.dumps(result, indent=1) + "\n")
    sys.stdout.write("\n" + show(result) + "\n\n")
    if options.json:
        say(f"written: {shown_path(options.json)}")


if __name__ == "__main__":
    run_main(main)
