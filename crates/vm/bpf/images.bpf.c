// SPDX-License-Identifier: GPL-2.0
/*
 * Counts the requests of each page of a disk image in the kernel: no event goes to user space.
 *
 * User space registers images (`images`), each with its own map for the pages (`books`), sized for the image.
 * A file that is not registered costs one failed lookup per read. Requests count only when a machine's
 * process makes them (`machines`, by thread group, so io_uring's workers are included). A backup of the image
 * is therefore not taken for a second request of the guest.
 *
 * Requests are counted at fexit of filemap_read(), where the bytes that were read are known exactly. A kernel
 * that cannot attach there counts at the tracepoint mm_filemap_get_pages. It reports the remaining range once
 * for each batch of pages of a call, so all batches but the first are ignored. It does not report a batch
 * that ends at a page still being read, so the pages before that one are not counted. Insertion and writing
 * are counted at tracepoints that every kernel has.
 *
 * Counting is one compare-and-exchange for 16 pages, tried a few times; pages that could not be counted are
 * counted as lost. Between two requests the emulator or the guest evicts the CPU's caches, so a request's
 * cost is the cache lines it touches, those of programs and helpers included, more than its computation. The
 * programs therefore read kernel memory in place, not by a helper, and keep rare cases (a second word, a lost
 * page) off the hot path.
 *
 * Context: fexit and BTF tracepoints. The programs never sleep and may run in any task.
 */
#include "kernel.h"
#include "record.h"

char LICENSE[] SEC("license") = "GPL";

const volatile struct settings settings = {};

/* MAX_IMAGES of src/track/mod.rs, which assigns the slots of `books`. */
#define MAX_IMAGES 1024
#define MAX_MACHINES 1024

struct {
	__uint(type, BPF_MAP_TYPE_HASH);
	__uint(map_flags, BPF_F_NO_PREALLOC);
	__uint(max_entries, MAX_IMAGES);
	__type(key, struct image_key);
	__type(value, struct image);
} images SEC(".maps");

/*
 * The map of an image's pages. It has sizes instead of types: user space creates these maps without BTF
 * types, and Linux 6.1 rejects them if this inner-map template has types.
 */
struct block_map {
	__uint(type, BPF_MAP_TYPE_ARRAY);
	__uint(map_flags, BPF_F_MMAPABLE | BPF_F_INNER_MAP);
	__uint(max_entries, 1);
	__uint(key_size, sizeof(__u32));
	__uint(value_size, sizeof(struct block));
};

/* Never used: it makes the compiler emit BTF of `struct block`. */
struct {
	__uint(type, BPF_MAP_TYPE_ARRAY);
	__uint(max_entries, 1);
	__type(key, __u32);
	__type(value, struct block);
} described SEC(".maps");

struct {
	__uint(type, BPF_MAP_TYPE_ARRAY_OF_MAPS);
	__uint(max_entries, MAX_IMAGES);
	__type(key, __u32);
	__array(values, struct block_map);
} books SEC(".maps");

/* thread group -> its counters */
struct {
	__uint(type, BPF_MAP_TYPE_HASH);
	__uint(map_flags, BPF_F_NO_PREALLOC);
	__uint(max_entries, MAX_MACHINES);
	__type(key, __u32);
	__type(value, struct machine);
} machines SEC(".maps");

/* The remaining range of a task's call at its last batch. */
struct wanted {
	__u64 task;
	__u64 mapping;
	__u64 from;
	__u64 last;
};

/*
 * Indexed by the low bits of the thread ID. If two tasks whose IDs collide read concurrently, the rest of an
 * interrupted request counts as another request.
 */
#define PLACES 4096
static struct wanted calls[PLACES];

/* The page that this CPU last added to the page cache. */
struct inserted {
	struct address_space *mapping;
	__u64 index;
};

struct {
	__uint(type, BPF_MAP_TYPE_PERCPU_ARRAY);
	__uint(max_entries, 1);
	__type(key, __u32);
	__type(value, struct inserted);
} inserted SEC(".maps");

#define ONES 0x1111111111111111ull
/* Words that one call may touch: 16 MiB of an image. */
#define MAX_WORDS 256
/* Blocks that one folio may span: 8 MiB with 4 KiB pages. */
#define MAX_FOLIO_BLOCKS 8

static __always_inline void add(__u64 *counter, __u64 amount)
{
	__sync_fetch_and_add(counter, amount);
}

static __always_inline struct image_key key_of(struct address_space *mapping)
{
	struct inode *host = mapping->host;
	struct image_key key = {};

	if ((host->i_mode & S_IFMT) == S_IFBLK) {
		key.dev = BLOCK_DEVICE;
		key.ino = host->i_rdev;
	} else {
		key.dev = host->i_sb->s_dev;
		key.ino = host->i_ino;
	}
	return key;
}

/* The number of pages in a set of a word's pages, which has one bit in every four. */
static __always_inline __u64 how_many(__u64 set)
{
	set = (set & 0x0101010101010101ull) + (set >> 4 & 0x0101010101010101ull);
	return set * 0x0101010101010101ull >> 56;
}

/* The lowest `pages` pages of a word, 16 at most. */
static __always_inline __u64 lowest(__u64 pages)
{
	return pages >= WORD_PAGES ? ONES : ONES & ((1ull << (4 * (pages & 15))) - 1);
}

/* Marks the block in the summary, for user space to visit. */
static __always_inline void touch(void *map, __u64 blocks, __u64 at)
{
	__u32 index = blocks + at / SUMMARY_BLOCKS;
	struct block *summary = bpf_map_lookup_elem(map, &index);
	__u64 bit = 1ull << (at & 63);

	if (!summary)
		return;
	__u64 *word = &summary->words[at >> 6 & (BLOCK_WORDS - 1)];
	if (!(*(volatile __u64 *)word & bit))
		__sync_fetch_and_or(word, bit);
}

/* State of counting one call; on its stack. */
struct count {
	__u32 book;
	__u32 blocks;
	/* Pages left to count: [from, to). */
	__u64 from;
	__u64 to;
	__u64 now;
	/* Pages of this call that had been requested before, and pages that could not be counted. */
	__u64 again;
	__u64 lost;
	/* A write: pages are marked as used, and not counted as requested. */
	__u64 write;
};

/* Counts the pages [from, to), all within one word. */
static __always_inline void count_word(void *map, struct count *count, __u64 from, __u64 to)
{
	__u32 index = from / BLOCK_PAGES;
	__u64 set = lowest(to - from) << (4 * (from & 15));
	struct block *block;
	__u64 *word, old;

	if (from / BLOCK_PAGES >= count->blocks)
		goto lost;
	block = bpf_map_lookup_elem(map, &index);
	if (!block)
		goto lost;
	word = &block->words[from / WORD_PAGES & (BLOCK_WORDS - 1)];
	old = *(volatile __u64 *)word;
	for (int attempt = 0; attempt < 4; attempt++) {
		__u64 some = (old | old >> 1 | old >> 2) & ONES;
		__u64 full = old & old >> 1 & old >> 2 & ONES;
		__u64 new = set << 3 | (count->write ? old : old + (set & ~full));
		__u64 seen;

		seen = __sync_val_compare_and_swap(word, old, new);
		if (seen == old) {
			if (set & some)
				count->again += how_many(set & some);
			if (count->write)
				block->written_ns = count->now;
			else
				block->used_ns = count->now;
			touch(map, count->blocks, index);
			return;
		}
		old = seen;
	}
lost:
	count->lost += to - from;
}

/* Counts the next word of a call. A function, so that the verifier checks it once. */
static __noinline long count_next(__u32 step, struct count *count)
{
	__u32 book = count->book;
	__u64 from = count->from;
	__u64 end = (from | (WORD_PAGES - 1)) + 1;
	void *map;

	if (from >= count->to)
		return 1;
	if (end > count->to)
		end = count->to;
	map = bpf_map_lookup_elem(&books, &book);
	if (!map)
		return 1;
	count_word(map, count, from, end);
	count->from = end;
	return 0;
}

/* Counts the pages [from, to). */
static __always_inline int count_pages(struct image *image, __u64 from, __u64 to, bool write)
{
	__u32 tgid = bpf_get_current_pid_tgid() >> 32;
	struct count count = {
		.book = image->book,
		.blocks = image->blocks,
		.from = from,
		.to = to,
		.write = write,
	};
	struct machine *machine = NULL;
	__u64 pages = to - from;

	if (to <= from)
		return 0;
	if (!write) {
		machine = bpf_map_lookup_elem(&machines, &tgid);
		if (!machine) {
			add(&image->foreign_pages, pages);
			return 0;
		}
	}
	count.now = bpf_ktime_get_ns();
	/* Most requests lie within one word. */
	count_next(0, &count);
	if (count.from < to) {
		bpf_loop(MAX_WORDS, count_next, &count, 0);
		if (count.from < to)
			count.lost += to - count.from;
	}
	if (count.lost)
		add(&image->lost_pages, count.lost);
	if (machine) {
		add(&image->requested_pages, pages);
		add(&machine->requested_pages, pages);
		if (count.again) {
			add(&image->again_pages, count.again);
			add(&machine->again_pages, count.again);
		}
		image->used_ns = count.now;
		machine->used_ns = count.now;
	}
	return 0;
}

/* A read of `ret - already` bytes that ended at ki_pos. */
SEC("fexit/filemap_read")
int BPF_PROG(read_bytes, struct kiocb *iocb, struct iov_iter *iter, long already, long ret)
{
	__u64 end, shift = settings.page_shift & 63;
	struct image_key key;
	struct image *image;

	if (ret <= already || ret <= 0)
		return 0;
	key = key_of(iocb->ki_filp->f_mapping);
	image = bpf_map_lookup_elem(&images, &key);
	if (!image)
		return 0;
	end = iocb->ki_pos;
	return count_pages(image, (end - (ret - already)) >> shift, ((end - 1) >> shift) + 1, false);
}

/* A call requests the pages from `index` to `last`, inclusive, and got a batch of them. */
SEC("tp_btf/mm_filemap_get_pages")
int BPF_PROG(read_batch, struct address_space *mapping, unsigned long index, unsigned long last)
{
	struct image_key key = key_of(mapping);
	struct image *image = bpf_map_lookup_elem(&images, &key);
	__u32 task = bpf_get_current_pid_tgid();
	struct wanted *call = &calls[task & (PLACES - 1)];
	bool goes_on;

	if (!image)
		return 0;
	goes_on = call->task == task && call->mapping == (__u64)mapping && call->last == last &&
		  call->from < index;
	call->from = index;
	if (goes_on)
		return 0;
	call->task = task;
	call->mapping = (__u64)mapping;
	call->last = last;
	return count_pages(image, index, last + 1, false);
}

SEC("tp_btf/mm_filemap_add_to_page_cache")
int BPF_PROG(page_added, struct folio *folio)
{
	struct image_key key = key_of(folio->mapping);
	struct image *image = bpf_map_lookup_elem(&images, &key);
	struct inserted *last;
	__u64 index = folio->index, pages;
	__u32 zero = 0, book;
	void *map;

	if (!image)
		return 0;
	pages = folio_pages(folio);
	add(&image->inserted_pages, pages);
	last = bpf_map_lookup_elem(&inserted, &zero);
	if (last) {
		last->mapping = folio->mapping;
		last->index = index;
	}
	/* May be readahead that is never requested: user space has to visit the block. */
	book = image->book;
	map = bpf_map_lookup_elem(&books, &book);
	if (!map)
		return 0;
	for (int i = 0; i < MAX_FOLIO_BLOCKS && i * BLOCK_PAGES < pages; i++) {
		__u64 block = index / BLOCK_PAGES + i;

		if (block < image->blocks)
			touch(map, image->blocks, block);
	}
	return 0;
}

SEC("tp_btf/writeback_dirty_folio")
int BPF_PROG(page_written, struct folio *folio, struct address_space *mapping)
{
	struct image_key key;
	struct image *image;
	struct inserted *last;
	__u64 index, pages;
	__u32 zero = 0;

	if (!mapping)
		return 0;
	key = key_of(mapping);
	image = bpf_map_lookup_elem(&images, &key);
	if (!image)
		return 0;
	index = folio->index;
	pages = folio_pages(folio);
	last = bpf_map_lookup_elem(&inserted, &zero);
	/* This CPU just added the page in order to write it. */
	if (last && last->mapping == mapping && last->index == index)
		add(&image->written_pages, pages);
	return count_pages(image, index, index + pages, true);
}
