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
 * It measures and reports; no figure makes it fail. A row fails when its
 * figures cannot be: the records of the task contradict the clock or the CPU
 * time that the kernel accounts, or the load did nothing. It is skipped when
 * something is missing to run it.
 */
#define _FILE_OFFSET_BITS 64
#include "bench_helpers.h"

#include <fcntl.h>
#include <getopt.h>
#include <pthread.h>
#include <sys/resource.h>
#include <sys/statfs.h>
#include <sys/statvfs.h>
#include <linux/magic.h>

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

struct row {
	struct result result;
	const struct periodic *task;
	const struct load *load;
	enum layout layout;
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
 * @units:	work done, in units of its own: periods, chunks, pages
 * @cpu:	CPU time in ns; of the measured task that of its work only
 * @surplus:	what of that was more than its periods needed
 * @elapsed:	how long that took, in ns
 */
struct account {
	long long units, cpu, surplus, elapsed;
};

/**
 * struct shared - what the tasks of a row and the main program share
 * @barrier:	all threads of a row start at once
 * @stop:	the measured task is done
 * @t0:		when its first period fell due, in ns
 * @task:	what the measured task did
 * @part:	what each thread of the load did
 */
struct shared {
	pthread_barrier_t barrier;
	bool stop;
	long long t0;
	struct account task, part[MAX_PARTS];
};

/* The last one is never used and ends the list. */
static struct row rows[NR_TASKS * ARRAY_SIZE(loads) * NR_LAYOUTS + 1];
static bool task_wanted[NR_TASKS];
static bool load_wanted[ARRAY_SIZE(loads)];
static bool layout_wanted[NR_LAYOUTS];

static struct shared *sh;
static struct record *records;
static struct row *row;

static double seconds = 1;
static unsigned long seed = 1;
static unsigned long io_mb = 32, mem_mb = 64;
static const char *json_path, *dir;
/* -1: any */
static int cpu;

static unsigned long grain_loops;
static long long lead_ns;
static int write_fd = -1, read_fd = -1;

/* Where the files are. What is below an overlay cannot be told. */
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

/* Why rows that need them are skipped, or empty or NULL. */
static char no_files[100], no_memory[100];
static const char *no_cgroups;

/* Shares of x in percent, a multiple of 11: all of 0, 10, ... 100. */
#define X_SHARES	1100
static int x_share[X_SHARES];

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

static void work_loops(unsigned long loops)
{
	while (loops--)
		asm volatile ("" : : : "memory");
}

/* From the shortest of some runs: what is longer was interrupted. */
static unsigned long loops_in(long long ns)
{
	const unsigned long loops = 100000;
	long long best = LLONG_MAX, start;
	int i;

	for (i = 0; i < 10; i++) {
		start = now_ns();
		work_loops(loops);
		start = now_ns() - start;
		if (start > 0 && start < best)
			best = start;
	}

	return (double)loops * ns / best;
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
	long long number = 0, work, used, start, end, due, now;

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

		if (record)
			record[account->units] = (struct record){
				.number = number,
				.start = start,
				.end = end,
				.cpu = used,
			};
		account->units++;

		/* What is over when the work is done is dropped. */
		now = (end - t0) / p->period;
		number = now > number ? now : number + 1;
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

static void run_write(struct account *account)
{
	long long chunks = io_chunks(), number;
	char *buffer = calloc(1, IO_CHUNK);

	for (number = 0; buffer && !stopped(); number++) {
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
	char *buffer = calloc(1, IO_CHUNK);

	for (number = 0; buffer && !stopped(); number++) {
		if (!(number % chunks))
			posix_fadvise(read_fd, 0, 0, POSIX_FADV_DONTNEED);
		if (pread(read_fd, buffer, IO_CHUNK,
			  number % chunks * IO_CHUNK) != IO_CHUNK) {
			report(FAIL, "read: %s", strerror(errno));
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

	for (at = 0; at + page <= size && !stopped(); at += page) {
		__atomic_store_n((size_t *)(mem + at), at, __ATOMIC_RELAXED);
		account->units++;
	}
	for (at = 0; at < half && !stopped(); at += page)
		memcpy(mem + half + at, mem + at, page);
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
		/* One fault for each page. */
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

	prctl(PR_SET_TIMERSLACK, 1);
	pthread_barrier_wait(&sh->barrier);

	sh->t0 = now_ns() + lead_ns;
	run_periods(p, sh->t0, periods_of(p), records, &sh->task);
	/* The last one is over when it would be met or not. */
	sleep_until(sh->t0 + periods_of(p) * p->period);
	__atomic_store_n(&sh->stop, true, __ATOMIC_RELAXED);

	now = sched_getcpu();
	if (cpu >= 0 && now != cpu)
		report(FAIL, "ran on CPU %d instead of %d", now, cpu);

	return arg;
}

/* Tells whether the process is such as the row wants it. */
static bool prepare_process(bool has_task)
{
	static const struct sched_param param;

	/* The kernel shall end this one first when memory runs out. */
	write_text("/proc/self/oom_score_adj", "1000");

	if (cpu >= 0 && !pin_to(cpu)) {
		report(FAIL, "sched_setaffinity to CPU %d: %s", cpu,
		       strerror(errno));
		return false;
	}
	if (sched_setscheduler(0, SCHED_OTHER, &param) ||
	    setpriority(PRIO_PROCESS, 0, 0)) {
		report(errno == EPERM || errno == EACCES ? SKIP : FAIL,
		       "SCHED_OTHER with nice 0: %s", strerror(errno));
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
		return join_cgroup("task");
	case CGROUPS:
		return join_cgroup(has_task ? "task" : "load");
	default:
		return true;
	}
}

static __noreturn void run_process(bool has_task, bool has_load)
{
	pthread_t thread[MAX_PARTS + 1];
	int nr = 0, error = 0, i;

	alarm(WATCHDOG + 10 * seconds);
	if (!prepare_process(has_task))
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

static void check_records(void)
{
	long long i;

	for (i = 0; i < sh->task.units; i++) {
		const struct record *r = &records[i];

		if (r->start < due_at(r->number) || r->end < r->start)
			report(FAIL, "period %lld began %lld ns after it was due and took %lld ns",
			       r->number, r->start - due_at(r->number),
			       r->end - r->start);
		if (r->cpu > r->end - r->start + CLOCK_ERROR(r->cpu))
			report(FAIL, "period %lld used %lld ns of CPU time in %lld ns",
			       r->number, r->cpu, r->end - r->start);
	}
}

/* Nobody can have used more than the kernel accounted, @accounted ns. */
static void check_cpu_time(long long accounted, bool has_task, bool has_load)
{
	long long claimed = has_task ? sh->task.cpu : 0;
	int i;

	for (i = 0; has_load && i < row->load->parts; i++)
		claimed += sh->part[i].cpu;
	if (claimed > accounted + CLOCK_ERROR(accounted))
		report(FAIL, "%s of %lld ns CPU time reported, the kernel accounted %lld",
		       has_task ? has_load ? "both" : "the task" : "the load",
		       claimed, accounted);
}

static void check_part(int nr)
{
	const struct account *part = &sh->part[nr];
	enum part_kind kind = row->load->part[nr];

	if (part->units <= 0 || part->cpu <= 0)
		report(FAIL, "%s did nothing: %lld units, %lld ns of CPU time",
		       part_names[kind], part->units, part->cpu);
	/* A CPU may become faster, but not ten times as fast. */
	if (kind == BURN && part->cpu < part->units * GRAIN_NS / 10)
		report(FAIL, "%s reported %lld units of work in %lld ns of CPU time",
		       part_names[kind], part->units, part->cpu);
}

/* @cpu_time: of the task's process and of the load's, which may be the same */
static void check_row(const long long *cpu_time, long long elapsed)
{
	bool together = row->layout == THREADS;
	int i;

	if (elapsed < periods_of(row->task) * row->task->period)
		report(FAIL, "was over after %lld ns", elapsed);
	check_records();
	check_cpu_time(cpu_time[0], true, together);
	if (!together)
		check_cpu_time(cpu_time[1], false, true);
	for (i = 0; i < row->load->parts; i++)
		check_part(i);
}

/*
 * Figures.
 */

static void add_latencies(struct result *res)
{
	static const char * const latency[] = { "p50", "p99", "max" };
	static const char * const waits[] = { "wait_p50", "wait_p99", "wait_max" };
	long long n = sh->task.units, i;
	double mean = 0, squares = 0;
	long long *value;

	value = calloc(n, sizeof(*value));
	if (!value) {
		report(FAIL, "no memory for the figures");
		return;
	}

	for (i = 0; i < n; i++) {
		value[i] = records[i].start - due_at(records[i].number);
		mean += (double)value[i] / n;
	}
	for (i = 0; i < n; i++)
		squares += (value[i] - mean) * (value[i] - mean);
	add_figure(res, "mean", mean);
	add_figure(res, "sd", n > 1 ? sqrt(squares / (n - 1)) : 0);
	add_percentiles(res, value, n, latency);

	for (i = 0; i < n; i++)
		value[i] = records[i].end - due_at(records[i].number) -
			   records[i].cpu;
	add_percentiles(res, value, n, waits);
	free(value);
}

static void add_figures(struct result *res)
{
	long long nr = periods_of(row->task), met = 0, needed = 0, i;
	double load_share = 0, got;
	long long units = 0;

	for (i = 0; i < nr; i++)
		needed += work_of(row->task, i);
	for (i = 0; i < sh->task.units; i++)
		met += records[i].end <= due_at(records[i].number + 1);
	for (i = 0; i < row->load->parts; i++) {
		load_share += 100.0 * sh->part[i].cpu / sh->part[i].elapsed;
		units += sh->part[i].units;
	}
	/* What was used in advance was not needed yet. */
	got = sh->task.cpu - sh->task.surplus;

	add_figure(res, "periods", nr);
	add_figure(res, "ran", sh->task.units);
	add_figure(res, "met", met);
	add_latencies(res);
	add_figure(res, "desired_cpu", needed ? 100 * got / needed : 100);
	add_figure(res, "deadlines_met", 100.0 * met / nr);
	add_figure(res, "load_share", load_share);
	add_figure(res, "load_units", units);
}

/*
 * One row.
 */

static const char *why_not(void)
{
	if (row->layout >= CGROUP && no_cgroups)
		return no_cgroups;
	if (row->load->files && no_files[0])
		return no_files;
	if (row->load->memory && no_memory[0])
		return no_memory;

	return NULL;
}

static pid_t start_process(bool has_task, bool has_load)
{
	pid_t pid = fork_bound();

	if (!pid)
		run_process(has_task, has_load);
	if (pid < 0)
		report(FAIL, "fork: %s", strerror(errno));

	return pid;
}

static long long timeval_ns(const struct timeval *tv)
{
	return tv->tv_sec * NSEC_PER_SEC + tv->tv_usec * NSEC_PER_USEC;
}

/* @children: the processes of task and load, or 0; @cpu_time: what they used */
static void wait_for_children(pid_t *children, long long *cpu_time)
{
	struct rusage ru;
	int status, i;
	pid_t pid;

	for (;;) {
		/* One that failed leaves the others at a barrier. */
		for (i = 0; !all_well() && i < 2; i++) {
			if (children[i] > 0)
				kill(children[i], SIGKILL);
		}
		pid = wait4(-1, &status, 0, &ru);
		if (pid < 0)
			return;
		i = pid == children[1];
		children[i] = 0;
		cpu_time[i] = timeval_ns(&ru.ru_utime) +
			      timeval_ns(&ru.ru_stime);
		if (WIFSIGNALED(status))
			report(FAIL, "the %s was killed by signal %d (%s)",
			       i ? "load" : "task", WTERMSIG(status),
			       strsignal(WTERMSIG(status)));
		else if (status)
			report(FAIL, "the %s gave up", i ? "load" : "task");
	}
}

static void run_row(void)
{
	bool together = row->layout == THREADS;
	const char *reason = why_not();
	pthread_barrierattr_t attr;
	long long cpu_time[2] = {};
	pid_t children[2] = {};
	long long start;

	if (reason) {
		report(SKIP, "%s", reason);
		return;
	}

	memset(sh, 0, sizeof(*sh));
	pthread_barrierattr_init(&attr);
	pthread_barrierattr_setpshared(&attr, PTHREAD_PROCESS_SHARED);
	pthread_barrier_init(&sh->barrier, &attr, row->load->parts + 1);

	start = now_ns();
	children[0] = start_process(true, together);
	if (!together && row->load->parts)
		children[1] = start_process(false, true);
	wait_for_children(children, cpu_time);

	if (all_well())
		check_row(cpu_time, now_ns() - start);
	if (all_well())
		add_figures(&row->result);
}

/*
 * What rows need.
 */

/* A file without a name: nothing is left of it when the program ends. */
static int open_file(void)
{
	char path[PATH_MAX];
	int fd;

	snprintf(path, sizeof(path), "%s/interactive_latency.XXXXXX", dir);
	fd = mkostemp(path, O_CLOEXEC);
	if (fd >= 0)
		unlink(path);

	return fd;
}

/* What is read must have been written before. */
static void make_files(void)
{
	char *buffer = calloc(1, IO_CHUNK);
	bool good;
	int i;

	write_fd = open_file();
	read_fd = open_file();
	good = buffer && write_fd >= 0 && read_fd >= 0;
	for (i = 0; good && i < io_chunks(); i++)
		good = write(read_fd, buffer, IO_CHUNK) == IO_CHUNK;
	if (!good || fdatasync(read_fd))
		snprintf(no_files, sizeof(no_files), "a file in --dir: %s",
			 strerror(errno));
	free(buffer);
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
 * Skip what would fill the disk or the memory: a tenth of the one and a fifth
 * of the other stay free.
 */
static void check_room(void)
{
	unsigned long disk = free_disk();
	unsigned long memory = meminfo_kb("MemAvailable") / 1024;
	unsigned long need = mem_mb;

	backing = find_backing();
	if (backing != DISK)
		need += 2 * io_mb;
	if (disk / 10 * 9 < 2 * io_mb)
		snprintf(no_files, sizeof(no_files),
			 "--io-mb %lu: needs twice that, %lu MB of disk free",
			 io_mb, disk);
	else if (backing != DISK && memory / 10 * 8 < 2 * io_mb)
		snprintf(no_files, sizeof(no_files),
			 "--io-mb %lu: needs twice that, %lu MB of memory free",
			 io_mb, memory);
	if (memory / 10 * 8 < need)
		snprintf(no_memory, sizeof(no_memory),
			 "--mem-mb %lu: needs %lu MB%s, %lu MB free", mem_mb,
			 need, backing != DISK ? " with files in memory" : "",
			 memory);
}

/*
 * Output.
 */

static void write_json(void)
{
	char more[160];

	json_head("interactive_latency", "ns");
	json_cpu(cpu);
	fprintf(json, "  \"seconds\": %g,\n  \"seed\": %lu,\n", seconds, seed);
	fprintf(json, "  \"io_mb\": %lu,\n  \"mem_mb\": %lu,\n", io_mb, mem_mb);
	fprintf(json, "  \"files_in_memory\": %s,\n  \"cases\": [\n",
		json_backing[backing]);
	for (row = rows; row->task; row++) {
		snprintf(more, sizeof(more),
			 "\"task\": \"%s\", \"load\": \"%s\", \"layout\": \"%s\", \"period_ns\": %lld, ",
			 row->task->name, row->load->name,
			 layout_names[row->layout], row->task->period);
		json_case(&row->result, more);
	}
	json_close(json_path);
}

/*
 * Options.
 */

static void usage(void)
{
	printf("Usage: interactive_latency [OPTION]...\n"
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
	       "A LIST has commas in it. Times are in ns, shares in percent. Rows that need\n"
	       "more room than the disk or the memory has are skipped.\n\n"
	       "Exit status: %d measured, perhaps with some rows skipped; %d a row failed\n"
	       "or a wrong option; %d all rows were skipped.\n",
	       MAX_SECONDS, seconds, io_mb, (unsigned long)MAX_MB, mem_mb, seed,
	       EXIT_SUCCESS, EXIT_FAILURE, EXIT_SKIPPED);
	exit(EXIT_SUCCESS);
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

static void parse_list(const char *option, char *list,
		       const char *(*name)(unsigned int), bool *wanted)
{
	unsigned int i;
	char *word;

	while ((word = strsep(&list, ","))) {
		for (i = 0; name(i) && strcmp(word, name(i)); i++)
			;
		if (!name(i))
			usage_error("--%s %s: no such %s, see --help", option,
				    word, option);
		wanted[i] = true;
	}
}

static void list_rows(void)
{
	unsigned int task, load, layout;

	row = rows;
	for (layout = 0; layout < NR_LAYOUTS; layout++) {
		for (task = 0; task < NR_TASKS; task++) {
			for (load = 0; load < ARRAY_SIZE(loads); load++) {
				if (!task_wanted[task] || !load_wanted[load] ||
				    !layout_wanted[layout])
					continue;
				row->task = &tasks[task];
				row->load = &loads[load];
				row->layout = layout;
				snprintf(row->result.name,
					 sizeof(row->result.name), "%s-%s-%s",
					 tasks[task].name, loads[load].name,
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
	bool list = false, all = false;
	unsigned int i;
	int opt;

	cpu = first_cpu();
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
			cpu = parse_cpu(optarg, "all");
			break;
		case 'i':
			io_mb = parse_whole("io-mb", optarg, 1, 1048576);
			break;
		case 'm':
			mem_mb = parse_whole("mem-mb", optarg, 1, MAX_MB);
			break;
		case 'd':
			dir = optarg;
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
			usage();
			break;
		default:
			exit(EXIT_FAILURE);
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
		for (row = rows; row->task; row++)
			puts(row->result.name);
		exit(EXIT_SUCCESS);
	}

	if (dir && access(dir, W_OK | X_OK))
		usage_error("--dir %s: %s", dir, strerror(errno));
	if (!dir)
		dir = getenv("TMPDIR");
	if (!dir || !*dir)
		dir = "/tmp";
	if (json_path)
		json_open(json_path);
}

static void prepare(void)
{
	const size_t periods = seconds * 60 + 2;
	bool cgroups = false, files = false;

	problem = map_shared(sizeof(*problem));
	sh = map_shared(sizeof(*sh));
	records = map_shared(periods * sizeof(*records));

	for (row = rows; row->task; row++) {
		cgroups |= row->layout >= CGROUP;
		files |= row->load->files;
	}
	check_room();
	if (cgroups)
		no_cgroups = make_cgroups("interactive_latency");
	if (files && !no_files[0])
		make_files();
	draw_all();
	/* Only how often the CPU time is looked at depends on this. */
	grain_loops = loops_in(GRAIN_NS);
	if (!grain_loops)
		grain_loops = 1;
}

static int measure(void)
{
	if (cpu < 0)
		printf("all CPUs, ");
	else
		printf("CPU %d, ", cpu);
	printf("%g s each, seed %lu, tick %lld ns\n", seconds, seed, tick_ns());
	if (backing != DISK && write_fd >= 0)
		printf("the files %s in memory, without disk I/O\n",
		       backing == MEMORY ? "are" : "may be");
	fflush(stdout);

	for (row = rows; row->task; row++) {
		run_row();
		end_case(&row->result);
	}
	if (json)
		write_json();

	return exit_status();
}

int main(int argc, char **argv)
{
	parse_options(argc, argv);
	signal(SIGALRM, SIG_DFL);
	prepare();

	return measure_and_clean_up(measure, remove_cgroups);
}
