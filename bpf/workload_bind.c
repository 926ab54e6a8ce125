/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
/* fl_wl_bind4 and fl_wl_bind6 replace the container port that a workload binds with the
 * granted host port.
 */
#include "include/workload.h"

#include <linux/errno.h>

/* A granted port may be below 1024; the workload needs no CAP_NET_BIND_SERVICE. */
#define PROCEED_UNCAPABLE 3

/* has_v4_socket reports whether an IPv4 socket has already bound the grant's host port,
 * because the workload binds the two families separately.
 */
inline_always int has_v4_socket(struct bpf_sock_addr *ctx, const struct grant *g, __u16 port)
{
	struct bpf_sock_tuple t = {};
	struct bpf_sock *sk;
	int served;

	t.ipv4.saddr = bpf_htonl(INADDR_LOOPBACK);
	t.ipv4.daddr = g->any ? bpf_htonl(INADDR_LOOPBACK) : g->host.w[3];
	t.ipv4.dport = granted_port(g, port);
	if (ctx->protocol == IPPROTO_UDP)
		sk = bpf_sk_lookup_udp(ctx, &t, sizeof(t.ipv4), BPF_F_CURRENT_NETNS, 0);
	else
		sk = bpf_sk_lookup_tcp(ctx, &t, sizeof(t.ipv4), BPF_F_CURRENT_NETNS, 0);
	if (!sk)
		return 0;
	served = sk->family == AF_INET;
	bpf_sk_release(sk);
	return served;
}

/* grant_for_bind returns the grant for the port, if the address matches. A bind to ::
 * includes IPv4 unless the socket has IPV6_V6ONLY, which programs cannot read. So it
 * gets the IPv4 grant if there is none for IPv6.
 */
inline_always struct grant *grant_for_bind(struct bpf_sock_addr *ctx, struct workload *w, const struct address *a, __u16 port)
{
	int udp = ctx->protocol == IPPROTO_UDP;
	struct grant *g = grant_of(w, CLASS(!is_v4(a), udp), port);

	if (!g && !is_v4(a) && is_wildcard(a)) {
		g = grant_of(w, CLASS(0, udp), port);
		if (g && has_v4_socket(ctx, g, port))
			return 0;
	}
	if (g && !g->any && !is_wildcard(a) && !same(&g->host, a))
		return 0;
	return g;
}

/* unpublished_port returns the port for a bind that is moved to loopback. If the port is
 * published in the other family only, it is the host port of that grant, so that several
 * workloads can bind the same container port.
 */
inline_always __be16 unpublished_port(struct workload *w, const struct address *a, int udp, __u16 port)
{
	struct grant *other;

	if (w->unpublished != UNPUBLISHED_LOOPBACK || grant_of(w, CLASS(!is_v4(a), udp), port))
		return bpf_htons(port);
	other = grant_of(w, CLASS(is_v4(a), udp), port);
	return other ? granted_port(other, port) : bpf_htons(port);
}

/* bind_unpublished applies the workload's policy. */
inline_always int bind_unpublished(const struct workload *w, struct address *a)
{
	if (w->unpublished == UNPUBLISHED_DENY)
		return reject(EACCES);
	if (w->unpublished == UNPUBLISHED_ALLOW || is_loopback(a))
		return PROCEED;
	if (is_v4(a)) {
		a->w[3] = bpf_htonl(INADDR_LOOPBACK);
		return PROCEED;
	}
	a->w[0] = 0;
	a->w[1] = 0;
	a->w[2] = 0;
	a->w[3] = bpf_htonl(1);
	return PROCEED;
}

/* translate_bind replaces the address and the port, and stores the requested port. Port
 * 0 means any port and is not changed.
 */
inline_always int translate_bind(struct bpf_sock_addr *ctx, struct address *a, __be16 *port)
{
	struct bound fresh = { .requested = *port, .assigned = *port };
	__u64 id = workload_cgroup();
	struct workload *w = bpf_map_lookup_elem(&fl_workloads, &id);
	struct grant *g;
	int verdict;

	if (!w || !*port || !is_host_socket(ctx))
		return PROCEED;
	g = grant_for_bind(ctx, w, a, bpf_ntohs(*port));
	if (g) {
		fresh.assigned = granted_port(g, bpf_ntohs(*port));
		verdict = PROCEED_UNCAPABLE;
		if (!is_v4(a) && !(g->class & 2))
			map_v4(a, 0);
		if (!g->any)
			*a = g->host;
	} else {
		fresh.assigned = unpublished_port(w, a, ctx->protocol == IPPROTO_UDP, bpf_ntohs(*port));
		verdict = bind_unpublished(w, a);
	}
	*port = fresh.assigned;
	if (verdict && !bpf_sk_storage_get(&fl_bound, ctx->sk, &fresh, BPF_SK_STORAGE_GET_F_CREATE))
		return REFUSE;
	return verdict;
}

SEC("cgroup/bind4")
int fl_wl_bind4(struct bpf_sock_addr *ctx)
{
	__be16 port = ctx->user_port;
	struct address a;
	int verdict;

	map_v4(&a, ctx->user_ip4);
	verdict = translate_bind(ctx, &a, &port);
	set_user_v4(ctx, &a, port);
	return verdict;
}

SEC("cgroup/bind6")
int fl_wl_bind6(struct bpf_sock_addr *ctx)
{
	__be16 port = ctx->user_port;
	struct address a;
	int verdict;

	copy_words(&a, ctx->user_ip6);
	verdict = translate_bind(ctx, &a, &port);
	set_user_v6(ctx, &a, port);
	return verdict;
}
