// SPDX-License-Identifier: GPL-2.0-only
/*
 * ioperm() where the I/O bitmap is easily off by one
 *
 * The kernel keeps one bit for each port, stores only the longs from the lowest
 * to the highest enabled port, and copies them to the TSS of the CPU. Mistakes
 * are likely at the edges of bytes and longs, at the lowest and the highest
 * enabled port, at the end of the port space, and where the stored part grows,
 * shrinks or is copied because another task shares it.
 *
 * All calls are also done to a model of the 65536 ports. It is compared with
 * the bitmap as ptrace() shows it, which is what the kernel has stored, and
 * with what IN does, which is what the CPU sees.
 *
 * Only ports which nothing claims are touched, see ioport_helper.h. All others
 * are compared in the stored bitmap.
 */
#include "kselftest_harness.h"
#include "ioport_helper.h"

#include <limits.h>

/* Seconds for a case, of which a debug kernel needs most */
#define TIMEOUT		300
#define LINE		IOPORT_LINE

/* The ports that the task should have, and had when they were last compared */
static struct ioport_map model, compared;

/* Each call of change() finds a bitmap which another task has as well */
static bool shared;

/* Compare them, or read all ports, which takes much longer */
#define EXPECT_PORTS(all, fmt, ...) do {				\
	EXPECT_STREQ("", ioport_wrong(&model, (all) ? NULL : &compared, 0)) { \
		TH_LOG("after " fmt, ##__VA_ARGS__);			\
	}								\
	compared = model;						\
} while (0)

/* Change the ports of the task and of the model. A sharer has to keep its own */
static void change(struct __test_metadata *_metadata, unsigned int from,
		   unsigned int num, bool turn_on)
{
	struct ioport_map old = model;
	pid_t pid = 0;

	if (shared) {
		pid = ioport_fork_stopped();
		ASSERT_LT(0, pid);
	}
	ASSERT_EQ(0, ioperm(from, num, turn_on)) {
		TH_LOG("ioperm(0x%x, 0x%x, %d)", from, num, turn_on);
	}
	ioport_set(&model, from, num, turn_on);
	if (shared) {
		EXPECT_STREQ("", ioport_wrong(&old, NULL, pid));
		ioport_end(pid);
	}
}

/* Change them and compare */
static void step(struct __test_metadata *_metadata, unsigned int from,
		 unsigned int num, bool turn_on)
{
	change(_metadata, from, num, turn_on);
	EXPECT_PORTS(false, "ioperm(0x%x, 0x%x, %d)", from, num, turn_on);
}

/*
 * Accesses of each width to each of @num ports. Beyond the end of the port space
 * there is nothing to be claimed. Returns the first wrong port, or -1.
 */
static int wrong_access(unsigned int port, unsigned int num)
{
	unsigned int end = port + num, width;

	for (; port < end; port++) {
		for (width = 1; width <= 4; width *= 2) {
			if (ioport_may_read(port, width < IOPORT_NR - port ?
					    width : IOPORT_NR - port) &&
			    ioport_in(port, width) != ioport_allows(&model, port, width))
				return port;
		}
	}

	return -1;
}

static void begin(struct __test_metadata *_metadata)
{
	ioport_init();
	ioport_clear_all(&model);
	ioport_clear_all(&compared);
	ASSERT_EQ(0, ioport_pin(0, -1));
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
		ASSERT_EQ(-1, raw_ioperm(from, num, turn_on)) {
			TH_LOG("from 0x%lx, num 0x%lx, turn_on %d", from, num, turn_on);
		}
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
	begin(_metadata);
}

FIXTURE_TEARDOWN(unprivileged) {}

TEST_F_TIMEOUT(unprivileged, all_ports_denied, TIMEOUT)
{
	unsigned int port;

	for (port = 0; port < IOPORT_NR; port++) {
		ASSERT_TRUE(ioport_agrees(&model, port)) {
			TH_LOG("port 0x%x can be read", port);
		}
	}
}

TEST_F(unprivileged, invalid_ranges)
{
	if (ioport_errno() == -ENOSYS)
		SKIP(return, "%s", ioport_skip_reason());

	try_invalid(_metadata, false);
}

/*
 * Single calls and accesses
 */
FIXTURE(ports) {};

FIXTURE_SETUP(ports)
{
	const char *reason = ioport_skip_reason();

	if (reason)
		SKIP(return, "%s", reason);
	begin(_metadata);
}

FIXTURE_TEARDOWN(ports) {}

TEST_F_TIMEOUT(ports, invalid_ranges_change_nothing, TIMEOUT)
{
	/* Nothing is enabled, and there is no bitmap */
	try_invalid(_metadata, true);
	EXPECT_PORTS(false, "invalid calls, no port");

	change(_metadata, 0, IOPORT_NR, true);
	try_invalid(_metadata, false);
	EXPECT_PORTS(true, "invalid calls, all ports");

	/* Next to nothing, and not a port at which one of the ranges begins */
	change(_metadata, 0, IOPORT_NR, false);
	change(_metadata, 3, 1, true);
	change(_metadata, 0x2000, 3 * LINE, true);
	change(_metadata, IOPORT_NR - 7, 1, true);
	try_invalid(_metadata, true);
	EXPECT_PORTS(false, "invalid calls, some ports");
}

/* Each value but zero enables, of the 32 bits that count */
TEST_F(ports, turn_on_values)
{
	static const long on[] = { 1, 2, -1, 0x100, 0x10000, INT_MIN, INT_MAX };
	unsigned int i;

	for (i = 0; i < ARRAY_SIZE(on); i++) {
		ASSERT_EQ(0, raw_ioperm(IOPORT_POST, 1, on[i]));
		EXPECT_TRUE(ioport_inb(IOPORT_POST)) {
			TH_LOG("turn_on 0x%lx", on[i]);
		}
		ASSERT_EQ(0, raw_ioperm(IOPORT_POST, 1, 0));
		EXPECT_FALSE(ioport_inb(IOPORT_POST));
	}

#ifdef __x86_64__
	ASSERT_EQ(0, raw_ioperm(IOPORT_POST, 1, 1L << 32));
	EXPECT_FALSE(ioport_inb(IOPORT_POST));
#endif
}

/* An access must not go beyond the end of the port space */
TEST_F_TIMEOUT(ports, top_of_port_space, TIMEOUT)
{
	const unsigned int top = IOPORT_NR - 8;

	if (!ioport_may_read(top, 8))
		SKIP(return, "the highest ports are claimed");

	change(_metadata, 0, IOPORT_NR, true);
	EXPECT_EQ(-1, wrong_access(top, 8));
	EXPECT_PORTS(true, "enabling all");

	change(_metadata, 0, IOPORT_NR - 4, false);
	EXPECT_EQ(-1, wrong_access(top, 8));

	/* The bitmap is a short one, and iopl() is not all there is */
	change(_metadata, 0, IOPORT_NR, false);
	change(_metadata, IOPORT_POST, 1, true);
	ASSERT_EQ(0, iopl(3));
	ioport_set(&model, 0, IOPORT_NR, true);
	EXPECT_EQ(-1, wrong_access(top, 8));

	ASSERT_EQ(0, iopl(0));
	ioport_clear_all(&model);
	ioport_set(&model, IOPORT_POST, 1, true);
	EXPECT_EQ(-1, wrong_access(top, 8));
	EXPECT_PORTS(false, "iopl(0)");
}

/*
 * All subsets of eight ports around the edge of a line, in an order in which
 * one port changes at a time. For a wide access all of its ports have to be
 * enabled.
 */
TEST_F_TIMEOUT(ports, every_subset, TIMEOUT)
{
	unsigned int i, subset, changed, last = 0;
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
		changed = subset ^ last;
		last = subset;
		if (changed)
			change(_metadata, base + __builtin_ctz(changed), 1,
			       subset & changed);
		ASSERT_EQ(-1, wrong_access(base, 8)) {
			TH_LOG("enabled are 0x%x from 0x%x on", subset, base);
		}
	}
	EXPECT_PORTS(false, "all subsets");
}

/* Each enabled port has neighbours which are not, and the reverse */
TEST_F_TIMEOUT(ports, holes, TIMEOUT)
{
	unsigned int port, base = 0xa000 - LINE / 2;

	step(_metadata, base, 2 * LINE, true);
	for (port = base; port < base + 2 * LINE; port += 2)
		change(_metadata, port, 1, false);
	EXPECT_PORTS(false, "disabling every other port");

	/* The others instead */
	for (port = base; port < base + 2 * LINE; port++)
		change(_metadata, port, 1, port % 2 == 0);
	EXPECT_PORTS(false, "changing each port");

	/* Filled, where every other port is enabled already */
	step(_metadata, base + 5, LINE, true);
	step(_metadata, base, 2 * LINE, true);
	/* A hole of a line, of which one edge is that of a line */
	step(_metadata, base + LINE / 2, LINE, false);
}

/* A port in one line after the other, further up each time, and back */
TEST_F_TIMEOUT(ports, upwards, TIMEOUT)
{
	unsigned int line;

	for (line = 0; line < IOPORT_NR / LINE; line++) {
		change(_metadata, line * LINE + (line * 37) % LINE, 1, true);
		if (line % 32 < 2)
			EXPECT_PORTS(false, "line %u", line);
	}
	/* The lowest ones go, and those above have to stay where they are */
	for (line = 0; line < IOPORT_NR / LINE; line++) {
		change(_metadata, 0, (line + 1) * LINE, false);
		if (line % 32 < 2)
			EXPECT_PORTS(false, "dropping line %u", line);
	}
}

/* Each time below all others, so that these have to make room, and back */
TEST_F_TIMEOUT(ports, downwards, TIMEOUT)
{
	unsigned int line, port;

	for (line = IOPORT_NR / LINE; line--; ) {
		change(_metadata, line * LINE + (line * 91) % LINE, 3, true);
		if (line % 32 < 2)
			EXPECT_PORTS(false, "line %u", line);
	}
	/* The highest port goes each time, and leaves the next lower one */
	for (port = IOPORT_NR; port--; ) {
		if (!ioport_allows(&model, port, 1))
			continue;
		change(_metadata, port, 1, false);
		if (port / LINE % 32 < 2)
			EXPECT_PORTS(false, "dropping port 0x%x", port);
	}
}

/* Of all sizes, with edges near those of longs and lines */
TEST_F_TIMEOUT(ports, random_calls, TIMEOUT)
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
			EXPECT_PORTS(false, "call %u", i);
	}
	EXPECT_PORTS(true, "all calls");
}

/*
 * Sequences of calls, alone and while another task has the bitmap, too
 */
FIXTURE(sequence) {};

FIXTURE_VARIANT(sequence) {
	bool	shared;
};

FIXTURE_VARIANT_ADD(sequence, own_bitmap)	{ .shared = false };
FIXTURE_VARIANT_ADD(sequence, shared_bitmap)	{ .shared = true };

FIXTURE_SETUP(sequence)
{
	const char *reason = ioport_skip_reason();

	if (reason)
		SKIP(return, "%s", reason);
	begin(_metadata);
	shared = variant->shared;
}

FIXTURE_TEARDOWN(sequence) {}

/* Two ports side by side, with the edge of a byte, a long or a line between */
TEST_F_TIMEOUT(sequence, pairs, TIMEOUT)
{
	static const unsigned int upper[] = { 1, 32, 64, LINE, 0x400, IOPORT_NR - 1 };
	unsigned int i, j;

	for (i = 0; i < ARRAY_SIZE(upper); i++) {
		unsigned int port = upper[i];
		const struct { unsigned int from, num, on; } calls[] = {
			{ port, 1, 1 }, { port - 1, 1, 1 }, { port, 1, 0 },
			{ port, 1, 1 }, { port - 1, 1, 0 }, { port, 1, 0 },
			/* All others, only those below, only those above */
			{ 0, IOPORT_NR, 1 }, { port, 1, 0 }, { port - 1, 1, 0 },
			{ port, 1, 1 }, { port, IOPORT_NR - port, 0 },
			{ port, IOPORT_NR - port, 1 }, { 0, port, 0 },
			{ 0, IOPORT_NR, 0 },
		};

		for (j = 0; j < ARRAY_SIZE(calls); j++)
			step(_metadata, calls[j].from, calls[j].num, calls[j].on);
	}
}

static const struct call {
	unsigned int from, num, on;
} chosen[] = {
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
	{ IOPORT_NR - 2, 2, 1 }, { IOPORT_NR - 2, 2, 0 },
};

TEST_F_TIMEOUT(sequence, chosen_calls, TIMEOUT)
{
	unsigned int i;

	for (i = 0; i < ARRAY_SIZE(chosen); i++)
		step(_metadata, chosen[i].from, chosen[i].num, chosen[i].on);
}

TEST_HARNESS_MAIN
