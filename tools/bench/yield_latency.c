// SPDX-License-Identifier: GPL-2.0
/*
 * What sched_yield() is worth to those who use it, and what it costs others.
 *
 * switch-*	processes or threads do nothing but yield: the time of a switch
 * polite-*	a worker computes, yields, and so on, beside hogs: its share of
 *		the CPU, how long a call takes, how many let nobody else run
 * weight-*	the same with different nice values
 * poll-*	tasks poll something and yield in between: what a hog keeps
 * ring-*	tasks pass a ball and yield until they have it
 * lock-*	tasks try 100 times to get a lock, then yield, until they get it
 * ticket-*	the same with a lock that goes from one to the next in turn
 * barrier-*	tasks compute, and yield until all of them have
 * short-*	a task that computes with a slice of its own, beside tasks that
 *		compute for 2.5 ms and yield: how long it waits
 * wake-*	yield, then sleep for 1 ms: how late the wake-up is
 * sleeper-*	sleep for 3 to 7 ms, compute for 200 us, beside hogs and a task
 *		that yields: how late the wake-up is
 * period-*	compute for 1 ms each 5 ms, beside tasks that compute and yield:
 *		when that is done, deadlines missed
 * storm-*	yield, then spin: the longest waits; bystander: of a hog beside a
 *		heavy task that does that with a slice of 100 ms
 *
 * All tasks run on one CPU. This process times them at a real-time priority,
 * if it may have one. No figure makes a case fail. By default the usual cases
 * run; --all adds those which are many.
 *
 * With --features the scheduler's feature bit YIELD_TICK is off (old), on
 * (new), or each case runs with either (both). It is restored at the end, but
 * not after a SIGKILL.
 */
#include "bench_helpers.h"

#include <fnmatch.h>
#include <pthread.h>

#define FEATURES	"/sys/kernel/debug/sched/features"
#define BIT		"YIELD_TICK"
#define MAX_TASKS	64
#define MAX_CASES	400
#define MAX_SAMPLES	200000
/* Attempts to get a lock before a yield. */
#define SPINS		100
/* A longer gap in what a task sees of the clock is a wait. */
#define GAP		(20 * NSEC_PER_USEC)
#define get(x)		__atomic_load_n(&(x), __ATOMIC_RELAXED)
#define set(x, value)	__atomic_store_n(&(x), value, __ATOMIC_RELAXED)

enum kind {
	SWITCH, POLITE, POLL, RING, LOCK, TICKET, BARRIER, SHORT, WAKE, SLEEPER,
	PERIOD, STORM,
};

/* Times are in microseconds. */
struct yield_case {
	enum kind kind;
	bool usual;
	/* How many besides the hogs. */
	int tasks;
	/* Between two yields; with the lock, or between two sleeps. */
	int work, section;
	/* 0 for the default; of the last task, if it has its own. */
	int slice, own_slice;
	/* Those who use the CPU all the time. */
	int hogs, nice, hog_nice;
	/* Of the second half of the tasks. */
	int light;
	/* How many times --seconds it takes. */
	double times;
	/* Scripts rely on the names; the first word is the kind they see. */
	char name[64];
};

static struct yield_case cases[MAX_CASES];
static unsigned int nr;

static __printf(2, 3) void add(struct yield_case new, const char *fmt, ...)
{
	va_list args;

	if (nr == MAX_CASES)
		abort();
	va_start(args, fmt);
	vsnprintf(new.name, sizeof(new.name), fmt, args);
	va_end(args);
	new.tasks = new.tasks ?: 1;
	new.times = new.times ?: 1;
	cases[nr++] = new;
}

static const char *slice_name(int slice)
{
	static char text[16];

	snprintf(text, sizeof(text), "%gms", slice / 1000.0);

	return slice ? text : "default";
}

#define CASE(...)	((struct yield_case){ __VA_ARGS__ })
#define each(p, ...)							\
	(const int list_##p[] = { __VA_ARGS__ }, *p = list_##p;		\
	 p < list_##p + ARRAY_SIZE(list_##p); p++)

static void add_locks(void)
{
	for each(hogs, 0, 1)
	for each(tasks, 4, 8)
	for each(section, 1, 5, 20, 200, 2000)
	for each(light, 0, 10)
		add(CASE(LOCK, !*light && *hogs && *section >= 20,
			 *tasks, *section, *section, 2800, .hogs = *hogs,
			 .light = *light, .times = 3),
		    "lock-%d-section-%dus-hogs-%d%s", *tasks, *section, *hogs,
		    *light ? "-mixed" : "");

	/* A lock that is hardly free, between heavy and light tasks. */
	for each(hogs, 0, 1)
	for each(light, 0, 10, 19)
		add(CASE(LOCK, *light == 10, 8, 50, 200, 2800, .hogs = *hogs,
			 .light = *light, .times = 12),
		    "lock-8-busy-nice-%d-hogs-%d", *light, *hogs);

	for each(hogs, 0, 1)
	for each(tasks, 3, 4, 8)
	for each(work, 20, 200) {
		struct yield_case new = CASE(TICKET, false, *tasks, *work, *work,
					     2800, .hogs = *hogs, .times = 2);

		if (*tasks > 3)
			add(new, "ticket-%d-section-%dus-hogs-%d", *tasks, *work,
			    *hogs);
		new.kind = BARRIER;
		if (*tasks > 3)
			add(new, "barrier-%d-%dus-hogs-%d", *tasks, *work, *hogs);
		new.kind = RING;
		if (*tasks == 3)
			add(new, "ring-3-%dus-hogs-%d", *work, *hogs);
	}
}

static void add_cases(void)
{
	for each(slice, 0, 2800)
	for each(tasks, 2, 4, 10, 20, 40)
		add(CASE(SWITCH, *tasks != 20, *tasks, .slice = *slice),
		    *slice ? "switch-proc-%d-slice-2.8ms" : "switch-proc-%d",
		    *tasks);
	for each(tasks, 2, 10)
		add(CASE(SWITCH, true, *tasks, .hogs = 0), "switch-thread-%d", *tasks);

	for each(work, 20, 100, 500, 2500, 20000)
	for each(slice, 0, 1400, 2800, 20000, 100000)
	for each(hogs, 1, 3)
		add(CASE(POLITE, *work <= 500 && *slice != 1400, 1, *work,
			 .slice = *slice, .hogs = *hogs,
			 .times = *work > 500 ? 5 : 2),
		    "polite-%dus-slice-%s-hogs-%d", *work, slice_name(*slice),
		    *hogs);

	for each(nice, -20, -10, 0, 10, 19)
	for each(hog_nice, -20, -10, 0, 10, 19)
		add(CASE(POLITE, !*nice != !*hog_nice && abs(*nice - *hog_nice) <= 10,
			 1, 100, .slice = 2800, .hogs = 1, .nice = *nice,
			 .hog_nice = *hog_nice, .times = 4),
		    "weight-%d-beside-%d", *nice, *hog_nice);

	for each(tasks, 1, 3, 15)
		add(CASE(POLL, true, *tasks, 5, .slice = 2800, .hogs = 1,
			 .times = 2), "poll-%d-hogs-1", *tasks);
	/* A light task waits for long, and has hogs with long slices preempted. */
	add(CASE(POLL, false, 1, 100, .slice = 100000, .hogs = 2, .nice = 19,
		 .times = 10), "poll-nice-19-slice-100ms-hogs-2");
	for each(hogs, 0, 1, 3)
		add(CASE(RING, true, 2, 1, .slice = 2800, .hogs = *hogs),
		    "ring-2-1us-hogs-%d", *hogs);
	add_locks();

	for each(tasks, 1, 3)
	for each(own, 900, 1000, 1100, 2000)
		add(CASE(SHORT, *own == 1100, *tasks + 1, 2500, .slice = 2800,
			 .own_slice = *own, .times = 4),
		    "short-%s-beside-%d", slice_name(*own), *tasks);
	for each(hogs, 1, 3)
		add(CASE(WAKE, true, 1, 100, 100, .hogs = *hogs),
		    "wake-hogs-%d", *hogs);
	for each(slice, 2800, 100000)
		add(CASE(SLEEPER, true, 2, 100, 200, *slice, .hogs = 2,
			 .times = 4), "sleeper-slice-%s", slice_name(*slice));
	for each(work, 200, 500)
		add(CASE(PERIOD, true, 4, *work, 1000, 2800, .times = 6),
		    "period-5ms-beside-%dus", *work);
	for each(slice, 0, 100000)
		add(CASE(STORM, true, 1, .slice = *slice, .hogs = 1),
		    "storm-slice-%s", slice_name(*slice));
	add(CASE(STORM, true, 1, .slice = 100000, .hogs = 1, .own_slice = 2800,
		 .nice = -10), "storm-bystander");
}

/* What the tasks of a case and this process share; times are in ns. */
struct shared {
	/* All tasks of a case start at once; @ready of them wait, or will. */
	pthread_barrier_t barrier;
	int ready;
	bool measuring;
	/* From the first call to the end of the last, if tasks only yield. */
	long long start, end;
	long calls, switches;
	/* Calls that let nobody else run, and how many in a row. */
	long stuck, longest_stuck, missed;
	/* The lock; who has the ball; the ticket lock; the barrier. */
	int lock, ball, ticket, serving, arrived, generation;
	/* Of each: how often it got it, the longest wait, when one began. */
	struct {
		long turns;
		long long longest, since;
	} task[MAX_TASKS];
	long samples;
	long long sample[MAX_SAMPLES];
};

static double rounds = 20000, seconds = 0.3, min_calls = 3, storm_seconds = 2;
static double phase;
static int cpu = -1;

static const char * const feature_names[] = { "as-is", "old", "new", "both",
					      NULL };
enum features { AS_IS, OLD, NEW, BOTH };

static bool selected[MAX_CASES];
static int features = AS_IS;
static int bit_before = -1;
static unsigned long loops_per_ms;
static struct shared *sh;
/* The case that runs, and its processes: the hogs first. */
static const struct yield_case *c;
static pid_t pid[MAX_TASKS];

/* 1 on, 0 off, -1: not readable or the kernel does not have it */
static int feature_get(void)
{
	char text[4096] = " ";

	read_text(FEATURES, text + 1, sizeof(text) - 1);
	if (strstr(text, " " BIT " "))
		return 1;

	return strstr(text, " NO_" BIT " ") ? 0 : -1;
}

static void feature_set(int on)
{
	if (on >= 0)
		write_text(FEATURES, on ? BIT : "NO_" BIT);
}

static void restore_feature(void)
{
	feature_set(bit_before);
}

/* The tasks of a case. */

static void add_sample(long long ns)
{
	long nr = sh->samples;

	if (get(sh->measuring))
		nr = __atomic_fetch_add(&sh->samples, 1, __ATOMIC_RELAXED);
	if (nr < MAX_SAMPLES)
		sh->sample[nr] = ns;
}

static void work(int usec)
{
	work_loops(usec * loops_per_ms / 1000);
}

static long count_switches(void)
{
	struct rusage usage;

	getrusage(RUSAGE_THREAD, &usage);

	return usage.ru_nvcsw + usage.ru_nivcsw;
}

/*
 * Let all tasks go at once right after a tick: how long a call takes depends
 * on where in a tick it falls.
 */
static void start_together(bool last, int waiting)
{
	struct timespec ts;
	long long until;
	long first;

	if (!last) {
		__atomic_add_fetch(&sh->ready, 1, __ATOMIC_RELAXED);
	} else {
		while (get(sh->ready) < waiting && all_well())
			sched_yield();
		clock_gettime(CLOCK_MONOTONIC_COARSE, &ts);
		first = ts.tv_nsec;
		while (ts.tv_nsec == first)
			clock_gettime(CLOCK_MONOTONIC_COARSE, &ts);
		until = now_ns() + phase * NSEC_PER_USEC;
		while (now_ns() < until)
			;
	}
	pthread_barrier_wait(&sh->barrier);
}

/* Any gap in what a task sees of the clock is a wait. */
static void watch_clock(int me, long long until, bool yields)
{
	long long now, last = now_ns();

	do {
		if (yields)
			sched_yield();
		else
			work(1);
		now = now_ns();
		if (now - last > sh->task[me].longest && get(sh->measuring))
			sh->task[me].longest = now - last;
		if (c->kind == SHORT && me == c->tasks - 1 && now - last > GAP)
			add_sample(now - last);
		last = now;
	} while (now < until);
}

/* The first task samples how long it takes until it is its turn again. */
static void *yield_only(void *first)
{
	int i, nr = rounds / c->tasks;
	long long last, now;
	long switches;

	pthread_barrier_wait(&sh->barrier);
	switches = count_switches();
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
	switches = count_switches() - switches;
	__atomic_add_fetch(&sh->switches, switches, __ATOMIC_RELAXED);
	__atomic_add_fetch(&sh->calls, nr, __ATOMIC_RELAXED);

	return NULL;
}

static bool threads(void)
{
	return strstr(c->name, "-thread-");
}

static void run_threads(void)
{
	pthread_t thread[MAX_TASKS];
	int i;

	for (i = 0; i < c->tasks; i++) {
		if (pthread_create(&thread[i], NULL, yield_only,
				   i ? NULL : thread)) {
			report(FAIL, "pthread_create: %s", strerror(errno));
			_exit(1);
		}
	}
	for (i = 0; i < c->tasks; i++)
		pthread_join(thread[i], NULL);
}

static void polite_step(void)
{
	static long run;
	long long start, end;
	long switches;

	work(c->work);
	switches = count_switches();
	start = now_ns();
	sched_yield();
	end = now_ns();
	switches = count_switches() - switches;
	if (!get(sh->measuring))
		return;

	add_sample(end - start);
	sh->calls++;
	run = switches ? 0 : run + 1;
	sh->stuck += !!run;
	if (run > sh->longest_stuck)
		sh->longest_stuck = run;
}

static void sleep_step(void)
{
	static unsigned int seed = 1;
	static long long due;

	work(c->section);
	if (c->kind == PERIOD && due) {
		add_sample(now_ns() - due);
		sh->missed += now_ns() - due > 5 * NSEC_PER_MSEC &&
			      get(sh->measuring);
	}
	if (c->kind == WAKE)
		sched_yield();
	if (c->kind == PERIOD)
		due = (due ?: now_ns()) + 5 * NSEC_PER_MSEC;
	else
		due = now_ns() + NSEC_PER_MSEC;
	if (c->kind == SLEEPER)
		due += (2000 + rand_r(&seed) % 4000) * NSEC_PER_USEC;
	sleep_until(due);
	if (c->kind != PERIOD)
		add_sample(now_ns() - due);
}

/* Tries some times, then yields, until it is. */
#define wait_until(is)							\
	for (int tries = 0; !(is); )					\
		if (++tries % SPINS == 0)				\
			__atomic_add_fetch(&sh->calls, sched_yield() + 1, \
					   __ATOMIC_RELAXED)

static bool try_lock(void)
{
	int free = 0;

	return __atomic_compare_exchange_n(&sh->lock, &free, 1, false,
					   __ATOMIC_ACQUIRE, __ATOMIC_RELAXED);
}

/* By up to half, but for the busy lock. */
static int vary(int usec, unsigned int *seed)
{
	if (c->work != c->section)
		return usec;

	return usec * (500 + rand_r(seed) % 1001) / 1000;
}

static void lock_step(int me)
{
	static unsigned int seed;
	long long start = now_ns();
	int ticket;

	if (!seed)
		seed = me + 1;
	set(sh->task[me].since, start);
	if (c->kind == LOCK) {
		wait_until(try_lock());
	} else {
		ticket = __atomic_fetch_add(&sh->ticket, 1, __ATOMIC_RELAXED);
		wait_until(get(sh->serving) == ticket);
	}
	set(sh->task[me].since, 0);
	start = now_ns() - start;
	add_sample(start);
	if (get(sh->measuring)) {
		sh->task[me].turns++;
		if (start > sh->task[me].longest)
			sh->task[me].longest = start;
	}
	work(vary(c->section, &seed));
	if (c->kind == LOCK)
		__atomic_store_n(&sh->lock, 0, __ATOMIC_RELEASE);
	else
		__atomic_add_fetch(&sh->serving, 1, __ATOMIC_RELEASE);
	work(vary(c->work, &seed));
}

static void barrier_step(int me)
{
	int generation = get(sh->generation);

	work(c->work);
	sh->task[me].turns += get(sh->measuring);
	if (__atomic_add_fetch(&sh->arrived, 1, __ATOMIC_SEQ_CST) == c->tasks) {
		set(sh->arrived, 0);
		__atomic_add_fetch(&sh->generation, 1, __ATOMIC_SEQ_CST);
	}
	wait_until(get(sh->generation) != generation);
}

static void ring_step(int me)
{
	while (get(sh->ball) != me)
		sched_yield();
	work(c->work);
	sh->task[me].turns += get(sh->measuring);
	set(sh->ball, (me + 1) % c->tasks);
}

static void step(int me)
{
	bool last = me == c->tasks - 1;

	switch (c->kind) {
	case POLITE:
		return polite_step();
	case LOCK:
	case TICKET:
		return lock_step(me);
	case BARRIER:
		return barrier_step(me);
	case RING:
		return ring_step(me);
	case STORM:
		watch_clock(me, now_ns() + storm_seconds * NSEC_PER_SEC, true);
		return watch_clock(me, LLONG_MAX, false);
	case SHORT:
		if (last)
			watch_clock(me, LLONG_MAX, false);
		break;
	case WAKE:
	case SLEEPER:
	case PERIOD:
		if (last)
			return sleep_step();
		break;
	default:
		break;
	}
	work(c->work);
	sched_yield();
}

/* @me: from 0, hogs are negative */
static __noreturn void run_task(int me)
{
	int nice = me < 0 ? c->hog_nice : c->nice, slice = c->slice;

	if (me >= (c->tasks + 1) / 2 && c->light)
		nice = c->light;
	if (c->own_slice && (c->kind == STORM ? me < 0 : me == c->tasks - 1))
		slice = c->own_slice;
	if (!become_fair(nice, slice * NSEC_PER_USEC)) {
		report(errno == EPERM ? SKIP : FAIL, "sched_setattr: %s",
		       strerror(errno));
		_exit(1);
	}
	if (threads()) {
		run_threads();
		_exit(0);
	}
	if (c->kind == SWITCH) {
		yield_only(me ? NULL : sh);
		_exit(0);
	}
	start_together(me == c->tasks - 1, c->hogs + c->tasks - 1);
	if (me < 0)
		watch_clock(MAX_TASKS + me, LLONG_MAX, false);
	for (;;)
		step(me);
}

/* The figures of a case. */

static long long cpu_time(pid_t pid)
{
	clockid_t id;

	return clock_getcpuclockid(pid, &id) ? 0 : clock_ns(id);
}

/* What the tasks and the hogs have used, how often hogs were preempted. */
struct usage {
	long long now, tasks, hogs;
	long preempted;
};

static struct usage get_usage(void)
{
	struct usage usage = { .now = now_ns() };
	char path[64], text[4096];
	const char *row;
	int i;

	for (i = 0; i < c->hogs + c->tasks; i++)
		*(i < c->hogs ? &usage.hogs : &usage.tasks) += cpu_time(pid[i]);
	for (i = 0; i < c->hogs; i++) {
		snprintf(path, sizeof(path), "/proc/%d/status", pid[i]);
		read_text(path, text, sizeof(text));
		row = strstr(text, "nonvoluntary_ctxt_switches:");
		usage.preempted += row ? atol(strchr(row, ':') + 1) : 0;
	}

	return usage;
}

static void add_percentile(struct result *res, const char *name, int p)
{
	long n = sh->samples < MAX_SAMPLES ? sh->samples : MAX_SAMPLES;

	if (n)
		add_figure(res, name, sh->sample[(p * n + 99) / 100 - 1]);
}

static void add_turns(struct result *res, double took)
{
	long long longest = 0, wait, heavy = 0, light = 0, now = now_ns();
	int i;

	for (i = 0; i < c->tasks; i++) {
		wait = sh->task[i].since ? now - sh->task[i].since : 0;
		if (wait < sh->task[i].longest)
			wait = sh->task[i].longest;
		longest = wait > longest ? wait : longest;
		*(i < (c->tasks + 1) / 2 ? &heavy : &light) += sh->task[i].turns;
	}
	add_figure(res, c->kind == RING ? "passes_per_s" : "acquisitions_per_s",
		   (heavy + light) / took);
	if (c->light)
		add_figure(res, "light_per_s", light / took);
	if (c->kind == LOCK || c->kind == TICKET)
		add_figure(res, "longest_wait", longest);
}

static void add_figures(struct result *res, const struct usage *start,
			const struct usage *end)
{
	static const int percents[] = { 40, 50, 60, 90, 99, 100 };
	static const char * const names[] = { "p40", "p50", "p60", "p90", "p99",
					      "max" };
	double elapsed = end->now - start->now, ns = sh->end - sh->start;
	unsigned int i;

	qsort(sh->sample, sh->samples < MAX_SAMPLES ? sh->samples : MAX_SAMPLES,
	      sizeof(*sh->sample), compare_ns);
	if (sh->calls)
		add_figure(res, "calls", sh->calls);
	if (c->kind == SWITCH) {
		add_figure(res, "switches", sh->switches);
		add_figure(res, "ns_per_call", ns / sh->calls);
		if (sh->switches)
			add_figure(res, "ns_per_switch", ns / sh->switches);
		add_percentile(res, "p50", 50);
		return;
	}
	for (i = 0; i < ARRAY_SIZE(names); i++)
		add_percentile(res, names[i], percents[i]);
	add_figure(res, "share", 100 * (end->tasks - start->tasks) / elapsed);
	if (c->hogs) {
		add_figure(res, "hogs_share",
			   100 * (end->hogs - start->hogs) / elapsed);
		add_figure(res, "hogs_preempted_per_s", 1e9 / elapsed *
			   (end->preempted - start->preempted));
		add_figure(res, "longest_wait_hog",
			   sh->task[MAX_TASKS - 1].longest);
	}
	if (c->kind == POLITE) {
		add_figure(res, "stuck", sh->stuck);
		add_figure(res, "longest_stuck", sh->longest_stuck);
	} else if (c->kind == PERIOD) {
		add_figure(res, "missed", sh->missed);
	} else if (c->kind == STORM) {
		add_figure(res, "longest_wait_yielder", sh->task[0].longest);
	} else if (c->kind >= RING && c->kind <= BARRIER) {
		add_turns(res, elapsed / 1e9);
	}
}

/* @which: how the feature bit is to be set */
static void run_case(struct result *res, enum features which)
{
	int nr = c->hogs + (threads() ? 1 : c->tasks), i, tries;
	struct usage start = {}, end = {};
	pthread_barrierattr_t attr;

	memset(sh, 0, sizeof(*sh));
	if (which != AS_IS) {
		feature_set(which == NEW);
		if (feature_get() != (which == NEW)) {
			report(SKIP, "the feature bit cannot be set");
			return;
		}
	}
	pthread_barrierattr_init(&attr);
	pthread_barrierattr_setpshared(&attr, PTHREAD_PROCESS_SHARED);
	pthread_barrier_init(&sh->barrier, &attr, c->hogs + c->tasks);
	sh->measuring = c->kind == SWITCH;

	for (i = 0; i < nr; i++) {
		pid[i] = fork_task();
		if (!pid[i])
			run_task(i - c->hogs);
	}
	if (c->kind != SWITCH && all_well()) {
		/* Until it is as it will be. */
		sleep_ns(c->kind == STORM ? NSEC_PER_MSEC :
			 100 * NSEC_PER_MSEC +
			 c->slice * (c->hogs + 2) * NSEC_PER_USEC);
		start = get_usage();
		set(sh->measuring, true);
		if (c->kind == STORM)
			sleep_ns(1.5 * storm_seconds * NSEC_PER_SEC);
		else
			sleep_ns(seconds * c->times * NSEC_PER_SEC);
		for (tries = 0; tries < 10000 && c->kind == POLITE &&
		     get(sh->calls) < min_calls; tries++)
			sleep_ns(NSEC_PER_MSEC);
		set(sh->measuring, false);
		end = get_usage();
	}
	for (i = 0; i < nr; i++) {
		if (pid[i] <= 0)
			continue;
		if (c->kind != SWITCH && waitpid(pid[i], NULL, WNOHANG))
			report(FAIL, "a task ended");
		end_task(pid[i], c->kind != SWITCH);
	}
	if (all_well())
		add_figures(res, &start, &end);
}

static int measure(void)
{
	static const char * const kinds[] = { "switch", "polite", "poll", "ring",
		"lock", "ticket", "barrier", "short", "wake", "sleeper",
		"period", "storm" };
	const char *kind;
	unsigned int i;

	if (!pin_to(cpu)) {
		perror("sched_setaffinity");
		return EXIT_FAILURE;
	}
	loops_per_ms = loops_in(NSEC_PER_MSEC);
	/* Children do not keep it: become_fair(). */
	become_fifo(50, 0);
	printf("CPU %d, tick %lld ns, %.0f rounds, %g seconds, storms of %g seconds\n",
	       cpu, tick_ns(), rounds, seconds, storm_seconds);
	for (i = 0; i < nr; i++) {
		enum features which = features == BOTH ? OLD : features;
		enum features last = features == BOTH ? NEW : features;

		for (c = &cases[i]; selected[i] && which <= last; which++) {
			struct result res = {};

			strcpy(res.name, c->name);
			run_case(&res, which);
			if (which)
				printf("%s ", feature_names[which]);
			kind = !strncmp(c->name, "weight", 6) ? "weight" :
				kinds[c->kind];
			snprintf(res.more, sizeof(res.more),
				 "\"kind\": \"%s\", \"features\": \"%s\", \"tasks\": %d, \"work_us\": %d, \"section_us\": %d, \"slice_us\": %d, \"hogs\": %d, \"nice\": %d, \"hog_nice\": %d, \"light\": %d, ",
				 kind, feature_names[which], c->tasks, c->work,
				 c->section, c->slice, c->hogs, c->nice,
				 c->hog_nice, c->light);
			end_case(&res);
		}
	}

	return end_cases();
}

static int select_cases(const char *pattern, bool all)
{
	int found = 0;
	unsigned int i;

	for (i = 0; i < nr; i++) {
		if ((!all && !cases[i].usual) ||
		    fnmatch(pattern, cases[i].name, 0))
			continue;
		selected[i] = true;
		found++;
	}

	return found;
}

int main(int argc, char **argv)
{
	static const char *patterns[MAX_CASES + 1];
	bool all = false, list = false;
	const struct option_of options[] = {
		{ .name = "rounds", .kind = NUMBER, .value = &rounds, .min = 100,
		  .max = 1e7, .help = "yields of each switch-* case (default 20000)" },
		{ .name = "seconds", .kind = NUMBER, .value = &seconds, .min = 0.01,
		  .max = 1000, .help = "how long the shortest of the other cases takes\n"
		  "               (default 0.3)" },
		{ .name = "calls", .kind = NUMBER, .value = &min_calls, .min = 1,
		  .max = 1e4, .help = "the least yields of each polite worker (default 3)" },
		{ .name = "storm", .kind = NUMBER, .value = &storm_seconds, .min = 0.01,
		  .max = 1000, .help = "how long the yields of a storm take (default 2 s)" },
		{ .name = "phase", .kind = NUMBER, .value = &phase, .max = 1e4,
		  .help = "start cases so many us after a tick (default 0)" },
		{ .name = "cpu", .kind = CPU, .value = &cpu,
		  .help = "where to run (default: the first that is allowed)" },
		{ .name = "case", .kind = TEXTS, .value = patterns,
		  .max = ARRAY_SIZE(patterns), .help = "only this case; repeatable, * ? [] match" },
		{ .name = "all", .kind = FLAG, .value = &all,
		  .help = "also the cases that are many" },
		{ .name = "features", .kind = NAME, .value = &features,
		  .names = feature_names, .help = "YIELD_TICK off, on, or each case both ways" },
		JSON_OPTION,
		{ .name = "list", .kind = FLAG, .value = &list,
		  .help = "print the names of the cases and exit" },
		{}
	};
	unsigned int i;

	add_cases();
	read_options(argc, argv, false, options,
		     "Usage: yield_latency [OPTION]...\n"
		     "What sched_yield() is worth to those who use it, and what it costs others.");
	for (i = 0; patterns[i]; i++) {
		if (!select_cases(patterns[i], true))
			usage_error("--case %s: no such case", patterns[i]);
	}
	if (all || !i)
		select_cases("*", all);
	if (list) {
		for (i = 0; i < nr; i++) {
			if (selected[i])
				puts(cases[i].name);
		}
		return EXIT_SUCCESS;
	}
	if (cpu < 0)
		cpu = first_cpu();
	json_begin("yield_latency", "ns", cpu,
		   "\"rounds\": %.0f,\n  \"seconds\": %g,\n  \"phase_us\": %g,\n  "
		   "\"calls\": %g,\n  \"storm_seconds\": %g,\n  ",
		   rounds, seconds, phase, min_calls, storm_seconds);
	problem = map_shared(sizeof(*problem));
	sh = map_shared(sizeof(*sh));
	if (features != AS_IS)
		bit_before = feature_get();

	return measure_and_clean_up(measure, restore_feature);
}
