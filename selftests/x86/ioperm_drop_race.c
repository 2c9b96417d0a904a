// SPDX-License-Identifier: GPL-2.0
/*
 * ioperm_drop_race.c - nobody else gets I/O ports while a task drops them
 *
 * When a task gives up its last I/O permission, the kernel clears its
 * TIF_IO_BITMAP and invalidates the I/O bitmap in the TSS of the CPU. The
 * context switch invalidates the TSS only if the outgoing task has the flag. A
 * task that is preempted between the two steps hands its ports to whoever runs
 * next. If it also migrates there, it invalidates the TSS of another CPU, and
 * the first one stays open. This test looks for that window.
 *
 * A dropper gives up ports again and again, in one of four ways: ioperm()
 * disables the only port, ioperm() changes a bitmap that is shared, iopl(3) goes
 * back to iopl(0), or a task that has a port exits. An observer, which never
 * called ioperm() or iopl(), runs on the same CPU as SCHED_FIFO with uid 65534
 * and without capabilities. It sleeps on a timer and tries to read port 0x80,
 * the POST code port, whenever it wakes up. Each read must be refused.
 *
 * In the cases called *-migrate each of two CPUs has an observer, which sends
 * the dropper to the other CPU whenever it has preempted it. It needs
 * CAP_SYS_NICE for that, so it stays root.
 *
 * The window can be as short as one instruction. So the dropper sets the timer
 * to a random point of the drop, whose duration it has measured before. Every
 * eighth time the timer expires after 20 to 50 us, anywhere in its loop.
 *
 * That no read succeeds proves something only if a kernel that has the window
 * is hit with the same settings on the same machine. QEMU's TCG takes
 * interrupts between translation blocks and may never hit the window, but does
 * in seconds with one CPU and -icount shift=0,sleep=off. A kernel that is not
 * preemptible has no such window.
 *
 * Without --wakes a case ends after three seconds if it got a minimum of wakes
 * by then. To tell a fixed kernel from an unfixed one takes more, such as
 * --wakes 200000.
 */
#define _GNU_SOURCE
#include <getopt.h>
#include <sys/mman.h>
#include <sys/timerfd.h>

#include "ioport_helper.h"

#define PORT			IOPORT_POST
/* Another delay port: enabled, but never touched */
#define OTHER_PORT		0xed

#ifdef __NR_timerfd_settime64
#define NR_SETTIME		__NR_timerfd_settime64
#else
#define NR_SETTIME		__NR_timerfd_settime
#endif

/* Without --wakes: a case ends after that time, but not with fewer wakes. */
#define MIN_WAKES		100
#define CASE_NS			(3 * NSEC_PER_SEC)
/* How short a timer may be */
#define SETTLE_NS		2000
#define MAX_CPUS		2
#define NR_SAMPLES		64
#define NSEC_PER_SEC		1000000000ULL
/* An observer that is not woken up for that long is killed. */
#define STALL_SECONDS		30

#define load(x)		__atomic_load_n(&(x), __ATOMIC_ACQUIRE)
#define store(x, v)	__atomic_store_n(&(x), v, __ATOMIC_RELEASE)

/* Shared by all tasks of a case */
static struct shared {
	uint32_t	wakes[MAX_CPUS];
	uint32_t	hits[MAX_CPUS];
	uint32_t	drops, moves, drop_ns, settle_ns;
	/* The dropper and its child, and the CPU where they are */
	pid_t		tid[2];
	int		cpu;
} *shm;

static unsigned int nr_wakes = 50000, min_wakes = MIN_WAKES;
static uint32_t seed;
static int cpus[MAX_CPUS], nr_cpus, nr_observers, timer_fd[MAX_CPUS];

/*
 * The dropper
 */

static uint32_t rnd_state, nr_samples;
static uint32_t armed[MAX_CPUS], drop_samples[NR_SAMPLES], set_samples[NR_SAMPLES];
static uint64_t drop_begin;

static uint32_t rnd(uint32_t limit)
{
	rnd_state ^= rnd_state << 13;
	rnd_state ^= rnd_state >> 17;
	rnd_state ^= rnd_state << 5;

	return rnd_state % limit;
}

/*
 * Not timerfd_settime(): a 32-bit C library may use the call that takes 32-bit
 * times for it, which the kernel may lack.
 */
static void set_timer(int nr, uint64_t expires)
{
	int64_t its[] = { 0, 0, expires / NSEC_PER_SEC, expires % NSEC_PER_SEC };

	if (syscall(NR_SETTIME, timer_fd[nr], TFD_TIMER_ABSTIME, its, NULL))
		ksft_exit_fail_perror("timerfd_settime");
}

/* Returns whether there was an observer to be woken up */
static bool start_timers(uint64_t expires)
{
	bool started = false;
	uint32_t wakes;
	int i;

	for (i = 0; i < nr_observers; i++) {
		wakes = load(shm->wakes[i]);
		/* Is its timer running, or has it ended? */
		if (wakes != armed[i])
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
static void before_drop(void)
{
	uint64_t now = ioport_now_ns(), begin = now + shm->settle_ns;
	int cpu = sched_getcpu();
	uint32_t turns;

	if (cpu != shm->cpu)
		store(shm->moves, shm->moves + 1);
	store(shm->cpu, cpu);

	if (nr_samples < NR_SAMPLES) {
		/* So late that it is set anew before */
		set_timer(0, now + 1000 * NSEC_PER_SEC);
		set_samples[nr_samples] = ioport_now_ns() - now;
	} else if (!rnd(8)) {
		start_timers(begin + 20000 + rnd(30001));
	} else if (start_timers(begin + rnd(shm->drop_ns))) {
		while (ioport_now_ns() < begin)
			;
	}
	drop_begin = ioport_now_ns();

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

static int compare(const void *a, const void *b)
{
	uint32_t x = *(const uint32_t *)a, y = *(const uint32_t *)b;

	return x < y ? -1 : x > y;
}

static uint32_t median(uint32_t *samples)
{
	qsort(samples, NR_SAMPLES, sizeof(*samples), compare);

	return samples[NR_SAMPLES / 2];
}

/* Called directly after the drop: the first ones tell how long it takes. */
static void after_drop(void)
{
	uint64_t end = ioport_now_ns();

	store(shm->drops, shm->drops + 1);
	if (nr_samples == NR_SAMPLES)
		return;

	drop_samples[nr_samples++] = end - drop_begin;
	if (nr_samples == NR_SAMPLES) {
		shm->drop_ns = median(drop_samples) + 1;
		shm->settle_ns = SETTLE_NS + 2 * nr_observers * median(set_samples);
	}
}

static int drop_last_port(void)
{
	int ret;

	if (ioperm(PORT, 1, 1))
		return -1;
	before_drop();
	ret = ioperm(PORT, 1, 0);
	after_drop();

	return ret;
}

static int drop_iopl(void)
{
	int ret;

	if (iopl(3))
		return -1;
	before_drop();
	ret = iopl(0);
	after_drop();

	return ret;
}

/*
 * Children share the address space with the dropper: there is much less to tear
 * down, and the time of the drop varies less.
 */
static pid_t clone_child(int (*fn)(void *))
{
	static long double stack[4096];

	return clone(fn, stack + ARRAY_SIZE(stack),
		     CLONE_VM | CLONE_FS | CLONE_FILES | CLONE_PARENT_SETTID |
		     SIGCHLD, NULL, &shm->tid[1]);
}

static int reap_child(pid_t pid)
{
	if (ioport_wait(pid, NULL) != pid)
		return -1;
	store(shm->tid[1], 0);

	return 0;
}

static int share_bitmap(void *unused)
{
	ioport_die_with_parent();
	for (;;)
		pause();

	return 0;
}

static int drop_unshare(void)
{
	pid_t pid;
	int ret;

	if (ioperm(OTHER_PORT, 1, 1))
		return -1;
	pid = clone_child(share_bitmap);
	if (pid < 0)
		return -1;

	before_drop();
	ret = ioperm(OTHER_PORT, 1, 0);
	after_drop();

	/*
	 * A task that is killed in its sleep does not return to user mode, so
	 * its bitmap is not in the TSS when it exits.
	 */
	kill(pid, SIGKILL);

	return reap_child(pid) ? -1 : ret;
}

static int exit_with_port(void *unused)
{
	before_drop();

	return 0;
}

static int drop_exit(void)
{
	pid_t pid = clone_child(exit_with_port);

	if (pid < 0 || reap_child(pid))
		return -1;
	after_drop();

	return 0;
}

static const struct drop_case {
	const char	*name;
	/* Enable a port, start the timers, disable it */
	int		(*drop)(void);
	/* The dropper has PORT from the beginning and keeps it. */
	bool		keeps_port;
	bool		migrate;
} drop_cases[] = {
	{ "last-port",		drop_last_port,	false,	false },
	{ "unshare",		drop_unshare,	true,	false },
	{ "iopl",		drop_iopl,	false,	false },
	{ "exit",		drop_exit,	true,	false },
	{ "last-port-migrate",	drop_last_port,	false,	true },
	{ "unshare-migrate",	drop_unshare,	true,	true },
	{ "iopl-migrate",	drop_iopl,	false,	true },
	{ "exit-migrate",	drop_exit,	true,	true },
};

static int run_dropper(const struct drop_case *c)
{
	if (ioport_pin(0, cpus[0]))
		return KSFT_FAIL;
	/* Of the child in drop_unshare() */
	ioport_parent = getpid();
	store(shm->tid[0], getpid());
	store(shm->cpu, cpus[0]);
	rnd_state = seed;

	if (!c->keeps_port || !ioperm(PORT, 1, 1))
		while (!c->drop())
			;
	ksft_perror("dropper: enable and disable");

	return KSFT_FAIL;
}

static int run_observer(int nr, bool migrate)
{
	const struct sched_param param = { .sched_priority = 1 };
	uint64_t expirations, end;
	uint32_t n = 0;
	int i;

	if (ioport_pin(0, cpus[nr]))
		return KSFT_FAIL;
	if (sched_setscheduler(0, SCHED_FIFO, &param) ||
	    (!migrate && ioport_become_nobody()))
		return KSFT_SKIP;

	end = ioport_now_ns() + CASE_NS;
	while (n < nr_wakes && (n < min_wakes || ioport_now_ns() < end)) {
		alarm(STALL_SECONDS);
		if (read(timer_fd[nr], &expirations, sizeof(expirations)) !=
		    sizeof(expirations))
			return KSFT_FAIL;
		if (ioport_inb(PORT))
			store(shm->hits[nr], shm->hits[nr] + 1);
		store(shm->wakes[nr], ++n);

		/* The child first, it is the one that exits. */
		for (i = 1; migrate && i >= 0; i--) {
			if (load(shm->cpu) == cpus[nr] && load(shm->tid[i]))
				ioport_pin(shm->tid[i], cpus[!nr]);
		}
	}

	return KSFT_PASS;
}

static void run_case(const struct drop_case *c)
{
	bool failed = false, skipped = false;
	int i, cpu, status;
	pid_t pids[MAX_CPUS + 1], pid;

	nr_observers = c->migrate ? MAX_CPUS : 1;
	memset(shm, 0, sizeof(*shm));

	for (i = 0; i < nr_observers; i++) {
		timer_fd[i] = timerfd_create(CLOCK_MONOTONIC, 0);
		/* Stopped; if that fails, it does so here and not in each child. */
		set_timer(i, 0);
	}
	for (i = 0; i <= nr_observers; i++) {
		pids[i] = ioport_fork();
		if (!pids[i])
			_exit(i < nr_observers ? run_observer(i, c->migrate) : run_dropper(c));
	}

	/* The observers end by themselves. */
	for (i = 0; i < nr_observers; i++) {
		ioport_wait(pids[i], &status);
		if (WIFEXITED(status) && WEXITSTATUS(status) == KSFT_SKIP)
			skipped = true;
		else if (status)
			failed = true;
	}
	ioport_end(pids[nr_observers]);

	for (i = 0; i < nr_observers; i++) {
		/* A dropper that is not preempted leaves an invalidated TSS behind. */
		cpu = cpus[i];
		pid = ioport_fork();
		if (!pid)
			_exit(ioport_pin(0, cpu) || ioperm(PORT, 1, 1) || ioperm(PORT, 1, 0));
		ioport_wait(pid, NULL);
		close(timer_fd[i]);

		ksft_print_msg("%s: CPU %d: wakes %u hits %u\n", c->name, cpu,
			       shm->wakes[i], shm->hits[i]);
		if (shm->hits[i])
			failed = true;
	}
	ksft_print_msg("%s: drops %u of %u ns, moves %u, timers set %u ns before\n",
		       c->name, shm->drops, shm->drop_ns, shm->moves, shm->settle_ns);
	/* Where it is sent to another CPU, it has to get there. */
	if (c->migrate && !skipped && !shm->moves)
		failed = true;

	if (skipped && !failed)
		ksft_test_result_skip("%s: SCHED_FIFO or unprivileged user refused\n",
				      c->name);
	else
		ksft_test_result(!failed, "%s\n", c->name);
}

static uint32_t parse_number(void)
{
	char *end;
	unsigned long value = strtoul(optarg, &end, 0);

	if (*end || *optarg == '-' || !value || value > INT32_MAX)
		ksft_exit_fail_msg("%s: not a number from 1 to %d\n", optarg, INT32_MAX);

	return value;
}

static const struct drop_case *find_case(const char *name)
{
	const struct drop_case *c;

	for (c = drop_cases; c < drop_cases + ARRAY_SIZE(drop_cases); c++) {
		if (!strcmp(name, c->name))
			return c;
	}
	ksft_exit_fail_msg("%s: no such case\n", name);
}

int main(int argc, char **argv)
{
	static const struct option options[] = {
		{ "wakes",	required_argument,	NULL, 'w' },
		{ "seed",	required_argument,	NULL, 's' },
		{ "case",	required_argument,	NULL, 'c' },
		{ }
	};
	const struct drop_case *c = drop_cases, *end = c + ARRAY_SIZE(drop_cases);
	const char *reason;
	cpu_set_t allowed;
	int cpu, opt;

	/* Must not be 0, or all that follows is 0 too */
	seed = ((ioport_now_ns() ^ getpid()) & INT32_MAX) | 1;
	while ((opt = getopt_long(argc, argv, "", options, NULL)) != -1) {
		if (opt == 'w') {
			nr_wakes = parse_number();
			min_wakes = nr_wakes;
		} else if (opt == 's') {
			seed = parse_number();
		} else if (opt == 'c') {
			c = find_case(optarg);
			end = c + 1;
		} else {
			ksft_exit_fail_msg("usage: %s [--wakes N] [--seed N] [--case NAME]\n",
					   argv[0]);
		}
	}

	ksft_print_header();
	ksft_set_plan(end - c);
	ksft_print_msg("seed %u, %u to %u wakes\n", seed, min_wakes, nr_wakes);

	/* Whoever started this may have had ports, they are inherited. */
	ioperm(0, IOPORT_NR, 0);
	iopl(0);
	ioport_init();

	if (sched_getaffinity(0, sizeof(allowed), &allowed))
		ksft_exit_fail_perror("sched_getaffinity");
	for (cpu = 0; cpu < CPU_SETSIZE && nr_cpus < MAX_CPUS; cpu++) {
		if (CPU_ISSET(cpu, &allowed))
			cpus[nr_cpus++] = cpu;
	}

	shm = mmap(NULL, sizeof(*shm), PROT_READ | PROT_WRITE,
		   MAP_SHARED | MAP_ANONYMOUS, -1, 0);
	if (shm == MAP_FAILED)
		ksft_exit_fail_perror("mmap");

	reason = ioport_skip_reason();
	for (; c < end; c++) {
		if (reason)
			ksft_test_result_skip("%s: %s\n", c->name, reason);
		else if (c->migrate && nr_cpus < MAX_CPUS)
			ksft_test_result_skip("%s: needs two CPUs\n", c->name);
		else
			run_case(c);
	}

	if (!ksft_get_pass_cnt() && !ksft_get_fail_cnt()) {
		ksft_print_cnts();
		return KSFT_SKIP;
	}
	ksft_finished();
}
