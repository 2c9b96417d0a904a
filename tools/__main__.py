# SPDX-License-Identifier: GPL-2.0-only
"""The front of all jobs: python3 -m tools [--look] TARGET.

A target of the Makefile and its variables, taken from the environment, as make
passes them on.  Each job is a module with main(kernel, given), and look(kernel,
given) when there is something to check before anything is installed: --look
does that alone, by Python's standard library.
"""

import importlib
import importlib.util
import os
import re
import shlex
import shutil
import sys

from tools.core import ROOT, Fail, Given, kernel_of, run_main

# Those whose module has another name.
MODULES = {"tree": "series.tree", "export": "series.export"}


def given_to(target: str) -> Given:
    """Return the target's variables; Fail unless it takes all that make was
    given."""
    row = re.search(rf"^{target}:.*\n#> (.*);",
                    (ROOT / "Makefile").read_text(), re.M)
    takes = row[1].replace("=", "").split() if row else []
    words = os.environ.get("MAKEFLAGS", "").partition("-- ")[2]
    for name, _, value in (word.partition("=") for word in shlex.split(words)):
        if name not in takes and not name.startswith("SERIES_"):
            raise Fail(f"{name}={value}: 'make {target}' takes "
                       f"{', '.join(takes) or 'no variable'}")
    given = Given({name: os.environ[name] for name in takes
                   if os.environ.get(name)})
    for name in ("ALL", "FORCE", "LIST"):
        given.one(name, ["1"], "")
    given.one("ACCEL", ["tcg", "kvm"], "")
    return given


def main() -> int | None:
    look, target = "--look" in sys.argv, "".join(sys.argv[-1:])
    if not re.search(rf"^{re.escape(target)}:.* ## ",
                     (ROOT / "Makefile").read_text(), re.M):
        raise Fail(f"there is no job '{target}': see 'make help'")
    given = given_to(target)
    kernel = kernel_of(given.get("KERNEL", ""))
    name = MODULES.get(target, target)
    if not importlib.util.find_spec(f"tools.{name}"):
        return 0  # a target that the Makefile or a shell script does
    # git may be still to be installed.
    if given.get("KSRC") and shutil.which("git"):
        importlib.import_module("tools.series.base").look_at(
            kernel, given["KSRC"])
    job = importlib.import_module(f"tools.{name}")
    if not look:
        return job.main(kernel, given)
    if hasattr(job, "look"):
        job.look(kernel, given)
    return 0


if __name__ == "__main__":
    run_main(main)
