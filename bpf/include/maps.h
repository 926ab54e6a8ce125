/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
/* The maps that all programs share. User space writes the table of port mappings and
 * grants. The programs write flows and the addresses that sockets dialled.
 */
#pragma once

#include <linux/bpf.h>
#include <linux/types.h>
#include <bpf/bpf_helpers.h>
#include <bpf/bpf_endian.h>

#define inline_always static __always_inline

/* global_func marks functions that the verifier checks once, separately from their
 * callers, instead of at each call. Before Linux 6.8 it also checks those that no remaining
 * code calls, so functions for services test `balancing` first.
 */
#define global_func __attribute__((noinline, weak))

/* As in the C library's socket.h, which BPF programs cannot include. */
#define AF_INET 2
#define AF_INET6 10

/* An address of either family, in network byte order. IPv4 addresses are IPv4-mapped
 * (::ffff:a.b.c.d), so one key and one code path serve both families.
 */
struct address {
	__be32 w[4];
};

/* The table of port mappings. fl_ports holds, for each family, protocol and host port,
 * the index of the first mapping that may contain the port; 0 means none. Mappings of
 * one port on several host addresses are chained by next. A chain may contain entries
 * without the port, so every entry is compared.
 */
#define PORTS_PER_CLASS 65536
#define MAX_MAPPINGS 65536
#define MAX_CHAIN 64

/* Index into fl_ports: class (address family and protocol), then the port in host byte
 * order.
 */
#define CLASS(v6, udp) (((v6) ? 2 : 0) + ((udp) ? 1 : 0))

enum mapping_flags {
	MAPPING_ANY = 1 << 0,   /* every host address of the family */
	MAPPING_RESERVED = 1 << 1, /* a socket of the proxy has bound the ports: the bind hook does not check them */
	MAPPING_LOCAL = 1 << 2, /* for processes of the host only: the endpoint has another address family */
	MAPPING_GRANT = 1 << 3, /* the workload listens in the host's namespace: no translation */
	MAPPING_RESET = 1 << 4, /* user space resets the connections when the mapping is deleted */
};

struct mapping {
	struct address host; /* the host address, unless MAPPING_ANY */
	struct address to;   /* the endpoint */
	struct address masquerade; /* the source address that the endpoint sees when it connects to itself */
	__u64 cgroup;        /* MAPPING_GRANT: the id of the workload's cgroup */
	__u32 ifindex;       /* the host's end of the endpoint's link */
	__u32 next;          /* the next mapping of the chain, 0 at the end */
	__u16 first, last;   /* host ports, in host byte order */
	__u16 to_first;      /* the endpoint's first port */
	__u8 flags;
	__u8 class;
};

struct {
	__uint(type, BPF_MAP_TYPE_ARRAY);
	__uint(max_entries, 4 * PORTS_PER_CLASS);
	__uint(map_flags, BPF_F_MMAPABLE);
	__type(key, __u32);
	__type(value, __u32);
} fl_ports SEC(".maps");

struct {
	__uint(type, BPF_MAP_TYPE_ARRAY);
	__uint(max_entries, MAX_MAPPINGS);
	__uint(map_flags, BPF_F_MMAPABLE);
	__type(key, __u32);
	__type(value, struct mapping);
} fl_mappings SEC(".maps");

/* Counters per mapping, by its slot, and per CPU: those of all slots for the first CPU, then
 * those for the next one. The kernel would allocate each entry of a BPF_MAP_TYPE_PERCPU_ARRAY
 * separately, which takes as long as all other maps together. All slots without a counter
 * share slot 0, which no mapping has.
 */
#define MAX_COUNTED 8192

/* A slot with this bit is a real server's, not a mapping's (services.h). */
#define REAL_BIT 0x80000000u
#define MAX_REALS 32768
#define MAX_REALS_COUNTED 16384

/* The slot of all outbound flows (outbound.h). */
#define OUTBOUND_SLOT 0x40000000u

/* 1 if virtual services may exist. User space sets it when it loads the programs. If it
 * is 0, the verifier removes all code for services, and their maps have room for one
 * entry each.
 */
const volatile __u8 balancing;

/* is_real reports whether a slot is a real server's. */
inline_always int is_real(__u32 slot) { return balancing && (slot & REAL_BIT); }

struct total {
	__u64 packets[2]; /* inward, outward */
	__u64 bytes[2];
	__u64 drops[2];
	__u64 flows;      /* new flows, including those of processes of the host */
};

struct {
	__uint(type, BPF_MAP_TYPE_ARRAY);
	__uint(max_entries, MAX_COUNTED); /* per CPU; user space multiplies it */
	__uint(map_flags, BPF_F_MMAPABLE);
	__type(key, __u32);
	__type(value, struct total);
} fl_totals SEC(".maps");

struct {
	__uint(type, BPF_MAP_TYPE_ARRAY);
	__uint(max_entries, MAX_REALS_COUNTED); /* per CPU; user space multiplies it */
	__uint(map_flags, BPF_F_MMAPABLE);
	__type(key, __u32);
	__type(value, struct total);
} fl_real_totals SEC(".maps");

/* The counters of outbound flows. */
enum outbound_total {
	OUTBOUND_TRANSLATED, /* the flows that the programs translate */
	OUTBOUND_EXHAUSTED,  /* flows: those that the kernel forwards because no port was free */
	OUTBOUND_TOTALS,
};

struct {
	__uint(type, BPF_MAP_TYPE_PERCPU_ARRAY);
	__uint(max_entries, OUTBOUND_TOTALS);
	__type(key, __u32);
	__type(value, struct total);
} fl_outbound_totals SEC(".maps");

inline_always struct total *total_of(__u32 slot)
{
	if (slot == OUTBOUND_SLOT) {
		slot = OUTBOUND_TRANSLATED;
		return bpf_map_lookup_elem(&fl_outbound_totals, &slot);
	}
	if (is_real(slot)) {
		slot &= ~REAL_BIT;
		if (slot >= MAX_REALS_COUNTED)
			slot = 0;
		slot += bpf_get_smp_processor_id() * MAX_REALS_COUNTED;
		return bpf_map_lookup_elem(&fl_real_totals, &slot);
	}
	if (slot >= MAX_COUNTED)
		slot = 0;
	slot += bpf_get_smp_processor_id() * MAX_COUNTED;
	return bpf_map_lookup_elem(&fl_totals, &slot);
}

/* count_flow counts a new flow. */
global_func int count_flow(__u32 slot)
{
	struct total *t = total_of(slot);

	if (t)
		t->flows++;
	return 0;
}

/* count_exhausted counts a flow for which no port was free. */
inline_always void count_exhausted(void)
{
	__u32 slot = OUTBOUND_EXHAUSTED;
	struct total *t = bpf_map_lookup_elem(&fl_outbound_totals, &slot);

	if (t)
		t->flows++;
}

/* The host's addresses except loopback. User space writes them. */
struct {
	__uint(type, BPF_MAP_TYPE_HASH);
	__uint(max_entries, 4096);
	__uint(map_flags, BPF_F_NO_PREALLOC);
	__type(key, struct address);
	__type(value, __u8);
} fl_addresses SEC(".maps");

/* The addresses of the sandbox behind each link of the host that has the program
 * fl_sandbox. An address is all zero if the sandbox has none of that family. User space
 * writes them.
 */
struct endpoint {
	struct address v4, v6;
};

struct {
	__uint(type, BPF_MAP_TYPE_HASH);
	__uint(max_entries, 65536);
	__uint(map_flags, BPF_F_NO_PREALLOC);
	__type(key, __u32); /* ifindex */
	__type(value, struct endpoint);
} fl_endpoints SEC(".maps");

/* The links that have the program fl_uplink, and how packets' sources are checked there.
 * User space writes them.
 */
enum uplink_flags {
	UPLINK_LOOSE = 1 << 0, /* a route back via any uplink is sufficient */
};

struct uplink_check {
	__u32 flags;
	__u32 parent;    /* the parent of a macvlan or ipvlan link, which is on the same segment; else 0 */
	__u32 multipath; /* links with the same number share multipath routes; 0: the link has none */
};

struct {
	__uint(type, BPF_MAP_TYPE_HASH);
	__uint(max_entries, 65536);
	__uint(map_flags, BPF_F_NO_PREALLOC);
	__type(key, __u32); /* ifindex */
	__type(value, struct uplink_check);
} fl_uplinks SEC(".maps");

/* The cookie of the host's network namespace. Sockets of other namespaces are ignored.
 * User space sets it when it loads the programs.
 */
const volatile __u64 host_netns;

/* 1 if sock_addr programs may call bpf_set_retval (Linux 6.0). */
const volatile __u8 have_retval;

/* The key of the proxy's sockets, which may bind a published port. The lower half is
 * their mark (SO_MARK), the upper half their priority (SO_PRIORITY). User space draws it
 * at random when it loads the programs. A process with CAP_NET_RAW can set both options,
 * but it cannot guess 64 bits.
 */
const volatile __u64 bind_key;

inline_always int same(const struct address *a, const struct address *b)
{
	return a->w[3] == b->w[3] && a->w[2] == b->w[2] && a->w[1] == b->w[1] && a->w[0] == b->w[0];
}

inline_always void map_v4(struct address *a, __be32 v4)
{
	a->w[0] = 0;
	a->w[1] = 0;
	a->w[2] = bpf_htonl(0xffff);
	a->w[3] = v4;
}

inline_always int is_v4(const struct address *a)
{
	return a->w[0] == 0 && a->w[1] == 0 && a->w[2] == bpf_htonl(0xffff);
}

inline_always int is_loopback(const struct address *a)
{
	if (is_v4(a))
		return (a->w[3] & bpf_htonl(0xff000000)) == bpf_htonl(0x7f000000);
	return a->w[0] == 0 && a->w[1] == 0 && a->w[2] == 0 && a->w[3] == bpf_htonl(1);
}

/* is_group reports whether an address is multicast. In IPv4 it includes all addresses
 * above multicast, and with them limited broadcast.
 */
inline_always int is_group(const struct address *a)
{
	if (is_v4(a))
		return bpf_ntohl(a->w[3]) >= 0xe0000000;
	return (a->w[0] & bpf_htonl(0xff000000)) == bpf_htonl(0xff000000);
}

/* is_link_local reports whether an IPv6 address is link-local. */
inline_always int is_link_local(const struct address *a)
{
	return (a->w[0] & bpf_htonl(0xffc00000)) == bpf_htonl(0xfe800000);
}

/* is_unspecified reports whether an address is :: or in 0.0.0.0/8. */
inline_always int is_unspecified(const struct address *a)
{
	if (is_v4(a))
		return !(a->w[3] & bpf_htonl(0xff000000));
	return !(a->w[0] | a->w[1] | a->w[2] | a->w[3]);
}

/* matches reports whether a mapping contains a host address and port. */
inline_always int matches(const struct mapping *l, __u32 class, const struct address *host, __u32 port)
{
	return port >= l->first && port <= l->last && l->class == class &&
	       ((l->flags & MAPPING_ANY) || same(&l->host, host));
}

/* contains does the same. The verifier checks it once, and not for each mapping of a chain. */
global_func int contains(const struct mapping *l, __u32 class, const struct address *host, __u32 port)
{
	return l && host && matches(l, class, host, port);
}

/* endpoint_port_of returns the endpoint's port, in network byte order, for a host port
 * of the mapping.
 */
inline_always __be16 endpoint_port_of(const struct mapping *l, __u16 port)
{
	return bpf_htons(l->to_first + (port - l->first));
}

/* The verifier follows each turn of a loop. A long loop calls a function that makes several
 * turns, which the verifier checks once. PART is the number of those turns.
 */
#define PART 16

/* The bit that a function adds to a slot that it has found. */
#define FOUND (1u << 31)

/* mapping_of_part searches a part of a chain from slot on, and returns what mapping_index
 * does, with FOUND. Returns the slot that follows the part if no mapping of it contains the
 * port.
 */
global_func __u32 mapping_of_part(__u32 slot, __u32 class, __u32 port, const struct address *host)
{
	if (!host)
		return 0;
	for (int i = 0; i < PART && slot; i++) {
		struct mapping *l = bpf_map_lookup_elem(&fl_mappings, &slot);

		if (!l)
			return 0;
		if (contains(l, class, host, port))
			return slot | FOUND;
		slot = l->next;
	}
	return slot;
}

/* mapping_index searches a chain from slot on and returns the index of the mapping or
 * grant that contains the port. Returns 0 if there is none.
 */
global_func __u32 mapping_index(__u32 slot, __u32 class, __u32 port, const struct address *host)
{
	if (!host)
		return 0;
	for (int i = 0; i < MAX_CHAIN / PART && slot; i++) {
		slot = mapping_of_part(slot, class, port, host);
		if (slot & FOUND)
			return slot & ~FOUND;
	}
	return 0;
}

/* find_mapping returns the mapping or grant of a host address and port (host byte
 * order), and writes its slot. Returns NULL if the port is not published there. It does
 * not check whether the address is the host's.
 */
inline_always struct mapping *find_mapping(__u32 class, const struct address *host, __u16 port, __u32 *slot)
{
	__u32 at = class * PORTS_PER_CLASS + port;
	__u32 *index = bpf_map_lookup_elem(&fl_ports, &at);
	struct mapping *l;

	if (!index || !*index)
		return 0;
	/* Linux 6.1 requires the key on the stack; slot may be elsewhere. */
	at = *index;
	l = bpf_map_lookup_elem(&fl_mappings, &at);
	if (!l || !matches(l, class, host, port)) {
		at = l ? mapping_index(l->next, class, port, host) : 0;
		l = at ? bpf_map_lookup_elem(&fl_mappings, &at) : 0;
	}
	*slot = at;
	return l;
}
