/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
/* Reads a packet, and rewrites its addresses and ports. */
#pragma once

#include "flows.h"

#include <linux/if_ether.h>
#include <linux/in.h>
#include <linux/ip.h>
#include <linux/ipv6.h>
#include <linux/pkt_cls.h>
#include <linux/tcp.h>
#include <linux/udp.h>
#include <bpf/bpf_core_read.h>

/* The offset of the network header: 14 on links with Ethernet headers, 0 on links
 * without. User space sets it when it loads the programs.
 */
const volatile __u32 link_header = ETH_HLEN;

#define IP_MF 0x2000
#define IP_OFFSET 0x1fff
#define IPV6_FRAGMENT 44
#define ICMPV6_PROTO 58

/* The TTL or hop limit of packets that the programs create. */
#define DEFAULT_TTL 64

/* Linux 6.16; missing in the headers of Debian 12. */
#define L4_CSUM_IPV6 (1ULL << 7)

enum packet_kind {
	PACKET_L4,       /* TCP or UDP with its ports */
	PACKET_FRAGMENT, /* a later fragment: its ports are looked up */
	PACKET_ERROR,    /* an ICMP error that quotes a TCP or UDP packet */
};

/* A parsed packet. For an ICMP error, src and dst are the outer packet's, and the fields
 * inner_* describe the quoted packet.
 */
struct packet {
	struct address src, dst;
	__be16 sport, dport;
	__u32 l4;        /* offset of the transport header */
	__u32 class;
	__u8 kind;
	__u8 v6;
	__u8 tcp_flags;
	__u8 ttl;        /* the TTL or hop limit */
	__u8 hops;       /* what write_ends subtracts from the TTL of an IPv4 packet */
	__u32 id;        /* the fragments' identification */
	union {
		struct { /* TCP only */
			__u32 seq, ack, payload;
		};
		struct { /* the packet that an ICMP error quotes */
			struct address inner_src, inner_dst;
			__be16 inner_sport, inner_dport;
			__u32 inner_l3, inner_l4;
		};
	};
};

/* The header of an ICMP message of either version (RFC 792, RFC 4443). The kernel's
 * header file would include the C library's.
 */
struct icmp_header {
	__u8 type;
	__u8 code;
	__be16 checksum;
	__be32 rest;
};

#define ICMP_DEST_UNREACH 3
#define ICMP_TIME_EXCEEDED 11
#define ICMP_PARAMETERPROB 12

#define TCP_FIN 0x01
#define TCP_SYN 0x02
#define TCP_RST 0x04
#define TCP_ACK 0x10

struct ports_header {
	__be16 src;
	__be16 dst;
};

inline_always int read_at(struct __sk_buff *skb, __u32 off, void *to, __u32 len)
{
	return bpf_skb_load_bytes(skb, off, to, len);
}

/* load_header returns len bytes at off: a pointer into the packet, or a copy in buf if
 * the bytes are not contiguous. Returns NULL beyond the packet's end.
 */
inline_always void *load_header(struct __sk_buff *skb, __u32 off, void *buf, __u32 len)
{
	void *start = (void *)(long)skb->data + off;

	if (start + len <= (void *)(long)skb->data_end)
		return start;
	return read_at(skb, off, buf, len) ? 0 : buf;
}

/* MAX_L4 is the largest offset of a transport header: after an Ethernet header and the
 * longest IPv4 header.
 */
#define MAX_L4 (ETH_HLEN + 60)

inline_always void copy_v6(struct address *a, const struct in6_addr *from)
{
	__builtin_memcpy(a, from, sizeof(*a));
}

/* read_tcp reads the fields that connection tracking needs. */
inline_always int read_tcp(struct __sk_buff *skb, struct packet *p, __u32 l4, __u32 end)
{
	struct tcphdr buf, *tcp;

	if (l4 > MAX_L4)
		return -1;
	tcp = load_header(skb, l4, &buf, sizeof(buf));
	if (!tcp)
		return -1;
	p->sport = tcp->source;
	p->dport = tcp->dest;
	p->tcp_flags = ((__u8 *)tcp)[13];
	p->seq = bpf_ntohl(tcp->seq);
	p->ack = bpf_ntohl(tcp->ack_seq);
	p->payload = end - l4 - tcp->doff * 4;
	return 0;
}

/* read_ports reads the transport header at l4 of a packet that ends at end. */
inline_always int read_ports(struct __sk_buff *skb, struct packet *p, __u8 proto, __u32 l4, __u32 end)
{
	struct udphdr buf, *udp;

	if (proto == IPPROTO_TCP)
		return read_tcp(skb, p, l4, end);
	if (l4 > MAX_L4)
		return -1;
	udp = load_header(skb, l4, &buf, sizeof(buf));
	if (!udp)
		return -1;
	p->sport = udp->source;
	p->dport = udp->dest;
	return 0;
}

/* read_fragment stores the ports of a first fragment, and looks them up for a later one. */
inline_always int read_fragment(struct __sk_buff *skb, struct packet *p)
{
	struct fragment_key key = { .src = p->src, .dst = p->dst, .id = p->id, .class = p->class, .ifindex = skb->ifindex };
	struct fragment_ports ports = { .src = p->sport, .dst = p->dport };
	struct fragment_ports *known;

	if (p->kind != PACKET_FRAGMENT) {
		bpf_map_update_elem(&fl_fragments, &key, &ports, BPF_ANY);
		return 0;
	}
	known = bpf_map_lookup_elem(&fl_fragments, &key);
	if (!known)
		return -1;
	p->sport = known->src;
	p->dport = known->dst;
	return 0;
}

/* quotes_v4 reports whether an ICMP type is an error that quotes a packet. */
inline_always int quotes_v4(__u8 type)
{
	return type == ICMP_DEST_UNREACH || type == ICMP_TIME_EXCEEDED || type == ICMP_PARAMETERPROB;
}

/* read_error_v4 reads an ICMP error and the packet that it quotes. */
inline_always int read_error_v4(struct __sk_buff *skb, struct packet *p)
{
	struct ports_header ports;
	struct icmp_header icmp;
	struct iphdr ip;

	if (read_at(skb, p->l4, &icmp, sizeof(icmp)) || !quotes_v4(icmp.type))
		return -1;
	p->inner_l3 = p->l4 + sizeof(icmp);
	if (read_at(skb, p->inner_l3, &ip, sizeof(ip)) || ip.version != 4 || ip.ihl < 5 ||
	    (ip.frag_off & bpf_htons(IP_OFFSET)) || (ip.protocol != IPPROTO_TCP && ip.protocol != IPPROTO_UDP))
		return -1;
	p->inner_l4 = p->inner_l3 + ip.ihl * 4;
	if (read_at(skb, p->inner_l4, &ports, sizeof(ports)))
		return -1;
	map_v4(&p->inner_src, ip.saddr);
	map_v4(&p->inner_dst, ip.daddr);
	p->inner_sport = ports.src;
	p->inner_dport = ports.dst;
	p->class = CLASS(0, ip.protocol == IPPROTO_UDP);
	p->kind = PACKET_ERROR;
	return 0;
}

/* read_error_v6 does the same for ICMPv6, where types below 128 are errors. */
inline_always int read_error_v6(struct __sk_buff *skb, struct packet *p)
{
	struct ports_header ports;
	struct icmp_header icmp;
	struct ipv6hdr ip;

	if (read_at(skb, p->l4, &icmp, sizeof(icmp)) || icmp.type >= 128)
		return -1;
	p->inner_l3 = p->l4 + sizeof(icmp);
	if (read_at(skb, p->inner_l3, &ip, sizeof(ip)) || ip.version != 6 ||
	    (ip.nexthdr != IPPROTO_TCP && ip.nexthdr != IPPROTO_UDP))
		return -1;
	p->inner_l4 = p->inner_l3 + sizeof(ip);
	if (read_at(skb, p->inner_l4, &ports, sizeof(ports)))
		return -1;
	copy_v6(&p->inner_src, &ip.saddr);
	copy_v6(&p->inner_dst, &ip.daddr);
	p->inner_sport = ports.src;
	p->inner_dport = ports.dst;
	p->class = CLASS(1, ip.nexthdr == IPPROTO_UDP);
	p->kind = PACKET_ERROR;
	return 0;
}

inline_always int read_v4(struct __sk_buff *skb, struct packet *p)
{
	struct iphdr buf, *ip = load_header(skb, link_header, &buf, sizeof(buf));
	__u32 fragment, end, l4;
	__u8 proto;

	if (!ip || ip->version != 4 || ip->ihl < 5)
		return -1;
	map_v4(&p->src, ip->saddr);
	map_v4(&p->dst, ip->daddr);
	proto = ip->protocol;
	p->ttl = ip->ttl;
	p->id = ip->id;
	fragment = bpf_ntohs(ip->frag_off) & (IP_MF | IP_OFFSET);
	/* A BIG TCP packet of a sender on this host has length 0 in its header. */
	end = ip->tot_len ? link_header + bpf_ntohs(ip->tot_len) : skb->len;
	l4 = link_header + ip->ihl * 4;
	p->l4 = l4;
	if (proto == IPPROTO_ICMP)
		return fragment ? -1 : read_error_v4(skb, p);
	if (proto != IPPROTO_TCP && proto != IPPROTO_UDP)
		return -1;
	p->class = CLASS(0, proto == IPPROTO_UDP);
	if (fragment & IP_OFFSET)
		p->kind = PACKET_FRAGMENT;
	else if (read_ports(skb, p, proto, l4, end))
		return -1;
	return fragment ? read_fragment(skb, p) : 0;
}

struct fragment_header {
	__u8 next;
	__u8 reserved;
	__be16 offset;
	__be32 id;
};

inline_always int read_v6(struct __sk_buff *skb, struct packet *p)
{
	struct ipv6hdr buf, *ip = load_header(skb, link_header, &buf, sizeof(buf));
	__u32 end, l4 = link_header + sizeof(*ip);
	struct fragment_header frag = {};
	int fragmented;
	__u8 proto;

	if (!ip || ip->version != 6)
		return -1;
	copy_v6(&p->src, &ip->saddr);
	copy_v6(&p->dst, &ip->daddr);
	p->v6 = 1;
	p->ttl = ip->hop_limit;
	p->l4 = l4;
	end = ip->payload_len ? l4 + bpf_ntohs(ip->payload_len) : skb->len;
	proto = ip->nexthdr;
	if (is_v4(&p->src) || is_v4(&p->dst))
		return -1;
	if (proto == ICMPV6_PROTO)
		return read_error_v6(skb, p);
	fragmented = proto == IPV6_FRAGMENT;
	if (fragmented) {
		if (read_at(skb, l4, &frag, sizeof(frag)))
			return -1;
		proto = frag.next;
		p->id = frag.id;
		l4 += sizeof(frag);
		p->l4 = l4;
	}
	if (proto != IPPROTO_TCP && proto != IPPROTO_UDP)
		return -1;
	p->class = CLASS(1, proto == IPPROTO_UDP);
	if (frag.offset & bpf_htons(0xfff8))
		p->kind = PACKET_FRAGMENT;
	else if (read_ports(skb, p, proto, l4, end))
		return -1;
	return fragmented ? read_fragment(skb, p) : 0;
}

/* read_packet parses a TCP or UDP packet or an ICMP error, and returns 0. It returns -1
 * for packets that the kernel must handle: other protocols, VLAN tags, truncated
 * headers, and IPv6 extension headers except the fragment header.
 */
global_func int read_packet(struct __sk_buff *skb, struct packet *p)
{
	if (!p || skb->vlan_present)
		return -1;
	if (skb->protocol == bpf_htons(ETH_P_IP))
		return read_v4(skb, p);
	if (skb->protocol == bpf_htons(ETH_P_IPV6))
		return read_v6(skb, p);
	return -1;
}

inline_always __u32 checksum_offset(const struct packet *p)
{
	return p->l4 + ((p->class & 1) ? offsetof(struct udphdr, check) : offsetof(struct tcphdr, check));
}

/* The kernel's struct sk_buff, of which programs read one field via BTF, and the kernel
 * function that returns it (Linux 6.2).
 */
struct sk_buff {
	__u8 ip_summed : 2;
} __attribute__((preserve_access_index));

extern void *bpf_cast_to_kern_ctx(void *) __weak __ksym;

enum {
	CHECKSUM_COMPLETE = 2, /* the network card has computed the sum over the packet */
	CHECKSUM_PARTIAL = 3,  /* the card will compute the checksum: the field contains the sum over the pseudo header */
};

/* checksum_kind returns the packet's ip_summed, or -1 if the kernel does not show it. */
inline_always int checksum_kind(struct __sk_buff *skb)
{
	const struct sk_buff *kernel_skb;

	if (!bpf_cast_to_kern_ctx)
		return -1;
	kernel_skb = bpf_cast_to_kern_ctx(skb);
	return BPF_CORE_READ_BITFIELD(kernel_skb, ip_summed);
}

/* The addresses and ports that a packet shall get. */
struct ends {
	const struct address *src, *dst;
	__be16 sport, dport;
};

/* writable returns len bytes of the packet at off, which it makes contiguous if
 * necessary. Returns NULL beyond the packet's end.
 */
inline_always void *writable(struct __sk_buff *skb, __u32 off, __u32 len)
{
	void *start = (void *)(long)skb->data + off;

	if (start + len <= (void *)(long)skb->data_end)
		return start;
	if (bpf_skb_pull_data(skb, off + len))
		return 0;
	start = (void *)(long)skb->data + off;
	return start + len <= (void *)(long)skb->data_end ? start : 0;
}

/* add_difference adds the change of one word to a checksum (RFC 1624). */
inline_always __u32 add_difference(__u32 sum, __be32 old, __be32 new)
{
	old = ~old;
	return sum + (old >> 16) + (old & 0xffff) + (new >> 16) + (new & 0xffff);
}

inline_always __u32 fold(__u32 sum)
{
	sum = (sum & 0xffff) + (sum >> 16);
	return (sum & 0xffff) + (sum >> 16);
}

/* add_address_difference adds the change of both addresses to a checksum. */
inline_always __u32 add_address_difference(__u32 sum, const struct packet *p, const struct ends *to)
{
	if (p->v6) {
		for (int i = 0; i < 3; i++) {
			sum = add_difference(sum, p->src.w[i], to->src->w[i]);
			sum = add_difference(sum, p->dst.w[i], to->dst->w[i]);
		}
	}
	sum = add_difference(sum, p->src.w[3], to->src->w[3]);
	return add_difference(sum, p->dst.w[3], to->dst->w[3]);
}

/* sum_address updates the transport checksum for a changed address of the pseudo header.
 * The network card's sum over an IPv6 packet stays the same, because the checksum
 * compensates the address. Linux 6.16 has a flag for that (L4_CSUM_IPV6); older kernels
 * refuse it, and the call is repeated without it.
 */
inline_always int sum_address(struct __sk_buff *skb, const struct packet *p,
			      const struct address *old, const struct address *new)
{
	__u64 flags = BPF_F_PSEUDO_HDR | ((p->class & 1) ? BPF_F_MARK_MANGLED_0 : 0);
	__u32 off = checksum_offset(p);
	__s64 diff;

	if (same(old, new))
		return 0;
	if (!p->v6)
		return bpf_l4_csum_replace(skb, off, old->w[3], new->w[3], flags | 4);
	diff = bpf_csum_diff((__be32 *)old, 16, (__be32 *)new, 16, 0);
	if (!bpf_l4_csum_replace(skb, off, 0, diff, flags | L4_CSUM_IPV6))
		return 0;
	return bpf_l4_csum_replace(skb, off, 0, diff, flags);
}

inline_always int sum_port(struct __sk_buff *skb, const struct packet *p, __be16 old, __be16 new)
{
	if (old == new)
		return 0;
	return bpf_l4_csum_replace(skb, checksum_offset(p), old, new,
				   sizeof(new) | ((p->class & 1) ? BPF_F_MARK_MANGLED_0 : 0));
}

inline_always int store_v4(struct __sk_buff *skb, const struct packet *p, const struct ends *to)
{
	struct iphdr *ip = writable(skb, link_header, sizeof(*ip));

	if (!ip)
		return -1;
	/* The TTL is in the upper half of its word. Nothing to subtract adds 0 (RFC 1624). */
	ip->check = ~fold(add_address_difference((__u16)~ip->check + (__u16)~bpf_htons(p->hops << 8), p, to));
	ip->ttl -= p->hops;
	ip->saddr = to->src->w[3];
	ip->daddr = to->dst->w[3];
	return 0;
}

inline_always int store_v6(struct __sk_buff *skb, const struct ends *to)
{
	struct ipv6hdr *ip = writable(skb, link_header, sizeof(*ip));

	if (!ip)
		return -1;
	__builtin_memcpy(&ip->saddr, to->src, 16);
	__builtin_memcpy(&ip->daddr, to->dst, 16);
	return 0;
}

/* update_checksum_by_helpers updates the transport checksum with kernel helpers, which
 * also correct the network card's sum.
 */
inline_always int update_checksum_by_helpers(struct __sk_buff *skb, const struct packet *p, const struct ends *to)
{
	return sum_address(skb, p, &p->src, to->src) || sum_address(skb, p, &p->dst, to->dst) ||
	       sum_port(skb, p, p->sport, to->sport) || sum_port(skb, p, p->dport, to->dport);
}

/* update_checksum updates the transport checksum. In UDP, 0 means that there is none. */
inline_always int update_checksum(struct __sk_buff *skb, const struct packet *p, const struct ends *to)
{
	int kind = checksum_kind(skb);
	__u32 off = checksum_offset(p);
	__u16 *check;

	if (kind < 0 || kind == CHECKSUM_COMPLETE)
		return update_checksum_by_helpers(skb, p, to);
	barrier_var(off);
	if (off > MAX_L4 + sizeof(struct tcphdr))
		return -1;
	check = writable(skb, off, sizeof(*check));
	if (!check)
		return -1;
	if (kind == CHECKSUM_PARTIAL) {
		*check = fold(add_address_difference(*check, p, to));
		return 0;
	}
	if ((p->class & 1) && !*check)
		return 0;
	*check = ~fold(add_address_difference((__u16)~*check + (__u16)~p->sport + to->sport + (__u16)~p->dport + to->dport, p, to));
	if ((p->class & 1) && !*check)
		*check = 0xffff;
	return 0;
}

/* store_ports writes the ports if they change. */
inline_always int store_ports(struct __sk_buff *skb, const struct packet *p, const struct ends *to)
{
	struct ports_header *ports;
	__u32 l4 = p->l4;

	if (p->sport == to->sport && p->dport == to->dport)
		return 0;
	/* After the spill to the stack the verifier has lost the bound that the compiler
	 * still knows, so it is checked again.
	 */
	barrier_var(l4);
	if (l4 > MAX_L4)
		return -1;
	ports = writable(skb, l4, sizeof(*ports));
	if (!ports)
		return -1;
	ports->src = to->sport;
	ports->dst = to->dport;
	return 0;
}

/* write_ends writes other addresses and ports into the packet and returns 0 on success.
 * ports is the source port and, in the upper half, the destination port.
 */
global_func int write_ends(struct __sk_buff *skb, const struct packet *p, const struct address *src,
			   const struct address *dst, __u32 ports)
{
	const struct ends to = { .src = src, .dst = dst, .sport = ports, .dport = ports >> 16 };

	if (!p || !src || !dst)
		return -1;
	if (p->kind == PACKET_L4 && (update_checksum(skb, p, &to) || store_ports(skb, p, &to)))
		return -1;
	/* A later fragment has no transport checksum that compensates changed IPv6
	 * addresses in the network card's sum, so that sum is updated. Without a card's
	 * sum the call fails, which is harmless.
	 */
	if (p->v6 && p->kind == PACKET_FRAGMENT)
		bpf_csum_update(skb, bpf_csum_diff((__be32 *)&p->src, 16, (__be32 *)to.src, 16,
						   bpf_csum_diff((__be32 *)&p->dst, 16, (__be32 *)to.dst, 16, 0)));
	return p->v6 ? store_v6(skb, &to) : store_v4(skb, p, &to);
}

/* rewrite writes other addresses and ports into the packet. Returns 0 on success. */
inline_always int rewrite(struct __sk_buff *skb, const struct packet *p, const struct ends *to)
{
	return write_ends(skb, p, to->src, to->dst, to->sport | (__u32)to->dport << 16);
}
