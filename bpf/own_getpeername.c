/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
/* own_getpeername and own_recvmsg tell a workload what it has dialled, where
 * own_connect has led it.
 */
#include "include/own.h"

SEC("cgroup/getpeername4")
int own_getpeername4(struct bpf_sock_addr *ctx)
{
	turn_back_v4(ctx, &own_dialled);
	return PROCEED;
}

SEC("cgroup/getpeername6")
int own_getpeername6(struct bpf_sock_addr *ctx)
{
	turn_back_v6(ctx, &own_dialled);
	return PROCEED;
}

SEC("cgroup/recvmsg4")
int own_recvmsg4(struct bpf_sock_addr *ctx)
{
	turn_back_v4(ctx, &own_dialled);
	return PROCEED;
}

SEC("cgroup/recvmsg6")
int own_recvmsg6(struct bpf_sock_addr *ctx)
{
	turn_back_v6(ctx, &own_dialled);
	return PROCEED;
}
