/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
/* Theory of operation. When a process of the host connects to a published port, the
 * destination is translated in the socket call. The socket connects to the endpoint
 * itself, its packets are routed there, and no packet is rewritten. The dialled address
 * is stored with the socket, and getpeername and recvmsg return it to the process.
 *
 *	connect 127.0.0.1:80 ──[translate]── 10.0.0.2:8080
 *	getpeername = 127.0.0.1:80 ──[restore]── 10.0.0.2:8080
 *
 * Calls to a virtual service are translated in the same way. A socket keeps its real
 * server for all datagrams to the service, and counts as one of its flows until it is
 * closed (release.c). With direct forwarding, too, the socket connects to the real
 * server's own address.
 *
 * When the mapping or the real server is deleted, sock_iter.c finds the socket, and user
 * space closes it.
 *
 * A call that is not translated reaches the socket that listens on the host: the proxy,
 * if it has bound the port. These are calls that the endpoint could not answer (from a
 * loopback address, from a device), or that the socket could not make (IPv4 to an IPv6
 * endpoint, IPv6 datagrams to an IPv4 endpoint).
 *
 * Limit: no kernel shows a program whether an IPv6 socket has IPV6_V6ONLY. The call of
 * such a socket cannot be translated to an IPv4 endpoint: its connect fails with
 * ENETUNREACH.
 */
#pragma once

#include "dialled.h"
#include "services.h"

#include <linux/errno.h>
#include <linux/in.h>

/* The results of a hook: the call continues, or fails. */
#define PROCEED 1
#define REFUSE 0

/* The address families to which a call can be translated. */
#define REACH_V4 (1 << 0)
#define REACH_V6 (1 << 1)

/* A socket call in progress. */
struct call {
	struct dialled_slot ends;
	struct address source; /* the source address that the socket uses, or shall use; all zero: any */
	__u32 udp;
	__u32 reach;
	__u32 slot; /* the slot of the mapping or real server that translates it */
	__u32 refused; /* it is for a service without an available real server */
};

/* is_host_socket reports whether the call may be translated: TCP or UDP, of a socket in
 * the host's network namespace.
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

/* is_wildcard reports whether an address stands for all addresses of its family. */
inline_always int is_wildcard(const struct address *a)
{
	return !a->w[3] && (is_unset(a) || is_v4(a));
}

/* reject makes the call fail with the error, or with EPERM if the kernel does not let a
 * program set the error.
 */
inline_always int reject(int error)
{
	if (have_retval)
		bpf_set_retval(-error);
	return REFUSE;
}

/* resolve_unspecified replaces the unspecified address with loopback, as the kernel
 * does.
 */
inline_always void resolve_unspecified(struct address *a)
{
	if (is_unset(a))
		a->w[3] = bpf_htonl(1);
	else if (is_v4(a) && !a->w[3])
		a->w[3] = bpf_htonl(INADDR_LOOPBACK);
}

/* can_reach reports whether the socket can connect to the endpoint and receive its
 * replies.
 */
inline_always int can_reach(const struct call *c, const struct address *to)
{
	int v4 = is_v4(to);

	if (!(c->reach & (v4 ? REACH_V4 : REACH_V6)))
		return 0;
	return is_unset(&c->source) || (!is_loopback(&c->source) && is_v4(&c->source) == v4);
}

/* translate_by_mapping finds the endpoint of the port mapping for the call, and reports
 * whether there is one.
 */
global_func int translate_by_mapping(struct call *c)
{
	struct address host;
	struct mapping *l;
	__u16 port;

	if (!c)
		return 0;
	resolve_unspecified(&c->ends.host);
	host = c->ends.host; /* before Linux 6.2 a map key must be in the function's own stack frame */
	if (!is_loopback(&host) && !bpf_map_lookup_elem(&fl_addresses, &host))
		return 0;
	port = bpf_ntohs(c->ends.host_port);
	l = find_mapping(CLASS(!is_v4(&host), c->udp), &host, port, &c->slot);
	if (!l || (l->flags & MAPPING_GRANT) || !can_reach(c, &l->to))
		return 0;
	c->ends.to = l->to;
	c->ends.to_port = endpoint_port_of(l, port);
	if (is_link_local(&host) && is_unset(&c->source) && !is_v4(&l->to))
		c->source = l->masquerade;
	return 1;
}

/* is_current_real reports whether the slot still has the real server of that generation. */
inline_always int is_current_real(__u32 slot, __u32 generation)
{
	struct real *r = real_of(slot);

	return r && r->generation == generation;
}

/* live_slot_of returns the index of the entry for the dialled address whose real server
 * is still current, or DIALLED_SLOTS.
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

/* reuse_real translates a datagram to the real server that the socket already uses, and
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

/* translate_by_service chooses a real server if the call is for a service, and reports
 * whether the call is translated. The client's port is not known yet, so a random one is
 * hashed.
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

/* dialled_slot_of returns the index of the entry with the same translated address as s,
 * or DIALLED_SLOTS.
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

/* count_socket adds one (1 or -1) to the number of sockets of the entry's real server.
 * It does nothing if the slot has another real server now.
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

/* put_slot overwrites an entry of the socket and updates the numbers of sockets of the
 * real servers.
 */
static __noinline void put_slot(struct dialled_slot *slot, const struct dialled_slot *s)
{
	if (balancing && (slot->real != s->real || slot->generation != s->generation)) {
		count_socket(slot, -1);
		count_socket(s, 1);
	}
	*slot = *s;
}

/* The result of store_dialled: the socket has connected there before, has not, or there
 * is no memory.
 */
enum store_result { ALREADY_STORED, NEWLY_STORED, NOT_STORED };

/* store_dialled stores the dialled address with the socket. */
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

/* forget_dialled deletes the entry of an endpoint that the socket now dials by its own
 * address, so that replies show that address. It skips a connected IPv6 socket, because
 * the kernel calls this hook for each of its datagrams to the IPv4-mapped peer.
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

/* translate_call translates the call if a mapping or service matches, and reports
 * whether the hook must write the new destination.
 */
inline_always int translate_call(struct bpf_sock_addr *ctx, struct call *c)
{
	enum store_result how;

	c->ends.host_port = ctx->user_port;
	c->udp = ctx->protocol == IPPROTO_UDP;
	/* A socket that is bound to a device would search for the endpoint there. */
	if (!ctx->sk->bound_dev_if &&
	    (translate_by_mapping(c) || (has_services(SERVED) && (reuse_real(ctx, c) || translate_by_service(c))))) {
		how = store_dialled(ctx, &fl_dialled, &c->ends);
		if (how == NEWLY_STORED)
			count_flow(c->slot);
		return how != NOT_STORED;
	}
	forget_dialled(ctx, &fl_dialled, c);
	return 0;
}

/* hook_result returns the hook's result for the call. */
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

/* read_source reads the address to which a socket is bound. */
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

/* set_source_v6 sets the source address of a datagram. With a source address the kernel
 * also finds routes that do not use the link of a link-local destination.
 */
inline_always void set_source_v6(struct bpf_sock_addr *ctx, const struct address *a)
{
	ctx->msg_src_ip6[0] = a->w[0];
	ctx->msg_src_ip6[1] = a->w[1];
	ctx->msg_src_ip6[2] = a->w[2];
	ctx->msg_src_ip6[3] = a->w[3];
}

inline_always void set_user_v4(struct bpf_sock_addr *ctx, const struct address *a, __be16 port)
{
	ctx->user_ip4 = a->w[3];
	ctx->user_port = port;
}

/* find_dialled returns the entry with the dialled address of a socket that was
 * translated to s->to, or NULL.
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

/* restore_dialled_v4 replaces the endpoint's address in a result to the process with the
 * dialled address.
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
