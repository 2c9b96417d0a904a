// SPDX-License-Identifier: GPL-2.0
/*
 * A program that yields: OpenBLAS's threads call sched_yield() while they wait for each other. How
 * many products of two matrices it gets done in a second, on one CPU or on some, beside tasks that
 * compute all the time, and how much of a CPU these keep. A case is THREADS:HOGS.
 *
 * It needs libopenblas-dev, so it is built by its name only.
 */
#include "bench_helpers.h"

#include <cblas.h>

#define N		200
#define MAX_HOGS	64

static double seconds = 1, nr_cpus = 1;

static void multiply(void)
{
	static double a[N * N], b[N * N], c[N * N];

	cblas_dgemm(CblasRowMajor, CblasNoTrans, CblasNoTrans, N, N, N, 1, a, N, b, N, 0, c, N);
}

static void measure(int threads, int hogs)
{
	long long start, took, used = 0, calls = 0;
	pid_t pid[MAX_HOGS];
	int i;

	openblas_set_num_threads(threads);
	multiply();
	for (i = 0; i < hogs; i++) {
		pid[i] = fork_task();
		while (!pid[i])
			__asm__ volatile ("" : : : "memory");
	}
	start = now_ns();
	for (i = 0; i < hogs; i++)
		used -= cpu_time(pid[i]);
	do {
		multiply();
		calls++;
		took = now_ns() - start;
	} while (took < seconds * NSEC_PER_SEC);
	for (i = 0; i < hogs; i++)
		used += cpu_time(pid[i]);
	add_figure("products_per_s", (double)calls * NSEC_PER_SEC / took);
	if (hogs)
		add_figure("hogs_percent", 100.0 * used / took);
	while (hogs--)
		end_task(pid[hogs], true);
}

int main(int argc, char **argv)
{
	const struct option_of options[] = {
		{ "seconds", NUMBER, &seconds, 0.1, 60 },
		{ "cpus", NUMBER, &nr_cpus, 1, 64 },
		JSON_OPTION, {}
	};
	int i, threads, hogs;
	bool good;

	/* The library makes threads for all CPUs before main() begins. */
	if (!getenv("OPENBLAS_NUM_THREADS")) {
		setenv("OPENBLAS_NUM_THREADS", "1", 1);
		execv("/proc/self/exe", argv);
	}
	begin_cases("blas_yield", argc, argv, true, options);
	good = use_cpus(nr_cpus);
	for (i = optind; i < argc; i++) {
		if (sscanf(argv[i], "%d:%d", &threads, &hogs) != 2 ||
		    threads < 1 || hogs < 0 || hogs > MAX_HOGS)
			errx(EXIT_FAILURE, "%s: not THREADS:HOGS", argv[i]);
		snprintf(res->name, sizeof(res->name), "threads-%d-hogs-%d", threads, hogs);
		if (good)
			measure(threads, hogs);
		else
			report(SKIP, "fewer than %g CPUs", nr_cpus);
		end_case();
	}
	return end_cases();
}
