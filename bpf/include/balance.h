/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
/* Theory of operation. A packet for a virtual service is first looked up among the
 * connections: a connection keeps its real server, even if the table of services has
 * changed since. For a new connection the service's scheduler chooses the real server.
 * After that it is a flow like any other: it is found by the addresses that the real
 * server sees, and translated. It is redirected into the sandbox, or forwarded by the
 * routing table if the real server is on another host. Replies find the flow where they
 * arrive, at the sandbox's link or at an uplink.
 *
 *	client ── uplink ─[balance]── sandbox's link ── real server
 *	client ── uplink ─[balance]── uplink ── real server on another host
 *	client ── uplink ──────────[outward]── either link ── real server
 *
 * local_real.h describes a real server that is the host itself.
 *
 * The virtual address need not be the host's. A real server whose replies would not
 * return via this host sees the host as its client. With direct forwarding only the
 * packet's MAC addresses change. With tunnel forwarding the packet is encapsulated
 * (tunnel.h). In both cases replies do not pass this host and are never seen.
 *
 * Half-open connections, whose client has not acknowledged the answer yet, have separate
 * maps: those of a SYN flood push out one another, and no open connection.
 */
#pragma once

#include "redirect.h"
#include "errors.h"
#include "ipsec.h"
#include "refuse.h"
#include "source.h"
#include "tunnel.h"

/* The packet continues in the kernel and in other programs of the same hook (TCX_NEXT). */
#define UNTOUCHED TC_ACT_UNSPEC

/* The state of the packet in progress, which would be too large for the stack. */
struct work {
	struct alias_key name;
	struct alias_key leg; /* the addresses of this host and of the real server, without ports */
	struct flow_key key;
	struct flow fresh;
	struct conn conn;
	struct tuple tuple;
	__u32 slot;   /* the slot of the real server */
	__u32 direct;
	__u32 kept;    /* conn is an open connection whose flow was pushed out of its map */
	__u32 no_real; /* there is a service without an available real server */
	__u32 spoofed; /* there is a service, and the packet's source address is spoofed */
};

struct {
	__uint(type, BPF_MAP_TYPE_PERCPU_ARRAY);
	__uint(max_entries, 1);
	__type(key, __u32);
	__type(value, struct work);
} fl_work SEC(".maps");

inline_always struct work *work_of(void)
{
	__u32 slot = 0;

	return bpf_map_lookup_elem(&fl_work, &slot);
}

inline_always struct conn *find_conn(const struct alias_key *name)
{
	struct conn *c;

	if (name->class & 1)
		return bpf_map_lookup_elem(&fl_conns_udp, name);
	c = bpf_map_lookup_elem(&fl_conns_tcp, name);
	return c ? c : bpf_map_lookup_elem(&fl_young_conns, name);
}

/* promote moves a connection that has opened into the maps of open connections. */
inline_always struct flow *promote(struct work *w, struct flow *f)
{
	w->fresh = *f;
	if (bpf_map_update_elem(&fl_flows_tcp, &w->key, &w->fresh, BPF_ANY) ||
	    bpf_map_update_elem(&fl_conns_tcp, &w->name, &w->conn, BPF_ANY))
		return f;
	bpf_map_delete_elem(&fl_young_flows, &w->key);
	bpf_map_delete_elem(&fl_young_conns, &w->name);
	f = bpf_map_lookup_elem(&fl_flows_tcp, &w->key);
	return f;
}

/* is_new reports whether the packet begins a new connection instead of the flow's. A SYN
 * for a connection that may be open is forwarded to its real server. If that knows the
 * connection, it sends a challenge ACK (RFC 5961, 4.2), and the client's reset then ends
 * the flow. The SYN begins a new connection if both sides have closed, if the real
 * server has answered with a reset, or if only the client's packets pass this host, the
 * client has sent FIN, and the real server accepts no new flows.
 */
inline_always int is_new(const struct flow *f, const struct packet *p, const struct real *r)
{
	if (p->class & 1 || p->kind != PACKET_L4 || !is_bare_syn(p))
		return 0;
	return f->flags & FLOW_RST_OUT || has_all(f, FLOW_FIN_IN | FLOW_FIN_OUT | FLOW_ACK_OUT) ||
	       (has_all(f, FLOW_ONE_WAY | FLOW_FIN_IN) && !accepts_flows(r));
}

/* continues reports whether the packet is one of the connection named in w, which was
 * open, and not the first of another one.
 */
inline_always int continues(const struct packet *p, const struct work *w)
{
	return p->class & 1 || (!is_bare_syn(p) && bpf_map_lookup_elem(&fl_conns_tcp, &w->name));
}

/* The result of judge_flow. */
enum verdict { OTHER_FLOW, LIVE_FLOW, ENDED_FLOW };

/* judge_flow reports whether a flow is that of the connection named in w, with the real server
 * r, and whether it is still valid. The verifier checks it once, and not for each map that has
 * the flow.
 */
global_func int judge_flow(const struct packet *p, const struct work *w, const struct flow *f, const struct real *r)
{
	if (!balancing || !p || !w || !f || !is_flow_of(f, &w->name))
		return OTHER_FLOW;
	if (r && r->generation == w->conn.generation && !is_new(f, p, r) && !is_stale(f, p->class))
		return LIVE_FLOW;
	return ENDED_FLOW;
}

/* find_live_flow finds the flow of the connection named in w, if it is still valid. If
 * it is not, it deletes the flow and returns NULL. It sets kept in w.
 */
static __noinline struct flow *find_live_flow(const struct packet *p, struct work *w)
{
	struct conn *c = find_conn(&w->name);
	enum verdict verdict;
	struct flow *f;
	struct real *r;

	w->kept = 0;
	if (!c)
		return 0;
	w->conn = *c;
	w->key = c->to;
	w->slot = c->real;
	r = real_of(w->slot);
	f = find_flow(&w->key);
	if (!f) {
		w->kept = r && r->generation == w->conn.generation && continues(p, w);
		return 0;
	}
	verdict = judge_flow(p, w, f, r);
	if (verdict == LIVE_FLOW)
		return f;
	if (verdict == ENDED_FLOW)
		end_flow(f, &w->key);
	return 0;
}

/* insert_fresh inserts the new flow under an unused key, which it stores in w. Returns 0
 * on success. If the real server cannot see the client's address, the client gets an
 * alias.
 */
static __noinline int insert_fresh(const struct packet *p, struct work *w, const struct real *r)
{
	struct flow *f;

	if (!(r->flags & REAL_MASQUERADE) && !same(&p->src, &r->to)) {
		f = search_flow(&w->key);
		if (f && is_stale(f, p->class))
			end_flow(f, &w->key);
		if (!insert_young(&w->key, &w->fresh))
			return 0;
	} else {
		w->key.client = r->seen;
	}
	return insert_alias(&w->key, &w->fresh);
}

/* init_fresh fills in the new flow and its key. */
inline_always void init_fresh(__u32 ifindex, const struct packet *p, struct work *w, const struct real *r, __u32 flags)
{
	w->key.endpoint = w->direct ? p->dst : r->to;
	w->key.endpoint_port = w->direct || !r->port ? p->dport : r->port;
	w->key.client = p->src;
	w->key.client_port = p->sport;
	w->key.class = p->class;
	__builtin_memset(&w->fresh, 0, sizeof(w->fresh));
	w->fresh.host = p->dst;
	w->fresh.client = p->src;
	w->fresh.host_port = p->dport;
	w->fresh.client_port = p->sport;
	w->fresh.ifindex = ifindex;
	w->fresh.flags = flags | FLOW_RESET | (r->flags & REAL_LOCAL ? FLOW_LOCAL_REAL : 0) | (w->direct ? FLOW_ONE_WAY : 0);
	w->fresh.slot = REAL_BIT | w->slot;
	w->fresh.link = r->flags & REAL_LOCAL ? 0 : r->ifindex;
	w->fresh.tick = bpf_jiffies64();
	w->fresh.seen = bpf_ktime_get_coarse_ns();
}

/* restore_flow inserts the new flow under the key of the open connection in w. */
static __noinline struct flow *restore_flow(struct work *w)
{
	w->key = w->conn.to;
	w->fresh.flags |= FLOW_ANSWERED | FLOW_OPEN;
	if (w->key.class & 1)
		bpf_map_update_elem(&fl_flows_udp, &w->key, &w->fresh, BPF_NOEXIST);
	else
		bpf_map_update_elem(&fl_flows_tcp, &w->key, &w->fresh, BPF_NOEXIST);
	return search_flow(&w->key);
}

/* is_protected_leg reports whether an IPsec policy covers the packets that a real server
 * on another host receives. With direct forwarding it receives frames without a route.
 */
inline_always int is_protected_leg(const struct packet *p, struct work *w, const struct real *r)
{
	if (!(r->flags & REAL_REMOTE) || w->direct == FORWARD_DIRECT)
		return 0;
	w->leg.host = r->flags & (REAL_MASQUERADE | REAL_TUNNEL) ? r->seen : p->src;
	w->leg.client = r->to;
	return is_protected(&w->leg, SELECT_ADDRESSES);
}

/* create_conn chooses a real server for the packet and creates the flow, with its key in
 * w. Returns NULL if there is no service, no available real server, if the source is
 * spoofed, or if an IPsec policy covers the packet.
 */
inline_always struct flow *create_conn(void *ctx, __u32 ifindex, const struct packet *p, struct work *w, __u32 flags)
{
	struct frontend *f = find_frontend(&p->dst, p->dport, p->class);
	struct real *r;
	struct load *l;

	if (!f || p->kind != PACKET_L4)
		return 0;
	w->tuple.client = p->src;
	w->tuple.host = p->dst;
	w->tuple.client_port = p->sport;
	w->tuple.host_port = p->dport;
	w->direct = f->direct;
	if (!(flags & FLOW_PEER) && is_protected(&w->name, SELECT_PORTS))
		return 0;
	w->no_real = 1;
	if (!w->kept && !(p->class & 1) && p->tcp_flags & (TCP_RST | TCP_FIN))
		return 0;
	w->spoofed = !has_valid_source(ctx, ifindex, p, flags);
	if (w->spoofed)
		return 0;
	if (!w->kept)
		w->slot = choose_real(f, &w->tuple);
	r = real_of(w->slot);
	if (!w->slot || !r || !r->generation)
		return 0;
	if (is_protected_leg(p, w, r)) {
		w->no_real = 0;
		return 0;
	}
	init_fresh(ifindex, p, w, r, flags);
	if (w->kept)
		return restore_flow(w);
	if (insert_fresh(p, w, r))
		return 0;
	w->conn.to = w->key;
	w->conn.real = w->slot;
	w->conn.generation = r->generation;
	if (p->class & 1)
		bpf_map_update_elem(&fl_conns_udp, &w->name, &w->conn, BPF_ANY);
	else
		bpf_map_update_elem(&fl_young_conns, &w->name, &w->conn, BPF_ANY);
	l = load_of(w->slot);
	if (l)
		__sync_fetch_and_add(&l->active, 1);
	count_flow(REAL_BIT | w->slot);
	return search_flow(&w->key);
}

/* opens_connection reports whether a client's packet shows that the connection is open:
 * it acknowledges an answer that passed this host, or it continues the SYN.
 */
inline_always int opens_connection(const struct flow *f, const struct packet *p)
{
	if (p->tcp_flags & TCP_RST)
		return 0;
	return f->flags & FLOW_ONE_WAY ? p->seq - f->ack[OUTWARD] < RESET_WINDOW : f->flags & FLOW_ANSWERED;
}

/* note_request updates the state of the connection with a packet to a real server, and
 * counts repeated SYNs. Returns the flow, which may have moved to another map.
 */
inline_always struct flow *note_request(struct work *w, struct flow *f, const struct packet *p)
{
	struct load *l;

	if (p->class & 1 || p->kind != PACKET_L4 || f->flags & (FLOW_OPEN | FLOW_CLIENT_CLOSED))
		return f;
	if (p->tcp_flags & TCP_SYN) {
		l = f->flags & FLOW_ANSWERED || w->direct ? 0 : load_of(w->slot);
		if (l)
			__sync_fetch_and_add(&l->retries, 1);
	} else if (opens_connection(f, p)) {
		f->flags |= FLOW_OPEN | FLOW_ANSWERED;
		return promote(w, f);
	}
	return f;
}

/* demote moves a flow that its client has closed into the maps of half-open flows. The
 * real server's close does not pass this host, and the flow must not push out an open
 * one. It no longer counts as load.
 */
static __noinline struct flow *demote(struct work *w, struct flow *f)
{
	w->fresh = *f;
	w->fresh.flags = (f->flags & ~FLOW_OPEN) | FLOW_CLIENT_CLOSED;
	if (bpf_map_update_elem(&fl_young_flows, &w->key, &w->fresh, BPF_ANY) ||
	    bpf_map_update_elem(&fl_young_conns, &w->name, &w->conn, BPF_ANY))
		return f;
	if (!bpf_map_delete_elem(&fl_flows_tcp, &w->key))
		uncount(w->slot);
	bpf_map_delete_elem(&fl_conns_tcp, &w->name);
	return bpf_map_lookup_elem(&fl_young_flows, &w->key);
}

/* restore_open reverses demote for a connection that is still open. */
static __noinline struct flow *restore_open(struct work *w, struct flow *f)
{
	struct load *l = load_of(w->slot);

	f->flags = (f->flags & ~FLOW_CLIENT_CLOSED) | FLOW_OPEN;
	if (l)
		__sync_fetch_and_add(&l->active, 1);
	return promote(w, f);
}

/* place_one_way moves a flow of which only the client's packets pass this host into the
 * right map after a packet.
 */
inline_always struct flow *place_one_way(struct work *w, struct flow *f)
{
	if (!(f->flags & FLOW_ONE_WAY))
		return f;
	if (has_all(f, FLOW_OPEN | FLOW_FIN_IN))
		return demote(w, f);
	return (f->flags & (FLOW_CLIENT_CLOSED | FLOW_FIN_IN)) == FLOW_CLIENT_CLOSED ? restore_open(w, f) : f;
}

/* count_reset counts a reset sent by a real server. */
inline_always void count_reset(const struct flow *f, const struct packet *p)
{
	struct load *l;

	if (p->class & 1 || p->kind != PACKET_L4 || !(p->tcp_flags & TCP_RST))
		return;
	l = load_of(f->slot);
	if (!l)
		return;
	if (!(f->flags & FLOW_ANSWERED))
		__sync_fetch_and_add(&l->refusals, 1);
	else if (!(f->flags & FLOW_FIN_IN))
		__sync_fetch_and_add(&l->resets, 1);
}

/* set_real_route prepares w->fresh for the route to a real server on another host. */
inline_always void set_real_route(const struct real *r, struct work *w)
{
	w->fresh.client = r->to;
	w->fresh.host = r->seen;
	w->fresh.ifindex = r->ifindex;
	w->fresh.slot = REAL_BIT;
	w->fresh.flags = 0;
	w->fresh.seen = bpf_ktime_get_coarse_ns();
}

/* exceeded_mtu_to_real returns the largest possible packet to a real server on another
 * host if this packet is larger, else 0.
 */
inline_always __u32 exceeded_mtu_to_real(struct __sk_buff *skb, const struct packet *p, const struct real *r, struct work *w)
{
	__u32 wrapped, mtu;

	if (skb->len <= ALWAYS_FITS)
		return 0;
	wrapped = outer_length(p, r);
	set_real_route(r, w);
	mtu = path_mtu(skb, &w->fresh);
	return mtu > wrapped && length_of(skb, p) + wrapped > mtu ? mtu - wrapped : 0;
}

/* send_to_real sends a packet to its real server, encapsulated if necessary. A packet
 * for a real server that is the host itself continues in the kernel.
 */
global_func int send_to_real(struct __sk_buff *skb, const struct packet *p, const struct real *r, struct work *w)
{
	if (!balancing || !p || !r || !w)
		return TC_ACT_SHOT;
	if (r->flags & REAL_LOCAL)
		return UNTOUCHED;
	if (!(r->flags & REAL_REMOTE))
		return redirect_to_sandbox(skb, r->ifindex);
	if (r->flags & REAL_TUNNEL && encapsulate(skb, p, r))
		return TC_ACT_SHOT;
	set_real_route(r, w);
	return redirect_to_client(skb, &w->fresh);
}

/* set_conn_key sets the key of a client's connection to the dialled address. */
inline_always void set_conn_key(struct work *w, const struct address *client, __be16 client_port,
			       const struct address *host, __be16 host_port, __u32 class)
{
	w->name.client = *client;
	w->name.host = *host;
	w->name.client_port = client_port;
	w->name.host_port = host_port;
	w->name.class = class;
}

/* error_to_real translates and forwards an ICMP error about a packet that a real server
 * sent.
 */
static __noinline int error_to_real(struct __sk_buff *skb, struct packet *p, __u32 flags)
{
	struct work *w = work_of();
	struct change c = {};
	struct flow *f;
	struct real *r;

	if (!w || !same(&p->inner_src, &p->dst))
		return UNTOUCHED;
	set_conn_key(w, &p->inner_dst, p->inner_dport, &p->inner_src, p->inner_sport, p->class);
	f = find_live_flow(p, w);
	r = real_of(w->slot);
	if (!f || !r || !is_valid_error(skb, p, f, flags))
		return UNTOUCHED;
	c.src = w->key.endpoint;
	c.sport = w->key.endpoint_port;
	c.dst = w->key.client;
	c.dport = w->key.client_port;
	c.outer_src = same(&p->src, &p->inner_dst) ? w->key.client : p->src;
	c.outer_dst = w->key.endpoint;
	if ((r->flags & REAL_REMOTE && decrement_ttl(skb, p)) || write_error(skb, p, &c))
		return TC_ACT_SHOT;
	return send_to_real(skb, p, r, w);
}

/* find_or_create_flow returns the flow of a packet, or creates it. */
static __noinline struct flow *find_or_create_flow(struct __sk_buff *skb, struct packet *p, struct work *w, __u32 flags)
{
	__u32 ifindex = skb->ifindex;
	struct flow *f;

	set_conn_key(w, &p->src, p->sport, &p->dst, p->dport, p->class);
	w->no_real = 0;
	w->spoofed = 0;
	f = find_live_flow(p, w);
	if (!f)
		return create_conn(skb, ifindex, p, w, flags);
	if (f->ifindex != ifindex && !follow_client(skb, p, f, flags)) {
		w->spoofed = 1;
		return 0;
	}
	w->direct = same(&w->key.endpoint, &p->dst);
	return note_request(w, f, p);
}

/* refuse_forward sends an ICMP error for a packet that cannot be forwarded to its real
 * server: its TTL has expired, or it is larger than room.
 */
inline_always int refuse_forward(struct __sk_buff *skb, const struct packet *p, const struct flow *f, __u32 room)
{
	count_drop(f->slot, INWARD);
	if (ttl_expired(p))
		return send_icmp_error(skb, p, TTL_EXCEEDED, 0);
	return room ? send_icmp_error(skb, p, PACKET_TOO_BIG, room) : TC_ACT_SHOT;
}

/* forward_to_real translates the packet of a flow and sends it to its real server. Linux 6.1
 * does not accept arguments of global functions as keys of maps, so it looks up the work.
 */
global_func int forward_to_real(struct __sk_buff *skb, struct packet *p, struct flow *f)
{
	struct real *r;
	struct work *w;
	struct ends to;
	__u32 room;
	int last;

	if (!balancing || !p || !f)
		return TC_ACT_SHOT;
	w = work_of();
	if (!w)
		return TC_ACT_SHOT;
	r = real_of(w->slot);
	if (!r)
		return TC_ACT_SHOT;
	if (r->flags & REAL_REMOTE) {
		room = exceeded_mtu_to_real(skb, p, r, w);
		if (room || decrement_ttl(skb, p))
			return refuse_forward(skb, p, f, room);
	}
	last = track_request(skb->len, f, p);
	f = place_one_way(w, f);
	if (!f)
		return TC_ACT_SHOT;
	to.src = &w->key.client;
	to.sport = w->key.client_port;
	to.dst = &w->key.endpoint;
	to.dport = w->key.endpoint_port;
	if (!w->direct && rewrite(skb, p, &to))
		return count_drop(f->slot, INWARD);
	if (last)
		end_flow(f, &w->key);
	last = send_to_real(skb, p, r, w);
	return last == TC_ACT_SHOT ? count_drop(REAL_BIT | w->slot, INWARD) : last;
}

/* balance forwards a packet for a virtual service to a real server. flags become the
 * flow's: whether the client is a sandbox. Little stack is left here, so the functions
 * that it calls use as little as possible.
 */
inline_always int balance(struct __sk_buff *skb, struct packet *p, __u32 flags)
{
	struct work *w = work_of();
	struct flow *f;

	if (!w || is_loopback(&p->src))
		return UNTOUCHED;
	f = find_or_create_flow(skb, p, w, flags);
	if (f)
		return forward_to_real(skb, p, f);
	if (w->spoofed)
		return TC_ACT_SHOT;
	return w->no_real ? refuse_client(skb, p) : UNTOUCHED;
}
