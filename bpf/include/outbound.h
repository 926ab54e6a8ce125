/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
/* Source NAT of what sandboxes send to hosts outside.
 *
 * Theory of operation. The first packet of a connection that a sandbox opens creates a
 * flow: the sandbox is the flow's endpoint, the host outside its client, and the address
 * and a port of the host are what the client sees. So the packets of the sandbox find
 * the flow as replies do (datapath.h), and leave via the uplink in the same way. An
 * answer at the uplink is found by the addresses and ports outside in fl_outbound, which
 * has the key of the flow.
 *
 *	endpoint ── sandbox's link ─[fl_sandbox]── uplink ── client
 *	endpoint ── sandbox's link ──────────[fl_uplink]── uplink ── client
 *
 * Ports. Flows have ports below and above those from which the host connects, and
 * Fairlead's masquerade does not use them (plan.TableText). A port is not chosen if a
 * socket of the host has it, or if it is published. The entry in fl_outbound reserves it:
 * two flows cannot have the same addresses and ports outside. The map has no LRU, because a
 * flow whose entry was evicted would share its port with another one. All changes of an
 * entry are made under the lock of its name. An entry without its flow is free, and user
 * space deletes it.
 *
 * A host outside that has closed a connection keeps it in TIME_WAIT. A new connection with
 * the same addresses and ports must have a later timestamp or sequence number (RFC 6191),
 * else the host outside refuses it. Linux counts both from another beginning for each
 * source port. So a port outside belongs to one port of one sandbox for a minute after the
 * connection's end, and a sandbox's port gets the same one again as long as that is free.
 *
 * The kernel routes and masquerades all other packets: IPv6, ICMP except errors, IP
 * options, fragments whose first fragment has not passed, connections that began before,
 * and new ones if no port is free. It also keeps UDP exchanges that others began:
 * fl_sandbox_out notes the datagrams that the kernel delivers to the sandbox.
 */
#pragma once

#include "balance.h"

/* The ports of outbound flows are OUTBOUND_LOW to HOST_FIRST - 1, and HOST_LAST + 1 to 65535.
 * The default range of the host's local ports is between them, and user space refuses
 * outbound flows if the range reaches into them.
 */
#define OUTBOUND_LOW 10000
#define HOST_FIRST 32768
#define HOST_LAST 60999
#define LOW_COUNT (HOST_FIRST - OUTBOUND_LOW)
const volatile __u32 outbound_count = LOW_COUNT + 65535 - HOST_LAST;

/* The distance of two ports that are tried. It is prime and does not divide their number. */
#define PORT_STEP 4099

/* User space writes a random number, so that others cannot foresee the ports. */
const volatile __u32 outbound_secret;

/* How long a port belongs to a connection that has ended: as long as TIME_WAIT of Linux
 * (TCP_TIMEWAIT_LEN).
 */
#define PORT_KEPT (60 * SECOND)

/* The links of sandboxes whose outbound connections are translated. */
struct outbound_link {
	__u32 ifindex; /* the link whose packets the host routes: the bridge of the port, or the link itself */
	__u8 mac[ETH_ALEN]; /* its MAC address: the sandbox sends the packet to the host */
	__u8 pad[2];
};

struct {
	__uint(type, BPF_MAP_TYPE_HASH);
	__uint(max_entries, 65536);
	__uint(map_flags, BPF_F_NO_PREALLOC);
	__type(key, __u32); /* ifindex */
	__type(value, struct outbound_link);
} fl_outbound_links SEC(".maps");

/* The address that packets get that leave via an uplink. The next hop must be in the
 * address's network; the kernel may choose another address for other next hops.
 */
struct outbound_source {
	__be32 address;
	__be32 mask;
};

struct {
	__uint(type, BPF_MAP_TYPE_HASH);
	__uint(max_entries, 65536);
	__uint(map_flags, BPF_F_NO_PREALLOC);
	__type(key, __u32); /* ifindex */
	__type(value, struct outbound_source);
} fl_outbound_sources SEC(".maps");

/* has_outbound reports whether connections from the link are translated. */
inline_always int has_outbound(struct __sk_buff *skb)
{
	__u32 ifindex = skb->ifindex;

	return !!bpf_map_lookup_elem(&fl_outbound_links, &ifindex);
}

/* A UDP exchange that the kernel forwards, as the sandbox sees it. */
struct kernel_exchange {
	__be32 endpoint, client;
	__be16 endpoint_port, client_port;
};

struct {
	__uint(type, BPF_MAP_TYPE_LRU_HASH);
	__uint(max_entries, 8192);
	__type(key, struct kernel_exchange);
	__type(value, __u64); /* bpf_ktime_get_coarse_ns of the last datagram, at most a second earlier */
} fl_exchanges SEC(".maps");

/* How long an exchange belongs to the kernel after its last datagram: longer than in
 * the kernel's conntrack.
 */
#define EXCHANGE_KEPT (180 * SECOND)

/* is_outbound_port reports whether a port may be that of an outbound flow. */
inline_always int is_outbound_port(__be16 port)
{
	__u16 number = bpf_ntohs(port);
	__u32 slot = 0, *used;

	if (number < OUTBOUND_LOW || (number >= HOST_FIRST && number <= HOST_LAST))
		return 0;
	used = bpf_map_lookup_elem(&fl_outbound_used, &slot);
	return used && *used;
}

/* port_at returns the port with an index. */
inline_always __u32 port_at(__u32 index)
{
	return index < LOW_COUNT ? OUTBOUND_LOW + index : HOST_LAST + 1 + index - LOW_COUNT;
}

/* first_index returns the index of the port that is tried first: for each sandbox and host
 * outside, the sandbox's ports are mapped to others from a random beginning on (RFC 6056,
 * algorithm 3, with the finalizer of MurmurHash3 as the hash).
 */
inline_always __u32 first_index(const struct packet *p)
{
	__u32 words[3] = { p->src.w[3], p->dst.w[3], (__u32)p->dport << 16 | p->class };
	__u32 h = outbound_secret;

	for (int i = 0; i < 3; i++) {
		h ^= words[i];
		h = (h ^ h >> 16) * 0x85ebca6b;
		h = (h ^ h >> 13) * 0xc2b2ae35;
		h ^= h >> 16;
	}
	return ((h >> 1) + bpf_ntohs(p->sport)) % outbound_count;
}

/* use_outbound makes the programs search for outbound flows. */
inline_always void use_outbound(void)
{
	__u32 slot = 0, *used = bpf_map_lookup_elem(&fl_outbound_used, &slot);

	if (used && !*used)
		*used = 1;
}

/* has_socket reports whether a socket of the host would receive a packet of the client. */
inline_always int has_socket(struct __sk_buff *skb, const struct outbound_name *name)
{
	struct bpf_sock_tuple tuple = {};
	struct bpf_sock *sk;

	tuple.ipv4.saddr = name->client;
	tuple.ipv4.daddr = name->host;
	tuple.ipv4.sport = name->client_port;
	tuple.ipv4.dport = name->host_port;
	if (name->class & 1)
		sk = bpf_sk_lookup_udp(skb, &tuple, sizeof(tuple.ipv4), BPF_F_CURRENT_NETNS, 0);
	else
		sk = bpf_skc_lookup_tcp(skb, &tuple, sizeof(tuple.ipv4), BPF_F_CURRENT_NETNS, 0);
	if (!sk)
		return 0;
	bpf_sk_release(sk);
	return 1;
}

enum port_result { PORT_RESERVED, PORT_TAKEN, FLOW_EXISTS };

/* outbound_key makes the key of the flow with that name and owner. */
inline_always void outbound_key(struct flow_key *key, const struct outbound_name *name,
				const struct outbound_owner *owner)
{
	map_v4(&key->endpoint, owner->endpoint);
	map_v4(&key->client, name->client);
	key->endpoint_port = owner->port;
	key->client_port = name->client_port;
	key->class = name->class;
}

/* has_name reports whether a flow is an outbound one with that name. */
inline_always int has_name(const struct flow *f, const struct outbound_name *name)
{
	return f->flags & FLOW_OUTBOUND && f->host_port == name->host_port && f->client_port == name->client_port &&
	       f->host.w[3] == name->host && f->client.w[3] == name->client;
}

/* is_kept reports whether the new flow's port belonged to a connection of another sandbox
 * or port that has ended within a minute. The last try takes such a port, too: a connection
 * that the host outside may refuse for a second is better than none.
 */
inline_always int is_kept(const struct attempt *n)
{
	struct ended_port *port = bpf_map_lookup_elem(&fl_ended_ports, &n->name);

	return port && !n->last && !same_owner(&port->owner, &n->owner) &&
	       (__s64)(bpf_ktime_get_coarse_ns() - port->ended) < (__s64)PORT_KEPT;
}

/* free_name deletes the flow of an owner if it is stale, and reports whether the name is
 * free: the owner has no flow with that name.
 */
static __noinline int free_name(const struct outbound_name *name, const struct outbound_owner *owner)
{
	struct flow_key key;
	struct flow *f;

	outbound_key(&key, name, owner);
	f = find_likely_flow(&key, 1); /* in this order none is missed that another CPU is promoting */
	if (!f || !has_name(f, name))
		return 1;
	if (!is_stale(f, key.class))
		return 0;
	delete_flow(&key);
	return 1;
}

/* insert_outbound inserts the new flow, and returns 0. The sandbox's packet has found no flow
 * with the key in either map. If another CPU has created an open one since, that one is
 * found first.
 */
inline_always long insert_outbound(const struct attempt *n)
{
	if (n->key.class & 1)
		return bpf_map_update_elem(&fl_flows_udp, &n->key, &n->fresh, BPF_NOEXIST);
	return bpf_map_update_elem(&fl_young_flows, &n->key, &n->fresh, BPF_NOEXIST);
}

/* reserve_locked reserves the name of the new flow, and inserts the flow. The caller has
 * the name's lock.
 */
inline_always enum port_result reserve_locked(struct attempt *n)
{
	struct outbound_owner *known = bpf_map_lookup_elem(&fl_outbound, &n->name);

	if (known ? !free_name(&n->name, known) : !(n->name.class & 1) && is_kept(n))
		return PORT_TAKEN;
	if (bpf_map_update_elem(&fl_outbound, &n->name, &n->owner, BPF_ANY))
		return PORT_TAKEN;
	if (!insert_outbound(n))
		return PORT_RESERVED;
	bpf_map_delete_elem(&fl_outbound, &n->name);
	return FLOW_EXISTS;
}

/* try_outbound_port tries to reserve a port for the new flow. */
global_func int try_outbound_port(struct __sk_buff *skb)
{
	struct attempt *n = attempt_of();
	enum port_result result;
	__u32 port, slot;

	if (!n)
		return PORT_TAKEN;
	port = port_at(n->index);
	n->index = (n->index + PORT_STEP) % outbound_count;
	n->name.host_port = bpf_htons(port);
	n->fresh.host_port = n->name.host_port;
	if (find_mapping(n->name.class, &n->fresh.host, port, &slot) || has_socket(skb, &n->name))
		return PORT_TAKEN;
	if (!lock_name(&n->name))
		return PORT_TAKEN;
	result = reserve_locked(n);
	unlock_name(&n->name);
	return result;
}

/* is_kernel_exchange reports whether a datagram of the sandbox belongs to an exchange
 * that the kernel forwards.
 */
static __noinline int is_kernel_exchange(const struct packet *p)
{
	struct kernel_exchange key = {
		.endpoint = p->src.w[3], .client = p->dst.w[3], .endpoint_port = p->sport, .client_port = p->dport,
	};
	__u64 now, *last = bpf_map_lookup_elem(&fl_exchanges, &key);

	if (!last)
		return 0;
	now = bpf_ktime_get_coarse_ns();
	if ((__s64)(now - *last) > (__s64)EXCHANGE_KEPT)
		return 0;
	if ((__s64)(now - *last) > (__s64)SECOND)
		*last = now;
	return 1;
}

/* note_exchange notes a datagram that the kernel delivers to a sandbox. */
inline_always void note_exchange(const struct packet *p)
{
	struct kernel_exchange key = {
		.endpoint = p->dst.w[3], .client = p->src.w[3], .endpoint_port = p->dport, .client_port = p->sport,
	};
	__u64 now = bpf_ktime_get_coarse_ns(), *last = bpf_map_lookup_elem(&fl_exchanges, &key);

	if (!last)
		bpf_map_update_elem(&fl_exchanges, &key, &now, BPF_ANY);
	else if ((__s64)(now - *last) > (__s64)SECOND)
		*last = now;
}

/* may_open reports whether the packet may be the first of an outbound flow. */
inline_always int may_open(struct __sk_buff *skb, const struct packet *p)
{
	if (p->v6 || p->kind != PACKET_L4 || p->l4 != link_header + sizeof(struct iphdr) || !p->sport || !p->dport)
		return 0;
	if (!(p->class & 1) && (p->tcp_flags & (TCP_SYN | TCP_ACK | TCP_RST | TCP_FIN)) != TCP_SYN)
		return 0;
	if (is_group(&p->dst) || is_loopback(&p->dst) || !is_endpoint_address(skb->ifindex, &p->src))
		return 0;
	return !ttl_expired(p) && (!(p->class & 1) || !is_kernel_exchange(p));
}

/* is_to_host reports whether the frame is for the host, and not for a neighbour on the
 * sandbox's bridge.
 */
inline_always int is_to_host(struct __sk_buff *skb, const struct outbound_link *own)
{
	__u8 buf[ETH_ALEN], *mac = load_header(skb, 0, buf, sizeof(buf));

	if (!mac)
		return 0;
	for (int i = 0; i < ETH_ALEN; i++) {
		if (mac[i] != own->mac[i])
			return 0;
	}
	return 1;
}

/* outbound_uplink returns the uplink to which the kernel routes the sandbox's packet, and
 * the address that the packet gets there. Returns 0 if the kernel must decide: the packet
 * is not for the host, has no route, or its route is another one.
 */
global_func __u32 outbound_uplink(struct __sk_buff *skb, const struct packet *p, __be32 *address)
{
	__u32 slot = 0, ifindex = skb->ifindex;
	struct outbound_link *own = bpf_map_lookup_elem(&fl_outbound_links, &ifindex);
	struct bpf_fib_lookup *route = (void *)bpf_map_lookup_elem(&fl_routes, &slot);
	struct outbound_source *source;

	if (!p || !address || !own || !route || !is_to_host(skb, own))
		return 0;
	__builtin_memset(route, 0, sizeof(*route));
	route->family = AF_INET;
	route->ifindex = own->ifindex;
	route->l4_protocol = (p->class & 1) ? IPPROTO_UDP : IPPROTO_TCP;
	route->sport = p->sport;
	route->dport = p->dport;
	route->tot_len = 1;
	route->ipv4_src = p->src.w[3];
	route->ipv4_dst = p->dst.w[3];
	if (!has_route(bpf_fib_lookup(skb, route, sizeof(*route), 0)) || route->family != AF_INET)
		return 0;
	ifindex = route->ifindex;
	source = bpf_map_lookup_elem(&fl_outbound_sources, &ifindex);
	if (!source || (route->ipv4_dst ^ source->address) & source->mask)
		return 0;
	*address = source->address;
	return ifindex;
}

/* has_entry reports whether answers find the flow of the sandbox's packet. */
static __noinline int has_entry(const struct packet *p, const struct flow *f)
{
	struct outbound_name name = {
		.client = f->client.w[3], .host = f->host.w[3], .client_port = f->client_port, .host_port = f->host_port,
		.class = p->class,
	};
	struct outbound_owner *known = bpf_map_lookup_elem(&fl_outbound, &name);

	return known && known->endpoint == p->src.w[3] && known->port == p->sport;
}

/* is_usable reports whether the flow's packets still leave via its uplink, with its address,
 * whether answers find the flow, and whether the kernel delivers none. It is asked about once
 * a second. An entry is lost if a CPU stores a flow that another one has ended (promote_flow),
 * or if the map of entries has been replaced. An exchange of the kernel gets a flow if its note
 * was pushed out. Without these questions, the sandbox's packets would keep such flows alive. An
 * answered flow is no exchange of the kernel: a neighbour has forged the datagram.
 */
global_func int is_usable(struct __sk_buff *skb, const struct packet *p, const struct flow *f)
{
	__be32 address = 0;

	if (!p || !f || outbound_uplink(skb, p, &address) != f->ifindex || address != f->host.w[3] || !has_entry(p, f))
		return 0;
	return !(p->class & 1) || f->flags & FLOW_ANSWERED || !is_kernel_exchange(p);
}

/* ends_outbound reports whether a packet of the sandbox ends its flow before it is
 * translated: the sandbox uses the port again, or the flow is not usable.
 */
inline_always int ends_outbound(struct __sk_buff *skb, const struct packet *p, const struct flow *f)
{
	if (!(p->class & 1) && p->kind == PACKET_L4 && is_bare_syn(p) && f->flags & (FLOW_CLOSING | FLOW_RST))
		return 1;
	return (f->tick ^ (__u32)bpf_jiffies64()) >> 8 && !is_usable(skb, p, f);
}

/* is_protected_outbound reports whether an IPsec policy covers the packet, with its own
 * source or with that of the host.
 */
static __noinline int is_protected_outbound(const struct packet *p, __be32 address)
{
	struct alias_key name = {
		.client = p->dst, .host = p->src, .client_port = p->dport, .host_port = p->sport, .class = p->class,
	};

	if (!has_policies())
		return 0;
	if (is_protected(&name, SELECT_PORTS))
		return 1;
	map_v4(&name.host, address);
	return is_protected(&name, SELECT_ADDRESSES);
}

/* prepare_outbound fills in the new flow of a packet. */
inline_always void prepare_outbound(struct attempt *n, const struct packet *p, __u32 link, __u32 uplink,
				    __be32 address)
{
	reply_key(&n->key, p);
	n->index = first_index(p);
	__builtin_memset(&n->fresh, 0, sizeof(n->fresh));
	map_v4(&n->fresh.host, address);
	n->fresh.client = p->dst;
	n->fresh.client_port = p->dport;
	n->fresh.ifindex = uplink;
	n->fresh.link = link;
	n->fresh.slot = OUTBOUND_SLOT;
	n->fresh.flags = FLOW_OUTBOUND | (p->class & 1 ? FLOW_OPEN : 0);
	n->fresh.tick = bpf_jiffies64();
	n->fresh.seen = bpf_ktime_get_coarse_ns();
	if (p->class & 1)
		n->fresh.fin[OUTWARD] = n->fresh.seen / SECOND;
	n->name.client = p->dst.w[3];
	n->name.host = address;
	n->name.client_port = p->dport;
	n->name.class = p->class;
	n->owner.endpoint = p->src.w[3];
	n->owner.port = p->sport;
}

/* create_outbound creates the flow of a sandbox's packet that begins a connection to a
 * host outside. If it returns PORT_TAKEN, the kernel has to forward the packet.
 */
static __noinline enum port_result create_outbound(struct __sk_buff *skb, const struct packet *p)
{
	struct attempt *n = attempt_of();
	__u32 uplink, mtu = 0;
	__be32 address = 0;

	if (!n || !may_open(skb, p))
		return PORT_TAKEN;
	uplink = outbound_uplink(skb, p, &address);
	if (!uplink || is_protected_outbound(p, address))
		return PORT_TAKEN;
	if (skb->len > MIN_MTU && bpf_check_mtu(skb, uplink, &mtu, 0, BPF_MTU_CHK_SEGS) > 0)
		return PORT_TAKEN;
	prepare_outbound(n, p, skb->ifindex, uplink, address);
	for (int i = 0; i < ALIAS_TRIES; i++) {
		int result;

		n->last = i == ALIAS_TRIES - 1;
		result = try_outbound_port(skb);
		if (result == PORT_RESERVED) {
			use_outbound();
			count_flow(OUTBOUND_SLOT);
			return PORT_RESERVED;
		}
		if (result == FLOW_EXISTS)
			return FLOW_EXISTS;
	}
	count_exhausted();
	return PORT_TAKEN;
}

/* open_outbound creates the flow of a packet with which a sandbox begins a connection to a
 * host outside, and sends the packet. Packets that the kernel has to forward are UNTOUCHED.
 */
global_func int open_outbound(struct __sk_buff *skb, struct packet *p)
{
	enum port_result result;
	struct attempt *n;
	struct flow *f;

	if (!p)
		return UNTOUCHED;
	result = create_outbound(skb, p);
	if (result == PORT_TAKEN)
		return UNTOUCHED;
	n = attempt_of();
	if (!n)
		return UNTOUCHED;
	f = result == PORT_RESERVED ? find_young_flow(&n->key) : search_flow(&n->key);
	if (!f || !(f->flags & FLOW_OUTBOUND))
		return count_drop(OUTBOUND_SLOT, OUTWARD);
	p->hops = 1;
	return send_reply(skb, p, f, &n->key);
}

/* find_outbound finds the flow with a name, and makes its key. The flow is half-open as a rule
 * if half_open is set.
 */
inline_always struct flow *find_outbound(const struct outbound_name *name, struct flow_key *key, int half_open)
{
	struct outbound_owner *owner = bpf_map_lookup_elem(&fl_outbound, name);
	struct flow *f;

	if (!owner)
		return 0;
	outbound_key(key, name, owner);
	f = find_likely_flow(key, half_open);
	return f && has_name(f, name) ? f : 0;
}

/* begins_another reports whether the host outside opens a connection of its own, to a port
 * that another program publishes. Before the first answer, both sides may open the same
 * connection (RFC 9293, 3.5).
 */
inline_always int begins_another(const struct flow *f, const struct packet *p)
{
	return !(p->class & 1) && p->kind == PACKET_L4 && f->flags & FLOW_ANSWERED && is_bare_syn(p);
}

/* answer_outbound translates an answer to a sandbox that has opened the connection, and
 * redirects it to the sandbox. A packet without a flow is UNTOUCHED.
 */
global_func int answer_outbound(struct __sk_buff *skb, struct packet *p)
{
	struct outbound_name name = {};
	struct flow_key key = {};
	struct flow *f;

	if (!p)
		return UNTOUCHED;
	name.client = p->src.w[3];
	name.host = p->dst.w[3];
	name.client_port = p->sport;
	name.host_port = p->dport;
	name.class = p->class;
	f = find_outbound(&name, &key, p->tcp_flags & TCP_SYN);
	if (!f)
		return UNTOUCHED;
	if (is_stale(f, p->class)) {
		end_flow(f, &key);
		return UNTOUCHED;
	}
	if (begins_another(f, p))
		return UNTOUCHED;
	if (f->ifindex != skb->ifindex && !is_valid_source(skb, p, 0))
		return count_drop(OUTBOUND_SLOT, INWARD);
	return deliver(skb, p, f, &key, f->link);
}
