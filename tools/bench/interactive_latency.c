// SPDX-License-Identifier: GPL-2.0
/*
 * How long interactive tasks wait for the CPU beside loads.
 *
 * What is measured, and beside what, is defined by Con Kolivas' Interbench (0.31 of 2009,
 * http://ck.kolivas.org/apps/interbench/). This is a new program with its definitions. A case is
 * TASK-LOAD-LAYOUT:
 *
 * audio	every 50 ms, needs 5 % of the CPU
 * video	60 times per second, needs 40 %
 * x		60 times per second, needs 0 to 100 %
 * server	every 20 ms, needs 90 %; not one of Interbench's
 *
 * none		nothing else runs
 * burn		4 threads that compute
 * compile	the same, one that writes a file and one that reads another
 * memload	fills memory, moves it and frees it, again and again
 *
 * Each period falls due at a fixed time. Latency is the time from there until the task runs, in all
 * periods that ran. A period is met when its work is done before the next is due. A task that is
 * late goes on with the period of that time and drops those in between, which are not met.
 *
 * What else differs from Interbench: the layouts; a timer without slack instead of a real-time
 * thread that wakes the task; the work of a period is CPU time, which the kernel is asked for; x
 * draws its share from a seed, and balanced; all runs on one CPU; files and memory have a given
 * size. No figure makes a case fail, but a task that contradicts the clock, or an idle load.
 */
#include "bench_helpers.h"

#include <fcntl.h>
#include <fnmatch.h>
#include <pthread.h>

#define MAX_PARTS	6
#define IO_CHUNK	(128L << 10)
#define IO_BYTES	(32L << 20)
#define MEM_BYTES	(64UL << 20)

/* What the tasks of a case and the main program share. */
static struct shared {
	pthread_barrier_t barrier;	/* all threads of a case start at once */
	long long ran, met, late;	/* periods, and ns in all */
	long units[MAX_PARTS];		/* what parts of the load did: pages... */
} *sh;

static double seconds = 1, seed = 1;
static unsigned long grain_loops;
static long long lead_ns;
static int io_fd[2];

/* Shares of x in percent: bags of 11, of 0, 10, ... 100. */
#define X_SHARES	1100
static int x_share[X_SHARES];

/* From the inside out; and how much later the task begins than the load. */
static void draw_all(void)
{
	unsigned int state = seed;
	int i, j;

	for (i = 0; i < X_SHARES; i++) {
		j = i - rand_r(&state) % (i % 11 + 1);
		x_share[i] = x_share[j];
		x_share[j] = i % 11 * 10;
	}
	lead_ns = (20000 + rand_r(&state) % 50000) * NSEC_PER_USEC;
}

/* Parts of loads, each of which is a thread. */
static void burn(long *units)
{
	for (;; ++*units)
		work_loops(grain_loops);
}

/* Two files without names, one that is written, and one that is read. */
static void open_files(void)
{
	static char zeros[IO_BYTES];
	static bool good = true;
	int file;

	for (file = 0; good && file < 2 && !io_fd[file]; file++) {
		char path[] = "/tmp/interactive_latency.XXXXXX";

		io_fd[file] = mkostemp(path, O_CLOEXEC);
		good = io_fd[file] >= 0 && !unlink(path) &&
		       write(io_fd[file], zeros, IO_BYTES) == IO_BYTES && !fdatasync(io_fd[file]);
	}
	if (!good)
		report(SKIP, "no file can be made in /tmp, or no room");
}

static void write_file(long *units)
{
	static char buffer[IO_CHUNK];
	long at;

	for (;; ++*units) {
		at = *units * IO_CHUNK % IO_BYTES;
		if (pwrite(io_fd[0], buffer, IO_CHUNK, at) != IO_CHUNK)
			report(FAIL, "writing a file: %s", strerror(errno));
		/* Else it would be overwritten before it gets to the disk. */
		if (at == IO_BYTES - IO_CHUNK)
			fdatasync(io_fd[0]);
	}
}

static void read_file(long *units)
{
	static char buffer[IO_CHUNK];
	long at;

	for (;; ++*units) {
		at = *units * IO_CHUNK % IO_BYTES;
		if (!at)
			posix_fadvise(io_fd[1], 0, 0, POSIX_FADV_DONTNEED);
		if (pread(io_fd[1], buffer, IO_CHUNK, at) != IO_CHUNK)
			report(FAIL, "reading a file: %s", strerror(errno));
	}
}

/* Units are pages that were not there before. */
static void use_memory(long *units)
{
	size_t page = sysconf(_SC_PAGESIZE), half = MEM_BYTES / 2, at;
	char *mem;

	for (;;) {
		mem = mmap(NULL, MEM_BYTES, PROT_READ | PROT_WRITE,
			   MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
		if (mem == MAP_FAILED) {
			report(FAIL, "mmap: %s", strerror(errno));
			return;
		}
		/* One fault for each page. */
		madvise(mem, MEM_BYTES, MADV_NOHUGEPAGE);
		for (at = 0; at < MEM_BYTES; at += page) {
			*(volatile char *)(mem + at) = 1;
			++*units;
		}
		for (at = 0; at < half; at += page)
			memcpy(mem + half + at, mem + at, page);
		munmap(mem, MEM_BYTES);
	}
}

/* A task that works for @percent of each @period in ns, -1: 0 to 100. */
static const struct periodic {
	const char *name;
	long long period;
	int percent;
} tasks[] = {
	{ "audio", 50 * NSEC_PER_MSEC, 5 },
	{ "video", NSEC_PER_SEC / 60, 40 },
	{ "x", NSEC_PER_SEC / 60, -1 },
	{ "server", 20 * NSEC_PER_MSEC, 90 },
};

static const struct load {
	const char *name;
	int parts;
	void (*part[MAX_PARTS])(long *units);
} loads[] = {
	{ "none", 0, {} },
	{ "burn", 4, { burn, burn, burn, burn } },
	{ "compile", 6, { burn, burn, burn, burn, write_file, read_file } },
	{ "memload", 1, { use_memory } },
};

/* The case that runs. */
static const struct periodic *task;
static const struct load *load;
static enum layout layout;
static long long periods;

/* The CPU time that period @number needs, in ns. */
static long long work_of(const struct periodic *p, long long number)
{
	return p->period * (p->percent < 0 ? x_share[number % X_SHARES] : p->percent) / 100;
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

static void run_task(void)
{
	const struct periodic *p = task;
	long long number = 0, surplus = 0;
	long long t0, work, used, start, end, due;

	prctl(PR_SET_TIMERSLACK, 1);
	pthread_barrier_wait(&sh->barrier);
	t0 = now_ns() + lead_ns;
	while (number < periods) {
		due = t0 + number * p->period;
		if (now_ns() < due)
			sleep_until(due);
		start = now_ns();
		work = work_of(p, number);
		used = use_cpu(work - surplus);
		surplus += used - work;
		end = now_ns();

		/* Clocks of CPU time and real time are not the same. */
		if (start < due || used * 99 / 100 > end - start + 2 * NSEC_PER_MSEC)
			report(FAIL, "period %lld: due %lld, from %lld to %lld, CPU time %lld ns",
			       number, due, start, end, used);
		sh->ran++;
		sh->late += start - due;
		sh->met += end <= due + p->period;
		/* What is over when the work is done is dropped. */
		number = MAX((end - t0) / p->period, number + 1);
	}
}

static void *run_part(void *arg)
{
	long i = (long)arg;

	pthread_barrier_wait(&sh->barrier);
	load->part[i](&sh->units[i]);
	return NULL;
}

/* A process with the task, which ends with that, or only with the load. */
static pid_t start_side(bool has_task)
{
	bool has_load = !has_task || layout == THREADS;
	pid_t pid = fork_side(layout, has_task);
	pthread_t thread;
	long i;

	if (pid)
		return pid;
	alarm(30 + 10 * seconds);
	for (i = 0; has_load && i < load->parts; i++) {
		if (pthread_create(&thread, NULL, run_part, (void *)i))
			report(FAIL, "no thread can be made");
	}
	if (!has_task)
		pause();
	else if (all_well())
		run_task();
	_exit(0);
}

static void run_case(void)
{
	pthread_barrierattr_t attr;
	pid_t pid, load_pid = 0;
	int i;

	periods = MAX(seconds * NSEC_PER_SEC / task->period, 1);
	if (!strcmp(load->name, "compile"))
		open_files();
	if (layout == CGROUPS)
		make_cgroups();
	if (!all_well())
		return;
	memset(sh, 0, sizeof(*sh));
	pthread_barrierattr_init(&attr);
	pthread_barrierattr_setpshared(&attr, PTHREAD_PROCESS_SHARED);
	pthread_barrier_init(&sh->barrier, &attr, load->parts + 1);

	if (layout != THREADS && load->parts)
		load_pid = start_side(false);
	pid = start_side(true);
	check_status("the task", end_task(pid, false));
	if (load_pid > 0 && waitpid(load_pid, NULL, WNOHANG))
		report(FAIL, "the load ended");
	end_task(load_pid, true);
	for (i = 0; i < load->parts; i++) {
		if (!sh->units[i])
			report(FAIL, "part %d of the load did nothing", i);
	}
	add_figure("mean", (double)sh->late / sh->ran);
	add_figure("deadlines_met", 100.0 * sh->met / periods);
}

int main(int argc, char **argv)
{
	const struct option_of options[] = {
		{ "seconds", NUMBER, &seconds, 0.2, 1000 },
		{ "seed", NUMBER, &seed, 0, UINT_MAX },
		JSON_OPTION, {}
	};
	char *usual[] = { "*-processes", NULL }, **pattern = usual;
	unsigned int i;
	bool found;

	begin_cases("interactive_latency", argc, argv, true, options);
	if (optind < argc)
		pattern = argv + optind;
	signal(SIGALRM, SIG_DFL);
	sh = map_shared(sizeof(*sh));
	draw_all();
	/* How often a task that works looks at its CPU time. */
	grain_loops = loops_in(20 * NSEC_PER_USEC);
	for (; *pattern; pattern++) {
		found = false;
		for (i = 0; i < NR_LAYOUTS * ARRAY_SIZE(tasks) * ARRAY_SIZE(loads); i++) {
			load = &loads[i % ARRAY_SIZE(loads)];
			task = &tasks[i / ARRAY_SIZE(loads) % ARRAY_SIZE(tasks)];
			layout = i / ARRAY_SIZE(loads) / ARRAY_SIZE(tasks);
			snprintf(res->name, sizeof(res->name), "%s-%s-%s", task->name, load->name,
				 layout_names[layout]);
			if (fnmatch(*pattern, res->name, 0))
				continue;
			found = true;
			run_case();
			end_case();
		}
		if (!found)
			errx(EXIT_FAILURE, "%s: no such case", *pattern);
	}
	return end_cases();
}
