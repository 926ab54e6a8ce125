/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
/* The flows that the programs translate. Each has one entry, found by the addresses and
 * ports that the endpoint sees.
 */
#pragma once

#include "maps.h"

/* A flow as the endpoint sees it. */
struct flow_key {
	struct address endpoint;
	struct address client;
	__be16 endpoint_port;
	__be16 client_port;
	__u32 class;
};

enum flow_flags {
	FLOW_ANSWERED = 1 << 0, /* the side that has not opened the flow has sent a packet */
	FLOW_PEER = 1 << 1,     /* the client is a sandbox: packets to it use bpf_redirect_peer */
	FLOW_FIN_IN = 1 << 2,   /* the client has sent FIN; FIN_OUT: the endpoint has */
	FLOW_FIN_OUT = 1 << 3,
	FLOW_ACK_IN = 1 << 4,   /* the client has acknowledged the endpoint's FIN */
	FLOW_ACK_OUT = 1 << 5,
	FLOW_RESET = 1 << 6,    /* user space may reset it: acknowledgements are stored exactly */
	FLOW_OPEN = 1 << 7,     /* the client has acknowledged the endpoint's answer; always set for UDP to an endpoint */
	FLOW_LOCAL_REAL = 1 << 8, /* the real server is the host itself (local_real.h) */
	FLOW_ONE_WAY = 1 << 9,  /* only the client's packets pass this host (direct, tunnel) */
	FLOW_RST_IN = 1 << 10,  /* the client has sent a reset that the endpoint may ignore */
	FLOW_RST_OUT = 1 << 11, /* the endpoint has sent a reset: it does not know the connection */
	FLOW_CLIENT_CLOSED = 1 << 12, /* closed by the client, one way: with half-open flows, not counted */
	FLOW_DETOUR = 1 << 13,  /* replies leave via another link than the one on which requests arrive */
	FLOW_LOOSE = 1 << 14,   /* the link on which requests arrive is loose: replies may leave via another one */
	FLOW_OUTBOUND = 1 << 15, /* the endpoint has opened it, to a host outside (outbound.h) */
	FLOW_STREAM = 1 << 16,  /* outbound UDP: packets passed two seconds after the first */
};

struct flow {
	struct address host;   /* the address that the client has dialled */
	struct address client; /* the client's real address; the key has the one that the endpoint sees */
	__be16 host_port;
	__be16 client_port;
	__u32 ifindex;         /* the link on which the client's packets arrive */
	__u32 tick;            /* lower half of bpf_jiffies64 at the last packet */
	__u32 link;            /* the host's link on which the endpoint's packets arrive */
	__u64 seen;            /* bpf_ktime_get_coarse_ns at the first packet of that tick */
	/* The sequence number after each FIN (inward, outward). Until a flow to an endpoint
	 * is open, fin[OUTWARD] is the sequence number after the endpoint's last packet. For
	 * outbound UDP, fin[OUTWARD] is the second of the first packet.
	 */
	__u32 fin[2];
	/* The last acknowledgement in each direction, or a slightly older one. With
	 * FLOW_ONE_WAY, ack[OUTWARD] is the client's next sequence number.
	 */
	__u32 ack[2];
	__u32 flags;
	__u32 slot;            /* the mapping's slot, or with REAL_BIT the real server's */
};

/* Each protocol has its own map of flows, so that a flood of datagrams cannot push out
 * idle connections.
 */
#define MAX_FLOWS 131072

struct {
	__uint(type, BPF_MAP_TYPE_LRU_HASH);
	__uint(max_entries, MAX_FLOWS);
	__type(key, struct flow_key);
	__type(value, struct flow);
} fl_flows_tcp SEC(".maps");

struct {
	__uint(type, BPF_MAP_TYPE_LRU_HASH);
	__uint(max_entries, MAX_FLOWS);
	__type(key, struct flow_key);
	__type(value, struct flow);
} fl_flows_udp SEC(".maps");

/* An alias is another address and port that the endpoint sees in place of the client's.
 * A client gets one if the endpoint would without it mix up two flows, see its own
 * address, or have no route to a link-local address.
 */
struct alias_key {
	struct address client;
	struct address host;
	__be16 client_port;
	__be16 host_port;
	__u32 class; /* class; for a link-local client with the client's link (scoped_class) */
};

struct alias {
	struct address client;
	__be16 client_port;
	__be16 pad;
};

struct {
	__uint(type, BPF_MAP_TYPE_LRU_HASH);
	__uint(max_entries, 16384);
	__type(key, struct alias_key);
	__type(value, struct alias);
} fl_aliases SEC(".maps");

/* 1 after the first client got an alias. Until then no program searches fl_aliases. */
struct {
	__uint(type, BPF_MAP_TYPE_ARRAY);
	__uint(max_entries, 1);
	__type(key, __u32);
	__type(value, __u32);
} fl_aliased SEC(".maps");

/* What an outbound flow looks like outside: the client is the host outside, and host the
 * address and port that it sees. Outbound flows are IPv4, and the kernel hashes 16 bytes in
 * half of the time that the key of a flow takes.
 */
struct outbound_name {
	__be32 client;
	__be32 host;
	__be16 client_port;
	__be16 host_port;
	__u32 class;
};

/* The address and port of the sandbox that has opened an outbound flow. With the client of
 * its name they are the flow's key.
 */
struct outbound_owner {
	__be32 endpoint;
	__be16 port;
	__u16 pad;
};

/* The owners of outbound flows. It is not preallocated, so it takes no memory on a host
 * without such flows. It has fewer entries than the maps of flows: if it is full, the kernel
 * forwards new connections. So a sandbox that opens as many as it can pushes out none of up
 * to MAX_FLOWS - MAX_OUTBOUND flows of published ports, and none of other sandboxes.
 */
#define MAX_OUTBOUND (MAX_FLOWS - 16384)

struct {
	__uint(type, BPF_MAP_TYPE_HASH);
	__uint(max_entries, MAX_OUTBOUND);
	__uint(map_flags, BPF_F_NO_PREALLOC);
	__type(key, struct outbound_name);
	__type(value, struct outbound_owner);
} fl_outbound SEC(".maps");

/* The names that a CPU or user space reserves or releases, for the time of one call. An entry
 * is the lock of its name: who finds one tries another port, or leaves the name to a later
 * sweep. The value is 0 for programs, and not 0 for user space, whose entry outlives it if it
 * is killed (SweepOutbound). Atomic operations with a result would be cheaper, but arm64
 * compiles them only since Linux 5.18.
 */
struct {
	__uint(type, BPF_MAP_TYPE_HASH);
	__uint(max_entries, 1024);
	__type(key, struct outbound_name);
	__type(value, __u32);
} fl_locked_names SEC(".maps");

/* The outbound connection that had a port last. Newer ones push out old ones. */
struct ended_port {
	struct outbound_owner owner;
	__u64 ended; /* bpf_ktime_get_coarse_ns */
};

struct {
	__uint(type, BPF_MAP_TYPE_LRU_HASH);
	__uint(max_entries, 32768); /* more than one host outside has; about 3 MB */
	__type(key, struct outbound_name);
	__type(value, struct ended_port);
} fl_ended_ports SEC(".maps");

/* 1 after the first outbound flow. Until then no program searches fl_outbound. */
struct {
	__uint(type, BPF_MAP_TYPE_ARRAY);
	__uint(max_entries, 1);
	__type(key, __u32);
	__type(value, __u32);
} fl_outbound_used SEC(".maps");

/* The connections of clients to virtual services, by the address and port that the
 * client dialled. Each names its real server, which does not change when the table of
 * services changes. The flow has the rest.
 */
struct conn {
	struct flow_key to;
	__u32 real; /* the slot of the real server */
	__u32 generation; /* and the slot's generation */
};

struct {
	__uint(type, BPF_MAP_TYPE_LRU_HASH);
	__uint(max_entries, MAX_FLOWS);
	__type(key, struct alias_key);
	__type(value, struct conn);
} fl_conns_tcp SEC(".maps");

struct {
	__uint(type, BPF_MAP_TYPE_LRU_HASH);
	__uint(max_entries, MAX_FLOWS);
	__type(key, struct alias_key);
	__type(value, struct conn);
} fl_conns_udp SEC(".maps");

/* Half-open connections have separate maps, so that a SYN flood of clients pushes out no open
 * connection. Connections to endpoints and to real servers share fl_young_flows.
 */
#define MAX_YOUNG 16384

struct {
	__uint(type, BPF_MAP_TYPE_LRU_HASH);
	__uint(max_entries, MAX_YOUNG);
	__type(key, struct flow_key);
	__type(value, struct flow);
} fl_young_flows SEC(".maps");

struct {
	__uint(type, BPF_MAP_TYPE_LRU_HASH);
	__uint(max_entries, MAX_YOUNG);
	__type(key, struct alias_key);
	__type(value, struct conn);
} fl_young_conns SEC(".maps");

/* The ports of a fragmented datagram, for its later fragments, which have no transport
 * header.
 */
struct fragment_key {
	struct address src;
	struct address dst;
	__u32 id;
	__u32 class;
	__u32 ifindex;
};

struct fragment_ports {
	__be16 src;
	__be16 dst;
};

struct {
	__uint(type, BPF_MAP_TYPE_LRU_HASH);
	__uint(max_entries, 4096);
	__type(key, struct fragment_key);
	__type(value, struct fragment_ports);
} fl_fragments SEC(".maps");
