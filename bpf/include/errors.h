/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
/* Rewrites addresses and ports in an ICMP error and in the packet that it quotes. */
#pragma once

#include "packet.h"

/* change contains the new addresses and ports of an ICMP error: those of the quoted
 * packet, and the addresses of the outer packet.
 */
struct change {
	struct address src, dst;
	struct address outer_src, outer_dst;
	__be16 sport, dport;
};

/* error_checksum returns the offset of the ICMP checksum. */
inline_always __u32 error_checksum(const struct packet *p) { return p->l4 + 2; }

/* write_quoted_port rewrites a quoted port and updates the ICMP checksum. The quoted
 * transport checksum is not updated, because no receiver can verify it.
 */
inline_always int write_quoted_port(struct __sk_buff *skb, struct packet *p, int destination, __be16 old, __be16 new)
{
	if (old == new)
		return 0;
	if (bpf_l4_csum_replace(skb, error_checksum(p), old, new, sizeof(new)))
		return -1;
	return bpf_skb_store_bytes(skb, p->inner_l4 + (destination ? 2 : 0), &new, sizeof(new), 0);
}

/* write_v4 rewrites an address in the IPv4 header at l3, and the header's checksum. In a
 * quoted header both changes cancel each other out, so the ICMP checksum stays valid.
 * ICMP has no pseudo header, so the outer header does not affect it.
 */
inline_always int write_v4(struct __sk_buff *skb, __u32 l3, int destination,
			   const struct address *old, const struct address *new)
{
	__u32 field = destination ? offsetof(struct iphdr, daddr) : offsetof(struct iphdr, saddr);

	if (bpf_l3_csum_replace(skb, l3 + offsetof(struct iphdr, check), old->w[3], new->w[3], 4))
		return -1;
	return bpf_skb_store_bytes(skb, l3 + field, &new->w[3], 4, 0);
}

/* write_v6 rewrites an address in the IPv6 header at l3. The ICMPv6 checksum covers the
 * addresses of a quoted header, and those of the outer header as a pseudo header.
 */
inline_always int write_v6(struct __sk_buff *skb, struct packet *p, __u32 l3, int destination,
			   const struct address *old, const struct address *new)
{
	__u32 field = destination ? offsetof(struct ipv6hdr, daddr) : offsetof(struct ipv6hdr, saddr);
	__s64 diff = bpf_csum_diff((__be32 *)old, 16, (__be32 *)new, 16, 0);

	if (l3 != link_header) {
		if (bpf_l4_csum_replace(skb, error_checksum(p), 0, diff, 0))
			return -1;
	} else if (bpf_l4_csum_replace(skb, error_checksum(p), 0, diff, BPF_F_PSEUDO_HDR | L4_CSUM_IPV6) &&
		   bpf_l4_csum_replace(skb, error_checksum(p), 0, diff, BPF_F_PSEUDO_HDR)) {
		return -1;
	}
	return bpf_skb_store_bytes(skb, l3 + field, new, 16, 0);
}

inline_always int write_at(struct __sk_buff *skb, struct packet *p, __u32 l3, int destination,
			   const struct address *old, const struct address *new)
{
	if (same(old, new))
		return 0;
	return p->v6 ? write_v6(skb, p, l3, destination, old, new) : write_v4(skb, l3, destination, old, new);
}

/* write_error applies the change. Returns 0 on success. */
global_func int write_error(struct __sk_buff *skb, struct packet *p, const struct change *c)
{
	if (!p || !c)
		return -1;
	if (write_quoted_port(skb, p, 0, p->inner_sport, c->sport) || write_quoted_port(skb, p, 1, p->inner_dport, c->dport) ||
	    write_at(skb, p, p->inner_l3, 0, &p->inner_src, &c->src) || write_at(skb, p, p->inner_l3, 1, &p->inner_dst, &c->dst) ||
	    write_at(skb, p, link_header, 0, &p->src, &c->outer_src) || write_at(skb, p, link_header, 1, &p->dst, &c->outer_dst))
		return -1;
	return 0;
}
