/* SPDX-License-Identifier: GPL-2.0 */
/*
 * Records that the programs and user space share. The Rust types are generated from these: there
 * is no second definition. A page is the kernel's base page. All counters are cumulative.
 */
#ifndef JUSTITIA_VM_RECORD_H
#define JUSTITIA_VM_RECORD_H

/* Which file. Of a block device: BLOCK_DEVICE, and its number as the kernel keeps it. */
struct image_key {
	__u64 dev;
	__u64 ino;
};
#define BLOCK_DEVICE (~0ull)

/* What happened to an image. */
struct image {
	/* Which map counts its pages, and how many blocks of them; behind these lies the summary. */
	__u32 book;
	__u32 blocks;
	/* Pages that machines asked for, and of these the ones asked for before. */
	__u64 requested_pages;
	__u64 again_pages;
	/* Pages that came into the cache, and of these the ones that came to be written. */
	__u64 inserted_pages;
	__u64 written_pages;
	/* Pages that were asked for by processes that are no machines. */
	__u64 foreign_pages;
	/* Pages whose request could not be counted: beyond the map, or in a race that was lost. */
	__u64 lost_pages;
	/* When a machine last asked for a page, on the kernel's monotonic clock. */
	__u64 used_ns;
};

/* What a machine asked for. */
struct machine {
	__u64 requested_pages;
	__u64 again_pages;
	__u64 used_ns;
};

#define BLOCK_WORDS 16
#define WORD_PAGES 16
#define BLOCK_PAGES (BLOCK_WORDS * WORD_PAGES)
/* Blocks that one entry of the summary stands for: one bit each. */
#define SUMMARY_BLOCKS (BLOCK_WORDS * 64)

/*
 * A block of pages, four bits each: how often it was asked for (three), and whether it was used
 * since user space looked. Or an entry of the summary: which blocks to look at.
 */
struct block {
	__u64 words[BLOCK_WORDS];
	__u64 used_ns;
	__u64 written_ns;
};
_Static_assert(sizeof(struct block) == 144, "mapped by user space");

/* What user space decides before the programs are loaded. */
struct settings {
	__u32 page_shift;
};

#endif
