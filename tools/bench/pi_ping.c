// SPDX-License-Identifier: GPL-2.0
/*
 * An interactive task with a deadline every 100 ms beside 0, 1, 2, 4, ... 1024 tasks that compute
 * digits of pi: the deadlines that it meets, and what the others get done meanwhile.
 *
 * The experiment is that of PI-ping: J. Abaffy and T. Krajcovic, "PI-ping - Benchmark Tool for
 * Testing Latencies and Throughput in Operating Systems", 2009, doi:10.1007/978-90-481-9112-3_96.
 * The program is written anew. What matters when its figures are compared with theirs:
 *
 * - A request does not go over the network, but over a pipe, to a task that has to wake up for it
 *   and to compute an answer, which is checked.
 * - The latency counts from the start of the period, when the request is due, to the answer: the
 *   task that asks may wake up late as well. Like ping it does not wait for an answer before it
 *   sends the next request.
 * - All tasks share one CPU.
 * - Each load task computes the first 101 digits over and over, so that a digit costs the same
 *   beside any load and 1024 tasks fit into a small machine. Every digit is checked.
 * - All rates are relative to the "reference": one load task alone, without the interactive one.
 *
 * Their O(1) and CFS, CFS in two shells, CFS with group scheduling become the layouts: all are
 * threads of one process; the two that ask and answer are one session, those that load another; and
 * these in two cgroups of equal weight. No figure makes a case fail, but a wrong digit, a wrong,
 * lost or doubled answer, and a task that died or hung. A case is the number of load tasks.
 */
#include "bench_helpers.h"

#include <poll.h>
#include <pthread.h>

#define PERIOD		(100 * NSEC_PER_MSEC)
#define WARMUP		(200 * NSEC_PER_MSEC)
#define WATCHDOG	(60 * NSEC_PER_SEC)
#define MAX_PERIODS	600
#define MAX_LOAD	1024

/*
 * Digits of pi, four at a time after the first: 3, 1415, 9265 and so on. A term gives one bit, and
 * a group takes log2(10000) = 13.3 of them.
 */
#define BASE		10000
#define GROUP_DIGITS	4
#define GROUPS		26
#define GROUP_TERMS	14
#define TERMS		(GROUP_TERMS * GROUPS)

static const unsigned int pi_groups[GROUPS] = {
	3,    1415, 9265, 3589, 7932, 3846, 2643, 3832, 7950, 2884, 1971, 6939, 9375,
	1058, 2097, 4944, 5923,  781, 6406, 2862, 899,  8628,  348, 2534, 2117,  679,
};

struct spigot {
	uint32_t place[TERMS];
	int group;
};

/*
 * The spigot of Rabinowitz and Wagon: pi is 2 + 1/3 (2 + 2/5 (2 + 3/7 (...))), a number with a
 * digit 2 in each place of a mixed radix. Multiplying it by BASE makes the next group spill over at
 * the left, and one group less to come needs fewer places.
 */
static uint32_t spigot_next(struct spigot *s)
{
	uint32_t x, carry = 0;
	int i;

	for (i = 0; !s->group && i < TERMS; i++)
		s->place[i] = 2;
	for (i = TERMS - GROUP_TERMS * s->group++ - 1; i > 0; i--) {
		x = s->place[i] * BASE + carry;
		s->place[i] = x % (2 * i + 1);
		carry = x / (2 * i + 1) * i;
	}
	x = s->place[0] * BASE + carry;
	s->place[0] = x % BASE;
	return x / BASE;
}

/* What the tasks of a row and the main program share. */
static struct shared {
	int ready;		/* how many wait for the start */
	long long start;	/* of the first period; before the tasks may start */
	bool stop;		/* the load has to pause */
	int answers;		/* how many requests were answered */
	long long latency[MAX_PERIODS];	/* of each in ns, 0 without an answer */
	unsigned long digits[MAX_LOAD][8];	/* a cache line for each that counts */
} *sh;

static double seconds = 1.5;
static int periods;
static enum layout layout;
static double reference;	/* digits per second */
static int load = 1;		/* of the row that runs */
static bool interactive;

/* A task starts when nobody has the other end of this pipe any more. */
static int start_pipe[2];

static void run_load(int me)
{
	unsigned long digits = 0;
	struct spigot s = {};

	while (!get(sh->stop)) {
		uint32_t group = spigot_next(&s);

		if (group != pi_groups[s.group - 1]) {
			report(FAIL, "load task %d: group %d of pi is %04u, not %04u",
			       me, s.group, group, pi_groups[s.group - 1]);
			return;
		}
		digits += s.group == 1 ? 1 : GROUP_DIGITS;
		set(sh->digits[me][0], digits);
		s.group %= GROUPS;
	}
}

struct message {
	uint32_t seq, word;
};

static int requests[2], answers[2];

static uint32_t answer(uint32_t seq)
{
	uint32_t word = seq * 2654435761U;

	return (word ^ word >> 7) * 3 + 1;
}

/* The request of each period is due at its beginning. */
static long long due(int period)
{
	return sh->start + period * PERIOD;
}

static void take_answer(int sent)
{
	struct message m;

	if (read(answers[0], &m, sizeof(m)) != sizeof(m) || m.seq >= (unsigned int)sent ||
	    m.word != answer(m.seq) || sh->latency[m.seq]) {
		report(FAIL, "no, a wrong or a second answer after %d requests", sent);
		return;
	}
	sh->latency[m.seq] = now_ns() - due(m.seq);
	__atomic_add_fetch(&sh->answers, 1, __ATOMIC_RELAXED);
}

static void send_and_receive(void)
{
	struct pollfd fd = { .fd = answers[0], .events = POLLIN };
	long long left;
	int sent = 0;

	while (sh->answers < periods && all_well()) {
		for (; sent < periods && now_ns() >= due(sent); sent++) {
			struct message m = { sent, 0 };

			if (write(requests[1], &m, sizeof(m)) != sizeof(m))
				report(FAIL, "request %d was not sent", sent);
		}
		left = (sent < periods ? due(sent) : LLONG_MAX) - now_ns();
		left = MAX(left, 0);
		if (ppoll(&fd, 1, &(struct timespec){ left / NSEC_PER_SEC, left % NSEC_PER_SEC },
			  NULL) > 0)
			take_answer(sent);
	}
}

static void run_responder(void)
{
	struct message m;

	while (read(requests[0], &m, sizeof(m)) == sizeof(m)) {
		m.word = answer(m.seq);
		if (write(answers[1], &m, sizeof(m)) != sizeof(m))
			break;
	}
	report(FAIL, "the responder gave up: %s", strerror(errno));
}

/* Tasks of a row, by number: load tasks, then the two others. They do not end, but are killed. */

static void *run_task(void *number)
{
	int me = (long)number;
	char byte;

	if (me == load)
		prctl(PR_SET_TIMERSLACK, 1);
	__atomic_add_fetch(&sh->ready, 1, __ATOMIC_RELAXED);
	if (read(start_pipe[0], &byte, 1))
		report(FAIL, "the start: %s", strerror(errno));
	if (me < load)
		run_load(me);
	else if (me == load)
		send_and_receive();
	else
		run_responder();
	while (true)
		pause();
	return NULL;
}

/* Starts both sides as one process, or one of them. */
static pid_t start_side(bool is_task)
{
	long i = is_task && layout != THREADS ? load : 0, end = load;
	pid_t pid = fork_side(layout, is_task);
	pthread_t thread;
	int status;

	if (pid)
		return pid;
	close(start_pipe[1]);
	if (is_task && interactive)
		end += 2;
	for (; i < end && all_well(); i++) {
		if (layout != THREADS && !fork_task())
			run_task((void *)i);
		if (layout == THREADS && pthread_create(&thread, NULL, run_task, (void *)i))
			report(SKIP, "thread %ld cannot be made", i);
	}
	if (wait(&status) > 0)
		check_status("a task", status);
	while (true)
		pause();
}

/* Returns whether that many came in time. */
static bool wait_for(const int *count, int wanted, long long until)
{
	while (get(*count) < wanted && all_well() && now_ns() < until)
		sleep_ns(20 * NSEC_PER_MSEC);
	return get(*count) == wanted;
}

/* What the load tasks have computed so far. */
static double count_digits(void)
{
	double all = 0;
	int i;

	for (i = 0; i < load; i++)
		all += get(sh->digits[i][0]);
	return all;
}

static void measure_row(void)
{
	double digits, rate;
	long long start;
	int i, met = 0;

	sleep_until(sh->start);
	start = now_ns();
	digits = count_digits();
	/* Without a real-time policy we may be late ourselves. */
	sleep_until(start + periods * PERIOD);
	digits = count_digits() - digits;
	rate = digits * NSEC_PER_SEC / (now_ns() - start);
	if (!interactive)
		reference = rate;
	if (reference)
		add_figure("relative", 100 * rate / reference);
	if (!interactive)
		return;

	/* The load goes on for answers that are late, but not for long. */
	wait_for(&sh->answers, periods, due(periods) + 2 * NSEC_PER_SEC);
	set(sh->stop, true);
	if (!wait_for(&sh->answers, periods, now_ns() + WATCHDOG))
		report(FAIL, "%d answers to %d requests", sh->answers, periods);
	for (i = 0; i < periods; i++)
		met += sh->latency[i] <= PERIOD;
	add_figure("met_percent", 100.0 * met / periods);
	qsort(sh->latency, periods, sizeof(*sh->latency), compare_ns);
	add_figure("p99", percentile(sh->latency, periods, 99));
}

static void run_row(void)
{
	pid_t leader[2] = {};
	int i;

	/* More than they take. fork() would only fail when there is hardly anything left. */
	if (number_in("/proc/meminfo", "MemAvailable:") < load * 256 + 64 * 1024)
		report(SKIP, "not enough memory");
	if (layout == CGROUPS)
		make_cgroups();
	/* What a side leaves behind dies with it, and is ours to wait for. */
	prctl(PR_SET_CHILD_SUBREAPER, 1);
	memset(sh, 0, sizeof(*sh));
	if (pipe(start_pipe) || pipe(requests) || pipe(answers))
		err(EXIT_FAILURE, "pipe");
	if (all_well() && (layout == THREADS || interactive))
		leader[0] = start_side(true);
	if (all_well() && layout != THREADS && load)
		leader[1] = start_side(false);
	if (!wait_for(&sh->ready, interactive ? load + 2 : load, now_ns() + WATCHDOG))
		report(FAIL, "the tasks did not all get ready");
	sh->start = now_ns() + WARMUP;
	close(start_pipe[1]);
	if (all_well())
		measure_row();
	for (i = 0; i < 2; i++) {
		if (leader[i] > 0 && waitpid(leader[i], NULL, WNOHANG))
			report(FAIL, "a side ended");
		end_task(leader[i], true);
		close(requests[i]);
		close(answers[i]);
	}
	close(start_pipe[0]);
	while (wait(NULL) > 0)
		;
	end_case();
}

int main(int argc, char **argv)
{
	char *name = "processes";
	const struct option_of options[] = {
		{ "seconds", NUMBER, &seconds, 0.1, MAX_PERIODS / 10 },
		{ "layout", TEXT, &name, 0, 0 },
		JSON_OPTION, {}
	};
	int i;

	begin_cases("pi_ping", argc, argv, true, options);
	for (i = optind; i < argc; i++) {
		if (argv[i][strspn(argv[i], "0123456789")] || atoi(argv[i]) > MAX_LOAD)
			errx(EXIT_FAILURE, "%s: not a number up to %d", argv[i], MAX_LOAD);
	}
	while (strcmp(name, layout_names[layout])) {
		if (++layout == NR_LAYOUTS)
			errx(EXIT_FAILURE, "--layout %s: no such layout", name);
	}
	periods = seconds * NSEC_PER_SEC / PERIOD + 0.5;
	sh = map_shared(sizeof(*sh));
	/* We shall wake up in time beside any load; without it, if must be. */
	become_fifo(50, SCHED_RESET_ON_FORK);
	strcpy(res->name, "reference");
	run_row();
	interactive = true;
	for (i = optind; i < argc; i++) {
		load = atoi(argv[i]);
		snprintf(res->name, sizeof(res->name), "load-%d", load);
		run_row();
	}
	return end_cases();
}
