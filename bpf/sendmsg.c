/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
/* fl_sendmsg4 and fl_sendmsg6 run when a process sends a datagram with a destination
 * address. For datagrams to IPv4-mapped addresses the kernel calls fl_sendmsg4. It
 * refuses a datagram that fl_sendmsg6 translates to such an address.
 */
#include "include/local.h"

SEC("cgroup/sendmsg4")
int fl_sendmsg4(struct bpf_sock_addr *ctx)
{
	struct call c = { .reach = REACH_V4 };

	if (!is_host_socket(ctx))
		return PROCEED;
	map_v4(&c.ends.host, ctx->user_ip4);
	if (ctx->msg_src_ip4)
		map_v4(&c.source, ctx->msg_src_ip4);
	if (translate_call(ctx, &c))
		set_user_v4(ctx, &c.ends.to, c.ends.to_port);
	return hook_result(&c);
}

SEC("cgroup/sendmsg6")
int fl_sendmsg6(struct bpf_sock_addr *ctx)
{
	struct call c = { .reach = REACH_V6 };

	if (!is_host_socket(ctx))
		return PROCEED;
	copy_words(&c.ends.host, ctx->user_ip6);
	copy_words(&c.source, ctx->msg_src_ip6);
	if (translate_call(ctx, &c)) {
		set_user_v6(ctx, &c.ends.to, c.ends.to_port);
		set_source_v6(ctx, &c.source);
	}
	return hook_result(&c);
}
