/* SPDX-License-Identifier: GPL-2.0 */
/* I/O ports by words, for programs that enable them. */
#ifndef PORT_HELPERS_H
#define PORT_HELPERS_H

#include "bench_helpers.h"

#include <sys/io.h>

#define NR_PORTS	65536

/* Apart, so that what is timed has nothing of it. */
static __noreturn __attribute__((cold, noinline)) void give_up(const char *call)
{
	/* Kernels and machines may refuse them. */
	report(errno == EPERM || errno == ENOSYS ? SKIP : FAIL, "%s: %s", call, strerror(errno));
	_exit(1);
}

static inline void enable(unsigned long from, unsigned long num, int on)
{
	if (ioperm(from, num, on))
		give_up("ioperm");
}

/*
 * @ports: none, iopl (after iopl(3)), or ranges such as 0x378-0x37a+0xdc00-0xdc07 or 0/1024, a port
 * in each 1024. A process that may not have them ends.
 */
static inline void take_ports(const char *ports)
{
	unsigned long from, to, stride;
	char *end;

	if (!strcmp(ports, "none"))
		return;
	if (!strcmp(ports, "iopl")) {
		if (iopl(3))
			give_up("iopl");
		return;
	}
	do {
		from = to = strtoul(ports, &end, 0);
		stride = NR_PORTS;
		if (*end == '-')
			to = strtoul(end + 1, &end, 0);
		else if (*end == '/')
			stride = strtoul(end + 1, &end, 0);
		for (; from < NR_PORTS; from += stride, to += stride)
			enable(from, to - from + 1, 1);
		ports = end + 1;
	} while (*end == '+');
	if (*end)
		errx(EXIT_FAILURE, "what is '%s'?", end);
}

#endif /* PORT_HELPERS_H */
