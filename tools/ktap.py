# SPDX-License-Identifier: GPL-2.0-only
"""Read KTAP: what selftests, KUnit and kselftest's runner print.

And the marks around each of several programs that run in one guest:
'@@ begin NAME' and '@@ end NAME STATUS SECONDS'.
"""
# Not by the tree's kunit_parser: those of 6.1 and 6.12 forget why a case was
# skipped, and none reads a program's second run after its first, or output
# that has a plan and no version.

import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from typing import NamedTuple

# A plan, '1..4', or a result, 'ok 4 NAME # SKIP why'; KUnit's are indented.
ROW = re.compile(r"(    )?(?:1\.\.(\d+)|(ok|not ok) \d+(?: -)?)"
                 r"(?: ([^#]*?))??(?: *# (?i:SKIP)\b *(.*?))?(?: *#.*)?$")
# What the kselftest harness says around a case.
AROUND = re.compile(r"# +(RUN|OK|FAIL|SKIP) ")
RANK = ("skip", "pass", "fail")


@dataclass
class Report:
    """The cases of a program: "pass", "fail" or "skip", and why not "pass";
    wrong: why the output is not whole, or ""."""

    cases: dict[str, str] = field(default_factory=dict)
    reasons: dict[str, str] = field(default_factory=dict)
    wrong: str = ""

    def those(self, verdict: str) -> list[str]:
        """Return the cases with this verdict."""
        return [case for case, one in self.cases.items() if one == verdict]

    def add(self, case: str, verdict: str, reason: str) -> None:
        """Note a case; of one that is there twice, the worse run counts."""
        if RANK.index(verdict) >= RANK.index(self.cases.get(case, "skip")):
            self.cases[case], self.reasons[case] = verdict, reason
            if verdict == "skip" and not reason:
                self.wrong = f"a skip without a reason: {case}"


class Run(NamedTuple):
    """What a program printed, its exit status, and how long it took in s, both
    None for one that did not end."""

    output: str
    status: int | None
    seconds: int | None


def parse(text: str) -> Report:
    """Read what one program printed, or KUnit in debugfs or in a console: the
    cases of a suite are called 'suite.case', and it is a case itself only when
    it fails, or is skipped, and none of its cases is."""
    report, said, suite, reported = Report(), [], [], 0
    planned = wanted = None
    # The kernel puts the time before what is in its log.
    for line in re.sub(r"^\[ *\d+\.\d+\] |\r", "", text,
                       flags=re.M).splitlines():
        found = ROW.match(line)
        if not found:
            # Lines before a result say why, apart from the harness's own.
            if not AROUND.match(line):
                said.append(line.strip("# "))
            continue
        indent, plan, word, name, skip = found.groups("")
        verdict = "skip" if found[5] is not None else \
            "pass" if word == "ok" else "fail"
        why = skip
        if verdict == "fail":
            why = " | ".join([*filter(None, said)][-4:]) or \
                "it does not say why"
        elif skip and not name.strip():
            # Or 'ok 5 # SKIP NAME: the reason'.
            name, _, why = skip.partition(":")
        said = []
        case = name.strip(), verdict, why.strip()
        if plan and indent:
            suite, wanted = [], int(plan)
        elif plan:
            planned = (planned or 0) + int(plan)
            if verdict == "skip":
                report.add("all", "skip", skip)
        elif indent:
            suite.append(case)
        else:
            reported += 1
            for part, *rest in suite:
                report.add(f"{case[0]}.{part}", *rest)
            # debugfs says "ok" of a suite that never ran.
            if wanted is not None and not len(suite) == wanted > 0:
                report.wrong = f"{case[0]}: {len(suite)} of its {wanted} " \
                    "cases reported"
            if wanted is None or verdict not in (
                    "pass", *(one for _, one, _ in suite)):
                report.add(*case)
            suite, wanted = [], None
    if planned is None:
        report.wrong = "it printed no plan"
    elif reported != planned:
        report.wrong = f"{reported} of its {planned} cases reported"
    elif not report.cases:
        report.wrong = report.wrong or "it has no case"
    return report


def verdict(run: Run) -> tuple[str, str]:
    """Say what a test came to: "pass", "fail" or "skip", and more words.  One
    of which no case passed is no pass."""
    report = parse(run.output)
    failed, passed = report.those("fail"), report.those("pass")
    words = (f"{len(passed)} passed, {len(failed)} failed, "
             f"{len(report.those('skip'))} skipped")
    if run.status is None:
        return "fail", "it did not end" if run.output else "it did not run"
    if run.status == 4 and not report.cases:
        return "skip", "it skipped itself"
    if report.wrong or failed or run.status not in (0, 4):
        why = report.wrong or ", ".join([words, *failed])
        return "fail", f"exit status {run.status}, {why}"
    return ("pass" if passed else "skip"), words


def is_worse(before: str | None, after: str | None) -> bool:
    """Tell whether the series does worse than the base, by two verdicts.  A
    test that the base does not have may skip itself, but not fail."""
    rank = {None: -1, "fail": 0, "skip": 1, "pass": 2}
    return rank[after] < rank[before or "skip"]


def runner(text: str) -> dict[str, str]:
    """Read what run_kselftest.sh says of programs: {name: verdict}.  One that
    skips all its cases, which may be "ok" to the runner, is a skip here."""
    # What a program prints has a '# ' before each line, and may end in the
    # middle of one.
    parts = re.split(r"(not ok|ok) \d+ selftests: \S+: (\S+)(.*)", text)
    found = {}
    for said, word, name, rest in zip(*[iter(parts)] * 4):
        cases = parse(re.sub("^# ", "", said, flags=re.M)).cases
        found[name] = "fail" if word != "ok" else "skip" if \
            "# SKIP" in rest or {*cases.values()} == {"skip"} else "pass"
    return found


def split(text: str, names: Iterable[str] = ()) -> dict[str, Run]:
    """Return what each program printed between its marks, in order; names:
    those that shall be there, with nothing when they did not run."""
    found = dict.fromkeys(names, Run("", None, None))
    for part in re.split(r"^@@ begin ", text, flags=re.M)[1:]:
        name, _, body = part.partition("\n")
        end = re.search(rf"^@@ end {re.escape(name)} (-?\d+) (\d+)$", body,
                        re.M)
        found[name] = Run(body[:end.start()], int(end[1]), int(end[2])) \
            if end else Run(body, None, None)
    return found


def script(commands: Mapping[str, str], wrap: str = "") -> str:
    """Return a shell command that runs commands, by name, with marks around
    each; wrap: what runs them, such as 'nice'."""
    # One that ends in mid-line must not hide its mark.
    return "".join(
        f"echo; echo '@@ begin {name}'; t=$(date +%s); {wrap} {command}; "
        f"s=$?; echo; echo \"@@ end {name} $s $(($(date +%s) - t))\"; "
        for name, command in commands.items()) + "true"
