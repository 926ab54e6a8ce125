/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
/* fl_wl_getsock4 and fl_wl_getsock6 return to a workload the container port of its
 * sockets: those that it has bound and those that it accepts. Nothing is stored with an
 * accepted socket, because that would cost every connection. Its container port is that
 * of the grant with the socket's host port.
 */
#include "include/workload.h"

/* restore_accepted_port returns the container port of an accepted connection. It
 * searches the grants of the socket's family first, then those of the other one, since
 * one socket may serve both.
 */
inline_always void restore_accepted_port(struct bpf_sock_addr *ctx, int v4)
{
	__u64 id = workload_cgroup();
	struct workload *w = bpf_map_lookup_elem(&fl_workloads, &id);
	__u16 port = bpf_ntohs(ctx->user_port);
	__u32 i;

	if (!w || !is_host_socket(ctx))
		return;
	i = host_port_grant_index(w, CLASS(!v4, 0), port);
	if (i >= MAX_GRANTS)
		i = host_port_grant_index(w, CLASS(v4, 0), port);
	if (i < MAX_GRANTS)
		ctx->user_port = bpf_htons(w->grants[i].container_first + (port - w->grants[i].host_first));
}

inline_always void restore_container_port(struct bpf_sock_addr *ctx, int v4)
{
	struct bound *b = bpf_sk_storage_get(&fl_bound, ctx->sk, 0, 0);

	if (!b && ctx->protocol == IPPROTO_TCP)
		restore_accepted_port(ctx, v4);
	else if (b && b->assigned == (__be16)ctx->user_port)
		ctx->user_port = b->requested;
}

SEC("cgroup/getsockname4")
int fl_wl_getsock4(struct bpf_sock_addr *ctx)
{
	restore_container_port(ctx, 1);
	return PROCEED;
}

SEC("cgroup/getsockname6")
int fl_wl_getsock6(struct bpf_sock_addr *ctx)
{
	struct address a;

	copy_words(&a, ctx->user_ip6);
	restore_container_port(ctx, is_v4(&a));
	return PROCEED;
}
