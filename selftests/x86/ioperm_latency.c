// SPDX-License-Identifier: GPL-2.0
/*
 * What I/O port permissions cost at a context switch.
 *
 * Two SCHED_FIFO tasks on one CPU hand it to each other with sched_yield().
 * The TSC is read around the call in one of them, the measuring task, so a
 * figure is the price of two switches. The cases differ in the ports that the
 * two tasks may use. Other cases time ioperm() itself, and getppid() with and
 * without a bitmap, as each return to user mode may have to look at that.
 *
 * It measures and reports. No figure makes it fail: that depends on the
 * machine. A case fails when its figures would not mean what its name says:
 *
 *  - The tasks did not alternate: a call let the peer run not at all or more
 *    than once, or the kernel counted fewer switches than calls.
 *  - A task has a port that it should not have, or lacks one.
 *  - A task died, hung or ran on another CPU, or a system call failed.
 *
 * What is missing to run a case makes it a skip that says why. If all cases
 * are skipped, the exit status is KSFT_SKIP.
 *
 * Port 0x80 is the only one that is accessed. All others are merely enabled,
 * and looked at in the regset. iopl() does not show there, so that only port
 * 0x80 tells whether it worked.
 */
#define _GNU_SOURCE
#include <fcntl.h>
#include <fnmatch.h>
#include <getopt.h>
#include <stdarg.h>
#include <sys/mman.h>
#include <sys/resource.h>

#include "ioport_helper.h"

#define MAX_ROUNDS	1000000
#define CHECK_ROUNDS	8

/**
 * struct range - ports in a row, perhaps one row after the other
 * @from:	the first port
 * @num:	how many ports a row has, 0 for the end of a list
 * @stride:	from the start of a row to that of the next, IOPORT_NR if there
 *		is only one row
 */
struct range {
	unsigned int from;
	unsigned int num;
	unsigned int stride;
};

/**
 * struct ports - the ports that a task may use
 * @range:	given to ioperm(), sorted; the last element ends the list
 * @iopl:	all ports, by iopl(3)
 */
struct ports {
	struct range range[3];
	bool iopl;
};

#define ROW(from, num)	{ from, num, IOPORT_NR }

#define NONE		{}
#define ONE(p)		{ .range = { ROW(p, 1) } }
#define RANGE(p, n)	{ .range = { ROW(p, n) } }
#define RANGES(p, n, q, m) \
			{ .range = { ROW(p, n), ROW(q, m) } }
#define LINES(p, every)	{ .range = { { p, 1, (every) * IOPORT_LINE } } }
#define ALL		RANGE(0, IOPORT_NR)
#define IOPL		{ .iopl = true }

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
 * @a:		ports of the measuring task, before the call if that is measured
 * @b:		switch: ports of its peer
 * @from:	CALL_IOPERM: the first port of the call
 * @num:	CALL_IOPERM: how many ports
 * @turn_on:	CALL_IOPERM: enable or disable them
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

#define SHARED(_name, _a, _b) \
	{ .name = _name, .kind = SWITCH_SHARED, .a = _a, .b = _b }
#define PAIR(_name, _a, _b) \
	{ .name = _name, .kind = SWITCH_PAIR, .a = _a, .b = _b }
#define SWEEP(_a, _b) \
	{ .name = "sweep-" #_a, .kind = SWITCH_PAIR, .a = ONE(_a), .b = ONE(_b) }
#define GETPPID(_name, _ports) \
	{ .name = _name, .kind = CALL_GETPPID, .a = _ports }
#define IOPERM(_name, _before, _from, _num, _turn_on) \
	{ .name = _name, .kind = CALL_IOPERM, .a = _before, \
	  .from = _from, .num = _num, .turn_on = _turn_on }

static const struct latency_case cases[] = {
	/* The rows of 2004: at most one bitmap, inherited by the peer */
	SHARED("none", NONE, NONE),
	SHARED("shared-0x80", ONE(0x80), ONE(0x80)),
	SHARED("shared-65535", ONE(65535), ONE(65535)),

	/* Each task has called ioperm() itself, so there are two bitmaps */
	PAIR("pair-0x80-none", ONE(0x80), NONE),
	PAIR("pair-0x80-0x81", ONE(0x80), ONE(0x81)),
	PAIR("pair-1024-1025", ONE(1024), ONE(1025)),
	PAIR("pair-0x80-65535", ONE(0x80), ONE(65535)),
	PAIR("pair-65534-65535", ONE(65534), ONE(65535)),
	PAIR("pair-every-line", LINES(0, 1), LINES(1, 1)),
	PAIR("pair-interleaved", LINES(0, 2), LINES(IOPORT_LINE, 2)),
	PAIR("pair-eight-lines", LINES(0, 16), LINES(8 * IOPORT_LINE, 16)),
	PAIR("pair-parallel-ports", RANGES(0x378, 3, 0xd800, 8),
	     RANGES(0x378, 3, 0xdc00, 8)),
	PAIR("pair-pciutils", RANGES(0xcf8, 8, 0xc000, 0xfff),
	     RANGES(0xcf8, 8, 0xc000, 0xfff)),
	PAIR("pair-all", ALL, ALL),
	PAIR("pair-all-but-one", RANGE(1, IOPORT_NR - 1),
	     RANGES(0, 1, 2, IOPORT_NR - 2)),
	PAIR("pair-iopl", IOPL, IOPL),

	/* Over the port numbers, on both sides of byte, long and line edges */
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
	IOPERM("call-ioperm-first", NONE, 0x80, 1, 1),
	IOPERM("call-ioperm-low-1k", NONE, 0, 0x400, 1),
	IOPERM("call-ioperm-all", NONE, 0, IOPORT_NR, 1),
	IOPERM("call-ioperm-last-drop", ONE(0x80), 0x80, 1, 0),
	IOPERM("call-ioperm-second-near", ONE(0x80), 0x81, 1, 1),
	IOPERM("call-ioperm-second-far", ONE(0x80), 0xffff, 1, 1),
	IOPERM("call-ioperm-drop-near", RANGES(0x80, 1, 0x81, 1), 0x81, 1, 0),
	IOPERM("call-ioperm-drop-far", RANGES(0x80, 1, 0xffff, 1), 0xffff, 1, 0),
};

/* The worse comes later. */
enum verdict { OK, SKIP, FAIL };

static const char * const verdict_names[] = { "ok", "skip", "fail" };

struct result {
	enum verdict verdict;
	char reason[200];
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
 * @phase:	what the peer does with it, an enum phase
 * @hung:	a task was ended by its alarm
 * @results:	of all cases
 * @sample:	the TSC ticks of each round
 */
struct shared {
	unsigned int turns;
	unsigned int phase;
	bool hung;
	struct result results[ARRAY_SIZE(cases)];
	unsigned long long sample[];
};

static struct shared *sh;

/* Of the case that runs */
static struct result *result;

/* What the calling task may use */
static struct ioport_map ports;
static bool has_post_port;

static bool selected[ARRAY_SIZE(cases)];
static unsigned long switch_rounds = 2000;
static unsigned long call_rounds = 1000;
static unsigned long warmup = 1000;
static const char *json_path;
static int cpu = -1;

/* Why ports cannot be enabled, or why nothing can be measured */
static const char *no_ports;
static const char *skip_all;

static bool is_switch(const struct latency_case *c)
{
	return c->kind == SWITCH_SHARED || c->kind == SWITCH_PAIR;
}

static unsigned long rounds_of(const struct latency_case *c)
{
	return is_switch(c) ? switch_rounds : call_rounds;
}

/*
 * Called by any task of a case. The result has the first of the worst; all
 * failures are printed.
 */
static __printf(2, 3) void report(enum verdict verdict, const char *fmt, ...)
{
	char text[sizeof(result->reason)];
	va_list args;

	va_start(args, fmt);
	vsnprintf(text, sizeof(text), fmt, args);
	va_end(args);

	if (verdict == FAIL)
		ksft_print_msg("%s\n", text);
	if (verdict > result->verdict) {
		result->verdict = verdict;
		memcpy(result->reason, text, sizeof(text));
	}
}

/* Enable the ports of a task that has none */
static void set_ports(const struct ports *p)
{
	const struct range *r;
	unsigned int from;

	if (p->iopl && iopl(3))
		report(FAIL, "iopl(3): %s", strerror(errno));

	ioport_clear_all(&ports);
	for (r = p->range; r->num; r++) {
		for (from = r->from; from < IOPORT_NR; from += r->stride) {
			if (ioperm(from, r->num, 1)) {
				report(FAIL, "ioperm(%#x, %u, 1): %s", from,
				       r->num, strerror(errno));
				return;
			}
			ioport_set(&ports, from, r->num, true);
		}
	}
	has_post_port = p->iopl || ioport_allows(&ports, IOPORT_POST, 1);
}

static bool post_port_is_wrong(void)
{
	return ioport_inb(IOPORT_POST) != has_post_port;
}

static void report_post_port(const char *who, bool wrong)
{
	if (wrong)
		report(FAIL, "%s: access to port 0x80 was %s", who,
		       has_post_port ? "denied" : "permitted");
}

/* Does the calling task have the ports, and the CPU, that it should have? */
static void check_task(const char *who)
{
	static struct ioport_map found;
	unsigned int port;
	int ret;

	if (sched_getcpu() != cpu)
		report(FAIL, "%s did not stay on CPU %d", who, cpu);

	report_post_port(who, post_port_is_wrong());

	/* -ENXIO: there is no bitmap */
	ret = ioport_view_self(&found);
	if (ret && ret != -ENXIO) {
		/* A kernel without ioperm() has no such regset. */
		if (!no_ports)
			report(SKIP, "cannot read the bitmap: %s",
			       strerror(-ret));
		return;
	}

	port = ioport_differs(&found, &ports);
	if (port < IOPORT_NR)
		report(FAIL, "%s: port %#x is %s in the bitmap", who, port,
		       ioport_allows(&found, port, 1) ? "enabled" : "disabled");
}

/* Far more than a case takes, even on a slow emulator */
static unsigned int watchdog_seconds(void)
{
	return 30 + (switch_rounds + call_rounds + warmup) / 500;
}

static void wait_for(pid_t pid, const char *who)
{
	int status;

	if (ioport_wait(pid, &status) != pid) {
		report(FAIL, "waitpid: %s", strerror(errno));
	} else if (WIFSIGNALED(status) && WTERMSIG(status) == SIGALRM) {
		sh->hung = true;
		report(FAIL, "%s hung and was ended by its alarm", who);
	} else if (WIFSIGNALED(status)) {
		report(FAIL, "%s was killed by signal %d", who,
		       WTERMSIG(status));
	} else if (WEXITSTATUS(status)) {
		report(FAIL, "%s gave up", who);
	}
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

/* Calls are made through the C library, as programs make them. */
static inline int timed_call(const struct latency_case *c,
			     unsigned long long *ticks)
{
	unsigned long long start, end;
	int ret;

	if (is_switch(c)) {
		start = read_tsc();
		ret = sched_yield();
		end = read_tsc();
	} else if (c->kind == CALL_IOPERM) {
		start = read_tsc();
		ret = ioperm(c->from, c->num, c->turn_on);
		end = read_tsc();
	} else {
		start = read_tsc();
		ret = getppid();
		end = read_tsc();
		ret = ret == ioport_parent ? 0 : -1;
	}
	*ticks = end - start;

	return ret;
}

/*
 * The peer's counter shows that it had its turn, and only one.
 *
 * An access right after a switch tells whether the TSS still has the ports of
 * the other task. A fault is slow, so this is a phase of its own.
 */
static void run_rounds(const struct latency_case *c, unsigned long rounds,
		       enum phase phase)
{
	unsigned long i, lost = 0, extra = 0, stuck = 0, failed = 0;
	bool wrong = false;
	unsigned int turns;
	int ret;

	__atomic_store_n(&sh->phase, phase, __ATOMIC_RELAXED);
	errno = 0;

	for (i = 0; i < rounds; i++) {
		turns = __atomic_load_n(&sh->turns, __ATOMIC_RELAXED);
		ret = timed_call(c, &sh->sample[i]);
		turns = __atomic_load_n(&sh->turns, __ATOMIC_RELAXED) - turns;

		lost += is_switch(c) && !turns;
		extra += turns > 1;
		stuck += (long long)sh->sample[i] <= 0;
		failed += ret != 0;

		if (phase == PHASE_CHECK)
			wrong |= post_port_is_wrong();
		/* Undo it for the next round */
		if (c->kind == CALL_IOPERM)
			failed += ioperm(c->from, c->num, !c->turn_on) != 0;
	}

	if (failed)
		report(FAIL, "%lu calls gave a wrong result, errno: %s", failed,
		       strerror(errno));
	if (lost || extra)
		report(FAIL, "%lu of %lu calls without a turn of the peer, %lu with several",
		       lost, rounds, extra);
	if (stuck)
		report(FAIL, "the TSC did not advance in %lu of %lu calls",
		       stuck, rounds);
	report_post_port("measuring task", wrong);
}

static int compare(const void *a, const void *b)
{
	const unsigned long long *x = a, *y = b;

	return (*x > *y) - (*x < *y);
}

/*
 * Percentiles are not interpolated: of n sorted values the p-th percentile is
 * number ceil(p * n / 100), counted from one.
 */
static void summarize(unsigned long long n)
{
	qsort(sh->sample, n, sizeof(sh->sample[0]), compare);

	result->min = sh->sample[0];
	result->p50 = sh->sample[(50 * n + 99) / 100 - 1];
	result->p99 = sh->sample[(99 * n + 99) / 100 - 1];
	result->max = sh->sample[n - 1];
}

static __noreturn void run_peer(const struct latency_case *c)
{
	unsigned int phase, turns = 0;
	bool wrong = false;

	/* Before the other alarm, as that task may not get the CPU */
	alarm(watchdog_seconds());
	mlockall(MCL_CURRENT);

	if (c->kind == SWITCH_PAIR)
		set_ports(&c->b);

	for (;;) {
		__atomic_store_n(&sh->turns, ++turns, __ATOMIC_RELAXED);
		phase = __atomic_load_n(&sh->phase, __ATOMIC_RELAXED);
		if (phase == PHASE_STOP)
			break;
		if (phase == PHASE_CHECK)
			wrong |= post_port_is_wrong();
		sched_yield();
	}

	report_post_port("peer", wrong);
	check_task("peer");
	_exit(KSFT_PASS);
}

/*
 * How long the kernel looks for a few free pages depends on the sizes of its
 * free blocks. Leave many blocks of four pages, what a full I/O bitmap takes,
 * so that the figures do not differ from boot to boot. A pipe of the largest
 * size has such a block for its slots. Every other one is closed, so that the
 * blocks cannot merge, the rest when the task exits.
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

static void measure(const struct latency_case *c)
{
	/* The lowest priority: what the machine needs to go on comes first */
	struct sched_param param = { .sched_priority = 1 };
	struct rusage before, after;
	unsigned long long ticks;
	pid_t peer = 0;

	if (c->kind == CALL_IOPERM)
		leave_free_blocks();

	/* If there is only one task, this merely keeps others out. */
	if (sched_setscheduler(0, SCHED_FIFO, &param) && is_switch(c)) {
		report(SKIP, "SCHED_FIFO: %s", strerror(errno));
		return;
	}

	if (c->kind == SWITCH_SHARED)
		set_ports(&c->a);

	if (is_switch(c)) {
		peer = ioport_fork();
		if (peer < 0) {
			report(SKIP, "fork: %s", strerror(errno));
			return;
		}
		if (!peer)
			run_peer(c);
	}

	/* After the fork, so that nothing is left to be copied on a write */
	mlockall(MCL_CURRENT);

	if (c->kind != SWITCH_SHARED)
		set_ports(&c->a);

	while (is_switch(c) && !__atomic_load_n(&sh->turns, __ATOMIC_RELAXED))
		sched_yield();

	run_rounds(c, warmup, PHASE_MEASURE);
	getrusage(RUSAGE_SELF, &before);
	run_rounds(c, rounds_of(c), PHASE_MEASURE);
	getrusage(RUSAGE_SELF, &after);
	summarize(rounds_of(c));

	if (is_switch(c)) {
		/* To the kernel a yield is an involuntary switch. */
		after.ru_nivcsw -= before.ru_nivcsw;
		if (after.ru_nivcsw < (long)switch_rounds)
			report(FAIL, "the kernel counted %ld switches in %lu calls",
			       after.ru_nivcsw, switch_rounds);
		run_rounds(c, CHECK_ROUNDS, PHASE_CHECK);
		__atomic_store_n(&sh->phase, PHASE_STOP, __ATOMIC_RELAXED);
		wait_for(peer, "peer");
		check_task("measuring task");
		return;
	}

	/* Once more, to see that the call does what it says */
	check_task("task before the call");
	errno = 0;
	if (timed_call(c, &ticks))
		report(FAIL, "the call gave a wrong result, errno: %s",
		       strerror(errno));
	if (c->kind == CALL_IOPERM)
		ioport_set(&ports, c->from, c->num, c->turn_on);
	has_post_port = ioport_allows(&ports, IOPORT_POST, 1);
	check_task("task after the call");
}

static void run_case(const struct latency_case *c)
{
	const char *skip = skip_all;
	pid_t pid;

	if (!skip &&
	    (c->kind == CALL_IOPERM || c->a.iopl || c->a.range[0].num))
		skip = no_ports;
	if (skip) {
		report(SKIP, "%s", skip);
		return;
	}

	sh->turns = 0;
	sh->phase = PHASE_MEASURE;

	pid = ioport_fork();
	if (pid < 0) {
		report(SKIP, "fork: %s", strerror(errno));
		return;
	}
	if (!pid) {
		alarm(watchdog_seconds() + 2);
		measure(c);
		_exit(KSFT_PASS);
	}

	wait_for(pid, "measuring task");
	if (sh->hung)
		skip_all = "a case hung before";
}

static void print_result(const struct latency_case *c)
{
	if (result->verdict == SKIP) {
		ksft_test_result_code(KSFT_SKIP, c->name, "%s", result->reason);
		return;
	}
	if (result->verdict == OK)
		ksft_print_msg("%s: min %llu p50 %llu p99 %llu max %llu\n",
			       c->name, result->min, result->p50, result->p99,
			       result->max);
	ksft_test_result(result->verdict == OK, "%s\n", c->name);
}

/* Of those enabled by ioperm(), -1 if there are none */
static int highest_port(const struct ports *p)
{
	const struct range *r;
	int port = -1;

	for (r = p->range; r->num; r++) {
		port = r->from + r->num - 1;
		port += (IOPORT_NR - 1 - r->from) / r->stride * r->stride;
	}

	return port;
}

/* None of the strings has anything to escape. */
static void json_case(FILE *file, const struct latency_case *c,
		      const struct result *res)
{
	int a = highest_port(&c->a), b = highest_port(&c->b);

	fprintf(file, "{\"name\": \"%s\", \"kind\": \"%s\", \"status\": \"%s\"",
		c->name, is_switch(c) ? "switch" : "call",
		verdict_names[res->verdict]);
	if (a >= 0 && b >= 0)
		fprintf(file, ", \"highest_port\": [%d, %d]", a, b);
	if (res->verdict != OK) {
		fprintf(file, ", \"reason\": \"%s\"}", res->reason);
		return;
	}
	fprintf(file, ", \"rounds\": %lu, \"min\": %llu, \"p50\": %llu",
		rounds_of(c), res->min, res->p50);
	fprintf(file, ", \"p99\": %llu, \"max\": %llu}", res->p99, res->max);
}

static void write_json(FILE *file)
{
	const char *start = "{\"benchmark\": \"ioperm_latency\", \"unit\": \"tsc\", \"cases\": [";
	unsigned int i;

	for (i = 0; i < ARRAY_SIZE(cases); i++) {
		if (!selected[i])
			continue;
		fprintf(file, "%s\n", start);
		json_case(file, &cases[i], &sh->results[i]);
		start = ",";
	}
	fprintf(file, "\n]}\n");

	if (ferror(file) | fclose(file))
		ksft_exit_fail_msg("%s: cannot write\n", json_path);
}

static void usage(const char *name)
{
	printf("Usage: %s [OPTION]...\n"
	       "Measure what I/O port permissions cost at a context switch.\n\n"
	       "  --rounds N   measured rounds of each case, 1 to %d\n"
	       "               (default %lu for switches, %lu for calls)\n"
	       "  --warmup N   rounds before them, 0 to %d (default %lu)\n"
	       "  --cpu N      the CPU (default: the first that may be used)\n"
	       "  --case NAME  only this case; repeatable, * ? [] match\n"
	       "  --json FILE  write the results to FILE as well\n"
	       "  --list       print the names of the cases and exit\n"
	       "  --help       print this and exit\n\n"
	       "Figures are TSC counts of one call. KSFT_MACHINE_SLOW=yes in the\n"
	       "environment divides the default rounds by four.\n\n"
	       "Exit status: %d measured, perhaps with some cases skipped; %d a case\n"
	       "failed or a wrong option; %d all cases were skipped.\n",
	       name, MAX_ROUNDS, switch_rounds, call_rounds, MAX_ROUNDS, warmup,
	       KSFT_PASS, KSFT_FAIL, KSFT_SKIP);
}

static unsigned long parse_number(const char *option, unsigned long min,
				  unsigned long max)
{
	unsigned long value;
	char *end;

	value = strtoul(optarg, &end, 10);
	if (end == optarg || *end || value < min || value > max)
		ksft_exit_fail_msg("--%s %s: not a number from %lu to %lu\n",
				   option, optarg, min, max);

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
		ksft_exit_fail_msg("--case %s: no such case, see --list\n",
				   pattern);
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
			switch_rounds = parse_number("rounds", 1, MAX_ROUNDS);
			call_rounds = switch_rounds;
			break;
		case 'w':
			warmup = parse_number("warmup", 0, MAX_ROUNDS);
			break;
		case 'c':
			cpu = parse_number("cpu", 0, CPU_SETSIZE - 1);
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
		ksft_exit_fail_msg("%s: unexpected argument, see --help\n",
				   argv[optind]);

	if (!any)
		select_cases("*");
	for (i = 0; list && i < ARRAY_SIZE(cases); i++)
		if (selected[i])
			puts(cases[i].name);
	if (list)
		exit(KSFT_PASS);
}

static const char *why_skip_all(void)
{
	int mode;

	if (ioport_pin(0, cpu))
		return "cannot be pinned to the CPU";
	if (!__builtin_cpu_supports("sse2"))
		return "a CPU without LFENCE";
	if (!prctl(PR_GET_TSC, &mode) && mode == PR_TSC_SIGSEGV)
		return "PR_SET_TSC forbids to read the TSC";

	return NULL;
}

int main(int argc, char **argv)
{
	unsigned int i, plan = 0;
	FILE *json = NULL;
	size_t size;

	parse_options(argc, argv);
	if (json_path) {
		json = fopen(json_path, "w");
		if (!json)
			ksft_exit_fail_perror(json_path);
	}

	/* Whoever started this may have set them to be ignored. */
	signal(SIGALRM, SIG_DFL);
	signal(SIGCHLD, SIG_DFL);

	ksft_print_header();
	for (i = 0; i < ARRAY_SIZE(cases); i++)
		plan += selected[i];
	ksft_set_plan(plan);

	ioport_init();
	skip_all = why_skip_all();
	if (cpu < 0)
		cpu = sched_getcpu();
	no_ports = ioport_skip_reason();

	size = sizeof(*sh) + sizeof(sh->sample[0]) *
	       (switch_rounds + call_rounds + warmup + CHECK_ROUNDS);
	sh = mmap(NULL, size, PROT_READ | PROT_WRITE,
		  MAP_SHARED | MAP_ANONYMOUS | MAP_POPULATE, -1, 0);
	if (sh == MAP_FAILED)
		ksft_exit_fail_perror("mmap");

	ksft_print_msg("CPU %d, %lu rounds (calls: %lu), %lu to warm up, TSC counts per call\n",
		       cpu, switch_rounds, call_rounds, warmup);

	for (i = 0; i < ARRAY_SIZE(cases); i++) {
		if (!selected[i])
			continue;
		result = &sh->results[i];
		run_case(&cases[i]);
		print_result(&cases[i]);
	}

	if (json)
		write_json(json);

	/* ksft_finished() takes a run of nothing but skips for a pass. */
	if ((unsigned int)ksft_get_xskip_cnt() == plan) {
		ksft_print_cnts();
		exit(KSFT_SKIP);
	}

	ksft_finished();
}
