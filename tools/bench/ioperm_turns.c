// SPDX-License-Identifier: GPL-2.0
/*
 * How long a round takes of tasks with I/O ports that run in turn on one CPU.
 *
 * Each argument is a case: a name, '=', and the ports of each task, separated
 * by commas: none, all, iopl (after iopl(3)), '=' (those of the first task, by
 * fork()), or ranges such as 0x378-0x37a+0xdc00-0xdc07 or 0/1024, a port in each
 * 1024. '~' in front: the task enables or disables port 0x90 each time before it yields. 'up' or 'down' alone:
 * the time in which one task enables a port in each of the 128 lines, one by one.
 *
 * Prints the case and the median in TSC ticks, of ROUNDS calls of sched_yield() by
 * the first task, and with --json FILE as first arguments writes what
 * ioperm_latency would. A case that could not run ends the program with 1. No port is
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
			unsigned long from = strtoul(ports, &end, 0), to = from;
			unsigned long stride = NR_PORTS;

			if (*end == '-')
				to = strtoul(end + 1, &end, 0);
			else if (*end == '/')
				stride = strtoul(end + 1, &end, 0);
			for (; from < NR_PORTS; from += stride, to += stride)
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
	int changes = 0, shares = tasks && *tasks == '=';

	if (shares)
		changes = take_ports(first);
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
	if (!shares)
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

/* How ioperm_latency calls what has so many tasks. */
static const char *kind_of(const char *tasks)
{
	const char *comma = tasks ? strchr(tasks, ',') : NULL;

	return !comma ? "call" : strchr(comma + 1, ',') ? "round" : "switch";
}

int main(int argc, char **argv)
{
	struct sched_param param = { .sched_priority = 1 };
	int status, failed = 0;
	FILE *json = NULL;
	cpu_set_t cpu;

	CPU_ZERO(&cpu);
	CPU_SET(sched_getcpu(), &cpu);
	if (sched_setaffinity(0, sizeof(cpu), &cpu) ||
	    sched_setscheduler(0, SCHED_FIFO, &param))
		err(1, "SCHED_FIFO on one CPU");
	if (argc > 2 && !strcmp(argv[1], "--json")) {
		json = fopen(argv[2], "w");
		if (!json)
			err(1, "%s", argv[2]);
		fprintf(json, "{\"benchmark\": \"ioperm_turns\", \"unit\": \"tsc\", \"cases\": [");
		fflush(json);
	}
	for (int i = json ? 3 : 1; i < argc; i++) {
		/* Each case in a process of its own, whose end is that of its tasks. */
		pid_t child = fork();

		if (!child) {
			char *name = strsep(&argv[i], "=");
			int down = !strcmp(name, "down");
			const char *kind = kind_of(argv[i]);
			unsigned long long p50 = argv[i] ? rounds(argv[i]) : growth(down);

			printf("%s %llu\n", name, p50);
			fflush(stdout);
			if (json) {
				fprintf(json, "%s\n{\"name\": \"%s\", \"kind\": \"%s\", \"status\": \"ok\", "
					"\"rounds\": %d, \"p50\": %llu}", i > 3 ? "," : "", name, kind,
					argv[i] ? ROUNDS : GROWTHS, p50);
				fflush(json);
			}
			_exit(0);
		}
		if (child < 0 || waitpid(child, &status, 0) < 0 || status)
			failed = 1;
	}
	if (json && (fprintf(json, "\n]}\n") < 0 || fclose(json)))
		err(1, "--json");
	return failed;
}
