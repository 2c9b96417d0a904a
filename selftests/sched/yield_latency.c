// SPDX-License-Identifier: GPL-2.0
/*
 * What sched_yield() is worth to those who use it, and what it costs others.
 *
 * switch-*	N processes or threads on one CPU do nothing but yield: the time
 *		of a switch
 * polite-*	a worker computes for some time, yields, and so on, beside hogs:
 *		its share of the CPU, how long a call takes, and how many calls
 *		let nobody else run
 * weight-*	the same beside a hog, of different nice values
 * poll-*	tasks poll something and yield in between, beside a hog: what
 *		it gets
 * ping-*	two tasks pass a ball and yield until they have it, beside hogs:
 *		passes
 * lock-*	more threads than CPUs, or tasks of one CPU beside hogs, contend
 *		for a lock and yield until they get it: acquisitions, waits,
 *		yields per acquisition
 * wake-*	yield, then sleep for 1 ms beside hogs: how late the wake-up is
 * sleeper-*	sleep for 3 to 7 ms, compute for 200 us, beside two hogs and a
 *		task that yields: how late the wake-up is
 * storm-*	yield for 5 s, then spin for 1 s, beside a hog: the longest wait
 *		of each of the two, so what yielding may have saved up is seen
 *
 * It measures and reports. No figure makes it fail: that depends on the
 * machine, and comparing is up to the caller. A case fails when a task died,
 * hung or ran on another CPU than it should. Whatever is missing to run a case
 * makes it a skip that says so; a run of nothing but skips exits with
 * KSFT_SKIP.
 *
 * With --features the scheduler's feature bits for yields are off (old), on
 * (new), or each case runs with either (both). They are restored at the end,
 * also when the program is killed.
 */
#include <fnmatch.h>
#include <getopt.h>
#include <pthread.h>
#include <sys/file.h>
#include <sys/resource.h>

#include "bench_helpers.h"

#define MAX_TASKS	64
#define MAX_HOGS	3
#define MAX_SAMPLES	200000
#define WATCHDOG	30
#define MAX_ROUNDS	10000000
#define SPINS		100	/* for a lock, before a yield */

#define DEBUGFS		"/sys/kernel/debug"
#define FEATURES	DEBUGFS "/sched/features"

enum kind {
	SWITCH_PROC,
	SWITCH_THREAD,
	POLITE,
	WEIGHT,
	POLL,
	PING,
	LOCK,
	SECTION,
	WAKE,
	SLEEPER,
	STORM,
};

/**
 * struct yield_case - one thing to measure
 * @name:	how it is reported, the kind first; tools rely on it
 * @kind:	what is measured
 * @tasks:	how many but for the hogs, 0 for one; lock-*x: threads per CPU
 * @work:	microseconds between two yields
 * @section:	microseconds with the lock, or between two sleeps
 * @slice:	microseconds, 0 for the default
 * @hogs:	how many tasks use the CPU beside it
 * @nice:	of the tasks
 * @hog_nice:	of the hogs
 * @times:	how many times as long as others it takes
 */
struct yield_case {
	const char *name;
	enum kind kind;
	int tasks;
	int work;
	int section;
	int slice;
	int hogs;
	int nice, hog_nice;
	int times;
};

#define PROCESSES(nr) \
	{ .name = "switch-proc-" #nr, .kind = SWITCH_PROC, .tasks = nr }
#define THREADS(nr) \
	{ .name = "switch-thread-" #nr, .kind = SWITCH_THREAD, .tasks = nr }
#define SLICED(nr, _label, _slice) \
	{ .name = "switch-proc-" #nr "-slice-" _label, .kind = SWITCH_PROC, \
	  .tasks = nr, .slice = _slice }
#define POLITE(_work, _label, _slice, _hogs, _times) \
	{ .name = "polite-" #_work "us-slice-" _label "-hogs-" #_hogs, \
	  .kind = POLITE, .work = _work, .slice = _slice, .hogs = _hogs, \
	  .times = _times }
#define WEIGHT(_name, _nice, _hog_nice) \
	{ .name = "weight-" _name, .kind = WEIGHT, .work = 100, \
	  .slice = 2800, .hogs = 1, .nice = _nice, .hog_nice = _hog_nice, \
	  .times = 2 }
#define POLL(nr) \
	{ .name = "poll-" #nr "-hogs-1", .kind = POLL, .tasks = nr, \
	  .work = 5, .slice = 2800, .hogs = 1, .times = 2 }
#define PING(_hogs) \
	{ .name = "ping-hogs-" #_hogs, .kind = PING, .tasks = 2, .work = 1, \
	  .slice = 2800, .hogs = _hogs, .times = 2 }
#define LOCK(nr) \
	{ .name = "lock-" #nr "x", .kind = LOCK, .tasks = nr, .section = 1, \
	  .times = 1 }
#define SECTION(nr, _section, _hogs) \
	{ .name = "lock-" #nr "-section-" #_section "us-hogs-" #_hogs, \
	  .kind = SECTION, .tasks = nr, .section = _section, .slice = 2800, \
	  .hogs = _hogs, .times = 3 }
#define SLEEPER(_label, _slice) \
	{ .name = "sleeper-slice-" _label, .kind = SLEEPER, .tasks = 2, \
	  .work = 100, .section = 200, .slice = _slice, .hogs = 2, .times = 6 }
#define STORM(_label, _slice) \
	{ .name = "storm-slice-" _label, .kind = STORM, .slice = _slice, \
	  .hogs = 1 }

static const struct yield_case cases[] = {
	PROCESSES(2),
	PROCESSES(4),
	PROCESSES(10),
	PROCESSES(40),
	THREADS(2),
	THREADS(10),
	SLICED(2, "2.8ms", 2800),
	SLICED(10, "2.8ms", 2800),
	SLICED(40, "2.8ms", 2800),

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

	LOCK(2),
	LOCK(4),
	SECTION(4, 20, 0),
	SECTION(4, 20, 1),
	SECTION(4, 2000, 0),
	SECTION(4, 2000, 1),
	SECTION(8, 2000, 1),

	{ .name = "wake-hogs-1", .kind = WAKE, .hogs = 1, .times = 2 },
	{ .name = "wake-hogs-3", .kind = WAKE, .hogs = 3, .times = 2 },
	SLEEPER("2.8ms", 2800),
	SLEEPER("100ms", 100000),

	STORM("default", 0),
	STORM("100ms", 100000),
};

enum features {
	AS_IS,
	OLD,
	NEW,
	BOTH,
};

static const char * const feature_names[] = {
	[AS_IS]	= "as-is",
	[OLD]	= "old",
	[NEW]	= "new",
	[BOTH]	= "both",
};

static const char * const bits[] = { "YIELD_TICK", "YIELD_SKIP" };

static const char * const sampled[] = { "p50", "p99", "max" };

struct result {
	const struct yield_case *c;
	enum features features;
	struct outcome outcome;
};

/**
 * struct shared - what the tasks of a case and the main program share
 * @barrier:	all tasks of a case start at once
 * @ready:	how many of those who do not start it wait there, or will soon
 * @verdict:	the worst of what they say
 * @reason:	for @verdict
 * @start:	when each task began, in ns
 * @end:	when it was done
 * @calls:	its yields
 * @switches:	how often it was switched away from
 * @longest:	its longest wait in ns
 * @elapsed:	how long was measured, in ns
 * @used:	CPU time of the tasks meanwhile, in ns
 * @hogs_used:	the same of all hogs
 * @measured:	how many turns there were meanwhile
 * @turns:	how often somebody got the lock or the ball
 * @stuck:	how many calls let nobody else run
 * @longest_stuck: how many of those in a row
 * @samples:	how many of @sample are used
 * @lock:	what tasks contend for, 1 when somebody has it
 * @ball:	whose turn it is
 * @stop:	threads have to end
 */
struct shared {
	pthread_barrier_t barrier;
	int ready;
	enum verdict verdict;
	char reason[200];
	long long start[MAX_TASKS], end[MAX_TASKS];
	long long calls[MAX_TASKS], switches[MAX_TASKS];
	long long longest[2];
	long long elapsed, used, hogs_used, measured;
	long long turns;
	long long stuck, longest_stuck;
	long long samples;
	int lock, ball;
	bool stop;
};

static struct result results[2 * ARRAY_SIZE(cases)];
static bool selected[ARRAY_SIZE(cases)];
static struct shared *sh;
static long long *sample;

static unsigned long rounds = 20000;
static double seconds = 0.3;
static double storm_seconds = 5;
static int min_calls = 3;
static int phase;
static enum features features = AS_IS;
static const char *json_path;
static int cpu = -1;
static unsigned long loops_per_ms;
static char skip_rest[100];

static __printf(2, 3) void report(enum verdict verdict, const char *fmt, ...)
{
	va_list args;

	if (verdict <= sh->verdict)
		return;
	va_start(args, fmt);
	vsnprintf(sh->reason, sizeof(sh->reason), fmt, args);
	va_end(args);
	sh->verdict = verdict;
}

/*
 * Feature bits of the scheduler, and who restores them.
 */

/* 1 on, 0 off, -1 the kernel does not have it */
static int feature_get(const char *name)
{
	char off[32];

	snprintf(off, sizeof(off), "NO_%s", name);
	if (has_word(FEATURES, name))
		return 1;

	return has_word(FEATURES, off) ? 0 : -1;
}

static bool feature_set(const char *name, bool on)
{
	char text[32];

	snprintf(text, sizeof(text), "%s%s", on ? "" : "NO_", name);

	return write_text(FEATURES, text) && feature_get(name) == on;
}

static pid_t guard;
static int guard_fd;

/* After this everything is restored when the program is back in its shell. */
static void guard_end(void)
{
	close(guard_fd);
	while (waitpid(guard, NULL, 0) < 0 && errno == EINTR)
		;
}

static bool guard_start(void)
{
	int before[ARRAY_SIZE(bits)], pipes[2];
	unsigned int i;

	for (i = 0; i < ARRAY_SIZE(bits); i++)
		before[i] = feature_get(bits[i]);
	if (pipe2(pipes, O_CLOEXEC))
		return false;

	guard = fork();
	if (guard < 0)
		return false;
	if (!guard) {
		close(pipes[1]);
		set_fair(0, 0);
		guard_wait(pipes[0]);
		for (i = 0; i < ARRAY_SIZE(bits); i++)
			feature_set(bits[i], before[i]);
		_exit(0);
	}
	close(pipes[0]);
	guard_fd = pipes[1];

	return !atexit(guard_end);
}

/* Returns the reason why there are no bits to set, or NULL. */
static const char *open_features(void)
{
	static char missing[64];
	unsigned int i;
	int fd;

	if (geteuid())
		return "not root";
	if (access(FEATURES, F_OK) && !mount_private("debugfs", DEBUGFS))
		return "no debugfs";
	for (i = 0; i < ARRAY_SIZE(bits); i++) {
		if (feature_get(bits[i]) >= 0)
			continue;
		snprintf(missing, sizeof(missing), "no such feature: %s",
			 bits[i]);
		return missing;
	}
	if (access(FEATURES, W_OK))
		return "scheduler features are read-only";
	/* The bits are the whole machine's: one at a time, until exit. */
	fd = open(FEATURES, O_RDONLY | O_CLOEXEC);
	if (fd < 0 || flock(fd, LOCK_EX | LOCK_NB))
		return "another test is using the scheduler features";

	return guard_start() ? NULL : "no guardian for the scheduler features";
}

/* RUSAGE_SELF would account the caller's runtime, which may end its turn. */
static long count_switches(void)
{
	struct rusage usage;

	getrusage(RUSAGE_THREAD, &usage);

	return usage.ru_nvcsw + usage.ru_nivcsw;
}

/* CPU time of a process in ns, 0 when it is gone. */
static long long cpu_time(pid_t pid)
{
	struct timespec ts;
	clockid_t id;

	if (clock_getcpuclockid(pid, &id) || clock_gettime(id, &ts))
		return 0;

	return ts.tv_sec * NSEC_PER_SEC + ts.tv_nsec;
}

static void add_sample(long long ns)
{
	if (sh->samples < MAX_SAMPLES)
		sample[sh->samples++] = ns;
}

static void check_cpu(void)
{
	int now = sched_getcpu();

	if (now != cpu)
		report(FAIL, "ran on CPU %d instead of %d", now, cpu);
}

static long long case_ns(const struct yield_case *c)
{
	if (c->kind == STORM)
		return storm_seconds * NSEC_PER_SEC;

	return seconds * c->times * NSEC_PER_SEC;
}

/* A case that takes ten times as long as it should hangs. */
static unsigned int watchdog(const struct yield_case *c)
{
	/* The default slice is much less than 10 ms. */
	long long call = c->hogs * (c->slice * NSEC_PER_USEC +
				    10 * NSEC_PER_MSEC);

	return WATCHDOG + 10 * (case_ns(c) + min_calls * call) / NSEC_PER_SEC;
}

/* Become such a task as the case wants, on its CPU. */
static void become_fair(const struct yield_case *c, int nice)
{
	if (c->kind != LOCK && !pin_to(cpu))
		report(FAIL, "sched_setaffinity to CPU %d: %s", cpu,
		       strerror(errno));
	else if (set_fair(nice, c->slice * NSEC_PER_USEC))
		report(errno == EPERM ? SKIP : FAIL, "sched_setattr: %s",
		       strerror(errno));
	else
		return;
	_exit(1);
}

/* Right after a tick, or @phase later; the coarse clock tells when. */
static void wait_for_tick(void)
{
	struct timespec first, now;
	long long until;

	clock_gettime(CLOCK_MONOTONIC_COARSE, &first);
	do {
		clock_gettime(CLOCK_MONOTONIC_COARSE, &now);
	} while (now.tv_nsec == first.tv_nsec && now.tv_sec == first.tv_sec);

	until = now_ns() + phase * NSEC_PER_USEC;
	while (now_ns() < until)
		;
}

/* Processes other than hogs. */
static int nr_tasks(const struct yield_case *c)
{
	return c->kind == SWITCH_THREAD || c->kind == LOCK ? 1 : c->tasks ?: 1;
}

/* The last task starts the others and measures. */
static bool is_last(const struct yield_case *c, int me)
{
	return me == nr_tasks(c) - 1;
}

/*
 * Let all go, right after a tick: how long a call takes depends on where in a
 * tick it falls, and that shall not depend on when the program was started.
 * False when somebody gave up.
 */
static bool start_together(const struct yield_case *c, int me)
{
	if (!is_last(c, me)) {
		__atomic_add_fetch(&sh->ready, 1, __ATOMIC_RELAXED);
	} else {
		while (__atomic_load_n(&sh->ready, __ATOMIC_RELAXED) <
		       c->hogs + me) {
			if (sh->verdict)
				return false;
			sched_yield();
		}
		wait_for_tick();
	}
	pthread_barrier_wait(&sh->barrier);

	return true;
}

/* One of them samples how long it takes until it is its turn again. */
static void yield_share(const struct yield_case *c, int me)
{
	long long last, now;
	long switches;
	unsigned long i;

	pthread_barrier_wait(&sh->barrier);
	switches = count_switches();
	last = now_ns();
	sh->start[me] = last;
	for (i = 0; i < rounds / c->tasks; i++) {
		sched_yield();
		if (me)
			continue;
		now = now_ns();
		add_sample((now - last) / c->tasks);
		last = now;
	}
	sh->end[me] = now_ns();
	sh->switches[me] = count_switches() - switches;
	sh->calls[me] = i;
}

/* @sign: -1 where the measurement begins and 1 where it ends */
static void note_shares(const struct yield_case *c, int me, const pid_t *pid,
			int sign)
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

static void run_polite(const struct yield_case *c, const pid_t *pid)
{
	unsigned long loops = c->work * loops_per_ms / 1000;
	long long start, end, until = LLONG_MAX, run = 0;
	long switches, now;
	int warmup = 3;

	if (!start_together(c, 0))
		return;
	do {
		if (!--warmup) {
			note_shares(c, 0, pid, -1);
			until = now_ns() + case_ns(c);
		}
		work_loops(loops);

		switches = count_switches();
		start = now_ns();
		sched_yield();
		end = now_ns();
		now = count_switches();
		if (warmup > 0)
			continue;

		add_sample(end - start);
		sh->calls[0]++;
		run = now == switches ? run + 1 : 0;
		if (run)
			sh->stuck++;
		if (run > sh->longest_stuck)
			sh->longest_stuck = run;
	} while (warmup > 0 || end < until || sh->calls[0] < min_calls);

	note_shares(c, 0, pid, 1);
	check_cpu();
}

static void run_wake(const struct yield_case *c, int me)
{
	unsigned long loops = c->section * loops_per_ms / 1000;
	unsigned int seed = 1;
	long long until, due;

	if (!start_together(c, me))
		return;
	until = now_ns() + case_ns(c);
	do {
		work_loops(loops);
		if (c->kind == WAKE)
			sched_yield();
		due = now_ns() + NSEC_PER_MSEC;
		if (c->kind == SLEEPER)
			due += 2 * NSEC_PER_MSEC +
			       rand_r(&seed) % (4 * NSEC_PER_MSEC);
		sleep_until(due);
		add_sample(now_ns() - due);
	} while (due < until);
	check_cpu();
}

/* Any gap in what a task sees of the clock is a wait. */
static void watch_clock(long long until, bool yields, long long *longest)
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

static void run_storm(const struct yield_case *c)
{
	long long until;

	if (!start_together(c, 0))
		return;
	until = now_ns() + case_ns(c);
	watch_clock(until, true, &sh->longest[0]);
	until += case_ns(c) / 5;
	watch_clock(until, false, &sh->longest[0]);
	check_cpu();
}

static __noreturn void run_hog(const struct yield_case *c)
{
	become_fair(c, c->hog_nice);
	start_together(c, -1);

	if (c->kind == STORM)
		watch_clock(LLONG_MAX, false, &sh->longest[1]);
	for (;;)
		asm volatile ("" : : : "memory");
}

/* As long without the lock as with it. */
static void use_lock(const struct yield_case *c, int me)
{
	unsigned long loops = c->section * loops_per_ms / 1000;
	long long start = now_ns();
	int expected, tries = 0;

	for (;;) {
		expected = 0;
		if (__atomic_compare_exchange_n(&sh->lock, &expected, 1, false,
						__ATOMIC_ACQUIRE,
						__ATOMIC_RELAXED))
			break;
		if (c->kind == SECTION && ++tries % SPINS)
			continue;
		sched_yield();
		sh->calls[me]++;
	}
	/* The lock protects the samples as well. */
	add_sample(now_ns() - start);
	sh->turns++;
	work_loops(loops);
	__atomic_store_n(&sh->lock, 0, __ATOMIC_RELEASE);
	work_loops(loops);
}

/* Several tasks, of which the last looks at the clock; others go on. */
static void run_several(const struct yield_case *c, int me, const pid_t *pid)
{
	unsigned long loops = c->work * loops_per_ms / 1000;
	long long until = LLONG_MAX;
	int warmup = 3;

	if (!start_together(c, me))
		return;
	do {
		if (is_last(c, me) && !--warmup) {
			note_shares(c, me, pid, -1);
			until = now_ns() + case_ns(c);
		}
		if (c->kind == SECTION) {
			use_lock(c, me);
			continue;
		}
		while (c->kind == PING &&
		       __atomic_load_n(&sh->ball, __ATOMIC_RELAXED) != me)
			sched_yield();
		work_loops(loops);
		if (c->kind != PING) {
			sched_yield();
			continue;
		}
		sh->turns++;
		__atomic_store_n(&sh->ball, !me, __ATOMIC_RELAXED);
	} while (!is_last(c, me) || now_ns() < until);
	note_shares(c, me, pid, 1);
	check_cpu();
}

static const struct yield_case *thread_case;

static void *yield_thread(void *arg)
{
	yield_share(thread_case, (long)arg);

	return NULL;
}

static void *lock_thread(void *arg)
{
	pthread_barrier_wait(&sh->barrier);
	while (!__atomic_load_n(&sh->stop, __ATOMIC_RELAXED))
		use_lock(thread_case, (long)arg);

	return NULL;
}

static int lock_threads(const struct yield_case *c)
{
	static cpu_set_t mask[MAX_CPUS / CPU_SETSIZE];
	int nr;

	if (sched_getaffinity(0, sizeof(mask), mask))
		return c->tasks;
	nr = c->tasks * CPU_COUNT_S(sizeof(mask), mask);

	return nr < MAX_TASKS ? nr : MAX_TASKS;
}

static void run_threads(const struct yield_case *c)
{
	int nr = c->kind == LOCK ? lock_threads(c) : c->tasks;
	pthread_t thread[MAX_TASKS];
	long i;

	thread_case = c;
	for (i = 0; i < nr; i++) {
		if (pthread_create(&thread[i], NULL, c->kind == LOCK ?
				   lock_thread : yield_thread, (void *)i)) {
			report(FAIL, "pthread_create: %s", strerror(errno));
			return;
		}
	}
	if (c->kind == LOCK) {
		pthread_barrier_wait(&sh->barrier);
		note_shares(c, 0, NULL, -1);
		sleep_until(now_ns() + case_ns(c));
		__atomic_store_n(&sh->stop, true, __ATOMIC_RELAXED);
	}
	for (i = 0; i < nr; i++)
		pthread_join(thread[i], NULL);
	if (c->kind == LOCK)
		note_shares(c, 0, NULL, 1);
}

/* One task of a case; @pid: those that were forked before it, hogs first */
static __noreturn void run_task(const struct yield_case *c, int me,
				const pid_t *pid)
{
	alarm(watchdog(c));
	become_fair(c, c->nice);

	switch (c->kind) {
	case SWITCH_PROC:
		yield_share(c, me);
		check_cpu();
		break;
	case SWITCH_THREAD:
	case LOCK:
		run_threads(c);
		break;
	case POLITE:
	case WEIGHT:
		run_polite(c, pid);
		break;
	case POLL:
	case PING:
	case SECTION:
		run_several(c, me, pid);
		break;
	case SLEEPER:
		if (is_last(c, me))
			run_wake(c, me);
		else
			run_several(c, me, pid);
		break;
	case WAKE:
		run_wake(c, me);
		break;
	case STORM:
		run_storm(c);
		break;
	}
	_exit(0);
}

static void add_share(struct outcome *out, const char *name, long long ns)
{
	add_figure(out, name, 100.0 * ns / sh->elapsed);
}

static void summarize(const struct yield_case *c, struct outcome *out)
{
	long long start = LLONG_MAX, end = 0, calls = 0, switches = 0;
	int i;

	for (i = 0; i < MAX_TASKS; i++) {
		calls += sh->calls[i];
		switches += sh->switches[i];
		if (sh->end[i] && sh->start[i] < start)
			start = sh->start[i];
		if (sh->end[i] > end)
			end = sh->end[i];
	}

	switch (c->kind) {
	case SWITCH_PROC:
	case SWITCH_THREAD:
		add_figure(out, "calls", calls);
		add_figure(out, "switches", switches);
		add_figure(out, "ns_per_call", (double)(end - start) / calls);
		add_percentile(out, "p50", sample, sh->samples, 50);
		if (switches)
			add_figure(out, "ns_per_switch",
				   (double)(end - start) / switches);
		break;
	case POLITE:
	case WEIGHT:
		add_figure(out, "calls", calls);
		add_share(out, "share", sh->used);
		add_share(out, "hogs_share", sh->hogs_used);
		/* What the hogs did not get, other than by what it computed. */
		add_share(out, "lost", sh->elapsed - sh->hogs_used -
			  calls * c->work * NSEC_PER_USEC);
		add_percentiles(out, sample, sh->samples, sampled);
		/* Apart when half of the calls are of one kind: no p50 then. */
		add_percentile(out, "p40", sample, sh->samples, 40);
		add_percentile(out, "p60", sample, sh->samples, 60);
		add_figure(out, "stuck", sh->stuck);
		add_figure(out, "longest_stuck", sh->longest_stuck);
		break;
	case POLL:
		add_share(out, "share", sh->used);
		add_share(out, "hogs_share", sh->hogs_used);
		break;
	case PING:
		add_figure(out, "passes_per_s", (double)sh->measured *
			   NSEC_PER_SEC / sh->elapsed);
		add_share(out, "hogs_share", sh->hogs_used);
		break;
	case LOCK:
	case SECTION:
		add_figure(out, "acquisitions_per_s", (double)sh->measured *
			   NSEC_PER_SEC / sh->elapsed);
		add_figure(out, "yields_per_acquisition",
			   sh->turns ? (double)calls / sh->turns : 0);
		add_percentiles(out, sample, sh->samples, sampled);
		if (c->kind == SECTION)
			add_share(out, "hogs_share", sh->hogs_used);
		break;
	case WAKE:
	case SLEEPER:
		add_figure(out, "wakes", sh->samples);
		add_percentiles(out, sample, sh->samples, sampled);
		break;
	case STORM:
		add_figure(out, "longest_wait_yielder", sh->longest[0]);
		add_figure(out, "longest_wait_hog", sh->longest[1]);
		break;
	}
}

static int barrier_size(const struct yield_case *c)
{
	if (c->kind == LOCK)
		return lock_threads(c) + 1;

	return (c->tasks ?: 1) + c->hogs;
}

static void run_case(const struct yield_case *c, struct result *res)
{
	int nr = c->hogs + nr_tasks(c);
	/* Those who do not end by themselves come first. */
	int endless = c->kind == SWITCH_PROC ? 0 : nr - 1;
	pid_t pid[MAX_HOGS + MAX_TASKS];
	pthread_barrierattr_t attr;
	int status, i;

	res->c = c;
	if (skip_rest[0]) {
		set_outcome(&res->outcome, SKIP, skip_rest);
		return;
	}

	memset(sh, 0, sizeof(*sh));
	pthread_barrierattr_init(&attr);
	pthread_barrierattr_setpshared(&attr, PTHREAD_PROCESS_SHARED);
	pthread_barrier_init(&sh->barrier, &attr, barrier_size(c));

	for (i = 0; i < nr; i++) {
		pid[i] = fork_bound();
		if (!pid[i] && i < c->hogs)
			run_hog(c);
		if (!pid[i])
			run_task(c, i - c->hogs, pid);
		if (pid[i] < 0)
			report(FAIL, "fork: %s", strerror(errno));
	}

	for (i = endless; i < nr; i++) {
		if (pid[i] <= 0 || waitpid(pid[i], &status, 0) != pid[i])
			continue;
		if (WIFSIGNALED(status))
			report(FAIL, "a task was killed by signal %d (%s)",
			       WTERMSIG(status), strsignal(WTERMSIG(status)));
		else if (WEXITSTATUS(status) && !sh->verdict)
			report(FAIL, "a task gave up");
	}
	for (i = 0; i < endless; i++)
		end_child(pid[i]);

	set_outcome(&res->outcome, sh->verdict ? sh->verdict : OK, sh->reason);
	if (res->outcome.verdict == OK)
		summarize(c, &res->outcome);
}

static void print_result(const struct result *res)
{
	char name[128];

	snprintf(name, sizeof(name), "%s%s%s", res->c->name,
		 res->features == AS_IS ? "" : " ",
		 res->features == AS_IS ? "" : feature_names[res->features]);
	print_outcome(name, &res->outcome);
}

static void json_result(FILE *file, const struct result *res)
{
	fprintf(file, "    {\"name\": \"%s\", \"kind\": \"%.*s\", ",
		res->c->name, (int)strcspn(res->c->name, "-"), res->c->name);
	fprintf(file, "\"features\": \"%s\", ", feature_names[res->features]);
	json_status(file, &res->outcome);
	fprintf(file, ", \"tasks\": %d, \"work_us\": %d, \"slice_us\": %d, \"hogs\": %d",
		res->c->tasks, res->c->work, res->c->slice, res->c->hogs);
	fprintf(file, ", \"section_us\": %d, \"nice\": %d, \"hog_nice\": %d",
		res->c->section, res->c->nice, res->c->hog_nice);
	json_figures(file, &res->outcome);
	fprintf(file, "}");
}

static void json_all(FILE *file, unsigned int nr)
{
	unsigned int i;

	json_head(file, "yield_latency", cpu);
	fprintf(file, "  \"tick_ns\": %lld,\n  \"rounds\": %lu,\n", tick_ns(),
		rounds);
	fprintf(file, "  \"seconds\": %g,\n  \"phase_us\": %d,\n", seconds,
		phase);
	fprintf(file, "  \"calls\": %d,\n  \"storm_seconds\": %g,\n",
		min_calls, storm_seconds);
	fprintf(file, "  \"features\": {");
	for (i = 0; i < ARRAY_SIZE(bits); i++) {
		int state = feature_get(bits[i]);

		fprintf(file, "%s\"%s\": %s", i ? ", " : "", bits[i],
			state < 0 ? "null" : state ? "true" : "false");
	}
	fprintf(file, "},\n  \"cases\": [\n");
	for (i = 0; i < nr; i++) {
		if (i)
			fprintf(file, ",\n");
		json_result(file, &results[i]);
	}
	fprintf(file, "\n  ]\n}\n");
}

static bool json_write(unsigned int nr)
{
	char name[PATH_MAX];
	FILE *file;

	file = json_open(json_path, name, sizeof(name));
	if (!file)
		return false;
	json_all(file, nr);

	return json_close(file, json_path, name);
}

static void usage(const char *name)
{
	printf("Usage: %s [OPTION]...\n"
	       "Measure what sched_yield() does to those who call it and to others.\n\n"
	       "  --rounds N      yields of each switch-* case, 100 to %d (default %lu)\n"
	       "  --seconds S     how long the shortest of the other cases takes,\n"
	       "                  0.01 to 1000 (default %g); some take up to 6 times that\n"
	       "  --calls N       calls that each polite worker makes at least, 1 to 10000\n"
	       "                  (default %d)\n"
	       "  --storm S       how long the storms yield, 0.01 to 1000 (default %g); then\n"
	       "                  they spin for a fifth of that\n"
	       "  --phase US      cases with hogs start this long after a tick, 0 to 10000\n"
	       "                  (default 0)\n"
	       "  --cpu N         the CPU (default: first of the affinity mask)\n"
	       "  --case NAME     only this case; repeatable, * ? [] match\n"
	       "  --features WHAT old, new or both: the scheduler's bits YIELD_TICK and\n"
	       "                  YIELD_SKIP off, on, or each case both ways (default:\n"
	       "                  as they are)\n"
	       "  --json FILE     write the results to FILE as well\n"
	       "  --list          print the names of the cases and exit\n"
	       "  --help          print this and exit\n\n"
	       "Times are in ns, shares in percent. KSFT_MACHINE_SLOW=yes in the\n"
	       "environment divides the first two and the last default by four.\n\n"
	       "Exit status: %d measured, perhaps with some cases skipped; %d a case\n"
	       "failed or a wrong option; %d all cases were skipped.\n",
	       name, MAX_ROUNDS, rounds, seconds, min_calls, storm_seconds,
	       KSFT_PASS, KSFT_FAIL, KSFT_SKIP);
}

static double parse_number(const char *option, const char *text, double min,
			   double max)
{
	double value;

	if (!is_number(text, min, max, &value))
		usage_error("--%s %s: not a number from %g to %g", option, text,
			    min, max);

	return value;
}

static void select_cases(const char *pattern)
{
	bool found = false;
	unsigned int i;

	for (i = 0; i < ARRAY_SIZE(cases); i++) {
		if (!fnmatch(pattern, cases[i].name, 0)) {
			selected[i] = true;
			found = true;
		}
	}

	if (!found)
		usage_error("--case %s: no such case, see --list", pattern);
}

static void parse_features(const char *text)
{
	for (features = OLD; features <= BOTH; features++) {
		if (!strcmp(text, feature_names[features]))
			return;
	}
	usage_error("--features %s: not old, new or both", text);
}

static void parse_options(int argc, char **argv)
{
	static const struct option options[] = {
		{ "rounds", required_argument, NULL, 'r' },
		{ "seconds", required_argument, NULL, 's' },
		{ "calls", required_argument, NULL, 'm' },
		{ "storm", required_argument, NULL, 'o' },
		{ "phase", required_argument, NULL, 'p' },
		{ "cpu", required_argument, NULL, 'c' },
		{ "case", required_argument, NULL, 'n' },
		{ "features", required_argument, NULL, 'f' },
		{ "json", required_argument, NULL, 'j' },
		{ "list", no_argument, NULL, 'l' },
		{ "help", no_argument, NULL, 'h' },
		{}
	};
	bool any = false, list = false;
	unsigned int i;
	int opt;

	if (machine_slow()) {
		rounds /= 4;
		seconds /= 4;
		storm_seconds /= 4;
	}

	while ((opt = getopt_long(argc, argv, "", options, NULL)) != -1) {
		switch (opt) {
		case 'r':
			rounds = parse_number("rounds", optarg, 100, MAX_ROUNDS);
			break;
		case 's':
			seconds = parse_number("seconds", optarg, 0.01, 1000);
			break;
		case 'm':
			min_calls = parse_number("calls", optarg, 1, 10000);
			break;
		case 'o':
			storm_seconds = parse_number("storm", optarg, 0.01, 1000);
			break;
		case 'p':
			phase = parse_number("phase", optarg, 0, 10000);
			break;
		case 'c':
			cpu = parse_number("cpu", optarg, 0, MAX_CPUS - 1);
			break;
		case 'n':
			select_cases(optarg);
			any = true;
			break;
		case 'f':
			parse_features(optarg);
			break;
		case 'j':
			json_path = optarg;
			break;
		case 'l':
			list = true;
			break;
		case 'h':
			usage(argv[0]);
			exit(KSFT_PASS);
		default:
			exit(KSFT_FAIL);
		}
	}
	if (optind < argc)
		usage_error("%s: unexpected argument, see --help", argv[optind]);

	for (i = 0; i < ARRAY_SIZE(cases); i++) {
		selected[i] = selected[i] || !any;
		if (list && selected[i])
			puts(cases[i].name);
	}
	if (list)
		exit(KSFT_PASS);
}

static void prepare(void)
{
	const char *reason;

	if (cpu < 0)
		cpu = first_cpu();
	if (!tick_ns())
		snprintf(skip_rest, sizeof(skip_rest), "no coarse clock");
	if (features == AS_IS)
		return;

	reason = open_features();
	if (reason)
		snprintf(skip_rest, sizeof(skip_rest), "%s", reason);
}

/* One case with the bits as they are, or with one or both settings. */
static unsigned int run_with_features(const struct yield_case *c,
				      unsigned int nr)
{
	static const enum features all[] = { AS_IS, OLD, NEW };
	unsigned int i;

	for (i = 0; i < ARRAY_SIZE(all); i++) {
		struct result *res = &results[nr];

		if (features == BOTH ? all[i] == AS_IS : all[i] != features)
			continue;
		res->features = all[i];
		if (all[i] != AS_IS && !skip_rest[0] &&
		    !(feature_set(bits[0], all[i] == NEW) &&
		      feature_set(bits[1], all[i] == NEW)))
			snprintf(skip_rest, sizeof(skip_rest),
				 "the scheduler features cannot be set");
		run_case(c, res);
		print_result(res);
		nr++;
	}

	return nr;
}

int main(int argc, char **argv)
{
	unsigned int i, plan = 0, nr = 0;

	parse_options(argc, argv);
	if (json_path && !json_possible(json_path))
		exit(KSFT_FAIL);

	signal(SIGCHLD, SIG_DFL);
	signal(SIGALRM, SIG_DFL);
	prepare();
	loops_per_ms = loops_in(NSEC_PER_MSEC);

	ksft_print_header();
	for (i = 0; i < ARRAY_SIZE(cases); i++)
		plan += selected[i];
	if (features == BOTH)
		plan *= 2;
	ksft_set_plan(plan);

	sh = map_shared(sizeof(*sh));
	sample = map_shared(MAX_SAMPLES * sizeof(*sample));
	ksft_print_msg("CPU %d, tick %lld ns, %lu rounds, %g seconds, storms of %g seconds\n",
		       cpu, tick_ns(), rounds, seconds, storm_seconds);

	for (i = 0; i < ARRAY_SIZE(cases); i++) {
		if (selected[i])
			nr = run_with_features(&cases[i], nr);
	}

	if (json_path && !json_write(nr))
		exit(KSFT_FAIL);

	finish();
}
