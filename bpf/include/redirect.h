/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
/* Where a packet goes once it is rewritten: into a sandbox, or away to the
 * client by the link that it came by. A reply is a frame that a sandbox has
 * addressed to its gateway. It needs other MAC addresses only, and those of the
 * way to a client are kept for a second, so that most replies ask neither the
 * routing table nor that of neighbours.
 */
#pragma once

#include "track.h"

/* into puts the packet into the sandbox behind the host's link. A frame that
 * was sent to a bridge counts as another host's where its port receives it.
 */
inline_always int redirect_to_sandbox(struct __sk_buff *skb, __u32 ifindex)
{
	if (skb->pkt_type != 0)
		bpf_skb_change_type(skb, 0);
	return bpf_redirect_peer(ifindex, 0);
}

/* The way to a client, as it was found last. Clients share slots, and each CPU
 * has its own, so that none is read while it is written.
 */
#define HOPS 1024

struct next_hop {
	struct address client, host; /* from whom, and to whom */
	struct address next;         /* the next hop there */
	__u64 found;                 /* bpf_ktime_get_coarse_ns */
	__u32 ifindex;
	__u32 mtu;                   /* the route's, 0 if that is not known */
	__u32 framed;                /* whether the MAC addresses are known: */
	__u32 macs[3];               /* the next hop's and the link's */
	__u32 out;                   /* the link of that way, where it is another than ifindex; else 0 */
};

struct {
	__uint(type, BPF_MAP_TYPE_PERCPU_ARRAY);
	__uint(max_entries, HOPS);
	__type(key, __u32);
	__type(value, struct next_hop);
} fl_next_hops SEC(".maps");

/* hop_slot spreads clients by the words of their addresses that differ, times
 * 2^32 divided by the golden ratio (Knuth, TAOCP 6.4).
 */
inline_always __u32 hop_slot(const struct flow *f)
{
	return ((f->client.w[3] ^ f->client.w[1] ^ f->host.w[3]) * 2654435769u) / (0xffffffffu / HOPS + 1);
}

/* is_cached reports whether the slot holds the flow's way, and is not old. */
inline_always int is_cached(const struct next_hop *h, const struct flow *f)
{
	return h->ifindex == f->ifindex && same(&h->client, &f->client) && same(&h->host, &f->host) &&
	       (__s64)(f->seen - h->found) < (__s64)SECOND;
}

/* has_route reports whether a route was found, with its neighbour or without. */
inline_always int has_route(long found)
{
	return found == BPF_FIB_LKUP_RET_SUCCESS || found == BPF_FIB_LKUP_RET_NO_NEIGH;
}

inline_always __u32 out_link(const struct next_hop *h) { return h->out ? h->out : h->ifindex; }

/* lookup_route asks the routing table for the way to the flow's client. A length
 * that fits everywhere has it tell the way's MTU in that place.
 */
inline_always long lookup_route(struct __sk_buff *skb, const struct flow *f, struct bpf_fib_lookup *route, __u32 flags)
{
	__builtin_memset(route, 0, sizeof(*route));
	route->ifindex = f->ifindex;
	route->tot_len = 1;
	if (is_v4(&f->client)) {
		route->family = AF_INET;
		route->ipv4_src = f->host.w[3];
		route->ipv4_dst = f->client.w[3];
	} else {
		route->family = AF_INET6;
		__builtin_memcpy(route->ipv6_src, &f->host, 16);
		__builtin_memcpy(route->ipv6_dst, &f->client, 16);
	}
	return bpf_fib_lookup(skb, route, sizeof(*route), flags);
}

/* find_hop looks up the next hop on the flow's way back, by the link that its
 * client came by, and reports whether there is one to be had in this way. The
 * client of a service may have come by another link than the one that leads
 * back to it.
 */
global_func int find_hop(struct __sk_buff *skb, const struct flow *f, struct next_hop *h)
{
	struct bpf_fib_lookup route;
	long found;

	if (!f || !h)
		return 0;
	found = lookup_route(skb, f, &route, BPF_FIB_LOOKUP_OUTPUT);
	if (!has_route(found) || route.ifindex != f->ifindex) {
		if (!is_real(f->slot))
			return 0;
		found = lookup_route(skb, f, &route, 0);
		if (!has_route(found))
			return 0;
	}
	h->client = f->client;
	h->host = f->host;
	h->ifindex = f->ifindex;
	h->out = route.ifindex == f->ifindex ? 0 : route.ifindex;
	h->found = f->seen;
	if (route.family == AF_INET)
		map_v4(&h->next, route.ipv4_dst);
	else
		__builtin_memcpy(&h->next, route.ipv6_dst, 16);
	h->framed = found == BPF_FIB_LKUP_RET_SUCCESS;
	h->mtu = h->framed ? route.mtu_result : 0;
	__builtin_memcpy(h->macs, route.dmac, ETH_ALEN);
	__builtin_memcpy((void *)h->macs + ETH_ALEN, route.smac, ETH_ALEN);
	return 1;
}

/* redirect_to_neighbour sends a packet to the next hop by the kernel's table of
 * neighbours, which thereby learns that the neighbour is in use.
 */
inline_always int redirect_to_neighbour(const struct next_hop *h)
{
	struct bpf_redir_neigh next = {};

	if (is_v4(&h->next)) {
		next.nh_family = AF_INET;
		next.ipv4_nh = h->next.w[3];
	} else {
		next.nh_family = AF_INET6;
		__builtin_memcpy(next.ipv6_nh, &h->next, 16);
	}
	return bpf_redirect_neigh(out_link(h), &next, sizeof(next), 0);
}

/* redirect_without_hop sends a packet by the link that the client came by, where the
 * kernel looks for the way by the packet itself. One for a real server, which
 * need not have its address, would go astray.
 */
inline_always int redirect_without_hop(const struct flow *f)
{
	return balancing && f->slot == REAL_BIT ? TC_ACT_SHOT : bpf_redirect_neigh(f->ifindex, 0, 0, 0);
}

/* away sends a packet back to the client of the flow, or on to the real server
 * that is in the client's place and has no slot there.
 */
inline_always int redirect_to_client(struct __sk_buff *skb, const struct flow *f)
{
	__u32 slot = hop_slot(f);
	struct next_hop *h;
	__u32 *macs;

	if (f->flags & FLOW_PEER)
		return redirect_to_sandbox(skb, f->ifindex);
	h = bpf_map_lookup_elem(&fl_next_hops, &slot);
	if (!h)
		return TC_ACT_SHOT;
	if (!is_cached(h, f))
		return find_hop(skb, f, h) ? redirect_to_neighbour(h) : redirect_without_hop(f);
	if (!link_header || !h->framed)
		return redirect_to_neighbour(h);
	macs = writable(skb, 0, sizeof(h->macs));
	if (!macs)
		return TC_ACT_SHOT;
	__builtin_memcpy(macs, h->macs, sizeof(h->macs));
	return bpf_redirect(out_link(h), 0);
}

/* decrement_ttl_v4 takes one hop from an IPv4 packet (RFC 1141). */
inline_always void decrement_ttl_v4(struct iphdr *ip)
{
	__u32 sum = ip->check + bpf_htons(0x0100);

	ip->check = sum + (sum >= 0xffff);
	ip->ttl--;
}

/* age takes one hop from a packet that goes on to another host, and fails where
 * none is left, which leaves the packet as it is: two balancers that take each
 * other for a real server would send it to and fro without end.
 */
global_func int decrement_ttl(struct __sk_buff *skb, const struct packet *p)
{
	struct ipv6hdr *v6;
	struct iphdr *v4;

	if (!p)
		return -1;
	if (p->v6) {
		v6 = writable(skb, link_header, sizeof(*v6));
		if (!v6 || v6->hop_limit <= 1)
			return -1;
		v6->hop_limit--;
		/* No checksum of its own makes up for that in a card's sum over all. Without
		 * one this fails, and may.
		 */
		bpf_csum_update(skb, (__u16)~bpf_htons(1));
		return 0;
	}
	v4 = writable(skb, link_header, sizeof(*v4));
	if (!v4 || v4->ttl <= 1)
		return -1;
	decrement_ttl_v4(v4);
	return 0;
}

/* ttl_expired reports whether it would fail. */
inline_always int ttl_expired(struct __sk_buff *skb, const struct packet *p)
{
	__u32 off = p->v6 ? offsetof(struct ipv6hdr, hop_limit) : offsetof(struct iphdr, ttl);
	__u8 left;

	return !bpf_skb_load_bytes(skb, link_header + off, &left, sizeof(left)) && left <= 1;
}

/* exceeded_mtu returns how large packets may be if this one is larger than the link
 * takes, else 0. 576 bytes fit every link.
 */
inline_always __u32 exceeded_mtu(struct __sk_buff *skb, const struct flow *f)
{
	__u32 mtu = 0;

	if (skb->len <= 576)
		return 0;
	return bpf_check_mtu(skb, f->ifindex, &mtu, 0, BPF_MTU_CHK_SEGS) > 0 ? mtu : 0;
}
