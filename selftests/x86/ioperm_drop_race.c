// SPDX-License-Identifier: GPL-2.0
/*
 * Nobody else gets I/O ports while a task drops them
 *
 * To drop the last port, the kernel clears TIF_IO_BITMAP and invalidates the I/O
 * bitmap in the TSS of the CPU, which the context switch does only if the
 * outgoing task has the flag. A task that is preempted between the two steps
 * hands its ports to whoever runs next, and leaves them there if it migrates.
 *
 * A dropper gives up ports again and again: ioperm() disables the only port, or
 * changes a bitmap that is shared, iopl(3) goes back to iopl(0), or a task that
 * has a port exits. An observer without privileges, which never had a port, runs
 * on the same CPU as SCHED_FIFO. It sleeps on a timer and tries to read port 0x80
 * whenever it wakes up. Each read must be refused. In the cases called *-migrate
 * each of two CPUs has an observer, which sends the dropper to the other CPU
 * whenever it has preempted it, and stays root for that.
 *
 * That no read succeeds proves something only if a preemptible kernel that has
 * the window is hit with the same settings on the same machine. QEMU's TCG may
 * never hit it, but does with one CPU and -icount shift=0,sleep=off. By default a
 * case ends after a second. More tells more, such as --wakes 200000.
 */
#define _GNU_SOURCE
#include <sys/mman.h>
#include <sys/timerfd.h>

#include "ioport_helper.h"

#define PORT			IOPORT_POST
/* Another delay port: enabled, but never touched */
#define OTHER_PORT		IOPORT_DELAY

/* A 32 bit C library may use the call with 32 bit times, which a kernel may lack. */
#ifdef __NR_timerfd_settime64
#define NR_SETTIME		__NR_timerfd_settime64
#else
#define NR_SETTIME		__NR_timerfd_settime
#endif

#define NSEC_PER_SEC		1000000000ULL
#define MAX_CPUS		2
/* How short a timer may be */
#define MIN_SETTLE_NS		2000
/* An observer that is not woken up for that long is killed. */
#define STALL_SECONDS		30

enum way { LAST_PORT, UNSHARE, IOPL, EXIT, NR_WAYS };

static const char * const ways[] = { "last-port", "unshare", "iopl", "exit" };

/* Shared by all tasks of a case */
static struct shared {
	uint32_t	wakes[MAX_CPUS], hits[MAX_CPUS];
	uint32_t	moves;
	/* Why an observer cannot be one */
	int		error;
	/* How long a drop takes at least, and how long before it the timers are set */
	uint32_t	drop_ns, settle_ns;
	/* The dropper and its child, and the CPU where they are */
	pid_t		tid[2];
	int		cpu;
} *shm;

/* Without --wakes a case ends after a second, but not with fewer wakes than that. */
static uint32_t nr_wakes = 50000, min_wakes = 20, rnd_state;
static int cpus[MAX_CPUS], nr_observers, timer_fd[MAX_CPUS];

static uint64_t now_ns(void)
{
	struct timespec ts;

	clock_gettime(CLOCK_MONOTONIC, &ts);
	return ts.tv_sec * NSEC_PER_SEC + ts.tv_nsec;
}

static uint32_t rnd(uint32_t limit)
{
	rnd_state ^= rnd_state << 13;
	rnd_state ^= rnd_state >> 17;
	rnd_state ^= rnd_state << 5;
	return rnd_state % limit;
}

static void set_timer(int nr, uint64_t expires)
{
	int64_t its[] = { 0, 0, expires / NSEC_PER_SEC, expires % NSEC_PER_SEC };

	if (syscall(NR_SETTIME, timer_fd[nr], TFD_TIMER_ABSTIME, its, NULL))
		ksft_exit_fail_perror("timerfd_settime");
}

static uint64_t drop_begin;

/*
 * Called directly before the drop: make timers that do not run expire at a random
 * point of it, as the window can be as short as one instruction. Every eighth time
 * they do so later, anywhere in the loop.
 */
static void before_drop(void)
{
	static uint32_t armed[MAX_CPUS];
	uint64_t begin = now_ns() + shm->settle_ns;
	uint32_t later = rnd(8) ? 0 : 20000 + rnd(30001), turns;
	int i, cpu = sched_getcpu();
	bool wait = false;

	shm->moves += cpu != shm->cpu;
	ioport_store(shm->cpu, cpu);
	for (i = 0; i < nr_observers; i++) {
		/* Is its timer running, or has it ended? */
		if (ioport_load(shm->wakes[i]) != armed[i])
			continue;
		set_timer(i, begin + (later ?: rnd(shm->drop_ns + 1)));
		armed[i]++;
		wait = !later;
	}
	/* It takes time to set them: mostly it is just enough. */
	if (wait && now_ns() > begin)
		shm->settle_ns += 200;
	else if (wait && shm->settle_ns > MIN_SETTLE_NS)
		shm->settle_ns--;
	while (wait && now_ns() < begin)
		;
	drop_begin = now_ns();

	/*
	 * A timer may go in steps of 16 ns, and an instruction take one. Then a
	 * window of one instruction is hit only if the time from here to it
	 * varies by any number, modulo 16. So a turn has an odd number of
	 * instructions. A compiler might unroll a loop in C.
	 */
	turns = rnd(32) + 1;
	asm volatile("1:\tnop\n\t"
		     "dec\t%0\n\t"
		     "jnz\t1b"
		     : "+r" (turns) : : "cc");
}

static void after_drop(void)
{
	uint64_t took = now_ns() - drop_begin;

	if (took < shm->drop_ns)
		shm->drop_ns = took;
}

static int change(enum way way, bool on)
{
	if (way == IOPL)
		return iopl(on ? 3 : 0);
	return ioperm(way == UNSHARE ? OTHER_PORT : PORT, 1, on);
}

/* A task that exits with a port, or that shares the bitmap until it is killed */
static int child_main(void *exits)
{
	if (exits)
		before_drop();
	else
		ioport_die_with_parent();
	while (!exits)
		pause();
	return 0;
}

static bool drop(enum way way)
{
	static long double stack[4096];
	pid_t pid = 0;
	int ret = 0;

	if (way != EXIT && change(way, true))
		return false;
	/* It shares the address space: less to tear down, and the time varies less. */
	if (way == EXIT || way == UNSHARE)
		pid = clone(child_main, stack + ARRAY_SIZE(stack), CLONE_VM | CLONE_FS |
			    CLONE_FILES | CLONE_PARENT_SETTID | SIGCHLD,
			    way == EXIT ? stack : NULL, &shm->tid[1]);
	if (way != EXIT) {
		before_drop();
		ret = change(way, false);
		after_drop();
	}
	/* In its sleep, so that its bitmap is not in the TSS when it exits. */
	if (way == UNSHARE && pid > 0)
		kill(pid, SIGKILL);
	if (pid && ioport_wait(pid) < 0)
		return false;
	ioport_store(shm->tid[1], 0);
	if (way == EXIT)
		after_drop();
	return !ret;
}

static int run_dropper(enum way way)
{
	if (ioport_pin(0, cpus[0]))
		return KSFT_FAIL;
	ioport_parent = getpid();
	ioport_store(shm->tid[0], getpid());
	shm->cpu = cpus[0];

	/* The port that is shared, or that a task exits with, is there all the time. */
	if (way == LAST_PORT || way == IOPL || !ioperm(PORT, 1, 1))
		while (drop(way))
			;
	ksft_perror("dropper: enable and disable");
	return KSFT_FAIL;
}

static int run_observer(int nr)
{
	bool migrate = nr_observers > 1;
	uint64_t expirations, end;
	uint32_t n = 0;
	int i;

	if (ioport_pin(0, cpus[nr]))
		return KSFT_FAIL;
	if (ioport_set_fifo() || (!migrate && ioport_become_nobody())) {
		shm->error = errno;
		return KSFT_SKIP;
	}

	end = now_ns() + NSEC_PER_SEC;
	while (n < nr_wakes && (n < min_wakes || now_ns() < end)) {
		alarm(STALL_SECONDS);
		if (read(timer_fd[nr], &expirations, sizeof(expirations)) < 0)
			return KSFT_FAIL;
		shm->hits[nr] += ioport_inb(PORT);
		ioport_store(shm->wakes[nr], ++n);

		/* The child first, it is the one that exits. */
		for (i = 1; migrate && i >= 0; i--) {
			if (ioport_load(shm->cpu) == cpus[nr] && ioport_load(shm->tid[i]))
				ioport_pin(shm->tid[i], cpus[!nr]);
		}
	}
	return KSFT_PASS;
}

static void run_case(const char *name, enum way way)
{
	bool failed = false, skipped = false;
	pid_t pids[MAX_CPUS + 1], pid;
	int i, status;

	memset(shm, 0, sizeof(*shm));
	shm->drop_ns = 100000;
	shm->settle_ns = MIN_SETTLE_NS;
	for (i = 0; i < nr_observers; i++) {
		timer_fd[i] = timerfd_create(CLOCK_MONOTONIC, 0);
		/* If that fails, it does so here and not in each child. */
		set_timer(i, 0);
	}
	for (i = 0; i <= nr_observers; i++) {
		pids[i] = ioport_fork();
		if (!pids[i])
			_exit(i < nr_observers ? run_observer(i) : run_dropper(way));
	}

	/* The observers end by themselves. */
	for (i = 0; i < nr_observers; i++) {
		status = ioport_wait(pids[i]);
		skipped |= status == KSFT_SKIP << 8;
		failed |= status && status != KSFT_SKIP << 8;
	}
	ioport_end(pids[nr_observers]);

	for (i = 0; i < nr_observers; i++) {
		/* A dropper that is not preempted leaves an invalidated TSS behind. */
		pid = ioport_fork();
		if (!pid)
			_exit(ioport_pin(0, cpus[i]) || ioperm(PORT, 1, 1) || ioperm(PORT, 1, 0));
		ioport_wait(pid);
		close(timer_fd[i]);
		ksft_print_msg("%s: CPU %d: wakes %u hits %u\n", name, cpus[i],
			       shm->wakes[i], shm->hits[i]);
		failed |= !!shm->hits[i];
	}
	ksft_print_msg("%s: a drop takes %u ns, timers are set %u ns before, moves %u\n", name,
		       shm->drop_ns, shm->settle_ns, shm->moves);
	/* Where it is sent to another CPU, it has to get there. */
	failed |= nr_observers > 1 && !skipped && !shm->moves;

	if (skipped && !failed)
		ksft_test_result_skip("%s: SCHED_FIFO or unprivileged user: %s\n", name,
				      strerror(shm->error));
	else
		ksft_test_result(!failed, "%s\n", name);
}

int main(int argc, char **argv)
{
	const char *reason, *only = NULL;
	uint32_t seed = now_ns() ^ getpid();
	char name[32];
	int i;

	ioport_init(&argc, argv);
	for (i = 1; i < argc; i += 2) {
		if (i + 1 < argc && !strcmp(argv[i], "--wakes")) {
			nr_wakes = strtoul(argv[i + 1], NULL, 0);
			min_wakes = nr_wakes;
		} else if (i + 1 < argc && !strcmp(argv[i], "--seed")) {
			seed = strtoul(argv[i + 1], NULL, 0);
		} else if (i + 1 < argc && !strcmp(argv[i], "--case")) {
			only = argv[i + 1];
		} else {
			ksft_exit_fail_msg("[--wakes N] [--seed N] [--case NAME]\n");
		}
	}

	ksft_print_header();
	ksft_set_plan(only ? 1 : 2 * NR_WAYS);
	ksft_print_msg("seed %u, %u to %u wakes\n", seed, min_wakes, nr_wakes);
	/* If it were 0, all that follows would be 0, too. */
	rnd_state = seed | 1;

	reason = ioport_setup();
	cpus[0] = ioport_cpu(0);
	cpus[1] = ioport_cpu(1);
	shm = mmap(NULL, sizeof(*shm), PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
	if (shm == MAP_FAILED)
		ksft_exit_fail_perror("mmap");

	for (i = 0; i < 2 * NR_WAYS; i++) {
		nr_observers = i / NR_WAYS + 1;
		sprintf(name, "%s%s", ways[i % NR_WAYS], nr_observers > 1 ? "-migrate" : "");
		if (only && strcmp(only, name))
			continue;
		if (reason)
			ksft_test_result_skip("%s: %s\n", name, reason);
		else if (cpus[nr_observers - 1] < 0)
			ksft_test_result_skip("%s: needs two CPUs\n", name);
		else
			run_case(name, i % NR_WAYS);
	}

	if (!ksft_get_pass_cnt() && !ksft_get_fail_cnt()) {
		ksft_print_cnts();
		return KSFT_SKIP;
	}
	ksft_finished();
}
