// SPDX-License-Identifier: GPL-2.0
/*
 * ioperm_faults.c - I/O permissions when memory runs out
 *
 * ioperm() may need memory: for the first port, for more ports than there is
 * room for, and for a bitmap of its own when fork() made two tasks share one.
 * Without memory it fails with ENOMEM, and then the task has exactly the ports
 * that it had before. That matters most for a call that takes ports away: a
 * task which lost, or kept, others than it was told cannot know which.
 *
 * Each case lets the first allocation of a call fail, then the second and so
 * on, until the call gets through without any failure, and checks each time:
 *
 *  - The call either succeeds, if the kernel can do without what it did not
 *    get, and then all 65536 ports are as asked for.
 *  - Or it fails with ENOMEM, all 65536 ports are as they were, and the same
 *    call succeeds when it is made again with memory.
 *  - A task that shares the bitmap keeps what it has in either case.
 *
 * Which ports a task has is read from its bitmap through ptrace() and tried
 * with real accesses as far as it is safe. Some calls need no memory on any
 * account and must not fail:
 *
 *  - Ports are taken away from a bitmap that is not shared.
 *  - The last port is taken away, shared or not, which leaves no bitmap.
 *  - Nothing changes.
 *  - iopl(), which has no bitmap at all.
 *
 * Allocations are made to fail with /proc/thread-self/fail-nth, see fail_nth.h
 * for what that needs. A bitmap with many ports comes from the page allocator,
 * which takes FAIL_PAGE_ALLOC. What is missing makes a case a skip, and so does
 * a kernel whose bitmaps are out of reach of the injection, because a call that
 * cannot fail proves nothing by its success.
 *
 * On bare metal nobody knows what an access does. Ports that are both enabled
 * and accessed here are 0x80, the POST code port, and such that /proc/ioports
 * says nobody uses. All others are accessed only while they are disabled, so
 * that the access never gets to a device.
 */
#define _GNU_SOURCE
#include <errno.h>
#include <signal.h>
#include <stdbool.h>
#include <stdio.h>
#include <string.h>
#include <sys/io.h>
#include <sys/ptrace.h>
#include <sys/syscall.h>
#include <time.h>
#include <unistd.h>

#include "kselftest_harness.h"
#include "fail_nth.h"
#include "ioport_helper.h"

#define MAX_CHANGES	2

/* More allocations than any call makes, fork() included */
#define MAX_NTH		3000

/* How long fork() is made to fail */
#define FORK_SECONDS	12

/* Reading the bitmap takes long, after a failed fork() only now and then */
#define VIEW_EACH	32

/* A bitmap with more lines than that may come from the page allocator */
#define SLAB_LINES	100

static const char *skip_reason(void)
{
	const char *reason = ioport_skip_reason();

	if (reason)
		return reason;

	return fail_nth_skip_reason();
}

/*
 * Cases
 */

/* Does a call need memory? */
enum need {
	/* In any kernel: if nothing fails, nothing was tested */
	NEEDS_MEMORY,
	/* Depends on how the kernel keeps the bitmap */
	MAY_NEED_MEMORY,
	/* Must not fail without */
	NEEDS_NO_MEMORY,
};

struct change {
	unsigned int	from;
	unsigned int	num;
	int		turn_on;
};

struct fault_case {
	/* The ports that the task has before, up to the first without @num */
	struct change	before[MAX_CHANGES];
	/* One port in each of the first so many lines */
	unsigned int	before_lines;
	/* Does another task have the same bitmap? */
	bool		shared;
	struct change	call;
	enum need	need;
};

static int apply(const struct change *change)
{
	return ioperm(change->from, change->num, change->turn_on);
}

/* Enable the ports that a case begins with, and only these */
static bool set_up(const struct fault_case *c, struct ioport_map *model)
{
	unsigned int i;

	ioport_clear_all(model);
	if (ioperm(0, IOPORT_NR, 0))
		return false;

	for (i = 0; i < MAX_CHANGES && c->before[i].num; i++) {
		if (apply(&c->before[i]))
			return false;
		ioport_set(model, c->before[i].from, c->before[i].num,
			   c->before[i].turn_on);
	}
	for (i = 0; i < c->before_lines; i++) {
		if (ioperm(i * IOPORT_LINE + i, 1, 1))
			return false;
		ioport_set(model, i * IOPORT_LINE + i, 1, true);
	}

	return true;
}

static unsigned int count_lines(const struct ioport_map *map)
{
	unsigned int port, line = 0, lines = 0;

	for (port = 0; port < IOPORT_NR; port++) {
		if (ioport_allows(map, port, 1) && port / IOPORT_LINE + 1 > line) {
			line = port / IOPORT_LINE + 1;
			lines++;
		}
	}

	return lines;
}

/* A child that has the bitmap of the caller, and is stopped to be looked at */
static pid_t fork_holder(void)
{
	int status;
	pid_t pid;

	pid = fork();
	if (!pid) {
		if (ptrace(PTRACE_TRACEME, 0, NULL, NULL))
			_exit(errno);
		raise(SIGSTOP);
		_exit(0);
	}
	if (pid > 0 && (ioport_wait(pid, &status) != pid || !WIFSTOPPED(status)))
		return -1;

	return pid;
}

static void end_holder(pid_t pid)
{
	int status;

	kill(pid, SIGKILL);
	ioport_wait(pid, &status);
}

/*
 * All 65536 ports by the bitmap. By access those at which something changes,
 * and some between them: each port takes too long on an emulated machine.
 */
static bool has_exactly(const struct ioport_map *model, const char *when)
{
	unsigned int port;
	char why[128];
	bool right;

	if (ioport_compare(model, IOPORT_BY_VIEW, why, sizeof(why))) {
		ksft_print_msg("%s: %s\n", when, why);
		return false;
	}

	for (port = 0; port < IOPORT_NR; port++) {
		right = ioport_allows(model, port, 1);
		if (port % 4093 && port != IOPORT_NR - 1 &&
		    right == ioport_allows(model, port - 1, 1) &&
		    right == ioport_allows(model, port + 1, 1))
			continue;
		if (right && !ioport_may_read(model, port))
			continue;
		if (ioport_inb(port) != right) {
			ksft_print_msg("%s: port 0x%x %s\n", when, port,
				       right ? "faulted" : "worked");
			return false;
		}
	}

	return true;
}

static bool holder_has_exactly(pid_t holder, const struct ioport_map *model,
			       const char *when)
{
	struct ioport_map seen;
	int ret;

	if (!holder)
		return true;

	ret = ioport_view(holder, &seen);
	if (ret && ret != -ENXIO) {
		ksft_print_msg("%s: the sharer's bitmap: %s\n", when,
			       strerror(-ret));
		return false;
	}
	if (memcmp(&seen, model, sizeof(seen))) {
		ksft_print_msg("%s: the ports of the sharer have changed\n",
			       when);
		return false;
	}

	return true;
}

/*
 * Unsharing needs memory in any kernel. If that of this bitmap cannot be made
 * to fail, a call that does not fail shows nothing.
 */
static bool is_in_reach(struct __test_metadata *_metadata,
			const struct fault_case *c)
{
	struct ioport_map model;
	unsigned int nth;
	bool failed = false, more = true;
	pid_t holder;
	int ret;

	for (nth = 1; more && !failed && nth < MAX_NTH; nth++) {
		ASSERT_TRUE(set_up(c, &model));
		holder = fork_holder();
		ASSERT_GT(holder, 0);

		ASSERT_TRUE(fail_nth_arm(nth));
		ret = ioperm(0x100, 1, !ioport_allows(&model, 0x100, 1));
		more = fail_nth_disarm();
		failed = ret != 0;

		end_holder(holder);
	}

	return failed;
}

static void run_case(struct __test_metadata *_metadata,
		     const struct fault_case *c)
{
	struct ioport_map before, after;
	unsigned int nth, failures = 0;
	bool injected = true;
	const char *reason;
	pid_t holder = 0;
	int ret, err;

	reason = skip_reason();
	if (reason)
		SKIP(return, "%s", reason);

	ASSERT_TRUE(set_up(c, &before));
	after = before;
	ioport_set(&after, c->call.from, c->call.num, c->call.turn_on);

	if (!fail_nth_reaches_pages() &&
	    (count_lines(&before) > SLAB_LINES ||
	     count_lines(&after) > SLAB_LINES))
		SKIP(return, "the bitmap takes pages: kernel without FAIL_PAGE_ALLOC");
	if (c->before[0].num + c->before_lines && !is_in_reach(_metadata, c))
		SKIP(return, "allocations of this kernel's bitmaps are out of reach of %s",
		     fail_nth_reaches_pages() ? "failslab and fail_page_alloc" :
					"failslab: no FAIL_PAGE_ALLOC");

	for (nth = 1; injected && nth < MAX_NTH; nth++) {
		ASSERT_TRUE(set_up(c, &before));
		if (c->shared) {
			holder = fork_holder();
			ASSERT_GT(holder, 0);
		}
		ASSERT_TRUE(has_exactly(&before, "before the call"));

		errno = 0;
		ASSERT_TRUE(fail_nth_arm(nth));
		ret = apply(&c->call);
		err = errno;
		injected = fail_nth_disarm();

		if (ret) {
			failures++;
			EXPECT_EQ(ENOMEM, err);
			EXPECT_TRUE(injected) {
				TH_LOG("failed, but no allocation did");
			}
			EXPECT_NE(NEEDS_NO_MEMORY, c->need) {
				TH_LOG("failed for want of memory that it does not need");
			}
			EXPECT_TRUE(has_exactly(&before, "after ENOMEM"));
			EXPECT_TRUE(holder_has_exactly(holder, &before,
						       "after ENOMEM"));
			EXPECT_EQ(0, apply(&c->call)) {
				TH_LOG("again, with memory: %s",
				       strerror(errno));
			}
		}
		EXPECT_TRUE(has_exactly(&after, "after the call"));
		EXPECT_TRUE(holder_has_exactly(holder, &before,
					       "after the call"));

		if (holder)
			end_holder(holder);
		EXPECT_TRUE(has_exactly(&after, "after the sharer is gone"));
	}
	EXPECT_FALSE(injected) {
		TH_LOG("no end of allocations in one call");
	}

	if (c->need == NEEDS_MEMORY && !failures && !fail_nth_reaches_pages())
		SKIP(return, "no allocation could be made to fail: no FAIL_PAGE_ALLOC");
	if (c->need == NEEDS_MEMORY) {
		EXPECT_LT(0, failures) {
			TH_LOG("no allocation could be made to fail");
		}
	}
	ksft_print_msg("failures with ENOMEM: %u\n", failures);
}

/* A function of its own for each, with the case as the rest of its line */
#define CASE(...)							\
	run_case(_metadata, &(const struct fault_case){ __VA_ARGS__ })

#define BEFORE(...)	.before = { __VA_ARGS__ }
#define ON(from, num)	{ from, num, 1 }
#define OFF(from, num)	{ from, num, 0 }

/* The first port, and so the first memory */
TEST(first_grant_low)
{
	CASE(.call = ON(0x80, 1), .need = NEEDS_MEMORY);
}

TEST(first_grant_high)
{
	CASE(.call = ON(0xffff, 1), .need = NEEDS_MEMORY);
}

TEST(first_grant_many)
{
	CASE(.call = ON(1, 60 * IOPORT_LINE), .need = NEEDS_MEMORY);
}

TEST(first_grant_all)
{
	CASE(.call = ON(0, IOPORT_NR), .need = NEEDS_MEMORY);
}

/* More ports in a bitmap that belongs to the task alone */
TEST(grant_in_same_line)
{
	CASE(BEFORE(ON(0x80, 1)), .call = ON(0x81, 0x20),
	     .need = MAY_NEED_MEMORY);
}

TEST(grant_above)
{
	CASE(BEFORE(ON(0x80, 1)), .call = ON(0xf000, 1),
	     .need = MAY_NEED_MEMORY);
}

TEST(grant_below)
{
	CASE(BEFORE(ON(0xf000, 0x300)), .call = ON(0x80, 1),
	     .need = MAY_NEED_MEMORY);
}

TEST(grant_between)
{
	CASE(BEFORE(ON(0, 0x400), ON(0xfc00, 0x400)),
	     .call = ON(0x2ff0, 8 * IOPORT_LINE), .need = MAY_NEED_MEMORY);
}

TEST(grant_over_holes)
{
	CASE(.before_lines = 40, .call = ON(0x80, 70 * IOPORT_LINE),
	     .need = MAY_NEED_MEMORY);
}

TEST(grant_all)
{
	CASE(BEFORE(ON(0x80, 1)), .call = ON(0, IOPORT_NR),
	     .need = MAY_NEED_MEMORY);
}

/* A bitmap of its own for a task that shares one */
TEST(unshare_by_grant)
{
	CASE(BEFORE(ON(0x80, 1)), .shared = true, .call = ON(0x82, 1),
	     .need = NEEDS_MEMORY);
}

TEST(unshare_by_grant_above)
{
	CASE(BEFORE(ON(0x80, 1)), .shared = true, .call = ON(0xff00, 0x100),
	     .need = NEEDS_MEMORY);
}

TEST(unshare_by_grant_all)
{
	CASE(BEFORE(ON(0x80, 1), ON(0xfff0, 1)), .shared = true,
	     .call = ON(0, IOPORT_NR), .need = NEEDS_MEMORY);
}

TEST(unshare_by_revoke)
{
	CASE(BEFORE(ON(0x80, 8)), .shared = true, .call = OFF(0x81, 1),
	     .need = NEEDS_MEMORY);
}

TEST(unshare_by_revoke_highest)
{
	CASE(BEFORE(ON(0x80, 1), ON(0xffff, 1)), .shared = true,
	     .call = OFF(0xffff, 1), .need = NEEDS_MEMORY);
}

TEST(unshare_by_revoke_lines)
{
	CASE(.before_lines = 60, .shared = true,
	     .call = OFF(0x3ff, 50 * IOPORT_LINE), .need = NEEDS_MEMORY);
}

TEST(unshare_by_revoke_from_all)
{
	CASE(BEFORE(ON(0, IOPORT_NR)), .shared = true, .call = OFF(0x8000, 1),
	     .need = NEEDS_MEMORY);
}

/* Nothing to be allocated */
TEST(revoke_one)
{
	CASE(BEFORE(ON(0x80, 8)), .call = OFF(0x81, 1),
	     .need = NEEDS_NO_MEMORY);
}

TEST(revoke_lines)
{
	CASE(.before_lines = 60, .call = OFF(0x3ff, 50 * IOPORT_LINE),
	     .need = NEEDS_NO_MEMORY);
}

TEST(revoke_all_but_one)
{
	CASE(BEFORE(ON(0, IOPORT_NR)), .call = OFF(1, IOPORT_NR - 1),
	     .need = NEEDS_NO_MEMORY);
}

TEST(revoke_last)
{
	CASE(BEFORE(ON(0x80, 1)), .call = OFF(0x80, 1),
	     .need = NEEDS_NO_MEMORY);
}

TEST(revoke_last_shared)
{
	CASE(BEFORE(ON(0x80, 1), ON(0xf000, 1)), .shared = true,
	     .call = OFF(0, IOPORT_NR), .need = NEEDS_NO_MEMORY);
}

TEST(revoke_nothing_shared)
{
	CASE(BEFORE(ON(0x80, 1), ON(0xf000, 1)), .shared = true,
	     .call = OFF(0x81, 0x1000), .need = NEEDS_NO_MEMORY);
}

TEST(grant_nothing_shared)
{
	CASE(BEFORE(ON(0x80, 8), ON(0xf000, 1)), .shared = true,
	     .call = ON(0x81, 2), .need = NEEDS_NO_MEMORY);
}

/*
 * iopl() has no bitmap. The injection would hit an allocation of its own, as
 * it hits the one of ioperm().
 */
TEST(iopl_and_back)
{
	static const struct fault_case c = { BEFORE(ON(0xf000, 1)) };
	struct ioport_map model;
	const char *reason;
	int level;

	reason = skip_reason();
	if (reason)
		SKIP(return, "%s", reason);
	if (!is_in_reach(_metadata, &c))
		SKIP(return, "allocations of this kernel's bitmaps are out of reach");

	for (level = 3; level >= 0; level -= 3) {
		ASSERT_TRUE(set_up(&c, &model));
		ASSERT_EQ(0, iopl(3 - level));

		ASSERT_TRUE(fail_nth_arm(1));
		EXPECT_EQ(0, iopl(level));
		EXPECT_FALSE(fail_nth_disarm());

		EXPECT_EQ(level == 3, ioport_inb(IOPORT_POST));
	}
	EXPECT_TRUE(has_exactly(&model, "after iopl(0)"));
}

/*
 * A fork() that fails after the bitmap was shared with the child gives back
 * what it took: the bitmap stays, and is not shared any more, so that taking a
 * port away needs no memory. If too much was given back, the bitmap is free
 * and the next fork() makes it look shared for good, or somebody else has it.
 *
 * The bitmap is shared late in fork(), so it begins with the last allocation.
 * There may be hundreds, on a slow machine the first ones are left out.
 */
TEST(failed_fork)
{
	static const struct fault_case c = {
		BEFORE(ON(0x80, 8), ON(0xf000, 1)),
	};
	const time_t end = time(NULL) + FORK_SECONDS * ioport_slowness();
	unsigned int nth, total, again = 0, failures = 0;
	struct ioport_map model;
	const char *reason;
	int status, err;
	pid_t pid;

	reason = skip_reason();
	if (reason)
		SKIP(return, "%s", reason);
	if (!is_in_reach(_metadata, &c))
		SKIP(return, "allocations of this kernel's bitmaps are out of reach");

	ASSERT_TRUE(set_up(&c, &model));

	/* Count them */
	ASSERT_TRUE(fail_nth_arm(MAX_NTH));
	pid = syscall(SYS_fork);
	if (!pid)
		_exit(0);
	total = MAX_NTH - fail_nth_left();
	fail_nth_disarm();
	ASSERT_EQ(pid, ioport_wait(pid, &status));
	ASSERT_LT(0, total);
	ASSERT_GT(MAX_NTH, total);

	/*
	 * Not always as many: some more, which do not fail. The last ones, which
	 * fail when the bitmap is shared already, several times.
	 */
	for (nth = total + 5; nth && time(NULL) < end; nth -= !again) {
		again = nth + 5 > total ? (again + 1) % 4 : 0;
		ASSERT_TRUE(fail_nth_arm(nth));
		pid = syscall(SYS_fork);
		if (!pid)
			_exit(0);
		err = errno;
		status = fail_nth_disarm();

		if (pid < 0) {
			failures++;
			EXPECT_TRUE(status);
			EXPECT_TRUE(err == ENOMEM || err == EAGAIN) {
				TH_LOG("fork: %s", strerror(err));
			}
		} else {
			ASSERT_EQ(pid, ioport_wait(pid, &status));
		}

		if (nth % VIEW_EACH == 0)
			ASSERT_TRUE(has_exactly(&model, "after failed forks"));
		ASSERT_TRUE(fail_nth_arm(1));
		EXPECT_EQ(0, ioperm(0x81, 1, 0)) {
			TH_LOG("fork() with failing allocation %u of %u left the bitmap shared",
			       nth, total);
		}
		fail_nth_disarm();
		ASSERT_EQ(0, ioperm(0x81, 1, 1));
	}
	EXPECT_TRUE(has_exactly(&model, "after all failed forks"));
	EXPECT_LT(0, failures);
	ksft_print_msg("failures of fork(): %u, allocations in it: %u, first one tried: %u\n",
		       failures, total, nth + 1);
}

/* The tests run in a child, so that the settings come back in any case */
int main(int argc, char **argv)
{
	int status = 0;
	pid_t pid;

	fail_nth_setup();
	pid = fork();
	if (!pid) {
		fail_nth_leave();
		return ioport_harness_run(argc, argv);
	}
	if (pid < 0 || ioport_wait(pid, &status) != pid || !WIFEXITED(status))
		status = KSFT_FAIL << 8;
	fail_nth_restore();

	return WEXITSTATUS(status);
}
