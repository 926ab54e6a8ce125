/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
/* Theory of operation. A process of the host that dials a published port is
 * turned at the socket call: the socket really dials the endpoint, its packets
 * are routed there, and nothing is rewritten in any. What it has dialled stays
 * with the socket, and getpeername and recvmsg tell the process that.
 *
 *	connect 127.0.0.1:80 ──[turn]── 10.0.0.2:8080
 *	getpeername = 127.0.0.1:80 ──[turn back]── 10.0.0.2:8080
 *
 * A virtual service is dialled in the same way. A socket keeps the real server
 * that it was led to, for all datagrams to the service, and counts as one of its
 * flows until it is closed (release.c). Under direct forwarding, too, the real
 * server is called by its own address.
 *
 * When nothing leads there any more, astray.c finds the socket, and user space
 * ends it.
 *
 * A call that is not turned finds whatever listens on the host: the proxy,
 * where it holds the port. Those are calls that the endpoint could not answer
 * (from a loopback address, from a device), or that the socket could not make
 * (IPv4 to an IPv6 endpoint, IPv6 datagrams to an IPv4 endpoint).
 *
 * Limit: no kernel tells a program whether an IPv6 socket has IPV6_V6ONLY. One
 * that has cannot be turned to an IPv4 endpoint: its connect gets ENETUNREACH.
 */
#pragma once

#include "dialled.h"
#include "services.h"

#include <linux/errno.h>
#include <linux/in.h>

/* What a hook answers so that the call goes on, or does not. */
#define PROCEED 1
#define REFUSE 0

/* The families that a call can be turned to. */
#define REACH_V4 (1 << 0)
#define REACH_V6 (1 << 1)

/* What a process wants to reach. */
struct call {
	struct dialled_slot ends;
	struct address source; /* that it wants to be seen as; all zero: any */
	__u32 udp;
	__u32 reach;
	__u32 slot; /* the slot of the lead that it is turned by */
	__u32 refused; /* it is for a service that has no real server */
};

/* is_host_socket reports whether the call is one that may be turned: at a socket of
 * the host's namespace that may use any of its devices.
 */
inline_always int is_host_socket(struct bpf_sock_addr *ctx)
{
	return (ctx->protocol == IPPROTO_TCP || ctx->protocol == IPPROTO_UDP) &&
	       bpf_get_netns_cookie(ctx) == host_netns;
}

inline_always int is_unset(const struct address *a)
{
	return (a->w[0] | a->w[1] | a->w[2] | a->w[3]) == 0;
}

/* is_wildcard reports whether an address stands for all of its family. */
inline_always int is_wildcard(const struct address *a)
{
	return !a->w[3] && (is_unset(a) || is_v4(a));
}

/* refuse makes a bind fail with the error; with EPERM where the kernel cannot
 * be told another.
 */
inline_always int reject(int error)
{
	if (have_retval)
		bpf_set_retval(-error);
	return REFUSE;
}

/* resolve_unspecified names what the kernel takes the unspecified address for. */
inline_always void resolve_unspecified(struct address *a)
{
	if (is_unset(a))
		a->w[3] = bpf_htonl(1);
	else if (is_v4(a) && !a->w[3])
		a->w[3] = bpf_htonl(INADDR_LOOPBACK);
}

/* reaches reports whether the call can go to the endpoint, and its answers
 * come back.
 */
inline_always int can_reach(const struct call *c, const struct address *to)
{
	int v4 = is_v4(to);

	if (!(c->reach & (v4 ? REACH_V4 : REACH_V6)))
		return 0;
	return is_unset(&c->source) || (!is_loopback(&c->source) && is_v4(&c->source) == v4);
}

/* turn finds where the call is to be led, and reports whether anywhere. */
global_func int translate_by_mapping(struct call *c)
{
	struct address host;
	struct mapping *l;
	__u16 port;

	if (!c)
		return 0;
	resolve_unspecified(&c->ends.host);
	host = c->ends.host; /* before 6.2 no key of a map may lie with the caller */
	if (!is_loopback(&host) && !bpf_map_lookup_elem(&fl_addresses, &host))
		return 0;
	port = bpf_ntohs(c->ends.host_port);
	l = find_mapping(CLASS(!is_v4(&host), c->udp), &host, port, &c->slot);
	if (!l || (l->flags & MAPPING_GRANT) || !can_reach(c, &l->to))
		return 0;
	c->ends.to = l->to;
	c->ends.to_port = endpoint_port_of(l, port);
	return 1;
}

/* stands reports whether the real server is the one that it was. */
inline_always int is_current_real(__u32 slot, __u32 generation)
{
	struct real *r = real_of(slot);

	return r && r->generation == generation;
}

/* live_slot_of returns the slot of what the socket has dialled before and whose real
 * server stands, DIALLED_SLOTS if there is none.
 */
global_func __u32 live_slot_of(const struct dialled *d, const struct dialled_slot *s)
{
	if (!d || !s)
		return DIALLED_SLOTS;
	for (int i = 0; i < DIALLED_SLOTS; i++) {
		if (d->slots[i].real && d->slots[i].host_port == s->host_port && same(&d->slots[i].host, &s->host) &&
		    is_current_real(d->slots[i].real, d->slots[i].generation))
			return i;
	}
	return DIALLED_SLOTS;
}

/* reuse_real completes the call by what the socket was led to before, and
 * reports whether it could.
 */
inline_always int reuse_real(struct bpf_sock_addr *ctx, struct call *c)
{
	struct dialled *d = bpf_sk_storage_get(&fl_dialled, ctx->sk, 0, 0);
	__u32 slot;

	if (!d || !c->udp)
		return 0;
	slot = live_slot_of(d, &c->ends);
	if (slot >= DIALLED_SLOTS)
		return 0;
	c->ends = d->slots[slot];
	c->slot = REAL_BIT | c->ends.real;
	return 1;
}

/* serve finds the real server of the service that the call is for, and reports
 * whether the call is to be turned. A port of the client's own is not known
 * yet: where flows are hashed, any will do.
 */
static __noinline int translate_by_service(struct call *c)
{
	struct frontend *f = find_frontend(&c->ends.host, c->ends.host_port, CLASS(!is_v4(&c->ends.host), c->udp));
	struct tuple w = {};
	struct real *r;

	if (!f)
		return 0;
	w.client = is_unset(&c->source) ? c->ends.host : c->source;
	w.host = c->ends.host;
	w.client_port = bpf_get_prandom_u32();
	w.host_port = c->ends.host_port;
	c->ends.real = choose_real(f, &w);
	r = real_of(c->ends.real);
	if (!c->ends.real || !r || !r->generation) {
		c->refused = 1;
		return 0;
	}
	if (!can_reach(c, &r->to))
		return 0;
	c->ends.generation = r->generation;
	c->ends.to = r->to;
	c->ends.to_port = r->port ? r->port : c->ends.host_port;
	c->slot = REAL_BIT | c->ends.real;
	return 1;
}

/* slot_of returns the slot that leads to where s does, DIALLED_SLOTS if none
 * does.
 */
global_func __u32 dialled_slot_of(const struct dialled *d, const struct dialled_slot *s)
{
	if (!d || !s)
		return DIALLED_SLOTS;
	for (int i = 0; i < DIALLED_SLOTS; i++) {
		if (d->slots[i].to_port == s->to_port && same(&d->slots[i].to, &s->to))
			return i;
	}
	return DIALLED_SLOTS;
}

/* count_socket counts a socket for the real server that a slot leads it to, or
 * takes it off the count. Who has the slot now is another where made differs.
 */
inline_always void count_socket(const struct dialled_slot *s, __s32 one)
{
	struct load *l;

	if (!s->real || !is_current_real(s->real, s->generation))
		return;
	l = load_of(s->real);
	if (l && (one > 0 || l->local))
		__sync_fetch_and_add(&l->local, one);
}

/* put_slot has a slot of the socket's lead where s does, and nowhere if that
 * leads nowhere.
 */
static __noinline void put_slot(struct dialled_slot *slot, const struct dialled_slot *s)
{
	if (balancing && (slot->real != s->real || slot->generation != s->generation)) {
		count_socket(slot, -1);
		count_socket(s, 1);
	}
	*slot = *s;
}

/* What became of remember: the socket was led there before, is now, or cannot
 * be for want of memory.
 */
enum store_result { ALREADY_STORED, NEWLY_STORED, NOT_STORED };

/* remember keeps with the socket what it has dialled. */
inline_always enum store_result store_dialled(struct bpf_sock_addr *ctx, void *map, const struct dialled_slot *s)
{
	struct dialled *d = bpf_sk_storage_get(map, ctx->sk, 0, BPF_SK_STORAGE_GET_F_CREATE);
	__u32 slot;

	if (!d)
		return NOT_STORED;
	slot = dialled_slot_of(d, s);
	if (slot < DIALLED_SLOTS) {
		put_slot(&d->slots[slot], s);
		return ALREADY_STORED;
	}
	put_slot(&d->slots[d->next++ % DIALLED_SLOTS], s);
	return NEWLY_STORED;
}

/* forget makes answers from an endpoint that the socket dials by its own
 * address come from there. That is not what a connected IPv6 socket does whose
 * every datagram the kernel addresses anew to its mapped peer.
 */
inline_always void forget_dialled(struct bpf_sock_addr *ctx, void *map, const struct call *c)
{
	struct dialled *d = bpf_sk_storage_get(map, ctx->sk, 0, 0);
	struct dialled_slot direct = { .to = c->ends.host, .to_port = c->ends.host_port }, none = {};
	__u32 slot;

	if (!d || ctx->sk->state == BPF_TCP_ESTABLISHED)
		return;
	slot = dialled_slot_of(d, &direct);
	if (slot < DIALLED_SLOTS)
		put_slot(&d->slots[slot], &none);
}

/* translate_call completes the call and reports whether the hook shall put its new
 * destination into the process's.
 */
inline_always int translate_call(struct bpf_sock_addr *ctx, struct call *c)
{
	enum store_result how;

	c->ends.host_port = ctx->user_port;
	c->udp = ctx->protocol == IPPROTO_UDP;
	/* A socket bound to a device would look for the endpoint there. */
	if (!ctx->sk->bound_dev_if && (translate_by_mapping(c) || (has_services(SERVED) && (reuse_real(ctx, c) || translate_by_service(c))))) {
		how = store_dialled(ctx, &fl_dialled, &c->ends);
		if (how == NEWLY_STORED)
			count_flow(c->slot);
		return how != NOT_STORED;
	}
	forget_dialled(ctx, &fl_dialled, c);
	return 0;
}

/* verdict is what a hook answers to the call. */
inline_always int hook_result(const struct call *c)
{
	return c->refused ? reject(ECONNREFUSED) : PROCEED;
}

inline_always void copy_words(struct address *a, const __u32 *ip)
{
	a->w[0] = ip[0];
	a->w[1] = ip[1];
	a->w[2] = ip[2];
	a->w[3] = ip[3];
}

/* read_source notes the address that a socket is bound to. */
inline_always void read_source(struct address *a, struct bpf_sock *sk)
{
	if (sk->family == AF_INET6)
		copy_words(a, sk->src_ip6);
	else if (sk->src_ip4)
		map_v4(a, sk->src_ip4);
}

inline_always void set_user_v6(struct bpf_sock_addr *ctx, const struct address *a, __be16 port)
{
	ctx->user_ip6[0] = a->w[0];
	ctx->user_ip6[1] = a->w[1];
	ctx->user_ip6[2] = a->w[2];
	ctx->user_ip6[3] = a->w[3];
	ctx->user_port = port;
}

inline_always void set_user_v4(struct bpf_sock_addr *ctx, const struct address *a, __be16 port)
{
	ctx->user_ip4 = a->w[3];
	ctx->user_port = port;
}

/* recall returns what the socket had dialled when it was led to s->to, NULL
 * when it was not.
 */
inline_always const struct dialled_slot *find_dialled(struct bpf_sock_addr *ctx, void *map, struct dialled_slot *s)
{
	struct dialled *d = bpf_sk_storage_get(map, ctx->sk, 0, 0);
	__u32 slot;

	if (!d)
		return 0;
	s->to_port = ctx->user_port;
	slot = dialled_slot_of(d, s);
	return slot < DIALLED_SLOTS ? &d->slots[slot] : 0;
}

/* restore_dialled_v4 puts what was dialled in the place of an endpoint's address
 * that the process is about to be told.
 */
inline_always void restore_dialled_v4(struct bpf_sock_addr *ctx, void *map)
{
	const struct dialled_slot *known;
	struct dialled_slot s = {};

	map_v4(&s.to, ctx->user_ip4);
	known = find_dialled(ctx, map, &s);
	if (known)
		set_user_v4(ctx, &known->host, known->host_port);
}

inline_always void restore_dialled_v6(struct bpf_sock_addr *ctx, void *map)
{
	const struct dialled_slot *known;
	struct dialled_slot s = {};

	copy_words(&s.to, ctx->user_ip6);
	known = find_dialled(ctx, map, &s);
	if (known)
		set_user_v6(ctx, &known->host, known->host_port);
}
