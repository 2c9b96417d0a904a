// SPDX-License-Identifier: GPL-2.0
/*
 * How much memory the kernel takes for I/O permissions.
 *
 * Many tasks enable the same ports, each for itself, so that each of them has a bitmap of its own.
 * The tasks exist before: what SUnreclaim of /proc/meminfo grows by until the last one has its
 * ports is for the bitmaps. Before, the kmalloc caches give back what is free in them, or it would
 * be taken without being seen. No port is accessed.
 */
#include "port_helpers.h"

#include <glob.h>

#define MAX_TASKS	100000
#define MAX_CACHES	64

/* What each task enables; a line of the bitmap has 512 ports. */
static const char * const cases[][2] = {
	{ "port-0x80", "0x80" },
	{ "port-65535", "65535" },
	{ "below-0x400", "0-0x3ff" },
	{ "every-line", "0/512" },
	{ "all", "0-65535" },
};

struct cache {
	long objects, size;
};

static double nr_tasks = 250;

/* What it is six times in a row: tasks that ended give their memory back a little later. */
static long long read_steady(void)
{
	long long kb = -1, last;
	int i, same = 0;

	for (i = 0; i < 200 && same < 5; i++) {
		/* Not there, or not for us: then the figures are less exact. */
		write_text("1", "/proc/sys/vm/stat_refresh");
		last = kb;
		kb = number_in("/proc/meminfo", "SUnreclaim:");
		same = kb == last ? same + 1 : 0;
		sleep_ns(10 * NSEC_PER_MSEC);
	}
	if (kb < 0)
		report(SKIP, "no SUnreclaim in /proc/meminfo");
	return kb * 1024;
}

/* Let the kmalloc caches give back what is free, where that is possible. */
static void shrink_caches(void)
{
	glob_t found = {};
	size_t i;

	glob("/sys/kernel/slab/kmalloc-*/shrink", 0, NULL, &found);
	for (i = 0; i < found.gl_pathc; i++)
		write_text("1", "%s", found.gl_pathv[i]);
	globfree(&found);
}

/* The kmalloc caches; none where only root may see them. */
static int read_caches(struct cache *caches)
{
	FILE *file = fopen("/proc/slabinfo", "re");
	char line[512];
	int nr = 0;

	while (file && nr < MAX_CACHES && fgets(line, sizeof(line), file)) {
		if (sscanf(line, "kmalloc-%*s %ld %*d %ld", &caches[nr].objects,
			   &caches[nr].size) == 2)
			nr++;
	}
	if (file)
		fclose(file);
	return nr;
}

/*
 * What one bitmap takes: the size of the smallest cache that got about as many objects as there are
 * tasks, some may have been free before; or whole pages. 0 when it cannot be told.
 */
static long find_object(const struct cache *before, const struct cache *after,
			int nr, long per_task)
{
	long page = sysconf(_SC_PAGESIZE), found = 0;
	int i;

	for (i = 0; i < nr; i++) {
		if (after[i].objects - before[i].objects >= nr_tasks * 8 / 10 &&
		    (!found || after[i].size < found))
			found = after[i].size;
	}
	if (!found && nr && per_task >= page)
		found = (per_task + page / 2) / page * page;
	return found;
}

/* Wait for the other end of @start to be closed, tell @done, and be killed. */
static __noreturn void run_task(const char *ports, int start, int done)
{
	char byte;

	if (read(start, &byte, 1))
		_exit(1);
	take_ports(ports);
	if (write(done, "", 1) != 1 || close(done))
		_exit(1);
	for (;;)
		pause();
}

static void measure(const char *ports)
{
	static struct cache caches_before[MAX_CACHES], caches_after[MAX_CACHES];
	static pid_t pid[MAX_TASKS];
	int start[2], done[2], nr, i;
	long long before, bytes;
	long object;
	char byte;

	if (pipe(start) || pipe(done))
		err(EXIT_FAILURE, "pipe");
	for (nr = 0; nr < nr_tasks && all_well(); nr++) {
		pid[nr] = fork_task();
		if (!pid[nr]) {
			close(start[1]);
			run_task(ports, start[0], done[1]);
		}
	}
	/* What waits for a task that died shall see the end of the pipe. */
	close(start[0]);
	close(done[1]);

	shrink_caches();
	before = read_steady();
	read_caches(caches_before);
	close(start[1]);
	for (i = 0; i < nr && all_well(); i++) {
		if (read(done[0], &byte, 1) != 1)
			report(FAIL, "a task died");
	}
	bytes = read_steady() - before;
	add_figure("unreclaimable", bytes);
	object = find_object(caches_before, caches_after,
			     read_caches(caches_after), bytes / nr_tasks);
	if (object)
		add_figure("object", object);
	close(done[0]);
	while (nr--)
		end_task(pid[nr], true);
}

int main(int argc, char **argv)
{
	const struct option_of options[] = {
		{ "tasks", NUMBER, &nr_tasks, 1, MAX_TASKS },
		JSON_OPTION, {}
	};
	unsigned int i;

	begin_cases("ioperm_memory", argc, argv, false, options);
	/* Whoever started this may have had ports, they are inherited. */
	ioperm(0, NR_PORTS, 0);
	for (i = 0; i < ARRAY_SIZE(cases); i++) {
		strcpy(res->name, cases[i][0]);
		measure(cases[i][1]);
		end_case();
	}
	return end_cases();
}
