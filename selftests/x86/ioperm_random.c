// SPDX-License-Identifier: GPL-2.0
/*
 * ioperm_random.c - random I/O permissions against a model
 *
 * Several tasks on several CPUs do what changes I/O permissions, or where the
 * CPU has to look for them, in random order: ioperm() on ranges that begin and
 * end at, before and after the edges of words, lines and the port space, or
 * anywhere, iopl(), fork() with and without waiting for the child, threads,
 * exec, exit and being killed, moves to other CPUs, short sleeps. On request
 * CPUs go off- and online meanwhile, and allocations fail.
 *
 * Each task has a model of what it may do: one bit for each of the 65536 ports
 * and the I/O privilege level. A child and a thread begin with a copy, and
 * exec hands it over. After each step the task tries ports: those at the edges
 * of what it, and others, did last, which is where something stale would be,
 * and random ones, with accesses of one, two and four bytes. Every one has to
 * be allowed or denied as the model says. Observers, which never have any
 * port, do the same. From time to time the whole bitmap that the kernel keeps
 * for the task is read through ptrace() and compared.
 *
 * The results:
 *  accesses	Each access was allowed or denied as the model says.
 *  bitmaps	Each bitmap that was read is equal to the model.
 *  calls	Each call succeeded, or failed for want of memory and then changed
 *		nothing.
 *  tasks	No task died but by its own or its parent's will.
 *  hotplug	With --hotplug: CPUs went off and came back.
 *  failslab	With --failslab: allocations of ioperm() and fork() failed.
 *
 * The first mismatch ends the run. It is printed with the seed, the task and
 * the last steps of this task, including those of its ancestors. Each task
 * draws its steps from the seed alone, but not when they happen: with the same
 * seed the same steps are tried, in another interleaving.
 *
 * On bare metal nobody knows what an access does. Ports that are both allowed
 * and touched here are 0x80, the POST code port, and a few high ones which
 * nothing claims; these are only read. IOPORT_PROBE_ALL=1 in the environment
 * makes that all which nothing claims, for virtual machines. What is denied
 * never gets to a device, so any port is tried then.
 */
#define _GNU_SOURCE
#include <errno.h>
#include <fcntl.h>
#include <getopt.h>
#include <pthread.h>
#include <sched.h>
#include <signal.h>
#include <stdarg.h>
#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/io.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/syscall.h>
#include <time.h>
#include <unistd.h>

#include <linux/futex.h>

#include "fail_nth.h"
#include "ioport_helper.h"

#define DEFAULT_SECONDS		5
#define MAX_TASKS		64
#define MAX_DEPTH		3
#define MAX_CHILDREN		3
#define MAX_THREADS		3
#define MAX_CPUS		1024
#define HISTORY			24
#define MIN_STEPS		10
#define HOT_RANGES		16

/* Runs of ports which may be touched, each with room for a wide access */
#define TOUCH_RUNS		24
#define TOUCH_WIDTH		4

/* How long a task may take for one step after the end of the run */
#define GRACE_SECONDS		60

#define NSEC_PER_SEC		1000000000ULL

enum step_kind {
	STEP_NONE,
	STEP_GRANT,
	STEP_REVOKE,
	STEP_IOPL,
	STEP_FORK,
	STEP_CHILD,
	STEP_REAP,
	STEP_KILL,
	STEP_THREAD,
	STEP_STARTED,
	STEP_JOIN,
	STEP_EXEC,
	STEP_MOVE,
	STEP_VIEW,
};

static const char * const step_names[] = {
	[STEP_GRANT]	= "ioperm on",
	[STEP_REVOKE]	= "ioperm off",
	[STEP_IOPL]	= "iopl",
	[STEP_FORK]	= "fork",
	[STEP_CHILD]	= "is the child of",
	[STEP_REAP]	= "child exited:",
	[STEP_KILL]	= "killed child",
	[STEP_THREAD]	= "pthread_create",
	[STEP_STARTED]	= "is a thread of",
	[STEP_JOIN]	= "threads joined:",
	[STEP_EXEC]	= "exec",
	[STEP_MOVE]	= "to CPU",
	[STEP_VIEW]	= "bitmap read",
};

struct step {
	enum step_kind	kind;
	unsigned int	a, b;
	int		err;
	bool		injected;
	int		cpu;
	pid_t		tid;
};

/**
 * struct task - what a task knows of itself, and takes along through exec
 * @map:	the ports that ioperm() should have enabled
 * @iopl:	the I/O privilege level
 * @worker:	number of the task from which all began, for messages
 * @depth:	how many forks and threads it is away from that
 * @left:	steps to be done, -1: until the time is over
 * @rng:	state of the random numbers
 * @nr_steps:	steps that were done, including those of its ancestors
 * @steps:	the last of these
 */
struct task {
	struct ioport_map	map;
	int			iopl;
	unsigned int		worker;
	unsigned int		depth;
	int			left;
	uint64_t		rng;
	unsigned int		nr_steps;
	struct step		steps[HISTORY];
};

enum check {
	CHECK_ACCESSES,
	CHECK_BITMAPS,
	CHECK_CALLS,
	CHECK_TASKS,
	NR_CHECKS,
};

static const char * const check_names[NR_CHECKS] = {
	[CHECK_ACCESSES]	= "accesses",
	[CHECK_BITMAPS]		= "bitmaps",
	[CHECK_CALLS]		= "calls",
	[CHECK_TASKS]		= "tasks",
};

/**
 * struct shared - what all tasks share
 * @seed:	what all random numbers come from
 * @end:	when the run is over, CLOCK_MONOTONIC in ns
 * @failslab:	allocations are made to fail
 * @threads:	threads work
 * @stop:	end it now
 * @reported:	somebody has printed a mismatch
 * @wrong:	per check, mismatches
 * @done:	per check, how often it was made
 * @allowed:	accesses which were expected to work, and did
 * @steps:	per kind, steps that were done
 * @injected:	calls in which an allocation was made to fail
 * @enomem:	calls of ioperm() which failed with ENOMEM
 * @offline:	how often a CPU was taken offline
 * @hot:	ports at the edges of what was changed last, by anybody
 * @nr_touch:	how many of @touch there are
 * @touch:	first ports of runs, all of which @may_touch has
 * @nr_cpus:	how many of @cpus there are
 * @cpus:	the CPUs to run on
 * @may_touch:	ports which may be touched while they are allowed
 */
struct shared {
	uint64_t	seed;
	uint64_t	end;
	bool		failslab;
	bool		threads;
	bool		stop;
	bool		reported;
	unsigned long	wrong[NR_CHECKS];
	unsigned long	done[NR_CHECKS];
	unsigned long	allowed;
	unsigned long	steps[ARRAY_SIZE(step_names)];
	unsigned long	injected;
	unsigned long	enomem;
	unsigned long	offline;
	unsigned int	hot[HOT_RANGES];
	unsigned int	nr_touch;
	unsigned int	touch[TOUCH_RUNS];
	unsigned int	nr_cpus;
	int		cpus[MAX_CPUS];
	uint8_t		may_touch[IOPORT_NR];
};

static struct shared *sh;
static int sh_fd;

#define load(x)		__atomic_load_n(&(x), __ATOMIC_RELAXED)
#define store(x, v)	__atomic_store_n(&(x), v, __ATOMIC_RELAXED)
#define count(x, n)	__atomic_fetch_add(&(x), n, __ATOMIC_RELAXED)

static uint64_t now_ns(void)
{
	struct timespec ts;

	clock_gettime(CLOCK_MONOTONIC, &ts);
	return ts.tv_sec * NSEC_PER_SEC + ts.tv_nsec;
}

static bool is_over(void)
{
	return load(sh->stop) || now_ns() >= sh->end;
}

/* So that seeds and tasks that are close to each other have nothing in common */
static uint64_t spread(uint64_t x)
{
	x += 0x9e3779b97f4a7c15ULL;
	x = (x ^ (x >> 30)) * 0xbf58476d1ce4e5b9ULL;
	x = (x ^ (x >> 27)) * 0x94d049bb133111ebULL;
	return x ^ (x >> 31);
}

/* A number below @limit */
static uint32_t rnd(struct task *t, uint32_t limit)
{
	t->rng = spread(t->rng);
	return (t->rng >> 32) * limit >> 32;
}

static uint64_t rnd_seed(struct task *t)
{
	t->rng = spread(t->rng);
	return t->rng ^ 0x5555555555555555ULL;
}

/*
 * Steps and mismatches
 */

static struct step *add_step(struct task *t, enum step_kind kind,
			     unsigned int a, unsigned int b)
{
	struct step *step = &t->steps[t->nr_steps++ % HISTORY];

	memset(step, 0, sizeof(*step));
	step->kind = kind;
	step->a = a;
	step->b = b;
	step->cpu = sched_getcpu();
	step->tid = syscall(SYS_gettid);
	count(sh->steps[kind], 1);

	return step;
}

static unsigned int first_step(const struct task *t)
{
	return t->nr_steps < HISTORY ? 0 : t->nr_steps - HISTORY;
}

static void append(char *text, size_t size, const char *fmt, ...)
{
	size_t len = strlen(text);
	va_list args;

	va_start(args, fmt);
	vsnprintf(text + len, size - len, fmt, args);
	va_end(args);
}

/* The first mismatch is printed, all count, and the run ends. @t may be NULL */
static __printf(3, 4) void mismatch(struct task *t, enum check which,
				    const char *fmt, ...)
{
	char text[8192] = "", what[400];
	unsigned int i;
	struct ioport_map seen;
	const struct step *s;
	va_list args;
	int ret;

	count(sh->wrong[which], 1);
	store(sh->stop, true);
	if (__atomic_exchange_n(&sh->reported, true, __ATOMIC_RELAXED))
		return;

	va_start(args, fmt);
	vsnprintf(what, sizeof(what), fmt, args);
	va_end(args);
	append(text, sizeof(text), "# MISMATCH %s: %s\n", check_names[which],
	       what);
	append(text, sizeof(text), "# seed %llu\n",
	       (unsigned long long)sh->seed);
	if (!t)
		goto print;
	append(text, sizeof(text),
	       "# task %u depth %u step %u pid %d tid %d CPU %d iopl %d\n",
	       t->worker, t->depth, t->nr_steps,
	       getpid(), (int)syscall(SYS_gettid), sched_getcpu(), t->iopl);

	/* Is it the bitmap that is wrong, or what the CPU has of it? */
	ret = ioport_view_self(&seen);
	if (ret && ret != -ENXIO)
		append(text, sizeof(text), "# the bitmap cannot be read: %s\n",
		       strerror(-ret));
	else
		append(text, sizeof(text), "# the kernel's bitmap is %s\n",
		       memcmp(&seen, &t->map, sizeof(seen)) ?
		       "wrong" : "right");

	append(text, sizeof(text), "# the last steps of this task:\n");
	for (i = first_step(t); i < t->nr_steps; i++) {
		s = &t->steps[i % HISTORY];
		append(text, sizeof(text), "#   %u: tid %d CPU %d %s", i,
		       s->tid, s->cpu, step_names[s->kind]);
		if (s->kind == STEP_GRANT || s->kind == STEP_REVOKE)
			append(text, sizeof(text), " from 0x%x num %u", s->a,
			       s->b);
		else
			append(text, sizeof(text), " %u", s->a);
		append(text, sizeof(text), "%s%s%s\n", s->err ? " " : "",
		       s->err ? strerror(s->err) : "",
		       s->injected ? " (an allocation failed)" : "");
	}
print:
	/* In one piece, other tasks may print as well */
	if (write(STDOUT_FILENO, text, strlen(text)) < 0)
		perror("write");
}

/*
 * Checks
 */

static bool may_touch(unsigned int port, unsigned int width)
{
	while (width--) {
		if (!sh->may_touch[port++])
			return false;
	}

	return true;
}

static void try_port(struct task *t, unsigned int port, unsigned int kind,
		     const char *when)
{
	static const enum ioport_insn insns[] = {
		IOPORT_INB, IOPORT_INW, IOPORT_INL,
		IOPORT_INSB, IOPORT_INSW, IOPORT_INSL,
	};
	enum ioport_insn insn = insns[kind % ARRAY_SIZE(insns)];
	unsigned int width = ioport_insn_width(insn);
	bool want, got;

	if (t->iopl == 3)
		want = port + width <= IOPORT_NR;
	else
		want = ioport_allows(&t->map, port, width);
	if (want && !may_touch(port, width))
		return;

	got = ioport_try(insn, port);
	count(sh->done[CHECK_ACCESSES], 1);
	if (want && got)
		count(sh->allowed, 1);
	if (want != got)
		mismatch(t, CHECK_ACCESSES, "%s: %s from port 0x%x %s", when,
			 ioport_insn_name[insn], port,
			 got ? "worked" : "faulted");
}

/* On both sides of an edge, in all widths */
static void try_edge(struct task *t, unsigned int edge, const char *when)
{
	unsigned int port;

	for (port = edge < 4 ? 0 : edge - 4; port < edge + 2; port++) {
		if (port < IOPORT_NR)
			try_port(t, port, rnd(t, 6), when);
	}
}

static void try_ports(struct task *t, const char *when)
{
	static const unsigned int edges[] = {
		0, 64, 512, 1024, 32768, 65024, 65535, IOPORT_POST,
	};
	unsigned int i, from, port;
	const struct step *s;

	for (i = 0; i < ARRAY_SIZE(edges) && !load(sh->stop); i++)
		try_port(t, edges[i] - (edges[i] ? rnd(t, 2) : 0), rnd(t, 6),
			 when);

	/* What this task did */
	for (i = first_step(t); i < t->nr_steps && !load(sh->stop); i++) {
		s = &t->steps[i % HISTORY];
		if (s->kind != STEP_GRANT && s->kind != STEP_REVOKE)
			continue;
		/* The latest ones always */
		if (i + 4 < t->nr_steps && rnd(t, 4))
			continue;
		try_edge(t, s->a, when);
		try_edge(t, s->a + s->b, when);
		try_port(t, s->a + rnd(t, s->b), rnd(t, 6), when);
	}

	/* What others did */
	for (i = 0; i < HOT_RANGES && !load(sh->stop); i++)
		try_port(t, load(sh->hot[i]), rnd(t, 6), when);

	for (i = 0; i < sh->nr_touch && !load(sh->stop); i++) {
		if (rnd(t, 3) == 0)
			try_port(t, sh->touch[i], rnd(t, 6), when);
	}
	for (i = 0; i < 24 && !load(sh->stop); i++)
		try_port(t, rnd(t, IOPORT_NR), rnd(t, 6), when);

	/* Each port of some lines */
	if (rnd(t, 64) == 0) {
		from = rnd(t, IOPORT_NR / IOPORT_LINE) * IOPORT_LINE;
		for (port = from; port < from + 2 * IOPORT_LINE; port++) {
			if (port < IOPORT_NR && !load(sh->stop))
				try_port(t, port, 0, when);
		}
	}
}

static void view(struct task *t, const char *when)
{
	struct ioport_map seen;
	unsigned int port;
	int ret;

	if (load(sh->stop))
		return;

	add_step(t, STEP_VIEW, 0, 0);
	ret = ioport_view_self(&seen);
	if (ret == -ENOMEM || ret == -EAGAIN)
		return;
	if (ret && ret != -ENXIO) {
		mismatch(t, CHECK_CALLS, "%s: the bitmap cannot be read: %s",
			 when, strerror(-ret));
		return;
	}

	count(sh->done[CHECK_BITMAPS], 1);
	if (!memcmp(&seen, &t->map, sizeof(seen)))
		return;
	for (port = 0; port < IOPORT_NR; port++) {
		if (ioport_allows(&seen, port, 1) !=
		    ioport_allows(&t->map, port, 1))
			break;
	}
	mismatch(t, CHECK_BITMAPS, "%s: port 0x%x is %s in the bitmap", when,
		 port, ioport_allows(&seen, port, 1) ? "enabled" : "disabled");
}

/*
 * Steps
 */

static void begin_injection(struct task *t, unsigned int max)
{
	if (sh->failslab && rnd(t, 3) == 0 &&
	    !fail_nth_arm(1 + rnd(t, max)))
		mismatch(t, CHECK_CALLS, "fail-nth cannot be written: %s",
			 strerror(errno));
}

static bool end_injection(void)
{
	bool injected = sh->failslab && fail_nth_tid && fail_nth_disarm();

	if (injected)
		count(sh->injected, 1);

	return injected;
}

static void choose_range(struct task *t, bool on, unsigned int *from,
			 unsigned int *num)
{
	static const unsigned int edges[] = {
		0, 31, 32, 63, 64, 511, 512, 513, 1023, 1024, 32767, 32768,
		65023, 65024, 65534, 65535, IOPORT_POST, IOPORT_POST,
	};

	*num = 1;
	switch (rnd(t, 12)) {
	case 0:
		*from = IOPORT_POST;
		break;
	case 1:
		*from = edges[rnd(t, ARRAY_SIZE(edges))];
		break;
	case 2:
		*from = edges[rnd(t, ARRAY_SIZE(edges))];
		*num = 1 + rnd(t, 1100);
		break;
	case 3:
		*from = rnd(t, IOPORT_NR);
		break;
	case 4:
		*from = rnd(t, IOPORT_NR);
		*num = 1 + rnd(t, 16);
		break;
	case 5:
		*from = rnd(t, IOPORT_NR);
		*num = 1 + rnd(t, 3000);
		break;
	case 6:
		/* Whole lines */
		*from = rnd(t, IOPORT_NR / IOPORT_LINE) * IOPORT_LINE;
		*num = IOPORT_LINE * (1 + rnd(t, 4));
		break;
	case 7:
	case 8:
		/* Where it can be tried */
		if (sh->nr_touch) {
			*from = sh->touch[rnd(t, sh->nr_touch)];
			*num = TOUCH_WIDTH;
			break;
		}
		*from = IOPORT_POST;
		break;
	case 9:
		/* What was done last, by anybody */
		*from = load(sh->hot[rnd(t, HOT_RANGES)]) % IOPORT_NR;
		*num = 1 + rnd(t, 64);
		break;
	case 10:
		/* Much, seldom, or everybody has everything */
		*from = rnd(t, IOPORT_NR);
		*num = on && rnd(t, 4) ? 1 : 1 + rnd(t, IOPORT_NR);
		break;
	default:
		if (on && rnd(t, 8)) {
			*from = rnd(t, IOPORT_NR);
			break;
		}
		*from = rnd(t, 4) ? 0 : rnd(t, 600);
		*num = IOPORT_NR - *from - (rnd(t, 3) ? 0 : rnd(t, 600));
		break;
	}
	if (*from + *num > IOPORT_NR)
		*num = IOPORT_NR - *from;
}

static void change_ports(struct task *t, unsigned int from, unsigned int num,
			 bool on)
{
	struct step *step;
	int ret;

	begin_injection(t, 2);
	errno = 0;
	ret = ioperm(from, num, on);
	step = add_step(t, on ? STEP_GRANT : STEP_REVOKE, from, num);
	step->err = ret ? errno : 0;
	step->injected = end_injection();
	count(sh->done[CHECK_CALLS], 1);

	store(sh->hot[rnd(t, HOT_RANGES)], from);
	store(sh->hot[rnd(t, HOT_RANGES)], from + num - 1);

	if (!ret) {
		ioport_set(&t->map, from, num, on);
	} else if (step->err == ENOMEM) {
		count(sh->enomem, 1);
		if (!step->injected)
			mismatch(t, CHECK_CALLS,
				 "ioperm(0x%x, %u, %d): no memory, but no allocation was made to fail",
				 from, num, on);
	} else {
		mismatch(t, CHECK_CALLS, "ioperm(0x%x, %u, %d): %s", from, num,
			 on, strerror(step->err));
	}
}

static void change_iopl(struct task *t)
{
	int level = rnd(t, 3) ? 0 : 3;
	struct step *step;

	step = add_step(t, STEP_IOPL, level, 0);
	count(sh->done[CHECK_CALLS], 1);
	if (iopl(level)) {
		step->err = errno;
		mismatch(t, CHECK_CALLS, "iopl(%d): %s", level,
			 strerror(errno));
		return;
	}
	t->iopl = level;
}

static void move(struct task *t)
{
	cpu_set_t set;
	unsigned int i, cpu = 0;

	CPU_ZERO(&set);
	if (rnd(t, 3)) {
		cpu = sh->cpus[rnd(t, sh->nr_cpus)];
		CPU_SET(cpu, &set);
	} else {
		for (i = 0; i < sh->nr_cpus; i++)
			CPU_SET(sh->cpus[i], &set);
	}
	/* Fails while that CPU is off */
	sched_setaffinity(0, sizeof(set), &set);
	add_step(t, STEP_MOVE, cpu, 0);
}

static void pause_a_little(struct task *t)
{
	struct timespec ts = { };

	if (rnd(t, 4) == 0) {
		ts.tv_nsec = rnd(t, 300000);
		nanosleep(&ts, NULL);
	} else if (rnd(t, 2)) {
		sched_yield();
	}
}

/**
 * struct family - what a task has started
 * @child:	children, 0 if none
 * @thread:	threads, as many as @nr_threads
 * @nr_threads:	how many of @thread there are
 */
struct family {
	pid_t		child[MAX_CHILDREN];
	pthread_t	thread[MAX_THREADS];
	unsigned int	nr_threads;
};

static void run_task(struct task *t, bool alone);

static void *run_thread(void *arg)
{
	struct task *t = arg;

	try_ports(t, "new thread");
	run_task(t, false);
	free(t);

	return NULL;
}

static void start_thread(struct task *t, struct family *family)
{
	struct task *next;
	struct step *step;
	int err;

	if (!sh->threads || t->depth >= MAX_DEPTH ||
	    family->nr_threads == MAX_THREADS)
		return;
	next = malloc(sizeof(*next));
	if (!next)
		return;

	step = add_step(t, STEP_THREAD, family->nr_threads, 0);
	*next = *t;
	next->rng = rnd_seed(t);
	next->left = rnd(t, 16);
	next->depth++;
	add_step(next, STEP_STARTED, getpid(), 0);

	begin_injection(t, 100);
	err = pthread_create(&family->thread[family->nr_threads], NULL,
			     run_thread, next);
	step->injected = end_injection();
	step->err = err;
	count(sh->done[CHECK_CALLS], 1);
	if (!err) {
		family->nr_threads++;
		return;
	}
	free(next);
	if (!step->injected)
		mismatch(t, CHECK_CALLS, "pthread_create: %s", strerror(err));
}

static void join_threads(struct task *t, struct family *family)
{
	if (!family->nr_threads)
		return;
	add_step(t, STEP_JOIN, family->nr_threads, 0);
	while (family->nr_threads)
		pthread_join(family->thread[--family->nr_threads], NULL);
}

static void start_child(struct task *t, struct family *family)
{
	uint64_t seed = rnd_seed(t);
	int i, left = rnd(t, 16);
	pid_t parent = getpid();
	struct step *step;
	pid_t pid;

	for (i = 0; i < MAX_CHILDREN && family->child[i]; i++)
		;
	if (t->depth >= MAX_DEPTH || i == MAX_CHILDREN)
		return;

	step = add_step(t, STEP_FORK, 0, 0);
	begin_injection(t, 150);
	pid = fork();
	if (!pid) {
		t->rng = seed;
		t->left = left;
		t->depth++;
		add_step(t, STEP_CHILD, parent, 0);
		try_ports(t, "new child");
		run_task(t, true);
		_exit(0);
	}
	step->err = pid < 0 ? errno : 0;
	step->injected = end_injection();
	step->a = pid;
	count(sh->done[CHECK_CALLS], 1);
	if (pid > 0)
		family->child[i] = pid;
	else if (!step->injected)
		mismatch(t, CHECK_CALLS, "fork: %s", strerror(step->err));
}

static void end_child(struct task *t, struct family *family, int i, bool force)
{
	pid_t pid = family->child[i];
	int status = 0;

	if (!pid)
		return;
	family->child[i] = 0;
	if (force)
		kill(pid, SIGKILL);
	if (ioport_wait(pid, &status) != pid) {
		mismatch(t, CHECK_TASKS, "waitpid: %s", strerror(errno));
		return;
	}
	add_step(t, force ? STEP_KILL : STEP_REAP, pid, 0);
	count(sh->done[CHECK_TASKS], 1);

	if (!status || (force && WIFSIGNALED(status) &&
			WTERMSIG(status) == SIGKILL))
		return;
	mismatch(t, CHECK_TASKS, "child %d: %s %d", pid,
		 WIFSIGNALED(status) ? "signal" : "exit status",
		 WIFSIGNALED(status) ? WTERMSIG(status) : WEXITSTATUS(status));
}

static void end_family(struct task *t, struct family *family)
{
	int i;

	join_threads(t, family);
	for (i = 0; i < MAX_CHILDREN; i++)
		end_child(t, family, i, false);
}

/* The task goes on in a new program, which gets what it knows as a file */
static void go_on_in_new_program(struct task *t)
{
	char task_text[16], shared_text[16];
	int fd;

	add_step(t, STEP_EXEC, getpid(), 0);
	fd = memfd_create("task", 0);
	if (fd < 0 || write(fd, t, sizeof(*t)) != sizeof(*t)) {
		mismatch(t, CHECK_CALLS, "memfd: %s", strerror(errno));
		return;
	}
	snprintf(task_text, sizeof(task_text), "%d", fd);
	snprintf(shared_text, sizeof(shared_text), "%d", sh_fd);
	execl("/proc/self/exe", "ioperm_random", "--resume", task_text,
	      shared_text, NULL);
	mismatch(t, CHECK_CALLS, "exec: %s", strerror(errno));
	close(fd);
}

static void *map_shared(int fd)
{
	void *mem;

	mem = mmap(NULL, sizeof(*sh), PROT_READ | PROT_WRITE, MAP_SHARED, fd,
		   0);
	return mem == MAP_FAILED ? NULL : mem;
}

static int resume(char **argv)
{
	static struct task t;
	int fd = atoi(argv[2]);

	sh_fd = atoi(argv[3]);
	sh = map_shared(sh_fd);
	if (!sh || pread(fd, &t, sizeof(t), 0) != sizeof(t))
		return KSFT_FAIL;
	close(fd);

	try_ports(&t, "after exec");
	view(&t, "after exec");
	run_task(&t, true);

	return 0;
}

static void one_step(struct task *t, struct family *family, bool alone)
{
	unsigned int from, num;

	switch (rnd(t, 64)) {
	case 0 ... 19:
		choose_range(t, true, &from, &num);
		change_ports(t, from, num, true);
		break;
	case 20 ... 38:
		choose_range(t, false, &from, &num);
		change_ports(t, from, num, false);
		break;
	case 39 ... 42:
		change_iopl(t);
		break;
	case 43 ... 47:
		start_child(t, family);
		break;
	case 48 ... 49:
		end_child(t, family, rnd(t, MAX_CHILDREN), rnd(t, 3) == 0);
		break;
	case 50 ... 53:
		start_thread(t, family);
		break;
	case 54:
		join_threads(t, family);
		break;
	case 55:
		/* It would end the threads of the process */
		if (!alone)
			break;
		end_family(t, family);
		go_on_in_new_program(t);
		break;
	case 56 ... 61:
		move(t);
		break;
	default:
		view(t, "between two steps");
		break;
	}
}

static bool is_too_short(const struct task *t)
{
	return !load(sh->stop) && !t->depth && t->nr_steps < MIN_STEPS;
}

/* @alone: the task is a process, not a thread of one */
static void run_task(struct task *t, bool alone)
{
	struct family family = { };

	/* However slow the machine is, each task does something */
	while (t->left && (!is_over() || is_too_short(t))) {
		if (t->left > 0)
			t->left--;
		one_step(t, &family, alone);
		pause_a_little(t);
		try_ports(t, "after a step");
	}
	end_family(t, &family);
	try_ports(t, "at the end");
	view(t, "at the end");
}

/* Never had a port, whoever ran before it on any CPU */
static void observe(struct task *t)
{
	struct timespec ts = { };

	while (!is_over()) {
		ts.tv_nsec = rnd(t, 100000);
		nanosleep(&ts, NULL);
		try_port(t, IOPORT_POST, 0, "observer");
		try_port(t, load(sh->hot[rnd(t, HOT_RANGES)]), 0, "observer");
		if (rnd(t, 32) == 0)
			try_ports(t, "observer");
		if (rnd(t, 64) == 0)
			move(t);
	}
}

/*
 * CPU hotplug
 */

static bool set_online(int cpu, bool online)
{
	char path[80];
	bool done;
	int fd;

	snprintf(path, sizeof(path), "/sys/devices/system/cpu/cpu%d/online",
		 cpu);
	fd = open(path, O_WRONLY | O_CLOEXEC);
	if (fd < 0)
		return false;
	done = write(fd, online ? "1" : "0", 1) == 1;
	close(fd);

	return done;
}

static bool may_go_offline(int cpu)
{
	char path[80];

	snprintf(path, sizeof(path), "/sys/devices/system/cpu/cpu%d/online",
		 cpu);
	return !access(path, W_OK);
}

static int end_hotplug;

static void on_parent_gone(int sig __always_unused,
			   siginfo_t *si __always_unused,
			   void *context __always_unused)
{
	store(end_hotplug, 1);
}

/* All CPUs come back, also when the test is killed: this one is not */
static int run_hotplug(struct task *t)
{
	struct timespec ts = { };
	int cpu;

	sethandler(SIGTERM, on_parent_gone, 0);
	prctl(PR_SET_PDEATHSIG, SIGTERM);

	while (!load(end_hotplug) && !is_over()) {
		cpu = sh->cpus[rnd(t, sh->nr_cpus)];
		if (may_go_offline(cpu) && set_online(cpu, false)) {
			count(sh->offline, 1);
			ts.tv_nsec = rnd(t, 50000000);
			nanosleep(&ts, NULL);
			while (!set_online(cpu, true) && errno == EINTR)
				;
		}
		ts.tv_nsec = rnd(t, 200000000);
		nanosleep(&ts, NULL);
	}

	return 0;
}

/*
 * The run
 */

static unsigned int seconds = DEFAULT_SECONDS;
static unsigned int nr_tasks;
static bool hotplug;

static const char *hotplug_skip_reason(void)
{
	unsigned int i;

	if (!hotplug)
		return NULL;
	for (i = 0; i < sh->nr_cpus; i++) {
		if (may_go_offline(sh->cpus[i]))
			return NULL;
	}

	return "no CPU that can be taken offline";
}

static void choose_ports(void)
{
	const char *all = getenv("IOPORT_PROBE_ALL");
	unsigned int below = IOPORT_NR, port, i;
	int from;

	sh->may_touch[IOPORT_POST] = 1;
	while (sh->nr_touch < TOUCH_RUNS && below > 0x1000) {
		from = ioport_find(TOUCH_WIDTH, 1, 0, below);
		if (from < 0x1000)
			break;
		for (i = 0; i < TOUCH_WIDTH; i++)
			sh->may_touch[from + i] = 1;
		sh->touch[sh->nr_touch++] = from;
		/* Some in the same line, most of them far apart */
		below = sh->nr_touch % 4 ? from - 5 : from - 0x2000;
		if ((int)below < 0)
			break;
	}

	for (port = 0; all && !strcmp(all, "1") && port < IOPORT_NR; port++)
		sh->may_touch[port] = ioport_safe(port, 1);
}

/* The 32 bit C library needs the old system call, from COMPAT_32BIT_TIME */
static bool has_futex(void)
{
	static int word;

	return syscall(SYS_futex, &word, FUTEX_WAKE_PRIVATE, 1, NULL, NULL,
		       0) >= 0;
}

static void choose_cpus(void)
{
	cpu_set_t set;
	int cpu;

	if (sched_getaffinity(0, sizeof(set), &set))
		ksft_exit_fail_perror("sched_getaffinity");
	for (cpu = 0; cpu < CPU_SETSIZE && sh->nr_cpus < MAX_CPUS; cpu++) {
		if (CPU_ISSET(cpu, &set))
			sh->cpus[sh->nr_cpus++] = cpu;
	}
}

static void print_progress(unsigned long long secs)
{
	ksft_print_msg("%llu s: accesses %lu, of which allowed %lu, bitmaps %lu, calls %lu\n",
		       secs, load(sh->done[CHECK_ACCESSES]), load(sh->allowed),
		       load(sh->done[CHECK_BITMAPS]),
		       load(sh->done[CHECK_CALLS]));
	ksft_print_msg("%llu s: forks %lu threads %lu execs %lu moves %lu ENOMEM %lu offline %lu\n",
		       secs, load(sh->steps[STEP_CHILD]),
		       load(sh->steps[STEP_STARTED]),
		       load(sh->steps[STEP_EXEC]), load(sh->steps[STEP_MOVE]),
		       load(sh->enomem), load(sh->offline));
	fflush(stdout);
}

/* Begins with a port that can be tried */
static void run_worker(struct task *t)
{
	change_ports(t, IOPORT_POST, 1, true);
	try_port(t, IOPORT_POST, 0, "first port");
	run_task(t, true);
}

/* One of the tasks that main() starts, and all that it starts */
static pid_t start(unsigned int nr, bool observer, bool plugger)
{
	static struct task t;
	pid_t pid;

	fflush(stdout);
	pid = fork();
	if (pid < 0)
		ksft_exit_fail_perror("fork");
	if (pid)
		return pid;

	fail_nth_leave();
	ioport_clear_all(&t.map);
	t.worker = nr;
	t.left = -1;
	t.rng = spread(sh->seed * MAX_TASKS * 4 + nr);
	if (plugger)
		_exit(run_hotplug(&t));
	if (observer)
		observe(&t);
	else
		run_worker(&t);
	_exit(0);
}

/* Wait for all, with a sign of life. They end by themselves, or are ended. */
static void wait_for_all(const pid_t *pids, unsigned int nr)
{
	uint64_t begin = now_ns(), shown = begin, now;
	uint64_t grace = GRACE_SECONDS * NSEC_PER_SEC * ioport_slowness();
	unsigned int i, interval = seconds < 300 ? 30 : 60;
	const struct timespec tick = { 1, 0 };
	unsigned int running = nr;
	sigset_t chld;
	int status;
	pid_t pid;

	sigemptyset(&chld);
	sigaddset(&chld, SIGCHLD);

	while (running) {
		pid = waitpid(-1, &status, WNOHANG | __WALL);
		if (pid < 0 && errno != EINTR)
			break;
		if (pid > 0) {
			for (i = 0; i < nr && pids[i] != pid; i++)
				;
			/* Others lost their parent, who was killed on purpose */
			if (i == nr)
				continue;
			running--;
			count(sh->done[CHECK_TASKS], 1);
			if (status)
				mismatch(NULL, CHECK_TASKS,
					 "task %u: status 0x%x", i, status);
			continue;
		}

		sigtimedwait(&chld, NULL, &tick);
		now = now_ns();
		if (now - shown >= interval * NSEC_PER_SEC) {
			shown = now;
			print_progress((now - begin) / NSEC_PER_SEC);
		}
		if (now > sh->end + grace) {
			mismatch(NULL, CHECK_TASKS,
				 "%u tasks did not end by themselves", running);
			for (i = 0; i < nr; i++)
				kill(pids[i], SIGKILL);
			sh->end = now;
		}
	}

	/* What is left has lost its parent and got SIGKILL */
	while (waitpid(-1, &status, __WALL) > 0 || errno == EINTR)
		;
}

static void print_results(const char *no_failslab, const char *no_hotplug)
{
	int i;

	for (i = 0; i < NR_CHECKS; i++) {
		bool any = sh->done[i];

		/* To be denied everything is too little of a check */
		if (i == CHECK_ACCESSES)
			any = sh->allowed && sh->allowed < sh->done[i];
		if (!any)
			ksft_print_msg("%s: nothing was checked\n",
				       check_names[i]);
		ksft_test_result(any && !sh->wrong[i], "%s\n", check_names[i]);
	}

	if (no_hotplug)
		ksft_test_result_skip("hotplug: %s\n", no_hotplug);
	else if (hotplug)
		ksft_test_result(sh->offline, "hotplug\n");

	if (no_failslab)
		ksft_test_result_skip("failslab: %s\n", no_failslab);
	else if (sh->failslab)
		ksft_test_result(sh->enomem, "failslab\n");
}

static void usage(int code)
{
	printf("Usage: ioperm_random [OPTION]...\n"
	       "Random I/O permissions against a model.\n\n"
	       "  --seconds N  how long, at least 1 (default %u)\n"
	       "  --tasks N    how many tasks to begin with, 1 to %d\n"
	       "               (default: two for each CPU, at most 8)\n"
	       "  --seed N     start of the random numbers (default: the time)\n"
	       "  --hotplug    take CPUs offline and online, as root\n"
	       "  --failslab   let allocations fail, as root; needs FAILSLAB\n"
	       "               and FAULT_INJECTION_DEBUG_FS\n"
	       "  --help       print this and exit\n\n"
	       "With IOPORT_PROBE_ALL=1 in the environment all ports that nothing\n"
	       "claims are read: for virtual machines.\n",
	       DEFAULT_SECONDS, MAX_TASKS);
	exit(code);
}

static unsigned long long parse_number(const char *text,
				       unsigned long long min,
				       unsigned long long max)
{
	unsigned long long value;
	char *end;

	errno = 0;
	value = strtoull(text, &end, 0);
	if (*text < '0' || *text > '9' || *end || errno || value < min ||
	    value > max) {
		fprintf(stderr, "%s: not a number from %llu to %llu\n", text,
			min, max);
		exit(KSFT_FAIL);
	}

	return value;
}

static void parse_options(int argc, char **argv)
{
	static const struct option options[] = {
		{ "seconds",	required_argument,	NULL, 't' },
		{ "tasks",	required_argument,	NULL, 'n' },
		{ "seed",	required_argument,	NULL, 's' },
		{ "hotplug",	no_argument,		NULL, 'p' },
		{ "failslab",	no_argument,		NULL, 'f' },
		{ "help",	no_argument,		NULL, 'h' },
		{ }
	};
	int opt;

	while ((opt = getopt_long(argc, argv, "", options, NULL)) != -1) {
		switch (opt) {
		case 't':
			seconds = parse_number(optarg, 1, 1000000);
			break;
		case 'n':
			nr_tasks = parse_number(optarg, 1, MAX_TASKS);
			break;
		case 's':
			sh->seed = parse_number(optarg, 0, UINT64_MAX);
			break;
		case 'p':
			hotplug = true;
			break;
		case 'f':
			sh->failslab = true;
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
	const char *reason, *no_failslab = NULL, *no_hotplug;
	unsigned int i, nr, nr_observers;
	pid_t pids[MAX_TASKS * 2 + 1];
	bool failslab;
	sigset_t chld;

	if (argc == 4 && !strcmp(argv[1], "--resume"))
		return resume(argv);

	/* Tasks after an exec find it under its number */
	sh_fd = memfd_create("shared", 0);
	if (sh_fd < 0 || ftruncate(sh_fd, sizeof(*sh)))
		ksft_exit_fail_perror("memfd");
	sh = map_shared(sh_fd);
	if (!sh)
		ksft_exit_fail_perror("mmap");

	sh->seed = spread(now_ns() ^ getpid()) & INT32_MAX;
	parse_options(argc, argv);

	ksft_print_header();
	reason = ioport_skip_reason();
	if (reason)
		ksft_exit_skip("%s\n", reason);

	choose_cpus();
	choose_ports();
	if (!nr_tasks)
		nr_tasks = sh->nr_cpus < 4 ? 2 * sh->nr_cpus : 8;
	nr_observers = sh->nr_cpus < 4 ? sh->nr_cpus : 4;

	failslab = sh->failslab;
	if (failslab) {
		fail_nth_setup();
		no_failslab = fail_nth_skip_reason();
		sh->failslab = !no_failslab;
	}
	no_hotplug = hotplug_skip_reason();

	ksft_set_plan(NR_CHECKS + hotplug + failslab);
	ksft_print_msg("seed %llu, %u s, %u tasks, %u observers, %u CPUs\n",
		       (unsigned long long)sh->seed, seconds, nr_tasks,
		       nr_observers, sh->nr_cpus);

	sh->threads = has_futex();
	if (!sh->threads)
		ksft_print_msg("no threads: kernel without COMPAT_32BIT_TIME\n");

	/* Whoever started this may have had ports, they are inherited. */
	ioperm(0, IOPORT_NR, 0);
	iopl(0);

	prctl(PR_SET_CHILD_SUBREAPER, 1);
	sigemptyset(&chld);
	sigaddset(&chld, SIGCHLD);
	sigprocmask(SIG_BLOCK, &chld, NULL);

	sh->end = now_ns() + seconds * NSEC_PER_SEC;
	nr = nr_tasks + nr_observers + (hotplug && !no_hotplug);
	for (i = 0; i < nr; i++)
		pids[i] = start(i, i >= nr_tasks, i == nr_tasks + nr_observers);

	wait_for_all(pids, nr);
	if (failslab)
		fail_nth_restore();

	print_progress(seconds);
	print_results(no_failslab, no_hotplug);
	ksft_finished();
}
