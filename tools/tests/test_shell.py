# SPDX-License-Identifier: GPL-2.0-only
"""The front door: arguments, what is installed and removed; what
tools/affected says of kernels, by version and configuration."""

import fcntl
import gzip
import os
import re
import shutil
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest
from conftest import (ROOT, Box, Files, Run, commit, git, make_kernel,
                      snapshot, write, write_program)

APT = "apt-get install -y --no-install-recommends"
Ask = Callable[..., Run]


@pytest.fixture
def system(box: Box) -> Box:
    """A Debian system, made of stubs; build/venv is there.  Python is without
    its site, and so without libraries."""
    box.stub("python3", f'exec {sys.executable} -S "$@"\n')
    box.stub("uname", 'echo "${MACHINE-x86_64}"\n')
    box.stub("id", 'echo "${USER_ID-1000}"\n')
    box.stub("dpkg-query", 'for name; do :; done\ncase " $MISSING " in\n'
             '*" $name "*) exit 1 ;;\n*" -$name "*) printf config-files ;;\n'
             '*) printf installed ;;\nesac\n')
    box.stub("apt-get", f'echo "$*" >>"{box.temp}/calls"\ncase "$*" in\n'
             '*--assume-no*) echo "Need to get 7 MB of archives." ;;\n'
             'esac\necho "apt says: $1"; [ "$1" != "$FAILS" ]\n')
    python = "/usr/bin/python3"
    version = subprocess.run(
        [python if os.access(python, os.X_OK) else "python3", "-V"],
        capture_output=True, text=True).stdout
    rows = (ROOT / "tools/requirements.txt").read_text()
    write(box.build, {"venv/complete": f"{version.strip()} in {box.build}\n"
                      + re.sub(" *#.*", "", rows)})
    write_program(box.build / "venv/bin/pip",
                  f'echo "$*" >>"{box.temp}/calls"\n')
    return box


@pytest.mark.parametrize("words, says", (
    ("check ONLY=x", "ONLY=x is not known: use scripts, series, kernels"),
    ("gates ONLY=x", "ONLY=x is not known: use gcc, "),
    ("measure ONLY=x", "ONLY=x is not known: use ioperm_turns, "),
    ("mutants ONLY=x!", "ONLY=x! names none of the "),
    ("study ONLY=blas|x!", "ONLY=x!: no cell "),
    ("soak", "give JOB=: repeat, load, "),
    ("soak JOB=repeat|x", "JOB=repeat x is not known: "),
    ("soak JOB=repeat ONLY=1cpu|x", "ONLY=x names none of repeat's rows: 1"),
    ("soak JOB=race TIMES=0", "TIMES=0 is not known: use "),
    ("soak JOB=race SECONDS=1h", "SECONDS=1h is not known: use "),
    ("soak JOB=race CPUS=3", "CPUS=3 is not known: use "),
    ("report B=/x", "give A= and B=: two files of 'make measure'"),
    ("report A=/x", "A=/x is not a result"),
    ("report A=results/bench.json B=/x", "A=results/bench.json is not a "),
    ("publish BOARD=/x", "BOARD=/x: there is no such file"),
    ("publish BOARD=tools", "BOARD=tools: there is no such file"),
    ("publish BOARD=README.md", "BOARD=README.md is not from a stick, or "),
    ("deb SET=x", "SET=x is not known: use fixes, ports, all"),
    ("deb KCONFIG=/x", "KCONFIG=/x is not there"),
    ("deb KCONFIG=README.md", "KCONFIG=README.md is not the configuration "),
    ("deb LSMOD=/x KCONFIG=debian", "LSMOD=/x is not a file with "),
    ("deb LSMOD=README.md KCONFIG=debian", "LSMOD=README.md is not a file "),
    ("bench KERNEL=9.9", "KERNEL=9.9: the series is for 7.3, which needs no "),
    ("bench ACCEL=x", "ACCEL=x is not known: use tcg, kvm"),
    ("tree FORCE=yes", "FORCE=yes is not known: use 1"),
    ("clean ALL=0", "ALL=0 is not known: use 1"),
    ("tree KSRC=/none", "KSRC=/none is not a folder"),
    ("check ONYL=x", "ONYL=x: 'make check' takes ONLY, KERNEL, "),
    ("deps ONLY=x", "ONLY=x: 'make deps' takes no variable")))
def test_make_refuses_before_anything_is_installed(system: Box, words: str,
                                                   says: str) -> None:
    """By the name that the user typed."""
    system.repo = ROOT
    run = system.run("make", *(word.replace("|", " ")
                               for word in words.split()),
                     USER_ID=0, MISSING="git bc b4")
    error, make = run.err.splitlines()
    assert error.startswith(f"error: {says}") and "make: ***" in make, run
    assert not re.search(r"--(?!pack)\w|\.py", error) and run.out == ""
    assert not (system.temp / "calls").exists()
    assert [*system.build.iterdir()] == [system.build / "venv"]


def test_the_documents_use_variables_that_a_target_takes() -> None:
    makefile = (ROOT / "Makefile").read_text()
    takes = {target: names.replace("=", "").split() for target, names in
             re.findall(r"^(\w+):.* ## .*\n(?:#> (.*);)?", makefile, re.M)}
    text = makefile + "".join(
        path.read_text() for pattern in (
            "*.md", "submit/*.md", "tools/**/*.md", ".github/**/*.yml")
        for path in ROOT.glob(pattern))
    used = re.findall(r"\bmake ([a-z]+)((?: +[A-Z]+=(?:\"[^\"]*\"|\S*))+)",
                      text)
    assert len(used) > 30
    for target, words in used:
        assert target == "kselftest" or {
            *re.findall(r"([A-Z]+)=", words)} <= {*takes[target]}, words


def test_a_job_gets_what_it_needs(system: Box) -> None:
    for job in "", "bench", "tree", "export", "publish":
        assert system.done("tools/deps", *job.split()).out == ""
    assert not (system.temp / "calls").exists()
    complete = system.build / "venv/complete"
    complete.write_text(re.sub("(pytest==).*", r"\1", complete.read_text()))
    system.done("tools/deps", "bench")
    system.done("tools/deps", say="==> installing pytest==")
    assert "install pytest==" in (system.temp / "calls").read_text()


@pytest.mark.parametrize("job, env, words", (
    ("check", {"MISSING": "quilt bc"}, f"again:\n  sudo {APT} bc quilt\n"),
    ("tree", {"MISSING": "-git bc"}, f"again:\n  sudo {APT} git\n"),
    ("check", {"MACHINE": "aarch64"}, "this is a aarch64 machine"),
    ("nothing", {}, "there is no job 'nothing'")))
def test_deps_tells_what_to_do(system: Box, job: str, env: dict[str, str],
                               words: str) -> None:
    system.refused("tools/deps", job, say=words, **env)
    assert not (system.temp / "calls").exists()


def test_deps_installs_as_root_what_is_missing_only(system: Box) -> None:
    run = system.run("tools/deps", MISSING="bc", USER_ID=0, FAILS="update")
    assert run.status == 1
    assert run.err.startswith("apt says: update\nerror: 'apt-get update")
    assert run.err.endswith(f"{system.build}/logs/deps.log\n")
    (system.temp / "calls").unlink()
    system.stub("df", "echo disk 9 9 500000 9% /")
    system.refused("tools/deps", MISSING="bc", USER_ID=0, say="make room")
    (system.bin / "df").unlink()
    out = system.done("tools/deps", MISSING="quilt bc", USER_ID=0).out
    assert out == ("==> installing bc quilt\n"
                   "    Need to get 7 MB of archives.\n")
    calls = (system.temp / "calls").read_text().splitlines()
    assert (calls[0], calls[-1]) == ("update", f"{APT[8:]} bc quilt")


def test_deps_elsewhere_tells_what_is_needed(system: Box) -> None:
    """There is no dpkg-query, whether or not a command is missing."""
    (system.bin / "dpkg-query").unlink()
    # Apart from the stubs: nothing is ever written through these links.
    other = system.temp / "other"
    other.mkdir()
    for path in Path("/usr/bin").iterdir():
        if path.name not in ("dpkg-query", "bison"):
            (other / path.name).symlink_to(path)
    where = {"PATH": f"{system.bin}:{other}"}
    notice = "notice: this is not Debian: install what these Debian packages "
    assert system.done("tools/deps", "tree", **where).out == (
        notice + "hold: ca-certificates git python3 xz-utils\n")
    run = system.refused("tools/deps", "bench", say="'bison' is missing",
                         **where)
    assert run.out.startswith(notice)


def test_an_old_python_makes_no_venv(system: Box) -> None:
    system.repo.joinpath("tools/__init__.py").write_text(
        "import sys\nsys.exit('error: old')\n")
    (system.build / "venv/complete").unlink()
    system.refused("tools/deps", say="error: old")
    assert not (system.build / "venv/complete").exists()


def test_a_release_leaves_the_tests_out(system: Box) -> None:
    """Of the files for patch -p1; no later patch changes one of them."""
    box, place = system, system.repo / "build/release"
    run = box.run("make", "release")
    assert run.err.startswith("error: a release is of a commit: run it in a ")
    assert not place.exists()
    shutil.rmtree(box.repo / "patches", ignore_errors=True)
    shutil.copytree(ROOT / "patches", box.repo / "patches")
    for name in "series", "CHANGELOG.md":
        shutil.copy(ROOT / name, box.repo)
    git(box.repo, "init", "-q")
    commit(box.repo, "all")
    box.done("make", "release", say="written: build/release/")
    files = [*place.glob("*/linux-*.patch")]
    for path in files:
        changed = re.findall(r"^diff --git a/(\S+)", path.read_text("latin1"),
                             re.M)
        assert "arch/x86/kernel/io_bitmap_test.c" in changed
        assert changed[-1].endswith("/ioperm.rst")
        # Those of the fixes.
        assert {name for name in changed if "selftests" in name} == {
            f"tools/testing/selftests/{name}/Makefile"
            for name in ("sched", "x86")}
    tar, = place.glob("*/*.tar.xz")
    assert len(files) == 3 and "/0017-" in subprocess.getoutput(
        f"tar -tf {tar}")


def test_clean(box: Box) -> None:
    """It keeps what takes long to get, and disturbs no job."""
    def left() -> set[str]:
        return {path.name for path in box.build.iterdir()}

    box.done("tree", KSRC=make_kernel(box.temp / "linux"))
    kept = {".lock", "6.1", "download", "linux.git", "sparse", "tree", "venv",
            "xen"}
    write(box.build, {f"{name}/x": "x" for name in (
        "obj", "src", "logs", "tmp/guest-1", "a-kind-of-kernel-to-come",
        "download", "sparse", "venv", "xen", "6.1/obj", "6.1/download")})
    before, work = left(), snapshot(box.build / "tree")
    with open(box.build / "6.1/.lock", "w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        for more in {}, {"ALL": 1}:
            run = box.run("tools/clean", **more, FORCE=1)
            assert run.status == 1
            assert run.err.startswith("error: another job is running")
    assert left() == before
    box.done("tools/clean")
    assert left() == kept and snapshot(box.build / "tree") == work
    assert not (box.build / "6.1/obj").exists()
    assert (box.build / "6.1/download/x").exists()
    # Work that was not exported stays.
    write(box.build / "tree", {"mm/newer.c": "newer\n"})
    box.refused("tools/clean", ALL=1, say="(?? mm/newer.c)")
    assert left() == kept
    box.done("tools/clean", ALL=1, FORCE=1)
    box.done("tools/clean")
    assert not box.build.exists()


PORTS = "CONFIG_X86=y\nCONFIG_X86_IOPL_IOPERM=y\n"
OLD = "CONFIG_X86=y\nCONFIG_PREEMPT=y\n"
NONE = PORTS + "CONFIG_PREEMPT_NONE=y\n"
FULL = PORTS + "CONFIG_PREEMPT=y\n"
VOLUNTARY = PORTS + "CONFIG_PREEMPT_DYNAMIC=y\nCONFIG_PREEMPT_VOLUNTARY=y\n"
LAZY = VOLUNTARY.replace("VOLUNTARY", "LAZY")
RT = "CONFIG_PREEMPT_RT=y\n"
GUEST = NONE + "CONFIG_XEN_PV=y\nCONFIG_AMD_MEM_ENCRYPT=y\n"
DEBUG = "sys/kernel/debug/sched/"
FIXED, NOT = "fixed", "not affected"
BAD, UNTOLD = "vulnerable", "cannot be told"


def cpu(text: str) -> dict[str, str]:
    return {"proc/cpuinfo": text, "sys/hypervisor/x": ""}


def preempt(modes: str) -> dict[str, str]:
    return {DEBUG + "features": "A B\n", DEBUG + "preempt": modes + "\n"}


XEN = {"sys/hypervisor/guest_type": "PV\n"}
AMD = cpu("vendor_id : AuthenticAMD\nflags : a hypervisor b\n\n")
SEV = AMD | {"dmesg": "Memory Encryption Features active: AMD SEV SEV-ES\n"}
VIEW = {"proc/kallsyms": "0 T a\n0 T io_bitmap_view\n0 T z\n"}
# What one runs, its configuration and other files, and the verdict, with words
# of the reason.
KERNELS = (
    # The window: ioperm() and preemption.
    ("6.12.30-0-lts", FULL, {}, BAD, "'full'"),  # Alpine
    ("7.3.4-arch1-1", LAZY, preempt("full (lazy)"), BAD, "'lazy'"),
    ("6.8.0-45-generic", VOLUNTARY, preempt("none (full)"), BAD, "'full'"),
    ("6.8.0-45-generic", LAZY, preempt("(none) full lazy"), NOT, "'none'"),
    ("6.8.0", LAZY, preempt("none (voluntary)"), NOT, "'voluntary'"),
    ("6.8.0-45-generic", VOLUNTARY, {"proc/cmdline": "preempt=none\n"}, BAD,
     "may have been changed: debugfs is not mounted"),
    ("4.18.0-553.el8_10.x86_64", FULL, {}, BAD, "'full'"),  # a backport
    ("5.15.153.1-microsoft-standard-WSL2", NONE, {}, NOT, "'none'"),
    ("6.12.117-rt-amd64", LAZY + RT, preempt("none"), BAD, "'full'"),
    ("7.3-rc4", NONE, {}, NOT, ""), ("5.4.0", OLD, {}, NOT, "came with 5.5"),
    ("6.1.1", OLD + "# CONFIG_X86_IOPL_IOPERM is not set\n", {}, NOT, ""),
    ("5.5", OLD, {}, UNTOLD, "not whole"),
    ("10.0.1", OLD, {}, UNTOLD, "not whole"),
    ("6.1.1", PORTS, {}, UNTOLD, "not whole"),
    # What has the series has all of it, also in a guest.
    ("7.3.4", GUEST, VIEW | XEN | SEV, FIXED, "io_bitmap_view()"),
    ("7.3.4+ioport2.0-fixes", GUEST, XEN | SEV, FIXED, "'make deb'"),
    ("7.3.4", FULL, {"proc/kallsyms": "0 T io_bitmap_viewer\n"}, BAD, ""),
    # Guests.
    ("5.14.1", GUEST, XEN, BAD, "Xen"), ("5.13.0", GUEST, XEN, NOT, ""),
    ("6.1.1", NONE, XEN | SEV, NOT, ""),
    ("6.1.1", GUEST, {"sys/hypervisor/guest_type": "PVH\n"}, NOT, ""),
    ("6.1.1", GUEST, {}, UNTOLD, "no /sys/hypervisor"),
    ("4.18.0-553.el8_10.x86_64", GUEST, SEV, BAD, "SEV-ES"),
    ("6.1.1", GUEST, AMD | {"dmesg": "Linux version 6.1.1 ()\n"}, NOT, ""),
    ("6.1.1", GUEST, AMD, UNTOLD, "dmesg"),
    ("6.1.1", GUEST, cpu("x\n"), UNTOLD, "dmesg"),
    ("6.1.1", GUEST, cpu("vendor_id : AuthenticAMD\n"), NOT, ""),
    ("6.1.1", GUEST, cpu("vendor_id : GenuineIntel\n"
                               "flags : a hypervisor\n"), NOT, ""),
    # What is no kernel of x86 that says what it is.
    ("6.1.1", "", {}, UNTOLD, "modprobe configs"),
    ("6.1.1", FULL, {"proc/config.gz": b"\x1f\x8b\x08\0"}, BAD, "'full'"),
    ("unknown", FULL, {}, UNTOLD, "version"),
    ("6.x", FULL, {}, UNTOLD, "version"), ("", FULL, {}, UNTOLD, "version"))


@pytest.fixture(params=("dash", "busybox"))
def ask(request: pytest.FixtureRequest, tmp_path: Path) -> Ask:
    """tools/affected, which reads below tmp_path, with one shell: busybox has
    nothing else in PATH, as in an initramfs."""
    shell, path = shutil.which(request.param), os.environ["PATH"]
    assert shell, f"apt-get install {request.param}"
    command = [shell, str(ROOT / "tools/affected")]
    write_program(tmp_path / "bin/dmesg", f"cat {tmp_path}/dmesg\n")
    if request.param == "busybox":
        path = tmp_path / "applets"
        path.mkdir()
        subprocess.run([shell, "--install", "-s", path])
        command.insert(1, "sh")

    def ask(*args: object, **env: str) -> Run:
        done = subprocess.run(
            [*command, *map(str, args)], capture_output=True, text=True, env={
                "AFFECTED_ROOT": str(tmp_path), "AFFECTED_MACHINE": "x86_64",
                "PATH": f"{tmp_path}/bin:{path}", **env})
        return Run(done.returncode, done.stdout, done.stderr)

    return ask


def check(run: Run, verdict: str, words: str = "") -> None:
    assert run.out.splitlines()[-1] == verdict and words in run.out, run
    assert run.err == "" and run.status == {BAD: 1, UNTOLD: 2}.get(verdict, 0)


@pytest.mark.parametrize("release, config, files, verdict, words", KERNELS)
def test_the_verdict(ask: Ask, tmp_path: Path, release: str, config: str,
                     files: Files, verdict: str, words: str) -> None:
    write(tmp_path, {"proc/sys/kernel/osrelease": f"{release}\n",
                     "proc/cpuinfo": "flags : a\n", **files})
    # It is found plain and compressed, whatever its name.
    plain = tmp_path / f"boot/config-{release}"
    for place, text in ((plain, config.encode()), (
            tmp_path / f"lib/modules/{release}/config",
            gzip.compress(config.encode()))):
        plain.unlink(missing_ok=True)
        if config:
            write(place.parent, {place.name: text})
        check(ask(), verdict, words)


@pytest.mark.parametrize("release, config, verdict, words", (
    ("6.1.0-50-amd64", VOLUNTARY, BAD, "may have been changed"),
    ("6.1.0-50-amd64", NONE, NOT, "'none'"),
    ("6.1.0-50-amd64", GUEST, BAD, "a SEV-ES guest"),
    ("5.10.0", GUEST, BAD, "a SEV-ES guest"),
    ("5.4.0-generic", GUEST, UNTOLD, "needs 5.10, or a backport"),
    ("7.3.4+ioport2.0-ports", FULL, FIXED, "'make deb'"),
    ("6.1.0", "CONFIG_ARM64=y\n", UNTOLD, "no configuration of an x86")))
def test_a_kernel_that_does_not_run(ask: Ask, tmp_path: Path, release: str,
                                    config: str, verdict: str,
                                    words: str) -> None:
    """Nothing is read of the one that does."""
    write(tmp_path, VIEW | {"proc/sys/kernel/osrelease": "5.4.0\n",
                            "config": config})
    run = ask("--release", release, "--config", tmp_path / "config",
              AFFECTED_MACHINE="aarch64")
    check(run, verdict, words)
    assert run.out.startswith(f"Linux {release}:\n")


def test_what_is_asked_and_where(ask: Ask, tmp_path: Path) -> None:
    for words, says in (("--release 6.1", "need each other"),
                        ("--config /dev/null", "need each other"),
                        ("--release", "--release needs a value"),
                        ("6.1", "unknown argument: 6.1")):
        run = ask(*words.split())
        assert (run.status, run.out) == (2, ""), run
        assert says in run.err.splitlines()[-1]
    check(ask(), UNTOLD, "/proc is not mounted")
    write(tmp_path, {"proc/sys/kernel/osrelease": "6.1.1\n"})
    check(ask(AFFECTED_MACHINE="aarch64"), NOT, "aarch64 is not x86")
    for features, words in ("NO_YIELD_TICK", "is that"), ("A", "is not that"):
        write(tmp_path, {DEBUG + "features": features + "\n"})
        assert f"sched_yield() {words} of the series" in ask().out


@pytest.mark.parametrize("tool", ("cat", "grep", "gzip", "uname"))
def test_a_tool_that_fails(ask: Ask, tmp_path: Path, tool: str) -> None:
    """Then it finds out in another way, or says that it cannot."""
    write(tmp_path, VIEW | {"proc/sys/kernel/osrelease": "6.1.1\n",
                            "proc/config.gz": gzip.compress(NONE.encode())})
    write_program(tmp_path / "bin" / tool, "exit 3\n")
    check(ask(), UNTOLD if tool == "grep" else FIXED)
    write(tmp_path, {"proc/kallsyms": "0 T a\n"})
    check(ask(AFFECTED_MACHINE=""),
          UNTOLD if tool in ("grep", "gzip") else NOT)
