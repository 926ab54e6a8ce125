/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
/* The life of a flow: made, kept alive, closed. */
#pragma once

#include "packet.h"
#include "services.h"

#define SECOND 1000000000ULL

/* How long a silent flow is kept: the time-outs of the kernel's conntrack
 * (Documentation/networking/nf_conntrack-sysctl.rst).
 */
#define UDP_UNANSWERED (30 * SECOND)
#define UDP_ANSWERED (120 * SECOND)
#define TCP_UNANSWERED (60 * SECOND)
#define TCP_ANSWERED (5ULL * 24 * 3600 * SECOND)
#define TCP_CLOSING (120 * SECOND)
#define TCP_RESET (10 * SECOND)

/* How long an open connection of which only the client's packets are seen may be
 * silent: a reset by the server is not seen. RFC 5382, REQ-5, demands 124 minutes.
 */
#define TCP_ONE_WAY (124ULL * 60 * SECOND)

/* A reset further off than this from what was acknowledged ends nothing: it
 * may be forged (RFC 5961).
 */
#define RESET_WINDOW (1 << 20)

/* How far an acknowledgement may run ahead of what is noted of it. Both
 * directions run on different CPUs, and each note costs the other one a miss.
 */
#define ACK_STEP (RESET_WINDOW / 4)

enum direction { INWARD, OUTWARD };

/* reply_key makes the key of the flow that the packet is an answer in. */
inline_always void reply_key(struct flow_key *key, const struct packet *p)
{
	key->endpoint = p->src;
	key->client = p->dst;
	key->endpoint_port = p->sport;
	key->client_port = p->dport;
	key->class = p->class;
}

/* reply_ends makes the ends that an answer has for the client of the flow. */
inline_always void reply_ends(struct ends *to, const struct flow *f)
{
	to->src = &f->host;
	to->dst = &f->client;
	to->sport = f->host_port;
	to->dport = f->client_port;
}

inline_always struct flow *find_flow(const struct flow_key *key)
{
	struct flow *f;

	if (key->class & 1)
		return bpf_map_lookup_elem(&fl_flows_udp, key);
	f = bpf_map_lookup_elem(&fl_flows_tcp, key);
	return f ? f : bpf_map_lookup_elem(&fl_young_flows, key);
}

/* insert_young puts a new flow where those are that are not open yet, and returns 0
 * if it could: otherwise another flow has the key.
 */
inline_always long insert_young(const struct flow_key *key, const struct flow *fresh)
{
	if (key->class & 1)
		return bpf_map_update_elem(&fl_flows_udp, key, fresh, BPF_NOEXIST);
	if (bpf_map_lookup_elem(&fl_flows_tcp, key))
		return -1;
	return bpf_map_update_elem(&fl_young_flows, key, fresh, BPF_NOEXIST);
}

inline_always void delete_flow(const struct flow_key *key)
{
	if (key->class & 1)
		bpf_map_delete_elem(&fl_flows_udp, key);
	else if (bpf_map_delete_elem(&fl_flows_tcp, key))
		bpf_map_delete_elem(&fl_young_flows, key);
}

/* has_alias reports whether the endpoint knows the client by another name. */
inline_always int has_alias(const struct flow *f, const struct flow_key *key)
{
	return key->client_port != f->client_port || !same(&key->client, &f->client);
}

/* scoped returns what an alias key has for the plane: an address that is valid on
 * its link only is another client's on each link.
 */
inline_always __u32 scoped_class(__u32 class, const struct address *client, __u32 ifindex)
{
	return is_link_local(client) ? class | ifindex << 2 : class;
}

/* delete_alias forgets the flow's alias: those left behind would push the
 * aliases of idle connections out of their map.
 */
static __noinline void delete_alias(const struct flow *f, __u32 class)
{
	struct alias_key name = {
		.client = f->client, .host = f->host,
		.client_port = f->client_port, .host_port = f->host_port, .class = scoped_class(class, &f->client, f->ifindex),
	};

	bpf_map_delete_elem(&fl_aliases, &name);
}

/* delete_conn forgets the connection of a flow to a real server, which then has
 * one less.
 */
static __noinline void delete_conn(const struct flow *f, __u32 class)
{
	struct alias_key name = {
		.client = f->client, .host = f->host,
		.client_port = f->client_port, .host_port = f->host_port, .class = class,
	};
	struct load *l = load_of(f->slot);

	if (class & 1)
		bpf_map_delete_elem(&fl_conns_udp, &name);
	else if (bpf_map_delete_elem(&fl_conns_tcp, &name))
		bpf_map_delete_elem(&fl_young_conns, &name);
	if (l && l->active && !(f->flags & FLOW_CLIENT_CLOSED))
		__sync_fetch_and_add(&l->active, -1);
}

/* end_flow forgets a flow. */
inline_always void end_flow(const struct flow *f, const struct flow_key *key)
{
	if (is_real(f->slot))
		delete_conn(f, key->class);
	else if (has_alias(f, key))
		delete_alias(f, key->class);
	delete_flow(key);
}

#define FLOW_CLOSING (FLOW_FIN_IN | FLOW_FIN_OUT | FLOW_ACK_IN | FLOW_ACK_OUT)
#define FLOW_RST (FLOW_RST_IN | FLOW_RST_OUT)

/* has_all reports whether the flow has all of those flags. */
inline_always int has_all(const struct flow *f, __u32 flags) { return (f->flags & flags) == flags; }

/* is_closing reports whether an end has closed the connection. A client's FIN may
 * be forged: it counts once the endpoint has acknowledged it, if that is seen.
 */
inline_always int is_closing(const struct flow *f)
{
	if (f->flags & FLOW_ONE_WAY)
		return f->flags & FLOW_FIN_IN;
	return f->flags & FLOW_FIN_OUT || has_all(f, FLOW_FIN_IN | FLOW_ACK_OUT);
}

/* idle_limit returns how long a TCP connection may be silent. */
inline_always __u64 idle_limit(const struct flow *f)
{
	if (f->flags & FLOW_RST)
		return TCP_RESET;
	if (!(f->flags & FLOW_ANSWERED))
		return TCP_UNANSWERED;
	if (is_closing(f))
		return TCP_CLOSING;
	return f->flags & FLOW_ONE_WAY ? TCP_ONE_WAY : TCP_ANSWERED;
}

/* is_stale reports whether the flow has been silent for too long. The clock,
 * which costs a call, is read once in a tick of the kernel's own.
 */
inline_always int is_stale(const struct flow *f, __u32 class)
{
	__u64 idle;

	if (f->tick == (__u32)bpf_jiffies64())
		return 0;
	idle = bpf_ktime_get_coarse_ns() - f->seen;
	if (class & 1)
		return idle > ((f->flags & FLOW_ANSWERED) ? UDP_ANSWERED : UDP_UNANSWERED);
	return idle > idle_limit(f);
}

/* is_bare_syn reports whether a TCP packet asks for a connection. */
inline_always int is_bare_syn(const struct packet *p)
{
	return (p->tcp_flags & (TCP_SYN | TCP_ACK | TCP_RST)) == TCP_SYN;
}

/* forget_close forgets how far the flow's earlier connection was closed: the
 * client uses its port again.
 */
inline_always void forget_close(struct flow *f)
{
	f->flags &= ~(FLOW_CLOSING | FLOW_RST);
	f->ack[INWARD] = 0;
	f->ack[OUTWARD] = 0;
}

/* resets notes a reset and reports whether it ends the connection at once. One of
 * the client's does so if its receiver must take it (RFC 5961, 3.2), as far as that
 * is known. After any other that may be real the flow's time is short, until an end
 * shows that the connection lives: the endpoint challenges what it refuses. One of
 * the endpoint's with the sequence number 0 answers a SYN.
 */
inline_always int note_reset(struct flow *f, const struct packet *p, enum direction d)
{
	__u32 ahead = p->seq - f->ack[!d];

	if (d == OUTWARD) {
		f->flags |= FLOW_RST_OUT;
		return ahead < RESET_WINDOW || !p->seq;
	}
	if (ahead < RESET_WINDOW)
		f->flags |= FLOW_RST_IN;
	return !ahead;
}

/* is_near reports whether a client's packet has a sequence number near what the
 * endpoint has acknowledged.
 */
inline_always int is_near(const struct flow *f, const struct packet *p)
{
	return !f->ack[OUTWARD] || p->seq - f->ack[OUTWARD] + RESET_WINDOW < 2 * RESET_WINDOW;
}

/* note_fin notes the FIN of a packet, unless it is of the past. Data beyond a FIN
 * that was noted shows that it was forged.
 */
inline_always void note_fin(struct flow *f, const struct packet *p, enum direction d)
{
	__u32 mark = d == INWARD ? FLOW_FIN_IN : FLOW_FIN_OUT, end = p->seq + p->payload;

	if (p->tcp_flags & TCP_FIN) {
		if (d == INWARD && f->ack[OUTWARD] && (__s32)(end + 1 - f->ack[OUTWARD]) < 0)
			return;
		f->fin[d] = end + 1;
		f->flags |= mark;
	} else if (f->flags & mark && (__s32)(end - f->fin[d]) > 0 && (d == OUTWARD || is_near(f, p))) {
		f->flags &= ~(mark | (d == INWARD ? FLOW_ACK_OUT : FLOW_ACK_IN));
	}
}

/* closes notes the ends of a connection, and reports whether this packet is its
 * last: both sides' FIN acknowledged, or a reset that its receiver will take for
 * one. A client's SYN changes nothing: an endpoint that knows the connection
 * challenges it, and one that does not answers by a SYN of its own, or a reset.
 */
inline_always int update_close_state(struct flow *f, const struct packet *p, enum direction d)
{
	__u32 other = !d;

	if (p->tcp_flags & TCP_RST)
		return note_reset(f, p, d);
	if (p->tcp_flags & TCP_SYN) {
		if (d == INWARD || !(p->tcp_flags & TCP_ACK))
			return 0;
		forget_close(f);
	} else {
		note_fin(f, p, d);
	}
	if (f->flags & FLOW_RST && (d == OUTWARD || is_near(f, p)))
		f->flags &= ~FLOW_RST;
	if (!(p->tcp_flags & TCP_ACK))
		return 0;
	if (p->ack - f->ack[d] >= ACK_STEP || !f->ack[d] || (f->flags & FLOW_RESET))
		f->ack[d] = p->ack;
	if ((f->flags & (d == INWARD ? FLOW_FIN_OUT : FLOW_FIN_IN)) && (__s32)(p->ack - f->fin[other]) >= 0)
		f->flags |= d == INWARD ? FLOW_ACK_IN : FLOW_ACK_OUT;
	return has_all(f, FLOW_ACK_IN | FLOW_ACK_OUT);
}

/* note_next notes the sequence number that follows a client's packet, if that goes
 * on from the one before.
 */
inline_always void note_next(struct flow *f, const struct packet *p, __u32 end)
{
	__u32 ahead = end - f->ack[OUTWARD];

	if (ahead && ahead < RESET_WINDOW)
		f->ack[OUTWARD] = end;
	if (p->tcp_flags & TCP_ACK && f->ack[INWARD] != p->ack)
		f->ack[INWARD] = p->ack;
}

/* update_close_one_way does what closes does where only the client's packets are seen,
 * and only those count that go on from what it has sent before. A client that uses
 * its port again after its FIN has a new connection once it has acknowledged the
 * answer to its SYN; fin[OUTWARD] keeps that sequence number.
 */
inline_always int update_close_one_way(struct flow *f, const struct packet *p)
{
	__u32 end = p->seq + p->payload;

	if (p->tcp_flags & TCP_SYN) {
		f->fin[OUTWARD] = f->flags & FLOW_FIN_IN ? end + 1 : 0;
		if (!(f->flags & (FLOW_OPEN | FLOW_CLIENT_CLOSED)))
			f->ack[OUTWARD] = end + 1;
		return 0;
	}
	if (f->flags & FLOW_FIN_IN && f->fin[OUTWARD] && p->seq == f->fin[OUTWARD]) {
		forget_close(f);
		f->fin[OUTWARD] = 0;
	}
	if (!f->ack[OUTWARD])
		f->ack[OUTWARD] = p->seq;
	if (p->tcp_flags & TCP_RST)
		return note_reset(f, p, INWARD);
	if (end - f->ack[OUTWARD] >= RESET_WINDOW)
		return 0;
	f->flags &= ~FLOW_RST;
	note_fin(f, p, INWARD);
	note_next(f, p, end + !!(p->tcp_flags & TCP_FIN));
	return 0;
}

/* drop counts a packet that cannot be led though it should be. */
static __noinline int count_drop(__u32 slot, __u32 d)
{
	struct total *t = total_of(slot);

	if (t)
		t->drops[d & 1]++;
	return TC_ACT_SHOT;
}

/* track counts a frame of that length, keeps its flow alive and reports whether
 * the packet ends it.
 */
inline_always int track(__u32 length, struct flow *f, const struct packet *p, enum direction d)
{
	__u32 tick = bpf_jiffies64();
	struct total *t = total_of(f->slot);

	if (t) {
		t->packets[d]++;
		t->bytes[d] += length;
	}
	if (f->tick != tick) {
		f->tick = tick;
		f->seen = bpf_ktime_get_coarse_ns();
	}
	if (d == OUTWARD && !(f->flags & FLOW_ANSWERED))
		f->flags |= FLOW_ANSWERED;
	if ((p->class & 1) || p->kind != PACKET_L4)
		return 0;
	if (!balancing || !(f->flags & FLOW_ONE_WAY))
		return update_close_state(f, p, d);
	if (d == INWARD)
		return update_close_one_way(f, p);
	if (!(f->flags & FLOW_CLIENT_CLOSED)) { /* answers pass here after all */
		f->flags &= ~FLOW_ONE_WAY;
		forget_close(f);
	}
	return update_close_state(f, p, d);
}

/* is_flow_of reports whether the flow is of that client and what it has dialled. */
inline_always int is_flow_of(const struct flow *f, const struct alias_key *name)
{
	return f->host_port == name->host_port && f->client_port == name->client_port &&
	       same(&f->host, &name->host) && same(&f->client, &name->client);
}
