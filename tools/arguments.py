# SPDX-License-Identifier: GPL-2.0-only
"""Tell whether a job takes what it is asked for, before anything is installed.

usage: python3 -m tools.arguments [JOB [ARGUMENT...]]

By Python's standard library alone: looks at the variables that 'make TARGET'
was given, at KERNEL=, KSRC= and ACCEL=, and lets the job look at its arguments
until its work begins.  What is wrong is called by the name of the variable.
"""

import argparse
import importlib.util
import os
import re
import runpy
import shlex
import shutil
import sys
from typing import NoReturn

from tools import core
from tools.core import ROOT, Fail, check_kernel, run_main
from tools.guest import accel
from tools.series.base import look_at

# The options whose variables have other names.
NAMES = {"config": "KCONFIG", "mutant": "ONLY"}


def check_variables(target: str) -> None:
    """Raise Fail unless the target takes what make was given."""
    row = re.search(rf"^{target}:.*\n#> (.*);",
                    (ROOT / "Makefile").read_text(), re.M)
    takes = row[1].replace("=", "").split() if row else []
    words = os.environ.get("MAKEFLAGS", "").partition("-- ")[2]
    given = dict(word.split("=", 1) for word in shlex.split(words))
    for name, value in given.items():
        if name not in takes and not name.startswith("SERIES_"):
            raise Fail(f"{name}={value}: 'make {target}' takes "
                       f"{', '.join(takes) or 'no variable'}")
        if name in ("ALL", "FORCE", "LIST") and value not in ("", "1"):
            raise Fail(f"{name}={value} is not known: use 1")


def refuse(parser: argparse.ArgumentParser, message: str) -> NoReturn:
    """Do what the parser's error() does, by the names of variables."""
    found = re.match(
        r"(?:argument |the following arguments are required: )-*(\w+)"
        r"(?:: invalid [^:]*: '?(.*?)'?(?: \(|$))?", message)
    for action in parser._actions:
        if found and action.dest == found[1]:
            name = NAMES.get(found[1], found[1].upper())
            wanted = ", ".join(map(str, action.choices or [
                "a number above 0"]))
            raise Fail(f"give {name}=: {wanted}" if found[2] is None else
                       f"{name}={found[2]} is not known: use {wanted}")
    raise Fail(message)


def main() -> None:
    job, target = "".join(sys.argv[1:2]), os.environ.get("TARGET", "")
    if job in ("-h", "--help") or not job and not target:
        print(__doc__.strip())
        return
    if target:
        check_variables(target)
    if not job:
        return
    if job.startswith("-") or not importlib.util.find_spec(f"tools.{job}"):
        raise Fail(f"there is no job '{job}'")
    check_kernel()
    accel()
    # git may be still to be installed.
    if os.environ.get("KSRC") and shutil.which("git"):
        look_at(os.environ["KSRC"])
    argparse.ArgumentParser.error = refuse  # type: ignore
    core.work_begins = sys.exit
    core.run_main = lambda main: main()
    del sys.argv[0]
    runpy.run_module(f"tools.{job}", run_name="__main__", alter_sys=True)


if __name__ == "__main__":
    run_main(main)
