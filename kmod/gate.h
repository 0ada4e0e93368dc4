/* SPDX-License-Identifier: GPL-2.0 */
/* Credits of a group at a device: wait for them, let waiters pass. */
#ifndef JUSTITIA_GATE_H
#define JUSTITIA_GATE_H

#include <linux/types.h>

/* Writers of a light group wait longer than those of the heaviest, up to this factor. */
#define JG_TIMEOUT_FACTOR 10

/* jg_admit(): the pages were taken in the gate's order. */
#define JG_ORDERED 1

struct address_space;
struct jg_device;
struct jg_member;
struct timer_list;

int jg_admit(struct address_space *mapping, long pages, bool nowait, u32 *waited);
struct jg_device *jg_turn_begin(struct address_space *mapping, long pages);
void jg_turn_end(struct jg_device *device);
void jg_let_everybody_go(struct jg_device *device);
void jg_let_group_go(struct jg_member *member);
void jg_tick(struct timer_list *timer);
void jg_refresh(struct jg_device *device);

#endif
