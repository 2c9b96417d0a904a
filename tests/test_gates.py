# SPDX-License-Identifier: GPL-2.0-only
"""The gates' logic: what is compared, what counts as a tool that ran."""

import io
import shutil
import stat
import unittest
from collections import Counter
from contextlib import redirect_stdout
from pathlib import Path
from unittest import mock

from helper import Case, make_clone, commit, git, write

import check
import gates
import objects
import tinyguest
from common import Fail

GCC = ("../arch/x86/kernel/ioport.c:{}:12: warning: unused variable 'a' "
       "[-Wunused-variable]\n")


def quiet(function, *arguments):
    """Call a function and return (its result, what it printed)."""
    out = io.StringIO()
    with redirect_stdout(out):
        result = function(*arguments)
    return result, out.getvalue()


class Warnings(unittest.TestCase):
    """warnings_in(), new_warnings(): the comparison with the base."""

    def test_a_line_that_moved_is_the_same_warning(self):
        before = objects.warnings_in(GCC.format(10))
        after = objects.warnings_in(GCC.format(200))
        self.assertEqual(objects.new_warnings(before, after), [])
        self.assertEqual(list(before), [
            "arch/x86/kernel/ioport.c: warning: unused variable 'a' "
            "[-Wunused-variable]"])

    def test_one_more_of_a_kind_is_new(self):
        before = objects.warnings_in(GCC.format(10))
        after = objects.warnings_in(GCC.format(10) + GCC.format(11))
        self.assertEqual(len(objects.new_warnings(before, after)), 1)
        self.assertEqual(objects.new_warnings(after, before), [])

    def test_the_folder_of_the_tree_does_not_count(self):
        rows = [f"{place}kernel/fork.c:3: WARNING: no\n" for place in
                ("", "../../../", "/a/build/gates/tree/",
                 "/b/c/gates/tree/")]
        self.assertEqual(len({row for text in rows for row in
                              objects.warnings_in(text)}), 1)

    def test_all_kinds_of_words(self):
        for text in ("a.o: warning: objtool: f() falls through",
                     "Warning: a.c:3 function parameter 'b' not described",
                     "a.c:1:2: error: 'b' undeclared",
                     "ld.lld-19: error: undefined symbol: b",
                     "/x/gates/tree/a.rst:7: WARNING: undefined label"):
            with self.subTest(text):
                self.assertEqual(objects.warnings_in(text).total(), 1)

    def test_what_is_no_warning(self):
        self.assertEqual(objects.warnings_in(
            "  CC      kernel/warning.o\n  CC      lib/error.o\n"
            "make[2]: *** [a.o] Error 1\n"
            "a.c:3: note: in expansion of macro 'warn'\n"), Counter())

    def test_report_counts_one_test(self):
        tally = check.Tally()
        row = Counter({"a.c: warning: b": 1})
        _, out = quiet(gates.report, tally, "it", row, row)
        self.assertIn("1 warnings, none new", out)
        _, out = quiet(gates.report, tally, "it", Counter(), row)
        self.assertIn("1 new\n    | a.c: warning: b", out)
        self.assertEqual((tally.passed, tally.failed), (1, 1))


class Checkpatch(unittest.TestCase):
    """excused(): what checkpatch takes for arithmetic."""

    WORDS = ("CHECK:SPACING: spaces preferred around that '*' (ctx:WxV)\n"
             "#198: FILE: tools/testing/selftests/x86/ioport_regset.c:147:\n")

    def test_a_type_of_the_harness_is_no_multiplication(self):
        self.assertTrue(check.excused(
            self.WORDS + "+static int a(FIXTURE_DATA(regset) *self)"))

    def test_other_lines_and_other_findings_count(self):
        self.assertFalse(check.excused(self.WORDS + "+\ta = b *c;"))
        self.assertFalse(check.excused(
            "ERROR:COMPLEX_MACRO: Macros\n+#define A FIXTURE_DATA(b) *c"))


class Objects(Case):
    """Which objects hold what a patch touches."""

    def setUp(self):
        super().setUp()
        self.tree = self.temp / "tree"
        write(self.tree, {
            "Kbuild": "obj-y\t+= arch/$(SRCARCH)/ kernel/\n",
            "arch/x86/Kbuild": "obj-y += kernel/\n"
            "obj-$(subst m,y,$(CONFIG_HYPERV)) += hyperv/\n",
            "arch/x86/hyperv/Makefile": "obj-y := hv.o\n",
            "arch/x86/hyperv/hv.c": "\n",
            "arch/x86/kernel/Makefile":
            "obj-y\t\t+= process_$(BITS).o ioport.o \\\n\tother.o # x.o\n"
            "obj-$(CONFIG_TEST)\t+= test.o\nobj-y += whole.o\n"
            "whole-y := part.o\nwhole-$(CONFIG_MORE) += more.o\n",
            "kernel/Makefile": "obj-y = build.o\n",
            "kernel/build.c": '#include "part.c"\n',
            "kernel/part.c": "\n", "kernel/lost.c": "\n",
            **{f"arch/x86/kernel/{name}.c": "\n" for name in
               ("process_32", "process_64", "ioport", "other", "x", "test",
                "whole", "part", "more")}})

    def found(self, path, config=""):
        return objects.objects_of(path, self.tree, config)

    def test_always_and_behind_a_line_break(self):
        for name in ("ioport", "other", "part"):
            self.assertEqual(self.found(f"arch/x86/kernel/{name}.c"),
                             [f"arch/x86/kernel/{name}.o"])

    def test_a_comment_is_no_object(self):
        self.assertEqual(self.found("arch/x86/kernel/x.c"), [])

    def test_behind_an_option(self):
        path = "arch/x86/kernel/test.c"
        self.assertEqual(self.found(path), [])
        self.assertEqual(self.found(path, "# CONFIG_TEST is not set\n"), [])
        for value in "ym":
            self.assertEqual(self.found(path, f"CONFIG_TEST={value}\n"),
                             ["arch/x86/kernel/test.o"])

    def test_part_of_another_behind_an_option(self):
        path = "arch/x86/kernel/more.c"
        self.assertEqual(self.found(path), [])
        self.assertEqual(self.found(path, "CONFIG_MORE=y\n"),
                         ["arch/x86/kernel/more.o"])

    def test_a_folder_behind_an_option(self):
        path = "arch/x86/hyperv/hv.c"
        self.assertEqual(self.found(path), [])
        self.assertEqual(self.found(path, "CONFIG_HYPERV=m\n"),
                         ["arch/x86/hyperv/hv.o"])

    def test_bits(self):
        path = "arch/x86/kernel/process_{}.c"
        self.assertEqual(self.found(path.format(64)), [])
        self.assertEqual(len(self.found(path.format(32))), 1)
        self.assertEqual(
            len(self.found(path.format(64), "CONFIG_64BIT=y\n")), 1)

    def test_a_file_that_another_includes(self):
        self.assertEqual(self.found("kernel/part.c"), ["kernel/build.o"])

    def test_a_file_that_nobody_knows(self):
        self.assertEqual(self.found("kernel/lost.c"), [])
        self.assertEqual(self.found("kernel/missing.c"), [])

    def test_a_header_brings_its_includers(self):
        tree = make_clone(self.temp / "clone")
        commit(tree, "More", files={
            "arch/x86/include/asm/ports.h": "\n",
            "arch/x86/kernel/a.c": "#include <asm/ports.h>\n",
            "drivers/b.c": "#include <asm/ports.h>\n",
            "kernel/sched/sched.h": "\n",
            "kernel/sched/c.c": '#include "sched.h"\n'})
        self.assertEqual(
            objects.includers("arch/x86/include/asm/ports.h", tree),
            ["arch/x86/kernel/a.c"])
        self.assertEqual(objects.includers("kernel/sched/sched.h", tree),
                         ["kernel/sched/c.c"])
        found = objects.sources_for(
            ["arch/x86/include/asm/ports.h", "arch/x86/kernel/ioport.c",
             "tools/testing/selftests/x86/t.c"], tree)
        self.assertIn("arch/x86/kernel/a.c", found)
        self.assertIn("kernel/fork.c", found)
        self.assertNotIn("tools/testing/selftests/x86/t.c", found)

    def test_programs_of_a_selftest(self):
        write(self.tree, {
            "t/x86/Makefile": "TARGETS_C_BOTHBITS := a \\\n\tb\n"
            "TARGETS_C_64BIT_ONLY := c\nTARGETS_C_BOTHBITS += d\n",
            "t/sched/Makefile": "TEST_GEN_PROGS := yield\n"})
        for name, wanted in (("b", ["b_32", "b_64"]), ("c", ["c_64"]),
                             ("d", ["d_32", "d_64"]), ("e", [])):
            self.assertEqual(
                objects.program_names(self.tree, f"t/x86/{name}.c"), wanted)
        self.assertEqual(
            objects.program_names(self.tree, "t/sched/yield.c"), ["yield"])
        self.assertEqual(
            objects.program_names(self.tree, "t/sched/other.c"), [])


class Compile(Case):
    """compile_objects() with a make that only says what it did."""

    def setUp(self):
        super().setUp()
        self.tree = self.temp / "tree"
        write(self.tree, {"kernel/Makefile": "obj-y = a.o b.o\n",
                          "kernel/a.c": "\n", "kernel/b.c": "\n"})
        self.said = "  CC      kernel/a.o\n  CC      kernel/b.o\n"
        self.status = 0
        self.made = ("kernel/a.o", "kernel/b.o")
        for target, name, value in (
                (objects, "PLACE", self.temp / "gates"),
                (objects, "LOGS", self.temp / "logs"),
                (objects, "compiler_tools", lambda compiler: None),
                (objects, "configure", lambda *_: ""),
                (objects, "run_logged", self.fake_make)):
            patcher = mock.patch.object(target, name, value)
            patcher.start()
            self.addCleanup(patcher.stop)

    def fake_make(self, command, log, **_):
        """Stand for make: leave the objects and a log."""
        folder = objects.objects_folder("wide", "gcc")
        for name in ("kernel/a.o", "kernel/b.o"):
            self.assertFalse((folder / name).exists())
            self.assertIn(name, command)
        for name in self.made:
            write(folder, {name: "new"})
        write(log.parent, {log.name: self.said})
        return self.status

    def run_it(self):
        # An object of an earlier run, which make would leave as it is.
        write(objects.objects_folder("wide", "gcc"), {"kernel/a.o": "old"})
        return objects.compile_objects(
            self.tree, "wide", "gcc", ["kernel/a.c", "kernel/b.c"])

    def test_both_are_compiled_anew(self):
        built = self.run_it()
        self.assertEqual(built.objects, ["kernel/a.o", "kernel/b.o"])
        self.assertFalse(built.failed)
        self.assertEqual(built.warnings, Counter())

    def test_make_that_does_nothing_is_no_pass(self):
        self.said = ""
        with self.assertRaises(Fail) as caught:
            self.run_it()
        self.assertIn("did not compile kernel/a.o, kernel/b.o",
                      str(caught.exception))

    def test_one_that_is_left_out_is_no_pass(self):
        self.said = "  CC      kernel/a.o\n"
        with self.assertRaises(Fail) as caught:
            self.run_it()
        self.assertIn("did not compile kernel/b.o", str(caught.exception))

    def test_an_object_that_is_not_there_is_no_pass(self):
        self.made = ("kernel/b.o",)
        with self.assertRaises(Fail):
            self.run_it()

    def test_make_that_fails_without_a_word_is_no_pass(self):
        self.status = 2
        with self.assertRaises(Fail) as caught:
            self.run_it()
        self.assertIn("make failed", str(caught.exception))

    def test_an_error_is_a_failure_with_its_words(self):
        self.status = 2
        self.said += "kernel/b.c:3:1: error: no\n"
        built = self.run_it()
        self.assertTrue(built.failed)
        self.assertEqual(list(built.warnings), ["kernel/b.c: error: no"])

    def test_warnings_of_the_host_tools_do_not_count(self):
        self.said += "scripts/a.c:3:1: warning: no\n"
        self.assertEqual(self.run_it().warnings, Counter())

    def compare(self, base, series):
        """compare() with these warnings of the two sides."""
        said = {"applied": series, "base": base}
        asked = []

        def fake(tree, *_, **__):
            asked.append(tree)
            return objects.Built(["a.o"], Counter(said[tree]), False,
                                 self.temp / "log")

        with mock.patch.object(objects, "gate_tree", lambda side: side), \
                mock.patch.object(objects, "compile_objects", fake):
            try:
                return asked, objects.compare("wide", "gcc", [])
            except Fail as failure:
                return asked, failure

    def test_the_base_is_asked_only_when_there_is_a_warning(self):
        self.assertEqual(self.compare([], []), (["applied"], ["a.o"]))

    def test_the_base_s_own_warning_is_not_the_series_s(self):
        self.assertEqual(self.compare(["w"], ["w"]),
                         (["applied", "base"], ["a.o"]))

    def test_a_new_warning_fails(self):
        _, failure = self.compare(["w"], ["w", "new"])
        self.assertIsInstance(failure, Fail)
        self.assertIn("1 new", str(failure))
        self.assertIn("    | new", str(failure))

    # --- sparse ---

    def sparse(self):
        return gates.sparse_warnings(self.tree, "wide", [
            "kernel/a.c", "kernel/b.c"], "sparse")

    def test_sparse_that_the_kernel_skips_is_no_pass(self):
        self.said = ("Makefile:1: C=2 specified, but sparse is not available "
                     "or not up to date\n" + self.said)
        with self.assertRaises(Fail) as caught:
            self.sparse()
        self.assertIn("skips it", str(caught.exception))

    def test_sparse_that_looks_at_one_file_is_no_pass(self):
        self.said += "  CHECK   ../../tree/kernel/a.c\n"
        with self.assertRaises(Fail) as caught:
            self.sparse()
        self.assertIn("did not run on kernel/b.o", str(caught.exception))

    def test_sparse_on_both(self):
        self.said += ("  CHECK   ../tree/kernel/a.c\n  CHECK   kernel/b.c\n"
                      "../tree/kernel/a.c:3:1: warning: wrong\n"
                      "../tree/include/x.h:3:1: warning: not ours\n")
        with mock.patch.object(objects, "warnings_in", lambda text: Counter(
                {"kernel/a.c: warning: wrong": 1,
                 "include/x.h: warning: not ours": 1})):
            found, count = self.sparse()
        self.assertEqual(list(found), ["kernel/a.c: warning: wrong"])
        self.assertEqual(count, 2)


class Prefixes(Case):
    """check_prefixes(): each patch by itself."""

    COMMITS = [("1" * 40, "One", ["kernel/a.c"]),
               ("2" * 40, "Two", ["Documentation/a.rst"]),
               ("3" * 40, "Three", ["kernel/b.c"])]

    def run_it(self, *results):
        """check_prefixes() where the compilations end so; the Tally."""
        tally = check.Tally()
        results = list(results)

        def fake(tree, *_, **__):
            return results.pop(0)

        with mock.patch.object(objects, "prefixes",
                               lambda *_: self.COMMITS), \
                mock.patch.object(objects, "gate_tree", lambda side: side), \
                mock.patch.object(objects, "touched_files", lambda _: []), \
                mock.patch.object(objects, "series_patches", lambda: []), \
                mock.patch.object(objects, "compile_objects", fake):
            _, out = quiet(objects.check_prefixes, tally)
        self.assertEqual(results, [])
        return tally, out

    def built(self, names=("a.o",), warnings=(), failed=False):
        log = self.temp / "log"
        log.write_text("")
        return objects.Built(list(names), Counter(warnings), failed, log)

    def test_all_is_well(self):
        tally, out = self.run_it(self.built(), self.built())
        self.assertEqual((tally.passed, tally.failed), (3, 0))
        self.assertIn("nothing to compile", out)

    def test_a_patch_that_does_not_build_alone(self):
        broken = self.built(warnings=["a.c: error: 'x' undeclared"],
                            failed=True)
        tally, out = self.run_it(broken, self.built(), broken, self.built())
        self.assertEqual((tally.passed, tally.failed), (2, 1))
        self.assertIn("FAIL  prefix 1: One", out)

    def test_a_warning_of_the_base(self):
        old = self.built(warnings=["a.c: warning: old"])
        tally, _ = self.run_it(old, old, old, self.built())
        self.assertEqual((tally.passed, tally.failed), (3, 0))

    def test_nothing_compiled_is_no_pass(self):
        tally, out = self.run_it(self.built(()), self.built())
        self.assertEqual((tally.passed, tally.failed), (2, 1))
        self.assertIn("nothing was compiled", out)


class Coccinelle(Case):
    """run_rule(): a rule that ran against one that could not."""

    def setUp(self):
        super().setUp()
        self.file = self.temp / "a.c"
        self.rule = self.temp / "a.cocci"
        write(self.temp, {"a.c": "\n", "a.cocci":
                          "// Options: --no-includes\nvirtual report\n"})

    def run_it(self, script):
        self.stub("spatch", script)
        with mock.patch.dict("os.environ", {
                "PATH": f"{self.bin}:/usr/bin:/bin"}):
            return gates.run_rule(self.rule, [self.file], self.temp)

    def test_clean(self):
        self.assertEqual(self.run_it("true\n"), ([], None))

    def test_its_options_are_given(self):
        self.run_it(f'echo "$@" >"{self.temp}/said"\n')
        said = (self.temp / "said").read_text()
        self.assertIn("-D report", said)
        self.assertIn(f"--cocci-file {self.rule} --no-includes", said)

    def test_a_finding_has_no_line_number(self):
        found, why = self.run_it(
            f'echo "{self.file}:3:7-9: Unneeded semicolon"\n'
            'echo "/other/b.c:1: not asked for"\n')
        self.assertIsNone(why)
        self.assertEqual(len(found), 1)
        self.assertIn("Unneeded semicolon", found[0])
        self.assertNotIn(":3", found[0])

    def test_a_rule_that_fails_could_not_run(self):
        self.assertEqual(self.run_it('echo "no such macro" >&2; exit 1\n'),
                         (None, "no such macro"))

    def test_an_exception_with_status_0_could_not_run(self):
        found, why = self.run_it('echo "EXN: Failure(no python)" >&2\n')
        self.assertIsNone(found)
        self.assertIn("no python", why)

    def test_a_rule_without_report_mode(self):
        write(self.temp, {"a.cocci": "virtual patch\n"})
        self.assertEqual(self.run_it("true\n"),
                         (None, "has no report mode"))
        write(self.temp, {"a.cocci": "virtual patch,report\n"})
        self.assertEqual(self.run_it("true\n"), ([], None))


class Planted(Case):
    """Planted faults: put back, and judged by the right reason."""

    def test_the_file_is_put_back_whatever_happens(self):
        write(self.temp, {"a.c": "one\n"})
        with self.assertRaises(KeyError), \
                objects.planted(self.temp, "a.c", "two\n"):
            self.assertEqual((self.temp / "a.c").read_text(), "one\ntwo\n")
            raise KeyError
        self.assertEqual((self.temp / "a.c").read_text(), "one\n")
        with objects.planted(self.temp, "a.c", str.upper):
            self.assertEqual((self.temp / "a.c").read_text(), "ONE\n")

    def fails(self, text):
        raise Fail(text)

    def test_must_fail(self):
        gates.must_fail(self.fails, "it is TRAILING", says="TRAILING")
        with self.assertRaises(Fail):
            gates.must_fail(self.fails, "no tool", says="TRAILING")
        with self.assertRaises(Fail):
            gates.must_fail(lambda: None, says="TRAILING")

    def test_must_find(self):
        gates.must_find("it", ["a b", "c"], "a", "b")
        with self.assertRaises(Fail):
            gates.must_find("it", ["a", "b"], "a", "b")

    def test_every_fault_of_the_list_has_a_test(self):
        self.assertEqual(len(gates.PLANTS), 7)
        self.assertEqual(len(set(gates.PLANTS.values())), 7)

    def test_two_commits_of_which_the_first_needs_the_second(self):
        repo = make_clone(self.temp / "clone")
        with mock.patch.object(gates, "REPO", repo), \
                mock.patch.object(gates, "BUILD", self.temp):
            first = gates.commit_file("HEAD", "mm/mmap.c", "one\n", "One")
            second = gates.commit_file(first, "mm/mmap.c", "two\n", "Two")
        self.assertEqual(git(repo, "show", f"{second}:mm/mmap.c"), "two\n")
        self.assertEqual(git(repo, "rev-list", f"HEAD..{second}").split(),
                         [second, first])
        self.assertEqual(git(repo, "diff", "--name-only", "HEAD",
                             second).split(), ["mm/mmap.c"])


class Groups(Case):
    """What is run, and what counts."""

    def test_a_gate_in_which_nothing_ran_fails(self):
        tally = check.Tally()

        def empty(_):
            """Nothing."""

        _, out = quiet(check.run_groups, tally, {"empty": empty})
        self.assertEqual((tally.passed, tally.failed), (0, 1))
        self.assertIn("nothing of it ran", out)

    def test_a_gate_that_fails_is_one_failure(self):
        tally = check.Tally()

        def broken(_):
            """Broken."""
            raise Fail("no base")

        _, out = quiet(check.run_groups, tally, {"broken": broken})
        self.assertEqual(tally.failed, 1)
        self.assertIn("no base", out)

    def test_a_touched_file_that_no_configuration_compiles(self):
        write(self.temp, {"kernel/a.c": "\n", "kernel/b.c": "\n",
                          "kernel/all.c": '#include "b.c"\n'})
        with mock.patch.object(gates, "gate_tree", lambda _: self.temp):
            gates.check_coverage(["kernel/a.c", "kernel/b.c", "tools/t.c"],
                                 {"kernel/a.o", "kernel/all.o"})
            with self.assertRaises(Fail) as caught:
                gates.check_coverage(["kernel/a.c", "kernel/b.c"],
                                     {"kernel/all.o"})
        self.assertIn("compiles kernel/a.c", str(caught.exception))

    def test_folders_of_documents(self):
        self.assertEqual(gates.docs_folders([]), ["arch/x86"])
        self.assertEqual(gates.docs_folders([
            "Documentation/scheduler/sched-yield.rst",
            "Documentation/scheduler/index.rst", "kernel/a.c",
            "Documentation/arch/x86/ioperm.rst"]), ["arch/x86", "scheduler"])

    def test_an_exit_status_is_counted_as_kselftest_has_it(self):
        tally = check.Tally()
        for status, word in ((0, "ok    t"), (1, "FAIL  t: exit status 1"),
                             (124, "FAIL"), (4, "FAIL  t: skipped")):
            _, out = quiet(gates.count_result, tally, "t", status,
                           Path("/log"))
            self.assertIn(word, out)
        self.assertEqual((tally.passed, tally.failed), (1, 3))


class Bisection(Case):
    """group_bisect(): what passed is known, what failed is tried again."""

    def run_it(self, failing=(), also=()):
        """Run it over three prefixes; returns the tally and what ran.

        also: published results (list of Path).
        """
        ran, tally, self.known = [], check.Tally(), []

        def prefix(noted, title, commit, subject, known, passed):
            ran.append(subject)
            if subject in failing:
                noted.fail(title, "planted")
            noted.ok(f"{title}: {subject}")
            noted.skip("smatch", "not there")
            self.known.append(set(passed))
            passed.add((subject, "program", "sum"))

        with mock.patch.multiple(
                gates, begin=mock.DEFAULT, bisect_prefix=prefix,
                build_image=lambda *_, **__: (None, Counter()),
                prefixes=lambda: [(name, name, []) for name in "abc"],
                bisect_key=lambda number, name: f"{number}{name}",
                RESULTS=self.temp, BISECTED=self.temp / "bisect.json",
                PUBLISHED=self.temp / "published.json",
                KNOWN_PREFIXES=[self.temp / "bisect.json", *also]):
            quiet(gates.group_bisect, tally)
        return tally, ran

    def test_a_second_run_goes_on(self):
        tally, ran = self.run_it(failing=("b",))
        self.assertEqual((tally.passed, tally.failed, tally.skipped),
                         (3, 1, 3))
        self.assertEqual(ran, ["a", "b", "c"])
        tally, ran = self.run_it()
        self.assertEqual((tally.passed, tally.failed, tally.skipped),
                         (3, 0, 3))
        self.assertEqual(ran, ["b"])
        # What passed in the first run needs not run again.
        self.assertEqual(self.known, [{("a", "program", "sum")}])

    def test_published_prefixes_count_when_they_are_asked_for(self):
        place = self.temp / "published.json"
        self.run_it(failing=("b",))
        with mock.patch.multiple(gates, PUBLISHED=place,
                                 BISECTED=self.temp / "bisect.json"):
            quiet(gates.publish)
            (self.temp / "bisect.json").unlink()
            self.assertRaises(Fail, gates.publish)
        tally, ran = self.run_it(also=(place,))
        self.assertEqual(ran, ["b"])
        self.assertEqual((tally.passed, tally.failed), (3, 0))
        (self.temp / "bisect.json").unlink()
        self.assertEqual(self.run_it()[1], ["a", "b", "c"])

    def test_another_tree_is_another_key(self):
        with mock.patch.object(gates, "git", lambda *words, **_: words[1]):
            self.assertNotEqual(gates.bisect_key(1, "a"),
                                gates.bisect_key(1, "b"))
            self.assertEqual(gates.bisect_key(1, "a"),
                             gates.bisect_key(1, "a"))


class BisectPrefix(Case):
    """bisect_prefix(): what is the same to the byte is not run again."""

    def setUp(self):
        super().setUp()
        self.tally, self.passed, self.ran = check.Tally(), set(), []
        self.failing = False

    def prefix(self, kernel="k", programs=(), yields=()):
        """Run it on programs, {name: what is in it}; returns what ran."""
        self.ran = []
        place = self.temp / "tree"
        shutil.rmtree(place, ignore_errors=True)

        def build(tree, sources, folder, compiler):
            made = []
            for path, inside in (dict(yields) if folder.name == "sched"
                                 else dict(programs)).items():
                write(folder, {path: inside})
                made.append(folder / path)
            return made, ""

        def run(tally, title, folder, paths, *rest):
            self.ran.append([path.name for path in paths])
            if self.failing:
                tally.fail(title, "planted")

        with mock.patch.multiple(
                gates, PLACE=self.temp, build_programs=build, run_tests=run,
                gate_tree=lambda commit: place, test_sources=lambda tree: [],
                build_image=lambda *_, **__: (None, Counter())), \
                mock.patch.object(gates.mutants, "source_key",
                                  lambda commit: commit), \
                mock.patch.object(check, "run_yield", run):
            quiet(gates.bisect_prefix, self.tally, "bisect 1", kernel,
                  "subject", Counter(), self.passed)
        return self.ran

    def test_a_new_program_runs_alone(self):
        self.assertEqual(self.prefix(programs={"a": "1"}), [["a"]])
        self.assertEqual(self.prefix(programs={"a": "1", "b": "1"}), [["b"]])
        self.assertEqual(self.prefix(programs={"a": "2", "b": "1"}), [["a"]])
        self.assertEqual(self.prefix(programs={"b": "1"}), [])
        self.assertEqual(self.prefix(programs={"b": "1"}, yields={"y": "1"}),
                         [["y"]])
        self.assertEqual(self.prefix(yields={"y": "1"}), [])
        self.assertEqual(self.tally.passed, 6)

    def test_another_kernel_runs_everything(self):
        both = {"a": "1", "b": "1"}
        self.assertEqual(self.prefix(programs=both), [["a", "b"]])
        self.assertEqual(self.prefix("other", programs=both), [["a", "b"]])

    def test_a_kernel_boots_without_programs(self):
        self.assertEqual(self.prefix(), [[]])
        self.assertEqual(self.prefix(), [])

    def test_what_failed_runs_again(self):
        self.failing = True
        self.assertEqual(self.prefix(programs={"a": "1"}), [["a"]])
        self.failing = False
        self.assertEqual(self.prefix(programs={"a": "1"}), [["a"]])
        self.assertEqual(self.prefix(programs={"a": "1"}), [])


class KUnit(Case):
    """count_kunit(): the suite on a console."""

    SUITE = ("    KTAP version 1\n    # Subtest: x86_io_bitmap\n    1..2\n"
             "    ok 1 lines\n        ok 1 deeper\n    {} 2 copy\n"
             "{} 1 x86_io_bitmap\n")

    def count(self, text):
        tally = check.Tally()
        quiet(gates.count_kunit, tally, "t", text, Path("/log"))
        return tally.passed, tally.failed

    def test_all_pass(self):
        # Programs that run later print results of their own.
        self.assertEqual(self.count(self.SUITE.format("ok", "ok")
                                    + "not ok 1 other\n"), (3, 0))

    def test_a_case_fails(self):
        self.assertEqual(self.count(self.SUITE.format("not ok", "not ok")),
                         (1, 2))

    def test_no_suite_is_no_pass(self):
        self.assertEqual(self.count("ok 1 other\n"), (0, 1))


class TinyGuest(Case):
    """The initramfs and what comes back over the console."""

    def test_what_the_init_has_no_room_for(self):
        source = (tinyguest.ROOT / "scripts/tinyinit.c").read_text()
        self.assertIn(f"#define MAX_WORDS\t{tinyguest.MAX_WORDS}\n", source)
        self.assertIn(f"#define MAX_TESTS\t{tinyguest.MAX_ROWS}\n", source)
        program = self.temp / "prog"
        program.write_bytes(b"program!")
        room = ["x"] * (tinyguest.MAX_WORDS - 2)
        tinyguest.make_initramfs(program, [(program, room)], 7)
        for programs in ([(program, [*room, "x"])],
                         [(program, [])] * (tinyguest.MAX_ROWS + 1)):
            with self.assertRaises(Fail):
                tinyguest.make_initramfs(program, programs, 7)

    def test_the_archive_is_what_cpio_reads(self):
        init, program = self.temp / "init", self.temp / "prog"
        init.write_bytes(b"init")
        program.write_bytes(b"program!")
        data = tinyguest.make_initramfs(init, [(program, ["-a", "1"])], 7,
                                        also={"/lib/x/y.so": program})
        self.assertEqual(len(data) % 4, 0)
        names = {}
        while data:
            self.assertEqual(data[:6], b"070701")
            fields = [int(data[6 + 8 * n:14 + 8 * n], 16) for n in range(13)]
            size, length = fields[6], fields[11]
            name = data[110:110 + length - 1].decode()
            start = (110 + length + 3) // 4 * 4
            names[name] = (fields[1], data[start:start + size])
            data = data[(start + size + 3) // 4 * 4:]
        self.assertEqual(list(names)[-1], "TRAILER!!!")
        self.assertEqual(names["init"], (stat.S_IFREG | 0o755, b"init"))
        self.assertEqual(names["prog"][1], b"program!")
        self.assertEqual(names["tests"][1], b"7 /prog -a 1\n")
        self.assertTrue(stat.S_ISCHR(names["dev/console"][0]))
        self.assertEqual(names["lib/x/y.so"][1], b"program!")
        # A folder is there before what is in it.
        order = list(names)
        self.assertLess(order.index("lib"), order.index("lib/x"))
        self.assertLess(order.index("lib/x"), order.index("lib/x/y.so"))
        self.assertNotIn("", names)

    def test_programs_and_what_they_load(self):
        found = tinyguest.closure(["sh"])
        self.assertTrue(found["/bin/sh"].is_file())
        self.assertTrue([name for name in found if "libc.so" in name])
        self.assertTrue(all(path.is_file() for path in found.values()))
        self.assertRaises(Fail, tinyguest.closure, ["no-such-program"])
        missing = "\tlibgone.so.1 => not found\n"
        with mock.patch.object(tinyguest.subprocess, "run", lambda *_, **__:
                               mock.Mock(stdout=missing)), \
                self.assertRaises(Fail) as caught:
            tinyguest.closure(["sh"])
        self.assertIn("libgone.so.1", str(caught.exception))

    def test_the_console_is_read(self):
        text = ("[0.1] boot\r\n@@ begin /a_32\r\nhello\r\n@@ end /a_32 0 2\r\n"
                "@@ begin /b_32\nno\n\n@@ end /b_32 4 2\n@@ begin /c_32\nhang")
        runs = tinyguest.read_console(text)
        self.assertEqual([(name, run.status) for name, run in runs],
                         [("a_32", 0), ("b_32", 4), ("c_32", None)])
        self.assertEqual(runs[0][1].output, "hello\n")

    def test_files_are_shown_after_the_programs(self):
        init, program = self.temp / "init", self.temp / "prog"
        for path in (init, program):
            path.write_bytes(b"")
        data = tinyguest.make_initramfs(init, [(program, [])], 7, ["/tmp/f"],
                                        3)
        self.assertIn(b"3 wait\n7 /prog\n0 show /tmp/f\n", data)

    def boot(self, said, status=0, **more):
        """boot_tiny() with a QEMU that says this."""
        program = self.temp / "a"
        program.write_bytes(b"")

        def fake(command, log, **_):
            if command[0] == "gcc":
                Path(command[command.index("-o") + 1]).write_bytes(b"")
                return 0
            write(log.parent, {log.name: said})
            return status

        with mock.patch.object(tinyguest, "run_logged", fake), \
                mock.patch.object(tinyguest, "need_tool"), \
                mock.patch.object(tinyguest, "BUILD", self.temp), \
                mock.patch.object(tinyguest, "LOGS", self.temp):
            return tinyguest.boot_tiny(self.temp / "bzImage",
                                       [(program, [])], **more)

    def test_a_guest_that_does_not_come_to_the_end(self):
        for said in ("panic\n", "@@ begin /a\n@@ end /a 0 2\n",
                     "@@ done 0\n"):
            with self.subTest(said), self.assertRaises(Fail):
                self.boot(said)
        with self.assertRaises(Fail) as caught:
            self.boot("hang\n", None)
        self.assertIn("did not end", str(caught.exception))

    def test_a_guest_that_ran_another_program(self):
        with self.assertRaises(Fail):
            self.boot("@@ begin /b\n@@ end /b 0 2\n@@ done 1\n")

    def test_a_guest_that_is_well(self):
        (name, run), = self.boot("@@ begin /a\nx\n@@ end /a 0 2\n@@ done 1\n")
        self.assertEqual((name, run.status), ("a", 0))

    def test_a_file_comes_back(self):
        ran = "@@ begin /a\nx\n@@ end /a 0 2\n"
        runs = self.boot(ran + "@@ begin /tmp/f\n{}\n@@ end /tmp/f 0 2\n"
                         "@@ done 3\n", files=["/tmp/f"], settle=1)
        self.assertEqual([(name, run.output) for name, run in runs],
                         [("a", "x\n"), ("tmp/f", "{}\n")])
        with self.assertRaises(Fail):
            self.boot(ran + "@@ done 3\n", files=["/tmp/f"], settle=1)

    def test_init_compiles(self):
        if not shutil.which("gcc"):
            self.skipTest("gcc is not there")
        self.stub("true", "exit 0\n")
        import subprocess
        done = subprocess.run(
            ["gcc", "-Wall", "-Wextra", "-Werror", "-fsyntax-only",
             str(tinyguest.ROOT / "scripts/tinyinit.c")],
            capture_output=True, text=True)
        self.assertEqual(done.returncode, 0, done.stderr)


if __name__ == "__main__":
    unittest.main()
