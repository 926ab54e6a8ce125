/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
/* own_connect and own_sendmsg lead a workload that dials a port on the host to
 * the workload whose own port it is: itself, or another if there is no more
 * than one.
 */
#include "include/own.h"

/* index_dialled returns the index of the workload's grant for what was
 * dialled, if it answers at that address or at loopback; else MAX_GRANTS.
 */
apart __u32 index_dialled(const struct workload *w, const struct call *c)
{
	const struct address *host;
	const struct grant *g;
	__u32 i;

	if (!w || !c)
		return MAX_GRANTS;
	host = &c->ends.host;
	i = grant_index(w, PLANE(!is_mapped(host), c->udp), bpf_ntohs(c->ends.host_port));
	if (i >= MAX_GRANTS)
		return MAX_GRANTS;
	g = &w->grants[i];
	return g->any || is_loopback(host) || same(&g->host, host) ? i : MAX_GRANTS;
}

/* use_grant completes the call by one of the workload's grants. */
inline_always int use_grant(struct call *c, const struct workload *w, __u32 i)
{
	const struct grant *g;

	if (!w || i >= MAX_GRANTS)
		return 0;
	g = &w->grants[i];
	c->ends.to = g->any ? c->ends.host : g->host;
	c->ends.to_port = granted(g, bpf_ntohs(c->ends.host_port));
	return 1;
}

/* search goes through the other workloads, up to the second whose own port it
 * is.
 */
struct search {
	struct call call;
	__u64 caller;
	__u64 owner;
	__u32 index;
	__u32 several;
};

static long look_at(void *map, const __u64 *id, struct workload *w, struct search *s)
{
	__u32 i;

	if (*id == s->caller)
		return 0;
	i = index_dialled(w, &s->call);
	if (i >= MAX_GRANTS)
		return 0;
	s->several = s->owner != 0;
	s->owner = *id;
	s->index = i;
	return s->several;
}

/* find_own completes the call with where it is to be led, and reports whether
 * anywhere.
 */
inline_always int find_own(struct call *c)
{
	struct search s = { .caller = own_cgroup() };
	struct workload *w = bpf_map_lookup_elem(&workloads, &s.caller);

	set_loopback(&c->ends.host);
	if (!w || (!is_loopback(&c->ends.host) && !bpf_map_lookup_elem(&addresses, &c->ends.host)))
		return 0;
	if (use_grant(c, w, index_dialled(w, c)))
		return 1;
	s.call = *c;
	bpf_for_each_map_elem(&workloads, look_at, &s, 0);
	if (!s.owner || s.several)
		return 0;
	return use_grant(c, bpf_map_lookup_elem(&workloads, &s.owner), s.index);
}

/* lead_own completes the call and reports whether the hook shall put its new
 * destination into the process's.
 */
inline_always int lead_own(struct bpf_sock_addr *ctx, struct call *c)
{
	c->ends.host_port = ctx->user_port;
	c->udp = ctx->protocol == IPPROTO_UDP;
	if (find_own(c))
		return remember(ctx, &own_dialled, &c->ends) != FORGOTTEN;
	forget(ctx, &own_dialled, c);
	return 0;
}

inline_always int lead_own_v4(struct bpf_sock_addr *ctx)
{
	struct call c = {};

	if (!is_hosts(ctx))
		return PROCEED;
	map_v4(&c.ends.host, ctx->user_ip4);
	if (lead_own(ctx, &c))
		tell_v4(ctx, &c.ends.to, c.ends.to_port);
	return PROCEED;
}

inline_always int lead_own_v6(struct bpf_sock_addr *ctx)
{
	struct call c = {};

	if (!is_hosts(ctx))
		return PROCEED;
	copy_words(&c.ends.host, ctx->user_ip6);
	if (lead_own(ctx, &c))
		tell_v6(ctx, &c.ends.to, c.ends.to_port);
	return PROCEED;
}

SEC("cgroup/connect4")
int own_connect4(struct bpf_sock_addr *ctx) { return lead_own_v4(ctx); }

SEC("cgroup/connect6")
int own_connect6(struct bpf_sock_addr *ctx) { return lead_own_v6(ctx); }

SEC("cgroup/sendmsg4")
int own_sendmsg4(struct bpf_sock_addr *ctx) { return lead_own_v4(ctx); }

SEC("cgroup/sendmsg6")
int own_sendmsg6(struct bpf_sock_addr *ctx) { return lead_own_v6(ctx); }
