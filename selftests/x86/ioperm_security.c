// SPDX-License-Identifier: GPL-2.0
/*
 * ioperm_security.c - who may use I/O ports, and when
 *
 * A task may use the ports that ioperm() or iopl() gave to it, or to whoever
 * it inherited them from, and no others, on whatever CPU and after whatever
 * other task it runs.
 *
 *  task_switch	Tasks with different ports take turns on one CPU.
 *  shared	Two tasks share a bitmap until one of them changes its ports.
 *		That is effective for the caller at once, and for nobody else.
 *  tasks	Failed forks, exec, privileges, iopl levels, several CPUs.
 *  memory	Bitmaps are charged to the memory cgroup, and none is lost.
 *
 * Ports are read in the task itself, which shows what the CPU does, and a
 * tracer reads the bitmap, which shows what the kernel believes. Nothing is
 * ever written to a port.
 *
 * With --lock-down one case locks the kernel down, until the next boot.
 */
#define _GNU_SOURCE
#include <fcntl.h>
#include <limits.h>
#include <linux/filter.h>
#include <linux/futex.h>
#include <linux/kd.h>
#include <linux/sched.h>
#include <linux/seccomp.h>
#include <linux/time_types.h>
#include <stddef.h>
#include <sys/ioctl.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <sys/user.h>

#include "kselftest_harness.h"
#include "ioport_helper.h"

#define CHECK_LINES		32
#define NR_COPIES		64
#define NR_TASKS		(NR_COPIES + 1)
#define STACK_SIZE		65536

/* Seconds for a case, on a slow machine */
#define TIMEOUT			240

/* In 32 bit programs SYS_futex needs COMPAT_32BIT_TIME. */
#ifndef SYS_futex_time64
#define SYS_futex_time64	SYS_futex
#endif

#define load(x)			__atomic_load_n(&(x), __ATOMIC_ACQUIRE)
#define store(x, v)		__atomic_store_n(&(x), v, __ATOMIC_RELEASE)

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

static bool find_pool(void)
{
	int high = ioport_find(2, 8, 2, IOPORT_NR);
	int mid = ioport_find(1, 1, 0, IOPORT_NR / 2);
	int below = high < 0 ? -1 : ioport_find(1, 1, 0, high / IOPORT_LINE * IOPORT_LINE);

	pool[1] = mid;
	pool[2] = below;
	pool[3] = high;
	pool[4] = high + 1;
	return below >= 0 && mid >= 0 && below != mid;
}

static bool read_tsc(void)
{
	uint32_t low, high;
	bool denied;

	asm volatile ("clc\n\trdtsc"
		      : "=@ccc" (denied), "=a" (low), "=d" (high));
	return !denied;
}

/* What the functions named *_here do is done in the task that calls them. */

/*
 * Can the ports in @mask be used and others not? Trying all others would take
 * too long, so each @turn tries a few: a port of the pool plus 0, 1 or 2, moved
 * by some number of lines. Returns 0, the first wrong port, or -EPROTO if the
 * TSC is wrong.
 */
static long check_here(long mask, long turn, long unused)
{
	unsigned int port, known;
	int i, j;

	if (read_tsc() == !!(mask & NO_TSC))
		return -EPROTO;
	for (i = 0; i < NR_POOL; i++) {
		if (ioport_inb(pool[i]) != !!(mask & (IOPL | 1 << i)))
			return pool[i];
	}

	/* With iopl(3) the others are enabled, and need not be touched. */
	for (i = 0; i < CHECK_LINES && !(mask & IOPL); i++) {
		port = pool[turn % NR_POOL] + turn % 3 +
		       (turn * CHECK_LINES + i) * IOPORT_LINE;
		port %= IOPORT_NR;
		for (j = 0, known = 0; j < NR_POOL; j++)
			known += port == pool[j];
		if (!known && ioport_may_read(port, 1) && ioport_inb(port))
			return port;
	}
	return 0;
}

static long ioperm_here(long from, long num, long on)
{
	return ioperm(from, num, on) ? -errno : 0;
}

static long iopl_here(long level, long unused1, long unused2)
{
	return iopl(level) ? -errno : 0;
}

/*
 * Have the ports in @mask instead of those in @old, and see that at once,
 * before another task runs. Grants come first, or revokes, depending on @turn.
 */
static long change_here(long mask, long old, long turn)
{
	int tsc = mask & NO_TSC ? PR_TSC_SIGSEGV : PR_TSC_ENABLE;
	long ret = 0;
	int pass, i;
	bool on;

	if ((mask ^ old) & NO_TSC && prctl(PR_SET_TSC, tsc))
		return -errno;
	if ((mask ^ old) & IOPL)
		ret = iopl_here(mask & IOPL ? 3 : 0, 0, 0);

	for (pass = 0; pass < 2; pass++) {
		on = pass == turn % 2;
		for (i = 0; i < NR_POOL && !ret; i++) {
			if ((on ? mask & ~old : old & ~mask) & (1 << i))
				ret = ioperm_here(pool[i], 1, on);
		}
	}
	return ret ?: check_here(mask, turn, 0);
}

static long move_here(long cpu, long unused1, long unused2)
{
	return ioport_pin(0, cpu);
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

static long become_here(long who, long unused1, long unused2)
{
	switch (who) {
	case NOBODY:
		return ioport_become_nobody();
	case NOBODY_WITH_RAWIO:
		if (prctl(PR_SET_KEEPCAPS, 1))
			return -errno;
		return ioport_become_nobody() ?: set_caps(1U << CAP_SYS_RAWIO);
	case ROOT_WITHOUT_CAPS:
		return set_caps(0);
	default:
		if (unshare(CLONE_NEWUSER))
			return -errno;
		/* A change of the credentials resets it. */
		ioport_die_with_parent();
		return 0;
	}
}

static const char *read_file(const char *dir, const char *name)
{
	static char text[4096];
	char path[PATH_MAX];
	ssize_t len;
	int fd;

	snprintf(path, sizeof(path), "%s/%s", dir, name);
	fd = open(path, O_RDONLY | O_CLOEXEC);
	len = read(fd, text, sizeof(text) - 1);
	text[len > 0 ? len : 0] = '\0';
	close(fd);
	return text;
}

static int write_file(const char *dir, const char *name, const char *text)
{
	char path[PATH_MAX];
	int fd, ret = 0;

	snprintf(path, sizeof(path), "%s/%s", dir, name);
	fd = open(path, O_WRONLY | O_CLOEXEC);
	if (fd < 0 || write(fd, text, strlen(text)) < 0)
		ret = -errno;
	close(fd);
	return ret;
}

/* Tasks that call the functions above when they are asked to */

enum kind { PROCESS, THREAD };

struct task {
	/* Counters and futexes */
	uint32_t	asked, answered;
	long		(*fn)(long a, long b, long c);
	long		arg[3], ret;
	/* The ports that it should have */
	long		mask;
	enum kind	kind;
	/* 0 if the slot is free */
	pid_t		tid;
};

/* Not shared, so that a task can fork */
static long double stacks[NR_TASKS][STACK_SIZE / sizeof(long double)];

static struct shared {
	struct task	task[NR_TASKS];
	/* Of task_switch, and of tasks that wait for each other */
	uint32_t	turn;
} *shm;

/* The first two of those that are allowed */
static int cpus[2];
static int nr_cpus;

/* Returns after a while in any case. */
static void futex_wait(uint32_t *futex, uint32_t val)
{
	struct __kernel_timespec timeout = { .tv_nsec = 100000000 };

	syscall(SYS_futex_time64, futex, FUTEX_WAIT, val, &timeout, NULL, 0);
}

static void futex_wake(uint32_t *futex)
{
	syscall(SYS_futex_time64, futex, FUTEX_WAKE, INT_MAX, NULL, NULL, 0);
}

static int task_main(void *arg)
{
	struct task *t = arg;

	ioport_die_with_parent();
	for (;;) {
		store(t->answered, t->asked);
		futex_wake(&t->answered);
		while (load(t->asked) == t->answered)
			futex_wait(&t->asked, t->answered);
		if (!t->fn)
			return 0;
		t->ret = t->fn(t->arg[0], t->arg[1], t->arg[2]);
	}
}

static void ask(struct task *t, long (*fn)(long, long, long), long a, long b,
		long c)
{
	t->fn = fn;
	t->arg[0] = a;
	t->arg[1] = b;
	t->arg[2] = c;
	store(t->asked, t->asked + 1);
	futex_wake(&t->asked);
}

/* Has the task answered, or has one ended without being asked to? */
static bool is_done(struct task *t)
{
	siginfo_t info = {};

	if (load(t->answered) == t->asked)
		return true;
	return !waitid(P_ALL, 0, &info, WEXITED | WNOHANG | WNOWAIT | __WALL) &&
	       info.si_pid;
}

static long await_answer(struct task *t)
{
	while (!is_done(t))
		futex_wait(&t->answered, t->asked - 1);
	return load(t->answered) == t->asked ? t->ret : -ESRCH;
}

/* Call a function in a task, and wait for its result. */
static long call(struct task *t, long (*fn)(long, long, long), long a, long b,
		 long c)
{
	ask(t, fn, a, b, c);
	return await_answer(t);
}

/* Arguments that are not given are 0. */
#define CALL(t, fn, ...)	CALL_(t, fn, ##__VA_ARGS__, 0, 0, 0)
#define CALL_(t, fn, a, b, c, ...) call(t, fn, a, b, c)

/* A new process is a child of the test, whoever starts it. */
static long start_here(long arg, long unused1, long unused2)
{
	struct task *t = (struct task *)arg;
	int flags = SIGCHLD;

	if (t->kind == THREAD)
		flags = CLONE_VM | CLONE_FS | CLONE_FILES | CLONE_SIGHAND |
			CLONE_THREAD | CLONE_SYSVSEM;
	else if (getpid() != ioport_parent)
		flags |= CLONE_PARENT;
	return clone(task_main, stacks[t - shm->task + 1], flags, t);
}

static struct task *start_task(struct __test_metadata *_metadata,
			       struct task *parent, enum kind kind)
{
	struct task *t = shm->task;
	long tid;

	while (t->tid)
		t++;
	ASSERT_LT(t - shm->task, NR_TASKS);

	memset(t, 0, sizeof(*t));
	/* The first answer says that it is there. */
	t->asked = 1;
	t->kind = kind;
	t->mask = parent ? parent->mask : 0;
	tid = parent ? CALL(parent, start_here, (long)t) :
		       start_here((long)t, 0, 0);
	ASSERT_GT(tid, 0);
	t->tid = tid;
	ASSERT_EQ(0, await_answer(t));
	return t;
}

/* Stop a task, or a thread of it, and compare its bitmap. */
static void expect_map(struct __test_metadata *_metadata, struct task *t,
		       const struct ioport_map *map, int line)
{
	int status;

	ASSERT_EQ(0, ptrace(PTRACE_SEIZE, t->tid, NULL, NULL));
	ASSERT_EQ(0, ptrace(PTRACE_INTERRUPT, t->tid, NULL, NULL));
	ASSERT_EQ(t->tid, ioport_wait(t->tid, &status));
	ASSERT_TRUE(WIFSTOPPED(status));
	EXPECT_STREQ("", ioport_wrong(map, NULL, t->tid))
		TH_LOG("line %d: task %td", line, t - shm->task);
	ASSERT_EQ(0, ptrace(PTRACE_DETACH, t->tid, NULL, NULL));
}

/* Each task has exactly the ports that it should have, the test has none. */
static void expect_ports(struct __test_metadata *_metadata, int line)
{
	struct ioport_map map;
	struct task *t;
	long wrong;
	int i;

	wrong = check_here(0, line, 0);
	EXPECT_EQ(0, wrong)
		TH_LOG("line %d: the test itself: port 0x%lx", line, wrong);

	for (t = shm->task; t < shm->task + NR_TASKS; t++) {
		if (!t->tid)
			continue;
		wrong = CALL(t, check_here, t->mask, line);
		ASSERT_GE(wrong, 0);
		EXPECT_EQ(0, wrong)
			TH_LOG("line %d: task %td, mask 0x%lx: port 0x%lx",
			       line, t - shm->task, t->mask, wrong);

		ioport_clear_all(&map);
		for (i = 0; i < NR_POOL; i++)
			ioport_set(&map, pool[i], 1, t->mask & (1 << i));
		expect_map(_metadata, t, &map, line);
	}
}

static void change(struct __test_metadata *_metadata, struct task *t,
		   long mask, int line)
{
	long wrong = CALL(t, change_here, mask, t->mask, line);

	ASSERT_EQ(0, wrong)
		TH_LOG("line %d: task %td, mask 0x%lx: port 0x%lx", line,
		       t - shm->task, mask, wrong);
	t->mask = mask;
	expect_ports(_metadata, line);
}

static void end_task(struct __test_metadata *_metadata, struct task *t,
		     int line)
{
	int status;

	ask(t, NULL, 0, 0, 0);
	if (t->kind == THREAD) {
		while (!kill(t->tid, 0))
			usleep(100);
	} else {
		ASSERT_EQ(t->tid, ioport_wait(t->tid, &status));
		EXPECT_EQ(0, status);
	}
	t->tid = 0;
	expect_ports(_metadata, line);
}

#define START(parent, kind)	start_task(_metadata, parent, kind)
#define EXPECT_PORTS()		expect_ports(_metadata, __LINE__)
/* These look at the ports of all tasks, too. */
#define CHANGE(t, mask)		change(_metadata, t, mask, __LINE__)
#define END(t)			end_task(_metadata, t, __LINE__)

/* Whoever started this may have had ports, they are inherited. */
static bool give_all_back(void)
{
	return !iopl(0) && !ioperm(0, IOPORT_NR, 0);
}

static bool setup(struct __test_metadata *_metadata)
{
	const char *reason = ioport_skip_reason();
	cpu_set_t allowed;
	int cpu;

	if (reason)
		SKIP(return false, "%s", reason);
	if (!find_pool())
		SKIP(return false, "no ports that nothing in /proc/ioports claims");

	shm = mmap(NULL, sizeof(*shm), PROT_READ | PROT_WRITE,
		   MAP_SHARED | MAP_ANONYMOUS, -1, 0);
	ASSERT_TRUE(shm != MAP_FAILED);
	ASSERT_TRUE(give_all_back());
	ioport_parent = getpid();
	/* The harness would also kill the parent, which has to clean up. */
	alarm(TIMEOUT - 20);

	ASSERT_EQ(0, sched_getaffinity(0, sizeof(allowed), &allowed));
	for (cpu = 0; cpu < CPU_SETSIZE && nr_cpus < 2; cpu++) {
		if (CPU_ISSET(cpu, &allowed))
			cpus[nr_cpus++] = cpu;
	}
	ASSERT_EQ(0, ioport_pin(0, cpus[0]));
	return true;
}

/* task_switch: taking turns on one CPU */

#define NR_SWITCHING		3
#define TURNS			36U
#define STOPPED			UINT32_MAX

FIXTURE(task_switch) {};

FIXTURE_VARIANT(task_switch) {
	/* The ports of each after its first, second and third turn, and so on */
	long	mask[NR_SWITCHING][3];
	/* The bitmap that they share at first */
	long	inherited;
};

#define SWITCH(name)		FIXTURE_VARIANT_ADD(task_switch, name)
#define ALWAYS(ports)		{ [0 ... 2] = (ports) }

SWITCH(other_line)	{ { ALWAYS(LOW), ALWAYS(BELOW), ALWAYS(HIGH) } };
/* After a task with ports comes one that never asked for any. */
SWITCH(same_byte)	{ { ALWAYS(HIGH), ALWAYS(NEXT), ALWAYS(0) } };
SWITCH(iopl)		{ { ALWAYS(IOPL), ALWAYS(0), ALWAYS(MID) } };
SWITCH(iopl_free_and_regrant) {
	{ { IOPL, 0, LOW }, { HIGH, IOPL | MID, MID }, ALWAYS(0) } };
/* None has the ports that another one with the same bitmap has by iopl(3). */
SWITCH(same_bitmap_and_iopl) {
	{ { LOW | IOPL, LOW, LOW }, { LOW, LOW | IOPL, LOW }, ALWAYS(LOW) }, LOW };
/* What else there is to do at a switch must not be forgotten. */
SWITCH(ports_and_no_tsc) { { ALWAYS(LOW), ALWAYS(NO_TSC), ALWAYS(HIGH) } };

FIXTURE_SETUP(task_switch)
{
	setup(_metadata);
}

FIXTURE_TEARDOWN(task_switch) {}

/* What the others do meanwhile does not matter. */
static long take_turns_here(long me, long yield, long arg)
{
	const FIXTURE_VARIANT(task_switch) *variant = (const void *)arg;
	const long *masks = variant->mask[me];
	long mask = variant->inherited, next, ret = 0;
	uint32_t turn, now;

	if (!(masks[0] | masks[1] | masks[2]))
		ret = become_here(NOBODY, 0, 0);

	for (turn = me; turn < TURNS && !ret; turn += NR_SWITCHING) {
		while ((now = load(shm->turn)) != turn) {
			if (now == STOPPED)
				return -ECANCELED;
			if (yield)
				sched_yield();
			else
				futex_wait(&shm->turn, now);
		}

		next = masks[turn / NR_SWITCHING % 3];
		ret = check_here(mask, turn, 0);
		if (!ret && next != mask)
			ret = change_here(next, mask, turn);
		mask = next;

		store(shm->turn, ret ? STOPPED : turn + 1);
		futex_wake(&shm->turn);
	}
	return ret;
}

TEST_F_TIMEOUT(task_switch, own_ports_only, TIMEOUT)
{
	struct task *p, *t[NR_SWITCHING];
	int yield, i;

	/* By sleeping, and by sched_yield() */
	for (yield = 0; yield < 2; yield++) {
		p = START(NULL, PROCESS);
		CHANGE(p, variant->inherited);
		for (i = 0; i < NR_SWITCHING; i++)
			t[i] = START(p, PROCESS);
		shm->turn = 0;
		for (i = 0; i < NR_SWITCHING; i++)
			ask(t[i], take_turns_here, i, yield, (long)variant);
		for (i = 0; i < NR_SWITCHING; i++) {
			EXPECT_EQ(0, await_answer(t[i]))
				TH_LOG("task %d: port 0x%lx", i, t[i]->ret);
			t[i]->mask = variant->mask[i][2];
		}
		ASSERT_EQ(TURNS, shm->turn);
		for (i = 0; i < NR_SWITCHING; i++)
			END(t[i]);
		END(p);
	}
}

/* shared: a bitmap that two tasks have until one of them changes its ports */

enum { NONE, PARENT, CHILD };

FIXTURE(shared) {};

FIXTURE_VARIANT(shared) {
	long	first;
	struct {
		int	who;
		long	mask;
	} change[9];
};

#define SHARE(name)	FIXTURE_VARIANT_ADD(shared, name)

SHARE(drop_is_own) { LOW | HIGH,
	{ { PARENT, HIGH }, { CHILD, LOW }, { PARENT, HIGH | MID },
	  { CHILD, 0 }, { CHILD, BELOW }, { PARENT, 0 } } };
/* Nothing is copied then. */
SHARE(last_drop_is_own) { HIGH, { { CHILD, 0 }, { CHILD, LOW } } };
SHARE(last_drop_of_parent_is_own) { HIGH, { { PARENT, 0 } } };
SHARE(grant_is_own) { HIGH, { { CHILD, HIGH | NEXT }, { PARENT, HIGH | LOW } } };
SHARE(iopl_is_own) { MID | IOPL,
	{ { PARENT, MID }, { CHILD, MID }, { PARENT, MID | IOPL },
	  { CHILD, 0 }, { PARENT, MID } } };
/* What changes during iopl(3) is seen afterwards. */
SHARE(iopl_over_ioperm) { LOW | BELOW | HIGH,
	{ { PARENT, LOW | BELOW | HIGH | IOPL }, { PARENT, LOW | BELOW | MID | IOPL },
	  { PARENT, LOW | BELOW | MID }, { CHILD, IOPL }, { CHILD, 0 },
	  { PARENT, IOPL }, { PARENT, NEXT | IOPL }, { PARENT, NEXT } } };
/* It is inherited, too. */
SHARE(iopl_without_bitmap) { IOPL, { { PARENT, 0 } } };

FIXTURE_SETUP(shared)
{
	setup(_metadata);
}

FIXTURE_TEARDOWN(shared) {}

/* Each CHANGE() sees that nobody else has changed. */
static void share(struct __test_metadata *_metadata, enum kind kind,
		  const FIXTURE_VARIANT(shared) *variant)
{
	struct task *p, *c;
	int i, j;

	/* Both on one CPU, and then on two */
	for (i = 0; i < nr_cpus; i++) {
		p = START(NULL, PROCESS);
		CHANGE(p, variant->first);
		c = START(p, kind);
		ASSERT_EQ(0, CALL(c, move_here, cpus[i]));
		EXPECT_PORTS();
		for (j = 0; variant->change[j].who; j++)
			CHANGE(variant->change[j].who == PARENT ? p : c,
			       variant->change[j].mask);
		/* A process may outlive the one that started it. */
		END(kind == PROCESS ? p : c);
		END(kind == PROCESS ? c : p);
	}
}

TEST_F_TIMEOUT(shared, by_process, TIMEOUT)
{
	share(_metadata, PROCESS, variant);
}

TEST_F_TIMEOUT(shared, by_thread, TIMEOUT)
{
	share(_metadata, THREAD, variant);
}

/* tasks: everything else */

FIXTURE(tasks) {
	/* The folder of a CPU that the parent has to bring back online */
	char	cpu[64];
};

FIXTURE_SETUP(tasks)
{
	setup(_metadata);
}

FIXTURE_TEARDOWN_PARENT(tasks)
{
	if (self->cpu[0])
		write_file(self->cpu, "online", "1");
}

/* The end of a task that has the same bitmap, or had it, takes nothing. */
TEST_F_TIMEOUT(tasks, exit_takes_nothing, TIMEOUT)
{
	static const long masks[] = { LOW | BELOW, BELOW, HIGH };
	struct task *p, *c, *other;
	unsigned int i;

	p = START(NULL, PROCESS);
	CHANGE(p, LOW | BELOW);
	for (i = 0; i < 2 * ARRAY_SIZE(masks); i++) {
		c = START(p, i % 2 ? THREAD : PROCESS);
		CHANGE(c, masks[i / 2]);
		END(c);
	}

	/* If the bitmap were freed, this one would get the memory. */
	other = START(NULL, PROCESS);
	CHANGE(other, MID | HIGH);
	END(p);
	END(other);
}

/*
 * A task and its child drop the last two references on a bitmap at one time, on
 * two CPUs. What is wrong shows as a splat of the kernel.
 */
static long end_together_here(long rounds, long other_cpu, long unused)
{
	pid_t pid;
	long ret = 0;

	while (rounds-- && !ret) {
		if (ioperm(IOPORT_POST, 1, 1))
			return -errno;
		store(shm->turn, 0);
		pid = ioport_fork();
		if (!pid) {
			ioport_pin(0, other_cpu);
			store(shm->turn, 1);
			while (load(shm->turn) == 1)
				;
			_exit(ioperm(IOPORT_POST, 1, 0));
		}
		while (!load(shm->turn))
			sched_yield();
		store(shm->turn, 2);
		ret = ioperm_here(IOPORT_POST, 1, 0);
		if (ioport_wait(pid, NULL) != pid)
			ret = -ECHILD;
	}
	return ret;
}

TEST_F_TIMEOUT(tasks, two_drop_the_last_reference, TIMEOUT)
{
	if (nr_cpus < 2)
		SKIP(return, "only one CPU");
	EXPECT_EQ(0, CALL(START(NULL, PROCESS), end_together_here, 1000, cpus[1]));
}

/* Fails as the PID is in use, which fork notices after sharing the bitmap. */
static long failed_fork_here(long unused1, long unused2, long unused3)
{
	struct clone_args args = {
		.exit_signal = SIGCHLD,
		.set_tid = (uintptr_t)&ioport_parent,
		.set_tid_size = 1,
	};
	pid_t pid = syscall(SYS_clone3, &args, sizeof(args));

	if (!pid)
		_exit(KSFT_FAIL);
	return pid < 0 ? -errno : 0;
}

TEST_F_TIMEOUT(tasks, failed_fork, TIMEOUT)
{
	static const long masks[] = { ALL & ~LOW, IOPL, 0 };
	struct task *p, *t, *other;
	unsigned int i;

	p = START(NULL, PROCESS);
	CHANGE(p, ALL);
	t = START(p, PROCESS);
	other = START(NULL, PROCESS);
	if (CALL(t, failed_fork_here) == -ENOSYS)
		SKIP(return, "no clone3()");

	/* While the bitmap is shared, then not: it is changed in place. */
	EXPECT_EQ(-EEXIST, CALL(t, failed_fork_here));
	EXPECT_PORTS();
	CHANGE(p, ALL & ~HIGH);
	for (i = 0; i < ARRAY_SIZE(masks); i++) {
		EXPECT_EQ(-EEXIST, CALL(t, failed_fork_here));
		EXPECT_PORTS();
		CHANGE(t, masks[i]);
		/* If the bitmap were freed, this one would get the memory. */
		CHANGE(other, ALL & ~MID);
	}
	EXPECT_EQ(-EEXIST, CALL(t, failed_fork_here));
	EXPECT_PORTS();
}

/* What this program does after it has executed itself */
static int after_exec(const char *args)
{
	long mask, wrong;

	/* Without privileges the program cannot find the ports. */
	if (sscanf(args, "%ld %u %u %u %u %u", &mask, &pool[0], &pool[1],
		   &pool[2], &pool[3], &pool[4]) != NR_POOL + 1)
		return KSFT_FAIL;

	wrong = check_here(mask, 0, 0);
	if (wrong)
		ksft_print_msg("after exec: port 0x%lx\n", wrong);
	return wrong ? KSFT_FAIL : KSFT_PASS;
}

static long exec_here(long mask, long unused1, long unused2)
{
	char args[128];

	snprintf(args, sizeof(args), "%ld %u %u %u %u %u", mask, pool[0],
		 pool[1], pool[2], pool[3], pool[4]);
	execl("/proc/self/exe", "ioperm_security", "--after-exec", args, NULL);
	_exit(errno == EACCES ? KSFT_SKIP : KSFT_FAIL);
}

/* A task with a bitmap of its own, and one that shares it, both keep it. */
static void exec_keeps(struct __test_metadata *_metadata, long mask, bool nobody)
{
	struct task *p = START(NULL, PROCESS), *t;
	int status, i;

	CHANGE(p, mask);
	for (i = 0; i < 2; i++) {
		t = i ? p : START(p, PROCESS);
		if (nobody)
			ASSERT_EQ(0, CALL(t, become_here, NOBODY));
		ask(t, exec_here, mask, 0, 0);
		ASSERT_EQ(t->tid, ioport_wait(t->tid, &status));
		t->tid = 0;
		if (nobody && WIFEXITED(status) && WEXITSTATUS(status) == KSFT_SKIP)
			SKIP(return, "user %d may not execute this program",
			     IOPORT_NOBODY);
		EXPECT_EQ(0, status);
	}
}

TEST_F_TIMEOUT(tasks, exec_keeps, TIMEOUT)
{
	exec_keeps(_metadata, LOW | HIGH, false);
	exec_keeps(_metadata, 0, false);
	exec_keeps(_metadata, IOPL, false);
	exec_keeps(_metadata, MID | IOPL, false);
}

TEST_F_TIMEOUT(tasks, exec_keeps_without_privileges, TIMEOUT)
{
	exec_keeps(_metadata, BELOW | NEXT, true);
	exec_keeps(_metadata, IOPL, true);
}

/* No level above the one that the task has, and no port */
static void expect_nothing_more(struct __test_metadata *_metadata, struct task *t, int level)
{
	int i;

	for (i = 0; i < NR_POOL; i++)
		EXPECT_EQ(-EPERM, CALL(t, ioperm_here, pool[i], 1, 1));
	EXPECT_EQ(-EPERM, CALL(t, ioperm_here, 0, IOPORT_NR, 1));
	for (i = level + 1; i <= 3; i++)
		EXPECT_EQ(-EPERM, CALL(t, iopl_here, i));
	EXPECT_PORTS();
}

/* What it has stays, and can be given back. Nothing else is possible. */
static void may_only_revoke(struct __test_metadata *_metadata, enum who who)
{
	struct task *t;
	int level;
	long ret;

	/* Neither is it from the levels that give no port. */
	for (level = 2; level >= 0; level--) {
		t = START(NULL, PROCESS);
		ASSERT_EQ(0, CALL(t, iopl_here, level));
		if (!level)
			CHANGE(t, ALL | IOPL);
		ret = CALL(t, become_here, who);
		if (ret && who == USER_NAMESPACE_ROOT)
			SKIP(return, "no user namespace: %s", strerror(-ret));
		ASSERT_EQ(0, ret);
		EXPECT_PORTS();
		if (!level) {
			EXPECT_EQ(0, CALL(t, iopl_here, 3));
			CHANGE(t, ALL);
		}
		/* Not even what it has */
		expect_nothing_more(_metadata, t, level);
	}

	CHANGE(t, ALL & ~HIGH);
	EXPECT_EQ(0, CALL(t, ioperm_here, 0, IOPORT_NR, 0));
	EXPECT_EQ(0, CALL(t, ioperm_here, 0, IOPORT_NR, 0));
	t->mask = 0;
	expect_nothing_more(_metadata, t, 0);
}

TEST_F_TIMEOUT(tasks, unprivileged_may_only_revoke, TIMEOUT)
{
	may_only_revoke(_metadata, NOBODY);
}

TEST_F_TIMEOUT(tasks, user_namespace_root_may_only_revoke, TIMEOUT)
{
	may_only_revoke(_metadata, USER_NAMESPACE_ROOT);
}

/* It is CAP_SYS_RAWIO that decides, and not the user. */
TEST_F_TIMEOUT(tasks, capability_decides, TIMEOUT)
{
	struct task *t = START(NULL, PROCESS);

	ASSERT_EQ(0, CALL(t, become_here, NOBODY_WITH_RAWIO));
	CHANGE(t, LOW);
	CHANGE(t, LOW | IOPL);
	may_only_revoke(_metadata, ROOT_WITHOUT_CAPS);
}

static long seccomp_here(long unused1, long unused2, long unused3)
{
	struct sock_filter filter[] = {
		BPF_STMT(BPF_LD | BPF_W | BPF_ABS,
			 offsetof(struct seccomp_data, nr)),
		BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, SYS_ioperm, 2, 0),
		BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, SYS_iopl, 1, 0),
		BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_ALLOW),
		BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_ERRNO | ENOTTY),
	};
	const struct sock_fprog prog = {
		.len	= ARRAY_SIZE(filter),
		.filter	= filter,
	};

	return prctl(PR_SET_SECCOMP, SECCOMP_MODE_FILTER, &prog) ? -errno : 0;
}

/* The filter decides about the calls, and not about the ports. */
TEST_F_TIMEOUT(tasks, seccomp_filter, TIMEOUT)
{
	struct task *t = START(NULL, PROCESS);
	long ret;

	CHANGE(t, LOW | MID);
	ret = CALL(t, seccomp_here);
	if (ret)
		SKIP(return, "no seccomp filter: %s", strerror(-ret));

	EXPECT_EQ(-ENOTTY, CALL(t, ioperm_here, pool[3], 1, 1));
	EXPECT_EQ(-ENOTTY, CALL(t, ioperm_here, pool[0], 1, 0));
	EXPECT_EQ(-ENOTTY, CALL(t, iopl_here, 3));
	START(t, PROCESS);
	EXPECT_PORTS();
}

static void expect_nothing(struct __test_metadata *_metadata)
{
	static const int ports[] = { 0, 0x60, IOPORT_POST, 0x3f8, 65535 };
	unsigned int i;

	if (!give_all_back())
		SKIP(return, "%s", ioport_skip_reason() ?: "iopl() refused");
	for (i = 0; i < ARRAY_SIZE(ports); i++) {
		EXPECT_EQ(-EPERM, ioperm_here(ports[i], 1, 1));
		EXPECT_EQ(0, ioperm_here(ports[i], 1, 0));
		EXPECT_FALSE(ioport_may_read(ports[i], 1) &&
			     ioport_inb(ports[i]));
	}
	EXPECT_EQ(-EPERM, ioperm_here(0, IOPORT_NR, 1));
	for (i = 1; i <= 3; i++)
		EXPECT_EQ(-EPERM, iopl_here(i, 0, 0));
	EXPECT_EQ(0, iopl_here(0, 0, 0));
	EXPECT_EQ(-EINVAL, iopl_here(4, 0, 0));
	EXPECT_FALSE(ioport_inb(IOPORT_POST));
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

/* To lock the kernel down cannot be undone, so the test does not do it. */
TEST(lockdown_gives_nothing)
{
	if (!ioport_has_rawio() || !ioport_locked_down())
		SKIP(return, "not root, or the kernel is not locked down");
	expect_nothing(_metadata);
}

/* Unless it is told to: what a task has stays, and that is all. */
TEST_F_TIMEOUT(tasks, lockdown_takes_nothing, TIMEOUT)
{
	struct task *t[3];
	int level;

	if (!may_lock_down)
		SKIP(return, "cannot be undone, so only with --lock-down");
	for (level = 0; level < 3; level++) {
		t[level] = START(NULL, PROCESS);
		CHANGE(t[level], LOW | MID);
		ASSERT_EQ(0, CALL(t[level], iopl_here, level));
	}
	ASSERT_EQ(0, write_file("/sys/kernel/security", "lockdown", "integrity"));
	for (level = 0; level < 3; level++) {
		expect_nothing_more(_metadata, t[level], level);
		CHANGE(t[level], LOW);
		expect_nothing_more(_metadata, t[level], level);
	}
}

/*
 * CLI and STI change nothing. With iopl(3) the kernel pretends that they do,
 * so that old programs go on, without it they fault. Returns 0 if so.
 */
static long cli_sti_here(long iopl3, long unused1, long unused2)
{
	bool cli_faulted, sti_faulted;
	unsigned long eflags;

	/* See ioport_on_sigsegv() for the carry flag. */
	asm volatile ("clc; cli" : "=@ccc" (cli_faulted) : : "memory");
	eflags = get_eflags();
	asm volatile ("clc; sti" : "=@ccc" (sti_faulted) : : "memory");

	if (!(eflags & X86_EFLAGS_IF) || eflags & X86_EFLAGS_IOPL)
		return 1;
	return !iopl3 && (!cli_faulted || !sti_faulted) ? 2 : 0;
}

/* Only level 3 gives ports. The others leave what is in the bitmap. */
TEST_F_TIMEOUT(tasks, iopl_levels, TIMEOUT)
{
	static const int levels[] = { 0, 1, 2, 3, 2, 1, 0, 3, 3, 1, 3, 0, 2 };
	static const int invalid[] = { 4, 0x80, 0x3000, INT_MAX, INT_MIN, -1 };
	static const long masks[] = { 0, MID };
	struct task *t = START(NULL, PROCESS);
	unsigned int i, j, k;

	for (i = 0; i < ARRAY_SIZE(masks); i++) {
		CHANGE(t, masks[i]);
		for (j = 0; j < ARRAY_SIZE(levels); j++) {
			EXPECT_EQ(0, CALL(t, iopl_here, levels[j]));
			for (k = 0; k < ARRAY_SIZE(invalid); k++)
				EXPECT_EQ(-EINVAL,
					  CALL(t, iopl_here, invalid[k]));
			t->mask = masks[i] | (levels[j] == 3 ? IOPL : 0);
			EXPECT_PORTS();
			EXPECT_EQ(0, CALL(t, cli_sti_here, levels[j] == 3));
		}
	}
}

static void set_iopl_in_frame(int sig, siginfo_t *si, void *context)
{
	ucontext_t *ctx = context;

	ctx->uc_mcontext.gregs[REG_EFL] |= X86_EFLAGS_IOPL;
}

/* For everybody, also for those who cannot have ports */
TEST(eflags_iopl_from_sigreturn)
{
	give_all_back();
	sethandler(SIGUSR2, set_iopl_in_frame, 0);
	ASSERT_EQ(0, raise(SIGUSR2));
	EXPECT_FALSE(ioport_inb(IOPORT_POST));
	EXPECT_EQ(0, cli_sti_here(false, 0, 0));

	/* POPF is not a way, either. */
	set_eflags(get_eflags() | X86_EFLAGS_IOPL);
	EXPECT_FALSE(ioport_inb(IOPORT_POST));
	EXPECT_EQ(0, cli_sti_here(false, 0, 0));
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
		give_all_back();
		ioport_stop();
		_exit(ioport_inb(IOPORT_POST) || cli_sti_here(false, 0, 0));
	}
	ASSERT_EQ(pid, ioport_wait(pid, &status));
	ASSERT_TRUE(WIFSTOPPED(status));

	/* Bits that cannot be changed are ignored. */
	eflags = ptrace(PTRACE_PEEKUSER, pid, offset, NULL);
	ASSERT_EQ(0, ptrace(PTRACE_POKEUSER, pid, offset,
			    eflags | X86_EFLAGS_IOPL));
	eflags = ptrace(PTRACE_PEEKUSER, pid, offset, NULL);
	EXPECT_FALSE(!!(eflags & X86_EFLAGS_IOPL));

	ASSERT_EQ(0, ptrace(PTRACE_DETACH, pid, NULL, NULL));
	ASSERT_EQ(pid, ioport_wait(pid, &status));
	EXPECT_EQ(0, status);
}

static long toggle_here(long times, long unused1, long unused2)
{
	while (times--) {
		if (ioperm(0x90, 1, times % 2))
			return -errno;
	}
	return 0;
}

/* After 65536 changes of one bitmap, another one is not taken for it. */
TEST_F_TIMEOUT(tasks, many_changes, TIMEOUT)
{
	struct task *a = START(NULL, PROCESS), *b = START(NULL, PROCESS);
	int i;

	CHANGE(a, LOW);
	CHANGE(b, MID);
	ASSERT_EQ(0, CALL(a, toggle_here, 65536 - 100));
	for (i = 0; i < 200; i++) {
		ASSERT_EQ(0, CALL(a, toggle_here, 1 + i % 2));
		ASSERT_EQ(0, CALL(b, check_here, MID, i));
	}
	EXPECT_PORTS();
}

#define FPU_VALUE	0x5a5a5a5a

/* Keep a value in a register of the FPU, or write another one, for a while */
static __attribute__((target("sse2"))) long use_fpu_here(long keep, long loops,
							 long unused)
{
	const uint32_t wanted = keep ? FPU_VALUE : 0;
	uint32_t value = wanted;
	int rounds = 60;
	long left;

	while (rounds-- && value == wanted) {
		left = loops;
		asm volatile ("movd %0, %%xmm5\n\t"
			      "1: dec %1\n\t"
			      "jnz 1b\n\t"
			      "movd %%xmm5, %0"
			      : "+r" (value), "+r" (left) : : "xmm5", "cc");
	}
	return value != wanted;
}

/* A return to user mode that loads the ports restores the FPU, too. */
TEST_F_TIMEOUT(tasks, fpu_survives, TIMEOUT)
{
	struct task *t[2];
	int i;

	if (!__builtin_cpu_supports("sse2"))
		SKIP(return, "no SSE2");
	for (i = 0; i < 2; i++) {
		t[i] = START(NULL, PROCESS);
		CHANGE(t[i], i ? LOW : MID);
	}
	for (i = 0; i < 2; i++)
		ask(t[i], use_fpu_here, i, 3000000, 0);
	for (i = 0; i < 2; i++)
		EXPECT_EQ(0, await_answer(t[i]));
}

TEST_F_TIMEOUT(tasks, migrate_after_change, TIMEOUT)
{
	static const long masks[] = {
		ALL, MID | HIGH, MID, 0, LOW | NEXT, IOPL, IOPL | LOW, LOW, 0,
		IOPL, 0, HIGH, ALL,
	};
	struct task *t, *never_asked;
	unsigned int i, j;

	if (nr_cpus < 2)
		SKIP(return, "only one CPU");

	t = START(NULL, PROCESS);
	never_asked = START(NULL, PROCESS);
	ASSERT_EQ(0, CALL(never_asked, move_here, cpus[1]));

	/* What each CPU saw last is older than what the task has now. */
	for (i = 0; i < ARRAY_SIZE(masks); i++) {
		CHANGE(t, masks[i]);
		for (j = 0; j < 2; j++) {
			ASSERT_EQ(0, CALL(t, move_here, cpus[(i + j) % 2]));
			EXPECT_PORTS();
		}
	}
}

/* Change from @mask to @other and back. */
static long keep_changing_here(long mask, long other, long unused)
{
	long ret = change_here(mask, 0, 0);
	int i;

	for (i = 0; i < 50 && !ret; i++) {
		ret = change_here(other, mask, i) ?:
		      change_here(mask, other, i);
		sched_yield();
	}
	return ret;
}

TEST_F_TIMEOUT(tasks, migrate_while_changing, TIMEOUT)
{
	/* The first two never ask for ports, one on each CPU. */
	static const long masks[][2] = {
		{ 0, 0 }, { 0, 0 },
		{ LOW | HIGH, HIGH }, { MID | NEXT, 0 }, { IOPL, BELOW },
	};
	struct task *t[ARRAY_SIZE(masks)];
	int i, moves, nr = ARRAY_SIZE(masks);

	if (nr_cpus < 2)
		SKIP(return, "only one CPU");

	for (i = 0; i < nr; i++) {
		t[i] = START(NULL, PROCESS);
		ASSERT_EQ(0, CALL(t[i], move_here, cpus[i % 2]));
	}
	for (i = 0; i < nr; i++)
		ask(t[i], keep_changing_here, masks[i][0], masks[i][1], 0);

	for (i = 0; i < nr; i++) {
		for (moves = 0; !is_done(t[i]); moves++) {
			ASSERT_EQ(0, ioport_pin(t[2 + moves % 3]->tid,
						cpus[moves / 3 % 2]));
			usleep(100);
		}
		EXPECT_EQ(0, await_answer(t[i]))
			TH_LOG("task %d: port 0x%lx", i, t[i]->ret);
	}
}

TEST_F_TIMEOUT(tasks, cpu_offline_online, TIMEOUT)
{
	struct task *t, *other, *never_asked;
	int pass, ret;

	if (nr_cpus < 2)
		SKIP(return, "only one CPU");
	t = START(NULL, PROCESS);
	other = START(NULL, PROCESS);
	never_asked = START(NULL, PROCESS);
	CHANGE(other, MID | NEXT);
	CHANGE(t, LOW | HIGH);
	ASSERT_EQ(0, CALL(other, move_here, cpus[1]));
	EXPECT_PORTS();
	snprintf(self->cpu, sizeof(self->cpu), "/sys/devices/system/cpu/cpu%d",
		 cpus[1]);

	/*
	 * The last bitmap in the TSS of that CPU is the one of t. When the CPU
	 * is back, that comes first, and the next time another one.
	 */
	for (pass = 0; pass < 2; pass++) {
		ASSERT_EQ(0, CALL(other, move_here, cpus[0]));
		ASSERT_EQ(0, CALL(never_asked, move_here, cpus[0]));
		ASSERT_EQ(0, CALL(t, move_here, cpus[1]));
		EXPECT_PORTS();

		ret = write_file(self->cpu, "online", "0");
		if (ret)
			SKIP(return, "CPU %d cannot be taken offline: %s",
			     cpus[1], strerror(-ret));
		EXPECT_PORTS();
		ASSERT_EQ(0, CALL(t, move_here, cpus[0]));
		ASSERT_EQ(0, write_file(self->cpu, "online", "1"));

		if (!pass) {
			ASSERT_EQ(0, CALL(t, move_here, cpus[1]));
			EXPECT_PORTS();
		}
		ASSERT_EQ(0, CALL(other, move_here, cpus[1]));
		EXPECT_PORTS();
		ASSERT_EQ(0, CALL(never_asked, move_here, cpus[1]));
		EXPECT_PORTS();
	}
}

/*
 * The console driver hands out the ports of a VGA card. They are looked for in
 * the bitmap, but not touched.
 */

#define VT_FIRST		0x3b4
#define VT_LAST			0x3df
#define VT_NR			(VT_LAST + 1 - VT_FIRST)

static long vt_here(long fd, long request, long arg)
{
	return ioctl(fd, request, arg) ? -errno : 0;
}

TEST_F_TIMEOUT(tasks, console_ports, TIMEOUT)
{
	static const long outside[] = {
		0x80, VT_FIRST - 1, VT_LAST + 1, 65536 + VT_FIRST,
		LONG_MIN + VT_FIRST, -1,
	};
	static const struct {
		long		request, arg;
		unsigned int	from, num;
		bool		on;
	} steps[] = {
		{ KDADDIO, VT_FIRST, VT_FIRST, 1, true },
		{ KDADDIO, VT_LAST, VT_LAST, 1, true },
		{ KDENABIO, 0, VT_FIRST, VT_NR, true },
		{ KDDELIO, VT_FIRST, VT_FIRST, 1, false },
		{ KDDISABIO, 0, VT_FIRST, VT_NR, false },
	};
	struct ioport_map map;
	struct task *t;
	unsigned int i;
	char type;
	int fd;

	fd = open("/dev/tty0", O_RDWR | O_NOCTTY | O_CLOEXEC);
	if (fd < 0 || ioctl(fd, KDGKBTYPE, &type))
		SKIP(return, "no virtual terminal: %s", strerror(errno));
	t = START(NULL, PROCESS);
	ioport_clear_all(&map);

	for (i = 0; i < ARRAY_SIZE(outside); i++) {
		EXPECT_EQ(-EINVAL, CALL(t, vt_here, fd, KDADDIO, outside[i]));
		EXPECT_EQ(-EINVAL, CALL(t, vt_here, fd, KDDELIO, outside[i]));
	}
	expect_map(_metadata, t, &map, __LINE__);

	/* These are not given back with the others. */
	ASSERT_EQ(0, CALL(t, ioperm_here, VT_FIRST - 1, 1, 1));
	ASSERT_EQ(0, CALL(t, ioperm_here, VT_LAST + 1, 1, 1));
	ioport_set(&map, VT_FIRST - 1, 1, true);
	ioport_set(&map, VT_LAST + 1, 1, true);
	for (i = 0; i < ARRAY_SIZE(steps); i++) {
		EXPECT_EQ(0, CALL(t, vt_here, fd, steps[i].request, steps[i].arg));
		ioport_set(&map, steps[i].from, steps[i].num, steps[i].on);
		expect_map(_metadata, t, &map, __LINE__);
	}

	/* As with ioperm(), everybody may give them back. */
	EXPECT_EQ(0, CALL(t, vt_here, fd, KDENABIO));
	ASSERT_EQ(0, CALL(t, become_here, NOBODY));
	EXPECT_EQ(0, CALL(t, vt_here, fd, KDDISABIO));
	EXPECT_EQ(-ENXIO, CALL(t, vt_here, fd, KDENABIO));
	EXPECT_EQ(-ENXIO, CALL(t, vt_here, fd, KDADDIO, VT_FIRST));
	expect_map(_metadata, t, &map, __LINE__);
}

/* memory: bitmaps are charged to the cgroup of the task that allocates them */

#define CGROUPS			"/sys/fs/cgroup"

FIXTURE(memory) {
	char	cgroup[64];
};

FIXTURE_SETUP(memory)
{
	if (!setup(_metadata))
		return;
	if (!strstr(read_file(CGROUPS, "cgroup.controllers"), "memory"))
		SKIP(return, "no cgroup2 with a memory controller in " CGROUPS);
	if (strstr(read_file("/proc", "cmdline"), "nokmem"))
		SKIP(return, "cgroup.memory=nokmem: only user memory is charged");
	/* It is on where systemd runs, and stays on otherwise. */
	if (write_file(CGROUPS, "cgroup.subtree_control", "+memory"))
		SKIP(return, "the memory controller cannot be enabled");
	snprintf(self->cgroup, sizeof(self->cgroup),
		 CGROUPS "/ioperm_security.%d", ioport_parent);
	if (mkdir(self->cgroup, 0700))
		SKIP(return, "no new cgroup: %s", strerror(errno));
}

FIXTURE_TEARDOWN_PARENT(memory)
{
	write_file(self->cgroup, "cgroup.kill", "1");
	while (rmdir(self->cgroup) && errno == EBUSY)
		usleep(1000);
}

/* Charged to the cgroup is what the task allocates from now on. */
static long enter_cgroup_here(long dir, long unused1, long unused2)
{
	return write_file((const char *)dir, "cgroup.procs", "0");
}

static long charged(const char *dir)
{
	return atol(read_file(dir, "memory.current"));
}

/*
 * The copy of a shared bitmap, and the first one of a task. Both have 8 KB, and
 * none of the ports is touched. A CPU charges up to 256 KB in advance, and all
 * tasks are on one.
 */
static void expect_charged(struct __test_metadata *_metadata, const char *cgroup,
			   bool copy)
{
	struct task *p = START(NULL, PROCESS), *t[NR_COPIES];
	long before, grown;
	int i;

	if (copy) {
		ASSERT_EQ(0, CALL(p, ioperm_here, 0, 2, 1));
		ASSERT_EQ(0, CALL(p, ioperm_here, IOPORT_NR - 1, 1, 1));
	}
	ASSERT_EQ(0, CALL(p, enter_cgroup_here, (long)cgroup));
	for (i = 0; i < NR_COPIES; i++) {
		t[i] = START(p, PROCESS);
		/* What else it takes to call it */
		ASSERT_EQ(-EINVAL, CALL(t[i], ioperm_here, 0, 0, 0));
	}

	before = charged(cgroup);
	for (i = 0; i < NR_COPIES; i++)
		ASSERT_EQ(0, copy ? CALL(t[i], ioperm_here, 1, 1, 0) :
				    CALL(t[i], ioperm_here, 0, IOPORT_NR, 1));
	grown = charged(cgroup) - before;
	EXPECT_GE(grown, NR_COPIES * 8192)
		TH_LOG("%ld bytes for %d bitmaps", grown, NR_COPIES);
}

TEST_F_TIMEOUT(memory, copy_is_charged, TIMEOUT)
{
	expect_charged(_metadata, self->cgroup, true);
}

TEST_F_TIMEOUT(memory, first_is_charged, TIMEOUT)
{
	expect_charged(_metadata, self->cgroup, false);
}

/* It needs no more memory later on, and is not killed for want of it. */
static long settle_here(long unused1, long unused2, long unused3)
{
	if (mlockall(MCL_CURRENT))
		return -errno;
	return write_file("/proc/self", "oom_score_adj", "-1000");
}

/* The OOM killer finds no task to kill: expect a call trace in the log. */
TEST_F_TIMEOUT(memory, limit_refuses_copy, TIMEOUT)
{
	struct task *p, *t;
	long ret;

	if (atol(read_file("/proc/sys/vm", "panic_on_oom")) == 2)
		SKIP(return, "vm.panic_on_oom=2: a limit would be a panic");

	p = START(NULL, PROCESS);
	CHANGE(p, LOW | MID | HIGH);
	t = START(p, PROCESS);
	ret = CALL(t, settle_here);
	if (ret)
		SKIP(return, "no task that the OOM killer spares: %s",
		     strerror(-ret));
	ASSERT_EQ(0, CALL(t, enter_cgroup_here, (long)self->cgroup));
	ASSERT_EQ(0, CALL(t, become_here, NOBODY));
	EXPECT_PORTS();

	/* That takes back what the CPU has charged in advance. */
	ASSERT_EQ(0, write_file(self->cgroup, "memory.max", "0"));
	EXPECT_EQ(-ENOMEM, CALL(t, ioperm_here, pool[1], 1, 0));
	EXPECT_PORTS();

	ASSERT_EQ(0, write_file(self->cgroup, "memory.max", "max"));
	CHANGE(t, LOW | HIGH);
}

/* What happens to a bitmap between its first port and its last one */
enum use { ALONE, GROWS, CHILD_ENDS, CHILD_CHANGES, FORK_FAILS, NR_USES };

#define LEAK_ROUNDS		150
#define LEAK_BYTES		(LEAK_ROUNDS * 8192 / 2)

static long leak_here(long use, long unused1, long unused2)
{
	int i, status;
	pid_t pid;

	for (i = 0; i < LEAK_ROUNDS; i++) {
		/* The bitmap has 8 KB. None of these ports is touched. */
		if (use == GROWS && ioperm(0x1000, 0xf000, 1))
			return -errno;
		if (ioperm(0, use == GROWS ? 1 : IOPORT_NR, 1))
			return -errno;
		if (use == FORK_FAILS)
			failed_fork_here(0, 0, 0);
		if (use == CHILD_ENDS || use == CHILD_CHANGES) {
			pid = ioport_fork();
			if (!pid)
				_exit(use == CHILD_CHANGES &&
				      ioperm(0x1000, 1, 0));
			if (ioport_wait(pid, &status) != pid || status)
				return -ECHILD;
		}
		if (ioperm(0, IOPORT_NR, 0))
			return -errno;
	}
	return 0;
}

/* copy_is_charged shows that bitmaps can be seen in what is charged. */
TEST_F_TIMEOUT(memory, nothing_leaks, TIMEOUT)
{
	struct task *t = START(NULL, PROCESS);
	long before, grown;
	int use, i;

	ASSERT_EQ(0, CALL(t, enter_cgroup_here, (long)self->cgroup));
	for (use = ALONE; use < NR_USES; use++) {
		before = charged(self->cgroup);
		ASSERT_EQ(0, CALL(t, leak_here, use));
		grown = charged(self->cgroup) - before;
		/* Tasks that have ended are freed a grace period later. */
		for (i = 0; i < 50 && grown > LEAK_BYTES; i++) {
			usleep(100000);
			grown = charged(self->cgroup) - before;
		}
		EXPECT_LE(grown, LEAK_BYTES)
			TH_LOG("%ld bytes more after %d rounds of use %d",
			       grown, LEAK_ROUNDS, use);
	}
}

int main(int argc, char **argv)
{
	ioport_init();
	if (argc == 3 && !strcmp(argv[1], "--after-exec"))
		return after_exec(argv[2]);
	if (argc > 1 && !strcmp(argv[1], "--lock-down")) {
		may_lock_down = true;
		argv[1] = argv[0];
		argc--;
		argv++;
	}
	return test_harness_run(argc, argv);
}
