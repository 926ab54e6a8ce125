/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
/* The addresses and ports that a socket dialled, so that getpeername and recvmsg return
 * these and not the translated ones. The kernel frees the storage with the socket.
 */
#pragma once

#include "maps.h"

#define DIALLED_SLOTS 4

struct dialled_slot {
	struct address to;     /* the translated address; all zero: a free slot */
	struct address host;   /* the dialled address */
	__be16 to_port;
	__be16 host_port;
	__u32 real;            /* the slot of the real server, 0 for an endpoint */
	__u32 generation;      /* and the slot's generation */
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
