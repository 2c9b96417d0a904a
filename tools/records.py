# SPDX-License-Identifier: GPL-2.0-only
"""What has been run on these patches.

A job that ran all of a check notes what came out with record(), under a hash
of what the patches change, in build/results/records.json.  'make publish'
takes that to results/.  A record of other patches counts for nothing.
"""

import datetime
import re
from collections.abc import Iterable, Iterator
from typing import Any

from tools.core import (KERNEL, RESULTS, ROOT, TOP_BUILD, Fail, digest, git,
                        kernels, read_json, write_json)
from tools.series.apply import (PATCHES, has_yield, is_kernel,
                                series_patches)
from tools.series.base import wanted

NAME = "records.json"
PUBLISHED = ROOT / "results" / NAME
# What each check reads of the patches, so that no other change makes it out of
# date: "kernel", neither tests nor documents; "code", no documents; or "all".
GATES = {"gcc": "code", "clang": "code", "prefixes": "code",
         "sparse": "kernel", "coccicheck": "code", "kerneldoc": "code",
         "docs": "all", "versions": "all", "i386": "code", "musl": "code",
         "xen": "code", "boots": "code", "installs": "code", "bisect": "code",
         "package": "code", "package-rt": "code", "bare": "all",
         "bare-13": "all", "lab": "code"}
SOAK = ("repeat", "load", "race", "stress", "yield-stress", "yield-hz")
CHECKS = {"check scripts": "all", "check series": "all",
          "check kernels": "code",
          **{f"gates {name}": reads for name, reads in GATES.items()},
          "mutants": "code", **{f"soak {name}": "code" for name in SOAK},
          "bench": "code", "study": "code", "deb": "kernel",
          "real hardware": "code"}
# They are about the repository, which is the same for each kernel.
FIRST_ONLY = ("check scripts", "gates bare", "gates bare-13", "gates lab",
              "study")
YIELD_ONLY = ("soak yield-stress", "soak yield-hz")
# x86 has PREEMPT_RT since 6.12.
NO_RT = {"6.1": ("gates package-rt",)}

# {"key", "commit", "date", "passed", "failed", "skipped", "files"}
Row = dict[str, Any]


def columns() -> list[tuple[str, str]]:
    """Return the kernels: [(version, KERNEL= that asks for it)]."""
    first, *others = (row["VERSION"] for row in kernels())
    return [(first, ""), *((version, version) for version in others)]


def checks(kernel: str = KERNEL) -> list[str]:
    """Return the names of what there is to run on a kernel."""
    none = (FIRST_ONLY if kernel else ()) + (
        () if has_yield(kernel) else YIELD_ONLY) + NO_RT.get(kernel, ())
    return [name for name in CHECKS if name not in none]


def patches_key(reads: str = "all", kernel: str = KERNEL) -> str:
    """Return a name of the base and of what each patch changes, apart from
    what nothing with this value of CHECKS reads; its words never count."""
    def read(path: str) -> bool:
        return reads == "all" or is_kernel(path) or (
            reads == "code" and not path.startswith("Documentation/"))

    changes = [re.split(rb"^diff --git a/", (PATCHES / name).read_bytes(),
                        flags=re.M)[1:] for name in series_patches(kernel)]
    return digest(*map("=".join, wanted(kernel).items()), *(
        change for part in changes for change in part
        if read(change.decode(errors="replace"))))


def patches_commit() -> str:
    """Return the commit that has the patches, with a + when they are not quite
    those, or nothing where there is no git."""
    names = ("--", "patches", "series")
    try:
        return git("log", "-1", "--format=%h", *names, cwd=ROOT).strip() + (
            "+" if git("status", "--porcelain", *names, cwd=ROOT) else "")
    except Fail:
        return ""


def record(name: str, passed: int, failed: int, skipped: int,
           files: Iterable[str] = (), key: str = "") -> None:
    """Note what all of a check came to; only when it ran to its end.

    name: of CHECKS.  files: below build/results, what the run wrote and is to
    be published, all of it.  key: of the patches when it began, by default
    those of now.
    """
    now = datetime.datetime.now(datetime.timezone.utc)
    row = {"key": key or patches_key(CHECKS[name]),
           "commit": patches_commit(),
           "date": now.isoformat(timespec="seconds"), "passed": passed,
           "failed": failed, "skipped": skipped,
           "files": {file: digest((RESULTS / file).read_bytes())
                     for file in files}}
    write_json(RESULTS / NAME, read_json(RESULTS / NAME, {}) | {name: row})


def current(rows: dict[str, Row], kernel: str) -> dict[str, Row]:
    """Return those of {name: row} that are of a kernel's patches of now."""
    return {name: row for name, row in rows.items() if name in CHECKS
            and row["key"] == patches_key(CHECKS[name], kernel)}


def recorded(kernel: str = KERNEL) -> dict[str, Row]:
    """Return the last run of each check on these patches, by name: of those
    of this machine and the published ones."""
    version = next(one for one, asked in columns() if asked == kernel)
    found = current(read_json(PUBLISHED, {}).get(version, {}), kernel)
    mine = current(read_json(TOP_BUILD / kernel / "results" / NAME, {}),
                   kernel)
    return found | {name: row for name, row in mine.items()
                    if row["date"] >= found.get(name, row)["date"]}


def open_gates() -> list[str]:
    """Return the gates of the patches that these have not passed."""
    known = recorded()
    return [name for name in GATES if f"gates {name}" not in FIRST_ONLY
            and known.get(f"gates {name}", {"failed": 1})["failed"]]


def gaps() -> Iterator[str]:
    """Yield lines of what has not run on these patches, or has failed."""
    known = recorded()
    for words, names in (
            ("not run", [name for name in checks() if name not in known]),
            ("failed", [name for name in checks()
                        if name in known and known[name]["failed"]])):
        if names:
            yield f"{words} on these patches: {', '.join(names)}"
