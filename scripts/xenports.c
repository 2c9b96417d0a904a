// SPDX-License-Identifier: GPL-2.0-only
/*
 * What a task with one enabled port can read on each CPU of a guest.
 *
 * The hypervisor looks a port up in the bitmap that it was given, and the
 * kernel gives it the one in the TSS of the CPU. To be run before any other
 * program that enables ports: each of them that enables many leaves less to
 * be found. Only for a virtual machine, as it reads whatever is open.
 * scripts/xenguest.py runs it; it prints KTAP.
 */
#define _GNU_SOURCE
#include <errno.h>
#include <sched.h>
#include <setjmp.h>
#include <signal.h>
#include <stdbool.h>
#include <stdio.h>
#include <string.h>
#include <sys/io.h>
#include <unistd.h>

#define PORTS	65536
/* The POST code port: there is nothing behind it. */
#define OWN	0x80

static sigjmp_buf denied;

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

/* Returns how many ports but OWN can be read, and prints their ranges. */
static int others(void)
{
	int count = 0, first = -1;

	for (int port = 0; port <= PORTS; port++) {
		bool open = port < PORTS && port != OWN && readable(port);

		count += open;
		if (open && first < 0)
			first = port;
		if (!open && first >= 0) {
			printf("# can read 0x%x to 0x%x\n", first, port - 1);
			first = -1;
		}
	}
	return count;
}

static int number;

static bool report(bool good, int cpu, const char *what)
{
	printf("%sok %d cpu%d.%s\n", good ? "" : "not ", ++number, cpu, what);
	fflush(stdout);
	return good;
}

static bool check_cpu(int cpu)
{
	bool good = true;
	cpu_set_t set;
	int count;

	CPU_ZERO(&set);
	CPU_SET(cpu, &set);
	if (sched_setaffinity(0, sizeof(set), &set) || ioperm(OWN, 1, 1)) {
		printf("# cpu%d: %s\n", cpu, strerror(errno));
		count = -1;
	} else {
		count = others();
		printf("# cpu%d: %d ports too many\n", cpu, count);
	}
	good &= report(count == 0, cpu, "no_other_port");
	good &= report(count >= 0 && readable(OWN), cpu, "own_port");
	good &= report(!ioperm(OWN, 1, 0) && !readable(OWN), cpu,
		       "own_port_dropped");
	return good;
}

int main(void)
{
	int cpus = sysconf(_SC_NPROCESSORS_ONLN);
	bool good = true;

	signal(SIGSEGV, on_sigsegv);
	printf("TAP version 13\n1..%d\n", 3 * cpus);
	for (int cpu = 0; cpu < cpus; cpu++)
		good &= check_cpu(cpu);
	return !good;
}
