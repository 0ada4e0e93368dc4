/* SPDX-License-Identifier: GPL-2.0 */
/* The few kernel types that these programs access, besides those of justitia.h. */
#ifndef JUSTITIA_LAB_KERNEL_H
#define JUSTITIA_LAB_KERNEL_H

#include <justitia.h>

/* From include/uapi/linux/bpf.h: part of the ABI. */
enum {
	BPF_MAP_TYPE_PERCPU_HASH = 5,
	BPF_MAP_TYPE_STACK_TRACE = 7,
};

#pragma clang attribute push(__attribute__((preserve_access_index)), apply_to = record)

struct kernfs_node {
	__u64 id;
};

struct cgroup {
	int level;
	struct kernfs_node *kn;
	struct cgroup *ancestors[];
};

struct css_set {
	struct cgroup *dfl_cgrp;
};

struct task_struct {
	int pid;
	struct css_set *cgroups;
};

struct qspinlock;

#pragma clang attribute pop

#endif
