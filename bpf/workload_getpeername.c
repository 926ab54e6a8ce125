/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
/* own_getpeername and own_recvmsg tell a workload what it has dialled, where
 * own_connect has led it.
 */
#include "include/workload.h"

SEC("cgroup/getpeername4")
int fl_wl_getpeer4(struct bpf_sock_addr *ctx)
{
	restore_dialled_v4(ctx, &fl_wl_dialled);
	return PROCEED;
}

SEC("cgroup/getpeername6")
int fl_wl_getpeer6(struct bpf_sock_addr *ctx)
{
	restore_dialled_v6(ctx, &fl_wl_dialled);
	return PROCEED;
}

SEC("cgroup/recvmsg4")
int fl_wl_recvmsg4(struct bpf_sock_addr *ctx)
{
	restore_dialled_v4(ctx, &fl_wl_dialled);
	return PROCEED;
}

SEC("cgroup/recvmsg6")
int fl_wl_recvmsg6(struct bpf_sock_addr *ctx)
{
	restore_dialled_v6(ctx, &fl_wl_dialled);
	return PROCEED;
}
