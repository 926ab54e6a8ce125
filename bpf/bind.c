/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
/* fl_bind4 and fl_bind6 refuse a bind to a published or granted port of the host that no
 * socket of the proxy has bound, because the process would receive no packets. Addresses
 * conflict in the same way as those of sockets.
 *
 * Limit: no kernel shows a program whether an IPv6 socket has IPV6_V6ONLY, so a bind to
 * :: counts as a bind to every IPv4 address too.
 */
#include "include/workload.h"

#include <linux/errno.h>

/* is_granted reports whether the port was granted to the caller's workload. The
 * workload's own hook runs first and has already replaced the port.
 */
inline_always int is_granted(const struct mapping *l, __u64 caller)
{
	return (l->flags & MAPPING_GRANT) && l->cgroup == caller;
}

/* reserves reports whether a mapping reserves the port and address against the caller. The
 * verifier checks it once, and not for each mapping of a chain.
 */
global_func int reserves(const struct mapping *l, __u32 class, __u32 port, const struct address *host, __u64 caller)
{
	return l && host && port >= l->first && port <= l->last && l->class == class && !(l->flags & MAPPING_RESERVED) &&
	       ((l->flags & MAPPING_ANY) || is_wildcard(host) || same(&l->host, host)) && !is_granted(l, caller);
}

/* reserving_of_part searches a part of a chain from slot on, as mapping_of_part does, for an
 * entry that reserves the port and address against the caller.
 */
global_func __u32 reserving_of_part(__u32 slot, __u32 class, __u32 port, const struct address *host, __u64 caller)
{
	if (!host)
		return 0;
	for (int i = 0; i < PART && slot; i++) {
		struct mapping *l = bpf_map_lookup_elem(&fl_mappings, &slot);

		if (!l)
			return 0;
		if (reserves(l, class, port, host, caller))
			return slot | FOUND;
		slot = l->next;
	}
	return slot;
}

/* is_taken reports whether an entry of the chain that begins at slot reserves the port
 * and address against the caller.
 */
global_func int is_taken(__u32 slot, __u32 class, __u32 port, const struct address *host)
{
	__u64 caller = workload_cgroup();

	if (!host)
		return 0;
	for (int i = 0; i < MAX_CHAIN / PART && slot && !(slot & FOUND); i++)
		slot = reserving_of_part(slot, class, port, host, caller);
	return !!(slot & FOUND);
}

inline_always int is_reserved(struct bpf_sock_addr *ctx, const struct address *host, int v6)
{
	__u32 class = CLASS(v6, ctx->protocol == IPPROTO_UDP);
	__u32 port = bpf_ntohs(ctx->user_port);
	__u32 slot = class * PORTS_PER_CLASS + port;
	__u32 *first = bpf_map_lookup_elem(&fl_ports, &slot);

	return first && *first && is_taken(*first, class, port, host);
}

/* has_bind_key reports whether the socket is the proxy's. */
inline_always int has_bind_key(struct bpf_sock_addr *ctx)
{
	return bind_key && ctx->sk->mark == (__u32)bind_key && ctx->sk->priority == (__u32)(bind_key >> 32);
}

SEC("cgroup/bind4")
int fl_bind4(struct bpf_sock_addr *ctx)
{
	struct address host;

	if (!is_host_socket(ctx) || has_bind_key(ctx))
		return PROCEED;
	map_v4(&host, ctx->user_ip4);
	return is_reserved(ctx, &host, 0) ? reject(EADDRINUSE) : PROCEED;
}

SEC("cgroup/bind6")
int fl_bind6(struct bpf_sock_addr *ctx)
{
	struct address host;

	if (!is_host_socket(ctx) || has_bind_key(ctx))
		return PROCEED;
	copy_words(&host, ctx->user_ip6);
	if (!is_v4(&host) && is_reserved(ctx, &host, 1))
		return reject(EADDRINUSE);
	/* An IPv4-mapped address conflicts with that IPv4 address, and :: with all of
	 * them.
	 */
	if ((is_v4(&host) || is_unset(&host)) && is_reserved(ctx, &host, 0))
		return reject(EADDRINUSE);
	return PROCEED;
}
