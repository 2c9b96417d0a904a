// SPDX-License-Identifier: GPL-2.0
/* What measure_copy takes of a kernel tree, from a header and a source. */
#define IO_BITMAP_BITS 65536
#define IO_BITMAP_BYTES (IO_BITMAP_BITS / BITS_PER_BYTE)
#define IO_BITMAP_LONGS (IO_BITMAP_BYTES / sizeof(long))
struct x86_io_bitmap {
    unsigned int prev_max;
    unsigned long bitmap[IO_BITMAP_LONGS + 1];
};
struct tss_struct {
    struct x86_hw_tss x86_tss;
    struct x86_io_bitmap io_bitmap;
} __aligned(PAGE_SIZE);
struct io_bitmap {
    u64 sequence;
    unsigned int max, first, end;
    unsigned long bitmap[IO_BITMAP_LONGS];
};

static void tss_copy_io_bitmap(struct tss_struct *tss, struct io_bitmap *iobm)
{
    memcpy(tss->io_bitmap.bitmap, iobm->bitmap,
           max(tss->io_bitmap.prev_max, iobm->max));
    tss->io_bitmap.prev_max = iobm->max;
}
