// SPDX-License-Identifier: GPL-2.0
/*
 * sched_yield() of tasks of the fair class: what it costs the caller, who runs
 * next, and what that means for everybody's share of the CPU.
 *
 * The tasks are processes on one CPU. The test itself is SCHED_FIFO there and
 * sleeps, and nothing of the fair class moves while it looks at their figures.
 * What others spoiled who used the CPU is skipped, never failed.
 */
#ifndef _GNU_SOURCE
#define _GNU_SOURCE
#endif
#include <fcntl.h>
#include <math.h>
#include <pthread.h>
#include <sched.h>
#include <stddef.h>
#include <time.h>
#include <linux/kvm.h>
#include <linux/kvm_para.h>
#include <sys/ioctl.h>
#include <sys/prctl.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <sys/syscall.h>

#include "kselftest_harness.h"

#define USEC(n)		((n) * 1000LL)
#define MSEC(n)		((n) * 1000000LL)
#define SEC(n)		((n) * 1000000000LL)
#define W100		USEC(100)
#define S2		USEC(2800)

#define MAX_CPUS	8
#define MAX_TASKS	(4 * MAX_CPUS)
#define WANTED		6	/* calls of each kind */
#define CGROUPS		"/sys/fs/cgroup"
#define CONTROL		"/cgroup.subtree_control"
#define DEBUGFS		"/sys/kernel/debug/sched"
#define BASE_SLICE	DEBUGFS "/base_slice_ns"
#define now_ns()	clock_ns(CLOCK_MONOTONIC)
#define get(x)		__atomic_load_n(&(x), __ATOMIC_RELAXED)
#define set(x, value)	__atomic_store_n(&(x), value, __ATOMIC_RELAXED)

enum role {
	HOG,		/* computes all the time */
	WORKER,		/* yields now and then */
	STORMER,	/* yields all the time for a second, then never */
	CALLER,		/* lets the test look before and after each yield */
};

/* @work: of a worker between two calls, in ns */
struct plan {
	enum role role;
	int policy, nice;
	long long slice, work;
	const char *group;
};

/* All in ms, as the scheduler shows them; of weight 0 when there are none. */
struct figures {
	double weight, vruntime, deadline, slice, exec, average;
};

/* What the tasks of a case and the test share. */
struct shared {
	bool measuring;
	int ready, last;	/* Who ran last, but for workers. */
	/* Of each task: its longest time off the CPU. */
	long long longest[MAX_TASKS];
	/* When the call began that has not returned, or 0. */
	long long since[MAX_TASKS];
	/* Calls of the first task; alone: nobody else ran; late: > @limit. */
	long long calls, alone, run, longest_run, first_alone, late, limit;
	/* How long the caller works between being looked at and its call. */
	long long work;
	/* Of the first task when it stopped yielding. */
	long long switches;
	/* In ns, by the host of a virtual machine. */
	long long stolen;
	/* How often the first task was preempted while it worked. */
	long long preempted;
};

struct ctx {
	struct shared *shared;
	cpu_set_t allowed;
	int cpu, stops[2];
	int nr;
	pid_t pid[MAX_TASKS];
	char groups[2][64];
	bool enabled;
	char base_slice[32];
	/* Results, shares are parts of one CPU. */
	double share[MAX_TASKS], hogs;
	long long switches;
};

static long long tick, loops_per_ms;
static char debug[1 << 20];

static long long clock_ns(clockid_t clock)
{
	struct timespec ts = {};

	clock_gettime(clock, &ts);
	return SEC(ts.tv_sec) + ts.tv_nsec;
}

/* No system call: that would be a place to be preempted at. */
static void spin(long long ns)
{
	long long i = ns * loops_per_ms / MSEC(1);

	while (i-- > 0)
		asm volatile ("" : : : "memory");
}

/* The C library may or may not have it: a name of our own. */
struct task_attr {
	unsigned int size, policy;
	unsigned long long flags;
	int nice;
	unsigned int priority;
	unsigned long long runtime, deadline, period;
};

static bool set_task(int policy, int nice, long long slice)
{
	struct task_attr attr = {
		.size = sizeof(attr),
		.policy = policy,
		.nice = nice,
		.runtime = slice,
	};

	return !syscall(SYS_sched_setattr, 0, &attr, 0);
}

static long long get_slice(pid_t pid)
{
	struct task_attr attr = {};

	syscall(SYS_sched_getattr, pid, &attr, sizeof(attr), 0);
	return attr.runtime;
}

static bool write_text(const char *path, const char *text)
{
	FILE *file = fopen(path, "we");
	bool good;

	if (!file)
		return false;
	good = fputs(text, file) >= 0;
	return !fclose(file) && good;
}

static void read_text(const char *path, char *text, size_t size)
{
	FILE *file = fopen(path, "re");
	size_t len = file ? fread(text, 1, size - 1, file) : 0;

	text[len] = '\0';
	if (file)
		fclose(file);
}

/* How often a task was preempted or yielded the CPU; @pid 0: the caller */
static long long count_switches(pid_t pid)
{
	static const char name[] = "nonvoluntary_ctxt_switches:";
	char path[32], *line;

	snprintf(path, sizeof(path), "/proc/%d/status", pid ?: getpid());
	read_text(path, debug, sizeof(debug));
	line = strstr(debug, name);
	return line ? atoll(line + strlen(name)) : 0;
}

static void note_gap(struct shared *shared, int me, long long ns)
{
	if (get(shared->measuring) && ns > shared->longest[me])
		set(shared->longest[me], ns);
}

/* Time that passed though nobody else ran here is the host's. */
static void note_stolen(struct shared *shared, long long ns, long switches)
{
	if (get(shared->measuring) && ns > USEC(100) && !switches)
		__atomic_add_fetch(&shared->stolen, ns, __ATOMIC_RELAXED);
}

/* RUSAGE_SELF would account the caller's runtime, which may end its turn. */
static void run_hog(struct shared *shared, int me)
{
	long long last = now_ns(), now;
	struct rusage usage;
	long switches = 0;

	for (;; last = now) {
		set(shared->last, me);
		now = now_ns();
		if (now - last < USEC(50))
			continue;
		getrusage(RUSAGE_THREAD, &usage);
		note_gap(shared, me, now - last);
		note_stolen(shared, now - last, usage.ru_nivcsw - switches);
		switches = usage.ru_nivcsw;
	}
}

static void run_worker(struct shared *shared, int me, long long work)
{
	struct rusage before, after = {};
	long long start, spun;
	long seen;
	bool alone;

	for (;;) {
		spun = now_ns();
		spin(work);
		start = now_ns();
		getrusage(RUSAGE_THREAD, &before);
		seen = after.ru_nivcsw;
		note_stolen(shared, start - spun - work, before.ru_nivcsw - seen);
		set(shared->since[me], start);
		sched_yield();
		start = now_ns() - start;
		getrusage(RUSAGE_THREAD, &after);
		alone = after.ru_nivcsw == before.ru_nivcsw;
		set(shared->since[me], 0);
		note_gap(shared, me, start);
		if (me || !get(shared->measuring))
			continue;
		shared->preempted += before.ru_nivcsw - seen;
		shared->alone += alone;
		if (alone && !shared->first_alone)
			shared->first_alone = shared->calls + 1;
		shared->run = alone ? shared->run + 1 : 0;
		if (shared->run > shared->longest_run)
			shared->longest_run = shared->run;
		shared->late += start > shared->limit;
		shared->calls++;
	}
}

/* The line is "name pid weight vruntime E deadline S slice exec ..." */
static struct figures read_figures(struct ctx *ctx, pid_t pid)
{
	struct figures f = {};
	char name[32], *line;

	read_text(DEBUGFS "/debug", debug, sizeof(debug));
	snprintf(name, sizeof(name), "\ncfs_rq[%d]:/\n", ctx->cpu);
	line = strstr(strstr(debug, name) ?: "", ".avg_vruntime");
	if (!line || sscanf(line, "%*s : %lf", &f.average) != 1)
		return f;
	snprintf(name, sizeof(name), " yield-%d ", pid);
	line = strstr(debug, name);
	if (!line || sscanf(line, "%*s %*d %lf %lf %*c %lf%*3c%lf %lf",
			    &f.weight, &f.vruntime, &f.deadline, &f.slice,
			    &f.exec) != 5)
		f.weight = 0;
	return f;
}

/* For read_figures(); whatever ends the parent ends us. */
static void begin(void)
{
	char name[32];

	prctl(PR_SET_PDEATHSIG, SIGKILL);
	snprintf(name, sizeof(name), "yield-%d", getpid());
	prctl(PR_SET_NAME, name);
}

/* Lets the test run, which may let others run when the caller goes on. */
static void stop(struct ctx *ctx, char what)
{
	if (write(ctx->stops[1], &what, 1) != 1)
		_exit(1);
}

static bool next_stop(struct ctx *ctx, char wanted)
{
	char what = 0;

	while (what != wanted && read(ctx->stops[0], &what, 1) == 1)
		;
	return what == wanted;
}

static void run_caller(struct ctx *ctx)
{
	struct shared *shared = ctx->shared;

	for (;; stop(ctx, 'A')) {
		set(shared->last, 1);
		stop(ctx, 'B');
		spin(get(shared->work));
		shared->alone = get(shared->last) == 1;
		sched_yield();
	}
}

static void run(struct ctx *ctx, const struct plan *plan, int me)
{
	struct shared *shared = ctx->shared;
	long long end = now_ns() + SEC(1);
	char path[128];

	snprintf(path, sizeof(path), "%s/cgroup.procs", plan->group ?: CGROUPS);
	if (!write_text(path, "0") && plan->group)
		return;
	/* Who is not SCHED_FIFO any more waits for those who are. */
	__atomic_add_fetch(&shared->ready, 1, __ATOMIC_SEQ_CST);
	/* SCHED_IDLE takes no slice, but keeps the one it finds. */
	if (!set_task(SCHED_OTHER, plan->nice, plan->slice) ||
	    (plan->policy && !set_task(plan->policy, plan->nice, 0)))
		return;
	if (plan->role == CALLER)
		run_caller(ctx);
	if (plan->role == WORKER)
		run_worker(shared, me, plan->work);
	while (plan->role == STORMER && now_ns() < end)
		sched_yield();
	set(shared->switches, count_switches(0));
	run_hog(shared, me);
}

static bool add(struct ctx *ctx, const struct plan *plan)
{
	pid_t parent = getpid(), pid;
	int me = ctx->nr;

	pid = fork();
	if (!pid) {
		begin();
		if (getppid() == parent)
			run(ctx, plan, me);
		_exit(1);
	}
	if (pid > 0)
		ctx->pid[ctx->nr++] = pid;
	return pid > 0;
}

static void end_all(struct ctx *ctx)
{
	for (; ctx->nr; ctx->nr--) {
		kill(ctx->pid[ctx->nr - 1], SIGKILL);
		waitpid(ctx->pid[ctx->nr - 1], NULL, 0);
	}
}

/* Returns the reason why the figures say nothing, or NULL. */
static const char *measure(struct ctx *ctx, int settle, int ms, int cpus)
{
	long long start, took, call, ran[MAX_TASKS];
	struct shared *shared = ctx->shared;
	clockid_t clock[MAX_TASKS] = {};
	int i;

	usleep(settle * 1000);
	if (get(shared->ready) < ctx->nr)
		return "not all tasks could start";
	for (i = 0; i < ctx->nr; i++) {
		clock_getcpuclockid(ctx->pid[i], &clock[i]);
		ran[i] = clock_ns(clock[i]);
	}
	set(shared->measuring, true);
	start = now_ns();
	usleep(ms * 1000);
	took = now_ns() - start;
	set(shared->measuring, false);
	ctx->switches = count_switches(ctx->pid[0]) - get(shared->switches);
	for (i = 0; i < ctx->nr; i++) {
		ran[i] = clock_ns(clock[i]) - ran[i];
		ctx->share[i] = (double)ran[i] / took;
		ctx->hogs += i ? ctx->share[i] : 0;
		/* One who waits for a call to return is not to be missed. */
		call = get(shared->since[i]);
		call = call ? start + took - call : 0;
		if (call > shared->longest[i])
			shared->longest[i] = call;
		if (!i && call > shared->limit)
			shared->late++;
	}
	end_all(ctx);
	if (shared->stolen > MSEC(ms) / 100)
		return "the host used the CPU";
	return ctx->share[0] + ctx->hogs < 0.9 * cpus ?
	       "others used the CPU" : NULL;
}

/* A group of the root one, or a few nested ones of which the last is used. */
static bool make_group(struct ctx *ctx, int nr, int depth)
{
	char *group = ctx->groups[nr], file[1024];
	int len = sprintf(group, CGROUPS "/yield-%d-%d", getpid(), nr);

	read_text(CGROUPS CONTROL, file, sizeof(file));
	if (!strstr(file, "cpu ") && !strstr(file, "cpu\n"))
		ctx->enabled = write_text(CGROUPS CONTROL, "+cpu");
	while (!mkdir(group, 0755) && --depth) {
		sprintf(file, "%s" CONTROL, group);
		write_text(file, "+cpu");
		len += sprintf(group + len, "/n");
	}
	sprintf(file, "%s/cpu.weight", group);
	return !access(file, F_OK);
}

/*
 * What a case is about. Some of it explains itself, but for
 *
 * weight:	that of nice in sched_prio_to_weight[]
 * least:	the worker's share as measured, or 0 for the fair one
 * hogs_least:	what the hogs' weight gives them, or 0 for what is left
 * depth:	of the cgroups that worker and hog are in
 * first:	calls from the start that let the hog run: a light one may be
 *		ahead of the average by a slice and a tick of its own time
 */
struct params {
	void (*test)(struct __test_metadata *_metadata, struct ctx *ctx,
		     const struct params *params);
	long long slice, work;
	int hogs, ms, nice, hog_nice, hog_policy;
	double least, hogs_least;
	int weight, depth, first;
	enum role role;
};

#define ARGS	struct __test_metadata *_metadata, struct ctx *ctx,	\
		const struct params *params

FIXTURE(yield) {
	struct ctx ctx;
};

FIXTURE_VARIANT(yield) {
	struct params params;
};

FIXTURE_SETUP(yield)
{
	struct sched_param param = { .sched_priority = 50 };
	struct ctx *ctx = &self->ctx;
	long long start;
	struct timespec ts;
	cpu_set_t one = {};

	if (geteuid())
		SKIP(return, "not root");
	/* Only a kernel that has a feature can have it off. */
	read_text(DEBUGFS "/features", debug, sizeof(debug));
	if (strstr(debug, "NO_YIELD_"))
		SKIP(return, "%.13s is set", strstr(debug, "NO_YIELD_"));
	/* The coarse clock advances once in a tick, and says so. */
	clock_getres(CLOCK_MONOTONIC_COARSE, &ts);
	tick = SEC(ts.tv_sec) + ts.tv_nsec;

	ASSERT_EQ(0, sched_getaffinity(0, sizeof(one), &ctx->allowed));
	while (!CPU_ISSET(ctx->cpu, &ctx->allowed))
		ctx->cpu++;
	CPU_SET(ctx->cpu, &one);
	prctl(PR_SET_PDEATHSIG, SIGKILL);
	if (sched_setaffinity(0, sizeof(one), &one) ||
	    sched_setscheduler(0, SCHED_FIFO, &param))
		SKIP(return, "no CPU to be pinned to, or no SCHED_FIFO");
	ctx->shared = mmap(NULL, sizeof(*ctx->shared), PROT_READ | PROT_WRITE,
			   MAP_SHARED | MAP_ANONYMOUS | MAP_POPULATE, -1, 0);
	ASSERT_NE(MAP_FAILED, ctx->shared);
	ASSERT_EQ(0, pipe(ctx->stops));

	loops_per_ms = 5000000;
	start = now_ns();
	spin(MSEC(1));
	loops_per_ms = loops_per_ms * MSEC(1) / (now_ns() - start);
}

/* In the parent of the test: what is left when an assertion failed. */
FIXTURE_TEARDOWN_PARENT(yield)
{
	struct ctx *ctx = &self->ctx;
	int i;

	for (i = 0; i < 1000 && ctx->nr; i++) {
		while (ctx->nr && kill(ctx->pid[ctx->nr - 1], SIGKILL))
			ctx->nr--;
		usleep(1000);
	}
	for (i = 0; i < 2; i++) {
		while (ctx->groups[i][0] && !rmdir(ctx->groups[i]))
			*strrchr(ctx->groups[i], '/') = '\0';
	}
	if (ctx->enabled)
		write_text(CGROUPS CONTROL, "-cpu");
	if (ctx->base_slice[0])
		write_text(BASE_SLICE, ctx->base_slice);
}

/* The price of a call, and the next request: as long as ever. */
static void charge(ARGS)
{
	struct plan plan = { .nice = params->nice, .slice = params->slice };
	double weight, exact, error, lag, ran, price, cost, end;
	double slice = params->slice / 1e6, tick_ms = tick / 1e6;
	bool is_long = params->slice > tick;
	/* A short request is over before a task is not eligible any more. */
	int wanted = is_long ? WANTED : 0;
	int calls[2] = {}, bad[2] = {}, owed, i;
	struct shared *shared = ctx->shared;
	struct figures b, a;

	if (access(DEBUGFS "/debug", R_OK))
		SKIP(return, "no " DEBUGFS "/debug");
	ASSERT_TRUE(add(ctx, &plan));
	plan.role = CALLER;
	ASSERT_TRUE(add(ctx, &plan));

	for (i = 0; i < 200; i++) {
		ASSERT_TRUE(next_stop(ctx, 'B'));
		b = read_figures(ctx, ctx->pid[1]);
		lag = b.average - b.vruntime;
		/* There are two tasks: what one runs takes half of it as lag. */
		set(shared->work, i % 2 ? MSEC(2 * lag * params->weight / 1024) +
				  USEC(200) : 0);
		ASSERT_TRUE(next_stop(ctx, 'A'));
		a = read_figures(ctx, ctx->pid[1]);
		ASSERT_NE(0, b.weight * a.weight);

		/* 64-bit kernels have ten more bits in a weight. */
		weight = b.weight / (sizeof(long) == 8 ? 1024 : 1);
		if (weight != params->weight)
			SKIP(goto out, "not in the root cgroup");
		weight /= 1024;
		ran = (a.exec - b.exec) / weight;
		exact = 0.00002 / weight + 0.00002;
		error = exact;
		price = a.vruntime - b.vruntime - ran;
		EXPECT_EQ(params->slice, get_slice(ctx->pid[1]));

		owed = lag > ran / 2;
		/* Close to 0 it may be either. */
		if (!shared->alone || fabs(lag - ran / 2) < 0.02 / weight ||
		    b.vruntime + ran >= b.deadline || (!owed && !is_long))
			continue;
		calls[owed]++;
		if (!owed) {
			cost = 0;
			end = b.deadline;
		} else {
			cost = is_long ? tick_ms / weight :
			       b.deadline - b.vruntime;
			end = a.vruntime + slice / weight;
			/* What it ran before the call is not known. */
			error += ran;
		}
		if (fabs(price - cost) > (is_long ? exact : error) ||
		    fabs(a.deadline - end) > error || a.slice != slice) {
			bad[owed]++;
			TH_LOG("lag %f, charged %f of %f, slice %f, deadline %f ahead of %f",
			       lag, price, cost, a.slice,
			       a.deadline - a.vruntime, end - a.vruntime);
		}
		if (calls[0] >= wanted && calls[1] >= WANTED)
			break;
	}
	/* Some can be spoiled by kernel threads, which move the average. */
	TH_LOG("%d calls, eligible: %d, %d bad, others: %d, %d bad", i,
	       calls[1], bad[1], calls[0], bad[0]);
	if (calls[0] < wanted || calls[1] < WANTED)
		SKIP(goto out, "too few calls of one kind");
	EXPECT_LE(2 * bad[0], wanted);
	EXPECT_LE(2 * bad[1], WANTED);
out:
	end_all(ctx);
}

/* What a worker that yields and hogs get, and how long a call takes. */
static void share(ARGS)
{
	struct plan hog = { .policy = params->hog_policy,
			    .nice = params->hog_nice, .slice = params->slice };
	struct plan worker = { .role = params->role ?: WORKER,
			       .nice = params->nice, .slice = params->slice,
			       .work = params->work };
	struct shared *shared = ctx->shared;
	double fair, hogs_least, cost, work;
	const char *reason;
	int i;

	if (tick >= params->slice && (params->least || params->first))
		SKIP(return, "the figures are for a shorter tick");
	if (params->depth) {
		if (!make_group(ctx, 0, params->depth) ||
		    !make_group(ctx, 1, params->depth))
			SKIP(return, "no cgroups with the cpu controller");
		worker.group = ctx->groups[0];
		hog.group = ctx->groups[1];
	}
	shared->limit = (params->hogs + 5) * tick;
	shared->measuring = params->first;
	ASSERT_TRUE(add(ctx, &worker));
	for (i = 0; i < params->hogs; i++)
		ASSERT_TRUE(add(ctx, &hog));
	reason = measure(ctx, params->role ? 900 : 150, params->ms, 1);

	cost = params->slice < tick ? params->slice : tick;
	/* What was measured for the work, if it is not far off. */
	work = shared->calls ? ctx->share[0] * MSEC(params->ms) / shared->calls :
	       params->work;
	if (work > 1.5 * params->work + USEC(20) || work < params->work / 2)
		reason = reason ?: "the host used the CPU";
	fair = 1 / (params->hogs * (1 + cost / work) + 1);
	/* Who works for longer is often not eligible, and then pays nothing. */
	hogs_least = params->hogs_least ?: params->work <= W100 ? 1 - fair :
		     params->hogs / (params->hogs + 1.);
	fair = params->least ?: fair;
	TH_LOG("worker %.4f of %.4f, hogs %.4f of %.4f, first waited %.1f ms",
	       ctx->share[0], fair, ctx->hogs, hogs_least,
	       shared->longest[1] / 1e6);
	TH_LOG("%lld calls, %lld late, %lld switched nobody, %lld in a row",
	       shared->calls, shared->late, shared->alone, shared->longest_run);
	if (reason)
		SKIP(return, "%s", reason);
	EXPECT_GE(ctx->share[0], 0.9 * fair);
	EXPECT_GE(ctx->hogs, 0.9 * hogs_least);
	if (params->role == STORMER) {
		EXPECT_LE(shared->longest[1], params->slice + 3 * tick + MSEC(10));
		/* Requests of a task that does not yield any more are long. */
		EXPECT_LE(ctx->switches, MSEC(2 * params->ms) / params->slice);
		return;
	}
	if (params->first)
		EXPECT_GE(shared->first_alone ?: shared->calls, params->first);
	if (!params->least && !params->depth) {
		EXPECT_LE(shared->late, 2 + shared->calls / 100);
		/* Whoever has run a slice and a tick too much is not picked. */
		EXPECT_LE(shared->alone, 2 + shared->calls /
			  (params->slice > tick ? 50 : 10));
		EXPECT_LE(shared->longest_run, 5);
	}
	if (!_metadata->exit_code && shared->calls < 15)
		SKIP(return, "only %lld calls", shared->calls);
}

/* Who got the lock that the others yield for is not preempted for them. */
static void yielders_leave_each_other_alone(ARGS)
{
	const struct plan plan = { .role = WORKER, .work = params->work };
	struct shared *shared = ctx->shared;
	const char *reason;

	read_text(BASE_SLICE, ctx->base_slice, sizeof(ctx->base_slice));
	if (!ctx->base_slice[0] || !write_text(BASE_SLICE, "2800000"))
		SKIP(return, "no " BASE_SLICE);
	ASSERT_TRUE(add(ctx, &plan));
	ASSERT_TRUE(add(ctx, &plan));
	reason = measure(ctx, 100, params->ms, 1);
	if (reason || shared->calls < 50)
		SKIP(return, "%s", reason ?: "too few calls");
	TH_LOG("%lld calls, preempted %lld times", shared->calls,
	       shared->preempted);
	EXPECT_LE(shared->preempted, shared->calls);
}

static void nobody_starves_on_many_cpus(ARGS)
{
	const struct plan worker = { .role = WORKER, .slice = params->slice,
				     .work = W100 };
	const struct plan hog = { .slice = params->slice };
	int nr = 0, i;

	for (i = 0; i < CPU_SETSIZE; i++) {
		if (CPU_ISSET(i, &ctx->allowed) && nr++ >= MAX_CPUS)
			CPU_CLR(i, &ctx->allowed);
	}
	nr = CPU_COUNT(&ctx->allowed);
	if (nr < 2)
		SKIP(return, "one CPU");
	sched_setaffinity(0, sizeof(ctx->allowed), &ctx->allowed);
	for (i = 0; i < 4 * nr; i++)
		ASSERT_TRUE(add(ctx, i % 2 ? &hog : &worker));
	measure(ctx, 200, 2000, nr);
	if (ctx->share[0] + ctx->hogs < 0.9 * nr)
		SKIP(return, "others used the CPUs");
	for (i = 0; i < 4 * nr; i++) {
		EXPECT_GT(ctx->share[i], 0.002);
		EXPECT_LT(ctx->shared->longest[i], SEC(1));
	}
}

#ifdef __x86_64__
/* All memory of a virtual machine, at its address 0. */
struct guest {
	unsigned int calls, ran, count;
	unsigned char code[4096 - 12];
};

/* 16-bit code: one counts. */
static const unsigned char vcpu_counts[] = {
	0x66, 0xff, 0x06, 0x08, 0x00,		/* 0: incl count */
	0xeb, 0xf9,				/*    jmp 0b */
};

/* The other names it in a hypercall, and looks whether it has counted. */
static const unsigned char vcpu_asks[] = {
	0x66, 0x83, 0x3e, 0x08, 0x00, 0x00,	/* 0: cmpl $0, count */
	0x74, 0xf8,				/*    je 0b */
	0x66, 0x89, 0xf8,			/* 1: mov %edi, %eax */
	0x66, 0x8b, 0x36, 0x08, 0x00,		/*    mov count, %esi */
	0x0f, 0x01, 0xd9,			/*    vmmcall */
	0x66, 0xff, 0x06, 0x00, 0x00,		/*    incl calls */
	0x66, 0x3b, 0x36, 0x08, 0x00,		/*    cmp count, %esi */
	0x74, 0xe9,				/*    je 1b */
	0x66, 0xff, 0x06, 0x04, 0x00,		/*    incl ran */
	0xeb, 0xe2,				/*    jmp 1b */
};

static bool set_vcpu(int vcpu, int entry)
{
	struct kvm_mp_state state = { KVM_MP_STATE_RUNNABLE };
	struct kvm_regs regs = {
		.rflags = 2, .rdi = KVM_HC_SCHED_YIELD, .rbx = 1,
		.rip = offsetof(struct guest, code) + entry };
	struct kvm_lapic_state apic;
	struct kvm_sregs sregs;

	if (ioctl(vcpu, KVM_GET_SREGS, &sregs) ||
	    ioctl(vcpu, KVM_GET_LAPIC, &apic))
		return false;
	sregs.cs.base = 0;
	sregs.cs.selector = 0;
	return !ioctl(vcpu, KVM_SET_SREGS, &sregs) &&
	       !ioctl(vcpu, KVM_SET_REGS, &regs) &&
	       !ioctl(vcpu, KVM_SET_LAPIC, &apic) &&
	       !ioctl(vcpu, KVM_SET_MP_STATE, &state);
}

static void *run_vcpu(void *vcpu)
{
	set_task(SCHED_OTHER, 0, S2);
	for (;;)
		ioctl((long)vcpu, KVM_RUN, 0);
	return NULL;
}

/* The virtual CPUs are threads of the test, and end with it. */
static void directed_yield(ARGS)
{
	struct guest *guest = mmap(NULL, sizeof(*guest), PROT_READ | PROT_WRITE,
				   MAP_SHARED | MAP_ANONYMOUS, -1, 0);
	struct kvm_userspace_memory_region memory = {
		.memory_size = sizeof(*guest), .userspace_addr = (long)guest };
	struct kvm_enable_cap apics = { .cap = KVM_CAP_SPLIT_IRQCHIP };
	const struct plan hog = { .slice = S2 };
	int kvm = open("/dev/kvm", O_RDWR), vm, i;
	unsigned int calls, ran;
	long long took;
	pthread_t thread;
	long vcpu[2];

	if (kvm < 0)
		SKIP(return, "no /dev/kvm");
	ASSERT_NE(MAP_FAILED, guest);
	memcpy(guest->code, vcpu_counts, sizeof(vcpu_counts));
	memcpy(guest->code + sizeof(vcpu_counts), vcpu_asks, sizeof(vcpu_asks));
	vm = ioctl(kvm, KVM_CREATE_VM, 0);
	if (vm < 0 || ioctl(vm, KVM_ENABLE_CAP, &apics) ||
	    ioctl(vm, KVM_SET_USER_MEMORY_REGION, &memory))
		SKIP(return, "KVM makes no virtual machine");
	for (i = 0; i < 2; i++)
		vcpu[i] = ioctl(vm, KVM_CREATE_VCPU, i);
	/* KVM finds both by their IDs once an APIC is set after that. */
	if (!set_vcpu(vcpu[0], sizeof(vcpu_counts)) || !set_vcpu(vcpu[1], 0))
		SKIP(return, "KVM makes no virtual CPUs");
	/* Where the hogs are. */
	write_text(CGROUPS "/cgroup.procs", "0");
	for (i = 0; i < params->hogs; i++)
		ASSERT_TRUE(add(ctx, &hog));
	for (i = 0; i < 2; i++)
		ASSERT_EQ(0, pthread_create(&thread, NULL, run_vcpu,
					    (void *)vcpu[i]));

	/* There are hosts on which KVM hangs. */
	took = now_ns();
	for (i = 0; i < 40 && !get(guest->calls); i++)
		usleep(50000);
	set(ctx->shared->measuring, true);
	usleep(get(guest->calls) ? params->ms * 1000 : 0);
	calls = get(guest->calls);
	ran = get(guest->ran);
	took = now_ns() - took;
	end_all(ctx);
	if (calls < 50)
		SKIP(return, "the virtual CPUs do not run: %u calls", calls);
	if (ctx->shared->stolen > took / 100)
		SKIP(return, "the host used the CPU");
	TH_LOG("the named one has run in %u of %u calls", ran, calls);
	EXPECT_GE(ran, calls - calls / 20);
	/* That is so because a call costs a whole request. */
	EXPECT_LE(calls * S2 * (params->hogs + 1), 1.25 * took);
}
#else
static void directed_yield(ARGS)
{
	SKIP(return, "not x86-64");
}
#endif

TEST_F_TIMEOUT(yield, test, 60)
{
	variant->params.test(_metadata, &self->ctx, &variant->params);
}

#define CASE(name) FIXTURE_VARIANT_ADD(yield, name)
#define CHARGE(_slice, _nice, _weight) \
	.test = charge, .slice = _slice, .nice = _nice, .weight = _weight
#define SHARE(_slice, _work, _hogs, _ms) \
	.test = share, .slice = _slice, .work = _work, .hogs = _hogs, .ms = _ms

CASE(charge_700us) {{ CHARGE(USEC(700), 0, 1024) }};
CASE(charge_2800us) {{ CHARGE(S2, 0, 1024) }};
CASE(charge_20ms) {{ CHARGE(MSEC(20), 0, 1024) }};
CASE(charge_100ms) {{ CHARGE(MSEC(100), 0, 1024) }};
CASE(charge_nice_minus_20) {{ CHARGE(MSEC(20), -20, 88761) }};
CASE(charge_nice_19) {{ CHARGE(MSEC(20), 19, 15) }};
CASE(share_2800us_1_hog) {{ SHARE(S2, W100, 1, 600) }};
CASE(share_2800us_3_hogs) {{ SHARE(S2, W100, 3, 600) }};
CASE(share_20ms_1_hog) {{ SHARE(MSEC(20), W100, 1, 600) }};
CASE(share_20ms_3_hogs) {{ SHARE(MSEC(20), W100, 3, 600) }};
CASE(share_100ms_1_hog) {{ SHARE(MSEC(100), W100, 1, 600) }};
CASE(share_100ms_3_hogs) {{ SHARE(MSEC(100), W100, 3, 600) }};
CASE(share_700us_work_20us) {{ SHARE(USEC(700), USEC(20), 1, 400) }};
CASE(share_700us_work_500us) {{ SHARE(USEC(700), USEC(500), 1, 400) }};
CASE(share_700us_work_2ms) {{ SHARE(USEC(700), USEC(2500), 1, 400) }};
CASE(share_2800us_work_20us) {{ SHARE(S2, USEC(20), 1, 400) }};
CASE(share_2800us_work_500us) {{ SHARE(S2, USEC(500), 1, 400) }};
CASE(share_2800us_work_2ms) {{ SHARE(S2, USEC(2500), 1, 400) }};
CASE(share_100ms_work_20us) {{ SHARE(MSEC(100), USEC(20), 1, 400) }};
CASE(share_100ms_work_500us) {{ SHARE(MSEC(100), USEC(500), 1, 400) }};
CASE(share_100ms_work_2ms) {{ SHARE(MSEC(100), USEC(2500), 1, 400) }};
CASE(beside_19) {{ SHARE(S2, W100, 1, 1000),
	.hog_nice = 19, .least = 0.92, .hogs_least = 15. / 1039 }};
CASE(beside_10) {{ SHARE(S2, W100, 1, 1000),
	.hog_nice = 10, .least = 0.5, .hogs_least = 110. / 1134 }};
CASE(beside_minus_10) {{ SHARE(S2, W100, 1, 2000),
	.hog_nice = -10, .least = 0.009, .hogs_least = 0.903 }};
CASE(nice_19_beside_0) {{ SHARE(S2, W100, 1, 3000),
	.nice = 19, .least = 0.004, .hogs_least = 0.985 }};
CASE(beside_idle) {{ SHARE(S2, W100, 1, 1500),
	.hog_policy = SCHED_IDLE, .least = 1, .hogs_least = 0.001 }};
CASE(groups_1_deep) {{ SHARE(MSEC(20), W100, 1, 600), .depth = 1 }};
CASE(groups_3_deep) {{ SHARE(MSEC(20), W100, 1, 600), .depth = 3 }};
CASE(light_hog_at_first) {{ SHARE(MSEC(20), W100, 1, 500),
	.hog_nice = 19, .least = 0.8, .hogs_least = 15. / 1039, .first = 10 }};
CASE(after_a_storm) {{ SHARE(MSEC(20), W100, 1, 600),
	.least = 0.4, .hogs_least = 0.4, .role = STORMER }};
CASE(only_yielders) {{ .test = yielders_leave_each_other_alone,
	.work = MSEC(2), .ms = 400 }};
CASE(kvm_1_hog) {{ .test = directed_yield, .hogs = 1, .ms = 1000 }};
CASE(kvm_3_hogs) {{ .test = directed_yield, .hogs = 3, .ms = 1500 }};
CASE(many_cpus) {{ .test = nobody_starves_on_many_cpus,
	.slice = MSEC(20), .work = W100 }};

TEST_HARNESS_MAIN
