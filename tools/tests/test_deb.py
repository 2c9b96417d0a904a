# SPDX-License-Identifier: GPL-2.0-only
"""Packages: which patches, of which configuration, and what is left."""

import pytest
from conftest import IOPORT, YIELD, Box, Patches, make_kernel, write

CONFIG = "CONFIG_X86_64=y\nCONFIG_DEBUG_INFO_DWARF5=y\nCONFIG_PREEMPT_RT=y\n"
# Of 'make ... O=DIR ...': what it would leave, and its words.
MAKE = """
for word in "$@"; do case "$word" in O=*) objects=${word#O=} ;; esac; done
echo "$* $KDEB_PKGVERSION" >>"$objects/../words"
case " $* " in *" bindeb-pkg "*)
	for name in image-7.3 headers-7.3 libc-dev; do
		echo >"$objects/../linux-${name}_1_amd64.deb"
	done ;;
esac
"""


@pytest.mark.parametrize("kind, tick, thirty", [
    ("fixes", False, False), ("ports", True, False), ("all", True, True)])
def test_a_set_is_a_prefix(box: Box, patches: Patches, kind: str, tick: bool,
                           thirty: bool) -> None:
    box.set_patches(patches)
    first, *names = sorted(patches)
    write(box.repo, {
        "series": "# A title.\n\n# Fixes\n" + "\n".join(
            [first, "\n# Ports", *names[:2], "\n# More", *names[2:], ""]),
        "CHANGELOG.md": "## 2.0, not yet\n", "config": CONFIG,
        "modules": "# What is there.\nModule   Size  Used by\next4 1 0\n"})
    make_kernel(box.temp / "linux")
    for tool in ("make", "dpkg-buildpackage", "dh_listpackages"):
        box.stub(tool, MAKE)
    words = {"SET": kind, "KCONFIG": "config", "KSRC": box.temp / "linux"}
    run = box.done("deb", LSMOD="modules", **words,
                   say="apt remove linux-image-7.3\n")
    tree, name = box.build / "src/deb", f"ioport2.0-{kind}-rt"
    assert ("tick();" in (tree / YIELD).read_text()) == tick
    assert ("ioport thirty" in (tree / IOPORT).read_text()) == thirty
    place = box.build / "deb" / name
    assert "libc-dev" not in run.out and "linux-headers-7.3" in run.out
    configured, packed = (place / "words").read_text().splitlines()
    assert f"LSMOD={box.repo}/modules localmodconfig" in configured
    assert f"LOCALVERSION=+{name} " in packed
    assert packed.endswith(f" bindeb-pkg 7.3.4+{name}-1")
    config = (place / "obj/.config").read_text()
    assert config.index("DWARF5=y") < config.index("DWARF5 is not set")
    box.stub("make", 'echo CONFIG_DEBUG_INFO=y >>"${3#O=}/.config"\n')
    assert "keeps debug information" in box.run("deb", **words).err
