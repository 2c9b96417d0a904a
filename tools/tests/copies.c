// SPDX-License-Identifier: GPL-2.0
/* What measure_copy takes of the headers and of the source of each side. */
#define IO_BITMAP_BITS 65536
#define IO_BITMAP_BYTES (IO_BITMAP_BITS / BITS_PER_BYTE)
#define IO_BITMAP_LONGS (IO_BITMAP_BYTES / sizeof(long))
struct tss_struct {
    struct x86_hw_tss x86_tss;
    struct x86_io_bitmap io_bitmap;
} __aligned(PAGE_SIZE);
struct io_bitmap {
    u64 sequence;
    unsigned int max, first, end;
    unsigned long bitmap[IO_BITMAP_LONGS];
};
// base
struct x86_io_bitmap {
    unsigned int prev_max;
    unsigned long bitmap[IO_BITMAP_LONGS + 1];
};

static void tss_copy_io_bitmap(struct tss_struct *tss, struct io_bitmap *iobm)
{
    memcpy(tss->io_bitmap.bitmap, iobm->bitmap,
           max(tss->io_bitmap.prev_max, iobm->max));
    tss->io_bitmap.prev_max = iobm->max;
}
// series
struct x86_io_bitmap_slot {
    unsigned int prev_first, prev_end;
    unsigned long bitmap[IO_BITMAP_LONGS + 1];
};
struct x86_io_bitmap {
    struct x86_io_bitmap_slot slots[2];
};

static int io_bitmap_is_in(const struct io_bitmap *iobm, unsigned int i)
{
    return i >= iobm->first && i < iobm->end;
}

static void tss_copy_io_bitmap(struct x86_io_bitmap_slot *to, struct io_bitmap *iobm)
{
    for (unsigned int i = 0; i < IO_BITMAP_LONGS; i++)
        to->bitmap[i] = io_bitmap_is_in(iobm, i) ?
                           iobm->bitmap[i - iobm->first] : ~0UL;
}
