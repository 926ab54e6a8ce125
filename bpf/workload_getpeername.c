/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
/* fl_wl_getpeer4/6 and fl_wl_recvmsg4/6 return to a workload the address that it
 * dialled, if fl_wl_connect4/6 or fl_wl_sendmsg4/6 translated it.
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
