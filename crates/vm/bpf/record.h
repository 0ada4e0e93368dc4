/* SPDX-License-Identifier: GPL-2.0 */
/*
 * Records that the programs and user space share. The Rust types are generated from these; there is no second
 * definition. A page is the kernel's base page. All counters are cumulative.
 */
#ifndef JUSTITIA_VM_RECORD_H
#define JUSTITIA_VM_RECORD_H

/* Identifies a file. For a block device, dev is BLOCK_DEVICE and ino is the kernel's dev_t. */
struct image_key {
	__u64 dev;
	__u64 ino;
};
#define BLOCK_DEVICE (~0ull)

/* Counters of an image. */
struct image {
	/* Slot of its map in `books`, and the number of blocks there; the summary follows them. */
	__u32 book;
	__u32 blocks;
	/* Pages that machines requested, and those of them that had been requested before. */
	__u64 requested_pages;
	__u64 again_pages;
	/* Pages added to the page cache, and those of them added by writes. */
	__u64 inserted_pages;
	__u64 written_pages;
	/* Pages requested by processes that are not machines. */
	__u64 foreign_pages;
	/* Pages whose use could not be counted: beyond the map, or after too many lost races. */
	__u64 lost_pages;
	/* Time of a machine's last request, on the kernel's monotonic clock. */
	__u64 used_ns;
};

/* Counters of a machine. */
struct machine {
	__u64 requested_pages;
	__u64 again_pages;
	__u64 used_ns;
};

#define BLOCK_WORDS 16
#define WORD_PAGES 16
#define BLOCK_PAGES (BLOCK_WORDS * WORD_PAGES)
/* Blocks that one entry of the summary covers, one bit each. */
#define SUMMARY_BLOCKS (BLOCK_WORDS * 64)

/*
 * A block of pages, four bits each: the number of requests (three bits), and whether the page was used since
 * user space cleared this bit. Also an entry of the summary: the blocks to visit.
 */
struct block {
	__u64 words[BLOCK_WORDS];
	__u64 used_ns;
	__u64 written_ns;
};
_Static_assert(sizeof(struct block) == 144, "mapped by user space");

/* Set by user space before the programs are loaded. */
struct settings {
	__u32 page_shift;
};

#endif
