/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
/* own_getsockname tells a workload the port that it has asked for, on its
 * listening sockets and on those that it accepts.
 */
#include "include/own.h"

inline_always void name_own(struct bpf_sock_addr *ctx)
{
	struct bound *b = bpf_sk_storage_get(&bound, ctx->sk, 0, 0);

	if (b && b->held == (__be16)ctx->user_port)
		ctx->user_port = b->own;
}

SEC("cgroup/getsockname4")
int own_getsockname4(struct bpf_sock_addr *ctx)
{
	name_own(ctx);
	return PROCEED;
}

SEC("cgroup/getsockname6")
int own_getsockname6(struct bpf_sock_addr *ctx)
{
	name_own(ctx);
	return PROCEED;
}
