// SPDX-License-Identifier: GPL-2.0
/*
 * Two programs that read I/O ports in turn on one CPU, as drivers in user space do that pass data
 * on: each waits for a byte in a pipe, reads a port, and sends the byte back. How long such a turn
 * of both takes.
 *
 * Only two ports are read, whatever the programs may use, and none written: the status of the first
 * parallel port and the address of PCI's configuration, which both may be read at any time.
 */
#include "port_helpers.h"

#define PARALLEL_PORT	0x379
#define PCI_ADDRESS	0xcf8
#define WARM_UP		100
#define TURNS		20000

/* A program: its ports, and which one it reads, if any. */
struct program {
	const char *ports;
	unsigned int port;
};

static const struct {
	const char *name;
	struct program program[2];
} cases[] = {
	{ "one-reader", { { "0x378-0x37a", PARALLEL_PORT }, { "none", 0 } } },
	{ "parallel-port-pciutils", { { "0x378-0x37a", PARALLEL_PORT },
				      { "0xcf8-0xcff+0xc000-0xcffe", PCI_ADDRESS } } },
	{ "two-cards", { { "0x378-0x37a+0xd800-0xd807", PARALLEL_PORT },
			 { "0x378-0x37a+0xdc00-0xdc07", PARALLEL_PORT } } },
};

/* Waits for its turn and takes it, @nr times; @first begins by itself. */
static bool take_turns(const struct program *p, int in, int out, bool first, unsigned long nr)
{
	char byte = 0;

	for (; nr; nr--) {
		if (!first && read(in, &byte, 1) != 1)
			return false;
		if (p->port)
			inb(p->port);
		if (write(out, &byte, 1) != 1)
			return false;
		if (first && read(in, &byte, 1) != 1)
			return false;
	}
	return true;
}

static void measure(const void *programs)
{
	const struct program *program = programs;
	int there[2], back[2];
	long long start;
	pid_t pid;

	if (pipe(there) || pipe(back))
		err(EXIT_FAILURE, "pipe");
	pid = fork_task();
	if (!pid) {
		close(there[1]);
		take_ports(program[1].ports);
		_exit(!take_turns(&program[1], there[0], back[1], false, WARM_UP + TURNS));
	}
	close(there[0]);
	close(back[1]);
	take_ports(program[0].ports);
	if (take_turns(&program[0], back[0], there[1], true, WARM_UP)) {
		start = now_ns();
		if (take_turns(&program[0], back[0], there[1], true, TURNS))
			add_figure("ns_per_turn", (double)(now_ns() - start) / TURNS);
	}
	close(there[1]);
	check_status("the other program", end_task(pid, false));
}

int main(int argc, char **argv)
{
	unsigned int i;

	begin_cases("port_readers", argc, argv, false, json_only);
	signal(SIGPIPE, SIG_IGN);
	use_cpus(1);
	for (i = 0; i < ARRAY_SIZE(cases); i++) {
		strcpy(res->name, cases[i].name);
		/* The ports end with the process. */
		run_apart(measure, cases[i].program);
	}
	return end_cases();
}
