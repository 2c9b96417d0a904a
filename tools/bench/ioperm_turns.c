// SPDX-License-Identifier: GPL-2.0
/*
 * How long a round takes of tasks with I/O ports that run in turn on one CPU.
 *
 * Each argument is a case: a name, '=', and the ports of each task as port_helpers.h has them, with
 * commas; '=' are those of the first task, by fork(). '~' in front: the task enables or disables
 * port 0x90 each time before it yields. 'up' or 'down' alone: the time in which one task enables a
 * port in each of the 128 lines, one by one.
 *
 * The figure is the median in TSC ticks of ROUNDS calls of sched_yield() by the first task. A case
 * is skipped where ioperm() or SCHED_FIFO is refused. No port is accessed.
 */
#include "port_helpers.h"

#include <x86intrin.h>

#define ROUNDS		4000
/* Until all tasks have their ports and all caches are warm. */
#define WARM_UP		200
#define GROWTHS		50
#define LINE		512

/* Returns whether the task changes its ports in each turn. */
static int take(const char *ports)
{
	int changes = *ports == '~';

	if (strcmp(ports, "="))
		take_ports(ports + changes);
	return changes;
}

static void turn(int changes)
{
	static int on;

	if (changes)
		enable(0x90, 1, on ^= 1);
	sched_yield();
}

static long long median(long long *ticks, int nr)
{
	qsort(ticks, nr, sizeof(*ticks), compare_ns);
	return ticks[nr / 2];
}

static long long growth(int down)
{
	unsigned long long start;
	long long ticks[GROWTHS];

	for (int i = 0; i < GROWTHS; i++) {
		start = __rdtsc();
		for (int line = 0; line < NR_PORTS / LINE; line++)
			enable((down ? NR_PORTS / LINE - 1 - line : line) * LINE, 1, 1);
		ticks[i] = __rdtsc() - start;
		enable(0, NR_PORTS, 0);
	}
	return median(ticks, GROWTHS);
}

static long long rounds(char *tasks)
{
	static long long ticks[ROUNDS];
	char *first = strsep(&tasks, ","), *other;
	int changes = 0, shares = tasks && *tasks == '=';

	if (shares)
		changes = take(first);
	while ((other = strsep(&tasks, ","))) {
		if (!fork_task()) {
			changes = take(other);
			for (;;)
				turn(changes);
		}
	}
	if (!shares)
		changes = take(first);
	for (int i = 0; i < WARM_UP; i++)
		turn(changes);
	for (int i = 0; i < ROUNDS; i++) {
		unsigned long long start = __rdtsc();

		turn(changes);
		ticks[i] = __rdtsc() - start;
	}
	/* It would have gone on. */
	if (waitpid(-1, NULL, WNOHANG) > 0)
		report(FAIL, "another task ended");
	return median(ticks, ROUNDS);
}

/* How ioperm_latency calls what has so many tasks. */
static const char *kind_of(const char *tasks)
{
	const char *comma = strchr(tasks, ',');

	return !comma ? "call" : strchr(comma + 1, ',') ? "round" : "switch";
}

static void measure(const void *tasks)
{
	/* The lowest priority: what the machine needs to go on comes first. */
	if (!become_fifo(1, 0))
		report(SKIP, "SCHED_FIFO: %s", strerror(errno));
	else if (!strcmp(tasks, "up") || !strcmp(tasks, "down"))
		add_figure("p50", growth(!strcmp(tasks, "down")));
	else
		add_figure("p50", rounds(strdup(tasks)));
}

int main(int argc, char **argv)
{
	char *name;

	begin_cases("ioperm_turns", argc, argv, true, json_only);
	for (int i = optind; i < argc; i++) {
		if (!strchr(argv[i], '='))
			errx(EXIT_FAILURE, "%s: not NAME=PORTS", argv[i]);
	}
	use_cpus(1);
	for (int i = optind; i < argc; i++) {
		name = strsep(&argv[i], "=");
		snprintf(res->name, sizeof(res->name), "%s", name);
		snprintf(res->more, sizeof(res->more), "\"kind\": \"%s\", ", kind_of(argv[i]));
		run_apart(measure, argv[i]);
	}
	return end_cases();
}
