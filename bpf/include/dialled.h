/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
/* What a socket has dialled, so that getpeername and recvmsg tell it that and
 * not where it was led. The kernel frees the storage with the socket.
 */
#pragma once

#include "maps.h"

#define DIALLED_SLOTS 4

struct dialled_slot {
	struct address to;     /* where the socket was led; all zero: a free slot */
	struct address host;   /* what it had dialled */
	__be16 to_port;
	__be16 host_port;
	__u32 real;            /* the slot of the real server there, 0 for an endpoint's lead */
	__u32 generation;            /* and which of those that it has held */
};

struct dialled {
	__u32 next; /* the slot to write next */
	struct dialled_slot slots[DIALLED_SLOTS];
};

struct {
	__uint(type, BPF_MAP_TYPE_SK_STORAGE);
	__uint(map_flags, BPF_F_NO_PREALLOC);
	__type(key, int);
	__type(value, struct dialled);
} fl_dialled SEC(".maps");
