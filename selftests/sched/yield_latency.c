// SPDX-License-Identifier: GPL-2.0
/*
 * What sched_yield() is worth to those who use it, and what it costs others.
 *
 * switch-*	processes or threads do nothing but yield: the time of a switch
 * polite-*	a worker computes, yields, and so on, beside hogs: its share of
 *		the CPU, how long a call takes, how many let nobody else run
 * weight-*	the same beside a hog, with different nice values
 * poll-*	tasks poll something and yield in between: the share of a hog
 * ping-*	two tasks pass a ball and yield until they have it: passes
 * lock-*	more threads than CPUs, or tasks of one CPU, contend for a lock
 *		and yield until they get it: acquisitions, waits, yields
 * wake-*	yield, then sleep for 1 ms: how late the wake-up is
 * sleeper-*	sleep for 3 to 7 ms, compute for 200 us, beside hogs and a task
 *		that yields: how late the wake-up is
 * storm-*	yield for 5 s, then spin for 1 s: the longest waits
 *
 * No figure makes a case fail: a case fails when a task died, hung, or ran on
 * another CPU than it should. When all cases are skipped, so is the program.
 *
 * With --features the scheduler's feature bits for yields are off (old), on
 * (new), or each case runs with either (both). They are restored at the end,
 * but not after a SIGKILL.
 */
#include "yield_helpers.h"

#include <fnmatch.h>
#include <getopt.h>
#include <pthread.h>
#include <stdarg.h>

#include "kselftest.h"

#define MAX_TASKS	64
#define MAX_HOGS	3
#define MAX_SAMPLES	200000
/* Attempts to get the lock before a yield. */
#define SPINS		100

enum kind {
	SWITCH_PROC, SWITCH_THREAD, POLITE, POLL, PING, LOCK, SECTION, WAKE,
	SLEEPER, STORM,
};

/* Times are in microseconds. */
struct yield_case {
	/* Scripts rely on the names; the first word is the kind they see. */
	const char *name;
	enum kind kind;
	/* How many besides the hogs, 0 for one; lock-*x: threads per CPU. */
	int tasks;
	/* Between two yields; with the lock, or between two sleeps. */
	int work, section;
	/* 0 for the default. */
	int slice;
	/* Those who use the CPU all the time. */
	int hogs, nice, hog_nice;
	/* How many times --seconds it takes. */
	int times;
};

#define POLITE(_work, _label, _slice, _hogs, _times) \
	{ .name = "polite-" #_work "us-slice-" _label "-hogs-" #_hogs, \
	  .kind = POLITE, .work = _work, .slice = _slice, .hogs = _hogs, \
	  .times = _times }
#define WEIGHT(_name, _nice, _hog_nice) \
	{ .name = "weight-" _name, .kind = POLITE, .work = 100, \
	  .slice = 2800, .hogs = 1, .nice = _nice, .hog_nice = _hog_nice, \
	  .times = 2 }
#define POLL(_tasks) \
	{ .name = "poll-" #_tasks "-hogs-1", .kind = POLL, .tasks = _tasks, \
	  .work = 5, .slice = 2800, .hogs = 1, .times = 2 }
#define PING(_hogs) \
	{ .name = "ping-hogs-" #_hogs, .kind = PING, .tasks = 2, .work = 1, \
	  .slice = 2800, .hogs = _hogs, .times = 2 }
#define SECTION(_tasks, _section, _hogs) \
	{ .name = "lock-" #_tasks "-section-" #_section "us-hogs-" #_hogs, \
	  .kind = SECTION, .tasks = _tasks, .section = _section, \
	  .slice = 2800, .hogs = _hogs, .times = 3 }
#define SLEEPER(_label, _slice) \
	{ .name = "sleeper-slice-" _label, .kind = SLEEPER, .tasks = 2, \
	  .work = 100, .section = 200, .slice = _slice, .hogs = 2, .times = 6 }

static const struct yield_case cases[] = {
	{ .name = "switch-proc-2", .kind = SWITCH_PROC, .tasks = 2 },
	{ .name = "switch-proc-4", .kind = SWITCH_PROC, .tasks = 4 },
	{ .name = "switch-proc-10", .kind = SWITCH_PROC, .tasks = 10 },
	{ .name = "switch-proc-40", .kind = SWITCH_PROC, .tasks = 40 },
	{ .name = "switch-thread-2", .kind = SWITCH_THREAD, .tasks = 2 },
	{ .name = "switch-thread-10", .kind = SWITCH_THREAD, .tasks = 10 },
	{ .name = "switch-proc-2-slice-2.8ms", .kind = SWITCH_PROC,
	  .tasks = 2, .slice = 2800 },
	{ .name = "switch-proc-10-slice-2.8ms", .kind = SWITCH_PROC,
	  .tasks = 10, .slice = 2800 },
	{ .name = "switch-proc-40-slice-2.8ms", .kind = SWITCH_PROC,
	  .tasks = 40, .slice = 2800 },
	POLITE(20, "default", 0, 1, 1),
	POLITE(20, "default", 0, 3, 1),
	POLITE(20, "1.4ms", 1400, 1, 1),
	POLITE(20, "2.1ms", 2100, 1, 1),
	POLITE(20, "2.8ms", 2800, 1, 1),
	POLITE(20, "2.8ms", 2800, 3, 1),
	POLITE(20, "20ms", 20000, 1, 1),
	POLITE(20, "20ms", 20000, 3, 1),
	POLITE(20, "100ms", 100000, 1, 1),
	POLITE(20, "100ms", 100000, 3, 1),
	POLITE(100, "default", 0, 1, 1),
	POLITE(100, "default", 0, 3, 1),
	POLITE(100, "2.8ms", 2800, 1, 3),
	POLITE(100, "2.8ms", 2800, 3, 3),
	POLITE(100, "20ms", 20000, 1, 1),
	POLITE(100, "20ms", 20000, 3, 1),
	POLITE(100, "100ms", 100000, 1, 3),
	POLITE(100, "100ms", 100000, 3, 3),
	POLITE(500, "default", 0, 1, 1),
	POLITE(500, "default", 0, 3, 1),
	WEIGHT("0-beside-m10", 0, -10),
	WEIGHT("0-beside-10", 0, 10),
	WEIGHT("0-beside-19", 0, 19),
	WEIGHT("10-beside-0", 10, 0),
	WEIGHT("m10-beside-0", -10, 0),
	POLL(1),
	POLL(3),
	POLL(15),
	PING(0),
	PING(1),
	PING(3),
	{ .name = "lock-2x", .kind = LOCK, .tasks = 2, .section = 1, .times = 1 },
	{ .name = "lock-4x", .kind = LOCK, .tasks = 4, .section = 1, .times = 1 },
	SECTION(4, 20, 0),
	SECTION(4, 20, 1),
	SECTION(4, 2000, 0),
	SECTION(4, 2000, 1),
	SECTION(8, 2000, 1),
	{ .name = "wake-hogs-1", .kind = WAKE, .hogs = 1, .times = 2 },
	{ .name = "wake-hogs-3", .kind = WAKE, .hogs = 3, .times = 2 },
	SLEEPER("2.8ms", 2800),
	SLEEPER("100ms", 100000),
	{ .name = "storm-slice-default", .kind = STORM, .hogs = 1 },
	{ .name = "storm-slice-100ms", .kind = STORM, .slice = 100000, .hogs = 1 },
};

enum features { AS_IS, OLD, NEW, BOTH };

static const char * const feature_names[] = { "as-is", "old", "new", "both" };
static const char * const bits[] = { "YIELD_TICK", "YIELD_SKIP" };

/* What the tasks of a case and the main program share; times are in ns. */
struct shared {
	/* All tasks of a case start at once; @ready of them wait, or will soon. */
	pthread_barrier_t barrier;
	int ready;
	/* KSFT_PASS when there are figures, or else why there are none. */
	int verdict;
	char reason[200];
	/* From the first call to the end of the last, if tasks only yield. */
	long long start, end;
	long calls, switches;
	/* The longest wait of the yielder and of the hog. */
	long long longest[2];
	/* While it was measured: CPU time of the tasks and hogs, and turns. */
	long long elapsed, used, hogs_used, measured;
	/* How often a task got the lock or the ball. */
	long long turns;
	/* Calls that let nobody else run, and how many in a row. */
	long long stuck, longest_stuck;
	/* 1 when a task has the lock; which task has the ball. */
	int lock, ball;
	bool stop;
	long long samples, sample[MAX_SAMPLES];
};

static double rounds = 20000, seconds = 0.3, min_calls = 3, storm_seconds = 5;
static double phase, cpu = -1;

/* Of the first options, in the order that they have below. */
static const struct {
	double *value, min, max;
} numbers[] = {
	{ &rounds, 100, 1e7 },
	{ &seconds, 0.01, 1000 },
	{ &min_calls, 1, 1e4 },
	{ &storm_seconds, 0.01, 1000 },
	{ &phase, 0, 1e4 },
	{ &cpu, 0, CPU_SETSIZE - 1 },
};

static const struct option options[] = {
	{ "rounds", required_argument, NULL, 0 },
	{ "seconds", required_argument, NULL, 1 },
	{ "calls", required_argument, NULL, 2 },
	{ "storm", required_argument, NULL, 3 },
	{ "phase", required_argument, NULL, 4 },
	{ "cpu", required_argument, NULL, 5 },
	{ "case", required_argument, NULL, 'n' },
	{ "features", required_argument, NULL, 'f' },
	{ "json", required_argument, NULL, 'j' },
	{ "list", no_argument, NULL, 'l' },
	{ "help", no_argument, NULL, 'h' },
	{}
};

static bool selected[ARRAY_SIZE(cases)];
static int nr_selected;
static enum features features = AS_IS;
static FILE *json;
static unsigned long loops_per_ms;
/* Why all cases are skipped. */
static const char *skip_reason;

/* What all share, the case that runs, and its processes: the hogs first. */
static struct shared *sh;
static const struct yield_case *c;
static pid_t pid[MAX_HOGS + MAX_TASKS];

/* The first report counts, what follows is often due to it. */
static __printf(2, 3) void report(int verdict, const char *fmt, ...)
{
	va_list args;

	if (sh->verdict)
		return;
	va_start(args, fmt);
	vsnprintf(sh->reason, sizeof(sh->reason), fmt, args);
	va_end(args);
	sh->verdict = verdict;
}

/* The tasks of a case. */

static void add_sample(long long ns)
{
	if (sh->samples < MAX_SAMPLES)
		sh->sample[sh->samples++] = ns;
}

static long long case_ns(void)
{
	if (c->kind == STORM)
		return storm_seconds * SEC(1);
	return seconds * c->times * SEC(1);
}

/* Become such a task as the case wants, on its CPU. */
static void become_fair(int nice)
{
	if (c->kind != LOCK && pin_to(cpu))
		report(KSFT_FAIL, "sched_setaffinity to CPU %g: %s", cpu,
		       strerror(errno));
	else if (set_task(SCHED_OTHER, nice, USEC(c->slice)))
		report(errno == EPERM ? KSFT_SKIP : KSFT_FAIL,
		       "sched_setattr: %s", strerror(errno));
	else
		return;
	_exit(1);
}

/* Processes other than hogs. */
static int nr_tasks(void)
{
	return c->kind == SWITCH_THREAD || c->kind == LOCK ? 1 : c->tasks ?: 1;
}

/* The last task starts the others and measures. */
static bool is_last(int me)
{
	return me == nr_tasks() - 1;
}

/*
 * Let all tasks go right after a tick: how long a call takes depends on where
 * in a tick it falls.
 */
static void start_together(int me)
{
	if (!is_last(me)) {
		__atomic_add_fetch(&sh->ready, 1, __ATOMIC_RELAXED);
	} else {
		while (__atomic_load_n(&sh->ready, __ATOMIC_RELAXED) <
		       c->hogs + me) {
			/* A task gave up. */
			if (sh->verdict)
				_exit(1);
			sched_yield();
		}
		wait_for_tick(USEC(phase));
	}
	pthread_barrier_wait(&sh->barrier);
}

/* The first task samples how long it takes until it is its turn again. */
static void yield_only(bool first)
{
	int i, nr = rounds / c->tasks;
	long long last, now;
	long switches;

	pthread_barrier_wait(&sh->barrier);
	switches = count_switches(NULL);
	last = now_ns();
	if (!sh->start)
		sh->start = last;
	for (i = 0; i < nr; i++) {
		sched_yield();
		if (!first)
			continue;
		now = now_ns();
		add_sample((now - last) / c->tasks);
		last = now;
	}
	sh->end = now_ns();
	switches = count_switches(NULL) - switches;
	__atomic_add_fetch(&sh->switches, switches, __ATOMIC_RELAXED);
	__atomic_add_fetch(&sh->calls, nr, __ATOMIC_RELAXED);
}

/* @sign: -1 where the measurement begins and 1 where it ends */
static void note_shares(int me, int sign)
{
	int i;

	for (i = 0; i < c->hogs; i++)
		sh->hogs_used += sign * cpu_time(pid[i]);
	for (; i < c->hogs + me; i++)
		sh->used += sign * cpu_time(pid[i]);
	sh->used += sign * cpu_time(0);
	sh->measured += sign * sh->turns;
	sh->elapsed += sign * now_ns();
}

static void polite_step(unsigned long loops, bool measuring)
{
	static long long run;
	long long start, end;
	long switches;

	work_loops(loops);
	switches = count_switches(NULL);
	start = now_ns();
	sched_yield();
	end = now_ns();
	switches = count_switches(NULL) - switches;
	if (!measuring)
		return;

	add_sample(end - start);
	sh->calls++;
	run = switches ? 0 : run + 1;
	if (run)
		sh->stuck++;
	if (run > sh->longest_stuck)
		sh->longest_stuck = run;
}

static void poll_step(unsigned long loops)
{
	work_loops(loops);
	sched_yield();
}

static void sleep_step(unsigned long loops)
{
	static unsigned int seed = 1;
	struct timespec ts;
	long long due;

	work_loops(loops);
	if (c->kind == WAKE)
		sched_yield();
	due = now_ns() + MSEC(1);
	if (c->kind == SLEEPER)
		due += MSEC(2) + rand_r(&seed) % MSEC(4);
	ts.tv_sec = due / SEC(1);
	ts.tv_nsec = due % SEC(1);
	clock_nanosleep(CLOCK_MONOTONIC, TIMER_ABSTIME, &ts, NULL);
	add_sample(now_ns() - due);
}

static void run_storm(void)
{
	long long until;

	start_together(0);
	until = now_ns() + case_ns();
	watch_clock(until, true, &sh->longest[0]);
	until += case_ns() / 5;
	watch_clock(until, false, &sh->longest[0]);
}

static __noreturn void run_hog(void)
{
	become_fair(c->hog_nice);
	start_together(-1);

	if (c->kind == STORM)
		watch_clock(LLONG_MAX, false, &sh->longest[1]);
	for (;;)
		asm volatile ("" : : : "memory");
}

/* The task works as long without the lock as with it. */
static void use_lock(void)
{
	unsigned long loops = c->section * loops_per_ms / 1000;
	long long start = now_ns();
	int tries = 0, yields = 0;
	int expected = 0;

	while (!__atomic_compare_exchange_n(&sh->lock, &expected, 1, false,
					    __ATOMIC_ACQUIRE,
					    __ATOMIC_RELAXED)) {
		expected = 0;
		if (c->kind == SECTION && ++tries % SPINS)
			continue;
		sched_yield();
		yields++;
	}
	/* The lock protects the figures as well. */
	add_sample(now_ns() - start);
	sh->calls += yields;
	sh->turns++;
	work_loops(loops);
	__atomic_store_n(&sh->lock, 0, __ATOMIC_RELEASE);
	work_loops(loops);
}

static void ping_step(int me, unsigned long loops)
{
	while (__atomic_load_n(&sh->ball, __ATOMIC_RELAXED) != me)
		sched_yield();
	work_loops(loops);
	sh->turns++;
	__atomic_store_n(&sh->ball, !me, __ATOMIC_RELAXED);
}

/* One or several tasks: the last looks at the clock, others are killed. */
static void run_steps(int me)
{
	bool last = is_last(me);
	bool sleeps = c->kind == WAKE || (c->kind == SLEEPER && last);
	unsigned long loops = (sleeps ? c->section : c->work) * loops_per_ms /
			      1000;
	long long until = LLONG_MAX;
	int warmup = sleeps ? 1 : 3;

	start_together(me);
	do {
		if (last && !--warmup) {
			note_shares(me, -1);
			until = now_ns() + case_ns();
		}
		if (c->kind == SECTION)
			use_lock();
		else if (c->kind == PING)
			ping_step(me, loops);
		else if (c->kind == POLITE)
			polite_step(loops, warmup <= 0);
		else if (sleeps)
			sleep_step(loops);
		else
			poll_step(loops);
	} while (!last || now_ns() < until ||
		 (c->kind == POLITE && sh->calls < min_calls));
	note_shares(me, 1);
}

static void *run_thread(void *first)
{
	if (c->kind == SWITCH_THREAD) {
		yield_only(first);
		return NULL;
	}
	pthread_barrier_wait(&sh->barrier);
	while (!__atomic_load_n(&sh->stop, __ATOMIC_RELAXED))
		use_lock();
	return NULL;
}

static int nr_threads(void)
{
	cpu_set_t mask;
	int nr;

	if (c->kind != LOCK || sched_getaffinity(0, sizeof(mask), &mask))
		return c->tasks;
	nr = c->tasks * CPU_COUNT(&mask);
	return nr < MAX_TASKS ? nr : MAX_TASKS;
}

static void run_threads(void)
{
	int nr = nr_threads(), i;
	pthread_t thread[MAX_TASKS];

	for (i = 0; i < nr; i++) {
		if (pthread_create(&thread[i], NULL, run_thread,
				   i ? NULL : thread)) {
			report(KSFT_FAIL, "pthread_create: %s", strerror(errno));
			return;
		}
	}
	if (c->kind == LOCK) {
		pthread_barrier_wait(&sh->barrier);
		note_shares(0, -1);
		usleep(case_ns() / 1000);
		__atomic_store_n(&sh->stop, true, __ATOMIC_RELAXED);
	}
	for (i = 0; i < nr; i++)
		pthread_join(thread[i], NULL);
	if (c->kind == LOCK)
		note_shares(0, 1);
}

static __noreturn void run_task(int me)
{
	/* Ten times as long as it should take; a call can take 0.3 s. */
	alarm(30 + 10 * case_ns() / SEC(1) + 3 * min_calls);
	become_fair(c->nice);

	if (c->kind == SWITCH_PROC)
		yield_only(!me);
	else if (c->kind == SWITCH_THREAD || c->kind == LOCK)
		run_threads();
	else if (c->kind == STORM)
		run_storm();
	else
		run_steps(me);
	if (c->kind != LOCK && sched_getcpu() != cpu)
		report(KSFT_FAIL, "ran on another CPU than %g", cpu);
	_exit(0);
}

/* The figures of a case. */

static void add_figure(const char *name, double value)
{
	printf(" %s %.10g", name, value);
	if (json)
		fprintf(json, ", \"%s\": %.10g", name, value);
}

static void add_percentile(const char *name, int p)
{
	if (sh->samples)
		add_figure(name, percentile(sh->sample, sh->samples, p));
}

static void add_percentiles(void)
{
	add_percentile("p50", 50);
	add_percentile("p99", 99);
	add_percentile("max", 100);
}

static void add_share(const char *name, long long ns)
{
	add_figure(name, 100.0 * ns / sh->elapsed);
}

static void add_figures(void)
{
	double ns = sh->end - sh->start;

	qsort(sh->sample, sh->samples, sizeof(*sh->sample), compare_ns);

	switch (c->kind) {
	case SWITCH_PROC:
	case SWITCH_THREAD:
		add_figure("calls", sh->calls);
		add_figure("switches", sh->switches);
		add_figure("ns_per_call", ns / sh->calls);
		add_percentile("p50", 50);
		if (sh->switches)
			add_figure("ns_per_switch", ns / sh->switches);
		break;
	case POLITE:
		add_figure("calls", sh->calls);
		add_share("share", sh->used);
		add_share("hogs_share", sh->hogs_used);
		/* What the hogs did not get, other than by what it computed. */
		add_share("lost", sh->elapsed - sh->hogs_used -
			  sh->calls * USEC(c->work));
		add_percentiles();
		/* Apart when half of the calls are of one kind: no p50 then. */
		add_percentile("p40", 40);
		add_percentile("p60", 60);
		add_figure("stuck", sh->stuck);
		add_figure("longest_stuck", sh->longest_stuck);
		break;
	case POLL:
		add_share("share", sh->used);
		add_share("hogs_share", sh->hogs_used);
		break;
	case PING:
		add_figure("passes_per_s",
			   sh->measured * 1e9 / sh->elapsed);
		add_share("hogs_share", sh->hogs_used);
		break;
	case LOCK:
	case SECTION:
		add_figure("acquisitions_per_s",
			   sh->measured * 1e9 / sh->elapsed);
		add_figure("yields_per_acquisition",
			   sh->turns ? (double)sh->calls / sh->turns : 0);
		add_percentiles();
		if (c->kind == SECTION)
			add_share("hogs_share", sh->hogs_used);
		break;
	case WAKE:
	case SLEEPER:
		add_figure("wakes", sh->samples);
		add_percentiles();
		break;
	case STORM:
		add_figure("longest_wait_yielder", sh->longest[0]);
		add_figure("longest_wait_hog", sh->longest[1]);
		break;
	}
}

/* @which: how the feature bits are to be set */
static void run_case(enum features which)
{
	int nr = c->hogs + nr_tasks();
	/* Those who do not end by themselves come first. */
	int endless = c->kind == SWITCH_PROC ? 0 : nr - 1;
	int waiting = c->hogs + (nr_threads() ?: 1) + (c->kind == LOCK);
	pthread_barrierattr_t attr;
	int status, i;

	memset(sh, 0, sizeof(*sh));
	if (which != AS_IS && !skip_reason &&
	    !(feature_set(bits[0], which == NEW) &&
	      feature_set(bits[1], which == NEW)))
		skip_reason = "the scheduler features cannot be set";
	if (skip_reason) {
		report(KSFT_SKIP, "%s", skip_reason);
		return;
	}
	pthread_barrierattr_init(&attr);
	pthread_barrierattr_setpshared(&attr, PTHREAD_PROCESS_SHARED);
	pthread_barrier_init(&sh->barrier, &attr, waiting);

	for (i = 0; i < nr; i++) {
		pid[i] = fork_bound();
		if (!pid[i] && i < c->hogs)
			run_hog();
		if (!pid[i])
			run_task(i - c->hogs);
		if (pid[i] < 0)
			report(KSFT_FAIL, "fork: %s", strerror(errno));
	}

	for (i = endless; i < nr; i++) {
		if (pid[i] <= 0 || waitpid(pid[i], &status, 0) != pid[i])
			continue;
		if (WIFSIGNALED(status))
			report(KSFT_FAIL, "a task was killed by signal %d (%s)",
			       WTERMSIG(status), strsignal(WTERMSIG(status)));
		else if (WEXITSTATUS(status))
			report(KSFT_FAIL, "a task gave up");
	}
	for (i = 0; i < endless; i++)
		end_child(pid[i]);
}

static void print_case(enum features which)
{
	static const char *separator = "";
	char name[128];

	snprintf(name, sizeof(name), "%s%s%s", c->name, which ? " " : "",
		 which ? feature_names[which] : "");
	if (json) {
		fprintf(json, "%s\n    {\"name\": \"%s\", \"kind\": \"%.*s\"",
			separator, c->name, (int)strcspn(c->name, "-"), c->name);
		fprintf(json, ", \"features\": \"%s\"", feature_names[which]);
		if (sh->verdict)
			fprintf(json, ", \"status\": \"%s\", \"reason\": \"%s\"",
				sh->verdict == KSFT_SKIP ? "skip" : "fail",
				sh->reason);
		else
			fprintf(json, ", \"status\": \"ok\", \"reason\": null");
		fprintf(json, ", \"tasks\": %d, \"work_us\": %d, \"slice_us\": %d, \"hogs\": %d",
			c->tasks, c->work, c->slice, c->hogs);
		fprintf(json, ", \"section_us\": %d, \"nice\": %d, \"hog_nice\": %d",
			c->section, c->nice, c->hog_nice);
		separator = ",";
	}
	if (!sh->verdict) {
		ksft_print_msg("%s:", name);
		add_figures();
		printf("\n");
	}
	if (json)
		fprintf(json, "}");
	ksft_test_result_code(sh->verdict, name, sh->verdict ? "%s" : NULL,
			      sh->reason);
}

static void json_begin(void)
{
	unsigned int i;

	json_head(json, "yield_latency", cpu);
	fprintf(json, "  \"rounds\": %.0f,\n  \"seconds\": %g,\n", rounds, seconds);
	fprintf(json, "  \"phase_us\": %g,\n  \"calls\": %g,\n", phase, min_calls);
	fprintf(json, "  \"storm_seconds\": %g,\n  \"features\": {",
		storm_seconds);
	for (i = 0; i < ARRAY_SIZE(bits); i++) {
		int state = feature_get(bits[i]);

		fprintf(json, "%s\"%s\": %s", i ? ", " : "", bits[i],
			state < 0 ? "null" : state ? "true" : "false");
	}
	fprintf(json, "},\n  \"cases\": [");
}

static __noreturn void usage(const char *name)
{
	printf("Usage: %s [OPTION]...\n"
	       "  --rounds N    yields of each switch-* case (%.0f)\n"
	       "  --seconds S   duration of the shortest of the other cases (%g)\n"
	       "  --calls N     yields of each polite worker, at least (%.0f)\n"
	       "  --storm S     duration of the yields of each storm (%g)\n"
	       "  --phase US    start cases with hogs that long after a tick (0)\n"
	       "  --cpu N       where to run (the first that is allowed)\n"
	       "  --case NAME   only this case; repeatable, * ? [] match\n"
	       "  --features F  old, new or both: YIELD_TICK and YIELD_SKIP off, on,\n"
	       "                or each case both ways (as they are)\n"
	       "  --json FILE   write the results to FILE as well\n"
	       "  --list        print the names of the cases and exit\n",
	       name, rounds, seconds, min_calls, storm_seconds);
	exit(KSFT_PASS);
}

static void select_cases(const char *pattern)
{
	bool found = false;
	unsigned int i;

	for (i = 0; i < ARRAY_SIZE(cases); i++) {
		if (fnmatch(pattern, cases[i].name, 0))
			continue;
		found = true;
		nr_selected += !selected[i];
		selected[i] = true;
	}
	if (!found)
		usage_error(pattern, "no such case");
}

static void parse_features(const char *text)
{
	for (features = OLD; features <= BOTH; features++) {
		if (!strcmp(text, feature_names[features]))
			return;
	}
	usage_error(text, "not old, new or both");
}

/* Returns whether to print the names of the cases only. */
static bool parse_options(int argc, char **argv)
{
	bool list = false;
	int opt;

	while ((opt = getopt_long(argc, argv, "", options, NULL)) != -1) {
		switch (opt) {
		case 'n':
			select_cases(optarg);
			break;
		case 'f':
			parse_features(optarg);
			break;
		case 'j':
			json = fopen(optarg, "we");
			if (!json)
				usage_error(optarg, strerror(errno));
			break;
		case 'l':
			list = true;
			break;
		case 'h':
			usage(argv[0]);
		case '?':
			exit(KSFT_FAIL);
		default:
			*numbers[opt].value =
				parse_number(options[opt].name, optarg,
					     numbers[opt].min, numbers[opt].max);
			break;
		}
	}
	if (optind < argc)
		usage_error(argv[optind], "unexpected argument");
	return list;
}

int main(int argc, char **argv)
{
	unsigned int i;
	bool list;

	if (machine_slow()) {
		rounds /= 4;
		seconds /= 4;
		storm_seconds /= 4;
	}
	list = parse_options(argc, argv);
	if (!nr_selected)
		select_cases("*");
	for (i = 0; list && i < ARRAY_SIZE(cases); i++) {
		if (selected[i])
			puts(cases[i].name);
	}
	if (list)
		exit(KSFT_PASS);

	if (cpu < 0)
		cpu = first_cpu();
	if (cpu < 0)
		ksft_exit_skip("the affinity mask is too long\n");
	if (features != AS_IS)
		skip_reason = guard_features(bits, ARRAY_SIZE(bits));
	loops_per_ms = loops_in(MSEC(1));
	sh = map_shared(sizeof(*sh));
	if (!sh)
		ksft_exit_fail_perror("mmap");

	ksft_print_header();
	ksft_set_plan(nr_selected << (features == BOTH));
	ksft_print_msg("CPU %g, tick %lld ns, %.0f rounds, %g seconds, storms of %g seconds\n",
		       cpu, tick_ns(), rounds, seconds, storm_seconds);
	if (json)
		json_begin();
	for (i = 0; i < ARRAY_SIZE(cases); i++) {
		enum features which = features == BOTH ? OLD : features;
		enum features last = features == BOTH ? NEW : features;

		for (c = &cases[i]; selected[i] && which <= last; which++) {
			run_case(which);
			print_case(which);
		}
	}
	if (json && (fprintf(json, "\n  ]\n}\n") < 0 || fclose(json)))
		ksft_exit_fail_msg("--json: the file could not be written\n");

	/* ksft_finished() takes a run of nothing but skips for a pass. */
	if (ksft_cnt.ksft_xskip == ksft_plan) {
		ksft_print_cnts();
		exit(KSFT_SKIP);
	}
	ksft_finished();
}
