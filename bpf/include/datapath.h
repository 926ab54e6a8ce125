/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
/* Theory of operation. A packet for a published port is looked up in the table of port
 * mappings by its host port. The endpoint, its port and the client are the key of its
 * flow. For the first packet of a flow two more things are checked: its destination is
 * an address of the host, and it belongs to no connection of the host. Then the
 * destination is rewritten and the packet is redirected into the sandbox as if it had
 * been received there (bpf_redirect_peer), past bridge, netfilter and conntrack. The
 * sandbox's reply finds the same flow by the same key, gets the address and port that
 * the client dialled as its source, and leaves via the link on which the client's
 * packets arrive (bpf_redirect_neigh). Neither direction is trusted because of its
 * addresses alone (source.h).
 *
 *	client ── uplink ─[inward]── sandbox's link ── endpoint
 *	client ── uplink ──────────[outward]── sandbox's link ── endpoint
 *
 * Every inward packet is looked up in the table, so no packet reaches an endpoint after
 * its entry is deleted.
 */
#pragma once

#include "outbound.h"

/* is_local reports whether an address is the host's. It reads the list that user space
 * writes, and then the routing table, which also has an address that was added a moment
 * ago. The lookup returns the same result for an address of the host and for one without
 * a route, for example on a host that has IPv6 only for itself. An address of the host
 * is in a connected network, so the main table has a route to it; for the other address
 * it has none. For IPv4 both tables are one as long as there are no rules.
 */
global_func int is_local(struct __sk_buff *skb, const struct packet *p)
{
	struct bpf_fib_lookup route = {};

	if (!p)
		return 0;
	/* Linux 6.1 requires the key on the stack. */
	__builtin_memcpy(route.ipv6_dst, &p->dst, 16);
	if (bpf_map_lookup_elem(&fl_addresses, route.ipv6_dst))
		return 1;
	if (is_group(&p->dst))
		return 0;
	route.ifindex = skb->ifindex;
	route.l4_protocol = (p->class & 1) ? IPPROTO_UDP : IPPROTO_TCP;
	if (p->v6) {
		route.family = AF_INET6;
		__builtin_memcpy(route.ipv6_src, &p->src, 16);
	} else {
		route.family = AF_INET;
		route.ipv4_src = p->src.w[3];
		route.ipv4_dst = p->dst.w[3];
	}
	if (bpf_fib_lookup(skb, &route, sizeof(route), 0) != BPF_FIB_LKUP_RET_NOT_FWDED)
		return 0;
	return !p->v6 || bpf_fib_lookup(skb, &route, sizeof(route), BPF_FIB_LOOKUP_DIRECT) != BPF_FIB_LKUP_RET_NOT_FWDED;
}

/* is_local_connection reports whether the packet belongs to a connection of the host,
 * whose port may have been published while the connection was open. The first packet of
 * a TCP connection cannot.
 */
global_func int is_local_connection(struct __sk_buff *skb, const struct packet *p)
{
	struct bpf_sock_tuple tuple = {};
	struct bpf_sock *sk;
	__u32 size;
	int found;

	if (!p)
		return 0;
	size = p->v6 ? sizeof(tuple.ipv6) : sizeof(tuple.ipv4);
	if (p->v6) {
		__builtin_memcpy(tuple.ipv6.saddr, &p->src, 16);
		__builtin_memcpy(tuple.ipv6.daddr, &p->dst, 16);
		tuple.ipv6.sport = p->sport;
		tuple.ipv6.dport = p->dport;
	} else {
		tuple.ipv4.saddr = p->src.w[3];
		tuple.ipv4.daddr = p->dst.w[3];
		tuple.ipv4.sport = p->sport;
		tuple.ipv4.dport = p->dport;
	}
	if (p->class & 1)
		sk = bpf_sk_lookup_udp(skb, &tuple, size, BPF_F_CURRENT_NETNS, 0);
	else
		sk = bpf_sk_lookup_tcp(skb, &tuple, size, BPF_F_CURRENT_NETNS, 0);
	if (!sk)
		return 0;
	found = (p->class & 1) ? sk->state == BPF_TCP_ESTABLISHED : sk->state != BPF_TCP_LISTEN;
	bpf_sk_release(sk);
	return found;
}

/* may_create_flow reports whether the packet may create a flow. */
inline_always int may_create_flow(struct __sk_buff *skb, const struct packet *p)
{
	if (p->kind != PACKET_L4)
		return 0;
	if (!(p->class & 1) && p->tcp_flags & (TCP_RST | TCP_FIN))
		return 0;
	if (!is_local(skb, p))
		return 0;
	return (!(p->class & 1) && (p->tcp_flags & (TCP_SYN | TCP_ACK)) == TCP_SYN) || !is_local_connection(skb, p);
}

/* is_protected_packet reports whether an IPsec policy covers a client's packet. */
static __noinline int is_protected_packet(const struct packet *p)
{
	struct alias_key name = {
		.client = p->src, .host = p->dst, .client_port = p->sport, .host_port = p->dport, .class = p->class,
	};

	return is_protected(&name, SELECT_PORTS);
}

/* is_flow_of_packet reports whether the packet is from the flow's client to the address
 * that the client dialled.
 */
inline_always int is_flow_of_packet(const struct flow *f, const struct packet *p)
{
	return f->host_port == p->dport && f->client_port == p->sport &&
	       same(&f->host, &p->dst) && same(&f->client, &p->src);
}

/* find_alias finds the flow of a client that has an alias, and puts the alias into the
 * key.
 */
inline_always struct flow *find_alias(const struct alias_key *name, struct flow_key *key)
{
	struct alias *known = bpf_map_lookup_elem(&fl_aliases, name);
	struct flow *f;

	if (!known)
		return 0;
	key->client = known->client;
	key->client_port = known->client_port;
	f = search_flow(key);
	if (f && is_flow_of_alias(f, name))
		return f;
	key->client = name->client;
	key->client_port = name->client_port;
	return 0;
}

/* find_aliased_flow does the same for a packet of the client that arrived on the link. */
static __noinline struct flow *find_aliased_flow(const struct packet *p, struct flow_key *key, __u32 ifindex)
{
	__u32 slot = 0, *ever = bpf_map_lookup_elem(&fl_aliased, &slot);
	struct alias_key name = {};

	if (!ever || !*ever)
		return 0;
	name.client = p->src;
	name.host = p->dst;
	name.client_port = p->sport;
	name.host_port = p->dport;
	name.class = scoped_class(p->class, &p->src, ifindex);
	return find_alias(&name, key);
}

/* find_quoted_flow finds the flow of a packet to the client that an ICMP error on the
 * link quotes.
 */
static __noinline struct flow *find_quoted_flow(const struct packet *p, struct flow_key *key, __u32 ifindex)
{
	struct alias_key name = {
		.client = p->inner_dst, .host = p->inner_src, .client_port = p->inner_dport, .host_port = p->inner_sport,
		.class = scoped_class(p->class, &p->inner_dst, ifindex),
	};
	struct flow *f;

	key->client = name.client;
	key->client_port = name.client_port;
	f = search_flow(key);
	return f && is_flow_of_alias(f, &name) ? f : find_alias(&name, key);
}

/* create_flow creates the flow of a packet for which the key has no flow, or another
 * client's. The client gets an alias, which is then in the key, if the endpoint would
 * else mix up two flows, see its own address, or could not reply to a link-local
 * address. It calls nothing that needs much stack, because a function and its callers
 * have 512 bytes together.
 */
static __noinline struct flow *create_flow(struct __sk_buff *skb, struct packet *p, struct flow_key *key,
				     const struct mapping *l, __u32 flags)
{
	struct flow fresh = {
		.host = p->dst, .client = p->src, .host_port = p->dport, .client_port = p->sport,
		.ifindex = skb->ifindex, .link = l->ifindex,
		.flags = flags | (l->flags & MAPPING_RESET ? FLOW_RESET : 0) | (p->class & 1 ? FLOW_OPEN : 0),
	};
	struct uplink_check *by = bpf_map_lookup_elem(&fl_uplinks, &fresh.ifindex);
	struct alias alias = { .client = p->src };
	struct alias_key *name;
	__u32 ever = 1, slot = 0;
	struct flow *f;

	if (by && by->flags & UPLINK_LOOSE)
		fresh.flags |= FLOW_LOOSE;
	fresh.tick = bpf_jiffies64();
	fresh.seen = bpf_ktime_get_coarse_ns();
	if (!same(&p->src, &l->to) && !is_link_local(&p->src)) {
		if (!insert_young(key, &fresh))
			return find_young_flow(key);
		f = search_flow(key);
		if (f && is_stale(f, p->class)) {
			delete_flow(key);
			if (!insert_young(key, &fresh))
				return find_young_flow(key);
		}
	} else {
		alias.client = l->masquerade;
	}
	key->client = alias.client;
	if (insert_alias(key, &fresh))
		return 0;
	name = alias_name(&fresh, p->class);
	if (!name)
		return 0;
	alias.client_port = key->client_port;
	bpf_map_update_elem(&fl_aliases, name, &alias, BPF_ANY);
	bpf_map_update_elem(&fl_aliased, &slot, &ever, BPF_ANY);
	return search_flow(key);
}

/* translate_error translates an ICMP error about a packet that an endpoint sent, and returns
 * 0, or the action for an error that is not redirected to the endpoint. If a router sent
 * the error, its address stays the source. If the client did, the source becomes the
 * address that the endpoint knows.
 */
global_func int translate_error(struct __sk_buff *skb, struct packet *p, const struct flow_key *key,
				const struct flow *f, __u32 flags)
{
	struct change c = {};

	if (!p || !key || !f || !is_valid_error(skb, p, f, flags))
		return UNTOUCHED;
	c.src = key->endpoint;
	c.sport = key->endpoint_port;
	c.dst = key->client;
	c.dport = key->client_port;
	c.outer_src = same(&p->src, &p->inner_dst) ? key->client : p->src;
	c.outer_dst = key->endpoint;
	return write_error(skb, p, &c) ? TC_ACT_SHOT : 0;
}

/* outbound_error finds the flow of a packet to a host outside that an ICMP error quotes. */
global_func int outbound_error(struct __sk_buff *skb, struct packet *p)
{
	struct outbound_name name = {};
	struct flow_key key = {};
	struct flow *f;
	int act;

	if (!p || !same(&p->inner_src, &p->dst))
		return UNTOUCHED;
	name.client = p->inner_dst.w[3];
	name.host = p->inner_src.w[3];
	name.client_port = p->inner_dport;
	name.host_port = p->inner_sport;
	name.class = p->class;
	f = find_outbound(&name, &key, 0);
	if (!f)
		return UNTOUCHED;
	act = translate_error(skb, p, &key, f, 0);
	return act ? act : redirect_to_sandbox(skb, f->link);
}

/* error_inward finds the flow of a published port whose reply an ICMP error quotes. */
global_func int error_inward(struct __sk_buff *skb, struct packet *p, __u32 flags)
{
	struct flow_key key = {};
	struct flow *f;
	struct mapping *l;
	__u32 slot;
	int act;

	if (!p)
		return UNTOUCHED;
	l = find_mapping(p->class, &p->inner_src, bpf_ntohs(p->inner_sport), &slot);
	if (!l || l->flags & (MAPPING_GRANT | MAPPING_LOCAL) || !same(&p->inner_src, &p->dst))
		return UNTOUCHED;
	key.endpoint = l->to;
	key.endpoint_port = endpoint_port_of(l, bpf_ntohs(p->inner_sport));
	key.class = p->class;
	f = find_quoted_flow(p, &key, skb->ifindex);
	if (!f)
		return UNTOUCHED;
	act = translate_error(skb, p, &key, f, flags);
	return act ? act : redirect_to_sandbox(skb, l->ifindex);
}

/* note_sent stores the endpoint's next sequence number until the flow is open. */
inline_always void note_sent(struct flow *f, const struct packet *p)
{
	if (!(f->flags & FLOW_OPEN) && p->kind == PACKET_L4)
		f->fin[OUTWARD] = p->seq + p->payload + !!(p->tcp_flags & TCP_SYN);
}

/* inward translates a packet for a published port and redirects it to its endpoint.
 * flags become the flow's: whether the client is a sandbox.
 */
inline_always int inward(struct __sk_buff *skb, struct packet *p, __u32 flags)
{
	struct flow_key key = {};
	struct mapping *l;
	struct flow *f;
	__u32 slot;
	int act;

	if (p->kind == PACKET_ERROR) {
		act = error_inward(skb, p, flags);
		return act == UNTOUCHED && has_services(SERVED) ? error_to_real(skb, p, flags) : act;
	}
	l = find_mapping(p->class, &p->dst, bpf_ntohs(p->dport), &slot);
	if (!l && has_services(SERVED))
		return balance(skb, p, flags);
	if (!l || l->flags & (MAPPING_GRANT | MAPPING_LOCAL) || is_loopback(&p->dst) || is_loopback(&p->src))
		return UNTOUCHED;
	key.endpoint = l->to;
	key.endpoint_port = endpoint_port_of(l, bpf_ntohs(p->dport));
	key.client = p->src;
	key.client_port = p->sport;
	key.class = p->class;
	f = find_flow(&key);
	if (!f || !is_flow_of_packet(f, p))
		f = find_aliased_flow(p, &key, skb->ifindex);
	if (f && is_stale(f, p->class)) {
		end_flow(f, &key);
		key.client = p->src;
		key.client_port = p->sport;
		f = 0;
	}
	if (f && f->ifindex != skb->ifindex && !follow_client(skb, p, f, flags))
		return count_drop(slot, INWARD);
	if (!f && may_create_flow(skb, p) && (flags & FLOW_PEER || !is_protected_packet(p))) {
		if (!is_valid_source(skb, p, flags))
			return count_drop(slot, INWARD);
		f = create_flow(skb, p, &key, l, flags);
		if (f)
			count_flow(slot);
	}
	if (!f)
		return UNTOUCHED;
	if (f->slot != slot) { /* new, or the publish was created again */
		f->slot = slot;
		f->link = l->ifindex;
	}
	return deliver(skb, p, f, &key, l->ifindex);
}

/* Where an endpoint's ICMP error comes from. With FROM_HOST the kernel sends it. */
enum from { FROM_SANDBOX, FROM_UPLINK, FROM_HOST };

/* send_error translates an endpoint's ICMP error about a packet of the flow, and sends it. */
global_func int send_error(struct __sk_buff *skb, struct packet *p, struct flow *f, __u32 from)
{
	struct change c = {};

	if (!p || !f || !same(&p->inner_src, &p->dst) || (from == FROM_HOST) != !!(f->flags & FLOW_LOCAL_REAL))
		return UNTOUCHED;
	if (from != FROM_HOST && f->link != skb->ifindex &&
	    (from == FROM_UPLINK ? !is_real(f->slot) || !is_valid_source(skb, p, 0) : !is_endpoint_address(skb->ifindex, &p->inner_dst)))
		return UNTOUCHED;
	c.src = f->client;
	c.sport = f->client_port;
	c.dst = f->host;
	c.dport = f->host_port;
	c.outer_src = f->host;
	c.outer_dst = f->client;
	if (write_error(skb, p, &c))
		return TC_ACT_SHOT;
	return from == FROM_HOST ? UNTOUCHED : send_to_client(skb, f);
}

/* error_outward finds the flow of an ICMP error that an endpoint sent about a client's packet. */
global_func int error_outward(struct __sk_buff *skb, struct packet *p, __u32 from)
{
	struct flow_key key = {};
	struct flow *f;

	if (!p)
		return UNTOUCHED;
	key.endpoint = p->inner_dst;
	key.endpoint_port = p->inner_dport;
	key.client = p->inner_src;
	key.client_port = p->inner_sport;
	key.class = p->class;
	f = search_flow(&key);
	return f ? send_error(skb, p, f, from) : UNTOUCHED;
}

#define NOT_A_REPLY 1000

/* outward translates an endpoint's reply, so that it comes from the address that the
 * client dialled, and sends it to the client. On uplinks only real servers reply.
 * Returns NOT_A_REPLY for packets without a flow.
 */
inline_always int outward(struct __sk_buff *skb, struct packet *p, int from_uplink)
{
	struct flow_key key = {};
	struct flow *f;
	__u32 mtu;

	if (p->kind == PACKET_ERROR)
		return error_outward(skb, p, from_uplink ? FROM_UPLINK : FROM_SANDBOX);
	reply_key(&key, p);
	f = find_likely_flow(&key, (p->tcp_flags & (TCP_SYN | TCP_ACK)) == (TCP_SYN | TCP_ACK));
	if (!f || (from_uplink && !is_real(f->slot)))
		return NOT_A_REPLY;
	if (f->link != skb->ifindex && !follow_endpoint(skb, p, f, from_uplink))
		return count_drop(f->slot, OUTWARD);
	if ((!is_real(f->slot) || aliases_shared) && has_alias(f, &key) && is_local_connection(skb, p))
		return NOT_A_REPLY;
	if (is_stale(f, p->class) || (f->flags & FLOW_OUTBOUND && ends_outbound(skb, p, f))) {
		end_flow(f, &key);
		return NOT_A_REPLY;
	}
	if (f->flags & FLOW_OUTBOUND) {
		if (ttl_expired(p))
			return UNTOUCHED; /* the kernel sends the ICMP error */
		p->hops = 1;
	}
	mtu = exceeded_mtu(skb, f);
	if (mtu && !(balancing && from_uplink) && !(f->flags & FLOW_OUTBOUND))
		return UNTOUCHED; /* the kernel routes it and sends the ICMP error */
	if (mtu) {
		count_drop(f->slot, OUTWARD);
		return send_icmp_error(skb, p, PACKET_TOO_BIG, mtu);
	}
	if (is_real(f->slot))
		count_reset(f, p);
	else
		note_sent(f, p);
	return send_reply(skb, p, f, &key);
}
