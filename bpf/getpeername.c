/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
/* fl_getpeer4 and fl_getpeer6 run when a process calls getpeername. */
#include "include/local.h"

SEC("cgroup/getpeername4")
int fl_getpeer4(struct bpf_sock_addr *ctx)
{
	restore_dialled_v4(ctx, &fl_dialled);
	return PROCEED;
}

SEC("cgroup/getpeername6")
int fl_getpeer6(struct bpf_sock_addr *ctx)
{
	restore_dialled_v6(ctx, &fl_dialled);
	return PROCEED;
}
