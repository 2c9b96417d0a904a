// SPDX-License-Identifier: GPL-2.0
/*
 * ioperm_drop_race.c - nobody else gets I/O ports while a task drops them
 *
 * When a task gives up its last I/O permission the kernel does two things: it
 * clears TIF_IO_BITMAP of the task, and it invalidates the I/O bitmap in the
 * TSS of the CPU. The context switch only invalidates the TSS when the
 * outgoing task has TIF_IO_BITMAP set. A task that is preempted after the
 * first step and before the second one therefore hands its ports to whoever
 * runs next, and if it also migrates there, it invalidates the TSS of another
 * CPU and the hole stays open on the first one. The two steps must be one for
 * the scheduler; this test looks for the window between them.
 *
 * Four ways to drop lead there, each is a case of its own:
 *
 *  last-port  ioperm() takes the only port away.
 *  unshare    ioperm() changes a bitmap that is shared with a child, so that
 *             the reference on the shared bitmap is dropped in mid-call.
 *  iopl       iopl(3) goes back to iopl(0).
 *  exit       A task which has a port exits.
 *
 * The dropper repeats that as a normal task. An observer, pinned to the same
 * CPU, runs as SCHED_FIFO with uid 65534 and no capabilities, and has never
 * called ioperm() or iopl(). It sleeps on a timer and tries one inb whenever
 * it wakes up. In the cases named *-migrate there is an observer on each of
 * two CPUs and a mover, which sends the dropper to the other CPU whenever an
 * observer has preempted it.
 *
 * The window is very short, it can be a single instruction boundary. The
 * dropper therefore sets the observer's timer so that it expires at a random
 * point of the drop, whose duration was measured before. Every eighth time it
 * expires after 20 to 50 us, which is anywhere in the dropper's loop.
 *
 * Allowed outcomes:
 *  pass  Each observer woke up as often as asked for, the dropper dropped (and
 *        moved, if it was meant to), and every single inb was refused.
 *  fail  An inb succeeded, or the case did not get as far as above.
 *  skip  Something is missing, the reason is given. With all cases skipped
 *        the exit code is 4.
 *
 * Zero hits prove nothing by themselves: they count only if a kernel that has
 * the window is hit with the same settings on the same machine. Under QEMU's
 * TCG, interrupts are taken between translation blocks and the window is
 * usually inside of one, so that it may never be hit. With one guest CPU and
 * -icount shift=0,sleep=off it is hit in seconds. Do not use that with more
 * CPUs: to see the *-migrate cases fail there, give them a kernel with a delay
 * put into the window.
 *
 * A kernel that is not preemptible has no such window.
 *
 * Ports: the only port that is ever touched is 0x80, the POST code port, which
 * is harmless on bare metal. The unshare case is also permitted to use 0xed,
 * which serves as an alternative delay port, and iopl(3) permits all of them,
 * but none of these is touched.
 *
 * Options: --wakes N, --seed N, --case NAME, see --help. Without --wakes a case
 * ends after three seconds at the latest if it got a minimum of wakes by then,
 * so that slow machines (KSFT_MACHINE_SLOW) need no other default. To tell a
 * fixed kernel from an unfixed one in all cases takes more: --wakes 200000.
 */
#define _GNU_SOURCE
#include <errno.h>
#include <fcntl.h>
#include <getopt.h>
#include <grp.h>
#include <sched.h>
#include <signal.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/eventfd.h>
#include <sys/io.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/resource.h>
#include <sys/syscall.h>
#include <sys/timerfd.h>
#include <sys/wait.h>
#include <time.h>
#include <ucontext.h>
#include <unistd.h>

#include <linux/capability.h>
#include <linux/time_types.h>

#include "helpers.h"

#define PORT			0x80
#define UNTOUCHED_PORT		0xed

/* Without --wakes a case also ends by time, but not below the minimum. */
#define DEFAULT_WAKES		50000
#define MIN_WAKES		100
#define DEFAULT_CASE_NS		(3 * NSEC_PER_SEC)

#define OBSERVER_UID		65534
#define OBSERVER_PRIO		2
#define MOVER_PRIO		1

/* How short a timer may be. */
#define SETTLE_NS		2000

/* One sleep of so many is not aimed at the drop, but that long. */
#define UNAIMED_RATIO		8
#define SLEEP_MIN_NS		20000
#define SLEEP_MAX_NS		50000

#define MAX_CPUS		2
#define CALIBRATION_ROUNDS	64
#define NSEC_PER_SEC		1000000000ULL

/* An observer that is not woken up for that long gives up. */
#define STALL_SECS		30
#define WAKES_PER_ALARM		256

/* A realtime task that does not sleep for that long is killed. */
#define RT_LIMIT_USECS		2000000

#ifdef __x86_64__
#define REG_IP			REG_RIP
#define SYS_TIMERFD_SETTIME	SYS_timerfd_settime
#else
#define REG_IP			REG_EIP
/* The C library may use the other one, which needs COMPAT_32BIT_TIME. */
#define SYS_TIMERFD_SETTIME	SYS_timerfd_settime64
#endif

#define INB_DX_OPCODE		0xec
#define X86_TRAP_GP		13

struct drop_case {
	const char	*name;
	/* One round: get permissions, start the timers, drop them. */
	int		(*round)(void);
	/* The dropper has PORT from the beginning and keeps it. */
	bool		keeps_port;
	bool		migrate;
};

/* Shared by all tasks of a case. */
static struct shared {
	uint32_t	wakes[MAX_CPUS];
	uint32_t	hits[MAX_CPUS];
	uint32_t	open_before[MAX_CPUS];
	uint32_t	done[MAX_CPUS];
	uint32_t	drops;
	uint32_t	moves;
	/* The dropper and its child, for the movers, and where it drops. */
	pid_t		tid[2];
	int		cpu;
} *shm;

static unsigned int nr_wakes = DEFAULT_WAKES;
static unsigned int min_wakes = MIN_WAKES;
static uint32_t seed;
static const char *only_case;

static int cpus[MAX_CPUS];
static int nr_cpus;

/* Set up for each case before it forks. */
static int nr_observers;
static int timer_fd[MAX_CPUS];
static int mover_fd[MAX_CPUS];

#define load(x)		__atomic_load_n(&(x), __ATOMIC_ACQUIRE)
#define store(x, v)	__atomic_store_n(&(x), v, __ATOMIC_RELEASE)

static uint32_t denied;

static void on_sigsegv(int sig, siginfo_t *si, void *context)
{
	ucontext_t *ctx = context;
	greg_t *regs = ctx->uc_mcontext.gregs;

	if (regs[REG_TRAPNO] != X86_TRAP_GP ||
	    *(uint8_t *)regs[REG_IP] != INB_DX_OPCODE) {
		clearhandler(SIGSEGV);
		return;
	}

	/* The instruction is one byte long, go on behind it. */
	regs[REG_IP]++;
	store(denied, 1);
}

static bool port_is_open(void)
{
	uint8_t val;

	store(denied, 0);
	asm volatile ("inb %%dx, %%al" : "=a" (val) : "d" (PORT) : "memory");
	return !load(denied);
}

static uint64_t now_ns(void)
{
	struct timespec ts;

	clock_gettime(CLOCK_MONOTONIC, &ts);
	return ts.tv_sec * NSEC_PER_SEC + ts.tv_nsec;
}

static uint32_t rnd_state;

static uint32_t rnd(uint32_t limit)
{
	rnd_state ^= rnd_state << 13;
	rnd_state ^= rnd_state >> 17;
	rnd_state ^= rnd_state << 5;
	return rnd_state % limit;
}

static int pin_to(int cpu)
{
	cpu_set_t set;

	CPU_ZERO(&set);
	CPU_SET(cpu, &set);
	return sched_setaffinity(0, sizeof(set), &set);
}

static void die_with(pid_t parent)
{
	prctl(PR_SET_PDEATHSIG, SIGKILL);
	/* The parent may have been gone before that call. */
	if (getppid() != parent)
		_exit(KSFT_FAIL);
}

static int become_fifo(int prio)
{
	const struct rlimit limit = { RT_LIMIT_USECS, RT_LIMIT_USECS };
	const struct sched_param param = { .sched_priority = prio };

	/* If all else fails, this keeps a FIFO task from hanging the CPU. */
	if (setrlimit(RLIMIT_RTTIME, &limit))
		return -1;
	return sched_setscheduler(0, SCHED_FIFO, &param);
}

static int drop_privileges(void)
{
	struct __user_cap_header_struct hdr = {
		.version = _LINUX_CAPABILITY_VERSION_3,
	};
	struct __user_cap_data_struct data[2];

	if (setgroups(0, NULL) ||
	    setresgid(OBSERVER_UID, OBSERVER_UID, OBSERVER_UID) ||
	    setresuid(OBSERVER_UID, OBSERVER_UID, OBSERVER_UID))
		return -1;

	if (syscall(SYS_capget, &hdr, data))
		return -1;
	if (data[0].permitted || data[1].permitted ||
	    data[0].effective || data[1].effective) {
		errno = EPERM;
		return -1;
	}
	return 0;
}

/*
 * The dropper
 */

static uint32_t armed[MAX_CPUS];
static uint64_t drop_begin;
static uint32_t drop_samples[CALIBRATION_ROUNDS];
static uint32_t set_samples[CALIBRATION_ROUNDS];
static unsigned int rounds;
static uint32_t drop_ns;
static uint32_t settle_ns;
static int last_cpu;

static void set_timer(int nr, uint64_t expires)
{
	struct __kernel_itimerspec its = {
		.it_value.tv_sec	= expires / NSEC_PER_SEC,
		.it_value.tv_nsec	= expires % NSEC_PER_SEC,
	};

	if (syscall(SYS_TIMERFD_SETTIME, timer_fd[nr], TFD_TIMER_ABSTIME, &its,
		    NULL)) {
		ksft_perror("timerfd_settime");
		_exit(KSFT_FAIL);
	}
}

/* Returns whether an observer was there to be woken up. */
static bool start_timers(uint64_t expires)
{
	bool started = false;
	int i;

	for (i = 0; i < nr_observers; i++) {
		uint32_t wakes = load(shm->wakes[i]);

		/* Its timer is running, or it has seen enough. */
		if (wakes != armed[i] || load(shm->done[i]))
			continue;
		set_timer(i, expires);
		armed[i] = wakes + 1;
		started = true;
	}
	return started;
}

/*
 * Called directly before the drop: make the timers expire within it. The drop
 * waits a little, as it takes time to set them, and as there are limits to how
 * short a timer can be.
 */
static void drop_prepare(void)
{
	uint64_t now = now_ns();
	uint64_t begin = now + settle_ns;
	int cpu, i;

	cpu = sched_getcpu();
	if (cpu != last_cpu)
		store(shm->moves, shm->moves + 1);
	last_cpu = cpu;
	store(shm->cpu, cpu);

	if (rounds < CALIBRATION_ROUNDS) {
		/* So late that it is set anew before. */
		set_timer(0, now + 1000 * NSEC_PER_SEC);
		set_samples[rounds] = now_ns() - now;
	} else if (!rnd(UNAIMED_RATIO)) {
		start_timers(begin + SLEEP_MIN_NS +
			     rnd(SLEEP_MAX_NS - SLEEP_MIN_NS + 1));
	} else if (start_timers(begin + rnd(drop_ns))) {
		while (now_ns() < begin)
			;
	}
	drop_begin = now_ns();

	/*
	 * Clocks and timers go in steps of several instructions. Vary what
	 * comes before the drop in units of one.
	 */
	for (i = rnd(32); i; i--)
		asm volatile ("nop");
}

static int cmp_u32(const void *a, const void *b)
{
	uint32_t x = *(const uint32_t *)a;
	uint32_t y = *(const uint32_t *)b;

	return x < y ? -1 : x > y;
}

static uint32_t median(uint32_t *samples)
{
	qsort(samples, CALIBRATION_ROUNDS, sizeof(*samples), cmp_u32);
	return samples[CALIBRATION_ROUNDS / 2];
}

/* Called directly after the drop: the first ones tell how long it takes. */
static void drop_done(void)
{
	uint64_t end = now_ns();

	store(shm->drops, shm->drops + 1);
	if (rounds >= CALIBRATION_ROUNDS)
		return;

	drop_samples[rounds++] = end - drop_begin;
	if (rounds < CALIBRATION_ROUNDS)
		return;
	drop_ns = median(drop_samples) + 1;
	settle_ns = SETTLE_NS + 2 * nr_observers * median(set_samples);
}

static int drop_last_port(void)
{
	int ret;

	if (ioperm(PORT, 1, 1))
		return -1;
	drop_prepare();
	ret = ioperm(PORT, 1, 0);
	drop_done();
	return ret;
}

static int drop_iopl(void)
{
	int ret;

	if (iopl(3))
		return -1;
	drop_prepare();
	ret = iopl(0);
	drop_done();
	return ret;
}

/*
 * The children share the address space with the dropper: there is much less to
 * tear down, and the time of the drop varies less.
 */
static pid_t clone_child(int (*fn)(void *), void *arg)
{
	static long double stack[4096];

	return clone(fn, stack + ARRAY_SIZE(stack),
		     CLONE_VM | CLONE_FS | CLONE_FILES | CLONE_PARENT_SETTID |
		     SIGCHLD, arg, &shm->tid[1]);
}

static int reap_child(pid_t pid)
{
	if (waitpid(pid, NULL, 0) != pid)
		return -1;
	store(shm->tid[1], 0);
	return 0;
}

static int bitmap_sharer(void *parent)
{
	die_with((pid_t)(long)parent);
	for (;;)
		pause();
	return 0;
}

static int drop_unshare(void)
{
	pid_t pid;
	int ret;

	if (ioperm(UNTOUCHED_PORT, 1, 1))
		return -1;
	pid = clone_child(bitmap_sharer, (void *)(long)getpid());
	if (pid < 0)
		return -1;

	drop_prepare();
	ret = ioperm(UNTOUCHED_PORT, 1, 0);
	drop_done();

	/*
	 * A task that is killed in its sleep does not return to user mode, so
	 * its bitmap is not in the TSS when it exits. The unsharing above is
	 * the only window of this case.
	 */
	kill(pid, SIGKILL);
	return reap_child(pid) ? -1 : ret;
}

static int exiting_child(void *unused)
{
	drop_prepare();
	return 0;
}

static int drop_exit(void)
{
	pid_t pid;

	pid = clone_child(exiting_child, NULL);
	if (pid < 0)
		return -1;
	if (reap_child(pid))
		return -1;
	drop_done();
	return 0;
}

static bool observers_done(void)
{
	int i;

	for (i = 0; i < nr_observers; i++) {
		if (!load(shm->done[i]))
			return false;
	}
	return true;
}

static int run_dropper(const struct drop_case *c, pid_t parent)
{
	die_with(parent);
	if (pin_to(cpus[0])) {
		ksft_perror("dropper: sched_setaffinity");
		return KSFT_FAIL;
	}
	last_cpu = cpus[0];
	rnd_state = seed;
	store(shm->tid[0], getpid());

	if (c->keeps_port && ioperm(PORT, 1, 1)) {
		ksft_perror("dropper: ioperm");
		return KSFT_FAIL;
	}
	while (!observers_done()) {
		if (c->round()) {
			ksft_perror("dropper: get and drop");
			return KSFT_FAIL;
		}
	}
	ksft_print_msg("%s: a drop takes %u ns, setting the timers up to %u ns\n",
		       c->name, drop_ns, settle_ns);
	return KSFT_PASS;
}

/*
 * The observer
 */

static int run_observer(int nr, int ready_fd, bool migrate, pid_t parent)
{
	const uint64_t one = 1;
	uint64_t expirations;
	uint64_t deadline;
	uint32_t n;

	if (pin_to(cpus[nr]) || become_fifo(OBSERVER_PRIO) ||
	    drop_privileges()) {
		ksft_perror("observer: setup");
		return KSFT_FAIL;
	}
	/* Only now, a change of the credentials resets it. */
	die_with(parent);
	sethandler(SIGSEGV, on_sigsegv, 0);

	alarm(STALL_SECS);
	store(shm->open_before[nr], port_is_open());
	if (write(ready_fd, "", 1) != 1)
		return KSFT_FAIL;
	close(ready_fd);

	deadline = now_ns() + DEFAULT_CASE_NS;
	for (n = 1; n <= nr_wakes; n++) {
		if (!(n % WAKES_PER_ALARM))
			alarm(STALL_SECS);
		if (read(timer_fd[nr], &expirations, sizeof(expirations)) !=
		    sizeof(expirations)) {
			ksft_perror("observer: timer");
			return KSFT_FAIL;
		}
		if (port_is_open())
			store(shm->hits[nr], shm->hits[nr] + 1);
		if (n == nr_wakes || (n >= min_wakes && now_ns() >= deadline))
			store(shm->done[nr], 1);
		store(shm->wakes[nr], n);
		if (shm->done[nr])
			break;

		/* The mover runs when this task sleeps, before the dropper. */
		if (!migrate || load(shm->cpu) != cpus[nr])
			continue;
		if (write(mover_fd[nr], &one, sizeof(one)) < 0) {
			ksft_perror("observer: wake the mover");
			return KSFT_FAIL;
		}
	}
	return KSFT_PASS;
}

/*
 * The mover: one on each CPU. What it finds there goes to the other one.
 */

static int run_mover(int nr, pid_t parent)
{
	cpu_set_t other;
	uint64_t count;
	pid_t tid;
	int i;

	die_with(parent);
	if (pin_to(cpus[nr]) || become_fifo(MOVER_PRIO)) {
		ksft_perror("mover: setup");
		return KSFT_FAIL;
	}
	CPU_ZERO(&other);
	CPU_SET(cpus[!nr], &other);

	while (read(mover_fd[nr], &count, sizeof(count)) == sizeof(count)) {
		/* The child first, it is the one that exits. */
		for (i = 1; i >= 0; i--) {
			tid = load(shm->tid[i]);
			if (tid)
				sched_setaffinity(tid, sizeof(other), &other);
		}
	}
	ksft_perror("mover");
	return KSFT_FAIL;
}

/*
 * The parent of them all
 */

/* A dropper that is not preempted leaves an invalidated TSS behind. */
static void close_ports(int cpu)
{
	pid_t pid = fork();

	if (!pid) {
		if (pin_to(cpu) || ioperm(PORT, 1, 1) || ioperm(PORT, 1, 0))
			_exit(KSFT_FAIL);
		_exit(KSFT_PASS);
	}
	if (pid > 0)
		waitpid(pid, NULL, 0);
}

static void print_status(const char *who, int status)
{
	if (WIFSIGNALED(status))
		ksft_print_msg("%s: killed by signal %d%s\n", who,
			       WTERMSIG(status),
			       WTERMSIG(status) == SIGALRM ? ", stalled" : "");
	else if (WEXITSTATUS(status))
		ksft_print_msg("%s: exit code %d\n", who, WEXITSTATUS(status));
}

static void run_case(const struct drop_case *c)
{
	int nr_movers = c->migrate ? MAX_CPUS : 0;
	pid_t pids[MAX_CPUS * 2 + 1] = { };
	const int nr_pids = ARRAY_SIZE(pids);
	pid_t parent = getpid();
	int ready[2], i, status;
	bool failed = false;
	int running = 0;
	pid_t pid;
	char byte;

	nr_observers = c->migrate ? MAX_CPUS : 1;
	memset(shm, 0, sizeof(*shm));

	if (pipe(ready))
		ksft_exit_fail_perror("pipe");
	for (i = 0; i < nr_observers; i++) {
		timer_fd[i] = timerfd_create(CLOCK_MONOTONIC, 0);
		mover_fd[i] = eventfd(0, 0);
		if (timer_fd[i] < 0 || mover_fd[i] < 0)
			ksft_exit_fail_perror("timerfd, eventfd");
	}

	for (i = 0; i < nr_observers + nr_movers; i++) {
		pids[i] = fork();
		if (pids[i] < 0)
			ksft_exit_fail_perror("fork");
		if (pids[i])
			continue;
		close(ready[0]);
		if (i < nr_observers)
			_exit(run_observer(i, ready[1], c->migrate, parent));
		close(ready[1]);
		_exit(run_mover(i - nr_observers, parent));
	}

	/* No drop before each observer is in place, or has given up. */
	close(ready[1]);
	for (i = 0; i < nr_observers; i++) {
		if (read(ready[0], &byte, 1) != 1)
			failed = true;
	}
	close(ready[0]);

	if (!failed) {
		pid = fork();
		if (pid < 0)
			ksft_exit_fail_perror("fork");
		if (!pid)
			_exit(run_dropper(c, parent));
		pids[nr_observers + nr_movers] = pid;
		running = nr_observers + 1;
	}

	/* The observers and the dropper end by themselves. */
	while (running && !failed) {
		pid = waitpid(-1, &status, 0);
		if (pid < 0)
			ksft_exit_fail_perror("waitpid");
		for (i = 0; i < nr_pids; i++) {
			if (pids[i] != pid)
				continue;
			pids[i] = 0;
			running--;
			print_status(i < nr_observers ? "observer" :
				     i < nr_observers + nr_movers ? "mover" :
				     "dropper", status);
			if (status)
				failed = true;
		}
	}

	/* All that is left, and as a subreaper also what the dropper left. */
	for (i = 0; i < nr_pids; i++) {
		if (pids[i])
			kill(pids[i], SIGKILL);
	}
	while (waitpid(-1, &status, __WALL) > 0)
		;

	for (i = 0; i < nr_observers; i++) {
		close(timer_fd[i]);
		close(mover_fd[i]);
		close_ports(cpus[i]);

		ksft_print_msg("%s: CPU %d: wakes %u hits %u\n", c->name,
			       cpus[i], shm->wakes[i], shm->hits[i]);
		if (shm->open_before[i]) {
			ksft_print_msg("port open before the first drop\n");
			failed = true;
		}
		if (shm->wakes[i] < min_wakes) {
			ksft_print_msg("at least %u wakes wanted\n", min_wakes);
			failed = true;
		}
		if (shm->hits[i])
			failed = true;
	}
	ksft_print_msg("%s: drops %u moves %u\n", c->name, shm->drops,
		       shm->moves);
	/* The drops that time it come before those that are watched. */
	if (shm->drops <= CALIBRATION_ROUNDS) {
		ksft_print_msg("the dropper did not drop\n");
		failed = true;
	}
	if (c->migrate && !shm->moves) {
		ksft_print_msg("the dropper did not move\n");
		failed = true;
	}
	ksft_test_result(!failed, "%s\n", c->name);
}

static bool is_locked_down(void)
{
	char buf[64] = { };
	ssize_t len = 0;
	int fd;

	fd = open("/sys/kernel/security/lockdown", O_RDONLY);
	if (fd < 0)
		return false;
	len = read(fd, buf, sizeof(buf) - 1);
	close(fd);
	return len > 0 && !strstr(buf, "[none]");
}

/* Tried in a child: this task and the observers never ask for a port. */
static int try_in_child(int (*fn)(void))
{
	int status;
	pid_t pid;

	pid = fork();
	if (pid < 0)
		ksft_exit_fail_perror("fork");
	if (!pid)
		_exit(fn() ? errno : 0);
	if (waitpid(pid, &status, 0) != pid || !WIFEXITED(status))
		ksft_exit_fail_msg("the child that tries what works died\n");
	return WEXITSTATUS(status);
}

static int get_ports(void)
{
	if (iopl(3))
		return -1;
	return ioperm(PORT, 1, 1);
}

static int get_fifo(void)
{
	return become_fifo(OBSERVER_PRIO);
}

static const char *why_not(void)
{
	int error = try_in_child(get_ports);

	if (error == EPERM)
		return is_locked_down() ? "the kernel is locked down" :
					  "ioperm() needs CAP_SYS_RAWIO";
	if (error)
		return strerror(error);
	if (try_in_child(get_fifo))
		return "SCHED_FIFO refused";
	if (try_in_child(drop_privileges))
		return "cannot become an unprivileged user";
	return NULL;
}

static const struct drop_case drop_cases[] = {
	{ "last-port",		drop_last_port,	false,	false },
	{ "unshare",		drop_unshare,	true,	false },
	{ "iopl",		drop_iopl,	false,	false },
	{ "exit",		drop_exit,	true,	false },
	{ "last-port-migrate",	drop_last_port,	false,	true },
	{ "unshare-migrate",	drop_unshare,	true,	true },
	{ "iopl-migrate",	drop_iopl,	false,	true },
	{ "exit-migrate",	drop_exit,	true,	true },
};

static bool is_wanted(const struct drop_case *c)
{
	return !only_case || !strcmp(only_case, c->name);
}

static void usage(int code)
{
	unsigned int i;

	printf("Usage: ioperm_drop_race [--wakes N] [--seed N] [--case NAME]\n"
	       "  --wakes N    wakes of each observer in each case, by default\n"
	       "               %u, or as many as there are in 3 seconds\n"
	       "  --seed N     start of the random numbers, not 0\n"
	       "  --case NAME  only this case:\n", DEFAULT_WAKES);
	for (i = 0; i < ARRAY_SIZE(drop_cases); i++)
		printf("\t%s\n", drop_cases[i].name);
	exit(code);
}

static uint32_t parse_number(const char *s)
{
	unsigned long val;
	char *end;

	errno = 0;
	val = strtoul(s, &end, 0);
	if (errno || *end || end == s || *s == '-' || !val || val > INT32_MAX)
		usage(KSFT_FAIL);
	return val;
}

static void parse_options(int argc, char **argv)
{
	static const struct option options[] = {
		{ "wakes",	required_argument,	NULL, 'w' },
		{ "seed",	required_argument,	NULL, 's' },
		{ "case",	required_argument,	NULL, 'c' },
		{ "help",	no_argument,		NULL, 'h' },
		{ }
	};
	int opt;

	/* Must not be 0, or all that follows is 0 too. */
	seed = (now_ns() ^ getpid()) & INT32_MAX;
	seed |= 1;

	while ((opt = getopt_long(argc, argv, "", options, NULL)) != -1) {
		switch (opt) {
		case 'w':
			nr_wakes = parse_number(optarg);
			min_wakes = nr_wakes;
			break;
		case 's':
			seed = parse_number(optarg);
			break;
		case 'c':
			only_case = optarg;
			break;
		default:
			usage(opt == 'h' ? KSFT_PASS : KSFT_FAIL);
		}
	}
	if (optind != argc)
		usage(KSFT_FAIL);
}

int main(int argc, char **argv)
{
	const char *reason;
	cpu_set_t allowed;
	int planned = 0;
	unsigned int i;

	parse_options(argc, argv);
	for (i = 0; i < ARRAY_SIZE(drop_cases); i++)
		planned += is_wanted(&drop_cases[i]);
	if (!planned)
		usage(KSFT_FAIL);

	ksft_print_header();
	ksft_set_plan(planned);
	ksft_print_msg("seed %u, %u to %u wakes\n", seed, min_wakes, nr_wakes);

	/* Whoever started this may have had ports, they are inherited. */
	ioperm(0, 65536, 0);
	iopl(0);

	if (sched_getaffinity(0, sizeof(allowed), &allowed))
		ksft_exit_fail_perror("sched_getaffinity");
	for (i = 0; i < CPU_SETSIZE && nr_cpus < MAX_CPUS; i++) {
		if (CPU_ISSET(i, &allowed))
			cpus[nr_cpus++] = i;
	}

	shm = mmap(NULL, sizeof(*shm), PROT_READ | PROT_WRITE,
		   MAP_SHARED | MAP_ANONYMOUS, -1, 0);
	if (shm == MAP_FAILED)
		ksft_exit_fail_perror("mmap");
	if (prctl(PR_SET_CHILD_SUBREAPER, 1))
		ksft_exit_fail_perror("PR_SET_CHILD_SUBREAPER");

	reason = why_not();
	for (i = 0; i < ARRAY_SIZE(drop_cases); i++) {
		const struct drop_case *c = &drop_cases[i];

		if (!is_wanted(c))
			continue;
		if (reason)
			ksft_test_result_skip("%s: %s\n", c->name, reason);
		else if (c->migrate && nr_cpus < MAX_CPUS)
			ksft_test_result_skip("%s: needs two CPUs\n", c->name);
		else
			run_case(c);
	}

	if (ksft_get_xskip_cnt() == planned) {
		ksft_print_cnts();
		return KSFT_SKIP;
	}
	ksft_finished();
}
