/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
/* fl_fence_in and fl_fence_out run at the ingress and egress of links with virtual
 * addresses of a cluster. They drop packets of an address whose deadline has passed, so
 * that a host stops answering for the address although its daemon is stopped or dead.
 * The object is separate from fairlead.c: a daemon refreshes deadlines without the lock of
 * the engine, also on hosts without the eBPF data path.
 */
#include <linux/bpf.h>
#include <linux/types.h>
#include <linux/if_ether.h>
#include <linux/in.h>
#include <linux/ip.h>
#include <linux/ipv6.h>
#include <linux/pkt_cls.h>
#include <bpf/bpf_helpers.h>
#include <bpf/bpf_endian.h>

#define inline_always static __always_inline

#define MAX_ADDRESSES 1024
#define ARP_HEADER 8 /* before the addresses */
#define SOLICITATION 135
#define ADVERTISEMENT 136
#define ICMPV6_PROTO 58

/* An address of either family, in network byte order. IPv4 addresses are IPv4-mapped. */
struct fenced {
	__be32 w[4];
};

/* The deadlines of virtual addresses, in nanoseconds of CLOCK_BOOTTIME. */
struct {
	__uint(type, BPF_MAP_TYPE_HASH);
	__uint(max_entries, MAX_ADDRESSES);
	__type(key, struct fenced);
	__type(value, __u64);
} fl_fence SEC(".maps");

/* The body of an ARP packet of Ethernet and IPv4 (RFC 826). */
struct arp_body {
	__u8 sender_mac[ETH_ALEN];
	__be32 sender;
	__u8 target_mac[ETH_ALEN];
	__be32 target;
} __attribute__((packed));

/* The beginning of a neighbour solicitation or advertisement (RFC 4861). */
struct neighbour_message {
	__u8 type;
	__u8 code;
	__be16 checksum;
	__be32 flags;
	struct in6_addr target;
};

/* passed reports whether an address is virtual and its deadline has passed. */
inline_always int passed(const struct fenced *a)
{
	__u64 *deadline = bpf_map_lookup_elem(&fl_fence, a);

	return deadline && bpf_ktime_get_boot_ns() >= *deadline;
}

inline_always int passed_v4(__be32 a)
{
	struct fenced f = {{0, 0, bpf_htonl(0xffff), a}};

	return passed(&f);
}

inline_always int passed_v6(const struct in6_addr *a)
{
	struct fenced f;

	__builtin_memcpy(&f, a, sizeof(f));
	return passed(&f);
}

/* drop_arp: a question for the address from the link, and any packet in its name to the
 * link. The announcement of another host (sender and target are equal) is for this host's
 * neighbour table.
 */
inline_always int drop_arp(struct __sk_buff *skb, int out)
{
	struct arp_body arp;

	if (bpf_skb_load_bytes(skb, ETH_HLEN + ARP_HEADER, &arp, sizeof(arp)))
		return 0;
	if (out)
		return passed_v4(arp.sender);
	return arp.sender != arp.target && passed_v4(arp.target);
}

/* drop_v4: forwarded packets from the address pass, such as the replies of real servers in
 * sandboxes to clients of another host.
 */
inline_always int drop_v4(struct __sk_buff *skb, int out)
{
	struct iphdr ip;

	if (out && skb->ingress_ifindex)
		return 0;
	if (bpf_skb_load_bytes(skb, ETH_HLEN, &ip, sizeof(ip)))
		return 0;
	return passed_v4(out ? ip.saddr : ip.daddr);
}

inline_always int drop_v6(struct __sk_buff *skb, int out)
{
	struct neighbour_message m;
	struct ipv6hdr ip;

	if (bpf_skb_load_bytes(skb, ETH_HLEN, &ip, sizeof(ip)))
		return 0;
	if (!(out && skb->ingress_ifindex) && passed_v6(out ? &ip.saddr : &ip.daddr))
		return 1;
	if (ip.nexthdr != ICMPV6_PROTO || bpf_skb_load_bytes(skb, ETH_HLEN + sizeof(ip), &m, sizeof(m)))
		return 0;
	return m.type == (out ? ADVERTISEMENT : SOLICITATION) && passed_v6(&m.target);
}

inline_always int fence(struct __sk_buff *skb, int out)
{
	int drop = 0;

	if (skb->protocol == bpf_htons(ETH_P_ARP))
		drop = drop_arp(skb, out);
	else if (skb->protocol == bpf_htons(ETH_P_IP))
		drop = drop_v4(skb, out);
	else if (skb->protocol == bpf_htons(ETH_P_IPV6))
		drop = drop_v6(skb, out);
	return drop ? TC_ACT_SHOT : TC_ACT_UNSPEC;
}

SEC("tc")
int fl_fence_in(struct __sk_buff *skb)
{
	return fence(skb, 0);
}

SEC("tc")
int fl_fence_out(struct __sk_buff *skb)
{
	return fence(skb, 1);
}

char __license[] SEC("license") = "Dual BSD/GPL";
