// SPDX-License-Identifier: GPL-2.0-only
/*
 * What a task with one enabled port can read on each CPU of a guest.
 *
 * The hypervisor looks a port up in the bitmap that it was given, and the
 * kernel gives it the one in the TSS of the CPU. To be run before any other
 * program that enables ports: each of them that enables many leaves less to
 * be found. Only for a virtual machine, as it reads whatever is open.
 */
#define _GNU_SOURCE
#include <sched.h>
#include <setjmp.h>
#include <signal.h>
#include <stdbool.h>
#include <stdio.h>
#include <sys/io.h>
#include <unistd.h>

#define PORTS	65536
/* The POST code port: there is nothing behind it. */
#define OWN	0x80

static sigjmp_buf denied;
static int failed;

static void on_sigsegv(int sig)
{
	(void)sig;
	siglongjmp(denied, 1);
}

static bool readable(unsigned int port)
{
	if (sigsetjmp(denied, 1))
		return false;
	inb(port);
	return true;
}

static void report(bool good, int cpu, const char *what)
{
	static int number;

	printf("%sok %d cpu%d.%s\n", good ? "" : "not ", ++number, cpu, what);
	fflush(stdout);
	failed += !good;
}

static void check_cpu(int cpu)
{
	cpu_set_t set;
	int count = 0;

	CPU_ZERO(&set);
	CPU_SET(cpu, &set);
	if (sched_setaffinity(0, sizeof(set), &set) || ioperm(OWN, 1, 1))
		count = -1;
	for (int port = 0; count >= 0 && port < PORTS; port++)
		count += port != OWN && readable(port);
	printf("# cpu%d: %d ports too many\n", cpu, count);
	report(count == 0, cpu, "no_other_port");
	report(count >= 0 && readable(OWN), cpu, "own_port");
	report(!ioperm(OWN, 1, 0) && !readable(OWN), cpu, "own_port_dropped");
}

int main(void)
{
	int cpus = sysconf(_SC_NPROCESSORS_ONLN);

	signal(SIGSEGV, on_sigsegv);
	printf("TAP version 13\n1..%d\n", 3 * cpus);
	for (int cpu = 0; cpu < cpus; cpu++)
		check_cpu(cpu);
	return !!failed;
}
