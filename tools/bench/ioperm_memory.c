// SPDX-License-Identifier: GPL-2.0
/*
 * How much memory the kernel takes for I/O permissions.
 *
 * Many tasks enable the same ports, each for itself, so that each of them has
 * a bitmap of its own. The tasks exist before, and wait for a signal: what
 * Slab and SUnreclaim of /proc/meminfo grow by between that signal and the
 * last task's report is for the bitmaps. The counters are read when they have
 * been the same for a while, and after the kmalloc caches gave back what is
 * free in them, or it would be taken without being seen.
 *
 * Divided by the number of tasks that is what one bitmap takes, with what the
 * allocator adds: bytes between objects, slabs that are not full, the pointer
 * to the memory cgroup that pays. The size of the object itself is that of
 * the kmalloc cache in /proc/slabinfo that grew by as many objects; a bitmap
 * that is too large for any cache takes whole pages.
 *
 * It measures and reports; no figure makes it fail. A case fails when a task
 * died or did not get the ports, and is skipped when something is missing.
 * No port is accessed.
 */
#include "bench_helpers.h"

#include <dirent.h>
#include <sys/io.h>

#define MAX_TASKS	100000

#define NR_PORTS	65536
/* Ports of a 64-byte line of the bitmap. */
#define LINE_PORTS	512

/* The counters are steady when they are the same so many times in a row. */
#define STEADY_READS	5
#define MAX_READS	200
#define READ_PAUSE	(10 * NSEC_PER_MSEC)

#define MAX_CACHES	64

/**
 * struct port_set - what each task enables
 * @name:	how it is reported; tools rely on it
 * @from:	the first port
 * @num:	how many
 * @step:	0, or the distance between single ports, @num in all
 */
struct port_set {
	const char *name;
	unsigned int from, num, step;
};

static const struct port_set port_sets[] = {
	{ "port-0x80", 0x80, 1, 0 },
	{ "port-65535", 65535, 1, 0 },
	{ "below-0x400", 0, 0x400, 0 },
	{ "every-line", 0, NR_PORTS / LINE_PORTS, LINE_PORTS },
	{ "all", 0, NR_PORTS, 0 },
};

/* In bytes */
struct memory {
	long long slab, unreclaimable;
};

struct cache {
	char name[64];
	long objects, size;
};

struct caches {
	struct cache cache[MAX_CACHES];
	unsigned int nr;
};

static int nr_tasks;

static bool read_memory(struct memory *mem)
{
	/* Not there, or not for us: then the figures are less exact. */
	write_text("/proc/sys/vm/stat_refresh", "1");
	mem->slab = meminfo_kb("Slab") * 1024;
	mem->unreclaimable = meminfo_kb("SUnreclaim") * 1024;

	return mem->slab >= 0 && mem->unreclaimable >= 0;
}

/* Tasks that have just ended give their memory back a little later. */
static bool read_steady(struct memory *mem)
{
	const struct timespec pause = { .tv_nsec = READ_PAUSE };
	long long last = -1;
	int i, same = 0;

	for (i = 0; i < MAX_READS && same < STEADY_READS; i++) {
		if (!read_memory(mem)) {
			report(SKIP, "no Slab and SUnreclaim in /proc/meminfo");
			return false;
		}
		same = mem->unreclaimable == last ? same + 1 : 0;
		last = mem->unreclaimable;
		nanosleep(&pause, NULL);
	}

	return true;
}

/* Let the kmalloc caches give back what is free, where that is possible. */
static void shrink_caches(void)
{
	char path[PATH_MAX];
	struct dirent *entry;
	DIR *dir;

	dir = opendir("/sys/kernel/slab");
	while (dir && (entry = readdir(dir))) {
		if (strncmp(entry->d_name, "kmalloc-", 8))
			continue;
		snprintf(path, sizeof(path), "/sys/kernel/slab/%s/shrink",
			 entry->d_name);
		write_text(path, "1");
	}
	if (dir)
		closedir(dir);
}

/* The kmalloc caches; none where only root may see them. */
static void read_caches(struct caches *caches)
{
	FILE *file = fopen("/proc/slabinfo", "re");
	char line[512];

	caches->nr = 0;
	while (file && caches->nr < MAX_CACHES &&
	       fgets(line, sizeof(line), file)) {
		struct cache *c = &caches->cache[caches->nr];

		if (!strncmp(line, "kmalloc-", 8) &&
		    sscanf(line, "%63s %ld %*d %ld", c->name, &c->objects,
			   &c->size) == 3)
			caches->nr++;
	}
	if (file)
		fclose(file);
}

/*
 * The smallest cache that got about as many objects as there are tasks; some
 * may have been free before. NAN when it cannot be told.
 */
static double find_object(const struct caches *before,
			  const struct caches *after, long long per_task)
{
	long long page = sysconf(_SC_PAGESIZE);
	unsigned int i, j;
	long found = 0;

	for (i = 0; i < after->nr; i++) {
		const struct cache *c = &after->cache[i];

		for (j = 0; j < before->nr; j++) {
			if (!strcmp(before->cache[j].name, c->name) &&
			    c->objects - before->cache[j].objects >=
			    nr_tasks * 8L / 10 && (!found || c->size < found))
				found = c->size;
		}
	}
	if (found)
		return found;
	/* From the page allocator, which has no fractions of a page. */
	if (after->nr && per_task >= page)
		return (per_task + page / 2) / page * page;

	return NAN;
}

/* Returns 0 or an error number. */
static int enable(const struct port_set *set)
{
	unsigned int i;

	if (!set->step)
		return ioperm(set->from, set->num, 1) ? errno : 0;
	for (i = 0; i < set->num; i++) {
		if (ioperm(set->from + i * set->step, 1, 1))
			return errno;
	}

	return 0;
}

/* Wait until the parent closes its end of @start, then of @end. */
static __noreturn void run_task(const struct port_set *set, int start,
				int done, int end)
{
	char byte;

	if (read(start, &byte, 1))
		_exit(1);
	byte = enable(set);
	_exit(write(done, &byte, 1) != 1 || read(end, &byte, 1));
}

static bool wait_for_reports(int done)
{
	char error;
	int i;

	for (i = 0; i < nr_tasks; i++) {
		if (read(done, &error, 1) != 1) {
			report(FAIL, "a task died");
			return false;
		}
		if (error) {
			report_refused("ioperm", error);
			return false;
		}
	}

	return true;
}

static void add_memory(struct result *res, const struct memory *before,
		       const struct memory *after)
{
	add_figure(res, "slab", after->slab - before->slab);
	add_figure(res, "unreclaimable",
		   after->unreclaimable - before->unreclaimable);
}

static void measure_case(const struct port_set *set, struct result *res)
{
	static struct caches caches_before, caches_after;
	int start[2], done[2], end[2], status, started;
	struct memory before, after;
	long long per_task;
	pid_t *pids;

	pids = calloc(nr_tasks, sizeof(*pids));
	if (!pids || pipe(start) || pipe(done) || pipe(end)) {
		report(FAIL, "pipe: %s", strerror(errno));
		return;
	}
	for (started = 0; started < nr_tasks; started++) {
		pids[started] = fork_bound();
		if (!pids[started]) {
			close(start[1]);
			close(done[0]);
			close(end[1]);
			run_task(set, start[0], done[1], end[0]);
		}
		if (pids[started] < 0) {
			report(SKIP, "fork() of task %d: %s", started,
			       strerror(errno));
			break;
		}
	}
	/* A task that dies must not leave us waiting for its report. */
	close(start[0]);
	close(done[1]);
	close(end[0]);

	shrink_caches();
	if (all_well() && read_steady(&before)) {
		read_caches(&caches_before);
		close(start[1]);
		start[1] = -1;
		if (wait_for_reports(done[0]) && read_steady(&after))
			read_caches(&caches_after);
	}
	while (!all_well() && started--)
		kill(pids[started], SIGKILL);
	if (start[1] >= 0)
		close(start[1]);
	close(done[0]);
	close(end[1]);
	while (wait(&status) > 0) {
		if (status)
			report(FAIL, "a task ended with status 0x%x", status);
	}
	free(pids);
	if (!all_well())
		return;

	add_memory(res, &before, &after);
	per_task = (after.unreclaimable - before.unreclaimable) / nr_tasks;
	add_figure(res, "per_task", per_task);
	add_figure(res, "object", find_object(&caches_before, &caches_after,
					      per_task));
}

int main(int argc, char **argv)
{
	unsigned long tasks = 250;
	const struct option_of options[] = {
		{ .name = "tasks", .kind = WHOLE, .value = &tasks, .min = 1,
		  .max = MAX_TASKS, .help = "how many have them (default 250)" },
		JSON_OPTION,
		{}
	};
	unsigned int i;

	read_options(argc, argv, false, options,
		     "Usage: ioperm_memory [OPTION]...\n"
		     "Measure how much memory, in bytes, the kernel takes for I/O permissions.");
	nr_tasks = tasks;
	json_begin("ioperm_memory", "bytes", -1, "\"tasks\": %d,\n  ", nr_tasks);
	problem = map_shared(sizeof(*problem));
	signal(SIGCHLD, SIG_DFL);
	/* Whoever started this may have had ports, they are inherited. */
	ioperm(0, NR_PORTS, 0);

	printf("%d tasks, in bytes\n", nr_tasks);
	fflush(stdout);
	for (i = 0; i < ARRAY_SIZE(port_sets); i++) {
		struct result res = {};

		strcpy(res.name, port_sets[i].name);
		measure_case(&port_sets[i], &res);
		end_case(&res);
	}

	return end_cases();
}
