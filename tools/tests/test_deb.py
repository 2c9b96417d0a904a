# SPDX-License-Identifier: GPL-2.0-only
"""Packages: which patches, of which configuration, and what is left."""

import pytest
from conftest import IOPORT, YIELD, Box, Patches, make_kernel, write

DEB = "tools.deb"
CONFIG = "CONFIG_X86_64=y\nCONFIG_DEBUG_INFO_DWARF5=y\nCONFIG_OWN=m\n"
# Of 'make ... O=DIR ...': what it would leave, and its words.
MAKE = """
for word in "$@"; do case "$word" in O=*) objects=${word#O=} ;; esac; done
case " $* " in
*" bindeb-pkg "*)
	for name in image-7.3 headers-7.3 libc-dev; do
		echo >"$objects/../linux-${name}_1_amd64.deb"
	done ;;
esac
echo "$* $KDEB_PKGVERSION" >>"$objects/../words"
"""


@pytest.fixture
def ready(box: Box, patches: Patches) -> Box:
    """A series, a configuration, and a make that builds nothing."""
    box.set_patches(patches)
    name = sorted(patches)
    write(box.repo, {
        "series": f"# A title.\n\n# Fixes\n{name[0]}\n\n# Ports\n{name[1]}\n"
        f"{name[2]}\n\n# More\n" + "\n".join(name[3:]) + "\n",
        "CHANGELOG.md": "## 2.0, not yet\n", "config": CONFIG})
    make_kernel(box.temp / "linux")
    box.stub("make", MAKE)
    for tool in ("dpkg-buildpackage", "dh_listpackages"):
        box.stub(tool, "")
    return box


@pytest.mark.parametrize("kind, tick, thirty", [
    ("fixes", False, False), ("ports", True, False), ("all", True, True)])
def test_a_set_is_a_prefix(ready: Box, kind: str, tick: bool,
                           thirty: bool) -> None:
    place = ready.build / f"deb/ioport2.0-{kind}"
    run = ready.done(DEB, "--set", kind, "--config", ready.repo / "config",
                     KSRC=ready.temp / "linux",
                     say="apt remove linux-image-7.3\n")
    tree = ready.build / "src/deb"
    assert "closed();" in (tree / IOPORT).read_text()
    assert ("tick();" in (tree / YIELD).read_text()) == tick
    assert ("ioport thirty" in (tree / IOPORT).read_text()) == thirty
    assert "libc-dev" not in run.out
    assert sorted(path.name for path in place.glob("*.deb")) == [
        "linux-headers-7.3_1_amd64.deb", "linux-image-7.3_1_amd64.deb"]
    configured, packed = (place / "words").read_text().splitlines()
    assert "olddefconfig" in configured
    assert f"LOCALVERSION=+ioport2.0-{kind} " in packed
    assert packed.endswith(f" bindeb-pkg 7.3.4+ioport2.0-{kind}-1")
    config = (place / "obj/.config").read_text()
    assert config.startswith(CONFIG)
    assert config.index("DWARF5=y") < config.index("DWARF5 is not set")


def test_modules_and_real_time(ready: Box) -> None:
    config = ready.repo / "config"
    config.write_text(CONFIG + "CONFIG_PREEMPT_RT=y\n")
    write(ready.temp, {"modules": "Module   Size  Used by\next4 1 0\n"})
    ready.done(DEB, "--config", config, "--lsmod", ready.temp / "modules",
               KSRC=ready.temp / "linux", say="ioport2.0-all-rt")
    assert f"LSMOD={ready.temp}/modules localmodconfig" in (
        ready.build / "deb/ioport2.0-all-rt/words").read_text()


def test_debug_information_has_to_go(ready: Box) -> None:
    ready.stub("make", 'echo CONFIG_DEBUG_INFO=y >>"${3#O=}/.config"\n')
    run = ready.run(DEB, "--config", ready.repo / "config",
                    KSRC=ready.temp / "linux")
    assert run.status == 1 and "keeps debug information" in run.err, run
