// SPDX-License-Identifier: GPL-2.0
/*
 * ioperm_faults.c - I/O permissions when memory runs out
 *
 * ioperm() may need memory: for the first port, for more ports than there is
 * room for, and for a bitmap of its own after fork() made two tasks share one.
 * Without memory it fails with ENOMEM, and the task keeps exactly the ports
 * that it had: after a partial change it could not know which it has.
 *
 * The first allocation of a call is made to fail, then the second and so on,
 * until the call runs without a failure. Each time:
 *
 *  - The call succeeds, and all 65536 ports are as asked for.
 *  - Or it fails with ENOMEM, all ports are as before, and the same call
 *    succeeds when it is repeated with memory.
 *  - A task that shares the bitmap keeps its ports in either case.
 *
 * Some calls must not need memory, so that ports can always be given up:
 * disabling ports of a bitmap that is not shared, disabling the last ports,
 * a call that changes nothing, and iopl().
 *
 * /proc/thread-self/fail-nth makes an allocation of the calling thread fail. It
 * needs root, a mounted debugfs, FAULT_INJECTION_DEBUG_FS, FAILSLAB and
 * FAIL_PAGE_ALLOC, which is for large bitmaps. With a probability of 0, which
 * is the default, the settings that are changed here do nothing to other tasks.
 */
#define _GNU_SOURCE
#include <fcntl.h>

#include "kselftest_harness.h"
#include "ioport_helper.h"

/* More allocations than any call makes, fork() included */
#define MAX_NTH		3000

/* How long fork() is made to fail */
#define FORK_NS		(12 * 1000000000ULL)

#define TIMEOUT_SECONDS	300

/*
 * Allocations that fail
 */

#define DEBUGFS "/sys/kernel/debug/"

/*
 * Allocations that may sleep can fail as well, those of all caches and of
 * single pages, without a stack dump for each.
 */
static struct setting {
	const char	*path;
	const char	*value;
	char		old[16];
} settings[] = {
	{ .path = DEBUGFS "failslab/ignore-gfp-wait",		.value = "N" },
	{ .path = DEBUGFS "failslab/cache-filter",		.value = "N" },
	{ .path = DEBUGFS "failslab/verbose",			.value = "0" },
	{ .path = DEBUGFS "fail_page_alloc/ignore-gfp-wait",	.value = "N" },
	{ .path = DEBUGFS "fail_page_alloc/min-order",		.value = "0" },
	{ .path = DEBUGFS "fail_page_alloc/verbose",		.value = "0" },
};

static bool settings_changed;

static bool change_settings(bool restore)
{
	struct setting *setting;
	const char *value;
	bool done = true;
	unsigned int i;
	int fd;

	for (i = 0; i < ARRAY_SIZE(settings); i++) {
		setting = &settings[i];
		value = restore ? setting->old : setting->value;
		fd = open(setting->path, O_RDWR);
		if (!restore &&
		    read(fd, setting->old, sizeof(setting->old) - 1) <= 0)
			done = false;
		if (write(fd, value, strlen(value)) <= 0)
			done = false;
		close(fd);
	}

	return done;
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

static int fail_nth_fd;

/* Let the @nth allocation from now on fail, and no further one */
static bool fail_nth(unsigned int nth)
{
	char text[16];
	int len = snprintf(text, sizeof(text), "%u", nth);

	return pwrite(fail_nth_fd, text, len, 0) == len;
}

/*
 * End the injection, and keep errno. Returns 0 if an allocation failed, and
 * otherwise how many more it would have taken until the nth.
 */
static int fail_none(void)
{
	int err = errno, left = -1;
	char text[16] = "";

	if (pread(fail_nth_fd, text, sizeof(text) - 1, 0) > 0 && fail_nth(0))
		left = atoi(text);
	errno = err;

	return left;
}

static void set_up(struct __test_metadata *_metadata)
{
	const char *reason;

	reason = ioport_skip_reason();
	if (reason)
		SKIP(return, "%s", reason);
	if (!settings_changed)
		SKIP(return, "no access to failslab and fail_page_alloc in debugfs");
	fail_nth_fd = open("/proc/thread-self/fail-nth", O_RDWR);
	if (fail_nth_fd < 0)
		SKIP(return, "/proc/thread-self/fail-nth: %s", strerror(errno));

	/* A call that cannot fail proves nothing by its success. */
	ASSERT_EQ(0, ioperm(0, IOPORT_NR, 0));
	ASSERT_TRUE(fail_nth(1));
	ioperm(IOPORT_POST, 1, 1);
	if (fail_none())
		SKIP(return, "allocations of ioperm() cannot be made to fail");
}

/*
 * Ports
 */

struct ports {
	unsigned int	from;
	unsigned int	num;
};

/* Enable two ranges of ports, each of which may be empty, and disable others */
static bool enable_only(const struct ports ports[2], struct ioport_map *model)
{
	unsigned int i;

	ioport_clear_all(model);
	if (ioperm(0, IOPORT_NR, 0))
		return false;

	for (i = 0; i < 2 && ports[i].num; i++) {
		if (ioperm(ports[i].from, ports[i].num, 1))
			return false;
		ioport_set(model, ports[i].from, ports[i].num, true);
	}

	return true;
}

/* A child that shares the bitmap of the caller and is stopped */
static pid_t fork_sharer(void)
{
	int status;
	pid_t pid;

	pid = ioport_fork();
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

/*
 * All 65536 ports in the bitmap, of the caller or of a stopped child. Accesses
 * of the caller where something changes and at some ports between, as 65536 of
 * them take too long on an emulated machine.
 */
static bool has_exactly(pid_t sharer, const struct ioport_map *model,
			const char *when)
{
	const char *who = sharer ? "the sharer" : "the caller";
	struct ioport_map seen;
	unsigned int port;
	int ret;

	ret = sharer ? ioport_view(sharer, &seen) : ioport_view_self(&seen);
	if (ret && ret != -ENXIO) {
		ksft_print_msg("%s: no bitmap of %s: %s\n", when, who,
			       strerror(-ret));
		return false;
	}
	port = ioport_differs(model, &seen);
	if (port < IOPORT_NR) {
		ksft_print_msg("%s: bitmap of %s: port 0x%x is wrong\n", when,
			       who, port);
		return false;
	}
	if (sharer)
		return true;

	for (port = 1; port < IOPORT_NR; port++) {
		if (port % 4093 && ioport_allows(model, port - 1, 1) ==
				   ioport_allows(model, port, 1))
			continue;
		if (!ioport_agrees(model, port - 1) ||
		    !ioport_agrees(model, port)) {
			ksft_print_msg("%s: access to port 0x%x or 0x%x is wrong\n",
				       when, port - 1, port);
			return false;
		}
	}

	return true;
}

/*
 * ioperm()
 */

/* Does a call need memory? */
enum need {
	/* On any kernel: if nothing fails, nothing was tested */
	NEEDS_MEMORY,
	/* That depends on how the kernel keeps the bitmap */
	MAY_NEED_MEMORY,
	/* It must not fail */
	NEEDS_NO_MEMORY,
};

FIXTURE(ioperm)
{
};

FIXTURE_VARIANT(ioperm)
{
	/* Which ports the task has, and whether a child has the same bitmap */
	struct ports	before[2];
	bool		shared;
	/* The call */
	struct ports	ports;
	bool		turn_on;
	enum need	need;
};

FIXTURE_SETUP(ioperm)
{
	set_up(_metadata);
}

FIXTURE_TEARDOWN(ioperm)
{
}

/* The first port, and so the first memory */
FIXTURE_VARIANT_ADD(ioperm, first_grant)
{
	.ports = { 0x80, 1 }, .turn_on = true, .need = NEEDS_MEMORY,
};

FIXTURE_VARIANT_ADD(ioperm, first_grant_all)
{
	.ports = { 0, IOPORT_NR }, .turn_on = true, .need = NEEDS_MEMORY,
};

/* More ports in a bitmap that belongs to the task alone */
FIXTURE_VARIANT_ADD(ioperm, grant_in_same_line)
{
	.before = { { 0x80, 1 } },
	.ports = { 0x81, 0x20 }, .turn_on = true, .need = MAY_NEED_MEMORY,
};

FIXTURE_VARIANT_ADD(ioperm, grant_above)
{
	.before = { { 0x80, 1 } },
	.ports = { 0xf000, 1 }, .turn_on = true, .need = MAY_NEED_MEMORY,
};

FIXTURE_VARIANT_ADD(ioperm, grant_below)
{
	.before = { { 0xf000, 0x300 } },
	.ports = { 0x80, 1 }, .turn_on = true, .need = MAY_NEED_MEMORY,
};

FIXTURE_VARIANT_ADD(ioperm, grant_all)
{
	.before = { { 0, 0x400 }, { 0xfc00, 1 } },
	.ports = { 0, IOPORT_NR }, .turn_on = true, .need = MAY_NEED_MEMORY,
};

/* A bitmap of its own for a task that shares one */
FIXTURE_VARIANT_ADD(ioperm, unshare_by_grant)
{
	.before = { { 0x80, 1 } }, .shared = true,
	.ports = { 0x82, 1 }, .turn_on = true, .need = NEEDS_MEMORY,
};

FIXTURE_VARIANT_ADD(ioperm, unshare_by_grant_all)
{
	.before = { { 0x80, 1 }, { 0xfff0, 1 } }, .shared = true,
	.ports = { 0, IOPORT_NR }, .turn_on = true, .need = NEEDS_MEMORY,
};

FIXTURE_VARIANT_ADD(ioperm, unshare_by_revoke)
{
	.before = { { 0x80, 8 } }, .shared = true,
	.ports = { 0x81, 1 }, .need = NEEDS_MEMORY,
};

FIXTURE_VARIANT_ADD(ioperm, unshare_by_revoke_lines)
{
	.before = { { 1, 60 * IOPORT_LINE }, { 0xffff, 1 } }, .shared = true,
	.ports = { 0x3ff, 50 * IOPORT_LINE }, .need = NEEDS_MEMORY,
};

FIXTURE_VARIANT_ADD(ioperm, unshare_by_revoke_from_all)
{
	.before = { { 0, IOPORT_NR } }, .shared = true,
	.ports = { 0x8000, 1 }, .need = NEEDS_MEMORY,
};

/* Nothing to be allocated */
FIXTURE_VARIANT_ADD(ioperm, revoke_one)
{
	.before = { { 0x80, 8 } }, .ports = { 0x81, 1 },
	.need = NEEDS_NO_MEMORY,
};

FIXTURE_VARIANT_ADD(ioperm, revoke_beyond)
{
	.before = { { 0x80, 8 } }, .ports = { 0x84, IOPORT_NR - 0x84 },
	.need = NEEDS_NO_MEMORY,
};

FIXTURE_VARIANT_ADD(ioperm, revoke_lines)
{
	.before = { { 1, 60 * IOPORT_LINE }, { 0xf000, 1 } },
	.ports = { 0x3ff, 50 * IOPORT_LINE }, .need = NEEDS_NO_MEMORY,
};

FIXTURE_VARIANT_ADD(ioperm, revoke_all_but_one)
{
	.before = { { 0, IOPORT_NR } },
	.ports = { 1, IOPORT_NR - 1 }, .need = NEEDS_NO_MEMORY,
};

FIXTURE_VARIANT_ADD(ioperm, revoke_last)
{
	.before = { { 0x80, 1 } },
	.ports = { 0x80, 1 }, .need = NEEDS_NO_MEMORY,
};

FIXTURE_VARIANT_ADD(ioperm, revoke_last_shared)
{
	.before = { { 0x80, 1 }, { 0xf000, 1 } }, .shared = true,
	.ports = { 0, IOPORT_NR }, .need = NEEDS_NO_MEMORY,
};

FIXTURE_VARIANT_ADD(ioperm, revoke_nothing_shared)
{
	.before = { { 0x80, 1 }, { 0xf000, 1 } }, .shared = true,
	.ports = { 0x81, 0x1000 }, .need = NEEDS_NO_MEMORY,
};

FIXTURE_VARIANT_ADD(ioperm, grant_nothing_shared)
{
	.before = { { 0x80, 8 }, { 0xf000, 1 } }, .shared = true,
	.ports = { 0x81, 2 }, .turn_on = true, .need = NEEDS_NO_MEMORY,
};

TEST_F_TIMEOUT(ioperm, without_memory, TIMEOUT_SECONDS)
{
	const struct ports *ports = &variant->ports;
	struct ioport_map before, after;
	int failures = 0, ret, status;
	bool injected = true;
	pid_t sharer = 0;
	int nth;

	for (nth = 1; injected && nth < MAX_NTH; nth++) {
		ASSERT_TRUE(enable_only(variant->before, &before));
		after = before;
		ioport_set(&after, ports->from, ports->num, variant->turn_on);
		if (variant->shared) {
			sharer = fork_sharer();
			ASSERT_LT(0, sharer);
		}
		ASSERT_TRUE(has_exactly(0, &before, "before the call"));

		ASSERT_TRUE(fail_nth(nth));
		ret = ioperm(ports->from, ports->num, variant->turn_on);
		injected = !fail_none();

		if (ret) {
			failures++;
			EXPECT_EQ(ENOMEM, errno);
			EXPECT_TRUE(injected);
			EXPECT_TRUE(variant->need != NEEDS_NO_MEMORY);
			EXPECT_TRUE(has_exactly(0, &before, "after ENOMEM"));
			EXPECT_TRUE(!sharer ||
				    has_exactly(sharer, &before, "after ENOMEM"));
			EXPECT_EQ(0, ioperm(ports->from, ports->num,
					    variant->turn_on)) {
				TH_LOG("with memory: %s", strerror(errno));
			}
		}
		EXPECT_TRUE(has_exactly(0, &after, "after the call"));
		if (!sharer)
			continue;

		EXPECT_TRUE(has_exactly(sharer, &before, "after the call"));
		kill(sharer, SIGKILL);
		ioport_wait(sharer, &status);
		EXPECT_TRUE(has_exactly(0, &after, "after the sharer is gone"));
	}
	EXPECT_FALSE(injected);
	if (variant->need == NEEDS_MEMORY)
		EXPECT_LT(0, failures);
}

/*
 * iopl() and fork()
 */

FIXTURE(task)
{
	struct ioport_map	model;
};

FIXTURE_SETUP(task)
{
	static const struct ports before[2] = { { 0x80, 8 }, { 0xf000, 1 } };

	set_up(_metadata);
	if (!_metadata->exit_code)
		ASSERT_TRUE(enable_only(before, &self->model));
}

FIXTURE_TEARDOWN(task)
{
}

TEST_F(task, iopl_and_back)
{
	int level;

	/* A port that only iopl() enables */
	ASSERT_EQ(0, ioperm(IOPORT_POST, 1, 0));
	ioport_set(&self->model, IOPORT_POST, 1, false);

	for (level = 3; level >= 0; level -= 3) {
		ASSERT_TRUE(fail_nth(1));
		EXPECT_EQ(0, iopl(level));
		EXPECT_NE(0, fail_none());

		EXPECT_EQ(level == 3, ioport_inb(IOPORT_POST));
	}
	EXPECT_TRUE(has_exactly(0, &self->model, "after iopl(0)"));
}

/* Returns whether fork() succeeded, if not errno says why */
static bool try_fork(void)
{
	pid_t pid = fork();
	int status;

	if (!pid)
		_exit(0);

	return pid > 0 && ioport_wait(pid, &status) == pid;
}

/*
 * A fork() that fails after the bitmap was shared with the child gives back
 * what it took: the bitmap stays, and is not shared any more, so that disabling
 * a port needs no memory. If it gave back too much, the bitmap is freed and its
 * memory belongs to somebody else.
 *
 * The bitmap is shared late in fork(), so the last allocation fails first.
 * There may be hundreds: a slow machine does not get to the first ones.
 */
TEST_F_TIMEOUT(task, failed_fork, TIMEOUT_SECONDS)
{
	const uint64_t end = ioport_now_ns() + FORK_NS;
	int nth, total, failures = 0;

	/* Count the allocations. */
	ASSERT_TRUE(fail_nth(MAX_NTH));
	EXPECT_TRUE(try_fork());
	total = MAX_NTH - fail_none();
	ASSERT_LT(0, total);
	ASSERT_GT(MAX_NTH, total);

	/* The number varies, so begin with some more. */
	for (nth = total + 5; nth && ioport_now_ns() < end; nth--) {
		ASSERT_TRUE(fail_nth(nth));
		if (try_fork()) {
			fail_none();
		} else {
			failures++;
			EXPECT_EQ(0, fail_none());
			EXPECT_TRUE(errno == ENOMEM || errno == EAGAIN) {
				TH_LOG("fork: %s", strerror(errno));
			}
		}

		if (nth % 32 == 0)
			ASSERT_TRUE(has_exactly(0, &self->model, "after failed forks"));
		ASSERT_TRUE(fail_nth(1));
		EXPECT_EQ(0, ioperm(0x81, 1, 0)) {
			TH_LOG("fork() without allocation %d of %d left the bitmap shared",
			       nth, total);
		}
		fail_none();
		ASSERT_EQ(0, ioperm(0x81, 1, 1));
	}
	EXPECT_TRUE(has_exactly(0, &self->model, "after all failed forks"));
	EXPECT_LT(0, failures);
	ksft_print_msg("allocations of fork(): %d, first one tried: %d, failures: %d\n",
		       total, nth + 1, failures);
}

int main(int argc, char **argv)
{
	ioport_init();

	settings_changed = change_settings(false);
	atexit(restore_settings);
	signal(SIGTERM, on_end);
	signal(SIGINT, on_end);
	signal(SIGHUP, on_end);

	return test_harness_run(argc, argv);
}
