// SPDX-License-Identifier: GPL-2.0
/*
 * Open MPI's ranks call sched_yield() while they wait for each other, when mpirun knows of more
 * ranks than slots or mpi_yield_when_idle is 1. How many sums of all ranks they get done in a
 * second, each after some work, beside tasks that compute all the time, and how much of a CPU these
 * keep. A case is RANKS:HOGS:YIELD, where YIELD is mpi_yield_when_idle.
 *
 * It needs libopenmpi-dev, so it is built by its name only. mpirun starts it again for each rank.
 */
#include "bench_helpers.h"

#include <mpi.h>

#define MAX_HOGS	64
#define WORK_LOOPS	20000

static double seconds = 1, nr_cpus = 1;

/* Rank 0 has the hogs and the clock, and tells the others when it is over. */
static int be_rank(int rank, int hogs)
{
	long long start, took = 0, used = 0, calls = 0;
	pid_t pid[MAX_HOGS];
	int i, over = 0, all = 0;

	MPI_Init(NULL, NULL);
	for (i = 0; !rank && i < hogs; i++) {
		pid[i] = fork_bound();
		while (!pid[i])
			__asm__ volatile ("" : : : "memory");
		used -= cpu_time(pid[i]);
	}
	for (start = now_ns(); !all; calls++) {
		work_loops(WORK_LOOPS);
		over = !rank && (took = now_ns() - start) > seconds * NSEC_PER_SEC;
		MPI_Allreduce(&over, &all, 1, MPI_INT, MPI_MAX, MPI_COMM_WORLD);
	}
	for (i = 0; !rank && i < hogs; i++) {
		used += cpu_time(pid[i]);
		end_task(pid[i], true);
	}
	if (!rank)
		printf("%f %f\n", (double)calls * NSEC_PER_SEC / took, 100.0 * used / took);
	return MPI_Finalize();
}

static void measure(int ranks, int hogs, int yield)
{
	double sums = 0, percent = 0;
	char line[256];
	FILE *mpirun;

	snprintf(line, sizeof(line), "exec mpirun --mca plm isolated --oversubscribe --bind-to none "
		 "-np %d --mca mpi_yield_when_idle %d /proc/%d/exe %d %g", ranks, yield, getpid(), hogs, seconds);
	mpirun = popen(line, "r");
	if (!mpirun || fscanf(mpirun, "%lf %lf", &sums, &percent) != 2)
		report(FAIL, "no figures from: %s", line);
	if (!mpirun || pclose(mpirun))
		report(FAIL, "it failed: %s", line);
	add_figure("sums_per_s", sums);
	if (hogs)
		add_figure("hogs_percent", percent);
}

int main(int argc, char **argv)
{
	const struct option_of options[] = {
		{ "seconds", NUMBER, &seconds, 0.1, 60 },
		{ "cpus", NUMBER, &nr_cpus, 1, 64 },
		JSON_OPTION, {}
	};
	const char *rank = getenv("OMPI_COMM_WORLD_RANK");
	int i, ranks, hogs, yield;
	bool good;

	if (rank && argc == 3) {
		seconds = atof(argv[2]);
		return be_rank(atoi(rank), atoi(argv[1]));
	}
	begin_cases("mpi_yield", argc, argv, true, options);
	good = use_cpus(nr_cpus);
	/* mpirun refuses root else. */
	setenv("OMPI_ALLOW_RUN_AS_ROOT", "1", 1);
	setenv("OMPI_ALLOW_RUN_AS_ROOT_CONFIRM", "1", 1);
	for (i = optind; i < argc; i++) {
		if (sscanf(argv[i], "%d:%d:%d", &ranks, &hogs, &yield) != 3 || ranks < 1 ||
		    ranks > 64 || hogs < 0 || hogs > MAX_HOGS || yield < 0 || yield > 1)
			errx(EXIT_FAILURE, "%s: not RANKS:HOGS:YIELD", argv[i]);
		snprintf(res->name, sizeof(res->name), "ranks-%d-hogs-%d-yield-%d", ranks, hogs,
			 yield);
		if (good)
			measure(ranks, hogs, yield);
		else
			report(SKIP, "fewer than %g CPUs", nr_cpus);
		end_case();
	}
	return end_cases();
}
