/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
/* fl_connect4 and fl_connect6 run when a process connects a TCP or UDP socket. */
#include "include/local.h"

SEC("cgroup/connect4")
int fl_connect4(struct bpf_sock_addr *ctx)
{
	struct call c = { .reach = REACH_V4 };

	if (!is_host_socket(ctx))
		return PROCEED;
	map_v4(&c.ends.host, ctx->user_ip4);
	read_source(&c.source, ctx->sk);
	if (translate_call(ctx, &c))
		set_user_v4(ctx, &c.ends.to, c.ends.to_port);
	return hook_result(&c);
}

SEC("cgroup/connect6")
int fl_connect6(struct bpf_sock_addr *ctx)
{
	struct call c = { .reach = REACH_V4 | REACH_V6 };

	if (!is_host_socket(ctx))
		return PROCEED;
	copy_words(&c.ends.host, ctx->user_ip6);
	read_source(&c.source, ctx->sk);
	if (translate_call(ctx, &c))
		set_user_v6(ctx, &c.ends.to, c.ends.to_port);
	return hook_result(&c);
}
