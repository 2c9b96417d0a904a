// SPDX-License-Identifier: GPL-2.0
/*
 * sched_yield() of tasks of the fair class, processes on one CPU. The test is
 * SCHED_FIFO there and sleeps while it measures. Each case runs with the feature
 * bit YIELD_TICK off, then on, and compares; where there is none, it runs once.
 */
#define _GNU_SOURCE
#include <fcntl.h>
#include <sched.h>
#include <time.h>
#include <linux/sched/types.h>
#include <sys/prctl.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <sys/syscall.h>

#include "kselftest_harness.h"

#define USEC(n)		((n) * 1000LL)
#define MSEC(n)		((n) * 1000000LL)
#define S2		USEC(2800)
#define FEATURES	"/sys/kernel/debug/sched/features"
#define CGROUPS		"/sys/fs/cgroup"
#define CGROUP_CONTROL	CGROUPS "/cgroup.subtree_control"
#define MAX_TASKS	11
#define get(x)		__atomic_load_n(&(x), __ATOMIC_ACQUIRE)
#define set(x, value)	__atomic_store_n(&(x), value, __ATOMIC_RELEASE)
#define now_ns()	clock_ns(CLOCK_MONOTONIC)

/*
 * A worker computes for @work and yields. A stormer yields for @work, then is a
 * hog. A locker yields after 100 attempts to get the lock, a passer until it has
 * the ball. A sleeper yields, sleeps, computes. A setter asks for other slices.
 */
struct plan {
	enum { HOG, WORKER, STORMER, LOCKER, PASSER, SLEEPER, SETTER, ALIKE } role;
	long long slice, work;
	int nice, policy;
	const char *weight;	/* of a cgroup of its own */
};

/* A wait, in ns, ends with the lock; after a yield in vain the caller ran on. */
static struct shared {
	bool measuring;
	int lock, ball;
	char fault[80];
	struct seen {
		long long used, longest;
		long turns, waits, late, vain, wrong;
		double share;
	} task[MAX_TASKS];
} *shared, *off, *on;

/* As it was, -1 if there is none. A wait of more than @limit is late. */
static int bit = -1;
static long long limit;
static pid_t tests;

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

/* Is a word in a file? What can't be read is as @otherwise says. */
static bool has_text(const char *path, const char *word, bool otherwise)
{
	char text[4096] = " ", spaced[32];
	int fd = open(path, O_RDONLY | O_CLOEXEC);
	ssize_t size = read(fd, text + 1, sizeof(text) - 3);
	char *newline;

	close(fd);
	if (size < 0)
		return otherwise;
	newline = strchr(text, '\n');
	strcpy(newline ?: text + size + 1, " ");
	sprintf(spaced, " %s ", word);
	return strstr(text, spaced);
}

static void die_with(pid_t parent)
{
	prctl(PR_SET_PDEATHSIG, SIGKILL);
	if (getppid() != parent)
		_exit(KSFT_FAIL);
}

static long switches(void)
{
	struct rusage usage;

	getrusage(RUSAGE_SELF, &usage);
	return usage.ru_nvcsw + usage.ru_nivcsw;
}

static int ask_slice(const struct plan *plan, long long slice)
{
	struct sched_attr attr = { sizeof(attr), plan->policy, 0, plan->nice, 0, slice };

	return syscall(SYS_sched_setattr, 0, &attr, 0);
}

static bool told_slice(long long slice)
{
	struct sched_attr attr = { 0 };

	syscall(SYS_sched_getattr, 0, &attr, sizeof(attr), 0);
	return attr.sched_runtime == slice;
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

/*
 * A gap in what a task sees of the clock is a wait, and no work of it. Interrupts
 * and the tick make shorter ones.
 */
static void spin(struct seen *seen, long long ns)
{
	long long last = now_ns(), now;

	for (; ns > 0; last = now) {
		/* About a microsecond: nops cost an emulator less than a clock. */
		asm volatile (".rept 1000\n\tnop\n\t.endr");
		now = now_ns();
		if (now - last < USEC(200))
			ns -= now - last;
		else if (seen)
			note_wait(seen, now - last);
	}
}

static void step(const struct plan *plan, struct seen *seen, int passers)
{
	static const long long asked[] = { MSEC(1), 1, MSEC(10000), MSEC(20) };
	static const long long told[] = { MSEC(1), USEC(100), MSEC(100), MSEC(20) };
	const struct sched_param param = { 0 };
	int i, me = seen - shared->task;
	struct timespec ts = { 0 };
	long long start, before;

	switch (plan->role) {
	default:
		for (start = now_ns(); now_ns() - start < plan->work; sched_yield())
			seen->wrong += !told_slice(plan->slice);
		spin(seen, MSEC(1000000));
		break;
	case LOCKER:
		spin(NULL, plan->work);
		start = now_ns();
		for (i = 1; __atomic_exchange_n(&shared->lock, 1, __ATOMIC_ACQUIRE); i++)
			if (i % 100 == 0)
				sched_yield();
		note_wait(seen, now_ns() - start);
		/* Not all in step, or who gets the lock is by chance. */
		spin(NULL, plan->work / 2 + random() % plan->work);
		set(shared->lock, 0);
		break;
	case PASSER:
		while (get(shared->ball) != me)
			sched_yield();
		spin(NULL, plan->work);
		set(shared->ball, (me + 1) % passers);
		break;
	case SLEEPER:
		spin(NULL, USEC(100));
		sched_yield();
		usleep(20000);
		spin(seen, plan->work);
		break;
	case SETTER:
		for (i = 0; i < 4; i++) {
			spin(NULL, USEC(100));
			sched_yield();
			ask_slice(plan, asked[i]);
			seen->wrong += !told_slice(told[i]);
		}
		spin(NULL, USEC(100));
		sched_yield();
		sched_rr_get_interval(0, &ts);
		syscall(SYS_sched_setscheduler, 0, SCHED_BATCH, &param);
		seen->wrong += ts.tv_nsec != plan->slice || !told_slice(plan->slice);
		ask_slice(plan, plan->slice);
		break;
	case WORKER:
		spin(seen, plan->work);
		start = now_ns();
		before = switches();
		sched_yield();
		seen->vain += get(shared->measuring) && switches() == before;
		note_wait(seen, now_ns() - start);
	}
	seen->turns += get(shared->measuring);
}

static bool join_group(const char *group, const char *weight)
{
	write_text(CGROUP_CONTROL, "+cpu");
	rmdir(group);
	return !mkdir(group, 0755) && !chdir(group) &&
	       write_text("cpu.weight", weight) && write_text("cgroup.procs", "0");
}

static void measure(struct shared *found, const struct plan *plan, int nr, int passers, int ms)
{
	pid_t pid[MAX_TASKS], self = getpid();
	clockid_t id[MAX_TASKS];
	long long took, used = 0;
	char group[64];
	int i;

	if (!write_text(FEATURES, found == on ? "YIELD_TICK" : "NO_YIELD_TICK") && bit >= 0)
		sprintf(on->fault, "YIELD_TICK: %s", strerror(errno));
	shared = found;
	for (i = 0; i < nr; i++) {
		pid[i] = fork();
		/* kill(-1) would end all that the machine runs. */
		if (pid[i] < 0) {
			sprintf(on->fault, "fork: %s", strerror(errno));
			nr = i;
		}
		if (pid[i])
			continue;
		sprintf(group, CGROUPS "/yield-%d", i);
		die_with(self);
		if (plan[i].weight && !join_group(group, plan[i].weight))
			sprintf(on->fault, "cgroup: %s", strerror(errno));
		else if (ask_slice(&plan[i], plan[i].slice))
			sprintf(on->fault, "sched_setattr: %s", strerror(errno));
		else
			for (srandom(i);;)
				step(&plan[i], &shared->task[i], passers);
		_exit(1);
	}
	usleep(100000 + 3 * plan->slice / 1000);
	set(shared->measuring, true);
	for (i = 0; i < nr; i++)
		shared->task[i].used = clock_getcpuclockid(pid[i], &id[i]) ?: -clock_ns(id[i]);
	took = -now_ns();
	usleep(ms * 1000);
	took += now_ns();
	set(shared->measuring, false);
	for (i = 0; i < nr; i++) {
		shared->task[i].used += clock_ns(id[i]);
		used += shared->task[i].used;
		kill(pid[i], SIGKILL);
		waitpid(pid[i], NULL, 0);
		sprintf(group, CGROUPS "/yield-%d", i);
		while (rmdir(group) && errno == EBUSY)
			usleep(1000);
	}
	/* Of what they had together: others may have used a little. */
	for (i = 0; i < nr; i++)
		shared->task[i].share = 100. * shared->task[i].used / used;
	if (used < 0.9 * took && !on->fault[0])
		strcpy(on->fault, "others used the CPU");
}

FIXTURE(yield) {};
FIXTURE_TEARDOWN(yield) {}
/*
 * A task beside @nr others and maybe a hog. Its share and its yields in vain, in
 * percent. One wait of 20 may be longer than @limit, for hosts stop guests. What
 * the tasks after the first @past keep of their turns, and have at most of all.
 */
FIXTURE_VARIANT(yield)
{
	struct plan first, others;
	int nr, hog, ms, past;
	double least, most, vain, kept, part;
	long long limit;
};

FIXTURE_SETUP(yield)
{
	const struct sched_param param = { .sched_priority = 50 };
	const struct rlimit second = { 1000000, 1000000 };
	struct timespec tick;
	cpu_set_t cpus;

	clock_getres(CLOCK_MONOTONIC_COARSE, &tick);
	if (tick.tv_nsec > MSEC(1))
		SKIP(return, "the figures are for HZ=1000");
	if (!has_text("/sys/kernel/sched_ext/state", "disabled", true))
		SKIP(return, "sched_ext has the tasks");
	if (variant->kept && bit < 0)
		SKIP(return, "there is no YIELD_TICK to compare with");
	CPU_ZERO(&cpus);
	CPU_SET(sched_getcpu(), &cpus);
	ASSERT_EQ(0, sched_setaffinity(0, sizeof(cpus), &cpus));
	/* Do not hang the CPU. musl's sched_setscheduler() does nothing. */
	setrlimit(RLIMIT_RTTIME, &second);
	if (syscall(SYS_sched_setscheduler, 0, SCHED_FIFO, &param))
		SKIP(return, "SCHED_FIFO: %s", strerror(errno));
	off = mmap(NULL, 2 * sizeof(*off), PROT_READ | PROT_WRITE,
		   MAP_SHARED | MAP_ANONYMOUS, -1, 0);
	on = off + 1;
}

TEST_F_TIMEOUT(yield, test, 15)
{
	const struct plan *first = &variant->first;
	struct plan plan[MAX_TASKS] = { *first };
	struct seen *a = off->task, *b = on->task;
	int nr = variant->nr + 1, i;
	long before = 0, now = 0, all = 0;

	for (i = 1; i < nr; i++) {
		plan[i] = variant->others.role == ALIKE ? *first : variant->others;
		plan[i].nice = i < variant->past ? first->nice : variant->others.nice;
		plan[i].slice = plan[i].slice ?: first->slice;
	}
	plan[nr].slice = S2;
	limit = variant->limit ?: MSEC(1000000);
	if (bit >= 0)
		measure(off, plan, nr + variant->hog, nr, variant->ms);
	measure(on, plan, nr + variant->hog, nr, variant->ms);
	for (i = 0; i < nr; i++) {
		all += b[i].turns;
		before += i < variant->past ? 0 : a[i].turns;
		now += i < variant->past ? 0 : b[i].turns;
	}
	TH_LOG("off, on: share %.2f %.2f %%, late %ld/%ld %ld/%ld, longest %lld %lld",
	       a->share, b->share, a->late, a->waits, b->late, b->waits, a->longest, b->longest);
	TH_LOG("off, on: in vain %ld/%ld %ld/%ld, turns %ld %ld of %ld", a->vain, a->turns,
	       b->vain, b->turns, before, now, all);
	if (on->fault[0] || (variant->limit && b->waits < 15 && b->share >= variant->least))
		SKIP(return, "%s", on->fault[0] ? on->fault : "too few waits");
	if (first->role != HOG && first->role != STORMER)
		EXPECT_LT(0, b->turns);
	EXPECT_LE(variant->least, b->share);
	EXPECT_GE(variant->most ?: 100, b->share);
	EXPECT_LE(b->late, b->waits / 20);
	EXPECT_LE(100 * b->vain, (variant->vain ?: 100) * b->turns);
	EXPECT_GE(now, variant->kept * before);
	EXPECT_LE(now, (variant->part ?: 1) * all);
	EXPECT_EQ(0, b->wrong);
	/* The bit matters, but not to slices of a tick or less; the slice is back. */
	if (first->slice == MSEC(100) && first->work == USEC(100))
		EXPECT_LT(a->share, 1);
	if (bit >= 0 && first->slice == USEC(700))
		EXPECT_TRUE(b->share > 0.9 * a->share && b->share < 1.1 * a->share);
	if (first->role == STORMER || first->role == SLEEPER)
		EXPECT_LT(b->waits, 200);
}

#define CASE(name) FIXTURE_VARIANT_ADD(yield, name)
#define SHARE(_nr, _slice, _least, _most, _limit, ...)			\
	.first = { WORKER, _slice, USEC(100), __VA_ARGS__ },		\
	.nr = _nr, .ms = 500, .least = _least, .most = _most, .limit = _limit
#define VAIN(_nr, _work, _slice, _vain)					\
	.first = { WORKER, _slice, USEC(_work) }, .nr = _nr, .ms = 3000, .vain = _vain
#define SHORT(_nr, _limit)						\
	.first = { HOG, USEC(1100) }, .others = { WORKER, S2, USEC(2500) }, \
	.nr = _nr, .ms = 800, .limit = _limit
#define ALL(_role, _work, _nr, _ms, _kept)				\
	.first = { _role, S2, USEC(_work) }, .others.role = ALIKE,	\
	.nr = _nr, .ms = _ms, .kept = _kept
#define BACK(_role, _work, _nr)						\
	.first = { _role, MSEC(20), MSEC(_work) }, .nr = _nr, .ms = 1500

CASE(share_1_hog) { SHARE(1, S2, 10.2, 20, USEC(1900)) };
CASE(share_3_hogs) { SHARE(3, S2, 3.6, 10, MSEC(5)) };
CASE(share_100ms_1_hog) { SHARE(1, MSEC(100), 9.9, 20, USEC(1900)) };
CASE(share_100ms_3_hogs) { SHARE(3, MSEC(100), 3.6, 10, MSEC(5)) };
CASE(share_2500us) { VAIN(1, 2500, S2, 50), .least = 43, .most = 60 };
CASE(share_700us) { SHARE(1, USEC(700), 1, 100, 0) };
CASE(share_batch) { SHARE(1, MSEC(20), 9, 20, 0, .policy = SCHED_BATCH) };
CASE(share_nice_10) { SHARE(1, MSEC(20), 0.9, 8, 0, .nice = 10) };
CASE(heavy_group) {
	SHARE(1, MSEC(20), 35, 60, 0, .weight = "1000"), .others.weight = "100" };
CASE(vain_500us) { VAIN(3, 500, S2, 40) };
CASE(vain_100ms_1_hog) { VAIN(1, 2500, MSEC(100), 80) };
CASE(vain_100ms_3_hogs) { VAIN(3, 2500, MSEC(100), 55) };
CASE(short_slice_1_yielder) { SHORT(1, MSEC(2)) };
CASE(short_slice_3_yielders) { SHORT(3, MSEC(5)) };
CASE(lock_by_weight) {
	ALL(LOCKER, 200, 7, 3000, 0.7), .others.nice = 10, .past = 4, .part = 0.16 };
CASE(lock_beside_hog) { ALL(LOCKER, 20, 7, 2000, 0.9), .hog = 1 };
CASE(ring_beside_hog) { ALL(PASSER, 20, 2, 1000, 1.2), .hog = 1 };
CASE(only_yielders) { ALL(WORKER, 0, 9, 1000, 0.5), .least = 2, .most = 30, .past = 5 };
CASE(bystander) {
	.first = { HOG, S2 }, .others = { STORMER, MSEC(100), MSEC(400), -10 },
	.nr = 1, .ms = 1000, .least = 33, .limit = MSEC(28) };
CASE(own_slice_back) { BACK(STORMER, 60, 1), .others.role = ALIKE };
CASE(slice_back_after_sleep) { BACK(SLEEPER, 8, 1) };
CASE(slice_asked_and_told) { BACK(SETTER, 0, 1) };

static void end_tests(int sig)
{
	kill(tests, SIGKILL);
}

/* The tests run in a child: however they end, the settings are restored. */
int main(int argc, char **argv)
{
	bool grouped = has_text(CGROUP_CONTROL, "cpu", true);
	int status = 0, self = getpid(), i;
	char group[64];

	if (has_text(FEATURES, "YIELD_TICK", false))
		bit = 1;
	else if (has_text(FEATURES, "NO_YIELD_TICK", false))
		bit = 0;
	prctl(PR_SET_CHILD_SUBREAPER, 1);
	tests = fork();
	if (tests < 0) {
		perror("fork");
		return KSFT_FAIL;
	}
	if (!tests) {
		die_with(self);
		return test_harness_run(argc, argv);
	}
	signal(SIGHUP, end_tests);
	signal(SIGINT, end_tests);
	signal(SIGTERM, end_tests);
	waitpid(tests, &status, 0);
	/* What a killed child leaves behind is waited for as well. */
	while (wait(NULL) > 0)
		;
	if (bit >= 0)
		write_text(FEATURES, bit ? "YIELD_TICK" : "NO_YIELD_TICK");
	for (i = 0; i < MAX_TASKS; i++) {
		sprintf(group, CGROUPS "/yield-%d", i);
		rmdir(group);
	}
	if (!grouped)
		write_text(CGROUP_CONTROL, "-cpu");
	return WIFEXITED(status) ? WEXITSTATUS(status) : KSFT_FAIL;
}
