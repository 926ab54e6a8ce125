/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
/* Sends an ICMP error to the sender of a packet.
 *
 * Theory of operation. The packet itself becomes the error: it is truncated after the
 * fields that identify its flow, gets an IP and an ICMP header in front, and is sent
 * back via the link on which it arrived. The error must quote the packet as its sender
 * sent it, so callers must not have rewritten anything.
 *
 * The error's source is the packet's destination. No other address of this host is
 * certain to be routed here by the client. The kernel uses the virtual address as well
 * if it has rewritten the destination (nft) or has the address itself (ipvs over IPv4).
 *
 * No error is sent about an error, about a fragment other than the first, or to a
 * multicast or unspecified address (RFC 1122, 3.2.2; RFC 4443, 2.4). Each CPU sends at
 * most as many errors per second as Linux does (icmp_msgs_per_sec, icmp_msgs_burst). As
 * in Linux, errors that path MTU discovery needs are not limited.
 */
#pragma once

#include "packet.h"

#define ICMP_PORT_UNREACH 3
#define ICMP_FRAG_NEEDED 4
#define ICMPV6_DEST_UNREACH 1
#define ICMPV6_PKT_TOOBIG 2
#define ICMPV6_TIME_EXCEED 3
#define ICMPV6_PORT_UNREACH 4

/* ICMP_ERROR_CODE packs type and code of ICMP, and type and code of ICMPv6. */
#define ICMP_ERROR_CODE(v4, v4_code, v6, v6_code) ((v4) << 24 | (v4_code) << 16 | (v6) << 8 | (v6_code))

/* The errors that are sent. */
enum icmp_error {
	PORT_UNREACHABLE = ICMP_ERROR_CODE(ICMP_DEST_UNREACH, ICMP_PORT_UNREACH, ICMPV6_DEST_UNREACH, ICMPV6_PORT_UNREACH),
	PACKET_TOO_BIG = ICMP_ERROR_CODE(ICMP_DEST_UNREACH, ICMP_FRAG_NEEDED, ICMPV6_PKT_TOOBIG, 0),
	TTL_EXCEEDED = ICMP_ERROR_CODE(ICMP_TIME_EXCEEDED, 0, ICMPV6_TIME_EXCEED, 0),
};

/* The interval between errors, and the largest burst, in nanoseconds. */
#define ICMP_COST 1000000LL
#define ICMP_BURST (50 * ICMP_COST)

/* The rate limit of ICMP errors: the time until which the allowed errors are used up
 * (bpf_ktime_get_coarse_ns).
 */
struct {
	__uint(type, BPF_MAP_TYPE_PERCPU_ARRAY);
	__uint(max_entries, 1);
	__type(key, __u32);
	__type(value, __u64);
} fl_icmp_rate SEC(".maps");

/* may_send_icmp reports whether another error may be sent now, and counts it. */
inline_always int may_send_icmp(void)
{
	__u64 now = bpf_ktime_get_coarse_ns(), *spent_until;
	__u32 slot = 0;

	spent_until = bpf_map_lookup_elem(&fl_icmp_rate, &slot);
	if (!spent_until || (__s64)(now - *spent_until) < ICMP_COST)
		return 0;
	if ((__s64)(now - *spent_until) > ICMP_BURST)
		*spent_until = now - ICMP_BURST;
	*spent_until += ICMP_COST;
	return 1;
}

/* redirect_back sends the frame out via the link on which it arrived. */
inline_always int redirect_back(struct __sk_buff *skb)
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

/* quote_length returns how much of the transport header is quoted: all except options. A
 * network card may still have to write its checksum.
 */
inline_always __u32 quote_length(const struct packet *p)
{
	return p->class & 1 ? sizeof(struct udphdr) : sizeof(struct tcphdr);
}

/* sum_quoted returns the checksum over the quoted part of the transport header. If the
 * checksum field contains the sum over the pseudo header, the network card completes it
 * when it sends the packet; the sum over the segment is then the complement of that
 * field. Before Linux 6.2 the kernel does not show this state, so the field is compared
 * with the sum over the pseudo header.
 */
inline_always __u32 sum_quoted(struct __sk_buff *skb, const struct packet *p)
{
	__u32 length = skb->len - p->l4, proto = p->class & 1 ? IPPROTO_UDP : IPPROTO_TCP;
	__u32 pseudo = fold(fold(bpf_csum_diff(0, 0, (__be32 *)&p->src, 32, 0)) + bpf_htons(proto) + bpf_htons(length & 0xffff) + bpf_htons(length >> 16));
	__be32 head[sizeof(struct tcphdr) / 4] = {};
	int kind = checksum_kind(skb);
	__u16 check;

	if (bpf_skb_load_bytes(skb, p->l4, head, quote_length(p)))
		return 0;
	check = p->class & 1 ? ((__u16 *)head)[3] : ((__u16 *)head)[8];
	if (kind < 0 ? check == pseudo : kind == CHECKSUM_PARTIAL)
		return (__u16)~check;
	return fold(bpf_csum_diff(0, 0, head, sizeof(head), 0));
}

/* prepend_message truncates the packet to the quote and puts a message in front. A
 * truncated packet no longer has a network card's sum.
 */
inline_always int prepend_message(struct __sk_buff *skb, const struct packet *p, const void *message, __u32 length)
{
	return bpf_skb_change_tail(skb, p->l4 + quote_length(p), 0) ||
	       bpf_skb_adjust_room(skb, length, BPF_ADJ_ROOM_MAC, 0) ||
	       bpf_skb_store_bytes(skb, link_header, message, length, 0);
}

/* make_icmp_v4 turns the packet into an ICMP error. The sum over a complete IPv4 header
 * is 0, so the quoted header is not added.
 */
inline_always int make_icmp_v4(struct __sk_buff *skb, const struct packet *p, __u32 error, __u32 rest)
{
	struct {
		struct iphdr ip;
		struct icmp_header icmp;
	} m = {};
	__u32 sum = sum_quoted(skb, p);

	m.ip.version = 4;
	m.ip.ihl = sizeof(m.ip) / 4;
	m.ip.tot_len = bpf_htons(sizeof(m) + p->l4 - link_header + quote_length(p));
	m.ip.ttl = DEFAULT_TTL;
	m.ip.protocol = IPPROTO_ICMP;
	m.ip.saddr = p->dst.w[3];
	m.ip.daddr = p->src.w[3];
	m.ip.check = ~fold(fold(bpf_csum_diff(0, 0, (__be32 *)&m.ip, sizeof(m.ip), 0)));
	m.icmp.type = error >> 24;
	m.icmp.code = error >> 16;
	m.icmp.rest = bpf_htonl(rest);
	m.icmp.checksum = ~fold(fold(bpf_csum_diff(0, 0, (__be32 *)&m.icmp, sizeof(m.icmp), 0)) + sum);
	return prepend_message(skb, p, &m, sizeof(m));
}

inline_always int make_icmp_v6(struct __sk_buff *skb, const struct packet *p, __u32 error, __u32 rest)
{
	struct {
		struct ipv6hdr ip;
		struct icmp_header icmp;
	} m = {};
	__u32 sum = sum_quoted(skb, p), head = p->l4 - link_header;

	if (bpf_skb_load_bytes(skb, link_header, &m.ip, sizeof(m.ip)))
		return -1;
	/* A fragment header is read into the place of the ICMP header, to add both to
	 * the sum.
	 */
	_Static_assert(sizeof(m.icmp) == sizeof(struct fragment_header), "they are as long as each other");
	if (head > sizeof(m.ip) && bpf_skb_load_bytes(skb, link_header + sizeof(m.ip), &m.icmp, sizeof(m.icmp)))
		return -1;
	sum += fold(bpf_csum_diff(0, 0, (__be32 *)&m, sizeof(m), 0));
	__builtin_memset(&m, 0, sizeof(m));
	m.ip.version = 6;
	m.ip.payload_len = bpf_htons(sizeof(m.icmp) + head + quote_length(p));
	m.ip.nexthdr = ICMPV6_PROTO;
	m.ip.hop_limit = DEFAULT_TTL;
	__builtin_memcpy(&m.ip.saddr, &p->dst, 16);
	__builtin_memcpy(&m.ip.daddr, &p->src, 16);
	m.icmp.type = error >> 8;
	m.icmp.code = error;
	m.icmp.rest = bpf_htonl(rest);
	sum += fold(bpf_csum_diff(0, 0, (__be32 *)&m.ip.saddr, 32, 0)) + bpf_htons(ICMPV6_PROTO) + m.ip.payload_len;
	m.icmp.checksum = ~fold(fold(bpf_csum_diff(0, 0, (__be32 *)&m.icmp, sizeof(m.icmp), 0)) + sum);
	return prepend_message(skb, p, &m, sizeof(m));
}

/* send_icmp_error sends an ICMP error with the given rest of header to the packet's
 * sender, and returns the packet's action. Without an error the packet is dropped.
 */
global_func int send_icmp_error(struct __sk_buff *skb, const struct packet *p, __u32 error, __u32 rest)
{
	if (!p || p->kind != PACKET_L4 || is_group(&p->src) || is_unspecified(&p->src) || (error != PACKET_TOO_BIG && !may_send_icmp()))
		return TC_ACT_SHOT;
	if (p->v6 ? make_icmp_v6(skb, p, error, rest) : make_icmp_v4(skb, p, error, rest))
		return TC_ACT_SHOT;
	return redirect_back(skb);
}
