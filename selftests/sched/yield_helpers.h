/* SPDX-License-Identifier: GPL-2.0 */
/*
 * What the tests of sched_yield() have in common: tasks with a policy and a
 * slice on one CPU, what the kernel accounts to them, and the scheduler's
 * feature bits with a guardian who restores them.
 */
#ifndef YIELD_HELPERS_H
#define YIELD_HELPERS_H

#ifndef _GNU_SOURCE
#define _GNU_SOURCE
#endif
#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <sched.h>
#include <signal.h>
#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>
#include <sys/file.h>
#include <sys/mman.h>
#include <sys/mount.h>
#include <sys/prctl.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <sys/types.h>
#include <sys/wait.h>

#define NSEC_PER_USEC		1000LL
#define NSEC_PER_MSEC		1000000LL
#define NSEC_PER_SEC		1000000000LL

#define YIELD_MAX_CPUS		8192

#ifndef SCHED_BATCH
#define SCHED_BATCH		3
#endif
#ifndef SCHED_IDLE
#define SCHED_IDLE		5
#endif
#ifndef SCHED_DEADLINE
#define SCHED_DEADLINE		6
#endif

/* The C library may or may not have it: a name of our own. */
struct task_attr {
	uint32_t size;
	uint32_t sched_policy;
	uint64_t sched_flags;
	int32_t sched_nice;
	uint32_t sched_priority;
	uint64_t sched_runtime;
	uint64_t sched_deadline;
	uint64_t sched_period;
};

static inline int set_attr(pid_t pid, struct task_attr *attr)
{
	attr->size = sizeof(*attr);

	return syscall(SYS_sched_setattr, pid, attr, 0);
}

/* @slice: in ns, 0 for the default */
static inline int set_fair(int policy, int nice, unsigned long long slice)
{
	struct task_attr attr = {
		.sched_policy = policy,
		.sched_nice = nice,
		.sched_runtime = slice,
	};

	return set_attr(0, &attr);
}

static inline int set_realtime(int policy, int prio)
{
	struct sched_param param = { .sched_priority = prio };

	return sched_setscheduler(0, policy, &param);
}

static inline long long now_ns(void)
{
	struct timespec ts;

	clock_gettime(CLOCK_MONOTONIC, &ts);

	return ts.tv_sec * NSEC_PER_SEC + ts.tv_nsec;
}

/* The coarse clock advances once in a tick, and says so. */
static inline long long tick_ns(void)
{
	struct timespec ts;

	if (clock_getres(CLOCK_MONOTONIC_COARSE, &ts))
		return 0;

	return ts.tv_sec * NSEC_PER_SEC + ts.tv_nsec;
}

/* The first CPU that we may use, or -1. */
static inline int first_cpu(void)
{
	static cpu_set_t mask[YIELD_MAX_CPUS / CPU_SETSIZE];
	int i;

	if (sched_getaffinity(0, sizeof(mask), mask))
		return -1;
	for (i = 0; i < YIELD_MAX_CPUS; i++) {
		if (CPU_ISSET_S(i, sizeof(mask), mask))
			return i;
	}

	return -1;
}

static inline bool pin_to(int cpu)
{
	static cpu_set_t mask[YIELD_MAX_CPUS / CPU_SETSIZE];

	if (cpu < 0 || cpu >= YIELD_MAX_CPUS)
		return false;
	memset(mask, 0, sizeof(mask));
	CPU_SET_S(cpu, sizeof(mask), mask);

	return !sched_setaffinity(0, sizeof(mask), mask);
}

/* Whatever ends the parent ends the child. */
static inline pid_t fork_bound(void)
{
	pid_t parent = getpid();
	pid_t pid;

	pid = fork();
	if (!pid) {
		prctl(PR_SET_PDEATHSIG, SIGKILL);
		if (getppid() != parent)
			_exit(1);
	}

	return pid;
}

static inline void end_child(pid_t pid)
{
	if (pid <= 0)
		return;
	kill(pid, SIGKILL);
	waitpid(pid, NULL, 0);
}

/* For what is written with a newline or without; @text may be a number. */
static inline bool write_text(const char *path, const char *text)
{
	ssize_t len = strlen(text);
	bool good;
	int fd;

	fd = open(path, O_WRONLY | O_CLOEXEC);
	if (fd < 0)
		return false;
	good = write(fd, text, len) == len;
	close(fd);

	return good;
}

static inline bool read_text(const char *path, char *text, size_t size)
{
	size_t len = 0;
	ssize_t got;
	int fd;

	fd = open(path, O_RDONLY | O_CLOEXEC);
	if (fd < 0)
		return false;
	/* procfs gives no more than a page or so at a time. */
	do {
		got = read(fd, text + len, size - 1 - len);
		if (got > 0)
			len += got;
	} while (got > 0 && len < size - 1);
	close(fd);
	text[len] = '\0';

	return got >= 0;
}

/*
 * Whether the weight of a task depends on what else runs, or may: it is in an
 * automatic group, or in a cgroup that is not the root.
 */
static inline bool in_cpu_group(void)
{
	char text[8192];
	char *line, *rest;

	if (read_text("/proc/sys/kernel/sched_autogroup_enabled", text,
		      sizeof(text)) && text[0] == '1')
		return true;
	if (!read_text("/proc/self/cgroup", text, sizeof(text)))
		return false;
	/* 0::/PATH is that of cgroup v2, N:CONTROLLERS:/PATH of v1. */
	for (line = strtok_r(text, "\n", &rest); line;
	     line = strtok_r(NULL, "\n", &rest)) {
		if ((!strncmp(line, "0::", 3) || strstr(line, "cpu,") ||
		     strstr(line, ":cpu:")) && strcmp(strrchr(line, ':'), ":/"))
			return true;
	}

	return false;
}

/*
 * What the kernel accounts to a task.
 */

/**
 * struct task_account - figures of /proc/PID/sched
 * @vruntime:	in ns of a task of weight @nice_0_weight
 * @exec:	CPU time in ns
 * @voluntary:	switches while not runnable
 * @involuntary: switches while runnable, a yield is one
 * @dl_runtime:	SCHED_DEADLINE: what is left of the runtime
 * @dl_deadline: SCHED_DEADLINE: the absolute deadline
 */
struct task_account {
	long long vruntime;
	long long exec;
	long long voluntary;
	long long involuntary;
	long long dl_runtime;
	long long dl_deadline;
};

/* "123.456789" in ms, as the scheduler prints ns. */
static inline bool parse_ms(const char *text, long long *ns)
{
	long long high, low;
	bool negative;
	char *end;

	while (*text == ' ')
		text++;
	negative = *text == '-';
	high = strtoll(text + negative, &end, 10);
	if (*end != '.')
		return false;
	low = strtoll(end + 1, NULL, 10);
	*ns = high * NSEC_PER_MSEC + low;
	if (negative)
		*ns = -*ns;

	return true;
}

static inline const char *find_key(const char *text, const char *key)
{
	size_t len = strlen(key);
	const char *line;

	for (line = text; line; line = strchr(line, '\n')) {
		if (*line == '\n')
			line++;
		if (!strncmp(line, key, len) && strchr(" :", line[len])) {
			line = strchr(line, ':');
			return line ? line + 1 : NULL;
		}
	}

	return NULL;
}

static inline bool find_ms(const char *text, const char *key, long long *ns)
{
	const char *value = find_key(text, key);

	return value && parse_ms(value, ns);
}

static inline bool find_count(const char *text, const char *key,
			      long long *count)
{
	const char *value = find_key(text, key);

	if (!value)
		return false;
	*count = strtoll(value, NULL, 10);

	return true;
}

static inline bool read_account(pid_t pid, struct task_account *a)
{
	char path[64], text[8192];

	memset(a, 0, sizeof(*a));
	snprintf(path, sizeof(path), "/proc/%d/sched", pid);
	if (!read_text(path, text, sizeof(text)))
		return false;

	find_count(text, "dl.runtime", &a->dl_runtime);
	find_count(text, "dl.deadline", &a->dl_deadline);

	return find_ms(text, "se.vruntime", &a->vruntime) &&
	       find_ms(text, "se.sum_exec_runtime", &a->exec) &&
	       find_count(text, "nr_voluntary_switches", &a->voluntary) &&
	       find_count(text, "nr_involuntary_switches", &a->involuntary);
}

/*
 * The weight in /proc/PID/sched is that in the task's own cgroup. Only for a
 * task in the root cgroup it is the one which vruntime advances with.
 */
static inline long long nice_0_weight(void)
{
	char text[8192];
	long long weight = 0;

	if (set_fair(SCHED_OTHER, 0, 0) ||
	    !read_text("/proc/self/sched", text, sizeof(text)))
		return 0;
	find_count(text, "se.load.weight", &weight);

	return weight;
}

/* Enable the cpu controller below a cgroup. @enabled: it was not before. */
static inline bool cpu_controller_on(const char *group, bool *enabled)
{
	char file[PATH_MAX], text[1024], *word, *save;

	snprintf(file, sizeof(file), "%s/cgroup.subtree_control", group);
	if (!read_text(file, text, sizeof(text)))
		return false;
	for (word = strtok_r(text, "\n ", &save); word;
	     word = strtok_r(NULL, "\n ", &save)) {
		if (!strcmp(word, "cpu"))
			return true;
	}
	*enabled = write_text(file, "+cpu");

	return *enabled;
}

/* As it was before cpu_controller_on(); it stays while others use it. */
static inline void cpu_controller_off(const char *group)
{
	char file[PATH_MAX];

	snprintf(file, sizeof(file), "%s/cgroup.subtree_control", group);
	write_text(file, "-cpu");
}

/*
 * Feature bits of the scheduler, and who restores them.
 */

#define DEBUGFS		"/sys/kernel/debug"
#define FEATURES	DEBUGFS "/sched/features"
#define SCHED_DEBUG	DEBUGFS "/sched/debug"
#define SCHEDSTATS	"/proc/sys/kernel/sched_schedstats"

enum yield_feature {
	CHARGE,
	HANDOVER,
	NR_YIELD_FEATURES,
};

static const char * const yield_features[NR_YIELD_FEATURES] = {
	[CHARGE]	= "YIELD_TICK",
	[HANDOVER]	= "YIELD_HANDOVER",
};

/* 1 on, 0 off, -1 the kernel does not have it */
static inline int feature_get(const char *name)
{
	char text[4096], *word, *save;

	if (!read_text(FEATURES, text, sizeof(text)))
		return -1;
	for (word = strtok_r(text, "\n ", &save); word;
	     word = strtok_r(NULL, "\n ", &save)) {
		if (!strcmp(word, name))
			return 1;
		if (!strncmp(word, "NO_", 3) && !strcmp(word + 3, name))
			return 0;
	}

	return -1;
}

static inline bool feature_set(const char *name, bool on)
{
	char text[64];

	snprintf(text, sizeof(text), "%s%s", on ? "" : "NO_", name);

	return write_text(FEATURES, text) && feature_get(name) == on;
}

/* Where nobody else sees it. */
static inline bool mount_private(const char *type, const char *dir)
{
	return !unshare(CLONE_NEWNS) &&
	       !mount(NULL, "/", NULL, MS_REC | MS_PRIVATE, NULL) &&
	       !mount(type, dir, type, 0, NULL);
}

/*
 * Without root's debugfs we mount one. Returns the reason why there are no
 * feature bits to look at, or NULL.
 */
static inline const char *features_open(void)
{
	struct stat st;

	if (geteuid())
		return "not root";
	if (stat(FEATURES, &st)) {
		if (!mount_private("debugfs", DEBUGFS))
			return "no debugfs";
		if (stat(FEATURES, &st))
			return "no scheduler features in debugfs";
	}
	if (access(FEATURES, W_OK))
		return "scheduler features are read-only";

	return NULL;
}

/* The bits are the whole machine's: one test at a time, held until exit. */
static inline bool features_lock(void)
{
	int fd;

	fd = open(FEATURES, O_RDONLY | O_CLOEXEC);

	return fd >= 0 && !flock(fd, LOCK_EX | LOCK_NB);
}

struct guard {
	pid_t owner, pid;
	int fd;
};

static struct guard guard = { .fd = -1 };

/*
 * A guardian waits for the end of all who hold the other end of the pipe:
 * that is the test and its children, however they end.
 */
static inline void guard_wait(int fd)
{
	char byte;
	int i;

	setsid();
	for (i = 1; i < NSIG; i++)
		signal(i, SIG_IGN);
	while (read(fd, &byte, 1) < 0 && errno == EINTR)
		;
}

static inline void guard_run(int fd, const int *bits, const char *stats)
{
	int i;

	set_fair(SCHED_OTHER, 0, 0);
	guard_wait(fd);
	for (i = 0; i < NR_YIELD_FEATURES; i++) {
		if (bits[i] >= 0)
			feature_set(yield_features[i], bits[i]);
	}
	if (*stats)
		write_text(SCHEDSTATS, stats);
	_exit(0);
}

/* After this everything is restored when the program is back in its shell. */
static inline void guard_end(void)
{
	if (guard.fd < 0 || guard.owner != getpid())
		return;
	close(guard.fd);
	guard.fd = -1;
	while (waitpid(guard.pid, NULL, 0) < 0 && errno == EINTR)
		;
}

static inline bool guard_start(void)
{
	int bits[NR_YIELD_FEATURES], pipes[2], i;
	char stats[16] = "";

	for (i = 0; i < NR_YIELD_FEATURES; i++)
		bits[i] = feature_get(yield_features[i]);
	if (!read_text(SCHEDSTATS, stats, sizeof(stats)))
		stats[0] = '\0';
	if (pipe2(pipes, O_CLOEXEC))
		return false;

	guard.pid = fork();
	if (guard.pid < 0)
		return false;
	if (!guard.pid) {
		close(pipes[1]);
		guard_run(pipes[0], bits, stats);
	}
	close(pipes[0]);
	guard.fd = pipes[1];
	guard.owner = getpid();
	atexit(guard_end);

	return true;
}

/*
 * What the two tests have in common.
 */

/* Why there are no bits to set, and whether to test with none set. */
static const char *no_bits;
static bool force_off;

/* A test must not go on when the program was killed. */
static int main_pidfd = -1;

/* The CPU that all tasks share. */
static int test_cpu = -1;

/* Once, in main(); returns the reason when all tests would be skipped. */
static inline const char *bits_init(void)
{
	const char *mode = getenv("YIELD_BITS");
	static char missing[64];
	int i;

	force_off = mode && !strcmp(mode, "off");
	main_pidfd = syscall(SYS_pidfd_open, getpid(), 0);

	no_bits = features_open();
	for (i = 0; !no_bits && i < NR_YIELD_FEATURES; i++) {
		if (feature_get(yield_features[i]) >= 0)
			continue;
		snprintf(missing, sizeof(missing), "no such feature: %s",
			 yield_features[i]);
		no_bits = missing;
	}
	if (!no_bits && !features_lock())
		no_bits = "another test is using the scheduler features";
	if ((!no_bits || force_off) && !guard_start())
		no_bits = "no guardian for the scheduler features";

	return force_off ? NULL : no_bits;
}

static inline const char *set_bits(bool charge, bool handover)
{
	if (no_bits)
		return force_off ? NULL : no_bits;
	if (!feature_set(yield_features[CHARGE], charge && !force_off) ||
	    !feature_set(yield_features[HANDOVER], handover && !force_off))
		return "the scheduler features cannot be set";

	return NULL;
}

/* Go to the CPU of the test, above whoever is to be watched there. */
static inline const char *take_cpu(unsigned int seconds)
{
	static char reason[64];

	prctl(PR_SET_PDEATHSIG, SIGKILL);
	alarm(seconds);
	if (geteuid())
		return "not root";
	test_cpu = first_cpu();
	if (!pin_to(test_cpu))
		return "no CPU to be pinned to";
	if (set_realtime(SCHED_FIFO, 50)) {
		snprintf(reason, sizeof(reason), "SCHED_FIFO: %s",
			 strerror(errno));
		return reason;
	}

	return NULL;
}

#endif /* YIELD_HELPERS_H */
