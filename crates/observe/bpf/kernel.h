/* SPDX-License-Identifier: GPL-2.0 */
/* The few kernel types that these programs read, besides those of task.h. */
#ifndef JUSTITIA_KERNEL_H
#define JUSTITIA_KERNEL_H

#include <task.h>

#pragma clang attribute push(__attribute__((preserve_access_index)), apply_to = record)

struct cgroup_subsys_state {
	struct cgroup *cgroup;
};

struct mem_cgroup {
	struct cgroup_subsys_state css;
};

struct obj_cgroup {
	struct mem_cgroup *memcg;
};

/* If this member exists, folios of the page cache point to their owner through an obj_cgroup. */
struct mem_cgroup_per_node {
	struct obj_cgroup *objcg;
};

struct super_block {
	unsigned int s_dev;
	unsigned long s_magic;
};

struct inode {
	unsigned short i_mode;
	struct super_block *i_sb;
	struct address_space *i_mapping;
	unsigned long i_ino;
	unsigned int i_generation;
};

struct xarray {
	void *xa_head;
};

struct address_space {
	struct inode *host;
	struct xarray i_pages;
	unsigned long nrpages;
};

/* lib/xarray.c; 64 slots unless the kernel was built for very small machines. */
struct xa_node {
	unsigned char shift;
	void *slots[64];
};

struct file_ra_state {
	unsigned int size;
};

struct file {
	struct inode *f_inode;
	struct address_space *f_mapping;
	struct file_ra_state f_ra;
};

struct kiocb {
	struct file *ki_filp;
	long long ki_pos;
};

struct iov_iter;
struct pipe_inode_info;

struct readahead_control {
	struct file *file;
	struct address_space *mapping;
	struct file_ra_state *ra;
	unsigned long _index;
	unsigned int _nr_pages;
};

enum fault_flag {
	FAULT_FLAG_TRIED = 32,
};

enum fault_flag___vma {
	FAULT_FLAG_VMA_LOCK = 4096,
};

enum vm_fault_reason {
	VM_FAULT_MAJOR = 4,
	VM_FAULT_RETRY = 1024,
};

struct vm_fault {
	unsigned long address;
	enum fault_flag flags;
};

struct vm_area_struct {
	struct file *vm_file;
};

struct seq_file;

struct bpf_iter_meta {
	struct seq_file *seq;
};

struct bpf_iter__task {
	struct bpf_iter_meta *meta;
	struct task_struct *task;
};

struct bpf_iter__task_file {
	struct bpf_iter_meta *meta;
	struct task_struct *task;
	struct file *file;
};

struct bpf_iter__task_vma {
	struct bpf_iter_meta *meta;
	struct task_struct *task;
	struct vm_area_struct *vma;
};

struct bpf_iter__bpf_map_elem {
	struct bpf_iter_meta *meta;
	void *key;
	void *value;
};

#pragma clang attribute pop

/* Since Linux 6.2; costs no instruction. */
extern void *bpf_rdonly_cast(const void *object, __u32 type) __ksym __weak;

/*
 * include/linux/sched.h: the task reclaims memory, or exits. BTF does not have them, because they are macros.
 */
#define PF_MEMALLOC 0x00000800
#define PF_EXITING 0x00000004
/* include/uapi/linux/magic.h */
#define TMPFS_MAGIC 0x01021994
#define PROC_SUPER_MAGIC 0x9fa0
#define SYSFS_MAGIC 0x62656572
#define CGROUP2_SUPER_MAGIC 0x63677270

#endif
