// SPDX-License-Identifier: GPL-2.0
/*
 * Random I/O permissions against a model.
 *
 * Tasks on several CPUs do what changes I/O permissions, or where the CPU looks
 * for them, in random order: ioperm(), iopl(), fork(), threads, exec, exit,
 * being killed, moves to other CPUs, short sleeps. On request CPUs go off- and
 * online meanwhile, and allocations fail.
 *
 * Each task has a model of what it may do: one bit for each of the 65536 ports
 * and the I/O privilege level. A child and a thread begin with a copy, and
 * exec hands it over. After each step the task reads ports, random ones and
 * those at the edges of what it and others changed last, which is where
 * something stale would be. Observers, which never have any port, do the same.
 *
 *  accesses	Each access was allowed or denied as the model says.
 *  bitmaps	Each bitmap that was read through ptrace() is equal to the model.
 *  calls	Each call succeeded, or failed for want of memory and then changed
 *		nothing.
 *  tasks	No task died but by its own or its parent's will.
 *  hotplug	With --hotplug: CPUs went off and came back.
 *  failslab	With --failslab: allocations of ioperm() failed.
 *
 * The first mismatch ends the run. It is printed with the seed and the last
 * steps of the task and its ancestors. Each task draws its steps from the seed
 * alone, but not when they happen.
 *
 * Ports are only read, never written, and those that /proc/ioports has, except
 * for port 0x80, are enabled and disabled but not touched.
 */
#include "bench_helpers.h"

#include <elf.h>
#include <fcntl.h>
#include <pthread.h>
#include <sys/io.h>
#include <sys/ptrace.h>
#include <sys/uio.h>
#include <ucontext.h>

#ifndef NT_386_IOPERM
#define NT_386_IOPERM	0x201
#endif

#define NR_PORTS	65536
/* Ports of a 64-byte line of the bitmap. */
#define LINE_PORTS	512
/* The POST code port: the kernel has claimed it, but reading it is harmless. */
#define POST_PORT	0x80

#define MAX_TASKS	64
#define MAX_OBSERVERS	4
#define MAX_DEPTH	3
#define MAX_CHILDREN	3
#define MAX_THREADS	3
#define HISTORY		24
#define MIN_STEPS	10
#define HOT_PORTS	16

/* How long a task may take for its last step, on a very slow machine. */
#define GRACE_SECONDS	300

/* As in the TSS and in the regset, a set bit denies a port. */
struct port_map {
	uint8_t deny[NR_PORTS / 8];
};

/* @from, @num: the ports that it changed, if @num is not 0 */
struct step {
	char text[120];
	unsigned int from, num;
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
	struct port_map map;
	int iopl, left;
	unsigned int worker, depth, nr_steps;
	uint64_t rng;
	struct step steps[HISTORY];
};

struct family {
	/* 0 if none */
	pid_t child[MAX_CHILDREN];
	pthread_t thread[MAX_THREADS];
	unsigned int nr_threads;
};

enum check { ACCESSES, BITMAPS, CALLS, TASKS, NR_CHECKS };

static const char * const check_names[NR_CHECKS] = {
	"accesses", "bitmaps", "calls", "tasks",
};

/**
 * struct shared - what all tasks share
 * @stop:	end the run now
 * @done:	per check, how often it was made
 * @wrong:	per check, mismatches
 * @allowed:	accesses which were expected to work, and did
 * @enomem:	calls of ioperm() which failed with ENOMEM
 * @hot:	ports at the edges of what was changed last, by anybody
 * @readable:	ports which may be touched
 */
static struct shared {
	unsigned long seed;
	long long end;
	bool failslab, stop;
	unsigned long done[NR_CHECKS], wrong[NR_CHECKS];
	unsigned long allowed, enomem;
	unsigned long forks, threads, execs, moves, offline;
	unsigned int nr_cpus, hot[HOT_PORTS];
	struct port_map readable;
} *sh;

static int sh_fd;

static unsigned long seconds = 5, nr_tasks;
static bool hotplug, failslab;

#define load(x)		__atomic_load_n(&(x), __ATOMIC_RELAXED)
#define store(x, v)	__atomic_store_n(&(x), v, __ATOMIC_RELAXED)
#define count(x)	__atomic_fetch_add(&(x), 1, __ATOMIC_RELAXED)

static bool is_over(void)
{
	return load(sh->stop) || now_ns() >= sh->end;
}

/* Seeds and tasks that are close to each other have nothing in common. */
static uint64_t spread(uint64_t x)
{
	x += 0x9e3779b97f4a7c15ULL;
	x = (x ^ (x >> 30)) * 0xbf58476d1ce4e5b9ULL;
	x = (x ^ (x >> 27)) * 0x94d049bb133111ebULL;

	return x ^ (x >> 31);
}

/* A number below @limit. */
static uint32_t rnd(struct task *t, uint32_t limit)
{
	t->rng = spread(t->rng);

	return (t->rng >> 32) * limit >> 32;
}

static void sleep_below(struct task *t, unsigned int ns)
{
	const struct timespec ts = { .tv_nsec = rnd(t, ns) };

	nanosleep(&ts, NULL);
}

/*
 * Bitmaps.
 */

static void set_ports(struct port_map *map, unsigned int from,
		      unsigned int num, bool on)
{
	unsigned int port;

	for (port = from; port < from + num; port++) {
		if (on)
			map->deny[port / 8] &= ~(1U << (port % 8));
		else
			map->deny[port / 8] |= 1U << (port % 8);
	}
}

static bool allows(const struct port_map *map, unsigned int port,
		   unsigned int width)
{
	unsigned int end = port + width;

	if (end > NR_PORTS)
		return false;
	for (; port < end; port++) {
		if (map->deny[port / 8] & (1U << (port % 8)))
			return false;
	}

	return true;
}

/*
 * Read the bitmap that the kernel keeps for the caller, all ones if there is
 * none. A task cannot trace itself, but a child has the very same bitmap.
 *
 * Return: 0 or an error number
 */
static int read_bitmap(struct port_map *map)
{
	struct iovec iov = { map->deny, sizeof(map->deny) };
	int err, status;
	pid_t pid;

	memset(map, 0xff, sizeof(*map));
	pid = fork_bound();
	if (pid < 0)
		return errno;
	if (!pid) {
		if (ptrace(PTRACE_TRACEME, 0, NULL, NULL))
			_exit(errno);
		raise(SIGSTOP);
		_exit(EINTR);
	}
	if (waitpid(pid, &status, __WALL) != pid)
		return errno;
	if (!WIFSTOPPED(status))
		return WIFEXITED(status) ? WEXITSTATUS(status) : EINTR;

	err = ptrace(PTRACE_GETREGSET, pid, (void *)NT_386_IOPERM, &iov) ?
	      errno : 0;
	if (!err && iov.iov_len != sizeof(map->deny))
		err = EMSGSIZE;
	kill(pid, SIGKILL);
	waitpid(pid, &status, __WALL);

	return err == ENXIO ? 0 : err;
}

/*
 * Steps and mismatches.
 */

static __printf(2, 3) struct step *add_step(struct task *t, const char *fmt, ...)
{
	struct step *step = &t->steps[t->nr_steps++ % HISTORY];
	va_list args;
	int len;

	step->num = 0;
	len = sprintf(step->text, "tid %d CPU %d ", gettid(), sched_getcpu());
	va_start(args, fmt);
	vsnprintf(step->text + len, sizeof(step->text) - len, fmt, args);
	va_end(args);

	return step;
}

static unsigned int first_step(const struct task *t)
{
	return t->nr_steps < HISTORY ? 0 : t->nr_steps - HISTORY;
}

/* The first mismatch is printed, all count, and the run ends. @t may be NULL */
static __printf(4, 5) void check(struct task *t, enum check which, bool good,
				 const char *fmt, ...)
{
	struct port_map seen;
	char what[400];
	unsigned int i;
	va_list args;
	int err;

	count(sh->done[which]);
	if (good)
		return;
	count(sh->wrong[which]);
	if (__atomic_exchange_n(&sh->stop, true, __ATOMIC_RELAXED))
		return;

	va_start(args, fmt);
	vsnprintf(what, sizeof(what), fmt, args);
	va_end(args);
	dprintf(STDOUT_FILENO, "# MISMATCH %s: %s\n# seed %lu\n",
		check_names[which], what, sh->seed);
	if (!t)
		return;
	/* Is it the bitmap that is wrong, or what the CPU has of it? */
	err = read_bitmap(&seen);
	dprintf(STDOUT_FILENO,
		"# task %u depth %u step %u pid %d tid %d CPU %d iopl %d\n"
		"# the kernel's bitmap is %s\n# the last steps of this task:\n",
		t->worker, t->depth, t->nr_steps, getpid(), gettid(),
		sched_getcpu(), t->iopl, err ? strerror(err) :
		memcmp(&seen, &t->map, sizeof(seen)) ? "wrong" : "right");
	for (i = first_step(t); i < t->nr_steps; i++)
		dprintf(STDOUT_FILENO, "#   %u: %s\n", i,
			t->steps[i % HISTORY].text);
}

/*
 * Checks.
 */

#ifdef __x86_64__
#define REG_IP	REG_RIP
#else
#define REG_IP	REG_EIP
#endif

#define TRAP_GP	13

/*
 * Step over IN without permission and set the carry flag, which IN never
 * changes. Any other fault happens again right away, and kills.
 */
static void on_sigsegv(int sig, siginfo_t *info __attribute__((unused)),
		       void *context)
{
	greg_t *regs = ((ucontext_t *)context)->uc_mcontext.gregs;
	const uint8_t *insn = (const uint8_t *)regs[REG_IP];

	/* The prefix of 16 bit operands */
	if (*insn == 0x66)
		insn++;
	if (regs[REG_TRAPNO] == TRAP_GP && (*insn == 0xec || *insn == 0xed)) {
		regs[REG_IP] = (greg_t)(insn + 1);
		regs[REG_EFL] |= 1;
		return;
	}
	signal(sig, SIG_DFL);
}

/* Returns whether the access was executed. */
static bool read_port(unsigned int port, unsigned int width)
{
	uint32_t eax = 0;
	bool denied;

	if (width == 1)
		asm volatile ("clc\n\tinb %%dx, %%al" : "=@ccc" (denied),
			      "+a" (eax) : "d" (port));
	else if (width == 2)
		asm volatile ("clc\n\tinw %%dx, %%ax" : "=@ccc" (denied),
			      "+a" (eax) : "d" (port));
	else
		asm volatile ("clc\n\tinl %%dx, %%eax" : "=@ccc" (denied),
			      "+a" (eax) : "d" (port));

	return !denied;
}

/* What is denied is not touched either: the kernel may be wrong. */
static void try_port(struct task *t, unsigned int port, const char *when)
{
	unsigned int width = 1U << rnd(t, 3), inside = width;
	bool want, got;

	if (port >= NR_PORTS || load(sh->stop))
		return;
	if (port + width > NR_PORTS)
		inside = NR_PORTS - port;
	if (!allows(&sh->readable, port, inside))
		return;

	want = t->iopl == 3 ? inside == width : allows(&t->map, port, width);
	got = read_port(port, width);
	if (want && got)
		count(sh->allowed);
	check(t, ACCESSES, want == got, "%s: in%c from port 0x%x %s", when,
	      "?bw?l"[width], port, got ? "worked" : "faulted");
}

static void try_ports(struct task *t, const char *when)
{
	static const unsigned int edges[] = {
		1, 64, 512, 1024, 32768, 65024, 65535, POST_PORT,
	};
	unsigned int i, j, from;

	for (i = 0; i < ARRAY_SIZE(edges); i++)
		try_port(t, edges[i] - rnd(t, 2), when);

	/* What this task did, the latest changes always */
	for (i = first_step(t); i < t->nr_steps; i++) {
		const struct step *step = &t->steps[i % HISTORY];

		if (!step->num || (i + 4 < t->nr_steps && rnd(t, 4)))
			continue;
		for (j = 0; j < 6; j++) {
			try_port(t, step->from + j - 4, when);
			try_port(t, step->from + step->num + j - 4, when);
		}
		try_port(t, step->from + rnd(t, step->num), when);
	}

	/* What others did, and anywhere */
	for (i = 0; i < HOT_PORTS; i++)
		try_port(t, load(sh->hot[i]), when);
	for (i = 0; i < 32; i++)
		try_port(t, rnd(t, NR_PORTS), when);

	/* Each port of two lines */
	if (rnd(t, 64) == 0) {
		from = rnd(t, NR_PORTS / LINE_PORTS) * LINE_PORTS;
		for (i = 0; i < 2 * LINE_PORTS; i++)
			try_port(t, from + i, when);
	}
}

static void check_bitmap(struct task *t, const char *when)
{
	unsigned int port = 0;
	struct port_map seen;
	int err;

	if (load(sh->stop))
		return;

	add_step(t, "bitmap read");
	err = read_bitmap(&seen);
	if (err == ENOMEM || err == EAGAIN)
		return;
	check(t, CALLS, !err, "%s: the bitmap cannot be read: %s", when,
	      strerror(err));
	while (!err && port < NR_PORTS &&
	       allows(&seen, port, 1) == allows(&t->map, port, 1))
		port++;
	check(t, BITMAPS, err || port == NR_PORTS,
	      "%s: port 0x%x is wrong in the bitmap", when, port);
}

/*
 * Failing allocations. /proc/thread-self/fail-nth lets the nth one of a thread
 * fail. Settings for the whole system say which allocations count, by default
 * none which may sleep; they do nothing to other tasks.
 */

#define DEBUGFS	"/sys/kernel/debug/"

static struct {
	const char *path, *value;
	char old[32];
} settings[] = {
	{ .path = DEBUGFS "failslab/ignore-gfp-wait", .value = "N" },
	{ .path = DEBUGFS "failslab/cache-filter", .value = "N" },
	{ .path = DEBUGFS "failslab/verbose", .value = "0" },
	{ .path = DEBUGFS "failslab/times", .value = "-1" },
	{ .path = DEBUGFS "fail_page_alloc/ignore-gfp-wait", .value = "N" },
	{ .path = DEBUGFS "fail_page_alloc/min-order", .value = "0" },
	{ .path = DEBUGFS "fail_page_alloc/verbose", .value = "0" },
	{ .path = DEBUGFS "fail_page_alloc/times", .value = "-1" },
};

static bool change_settings(void)
{
	unsigned int i;

	for (i = 0; i < ARRAY_SIZE(settings); i++) {
		if (read_text(settings[i].path, settings[i].old,
			      sizeof(settings[i].old)))
			write_text(settings[i].path, settings[i].value);
	}

	return *settings[0].old && !access("/proc/thread-self/fail-nth", W_OK);
}

static void restore_settings(void)
{
	unsigned int i;

	for (i = 0; i < ARRAY_SIZE(settings); i++) {
		if (*settings[i].old)
			write_text(settings[i].path, settings[i].old);
	}
}

/*
 * Let one of the next allocations of the caller fail, at random.
 *
 * Return: what end_call() needs, -1 if none is to fail
 */
static int arm(struct task *t, unsigned int max)
{
	char nth[16];
	int fd, len;
	bool good;

	if (!sh->failslab || rnd(t, 3))
		return -1;
	len = snprintf(nth, sizeof(nth), "%u", 1 + rnd(t, max));
	fd = open("/proc/thread-self/fail-nth", O_RDWR | O_CLOEXEC);
	good = fd >= 0 && pwrite(fd, nth, len, 0) == len;
	check(t, CALLS, good, "fail-nth: %s", strerror(errno));

	return fd;
}

/* A call has failed with @err, or not. It may if an allocation did. */
static void end_call(struct task *t, struct step *step, int fd, int err)
{
	size_t len = strlen(step->text);
	bool good, injected = false;
	char left[16] = "";

	if (fd >= 0) {
		good = pread(fd, left, sizeof(left) - 1, 0) > 0 &&
		       pwrite(fd, "0", 1, 0) == 1;
		check(t, CALLS, good, "fail-nth: %s", strerror(errno));
		close(fd);
		injected = !atoi(left);
	}
	snprintf(step->text + len, sizeof(step->text) - len, "%s%s%s",
		 err ? ": " : "", err ? strerror(err) : "",
		 injected ? " (an allocation failed)" : "");
	/* ioperm() has no other error then */
	check(t, CALLS, !err || (injected && (err == ENOMEM || !step->num)),
	      "%s", step->text);
}

/*
 * Steps.
 */

static void choose_range(struct task *t, bool on, unsigned int *from,
			 unsigned int *num)
{
	static const unsigned int edges[] = {
		0, 31, 32, 63, 64, 511, 512, 513, 1023, 1024, 32767, 32768,
		65023, 65024, 65534, 65535, POST_PORT, POST_PORT, POST_PORT,
	};
	static const unsigned int sizes[] = { 1, 1, 1, 16, 64, 1100, 3000 };

	*from = rnd(t, NR_PORTS);
	*num = 1 + rnd(t, sizes[rnd(t, ARRAY_SIZE(sizes))]);

	switch (rnd(t, 10)) {
	case 0 ... 2:
		*from = edges[rnd(t, ARRAY_SIZE(edges))];
		break;
	case 3 ... 4:
		*from = load(sh->hot[rnd(t, HOT_PORTS)]);
		break;
	case 5:
		/* Whole lines */
		*from -= *from % LINE_PORTS;
		*num = LINE_PORTS * (1 + rnd(t, 4));
		break;
	case 6:
		/* Or soon all of them would be enabled */
		if (!on || rnd(t, 4) == 0)
			*num = 1 + rnd(t, NR_PORTS);
		break;
	}

	/* All, or nearly */
	if (rnd(t, on ? 100 : 10) == 0) {
		*from = rnd(t, 4) ? 0 : rnd(t, 600);
		*num = NR_PORTS - (rnd(t, 3) ? 0 : rnd(t, 1200));
	}
	if (*from + *num > NR_PORTS)
		*num = NR_PORTS - *from;
}

static void change_ports(struct task *t, unsigned int from, unsigned int num,
			 bool on)
{
	struct step *step = add_step(t, "ioperm(0x%x, %u, %d)", from, num, on);
	int fd = arm(t, 2);
	int err = ioperm(from, num, on) ? errno : 0;

	step->from = from;
	step->num = num;
	end_call(t, step, fd, err);
	if (!err)
		set_ports(&t->map, from, num, on);
	if (err == ENOMEM)
		count(sh->enomem);
	store(sh->hot[rnd(t, HOT_PORTS)], from);
	store(sh->hot[rnd(t, HOT_PORTS)], from + num - 1);
}

static void change_iopl(struct task *t)
{
	int level = rnd(t, 3) ? 0 : 3;
	struct step *step = add_step(t, "iopl(%d)", level);
	int err = iopl(level) ? errno : 0;

	end_call(t, step, -1, err);
	if (!err)
		t->iopl = level;
}

/* To one CPU or to all. Fails while that CPU is off. */
static void move(struct task *t)
{
	unsigned int cpu = rnd(t, sh->nr_cpus);
	cpu_set_t set;

	memset(&set, 0xff, sizeof(set));
	if (rnd(t, 3)) {
		CPU_ZERO(&set);
		CPU_SET(cpu, &set);
	}
	sched_setaffinity(0, sizeof(set), &set);
	add_step(t, "moved to CPU %u%s", cpu,
		 CPU_COUNT(&set) > 1 ? " or any other" : "");
	count(sh->moves);
}

static void run_task(struct task *t, bool alone);

/* Begin a life of its own, with a copy of what the parent knows. */
static void descend(struct task *t, const char *what, pid_t from)
{
	t->rng ^= 0x5555555555555555ULL;
	t->left = rnd(t, 16);
	t->depth++;
	add_step(t, "is a %s of %d", what, from);
}

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
	int fd, err;

	if (t->depth >= MAX_DEPTH || family->nr_threads == MAX_THREADS)
		return;
	next = malloc(sizeof(*next));
	if (!next)
		return;

	step = add_step(t, "pthread_create()");
	*next = *t;
	descend(next, "thread", getpid());
	fd = arm(t, 100);
	err = pthread_create(&family->thread[family->nr_threads], NULL,
			     run_thread, next);
	end_call(t, step, fd, err);
	if (err) {
		free(next);
		return;
	}
	count(sh->threads);
	family->nr_threads++;
}

static void join_threads(struct task *t, struct family *family)
{
	if (!family->nr_threads)
		return;
	add_step(t, "%u threads joined", family->nr_threads);
	while (family->nr_threads)
		pthread_join(family->thread[--family->nr_threads], NULL);
}

static void start_child(struct task *t, struct family *family)
{
	pid_t pid, parent = getpid();
	struct step *step;
	int i, fd, err;

	for (i = 0; i < MAX_CHILDREN && family->child[i]; i++)
		;
	if (t->depth >= MAX_DEPTH || i == MAX_CHILDREN)
		return;

	step = add_step(t, "fork()");
	fd = arm(t, 150);
	pid = fork_bound();
	err = pid < 0 ? errno : 0;
	if (!pid) {
		/* It is the parent's */
		if (fd >= 0)
			close(fd);
		count(sh->forks);
		descend(t, "child", parent);
		try_ports(t, "new child");
		run_task(t, true);
		_exit(0);
	}
	end_call(t, step, fd, err);
	if (!err)
		family->child[i] = pid;
}

static void end_child(struct task *t, struct family *family, int i, bool force)
{
	pid_t pid = family->child[i];
	int status = 0;
	bool good;

	if (!pid)
		return;
	family->child[i] = 0;
	if (force)
		kill(pid, SIGKILL);
	add_step(t, "child %d %s", pid, force ? "is killed" : "is to exit");
	good = waitpid(pid, &status, __WALL) == pid &&
	       (!status || (force && status == SIGKILL));
	check(t, TASKS, good, "child %d: status 0x%x", pid, status);
}

static void end_family(struct task *t, struct family *family)
{
	int i;

	join_threads(t, family);
	for (i = 0; i < MAX_CHILDREN; i++)
		end_child(t, family, i, false);
}

/* The task goes on in a new program, which gets what it knows as a file. */
static void go_on_in_new_program(struct task *t)
{
	char fds[32];
	int fd;

	add_step(t, "exec");
	count(sh->execs);
	fd = memfd_create("task", 0);
	if (fd >= 0 && write(fd, t, sizeof(*t)) == sizeof(*t)) {
		snprintf(fds, sizeof(fds), "%d %d", sh_fd, fd);
		execl("/proc/self/exe", "ioperm_random", "--resume", fds, NULL);
	}
	check(t, CALLS, false, "exec: %s", strerror(errno));
}

static void map_memfd(int fd)
{
	sh_fd = fd;
	sh = mmap(NULL, sizeof(*sh), PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);
	if (sh != MAP_FAILED)
		return;
	perror("mmap");
	exit(EXIT_FAILURE);
}

static int resume(const char *fds)
{
	static struct task t;
	int shared, fd;

	if (sscanf(fds, "%d %d", &shared, &fd) != 2)
		return EXIT_FAILURE;
	map_memfd(shared);
	if (pread(fd, &t, sizeof(t), 0) != sizeof(t))
		return EXIT_FAILURE;
	close(fd);

	try_ports(&t, "after exec");
	check_bitmap(&t, "after exec");
	run_task(&t, true);

	return EXIT_SUCCESS;
}

static void do_step(struct task *t, struct family *family, bool alone)
{
	unsigned int from, num, what = rnd(t, 64);

	switch (what) {
	case 0 ... 38:
		choose_range(t, what < 20, &from, &num);
		change_ports(t, from, num, what < 20);
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
		/* It would end the other threads of the process */
		if (!alone)
			break;
		end_family(t, family);
		go_on_in_new_program(t);
		break;
	case 56 ... 61:
		move(t);
		break;
	default:
		check_bitmap(t, "between two steps");
		break;
	}

	if (rnd(t, 4) == 0)
		sleep_below(t, 300 * NSEC_PER_USEC);
	else if (rnd(t, 2))
		sched_yield();
}

/* @alone: the task is a process, not a thread of one */
static void run_task(struct task *t, bool alone)
{
	struct family family = {};

	/* However slow the machine is, each of the first tasks does something */
	while (t->left && !load(sh->stop) &&
	       (!is_over() || (!t->depth && t->nr_steps < MIN_STEPS))) {
		if (t->left > 0)
			t->left--;
		do_step(t, &family, alone);
		try_ports(t, "after a step");
	}
	end_family(t, &family);
	try_ports(t, "at the end");
	check_bitmap(t, "at the end");
}

/* Never had a port, whoever ran before it on any CPU. */
static void observe(struct task *t)
{
	while (!is_over()) {
		sleep_below(t, 100 * NSEC_PER_USEC);
		try_port(t, POST_PORT, "observer");
		try_port(t, load(sh->hot[rnd(t, HOT_PORTS)]), "observer");
		if (rnd(t, 32) == 0)
			try_ports(t, "observer");
		if (rnd(t, 64) == 0)
			move(t);
	}
}

/* All CPUs come back, also when the other tasks are killed: this one is not. */
static void run_hotplug(struct task *t)
{
	char path[80];

	signal(SIGTERM, end_measuring);
	prctl(PR_SET_PDEATHSIG, SIGTERM);

	while (!signalled && !is_over()) {
		snprintf(path, sizeof(path),
			 "/sys/devices/system/cpu/cpu%u/online",
			 rnd(t, sh->nr_cpus));
		/* Some cannot */
		if (write_text(path, "0")) {
			count(sh->offline);
			sleep_below(t, 50 * NSEC_PER_MSEC);
			while (!write_text(path, "1") && errno == EINTR)
				;
		}
		sleep_below(t, 200 * NSEC_PER_MSEC);
	}
}

/*
 * The run.
 */

/* Without the file, and if it hides the numbers, only port 0x80. */
static void find_readable_ports(void)
{
	unsigned int from, to, known = 0;
	FILE *file = fopen("/proc/ioports", "re");
	char line[256];

	set_ports(&sh->readable, 0, NR_PORTS, false);
	while (file && fgets(line, sizeof(line), file)) {
		if (sscanf(line, " %x-%x", &from, &to) != 2 || from > to ||
		    to >= NR_PORTS)
			continue;
		if (to && !known++)
			set_ports(&sh->readable, 0, NR_PORTS, true);
		/* What a bridge passes on is claimed by the devices behind it */
		if (!strstr(line, ": PCI Bus "))
			set_ports(&sh->readable, from, to - from + 1, false);
	}
	if (file)
		fclose(file);
	set_ports(&sh->readable, POST_PORT, 1, true);
}

static void print_progress(unsigned int secs)
{
	printf("# %u s: accesses %lu, of which allowed %lu, bitmaps %lu, calls %lu\n",
	       secs, load(sh->done[ACCESSES]), load(sh->allowed),
	       load(sh->done[BITMAPS]), load(sh->done[CALLS]));
	printf("# %u s: forks %lu threads %lu execs %lu moves %lu ENOMEM %lu offline %lu\n",
	       secs, load(sh->forks), load(sh->threads), load(sh->execs),
	       load(sh->moves), load(sh->enomem), load(sh->offline));
	fflush(stdout);
}

/* Begins with a port that can be tried. */
static void run_worker(struct task *t)
{
	change_ports(t, POST_PORT, 1, true);
	try_port(t, POST_PORT, "first port");
	run_task(t, true);
}

/* Start one of the first tasks, from which all others descend. */
static pid_t start(unsigned int nr, void (*run)(struct task *t))
{
	static struct task t;
	pid_t pid;

	fflush(stdout);
	pid = fork_bound();
	if (pid < 0) {
		perror("fork");
		exit(EXIT_FAILURE);
	}
	if (pid)
		return pid;

	memset(&t.map, 0xff, sizeof(t.map));
	t.worker = nr;
	t.left = -1;
	t.rng = spread(sh->seed * MAX_TASKS * 4ULL + nr);
	run(&t);
	_exit(0);
}

/* Wait for all, with a sign of life. They end by themselves, or are ended. */
static void wait_for_all(const pid_t *pids, unsigned int nr)
{
	const struct timespec tick = { .tv_nsec = 100 * NSEC_PER_MSEC };
	long long begin = now_ns(), shown = begin, now;
	unsigned int i;
	int status;
	pid_t pid;

	while ((pid = waitpid(-1, &status, WNOHANG | __WALL)) >= 0) {
		/* The parents of others were killed on purpose, so they were */
		for (i = 0; pid && i < nr; i++) {
			if (pids[i] == pid)
				check(NULL, TASKS, !status,
				      "task %u: status 0x%x", i, status);
		}
		if (pid)
			continue;

		nanosleep(&tick, NULL);
		now = now_ns();
		if (now - shown >= 30 * NSEC_PER_SEC) {
			shown = now;
			print_progress((now - begin) / NSEC_PER_SEC);
		}
		if (now > sh->end + GRACE_SECONDS * NSEC_PER_SEC) {
			check(NULL, TASKS, false,
			      "some tasks did not end by themselves");
			for (i = 0; i < nr; i++)
				kill(pids[i], SIGKILL);
			sh->end = now;
		}
	}
}

/* Returns whether the result is good. @skip: why there is none, or NULL */
static bool print_result(const char *name, bool good, const char *skip)
{
	static unsigned int nr;

	if (skip)
		printf("ok %u # SKIP %s: %s\n", ++nr, name, skip);
	else
		printf("%s %u %s\n", good ? "ok" : "not ok", ++nr, name);

	return good || skip;
}

static int run(void)
{
	unsigned int i, nr, nr_observers;
	pid_t pids[MAX_TASKS + MAX_OBSERVERS + 1];
	bool can_hotplug, good;

	find_readable_ports();
	sh->nr_cpus = sysconf(_SC_NPROCESSORS_CONF);
	if (!nr_tasks)
		nr_tasks = sh->nr_cpus < 4 ? 2 * sh->nr_cpus : 8;
	nr_observers = sh->nr_cpus < MAX_OBSERVERS ? sh->nr_cpus :
		       MAX_OBSERVERS;
	can_hotplug = !access("/sys/devices/system/cpu/cpu1/online", W_OK);

	printf("TAP version 13\n1..%d\n", NR_CHECKS + hotplug + failslab);
	printf("# seed %lu, %lu s, %lu tasks, %u observers, %u CPUs\n", sh->seed,
	       seconds, nr_tasks, nr_observers, sh->nr_cpus);
	fflush(stdout);

	/* Whoever started this may have had ports, they are inherited. */
	good = !ioperm(0, NR_PORTS, 0) && !iopl(0);
	check(NULL, CALLS, good, "not all ports can be disabled: %s",
	      strerror(errno));
	prctl(PR_SET_CHILD_SUBREAPER, 1);
	/* The parent gets these too, and then kills this task, so they all end. */
	signal(SIGHUP, SIG_IGN);
	signal(SIGINT, SIG_IGN);
	signal(SIGTERM, SIG_IGN);

	sh->end = now_ns() + seconds * NSEC_PER_SEC;
	nr = nr_tasks + nr_observers + (hotplug && can_hotplug);
	for (i = 0; i < nr; i++)
		pids[i] = start(i, i < nr_tasks ? run_worker :
				i < nr_tasks + nr_observers ? observe :
				run_hotplug);
	wait_for_all(pids, nr);
	print_progress(seconds);

	good = true;
	for (i = 0; i < NR_CHECKS; i++) {
		bool any = sh->done[i];

		/* To be denied everything is too little of a check */
		if (i == ACCESSES)
			any = sh->allowed && sh->allowed < sh->done[i];
		if (!any)
			printf("# %s: nothing was checked\n", check_names[i]);
		good &= print_result(check_names[i], any && !sh->wrong[i],
				     NULL);
	}
	if (hotplug)
		good &= print_result("hotplug", sh->offline, can_hotplug ? NULL :
				     "no CPU that can be taken offline");
	if (failslab)
		good &= print_result("failslab", sh->enomem, sh->failslab ? NULL :
				     "no fail-nth or no failslab in debugfs");

	return good ? EXIT_SUCCESS : EXIT_FAILURE;
}

int main(int argc, char **argv)
{
	const struct sigaction action = {
		.sa_sigaction = on_sigsegv,
		.sa_flags = SA_SIGINFO,
	};
	unsigned long seed = spread(now_ns() ^ getpid()) & INT32_MAX;
	const struct option_of options[] = {
		{ .name = "seconds", .kind = WHOLE, .value = &seconds, .min = 1,
		  .max = 1000000, .help = "how long (default 5)" },
		{ .name = "tasks", .kind = WHOLE, .value = &nr_tasks, .min = 1,
		  .max = MAX_TASKS, .help = "with how many tasks it begins (default:\n"
		  "               two for each CPU, at most 8)" },
		{ .name = "seed", .kind = WHOLE, .value = &seed, .max = UINT32_MAX,
		  .help = "of the random numbers (default: the time)" },
		{ .name = "hotplug", .kind = FLAG, .value = &hotplug,
		  .help = "take CPUs offline and online" },
		{ .name = "failslab", .kind = FLAG, .value = &failslab,
		  .help = "let allocations fail (FAULT_INJECTION_DEBUG_FS)" },
		{}
	};
	int fd, err, status = 0;
	pid_t pid;

	sigaction(SIGSEGV, &action, NULL);
	if (argc == 3 && !strcmp(argv[1], "--resume"))
		return resume(argv[2]);

	read_options(argc, argv, false, options,
		     "Usage: ioperm_random [OPTION]...\n"
		     "Random I/O permissions against a model, as root. Reads the ports that nothing\n"
		     "in /proc/ioports claims.");
	/* Tasks find it under its number after an exec. */
	fd = memfd_create("shared", 0);
	if (fd < 0 || ftruncate(fd, sizeof(*sh))) {
		perror("memfd");
		return EXIT_FAILURE;
	}
	map_memfd(fd);
	sh->seed = seed;

	/* Not by a task whose children would inherit it */
	pid = fork_bound();
	if (!pid)
		_exit(ioperm(POST_PORT, 1, 1) ? errno : 0);
	waitpid(pid, &status, 0);
	err = WEXITSTATUS(status);
	if (err == EPERM || err == ENOSYS) {
		printf("1..0 # SKIP ioperm: %s%s\n", strerror(err),
		       err == EPERM ? " (not root, or kernel lockdown)" : "");
		return EXIT_SKIPPED;
	}

	if (failslab)
		sh->failslab = change_settings();

	return measure_and_clean_up(run, restore_settings);
}
