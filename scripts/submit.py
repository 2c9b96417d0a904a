#!/usr/bin/env python3
# SPDX-License-Identifier: GPL-2.0-only
"""Prepare the series for sending, in the user's own clone.  Never sends.

KSRC= is a git clone of the kernel that you work in.  The series, or one of
its sets (the fixes alone, or one for each maintainer), becomes a b4 branch
there (b4/NAME), authored and signed off by the identity that you give, with
a cover letter and with To and Cc from get_maintainer.pl.  The mails are
written to build/submit/ for review.

What 'make check' runs and has not passed yet on these very patches is run
first, which takes up to an hour; GATES=all runs 'make check-all', hours, and
GATES=no neither.  Your checkout, index and configuration stay as they are;
the branch is the only thing that is added, at the very end.
"""

import argparse
import contextlib
import email
import email.header
import email.policy
import email.utils
import json
import os
import re
import shlex
import shutil
import subprocess
import sys
import tempfile
from pathlib import Path

from apply import touched_files, why_not
from base import accept, version_of
from check import (USUAL, check_names, check_tags, codespell_dictionary,
                   run_checkpatch)
from common import (BUILD, GIT_IDENTITY, LOGS, PATCHES, ROOT, Fail,
                    build_lock, gated, git, run_git, run_logged, run_main, say,
                    series_patches, shown_path, stage, write_atomically)
from export import FIXES, heading
from gates import ALL_GATES

PLACE = BUILD / "submit"
# Of each set: the branch, the cover letter, what it is.
SETS = {
    "all": ("ioports-yield", "cover-letter.txt", "the whole series"),
    "fixes": ("ioports-fixes", "cover-letter-fixes.txt",
              "the fixes of x86 alone"),
    "x86": ("ioports", "cover-letter-x86.txt",
            "I/O ports, with the fixes, for the x86 maintainers"),
    "sched": ("yield", "cover-letter-sched.txt",
              "sched_yield(), for the scheduler's"),
}
# A patch is of the scheduler when all that it touches is below these.
SCHED = ("kernel/sched/", "tools/testing/selftests/sched/",
         "Documentation/scheduler/")
# What get_maintainer.pl and checkpatch.pl need besides the touched files;
# both want to see the top of a kernel tree.
TOP_FILES = ("/scripts/", "/MAINTAINERS", "/COPYING", "/CREDITS", "/Kbuild",
             "/Kconfig", "/README", "/Makefile", "/.get_maintainer.ignore",
             "/.mailmap", "/arch/x86/Makefile", "/init/Kconfig",
             "/ipc/util.h", "/lib/Kconfig", "/drivers/Kconfig",
             "/fs/Kconfig", "/include/Kbuild", "/include/linux/",
             "/kernel/sched/sched.h", "/Documentation/Makefile",
             "/Documentation/dev-tools/", "/Documentation/process/",
             "/Documentation/devicetree/bindings/vendor-prefixes.yaml")
UNFINISHED = ("rebase-merge", "rebase-apply", "MERGE_HEAD",
              "CHERRY_PICK_HEAD", "REVERT_HEAD", "BISECT_LOG")
# What GATES= asks for: groups of scripts/check.py and scripts/gates.py, whose
# matrix is the wider one.
GATE_SETS = {
    "check": (("check", USUAL),),
    "all": (("check", (*(name for name in USUAL if name != "matrix"),
                       "debug")),
            ("gates", ALL_GATES)),
    "no": (),
}
TARGETS = {"check": "make check", "all": "make check-all"}
STABLE = "stable@vger.kernel.org"
# Of the branches in a user's clone, those that this program made.
MADE = PLACE / "made.json"


def check_identity(name, address):
    """Raise Fail unless name and address (str) can sign a patch off."""
    if not name or not address:
        raise Fail("whose patches are these? give NAME='Your Name' and "
                   "EMAIL=you@example.org: they become the author and the "
                   "Signed-off-by of every patch")
    if re.search(r"[<>\"\n\\]", name) or name != name.strip():
        raise Fail(f"NAME={name!r} cannot stand before an address")
    if not re.fullmatch(r"[^\s@<>\",;:()\[\]]+@[^\s@<>\",;:()\[\]]+\.\w+",
                        address, re.A):
        raise Fail(f"EMAIL={address} is not an address")


def check_clone(ksrc, revision, force):
    """Check the user's clone; returns (top, base): Path, commit (str).

    Raises Fail when it is no clone of a kernel of the right version, holds
    uncommitted changes, is in the middle of something or is somebody
    else's.
    """
    if not ksrc:
        raise Fail("give KSRC=path, your own git clone of the kernel: the "
                   "series becomes a branch in it")
    top = Path(os.path.expanduser(ksrc)).resolve()
    if not top.is_dir():
        raise Fail(f"KSRC={ksrc} is not a folder")
    inside = run_git("rev-parse", "--show-toplevel", cwd=top)
    if inside.returncode or Path(os.fsdecode(
            inside.stdout.rstrip(b"\n"))).resolve() != top:
        raise Fail(f"KSRC={ksrc} is not the top of a git clone: clone the "
                   "kernel with git, the series is sent from there")
    if top.stat().st_uid != os.geteuid():
        raise Fail(f"KSRC={ksrc} belongs to another user: run this as the "
                   "user who works in it")
    for name in UNFINISHED:
        path = git("rev-parse", "--git-path", name, cwd=top).strip()
        if (top / path).exists():
            raise Fail(f"KSRC={ksrc} is in the middle of something "
                       f"({name}): finish it or give it up first")
    # Without refreshing the index of a clone that is not ours.
    if git("--no-optional-locks", "status", "--porcelain", "-uno",
           cwd=top).strip():
        raise Fail(f"KSRC={ksrc} has uncommitted changes: commit or stash "
                   "them first")
    base = git("rev-parse", "-q", "--verify", f"{revision}^{{commit}}",
               cwd=top, check=False).strip()
    if not base:
        raise Fail(f"KSRC={ksrc} has no commit {revision}")
    try:
        version = version_of(git("show", f"{base}:Makefile", cwd=top,
                                 check=False))
    except Fail:
        raise Fail(f"{revision} of KSRC={ksrc} is not a Linux tree: it has "
                   "no kernel Makefile") from None
    try:
        accept(version, force)
    except Fail as failure:
        raise Fail(f"{failure}; ONTO=commit names another commit of the "
                   "clone, 'make rebase' tells what does not fit") from None
    return top, base


def check_branch(top, branch):
    """Return whether a branch is in the clone and may be replaced.

    Only what an earlier run made, and nobody changed or checked out, is.
    """
    tip = git("rev-parse", "-q", "--verify", f"refs/heads/{branch}",
              cwd=top, check=False).strip()
    if not tip:
        return False
    made = json.loads(MADE.read_text()) if MADE.exists() else []
    if tip not in made:
        raise Fail(f"your clone has a branch {branch} that is not as this "
                   f"program made it: rename it (git branch -m {branch} "
                   f"{branch}-old), remove it, or give another BRANCH=")
    for row in git("worktree", "list", "--porcelain", cwd=top).splitlines():
        if row == f"branch refs/heads/{branch}":
            raise Fail(f"{branch} is checked out in your clone: switch to "
                       "another branch, then it can be replaced")
    return True


def chosen(kind):
    """Return the names (list of str) of the patches of a set (str)."""
    names = []
    for name in series_patches():
        paths = touched_files([name])
        sched = all(path.startswith(SCHED) for path in paths)
        tests = all(path.startswith("tools/testing/") for path in paths)
        text = (PATCHES / name).read_text(errors="surrogateescape")
        if kind == "all" or kind == "sched" and sched \
                or kind == "x86" and not sched \
                or kind == "fixes" and not tests and heading(text) == FIXES:
            names.append(name)
    if not names:
        raise Fail("there is no such patch in the series")
    return names


def authored(text, name, address):
    """Return a patch mail (str) of another author, who signs it off.

    The Signed-off-by goes behind Assisted-by and before Cc, which is the
    order of the tip tree (maintainer-tip.rst).  Raises Fail when there is no
    From: header or no Assisted-by.
    """
    author = email.utils.formataddr((name, address), "utf-8")
    text, count = re.subn(r"^From: .*\n(?:[ \t].*\n)*",
                          lambda _: f"From: {author}\n", text, count=1,
                          flags=re.M)
    if not count:
        raise Fail("a patch has no From: header")
    message, cut, diff = text.partition("\n---\n")
    before, assisted, after = message.rpartition("\nAssisted-by: ")
    if not assisted:
        raise Fail("a patch has no Assisted-by: tag")
    rest, line, more = after.partition("\n")
    return (f"{before}{assisted}{rest}\nSigned-off-by: {name} <{address}>"
            f"{line}{more}{cut}{diff}")


def borrow_objects(tree, lenders):
    """Make an empty git repository that sees the objects of others.

    tree: Path of the new one.  lenders: list of Path, which are only read.
    """
    git("init", "-q", "-b", "base", tree)
    rows = []
    for lender in lenders:
        rows.append(git("rev-parse", "--path-format=absolute", "--git-path",
                        "objects", cwd=lender))
        shallow = Path(git("rev-parse", "--path-format=absolute",
                           "--git-path", "shallow", cwd=lender).strip())
        if shallow.exists():
            with open(tree / ".git/shallow", "a") as out:
                out.write(shallow.read_text())
    (tree / ".git/objects/info/alternates").write_text("".join(rows))


class Workshop:
    """A small git tree beside the user's clone, on the same objects."""

    def __init__(self, place, top, base, identity):
        self.tree = place / "tree"
        self.top = top
        self.base = base
        self.name, self.address = identity
        keys = {"user.name": self.name, "user.email": self.address,
                "commit.gpgSign": "false", "b4.send-no-patatt-sign": "yes",
                # maintainer-tip.rst: the tag, but not the mail.
                "b4.email-exclude": STABLE,
                # Nothing here sends, and if it did, it could not.
                "sendemail.smtpServer": "/bin/false",
                "b4.send-endpoint-web": "none"}
        self.env = {"GIT_AUTHOR_NAME": self.name,
                    "GIT_AUTHOR_EMAIL": self.address,
                    "GIT_COMMITTER_NAME": self.name,
                    "GIT_COMMITTER_EMAIL": self.address,
                    "GIT_CONFIG_COUNT": str(len(keys)),
                    # b4 keeps caches; not in the user's home.
                    **{f"XDG_{kind}_HOME": str(place / "home")
                       for kind in ("CACHE", "DATA", "CONFIG")}}
        for number, (key, value) in enumerate(keys.items()):
            self.env[f"GIT_CONFIG_KEY_{number}"] = key
            self.env[f"GIT_CONFIG_VALUE_{number}"] = value

    def git(self, *args, **more):
        """Run git in the tree as the user."""
        return git(*args, cwd=self.tree, env=self.env, **more)

    def create(self, names):
        """Check out what is needed of the base; names: the patches."""
        borrow_objects(self.tree, [self.top])
        self.git("update-ref", "refs/heads/base", self.base)
        patterns = [*TOP_FILES, *("/" + path for path in
                                  touched_files(names))]
        self.git("sparse-checkout", "set", "--no-cone", "--stdin",
                 data="\n".join(patterns) + "\n")
        self.git("checkout", "-q", "-f", "base")
        for name in ("scripts/get_maintainer.pl", "scripts/checkpatch.pl"):
            if not os.access(self.tree / name, os.X_OK):
                raise Fail(f"the base has no {name}")

    def b4(self, *args, **env):
        """Run b4 in the tree; raises Fail with its words."""
        program = Path(sys.prefix) / "bin/b4"
        if not program.exists():
            raise Fail("b4 is not in build/venv: run 'make deps'")
        environment = os.environ | GIT_IDENTITY | self.env | env
        run_logged([str(program), "--no-interactive", "--offline-mode",
                    *args],
                   LOGS / f"submit-b4-{args[0]}.log", cwd=self.tree,
                   env=environment, timeout=900, what=f"b4 {args[0]}")

    def import_series(self, branch, names, cover):
        """Make the b4 branch of the named patches and of a cover (Path)."""
        self.b4("prep", "-n", branch.removeprefix("b4/"))
        if self.git("branch", "--show-current").strip() != branch:
            raise Fail(f"b4 made {self.git('branch', '--show-current')}"
                       f"and not {branch}: give a BRANCH= in lower case")
        for name in names:
            text = (PATCHES / name).read_text(errors="surrogateescape")
            mail = self.tree.parent / "mail"
            mail.write_text(authored(text, self.name, self.address),
                            errors="surrogateescape")
            done = run_git("am", "-q", "--no-3way", "--keep-cr", mail,
                           cwd=self.tree, env=self.env)
            if done.returncode:
                words = (done.stderr + done.stdout).decode(errors="replace")
                raise Fail(why_not(words, name) + "; 'make rebase' shows "
                           "all that does not fit")
        editor = shlex.join(["cp", str(cover)])
        self.b4("prep", "--edit-cover", GIT_EDITOR=editor)
        self.b4("prep", "--auto-to-cc")

    def commits(self):
        """Return the patches' commits (list of str), oldest first."""
        rows = self.git("log", "--reverse", "--format=%H",
                        f"{self.base}..HEAD").split()
        # The first one is empty and holds the cover letter.
        return rows[1:]


def checkpatch_signed(work, commit):
    """checkpatch --strict --codespell on a commit that is signed off."""
    run_checkpatch(work.git("format-patch", "-1", "--stdout",
                            "--no-signature", commit),
                   work.tree, codespell_dictionary())


def header(mail, name):
    """Return a header of a mail as one decoded line (str)."""
    text = str(email.header.make_header(email.header.decode_header(
        mail[name] or "")))
    return " ".join(text.split())


def check_mails(mails, identity, patches):
    """The mails are what a list expects.

    mails: list of email.message.Message, cover first.  Raises Fail.
    """
    name, address = identity
    want = len(patches)
    if len(mails) != want + 1:
        raise Fail(f"{len(mails)} mails were written for {want} patches and "
                   "a cover letter")
    first = header(mails[0], "Message-ID")
    for number, mail in enumerate(mails):
        subject = header(mail, "Subject")
        # b4 does not count a single patch and its cover letter.
        counted = rf" 0*{number}/{want}" if want > 1 else ""
        wanted = rf"\[PATCH[^]]*{counted}\] \S"
        if not re.match(wanted, subject):
            raise Fail(f"mail {number} has the subject '{subject}'")
        if email.utils.parseaddr(header(mail, "From")) != (name, address):
            raise Fail(f"'{subject}' comes from {header(mail, 'From')}")
        if not header(mail, "To"):
            raise Fail(f"'{subject}' has no To:")
        if "linux-kernel@vger.kernel.org" not in \
                header(mail, "To") + header(mail, "Cc"):
            raise Fail(f"'{subject}' does not go to the kernel's list")
        if STABLE in header(mail, "To") + header(mail, "Cc"):
            raise Fail(f"'{subject}' goes to {STABLE}, which has a Cc: tag "
                       "for the patch and no mail")
        if number and header(mail, "In-Reply-To") != first:
            raise Fail(f"'{subject}' does not answer the cover letter")
        body = mail.get_payload(decode=True).decode(errors="replace")
        gap = re.search(r"EDITME|^@\w+@$", body.split("\ndiff --git ")[0],
                        re.M)
        if gap:
            raise Fail(f"'{subject}' has a place that was not filled in: "
                       f"{gap.group(0)}")
        if not number:
            continue
        signed = re.findall(r"^Signed-off-by: (.*)$",
                            body.split("\n---\n")[0], re.M)
        if signed != [f"{name} <{address}>"]:
            raise Fail(f"'{subject}' is signed off by {signed or 'nobody'}")


def check_cover(mail, text):
    """The mail (Message) says what the cover letter (str) says, in its order.

    b4 takes a line that begins like `Word: ` for a trailer and moves it to
    the end; git takes one with '#' for a comment.  Raises Fail with the
    first words that are not where they were.
    """
    body = " ".join(mail.get_payload(decode=True)
                    .decode(errors="replace").split())
    # The first line is the subject.
    wanted = " ".join(text.partition("\n")[2].split())
    if body.startswith(wanted):
        return
    same = os.path.commonprefix([body, wanted])
    raise Fail("b4 wrote another cover letter than it was given, from here: "
               f"'{wanted[len(same):len(same) + 60]}'; does a line begin with "
               "'#', or with a word and a colon?")


def check_applies(work, apply):
    """What apply() does to the base gives the branch's files again."""
    want = work.git("rev-parse", "HEAD^{tree}")
    work.git("checkout", "-q", "--detach", work.base)
    try:
        apply()
        if work.git("rev-parse", "HEAD^{tree}") != want:
            raise Fail("the mails do not give what the branch has")
    finally:
        work.git("am", "--abort", check=False)
        work.git("checkout", "-q", "-f", "-")


def write_mailbox(place):
    """Join the *.eml files of a folder to series.mbox; returns its Path."""
    box = place / "series.mbox"
    with open(box, "wb") as out:
        for path in sorted(place.glob("*.eml")):
            text = path.read_bytes().replace(b"\r\n", b"\n")
            text = re.sub(rb"^(>*From )", rb">\1", text, flags=re.M)
            out.write(b"From mboxrd@z Thu Jan  1 00:00:00 1970\n" + text
                      + (b"\n" if text.endswith(b"\n") else b"\n\n"))
    return box


def owed(wish):
    """Return {"check" or "gates": [group, ...]} that GATES=wish asks for and
    that these patches have not passed."""
    known = set(gated())
    if "gates: matrix" in known:
        known.add("check: matrix")
    return {job: rest for job, groups in GATE_SETS[wish]
            if (rest := [name for name in groups
                         if f"{job}: {name}" not in known])}


def pass_gates(wish):
    """Run what GATES=wish asks for and has not been passed.

    Returns what to say of it (list of str).  Raises Fail when one fails.
    """
    rest = owed(wish)
    for job, groups in rest.items():
        say(f"==> not passed yet on these patches, so it runs now (GATES=no "
            f"leaves it out): {', '.join(groups)}")
        subprocess.run([ROOT / "scripts/deps", "--with", "gates"],
                       check=False)
        subprocess.run([sys.executable, ROOT / f"scripts/{job}.py",
                        *(word for name in groups
                          for word in ("--only", name))], check=False)
        left = owed(wish).get(job)
        if left:
            raise Fail(f"these do not pass: {', '.join(left)}; mend that "
                       "first, see above. Nothing was made")
    known = gated()
    rows = [known.get(f"{job}: {name}") or known[f"gates: {name}"]
            for job, groups in GATE_SETS[wish] for name in groups]
    if not rows:
        return []
    return [f"{TARGETS[wish]}, on these patches: "
            f"{sum(row['passed'] for row in rows)} passed, 0 failed, "
            f"{sum(row['skipped'] for row in rows)} skipped "
            f"({max(row['date'] for row in rows)})"]


def write_guide(place, branch, kind, recipients, gates, wish):
    """Write REVIEW.txt: what was done, what a person still has to do."""
    people = "\n".join(f"  {row}" for row in recipients)
    checked = "\n".join(f"  {row}" for row in gates)
    unchecked = {"all": "", "check": "Not asked for here: 'make check-all'.\n",
                 "no": """\
Not checked here: whether it builds, boots and passes its tests.  That is
'make check' in this repository, and 'make check-all'.
"""}[wish]
    extra = {"fixes": """\
The first three let a task use, or a handler permit, I/O ports which the task
was not given.  Read submit/SECURITY-FIX.md before you send them anywhere.
""", "sched": """\
These patches need none of the others.
"""}.get(kind, """\
The first patches are fixes that should be sent, and taken, before the rest:
read submit/SECURITY-FIX.md.  ioperm_drop_race is a reproducer: send it only
when the fix is public.
""")
    write_atomically(place / "REVIEW.txt", f"""\
Nothing was sent.  What is in this folder:

  *.eml         the mails as b4 would send them, cover letter first
  series.mbox   the same in one file, for 'b4 am -m' and 'b4 shazam -m'

The branch {branch} in your clone has the same patches and the cover letter.

{extra}
Your Signed-off-by is in every patch.  It says that you have read the patch
and can certify the Developer's Certificate of Origin
(Documentation/process/submitting-patches.rst).  If that is not so yet, do
not send.

Checked:
{checked}
{unchecked}
To and Cc of the series:
{people}

To go on:
  1. Read the mails.
  2. git checkout {branch}; change what has to be changed with git rebase -i,
     the cover letter with 'b4 prep --edit-cover'.
  3. git config b4.email-exclude {STABLE}: maintainer-tip.rst asks
     for the tag Cc: stable, but for no mail to that list.
  4. b4 send --reflect sends it to yourself, b4 send to the others.  Both ask
     before they send.
""")


def prepare(options, identity, place, passed):
    """Do it all below place (Path).

    passed: what pass_gates() said.  Returns (branch, [patch, ...],
    [recipient, ...]), all str.
    """
    name, cover, _ = SETS[options.set]
    branch = f"b4/{options.branch or name}"
    cover = ROOT / "submit" / cover
    if not cover.exists():
        raise Fail(f"there is no {shown_path(cover)}")
    top, base = check_clone(options.ksrc, options.base, options.force)
    replace = check_branch(top, branch)
    names = chosen(options.set)
    gates = list(passed)

    def gate(title, function, *arguments):
        function(*arguments)
        gates.append(title)
        say(f"    ok    {title}")

    with stage("gates on the patch files"):
        gate("names and numbers of the series", check_names)
        for patch in names:
            check_tags(patch)
        gate(f"tags of {len(names)} patches", lambda: None)

    with tempfile.TemporaryDirectory(prefix="submit-", dir=BUILD) as temp:
        work = Workshop(Path(temp), top, base, identity)
        with stage(f"making {branch} of {len(names)} patches"):
            work.create(names)
            work.import_series(branch, names, cover)
        with stage("gates on the branch"):
            commits = work.commits()
            if len(commits) != len(names):
                raise Fail(f"{len(commits)} commits came out of "
                           f"{len(names)} patches")
            for commit in commits:
                checkpatch_signed(work, commit)
            gate(f"checkpatch --strict --codespell on {len(commits)} signed "
                 "commits", lambda: None)
        partial = Path(temp) / "mails"
        with stage("writing the mails"):
            work.b4("send", "--output-dir", str(partial), "--no-sign",
                    "--force-cover-letter")
            mails = [email.message_from_bytes(path.read_bytes())
                     for path in sorted(partial.glob("*.eml"))]
            gate("subjects, author, sign-off, recipients, threading of "
                 f"{len(mails)} mails", check_mails, mails, identity, names)
            gate("the cover letter is as it was written", check_cover,
                 mails[0], cover.read_text())
            box = write_mailbox(partial)

            def git_am():
                for path in sorted(partial.glob("*.eml"))[1:]:
                    work.git("am", "-q", "--no-3way", "--keep-cr", path)

            gate("the mails give the branch again with git am",
                 check_applies, work, git_am)
            gate("so does series.mbox with b4 shazam", check_applies, work,
                 lambda: work.b4("shazam", "-m", str(box)))
            recipients = [f"{field}: {address}" for field in ("To", "Cc")
                          for address in re.split(
                              r",\s+", header(mails[0], field)) if address]
            write_guide(partial, branch, options.set, recipients, gates,
                        options.gates)
        install(work, branch, replace, partial, place)
    return branch, names, recipients


def install(work, branch, replace, partial, place):
    """Give the user's clone the branch and build/submit/ the mails."""
    tip = work.git("rev-parse", f"refs/heads/{branch}").strip()
    made = json.loads(MADE.read_text()) if MADE.exists() else []
    # Before the branch is there, so that it is always known as ours.
    write_atomically(MADE, json.dumps([*made, tip], indent=1) + "\n")
    git("fetch", "-q", "--no-tags", "--no-write-fetch-head",
        "--update-shallow", work.tree,
        f"{'+' if replace else ''}refs/heads/{branch}:refs/heads/{branch}",
        cwd=work.top)
    old = place.with_name(place.name + ".old.partial")
    shutil.rmtree(old, ignore_errors=True)
    with contextlib.suppress(FileNotFoundError):
        place.rename(old)
    partial.rename(place)
    shutil.rmtree(old, ignore_errors=True)


def main():
    parser = argparse.ArgumentParser(
        description=__doc__.split("\n\n")[0],
        epilog="It never sends anything: 'b4 send' is for you to run, when "
               "you have read the mails.")
    parser.add_argument("--ksrc", default=os.environ.get("KSRC", ""),
                        metavar="PATH", help="your git clone of the kernel "
                        "(default: $KSRC)")
    parser.add_argument("--name", default=os.environ.get("NAME", ""),
                        help="your name (default: $NAME)")
    parser.add_argument("--email", default=os.environ.get("EMAIL", ""),
                        help="your address (default: $EMAIL)")
    parser.add_argument("--set", default=os.environ.get("SET") or
                        ("fixes" if os.environ.get("FIXES") == "1"
                         else "all"), metavar="NAME",
                        help="; ".join(f"{name}: {what}" for name, (_, _, what)
                                       in SETS.items())
                        + " (default: $SET, or all)")
    parser.add_argument("--fixes", action="store_const", dest="set",
                        const="fixes", help="the same as --set fixes")
    parser.add_argument("--base", default=os.environ.get("ONTO") or "HEAD",
                        metavar="COMMIT", help="the commit of the clone to "
                        "put the series on (default: HEAD)")
    parser.add_argument("--branch", default=os.environ.get("BRANCH", ""),
                        metavar="NAME", help="the branch becomes b4/NAME")
    parser.add_argument("--force", action="store_true",
                        default=os.environ.get("FORCE") == "1",
                        help="take a kernel of another version")
    parser.add_argument("--gates", metavar="WHICH", default=os.environ.get(
                        "GATES") or "check", help="check, all or no: whether "
                        "these patches must have passed 'make check' or "
                        "'make check-all', or neither; what they have not is "
                        "run (default: $GATES, or check)")
    options = parser.parse_args()
    identity = (options.name, options.email)
    check_identity(*identity)
    if options.set not in SETS:
        raise Fail(f"SET={options.set}: there are {', '.join(SETS)}")
    if options.branch and not re.fullmatch(r"[a-z0-9][a-z0-9-]*",
                                           options.branch):
        raise Fail(f"BRANCH={options.branch}: use a-z, 0-9 and '-'")
    if options.gates not in GATE_SETS:
        raise Fail(f"GATES={options.gates}: there are "
                   f"{', '.join(GATE_SETS)}")
    place = PLACE / options.set
    if owed(options.gates):
        # Before an hour of work, what would stop it at the end.
        top, _ = check_clone(options.ksrc, options.base, options.force)
        check_branch(top, f"b4/{options.branch or SETS[options.set][0]}")
    passed = pass_gates(options.gates)
    with build_lock():
        PLACE.mkdir(exist_ok=True)
        branch, names, recipients = prepare(options, identity, place,
                                            passed)
    say(f"{len(names)} patches by {options.name} <{options.email}> are on "
        f"{branch} of your clone, "
        f"{len(names) + 1} mails to {len(recipients)} addresses in "
        f"{shown_path(place)}")
    say(f"nothing was sent: read {shown_path(place / 'REVIEW.txt')}")


if __name__ == "__main__":
    run_main(main)
