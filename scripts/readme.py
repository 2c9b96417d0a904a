#!/usr/bin/env python3
# SPDX-License-Identifier: GPL-2.0-only
"""Put the last result of `make bench` into README.md and results/.

Replaces what stands between the markers `<!-- bench:begin -->` and
`<!-- bench:end -->`; the JSON and the plot behind it go to results/.
"""

import argparse
import shutil

import yieldbench
from bench import load, tables
from common import RESULTS, ROOT, Fail, run_main, say, write_atomically

BEGIN, END = "<!-- bench:begin -->", "<!-- bench:end -->"
PUBLISHED = ROOT / "results"


def section(report):
    """Return the Markdown lines (list of str) between the markers."""
    sides = report["sides"]
    more = []
    if "yield" in report:
        more = [*yieldbench.tables(report["yield"]), "",
                "![share of the CPU and time of a call against the slice]"
                "(results/yield.svg)", ""]
    return [
        "",
        f"Measured on {report['date'][:10]} by `make bench`: base "
        f"{sides['base']['release']} and the series on it, "
        f"{sides['series']['compiler']}, `{sides['series']['config']}`, "
        f"{report['machine']['qemu']} on {report['machine']['cpu']}.",
        *tables(report), "",
        "![cost of a switch against the highest enabled port]"
        "(results/bench.svg)",
        "",
        *more,
    ]


def main():
    argparse.ArgumentParser(
        description=__doc__.split("\n\n")[0]).parse_args()
    latest = RESULTS / "bench.json"
    if not latest.exists():
        raise Fail("there is no result yet: run 'make bench' first")
    report = load(latest)
    readme = ROOT / "README.md"
    text = readme.read_text()
    if text.count(BEGIN) != 1 or text.count(END) != 1:
        raise Fail(f"README.md must have one {BEGIN} and one {END}")
    before, rest = text.split(BEGIN)
    after = rest.split(END)[1]
    write_atomically(readme, before + BEGIN + "\n"
                     + "\n".join(section(report)) + "\n" + END + after)
    PUBLISHED.mkdir(exist_ok=True)
    names = ["bench.json", "bench.svg"]
    if "yield" in report:
        names.append("yield.svg")
    for name in names:
        shutil.copyfile(RESULTS / name, PUBLISHED / name)
    say("README.md and results/ have the figures of " + report["date"])


if __name__ == "__main__":
    run_main(main)
