/* SPDX-License-Identifier: GPL-2.0 */
/*
 * What the programs share: options; files and time; how a case ended and its figures, for people
 * and as JSON; tasks; who is grouped with whom.
 */
#ifndef BENCH_HELPERS_H
#define BENCH_HELPERS_H

#define _GNU_SOURCE
#include <err.h>
#include <errno.h>
#include <getopt.h>
#include <limits.h>
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
#include <sys/param.h>
#include <sys/prctl.h>
#include <sys/resource.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <sys/wait.h>

#define ARRAY_SIZE(array)	(sizeof(array) / sizeof((array)[0]))
#define __noreturn		__attribute__((noreturn))
#define __printf(a, b)		__attribute__((format(printf, a, b)))
#define get(x)			__atomic_load_n(&(x), __ATOMIC_RELAXED)
#define set(x, value)		__atomic_store_n(&(x), value, __ATOMIC_RELAXED)

#define NSEC_PER_USEC	1000LL
#define NSEC_PER_MSEC	1000000LL
#define NSEC_PER_SEC	1000000000LL

/* Beside EXIT_SUCCESS and EXIT_FAILURE: no case could be measured. */
#define EXIT_SKIPPED	4

/* Options. */

static const char *json_path;

/* A flag (bool), a number (double) or a text. */
struct option_of {
	const char *name;
	enum { FLAG, NUMBER, TEXT } kind;
	void *value;
	double min, max;
};

#define JSON_OPTION	{ "json", TEXT, &json_path, 0, 0 }

static const struct option_of json_only[] __attribute__((unused)) = { JSON_OPTION, {} };

static inline void set_option(const struct option_of *o, char *text)
{
	double value;
	char *end;

	if (o->kind == FLAG) {
		*(bool *)o->value = true;
	} else if (o->kind == TEXT) {
		*(char **)o->value = text;
	} else {
		value = strtod(text, &end);
		if (end == text || *end || !(value >= o->min && value <= o->max))
			errx(EXIT_FAILURE, "--%s %s: not a number from %g to %.10g", o->name, text,
			     o->min, o->max);
		*(double *)o->value = value;
	}
}

/* Read options up to the cases, if there may be any. */
static inline void read_options(int argc, char **argv, bool cases, const struct option_of *options)
{
	struct option known[12] = {};
	int i, error;

	for (i = 0; options[i].name; i++) {
		known[i].name = options[i].name;
		known[i].has_arg = options[i].kind != FLAG;
	}
	while (!(error = getopt_long(argc, argv, "", known, &i)))
		set_option(&options[i], optarg);
	if (error != -1 || (!cases && optind < argc))
		errx(EXIT_FAILURE, "a wrong option or argument: the source says more");
}

/* Files, memory and time. */

static inline bool read_text(const char *path, char *text, size_t size)
{
	FILE *file = fopen(path, "re");

	text[file ? fread(text, 1, size - 1, file) : 0] = '\0';
	return file && !fclose(file);
}

static inline __printf(2, 3) bool write_text(const char *text, const char *fmt, ...)
{
	char path[PATH_MAX];
	va_list args;
	FILE *file;
	bool good;

	va_start(args, fmt);
	vsnprintf(path, sizeof(path), fmt, args);
	va_end(args);
	file = fopen(path, "we");
	good = file && fputs(text, file) >= 0;
	return file && !fclose(file) && good;
}

/* What a file in /proc says after a word such as "MemAvailable:", or -1. */
static inline long long number_in(const char *path, const char *word)
{
	char text[8192];
	const char *found;

	read_text(path, text, sizeof(text));
	found = strstr(text, word);
	return found ? atoll(found + strlen(word)) : -1;
}

static inline void *map_shared(size_t size)
{
	void *mem = mmap(NULL, size, PROT_READ | PROT_WRITE,
			 MAP_SHARED | MAP_ANONYMOUS | MAP_POPULATE, -1, 0);

	if (mem == MAP_FAILED)
		err(EXIT_FAILURE, "mmap");
	return mem;
}

static inline long long clock_ns(clockid_t clock)
{
	struct timespec ts;

	clock_gettime(clock, &ts);
	return ts.tv_sec * NSEC_PER_SEC + ts.tv_nsec;
}

static inline long long now_ns(void)
{
	return clock_ns(CLOCK_MONOTONIC);
}

static inline void sleep_until(long long ns)
{
	const struct timespec ts = { ns / NSEC_PER_SEC, ns % NSEC_PER_SEC };

	while (clock_nanosleep(CLOCK_MONOTONIC, TIMER_ABSTIME, &ts, NULL) == EINTR)
		;
}

static inline void sleep_ns(long long ns)
{
	sleep_until(now_ns() + ns);
}

/*
 * This makes no system call, at which the task could be preempted. To an emulator that counts
 * instructions a nop is one, and costs it no time.
 */
static inline void work_loops(unsigned long loops)
{
	while (loops--)
		asm volatile (".rept 48; nop; .endr" : : : "memory");
}

/* The shortest of several runs counts: the longer ones were interrupted. */
static inline unsigned long loops_in(long long ns)
{
	const unsigned long loops = 10000;
	long long best = LLONG_MAX, took;
	int i;

	for (i = 0; i < 10; i++) {
		took = now_ns();
		work_loops(loops);
		took = now_ns() - took;
		if (took > 0 && took < best)
			best = took;
	}
	return (double)loops * ns / best + 1;
}

/* Results. */

enum verdict { OK, SKIP, FAIL };

/* The case that runs; all tasks of it share this. */
static struct result {
	char name[64];		/* tools rely on it */
	char more[200];		/* what JSON says besides: "\"kind\": \"ring\", " */
	enum verdict verdict;
	char reason[200];
	int figures;
	struct {
		const char *name;
		double value;
	} figure[16];
} *res;

static int nr_cases[FAIL + 1];
static FILE *json;
static int cleaner;

/* The first problem is kept: what follows is mostly a consequence of it. */
static inline __printf(2, 3) void report(enum verdict verdict, const char *fmt, ...)
{
	enum verdict ok = OK;
	va_list args;

	if (!__atomic_compare_exchange_n(&res->verdict, &ok, verdict, false, __ATOMIC_SEQ_CST,
					 __ATOMIC_SEQ_CST))
		return;
	va_start(args, fmt);
	vsnprintf(res->reason, sizeof(res->reason), fmt, args);
	va_end(args);
}

static inline bool all_well(void)
{
	return get(res->verdict) == OK;
}

static inline void add_figure(const char *name, double value)
{
	if (res->figures == ARRAY_SIZE(res->figure))
		abort();
	res->figure[res->figures].name = name;
	res->figure[res->figures++].value = value;
}

static inline int compare_ns(const void *a, const void *b)
{
	long long x = *(const long long *)a, y = *(const long long *)b;

	return x < y ? -1 : x > y;
}

/* Number ceil(p * n / 100) of the sorted values. */
static inline long long percentile(const long long *value, long long n, int p)
{
	return value[(p * n + 99) / 100 - 1];
}

/*
 * Read options; cases go to a file, or to stdout, as JSON. Whether that can be written is known
 * before the measurement.
 */
static inline void begin_cases(const char *benchmark, int argc, char **argv, bool cases,
			       const struct option_of *options)
{
	struct timespec tick = {};

	read_options(argc, argv, cases, options);
	res = map_shared(sizeof(*res));
	json = json_path ? fopen(json_path, "we") : stdout;
	if (!json)
		err(EXIT_FAILURE, "%s", json_path);
	/* The coarse clock advances once in a tick. */
	clock_getres(CLOCK_MONOTONIC_COARSE, &tick);
	fprintf(json, "{\"benchmark\": \"%s\", \"tick_ns\": %ld, \"cases\": [", benchmark,
		tick.tv_nsec);
	/* Or a child would write it as well. */
	fflush(json);
}

/* Write it, and make room for the next one. */
static inline void end_case(void)
{
	static const char * const names[] = { "ok", "skip", "fail" };
	static const char *separator = "";
	int i;

	fprintf(json, "%s\n{\"name\": \"%s\", %s\"status\": \"%s\", \"reason\": \"%s\"", separator,
		res->name, res->more, names[res->verdict], res->reason);
	separator = ",";
	for (i = 0; res->verdict == OK && i < res->figures; i++)
		fprintf(json, ", \"%s\": %.10g", res->figure[i].name, res->figure[i].value);
	fprintf(json, "}");
	fflush(json);
	if (res->verdict != OK)
		warnx("%s: %s", res->name, res->reason);
	nr_cases[res->verdict]++;
	memset(res, 0, sizeof(*res));
}

/* Returns the exit status of the program, which ends here. */
static inline int end_cases(void)
{
	char byte;

	fprintf(json, "\n]}\n");
	if (ferror(json) | fclose(json))
		err(EXIT_FAILURE, "%s", json_path);
	if (cleaner && !shutdown(cleaner, SHUT_WR) && read(cleaner, &byte, 1))
		warn("cleaning up");
	return nr_cases[FAIL] ? EXIT_FAILURE : nr_cases[OK] ? EXIT_SUCCESS : EXIT_SKIPPED;
}

/* Tasks. */

/* Use only the first CPUs of those that we may use. */
static inline bool use_cpus(int nr)
{
	cpu_set_t cpus;
	int i;

	if (sched_getaffinity(0, sizeof(cpus), &cpus))
		return false;
	for (i = 0; i < CPU_SETSIZE; i++) {
		if (!nr)
			CPU_CLR(i, &cpus);
		else if (CPU_ISSET(i, &cpus))
			nr--;
	}
	return !nr && !sched_setaffinity(0, sizeof(cpus), &cpus);
}

/* Whatever ends the parent ends the child. Its credentials must not change. */
static inline pid_t fork_bound(void)
{
	pid_t parent = getpid(), pid = fork();

	if (!pid) {
		prctl(PR_SET_PDEATHSIG, SIGKILL);
		/* If it ended before, nothing will arrive. */
		if (getppid() != parent)
			_exit(1);
	}
	return pid;
}

/* A task of the case that runs. */
static inline pid_t fork_task(void)
{
	pid_t pid = fork_bound();

	/* What does not fit into the machine is skipped. */
	if (pid < 0)
		report(errno == EAGAIN || errno == ENOMEM ? SKIP : FAIL, "fork: %s",
		       strerror(errno));
	return pid;
}

/* Wait for a child that ends by itself, or is made to; none if fork() failed. */
static inline int end_task(pid_t pid, bool force)
{
	int status = 0;

	if (pid <= 0)
		return 0;
	if (force)
		kill(pid, SIGKILL);
	while (waitpid(pid, &status, 0) < 0 && errno == EINTR)
		;
	return status;
}

static inline void check_status(const char *who, int status)
{
	if (status)
		report(FAIL, "%s ended with status 0x%x", who, status);
}

static inline long long cpu_time(pid_t pid)
{
	clockid_t id;

	return clock_getcpuclockid(pid, &id) ? 0 : clock_ns(id);
}

/* With a limit, so that a task which is lost does not take the CPU for more than 11 s. */
static inline bool become_fifo(int priority, int flags)
{
	const struct sched_param param = { .sched_priority = priority };
	const struct rlimit limit = { 10000000, 11000000 };

	setrlimit(RLIMIT_RTTIME, &limit);
	/* The function of musl always fails. */
	return !syscall(SYS_sched_setscheduler, 0, SCHED_FIFO | flags, &param);
}

/* SCHED_OTHER; @slice in ns, 0 for the default. */
static inline bool become_fair(int nice, long long slice)
{
	/* As struct sched_attr, which not all C libraries have. */
	const struct {
		uint32_t size, policy;
		uint64_t flags;
		int32_t nice;
		uint32_t priority;
		uint64_t slice, deadline, period;
	} attr = { .size = sizeof(attr), .nice = nice, .slice = slice };

	return !syscall(SYS_sched_setattr, 0, &attr, 0);
}

/* A case in a process of its own, which all its tasks end with. */
static inline void run_apart(void (*measure)(const void *arg), const void *arg)
{
	pid_t pid = fork_task();

	if (!pid) {
		measure(arg);
		_exit(0);
	}
	check_status("the case", end_task(pid, false));
	end_case();
}

/*
 * Clean up when this process and all those that it makes have ended, however they do: a process of
 * its own, which is nobody's child, waits for the other end of a socket to be closed.
 */
static inline void clean_up_at_end(void (*clean_up)(void))
{
	int end[2];
	char byte;
	pid_t pid;

	pid = socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0, end) ? -1 : fork();
	if (pid < 0)
		err(EXIT_FAILURE, "to clean up");
	cleaner = end[0];
	if (pid) {
		close(end[1]);
		end_task(pid, false);
		return;
	}
	close(cleaner);
	/* A signal of the terminal is not for it. */
	if (!setsid() || fork())
		_exit(0);
	if (!read(end[1], &byte, 1))
		clean_up();
	_exit(0);
}

/*
 * Who is grouped with whom: all are threads of one process; the task and the load are processes
 * and, as autogroups are per session, two sessions; and these are in two cgroups of equal weight.
 */

enum layout { THREADS, PROCESSES, CGROUPS, NR_LAYOUTS };

static const char * const layout_names[] = { "threads", "processes", "cgroups" };

#define CGROUP_ROOT	"/sys/fs/cgroup"

/* A new one, and two in it, of the task and of the load. */
static char cgroups[3][64];
static bool cpu_added;

static inline void remove_cgroups(void)
{
	int i, tries;

	for (i = 2; i >= 0; i--) {
		/* A task that was killed leaves its cgroup a little later. */
		for (tries = 0; tries < 1000 && rmdir(cgroups[i]) && errno == EBUSY; tries++)
			sleep_ns(5 * NSEC_PER_MSEC);
	}
	if (cpu_added)
		write_text("-cpu", CGROUP_ROOT "/cgroup.subtree_control");
}

/* Once, for the time of the program; a case that has none is skipped. */
static inline void make_cgroups(void)
{
	static const char * const names[] = { "", "/task", "/load" };
	static bool good;
	int i;

	if (!**cgroups && !geteuid() && !access(CGROUP_ROOT "/cgroup.controllers", F_OK)) {
		good = true;
		for (i = 0; i < 3; i++) {
			snprintf(cgroups[i], sizeof(cgroups[i]), CGROUP_ROOT "/bench.%d%s",
				 getpid(), names[i]);
			good &= !mkdir(cgroups[i], 0755);
			if (i || write_text("+cpu", "%s/cgroup.subtree_control", cgroups[0]))
				continue;
			cpu_added = write_text("+cpu", CGROUP_ROOT "/cgroup.subtree_control");
			good &= write_text("+cpu", "%s/cgroup.subtree_control", cgroups[0]);
		}
		clean_up_at_end(remove_cgroups);
	}
	if (!good)
		report(SKIP, "not root, or no cgroup v2 with a cpu controller in " CGROUP_ROOT);
}

/* A process as the layout wants it, on the first CPU. */
static inline pid_t fork_side(enum layout layout, bool is_task)
{
	pid_t pid = fork_task();

	if (pid)
		return pid;
	if (!use_cpus(1) || (layout != THREADS && setsid() < 0) ||
	    (layout == CGROUPS && !write_text("0", "%s/cgroup.procs", cgroups[is_task ? 1 : 2]))) {
		report(FAIL, "layout %s: %s", layout_names[layout], strerror(errno));
		_exit(1);
	}
	return 0;
}

#endif /* BENCH_HELPERS_H */
