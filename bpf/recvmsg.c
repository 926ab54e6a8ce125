/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
/* fl_recvmsg4 and fl_recvmsg6 run when the kernel returns the source address of a
 * datagram to a process.
 */
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
