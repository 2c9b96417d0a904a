// SPDX-License-Identifier: GPL-2.0
/*
 * sched_yield() of tasks of the fair class: shares, waits, and their own slices.
 * The tasks are processes on one CPU; the test is SCHED_FIFO there and sleeps
 * while it measures. Each case runs with the feature bit YIELD_TICK off, then
 * on, and compares. Where there is no such bit, it runs once.
 */
#define _GNU_SOURCE
#include <fcntl.h>
#include <sched.h>
#include <time.h>
#include <sys/prctl.h>
#include <sys/stat.h>
#include <sys/syscall.h>

#include "kselftest_harness.h"

#define USEC(n)		((n) * 1000LL)
#define MSEC(n)		((n) * 1000000LL)
#define S2		USEC(2800)
#define FEATURES	"/sys/kernel/debug/sched/features"
#define BASE_SLICE	"/sys/kernel/debug/sched/base_slice_ns"
#define CGROUPS		"/sys/fs/cgroup"
#define MAX_TASKS	10
#define get(x)		__atomic_load_n(&(x), __ATOMIC_RELAXED)
#define now_ns()	clock_ns(CLOCK_MONOTONIC)

/*
 * A worker computes for @work, yields, and so on. A stormer yields for @work,
 * then is a hog. A locker yields after each 100 attempts to get the lock.
 */
struct plan {
	enum { HOG, WORKER, STORMER, LOCKER } role;
	long long slice, work;
	int nice, policy;
	/* Of a cgroup of its own, if it is to have one. */
	const char *weight;
};

/* A wait ends when a task runs again, or has the lock. Times are in ns. */
static struct shared {
	bool measuring;
	int lock;
	struct seen {
		long long used, longest;
		long turns, waits, late, wrong;
		double share;
	} task[MAX_TASKS];
} *shared, *off, *on;

/* As struct sched_attr, which not all C libraries have. */
struct attr {
	__u32 size, policy;
	__u64 flags;
	__s32 nice;
	__u32 priority;
	__u64 slice, deadline, period;
};

/* The bit as it was, -1 where there is none; a longer wait is late. */
static int bit = -1;
static long long limit;
static char base_slice[32];

static long long clock_ns(clockid_t clock)
{
	struct timespec ts = { 0 };

	clock_gettime(clock, &ts);
	return ts.tv_sec * MSEC(1000) + ts.tv_nsec;
}

static bool write_text(const char *path, const char *text)
{
	int fd = open(path, O_WRONLY | O_CLOEXEC);
	bool good = write(fd, text, strlen(text)) > 0;

	close(fd);
	return good;
}

static void read_text(const char *path, char *text, size_t size)
{
	int fd = open(path, O_RDONLY | O_CLOEXEC);

	if (read(fd, text, size - 1) >= 0)
		close(fd);
}

static void note_wait(struct seen *seen, long long ns)
{
	if (!get(shared->measuring))
		return;
	seen->waits++;
	seen->late += ns > limit;
	if (ns > seen->longest)
		seen->longest = ns;
}

/* A gap in what a task sees of the clock is a wait, and no work of it. */
static void spin(struct seen *seen, long long ns)
{
	long long last = now_ns(), now;

	for (; ns > 0; last = now) {
		now = now_ns();
		if (now - last < USEC(20))
			ns -= now - last;
		else if (seen)
			note_wait(seen, now - last);
	}
}

static void run_task(const struct plan *plan, struct seen *seen)
{
	struct attr attr = { sizeof(attr), plan->policy, 0, plan->nice, 0,
			     plan->slice };
	long long start, end = now_ns() + plan->work;
	bool locks = plan->role == LOCKER;
	int tries = 0;

	if (syscall(SYS_sched_setattr, 0, &attr, 0))
		return;
	srandom(getpid());
	while (plan->role == STORMER && now_ns() < end) {
		sched_yield();
		syscall(SYS_sched_getattr, 0, &attr, sizeof(attr), 0);
		seen->wrong += attr.slice != (plan->slice ?: MSEC(10));
	}
	while (plan->role == WORKER || locks) {
		spin(locks ? NULL : seen, locks ? plan->work / 4 : plan->work);
		start = now_ns();
		while (locks && __atomic_exchange_n(&shared->lock, 1, __ATOMIC_ACQUIRE))
			if (++tries % 100 == 0)
				sched_yield();
		if (!locks)
			sched_yield();
		note_wait(seen, now_ns() - start);
		seen->turns += get(shared->measuring);
		if (locks) {
			/* Not all in step, or who gets the lock is by chance. */
			spin(NULL, plan->work / 2 + random() % plan->work);
			__atomic_store_n(&shared->lock, 0, __ATOMIC_RELEASE);
		}
	}
	spin(seen, MSEC(1000000));
}

static bool join_group(const char *group, const char *weight)
{
	write_text(CGROUPS "/cgroup.subtree_control", "+cpu");
	mkdir(group, 0755);
	return !chdir(group) && write_text("cpu.weight", weight) &&
	       write_text("cgroup.procs", "0");
}

/* Returns whether nobody else used the CPU. */
static bool measure(struct shared *found, const struct plan *plan, int nr, int ms)
{
	long long took, used = 0;
	clockid_t clock[MAX_TASKS];
	pid_t pid[MAX_TASKS];
	struct seen *seen;
	char group[64];
	int i;

	write_text(FEATURES, found == on ? "YIELD_TICK" : "NO_YIELD_TICK");
	shared = found;
	for (i = 0; i < nr; i++) {
		pid[i] = fork();
		sprintf(group, CGROUPS "/yield-%d", pid[i] ?: getpid());
		if (pid[i])
			continue;
		prctl(PR_SET_PDEATHSIG, SIGKILL);
		if (!plan[i].weight || join_group(group, plan[i].weight))
			run_task(&plan[i], &shared->task[i]);
		_exit(1);
	}
	usleep(100000 + 3 * plan->slice / 1000);
	__atomic_store_n(&shared->measuring, true, __ATOMIC_RELAXED);
	for (i = 0; i < nr; i++)
		shared->task[i].used = clock_getcpuclockid(pid[i], &clock[i]) ?:
				       -clock_ns(clock[i]);
	took = -now_ns();
	usleep(ms * 1000);
	took += now_ns();
	__atomic_store_n(&shared->measuring, false, __ATOMIC_RELAXED);
	for (i = 0; i < nr; i++) {
		seen = &shared->task[i];
		seen->used += clock_ns(clock[i]);
		used += seen->used;
		seen->share = 100. * seen->used / took;
		kill(pid[i], SIGKILL);
		waitpid(pid[i], NULL, 0);
		sprintf(group, CGROUPS "/yield-%d", pid[i]);
		while (rmdir(group) && errno == EBUSY)
			usleep(1000);
	}
	return used > 0.9 * took;
}

FIXTURE(yield) {};
FIXTURE_TEARDOWN(yield) {}
/*
 * A first task beside @nr others: its share in percent; one wait of 20 may be
 * longer than @limit, for hosts stop guests; what the last tasks keep of their turns.
 */
FIXTURE_VARIANT(yield)
{
	struct plan first, others;
	int nr, ms;
	double least, most, kept;
	long long limit;
};

FIXTURE_SETUP(yield)
{
	const struct sched_param param = { .sched_priority = 50 };
	struct timespec tick;
	cpu_set_t cpus;

	clock_getres(CLOCK_MONOTONIC_COARSE, &tick);
	if (tick.tv_nsec > MSEC(1))
		SKIP(return, "the figures are for HZ=1000");
	CPU_ZERO(&cpus);
	CPU_SET(sched_getcpu(), &cpus);
	if (sched_setaffinity(0, sizeof(cpus), &cpus) ||
	    sched_setscheduler(0, SCHED_FIFO, &param))
		SKIP(return, "not root");
	off = mmap(NULL, 2 * sizeof(*off), PROT_READ | PROT_WRITE,
		   MAP_SHARED | MAP_ANONYMOUS, -1, 0);
	on = off + 1;
}

TEST_F_TIMEOUT(yield, test, 15)
{
	const struct plan *first = &variant->first;
	struct plan plan[MAX_TASKS] = { *first };
	struct seen *a = off->task, *b = on->task;
	long before = 0, now = 0;
	bool alone = true;
	int nr = variant->nr, i;

	for (i = 1; i <= nr; i++) {
		plan[i] = i <= nr / 2 && first->role == LOCKER ?
			  *first : variant->others;
		plan[i].slice = plan[i].slice ?: first->slice;
	}
	if (!first->slice && !write_text(BASE_SLICE, "10000000"))
		SKIP(return, "no " BASE_SLICE);
	limit = variant->limit ?: MSEC(1000000);
	if (bit >= 0)
		alone = measure(off, plan, nr + 1, variant->ms);
	alone &= measure(on, plan, nr + 1, variant->ms);
	write_text(BASE_SLICE, base_slice);
	for (i = nr / 2 + 1; i <= nr; i++) {
		before += a[i].turns;
		now += b[i].turns;
	}
	TH_LOG("off, on: share %.2f %.2f %%, late %ld/%ld %ld/%ld, longest %lld %lld, last %ld %ld",
	       a->share, b->share, a->late, a->waits, b->late, b->waits,
	       a->longest, b->longest, before, now);
	if (!alone || (b->waits < 15 && b->share >= variant->least))
		SKIP(return, "%s", alone ? "too few waits" : "others used the CPU");
	EXPECT_LE(variant->least, b->share);
	EXPECT_GE(variant->most ?: 100, b->share);
	if (first->role == WORKER && variant->others.role != WORKER)
		EXPECT_GE(b->share, 0.9 * a->share);
	EXPECT_LE(b->late, b->waits / 20);
	EXPECT_GE(now, variant->kept * before);
	/* The bit is what matters, but not to slices of a tick or less. */
	if (first->role == WORKER && first->slice == MSEC(100))
		EXPECT_LT(a->share, 1);
	if (bit >= 0 && first->slice == USEC(700))
		EXPECT_LE(b->share, 1.1 * a->share);
	/* The slice was back soon, and sched_getattr() never told other. */
	if (first->role == STORMER) {
		EXPECT_EQ(0, b->wrong);
		EXPECT_LT(b->waits, 80);
	}
}

#define CASE(name) FIXTURE_VARIANT_ADD(yield, name)
#define SHARE(_nr, _slice, _least, _most, _limit, ...)			\
	.first = { WORKER, _slice, USEC(100), __VA_ARGS__ },		\
	.nr = _nr, .ms = 500, .least = _least, .most = _most, .limit = _limit
#define SHORT(_nr, _limit)						\
	.first = { HOG, USEC(1100) }, .others = { WORKER, S2, USEC(2500) }, \
	.nr = _nr, .ms = 800, .limit = _limit

CASE(share_1_hog) { SHARE(1, S2, 10.2, 20, USEC(1900)) };
CASE(share_3_hogs) { SHARE(3, S2, 3.6, 10, MSEC(5)) };
CASE(share_100ms_1_hog) { SHARE(1, MSEC(100), 9.9, 20, USEC(1900)) };
CASE(share_100ms_3_hogs) { SHARE(3, MSEC(100), 3.6, 10, MSEC(5)) };
CASE(share_2500us) { SHARE(1, S2, 43, 60, 0), .first.work = USEC(2500) };
CASE(share_700us) { SHARE(1, USEC(700), 1, 100, 0) };
CASE(share_batch) { SHARE(1, MSEC(20), 9, 20, 0, .policy = SCHED_BATCH) };
CASE(share_nice_10) { SHARE(1, MSEC(20), 0.9, 8, 0, .nice = 10) };
CASE(light_group) { SHARE(1, MSEC(20), 2, 6, 0, .weight = "20"),
	.others.weight = "100" };
CASE(heavy_group) { SHARE(1, MSEC(20), 35, 60, 0, .weight = "1000"),
	.others.weight = "100" };
CASE(short_slice_1_yielder) { SHORT(1, MSEC(2)) };
CASE(short_slice_3_yielders) { SHORT(3, MSEC(5)) };
CASE(lock_by_weight) {
	.first = { LOCKER, S2, USEC(200) }, .others = { LOCKER, S2, USEC(200), 10 },
	.nr = 7, .ms = 3000, .kept = 0.7 };
CASE(only_yielders) {
	.first = { WORKER, S2 }, .others = { WORKER, S2 },
	.nr = 9, .ms = 1000, .least = 2, .most = 30, .kept = 0.5 };
CASE(bystander) {
	.first = { HOG, S2 }, .others = { STORMER, MSEC(100), MSEC(400), -10 },
	.nr = 1, .ms = 1000, .least = 33, .limit = MSEC(28) };
#define BACK(_slice)							\
	.first = { STORMER, _slice, MSEC(60) }, .nr = 3, .ms = 1500
CASE(default_slice_back) { BACK(0) };
CASE(own_slice_back) { BACK(MSEC(20)) };

static pid_t tests;

static void end_tests(int sig)
{
	kill(tests, SIGKILL);
}

/* The tests run in a child: however they end, the settings are restored. */
int main(int argc, char **argv)
{
	char features[4096] = " ";
	int status = 0;

	read_text(BASE_SLICE, base_slice, sizeof(base_slice));
	read_text(FEATURES, features + 1, sizeof(features) - 1);
	if (strstr(features, "YIELD_TICK "))
		bit = !strstr(features, " NO_YIELD_TICK ");
	/* What a killed child leaves behind is waited for as well. */
	prctl(PR_SET_CHILD_SUBREAPER, 1);
	tests = fork();
	if (!tests)
		return test_harness_run(argc, argv);
	signal(SIGHUP, end_tests);
	signal(SIGINT, end_tests);
	signal(SIGTERM, end_tests);
	waitpid(tests, &status, 0);
	while (wait(NULL) > 0)
		;
	write_text(BASE_SLICE, base_slice);
	write_text(FEATURES, bit ? "YIELD_TICK" : "NO_YIELD_TICK");
	return WIFEXITED(status) ? WEXITSTATUS(status) : KSFT_FAIL;
}
