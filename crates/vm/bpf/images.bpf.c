// SPDX-License-Identifier: GPL-2.0
/*
 * Who asks for which page of a disk image, counted where it happens: no event goes to user space.
 *
 * Images are registered by user space (`images`), each with a map of its own for the pages
 * (`pages_of`), as large as the image. A file that is not registered costs one failed look-up a read.
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
 *
 * Context: fexit and BTF tracepoints; the programs never sleep, and may run in any task.
 */
#include "kernel.h"
#include "record.h"

char LICENSE[] SEC("license") = "GPL";

const volatile struct settings settings = {};

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
	__uint(type, BPF_MAP_TYPE_HASH_OF_MAPS);
	__uint(max_entries, MAX_IMAGES);
	__type(key, struct image_key);
	__array(values, struct block_map);
} pages_of SEC(".maps");

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
	struct address_space *mapping;
	__u64 from;
	__u64 last;
};

struct {
	__uint(type, BPF_MAP_TYPE_LRU_HASH);
	__uint(max_entries, 8192);
	__type(key, __u32);
	__type(value, struct wanted);
} calls SEC(".maps");

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
	struct inode *host = BPF_CORE_READ(mapping, host);
	struct image_key key = {};

	if ((BPF_CORE_READ(host, i_mode) & S_IFMT) == S_IFBLK) {
		key.dev = BLOCK_DEVICE;
		key.ino = BPF_CORE_READ(host, i_rdev);
	} else {
		key.dev = BPF_CORE_READ(host, i_sb, s_dev);
		key.ino = BPF_CORE_READ(host, i_ino);
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
	struct image_key key;
	__u64 blocks;
	/* Pages left to count. */
	__u64 from;
	__u64 to;
	__u64 now;
	/* Pages of this call asked for before, and pages that could not be counted. */
	__u64 again;
	__u64 lost;
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
		__u64 new = count->write ? (old | (set & ~some)) : old + (set & ~full);
		__u64 seen;

		new |= set << 3;
		seen = __sync_val_compare_and_swap(word, old, new);
		if (seen == old) {
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

/* One word of a call; a callback, so that the verifier looks at it once. */
static long count_next(__u32 step, struct count *count)
{
	__u64 from = count->from;
	__u64 end = (from | (WORD_PAGES - 1)) + 1;
	void *map;

	if (from >= count->to)
		return 1;
	if (end > count->to)
		end = count->to;
	map = bpf_map_lookup_elem(&pages_of, &count->key);
	if (!map)
		return 1;
	count_word(map, count, from, end);
	count->from = end;
	return 0;
}

/* Counts the pages [from, to). */
static __noinline int count_pages(struct image_key *key, __u64 from, __u64 to, bool write)
{
	struct image *image = bpf_map_lookup_elem(&images, key);
	__u32 tgid = bpf_get_current_pid_tgid() >> 32;
	struct count count = { .key = *key, .from = from, .to = to, .write = write };
	struct machine *machine = NULL;
	__u64 pages = to - from;

	if (!image || to <= from)
		return 0;
	if (!write) {
		machine = bpf_map_lookup_elem(&machines, &tgid);
		if (!machine) {
			add(&image->foreign_pages, pages);
			return 0;
		}
	}
	count.blocks = image->blocks;
	count.now = bpf_ktime_get_ns();
	bpf_loop(MAX_WORDS, count_next, &count, 0);
	if (count.from < to)
		count.lost += to - count.from;
	if (count.lost)
		add(&image->lost_pages, count.lost);
	if (machine) {
		add(&image->requested_pages, pages);
		add(&image->again_pages, count.again);
		image->used_ns = count.now;
		add(&machine->requested_pages, pages);
		add(&machine->again_pages, count.again);
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

	if (ret <= already || ret <= 0)
		return 0;
	key = key_of(iocb->ki_filp->f_mapping);
	end = iocb->ki_pos;
	return count_pages(&key, (end - (ret - already)) >> shift, ((end - 1) >> shift) + 1, false);
}

/* A call wants the pages from `index` to `last`, and got some of them. */
SEC("tp_btf/mm_filemap_get_pages")
int BPF_PROG(read_batch, struct address_space *mapping, unsigned long index, unsigned long last)
{
	struct image_key key = key_of(mapping);
	struct wanted now = { mapping, index, last };
	__u32 task = bpf_get_current_pid_tgid();
	struct wanted *before;

	if (!bpf_map_lookup_elem(&images, &key))
		return 0;
	before = bpf_map_lookup_elem(&calls, &task);
	if (before && before->mapping == mapping && before->last == last && before->from < index) {
		before->from = index;
		return 0;
	}
	bpf_map_update_elem(&calls, &task, &now, BPF_ANY);
	return count_pages(&key, index, last + 1, false);
}

SEC("tp_btf/mm_filemap_add_to_page_cache")
int BPF_PROG(page_added, struct folio *folio)
{
	struct image_key key = key_of(folio->mapping);
	struct image *image = bpf_map_lookup_elem(&images, &key);
	struct inserted *last;
	__u64 index = folio->index, pages;
	__u32 zero = 0;
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
	map = bpf_map_lookup_elem(&pages_of, &key);
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
	return count_pages(&key, index, index + pages, true);
}
