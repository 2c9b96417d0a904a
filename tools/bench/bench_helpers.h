/* SPDX-License-Identifier: GPL-2.0 */
/*
 * What the programs share: how a case ended and its figures, for people and
 * as JSON; files; tasks; who is grouped with whom; options.
 */
#ifndef BENCH_HELPERS_H
#define BENCH_HELPERS_H

#ifndef _GNU_SOURCE
#define _GNU_SOURCE
#endif
#include <errno.h>
#include <getopt.h>
#include <limits.h>
#include <math.h>
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
#include <sys/param.h>
#include <sys/prctl.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <sys/utsname.h>
#include <sys/wait.h>

#define ARRAY_SIZE(array)	(sizeof(array) / sizeof((array)[0]))
#define __noreturn		__attribute__((noreturn))
#define __printf(a, b)		__attribute__((format(printf, a, b)))

#define USEC_PER_SEC	1000000UL
#define NSEC_PER_USEC	1000LL
#define NSEC_PER_MSEC	1000000LL
#define NSEC_PER_SEC	1000000000LL

/* Of the CPU: more than a task of a real-time policy ever needs in a row. */
#define FIFO_SECONDS	10

/* Beside EXIT_SUCCESS and EXIT_FAILURE: no case could be measured. */
#define EXIT_SKIPPED	4

#define MAX_CPUS	8192
#define MAX_FIGURES	16

/*
 * Results.
 */

enum verdict {
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

/**
 * struct result - how a case ended
 * @name:	how it is reported; tools rely on it
 * @verdict:	whether there are figures to report
 * @reason:	why not
 * @more:	what JSON says besides: "\"load\": 4, "
 * @figure:	what was measured; JSON has null for NAN
 * @figures:	how many they are
 */
struct result {
	char name[64];
	enum verdict verdict;
	char reason[200];
	char more[300];
	struct {
		const char *name;
		double value;
	} figure[MAX_FIGURES];
	int figures;
};

/* Why the case that runs has no figures; all tasks of it share this. */
static struct {
	enum verdict verdict;
	char reason[200];
} *problem;

static int nr_cases[NR_VERDICTS];
static const char *json_path;
static FILE *json;

/* The first problem is kept: what follows is mostly a consequence of it. */
static inline __printf(2, 3) void report(enum verdict verdict,
					 const char *fmt, ...)
{
	enum verdict ok = OK;
	va_list args;

	if (!__atomic_compare_exchange_n(&problem->verdict, &ok, verdict, false,
					 __ATOMIC_SEQ_CST, __ATOMIC_SEQ_CST))
		return;
	va_start(args, fmt);
	vsnprintf(problem->reason, sizeof(problem->reason), fmt, args);
	va_end(args);
}

/* Why ioperm() or iopl() failed: kernels and machines may refuse them. */
static inline void report_refused(const char *call, int error)
{
	report(error == EPERM || error == ENOSYS ? SKIP : FAIL, "%s: %s%s", call,
	       strerror(error),
	       error == EPERM ? " (not root, or kernel lockdown)" : "");
}

static inline bool all_well(void)
{
	return __atomic_load_n(&problem->verdict, __ATOMIC_RELAXED) == OK;
}

static inline void add_figure(struct result *res, const char *name,
			      double value)
{
	if (res->figures == MAX_FIGURES)
		abort();
	res->figure[res->figures].name = name;
	res->figure[res->figures++].value = value;
}

static inline int compare_ns(const void *a, const void *b)
{
	long long x = *(const long long *)a, y = *(const long long *)b;

	return x < y ? -1 : x > y;
}

/* Number ceil(p * n / 100) of the sorted values, for p = 50, 99 and 100. */
static inline void add_percentiles(struct result *res, long long *value,
				   long long n, const char * const *name)
{
	static const int percent[] = { 50, 99, 100 };
	unsigned int i;

	qsort(value, n, sizeof(*value), compare_ns);
	for (i = 0; n > 0 && i < ARRAY_SIZE(percent); i++)
		add_figure(res, name[i], value[(percent[i] * n + 99) / 100 - 1]);
}

/*
 * Files, memory and time.
 */

static inline bool read_text(const char *path, char *text, size_t size)
{
	FILE *file = fopen(path, "re");

	text[file ? fread(text, 1, size - 1, file) : 0] = '\0';

	return file && !fclose(file);
}

static inline bool write_text(const char *path, const char *text)
{
	FILE *file = fopen(path, "we");
	bool good;

	if (!file)
		return false;
	good = fputs(text, file) >= 0;

	return !fclose(file) && good;
}

/* What /proc/meminfo says, in kB, or -1. @name: "MemAvailable" */
static inline long long meminfo_kb(const char *name)
{
	char text[8192] = "\n", wanted[32];
	const char *line;

	read_text("/proc/meminfo", text + 1, sizeof(text) - 1);
	snprintf(wanted, sizeof(wanted), "\n%s:", name);
	line = strstr(text, wanted);

	return line ? atoll(line + strlen(wanted)) : -1;
}

static inline void *map_shared(size_t size)
{
	void *mem;

	mem = mmap(NULL, size, PROT_READ | PROT_WRITE,
		   MAP_SHARED | MAP_ANONYMOUS | MAP_POPULATE, -1, 0);
	if (mem == MAP_FAILED) {
		perror("mmap");
		exit(EXIT_FAILURE);
	}

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

/*
 * A case ends. With --json it goes to a file, too; whether that can be written
 * is known before the measurement.
 */

static inline void json_string(const char *s)
{
	putc('"', json);
	for (; *s; s++) {
		unsigned char ch = *s;

		if (ch == '"' || ch == '\\')
			fprintf(json, "\\%c", ch);
		else if (ch < 0x20 || ch >= 0x7f)
			fprintf(json, "\\u%04x", ch);
		else
			putc(ch, json);
	}
	putc('"', json);
}

/* @cpu: negative for any. @fmt: what else the program says: "\"seed\": 4,\n  " */
static inline __printf(4, 5) void json_begin(const char *benchmark,
					     const char *unit, int cpu,
					     const char *fmt, ...)
{
	const char *autogroup = "null";
	struct utsname uts = {};
	char text[16];
	va_list args;

	if (!json_path)
		return;
	json = fopen(json_path, "we");
	if (!json) {
		perror(json_path);
		exit(EXIT_FAILURE);
	}
	uname(&uts);
	fprintf(json, "{\n  \"benchmark\": \"%s\",\n  \"version\": 1,\n",
		benchmark);
	fprintf(json, "  \"unit\": \"%s\",\n  \"bits\": %zu,\n", unit,
		sizeof(long) * 8);
	fprintf(json, "  \"kernel\": ");
	json_string(uts.release);
	if (read_text("/proc/sys/kernel/sched_autogroup_enabled", text,
		      sizeof(text)))
		autogroup = *text == '0' ? "false" : "true";
	if (cpu < 0)
		fprintf(json, ",\n  \"cpu\": null");
	else
		fprintf(json, ",\n  \"cpu\": %d", cpu);
	fprintf(json, ",\n  \"tick_ns\": %lld,\n  \"autogroup\": %s,\n  ",
		tick_ns(), autogroup);
	va_start(args, fmt);
	vfprintf(json, fmt, args);
	va_end(args);
	fprintf(json, "\"cases\": [");
	/* Or a child would write it as well. */
	fflush(json);
}

/* Print it, and make room for the problem of the next one. */
static inline void end_case(struct result *res)
{
	static const char *separator = "\n";
	int i;

	res->verdict = problem->verdict;
	strcpy(res->reason, problem->reason);
	memset(problem, 0, sizeof(*problem));
	nr_cases[res->verdict]++;

	printf("%s:", res->name);
	if (res->verdict != OK) {
		printf(" %s: %s", res->verdict == SKIP ? "skipped" : "FAILED",
		       res->reason);
		res->figures = 0;
	}
	for (i = 0; i < res->figures; i++)
		printf(" %s %.10g", res->figure[i].name, res->figure[i].value);
	printf("\n");
	fflush(stdout);
	if (!json)
		return;

	fprintf(json, "%s    {\"name\": ", separator);
	separator = ",\n";
	json_string(res->name);
	fprintf(json, ", %s\"status\": \"%s\", \"reason\": ", res->more,
		verdict_names[res->verdict]);
	if (res->verdict == OK)
		fprintf(json, "null");
	else
		json_string(res->reason);
	for (i = 0; i < res->figures; i++) {
		if (isnan(res->figure[i].value))
			fprintf(json, ", \"%s\": null", res->figure[i].name);
		else
			fprintf(json, ", \"%s\": %.10g", res->figure[i].name,
				res->figure[i].value);
	}
	fprintf(json, "}");
}

/* Returns the exit status of the program, which ends here. */
static inline int end_cases(void)
{
	bool good;

	if (json) {
		fprintf(json, "\n  ]\n}\n");
		good = !ferror(json);
		if (fclose(json) || !good) {
			perror(json_path);
			return EXIT_FAILURE;
		}
	}
	if (nr_cases[FAIL])
		return EXIT_FAILURE;

	return nr_cases[OK] ? EXIT_SUCCESS : EXIT_SKIPPED;
}

static inline void sleep_ns(long long ns)
{
	sleep_until(now_ns() + ns);
}

/*
 * This makes no system call, at which the task could be preempted. To an
 * emulator that counts instructions a nop is one, and costs it no time.
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

/*
 * Tasks.
 */

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

	memset(mask, 0, sizeof(mask));
	CPU_SET_S(cpu, sizeof(mask), mask);

	return !sched_setaffinity(0, sizeof(mask), mask);
}

/* Whatever ends the parent ends the child. Its credentials must not change. */
static inline pid_t fork_bound(void)
{
	pid_t parent = getpid();
	pid_t pid;

	pid = fork();
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

	if (pid < 0)
		report(FAIL, "fork: %s", strerror(errno));

	return pid;
}

/* Wait for a child that was told to end, or is made to; none if fork() failed. */
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

/* With a limit, so that a task which is lost does not take the CPU for long. */
static inline bool become_fifo(int priority, int flags)
{
	const struct sched_param param = { .sched_priority = priority };
	struct rlimit limit;

	if (!getrlimit(RLIMIT_RTTIME, &limit)) {
		limit.rlim_cur = MIN(limit.rlim_cur, FIFO_SECONDS * USEC_PER_SEC);
		limit.rlim_max = MIN(limit.rlim_max,
				     (FIFO_SECONDS + 1) * USEC_PER_SEC);
		setrlimit(RLIMIT_RTTIME, &limit);
	}

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

static volatile pid_t measuring;
static volatile sig_atomic_t signalled;

static inline void end_measuring(int signal_nr)
{
	signalled = signal_nr;
	if (measuring > 0)
		kill(measuring, SIGKILL);
}

/*
 * Measure in a child, so that somebody can clean up however that ends. Only
 * who kills the parent with SIGKILL has to clean up himself.
 *
 * Return: the exit status of the program, which is what @measure returned
 */
static inline int measure_and_clean_up(int (*measure)(void),
				       void (*clean_up)(void))
{
	static const int signals[] = { SIGHUP, SIGINT, SIGTERM };
	struct sigaction action = { .sa_handler = end_measuring }, old;
	int status = 0;
	unsigned int i;
	pid_t pid;

	signal(SIGCHLD, SIG_DFL);
	/* What the caller ignored stays ignored. */
	for (i = 0; i < ARRAY_SIZE(signals); i++) {
		if (!sigaction(signals[i], NULL, &old) &&
		    old.sa_handler != SIG_IGN)
			sigaction(signals[i], &action, NULL);
	}
	fflush(stdout);
	pid = fork_bound();
	if (!pid)
		exit(measure());
	measuring = pid;
	if (pid > 0 && signalled)
		kill(pid, SIGKILL);
	if (pid < 0)
		perror("fork");
	while (pid > 0 && waitpid(pid, &status, 0) < 0 && errno == EINTR)
		;
	clean_up();

	if (signalled) {
		signal(signalled, SIG_DFL);
		raise(signalled);
	}
	if (pid > 0 && WIFSIGNALED(status))
		fprintf(stderr, "killed by signal %d (%s)\n", WTERMSIG(status),
			strsignal(WTERMSIG(status)));

	return pid > 0 && WIFEXITED(status) ? WEXITSTATUS(status) : EXIT_FAILURE;
}

/*
 * Two cgroups of equal weight, "task" and "load", in a new one.
 */

static char cgroup_root[256], cgroup_top[320];
static bool cgroup_enabled;

static inline void cgroup_path(char *path, const char *dir, const char *name)
{
	snprintf(path, PATH_MAX, "%s/%s", dir, name);
}

/* Finds cgroup v2; without a mount of it makes one that nobody else sees. */
static inline bool find_cgroup2(void)
{
	FILE *mounts = setmntent("/proc/self/mounts", "r");
	const char *usual = "/sys/fs/cgroup";
	struct mntent *entry;

	while (mounts && !*cgroup_root && (entry = getmntent(mounts))) {
		if (!strcmp(entry->mnt_type, "cgroup2"))
			snprintf(cgroup_root, sizeof(cgroup_root), "%s",
				 entry->mnt_dir);
	}
	if (mounts)
		endmntent(mounts);
	if (*cgroup_root)
		return true;
	strcpy(cgroup_root, usual);

	return !unshare(CLONE_NEWNS) &&
	       !mount(NULL, "/", NULL, MS_REC | MS_PRIVATE, NULL) &&
	       !mount("cgroup2", usual, "cgroup2", 0, NULL);
}

/* Whether the cgroups in @dir have the cpu controller. */
static inline bool cpu_controller_enabled(const char *dir)
{
	char path[PATH_MAX], text[4096] = " ";

	cgroup_path(path, dir, "cgroup.subtree_control");
	read_text(path, text + 1, sizeof(text) - 2);
	text[strcspn(text, "\n")] = ' ';

	return strstr(text, " cpu ");
}

static inline bool enable_cpu_controller(const char *dir)
{
	char path[PATH_MAX];

	cgroup_path(path, dir, "cgroup.subtree_control");

	return write_text(path, "+cpu");
}

/* Returns why there are no two cgroups, or NULL. */
static inline const char *make_cgroups(const char *program)
{
	static const char * const names[] = { "task", "load" };
	char path[PATH_MAX];
	unsigned int i;

	if (geteuid())
		return "cgroups: not root";
	if (!find_cgroup2())
		return "cgroup v2 cannot be mounted";
	if (!cpu_controller_enabled(cgroup_root)) {
		if (!enable_cpu_controller(cgroup_root))
			return "cgroup v2: the cpu controller cannot be enabled";
		cgroup_enabled = true;
	}
	snprintf(cgroup_top, sizeof(cgroup_top), "%s/%s.%d", cgroup_root,
		 program, getpid());
	if (mkdir(cgroup_top, 0755))
		return "no cgroup can be made";
	if (!enable_cpu_controller(cgroup_top))
		return "the cpu controller cannot be enabled in a cgroup";
	for (i = 0; i < ARRAY_SIZE(names); i++) {
		cgroup_path(path, cgroup_top, names[i]);
		if (mkdir(path, 0755))
			return "no cgroup can be made";
	}
	cgroup_path(path, cgroup_top, "load/cpu.weight");

	return access(path, F_OK) ? "cgroups have no cpu.weight" : NULL;
}

static inline bool join_cgroup(const char *name)
{
	char path[PATH_MAX], file[32];

	snprintf(file, sizeof(file), "%s/cgroup.procs", name);
	cgroup_path(path, cgroup_top, file);
	if (write_text(path, "0"))
		return true;
	report(FAIL, "cgroup %s cannot be joined: %s", name, strerror(errno));

	return false;
}

static inline void remove_cgroups(void)
{
	static const char * const names[] = { "load", "task", "" };
	const struct timespec pause = { .tv_nsec = 5 * NSEC_PER_MSEC };
	char path[PATH_MAX];
	unsigned int i;
	int tries;

	for (i = 0; *cgroup_top && i < ARRAY_SIZE(names); i++) {
		cgroup_path(path, cgroup_top, names[i]);
		/* A task that was killed leaves its cgroup a little later. */
		for (tries = 0; tries < 1000 && rmdir(path) && errno == EBUSY;
		     tries++)
			nanosleep(&pause, NULL);
	}
	if (cgroup_enabled) {
		cgroup_path(path, cgroup_root, "cgroup.subtree_control");
		write_text(path, "-cpu");
	}
}

/*
 * Who is grouped with whom. Autogroups are per session.
 */

enum layout {
	THREADS,
	PROCESSES,
	CGROUP,
	CGROUPS,
	NR_LAYOUTS,
};

static const char * const layout_names[] __attribute__((unused)) = {
	[THREADS]	= "threads",
	[PROCESSES]	= "processes",
	[CGROUP]	= "cgroup",
	[CGROUPS]	= "cgroups",
	[NR_LAYOUTS]	= NULL,
};

/* Makes a process what the layout wants, on CPU @cpu, if that is not negative. */
static inline bool enter_layout(enum layout layout, bool is_task, int cpu)
{
	if (cpu >= 0 && !pin_to(cpu)) {
		report(FAIL, "sched_setaffinity to CPU %d: %s", cpu,
		       strerror(errno));
		return false;
	}
	if (layout != THREADS && setsid() < 0) {
		report(FAIL, "setsid: %s", strerror(errno));
		return false;
	}

	return layout < CGROUP ||
	       join_cgroup(layout == CGROUPS && !is_task ? "load" : "task");
}

static inline void check_cpu(const char *who, int cpu)
{
	int now = sched_getcpu();

	if (cpu >= 0 && now != cpu)
		report(FAIL, "%s: ran on CPU %d instead of %d", who, now, cpu);
}

/* How a child ended, if not well: @who is "load" or "task". */
static inline void check_child(const char *who, int status)
{
	if (WIFSIGNALED(status))
		report(FAIL, "the %s was killed by signal %d (%s)", who,
		       WTERMSIG(status), strsignal(WTERMSIG(status)));
	else if (status)
		report(FAIL, "the %s gave up", who);
}

/* A case in a process of its own, which all its tasks end with. @res: shared */
static inline void run_apart(void (*measure)(struct result *res, void *arg),
			     struct result *res, void *arg)
{
	pid_t pid = fork_task();

	if (!pid) {
		measure(res, arg);
		_exit(0);
	}
	check_child("case", end_task(pid, false));
	end_case(res);
}

/*
 * Options.
 */

static inline __noreturn __printf(1, 2) void usage_error(const char *fmt, ...)
{
	va_list args;

	va_start(args, fmt);
	vfprintf(stderr, fmt, args);
	va_end(args);
	fputc('\n', stderr);
	exit(EXIT_FAILURE);
}

static inline double parse_number(const char *option, const char *text,
				  double min, double max)
{
	double value;
	char *end;

	errno = 0;
	value = strtod(text, &end);
	if (*text < '0' || *text > '9' || *end || errno || value < min ||
	    value > max)
		usage_error("--%s %s: not a number from %.10g to %.10g", option,
			    text, min, max);

	return value;
}

static inline unsigned long parse_whole(const char *option, const char *text,
					double min, double max)
{
	double value = parse_number(option, text, min, max);

	if (value != (unsigned long)value)
		usage_error("--%s %s: not a whole number", option, text);

	return value;
}

/* Returns -1 for @any, which stands for all CPUs. */
static inline int parse_cpu(const char *text, const char *any)
{
	static cpu_set_t mask[MAX_CPUS / CPU_SETSIZE];
	int cpu;

	if (!strcmp(text, any))
		return -1;
	cpu = parse_whole("cpu", text, 0, MAX_CPUS - 1);
	if (sched_getaffinity(0, sizeof(mask), mask) ||
	    !CPU_ISSET_S(cpu, sizeof(mask), mask))
		usage_error("--cpu %s: not a CPU that may be used", text);

	return cpu;
}

/**
 * struct option_of - an option of a program
 * @name:	without its dashes
 * @kind:	what it takes: nothing, a number (double), a whole number (unsigned
 *		long), a text, a CPU (int, -1 for any), a name out of some (int),
 *		a list of these (an array of bool); or one more text each time (an
 *		array of @max texts, and NULL after the last)
 * @value:	where that goes
 * @min:	of a number; @max as well
 * @names:	those that are known; the last is NULL
 * @help:	one line
 */
struct option_of {
	const char *name;
	enum { FLAG, NUMBER, WHOLE, TEXT, CPU, NAME, LIST, TEXTS } kind;
	void *value;
	double min, max;
	const char * const *names;
	const char *help;
};

static inline int find_name(const struct option_of *o, const char *text)
{
	int i;

	for (i = 0; o->names[i]; i++) {
		if (!strcmp(text, o->names[i]))
			return i;
	}
	usage_error("--%s %s: no such name, see --help", o->name, text);
}

static inline void set_option(const struct option_of *o, char *text)
{
	char *word;
	int i;

	switch (o->kind) {
	case FLAG:
		*(bool *)o->value = true;
		break;
	case NUMBER:
		*(double *)o->value = parse_number(o->name, text, o->min, o->max);
		break;
	case WHOLE:
		*(unsigned long *)o->value = parse_whole(o->name, text, o->min,
							 o->max);
		break;
	case TEXT:
		*(char **)o->value = text;
		break;
	case CPU:
		*(int *)o->value = parse_cpu(text, "any");
		break;
	case NAME:
		*(int *)o->value = find_name(o, text);
		break;
	case LIST:
		/* It takes the place of the default. */
		for (i = 0; o->names[i]; i++)
			((bool *)o->value)[i] = false;
		while ((word = strsep(&text, ",")))
			((bool *)o->value)[find_name(o, word)] = true;
		break;
	case TEXTS:
		for (i = 0; ((char **)o->value)[i]; i++)
			;
		if (i >= o->max - 1)
			usage_error("--%s: more than %d", o->name, i);
		((char **)o->value)[i] = text;
		break;
	}
}

#define JSON_OPTION	{ .name = "json", .kind = TEXT, .value = &json_path,	\
			  .help = "a file for the results" }

static inline __noreturn void show_help(const struct option_of *options,
					const char *about)
{
	const struct option_of *o;
	int i;

	printf("%s\n\n", about);
	for (o = options; o->name; o++) {
		printf("  --%-10s %s", o->name, o->help);
		if (o->kind == NUMBER || o->kind == WHOLE)
			printf(", %g to %.10g", o->min, o->max);
		for (i = 0; o->names && o->names[i]; i++)
			printf("%s %s", i ? "," : ":", o->names[i]);
		printf("\n");
	}
	printf("\nFigures are in ns, percent or bytes. Exit status: %d done, perhaps with some\n"
	       "cases skipped; %d a case failed or a wrong option; %d all were skipped.\n",
	       EXIT_SUCCESS, EXIT_FAILURE, EXIT_SKIPPED);
	exit(EXIT_SUCCESS);
}

/* Reads options up to the other arguments, if @more; else there are none. */
static inline void read_options(int argc, char **argv, bool more,
				 const struct option_of *options,
				 const char *about)
{
	struct option known[24] = {};
	int i, nr, error;

	for (nr = 0; options[nr].name; nr++) {
		known[nr].name = options[nr].name;
		known[nr].has_arg = options[nr].kind != FLAG;
	}
	known[nr].name = "help";
	while ((error = getopt_long(argc, argv, "", known, &i)) != -1) {
		if (error)
			exit(EXIT_FAILURE);
		if (i == nr)
			show_help(options, about);
		set_option(&options[i], optarg);
	}
	if (!more && optind < argc)
		usage_error("%s: unexpected argument, see --help", argv[optind]);
}

#endif /* BENCH_HELPERS_H */
