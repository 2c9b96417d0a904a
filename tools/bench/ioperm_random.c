// SPDX-License-Identifier: GPL-2.0
/*
 * Random I/O permissions against a model.
 *
 * Tasks on several CPUs do what changes I/O permissions, or where the CPU looks for them, in random
 * order: ioperm(), iopl(), fork(), threads, exec, exit, being killed, moves to other CPUs, short
 * sleeps. On request CPUs go off- and online meanwhile, and allocations fail.
 *
 * Each task has a model of what it may do: which of the 65536 ports, and the I/O privilege level. A
 * child and a thread begin with a copy, and exec hands it over. After each step the task reads
 * ports, random ones and those at the edges of what it and others changed last, which is where
 * something stale would be. Observers, which never have any port, do the same.
 *
 *  accesses	Each access was allowed or denied as the model says.
 *  bitmaps	Each bitmap that was read through ptrace() is equal to the model.
 *  calls	Each call succeeded, or failed for want of memory and changed nothing.
 *  tasks	No task died but by its own or its parent's will.
 *  hotplug	With --hotplug: CPUs went off and came back.
 *  failslab	With --failslab: allocations of ioperm() failed.
 *
 * The first mismatch ends the run. It is printed with the seed, from which each task draws its steps
 * but not when they happen, and the last steps of the task and its ancestors.
 *
 * Ports are only read, never written, and those that /proc/ioports has, except for port 0x80, are
 * enabled and disabled but not touched.
 */
#include "bench_helpers.h"

#include <elf.h>
#include <fcntl.h>
#include <pthread.h>
#include <sys/io.h>
#include <sys/ptrace.h>
#include <sys/uio.h>
#include <ucontext.h>

#define NR_PORTS	65536
/* Ports of a 64-byte line of the bitmap. */
#define LINE_PORTS	512
/* The POST code port: the kernel has claimed it, but reading it is harmless. */
#define POST_PORT	0x80

#define MAX_TASKS	8
#define MAX_OBSERVERS	4
#define MAX_RELATIVES	6
#define HISTORY		24
#define HOT_PORTS	16

/* File descriptors that a task takes along through exec. */
#define SHARED_FD	100
#define TASK_FD		101

/* @from, @num: the ports that it changed, if @num is not 0 */
struct step {
	char text[120];
	unsigned int from, num;
};

/* What a task knows of itself, and takes along through exec. */
struct task {
	bool allowed[NR_PORTS];		/* by ioperm() */
	int iopl;
	int left;			/* steps to be done, -1: until the time is over */
	bool is_thread;			/* shares its process with others */
	unsigned int depth;		/* forks and threads away from the first task */
	uint64_t rng;
	unsigned int nr_steps;		/* also of its ancestors, and the last of these */
	struct step steps[HISTORY];
};

/* A child, a thread or, with both 0, none */
struct relative {
	pid_t child;
	pthread_t thread;
};

enum check { ACCESSES, BITMAPS, CALLS, TASKS, HOTPLUG, FAILSLAB, NR_CHECKS };

static const char * const check_names[] = {
	"accesses", "bitmaps", "calls", "tasks", "hotplug", "failslab",
};

static struct shared {
	double seconds, seed;
	bool hotplug, failslab;
	long long end;
	bool stop;
	/* How often each check was made, its mismatches; accesses which had to work, and did. */
	unsigned long done[NR_CHECKS], wrong[NR_CHECKS], allowed;
	unsigned int nr_cpus;
	unsigned int hot[HOT_PORTS];	/* at the edges of what was changed last, by anybody */
	bool readable[NR_PORTS];	/* may be touched */
} *sh;

static const unsigned int edges[] = {
	0, 1, 31, 32, 63, 64, 511, 512, 513, 1023, 1024, 32767, 32768, 65023, 65024, 65534, 65535,
	POST_PORT, POST_PORT, POST_PORT,
};

#define count(x)	__atomic_fetch_add(&(x), 1, __ATOMIC_RELAXED)

static bool is_over(void)
{
	return get(sh->stop) || now_ns() >= sh->end;
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

static bool all_of(const bool *ports, unsigned int from, unsigned int num)
{
	return from + num <= NR_PORTS && !memchr(ports + from, false, num);
}

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

/* The first mismatch is printed, all count, and the run ends. @t may be NULL */
static __printf(4, 5) void check(struct task *t, enum check which, bool good, const char *fmt, ...)
{
	unsigned int i;
	va_list args;

	count(sh->done[which]);
	if (good)
		return;
	count(sh->wrong[which]);
	if (__atomic_exchange_n(&sh->stop, true, __ATOMIC_RELAXED))
		return;

	dprintf(STDOUT_FILENO, "# MISMATCH %s: ", check_names[which]);
	va_start(args, fmt);
	vdprintf(STDOUT_FILENO, fmt, args);
	va_end(args);
	dprintf(STDOUT_FILENO, "\n# seed %.0f pid %d tid %d CPU %d iopl %d\n", sh->seed, getpid(),
		gettid(), sched_getcpu(), t ? t->iopl : 0);
	for (i = t && t->nr_steps < HISTORY ? HISTORY - t->nr_steps : 0; t && i < HISTORY; i++)
		dprintf(STDOUT_FILENO, "# %s\n", t->steps[(t->nr_steps + i) % HISTORY].text);
}

/*
 * Step over IN without permission, which is exception 13, and set the carry flag, which IN never
 * changes. Any other fault happens again right away, and kills.
 */
static void on_sigsegv(int sig, siginfo_t *info __attribute__((unused)), void *context)
{
	greg_t *regs = ((ucontext_t *)context)->uc_mcontext.gregs;
	const uint8_t *insn = (const uint8_t *)regs[REG_RIP];

	/* The prefix of 16 bit operands */
	insn += *insn == 0x66;
	if (regs[REG_TRAPNO] == 13 && (*insn == 0xec || *insn == 0xed)) {
		regs[REG_RIP] = (greg_t)(insn + 1);
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

#define TRY(in)	asm volatile ("clc\n\t" in : "=@ccc" (denied), "+a" (eax) : "d" (port))
	if (width == 1)
		TRY("inb %%dx, %%al");
	else if (width == 2)
		TRY("inw %%dx, %%ax");
	else
		TRY("inl %%dx, %%eax");
	return !denied;
}

/* What is denied is not touched either: the kernel may be wrong. */
static void try_port(struct task *t, unsigned int port)
{
	unsigned int width = 1U << rnd(t, 3), inside = width;
	bool want, got;

	if (port >= NR_PORTS || get(sh->stop))
		return;
	if (port + width > NR_PORTS)
		inside = NR_PORTS - port;
	if (!all_of(sh->readable, port, inside))
		return;

	want = t->iopl == 3 ? inside == width : all_of(t->allowed, port, width);
	got = read_port(port, width);
	if (want && got)
		count(sh->allowed);
	check(t, ACCESSES, want == got, "%u bytes at 0x%x: %s", width, port, got ? "ok" : "fault");
}

static void try_ports(struct task *t)
{
	unsigned int i, j, from;

	for (i = 0; i < ARRAY_SIZE(edges); i++)
		try_port(t, edges[i] - rnd(t, 2));

	/* What this task did, the latest changes always */
	for (i = 0; i < HISTORY; i++) {
		const struct step *step = &t->steps[(t->nr_steps + i) % HISTORY];

		if (!step->num || (i < HISTORY - 4 && rnd(t, 4)))
			continue;
		for (j = 0; j < 6; j++) {
			try_port(t, step->from + j - 4);
			try_port(t, step->from + step->num + j - 4);
		}
		try_port(t, step->from + rnd(t, step->num));
	}

	/* What others did, and anywhere */
	for (i = 0; i < HOT_PORTS; i++)
		try_port(t, get(sh->hot[i]));
	for (i = 0; i < 32; i++)
		try_port(t, rnd(t, NR_PORTS));

	/* Each port of two lines */
	if (rnd(t, 64) == 0) {
		from = rnd(t, NR_PORTS / LINE_PORTS) * LINE_PORTS;
		for (i = 0; i < 2 * LINE_PORTS; i++)
			try_port(t, from + i);
	}
}

/*
 * Read the bitmap that the kernel keeps for the caller, where a set bit denies a port; there may be
 * none. A task cannot trace itself, but a child has the very same bitmap.
 */
static void check_bitmap(struct task *t)
{
	uint8_t seen[NR_PORTS / 8];
	struct iovec iov = { seen, sizeof(seen) };
	unsigned int port = 0;
	bool good;
	pid_t pid;

	if (get(sh->stop))
		return;
	add_step(t, "bitmap read");
	memset(seen, 0xff, sizeof(seen));
	pid = fork_bound();
	if (!pid) {
		if (!ptrace(PTRACE_TRACEME, 0, NULL, NULL))
			raise(SIGSTOP);
		_exit(1);
	}
	/* There may be no memory for it */
	if (pid < 0)
		return;
	waitpid(pid, NULL, 0);
	if (ptrace(PTRACE_GETREGSET, pid, (void *)NT_386_IOPERM, &iov))
		good = errno == ENXIO;
	else
		good = iov.iov_len == sizeof(seen);
	check(t, CALLS, good, "the bitmap cannot be read: %s", strerror(errno));
	end_task(pid, true);
	while (port < NR_PORTS && t->allowed[port] == !(seen[port / 8] >> port % 8 & 1))
		port++;
	check(t, BITMAPS, !good || port == NR_PORTS, "port 0x%x is wrong in the bitmap", port);
}

/*
 * Let one of the next allocations of the caller fail, at random, by /proc/thread-self/fail-nth.
 * Which of them count is a setting of the whole system, see tools/soak/stress.sh.
 *
 * Return: what end_call() needs, -1 if none is to fail
 */
static int arm(struct task *t, unsigned int max)
{
	char nth[16];
	int fd, len;

	if (!sh->failslab || rnd(t, 3))
		return -1;
	len = snprintf(nth, sizeof(nth), "%u", 1 + rnd(t, max));
	fd = open("/proc/thread-self/fail-nth", O_RDWR | O_CLOEXEC);
	check(t, CALLS, pwrite(fd, nth, len, 0) == len, "fail-nth: %s", strerror(errno));
	return fd;
}

/* A call has failed with @error, or not. It may if an allocation did. */
static void end_call(struct task *t, struct step *step, int fd, int error)
{
	size_t len = strlen(step->text);
	bool good, injected = false;
	char left[16] = "";

	if (fd >= 0) {
		good = pread(fd, left, sizeof(left) - 1, 0) > 0 && pwrite(fd, "0", 1, 0) == 1;
		check(t, CALLS, good, "fail-nth: %s", strerror(errno));
		close(fd);
		injected = !atoi(left);
	}
	snprintf(step->text + len, sizeof(step->text) - len, ": %s%s", strerror(error),
		 injected ? " (an allocation failed)" : "");
	/* ioperm() has no other error then */
	check(t, CALLS, !error || (injected && (error == ENOMEM || !step->num)), "%s", step->text);
}

static void choose_range(struct task *t, bool on, unsigned int *from, unsigned int *num)
{
	static const unsigned int sizes[] = { 1, 1, 1, 16, 64, 1100, 3000 };

	*from = rnd(t, NR_PORTS);
	*num = 1 + rnd(t, sizes[rnd(t, ARRAY_SIZE(sizes))]);

	switch (rnd(t, 10)) {
	case 0 ... 2:
		*from = edges[rnd(t, ARRAY_SIZE(edges))];
		break;
	case 3 ... 4:
		*from = get(sh->hot[rnd(t, HOT_PORTS)]);
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

static void change_ports(struct task *t, unsigned int from, unsigned int num, bool on)
{
	struct step *step = add_step(t, "ioperm(0x%x, %u, %d)", from, num, on);
	int fd = arm(t, 2);
	int error = ioperm(from, num, on) ? errno : 0;

	step->from = from;
	step->num = num;
	end_call(t, step, fd, error);
	if (!error)
		memset(t->allowed + from, on, num);
	if (error == ENOMEM)
		count(sh->done[FAILSLAB]);
	set(sh->hot[rnd(t, HOT_PORTS)], from);
	set(sh->hot[rnd(t, HOT_PORTS)], from + num - 1);
}

static void change_iopl(struct task *t)
{
	int level = rnd(t, 3) ? 0 : 3;
	struct step *step = add_step(t, "iopl(%d)", level);
	int error = iopl(level) ? errno : 0;

	end_call(t, step, -1, error);
	if (!error)
		t->iopl = level;
}

/* To one CPU or to all. Fails while that CPU is off. */
static void move(struct task *t)
{
	unsigned int cpu = rnd(t, sh->nr_cpus);
	bool any = rnd(t, 3) == 0;
	cpu_set_t cpus;

	memset(&cpus, any ? 0xff : 0, sizeof(cpus));
	CPU_SET(cpu, &cpus);
	sched_setaffinity(0, sizeof(cpus), &cpus);
	add_step(t, "moved to CPU %u%s", cpu, any ? " or any other" : "");
}

static void run_task(struct task *t);

/* Begin a life of its own, with a copy of what the parent knows. */
static void *run_relative(void *arg)
{
	struct task *t = arg;

	t->rng ^= 0x5555555555555555ULL;
	t->left = rnd(t, 16);
	t->depth++;
	try_ports(t);
	run_task(t);
	free(t);
	return NULL;
}

static void start_relative(struct task *t, struct relative *relative, bool is_thread)
{
	struct step *step = add_step(t, is_thread ? "pthread_create()" : "fork()");
	struct task *next = malloc(sizeof(*next));
	int fd, error = 0;

	if (!next)
		return;
	*next = *t;
	next->is_thread = is_thread;
	fd = arm(t, is_thread ? 100 : 150);
	if (is_thread)
		error = pthread_create(&relative->thread, NULL, run_relative, next);
	else
		relative->child = fork_bound();
	if (!is_thread && !relative->child) {
		/* It is the parent's */
		if (fd >= 0)
			close(fd);
		run_relative(next);
		_exit(0);
	}
	if (relative->child < 0)
		error = errno;
	end_call(t, step, fd, error);
	if (error)
		memset(relative, 0, sizeof(*relative));
	if (error || !is_thread)
		free(next);
}

static void end_relative(struct task *t, struct relative *relative, bool force)
{
	int status;

	if (relative->child) {
		add_step(t, "child %d %s", relative->child, force ? "is killed" : "is to exit");
		status = end_task(relative->child, force);
		check(t, TASKS, !status || (force && status == SIGKILL), "child %d: status 0x%x",
		      relative->child, status);
	} else if (relative->thread) {
		add_step(t, "a thread is joined");
		pthread_join(relative->thread, NULL);
	}
	memset(relative, 0, sizeof(*relative));
}

static void end_relatives(struct task *t, struct relative *relatives)
{
	int i = MAX_RELATIVES;

	while (i--)
		end_relative(t, &relatives[i], false);
}

/* The task goes on in a new program, which gets what it knows as a file. */
static void go_on_in_new_program(struct task *t)
{
	int fd;

	add_step(t, "exec");
	fd = memfd_create("task", 0);
	if (write(fd, t, sizeof(*t)) == sizeof(*t) && !lseek(fd, 0, SEEK_SET) &&
	    dup2(fd, TASK_FD) >= 0 && !close(fd))
		execl("/proc/self/exe", "ioperm_random", "--resume", NULL);
	check(t, CALLS, false, "exec: %s", strerror(errno));
}

static void map_shared_fd(void)
{
	sh = mmap(NULL, sizeof(*sh), PROT_READ | PROT_WRITE, MAP_SHARED, SHARED_FD, 0);
	if (sh == MAP_FAILED)
		err(EXIT_FAILURE, "mmap");
}

static __noreturn void resume(void)
{
	static struct task t;

	map_shared_fd();
	if (read(TASK_FD, &t, sizeof(t)) != sizeof(t) || close(TASK_FD))
		err(EXIT_FAILURE, "read");
	try_ports(&t);
	check_bitmap(&t);
	run_task(&t);
	exit(EXIT_SUCCESS);
}

static void do_step(struct task *t, struct relative *relatives)
{
	struct relative *relative = &relatives[rnd(t, MAX_RELATIVES)];
	unsigned int from, num, what = rnd(t, 64);

	switch (what) {
	case 0 ... 38:
		choose_range(t, what < 20, &from, &num);
		change_ports(t, from, num, what < 20);
		break;
	case 39 ... 42:
		change_iopl(t);
		break;
	case 43 ... 54:
		if (relative->child || relative->thread)
			end_relative(t, relative, rnd(t, 3) == 0);
		else if (t->depth < 3)
			start_relative(t, relative, what < 48);
		break;
	case 55:
		/* It would end the other threads of the process */
		if (t->is_thread)
			break;
		end_relatives(t, relatives);
		go_on_in_new_program(t);
		break;
	case 56 ... 61:
		move(t);
		break;
	default:
		check_bitmap(t);
		break;
	}

	if (rnd(t, 4) == 0)
		sleep_ns(rnd(t, 300 * NSEC_PER_USEC));
	else if (rnd(t, 2))
		sched_yield();
}

static void run_task(struct task *t)
{
	struct relative relatives[MAX_RELATIVES] = {};

	/* However slow the machine is, each of the first tasks does something */
	while (t->left && !get(sh->stop) &&
	       (!is_over() || (!t->depth && t->nr_steps < 10))) {
		if (t->left > 0)
			t->left--;
		do_step(t, relatives);
		try_ports(t);
	}
	end_relatives(t, relatives);
	try_ports(t);
	check_bitmap(t);
}

/* Begins with a port that can be tried. */
static void run_worker(struct task *t)
{
	change_ports(t, POST_PORT, 1, true);
	try_port(t, POST_PORT);
	run_task(t);
}

/* Never had a port, whoever ran before it on any CPU. */
static void observe(struct task *t)
{
	while (!is_over()) {
		sleep_ns(rnd(t, 100 * NSEC_PER_USEC));
		try_port(t, POST_PORT);
		try_port(t, get(sh->hot[rnd(t, HOT_PORTS)]));
		if (rnd(t, 32) == 0)
			try_ports(t);
		if (rnd(t, 64) == 0)
			move(t);
	}
}

/* All CPUs come back, also when the other tasks are killed: this one is not. */
static void run_hotplug(struct task *t)
{
	const char *path = "/sys/devices/system/cpu/cpu%u/online";
	pid_t parent = getppid();
	unsigned int cpu;

	signal(SIGHUP, SIG_IGN);
	signal(SIGINT, SIG_IGN);
	prctl(PR_SET_PDEATHSIG, 0);

	while (getppid() == parent && !is_over()) {
		cpu = rnd(t, sh->nr_cpus);
		/* Some cannot */
		if (write_text("0", path, cpu)) {
			count(sh->done[HOTPLUG]);
			sleep_ns(rnd(t, 50 * NSEC_PER_MSEC));
			while (!write_text("1", path, cpu) && errno == EINTR)
				;
		}
		sleep_ns(rnd(t, 200 * NSEC_PER_MSEC));
	}
}

/* Without the file, and if it hides the numbers, only port 0x80. */
static void find_readable_ports(void)
{
	unsigned int from, to, known = 0;
	FILE *file = fopen("/proc/ioports", "re");
	char line[256];

	while (file && fgets(line, sizeof(line), file)) {
		if (sscanf(line, " %x-%x", &from, &to) != 2 || from > to || to >= NR_PORTS)
			continue;
		if (to && !known++)
			memset(sh->readable, true, NR_PORTS);
		/* What a bridge passes on is claimed by the devices behind it */
		if (!strstr(line, ": PCI Bus "))
			memset(sh->readable + from, false, to - from + 1);
	}
	if (file)
		fclose(file);
	sh->readable[POST_PORT] = true;
}

/* Start one of the first tasks, from which all others descend. */
static pid_t start(unsigned int nr, void (*run)(struct task *t))
{
	static struct task t;
	pid_t pid = fork_bound();

	if (pid < 0)
		err(EXIT_FAILURE, "fork");
	if (pid)
		return pid;
	/* Its last step may take long on a slow machine, but not for ever */
	alarm(sh->seconds + 300);
	t.left = -1;
	t.rng = spread((uint64_t)sh->seed * 256 + nr);
	run(&t);
	_exit(0);
}

static int run(void)
{
	unsigned int nr_tasks = MIN(2 * sh->nr_cpus, MAX_TASKS), i, nr;
	unsigned int nr_observers = MIN(sh->nr_cpus, MAX_OBSERVERS);
	pid_t pids[MAX_TASKS + MAX_OBSERVERS + 1], pid;
	bool good;
	int status;

	printf("TAP version 13\n1..%d\n# seed %.0f, %u tasks, %u observers, %u CPUs\n",
	       NR_CHECKS - !sh->hotplug - !sh->failslab, sh->seed, nr_tasks, nr_observers,
	       sh->nr_cpus);
	fflush(stdout);

	/* Whoever started this may have had ports, they are inherited. */
	check(NULL, CALLS, !ioperm(0, NR_PORTS, 0) && !iopl(0), "not all ports can be disabled: %s",
	      strerror(errno));
	prctl(PR_SET_CHILD_SUBREAPER, 1);
	sh->end = now_ns() + sh->seconds * NSEC_PER_SEC;
	nr = nr_tasks + nr_observers + sh->hotplug;
	for (i = 0; i < nr; i++)
		pids[i] = start(i, i < nr_tasks ? run_worker :
				i < nr_tasks + nr_observers ? observe : run_hotplug);
	while ((pid = waitpid(-1, &status, __WALL)) >= 0) {
		/* The parents of others were killed on purpose, so they were */
		for (i = 0; i < nr; i++) {
			if (pids[i] == pid)
				check(NULL, TASKS, !status, "task %u: status 0x%x", i, status);
		}
	}

	printf("# %.0f s:", sh->seconds);
	for (i = 0; i < NR_CHECKS; i++)
		printf(" %s %lu", check_names[i], sh->done[i]);
	printf(", of the accesses %lu allowed\n", sh->allowed);
	status = EXIT_SUCCESS;
	for (nr = i = 0; i < NR_CHECKS; i++) {
		if ((i == HOTPLUG && !sh->hotplug) || (i == FAILSLAB && !sh->failslab))
			continue;
		/* To be denied everything is too little of a check, and so is nothing */
		good = sh->done[i] && !sh->wrong[i] &&
		       (i != ACCESSES || (sh->allowed && sh->allowed < sh->done[i]));
		printf("%s %u %s\n", good ? "ok" : "not ok", ++nr, check_names[i]);
		if (!good)
			status = EXIT_FAILURE;
	}
	return status;
}

int main(int argc, char **argv)
{
	const struct sigaction action = { .sa_sigaction = on_sigsegv, .sa_flags = SA_SIGINFO };
	int fd, error;
	pid_t pid;

	sigaction(SIGSEGV, &action, NULL);
	if (argc == 2 && !strcmp(argv[1], "--resume"))
		resume();

	/* Tasks find it under its number after an exec. */
	fd = memfd_create("shared", 0);
	if (ftruncate(fd, sizeof(*sh)) || dup2(fd, SHARED_FD) < 0)
		err(EXIT_FAILURE, "memfd");
	map_shared_fd();
	sh->seconds = 5;
	sh->seed = spread(now_ns() ^ getpid()) & INT32_MAX;
	read_options(argc, argv, false, (const struct option_of[]) {
		{ "seconds", NUMBER, &sh->seconds, 1, 1e6 },
		{ "seed", NUMBER, &sh->seed, 0, UINT32_MAX },
		{ "hotplug", FLAG, &sh->hotplug, 0, 0 },
		{ "failslab", FLAG, &sh->failslab, 0, 0 },
		{}
	});
	sh->nr_cpus = sysconf(_SC_NPROCESSORS_CONF);
	find_readable_ports();

	/* Not by a task whose children would inherit it */
	pid = fork_bound();
	if (!pid)
		_exit(ioperm(POST_PORT, 1, 1) ? errno : 0);
	error = WEXITSTATUS(end_task(pid, false));
	if (error == EPERM || error == ENOSYS) {
		printf("1..0 # SKIP ioperm: %s\n", strerror(error));
		return EXIT_SKIPPED;
	}
	return run();
}
