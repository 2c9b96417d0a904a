// SPDX-License-Identifier: GPL-2.0-only
/*
 * ioperm_boundaries.c - ioperm() where the I/O bitmap is easily off by one
 *
 * The CPU looks up one bit for each byte of an access. The kernel keeps these
 * bits in longs and in cache lines, may store only those which hold an enabled
 * port, and copies them to the TSS of the CPU. So a mistake is most likely at
 * the edge of a byte, a long or a line, at the highest enabled port, or at the
 * end of the port space, and when the set of ports grows, shrinks or gets
 * holes. These are tried here, by one task. What other tasks get, and what
 * happens on a switch, is for other tests.
 *
 * A model has the expected state of all 65536 ports. It is compared with the
 * bitmap as ptrace() shows it, which is what the kernel keeps for the task, and
 * with what happens on access, which is what the CPU really uses. A case that
 * makes many changes tries only some of the ports after each of them, and all
 * of them at the end.
 *
 * Which ports are touched on bare metal: only 0x80 and ports that nothing in
 * /proc/ioports claims are ever read while they are enabled, see
 * ioport_helper.h, and none of them is written. Where the port at a boundary
 * is claimed by a device, as port 0 is by the DMA controller and some below
 * 0x400 are by graphics, it is enabled, but not touched. That it is enabled is
 * then seen in the bitmap only, and the neighbours, which are not enabled,
 * still have to fault. An access that faults never reaches a device, so these
 * are tried for all ports and in all kinds, reads and writes.
 *
 * With IOPORT_PROBE_ALL=1 in the environment, which is meant for a virtual
 * machine, all enabled ports are read unless they are claimed.
 *
 * Without privileges everything is skipped that enables a port.
 */
#include "kselftest_harness.h"
#include "ioport_helper.h"

#include <limits.h>

#define WHY_LEN		128

static struct ioport_map model, before;

/*
 * All that is wrong goes into this, the cases expect it to be empty. The
 * ports of @model are tried one by one, which takes a second or more.
 */
static const char *all_ports(void)
{
	static char why[WHY_LEN];

	ioport_compare(&model, IOPORT_BY_VIEW | IOPORT_BY_ACCESS, why,
		       sizeof(why));
	before = model;

	return why;
}

/* Are the eight ports of a byte and those around it all the same? */
static bool uniform(const struct ioport_map *map, unsigned int byte)
{
	const uint8_t *deny = map->deny + byte;

	if (!byte || byte == IOPORT_MAP_BYTES - 1)
		return false;

	return (*deny == 0 || *deny == 0xff) && deny[-1] == *deny &&
	       deny[1] == *deny;
}

/* Is the port at the end of a line, or near one that is or was different? */
static bool at_edge(unsigned int port)
{
	unsigned int pos = port % IOPORT_LINE;

	return !pos || pos == IOPORT_LINE - 1 ||
	       !uniform(&model, port / 8) || !uniform(&before, port / 8);
}

/*
 * The whole bitmap, but try only the ports at both ends of each line, and those
 * near an edge of what is enabled now or was when this was called last.
 */
static const char *ports_at_edges(void)
{
	static char why[WHY_LEN];
	unsigned int port;

	if (ioport_compare(&model, IOPORT_BY_VIEW, why, sizeof(why)))
		return why;

	for (port = 0; port < IOPORT_NR; port++) {
		if (!at_edge(port) || ioport_agrees(&model, port))
			continue;
		snprintf(why, sizeof(why), "inb from port 0x%x is wrong", port);
		return why;
	}
	before = model;

	return "";
}

/* Change the ports of the task and of the model */
static int change(unsigned int from, unsigned int num, bool turn_on)
{
	if (ioperm(from, num, turn_on))
		return -errno;

	ioport_set(&model, from, num, turn_on);
	return 0;
}

static int enable(unsigned int from, unsigned int num)
{
	return change(from, num, true);
}

static int disable(unsigned int from, unsigned int num)
{
	return change(from, num, false);
}

static void start(void)
{
	ioport_clear_all(&model);
	ioport_clear_all(&before);
}

/*
 * May an access be made if it is expected to be executed? If it is expected to
 * be refused it may.
 */
static bool may_execute(enum ioport_insn insn, unsigned int port)
{
	switch (insn) {
	case IOPORT_INB:
	case IOPORT_INW:
	case IOPORT_INL:
	case IOPORT_INSB:
	case IOPORT_INSW:
	case IOPORT_INSL:
		return ioport_safe(port, ioport_insn_width(insn));
	case IOPORT_OUTB:
	case IOPORT_OUTSB:
		return port == IOPORT_POST;
	default:
		return false;
	}
}

/* All kinds of access to a port. Returns the name of one that is wrong */
static const char *wrong_access(unsigned int port)
{
	enum ioport_insn insn;
	bool right;

	for (insn = 0; insn < IOPORT_NR_INSNS; insn++) {
		right = ioport_allows(&model, port, ioport_insn_width(insn));
		if (right && !may_execute(insn, port))
			continue;
		if (ioport_try(insn, port) != right)
			return ioport_insn_name[insn];
	}

	return "";
}

/*
 * What needs no privileges
 */
FIXTURE(unprivileged) {
};

FIXTURE_SETUP(unprivileged)
{
	start();
	ASSERT_EQ(0, ioport_pin());
}

FIXTURE_TEARDOWN(unprivileged)
{
}

TEST_F(unprivileged, all_ports_denied)
{
	char why[WHY_LEN];

	EXPECT_EQ(0, ioport_compare(&model, IOPORT_BY_ACCESS, why, sizeof(why)))
		TH_LOG("%s", why);
}

/*
 * Arguments
 */
static const struct range {
	unsigned long	from;
	unsigned long	num;
} invalid[] = {
	/* No port at all */
	{ 0, 0 },
	{ IOPORT_POST, 0 },
	{ IOPORT_NR - 1, 0 },
	{ IOPORT_NR, 0 },
	{ ULONG_MAX, 0 },
	/* One too many */
	{ 0, IOPORT_NR + 1 },
	{ 1, IOPORT_NR },
	{ IOPORT_POST, IOPORT_NR - IOPORT_POST + 1 },
	{ IOPORT_NR - 1, 2 },
	{ IOPORT_NR, 1 },
	{ IOPORT_NR + 1, 1 },
	/* Far too many, with and without an overflow */
	{ 0, INT_MAX },
	{ 0, UINT_MAX },
	{ IOPORT_POST, INT_MAX },
	{ IOPORT_POST, UINT_MAX },
	{ INT_MAX, 1 },
	{ INT_MAX, INT_MAX },
	{ UINT_MAX, 1 },
	{ UINT_MAX, 2 },
	{ UINT_MAX, UINT_MAX },
	{ 0x80000000, 0x80000000 },
	{ 0x80000080, 0x80000001 },
	{ UINT_MAX - IOPORT_POST, 2 * IOPORT_POST },
	{ IOPORT_POST, UINT_MAX - IOPORT_POST + 2 },
	{ 0, ULONG_MAX },
	{ 1, ULONG_MAX },
	{ IOPORT_POST, ULONG_MAX },
	{ IOPORT_POST, -(unsigned long)IOPORT_POST },
	{ IOPORT_POST, -(unsigned long)IOPORT_POST + 1 },
	{ ULONG_MAX, 1 },
	{ ULONG_MAX, 2 },
	{ ULONG_MAX, IOPORT_POST + 2 },
	{ ULONG_MAX, ULONG_MAX },
	{ LONG_MAX, 1 },
	{ LONG_MAX, LONG_MAX },
	{ (unsigned long)LONG_MIN, (unsigned long)LONG_MIN },
#ifdef __x86_64__
	/* Valid if the upper half was cut off */
	{ (1UL << 32) + IOPORT_POST, 1 },
	{ IOPORT_POST, (1UL << 32) + 1 },
	{ (1UL << 32) + IOPORT_POST, (1UL << 32) + 1 },
	{ (1UL << 63) + IOPORT_POST, 1 },
	{ IOPORT_POST, (1UL << 63) + 1 },
	{ (1UL << 63) + IOPORT_POST, (1UL << 63) + 1 },
	{ 1UL << 32, IOPORT_NR },
	{ 0, (1UL << 32) + IOPORT_NR },
	{ 0xffffffff00000000UL + IOPORT_POST, 1 },
#endif
};

/* The C library might look at the arguments */
static long raw_ioperm(unsigned long from, unsigned long num, long turn_on)
{
	return syscall(SYS_ioperm, from, num, turn_on);
}

static void try_invalid(struct __test_metadata *_metadata, bool turn_on)
{
	const struct range *r;
	unsigned int i;

	for (i = 0; i < ARRAY_SIZE(invalid); i++) {
		r = &invalid[i];
		errno = 0;
		EXPECT_EQ(-1, raw_ioperm(r->from, r->num, turn_on)) {
			TH_LOG("from 0x%lx, num 0x%lx, turn_on %d",
			       r->from, r->num, turn_on);
		}
		EXPECT_EQ(EINVAL, errno);
	}
}

TEST_F(unprivileged, invalid_ranges)
{
	if (ioport_errno() == -ENOSYS)
		SKIP(return, "%s", ioport_skip_reason());

	try_invalid(_metadata, false);
}

/*
 * All that follows enables ports
 */
FIXTURE(ports) {
};

FIXTURE_SETUP(ports)
{
	const char *reason = ioport_skip_reason();

	if (reason)
		SKIP(return, "%s", reason);

	start();
	ASSERT_EQ(0, ioport_pin());
}

FIXTURE_TEARDOWN(ports)
{
}

TEST_F(ports, invalid_ranges_give_no_bitmap)
{
	struct ioport_map seen;

	try_invalid(_metadata, true);
	EXPECT_EQ(-ENXIO, ioport_view_self(&seen));
	EXPECT_STREQ("", ports_at_edges());
}

TEST_F(ports, invalid_ranges_change_nothing)
{
	/* Everything to lose */
	ASSERT_EQ(0, enable(0, IOPORT_NR));
	try_invalid(_metadata, false);
	EXPECT_STREQ("", all_ports());

	/* Next to nothing, and not a port at which one of the ranges begins */
	ASSERT_EQ(0, disable(0, IOPORT_NR));
	ASSERT_EQ(0, enable(3, 1));
	ASSERT_EQ(0, enable(0x2000, 3 * IOPORT_LINE));
	ASSERT_EQ(0, disable(0x2000 + IOPORT_LINE + 7, 1));
	ASSERT_EQ(0, enable(IOPORT_NR - 7, 1));
	try_invalid(_metadata, true);
	EXPECT_STREQ("", ports_at_edges());
}

/* The largest ranges which are valid */
TEST_F(ports, valid_ranges)
{
	static const struct range valid[] = {
		{ 0, IOPORT_NR },
		{ 0, IOPORT_NR - 1 },
		{ 1, IOPORT_NR - 1 },
		{ IOPORT_POST, IOPORT_NR - IOPORT_POST },
		{ IOPORT_NR - 1, 1 },
		{ IOPORT_NR - 2, 2 },
		{ 0, 1 },
	};
	struct ioport_map seen;
	const struct range *r;
	unsigned int i;

	for (i = 0; i < ARRAY_SIZE(valid); i++) {
		r = &valid[i];
		EXPECT_EQ(0, enable(r->from, r->num));
		EXPECT_STREQ("", ports_at_edges()) {
			TH_LOG("from 0x%lx, num 0x%lx, enabled", r->from, r->num);
		}
		EXPECT_EQ(0, disable(r->from, r->num));
		EXPECT_STREQ("", ports_at_edges()) {
			TH_LOG("from 0x%lx, num 0x%lx, disabled", r->from, r->num);
		}
		EXPECT_EQ(-ENXIO, ioport_view_self(&seen));
	}
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

/*
 * Two ports side by side, with a boundary between them
 */
FIXTURE(pair) {
};

FIXTURE_VARIANT(pair) {
	/* The upper one. The lower one of port 0 does not exist */
	unsigned int	port;
};

FIXTURE_VARIANT_ADD(pair, port_0)		{ .port = 0 };
FIXTURE_VARIANT_ADD(pair, ports_31_32)		{ .port = 32 };
FIXTURE_VARIANT_ADD(pair, ports_63_64)		{ .port = 64 };
FIXTURE_VARIANT_ADD(pair, ports_511_512)	{ .port = 512 };
FIXTURE_VARIANT_ADD(pair, ports_0x3ff_0x400)	{ .port = 0x400 };
FIXTURE_VARIANT_ADD(pair, ports_65534_65535)	{ .port = 65535 };

FIXTURE_SETUP(pair)
{
	const char *reason = ioport_skip_reason();

	if (reason)
		SKIP(return, "%s", reason);

	start();
	ASSERT_EQ(0, ioport_pin());
}

FIXTURE_TEARDOWN(pair)
{
}

/* The neighbours at both sides, with all kinds of access */
static const char *around(unsigned int port)
{
	unsigned int from = port < 8 ? 0 : port - 8;
	unsigned int to = port > IOPORT_NR - 9 ? IOPORT_NR - 1 : port + 8;
	const char *wrong = "";

	while (from <= to && !*wrong)
		wrong = wrong_access(from++);

	return wrong;
}

TEST_F(pair, enabled_one_by_one)
{
	unsigned int port = variant->port;
	struct ioport_map seen;

	/* Only the upper one */
	ASSERT_EQ(0, enable(port, 1));
	EXPECT_STREQ("", around(port));
	EXPECT_STREQ("", ports_at_edges());

	if (port) {
		/* Both */
		ASSERT_EQ(0, enable(port - 1, 1));
		EXPECT_STREQ("", around(port));
		EXPECT_STREQ("", ports_at_edges());

		/* Only the lower one */
		ASSERT_EQ(0, disable(port, 1));
		EXPECT_STREQ("", around(port));
		EXPECT_STREQ("", ports_at_edges());

		/* Both, and the upper one is left */
		ASSERT_EQ(0, enable(port, 1));
		ASSERT_EQ(0, disable(port - 1, 1));
		EXPECT_STREQ("", around(port));
		EXPECT_STREQ("", ports_at_edges());
	}

	ASSERT_EQ(0, disable(port, 1));
	EXPECT_STREQ("", around(port));
	EXPECT_EQ(-ENXIO, ioport_view_self(&seen));
	EXPECT_STREQ("", ports_at_edges());
}

/* The reverse: everything is enabled up to, from, and except the two */
TEST_F(pair, disabled_one_by_one)
{
	unsigned int port = variant->port;

	ASSERT_EQ(0, enable(0, IOPORT_NR));
	ASSERT_EQ(0, disable(port, 1));
	EXPECT_STREQ("", around(port));
	EXPECT_STREQ("", ports_at_edges());

	if (port) {
		ASSERT_EQ(0, disable(port - 1, 1));
		EXPECT_STREQ("", around(port));
		EXPECT_STREQ("", ports_at_edges());

		ASSERT_EQ(0, enable(port, 1));
		EXPECT_STREQ("", around(port));
		EXPECT_STREQ("", ports_at_edges());

		/* Only what is below */
		ASSERT_EQ(0, disable(port, IOPORT_NR - port));
		EXPECT_STREQ("", around(port));
		EXPECT_STREQ("", ports_at_edges());

		/* Only what is above */
		ASSERT_EQ(0, enable(port, IOPORT_NR - port));
		ASSERT_EQ(0, disable(0, port));
		EXPECT_STREQ("", around(port));
		EXPECT_STREQ("", ports_at_edges());
	}

	ASSERT_EQ(0, disable(0, IOPORT_NR));
	EXPECT_STREQ("", around(port));
	EXPECT_STREQ("", ports_at_edges());
}

/*
 * Accesses of one, two and four bytes, for which all bytes have to be enabled
 */
#define WINDOW		8

FIXTURE(wide) {
	/* A window of as many ports. The boundary is in the middle of it */
	int	base;
};

FIXTURE_VARIANT(wide) {
	/* The first port after the boundary, modulo the size of a line */
	unsigned int	boundary;
	/* Other ports are enabled below and above the window */
	bool		others;
};

FIXTURE_VARIANT_ADD(wide, across_byte)		{ .boundary = 8 };
FIXTURE_VARIANT_ADD(wide, across_32_bits)	{ .boundary = 32 };
FIXTURE_VARIANT_ADD(wide, across_64_bits)	{ .boundary = 64 };
FIXTURE_VARIANT_ADD(wide, across_line)		{ .boundary = 0, .others = true };
FIXTURE_VARIANT_ADD(wide, across_end_of_bitmap)	{ .boundary = 0 };

FIXTURE_SETUP(wide)
{
	const char *reason = ioport_skip_reason();
	unsigned int phase;

	if (reason)
		SKIP(return, "%s", reason);

	start();
	ASSERT_EQ(0, ioport_pin());

	phase = (variant->boundary - WINDOW / 2) % IOPORT_LINE;
	self->base = ioport_find(WINDOW, IOPORT_LINE, phase,
				 IOPORT_NR - 4 * IOPORT_LINE);
	if (self->base < 0)
		SKIP(return, "no unclaimed ports for the window");
	ASSERT_LT(4 * IOPORT_LINE, self->base);

	if (!variant->others)
		return;

	ASSERT_EQ(0, enable(self->base - 2 * IOPORT_LINE, 1));
	ASSERT_EQ(0, enable(self->base - 4, 2));
	ASSERT_EQ(0, enable(self->base + WINDOW + 2, 2));
	ASSERT_EQ(0, enable(self->base + 2 * IOPORT_LINE, 1));
}

FIXTURE_TEARDOWN(wide)
{
}

/* All subsets of the window, in an order in which one port changes at a time */
TEST_F(wide, every_subset)
{
	unsigned int step, subset, changed, last = 0, off;
	const char *wrong;

	for (step = 0; step < 1 << WINDOW; step++) {
		subset = step ^ (step >> 1);
		changed = subset ^ last;
		last = subset;

		if (changed) {
			ASSERT_EQ(0, change(self->base + __builtin_ctz(changed),
					    1, subset & changed));
		}

		for (off = 0; off < WINDOW; off++) {
			wrong = wrong_access(self->base + off);
			EXPECT_STREQ("", wrong) {
				TH_LOG("port 0x%x, enabled are 0x%x from 0x%x on",
				       self->base + off, subset, self->base);
			}
			if (*wrong)
				return;
		}
	}

	EXPECT_STREQ("", ports_at_edges());
}

/*
 * The end of the port space: an access must not go beyond it
 */
static const char *top_of_port_space(void)
{
	const char *wrong = "";
	unsigned int port;

	for (port = IOPORT_NR - WINDOW; port < IOPORT_NR && !*wrong; port++)
		wrong = wrong_access(port);

	return wrong;
}

TEST_F(ports, top_all_enabled)
{
	ASSERT_EQ(0, enable(0, IOPORT_NR));
	EXPECT_STREQ("", top_of_port_space());
	EXPECT_STREQ("", all_ports());
}

TEST_F(ports, top_four_enabled)
{
	ASSERT_EQ(0, enable(IOPORT_NR - 4, 4));
	EXPECT_STREQ("", top_of_port_space());
	EXPECT_STREQ("", ports_at_edges());
}

TEST_F(ports, top_iopl)
{
	/* So that iopl() is not all there is, and the bitmap is a short one */
	ASSERT_EQ(0, enable(IOPORT_POST, 1));

	ASSERT_EQ(0, iopl(3));
	ioport_set(&model, 0, IOPORT_NR, true);
	EXPECT_STREQ("", top_of_port_space());

	ASSERT_EQ(0, iopl(0));
	start();
	ioport_set(&model, IOPORT_POST, 1, true);
	EXPECT_STREQ("", top_of_port_space());
	EXPECT_STREQ("", ports_at_edges());
}

/*
 * Sequences of changes
 */

/* Each enabled port has neighbours which are not, and the reverse */
TEST_F(ports, holes)
{
	unsigned int port, base = 0xa000 - IOPORT_LINE / 2;

	/* Filled, then perforated */
	ASSERT_EQ(0, enable(base, 2 * IOPORT_LINE));
	for (port = base; port < base + 2 * IOPORT_LINE; port += 2)
		ASSERT_EQ(0, disable(port, 1));
	EXPECT_STREQ("", ports_at_edges());

	/* The others instead */
	for (port = base; port < base + 2 * IOPORT_LINE; port++)
		ASSERT_EQ(0, change(port, 1, !(port % 2)));
	EXPECT_STREQ("", ports_at_edges());

	/* Filled again, which enables some that are enabled already */
	ASSERT_EQ(0, enable(base + 5, IOPORT_LINE));
	EXPECT_STREQ("", ports_at_edges());
	ASSERT_EQ(0, enable(base, 2 * IOPORT_LINE));
	EXPECT_STREQ("", ports_at_edges());

	/* A hole of a line, of which one edge is that of a line */
	ASSERT_EQ(0, disable(base + IOPORT_LINE / 2, IOPORT_LINE));
	EXPECT_STREQ("", ports_at_edges());
}

/* A port in one line after the other, each time further up */
TEST_F(ports, grow_upwards)
{
	unsigned int line;

	for (line = 0; line < IOPORT_NR / IOPORT_LINE; line++) {
		ASSERT_EQ(0, enable(line * IOPORT_LINE + (line * 37) % IOPORT_LINE, 1));
		if (line % 32 == 31 || line < 2)
			EXPECT_STREQ("", ports_at_edges());
	}
}

/* Each time below all others, so that these have to make room */
TEST_F(ports, grow_downwards)
{
	unsigned int line = IOPORT_NR / IOPORT_LINE;

	while (line--) {
		ASSERT_EQ(0, enable(line * IOPORT_LINE + (line * 91) % IOPORT_LINE, 3));
		if (line % 32 == 0 || line > 125)
			EXPECT_STREQ("", ports_at_edges());
	}
}

/* The highest port goes each time, and leaves the next lower one */
TEST_F(ports, shrink_from_top)
{
	unsigned int size;

	for (size = 1; size <= IOPORT_NR; size *= 2)
		ASSERT_EQ(0, enable(size - 1, 1));
	EXPECT_STREQ("", ports_at_edges());

	for (size = IOPORT_NR; size; size /= 2) {
		ASSERT_EQ(0, disable(size - 1, 1));
		EXPECT_STREQ("", ports_at_edges());
	}
}

/* The lowest one goes, and those above have to stay where they are */
TEST_F(ports, shrink_from_bottom)
{
	unsigned int size;

	for (size = 1; size <= IOPORT_NR; size *= 2)
		ASSERT_EQ(0, enable(size - 1, 2 - size / IOPORT_NR));

	for (size = 1; size <= IOPORT_NR; size *= 2) {
		ASSERT_EQ(0, disable(0, size == IOPORT_NR ? size : size + 1));
		EXPECT_STREQ("", ports_at_edges());
	}
}

/* Lines come in between others, are joined and taken apart */
TEST_F(ports, lines_in_between)
{
	static const struct {
		unsigned int	from;
		unsigned int	num;
		bool		turn_on;
	} calls[] = {
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
		{ 127 * IOPORT_LINE + 511, 1, true },
		{ 0, 1, true },
		/* What is left is at both ends */
		{ 1, IOPORT_NR - 2, false },
		{ 0, 1, false },
	};
	unsigned int i;

	for (i = 0; i < ARRAY_SIZE(calls); i++) {
		ASSERT_EQ(0, change(calls[i].from, calls[i].num, calls[i].turn_on));
		EXPECT_STREQ("", ports_at_edges()) {
			TH_LOG("call %u", i);
		}
	}
}

/* Always the same calls, of all sizes, with edges near those of longs and lines */
TEST_F(ports, many_calls)
{
	unsigned int i, from, num, log;
	uint32_t state = 1;

#define RANDOM(n)							\
({									\
	state = state * 1664525 + 1013904223;				\
	(state >> 8) % (n);						\
})

	for (i = 0; i < 2000; i++) {
		log = RANDOM(17);
		num = 1 + RANDOM(1U << log);
		from = RANDOM(IOPORT_NR - num + 1);
		/* To the next multiple of 8 to 512, or to the one before it */
		if (RANDOM(2)) {
			from &= -(8U << RANDOM(7));
			from -= from && RANDOM(2);
		}
		ASSERT_EQ(0, change(from, num, RANDOM(2)));
		if (i % 200 == 199) {
			EXPECT_STREQ("", ports_at_edges()) {
				TH_LOG("call %u", i);
			}
		}
	}

#undef RANDOM

	EXPECT_STREQ("", all_ports());
}

int main(int argc, char **argv)
{
	return ioport_harness_run(argc, argv);
}
