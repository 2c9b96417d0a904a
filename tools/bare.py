# SPDX-License-Identifier: GPL-2.0-only
"""Run README's commands on a Debian that has nothing but git and make.

The root is made in build/bare, this repository's HEAD is cloned into it, and
it is removed at the end.  The commands install what they need, so this wants
root, a network, 9 GiB and hours.
"""

import argparse
import re
import shutil
from collections.abc import Sequence

from tools.core import (BUILD, LOGS, ROOT, Fail, build_lock, duration, git,
                        need_space, run_logged, run_main, say, shown_path,
                        stage, tail)
from tools.count import Count
from tools.debian import SUITES, inside, last, make_root, why_not

PLACE = BUILD / "bare/root"
CLONE = "/root/series"
SECONDS = 12 * 3600
COMMANDS = ("make bench", "make check")
PASSED = re.compile(r"^[1-9]\d* passed, 0 failed\b")


def check_readme() -> None:
    """README tells users to run these commands, as they are here."""
    text = (ROOT / "README.md").read_text()
    missing = [command for command in COMMANDS
               if not re.search(rf"^{command}\b", text, re.M)]
    if missing:
        raise Fail(f"README.md does not name {', '.join(missing)}")


def run_command(command: str) -> None:
    """Run a command in the clone; raise Fail unless it ends well, and 'make
    check' unless it passed tests and failed none."""
    log = LOGS / f"bare-{re.sub(r'[^a-z]+', '-', command.lower())}.log"
    with stage(f"{command} on a bare Debian"):
        status = run_logged(
            inside(PLACE, ["sh", "-c", f"cd {CLONE} && exec {command}"]),
            log, timeout=SECONDS, check=False, progress=last("^==> .{,60}"))
    rows = log.read_text(errors="replace").splitlines() or [""]
    if status != 0:
        why = (f"did not end within {duration(SECONDS)}" if status is None
               else f"ended with status {status}")
        raise Fail(f"{why}; the end of {shown_path(log)}:\n{tail(log)}")
    if command == "make check" and not PASSED.match(rows[-1]):
        raise Fail(f"its last line is '{rows[-1]}', see {shown_path(log)}")


def group(count: Count, commands: Sequence[str] = COMMANDS,
          keep: bool = False, suite: str = SUITES[0]) -> None:
    """README's commands work on a bare Debian with git and make."""
    count.run("bare: README names the commands", check_readme)
    reason = why_not()
    if reason:
        count.skip("bare: README's commands", reason)
        return
    need_space(BUILD, 9, "a clone and its kernels in build/bare")
    commit = git("rev-parse", "--short=12", "HEAD", cwd=ROOT).strip()
    try:
        make_root(PLACE, ("git", "make"), LOGS / "bare-root.log", suite)
        git("clone", "-q", "--no-hardlinks", ROOT, f"{PLACE}{CLONE}")
        for command in commands:
            count.run(f"bare: {command} of {commit}", run_command, command)
    finally:
        if not keep:
            with stage(f"removing {shown_path(PLACE.parent)}"):
                shutil.rmtree(PLACE.parent, ignore_errors=True)


def main() -> int:
    parser = argparse.ArgumentParser(
        description=__doc__.partition("\n\n")[0],
        epilog="Needs root, a network and hours.")
    parser.add_argument("--command", action="append", metavar="COMMAND",
                        help="run this instead of 'make bench' and 'make "
                             "check'; may be given again")
    parser.add_argument("--suite", choices=SUITES, default=SUITES[0],
                        help="which Debian (default: %(default)s)")
    parser.add_argument("--keep", action="store_true",
                        help="leave the root in build/bare")
    options = parser.parse_args()
    count = Count()
    with build_lock():
        group(count, options.command or COMMANDS, options.keep,
              options.suite)
    say(count.last_line())
    return count.status()


if __name__ == "__main__":
    run_main(main)
