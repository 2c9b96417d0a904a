// SPDX-License-Identifier: GPL-2.0
/*
 * A program that yields: OpenBLAS's threads call sched_yield() while they wait
 * for each other. How many products of two matrices it gets done in a second,
 * with more threads than CPUs, beside tasks that compute all the time, and how
 * much of the CPUs these keep.
 *
 *   blas_yield THREADS HOGS SECONDS [SLICE_US]
 *
 * It needs libopenblas-dev, so it is built by its name only.
 */
#define _GNU_SOURCE
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <time.h>
#include <unistd.h>
#include <sys/prctl.h>
#include <sys/resource.h>
#include <sys/syscall.h>
#include <cblas.h>

#define N 200

static double seconds_of(clockid_t clock)
{
	struct timespec ts;

	clock_gettime(clock, &ts);
	return ts.tv_sec + ts.tv_nsec / 1e9;
}

int main(int argc, char **argv)
{
	struct {
		unsigned int size, policy;
		unsigned long long flags;
		int nice, priority;
		unsigned long long slice, deadline, period;
	} attr = { .size = sizeof(attr) };
	static double a[N * N], b[N * N], c[N * N];
	double start, took, hog_start = 0, hog_took = 0;
	struct rusage usage;
	int i, hogs, calls = 0;
	clockid_t clock[64];
	pid_t pid[64];

	if (argc < 4)
		return 1;
	hogs = atoi(argv[2]);
	attr.slice = argc > 4 ? atoi(argv[4]) * 1000ULL : 0;
	syscall(SYS_sched_setattr, 0, &attr, 0);
	for (i = 0; i < hogs && i < 64; i++) {
		pid[i] = fork();
		if (!pid[i]) {
			prctl(PR_SET_PDEATHSIG, SIGKILL);
			for (;;)
				__asm__ volatile ("" : : : "memory");
		}
		clock_getcpuclockid(pid[i], &clock[i]);
	}
	for (i = 0; i < N * N; i++)
		a[i] = b[i] = i % 7;
	openblas_set_num_threads(atoi(argv[1]));
	cblas_dgemm(CblasRowMajor, CblasNoTrans, CblasNoTrans, N, N, N, 1, a, N,
		    b, N, 0, c, N);
	for (i = 0; i < hogs; i++)
		hog_start += seconds_of(clock[i]);
	start = seconds_of(CLOCK_MONOTONIC);
	do {
		cblas_dgemm(CblasRowMajor, CblasNoTrans, CblasNoTrans, N, N, N,
			    1, a, N, b, N, 0, c, N);
		calls++;
		took = seconds_of(CLOCK_MONOTONIC) - start;
	} while (took < atof(argv[3]));
	for (i = 0; i < hogs; i++) {
		hog_took += seconds_of(clock[i]);
		kill(pid[i], SIGKILL);
	}
	getrusage(RUSAGE_SELF, &usage);
	printf("threads %s hogs %d: %.1f products/s, hogs used %.1f %%, switches %ld\n",
	       argv[1], hogs, calls / took, 100 * (hog_took - hog_start) / took,
	       usage.ru_nvcsw + usage.ru_nivcsw);
	return 0;
}
