/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
/* Packets to real servers elsewhere: wrapped for a tunnel, and no larger than
 * the way takes.
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

#include "redirect.h"
#include "services.h"

#define IP_DF 0x4000

/* Every link takes packets of this length, and a header before them. */
#define ALWAYS_FITS 512

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
	struct service *s = bpf_map_lookup_elem(&fl_services, &id);

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
	__u32 flow = hash_finish(hash_word(hash_address(0, &p->src), (__u32)p->sport << 16 | p->dport));

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
inline_always void outer_v4(struct iphdr *ip, const struct real *r, __u32 gue_length)
{
	ip->ihl = sizeof(*ip) / 4;
	ip->tot_len = length_field(ip->tot_len, sizeof(*ip) + gue_length);
	ip->id = bpf_get_prandom_u32();
	ip->frag_off &= bpf_htons(IP_DF);
	ip->ttl = DEFAULT_TTL;
	ip->protocol = gue_length ? IPPROTO_UDP : IPPROTO_IPIP;
	ip->saddr = r->seen.w[3];
	ip->daddr = r->to.w[3];
	ip->check = 0;
	ip->check = ~fold(fold(bpf_csum_diff(0, 0, (__be32 *)ip, sizeof(*ip), 0)));
}

inline_always void outer_v6(struct ipv6hdr *ip, const struct real *r, __u32 gue_length)
{
	ip->payload_len = length_field(ip->payload_len, sizeof(*ip) + gue_length);
	ip->nexthdr = gue_length ? IPPROTO_UDP : IPPROTO_IPV6;
	ip->hop_limit = DEFAULT_TTL;
	__builtin_memcpy(&ip->saddr, &r->seen, 16);
	__builtin_memcpy(&ip->daddr, &r->to, 16);
}

/* How the kernel is told what was put before a packet. */
#define ENCAP_FLAGS(l3, gue_length) (BPF_F_ADJ_ROOM_FIXED_GSO | (l3) | ((gue_length) ? BPF_F_ADJ_ROOM_ENCAP_L4_UDP : 0))

/* encap_v4 puts the headers before a packet; between is a constant for each
 * caller, and the port one of GUE if there is anything between.
 */
inline_always int encap_v4(struct __sk_buff *skb, const struct packet *p, const struct real *r, __u32 gue_length, __be16 port)
{
	struct {
		struct iphdr ip;
		struct gue gue;
	} outer;
	__u32 length = sizeof(outer.ip) + gue_length;

	if (bpf_skb_load_bytes(skb, link_header, &outer.ip, sizeof(outer.ip)) ||
	    bpf_skb_adjust_room(skb, length, BPF_ADJ_ROOM_MAC, ENCAP_FLAGS(BPF_F_ADJ_ROOM_ENCAP_L3_IPV4, gue_length)))
		return -1;
	if (gue_length)
		fill_gue(&outer.gue, p, port, outer.ip.tot_len, 0);
	outer_v4(&outer.ip, r, gue_length);
	return bpf_skb_store_bytes(skb, link_header, &outer, length, BPF_F_RECOMPUTE_CSUM);
}

inline_always int encap_v6(struct __sk_buff *skb, const struct packet *p, const struct real *r, __u32 gue_length, __be16 port)
{
	struct {
		struct ipv6hdr ip;
		struct gue gue;
	} outer;
	__u32 length = sizeof(outer.ip) + gue_length;

	if (bpf_skb_load_bytes(skb, link_header, &outer.ip, sizeof(outer.ip)) ||
	    bpf_skb_adjust_room(skb, length, BPF_ADJ_ROOM_MAC, ENCAP_FLAGS(BPF_F_ADJ_ROOM_ENCAP_L3_IPV6, gue_length)))
		return -1;
	if (gue_length)
		fill_gue(&outer.gue, p, port, outer.ip.payload_len, sizeof(outer.ip));
	outer_v6(&outer.ip, r, gue_length);
	return bpf_skb_store_bytes(skb, link_header, &outer, length, BPF_F_RECOMPUTE_CSUM);
}

/* wrap puts the packet into one for the real server, and returns 0 if it could. */
global_func int encapsulate(struct __sk_buff *skb, const struct packet *p, const struct real *r)
{
	__be16 port;

	if (!p || !r)
		return -1;
	port = gue_port(r);
	if (p->v6)
		return port ? encap_v6(skb, p, r, sizeof(struct gue), port) : encap_v6(skb, p, r, 0, 0);
	return port ? encap_v4(skb, p, r, sizeof(struct gue), port) : encap_v4(skb, p, r, 0, 0);
}

/* length_of returns the length of the packet on the wire, or of each of its
 * segments.
 */
inline_always __u32 length_of(const struct __sk_buff *skb, const struct packet *p)
{
	__u32 length = skb->len - link_header;

	if (!skb->gso_size)
		return length;
	if (p->class & 1)
		return p->l4 - link_header + sizeof(struct udphdr) + skb->gso_size;
	return length - p->payload + skb->gso_size;
}

/* path_mtu returns how long a packet may be on the way of a flow, 0 if that is
 * not known. What the routing table says goes before what the link takes.
 */
global_func __u32 path_mtu(struct __sk_buff *skb, const struct flow *f)
{
	struct next_hop *h;
	__u32 mtu = 0, slot;

	if (!f)
		return 0;
	slot = hop_slot(f);
	h = bpf_map_lookup_elem(&fl_next_hops, &slot);
	if (!h || (!is_cached(h, f) && !find_hop(skb, f, h)))
		return 0;
	if (h->mtu)
		return h->mtu;
	bpf_check_mtu(skb, out_link(h), &mtu, 0, 0);
	return mtu;
}
