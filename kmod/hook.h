/* SPDX-License-Identifier: GPL-2.0 */
/* The redirected function. */
#ifndef JUSTITIA_HOOK_H
#define JUSTITIA_HOOK_H

#include <linux/types.h>

/* May sleep. */
int jg_hook_attach(void);
void jg_hook_detach(void);
bool jg_hook_empty(void);
u64 jg_hook_calls(bool passed);

#endif
