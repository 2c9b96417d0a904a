// SPDX-License-Identifier: GPL-2.0
/*
 * Who may use I/O ports, and when
 *
 * A task may use the ports that ioperm() or iopl() gave to it, or to whoever
 * it inherited them from, and no others, on whatever CPU and after whatever
 * other task it runs.
 *
 * Most cases are tables of what tasks do, one step after the other. After each
 * step each task has to have exactly the ports that it should have. They are
 * read in the task itself, which shows what the CPU does, and a tracer reads
 * the bitmap, which shows what the kernel believes. No port is written to.
 *
 * With --lock-down one case locks the kernel down, until the next boot.
 */
#define _GNU_SOURCE
#include <fcntl.h>
#include <limits.h>
#include <linux/filter.h>
#include <linux/io_uring.h>
#include <linux/kd.h>
#include <linux/sched.h>
#include <linux/seccomp.h>
#include <pthread.h>
#include <stddef.h>
#include <sys/eventfd.h>
#include <sys/ioctl.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <sys/user.h>

#include "kselftest_harness.h"
#include "ioport_helper.h"

#define CHECK_LINES		32
#define NR_COPIES		64

/* The ports that are enabled and read. A set of them is a mask. */
enum {
	LOW	= 1 << 0,	/* 0x80 */
	MID	= 1 << 1,	/* Below the middle */
	BELOW	= 1 << 2,	/* In a line below the one of HIGH */
	HIGH	= 1 << 3,	/* Close to the end of the port space */
	NEXT	= 1 << 4,	/* In the same byte as HIGH */
	ALL	= (1 << 5) - 1,
	/* All ports, by iopl(3) */
	IOPL	= 1 << 5,
	/* Not a port: the TSC may not be read */
	NO_TSC	= 1 << 6,
};

#define NR_POOL			5

static unsigned int pool[NR_POOL] = { IOPORT_POST };
static bool may_lock_down;

/* The test itself, and tasks that do what it asks them to */
enum { TEST, A, B, C, D, E, NR_TASKS = NR_COPIES + 2, THREAD = 1 << 8 };

struct task {
	/* Is it its turn? An eventfd wakes it up, and it then wakes up the next one. */
	bool		busy;
	int		go;
	struct task	*next;
	long		(*fn)(long arg);
	long		arg, ret;
	/* The ports that it should have */
	long		mask;
	bool		thread;
	/* 0: there is no such task */
	pid_t		tid;
};

/* Of the test, its tasks, and its parent, which cleans up after it */
static struct shared {
	struct task	task[NR_TASKS];
	/* Why a case cannot go on */
	char		missing[80];
	int		flag;
	/* What has to be undone: a CPU is offline, a cgroup is there */
	char		cpu[64], cgroup[64];
} *shm;

static __thread struct task *me;

/* How a task starts others, and where these run */
static bool by_thread;
static int start_cpu;

static void wake(struct task *t)
{
	ioport_store(t->busy, true);
	eventfd_write(t->go, 1);
}

static void wait_until(struct task *t, bool busy)
{
	eventfd_t nr;

	while (ioport_load(t->busy) != busy)
		eventfd_read(me->go, &nr);
}

static void *task_main(void *task)
{
	struct task *next;

	me = task;
	me->tid = syscall(SYS_gettid);
	ioport_die_with_parent();
	for (;;) {
		next = me->next;
		ioport_store(me->busy, false);
		wake(next);
		wait_until(me, true);
		if (!me->fn)
			return NULL;
		me->ret = me->fn(me->arg);
	}
}

static void ask(struct task *t, long (*fn)(long arg), long arg)
{
	t->fn = fn;
	t->arg = arg;
	t->next = me;
	wake(t);
}

static long answer(struct task *t)
{
	wait_until(t, false);
	return t->ret;
}

static long call(struct task *t, long (*fn)(long arg), long arg)
{
	if (t == me)
		return fn(arg);
	ask(t, fn, arg);
	return answer(t);
}

static void lacks(const char *what, int error)
{
	snprintf(shm->missing, sizeof(shm->missing), "%s%s%s", what, error ? ": " : "",
		 error ? strerror(error) : "");
}

/* One that is killed will not answer. */
static void on_child(int sig, siginfo_t *info, void *context)
{
	if (info->si_code == CLD_KILLED || info->si_code == CLD_DUMPED)
		abort();
}

/*
 * What a task can be asked to do. Returns 0 if it went well, or what is wrong:
 * an error, or the number of a port.
 */

/* Start a task, a process or a THREAD, which has the ports of the caller. */
static long start(long who)
{
	struct task *t = &shm->task[who & ~THREAD];
	pthread_t id;
	long ret;

	t->busy = true;
	t->ret = 0;
	t->next = me;
	t->mask = me->mask;
	t->thread = who & THREAD || (by_thread && t->next != shm->task);
	if (t->thread) {
		ret = -pthread_create(&id, NULL, task_main, t);
	} else {
		/* A child of the test, whoever starts it */
		ret = syscall(SYS_clone, SIGCHLD | (getpid() == ioport_parent ? 0 : CLONE_PARENT),
			      NULL, NULL, NULL, NULL);
		if (!ret)
			_exit(!!task_main(t));
	}
	return ret < 0 ? ret : answer(t) ?: ioport_pin(t->tid, ioport_cpu(start_cpu));
}

/* Let a task do something that ends it. Only the test can do this. */
static long finish(struct task *t, long (*fn)(long arg))
{
	long ret = 0;

	ask(t, fn, 0);
	if (!t->thread)
		ret = ioport_wait(t->tid);
	while (t->thread && !kill(t->tid, 0))
		usleep(100);
	t->tid = 0;
	return ret;
}

static long end(long nr)
{
	return finish(&shm->task[nr], NULL);
}

static long drop_all(long unused)
{
	me->mask = 0;
	return iopl(0) || ioperm(0, IOPORT_NR, 0) ? -errno : 0;
}

/*
 * Can the task use its ports and no others? If all may be read, that would take
 * too long, so each @turn tries a few: a port of the pool plus 0, 1 or 2, moved
 * by some number of lines.
 */
static long check(long turn)
{
	unsigned int port, known;
	bool denied;
	int i, j;

	asm volatile ("clc; rdtsc" : "=@ccc" (denied) : : "eax", "edx");
	if (denied != !!(me->mask & NO_TSC))
		return -EPROTO;
	for (i = 0; i < NR_POOL; i++) {
		if (ioport_inb(pool[i]) != !!(me->mask & (IOPL | 1 << i)))
			return pool[i];
	}

	/* With iopl(3) the others are enabled, and need not be touched. */
	for (i = 0; i < (ioport_all ? CHECK_LINES : IOPORT_NR) && !(me->mask & IOPL); i++) {
		port = !ioport_all ? i : pool[turn % NR_POOL] + turn % 3 +
		       (turn * CHECK_LINES + i) * IOPORT_LINE;
		port %= IOPORT_NR;
		for (j = 0, known = 0; j < NR_POOL; j++)
			known += port == pool[j];
		if (!known && ioport_may_read(port, 1) && ioport_inb(port))
			return port;
	}
	return 0;
}

/*
 * Have the ports in @mask from now on, and see that at once, before another task
 * runs. In turn grants come first, or revokes.
 */
static long have(long mask)
{
	static int turn;
	long old = me->mask;
	int pass, i;
	bool on;

	me->mask = mask;
	if (((mask ^ old) & NO_TSC) &&
	    prctl(PR_SET_TSC, mask & NO_TSC ? PR_TSC_SIGSEGV : PR_TSC_ENABLE))
		return -errno;
	if ((mask ^ old) & IOPL && iopl(mask & IOPL ? 3 : 0))
		return -errno;
	for (pass = 0, turn++; pass < 2; pass++) {
		on = pass == turn % 2;
		for (i = 0; i < NR_POOL; i++) {
			if ((on ? mask & ~old : old & ~mask) & (1 << i) && ioperm(pool[i], 1, on))
				return -errno;
		}
	}
	return check(turn);
}

/*
 * CLI and STI change nothing. With iopl(3) the kernel pretends that they do,
 * so that old programs go on, without it they fault. Returns 0 if so.
 */
static long cli_sti(bool iopl3)
{
	bool cli_faulted, sti_faulted;
	unsigned long eflags;

	/* See ioport_on_sigsegv() for the carry flag. */
	asm volatile ("clc; cli" : "=@ccc" (cli_faulted) : : "memory");
	eflags = get_eflags();
	asm volatile ("clc; sti" : "=@ccc" (sti_faulted) : : "memory");

	return !(eflags & X86_EFLAGS_IF) || eflags & X86_EFLAGS_IOPL ||
	       (!iopl3 && (!cli_faulted || !sti_faulted));
}

/* Only level 3 gives ports. The others leave what is in the bitmap. */
static long level(long nr)
{
	static const int invalid[] = { 4, 0x80, 0x3000, INT_MAX, INT_MIN, -1 };
	unsigned int i;

	if (iopl(nr))
		return -errno;
	for (i = 0; i < ARRAY_SIZE(invalid); i++) {
		if (!iopl(invalid[i]) || errno != EINVAL)
			return invalid[i];
	}
	me->mask = (me->mask & ~IOPL) | (nr == 3 ? IOPL : 0);
	return cli_sti(nr == 3);
}

static const unsigned int some_ports[] = { 0, 0x60, IOPORT_POST, 0x3f8, 65535 };

/* No level above this one, and no port, not even one that is there already */
static long no_more_than(long level)
{
	unsigned int i;

	for (i = 0; i < ARRAY_SIZE(some_ports); i++) {
		if (!ioperm(some_ports[i], 1, 1) || errno != EPERM)
			return some_ports[i] ?: IOPORT_NR;
	}
	if (!ioperm(0, IOPORT_NR, 1) || errno != EPERM)
		return IOPORT_NR;
	while (++level <= 3) {
		if (!iopl(level) || errno != EPERM)
			return level;
	}
	return 0;
}

static long move_to(long nth)
{
	if (ioport_cpu(nth) < 0)
		lacks("only one CPU", 0);
	return ioport_pin(0, ioport_cpu(nth));
}

static int set_caps(uint32_t caps)
{
	struct __user_cap_header_struct head = {
		.version = _LINUX_CAPABILITY_VERSION_3,
	};
	struct __user_cap_data_struct data[_LINUX_CAPABILITY_U32S_3] = {
		{ .effective = caps, .permitted = caps },
	};

	return syscall(SYS_capset, &head, data) ? -errno : 0;
}

enum who { NOBODY, NOBODY_WITH_RAWIO, ROOT_WITHOUT_CAPS, USER_NAMESPACE_ROOT };

static long become(long who)
{
	if (who == ROOT_WITHOUT_CAPS)
		return set_caps(0);
	if (who == USER_NAMESPACE_ROOT) {
		if (unshare(CLONE_NEWUSER))
			lacks("no user namespace", errno);
		/* A change of the credentials resets it. */
		ioport_die_with_parent();
		return 0;
	}
	if (prctl(PR_SET_KEEPCAPS, who == NOBODY_WITH_RAWIO) || ioport_become_nobody())
		return -errno;
	return who == NOBODY_WITH_RAWIO ? set_caps(1U << CAP_SYS_RAWIO) : 0;
}

/* Fails as the PID is in use, which fork notices after sharing the bitmap. */
static long failed_fork(long unused)
{
	struct clone_args args = {
		.exit_signal = SIGCHLD,
		.set_tid = (uintptr_t)&ioport_parent,
		.set_tid_size = 1,
	};
	pid_t pid = syscall(SYS_clone3, &args, sizeof(args));

	if (!pid)
		_exit(KSFT_FAIL);
	if (pid < 0 && errno != EEXIST)
		lacks("no clone3() with a PID", errno);
	return pid > 0;
}

/* The filter decides about the calls, and not about the ports. */
static long filter_calls(long unused)
{
	struct sock_filter filter[] = {
		BPF_STMT(BPF_LD | BPF_W | BPF_ABS, offsetof(struct seccomp_data, nr)),
		BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, SYS_ioperm, 2, 0),
		BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, SYS_iopl, 1, 0),
		BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_ALLOW),
		BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_ERRNO | ENOTTY),
	};
	const struct sock_fprog prog = { ARRAY_SIZE(filter), filter };

	if (prctl(PR_SET_SECCOMP, SECCOMP_MODE_FILTER, &prog)) {
		lacks("no seccomp filter", errno);
		return 0;
	}
	return !ioperm(pool[3], 1, 1) || errno != ENOTTY || !ioperm(pool[0], 1, 0) ||
	       errno != ENOTTY || !iopl(3) || errno != ENOTTY;
}

static long exec_here(long unused)
{
	char args[128];

	sprintf(args, "%ld %u %u %u %u %u", me->mask, pool[0], pool[1], pool[2],
		pool[3], pool[4]);
	/* It need not print again which ports are read. */
	close(STDOUT_FILENO);
	execl("/proc/self/exe", "ioperm_security", "--after-exec", args,
	      ioport_all ? "--all-ports" : NULL, NULL);
	_exit(errno == EACCES ? KSFT_SKIP : KSFT_FAIL);
}

/* The program that was executed may lack the privileges to find the ports. */
static int after_exec(const char *args)
{
	struct task task;
	int i;

	me = &task;
	if (sscanf(args, "%ld %u %u %u %u %u", &me->mask, &pool[0], &pool[1], &pool[2],
		   &pool[3], &pool[4]) != NR_POOL + 1)
		return KSFT_FAIL;
	for (i = 0; i < NR_POOL; i++)
		ioport_readable[pool[i]] = 1;
	return check(0) ? KSFT_FAIL : KSFT_PASS;
}

static long exec(long nr)
{
	int status = finish(&shm->task[nr], exec_here);

	if (WIFEXITED(status) && WEXITSTATUS(status) == KSFT_SKIP)
		lacks("nobody may execute this program", EACCES);
	return status;
}

static const char *read_file(const char *path)
{
	static char text[4096];
	int fd = open(path, O_RDONLY | O_CLOEXEC);
	ssize_t len = read(fd, text, sizeof(text) - 1);

	text[len > 0 ? len : 0] = '\0';
	close(fd);
	return text;
}

static int write_file(const char *path, const char *text)
{
	int fd = open(path, O_WRONLY | O_CLOEXEC);
	int ret = write(fd, text, strlen(text)) < 0 ? -errno : 0;

	close(fd);
	return ret;
}

static long lock_down(long unused)
{
	if (may_lock_down)
		return write_file("/sys/kernel/security/lockdown", "integrity");
	lacks("cannot be undone, so only with --lock-down", 0);
	return 0;
}

/* Take the second CPU offline, or bring it back. */
static long set_online(long on)
{
	int ret;

	sprintf(shm->cpu, "/sys/devices/system/cpu/cpu%d/online", ioport_cpu(1));
	ret = write_file(shm->cpu, on ? "1" : "0");
	if (ret && !on)
		lacks("no CPU can be taken offline", -ret);
	return ret;
}

/* A row of a table. After the last one comes one without a function. */
struct step {
	int	who;
	long	(*fn)(long arg);
	long	arg;
};

/* Stop a task, or a thread of it, and compare its bitmap. */
static void expect_map(struct __test_metadata *_metadata, struct task *t,
		       const struct ioport_map *map)
{
	ASSERT_EQ(0, ptrace(PTRACE_SEIZE, t->tid, NULL, NULL));
	ASSERT_EQ(0, ptrace(PTRACE_INTERRUPT, t->tid, NULL, NULL));
	ASSERT_TRUE(WIFSTOPPED(ioport_wait(t->tid)));
	EXPECT_STREQ("", ioport_wrong(map, NULL, t->tid))
		TH_LOG("task %td", t - shm->task);
	ASSERT_EQ(0, ptrace(PTRACE_DETACH, t->tid, NULL, NULL));
}

/*
 * Each task has exactly the ports that it should have, the test has none. One
 * task wakes the next one, so that the CPU switches from each to the next.
 */
static void expect_ports(struct __test_metadata *_metadata)
{
	struct task *t, *previous = me;
	static unsigned int turn;
	struct ioport_map map;
	int i;

	EXPECT_EQ(0, check(++turn));
	for (t = me + 1; t < shm->task + NR_TASKS; t++) {
		if (!t->tid)
			continue;
		t->fn = check;
		t->arg = turn;
		previous->next = t;
		previous = t;
	}
	previous->next = me;
	me->busy = false;
	wake(me->next);
	wait_until(me, true);

	for (t = me + 1; t < shm->task + NR_TASKS; t++) {
		if (!t->tid)
			continue;
		EXPECT_EQ(0, t->ret)
			TH_LOG("task %td, mask 0x%lx: port 0x%lx", t - me, t->mask, t->ret);
		map = ioport_none;
		for (i = 0; i < NR_POOL; i++)
			ioport_set(&map, pool[i], 1, t->mask & (1 << i));
		expect_map(_metadata, t, &map);
	}
}

/* Returns whether the case can go on. A task that is not there is started first. */
static bool do_steps(struct __test_metadata *_metadata, const struct step *step)
{
	struct task *t;
	long wrong;
	int nr = 0;

	for (; step->fn; step++, nr++) {
		t = &shm->task[step->who];
		if (!t->tid)
			ASSERT_EQ(0, start(step->who));
		wrong = call(t, step->fn, step->arg);
		if (shm->missing[0])
			SKIP(return false, "%s", shm->missing);
		ASSERT_EQ(0, wrong)
			TH_LOG("step %d, of task %d: 0x%lx", nr, step->who, wrong);
		expect_ports(_metadata);
	}
	return true;
}

static bool setup(struct __test_metadata *_metadata)
{
	const char *reason = ioport_setup_tracer();
	int i, high = ioport_find(2, 8, 2, IOPORT_NR);
	int mid = ioport_find(1, 1, 0, IOPORT_NR / 2);
	int below = high < 0 ? -1 : ioport_find(1, 1, 0, high / IOPORT_LINE * IOPORT_LINE);

	if (reason)
		SKIP(return false, "%s", reason);
	if (below < 0 || mid < 0 || below == mid)
		SKIP(return false, "too few ports that nothing in /proc/ioports claims");
	pool[1] = mid;
	pool[2] = below;
	pool[3] = high;
	pool[4] = high + 1;

	memset(shm, 0, sizeof(*shm));
	for (i = 0; i < NR_TASKS; i++)
		shm->task[i].go = eventfd(0, EFD_CLOEXEC);
	me->tid = getpid();
	ioport_parent = me->tid;
	sethandler(SIGCHLD, on_child, SA_RESTART);
	/* The harness would also kill the parent, which has to clean up. */
	alarm(IOPORT_TIMEOUT - 20);
	return true;
}

/* Tasks with different ports take turns on one CPU. */
FIXTURE(task_switch) {};

FIXTURE_VARIANT(task_switch) {
	struct step	steps[10];
};

#define SWITCH(name)	FIXTURE_VARIANT_ADD(task_switch, name)

SWITCH(other_line) { { { A, have, LOW }, { B, have, BELOW }, { C, have, HIGH } } };
/* After a task with ports comes one that never asked for any. */
SWITCH(same_byte) { { { A, have, HIGH }, { B, have, NEXT }, { C, become, NOBODY } } };
SWITCH(iopl) { { { A, have, IOPL }, { B, become, NOBODY }, { C, have, MID } } };
SWITCH(iopl_free_and_regrant) {
	{ { A, have, IOPL }, { B, have, HIGH }, { C, become, NOBODY }, { A, have, 0 },
	  { B, have, IOPL | MID }, { A, have, LOW }, { B, have, MID }, { A, have, IOPL } } };
/* None has the ports that another one with the same bitmap has by iopl(3). */
SWITCH(same_bitmap_and_iopl) {
	{ { A, have, LOW }, { A, start, B }, { A, start, C }, { A, have, LOW | IOPL },
	  { A, have, LOW }, { B, have, LOW | IOPL }, { B, have, LOW } } };
/* What else there is to do at a switch must not be forgotten. */
SWITCH(ports_and_no_tsc) { { { A, have, LOW }, { B, have, NO_TSC }, { C, have, HIGH } } };

FIXTURE_SETUP(task_switch)
{
	setup(_metadata);
}

FIXTURE_TEARDOWN(task_switch) {}

TEST_F_TIMEOUT(task_switch, own_ports_only, IOPORT_TIMEOUT)
{
	do_steps(_metadata, variant->steps);
}

/* Two tasks share a bitmap until one of them changes its ports, only for itself. */
FIXTURE(shared) {};

FIXTURE_VARIANT(shared) {
	struct step	steps[11];
};

#define SHARE(name)	FIXTURE_VARIANT_ADD(shared, name)

SHARE(drop_is_own) {
	{ { A, have, LOW | HIGH }, { A, start, B }, { A, have, HIGH }, { B, have, LOW },
	  { A, have, HIGH | MID }, { B, have, 0 }, { B, have, BELOW }, { A, have, 0 } } };
/* Nothing is copied then. */
SHARE(last_drop_is_own) {
	{ { A, have, HIGH }, { A, start, B }, { B, have, 0 }, { B, have, LOW } } };
SHARE(last_drop_of_parent_is_own) { { { A, have, HIGH }, { A, start, B }, { A, have, 0 } } };
SHARE(grant_is_own) {
	{ { A, have, HIGH }, { A, start, B }, { B, have, HIGH | NEXT }, { A, have, HIGH | LOW } } };
SHARE(iopl_is_own) {
	{ { A, have, MID | IOPL }, { A, start, B }, { A, have, MID }, { B, have, MID },
	  { A, have, MID | IOPL }, { B, have, 0 }, { A, have, MID } } };
/* What changes during iopl(3) is seen afterwards. */
SHARE(iopl_over_ioperm) {
	{ { A, have, LOW | BELOW | HIGH }, { A, start, B }, { A, have, LOW | BELOW | HIGH | IOPL },
	  { A, have, LOW | BELOW | MID | IOPL }, { A, have, LOW | BELOW | MID },
	  { B, have, IOPL }, { B, have, 0 },
	  { A, have, IOPL }, { A, have, NEXT | IOPL }, { A, have, NEXT } } };
/* It is inherited, too. */
SHARE(iopl_without_bitmap) { { { A, have, IOPL }, { A, start, B }, { A, have, 0 } } };

FIXTURE_SETUP(shared)
{
	setup(_metadata);
}

FIXTURE_TEARDOWN(shared) {}

/* A process may outlive the one that started it, a thread may not. */
static void share(struct __test_metadata *_metadata, const struct step *steps, bool thread)
{
	const struct step finish[] = {
		{ TEST, end, thread ? B : A }, { TEST, end, thread ? A : B }, {}
	};

	/* Both on one CPU, and then on two */
	for (start_cpu = 0; start_cpu < 2 && ioport_cpu(start_cpu) >= 0; start_cpu++) {
		do_steps(_metadata, steps);
		do_steps(_metadata, finish);
	}
}

TEST_F_TIMEOUT(shared, by_process, IOPORT_TIMEOUT)
{
	share(_metadata, variant->steps, false);
}

TEST_F_TIMEOUT(shared, by_thread, IOPORT_TIMEOUT)
{
	by_thread = true;
	share(_metadata, variant->steps, true);
}

FIXTURE(tasks) {};

FIXTURE_SETUP(tasks)
{
	setup(_metadata);
}

FIXTURE_TEARDOWN_PARENT(tasks)
{
	if (shm->cpu[0])
		write_file(shm->cpu, "1");
}

#define SUBTEST(name, ...)							\
static const struct step name##_steps[] = { __VA_ARGS__, {} };		\
TEST_F_TIMEOUT(tasks, name, IOPORT_TIMEOUT)				\
{									\
	do_steps(_metadata, name##_steps);				\
}

/* The end of a task that has the same bitmap, or had it, takes nothing. */
SUBTEST(exit_takes_nothing,
	{ A, have, LOW | BELOW },
	{ A, start, B }, { TEST, end, B },
	{ A, start, B | THREAD }, { TEST, end, B },
	{ A, start, B }, { B, have, BELOW }, { TEST, end, B },
	{ A, start, B | THREAD }, { B, have, BELOW }, { TEST, end, B },
	{ A, start, B }, { B, have, HIGH }, { TEST, end, B },
	{ A, start, B | THREAD }, { B, have, HIGH }, { TEST, end, B },
	/* If the bitmap were freed, this one would get the memory. */
	{ C, have, MID | HIGH }, { TEST, end, A }, { TEST, end, C });

/* The bitmap is shared, and then it is not, so that it changes in place. */
SUBTEST(failed_fork,
	{ A, have, ALL }, { A, start, B },
	{ B, failed_fork, 0 }, { A, have, ALL & ~HIGH },
	/* If it were freed, the other ones would get the memory. */
	{ B, failed_fork, 0 }, { B, have, ALL & ~LOW }, { C, have, ALL & ~MID },
	{ B, failed_fork, 0 }, { B, have, IOPL }, { D, have, ALL & ~MID },
	{ B, failed_fork, 0 }, { B, have, 0 }, { E, have, ALL & ~MID },
	{ B, failed_fork, 0 });

/* A task with a bitmap of its own, and one that shares it, both keep it. */
SUBTEST(exec_keeps,
	{ A, have, LOW | HIGH }, { A, start, B }, { TEST, exec, B }, { TEST, exec, A },
	{ A, have, 0 }, { A, start, B }, { TEST, exec, B }, { TEST, exec, A },
	{ A, have, IOPL }, { A, start, B }, { TEST, exec, B }, { TEST, exec, A },
	{ A, have, MID | IOPL }, { A, start, B }, { TEST, exec, B }, { TEST, exec, A });

SUBTEST(exec_keeps_without_privileges,
	{ A, have, BELOW | NEXT }, { A, start, B },
	{ B, become, NOBODY }, { TEST, exec, B }, { A, become, NOBODY }, { TEST, exec, A },
	{ A, have, IOPL }, { A, start, B },
	{ B, become, NOBODY }, { TEST, exec, B }, { A, become, NOBODY }, { TEST, exec, A });

/* What it has stays, and can be given back. Nothing else is possible. */
static void may_only_revoke(struct __test_metadata *_metadata, enum who who)
{
	const struct step steps[] = {
		/* Neither is it from the levels that give no port. */
		{ A, level, 2 }, { A, become, who }, { A, no_more_than, 2 },
		{ B, level, 1 }, { B, become, who }, { B, no_more_than, 1 },
		{ C, have, ALL | IOPL }, { C, become, who }, { C, level, 3 }, { C, have, ALL },
		{ C, no_more_than, 0 }, { C, have, ALL & ~HIGH },
		{ C, drop_all, 0 }, { C, drop_all, 0 }, { C, no_more_than, 0 }, {}
	};

	do_steps(_metadata, steps);
}

TEST_F_TIMEOUT(tasks, unprivileged_may_only_revoke, IOPORT_TIMEOUT)
{
	may_only_revoke(_metadata, NOBODY);
}

TEST_F_TIMEOUT(tasks, user_namespace_root_may_only_revoke, IOPORT_TIMEOUT)
{
	may_only_revoke(_metadata, USER_NAMESPACE_ROOT);
}

/* It is CAP_SYS_RAWIO that decides, and not the user. */
TEST_F_TIMEOUT(tasks, capability_decides, IOPORT_TIMEOUT)
{
	static const struct step steps[] = {
		{ D, become, NOBODY_WITH_RAWIO }, { D, have, LOW }, { D, have, LOW | IOPL }, {}
	};

	do_steps(_metadata, steps);
	may_only_revoke(_metadata, ROOT_WITHOUT_CAPS);
}

SUBTEST(seccomp_filter, { A, have, LOW | MID }, { A, filter_calls, 0 }, { A, start, B });

/* Cannot be undone. What a task has stays, and that is all. */
SUBTEST(lockdown_takes_nothing,
	{ A, have, LOW | MID },
	{ B, have, LOW | MID }, { B, level, 1 },
	{ C, have, LOW | MID }, { C, level, 2 },
	{ TEST, lock_down, 0 },
	{ A, no_more_than, 0 }, { A, have, LOW }, { A, no_more_than, 0 },
	{ B, no_more_than, 1 }, { B, have, LOW }, { B, no_more_than, 1 },
	{ C, no_more_than, 2 }, { C, have, LOW }, { C, no_more_than, 2 });

SUBTEST(iopl_levels,
	{ A, level, 0 }, { A, level, 1 }, { A, level, 2 }, { A, level, 3 }, { A, level, 2 },
	{ A, level, 1 }, { A, level, 3 }, { A, level, 1 }, { A, level, 3 }, { A, level, 0 },
	{ B, have, MID },
	{ B, level, 1 }, { B, level, 2 }, { B, level, 3 }, { B, level, 2 }, { B, level, 3 },
	{ B, level, 1 }, { B, level, 0 }, { B, level, 3 }, { B, level, 3 }, { B, level, 0 });

/* What each CPU saw last is older than what the task has now. B never has a port. */
SUBTEST(migrate_after_change,
	{ B, move_to, 1 },
	{ A, have, ALL }, { A, move_to, 1 }, { A, have, MID | HIGH }, { A, move_to, 0 },
	{ A, have, 0 }, { A, move_to, 1 }, { A, have, LOW | NEXT }, { A, move_to, 0 },
	{ A, have, IOPL }, { A, move_to, 1 }, { A, have, IOPL | LOW }, { A, move_to, 0 },
	{ A, have, LOW }, { A, move_to, 1 }, { A, have, IOPL }, { A, move_to, 0 },
	{ A, have, 0 }, { A, move_to, 1 }, { A, have, HIGH }, { A, move_to, 0 });

/*
 * The last bitmap in the TSS of a CPU that is taken offline is the one of A. When
 * the CPU is back, that comes first, and the next time B. C never has a port.
 */
SUBTEST(cpu_offline_online,
	{ A, have, LOW | HIGH }, { B, have, MID | NEXT }, { B, move_to, 1 },

	{ B, move_to, 0 }, { C, move_to, 0 }, { A, move_to, 1 },
	{ TEST, set_online, 0 }, { A, move_to, 0 }, { TEST, set_online, 1 },
	{ A, move_to, 1 }, { B, move_to, 1 }, { C, move_to, 1 },

	{ B, move_to, 0 }, { C, move_to, 0 }, { A, move_to, 1 },
	{ TEST, set_online, 0 }, { A, move_to, 0 }, { TEST, set_online, 1 },
	{ B, move_to, 1 }, { C, move_to, 1 });

static long toggle(long times)
{
	static int on;

	while (times--) {
		on = !on;
		if (ioperm(0x90, 1, on))
			return -errno;
	}
	return 0;
}

/* Change a bitmap, which gives it another number */
static long toggle_on_cpu(long nth)
{
	return ioport_pin(0, ioport_cpu(nth)) ?: toggle(1);
}

static long toggle_at_once(long nr)
{
	__atomic_add_fetch(&shm->flag, 1, __ATOMIC_ACQ_REL);
	while (ioport_load(shm->flag) < 2 * nr)
		;
	return toggle(1);
}

/* On the first CPU: can port 0x80 be used, by A or by another task? */
static long has_low(long unused)
{
	return ioport_pin(0, ioport_cpu(0)) ?: ioport_inb(IOPORT_POST) != (me == &shm->task[A]);
}

/* With the same number on two CPUs, the bitmap of A would be taken for that of B. */
static void meet(struct __test_metadata *_metadata, bool at_once, int rounds)
{
	static const struct step steps[] = { { A, have, LOW }, { B, have, MID }, {} };
	struct task *a = &shm->task[A], *b = &shm->task[B];
	const time_t end = time(NULL) + 10;
	int i;

	if (ioport_cpu(1) < 0)
		SKIP(return, "only one CPU");
	if (!do_steps(_metadata, steps))
		return;
	ASSERT_EQ(0, call(a, toggle, 700));
	for (i = 1; i <= rounds && time(NULL) < end; i++) {
		ASSERT_EQ(0, call(b, toggle_on_cpu, 1));
		if (at_once) {
			ask(b, toggle_at_once, i);
			ask(a, toggle_at_once, i);
			ASSERT_EQ(0, answer(a) | answer(b));
		}
		ASSERT_EQ(0, call(a, has_low, 0) ?: call(b, has_low, 0))
			TH_LOG("round %d", i);
	}
}

TEST_F_TIMEOUT(tasks, numbers_of_two_cpus, IOPORT_TIMEOUT)
{
	meet(_metadata, false, 3000);
}

TEST_F_TIMEOUT(tasks, numbers_at_once, IOPORT_TIMEOUT)
{
	meet(_metadata, true, 3000);
}

static int drop_on_flag(void *parent)
{
	prctl(PR_SET_PDEATHSIG, SIGKILL);
	if (getppid() != (long)parent)
		return KSFT_FAIL;
	ioport_store(shm->flag, 1);
	while (ioport_load(shm->flag) == 1)
		;
	return ioperm(IOPORT_POST, 1, 0);
}

static int taint_bits(void)
{
	FILE *file = fopen("/proc/sys/kernel/tainted", "r");
	int bits = 0;

	if (file && fscanf(file, "%d", &bits) != 1)
		bits = 0;
	if (file)
		fclose(file);
	return bits;
}

/*
 * A task and its child drop the last two references on a bitmap at one time, on
 * two CPUs. What is wrong shows as a splat of the kernel, which taints it.
 */
static long drop_together(long rounds)
{
	static long double stack[1024];
	const time_t end = time(NULL) + 2;
	const int before = taint_bits();
	int delay;
	pid_t pid;

	sched_setaffinity(0, sizeof(ioport_cpus), &ioport_cpus);
	/* An emulator may have a second CPU that wakes up slowly. */
	while (rounds-- && time(NULL) < end) {
		shm->flag = 0;
		if (ioperm(IOPORT_POST, 1, 1))
			return -errno;
		pid = clone(drop_on_flag, stack + ARRAY_SIZE(stack),
			    CLONE_VM | CLONE_FS | CLONE_FILES | SIGCHLD, (void *)(long)getpid());
		while (pid > 0 && !ioport_load(shm->flag))
			sched_yield();
		ioport_store(shm->flag, 2);
		for (delay = rounds % 64; delay; delay--)
			asm volatile ("pause");
		if (pid < 0 || ioperm(IOPORT_POST, 1, 0) || ioport_wait(pid))
			return -errno ?: -ECHILD;
	}
	return taint_bits() == before ? 0 : -ENOTRECOVERABLE;
}

SUBTEST(two_drop_the_last_reference, { A, move_to, 1 }, { A, drop_together, 4000 });

/* In between each has only its own ports */
static long toggle_and_check(long times)
{
	long i, ret = 0;

	for (i = 0; i < times && !ret; i++)
		ret = call(&shm->task[A], toggle, 1) ?: call(&shm->task[B], check, i) ?:
		      call(&shm->task[A], check, i);
	return ret;
}

/* After 65536 changes of one bitmap, another one is not taken for it. */
SUBTEST(many_changes,
	{ A, have, LOW }, { B, have, MID }, { A, toggle, 65536 - 150 },
	{ TEST, toggle_and_check, 200 });

/* A read that a worker of the caller does, as each would wait for the pipe */
static int uring_fd, uring_pipe[2];
static uint32_t *uring_tail;
static struct io_uring_sqe *uring_sqe;

static bool uring_setup(int cpu)
{
	struct io_uring_params p = {};
	cpu_set_t set;
	uint8_t *ring;

	CPU_ZERO(&set);
	CPU_SET(cpu, &set);
	uring_fd = syscall(SYS_io_uring_setup, 1, &p);
	if (uring_fd < 0 || pipe(uring_pipe) ||
	    syscall(SYS_io_uring_register, uring_fd, IORING_REGISTER_IOWQ_AFF, &set, sizeof(set)))
		return false;
	ring = mmap(NULL, p.sq_off.array + sizeof(uint32_t), PROT_READ | PROT_WRITE,
		    MAP_SHARED | MAP_POPULATE, uring_fd, IORING_OFF_SQ_RING);
	uring_sqe = mmap(NULL, sizeof(*uring_sqe), PROT_READ | PROT_WRITE,
			 MAP_SHARED | MAP_POPULATE, uring_fd, IORING_OFF_SQES);
	if (ring == MAP_FAILED || uring_sqe == MAP_FAILED)
		return false;
	uring_tail = (uint32_t *)(ring + p.sq_off.tail);
	return true;
}

static bool uring_read(char *to)
{
	*uring_sqe = (struct io_uring_sqe){
		.opcode = IORING_OP_READ,
		.flags = IOSQE_ASYNC | IOSQE_CQE_SKIP_SUCCESS,
		.fd = uring_pipe[0],
		.off = -1,
		.addr = (uintptr_t)to,
		.len = 1,
	};
	ioport_store(*uring_tail, *uring_tail + 1);
	return syscall(SYS_io_uring_enter, uring_fd, 1, 0, 0, NULL, 0) == 1;
}

/*
 * A worker has neither the ports nor the flag of its task, but may run between
 * that and another one. Whoever is idle otherwise runs after the worker.
 */
TEST_F_TIMEOUT(tasks, io_uring_worker, IOPORT_TIMEOUT)
{
	const struct sched_param idle = {}, fifo = { .sched_priority = 1 };
	const time_t end = time(NULL) + 5;
	char byte;
	pid_t pid;
	int i;

	if (!uring_setup(ioport_cpu(0)))
		SKIP(return, "io_uring: %s", strerror(errno));
	pid = ioport_fork();
	ASSERT_LE(0, pid);
	if (!pid) {
		if (syscall(SYS_sched_setscheduler, 0, SCHED_IDLE, &idle) ||
		    ioport_become_nobody())
			_exit(KSFT_FAIL);
		while (!ioport_inb(IOPORT_POST))
			ioport_store(shm->flag, shm->flag + 1);
		_exit(KSFT_FAIL);
	}
	/* The worker waits for it to sleep. */
	if (syscall(SYS_sched_setscheduler, 0, SCHED_FIFO | SCHED_RESET_ON_FORK, &fifo))
		SKIP(return, "SCHED_FIFO: %s", strerror(errno));
	ASSERT_EQ(0, iopl(3));
	for (i = 0; i < 1000 && time(NULL) < end; i++) {
		ASSERT_TRUE(uring_read(&byte));
		usleep(1000);
		ASSERT_EQ(1, write(uring_pipe[1], "", 1));
	}
	EXPECT_EQ(0, waitpid(pid, NULL, WNOHANG))
		TH_LOG("another task has read port 0x80");
	EXPECT_LT(0, ioport_load(shm->flag));
	clearhandler(SIGCHLD);
	ioport_end(pid);
}

/* Keep a value in a register of the FPU for a while */
static __attribute__((target("sse2"))) long use_fpu(long wanted)
{
	long value = wanted, left;
	int rounds = 60;

	while (rounds-- && value == wanted) {
		left = 3000000;
		asm volatile ("movd %k0, %%xmm5\n\t"
			      "1: dec %1\n\t"
			      "jnz 1b\n\t"
			      "movd %%xmm5, %k0"
			      : "+r" (value), "+r" (left) : : "xmm5", "cc");
	}
	return value != wanted;
}

/* A return to user mode that loads the ports restores the FPU, too. */
TEST_F_TIMEOUT(tasks, fpu_survives, IOPORT_TIMEOUT)
{
	static const struct step steps[] = { { A, have, MID }, { B, have, LOW }, {} };

	if (!__builtin_cpu_supports("sse2"))
		SKIP(return, "no SSE2");
	do_steps(_metadata, steps);
	ask(&shm->task[A], use_fpu, 1);
	ask(&shm->task[B], use_fpu, 2);
	EXPECT_EQ(0, answer(&shm->task[A]) | answer(&shm->task[B]));
}

/*
 * The console driver hands out the ports of a VGA card. They are looked for in
 * the bitmap, but not touched.
 */
#define VT_FIRST		0x3b4
#define VT_LAST			0x3df
#define VT_NR			(VT_LAST + 1 - VT_FIRST)

static int vt_fd;

static const struct vt_call {
	long		request, arg;
	int		error;
	/* What it changes */
	unsigned int	from, num;
	bool		on;
} vt_calls[] = {
	/* Outside, or inside if it were cut off */
	{ KDADDIO, VT_FIRST - 1, EINVAL, 0, 0, 0 },
	{ KDADDIO, VT_LAST + 1, EINVAL, 0, 0, 0 },
	{ KDADDIO, 65536 + VT_FIRST, EINVAL, 0, 0, 0 },
	{ KDDELIO, VT_FIRST - 1, EINVAL, 0, 0, 0 },
	{ KDDELIO, VT_LAST + 1, EINVAL, 0, 0, 0 },
	{ KDADDIO, VT_LAST, 0, VT_LAST, 1, true },
	{ KDENABIO, 0, 0, VT_FIRST, VT_NR, true },
	{ KDDELIO, VT_FIRST, 0, VT_FIRST, 1, false },
	/* As with ioperm(), everybody may give them back. */
	{ 0, NOBODY, 0, 0, 0, 0 },
	{ KDDISABIO, 0, 0, VT_FIRST, VT_NR, false },
	{ KDENABIO, 0, ENXIO, 0, 0, 0 },
	{ KDADDIO, VT_FIRST, ENXIO, 0, 0, 0 },
};

static long vt_call(long nr)
{
	const struct vt_call *c = &vt_calls[nr];

	if (!c->request)
		return become(c->arg);
	return (ioctl(vt_fd, c->request, c->arg) ? errno : 0) != c->error;
}

TEST_F_TIMEOUT(tasks, console_ports, IOPORT_TIMEOUT)
{
	struct ioport_map map = ioport_none;
	struct task *t = &shm->task[A];
	unsigned int i;
	char type;

	vt_fd = open("/dev/tty0", O_RDWR | O_NOCTTY | O_CLOEXEC);
	if (vt_fd < 0 || ioctl(vt_fd, KDGKBTYPE, &type))
		SKIP(return, "no virtual terminal: %s", strerror(errno));
	/* Those next to them are not given back with them. */
	ASSERT_EQ(0, ioport_change(&map, VT_FIRST - 1, 1, true));
	ASSERT_EQ(0, ioport_change(&map, VT_LAST + 1, 1, true));
	ASSERT_EQ(0, start(A));
	for (i = 0; i < ARRAY_SIZE(vt_calls); i++) {
		EXPECT_EQ(0, call(t, vt_call, i))
			TH_LOG("call %u", i);
		ioport_set(&map, vt_calls[i].from, vt_calls[i].num, vt_calls[i].on);
		expect_map(_metadata, t, &map);
	}
}

static void expect_nothing(struct __test_metadata *_metadata)
{
	unsigned int i;

	if (drop_all(0))
		SKIP(return, "%s", ioport_skip_reason() ?: "iopl() refused");
	EXPECT_EQ(0, no_more_than(0));
	EXPECT_EQ(0, level(0));
	for (i = 0; i < ARRAY_SIZE(some_ports); i++) {
		EXPECT_EQ(0, ioperm(some_ports[i], 1, 0));
		EXPECT_FALSE(ioport_may_read(some_ports[i], 1) && ioport_inb(some_ports[i]));
	}
}

TEST(unprivileged_gets_nothing)
{
	ASSERT_EQ(0, set_caps(0));
	expect_nothing(_metadata);
}

TEST(user_namespace_root_gets_nothing)
{
	if (unshare(CLONE_NEWUSER))
		SKIP(return, "no user namespace: %s", strerror(errno));
	ASSERT_TRUE(ioport_has_rawio());
	expect_nothing(_metadata);
}

TEST(lockdown_gives_nothing)
{
	const char *state = read_file("/sys/kernel/security/lockdown");

	if (!ioport_has_rawio() || !state[0] || strstr(state, "[none]"))
		SKIP(return, "not root, or the kernel is not locked down");
	expect_nothing(_metadata);
}

static void set_iopl_in_frame(int sig, siginfo_t *si, void *context)
{
	ucontext_t *ctx = context;

	ctx->uc_mcontext.gregs[REG_EFL] |= X86_EFLAGS_IOPL;
}

/* For everybody, also for those who cannot have ports */
TEST(eflags_iopl_from_sigreturn)
{
	drop_all(0);
	sethandler(SIGUSR2, set_iopl_in_frame, 0);
	ASSERT_EQ(0, raise(SIGUSR2));
	EXPECT_FALSE(ioport_inb(IOPORT_POST));
	EXPECT_EQ(0, cli_sti(false));

	/* POPF is not a way, either. */
	set_eflags(get_eflags() | X86_EFLAGS_IOPL);
	EXPECT_FALSE(ioport_inb(IOPORT_POST));
	EXPECT_EQ(0, cli_sti(false));
}

TEST(eflags_iopl_from_tracer)
{
	const long offset = offsetof(struct user_regs_struct, eflags);
	long eflags;
	int status;
	pid_t pid;

	pid = ioport_fork();
	ASSERT_GE(pid, 0);
	if (!pid) {
		drop_all(0);
		ioport_stop();
		_exit(ioport_inb(IOPORT_POST) || cli_sti(false));
	}
	status = ioport_wait(pid);
	if (WIFEXITED(status) && WEXITSTATUS(status) == EPERM)
		SKIP(return, "ptrace() refused");
	ASSERT_TRUE(WIFSTOPPED(status));

	/* Bits that cannot be changed are ignored. */
	eflags = ptrace(PTRACE_PEEKUSER, pid, offset, NULL);
	ASSERT_EQ(0, ptrace(PTRACE_POKEUSER, pid, offset, eflags | X86_EFLAGS_IOPL));
	ASSERT_EQ(0, ptrace(PTRACE_DETACH, pid, NULL, NULL));
	EXPECT_EQ(0, ioport_wait(pid));
}

/* Bitmaps are charged to the cgroup of the task that allocates them. */
#define CGROUPS			"/sys/fs/cgroup"

FIXTURE(memory) {};

FIXTURE_SETUP(memory)
{
	if (!setup(_metadata))
		return;
	if (!strstr(read_file(CGROUPS "/cgroup.controllers"), "memory"))
		SKIP(return, "no cgroup2 with a memory controller in " CGROUPS);
	if (strstr(read_file("/proc/cmdline"), "nokmem"))
		SKIP(return, "cgroup.memory=nokmem: only user memory is charged");
	/* It is on where systemd runs, and stays on otherwise. */
	if (write_file(CGROUPS "/cgroup.subtree_control", "+memory"))
		SKIP(return, "the memory controller: %s", strerror(errno));
	sprintf(shm->cgroup, CGROUPS "/ioperm_security.%d", getpid());
	if (mkdir(shm->cgroup, 0700) || chdir(shm->cgroup))
		SKIP(return, "no new cgroup: %s", strerror(errno));
}

FIXTURE_TEARDOWN_PARENT(memory)
{
	while (rmdir(shm->cgroup) && errno == EBUSY)
		usleep(1000);
}

/* Charged to the cgroup is what the task allocates from now on. */
static long enter_cgroup(long unused)
{
	return write_file("cgroup.procs", "0");
}

static long charged(void)
{
	return atol(read_file("memory.current"));
}

static long enable_from_0(long num)
{
	return ioperm(0, num, 1) ? errno : 0;
}

static long disable(long port)
{
	return ioperm(port, 1, 0) ? errno : 0;
}

/*
 * The copy of a shared bitmap, the first one of a task, and one that grows from a
 * port. All have 8 KB then, and none of the ports is touched. A CPU charges up to
 * 256 KB in advance, and all tasks are on one.
 */
enum charge { COPY, FIRST, GROWTH };

static void expect_charged(struct __test_metadata *_metadata, enum charge what)
{
	const bool copy = what == COPY;
	struct task *t = &shm->task[A];
	long before, grown;
	int i;

	ASSERT_EQ(0, start(A));
	if (copy)
		ASSERT_EQ(0, call(t, enable_from_0, IOPORT_NR));
	ASSERT_EQ(0, call(t, enter_cgroup, 0));
	for (i = 1; i <= NR_COPIES; i++) {
		ASSERT_EQ(0, call(t, start, A + i));
		/* What else it takes to call it, or the one that grows */
		ASSERT_EQ(what == GROWTH ? 0 : EINVAL,
			  call(&t[i], enable_from_0, what == GROWTH));
	}
	before = charged();
	for (i = 1; i <= NR_COPIES; i++)
		ASSERT_EQ(0, copy ? call(&t[i], disable, 1) :
				    call(&t[i], enable_from_0, IOPORT_NR));
	grown = charged() - before;
	EXPECT_GE(grown, NR_COPIES * 8192)
		TH_LOG("%ld bytes for %d bitmaps", grown, NR_COPIES);
}

TEST_F_TIMEOUT(memory, copy_is_charged, IOPORT_TIMEOUT)
{
	expect_charged(_metadata, COPY);
}

TEST_F_TIMEOUT(memory, first_is_charged, IOPORT_TIMEOUT)
{
	expect_charged(_metadata, FIRST);
}

TEST_F_TIMEOUT(memory, growth_is_charged, IOPORT_TIMEOUT)
{
	expect_charged(_metadata, GROWTH);
}

/* It needs no more memory later on, and is not killed for want of it. */
static long settle(long unused)
{
	if (mlockall(MCL_CURRENT) || write_file("/proc/self/oom_score_adj", "-1000"))
		lacks("no task that the OOM killer spares", errno);
	return 0;
}

/* That takes back what the CPU has charged in advance. */
static long limit(long on)
{
	return write_file("memory.max", on ? "0" : "max");
}

static long run_out(long port)
{
	return disable(pool[1]) != ENOMEM;
}

/* The OOM killer finds no task to kill: expect a call trace in the log. */
TEST_F_TIMEOUT(memory, limit_refuses_copy, IOPORT_TIMEOUT)
{
	static const struct step steps[] = {
		{ A, have, LOW | MID | HIGH }, { A, start, B }, { B, settle, 0 },
		{ B, enter_cgroup, 0 }, { B, become, NOBODY }, { TEST, limit, 1 },
		{ B, run_out, 0 }, { TEST, limit, 0 }, { B, have, LOW | HIGH }, {}
	};

	if (atol(read_file("/proc/sys/vm/panic_on_oom")) == 2)
		SKIP(return, "vm.panic_on_oom=2: a limit would be a panic");
	do_steps(_metadata, steps);
}

/* What happens to a bitmap between its first port and its last one */
enum use { ALONE, GROWS, CHILD_ENDS, CHILD_CHANGES, FORK_FAILS, NR_USES };

/* How often, as fork() takes time. A bitmap of all ports has 8 KB. */
#define LEAK_ROUNDS(use)	((use) == GROWS ? 300 : 100)
#define LEAK_BYTES(use)		(LEAK_ROUNDS(use) * 8192 / 2)

static long leak(long use)
{
	int i;
	pid_t pid;

	for (i = 0; i < LEAK_ROUNDS(use); i++) {
		/* None of these ports is touched. */
		if (use == GROWS && ioperm(0x1000, 0xf000, 1))
			return -errno;
		if (ioperm(0, use == GROWS ? 1 : IOPORT_NR, 1))
			return -errno;
		if (use == FORK_FAILS && failed_fork(0))
			return -ECHILD;
		if (use == CHILD_ENDS || use == CHILD_CHANGES) {
			pid = ioport_fork();
			if (!pid)
				_exit(use == CHILD_CHANGES && ioperm(0x1000, 1, 0));
			if (ioport_wait(pid))
				return -ECHILD;
		}
		if (ioperm(0, IOPORT_NR, 0))
			return -errno;
	}
	return 0;
}

/* copy_is_charged shows that bitmaps can be seen in what is charged. */
TEST_F_TIMEOUT(memory, nothing_leaks, IOPORT_TIMEOUT)
{
	struct task *t = &shm->task[A];
	long before, grown;
	int use, i;

	ASSERT_EQ(0, start(A) ?: call(t, enter_cgroup, 0));
	for (use = ALONE; use < NR_USES; use++) {
		before = charged();
		ASSERT_EQ(0, call(t, leak, use));
		grown = charged() - before;
		/* Tasks that have ended are freed a grace period later. */
		for (i = 0; i < 50 && grown > LEAK_BYTES(use); i++) {
			usleep(100000);
			grown = charged() - before;
		}
		EXPECT_LE(grown, LEAK_BYTES(use))
			TH_LOG("%ld bytes more after use %d", grown, use);
	}
}

int main(int argc, char **argv)
{
	ioport_init(&argc, argv);
	may_lock_down = ioport_option(&argc, argv, "--lock-down");
	if (argc == 3 && !strcmp(argv[1], "--after-exec"))
		return after_exec(argv[2]);
	shm = mmap(NULL, sizeof(*shm), PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
	if (shm == MAP_FAILED)
		ksft_exit_fail_msg("no memory\n");
	me = &shm->task[TEST];
	return test_harness_run(argc, argv);
}
