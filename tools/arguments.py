# SPDX-License-Identifier: GPL-2.0-only
"""Tell whether a job takes what it is asked for, before anything is installed.

usage: python3 -m tools.arguments JOB [ARGUMENT...]

By Python's standard library alone: looks at KERNEL=, KSRC= and ACCEL=, and
lets the job read its arguments, and no more.
"""

import argparse
import contextlib
import importlib.util
import os
import runpy
import sys
from pathlib import Path
from typing import Any

from tools.core import Fail, check_kernel, git, run_main
from tools.guest import accel
from tools.series.base import accept, version_of


def check_ksrc(ksrc: str) -> None:
    """Raise Fail unless this is a kernel tree that the series goes to."""
    path = Path(os.path.expanduser(ksrc)).resolve()
    if not path.is_dir():
        raise Fail(f"KSRC={ksrc} is not a folder")
    try:
        version = version_of(git("show", "HEAD:Makefile", cwd=path)
                             if (path / ".git").exists()
                             else (path / "Makefile").read_text())
    except (OSError, Fail):
        raise Fail(f"KSRC={ksrc} is not a Linux source tree: there is no "
                   "kernel Makefile at its top") from None
    accept(version)


def main() -> None:
    job = "".join(sys.argv[1:2])
    if job in ("", "-h", "--help"):
        print(__doc__.strip())
        return
    if job.startswith("-") or not importlib.util.find_spec(f"tools.{job}"):
        raise Fail(f"there is no job '{job}'")
    check_kernel()
    accel()
    if os.environ.get("KSRC"):
        check_ksrc(os.environ["KSRC"])
    read = argparse.ArgumentParser.parse_args

    def enough(parser: argparse.ArgumentParser, *arguments: Any) -> None:
        read(parser, *arguments)
        sys.exit()

    argparse.ArgumentParser.parse_args = enough  # type: ignore
    del sys.argv[0]
    # A library that is still to be installed: the job tells later.
    with contextlib.suppress(ModuleNotFoundError):
        runpy.run_module(f"tools.{job}", run_name="__main__", alter_sys=True)


if __name__ == "__main__":
    run_main(main)
