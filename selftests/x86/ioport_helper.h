/* SPDX-License-Identifier: GPL-2.0-only */
/*
 * ioport_helper.h - access I/O ports and look at I/O bitmaps in selftests
 *
 * The rule for bare metal: the only ports that a test may both be allowed to
 * use and touch are 0x80, the POST code port, and ports that nothing in
 * /proc/ioports claims, high ones if there is a choice. ioport_safe() knows
 * which these are. A port that is claimed may be enabled, but is not touched
 * then: look at the bitmap with ioport_view() instead. An access that is
 * denied never reaches the device, so any port that must be denied can be
 * tried. Where nobody knows what is behind a port it is read and not written.
 *
 * What is in here:
 *
 *  ioport_try()		one access of any kind, true if it was allowed
 *  ioport_view()		the bitmap of a stopped tracee, ioport_view_self()
 *				the one of the caller
 *  ioport_compare()		all 65536 ports against a model
 *  ioport_set(), _allows()	the model, in the format of the hardware
 *  ioport_safe(), _find()	ports which may be touched
 *  ioport_skip_reason()	why no port can be enabled here
 *  ioport_harness_run()		for main(), instead of TEST_HARNESS_MAIN
 *
 * All of it works in 64 and 32 bit programs, for several threads at once and
 * for processes which share memory.
 *
 * Including the file installs a handler for SIGSEGV, and lets each child that
 * fork() makes be killed when the thread that forked it ends, see
 * ioport_bind_children.
 */
#ifndef __SELFTESTS_X86_IOPORT_HELPER_H
#define __SELFTESTS_X86_IOPORT_HELPER_H

#ifndef _GNU_SOURCE
#define _GNU_SOURCE
#endif
#include <elf.h>
#include <errno.h>
#include <pthread.h>
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
 * Access with a caught fault
 */

/*
 * Step over an instruction that raised #GP for want of a privilege and set the
 * carry flag, which the instruction itself never changes. There is no other
 * state, so it does not matter who shares memory or thread local storage with
 * whom. Any other fault kills.
 */
static inline void ioport_on_sigsegv(int sig, siginfo_t *si __always_unused,
				     void *context)
{
	ucontext_t *ctx = context;
	greg_t *regs = ctx->uc_mcontext.gregs;
	const uint8_t *insn = (const uint8_t *)regs[IOPORT_REG_IP];

	if (regs[REG_TRAPNO] != IOPORT_TRAP_GP)
		goto kill;

	/* Operand size and REP */
	while (*insn == 0x66 || *insn == 0xf3)
		insn++;

	switch (*insn) {
	/* INS and OUTS, CLI and STI, IN and OUT with the port in DX */
	case 0x6c ... 0x6f:
	case 0xfa ... 0xfb:
	case 0xec ... 0xef:
		insn += 1;
		break;
	/* IN and OUT with the port in the instruction */
	case 0xe4 ... 0xe7:
		insn += 2;
		break;
	/* RDTSC */
	case 0x0f:
		if (insn[1] != 0x31)
			goto kill;
		insn += 2;
		break;
	default:
		goto kill;
	}

	regs[IOPORT_REG_IP] = (greg_t)insn;
	regs[REG_EFL] |= X86_EFLAGS_CF;
	return;
kill:
	/* Happens again right away */
	clearhandler(sig);
}

static inline void ioport_catch_faults(void)
{
	sethandler(SIGSEGV, ioport_on_sigsegv, 0);
}

/* The kinds of access: three widths of each, one, two and four bytes */
enum ioport_insn {
	IOPORT_INB,	IOPORT_INW,	IOPORT_INL,
	IOPORT_OUTB,	IOPORT_OUTW,	IOPORT_OUTL,
	IOPORT_INSB,	IOPORT_INSW,	IOPORT_INSL,
	IOPORT_OUTSB,	IOPORT_OUTSW,	IOPORT_OUTSL,
	IOPORT_NR_INSNS,
};

static const char * const ioport_insn_name[IOPORT_NR_INSNS] __maybe_unused = {
	"inb", "inw", "inl", "outb", "outw", "outl",
	"insb", "insw", "insl", "outsb", "outsw", "outsl",
};

static inline unsigned int ioport_insn_width(enum ioport_insn insn)
{
	return 1U << (insn % 3);
}

/**
 * ioport_try() - Access a port
 * @insn:	The kind of access
 * @port:	The port, of which the lowest 16 bits are used
 *
 * What is read is thrown away, zero is written. ioport_catch_faults() must be
 * in effect, which it is unless the test has set a handler of its own.
 *
 * Return: true if the access was executed, false if it raised #GP
 */
static inline bool ioport_try(enum ioport_insn insn, unsigned int port)
{
	const void *src = &(uint32_t){ 0 };
	void *dst = &(uint32_t){ 0 };
	uint16_t dx = port;
	uint32_t eax = 0;
	bool denied;

#define IOPORT_ASM(text)						\
({									\
	asm volatile ("cld\n\tclc\n\t" text				\
		      : "=@ccc" (denied), "+a" (eax),			\
			"+S" (src), "+D" (dst)				\
		      : "d" (dx) : "memory");				\
})

	switch (insn) {
	case IOPORT_INB:
		IOPORT_ASM("inb %%dx, %%al");
		break;
	case IOPORT_INW:
		IOPORT_ASM("inw %%dx, %%ax");
		break;
	case IOPORT_INL:
		IOPORT_ASM("inl %%dx, %%eax");
		break;
	case IOPORT_OUTB:
		IOPORT_ASM("outb %%al, %%dx");
		break;
	case IOPORT_OUTW:
		IOPORT_ASM("outw %%ax, %%dx");
		break;
	case IOPORT_OUTL:
		IOPORT_ASM("outl %%eax, %%dx");
		break;
	case IOPORT_INSB:
		IOPORT_ASM("insb");
		break;
	case IOPORT_INSW:
		IOPORT_ASM("insw");
		break;
	case IOPORT_INSL:
		IOPORT_ASM("insl");
		break;
	case IOPORT_OUTSB:
		IOPORT_ASM("outsb");
		break;
	case IOPORT_OUTSW:
		IOPORT_ASM("outsw");
		break;
	case IOPORT_OUTSL:
		IOPORT_ASM("outsl");
		break;
	default:
		abort();
	}

#undef IOPORT_ASM

	return !denied;
}

/* The two which most tests need */
static inline bool ioport_inb(unsigned int port)
{
	return ioport_try(IOPORT_INB, port);
}

static inline bool ioport_outb(unsigned int port)
{
	return ioport_try(IOPORT_OUTB, port);
}

/*
 * Children
 */

/*
 * As long as this is true, a child of fork() gets SIGKILL when the thread that
 * forked it ends, so that nothing is left when a test is killed. This includes
 * the processes which the harness forks for each test. The kernel forgets it
 * when the child changes its credentials: call ioport_bind_to_parent() again
 * after setresuid() and the like. Not for vfork(), clone() and posix_spawn().
 */
static bool ioport_bind_children __maybe_unused = true;

/* The process that forks, and the one that forked the caller */
static __thread pid_t ioport_forker, ioport_parent;

static inline void ioport_bind_to_parent(void)
{
	pid_t parent;

	prctl(PR_SET_PDEATHSIG, SIGKILL);

	/* If it ended before, nothing will arrive. 0 is another PID namespace */
	parent = getppid();
	if (ioport_parent && parent && parent != ioport_parent)
		_exit(KSFT_FAIL);
}

static inline void ioport_before_fork(void)
{
	ioport_forker = getpid();
}

static inline void ioport_in_child(void)
{
	ioport_parent = ioport_forker;
	if (ioport_bind_children)
		ioport_bind_to_parent();
}

/* Stay on one CPU, the first of those that are allowed */
static inline int ioport_pin(void)
{
	cpu_set_t set;
	int cpu;

	if (sched_getaffinity(0, sizeof(set), &set))
		return -errno;

	for (cpu = 0; !CPU_ISSET(cpu, &set); cpu++)
		;
	CPU_ZERO(&set);
	CPU_SET(cpu, &set);

	return sched_setaffinity(0, sizeof(set), &set) ? -errno : 0;
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

static void __attribute__((constructor)) ioport_init(void)
{
	ioport_catch_faults();
	pthread_atfork(ioport_before_fork, NULL, ioport_in_child);
}

/*
 * The model, and the bitmap that the kernel keeps for a task
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
	unsigned int port = from, end = from + num;

	while (port < end) {
		if (port % 8 == 0 && end - port >= 8) {
			map->deny[port / 8] = turn_on ? 0 : 0xff;
			port += 8;
			continue;
		}
		if (turn_on)
			map->deny[port / 8] &= ~(1U << (port % 8));
		else
			map->deny[port / 8] |= 1U << (port % 8);
		port++;
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

/**
 * ioport_view() - Read the I/O bitmap of another task
 * @pid:	A tracee of the caller, which is stopped
 * @map:	Where to write the bitmap to, all ones if there is none
 *
 * It shows what ioperm() has enabled. iopl() does not count.
 *
 * Return: 0, -ENXIO if the task has no bitmap, or the error of ptrace(), such
 * as -EINVAL from a kernel without X86_IOPL_IOPERM
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

/**
 * ioport_view_self() - Read the I/O bitmap of the caller
 * @map:	Where to write the bitmap to, all ones if there is none
 *
 * A task cannot trace itself. But a child has the very same bitmap until one
 * of the two changes it, so a child is forked to be looked at, and is gone
 * when this returns. So is its reference on the bitmap.
 *
 * Return: as ioport_view(), or the error of fork()
 */
static inline int ioport_view_self(struct ioport_map *map)
{
	bool bind = ioport_bind_children;
	int ret, status;
	pid_t pid;

	ioport_clear_all(map);

	pid = fork();
	if (pid < 0)
		return -errno;
	if (!pid) {
		if (!bind)
			ioport_bind_to_parent();
		if (ptrace(PTRACE_TRACEME, 0, NULL, NULL))
			_exit(errno);
		syscall(SYS_kill, getpid(), SIGSTOP);
		_exit(EINTR);
	}

	if (ioport_wait(pid, &status) != pid)
		return -errno;
	if (WIFEXITED(status))
		return -WEXITSTATUS(status);
	if (WIFSIGNALED(status))
		return -EINTR;

	ret = ioport_view(pid, map);

	kill(pid, SIGKILL);
	if (ioport_wait(pid, &status) != pid)
		return -errno;

	return ret;
}

/*
 * Ports which may be touched
 */

static uint8_t ioport_claimed[IOPORT_NR];

static void __attribute__((constructor)) ioport_read_claims(void)
{
	unsigned int from, to, port, known = 0;
	char line[256];
	FILE *file;

	/* No file, and one that hides the numbers, tell nothing: touch none. */
	memset(ioport_claimed, 1, sizeof(ioport_claimed));

	file = fopen("/proc/ioports", "r");
	if (!file)
		return;

	while (fgets(line, sizeof(line), file)) {
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
	fclose(file);
}

/**
 * ioport_safe() - Check whether ports may be touched
 * @port:	The first port
 * @num:	The number of ports
 *
 * Only root sees the claims, they are read when the program starts. A program
 * that does not see them may only touch port 0x80.
 *
 * Return: true if the ports may be touched even if they are enabled
 */
static inline bool ioport_safe(unsigned int port, unsigned int num)
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

/**
 * ioport_find() - Find ports which nothing claims
 * @num:	How many, side by side
 * @align:	What to count the first one modulo, 1 if it does not matter
 * @phase:	What the first one is to be modulo @align
 * @below:	All of them are below this port, IOPORT_NR if anywhere
 *
 * Never finds port 0x80.
 *
 * Return: the first of the highest such ports, -1 if there are none
 */
static inline int ioport_find(unsigned int num, unsigned int align,
			      unsigned int phase, unsigned int below)
{
	int port;

	for (port = (int)below - (int)num; port > IOPORT_POST; port--) {
		if (port % align == phase && ioport_safe(port, num))
			return port;
	}

	return -1;
}

/*
 * Comparing all ports with a model
 */

/* Look at the bitmap that the kernel keeps for the task */
#define IOPORT_BY_VIEW		1
/* Try the ports, which shows the bitmap that the CPU uses */
#define IOPORT_BY_ACCESS	2

/*
 * May an enabled port be read just to see whether that works? Enough of them
 * are the first and the last one of each run of enabled ports, above those of
 * old devices that nothing claims. In a virtual machine IOPORT_PROBE_ALL=1 in
 * the environment allows all which nothing claims.
 */
static inline bool ioport_may_read(const struct ioport_map *model,
				   unsigned int port)
{
	const char *all = getenv("IOPORT_PROBE_ALL");

	if (port == IOPORT_POST)
		return true;
	if (!ioport_safe(port, 1))
		return false;
	if (all && !strcmp(all, "1"))
		return true;

	return port >= 0x1000 && (!ioport_allows(model, port - 1, 1) ||
				  !ioport_allows(model, port + 1, 1));
}

/**
 * ioport_agrees() - Try a port and compare with a model
 * @model:	The ports that the caller should have
 * @port:	The port to read from, unless it is enabled and must not be touched
 *
 * Return: false if the port is enabled, but should not be, or the reverse
 */
static inline bool ioport_agrees(const struct ioport_map *model,
				 unsigned int port)
{
	bool right = ioport_allows(model, port, 1);

	if (right && !ioport_may_read(model, port))
		return true;

	return ioport_inb(port) == right;
}

/**
 * ioport_compare() - Compare the ports of the caller with a model
 * @model:	The ports that the caller should have
 * @how:	IOPORT_BY_VIEW, IOPORT_BY_ACCESS or both. Only the latter shows
 *		the effect of iopl(3)
 * @why:	Where to write what is wrong, or an empty string
 * @len:	The size of @why
 *
 * Reads, byte by byte, all ports which have to be denied, and from those which
 * are enabled the few that may be touched. In threads which are on several
 * CPUs that is the TSS of the one that this thread is on.
 *
 * Return: the number of wrong ports, or a negative error number if the bitmap
 * cannot be seen
 */
static inline int ioport_compare(const struct ioport_map *model, int how,
				 char *why, size_t len)
{
	struct ioport_map seen;
	unsigned int port;
	int wrong = 0, ret;

	why[0] = '\0';

	if (how & IOPORT_BY_VIEW) {
		ret = ioport_view_self(&seen);
		if (ret && ret != -ENXIO) {
			snprintf(why, len, "bitmap not readable: %s",
				 strerror(-ret));
			return ret;
		}
		for (port = 0; port < IOPORT_NR; port++) {
			if (seen.deny[port / 8] == model->deny[port / 8] ||
			    ioport_allows(&seen, port, 1) ==
			    ioport_allows(model, port, 1))
				continue;
			if (!wrong++)
				snprintf(why, len, "port 0x%x is %s in the bitmap",
					 port, ioport_allows(&seen, port, 1) ?
					 "enabled" : "disabled");
		}
	}

	if (!(how & IOPORT_BY_ACCESS))
		return wrong;

	for (port = 0; port < IOPORT_NR; port++) {
		if (ioport_agrees(model, port))
			continue;
		if (!wrong++)
			snprintf(why, len, "inb from port 0x%x %s", port,
				 ioport_allows(model, port, 1) ?
				 "faulted" : "worked");
	}

	return wrong;
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

	if (syscall(SYS_capget, &head, data))
		return false;

	return data[0].effective & (1U << CAP_SYS_RAWIO);
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

/**
 * ioport_errno() - Try to enable a port in a child
 *
 * The caller is not changed.
 *
 * Return: 0, or the negative error number that ioperm() gives here
 */
static inline int ioport_errno(void)
{
	int status;
	pid_t pid;

	pid = fork();
	if (pid < 0)
		return -errno;
	if (!pid)
		_exit(ioperm(IOPORT_POST, 1, 1) ? errno : 0);
	if (ioport_wait(pid, &status) != pid || !WIFEXITED(status))
		return -EINTR;

	return -WEXITSTATUS(status);
}

/**
 * ioport_skip_reason() - Say why no port can be enabled
 *
 * Return: the reason for a SKIP, or NULL if ports can be enabled, or if that
 * fails in a way that is not for the environment to decide and thus is for the
 * test to find out
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

/*
 * Harness
 */

/* Waits may take that many times longer than usual */
static inline unsigned int ioport_slowness(void)
{
	const char *slow = getenv("KSFT_MACHINE_SLOW");

	return slow && !strcmp(slow, "yes") ? 5 : 1;
}

#ifdef __KSELFTEST_HARNESS_H

static inline void ioport_at_exit(void)
{
	if (!ksft_plan || (unsigned int)ksft_get_xskip_cnt() != ksft_plan)
		return;

	fflush(stdout);
	_exit(KSFT_SKIP);
}

/*
 * For main(), like TEST_HARNESS_MAIN does. With KSFT_MACHINE_SLOW=yes the tests
 * have more time, and a run in which each test was skipped exits with 4, like
 * a test that skips does, instead of 0.
 */
static inline int ioport_harness_run(int argc, char **argv)
{
	struct __fixture_metadata *f;
	struct __test_metadata *t;

	for (f = __fixture_list; f; f = f->next) {
		for (t = f->tests; t; t = t->next)
			t->timeout *= ioport_slowness();
	}

	atexit(ioport_at_exit);

	return test_harness_run(argc, argv);
}

#endif /* __KSELFTEST_HARNESS_H */

#endif /* __SELFTESTS_X86_IOPORT_HELPER_H */
