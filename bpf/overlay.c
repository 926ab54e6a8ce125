/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
/* fl_overlay_out and fl_overlay_in run at the egress and ingress of the VXLAN link of an
 * overlay that forwards by ranges.
 *
 * Theory of operation. The bridge has already switched a frame to the VXLAN link when
 * fl_overlay_out finds the host of its destination: hardware addresses contain the IPv4
 * address of their sandbox, and the ranges of each host are known. The program puts the
 * same headers in front of the frame as the VXLAN link would, and sends the datagram out
 * of the link of the route. So the datagram passes neither the tunnel nor the hooks of
 * netfilter. fl_overlay_in redirects a frame that the kernel has decapsulated into the
 * sandbox with its hardware address, past the bridge and the queue of the sandbox's link.
 *
 * The kernel handles all other frames, and these too while no program is attached: other
 * protocols and hardware addresses, frames that do not fit the route's MTU (it sends the
 * ICMP error), frames that have an outer header already, frames for sandboxes of this host,
 * hosts without a route or neighbour entry, and all frames while the host has IPsec
 * policies. The next hop to a host is looked up once per second and CPU. The frame that
 * causes the lookup is sent by the kernel's neighbour table, so that the kernel keeps the
 * neighbour's entry in use.
 *
 * The object is separate from fairlead.c: hosts without published ports need it, too. It
 * is not pinned: if the daemon ends, the kernel handles all frames.
 *
 * Kernel: 6.6 (TCX; earlier programs at a link would outlive the daemon).
 */
#include <linux/bpf.h>
#include <linux/types.h>
#include <linux/if_ether.h>
#include <linux/if_packet.h>
#include <linux/in.h>
#include <linux/ip.h>
#include <linux/pkt_cls.h>
#include <linux/tcp.h>
#include <linux/udp.h>
#include <bpf/bpf_core_read.h>
#include <bpf/bpf_helpers.h>
#include <bpf/bpf_endian.h>

#define inline_always static __always_inline

#define AF_INET 2
#define LOOPBACK_LINK 1
#define VXLAN_TTL 64
#define VXLAN_VNI_SET 0x08000000
#define ECN 3
#define ECT_0 2
#define SECOND 1000000000LL
/* The UDP source ports (RFC 6335: dynamic ports). */
#define FIRST_PORT 49152
#define PORTS 16384

#define MAX_RANGES 65536
#define MAX_SANDBOXES 16384
#define HOPS 1024

/* A range of addresses behind a VXLAN link. bits is 32 more than the prefix length, because
 * the index of the link is a part of the prefix.
 */
struct range {
	__u32 bits;
	__u32 ifindex;
	__be32 addr;
};

/* The host that has a range, and what the headers of its datagrams contain. host is 0 if
 * it is this one.
 */
struct remote {
	__be32 host;
	__be32 local;
	__u32 vni;
	__u32 port;
};

struct {
	__uint(type, BPF_MAP_TYPE_LPM_TRIE);
	__uint(max_entries, MAX_RANGES);
	__uint(map_flags, BPF_F_NO_PREALLOC);
	__type(key, struct range);
	__type(value, struct remote);
} fl_ranges SEC(".maps");

/* A hardware address behind a VXLAN link. */
struct station {
	__u32 ifindex;
	__u8 mac[ETH_ALEN];
	__u16 reserved;
};

/* The host's links to sandboxes, by the sandboxes' hardware addresses. */
struct {
	__uint(type, BPF_MAP_TYPE_HASH);
	__uint(max_entries, MAX_SANDBOXES);
	__uint(map_flags, BPF_F_NO_PREALLOC);
	__type(key, struct station);
	__type(value, __u32);
} fl_stations SEC(".maps");

/* The next hop to a host, as looked up last. Several hosts share a slot. Each CPU has its
 * own slots, so no slot is read while it is written. Routing rules can depend on the source
 * address and the port, which the overlays of a host may not have in common.
 */
struct hop {
	__be32 host;
	__be32 local;
	__u32 port;
	__u32 ifindex; /* 0 if there is no next hop */
	__u64 found;   /* bpf_ktime_get_coarse_ns */
	__u32 mtu;
	__be32 next;
	__u8 macs[2 * ETH_ALEN];
};

struct {
	__uint(type, BPF_MAP_TYPE_PERCPU_ARRAY);
	__uint(max_entries, HOPS);
	__type(key, __u32);
	__type(value, struct hop);
} fl_overlay_hops SEC(".maps");

/* What follows the Ethernet header of a datagram. */
struct outer {
	struct iphdr ip;
	struct udphdr udp;
	__be32 flags;
	__be32 vni;
	struct ethhdr frame;
} __attribute__((packed));

/* The parts of the kernel's structures that the programs read via BTF. */
struct netns_xfrm {
	unsigned int policy_count[2];
} __attribute__((preserve_access_index));

struct net {
	struct netns_xfrm xfrm;
} __attribute__((preserve_access_index));

typedef struct {
	struct net *net;
} __attribute__((preserve_access_index)) possible_net_t;

struct net_device {
	possible_net_t nd_net;
} __attribute__((preserve_access_index));

struct sk_buff {
	struct net_device *dev;
} __attribute__((preserve_access_index));

extern void *bpf_cast_to_kern_ctx(void *) __ksym;

#define POLICY_OUT 1

/* has_ipsec reports whether the host has IPsec policies for packets that it sends. Without
 * any, the kernel looks for none either.
 */
inline_always int has_ipsec(struct __sk_buff *skb)
{
	const struct sk_buff *kernel_skb = bpf_cast_to_kern_ctx(skb);

	if (!bpf_core_field_exists(struct net, xfrm))
		return 0;
	return kernel_skb->dev->nd_net.net->xfrm.policy_count[POLICY_OUT] != 0;
}

/* fits reports whether the packet, or each segment of it, fits the MTU with its headers, and
 * the length fields of the headers.
 */
inline_always int fits(struct __sk_buff *skb, const struct iphdr *ip, __u32 mtu)
{
	__u32 l4 = ETH_HLEN + ip->ihl * 4, headers = l4;
	__u8 offset;

	if (skb->len + sizeof(struct outer) - ETH_HLEN > 0xffff)
		return 0;
	if (!skb->gso_size)
		return skb->len + sizeof(struct outer) - ETH_HLEN <= mtu;
	if (ip->protocol == IPPROTO_UDP)
		headers += sizeof(struct udphdr);
	else if (ip->protocol == IPPROTO_TCP && !bpf_skb_load_bytes(skb, l4 + 12, &offset, sizeof(offset)))
		headers += offset / 16 * 4;
	else
		return 0;
	return headers + skb->gso_size + sizeof(struct outer) - ETH_HLEN <= mtu;
}

/* find_hop returns the next hop to a host, or NULL if the kernel shall send the frame. fresh
 * is 1 if it was looked up now.
 */
inline_always struct hop *find_hop(struct __sk_buff *skb, const struct remote *to, int *fresh)
{
	__u32 slot = to->host * 2654435769u / (0xffffffffu / HOPS + 1);
	struct bpf_fib_lookup route = {};
	__u64 now = bpf_ktime_get_coarse_ns();
	struct hop *h;

	h = bpf_map_lookup_elem(&fl_overlay_hops, &slot);
	if (!h)
		return 0;
	if (h->host == to->host && h->local == to->local && h->port == to->port && (__s64)(now - h->found) < SECOND)
		return h->ifindex ? h : 0;
	route.family = AF_INET;
	route.l4_protocol = IPPROTO_UDP;
	route.dport = bpf_htons(to->port);
	route.ifindex = LOOPBACK_LINK;
	route.tot_len = 1; /* fits every MTU, so the kernel returns the route's MTU */
	route.ipv4_src = to->local;
	route.ipv4_dst = to->host;
	h->ifindex = bpf_fib_lookup(skb, &route, sizeof(route), 0) == BPF_FIB_LKUP_RET_SUCCESS ? route.ifindex : 0;
	h->host = to->host;
	h->local = to->local;
	h->port = to->port;
	h->found = now;
	h->mtu = route.mtu_result;
	h->next = route.ipv4_dst;
	__builtin_memcpy(h->macs, route.dmac, ETH_ALEN);
	__builtin_memcpy(h->macs + ETH_ALEN, route.smac, ETH_ALEN);
	*fresh = 1;
	return h->ifindex ? h : 0;
}

/* send sends the datagram to the next hop. */
inline_always int send(const struct hop *h, int fresh)
{
	struct bpf_redir_neigh next = { .nh_family = AF_INET };

	if (!fresh)
		return bpf_redirect(h->ifindex, 0);
	next.ipv4_nh = h->next;
	return bpf_redirect_neigh(h->ifindex, &next, sizeof(next), 0);
}

/* fill writes the headers of the datagram. length is that of the frame. tos is that of the
 * inner packet: the outer one has its ECN field (RFC 6040).
 */
inline_always void fill(struct outer *o, const struct remote *to, __u32 length, __u8 tos, __u32 hash)
{
	__u32 total = length + sizeof(*o) - ETH_HLEN, sum;
	struct iphdr ip = { .version = 4, .ihl = sizeof(ip) / 4, .tos = (tos & ECN) == ECN ? ECT_0 : tos & ECN,
		.tot_len = bpf_htons(total), .id = bpf_get_prandom_u32(), .ttl = VXLAN_TTL,
		.protocol = IPPROTO_UDP, .saddr = to->local, .daddr = to->host };

	sum = bpf_csum_diff(0, 0, (__be32 *)&ip, sizeof(ip), 0);
	sum = (sum & 0xffff) + (sum >> 16);
	ip.check = ~((sum & 0xffff) + (sum >> 16));
	o->ip = ip;
	o->udp.source = bpf_htons(FIRST_PORT + hash % PORTS);
	o->udp.dest = bpf_htons(to->port);
	o->udp.len = bpf_htons(total - sizeof(ip));
	o->flags = bpf_htonl(VXLAN_VNI_SET);
	o->vni = bpf_htonl(to->vni << 8);
}

#define ROOM_FLAGS                                                                                \
	(BPF_F_ADJ_ROOM_FIXED_GSO | BPF_F_ADJ_ROOM_ENCAP_L3_IPV4 | BPF_F_ADJ_ROOM_ENCAP_L4_UDP | \
	 BPF_F_ADJ_ROOM_ENCAP_L2(ETH_HLEN) | BPF_F_ADJ_ROOM_ENCAP_L2_ETH)

/* load_range reads the Ethernet and the IPv4 header, and fills in the key of the
 * destination's range. It returns -1 for frames that the kernel handles.
 */
inline_always int load_range(struct __sk_buff *skb, struct ethhdr *eth, struct iphdr *ip, struct range *key)
{
	if (skb->protocol != bpf_htons(ETH_P_IP) || skb->vlan_present ||
	    bpf_skb_load_bytes(skb, 0, eth, sizeof(*eth)) || bpf_skb_load_bytes(skb, ETH_HLEN, ip, sizeof(*ip)))
		return -1;
	if (eth->h_dest[0] != 0x02 || eth->h_dest[1] != 0xf1 || ip->version != 4 || ip->ihl < 5)
		return -1;
	key->bits = 64;
	key->ifindex = skb->ifindex;
	__builtin_memcpy(&key->addr, eth->h_dest + 2, sizeof(key->addr));
	return 0;
}

SEC("tc")
int fl_overlay_out(struct __sk_buff *skb)
{
	struct outer o = {};
	struct range key;
	struct remote *to;
	struct iphdr ip;
	struct hop *h;
	__u32 length = skb->len, hash;
	int fresh = 0;

	if (load_range(skb, &o.frame, &ip, &key))
		return TC_ACT_UNSPEC;
	to = bpf_map_lookup_elem(&fl_ranges, &key);
	if (!to || !to->host)
		return TC_ACT_UNSPEC;
	h = find_hop(skb, to, &fresh);
	if (!h || !fits(skb, &ip, h->mtu) || has_ipsec(skb))
		return TC_ACT_UNSPEC;
	hash = bpf_get_hash_recalc(skb);
	if (bpf_skb_adjust_room(skb, sizeof(o), BPF_ADJ_ROOM_MAC, ROOM_FLAGS))
		return TC_ACT_UNSPEC;
	fill(&o, to, length, ip.tos, hash);
	if (bpf_skb_store_bytes(skb, 0, h->macs, sizeof(h->macs), 0) ||
	    bpf_skb_store_bytes(skb, ETH_HLEN, &o, sizeof(o), BPF_F_RECOMPUTE_CSUM))
		return TC_ACT_SHOT;
	return send(h, fresh);
}

SEC("tc")
int fl_overlay_in(struct __sk_buff *skb)
{
	struct station key = { .ifindex = skb->ifindex };
	__u32 *ifindex;

	if (skb->protocol != bpf_htons(ETH_P_IP) || skb->vlan_present ||
	    bpf_skb_load_bytes(skb, 0, key.mac, sizeof(key.mac)))
		return TC_ACT_UNSPEC;
	ifindex = bpf_map_lookup_elem(&fl_stations, &key);
	if (!ifindex)
		return TC_ACT_UNSPEC;
	if (skb->pkt_type != PACKET_HOST)
		bpf_skb_change_type(skb, PACKET_HOST);
	return bpf_redirect_peer(*ifindex, 0);
}

char __license[] SEC("license") = "Dual BSD/GPL";
