// SPDX-License-Identifier: GPL-2.0
/*
 * How long interactive tasks wait for the CPU beside loads.
 *
 * What is measured, and beside what, is defined by Con Kolivas' Interbench
 * (0.31 of 2009, http://ck.kolivas.org/apps/interbench/). This is a new
 * program with its definitions:
 *
 * audio	every 50 ms, needs 5 % of the CPU
 * video	60 times per second, needs 40 %
 * x		60 times per second, needs 0 to 100 %
 * server	every 20 ms, needs 90 %; not one of Interbench's
 *
 * none		nothing else runs
 * video, x, server	one of the above
 * burn		4 threads that compute
 * write	writes a file again and again
 * read		reads a file again and again
 * compile	burn, write and read at once
 * memload	fills memory, moves it and frees it, again and again
 *
 * Each period falls due at a fixed time. Latency is the time from there until
 * the task runs; wait is all the time until its work is done in which it did
 * not run. A period is met when its work is done before the next is due. A
 * task that is late goes on with the period of that time and drops those in
 * between, as a player drops frames. They count as not met, and the CPU time
 * that they needed as not got.
 *
 * What differs from Interbench:
 *
 * - It runs the load as another process. Here it may be that, or threads of
 *   the same process, or two processes in one cgroup or in two: schedulers
 *   share the CPU among other things than tasks.
 * - It has a real-time thread that wakes up the measured one. A timer without
 *   slack does that today.
 * - It calibrates a loop once, and takes so many rounds of it for the CPU
 *   time. Here the work of a period is CPU time, which the kernel is asked for
 *   after every few microseconds: a calibrated loop is wrong as soon as the
 *   CPU's frequency changes or something disturbs the calibration, and that
 *   looks like missed deadlines. What a period used too much, by a part of
 *   those microseconds, is taken from the next.
 * - x draws its share at random, but from a seed and balanced, so that short
 *   runs need 50 % on average and two kernels get the same sequence.
 * - Latencies are those of all periods that ran, not only of those met.
 * - All runs on one CPU unless told otherwise; files and memory have a given
 *   size instead of that of the RAM, and what was read is dropped from the
 *   page cache.
 *
 * It measures and reports. No figure makes it fail: that depends on the
 * machine, and comparing is up to the caller. A row fails when its figures
 * cannot be: the records of the task contradict each other, the clock or the
 * CPU time that the kernel accounts, or the load did not do what it says.
 * Whatever is missing to run a row makes it a skip that says so; a run of
 * nothing but skips exits with KSFT_SKIP. Files and cgroups are removed also
 * when the program is killed.
 */
#define _FILE_OFFSET_BITS 64
#include <getopt.h>
#include <math.h>
#include <pthread.h>
#include <sys/resource.h>
#include <sys/statfs.h>
#include <sys/statvfs.h>
#include <linux/magic.h>

#include "bench_helpers.h"

#define WATCHDOG	30
#define BURNERS		4
#define MAX_PARTS	(BURNERS + 2)
#define MAX_SECONDS	1000
#define MAX_MB		(sizeof(size_t) > 4 ? 1048576 : 4095)
#define IO_CHUNK	(128 << 10)
#define MB		1048576LL

/* How often a task that works looks at its CPU time. */
#define GRAIN_NS	(20 * NSEC_PER_USEC)

/* Clocks of CPU time and real time are not the same. */
#define CLOCK_ERROR(ns)	((ns) / 100 + 2 * NSEC_PER_MSEC)

enum periodic_name {
	AUDIO,
	VIDEO,
	X,
	SERVER,
	NR_TASKS,
};

/**
 * struct periodic - a task that works for some time in each period
 * @name:	how it is reported; tools rely on it
 * @period:	in ns
 * @percent:	how much of a period it works, -1 for 0 to 100
 */
struct periodic {
	const char *name;
	long long period;
	int percent;
};

static const struct periodic tasks[NR_TASKS] = {
	[AUDIO]	 = { "audio", 50 * NSEC_PER_MSEC, 5 },
	[VIDEO]	 = { "video", NSEC_PER_SEC / 60, 40 },
	[X]	 = { "x", NSEC_PER_SEC / 60, -1 },
	[SERVER] = { "server", 20 * NSEC_PER_MSEC, 90 },
};

enum part_kind {
	PERIODIC,
	BURN,
	WRITE,
	READ,
	MEM,
};

static const char * const part_names[] = {
	[PERIODIC]	= "a periodic task",
	[BURN]		= "a burner",
	[WRITE]		= "the writer",
	[READ]		= "the reader",
	[MEM]		= "the memory load",
};

/**
 * struct load - what runs beside the measured task
 * @name:	how it is reported; tools rely on it
 * @periodic:	which one it is, if @parts begins with one
 * @parts:	how many threads
 * @part:	what each does
 * @files:	needs files
 * @memory:	needs memory
 * @usual:	part of the default run
 */
struct load {
	const char *name;
	enum periodic_name periodic;
	int parts;
	enum part_kind part[MAX_PARTS];
	bool files, memory, usual;
};

static const struct load loads[] = {
	{ .name = "none", .usual = true },
	{ .name = "video", .parts = 1, .part = { PERIODIC },
	  .periodic = VIDEO },
	{ .name = "x", .parts = 1, .part = { PERIODIC }, .periodic = X },
	{ .name = "burn", .parts = BURNERS, .part = { BURN, BURN, BURN, BURN },
	  .usual = true },
	{ .name = "write", .parts = 1, .part = { WRITE }, .files = true },
	{ .name = "read", .parts = 1, .part = { READ }, .files = true },
	{ .name = "compile", .parts = BURNERS + 2,
	  .part = { BURN, BURN, BURN, BURN, WRITE, READ },
	  .files = true, .usual = true },
	{ .name = "memload", .parts = 1, .part = { MEM }, .memory = true,
	  .usual = true },
	{ .name = "server", .parts = 1, .part = { PERIODIC },
	  .periodic = SERVER },
};

enum layout {
	THREADS,
	PROCESSES,
	CGROUP,
	CGROUPS,
	NR_LAYOUTS,
};

static const char * const layout_names[NR_LAYOUTS] = {
	[THREADS]	= "threads",
	[PROCESSES]	= "processes",
	[CGROUP]	= "cgroup",
	[CGROUPS]	= "cgroups",
};

struct result {
	char name[64];
	const struct periodic *task;
	const struct load *load;
	enum layout layout;
	struct outcome outcome;
};

/**
 * struct record - a period that the measured task worked in
 * @number:	which one
 * @start:	when it ran, in ns
 * @end:	when the work was done
 * @cpu:	CPU time that took
 */
struct record {
	long long number, start, end, cpu;
};

/**
 * struct account - what a task says that it did
 * @ran:	periods
 * @dropped:	periods
 * @cpu:	CPU time in ns; of the measured task that of its work only
 * @surplus:	what of that was more than its periods needed
 * @units:	work done, in units of its own
 * @elapsed:	how long that took, in ns
 */
struct account {
	long long ran, dropped, cpu, surplus, units, elapsed;
};

/**
 * struct shared - what the tasks of a row and the main program share
 * @barrier:	all threads of a row start at once
 * @verdict:	the first of what they say
 * @reason:	for @verdict
 * @stop:	the measured task is done
 * @t0:		when its first period fell due, in ns
 * @task:	what the measured task did
 * @part:	what each thread of the load did
 */
struct shared {
	pthread_barrier_t barrier;
	enum verdict verdict;
	char reason[200];
	bool stop;
	long long t0;
	struct account task, part[MAX_PARTS];
};

/**
 * struct remains - what must not be left behind
 * @dir:	folder of the files, or empty
 * @cgroup:	the cgroup that has the others in it, or empty
 * @control:	the file that the cpu controller was enabled with, or empty
 */
struct remains {
	char dir[PATH_MAX - 16];
	char cgroup[PATH_MAX - 64];
	char control[PATH_MAX];
};

/* What the kernel says about the processes of a row. */
struct usage {
	long long cpu, minor_faults;
};

/* The last one is never used and ends the list. */
static struct result results[NR_TASKS * ARRAY_SIZE(loads) * NR_LAYOUTS + 1];
static bool task_wanted[NR_TASKS];
static bool load_wanted[ARRAY_SIZE(loads)];
static bool layout_wanted[NR_LAYOUTS];

static struct shared *sh;
static struct remains *remains;
static struct record *records;
static struct result *row;

static double seconds = 1;
static unsigned long seed = 1;
static unsigned long io_mb = 32, mem_mb = 64;
static const char *json_path, *dir;
static bool any_cpu;
static int cpu = -1;

static unsigned long grain_loops;
static long long lead_ns;
static int write_fd = -1, read_fd = -1;
/* What is below an overlay cannot be told. */
enum backing {
	DISK,
	MEMORY,
	UNKNOWN,
};

static enum backing backing;

static const char * const json_backing[] = {
	[DISK]		= "false",
	[MEMORY]	= "true",
	[UNKNOWN]	= "null",
};

static char no_files[100], no_memory[100], no_cgroups[160];
static char cgroup_mount[PATH_MAX - 128];

/* Shares of x in percent, a multiple of 11: all of 0, 10, ... 100. */
#define X_SHARES	1100
static int x_share[X_SHARES];

static pid_t children[2];
static pid_t janitor, janitor_owner;
static int janitor_fd = -1;

static __printf(2, 3) void report(enum verdict verdict, const char *fmt, ...)
{
	enum verdict running = RUNNING;
	va_list args;

	if (!__atomic_compare_exchange_n(&sh->verdict, &running, verdict, false,
					 __ATOMIC_SEQ_CST, __ATOMIC_SEQ_CST))
		return;
	va_start(args, fmt);
	vsnprintf(sh->reason, sizeof(sh->reason), fmt, args);
	va_end(args);
}

static bool stopped(void)
{
	return __atomic_load_n(&sh->stop, __ATOMIC_RELAXED);
}

static long long thread_ns(void)
{
	struct timespec ts;

	clock_gettime(CLOCK_THREAD_CPUTIME_ID, &ts);

	return ts.tv_sec * NSEC_PER_SEC + ts.tv_nsec;
}

/* Random numbers that are the same with every C library. */
static unsigned int draw(unsigned int below)
{
	static uint64_t state;
	static bool seeded;

	if (!seeded) {
		state = seed;
		seeded = true;
	}
	state = state * 6364136223846793005ULL + 1442695040888963407ULL;

	return (state >> 33) % below;
}

static void draw_all(void)
{
	int bag, i, j, swap;

	for (bag = 0; bag < X_SHARES; bag += 11) {
		for (i = 0; i < 11; i++)
			x_share[bag + i] = 10 * i;
		for (i = 10; i > 0; i--) {
			j = draw(i + 1);
			swap = x_share[bag + i];
			x_share[bag + i] = x_share[bag + j];
			x_share[bag + j] = swap;
		}
	}

	/* The phase between the measured task and a load with periods. */
	lead_ns = (20000 + draw(50000)) * NSEC_PER_USEC;
}

static long long periods_of(const struct periodic *p)
{
	long long nr = seconds * NSEC_PER_SEC / p->period;

	return nr ? nr : 1;
}

/* The CPU time that period @number needs, in ns. */
static long long work_of(const struct periodic *p, long long number)
{
	int percent = p->percent;

	if (percent < 0)
		percent = x_share[number % X_SHARES];

	return p->period * percent / 100;
}

/* Returns the CPU time used, some microseconds more than @ns. */
static long long use_cpu(long long ns)
{
	long long start, used = 0;

	if (ns <= 0)
		return 0;
	start = thread_ns();
	while (used < ns) {
		work_loops(grain_loops);
		used = thread_ns() - start;
	}

	return used;
}

/* A load has no @record, begins elsewhere with the shares, and is stopped. */
static void run_periods(const struct periodic *p, long long t0, long long nr,
			struct record *record, struct account *account)
{
	long long first = record ? 0 : X_SHARES / 2;
	long long number = 0, work, used, start, end, due, next;

	while (number < nr && (record || !stopped())) {
		due = t0 + number * p->period;
		if (now_ns() < due)
			sleep_until(due);

		start = now_ns();
		work = work_of(p, first + number);
		used = use_cpu(work - account->surplus);
		account->surplus += used - work;
		account->cpu += used;
		end = now_ns();

		if (record) {
			record[account->ran].number = number;
			record[account->ran].start = start;
			record[account->ran].end = end;
			record[account->ran].cpu = used;
		}
		account->ran++;
		account->units++;

		/* What is over when the work is done is dropped. */
		next = number + 1;
		if ((end - t0) / p->period > next)
			next = (end - t0) / p->period;
		if (next > nr)
			next = nr;
		account->dropped += next - number - 1;
		number = next;
	}
}

static void run_burn(struct account *account)
{
	while (!stopped()) {
		work_loops(grain_loops);
		account->units++;
	}
}

static long long io_chunks(void)
{
	return io_mb * (MB / IO_CHUNK);
}

/* Every chunk of the file tells which write of which row it is from. */
static uint64_t write_stamp(long long number)
{
	return ((uint64_t)(row - results + 1) << 40) + number;
}

static void *io_buffer(void)
{
	void *buffer = calloc(1, IO_CHUNK);

	if (!buffer)
		report(FAIL, "no memory for a buffer");

	return buffer;
}

static void run_write(struct account *account)
{
	long long chunks = io_chunks(), number;
	char *buffer = io_buffer();
	uint64_t stamp;

	for (number = 0; buffer && !stopped(); number++) {
		stamp = write_stamp(number);
		memcpy(buffer, &stamp, sizeof(stamp));
		if (pwrite(write_fd, buffer, IO_CHUNK,
			   number % chunks * IO_CHUNK) != IO_CHUNK) {
			report(FAIL, "write: %s", strerror(errno));
			break;
		}
		account->units++;

		/* Else it would be overwritten before it gets to the disk. */
		if (number % chunks == chunks - 1 && fdatasync(write_fd)) {
			report(FAIL, "fdatasync: %s", strerror(errno));
			break;
		}
	}
	free(buffer);
}

static void run_read(struct account *account)
{
	long long chunks = io_chunks(), number;
	char *buffer = io_buffer();
	uint64_t stamp;

	for (number = 0; buffer && !stopped(); number++) {
		if (!(number % chunks))
			posix_fadvise(read_fd, 0, 0, POSIX_FADV_DONTNEED);
		if (pread(read_fd, buffer, IO_CHUNK,
			  number % chunks * IO_CHUNK) != IO_CHUNK) {
			report(FAIL, "read: %s", strerror(errno));
			break;
		}
		memcpy(&stamp, buffer, sizeof(stamp));
		if (stamp != (uint64_t)(number % chunks)) {
			report(FAIL, "read something else than was written");
			break;
		}
		account->units++;
	}
	free(buffer);
}

/* Units are pages that were not there before. */
static void fill_and_move(char *mem, size_t size, struct account *account)
{
	size_t page = sysconf(_SC_PAGESIZE), half = size / 2 / page * page;
	size_t at;

	for (at = 0; at + page <= size; at += page) {
		if (stopped())
			return;
		__atomic_store_n((size_t *)(mem + at), at, __ATOMIC_RELAXED);
		account->units++;
	}
	for (at = 0; at < half; at += page) {
		if (stopped())
			return;
		memcpy(mem + half + at, mem + at, page);
		if (__atomic_load_n((size_t *)(mem + half + at),
				    __ATOMIC_RELAXED) != at) {
			report(FAIL, "memory does not hold what was moved");
			return;
		}
	}
}

static void run_mem(struct account *account)
{
	size_t size = mem_mb * MB;
	char *mem;

	while (!stopped()) {
		mem = mmap(NULL, size, PROT_READ | PROT_WRITE,
			   MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
		if (mem == MAP_FAILED) {
			report(FAIL, "mmap of %lu MB: %s", mem_mb,
			       strerror(errno));
			return;
		}
		/* One fault for each page, so that they can be counted. */
		madvise(mem, size, MADV_NOHUGEPAGE);
		fill_and_move(mem, size, account);
		munmap(mem, size);
	}
}

static void *part_thread(void *arg)
{
	long me = (long)arg;
	struct account *account = &sh->part[me];
	const struct load *load = row->load;
	long long start, cpu_start;

	prctl(PR_SET_TIMERSLACK, 1);
	pthread_barrier_wait(&sh->barrier);

	start = now_ns();
	cpu_start = thread_ns();
	switch (load->part[me]) {
	case PERIODIC:
		run_periods(&tasks[load->periodic], start, LLONG_MAX, NULL,
			    account);
		break;
	case BURN:
		run_burn(account);
		break;
	case WRITE:
		run_write(account);
		break;
	case READ:
		run_read(account);
		break;
	case MEM:
		run_mem(account);
		break;
	}
	account->cpu = thread_ns() - cpu_start;
	account->elapsed = now_ns() - start;

	return NULL;
}

static void *task_thread(void *arg)
{
	const struct periodic *p = row->task;
	int now;

	(void)arg;
	prctl(PR_SET_TIMERSLACK, 1);
	pthread_barrier_wait(&sh->barrier);

	sh->t0 = now_ns() + lead_ns;
	run_periods(p, sh->t0, periods_of(p), records, &sh->task);
	/* The last one is over when it would be met or not. */
	sleep_until(sh->t0 + periods_of(p) * p->period);
	__atomic_store_n(&sh->stop, true, __ATOMIC_RELAXED);

	now = sched_getcpu();
	if (!any_cpu && now != cpu)
		report(FAIL, "ran on CPU %d instead of %d", now, cpu);

	return NULL;
}

static bool enter_cgroup(const char *name)
{
	char path[PATH_MAX];

	snprintf(path, sizeof(path), "%s/%s/cgroup.procs", remains->cgroup,
		 name);
	if (write_text(path, "0"))
		return true;
	report(FAIL, "%s: %s", path, strerror(errno));

	return false;
}

/* Tells whether the process is such as the row wants it. */
static bool become_part(bool has_task)
{
	/* The kernel shall end this one first when memory runs out. */
	write_text("/proc/self/oom_score_adj", "1000");

	if (!any_cpu && !pin_to(cpu)) {
		report(FAIL, "sched_setaffinity to CPU %d: %s", cpu,
		       strerror(errno));
		return false;
	}
	if (set_fair(0, 0)) {
		report(errno == EPERM ? SKIP : FAIL, "sched_setattr: %s",
		       strerror(errno));
		return false;
	}

	switch (row->layout) {
	case PROCESSES:
		/* Autogroups are per session. */
		if (setsid() < 0) {
			report(FAIL, "setsid: %s", strerror(errno));
			return false;
		}
		return true;
	case CGROUP:
		return enter_cgroup("task");
	case CGROUPS:
		return enter_cgroup(has_task ? "task" : "load");
	default:
		return true;
	}
}

static __noreturn void run_process(bool has_task, bool has_load)
{
	pthread_t thread[MAX_PARTS + 1];
	int nr = 0, error = 0, i;

	alarm(WATCHDOG + 10 * seconds);
	if (!become_part(has_task))
		_exit(1);

	for (i = 0; !error && has_load && i < row->load->parts; i++)
		error = pthread_create(&thread[nr++], NULL, part_thread,
				       (void *)(long)i);
	if (!error && has_task)
		error = pthread_create(&thread[nr++], NULL, task_thread, NULL);
	if (error) {
		report(FAIL, "pthread_create: %s", strerror(error));
		_exit(1);
	}

	for (i = 0; i < nr; i++)
		pthread_join(thread[i], NULL);
	_exit(0);
}

/*
 * What the row's own figures must agree with.
 */

static long long due_at(long long number)
{
	return sh->t0 + number * row->task->period;
}

static bool check_records(void)
{
	long long nr = periods_of(row->task), last = -1, cpu_sum = 0;
	long long needed = 0, dropped = 0;
	const struct record *r;
	long long i;

	if (sh->task.ran < 1 || sh->task.ran > nr) {
		report(FAIL, "reports %lld periods of %lld", sh->task.ran, nr);
		return false;
	}
	for (i = 0; i < sh->task.ran; i++) {
		r = &records[i];
		if (r->number <= last || r->number >= nr) {
			report(FAIL, "reports period %lld after %lld, of %lld",
			       r->number, last, nr);
			return false;
		}
		if (r->start < due_at(r->number) || r->end < r->start) {
			report(FAIL, "period %lld began %lld ns after it was due and took %lld ns",
			       r->number, r->start - due_at(r->number),
			       r->end - r->start);
			return false;
		}
		if (r->cpu > r->end - r->start + CLOCK_ERROR(r->cpu)) {
			report(FAIL, "period %lld used %lld ns of CPU time in %lld ns",
			       r->number, r->cpu, r->end - r->start);
			return false;
		}
		dropped += r->number - last - 1;
		last = r->number;
		cpu_sum += r->cpu;
		needed += work_of(row->task, r->number);
	}
	dropped += nr - 1 - last;

	if (dropped != sh->task.dropped || sh->task.ran + dropped != nr) {
		report(FAIL, "reports %lld run and %lld dropped of %lld periods, not %lld",
		       sh->task.ran, sh->task.dropped, nr, dropped);
		return false;
	}
	if (cpu_sum != sh->task.cpu || cpu_sum < needed ||
	    cpu_sum - sh->task.surplus != needed) {
		report(FAIL, "%lld periods needed %lld ns of CPU time, got %lld, %lld too much",
		       sh->task.ran, needed, sh->task.cpu, sh->task.surplus);
		return false;
	}

	return true;
}

/* Nobody can have used more than the kernel accounted. */
static bool check_cpu_time(const struct usage *usage, bool has_task,
			   bool has_load)
{
	long long claimed = 0;
	int i;

	if (has_task)
		claimed += sh->task.cpu;
	for (i = 0; has_load && i < row->load->parts; i++)
		claimed += sh->part[i].cpu;
	if (claimed <= usage->cpu + CLOCK_ERROR(usage->cpu))
		return true;
	report(FAIL, "%s of %lld ns CPU time reported, the kernel accounted %lld",
	       has_task ? has_load ? "both" : "the task" : "the load", claimed,
	       usage->cpu);

	return false;
}

static bool check_file(long long writes)
{
	uint64_t stamp = 0;

	if (pread(write_fd, &stamp, sizeof(stamp),
		  (writes - 1) % io_chunks() * IO_CHUNK) == sizeof(stamp) &&
	    stamp == write_stamp(writes - 1))
		return true;
	report(FAIL, "%lld writes reported, the last is not in the file",
	       writes);

	return false;
}

static bool check_part(int nr, const struct usage *usage)
{
	const struct account *part = &sh->part[nr];
	enum part_kind kind = row->load->part[nr];
	long long least = 0;

	if (part->units <= 0 || part->cpu <= 0) {
		report(FAIL, "%s did nothing: %lld units, %lld ns of CPU time",
		       part_names[kind], part->units, part->cpu);
		return false;
	}

	switch (kind) {
	case BURN:
		/* A CPU may become faster, but not ten times as fast. */
		least = part->units * GRAIN_NS / 10;
		break;
	case WRITE:
		return check_file(part->units);
	case MEM:
		if (usage->minor_faults >= part->units)
			break;
		report(FAIL, "%lld new pages reported, %lld page faults",
		       part->units, usage->minor_faults);
		return false;
	default:
		break;
	}
	if (part->cpu >= least)
		return true;
	report(FAIL, "%s reported %lld units of work in %lld ns of CPU time",
	       part_names[kind], part->units, part->cpu);

	return false;
}

/* @usage: of the task's process and of the load's, which may be the same */
static void check_row(const struct usage *usage, long long elapsed)
{
	bool together = row->layout == THREADS;
	int i;

	if (elapsed < periods_of(row->task) * row->task->period) {
		report(FAIL, "was over after %lld ns", elapsed);
		return;
	}
	if (!check_records() || !check_cpu_time(&usage[0], true, together))
		return;
	if (!together && !check_cpu_time(&usage[1], false, true))
		return;
	for (i = 0; i < row->load->parts; i++) {
		if (!check_part(i, &usage[together ? 0 : 1]))
			return;
	}
}

/*
 * Figures.
 */

static bool add_latencies(struct outcome *out)
{
	static const char * const latency[] = { "p50", "p99", "max" };
	static const char * const waits[] = { "wait_p50", "wait_p99", "wait_max" };
	long long n = sh->task.ran, i;
	double mean = 0, squares = 0;
	const struct record *r;
	long long *value;

	value = calloc(n, sizeof(*value));
	if (!value)
		return false;

	for (i = 0; i < n; i++) {
		value[i] = records[i].start - due_at(records[i].number);
		mean += (double)value[i] / n;
	}
	for (i = 0; i < n; i++)
		squares += (value[i] - mean) * (value[i] - mean);
	add_figure(out, "mean", mean);
	add_figure(out, "sd", n > 1 ? sqrt(squares / (n - 1)) : 0);
	add_percentiles(out, value, n, latency);

	for (i = 0; i < n; i++) {
		r = &records[i];
		value[i] = r->end - due_at(r->number) - r->cpu;
	}
	add_percentiles(out, value, n, waits);
	free(value);

	return true;
}

static void summarize(struct outcome *out)
{
	long long nr = periods_of(row->task), met = 0, needed = 0, i;
	double share, load_share = 0;
	long long units = 0;

	for (i = 0; i < nr; i++)
		needed += work_of(row->task, i);
	for (i = 0; i < sh->task.ran; i++)
		met += records[i].end <= due_at(records[i].number + 1);
	for (i = 0; i < row->load->parts; i++) {
		load_share += 100.0 * sh->part[i].cpu / sh->part[i].elapsed;
		units += sh->part[i].units;
	}

	add_figure(out, "periods", nr);
	add_figure(out, "ran", sh->task.ran);
	add_figure(out, "met", met);
	if (!add_latencies(out)) {
		report(FAIL, "no memory for the figures");
		return;
	}

	/* What was used in advance was not needed yet. */
	share = 100.0 * (sh->task.cpu - sh->task.surplus) / needed;
	if (needed && share > 100.01) {
		report(FAIL, "got %.2f %% of the CPU time needed", share);
		return;
	}
	add_figure(out, "desired_cpu", needed ? share : 100);
	add_figure(out, "deadlines_met", 100.0 * met / nr);
	add_figure(out, "load_share", load_share);
	add_figure(out, "load_units", units);
}

/*
 * One row.
 */

static const char *why_not(void)
{
	if (row->layout >= CGROUP && no_cgroups[0])
		return no_cgroups;
	if (row->load->files && no_files[0])
		return no_files;
	if (row->load->memory && no_memory[0])
		return no_memory;

	return NULL;
}

static void start_process(int nr, bool has_task, bool has_load)
{
	sigset_t all, old;

	/* None of ours may run the handler of the main program. */
	sigfillset(&all);
	sigprocmask(SIG_BLOCK, &all, &old);
	children[nr] = fork_bound();
	if (!children[nr]) {
		signal(SIGHUP, SIG_DFL);
		signal(SIGINT, SIG_DFL);
		signal(SIGTERM, SIG_DFL);
		sigprocmask(SIG_SETMASK, &old, NULL);
		run_process(has_task, has_load);
	}
	sigprocmask(SIG_SETMASK, &old, NULL);
	if (children[nr] < 0)
		report(FAIL, "fork: %s", strerror(errno));
}

static void kill_children(void)
{
	unsigned int i;

	for (i = 0; i < ARRAY_SIZE(children); i++) {
		if (children[i] > 0)
			kill(children[i], SIGKILL);
	}
}

static long long timeval_ns(const struct timeval *tv)
{
	return tv->tv_sec * NSEC_PER_SEC + tv->tv_usec * NSEC_PER_USEC;
}

/* One that failed leaves the others at a barrier: end them, too. */
static void wait_for_children(struct usage *usage)
{
	struct rusage ru;
	unsigned int i;
	int status;
	pid_t pid;

	if (sh->verdict)
		kill_children();
	while (children[0] > 0 || children[1] > 0) {
		pid = wait4(-1, &status, 0, &ru);
		for (i = 0; i < ARRAY_SIZE(children); i++) {
			if (pid > 0 && children[i] == pid)
				break;
		}
		if (i == ARRAY_SIZE(children)) {
			if (pid < 0 && errno != EINTR) {
				report(FAIL, "wait4: %s", strerror(errno));
				return;
			}
			continue;
		}
		children[i] = 0;
		usage[i].cpu = timeval_ns(&ru.ru_utime) +
			       timeval_ns(&ru.ru_stime);
		usage[i].minor_faults = ru.ru_minflt;
		if (WIFSIGNALED(status))
			report(FAIL, "the %s was killed by signal %d (%s)",
			       i ? "load" : "task", WTERMSIG(status),
			       strsignal(WTERMSIG(status)));
		else if (WEXITSTATUS(status))
			report(FAIL, "the %s gave up", i ? "load" : "task");
		if (sh->verdict)
			kill_children();
	}
}

static void run_row(void)
{
	bool together = row->layout == THREADS;
	const char *reason = why_not();
	struct usage usage[2] = {};
	pthread_barrierattr_t attr;
	long long start;

	if (reason) {
		set_outcome(&row->outcome, SKIP, reason);
		return;
	}

	memset(sh, 0, sizeof(*sh));
	pthread_barrierattr_init(&attr);
	pthread_barrierattr_setpshared(&attr, PTHREAD_PROCESS_SHARED);
	pthread_barrier_init(&sh->barrier, &attr, row->load->parts + 1);

	start = now_ns();
	start_process(0, true, together);
	if (!together && row->load->parts)
		start_process(1, false, true);
	wait_for_children(usage);

	if (!sh->verdict)
		check_row(usage, now_ns() - start);
	if (!sh->verdict)
		summarize(&row->outcome);
	set_outcome(&row->outcome, sh->verdict ? sh->verdict : OK, sh->reason);
}

/*
 * What is removed in the end, by a process that ends after all others.
 */

static void remove_cgroups(void)
{
	static const char * const names[] = { "/task", "/load", "" };
	char path[PATH_MAX];
	unsigned int i;

	for (i = 0; i < ARRAY_SIZE(names); i++) {
		snprintf(path, sizeof(path), "%s%s", remains->cgroup, names[i]);
		remove_cgroup(path);
	}
	if (remains->control[0])
		write_text(remains->control, "-cpu");
}

static void remove_files(void)
{
	static const char * const names[] = { "/write", "/read" };
	char path[PATH_MAX];
	unsigned int i;

	for (i = 0; i < ARRAY_SIZE(names); i++) {
		snprintf(path, sizeof(path), "%s%s", remains->dir, names[i]);
		unlink(path);
	}
	rmdir(remains->dir);
	remains->dir[0] = '\0';
}

static void janitor_run(int fd)
{
	guard_wait(fd);
	if (remains->dir[0])
		remove_files();
	if (remains->cgroup[0])
		remove_cgroups();
	_exit(0);
}

static void janitor_end(void)
{
	if (janitor_fd < 0 || janitor_owner != getpid())
		return;
	close(janitor_fd);
	janitor_fd = -1;
	while (waitpid(janitor, NULL, 0) < 0 && errno == EINTR)
		;
}

static void end_by_signal(int nr)
{
	unsigned int i;

	if (janitor_owner != getpid())
		_exit(1);
	for (i = 0; i < ARRAY_SIZE(children); i++)
		end_child(children[i]);
	janitor_end();
	signal(nr, SIG_DFL);
	raise(nr);
}

/* What the caller had ignored stays ignored. */
static void catch_signal(int nr)
{
	struct sigaction action = { .sa_handler = end_by_signal }, old;

	sigfillset(&action.sa_mask);
	if (!sigaction(nr, NULL, &old) && old.sa_handler != SIG_IGN)
		sigaction(nr, &action, NULL);
}

static void janitor_start(void)
{
	int pipes[2];

	if (pipe2(pipes, O_CLOEXEC))
		ksft_exit_fail_perror("pipe2");
	fflush(stdout);
	janitor_owner = getpid();
	janitor = fork();
	if (janitor < 0)
		ksft_exit_fail_perror("fork");
	if (!janitor) {
		close(pipes[1]);
		janitor_run(pipes[0]);
	}
	close(pipes[0]);
	janitor_fd = pipes[1];
	atexit(janitor_end);
	catch_signal(SIGHUP);
	catch_signal(SIGINT);
	catch_signal(SIGTERM);
}

/*
 * What rows need.
 */

static void find_cgroups(void)
{
	if (geteuid())
		snprintf(no_cgroups, sizeof(no_cgroups), "cgroups: not root");
	else if (!find_cgroup2(cgroup_mount, sizeof(cgroup_mount)))
		snprintf(no_cgroups, sizeof(no_cgroups),
			 "cgroup v2 cannot be mounted: %s", strerror(errno));
}

static bool make_cgroup(const char *name)
{
	char path[PATH_MAX];

	snprintf(path, sizeof(path), "%s%s", remains->cgroup, name);
	if (!mkdir(path, 0755))
		return true;
	snprintf(no_cgroups, sizeof(no_cgroups), "no new cgroup: %s",
		 strerror(errno));

	return false;
}

static void make_cgroups(void)
{
	char path[PATH_MAX];

	snprintf(path, sizeof(path), "%s/cgroup.controllers", cgroup_mount);
	if (!has_word(path, "cpu")) {
		snprintf(no_cgroups, sizeof(no_cgroups),
			 "no cpu controller in cgroup v2");
		return;
	}
	snprintf(path, sizeof(path), "%s/cgroup.subtree_control", cgroup_mount);
	if (!has_word(path, "cpu")) {
		snprintf(remains->control, sizeof(remains->control), "%s",
			 path);
		if (!write_text(path, "+cpu")) {
			snprintf(no_cgroups, sizeof(no_cgroups),
				 "the cpu controller cannot be enabled: %s",
				 strerror(errno));
			remains->control[0] = '\0';
			return;
		}
	}

	snprintf(remains->cgroup, sizeof(remains->cgroup),
		 "%s/interactive_latency.%d", cgroup_mount, getpid());
	if (!make_cgroup(""))
		return;
	snprintf(path, sizeof(path), "%s/cgroup.subtree_control",
		 remains->cgroup);
	if (!write_text(path, "+cpu")) {
		snprintf(no_cgroups, sizeof(no_cgroups),
			 "the cpu controller cannot be passed on: %s",
			 strerror(errno));
		return;
	}
	if (!make_cgroup("/task") || !make_cgroup("/load"))
		return;
	snprintf(path, sizeof(path), "%s/load/cpu.weight", remains->cgroup);
	if (access(path, F_OK))
		snprintf(no_cgroups, sizeof(no_cgroups),
			 "cgroups have no cpu.weight");
}

static int open_file(const char *name)
{
	char path[PATH_MAX];
	int fd;

	snprintf(path, sizeof(path), "%s/%s", remains->dir, name);
	fd = open(path, O_RDWR | O_CREAT | O_EXCL | O_CLOEXEC, 0600);
	if (fd < 0)
		snprintf(no_files, sizeof(no_files), "a file in --dir: %s",
			 strerror(errno));

	return fd;
}

/* What is read must have been written before. */
static bool fill_file(int fd)
{
	char *buffer = calloc(1, IO_CHUNK);
	bool good = buffer;
	uint64_t number;

	for (number = 0; good && number < (uint64_t)io_chunks(); number++) {
		memcpy(buffer, &number, sizeof(number));
		good = pwrite(fd, buffer, IO_CHUNK, number * IO_CHUNK) ==
		       IO_CHUNK;
	}
	good = good && !fdatasync(fd);
	free(buffer);
	if (!good)
		snprintf(no_files, sizeof(no_files), "a file in --dir: %s",
			 strerror(errno));

	return good;
}

/* The files have no names any more when the first row begins. */
static void make_files(void)
{
	sigset_t all, old;

	sigfillset(&all);
	sigprocmask(SIG_BLOCK, &all, &old);
	snprintf(remains->dir, sizeof(remains->dir),
		 "%s/interactive_latency.XXXXXX", dir);
	if (!mkdtemp(remains->dir)) {
		snprintf(no_files, sizeof(no_files), "a folder in --dir: %s",
			 strerror(errno));
		remains->dir[0] = '\0';
	} else {
		write_fd = open_file("write");
		read_fd = open_file("read");
		remove_files();
	}
	sigprocmask(SIG_SETMASK, &old, NULL);

	if (write_fd >= 0 && read_fd >= 0)
		fill_file(read_fd);
}

static unsigned long free_disk(void)
{
	struct statvfs st;

	if (statvfs(dir, &st))
		return 0;

	return (unsigned long long)st.f_bavail * st.f_frsize / MB;
}

static enum backing find_backing(void)
{
	struct statfs st;

	if (statfs(dir, &st))
		return UNKNOWN;

	switch ((unsigned int)st.f_type) {
	case TMPFS_MAGIC:
	case RAMFS_MAGIC:
		return MEMORY;
	case OVERLAYFS_SUPER_MAGIC:
		return UNKNOWN;
	default:
		return DISK;
	}
}

/*
 * Refuse what would fill the disk or the memory: a tenth of the one and a
 * fifth of the other stay free.
 */
static void check_room(void)
{
	unsigned long disk = free_disk(), memory = available_kb() / 1024;
	unsigned long need = mem_mb;

	backing = find_backing();
	if (disk / 10 * 9 < 2 * io_mb)
		snprintf(no_files, sizeof(no_files),
			 "--io-mb %lu: needs twice that, %lu MB of disk free",
			 io_mb, disk);
	if (backing != DISK)
		need += 2 * io_mb;
	if (memory / 10 * 8 >= need)
		return;

	snprintf(no_memory, sizeof(no_memory),
		 "--mem-mb %lu: needs %lu MB%s, %lu MB free", mem_mb, need,
		 backing != DISK ? " with files in memory" : "", memory);
	if (backing != DISK && !no_files[0] && memory / 10 * 8 < 2 * io_mb)
		snprintf(no_files, sizeof(no_files),
			 "--io-mb %lu: needs twice that, %lu MB of memory free",
			 io_mb, memory);
}

/*
 * Output.
 */

static void json_result(FILE *file, const struct result *res)
{
	fprintf(file, "    {\"name\": \"%s\", \"task\": \"%s\", \"load\": \"%s\", ",
		res->name, res->task->name, res->load->name);
	fprintf(file, "\"layout\": \"%s\", ", layout_names[res->layout]);
	json_status(file, &res->outcome);
	fprintf(file, ", \"period_ns\": %lld", res->task->period);
	json_figures(file, &res->outcome);
	fprintf(file, "}");
}

static void json_all(FILE *file, unsigned int nr)
{
	unsigned int i;

	json_head(file, "interactive_latency", any_cpu ? -1 : cpu);
	fprintf(file, "  \"tick_ns\": %lld,\n  \"seconds\": %g,\n", tick_ns(),
		seconds);
	fprintf(file, "  \"seed\": %lu,\n  \"io_mb\": %lu,\n", seed, io_mb);
	fprintf(file, "  \"mem_mb\": %lu,\n  \"files_in_memory\": %s,\n",
		mem_mb, json_backing[backing]);
	fprintf(file, "  \"autogroup\": %s,\n  \"cases\": [\n",
		json_autogroup());
	for (i = 0; i < nr; i++) {
		if (i)
			fprintf(file, ",\n");
		json_result(file, &results[i]);
	}
	fprintf(file, "\n  ]\n}\n");
}

static bool json_write(unsigned int nr)
{
	char name[PATH_MAX];
	sigset_t all, old;
	bool good = false;
	FILE *file;

	sigfillset(&all);
	sigprocmask(SIG_BLOCK, &all, &old);
	file = json_open(json_path, name, sizeof(name));
	if (file) {
		json_all(file, nr);
		good = json_close(file, json_path, name);
	}
	sigprocmask(SIG_SETMASK, &old, NULL);

	return good;
}

/*
 * Options.
 */

static void usage(const char *name)
{
	printf("Usage: %s [OPTION]...\n"
	       "Measure how long interactive tasks wait for the CPU beside loads.\n\n"
	       "  --task LIST     audio, video, x, server (default: all)\n"
	       "  --load LIST     none, video, x, burn, write, read, compile, memload,\n"
	       "                  server (default: none, burn, compile, memload)\n"
	       "  --layout LIST   task and load are: threads of one process, processes with\n"
	       "                  a session each, processes in one cgroup, processes in two\n"
	       "                  cgroups: threads, processes, cgroup, cgroups (default:\n"
	       "                  processes); the last two need root and cgroup v2\n"
	       "  --all           all of those three lists that are not given\n"
	       "  --seconds S     how long each row takes, 0.2 to %d (default %g)\n"
	       "  --cpu N         the CPU for all, or \"all\" (default: first of the\n"
	       "                  affinity mask)\n"
	       "  --io-mb N       size of the file to write and of the one to read, 1 to\n"
	       "                  1048576 (default %lu)\n"
	       "  --mem-mb N      memory of memload, 1 to %lu (default %lu)\n"
	       "  --dir DIR       where the files are (default: TMPDIR or /tmp)\n"
	       "  --seed N        for what is random, 0 to 4294967295 (default %lu)\n"
	       "  --json FILE     write the results to FILE as well\n"
	       "  --list          print the names of the rows and exit\n"
	       "  --help          print this and exit\n\n"
	       "A LIST has commas in it. Times are in ns, shares in percent.\n"
	       "KSFT_MACHINE_SLOW=yes in the environment halves the default of --seconds.\n"
	       "Sizes that the disk or the memory does not have are refused, or when they\n"
	       "are the default, what needs them is skipped.\n\n"
	       "Exit status: %d measured, perhaps with some rows skipped; %d a row failed\n"
	       "or a wrong option; %d all rows were skipped.\n",
	       name, MAX_SECONDS, seconds, io_mb, (unsigned long)MAX_MB, mem_mb, seed, KSFT_PASS,
	       KSFT_FAIL, KSFT_SKIP);
}

static double parse_number(const char *option, const char *text, double min,
			   double max)
{
	double value;

	if (!is_number(text, min, max, &value))
		usage_error("--%s %s: not a number from %.10g to %.10g", option,
			    text, min, max);

	return value;
}

static unsigned long parse_whole(const char *option, const char *text,
				 double min, double max)
{
	double value = parse_number(option, text, min, max);

	if (value != (unsigned long)value)
		usage_error("--%s %s: not a whole number", option, text);

	return value;
}

static void parse_cpu(const char *text)
{
	static cpu_set_t mask[MAX_CPUS / CPU_SETSIZE];

	any_cpu = !strcmp(text, "all");
	if (any_cpu)
		return;
	cpu = parse_whole("cpu", text, 0, MAX_CPUS - 1);
	if (sched_getaffinity(0, sizeof(mask), mask) ||
	    !CPU_ISSET_S(cpu, sizeof(mask), mask))
		usage_error("--cpu %s: not a CPU that may be used", text);
}

static const char *task_name(unsigned int i)
{
	return i < NR_TASKS ? tasks[i].name : NULL;
}

static const char *load_name(unsigned int i)
{
	return i < ARRAY_SIZE(loads) ? loads[i].name : NULL;
}

static const char *layout_name(unsigned int i)
{
	return i < NR_LAYOUTS ? layout_names[i] : NULL;
}

static void parse_list(const char *option, const char *text,
		       const char *(*name)(unsigned int), bool *wanted)
{
	size_t len;
	unsigned int i;

	for (;;) {
		len = strcspn(text, ",");
		for (i = 0; name(i); i++) {
			if (strlen(name(i)) == len &&
			    !strncmp(text, name(i), len))
				break;
		}
		if (!name(i))
			usage_error("--%s %.*s: no such %s, see --help", option,
				    (int)len, text, option);
		wanted[i] = true;
		if (!text[len])
			return;
		text += len + 1;
	}
}

static void list_rows(void)
{
	unsigned int task, load, layout;

	row = results;
	for (layout = 0; layout < NR_LAYOUTS; layout++) {
		for (task = 0; task < NR_TASKS; task++) {
			for (load = 0; load < ARRAY_SIZE(loads); load++) {
				if (!task_wanted[task] || !load_wanted[load] ||
				    !layout_wanted[layout])
					continue;
				row->task = &tasks[task];
				row->load = &loads[load];
				row->layout = layout;
				snprintf(row->name, sizeof(row->name),
					 "%s-%s-%s", tasks[task].name,
					 loads[load].name,
					 layout_names[layout]);
				row++;
			}
		}
	}
}

static void parse_options(int argc, char **argv)
{
	static const struct option options[] = {
		{ "task", required_argument, NULL, 't' },
		{ "load", required_argument, NULL, 'L' },
		{ "layout", required_argument, NULL, 'y' },
		{ "all", no_argument, NULL, 'a' },
		{ "seconds", required_argument, NULL, 's' },
		{ "cpu", required_argument, NULL, 'c' },
		{ "io-mb", required_argument, NULL, 'i' },
		{ "mem-mb", required_argument, NULL, 'm' },
		{ "dir", required_argument, NULL, 'd' },
		{ "seed", required_argument, NULL, 'r' },
		{ "json", required_argument, NULL, 'j' },
		{ "list", no_argument, NULL, 'l' },
		{ "help", no_argument, NULL, 'h' },
		{}
	};
	bool any_task = false, any_load = false, any_layout = false;
	bool list = false, all = false, io = false, mem = false;
	const char *given_dir = NULL;
	unsigned int i;
	int opt;

	if (machine_slow())
		seconds /= 2;

	while ((opt = getopt_long(argc, argv, "", options, NULL)) != -1) {
		switch (opt) {
		case 't':
			parse_list("task", optarg, task_name, task_wanted);
			any_task = true;
			break;
		case 'L':
			parse_list("load", optarg, load_name, load_wanted);
			any_load = true;
			break;
		case 'y':
			parse_list("layout", optarg, layout_name,
				   layout_wanted);
			any_layout = true;
			break;
		case 'a':
			all = true;
			break;
		case 's':
			seconds = parse_number("seconds", optarg, 0.2,
					       MAX_SECONDS);
			break;
		case 'c':
			parse_cpu(optarg);
			break;
		case 'i':
			io_mb = parse_whole("io-mb", optarg, 1, 1048576);
			io = true;
			break;
		case 'm':
			mem_mb = parse_whole("mem-mb", optarg, 1, MAX_MB);
			mem = true;
			break;
		case 'd':
			given_dir = optarg;
			break;
		case 'r':
			seed = parse_whole("seed", optarg, 0, UINT_MAX);
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

	for (i = 0; i < NR_TASKS; i++)
		task_wanted[i] |= !any_task;
	for (i = 0; i < ARRAY_SIZE(loads); i++)
		load_wanted[i] |= !any_load && (all || loads[i].usual);
	for (i = 0; i < NR_LAYOUTS; i++)
		layout_wanted[i] |= !any_layout && (all || i == PROCESSES);
	list_rows();
	if (list) {
		for (row = results; row->task; row++)
			puts(row->name);
		exit(KSFT_PASS);
	}

	dir = given_dir ? given_dir : getenv("TMPDIR");
	if (!dir || !*dir)
		dir = "/tmp";
	if (given_dir && access(dir, W_OK | X_OK))
		usage_error("--dir %s: %s", dir, strerror(errno));
	if (strlen(dir) > PATH_MAX - 100)
		usage_error("--dir: name too long");
	check_room();
	if ((io || given_dir) && no_files[0])
		usage_error("%s", no_files);
	if (mem && no_memory[0])
		usage_error("%s", no_memory);
}

static bool any_row(bool (*needs)(const struct result *res))
{
	const struct result *res;

	for (res = results; res < row; res++) {
		if (needs(res))
			return true;
	}

	return false;
}

static bool needs_files(const struct result *res)
{
	return res->load->files;
}

static bool needs_cgroups(const struct result *res)
{
	return res->layout >= CGROUP;
}

/* The mount namespace is that of the janitor as well. */
static void prepare(void)
{
	const size_t periods = seconds * 60 + 2;

	sh = map_shared(sizeof(*sh));
	remains = map_shared(sizeof(*remains));
	records = map_shared(periods * sizeof(*records));
	if (cpu < 0)
		cpu = first_cpu();

	if (any_row(needs_cgroups))
		find_cgroups();
	janitor_start();
	if (any_row(needs_cgroups) && !no_cgroups[0])
		make_cgroups();
	if (any_row(needs_files) && !no_files[0])
		make_files();
	draw_all();
	/* Only how often the CPU time is looked at depends on this. */
	grain_loops = loops_in(GRAIN_NS);
	if (!grain_loops)
		grain_loops = 1;
}

int main(int argc, char **argv)
{
	unsigned int plan;

	parse_options(argc, argv);
	if (json_path && !json_possible(json_path))
		exit(KSFT_FAIL);

	signal(SIGCHLD, SIG_DFL);
	signal(SIGALRM, SIG_DFL);
	plan = row - results;

	ksft_print_header();
	ksft_set_plan(plan);
	prepare();
	if (any_cpu)
		ksft_print_msg("all CPUs, ");
	else
		ksft_print_msg("CPU %d, ", cpu);
	printf("%u rows of %g s, seed %lu, tick %lld ns\n", plan, seconds, seed,
	       tick_ns());
	if (backing != DISK && write_fd >= 0)
		ksft_print_msg("the files %s in memory, without disk I/O\n",
			       backing == MEMORY ? "are" : "may be");

	for (row = results; row->task; row++) {
		run_row();
		print_outcome(row->name, &row->outcome);
	}

	if (json_path && !json_write(plan))
		exit(KSFT_FAIL);

	finish();
}
