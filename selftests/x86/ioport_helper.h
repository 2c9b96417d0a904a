/* SPDX-License-Identifier: GPL-2.0-only */
/*
 * ioport_helper.h - access I/O ports and look at I/O bitmaps in selftests
 *
 * Call ioport_init() first, as root. It catches the faults of denied accesses
 * and reads /proc/ioports. Everything works in 64 and 32 bit programs.
 *
 * The rule for real machines, where the kernel under test may be broken:
 *
 *  - A port is only read if nothing in /proc/ioports claims it, whether the
 *    access should work or not. ioport_may_read() tells.
 *  - Port 0x80, the POST code port, may be read and written: the kernel itself
 *    writes to it to wait for slow devices.
 *
 * All others may be enabled, and seen in the regset, but are not touched.
 */
#ifndef __SELFTESTS_X86_IOPORT_HELPER_H
#define __SELFTESTS_X86_IOPORT_HELPER_H

#ifndef _GNU_SOURCE
#define _GNU_SOURCE
#endif
#include <elf.h>
#include <errno.h>
#include <grp.h>
#include <sched.h>
#include <signal.h>
#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/io.h>
#include <sys/prctl.h>
#include <sys/ptrace.h>
#include <sys/syscall.h>
#include <sys/types.h>
#include <sys/uio.h>
#include <sys/wait.h>
#include <time.h>
#include <ucontext.h>
#include <unistd.h>

#include <linux/capability.h>

#include "helpers.h"

#define IOPORT_NR		65536
#define IOPORT_MAP_BYTES	(IOPORT_NR / 8)

/* The ports of a cache line of the bitmap */
#define IOPORT_LINE		512

/* The POST code port, claimed by the kernel but harmless */
#define IOPORT_POST		0x80

/* A user who owns nothing */
#define IOPORT_NOBODY		65534

#ifndef NT_386_IOPERM
#define NT_386_IOPERM		0x201
#endif

#ifdef __x86_64__
#define IOPORT_REG_IP		REG_RIP
#else
#define IOPORT_REG_IP		REG_EIP
#endif

#define IOPORT_TRAP_GP		13

/*
 * Accesses
 */

/*
 * Step over an instruction that raised #GP for want of a privilege and set the
 * carry flag, which the instruction itself never changes. The result is only in
 * that flag, so this also works in tasks that share memory. Any other fault
 * kills the task.
 */
static inline void ioport_on_sigsegv(int sig, siginfo_t *si, void *context)
{
	ucontext_t *ctx = context;
	greg_t *regs = ctx->uc_mcontext.gregs;
	const uint8_t *insn = (const uint8_t *)regs[IOPORT_REG_IP];

	/* One that was sent, as by the harness, does not come again as a fault does */
	if (si->si_code <= 0) {
		clearhandler(sig);
		raise(sig);
		return;
	}

	/* The prefix of 16 bit operands; IN and OUT with the port in DX, CLI, STI, RDTSC */
	insn += *insn == 0x66;
	if (regs[REG_TRAPNO] == IOPORT_TRAP_GP &&
	    ((*insn & 0xfc) == 0xec || (*insn & 0xfe) == 0xfa ||
	     (insn[0] == 0x0f && insn[1] == 0x31))) {
		regs[IOPORT_REG_IP] = (greg_t)(insn + 1 + (*insn == 0x0f));
		regs[REG_EFL] |= X86_EFLAGS_CF;
	} else {
		/* Happens again right away */
		clearhandler(sig);
	}
}

/* Read 1, 2 or 4 ports. Returns whether that was executed, not what was read */
static inline bool ioport_in(unsigned int port, unsigned int width)
{
	uint16_t dx = port;
	uint32_t eax = 0;
	bool denied;

	if (width == 1)
		asm volatile ("clc; inb %%dx, %%al"
			      : "=@ccc" (denied), "+a" (eax) : "d" (dx));
	else if (width == 2)
		asm volatile ("clc; inw %%dx, %%ax"
			      : "=@ccc" (denied), "+a" (eax) : "d" (dx));
	else
		asm volatile ("clc; inl %%dx, %%eax"
			      : "=@ccc" (denied), "+a" (eax) : "d" (dx));

	return !denied;
}

static inline bool ioport_inb(unsigned int port)
{
	return ioport_in(port, 1);
}

/* Write 0. Returns whether that was executed */
static inline bool ioport_outb(unsigned int port)
{
	uint16_t dx = port;
	bool denied;

	asm volatile ("clc; outb %%al, %%dx" : "=@ccc" (denied) : "a" (0), "d" (dx));

	return !denied;
}

/*
 * Ports which may be read
 */

static uint8_t ioport_claimed[IOPORT_NR];

static inline void ioport_init(void)
{
	unsigned int from, to, port, known = 0;
	char line[256];
	FILE *file;

	sethandler(SIGSEGV, ioport_on_sigsegv, 0);

	/* No file, and one that hides the numbers, tell nothing: touch none. */
	memset(ioport_claimed, 1, sizeof(ioport_claimed));

	file = fopen("/proc/ioports", "r");
	while (file && fgets(line, sizeof(line), file)) {
		if (sscanf(line, " %x-%x", &from, &to) != 2 || to < from ||
		    to >= IOPORT_NR)
			continue;
		if (to && !known++)
			memset(ioport_claimed, 0, sizeof(ioport_claimed));
		/* What a bridge passes on is claimed by the devices behind it */
		if (strstr(line, ": PCI Bus "))
			continue;
		for (port = from; known && port <= to; port++)
			ioport_claimed[port] = 1;
	}
	if (file)
		fclose(file);
}

/* Does nothing claim any of these ports? */
static inline bool ioport_may_read(unsigned int port, unsigned int num)
{
	unsigned int end = port + num;

	if (end > IOPORT_NR)
		return false;

	for (; port < end; port++) {
		if (port != IOPORT_POST && ioport_claimed[port])
			return false;
	}

	return true;
}

/*
 * Find @num ports in a row which nothing claims, of which the first one is
 * @phase modulo @align. Returns the highest such below @below, -1 if none is.
 * Old devices that do not show up are below 0x1000.
 */
static inline int ioport_find(unsigned int num, unsigned int align,
			      unsigned int phase, unsigned int below)
{
	int port;

	for (port = (int)below - (int)num; port >= 0x1000; port--) {
		if (port % align == phase && ioport_may_read(port, num))
			return port;
	}

	return -1;
}

/*
 * Processes
 */

static pid_t ioport_parent;

static inline void ioport_die_with_parent(void)
{
	prctl(PR_SET_PDEATHSIG, SIGKILL);
	/* If it ended before, nothing will arrive. */
	if (getppid() != ioport_parent)
		_exit(KSFT_FAIL);
}

/* fork() of a child that does not outlive the thread that forked it */
static inline pid_t ioport_fork(void)
{
	pid_t parent = getpid();
	pid_t pid = fork();

	if (!pid) {
		ioport_parent = parent;
		ioport_die_with_parent();
	}

	return pid;
}

/* waitpid() that goes on after a signal */
static inline pid_t ioport_wait(pid_t pid, int *status)
{
	pid_t ret;

	do {
		ret = waitpid(pid, status, __WALL);
	} while (ret < 0 && errno == EINTR);

	return ret;
}

/* Let the caller be traced, and stop */
static inline void ioport_stop(void)
{
	if (ptrace(PTRACE_TRACEME, 0, NULL, NULL))
		_exit(errno);
	syscall(SYS_kill, getpid(), SIGSTOP);
}

/* A child that has the bitmap of the caller and is stopped, or -errno */
static inline pid_t ioport_fork_stopped(void)
{
	pid_t pid = ioport_fork();
	int status;

	if (!pid) {
		ioport_stop();
		_exit(EINTR);
	}
	if (pid < 0 || ioport_wait(pid, &status) != pid)
		return -errno;
	if (!WIFSTOPPED(status))
		return WIFEXITED(status) ? -WEXITSTATUS(status) : -EINTR;

	return pid;
}

static inline void ioport_end(pid_t pid)
{
	kill(pid, SIGKILL);
	ioport_wait(pid, NULL);
}

/* Give up root and all capabilities */
static inline int ioport_become_nobody(void)
{
	if (setgroups(0, NULL) ||
	    setresgid(IOPORT_NOBODY, IOPORT_NOBODY, IOPORT_NOBODY) ||
	    setresuid(IOPORT_NOBODY, IOPORT_NOBODY, IOPORT_NOBODY))
		return -errno;

	/* A change of the credentials resets it. */
	if (ioport_parent)
		ioport_die_with_parent();

	return 0;
}

/* Pin a task, 0 for the caller, to a CPU, or to the first of its own if < 0 */
static inline int ioport_pin(pid_t tid, int cpu)
{
	cpu_set_t set;

	if (cpu < 0) {
		if (sched_getaffinity(tid, sizeof(set), &set))
			return -errno;
		while (!CPU_ISSET(++cpu, &set))
			;
	}
	CPU_ZERO(&set);
	CPU_SET(cpu, &set);

	return sched_setaffinity(tid, sizeof(set), &set) ? -errno : 0;
}

static inline uint64_t ioport_now_ns(void)
{
	struct timespec ts;

	clock_gettime(CLOCK_MONOTONIC, &ts);

	return ts.tv_sec * 1000000000ULL + ts.tv_nsec;
}

/*
 * The model of a bitmap, and the bitmap that the kernel keeps for a task
 */

/* Set bits disable a port, as in the TSS and in the regset */
struct ioport_map {
	uint8_t		deny[IOPORT_MAP_BYTES];
};

static inline void ioport_clear_all(struct ioport_map *map)
{
	memset(map->deny, 0xff, sizeof(map->deny));
}

/* Do to the model what ioperm(@from, @num, @turn_on) does to the bitmap */
static inline void ioport_set(struct ioport_map *map, unsigned int from,
			      unsigned int num, bool turn_on)
{
	unsigned int port;

	for (port = from; port < from + num; port++) {
		if (turn_on)
			map->deny[port / 8] &= ~(1U << (port % 8));
		else
			map->deny[port / 8] |= 1U << (port % 8);
	}
}

/* May all ports of an access be used? It must not leave the port space. */
static inline bool ioport_allows(const struct ioport_map *map,
				 unsigned int port, unsigned int num)
{
	unsigned int end = port + num;

	if (end > IOPORT_NR)
		return false;

	for (; port < end; port++) {
		if (map->deny[port / 8] & (1U << (port % 8)))
			return false;
	}

	return true;
}

static inline bool ioport_allows_any(const struct ioport_map *map)
{
	struct ioport_map none;

	ioport_clear_all(&none);

	return memcmp(map, &none, sizeof(none));
}

/*
 * Read the bitmap of a stopped tracee: what ioperm() has enabled, iopl() does
 * not count. Returns 0, -ENXIO if the task has no bitmap, or another error;
 * then no port is enabled in @map.
 */
static inline int ioport_view(pid_t pid, struct ioport_map *map)
{
	struct iovec iov = {
		.iov_base = map->deny,
		.iov_len = sizeof(map->deny),
	};

	ioport_clear_all(map);
	if (ptrace(PTRACE_GETREGSET, pid, (void *)NT_386_IOPERM, &iov))
		return -errno;

	return iov.iov_len == sizeof(map->deny) ? 0 : -EMSGSIZE;
}

/*
 * The same of the caller. A task cannot trace itself, but a child has the very
 * same bitmap until one of the two changes it.
 */
static inline int ioport_view_self(struct ioport_map *map)
{
	pid_t pid = ioport_fork_stopped();
	int ret = pid;

	ioport_clear_all(map);
	if (pid > 0) {
		ret = ioport_view(pid, map);
		ioport_end(pid);
	}

	return ret;
}

/* The first port at which two bitmaps differ, IOPORT_NR if they are equal */
static inline unsigned int ioport_differs(const struct ioport_map *a,
					  const struct ioport_map *b)
{
	unsigned int port;

	for (port = 0; port < IOPORT_NR; port++) {
		if (ioport_allows(a, port, 1) != ioport_allows(b, port, 1))
			break;
	}

	return port;
}

/* May the port not be read, or does INB do what the model says? */
static inline bool ioport_agrees(const struct ioport_map *model,
				 unsigned int port)
{
	return !ioport_may_read(port, 1) ||
	       ioport_inb(port) == ioport_allows(model, port, 1);
}

/* Are the eight ports of a byte and those around it all the same? */
static inline bool ioport_uniform(const struct ioport_map *map, unsigned int byte)
{
	const uint8_t *deny = map->deny + byte;

	return byte && byte < IOPORT_MAP_BYTES - 1 && (*deny == 0 || *deny == 0xff) &&
	       deny[-1] == *deny && deny[1] == *deny;
}

/*
 * Compare a model with the stored bitmap, of the caller or of a stopped tracee,
 * and with what INB of the caller does: at all ports, or with @was where
 * something changes or did in that one, and here and there between. Returns what
 * is wrong, or an empty string.
 */
static inline const char *ioport_wrong(const struct ioport_map *model,
				       const struct ioport_map *was, pid_t pid)
{
	struct ioport_map seen;
	static char text[64];
	unsigned int port;
	int ret;

	ret = pid ? ioport_view(pid, &seen) : ioport_view_self(&seen);
	if (ret && ret != -ENXIO)
		return strerror(-ret);
	if (ioport_allows_any(model) != !ret)
		return ret ? "no bitmap" : "a bitmap without ports";
	if (memcmp(model, &seen, sizeof(seen))) {
		sprintf(text, "port 0x%x is wrong in the bitmap",
			ioport_differs(model, &seen));
		return text;
	}

	for (port = 0; port < IOPORT_NR && !pid; port++) {
		if (was && (port + 1) % IOPORT_LINE > 1 &&
		    ioport_uniform(model, port / 8) && ioport_uniform(was, port / 8))
			continue;
		if (!ioport_agrees(model, port)) {
			sprintf(text, "port 0x%x is wrong for INB", port);
			return text;
		}
	}

	return "";
}

/*
 * What is missing
 */

static inline bool ioport_has_rawio(void)
{
	struct __user_cap_header_struct head = {
		.version = _LINUX_CAPABILITY_VERSION_3,
	};
	struct __user_cap_data_struct data[_LINUX_CAPABILITY_U32S_3] = {};

	return !syscall(SYS_capget, &head, data) &&
	       data[0].effective & (1U << CAP_SYS_RAWIO);
}

static inline bool ioport_locked_down(void)
{
	char line[128] = "";
	FILE *file;

	file = fopen("/sys/kernel/security/lockdown", "r");
	if (!file)
		return false;
	if (!fgets(line, sizeof(line), file))
		line[0] = '\0';
	fclose(file);

	return strstr(line, "[integrity]") || strstr(line, "[confidentiality]");
}

/* Try to enable a port in a child. Returns 0 or the error of ioperm(). */
static inline int ioport_errno(void)
{
	int status;
	pid_t pid;

	pid = ioport_fork();
	if (pid < 0)
		return -errno;
	if (!pid)
		_exit(ioperm(IOPORT_POST, 1, 1) ? errno : 0);
	if (ioport_wait(pid, &status) != pid || !WIFEXITED(status))
		return -EINTR;

	return -WEXITSTATUS(status);
}

/*
 * Say why no port can be enabled: the reason for a SKIP, or NULL if ports can
 * be enabled, or if that fails in a way that is for the test to find out.
 */
static inline const char *ioport_skip_reason(void)
{
	switch (ioport_errno()) {
	case -ENOSYS:
		return "no ioperm(): kernel without X86_IOPL_IOPERM";
	case -EPERM:
		if (!ioport_has_rawio())
			return "no CAP_SYS_RAWIO: not root";
		if (ioport_locked_down())
			return "kernel lockdown";
		return "refused with CAP_SYS_RAWIO: lockdown, user namespace, seccomp or LSM";
	default:
		return NULL;
	}
}

#endif /* __SELFTESTS_X86_IOPORT_HELPER_H */
