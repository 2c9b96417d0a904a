// SPDX-License-Identifier: GPL-2.0
/*
 * A program that yields: OpenBLAS's threads call sched_yield() while they wait
 * for each other. How many products of two matrices it gets done in a second,
 * with several threads on one CPU, or on some, beside tasks that compute all the
 * time, and how much of a CPU these keep.
 *
 *	blas_yield [OPTION]... THREADS:HOGS...
 *
 * It needs libopenblas-dev, so it is built by its name only.
 */
#include "bench_helpers.h"

#include <cblas.h>

#define N		200
#define MAX_HOGS	64

static double seconds = 1;
static unsigned long slice_us, nr_cpus = 1;

/* Use the first CPUs of those that we may use. */
static void pin_to_some(void)
{
	unsigned long i, left = nr_cpus;
	cpu_set_t set;

	sched_getaffinity(0, sizeof(set), &set);
	for (i = 0; i < CPU_SETSIZE; i++) {
		if (CPU_ISSET(i, &set) && left)
			left--;
		else
			CPU_CLR(i, &set);
	}
	sched_setaffinity(0, sizeof(set), &set);
	if (left)
		report(SKIP, "fewer than %lu CPUs", nr_cpus);
}

static void multiply(void)
{
	static double a[N * N], b[N * N], c[N * N];

	cblas_dgemm(CblasRowMajor, CblasNoTrans, CblasNoTrans, N, N, N, 1, a, N,
		    b, N, 0, c, N);
}

static long long used(const clockid_t *clock, int hogs)
{
	long long all = 0;

	while (hogs--)
		all += clock_ns(clock[hogs]);

	return all;
}

static void measure(struct result *res, int threads, int hogs)
{
	long long start, took, before, calls = 0;
	clockid_t clock[MAX_HOGS] = {};
	pid_t pid[MAX_HOGS];
	int i;

	snprintf(res->name, sizeof(res->name), "threads-%d-hogs-%d", threads, hogs);
	pin_to_some();
	/* Of this task and of those that it makes. */
	if (slice_us && !become_fair(0, slice_us * NSEC_PER_USEC))
		report(SKIP, "sched_setattr: %s", strerror(errno));
	openblas_set_num_threads(threads);
	multiply();
	for (i = 0; i < hogs; i++) {
		pid[i] = fork_task();
		while (!pid[i])
			__asm__ volatile ("" : : : "memory");
		clock_getcpuclockid(pid[i], &clock[i]);
	}
	start = now_ns();
	before = used(clock, hogs);
	do {
		multiply();
		calls++;
		took = now_ns() - start;
	} while (took < seconds * NSEC_PER_SEC);
	add_figure(res, "products_per_s", (double)calls * NSEC_PER_SEC / took);
	if (hogs)
		add_figure(res, "hogs_percent",
			   100.0 * (used(clock, hogs) - before) / took);
	while (hogs--)
		end_task(pid[hogs], true);
}

int main(int argc, char **argv)
{
	const struct option_of options[] = {
		{ .name = "seconds", .kind = NUMBER, .value = &seconds, .min = 0.1,
		  .max = 60, .help = "how long each case takes" },
		{ .name = "slice", .kind = WHOLE, .value = &slice_us, .max = 100000,
		  .help = "slices of all tasks in us, 0 for the default" },
		{ .name = "cpus", .kind = WHOLE, .value = &nr_cpus, .min = 1, .max = 64,
		  .help = "how many CPUs all tasks use together" },
		JSON_OPTION,
		{}
	};
	int i, threads, hogs;

	read_options(argc, argv, true, options,
		     "Usage: blas_yield [OPTION]... THREADS:HOGS...\n"
		     "Products of two matrices a second beside hogs, and what these keep of the CPU.");
	/* The library makes threads for all CPUs before main() begins. */
	if (!getenv("OPENBLAS_NUM_THREADS")) {
		setenv("OPENBLAS_NUM_THREADS", "1", 1);
		execv("/proc/self/exe", argv);
	}
	problem = map_shared(sizeof(*problem));
	json_begin("blas_yield", "ns", -1, "\"seconds\": %g,\n  ", seconds);
	for (i = optind; i < argc; i++) {
		struct result res = {};

		if (sscanf(argv[i], "%d:%d", &threads, &hogs) != 2 ||
		    threads < 1 || hogs < 0 || hogs > MAX_HOGS)
			usage_error("%s: not THREADS:HOGS", argv[i]);
		measure(&res, threads, hogs);
		end_case(&res);
	}

	return end_cases();
}
