/* SPDX-License-Identifier: GPL-2.0 */
/*
 * What the benchmarks have in common: tasks on one CPU, how a case ended and
 * its figures, for people and as JSON, and checks of options.
 */
#ifndef BENCH_HELPERS_H
#define BENCH_HELPERS_H

#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <mntent.h>
#include <sched.h>
#include <signal.h>
#include <stdarg.h>
#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>
#include <sys/mman.h>
#include <sys/mount.h>
#include <sys/prctl.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <sys/utsname.h>
#include <sys/wait.h>

#include "kselftest.h"

#define NSEC_PER_USEC	1000LL
#define NSEC_PER_MSEC	1000000LL
#define NSEC_PER_SEC	1000000000LL

#define MAX_CPUS	8192
#define MAX_FIGURES	16

#define CGROUP_MOUNT	"/sys/fs/cgroup"

enum verdict {
	RUNNING,
	OK,
	SKIP,
	FAIL,
	NR_VERDICTS,
};

static const char * const verdict_names[NR_VERDICTS] = {
	[OK]	= "ok",
	[SKIP]	= "skip",
	[FAIL]	= "fail",
};

struct figure {
	const char *name;
	double value;
};

/**
 * struct outcome - how a case ended
 * @verdict:	whether there are figures to report
 * @reason:	why not
 * @figure:	what was measured
 * @figures:	how many they are
 */
struct outcome {
	enum verdict verdict;
	char reason[200];
	struct figure figure[MAX_FIGURES];
	int figures;
};

static inline void set_outcome(struct outcome *out, enum verdict verdict,
			       const char *reason)
{
	out->verdict = verdict;
	snprintf(out->reason, sizeof(out->reason), "%s", reason);
}

static inline void add_figure(struct outcome *out, const char *name,
			      double value)
{
	if (out->figures == MAX_FIGURES)
		ksft_exit_fail_msg("more than %d figures\n", MAX_FIGURES);
	out->figure[out->figures].name = name;
	out->figure[out->figures++].value = value;
}

static inline int compare_ns(const void *a, const void *b)
{
	long long x = *(const long long *)a, y = *(const long long *)b;

	return x < y ? -1 : x > y;
}

/* Number ceil(p * n / 100) of @n values once sorted, counted from one. */
static inline void add_percentile(struct outcome *out, const char *name,
				  long long *value, long long n, int p)
{
	if (n <= 0)
		return;
	qsort(value, n, sizeof(*value), compare_ns);
	add_figure(out, name, value[(p * n + 99) / 100 - 1]);
}

static inline void add_percentiles(struct outcome *out, long long *value,
				   long long n, const char * const *name)
{
	add_percentile(out, name[0], value, n, 50);
	add_percentile(out, name[1], value, n, 99);
	add_percentile(out, name[2], value, n, 100);
}

/*
 * Time and memory.
 */

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

static inline void sleep_until(long long ns)
{
	const struct timespec ts = {
		.tv_sec = ns / NSEC_PER_SEC,
		.tv_nsec = ns % NSEC_PER_SEC,
	};

	while (clock_nanosleep(CLOCK_MONOTONIC, TIMER_ABSTIME, &ts, NULL) ==
	       EINTR)
		;
}

static inline void work_loops(unsigned long loops)
{
	while (loops--)
		asm volatile ("" : : : "memory");
}

/* From the shortest of some runs: what is longer was interrupted. */
static inline unsigned long loops_in(long long ns)
{
	const unsigned long loops = 100000;
	long long best = LLONG_MAX, start;
	int i;

	for (i = 0; i < 10; i++) {
		start = now_ns();
		work_loops(loops);
		start = now_ns() - start;
		if (start > 0 && start < best)
			best = start;
	}

	return (double)loops * ns / best;
}

static inline void *map_shared(size_t size)
{
	void *mem;

	mem = mmap(NULL, size, PROT_READ | PROT_WRITE,
		   MAP_SHARED | MAP_ANONYMOUS | MAP_POPULATE, -1, 0);
	if (mem == MAP_FAILED)
		ksft_exit_fail_perror("mmap");

	return mem;
}

/*
 * Tasks.
 */

/* The C library may or may not have it: a name of our own. */
struct task_attr {
	uint32_t size, policy;
	uint64_t flags;
	int32_t nice;
	uint32_t priority;
	uint64_t runtime, deadline, period;
};

/* @slice: in ns, 0 for the default */
static inline int set_fair(int nice, unsigned long long slice)
{
	struct task_attr attr = {
		.size = sizeof(attr),
		.policy = SCHED_OTHER,
		.nice = nice,
		.runtime = slice,
	};

	return syscall(SYS_sched_setattr, 0, &attr, 0);
}

/* The first CPU that we may use, or -1. */
static inline int first_cpu(void)
{
	static cpu_set_t mask[MAX_CPUS / CPU_SETSIZE];
	int i;

	if (sched_getaffinity(0, sizeof(mask), mask))
		return -1;
	for (i = 0; i < MAX_CPUS; i++) {
		if (CPU_ISSET_S(i, sizeof(mask), mask))
			return i;
	}

	return -1;
}

static inline bool pin_to(int cpu)
{
	static cpu_set_t mask[MAX_CPUS / CPU_SETSIZE];

	if (cpu < 0 || cpu >= MAX_CPUS)
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

/*
 * A guardian waits for the end of all who hold the other end of the pipe:
 * that is the program and its children, however they end.
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

/*
 * Files.
 */

/* For what is written with a newline or without; @text may be a number. */
static inline bool write_text(const char *path, const char *text)
{
	FILE *file = fopen(path, "we");
	bool good;

	if (!file)
		return false;
	good = fputs(text, file) >= 0;

	return !fclose(file) && good;
}

static inline bool read_text(const char *path, char *text, size_t size)
{
	FILE *file = fopen(path, "re");

	text[file ? fread(text, 1, size - 1, file) : 0] = '\0';

	return file && !fclose(file);
}

static inline bool has_word(const char *path, const char *wanted)
{
	char text[4096], *word, *save;

	if (!read_text(path, text, sizeof(text)))
		return false;
	for (word = strtok_r(text, "\n ", &save); word;
	     word = strtok_r(NULL, "\n ", &save)) {
		if (!strcmp(word, wanted))
			return true;
	}

	return false;
}

/* Where nobody else sees it. */
static inline bool mount_private(const char *type, const char *dir)
{
	return !unshare(CLONE_NEWNS) &&
	       !mount(NULL, "/", NULL, MS_REC | MS_PRIVATE, NULL) &&
	       !mount(type, dir, type, 0, NULL);
}

/* -1 when the kernel does not say. */
static inline long long available_kb(void)
{
	char text[8192], *line = NULL;

	if (read_text("/proc/meminfo", text, sizeof(text)))
		line = strstr(text, "\nMemAvailable:");

	return line ? atoll(strchr(line, ':') + 1) : -1;
}

/*
 * Cgroups.
 */

/* Finds cgroup v2; without a mount of it we make one. */
static inline bool find_cgroup2(char *root, size_t size)
{
	FILE *mounts = setmntent("/proc/self/mounts", "r");
	struct mntent *entry;

	*root = '\0';
	while (mounts && !*root && (entry = getmntent(mounts))) {
		if (!strcmp(entry->mnt_type, "cgroup2"))
			snprintf(root, size, "%s", entry->mnt_dir);
	}
	if (mounts)
		endmntent(mounts);
	if (*root)
		return true;
	snprintf(root, size, "%s", CGROUP_MOUNT);

	return mount_private("cgroup2", CGROUP_MOUNT);
}

/* Who ends closes files first and leaves the cgroup later. */
static inline void remove_cgroup(const char *dir)
{
	const struct timespec ts = { .tv_nsec = 5 * NSEC_PER_MSEC };
	int i;

	for (i = 0; i < 1000 && rmdir(dir) && errno == EBUSY; i++)
		nanosleep(&ts, NULL);
}

/*
 * Output.
 */

static inline void print_outcome(const char *name, const struct outcome *out)
{
	char text[1024] = "";
	size_t len = 0;
	int i;

	for (i = 0; i < out->figures && len < sizeof(text); i++)
		len += snprintf(text + len, sizeof(text) - len, " %s %.10g",
				out->figure[i].name, out->figure[i].value);

	switch (out->verdict) {
	case OK:
		ksft_print_msg("%s:%s\n", name, text);
		ksft_test_result_pass("%s\n", name);
		break;
	case SKIP:
		ksft_test_result_code(KSFT_SKIP, name, "%s", out->reason);
		break;
	default:
		ksft_print_msg("%s: %s\n", name, out->reason);
		ksft_test_result_fail("%s\n", name);
		break;
	}
}

static inline __noreturn void finish(void)
{
	/* ksft_finished() takes a run of nothing but skips for a pass. */
	if ((unsigned int)ksft_get_xskip_cnt() == ksft_plan) {
		ksft_print_cnts();
		exit(KSFT_SKIP);
	}

	ksft_finished();
}

static inline void json_string(FILE *file, const char *s)
{
	putc('"', file);
	for (; *s; s++) {
		unsigned char ch = *s;

		if (ch == '"' || ch == '\\')
			fprintf(file, "\\%c", ch);
		else if (ch < 0x20 || ch >= 0x7f)
			fprintf(file, "\\u%04x", ch);
		else
			putc(ch, file);
	}
	putc('"', file);
}

/* What all files begin with; @cpu: -1 for any */
static inline void json_head(FILE *file, const char *benchmark, int cpu)
{
	struct utsname uts = {};

	uname(&uts);
	fprintf(file, "{\n  \"benchmark\": \"%s\",\n  \"version\": 1,\n",
		benchmark);
	fprintf(file, "  \"unit\": \"ns\",\n  \"bits\": %zu,\n  \"kernel\": ",
		sizeof(long) * 8);
	json_string(file, uts.release);
	if (cpu < 0)
		fprintf(file, ",\n  \"cpu\": null,\n");
	else
		fprintf(file, ",\n  \"cpu\": %d,\n", cpu);
}

static inline void json_status(FILE *file, const struct outcome *out)
{
	fprintf(file, "\"status\": \"%s\", \"reason\": ",
		verdict_names[out->verdict]);
	if (out->verdict == OK)
		fprintf(file, "null");
	else
		json_string(file, out->reason);
}

static inline void json_figures(FILE *file, const struct outcome *out)
{
	int i;

	for (i = 0; out->verdict == OK && i < out->figures; i++)
		fprintf(file, ", \"%s\": %.10g", out->figure[i].name,
			out->figure[i].value);
}

static inline const char *json_autogroup(void)
{
	char text[16];

	if (!read_text("/proc/sys/kernel/sched_autogroup_enabled", text,
		       sizeof(text)))
		return "null";

	return *text == '0' ? "false" : "true";
}

/* Beside the final name, so that the rename() stays in one file system. */
static inline FILE *json_open(const char *path, char *name, size_t size)
{
	FILE *file = NULL;
	int fd;

	snprintf(name, size, "%s.XXXXXX", path);
	fd = mkstemp(name);
	if (fd >= 0) {
		fchmod(fd, 0644);
		file = fdopen(fd, "w");
		if (!file) {
			close(fd);
			unlink(name);
		}
	}
	if (!file)
		fprintf(stderr, "%s: %s\n", path, strerror(errno));

	return file;
}

static inline bool json_close(FILE *file, const char *path, const char *name)
{
	bool good = !ferror(file);

	good = !fclose(file) && good && !rename(name, path);
	if (!good) {
		fprintf(stderr, "%s: %s\n", path, strerror(errno));
		unlink(name);
	}

	return good;
}

/* Find out before the measurement, not after it. */
static inline bool json_possible(const char *path)
{
	char name[PATH_MAX];
	struct stat st;
	FILE *file;

	if (!lstat(path, &st) && !S_ISREG(st.st_mode)) {
		fprintf(stderr, "%s: not a regular file\n", path);
		return false;
	}
	file = json_open(path, name, sizeof(name));
	if (!file)
		return false;
	fclose(file);
	unlink(name);

	return true;
}

/*
 * Options.
 */

static inline bool machine_slow(void)
{
	const char *slow = getenv("KSFT_MACHINE_SLOW");

	return slow && !strcmp(slow, "yes");
}

static inline __noreturn __printf(1, 2) void usage_error(const char *fmt, ...)
{
	va_list args;

	va_start(args, fmt);
	vfprintf(stderr, fmt, args);
	va_end(args);
	fputc('\n', stderr);

	/* Not the usual 2, which a test runner reads as an expected failure. */
	exit(KSFT_FAIL);
}

/* Tells whether @text is a number from @min to @max, and which. */
static inline bool is_number(const char *text, double min, double max,
			     double *value)
{
	char *end;

	errno = 0;
	*value = strtod(text, &end);

	return *text >= '0' && *text <= '9' && !*end && !errno &&
	       *value >= min && *value <= max;
}

#endif /* BENCH_HELPERS_H */
