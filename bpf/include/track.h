/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
/* Creates flows, keeps them alive and detects their end. */
#pragma once

#include "packet.h"
#include "services.h"

#define SECOND 1000000000ULL

/* How long an idle flow is kept: the timeouts of the kernel's conntrack
 * (Documentation/networking/nf_conntrack-sysctl.rst).
 */
#define UDP_UNANSWERED (30 * SECOND)
#define UDP_ANSWERED (120 * SECOND)
#define TCP_UNANSWERED (60 * SECOND)
#define TCP_ANSWERED (5ULL * 24 * 3600 * SECOND)
#define TCP_CLOSING (120 * SECOND)
#define TCP_RESET (10 * SECOND)

/* How long an open connection may be idle if only the client's packets pass this host: a
 * reset by the server is not seen. RFC 5382, REQ-5, demands 124 minutes.
 */
#define TCP_ONE_WAY (124ULL * 60 * SECOND)

/* A reset further than this from the acknowledged sequence number does not end the
 * connection, because it may be forged (RFC 5961).
 */
#define RESET_WINDOW (1 << 20)

/* How far an acknowledgement may be ahead of the stored one. The two directions are
 * processed on different CPUs, and every store costs the other CPU a cache miss.
 */
#define ACK_STEP (RESET_WINDOW / 4)

enum direction { INWARD, OUTWARD };

/* reply_key makes the key of the flow to which the packet is a reply. */
inline_always void reply_key(struct flow_key *key, const struct packet *p)
{
	key->endpoint = p->src;
	key->client = p->dst;
	key->endpoint_port = p->sport;
	key->client_port = p->dport;
	key->class = p->class;
}

/* reply_ends returns the addresses and ports that a reply has for the flow's client. */
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

/* search_flow does the same in fewer instructions of the program, for packets that are rare. */
static __noinline struct flow *search_flow(const struct flow_key *key) { return find_flow(key); }

/* find_likely_flow finds a flow that is half-open as a rule if half_open is set. */
inline_always struct flow *find_likely_flow(const struct flow_key *key, int half_open)
{
	struct flow *f;

	if (!half_open || key->class & 1)
		return find_flow(key);
	f = bpf_map_lookup_elem(&fl_young_flows, key);
	return f ? f : bpf_map_lookup_elem(&fl_flows_tcp, key);
}

/* find_young_flow finds a flow that has just been inserted (insert_young). */
inline_always struct flow *find_young_flow(const struct flow_key *key)
{
	return (key->class & 1) ? bpf_map_lookup_elem(&fl_flows_udp, key) : bpf_map_lookup_elem(&fl_young_flows, key);
}

/* insert_young inserts a new flow into the map of half-open flows (UDP: of flows) and
 * returns 0. It fails if another flow has the key.
 */
static __noinline long insert_young(const struct flow_key *key, const struct flow *fresh)
{
	if (key->class & 1)
		return bpf_map_update_elem(&fl_flows_udp, key, fresh, BPF_NOEXIST);
	if (bpf_map_lookup_elem(&fl_flows_tcp, key))
		return -1;
	return bpf_map_update_elem(&fl_young_flows, key, fresh, BPF_NOEXIST);
}

/* promote_flow moves a flow into the map of open flows. The caller must not use the flow
 * any more, because the kernel may reuse its memory.
 */
static __noinline void promote_flow(const struct flow_key *of, struct flow *f)
{
	struct flow_key key = *of; /* Linux 6.1 requires keys and values of maps on the stack. */
	struct flow open = *f;

	open.flags |= FLOW_OPEN;
	if (!bpf_map_update_elem(&fl_flows_tcp, &key, &open, BPF_ANY))
		bpf_map_delete_elem(&fl_young_flows, &key);
}

/* delete_flow deletes a flow and returns 0. It fails if another CPU has deleted it. */
inline_always long delete_flow(const struct flow_key *key)
{
	if (key->class & 1)
		return bpf_map_delete_elem(&fl_flows_udp, key);
	return bpf_map_delete_elem(&fl_flows_tcp, key) ? bpf_map_delete_elem(&fl_young_flows, key) : 0;
}

/* has_alias reports whether the endpoint sees the client under an alias. */
inline_always int has_alias(const struct flow *f, const struct flow_key *key)
{
	return key->client_port != f->client_port || !same(&key->client, &f->client);
}

/* scoped_class returns the class field of an alias key. It includes the link for
 * link-local addresses, which name different clients on different links.
 */
inline_always __u32 scoped_class(__u32 class, const struct address *client, __u32 ifindex)
{
	return is_link_local(client) ? class | ifindex << 2 : class;
}

/* The key of an alias or connection, which would be too large for the stack. */
struct {
	__uint(type, BPF_MAP_TYPE_PERCPU_ARRAY);
	__uint(max_entries, 1);
	__type(key, __u32);
	__type(value, struct alias_key);
} fl_name SEC(".maps");

/* name_of returns the key of the flow's alias or connection, with that class. The next
 * call overwrites it.
 */
inline_always struct alias_key *name_of(const struct flow *f, __u32 class)
{
	__u32 slot = 0;
	struct alias_key *name = bpf_map_lookup_elem(&fl_name, &slot);

	if (!name)
		return 0;
	name->client = f->client;
	name->host = f->host;
	name->client_port = f->client_port;
	name->host_port = f->host_port;
	name->class = class;
	return name;
}

/* alias_name returns the key of the flow's alias. */
inline_always struct alias_key *alias_name(const struct flow *f, __u32 class)
{
	return name_of(f, scoped_class(class, &f->client, f->ifindex));
}

/* delete_alias deletes the flow's alias. Aliases left over would push the aliases of
 * idle connections out of their map.
 */
static __noinline void delete_alias(const struct flow *f, __u32 class)
{
	struct alias_key *name = alias_name(f, class);

	if (name)
		bpf_map_delete_elem(&fl_aliases, name);
}

/* uncount subtracts a flow from the active count of the real server in a slot. User space
 * corrects that count, so it may already be without the flow.
 */
inline_always void uncount(__u32 slot)
{
	struct load *l = load_of(slot);

	if (l && (__s32)__sync_fetch_and_add(&l->active, -1) <= 0)
		__sync_fetch_and_add(&l->active, 1);
}

/* delete_conn deletes the connection of a flow to a real server. */
static __noinline void delete_conn(const struct flow *f, __u32 class)
{
	struct alias_key *name = name_of(f, class);

	if (!name)
		return;
	if (class & 1)
		bpf_map_delete_elem(&fl_conns_udp, name);
	else if (bpf_map_delete_elem(&fl_conns_tcp, name))
		bpf_map_delete_elem(&fl_young_conns, name);
}

/* The keys whose stale flows a CPU is replacing, for the time of one call. A CPU that finds a
 * key here, or no room, tries another port.
 */
struct {
	__uint(type, BPF_MAP_TYPE_HASH);
	__uint(max_entries, 1024);
	__type(key, struct flow_key);
	__type(value, __u8);
} fl_replaced SEC(".maps");

/* lock_name takes the lock of an outbound flow's name. It returns 0 if another CPU or user
 * space has it: none waits for a lock.
 */
inline_always int lock_name(const struct outbound_name *name)
{
	__u32 program = 0;

	return !bpf_map_update_elem(&fl_locked_names, name, &program, BPF_NOEXIST);
}

inline_always void unlock_name(const struct outbound_name *name) { bpf_map_delete_elem(&fl_locked_names, name); }

inline_always int same_owner(const struct outbound_owner *a, const struct outbound_owner *b)
{
	return a->endpoint == b->endpoint && a->port == b->port;
}

/* keep_port notes that the outbound connection of that owner had the port of the name. A
 * sandbox's port gets the same one again as a rule, so the entry exists.
 */
inline_always void keep_port(const struct outbound_name *name, const struct outbound_owner *owner)
{
	struct ended_port fresh = { .owner = *owner, .ended = bpf_ktime_get_coarse_ns() };
	struct ended_port *known = bpf_map_lookup_elem(&fl_ended_ports, name);

	if (known && same_owner(&known->owner, owner))
		known->ended = fresh.ended;
	else
		bpf_map_update_elem(&fl_ended_ports, name, &fresh, BPF_ANY);
}

/* end_outbound deletes an outbound flow, and releases its port. That of a connection is
 * kept for a while (is_kept in outbound.h). If another CPU has the name's lock, the entry
 * in fl_outbound stays: without its flow it is free.
 */
static __noinline void end_outbound(const struct flow *f, const struct flow_key *key)
{
	struct outbound_name name = {
		.client = f->client.w[3], .host = f->host.w[3], .client_port = f->client_port, .host_port = f->host_port,
		.class = key->class,
	};
	struct outbound_owner owner = { .endpoint = key->endpoint.w[3], .port = key->endpoint_port };
	struct outbound_owner *known;

	if (!lock_name(&name)) {
		delete_flow(key);
		return;
	}
	known = bpf_map_lookup_elem(&fl_outbound, &name);
	if (known && same_owner(known, &owner)) {
		if (!(key->class & 1))
			keep_port(&name, &owner);
		bpf_map_delete_elem(&fl_outbound, &name);
	}
	delete_flow(key);
	unlock_name(&name);
}

/* end_flow deletes a flow and its alias or connection. Of several CPUs that end a flow,
 * only the one that deletes it subtracts it from the real server's active count.
 */
global_func int end_flow(const struct flow *f, const struct flow_key *of)
{
	struct flow_key key;
	__u32 slot, counted;

	if (!f || !of)
		return 0;
	key = *of; /* Linux 6.1 requires keys of maps on the stack. */
	slot = f->slot;
	counted = !(f->flags & FLOW_CLIENT_CLOSED);
	if (f->flags & FLOW_OUTBOUND) {
		end_outbound(f, &key);
		return 0;
	}
	if (is_real(slot))
		delete_conn(f, key.class);
	else if (has_alias(f, &key))
		delete_alias(f, key.class);
	if (!delete_flow(&key) && is_real(slot) && counted)
		uncount(slot);
	return 0;
}

#define FLOW_CLOSING (FLOW_FIN_IN | FLOW_FIN_OUT | FLOW_ACK_IN | FLOW_ACK_OUT)
#define FLOW_RST (FLOW_RST_IN | FLOW_RST_OUT)

/* has_all reports whether the flow has all these flags. */
inline_always int has_all(const struct flow *f, __u32 flags) { return (f->flags & flags) == flags; }

/* is_closing reports whether one side has closed the connection. A client's FIN may be
 * forged, so it counts only after the endpoint has acknowledged it, if the endpoint's
 * packets pass this host.
 */
inline_always int is_closing(const struct flow *f)
{
	if (f->flags & FLOW_ONE_WAY)
		return f->flags & FLOW_FIN_IN;
	return f->flags & FLOW_FIN_OUT || has_all(f, FLOW_FIN_IN | FLOW_ACK_OUT);
}

/* idle_limit returns how long a TCP connection may be idle, in nanoseconds. */
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

/* udp_idle_limit returns how long a UDP flow may be idle, in nanoseconds. The ports of
 * outbound flows are few, so a question and its answer do not keep one for long.
 */
inline_always __u64 udp_idle_limit(const struct flow *f)
{
	if (!(f->flags & FLOW_ANSWERED) || (f->flags & (FLOW_OUTBOUND | FLOW_STREAM)) == FLOW_OUTBOUND)
		return UDP_UNANSWERED;
	return UDP_ANSWERED;
}

/* is_stale reports whether the flow has been idle for too long. Reading the clock costs
 * a helper call, so it is read once per kernel tick. Another CPU may store a later time
 * after this one has read the clock, so the difference has a sign.
 */
inline_always int is_stale(const struct flow *f, __u32 class)
{
	__s64 idle;

	if (f->tick == (__u32)bpf_jiffies64())
		return 0;
	idle = bpf_ktime_get_coarse_ns() - f->seen;
	return idle > (__s64)(class & 1 ? udp_idle_limit(f) : idle_limit(f));
}

/* The ports of aliases. User space sets them when it loads the programs: the host itself
 * does not connect from them (net.ipv4.ip_local_port_range), so that a reply to the host
 * is never taken for a reply to the client. If it connects from almost all ports,
 * aliases_shared is 1, and replies to aliases are compared with the host's connections.
 */
#define ALIAS_TRIES 16
const volatile __u32 alias_first = 1024;
const volatile __u32 alias_count = 32768 - 1024;
const volatile __u8 aliases_shared;

/* random_alias_port returns a port for an alias, in network byte order. */
inline_always __be16 random_alias_port(void)
{
	return bpf_htons(alias_first + bpf_get_prandom_u32() % alias_count);
}

/* An attempt to insert a flow under a key whose client is an alias, or under the name of an
 * outbound flow. It is too large for the stack, and Linux 6.1 does not accept arguments of
 * global functions as keys of maps.
 */
struct attempt {
	struct flow_key key;
	struct flow fresh;
	struct outbound_name name; /* of an outbound flow, as all that follows */
	struct outbound_owner owner;
	__u32 index; /* of the port that is tried next, among those of outbound flows */
	__u32 last;  /* whether that is the last try */
};

struct {
	__uint(type, BPF_MAP_TYPE_PERCPU_ARRAY);
	__uint(max_entries, 1);
	__type(key, __u32);
	__type(value, struct attempt);
} fl_attempt SEC(".maps");

inline_always struct attempt *attempt_of(void)
{
	__u32 slot = 0;

	return bpf_map_lookup_elem(&fl_attempt, &slot);
}

/* replace_stale replaces the flow under the key of the attempt if it is stale, and returns
 * 0 then. Without the mark, another CPU that has found the stale flow, too, would delete
 * the new one, and its client would get the replies of this one.
 */
inline_always int replace_stale(struct attempt *a)
{
	__u8 mark = 1;
	int failed = -1;
	struct flow *f;

	if (bpf_map_update_elem(&fl_replaced, &a->key, &mark, BPF_NOEXIST))
		return -1;
	f = search_flow(&a->key);
	if (f && is_stale(f, a->key.class)) {
		end_flow(f, &a->key);
		failed = insert_young(&a->key, &a->fresh) ? -1 : 0;
	}
	bpf_map_delete_elem(&fl_replaced, &a->key);
	return failed;
}

/* try_alias makes the attempt with a random port and returns 0 on success. A stale flow
 * that has the port is deleted: its client's next packet would do that, but most clients
 * send none, and their flows would use up all ports. The kernel verifies a global function
 * once, not for each call. bpf_loop would need Linux 5.17.
 */
global_func int try_alias(void)
{
	struct attempt *a = attempt_of();
	struct flow *f;

	if (!a)
		return -1;
	a->key.client_port = random_alias_port();
	if (!insert_young(&a->key, &a->fresh))
		return 0;
	f = search_flow(&a->key);
	return f && is_stale(f, a->key.class) ? replace_stale(a) : -1;
}

/* insert_alias inserts a new flow under an unused port of the key's client, which it
 * stores in the key, and returns 0. It fails if it finds no port.
 */
inline_always long insert_alias(struct flow_key *key, const struct flow *fresh)
{
	struct attempt *a = attempt_of();

	if (!a)
		return -1;
	a->key = *key;
	a->fresh = *fresh;
	for (int i = 0; i < ALIAS_TRIES; i++) {
		if (!try_alias()) {
			key->client_port = a->key.client_port;
			return 0;
		}
	}
	return -1;
}

/* is_bare_syn reports whether a TCP packet is the first SYN of a connection. */
inline_always int is_bare_syn(const struct packet *p)
{
	return (p->tcp_flags & (TCP_SYN | TCP_ACK | TCP_RST)) == TCP_SYN;
}

/* forget_close resets the close state of the flow's earlier connection, because the
 * client uses its port again.
 */
inline_always void forget_close(struct flow *f)
{
	f->flags &= ~(FLOW_CLOSING | FLOW_RST);
	f->ack[INWARD] = 0;
	f->ack[OUTWARD] = 0;
}

/* note_reset records a reset and reports whether it ends the connection immediately. A
 * client's reset does if its receiver must accept it (RFC 5961, 3.2), as far as the
 * sequence number is known. After any other plausible reset the flow's idle timeout is
 * short until a packet shows that the connection is alive, because an endpoint answers a
 * reset that it refuses with a challenge ACK. An endpoint's reset with sequence number 0
 * is the answer to a SYN.
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

/* is_near reports whether a client's packet has a sequence number near the one that the
 * endpoint acknowledged last.
 */
inline_always int is_near(const struct flow *f, const struct packet *p)
{
	return !f->ack[OUTWARD] || p->seq - f->ack[OUTWARD] + RESET_WINDOW < 2 * RESET_WINDOW;
}

/* note_fin records the FIN of a packet, unless it is older than the acknowledged data.
 * Data beyond a recorded FIN shows that the FIN was forged.
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

/* update_close_state records FINs and resets, and reports whether this packet is the
 * connection's last: both FINs are acknowledged, or its receiver will accept a reset. A
 * client's SYN changes nothing: an endpoint that knows the connection sends a challenge
 * ACK, and one that does not sends a SYN of its own or a reset.
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

/* note_next stores the sequence number after a client's packet, if the packet continues
 * the one before.
 */
inline_always void note_next(struct flow *f, const struct packet *p, __u32 end)
{
	__u32 ahead = end - f->ack[OUTWARD];

	if (ahead && ahead < RESET_WINDOW)
		f->ack[OUTWARD] = end;
	if (p->tcp_flags & TCP_ACK && f->ack[INWARD] != p->ack)
		f->ack[INWARD] = p->ack;
}

/* update_close_one_way does the same as update_close_state if only the client's packets
 * pass this host. It ignores packets that do not continue the data that the client sent
 * before. A client that uses its port again after its FIN has a new connection after it
 * acknowledged the answer to its SYN; fin[OUTWARD] stores that sequence number.
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

/* count_drop counts a packet that should be forwarded but cannot, and returns
 * TC_ACT_SHOT.
 */
global_func int count_drop(__u32 slot, __u32 d)
{
	struct total *t = total_of(slot);

	if (t)
		t->drops[d & 1]++;
	return TC_ACT_SHOT;
}

/* track counts a frame of that length, keeps its flow alive, and reports whether the
 * packet ends the flow.
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
		if (f->flags & FLOW_OUTBOUND && p->class & 1 && (__u32)(f->seen / SECOND) - f->fin[OUTWARD] >= 2)
			f->flags |= FLOW_STREAM;
	}
	if (!(f->flags & FLOW_ANSWERED) && d == (f->flags & FLOW_OUTBOUND ? INWARD : OUTWARD))
		f->flags |= FLOW_ANSWERED;
	if ((p->class & 1) || p->kind != PACKET_L4)
		return 0;
	if (!balancing || !(f->flags & FLOW_ONE_WAY))
		return update_close_state(f, p, d);
	if (d == INWARD)
		return update_close_one_way(f, p);
	if (!(f->flags & FLOW_CLIENT_CLOSED)) { /* replies pass this host after all */
		f->flags &= ~FLOW_ONE_WAY;
		forget_close(f);
	}
	return update_close_state(f, p, d);
}

/* track_request and track_reply call track for packets to an endpoint and from it. The
 * verifier checks them once, and not for each map that has the flow.
 */
global_func int track_request(__u32 length, struct flow *f, const struct packet *p)
{
	return f && p ? track(length, f, p, INWARD) : 0;
}

global_func int track_reply(__u32 length, struct flow *f, const struct packet *p)
{
	return f && p ? track(length, f, p, OUTWARD) : 0;
}

/* is_flow_of reports whether the flow has the client and dialled address of an alias
 * key.
 */
inline_always int is_flow_of(const struct flow *f, const struct alias_key *name)
{
	return f->host_port == name->host_port && f->client_port == name->client_port &&
	       same(&f->host, &name->host) && same(&f->client, &name->client);
}

/* is_flow_of_alias does the same. The verifier checks it once, and not for each map that has
 * the flow.
 */
global_func int is_flow_of_alias(const struct flow *f, const struct alias_key *name)
{
	return f && name && is_flow_of(f, name);
}
