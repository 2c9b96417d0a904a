// SPDX-License-Identifier: GPL-2.0
/*
 * What I/O port permissions cost at a context switch
 *
 * SCHED_FIFO tasks on one CPU hand it to each other with sched_yield(). The TSC
 * is read around the call in the first of them, so a figure is the price of a
 * round: of two switches if there are two tasks. The cases differ in the ports
 * of the tasks. Others time ioperm() itself, and getppid() with and without a
 * bitmap, as each return to user mode may have to look at that.
 *
 * No figure makes a case fail. It fails when its figures would not mean what its
 * name says: the tasks did not take turns, one has a port that it should not
 * have or lacks one, one died or hung, or a system call failed.
 */
#define _GNU_SOURCE
#include <fnmatch.h>
#include <stdarg.h>
#include <stddef.h>
#include <sys/mman.h>

#include "ioport_helper.h"

#define MAX_ROUNDS	1000000
#define CHECK_ROUNDS	8
#define MAX_TASKS	3

/* What a task has instead of one port: nothing, all, what fork() gives to it */
enum { NONE = -3, ALL, SAME };

static const struct latency_case {
	const char *name;
	unsigned int tasks;
	int ports[MAX_TASKS];
	/* A call of ioperm() by the only task, or getppid() if num is 0 */
	unsigned int from, num, turn_on;
} cases[] = {
	{ "none",		2, { NONE, NONE }, 0, 0, 0 },
	{ "shared-0x80",	2, { 0x80, SAME }, 0, 0, 0 },
	{ "pair-0x80-none",	2, { 0x80, NONE }, 0, 0, 0 },
	{ "pair-0x80-0x81",	2, { 0x80, 0x81 }, 0, 0, 0 },
	{ "pair-0x80-65535",	2, { 0x80, 65535 }, 0, 0, 0 },
	{ "pair-all",		2, { ALL, ALL }, 0, 0, 0 },
	{ "round-0x80-0x81-0x82", 3, { 0x80, 0x81, 0x82 }, 0, 0, 0 },
	{ "call-getppid-none",	1, { NONE }, 0, 0, 0 },
	{ "call-getppid-0x80",	1, { 0x80 }, 0, 0, 0 },
	{ "call-ioperm-first",	1, { NONE }, 0x80, 1, 1 },
	{ "call-ioperm-low-1k",	1, { NONE }, 0, 0x400, 1 },
	{ "call-ioperm-all",	1, { NONE }, 0, IOPORT_NR, 1 },
	{ "call-ioperm-last-drop", 1, { NONE }, 0x80, 1, 0 },
	{ "call-ioperm-second-near", 1, { 0x80 }, 0x81, 1, 1 },
	{ "call-ioperm-second-far", 1, { 0x80 }, 0xffff, 1, 1 },
	{ "call-ioperm-drop-near", 1, { 0x80 }, 0x81, 1, 0 },
	{ "call-ioperm-drop-far", 1, { 0x80 }, 0xffff, 1, 0 },
};

enum verdict { OK, SKIP, FAIL };

/* What the tasks of a case share */
static struct shared {
	/* How often each but the first was handed the CPU, and what it does with it */
	unsigned int turns[MAX_TASKS];
	enum { MEASURE, CHECK, STOP } phase;
	/* Of the first one that said more than OK */
	enum verdict verdict;
	char reason[100];
	unsigned long long sample[MAX_ROUNDS];
} *sh;

static unsigned long rounds = 2000;

/* Those of --case, which may be there several times; none: all cases */
static bool chosen[ARRAY_SIZE(cases)], any_chosen;

/* What the calling task may use */
static struct ioport_map ports;

static __printf(2, 3) void report(enum verdict verdict, const char *fmt, ...)
{
	va_list args;

	if (sh->verdict)
		return;
	sh->verdict = verdict;
	va_start(args, fmt);
	vsnprintf(sh->reason, sizeof(sh->reason), fmt, args);
	va_end(args);
}

static void change(unsigned int from, unsigned int num, bool turn_on)
{
	if (ioport_change(&ports, from, num, turn_on))
		report(FAIL, "ioperm(0x%x, 0x%x, %d): %s", from, num, turn_on, strerror(errno));
}

/* Enable the ports of a task */
static void set_ports(int port)
{
	if (port == ALL)
		change(0, IOPORT_NR, true);
	else if (port >= 0)
		change(port, 1, true);
}

/* Does the calling task have the ports that it should have? */
static void check_task(const char *who)
{
	const char *wrong = ioport_wrong(&ports, &ports, 0);

	if (*wrong)
		report(FAIL, "%s: %s", who, wrong);
}

/* Right after a switch, this tells whether the TSS still has the ports of another task. */
static void check_post_port(void)
{
	if (ioport_inb(IOPORT_POST) != ioport_allows(&ports, IOPORT_POST, 1))
		report(FAIL, "access to port 0x80 was wrong after a switch");
}

static void wait_for(pid_t pid)
{
	if (ioport_wait(pid))
		report(FAIL, "a task hung or ended early");
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
static inline int timed_call(const struct latency_case *c, unsigned long long *ticks)
{
	unsigned long long start = read_tsc();
	int ret;

	if (c->tasks > 1)
		ret = sched_yield();
	else if (c->num)
		ret = ioperm(c->from, c->num, c->turn_on);
	else
		ret = getppid() != ioport_parent;
	*ticks = read_tsc() - start;
	return ret;
}

static unsigned int all_turns(void)
{
	return ioport_load(sh->turns[1]) + ioport_load(sh->turns[2]);
}

/* Each of the others has its turn in each round, and only one. */
static void run_rounds(const struct latency_case *c, unsigned long nr, int phase)
{
	unsigned int turns;
	unsigned long i;

	ioport_store(sh->phase, phase);
	for (i = 0; i < nr; i++) {
		if (c->num)
			change(c->from, c->num, !c->turn_on);
		turns = all_turns();
		if (timed_call(c, &sh->sample[i]))
			report(FAIL, "the call failed: %s", strerror(errno));
		if (all_turns() - turns != c->tasks - 1)
			report(FAIL, "the tasks did not take turns in round %lu", i);
		if ((long long)sh->sample[i] <= 0)
			report(FAIL, "the TSC did not advance in round %lu", i);
		if (phase == CHECK)
			check_post_port();
	}
}

static __noreturn void run_task(int nr, int port)
{
	unsigned int turns = 0;
	int phase;

	alarm(30 + rounds / 100);
	mlockall(MCL_CURRENT);
	set_ports(port);
	do {
		ioport_store(sh->turns[nr], ++turns);
		phase = ioport_load(sh->phase);
		if (phase == CHECK)
			check_post_port();
		sched_yield();
	} while (phase != STOP);
	check_task("another task");
	_exit(KSFT_PASS);
}

static void measure(const struct latency_case *c)
{
	bool shares = c->ports[1] == SAME;
	pid_t pid[MAX_TASKS];
	unsigned int i;

	/* Far more than a case takes, even on a slow emulator */
	alarm(30 + rounds / 100);
	ports = ioport_none;
	/* If there is only one task, this merely keeps others out. */
	if (ioport_set_fifo() && c->tasks > 1) {
		report(SKIP, "SCHED_FIFO: %s", strerror(errno));
		return;
	}
	if (shares)
		set_ports(c->ports[0]);
	for (i = 1; i < c->tasks; i++) {
		pid[i] = ioport_fork();
		if (!pid[i])
			run_task(i, c->ports[i]);
	}
	/* After the fork, so that nothing is left to be copied on a write */
	mlockall(MCL_CURRENT);
	if (!shares)
		set_ports(c->ports[0]);
	for (i = 1; i < c->tasks; i++) {
		while (!ioport_load(sh->turns[i]))
			sched_yield();
	}

	run_rounds(c, rounds / 2, MEASURE);
	run_rounds(c, rounds, MEASURE);
	/* The call has done what it says, and the next ones are not timed. */
	if (c->num)
		ioport_set(&ports, c->from, c->num, c->turn_on);
	else
		run_rounds(c, CHECK_ROUNDS, CHECK);
	ioport_store(sh->phase, STOP);
	for (i = 1; i < c->tasks; i++)
		wait_for(pid[i]);
	check_task("the first task");
}

static int compare(const void *a, const void *b)
{
	const unsigned long long *x = a, *y = b;

	return (*x > *y) - (*x < *y);
}

static void run_case(const struct latency_case *c, const char *skip, FILE *json)
{
	static const char * const names[] = { "ok", "skip", "fail" };
	static const char * const kinds[] = { "", "call", "switch", "round" };
	char figures[200];
	pid_t pid;

	memset(sh, 0, offsetof(struct shared, sample));
	if (skip && (c->num || c->ports[0] != NONE)) {
		report(SKIP, "%s", skip);
	} else {
		pid = ioport_fork();
		if (!pid) {
			measure(c);
			_exit(KSFT_PASS);
		}
		wait_for(pid);
	}

	qsort(sh->sample, rounds, sizeof(sh->sample[0]), compare);
	sprintf(figures, "\"rounds\": %lu, \"min\": %llu, \"p50\": %llu, ",
		rounds, sh->sample[0], sh->sample[(rounds - 1) / 2]);
	sprintf(figures + strlen(figures), "\"p99\": %llu, \"max\": %llu",
		sh->sample[(rounds - 1) * 99 / 100], sh->sample[rounds - 1]);
	if (sh->verdict != OK)
		sprintf(figures, "\"reason\": \"%s\"", sh->reason);
	if (json)
		fprintf(json, "{\"name\": \"%s\", \"kind\": \"%s\", \"status\": \"%s\", %s}",
			c->name, kinds[c->tasks], names[sh->verdict], figures);

	ksft_print_msg("%s: %s\n", c->name, figures);
	if (sh->verdict == SKIP)
		ksft_test_result_skip("%s: %s\n", c->name, sh->reason);
	else
		ksft_test_result(sh->verdict == OK, "%s\n", c->name);
}

static void choose(const char *pattern)
{
	unsigned int i;

	any_chosen = true;
	for (i = 0; i < ARRAY_SIZE(cases); i++)
		chosen[i] |= !fnmatch(pattern, cases[i].name, 0);
}

int main(int argc, char **argv)
{
	const char *skip, *separator = "";
	unsigned int plan = 0, mode;
	FILE *json = NULL;
	int i;

	ioport_init(&argc, argv);
	for (i = 1; i < argc; i += 2) {
		if (i + 1 < argc && !strcmp(argv[i], "--rounds"))
			rounds = strtoul(argv[i + 1], NULL, 0);
		else if (i + 1 < argc && !strcmp(argv[i], "--case"))
			choose(argv[i + 1]);
		else if (i + 1 < argc && !strcmp(argv[i], "--json"))
			json = fopen(argv[i + 1], "w");
		else
			rounds = 0;
	}
	if (getenv("KSFT_MACHINE_SLOW"))
		rounds /= 4;
	if (!rounds || rounds > MAX_ROUNDS)
		ksft_exit_fail_msg("[--rounds N] [--case PATTERN]... [--json FILE]\n");

	/* Whoever started this may have set it to be ignored. */
	signal(SIGALRM, SIG_DFL);
	ksft_print_header();
	if (!any_chosen)
		choose("*");
	for (i = 0; i < ARRAY_SIZE(cases); i++)
		plan += chosen[i];
	skip = ioport_ptrace_reason();
	if (!prctl(PR_GET_TSC, &mode) && mode == PR_TSC_SIGSEGV)
		skip = "the TSC may not be read";
	if (skip)
		ksft_exit_skip("%s\n", skip);
	ksft_set_plan(plan);
	skip = ioport_setup();
	sh = mmap(NULL, sizeof(*sh), PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
	if (sh == MAP_FAILED)
		ksft_exit_fail_perror("mmap");

	if (json)
		fputs("{\"benchmark\": \"ioperm_latency\", \"unit\": \"tsc\", \"cases\": [", json);
	for (i = 0; i < ARRAY_SIZE(cases); i++) {
		if (!chosen[i])
			continue;
		if (json)
			fputs(separator, json);
		separator = ",\n";
		run_case(&cases[i], skip, json);
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
