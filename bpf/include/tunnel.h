/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
/* Packets to real servers elsewhere: wrapped for a tunnel, and told to be
 * smaller.
 *
 * Theory of operation. With forwarding by tunnel the client's packet stays as
 * it is, and gets another IP header in front of it (IPv4 in IPv4, RFC 2003; IPv6
 * in IPv6, RFC 2473), from the host to the real server. That takes it out, finds
 * the virtual address to be its own, and answers the client itself.
 *
 * By GUE (Generic UDP Encapsulation, draft-ietf-intarea-gue, variant 0) there is
 * a UDP header between the two, and one of 4 bytes that says what is within. The
 * source port is the flow's, so that routers and receivers which spread packets
 * by ports spread these. There is no UDP checksum, in IPv6 neither (RFC 6935): the
 * packet within has one, and of a packet of many segments nobody would work out
 * each segment's.
 *
 * The outer header has the inner one's DSCP and ECN (RFC 6040) and its DF bit.
 * A packet of many segments stays one: who cuts it puts all headers in front of
 * each segment.
 *
 * What is larger than the way to a real server takes, with the header that is
 * put before it, is not sent: its sender is told how large it may be, and sends
 * smaller ones (path MTU discovery, RFC 1191, RFC 8201).
 */
#pragma once

#include "away.h"
#include "refuse.h"
#include "services.h"

#define ICMP_FRAG_NEEDED 4
#define ICMPV6_PKT_TOOBIG 2

#define IP_DF 0x4000

/* Every link takes packets of this length, and a header before them. */
#define SURELY_SMALL 512

#define OUTER_TTL 64

inline_always __u32 ip_length(const struct packet *p)
{
	return p->v6 ? sizeof(struct ipv6hdr) : sizeof(struct iphdr);
}

/* The ports from which flows are sent by GUE (RFC 6335: those of nobody). */
#define GUE_FIRST 49152
#define GUE_COUNT 16384

/* What is between the IP headers by GUE: no options, no flags. */
struct gue {
	struct udphdr udp;
	__u8 kind; /* variant 0, data, no words of options */
	__u8 proto;
	__be16 flags;
};

/* gue_port returns the UDP port to which packets for a real server are sent by
 * GUE, 0 for IP in IP.
 */
inline_always __be16 gue_port(const struct real *r)
{
	__u32 id = r->service;
	struct service *s = bpf_map_lookup_elem(&services, &id);

	return s ? s->gue : 0;
}

/* outer_length returns how much is put before a packet for a real server. */
inline_always __u32 outer_length(const struct packet *p, const struct real *r)
{
	if (!(r->flags & REAL_TUNNEL))
		return 0;
	return ip_length(p) + (gue_port(r) ? sizeof(struct gue) : 0);
}

/* length_field is a length as a header has it: a giant packet has none. */
inline_always __be16 length_field(__be16 inner, __u32 more)
{
	__u32 length = bpf_ntohs(inner) + more;

	return inner && length <= 0xffff ? bpf_htons(length) : 0;
}

/* fill_gue writes what is between the headers, for a packet of which the inner
 * header says a length, without so many bytes more.
 */
inline_always void fill_gue(struct gue *g, const struct packet *p, __be16 port, __be16 length, __u32 more)
{
	__u32 flow = finish(stir(stir_address(0, &p->src), (__u32)p->sport << 16 | p->dport));

	g->udp.source = bpf_htons(GUE_FIRST + flow % GUE_COUNT);
	g->udp.dest = port;
	g->udp.len = length_field(length, more + sizeof(*g));
	g->udp.check = 0;
	g->kind = 0;
	g->proto = p->v6 ? IPPROTO_IPV6 : IPPROTO_IPIP;
	g->flags = 0;
}

/* outer_v4 makes of a copy of the inner header the outer one, with so many bytes
 * between the two.
 */
inline_always void outer_v4(struct iphdr *ip, const struct real *r, __u32 between)
{
	ip->ihl = sizeof(*ip) / 4;
	ip->tot_len = length_field(ip->tot_len, sizeof(*ip) + between);
	ip->id = bpf_get_prandom_u32();
	ip->frag_off &= bpf_htons(IP_DF);
	ip->ttl = OUTER_TTL;
	ip->protocol = between ? IPPROTO_UDP : IPPROTO_IPIP;
	ip->saddr = r->seen.w[3];
	ip->daddr = r->to.w[3];
	ip->check = 0;
	ip->check = ~fold(fold(bpf_csum_diff(0, 0, (__be32 *)ip, sizeof(*ip), 0)));
}

inline_always void outer_v6(struct ipv6hdr *ip, const struct real *r, __u32 between)
{
	ip->payload_len = length_field(ip->payload_len, sizeof(*ip) + between);
	ip->nexthdr = between ? IPPROTO_UDP : IPPROTO_IPV6;
	ip->hop_limit = OUTER_TTL;
	__builtin_memcpy(&ip->saddr, &r->seen, 16);
	__builtin_memcpy(&ip->daddr, &r->to, 16);
}

/* How the kernel is told what was put before a packet. */
#define WRAPS(l3, between) (BPF_F_ADJ_ROOM_FIXED_GSO | (l3) | ((between) ? BPF_F_ADJ_ROOM_ENCAP_L4_UDP : 0))

/* wrap_v4 puts the headers before a packet; between is a constant for each
 * caller, and the port one of GUE if there is anything between.
 */
inline_always int wrap_v4(struct __sk_buff *skb, const struct packet *p, const struct real *r, __u32 between, __be16 port)
{
	struct {
		struct iphdr ip;
		struct gue gue;
	} outer;
	__u32 length = sizeof(outer.ip) + between;

	if (bpf_skb_load_bytes(skb, link_header, &outer.ip, sizeof(outer.ip)) ||
	    bpf_skb_adjust_room(skb, length, BPF_ADJ_ROOM_MAC, WRAPS(BPF_F_ADJ_ROOM_ENCAP_L3_IPV4, between)))
		return -1;
	if (between)
		fill_gue(&outer.gue, p, port, outer.ip.tot_len, 0);
	outer_v4(&outer.ip, r, between);
	return bpf_skb_store_bytes(skb, link_header, &outer, length, BPF_F_RECOMPUTE_CSUM);
}

inline_always int wrap_v6(struct __sk_buff *skb, const struct packet *p, const struct real *r, __u32 between, __be16 port)
{
	struct {
		struct ipv6hdr ip;
		struct gue gue;
	} outer;
	__u32 length = sizeof(outer.ip) + between;

	if (bpf_skb_load_bytes(skb, link_header, &outer.ip, sizeof(outer.ip)) ||
	    bpf_skb_adjust_room(skb, length, BPF_ADJ_ROOM_MAC, WRAPS(BPF_F_ADJ_ROOM_ENCAP_L3_IPV6, between)))
		return -1;
	if (between)
		fill_gue(&outer.gue, p, port, outer.ip.payload_len, sizeof(outer.ip));
	outer_v6(&outer.ip, r, between);
	return bpf_skb_store_bytes(skb, link_header, &outer, length, BPF_F_RECOMPUTE_CSUM);
}

/* wrap puts the packet into one for the real server, and returns 0 if it could. */
apart int wrap(struct __sk_buff *skb, const struct packet *p, const struct real *r)
{
	__be16 port;

	if (!p || !r)
		return -1;
	port = gue_port(r);
	if (p->v6)
		return port ? wrap_v6(skb, p, r, sizeof(struct gue), port) : wrap_v6(skb, p, r, 0, 0);
	return port ? wrap_v4(skb, p, r, sizeof(struct gue), port) : wrap_v4(skb, p, r, 0, 0);
}

/* length_of returns the length of the packet on the wire, or of each of its
 * segments.
 */
inline_always __u32 length_of(const struct __sk_buff *skb, const struct packet *p)
{
	__u32 length = skb->len - link_header;

	if (!skb->gso_size)
		return length;
	if (p->plane & 1)
		return p->l4 - link_header + sizeof(struct udphdr) + skb->gso_size;
	return length - p->payload + skb->gso_size;
}

/* limit_to returns how long a packet may be on the way of a flow, 0 if that is
 * not known. What the routing table says goes before what the link takes.
 */
apart __u32 limit_to(struct __sk_buff *skb, const struct flow *f)
{
	struct hop *h;
	__u32 mtu = 0, slot;

	if (!f)
		return 0;
	slot = hop_slot(f);
	h = bpf_map_lookup_elem(&hops, &slot);
	if (!h || (!is_known(h, f) && !find_hop(skb, f, h)))
		return 0;
	if (h->mtu)
		return h->mtu;
	bpf_check_mtu(skb, link_of(h), &mtu, 0, 0);
	return mtu;
}

/* What is put before the quoted packet. */
struct too_big_v4 {
	struct iphdr ip;
	struct icmp_header icmp;
};

struct too_big_v6 {
	struct ipv6hdr ip;
	struct icmp_header icmp;
};

/* How much of the transport header is quoted: a card may be about to write its
 * checksum.
 */
#define QUOTED sizeof(struct tcphdr)

/* sum_quoted returns the sum over what is quoted of the transport header. One
 * with the sum over the pseudo header in the checksum's place is summed up only
 * when it is sent: then its sum and that one make nothing together.
 */
inline_always __u32 sum_quoted(struct __sk_buff *skb, const struct packet *p)
{
	__u32 length = skb->len - p->l4, proto = p->plane & 1 ? IPPROTO_UDP : IPPROTO_TCP;
	__u32 pseudo = fold(fold(bpf_csum_diff(0, 0, (__be32 *)&p->src, 32, 0)) + bpf_htons(proto) + bpf_htons(length & 0xffff) + bpf_htons(length >> 16));
	__be32 head[QUOTED / 4];
	__u16 check;

	if (bpf_skb_load_bytes(skb, p->l4, head, sizeof(head)))
		return 0;
	check = p->plane & 1 ? ((__u16 *)head)[3] : ((__u16 *)head)[8];
	if (check == pseudo)
		return (__u16)~check;
	return fold(bpf_csum_diff(0, 0, head, sizeof(head), 0));
}

/* quote_v4 makes an ICMP error of the packet; the sum over a whole IPv4 header
 * is nothing.
 */
inline_always int quote_v4(struct __sk_buff *skb, const struct packet *p, __u32 mtu)
{
	struct too_big_v4 m = {};
	__u32 sum = sum_quoted(skb, p);

	m.ip.version = 4;
	m.ip.ihl = sizeof(m.ip) / 4;
	m.ip.tot_len = bpf_htons(sizeof(m) + sizeof(struct iphdr) + QUOTED);
	m.ip.ttl = OUTER_TTL;
	m.ip.protocol = IPPROTO_ICMP;
	m.ip.saddr = p->dst.w[3];
	m.ip.daddr = p->src.w[3];
	m.ip.check = ~fold(fold(bpf_csum_diff(0, 0, (__be32 *)&m.ip, sizeof(m.ip), 0)));
	m.icmp.type = ICMP_DEST_UNREACH;
	m.icmp.code = ICMP_FRAG_NEEDED;
	m.icmp.rest = bpf_htonl(mtu);
	m.icmp.checksum = ~fold(fold(bpf_csum_diff(0, 0, (__be32 *)&m.icmp, sizeof(m.icmp), 0)) + sum);
	return bpf_skb_change_tail(skb, p->l4 + QUOTED, 0) ||
	       bpf_skb_adjust_room(skb, sizeof(m), BPF_ADJ_ROOM_MAC, 0) ||
	       bpf_skb_store_bytes(skb, link_header, &m, sizeof(m), 0);
}

/* fragmented is the length of the header that a fragment of IPv6 has besides, or
 * 0.
 */
inline_always __u32 fragmented(const struct packet *p)
{
	return p->v6 && p->l4 == link_header + ip_length(p) + sizeof(struct fragment_header) ? sizeof(struct fragment_header) : 0;
}

inline_always int quote_v6(struct __sk_buff *skb, const struct packet *p, __u32 mtu)
{
	struct too_big_v6 m = {};
	__u32 sum = sum_quoted(skb, p);

	if (bpf_skb_load_bytes(skb, link_header, &m.ip, sizeof(m.ip)))
		return -1;
	/* What a fragment has besides is summed up where the message will be. */
	_Static_assert(sizeof(m.icmp) == sizeof(struct fragment_header), "they are as long as each other");
	if (fragmented(p) && bpf_skb_load_bytes(skb, link_header + sizeof(m.ip), &m.icmp, sizeof(m.icmp)))
		return -1;
	sum += fold(bpf_csum_diff(0, 0, (__be32 *)&m, sizeof(m), 0));
	__builtin_memset(&m, 0, sizeof(m));
	m.ip.version = 6;
	m.ip.payload_len = bpf_htons(sizeof(m.icmp) + sizeof(struct ipv6hdr) + fragmented(p) + QUOTED);
	m.ip.nexthdr = ICMPV6_PROTO;
	m.ip.hop_limit = OUTER_TTL;
	__builtin_memcpy(&m.ip.saddr, &p->dst, 16);
	__builtin_memcpy(&m.ip.daddr, &p->src, 16);
	m.icmp.type = ICMPV6_PKT_TOOBIG;
	m.icmp.rest = bpf_htonl(mtu);
	sum += fold(bpf_csum_diff(0, 0, (__be32 *)&m.ip.saddr, 32, 0)) + bpf_htons(ICMPV6_PROTO) + m.ip.payload_len;
	m.icmp.checksum = ~fold(fold(bpf_csum_diff(0, 0, (__be32 *)&m.icmp, sizeof(m.icmp), 0)) + sum);
	return bpf_skb_change_tail(skb, p->l4 + QUOTED, 0) ||
	       bpf_skb_adjust_room(skb, sizeof(m), BPF_ADJ_ROOM_MAC, 0) ||
	       bpf_skb_store_bytes(skb, link_header, &m, sizeof(m), 0);
}

/* tell_too_big tells the sender of a packet how long it may be. A later fragment,
 * or what has options before its transport header, is only lost.
 */
apart int tell_too_big(struct __sk_buff *skb, const struct packet *p, __u32 mtu)
{
	if (!p || p->kind != PACKET_L4 || p->l4 != link_header + ip_length(p) + fragmented(p))
		return TC_ACT_SHOT;
	if (p->v6 ? quote_v6(skb, p, mtu) : quote_v4(skb, p, mtu))
		return TC_ACT_SHOT;
	return back(skb);
}
