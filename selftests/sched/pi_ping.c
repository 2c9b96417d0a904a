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
 *   machine. Every digit is compared with those from another formula.
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
 * It measures and reports. No figure makes it fail: that depends on the
 * machine, and comparing is up to the caller. A load fails on a wrong digit, a
 * wrong, lost or doubled answer, and when a task died, hung or ran elsewhere
 * than it should. Whatever is missing to run a load makes it a skip that says
 * so; a run of nothing but skips exits with KSFT_SKIP.
 */
#include <getopt.h>
#include <poll.h>
#include <pthread.h>
#include <arpa/inet.h>
#include <net/if.h>
#include <netinet/in.h>
#include <netinet/ip.h>
#include <netinet/ip_icmp.h>
#include <sys/ioctl.h>
#include <sys/resource.h>
#include <sys/socket.h>

#include "bench_helpers.h"

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

/* Measured, and rounded up. */
#define PROCESS_KB	256
#define THREAD_KB	64
#define SPARE_KB	(64 * 1024)
/* The two that ask and answer, those that lead, a guardian, some to spare. */
#define FEW_TASKS	16

/*
 * Digits of pi, four at a time.
 */

#define BASE		10000
#define GROUP_DIGITS	4
#define PI_GROUPS	26
#define PI_DIGITS	(1 + GROUP_DIGITS * (PI_GROUPS - 1))

/* A term gives one bit, a group takes log2(10000) = 13.3 of them. */
#define GROUP_TERMS	14
#define PI_TERMS	(GROUP_TERMS * PI_GROUPS)

#define GUARD_GROUPS	2
#define FIXED_GROUPS	(PI_GROUPS + GUARD_GROUPS)

static const char known_digits[] =
	"3141592653589793238462643383279502884197169399375105";

/* 3, 1415, 9265 and so on, by Machin's formula; the load uses another one. */
static uint16_t pi_groups[PI_GROUPS];

/* Fixed point: a group before the point, the others after it. */
struct fixed {
	int32_t group[FIXED_GROUPS];
};

static bool fixed_divide(struct fixed *f, uint32_t by)
{
	uint32_t rest = 0;
	bool any = false;
	int i;

	for (i = 0; i < FIXED_GROUPS; i++) {
		rest = rest * BASE + f->group[i];
		f->group[i] = rest / by;
		rest %= by;
		any |= f->group[i];
	}

	return any;
}

/* Carries are left for the end: a group sums up to 100 terms below BASE. */
static void fixed_add(struct fixed *sum, const struct fixed *f, int times)
{
	int i;

	for (i = 0; i < FIXED_GROUPS; i++)
		sum->group[i] += times * f->group[i];
}

/* sum += times * atan(1 / x) */
static void add_arctan(struct fixed *sum, int times, uint32_t x)
{
	struct fixed power = { .group[0] = 1 }, term;
	uint32_t odd = 1;

	fixed_divide(&power, x);
	do {
		term = power;
		fixed_divide(&term, odd);
		fixed_add(sum, &term, times);
		odd += 2;
		times = -times;
	} while (fixed_divide(&power, x * x));
}

/* Tells whether it comes to the digits that everybody knows. */
static bool make_pi(void)
{
	struct fixed sum = {};
	char text[PI_DIGITS + 1];
	int i, len = 0;

	add_arctan(&sum, 16, 5);
	add_arctan(&sum, -4, 239);
	for (i = FIXED_GROUPS - 1; i > 0; i--) {
		int carry = sum.group[i] / BASE - (sum.group[i] % BASE < 0);

		sum.group[i] -= carry * BASE;
		sum.group[i - 1] += carry;
	}

	for (i = 0; i < PI_GROUPS; i++) {
		pi_groups[i] = sum.group[i];
		len += snprintf(text + len, sizeof(text) - len,
				i ? "%04u" : "%u", pi_groups[i]);
	}

	return !strncmp(text, known_digits, strlen(known_digits));
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

struct result {
	char name[32];
	int load;
	bool interactive;
	struct outcome outcome;
};

/* A cache line of its own for each that counts. */
struct counter {
	unsigned long digits;
	char rest[64 - sizeof(unsigned long)];
};

/**
 * struct shared - what the tasks of a row and the main program share
 * @said:	the first reason for each verdict, and whether there is one
 * @start:	of the first period, in ns; written before the tasks may go
 * @stop:	the load has to end
 * @stopped_at:	when it was told so, in ns
 * @answers:	how many requests were answered
 * @latency:	of each request in ns, 0 when it was not answered
 * @rtt:	the part of it after sending the request
 * @load:	digits that each load task computed
 */
struct shared {
	struct {
		int taken;
		char text[200];
	} said[NR_VERDICTS];
	long long start;
	bool stop;
	long long stopped_at;
	int answers;
	long long latency[MAX_PERIODS], rtt[MAX_PERIODS];
	struct counter load[MAX_LOAD];
};

static struct result results[1 + MAX_ROWS];
static int loads[MAX_ROWS];
static int nr_loads;
static struct shared *sh;

static double seconds = 1.5;
static int periods;
static enum layout layout = PROCESSES;
static enum policy policy = NORMAL;
static enum via via = UDP;
static const char *json_path;
/* -1: any */
static int cpu = -1;
static char skip_all[200];
static double reference;

static __printf(2, 3) void report(enum verdict verdict, const char *fmt, ...)
{
	va_list args;

	if (__atomic_exchange_n(&sh->said[verdict].taken, 1, __ATOMIC_RELAXED))
		return;
	va_start(args, fmt);
	vsnprintf(sh->said[verdict].text, sizeof(sh->said[verdict].text), fmt,
		  args);
	va_end(args);
}

static enum verdict worst_said(void)
{
	return sh->said[FAIL].taken ? FAIL : sh->said[SKIP].taken ? SKIP : OK;
}

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
 * A task says that it is ready, and starts when nobody is left who holds the
 * other end of the gate. The ready pipe tells as well when all have ended.
 */
static int ready[2] = { -1, -1 }, gate[2] = { -1, -1 };

static bool pass_gate(void)
{
	char byte = 'r';

	if (write(ready[1], &byte, 1) != 1)
		return false;

	return !read(gate[0], &byte, 1);
}

static void close_fd(int *fd)
{
	if (*fd >= 0)
		close(*fd);
	*fd = -1;
}

static void close_pipe(int *fds)
{
	close_fd(&fds[0]);
	close_fd(&fds[1]);
}

static bool become(enum policy p, const char *who)
{
	static const struct sched_param param;

	if (sched_setscheduler(0, policies[p], &param)) {
		report(errno == EPERM ? SKIP : FAIL, "%s: policy %s: %s", who,
		       policy_names[p], strerror(errno));
		return false;
	}
	if (sched_getscheduler(0) != policies[p]) {
		report(FAIL, "%s: has another policy than it asked for", who);
		return false;
	}

	return true;
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

	if (!become(policy, "load") || !pass_gate())
		return false;

	spigot_start(&s);
	while (!stopped()) {
		uint32_t group = spigot_next(&s);

		if (group != pi_groups[s.group - 1]) {
			report(FAIL, "load task %d: pi has %04u, not %04u from digit %d on",
			       me, pi_groups[s.group - 1], group,
			       s.group == 1 ? 1 : s.group * GROUP_DIGITS - 6);
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
 * The one who asks and the one who answers.
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

/* [0] belongs to the one who asks, [1] to the one who answers. */
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
	in_fd[1] = there[0];
	out_fd[0] = there[1];
	if (pipe2(back, O_CLOEXEC))
		return strerror(errno);
	in_fd[0] = back[0];
	out_fd[1] = back[1];

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

	return check_loopback(in_fd[0]);
}

static const char *open_icmp(void)
{
	struct sockaddr_in address = {
		.sin_family = AF_INET,
		.sin_addr.s_addr = htonl(INADDR_LOOPBACK),
	};

	raw_socket = false;
	in_fd[0] = socket(AF_INET, SOCK_DGRAM | SOCK_CLOEXEC, IPPROTO_ICMP);
	if (in_fd[0] < 0) {
		raw_socket = true;
		in_fd[0] = socket(AF_INET, SOCK_RAW | SOCK_CLOEXEC,
				  IPPROTO_ICMP);
	}
	if (in_fd[0] < 0)
		return "neither a ping socket nor a raw socket is allowed";
	out_fd[0] = in_fd[0];
	if (connect(in_fd[0], (struct sockaddr *)&address, sizeof(address)))
		return strerror(errno);

	return check_loopback(in_fd[0]);
}

static bool open_channel(void)
{
	const char *reason = NULL;

	switch (via) {
	case UDP:
		reason = open_udp();
		break;
	case PIPE:
		reason = open_pipes();
		break;
	case ICMP:
		reason = open_icmp();
		break;
	default:
		break;
	}
	if (!reason)
		return true;

	report(SKIP, "%s: %s", via_names[via], reason);
	close_channel();

	return false;
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

static bool send_question(uint32_t seq)
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
	if (write(out_fd[0], data, len) == len)
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

	*other = false;
	if (raw_socket) {
		len = read(in_fd[0], &raw, sizeof(raw));
		packet = raw.packet;
		*other = packet.header.type != ICMP_ECHOREPLY ||
			 packet.header.un.echo.id != htons(run_id & 0xffff);
		if (*other)
			return len >= 0;
		len -= sizeof(raw.ip);
	} else {
		len = read(in_fd[0], &packet, sizeof(packet));
	}
	*m = packet.message;

	return len == sizeof(packet) && packet.header.type == ICMP_ECHOREPLY;
}

static bool read_answer(struct message *m, bool *other)
{
	if (via == ICMP)
		return read_ping(m, other);
	*other = false;

	return read(in_fd[0], m, sizeof(*m)) == sizeof(*m);
}

/* The request of each period is due at its beginning. */
static long long due(int period)
{
	return sh->start + period * PERIOD;
}

static bool take_answer(const long long *sent_at, int sent)
{
	struct message m;
	long long now;
	bool other;

	if (!read_answer(&m, &other)) {
		report(FAIL, "an answer was not received: %s", strerror(errno));
		return false;
	}
	now = now_ns();
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
	struct pollfd fd = { .fd = in_fd[0], .events = POLLIN };
	long long left = until - now_ns();
	struct timespec ts;

	if (left < 0)
		left = 0;
	ts.tv_sec = left / NSEC_PER_SEC;
	ts.tv_nsec = left % NSEC_PER_SEC;

	return ppoll(&fd, 1, &ts, NULL) > 0;
}

static bool ask(void)
{
	static long long sent_at[MAX_PERIODS];
	long long give_up;
	int sent = 0;

	prctl(PR_SET_TIMERSLACK, 1);
	if (!become(policy == EXT ? EXT : NORMAL, "asker") || !pass_gate())
		return false;

	give_up = due(periods) + GRACE + WATCHDOG / 2;
	while (sh->answers < periods) {
		long long now = now_ns();

		while (sent < periods && now >= due(sent)) {
			sent_at[sent] = now_ns();
			if (!send_question(sent++))
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
	check_cpu("asker");

	return true;
}

/* The load may end then. */
static bool run_asker(void)
{
	bool good = ask();
	char byte = 'd';

	return write(ready[1], &byte, 1) == 1 && good;
}

static bool run_answerer(void)
{
	struct message m;

	if (!become(policy == EXT ? EXT : NORMAL, "answerer") || !pass_gate())
		return false;

	while (read(in_fd[1], &m, sizeof(m)) == sizeof(m)) {
		m.word = answer(m.word);
		if (write(out_fd[1], &m, sizeof(m)) != sizeof(m))
			break;
	}
	report(FAIL, "the answerer gave up: %s", strerror(errno));

	return false;
}

/*
 * Two cgroups, and who removes them.
 */

enum side {
	INTERACTIVE,
	LOAD,
	NR_SIDES,
};

static const char * const side_names[NR_SIDES] = {
	[INTERACTIVE]	= "interactive",
	[LOAD]		= "load",
};

static char cgroup_root[PATH_MAX / 4];
static char cgroup_top[PATH_MAX / 2];
static char cgroup_dir[NR_SIDES][PATH_MAX];
static bool cgroup_enabled;
static pid_t cgroup_guard = -1;
static int cgroup_guard_fd = -1;

static void cgroup_path(char *path, size_t size, const char *dir,
			const char *name)
{
	snprintf(path, size, "%s/%s", dir, name);
}

static void cgroup_remove(void)
{
	char path[PATH_MAX];
	int i;

	for (i = 0; i < NR_SIDES; i++)
		remove_cgroup(cgroup_dir[i]);
	remove_cgroup(cgroup_top);
	if (cgroup_enabled) {
		cgroup_path(path, sizeof(path), cgroup_root,
			    "cgroup.subtree_control");
		write_text(path, "-cpu");
	}
}

static __noreturn void cgroup_guard_run(int fd)
{
	guard_wait(fd);
	cgroup_remove();
	_exit(0);
}

static void cgroup_close(void)
{
	if (cgroup_guard_fd < 0)
		return;
	close_fd(&cgroup_guard_fd);
	while (waitpid(cgroup_guard, NULL, 0) < 0 && errno == EINTR)
		;
}

static const char *cgroup_guard_start(void)
{
	int pipes[2];

	if (pipe2(pipes, O_CLOEXEC))
		return strerror(errno);
	cgroup_guard = fork();
	if (cgroup_guard < 0)
		return strerror(errno);
	if (!cgroup_guard) {
		close(pipes[1]);
		cgroup_guard_run(pipes[0]);
	}
	close(pipes[0]);
	cgroup_guard_fd = pipes[1];

	return NULL;
}

/* Returns why there are no two cgroups, or NULL. */
static const char *cgroup_open(void)
{
	char path[PATH_MAX];
	const char *reason;
	int i;

	if (geteuid())
		return "not root";
	if (!find_cgroup2(cgroup_root, sizeof(cgroup_root)))
		return "no cgroup2";
	cgroup_path(path, sizeof(path), cgroup_root, "cgroup.controllers");
	if (!has_word(path, "cpu"))
		return "cgroup2 has no cpu controller";
	snprintf(cgroup_top, sizeof(cgroup_top), "%s/pi_ping.%d", cgroup_root,
		 getpid());
	for (i = 0; i < NR_SIDES; i++)
		cgroup_path(cgroup_dir[i], sizeof(cgroup_dir[i]), cgroup_top,
			    side_names[i]);

	cgroup_path(path, sizeof(path), cgroup_root, "cgroup.subtree_control");
	cgroup_enabled = !has_word(path, "cpu");
	reason = cgroup_guard_start();
	if (reason)
		return reason;
	if (cgroup_enabled && !write_text(path, "+cpu"))
		return "the cpu controller cannot be enabled in cgroup2";
	if (mkdir(cgroup_top, 0755))
		return "no cgroup can be made";
	cgroup_path(path, sizeof(path), cgroup_top, "cgroup.subtree_control");
	if (!write_text(path, "+cpu"))
		return "the cpu controller cannot be enabled in a cgroup";
	for (i = 0; i < NR_SIDES; i++) {
		if (mkdir(cgroup_dir[i], 0755))
			return "no cgroup can be made";
	}

	return NULL;
}

static bool cgroup_join(enum side side)
{
	char path[PATH_MAX + 32];

	cgroup_path(path, sizeof(path), cgroup_dir[side], "cgroup.procs");
	if (write_text(path, "0"))
		return true;
	report(FAIL, "%s cannot be joined: %s", path, strerror(errno));

	return false;
}

/*
 * Tasks of a row.
 */

/* A load that does not fit is a skip, and says where it ended. */
static void report_fork(const char *what, int error, int done, int wanted)
{
	report(error == EAGAIN || error == ENOMEM ? SKIP : FAIL,
	       "%s %d of %d: %s", what, done + 1, wanted, strerror(error));
}

static void pin_or_exit(void)
{
	if (cpu < 0 || pin_to(cpu))
		return;
	report(FAIL, "sched_setaffinity to CPU %d: %s", cpu, strerror(errno));
	_exit(1);
}

/* What each of the two sessions begins with. */
static void lead(enum side side)
{
	close_fd(&gate[1]);
	setsid();
	pin_or_exit();
	if (layout == CGROUPS && !cgroup_join(side))
		_exit(1);
}

/* Everybody in here ends by himself, or says why not. */
static bool wait_children(void)
{
	bool good = true;
	int status;

	while (wait(&status) > 0) {
		if (WIFSIGNALED(status))
			report(FAIL, "a load task was killed by signal %d (%s)",
			       WTERMSIG(status), strsignal(WTERMSIG(status)));
		if (status)
			good = false;
	}

	return good;
}

static __noreturn void lead_load(int load)
{
	pid_t pid;
	int i;

	lead(LOAD);
	for (i = 0; i < load; i++) {
		pid = fork_bound();
		if (!pid)
			_exit(!run_load(i));
		if (pid < 0) {
			report_fork("process", errno, i, load);
			_exit(1);
		}
	}
	/* The pipe shall tell when the load has ended, not when we have. */
	_exit(!wait_children());
}

static __noreturn void lead_interactive(void)
{
	pid_t pid = -1;
	bool good;

	lead(INTERACTIVE);
	if (via != ICMP) {
		pid = fork_bound();
		if (!pid)
			_exit(!run_answerer());
		if (pid < 0) {
			report_fork("answerer", errno, 0, 1);
			_exit(1);
		}
	}
	good = run_asker();
	end_child(pid);
	_exit(!good);
}

static void *load_thread(void *arg)
{
	run_load((long)arg);

	return NULL;
}

static void *asker_thread(void *arg)
{
	run_asker();

	return arg;
}

static void *answerer_thread(void *arg)
{
	run_answerer();

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
	if (!error)
		return;
	report_fork("thread", error, done, wanted);
	_exit(1);
}

static __noreturn void run_threads(int load, bool interactive)
{
	static pthread_t thread[MAX_LOAD], asker, answerer;
	int i;

	close_fd(&gate[1]);
	pin_or_exit();
	if (interactive && via != ICMP)
		start_thread(&answerer, answerer_thread, 0, 0, 1);
	if (interactive)
		start_thread(&asker, asker_thread, 0, 0, 1);
	for (i = 0; i < load; i++)
		start_thread(&thread[i], load_thread, i, i, load);

	if (interactive)
		pthread_join(asker, NULL);
	for (i = 0; i < load; i++)
		pthread_join(thread[i], NULL);
	_exit(worst_said() == FAIL);
}

/*
 * A row.
 */

static long read_number(const char *path)
{
	char text[64];

	return read_text(path, text, sizeof(text)) ? atol(text) : -1;
}

/* Threads of the whole machine: "0.00 0.00 0.00 running/all last" */
static long count_tasks(void)
{
	char text[128];
	long tasks;

	if (!read_text("/proc/loadavg", text, sizeof(text)) ||
	    sscanf(text, "%*s %*s %*s %*[^/]/%ld", &tasks) != 1)
		return 0;

	return tasks;
}

static bool above(const char *what, long wanted, long limit)
{
	if (limit < 0 || wanted <= limit)
		return false;
	report(SKIP, "%s: %ld needed, %ld allowed", what, wanted, limit);

	return true;
}

/* What fork() would only tell when the machine has hardly anything left. */
static bool load_fits(int load)
{
	long kb = load * (layout == THREADS ? THREAD_KB : PROCESS_KB);
	long tasks = load + FEW_TASKS;
	struct rlimit limit;

	if (above("memory in kB", kb + SPARE_KB, available_kb()) ||
	    above("kernel.threads-max", tasks + count_tasks(),
		  read_number("/proc/sys/kernel/threads-max")) ||
	    above("kernel.pid_max", tasks + count_tasks(),
		  read_number("/proc/sys/kernel/pid_max")))
		return false;
	if (geteuid() && !getrlimit(RLIMIT_NPROC, &limit) &&
	    limit.rlim_cur != RLIM_INFINITY &&
	    above("limit of processes", tasks, limit.rlim_cur))
		return false;

	return true;
}

/*
 * Up to @want bytes from the ready pipe until @until. Returns how many came,
 * or -1 when all tasks have ended.
 */
static int read_ready(int want, long long until, bool until_failed)
{
	struct pollfd fd = { .fd = ready[0], .events = POLLIN };
	char bytes[256];
	ssize_t len;
	int got = 0;

	while (got < want && now_ns() < until) {
		if (until_failed && worst_said() != OK)
			break;
		if (poll(&fd, 1, 100) <= 0)
			continue;
		len = want - got;
		if (len > (ssize_t)sizeof(bytes))
			len = sizeof(bytes);
		len = read(ready[0], bytes, len);
		if (len <= 0)
			return -1;
		got += len;
	}

	return got;
}

static unsigned long digits_of(int i)
{
	return __atomic_load_n(&sh->load[i].digits, __ATOMIC_RELAXED);
}

static void add_answers(struct outcome *out)
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
	add_figure(out, "periods", periods);
	add_figure(out, "met", met);
	add_figure(out, "met_percent", 100.0 * met / periods);
	add_figure(out, "cut_short", cut_short);
	add_percentiles(out, sh->latency, periods, latency);
	add_percentiles(out, sh->rtt, periods, rtt);
}

/* What the load computed in which time, in ns. */
static unsigned long computed[MAX_LOAD];
static long long elapsed;

static void add_digits(struct result *res)
{
	double all = 0, rate;
	int i, starved = 0;

	for (i = 0; i < res->load; i++) {
		all += computed[i];
		starved += !computed[i];
	}
	rate = all * NSEC_PER_SEC / elapsed;
	if (!res->interactive)
		reference = rate;
	add_figure(&res->outcome, "digits", all);
	add_figure(&res->outcome, "digits_per_s", rate);
	if (reference)
		add_figure(&res->outcome, "relative", 100 * rate / reference);
	add_figure(&res->outcome, "starved", starved);
}

static void measure(const struct result *res)
{
	long long start;
	int i;

	sleep_until(sh->start);
	start = now_ns();
	for (i = 0; i < res->load; i++)
		computed[i] = digits_of(i);
	/* Without a real-time policy we may be late ourselves. */
	sleep_until(start + periods * PERIOD);
	elapsed = now_ns() - start;
	for (i = 0; i < res->load; i++)
		computed[i] = digits_of(i) - computed[i];

	if (res->interactive)
		read_ready(1, due(periods) + GRACE, false);
	stop_load();
	if (read_ready(INT_MAX, now_ns() + WATCHDOG, false) >= 0)
		report(FAIL, "the tasks did not end within %lld s",
		       WATCHDOG / NSEC_PER_SEC);
}

static void start_tasks(struct result *res, pid_t *leader)
{
	if (layout == THREADS) {
		leader[LOAD] = fork_bound();
		if (!leader[LOAD])
			run_threads(res->load, res->interactive);
	} else {
		if (res->interactive) {
			leader[INTERACTIVE] = fork_bound();
			if (!leader[INTERACTIVE])
				lead_interactive();
		}
		if (res->load) {
			leader[LOAD] = fork_bound();
			if (!leader[LOAD])
				lead_load(res->load);
		}
	}
}

static void end_tasks(const pid_t *leader, bool by_force)
{
	int i, status;

	for (i = 0; i < NR_SIDES; i++) {
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
	if (read_ready(INT_MAX, now_ns() + WATCHDOG, false) >= 0)
		report(FAIL, "not all tasks ended");
	for (i = 0; i < NR_SIDES; i++) {
		while (leader[i] > 0 && waitpid(-leader[i], NULL, 0) > 0)
			;
	}
}

static void run_tasks(struct result *res)
{
	int want = res->load + res->interactive * (via == ICMP ? 1 : 2);
	pid_t leader[NR_SIDES] = { -1, -1 };

	run_id = run_id * 31 + getpid() + 1;
	if (pipe2(ready, O_CLOEXEC) || pipe2(gate, O_CLOEXEC)) {
		report(FAIL, "pipe: %s", strerror(errno));
		return;
	}
	start_tasks(res, leader);
	close_fd(&ready[1]);
	close_fd(&gate[0]);
	close_channel();

	if (read_ready(want, now_ns() + WATCHDOG, true) == want) {
		sh->start = now_ns() + WARMUP;
		close_fd(&gate[1]);
		measure(res);
	} else {
		/* Whatever was said before has precedence. */
		if (worst_said() == OK)
			report(FAIL, "the tasks did not all get ready");
		stop_load();
	}
	end_tasks(leader, worst_said() != OK);

	if (worst_said() == OK)
		add_digits(res);
	if (worst_said() == OK && res->interactive)
		add_answers(&res->outcome);
}

static void run_row(struct result *res)
{
	enum verdict verdict;

	if (skip_all[0]) {
		set_outcome(&res->outcome, SKIP, skip_all);
		return;
	}

	memset(sh, 0, sizeof(*sh));
	if (load_fits(res->load) && (!res->interactive || open_channel()))
		run_tasks(res);
	close_channel();
	close_pipe(ready);
	close_pipe(gate);
	if (policy == EXT && !ext_enabled())
		report(SKIP, "the BPF scheduler is gone");

	verdict = worst_said();
	set_outcome(&res->outcome, verdict, sh->said[verdict].text);
}

static void json_result(FILE *file, const struct result *res)
{
	fprintf(file, "    {\"name\": \"%s\", ", res->name);
	json_status(file, &res->outcome);
	fprintf(file, ", \"load\": %d, \"interactive\": %s", res->load,
		res->interactive ? "true" : "false");
	json_figures(file, &res->outcome);
	fprintf(file, "}");
}

static void json_all(FILE *file)
{
	int i;

	json_head(file, "pi_ping", cpu);
	fprintf(file, "  \"cpus\": %ld,\n  \"tick_ns\": %lld,\n",
		sysconf(_SC_NPROCESSORS_ONLN), tick_ns());
	fprintf(file, "  \"period_ns\": %lld,\n  \"seconds\": %g,\n", PERIOD,
		periods * (double)PERIOD / NSEC_PER_SEC);
	fprintf(file, "  \"layout\": \"%s\",\n  \"policy\": \"%s\",\n",
		layout_names[layout], policy_names[policy]);
	fprintf(file, "  \"via\": \"%s\",\n  \"autogroup\": %s,\n",
		via_names[via], json_autogroup());
	fprintf(file, "  \"cases\": [\n");
	for (i = 0; i < nr_loads + 1; i++) {
		if (i)
			fprintf(file, ",\n");
		json_result(file, &results[i]);
	}
	fprintf(file, "\n  ]\n}\n");
}

static bool json_write(void)
{
	char name[PATH_MAX];
	FILE *file;

	file = json_open(json_path, name, sizeof(name));
	if (!file)
		return false;
	json_all(file);

	return json_close(file, json_path, name);
}

static void usage(const char *name)
{
	printf("Usage: %s [OPTION]...\n"
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
	       "when the load had ended, %lld s after the last period. KSFT_MACHINE_SLOW=yes\n"
	       "in the environment divides the default of --seconds by four.\n\n"
	       "Exit status: %d measured, perhaps with some loads skipped; %d a load failed\n"
	       "or a wrong option; %d all loads were skipped.\n",
	       name, MAX_LOAD, DEFAULT_LOAD, MAX_SECONDS, seconds,
	       layout_names[layout], policy_names[policy], via_names[via],
	       PERIOD / NSEC_PER_MSEC, GRACE / NSEC_PER_SEC, KSFT_PASS, KSFT_FAIL, KSFT_SKIP);
}

static double parse_seconds(const char *text)
{
	double value;

	if (!is_number(text, 0.1, MAX_SECONDS, &value))
		usage_error("--seconds %s: not a number from 0.1 to %d", text,
			    MAX_SECONDS);

	return value;
}

static int parse_count(const char *option, const char *text, int max)
{
	long value;
	char *end;

	errno = 0;
	value = strtol(text, &end, 10);
	if (*text < '0' || *text > '9' || *end || errno || value > max)
		usage_error("--%s %s: not a whole number from 0 to %d", option,
			    text, max);

	return value;
}

static int parse_name(const char *option, const char *text,
		      const char * const *names, int nr)
{
	char all[64] = "";
	size_t len = 0;
	int i;

	for (i = 0; i < nr; i++) {
		if (!strcmp(text, names[i]))
			return i;
		len += snprintf(all + len, sizeof(all) - len, "%s%s",
				!i ? "" : i == nr - 1 ? " or " : ", ",
				names[i]);
	}
	usage_error("--%s %s: not %s", option, text, all);
}

static void add_load(int load)
{
	int i;

	for (i = 0; i < nr_loads; i++) {
		if (loads[i] == load)
			usage_error("--loads: %d is there twice", load);
	}
	if (nr_loads == MAX_ROWS)
		usage_error("--loads: more than %d numbers", MAX_ROWS);
	loads[nr_loads++] = load;
}

static void parse_loads(const char *list)
{
	char *copy = strdup(list), *rest = copy, *word;

	if (!copy)
		usage_error("--loads: %s", strerror(errno));
	while ((word = strsep(&rest, ",")))
		add_load(parse_count("loads", word, MAX_LOAD));
	free(copy);
}

static void powers_of_two(int max)
{
	int load;

	add_load(0);
	for (load = 1; load <= max; load *= 2)
		add_load(load);
}

static void parse_cpu(const char *text)
{
	cpu_set_t *mask;
	size_t size;

	if (!strcmp(text, "any")) {
		cpu = -1;
		return;
	}
	cpu = parse_count("cpu", text, MAX_CPUS - 1);

	mask = CPU_ALLOC(MAX_CPUS);
	size = CPU_ALLOC_SIZE(MAX_CPUS);
	if (!mask || sched_getaffinity(0, size, mask))
		usage_error("--cpu %s: %s", text, strerror(errno));
	if (!pin_to(cpu))
		usage_error("--cpu %s: no such CPU that could be used", text);
	sched_setaffinity(0, size, mask);
	CPU_FREE(mask);
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
	const char *list = NULL, *max = NULL;
	int opt;

	cpu = first_cpu();
	if (machine_slow())
		seconds /= 4;

	while ((opt = getopt_long(argc, argv, "", options, NULL)) != -1) {
		switch (opt) {
		case 'l':
			list = optarg;
			break;
		case 'm':
			max = optarg;
			break;
		case 's':
			seconds = parse_seconds(optarg);
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
			parse_cpu(optarg);
			break;
		case 'j':
			json_path = optarg;
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
	if (list && max)
		usage_error("--loads and --max-load: only one of them");

	if (list)
		parse_loads(list);
	else
		powers_of_two(max ? parse_count("max-load", max, MAX_LOAD) :
				    DEFAULT_LOAD);
	periods = seconds * NSEC_PER_SEC / PERIOD + 0.5;
}

static void prepare(void)
{
	const struct sched_param param = { .sched_priority = 50 };
	const char *reason = NULL;

	if (layout == CGROUPS)
		reason = cgroup_open();
	if (!reason && policy == EXT && !ext_enabled())
		reason = "no BPF scheduler is loaded";
	if (reason)
		snprintf(skip_all, sizeof(skip_all), "%s", reason);

	prctl(PR_SET_CHILD_SUBREAPER, 1);
	/* We shall wake up in time beside any load; without it, if must be. */
	sched_setscheduler(0, SCHED_FIFO | SCHED_RESET_ON_FORK, &param);

	sh = map_shared(sizeof(*sh));
}

int main(int argc, char **argv)
{
	char where[16] = "any";
	int i;

	parse_options(argc, argv);
	if (json_path && !json_possible(json_path))
		exit(KSFT_FAIL);

	signal(SIGCHLD, SIG_DFL);
	signal(SIGPIPE, SIG_IGN);
	/* A child must not inherit what is not written yet. */
	setvbuf(stdout, NULL, _IOLBF, 0);

	ksft_print_header();
	if (!make_pi())
		ksft_exit_fail_msg("Machin's formula comes to wrong digits of pi\n");
	prepare();
	ksft_set_plan(nr_loads + 1);
	if (cpu >= 0)
		snprintf(where, sizeof(where), "%d", cpu);
	ksft_print_msg("%s, policy %s, via %s, CPU %s, tick %lld ns, %d periods\n",
		       layout_names[layout], policy_names[policy],
		       via_names[via], where, tick_ns(), periods);

	for (i = 0; i < nr_loads + 1; i++) {
		struct result *res = &results[i];

		res->interactive = i;
		res->load = i ? loads[i - 1] : 1;
		if (i)
			snprintf(res->name, sizeof(res->name), "load-%d",
				 res->load);
		else
			strcpy(res->name, "reference");
		run_row(res);
		print_outcome(res->name, &res->outcome);
	}
	cgroup_close();

	if (json_path && !json_write())
		exit(KSFT_FAIL);

	finish();
}
