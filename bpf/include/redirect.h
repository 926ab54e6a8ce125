/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
/* Sends a rewritten packet into a sandbox, or back to the client via the link on which
 * the client's packets arrive. A reply is a frame that a sandbox has addressed to its
 * gateway, so only its MAC addresses must change. The next hop towards a client is
 * cached for one second, so that most replies need no lookup in the routing and
 * neighbour tables.
 */
#pragma once

#include "track.h"

/* redirect_to_sandbox redirects the packet into the sandbox behind the host's link. At a
 * bridge port the kernel marks frames for the bridge as PACKET_OTHERHOST, so the type is
 * reset.
 */
inline_always int redirect_to_sandbox(struct __sk_buff *skb, __u32 ifindex)
{
	if (skb->pkt_type != 0)
		bpf_skb_change_type(skb, 0);
	return bpf_redirect_peer(ifindex, 0);
}

/* The next hop to a client, as looked up last. Several clients share a slot. Each CPU
 * has its own slots, so no slot is read while it is written.
 */
#define HOPS 1024

/* How long a next hop without a MAC address is cached, in nanoseconds: the neighbour answers
 * to ARP or NDP soon.
 */
#define UNRESOLVED_KEPT (10 * 1000 * 1000)

struct next_hop {
	struct address client, host; /* destination and source of the route */
	struct address next;         /* address of the next hop */
	__u64 found;                 /* bpf_ktime_get_coarse_ns, earlier without MAC addresses */
	__u32 ifindex;
	__u32 mtu;                   /* the route's MTU, 0 if unknown */
	__u32 framed;                /* whether the MAC addresses are known: */
	__u32 macs[3];               /* destination (next hop), source (link) */
	__u32 out;                   /* the outgoing link if it differs from ifindex, else 0 */
};

struct {
	__uint(type, BPF_MAP_TYPE_PERCPU_ARRAY);
	__uint(max_entries, HOPS);
	__type(key, __u32);
	__type(value, struct next_hop);
} fl_next_hops SEC(".maps");

/* hop_slot hashes a client: the words of the addresses that differ, times 2^32 divided
 * by the golden ratio (Knuth, TAOCP 6.4).
 */
inline_always __u32 hop_slot(const struct flow *f)
{
	return ((f->client.w[3] ^ f->client.w[1] ^ f->host.w[3]) * 2654435769u) / (0xffffffffu / HOPS + 1);
}

/* is_cached reports whether the slot contains the flow's next hop, not older than a
 * second.
 */
inline_always int is_cached(const struct next_hop *h, const struct flow *f)
{
	return h->ifindex == f->ifindex && same(&h->client, &f->client) && same(&h->host, &f->host) &&
	       (__s64)(f->seen - h->found) < (__s64)SECOND;
}

/* has_route reports whether a route was found, with or without its neighbour. */
inline_always int has_route(long found)
{
	return found == BPF_FIB_LKUP_RET_SUCCESS || found == BPF_FIB_LKUP_RET_NO_NEIGH;
}

inline_always __u32 out_link(const struct next_hop *h) { return h->out ? h->out : h->ifindex; }

/* lookup_route looks up the route to the flow's client. tot_len 1 fits every MTU, so the
 * kernel returns the route's MTU in the same field.
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

/* find_hop looks up the next hop to the flow's client via the link on which the client's
 * packets arrive. It reports whether there is one. If there is no route via that link, any
 * other one is accepted for a service, and for a publish if that link is loose. With its
 * callers it uses all of the stack, so the flow has what it needs.
 */
global_func int find_hop(struct __sk_buff *skb, const struct flow *f, struct next_hop *h)
{
	struct bpf_fib_lookup route;
	long found;

	if (!f || !h)
		return 0;
	found = lookup_route(skb, f, &route, BPF_FIB_LOOKUP_OUTPUT);
	if (!has_route(found) || route.ifindex != f->ifindex) {
		if (!is_real(f->slot) && !(f->flags & FLOW_LOOSE))
			return 0;
		found = lookup_route(skb, f, &route, 0);
		if (!has_route(found))
			return 0;
	}
	h->client = f->client;
	h->host = f->host;
	h->ifindex = f->ifindex;
	h->out = route.ifindex == f->ifindex ? 0 : route.ifindex;
	if (route.family == AF_INET)
		map_v4(&h->next, route.ipv4_dst);
	else
		__builtin_memcpy(&h->next, route.ipv6_dst, 16);
	h->framed = found == BPF_FIB_LKUP_RET_SUCCESS;
	h->found = h->framed ? f->seen : f->seen - SECOND + UNRESOLVED_KEPT;
	h->mtu = h->framed ? route.mtu_result : 0;
	__builtin_memcpy(h->macs, route.dmac, ETH_ALEN);
	__builtin_memcpy((void *)h->macs + ETH_ALEN, route.smac, ETH_ALEN);
	return 1;
}

/* redirect_to_neighbour sends a packet to the next hop by the kernel's neighbour table,
 * so that the kernel keeps the neighbour's entry in use.
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

/* redirect_without_hop sends a packet via the client's link, and the kernel looks up the
 * route by the packet's own destination. A packet for a real server is dropped, because
 * its destination may be the virtual address.
 */
inline_always int redirect_without_hop(const struct flow *f)
{
	return balancing && f->slot == REAL_BIT ? TC_ACT_SHOT : bpf_redirect_neigh(f->ifindex, 0, 0, 0);
}

/* redirect_to_client sends a packet back to the client of the flow. With set_real_route
 * the flow's client is a real server on another host.
 */
inline_always int redirect_to_client(struct __sk_buff *skb, struct flow *f)
{
	__u32 slot = hop_slot(f);
	struct next_hop *h;
	int cached;
	__u32 *macs;

	if (f->flags & FLOW_PEER)
		return redirect_to_sandbox(skb, f->ifindex);
	h = bpf_map_lookup_elem(&fl_next_hops, &slot);
	if (!h)
		return TC_ACT_SHOT;
	cached = is_cached(h, f);
	if (!cached && !find_hop(skb, f, h))
		return redirect_without_hop(f);
	if (h->out && !(f->flags & FLOW_DETOUR))
		f->flags |= FLOW_DETOUR;
	if (!cached || !link_header || !h->framed)
		return redirect_to_neighbour(h);
	macs = writable(skb, 0, sizeof(h->macs));
	if (!macs)
		return TC_ACT_SHOT;
	__builtin_memcpy(macs, h->macs, sizeof(h->macs));
	return bpf_redirect(out_link(h), 0);
}

/* decrement_ttl_v4 decrements the TTL of an IPv4 packet (RFC 1141). */
inline_always void decrement_ttl_v4(struct iphdr *ip)
{
	__u32 sum = ip->check + bpf_htons(0x0100);

	ip->check = sum + (sum >= 0xffff);
	ip->ttl--;
}

/* decrement_ttl decrements the TTL or hop limit of a packet that is forwarded to another
 * host. It fails if that would be 0, and then leaves the packet unchanged. Without this,
 * two balancers that have each other as a real server would forward a packet forever.
 */
global_func int decrement_ttl(struct __sk_buff *skb, const struct packet *p)
{
	struct ipv6hdr *v6;
	struct iphdr *v4;

	if (!balancing || !p)
		return -1;
	if (p->v6) {
		v6 = writable(skb, link_header, sizeof(*v6));
		if (!v6 || v6->hop_limit <= 1)
			return -1;
		v6->hop_limit--;
		/* IPv6 has no header checksum that compensates the change in the network
		 * card's sum. Without such a sum the call fails, which is harmless.
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

/* ttl_expired reports whether decrement_ttl would fail for lack of TTL. */
inline_always int ttl_expired(const struct packet *p) { return p->ttl <= 1; }

/* Packets of that size fit every link. */
#define MIN_MTU 576

/* detour returns the link via which replies of the flow leave. */
global_func __u32 detour(struct __sk_buff *skb, const struct flow *f)
{
	struct next_hop *h;
	__u32 slot;

	if (!f)
		return 0;
	slot = hop_slot(f);
	h = bpf_map_lookup_elem(&fl_next_hops, &slot);
	if (!h || (!is_cached(h, f) && !find_hop(skb, f, h)))
		return f->ifindex;
	return out_link(h);
}

/* exceeded_mtu returns the MTU of the link via which the reply leaves if the packet is
 * larger, else 0. The flow shows that its replies take a detour only after the first one.
 */
inline_always __u32 exceeded_mtu(struct __sk_buff *skb, const struct flow *f)
{
	__u32 ifindex = f->ifindex, mtu = 0;

	if (skb->len <= MIN_MTU)
		return 0;
	if ((f->flags & (FLOW_DETOUR | FLOW_ANSWERED)) != FLOW_ANSWERED && !(f->flags & FLOW_PEER))
		ifindex = detour(skb, f);
	return bpf_check_mtu(skb, ifindex, &mtu, 0, BPF_MTU_CHK_SEGS) > 0 ? mtu : 0;
}

/* send_reply translates a reply and sends it to the flow's client. It ends the flow after its
 * last packet. The verifier checks it once, and not for each map that has the flow.
 */
global_func int send_reply(struct __sk_buff *skb, struct packet *p, struct flow *f, const struct flow_key *key)
{
	struct ends to;
	int last, act;

	if (!p || !f || !key)
		return TC_ACT_SHOT;
	last = track(skb->len, f, p, OUTWARD);
	reply_ends(&to, f);
	if (rewrite(skb, p, &to))
		return count_drop(f->slot, OUTWARD);
	act = redirect_to_client(skb, f);
	if (act == TC_ACT_SHOT)
		count_drop(f->slot, OUTWARD);
	if (last)
		end_flow(f, key);
	return act;
}

/* send_to_client does what redirect_to_client does. The verifier checks it once. */
global_func int send_to_client(struct __sk_buff *skb, struct flow *f)
{
	return f ? redirect_to_client(skb, f) : TC_ACT_SHOT;
}

/* opens_flow reports whether a client's packet opens the flow: the client acknowledges data or
 * the SYN of the endpoint. An outbound flow is opened by a host outside that acknowledges.
 */
inline_always int opens_flow(const struct flow *f, const struct packet *p)
{
	if (f->flags & FLOW_OPEN || p->kind != PACKET_L4 || (p->tcp_flags & (TCP_ACK | TCP_RST)) != TCP_ACK)
		return 0;
	if (f->flags & FLOW_OUTBOUND)
		return 1;
	return !(p->tcp_flags & TCP_SYN) && (f->flags & FLOW_ANSWERED) && f->fin[OUTWARD] - p->ack < RESET_WINDOW;
}

/* deliver translates a client's packet and redirects it into the sandbox behind the host's
 * link. It ends the flow after its last packet. The verifier checks it once, and not for each
 * map that has the flow.
 */
global_func int deliver(struct __sk_buff *skb, struct packet *p, struct flow *f, const struct flow_key *key, __u32 ifindex)
{
	struct ends to;
	__u32 slot;
	int opens;

	if (!p || !f || !key)
		return TC_ACT_SHOT;
	slot = f->slot;
	opens = opens_flow(f, p);
	if (track(skb->len, f, p, INWARD))
		end_flow(f, key);
	else if (opens)
		promote_flow(key, f);
	to.src = &key->client;
	to.sport = key->client_port;
	to.dst = &key->endpoint;
	to.dport = key->endpoint_port;
	if (rewrite(skb, p, &to))
		return count_drop(slot, INWARD);
	return redirect_to_sandbox(skb, ifindex);
}
