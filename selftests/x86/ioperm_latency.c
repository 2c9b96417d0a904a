// SPDX-License-Identifier: GPL-2.0
/*
 * What I/O port permissions cost at a context switch.
 *
 * SCHED_FIFO tasks on one CPU hand it to each other with sched_yield(). The TSC
 * is read around the call in the first of them, so a figure is the price of a
 * round: of two switches if there are two tasks. The cases differ in the ports
 * of the tasks. Others time ioperm() itself, and getppid() with and without a
 * bitmap, as each return to user mode may have to look at that.
 *
 * It measures and reports. No figure makes it fail: that depends on the
 * machine. A case fails when its figures would not mean what its name says: the
 * tasks did not take turns, one has a port that it should not have or lacks one,
 * one died or hung, or a system call failed.
 *
 * Port 0x80 is the only one that is accessed. All others are merely enabled,
 * and looked at in the regset.
 */
#define _GNU_SOURCE
#include <fcntl.h>
#include <fnmatch.h>
#include <getopt.h>
#include <stdarg.h>
#include <stddef.h>
#include <sys/mman.h>
#include <sys/resource.h>

#include "ioport_helper.h"

#define MAX_ROUNDS	1000000
#define CHECK_ROUNDS	8
#define MAX_PEERS	7
#define MAX_CASES	100

/*
 * The ports of the tasks, with a comma between two: none, iopl, all, '=' for
 * what the first task has given to it by fork(), or FROM, FROM-TO or FROM/STRIDE,
 * from there on in steps, with '+' between two. Or the ports before a call.
 */
struct latency_case {
	const char *name, *tasks;
	/* The arguments of ioperm(). Without them: getppid(), if it is a call */
	unsigned int from, num, turn_on;
};

static struct latency_case cases[MAX_CASES] = {
	{ "none", "none,none" },
	{ "shared-0x80", "0x80,=" },
	{ "pair-0x80-none", "0x80,none" },
	{ "pair-0x80-0x81", "0x80,0x81" },
	{ "pair-0x80-65535", "0x80,65535" },
	{ "pair-all", "all,all" },
	{ "round-0x80-0x81-0x82", "0x80,0x81,0x82" },
	{ "call-getppid-none", "none" },
	{ "call-getppid-0x80", "0x80" },
	{ "call-ioperm-first", "none", 0x80, 1, 1 },
	{ "call-ioperm-low-1k", "none", 0, 0x400, 1 },
	{ "call-ioperm-all", "none", 0, IOPORT_NR, 1 },
	{ "call-ioperm-last-drop", "0x80", 0x80, 1, 0 },
	{ "call-ioperm-second-near", "0x80", 0x81, 1, 1 },
	{ "call-ioperm-second-far", "0x80", 0xffff, 1, 1 },
	{ "call-ioperm-drop-near", "0x80-0x81", 0x81, 1, 0 },
	{ "call-ioperm-drop-far", "0x80+0xffff", 0xffff, 1, 0 },
};

enum verdict { OK, SKIP, FAIL };

/* What the tasks of a case share */
static struct shared {
	/* How often each peer was handed the CPU, and what it does with it */
	unsigned int turns[MAX_PEERS];
	enum { MEASURE, CHECK, STOP } phase;
	struct result {
		enum verdict verdict;
		char reason[100];
		int highest[2];
		unsigned long long min, p50, p99, max;
	} result;
	unsigned long long sample[MAX_ROUNDS];
} *sh;

static unsigned long rounds = 2000;
static int cpu;

/* What the calling task may use */
static struct ioport_map ports;
static bool has_post_port;

#define get(x)		__atomic_load_n(&(x), __ATOMIC_RELAXED)
#define set(x, value)	__atomic_store_n(&(x), value, __ATOMIC_RELAXED)

/* The result has the first of the worst. */
static __printf(2, 3) void report(enum verdict verdict, const char *fmt, ...)
{
	va_list args;

	if (verdict <= sh->result.verdict)
		return;
	sh->result.verdict = verdict;
	va_start(args, fmt);
	vsnprintf(sh->result.reason, sizeof(sh->result.reason), fmt, args);
	va_end(args);
}

/* Enable the ports of a task, and note the highest one */
static void set_ports(const char *spec, int *highest)
{
	unsigned int from, to, stride;
	char *end = (char *)spec;

	if (*spec == '=')
		return;
	ioport_clear_all(&ports);
	*highest = -1;
	if (!strncmp(spec, "iopl", 4)) {
		if (iopl(3))
			report(FAIL, "iopl(3): %s", strerror(errno));
	} else if (strncmp(spec, "none", 4)) {
		for (; *spec && *spec != ','; spec = end + (*end == '+')) {
			from = strtoul(spec, &end, 0);
			to = from;
			stride = IOPORT_NR;
			if (!strncmp(spec, "all", 3)) {
				end += 3;
				to = IOPORT_NR - 1;
			} else if (*end == '-') {
				to = strtoul(end + 1, &end, 0);
			} else if (*end == '/') {
				stride = strtoul(end + 1, &end, 0);
			}
			for (; from < IOPORT_NR; from += stride, to += stride) {
				if (to < from || ioperm(from, to - from + 1, 1)) {
					report(FAIL, "ports %s: %s", spec, strerror(errno));
					return;
				}
				ioport_set(&ports, from, to - from + 1, true);
				if ((int)to > *highest)
					*highest = to;
			}
		}
	}
	has_post_port = !strncmp(spec, "iopl", 4) || ioport_allows(&ports, IOPORT_POST, 1);
}

/* Does the calling task have the ports, and the CPU, that it should have? */
static void check_task(const char *who, bool wrong)
{
	static struct ioport_map seen;
	int ret = ioport_view_self(&seen);

	if (wrong || ioport_inb(IOPORT_POST) != has_post_port)
		report(FAIL, "%s: access to port 0x80 was %s", who,
		       has_post_port ? "denied" : "permitted");
	if (sched_getcpu() != cpu)
		report(FAIL, "%s did not stay on CPU %d", who, cpu);
	/* -ENXIO: there is no bitmap */
	if (ret && ret != -ENXIO)
		report(SKIP, "cannot read the bitmap: %s", strerror(-ret));
	else if (memcmp(&ports, &seen, sizeof(seen)))
		report(FAIL, "%s: port %#x is wrong in the bitmap", who,
		       ioport_differs(&ports, &seen));
}

static void wait_for(pid_t pid, const char *who)
{
	int status;

	if (ioport_wait(pid, &status) != pid || status)
		report(FAIL, "%s %s", who, WIFSIGNALED(status) &&
		       WTERMSIG(status) == SIGALRM ? "hung" : "ended early");
}

static inline unsigned long long read_tsc(void)
{
	unsigned int low, high;

	asm volatile ("lfence\n\t"
		      "rdtsc\n\t"
		      "lfence"
		      : "=a" (low), "=d" (high) : : "memory");

	return (unsigned long long)high << 32 | low;
}

/* Calls are made through the C library, as programs make them. */
static inline int timed_call(const struct latency_case *c, int peers,
			     unsigned long long *ticks)
{
	unsigned long long start = read_tsc();
	int ret;

	if (peers)
		ret = sched_yield();
	else if (c->num)
		ret = ioperm(c->from, c->num, c->turn_on);
	else
		ret = getppid() != ioport_parent;
	*ticks = read_tsc() - start;

	return ret;
}

static unsigned int all_turns(int peers)
{
	unsigned int turns = 0;

	while (peers--)
		turns += get(sh->turns[peers]);

	return turns;
}

/*
 * Each peer has its turn in each round, and only one. An access right after a
 * switch tells whether the TSS still has the ports of another task. A fault is
 * slow, so this is a phase of its own.
 */
static bool run_rounds(const struct latency_case *c, int peers, unsigned long nr,
		       int phase)
{
	bool wrong = false;
	unsigned int turns;
	unsigned long i;

	set(sh->phase, phase);
	for (i = 0; i < nr; i++) {
		turns = all_turns(peers);
		if (timed_call(c, peers, &sh->sample[i]))
			report(FAIL, "the call failed: %s", strerror(errno));
		if (all_turns(peers) - turns != (unsigned int)peers)
			report(FAIL, "the tasks did not take turns in round %lu", i);
		if ((long long)sh->sample[i] <= 0)
			report(FAIL, "the TSC did not advance in round %lu", i);
		if (phase == CHECK)
			wrong |= ioport_inb(IOPORT_POST) != has_post_port;
		/* Undo it for the next round */
		if (c->num && ioperm(c->from, c->num, !c->turn_on))
			report(FAIL, "undoing the call: %s", strerror(errno));
	}

	return wrong;
}

static int compare(const void *a, const void *b)
{
	const unsigned long long *x = a, *y = b;

	return (*x > *y) - (*x < *y);
}

/* The p-th of n sorted values is number ceil(p * n / 100), counted from one. */
static void summarize(unsigned long long n)
{
	struct result *r = &sh->result;

	qsort(sh->sample, n, sizeof(sh->sample[0]), compare);
	r->min = sh->sample[0];
	r->p50 = sh->sample[(50 * n + 99) / 100 - 1];
	r->p99 = sh->sample[(99 * n + 99) / 100 - 1];
	r->max = sh->sample[n - 1];
}

/* Far more than a case takes, even on a slow emulator */
static void start_watchdog(void)
{
	alarm(30 + rounds / 100);
}

static __noreturn void run_peer(const char *spec, int nr)
{
	bool wrong = false;
	unsigned int turns = 0, phase;

	start_watchdog();
	mlockall(MCL_CURRENT);
	set_ports(spec, &sh->result.highest[1]);
	do {
		set(sh->turns[nr], ++turns);
		phase = get(sh->phase);
		if (phase == CHECK)
			wrong |= ioport_inb(IOPORT_POST) != has_post_port;
		sched_yield();
	} while (phase != STOP);
	check_task("a peer", wrong);
	_exit(KSFT_PASS);
}

/*
 * How long the kernel looks for free pages depends on its free blocks. Leave
 * many of four pages, what a full bitmap takes, or the figures differ from boot
 * to boot: the slots of a large pipe have such a block, and every other pipe
 * goes.
 */
static void leave_free_blocks(void)
{
	struct rlimit limit = { .rlim_cur = 8192, .rlim_max = 8192 };
	static int pipes[2000][2];
	int i, nr = 0;

	setrlimit(RLIMIT_NOFILE, &limit);
	while (nr < (int)ARRAY_SIZE(pipes) && !pipe(pipes[nr]) &&
	       fcntl(pipes[nr][0], F_SETPIPE_SZ, 1 << 20) >= 0)
		nr++;
	for (i = 0; i < nr; i += 2) {
		close(pipes[i][0]);
		close(pipes[i][1]);
	}
}

static void measure(const struct latency_case *c)
{
	/* The lowest priority: what the machine needs to go on comes first */
	struct sched_param param = { .sched_priority = 1 };
	const char *spec = c->tasks;
	unsigned long long ticks;
	pid_t peer[MAX_PEERS];
	int peers = 0, i;
	bool wrong;

	start_watchdog();
	if (c->num)
		leave_free_blocks();
	/* If there is only one task, this merely keeps others out. */
	if (sched_setscheduler(0, SCHED_FIFO, &param) && strchr(spec, ',')) {
		report(SKIP, "SCHED_FIFO: %s", strerror(errno));
		return;
	}
	if (strstr(spec, ",="))
		set_ports(c->tasks, &sh->result.highest[0]);
	while ((spec = strchr(spec, ',')) && peers < MAX_PEERS) {
		spec++;
		sh->result.highest[1] = sh->result.highest[0];
		peer[peers] = ioport_fork();
		if (!peer[peers])
			run_peer(spec, peers);
		peers++;
	}
	/* After the fork, so that nothing is left to be copied on a write */
	mlockall(MCL_CURRENT);
	if (!strstr(c->tasks, ",="))
		set_ports(c->tasks, &sh->result.highest[0]);
	for (i = 0; i < peers; i++) {
		while (!get(sh->turns[i]))
			sched_yield();
	}

	run_rounds(c, peers, rounds / 2, MEASURE);
	run_rounds(c, peers, rounds, MEASURE);
	summarize(rounds);
	if (!peers) {
		/* Once more, to see that the call does what it says */
		check_task("before the call", false);
		timed_call(c, 0, &ticks);
		ioport_set(&ports, c->from, c->num, c->turn_on);
		has_post_port = ioport_allows(&ports, IOPORT_POST, 1);
	}
	wrong = peers && run_rounds(c, peers, CHECK_ROUNDS, CHECK);
	set(sh->phase, STOP);
	for (i = 0; i < peers; i++)
		wait_for(peer[i], "a peer");
	check_task("the first task", wrong);
}

static void write_json(FILE *file, const struct latency_case *c, const char *start)
{
	static const char * const names[] = { "ok", "skip", "fail" };
	const struct result *r = &sh->result;

	fprintf(file, "%s\n{\"name\": \"%s\", \"kind\": \"%s\", \"status\": \"%s\"", start,
		c->name, !strchr(c->tasks, ',') ? "call" :
		strchr(strchr(c->tasks, ',') + 1, ',') ? "round" : "switch",
		names[r->verdict]);
	if (strchr(c->tasks, ',') && r->highest[0] >= 0 && r->highest[1] >= 0)
		fprintf(file, ", \"highest_port\": [%d, %d]", r->highest[0], r->highest[1]);
	if (r->verdict != OK) {
		fprintf(file, ", \"reason\": \"%s\"}", r->reason);
		return;
	}
	fprintf(file, ", \"rounds\": %lu, \"min\": %llu, \"p50\": %llu", rounds, r->min, r->p50);
	fprintf(file, ", \"p99\": %llu, \"max\": %llu}", r->p99, r->max);
}

static void run_case(const struct latency_case *c, const char *skip)
{
	const struct result *r = &sh->result;
	pid_t pid;

	memset(sh, 0, offsetof(struct shared, sample));
	if (skip && (c->num || strncmp(c->tasks, "none", 4))) {
		report(SKIP, "%s", skip);
	} else {
		pid = ioport_fork();
		if (!pid) {
			measure(c);
			_exit(KSFT_PASS);
		}
		wait_for(pid, "the first task");
	}

	if (r->verdict == SKIP) {
		ksft_test_result_skip("%s: %s\n", c->name, r->reason);
		return;
	}
	if (r->verdict == OK)
		ksft_print_msg("%s: min %llu p50 %llu p99 %llu max %llu\n", c->name,
			       r->min, r->p50, r->p99, r->max);
	else
		ksft_print_msg("%s\n", r->reason);
	ksft_test_result(r->verdict == OK, "%s\n", c->name);
}

int main(int argc, char **argv)
{
	static const struct option options[] = {
		{ "rounds", required_argument, NULL, 'r' },
		{ "case", required_argument, NULL, 'c' },
		{ "tasks", required_argument, NULL, 't' },
		{ "json", required_argument, NULL, 'j' },
		{}
	};
	const char *slow = getenv("KSFT_MACHINE_SLOW"), *skip = NULL, *pattern = "*";
	struct latency_case *c, *end = cases;
	const char *start = "{\"benchmark\": \"ioperm_latency\", \"unit\": \"tsc\", \"cases\": [";
	unsigned int plan = 0, mode;
	FILE *json = NULL;
	int opt;

	while (end->name)
		end++;
	if (slow && !strcmp(slow, "yes"))
		rounds /= 4;
	while ((opt = getopt_long(argc, argv, "", options, NULL)) != -1) {
		if (opt == 'r') {
			rounds = strtoul(optarg, NULL, 0);
		} else if (opt == 'c') {
			pattern = optarg;
		} else if (opt == 't' && strchr(optarg, '=') && end < cases + MAX_CASES - 1) {
			end->name = strsep(&optarg, "=");
			end++->tasks = optarg;
		} else if (opt == 'j') {
			json = fopen(optarg, "w");
			if (!json)
				ksft_exit_fail_perror(optarg);
		} else {
			rounds = 0;
		}
	}
	if (!rounds || rounds > MAX_ROUNDS || optind < argc) {
		ksft_print_msg("usage: %s [--rounds N] [--case PATTERN]\n", argv[0]);
		ksft_exit_fail_msg("       [--tasks NAME=PORTS,PORTS...]... [--json FILE]\n");
	}

	/* Whoever started this may have set it to be ignored. */
	signal(SIGALRM, SIG_DFL);
	ksft_print_header();
	for (c = cases; c < end; c++)
		plan += !fnmatch(pattern, c->name, FNM_EXTMATCH);
	ksft_set_plan(plan);

	ioport_init();
	skip = ioport_skip_reason();
	if (ioport_pin(0, -1) || (!prctl(PR_GET_TSC, &mode) && mode == PR_TSC_SIGSEGV))
		ksft_exit_skip("no CPU of its own, or no TSC\n");
	cpu = sched_getcpu();
	sh = mmap(NULL, sizeof(*sh), PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
	if (sh == MAP_FAILED)
		ksft_exit_fail_perror("mmap");

	for (c = cases; c < end; c++) {
		if (fnmatch(pattern, c->name, FNM_EXTMATCH))
			continue;
		run_case(c, skip);
		if (json)
			write_json(json, c, start);
		start = ",";
	}
	if (json && (fprintf(json, "\n]}\n") < 0 || fclose(json)))
		ksft_exit_fail_perror("--json");

	/* ksft_finished() takes a run of nothing but skips for a pass. */
	if (!ksft_get_pass_cnt() && !ksft_get_fail_cnt()) {
		ksft_print_cnts();
		exit(KSFT_SKIP);
	}
	ksft_finished();
}
