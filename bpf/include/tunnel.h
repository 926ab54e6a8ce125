/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
/* Packets to real servers on other hosts: encapsulation, and the path MTU.
 *
 * Theory of operation. With tunnel forwarding the client's packet is not translated. It
 * gets a second IP header in front (IPv4 in IPv4, RFC 2003; IPv6 in IPv6, RFC 2473),
 * from the host to the real server. The real server decapsulates the packet, has the
 * virtual address itself, and replies to the client directly.
 *
 * With GUE (Generic UDP Encapsulation, draft-ietf-intarea-gue, variant 0) a UDP header
 * and a GUE header of 4 bytes are between the two IP headers. The UDP source port is
 * derived from the flow, so routers and receivers that distribute packets by ports
 * distribute the flows. There is no UDP checksum, not even in IPv6 (RFC 6935): the inner
 * packet has one, and for a packet of several segments (GSO) it would have to be
 * computed for each segment.
 *
 * The outer header has the inner header's DSCP and ECN (RFC 6040) and its DF bit. A GSO
 * packet stays one packet: when it is segmented, each segment gets all headers.
 *
 * A packet that is larger than the path to the real server allows, with the added
 * header, is not sent. Its sender gets an ICMP error with the allowed size and sends
 * smaller packets (path MTU discovery, RFC 1191, RFC 8201).
 */
#pragma once

#include "redirect.h"
#include "services.h"

#define IP_DF 0x4000

/* Every link transmits packets of this length with an added header. */
#define ALWAYS_FITS 512

inline_always __u32 ip_length(const struct packet *p)
{
	return p->v6 ? sizeof(struct ipv6hdr) : sizeof(struct iphdr);
}

/* The UDP source ports for GUE (RFC 6335: dynamic ports). */
#define GUE_FIRST 49152
#define GUE_COUNT 16384

/* The headers between the IP headers with GUE: no options, no flags. */
struct gue {
	struct udphdr udp;
	__u8 kind; /* variant 0, data message, header length 0 */
	__u8 proto;
	__be16 flags;
};

/* gue_port returns the UDP port to which packets for a real server are sent with GUE, 0
 * for IP in IP.
 */
inline_always __be16 gue_port(const struct real *r)
{
	__u32 id = r->service;
	struct service *s = bpf_map_lookup_elem(&fl_services, &id);

	return s ? s->gue : 0;
}

/* outer_length returns the length of the headers that a packet for a real server gets. */
inline_always __u32 outer_length(const struct packet *p, const struct real *r)
{
	if (!(r->flags & REAL_TUNNEL))
		return 0;
	return ip_length(p) + (gue_port(r) ? sizeof(struct gue) : 0);
}

/* length_field returns the value of a length field: 0 for a BIG TCP packet. */
inline_always __be16 length_field(__be16 inner, __u32 more)
{
	__u32 length = bpf_ntohs(inner) + more;

	return inner && length <= 0xffff ? bpf_htons(length) : 0;
}

/* fill_gue writes the UDP and GUE headers. length is the inner header's length field, to
 * which more bytes must be added.
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

/* outer_v4 turns a copy of the inner header into the outer one. gue_length is the length
 * of the headers between the two.
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

/* The flags that describe the added headers to bpf_skb_adjust_room. */
#define ENCAP_FLAGS(l3, gue_length) (BPF_F_ADJ_ROOM_FIXED_GSO | (l3) | ((gue_length) ? BPF_F_ADJ_ROOM_ENCAP_L4_UDP : 0))

/* encap_v4 puts the headers in front of a packet. gue_length is a constant in each
 * caller. port is the GUE port, if gue_length is not 0.
 */
inline_always int encap_v4(struct __sk_buff *skb, const struct packet *p, const struct real *r,
			   __u32 gue_length, __be16 port)
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

inline_always int encap_v6(struct __sk_buff *skb, const struct packet *p, const struct real *r,
			   __u32 gue_length, __be16 port)
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

/* encapsulate puts the outer headers for the real server in front of the packet, and
 * returns 0 on success.
 */
global_func int encapsulate(struct __sk_buff *skb, const struct packet *p, const struct real *r)
{
	__be16 port;

	if (!balancing || !p || !r)
		return -1;
	port = gue_port(r);
	if (p->v6)
		return port ? encap_v6(skb, p, r, sizeof(struct gue), port) : encap_v6(skb, p, r, 0, 0);
	return port ? encap_v4(skb, p, r, sizeof(struct gue), port) : encap_v4(skb, p, r, 0, 0);
}

/* length_of returns the length of the packet on the wire, or of one of its segments. */
inline_always __u32 length_of(const struct __sk_buff *skb, const struct packet *p)
{
	__u32 length = skb->len - link_header;

	if (!skb->gso_size)
		return length;
	if (p->class & 1)
		return p->l4 - link_header + sizeof(struct udphdr) + skb->gso_size;
	return length - p->payload + skb->gso_size;
}

/* path_mtu returns the MTU of the path to the flow's client, 0 if unknown. The route's
 * MTU has priority over the link's.
 */
global_func __u32 path_mtu(struct __sk_buff *skb, const struct flow *f)
{
	struct next_hop *h;
	__u32 mtu = 0, slot;

	if (!balancing || !f)
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
