// SPDX-License-Identifier: GPL-2.0
/*
 * A sched_yield() lets somebody else run, and nobody is forgotten.
 *
 * With YIELD_TICK alone a yielder with a long slice is still the best pick
 * after most yields. With YIELD_HANDOVER, too, the next best task runs. The
 * other side of that is what the rest of the tests are about: a task that is
 * picked in spite of its lag must not cost anybody else more than the lag that
 * EEVDF allows, neither hogs nor other yielders nor a task that wakes up.
 *
 * All tasks are pinned to one CPU. The test is SCHED_FIFO there, so they stand
 * still while it looks at what the kernel accounts to them: switches, CPU time
 * and vruntime. A wait is measured in CPU time which the others used in the
 * meantime. Clocks only end a test which does not come to an end.
 *
 * YIELD_BITS=off in the environment runs the same on a kernel that has the
 * feature bits off, or does not have them.
 */
#include <poll.h>
#include <sys/resource.h>

#include "kselftest_harness.h"
#include "yield_helpers.h"

#define MAX_TASKS	16
#define WATCHDOG	28
#define CGROUPS		"/sys/fs/cgroup"

/**
 * struct progress - what a task says about itself, in shared memory
 * @calls:	yields, or wake-ups of a sleeper
 * @stuck:	yields after which nobody else ran, as the kernel counts
 * @run:	how many of these in a row
 * @longest:	the most of these in a row
 * @stalled:	CPU time in ns in which it did not execute
 */
struct progress {
	unsigned long calls;
	unsigned long stuck;
	unsigned long run;
	unsigned long longest;
	long long stalled;
};

enum role {
	HOG,
	YIELDER,
	SLEEPER,
};

/**
 * struct stretch - since when a task sees no gap in what it executes
 * @from:	ns, when it began
 * @last:	ns, when the task looked the last time
 * @own:	CPU time in ns at @from
 */
struct stretch {
	long long from;
	long long last;
	long long own;
};

struct member {
	enum role role;
	pid_t pid;
	struct task_account first, last;
	long long waited;
	long long longest_wait;
};

/* @work: what a yielder computes before each call, in ns */
struct crew {
	struct member member[MAX_TASKS];
	struct progress *progress;
	long long work;
	int nr;
	int ready[2];
};

static long count_switches(void)
{
	struct rusage usage;

	getrusage(RUSAGE_SELF, &usage);

	return usage.ru_nvcsw + usage.ru_nivcsw;
}

static long long own_time(void)
{
	struct timespec ts;

	clock_gettime(CLOCK_PROCESS_CPUTIME_ID, &ts);

	return ts.tv_sec * NSEC_PER_SEC + ts.tv_nsec;
}

static void begin_stretch(struct stretch *s)
{
	s->own = own_time();
	s->from = now_ns();
	s->last = s->from;
}

/*
 * In a guest, the host may take the CPU away. Then the tick is late and the
 * task is accounted more than it should get, at the cost of others.
 *
 * A task that reads its CPU time is looked at by the scheduler, as by the tick,
 * and leaves when what it was handed is over. A task that only computes does
 * not. So read it only after a gap, when the task has just got the CPU.
 *
 * Returns for how long the task has computed since it looked the last time.
 */
static long long note_stall(struct progress *p, struct stretch *s)
{
	long long seen = s->last - s->from, own = s->own, now = now_ns();
	long long passed = now - s->last, stalled;

	if (passed <= tick_ns() / 4) {
		s->last = now;
		return passed;
	}
	begin_stretch(s);
	stalled = s->own - own - seen;
	if (stalled > tick_ns() / 4)
		p->stalled += stalled;

	return 0;
}

static __noreturn void run_hog(struct progress *p)
{
	struct stretch stretch;

	begin_stretch(&stretch);
	for (;;)
		note_stall(p, &stretch);
}

static __noreturn void run_yielder(struct progress *p, long long work)
{
	struct stretch stretch;
	long before, after;
	long long done;

	begin_stretch(&stretch);
	for (;;) {
		done = 0;
		do {
			done += note_stall(p, &stretch);
		} while (done < work);
		before = count_switches();
		sched_yield();
		after = count_switches();

		if (after == before) {
			p->stuck++;
			p->run++;
			if (p->run > p->longest)
				p->longest = p->run;
		} else {
			p->run = 0;
		}
		p->calls++;
	}
}

static __noreturn void run_sleeper(struct progress *p)
{
	const struct timespec ms = { .tv_nsec = NSEC_PER_MSEC };

	for (;;) {
		nanosleep(&ms, NULL);
		p->calls++;
	}
}

static bool crew_init(struct crew *crew)
{
	memset(crew, 0, sizeof(*crew));
	crew->ready[0] = -1;
	crew->ready[1] = -1;
	crew->progress = mmap(NULL, MAX_TASKS * sizeof(*crew->progress),
			      PROT_READ | PROT_WRITE,
			      MAP_SHARED | MAP_ANONYMOUS, -1, 0);

	return crew->progress != MAP_FAILED && !pipe2(crew->ready, O_CLOEXEC);
}

static void crew_end(struct crew *crew)
{
	int i;

	for (i = 0; i < crew->nr; i++)
		end_child(crew->member[i].pid);
	crew->nr = 0;
}

static bool crew_add(struct crew *crew, enum role role, int policy, int nice,
		     long long slice, const char *group)
{
	struct member *m = &crew->member[crew->nr];
	struct progress *p = &crew->progress[crew->nr];
	struct pollfd ready = { .fd = crew->ready[0], .events = POLLIN };
	char path[PATH_MAX], byte = 0;

	memset(m, 0, sizeof(*m));
	memset(p, 0, sizeof(*p));
	m->role = role;
	m->pid = fork_bound();
	if (m->pid < 0)
		return false;
	if (m->pid) {
		crew->nr++;
		return poll(&ready, 1, WATCHDOG * 1000) == 1 &&
		       read(crew->ready[0], &byte, 1) == 1;
	}

	if (group) {
		snprintf(path, sizeof(path), "%s/cgroup.procs", group);
		if (!write_text(path, "0"))
			_exit(1);
	}
	if (set_fair(SCHED_OTHER, nice, slice) ||
	    set_fair(policy, nice, slice) ||
	    write(crew->ready[1], &byte, 1) != 1)
		_exit(1);

	switch (role) {
	case HOG:
		run_hog(p);
	case YIELDER:
		run_yielder(p, crew->work);
	case SLEEPER:
		run_sleeper(p);
	}
	_exit(1);
}

static bool crew_add_some(struct crew *crew, int nr, enum role role, int policy,
			  int nice, long long slice)
{
	while (nr--) {
		if (!crew_add(crew, role, policy, nice, slice, NULL))
			return false;
	}

	return true;
}

static bool crew_read(struct crew *crew, bool first)
{
	int i;

	for (i = 0; i < crew->nr; i++) {
		struct member *m = &crew->member[i];

		if (!read_account(m->pid, &m->last))
			return false;
		if (first)
			m->first = m->last;
	}

	return true;
}

/* Let them run for a moment; false when the main program is gone. */
static bool crew_run(int ms)
{
	struct pollfd fd = { .fd = main_pidfd, .events = POLLIN };

	return poll(&fd, 1, ms) == 0;
}

/* Until there are as many calls, or time is up. */
static bool crew_wait(const struct progress *p, unsigned long calls,
		      int seconds)
{
	long long end = now_ns() + seconds * NSEC_PER_SEC;

	while (p->calls < calls && now_ns() < end) {
		if (!crew_run(10))
			return false;
	}

	return true;
}

/* How often sched_yield() was called on our CPU, or -1. */
static long long count_yields(void)
{
	char head[32], text[65536], *line;
	long long count = -1;

	snprintf(head, sizeof(head), "\ncpu%d ", test_cpu);
	if (!read_text("/proc/schedstat", text, sizeof(text)))
		return -1;
	line = strstr(text, head);
	if (line)
		sscanf(line, " %*s %lld", &count);

	return count;
}

/* Without timers that are finer than the tick the feature bit means nothing. */
static bool hrtick_works(void)
{
	struct timespec ts;

	return feature_get("HRTICK") == 1 &&
	       !clock_getres(CLOCK_MONOTONIC, &ts) && !ts.tv_sec &&
	       ts.tv_nsec < NSEC_PER_USEC;
}

FIXTURE(switches) {
	struct crew crew;
};

FIXTURE_VARIANT(switches) {
	long long slice;
	long long work;
	int hogs;
};

/* The default of one CPU, of which the yielder has used most. */
FIXTURE_VARIANT_ADD(switches, slice_700us_1_hog) {
	.slice = 700 * NSEC_PER_USEC,
	.work = 500 * NSEC_PER_USEC,
	.hogs = 1,
};

FIXTURE_VARIANT_ADD(switches, slice_2800us_1_hog) {
	.slice = 2800 * NSEC_PER_USEC,
	.hogs = 1,
};

FIXTURE_VARIANT_ADD(switches, slice_2800us_3_hogs) {
	.slice = 2800 * NSEC_PER_USEC,
	.hogs = 3,
};

FIXTURE_VARIANT_ADD(switches, slice_20ms_1_hog) {
	.slice = 20 * NSEC_PER_MSEC,
	.hogs = 1,
};

FIXTURE_VARIANT_ADD(switches, slice_20ms_3_hogs) {
	.slice = 20 * NSEC_PER_MSEC,
	.hogs = 3,
};

FIXTURE_VARIANT_ADD(switches, slice_100ms_1_hog) {
	.slice = 100 * NSEC_PER_MSEC,
	.hogs = 1,
};

FIXTURE_VARIANT_ADD(switches, slice_100ms_3_hogs) {
	.slice = 100 * NSEC_PER_MSEC,
	.hogs = 3,
};

FIXTURE_SETUP(switches)
{
	const char *reason;

	reason = take_cpu(WATCHDOG);
	if (reason)
		SKIP(return, "%s", reason);
	ASSERT_TRUE(crew_init(&self->crew));
}

FIXTURE_TEARDOWN(switches)
{
	crew_end(&self->crew);
}

/* @late: ticks that the hogs got because the CPU was taken away from them */
static void collect_calls(struct __test_metadata *_metadata, struct crew *crew,
			  int hogs, long long slice, unsigned long wanted,
			  struct progress *found, unsigned long *late)
{
	struct progress *p = crew->progress;
	long long stalled = 0;
	int i, tries = 0;

again:
	/* The yielder is the first: its memory is the first as well. */
	ASSERT_TRUE(crew_add(crew, YIELDER, SCHED_OTHER, 0, slice, NULL));
	ASSERT_TRUE(crew_add_some(crew, hogs, HOG, SCHED_OTHER, 0, slice));
	/* It was alone until now. */
	ASSERT_TRUE(crew_read(crew, true));
	memset(p, 0, sizeof(*p));
	ASSERT_TRUE(crew_wait(p, wanted, 6));
	*found = *p;
	ASSERT_TRUE(crew_read(crew, false));

	for (i = 1; i < crew->nr; i++)
		stalled += p[i].stalled;
	*late = stalled / tick_ns();
	if (*late > found->calls / 4 && ++tries < 3) {
		crew_end(crew);
		stalled = 0;
		goto again;
	}
}

TEST_F(switches, with_others)
{
	struct member *yielder = &self->crew.member[0];
	long long yields = -1, switches;
	unsigned long late = 0;
	struct progress p = {};
	const char *reason;

	reason = set_bits(true, true);
	if (reason)
		SKIP(return, "%s", reason);
	if (variant->slice <= tick_ns() / 2)
		SKIP(return, "a slice that is not longer than half a tick");
	/* A hog may have the CPU up to the tick after the end of its request. */
	if (variant->slice < 4 * tick_ns() && !hrtick_works())
		SKIP(return, "no HRTICK: this slice ends at a tick");
	if (write_text(SCHEDSTATS, "1"))
		yields = count_yields();
	self->crew.work = variant->work;
	collect_calls(_metadata, &self->crew, variant->hogs, variant->slice,
		      200, &p, &late);

	ASSERT_LE(20UL, p.calls);
	if (late > p.calls / 4)
		SKIP(return, "the CPU is taken away: %lu ticks in %lu calls",
		     late, p.calls);
	TH_LOG("%lu calls, %lu switched nobody, at most %lu in a row, %lu ticks late",
	       p.calls, p.stuck, p.longest, late);
	EXPECT_GE(p.calls * 2 / 100 + late, p.stuck);
	EXPECT_GE(2 + late, p.longest);

	/* Two counts of the kernel's own must agree with the program's. */
	switches = yielder->last.involuntary - yielder->first.involuntary;
	EXPECT_LE((long long)(p.calls - p.stuck), switches);
	if (yields >= 0)
		yields = count_yields() - yields;
	EXPECT_LE(yields < 0 ? yields : (long long)p.calls, yields);
}

FIXTURE(feature_off) {
	struct crew crew;
};

FIXTURE_SETUP(feature_off)
{
	const char *reason;

	reason = take_cpu(WATCHDOG);
	if (reason)
		SKIP(return, "%s", reason);
	ASSERT_TRUE(crew_init(&self->crew));
}

FIXTURE_TEARDOWN(feature_off)
{
	crew_end(&self->crew);
}

/* What the hand-over is there for: without it most calls switch nobody. */
TEST_F(feature_off, charge_only)
{
	unsigned long late = 0;
	struct progress p = {};
	const char *reason;

	reason = set_bits(true, false);
	if (reason)
		SKIP(return, "%s", reason);
	collect_calls(_metadata, &self->crew, 1, 100 * NSEC_PER_MSEC, 200,
		      &p, &late);
	TH_LOG("%lu calls, %lu switched nobody, at most %lu in a row",
	       p.calls, p.stuck, p.longest);
	EXPECT_LE(p.calls / 2, p.stuck);
}

FIXTURE(progress) {
	struct crew crew;
};

FIXTURE_VARIANT(progress) {
	int yielders;
	int hogs;
	int nice;
	int hog_nice;
	int policy;
	long long slice;
	long long hog_slice;
};

FIXTURE_VARIANT_ADD(progress, yielder_and_hog) {
	.yielders = 1,
	.hogs = 1,
};

FIXTURE_VARIANT_ADD(progress, few_of_each) {
	.yielders = 2,
	.hogs = 3,
};

FIXTURE_VARIANT_ADD(progress, few_of_each_100ms) {
	.yielders = 2,
	.hogs = 3,
	.slice = 100 * NSEC_PER_MSEC,
	.hog_slice = 100 * NSEC_PER_MSEC,
};

FIXTURE_VARIANT_ADD(progress, storm_beside_a_hog) {
	.yielders = 8,
	.hogs = 1,
};

FIXTURE_VARIANT_ADD(progress, storm_beside_a_hog_100ms) {
	.yielders = 8,
	.hogs = 1,
	.slice = 100 * NSEC_PER_MSEC,
	.hog_slice = 100 * NSEC_PER_MSEC,
};

FIXTURE_VARIANT_ADD(progress, short_beside_long) {
	.yielders = 2,
	.hogs = 2,
	.slice = 100 * NSEC_PER_USEC,
	.hog_slice = 100 * NSEC_PER_MSEC,
};

FIXTURE_VARIANT_ADD(progress, long_beside_short) {
	.yielders = 2,
	.hogs = 2,
	.slice = 100 * NSEC_PER_MSEC,
	.hog_slice = 100 * NSEC_PER_USEC,
};

FIXTURE_VARIANT_ADD(progress, heavy_yielders) {
	.yielders = 2,
	.hogs = 2,
	.nice = -10,
};

FIXTURE_VARIANT_ADD(progress, light_yielders) {
	.yielders = 2,
	.hogs = 2,
	.hog_nice = -5,
};

FIXTURE_VARIANT_ADD(progress, batch) {
	.yielders = 3,
	.hogs = 1,
	.policy = SCHED_BATCH,
};

FIXTURE_VARIANT_ADD(progress, idle) {
	.yielders = 3,
	.hogs = 1,
	.policy = SCHED_IDLE,
};

FIXTURE_SETUP(progress)
{
	const char *reason;

	reason = take_cpu(WATCHDOG);
	if (reason)
		SKIP(return, "%s", reason);
	ASSERT_TRUE(crew_init(&self->crew));
}

FIXTURE_TEARDOWN(progress)
{
	crew_end(&self->crew);
}

static long long larger(long long a, long long b)
{
	return a > b ? a : b;
}

/*
 * For each task: how much CPU time did the others use while its own did not
 * grow? Returns the most that one task used between two looks: nothing finer
 * is seen, and where the host of a guest takes the CPU away, not bounded.
 */
static long long note_waits(struct crew *crew, long long *before)
{
	long long used[MAX_TASKS], sum = 0, grain = 0;
	int i;

	for (i = 0; i < crew->nr; i++) {
		used[i] = crew->member[i].last.exec - before[i];
		before[i] = crew->member[i].last.exec;
		sum += used[i];
		grain = larger(grain, used[i]);
	}
	for (i = 0; i < crew->nr; i++) {
		struct member *m = &crew->member[i];

		if (used[i])
			m->waited = 0;
		else
			m->waited += sum;
		if (m->waited > m->longest_wait)
			m->longest_wait = m->waited;
	}

	return grain;
}

TEST_F(progress, nobody_starves)
{
	const char *reason;
	long long before[MAX_TASKS], end, slice, bound, spread = 0, grain = 0;
	struct crew *crew = &self->crew;
	bool done = false, equal;
	int i;

	reason = set_bits(true, true);
	if (reason)
		SKIP(return, "%s", reason);
	ASSERT_TRUE(crew_add_some(crew, variant->yielders, YIELDER,
				  variant->policy, variant->nice,
				  variant->slice));
	ASSERT_TRUE(crew_add_some(crew, variant->hogs, HOG, variant->policy,
				  variant->hog_nice, variant->hog_slice));
	ASSERT_TRUE(crew_read(crew, true));
	for (i = 0; i < crew->nr; i++)
		before[i] = crew->member[i].last.exec;

	/*
	 * With the same weight for all, vruntime is CPU time and charges. In a
	 * group it advances by more, which depends on what other groups do.
	 */
	equal = variant->nice == variant->hog_nice &&
		variant->policy != SCHED_IDLE && !in_cpu_group();
	end = now_ns() + 20 * NSEC_PER_SEC;
	while (!done && now_ns() < end) {
		long long low = LLONG_MAX, high = LLONG_MIN;

		ASSERT_TRUE(crew_run(5));
		ASSERT_TRUE(crew_read(crew, false));
		grain = larger(grain, note_waits(crew, before));

		done = true;
		for (i = 0; i < crew->nr; i++) {
			struct member *m = &crew->member[i];

			if (m->role == HOG)
				done &= m->last.exec - m->first.exec >
					100 * NSEC_PER_MSEC;
			else
				done &= crew->progress[i].calls > 20;
			low = low < m->last.vruntime ? low : m->last.vruntime;
			high = larger(high, m->last.vruntime);
		}
		spread = larger(spread, high - low);
	}

	for (i = 0; i < crew->nr; i++) {
		struct member *m = &crew->member[i];

		if (m->role == HOG) {
			EXPECT_LT(100 * NSEC_PER_MSEC,
				  m->last.exec - m->first.exec) {
				TH_LOG("hog %d starves", i);
			}
		} else {
			EXPECT_LT(20UL, crew->progress[i].calls) {
				TH_LOG("yielder %d starves", i);
			}
		}
	}

	/*
	 * EEVDF's bound is the longest request, or a tick where that is more.
	 * Twice, as one task may be that much ahead and another one behind.
	 */
	slice = larger(larger(variant->slice, variant->hog_slice),
		       3 * NSEC_PER_MSEC);
	bound = 2 * (slice + 2 * tick_ns() + grain);
	if (equal) {
		EXPECT_GE(bound, spread) {
			TH_LOG("the vruntimes are up to %lld ns apart (grain %lld)",
			       spread, grain);
		}
		for (i = 0; i < crew->nr; i++) {
			EXPECT_GE(crew->nr * bound,
				  crew->member[i].longest_wait) {
				TH_LOG("task %d waited for %lld ns of others",
				       i, crew->member[i].longest_wait);
			}
		}
	}
}

FIXTURE(sleeper) {
	struct crew crew;
};

FIXTURE_VARIANT(sleeper) {
	long long slice;
};

FIXTURE_VARIANT_ADD(sleeper, default_slice) {
	.slice = 0,
};

FIXTURE_VARIANT_ADD(sleeper, storm_of_100ms_slices) {
	.slice = 100 * NSEC_PER_MSEC,
};

FIXTURE_SETUP(sleeper)
{
	const char *reason;

	reason = take_cpu(WATCHDOG);
	if (reason)
		SKIP(return, "%s", reason);
	ASSERT_TRUE(crew_init(&self->crew));
}

FIXTURE_TEARDOWN(sleeper)
{
	crew_end(&self->crew);
}

/* CPU time, time on the run queue without it, and how often it began to run */
static bool read_delay(pid_t pid, long long *delay, long long *turns)
{
	char path[64], text[128];

	snprintf(path, sizeof(path), "/proc/%d/schedstat", pid);

	return read_text(path, text, sizeof(text)) &&
	       sscanf(text, "%*s %lld %lld", delay, turns) == 2;
}

/* It wakes up among eight who do nothing but yield. */
TEST_F(sleeper, among_yielders)
{
	const char *reason;
	long long delay[2], turns[2], stalled = 0;
	struct crew *crew = &self->crew;
	struct progress *p = crew->progress;
	int i;

	reason = set_bits(true, true);
	if (reason)
		SKIP(return, "%s", reason);
	ASSERT_TRUE(crew_add(crew, SLEEPER, SCHED_OTHER, 0, 0, NULL));
	ASSERT_TRUE(crew_add_some(crew, 8, YIELDER, SCHED_OTHER, 0,
				  variant->slice));
	if (!read_delay(crew->member[0].pid, &delay[0], &turns[0]))
		SKIP(return, "no /proc/PID/schedstat");
	p->calls = 0;
	ASSERT_TRUE(crew_wait(p, 50, 10));
	ASSERT_TRUE(read_delay(crew->member[0].pid, &delay[1], &turns[1]));

	EXPECT_LE(50UL, p->calls) {
		TH_LOG("only %lu wake-ups", p->calls);
	}
	ASSERT_LT(turns[0], turns[1]);
	/* Some ticks for each of the others, where one should do. */
	for (i = 1; i < crew->nr; i++)
		stalled += crew->progress[i].stalled;
	EXPECT_GE((turns[1] - turns[0]) * 8 * 3 * tick_ns() + stalled,
		  delay[1] - delay[0]) {
		TH_LOG("waited %lld ns in %lld turns", delay[1] - delay[0],
		       turns[1] - turns[0]);
	}
	for (i = 1; i < crew->nr && crew->progress[i].calls; i++)
		;
	EXPECT_EQ(crew->nr, i) {
		TH_LOG("yielder %d starves", i);
	}
}

static void leave_group(const char *group, bool enabled)
{
	if (group[0])
		rmdir(group);
	if (enabled)
		cpu_controller_off(CGROUPS);
}

FIXTURE(bandwidth) {
	struct crew crew;
	char group[160];
	bool enabled;
};

FIXTURE_SETUP(bandwidth)
{
	const char *reason;
	char path[PATH_MAX], text[1024];

	reason = take_cpu(WATCHDOG);
	if (reason)
		SKIP(return, "%s", reason);
	ASSERT_TRUE(crew_init(&self->crew));
	if (!read_text(CGROUPS "/cgroup.controllers", text, sizeof(text)))
		SKIP(return, "no cgroup v2 in " CGROUPS);
	if (!cpu_controller_on(CGROUPS, &self->enabled))
		SKIP(return, "no cpu controller in cgroup v2");
	snprintf(self->group, sizeof(self->group), CGROUPS "/yield-%d",
		 getpid());
	ASSERT_EQ(0, mkdir(self->group, 0755));
	snprintf(path, sizeof(path), "%s/cpu.max", self->group);
	if (!write_text(path, "5000 20000")) {
		/* There is no teardown after a skip. */
		leave_group(self->group, self->enabled);
		SKIP(return, "no cpu.max");
	}
}

FIXTURE_TEARDOWN(bandwidth)
{
	crew_end(&self->crew);
	leave_group(self->group, self->enabled);
}

/* Those who are throttled are not there to hand over to, and come back. */
TEST_F(bandwidth, throttled_hog_and_yielder)
{
	const char *reason;
	struct crew *crew = &self->crew;
	bool done = false;
	long long end;
	int i;

	reason = set_bits(true, true);
	if (reason)
		SKIP(return, "%s", reason);
	ASSERT_TRUE(crew_add(crew, YIELDER, SCHED_OTHER, 0, 0, self->group));
	ASSERT_TRUE(crew_add(crew, HOG, SCHED_OTHER, 0, 0, self->group));
	ASSERT_TRUE(crew_add(crew, YIELDER, SCHED_OTHER, 0, 0, NULL));
	ASSERT_TRUE(crew_add(crew, HOG, SCHED_OTHER, 0, 0, NULL));
	ASSERT_TRUE(crew_read(crew, true));
	end = now_ns() + 20 * NSEC_PER_SEC;
	while (!done && now_ns() < end) {
		ASSERT_TRUE(crew_run(20));
		ASSERT_TRUE(crew_read(crew, false));
		done = crew->progress[0].calls > 50 &&
		       crew->progress[2].calls > 50 &&
		       crew->member[1].last.exec - crew->member[1].first.exec >
				50 * NSEC_PER_MSEC &&
		       crew->member[3].last.exec - crew->member[3].first.exec >
				50 * NSEC_PER_MSEC;
	}
	EXPECT_TRUE(done) {
		for (i = 0; i < crew->nr; i++)
			TH_LOG("task %d: %lu calls, %lld ns", i,
			       crew->progress[i].calls,
			       crew->member[i].last.exec -
			       crew->member[i].first.exec);
	}
}

int main(int argc, char **argv)
{
	const char *reason = bits_init();

	/* The harness would take a run of nothing but skips for a pass. */
	if (reason && argc == 1) {
		ksft_print_header();
		ksft_exit_skip("%s\n", reason);
	}

	return test_harness_run(argc, argv);
}
