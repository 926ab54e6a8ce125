/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
/* Writing other addresses and ports into an ICMP error and what it quotes. */
#pragma once

#include "packet.h"

/* change holds what is to be written into an ICMP error: both ends of the
 * quoted packet, and of the packet around it.
 */
struct change {
	struct address src, dst;
	struct address outer_src, outer_dst;
	__be16 sport, dport;
};

/* error_checksum is where the ICMP checksum lies. */
inline_always __u32 error_checksum(const struct packet *p) { return p->l4 + 2; }

/* write_quoted_port changes a quoted port. The sum over the message changes
 * with it; the quoted transport checksum is left, as nobody can check it.
 */
inline_always int write_quoted_port(struct __sk_buff *skb, struct packet *p, int destination, __be16 old, __be16 new)
{
	if (old == new)
		return 0;
	if (bpf_l4_csum_replace(skb, error_checksum(p), old, new, sizeof(new)))
		return -1;
	return bpf_skb_store_bytes(skb, p->inner_l4 + (destination ? 2 : 0), &new, sizeof(new), 0);
}

/* write_v4 changes an address of the IPv4 header at l3, and its checksum. In
 * a quoted header both changes cancel out, so that the sum over the message
 * stays as it is; of the header around it ICMP knows nothing.
 */
inline_always int write_v4(struct __sk_buff *skb, __u32 l3, int destination,
			   const struct address *old, const struct address *new)
{
	__u32 field = destination ? offsetof(struct iphdr, daddr) : offsetof(struct iphdr, saddr);

	if (bpf_l3_csum_replace(skb, l3 + offsetof(struct iphdr, check), old->w[3], new->w[3], 4))
		return -1;
	return bpf_skb_store_bytes(skb, l3 + field, &new->w[3], 4, 0);
}

/* write_v6 changes an address of the IPv6 header at l3. The ICMPv6 checksum
 * covers those of a quoted header and, as a pseudo header, of the one around.
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

/* write_error makes the change. */
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
