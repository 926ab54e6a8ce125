/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
/* The table of virtual services, and the choice of a real server.
 *
 * Theory of operation. A frontend (address, port, protocol) refers to its service's
 * ring: a list of slots of real servers. If flows are hashed, the ring is a Maglev
 * table. For round robin it has the real servers in their order. If the load decides, it
 * has each real server once. User space writes a new ring beside the old one and then
 * changes the frontend, so no packet sees a partial ring. All rings are in a few large
 * maps, the chunks.
 */
#pragma once

#include "maps.h"

#define MAX_SERVICES 8192
#define MAX_FRONTENDS 65536

/* A chunk contains rings, with four slots per word. */
#define CHUNK_WORDS 131072
#define MAX_CHUNKS 256

/* Flags that user space sets for all services together. */
enum served_flags {
	SERVED = 1 << 0,        /* there are services */
	SERVED_REMOTE = 1 << 1, /* some real servers are on other hosts: replies arrive via uplinks */
};

struct {
	__uint(type, BPF_MAP_TYPE_ARRAY);
	__uint(max_entries, 1);
	__type(key, __u32);
	__type(value, __u32);
} fl_served SEC(".maps");

struct frontend_key {
	struct address host;
	__be16 port;
	__u16 class;
};

/* How a real server is chosen. */
enum scheduling {
	BY_FLOW,   /* the client's and the service's address and port, hashed */
	BY_CLIENT, /* the client's address, hashed */
	BY_TURN,   /* round robin */
	BY_LOAD,   /* the one with the fewest flows for its weight */
	BY_COUNT,  /* the one with the fewest flows */
};

/* How packets reach a real server on another host if they are not translated. */
enum forwarding {
	FORWARD_DIRECT = 1, /* to its MAC address */
	FORWARD_TUNNEL = 2, /* encapsulated in a packet to its own address */
};

/* The number of real servers whose load is compared at most. */
#define MAX_LOADED 256

struct frontend {
	__u32 service;
	__u32 chunk, first; /* the ring's chunk and first word */
	__u32 buckets;      /* the ring's length in slots */
	__u32 persistence;  /* how long a client address keeps its real server, in seconds */
	__u16 nth;          /* the frontend's index in the service's list; only user space reads it */
	__u8 scheduling;
	__u8 direct;        /* enum forwarding; 0: packets are translated */
};

struct {
	__uint(type, BPF_MAP_TYPE_HASH);
	__uint(max_entries, MAX_FRONTENDS);
	__uint(map_flags, BPF_F_NO_PREALLOC);
	__type(key, struct frontend_key);
	__type(value, struct frontend);
} fl_frontends SEC(".maps");

struct chunk {
	__uint(type, BPF_MAP_TYPE_ARRAY);
	__uint(max_entries, CHUNK_WORDS);
	__uint(map_flags, BPF_F_MMAPABLE);
	__type(key, __u32);
	__type(value, __u64);
};

struct {
	__uint(type, BPF_MAP_TYPE_ARRAY_OF_MAPS);
	__uint(max_entries, MAX_CHUNKS);
	__type(key, __u32);
	__array(values, struct chunk);
} fl_rings SEC(".maps");

/* State of a service: the round robin counter, the GUE port, and for user space its name
 * and scheduler.
 */
struct service {
	__u32 turn;
	__u8 scheduler;
	__u8 name[129];
	__be16 gue; /* the UDP port on which real servers accept GUE; 0: IP in IP */
};

struct {
	__uint(type, BPF_MAP_TYPE_ARRAY);
	__uint(max_entries, MAX_SERVICES);
	__uint(map_flags, BPF_F_MMAPABLE);
	__type(key, __u32);
	__type(value, struct service);
} fl_services SEC(".maps");

enum real_flags {
	REAL_REMOTE = 1 << 0,     /* on another host or LAN: the next hop is looked up */
	REAL_MASQUERADE = 1 << 1, /* it sees the address seen of this host as the client */
	REAL_DRAINING = 1 << 2,   /* it keeps its flows; user space removes it from the ring */
	REAL_TUNNEL = 1 << 3,     /* packets are encapsulated, with the source address seen */
	REAL_LOCAL = 1 << 4,      /* it is the host itself: the kernel delivers the packets */
};

/* A real server of a service. Slot 0 is never used. */
struct real {
	struct address to;
	struct address seen; /* the source that it sees instead of the client, or a tunnel's outer source */
	__u32 ifindex;       /* the host's end of its link, or the link towards it */
	__u32 generation;    /* counts the real servers that the slot has had; 0: it has none */
	__u32 weight;
	__u32 service;
	__be16 port;         /* 0: the port that the client dialled */
	__u16 flags;
	__u32 last_generation; /* the generation of the slot's last real server */
};

struct {
	__uint(type, BPF_MAP_TYPE_ARRAY);
	__uint(max_entries, MAX_REALS);
	__uint(map_flags, BPF_F_MMAPABLE);
	__type(key, __u32);
	__type(value, struct real);
} fl_reals SEC(".maps");

/* Counters of a real server's flows. */
struct load {
	__u32 active;   /* current flows */
	__u32 local;    /* current sockets of processes of the host that are connected to it */
	__u64 retries;  /* repeated SYNs that it had not answered */
	__u64 refusals; /* SYNs that it answered with a reset */
	__u64 resets;   /* open connections that it has reset */
};

struct {
	__uint(type, BPF_MAP_TYPE_ARRAY);
	__uint(max_entries, MAX_REALS);
	__uint(map_flags, BPF_F_MMAPABLE);
	__type(key, __u32);
	__type(value, struct load);
} fl_loads SEC(".maps");

/* The real server that a client address keeps (persistence). */
struct affinity_key {
	struct address client;
	__u32 service;
};

struct affinity {
	__u32 real;
	__u32 generation;
	__u64 last; /* bpf_ktime_get_coarse_ns at its last new flow */
};

struct {
	__uint(type, BPF_MAP_TYPE_LRU_HASH);
	__uint(max_entries, 65536);
	__type(key, struct affinity_key);
	__type(value, struct affinity);
} fl_affinities SEC(".maps");

/* has_services reports whether there are services of that kind (enum served_flags). */
inline_always int has_services(__u32 kind)
{
	__u32 slot = 0, *flags;

	if (!balancing)
		return 0;
	flags = bpf_map_lookup_elem(&fl_served, &slot);
	return flags && (*flags & kind);
}

inline_always struct real *real_of(__u32 slot)
{
	return bpf_map_lookup_elem(&fl_reals, &slot);
}

inline_always struct load *load_of(__u32 slot)
{
	slot &= ~REAL_BIT;
	return bpf_map_lookup_elem(&fl_loads, &slot);
}

/* accepts_flows reports whether new flows may go to the real server. */
inline_always int accepts_flows(const struct real *r)
{
	return r->generation && r->weight && !(r->flags & REAL_DRAINING);
}

/* ring_at returns the slot at an index of the ring. */
inline_always __u32 ring_at(const struct frontend *f, __u32 i)
{
	__u32 chunk = f->chunk, word = f->first + i / 4;
	void *ring = bpf_map_lookup_elem(&fl_rings, &chunk);
	__u64 *slots;

	if (!ring)
		return 0;
	slots = bpf_map_lookup_elem(ring, &word);
	return slots ? (*slots >> (i % 4 * 16)) & 0xffff : 0;
}

/* hash_word adds a word to a hash (MurmurHash3 by Austin Appleby, public domain). */
inline_always __u32 hash_word(__u32 h, __u32 w)
{
	w *= 0xcc9e2d51;
	w = w << 15 | w >> 17;
	h ^= w * 0x1b873593;
	return (h << 13 | h >> 19) * 5 + 0xe6546b64;
}

inline_always __u32 hash_address(__u32 h, const struct address *a)
{
	h = hash_word(h, a->w[0]);
	h = hash_word(h, a->w[1]);
	h = hash_word(h, a->w[2]);
	return hash_word(h, a->w[3]);
}

inline_always __u32 hash_finish(__u32 h)
{
	h ^= h >> 16;
	h *= 0x85ebca6b;
	h ^= h >> 13;
	h *= 0xc2b2ae35;
	return h ^ h >> 16;
}

/* The addresses and ports of a flow for which a real server is chosen. */
struct tuple {
	struct address client, host;
	__be16 client_port, host_port;
};

/* hash_of returns the hash of a flow, or of the client's address only. It is the same on
 * every host, so that hosts with the same table choose the same real server.
 */
inline_always __u32 hash_of(const struct tuple *w, int whole)
{
	__u32 h = hash_address(0, &w->client);

	if (!whole)
		return hash_finish(h);
	return hash_finish(hash_word(hash_address(h, &w->host), (__u32)bpf_ntohs(w->client_port) << 16 | bpf_ntohs(w->host_port)));
}

/* score_of returns the load of the real server at an index of the ring: the flows that
 * it would have, divided by its weight. The lowest bits are its slot, and random bits
 * above them decide between equals. The score is the highest if the real server accepts
 * no new flows.
 */
inline_always __u64 score_of(const struct frontend *f, __u32 i)
{
	__u64 score;
	struct real *r;
	struct load *l;
	__u32 slot = ring_at(f, i);

	r = real_of(slot);
	l = load_of(slot);
	if (!slot || !r || !l || !accepts_flows(r))
		return ~0ULL;
	score = ((__s32)l->active < 0 ? 0 : (__u64)l->active) + l->local + 1;
	score <<= 20;
	if (f->scheduling == BY_LOAD)
		score /= r->weight;
	if (score > 0xfffffffe)
		score = 0xfffffffe;
	return score << 32 | (bpf_get_prandom_u32() & 0xffff0000) | slot;
}

/* lower_score returns the score of the real server at an index of the ring, or another
 * one that is lower. Without a branch in its loop, the verifier follows only one path.
 */
global_func __u64 lower_score(const struct frontend *f, __u32 i, __u64 least)
{
	__u64 score = balancing && f ? score_of(f, i) : ~0ULL;

	return score < least ? score : least;
}

/* lowest_of_part does the same for PART real servers from an index on. */
global_func __u64 lowest_of_part(const struct frontend *f, __u32 first, __u64 least)
{
	if (!balancing || !f)
		return least;
	for (__u32 i = 0; i < PART && first + i < f->buckets; i++)
		least = lower_score(f, first + i, least);
	return least;
}

/* least_loaded returns the real server of the ring with the lowest score. */
global_func __u32 least_loaded(const struct frontend *f)
{
	__u64 least = ~0ULL;

	if (!balancing || !f)
		return 0;
	for (__u32 i = 0; i < MAX_LOADED && i < f->buckets; i += PART)
		least = lowest_of_part(f, i, least);
	return least == ~0ULL ? 0 : least & 0xffff;
}

/* schedule returns the slot of a real server chosen by the service's scheduler. */
inline_always __u32 schedule(const struct frontend *f, const struct tuple *w)
{
	__u32 id = f->service, n = f->buckets;
	struct service *s;

	if (!n)
		return 0;
	if (f->scheduling == BY_LOAD || f->scheduling == BY_COUNT)
		return least_loaded(f);
	if (f->scheduling == BY_TURN) {
		s = bpf_map_lookup_elem(&fl_services, &id);
		return s ? ring_at(f, __sync_fetch_and_add(&s->turn, 1) % n) : 0;
	}
	return ring_at(f, (__u64)hash_of(w, f->scheduling == BY_FLOW) * n >> 32);
}

/* affine_real returns the real server that the client's address keeps, 0 for none. */
inline_always __u32 affine_real(const struct frontend *f, const struct affinity_key *key, __u64 now)
{
	struct affinity *a = bpf_map_lookup_elem(&fl_affinities, key);
	struct real *r;
	__u32 slot;

	/* Another CPU may store a later time after this one has read the clock. */
	if (!a || (__s64)(now - a->last) > (__s64)f->persistence * 1000000000LL)
		return 0;
	slot = a->real;
	r = real_of(slot);
	if (!r || r->generation != a->generation || !accepts_flows(r))
		return 0;
	a->last = now;
	return slot;
}

/* choose_real returns the slot of the real server for a new flow, 0 for none. */
static __noinline __u32 choose_real(const struct frontend *f, const struct tuple *w)
{
	struct affinity_key key = { .client = w->client, .service = f->service };
	struct affinity fresh = {};
	struct real *r;
	__u32 slot;

	if (f->persistence) {
		fresh.last = bpf_ktime_get_coarse_ns();
		slot = affine_real(f, &key, fresh.last);
		if (slot)
			return slot;
	}
	slot = schedule(f, w);
	r = real_of(slot);
	if (!f->persistence || !slot || !r)
		return slot;
	fresh.real = slot;
	fresh.generation = r->generation;
	bpf_map_update_elem(&fl_affinities, &key, &fresh, BPF_ANY);
	return slot;
}

inline_always struct frontend *find_frontend(const struct address *host, __be16 port, __u32 class)
{
	struct frontend_key key = { .host = *host, .port = port, .class = class };

	return bpf_map_lookup_elem(&fl_frontends, &key);
}

/* is_direct_answer reports whether the packet is from the address and port of a service whose
 * real servers have this address, too.
 */
inline_always int is_direct_answer(const struct packet *p)
{
	struct frontend *f = find_frontend(&p->src, p->sport, p->class);

	return p->kind == PACKET_L4 && f && f->direct == FORWARD_DIRECT;
}
