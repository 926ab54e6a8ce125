/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
/* Telling the sender of a packet by ICMP why it goes no further.
 *
 * Theory of operation. The packet itself becomes the error: it is cut off behind
 * what names its flow, gets the headers of a message in front, and goes back by
 * the link that it came by. So the sender is told of the packet as it has sent
 * it, and who calls this has written nothing into it yet.
 *
 * The error comes from where the packet was to go. A client has no other address of
 * this host's that surely leads here; from the virtual one the kernel tells it,
 * too, where it has rewritten the destination (nft), or has the address itself
 * (ipvs over IPv4).
 *
 * Nobody is told about an error, about a fragment other than the first, or at an
 * address of many or of none (RFC 1122, 3.2.2; RFC 4443, 2.4). So many errors are
 * sent in a time as Linux sends by itself (icmp_msgs_per_sec, icmp_msgs_burst),
 * by each CPU; like there, those from which path MTU discovery lives are not
 * counted.
 */
#pragma once

#include "packet.h"

#define ICMP_PORT_UNREACH 3
#define ICMP_FRAG_NEEDED 4
#define ICMPV6_DEST_UNREACH 1
#define ICMPV6_PKT_TOOBIG 2
#define ICMPV6_TIME_EXCEED 3
#define ICMPV6_PORT_UNREACH 4

/* NEWS is a type and a code of ICMP, and those of ICMPv6. */
#define ICMP_ERROR_CODE(v4, v4_code, v6, v6_code) ((v4) << 24 | (v4_code) << 16 | (v6) << 8 | (v6_code))

/* What a sender is told. */
enum icmp_error {
	PORT_UNREACHABLE = ICMP_ERROR_CODE(ICMP_DEST_UNREACH, ICMP_PORT_UNREACH, ICMPV6_DEST_UNREACH, ICMPV6_PORT_UNREACH),
	PACKET_TOO_BIG = ICMP_ERROR_CODE(ICMP_DEST_UNREACH, ICMP_FRAG_NEEDED, ICMPV6_PKT_TOOBIG, 0),
	TTL_EXCEEDED = ICMP_ERROR_CODE(ICMP_TIME_EXCEEDED, 0, ICMPV6_TIME_EXCEED, 0),
};

/* What an error costs, and how much may be saved up for, in nanoseconds. */
#define ICMP_COST 1000000LL
#define ICMP_BURST (50 * ICMP_COST)

/* Up to when the errors that were sent are paid for (bpf_ktime_get_coarse_ns). */
struct {
	__uint(type, BPF_MAP_TYPE_PERCPU_ARRAY);
	__uint(max_entries, 1);
	__type(key, __u32);
	__type(value, __u64);
} fl_icmp_rate SEC(".maps");

/* pays reports whether another error may be sent now. */
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

/* back sends the frame out by the link that it came by. */
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

/* quote_length is how much of the transport header is quoted: all but options. A
 * card may be about to write its checksum.
 */
inline_always __u32 quote_length(const struct packet *p)
{
	return p->class & 1 ? sizeof(struct udphdr) : sizeof(struct tcphdr);
}

/* sum_quoted returns the sum over what is quoted of the transport header. One
 * with the sum over the pseudo header in the checksum's place is summed up only
 * when it is sent: then its sum and that one make nothing together. A kernel that
 * does not tell (before 6.2) leaves only to look whether it is that sum.
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

/* prepend_message makes of a packet the quote behind a message. Cut off, it has no sum of
 * a card any more.
 */
inline_always int prepend_message(struct __sk_buff *skb, const struct packet *p, const void *message, __u32 length)
{
	return bpf_skb_change_tail(skb, p->l4 + quote_length(p), 0) ||
	       bpf_skb_adjust_room(skb, length, BPF_ADJ_ROOM_MAC, 0) ||
	       bpf_skb_store_bytes(skb, link_header, message, length, 0);
}

/* make_icmp_v4 makes an ICMP error of the packet; the sum over a whole IPv4 header
 * is nothing.
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
	/* What a fragment has besides is summed up where the message will be. */
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

/* tell tells the sender of a packet why it goes no further, with what else the
 * message holds, and returns what becomes of the packet.
 */
global_func int send_icmp_error(struct __sk_buff *skb, const struct packet *p, __u32 error, __u32 rest)
{
	if (!p || p->kind != PACKET_L4 || is_group(&p->src) || is_unspecified(&p->src) || (error != PACKET_TOO_BIG && !may_send_icmp()))
		return TC_ACT_SHOT;
	if (p->v6 ? make_icmp_v6(skb, p, error, rest) : make_icmp_v4(skb, p, error, rest))
		return TC_ACT_SHOT;
	return redirect_back(skb);
}
