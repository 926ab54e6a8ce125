/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
/* recvmsg4 and recvmsg6 run when a process is told whom a datagram is from. */
#include "include/local.h"

SEC("cgroup/recvmsg4")
int recvmsg4(struct bpf_sock_addr *ctx)
{
	turn_back_v4(ctx, &dialled);
	return PROCEED;
}

SEC("cgroup/recvmsg6")
int recvmsg6(struct bpf_sock_addr *ctx)
{
	turn_back_v6(ctx, &dialled);
	return PROCEED;
}
