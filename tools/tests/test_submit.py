# SPDX-License-Identifier: GPL-2.0-only
"""tools/submit.py, and the commands of submit/README.md with the real b4."""

import re
import subprocess
import sys

import pytest
from conftest import ROOT, Box, Patches, environment, make_clone, write

from tools import submit

TAGS = b"\nAssisted-by: LLM x\nCc: stable@vger.kernel.org\n---\n"
WHO = {"NAME": "Jane Źółw", "EMAIL": "jane@example.org", "GATES": "no"}
# One maintainer; nothing is wrong with a patch that is signed off.
PROGRAMS = {
    "linux/scripts/get_maintainer.pl": "cat >/dev/null; case $* in *nom*) "
    "echo linux-kernel@vger.kernel.org;; *) echo a@b.org;; esac\n",
    "linux/scripts/checkpatch.pl": "grep -q Signed-off-by: && echo 'total: "
    "0 errors, 0 warnings, 0 checks, 9 lines checked'\n",
    "series/build/venv/bin/b4": f'exec {sys.executable} -m b4.command "$@"\n'}


@pytest.fixture
def ready(box: Box, patches: Patches) -> Box:
    box.set_patches({name: text.replace(b"\n---\n", TAGS, 1)
                     for name, text in patches.items()})
    return box


def test_each_patch_has_a_maintainer() -> None:
    everything, fixes, x86, sched = map(submit.chosen, (
        "all", "fixes", "x86", "sched"))
    assert sorted(x86 + sched) == sorted(everything)
    assert sched == [name for name in everything if "sched" in name]
    # Those of the tests are not for stable, nor for its people.
    assert fixes == [name for name in x86[:len(fixes)] if "self" not in name]


def test_letters_can_be_sent() -> None:
    for path in (ROOT / "submit").glob("cover-letter*.txt"):
        text = path.read_text()
        # A gap; a comment for b4; what b4 moves to the end, as a trailer.
        assert not re.findall(r"@|\n#.*|\n[\w-]+: .*", text), path
        assert max(map(len, text.splitlines())) <= 75


def test_the_commands_of_the_guide_write_mails(ready: Box) -> None:
    (ready.temp / "series").symlink_to(ready.repo)
    ready.build = ready.repo / "build"
    write(ready.repo, {
        "submit/cover-letter-fixes.txt": "x86: Fixes\n\nWhy all of this.\n",
        "build/venv/bin/b4": "", "../linux/scripts/x": "",
        "../.gitconfig": "[user]\nname = A Tester\nemail = a@b.org\n"})
    (ready.build / "venv/bin/python").symlink_to(sys.executable)
    for name, text in PROGRAMS.items():
        ready.stub(f"{ready.temp}/{name}", text)
    make_clone(ready.temp / "linux")
    ready.done("tools.submit", SET="fixes", **WHO, say="nothing was sent")
    guide = (ROOT / "submit/README.md").read_text()
    done = subprocess.run(
        ["sh", "-ec", re.findall(r"```sh\n(.*?)```", guide, re.S)[1]],
        env=environment(HOME=ready.temp), capture_output=True, text=True)
    assert "Success: 1, Warning: 0, Error: 0" in done.stderr + done.stdout
    mail, = (ready.temp / "mails").glob("*.eml")
    head, _, body = mail.read_text().partition("\n\n")
    assert "a@b.org" in head and "linux-kernel@" in head
    assert "stable@" not in head and "Why all of this." in body
    assert "Signed-off-by: Jane Źółw <jane@example.org>\nCc: stable@" in body


def test_what_cannot_be_sent_is_refused(ready: Box) -> None:
    ready.refused("tools.submit", say="run 'make gates", **WHO | {"GATES": ""})
    patch = next((ready.repo / "patches").iterdir())
    for old, new in (("Assisted-by", "x"), ("Cc: ", "Reviewed-by: ")):
        patch.write_text(patch.read_text().replace(old, new))
        ready.refused("tools.submit", say="a patch ", **WHO)
    assert not (ready.build / "submit").exists()
