/* SPDX-License-Identifier: GPL-2.0 */
/* A task and its cgroup. */
#ifndef JUSTITIA_TASK_H
#define JUSTITIA_TASK_H

#include <justitia.h>

#pragma clang attribute push(__attribute__((preserve_access_index)), apply_to = record)

struct kernfs_node {
	__u64 id;
};

struct cgroup_root {
	int hierarchy_id;
};

struct cgroup {
	int level;
	struct kernfs_node *kn;
	struct cgroup_root *root;
	struct cgroup *ancestors[];
};

struct css_set {
	struct cgroup *dfl_cgrp;
};

struct task_io_accounting {
	__u64 rchar;
};

struct task_struct {
	unsigned int flags;
	int pid;
	__u64 start_time;
	struct css_set *cgroups;
	struct task_io_accounting ioac;
	unsigned int memcg_nr_pages_over_high;
};

#pragma clang attribute pop

#endif
