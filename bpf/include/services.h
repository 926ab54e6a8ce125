/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
/* The table of virtual services, and the choice of a real server.
 *
 * Theory of operation. A frontend (address, port, protocol) leads to the
 * service's ring: a list of slots of real servers. Where flows are hashed it is
 * a Maglev table, where they take turns the order of those; where the load
 * decides it has each real server once. User space writes a new ring beside the
 * old one and then changes the frontend, so that no packet sees half of one.
 * All rings lie in a few large maps, their chunks.
 */
#pragma once

#include "maps.h"

#define MAX_SERVICES 8192
#define MAX_FRONTENDS 65536

/* A chunk holds rings: four slots in each word. */
#define CHUNK_WORDS 131072
#define MAX_CHUNKS 256

/* What user space says of the services as a whole. */
enum served_flags {
	SERVED = 1 << 0,        /* there are services */
	SERVED_REMOTE = 1 << 1, /* some have real servers elsewhere: answers come by uplinks */
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
	BY_TURN,   /* one after the other */
	BY_LOAD,   /* the one with the fewest flows for its weight */
	BY_COUNT,  /* the one with the fewest flows */
};

/* How packets that stay as they are go to a real server elsewhere. */
enum forwarding {
	FORWARD_DIRECT = 1, /* to its hardware address */
	FORWARD_TUNNEL = 2, /* in a packet for its own address */
};

/* At most so many real servers can be asked for their load. */
#define MAX_LOADED 256

struct frontend {
	__u32 service;
	__u32 chunk, first; /* where the ring lies, in words */
	__u32 buckets;      /* the ring's length in slots */
	__u32 persistence;  /* how long a client's address keeps its real server, in seconds */
	__u16 nth;          /* the frontend's place in the service's list: user space's own */
	__u8 scheduling;
	__u8 direct;        /* packets stay as they are: enum forwarding */
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

/* What is noted of a service: whose turn it is, how packets are wrapped, and for
 * user space what it is.
 */
struct service {
	__u32 turn;
	__u8 scheduler;
	__u8 name[129];
	__be16 gue; /* the port at which real servers take packets in UDP; 0: IP in IP */
};

struct {
	__uint(type, BPF_MAP_TYPE_ARRAY);
	__uint(max_entries, MAX_SERVICES);
	__uint(map_flags, BPF_F_MMAPABLE);
	__type(key, __u32);
	__type(value, struct service);
} fl_services SEC(".maps");

enum real_flags {
	REAL_REMOTE = 1 << 0,     /* not behind a link of ours: its way is looked up */
	REAL_MASQUERADE = 1 << 1, /* it sees the host, by the address seen */
	REAL_DRAINING = 1 << 2,   /* it keeps its flows; user space leaves it out of the ring */
	REAL_TUNNEL = 1 << 3,     /* packets are wrapped, from the address seen */
	REAL_LOCAL = 1 << 4,       /* it is the host itself: the kernel takes what is for it */
};

/* A real server of a service. Slot 0 is nobody's. */
struct real {
	struct address to;
	struct address seen; /* whom it sees where it cannot be shown the client */
	__u32 ifindex;       /* the host's end of its link, or the link on the way to it */
	__u32 generation;          /* counts those that have held the slot; 0: nobody does now */
	__u32 weight;
	__u32 service;
	__be16 port;         /* 0: the one that the client has dialled */
	__u16 flags;
	__u32 last_generation;          /* made, of who has held the slot last */
};

struct {
	__uint(type, BPF_MAP_TYPE_ARRAY);
	__uint(max_entries, MAX_REALS);
	__uint(map_flags, BPF_F_MMAPABLE);
	__type(key, __u32);
	__type(value, struct real);
} fl_reals SEC(".maps");

/* What the flows of a real server tell of it. */
struct load {
	__u32 active;   /* flows that it has */
	__u32 local;    /* sockets of the host's own that are led to it */
	__u64 retries;  /* SYNs that came again, because it has not answered */
	__u64 refusals; /* SYNs that it has answered by a reset */
	__u64 resets;   /* open connections that it has reset */
};

struct {
	__uint(type, BPF_MAP_TYPE_ARRAY);
	__uint(max_entries, MAX_REALS);
	__uint(map_flags, BPF_F_MMAPABLE);
	__type(key, __u32);
	__type(value, struct load);
} fl_loads SEC(".maps");

/* The real server that a client's address keeps. */
struct affinity_key {
	struct address client;
	__u32 service;
};

struct affinity {
	__u32 real;
	__u32 generation;
	__u64 last; /* bpf_ktime_get_coarse_ns of its last new flow */
};

struct {
	__uint(type, BPF_MAP_TYPE_LRU_HASH);
	__uint(max_entries, 65536);
	__type(key, struct affinity_key);
	__type(value, struct affinity);
} fl_affinities SEC(".maps");

/* is_served reports whether there are services of that kind. */
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

/* ring_at returns the slot in a place of the ring. */
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

/* stir mixes a word into a hash (MurmurHash3 by Austin Appleby, public domain). */
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

/* What a real server is chosen for: a flow of a client. */
struct tuple {
	struct address client, host;
	__be16 client_port, host_port;
};

/* hash_of is the same on every host for a flow, so that each that has the same
 * table chooses alike.
 */
inline_always __u32 hash_of(const struct tuple *w, int whole)
{
	__u32 h = hash_address(0, &w->client);

	if (!whole)
		return hash_finish(h);
	return hash_finish(hash_word(hash_address(h, &w->host), (__u32)bpf_ntohs(w->client_port) << 16 | bpf_ntohs(w->host_port)));
}

/* score_of returns how loaded the real server in a place of the ring is, with
 * its slot in the lowest bits: the flows that it would have, for its weight, and
 * chance among equals. What takes no new flows has the greatest.
 */
global_func __u64 score_of(const struct frontend *f, __u32 i)
{
	__u64 score;
	struct real *r;
	struct load *l;
	__u32 slot;

	if (!f)
		return ~0ULL;
	slot = ring_at(f, i);
	r = real_of(slot);
	l = load_of(slot);
	if (!slot || !r || !l || !accepts_flows(r))
		return ~0ULL;
	score = ((__u64)l->active + l->local + 1) << 20;
	if (f->scheduling == BY_LOAD)
		score /= r->weight;
	if (score > 0xfffffffe)
		score = 0xfffffffe;
	return score << 32 | (bpf_get_prandom_u32() & 0xffff0000) | slot;
}

/* least_loaded returns the real server of the ring with the smallest burden. */
static __noinline __u32 least_loaded(const struct frontend *f)
{
	__u64 least = ~0ULL, score;

	for (__u32 i = 0; i < MAX_LOADED && i < f->buckets; i++) {
		score = score_of(f, i);
		if (score < least)
			least = score;
	}
	return least == ~0ULL ? 0 : least & 0xffff;
}

/* scheduled returns the slot of a real server by the service's scheduler. */
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

/* kept returns the real server that the client's address keeps, 0 for none. */
inline_always __u32 affine_real(const struct frontend *f, const struct affinity_key *key, __u64 now)
{
	struct affinity *a = bpf_map_lookup_elem(&fl_affinities, key);
	struct real *r;
	__u32 slot;

	if (!a || now - a->last > (__u64)f->persistence * 1000000000ULL)
		return 0;
	slot = a->real;
	r = real_of(slot);
	if (!r || r->generation != a->generation || !accepts_flows(r))
		return 0;
	a->last = now;
	return slot;
}

/* choose returns the slot of the real server for a new flow, 0 for none. */
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
