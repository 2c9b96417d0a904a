// SPDX-License-Identifier: GPL-2.0
/*
 * How long a round takes of tasks with I/O ports that run in turn on one CPU.
 *
 * Each argument is a case: a name, '=', and the ports of each task, separated
 * by commas: none, all, iopl (after iopl(3)), '=' (those of the first task, by
 * fork()), or ranges such as 0x378-0x37a+0xdc00-0xdc07 or 0/1024, a port in each
 * 1024. '~' in front: the task enables or disables port 0x90 each time before
 * it yields. 'up' or 'down' alone: the time in which one task enables a port in
 * each of the 128 lines, one by one.
 *
 * The figure is the median in TSC ticks of ROUNDS calls of sched_yield() by the
 * first task. A case is skipped where ioperm() or SCHED_FIFO is refused. No port
 * is accessed.
 */
#include "bench_helpers.h"

#include <sys/io.h>
#include <x86intrin.h>

#define ROUNDS		4000
/* Until all tasks have their ports and all caches are warm. */
#define WARM_UP		200
#define GROWTHS		50
#define NR_PORTS	65536
#define LINE		512

/* Apart, so that what is timed has nothing of it. */
static __noreturn __attribute__((cold, noinline)) void
give_up(unsigned long from, unsigned long num, int on)
{
	if (errno != EPERM && errno != ENOSYS)
		report(FAIL, "ioperm(%#lx, %lu, %d): %s", from, num, on,
		       strerror(errno));
	report_refused("ioperm", errno);
	_exit(1);
}

static void enable(unsigned long from, unsigned long num, int on)
{
	if (ioperm(from, num, on))
		give_up(from, num, on);
}

/* Returns whether the task changes its ports in each turn. */
static int take_ports(const char *ports)
{
	int changes = *ports == '~';
	char *end;

	ports += changes;
	if (!strcmp(ports, "iopl")) {
		if (iopl(3)) {
			report_refused("iopl", errno);
			_exit(1);
		}
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
		if (*end) {
			report(FAIL, "what is '%s'?", end);
			_exit(1);
		}
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
		changes = take_ports(first);
	while ((other = strsep(&tasks, ","))) {
		if (!fork_task()) {
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

static void measure(struct result *res, void *tasks)
{
	/* The lowest priority: what the machine needs to go on comes first. */
	if (!become_fifo(1, 0))
		report(SKIP, "SCHED_FIFO: %s", strerror(errno));
	else if (!strcmp(tasks, "up") || !strcmp(tasks, "down"))
		add_figure(res, "p50", growth(!strcmp(tasks, "down")));
	else
		add_figure(res, "p50", rounds(tasks));
}

int main(int argc, char **argv)
{
	const struct option_of options[] = { JSON_OPTION, {} };
	struct result *res;
	char *name;

	read_options(argc, argv, true, options,
		     "Usage: ioperm_turns [OPTION]... NAME=PORTS,PORTS...\n"
		     "How long a round takes of tasks with I/O ports that run in turn on one CPU.");
	for (int i = optind; i < argc; i++) {
		if (!strchr(argv[i], '='))
			usage_error("%s: not NAME=PORTS", argv[i]);
	}
	problem = map_shared(sizeof(*problem));
	res = map_shared(sizeof(*res));
	pin_to(sched_getcpu());
	json_begin("ioperm_turns", "tsc", sched_getcpu(), "\"rounds\": %d,\n  ", ROUNDS);
	for (int i = optind; i < argc; i++) {
		memset(res, 0, sizeof(*res));
		name = strsep(&argv[i], "=");
		snprintf(res->name, sizeof(res->name), "%s", name);
		snprintf(res->more, sizeof(res->more), "\"kind\": \"%s\", ",
			 kind_of(argv[i]));
		run_apart(measure, res, argv[i]);
	}

	return end_cases();
}
