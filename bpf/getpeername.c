/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
/* getpeername4 and getpeername6 run when a process asks what it is connected
 * to.
 */
#include "include/local.h"

SEC("cgroup/getpeername4")
int getpeername4(struct bpf_sock_addr *ctx)
{
	turn_back_v4(ctx, &dialled);
	return PROCEED;
}

SEC("cgroup/getpeername6")
int getpeername6(struct bpf_sock_addr *ctx)
{
	turn_back_v6(ctx, &dialled);
	return PROCEED;
}
