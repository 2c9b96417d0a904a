/* SPDX-License-Identifier: GPL-2.0-only */
/*
 * fail_nth.h - make the nth allocation of a thread fail
 *
 * /proc/thread-self/fail-nth counts the points of fault injection that the
 * calling thread passes, and lets the nth one fail. It affects no other task,
 * but some settings of failslab and fail_page_alloc that hold for the whole
 * system decide what is such a point: by default no allocation which may
 * sleep. fail_nth_setup() changes that, and fail_nth_restore() brings back what
 * was there. With a probability of 0, what it is by default, these settings do
 * nothing to other tasks in the meantime.
 *
 * Needs root, FAULT_INJECTION, FAULT_INJECTION_DEBUG_FS, FAILSLAB, and for
 * memory that comes from the page allocator FAIL_PAGE_ALLOC.
 */
#ifndef __SELFTESTS_X86_FAIL_NTH_H
#define __SELFTESTS_X86_FAIL_NTH_H

#include <errno.h>
#include <fcntl.h>
#include <signal.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/syscall.h>
#include <unistd.h>

#include "helpers.h"

#define FAIL_NTH_DEBUGFS	"/sys/kernel/debug/"

/*
 * Allocations which may sleep can fail as well, those of all caches and of
 * single pages, as often as a test likes, and without a stack dump for each.
 */
static struct fail_nth_knob {
	const char	*name;
	const char	*value;
	char		old[32];
} fail_nth_knobs[] = {
	{ .name = "failslab/ignore-gfp-wait",		.value = "N" },
	{ .name = "failslab/cache-filter",		.value = "N" },
	{ .name = "failslab/verbose",			.value = "0" },
	{ .name = "failslab/times",			.value = "-1" },
	{ .name = "fail_page_alloc/ignore-gfp-wait",	.value = "N" },
	{ .name = "fail_page_alloc/min-order",		.value = "0" },
	{ .name = "fail_page_alloc/verbose",		.value = "0" },
	{ .name = "fail_page_alloc/times",		.value = "-1" },
};

static inline bool fail_nth_read_knob(const struct fail_nth_knob *knob,
				      char *value, size_t size)
{
	char path[128];
	ssize_t len;
	int fd;

	memset(value, 0, size);
	snprintf(path, sizeof(path), FAIL_NTH_DEBUGFS "%s", knob->name);
	fd = open(path, O_RDONLY | O_CLOEXEC);
	if (fd < 0)
		return false;
	len = read(fd, value, size - 1);
	close(fd);

	return len > 0;
}

static inline void fail_nth_write_knob(const struct fail_nth_knob *knob,
				       const char *value)
{
	char path[128];
	int fd;

	snprintf(path, sizeof(path), FAIL_NTH_DEBUGFS "%s", knob->name);
	fd = open(path, O_WRONLY | O_CLOEXEC);
	if (fd < 0)
		return;
	/* Who depends on it finds out with fail_nth_knob_is_set() */
	if (write(fd, value, strlen(value)) < 0)
		perror(path);
	close(fd);
}

static inline bool fail_nth_knob_is_set(const char *name)
{
	char now[32];
	unsigned int i;

	for (i = 0; i < ARRAY_SIZE(fail_nth_knobs); i++) {
		if (!strcmp(fail_nth_knobs[i].name, name))
			return fail_nth_read_knob(&fail_nth_knobs[i], now,
						  sizeof(now)) &&
			       now[0] == fail_nth_knobs[i].value[0];
	}

	return false;
}

static inline void fail_nth_restore(void)
{
	unsigned int i;

	for (i = 0; i < ARRAY_SIZE(fail_nth_knobs); i++) {
		if (fail_nth_knobs[i].old[0])
			fail_nth_write_knob(&fail_nth_knobs[i],
					    fail_nth_knobs[i].old);
	}
}

static inline void fail_nth_on_end(int sig, siginfo_t *si __always_unused,
				   void *context __always_unused)
{
	fail_nth_restore();
	clearhandler(sig);
	raise(sig);
}

/* In the process that outlives all others, which then calls fail_nth_restore() */
static inline void fail_nth_setup(void)
{
	struct fail_nth_knob *knob;
	unsigned int i;

	sethandler(SIGTERM, fail_nth_on_end, 0);
	sethandler(SIGINT, fail_nth_on_end, 0);
	sethandler(SIGHUP, fail_nth_on_end, 0);

	for (i = 0; i < ARRAY_SIZE(fail_nth_knobs); i++) {
		knob = &fail_nth_knobs[i];
		if (fail_nth_read_knob(knob, knob->old, sizeof(knob->old)))
			fail_nth_write_knob(knob, knob->value);
	}
}

/* In a child of that process: what it does when it is ended is not for these */
static inline void fail_nth_leave(void)
{
	clearhandler(SIGTERM);
	clearhandler(SIGINT);
	clearhandler(SIGHUP);
}

/* Does memory from the page allocator fail as well? */
static inline bool fail_nth_reaches_pages(void)
{
	return fail_nth_knob_is_set("fail_page_alloc/ignore-gfp-wait") &&
	       fail_nth_knob_is_set("fail_page_alloc/min-order");
}

/* After fail_nth_setup(): NULL, or why no allocation can be made to fail */
static inline const char *fail_nth_skip_reason(void)
{
	if (access("/proc/thread-self/fail-nth", F_OK))
		return "no /proc/thread-self/fail-nth: kernel without FAULT_INJECTION";
	if (access(FAIL_NTH_DEBUGFS "failslab", F_OK))
		return "no failslab in debugfs: not mounted, or kernel without FAILSLAB";
	if (!fail_nth_knob_is_set("failslab/ignore-gfp-wait"))
		return "the settings of failslab cannot be changed";

	return NULL;
}

/* The file is that of the thread which opened it */
static __thread int fail_nth_fd;
static __thread pid_t fail_nth_tid;

static inline bool fail_nth_open(void)
{
	pid_t tid = syscall(SYS_gettid);

	if (fail_nth_tid == tid)
		return true;
	/* Inherited from the task that forked this one */
	if (fail_nth_tid)
		close(fail_nth_fd);

	fail_nth_fd = open("/proc/thread-self/fail-nth", O_RDWR | O_CLOEXEC);
	fail_nth_tid = fail_nth_fd < 0 ? 0 : tid;

	return fail_nth_tid;
}

/* From now on, let the @nth allocation fail, and no further one; 0: none */
static inline bool fail_nth_arm(unsigned int nth)
{
	char text[16];
	int len = snprintf(text, sizeof(text), "%u", nth);

	return fail_nth_open() && pwrite(fail_nth_fd, text, len, 0) == len;
}

/* How many allocations there are before the one to fail, 0 if it did */
static inline unsigned int fail_nth_left(void)
{
	char text[16] = "";

	if (pread(fail_nth_fd, text, sizeof(text) - 1, 0) <= 0)
		return ~0U;

	return atoi(text);
}

/* End it. Returns true if an allocation was made to fail */
static inline bool fail_nth_disarm(void)
{
	int err = errno;
	bool failed;

	failed = !fail_nth_left();
	if (!failed)
		fail_nth_arm(0);
	errno = err;

	return failed;
}

#endif /* __SELFTESTS_X86_FAIL_NTH_H */
