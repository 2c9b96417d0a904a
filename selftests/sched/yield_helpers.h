/* SPDX-License-Identifier: GPL-2.0 */
/* What yield_latency and yield_test share: time, tasks on one CPU, files. */
#ifndef YIELD_HELPERS_H
#define YIELD_HELPERS_H

#ifndef _GNU_SOURCE
#define _GNU_SOURCE
#endif
#include <errno.h>
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
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/resource.h>
#include <sys/syscall.h>
#include <sys/utsname.h>
#include <sys/wait.h>

#define USEC(n)		((n) * 1000LL)
#define MSEC(n)		((n) * 1000000LL)
#define SEC(n)		((n) * 1000000000LL)

#define SCHED_DEBUG	"/sys/kernel/debug/sched"
#define SCHED_FEATURES	SCHED_DEBUG "/features"

/* Time, in ns. */

static inline long long timespec_ns(const struct timespec *ts)
{
	return SEC(ts->tv_sec) + ts->tv_nsec;
}

/* 0 when there is no such clock, as that of a task that is gone. */
static inline long long clock_ns(clockid_t clock)
{
	struct timespec ts = {};

	clock_gettime(clock, &ts);
	return timespec_ns(&ts);
}

static inline long long now_ns(void)
{
	return clock_ns(CLOCK_MONOTONIC);
}

/* The coarse clock advances once per tick, and tells by how much. */
static inline long long tick_ns(void)
{
	struct timespec ts = {};

	clock_getres(CLOCK_MONOTONIC_COARSE, &ts);
	return timespec_ns(&ts);
}

/* Returns right after a tick, or @phase ns later. */
static inline void wait_for_tick(long long phase)
{
	long long first, until;

	first = clock_ns(CLOCK_MONOTONIC_COARSE);
	while (clock_ns(CLOCK_MONOTONIC_COARSE) == first)
		;
	until = now_ns() + phase;
	while (now_ns() < until)
		;
}

/* Any gap in what a task sees of the clock is a wait. */
static inline void watch_clock(long long until, bool yields,
			       long long *longest)
{
	long long now, last = now_ns();

	do {
		if (yields)
			sched_yield();
		now = now_ns();
		if (now - last > *longest)
			*longest = now - last;
		last = now;
	} while (now < until);
}

/* This makes no system call, at which the task could be preempted. */
static inline void work_loops(unsigned long loops)
{
	while (loops--)
		asm volatile ("" : : : "memory");
}

/* The shortest of several runs counts: the longer ones were interrupted. */
static inline unsigned long loops_in(long long ns)
{
	const unsigned long loops = 100000;
	long long best = LLONG_MAX, took;
	int i;

	for (i = 0; i < 10; i++) {
		took = now_ns();
		work_loops(loops);
		took = now_ns() - took;
		if (took > 0 && took < best)
			best = took;
	}
	return (double)loops * ns / best;
}

/* Tasks. */

/* Not all C libraries define struct sched_attr, so this has its own name. */
struct task_attr {
	uint32_t size, policy;
	uint64_t flags;
	int32_t nice;
	uint32_t priority;
	uint64_t slice, deadline, period;
};

/* @slice: in ns, 0 for the default */
static inline int set_task(int policy, int nice, long long slice)
{
	struct task_attr attr = {
		.size = sizeof(attr),
		.policy = policy,
		.nice = nice,
		.slice = slice,
	};
	return syscall(SYS_sched_setattr, 0, &attr, 0);
}

static inline long long get_slice(pid_t pid)
{
	struct task_attr attr = {};

	syscall(SYS_sched_getattr, pid, &attr, sizeof(attr), 0);
	return attr.slice;
}

/* The first CPU that the caller may use, or -1. */
static inline int first_cpu(void)
{
	cpu_set_t mask;
	int i;

	if (sched_getaffinity(0, sizeof(mask), &mask))
		return -1;
	for (i = 0; i < CPU_SETSIZE; i++) {
		if (CPU_ISSET(i, &mask))
			return i;
	}
	return -1;
}

static inline int pin_to(int cpu)
{
	cpu_set_t mask;

	CPU_ZERO(&mask);
	CPU_SET(cpu, &mask);
	return sched_setaffinity(0, sizeof(mask), &mask);
}

/* The child ends when its parent does, however that ends. */
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

/*
 * How often the caller was switched away from, and its runtime in ns up to
 * then or to the last tick. RUSAGE_SELF would account its runtime now, which
 * may end its turn.
 */
static inline long count_switches(long long *runtime)
{
	struct rusage usage;

	getrusage(RUSAGE_THREAD, &usage);
	if (runtime)
		*runtime = (usage.ru_utime.tv_sec + usage.ru_stime.tv_sec) *
			   SEC(1) + USEC(usage.ru_utime.tv_usec +
					 usage.ru_stime.tv_usec);
	return usage.ru_nvcsw + usage.ru_nivcsw;
}

/* CPU time of a process in ns. */
static inline long long cpu_time(pid_t pid)
{
	clockid_t id;

	return clock_getcpuclockid(pid, &id) ? 0 : clock_ns(id);
}

/* Memory that children share, or NULL. */
static inline void *map_shared(size_t size)
{
	void *mem;

	mem = mmap(NULL, size, PROT_READ | PROT_WRITE,
		   MAP_SHARED | MAP_ANONYMOUS | MAP_POPULATE, -1, 0);
	return mem == MAP_FAILED ? NULL : mem;
}

/* Files. */

static inline bool write_text(const char *path, const char *text)
{
	FILE *file = fopen(path, "we");
	bool good;

	if (!file)
		return false;
	good = fputs(text, file) >= 0;
	return !fclose(file) && good;
}

/* @text is empty when the file cannot be read. */
static inline void read_text(const char *path, char *text, size_t size)
{
	FILE *file = fopen(path, "re");

	text[file ? fread(text, 1, size - 1, file) : 0] = '\0';
	if (file)
		fclose(file);
}

/* 1 on, 0 off, -1: not readable or the kernel does not have it */
static inline int feature_get(const char *name)
{
	char text[4096] = " ", word[32];

	read_text(SCHED_FEATURES, text + 1, sizeof(text) - 1);
	snprintf(word, sizeof(word), " %s ", name);
	if (strstr(text, word))
		return 1;
	snprintf(word, sizeof(word), " NO_%s ", name);
	return strstr(text, word) ? 0 : -1;
}

static inline bool feature_set(const char *name, bool on)
{
	char text[32];

	snprintf(text, sizeof(text), "%s%s", on ? "" : "NO_", name);
	return write_text(SCHED_FEATURES, text) && feature_get(name) == on;
}

static pid_t measurer;

static inline void kill_measurer(int sig)
{
	(void)sig;
	kill(measurer, SIGKILL);
}

/*
 * Continue in a child, and restore the bits when it ends, however it ends.
 * Returns the reason why bits cannot be set, or NULL.
 */
static inline const char *guard_features(const char * const *bits, int nr)
{
	int before[8], status, i;

	for (i = 0; i < nr; i++) {
		before[i] = feature_get(bits[i]);
		if (before[i] < 0)
			return "no such scheduler features, or no debugfs";
	}
	measurer = fork_bound();
	if (!measurer)
		return NULL;
	if (measurer < 0)
		return "no process can be made";

	signal(SIGHUP, kill_measurer);
	signal(SIGINT, kill_measurer);
	signal(SIGTERM, kill_measurer);
	waitpid(measurer, &status, 0);
	for (i = 0; i < nr; i++)
		feature_set(bits[i], before[i]);
	exit(WIFEXITED(status) ? WEXITSTATUS(status) : 1);
}

/* Figures and options. */

static inline int compare_ns(const void *a, const void *b)
{
	long long x = *(const long long *)a, y = *(const long long *)b;

	return x < y ? -1 : x > y;
}

/* Number ceil(p * n / 100) of @n sorted values, counted from one. */
static inline long long percentile(const long long *value, long long n, int p)
{
	return value[(p * n + 99) / 100 - 1];
}

/* What scripts expect at the beginning of the results of any benchmark. */
static inline void json_head(FILE *file, const char *benchmark, int cpu)
{
	struct utsname uts = {};

	uname(&uts);
	fprintf(file, "{\n  \"benchmark\": \"%s\",\n  \"version\": 1,\n",
		benchmark);
	fprintf(file, "  \"unit\": \"ns\",\n  \"bits\": %zu,\n",
		sizeof(long) * 8);
	fprintf(file, "  \"kernel\": \"%s\",\n  \"cpu\": %d,\n",
		uts.release, cpu);
	fprintf(file, "  \"tick_ns\": %lld,\n", tick_ns());
}

static inline bool machine_slow(void)
{
	const char *slow = getenv("KSFT_MACHINE_SLOW");

	return slow && !strcmp(slow, "yes");
}

static inline void usage_error(const char *text, const char *problem)
{
	fprintf(stderr, "%s: %s, see --help\n", text, problem);
	/* Not the usual 2, which a test runner reads as an expected failure. */
	exit(1);
}

static inline double parse_number(const char *option, const char *text,
				  double min, double max)
{
	char problem[100], *end;
	double number;

	number = strtod(text, &end);
	if (end != text && !*end && number >= min && number <= max)
		return number;
	snprintf(problem, sizeof(problem), "--%s takes a number from %g to %g",
		 option, min, max);
	usage_error(text, problem);
	return 0;
}

#endif /* YIELD_HELPERS_H */
