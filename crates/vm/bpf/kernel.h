/* SPDX-License-Identifier: GPL-2.0 */
/*
 * The few kernel types that the programs look into, each with only the members that are read.
 * Where a member really lies is found in the running kernel's BTF when the programs are loaded
 * (CO-RE). A name with ___ is a variant of a type whose shape changed between kernels.
 */
#ifndef JUSTITIA_VM_KERNEL_H
#define JUSTITIA_VM_KERNEL_H

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
	BPF_MAP_TYPE_PERCPU_ARRAY = 6,
	BPF_MAP_TYPE_LRU_HASH = 9,
	BPF_MAP_TYPE_HASH_OF_MAPS = 13,
	BPF_ANY = 0,
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

#pragma clang attribute push(__attribute__((preserve_access_index)), apply_to = record)

struct super_block {
	unsigned int s_dev;
};

struct inode {
	unsigned short i_mode;
	struct super_block *i_sb;
	unsigned long i_ino;
	unsigned int i_rdev;
};

struct address_space {
	struct inode *host;
};

struct file {
	struct address_space *f_mapping;
};

struct kiocb {
	struct file *ki_filp;
	long long ki_pos;
};

struct iov_iter;

struct folio {
	unsigned long flags;
	struct address_space *mapping;
	unsigned long index;
};

/* The order of a large folio is a byte of its own ... */
struct folio___byte {
	unsigned char _folio_order;
};

/* ... or the low byte of the second page's flags. */
struct folio___flags {
	unsigned long _flags_1;
};

/* Flags within a structure of their own. */
struct folio___memdesc {
	struct {
		unsigned long f;
	} flags;
};

enum pageflags {
	PG_head = 6,
};

#pragma clang attribute pop

/* include/uapi/linux/stat.h */
#define S_IFMT 0170000
#define S_IFBLK 0060000

#endif
