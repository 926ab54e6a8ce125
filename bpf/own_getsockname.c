/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
/* own_getsockname tells a workload the port that it has asked for, on the
 * sockets that it has bound and on those that it accepts. The latter carry no
 * note of their own, which every connection would have to be given: theirs is
 * the own port of the grant that holds the port.
 */
#include "include/own.h"

/* name_accepted names the own port of a connection that was accepted at a
 * port of one family, or of the other where one socket serves both.
 */
inline_always void name_accepted(struct bpf_sock_addr *ctx, int v4)
{
	__u64 id = own_cgroup();
	struct workload *w = bpf_map_lookup_elem(&workloads, &id);
	__u16 port = bpf_ntohs(ctx->user_port);
	__u32 i;

	if (!w || !is_hosts(ctx))
		return;
	i = own_index(w, PLANE(!v4, 0), port);
	if (i >= MAX_GRANTS)
		i = own_index(w, PLANE(v4, 0), port);
	if (i < MAX_GRANTS)
		ctx->user_port = bpf_htons(w->grants[i].own_first + (port - w->grants[i].first));
}

inline_always void name_own(struct bpf_sock_addr *ctx, int v4)
{
	struct bound *b = bpf_sk_storage_get(&bound, ctx->sk, 0, 0);

	if (!b && ctx->protocol == IPPROTO_TCP)
		name_accepted(ctx, v4);
	else if (b && b->held == (__be16)ctx->user_port)
		ctx->user_port = b->own;
}

SEC("cgroup/getsockname4")
int own_getsockname4(struct bpf_sock_addr *ctx)
{
	name_own(ctx, 1);
	return PROCEED;
}

SEC("cgroup/getsockname6")
int own_getsockname6(struct bpf_sock_addr *ctx)
{
	struct address a;

	copy_words(&a, ctx->user_ip6);
	name_own(ctx, is_mapped(&a));
	return PROCEED;
}
