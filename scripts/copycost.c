// SPDX-License-Identifier: GPL-2.0-only
/*
 * Check and time the copy of an I/O bitmap to the TSS, in user space.
 *
 * Compiled by copycost.py with the text of io_bitmap_load() and of what it
 * calls, as it stands in a kernel tree, in the generated copycost.h. Writes
 * samples, not results:
 *
 *	<state> <end> <name> <calls in a sample> <ticks of a sample>...
 *
 * Exits with 1 when a copy was wrong, which is checked before anything is
 * timed and once more after it, and with 2 when it could not be done.
 */
#define _GNU_SOURCE
#include <limits.h>
#include <sched.h>
#include <stdarg.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>

/* What the kernel's text takes from the kernel's headers: */

typedef uint8_t u8;
typedef uint16_t u16;
typedef uint32_t u32;
typedef uint64_t u64;
typedef struct { int counter; } refcount_t;

#define BITS_PER_BYTE		8
#define BITS_PER_LONG		64
#define DIV_ROUND_UP(n, d)	(((n) + (d) - 1) / (d))
#define BITS_TO_LONGS(n)	DIV_ROUND_UP(n, BITS_PER_LONG)
#define DECLARE_BITMAP(name, n)	unsigned long name[BITS_TO_LONGS(n)]
#define ARRAY_SIZE(a)		(sizeof(a) / sizeof((a)[0]))
#define BIT(n)			(1UL << (n))
#define GENMASK(high, low)	((~0UL << (low)) & (~0UL >> (BITS_PER_LONG - 1 - (high))))

#define likely(x)		__builtin_expect(!!(x), 1)
#define unlikely(x)		__builtin_expect(!!(x), 0)
#undef noinline
#define noinline		__attribute__((__noinline__))
#undef __always_inline
#define __always_inline		inline __attribute__((__always_inline__))
#undef __aligned
#define __aligned(n)		__attribute__((__aligned__(n)))
#undef __counted_by
#define __counted_by(member)
#undef __packed
#define __packed		__attribute__((__packed__))

#define min(a, b) ({ typeof(a) _a = (a); typeof(b) _b = (b); _a < _b ? _a : _b; })
#define max(a, b) ({ typeof(a) _a = (a); typeof(b) _b = (b); _a > _b ? _a : _b; })
#define clamp(value, low, high) ({						\
	typeof(value) _v = (value), _low = (low), _high = (high);		\
	_v >= _high ? _high : _v <= _low ? _low : _v; })

static __always_inline unsigned int __ffs(unsigned long word)
{
	/* As in the kernel: the bytes of tzcnt, which old CPUs run as bsf */
	asm("rep; bsf %1,%0" : "=r" (word) : "rm" (word));
	return word;
}

static __always_inline unsigned int __fls(unsigned long word)
{
	return BITS_PER_LONG - 1 - __builtin_clzl(word);
}

/* As the kernel's, when the size is constant and a multiple of a long */
static __always_inline bool bitmap_equal(const unsigned long *a,
					 const unsigned long *b, unsigned int bits)
{
	return !__builtin_memcmp(a, b, bits / BITS_PER_BYTE);
}

/* As in the kernel on a CPU with POPCNT */
static __always_inline unsigned int hweight_long(unsigned long word)
{
	asm("popcnt %1,%0" : "=r" (word) : "rm" (word) : "cc");
	return word;
}

/* Calls, as in the kernel.  At least one bit is set wherever these are used */
static __attribute__((__noipa__)) unsigned int
find_first_bit(const unsigned long *mask, unsigned int bits __attribute__((__unused__)))
{
	unsigned int i = 0;

	while (!mask[i])
		i++;
	return i * BITS_PER_LONG + __ffs(mask[i]);
}

static __attribute__((__noipa__)) unsigned int
find_last_bit(const unsigned long *mask, unsigned int bits)
{
	unsigned int i = bits / BITS_PER_LONG - 1;

	while (!mask[i])
		i--;
	return i * BITS_PER_LONG + __fls(mask[i]);
}

/*
 * The kernel's memcpy() and memset() as they are on CPUs with FSRM and FSRS.
 * The compiler expands the short ones with a constant size itself and calls
 * these for the others, which the C library's would use vector registers for.
 */
__attribute__((__noipa__)) void *memcpy(void *to, const void *from, size_t n)
{
	void *start = to;

	asm volatile("rep movsb" : "+D" (to), "+S" (from), "+c" (n) : : "memory");
	return start;
}

__attribute__((__noipa__)) void *memset(void *to, int byte, size_t n)
{
	void *start = to;

	asm volatile("rep stosb" : "+D" (to), "+c" (n) : "a" (byte) : "memory");
	return start;
}

/* A call remains a call, as between two files of the kernel */
struct x86_io_bitmap;
struct io_bitmap;
__attribute__((__noipa__))
void io_bitmap_load(struct x86_io_bitmap *to, const struct io_bitmap *iobm);

#include "copycost.h"

#define PAGE_BYTES	4096
#define HUGE_BYTES	(2UL << 20)
#define WARM_CALLS	64
#define MAX_AREAS	16
/* A displacement walks this many times the size of the cache */
#define WALK_FACTOR	4
#define MAX_ROUNDS	100000
#define CHECKED_TASKS	96
#define CHECKED_LOADS	20000

/* As in the kernel, where the hardware's part has 104 bytes */
struct tss {
	u8			x86_tss[104];
	struct x86_io_bitmap	io_bitmap;
} __aligned(PAGE_BYTES);

/*
 * One TSS and the bitmaps of two tasks which alternate. Its size is an odd
 * number of pages, so that several areas do not share the same cache sets.
 */
struct area {
	struct tss		tss;
	u8			task[2][3 * PAGE_BYTES];
	u8			pad[(sizeof(struct tss) / PAGE_BYTES + 1) % 2 * PAGE_BYTES];
};

/* What mainline's layout makes of the two addresses of its copy */
#define MAINLINE	.to = 120, .offset = { 16, 16 }
/* Addresses which suit the same copy best: line aligned, no 4 KB aliasing */
#define BEST		.to = offsetof(struct tss, io_bitmap.bitmap), \
			.offset = { 1024, 1024 }

enum kind { NOTHING, LOAD, COPY };

enum state { WARM, NO_L1, NO_L2, STATES };

static const char * const state_names[STATES] = { "warm", "l1", "l2" };

/*
 * When a copy has ended: when its instructions are done, as its stores wait in
 * the store buffer, or when these have reached the cache, too.
 */
enum end { DONE, STORED, ENDS };

static const char * const end_names[ENDS] = { "done", "stored" };

struct subject {
	const char	*name;
	enum kind	kind;
	/* The first and last port and the step of up to two ranges a task */
	struct { unsigned int from, to, step; } ports[2][2];
	/* Where in its pages a bitmap begins */
	size_t		offset[2];
	/* A copy: where to in the TSS, and how much for these two tasks */
	size_t		to, bytes;
	struct area	*areas;
	u64		*ticks[STATES][ENDS];
};

#define TWO(...)	{ __VA_ARGS__ }
#define ONE(range)	{ range, { 1, 0, 1 } }
#define RANGE(a, b)	{ a, b, 1 }
#define EVERY(a, n)	{ a, 65535, n }
#define ALL		ONE(RANGE(0, 65535))
/* The series, and what mainline copies for the same two tasks */
#define PAIR(name, a, b)							\
	{ name, LOAD, { a, b } },						\
	{ name "-mainline", COPY, { a, b }, MAINLINE }

static struct subject subjects[] = {
	{ "nothing", NOTHING, { ALL, ALL } },
	{ "memcpy", COPY, { ALL, ALL }, BEST },
	{ "memcpy-mainline", COPY, { ALL, ALL }, MAINLINE },
	PAIR("one-line", ONE(RANGE(65534, 65534)), ONE(RANGE(65535, 65535))),
	PAIR("two-lines", ONE(RANGE(0x80, 0x80)), ONE(RANGE(65535, 65535))),
	PAIR("parallel", TWO(RANGE(0x378, 0x37a), RANGE(0xd800, 0xd807)),
			 TWO(RANGE(0x378, 0x37a), RANGE(0xdc00, 0xdc07))),
	PAIR("pciutils", TWO(RANGE(0xcf8, 0xcff), RANGE(0xc000, 0xcffe)),
			 TWO(RANGE(0xcf8, 0xcff), RANGE(0xc000, 0xcffe))),
	PAIR("eight-apart", ONE(EVERY(0, 8192)), ONE(EVERY(4096, 8192))),
	PAIR("half-or-one", ONE(RANGE(0, 32767)), ONE(RANGE(16384, 16384))),
	PAIR("all-but-one", ONE(RANGE(1, 65535)), ONE(RANGE(0, 65534))),
	PAIR("interleaved", ONE(EVERY(0, 1024)), ONE(EVERY(512, 1024))),
	PAIR("every-second", ONE(EVERY(0, 1024)), ONE(EVERY(1, 1024))),
	PAIR("two-of-three", TWO(EVERY(0, 1536), EVERY(512, 1536)),
			     TWO(EVERY(1, 1536), EVERY(513, 1536))),
	PAIR("two-of-four", TWO(EVERY(0, 2048), EVERY(512, 2048)),
			    TWO(EVERY(1, 2048), EVERY(513, 2048))),
};

typedef unsigned long view_t[IO_BITMAP_LONGS];

static unsigned int cpu, nr_rounds, nr_areas;
static size_t l1_bytes, l2_bytes;
static const u8 *walked;

__attribute__((__noreturn__, __format__(__printf__, 2, 3)))
static void die(int status, const char *format, ...)
{
	va_list values;

	va_start(values, format);
	fputs("copycost: ", stderr);
	vfprintf(stderr, format, values);
	fputc('\n', stderr);
	va_end(values);
	exit(status);
}

static void *allocate(size_t bytes)
{
	void *memory;

	bytes = DIV_ROUND_UP(bytes, HUGE_BYTES) * HUGE_BYTES;
	memory = aligned_alloc(HUGE_BYTES, bytes);
	if (!memory)
		die(2, "no memory for %zu bytes", bytes);
	/* Without huge pages the walk would displace the TLB more than the cache */
	madvise(memory, bytes, MADV_HUGEPAGE);
	return memset(memory, 0, bytes);
}

/* The model: what a task may use, in the hardware's format */
static void view_enable(unsigned long *view, unsigned int port)
{
	view[port / BITS_PER_LONG] &= ~BIT(port % BITS_PER_LONG);
}

/*
 * Store the ports of a view, of which there must be one, as a task has them,
 * with room for up to so many lines more on both sides as an ioperm() leaves.
 */
static void fill(struct io_bitmap *iobm, const unsigned long *view, unsigned int room)
{
	unsigned int first = IO_BITMAP_LINES, end = 0, i;
	static u64 sequence;

	memset(iobm, 0, offsetof(struct io_bitmap, bitmap));
	iobm->sequence = ++sequence;
	iobm->refcnt.counter = 1;

	for (i = 0; i < IO_BITMAP_LONGS; i++) {
		unsigned int line = i / IO_BITMAP_LINE_LONGS;

		if (view[i] == ~0UL)
			continue;
		iobm->nr_ports = i * BITS_PER_LONG + __fls(~view[i]) + 1;
		iobm->lines[line / BITS_PER_LONG] |= BIT(line % BITS_PER_LONG);
		first = min(first, line);
		end = line + 1;
	}
	first -= min(first, room);
	end = min(end + room, (unsigned int)IO_BITMAP_LINES);
	iobm->first_line = first;
	iobm->nr_lines = end - first;
	memcpy(iobm->bitmap, view + first * IO_BITMAP_LINE_LONGS,
	       iobm->nr_lines * IO_BITMAP_LINE_BYTES);
}

static void tss_init(struct tss *tss)
{
	memset(tss, 0, sizeof(*tss));
	memset(tss->x86_tss, 0x5a, sizeof(tss->x86_tss));
	memset(tss->io_bitmap.bitmap, 0xff, sizeof(tss->io_bitmap.bitmap));
}

/* Die unless a TSS has the ports of a view and nothing else changed in it */
static void check(const struct tss *tss, const struct io_bitmap *iobm,
		  const unsigned long *view, const char *what, unsigned int number)
{
	const struct x86_io_bitmap *io = &tss->io_bitmap;
	unsigned int i;

	for (i = 0; i < IO_BITMAP_LONGS; i++)
		if (io->bitmap[i] != view[i])
			die(1, "wrong copy: %s %u: ports from %#x are %#lx in the TSS, but %#lx for the task",
			    what, number, i * BITS_PER_LONG, io->bitmap[i], view[i]);
	if (io->bitmap[IO_BITMAP_LONGS] != ~0UL)
		die(1, "wrong copy: %s %u: wrote behind the bitmap", what, number);
	for (i = 0; i < ARRAY_SIZE(io->mapall); i++)
		if (io->mapall[i])
			die(1, "wrong copy: %s %u: wrote to mapall", what, number);
	for (i = 0; i < sizeof(tss->x86_tss); i++)
		if (tss->x86_tss[i] != 0x5a)
			die(1, "wrong copy: %s %u: wrote before the bitmap", what, number);
	if (io->prev_sequence != iobm->sequence)
		die(1, "wrong copy: %s %u: the sequence number was not stored",
		    what, number);
}

/* Numbers which are the same in every run (xorshift64) */
static unsigned int some(unsigned int below)
{
	static u64 x = 0x9e3779b97f4a7c15;

	x ^= x << 13;
	x ^= x >> 7;
	x ^= x << 17;
	return (x >> 32) % below;
}

/* Ports as tasks could have them: alone, in ranges, at the edges, all */
static void some_ports(unsigned long *view, unsigned int number)
{
	static const unsigned int edges[] = {
		0, 511, 512, 32767, 32768, 65023, 65024, 65535,
	};
	unsigned int ranges = 1 + number % 7, from, num;

	memset(view, 0xff, sizeof(view_t));
	if (number % 16 == 15) {
		/* Every line, or most of them */
		memset(view, 0, sizeof(view_t));
		if (number % 32 == 15)
			memset(view + some(64) * IO_BITMAP_LINE_LONGS, 0xff,
			       some(64) * IO_BITMAP_LINE_BYTES);
		return;
	}

	while (ranges--) {
		from = some(2) ? edges[some(ARRAY_SIZE(edges))] : some(IO_BITMAP_BITS);
		num = some(2) ? 1 : 1 + some(some(2) ? 40 : 4000);
		for (; num && from < IO_BITMAP_BITS; num--)
			view_enable(view, from++);
	}
}

/* Every copy must make the TSS equal to the task, whatever ran before */
static void check_copies(void)
{
	struct area *area = allocate(sizeof(*area));
	size_t room = DIV_ROUND_UP(sizeof(struct io_bitmap) + IO_BITMAP_BYTES,
				   PAGE_BYTES) * PAGE_BYTES;
	u8 *tasks = allocate(CHECKED_TASKS * room);
	view_t *views = allocate(CHECKED_TASKS * sizeof(*views));
	unsigned int i, number;

	tss_init(&area->tss);
	for (i = 0; i < CHECKED_TASKS; i++) {
		some_ports(views[i], i);
		fill((void *)(tasks + i * room), views[i], i % 3 ? 0 : some(40));
	}

	for (i = 0; i < CHECKED_LOADS; i++) {
		struct io_bitmap *iobm;

		number = some(CHECKED_TASKS);
		iobm = (void *)(tasks + number * room);
		io_bitmap_load(&area->tss.io_bitmap, iobm);
		check(&area->tss, iobm, views[number], "random task", number);
	}

	free(views);
	free(tasks);
	free(area);
}

static void view_of(const struct subject *s, unsigned int which, unsigned long *view)
{
	unsigned int i, port;

	memset(view, 0xff, sizeof(view_t));
	for (i = 0; i < 2; i++)
		for (port = s->ports[which][i].from; port <= s->ports[which][i].to;
		     port += s->ports[which][i].step)
			view_enable(view, port);
}

static void *task_of(const struct subject *s, struct area *area, unsigned int which)
{
	return area->task[which] + s->offset[which];
}

/* Allocate and fill the areas of a subject */
static void prepare(struct subject *s)
{
	u64 *ticks = allocate(STATES * ENDS * nr_rounds * sizeof(u64));
	unsigned int i, which;
	view_t views[2];

	for (i = 0; i < STATES * ENDS; i++)
		s->ticks[i / ENDS][i % ENDS] = ticks + i * nr_rounds;

	view_of(s, 0, views[0]);
	view_of(s, 1, views[1]);
	/* Mainline: up to the highest port of either */
	for (i = 0; i < IO_BITMAP_LONGS; i++)
		if ((views[0][i] & views[1][i]) != ~0UL)
			s->bytes = (i + 1) * sizeof(long);

	s->areas = allocate(nr_areas * sizeof(*s->areas));
	for (i = 0; i < nr_areas; i++) {
		tss_init(&s->areas[i].tss);
		for (which = 0; which < 2; which++) {
			struct io_bitmap *iobm = (void *)s->areas[i].task[which];

			if (s->kind != LOAD) {
				memset(iobm, 0x11 << which, 3 * PAGE_BYTES);
				continue;
			}
			fill(iobm, views[which], 0);
			/* Small objects share a page, large ones begin one */
			if (iobm->nr_lines < PAGE_BYTES / IO_BITMAP_LINE_BYTES / 2) {
				s->offset[which] = which ? 0xa80 : 0x540;
				fill(task_of(s, &s->areas[i], which), views[which], 0);
			}
		}
	}
}

/* Die unless the TSS of each area is as the last call left it */
static void check_areas(const struct subject *s, unsigned int which)
{
	unsigned int i, byte;
	view_t view;

	view_of(s, which, view);
	for (i = 0; i < nr_areas; i++) {
		struct area *area = &s->areas[i];

		if (s->kind == LOAD)
			check(&area->tss, task_of(s, area, which), view, s->name, which);
		else if (s->kind == COPY)
			for (byte = 0; byte < s->bytes; byte++)
				if (((u8 *)&area->tss)[s->to + byte] != 0x11 << which)
					die(1, "wrong copy: %s", s->name);
	}
}

static __always_inline u64 tsc(void)
{
	u32 low, high;

	asm volatile("lfence; rdtsc; lfence" : "=a" (low), "=d" (high) : : "memory");
	return (u64)high << 32 | low;
}

static __always_inline void settle(enum end end)
{
	if (end == STORED)
		asm volatile("mfence; lfence" : : : "memory");
	else
		asm volatile("lfence" : : : "memory");
}

static __always_inline void switch_to(enum kind kind, struct tss *tss, const u8 *task,
				      size_t to, size_t bytes)
{
	if (kind == LOAD)
		io_bitmap_load(&tss->io_bitmap, (void *)task);
	else if (kind == COPY)
		memcpy((u8 *)tss + to, task, bytes);
	else
		asm volatile("" : : "r" (tss), "r" (task), "r" (to), "r" (bytes) : "memory");
}

/* How to call: on an area each, or all on one with the two tasks in turn */
struct calls {
	unsigned int	first, nr;
	bool		in_turn;
	enum end	end;
};

static __always_inline u64 timed(enum kind kind, enum end end, const struct subject *s,
				 unsigned int which, struct calls c)
{
	size_t here = s->offset[which], other = s->offset[!which], swap;
	size_t to = s->to, bytes = s->bytes;
	struct area *area = s->areas + c.first;
	u64 start;

	/* What was stored before is not to be waited for here */
	settle(STORED);
	start = tsc();
	while (c.nr--) {
		switch_to(kind, &area->tss, area->task[which] + here, to, bytes);
		settle(end);
		if (c.in_turn) {
			which = !which;
			swap = here;
			here = other;
			other = swap;
		} else {
			area++;
		}
	}
	return tsc() - start;
}

static __always_inline u64 run_kind(enum kind kind, const struct subject *s,
				    unsigned int which, struct calls c)
{
	if (c.end == STORED)
		return timed(kind, STORED, s, which, c);
	return timed(kind, DONE, s, which, c);
}

/* Call and return the ticks. The compiler makes a loop of its own of each */
static noinline u64 run(const struct subject *s, unsigned int which, struct calls c)
{
	if (s->kind == LOAD)
		return run_kind(LOAD, s, which, c);
	if (s->kind == COPY)
		return run_kind(COPY, s, which, c);
	return run_kind(NOTHING, s, which, c);
}

static noinline void walk(size_t bytes)
{
	const volatile u8 *at = walked, *end = walked + bytes;

	for (; at < end; at += IO_BITMAP_LINE_BYTES)
		*at;
}

static u64 sample(const struct subject *s, enum state state, enum end end,
		  unsigned int round)
{
	/* In another area each time: what a copy takes varies with its pages */
	const struct calls in_turn = { round / 2 % nr_areas, WARM_CALLS, true, end };
	const struct calls each = { 0, nr_areas, false, end };
	unsigned int which = round % 2;

	if (state == WARM) {
		run(s, which, in_turn);
		return run(s, which, in_turn);
	}

	/* Both tasks have run, and last the one which is not timed */
	run(s, which, each);
	run(s, !which, each);
	walk(WALK_FACTOR * (state == NO_L1 ? l1_bytes : l2_bytes));
	return run(s, which, each);
}

static void measure(void)
{
	unsigned int round, i, state, end;

	/* In turn, so that what disturbs one for a while disturbs all */
	for (state = 0; state < STATES; state++)
		for (round = 0; round < nr_rounds; round++)
			for (end = 0; end < ENDS; end++)
				for (i = 0; i < ARRAY_SIZE(subjects); i++)
					subjects[i].ticks[state][end][round] =
						sample(&subjects[i], state, end, round);

	for (i = 0; i < ARRAY_SIZE(subjects); i++)
		check_areas(&subjects[i], (nr_rounds - 1) % 2);
}

static void write_line(FILE *file, const struct subject *s, enum state state, enum end end)
{
	unsigned int round;

	fprintf(file, "%s %s %s %u", state_names[state], end_names[end], s->name,
		state == WARM ? WARM_CALLS : nr_areas);
	for (round = 0; round < nr_rounds; round++)
		fprintf(file, " %llu", (unsigned long long)s->ticks[state][end][round]);
	fputc('\n', file);
}

static void write_samples(const char *path)
{
	unsigned int i, state, end;
	FILE *file = fopen(path, "w");

	if (!file)
		die(2, "%s: %m", path);
	for (state = 0; state < STATES; state++)
		for (end = 0; end < ENDS; end++)
			for (i = 0; i < ARRAY_SIZE(subjects); i++)
				write_line(file, &subjects[i], state, end);
	if (fflush(file) || ferror(file) || fclose(file))
		die(2, "%s: %m", path);
}

static unsigned long read_number(const char *text, unsigned long low,
				 unsigned long high)
{
	char *end;
	unsigned long value = strtoul(text, &end, 10);

	if (*end || end == text || value < low || value > high)
		die(2, "%s is not a number from %lu to %lu", text, low, high);
	return value;
}

int main(int argc, char **argv)
{
	size_t used = 3 * IO_BITMAP_BYTES + PAGE_BYTES / 4, room;
	unsigned int i;
	cpu_set_t cpus;

	if (argc != 6)
		die(2, "usage: copycost CPU L1D_BYTES L2_BYTES ROUNDS FILE");
	cpu = read_number(argv[1], 0, CPU_SETSIZE - 1);
	l1_bytes = read_number(argv[2], 1024, 1UL << 30);
	l2_bytes = read_number(argv[3], 1024, 1UL << 30);
	nr_rounds = read_number(argv[4], 2, MAX_ROUNDS);

	CPU_ZERO(&cpus);
	CPU_SET(cpu, &cpus);
	if (sched_setaffinity(0, sizeof(cpus), &cpus))
		die(2, "cannot run on CPU %u: %m", cpu);

	/* As many as stay in L2 while L1 is displaced */
	room = l2_bytes / 4 * 3;
	room = room > WALK_FACTOR * l1_bytes ? room - WALK_FACTOR * l1_bytes : 0;
	room /= used;
	nr_areas = room < 1 ? 1 : room > MAX_AREAS ? MAX_AREAS : room;

	check_copies();
	walked = allocate(WALK_FACTOR * max(l1_bytes, l2_bytes));
	for (i = 0; i < ARRAY_SIZE(subjects); i++)
		prepare(&subjects[i]);
	measure();
	write_samples(argv[5]);
	return 0;
}
