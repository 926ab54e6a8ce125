/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
/* recvmsg4 and recvmsg6 run when a process is told whom a datagram is from. */
#include "include/local.h"

SEC("cgroup/recvmsg4")
int fl_recvmsg4(struct bpf_sock_addr *ctx)
{
	restore_dialled_v4(ctx, &fl_dialled);
	return PROCEED;
}

SEC("cgroup/recvmsg6")
int fl_recvmsg6(struct bpf_sock_addr *ctx)
{
	restore_dialled_v6(ctx, &fl_dialled);
	return PROCEED;
}
