// SPDX-License-Identifier: GPL-2.0
/*
 * ioperm_faults.c - I/O permissions when memory runs out
 *
 * ioperm() may need memory: for the first port, for ports outside of the bitmap,
 * and for a bitmap of its own after fork() made two tasks share one. Without
 * memory it fails with ENOMEM, and the task keeps exactly the ports that it had:
 * after a partial change it could not know which it has.
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
#define LINE		IOPORT_LINE

/*
 * Allocations that may sleep can fail as well, those of all caches and of
 * single pages, without a stack dump for each.
 */
static struct setting {
	const char	*path;
	const char	*value;
	char		old[16];
} settings[] = {
	{ "failslab/ignore-gfp-wait",		"N" },
	{ "failslab/cache-filter",		"N" },
	{ "failslab/verbose",			"0" },
	{ "fail_page_alloc/ignore-gfp-wait",	"N" },
	{ "fail_page_alloc/min-order",		"0" },
	{ "fail_page_alloc/verbose",		"0" },
};

static bool settings_changed;

static bool change_settings(bool restore)
{
	struct setting *setting;
	const char *value;
	bool done = true;
	char path[128];
	int fd;

	for (setting = settings; setting < settings + ARRAY_SIZE(settings); setting++) {
		value = restore ? setting->old : setting->value;
		snprintf(path, sizeof(path), "/sys/kernel/debug/%s", setting->path);
		fd = open(path, O_RDWR);
		if (!restore)
			done &= read(fd, setting->old, sizeof(setting->old) - 1) > 0;
		done &= write(fd, value, strlen(value)) > 0;
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

static bool set_up(struct __test_metadata *_metadata)
{
	const char *reason = ioport_skip_reason();

	if (reason)
		SKIP(return false, "%s", reason);
	if (!settings_changed)
		SKIP(return false, "no access to failslab and fail_page_alloc in debugfs");
	fail_nth_fd = open("/proc/thread-self/fail-nth", O_RDWR);
	if (fail_nth_fd < 0)
		SKIP(return false, "/proc/thread-self/fail-nth: %s", strerror(errno));

	/* A call that cannot fail proves nothing by its success. */
	ASSERT_EQ(0, ioperm(0, IOPORT_NR, 0));
	ASSERT_TRUE(fail_nth(1));
	ioperm(IOPORT_POST, 1, 1);
	if (fail_none())
		SKIP(return false, "allocations of ioperm() cannot be made to fail");
	return true;
}

struct ports {
	unsigned int	from, num;
};

/* Enable two ranges of ports, each of which may be empty, and disable others */
static bool enable_only(const struct ports ports[2], struct ioport_map *model)
{
	bool done = !ioperm(0, IOPORT_NR, 0);
	unsigned int i;

	ioport_clear_all(model);
	for (i = 0; i < 2 && ports[i].num; i++) {
		done &= !ioperm(ports[i].from, ports[i].num, 1);
		ioport_set(model, ports[i].from, ports[i].num, true);
	}

	return done;
}

/* Does a call need memory? MAY depends on how the kernel keeps the bitmap */
enum need { YES, MAY, NO };

FIXTURE(ioperm) {};

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

FIXTURE_TEARDOWN(ioperm) {}

#define CASE(name)	FIXTURE_VARIANT_ADD(ioperm, name)
#define OWN(...)	.before = { __VA_ARGS__ }
#define SHARED(...)	.before = { __VA_ARGS__ }, .shared = true
#define GRANT(...)	.ports = { __VA_ARGS__ }, .turn_on = true
#define REVOKE(...)	.ports = { __VA_ARGS__ }

/* The first port, and so the first memory */
CASE(first_grant) { GRANT(0x80, 1), .need = YES };
CASE(first_grant_all) { GRANT(0, IOPORT_NR), .need = YES };

/* More ports in a bitmap that belongs to the task alone */
CASE(grant_in_same_line) { OWN({ 0x80, 1 }), GRANT(0x81, 0x20), .need = MAY };
CASE(grant_above) { OWN({ 0x80, 1 }), GRANT(0xf000, 1), .need = MAY };
CASE(grant_below) { OWN({ 0xf000, 0x300 }), GRANT(0x80, 1), .need = MAY };
CASE(grant_all) { OWN({ 0, 0x400 }, { 0xfc00, 1 }), GRANT(0, IOPORT_NR), .need = MAY };

/* A bitmap of its own for a task that shares one */
CASE(unshare_by_grant) { SHARED({ 0x80, 1 }), GRANT(0x82, 1), .need = YES };
CASE(unshare_by_grant_all) { SHARED({ 0x80, 1 }, { 0xfff0, 1 }),
	GRANT(0, IOPORT_NR), .need = YES };
CASE(unshare_by_revoke) { SHARED({ 0x80, 8 }), REVOKE(0x81, 1), .need = YES };
CASE(unshare_by_revoke_lines) { SHARED({ 1, 60 * LINE }, { 0xffff, 1 }),
	REVOKE(0x3ff, 50 * LINE), .need = YES };
CASE(unshare_by_revoke_from_all) { SHARED({ 0, IOPORT_NR }), REVOKE(0x8000, 1),
	.need = YES };

/* Nothing to be allocated */
CASE(revoke_one) { OWN({ 0x80, 8 }), REVOKE(0x81, 1), .need = NO };
CASE(revoke_beyond) { OWN({ 0x80, 8 }), REVOKE(0x84, IOPORT_NR - 0x84), .need = NO };
CASE(revoke_lines) { OWN({ 1, 60 * LINE }, { 0xf000, 1 }), REVOKE(0x3ff, 50 * LINE),
	.need = NO };
CASE(revoke_all_but_one) { OWN({ 0, IOPORT_NR }), REVOKE(1, IOPORT_NR - 1), .need = NO };
CASE(revoke_last) { OWN({ 0x80, 1 }), REVOKE(0x80, 1), .need = NO };
CASE(revoke_last_shared) { SHARED({ 0x80, 1 }, { 0xf000, 1 }), REVOKE(0, IOPORT_NR),
	.need = NO };
CASE(revoke_nothing_shared) { SHARED({ 0x80, 1 }, { 0xf000, 1 }),
	REVOKE(0x81, 0x1000), .need = NO };
CASE(grant_nothing_shared) { SHARED({ 0x80, 8 }, { 0xf000, 1 }), GRANT(0x81, 2),
	.need = NO };

TEST_F_TIMEOUT(ioperm, without_memory, TIMEOUT_SECONDS)
{
	const struct ports *ports = &variant->ports;
	struct ioport_map before, after;
	int failures = 0, ret, nth;
	bool injected = true;
	pid_t sharer = 0;

	for (nth = 1; injected && nth < MAX_NTH; nth++) {
		ASSERT_TRUE(enable_only(variant->before, &before));
		after = before;
		ioport_set(&after, ports->from, ports->num, variant->turn_on);
		if (variant->shared) {
			sharer = ioport_fork_stopped();
			ASSERT_LT(0, sharer);
		}
		ASSERT_STREQ("", ioport_wrong(&before, &after, 0));

		ASSERT_TRUE(fail_nth(nth));
		ret = ioperm(ports->from, ports->num, variant->turn_on);
		injected = !fail_none();

		if (ret) {
			failures++;
			EXPECT_EQ(ENOMEM, errno);
			EXPECT_TRUE(injected && variant->need != NO);
			EXPECT_STREQ("", ioport_wrong(&before, &after, 0));
			if (sharer)
				EXPECT_STREQ("", ioport_wrong(&before, &after, sharer));
			EXPECT_EQ(0, ioperm(ports->from, ports->num, variant->turn_on));
		}
		EXPECT_STREQ("", ioport_wrong(&after, &before, 0));
		if (!sharer)
			continue;

		EXPECT_STREQ("", ioport_wrong(&before, &after, sharer));
		ioport_end(sharer);
		EXPECT_STREQ("", ioport_wrong(&after, &before, 0));
	}
	EXPECT_FALSE(injected);
	if (variant->need == YES)
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

	if (set_up(_metadata))
		ASSERT_TRUE(enable_only(before, &self->model));
}

FIXTURE_TEARDOWN(task) {}

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
	EXPECT_STREQ("", ioport_wrong(&self->model, &self->model, 0));
}

/* The bitmap must not be shared any more: then disabling needs no memory */
static void expect_own_bitmap(struct __test_metadata *_metadata, const char *after)
{
	ASSERT_TRUE(fail_nth(1));
	EXPECT_EQ(0, ioperm(0x81, 1, 0)) {
		TH_LOG("the bitmap is shared after %s", after);
	}
	fail_none();
	ASSERT_EQ(0, ioperm(0x81, 1, 1));
}

/* Returns whether fork() succeeded, if not errno says why */
static bool try_fork(void)
{
	pid_t pid = fork();

	if (!pid)
		_exit(0);

	return pid > 0 && ioport_wait(pid, NULL) == pid;
}

/*
 * A fork() that fails after the bitmap was shared with the child gives back
 * what it took. If it gave back too much, the bitmap is freed and its memory
 * belongs to somebody else.
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
	ASSERT_TRUE(total > 0 && total < MAX_NTH);

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
			ASSERT_STREQ("", ioport_wrong(&self->model, &self->model, 0));
		expect_own_bitmap(_metadata, "fork()");
	}
	EXPECT_STREQ("", ioport_wrong(&self->model, &self->model, 0));
	EXPECT_LT(0, failures);
	ksft_print_msg("allocations of fork(): %d, first one tried: %d, failures: %d\n",
		       total, nth + 1, failures);
}

/* The same with a bad TLS, which is looked at after the bitmap is shared */
TEST_F(task, failed_clone)
{
	/* The fifth argument in 64 bit programs, the fourth in others */
	ASSERT_EQ(-1, syscall(SYS_clone, CLONE_SETTLS | SIGCHLD, 0, NULL,
			      sizeof(long) == 8 ? 0 : ~0UL, ~0UL));
	expect_own_bitmap(_metadata, "clone()");
	EXPECT_STREQ("", ioport_wrong(&self->model, &self->model, 0));
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
