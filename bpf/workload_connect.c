/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
/* own_connect and own_sendmsg lead a workload that dials a port on the host to
 * the workload whose own port it is: itself, or another if there is no more
 * than one.
 */
#include "include/workload.h"

/* dialled_grant_index returns the index of the workload's grant for what was
 * dialled, if it answers at that address or at loopback; else MAX_GRANTS.
 */
global_func __u32 dialled_grant_index(const struct workload *w, const struct call *c)
{
	const struct address *host;
	const struct grant *g;
	__u32 i;

	if (!w || !c)
		return MAX_GRANTS;
	host = &c->ends.host;
	i = grant_index(w, CLASS(!is_v4(host), c->udp), bpf_ntohs(c->ends.host_port));
	if (i >= MAX_GRANTS)
		return MAX_GRANTS;
	g = &w->grants[i];
	return g->any || is_loopback(host) || same(&g->host, host) ? i : MAX_GRANTS;
}

/* apply_grant completes the call by one of the workload's grants. */
inline_always int apply_grant(struct call *c, const struct workload *w, __u32 i)
{
	const struct grant *g;

	if (!w || i >= MAX_GRANTS)
		return 0;
	g = &w->grants[i];
	c->ends.to = g->any ? c->ends.host : g->host;
	c->ends.to_port = granted_port(g, bpf_ntohs(c->ends.host_port));
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
	__u32 ambiguous;
};

static long match_workload(void *map, const __u64 *id, struct workload *w, struct search *s)
{
	__u32 i;

	if (*id == s->caller)
		return 0;
	i = dialled_grant_index(w, &s->call);
	if (i >= MAX_GRANTS)
		return 0;
	s->ambiguous = s->owner != 0;
	s->owner = *id;
	s->index = i;
	return s->ambiguous;
}

/* find_workload_port completes the call with where it is to be led, and reports whether
 * anywhere.
 */
inline_always int find_workload_port(struct call *c)
{
	struct search s = { .caller = workload_cgroup() };
	struct workload *w = bpf_map_lookup_elem(&fl_workloads, &s.caller);

	resolve_unspecified(&c->ends.host);
	if (!w || (!is_loopback(&c->ends.host) && !bpf_map_lookup_elem(&fl_addresses, &c->ends.host)))
		return 0;
	if (apply_grant(c, w, dialled_grant_index(w, c)))
		return 1;
	s.call = *c;
	bpf_for_each_map_elem(&fl_workloads, match_workload, &s, 0);
	if (!s.owner || s.ambiguous)
		return 0;
	return apply_grant(c, bpf_map_lookup_elem(&fl_workloads, &s.owner), s.index);
}

/* translate_workload_call completes the call and reports whether the hook shall put its new
 * destination into the process's.
 */
inline_always int translate_workload_call(struct bpf_sock_addr *ctx, struct call *c)
{
	c->ends.host_port = ctx->user_port;
	c->udp = ctx->protocol == IPPROTO_UDP;
	if (find_workload_port(c))
		return store_dialled(ctx, &fl_wl_dialled, &c->ends) != NOT_STORED;
	forget_dialled(ctx, &fl_wl_dialled, c);
	return 0;
}

inline_always int translate_workload_v4(struct bpf_sock_addr *ctx)
{
	struct call c = {};

	if (!is_host_socket(ctx))
		return PROCEED;
	map_v4(&c.ends.host, ctx->user_ip4);
	if (translate_workload_call(ctx, &c))
		set_user_v4(ctx, &c.ends.to, c.ends.to_port);
	return PROCEED;
}

inline_always int translate_workload_v6(struct bpf_sock_addr *ctx)
{
	struct call c = {};

	if (!is_host_socket(ctx))
		return PROCEED;
	copy_words(&c.ends.host, ctx->user_ip6);
	if (translate_workload_call(ctx, &c))
		set_user_v6(ctx, &c.ends.to, c.ends.to_port);
	return PROCEED;
}

SEC("cgroup/connect4")
int fl_wl_connect4(struct bpf_sock_addr *ctx) { return translate_workload_v4(ctx); }

SEC("cgroup/connect6")
int fl_wl_connect6(struct bpf_sock_addr *ctx) { return translate_workload_v6(ctx); }

SEC("cgroup/sendmsg4")
int fl_wl_sendmsg4(struct bpf_sock_addr *ctx) { return translate_workload_v4(ctx); }

SEC("cgroup/sendmsg6")
int fl_wl_sendmsg6(struct bpf_sock_addr *ctx) { return translate_workload_v6(ctx); }
