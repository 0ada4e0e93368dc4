/* SPDX-License-Identifier: GPL-2.0 */
/*
 * Files that several groups use, and the groups that their pages are charged to.
 *
 * A use of a file is noted when the file is opened and, for files that stay open or mapped, by iterators that
 * user space runs now and then. A use that is not seen again ages: the group is then no user any more, but
 * may still be charged for what it touched first. Charges are not recorded at all: when user space asks, the
 * page cache of each shared file is walked and the charges are counted. The hot paths therefore pay nothing
 * for them, pages from before the observer count too, and no record can drift from the truth.
 *
 * Identity: the inode's address, checked against device, number and generation at each use. A walk reads
 * memory that may be freed under it. It uses only probing reads, and believes a page only if the page says
 * that it belongs to the file.
 *
 * Large files are sampled: every nth leaf of 64 pages, so that a look is bounded.
 */
#ifndef JUSTITIA_SHARING_H
#define JUSTITIA_SHARING_H

#include "identity.h"

/* A use counts for this long. */
#define FRESH_NS 30000000000ull

struct file_user {
	__u64 group;
	__u64 last_ns;
};

/* A file: its inode's address, and what tells it from an earlier inode at that address. */
struct identity {
	__u64 inode;
	__u64 ino;
	__u32 dev;
	__u32 generation;
};

struct file_uses {
	/* Its inode is 0 where there is no file, and while another file takes the place. */
	struct identity file;
	__u64 last_ns;
	/* In the first entry of a set: a program is changing the set. */
	__u64 taken;
	struct file_user users[USERS];
};

/*
 * Files and the groups that use them: sets of WAYS entries side by side. A hash of the inode's address
 * selects the set. In a full set, the least recently used file is replaced. A map with LRU lists would forget
 * as well, but costs ten times as much for each new file, and on some hosts nearly every file is new.
 */
#define WAYS 4
/* User space multiplies max_entries by the number of sets. */
struct {
	__uint(type, BPF_MAP_TYPE_ARRAY);
	__uint(max_entries, WAYS);
	__type(key, __u32);
	__type(value, struct file_uses);
} files SEC(".maps");

/* State of a walk; too large for the stack. */
struct walk {
	__u64 slots[64];
	struct shared_file file;
	__u64 head;
	__u64 mapping;
	/* Index of the next page. */
	__u64 index;
	/* Distance between leaves that are looked at, in leaves. */
	__u64 stride;
	/* memcg_data of the last page, and the slot that it is charged to. */
	__u64 data;
	__u32 slot;
};

struct {
	__uint(type, BPF_MAP_TYPE_PERCPU_ARRAY);
	__uint(max_entries, 1);
	__type(key, __u32);
	__type(value, struct walk);
} walks SEC(".maps");

static __always_inline bool same_file(struct identity *a, struct identity *b)
{
	return a->inode == b->inode && a->ino == b->ino && a->dev == b->dev &&
	       a->generation == b->generation;
}

/* Notes that a task of this group uses this file. */
static __always_inline void add_user(struct file_uses *uses, __u64 group, __u64 now)
{
	__u64 oldest = ~0ull;
	__u32 place = 0;

	for (__u32 i = 0; i < USERS; i++) {
		if (uses->users[i].group == group) {
			uses->users[i].last_ns = now;
			return;
		}
		if (uses->users[i].last_ns < oldest) {
			oldest = uses->users[i].last_ns;
			place = i;
		}
	}
	uses->users[place % USERS].group = group;
	uses->users[place % USERS].last_ns = now;
}

/* Notes the first use of a file, in the place of a forgotten one. */
static __always_inline void first_user(struct file_uses *uses, struct identity *file, __u64 group,
				       __u64 now)
{
	*(volatile __u64 *)&uses->file.inode = 0;
	__builtin_memset(uses->users, 0, sizeof(uses->users));
	uses->users[0].group = group;
	uses->users[0].last_ns = now;
	uses->file.ino = file->ino;
	uses->file.dev = file->dev;
	uses->file.generation = file->generation;
	*(volatile __u64 *)&uses->file.inode = file->inode;
}

/* Notes that a task of the group in this slot uses this file. */
static __noinline int note_use(struct identity *file, __u32 slot)
{
	__u32 index = (hash(lower_half(file->inode)) >> settings.set_shift) * WAYS;
	__u64 *group = bpf_map_lookup_elem(&groups, &slot);
	struct file_uses *first = bpf_map_lookup_elem(&files, &index);
	struct file_uses *oldest = first, *uses = first;
	__u64 now = bpf_ktime_get_ns();

	if (!group || !*group || !first)
		return 0;
	/* A use that comes while the set is changed is not noted: a group that uses a file does so again. */
	if (__sync_val_compare_and_swap(&first->taken, 0, 1))
		return 0;
	for (int way = 0; way < WAYS; way++, index++) {
		uses = bpf_map_lookup_elem(&files, &index);
		if (!uses || uses->file.inode == file->inode)
			break;
		if (uses->last_ns < oldest->last_ns)
			oldest = uses;
		uses = NULL;
	}
	if (!uses)
		uses = oldest;
	if (same_file(&uses->file, file))
		add_user(uses, *group, now);
	else
		first_user(uses, file, *group, now);
	uses->last_ns = now;
	__sync_val_compare_and_swap(&first->taken, 1, 0);
	return 0;
}

/* The same for an open file, with the kernel's own pointers: loads that need no helper. */
static __always_inline void note_file(struct file *file, __u32 slot)
{
	struct inode *inode = file->f_inode;
	struct super_block *sb = inode->i_sb;
	__u64 magic = sb->s_magic;
	struct identity identity;

	/* The others are memory, not cache. */
	if ((inode->i_mode & S_IFMT) != S_IFREG || magic == TMPFS_MAGIC ||
	    magic == PROC_SUPER_MAGIC || magic == SYSFS_MAGIC || magic == CGROUP2_SUPER_MAGIC)
		return;
	identity.inode = (__u64)inode;
	identity.ino = inode->i_ino;
	identity.dev = sb->s_dev;
	identity.generation = inode->i_generation;
	note_use(&identity, slot);
}

SEC("fentry/security_file_open")
int BPF_PROG(file_opened, struct file *file)
{
	__u32 slot = my_slot(bpf_get_smp_processor_id());

	if (slot != NO_SLOT)
		note_file(file, slot);
	return 0;
}

/* The same for the task that an iterator visits. */
static __always_inline void note_held(struct task_struct *task, struct file *file)
{
	__u32 generation = *(volatile __u32 *)&control.generation;
	struct cgroup *cgroup = BPF_CORE_READ(task, cgroups, dfl_cgrp);
	__u32 slot = resolve(BPF_CORE_READ(cgroup, kn, id), cgroup, generation);

	if (slot != NO_SLOT)
		note_file(file, slot);
}

SEC("iter/task_file")
int files_open(struct bpf_iter__task_file *ctx)
{
	/* Read once: each access to the context is another pointer that may be NULL. */
	struct task_struct *task = ctx->task;
	struct file *file = ctx->file;

	if (task && file)
		note_held(task, file);
	return 0;
}

SEC("iter/task_vma")
int files_mapped(struct bpf_iter__task_vma *ctx)
{
	struct task_struct *task = ctx->task;
	struct vm_area_struct *vma = ctx->vma;
	struct file *file;

	if (!task || !vma)
		return 0;
	file = vma->vm_file;
	if (file)
		note_held(task, file);
	return 0;
}

static __always_inline struct walk *walk_now(void)
{
	__u32 zero = 0;

	return bpf_map_lookup_elem(&walks, &zero);
}

/* include/linux/xarray.h: the low bits of an entry tell what it is. */
static __always_inline bool is_node(__u64 entry)
{
	return (entry & 3) == 2 && entry > 4096;
}

/*
 * Counts an entry of the tree if it is a page of the file; returns how many pages it spans. Not static: the
 * verifier then checks it once, and not once for each path to it. The verifier of Linux 6.1 finds a million
 * such paths.
 */
__noinline __u64 count_entry(__u64 entry)
{
	struct folio *folio = (struct folio *)entry;
	struct walk *walk = walk_now();
	unsigned long head = bpf_core_enum_value(enum pageflags, PG_head);
	__u64 pages = 1, data;
	unsigned long flags;

	/* Nothing, the shadow entry of an evicted page, or a sibling entry of a large folio. */
	if (!walk || !entry || entry & 3 || (__u64)BPF_CORE_READ(folio, mapping) != walk->mapping)
		return 0;
	if (bpf_core_field_exists(folio->flags))
		flags = BPF_CORE_READ(folio, flags);
	else
		flags = BPF_CORE_READ((struct folio___memdesc *)folio, flags.f);
	if (flags >> head & 1) {
		if (bpf_core_field_exists(((struct folio___byte *)folio)->_folio_order))
			pages <<= BPF_CORE_READ((struct folio___byte *)folio, _folio_order) & 31;
		else
			pages <<= BPF_CORE_READ((struct folio___flags *)folio, _flags_1) & 31;
	}
	walk->file.seen_pages += pages;
	if (!bpf_core_field_exists(folio->memcg_data))
		return pages;
	data = BPF_CORE_READ(folio, memcg_data);
	if (data != walk->data) {
		walk->data = data;
		walk->slot = charged_to(data);
	}
	if (walk->slot == NO_SLOT)
		return pages;
	for (int i = 0; i < HOLDERS; i++) {
		struct holder *holder = &walk->file.held[i];

		if (holder->pages && holder->slot != walk->slot)
			continue;
		holder->slot = walk->slot;
		holder->pages += pages;
		break;
	}
	return pages;
}

static long count_slot(__u32 at, void *unused)
{
	struct walk *walk = walk_now();

	if (!walk)
		return 1;
	count_entry(walk->slots[at & 63]);
	return 0;
}

/* Looks at the leaf of the next index, or skips what is empty. */
static long look_at_leaf(__u32 step, void *unused)
{
	struct walk *walk = walk_now();
	__u64 entry, pages;
	__u32 shift = 0;

	if (!walk)
		return 1;
	entry = walk->head;
	for (int level = 0; level < 7; level++) {
		struct xa_node *node = (struct xa_node *)(entry & ~3ull);
		__u64 at;

		if (!is_node(entry))
			break;
		shift = BPF_CORE_READ(node, shift);
		at = walk->index >> (shift & 63);
		/* Beyond the end of the tree. */
		if (!level && at > 63)
			return 1;
		if (!shift) {
			bpf_core_read(walk->slots, sizeof(walk->slots), &node->slots);
			bpf_loop(64, count_slot, NULL, 0);
			walk->index = (walk->index | 63) + 1 + 64 * (walk->stride - 1);
			return 0;
		}
		bpf_probe_read_kernel(&entry, sizeof(entry),
				      (void *)((__u64)node +
					       bpf_core_field_offset(node->slots) + (at & 63) * 8));
	}
	/* A tree of one page, a page as large as a subtree, or nothing. */
	pages = count_entry(entry);
	if (!is_node(walk->head))
		return 1;
	shift &= 63;
	if (pages > 1ull << shift)
		walk->index += pages;
	else
		walk->index = ((walk->index >> shift) + 1) << shift;
	return 0;
}

/* The slot of the group that pays for the file's first page. Global for the same reason as count_entry(). */
__noinline __u32 first_payer(void)
{
	struct walk *walk = walk_now();
	struct folio *folio;
	__u64 entry;

	if (!walk)
		return NO_SLOT;
	entry = walk->head;
	for (int level = 0; level < 7 && is_node(entry); level++) {
		struct xa_node *node = (struct xa_node *)(entry & ~3ull);

		bpf_core_read(&entry, sizeof(entry), &node->slots[0]);
	}
	folio = (struct folio *)entry;
	if (!entry || entry & 3 || (__u64)BPF_CORE_READ(folio, mapping) != walk->mapping ||
	    !bpf_core_field_exists(folio->memcg_data))
		return NO_SLOT;
	return charged_to(BPF_CORE_READ(folio, memcg_data));
}

/* True if a group other than the file's one known user pays for it: that group came and went unseen. */
static __always_inline bool paid_by_another(struct file_uses *uses)
{
	__u32 slot = first_payer();
	__u64 *payer = bpf_map_lookup_elem(&groups, &slot);

	return payer && *payer && *payer != uses->users[0].group;
}

/*
 * Copies the current users of the file in this place to the walk. Returns their number, and in the bits from
 * 8 up the number of users ever known. Global for the same reason as count_entry().
 */
__noinline __u32 note_users(__u32 place)
{
	struct file_uses *uses = bpf_map_lookup_elem(&files, &place);
	__u64 now = bpf_ktime_get_ns();
	struct walk *walk = walk_now();
	__u32 known = 0, users = 0;

	if (!uses || !walk)
		return 0;
	for (int i = 0; i < USERS; i++) {
		__u64 group = uses->users[i].group;
		bool fresh = group && now - uses->users[i].last_ns < FRESH_NS;

		walk->file.users[i] = fresh ? group : 0;
		users += fresh;
		known += group != 0;
	}
	return known << 8 | users;
}

/* True if the file's inode is still at this address, where anything may be by now. */
static __always_inline bool is_still(struct identity *file, struct inode *inode)
{
	return file->ino == BPF_CORE_READ(inode, i_ino) &&
	       file->dev == BPF_CORE_READ(inode, i_sb, s_dev) &&
	       file->generation == BPF_CORE_READ(inode, i_generation);
}

/* Runs over `files`. */
SEC("iter/bpf_map_elem")
int files_shared(struct bpf_iter__bpf_map_elem *ctx)
{
	struct file_uses *uses = ctx->value;
	__u32 *place = ctx->key;
	struct walk *walk = walk_now();
	struct inode *inode;
	__u64 mapping;
	__u32 users, leaves;

	if (!uses || !place || !walk || !uses->file.inode)
		return 0;
	users = note_users(*place);
	if (!(users & 0xff))
		return 0;
	inode = (struct inode *)uses->file.inode;
	mapping = (__u64)BPF_CORE_READ(inode, i_mapping);
	if (!is_still(&uses->file, inode) ||
	    BPF_CORE_READ((struct address_space *)mapping, host) != inode)
		return 0;
	walk->mapping = mapping;
	walk->head = (__u64)BPF_CORE_READ((struct address_space *)mapping, i_pages.xa_head);
	/* A group that used the file once may still be charged for it. */
	if (users >> 8 < 2 && !paid_by_another(uses))
		return 0;
	walk->file.resident_pages = BPF_CORE_READ((struct address_space *)mapping, nrpages);
	walk->file.seen_pages = 0;
	__builtin_memset(walk->file.held, 0, sizeof(walk->file.held));
	walk->index = walk->data = 0;
	walk->slot = NO_SLOT;
	leaves = control.leaves;
	if (!leaves)
		leaves = 1;
	walk->stride = 1 + walk->file.resident_pages / 64 / leaves;
	/* Twice: the pages need not lie side by side, and empty ranges take steps too. */
	if (walk->head)
		bpf_loop(2 * leaves + 64, look_at_leaf, NULL, 0);
	bpf_seq_write(ctx->meta->seq, &walk->file, sizeof(walk->file));
	return 0;
}

#endif
