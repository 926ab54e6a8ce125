/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
/* The fast path: the network driver forwards packets for real servers on other hosts
 * (XDP).
 *
 * Theory of operation. A packet for a service with direct or tunnel forwarding is not
 * translated and needs only a next hop. The tables, connections and counters of
 * balance.h decide its real server. The next hop is the one that the tc program has
 * cached on this CPU within the last second (fl_next_hops). So the first packet per
 * second to each next hop uses tc, which looks up the route, and through which the
 * kernel keeps the neighbour's entry in use. All other packets use tc too: fragments, IP
 * options, VLANs, ICMP errors, packets that are too large or whose TTL expires, packets
 * for real servers in sandboxes, clients that must be refused, packets on another link
 * than their flow's, and packets that leave via a link without the fast path. The tc
 * program processes them as if there were no fast path.
 *
 *	client ── driver ─[fl_xdp]── driver ── real server on another host
 *	             └── pass ── [fl_uplink] ──┘
 *
 * A sender on this host may have left a checksum to a network card that the packet never
 * reaches. Such a packet is passed on.
 */
#pragma once

#include "datapath.h"

/* The links that have the program, with the MAC address of frames to this host. User
 * space writes them.
 */
struct xdp_link {
	__u8 mac[ETH_ALEN];
	__u8 pad[2];
};

struct {
	__uint(type, BPF_MAP_TYPE_HASH);
	__uint(max_entries, 1024);
	__uint(map_flags, BPF_F_NO_PREALLOC);
	__type(key, __u32);
	__type(value, struct xdp_link);
} fl_xdp_links SEC(".maps");

/* The number of packets that the fast path has forwarded. */
struct {
	__uint(type, BPF_MAP_TYPE_PERCPU_ARRAY);
	__uint(max_entries, 1);
	__type(key, __u32);
	__type(value, __u64);
} fl_xdp_packets SEC(".maps");

inline_always void count_xdp_packet(void)
{
	__u32 slot = 0;
	__u64 *n = bpf_map_lookup_elem(&fl_xdp_packets, &slot);

	if (n)
		(*n)++;
}

/* frame_at returns len bytes of the frame at off, NULL beyond its end. */
inline_always void *frame_at(struct xdp_md *ctx, __u32 off, __u32 len)
{
	void *start = (void *)(long)ctx->data + off;

	return start + len <= (void *)(long)ctx->data_end ? start : 0;
}

/* is_for_link reports whether the frame is addressed to the link's MAC address. */
inline_always int is_for_link(struct xdp_md *ctx, const struct ethhdr *eth)
{
	__u32 ifindex = ctx->ingress_ifindex;
	struct xdp_link *link = bpf_map_lookup_elem(&fl_xdp_links, &ifindex);

	if (!link)
		return 0;
	for (int i = 0; i < ETH_ALEN; i++) {
		if (eth->h_dest[i] != link->mac[i])
			return 0;
	}
	return 1;
}

/* has_partial_checksum reports whether a transport checksum is incomplete: it is the sum
 * over the pseudo header alone.
 */
inline_always int has_partial_checksum(const struct packet *p, __u32 proto, __u32 length, __u16 check)
{
	__u32 sum = bpf_csum_diff(0, 0, (__be32 *)&p->src, 32, bpf_htons(proto) + bpf_htons(length));

	return fold(fold(sum)) == check;
}

/* xdp_read_ports reads the transport header. length is that of the transport header and
 * its payload.
 */
inline_always int xdp_read_ports(struct xdp_md *ctx, struct packet *p, __u8 proto, __u32 l4, __u32 length)
{
	void *end = (void *)(long)ctx->data_end;
	struct tcphdr *tcp = (void *)(long)ctx->data + l4;
	struct udphdr *udp = (void *)tcp;
	__u16 check;

	p->l4 = l4;
	p->class = CLASS(p->v6, proto == IPPROTO_UDP);
	if ((void *)(udp + 1) > end)
		return -1;
	p->sport = udp->source;
	p->dport = udp->dest;
	check = udp->check;
	if (proto != IPPROTO_UDP) {
		if (proto != IPPROTO_TCP || (void *)(tcp + 1) > end)
			return -1;
		p->tcp_flags = ((__u8 *)tcp)[13];
		p->seq = bpf_ntohl(tcp->seq);
		p->ack = bpf_ntohl(tcp->ack_seq);
		p->payload = length - tcp->doff * 4;
		check = tcp->check;
	}
	return has_partial_checksum(p, proto, length, check) ? -1 : 0;
}

inline_always int xdp_read_v4(struct xdp_md *ctx, struct packet *p)
{
	struct iphdr *ip = frame_at(ctx, ETH_HLEN, sizeof(*ip));

	if (!ip || ip->version != 4 || ip->ihl != 5 || ip->ttl <= 1 || ip->frag_off & bpf_htons(IP_MF | IP_OFFSET))
		return -1;
	map_v4(&p->src, ip->saddr);
	map_v4(&p->dst, ip->daddr);
	return xdp_read_ports(ctx, p, ip->protocol, ETH_HLEN + sizeof(*ip), bpf_ntohs(ip->tot_len) - sizeof(*ip));
}

inline_always int xdp_read_v6(struct xdp_md *ctx, struct packet *p)
{
	struct ipv6hdr *ip = frame_at(ctx, ETH_HLEN, sizeof(*ip));

	if (!ip || ip->version != 6 || ip->hop_limit <= 1)
		return -1;
	copy_v6(&p->src, &ip->saddr);
	copy_v6(&p->dst, &ip->daddr);
	p->v6 = 1;
	if (is_v4(&p->src) || is_v4(&p->dst))
		return -1;
	return xdp_read_ports(ctx, p, ip->nexthdr, ETH_HLEN + sizeof(*ip), bpf_ntohs(ip->payload_len));
}

/* xdp_read parses the packet. It returns 0 for a packet that is addressed to this host
 * and that the fast path can handle.
 */
inline_always int xdp_read(struct xdp_md *ctx, struct packet *p)
{
	struct ethhdr *eth = frame_at(ctx, 0, sizeof(*eth));

	if (!eth || !is_for_link(ctx, eth))
		return -1;
	if (eth->h_proto == bpf_htons(ETH_P_IP))
		return xdp_read_v4(ctx, p);
	if (eth->h_proto == bpf_htons(ETH_P_IPV6))
		return xdp_read_v6(ctx, p);
	return -1;
}

/* is_reply reports whether the packet is a reply to the client of a flow. */
inline_always int is_reply(const struct packet *p, struct work *w)
{
	reply_key(&w->key, p);
	return find_flow(&w->key) != 0;
}

/* xdp_find_flow finds or creates the flow of a packet as the tc program does, if the
 * packet is not translated.
 */
static __noinline struct flow *xdp_find_flow(struct xdp_md *ctx, struct packet *p, struct work *w)
{
	__u32 ifindex = ctx->ingress_ifindex;
	struct frontend *to;
	struct flow *f;
	__u32 slot;

	if (is_loopback(&p->src) || find_mapping(p->class, &p->dst, bpf_ntohs(p->dport), &slot))
		return 0;
	set_conn_key(w, &p->src, p->sport, &p->dst, p->dport, p->class);
	f = find_live_flow(p, w);
	if (!f) {
		to = find_frontend(&p->dst, p->dport, p->class);
		return to && to->direct && !is_reply(p, w) ? create_conn(ctx, ifindex, p, w, 0) : 0;
	}
	if (f->ifindex != ifindex)
		return 0;
	w->direct = same(&w->key.endpoint, &p->dst);
	return w->direct ? note_request(w, f, p) : 0;
}

/* xdp_next_hop returns the cached next hop to a real server, if a packet of that length
 * may use it.
 */
inline_always struct next_hop *xdp_next_hop(struct xdp_md *ctx, const struct real *r, struct work *w, __u32 length)
{
	__u32 slot, out;
	struct next_hop *h;

	set_real_route(r, w);
	slot = hop_slot(&w->fresh);
	h = bpf_map_lookup_elem(&fl_next_hops, &slot);
	if (!h || !is_cached(h, &w->fresh) || !h->framed || length > h->mtu)
		return 0;
	out = out_link(h);
	return out == ctx->ingress_ifindex || bpf_map_lookup_elem(&fl_xdp_links, &out) ? h : 0;
}

/* xdp_encap_v4 puts the outer headers in front of a packet, as encap_v4 does. */
inline_always int xdp_encap_v4(struct xdp_md *ctx, const struct packet *p, const struct real *r,
			       __u32 gue_length, __be16 port)
{
	struct iphdr *ip, *inner;

	if (bpf_xdp_adjust_head(ctx, -(int)(sizeof(*ip) + gue_length)))
		return -1;
	ip = frame_at(ctx, ETH_HLEN, 2 * sizeof(*ip) + gue_length);
	if (!ip)
		return -1;
	inner = (void *)(ip + 1) + gue_length;
	*ip = *inner;
	if (gue_length)
		fill_gue((void *)(ip + 1), p, port, ip->tot_len, 0);
	outer_v4(ip, r, gue_length);
	return 0;
}

inline_always int xdp_encap_v6(struct xdp_md *ctx, const struct packet *p, const struct real *r,
			       __u32 gue_length, __be16 port)
{
	struct ipv6hdr *ip, *inner;

	if (bpf_xdp_adjust_head(ctx, -(int)(sizeof(*ip) + gue_length)))
		return -1;
	ip = frame_at(ctx, ETH_HLEN, 2 * sizeof(*ip) + gue_length);
	if (!ip)
		return -1;
	inner = (void *)(ip + 1) + gue_length;
	*ip = *inner;
	if (gue_length)
		fill_gue((void *)(ip + 1), p, port, ip->payload_len, sizeof(*ip));
	outer_v6(ip, r, gue_length);
	return 0;
}

inline_always int xdp_encap(struct xdp_md *ctx, const struct packet *p, const struct real *r)
{
	__be16 port = gue_port(r);

	if (p->v6)
		return port ? xdp_encap_v6(ctx, p, r, sizeof(struct gue), port) : xdp_encap_v6(ctx, p, r, 0, 0);
	return port ? xdp_encap_v4(ctx, p, r, sizeof(struct gue), port) : xdp_encap_v4(ctx, p, r, 0, 0);
}

/* xdp_decrement_ttl decrements the TTL or hop limit, as decrement_ttl does. */
inline_always int xdp_decrement_ttl(struct xdp_md *ctx, const struct packet *p)
{
	struct ipv6hdr *v6;
	struct iphdr *v4;

	if (p->v6) {
		v6 = frame_at(ctx, ETH_HLEN, sizeof(*v6));
		if (!v6)
			return -1;
		v6->hop_limit--;
		return 0;
	}
	v4 = frame_at(ctx, ETH_HLEN, sizeof(*v4));
	if (!v4)
		return -1;
	decrement_ttl_v4(v4);
	return 0;
}

/* xdp_send sends the frame to a next hop. */
inline_always int xdp_send(struct xdp_md *ctx, const struct packet *p, const struct next_hop *h)
{
	struct ethhdr *eth = frame_at(ctx, 0, sizeof(*eth));
	__u32 out = out_link(h);

	if (!eth)
		return XDP_DROP;
	__builtin_memcpy(eth, h->macs, sizeof(h->macs));
	eth->h_proto = p->v6 ? bpf_htons(ETH_P_IPV6) : bpf_htons(ETH_P_IP);
	count_xdp_packet();
	return out == ctx->ingress_ifindex ? XDP_TX : bpf_redirect(out, 0);
}

/* xdp_forward sends a packet of a flow to its real server, or passes it on to tc. */
global_func int xdp_forward(struct xdp_md *ctx, struct packet *p, struct flow *f)
{
	__u64 length = (void *)(long)ctx->data_end - (void *)(long)ctx->data;
	struct work *w = work_of();
	struct next_hop *h;
	struct real *r;
	int last;

	barrier_var(length); /* the verifier allows no partial pointer on the stack */
	if (!balancing || !p || !f || !w)
		return XDP_PASS;
	r = real_of(w->slot);
	if (!r || !(r->flags & REAL_REMOTE))
		return XDP_PASS;
	h = xdp_next_hop(ctx, r, w, length - ETH_HLEN + outer_length(p, r));
	if (!h)
		return XDP_PASS;
	last = track_request(length, f, p);
	f = place_one_way(w, f);
	if (!f)
		return XDP_DROP;
	if (xdp_decrement_ttl(ctx, p) || (r->flags & REAL_TUNNEL && xdp_encap(ctx, p, r))) {
		count_drop(f->slot, INWARD);
		return XDP_DROP;
	}
	if (last)
		end_flow(f, &w->key);
	return xdp_send(ctx, p, h);
}
