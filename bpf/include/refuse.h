/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
/* Answers a packet that no real server can receive: the packet is sent back as a TCP
 * reset, or as an ICMP error that quotes it.
 */
#pragma once

#include "icmp_reply.h"

/* put_word overwrites four bytes of a TCP header, and updates its checksum. */
inline_always int put_word(struct __sk_buff *skb, __u32 l4, __u32 off, __be32 new)
{
	__be32 old;

	return bpf_skb_load_bytes(skb, l4 + off, &old, sizeof(old)) ||
	       bpf_l4_csum_replace(skb, l4 + offsetof(struct tcphdr, check), old, new, sizeof(new)) ||
	       bpf_skb_store_bytes(skb, l4 + off, &new, sizeof(new), 0);
}

/* swap_ends swaps the packet's addresses and ports. The checksum stays the same. */
inline_always int swap_ends(struct __sk_buff *skb, const struct packet *p)
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

/* reply_reset answers a segment with a reset (RFC 9293, 3.10.7.1). The segment's options
 * and data remain in the packet and have no meaning.
 */
static __noinline int reply_reset(struct __sk_buff *skb, const struct packet *p)
{
	__u32 l4 = p->l4, length = p->payload + !!(p->tcp_flags & TCP_SYN) + !!(p->tcp_flags & TCP_FIN);
	int known = p->tcp_flags & TCP_ACK;
	__be32 rest;

	if (p->tcp_flags & TCP_RST || skb->gso_size || bpf_skb_load_bytes(skb, l4 + 12, &rest, sizeof(rest)))
		return TC_ACT_SHOT;
	rest = (rest & bpf_htonl(0xf000ffff)) | bpf_htonl((known ? TCP_RST : TCP_RST | TCP_ACK) << 16);
	if (put_word(skb, l4, 4, known ? bpf_htonl(p->ack) : 0) ||
	    put_word(skb, l4, 8, known ? 0 : bpf_htonl(p->seq + length)) || put_word(skb, l4, 12, rest) || swap_ends(skb, p))
		return TC_ACT_SHOT;
	return redirect_back(skb);
}

/* refuse_client answers a packet with a TCP reset, or an ICMP port unreachable for UDP. */
inline_always int refuse_client(struct __sk_buff *skb, const struct packet *p)
{
	if (p->class & 1)
		return send_icmp_error(skb, p, PORT_UNREACHABLE, 0);
	return reply_reset(skb, p);
}
