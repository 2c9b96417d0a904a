// SPDX-License-Identifier: GPL-2.0
/*
 * What sched_yield() is worth to those who use it, and what it costs others.
 *
 * switch-*	processes or threads do nothing but yield: the time of a switch
 * polite-*	a worker computes, yields, and so on, beside hogs: its share of the CPU, how long a
 *		call takes, how many let nobody else run
 * weight-*	the same with different nice values
 * poll-*	tasks poll something and yield in between: what a hog keeps
 * ring-*	tasks pass a ball and yield until they have it
 * lock-*	tasks try 100 times to get a lock, then yield, until they get it
 * ticket-*	the same with a lock that goes from one to the next in turn
 * barrier-*	tasks compute, and yield until all of them have
 * short-*	a task that computes with a slice of its own, beside tasks that compute for 2.5 ms
 *		and yield: how long it waits
 * wake-*	yield, then sleep for 1 ms: how late the wake-up is
 * sleeper-*	sleep for 3 to 7 ms, compute for 200 us, beside hogs and a task that yields: how
 *		late the wake-up is
 * period-*	compute for 1 ms each 5 ms, beside tasks that compute and yield: when that is done
 * storm-*	yield, then spin: the longest waits; bystander: of a hog beside a heavy task that
 *		does that with a slice of 100 ms
 *
 * All tasks run on one CPU. This process times them at a real-time priority, if it may have one. No
 * figure makes a case fail. Arguments are patterns of cases; without any the usual ones run, with
 * --all also those which are many. They begin --phase us after a tick. With --both each runs with
 * the scheduler's feature bit YIELD_TICK off (old) and on (new); it is restored at the end.
 */
#include "bench_helpers.h"

#include <fnmatch.h>
#include <pthread.h>

#define FEATURES	"/sys/kernel/debug/sched/features"
#define BIT		"YIELD_TICK"
#define MAX_TASKS	64
#define MAX_CASES	400
#define MAX_SAMPLES	200000

enum kind {
	SWITCH, POLITE, POLL, RING, LOCK, TICKET, BARRIER, SHORT, WAKE, SLEEPER,
	PERIOD, STORM,
};

/* Times are in microseconds. */
struct yield_case {
	enum kind kind;
	bool usual;
	int tasks;		/* besides the hogs, which use the CPU all the time */
	int work, section;	/* between two yields; with the lock, or between two sleeps */
	int slice, own_slice;	/* 0 for the default; of the last task, if it has its own */
	int hogs, nice, hog_nice;
	int light;		/* nice value of the second half of the tasks, if not 0 */
	double times;		/* how many times --seconds it takes */
	char name[64];		/* tools rely on it; the first word is the kind they see */
};

static struct yield_case cases[MAX_CASES];
static unsigned int nr;
static bool all;
/* An argument, or NULL for the usual ones or all. */
static const char *pattern;

static __printf(2, 3) void add(struct yield_case new, const char *fmt, ...)
{
	va_list args;

	va_start(args, fmt);
	vsnprintf(new.name, sizeof(new.name), fmt, args);
	va_end(args);
	if (pattern ? fnmatch(pattern, new.name, 0) : !all && !new.usual)
		return;
	if (nr == MAX_CASES)
		abort();
	new.times = new.times ?: 1;
	cases[nr++] = new;
}

static const char *slice_name(int slice)
{
	static char text[16];

	if (!slice)
		return "default";
	snprintf(text, sizeof(text), "%gms", slice / 1000.0);
	return text;
}

#define CASE(...)	((struct yield_case){ __VA_ARGS__ })
#define each(p, ...)							\
	(const int list_##p[] = { __VA_ARGS__ }, *p = list_##p;		\
	 p < list_##p + ARRAY_SIZE(list_##p); p++)

static void add_cases(void)
{
	for each(slice, 0, 2800)
	for each(tasks, 2, 4, 10, 20, 40)
		add(CASE(SWITCH, *tasks != 20, *tasks, .slice = *slice),
		    *slice ? "switch-proc-%d-slice-2.8ms" : "switch-proc-%d", *tasks);
	for each(tasks, 2, 10)
		add(CASE(SWITCH, true, *tasks, .slice = 0), "switch-thread-%d", *tasks);

	for each(work, 20, 100, 500, 2500, 20000)
	for each(slice, 0, 1400, 2800, 20000, 100000)
	for each(hogs, 1, 3)
		add(CASE(POLITE, *work <= 500 && *slice != 1400, 1, *work, .slice = *slice,
			 .hogs = *hogs, .times = *work > 500 ? 5 : 2),
		    "polite-%dus-slice-%s-hogs-%d", *work, slice_name(*slice), *hogs);

	for each(nice, -20, -10, 0, 10, 19)
	for each(hog_nice, -20, -10, 0, 10, 19)
		add(CASE(POLITE, !*nice != !*hog_nice && abs(*nice - *hog_nice) <= 10, 1, 100,
			 .slice = 2800, .hogs = 1, .nice = *nice, .hog_nice = *hog_nice,
			 .times = 4), "weight-%d-beside-%d", *nice, *hog_nice);

	for each(tasks, 1, 3, 15)
		add(CASE(POLL, true, *tasks, 5, .slice = 2800, .hogs = 1, .times = 2),
		    "poll-%d-hogs-1", *tasks);
	/* A light task waits for long, and has hogs with long slices preempted. */
	add(CASE(POLL, false, 1, 100, .slice = 100000, .hogs = 2, .nice = 19, .times = 10),
	    "poll-nice-19-slice-100ms-hogs-2");
	for each(hogs, 0, 1, 3)
		add(CASE(RING, true, 2, 1, .slice = 2800, .hogs = *hogs), "ring-2-1us-hogs-%d",
		    *hogs);

	for each(hogs, 0, 1)
	for each(tasks, 4, 8)
	for each(section, 1, 5, 20, 200, 2000)
	for each(light, 0, 10)
		add(CASE(LOCK, !*light && *hogs && *section >= 20, *tasks, *section, *section,
			 2800, .hogs = *hogs, .light = *light, .times = 3),
		    "lock-%d-section-%dus-hogs-%d%s", *tasks, *section, *hogs,
		    *light ? "-mixed" : "");

	/* A lock that is hardly free, between heavy and light tasks. */
	for each(hogs, 0, 1)
	for each(light, 0, 10, 19)
		add(CASE(LOCK, *light == 10, 8, 50, 200, 2800, .hogs = *hogs, .light = *light,
			 .times = 12), "lock-8-busy-nice-%d-hogs-%d", *light, *hogs);

	for each(hogs, 0, 1)
	for each(work, 20, 200) {
		struct yield_case new = CASE(RING, false, 3, *work, *work, 2800, .hogs = *hogs,
					     .times = 2);

		add(new, "ring-3-%dus-hogs-%d", *work, *hogs);
		for each(tasks, 4, 8) {
			new.tasks = *tasks;
			new.kind = TICKET;
			add(new, "ticket-%d-section-%dus-hogs-%d", *tasks, *work, *hogs);
			new.kind = BARRIER;
			add(new, "barrier-%d-%dus-hogs-%d", *tasks, *work, *hogs);
		}
	}

	for each(tasks, 1, 3)
	for each(own, 900, 1000, 1100, 2000)
		add(CASE(SHORT, *own == 1100, *tasks + 1, 2500, .slice = 2800, .own_slice = *own,
			 .times = 4), "short-%s-beside-%d", slice_name(*own), *tasks);
	for each(hogs, 1, 3)
		add(CASE(WAKE, true, 1, 100, 100, .hogs = *hogs), "wake-hogs-%d", *hogs);
	for each(slice, 2800, 100000)
		add(CASE(SLEEPER, true, 2, 100, 200, *slice, .hogs = 2, .times = 4),
		    "sleeper-slice-%s", slice_name(*slice));
	for each(work, 200, 500)
		add(CASE(PERIOD, true, 4, *work, 1000, 2800, .times = 6),
		    "period-5ms-beside-%dus", *work);
	for each(slice, 0, 100000)
		add(CASE(STORM, true, 1, .slice = *slice, .hogs = 1), "storm-slice-%s",
		    slice_name(*slice));
	add(CASE(STORM, true, 1, .slice = 100000, .hogs = 1, .own_slice = 2800, .nice = -10),
	    "storm-bystander");
}

/* What the tasks of a case and this process share; times are in ns. */
static struct shared {
	pthread_barrier_t barrier;	/* all tasks of a case start at once */
	int ready;			/* of them wait, or will */
	bool measuring;
	/* If tasks only yield: from the first call to the end of the last. */
	long long start, end;
	long calls, switches;
	long stuck;			/* calls that let nobody else run */
	/* The lock; who has the ball; the ticket lock; the barrier. */
	int lock, ball, ticket, serving, arrived, generation;
	/* Of each: how often it got it, the longest wait, when one began. */
	struct {
		long turns;
		long long longest, since;
	} task[MAX_TASKS];
	long samples;
	long long sample[MAX_SAMPLES];
} *sh;

static double rounds = 20000, seconds = 0.3, min_calls = 3, phase;
static bool both;

/* The scheduler's feature bit; AS_IS as well, if it cannot be read. */
enum bit { AS_IS, OLD, NEW };

static const char * const bit_names[] = { "as-is", "old", "new" };
static enum bit bit_before;
static unsigned long loops_per_ms;
/* The case that runs, and its processes: the hogs first. */
static const struct yield_case *c;
static pid_t pid[MAX_TASKS];

static enum bit get_bit(void)
{
	char text[4096] = " ";

	read_text(FEATURES, text + 1, sizeof(text) - 1);
	return strstr(text, " " BIT " ") ? NEW : strstr(text, " NO_" BIT " ") ? OLD : AS_IS;
}

static void set_bit(enum bit bit)
{
	if (bit != AS_IS)
		write_text(bit == NEW ? BIT : "NO_" BIT, FEATURES);
}

static void restore_bit(void)
{
	set_bit(bit_before);
}

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

/* All tasks go at once right after a tick, which says how long a call takes. */
static void start_together(bool last, int waiting)
{
	long long tick, until;

	if (!last) {
		__atomic_add_fetch(&sh->ready, 1, __ATOMIC_RELAXED);
	} else {
		while (get(sh->ready) < waiting && all_well())
			sched_yield();
		tick = clock_ns(CLOCK_MONOTONIC_COARSE);
		while (clock_ns(CLOCK_MONOTONIC_COARSE) == tick)
			;
		until = now_ns() + phase * NSEC_PER_USEC;
		while (now_ns() < until)
			;
	}
	pthread_barrier_wait(&sh->barrier);
}

/* Any gap in what a task sees of the clock is a wait; short ones are no samples. */
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
		if (c->kind == SHORT && me == c->tasks - 1 && now - last > 20 * NSEC_PER_USEC)
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
	return NULL;
}

static void run_threads(void)
{
	pthread_t thread[MAX_TASKS];
	int i;

	for (i = 0; i < c->tasks; i++) {
		if (pthread_create(&thread[i], NULL, yield_only, i ? NULL : thread))
			errx(EXIT_FAILURE, "no thread can be made");
	}
	for (i = 0; i < c->tasks; i++)
		pthread_join(thread[i], NULL);
}

static void polite_step(void)
{
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
	sh->stuck += !switches;
}

static void sleep_step(void)
{
	static unsigned int seed = 1;
	static long long due;

	work(c->section);
	if (c->kind == PERIOD && due)
		add_sample(now_ns() - due);
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

/* Tries 100 times, then yields, until it is. */
#define wait_until(is)							\
	for (int tries = 0; !(is); )					\
		if (++tries % 100 == 0)				\
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

/* 2 s by default. */
static long long storm_ns(void)
{
	return seconds / 0.3 * 2 * NSEC_PER_SEC;
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
		watch_clock(me, now_ns() + storm_ns(), true);
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

static bool is_light(int me)
{
	return c->light && me >= (c->tasks + 1) / 2;
}

/* @me: from 0, hogs are negative */
static __noreturn void run_task(int me)
{
	int nice = me < 0 ? c->hog_nice : c->nice, slice = c->slice;

	if (is_light(me))
		nice = c->light;
	if (c->own_slice && (c->kind == STORM ? me < 0 : me == c->tasks - 1))
		slice = c->own_slice;
	if (!become_fair(nice, slice * NSEC_PER_USEC)) {
		report(errno == EPERM ? SKIP : FAIL, "sched_setattr: %s", strerror(errno));
		_exit(1);
	}
	if (strstr(c->name, "-thread-"))
		run_threads();
	else if (c->kind == SWITCH)
		yield_only(me ? NULL : sh);
	if (c->kind == SWITCH)
		_exit(0);
	start_together(me == c->tasks - 1, c->hogs + c->tasks - 1);
	if (me < 0)
		watch_clock(MAX_TASKS + me, LLONG_MAX, false);
	for (;;)
		step(me);
}

/* What the tasks and the hogs have used, how often hogs were preempted. */
struct usage {
	long long time, tasks, hogs;
	long preempted;
};

static void add_usage(struct usage *usage, int sign)
{
	char path[64];
	int i;

	usage->time += sign * now_ns();
	for (i = 0; i < c->hogs + c->tasks; i++)
		*(i < c->hogs ? &usage->hogs : &usage->tasks) += sign * cpu_time(pid[i]);
	for (i = 0; i < c->hogs; i++) {
		snprintf(path, sizeof(path), "/proc/%d/status", pid[i]);
		usage->preempted += sign * number_in(path, "nonvoluntary_ctxt_switches:");
	}
}

static void add_turns(double took)
{
	long long longest = 0, wait, turns[2] = {}, now = now_ns();
	int i;

	for (i = 0; i < c->tasks; i++) {
		wait = sh->task[i].since ? now - sh->task[i].since : 0;
		longest = MAX(longest, MAX(wait, sh->task[i].longest));
		turns[is_light(i)] += sh->task[i].turns;
	}
	add_figure(c->kind == RING ? "passes_per_s" : "acquisitions_per_s",
		   (turns[0] + turns[1]) / took);
	if (c->light)
		add_figure("light_per_s", turns[1] / took);
	if (c->kind == LOCK || c->kind == TICKET)
		add_figure("longest_wait", longest);
}

static void add_figures(const struct usage *usage)
{
	static const int percents[] = { 40, 50, 60, 99 };
	static const char * const names[] = { "p40", "p50", "p60", "p99" };
	long n = sh->samples < MAX_SAMPLES ? sh->samples : MAX_SAMPLES;
	double elapsed = usage->time;
	unsigned int i;

	if (c->kind == SWITCH) {
		if (sh->switches)
			add_figure("ns_per_switch", (double)(sh->end - sh->start) / sh->switches);
		return;
	}
	qsort(sh->sample, n, sizeof(*sh->sample), compare_ns);
	for (i = 0; n && i < ARRAY_SIZE(names); i++)
		add_figure(names[i], percentile(sh->sample, n, percents[i]));
	add_figure("share", 100 * usage->tasks / elapsed);
	if (c->hogs) {
		add_figure("hogs_share", 100 * usage->hogs / elapsed);
		add_figure("hogs_preempted_per_s", 1e9 / elapsed * usage->preempted);
		add_figure("longest_wait_hog", sh->task[MAX_TASKS - 1].longest);
	}
	if (c->kind == POLITE) {
		add_figure("calls", sh->calls);
		add_figure("stuck", sh->stuck);
	} else if (c->kind == STORM) {
		add_figure("longest_wait_yielder", sh->task[0].longest);
	} else if (c->kind >= RING && c->kind <= BARRIER) {
		add_turns(elapsed / 1e9);
	}
}

static void run_case(enum bit bit)
{
	int nr = strstr(c->name, "-thread-") ? 1 : c->hogs + c->tasks, i, tries;
	struct usage usage = {};
	pthread_barrierattr_t attr;

	memset(sh, 0, sizeof(*sh));
	set_bit(bit);
	if (bit != AS_IS && get_bit() != bit) {
		report(SKIP, "the feature bit cannot be set");
		return;
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
		sleep_ns(c->kind == STORM ? NSEC_PER_MSEC : 100 * NSEC_PER_MSEC + c->slice *
			 (c->hogs + 2) * NSEC_PER_USEC);
		add_usage(&usage, -1);
		set(sh->measuring, true);
		if (c->kind == STORM)
			sleep_ns(1.5 * storm_ns());
		else
			sleep_ns(seconds * c->times * NSEC_PER_SEC);
		for (tries = 0; tries < 10000 && c->kind == POLITE &&
		     get(sh->calls) < min_calls; tries++)
			sleep_ns(NSEC_PER_MSEC);
		set(sh->measuring, false);
		add_usage(&usage, 1);
	}
	for (i = 0; i < nr; i++) {
		if (c->kind == SWITCH)
			check_status("a task", end_task(pid[i], false));
		else if (pid[i] > 0 && waitpid(pid[i], NULL, WNOHANG))
			report(FAIL, "a task ended");
		else
			end_task(pid[i], true);
	}
	if (all_well())
		add_figures(&usage);
}

int main(int argc, char **argv)
{
	const struct option_of options[] = {
		{ "rounds", NUMBER, &rounds, 100, 1e7 },
		{ "seconds", NUMBER, &seconds, 0.01, 1000 },
		{ "calls", NUMBER, &min_calls, 1, 1e4 },
		{ "phase", NUMBER, &phase, 0, 1e4 },
		{ "all", FLAG, &all, 0, 0 },
		{ "both", FLAG, &both, 0, 0 },
		JSON_OPTION, {}
	};
	enum bit bit;
	unsigned int before;
	int i;

	begin_cases("yield_latency", argc, argv, true, options);
	if (optind == argc)
		add_cases();
	for (i = optind; i < argc; i++) {
		pattern = argv[i];
		before = nr;
		add_cases();
		if (nr == before)
			errx(EXIT_FAILURE, "%s: no such case", pattern);
	}
	sh = map_shared(sizeof(*sh));
	if (both) {
		bit_before = get_bit();
		clean_up_at_end(restore_bit);
	}
	if (!use_cpus(1))
		err(EXIT_FAILURE, "sched_setaffinity");
	loops_per_ms = loops_in(NSEC_PER_MSEC);
	/* Children do not keep it: become_fair(). */
	become_fifo(50, 0);
	for (c = cases; c < cases + nr; c++) {
		for (bit = both ? OLD : AS_IS; bit <= (both ? NEW : AS_IS); bit++) {
			strcpy(res->name, c->name);
			/* The kind is the first word of the name. */
			snprintf(res->more, sizeof(res->more),
				 "\"kind\": \"%.*s\", \"features\": \"%s\", \"work_us\": %d, \"slice_us\": %d, \"hogs\": %d, ",
				 (int)strcspn(c->name, "-"), c->name, bit_names[bit], c->work,
				 c->slice, c->hogs);
			run_case(bit);
			end_case();
		}
	}
	return end_cases();
}
