/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
/* The maps that all programs share. User space writes the table of leads and
 * grants; the programs write flows, and what sockets have dialled.
 */
#pragma once

#include <linux/bpf.h>
#include <linux/types.h>
#include <bpf/bpf_helpers.h>
#include <bpf/bpf_endian.h>

#define inline_always static __always_inline

/* As in the C library's socket.h, which BPF programs cannot include. */
#define AF_INET 2
#define AF_INET6 10

/* An address of either family, in network byte order; IPv4 is mapped
 * (::ffff:a.b.c.d), so that one key and one code path serve both.
 */
struct address {
	__be32 w[4];
};

/* The table. ports holds, for each family, protocol and host port, the index
 * of the first lead that may hold it, 0 for none; leads of one port (on several
 * host addresses) are chained by next. A chain may lead past entries that do
 * not hold the port, so each is compared.
 */
#define PORTS_PER_CLASS 65536
#define MAX_MAPPINGS 65536
#define MAX_CHAIN 64

/* Index into ports: plane, then port in host byte order. */
#define CLASS(v6, udp) (((v6) ? 2 : 0) + ((udp) ? 1 : 0))

enum mapping_flags {
	MAPPING_ANY = 1 << 0,   /* every host address of the family */
	MAPPING_RESERVED = 1 << 1,  /* a socket holds the ports: the bind hook need not */
	MAPPING_LOCAL = 1 << 2, /* for local clients only: the target's family is another */
	MAPPING_GRANT = 1 << 3, /* the workload listens on the host itself: no NAT */
	MAPPING_RESET = 1 << 4, /* user space resets the connections when it goes */
};

struct mapping {
	struct address host; /* the host address, unless MAPPING_ANY */
	struct address to;   /* the endpoint */
	struct address masquerade; /* whom the endpoint sees when it reaches itself */
	__u64 cgroup;        /* MAPPING_GRANT: the id of the workload's cgroup */
	__u32 ifindex;       /* the host's end of the endpoint's link */
	__u32 next;          /* the next lead of the chain, 0 at its end */
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

/* What has gone by each lead, by its slot: each CPU counts for itself. Whatever
 * has no slot here, being beyond them, is counted together in slot 0, which is
 * no lead's.
 */
#define MAX_COUNTED 8192

/* A slot with this bit is not a lead's but a real server's (services.h). */
#define REAL_BIT 0x80000000u
#define MAX_REALS 32768
#define MAX_REALS_COUNTED 16384

/* Whether there may be virtual services. Set when the programs are loaded: while
 * there are none the verifier leaves out all that is for them, and their maps
 * have room for one entry each.
 */
const volatile __u8 balancing;

/* is_real reports whether a slot is a real server's. */
inline_always int is_real(__u32 slot) { return balancing && (slot & REAL_BIT); }

struct total {
	__u64 packets[2]; /* inward, outward */
	__u64 bytes[2];
	__u64 drops[2];
	__u64 flows;      /* begun, also by a process of the host's own */
};

struct {
	__uint(type, BPF_MAP_TYPE_PERCPU_ARRAY);
	__uint(max_entries, MAX_COUNTED);
	__type(key, __u32);
	__type(value, struct total);
} fl_totals SEC(".maps");

struct {
	__uint(type, BPF_MAP_TYPE_PERCPU_ARRAY);
	__uint(max_entries, MAX_REALS_COUNTED);
	__type(key, __u32);
	__type(value, struct total);
} fl_real_totals SEC(".maps");

inline_always struct total *total_of(__u32 slot)
{
	if (is_real(slot)) {
		slot &= ~REAL_BIT;
		if (slot >= MAX_REALS_COUNTED)
			slot = 0;
		return bpf_map_lookup_elem(&fl_real_totals, &slot);
	}
	if (slot >= MAX_COUNTED)
		slot = 0;
	return bpf_map_lookup_elem(&fl_totals, &slot);
}

/* count_flow counts a flow that begins. */
inline_always void count_flow(__u32 slot)
{
	struct total *t = total_of(slot);

	if (t)
		t->flows++;
}

/* The host's own addresses, loopback excepted: user space keeps them. */
struct {
	__uint(type, BPF_MAP_TYPE_HASH);
	__uint(max_entries, 4096);
	__uint(map_flags, BPF_F_NO_PREALLOC);
	__type(key, struct address);
	__type(value, __u8);
} fl_addresses SEC(".maps");

/* The addresses of the sandbox behind each link of the host that has the program
 * sandbox; all zero where it has none of a family. User space keeps them.
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

/* The links that have the program uplink, and how their sources are checked.
 * User space keeps them.
 */
enum uplink_flags {
	UPLINK_LOOSE = 1 << 0, /* a route back by any uplink will do */
};

struct uplink_check {
	__u32 flags;
	__u32 parent; /* of a macvlan or ipvlan link: the link on whose segment it is, too */
	__u32 multipath; /* links with the same number share multipath routes; 0: it is in none */
};

struct {
	__uint(type, BPF_MAP_TYPE_HASH);
	__uint(max_entries, 65536);
	__uint(map_flags, BPF_F_NO_PREALLOC);
	__type(key, __u32); /* ifindex */
	__type(value, struct uplink_check);
} fl_uplinks SEC(".maps");

/* The cookie of the host's network namespace: sockets of others are left
 * alone. Set when the programs are loaded.
 */
const volatile __u64 host_netns;

/* Whether bpf_set_retval may be called from sock_addr programs (Linux 6.0). */
const volatile __u8 have_retval;

/* The key of the proxy's sockets, which may be bound to a published port: the
 * lower half is their mark (SO_MARK), the upper half their priority
 * (SO_PRIORITY). It is drawn at random when the programs are loaded. A process
 * with CAP_NET_RAW can set both options, but it cannot guess 64 bits.
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

/* is_group reports whether an address is of many: multicast, and all of IPv4
 * above it, where broadcast is.
 */
inline_always int is_group(const struct address *a)
{
	if (is_v4(a))
		return bpf_ntohl(a->w[3]) >= 0xe0000000;
	return (a->w[0] & bpf_htonl(0xff000000)) == bpf_htonl(0xff000000);
}

/* is_link_local reports whether an IPv6 address is valid on its link only. */
inline_always int is_link_local(const struct address *a)
{
	return (a->w[0] & bpf_htonl(0xffc00000)) == bpf_htonl(0xfe800000);
}

/* is_unspecified reports whether an address is none: ::, and 0.0.0.0/8. */
inline_always int is_unspecified(const struct address *a)
{
	if (is_v4(a))
		return !(a->w[3] & bpf_htonl(0xff000000));
	return !(a->w[0] | a->w[1] | a->w[2] | a->w[3]);
}

/* apart marks the functions that the verifier looks at once, on their own,
 * instead of wherever they are called.
 */
#define global_func __attribute__((noinline, weak))

/* holds reports whether the lead is that of a host address and port. */
inline_always int matches(const struct mapping *l, __u32 class, const struct address *host, __u32 port)
{
	return port >= l->first && port <= l->last && l->class == class &&
	       ((l->flags & MAPPING_ANY) || same(&l->host, host));
}

/* endpoint_port_of returns the endpoint's port, in network byte order, for a host port
 * of the lead's.
 */
inline_always __be16 endpoint_port_of(const struct mapping *l, __u16 port)
{
	return bpf_htons(l->to_first + (port - l->first));
}

/* mapping_index returns the index of the lead or grant that holds the port from
 * slot on in its chain, 0 when there is none.
 */
global_func __u32 mapping_index(__u32 slot, __u32 class, __u32 port, const struct address *host)
{
	if (!host)
		return 0;
	for (int i = 0; i < MAX_CHAIN && slot; i++) {
		struct mapping *l = bpf_map_lookup_elem(&fl_mappings, &slot);

		if (!l)
			return 0;
		if (matches(l, class, host, port))
			return slot;
		slot = l->next;
	}
	return 0;
}

/* find_mapping returns the lead or grant of a host address and port (host byte
 * order) and its slot, NULL when nobody published it there. It does not ask
 * whether the address is the host's.
 */
inline_always struct mapping *find_mapping(__u32 class, const struct address *host, __u16 port, __u32 *slot)
{
	__u32 at = class * PORTS_PER_CLASS + port;
	__u32 *index = bpf_map_lookup_elem(&fl_ports, &at);
	struct mapping *l;

	if (!index || !*index)
		return 0;
	/* Linux 6.1 takes a key from the stack, and not from where slot may be. */
	at = *index;
	l = bpf_map_lookup_elem(&fl_mappings, &at);
	if (!l || !matches(l, class, host, port)) {
		at = l ? mapping_index(l->next, class, port, host) : 0;
		l = at ? bpf_map_lookup_elem(&fl_mappings, &at) : 0;
	}
	*slot = at;
	return l;
}
