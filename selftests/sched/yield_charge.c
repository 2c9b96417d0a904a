// SPDX-License-Identifier: GPL-2.0
/*
 * What one sched_yield() costs the caller.
 *
 * With YIELD_TICK a task that is eligible pays one tick of its weighted
 * vruntime, or what is left of its request when that is less: less than one and
 * a half with a slice of less than two and a half. One that is not eligible pays
 * nothing, and neither does one beside which no other is queued. Without
 * YIELD_TICK the price is all that is left of the request.
 *
 * The yielder and the hogs beside it are pinned to one CPU. So is the test,
 * which is SCHED_FIFO there: whenever the yielder writes into a pipe, the test
 * preempts it before the write returns, and looks at the figures while no task
 * of the fair class can change them. Two such stops, one right before and one
 * right after the yield, give the charge: by how much vruntime grew beyond what
 * the CPU time accounts for. Nothing is concluded from clocks.
 *
 * Whether the yielder was eligible at the yield is known for sure only when it
 * had more lag at the stop than it used CPU time since. All such samples must
 * have the right charge. All others must have that or none. For a pass a few are
 * needed which are sure, or many of the others with the right charge: with short
 * slices the yielder may have no lag to speak of at any stop.
 *
 * Who wakes up is placed by the lag it went to sleep with, which moves the
 * average and, when it is the yielder that waited for a page, its vruntime.
 * So nothing is concluded from a sample in which the yielder slept, and nothing
 * is known for sure of its lag when somebody ran who is not of the test.
 *
 * YIELD_BITS=off in the environment runs the same on a kernel that has the
 * feature bits off, or does not have them: then tests must fail, which shows
 * that they can.
 */
#include <poll.h>
#include <sys/ioctl.h>

#include "kselftest_harness.h"
#include "yield_helpers.h"

#define MAX_HOGS	3
#define WANTED		3
#define MANY		90
#define WATCHDOG	28
#define DEBUG_BYTES	(4 << 20)

static const long long slices[] = {
	100 * NSEC_PER_USEC,
	700 * NSEC_PER_USEC,
	1400 * NSEC_PER_USEC,
	2100 * NSEC_PER_USEC,
	2800 * NSEC_PER_USEC,
	3400 * NSEC_PER_USEC,
	20 * NSEC_PER_MSEC,
	100 * NSEC_PER_MSEC,
};

enum stop {
	READY = 'R',
	BEFORE = 'B',
	AFTER = 'A',
};

/* What the yielder is and who is beside it. */
struct scene {
	int policy;
	int nice;
	long long slice;
	int hogs;
	int hog_policy;
	int hog_nice;
	bool sleeps;
	const char *yielder_group;
	const char *hog_group;
};

struct crew {
	pid_t yielder;
	pid_t hog[MAX_HOGS];
	int hogs;
	int stops;
	char name[24];
};

/**
 * struct snapshot - the yielder while it cannot run
 * @account:	what /proc/PID/sched says
 * @weight:	what vruntime advances with, cgroups included
 * @deadline:	end of its request, in vruntime
 * @average:	vruntime at which there is no lag
 * @slice:	the length of a request
 * @runnable:	tasks of the fair class on this CPU
 * @queued:	the same with those that sleep, but are still to be dequeued
 * @strangers:	how often others than the yielder, the hogs and the test began
 *		to run on this CPU, if the kernel counts it
 */
struct snapshot {
	struct task_account account;
	long long weight;
	long long deadline;
	long long average;
	long long slice;
	long long runnable;
	long long queued;
	long long strangers;
};

/**
 * struct tally - what the samples of a case were
 * @sure:	eligible beyond doubt, right charge
 * @other:	perhaps eligible, and right, too
 * @free:	perhaps eligible, not charged
 * @wrong:	any other charge
 * @void_:	says nothing: the yielder ran on or slept, or a new request began
 */
struct tally {
	int sure, other, free, wrong, void_;
};

static char *debug_text;

static long long weigh(long long ns, long long weight, long long nice_0)
{
	return (double)ns * nice_0 / weight;
}

static void crew_end(struct crew *crew)
{
	int i;

	end_child(crew->yielder);
	for (i = 0; i < crew->hogs; i++)
		end_child(crew->hog[i]);
	if (crew->stops >= 0)
		close(crew->stops);
	memset(crew, 0, sizeof(*crew));
	crew->stops = -1;
}

/* Write into one pipe, block in nothing else: all but the stops is fair. */
static __noreturn void run_yielder(int fd, bool sleeps)
{
	const char before = BEFORE, after = AFTER;

	for (;;) {
		/* Let those go first who were kept waiting by the last stop. */
		if (sleeps)
			usleep(3000);
		if (write(fd, &before, 1) != 1)
			_exit(1);
		sched_yield();
		if (write(fd, &after, 1) != 1)
			_exit(1);
	}
}

static __noreturn void run_hog(void)
{
	for (;;)
		asm volatile ("" : : : "memory");
}

static bool join_group(const char *group)
{
	char path[PATH_MAX];

	if (!group)
		return true;
	snprintf(path, sizeof(path), "%s/cgroup.procs", group);

	return write_text(path, "0");
}

static pid_t crew_fork(struct crew *crew, int fd, const char *group,
		       int policy, int nice, long long slice, bool yields,
		       bool sleeps)
{
	const char ready = READY;
	pid_t pid;

	pid = fork_bound();
	if (pid)
		return pid;

	snprintf(crew->name, sizeof(crew->name), "%s-%d",
		 yields ? "yield" : "hog", getpid());
	prctl(PR_SET_NAME, crew->name);
	/* SCHED_IDLE takes no slice, but keeps the one it finds. */
	if (!join_group(group) || set_fair(SCHED_OTHER, nice, slice) ||
	    set_fair(policy, nice, slice) || write(fd, &ready, 1) != 1)
		_exit(1);
	if (yields)
		run_yielder(fd, sleeps);
	run_hog();
}

/* The next stop, or 0 when somebody died or hangs. */
static char next_stop(struct crew *crew)
{
	struct pollfd fds[] = {
		{ .fd = crew->stops, .events = POLLIN },
		{ .fd = main_pidfd, .events = POLLIN },
	};
	char stop;

	if (poll(fds, 2, WATCHDOG * 1000) <= 0 || fds[1].revents)
		return 0;
	if (read(crew->stops, &stop, 1) != 1)
		return 0;

	return stop;
}

static bool crew_start(struct crew *crew, const struct scene *scene)
{
	int pipes[2], i;

	memset(crew, 0, sizeof(*crew));
	crew->stops = -1;
	if (pipe2(pipes, O_CLOEXEC))
		return false;
	crew->stops = pipes[0];

	for (i = 0; i < scene->hogs; i++) {
		crew->hog[i] = crew_fork(crew, pipes[1], scene->hog_group,
					 scene->hog_policy, scene->hog_nice,
					 scene->slice, false, false);
		crew->hogs++;
		if (crew->hog[i] < 0 || next_stop(crew) != READY)
			return false;
	}
	crew->yielder = crew_fork(crew, pipes[1], scene->yielder_group,
				  scene->policy, scene->nice, scene->slice,
				  true, scene->sleeps);
	close(pipes[1]);
	if (crew->yielder < 0)
		return false;
	snprintf(crew->name, sizeof(crew->name), "yield-%d", crew->yielder);

	return next_stop(crew) == READY;
}

/*
 * The part of the scheduler's debug file that is about our CPU, up to the
 * line of @name; returns that line.
 */
static const char *read_debug(const char *name)
{
	char head[32], *line = NULL;
	size_t len = 0;
	ssize_t got;
	char *part;
	int fd;

	fd = open(SCHED_DEBUG, O_RDONLY | O_CLOEXEC);
	if (fd < 0)
		return NULL;
	snprintf(head, sizeof(head), "\ncfs_rq[%d]:", test_cpu);

	while (len < DEBUG_BYTES - 1) {
		got = read(fd, debug_text + len, DEBUG_BYTES - 1 - len);
		if (got <= 0)
			break;
		len += got;
		debug_text[len] = '\0';
		part = strstr(debug_text, head);
		line = part ? strstr(part, name) : NULL;
		if (line && strchr(line, '\n'))
			break;
		line = NULL;
	}
	close(fd);

	return line;
}

/* "name pid weight vruntime eligible deadline custom slice ..." */
static bool parse_task(const char *line, struct snapshot *s)
{
	char deadline[32], slice[32];
	int fields;

	fields = sscanf(line, "%*s %*d %lld %*s %*c %31s S %31s", &s->weight,
			deadline, slice);
	if (fields == 2)
		fields = sscanf(line, "%*s %*d %lld %*s %*c %31s %31s",
				&s->weight, deadline, slice);

	return fields == 3 && s->weight > 0 &&
	       parse_ms(deadline, &s->deadline) && parse_ms(slice, &s->slice);
}

/*
 * The server of the fair class lets the yielder run in spite of us when we
 * use all of the CPU. Then it is not where its last stop says.
 */
static bool has_moved(struct crew *crew, const struct task_account *a)
{
	struct task_account now;
	int pending = 0;

	if (!read_account(crew->yielder, &now))
		return true;

	return now.exec != a->exec ||
	       ioctl(crew->stops, FIONREAD, &pending) || pending;
}

/* How often a task began to run on our CPU, or -1. */
static long long count_arrivals(void)
{
	long long count = -1;
	char head[32], *line;

	snprintf(head, sizeof(head), "\ncpu%d ", test_cpu);
	if (!read_text("/proc/schedstat", debug_text, DEBUG_BYTES))
		return -1;
	line = strstr(debug_text, head);
	if (line)
		sscanf(line, " %*s %*s %*s %*s %*s %*s %*s %*s %*s %lld",
		       &count);

	return count;
}

static bool add_turns(pid_t pid, long long *sum)
{
	char path[64], text[128];
	long long turns;

	snprintf(path, sizeof(path), "/proc/%d/schedstat", pid);
	if (!read_text(path, text, sizeof(text)) ||
	    sscanf(text, "%*s %*s %lld", &turns) != 1)
		return false;
	*sum += turns;

	return true;
}

/* How often somebody else began to run; 0 when that is not known. */
static long long count_strangers(struct crew *crew)
{
	long long all, known = 0;
	int i;

	all = count_arrivals();
	if (all < 0 || !add_turns(getpid(), &known) ||
	    !add_turns(crew->yielder, &known))
		return 0;
	for (i = 0; i < crew->hogs; i++) {
		if (!add_turns(crew->hog[i], &known))
			return 0;
	}

	return all - known;
}

static bool take_snapshot(struct crew *crew, struct snapshot *s)
{
	const char *line, *queue, *key;
	char root[32];

	memset(s, 0, sizeof(*s));
	if (!read_account(crew->yielder, &s->account))
		return false;
	s->strangers = count_strangers(crew);
	line = read_debug(crew->name);
	if (!line || !parse_task(line, s))
		return false;

	/* The root queue is where all tasks are, in whatever cgroup. */
	snprintf(root, sizeof(root), "\ncfs_rq[%d]:/\n", test_cpu);
	queue = strstr(debug_text, root);
	if (!queue) {
		snprintf(root, sizeof(root), "\ncfs_rq[%d]:\n", test_cpu);
		queue = strstr(debug_text, root);
	}
	if (!queue)
		return false;
	queue += strlen(root);
	key = strstr(queue, ".avg_vruntime");
	if (!key || !parse_ms(strchr(key, ':') + 1, &s->average))
		return false;
	key = strstr(queue, ".h_nr_runnable");
	if (!key)
		return false;
	s->runnable = strtoll(strchr(key, ':') + 1, NULL, 10);
	key = strstr(queue, ".h_nr_queued");
	if (!key)
		return false;
	s->queued = strtoll(strchr(key, ':') + 1, NULL, 10);

	return true;
}

/**
 * struct rule - what a charge is expected to be
 * @tick:	what is charged of a longer rest, in ns; 0 for all of it
 * @nice_0:	weight of nice 0
 */
struct rule {
	long long tick;
	long long nice_0;
};

/* The average was read before the call: by less a task may not be eligible */
#define UNSURE		1000

static long long smaller(long long a, long long b)
{
	return a < b ? a : b;
}

/* @longer: what is left after a tick is paid later if it is not less. */
static long long price(long long left, long long tick, long long longer)
{
	return tick && left >= tick + longer ? tick : left;
}

/* Add one sample; tells what was wrong with it. */
static bool judge(const struct snapshot *before, const struct snapshot *after,
		  const struct rule *rule, struct tally *tally, char *why,
		  size_t size)
{
	long long used, charge, left, tick, longer, lag, low, high, slack;

	used = weigh(after->account.exec - before->account.exec,
		     before->weight, rule->nice_0);
	charge = after->account.vruntime - before->account.vruntime - used;
	left = before->deadline - before->account.vruntime;

	/* A weight that changes moves vruntime; small ones have no sign. */
	if (before->weight != after->weight ||
	    before->account.voluntary != after->account.voluntary ||
	    before->runnable < 2 ||
	    before->account.vruntime < 2 * NSEC_PER_MSEC ||
	    used < 0 || left <= used) {
		tally->void_++;
		return true;
	}

	tick = weigh(rule->tick, before->weight, rule->nice_0);
	longer = before->slice < rule->tick * 5 / 2 ? tick / 2 : 0;
	low = price(left - used, tick, longer);
	high = price(left, tick, longer);
	/* How much of @used was before the yield is not known. */
	if (left - used < tick + longer + tick / 50 &&
	    left > tick + longer - tick / 50) {
		low = smaller(left - used, tick);
		high = tick + longer;
	}
	slack = high / 50 + 100;

	lag = before->average - before->account.vruntime - used;
	if (charge >= low - slack && charge <= high + slack) {
		/* Nearly nothing was left: is this a charge or none? */
		if (llabs(charge) <= slack)
			tally->void_++;
		else if (lag > 0)
			tally->sure++;
		else
			tally->other++;
		return true;
	}
	if (llabs(charge) <= slack &&
	    (lag <= UNSURE || before->strangers != after->strangers)) {
		tally->free++;
		return true;
	}

	tally->wrong++;
	snprintf(why, size,
		 "charged %lld ns, expected %lld to %lld (lag %lld, used %lld, left %lld, weight %lld)",
		 charge, low, high, before->average - before->account.vruntime,
		 used, left, before->weight);

	return false;
}

static bool is_enough(const struct tally *tally, int wanted)
{
	return tally->sure >= wanted || tally->other >= MANY;
}

/* Until there are enough samples; false when the yielder is gone. */
static bool collect(struct crew *crew, const struct rule *rule, bool grouped,
		    int wanted, struct tally *tally, char *why, size_t size)
{
	struct snapshot before, after;
	char stop;
	int i;

	memset(tally, 0, sizeof(*tally));
	for (i = 0; i < 200 * wanted; i++) {
		if (is_enough(tally, wanted) || tally->wrong > 1)
			break;
		stop = next_stop(crew);
		if (!stop)
			return false;
		if (stop != BEFORE)
			continue;
		if (!take_snapshot(crew, &before))
			return false;
		if (has_moved(crew, &before.account)) {
			tally->void_++;
			continue;
		}
		stop = next_stop(crew);
		if (!stop)
			return false;

		/* In the root cgroup the weight does not change. */
		after = before;
		if (grouped ? !take_snapshot(crew, &after) :
			      !read_account(crew->yielder, &after.account))
			return false;
		if (!grouped)
			after.strangers = count_strangers(crew);
		if (has_moved(crew, &after.account)) {
			tally->void_++;
			continue;
		}
		judge(&before, &after, rule, tally, why, size);
	}

	return true;
}

static long long rule_nice_0(void)
{
	static long long weight;
	pid_t pid;
	int pipes[2];

	if (weight || pipe(pipes))
		return weight;
	pid = fork_bound();
	if (!pid) {
		weight = nice_0_weight();
		_exit(write(pipes[1], &weight, sizeof(weight)) < 0);
	}
	close(pipes[1]);
	if (read(pipes[0], &weight, sizeof(weight)) != sizeof(weight))
		weight = 0;
	close(pipes[0]);
	waitpid(pid, NULL, 0);

	return weight;
}

/* What all tests need: to be on the CPU, and above those they watch. */
static const char *prepare(void)
{
	const char *reason;

	if (geteuid())
		return "not root";
	if (access(SCHED_DEBUG, R_OK))
		return "no " SCHED_DEBUG;
	if (!rule_nice_0())
		return "no weight in /proc/self/sched";
	reason = take_cpu(WATCHDOG);
	if (reason)
		return reason;
	debug_text = mmap(NULL, DEBUG_BYTES, PROT_READ | PROT_WRITE,
			  MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);

	return debug_text == MAP_FAILED ? "no memory" : NULL;
}

FIXTURE(charge) {
	struct crew crew;
};

FIXTURE_VARIANT(charge) {
	int policy;
	int nice;
};

FIXTURE_VARIANT_ADD(charge, nice_0) {
	.policy = SCHED_OTHER,
};

FIXTURE_VARIANT_ADD(charge, nice_minus_20) {
	.policy = SCHED_OTHER,
	.nice = -20,
};

FIXTURE_VARIANT_ADD(charge, nice_19) {
	.policy = SCHED_OTHER,
	.nice = 19,
};

FIXTURE_VARIANT_ADD(charge, batch) {
	.policy = SCHED_BATCH,
};

FIXTURE_VARIANT_ADD(charge, idle) {
	.policy = SCHED_IDLE,
};

FIXTURE_SETUP(charge)
{
	const char *reason;

	self->crew.stops = -1;
	reason = prepare();
	if (reason)
		SKIP(return, "%s", reason);
}

FIXTURE_TEARDOWN(charge)
{
	crew_end(&self->crew);
}

/* An automatic group per session counts as well. */
static bool grouped(const struct scene *scene)
{
	char text[16];

	if (scene->yielder_group || scene->hog_group)
		return true;

	return read_text("/proc/sys/kernel/sched_autogroup_enabled", text,
			 sizeof(text)) && text[0] == '1';
}

static void check_charges(struct __test_metadata *_metadata,
			  struct crew *crew, struct scene *scene,
			  long long tick, int wanted)
{
	struct rule rule = {
		.tick = tick,
		.nice_0 = rule_nice_0(),
	};
	struct tally tally;
	char why[256] = "";

	ASSERT_TRUE(crew_start(crew, scene)) {
		TH_LOG("the tasks did not start");
	}
	ASSERT_TRUE(collect(crew, &rule, grouped(scene), wanted, &tally, why,
			    sizeof(why))) {
		TH_LOG("slice %lld: a task died or hangs", scene->slice);
	}
	crew_end(crew);

	EXPECT_EQ(0, tally.wrong) {
		TH_LOG("slice %lld: %s", scene->slice, why);
	}
	/* Otherwise nothing was tested. */
	EXPECT_TRUE(tally.wrong || is_enough(&tally, wanted)) {
		TH_LOG("slice %lld: %d sure, %d other, %d free, %d wrong, %d void",
		       scene->slice, tally.sure, tally.other, tally.free,
		       tally.wrong, tally.void_);
	}
}

static void check_slices(struct __test_metadata *_metadata,
			 struct crew *crew, struct scene *scene,
			 long long tick, int wanted)
{
	unsigned int i;

	for (i = 0; i < ARRAY_SIZE(slices); i++) {
		scene->slice = slices[i];
		check_charges(_metadata, crew, scene, tick, wanted);
	}
}

/*
 * Nobody to yield to: nothing to pay, whatever the bits are. Nobody waits at
 * either stop, and between them only the yielder and the test began to run:
 * then there was nobody at the yield either.
 */
TEST_F(charge, alone)
{
	const char *reason;
	struct scene scene = {
		.policy = variant->policy,
		.nice = variant->nice,
		.sleeps = true,
	};
	struct snapshot before, after;
	long long used, charge, count;
	unsigned int i;
	char stop;

	if (count_arrivals() < 0)
		SKIP(return, "no /proc/schedstat");
	reason = set_bits(true, true);
	if (reason)
		SKIP(return, "%s", reason);
	for (i = 0; i < ARRAY_SIZE(slices); i++) {
		int tries, good = 0;

		scene.slice = slices[i];
		ASSERT_TRUE(crew_start(&self->crew, &scene));
		ASSERT_EQ(BEFORE, next_stop(&self->crew));
		ASSERT_TRUE(take_snapshot(&self->crew, &before));
		EXPECT_EQ(slices[i], before.slice);

		for (tries = 0; good < WANTED && tries < 300; tries++) {
			stop = next_stop(&self->crew);
			ASSERT_NE(0, stop);
			if (stop != BEFORE)
				continue;
			ASSERT_TRUE(take_snapshot(&self->crew, &before));
			if (before.queued != 1 ||
			    has_moved(&self->crew, &before.account))
				continue;
			count = count_arrivals();

			ASSERT_NE(0, next_stop(&self->crew));
			count = count_arrivals() - count;
			ASSERT_TRUE(take_snapshot(&self->crew, &after));
			if (count != 2 || after.runnable != 1 ||
			    after.weight != before.weight ||
			    has_moved(&self->crew, &after.account))
				continue;

			used = weigh(after.account.exec - before.account.exec,
				     before.weight, rule_nice_0());
			charge = after.account.vruntime -
				 before.account.vruntime - used;
			EXPECT_GE(used / 50 + 100, llabs(charge)) {
				TH_LOG("slice %lld: charged %lld ns",
				       slices[i], charge);
			}
			good++;
		}
		crew_end(&self->crew);
		if (good < WANTED)
			SKIP(return, "never alone on CPU %d", test_cpu);
	}
}

TEST_F(charge, one_hog)
{
	const char *reason;
	struct scene scene = {
		.policy = variant->policy,
		.nice = variant->nice,
		.hogs = 1,
		.hog_policy = variant->policy,
		.hog_nice = variant->nice,
	};

	reason = set_bits(true, true);
	if (reason)
		SKIP(return, "%s", reason);
	check_slices(_metadata, &self->crew, &scene, tick_ns(), WANTED);
}

TEST_F(charge, three_hogs)
{
	const char *reason;
	struct scene scene = {
		.policy = variant->policy,
		.nice = variant->nice,
		.hogs = 3,
		.hog_policy = variant->policy,
		.hog_nice = variant->nice,
	};

	reason = set_bits(true, true);
	if (reason)
		SKIP(return, "%s", reason);
	check_slices(_metadata, &self->crew, &scene, tick_ns(), WANTED);
}

/* The bit off: all that is left of the request. */
TEST_F(charge, feature_off)
{
	const char *reason;
	struct scene scene = {
		.policy = variant->policy,
		.nice = variant->nice,
		.hogs = 1,
		.hog_policy = variant->policy,
		.hog_nice = variant->nice,
	};

	reason = set_bits(false, false);
	if (reason)
		SKIP(return, "%s", reason);
	check_slices(_metadata, &self->crew, &scene, 0, 2);
}

/* Tasks of different weight: what counts is the yielder's. */
FIXTURE(weights) {
	struct crew crew;
};

FIXTURE_VARIANT(weights) {
	int policy, nice;
	int hog_policy, hog_nice;
};

FIXTURE_VARIANT_ADD(weights, heavy_beside_light) {
	.nice = -20,
	.hog_nice = 0,
};

FIXTURE_VARIANT_ADD(weights, light_beside_heavy) {
	.nice = 10,
	.hog_nice = 0,
};

FIXTURE_VARIANT_ADD(weights, normal_beside_idle) {
	.hog_policy = SCHED_IDLE,
};

FIXTURE_SETUP(weights)
{
	const char *reason;

	self->crew.stops = -1;
	reason = prepare();
	if (reason)
		SKIP(return, "%s", reason);
}

FIXTURE_TEARDOWN(weights)
{
	crew_end(&self->crew);
}

TEST_F(weights, one_hog)
{
	const char *reason;
	struct scene scene = {
		.policy = variant->policy,
		.nice = variant->nice,
		.hogs = 1,
		.hog_policy = variant->hog_policy,
		.hog_nice = variant->hog_nice,
	};

	reason = set_bits(true, true);
	if (reason)
		SKIP(return, "%s", reason);
	scene.slice = 2800 * NSEC_PER_USEC;
	check_charges(_metadata, &self->crew, &scene, tick_ns(), WANTED);
	scene.slice = 100 * NSEC_PER_MSEC;
	check_charges(_metadata, &self->crew, &scene, tick_ns(), WANTED);
}

/* The weight is that of the whole path of cgroups. */
FIXTURE(cgroups) {
	struct crew crew;
	char root[64];
	char group[2][160];
	char hogs[160];
	bool mounted;
	bool enabled;
};

FIXTURE_VARIANT(cgroups) {
	const char *weight;
	const char *inner_weight;
	bool hog_inside;
};

FIXTURE_VARIANT_ADD(cgroups, weight_100) {
	.weight = "100",
};

FIXTURE_VARIANT_ADD(cgroups, weight_20) {
	.weight = "20",
};

FIXTURE_VARIANT_ADD(cgroups, weight_500) {
	.weight = "500",
};

FIXTURE_VARIANT_ADD(cgroups, nested) {
	.weight = "200",
	.inner_weight = "50",
};

FIXTURE_VARIANT_ADD(cgroups, hog_in_same_group) {
	.weight = "100",
	.hog_inside = true,
};

static bool make_group(const char *path, const char *weight)
{
	char file[PATH_MAX];

	if (mkdir(path, 0755))
		return false;
	snprintf(file, sizeof(file), "%s/cpu.weight", path);

	return !weight || write_text(file, weight);
}

/* The cgroup v2 hierarchy, mounted where only we see it if need be. */
static const char *find_cgroups(char *root, size_t size, bool *mounted,
				bool *enabled)
{
	char file[128], text[1024];

	snprintf(root, size, "/sys/fs/cgroup");
	snprintf(file, sizeof(file), "%s/cgroup.controllers", root);
	if (!read_text(file, text, sizeof(text))) {
		snprintf(root, size, "/tmp/yield_charge.XXXXXX");
		if (!mkdtemp(root))
			return "no place to mount cgroup v2";
		if (unshare(CLONE_NEWNS) ||
		    mount(NULL, "/", NULL, MS_REC | MS_PRIVATE, NULL) ||
		    mount("none", root, "cgroup2", 0, NULL)) {
			rmdir(root);
			return "no cgroup v2";
		}
		*mounted = true;
		snprintf(file, sizeof(file), "%s/cgroup.controllers", root);
		if (!read_text(file, text, sizeof(text)))
			return "no cgroup v2";
	}
	if (!strstr(text, "cpu ") && !strstr(text, "cpu\n"))
		return "no cpu controller in cgroup v2";
	if (!cpu_controller_on(root, enabled))
		return "the cpu controller cannot be enabled";

	return NULL;
}

static void leave_cgroups(const char *root, bool mounted, bool enabled)
{
	if (enabled)
		cpu_controller_off(root);
	if (mounted) {
		umount(root);
		rmdir(root);
	}
}

FIXTURE_SETUP(cgroups)
{
	const char *reason;
	char file[256];

	self->crew.stops = -1;
	reason = prepare();
	if (reason)
		SKIP(return, "%s", reason);

	reason = find_cgroups(self->root, sizeof(self->root), &self->mounted,
			      &self->enabled);
	if (reason) {
		/* There is no teardown after a skip. */
		leave_cgroups(self->root, self->mounted, self->enabled);
		SKIP(return, "%s", reason);
	}

	snprintf(self->group[0], sizeof(self->group[0]), "%s/yield-%d",
		 self->root, getpid());
	ASSERT_TRUE(make_group(self->group[0], variant->weight));
	if (variant->inner_weight) {
		snprintf(file, sizeof(file), "%s/cgroup.subtree_control",
			 self->group[0]);
		ASSERT_TRUE(write_text(file, "+cpu"));
		snprintf(self->group[1], sizeof(self->group[1]),
			 "%s/yield-%d/inner", self->root, getpid());
		ASSERT_TRUE(make_group(self->group[1], variant->inner_weight));
	}
	snprintf(self->hogs, sizeof(self->hogs), "%s/hogs-%d", self->root,
		 getpid());
	ASSERT_TRUE(make_group(self->hogs, NULL));
}

FIXTURE_TEARDOWN(cgroups)
{
	crew_end(&self->crew);
	if (self->group[1][0])
		rmdir(self->group[1]);
	if (self->group[0][0])
		rmdir(self->group[0]);
	if (self->hogs[0])
		rmdir(self->hogs);
	leave_cgroups(self->root, self->mounted, self->enabled);
}

TEST_F(cgroups, one_hog)
{
	const char *reason;
	struct scene scene = {
		.hogs = 1,
		.yielder_group = self->group[variant->inner_weight ? 1 : 0],
	};

	scene.hog_group = variant->hog_inside ? scene.yielder_group :
						self->hogs;
	reason = set_bits(true, true);
	if (reason)
		SKIP(return, "%s", reason);
	scene.slice = 2800 * NSEC_PER_USEC;
	check_charges(_metadata, &self->crew, &scene, tick_ns(), WANTED);
	scene.slice = 100 * NSEC_PER_MSEC;
	check_charges(_metadata, &self->crew, &scene, tick_ns(), WANTED);
}

/* The other classes have their own idea of a yield: the bits change nothing. */
FIXTURE(other_class) {
	pid_t pid[2];
	unsigned long *turns;
};

FIXTURE_VARIANT(other_class) {
	bool on;
};

FIXTURE_VARIANT_ADD(other_class, features_on) {
	.on = true,
};

FIXTURE_VARIANT_ADD(other_class, features_off) {
	.on = false,
};

FIXTURE_SETUP(other_class)
{
	const char *reason;

	reason = prepare();
	if (reason)
		SKIP(return, "%s", reason);
	self->turns = mmap(NULL, 4096, PROT_READ | PROT_WRITE,
			   MAP_SHARED | MAP_ANONYMOUS, -1, 0);
	ASSERT_TRUE(self->turns != MAP_FAILED);
}

FIXTURE_TEARDOWN(other_class)
{
	end_child(self->pid[0]);
	end_child(self->pid[1]);
}

#define TURNS	1000UL

/* Two of the same priority alternate: each yield is one turn of the other. */
static void check_realtime(struct __test_metadata *_metadata,
			   pid_t *pid, unsigned long *turns,
			   int policy)
{
	struct task_account before[2], after[2];
	unsigned long i, spread;
	int status, me;

	/* At the end of its time slice a SCHED_RR task loses a turn. */
	spread = policy == SCHED_RR ? 4 : 1;

	for (me = 0; me < 2; me++) {
		pid[me] = fork_bound();
		ASSERT_LE(0, pid[me]);
		if (pid[me])
			continue;
		if (set_realtime(policy, 1))
			_exit(2);
		raise(SIGSTOP);
		for (i = 0; i < TURNS; i++) {
			turns[me]++;
			if (turns[0] > turns[1] + spread ||
			    turns[1] > turns[0] + spread)
				_exit(3);
			sched_yield();
		}
		/* The other one has all its turns, too, or its last to come. */
		raise(SIGSTOP);
		_exit(0);
	}

	for (me = 0; me < 2; me++) {
		ASSERT_EQ(pid[me], waitpid(pid[me], &status, WUNTRACED));
		ASSERT_TRUE(WIFSTOPPED(status));
		ASSERT_TRUE(read_account(pid[me], &before[me]));
	}
	kill(pid[0], SIGCONT);
	kill(pid[1], SIGCONT);
	for (me = 0; me < 2; me++) {
		ASSERT_EQ(pid[me], waitpid(pid[me], &status, WUNTRACED));
		ASSERT_TRUE(WIFSTOPPED(status)) {
			TH_LOG("status %#x: 3 is not alternating",
			       WEXITSTATUS(status));
		}
		ASSERT_TRUE(read_account(pid[me], &after[me]));
	}
	for (me = 0; me < 2; me++) {
		EXPECT_EQ(TURNS, turns[me]);
		EXPECT_EQ(before[me].vruntime, after[me].vruntime);
		/* The last yields may find the other one gone. */
		EXPECT_LE((long long)TURNS - 2, after[me].involuntary -
						before[me].involuntary);
	}
}

TEST_F(other_class, fifo)
{
	const char *reason;

	reason = set_bits(variant->on, variant->on);
	if (reason)
		SKIP(return, "%s", reason);
	check_realtime(_metadata, self->pid, self->turns, SCHED_FIFO);
}

TEST_F(other_class, rr)
{
	const char *reason;

	reason = set_bits(variant->on, variant->on);
	if (reason)
		SKIP(return, "%s", reason);
	check_realtime(_metadata, self->pid, self->turns, SCHED_RR);
}

/* A yield gives up the rest of the runtime until the next period. */
TEST_F(other_class, deadline)
{
	const char *reason;
	const long long runtime = 2 * NSEC_PER_MSEC;
	const long long period = 20 * NSEC_PER_MSEC;
	struct task_attr attr = {
		.sched_policy = SCHED_DEADLINE,
		.sched_runtime = runtime,
		.sched_deadline = period,
		.sched_period = period,
	};
	static cpu_set_t all[YIELD_MAX_CPUS / CPU_SETSIZE];
	struct task_account before, after;
	int status, i;

	reason = set_bits(variant->on, variant->on);
	if (reason)
		SKIP(return, "%s", reason);
	memset(all, 0xff, sizeof(all));

	self->pid[0] = fork_bound();
	ASSERT_LE(0, self->pid[0]);
	if (!self->pid[0]) {
		/* Admission asks for all CPUs of the root domain. */
		sched_setaffinity(0, sizeof(all), all);
		if (set_attr(0, &attr))
			_exit(errno == EPERM || errno == EBUSY ? KSFT_SKIP : 2);
		for (i = 0; i < 20; i++) {
			if (!read_account(getpid(), &before))
				_exit(3);
			sched_yield();
			if (!read_account(getpid(), &after))
				_exit(3);
			if (after.dl_deadline < before.dl_deadline + period)
				_exit(4);
			if (after.vruntime != before.vruntime)
				_exit(5);
		}
		_exit(0);
	}
	ASSERT_EQ(self->pid[0], waitpid(self->pid[0], &status, 0));
	self->pid[0] = 0;
	ASSERT_TRUE(WIFEXITED(status));
	if (WEXITSTATUS(status) == KSFT_SKIP)
		SKIP(return, "SCHED_DEADLINE is not admitted");
	EXPECT_EQ(0, WEXITSTATUS(status)) {
		TH_LOG("4: still the same period, 5: vruntime changed");
	}
}

/* A test that is killed must not leave the machine with other bits. */
TEST(features_are_restored)
{
	const char *name = yield_features[CHARGE];
	int status, was, i;
	pid_t pid;

	prctl(PR_SET_PDEATHSIG, SIGKILL);
	if (no_bits)
		SKIP(return, "%s", no_bits);

	was = feature_get(name);
	pid = fork_bound();
	ASSERT_LE(0, pid);
	if (!pid) {
		guard.fd = -1;
		if (!guard_start() || !feature_set(name, !was))
			_exit(1);
		kill(getpid(), SIGKILL);
	}
	ASSERT_EQ(pid, waitpid(pid, &status, 0));
	ASSERT_TRUE(WIFSIGNALED(status));
	for (i = 0; i < 500 && feature_get(name) != was; i++)
		usleep(10000);
	EXPECT_EQ(was, feature_get(name));
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
