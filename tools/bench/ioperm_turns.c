// SPDX-License-Identifier: GPL-2.0
/*
 * How long a round takes of tasks with I/O ports that run in turn on one CPU.
 *
 * Each argument is a case: a name, '=', and the ports of each task, separated
 * by commas: none, all, iopl (after iopl(3)), '=' (those of the first task, which
 * it inherits), ranges such as 0x378-0x37a+0xdc00-0xdc07 or FIRST/STEP, a port in
 * each STEP. '~' in front: the task enables or disables port 0x90 each time before
 * it yields. 'up' or 'down' alone: the time in which one task enables a port in
 * each of the 128 lines, one by one.
 *
 * Prints the case and the median in TSC ticks, of ROUNDS calls of sched_yield() by
 * the first task. A case that could not run ends the program with 1. No port is
 * accessed.
 */
#define _GNU_SOURCE
#include <err.h>
#include <sched.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/io.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <unistd.h>
#include <x86intrin.h>

#define ROUNDS		4000
/* Until all tasks have their ports and all caches are warm. */
#define WARM_UP		200
#define GROWTHS		50
#define NR_PORTS	65536
#define LINE		512
#define MAX_TASKS	8

static void enable(unsigned long from, unsigned long num, int on)
{
	if (ioperm(from, num, on))
		err(1, "ioperm(%#lx, %lu, %d)", from, num, on);
}

/* Returns whether the task changes its ports in each turn. */
static int take_ports(const char *ports)
{
	int changes = *ports == '~';
	char *end;

	ports += changes;
	if (!strcmp(ports, "iopl")) {
		if (iopl(3))
			err(1, "iopl");
	} else if (!strcmp(ports, "all")) {
		enable(0, NR_PORTS, 1);
	} else if (strcmp(ports, "none") && strcmp(ports, "=")) {
		do {
			unsigned long from = strtoul(ports, &end, 0), to = from, step = 0;

			if (*end == '-')
				to = strtoul(end + 1, &end, 0);
			else if (*end == '/')
				step = strtoul(end + 1, &end, 0);
			for (unsigned long port = from; step && port < NR_PORTS; port += step)
				enable(port, 1, 1);
			enable(from, to - from + 1, 1);
			ports = end + 1;
		} while (*end == '+');
		if (*end)
			errx(1, "what is '%s'?", end);
	}
	return changes;
}

static void turn(int changes)
{
	static int on;

	if (changes)
		enable(0x90, 1, on ^= 1);
	sched_yield();
}

static int compare(const void *a, const void *b)
{
	unsigned long long x = *(unsigned long long *)a, y = *(unsigned long long *)b;

	return (x > y) - (x < y);
}

static unsigned long long median(unsigned long long *ticks, int nr)
{
	qsort(ticks, nr, sizeof(*ticks), compare);
	return ticks[nr / 2];
}

static unsigned long long growth(int down)
{
	unsigned long long ticks[GROWTHS], start;

	for (int i = 0; i < GROWTHS; i++) {
		start = __rdtsc();
		for (int line = 0; line < NR_PORTS / LINE; line++)
			enable((down ? NR_PORTS / LINE - 1 - line : line) * LINE, 1, 1);
		ticks[i] = __rdtsc() - start;
		enable(0, NR_PORTS, 0);
	}
	return median(ticks, GROWTHS);
}

static unsigned long long rounds(char *tasks)
{
	static unsigned long long ticks[ROUNDS];
	char *first = strsep(&tasks, ","), *other;
	int changes;

	if (tasks && strchr(tasks, '='))
		take_ports(first);
	while ((other = strsep(&tasks, ","))) {
		pid_t child = fork();

		if (child < 0)
			err(1, "fork");
		if (!child) {
			prctl(PR_SET_PDEATHSIG, SIGKILL);
			changes = take_ports(other);
			for (;;)
				turn(changes);
		}
	}
	changes = take_ports(first);
	for (int i = 0; i < WARM_UP; i++)
		turn(changes);
	for (int i = 0; i < ROUNDS; i++) {
		unsigned long long start = __rdtsc();

		turn(changes);
		ticks[i] = __rdtsc() - start;
	}
	return median(ticks, ROUNDS);
}

int main(int argc, char **argv)
{
	struct sched_param param = { .sched_priority = 1 };
	int status, failed = 0;
	cpu_set_t cpu;

	CPU_ZERO(&cpu);
	CPU_SET(sched_getcpu(), &cpu);
	if (sched_setaffinity(0, sizeof(cpu), &cpu) ||
	    sched_setscheduler(0, SCHED_FIFO, &param))
		err(1, "SCHED_FIFO on one CPU");
	for (int i = 1; i < argc; i++) {
		/* Each case in a process of its own, whose end is that of its tasks. */
		pid_t child = fork();

		if (!child) {
			char *name = strsep(&argv[i], "=");
			int down = !strcmp(name, "down");

			printf("%s %llu\n", name, argv[i] ? rounds(argv[i]) : growth(down));
			fflush(stdout);
			_exit(0);
		}
		if (child < 0 || waitpid(child, &status, 0) < 0 || status)
			failed = 1;
	}
	return failed;
}
