// SPDX-License-Identifier: GPL-2.0
/*
 * ioperm_memory.c - how much memory the kernel takes for I/O permissions
 *
 * Many tasks enable the same ports, each for itself, so that each of them has
 * a bitmap of its own. The tasks exist before, and wait for a signal: what the
 * slab allocator takes between that signal and the last task's report is for
 * the bitmaps. It is read from Slab and SUnreclaim in /proc/meminfo, after the
 * kernel was told to add up what its CPUs have counted (stat_refresh), and
 * not before it stays the same for a while. The kmalloc caches give back what
 * is free in them before, or it would be taken without being seen.
 *
 * Divided by the number of tasks that is the size of what one bitmap takes,
 * with what the allocator adds: bytes between objects, slabs that are not
 * full, the pointer to the memory cgroup that pays for it. The size of the
 * object itself is that of the kmalloc cache in /proc/slabinfo that grew by
 * as many objects; a bitmap that is too large for any cache takes pages, and
 * its size then is that of its pages.
 *
 * It measures and reports. No figure makes it fail. A case fails when its
 * figures would mean something else than its name says: a task died, or did
 * not get the ports. Whatever is missing to run it makes it a skip.
 *
 * No port is accessed.
 */
#define _GNU_SOURCE
#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <getopt.h>
#include <stdarg.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/io.h>
#include <sys/stat.h>
#include <sys/utsname.h>
#include <time.h>
#include <unistd.h>

#include "ioport_helper.h"

#define DEFAULT_TASKS	250
#define MAX_TASKS	100000

/* The counters are steady when they are the same so many times in a row */
#define STEADY_READS	5
#define MAX_READS	200
#define READ_NSEC	10000000

#define MAX_CACHES	64

enum verdict {
	OK,
	SKIP,
	FAIL,
};

static const char * const verdict_names[] = {
	[OK]	= "ok",
	[SKIP]	= "skip",
	[FAIL]	= "fail",
};

/**
 * struct memory_case - what each task enables
 * @name:	how it is reported; tools rely on it
 * @from:	the first port
 * @num:	how many
 * @step:	0, or the distance between single ports, @num in all
 */
struct memory_case {
	const char	*name;
	unsigned int	from;
	unsigned int	num;
	unsigned int	step;
};

static const struct memory_case cases[] = {
	{ "port-0x80",		0x80,	1, 0 },
	{ "port-65535",		65535,	1, 0 },
	{ "below-0x400",	0,	0x400, 0 },
	{ "every-line",		0,	IOPORT_NR / IOPORT_LINE, IOPORT_LINE },
	{ "all",		0,	IOPORT_NR, 0 },
};

/* Bytes */
struct memory {
	long long	slab;
	long long	unreclaimable;
};

struct cache {
	char		name[64];
	long		objects;
	long		size;
};

/**
 * struct result - what was measured in a case, in bytes
 * @verdict:	whether it was measured
 * @reason:	why it was not, if so
 * @growth:	with the bitmaps, compared to before
 * @per_task:	growth of the unreclaimable slab by the number of tasks
 * @object:	size of the object, 0 if it was not found
 */
struct result {
	enum verdict	verdict;
	char		reason[200];
	struct memory	growth;
	long long	per_task;
	long long	object;
};

static struct result results[ARRAY_SIZE(cases)];
static unsigned int nr_tasks = DEFAULT_TASKS;
static const char *json_path;
static FILE *json;

static __printf(3, 4) bool conclude(struct result *res, enum verdict verdict,
				    const char *fmt, ...)
{
	va_list args;

	va_start(args, fmt);
	vsnprintf(res->reason, sizeof(res->reason), fmt, args);
	va_end(args);
	res->verdict = verdict;

	return false;
}

static bool read_meminfo(struct memory *mem)
{
	long long kb;
	char line[128], name[64];
	int found = 0, fd;
	FILE *file;

	/* Not there, or not for us: then the figures are less exact */
	fd = open("/proc/sys/vm/stat_refresh", O_WRONLY | O_CLOEXEC);
	if (fd >= 0) {
		if (write(fd, "1", 1) < 0)
			errno = 0;
		close(fd);
	}

	file = fopen("/proc/meminfo", "r");
	if (!file)
		return false;
	while (fgets(line, sizeof(line), file)) {
		if (sscanf(line, "%63[^:]: %lld kB", name, &kb) != 2)
			continue;
		if (!strcmp(name, "Slab")) {
			mem->slab = kb * 1024;
			found++;
		} else if (!strcmp(name, "SUnreclaim")) {
			mem->unreclaimable = kb * 1024;
			found++;
		}
	}
	fclose(file);

	return found == 2;
}

/*
 * The kmalloc caches keep what was freed, which the next one to allocate gets
 * without any growth. Let them give it back, where that is possible.
 */
static void shrink_caches(void)
{
	char path[320];
	struct dirent *entry;
	DIR *dir;
	int fd;

	dir = opendir("/sys/kernel/slab");
	if (!dir)
		return;
	while ((entry = readdir(dir))) {
		if (strncmp(entry->d_name, "kmalloc-", 8))
			continue;
		snprintf(path, sizeof(path), "/sys/kernel/slab/%s/shrink",
			 entry->d_name);
		fd = open(path, O_WRONLY | O_CLOEXEC);
		if (fd < 0)
			continue;
		if (write(fd, "1", 1) < 0)
			errno = 0;
		close(fd);
	}
	closedir(dir);
}

/* Tasks that have just ended give their memory back a little later */
static bool read_steady(struct memory *mem)
{
	const struct timespec pause = { 0, READ_NSEC };
	struct memory last = { -1, -1 };
	int i, same = 0;

	for (i = 0; i < MAX_READS && same < STEADY_READS; i++) {
		if (!read_meminfo(mem))
			return false;
		same = mem->unreclaimable == last.unreclaimable ? same + 1 : 0;
		last = *mem;
		nanosleep(&pause, NULL);
	}

	return true;
}

/* The kmalloc caches. Not an error if there are none to be seen. */
static unsigned int read_caches(struct cache *caches)
{
	FILE *file = fopen("/proc/slabinfo", "r");
	unsigned int nr = 0;
	char line[512];

	if (!file)
		return 0;
	while (nr < MAX_CACHES && fgets(line, sizeof(line), file)) {
		struct cache *c = &caches[nr];

		if (!strncmp(line, "kmalloc-", 8) &&
		    sscanf(line, "%63s %ld %*d %ld", c->name, &c->objects,
			   &c->size) == 3)
			nr++;
	}
	fclose(file);

	return nr;
}

/*
 * The smallest that is at most what a task takes and got about as many objects
 * as there are tasks. Some may have been free before.
 */
static long find_object(const struct cache *before, unsigned int nr_before,
			const struct cache *after, unsigned int nr_after,
			long long per_task)
{
	long long page = sysconf(_SC_PAGESIZE);
	unsigned int i, j;
	long found = 0;

	for (i = 0; i < nr_after; i++) {
		for (j = 0; j < nr_before; j++) {
			if (strcmp(before[j].name, after[i].name) ||
			    after[i].objects - before[j].objects <
			    (long)nr_tasks * 8 / 10)
				continue;
			if (!found || after[i].size < found)
				found = after[i].size;
		}
	}
	if (found)
		return found;
	/* From the page allocator, which has no fractions of a page */
	if (nr_after && per_task >= page)
		return (per_task + page / 2) / page * page;

	return 0;
}

static bool enable(const struct memory_case *c)
{
	unsigned int i;

	if (!c->step)
		return !ioperm(c->from, c->num, 1);
	for (i = 0; i < c->num; i++) {
		if (ioperm(c->from + i * c->step, 1, 1))
			return false;
	}

	return true;
}

/* Wait until the parent closes its end of @go, then of @end */
static void run_task(const struct memory_case *c, int go, int report, int end)
{
	char byte;
	int err;

	if (read(go, &byte, 1))
		_exit(KSFT_FAIL);
	byte = 0;
	if (!enable(c)) {
		err = errno;
		byte = err && err < 128 ? err : EIO;
	}
	if (write(report, &byte, 1) != 1 || read(end, &byte, 1))
		_exit(KSFT_FAIL);
	_exit(KSFT_PASS);
}

static bool collect(struct result *res, int report)
{
	unsigned int i;
	char byte;

	for (i = 0; i < nr_tasks; i++) {
		if (read(report, &byte, 1) != 1)
			return conclude(res, FAIL, "a task died");
		if (byte)
			return conclude(res, FAIL, "a task got no ports: %s",
					strerror(byte));
	}

	return true;
}

static bool run_case(const struct memory_case *c, struct result *res)
{
	static struct cache before_caches[MAX_CACHES], after_caches[MAX_CACHES];
	unsigned int nr_before, nr_after, started, i;
	int go[2], report[2], end[2], status;
	struct memory before, after;
	bool good = true;
	pid_t *pids;

	pids = calloc(nr_tasks, sizeof(*pids));
	if (!pids || pipe(go) || pipe(report) || pipe(end))
		return conclude(res, FAIL, "pipe: %s", strerror(errno));

	for (started = 0; good && started < nr_tasks; started++) {
		pids[started] = fork();
		if (!pids[started]) {
			close(go[1]);
			close(report[0]);
			close(end[1]);
			run_task(c, go[0], report[1], end[0]);
		}
		if (pids[started] < 0) {
			good = conclude(res, SKIP, "fork() of task %u: %s",
					started, strerror(errno));
			break;
		}
	}
	/* A task that dies must not leave us waiting for its report */
	close(go[0]);
	close(report[1]);
	close(end[0]);

	shrink_caches();
	if (good && !read_steady(&before))
		good = conclude(res, SKIP, "no Slab and SUnreclaim in /proc/meminfo");
	nr_before = read_caches(before_caches);
	close(go[1]);
	good = good && collect(res, report[0]);
	good = good && read_steady(&after);
	nr_after = read_caches(after_caches);

	close(end[1]);
	for (i = 0; i < started; i++) {
		if (!good)
			kill(pids[i], SIGKILL);
		if (ioport_wait(pids[i], &status) != pids[i] ||
		    (good && status))
			good = conclude(res, FAIL, "a task ended with status 0x%x",
					status);
	}
	close(report[0]);
	free(pids);
	if (!good)
		return false;

	res->growth.slab = after.slab - before.slab;
	res->growth.unreclaimable = after.unreclaimable - before.unreclaimable;
	res->per_task = res->growth.unreclaimable / (int)nr_tasks;
	res->object = find_object(before_caches, nr_before, after_caches,
				  nr_after, res->per_task);
	res->verdict = OK;

	return true;
}

static void print_result(const struct memory_case *c, const struct result *res)
{
	switch (res->verdict) {
	case OK:
		ksft_print_msg("%s: slab %+lld kB, unreclaimable %+lld kB\n",
			       c->name, res->growth.slab / 1024,
			       res->growth.unreclaimable / 1024);
		ksft_print_msg("%s: per task %lld bytes, object %lld bytes\n",
			       c->name, res->per_task, res->object);
		ksft_test_result_pass("%s\n", c->name);
		break;
	case SKIP:
		ksft_test_result_skip("%s: %s\n", c->name, res->reason);
		break;
	default:
		ksft_print_msg("%s: %s\n", c->name, res->reason);
		ksft_test_result_fail("%s\n", c->name);
		break;
	}
}

/* No text in it has a character that JSON would want to be escaped */
static bool write_json(void)
{
	struct utsname uts = {};
	unsigned int i;
	bool good;

	uname(&uts);
	fprintf(json, "{\n  \"benchmark\": \"ioperm_memory\",\n  \"version\": 1,\n");
	fprintf(json, "  \"unit\": \"bytes\",\n  \"bits\": %zu,\n",
		sizeof(long) * 8);
	fprintf(json, "  \"kernel\": \"%s\",\n  \"tasks\": %u,\n",
		uts.release, nr_tasks);
	fprintf(json, "  \"cases\": [\n");
	for (i = 0; i < ARRAY_SIZE(cases); i++) {
		const struct result *res = &results[i];

		if (i)
			fprintf(json, ",\n");
		fprintf(json, "    {\"name\": \"%s\", \"status\": \"%s\", ",
			cases[i].name, verdict_names[res->verdict]);
		if (res->verdict != OK) {
			fprintf(json, "\"reason\": \"%s\"", res->reason);
		} else {
			fprintf(json, "\"reason\": null, \"slab\": %lld, ",
				res->growth.slab);
			fprintf(json, "\"unreclaimable\": %lld, \"per_task\": %lld, \"object\": ",
				res->growth.unreclaimable, res->per_task);
			if (res->object)
				fprintf(json, "%lld", res->object);
			else
				fprintf(json, "null");
		}
		fprintf(json, "}");
	}
	fprintf(json, "\n  ]\n}\n");

	/* Closed in any case */
	good = !ferror(json);
	return !fclose(json) && good;
}

static void usage(int code)
{
	printf("Usage: ioperm_memory [OPTION]...\n"
	       "Measure how much memory the kernel takes for I/O permissions.\n\n"
	       "  --tasks N    how many tasks have them, 1 to %d (default %d)\n"
	       "  --json FILE  write the results to FILE as well\n"
	       "  --help       print this and exit\n\n"
	       "Exit status: %d measured, perhaps with some cases skipped; %d a case\n"
	       "failed or a wrong option; %d all cases were skipped.\n",
	       MAX_TASKS, DEFAULT_TASKS, KSFT_PASS, KSFT_FAIL, KSFT_SKIP);
	exit(code);
}

static void parse_options(int argc, char **argv)
{
	static const struct option options[] = {
		{ "tasks",	required_argument,	NULL, 'n' },
		{ "json",	required_argument,	NULL, 'j' },
		{ "help",	no_argument,		NULL, 'h' },
		{ }
	};
	unsigned long value;
	char *end;
	int opt;

	while ((opt = getopt_long(argc, argv, "", options, NULL)) != -1) {
		switch (opt) {
		case 'n':
			errno = 0;
			value = strtoul(optarg, &end, 10);
			if (*optarg < '0' || *optarg > '9' || *end || errno ||
			    !value || value > MAX_TASKS)
				usage(KSFT_FAIL);
			nr_tasks = value;
			break;
		case 'j':
			json_path = optarg;
			break;
		default:
			usage(opt == 'h' ? KSFT_PASS : KSFT_FAIL);
		}
	}
	if (optind != argc)
		usage(KSFT_FAIL);
}

int main(int argc, char **argv)
{
	const char *reason;
	unsigned int i;

	parse_options(argc, argv);
	/* Find out before the measurement, not after it */
	if (json_path) {
		json = fopen(json_path, "we");
		if (!json) {
			perror(json_path);
			return KSFT_FAIL;
		}
	}

	ksft_print_header();
	ksft_set_plan(ARRAY_SIZE(cases));
	ksft_print_msg("%u tasks\n", nr_tasks);
	fflush(stdout);

	/* Whoever started this may have had ports, they are inherited. */
	ioperm(0, IOPORT_NR, 0);

	reason = ioport_skip_reason();
	for (i = 0; i < ARRAY_SIZE(cases); i++) {
		if (reason)
			conclude(&results[i], SKIP, "%s", reason);
		else
			run_case(&cases[i], &results[i]);
		print_result(&cases[i], &results[i]);
		fflush(stdout);
	}

	if (json && !write_json()) {
		perror(json_path);
		return KSFT_FAIL;
	}
	/* ksft_finished() takes a run of nothing but skips for a pass. */
	if ((unsigned int)ksft_get_xskip_cnt() == ARRAY_SIZE(cases)) {
		ksft_print_cnts();
		return KSFT_SKIP;
	}
	ksft_finished();
}
