/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
/* connect4 and connect6 run when a process connects a socket, TCP or UDP. */
#include "include/local.h"

SEC("cgroup/connect4")
int connect4(struct bpf_sock_addr *ctx)
{
	struct call c = { .reach = REACH_V4 };

	if (!is_hosts(ctx))
		return PROCEED;
	map_v4(&c.ends.host, ctx->user_ip4);
	read_source(&c.source, ctx->sk);
	if (lead_call(ctx, &c))
		tell_v4(ctx, &c.ends.to, c.ends.to_port);
	return verdict(&c);
}

SEC("cgroup/connect6")
int connect6(struct bpf_sock_addr *ctx)
{
	struct call c = { .reach = REACH_V4 | REACH_V6 };

	if (!is_hosts(ctx))
		return PROCEED;
	copy_words(&c.ends.host, ctx->user_ip6);
	read_source(&c.source, ctx->sk);
	if (lead_call(ctx, &c))
		tell_v6(ctx, &c.ends.to, c.ends.to_port);
	return verdict(&c);
}
