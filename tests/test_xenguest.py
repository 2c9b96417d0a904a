# SPDX-License-Identifier: GPL-2.0-only
"""Xen's guest: the command line, the console, the package, the verdicts."""

import gzip
import io
import shutil
import subprocess
import unittest
from contextlib import redirect_stdout
from pathlib import Path
from unittest import mock

from helper import Case, write

import check
import gates
import objects
import xenguest
from common import Fail
from kernel import last_said
from tinyguest import Run

# What is really there, with Xen's lines where they happened to come.
BOOT = ("Xen 4.17\r\n(XEN) Xen version 4.17\r\n"
        "(XEN) *** Building a PV Dom0 ***\r\n"
        "[    0.000000] Booting kernel on Xen PV\r\r\n")
RAN = "@@ begin /a\r\r\n1..1\r\r\nok 1 one\n\n@@ end /a 0 2\n"
FACTS = ("@@ begin /sys/hypervisor/type\nxen\n\n"
         "@@ end /sys/hypervisor/type 0 0\n"
         "@@ begin /sys/hypervisor/guest_type\n{type}\n\n"
         "@@ end /sys/hypervisor/guest_type 0 0\n"
         "@@ begin /sys/devices/system/cpu/online\n{online}\n\n"
         "@@ end /sys/devices/system/cpu/online 0 0\n@@ done 4\n")
WELL = BOOT + RAN + FACTS.format(type="PV", online="0-1")


class CommandLine(unittest.TestCase):
    """qemu_command(): QEMU, Xen, the kernel."""

    def command(self, *arguments):
        command = xenguest.qemu_command(Path("/a, b/xen"), *arguments)
        return command, {command[n]: command[n + 1]
                         for n in range(len(command) - 1)
                         if command[n].startswith("-")}

    def test_emulated_with_so_many_processors(self):
        command, value = self.command(2, 1024)
        self.assertEqual(command[0], "qemu-system-x86_64")
        self.assertEqual(value["-accel"], "tcg")
        self.assertEqual((value["-smp"], value["-m"]), ("2", "1024M"))
        self.assertIn("-no-reboot", command)
        self.assertEqual(value["-kernel"], "/a, b/xen")

    def test_what_xen_gets(self):
        words = self.command(4, 1024)[1]["-append"].split()
        for word in ("console=com1", "dom0_max_vcpus=4", "dom0_mem=768M"):
            self.assertIn(word, words)
        # QEMU ends when Xen wants to start the machine again.
        self.assertNotIn("noreboot", words)

    def test_what_the_kernel_gets(self):
        modules = self.command(2, 512, " a=1 ")[1]["-initrd"]
        self.assertRegex(modules, "^bzImage .* a=1,initramfs$")
        self.assertIn(" console=hvc0 panic=-1 ", modules)

    def test_a_comma_does_not_end_it(self):
        modules = self.command(2, 512, "mce=1,2")[1]["-initrd"]
        self.assertTrue(modules.endswith(" mce=1,,2,initramfs"), modules)


class Console(unittest.TestCase):
    """split_console(), check_xen(), check_facts()."""

    def test_a_line_of_xen_s_within_one_of_the_domain_s(self):
        said, text = xenguest.split_console(
            "(XEN) one\r\nok 1 fi(XEN) two\nrst\n(XEN)\nend\n(XEN) cut")
        self.assertEqual(said, "(XEN) one\n(XEN) two\n(XEN)\n(XEN) cut")
        self.assertEqual(text, "ok 1 first\nend\n")

    def test_xen_that_is_well(self):
        said, text = xenguest.split_console(WELL)
        xenguest.check_xen(said, Path("none"))
        self.assertNotIn("XEN", text)

    def refused(self, said, words):
        with self.assertRaises(Fail) as caught:
            xenguest.check_xen(said, Path("none"))
        self.assertIn(words, str(caught.exception))

    def test_no_xen(self):
        self.refused("", "Xen did not start")

    def test_no_pv_domain(self):
        self.refused("(XEN) Xen version\n(XEN) *** Building a PVH Dom0 ***\n",
                     "built no PV domain")

    def test_a_panic_of_xen(self):
        self.refused("(XEN) *** Building a PV Dom0 ***\n(XEN) Panic on CPU 0:"
                     "\n(XEN) Could not construct domain 0\n",
                     "Xen panics: Could not construct domain 0")

    def test_facts(self):
        found = {"/sys/hypervisor/type": "xen\n",
                 "/sys/hypervisor/guest_type": "PV\n",
                 xenguest.ONLINE: "0-1\n"}
        xenguest.check_facts(found, 2)
        xenguest.check_facts(found | {xenguest.ONLINE: "0\n"}, 1)
        for path, value in ((xenguest.ONLINE, "0\n"),
                            ("/sys/hypervisor/guest_type", "PVH\n"),
                            ("/sys/hypervisor/type", "")):
            with self.subTest(path), self.assertRaises(Fail) as caught:
                xenguest.check_facts(found | {path: value}, 2)
            self.assertIn(path, str(caught.exception))


class Boot(Case):
    """boot_xen() with a QEMU that says this."""

    def boot(self, said, status=0, image=True):
        program = self.temp / "a"
        program.write_bytes(b"")
        if image:
            (self.temp / "bzImage").write_bytes(b"")
        self.called = []

        def fake(command, log, **more):
            if command[0] == "gcc":
                Path(command[command.index("-o") + 1]).write_bytes(b"")
                return 0
            self.called.append((command, sorted(
                path.name for path in Path(more["cwd"]).iterdir())))
            write(log.parent, {log.name: said})
            return status

        with mock.patch.object(xenguest, "run_logged", fake), \
                mock.patch("tinyguest.run_logged", fake), \
                mock.patch.object(xenguest, "need_tool"), \
                mock.patch.object(xenguest, "get_xen",
                                  lambda: self.temp / "xen"), \
                mock.patch.object(xenguest, "BUILD", self.temp), \
                mock.patch.object(xenguest, "LOGS", self.temp):
            return xenguest.boot_xen(self.temp / "bzImage",
                                     [(program, [])], timeout=7)

    def test_well(self):
        (name, run), = self.boot(WELL)
        self.assertEqual((name, run.status), ("a", 0))
        self.assertEqual(run.output, "1..1\nok 1 one\n\n")
        (_, files), = self.called
        self.assertEqual(files, ["bzImage", "init", "initramfs"])
        self.assertNotIn("XEN", (self.temp / "xen.dom0").read_text())
        self.assertEqual(list(self.temp.glob("guest-*")), [])

    def test_what_must_not_pass(self):
        for said, words in (
                ("", "Xen did not start"),
                (BOOT, "ended too early"),
                (BOOT + RAN, "ended too early"),
                (WELL.replace("@@ begin /a\r", "@@ begin /b\r"),
                 "not all programs ran"),
                (WELL.replace("\nPV\n", "\nPVH\n"), "and not 'PV'"),
                (WELL.replace("0-1", "0"), "and not '0-1'")):
            with self.subTest(words), self.assertRaises(Fail) as caught:
                self.boot(said)
            self.assertIn(words, str(caught.exception))
            self.assertEqual(list(self.temp.glob("guest-*")), [])

    def test_a_guest_that_hangs(self):
        with self.assertRaises(Fail) as caught:
            self.boot(BOOT, None)
        self.assertIn("did not end within 7 s", str(caught.exception))

    def test_no_kernel(self):
        with self.assertRaises(Fail) as caught:
            self.boot(WELL, image=False)
        self.assertIn("there is no kernel", str(caught.exception))
        self.assertEqual(self.called, [])


class Package(Case):
    """Where the hypervisor comes from."""

    def setUp(self):
        super().setUp()
        for name, value in (("BUILD", self.build),
                            ("LOGS", self.build / "logs"),
                            ("DOWNLOAD", self.build / "download"),
                            ("HYPERVISOR", self.build / "xen/xen"),
                            ("private_apt", lambda suite: self.temp / suite)):
            patch = mock.patch.object(xenguest, name, value)
            patch.start()
            self.addCleanup(patch.stop)
        self.place = self.build / "download/xen"

    def make_package(self, files):
        """Write a .deb with files ({path: bytes}) where it is looked for."""
        root = self.temp / "root"
        write(root, {"DEBIAN/control":
                     "Package: xen-hypervisor-4.17-amd64\nVersion: 1\n"
                     "Architecture: amd64\nMaintainer: A Tester\n"
                     "Description: test\n", **files})
        self.place.mkdir(parents=True)
        subprocess.run(
            ["dpkg-deb", "-b", str(root), str(
                self.place / "xen-hypervisor-4.17-amd64_1_amd64.deb")],
            check=True, capture_output=True)

    def get(self):
        """Call get_xen() without its stages on the screen."""
        with redirect_stdout(io.StringIO()):
            return xenguest.get_xen()

    def refused(self, *words):
        with self.assertRaises(Fail) as caught:
            self.get()
        for word in words:
            self.assertIn(word, str(caught.exception))
        self.assertFalse(xenguest.HYPERVISOR.exists())

    def test_the_newest_of_a_list(self):
        self.assertEqual(xenguest.newest(
            "xen-hypervisor-4.9-amd64 - a\nxen-hypervisor-4.17-amd64 - b\n"
            "xen-hypervisor-4.18-amd64-dbg - c\nxen-utils-5 - d\n"),
            "xen-hypervisor-4.17-amd64")
        self.assertIsNone(xenguest.newest(""))

    def test_nothing_to_be_had(self):
        calls = []

        def fake(command, log, env, **_):
            calls.append((command[1], Path(env["APT_CONFIG"]).name))
            return 100

        with mock.patch.object(xenguest, "run_logged", fake):
            self.refused("no Xen hypervisor is to be had",
                         "bookworm or trixie", ".deb into")
        self.assertEqual(calls, [("update", suite)
                                 for suite in xenguest.SUITES])

    def test_the_second_suite_has_it(self):
        calls = []

        def fake(command, log, env, cwd=None, **_):
            suite = Path(env["APT_CONFIG"]).name
            calls.append((command[1], suite))
            if command[1] == "download":
                write(cwd, {f"{command[2]}_1_amd64.deb": b""})
            return 100 if suite == "bookworm" else 0

        listed = mock.Mock(stdout="xen-hypervisor-4.20-amd64 - Xen\n")
        with mock.patch.object(xenguest, "run_logged", fake), \
                mock.patch.object(xenguest.subprocess, "run",
                                  return_value=listed):
            found = xenguest.download_xen()
            self.assertEqual(found, self.place /
                             "xen-hypervisor-4.20-amd64_1_amd64.deb")
            self.assertEqual(calls[1:], [("update", "trixie"),
                                         ("download", "trixie")])
            # And it is not asked for again.
            self.assertEqual(xenguest.download_xen(), found)
        self.assertEqual(len(calls), 3)

    def test_it_is_taken_apart(self):
        if not shutil.which("dpkg-deb"):
            self.skipTest("dpkg-deb is not there")
        image = b"\0" * 64 + xenguest.MULTIBOOT + b"x" * 9000
        self.make_package({"boot/xen-4.17-amd64.gz": gzip.compress(image)})
        self.assertEqual(self.get().read_bytes(), image)
        # And is there from now on.
        shutil.rmtree(self.place)
        self.assertEqual(self.get().read_bytes(), image)

    def test_a_damaged_package(self):
        if not shutil.which("dpkg-deb"):
            self.skipTest("dpkg-deb is not there")
        self.make_package({"boot/xen-4.17-amd64.gz": b"no"})
        self.refused("is damaged", "remove it")

    def test_a_package_without_a_hypervisor(self):
        if not shutil.which("dpkg-deb"):
            self.skipTest("dpkg-deb is not there")
        self.make_package({})
        self.refused("holds 0 hypervisors")

    def test_one_that_qemu_cannot_start(self):
        with self.assertRaises(Fail):
            xenguest.check_multiboot(b"\0" * 9000 + xenguest.MULTIBOOT)
        xenguest.check_multiboot(b"\0" * 12 + xenguest.MULTIBOOT)


class Verdicts(Case):
    """judge(): a program must pass at least one case and fail none."""

    def judge(self, status, *rows, plan=None):
        plan = len(rows) if plan is None else plan
        return xenguest.judge(Run(status, "TAP version 13\n" + "".join(
            f"{row}\n" for row in (f"1..{plan}", *rows))))

    def test_all_kinds(self):
        for wanted, status, rows in (
                ("pass", 0, ["ok 1 a"]),
                ("pass", 0, ["ok 1 a", "ok 2 # SKIP b: no"]),
                ("skip", 4, ["ok 1 # SKIP a: no"]),
                ("skip", 0, ["ok 1 # SKIP a: no"]),
                ("fail", 1, ["ok 1 a", "not ok 2 b"]),
                ("fail", 0, ["not ok 1 a"]),
                ("fail", 139, ["ok 1 a"]),
                ("fail", None, ["ok 1 a"])):
            with self.subTest(rows, status=status):
                self.assertEqual(self.judge(status, *rows)[0], wanted)

    def test_what_is_said(self):
        self.assertEqual(self.judge(0, "ok 1 a", "ok 2 # SKIP b: no"),
                         ("pass", "1 pass, 0 fail, 1 skip"))
        self.assertIn("failed: b", self.judge(1, "ok 1 a", "not ok 2 b")[1])

    def test_a_plan_that_is_not_kept(self):
        self.assertEqual(self.judge(0, "ok 1 a", plan=2)[0], "fail")

    def test_no_plan(self):
        self.assertEqual(xenguest.judge(Run(0, "hello\n"))[0], "fail")
        self.assertEqual(xenguest.judge(Run(4, "hello\n"))[0], "skip")

    def count(self, *runs):
        tally = check.Tally()
        out = io.StringIO()
        with redirect_stdout(out):
            gates.count_xen(tally, "Xen PV dom0", runs, self.temp / "log")
        return (tally.passed, tally.failed, tally.skipped), out.getvalue()

    def test_each_counts_as_one(self):
        well = Run(0, "1..1\nok 1 a\n")
        skip = Run(4, "1..1\nok 1 # SKIP a: no\n")
        wrong = Run(1, "1..1\nnot ok 1 a\n")
        counted, out = self.count(("ioperm_64", well),
                                  ("ioperm_faults_64", skip),
                                  ("iopl_64", wrong))
        self.assertEqual(counted, (1, 1, 1))
        self.assertIn("ioperm_64, 1 pass", out)
        # That nothing ran is expected of one program only.
        self.assertEqual(self.count(("ioperm_64", skip))[0], (0, 1, 0))


class Gate(Case):
    """group_xen() and what it is made of."""

    def test_it_is_one_of_the_usual_gates(self):
        self.assertIs(gates.GATES["xen"], gates.group_xen)
        self.assertIn("xen", gates.USUAL_GATES)

    def test_the_configuration_is_a_first_domain(self):
        fragments = objects.KNOWN["xendom0"].fragments
        said = last_said("".join(path.read_text() for path in fragments))
        for name in ("XEN_PV", "XEN_PV_DOM0", "XEN_PV_SMP", "HVC_XEN",
                     "XEN_SYS_HYPERVISOR", "ACPI", "PCI", "SMP"):
            self.assertIn(f"CONFIG_{name}=y\n", said)

    # What the probe prints where each CPU's ports are open, and where not.
    OPEN = "1..2\nnot ok 1 cpu0.no_other_port\nnot ok 2 cpu1.no_other_port\n"
    FINE = OPEN.replace("not ok", "ok")

    def run_group(self, get_xen=lambda: None, boot=None, probe=OPEN):
        """Call group_xen() where nothing is built; returns the tally."""
        self.boots = []

        def fake_boot(image, programs, name, append="", **_):
            names = [path.name for path, _ in programs]
            self.boots.append((name, names, append))
            write(self.temp, {f"{name}.dom0": "well\n"})
            return [(found, Run(0, "1..1\nok 1 a\n")
                     if name != "gates-xen-planted" else Run(1, probe))
                    for found in names]

        tree = self.temp / "tree"
        file = tree / "arch/x86/kernel/process.c"

        def fake_build(name, tree=None):
            # As gate_tree() does, which it calls otherwise.
            if not tree:
                file.write_text("\n")
            self.built.append("planted_open" in file.read_text())

        self.built = []
        write(tree, {"arch/x86/kernel/process.c": "\n"})
        tally = check.Tally()
        names = {"begin": lambda: None, "get_xen": get_xen,
                 "build_image": fake_build,
                 "gate_tree": lambda _: tree,
                 "test_sources": lambda _: ["a.c"],
                 "build_programs": lambda *_: (
                     [Path("ioperm_64"), Path("ioperm_latency_64")], None),
                 "build_probe": lambda _: Path("xenports"),
                 "boot_xen": boot or fake_boot, "LOGS": self.temp}
        out = io.StringIO()
        with mock.patch.multiple(gates, **names), redirect_stdout(out):
            gates.group_xen(tally)
        self.out = out.getvalue()
        self.assertEqual(file.read_text(), "\n")
        return tally

    def test_all_pass(self):
        tally = self.run_group()
        # Hypervisor, planted, build; twice boot, programs, no splat.
        self.assertEqual((tally.passed, tally.failed), (3 + 5 + 3, 0),
                         self.out)
        self.assertEqual(self.built, [True, False])
        self.assertEqual(self.boots, [
            ("gates-xen-planted", ["xenports"], ""),
            ("gates-xen", ["xenports", "ioperm_64", "ioperm_latency_64"], ""),
            ("gates-xen-cpu1", ["ioperm_64"], "isolcpus=0")])

    def test_no_hypervisor(self):
        tally = self.run_group(mock.Mock(side_effect=Fail("none")))
        self.assertEqual((tally.passed, tally.failed), (0, 1))

    def test_a_probe_that_finds_nothing(self):
        for said in (self.FINE, self.OPEN.replace("not ok 2", "ok 2"), ""):
            tally = self.run_group(probe=said)
            self.assertEqual(tally.failed, 1)
            self.assertIn("FAIL  Xen PV dom0: finds planted open ports",
                          self.out)

    def test_a_domain_that_does_not_come_up(self):
        tally = self.run_group(boot=mock.Mock(side_effect=Fail("hangs")))
        self.assertEqual((tally.passed, tally.failed), (2, 3))

    def test_a_splat(self):
        with mock.patch.object(gates, "check_splat",
                               side_effect=Fail("WARNING: ")):
            self.assertEqual(self.run_group().failed, 2)


class Probe(Case):
    """scripts/xenports.c."""

    def test_it_compiles(self):
        if not shutil.which("gcc"):
            self.skipTest("gcc is not there")
        done = subprocess.run(
            ["gcc", "-Wall", "-Wextra", "-Werror", "-fsyntax-only",
             str(xenguest.ROOT / "scripts/xenports.c")],
            capture_output=True, text=True)
        self.assertEqual(done.returncode, 0, done.stderr)


if __name__ == "__main__":
    unittest.main()
