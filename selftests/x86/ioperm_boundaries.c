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

/* The ports that the task should have, and had when they were last compared */
static struct ioport_map model, compared;

static const char *wrong_port(unsigned int port, const char *where)
{
	static char text[64];

	snprintf(text, sizeof(text), "port 0x%x is wrong %s", port, where);

	return text;
}

/* Are the eight ports of a byte and those around it all the same? */
static bool uniform(const struct ioport_map *map, unsigned int byte)
{
	const uint8_t *deny = map->deny + byte;

	return byte && byte < IOPORT_MAP_BYTES - 1 &&
	       (*deny == 0 || *deny == 0xff) &&
	       deny[-1] == *deny && deny[1] == *deny;
}

/* Is the port at the end of a line, or near one that is or was different? */
static bool at_edge(unsigned int port)
{
	return (port + 1) % IOPORT_LINE < 2 ||
	       !uniform(&model, port / 8) || !uniform(&compared, port / 8);
}

/*
 * Compare the stored bitmap, and read all ports or only those at edges, which
 * takes a fraction of the time. Returns what is wrong, or an empty string.
 */
static const char *wrong_ports(bool read_all)
{
	struct ioport_map none, seen;
	unsigned int port;
	bool empty;
	int ret;

	ret = ioport_view_self(&seen);
	if (ret && ret != -ENXIO)
		return strerror(-ret);

	port = ioport_differs(&model, &seen);
	if (port < IOPORT_NR)
		return wrong_port(port, "in the bitmap");

	ioport_clear_all(&none);
	empty = !memcmp(&model, &none, sizeof(none));
	if (empty != (ret == -ENXIO))
		return empty ? "a bitmap without ports" : "no bitmap";

	for (port = 0; port < IOPORT_NR; port++) {
		if ((read_all || at_edge(port)) && !ioport_agrees(&model, port))
			return wrong_port(port, "for INB");
	}
	compared = model;

	return "";
}

/* Each call of change() finds a bitmap which another task has as well */
static bool shared;

/* Start a child which has the bitmap that the caller has now, and stops */
static pid_t start_sharer(struct __test_metadata *_metadata)
{
	int status;
	pid_t pid;

	pid = ioport_fork();
	ASSERT_LE(0, pid);
	if (!pid) {
		if (!ptrace(PTRACE_TRACEME, 0, NULL, NULL))
			raise(SIGSTOP);
		_exit(KSFT_FAIL);
	}
	ASSERT_EQ(pid, ioport_wait(pid, &status));
	ASSERT_TRUE(WIFSTOPPED(status));

	return pid;
}

/* It still has to have the ports of @map */
static void end_sharer(struct __test_metadata *_metadata, pid_t pid,
		       const struct ioport_map *map)
{
	struct ioport_map seen;
	int ret;

	ret = ioport_view(pid, &seen);
	EXPECT_TRUE(!ret || ret == -ENXIO);
	EXPECT_EQ(0, memcmp(map, &seen, sizeof(seen))) {
		TH_LOG("port 0x%x of the other task has changed",
		       ioport_differs(map, &seen));
	}
	kill(pid, SIGKILL);
	ASSERT_EQ(pid, ioport_wait(pid, NULL));
}

/* Change the ports of the task and of the model */
static void change(struct __test_metadata *_metadata, unsigned int from,
		   unsigned int num, bool turn_on)
{
	struct ioport_map old = model;
	pid_t pid = 0;

	if (shared)
		pid = start_sharer(_metadata);

	ASSERT_EQ(0, ioperm(from, num, turn_on)) {
		TH_LOG("ioperm(0x%x, 0x%x, %d)", from, num, turn_on);
	}
	ioport_set(&model, from, num, turn_on);

	if (shared)
		end_sharer(_metadata, pid, &old);
}

/* Change them and compare */
static void step(struct __test_metadata *_metadata, unsigned int from,
		 unsigned int num, bool turn_on)
{
	change(_metadata, from, num, turn_on);
	EXPECT_STREQ("", wrong_ports(false)) {
		TH_LOG("after ioperm(0x%x, 0x%x, %d)", from, num, turn_on);
	}
}

/*
 * May an access be made, even if the kernel allows what it should not? Beyond
 * the end of the port space there is nothing to be claimed.
 */
static bool may_try(enum ioport_insn insn, unsigned int port)
{
	unsigned int width = ioport_insn_width(insn);

	if (ioport_insn_writes(insn))
		return ioport_may_write(port, width);
	if (port + width > IOPORT_NR)
		width = IOPORT_NR - port;

	return ioport_may_read(port, width);
}

/* All kinds of access to @num ports. Returns the name of one that is wrong */
static const char *wrong_access(unsigned int port, unsigned int num)
{
	unsigned int end = port + num;
	enum ioport_insn insn;
	bool right;

	for (; port < end; port++) {
		for (insn = 0; insn < IOPORT_NR_INSNS; insn++) {
			right = ioport_allows(&model, port,
					      ioport_insn_width(insn));
			if (may_try(insn, port) &&
			    ioport_try(insn, port) != right)
				return wrong_port(port, ioport_insn_name[insn]);
		}
	}

	return "";
}

static void begin(struct __test_metadata *_metadata)
{
	ioport_init();
	ioport_clear_all(&model);
	ioport_clear_all(&compared);
	ASSERT_EQ(0, ioport_pin(0, -1));
}

/* Begin a case which enables ports */
static void begin_with_ports(struct __test_metadata *_metadata)
{
	const char *reason = ioport_skip_reason();

	if (reason)
		SKIP(return, "%s", reason);

	begin(_metadata);
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
			TH_LOG("from 0x%lx, num 0x%lx, turn_on %d", from, num,
			       turn_on);
		}
		ASSERT_EQ(EINVAL, errno);
	}
}

/*
 * What needs no privileges. These come first: one finds what a CPU allows on
 * which nobody has enabled a port yet.
 */
FIXTURE(unprivileged) {
};

FIXTURE_SETUP(unprivileged)
{
	begin(_metadata);
}

FIXTURE_TEARDOWN(unprivileged)
{
}

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
FIXTURE(ports) {
};

FIXTURE_SETUP(ports)
{
	begin_with_ports(_metadata);
}

FIXTURE_TEARDOWN(ports)
{
}

TEST_F_TIMEOUT(ports, invalid_ranges_change_nothing, TIMEOUT)
{
	/* Nothing is enabled, and there is no bitmap */
	try_invalid(_metadata, true);
	EXPECT_STREQ("", wrong_ports(false));

	change(_metadata, 0, IOPORT_NR, true);
	try_invalid(_metadata, false);
	EXPECT_STREQ("", wrong_ports(true));

	/* Next to nothing, and not a port at which one of the ranges begins */
	change(_metadata, 0, IOPORT_NR, false);
	change(_metadata, 3, 1, true);
	change(_metadata, 0x2000, 3 * IOPORT_LINE, true);
	change(_metadata, IOPORT_NR - 7, 1, true);
	try_invalid(_metadata, true);
	EXPECT_STREQ("", wrong_ports(false));
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
	EXPECT_STREQ("", wrong_access(top, 8));
	EXPECT_STREQ("", wrong_ports(true));

	change(_metadata, 0, IOPORT_NR - 4, false);
	EXPECT_STREQ("", wrong_access(top, 8));

	/* The bitmap is a short one, and iopl() is not all there is */
	change(_metadata, 0, IOPORT_NR, false);
	change(_metadata, IOPORT_POST, 1, true);
	ASSERT_EQ(0, iopl(3));
	ioport_set(&model, 0, IOPORT_NR, true);
	EXPECT_STREQ("", wrong_access(top, 8));

	ASSERT_EQ(0, iopl(0));
	ioport_clear_all(&model);
	ioport_set(&model, IOPORT_POST, 1, true);
	EXPECT_STREQ("", wrong_access(top, 8));
	EXPECT_STREQ("", wrong_ports(false));
}

/*
 * All subsets of eight ports around the edge of a line, in an order in which
 * one port changes at a time. For a wide access all of its ports have to be
 * enabled.
 */
TEST_F_TIMEOUT(ports, every_subset, TIMEOUT)
{
	unsigned int i, subset, changed, last = 0;
	int base;

	base = ioport_find(8, IOPORT_LINE, IOPORT_LINE - 4,
			   IOPORT_NR - IOPORT_LINE);
	if (base < 0)
		SKIP(return, "no unclaimed ports around the edge of a line");

	for (i = 0; i < 2 << 8; i++) {
		/* In the second half, other ports are enabled around these eight */
		if (i == 1 << 8) {
			change(_metadata, base - 2 * IOPORT_LINE, 1, true);
			change(_metadata, base - 4, 2, true);
			change(_metadata, base + 10, 2, true);
			change(_metadata, base + IOPORT_LINE, 1, true);
		}
		subset = (i ^ (i >> 1)) & 0xff;
		changed = subset ^ last;
		last = subset;
		if (changed) {
			change(_metadata, base + __builtin_ctz(changed), 1,
			       subset & changed);
		}
		ASSERT_STREQ("", wrong_access(base, 8)) {
			TH_LOG("enabled are 0x%x from 0x%x on", subset, base);
		}
	}
	EXPECT_STREQ("", wrong_ports(false));
}

/* A child replaces the bitmap by a copy, and its parent keeps its own */
TEST_F(ports, child_changes_its_copy)
{
	int status;
	pid_t pid;

	change(_metadata, 0x2000, 1, true);
	change(_metadata, 0x8000, 2, true);

	pid = ioport_fork();
	ASSERT_LE(0, pid);
	if (!pid) {
		/* What is below the highest port changes, it can still go */
		step(_metadata, 0x2001, 1, true);
		step(_metadata, 0x8001, 1, false);
		step(_metadata, 0x8000, 1, false);
		_exit(KSFT_PASS);
	}
	ASSERT_EQ(pid, ioport_wait(pid, &status));
	EXPECT_EQ(0, status);
	EXPECT_STREQ("", wrong_ports(false));
}

/* Each enabled port has neighbours which are not, and the reverse */
TEST_F_TIMEOUT(ports, holes, TIMEOUT)
{
	unsigned int port, base = 0xa000 - IOPORT_LINE / 2;

	step(_metadata, base, 2 * IOPORT_LINE, true);
	for (port = base; port < base + 2 * IOPORT_LINE; port += 2)
		change(_metadata, port, 1, false);
	EXPECT_STREQ("", wrong_ports(false));

	/* The others instead */
	for (port = base; port < base + 2 * IOPORT_LINE; port++)
		change(_metadata, port, 1, port % 2 == 0);
	EXPECT_STREQ("", wrong_ports(false));

	/* Filled, where every other port is enabled already */
	step(_metadata, base + 5, IOPORT_LINE, true);
	step(_metadata, base, 2 * IOPORT_LINE, true);
	/* A hole of a line, of which one edge is that of a line */
	step(_metadata, base + IOPORT_LINE / 2, IOPORT_LINE, false);
}

/* A port in one line after the other, further up each time, and back */
TEST_F_TIMEOUT(ports, upwards, TIMEOUT)
{
	unsigned int line, port;

	for (line = 0; line < IOPORT_NR / IOPORT_LINE; line++) {
		port = line * IOPORT_LINE + (line * 37) % IOPORT_LINE;
		change(_metadata, port, 1, true);
		if (line % 32 < 2)
			EXPECT_STREQ("", wrong_ports(false));
	}
	/* The lowest ones go, and those above have to stay where they are */
	for (line = 0; line < IOPORT_NR / IOPORT_LINE; line++) {
		change(_metadata, 0, (line + 1) * IOPORT_LINE, false);
		if (line % 32 < 2)
			EXPECT_STREQ("", wrong_ports(false));
	}
}

/* Each time below all others, so that these have to make room, and back */
TEST_F_TIMEOUT(ports, downwards, TIMEOUT)
{
	unsigned int line, port;

	for (line = IOPORT_NR / IOPORT_LINE; line--; ) {
		port = line * IOPORT_LINE + (line * 91) % IOPORT_LINE;
		change(_metadata, port, 3, true);
		if (line % 32 < 2)
			EXPECT_STREQ("", wrong_ports(false));
	}
	/* The highest port goes each time, and leaves the next lower one */
	for (port = IOPORT_NR; port--; ) {
		if (!ioport_allows(&model, port, 1))
			continue;
		change(_metadata, port, 1, false);
		if (port / IOPORT_LINE % 32 < 2)
			EXPECT_STREQ("", wrong_ports(false));
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
		if (i % 100 == 99) {
			EXPECT_STREQ("", wrong_ports(false)) {
				TH_LOG("after call %u", i);
			}
		}
	}
	EXPECT_STREQ("", wrong_ports(true));
}

/*
 * Sequences of calls, alone and while another task has the bitmap, too
 */
FIXTURE(sequence) {
};

FIXTURE_VARIANT(sequence) {
	bool	shared;
};

FIXTURE_VARIANT_ADD(sequence, own_bitmap)	{ .shared = false };
FIXTURE_VARIANT_ADD(sequence, shared_bitmap)	{ .shared = true };

FIXTURE_SETUP(sequence)
{
	begin_with_ports(_metadata);
	shared = variant->shared;
}

FIXTURE_TEARDOWN(sequence)
{
}

/* Two ports side by side, with the edge of a byte, a long or a line between */
TEST_F_TIMEOUT(sequence, pairs, TIMEOUT)
{
	static const unsigned int upper[] = {
		1, 32, 64, 512, 0x400, IOPORT_NR - 1,
	};
	unsigned int i, port;

	for (i = 0; i < ARRAY_SIZE(upper); i++) {
		port = upper[i];
		step(_metadata, port, 1, true);
		step(_metadata, port - 1, 1, true);
		step(_metadata, port, 1, false);
		step(_metadata, port, 1, true);
		step(_metadata, port - 1, 1, false);
		step(_metadata, port, 1, false);

		/* All others, only those below, only those above */
		step(_metadata, 0, IOPORT_NR, true);
		step(_metadata, port, 1, false);
		step(_metadata, port - 1, 1, false);
		step(_metadata, port, 1, true);
		step(_metadata, port, IOPORT_NR - port, false);
		step(_metadata, port, IOPORT_NR - port, true);
		step(_metadata, 0, port, false);
		step(_metadata, 0, IOPORT_NR, false);
	}
}

static const struct call {
	unsigned int	from;
	unsigned int	num;
	bool		turn_on;
} calls[] = {
	/* The highest port goes, although one below it was changed before */
	{ 0x2000, 1, true },
	{ 0x8000, 1, true },
	{ 0x2001, 2, true },
	{ 0x8000, 1, false },
	/* Some of the same long are left, and the highest of these goes */
	{ 0x2002, 1, false },
	{ 0x2000, 2, false },
	/* Lines come in between others, are joined and taken apart */
	{ 20 * IOPORT_LINE + 3, 5, true },
	{ 60 * IOPORT_LINE + 500, 5, true },
	{ 40 * IOPORT_LINE, IOPORT_LINE, true },
	/* Partly there already, from the middle of a line to that of another */
	{ 38 * IOPORT_LINE + 100, 5 * IOPORT_LINE, true },
	{ 10 * IOPORT_LINE, 55 * IOPORT_LINE + 1, true },
	/* Exactly a line, one less and one more */
	{ 30 * IOPORT_LINE, IOPORT_LINE, false },
	{ 32 * IOPORT_LINE, IOPORT_LINE - 1, false },
	{ 34 * IOPORT_LINE, IOPORT_LINE + 1, false },
	{ 36 * IOPORT_LINE - 1, IOPORT_LINE + 1, false },
	/* The same again changes nothing */
	{ 36 * IOPORT_LINE - 1, IOPORT_LINE + 1, false },
	{ 30 * IOPORT_LINE, IOPORT_LINE, false },
	{ 30 * IOPORT_LINE + 17, 1, true },
	{ 30 * IOPORT_LINE + 17, 1, true },
	/* The lowest and the highest ones */
	{ 0, 12 * IOPORT_LINE + 9, false },
	{ 50 * IOPORT_LINE + 9, IOPORT_NR - 50 * IOPORT_LINE - 9, false },
	{ IOPORT_NR - 1, 1, true },
	{ 0, 1, true },
	/* What is left is at both ends */
	{ 1, IOPORT_NR - 2, false },
	{ 0, 1, false },
	{ IOPORT_NR - 1, 1, false },
	/* The largest ranges */
	{ 0, IOPORT_NR - 1, true },
	{ 0, IOPORT_NR - 1, false },
	{ 1, IOPORT_NR - 1, true },
	{ 1, IOPORT_NR - 1, false },
	{ IOPORT_POST, IOPORT_NR - IOPORT_POST, true },
	{ IOPORT_POST, IOPORT_NR - IOPORT_POST, false },
	{ IOPORT_NR - 2, 2, true },
	{ IOPORT_NR - 2, 2, false },
};

TEST_F_TIMEOUT(sequence, chosen_calls, TIMEOUT)
{
	unsigned int i;

	for (i = 0; i < ARRAY_SIZE(calls); i++)
		step(_metadata, calls[i].from, calls[i].num, calls[i].turn_on);
}

TEST_HARNESS_MAIN
