/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
/* Validates the source address of packets.
 *
 * Theory of operation. A sender of raw packets can choose any source address: a
 * container with CAP_NET_RAW, or a host of another network. Therefore the link on which
 * a packet arrives decides which sources are valid.
 *
 * A packet from a sandbox must have one of the sandbox's addresses. A packet from an
 * uplink must have a source to which the routing table has a route via that link (as
 * with rp_filter=1; if user space marks the link as loose, via any uplink; if links
 * share multipath routes, via any of these). The host's own addresses and those of
 * sandboxes are therefore refused there.
 *
 * The source is validated when a flow begins. The flow stores the client's link and the
 * endpoint's link, and each later packet is only compared with them. A packet on another
 * link is validated in the same way. The flow moves to a client's new link if the
 * address belongs to the sandbox there, or if the routing table, asked as for a reply
 * via the old link, has its route to the client via the new one. If neither holds,
 * replies stay on the old link.
 */
#pragma once

#include "track.h"

/* is_endpoint_address reports whether the address belongs to the sandbox behind the
 * link.
 */
inline_always int is_endpoint_address(__u32 ifindex, const struct address *a)
{
	struct endpoint *e = bpf_map_lookup_elem(&fl_endpoints, &ifindex);

	return e && (same(&e->v4, a) || same(&e->v6, a));
}

/* The bit that fl_sandbox sets in the mark of a packet that goes to the host's network
 * stack with the endpoint's address as its source, or with that of a service for which
 * endpoints answer. The nftables chain `sources` clears it
 * and does not look up the source again, which takes much longer. A sandbox cannot set
 * the bit, because the kernel clears the mark of a packet that changes its namespace.
 */
#define SOURCE_VALID (1U << 30)

/* is_return_link reports whether a route via the link out is a route back to the source
 * of packets on the other link. A macvlan or ipvlan link of the host is on its parent's
 * segment, so a neighbour's packets may arrive on either. The routing table returns one
 * next hop of a multipath route, but packets may arrive via each of them.
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

/* Memory for a struct bpf_fib_lookup, which is too large for the stack. */
struct {
	__uint(type, BPF_MAP_TYPE_PERCPU_ARRAY);
	__uint(max_entries, 1);
	__type(key, __u32);
	__type(value, __u64[sizeof(struct bpf_fib_lookup) / 8]);
} fl_routes SEC(".maps");

/* return_link returns the link of the route from the packet's destination to its source,
 * or 0 if there is no route or the source is the host itself. Among equal IPv6 routes
 * the kernel prefers the given link. The kernel returns nothing for a link without
 * forwarding; then the lookup is repeated for lo. On a host without any forwarding there
 * is no result, and sources other than the host's own are left to rp_filter.
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
		source = p->src; /* Linux 6.1 requires the key on the stack. */
		return bpf_map_lookup_elem(&fl_addresses, &source) ? 0 : ifindex;
	}
	if (found == BPF_FIB_LKUP_RET_UNSUPP_LWT) /* there is a route, but its link is not returned */
		return ifindex;
	return found == BPF_FIB_LKUP_RET_SUCCESS || found == BPF_FIB_LKUP_RET_NO_NEIGH ? route->ifindex : 0;
}

/* has_valid_source reports whether the source of a packet on the link is valid. flags
 * are those of the flow that it would create.
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

/* is_valid_source reports what has_valid_source does, for a packet on its own link. The
 * verifier checks it once, and not for each call.
 */
global_func int is_valid_source(struct __sk_buff *skb, const struct packet *p, __u32 flags)
{
	return p && has_valid_source(skb, skb->ifindex, p, flags);
}

/* follow_client reports whether a packet on another link than the flow's is from the
 * flow's client. If that is certain, it moves the flow to the new link.
 */
global_func int follow_client(struct __sk_buff *skb, const struct packet *p, struct flow *f, __u32 flags)
{
	__u32 ifindex = skb->ifindex;
	int moved;

	if (!p || !f || is_link_local(&p->src))
		return 0;
	if (flags & FLOW_PEER)
		moved = is_endpoint_address(ifindex, &p->src);
	else
		moved = return_link(skb, f->ifindex, p) == ifindex;
	if (!moved)
		return is_valid_source(skb, p, flags);
	f->ifindex = ifindex;
	f->flags = (f->flags & ~FLOW_PEER) | flags;
	return 1;
}

/* is_valid_error reports whether an ICMP error on the link may be about the flow, from
 * the client's side.
 */
inline_always int is_valid_error(struct __sk_buff *skb, const struct packet *p, const struct flow *f, __u32 flags)
{
	__u32 ifindex = skb->ifindex;

	if (f->ifindex != ifindex && (flags & FLOW_PEER || f->flags & FLOW_PEER || !is_return_link(f->ifindex, ifindex)))
		return 0;
	return is_valid_source(skb, p, flags);
}

/* follow_endpoint reports whether a packet on another link than that of the flow's
 * endpoint is from the endpoint, because its address has moved. from_uplink is true for
 * an uplink.
 */
global_func int follow_endpoint(struct __sk_buff *skb, const struct packet *p, struct flow *f, __u32 from_uplink)
{
	__u32 ifindex = skb->ifindex;

	if (!p || !f)
		return 0;
	if (from_uplink ? return_link(skb, ifindex, p) == ifindex : is_endpoint_address(ifindex, &p->src)) {
		f->link = ifindex;
		return 1;
	}
	return from_uplink && is_valid_source(skb, p, 0);
}
