/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
/* Whether a packet can be from where it says.
 *
 * Theory of operation. Whoever can send raw packets can write any source address
 * into them: a container with CAP_NET_RAW, a host of another network. So the link
 * that a packet comes by decides what it may do.
 *
 * A packet from a sandbox must have one of the sandbox's addresses. One from an
 * uplink must have a source to which the routing table leads by that link (as
 * with rp_filter=1; where user space says that the link is loose, by any uplink;
 * where it says that links share multipath routes, by any of these).
 * So the host's own addresses and those of sandboxes are refused there.
 *
 * That is asked when a flow begins. The flow remembers the client's link and the
 * endpoint's link, and each later packet costs no more than to compare with them.
 * A packet by another link is checked in the same way. The flow follows a client
 * to another link when the address is the sandbox's there, or when the routing
 * table, asked as for an answer by the old link, leads to the client by the new
 * one. Otherwise answers stay on the old link.
 */
#pragma once

#include "track.h"

/* is_endpoint_address reports whether the address is one of the sandbox's behind the link. */
inline_always int is_endpoint_address(__u32 ifindex, const struct address *a)
{
	struct endpoint *e = bpf_map_lookup_elem(&fl_endpoints, &ifindex);

	return e && (same(&e->v4, a) || same(&e->v6, a));
}

/* is_return_link reports whether a route by the link out is one back to where packets
 * by the other link come from. A macvlan or ipvlan link of the host is on its
 * parent's segment: what a neighbour sends may come by either. The routing table
 * names one next hop of a multipath route, and the others lead back, too.
 */
inline_always int is_return_link(__u32 out, __u32 ifindex)
{
	struct uplink_check *to, *by;

	if (out == ifindex)
		return 1;
	to = bpf_map_lookup_elem(&fl_uplinks, &out);
	if (!to)
		return 0;
	if (to->parent == ifindex)
		return 1;
	by = bpf_map_lookup_elem(&fl_uplinks, &ifindex);
	return by && (by->flags & UPLINK_LOOSE || (by->multipath && by->multipath == to->multipath));
}

/* The index of lo in every network namespace. */
#define LOOPBACK_LINK 1

/* Room for a question to the routing table, a struct bpf_fib_lookup, which would
 * be too much for the stack.
 */
struct {
	__uint(type, BPF_MAP_TYPE_PERCPU_ARRAY);
	__uint(max_entries, 1);
	__type(key, __u32);
	__type(value, __u64[sizeof(struct bpf_fib_lookup) / 8]);
} fl_routes SEC(".maps");

/* return_link returns the link by which the routing table leads to the packet's
 * source from its destination, 0 where it leads nowhere or to the host itself.
 * Among equal IPv6 routes the link that is asked about is preferred. The kernel
 * does not answer for a link on which it forwards nothing: then the table is asked
 * for lo. On a host that forwards nothing at all there is no answer, and sources
 * other than the host's own are left to rp_filter.
 */
static __noinline __u32 return_link(void *ctx, __u32 ifindex, const struct packet *p)
{
	struct bpf_fib_lookup *route;
	struct address source;
	__u32 slot = 0;
	long found;

	route = (void *)bpf_map_lookup_elem(&fl_routes, &slot);
	if (!route)
		return 0;
	__builtin_memset(route, 0, sizeof(*route));
	route->ifindex = ifindex;
	if (p->v6) {
		route->family = AF_INET6;
		__builtin_memcpy(route->ipv6_src, &p->dst, 16);
		__builtin_memcpy(route->ipv6_dst, &p->src, 16);
	} else {
		route->family = AF_INET;
		route->ipv4_src = p->dst.w[3];
		route->ipv4_dst = p->src.w[3];
	}
	found = bpf_fib_lookup(ctx, route, sizeof(*route), 0);
	if (found == BPF_FIB_LKUP_RET_FWD_DISABLED) {
		route->ifindex = LOOPBACK_LINK;
		found = bpf_fib_lookup(ctx, route, sizeof(*route), 0);
	}
	if (found == BPF_FIB_LKUP_RET_FWD_DISABLED) {
		source = p->src; /* older kernels (6.1) want a key on the stack */
		return bpf_map_lookup_elem(&fl_addresses, &source) ? 0 : ifindex;
	}
	if (found == BPF_FIB_LKUP_RET_UNSUPP_LWT) /* there is a route, and its link is not named */
		return ifindex;
	return found == BPF_FIB_LKUP_RET_SUCCESS || found == BPF_FIB_LKUP_RET_NO_NEIGH ? route->ifindex : 0;
}

/* has_valid_source reports whether a packet that came by the link can be from its
 * source. flags are those of the flow that it would begin.
 */
inline_always int has_valid_source(void *ctx, __u32 ifindex, const struct packet *p, __u32 flags)
{
	if (flags & FLOW_PEER)
		return is_endpoint_address(ifindex, &p->src) || (is_link_local(&p->src) && is_link_local(&p->dst));
	if (is_loopback(&p->src) || is_group(&p->src) || is_unspecified(&p->src))
		return 0;
	if (is_link_local(&p->src))
		return 1;
	return is_return_link(return_link(ctx, ifindex, p), ifindex);
}

/* follows reports whether a packet by another link than the flow's is from the
 * flow's client, and has the flow follow it where that is certain.
 */
static __noinline int follow_client(void *ctx, __u32 ifindex, const struct packet *p, struct flow *f, __u32 flags)
{
	int moved;

	if (!f || is_link_local(&p->src))
		return 0;
	if (flags & FLOW_PEER)
		moved = is_endpoint_address(ifindex, &p->src);
	else
		moved = return_link(ctx, f->ifindex, p) == ifindex;
	if (!moved)
		return has_valid_source(ctx, ifindex, p, flags);
	f->ifindex = ifindex;
	f->flags = (f->flags & ~FLOW_PEER) | flags;
	return 1;
}

/* is_valid_error reports whether an ICMP error by the link can be about the flow, from
 * the side of its client.
 */
inline_always int is_valid_error(void *ctx, __u32 ifindex, const struct packet *p, const struct flow *f, __u32 flags)
{
	if (f->ifindex != ifindex && (flags & FLOW_PEER || f->flags & FLOW_PEER || !is_return_link(f->ifindex, ifindex)))
		return 0;
	return has_valid_source(ctx, ifindex, p, flags);
}

/* answers reports whether a packet by another link than that of the flow's
 * endpoint is from the endpoint: the address has moved there. elsewhere says that
 * the link is an uplink.
 */
static __noinline int follow_endpoint(void *ctx, __u32 ifindex, const struct packet *p, struct flow *f, int from_uplink)
{
	if (!f)
		return 0;
	if (from_uplink ? return_link(ctx, ifindex, p) == ifindex : is_endpoint_address(ifindex, &p->src)) {
		f->link = ifindex;
		return 1;
	}
	return from_uplink && has_valid_source(ctx, ifindex, p, 0);
}
