/* SPDX-License-Identifier: GPL-2.0-only */
/*
 * Access I/O ports and look at I/O bitmaps in selftests
 *
 * Call ioport_init() in main() first. Everything works in 64 and 32 bit programs.
 *
 * The rule for real machines, where the kernel under test may be broken, and a
 * read may start a watchdog: whether an access should work or not,
 *
 *  - only 0x80 is written to. The kernel itself does so to wait for slow devices.
 *  - 0x80, 0xed, the other such port, and at most 56 ports from 0x1000 on that
 *    nothing in /proc/ioports claims are read. ioport_init() prints them.
 *  - With --all-ports, for emulated machines, all that nothing claims are read.
 *
 * ioport_in() aborts the test that wants to read another one. All ports may be
 * enabled, and seen in the regset.
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
#define IOPORT_LINE		512	/* The ports of a cache line of the bitmap */
#define IOPORT_POST		0x80	/* The POST code port, claimed but harmless */
#define IOPORT_DELAY		0xed	/* What the kernel may use instead */
#define IOPORT_NOBODY		65534	/* A user who owns nothing */
#define IOPORT_TIMEOUT		300	/* Seconds for a case on a debug kernel */

#ifndef NT_386_IOPERM
#define NT_386_IOPERM		0x201
#endif

#ifdef __x86_64__
#define IOPORT_REG_IP		REG_RIP
#else
#define IOPORT_REG_IP		REG_EIP
#endif

/* For what tasks share */
#define ioport_load(x)		__atomic_load_n(&(x), __ATOMIC_ACQUIRE)
#define ioport_store(x, v)	__atomic_store_n(&(x), v, __ATOMIC_RELEASE)

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
	if (regs[REG_TRAPNO] == 13 &&
	    ((*insn & 0xfc) == 0xec || (*insn & 0xfe) == 0xfa ||
	     (insn[0] == 0x0f && insn[1] == 0x31))) {
		regs[IOPORT_REG_IP] = (greg_t)(insn + 1 + (*insn == 0x0f));
		regs[REG_EFL] |= X86_EFLAGS_CF;
	} else {
		/* Happens again right away */
		clearhandler(sig);
	}
}

/* Is it 1 for a port that may be read? And are all that nothing claims read? */
static uint8_t ioport_readable[IOPORT_NR];
static bool ioport_all;

/* May all of these be read? Behind the last port there is none */
static inline bool ioport_may_read(unsigned int port, unsigned int num)
{
	unsigned int end = port + num < IOPORT_NR ? port + num : IOPORT_NR;

	if (port >= IOPORT_NR)
		return false;
	for (; port < end; port++) {
		if (!ioport_readable[port])
			return false;
	}
	return true;
}

static inline __noreturn void ioport_abort(unsigned int port, const char *what)
{
	fprintf(stderr, "# port 0x%x %s\n", port, what);
	abort();
}

/* Read 1, 2 or 4 ports. Returns whether that was executed, not what was read */
static inline bool ioport_in(unsigned int port, unsigned int width)
{
	uint16_t dx = port;
	uint32_t eax = 0;
	bool denied;

	if (!ioport_may_read(port, width))
		ioport_abort(port, "may not be read");
	if (width == 1)
		asm volatile ("clc; inb %%dx, %%al" : "=@ccc" (denied), "+a" (eax) : "d" (dx));
	else if (width == 2)
		asm volatile ("clc; inw %%dx, %%ax" : "=@ccc" (denied), "+a" (eax) : "d" (dx));
	else
		asm volatile ("clc; inl %%dx, %%eax" : "=@ccc" (denied), "+a" (eax) : "d" (dx));
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
 * Find @num ports in a row which may be read, of which the first one is
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

/* Keep eight ports, if they may be read */
static inline void ioport_keep(uint8_t *kept, int port)
{
	if (port < 0 || kept[port] || !ioport_may_read(port, 8))
		return;
	memset(kept + port, 1, 8);
	printf(" 0x%x-0x%x", port, port + 7);
}

/* The CPUs that may be used */
static cpu_set_t ioport_cpus;

/* Take an option away from the arguments. Returns whether it was there */
static inline bool ioport_option(int *argc, char **argv, const char *name)
{
	int i = 1;

	while (i < *argc && strcmp(argv[i], name))
		i++;
	if (i >= *argc)
		return false;
	memmove(argv + i, argv + i + 1, (*argc - i) * sizeof(*argv));
	--*argc;
	return true;
}

static inline void ioport_init(int *argc, char **argv)
{
	unsigned int from, to, known = 0;
	static uint8_t kept[IOPORT_NR];
	char line[256];
	FILE *file;

	ioport_all = ioport_option(argc, argv, "--all-ports");
	sethandler(SIGSEGV, ioport_on_sigsegv, 0);
	if (sched_getaffinity(0, sizeof(ioport_cpus), &ioport_cpus))
		ksft_exit_skip("kernel for more than %d CPUs\n", CPU_SETSIZE);

	/* No file, and one that hides the numbers, tell nothing: touch none. */
	file = fopen("/proc/ioports", "r");
	while (file && fgets(line, sizeof(line), file)) {
		if (sscanf(line, " %x-%x", &from, &to) != 2 || to < from ||
		    to >= IOPORT_NR)
			continue;
		if (to && !known++)
			memset(ioport_readable, 1, sizeof(ioport_readable));
		/* What a bridge passes on is claimed by the devices behind it */
		if (!strstr(line, ": PCI Bus "))
			memset(ioport_readable + from, 0, to - from + 1);
	}
	if (file)
		fclose(file);

	printf("# ports that are read: 0x80 0xed");
	if (ioport_all) {
		printf(" and all that nothing claims");
	} else {
		/* The last ones, and some around the edge of a line here and there */
		ioport_keep(kept, IOPORT_NR - 8);
		for (to = IOPORT_NR; to > 0x1000; to -= 0x2800)
			ioport_keep(kept, ioport_find(8, IOPORT_LINE, IOPORT_LINE - 4, to));
		memcpy(ioport_readable, kept, sizeof(kept));
	}
	printf("\n");
	fflush(stdout);
	ioport_readable[IOPORT_POST] = 1;
	ioport_readable[IOPORT_DELAY] = 1;
}

/* The @nth CPU that may be used, -1 if there are fewer */
static inline int ioport_cpu(int nth)
{
	int cpu;

	for (cpu = 0; cpu < CPU_SETSIZE; cpu++) {
		if (CPU_ISSET(cpu, &ioport_cpus) && !nth--)
			return cpu;
	}
	return -1;
}

/* Pin a task, 0 for the caller */
static inline int ioport_pin(pid_t tid, int cpu)
{
	cpu_set_t set;

	CPU_ZERO(&set);
	CPU_SET(cpu, &set);
	return sched_setaffinity(tid, sizeof(set), &set) ? -errno : 0;
}

/*
 * Come before all but the real-time tasks of other programs. musl's function of
 * that name is a stub, hence the system call itself.
 */
static inline int ioport_set_fifo(void)
{
	const struct sched_param param = { .sched_priority = 1 };

	return syscall(SYS_sched_setscheduler, 0, SCHED_FIFO, &param);
}

/* The process that a child shall not outlive */
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

	/* Who went on with -1 would kill everything with it */
	if (pid < 0)
		ksft_exit_fail_perror("fork");
	if (!pid) {
		ioport_parent = parent;
		ioport_die_with_parent();
	}
	return pid;
}

/* Wait for a child to end, or to stop if it is traced. Returns its status, or -1 */
static inline int ioport_wait(pid_t pid)
{
	int status;

	return waitpid(pid, &status, __WALL) == pid ? status : -1;
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
	status = ioport_wait(pid);
	if (!WIFSTOPPED(status))
		return WIFEXITED(status) ? -WEXITSTATUS(status) : -EINTR;
	return pid;
}

static inline void ioport_end(pid_t pid)
{
	kill(pid, SIGKILL);
	ioport_wait(pid);
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

/* A bitmap, or the model of one. As in the TSS, bits that are set disable a port */
struct ioport_map {
	uint8_t		deny[IOPORT_MAP_BYTES];
};

static const struct ioport_map ioport_none = {
	.deny = { [0 ... IOPORT_MAP_BYTES - 1] = 0xff }
};

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

/* Call ioperm(), and do the same to the model if that works */
static inline int ioport_change(struct ioport_map *map, unsigned int from,
				unsigned int num, bool turn_on)
{
	if (ioperm(from, num, turn_on))
		return -1;
	ioport_set(map, from, num, turn_on);
	return 0;
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

/* Are the eight ports of a byte and those around it all the same? */
static inline bool ioport_uniform(const struct ioport_map *map, unsigned int byte)
{
	const uint8_t *deny = map->deny + byte;

	return byte && byte < IOPORT_MAP_BYTES - 1 && (*deny == 0 || *deny == 0xff) &&
	       deny[-1] == *deny && deny[1] == *deny;
}

/*
 * Compare a model with the bitmap that the kernel keeps and, at the ports that
 * may be read, with what INB does. If these are all, with @was only where
 * something changes or did in that one, and here and there between. @pid: look
 * at the bitmap of a stopped tracee only. Returns what is wrong, or an empty
 * string.
 */
static inline const char *ioport_wrong(const struct ioport_map *model,
				       const struct ioport_map *was, pid_t pid)
{
	/* A task cannot trace itself, but a child has the very same bitmap. */
	pid_t child = pid ?: ioport_fork_stopped();
	struct ioport_map seen = ioport_none;
	struct iovec iov = { seen.deny, sizeof(seen.deny) };
	static char text[64];
	unsigned int port;
	bool alike = false;
	int error;

	if (child < 0)
		return strerror(-child);
	error = ptrace(PTRACE_GETREGSET, child, (void *)NT_386_IOPERM, &iov) ? errno : 0;
	if (!pid)
		ioport_end(child);
	if (error && error != ENXIO)
		return strerror(error);
	/* Of iopl() there is nothing in the bitmap */
	if (!memcmp(model, &ioport_none, sizeof(*model)) != !!error)
		return error ? "no bitmap" : "a bitmap without ports";
	if (!error && iov.iov_len != sizeof(seen))
		return "a bitmap of another size";
	if (memcmp(model, &seen, sizeof(seen))) {
		for (port = 0; model->deny[port / 8] == seen.deny[port / 8]; port += 8)
			;
		sprintf(text, "the bitmap is wrong at one of 8 ports from 0x%x on", port);
		return text;
	}

	for (port = 0; port < IOPORT_NR && !pid; port++) {
		if (port % 8 == 0 && was)
			alike = ioport_uniform(model, port / 8) && ioport_uniform(was, port / 8);
		/* Where all is alike, a port of each line is enough */
		if (ioport_all && alike && port % (IOPORT_LINE + 1))
			continue;
		if (ioport_may_read(port, 1) &&
		    ioport_inb(port) != ioport_allows(model, port, 1)) {
			sprintf(text, "port 0x%x is wrong for INB", port);
			return text;
		}
	}
	return "";
}

static inline bool ioport_has_rawio(void)
{
	struct __user_cap_header_struct head = {
		.version = _LINUX_CAPABILITY_VERSION_3,
	};
	struct __user_cap_data_struct data[_LINUX_CAPABILITY_U32S_3] = {};

	return !syscall(SYS_capget, &head, data) &&
	       data[0].effective & (1U << CAP_SYS_RAWIO);
}

/* Do the system calls not get to the kernel? It refuses no ports before all else */
static inline bool ioport_missing(void)
{
	return ioperm(0, 0, 0) && errno != EINVAL;
}

/*
 * Say why no port can be enabled: the reason for a SKIP, or NULL if ports can
 * be enabled, or if that fails in a way that is for the test to find out.
 */
static inline const char *ioport_skip_reason(void)
{
	if (!ioperm(IOPORT_POST, 1, 1)) {
		/* This may be the first bitmap since boot. No test will see another. */
		if (!ioport_inb(IOPORT_POST))
			ioport_abort(IOPORT_POST, "is not enabled by the first ioperm()");
		if (ioport_inb(IOPORT_DELAY))
			ioport_abort(IOPORT_DELAY, "is enabled by the first ioperm()");
		ioperm(IOPORT_POST, 1, 0);
		return NULL;
	}
	if (errno == EPERM)
		return ioport_has_rawio() ? "EPERM: lockdown, user namespace, seccomp or LSM" :
					    "EPERM: no CAP_SYS_RAWIO";
	return ioport_missing() ? "ENOSYS: kernel without X86_IOPL_IOPERM, or seccomp" : NULL;
}

/*
 * What most tests begin with: no ports, although they are inherited, and one
 * CPU. Returns why nothing can be tested, or NULL.
 */
static inline const char *ioport_setup(void)
{
	ioperm(0, IOPORT_NR, 0);
	iopl(0);
	ioport_pin(0, ioport_cpu(0));
	return ioport_skip_reason();
}

/* Say why no bitmap can be seen with ptrace(), or NULL */
static inline const char *ioport_ptrace_reason(void)
{
	pid_t child = ioport_fork_stopped();

	if (child > 0)
		ioport_end(child);
	return child == -EPERM ?
	       "ptrace() refused: kernel.yama.ptrace_scope is 3, or seccomp" : NULL;
}

static inline const char *ioport_setup_tracer(void)
{
	return ioport_setup() ?: ioport_ptrace_reason();
}

#endif /* __SELFTESTS_X86_IOPORT_HELPER_H */
