// SPDX-License-Identifier: GPL-2.0-only
/*
 * Check and time the copies of an I/O bitmap to the TSS, in user space.
 *
 * tools/measure_copy.py generates copycost.h: tss_copy_io_bitmap() of the base and of the series,
 * what they call and their structures, as they stand in the two kernel trees. This program writes
 * samples, not results: case, side or nothing, state, calls in the sample, its ticks. It exits with
 * 1 when a copy was wrong, before anything is timed or after it, and with 2 when it could not run.
 */
#include <err.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>

/* What the kernel's text takes from the kernel's headers: */

typedef uint8_t u8;
typedef uint32_t u32;
typedef uint64_t u64;
typedef struct { int counter; } refcount_t;

#define PAGE_SIZE		4096
#define BITS_PER_BYTE		8
#define BITS_PER_LONG		64
#define ARRAY_SIZE(a)		(sizeof(a) / sizeof((a)[0]))

#define __aligned(n)		__attribute__((__aligned__(n)))
#define noinline		__attribute__((__noinline__))
/* A call remains a call, as between two files of the kernel */
#define __call			__attribute__((__noipa__))

#define max(a, b) ({ typeof(a) _a = (a); typeof(b) _b = (b); _a > _b ? _a : _b; })

/*
 * The kernel's memcpy() and memset() as they are on CPUs with FSRM and FSRS. The compiler expands
 * the short ones with a constant size itself and calls these for the others; the C library's would
 * use vector registers.
 */
__call void *memcpy(void *to, const void *from, size_t n)
{
	void *start = to;

	asm volatile("rep movsb" : "+D" (to), "+S" (from), "+c" (n) : : "memory");
	return start;
}

__call void *memset(void *to, int byte, size_t n)
{
	void *start = to;

	asm volatile("rep stosb" : "+D" (to), "+c" (n) : "a" (byte) : "memory");
	return start;
}

static inline void *memset_l(unsigned long *to, unsigned long value, size_t n)
{
	void *start = to;

	asm volatile("rep stosq" : "+D" (to), "+c" (n) : "a" (value) : "memory");
	return start;
}

struct x86_hw_tss { u8 bytes[104]; };

#include "copycost.h"

#define LINE_BYTES	64
#define WARM_CALLS	64
/* A displacement walks this many times the size of the cache */
#define WALK_FACTOR	4

enum state { WARM, NO_L1, NO_L2, STATES };
static const char * const state_names[] = { "warm", "l1", "l2" };

/* The empty call, which is subtracted */
static __call void nothing(void *to, const void *task) { }

/* Two tasks: of two ranges each, the first port, the end and the step */
static const struct pair {
	const char	*name;
	struct { unsigned int from, end, step; } ports[2][2];
} pairs[] = {
#define LINES(from, every)	{ from, IO_BITMAP_BITS, (every) * LINE_BYTES * BITS_PER_BYTE }
	{ "pair-0x80-0x81", { { { 0x80, 0x81, 1 } }, { { 0x81, 0x82, 1 } } } },
	{ "pair-0x80-65535", { { { 0x80, 0x81, 1 } }, { { 65535, 65536, 1 } } } },
	{ "pair-65534-65535", { { { 65534, 65535, 1 } }, { { 65535, 65536, 1 } } } },
	{ "pair-every-line", { { LINES(0, 1) }, { LINES(1, 1) } } },
	{ "pair-interleaved", { { LINES(0, 2) }, { LINES(512, 2) } } },
	{ "pair-eight-lines", { { LINES(0, 16) }, { LINES(4096, 16) } } },
	{ "pair-parallel-ports", { { { 0x378, 0x37b, 1 }, { 0xd800, 0xd808, 1 } },
				   { { 0x378, 0x37b, 1 }, { 0xdc00, 0xdc08, 1 } } } },
	{ "pair-pciutils", { { { 0xcf8, 0xd00, 1 }, { 0xc000, 0xcfff, 1 } },
			     { { 0xcf8, 0xd00, 1 }, { 0xc000, 0xcfff, 1 } } } },
	{ "pair-all-but-one", { { { 1, 65536, 1 } }, { { 0, 1, 1 }, { 2, 65536, 1 } } } },
	{ "pair-half-or-one", { { { 0, 32768, 1 } }, { { 16384, 16385, 1 } } } },
};

/*
 * One TSS and the bitmaps of two tasks which alternate. Its size is an odd number of pages, so that
 * several areas do not share the same cache sets.
 */
struct area {
	u8	tss[7 * PAGE_SIZE];
	u8	task[2][3 * PAGE_SIZE];
};

/* What a task may use, in the hardware's format, with the long behind it */
typedef unsigned long view_t[IO_BITMAP_LONGS + 1];

static size_t nr_areas, cache_bytes[STATES];
static const u8 *walked;

static void *allocate(size_t bytes)
{
	void *memory = aligned_alloc(2UL << 20, bytes);

	if (!memory)
		err(2, "%zu bytes", bytes);
	/* Without huge pages the walk would displace the TLB more than the cache */
	madvise(memory, bytes, MADV_HUGEPAGE);
	return memset(memory, 0, bytes);
}

static void view_of(const struct pair *pair, unsigned int which, unsigned long *view)
{
	unsigned int i, port;

	memset(view, 0xff, sizeof(view_t));
	for (i = 0; i < 2; i++)
		for (port = pair->ports[which][i].from; port < pair->ports[which][i].end;
		     port += pair->ports[which][i].step)
			view[port / BITS_PER_LONG] &= ~(1UL << port % BITS_PER_LONG);
}

/* Return where in its pages the bitmap begins */
static size_t fill_base(u8 *pages, const unsigned long *view)
{
	struct io_bitmap_base *iobm = (void *)pages;
	unsigned int i;

	for (i = 0; i < IO_BITMAP_LONGS; i++)
		if (view[i] != ~0UL)
			iobm->max = (i + 1) * sizeof(long);
	memcpy(iobm->bitmap, view, IO_BITMAP_BYTES);
	return 0;
}

static size_t fill_series(u8 *pages, const unsigned long *view)
{
	unsigned int first = 0, end = IO_BITMAP_LONGS, offset;
	struct io_bitmap_series *iobm;

	while (view[first] == ~0UL)
		first++;
	while (view[end - 1] == ~0UL)
		end--;

	/* Small objects share a page, large ones begin one */
	offset = (end - first) * sizeof(long) > PAGE_SIZE / 2 ? 0 : 0x540;
	iobm = (void *)(pages + offset);
	iobm->sequence = 2;
	iobm->first = first;
	iobm->end = end;
	memcpy(iobm->bitmap, view + first, (end - first) * sizeof(long));
	return offset;
}

/* A copy, where in the TSS are what it is called with and the bitmap, and what makes a bitmap */
static const struct kind {
	const char	*name;
	void		(*copy)(void *to, const void *task);
	size_t		to, bitmap;
	size_t		(*fill)(u8 *pages, const unsigned long *view);
} kinds[] = {
	{ "base", (void *)tss_copy_io_bitmap_base, 0,
	  offsetof(struct tss_struct_base, io_bitmap.bitmap), fill_base },
	{ "series", (void *)tss_copy_io_bitmap_series,
	  offsetof(struct tss_struct_series, io_bitmap.slots[0]),
	  offsetof(struct tss_struct_series, io_bitmap.slots[0].bitmap), fill_series },
	{ "nothing", nothing },
};

/* A copy with a pair of tasks; where in its pages a task's bitmap begins */
static struct subject {
	const struct kind	*kind;
	const struct pair	*pair;
	struct area		*areas;
	size_t			offset[2];
} subjects[ARRAY_SIZE(pairs) * ARRAY_SIZE(kinds)];

/* Allocate and fill the areas of a subject: no port is enabled in their TSS */
static void prepare(struct subject *s)
{
	struct area *area = s->areas = allocate(nr_areas * sizeof(*area));
	unsigned int which;
	view_t view;

	for (; area < s->areas + nr_areas; area++) {
		memset(area->tss + s->kind->bitmap, 0xff, sizeof(view));
		for (which = 0; which < 2; which++) {
			view_of(s->pair, which, view);
			if (s->kind->fill)
				s->offset[which] = s->kind->fill(area->task[which], view);
		}
	}
}

static u64 tsc(void)
{
	u32 low, high;

	asm volatile("mfence; lfence; rdtsc; lfence" : "=a" (low), "=d" (high) : : "memory");
	return (u64)high << 32 | low;
}

/* Return the ticks of calls: on an area each, or on one with the two tasks in turn */
static __call u64 run(const struct subject *s, struct area *area, unsigned int which, bool in_turn)
{
	size_t to = s->kind->to, offset[2] = { s->offset[0], s->offset[1] };
	unsigned int nr = in_turn ? WARM_CALLS : nr_areas;
	void (*copy)(void *to, const void *task) = s->kind->copy;
	u64 start = tsc();

	while (nr--) {
		copy(area->tss + to, area->task[which] + offset[which]);
		/* Until its stores are in the cache, too */
		asm volatile("mfence; lfence" : : : "memory");
		which ^= in_turn;
		area += !in_turn;
	}
	return tsc() - start;
}

/* After a copy every TSS must have the ports of the task, and no others */
static void check(const struct subject *s)
{
	unsigned int i, turn, which;
	view_t view;

	for (turn = 0; turn < 3 && s->kind->fill; turn++) {
		which = turn % 2;
		run(s, s->areas, which, false);
		view_of(s->pair, which, view);
		for (i = 0; i < nr_areas; i++)
			if (memcmp(s->areas[i].tss + s->kind->bitmap, view, sizeof(view)))
				errx(1, "wrong copy: %s, %s: the TSS has not the ports of task %u",
				     s->kind->name, s->pair->name, which);
	}
}

static u64 sample(const struct subject *s, enum state state, unsigned int round)
{
	/* In another area each time: what a copy takes varies with its pages */
	struct area *area = s->areas + round / 2 % nr_areas;
	unsigned int which = round % 2;
	size_t at;

	if (state == WARM) {
		run(s, area, which, true);
		return run(s, area, which, true);
	}

	/* Both tasks have run, and last the one which is not timed */
	run(s, s->areas, which, false);
	run(s, s->areas, !which, false);
	for (at = 0; at < WALK_FACTOR * cache_bytes[state]; at += LINE_BYTES)
		*(const volatile u8 *)(walked + at);
	return run(s, s->areas, which, false);
}

int main(int argc, char **argv)
{
	unsigned int i, state, round, nr_rounds;

	if (argc != 5)
		errx(2, "usage: copycost L1D_BYTES L2_BYTES AREAS ROUNDS");
	cache_bytes[NO_L1] = atol(argv[1]);
	cache_bytes[NO_L2] = atol(argv[2]);
	nr_areas = atoi(argv[3]);
	nr_rounds = atoi(argv[4]);

	walked = allocate(WALK_FACTOR * cache_bytes[NO_L2]);
	for (i = 0; i < ARRAY_SIZE(subjects); i++) {
		subjects[i].kind = &kinds[i % ARRAY_SIZE(kinds)];
		subjects[i].pair = &pairs[i / ARRAY_SIZE(kinds)];
		prepare(&subjects[i]);
		check(&subjects[i]);
	}
	/* In turn, so that what disturbs one for a while disturbs all */
	for (state = 0; state < STATES; state++)
		for (round = 0; round < nr_rounds; round++)
			for (i = 0; i < ARRAY_SIZE(subjects); i++)
				printf("%s %s %s %d %lu\n", subjects[i].pair->name,
				       subjects[i].kind->name, state_names[state],
				       state == WARM ? WARM_CALLS : (int)nr_areas,
				       sample(&subjects[i], state, round));
	fflush(stdout);
	for (i = 0; i < ARRAY_SIZE(subjects); i++)
		check(&subjects[i]);
	return 0;
}
