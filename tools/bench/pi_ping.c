// SPDX-License-Identifier: GPL-2.0
/*
 * An interactive task with a deadline every 100 ms beside 0, 1, 2, 4, ... 1024
 * tasks that compute digits of pi: the deadlines that it meets, and what the
 * others get done meanwhile.
 *
 * The experiment is that of PI-ping: J. Abaffy and T. Krajcovic, "PI-ping -
 * Benchmark Tool for Testing Latencies and Throughput in Operating Systems",
 * 2009, doi:10.1007/978-90-481-9112-3_96. The program is written anew. What
 * matters when its figures are compared with theirs:
 *
 * - A request does not go over the network, but over a pipe, to a task that has
 *   to wake up for it and to compute an answer, which is checked.
 * - The latency counts from the start of the period, when the request is due,
 *   to the answer: the task that asks may wake up late as well. Like ping it
 *   does not wait for an answer before it sends the next request.
 * - All tasks share one CPU, unless --cpu any lets them run on all.
 * - Each load task computes the first 101 digits over and over, so that a
 *   digit costs the same beside any load and 1024 tasks fit into a small
 *   machine. Every digit is checked.
 * - All rates are relative to the "reference": one load task alone, without
 *   the interactive one.
 *
 * Their O(1) and CFS, CFS in two shells, CFS with group scheduling become the
 * layouts: all are threads of one process; the two that ask and answer are one
 * session, those that load another; and these in two cgroups of equal weight.
 *
 * It measures and reports; no figure makes it fail. A load fails on a wrong
 * digit, a wrong, lost or doubled answer, and when a task died, hung or ran
 * elsewhere than it should. It is skipped when something is missing to run it.
 */
#include "bench_helpers.h"

#include <poll.h>
#include <pthread.h>

#define PERIOD		(100 * NSEC_PER_MSEC)
#define WARMUP		(200 * NSEC_PER_MSEC)
/* How long the load goes on for answers that are late. */
#define GRACE		(2 * NSEC_PER_SEC)
#define WATCHDOG	(60 * NSEC_PER_SEC)

#define MAX_SECONDS	60
#define MAX_PERIODS	(MAX_SECONDS * 10)
#define MAX_LOAD	16384
#define MAX_ROWS	64

/* Memory of a load task, measured and rounded up, and what stays free. */
#define PROCESS_KB	256
#define THREAD_KB	64
#define SPARE_KB	(64 * 1024)

/*
 * Digits of pi, four at a time after the first: 3, 1415, 9265 and so on. A term
 * gives one bit, and a group takes log2(10000) = 13.3 of them.
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
 * The spigot of Rabinowitz and Wagon: pi is 2 + 1/3 (2 + 2/5 (2 + 3/7 (...))),
 * a number with a digit 2 in each place of a mixed radix. Multiplying it by
 * BASE makes the next group spill over at the left, and one group less to come
 * needs fewer places.
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

struct row {
	struct result result;
	int load;
	bool interactive;
};

/* A cache line of its own for each that counts. */
struct counter {
	unsigned long digits __attribute__((aligned(64)));
};

/* What the tasks of a row and the main program share. */
struct shared {
	long long start;	/* of the first period; before the tasks may start */
	bool stop;		/* the load has to end */
	int answers;		/* how many requests were answered */
	long long latency[MAX_PERIODS];	/* of each in ns, 0 without an answer */
	struct counter load[MAX_LOAD];
};

/* The last one is never used and ends the list. */
static struct row rows[MAX_ROWS + 1], *row = rows;
static struct shared *sh;

static double seconds = 1.5;
static int periods, cpu;
static enum layout layout = PROCESSES;
static char *loads = "0,1,2,4,8,16,32,64,128,256,512,1024";
static const char *skip_all;
/* Digits per second of the reference. */
static double reference;

/*
 * A task writes a byte when it is ready, and starts when nobody has the other
 * end of the start pipe any more. The main program sees that all tasks have
 * ended when nobody has the other end of the ready pipe any more.
 */
static int ready_pipe[2], start_pipe[2];

static bool wait_for_start(void)
{
	char byte = 'r';

	return write(ready_pipe[1], &byte, 1) == 1 &&
	       !read(start_pipe[0], &byte, 1);
}

static bool run_load(int me)
{
	struct counter *c = &sh->load[me];
	unsigned long digits = 0;
	struct spigot s = {};

	if (!wait_for_start())
		return false;
	while (!__atomic_load_n(&sh->stop, __ATOMIC_RELAXED)) {
		uint32_t group = spigot_next(&s);

		if (group != pi_groups[s.group - 1]) {
			report(FAIL, "load task %d: group %d of pi is %04u, not %04u",
			       me, s.group, group, pi_groups[s.group - 1]);
			return false;
		}
		digits += s.group == 1 ? 1 : GROUP_DIGITS;
		__atomic_store_n(&c->digits, digits, __ATOMIC_RELAXED);
		s.group %= GROUPS;
	}
	check_cpu("load", cpu);

	return true;
}

/*
 * The task that sends requests, and the one that answers them.
 */

struct message {
	uint32_t run, seq, word;
};

static int requests[2], answers[2];
static uint32_t run_id;

static uint32_t question(uint32_t seq)
{
	return (seq + run_id) * 2654435761U;
}

static uint32_t answer(uint32_t word)
{
	return (word ^ word >> 7) * 3 + 1;
}

/* The request of each period is due at its beginning. */
static long long due(int period)
{
	return sh->start + period * PERIOD;
}

static bool take_answer(int sent)
{
	struct message m;

	if (read(answers[0], &m, sizeof(m)) != sizeof(m) || m.run != run_id ||
	    m.seq >= (unsigned int)sent || m.word != answer(question(m.seq)) ||
	    sh->latency[m.seq]) {
		report(FAIL, "no, a wrong or a second answer after %d requests",
		       sent);
		return false;
	}
	sh->latency[m.seq] = now_ns() - due(m.seq);

	return ++sh->answers;
}

static bool wait_readable(long long until)
{
	struct pollfd fd = { .fd = answers[0], .events = POLLIN };
	long long now = now_ns(), left = until > now ? until - now : 0;
	struct timespec ts = { left / NSEC_PER_SEC, left % NSEC_PER_SEC };

	return ppoll(&fd, 1, &ts, NULL) > 0;
}

static bool send_and_receive(void)
{
	long long give_up;
	int sent = 0;

	prctl(PR_SET_TIMERSLACK, 1);
	if (!wait_for_start())
		return false;
	give_up = due(periods) + GRACE + WATCHDOG / 2;
	while (sh->answers < periods) {
		long long now = now_ns();

		for (; sent < periods && now >= due(sent); sent++) {
			struct message m = { run_id, sent, question(sent) };

			if (write(requests[1], &m, sizeof(m)) != sizeof(m))
				report(FAIL, "request %d was not sent", sent);
		}
		while (wait_readable(sent < periods ? due(sent) : give_up)) {
			if (!take_answer(sent))
				return false;
			if (sh->answers == sent)
				break;
		}
		if ((sent == periods && now >= give_up) || !all_well())
			return false;
	}
	check_cpu("requester", cpu);

	return true;
}

static bool run_responder(void)
{
	struct message m;

	if (!wait_for_start())
		return false;
	while (read(requests[0], &m, sizeof(m)) == sizeof(m)) {
		m.word = answer(m.word);
		if (write(answers[1], &m, sizeof(m)) != sizeof(m))
			break;
	}
	report(FAIL, "the responder gave up: %s", strerror(errno));

	return false;
}

/*
 * Tasks of a row, by number: load tasks, then the two others.
 */

static bool run_task(int number)
{
	char byte = 'd';
	bool good;

	if (number < row->load)
		return run_load(number);
	if (number > row->load)
		return run_responder();
	good = send_and_receive();

	/* The main program waits for it, and ends the load then. */
	return write(ready_pipe[1], &byte, 1) == 1 && good;
}

static void *thread_task(void *arg)
{
	run_task((long)arg);

	return NULL;
}

/* A load that does not fit is a skip, and says where it ended. */
static __noreturn void give_up_start(int error, int number)
{
	report(error == EAGAIN || error == ENOMEM ? SKIP : FAIL,
	       "task %d: %s", number, strerror(error));
	_exit(1);
}

static __noreturn void run_threads(int nr)
{
	static pthread_t thread[MAX_LOAD + 2];
	int i, error;

	for (i = 0; i < nr; i++) {
		error = pthread_create(&thread[i], NULL, thread_task,
				       (void *)(long)i);
		if (error)
			give_up_start(error, i);
	}
	/* The responder does not end by itself. */
	for (i = 0; i < nr && i <= row->load; i++)
		pthread_join(thread[i], NULL);
	_exit(!all_well());
}

/* The tasks from @first on; the responder ends when this does. */
static __noreturn void run_processes(const char *who, int first, int nr)
{
	int i, status, left = 0;
	pid_t pid;

	for (i = first; i < nr; i++) {
		pid = fork_bound();
		if (!pid)
			_exit(!run_task(i));
		if (pid < 0)
			give_up_start(errno, i);
		left += i <= row->load;
	}
	while (left-- && wait(&status) > 0) {
		if (status)
			check_child(who, status);
	}
	_exit(!all_well());
}

/* Starts both sides as one process, or one of them. */
static pid_t start_side(bool is_task)
{
	int nr = row->load + (row->interactive ? 2 : 0);
	pid_t pid = fork_bound();

	if (pid)
		return pid;
	close(start_pipe[1]);
	if (!enter_layout(layout, is_task, cpu))
		_exit(1);
	if (layout == THREADS)
		run_threads(nr);
	if (is_task)
		run_processes("task", row->load, nr);
	run_processes("load", 0, row->load);
}

/*
 * A row.
 */

/* What fork() would only tell when the machine has hardly anything left. */
static bool load_fits(void)
{
	long long need = (long long)row->load *
			 (layout == THREADS ? THREAD_KB : PROCESS_KB) + SPARE_KB;
	long long free = meminfo_kb("MemAvailable");

	if (free >= 0 && need > free)
		report(SKIP, "memory in kB: %lld needed, %lld free", need, free);

	return all_well();
}

/*
 * Up to @want bytes from the ready pipe until @until. Returns how many came,
 * or -1 when all tasks have ended.
 */
static int read_ready(int want, long long until, bool until_problem)
{
	struct pollfd fd = { .fd = ready_pipe[0], .events = POLLIN };
	int got = 0;
	char byte;

	while (got < want && now_ns() < until && (!until_problem || all_well())) {
		if (poll(&fd, 1, 100) <= 0)
			continue;
		if (read(ready_pipe[0], &byte, 1) <= 0)
			return -1;
		got++;
	}

	return got;
}

static void wait_for_end(void)
{
	if (read_ready(INT_MAX, now_ns() + WATCHDOG, false) >= 0)
		report(FAIL, "the tasks did not end in time");
}

static void add_answers(void)
{
	static const char * const names[] = { "p50", "p99", "max" };
	int i, met = 0;

	for (i = 0; i < periods; i++)
		met += sh->latency[i] <= PERIOD;
	if (sh->answers != periods)
		report(FAIL, "%d answers to %d requests", sh->answers, periods);
	add_figure(&row->result, "met_percent", 100.0 * met / periods);
	add_percentiles(&row->result, sh->latency, periods, names);
}

/* What the load tasks have computed so far. */
static double count_digits(void)
{
	double all = 0;
	int i;

	for (i = 0; i < row->load; i++)
		all += __atomic_load_n(&sh->load[i].digits, __ATOMIC_RELAXED);

	return all;
}

static void measure_row(void)
{
	double digits, rate;
	long long start;

	sleep_until(sh->start);
	start = now_ns();
	digits = count_digits();
	/* Without a real-time policy we may be late ourselves. */
	sleep_until(start + periods * PERIOD);
	digits = count_digits() - digits;
	rate = digits * NSEC_PER_SEC / (now_ns() - start);
	if (!row->interactive)
		reference = rate;
	add_figure(&row->result, "digits_per_s", rate);
	if (reference)
		add_figure(&row->result, "relative", 100 * rate / reference);
	if (row->interactive)
		read_ready(1, due(periods) + GRACE, false);
}

static void end_tasks(const pid_t *leader)
{
	bool by_force;
	int i, status;

	if (all_well())
		wait_for_end();
	by_force = !all_well();
	for (i = 0; i < 2; i++) {
		if (leader[i] <= 0)
			continue;
		if (by_force)
			kill(leader[i], SIGKILL);
		waitpid(leader[i], &status, 0);
		if (!by_force && status)
			check_child(i ? "load" : "task", status);
	}
	/* What they leave behind dies with them, and we inherit it. */
	wait_for_end();
	for (i = 0; i < 2; i++) {
		while (leader[i] > 0 && waitpid(-leader[i], NULL, 0) > 0)
			;
	}
}

static void run_row(void)
{
	int want = row->load + (row->interactive ? 2 : 0), i;
	pid_t leader[2] = { -1, -1 };

	memset(sh, 0, sizeof(*sh));
	run_id = run_id * 31 + getpid() + 1;
	if (pipe(ready_pipe) || pipe(start_pipe) || pipe(requests) ||
	    pipe(answers)) {
		report(FAIL, "pipe: %s", strerror(errno));
		return;
	}
	if (layout == THREADS || row->interactive)
		leader[0] = start_side(true);
	if (layout != THREADS && row->load)
		leader[1] = start_side(false);
	close(ready_pipe[1]);
	close(start_pipe[0]);
	for (i = 0; i < 2; i++) {
		close(requests[i]);
		close(answers[i]);
	}
	if (read_ready(want, now_ns() + WATCHDOG, true) != want)
		report(FAIL, "the tasks did not all get ready");
	sh->start = now_ns() + WARMUP;
	close(start_pipe[1]);
	if (all_well())
		measure_row();
	__atomic_store_n(&sh->stop, true, __ATOMIC_RELAXED);
	end_tasks(leader);
	close(ready_pipe[0]);
	if (all_well() && row->interactive)
		add_answers();
}

static void add_row(int load, bool interactive)
{
	if (row == rows + MAX_ROWS)
		usage_error("--loads: more than %d numbers", MAX_ROWS - 1);
	row->load = load;
	row->interactive = interactive;
	snprintf(row->result.name, sizeof(row->result.name),
		 interactive ? "load-%d" : "reference", load);
	snprintf(row->result.more, sizeof(row->result.more),
		 "\"load\": %d, \"interactive\": %s, ", load,
		 interactive ? "true" : "false");
	row++;
}

static int measure(void)
{
	prctl(PR_SET_CHILD_SUBREAPER, 1);
	/* We shall wake up in time beside any load; without it, if must be. */
	become_fifo(50, SCHED_RESET_ON_FORK);
	printf("%s, CPU %d, tick %lld ns, %d periods\n",
	       layout_names[layout], cpu, tick_ns(), periods);
	fflush(stdout);

	for (row = rows; *row->result.name; row++) {
		if (skip_all)
			report(SKIP, "%s", skip_all);
		else if (load_fits())
			run_row();
		end_case(&row->result);
	}

	return end_cases();
}

int main(int argc, char **argv)
{
	const struct option_of options[] = {
		{ .name = "loads", .kind = TEXT, .value = &loads,
		  .help = "numbers of load tasks, such as 0,1,16" },
		{ .name = "seconds", .kind = NUMBER, .value = &seconds, .min = 0.1,
		  .max = MAX_SECONDS, .help = "how long each load is measured" },
		{ .name = "layout", .kind = NAME, .value = &layout,
		  .names = layout_names, .help = "who is grouped with whom" },
		{ .name = "cpu", .kind = CPU, .value = &cpu,
		  .help = "the CPU of all tasks, or any for all CPUs" },
		JSON_OPTION,
		{}
	};
	char *list, *word;

	cpu = first_cpu();
	read_options(argc, argv, false, options,
		      "Usage: pi_ping [OPTION]...\n"
		      "How an interactive task meets its deadlines beside tasks that compute digits of\n"
		      "pi, and how many digits they compute.");
	list = strdup(loads);
	/* The reference comes before the first load. */
	add_row(1, false);
	while ((word = strsep(&list, ",")))
		add_row(parse_whole("loads", word, 0, MAX_LOAD), true);
	periods = seconds * NSEC_PER_SEC / PERIOD + 0.5;
	json_begin("pi_ping", "ns", cpu,
		   "\"period_ns\": %lld,\n  \"seconds\": %g,\n  \"layout\": \"%s\",\n  ",
		   PERIOD, periods * (double)PERIOD / NSEC_PER_SEC,
		   layout_names[layout]);
	signal(SIGPIPE, SIG_IGN);

	problem = map_shared(sizeof(*problem));
	sh = map_shared(sizeof(*sh));
	if (layout >= CGROUP)
		skip_all = make_cgroups("pi_ping");

	return measure_and_clean_up(measure, remove_cgroups);
}
