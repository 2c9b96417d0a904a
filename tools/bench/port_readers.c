// SPDX-License-Identifier: GPL-2.0
/*
 * Two programs that read I/O ports in turn on one CPU, as drivers in user space
 * do that pass data on: each waits for a byte in a pipe, reads a port, and sends
 * the byte back. How long such a turn of both takes.
 *
 * one-reader			a parallel port beside a program without ports
 * parallel-port-pciutils	beside one with the ports of pciutils
 * two-cards			a parallel port and a PCI card each
 *
 * Only two ports are read, whatever the programs may use: the status of the first
 * parallel port and the address register of PCI's configuration, which both may
 * be read at any time. No port is written.
 */
#include "bench_helpers.h"

#include <sys/io.h>

#define PARALLEL_PORT	0x379
#define PCI_ADDRESS	0xcf8
#define WARM_UP		100

struct range {
	unsigned long from, num;
};

/* A program: its ports, and which one it reads, if any. */
struct program {
	struct range range[2];
	unsigned int port;
};

static const struct program parallel_port = { { { 0x378, 3 } }, PARALLEL_PORT };
static const struct program pciutils = {
	{ { 0xcf8, 8 }, { 0xc000, 0xfff } }, PCI_ADDRESS };
static const struct program card = { { { 0x378, 3 }, { 0xd800, 8 } }, PARALLEL_PORT };
static const struct program other_card = {
	{ { 0x378, 3 }, { 0xdc00, 8 } }, PARALLEL_PORT };
static const struct program nothing;

static const struct {
	const char *name;
	const struct program *program[2];
} cases[] = {
	{ "one-reader", { &parallel_port, &nothing } },
	{ "parallel-port-pciutils", { &parallel_port, &pciutils } },
	{ "two-cards", { &card, &other_card } },
};

static unsigned long turns = 20000;

static bool take_ports(const struct program *p)
{
	int i;

	for (i = 0; i < 2; i++) {
		if (p->range[i].num && ioperm(p->range[i].from, p->range[i].num, 1)) {
			report_refused("ioperm", errno);
			return false;
		}
	}

	return true;
}

/* Waits for its turn and takes it, @nr times; @first begins by itself. */
static bool take_turns(const struct program *p, int in, int out, bool first,
		       unsigned long nr)
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

static void measure(struct result *res, const struct program * const *program)
{
	int there[2], back[2];
	long long start;
	pid_t pid;

	if (pipe(there) || pipe(back)) {
		report(FAIL, "pipe: %s", strerror(errno));
		return;
	}
	pid = fork_task();
	if (!pid) {
		close(there[1]);
		_exit(!take_ports(program[1]) ||
		      !take_turns(program[1], there[0], back[1], false,
				  WARM_UP + turns));
	}
	close(there[0]);
	close(back[1]);
	if (take_ports(program[0]) &&
	    take_turns(program[0], back[0], there[1], true, WARM_UP)) {
		start = now_ns();
		if (take_turns(program[0], back[0], there[1], true, turns))
			add_figure(res, "ns_per_turn",
				   (double)(now_ns() - start) / turns);
	}
	ioperm(0, 65536, 0);
	close(there[1]);
	close(back[0]);
	check_child("other program", end_task(pid, false));
}

int main(int argc, char **argv)
{
	const struct option_of options[] = {
		{ .name = "turns", .kind = WHOLE, .value = &turns, .min = 1,
		  .max = 1e9, .help = "turns of each case" },
		JSON_OPTION,
		{}
	};
	unsigned int i;

	read_options(argc, argv, false, options,
		     "Usage: port_readers [OPTION]...\n"
		     "How long a turn of two programs takes that read I/O ports on one CPU.");
	problem = map_shared(sizeof(*problem));
	signal(SIGPIPE, SIG_IGN);
	pin_to(first_cpu());
	json_begin("port_readers", "ns", first_cpu(), "\"turns\": %lu,\n  ", turns);
	for (i = 0; i < ARRAY_SIZE(cases); i++) {
		struct result res = {};

		strcpy(res.name, cases[i].name);
		measure(&res, cases[i].program);
		end_case(&res);
	}

	return end_cases();
}
