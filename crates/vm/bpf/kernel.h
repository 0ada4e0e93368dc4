/* SPDX-License-Identifier: GPL-2.0 */
/* The few kernel types that these programs read, besides those of justitia.h. */
#ifndef JUSTITIA_VM_KERNEL_H
#define JUSTITIA_VM_KERNEL_H

#include <justitia.h>

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

#pragma clang attribute pop

#endif
