// SPDX-License-Identifier: GPL-2.0
/*
 * sched_yield() of tasks of the fair class: what it costs the caller, who runs
 * next, and which share of the CPU each task gets.
 *
 * The tasks are processes on one CPU. The test itself is SCHED_FIFO there and
 * sleeps: no task moves while the test looks at its figures. A case is skipped
 * when others used the CPU.
 */
#include "yield_helpers.h"

#include <math.h>
#include <sys/stat.h>
#ifdef __x86_64__
#include <fcntl.h>
#include <pthread.h>
#include <stddef.h>
#include <linux/kvm.h>
#include <linux/kvm_para.h>
#include <sys/ioctl.h>
#endif

#include "kselftest_harness.h"

#define W100		USEC(100)
#define S2		USEC(2800)
#define MAX_TASKS	32
/* Calls of each kind. */
#define WANTED		6
#define CGROUPS		"/sys/fs/cgroup"
#define BASE_SLICE	SCHED_DEBUG "/base_slice_ns"
#define get(x)		__atomic_load_n(&(x), __ATOMIC_RELAXED)
#define set(x, value)	__atomic_store_n(&(x), value, __ATOMIC_RELAXED)

/*
 * A hog computes all the time, a worker yields now and then, a stormer yields
 * all the time for a second and is a hog then, a caller lets the test look
 * before and after each yield.
 */
enum role { HOG, WORKER, STORMER, CALLER };

/* A task to be; @work: of a worker between two calls, in ns */
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
	/* Who ran last, but for workers. */
	int ready, last;
	/* The longest wait of the first hog. */
	long long longest;
	/* When the worker's call began that has not returned, or 0. */
	long long since;
	/* Calls of the first task; alone: nobody else ran; late: > @limit. */
	long long calls, alone, longest_run, first_alone, late, limit;
	/*
	 * How long the caller is to work before its call, how long that took,
	 * and how often it stopped.
	 */
	long long work, took, stops;
	/* How often the first task was preempted: as a hog, as a worker. */
	long long switches, preempted;
	/* In ns, by the host of a virtual machine. */
	long long stolen;
};

FIXTURE(yield)
{
	struct shared *shared;
	int cpu, stops[2], nr;
	pid_t pid[MAX_TASKS];
	char groups[2][128], base_slice[32];
	/* Of the CPU: of the first task, and of the others. */
	double share, hogs;
};

/*
 * What a case is about:
 *
 * weight:	that of nice in sched_prio_to_weight[]
 * least:	the worker's share as measured, or 0 for the fair one
 * hogs_least:	what the hogs' weight gives them, or 0 for what is left
 * groups:	worker and hog are in cgroups of their own
 * first:	calls from the start that let the hog run: a light one may be
 *		ahead of the average by a slice and a tick of its own time
 */
FIXTURE_VARIANT(yield)
{
	void (*test)(struct __test_metadata *_metadata,
		     FIXTURE_DATA(yield) *self,
		     const FIXTURE_VARIANT(yield) *variant);
	long long slice, work;
	int hogs, ms, nice, hog_nice, hog_policy, weight, first, groups;
	double least, hogs_least;
	enum role role;
};

/* All cases are variants of one test, which calls one of these functions. */
#define CASE_FUNCTION(name)						\
	static void name(struct __test_metadata *_metadata,		\
			 FIXTURE_DATA(yield) *self,			\
			 const FIXTURE_VARIANT(yield) *variant)

static long long tick;
static char debug[1 << 20];

/* A longer gap in what a task sees of the clock is no work of it. */
#define GAP USEC(50)

static void spin(long long ns)
{
	long long last = now_ns(), now;

	for (; ns > 0; last = now) {
		now = now_ns();
		ns -= now - last < GAP ? now - last : GAP;
	}
}

/* Runtime that a task was charged but did not see was used by the host. */
static void note_stolen(struct shared *shared, long long ns)
{
	if (ns > USEC(100))
		__atomic_add_fetch(&shared->stolen, ns, __ATOMIC_SEQ_CST);
}

static void run_hog(struct shared *shared, int me)
{
	long long last = now_ns(), now, used, had, ran = 0;
	long first = count_switches(&had), switches = first, seen;

	for (;; last = now) {
		set(shared->last, me);
		now = now_ns();
		if (now - last < GAP) {
			ran += now - last;
			continue;
		}
		seen = count_switches(&used);
		if (me == 1 && get(shared->measuring) &&
		    now - last > shared->longest)
			set(shared->longest, now - last);
		note_stolen(shared, seen == switches ? now - last :
			    used - had - ran);
		switches = seen;
		had = used;
		ran = 0;
		if (!me)
			set(shared->switches, switches - first);
	}
}

static void run_worker(struct shared *shared, int me, long long work)
{
	long before, after = 0, preempted;
	long long start, used, had, run = 0;
	bool alone;

	count_switches(&had);
	for (;; had = used) {
		spin(work);
		start = now_ns();
		before = count_switches(NULL);
		preempted = before - after;
		set(shared->since, start);
		sched_yield();
		start = now_ns() - start;
		after = count_switches(&used);
		note_stolen(shared, used - had - work);
		alone = after == before;
		set(shared->since, 0);
		if (me || !get(shared->measuring))
			continue;
		shared->preempted += preempted;
		shared->alone += alone;
		if (alone && !shared->first_alone)
			shared->first_alone = shared->calls + 1;
		run = alone ? run + 1 : 0;
		if (run > shared->longest_run)
			shared->longest_run = run;
		shared->late += start > shared->limit;
		shared->calls++;
	}
}

/* The line is "name pid weight vruntime E deadline S slice exec ..." */
static struct figures read_figures(FIXTURE_DATA(yield) *self, pid_t pid)
{
	struct figures f = {};
	char name[32], *line;

	read_text(SCHED_DEBUG "/debug", debug, sizeof(debug));
	snprintf(name, sizeof(name), "\ncfs_rq[%d]:/\n", self->cpu);
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

/* Lets the test run, which may let others run when the caller goes on. */
static void stop(FIXTURE_DATA(yield) *self)
{
	set(self->shared->stops, self->shared->stops + 1);
	if (write(self->stops[1], "", 1) != 1)
		_exit(1);
}

static bool next_stop(FIXTURE_DATA(yield) *self)
{
	char byte;

	return read(self->stops[0], &byte, 1) == 1;
}

static void run_caller(FIXTURE_DATA(yield) *self)
{
	struct shared *shared = self->shared;
	long long start;

	for (;; stop(self)) {
		set(shared->last, 1);
		stop(self);
		start = now_ns();
		spin(get(shared->work));
		shared->took = now_ns() - start;
		shared->alone = get(shared->last) == 1;
		sched_yield();
	}
}

static void run(FIXTURE_DATA(yield) *self, const struct plan *plan, int me)
{
	struct shared *shared = self->shared;
	long long end = now_ns() + SEC(1);
	char text[128];

	snprintf(text, sizeof(text), "yield-%d", getpid());
	prctl(PR_SET_NAME, text);
	snprintf(text, sizeof(text), "%s/cgroup.procs", plan->group ?: CGROUPS);
	if (!write_text(text, "0") && plan->group)
		return;
	/* Who is not SCHED_FIFO any more waits for those who are. */
	__atomic_add_fetch(&shared->ready, 1, __ATOMIC_SEQ_CST);
	/* SCHED_IDLE takes no slice, but keeps the one it finds. */
	if (set_task(SCHED_OTHER, plan->nice, plan->slice) ||
	    (plan->policy && set_task(plan->policy, plan->nice, 0)))
		return;
	if (plan->role == CALLER)
		run_caller(self);
	if (plan->role == WORKER)
		run_worker(shared, me, plan->work);
	while (plan->role == STORMER && now_ns() < end)
		sched_yield();
	run_hog(shared, me);
}

static bool add(FIXTURE_DATA(yield) *self, const struct plan *plan)
{
	int me = self->nr;
	pid_t pid;

	pid = fork_bound();
	if (!pid) {
		run(self, plan, me);
		_exit(1);
	}
	if (pid > 0)
		self->pid[self->nr++] = pid;
	return pid > 0;
}

static void end_all(FIXTURE_DATA(yield) *self)
{
	while (self->nr)
		end_child(self->pid[--self->nr]);
}

/* Returns the reason why the figures say nothing, or NULL. */
static const char *measure(FIXTURE_DATA(yield) *self, int settle, int ms)
{
	struct shared *shared = self->shared;
	long long start, took, since, ran[MAX_TASKS];
	int i;

	usleep(settle * 1000);
	if (get(shared->ready) < self->nr)
		return "not all tasks could start";
	for (i = 0; i < self->nr; i++)
		ran[i] = cpu_time(self->pid[i]);
	set(shared->measuring, true);
	start = now_ns();
	usleep(ms * 1000);
	took = now_ns() - start;
	set(shared->measuring, false);
	for (i = 0; i < self->nr; i++)
		ran[i] = cpu_time(self->pid[i]) - ran[i];
	self->share = (double)ran[0] / took;
	for (i = 1; i < self->nr; i++)
		self->hogs += (double)ran[i] / took;
	/* A call that has not returned is not to be missed. */
	since = get(shared->since);
	if (since && start + took - since > shared->limit)
		shared->late++;
	end_all(self);
	if (shared->stolen > 2 * tick)
		return "the host used the CPU";
	return self->share + self->hogs < 0.9 ? "others used the CPU" : NULL;
}

/* Three nested groups, of which the last is used. */
static bool make_group(FIXTURE_DATA(yield) *self, int nr)
{
	char *group = self->groups[nr], file[256];
	int i, len = sprintf(group, CGROUPS);

	for (i = 0; i < 3; i++) {
		sprintf(file, "%s/cgroup.subtree_control", group);
		write_text(file, "+cpu");
		len += sprintf(group + len, "/yield-%d-%d", getpid(), nr);
		mkdir(group, 0755);
	}
	sprintf(file, "%s/cpu.weight", group);
	return !access(file, F_OK);
}

/* Tasks that were killed leave the group some time later. */
static void remove_group(char *group)
{
	int tries;

	for (; strlen(group) > strlen(CGROUPS); *strrchr(group, '/') = '\0') {
		for (tries = 0; rmdir(group) && errno == EBUSY && tries < 1000;
		     tries++)
			usleep(1000);
	}
}

FIXTURE_SETUP(yield)
{
	const struct sched_param param = { .sched_priority = 50 };

	if (geteuid())
		SKIP(return, "not root");
	if (!feature_get("YIELD_TICK") || !feature_get("YIELD_SKIP"))
		SKIP(return, "YIELD_TICK or YIELD_SKIP is off");
	/* The harness kills the parent as well, which could not clean up. */
	alarm(200);

	tick = tick_ns();
	self->cpu = first_cpu();
	if (self->cpu < 0 || pin_to(self->cpu) ||
	    sched_setscheduler(0, SCHED_FIFO, &param))
		SKIP(return, "no CPU to be pinned to, or no SCHED_FIFO");
	self->shared = map_shared(sizeof(*self->shared));
	ASSERT_TRUE(!!self->shared);
	ASSERT_EQ(0, pipe(self->stops));
}

/* In the parent of the test, as an assertion may have ended it. */
FIXTURE_TEARDOWN_PARENT(yield)
{
	remove_group(self->groups[0]);
	remove_group(self->groups[1]);
	if (self->base_slice[0])
		write_text(BASE_SLICE, self->base_slice);
}

/* The price of a call, and the next request: as long as ever. */
CASE_FUNCTION(charge)
{
	struct plan plan = { .nice = variant->nice, .slice = variant->slice };
	double slice = variant->slice / 1e6, tick_ms = tick / 1e6;
	double weight, exact, error, lag, ran, price, cost, end;
	bool is_long = variant->slice > tick, went_on;
	/* A short request is over before a task is not eligible any more. */
	int wanted = is_long ? WANTED : 0;
	struct shared *shared = self->shared;
	int calls[2] = {}, bad[2] = {}, owed, i;
	struct figures b, a;
	char text[200] = "";

	if (access(SCHED_DEBUG "/debug", R_OK))
		SKIP(return, "no " SCHED_DEBUG "/debug");
	ASSERT_TRUE(add(self, &plan));
	plan.role = CALLER;
	ASSERT_TRUE(add(self, &plan));

	for (i = 0; i < 200; i++) {
		ASSERT_TRUE(next_stop(self));
		b = read_figures(self, self->pid[1]);
		went_on = get(shared->stops) != 2 * i + 1;
		lag = b.average - b.vruntime;
		/* There are two tasks: what one runs takes half of it as lag. */
		set(shared->work, i % 2 ? MSEC(2 * lag * variant->weight / 1024) +
				  USEC(200) : 0);
		ASSERT_TRUE(next_stop(self));
		a = read_figures(self, self->pid[1]);
		/* Others get some time when the test takes too long. */
		if (went_on || get(shared->stops) != 2 * i + 2)
			continue;
		ASSERT_NE(0, b.weight * a.weight);

		/* 64-bit kernels have ten more bits in a weight. */
		weight = b.weight / (sizeof(long) == 8 ? 1024 : 1);
		if (weight != variant->weight)
			SKIP(goto out, "not in the root cgroup");
		weight /= 1024;
		ran = (a.exec - b.exec) / weight;
		exact = 0.00002 / weight + 0.00002;
		error = exact;
		price = a.vruntime - b.vruntime - ran;
		owed = lag > ran / 2;
		/*
		 * Eligible or not cannot be told if something else ran, if the
		 * scheduler's clock lost time, if the lag is close to 0, or if
		 * the caller may have run after the call.
		 */
		if (!shared->alone ||
		    shared->took > USEC(100) + MSEC(ran * weight) ||
		    fabs(lag - ran / 2) < 0.02 / weight ||
		    (!owed && lag > 0 && i % 2 == 0) ||
		    b.vruntime + ran >= b.deadline || (!owed && !is_long))
			continue;
		calls[owed]++;
		cost = 0;
		end = b.deadline;
		if (owed) {
			cost = is_long ? tick_ms / weight :
			       b.deadline - b.vruntime;
			end = a.vruntime + slice / weight;
			/* What it ran before the call is not known. */
			error += ran;
		}
		if (fabs(price - cost) > (is_long ? exact : error) ||
		    fabs(a.deadline - end) > error || a.slice != slice ||
		    get_slice(self->pid[1]) != variant->slice) {
			bad[owed]++;
			/* Not logged here: the caller would not wait for that. */
			snprintf(text, sizeof(text),
				 ": lag %f, charged %f of %f, slice %f, deadline %f after %f",
				 lag, price, cost, a.slice,
				 a.deadline - a.vruntime, end - a.vruntime);
		}
		if (calls[0] >= wanted && calls[1] >= WANTED)
			break;
	}
	/* Some can be spoiled by kernel threads, which move the average. */
	TH_LOG("%d calls, eligible: %d, %d bad, others: %d, %d bad%s", i,
	       calls[1], bad[1], calls[0], bad[0], text);
	if (calls[0] < wanted || calls[1] < WANTED)
		SKIP(goto out, "too few calls of one kind");
	EXPECT_LE(2 * bad[0], wanted);
	EXPECT_LE(2 * bad[1], WANTED);
out:
	end_all(self);
}

/* What a worker that yields and hogs get, and how long a call takes. */
CASE_FUNCTION(share)
{
	struct plan hog = { .policy = variant->hog_policy,
			    .nice = variant->hog_nice, .slice = variant->slice };
	struct plan worker = { .role = variant->role ?: WORKER,
			       .nice = variant->nice, .slice = variant->slice,
			       .work = variant->work };
	struct shared *shared = self->shared;
	double fair, hogs_least, cost, work;
	const char *reason;
	int i;

	if (tick >= variant->slice && (variant->least || variant->first))
		SKIP(return, "the figures are for a shorter tick");
	if (variant->groups) {
		if (!make_group(self, 0) || !make_group(self, 1))
			SKIP(return, "no cgroups with the cpu controller");
		worker.group = self->groups[0];
		hog.group = self->groups[1];
	}
	shared->limit = (variant->hogs + 5) * tick;
	shared->measuring = variant->first;
	ASSERT_TRUE(add(self, &worker));
	for (i = 0; i < variant->hogs; i++)
		ASSERT_TRUE(add(self, &hog));
	reason = measure(self, variant->role ? 900 : 150, variant->ms);

	cost = variant->slice < tick ? variant->slice : tick;
	/* What was measured for the work, if it is not far off. */
	work = shared->calls ? self->share * MSEC(variant->ms) /
	       shared->calls : variant->work;
	if (work > 1.5 * variant->work + USEC(20) || work < variant->work / 2)
		reason = reason ?: "the host used the CPU";
	fair = 1 / (variant->hogs * (1 + cost / work) + 1);
	/* Who works for longer is often not eligible, and then pays nothing. */
	hogs_least = variant->hogs_least ?: variant->work <= W100 ? 1 - fair :
		     variant->hogs / (variant->hogs + 1.);
	fair = variant->least ?: fair;
	TH_LOG("worker %.4f of %.4f, hogs %.4f of %.4f, first waited %.1f ms",
	       self->share, fair, self->hogs, hogs_least,
	       shared->longest / 1e6);
	TH_LOG("%lld calls, %lld late, %lld switched nobody, %lld in a row",
	       shared->calls, shared->late, shared->alone, shared->longest_run);
	if (reason)
		SKIP(return, "%s", reason);
	EXPECT_GE(self->share, 0.9 * fair);
	EXPECT_GE(self->hogs, 0.9 * hogs_least);
	if (variant->role == STORMER) {
		EXPECT_LE(shared->longest,
			  variant->slice + 3 * tick + MSEC(10));
		/* Requests of a task that does not yield any more are long. */
		EXPECT_LE(shared->switches,
			  MSEC(2 * variant->ms) / variant->slice);
		return;
	}
	if (variant->first)
		EXPECT_GE(shared->first_alone ?: shared->calls, variant->first);
	if (!variant->least && !variant->groups) {
		EXPECT_LE(shared->late, 2 + shared->calls / 100);
		/* Whoever has run a slice and a tick too much is not picked. */
		EXPECT_LE(shared->alone, 2 + shared->calls /
			  (variant->slice > tick ? 50 : 10));
		EXPECT_LE(shared->longest_run, 5);
	}
	if (!_metadata->exit_code && shared->calls < 15)
		SKIP(return, "only %lld calls", shared->calls);
}

/* Who got the lock that the others yield for is not preempted for them. */
CASE_FUNCTION(yielders_leave_each_other_alone)
{
	const struct plan plan = { .role = WORKER, .work = variant->work };
	struct shared *shared = self->shared;
	const char *reason;

	read_text(BASE_SLICE, self->base_slice, sizeof(self->base_slice));
	if (!self->base_slice[0] || !write_text(BASE_SLICE, "2800000"))
		SKIP(return, "no " BASE_SLICE);
	ASSERT_TRUE(add(self, &plan));
	ASSERT_TRUE(add(self, &plan));
	reason = measure(self, 100, variant->ms);
	if (reason || shared->calls < 50)
		SKIP(return, "%s", reason ?: "too few calls");
	TH_LOG("%lld calls, preempted %lld times", shared->calls,
	       shared->preempted);
	EXPECT_LE(shared->preempted, shared->calls);
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
CASE_FUNCTION(directed_yield)
{
	struct guest *guest = map_shared(sizeof(*guest));
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
	ASSERT_TRUE(!!guest);
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
	for (i = 0; i < variant->hogs; i++)
		ASSERT_TRUE(add(self, &hog));
	for (i = 0; i < 2; i++)
		ASSERT_EQ(0, pthread_create(&thread, NULL, run_vcpu,
					    (void *)vcpu[i]));

	/* There are hosts on which KVM hangs. */
	took = now_ns();
	for (i = 0; i < 40 && !get(guest->calls); i++)
		usleep(50000);
	set(self->shared->measuring, true);
	usleep(get(guest->calls) ? variant->ms * 1000 : 0);
	calls = get(guest->calls);
	ran = get(guest->ran);
	took = now_ns() - took;
	end_all(self);
	if (calls < 50)
		SKIP(return, "the virtual CPUs do not run: %u calls", calls);
	if (self->shared->stolen > took / 100)
		SKIP(return, "the host used the CPU");
	TH_LOG("the named one has run in %u of %u calls", ran, calls);
	EXPECT_GE(ran, calls - calls / 20);
	/* That is so because a call costs a whole request. */
	EXPECT_LE(calls * S2 * (variant->hogs + 1), 1.25 * took);
}
#endif

/* Yielders and hogs that may run anywhere: each worker gets its part. */
CASE_FUNCTION(nobody_starves_on_many_cpus)
{
	const struct plan worker = { .role = WORKER, .slice = variant->slice,
				     .work = variant->work };
	const struct plan hog = { .slice = variant->slice };
	long long ran[MAX_TASKS], total = 0;
	int i, cpus, nr = 0;
	cpu_set_t set;

	/* The kernel takes those of them that exist. */
	memset(&set, 0xff, sizeof(set));
	sched_setaffinity(0, sizeof(set), &set);
	sched_getaffinity(0, sizeof(set), &set);
	for (i = 0; i < CPU_SETSIZE; i++) {
		if (CPU_ISSET(i, &set) && nr++ >= MAX_TASKS / 4)
			CPU_CLR(i, &set);
	}
	sched_setaffinity(0, sizeof(set), &set);
	cpus = CPU_COUNT(&set);
	if (cpus < 2)
		SKIP(return, "one CPU");

	for (i = 0; i < 4 * cpus; i++)
		ASSERT_TRUE(add(self, i % 2 ? &hog : &worker));
	usleep(200000);
	for (i = 0; i < 4 * cpus; i++)
		ran[i] = cpu_time(self->pid[i]);
	usleep(variant->ms * 1000);
	for (i = 0; i < 4 * cpus; i++) {
		ran[i] = cpu_time(self->pid[i]) - ran[i];
		total += ran[i];
	}
	end_all(self);
	if (total < 0.9 * cpus * MSEC(variant->ms))
		SKIP(return, "others used the CPUs");
	for (i = 0; i < 4 * cpus; i++)
		EXPECT_GE(ran[i], variant->least * MSEC(variant->ms));
}

TEST_F_TIMEOUT(yield, test, 240)
{
	variant->test(_metadata, self, variant);
}

#define CASE(name) FIXTURE_VARIANT_ADD(yield, name)
#define CHARGE(_slice, _nice, _weight) \
	.test = charge, .slice = _slice, .nice = _nice, .weight = _weight
#define SHARE(_slice, _work, _hogs, _ms) \
	.test = share, .slice = _slice, .work = _work, .hogs = _hogs, .ms = _ms

CASE(charge_700us) { CHARGE(USEC(700), 0, 1024) };
CASE(charge_2800us) { CHARGE(S2, 0, 1024) };
CASE(charge_20ms) { CHARGE(MSEC(20), 0, 1024) };
CASE(charge_100ms) { CHARGE(MSEC(100), 0, 1024) };
CASE(charge_nice_minus_20) { CHARGE(MSEC(20), -20, 88761) };
CASE(charge_nice_19) { CHARGE(MSEC(20), 19, 15) };
CASE(share_2800us_1_hog) { SHARE(S2, W100, 1, 600) };
CASE(share_2800us_3_hogs) { SHARE(S2, W100, 3, 600) };
CASE(share_20ms_1_hog) { SHARE(MSEC(20), W100, 1, 600) };
CASE(share_20ms_3_hogs) { SHARE(MSEC(20), W100, 3, 600) };
CASE(share_100ms_1_hog) { SHARE(MSEC(100), W100, 1, 600) };
CASE(share_100ms_3_hogs) { SHARE(MSEC(100), W100, 3, 600) };
CASE(share_700us_work_500us) { SHARE(USEC(700), USEC(500), 1, 400) };
CASE(share_2800us_work_20us) { SHARE(S2, USEC(20), 1, 400) };
CASE(share_2800us_work_500us) { SHARE(S2, USEC(500), 1, 400) };
CASE(share_2800us_work_2ms) { SHARE(S2, USEC(2500), 1, 400) };
CASE(share_100ms_work_20us) { SHARE(MSEC(100), USEC(20), 1, 400) };
CASE(share_100ms_work_500us) { SHARE(MSEC(100), USEC(500), 1, 400) };
CASE(share_100ms_work_2ms) { SHARE(MSEC(100), USEC(2500), 1, 400) };
CASE(beside_19) { SHARE(S2, W100, 1, 1000),
	.hog_nice = 19, .least = 0.92, .hogs_least = 15. / 1039 };
CASE(beside_10) { SHARE(S2, W100, 1, 1000),
	.hog_nice = 10, .least = 0.5, .hogs_least = 110. / 1134 };
CASE(beside_idle) { SHARE(S2, W100, 1, 1500),
	.hog_policy = SCHED_IDLE, .least = 1, .hogs_least = 0.001 };
CASE(heavy_worker) { SHARE(S2, MSEC(20), 1, 2000),
	.nice = -10, .hogs_least = 0.08 };
CASE(groups_3_deep) { SHARE(MSEC(20), W100, 1, 600), .groups = 1 };
CASE(light_hog_at_first) { SHARE(MSEC(20), W100, 1, 500),
	.hog_nice = 19, .least = 0.8, .hogs_least = 15. / 1039, .first = 10 };
CASE(after_a_storm) { SHARE(MSEC(20), W100, 1, 600),
	.least = 0.4, .hogs_least = 0.4, .role = STORMER };
CASE(only_yielders) { .test = yielders_leave_each_other_alone,
	.work = MSEC(2), .ms = 400 };
#ifdef __x86_64__
CASE(many_cpus) { .test = nobody_starves_on_many_cpus, .least = 0.01,
	.slice = MSEC(100), .work = W100, .ms = 2000 };
CASE(kvm_1_hog) { .test = directed_yield, .hogs = 1, .ms = 1000 };
#endif

TEST_HARNESS_MAIN
