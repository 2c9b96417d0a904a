# SPDX-License-Identifier: GPL-2.0-only
"""Write a part of the series as a mailbox, authored and signed off by you.

'git am' takes build/submit/SET.mbox.  submit/README.md has the commands of b4
that make a branch of it, check it and send it: this program sends nothing.
"""

import argparse
import email.utils
import os
import re

from tools.core import (BUILD, Fail, build_lock, run_main, say, shown_path,
                        write_atomically)
from tools.records import open_gates
from tools.series.apply import PATCHES, series_patches

# For people to give; the Signed-off-by is added here.
GIVEN = r"^(Signed-off|Co-developed|Reviewed|Acked|Tested)-by: .*"


def check_person(name: str, address: str) -> None:
    """Raise Fail when the person cannot sign a patch off."""
    for given, value, pattern in (
            ("NAME", name, r'[^\s<>"\\]+( [^\s<>"\\]+)*'),
            ("EMAIL", address, r"[\w.+-]+@[\w.-]+\.\w+")):
        if not re.fullmatch(pattern, value):
            raise Fail(f"{given}={value} cannot sign off: give NAME='Your "
                       "Name' and EMAIL=you@example.org, the author and the "
                       "Signed-off-by of every patch")


def chosen(kind: str) -> list[str]:
    """Return the names of the patches of a set."""
    def fits(name: str) -> bool:
        text = (PATCHES / name).read_text(errors="surrogateescape")
        sched = re.search(r"^Subject: .*\] (selftests/)?sched", text, re.M)
        fix = re.search(r"^Fixes: ", text, re.M) and \
            not re.search(r"^Subject: .*\] selftests", text, re.M)
        return bool({"all": True, "fixes": fix, "x86": not sched,
                     "sched": sched}.get(kind))

    names = list(filter(fits, series_patches()))
    if not names:
        raise Fail(f"SET={kind} has no patch: use all, fixes, x86 or sched")
    return names


def authored(text: str, name: str, address: str) -> str:
    """Return a patch with another author, who signs it off where the tip
    tree has it (maintainer-tip.rst): between Assisted-by and Cc."""
    author = email.utils.formataddr((name, address), "utf-8")
    message, cut, diff = text.partition("\n---\n")
    given = re.search(GIVEN, message, re.M)
    if given:
        raise Fail(f"a patch has '{given[0]}', which is for people to give")
    message, authors = re.subn(
        r"^From: .*(?:\n[ \t].*)*", lambda _: f"From: {author}", message,
        count=1, flags=re.M)
    message, tags = re.subn(
        r"^Assisted-by: .*$", lambda tag: f"{tag[0]}\nSigned-off-by: "
        f"{name} <{address}>", message, flags=re.M)
    if (authors, tags) != (1, 1):
        raise Fail("a patch needs one From: header and one Assisted-by: tag")
    return message + cut + diff


def check_gates(wish: str) -> None:
    """Raise Fail unless these patches passed the gates, or need not."""
    left = " ".join(open_gates())
    if wish not in ("all", "no"):
        raise Fail(f"GATES={wish} is not known: use no, or leave it out")
    if left and wish != "no":
        raise Fail("these patches have not passed all gates: run 'make gates "
                   f"ONLY=\"{left}\"', or give GATES=no")


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__.split("\n\n")[0],
        epilog="The default is the variable NAME, EMAIL, SET or GATES.")
    for name, default, text in (
            ("name", "", "your name"), ("email", "", "your address"),
            ("set", "all", "all (default), fixes, x86 or sched"),
            ("gates", "all", "no: 'make gates' need not have passed")):
        parser.add_argument(f"--{name}", help=text, default=os.environ.get(
            name.upper()) or default)
    options = parser.parse_args()
    check_person(options.name, options.email)
    mails = [authored((PATCHES / name).read_text(errors="surrogateescape"),
                      options.name, options.email)
             for name in chosen(options.set)]
    check_gates(options.gates)
    box = BUILD / f"submit/{options.set}.mbox"
    with build_lock():
        write_atomically(box, "".join(mails).encode(errors="surrogateescape"))
    say(f"{shown_path(box)}: {len(mails)} patches; nothing was sent, "
        "submit/README.md has the next commands")


if __name__ == "__main__":
    run_main(main)
