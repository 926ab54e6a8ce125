/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
/* The fast path: packets for real servers elsewhere, sent on by the driver.
 *
 * Theory of operation. What has come for a service whose packets stay as they
 * are (direct, tunnel) needs nothing of the kernel but a next hop. The same
 * table, connections and counters as in balance.h say to whom it goes, and the
 * way there is the one that the tc program has found within the last second on
 * this CPU (hops). So the first packet of each way in each second goes by tc,
 * which asks the routing table, and by which the kernel learns that the
 * neighbour is in use. So does whatever is not plain: fragments, options, VLANs,
 * errors, what is too large or may pass no more hosts, real servers in sandboxes,
 * clients to be refused, packets by another link than their flow's, what would leave by a link that has no fast path. Passed
 * on, it meets the tc program as if there were no other.
 *
 *	client ── driver ─[fast]── driver ── real server elsewhere
 *	             └── pass ── [uplink] ──┘
 *
 * A sender on this host may leave a checksum to a card that never comes. Such a
 * packet is passed on.
 */
#pragma once

#include "steer.h"

/* The links that have the program, with the hardware address by which frames
 * are for this host. User space keeps them.
 */
struct fast_link {
	__u8 mac[ETH_ALEN];
	__u8 pad[2];
};

struct {
	__uint(type, BPF_MAP_TYPE_HASH);
	__uint(max_entries, 1024);
	__uint(map_flags, BPF_F_NO_PREALLOC);
	__type(key, __u32);
	__type(value, struct fast_link);
} fast_links SEC(".maps");

/* How many packets have gone by the fast path. */
struct {
	__uint(type, BPF_MAP_TYPE_PERCPU_ARRAY);
	__uint(max_entries, 1);
	__type(key, __u32);
	__type(value, __u64);
} fast_packets SEC(".maps");

inline_always void count_fast(void)
{
	__u32 slot = 0;
	__u64 *n = bpf_map_lookup_elem(&fast_packets, &slot);

	if (n)
		(*n)++;
}

/* at returns len bytes of the frame at off; NULL past its end. */
inline_always void *at(struct xdp_md *ctx, __u32 off, __u32 len)
{
	void *start = (void *)(long)ctx->data + off;

	return start + len <= (void *)(long)ctx->data_end ? start : 0;
}

/* is_for_us reports whether the frame is for the link's own address. */
inline_always int is_for_us(struct xdp_md *ctx, const struct ethhdr *eth)
{
	__u32 ifindex = ctx->ingress_ifindex;
	struct fast_link *own = bpf_map_lookup_elem(&fast_links, &ifindex);

	if (!own)
		return 0;
	for (int i = 0; i < ETH_ALEN; i++) {
		if (eth->h_dest[i] != own->mac[i])
			return 0;
	}
	return 1;
}

/* is_unsummed reports whether a transport checksum is still to be worked out:
 * it is the sum over the pseudo header alone.
 */
inline_always int is_unsummed(const struct packet *p, __u32 proto, __u32 length, __u16 check)
{
	__u32 sum = bpf_csum_diff(0, 0, (__be32 *)&p->src, 32, bpf_htons(proto) + bpf_htons(length));

	return fold(fold(sum)) == check;
}

/* read_fast_ports reads the transport header of a packet, of which length bytes
 * are that and what follows.
 */
inline_always int read_fast_ports(struct xdp_md *ctx, struct packet *p, __u8 proto, __u32 l4, __u32 length)
{
	void *end = (void *)(long)ctx->data_end;
	struct tcphdr *tcp = (void *)(long)ctx->data + l4;
	struct udphdr *udp = (void *)tcp;
	__u16 check;

	p->l4 = l4;
	p->plane = PLANE(p->v6, proto == IPPROTO_UDP);
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
	return is_unsummed(p, proto, length, check) ? -1 : 0;
}

inline_always int read_fast_v4(struct xdp_md *ctx, struct packet *p)
{
	struct iphdr *ip = at(ctx, ETH_HLEN, sizeof(*ip));

	if (!ip || ip->version != 4 || ip->ihl != 5 || ip->ttl <= 1 || ip->frag_off & bpf_htons(IP_MF | IP_OFFSET))
		return -1;
	map_v4(&p->src, ip->saddr);
	map_v4(&p->dst, ip->daddr);
	return read_fast_ports(ctx, p, ip->protocol, ETH_HLEN + sizeof(*ip), bpf_ntohs(ip->tot_len) - sizeof(*ip));
}

inline_always int read_fast_v6(struct xdp_md *ctx, struct packet *p)
{
	struct ipv6hdr *ip = at(ctx, ETH_HLEN, sizeof(*ip));

	if (!ip || ip->version != 6 || ip->hop_limit <= 1)
		return -1;
	copy_v6(&p->src, &ip->saddr);
	copy_v6(&p->dst, &ip->daddr);
	p->v6 = 1;
	if (is_mapped(&p->src) || is_mapped(&p->dst))
		return -1;
	return read_fast_ports(ctx, p, ip->nexthdr, ETH_HLEN + sizeof(*ip), bpf_ntohs(ip->payload_len));
}

/* read_fast returns 0 for a plain packet that is for this host. */
inline_always int read_fast(struct xdp_md *ctx, struct packet *p)
{
	struct ethhdr *eth = at(ctx, 0, sizeof(*eth));

	if (!eth || !is_for_us(ctx, eth))
		return -1;
	if (eth->h_proto == bpf_htons(ETH_P_IP))
		return read_fast_v4(ctx, p);
	if (eth->h_proto == bpf_htons(ETH_P_IPV6))
		return read_fast_v6(ctx, p);
	return -1;
}

/* is_answer reports whether the packet is one to a client of a flow. */
inline_always int is_answer(const struct packet *p, struct work *w)
{
	name_answer(&w->key, p);
	return find_flow(&w->key) != 0;
}

/* pick_fast finds the flow of a packet as tc's program does, or begins it, if it
 * is one that stays as it is.
 */
static __noinline struct flow *pick_fast(struct xdp_md *ctx, struct packet *p, struct work *w)
{
	__u32 ifindex = ctx->ingress_ifindex;
	struct frontend *to;
	struct flow *f;
	__u32 slot;

	if (is_loopback(&p->src) || find_lead(p->plane, &p->dst, bpf_ntohs(p->dport), &slot))
		return 0;
	name_client(w, &p->src, p->sport, &p->dst, p->dport, p->plane);
	f = find_standing(p, w);
	if (!f) {
		to = find_frontend(&p->dst, p->dport, p->plane);
		return to && to->direct && !is_answer(p, w) ? begin_conn(ctx, ifindex, p, w, 0) : 0;
	}
	if (f->ifindex != ifindex)
		return 0;
	w->direct = same(&w->key.endpoint, &p->dst);
	return w->direct ? note_call(w, f, p) : 0;
}

/* way_to returns the way to a real server if it is known, and may be used by a
 * packet of that length.
 */
inline_always struct hop *way_to(struct xdp_md *ctx, const struct real *r, struct work *w, __u32 length)
{
	__u32 slot, out;
	struct hop *h;

	aim(r, w);
	slot = hop_slot(&w->fresh);
	h = bpf_map_lookup_elem(&hops, &slot);
	if (!h || !is_known(h, &w->fresh) || !h->framed || length > h->mtu)
		return 0;
	out = link_of(h);
	return out == ctx->ingress_ifindex || bpf_map_lookup_elem(&fast_links, &out) ? h : 0;
}

/* wrap_fast_v4 puts the headers before a packet, as wrap_v4 does. */
inline_always int wrap_fast_v4(struct xdp_md *ctx, const struct packet *p, const struct real *r, __u32 between, __be16 port)
{
	struct iphdr *ip, *inner;

	if (bpf_xdp_adjust_head(ctx, -(int)(sizeof(*ip) + between)))
		return -1;
	ip = at(ctx, ETH_HLEN, 2 * sizeof(*ip) + between);
	if (!ip)
		return -1;
	inner = (void *)(ip + 1) + between;
	*ip = *inner;
	if (between)
		fill_gue((void *)(ip + 1), p, port, ip->tot_len, 0);
	outer_v4(ip, r, between);
	return 0;
}

inline_always int wrap_fast_v6(struct xdp_md *ctx, const struct packet *p, const struct real *r, __u32 between, __be16 port)
{
	struct ipv6hdr *ip, *inner;

	if (bpf_xdp_adjust_head(ctx, -(int)(sizeof(*ip) + between)))
		return -1;
	ip = at(ctx, ETH_HLEN, 2 * sizeof(*ip) + between);
	if (!ip)
		return -1;
	inner = (void *)(ip + 1) + between;
	*ip = *inner;
	if (between)
		fill_gue((void *)(ip + 1), p, port, ip->payload_len, sizeof(*ip));
	outer_v6(ip, r, between);
	return 0;
}

inline_always int wrap_fast(struct xdp_md *ctx, const struct packet *p, const struct real *r)
{
	__be16 port = gue_port(r);

	if (p->v6)
		return port ? wrap_fast_v6(ctx, p, r, sizeof(struct gue), port) : wrap_fast_v6(ctx, p, r, 0, 0);
	return port ? wrap_fast_v4(ctx, p, r, sizeof(struct gue), port) : wrap_fast_v4(ctx, p, r, 0, 0);
}

/* age_fast takes one hop from a packet, as age does. */
inline_always int age_fast(struct xdp_md *ctx, const struct packet *p)
{
	struct ipv6hdr *v6;
	struct iphdr *v4;

	if (p->v6) {
		v6 = at(ctx, ETH_HLEN, sizeof(*v6));
		if (!v6)
			return -1;
		v6->hop_limit--;
		return 0;
	}
	v4 = at(ctx, ETH_HLEN, sizeof(*v4));
	if (!v4)
		return -1;
	age_v4(v4);
	return 0;
}

/* send sends the frame by a way. */
inline_always int send(struct xdp_md *ctx, const struct packet *p, const struct hop *h)
{
	struct ethhdr *eth = at(ctx, 0, sizeof(*eth));
	__u32 out = link_of(h);

	if (!eth)
		return XDP_DROP;
	__builtin_memcpy(eth, h->macs, sizeof(h->macs));
	eth->h_proto = p->v6 ? bpf_htons(ETH_P_IPV6) : bpf_htons(ETH_P_IP);
	count_fast();
	return out == ctx->ingress_ifindex ? XDP_TX : bpf_redirect(out, 0);
}

/* lead_fast sends a packet of a flow to its real server, or passes it on. */
static __noinline int lead_fast(struct xdp_md *ctx, struct packet *p, struct work *w, struct flow *f)
{
	__u64 length = (void *)(long)ctx->data_end - (void *)(long)ctx->data;
	struct real *r = real_of(w->slot);
	struct hop *h;
	int last;

	barrier_var(length); /* no half of a pointer may lie on the stack */
	if (!r || !f || !(r->flags & REAL_REMOTE))
		return XDP_PASS;
	h = way_to(ctx, r, w, length - ETH_HLEN + outer_length(p, r));
	if (!h)
		return XDP_PASS;
	last = track(length, f, p, INWARD);
	f = settle(w, f);
	if (!f)
		return XDP_DROP;
	if (age_fast(ctx, p) || (r->flags & REAL_TUNNEL && wrap_fast(ctx, p, r))) {
		drop(f->lead, INWARD);
		return XDP_DROP;
	}
	if (last)
		end_flow(f, &w->key);
	return send(ctx, p, h);
}
