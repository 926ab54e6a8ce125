/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
/* sendmsg4 and sendmsg6 run when a process sends a datagram to an address of
 * its own choice. A socket's datagrams to mapped IPv4 addresses meet sendmsg4;
 * the kernel refuses it if sendmsg6 turns one to such an address.
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
	if (translate_call(ctx, &c))
		set_user_v6(ctx, &c.ends.to, c.ends.to_port);
	return hook_result(&c);
}
