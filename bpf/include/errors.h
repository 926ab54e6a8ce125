/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
/* Writing other addresses and ports into an ICMP error and what it quotes. */
#pragma once

#include "packet.h"

/* change holds what is to be written into an ICMP error: one end of the
 * quoted packet, and one of the packet around it.
 */
struct change {
	struct address inner, outer;
	__be16 port;
	__u8 inner_destination; /* which end of the quoted packet; the outer is the other */
};

/* error_checksum is where the ICMP checksum lies. */
inline_always __u32 error_checksum(const struct packet *p) { return p->l4 + 2; }

/* write_quoted_port changes a quoted port. The sum over the message changes
 * with it; the quoted transport checksum is left, as nobody can check it.
 */
inline_always int write_quoted_port(struct __sk_buff *skb, struct packet *p, const struct change *c)
{
	__be16 old = c->inner_destination ? p->inner_dport : p->inner_sport;

	if (bpf_l4_csum_replace(skb, error_checksum(p), old, c->port, sizeof(old)))
		return -1;
	return bpf_skb_store_bytes(skb, p->inner_l4 + (c->inner_destination ? 2 : 0), &c->port, sizeof(c->port), 0);
}

/* write_quoted_v4 changes an address of the quoted IPv4 header. Its header
 * checksum changes by the opposite amount, so that the sum over the message,
 * which covers both, stays as it is.
 */
inline_always int write_quoted_v4(struct __sk_buff *skb, struct packet *p, const struct change *c)
{
	const struct address *old = c->inner_destination ? &p->inner_dst : &p->inner_src;
	__u32 field = c->inner_destination ? offsetof(struct iphdr, daddr) : offsetof(struct iphdr, saddr);

	if (bpf_l3_csum_replace(skb, p->inner_l3 + offsetof(struct iphdr, check), old->w[3], c->inner.w[3], 4))
		return -1;
	return bpf_skb_store_bytes(skb, p->inner_l3 + field, &c->inner.w[3], 4, 0);
}

/* write_quoted_v6 changes an address of the quoted IPv6 header. */
inline_always int write_quoted_v6(struct __sk_buff *skb, struct packet *p, const struct change *c)
{
	const struct address *old = c->inner_destination ? &p->inner_dst : &p->inner_src;
	__u32 field = c->inner_destination ? offsetof(struct ipv6hdr, daddr) : offsetof(struct ipv6hdr, saddr);
	__s64 diff = bpf_csum_diff((__be32 *)old, 16, (__be32 *)&c->inner, 16, 0);

	if (bpf_l4_csum_replace(skb, error_checksum(p), 0, diff, 0))
		return -1;
	return bpf_skb_store_bytes(skb, p->inner_l3 + field, &c->inner, 16, 0);
}

/* write_outer changes the address of the error itself. The ICMPv6 checksum
 * covers it; ICMP has no pseudo header.
 */
inline_always int write_outer(struct __sk_buff *skb, struct packet *p, const struct change *c)
{
	int destination = !c->inner_destination;
	const struct address *old = destination ? &p->dst : &p->src;
	__u32 off = p->l3;
	__s64 diff;

	if (!p->v6) {
		off += destination ? offsetof(struct iphdr, daddr) : offsetof(struct iphdr, saddr);
		if (bpf_l3_csum_replace(skb, p->l3 + offsetof(struct iphdr, check), old->w[3], c->outer.w[3], 4))
			return -1;
		return bpf_skb_store_bytes(skb, off, &c->outer.w[3], 4, 0);
	}
	off += destination ? offsetof(struct ipv6hdr, daddr) : offsetof(struct ipv6hdr, saddr);
	diff = bpf_csum_diff((__be32 *)old, 16, (__be32 *)&c->outer, 16, 0);
	if (bpf_l4_csum_replace(skb, error_checksum(p), 0, diff, BPF_F_PSEUDO_HDR | L4_CSUM_IPV6) &&
	    bpf_l4_csum_replace(skb, error_checksum(p), 0, diff, BPF_F_PSEUDO_HDR))
		return -1;
	return bpf_skb_store_bytes(skb, off, &c->outer, 16, 0);
}

/* write_error makes the change. */
inline_always int write_error(struct __sk_buff *skb, struct packet *p, const struct change *c)
{
	if (write_quoted_port(skb, p, c))
		return -1;
	if (p->v6 ? write_quoted_v6(skb, p, c) : write_quoted_v4(skb, p, c))
		return -1;
	return write_outer(skb, p, c);
}
