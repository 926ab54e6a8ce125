/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
/* bind4 and bind6 keep processes from binding a port of the host that is led
 * or granted and that no socket holds: they would hear nothing. Addresses
 * conflict as those of sockets do.
 *
 * Limit: no kernel tells a program whether an IPv6 socket has IPV6_V6ONLY, so
 * binding every IPv6 address is taken for binding every IPv4 address too.
 */
#include "include/own.h"

#include <linux/errno.h>

/* is_granted reports whether the caller is the workload that the port was
 * granted to. Its own hook, which runs before, has named the port.
 */
inline_always int is_granted(const struct lead *l, __u64 caller)
{
	return (l->flags & LEAD_GRANT) && l->cgroup == caller;
}

/* is_taken reports whether an entry of the chain that begins at slot keeps the
 * port and address from the caller.
 */
apart int is_taken(__u32 slot, __u32 plane, __u32 port, const struct address *host)
{
	__u64 caller = own_cgroup();

	if (!host)
		return 0;
	for (int i = 0; i < MAX_CHAIN && slot; i++) {
		struct lead *l = bpf_map_lookup_elem(&leads, &slot);

		if (!l)
			return 0;
		if (port >= l->first && port <= l->last && l->plane == plane && !(l->flags & LEAD_HELD) &&
		    ((l->flags & LEAD_ANY) || is_wildcard(host) || same(&l->host, host)) && !is_granted(l, caller))
			return 1;
		slot = l->next;
	}
	return 0;
}

inline_always int is_refused(struct bpf_sock_addr *ctx, const struct address *host, int v6)
{
	__u32 plane = PLANE(v6, ctx->protocol == IPPROTO_UDP);
	__u32 port = bpf_ntohs(ctx->user_port);
	__u32 slot = plane * PORTS_PER_PLANE + port;
	__u32 *first = bpf_map_lookup_elem(&ports, &slot);

	return first && *first && is_taken(*first, plane, port, host);
}

/* has_bind_key reports whether the socket is the proxy's. */
inline_always int has_bind_key(struct bpf_sock_addr *ctx)
{
	return bind_key && ctx->sk->mark == (__u32)bind_key && ctx->sk->priority == (__u32)(bind_key >> 32);
}

SEC("cgroup/bind4")
int bind4(struct bpf_sock_addr *ctx)
{
	struct address host;

	if (!is_hosts(ctx) || has_bind_key(ctx))
		return PROCEED;
	map_v4(&host, ctx->user_ip4);
	return is_refused(ctx, &host, 0) ? refuse(EADDRINUSE) : PROCEED;
}

SEC("cgroup/bind6")
int bind6(struct bpf_sock_addr *ctx)
{
	struct address host;

	if (!is_hosts(ctx) || has_bind_key(ctx))
		return PROCEED;
	copy_words(&host, ctx->user_ip6);
	if (!is_mapped(&host) && is_refused(ctx, &host, 1))
		return refuse(EADDRINUSE);
	/* Of the IPv4 addresses it conflicts with those that it is, or with all. */
	if ((is_mapped(&host) || is_unset(&host)) && is_refused(ctx, &host, 0))
		return refuse(EADDRINUSE);
	return PROCEED;
}
