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
 * the task runs, in all periods that ran. A period is met when its work is done
 * before the next is due. A task that is late goes on with the period of that
 * time and drops those in between, as a player drops frames: they count as not
 * met, and the CPU time that they needed as not got.
 *
 * What else differs from Interbench: the layouts; a timer without slack instead
 * of a real-time thread that wakes the task; the work of a period is CPU time,
 * which the kernel is asked for, instead of rounds of a calibrated loop; x draws
 * its share from a seed, and balanced; all runs on one CPU unless told
 * otherwise; files and memory have a given size instead of that of the RAM.
 *
 * It measures and reports; no figure makes it fail. A row fails when its
 * figures cannot be: the records of the task contradict the clock, or the load
 * did nothing. It is skipped when something is missing to run it.
 */
#include "bench_helpers.h"

#include <fcntl.h>
#include <pthread.h>

#define MAX_PARTS	6
#define IO_CHUNK	(128 << 10)
#define IO_CHUNKS	256
#define MB		1048576LL

/* How often a task that works looks at its CPU time. */
#define GRAIN_NS	(20 * NSEC_PER_USEC)

/* Clocks of CPU time and real time are not the same. */
#define CLOCK_ERROR(ns)	((ns) / 100 + 2 * NSEC_PER_MSEC)

enum task_name {
	AUDIO,
	VIDEO,
	X,
	SERVER,
	NR_TASKS,
};

static const char * const task_names[] = { "audio", "video", "x", "server", NULL };

/* A task that works for @percent of each @period in ns, -1: 0 to 100. */
struct periodic {
	long long period;
	int percent;
};

static const struct periodic tasks[NR_TASKS] = {
	[AUDIO]	 = { 50 * NSEC_PER_MSEC, 5 },
	[VIDEO]	 = { NSEC_PER_SEC / 60, 40 },
	[X]	 = { NSEC_PER_SEC / 60, -1 },
	[SERVER] = { 20 * NSEC_PER_MSEC, 90 },
};

/* What a thread of a load does; below NR_TASKS, as that task. */
enum part {
	BURN = NR_TASKS,
	WRITE,
	READ,
	MEM,
};

static const char * const load_names[] = {
	"none", "video", "x", "burn", "write", "read", "compile", "memload", "server",
	NULL
};

#define NR_LOADS	(ARRAY_SIZE(load_names) - 1)

static const struct load {
	int parts;
	int part[MAX_PARTS];
} loads[NR_LOADS] = {
	{ 0, { 0 } },
	{ 1, { VIDEO } },
	{ 1, { X } },
	{ 4, { BURN, BURN, BURN, BURN } },
	{ 1, { WRITE } },
	{ 1, { READ } },
	{ 6, { BURN, BURN, BURN, BURN, WRITE, READ } },
	{ 1, { MEM } },
	{ 1, { SERVER } },
};

struct row {
	struct result result;
	const struct periodic *task;
	const struct load *load;
	enum layout layout;
	bool files;
};

/* A period that the measured task worked in; times in ns. */
struct record {
	long long number, start, end, cpu;
};

/*
 * What a task did: units of its own, such as periods and pages; the CPU time,
 * and what of it was more than its periods needed.
 */
struct account {
	long long units, cpu, surplus;
};

/* What the tasks of a row and the main program share. */
struct shared {
	pthread_barrier_t barrier;	/* all threads of a row start at once */
	bool stop;			/* the measured task is done */
	long long t0;			/* when its first period fell due, in ns */
	struct account task, part[MAX_PARTS];
};

/* The last one is never used and ends the list. */
static struct row rows[NR_TASKS * NR_LOADS * NR_LAYOUTS + 1], *row = rows;
static bool task_wanted[NR_TASKS] = { true, true, true, true };
static bool layout_wanted[NR_LAYOUTS] = { [PROCESSES] = true };
/* none, burn, compile, memload */
static bool load_wanted[NR_LOADS] = { [0] = true, [3] = true, [6] = true, [7] = true };
static struct shared *sh;
static struct record *records;

static double seconds = 1;
static unsigned long seed = 1, mem_mb = 64;
static int cpu;

static unsigned long grain_loops;
static long long lead_ns;
static int io_fd[2];

/* Why rows that need them are skipped, or NULL. */
static const char *no_files, *no_cgroups;
static bool any_files;

/* Shares of x in percent, a multiple of 11: all of 0, 10, ... 100. */
#define X_SHARES	1100
static int x_share[X_SHARES];

static bool stopped(void)
{
	return __atomic_load_n(&sh->stop, __ATOMIC_RELAXED);
}

/* Random numbers that are the same with every C library. */
static unsigned int draw(unsigned int below)
{
	static uint64_t state;

	if (!state)
		state = seed + 1;
	state = state * 6364136223846793005ULL + 1442695040888963407ULL;

	return (state >> 33) % below;
}

/* Bags of 11, from the inside out. */
static void draw_all(void)
{
	int i, j;

	for (i = 0; i < X_SHARES; i++) {
		j = i - draw(i % 11 + 1);
		x_share[i] = x_share[j];
		x_share[j] = i % 11 * 10;
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
	return p->period * (p->percent < 0 ? x_share[number % X_SHARES] :
			    p->percent) / 100;
}

/* Returns the CPU time used, some microseconds more than @ns. */
static long long use_cpu(long long ns)
{
	long long start = clock_ns(CLOCK_THREAD_CPUTIME_ID), used = 0;

	while (used < ns) {
		work_loops(grain_loops);
		used = clock_ns(CLOCK_THREAD_CPUTIME_ID) - start;
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
				number, start, end, used };
		account->units++;

		/* What is over when the work is done is dropped. */
		now = (end - t0) / p->period;
		number = now > number ? now : number + 1;
	}
}

/* One file that is written (0), or one that is read (1), again and again. */
static void run_io(int file, struct account *account)
{
	char *buffer = calloc(1, IO_CHUNK);
	long long number, at;
	bool good = buffer;

	for (number = 0; good && !stopped(); number++) {
		at = number % IO_CHUNKS * IO_CHUNK;
		if (file && !at)
			posix_fadvise(io_fd[file], 0, 0, POSIX_FADV_DONTNEED);
		good = IO_CHUNK == (file ?
				    pread(io_fd[file], buffer, IO_CHUNK, at) :
				    pwrite(io_fd[file], buffer, IO_CHUNK, at));
		/* Else it would be overwritten before it gets to the disk. */
		if (!file && number % IO_CHUNKS == IO_CHUNKS - 1)
			fdatasync(io_fd[file]);
		account->units++;
	}
	if (!good)
		report(FAIL, "a file: %s", strerror(errno));
	free(buffer);
}

/* Units are pages that were not there before. */
static void run_mem(struct account *account)
{
	size_t page = sysconf(_SC_PAGESIZE), size = mem_mb * MB, at;
	size_t half = size / 2 / page * page;
	char *mem;

	while (!stopped()) {
		mem = mmap(NULL, size, PROT_READ | PROT_WRITE,
			   MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
		if (mem == MAP_FAILED) {
			report(FAIL, "mmap: %s", strerror(errno));
			return;
		}
		/* One fault for each page. */
		madvise(mem, size, MADV_NOHUGEPAGE);
		for (at = 0; at + page <= size && !stopped(); at += page) {
			*(volatile char *)(mem + at) = 1;
			account->units++;
		}
		for (at = 0; at < half && !stopped(); at += page)
			memcpy(mem + half + at, mem + at, page);
		munmap(mem, size);
	}
}

static void *part_thread(void *arg)
{
	struct account *account = &sh->part[(long)arg];
	int part = row->load->part[(long)arg];
	long long cpu_start;

	prctl(PR_SET_TIMERSLACK, 1);
	pthread_barrier_wait(&sh->barrier);
	cpu_start = clock_ns(CLOCK_THREAD_CPUTIME_ID);
	switch (part) {
	case BURN:
		for (; !stopped(); account->units++)
			work_loops(grain_loops);
		break;
	case WRITE:
	case READ:
		run_io(part == READ, account);
		break;
	case MEM:
		run_mem(account);
		break;
	default:
		run_periods(&tasks[part], now_ns(), LLONG_MAX, NULL, account);
	}
	account->cpu = clock_ns(CLOCK_THREAD_CPUTIME_ID) - cpu_start;

	return NULL;
}

static void *task_thread(void *arg)
{
	const struct periodic *p = row->task;

	prctl(PR_SET_TIMERSLACK, 1);
	pthread_barrier_wait(&sh->barrier);
	sh->t0 = now_ns() + lead_ns;
	run_periods(p, sh->t0, periods_of(p), records, &sh->task);
	/* The last one is over when it would be met or not. */
	sleep_until(sh->t0 + periods_of(p) * p->period);
	__atomic_store_n(&sh->stop, true, __ATOMIC_RELAXED);
	check_cpu("task", cpu);

	return arg;
}

static __noreturn void run_process(bool has_task, bool has_load)
{
	pthread_t thread[MAX_PARTS + 1];
	int nr = 0, error = 0, i;

	alarm(30 + 10 * seconds);
	if (!enter_layout(row->layout, has_task, cpu))
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

static void add_figures(struct result *res)
{
	static const char * const names[] = { "p50", "p99", "max" };
	long long nr = periods_of(row->task), n = sh->task.units;
	long long met = 0, needed = 0, value[n], i;
	double mean = 0, squares = 0;

	for (i = 0; i < row->load->parts; i++) {
		if (sh->part[i].units <= 0 || sh->part[i].cpu <= 0)
			report(FAIL, "part %lld of the load did nothing", i);
	}
	for (i = 0; i < nr; i++)
		needed += work_of(row->task, i);
	for (i = 0; i < n; i++) {
		const struct record *r = &records[i];
		long long due = sh->t0 + r->number * row->task->period;

		if (r->start < due ||
		    r->cpu > r->end - r->start + CLOCK_ERROR(r->cpu))
			report(FAIL, "period %lld: due %lld, from %lld to %lld, CPU time %lld ns",
			       r->number, due, r->start, r->end, r->cpu);
		value[i] = r->start - due;
		mean += (double)value[i] / n;
		met += r->end <= due + row->task->period;
	}
	for (i = 0; i < n; i++)
		squares += (value[i] - mean) * (value[i] - mean);
	add_figure(res, "periods", nr);
	add_figure(res, "ran", n);
	add_figure(res, "mean", mean);
	add_figure(res, "sd", n > 1 ? sqrt(squares / (n - 1)) : 0);
	add_percentiles(res, value, n, names);
	/* What was used in advance was not needed yet. */
	add_figure(res, "desired_cpu", needed ? 100.0 * (
		   sh->task.cpu - sh->task.surplus) / needed : 100);
	add_figure(res, "deadlines_met", 100.0 * met / nr);
}

static pid_t start_process(bool has_task, bool has_load)
{
	pid_t pid = fork_task();

	if (!pid)
		run_process(has_task, has_load);

	return pid;
}

static void run_row(void)
{
	bool together = row->layout == THREADS;
	pthread_barrierattr_t attr;
	pid_t child[2] = {}, pid;
	int status, i;

	memset(sh, 0, sizeof(*sh));
	pthread_barrierattr_init(&attr);
	pthread_barrierattr_setpshared(&attr, PTHREAD_PROCESS_SHARED);
	pthread_barrier_init(&sh->barrier, &attr, row->load->parts + 1);

	child[0] = start_process(true, together);
	if (!together && row->load->parts)
		child[1] = start_process(false, true);
	while (child[0] > 0 || child[1] > 0) {
		/* One that failed leaves the others at a barrier. */
		for (i = 0; !all_well() && i < 2; i++) {
			if (child[i] > 0)
				kill(child[i], SIGKILL);
		}
		pid = wait(&status);
		i = pid == child[1];
		child[i] = 0;
		check_child(i ? "load" : "task", status);
	}
	if (all_well())
		add_figures(&row->result);
}

/* Two files without names, that have been written. Returns why not, or NULL. */
static const char *open_files(void)
{
	char *buffer = calloc(1, IO_CHUNK);
	int i, file;

	for (file = 0; buffer && file < 2; file++) {
		char path[] = "/tmp/interactive_latency.XXXXXX";

		io_fd[file] = mkostemp(path, O_CLOEXEC);
		if (io_fd[file] < 0 || unlink(path))
			return "no file can be made in /tmp";
		for (i = 0; i < IO_CHUNKS; i++) {
			if (write(io_fd[file], buffer, IO_CHUNK) != IO_CHUNK)
				return "no room in /tmp";
		}
		fdatasync(io_fd[file]);
	}

	return NULL;
}

/* All rows of the tasks, loads and layouts that are wanted. */
static void list_rows(void)
{
	int i, task, load, layout, part;

	for (i = 0; i < (int)(NR_TASKS * NR_LOADS * NR_LAYOUTS); i++) {
		load = i % NR_LOADS;
		task = i / NR_LOADS % NR_TASKS;
		layout = i / NR_LOADS / NR_TASKS;
		if (!task_wanted[task] || !load_wanted[load] ||
		    !layout_wanted[layout])
			continue;
		row->task = &tasks[task];
		row->load = &loads[load];
		row->layout = layout;
		for (part = 0; part < loads[load].parts; part++)
			row->files |= loads[load].part[part] == READ ||
				      loads[load].part[part] == WRITE;
		any_files |= row->files;
		snprintf(row->result.name, sizeof(row->result.name), "%s-%s-%s",
			 task_names[task], load_names[load],
			 layout_names[layout]);
		snprintf(row->result.more, sizeof(row->result.more),
			 "\"task\": \"%s\", \"load\": \"%s\", \"layout\": \"%s\", \"period_ns\": %lld, ",
			 task_names[task], load_names[load],
			 layout_names[layout], tasks[task].period);
		row++;
	}
}

static int measure(void)
{
	printf("CPU %d, %g s each, seed %lu, tick %lld ns\n", cpu, seconds, seed,
	       tick_ns());
	fflush(stdout);
	for (row = rows; row->task; row++) {
		if (row->layout >= CGROUP && no_cgroups)
			report(SKIP, "%s", no_cgroups);
		else if (row->files && no_files)
			report(SKIP, "%s", no_files);
		else
			run_row();
		end_case(&row->result);
	}

	return end_cases();
}

int main(int argc, char **argv)
{
	const struct option_of options[] = {
		{ .name = "task", .kind = LIST, .value = task_wanted,
		  .names = task_names, .help = "what is measured" },
		{ .name = "load", .kind = LIST, .value = load_wanted,
		  .names = load_names, .help = "what runs beside it" },
		{ .name = "layout", .kind = LIST, .value = layout_wanted,
		  .names = layout_names, .help = "who is grouped with whom" },
		{ .name = "seconds", .kind = NUMBER, .value = &seconds, .min = 0.2,
		  .max = 1000, .help = "how long each row takes" },
		{ .name = "cpu", .kind = CPU, .value = &cpu,
		  .help = "the CPU for all, or any for all CPUs" },
		{ .name = "mem-mb", .kind = WHOLE, .value = &mem_mb, .min = 1,
		  .max = 4095, .help = "memory of memload" },
		{ .name = "seed", .kind = WHOLE, .value = &seed, .max = UINT_MAX,
		  .help = "for what is random" },
		JSON_OPTION,
		{}
	};

	cpu = first_cpu();
	read_options(argc, argv, false, options,
		      "Usage: interactive_latency [OPTION]...\n"
		      "How long interactive tasks wait for the CPU beside loads. Lists have commas in\n"
		      "them; by default all tasks, beside none, burn, compile, memload, as processes.");
	list_rows();
	json_begin("interactive_latency", "ns", cpu,
		   "\"seconds\": %g,\n  \"seed\": %lu,\n  \"mem_mb\": %lu,\n  ",
		   seconds, seed, mem_mb);
	signal(SIGALRM, SIG_DFL);
	problem = map_shared(sizeof(*problem));
	sh = map_shared(sizeof(*sh));
	records = map_shared((size_t)(seconds * 60 + 2) * sizeof(*records));
	if (layout_wanted[CGROUP] || layout_wanted[CGROUPS])
		no_cgroups = make_cgroups("interactive_latency");
	if (any_files)
		no_files = open_files();
	draw_all();
	/* Only how often the CPU time is looked at depends on this. */
	grain_loops = loops_in(GRAIN_NS);

	return measure_and_clean_up(measure, remove_cgroups);
}
