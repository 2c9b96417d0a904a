// SPDX-License-Identifier: GPL-2.0-only
/*
 * ioperm() where the I/O bitmap is easily off by one, and without memory
 *
 * The kernel stores only the longs from the lowest to the highest enabled port,
 * and copies them to the TSS of the CPU. Mistakes are likely at the edges of
 * bytes and longs, at both ends of the bitmap and of the port space, and where
 * the stored part grows, shrinks or is copied because another task shares it.
 *
 * All calls are also done to a model of the 65536 ports. It is compared with
 * the bitmap as ptrace() shows it, which is what the kernel has stored, and
 * with what IN does, which is what the CPU sees.
 *
 * Without memory a call fails with ENOMEM, and the task keeps exactly the ports
 * that it had. Some calls must not need memory, so that ports can always be given
 * up: disabling ports of a bitmap that is not shared, disabling the last ports,
 * a call that changes nothing, and iopl(). /proc/thread-self/fail-nth makes an
 * allocation fail. It needs root, a mounted debugfs, FAULT_INJECTION_DEBUG_FS,
 * FAILSLAB and FAIL_PAGE_ALLOC, which is for large bitmaps.
 */
#define _GNU_SOURCE
#include <fcntl.h>
#include <limits.h>
#include <linux/sched.h>

#include "kselftest_harness.h"
#include "ioport_helper.h"

#define LINE		IOPORT_LINE
/* More allocations than any call makes */
#define MAX_NTH		100

struct call {
	unsigned int	from, num, on;
};

/* The ports that the task should have, and had when they were last compared */
static struct ioport_map model, compared;
static struct call last;

/* Each call finds a bitmap which another task has as well */
static bool shared;

/* Each call is repeated until all of its allocations have failed once */
static int fail_nth_fd = -1;

/* Let the @nth allocation from now on fail, and no further one */
static void fail_nth(unsigned int nth)
{
	char text[16];

	if (pwrite(fail_nth_fd, text, sprintf(text, "%u", nth), 0) < 0)
		ksft_exit_fail_perror("fail-nth");
}

/* End that, and keep errno. Returns whether an allocation failed */
static bool has_failed(void)
{
	char text[16] = "";
	int err = errno;
	bool failed = pread(fail_nth_fd, text, sizeof(text) - 1, 0) > 0 && !atoi(text);

	fail_nth(0);
	errno = err;
	return failed;
}

/* Compare them, or read all ports, which takes much longer */
static void expect_ports(struct __test_metadata *_metadata, bool all)
{
	EXPECT_STREQ("", ioport_wrong(&model, all ? NULL : &compared, 0))
		TH_LOG("after ioperm(0x%x, 0x%x, %u)", last.from, last.num, last.on);
	compared = model;
}

/* May a call need memory that gives these ports? */
static bool may_need_memory(const struct ioport_map *new, bool turn_on)
{
	return (shared || turn_on) && memcmp(new, &model, sizeof(model)) &&
	       memcmp(new, &ioport_none, sizeof(*new));
}

/* Change the ports of the task and of the model. A sharer has to keep its own */
static void change(struct __test_metadata *_metadata, unsigned int from,
		   unsigned int num, bool turn_on)
{
	bool first = turn_on && !memcmp(&model, &ioport_none, sizeof(model));
	struct ioport_map old = model, new = model;
	int nth = 0, ret;
	pid_t pid = 0;

	last = (struct call){ from, num, turn_on };
	ioport_set(&new, from, num, turn_on);
	if (shared) {
		pid = ioport_fork_stopped();
		ASSERT_LT(0, pid);
	}
	for (;;) {
		if (fail_nth_fd >= 0)
			fail_nth(++nth);
		ret = ioperm(from, num, turn_on);
		if (fail_nth_fd < 0 || !has_failed() || !ret)
			break;
		ASSERT_TRUE(errno == ENOMEM && may_need_memory(&new, turn_on) && nth < MAX_NTH)
			TH_LOG("ioperm(0x%x, 0x%x, %d): %d", from, num, turn_on, errno);
		EXPECT_STREQ("", ioport_wrong(&old, &new, 0));
	}
	ASSERT_EQ(0, ret)
		TH_LOG("ioperm(0x%x, 0x%x, %d)", from, num, turn_on);
	/* The first port and a copy of a bitmap cannot be had without memory */
	if (nth && (first || shared) && may_need_memory(&new, turn_on))
		EXPECT_LT(1, nth);
	model = new;
	if (shared) {
		EXPECT_STREQ("", ioport_wrong(&old, NULL, pid));
		ioport_end(pid);
	}
}

/* Change them and compare, after each call of a table */
static void do_calls(struct __test_metadata *_metadata, const struct call *calls, int nr)
{
	for (; nr--; calls++) {
		change(_metadata, calls->from, calls->num, calls->on);
		expect_ports(_metadata, false);
	}
}

/* The same call at places that are @step ports apart, with four comparisons */
static void repeat(struct __test_metadata *_metadata, unsigned int from, unsigned int num,
		   bool turn_on, int step, int times)
{
	int i;

	for (i = 1; i <= times; i++, from += step) {
		change(_metadata, from, num, turn_on);
		if (i % (times / 4) == 0)
			expect_ports(_metadata, false);
	}
}

/*
 * Accesses of each width to each of @num ports. Returns the first wrong port, or
 * -1.
 */
static int wrong_access(unsigned int port, unsigned int num)
{
	unsigned int end = port + num, width;

	for (; port < end; port++) {
		for (width = 1; width <= 4; width *= 2) {
			if (ioport_may_read(port, width) &&
			    ioport_in(port, width) != ioport_allows(&model, port, width))
				return port;
		}
	}

	return -1;
}

/* The C library might look at the arguments */
static long raw_ioperm(unsigned long from, unsigned long num, long turn_on)
{
	return syscall(SYS_ioperm, from, num, turn_on);
}

/* Each of these with each is a range, of which few are valid */
static const unsigned long edges[] = {
	0, 1, 2, IOPORT_POST, IOPORT_NR - IOPORT_POST + 1,
	IOPORT_NR - 1, IOPORT_NR, IOPORT_NR + 1,
	INT_MAX, 0x80000000, 0x80000080, UINT_MAX - 1, UINT_MAX,
	LONG_MAX, ULONG_MAX, -(unsigned long)IOPORT_POST,
	-(unsigned long)IOPORT_POST + 1,
#ifdef __x86_64__
	/* Valid if the upper half was cut off */
	1UL << 32, (1UL << 32) + 1, (1UL << 32) + IOPORT_POST,
	(1UL << 32) + IOPORT_NR, 0xffffffff00000000, 0xffffffff00000080,
	(1UL << 63) + 1, (1UL << 63) + IOPORT_POST,
#endif
};

static void try_invalid(struct __test_metadata *_metadata, bool turn_on)
{
	unsigned long from, num;
	unsigned int i;

	for (i = 0; i < ARRAY_SIZE(edges) * ARRAY_SIZE(edges); i++) {
		from = edges[i / ARRAY_SIZE(edges)];
		num = edges[i % ARRAY_SIZE(edges)];
		if (num && from < IOPORT_NR && num <= IOPORT_NR - from)
			continue;
		errno = 0;
		ASSERT_EQ(-1, raw_ioperm(from, num, turn_on))
			TH_LOG("from 0x%lx, num 0x%lx, turn_on %d", from, num, turn_on);
		ASSERT_EQ(EINVAL, errno);
	}
}

/*
 * What needs no privileges. These come first: one finds what a CPU allows on
 * which nobody has enabled a port yet.
 */
FIXTURE(unprivileged) {};

FIXTURE_SETUP(unprivileged)
{
	ASSERT_EQ(0, ioport_pin(0, ioport_cpu(0)));
}

FIXTURE_TEARDOWN(unprivileged) {}

TEST_F_TIMEOUT(unprivileged, all_ports_denied, IOPORT_TIMEOUT)
{
	unsigned int port;

	for (port = 0; port < IOPORT_NR; port++) {
		ASSERT_FALSE(ioport_may_read(port, 1) && ioport_inb(port))
			TH_LOG("port 0x%x can be read", port);
	}
}

TEST_F(unprivileged, invalid_ranges)
{
	if (ioport_missing())
		SKIP(return, "ioperm(): %s", strerror(errno));

	try_invalid(_metadata, false);
}

/*
 * Calls and accesses
 */
static bool setup(struct __test_metadata *_metadata)
{
	const char *reason = ioport_setup_tracer();

	if (reason)
		SKIP(return false, "%s", reason);
	model = ioport_none;
	compared = ioport_none;
	return true;
}

FIXTURE(ports) {};

FIXTURE_SETUP(ports)
{
	setup(_metadata);
}

FIXTURE_TEARDOWN(ports) {}

TEST_F_TIMEOUT(ports, invalid_ranges_change_nothing, IOPORT_TIMEOUT)
{
	/* Nothing is enabled, and there is no bitmap */
	try_invalid(_metadata, true);
	expect_ports(_metadata, false);

	change(_metadata, 0, IOPORT_NR, true);
	try_invalid(_metadata, false);
	expect_ports(_metadata, true);

	/* Next to nothing, and not a port at which one of the ranges begins */
	change(_metadata, 0, IOPORT_NR, false);
	change(_metadata, 3, 1, true);
	change(_metadata, 0x2000, 3 * LINE, true);
	change(_metadata, IOPORT_NR - 7, 1, true);
	try_invalid(_metadata, true);
	expect_ports(_metadata, false);
}

/* Each value but zero enables, of the 32 bits that count */
TEST_F(ports, turn_on_values)
{
	static const long on[] = { 1, 2, -1, 0x100, 0x10000, INT_MIN, INT_MAX };
	unsigned int i;

	for (i = 0; i < ARRAY_SIZE(on); i++) {
		ASSERT_EQ(0, raw_ioperm(IOPORT_POST, 1, on[i]));
		EXPECT_TRUE(ioport_inb(IOPORT_POST))
			TH_LOG("turn_on 0x%lx", on[i]);
		ASSERT_EQ(0, raw_ioperm(IOPORT_POST, 1, 0));
		EXPECT_FALSE(ioport_inb(IOPORT_POST));
	}

#ifdef __x86_64__
	ASSERT_EQ(0, raw_ioperm(IOPORT_POST, 1, 1L << 32));
	EXPECT_FALSE(ioport_inb(IOPORT_POST));
#endif
}

/* An access must not go beyond the end of the port space */
TEST_F_TIMEOUT(ports, top_of_port_space, IOPORT_TIMEOUT)
{
	const unsigned int top = IOPORT_NR - 8;

	if (!ioport_may_read(top, 8))
		SKIP(return, "the highest ports may not be read");

	change(_metadata, 0, IOPORT_NR, true);
	EXPECT_EQ(-1, wrong_access(top, 8));
	expect_ports(_metadata, true);

	change(_metadata, 0, IOPORT_NR - 4, false);
	EXPECT_EQ(-1, wrong_access(top, 8));

	/* The bitmap is a short one, and iopl() is not all there is */
	change(_metadata, 0, IOPORT_NR, false);
	change(_metadata, IOPORT_POST, 1, true);
	compared = model;
	ASSERT_EQ(0, iopl(3));
	ioport_set(&model, 0, IOPORT_NR, true);
	EXPECT_EQ(-1, wrong_access(top, 8));

	ASSERT_EQ(0, iopl(0));
	model = compared;
	EXPECT_EQ(-1, wrong_access(top, 8));
	expect_ports(_metadata, false);
}

/*
 * All subsets of eight ports around the edge of a line, in an order in which
 * one port changes at a time. For a wide access all of its ports have to be
 * enabled.
 */
TEST_F_TIMEOUT(ports, every_subset, IOPORT_TIMEOUT)
{
	unsigned int i, subset, changed, last_subset = 0;
	int base = ioport_find(8, LINE, LINE - 4, IOPORT_NR - LINE);

	if (base < 0)
		SKIP(return, "no unclaimed ports around the edge of a line");

	for (i = 0; i < 2 << 8; i++) {
		/* In the second half, other ports are enabled around these eight */
		if (i == 1 << 8) {
			change(_metadata, base - 2 * LINE, 1, true);
			change(_metadata, base - 4, 2, true);
			change(_metadata, base + 10, 2, true);
			change(_metadata, base + LINE, 1, true);
		}
		subset = (i ^ (i >> 1)) & 0xff;
		changed = subset ^ last_subset;
		last_subset = subset;
		if (changed)
			change(_metadata, base + __builtin_ctz(changed), 1, subset & changed);
		ASSERT_EQ(-1, wrong_access(base, 8))
			TH_LOG("enabled are 0x%x from 0x%x on", subset, base);
	}
	expect_ports(_metadata, false);
}

/* Each enabled port has neighbours which are not, and the reverse */
TEST_F_TIMEOUT(ports, holes, IOPORT_TIMEOUT)
{
	const unsigned int base = 0xa000 - LINE / 2;
	const struct call fill[] = {
		/* Where every other port is enabled already */
		{ base + 5, LINE, 1 }, { base, 2 * LINE, 1 },
		/* A hole of a line, of which one edge is that of a line */
		{ base + LINE / 2, LINE, 0 },
	};

	change(_metadata, base, 2 * LINE, true);
	repeat(_metadata, base, 1, false, 2, LINE);
	/* The others instead */
	repeat(_metadata, base, 1, true, 2, LINE);
	repeat(_metadata, base + 1, 1, false, 2, LINE);
	do_calls(_metadata, fill, ARRAY_SIZE(fill));
}

TEST_F_TIMEOUT(ports, downwards, IOPORT_TIMEOUT)
{
	/* A port in one line after the other, further up each time */
	repeat(_metadata, 0, 1, true, LINE + 3, IOPORT_NR / LINE);
	/* The lowest ones go, and those above have to stay where they are */
	repeat(_metadata, 0, LINE, false, LINE, IOPORT_NR / LINE);
	/* Each time below all others, so that these have to make room */
	repeat(_metadata, IOPORT_NR - 3, 3, true, -LINE - 3, IOPORT_NR / LINE);
	/* The highest ones go, one by one at first, and leave the next lower one */
	repeat(_metadata, IOPORT_NR - 1, 1, false, -1, 8);
	repeat(_metadata, IOPORT_NR - LINE, LINE, false, -LINE, IOPORT_NR / LINE);
}

/* Of all sizes, with edges near those of longs and lines */
TEST_F_TIMEOUT(ports, random_calls, IOPORT_TIMEOUT)
{
	unsigned int i, from, num;

	/* Always the same ones */
	srandom(1);

	for (i = 0; i < 1000; i++) {
		num = 1 + random() % (1 << random() % 17);
		from = random() % (IOPORT_NR - num + 1);
		/* To the next multiple of 8 to 512, or to the one before it */
		if (random() % 2) {
			from &= -(8U << random() % 7);
			from -= from && random() % 2;
		}
		shared = random() % 8 == 0;
		change(_metadata, from, num, random() % 2);
		if (i % 100 == 99)
			expect_ports(_metadata, false);
	}
	expect_ports(_metadata, true);
}

/*
 * Calls alone, and while another task has the bitmap, too
 */
FIXTURE(sequence) {};

FIXTURE_VARIANT(sequence) {
	bool	shared;
};

FIXTURE_VARIANT_ADD(sequence, own_bitmap)	{ .shared = false };
FIXTURE_VARIANT_ADD(sequence, shared_bitmap)	{ .shared = true };

FIXTURE_SETUP(sequence)
{
	setup(_metadata);
	shared = variant->shared;
}

FIXTURE_TEARDOWN(sequence) {}

/* Two ports side by side, with the edge of a byte, a long or a line between */
TEST_F_TIMEOUT(sequence, pairs, IOPORT_TIMEOUT)
{
	static const unsigned int upper[] = { 1, 32, 64, LINE, 0x400, IOPORT_NR - 1 };
	unsigned int i;

	for (i = 0; i < ARRAY_SIZE(upper); i++) {
		const unsigned int port = upper[i];
		const struct call calls[] = {
			{ port, 1, 1 }, { port - 1, 1, 1 }, { port, 1, 0 },
			{ port, 1, 1 }, { port - 1, 1, 0 }, { port, 1, 0 },
			/* All others, only those below, only those above */
			{ 0, IOPORT_NR, 1 }, { port, 1, 0 }, { port - 1, 1, 0 },
			{ port, 1, 1 }, { port, IOPORT_NR - port, 0 },
			{ port, IOPORT_NR - port, 1 }, { 0, port, 0 },
			{ 0, IOPORT_NR, 0 },
		};

		do_calls(_metadata, calls, ARRAY_SIZE(calls));
	}
}

static const struct call chosen[] = {
	/* The highest port goes, although one below it was changed before */
	{ 0x2000, 1, 1 }, { 0x8000, 1, 1 }, { 0x2001, 2, 1 }, { 0x8000, 1, 0 },
	/* Some of the same long are left, and the highest of these goes */
	{ 0x2002, 1, 0 }, { 0x2000, 2, 0 },
	/* Lines come in between others, are joined and taken apart */
	{ 20 * LINE + 3, 5, 1 }, { 60 * LINE + 500, 5, 1 }, { 40 * LINE, LINE, 1 },
	/* Partly there already, from the middle of a line to that of another */
	{ 38 * LINE + 100, 5 * LINE, 1 }, { 10 * LINE, 55 * LINE + 1, 1 },
	/* Exactly a line, one less and one more */
	{ 30 * LINE, LINE, 0 }, { 32 * LINE, LINE - 1, 0 },
	{ 34 * LINE, LINE + 1, 0 }, { 36 * LINE - 1, LINE + 1, 0 },
	/* The same again changes nothing */
	{ 36 * LINE - 1, LINE + 1, 0 }, { 30 * LINE, LINE, 0 },
	{ 30 * LINE + 17, 1, 1 }, { 30 * LINE + 17, 1, 1 },
	/* The lowest and the highest ones */
	{ 0, 12 * LINE + 9, 0 }, { 50 * LINE + 9, IOPORT_NR - 50 * LINE - 9, 0 },
	{ IOPORT_NR - 1, 1, 1 }, { 0, 1, 1 },
	/* What is left is at both ends */
	{ 1, IOPORT_NR - 2, 0 }, { 0, 1, 0 }, { IOPORT_NR - 1, 1, 0 },
	/* The largest ranges */
	{ 0, IOPORT_NR - 1, 1 }, { 0, IOPORT_NR - 1, 0 },
	{ 1, IOPORT_NR - 1, 1 }, { 1, IOPORT_NR - 1, 0 },
	{ IOPORT_POST, IOPORT_NR - IOPORT_POST, 1 },
	{ IOPORT_POST, IOPORT_NR - IOPORT_POST, 0 },
	{ 0, IOPORT_NR, 1 }, { 0x8000, 1, 0 }, { 0, IOPORT_NR - 2, 0 }, { IOPORT_NR - 2, 2, 0 },
};

TEST_F_TIMEOUT(sequence, chosen_calls, IOPORT_TIMEOUT)
{
	do_calls(_metadata, chosen, ARRAY_SIZE(chosen));
}

/*
 * Allocations that may sleep can fail as well, and those of single pages, without
 * a stack dump for each. With a probability of 0, which is the default, that does
 * nothing to other tasks.
 */
static struct setting {
	const char	*path, *value;
	char		old[16];
} settings[] = {
	{ "/sys/kernel/debug/failslab/ignore-gfp-wait",		"N", "" },
	{ "/sys/kernel/debug/failslab/verbose",			"0", "" },
	{ "/sys/kernel/debug/fail_page_alloc/ignore-gfp-wait",	"N", "" },
	{ "/sys/kernel/debug/fail_page_alloc/min-order",	"0", "" },
	{ "/sys/kernel/debug/fail_page_alloc/verbose",		"0", "" },
};

static int settings_error;

static int change_settings(bool restore)
{
	struct setting *s;
	const char *value;
	int fd, error = 0;

	for (s = settings; s < settings + ARRAY_SIZE(settings); s++) {
		value = restore ? s->old : s->value;
		fd = open(s->path, O_RDWR);
		if (fd < 0 || (!restore && read(fd, s->old, sizeof(s->old) - 1) <= 0) ||
		    write(fd, value, strlen(value)) <= 0)
			error = errno;
		close(fd);
	}
	return error;
}

static void restore_settings(void)
{
	change_settings(true);
}

static void on_end(int sig)
{
	restore_settings();
	signal(sig, SIG_DFL);
	raise(sig);
}

/*
 * Without memory
 */
FIXTURE(without_memory) {};

FIXTURE_VARIANT(without_memory) {
	bool	shared;
};

FIXTURE_VARIANT_ADD(without_memory, own_bitmap)		{ .shared = false };
FIXTURE_VARIANT_ADD(without_memory, shared_bitmap)	{ .shared = true };

FIXTURE_SETUP(without_memory)
{
	if (!setup(_metadata))
		return;
	if (settings_error)
		SKIP(return, "failslab or fail_page_alloc: %s", strerror(settings_error));
	fail_nth_fd = open("/proc/thread-self/fail-nth", O_RDWR);
	if (fail_nth_fd < 0)
		SKIP(return, "/proc/thread-self/fail-nth: %s", strerror(errno));
	/* A call that cannot fail proves nothing by its success. */
	fail_nth(1);
	ioperm(IOPORT_POST, 1, 1);
	if (!has_failed())
		SKIP(return, "allocations of ioperm() cannot be made to fail");
	shared = variant->shared;
}

FIXTURE_TEARDOWN(without_memory) {}

TEST_F_TIMEOUT(without_memory, chosen_calls, IOPORT_TIMEOUT)
{
	do_calls(_metadata, chosen, ARRAY_SIZE(chosen));
}

TEST_F(without_memory, iopl_and_back)
{
	int level;

	change(_metadata, 0x81, 8, true);
	for (level = 3; level >= 0; level -= 3) {
		fail_nth(1);
		EXPECT_EQ(0, iopl(level));
		EXPECT_FALSE(has_failed());
		/* A port that only iopl() enables */
		EXPECT_EQ(level == 3, ioport_inb(IOPORT_POST));
	}
	expect_ports(_metadata, false);
}

/* The bitmap must not be shared any more: then disabling needs no memory */
static void expect_own_bitmap(struct __test_metadata *_metadata, const char *after)
{
	fail_nth(1);
	EXPECT_EQ(0, ioperm(0x81, 1, 0))
		TH_LOG("the bitmap is shared after %s", after);
	has_failed();
	ASSERT_EQ(0, ioperm(0x81, 1, 1));
}

/*
 * A fork() that fails after the bitmap was shared with the child gives back
 * what it took: as the PID is in use, or, where the bitmap is shared earlier,
 * for a bad TLS.
 */
TEST_F(without_memory, failed_fork)
{
	pid_t pid = getpid();
	struct clone_args args = {
		.exit_signal = SIGCHLD,
		.set_tid = (uintptr_t)&pid,
		.set_tid_size = 1,
	};

	change(_metadata, 0x80, 8, true);
	EXPECT_EQ(-1, syscall(SYS_clone3, &args, sizeof(args)));
	EXPECT_EQ(EEXIST, errno);
	expect_own_bitmap(_metadata, "clone3()");
	/* The fifth argument in 64 bit programs, the fourth in others */
	EXPECT_EQ(-1, syscall(SYS_clone, CLONE_SETTLS | SIGCHLD, 0, NULL,
			      sizeof(long) == 8 ? 0 : ~0UL, ~0UL));
	expect_own_bitmap(_metadata, "clone()");
	expect_ports(_metadata, false);
}

int main(int argc, char **argv)
{
	ioport_init(&argc, argv);
	settings_error = change_settings(false);
	atexit(restore_settings);
	signal(SIGTERM, on_end);
	signal(SIGINT, on_end);
	signal(SIGHUP, on_end);
	return test_harness_run(argc, argv);
}
