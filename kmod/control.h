/* SPDX-License-Identifier: GPL-2.0 */
/* /dev/justitia. */
#ifndef JUSTITIA_CONTROL_H
#define JUSTITIA_CONTROL_H

int jg_control_init(void);
void jg_control_exit(void);

#endif
