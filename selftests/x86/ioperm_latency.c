// SPDX-License-Identifier: GPL-2.0
/*
 * What I/O port permissions cost at a context switch.
 *
 * Two SCHED_FIFO tasks on one CPU hand it to each other with sched_yield().
 * The TSC is read around the call in one of them, so that one figure is the
 * price of two switches.  Which ports each task may use is what differs
 * between the cases: none, one bitmap shared through fork(), two bitmaps with
 * low or high port numbers, ports in some or all lines of the bitmap, what
 * real programs enable, all ports.  A second group of cases times ioperm()
 * itself, and getppid() with and without a bitmap, since every return to user
 * mode looks at it.
 *
 * It measures and reports.  No figure makes it fail: that depends on the
 * machine, and comparing is up to the caller.  A case fails when its figures
 * would mean something else than its name says:
 *
 *  - the two tasks did not alternate: a call that let the peer run not at all
 *    or more than once, or fewer switches counted by the kernel than calls
 *  - a task has a port that it should not have, or lacks one that it should
 *  - a task died, hung, was on another CPU, or a system call failed
 *
 * Whatever is missing to run a case (privilege, kernel support, a CPU) makes
 * it a skip that says so.  The program exits with KSFT_SKIP when there was
 * nothing but skips.
 *
 * Port 0x80, the POST code port, is the only one that is ever accessed.  All
 * others are merely enabled: nobody knows what is behind them on bare metal.
 * What was enabled is read back through ptrace(), which shows the bitmap of a
 * task without any access.  That covers ioperm(); iopl() leaves no trace
 * there, so that only port 0x80 is tried for it.
 */
#define _GNU_SOURCE
#include <cpuid.h>
#include <elf.h>
#include <errno.h>
#include <fcntl.h>
#include <fnmatch.h>
#include <getopt.h>
#include <sched.h>
#include <setjmp.h>
#include <signal.h>
#include <stdarg.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>
#include <linux/capability.h>
#include <sys/io.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/ptrace.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <sys/uio.h>
#include <sys/utsname.h>
#include <sys/wait.h>

#include "helpers.h"

#ifndef NT_386_IOPERM
#define NT_386_IOPERM	0x201
#endif

#define NR_PORTS	65536
#define BITMAP_BYTES	(NR_PORTS / 8)
#define LINE_PORTS	(64 * 8)
#define POST_PORT	0x80

#define MAX_CPUS	8192
#define MAX_ROUNDS	1000000
#define CHECK_ROUNDS	8

/**
 * struct range - ports in a row, perhaps one row after the other
 * @from:	the first port
 * @num:	how many there are, 0 for the end of a list
 * @stride:	how far it is to the next such row, NR_PORTS if there is none
 */
struct range {
	unsigned int from;
	unsigned int num;
	unsigned int stride;
};

/**
 * struct ports - the ports that a task may use
 * @range:	the ports; the last element ends the list
 * @iopl:	they come from iopl(3), not from ioperm()
 */
struct ports {
	struct range range[3];
	bool iopl;
};

#define ONCE(from, num)	{ from, num, NR_PORTS }

#define NONE		{}
#define ONE(p)		{ .range = { ONCE(p, 1) } }
#define TWO(p, q)	{ .range = { ONCE(p, 1), ONCE(q, 1) } }
#define RANGE(p, n)	{ .range = { ONCE(p, n) } }
#define RANGES(p, n, q, m) \
			{ .range = { ONCE(p, n), ONCE(q, m) } }
#define LINES(p, every)	{ .range = { { p, 1, (every) * LINE_PORTS } } }
#define ALL		RANGE(0, NR_PORTS)
#define IOPL		{ .range = { ONCE(0, NR_PORTS) }, .iopl = true }

enum case_kind {
	SWITCH_SHARED,
	SWITCH_PAIR,
	CALL_GETPPID,
	CALL_IOPERM,
};

/**
 * struct latency_case - one thing to measure
 * @name:	how it is reported; tools rely on it
 * @kind:	what is measured
 * @a:		switch: ports of the measuring task; call: ports before it
 * @b:		SWITCH_PAIR: ports of its peer; call: ports after it
 * @from:	CALL_IOPERM: the first port that the call is about
 * @num:	CALL_IOPERM: how many these are
 * @turn_on:	CALL_IOPERM: enable or drop it
 */
struct latency_case {
	const char *name;
	enum case_kind kind;
	struct ports a;
	struct ports b;
	unsigned int from;
	unsigned int num;
	int turn_on;
};

#define SHARED(_name, _ports) \
	{ .name = _name, .kind = SWITCH_SHARED, .a = _ports }
#define PAIR(_name, _a, _b) \
	{ .name = _name, .kind = SWITCH_PAIR, .a = _a, .b = _b }
#define SWEEP(_a, _b) \
	{ .name = "sweep-" #_a, .kind = SWITCH_PAIR, .a = ONE(_a), .b = ONE(_b) }
#define GETPPID(_name, _ports) \
	{ .name = _name, .kind = CALL_GETPPID, .a = _ports }
#define ENABLE(_name, _from, _num, _before, _after) \
	{ .name = _name, .kind = CALL_IOPERM, .a = _before, .b = _after, \
	  .from = _from, .num = _num, .turn_on = 1 }
#define DROP(_name, _port, _before, _after) \
	{ .name = _name, .kind = CALL_IOPERM, .a = _before, .b = _after, \
	  .from = _port, .num = 1, .turn_on = 0 }

static const struct latency_case cases[] = {
	/* The rows of 2004: at most one bitmap, inherited by the peer. */
	SHARED("none", NONE),
	SHARED("shared-0x80", ONE(0x80)),
	SHARED("shared-65535", ONE(65535)),

	/* Each task has called ioperm() itself, so there are two bitmaps. */
	PAIR("pair-0x80-none", ONE(0x80), NONE),
	PAIR("pair-0x80-0x81", ONE(0x80), ONE(0x81)),
	PAIR("pair-1024-1025", ONE(1024), ONE(1025)),
	PAIR("pair-0x80-65535", ONE(0x80), ONE(65535)),
	PAIR("pair-65534-65535", ONE(65534), ONE(65535)),
	PAIR("pair-every-line", LINES(0, 1), LINES(1, 1)),
	PAIR("pair-interleaved", LINES(0, 2), LINES(LINE_PORTS, 2)),
	PAIR("pair-eight-lines", LINES(0, 16), LINES(8 * LINE_PORTS, 16)),
	PAIR("pair-parallel-ports", RANGES(0x378, 3, 0xd800, 8),
	     RANGES(0x378, 3, 0xdc00, 8)),
	PAIR("pair-pciutils", RANGES(0xcf8, 8, 0xc000, 0xfff),
	     RANGES(0xcf8, 8, 0xc000, 0xfff)),
	PAIR("pair-all", ALL, ALL),
	PAIR("pair-all-but-one", RANGE(1, NR_PORTS - 1),
	     RANGES(0, 1, 2, NR_PORTS - 2)),
	PAIR("pair-iopl", IOPL, IOPL),

	/* Over the port numbers, on both sides of byte, long and line edges. */
	SWEEP(0, 1),
	SWEEP(31, 30),
	SWEEP(63, 62),
	SWEEP(64, 65),
	SWEEP(127, 126),
	SWEEP(511, 510),
	SWEEP(512, 513),
	SWEEP(1023, 1022),
	SWEEP(1024, 1025),
	SWEEP(2048, 2049),
	SWEEP(4096, 4097),
	SWEEP(8192, 8193),
	SWEEP(12288, 12289),
	SWEEP(16384, 16385),
	SWEEP(24576, 24577),
	SWEEP(32768, 32769),
	SWEEP(40960, 40961),
	SWEEP(49152, 49153),
	SWEEP(57344, 57345),
	SWEEP(65535, 65534),

	GETPPID("call-getppid-none", NONE),
	GETPPID("call-getppid-0x80", ONE(0x80)),
	ENABLE("call-ioperm-first", 0x80, 1, NONE, ONE(0x80)),
	ENABLE("call-ioperm-low-1k", 0, 0x400, NONE, RANGE(0, 0x400)),
	ENABLE("call-ioperm-all", 0, NR_PORTS, NONE, ALL),
	DROP("call-ioperm-last-drop", 0x80, ONE(0x80), NONE),
	ENABLE("call-ioperm-second-near", 0x81, 1, ONE(0x80), TWO(0x80, 0x81)),
	ENABLE("call-ioperm-second-far", 0xffff, 1, ONE(0x80), TWO(0x80, 0xffff)),
	DROP("call-ioperm-drop-near", 0x81, TWO(0x80, 0x81), ONE(0x80)),
	DROP("call-ioperm-drop-far", 0xffff, TWO(0x80, 0xffff), ONE(0x80)),
};

enum verdict {
	RUNNING,
	OK,
	SKIP,
	FAIL,
};

static const char * const verdict_names[] = {
	[OK]	= "ok",
	[SKIP]	= "skip",
	[FAIL]	= "fail",
};

struct result {
	enum verdict verdict;
	char reason[400];
	unsigned long rounds;
	unsigned long long min, p50, p99, max;
};

enum phase {
	PHASE_MEASURE,
	PHASE_CHECK,
	PHASE_STOP,
};

/**
 * struct shared - what the tasks of a case and the main program share
 * @turns:	how often the peer was handed the CPU
 * @phase:	what the peer does with it
 * @peer:	its pid, for when the measuring task cannot wait for it
 * @hung:	a watchdog ended the peer
 * @unread:	why the bitmap could not be read back, 0 if it could
 * @verdict:	of the case, the worst of what both tasks say
 * @reason:	for @verdict
 */
struct shared {
	unsigned int turns;
	enum phase phase;
	pid_t peer;
	bool hung;
	int unread;
	enum verdict verdict;
	char reason[400];
};

static struct result results[ARRAY_SIZE(cases)];
static bool selected[ARRAY_SIZE(cases)];
static struct shared *sh;

/* One TSC difference per round, shared as well. */
static unsigned long long *sample;

static unsigned long switch_rounds = 2000;
static unsigned long call_rounds = 1000;
static unsigned long warmup = 1000;
static const char *json_path;
static int cpu = -1;

/* Set once nothing further can be measured: the reason to skip the rest. */
static char skip_rest[100];

static bool is_switch(const struct latency_case *c)
{
	return c->kind == SWITCH_SHARED || c->kind == SWITCH_PAIR;
}

static const struct ports *second_ports(const struct latency_case *c)
{
	bool same = c->kind == SWITCH_SHARED || c->kind == CALL_GETPPID;

	return same ? &c->a : &c->b;
}

/* The bitmap as the kernel keeps it: a set bit denies the port. */
static void fill_bitmap(const struct ports *p, unsigned char *map)
{
	const struct range *r;
	unsigned int i, port;

	memset(map, 0xff, BITMAP_BYTES);

	for (r = p->range; r->num; r++) {
		for (i = r->from; i < NR_PORTS; i += r->stride) {
			for (port = i; port < i + r->num; port++)
				map[port / 8] &= ~(1 << port % 8);
		}
	}
}

static bool has_port(const struct ports *p, unsigned int port)
{
	unsigned char map[BITMAP_BYTES];

	fill_bitmap(p, map);

	return !(map[port / 8] & (1 << port % 8));
}

static int highest_port(const struct ports *p)
{
	unsigned char map[BITMAP_BYTES];
	int port;

	fill_bitmap(p, map);
	for (port = NR_PORTS - 1; port >= 0; port--) {
		if (!(map[port / 8] & (1 << port % 8)))
			break;
	}

	return port;
}

/*
 * Called by either task of a case.  One fault often brings others with it, in
 * both tasks: keep each that is new, and the worst verdict.
 */
static __printf(2, 3) void report(enum verdict verdict, const char *fmt, ...)
{
	size_t len = strlen(sh->reason);
	char text[200];
	va_list args;

	va_start(args, fmt);
	vsnprintf(text, sizeof(text), fmt, args);
	va_end(args);

	if (verdict > sh->verdict)
		sh->verdict = verdict;
	if (!strstr(sh->reason, text))
		snprintf(sh->reason + len, sizeof(sh->reason) - len, "%s%s",
			 len ? "; " : "", text);
}

static bool has_rawio(void)
{
	struct __user_cap_header_struct head = {
		.version = _LINUX_CAPABILITY_VERSION_3,
	};
	struct __user_cap_data_struct data[_LINUX_CAPABILITY_U32S_3] = {};

	if (syscall(SYS_capget, &head, data))
		return false;

	return data[0].effective & (1U << CAP_SYS_RAWIO);
}

static const char *why_eperm(void)
{
	char line[128] = "";
	FILE *file;

	if (!has_rawio())
		return "no CAP_SYS_RAWIO";

	file = fopen("/sys/kernel/security/lockdown", "r");
	if (file) {
		if (!fgets(line, sizeof(line), file))
			line[0] = '\0';
		fclose(file);
	}

	if (strstr(line, "[integrity]") || strstr(line, "[confidentiality]"))
		return "kernel lockdown";
	if (strstr(line, "[none]"))
		return "CAP_SYS_RAWIO held, no lockdown: user namespace, seccomp, LSM?";

	return "CAP_SYS_RAWIO held: lockdown, user namespace, seccomp, LSM?";
}

/*
 * The kernel takes or refuses all ports alike, so only a refusal of the very
 * first request says that the case cannot run.  Any later one is a failure.
 */
static void report_refusal(const char *call, bool first)
{
	if (first && errno == EPERM)
		report(SKIP, "%s refused: %s", call, why_eperm());
	else if (first && errno == ENOSYS)
		report(SKIP, "no %s: kernel without X86_IOPL_IOPERM", call);
	else
		report(FAIL, "%s: %s", call, strerror(errno));
}

static bool set_ports(const struct ports *p, bool first)
{
	const struct range *r;
	unsigned int i;

	if (p->iopl) {
		if (!iopl(3))
			return true;
		report_refusal("iopl()", first);
		return false;
	}

	for (r = p->range; r->num; r++) {
		for (i = r->from; i < NR_PORTS; i += r->stride) {
			if (ioperm(i, r->num, 1)) {
				report_refusal("ioperm()", first);
				return false;
			}
			first = false;
		}
	}

	return true;
}

static sigjmp_buf refused;

static void sigsegv(int sig __always_unused, siginfo_t *si __always_unused,
		    void *ctx __always_unused)
{
	siglongjmp(refused, 1);
}

static bool try_post_port(void)
{
	sethandler(SIGSEGV, sigsegv, SA_RESETHAND);
	if (sigsetjmp(refused, 1))
		return false;

	asm volatile ("outb %%al, %%dx"
		      : : "d" ((unsigned short)POST_PORT), "a" (0));
	clearhandler(SIGSEGV);

	return true;
}

static void check_post_port(const char *who, bool expected)
{
	if (try_post_port() != expected)
		report(FAIL, "%s %s port 0x80", who,
		       expected ? "cannot access its" : "can access foreign");
}

/* Children go with their parent, whatever ends it. */
static pid_t fork_bound(void)
{
	pid_t parent = getpid();
	pid_t pid;

	pid = fork();
	if (!pid) {
		prctl(PR_SET_PDEATHSIG, SIGKILL);
		if (getppid() != parent)
			_exit(KSFT_FAIL);
	}

	return pid;
}

/*
 * Only another task can read the regset.  A child shares the bitmap of the
 * caller until one of them changes it, so a stopped child shows what the
 * caller has.
 */
static void check_bitmap(const char *who, const struct ports *p)
{
	static unsigned char expected[BITMAP_BYTES], found[BITMAP_BYTES];
	struct iovec iov = { .iov_base = found, .iov_len = sizeof(found) };
	int err = 0, status, i;
	pid_t pid;

	pid = fork_bound();
	if (pid < 0) {
		sh->unread = errno;
		return;
	}
	if (!pid) {
		if (ptrace(PTRACE_TRACEME, 0, 0, 0))
			_exit(errno);
		raise(SIGSTOP);
		_exit(0);
	}

	if (waitpid(pid, &status, 0) != pid) {
		report(FAIL, "waitpid: %s", strerror(errno));
		return;
	}
	if (WIFEXITED(status)) {
		sh->unread = WEXITSTATUS(status);
		return;
	}

	memset(found, 0xff, sizeof(found));
	if (ptrace(PTRACE_GETREGSET, pid, NT_386_IOPERM, &iov))
		err = errno;
	kill(pid, SIGKILL);
	waitpid(pid, &status, 0);

	/* ENXIO: the task has no bitmap, which is how iopl() looks here, too */
	if (err && err != ENXIO) {
		sh->unread = err;
		return;
	}

	if (p->iopl)
		memset(expected, 0xff, sizeof(expected));
	else
		fill_bitmap(p, expected);

	for (i = 0; i < BITMAP_BYTES; i++) {
		if (expected[i] == found[i])
			continue;
		report(FAIL, "%s: ports %d to %d are 0x%02x in the bitmap, expected 0x%02x",
		       who, i * 8, i * 8 + 7, found[i], expected[i]);
		return;
	}
}

static void check_ports(const char *who, const struct ports *p)
{
	check_post_port(who, has_port(p, POST_PORT));
	check_bitmap(who, p);
}

static void check_cpu(const char *who)
{
	int now = sched_getcpu();

	if (now != cpu)
		report(FAIL, "%s ran on CPU %d instead of %d", who, now, cpu);
}

/*
 * Far more than a case takes, even on a slow emulator.  With the default
 * rounds, one case that hangs stays below the 45 seconds of the test runner.
 */
static unsigned int watchdog_seconds(void)
{
	return 10 + (switch_rounds + call_rounds + warmup) / 500;
}

static bool pin(void)
{
	static cpu_set_t mask[MAX_CPUS / CPU_SETSIZE];

	CPU_ZERO_S(sizeof(mask), mask);
	CPU_SET_S(cpu, sizeof(mask), mask);

	return !sched_setaffinity(0, sizeof(mask), mask);
}

/* The lowest priority: what the machine needs to go on comes first. */
static bool set_fifo(void)
{
	struct sched_param param = {
		.sched_priority = sched_get_priority_min(SCHED_FIFO),
	};

	return !sched_setscheduler(0, SCHED_FIFO, &param);
}

static inline unsigned long long read_tsc(void)
{
	unsigned int low, high;

	asm volatile ("lfence\n\t"
		      "rdtsc\n\t"
		      "lfence"
		      : "=a" (low), "=d" (high) : : "memory");

	return (unsigned long long)high << 32 | low;
}

/**
 * struct tally - rounds that did not go as they should
 * @lost:	the call did not let the peer run
 * @extra:	the peer ran more than once
 * @stuck:	the TSC did not advance
 * @failed:	the call returned something else than expected
 */
struct tally {
	unsigned long lost, extra, stuck, failed;
};

static void report_tally(const struct tally *t, unsigned long rounds)
{
	if (t->lost || t->extra)
		report(FAIL, "%lu of %lu calls without a turn of the peer, %lu with several",
		       t->lost, rounds, t->extra);
	if (t->failed)
		report(FAIL, "%lu of %lu calls failed", t->failed, rounds);
	if (t->stuck)
		report(FAIL, "the TSC did not advance in %lu of %lu calls",
		       t->stuck, rounds);
}

static unsigned int peer_turns(void)
{
	return __atomic_load_n(&sh->turns, __ATOMIC_RELAXED);
}

static void set_phase(enum phase phase)
{
	__atomic_store_n(&sh->phase, phase, __ATOMIC_RELAXED);
}

/*
 * The peer's counter shows that it had its turn, and only one.  The measuring
 * task looks at it outside the timed part.
 */
static void switch_loop(unsigned long rounds)
{
	unsigned long long start, end;
	struct tally tally = {};
	unsigned int turns;
	unsigned long i;
	int ret;

	for (i = 0; i < rounds; i++) {
		turns = peer_turns();
		start = read_tsc();
		ret = sched_yield();
		end = read_tsc();
		turns = peer_turns() - turns;
		sample[i] = end - start;

		tally.lost += turns == 0;
		tally.extra += turns > 1;
		tally.stuck += end <= start;
		tally.failed += ret != 0;
	}

	report_tally(&tally, rounds);
}

/*
 * An access right after the hand-over is what shows a TSS that still has the
 * ports of the other task.  Signals are slow and bring state of their own, so
 * this is kept apart from the measurement.
 */
static void check_loop(const struct ports *p)
{
	bool expected = has_port(p, POST_PORT);
	struct tally tally = {};
	unsigned int turns;
	int i;

	set_phase(PHASE_CHECK);
	for (i = 0; i < CHECK_ROUNDS; i++) {
		turns = peer_turns();
		sched_yield();
		turns = peer_turns() - turns;
		check_post_port("measuring task", expected);

		tally.lost += turns == 0;
		tally.extra += turns > 1;
	}

	report_tally(&tally, CHECK_ROUNDS);
}

static void run_peer(const struct latency_case *c, int from_a, int to_a)
{
	const struct ports *p = second_ports(c);
	bool expected = has_port(p, POST_PORT);
	unsigned int turns = 0;
	enum phase phase;
	char byte = 0;

	alarm(watchdog_seconds());
	mlockall(MCL_CURRENT);

	if (read(from_a, &byte, 1) != 1)
		_exit(KSFT_FAIL);
	if (c->kind == SWITCH_PAIR && !set_ports(p, false))
		_exit(KSFT_FAIL);
	if (write(to_a, &byte, 1) != 1)
		_exit(KSFT_FAIL);

	for (;;) {
		__atomic_store_n(&sh->turns, ++turns, __ATOMIC_RELAXED);
		phase = __atomic_load_n(&sh->phase, __ATOMIC_RELAXED);
		if (phase == PHASE_STOP)
			break;
		if (phase == PHASE_CHECK)
			check_post_port("peer", expected);
		sched_yield();
	}

	check_cpu("peer");
	check_ports("peer", p);
	_exit(KSFT_PASS);
}

static void report_signal(const char *who, int sig)
{
	if (sig == SIGALRM) {
		sh->hung = true;
		report(FAIL, "%s hung: ended by its watchdog after %u s", who,
		       watchdog_seconds());
	} else {
		report(FAIL, "%s killed by signal %d (%s)", who, sig,
		       strsignal(sig));
	}
}

static void run_switch(const struct latency_case *c)
{
	int to_peer[2], to_us[2], status;
	struct rusage before, after;
	long switches;
	char byte = 0;
	ssize_t got;
	pid_t peer;

	if (!set_fifo()) {
		report(errno == EPERM ? SKIP : FAIL, "SCHED_FIFO: %s%s",
		       strerror(errno), errno == EPERM ?
		       " (no CAP_SYS_NICE, RLIMIT_RTPRIO, no RT bandwidth?)" : "");
		return;
	}

	if (pipe(to_peer) || pipe(to_us)) {
		report(FAIL, "pipe: %s", strerror(errno));
		return;
	}

	if (c->kind == SWITCH_SHARED && !set_ports(&c->a, true))
		return;

	peer = fork_bound();
	if (peer < 0) {
		report(errno == EAGAIN ? SKIP : FAIL, "fork of the peer: %s",
		       strerror(errno));
		return;
	}
	if (!peer) {
		close(to_peer[1]);
		close(to_us[0]);
		run_peer(c, to_peer[0], to_us[1]);
	}
	sh->peer = peer;
	close(to_peer[0]);
	close(to_us[1]);

	/* After the fork, so that nothing is left to be copied on a write. */
	mlockall(MCL_CURRENT);

	if (c->kind == SWITCH_PAIR && !set_ports(&c->a, true)) {
		close(to_peer[1]);
		waitpid(peer, &status, 0);
		return;
	}

	/* The peer counts its first turn before it hands back the CPU. */
	got = write(to_peer[1], &byte, 1);
	if (got == 1)
		got = read(to_us[0], &byte, 1);

	if (got == 1) {
		switch_loop(warmup);
		getrusage(RUSAGE_SELF, &before);
		switch_loop(switch_rounds);
		getrusage(RUSAGE_SELF, &after);
		check_loop(&c->a);

		/* To the kernel a yield is an involuntary switch. */
		switches = after.ru_nivcsw - before.ru_nivcsw;
		if (switches < (long)switch_rounds)
			report(FAIL, "the kernel counted %ld switches in %lu calls",
			       switches, switch_rounds);
	}

	set_phase(PHASE_STOP);
	if (waitpid(peer, &status, 0) != peer)
		report(FAIL, "waitpid: %s", strerror(errno));
	else if (WIFSIGNALED(status))
		report_signal("peer", WTERMSIG(status));
	else if (WEXITSTATUS(status))
		report(FAIL, "peer gave up");
	else if (got != 1)
		report(FAIL, "peer did not start");

	check_cpu("measuring task");
	check_ports("measuring task", &c->a);
}

static bool undo_call(const struct latency_case *c)
{
	if (!ioperm(c->from, c->num, !c->turn_on))
		return true;

	report(FAIL, "ioperm(%#x, %u, %d): %s", c->from, c->num, !c->turn_on,
	       strerror(errno));

	return false;
}

/* Both calls are made through the C library, as programs make them. */
static inline int timed_call(const struct latency_case *c, pid_t parent,
			     unsigned long long *ticks)
{
	unsigned long long start, end;
	int ret;

	if (c->kind == CALL_IOPERM) {
		start = read_tsc();
		ret = ioperm(c->from, c->num, c->turn_on);
		end = read_tsc();
	} else {
		start = read_tsc();
		ret = getppid();
		end = read_tsc();
		ret = ret == parent ? 0 : -1;
	}
	*ticks = end - start;

	return ret;
}

static bool call_loop(const struct latency_case *c, unsigned long rounds)
{
	bool undo = c->kind == CALL_IOPERM;
	pid_t parent = getppid();
	struct tally tally = {};
	unsigned long i;

	for (i = 0; i < rounds; i++) {
		tally.failed += timed_call(c, parent, &sample[i]) != 0;
		tally.stuck += (long long)sample[i] <= 0;

		if (undo && !undo_call(c))
			return false;
	}

	report_tally(&tally, rounds);

	return true;
}

/*
 * How long the kernel looks for a free block of a few pages depends on which
 * sizes are free: it goes from the wanted size up, list by list. Leave many
 * free blocks of four pages, what an I/O bitmap of full size takes, so that
 * this does not differ from boot to boot. A pipe of the largest size has such
 * a block for its slots; every other one is closed, so that the blocks cannot
 * merge, and the rest is closed when the task exits. Where that is not to be
 * had, the figures may differ by a few instructions.
 */
static void leave_free_blocks(void)
{
	struct rlimit limit = { .rlim_cur = 8192, .rlim_max = 8192 };
	static int pipes[2000][2];
	int i, nr;

	setrlimit(RLIMIT_NOFILE, &limit);
	for (nr = 0; nr < (int)ARRAY_SIZE(pipes); nr++) {
		if (pipe(pipes[nr]))
			break;
		if (fcntl(pipes[nr][0], F_SETPIPE_SZ, 1 << 20) < 0)
			break;
	}
	for (i = 0; i < nr; i += 2) {
		close(pipes[i][0]);
		close(pipes[i][1]);
	}
}

static void run_call(const struct latency_case *c)
{
	unsigned long long ticks;

	/* One task needs no hand-over: FIFO only keeps others out. */
	if (c->kind == CALL_IOPERM)
		leave_free_blocks();
	set_fifo();
	mlockall(MCL_CURRENT);

	/* A task without ports shows in its first call if it may have some. */
	if (c->kind == CALL_IOPERM && highest_port(&c->a) < 0) {
		if (!set_ports(&c->b, true) || !undo_call(c))
			return;
	} else if (!set_ports(&c->a, true)) {
		return;
	}

	if (!call_loop(c, warmup) || !call_loop(c, call_rounds))
		return;
	check_cpu("task");

	/* Once more, to see that the call does what it says. */
	check_ports("task before the call", &c->a);
	errno = 0;
	if (timed_call(c, getppid(), &ticks))
		report(FAIL, "the call failed: %s", strerror(errno));
	check_ports("task after the call", second_ports(c));
}

static int compare(const void *a, const void *b)
{
	unsigned long long x = *(const unsigned long long *)a;
	unsigned long long y = *(const unsigned long long *)b;

	return x < y ? -1 : x > y;
}

/*
 * Percentiles are order statistics, not interpolated: of n sorted values the
 * p-th percentile is number ceil(p * n / 100), counted from one.
 */
static unsigned long long percentile(unsigned int p, unsigned long n)
{
	return sample[(p * (unsigned long long)n + 99) / 100 - 1];
}

static void summarize(struct result *res, unsigned long n)
{
	qsort(sample, n, sizeof(*sample), compare);

	res->rounds = n;
	res->min = sample[0];
	res->p50 = percentile(50, n);
	res->p99 = percentile(99, n);
	res->max = sample[n - 1];
}

static __printf(3, 4) void conclude(struct result *res, enum verdict verdict,
				    const char *fmt, ...)
{
	va_list args;

	va_start(args, fmt);
	vsnprintf(res->reason, sizeof(res->reason), fmt, args);
	va_end(args);
	res->verdict = verdict;
}

static void run_case(const struct latency_case *c, struct result *res)
{
	int status;
	pid_t pid;

	if (skip_rest[0]) {
		conclude(res, SKIP, "%s", skip_rest);
		return;
	}

	memset(sh, 0, sizeof(*sh));

	pid = fork_bound();
	if (pid < 0) {
		conclude(res, errno == EAGAIN ? SKIP : FAIL, "fork: %s",
			 strerror(errno));
		return;
	}
	if (!pid) {
		/* The peer's watchdog barks first: it may hold the CPU. */
		alarm(watchdog_seconds() + 2);
		if (!pin())
			report(FAIL, "sched_setaffinity to CPU %d: %s", cpu,
			       strerror(errno));
		else if (is_switch(c))
			run_switch(c);
		else
			run_call(c);
		if (sh->verdict == RUNNING)
			sh->verdict = OK;
		_exit(KSFT_PASS);
	}

	if (waitpid(pid, &status, 0) != pid) {
		conclude(res, FAIL, "waitpid: %s", strerror(errno));
		return;
	}
	/* An orphan comes to us and must be off the CPU before the next case. */
	if (sh->peer > 0)
		waitpid(sh->peer, NULL, 0);

	if (WIFSIGNALED(status))
		report_signal("measuring task", WTERMSIG(status));
	else if (WEXITSTATUS(status) || sh->verdict == RUNNING)
		report(FAIL, "measuring task gave up");
	if (sh->hung)
		snprintf(skip_rest, sizeof(skip_rest), "%s hung before",
			 c->name);

	if (sh->verdict != OK) {
		conclude(res, sh->verdict, "%s", sh->reason);
		return;
	}

	res->verdict = OK;
	summarize(res, is_switch(c) ? switch_rounds : call_rounds);
}

static void print_result(const struct latency_case *c, const struct result *res)
{
	switch (res->verdict) {
	case OK:
		ksft_print_msg("%s: min %llu p50 %llu p99 %llu max %llu\n",
			       c->name, res->min, res->p50, res->p99, res->max);
		ksft_test_result_pass("%s\n", c->name);
		break;
	case SKIP:
		ksft_test_result_code(KSFT_SKIP, c->name, "%s", res->reason);
		break;
	default:
		ksft_print_msg("%s: %s\n", c->name, res->reason);
		ksft_test_result_fail("%s\n", c->name);
		break;
	}
}

static void json_string(FILE *file, const char *s)
{
	putc('"', file);
	for (; *s; s++) {
		unsigned char ch = *s;

		if (ch == '"' || ch == '\\')
			fprintf(file, "\\%c", ch);
		else if (ch < 0x20 || ch >= 0x7f)
			fprintf(file, "\\u%04x", ch);
		else
			putc(ch, file);
	}
	putc('"', file);
}

static void json_port(FILE *file, int port)
{
	if (port < 0)
		fprintf(file, "null");
	else
		fprintf(file, "%d", port);
}

/*
 * The highest port of each of two tasks while they switch.  For a call it is
 * the highest that its only task has before or after.
 */
static void json_ports(FILE *file, const struct latency_case *c)
{
	int b = highest_port(second_ports(c));
	int a = highest_port(&c->a);

	if (!is_switch(c)) {
		a = a > b ? a : b;
		b = -1;
	}

	fprintf(file, "[");
	json_port(file, a);
	fprintf(file, ", ");
	json_port(file, b);
	fprintf(file, "]");
}

static void json_case(FILE *file, const struct latency_case *c,
		      const struct result *res)
{
	fprintf(file, "    {\"name\": ");
	json_string(file, c->name);
	fprintf(file, ", \"kind\": \"%s\", \"status\": \"%s\", \"reason\": ",
		is_switch(c) ? "switch" : "call", verdict_names[res->verdict]);
	if (res->verdict == OK)
		fprintf(file, "null");
	else
		json_string(file, res->reason);
	fprintf(file, ", \"highest_port\": ");
	json_ports(file, c);
	fprintf(file, ", \"rounds\": %lu, ", res->rounds);
	if (res->verdict == OK)
		fprintf(file, "\"min\": %llu, \"p50\": %llu, \"p99\": %llu, \"max\": %llu}",
			res->min, res->p50, res->p99, res->max);
	else
		fprintf(file, "\"min\": null, \"p50\": null, \"p99\": null, \"max\": null}");
}

static void json_all(FILE *file)
{
	struct utsname uts = {};
	bool first = true;
	unsigned int i;

	uname(&uts);
	fprintf(file, "{\n  \"benchmark\": \"ioperm_latency\",\n  \"version\": 1,\n");
	fprintf(file, "  \"unit\": \"tsc\",\n  \"bits\": %zu,\n  \"kernel\": ",
		sizeof(long) * 8);
	json_string(file, uts.release);
	fprintf(file, ",\n  \"cpu\": %d,\n  \"rounds\": %lu,\n  \"warmup\": %lu,\n",
		cpu, switch_rounds, warmup);
	fprintf(file, "  \"cases\": [\n");
	for (i = 0; i < ARRAY_SIZE(cases); i++) {
		if (!selected[i])
			continue;
		if (!first)
			fprintf(file, ",\n");
		first = false;
		json_case(file, &cases[i], &results[i]);
	}
	fprintf(file, "\n  ]\n}\n");
}

/* Beside the final name, so that the rename() stays in one file system. */
static int json_temp(char *name, size_t size)
{
	int len = snprintf(name, size, "%s.XXXXXX", json_path);

	if (len < 0 || (size_t)len >= size) {
		errno = ENAMETOOLONG;
		return -1;
	}

	return mkstemp(name);
}

/* Find out before the measurement, not after it. */
static bool json_possible(void)
{
	struct stat st;
	char name[4096];
	int fd;

	if (!lstat(json_path, &st) && !S_ISREG(st.st_mode)) {
		fprintf(stderr, "%s: not a regular file\n", json_path);
		return false;
	}

	fd = json_temp(name, sizeof(name));
	if (fd < 0) {
		fprintf(stderr, "%s: %s\n", json_path, strerror(errno));
		return false;
	}
	close(fd);
	unlink(name);

	return true;
}

static bool json_write(void)
{
	mode_t mask = umask(0);
	sigset_t all, old;
	char name[4096];
	FILE *file;
	bool good;
	int fd;

	umask(mask);

	/* A signal must not leave the temporary file behind. */
	sigfillset(&all);
	sigprocmask(SIG_BLOCK, &all, &old);

	fd = json_temp(name, sizeof(name));
	good = fd >= 0;
	if (good) {
		file = fdopen(fd, "w");
		good = file && !fchmod(fd, 0666 & ~mask);
		if (good)
			json_all(file);
		good = good && !ferror(file);
		if (file ? fclose(file) : close(fd))
			good = false;
		good = good && !rename(name, json_path);
	}
	if (!good) {
		fprintf(stderr, "%s: %s\n", json_path, strerror(errno));
		if (fd >= 0)
			unlink(name);
	}

	sigprocmask(SIG_SETMASK, &old, NULL);

	return good;
}

/* Whatever was inherited must not keep a fault or a watchdog from arriving. */
static void reset_signals(void)
{
	sigset_t none;

	sigemptyset(&none);
	sigprocmask(SIG_SETMASK, &none, NULL);
	signal(SIGALRM, SIG_DFL);
	signal(SIGCHLD, SIG_DFL);
	signal(SIGPIPE, SIG_IGN);
}

static void choose_cpu(void)
{
	static cpu_set_t mask[MAX_CPUS / CPU_SETSIZE];
	int i;

	if (sched_getaffinity(0, sizeof(mask), mask)) {
		snprintf(skip_rest, sizeof(skip_rest), "sched_getaffinity: %s",
			 strerror(errno));
		return;
	}

	for (i = 0; cpu < 0 && i < MAX_CPUS; i++) {
		if (CPU_ISSET_S(i, sizeof(mask), mask))
			cpu = i;
	}

	if (cpu < 0 || !CPU_ISSET_S(cpu, sizeof(mask), mask))
		snprintf(skip_rest, sizeof(skip_rest),
			 "CPU %d is not in the affinity mask", cpu);
}

static void require_tsc(void)
{
	unsigned int eax, ebx, ecx, edx;
	int mode;

	if (!__get_cpuid(1, &eax, &ebx, &ecx, &edx) ||
	    !(edx & bit_SSE2) || !(edx & (1 << 4)))
		snprintf(skip_rest, sizeof(skip_rest), "no TSC or no LFENCE");
	else if (!prctl(PR_GET_TSC, &mode) && mode == PR_TSC_SIGSEGV)
		snprintf(skip_rest, sizeof(skip_rest),
			 "PR_SET_TSC forbids to read the TSC");
}

static void usage(const char *name)
{
	printf("Usage: %s [OPTION]...\n"
	       "Measure what I/O port permissions cost at a context switch.\n\n"
	       "  --rounds N   measured rounds of each case, 1 to %d\n"
	       "               (default %lu for switches, %lu for calls)\n"
	       "  --warmup N   rounds before them, 0 to %d (default %lu)\n"
	       "  --cpu N      the CPU (default: first of the affinity mask)\n"
	       "  --case NAME  only this case; repeatable, * ? [] match\n"
	       "  --json FILE  write the results to FILE as well\n"
	       "  --list       print the names of the cases and exit\n"
	       "  --help       print this and exit\n\n"
	       "Figures are TSC counts of one call.  KSFT_MACHINE_SLOW=yes in the\n"
	       "environment divides the default rounds by four.\n\n"
	       "Exit status: %d measured, perhaps with some cases skipped; %d a case\n"
	       "failed or a wrong option; %d all cases were skipped.\n",
	       name, MAX_ROUNDS, switch_rounds, call_rounds, MAX_ROUNDS, warmup,
	       KSFT_PASS, KSFT_FAIL, KSFT_SKIP);
}

static __noreturn __printf(1, 2) void usage_error(const char *fmt, ...)
{
	va_list args;

	va_start(args, fmt);
	vfprintf(stderr, fmt, args);
	va_end(args);
	fputc('\n', stderr);

	/* Not the usual 2, which a test runner reads as an expected failure. */
	exit(KSFT_FAIL);
}

static unsigned long parse_number(const char *option, const char *text,
				  unsigned long min, unsigned long max)
{
	unsigned long value;
	char *end;

	errno = 0;
	value = strtoul(text, &end, 10);
	if (*text < '0' || *text > '9' || *end || errno || value < min ||
	    value > max)
		usage_error("--%s %s: not a number from %lu to %lu", option,
			    text, min, max);

	return value;
}

static void select_cases(const char *pattern)
{
	bool found = false;
	unsigned int i;

	for (i = 0; i < ARRAY_SIZE(cases); i++) {
		if (!fnmatch(pattern, cases[i].name, 0)) {
			selected[i] = true;
			found = true;
		}
	}

	if (!found)
		usage_error("--case %s: no such case, see --list", pattern);
}

static void parse_options(int argc, char **argv)
{
	static const struct option options[] = {
		{ "rounds", required_argument, NULL, 'r' },
		{ "warmup", required_argument, NULL, 'w' },
		{ "cpu", required_argument, NULL, 'c' },
		{ "case", required_argument, NULL, 'n' },
		{ "json", required_argument, NULL, 'j' },
		{ "list", no_argument, NULL, 'l' },
		{ "help", no_argument, NULL, 'h' },
		{}
	};
	const char *slow = getenv("KSFT_MACHINE_SLOW");
	bool any = false, list = false;
	unsigned int i;
	int opt;

	if (slow && !strcmp(slow, "yes")) {
		switch_rounds /= 4;
		call_rounds /= 4;
		warmup /= 4;
	}

	while ((opt = getopt_long(argc, argv, "", options, NULL)) != -1) {
		switch (opt) {
		case 'r':
			switch_rounds = parse_number("rounds", optarg, 1,
						     MAX_ROUNDS);
			call_rounds = switch_rounds;
			break;
		case 'w':
			warmup = parse_number("warmup", optarg, 0, MAX_ROUNDS);
			break;
		case 'c':
			cpu = parse_number("cpu", optarg, 0, MAX_CPUS - 1);
			break;
		case 'n':
			select_cases(optarg);
			any = true;
			break;
		case 'j':
			json_path = optarg;
			break;
		case 'l':
			list = true;
			break;
		case 'h':
			usage(argv[0]);
			exit(KSFT_PASS);
		default:
			exit(KSFT_FAIL);
		}
	}
	if (optind < argc)
		usage_error("%s: unexpected argument, see --help", argv[optind]);

	for (i = 0; i < ARRAY_SIZE(cases); i++) {
		selected[i] = selected[i] || !any;
		if (list && selected[i])
			puts(cases[i].name);
	}
	if (list)
		exit(KSFT_PASS);
}

static void *map_shared(size_t size)
{
	void *mem;

	mem = mmap(NULL, size, PROT_READ | PROT_WRITE,
		   MAP_SHARED | MAP_ANONYMOUS | MAP_POPULATE, -1, 0);
	if (mem == MAP_FAILED)
		ksft_exit_fail_perror("mmap");

	return mem;
}

static unsigned long most_rounds(void)
{
	unsigned long n = switch_rounds > call_rounds ? switch_rounds : call_rounds;

	return n > warmup ? n : warmup;
}

int main(int argc, char **argv)
{
	unsigned int i, plan = 0;
	bool unread = false;

	parse_options(argc, argv);
	if (json_path && !json_possible())
		exit(KSFT_FAIL);

	reset_signals();
	require_tsc();
	choose_cpu();

	ksft_print_header();
	for (i = 0; i < ARRAY_SIZE(cases); i++)
		plan += selected[i];
	ksft_set_plan(plan);

	sh = map_shared(sizeof(*sh));
	sample = map_shared(most_rounds() * sizeof(*sample));
	prctl(PR_SET_CHILD_SUBREAPER, 1);
	ksft_print_msg("CPU %d, %lu rounds (calls: %lu), %lu to warm up, TSC counts per call\n",
		       cpu, switch_rounds, call_rounds, warmup);

	for (i = 0; i < ARRAY_SIZE(cases); i++) {
		if (!selected[i])
			continue;
		run_case(&cases[i], &results[i]);
		print_result(&cases[i], &results[i]);
		if (sh->unread && !unread) {
			ksft_print_msg("bitmaps not read back (%s): only port 0x80 was checked\n",
				       strerror(sh->unread));
			unread = true;
		}
	}

	if (json_path && !json_write())
		exit(KSFT_FAIL);

	/* ksft_finished() takes a run of nothing but skips for a pass. */
	if ((unsigned int)ksft_get_xskip_cnt() == plan) {
		ksft_print_cnts();
		exit(KSFT_SKIP);
	}

	ksft_finished();
}
