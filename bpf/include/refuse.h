/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
/* Telling a client that nobody is there: its own packet goes back as a TCP
 * reset, or as the ICMP error that quotes it.
 */
#pragma once

#include "packet.h"

#define ICMP_PORT_UNREACH 3
#define ICMPV6_DEST_UNREACH 1
#define ICMPV6_PORT_UNREACH 4

/* back sends the frame out by the link that it came by. */
inline_always int back(struct __sk_buff *skb)
{
	__u8 macs[2 * ETH_ALEN], turned[2 * ETH_ALEN];

	if (link_header) {
		if (bpf_skb_load_bytes(skb, 0, macs, sizeof(macs)))
			return TC_ACT_SHOT;
		__builtin_memcpy(turned, macs + ETH_ALEN, ETH_ALEN);
		__builtin_memcpy(turned + ETH_ALEN, macs, ETH_ALEN);
		if (bpf_skb_store_bytes(skb, 0, turned, sizeof(turned), 0))
			return TC_ACT_SHOT;
	}
	return bpf_redirect(skb->ifindex, 0);
}

/* put_word changes four bytes of a TCP header, and its checksum. */
inline_always int put_word(struct __sk_buff *skb, __u32 l4, __u32 off, __be32 new)
{
	__be32 old;

	return bpf_skb_load_bytes(skb, l4 + off, &old, sizeof(old)) ||
	       bpf_l4_csum_replace(skb, l4 + offsetof(struct tcphdr, check), old, new, sizeof(new)) ||
	       bpf_skb_store_bytes(skb, l4 + off, &new, sizeof(new), 0);
}

/* turn_ends swaps the packet's addresses and ports, which no checksum notices. */
inline_always int turn_ends(struct __sk_buff *skb, const struct packet *p)
{
	struct address ends[2] = { p->dst, p->src };
	struct ports_header ports = { p->dport, p->sport };
	__be32 v4[2] = { ends[0].w[3], ends[1].w[3] };

	if (bpf_skb_store_bytes(skb, p->l4, &ports, sizeof(ports), 0))
		return -1;
	if (p->v6)
		return bpf_skb_store_bytes(skb, link_header + offsetof(struct ipv6hdr, saddr), ends, sizeof(ends), 0);
	return bpf_skb_store_bytes(skb, link_header + offsetof(struct iphdr, saddr), v4, sizeof(v4), 0);
}

/* reset_back answers a segment by a reset (RFC 9293, 3.10.7.1). Its options and
 * data stay where they are, and mean nothing.
 */
static __noinline int reset_back(struct __sk_buff *skb, const struct packet *p)
{
	__u32 l4 = p->l4, length = p->payload + !!(p->tcp_flags & TCP_SYN) + !!(p->tcp_flags & TCP_FIN);
	int known = p->tcp_flags & TCP_ACK;
	__be32 rest;

	if (p->tcp_flags & TCP_RST || skb->gso_size || bpf_skb_load_bytes(skb, l4 + 12, &rest, sizeof(rest)))
		return TC_ACT_SHOT;
	rest = (rest & bpf_htonl(0xf000ffff)) | bpf_htonl((known ? TCP_RST : TCP_RST | TCP_ACK) << 16);
	if (put_word(skb, l4, 4, known ? bpf_htonl(p->ack) : 0) ||
	    put_word(skb, l4, 8, known ? 0 : bpf_htonl(p->seq + length)) || put_word(skb, l4, 12, rest) || turn_ends(skb, p))
		return TC_ACT_SHOT;
	return back(skb);
}

struct icmp_message {
	__u8 type;
	__u8 code;
	__u16 checksum;
	__u16 unused;
	__u16 seed; /* where a network card would write the checksum of the datagram that this was */
};

/* seal completes the message's checksum, given the sum over all else. Where a
 * card is still to write its own sum at seed, that one makes the whole right:
 * it is then told what else there is to sum up, and the checksum is nothing.
 */
inline_always void seal(struct __sk_buff *skb, struct icmp_message *m, __u32 pseudo, __u32 sum)
{
	if (checksum_kind(skb) == CHECKSUM_PARTIAL)
		m->seed = fold(pseudo);
	else
		m->checksum = ~fold(fold(sum) + fold(pseudo));
}

inline_always int unreachable_v4(struct __sk_buff *skb, const struct packet *p)
{
	struct {
		struct iphdr ip;
		struct icmp_message icmp;
		__u8 quote[sizeof(struct iphdr) + 8];
	} m = {};

	if (p->l4 != link_header + sizeof(m.ip) || bpf_skb_load_bytes(skb, link_header, m.quote, sizeof(m.quote)) ||
	    bpf_skb_change_tail(skb, link_header + sizeof(m), 0))
		return TC_ACT_SHOT;
	m.ip.version = 4;
	m.ip.ihl = sizeof(m.ip) / 4;
	m.ip.tot_len = bpf_htons(sizeof(m));
	m.ip.ttl = 64;
	m.ip.protocol = IPPROTO_ICMP;
	m.ip.saddr = p->dst.w[3];
	m.ip.daddr = p->src.w[3];
	m.ip.check = ~fold(fold(bpf_csum_diff(0, 0, (__be32 *)&m.ip, sizeof(m.ip), 0)));
	m.icmp.type = ICMP_DEST_UNREACH;
	m.icmp.code = ICMP_PORT_UNREACH;
	seal(skb, &m.icmp, 0, bpf_csum_diff(0, 0, (__be32 *)&m.icmp, sizeof(m) - sizeof(m.ip), 0));
	if (bpf_skb_store_bytes(skb, link_header, &m, sizeof(m), 0))
		return TC_ACT_SHOT;
	return back(skb);
}

inline_always int unreachable_v6(struct __sk_buff *skb, const struct packet *p)
{
	struct {
		struct ipv6hdr ip;
		struct icmp_message icmp;
		__u8 quote[sizeof(struct ipv6hdr) + 8];
	} m = {};
	__u32 pseudo;

	if (p->l4 != link_header + sizeof(m.ip) || bpf_skb_load_bytes(skb, link_header, m.quote, sizeof(m.quote)) ||
	    bpf_skb_change_tail(skb, link_header + sizeof(m), 0))
		return TC_ACT_SHOT;
	m.ip.version = 6;
	m.ip.payload_len = bpf_htons(sizeof(m) - sizeof(m.ip));
	m.ip.nexthdr = ICMPV6_PROTO;
	m.ip.hop_limit = 64;
	__builtin_memcpy(&m.ip.saddr, &p->dst, 16);
	__builtin_memcpy(&m.ip.daddr, &p->src, 16);
	m.icmp.type = ICMPV6_DEST_UNREACH;
	m.icmp.code = ICMPV6_PORT_UNREACH;
	pseudo = fold(bpf_csum_diff(0, 0, (__be32 *)&m.ip.saddr, 32, 0)) + bpf_htons(ICMPV6_PROTO) + m.ip.payload_len;
	seal(skb, &m.icmp, pseudo, bpf_csum_diff(0, 0, (__be32 *)&m.icmp, sizeof(m) - sizeof(m.ip), 0));
	if (bpf_skb_store_bytes(skb, link_header, &m, sizeof(m), 0))
		return TC_ACT_SHOT;
	return back(skb);
}

/* unreachable_back answers a datagram by ICMP's "port unreachable". A kernel
 * that does not tell how far a checksum is worked out (before 6.2) lets none be
 * written.
 */
static __noinline int unreachable_back(struct __sk_buff *skb, const struct packet *p)
{
	if (p->kind != PACKET_L4 || skb->gso_size || checksum_kind(skb) < 0)
		return TC_ACT_SHOT;
	return p->v6 ? unreachable_v6(skb, p) : unreachable_v4(skb, p);
}

/* refuse_client tells the sender of a packet that nobody is there. */
inline_always int refuse_client(struct __sk_buff *skb, const struct packet *p)
{
	if (p->plane & 1)
		return unreachable_back(skb, p);
	return reset_back(skb, p);
}
