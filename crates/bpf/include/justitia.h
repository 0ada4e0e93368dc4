/* SPDX-License-Identifier: GPL-2.0 */
/*
 * Definitions that all programs need before kernel types of their own: the integers, the constants of the BPF
 * ABI, libbpf's headers, and folios of the page cache.
 *
 * Kernel types have only the members that are read. When the programs are loaded, the running kernel's BTF
 * tells where a member really lies (CO-RE). A name with ___ is a variant of a type whose shape changed
 * between kernels. The BTF tells which variant holds, never a version number.
 */
#ifndef JUSTITIA_H
#define JUSTITIA_H

typedef unsigned char __u8;
typedef signed char __s8;
typedef unsigned short __u16;
typedef short __s16;
typedef unsigned int __u32;
typedef int __s32;
typedef unsigned long long __u64;
typedef long long __s64;
typedef __u16 __be16;
typedef __u32 __be32;
typedef __u32 __wsum;
typedef _Bool bool;

/* From include/uapi/linux/bpf.h: part of the ABI. */
enum {
	BPF_MAP_TYPE_HASH = 1,
	BPF_MAP_TYPE_ARRAY = 2,
	BPF_MAP_TYPE_PERCPU_HASH = 5,
	BPF_MAP_TYPE_PERCPU_ARRAY = 6,
	BPF_MAP_TYPE_STACK_TRACE = 7,
	BPF_MAP_TYPE_LRU_HASH = 9,
	BPF_MAP_TYPE_ARRAY_OF_MAPS = 12,
	BPF_ANY = 0,
	BPF_NOEXIST = 1,
	BPF_F_NO_PREALLOC = 1 << 0,
	BPF_F_MMAPABLE = 1 << 10,
	BPF_F_INNER_MAP = 1 << 12,
};

#include <bpf/bpf_helpers.h>
#include <bpf/bpf_core_read.h>
#include <bpf/bpf_tracing.h>

#define true 1
#define false 0
#ifndef NULL
#define NULL ((void *)0)
#endif

/* include/uapi/linux/stat.h */
#define S_IFMT 0170000
#define S_IFBLK 0060000
#define S_IFREG 0100000

#pragma clang attribute push(__attribute__((preserve_access_index)), apply_to = record)

struct address_space;

struct folio {
	unsigned long flags;
	struct address_space *mapping;
	unsigned long index;
	unsigned long memcg_data;
};

/* Variant: the order of a large folio is a byte of its own. */
struct folio___byte {
	unsigned char _folio_order;
};

/* Variant: the order of a large folio is the low byte of the second page's flags. */
struct folio___flags {
	unsigned long _flags_1;
};

/* Variant: the flags are in a structure of their own. */
struct folio___memdesc {
	struct {
		unsigned long f;
	} flags;
};

enum pageflags {
	PG_head = 6,
};

#pragma clang attribute pop

/* Pages of a folio. */
static __always_inline __u64 folio_pages(struct folio *folio)
{
	unsigned long head = bpf_core_enum_value(enum pageflags, PG_head);
	unsigned long flags;

	if (bpf_core_field_exists(folio->flags))
		flags = folio->flags;
	else
		flags = ((struct folio___memdesc *)folio)->flags.f;
	if (!(flags >> head & 1))
		return 1;
	if (bpf_core_field_exists(((struct folio___byte *)folio)->_folio_order))
		return 1ull << (((struct folio___byte *)folio)->_folio_order & 31);
	return 1ull << (((struct folio___flags *)folio)->_flags_1 & 31);
}

#endif
