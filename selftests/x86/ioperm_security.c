// SPDX-License-Identifier: GPL-2.0
/*
 * ioperm_security.c - who may use I/O ports, and when
 *
 * A task may use the ports that it, or whoever it inherited from, was given by
 * ioperm() or iopl(), and no others, on whatever CPU and after whatever other
 * task it runs. The I/O bitmap that the CPU looks at is per CPU and is changed
 * as late and as little as possible, so that there is a lot to be forgotten.
 * The tests here look for ports that a task has and was not given, or was
 * given and does not have:
 *
 *  handover	Tasks with different ports take turns on one CPU: futexes,
 *		pipes and sched_yield() lead from one directly to the next.
 *		What is left of the last bitmap must be gone, be it below,
 *		above or in the same line as what the next task may use.
 *  kin		Parents, children and threads share a bitmap until one of them
 *		changes it. That is effective for the caller at once, and for
 *		nobody else.
 *  failing	A fork that fails leaves the caller what it had.
 *  tasks	Everything else: inheritance, exec, privileges, iopl levels,
 *		the migration between CPUs and CPUs that go away.
 *  memory	A bitmap of one's own is charged to the memory cgroup, whose
 *		limit also holds for those who only give ports back.
 *
 * What is expected is what ioperm(2) and iopl(2) document: both are inherited
 * by children and kept over exec, also by those without privileges, and ports
 * can always be given back.
 *
 * Two things are looked at: ports are read in the task itself, which shows
 * what the CPU does, and a tracer compares all of its bitmap, which shows what
 * the kernel believes.
 *
 * The window while ports are being dropped has a test of its own,
 * ioperm_drop_race.c, and so has the view of tracers, ioport_regset.c.
 *
 * Ports: those which are enabled and touched are 0x80 and a few that nothing
 * in /proc/ioports claims. iopl(3) and KDENABIO enable others, none of which
 * is touched. All others are only tried when they have to be denied, and a
 * denied access never reaches the device. Nothing is ever written to a port.
 *
 * A CPU that is taken offline is brought back, and a cgroup removed, by a
 * process of its own also when the test is killed.
 */
#define _GNU_SOURCE
#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <grp.h>
#include <limits.h>
#include <linux/audit.h>
#include <linux/filter.h>
#include <linux/futex.h>
#include <linux/kd.h>
#include <linux/sched.h>
#include <linux/seccomp.h>
#include <mntent.h>
#include <sched.h>
#include <signal.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/ioctl.h>
#include <sys/io.h>
#include <sys/mman.h>
#include <sys/mount.h>
#include <sys/prctl.h>
#include <sys/ptrace.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <sys/user.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#include "kselftest_harness.h"
#include "ioport_helper.h"

/* Where nothing else is said to belong to this user */
#define NOBODY			65534

#define NR_LINES		(IOPORT_NR / IOPORT_LINE)
#define TURN_LINES		8
#define CHECK_LINES		32
#define TURNS			36
#define NR_COPIES		64
#define NR_TASKS		(NR_COPIES + 1)
#define MAX_RING		3
#define STACK_SIZE		65536
#define MIGRATE_NSEC		1500000000ULL
#define MIN_ROUNDS		4
#define NSEC_PER_SEC		1000000000ULL

/* What the console driver offers, the ports of a VGA card */
#define VT_FIRST		0x3b4
#define VT_LAST			0x3df

#ifdef __x86_64__
#define SYS_FUTEX		SYS_futex
#define AUDIT_ARCH_SELF		AUDIT_ARCH_X86_64
#else
/* The other one needs COMPAT_32BIT_TIME */
#define SYS_FUTEX		SYS_futex_time64
#define AUDIT_ARCH_SELF		AUDIT_ARCH_I386
#endif

#define EFLAGS_OFFSET		offsetof(struct user_regs_struct, eflags)

#define load(x)			__atomic_load_n(&(x), __ATOMIC_ACQUIRE)
#define store(x, v)		__atomic_store_n(&(x), v, __ATOMIC_RELEASE)

/*
 * Ports
 */

/* The ports that may be used in here. A set of them is a mask. */
enum {
	LOW	= 1 << 0,	/* 0x80 */
	MID	= 1 << 1,	/* Somewhere below the middle */
	BELOW	= 1 << 2,	/* In a line of its own, below HIGH */
	HIGH	= 1 << 3,	/* Close to the end of the port space */
	NEXT	= 1 << 4,	/* In the same byte as HIGH */
	ALL	= (1 << 5) - 1,
	/* All ports, by iopl(3) */
	IOPL	= 1 << 5,
	/* Not a port: the TSC may not be read. For handover only */
	NO_TSC	= 1 << 6,
};

#define NR_POOL			5

static unsigned int pool[NR_POOL];

static bool find_pool(void)
{
	int mid, below, high;

	high = ioport_find(2, 8, 2, IOPORT_NR);
	if (high < 0)
		return false;
	below = ioport_find(1, 1, 0, high / IOPORT_LINE * IOPORT_LINE);
	mid = ioport_find(1, 1, 0, IOPORT_NR / 2);
	if (below < 0 || mid < 0 || below == mid)
		return false;

	pool[0] = IOPORT_POST;
	pool[1] = mid;
	pool[2] = below;
	pool[3] = high;
	pool[4] = high + 1;
	return true;
}

static bool in_pool(unsigned int port)
{
	int i;

	for (i = 0; i < NR_POOL; i++) {
		if (port == pool[i])
			return true;
	}
	return false;
}

static void mask_to_map(long mask, struct ioport_map *map)
{
	int i;

	ioport_clear_all(map);
	for (i = 0; i < NR_POOL; i++)
		ioport_set(map, pool[i], 1, mask & (1 << i));
}

#define WRONG(port, open)	(1L << 17 | (open) << 16 | (port))
#define WRONG_PORT(ret)		((ret) & 0xffff)
#define WRONG_OPEN(ret)		((ret) & (1L << 16))

/* What the functions named *_here do is done in the task that calls them. */

/*
 * Are the ports in @mask allowed and others denied? Besides the pool that are
 * its neighbours in the bitmap and one port in each of @lines lines: all that
 * takes too long, so that each @turn tries other ones. Returns 0 or WRONG().
 */
static long check_here(long mask, long lines, long turn)
{
	static const int distance[] = { 1, 8, 32, 64, IOPORT_LINE };
	unsigned int port, line;
	bool open;
	int i, j;

	for (i = 0; i < NR_POOL; i++) {
		open = ioport_inb(pool[i]);
		if (open != !!(mask & (IOPL | 1 << i)))
			return WRONG(pool[i], open);
	}

	/* Others may be open and must not be touched. */
	if (mask & IOPL)
		return 0;

	for (i = 0; i < NR_POOL; i++) {
		for (j = -1; j <= 1; j += 2) {
			port = pool[i] + j * distance[turn % ARRAY_SIZE(distance)];
			if (port >= IOPORT_NR || in_pool(port))
				continue;
			if (ioport_inb(port))
				return WRONG(port, true);
		}
	}

	for (i = 0; i < lines; i++) {
		line = (turn * lines + i) % NR_LINES;
		port = line * IOPORT_LINE + (turn + line * 37) % IOPORT_LINE;
		if (!in_pool(port) && ioport_inb(port))
			return WRONG(port, true);
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

/* Have the ports in @mask and no others. Grant first or revoke first. */
static long set_here(long mask, long revoke_first, long unused)
{
	int pass, i, on;
	long ret;

	ret = iopl_here(mask & IOPL ? 3 : 0, 0, 0);
	for (pass = 0; pass < 2; pass++) {
		on = pass == revoke_first;
		for (i = 0; i < NR_POOL && !ret; i++) {
			if (!!(mask & (1 << i)) == on)
				ret = ioperm_here(pool[i], 1, on);
		}
	}
	return ret;
}

static int write_file(const char *path, const char *text)
{
	int fd = open(path, O_WRONLY | O_CLOEXEC);
	int ret = 0;

	if (fd < 0)
		return -errno;
	if (write(fd, text, strlen(text)) < 0)
		ret = -errno;
	close(fd);
	return ret;
}

static int pin_to(pid_t tid, int cpu)
{
	cpu_set_t set;

	CPU_ZERO(&set);
	CPU_SET(cpu, &set);
	return sched_setaffinity(tid, sizeof(set), &set);
}

static long move_here(long cpu, long unused1, long unused2)
{
	return pin_to(0, cpu) ? -errno : 0;
}

static int set_caps(uint32_t caps)
{
	struct __user_cap_header_struct head = {
		.version = _LINUX_CAPABILITY_VERSION_3,
	};
	struct __user_cap_data_struct data[_LINUX_CAPABILITY_U32S_3] = {
		{ .effective = caps, .permitted = caps },
	};

	return syscall(SYS_capset, &head, data);
}

/* Only for processes. Root that is not NOBODY keeps what @caps says. */
static long become_here(long uid, long caps, long unused)
{
	if (geteuid() == 0 &&
	    (prctl(PR_SET_KEEPCAPS, 1) || setgroups(0, NULL) ||
	     setresgid(uid, uid, uid) || setresuid(uid, uid, uid)))
		return -errno;
	if (set_caps(caps))
		return -errno;
	/* A change of the credentials resets it. */
	ioport_bind_to_parent();
	return 0;
}

/*
 * Tasks that do what they are told
 */

enum kind {
	BY_FORK,
	/* Lives on when its parent ends */
	BY_FORK_ORPHAN,
	BY_THREAD,
	BY_CLONE_VM,
};

struct task {
	/* Counters, and futexes */
	uint32_t	asked;
	uint32_t	answered;
	long		(*fn)(long a, long b, long c);
	long		arg[3];
	long		ret;
	enum kind	kind;
	pid_t		tid;
	/* A thread that ends clears it. */
	uint32_t	running;
	/* Who started it, NULL if that was the test itself */
	struct task	*parent;
};

static struct shared {
	struct task	task[NR_TASKS];
	int		nr_tasks;

	/* Of handover */
	uint32_t	turn;
	char		wrong[64];
	int		wrong_member;
	uint32_t	wrong_turn;

	/* Of migration */
	uint32_t	stop;
	uint32_t	rounds[NR_TASKS];
} *shm;

static pid_t test_pid;

static int cpus[CPU_SETSIZE];
static int nr_cpus;

static void futex_wait(uint32_t *futex, uint32_t val)
{
	syscall(SYS_FUTEX, futex, FUTEX_WAIT, val, NULL, NULL, 0);
}

static void futex_wake(uint32_t *futex)
{
	syscall(SYS_FUTEX, futex, FUTEX_WAKE, INT_MAX, NULL, NULL, 0);
}

static void answer(struct task *t)
{
	store(t->answered, t->asked);
	futex_wake(&t->answered);
}

static void await_answer(struct task *t)
{
	uint32_t val;

	while ((val = load(t->answered)) != t->asked)
		futex_wait(&t->answered, val);
}

static void task_loop(struct task *t)
{
	t->tid = syscall(SYS_gettid);
	for (;;) {
		answer(t);
		while (load(t->asked) == t->answered)
			futex_wait(&t->asked, t->answered);
		if (!t->fn)
			return;
		t->ret = t->fn(t->arg[0], t->arg[1], t->arg[2]);
	}
}

/*
 * Threads are not made by the C library either: in 32 bit programs it waits
 * for them by a system call which needs COMPAT_32BIT_TIME.
 */
static int clone_main(void *t)
{
	prctl(PR_SET_PDEATHSIG, SIGKILL);
	task_loop(t);
	return 0;
}

/* The parent has ended: from now on the test is the parent, or has ended too. */
static void on_orphaned(int sig, siginfo_t *si, void *ctx)
{
	prctl(PR_SET_PDEATHSIG, SIGKILL);
	if (getppid() != test_pid)
		_exit(KSFT_FAIL);
}

static long start_here(long nr, long kind, long unused)
{
	struct task *t = &shm->task[nr];
	int flags = SIGCHLD;
	char *stack;
	pid_t pid;

	/* The first answer says that it is there. */
	t->asked = 1;
	t->answered = 0;
	t->kind = kind;

	switch (kind) {
	case BY_THREAD:
	case BY_CLONE_VM:
		stack = malloc(STACK_SIZE);
		if (!stack)
			return -ENOMEM;
		if (kind == BY_THREAD)
			flags = CLONE_SIGHAND | CLONE_THREAD | CLONE_SYSVSEM |
				CLONE_CHILD_CLEARTID;
		t->running = 1;
		pid = clone(clone_main, stack + STACK_SIZE,
			    CLONE_VM | CLONE_FS | CLONE_FILES | flags, t, NULL,
			    NULL, &t->running);
		if (pid < 0)
			return -errno;
		break;
	default:
		sethandler(SIGUSR1, on_orphaned, SA_RESTART);
		ioport_bind_children = kind != BY_FORK_ORPHAN;
		pid = fork();
		if (pid < 0)
			return -errno;
		if (pid)
			break;
		if (!ioport_bind_children) {
			prctl(PR_SET_PDEATHSIG, SIGUSR1);
			if (getppid() != ioport_parent)
				on_orphaned(0, NULL, NULL);
			ioport_bind_children = true;
		}
		task_loop(t);
		_exit(KSFT_PASS);
	}
	ioport_bind_children = true;
	await_answer(t);
	return 0;
}

static long join_here(long nr, long unused1, long unused2)
{
	struct task *t = &shm->task[nr];
	int status;

	if (t->kind == BY_THREAD) {
		while (load(t->running))
			futex_wait(&t->running, 1);
		return 0;
	}
	if (waitpid(t->tid, &status, __WALL) != t->tid)
		return -errno;
	return status;
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

/* Call a function in a task and wait for its result. NULL is the test itself. */
static long call(struct task *t, long (*fn)(long, long, long), long a, long b,
		 long c)
{
	if (!t)
		return fn(a, b, c);
	ask(t, fn, a, b, c);
	await_answer(t);
	return t->ret;
}

#define CALL(t, fn, ...)	CALL_(t, fn, ##__VA_ARGS__, 0, 0, 0)
#define CALL_(t, fn, a, b, c, ...) call(t, fn, a, b, c)

static struct task *start_task(struct __test_metadata *_metadata,
			       struct task *parent, enum kind kind)
{
	int nr = shm->nr_tasks++;

	ASSERT_LT(nr, NR_TASKS);
	ASSERT_EQ(0, CALL(parent, start_here, nr, kind));
	shm->task[nr].parent = parent;
	return &shm->task[nr];
}

static void end_task(struct __test_metadata *_metadata, struct task *t)
{
	int i;

	ask(t, NULL, 0, 0, 0);
	EXPECT_EQ(0, CALL(t->parent, join_here, t - shm->task));
	for (i = 0; i < shm->nr_tasks; i++) {
		if (shm->task[i].parent == t)
			shm->task[i].parent = NULL;
	}
}

#define START(parent, kind)	start_task(_metadata, parent, kind)
#define END(t)			end_task(_metadata, t)

/* Stop a task, or a thread of it, and have a look at its bitmap. */
static int view_of(pid_t tid, struct ioport_map *map)
{
	int ret, status;

	if (ptrace(PTRACE_SEIZE, tid, NULL, NULL))
		return -errno;
	if (ptrace(PTRACE_INTERRUPT, tid, NULL, NULL) ||
	    waitpid(tid, &status, __WALL) != tid || !WIFSTOPPED(status))
		return -ECHILD;
	ret = ioport_view(tid, map);
	ptrace(PTRACE_DETACH, tid, NULL, NULL);
	return ret;
}

static void expect_view(struct __test_metadata *_metadata, struct task *t,
			const struct ioport_map *map, bool any, int line)
{
	struct ioport_map seen;
	unsigned int port;
	int ret;

	ret = t ? view_of(t->tid, &seen) : ioport_view_self(&seen);
	EXPECT_EQ(any ? 0 : -ENXIO, ret)
		TH_LOG("line %d: the bitmap of the task", line);
	if (!memcmp(&seen, map, sizeof(seen)))
		return;

	for (port = 0; ioport_allows(&seen, port, 1) ==
		       ioport_allows(map, port, 1); port++)
		;
	EXPECT_TRUE(false)
		TH_LOG("line %d: port 0x%x is %s in the bitmap", line, port,
		       ioport_allows(&seen, port, 1) ? "enabled" : "disabled");
}

static void expect_ports(struct __test_metadata *_metadata, struct task *t,
			 long mask, int line)
{
	struct ioport_map map;
	long wrong;

	wrong = CALL(t, check_here, mask, CHECK_LINES, line);
	EXPECT_EQ(0, wrong)
		TH_LOG("line %d: inb from port 0x%lx %s", line,
		       WRONG_PORT(wrong), WRONG_OPEN(wrong) ? "worked" :
		       "faulted");

	mask_to_map(mask, &map);
	expect_view(_metadata, t, &map, mask & ALL, line);
}

/* The task has exactly the ports in the mask. */
#define EXPECT_PORTS(mask, t)	expect_ports(_metadata, t, mask, __LINE__)

/* What is the same for all tests of tasks */
static void setup(struct __test_metadata *_metadata)
{
	const char *reason = ioport_skip_reason();
	cpu_set_t allowed;
	int i;

	if (reason)
		SKIP(return, "%s", reason);
	if (!find_pool())
		SKIP(return, "no ports that nothing in /proc/ioports claims");

	shm = mmap(NULL, sizeof(*shm), PROT_READ | PROT_WRITE,
		   MAP_SHARED | MAP_ANONYMOUS, -1, 0);
	ASSERT_TRUE(shm != MAP_FAILED);

	/* Whoever started this may have had ports, they are inherited. */
	ASSERT_EQ(0, ioperm(0, IOPORT_NR, 0));
	ASSERT_EQ(0, iopl(0));

	test_pid = getpid();
	ASSERT_EQ(0, prctl(PR_SET_CHILD_SUBREAPER, 1));

	ASSERT_EQ(0, sched_getaffinity(0, sizeof(allowed), &allowed));
	for (i = 0; i < CPU_SETSIZE; i++) {
		if (CPU_ISSET(i, &allowed))
			cpus[nr_cpus++] = i;
	}
	ASSERT_EQ(0, pin_to(0, cpus[0]));
}

static uint64_t now_ns(void)
{
	struct timespec ts;

	clock_gettime(CLOCK_MONOTONIC, &ts);
	return ts.tv_sec * NSEC_PER_SEC + ts.tv_nsec;
}

/*
 * handover: taking turns on one CPU
 */

enum handover {
	FUTEX,
	PIPE,
	YIELD,
};

/* What the test process had when it forked the tasks */
static long inherited;

/* The ports of a task, in turn. */
struct member {
	long		mask[3];
};

static int ring_pipe[MAX_RING][2];

static void await_turn(enum handover how, int me, uint32_t turn)
{
	uint32_t now;
	char byte;

	switch (how) {
	case FUTEX:
		while ((now = load(shm->turn)) != turn)
			futex_wait(&shm->turn, now);
		break;
	case PIPE:
		if (turn && read(ring_pipe[me][0], &byte, 1) != 1)
			_exit(KSFT_FAIL);
		break;
	case YIELD:
		while (load(shm->turn) != turn)
			sched_yield();
		break;
	}
}

static void pass_turn(enum handover how, int next, uint32_t turn)
{
	store(shm->turn, turn);
	if (how == FUTEX)
		futex_wake(&shm->turn);
	else if (how == PIPE && write(ring_pipe[next][1], "", 1) != 1)
		_exit(KSFT_FAIL);
}

static bool read_tsc(void)
{
	uint32_t low, high;
	bool denied;

	asm volatile ("clc\n\trdtsc"
		      : "=@ccc" (denied), "=a" (low), "=d" (high));
	return !denied;
}

static void expect_here(int me, uint32_t turn, long mask)
{
	long wrong = check_here(mask, TURN_LINES, turn);
	bool tsc = read_tsc();

	if (wrong)
		snprintf(shm->wrong, sizeof(shm->wrong), "inb from port 0x%lx %s",
			 WRONG_PORT(wrong),
			 WRONG_OPEN(wrong) ? "worked" : "faulted");
	else if (tsc == !!(mask & NO_TSC))
		snprintf(shm->wrong, sizeof(shm->wrong), "rdtsc %s",
			 tsc ? "worked" : "faulted");
	else
		return;
	shm->wrong_member = me;
	shm->wrong_turn = turn;
	_exit(KSFT_FAIL);
}

static int run_member(enum handover how, const struct member *member, int me,
		      int nr)
{
	bool never = !(member->mask[0] | member->mask[1] | member->mask[2]);
	long mask = inherited, next;
	uint32_t turn;

	if (never && become_here(NOBODY, 0, 0))
		return KSFT_FAIL;

	for (turn = me; turn < TURNS; turn += nr) {
		await_turn(how, me, turn);

		/* What the others did meanwhile does not matter. */
		expect_here(me, turn, mask);
		next = member->mask[turn / nr % 3];
		if (next != mask) {
			if (set_here(next, turn & 1, 0) ||
			    prctl(PR_SET_TSC, next & NO_TSC ? PR_TSC_SIGSEGV :
							      PR_TSC_ENABLE))
				return KSFT_FAIL;
			mask = next;
			expect_here(me, turn, mask);
		}

		pass_turn(how, (me + 1) % nr, turn + 1);
	}
	return KSFT_PASS;
}

static void run_ring(struct __test_metadata *_metadata, enum handover how,
		     const struct member *members, int nr)
{
	pid_t pids[MAX_RING];
	int i, status;

	for (i = 0; i < nr; i++)
		ASSERT_EQ(0, pipe(ring_pipe[i]));

	for (i = 0; i < nr; i++) {
		pids[i] = fork();
		ASSERT_GE(pids[i], 0);
		if (!pids[i])
			_exit(run_member(how, &members[i], i, nr));
	}

	/* The others cannot go on without the one that ended. */
	for (i = 0; i < nr; i++) {
		ASSERT_GT(waitpid(-1, &status, 0), 0);
		ASSERT_EQ(0, status) {
			TH_LOG("member %d, turn %u: %s", shm->wrong_member,
			       shm->wrong_turn, shm->wrong);
		}
	}
	EXPECT_EQ(TURNS, shm->turn);
}

#define RUN_RING(...)							\
do {									\
	const struct member members[] = { __VA_ARGS__ };		\
									\
	run_ring(_metadata, variant->how, members, ARRAY_SIZE(members)); \
} while (0)

#define ALWAYS(ports)		{ .mask = { [0 ... 2] = (ports) } }

FIXTURE(handover) {
};

FIXTURE_VARIANT(handover) {
	enum handover	how;
};

FIXTURE_VARIANT_ADD(handover, futex) { .how = FUTEX };
FIXTURE_VARIANT_ADD(handover, pipe) { .how = PIPE };
FIXTURE_VARIANT_ADD(handover, yield) { .how = YIELD };

FIXTURE_SETUP(handover)
{
	setup(_metadata);
}

FIXTURE_TEARDOWN(handover)
{
}

TEST_F(handover, never_asked)
{
	RUN_RING(ALWAYS(LOW | HIGH), ALWAYS(0));
}

TEST_F(handover, never_asked_iopl)
{
	RUN_RING(ALWAYS(IOPL), ALWAYS(0));
}

TEST_F(handover, never_asked_between_two)
{
	RUN_RING(ALWAYS(LOW | MID), ALWAYS(0), ALWAYS(MID | HIGH));
}

TEST_F(handover, low_and_high)
{
	RUN_RING(ALWAYS(LOW), ALWAYS(HIGH));
}

TEST_F(handover, below_and_high)
{
	RUN_RING(ALWAYS(BELOW), ALWAYS(HIGH));
}

TEST_F(handover, same_byte)
{
	RUN_RING(ALWAYS(HIGH), ALWAYS(NEXT));
}

TEST_F(handover, outside_and_inside)
{
	RUN_RING(ALWAYS(LOW | HIGH), ALWAYS(MID | BELOW));
}

TEST_F(handover, three_sets)
{
	RUN_RING(ALWAYS(LOW | BELOW), ALWAYS(MID), ALWAYS(HIGH | NEXT));
}

TEST_F(handover, many_and_few)
{
	RUN_RING(ALWAYS(ALL), ALWAYS(LOW), ALWAYS(BELOW));
}

TEST_F(handover, map_and_iopl)
{
	RUN_RING(ALWAYS(IOPL), ALWAYS(MID), ALWAYS(HIGH));
}

TEST_F(handover, free_and_regrant)
{
	RUN_RING({ { LOW | HIGH, 0, MID } }, { { HIGH, MID | LOW, 0 } });
}

TEST_F(handover, iopl_free_and_regrant)
{
	RUN_RING({ { IOPL, 0, LOW } }, { { HIGH, IOPL | MID, MID } },
		 ALWAYS(0));
}

/* The same bitmap, but not the same level: nothing passes from one to the other. */
TEST_F(handover, same_bitmap_and_iopl)
{
	inherited = LOW;
	ASSERT_EQ(0, set_here(inherited, 0, 0));
	RUN_RING(ALWAYS(LOW | IOPL), ALWAYS(LOW), ALWAYS(0));
}

/* What else there is to do at a switch must not be forgotten. */
TEST_F(handover, ports_and_no_tsc)
{
	RUN_RING(ALWAYS(LOW), ALWAYS(NO_TSC), ALWAYS(HIGH));
}

/*
 * kin: shared until changed
 */

FIXTURE(kin) {
};

FIXTURE_VARIANT(kin) {
	enum kind	kind;
};

FIXTURE_VARIANT_ADD(kin, fork) { .kind = BY_FORK };
FIXTURE_VARIANT_ADD(kin, thread) { .kind = BY_THREAD };
FIXTURE_VARIANT_ADD(kin, clone_vm) { .kind = BY_CLONE_VM };

FIXTURE_SETUP(kin)
{
	setup(_metadata);
}

FIXTURE_TEARDOWN(kin)
{
}

static void drop_is_own(struct __test_metadata *_metadata, enum kind kind,
			int cpu)
{
	struct task *p, *c;

	p = START(NULL, BY_FORK);
	ASSERT_EQ(0, CALL(p, set_here, LOW | HIGH));
	c = START(p, kind);
	ASSERT_EQ(0, CALL(c, move_here, cpu));
	EXPECT_PORTS(LOW | HIGH, p);
	EXPECT_PORTS(LOW | HIGH, c);

	EXPECT_EQ(0, CALL(p, ioperm_here, pool[0], 1, 0));
	EXPECT_PORTS(HIGH, p);
	EXPECT_PORTS(LOW | HIGH, c);

	EXPECT_EQ(0, CALL(c, ioperm_here, pool[3], 1, 0));
	EXPECT_PORTS(LOW, c);
	EXPECT_PORTS(HIGH, p);

	EXPECT_EQ(0, CALL(p, ioperm_here, pool[1], 1, 1));
	EXPECT_PORTS(HIGH | MID, p);
	EXPECT_PORTS(LOW, c);

	EXPECT_EQ(0, CALL(c, ioperm_here, 0, IOPORT_NR, 0));
	EXPECT_PORTS(0, c);
	EXPECT_PORTS(HIGH | MID, p);

	EXPECT_EQ(0, CALL(c, ioperm_here, pool[2], 1, 1));
	EXPECT_PORTS(BELOW, c);
	EXPECT_PORTS(HIGH | MID, p);

	EXPECT_EQ(0, CALL(p, ioperm_here, 0, IOPORT_NR, 0));
	EXPECT_PORTS(0, p);
	EXPECT_PORTS(BELOW, c);

	END(c);
	EXPECT_PORTS(0, p);
	END(p);
}

TEST_F(kin, drop_is_own)
{
	drop_is_own(_metadata, variant->kind, cpus[0]);
}

TEST_F(kin, drop_is_own_on_two_cpus)
{
	if (nr_cpus < 2)
		SKIP(return, "only one CPU");
	drop_is_own(_metadata, variant->kind, cpus[1]);
}

/* The last port of a shared bitmap: nothing is copied then. */
TEST_F(kin, last_drop_is_own)
{
	struct task *p, *c;

	p = START(NULL, BY_FORK);
	ASSERT_EQ(0, CALL(p, set_here, HIGH));
	c = START(p, variant->kind);
	EXPECT_EQ(0, CALL(c, ioperm_here, pool[3], 1, 0));
	EXPECT_PORTS(0, c);
	EXPECT_PORTS(HIGH, p);

	EXPECT_EQ(0, CALL(c, ioperm_here, pool[0], 1, 1));
	EXPECT_PORTS(LOW, c);
	EXPECT_PORTS(HIGH, p);
	END(c);

	c = START(p, variant->kind);
	EXPECT_EQ(0, CALL(p, ioperm_here, pool[3], 1, 0));
	EXPECT_PORTS(0, p);
	EXPECT_PORTS(HIGH, c);
	END(c);
	END(p);
}

/* Also a grant that adds to a shared bitmap is for the caller only. */
TEST_F(kin, grant_is_own)
{
	struct task *p, *c;

	p = START(NULL, BY_FORK);
	ASSERT_EQ(0, CALL(p, set_here, HIGH));
	c = START(p, variant->kind);
	EXPECT_EQ(0, CALL(c, ioperm_here, pool[4], 1, 1));
	EXPECT_PORTS(HIGH | NEXT, c);
	EXPECT_PORTS(HIGH, p);

	EXPECT_EQ(0, CALL(p, ioperm_here, pool[0], 1, 1));
	EXPECT_PORTS(HIGH | NEXT, c);
	EXPECT_PORTS(HIGH | LOW, p);
	END(c);

	EXPECT_PORTS(HIGH | LOW, p);
	END(p);
}

TEST_F(kin, iopl_is_own)
{
	struct task *p, *c;

	p = START(NULL, BY_FORK);
	ASSERT_EQ(0, CALL(p, set_here, MID | IOPL));
	c = START(p, variant->kind);
	EXPECT_PORTS(MID | IOPL, p);
	EXPECT_PORTS(MID | IOPL, c);

	EXPECT_EQ(0, CALL(p, iopl_here, 0));
	EXPECT_PORTS(MID, p);
	EXPECT_PORTS(MID | IOPL, c);

	EXPECT_EQ(0, CALL(c, iopl_here, 0));
	EXPECT_EQ(0, CALL(p, iopl_here, 3));
	EXPECT_PORTS(MID | IOPL, p);
	EXPECT_PORTS(MID, c);

	EXPECT_EQ(0, CALL(c, ioperm_here, pool[1], 1, 0));
	EXPECT_PORTS(0, c);
	EXPECT_PORTS(MID | IOPL, p);
	END(c);

	EXPECT_PORTS(MID | IOPL, p);
	EXPECT_EQ(0, CALL(p, iopl_here, 0));
	EXPECT_PORTS(MID, p);
	END(p);
}

/* iopl(3) without a bitmap is inherited, too. */
TEST_F(kin, iopl_without_bitmap)
{
	struct task *p, *c;

	p = START(NULL, BY_FORK);
	ASSERT_EQ(0, CALL(p, iopl_here, 3));
	c = START(p, variant->kind);
	EXPECT_PORTS(IOPL, c);
	EXPECT_EQ(0, CALL(p, iopl_here, 0));
	EXPECT_PORTS(IOPL, c);
	EXPECT_PORTS(0, p);
	END(c);
	EXPECT_PORTS(0, p);
	END(p);
}

/* The end of a task that has the same bitmap, or had it, takes nothing. */
TEST_F(kin, exit_takes_nothing)
{
	struct task *p, *c, *other;
	int i;

	p = START(NULL, BY_FORK);
	ASSERT_EQ(0, CALL(p, set_here, LOW | BELOW));
	for (i = 0; i < 3; i++) {
		c = START(p, variant->kind);
		EXPECT_PORTS(LOW | BELOW, c);
		if (i == 1)
			EXPECT_EQ(0, CALL(c, ioperm_here, pool[0], 1, 0));
		if (i == 2)
			EXPECT_EQ(0, CALL(c, set_here, HIGH));
		END(c);
		EXPECT_PORTS(LOW | BELOW, p);
	}

	/* If the bitmap were freed, this one would get the memory. */
	other = START(NULL, BY_FORK);
	EXPECT_EQ(0, CALL(other, set_here, MID | HIGH));
	EXPECT_PORTS(MID | HIGH, other);
	EXPECT_PORTS(LOW | BELOW, p);
	END(p);
	EXPECT_PORTS(MID | HIGH, other);
	END(other);
}

/*
 * failing: a fork that fails
 */

enum failure {
	NPROC,
	SET_TID,
	PIDFD,
};

FIXTURE(failing) {
};

FIXTURE_VARIANT(failing) {
	enum failure	how;
	int		error;
};

/* Refused before there is a bitmap to be shared */
FIXTURE_VARIANT_ADD(failing, fork_nproc) { .how = NPROC, .error = EAGAIN };
/* Refused when the bitmap is shared already */
FIXTURE_VARIANT_ADD(failing, clone_set_tid) { .how = SET_TID, .error = EEXIST };
FIXTURE_VARIANT_ADD(failing, clone_pidfd) { .how = PIDFD, .error = EMFILE };

FIXTURE_SETUP(failing)
{
	setup(_metadata);
}

FIXTURE_TEARDOWN(failing)
{
}

static long limit_here(long resource, long limit, long unused)
{
	const struct rlimit rlimit = { limit, limit };

	return setrlimit(resource, &rlimit) ? -errno : 0;
}

static long fail_here(long how, long unused1, long unused2)
{
	struct clone_args args = { .exit_signal = SIGCHLD };
	pid_t tid = test_pid, pid;
	int pidfd;

	switch (how) {
	case NPROC:
		pid = fork();
		break;
	case SET_TID:
		args.set_tid = (uintptr_t)&tid;
		args.set_tid_size = 1;
		pid = syscall(SYS_clone3, &args, sizeof(args));
		break;
	default:
		args.flags = CLONE_PIDFD;
		args.pidfd = (uintptr_t)&pidfd;
		pid = syscall(SYS_clone3, &args, sizeof(args));
		break;
	}
	if (!pid)
		_exit(KSFT_FAIL);
	return pid < 0 ? -errno : 0;
}

TEST_F(failing, leaves_what_there_was)
{
	struct task *t, *p, *other;
	int i;

	/* A signal from an unprivileged parent would not reach its child. */
	p = START(NULL, BY_FORK);
	ASSERT_EQ(0, CALL(p, set_here, ALL));
	t = START(p, BY_FORK);
	other = START(NULL, BY_FORK);

	if (variant->how == NPROC) {
		ASSERT_EQ(0, CALL(t, become_here, NOBODY, 0));
		ASSERT_EQ(0, CALL(t, limit_here, RLIMIT_NPROC, 0));
	} else if (variant->how == PIDFD) {
		ASSERT_EQ(0, CALL(t, limit_here, RLIMIT_NOFILE, 0));
	} else if (CALL(t, fail_here, SET_TID) == -ENOSYS) {
		SKIP(return, "no clone3()");
	}

	/* While the bitmap is shared, then not: it is changed in place. */
	for (i = 0; i < 3; i++)
		ASSERT_EQ(-variant->error, CALL(t, fail_here, variant->how));
	EXPECT_PORTS(ALL, t);
	EXPECT_PORTS(ALL, p);
	EXPECT_EQ(0, CALL(p, ioperm_here, pool[3], 1, 0));
	EXPECT_PORTS(ALL, t);
	EXPECT_PORTS(ALL & ~HIGH, p);

	for (i = 0; i < 3; i++)
		ASSERT_EQ(-variant->error, CALL(t, fail_here, variant->how));
	EXPECT_PORTS(ALL, t);
	EXPECT_EQ(0, CALL(t, ioperm_here, pool[0], 1, 0));
	EXPECT_PORTS(ALL & ~LOW, t);

	/* If the bitmap were freed, this one would get the memory. */
	EXPECT_EQ(0, CALL(other, set_here, ALL & ~MID));
	EXPECT_PORTS(ALL & ~MID, other);
	EXPECT_PORTS(ALL & ~LOW, t);
	EXPECT_PORTS(ALL & ~HIGH, p);

	/* The last port goes at once. */
	EXPECT_EQ(0, CALL(t, ioperm_here, 0, IOPORT_NR, 0));
	EXPECT_PORTS(0, t);
	EXPECT_EQ(-variant->error, CALL(t, fail_here, variant->how));
	EXPECT_PORTS(0, t);

	if (variant->how == NPROC)
		return;
	EXPECT_EQ(0, CALL(t, iopl_here, 3));
	EXPECT_EQ(-variant->error, CALL(t, fail_here, variant->how));
	EXPECT_PORTS(IOPL, t);
	EXPECT_EQ(0, CALL(t, iopl_here, 0));
	EXPECT_PORTS(0, t);
}

/*
 * tasks: everything else
 */

FIXTURE(tasks) {
};

FIXTURE_SETUP(tasks)
{
	setup(_metadata);
}

FIXTURE_TEARDOWN(tasks)
{
}

/* Of a child that its parent waits for */
static long double clone_stack[4096];

static long vfork_mask;

static int vfork_main(void *unused)
{
	prctl(PR_SET_PDEATHSIG, SIGKILL);
	if (check_here(vfork_mask, CHECK_LINES, 0))
		return 1;
	if (set_here(MID | NEXT, 0, 0))
		return 2;
	if (check_here(MID | NEXT, CHECK_LINES, 0))
		return 3;
	if (ioperm(0, IOPORT_NR, 0))
		return 4;
	return check_here(0, CHECK_LINES, 0) ? 5 : 0;
}

/* The parent runs again when the child has ended, and on the same CPU. */
TEST_F(tasks, vfork)
{
	static const long masks[] = { LOW | HIGH, MID, MID | IOPL, IOPL, 0 };
	unsigned int i;
	int status;
	pid_t pid;

	for (i = 0; i < ARRAY_SIZE(masks); i++) {
		ASSERT_EQ(0, CALL(NULL, set_here, masks[i]));
		vfork_mask = masks[i];
		pid = clone(vfork_main, clone_stack + ARRAY_SIZE(clone_stack),
			    CLONE_VM | CLONE_VFORK | SIGCHLD, NULL);
		ASSERT_GT(pid, 0);
		EXPECT_EQ(0, check_here(masks[i], CHECK_LINES, 0));
		ASSERT_EQ(pid, waitpid(pid, &status, 0));
		EXPECT_EQ(0, status);
		EXPECT_PORTS(masks[i], NULL);
	}
}

#define CHAIN	(NR_POOL + 1)

static void fork_chain(struct __test_metadata *_metadata, bool parents_first)
{
	struct task *t[CHAIN];
	long mask = ALL;
	int i, j;

	/* Each has one port less than its parent. */
	t[0] = START(NULL, BY_FORK);
	ASSERT_EQ(0, CALL(t[0], set_here, ALL));
	for (i = 1; i < CHAIN; i++) {
		t[i] = START(t[i - 1], BY_FORK_ORPHAN);
		EXPECT_EQ(0, CALL(t[i], ioperm_here, pool[i - 1], 1, 0));
	}

	for (i = 0; i < CHAIN; i++) {
		EXPECT_PORTS(mask, t[i]);
		mask &= ~(1 << i);
	}

	for (i = 0; i < CHAIN; i++) {
		END(t[parents_first ? i : CHAIN - 1 - i]);
		mask = ALL;
		for (j = 0; j < CHAIN; j++) {
			if (parents_first ? j > i : j < CHAIN - 1 - i)
				EXPECT_PORTS(mask, t[j]);
			mask &= ~(1 << j);
		}
	}
}

TEST_F(tasks, fork_chain_children_end_first)
{
	fork_chain(_metadata, false);
}

TEST_F(tasks, fork_chain_parents_end_first)
{
	fork_chain(_metadata, true);
}

/*
 * Each kind of use ends with as much memory as it began. A bitmap that is
 * forgotten is seen as soon as many are: with a port in each line it has 8 KB.
 * So is a task that is forgotten, which takes several KB.
 */
#define LEAK_ROUNDS		200
#define LEAK_KB			(LEAK_ROUNDS * 8 / 2)
#define LEAK_TRIES		3
#define LEAK_WAITS		2
#define LEAK_WAIT_USEC		100000

static long grant_all_lines(void)
{
	/* None of these is touched. */
	return ioperm_here(0, IOPORT_NR, 1);
}

static int leak_thread_main(void *change)
{
	prctl(PR_SET_PDEATHSIG, SIGKILL);
	if (change && ioperm(0x1000, 1, 0))
		return 1;
	return 0;
}

static long leak_clone(bool change)
{
	int status;
	pid_t pid;

	pid = clone(leak_thread_main, clone_stack + ARRAY_SIZE(clone_stack),
		    CLONE_VM | CLONE_VFORK | SIGCHLD, (void *)(long)change);
	if (pid < 0)
		return -errno;
	return waitpid(pid, &status, 0) == pid ? status : -errno;
}

static long leak_round(int what)
{
	long ret;

	switch (what) {
	case 0:
		ret = grant_all_lines();
		return ret ?: ioperm_here(0, IOPORT_NR, 0);
	case 1:
		return leak_clone(false);
	case 2:
		return leak_clone(true);
	default:
		ret = fail_here(SET_TID, 0, 0);
		return ret == -EEXIST || ret == -ENOSYS ? 0 : -EINVAL;
	}
}

/* Where the memory of a fork or a bitmap comes from, not what can be reclaimed */
static bool is_leak_cache(const char *name)
{
	static const char * const names[] = {
		"anon_vma", "anon_vma_chain", "cred", "files_cache", "fs_cache",
		"kmemleak_object", "maple_node", "mm_struct", "pid",
		"sighand_cache", "signal_cache", "task_delay_info",
		"task_struct", "vm_area_struct", "vmap_area",
	};
	unsigned int i;

	if (!strncmp(name, "kmalloc-", 8))
		return strncmp(name, "kmalloc-rcl-", 12);
	for (i = 0; i < ARRAY_SIZE(names); i++) {
		if (!strcmp(name, names[i]))
			return true;
	}
	return false;
}

/*
 * Caches keep some of what was freed for the next one to allocate. With KASAN
 * everything that was freed stays allocated for long, in its quarantine. Let
 * them give it back, where that is possible.
 */
static void shrink_leak_caches(void)
{
	unsigned int i, nr = 0;
	ino_t seen[256];
	char path[320];
	struct dirent *entry;
	struct stat st;
	DIR *dir;

	dir = opendir("/sys/kernel/slab");
	if (!dir)
		return;
	while ((entry = readdir(dir))) {
		if (!is_leak_cache(entry->d_name) ||
		    fstatat(dirfd(dir), entry->d_name, &st, 0))
			continue;
		/* A cache that was merged with others has several names. */
		for (i = 0; i < nr && seen[i] != st.st_ino; i++)
			;
		if (i < nr)
			continue;
		if (nr < ARRAY_SIZE(seen))
			seen[nr++] = st.st_ino;

		snprintf(path, sizeof(path), "/sys/kernel/slab/%s/shrink",
			 entry->d_name);
		write_file(path, "1");
	}
	closedir(dir);
}

static long unreclaimable_kb(void)
{
	char line[128];
	long kb = -1;
	FILE *file;

	/* What the CPUs have not yet added to it may be a lot. */
	write_file("/proc/sys/vm/stat_refresh", "1");

	file = fopen("/proc/meminfo", "r");
	if (!file)
		return -1;
	while (fgets(line, sizeof(line), file) &&
	       sscanf(line, "SUnreclaim: %ld", &kb) != 1)
		;
	fclose(file);
	return kb;
}

/* How many more there are than @before, without what will still be freed */
static long leaked_kb(long before)
{
	long now = unreclaimable_kb();
	int i;

	for (i = 0; i < LEAK_WAITS && now - before >= LEAK_KB; i++) {
		/* Tasks that have ended are freed a grace period later. */
		usleep(LEAK_WAIT_USEC);
		shrink_leak_caches();
		now = unreclaimable_kb();
	}
	return now < 0 ? LONG_MAX : now - before;
}

TEST_F(tasks, nothing_leaks)
{
	static const char * const name[] = {
		"grant and drop", "inherit and end",
		"inherit, change and end", "inherit and fail",
	};
	unsigned int what, try, i;
	long before, grown = 0;

	/*
	 * What came before must not be given back while this grows. After that
	 * there is never more than the limit to be given back when it begins:
	 * either it grew by less or the caches have been shrunk.
	 */
	shrink_leak_caches();
	for (what = 0; what < ARRAY_SIZE(name); what++) {
		if (what)
			ASSERT_EQ(0, grant_all_lines());
		/* Others may use memory as well, but hardly each time. */
		for (try = 0; try < LEAK_TRIES; try++) {
			before = unreclaimable_kb();
			ASSERT_GT(before, 0);
			for (i = 0; i < LEAK_ROUNDS; i++)
				ASSERT_EQ(0, leak_round(what));
			grown = leaked_kb(before);
			if (grown < LEAK_KB)
				break;
		}
		/* All kinds would take too long where all is slow. */
		ASSERT_LT(grown, LEAK_KB)
			TH_LOG("%s: %ld KB in %u rounds", name[what], grown,
			       LEAK_ROUNDS);
		ASSERT_EQ(0, ioperm(0, IOPORT_NR, 0));
	}
}

/*
 * What the program does after it has executed itself: look at what it may use.
 * The numbers of the ports are told, they are not visible without privileges.
 */
#define EXEC_ENV		"IOPERM_SECURITY_EXEC"

static void __attribute__((constructor)) exec_main(void)
{
	const char *env = getenv(EXEC_ENV);
	long mask, wrong;

	if (!env)
		return;

	if (sscanf(env, "%ld %u %u %u %u %u", &mask, &pool[0], &pool[1],
		   &pool[2], &pool[3], &pool[4]) != NR_POOL + 1)
		_exit(KSFT_FAIL);
	ioport_catch_faults();
	wrong = check_here(mask, CHECK_LINES, 0);
	if (wrong)
		ksft_print_msg("after exec: inb from port 0x%lx %s\n",
			       WRONG_PORT(wrong),
			       WRONG_OPEN(wrong) ? "worked" : "faulted");
	_exit(wrong ? KSFT_FAIL : KSFT_PASS);
}

static long exec_here(long mask, long unused1, long unused2)
{
	char env[128];

	snprintf(env, sizeof(env), "%ld %u %u %u %u %u", mask, pool[0],
		 pool[1], pool[2], pool[3], pool[4]);
	if (setenv(EXEC_ENV, env, 1))
		return -errno;
	execl("/proc/self/exe", "ioperm_security", NULL);
	return -errno;
}

static void exec_keeps(struct __test_metadata *_metadata, long mask, uid_t uid)
{
	struct ioport_map map, seen;
	struct task *t;
	int status;

	t = START(NULL, BY_FORK);
	ASSERT_EQ(0, CALL(t, set_here, mask));
	ASSERT_EQ(0, CALL(t, become_here, uid, 0));

	ASSERT_EQ(0, ptrace(PTRACE_SEIZE, t->tid, NULL, PTRACE_O_TRACEEXEC));
	ask(t, exec_here, mask, 0, 0);
	ASSERT_EQ(t->tid, waitpid(t->tid, &status, 0));
	ASSERT_EQ(SIGTRAP | PTRACE_EVENT_EXEC << 8, status >> 8)
		TH_LOG("no exec, status 0x%x", status);

	mask_to_map(mask, &map);
	EXPECT_EQ(mask & ALL ? 0 : -ENXIO, ioport_view(t->tid, &seen));
	EXPECT_EQ(0, memcmp(&map, &seen, sizeof(map)));

	ASSERT_EQ(0, ptrace(PTRACE_DETACH, t->tid, NULL, NULL));
	ASSERT_EQ(t->tid, waitpid(t->tid, &status, 0));
	EXPECT_EQ(0, status);
}

TEST_F(tasks, exec_keeps)
{
	exec_keeps(_metadata, LOW | HIGH, 0);
	exec_keeps(_metadata, 0, 0);
}

TEST_F(tasks, exec_keeps_iopl)
{
	exec_keeps(_metadata, IOPL, 0);
	exec_keeps(_metadata, MID | IOPL, 0);
}

TEST_F(tasks, exec_keeps_without_privileges)
{
	exec_keeps(_metadata, BELOW | NEXT, NOBODY);
	exec_keeps(_metadata, IOPL, NOBODY);
}

/*
 * Privileges
 */

TEST_F(tasks, unprivileged_may_only_revoke)
{
	struct task *t = START(NULL, BY_FORK);
	int i;

	ASSERT_EQ(0, CALL(t, set_here, ALL));
	ASSERT_EQ(0, CALL(t, become_here, NOBODY, 0));
	EXPECT_PORTS(ALL, t);

	/* Not even what it has */
	for (i = 0; i < NR_POOL; i++)
		EXPECT_EQ(-EPERM, CALL(t, ioperm_here, pool[i], 1, 1));
	EXPECT_EQ(-EPERM, CALL(t, ioperm_here, 0, IOPORT_NR, 1));
	EXPECT_EQ(-EPERM, CALL(t, iopl_here, 3));
	EXPECT_PORTS(ALL, t);

	EXPECT_EQ(0, CALL(t, ioperm_here, pool[3], 1, 0));
	EXPECT_PORTS(ALL & ~HIGH, t);
	EXPECT_EQ(-EPERM, CALL(t, ioperm_here, pool[3], 1, 1));
	EXPECT_PORTS(ALL & ~HIGH, t);

	EXPECT_EQ(0, CALL(t, ioperm_here, 0, IOPORT_NR, 0));
	EXPECT_PORTS(0, t);
	EXPECT_EQ(0, CALL(t, ioperm_here, 0, IOPORT_NR, 0));
	EXPECT_EQ(-EPERM, CALL(t, ioperm_here, pool[0], 1, 1));
	EXPECT_PORTS(0, t);
}

/* It is CAP_SYS_RAWIO that decides, and not the user. */
TEST_F(tasks, capability_decides)
{
	struct task *root, *user;

	root = START(NULL, BY_FORK);
	user = START(NULL, BY_FORK);

	ASSERT_EQ(0, CALL(root, become_here, 0, 0));
	EXPECT_EQ(-EPERM, CALL(root, ioperm_here, pool[0], 1, 1));
	EXPECT_EQ(-EPERM, CALL(root, iopl_here, 3));
	EXPECT_PORTS(0, root);

	ASSERT_EQ(0, CALL(user, become_here, NOBODY, 1L << CAP_SYS_RAWIO));
	EXPECT_EQ(0, CALL(user, ioperm_here, pool[0], 1, 1));
	EXPECT_PORTS(LOW, user);
	EXPECT_EQ(0, CALL(user, iopl_here, 3));
	EXPECT_PORTS(LOW | IOPL, user);
}

static long unshare_user_here(long unused1, long unused2, long unused3)
{
	if (unshare(CLONE_NEWUSER))
		return -errno;
	ioport_bind_to_parent();
	return ioport_has_rawio() ? 0 : -ENODATA;
}

/* What was inherited stays, and can be given back. Nothing else is possible. */
TEST_F(tasks, user_namespace_root_keeps_what_it_had)
{
	struct task *t = START(NULL, BY_FORK);
	long ret;

	ASSERT_EQ(0, CALL(t, set_here, LOW | HIGH));
	ret = CALL(t, unshare_user_here);
	if (ret && ret != -ENODATA)
		SKIP(return, "no user namespace: %s", strerror(-ret));
	ASSERT_EQ(0, ret);

	EXPECT_PORTS(LOW | HIGH, t);
	EXPECT_EQ(-EPERM, CALL(t, ioperm_here, pool[0], 1, 1));
	EXPECT_EQ(-EPERM, CALL(t, ioperm_here, pool[1], 1, 1));
	EXPECT_EQ(-EPERM, CALL(t, iopl_here, 3));
	EXPECT_PORTS(LOW | HIGH, t);
	EXPECT_EQ(0, CALL(t, ioperm_here, pool[0], 1, 0));
	EXPECT_PORTS(HIGH, t);
}

static long seccomp_here(long unused1, long unused2, long unused3)
{
	struct sock_filter filter[] = {
		BPF_STMT(BPF_LD | BPF_W | BPF_ABS,
			 offsetof(struct seccomp_data, arch)),
		BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, AUDIT_ARCH_SELF, 0, 3),
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

	if (prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0))
		return -errno;
	return prctl(PR_SET_SECCOMP, SECCOMP_MODE_FILTER, &prog) ? -errno : 0;
}

/* The filter decides about the calls, and not about the ports. */
TEST_F(tasks, seccomp_filter)
{
	struct task *t, *c, *iopl3;
	long ret;

	t = START(NULL, BY_FORK);
	iopl3 = START(NULL, BY_FORK);
	ASSERT_EQ(0, CALL(t, set_here, LOW | MID));
	ret = CALL(t, seccomp_here);
	if (ret)
		SKIP(return, "no seccomp filter: %s", strerror(-ret));

	EXPECT_PORTS(LOW | MID, t);
	EXPECT_EQ(-ENOTTY, CALL(t, ioperm_here, pool[3], 1, 1));
	EXPECT_EQ(-ENOTTY, CALL(t, ioperm_here, pool[0], 1, 0));
	EXPECT_EQ(-ENOTTY, CALL(t, iopl_here, 3));
	EXPECT_PORTS(LOW | MID, t);

	c = START(t, BY_FORK);
	EXPECT_PORTS(LOW | MID, c);
	EXPECT_EQ(-ENOTTY, CALL(c, ioperm_here, pool[0], 1, 0));
	EXPECT_PORTS(LOW | MID, c);

	ASSERT_EQ(0, CALL(iopl3, iopl_here, 3));
	ASSERT_EQ(0, CALL(iopl3, seccomp_here));
	EXPECT_EQ(-ENOTTY, CALL(iopl3, iopl_here, 0));
	EXPECT_PORTS(IOPL, iopl3);
}

/*
 * iopl()
 */

/* Only level 3 gives ports. */
TEST_F(tasks, iopl_levels)
{
	static const int level[] = {
		0, 1, 2, 3, 2, 1, 0, 3, 3, 1, 3, 0, 0, 2, 0,
	};
	struct task *t = START(NULL, BY_FORK);
	unsigned int i;

	for (i = 0; i < ARRAY_SIZE(level); i++) {
		EXPECT_EQ(0, CALL(t, iopl_here, level[i]));
		EXPECT_PORTS(level[i] == 3 ? IOPL : 0, t);
	}

	/* With a bitmap the lower levels leave just that. */
	ASSERT_EQ(0, CALL(t, set_here, MID));
	for (i = 0; i < ARRAY_SIZE(level); i++) {
		EXPECT_EQ(0, CALL(t, iopl_here, level[i]));
		EXPECT_PORTS(level[i] == 3 ? MID | IOPL : MID, t);
	}
}

static const long bad_levels[] = { 4, 5, 0x80, 0x3000, INT_MAX, INT_MIN, -1 };

TEST_F(tasks, iopl_invalid_level)
{
	struct task *t = START(NULL, BY_FORK);
	unsigned int i;

	for (i = 0; i < ARRAY_SIZE(bad_levels); i++)
		EXPECT_EQ(-EINVAL, CALL(t, iopl_here, bad_levels[i]));
	EXPECT_PORTS(0, t);

	ASSERT_EQ(0, CALL(t, iopl_here, 3));
	for (i = 0; i < ARRAY_SIZE(bad_levels); i++)
		EXPECT_EQ(-EINVAL, CALL(t, iopl_here, bad_levels[i]));
	EXPECT_PORTS(IOPL, t);
}

TEST_F(tasks, iopl_raise_needs_rawio)
{
	int from, to, level;
	struct task *t;

	for (from = 0; from <= 3; from++) {
		for (to = 0; to <= 3; to++) {
			level = to < from ? to : from;
			t = START(NULL, BY_FORK);
			ASSERT_EQ(0, CALL(t, iopl_here, from));
			ASSERT_EQ(0, CALL(t, become_here, NOBODY, 0));
			EXPECT_EQ(to > from ? -EPERM : 0,
				  CALL(t, iopl_here, to))
				TH_LOG("from %d to %d", from, to);
			EXPECT_PORTS(level == 3 ? IOPL : 0, t);
			/* What has been given up is gone. */
			if (level < 3)
				EXPECT_EQ(-EPERM, CALL(t, iopl_here, 3));
			EXPECT_PORTS(level == 3 ? IOPL : 0, t);
			END(t);
			shm->nr_tasks = 0;
		}
	}
}

TEST_F(tasks, iopl_over_ioperm)
{
	struct task *t = START(NULL, BY_FORK);

	ASSERT_EQ(0, CALL(t, set_here, LOW | BELOW | HIGH));
	EXPECT_PORTS(LOW | BELOW | HIGH, t);

	EXPECT_EQ(0, CALL(t, iopl_here, 3));
	EXPECT_PORTS(LOW | BELOW | HIGH | IOPL, t);
	EXPECT_EQ(0, CALL(t, iopl_here, 0));
	EXPECT_PORTS(LOW | BELOW | HIGH, t);

	/* What changes meanwhile is seen afterwards. */
	EXPECT_EQ(0, CALL(t, iopl_here, 3));
	EXPECT_EQ(0, CALL(t, ioperm_here, pool[3], 1, 0));
	EXPECT_EQ(0, CALL(t, ioperm_here, pool[1], 1, 1));
	EXPECT_PORTS(LOW | MID | BELOW | IOPL, t);
	EXPECT_EQ(0, CALL(t, iopl_here, 1));
	EXPECT_PORTS(LOW | MID | BELOW, t);

	EXPECT_EQ(0, CALL(t, iopl_here, 3));
	EXPECT_EQ(0, CALL(t, ioperm_here, 0, IOPORT_NR, 0));
	EXPECT_PORTS(IOPL, t);
	EXPECT_EQ(0, CALL(t, iopl_here, 0));
	EXPECT_PORTS(0, t);

	EXPECT_EQ(0, CALL(t, iopl_here, 3));
	EXPECT_EQ(0, CALL(t, ioperm_here, pool[4], 1, 1));
	EXPECT_PORTS(NEXT | IOPL, t);
	EXPECT_EQ(0, CALL(t, iopl_here, 0));
	EXPECT_PORTS(NEXT, t);
}

/*
 * EFLAGS.IOPL and the interrupt flag, which nobody gets from iopl()
 */

#define CLI	0xfa
#define STI	0xfb

/* The carry flag tells that it faulted, as in ioport_on_sigsegv(). */
static void on_cli_fault(int sig, siginfo_t *si, void *context)
{
	ucontext_t *ctx = context;
	greg_t *regs = ctx->uc_mcontext.gregs;
	uint8_t insn = *(const uint8_t *)regs[IOPORT_REG_IP];

	if (insn != CLI && insn != STI) {
		ioport_on_sigsegv(sig, si, context);
		return;
	}
	regs[IOPORT_REG_IP]++;
	regs[REG_EFL] |= X86_EFLAGS_CF;
}

/*
 * Nothing may be changed. With iopl(3) the kernel pretends that it was, so
 * that old programs go on. Returns 0 or what is wrong, as a bit mask.
 */
static long cli_sti_here(long may_pretend, long unused1, long unused2)
{
	bool faulted;
	long ret = 0;

	sethandler(SIGSEGV, on_cli_fault, 0);
	asm volatile ("clc; cli" : "=@ccc" (faulted) : : "memory");
	if (!(get_eflags() & X86_EFLAGS_IF))
		ret |= 1;
	if (!faulted && !may_pretend)
		ret |= 2;

	asm volatile ("clc; sti" : "=@ccc" (faulted) : : "memory");
	if (!(get_eflags() & X86_EFLAGS_IF))
		ret |= 4;
	if (!faulted && !may_pretend)
		ret |= 8;

	if (get_eflags() & X86_EFLAGS_IOPL)
		ret |= 16;
	ioport_catch_faults();
	return ret;
}

TEST_F(tasks, cli_sti_with_iopl)
{
	struct task *t = START(NULL, BY_FORK);

	EXPECT_EQ(0, CALL(t, cli_sti_here, false));
	ASSERT_EQ(0, CALL(t, set_here, LOW));
	EXPECT_EQ(0, CALL(t, cli_sti_here, false));
	ASSERT_EQ(0, CALL(t, iopl_here, 3));
	EXPECT_EQ(0, CALL(t, cli_sti_here, true));
	EXPECT_PORTS(LOW | IOPL, t);
	ASSERT_EQ(0, CALL(t, iopl_here, 0));
	EXPECT_EQ(0, CALL(t, cli_sti_here, false));
	EXPECT_PORTS(LOW, t);
}

static uint32_t got_signal;

static void on_sigusr2(int sig, siginfo_t *si, void *context)
{
	ucontext_t *ctx = context;

	ctx->uc_mcontext.gregs[REG_EFL] |= X86_EFLAGS_IOPL;
	store(got_signal, 1);
}

/* For everybody, also for those who cannot have ports. */
TEST(eflags_iopl_from_sigreturn)
{
	/* Whoever started this may have had ports, they are inherited. */
	ioperm(0, IOPORT_NR, 0);
	iopl(0);

	sethandler(SIGUSR2, on_sigusr2, 0);
	ASSERT_EQ(0, raise(SIGUSR2));
	ASSERT_EQ(1, load(got_signal));
	EXPECT_EQ(0, get_eflags() & X86_EFLAGS_IOPL);
	EXPECT_FALSE(ioport_inb(IOPORT_POST));
	EXPECT_EQ(0, cli_sti_here(false, 0, 0));

	/* POPF is not a way, either. */
	set_eflags(get_eflags() | X86_EFLAGS_IOPL);
	EXPECT_EQ(0, get_eflags() & X86_EFLAGS_IOPL);
	EXPECT_FALSE(ioport_inb(IOPORT_POST));
	EXPECT_EQ(0, cli_sti_here(false, 0, 0));
}

TEST(eflags_iopl_from_tracer)
{
	long eflags;
	int status;
	pid_t pid;

	pid = fork();
	ASSERT_GE(pid, 0);
	if (!pid) {
		ioperm(0, IOPORT_NR, 0);
		iopl(0);
		if (ptrace(PTRACE_TRACEME, 0, NULL, NULL))
			_exit(KSFT_SKIP);
		raise(SIGSTOP);
		_exit(get_eflags() & X86_EFLAGS_IOPL ||
		      ioport_inb(IOPORT_POST) ||
		      cli_sti_here(false, 0, 0) ? KSFT_FAIL : KSFT_PASS);
	}
	ASSERT_EQ(pid, waitpid(pid, &status, 0));
	if (WIFEXITED(status) && WEXITSTATUS(status) == KSFT_SKIP)
		SKIP(return, "ptrace() refused");
	ASSERT_TRUE(WIFSTOPPED(status));

	errno = 0;
	eflags = ptrace(PTRACE_PEEKUSER, pid, EFLAGS_OFFSET, NULL);
	ASSERT_EQ(0, errno);
	/* Bits that cannot be changed are ignored. */
	ASSERT_EQ(0, ptrace(PTRACE_POKEUSER, pid, EFLAGS_OFFSET,
			    eflags | X86_EFLAGS_IOPL));
	eflags = ptrace(PTRACE_PEEKUSER, pid, EFLAGS_OFFSET, NULL);
	EXPECT_EQ(0, eflags & X86_EFLAGS_IOPL);

	/* The faults are signals, too. */
	ASSERT_EQ(0, ptrace(PTRACE_DETACH, pid, NULL, NULL));
	ASSERT_EQ(pid, waitpid(pid, &status, 0));
	EXPECT_EQ(0, status);
}

/*
 * Who gets nothing: these need no privileges
 */

static void expect_nothing(struct __test_metadata *_metadata)
{
	static const unsigned int ports[] = { 0, 0x60, 0x80, 0x3f8, 65535 };
	unsigned int i;

	for (i = 0; i < ARRAY_SIZE(ports); i++) {
		EXPECT_EQ(-EPERM, ioperm_here(ports[i], 1, 1));
		EXPECT_EQ(0, ioperm_here(ports[i], 1, 0));
		EXPECT_FALSE(ioport_inb(ports[i]));
	}
	EXPECT_EQ(-EPERM, ioperm_here(0, IOPORT_NR, 1));
	for (i = 1; i <= 3; i++)
		EXPECT_EQ(-EPERM, iopl_here(i, 0, 0));
	EXPECT_EQ(0, iopl_here(0, 0, 0));
	for (i = 0; i < ARRAY_SIZE(bad_levels); i++)
		EXPECT_EQ(-EINVAL, iopl_here(bad_levels[i], 0, 0));
	for (i = 0; i < ARRAY_SIZE(ports); i++)
		EXPECT_FALSE(ioport_inb(ports[i]));
}

/* False if there is nothing to be tested */
static bool give_all_back(void)
{
	return !iopl(0) && !ioperm(0, IOPORT_NR, 0);
}

TEST(unprivileged_gets_nothing)
{
	if (!give_all_back())
		SKIP(return, "%s", ioport_skip_reason() ?: "iopl() refused");
	ASSERT_EQ(0, become_here(NOBODY, 0, 0));
	ASSERT_FALSE(ioport_has_rawio());
	expect_nothing(_metadata);
}

TEST(user_namespace_root_gets_nothing)
{
	long ret;

	if (!give_all_back())
		SKIP(return, "%s", ioport_skip_reason() ?: "iopl() refused");
	ret = unshare_user_here(0, 0, 0);
	if (ret && ret != -ENODATA)
		SKIP(return, "no user namespace: %s", strerror(-ret));
	ASSERT_EQ(0, ret);
	expect_nothing(_metadata);
}

/* To lock the kernel down cannot be undone, so the test does not do it. */
TEST(lockdown_gives_nothing)
{
	if (!give_all_back())
		SKIP(return, "%s", ioport_skip_reason() ?: "iopl() refused");
	if (!ioport_has_rawio())
		SKIP(return, "no CAP_SYS_RAWIO: not root");
	if (!ioport_locked_down())
		SKIP(return, "kernel not locked down");
	expect_nothing(_metadata);
}

/*
 * Several CPUs
 */

TEST_F(tasks, migrate_after_change)
{
	static const long masks[] = {
		ALL, MID | HIGH, MID, 0, LOW | NEXT, IOPL, IOPL | LOW, LOW, 0,
		IOPL, 0, HIGH, ALL,
	};
	struct task *t, *watch[2];
	unsigned int i, j;

	if (nr_cpus < 2)
		SKIP(return, "only one CPU");

	t = START(NULL, BY_FORK);
	for (i = 0; i < 2; i++) {
		watch[i] = START(NULL, BY_FORK);
		ASSERT_EQ(0, CALL(watch[i], move_here, cpus[i]));
	}

	/* What each CPU saw last is older than what the task has now. */
	for (i = 0; i < ARRAY_SIZE(masks); i++) {
		ASSERT_EQ(0, CALL(t, set_here, masks[i]));
		EXPECT_PORTS(masks[i], t);
		for (j = 0; j < 2; j++) {
			ASSERT_EQ(0, CALL(t, move_here, cpus[(i + j) % 2]));
			EXPECT_PORTS(masks[i], t);
			EXPECT_PORTS(0, watch[0]);
			EXPECT_PORTS(0, watch[1]);
		}
	}
}

/* Grant and revoke until told to stop. */
static long change_here(long me, long mask, long other)
{
	long wrong;
	int i;

	for (i = 0; !load(shm->stop); i++) {
		if (set_here(mask, i & 1, 0))
			return -errno;
		wrong = check_here(mask, TURN_LINES, i);
		if (wrong)
			return wrong;
		if (set_here(other, i & 1, 0))
			return -errno;
		wrong = check_here(other, TURN_LINES, i);
		if (wrong)
			return wrong;
		store(shm->rounds[me], i + 1);
	}
	return 0;
}

static long watch_here(long me, long unused1, long unused2)
{
	long wrong;
	int i;

	for (i = 0; !load(shm->stop); i++) {
		wrong = check_here(0, TURN_LINES, i);
		if (wrong)
			return wrong;
		store(shm->rounds[me], i + 1);
		sched_yield();
	}
	return 0;
}

/* Of those tasks which are still at it */
static uint32_t min_rounds(void)
{
	uint32_t min = MIN_ROUNDS;
	int i;

	for (i = 0; i < shm->nr_tasks; i++) {
		if (load(shm->task[i].answered) == shm->task[i].asked)
			continue;
		if (load(shm->rounds[i]) < min)
			min = load(shm->rounds[i]);
	}
	return min;
}

TEST_F(tasks, migrate_while_changing)
{
	static const long masks[][2] = {
		{ LOW | HIGH, HIGH }, { MID | NEXT, 0 }, { IOPL, BELOW },
	};
	struct task *watch[2], *t[3];
	uint64_t end;
	int i, moves;

	if (nr_cpus < 2)
		SKIP(return, "only one CPU");

	for (i = 0; i < 2; i++) {
		watch[i] = START(NULL, BY_FORK);
		ASSERT_EQ(0, CALL(watch[i], move_here, cpus[i]));
		ASSERT_EQ(0, CALL(watch[i], become_here, NOBODY, 0));
		ask(watch[i], watch_here, i, 0, 0);
	}
	for (i = 0; i < (int)ARRAY_SIZE(t); i++) {
		t[i] = START(NULL, BY_FORK);
		ask(t[i], change_here, 2 + i, masks[i][0], masks[i][1]);
	}

	/* Until each of them got somewhere, however busy the machine is. */
	end = now_ns() + MIGRATE_NSEC;
	for (moves = 0; now_ns() < end || min_rounds() < MIN_ROUNDS; moves++) {
		for (i = 0; i < (int)ARRAY_SIZE(t); i++) {
			ASSERT_EQ(0, pin_to(t[i]->tid,
					    cpus[(moves >> i) % 2]));
			usleep(100);
		}
	}
	store(shm->stop, 1);

	for (i = 0; i < shm->nr_tasks; i++) {
		await_answer(&shm->task[i]);
		EXPECT_EQ(0, shm->task[i].ret)
			TH_LOG("%s: inb from port 0x%lx %s",
			       i < 2 ? "never asked" : "changing",
			       WRONG_PORT(shm->task[i].ret),
			       WRONG_OPEN(shm->task[i].ret) ? "worked" :
			       "faulted");
	}
}

/*
 * As fork(), but the child returns when the test is gone, or has written to
 * @fd. It is not in the process group of the test and holds nothing of it but
 * a pipe.
 */
static pid_t fork_guard(int *fd)
{
	int fds[2];
	char byte;
	pid_t pid;

	if (pipe2(fds, O_CLOEXEC))
		return -1;
	ioport_bind_children = false;
	pid = fork();
	ioport_bind_children = true;
	if (pid) {
		close(fds[0]);
		*fd = fds[1];
		return pid;
	}

	setsid();
	signal(SIGTERM, SIG_IGN);
	signal(SIGHUP, SIG_IGN);
	signal(SIGINT, SIG_IGN);
	close(fds[1]);
	while (read(fds[0], &byte, 1) < 0 && errno == EINTR)
		;
	return 0;
}

/* Bring a CPU back online when the test is gone. */
static pid_t guard_cpu(const char *path)
{
	int fd;
	pid_t pid = fork_guard(&fd);

	if (pid)
		return pid;
	write_file(path, "1");
	_exit(KSFT_PASS);
}

TEST_F(tasks, cpu_offline_online)
{
	struct task *t, *other, *watch;
	char path[64];
	int cpu, pass, ret;

	if (nr_cpus < 2)
		SKIP(return, "only one CPU");
	cpu = cpus[1];
	snprintf(path, sizeof(path), "/sys/devices/system/cpu/cpu%d/online",
		 cpu);
	if (access(path, W_OK))
		SKIP(return, "CPU %d cannot be taken offline: %s", cpu,
		     strerror(errno));

	t = START(NULL, BY_FORK);
	other = START(NULL, BY_FORK);
	watch = START(NULL, BY_FORK);
	ASSERT_EQ(0, CALL(other, set_here, MID | NEXT));
	ASSERT_EQ(0, CALL(t, set_here, LOW | HIGH));

	ASSERT_EQ(0, CALL(other, move_here, cpu));
	EXPECT_PORTS(MID | NEXT, other);

	/* From here on the tasks above hold no end of the pipe. */
	ASSERT_GE(guard_cpu(path), 0);

	/*
	 * The last bitmap in the TSS of that CPU is the one of t. When the CPU
	 * is back, that comes first, and the next time another one.
	 */
	for (pass = 0; pass < 2; pass++) {
		ASSERT_EQ(0, CALL(other, move_here, cpus[0]));
		ASSERT_EQ(0, CALL(watch, move_here, cpus[0]));
		ASSERT_EQ(0, CALL(t, move_here, cpu));
		EXPECT_PORTS(LOW | HIGH, t);

		ret = write_file(path, "0");
		if (ret)
			SKIP(return, "CPU %d cannot be taken offline: %s", cpu,
			     strerror(-ret));
		EXPECT_PORTS(LOW | HIGH, t);
		EXPECT_PORTS(MID | NEXT, other);
		EXPECT_PORTS(0, watch);
		ASSERT_EQ(0, CALL(t, move_here, cpus[0]));
		ASSERT_EQ(0, write_file(path, "1"));

		if (!pass) {
			ASSERT_EQ(0, CALL(t, move_here, cpu));
			EXPECT_PORTS(LOW | HIGH, t);
		}
		ASSERT_EQ(0, CALL(other, move_here, cpu));
		EXPECT_PORTS(MID | NEXT, other);
		ASSERT_EQ(0, CALL(watch, move_here, cpu));
		EXPECT_PORTS(0, watch);
	}
}

/*
 * The console driver hands out the ports of a VGA card. They are looked at,
 * but not touched.
 */

static long vt_here(long fd, long request, long arg)
{
	return ioctl(fd, request, arg) ? -errno : 0;
}

TEST_F(tasks, console_ports)
{
	static const long outside[] = {
		0, 0x80, VT_FIRST - 1, VT_LAST + 1, 65535, 65536,
#ifdef __x86_64__
		VT_FIRST + (1L << 16), VT_FIRST + (1L << 32), LONG_MIN + VT_FIRST,
#endif
		-1,
	};
	struct ioport_map map;
	struct task *t;
	char type;
	unsigned int i;
	int fd;

	fd = open("/dev/tty0", O_RDWR | O_NOCTTY | O_CLOEXEC);
	if (fd < 0)
		SKIP(return, "no virtual terminal: %s", strerror(errno));
	if (ioctl(fd, KDGKBTYPE, &type))
		SKIP(return, "tty0 is no virtual terminal: %s", strerror(errno));

#define EXPECT_MAP(any)	expect_view(_metadata, t, &map, any, __LINE__)
	t = START(NULL, BY_FORK);
	ioport_clear_all(&map);

	for (i = 0; i < ARRAY_SIZE(outside); i++) {
		EXPECT_EQ(-EINVAL, CALL(t, vt_here, fd, KDADDIO, outside[i]));
		EXPECT_EQ(-EINVAL, CALL(t, vt_here, fd, KDDELIO, outside[i]));
	}
	EXPECT_MAP(false);

	EXPECT_EQ(0, CALL(t, vt_here, fd, KDADDIO, VT_FIRST));
	ioport_set(&map, VT_FIRST, 1, true);
	EXPECT_MAP(true);
	EXPECT_EQ(0, CALL(t, vt_here, fd, KDADDIO, VT_LAST));
	ioport_set(&map, VT_LAST, 1, true);
	EXPECT_MAP(true);

	EXPECT_EQ(0, CALL(t, vt_here, fd, KDENABIO, 0));
	ioport_set(&map, VT_FIRST, VT_LAST + 1 - VT_FIRST, true);
	EXPECT_MAP(true);
	EXPECT_EQ(0, CALL(t, vt_here, fd, KDDELIO, VT_FIRST));
	ioport_set(&map, VT_FIRST, 1, false);
	EXPECT_MAP(true);

	/* Only these */
	EXPECT_EQ(0, CALL(t, ioperm_here, VT_FIRST - 1, 1, 1));
	EXPECT_EQ(0, CALL(t, ioperm_here, VT_LAST + 1, 1, 1));
	EXPECT_EQ(0, CALL(t, vt_here, fd, KDDISABIO, 0));
	ioport_set(&map, VT_FIRST - 1, VT_LAST + 3 - VT_FIRST, false);
	ioport_set(&map, VT_FIRST - 1, 1, true);
	ioport_set(&map, VT_LAST + 1, 1, true);
	EXPECT_MAP(true);

	/* As with ioperm(), everybody may give them back. */
	EXPECT_EQ(0, CALL(t, vt_here, fd, KDENABIO, 0));
	ASSERT_EQ(0, CALL(t, become_here, NOBODY, 0));
	EXPECT_EQ(0, CALL(t, vt_here, fd, KDDISABIO, 0));
	EXPECT_MAP(true);
	EXPECT_EQ(-ENXIO, CALL(t, vt_here, fd, KDENABIO, 0));
	EXPECT_EQ(-ENXIO, CALL(t, vt_here, fd, KDADDIO, VT_FIRST));
	EXPECT_MAP(true);
#undef EXPECT_MAP
}

/*
 * memory: a task that shares a bitmap and disables a port gets a copy
 */

FIXTURE(memory) {
	pid_t	guard;
	int	guard_fd;
};

static const char *read_file(const char *path)
{
	static char text[4096];
	int fd = open(path, O_RDONLY | O_CLOEXEC);
	ssize_t len = read(fd, text, sizeof(text) - 1);

	text[len > 0 ? len : 0] = '\0';
	close(fd);
	return text;
}

/* Go where cgroups are made. Returns why these have no memory controller. */
static const char *find_cgroups(void)
{
	struct mntent *mnt;
	bool found = false;
	FILE *file;

	file = setmntent("/proc/self/mounts", "r");
	while (file && !found && (mnt = getmntent(file)))
		found = !strcmp(mnt->mnt_type, "cgroup2") && !chdir(mnt->mnt_dir);
	endmntent(file);

	/* Ends with the test, which alone sees it */
	if (!found && (unshare(CLONE_NEWNS) ||
		       mount(NULL, "/", NULL, MS_REC | MS_PRIVATE, NULL) ||
		       mount(NULL, "/sys/fs/cgroup", "cgroup2", 0, NULL) ||
		       chdir("/sys/fs/cgroup")))
		return "cgroup2 neither is mounted nor can be";
	if (!strstr(read_file("cgroup.controllers"), "memory"))
		return "no memory controller in cgroup2";
	if (strstr(read_file("/proc/cmdline"), "nokmem"))
		return "cgroup.memory=nokmem: only user memory is charged";
	return NULL;
}

/* The working directory becomes a new cgroup, which is empty. */
FIXTURE_SETUP(memory)
{
	char name[64], file[96];
	const char *reason;
	bool enabled;
	int ret = 0;

	setup(_metadata);
	if (_metadata->exit_code)
		return;
	reason = find_cgroups();
	if (reason)
		SKIP(return, "%s", reason);

	enabled = strstr(read_file("cgroup.subtree_control"), "memory");
	/* That of nobody else is ever removed. */
	snprintf(name, sizeof(name), "ioperm_security.%d.%llx", test_pid,
		 (unsigned long long)now_ns());
	self->guard = fork_guard(&self->guard_fd);
	ASSERT_GE(self->guard, 0);
	if (!self->guard) {
		snprintf(file, sizeof(file), "%s/cgroup.kill", name);
		write_file(file, "1");
		while ((ret = rmdir(name)) && errno == EBUSY)
			usleep(1000);
		if (!enabled)
			write_file("cgroup.subtree_control", "-memory");
		_exit(ret ? KSFT_FAIL : KSFT_PASS);
	}

	if (!enabled)
		ret = write_file("cgroup.subtree_control", "+memory");
	if (!ret && (mkdir(name, 0700) || chdir(name)))
		ret = -errno;
	if (ret)
		SKIP(return, "no cgroup with a memory controller: %s",
		     strerror(-ret));
}

FIXTURE_TEARDOWN(memory)
{
	int status;

	EXPECT_EQ(1, write(self->guard_fd, "", 1));
	EXPECT_EQ(self->guard, waitpid(self->guard, &status, 0));
	EXPECT_EQ(0, status)
		TH_LOG("the cgroup cannot be removed");
}

/* Charged to the cgroup is what the task allocates from now on. */
static long enter_cgroup_here(long unused1, long unused2, long unused3)
{
	return write_file("cgroup.procs", "0");
}

/* A CPU charges up to 256 KB in advance, and all tasks are on one. */
TEST_F(memory, copy_is_charged)
{
	struct task *p, *t[NR_COPIES];
	long before, grown;
	int i;

	/* A copy has all lines then, 8 KB. None of these ports is touched. */
	p = START(NULL, BY_FORK);
	ASSERT_EQ(0, CALL(p, ioperm_here, 0, 2, 1));
	ASSERT_EQ(0, CALL(p, ioperm_here, IOPORT_NR - 1, 1, 1));
	ASSERT_EQ(0, CALL(p, enter_cgroup_here));
	for (i = 0; i < NR_COPIES; i++) {
		t[i] = START(p, BY_FORK);
		ASSERT_EQ(0, CALL(t[i], become_here, NOBODY, 0));
		/* What else it takes to call it */
		ASSERT_EQ(-EINVAL, CALL(t[i], ioperm_here, 0, 0, 0));
	}

	before = atol(read_file("memory.current"));
	for (i = 0; i < NR_COPIES; i++)
		ASSERT_EQ(0, CALL(t[i], ioperm_here, 1, 1, 0));
	grown = atol(read_file("memory.current")) - before;
	EXPECT_GE(grown, NR_COPIES * 8192)
		TH_LOG("%ld bytes for %d bitmaps", grown, NR_COPIES);
}

/* It needs no more memory later on, and is not killed for want of it. */
static long settle_here(long unused1, long unused2, long unused3)
{
	char stack[STACK_SIZE];

	memset(stack, 1, sizeof(stack));
	asm volatile ("" : : "r" (stack) : "memory");
	if (mlockall(MCL_CURRENT))
		return -errno;
	return write_file("/proc/self/oom_score_adj", "-1000");
}

/* The kernel log shows that nobody can be killed, with a call trace. */
TEST_F(memory, limit_refuses_copy)
{
	struct task *t;
	long ret;

	if (atol(read_file("/proc/sys/vm/panic_on_oom")) == 2)
		SKIP(return, "vm.panic_on_oom=2: a limit would be a panic");

	ASSERT_EQ(0, CALL(NULL, set_here, LOW | MID | HIGH));
	t = START(NULL, BY_FORK);
	ret = CALL(t, settle_here);
	if (ret)
		SKIP(return, "no task that the OOM killer spares: %s",
		     strerror(-ret));
	ASSERT_EQ(0, CALL(t, enter_cgroup_here));
	ASSERT_EQ(0, CALL(t, become_here, NOBODY, 0));
	EXPECT_PORTS(LOW | MID | HIGH, t);

	/* That takes back what the CPU has charged in advance. */
	ASSERT_EQ(0, write_file("memory.max", "0"));
	EXPECT_EQ(-ENOMEM, CALL(t, ioperm_here, pool[1], 1, 0));
	EXPECT_PORTS(LOW | MID | HIGH, t);

	ASSERT_EQ(0, write_file("memory.max", "max"));
	EXPECT_EQ(0, CALL(t, ioperm_here, pool[1], 1, 0));
	EXPECT_PORTS(LOW | HIGH, t);
	EXPECT_PORTS(LOW | MID | HIGH, NULL);
}

int main(int argc, char **argv)
{
	return ioport_harness_run(argc, argv);
}
