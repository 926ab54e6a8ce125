/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
/* fl_wl_connect4/6 and fl_wl_sendmsg4/6 translate a workload's calls to a container port
 * on an address of the host. The target is the workload itself if it has the port, or
 * the only other workload that has it.
 */
#include "include/workload.h"

/* dialled_grant_index returns the index of the workload's grant for the dialled port, if
 * the grant includes the dialled address or that is loopback. Returns MAX_GRANTS if
 * there is none.
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

/* apply_grant translates the call with a grant of the workload. */
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

/* search finds the other workloads with the container port, up to the second. */
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

/* find_workload_port translates the call if exactly one workload matches, and reports
 * whether it did.
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

/* translate_workload_call translates the call, stores the dialled address, and reports
 * whether the hook must write the new destination.
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
