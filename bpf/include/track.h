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

/* A reset further off than this from what was acknowledged ends nothing: it
 * may be forged (RFC 5961).
 */
#define RESET_WINDOW (1 << 20)

/* How far an acknowledgement may run ahead of what is noted of it. Both
 * directions run on different CPUs, and each note costs the other one a miss.
 */
#define ACK_STEP (RESET_WINDOW / 4)

enum direction { INWARD, OUTWARD };

/* name_answer makes the key of the flow that the packet is an answer in. */
inline_always void name_answer(struct flow_key *key, const struct packet *p)
{
	key->endpoint = p->src;
	key->client = p->dst;
	key->endpoint_port = p->sport;
	key->client_port = p->dport;
	key->plane = p->plane;
}

/* to_client makes the ends that an answer has for the client of the flow. */
inline_always void to_client(struct ends *to, const struct flow *f)
{
	to->src = &f->host;
	to->dst = &f->client;
	to->sport = f->host_port;
	to->dport = f->client_port;
}

inline_always struct flow *find_flow(const struct flow_key *key)
{
	struct flow *f;

	if (key->plane & 1)
		return bpf_map_lookup_elem(&flows_udp, key);
	f = bpf_map_lookup_elem(&flows_tcp, key);
	return f || !is_served_any(SERVED) ? f : bpf_map_lookup_elem(&young_flows, key);
}

inline_always long put_flow(const struct flow_key *key, const struct flow *flow, __u64 how)
{
	if (key->plane & 1)
		return bpf_map_update_elem(&flows_udp, key, flow, how);
	return bpf_map_update_elem(&flows_tcp, key, flow, how);
}

inline_always void drop_flow(const struct flow_key *key)
{
	if (key->plane & 1)
		bpf_map_delete_elem(&flows_udp, key);
	else if (bpf_map_delete_elem(&flows_tcp, key) && balancing)
		bpf_map_delete_elem(&young_flows, key);
}

/* has_alias reports whether the endpoint knows the client by another name. */
inline_always int has_alias(const struct flow *f, const struct flow_key *key)
{
	return key->client_port != f->client_port || !same(&key->client, &f->client);
}

/* drop_alias forgets the flow's alias: those left behind would push the
 * aliases of idle connections out of their map.
 */
static __noinline void drop_alias(const struct flow *f, __u32 plane)
{
	struct alias_key name = {
		.client = f->client, .host = f->host,
		.client_port = f->client_port, .host_port = f->host_port, .plane = plane,
	};

	bpf_map_delete_elem(&aliases, &name);
}

/* drop_conn forgets the connection of a flow to a real server, which then has
 * one less.
 */
static __noinline void drop_conn(const struct flow *f, __u32 plane)
{
	struct alias_key name = {
		.client = f->client, .host = f->host,
		.client_port = f->client_port, .host_port = f->host_port, .plane = plane,
	};
	struct load *l = load_of(f->lead);

	if (plane & 1)
		bpf_map_delete_elem(&conns_udp, &name);
	else if (bpf_map_delete_elem(&conns_tcp, &name))
		bpf_map_delete_elem(&young_conns, &name);
	if (l && l->active)
		__sync_fetch_and_add(&l->active, -1);
}

/* end_flow forgets a flow. */
inline_always void end_flow(const struct flow *f, const struct flow_key *key)
{
	if (is_real(f->lead))
		drop_conn(f, key->plane);
	else if (has_alias(f, key))
		drop_alias(f, key->plane);
	drop_flow(key);
}

/* is_stale reports whether the flow has been silent for too long. The clock,
 * which costs a call, is read once in a tick of the kernel's own.
 */
inline_always int is_stale(const struct flow *f, __u32 plane)
{
	__u64 idle;

	if (f->tick == bpf_jiffies64())
		return 0;
	idle = bpf_ktime_get_coarse_ns() - f->seen;
	if (plane & 1)
		return idle > ((f->flags & FLOW_ANSWERED) ? UDP_ANSWERED : UDP_UNANSWERED);
	return idle > ((f->flags & FLOW_ANSWERED) ? TCP_ANSWERED : TCP_UNANSWERED);
}

#define FLOW_CLOSING (FLOW_FIN_IN | FLOW_FIN_OUT | FLOW_ACK_IN | FLOW_ACK_OUT)

/* begin_again forgets how far the flow's earlier connection was closed: a
 * client may use a port again though the last of it was never seen.
 */
inline_always void begin_again(struct flow *f)
{
	f->flags &= ~FLOW_CLOSING;
	f->ack[INWARD] = 0;
	f->ack[OUTWARD] = 0;
}

/* closes notes the ends of a connection, and reports whether this packet is
 * its last: both sides' FIN acknowledged, or a reset that its receiver will
 * take for one.
 */
inline_always int closes(struct flow *f, const struct packet *p, enum direction d)
{
	__u32 other = !d;

	if ((p->tcp_flags & TCP_SYN) && (f->flags & FLOW_CLOSING))
		begin_again(f);
	if (p->tcp_flags & TCP_RST)
		return p->seq - f->ack[other] < RESET_WINDOW;
	if (p->tcp_flags & TCP_FIN) {
		f->fin[d] = p->seq + p->payload + 1;
		f->flags |= d == INWARD ? FLOW_FIN_IN : FLOW_FIN_OUT;
	}
	if (!(p->tcp_flags & TCP_ACK))
		return 0;
	if (p->ack - f->ack[d] >= ACK_STEP || !f->ack[d] || (f->flags & FLOW_RESET))
		f->ack[d] = p->ack;
	if ((f->flags & (d == INWARD ? FLOW_FIN_OUT : FLOW_FIN_IN)) && (__s32)(p->ack - f->fin[other]) >= 0)
		f->flags |= d == INWARD ? FLOW_ACK_IN : FLOW_ACK_OUT;
	return (f->flags & FLOW_ACK_IN) && (f->flags & FLOW_ACK_OUT);
}

/* drop counts a packet that cannot be led though it should be. */
static __noinline int drop(__u32 slot, __u32 d)
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
	__u64 tick = bpf_jiffies64();
	struct total *t = total_of(f->lead);

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
	if ((p->plane & 1) || p->kind != PACKET_L4)
		return 0;
	return closes(f, p, d);
}

/* is_named reports whether the flow is of that client and what it has dialled. */
inline_always int is_named(const struct flow *f, const struct alias_key *name)
{
	return f->host_port == name->host_port && f->client_port == name->client_port &&
	       same(&f->host, &name->host) && same(&f->client, &name->client);
}
