// SPDX-License-Identifier: GPL-2.0
/*
 * Programs that do nothing. Whether they can be loaded and attached tells what this kernel allows.
 */
#include "kernel.h"

SEC("fexit/filemap_read")
int BPF_PROG(probe_function)
{
	return 0;
}

SEC("tp_btf/mm_filemap_add_to_page_cache")
int BPF_PROG(probe_tracepoint)
{
	return 0;
}

char LICENSE[] SEC("license") = "GPL";
