# SPDX-License-Identifier: GPL-2.0-only
"""Write the mails of the series, as a b4 branch of your own clone.

KSRC= is your clone of the kernel.  The series, or a set of it, becomes the
branch b4/NAME there, authored and signed off by you.  The mails go to
build/submit/.  Nothing is sent, and nothing else changes in the clone.
"""

import argparse
import email
import email.policy
import email.utils
import os
import re
import shlex
import shutil
import sys
from email.message import EmailMessage
from pathlib import Path

from tools.core import (BUILD, GIT_IDENTITY, LOGS, ROOT, Fail, build_lock,
                        git, read_json, run_git, run_logged, run_main, say,
                        scratch, shown_path, stage, write_json)
from tools.records import open_gates
from tools.series.apply import (PATCHES, series_patches, touched_files,
                                why_not)
from tools.series.base import accept, kernel_version
from tools.series.checkpatch import PARTS, checkpatch

PLACE = BUILD / "submit"
MADE = PLACE / "made.json"  # the tips of the branches that were made here
LETTERS = ROOT / "submit"
LKML = "linux-kernel@vger.kernel.org"
STABLE = "stable@vger.kernel.org"
# Of each set: the branch below b4/, and the cover letter.
SETS = {"all": ("ioports-yield", "cover-letter.txt"),
        "fixes": ("ioports-fixes", "cover-letter-fixes.txt"),
        "x86": ("ioports", "cover-letter-x86.txt"),
        "sched": ("yield", "cover-letter-sched.txt")}

Person = tuple[str, str]  # name and address


def check_person(person: Person) -> None:
    """Raise Fail when the person cannot sign a patch off."""
    part = r'[^\s@<>",;:()\[\]\\]+'
    if not re.fullmatch(r'[^\s<>"\\]+( [^\s<>"\\]+)*', person[0]) or \
            not re.fullmatch(rf"{part}@{part}\.\w+", person[1], re.A):
        raise Fail("give NAME='Your Name' and EMAIL=you@example.org: they "
                   "become the author and the Signed-off-by of every patch, "
                   "and '%s <%s>' cannot" % person)


def check_clone(ksrc: str, onto: str, branch: str) -> tuple[Path, str]:
    """Return the clone's top and the base commit; Fail if it or its branch,
    which must be as it was made here, does not fit."""
    if not ksrc:
        raise Fail("give KSRC=path, your own git clone of the kernel: the "
                   "series becomes a branch in it")
    top = Path(os.path.expanduser(ksrc)).resolve()
    version = kernel_version(top, f"KSRC={ksrc}", onto)
    if not (top / ".git").exists():
        raise Fail(f"KSRC={ksrc} is not a git clone: clone the kernel with "
                   "git, the series is sent from there")
    if top.stat().st_uid != os.geteuid():
        raise Fail(f"KSRC={ksrc} belongs to another user: run this as the "
                   "user who works in it")
    accept(version)
    # Without refreshing the index of a clone that is not ours.
    if git("--no-optional-locks", "status", "--porcelain", "-uno",
           cwd=top).strip():
        raise Fail(f"KSRC={ksrc} has uncommitted changes: commit or stash "
                   "them first")
    tip, _, user = git(
        "for-each-ref", "--format=%(objectname) %(worktreepath)",
        f"refs/heads/{branch}", cwd=top).strip().partition(" ")
    if user:
        raise Fail(f"{branch} is checked out in {user}: switch to another "
                   "branch, then it can be replaced")
    if tip and tip not in read_json(MADE, []):
        raise Fail(f"your clone has a branch {branch} that is not as this "
                   f"program made it: rename it (git branch -m {branch} "
                   f"{branch}-old), remove it, or give another BRANCH=")
    return top, git("rev-parse", f"{onto}^{{commit}}", cwd=top).strip()


def chosen(kind: str) -> list[str]:
    """Return the names of the patches of a set."""
    def fits(name: str) -> bool:
        text = (PATCHES / name).read_text(errors="surrogateescape")
        sched = re.search(r"^Subject: .*\] (selftests/)?sched", text, re.M)
        fix = re.search(r"^Fixes: [0-9a-f]{12} ", text, re.M) and \
            not re.search(r"^Subject: .*\] selftests", text, re.M)
        return {"all": True, "fixes": fix, "x86": not sched,
                "sched": sched}[kind]

    names = list(filter(fits, series_patches()))
    if not names:
        raise Fail(f"the series has no patch of SET={kind}")
    return names


def check_letter(letter: Path) -> None:
    """Raise Fail when a cover letter has a gap, or a line that b4 drops as a
    comment or moves to the end as a trailer."""
    body = letter.read_text().partition("\n")[2]  # below the subject
    wrong = re.search(r"^(@\w+@$|#|[\w-]+: ).*", body, re.M)
    if wrong:
        raise Fail(f"{shown_path(letter)} has the line '{wrong[0]}': fill it "
                   "in, and let none begin with '#' or with a word and a "
                   "colon, which b4 would move")


def authored(text: str, person: Person) -> str:
    """Return a patch with another author, who signs it off where the tip
    tree has it (maintainer-tip.rst): between Assisted-by and Cc."""
    author = email.utils.formataddr(person, "utf-8")
    message, cut, diff = text.partition("\n---\n")
    message, authors = re.subn(r"^From: .*(?:\n[ \t].*)*",
                               lambda _: f"From: {author}", message,
                               count=1, flags=re.M)
    message, tags = re.subn(
        r"^Assisted-by: .*$", lambda tag: tag[0] + "\nSigned-off-by: "
        "%s <%s>" % person, message, flags=re.M)
    if (authors, tags) != (1, 1):
        raise Fail("a patch needs one From: header and one Assisted-by: tag")
    return message + cut + diff


def b4(tree: Path, *args: str) -> str:
    """Run b4 in a git tree without a network; return what it said."""
    env = os.environ | GIT_IDENTITY | {"PYTHONPATH": str(ROOT)}
    # The tree's own configuration names the person.
    del env["GIT_COMMITTER_NAME"], env["GIT_COMMITTER_EMAIL"]
    for kind in ("CACHE", "DATA", "CONFIG"):
        # b4 keeps caches; not in the user's home.
        env[f"XDG_{kind}_HOME"] = f"{tree}-home"
    log = LOGS / f"submit-b4-{args[0]}.log"
    run_logged([sys.executable, "-m", "b4.command", "--no-interactive",
                "--offline-mode", *args], log, cwd=tree, timeout=900, env=env,
               what=f"b4 {args[0]}")
    return re.sub(r"\x1b\[[\d;]*m", "", log.read_text(errors="replace"))


def make_tree(tree: Path, top: Path, base: str, names: list[str],
              config: dict[str, str]) -> None:
    """Make a git tree, which borrows the objects of the user's clone, with
    what the patches and their checks need of the base."""
    git("init", "-q", "-b", "base", tree)
    for key, value in config.items():
        git("config", key, value, cwd=tree)
    objects, shallow = git(
        "rev-parse", "--path-format=absolute", "--git-path", "objects",
        "--git-path", "shallow", cwd=top).splitlines()
    (tree / ".git/objects/info/alternates").write_text(objects + "\n")
    if Path(shallow).exists():
        shutil.copy(shallow, tree / ".git")
    git("sparse-checkout", "set", "--no-cone", "--stdin", cwd=tree,
        data="".join(f"/{path}\n" for path in (
            *PARTS, ".get_maintainer.ignore", ".mailmap",
            *touched_files(names))))
    git("reset", "-q", "--hard", base, cwd=tree)


def make_branch(tree: Path, branch: str, names: list[str],
                person: Person) -> None:
    """Make the b4 branch; b4 finds the recipients and checks the patches."""
    b4(tree, "prep", "-n", branch.removeprefix("b4/"), "--edit-cover")
    for name in names:
        text = (PATCHES / name).read_text(errors="surrogateescape")
        done = run_git(
            "am", "-q", "--no-3way", "--keep-cr", cwd=tree,
            data=authored(text, person).encode(errors="surrogateescape"),
            env=dict(zip(("GIT_COMMITTER_NAME", "GIT_COMMITTER_EMAIL"),
                         person)))
        if done.returncode:
            words = (done.stderr + done.stdout).decode(errors="replace")
            raise Fail(f"patches/{name} does not apply: {why_not(words)}; "
                       "'make rebase' shows all that does not fit")
    said = b4(tree, "prep", "--auto-to-cc", "--check")
    if f"Success: {len(names)}, Warning: 0, Error: 0" not in said:
        raise Fail("b4 prep --check has findings:"
                   + said.rpartition("--checkpatch")[2])
    failing = re.findall(r"^(needs-\S+|misplaced-body): True$",
                         b4(tree, "prep", "--show-info"), re.M)
    if failing:
        raise Fail(f"b4 would not send it: {', '.join(failing)}")


def check_mail(mail: EmailMessage, person: Person, is_patch: bool) -> None:
    """Raise Fail unless a mail is what a list expects."""
    sender = mail["From"].addresses[0]
    people = f"{mail['To']}, {mail['Cc']}"
    text = mail.get_content().partition("\n---\n")[0]
    tags = re.findall(r"^((?:Signed-off|Co-developed|Reviewed|Acked|Tested)"
                      r"-by: .*)$", text, re.M)
    for wrong, why in (
            ((sender.display_name, sender.addr_spec) != person,
             f"comes from {sender}"),
            (LKML not in people, f"does not go to {LKML}"),
            (STABLE in people, f"goes to {STABLE}, which has a Cc: tag for "
             "the patch and no mail"),
            (is_patch and tags != ["Signed-off-by: %s <%s>" % person],
             f"has the tags {tags}: one Signed-off-by is wanted, the others "
             "are for people to give")):
        if wrong:
            raise Fail(f"'{mail['Subject']}' {why}")


def passed_gates(wish: str) -> str:
    """Say whether these patches passed the gates; Fail when they have to."""
    left = " ".join(open_gates())
    if left and wish != "no":
        raise Fail("these patches have not passed all gates: run 'make gates "
                   f"ONLY=\"{left}\"', or give GATES=no")
    return f"not passed on these patches: {left}" if left else "all passed"


def write_mails(tree: Path, place: Path, person: Person) -> None:
    """Let b4 write the mails, and check that they are what the branch is."""
    b4(tree, "send", "-o", str(place), "--no-sign", "--force-cover-letter")
    paths = sorted(place.glob("*.eml"))
    for number, path in enumerate(paths):
        check_mail(email.message_from_bytes(
            path.read_bytes(), policy=email.policy.default), person,
            is_patch=number > 0)
    want = git("rev-parse", "HEAD^{tree}", cwd=tree)
    git("checkout", "-q", "--detach", "base", cwd=tree)
    git("am", "-q", "--no-3way", "--keep-cr", *paths[1:], cwd=tree)
    if git("rev-parse", "HEAD^{tree}", cwd=tree) != want:
        raise Fail("the mails do not give what the branch has")


def prepare(options: argparse.Namespace, person: Person) -> None:
    """Do it all, from the checks to the branch and the mails."""
    name, letter = SETS[options.set]
    branch = f"b4/{options.branch or name}"
    cover, place = LETTERS / letter, PLACE / options.set
    top, base = check_clone(options.ksrc, options.onto, branch)
    names = chosen(options.set)
    check_letter(cover)
    gates = passed_gates(options.gates)
    with scratch("submit") as temp:
        tree, mails = temp / "tree", temp / "mails"
        with stage(f"making {branch} of {len(names)} patches"):
            make_tree(tree, top, base, names, {
                "user.name": person[0], "user.email": person[1],
                "core.editor": shlex.join(["cp", str(cover)]),
                # maintainer-tip.rst: the tag, but not the mail.
                "b4.email-exclude": STABLE,
                "b4.prep-perpatch-check-cmd": shlex.join(
                    [sys.executable, "-m", "tools.submit", "--checkpatch"]),
                # b4 wants a way to send, even to write files.
                "sendemail.smtpServer": "/bin/false"})
            make_branch(tree, branch, names, person)
        with stage("writing the mails"):
            write_mails(tree, mails, person)
        guide = (LETTERS / "review.txt").read_text()
        (mails / "REVIEW.txt").write_text(guide.format(
            branch=branch, gates=gates, stable=STABLE, address=person[1]))
        tip = git("rev-parse", f"refs/heads/{branch}", cwd=tree).strip()
        # Before the branch is there, so that it is always known as ours.
        write_json(MADE, [*read_json(MADE, []), tip])
        git("fetch", "-q", "--no-tags", "--no-write-fetch-head",
            "--update-shallow", tree,
            f"+refs/heads/{branch}:refs/heads/{branch}", cwd=top)
        shutil.rmtree(place, ignore_errors=True)
        mails.rename(place)
    say(f"{branch} of your clone has the {len(names)} patches")
    say(f"nothing was sent: read {shown_path(place / 'REVIEW.txt')}")


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__.split("\n\n")[0],
        epilog="What is not given is taken from the variable of that name, "
               "as in 'make submit KSRC=... NAME=... EMAIL=...'.")
    for name, default, text in (
            ("ksrc", "", "your git clone of the kernel"),
            ("name", "", "your name"), ("email", "", "your address"),
            ("set", "all", "which patches: " + ", ".join(SETS)),
            ("onto", "HEAD", "the commit of the clone to put them on"),
            ("branch", "", "call the branch b4/BRANCH"),
            ("gates", "all", "no: 'make gates' need not have passed")):
        parser.add_argument(f"--{name}", help=text, default=os.environ.get(
            name.upper()) or default)
    parser.add_argument("--checkpatch", action="store_true",
                        help="only check the patch on stdin; b4 runs this")
    options = parser.parse_args()
    if options.checkpatch:
        return checkpatch(sys.stdin.read(), Path.cwd())
    check_person((options.name, options.email))
    for name, value, known in (("SET", options.set, SETS),
                               ("GATES", options.gates, ("all", "no"))):
        if value not in known:
            raise Fail(f"{name}={value}: there are {', '.join(known)}")
    if not re.fullmatch(r"([a-z0-9][a-z0-9-]*)?", options.branch):
        raise Fail(f"BRANCH={options.branch}: use a-z, 0-9 and '-'")
    with build_lock():
        prepare(options, (options.name, options.email))


if __name__ == "__main__":
    run_main(main)
