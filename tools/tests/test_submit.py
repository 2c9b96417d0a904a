# SPDX-License-Identifier: GPL-2.0-only
"""tools/submit.py: mails from a user's clone, which nothing else happens to.

The patches, get_maintainer.pl and checkpatch.pl are small ones of our own;
b4 is the real one.
"""

import email
import email.policy
import shutil
from email.message import EmailMessage

import pytest
from conftest import (COMMITS, IOPORT, ROOT, Box, commit, git, make_clone,
                      snapshot, write)

from tools import submit
from tools.core import Fail

PERSON = ("Jane Doe", "jane@example.org")
LETTER = "x86: {}\n\nWhy all of this.\n\nIn two paragraphs.\n"
CHECKPATCH, MAINTAINER = "scripts/checkpatch.pl", "scripts/get_maintainer.pl"
STUBS = {
    MAINTAINER: """#!/bin/sh
cat >/dev/null
echo "$*" | grep -q nom && echo 'linux-kernel@vger.kernel.org' ||
    echo 'A Maintainer <maintainer@example.org>'
""",
    CHECKPATCH: """#!/bin/sh
found=0
grep -q 'bad style' && found=1 && echo && echo 'WARNING:STYLE: bad' && echo
echo "total: 0 errors, $found warnings, 0 checks, 9 lines checked"
"""}


class User:
    """A repository whose series has a fix and a test, and a user's clone."""

    def __init__(self, box: Box, patches: dict[str, bytes]) -> None:
        self.box = box
        box.set_patches(patches)
        write(box.repo, {
            "tools/gates.py": "RECORDED = ('one', 'two')\n",
            "submit/review.txt": (ROOT / "submit/review.txt").read_text(),
            "submit/cover-letter.txt": LETTER.format("All"),
            "submit/cover-letter-fixes.txt": LETTER.format("Fixes")})
        self.clone = make_clone(box.temp / "clone")
        write(self.clone, STUBS)
        for name in STUBS:
            (self.clone / name).chmod(0o755)
        commit(self.clone, "Scripts")

    def env(self, **more: object) -> dict[str, object]:
        return {"KSRC": self.clone, "NAME": PERSON[0], "EMAIL": PERSON[1],
                "GATES": "no"} | more

    def submit(self, say: str = "nothing was sent", **more: object) -> None:
        self.box.done("tools.submit", say=say, **self.env(**more))

    def refuse(self, say: str, **more: object) -> None:
        """It is refused, and the clone is as it was."""
        before = self.state()
        self.box.refused("tools.submit", say=say, **self.env(**more))
        assert self.state() == before

    def state(self) -> dict[str, tuple]:
        """Return what is in the clone; of git's objects only the names.

        git marks one as in use when a tree that borrows it makes the same.
        """
        return {name: () if "/.git/objects/" in name else state
                for name, state in snapshot(self.clone).items()}

    def mails(self, kind: str = "all") -> list[EmailMessage]:
        paths = sorted((self.box.build / "submit" / kind).glob("*.eml"))
        return [email.message_from_bytes(path.read_bytes(),
                                         policy=email.policy.default)
                for path in paths]


@pytest.fixture(scope="session")
def tagged(tmp_path_factory: pytest.TempPathFactory) -> dict[str, bytes]:
    """Two patches with their tags; the first one is a fix, for stable."""
    clone = make_clone(tmp_path_factory.mktemp("submitted"))
    fix, test = COMMITS[:2]
    commit(clone, fix[0], fix[1] + "\nAssisted-by: LLM x\n"
           "Cc: stable@vger.kernel.org", fix[2])
    commit(clone, test[0], test[1] + "\n\nAssisted-by: LLM x", test[2])
    out = tmp_path_factory.mktemp("patches")
    git(clone, "format-patch", "--no-signature", "-N", "-o", out, "-2")
    return {path.name: path.read_bytes() for path in out.iterdir()}


@pytest.fixture
def user(box: Box, tagged: dict[str, bytes]) -> User:
    return User(box, tagged)


def test_each_patch_has_a_maintainer():
    everything, fixes, x86, sched = map(submit.chosen, submit.SETS)
    assert sorted(x86 + sched) == sorted(everything)
    assert sched == [name for name in everything if "sched" in name]
    # Those of the tests are not for stable, nor for its people.
    assert fixes == [name for name in x86[:len(fixes)]
                     if "selftests" not in name]


def test_letters_can_be_sent():
    for _, name in submit.SETS.values():
        letter = ROOT / "submit" / name
        submit.check_letter(letter)
        assert "@" not in letter.read_text()
        assert max(map(len, letter.read_text().splitlines())) <= 75


def test_the_tags_are_in_the_order_of_the_tip_tree():
    mail = ("From: A Team\n <team@example.org>\nSubject: [PATCH] x\n\nWhy.\n\n"
            "Fixes: 0123456789ab (\"y\")\nAssisted-by: LLM x\n"
            "Cc: stable@vger.kernel.org\n---\n a | 1 +\n\n+Assisted-by: me\n")
    text = submit.authored(mail, PERSON)
    assert text.startswith("From: Jane Doe <jane@example.org>\nSubject")
    assert ("Assisted-by: LLM x\nSigned-off-by: Jane Doe <jane@example.org>\n"
            "Cc: stable@vger.kernel.org\n---\n") in text
    assert text.count("Signed-off-by") == 1
    for words in ("From: A", "Assisted-by: LLM"):
        with pytest.raises(Fail, match="a patch needs one From"):
            submit.authored(mail.replace(words, "x"), PERSON)


def test_gates_that_were_passed_are_told(replace):
    replace(submit, RECORDED=("one", "two"), recorded=lambda: {
        "one": {"passed": 10}, "two": {"passed": 5}})
    assert submit.passed_gates("all") == "15 passed, 0 failed"


def test_the_series_becomes_mails_of_the_user(user):
    before = user.state()
    user.submit(GIT_EDITOR="false", GIT_AUTHOR_NAME="Somebody")
    after = user.state()
    # The branch is new, no file of the clone has changed.
    assert {name: state for name, state in before.items()
            if state and state[-1] is not None}.items() <= after.items()
    assert [name for name in after.keys() - before.keys()
            if "/objects/" not in name and "heads/b4" not in name] == []
    assert git(user.clone, "log", "--format=%an %cn", "HEAD..b4/ioports-yield"
               ).split("\n") == ["Jane Doe Jane Doe"] * 3

    cover, fix, test = mails = user.mails()
    assert [mail["Subject"] for mail in mails] == [
        "[PATCH 0/2] x86: All", f"[PATCH 1/2] {COMMITS[0][0]}",
        f"[PATCH 2/2] {COMMITS[1][0]}"]
    assert cover.get_content().startswith("Why all of this.\n")
    for mail in mails:
        assert mail["From"] == "Jane Doe <jane@example.org>"
        assert "maintainer@example.org" in mail["To"]
        assert "linux-kernel@vger.kernel.org" in mail["Cc"]
        assert "stable@" not in mail["To"] + mail["Cc"]
        assert "tester@example.org" not in mail.as_string()
    assert "\nCc: stable@vger.kernel.org\n" in fix.get_content()
    for mail in (fix, test):
        assert mail["In-Reply-To"] == cover["Message-ID"]
        assert "\nSigned-off-by: Jane Doe <jane@example.org>\n" in \
            mail.get_content()
    place = user.box.build / "submit/all"
    review = (place / "REVIEW.txt").read_text()
    assert "not passed on these patches: one two" in review
    assert "git checkout b4/ioports-yield\n" in review
    git(user.clone, "am", "-q", *sorted(place.glob("*.eml"))[1:])
    assert git(user.clone, "diff", "b4/ioports-yield") == ""


def test_the_fixes_stand_alone_from_a_shallow_clone(user):
    shallow = user.box.temp / "shallow"
    git(user.box.temp, "clone", "-q", "--depth=1", f"file://{user.clone}",
        shallow)
    user.submit(SET="fixes", KSRC=shallow, NAME="Jürgen Q. Źółw")
    cover, fix = user.mails("fixes")
    assert cover["Subject"] == "[PATCH] x86: Fixes"
    assert fix["From"].addresses[0].display_name == "Jürgen Q. Źółw"
    assert "\nSigned-off-by: Jürgen Q. Źółw <jane@example.org>\n" in \
        fix.get_content()


def test_only_what_was_made_here_is_replaced(user):
    user.submit(SET="fixes")
    write(user.box.repo, {"submit/cover-letter-fixes.txt":
                          LETTER.format("Better")})
    user.submit(SET="fixes")
    assert user.mails("fixes")[0]["Subject"] == "[PATCH] x86: Better"
    git(user.clone, "checkout", "-q", "b4/ioports-fixes")
    user.refuse("is checked out", SET="fixes")
    commit(user.clone, "Mine", files={"mine": "mine\n"})
    git(user.clone, "checkout", "-q", "master")
    user.refuse("rename it", SET="fixes")
    user.submit(SET="fixes", BRANCH="again", say="b4/again")


@pytest.mark.parametrize("words, wrong", [
    ("give NAME=", {"NAME": ""}), ("<jane>' cannot", {"EMAIL": "jane"}),
    ("cannot", {"NAME": "Jane <x>"}),
    ("give KSRC=", {"KSRC": ""}), ("not a folder", {"KSRC": "/nowhere"}),
    ("no kernel Makefile", {"ONTO": "nowhere"}), ("a-z", {"BRANCH": "Up"}),
    ("there are all, fixes, x86, sched", {"SET": "some"}),
    ("there are all, no", {"GATES": "some"}),
    ('make gates ONLY="one two"', {"GATES": ""}),
    ("no patch of SET=sched", {"SET": "sched"})])
def test_wrong_options_are_refused(user, words, wrong):
    user.refuse(words, **wrong)


def test_clones_that_do_not_fit_are_refused(user):
    plain = user.box.temp / "plain"
    shutil.copytree(user.clone, plain, ignore=shutil.ignore_patterns(".git"))
    user.refuse("is not a git clone", KSRC=plain)
    user.refuse("the tree is Linux 6.12.1",
                KSRC=make_clone(user.box.temp / "old", "6 12 1"))
    git(user.clone, "branch", "b4/ioports-yield")
    user.refuse("not as this program made it")
    write(user.clone, {IOPORT: "changed\n"})
    user.refuse("has uncommitted changes")


@pytest.mark.parametrize("words, files", [
    ("0001-x86-ioperm-Close-the-window.patch does not apply: patch failed: "
     + IOPORT, {IOPORT: "all new\n"}),
    ("WARNING:STYLE: bad",
     {CHECKPATCH: STUBS[CHECKPATCH].replace("bad style", "closed")}),
    ("checkpatch did not really run", {CHECKPATCH: "#!/bin/sh\nexit 0\n"}),
    ("does not go to linux-kernel@",
     {MAINTAINER: STUBS[MAINTAINER].replace("linux-kernel@", "another@")}),
    ("b4 would not send it: needs-recipients",
     {MAINTAINER: "#!/bin/sh\ncat >/dev/null\n"})])
def test_what_does_not_fit_the_kernel_stops_it(user, words, files):
    commit(user.clone, "Change", files=files)
    user.refuse(words)


@pytest.mark.parametrize("words, more", [
    ("the line '@NUMBERS@'", "@NUMBERS@\n"), ("the line '#VC", "#VC is\n"),
    ("the line 'Note: this'", "Note: this\n"),
    ("b4 would not send it: needs-editing", "EDITME\n")])
def test_a_letter_that_is_not_ready_stops_it(user, words, more):
    write(user.box.repo, {"submit/cover-letter.txt":
                          LETTER.format("All") + more})
    user.refuse(words)


def test_a_tag_that_only_a_person_may_give_stops_it(user, tagged):
    user.box.set_patches({name: text.replace(
        b"\nAssisted-by", b"\nReviewed-by: A Person <a@b.org>\nAssisted-by")
        for name, text in tagged.items()})
    user.refuse("for people to give")


def test_an_interruption_leaves_nothing(user):
    user.box.stub_git(" am ", user.box.hang)
    before = user.state()
    user.box.interrupted("tools.submit", **user.env())
    assert user.state() == before
    user.box.unstub("git")
    user.submit()
