// SPDX-License-Identifier: GPL-2.0
/*
 * Who asks for which page of a disk image, counted where it happens: no event goes to user space.
 *
 * Images are registered by user space (`images`), each with a map of its own for the pages
 * (`books`), as large as the image. A file that is not registered costs one failed look-up a read.
 * Requests count when a machine's process makes them (`machines`, by thread group: io_uring's
 * workers belong to it), so that a backup of the image is not taken for the guest coming back.
 *
 * Requests: behind filemap_read(), where the bytes that were read are known exactly; where a
 * kernel cannot attach there, from the tracepoint mm_filemap_get_pages, which tells the range
 * still wanted once for each batch of pages of a call, so all but the first are left out. A batch
 * that ends at a page still being read is not told: pages before it go uncounted.
 * Insertion and writing: tracepoints that every kernel has.
 *
 * Counting is one compare-and-exchange for 16 pages, tried a few times; what is lost is counted.
 * Between two requests the emulator, or the guest, has had the CPU's caches to itself: what a
 * request costs is the lines of memory it touches, of programs and helpers too, more than what it
 * computes. So kernel memory is read in place, not by a helper, and what few requests need (a
 * second word, a lost page) is out of the way.
 *
 * Context: fexit and BTF tracepoints; the programs never sleep, and may run in any task.
 */
#include "kernel.h"
#include "record.h"

char LICENSE[] SEC("license") = "GPL";

const volatile struct settings settings = {};

/* User space counts places (track/mod.rs): as many. */
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
 * The map of an image's pages. Sizes, not types: Linux 6.1 takes no map without types where the
 * pattern has them, and user space makes these without.
 */
struct block_map {
	__uint(type, BPF_MAP_TYPE_ARRAY);
	__uint(map_flags, BPF_F_MMAPABLE | BPF_F_INNER_MAP);
	__uint(max_entries, 1);
	__uint(key_size, sizeof(__u32));
	__uint(value_size, sizeof(struct block));
};

/* Never used: it makes the compiler describe `struct block`. */
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

/* thread group -> what it asked for */
struct {
	__uint(type, BPF_MAP_TYPE_HASH);
	__uint(map_flags, BPF_F_NO_PREALLOC);
	__uint(max_entries, MAX_MACHINES);
	__type(key, __u32);
	__type(value, struct machine);
} machines SEC(".maps");

/* The range a task's call still wanted when it was last seen. */
struct wanted {
	__u64 task;
	__u64 mapping;
	__u64 from;
	__u64 last;
};

/*
 * A task's place is told by the low bits of its number. Where two tasks whose numbers are so far
 * apart read at once, the rest of an interrupted request counts as another one.
 */
#define PLACES 4096
static struct wanted calls[PLACES];

/* The page that this CPU brought in last. */
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
/* Blocks that one folio may span: 8 MiB where a page is 4 KiB. */
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

/* How many pages a set of a word's pages (a bit each four) has. */
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

/* The block is to be looked at. */
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

/* The counting of one call; on its stack. */
struct count {
	__u32 book;
	__u32 blocks;
	/* Pages left to count. */
	__u64 from;
	__u64 to;
	__u64 now;
	/* Pages of this call asked for before, and pages that could not be counted. */
	__u64 again;
	__u64 lost;
	/* Written: used, and not asked for. */
	__u64 write;
};

/* Counts the pages [from, to) of one word, all within it. */
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

/* The next word of a call; a function, so that the verifier looks at it once. */
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

/* A read of some bytes that ended at this position. */
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

/* A call wants the pages from `index` to `last`, and got some of them. */
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
	/* Fetched ahead and perhaps never asked for: somebody has to look. */
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
	/* It came in a moment ago, to be written. */
	if (last && last->mapping == mapping && last->index == index)
		add(&image->written_pages, pages);
	return count_pages(image, index, index + pages, true);
}
