// SPDX-License-Identifier: GPL-2.0
/*
 * An interactive task with a deadline every 100 ms beside 0, 1, 2, 4, ... 1024
 * tasks that compute digits of pi: the deadlines that it meets, and what the
 * others get done meanwhile.
 *
 * The experiment is that of PI-ping: J. Abaffy and T. Krajcovic, "PI-ping -
 * Benchmark Tool for Testing Latencies and Throughput in Operating Systems",
 * 2009, doi:10.1007/978-90-481-9112-3_96, and "Latencies in Linux and FreeBSD
 * kernels with different schedulers - O(1), CFS, 4BSD, ULE", 2009. The program
 * is written anew. What matters when its figures are compared with theirs:
 *
 * - A request goes over the loopback device (UDP) or a pipe to a task that has
 *   to wake up for it and to compute an answer, which is checked. --via icmp
 *   sends a ping, which the kernel answers.
 * - The latency counts from the start of the period, when the request is due,
 *   to the answer: the task that asks may wake up late as well. Like ping it
 *   does not wait for an answer before it sends the next request. The time
 *   from sending to the answer is reported beside it (rtt).
 * - All tasks share one CPU, unless --cpu any lets them run on all.
 * - Each load task computes the first 101 digits over and over, so that a
 *   digit costs the same beside any load and 1024 tasks fit into a small
 *   machine. Every digit is checked.
 * - All rates are relative to the "reference": one load task alone, without
 *   the interactive one.
 *
 * Who is grouped with whom decides as much as the scheduler does. Their O(1)
 * and CFS, CFS in two shells, CFS with group scheduling become:
 *
 * threads	all tasks are threads of one process
 * processes	a process each; the two that ask and answer are one session,
 *		those that load another: two groups under CONFIG_SCHED_AUTOGROUP
 * cgroups	as processes, but the sessions are in two cgroups of equal weight
 *
 * --policy batch is for the load only. --policy ext is for all tasks: the fair
 * class comes before SCHED_EXT, so there would be nothing to compare if the
 * interactive task were in it.
 *
 * It measures and reports; no figure makes it fail. A load fails on a wrong
 * digit, a wrong, lost or doubled answer, and when a task died, hung or ran
 * elsewhere than it should. It is skipped when something is missing to run it.
 */
#include "bench_helpers.h"

#include <fcntl.h>
#include <getopt.h>
#include <poll.h>
#include <pthread.h>
#include <arpa/inet.h>
#include <net/if.h>
#include <netinet/in.h>
#include <netinet/ip.h>
#include <netinet/ip_icmp.h>
#include <sys/ioctl.h>
#include <sys/socket.h>

#ifndef SCHED_EXT
#define SCHED_EXT	7
#endif

#define PERIOD		(100 * NSEC_PER_MSEC)
#define WARMUP		(200 * NSEC_PER_MSEC)
/* How long the load goes on for answers that are late. */
#define GRACE		(2 * NSEC_PER_SEC)
#define WATCHDOG	(60 * NSEC_PER_SEC)

#define MAX_SECONDS	600
#define MAX_PERIODS	(MAX_SECONDS * NSEC_PER_SEC / PERIOD)
#define MAX_LOAD	16384
#define MAX_ROWS	64
#define DEFAULT_LOAD	1024

/* Memory of a load task, measured and rounded up, and what stays free. */
#define PROCESS_KB	256
#define THREAD_KB	64
#define SPARE_KB	(64 * 1024)

/*
 * Digits of pi, four at a time after the first: 3, 1415, 9265 and so on.
 */

#define BASE		10000
#define GROUP_DIGITS	4
#define PI_GROUPS	26

/* A term gives one bit, a group takes log2(10000) = 13.3 of them. */
#define GROUP_TERMS	14
#define PI_TERMS	(GROUP_TERMS * PI_GROUPS)

static const char pi_digits[] =
	"3"
	"1415926535897932384626433832795028841971693993751058"
	"209749445923078164062862089986280348253421170679";

static unsigned int pi_groups[PI_GROUPS];

static void read_pi_groups(void)
{
	int i;

	pi_groups[0] = 3;
	for (i = 1; i < PI_GROUPS; i++)
		sscanf(pi_digits + 1 + GROUP_DIGITS * (i - 1), "%4u",
		       &pi_groups[i]);
}

/*
 * The spigot of Rabinowitz and Wagon: pi is 2 + 1/3 (2 + 2/5 (2 + 3/7 (...))),
 * a number with a digit 2 in each place of a mixed radix. Multiplying it by
 * BASE makes the next group spill over at the left, and one group less to come
 * needs fewer places.
 */
struct spigot {
	uint32_t place[PI_TERMS];
	int group;
};

static void spigot_start(struct spigot *s)
{
	int i;

	for (i = 0; i < PI_TERMS; i++)
		s->place[i] = 2;
	s->group = 0;
}

static uint32_t spigot_next(struct spigot *s)
{
	uint32_t x, carry = 0;
	int i;

	for (i = PI_TERMS - GROUP_TERMS * s->group++ - 1; i > 0; i--) {
		x = s->place[i] * BASE + carry;
		s->place[i] = x % (2 * i + 1);
		carry = x / (2 * i + 1) * i;
	}
	x = s->place[0] * BASE + carry;
	s->place[0] = x % BASE;

	return x / BASE;
}

/*
 * Options and results.
 */

enum layout {
	THREADS,
	PROCESSES,
	CGROUPS,
	NR_LAYOUTS,
};

static const char * const layout_names[NR_LAYOUTS] = {
	[THREADS]	= "threads",
	[PROCESSES]	= "processes",
	[CGROUPS]	= "cgroups",
};

enum policy {
	NORMAL,
	BATCH,
	EXT,
	NR_POLICIES,
};

static const char * const policy_names[NR_POLICIES] = {
	[NORMAL]	= "normal",
	[BATCH]		= "batch",
	[EXT]		= "ext",
};

static const int policies[NR_POLICIES] = {
	[NORMAL]	= SCHED_OTHER,
	[BATCH]		= SCHED_BATCH,
	[EXT]		= SCHED_EXT,
};

enum via {
	UDP,
	PIPE,
	ICMP,
	NR_VIAS,
};

static const char * const via_names[NR_VIAS] = {
	[UDP]		= "udp",
	[PIPE]		= "pipe",
	[ICMP]		= "icmp",
};

struct row {
	struct result result;
	int load;
	bool interactive;
};

/* A cache line of its own for each that counts. */
struct counter {
	unsigned long digits;
	char rest[64 - sizeof(unsigned long)];
};

/**
 * struct shared - what the tasks of a row and the main program share
 * @start:	of the first period, in ns; written before the tasks may start
 * @stop:	the load has to end
 * @stopped_at:	when it was told so, in ns
 * @answers:	how many requests were answered
 * @latency:	of each request in ns, 0 when it was not answered
 * @rtt:	the part of it after sending the request
 * @load:	digits that each load task computed
 */
struct shared {
	long long start;
	bool stop;
	long long stopped_at;
	int answers;
	long long latency[MAX_PERIODS], rtt[MAX_PERIODS];
	struct counter load[MAX_LOAD];
};

static struct row rows[1 + MAX_ROWS];
static int nr_rows;
static struct shared *sh;

static double seconds = 1.5;
static int periods;
static enum layout layout = PROCESSES;
static enum policy policy = NORMAL;
static enum via via = UDP;
static const char *json_path;
/* -1: any */
static int cpu;
static const char *skip_all;
/* Digits per second of the reference. */
static double reference;

static bool stopped(void)
{
	return __atomic_load_n(&sh->stop, __ATOMIC_RELAXED);
}

static void stop_load(void)
{
	sh->stopped_at = now_ns();
	__atomic_store_n(&sh->stop, true, __ATOMIC_RELAXED);
}

/*
 * A task writes a byte when it is ready, and starts when nobody has the other
 * end of the start pipe any more. The main program sees that all tasks have
 * ended when nobody has the other end of the ready pipe any more.
 */
static int ready_pipe[2] = { -1, -1 }, start_pipe[2] = { -1, -1 };

static bool wait_for_start(void)
{
	char byte = 'r';

	return write(ready_pipe[1], &byte, 1) == 1 &&
	       !read(start_pipe[0], &byte, 1);
}

static void close_fd(int *fd)
{
	if (*fd >= 0)
		close(*fd);
	*fd = -1;
}

static bool set_policy(enum policy p, const char *who)
{
	static const struct sched_param param;

	if (!sched_setscheduler(0, policies[p], &param))
		return true;
	report(errno == EPERM ? SKIP : FAIL, "%s: policy %s: %s", who,
	       policy_names[p], strerror(errno));

	return false;
}

static void check_cpu(const char *who)
{
	int now = sched_getcpu();

	if (cpu >= 0 && now != cpu)
		report(FAIL, "%s: ran on CPU %d instead of %d", who, now, cpu);
}

static bool ext_enabled(void)
{
	char text[32];

	return read_text("/sys/kernel/sched_ext/state", text, sizeof(text)) &&
	       !strncmp(text, "enabled", strlen("enabled"));
}

/*
 * The load.
 */

static bool run_load(int me)
{
	struct counter *c = &sh->load[me];
	unsigned long digits = 0;
	struct spigot s;

	if (!set_policy(policy, "load") || !wait_for_start())
		return false;

	spigot_start(&s);
	while (!stopped()) {
		uint32_t group = spigot_next(&s);

		if (group != pi_groups[s.group - 1]) {
			report(FAIL, "load task %d: group %d of pi is %04u, not %04u",
			       me, s.group, pi_groups[s.group - 1], group);
			return false;
		}
		digits += s.group == 1 ? 1 : GROUP_DIGITS;
		__atomic_store_n(&c->digits, digits, __ATOMIC_RELAXED);
		if (s.group == PI_GROUPS)
			spigot_start(&s);
	}
	check_cpu("load");

	return true;
}

/*
 * The task that sends requests, and the one that answers them.
 */

struct message {
	uint32_t run;
	uint32_t seq;
	uint32_t word;
};

struct ping_packet {
	struct icmphdr header;
	struct message message;
};

enum end {
	REQUESTER,
	RESPONDER,
};

static int in_fd[2] = { -1, -1 }, out_fd[2] = { -1, -1 };
static bool raw_socket;
static uint32_t run_id;

static uint32_t question(uint32_t seq)
{
	return (seq + run_id) * 2654435761U;
}

static uint32_t answer(uint32_t word)
{
	return via == ICMP ? word : (word ^ word >> 7) * 3 + 1;
}

static void close_channel(void)
{
	int i;

	for (i = 0; i < 2; i++) {
		if (out_fd[i] == in_fd[i])
			out_fd[i] = -1;
		close_fd(&in_fd[i]);
		close_fd(&out_fd[i]);
	}
}

static const char *open_pipes(void)
{
	int there[2], back[2];

	if (pipe2(there, O_CLOEXEC))
		return strerror(errno);
	in_fd[RESPONDER] = there[0];
	out_fd[REQUESTER] = there[1];
	if (pipe2(back, O_CLOEXEC))
		return strerror(errno);
	in_fd[REQUESTER] = back[0];
	out_fd[RESPONDER] = back[1];

	return NULL;
}

/* What is sent when it is down is lost without an error. */
static const char *check_loopback(int fd)
{
	struct ifreq request = { .ifr_name = "lo" };

	if (ioctl(fd, SIOCGIFFLAGS, &request))
		return "there is no loopback device";

	return request.ifr_flags & IFF_UP ? NULL : "the loopback device is down";
}

/* Two sockets that hear nobody but each other. */
static const char *open_udp(void)
{
	struct sockaddr_in address[2] = {};
	socklen_t len;
	int i;

	for (i = 0; i < 2; i++) {
		in_fd[i] = socket(AF_INET, SOCK_DGRAM | SOCK_CLOEXEC, 0);
		if (in_fd[i] < 0)
			return strerror(errno);
		out_fd[i] = in_fd[i];
		address[i].sin_family = AF_INET;
		address[i].sin_addr.s_addr = htonl(INADDR_LOOPBACK);
		len = sizeof(address[i]);
		if (bind(in_fd[i], (struct sockaddr *)&address[i], len) ||
		    getsockname(in_fd[i], (struct sockaddr *)&address[i], &len))
			return strerror(errno);
	}
	for (i = 0; i < 2; i++) {
		if (connect(in_fd[i], (struct sockaddr *)&address[!i],
			    sizeof(address[!i])))
			return strerror(errno);
	}

	return check_loopback(in_fd[REQUESTER]);
}

static const char *open_icmp(void)
{
	struct sockaddr_in address = {
		.sin_family = AF_INET,
		.sin_addr.s_addr = htonl(INADDR_LOOPBACK),
	};
	int fd;

	fd = socket(AF_INET, SOCK_DGRAM | SOCK_CLOEXEC, IPPROTO_ICMP);
	raw_socket = fd < 0;
	if (raw_socket)
		fd = socket(AF_INET, SOCK_RAW | SOCK_CLOEXEC, IPPROTO_ICMP);
	if (fd < 0)
		return "neither a ping socket nor a raw socket is allowed";
	in_fd[REQUESTER] = fd;
	out_fd[REQUESTER] = fd;
	if (connect(fd, (struct sockaddr *)&address, sizeof(address)))
		return strerror(errno);

	return check_loopback(fd);
}

static bool open_channel(void)
{
	const char *reason;

	if (via == UDP)
		reason = open_udp();
	else if (via == PIPE)
		reason = open_pipes();
	else
		reason = open_icmp();
	if (reason)
		report(SKIP, "%s: %s", via_names[via], reason);

	return !reason;
}

static uint16_t checksum(const void *data, size_t len)
{
	const uint16_t *word = data;
	uint32_t sum = 0;

	for (; len > 1; len -= 2)
		sum += *word++;
	sum = (sum >> 16) + (sum & 0xffff);
	sum += sum >> 16;

	return ~sum;
}

static bool send_request(uint32_t seq)
{
	struct ping_packet packet = {
		.header.type = ICMP_ECHO,
		.header.un.echo.id = htons(run_id & 0xffff),
		.header.un.echo.sequence = htons(seq & 0xffff),
		.message.run = run_id,
		.message.seq = seq,
		.message.word = question(seq),
	};
	const void *data = &packet.message;
	ssize_t len = sizeof(packet.message);

	if (via == ICMP) {
		packet.header.checksum = checksum(&packet, sizeof(packet));
		data = &packet;
		len = sizeof(packet);
	}
	if (write(out_fd[REQUESTER], data, len) == len)
		return true;
	report(FAIL, "request %u was not sent: %s", seq, strerror(errno));

	return false;
}

/* A raw socket sees the pings of everybody, and both directions. */
static bool read_ping(struct message *m, bool *other)
{
	struct {
		struct iphdr ip;
		struct ping_packet packet;
	} raw;
	struct ping_packet packet;
	ssize_t len;

	if (raw_socket) {
		len = read(in_fd[REQUESTER], &raw, sizeof(raw));
		packet = raw.packet;
		*other = packet.header.type != ICMP_ECHOREPLY ||
			 packet.header.un.echo.id != htons(run_id & 0xffff);
		if (*other)
			return len >= 0;
		len -= sizeof(raw.ip);
	} else {
		len = read(in_fd[REQUESTER], &packet, sizeof(packet));
	}
	*m = packet.message;

	return len == sizeof(packet) && packet.header.type == ICMP_ECHOREPLY;
}

/* The request of each period is due at its beginning. */
static long long due(int period)
{
	return sh->start + period * PERIOD;
}

static bool take_answer(const long long *sent_at, int sent)
{
	bool good, other = false;
	struct message m;
	long long now;

	if (via == ICMP)
		good = read_ping(&m, &other);
	else
		good = read(in_fd[REQUESTER], &m, sizeof(m)) == sizeof(m);
	now = now_ns();
	if (!good) {
		report(FAIL, "an answer was not received: %s", strerror(errno));
		return false;
	}
	if (other)
		return true;

	if (m.run != run_id || m.seq >= (unsigned int)sent ||
	    m.word != answer(question(m.seq))) {
		report(FAIL, "wrong answer: %#x to request %u of %d", m.word,
		       m.seq, sent);
		return false;
	}
	if (sh->latency[m.seq]) {
		report(FAIL, "request %u was answered twice", m.seq);
		return false;
	}
	sh->latency[m.seq] = now - due(m.seq);
	sh->rtt[m.seq] = now - sent_at[m.seq];
	sh->answers++;

	return true;
}

static bool wait_readable(long long until)
{
	struct pollfd fd = { .fd = in_fd[REQUESTER], .events = POLLIN };
	long long left = until - now_ns();
	struct timespec ts;

	if (left < 0)
		left = 0;
	ts.tv_sec = left / NSEC_PER_SEC;
	ts.tv_nsec = left % NSEC_PER_SEC;

	return ppoll(&fd, 1, &ts, NULL) > 0;
}

static bool send_and_receive(void)
{
	static long long sent_at[MAX_PERIODS];
	long long give_up;
	int sent = 0;

	prctl(PR_SET_TIMERSLACK, 1);
	if (!set_policy(policy == EXT ? EXT : NORMAL, "requester") ||
	    !wait_for_start())
		return false;

	give_up = due(periods) + GRACE + WATCHDOG / 2;
	while (sh->answers < periods) {
		long long now = now_ns();

		while (sent < periods && now >= due(sent)) {
			sent_at[sent] = now_ns();
			if (!send_request(sent++))
				return false;
		}
		while (wait_readable(sent < periods ? due(sent) : give_up)) {
			if (!take_answer(sent_at, sent))
				return false;
			if (sh->answers == sent)
				break;
		}
		if (sent == periods && now >= give_up) {
			report(FAIL, "%d of %d requests were never answered",
			       periods - sh->answers, periods);
			return false;
		}
	}
	check_cpu("requester");

	return true;
}

/* The main program waits for the byte, and ends the load then. */
static bool run_requester(void)
{
	bool good = send_and_receive();
	char byte = 'd';

	return write(ready_pipe[1], &byte, 1) == 1 && good;
}

static bool run_responder(void)
{
	struct message m;

	if (!set_policy(policy == EXT ? EXT : NORMAL, "responder") ||
	    !wait_for_start())
		return false;

	while (read(in_fd[RESPONDER], &m, sizeof(m)) == sizeof(m)) {
		m.word = answer(m.word);
		if (write(out_fd[RESPONDER], &m, sizeof(m)) != sizeof(m))
			break;
	}
	report(FAIL, "the responder gave up: %s", strerror(errno));

	return false;
}

/*
 * Tasks of a row.
 */

/* A load that does not fit is a skip, and says where it ended. */
static __noreturn void give_up_start(const char *what, int error, int done,
				     int wanted)
{
	report(error == EAGAIN || error == ENOMEM ? SKIP : FAIL,
	       "%s %d of %d: %s", what, done + 1, wanted, strerror(error));
	_exit(1);
}

/* What the process of each side begins with. */
static void prepare_process(const char *cgroup)
{
	close_fd(&start_pipe[1]);
	if (layout != THREADS)
		setsid();
	if (cpu >= 0 && !pin_to(cpu)) {
		report(FAIL, "sched_setaffinity to CPU %d: %s", cpu,
		       strerror(errno));
		_exit(1);
	}
	if (layout == CGROUPS && !join_cgroup(cgroup))
		_exit(1);
}

/* The load ends by itself; its parent waits, and says how. */
static __noreturn void run_load_processes(int load)
{
	int i, status, failed = 0;
	pid_t pid;

	prepare_process("load");
	for (i = 0; i < load; i++) {
		pid = fork_bound();
		if (!pid)
			_exit(!run_load(i));
		if (pid < 0)
			give_up_start("process", errno, i, load);
	}
	while (wait(&status) > 0) {
		if (WIFSIGNALED(status))
			report(FAIL, "a load task was killed by signal %d (%s)",
			       WTERMSIG(status), strsignal(WTERMSIG(status)));
		failed |= status;
	}
	_exit(!!failed);
}

static __noreturn void run_interactive_processes(void)
{
	pid_t pid = -1;
	bool good;

	prepare_process("task");
	if (via != ICMP) {
		pid = fork_bound();
		if (!pid)
			_exit(!run_responder());
		if (pid < 0)
			give_up_start("responder", errno, 0, 1);
	}
	good = run_requester();
	if (pid > 0) {
		kill(pid, SIGKILL);
		waitpid(pid, NULL, 0);
	}
	_exit(!good);
}

static void *load_thread(void *arg)
{
	run_load((long)arg);

	return NULL;
}

static void *requester_thread(void *arg)
{
	run_requester();

	return arg;
}

static void *responder_thread(void *arg)
{
	run_responder();

	return arg;
}

static void start_thread(pthread_t *thread, void *(*run)(void *), long arg,
			 int done, int wanted)
{
	pthread_attr_t attr;
	int error;

	pthread_attr_init(&attr);
	pthread_attr_setstacksize(&attr, 64 * 1024);
	error = pthread_create(thread, &attr, run, (void *)arg);
	pthread_attr_destroy(&attr);
	if (error)
		give_up_start("thread", error, done, wanted);
}

static __noreturn void run_threads(int load, bool interactive)
{
	static pthread_t thread[MAX_LOAD], requester, responder;
	int i;

	prepare_process(NULL);
	if (interactive && via != ICMP)
		start_thread(&responder, responder_thread, 0, 0, 1);
	if (interactive)
		start_thread(&requester, requester_thread, 0, 0, 1);
	for (i = 0; i < load; i++)
		start_thread(&thread[i], load_thread, i, i, load);

	if (interactive)
		pthread_join(requester, NULL);
	for (i = 0; i < load; i++)
		pthread_join(thread[i], NULL);
	_exit(!all_well());
}

/*
 * A row.
 */

/* What fork() would only tell when the machine has hardly anything left. */
static bool load_fits(int load)
{
	long long need = (long long)load *
			 (layout == THREADS ? THREAD_KB : PROCESS_KB) + SPARE_KB;
	long long free = meminfo_kb("MemAvailable");

	if (free < 0 || need <= free)
		return true;
	report(SKIP, "memory in kB: %lld needed, %lld free", need, free);

	return false;
}

/*
 * Up to @want bytes from the ready pipe until @until. Returns how many came,
 * or -1 when all tasks have ended.
 */
static int read_ready(int want, long long until, bool until_problem)
{
	struct pollfd fd = { .fd = ready_pipe[0], .events = POLLIN };
	char bytes[256];
	ssize_t len;
	int got = 0;

	while (got < want && now_ns() < until) {
		if (until_problem && !all_well())
			break;
		if (poll(&fd, 1, 100) <= 0)
			continue;
		len = want - got;
		if (len > (ssize_t)sizeof(bytes))
			len = sizeof(bytes);
		len = read(ready_pipe[0], bytes, len);
		if (len <= 0)
			return -1;
		got += len;
	}

	return got;
}

/* Waits for a while until all tasks have ended, or tells that they have not. */
static void wait_for_end(void)
{
	if (read_ready(INT_MAX, now_ns() + WATCHDOG, false) >= 0)
		report(FAIL, "the tasks did not end within %lld s",
		       WATCHDOG / NSEC_PER_SEC);
}

static void add_answers(struct result *res)
{
	static const char * const latency[] = { "p50", "p99", "max" };
	static const char * const rtt[] = { "rtt_p50", "rtt_p99", "rtt_max" };
	int i, met = 0, cut_short = 0, answers = 0;

	for (i = 0; i < periods; i++) {
		answers += sh->latency[i] > 0;
		met += sh->latency[i] <= PERIOD;
		cut_short += due(i) + sh->latency[i] > sh->stopped_at;
	}
	if (answers != periods || sh->answers != periods)
		report(FAIL, "%d answers to %d requests, %d were counted",
		       answers, periods, sh->answers);
	add_figure(res, "periods", periods);
	add_figure(res, "met", met);
	add_figure(res, "met_percent", 100.0 * met / periods);
	add_figure(res, "cut_short", cut_short);
	add_percentiles(res, sh->latency, periods, latency);
	add_percentiles(res, sh->rtt, periods, rtt);
}

/* What each load task computed while @elapsed ns went by. */
static unsigned long computed[MAX_LOAD];
static long long elapsed;

static unsigned long digits_of(int i)
{
	return __atomic_load_n(&sh->load[i].digits, __ATOMIC_RELAXED);
}

static void add_digits(struct row *row)
{
	double all = 0, rate;
	int i, starved = 0;

	for (i = 0; i < row->load; i++) {
		all += computed[i];
		starved += !computed[i];
	}
	rate = all * NSEC_PER_SEC / elapsed;
	if (!row->interactive)
		reference = rate;
	add_figure(&row->result, "digits", all);
	add_figure(&row->result, "digits_per_s", rate);
	if (reference)
		add_figure(&row->result, "relative", 100 * rate / reference);
	add_figure(&row->result, "starved", starved);
}

static void measure_row(const struct row *row)
{
	long long start;
	int i;

	sh->start = now_ns() + WARMUP;
	close_fd(&start_pipe[1]);
	sleep_until(sh->start);
	start = now_ns();
	for (i = 0; i < row->load; i++)
		computed[i] = digits_of(i);
	/* Without a real-time policy we may be late ourselves. */
	sleep_until(start + periods * PERIOD);
	elapsed = now_ns() - start;
	for (i = 0; i < row->load; i++)
		computed[i] = digits_of(i) - computed[i];

	if (row->interactive)
		read_ready(1, due(periods) + GRACE, false);
	stop_load();
	wait_for_end();
}

/* @leader: the processes of the two sides, or one for both */
static void start_tasks(const struct row *row, pid_t *leader)
{
	if (layout == THREADS) {
		leader[0] = fork_bound();
		if (!leader[0])
			run_threads(row->load, row->interactive);
		return;
	}
	if (row->interactive) {
		leader[0] = fork_bound();
		if (!leader[0])
			run_interactive_processes();
	}
	if (row->load) {
		leader[1] = fork_bound();
		if (!leader[1])
			run_load_processes(row->load);
	}
}

static void end_tasks(const pid_t *leader)
{
	bool by_force = !all_well();
	int i, status;

	for (i = 0; i < 2; i++) {
		if (leader[i] <= 0)
			continue;
		if (by_force)
			kill(leader[i], SIGKILL);
		waitpid(leader[i], &status, 0);
		if (!by_force && WIFSIGNALED(status))
			report(FAIL, "a task was killed by signal %d (%s)",
			       WTERMSIG(status), strsignal(WTERMSIG(status)));
		else if (!by_force && status)
			report(FAIL, "a task gave up");
	}

	/* What they leave behind dies with them, and we inherit it. */
	wait_for_end();
	for (i = 0; i < 2; i++) {
		while (leader[i] > 0 && waitpid(-leader[i], NULL, 0) > 0)
			;
	}
}

static void run_tasks(struct row *row)
{
	int want = row->load + row->interactive * (via == ICMP ? 1 : 2);
	pid_t leader[2] = { -1, -1 };

	run_id = run_id * 31 + getpid() + 1;
	if (pipe2(ready_pipe, O_CLOEXEC) || pipe2(start_pipe, O_CLOEXEC)) {
		report(FAIL, "pipe: %s", strerror(errno));
		return;
	}
	start_tasks(row, leader);
	close_fd(&ready_pipe[1]);
	close_fd(&start_pipe[0]);
	close_channel();

	if (read_ready(want, now_ns() + WATCHDOG, true) == want) {
		measure_row(row);
	} else {
		report(FAIL, "the tasks did not all get ready");
		stop_load();
	}
	end_tasks(leader);

	if (all_well())
		add_digits(row);
	if (all_well() && row->interactive)
		add_answers(&row->result);
}

static void run_row(struct row *row)
{
	int i;

	if (skip_all) {
		report(SKIP, "%s", skip_all);
		return;
	}

	memset(sh, 0, sizeof(*sh));
	if (load_fits(row->load) && (!row->interactive || open_channel()))
		run_tasks(row);
	close_channel();
	for (i = 0; i < 2; i++) {
		close_fd(&ready_pipe[i]);
		close_fd(&start_pipe[i]);
	}
	if (policy == EXT && !ext_enabled())
		report(SKIP, "the BPF scheduler is gone");
}

static void write_json(void)
{
	char more[64];
	int i;

	json_head("pi_ping", "ns");
	json_cpu(cpu);
	fprintf(json, "  \"cpus\": %ld,\n  \"period_ns\": %lld,\n",
		sysconf(_SC_NPROCESSORS_ONLN), PERIOD);
	fprintf(json, "  \"seconds\": %g,\n",
		periods * (double)PERIOD / NSEC_PER_SEC);
	fprintf(json, "  \"layout\": \"%s\",\n  \"policy\": \"%s\",\n",
		layout_names[layout], policy_names[policy]);
	fprintf(json, "  \"via\": \"%s\",\n  \"cases\": [\n",
		via_names[via]);
	for (i = 0; i < nr_rows; i++) {
		snprintf(more, sizeof(more),
			 "\"load\": %d, \"interactive\": %s, ", rows[i].load,
			 rows[i].interactive ? "true" : "false");
		json_case(&rows[i].result, more);
	}
	json_close(json_path);
}

static void usage(void)
{
	printf("Usage: pi_ping [OPTION]...\n"
	       "Measure how an interactive task meets its deadlines beside tasks that compute\n"
	       "digits of pi, and how many digits they compute.\n\n"
	       "  --loads LIST    numbers of load tasks, such as 0,1,16; each 0 to %d\n"
	       "  --max-load N    0, 1, 2, 4 and so on up to N load tasks (default %d)\n"
	       "  --seconds S     how long each load is measured, 0.1 to %d (default %g)\n"
	       "  --layout WHAT   threads, processes or cgroups: the tasks are threads of one\n"
	       "                  process, processes in two sessions, or processes in two\n"
	       "                  cgroups (default %s)\n"
	       "  --policy WHAT   normal or batch for the load, ext for all (default %s)\n"
	       "  --via WHAT      udp, pipe or icmp: how requests are sent (default %s)\n"
	       "  --cpu N         the CPU of all tasks, or any for all CPUs (default: first of\n"
	       "                  the affinity mask)\n"
	       "  --json FILE     write the results to FILE as well\n"
	       "  --help          print this and exit\n\n"
	       "A deadline is met when the answer to the request of a period of %lld ms comes\n"
	       "within it. Times are in ns, met_percent and relative in percent; relative to\n"
	       "the digits that one load task computes with nobody else. starved counts load\n"
	       "tasks that did not compute a digit; cut_short counts answers that only came\n"
	       "when the load had ended, %lld s after the last period.\n\n"
	       "Exit status: %d measured, perhaps with some loads skipped; %d a load failed\n"
	       "or a wrong option; %d all loads were skipped.\n",
	       MAX_LOAD, DEFAULT_LOAD, MAX_SECONDS, seconds,
	       layout_names[layout], policy_names[policy], via_names[via],
	       PERIOD / NSEC_PER_MSEC, GRACE / NSEC_PER_SEC, EXIT_SUCCESS,
	       EXIT_FAILURE, EXIT_SKIPPED);
	exit(EXIT_SUCCESS);
}

static int parse_name(const char *option, const char *text,
		      const char * const *names, int nr)
{
	int i;

	for (i = 0; i < nr; i++) {
		if (!strcmp(text, names[i]))
			return i;
	}
	usage_error("--%s %s: no such name, see --help", option, text);
}

/* The reference comes before the first load. */
static void add_row(int load, bool interactive)
{
	struct row *row = &rows[nr_rows];
	int i;

	for (i = 1; i < nr_rows; i++) {
		if (rows[i].load == load)
			usage_error("--loads: %d is there twice", load);
	}
	if (nr_rows == 1 + MAX_ROWS)
		usage_error("--loads: more than %d numbers", MAX_ROWS);
	row->load = load;
	row->interactive = interactive;
	if (interactive)
		snprintf(row->result.name, sizeof(row->result.name), "load-%d",
			 load);
	else
		strcpy(row->result.name, "reference");
	nr_rows++;
}

static void parse_loads(char *list)
{
	char *word;

	while ((word = strsep(&list, ",")))
		add_row(parse_whole("loads", word, 0, MAX_LOAD), true);
}

static void add_powers_of_two(int max)
{
	int load;

	add_row(0, true);
	for (load = 1; load <= max; load *= 2)
		add_row(load, true);
}

static void parse_options(int argc, char **argv)
{
	static const struct option options[] = {
		{ "loads", required_argument, NULL, 'l' },
		{ "max-load", required_argument, NULL, 'm' },
		{ "seconds", required_argument, NULL, 's' },
		{ "layout", required_argument, NULL, 'y' },
		{ "policy", required_argument, NULL, 'p' },
		{ "via", required_argument, NULL, 'v' },
		{ "cpu", required_argument, NULL, 'c' },
		{ "json", required_argument, NULL, 'j' },
		{ "help", no_argument, NULL, 'h' },
		{}
	};
	char *list = NULL, *max = NULL;
	int opt;

	cpu = first_cpu();
	while ((opt = getopt_long(argc, argv, "", options, NULL)) != -1) {
		switch (opt) {
		case 'l':
			list = optarg;
			break;
		case 'm':
			max = optarg;
			break;
		case 's':
			seconds = parse_number("seconds", optarg, 0.1,
					       MAX_SECONDS);
			break;
		case 'y':
			layout = parse_name("layout", optarg, layout_names,
					    NR_LAYOUTS);
			break;
		case 'p':
			policy = parse_name("policy", optarg, policy_names,
					    NR_POLICIES);
			break;
		case 'v':
			via = parse_name("via", optarg, via_names, NR_VIAS);
			break;
		case 'c':
			cpu = parse_cpu(optarg, "any");
			break;
		case 'j':
			json_path = optarg;
			break;
		case 'h':
			usage();
			break;
		default:
			exit(EXIT_FAILURE);
		}
	}
	if (optind < argc)
		usage_error("%s: unexpected argument, see --help", argv[optind]);
	if (list && max)
		usage_error("--loads and --max-load: only one of them");

	add_row(1, false);
	if (list)
		parse_loads(list);
	else
		add_powers_of_two(max ? parse_whole("max-load", max, 0,
						    MAX_LOAD) : DEFAULT_LOAD);
	periods = seconds * NSEC_PER_SEC / PERIOD + 0.5;
	if (json_path)
		json_open(json_path);
}

static int measure(void)
{
	const struct sched_param param = { .sched_priority = 50 };
	char where[16] = "any";
	int i;

	prctl(PR_SET_CHILD_SUBREAPER, 1);
	/* We shall wake up in time beside any load; without it, if must be. */
	sched_setscheduler(0, SCHED_FIFO | SCHED_RESET_ON_FORK, &param);

	if (cpu >= 0)
		snprintf(where, sizeof(where), "%d", cpu);
	printf("%s, policy %s, via %s, CPU %s, tick %lld ns, %d periods\n",
	       layout_names[layout], policy_names[policy], via_names[via],
	       where, tick_ns(), periods);
	fflush(stdout);

	for (i = 0; i < nr_rows; i++) {
		run_row(&rows[i]);
		end_case(&rows[i].result);
	}
	if (json)
		write_json();

	return exit_status();
}

int main(int argc, char **argv)
{
	parse_options(argc, argv);
	signal(SIGPIPE, SIG_IGN);

	read_pi_groups();
	problem = map_shared(sizeof(*problem));
	sh = map_shared(sizeof(*sh));
	if (layout == CGROUPS)
		skip_all = make_cgroups("pi_ping");
	if (!skip_all && policy == EXT && !ext_enabled())
		skip_all = "no BPF scheduler is loaded";

	return measure_and_clean_up(measure, remove_cgroups);
}
