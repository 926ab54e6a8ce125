/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
/* The flows that are led, one entry each, found by what the endpoint sees. */
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
	FLOW_ANSWERED = 1 << 0, /* the endpoint has spoken */
	FLOW_PEER = 1 << 1,     /* the client is a sandbox: out by bpf_redirect_peer */
	FLOW_FIN_IN = 1 << 2,   /* the client has closed its side; FIN_OUT: the endpoint */
	FLOW_FIN_OUT = 1 << 3,
	FLOW_ACK_IN = 1 << 4,   /* the client has acknowledged the endpoint's FIN */
	FLOW_ACK_OUT = 1 << 5,
	FLOW_RESET = 1 << 6,    /* user space will reset it: acknowledgements are noted exactly */
	FLOW_OPEN = 1 << 7,     /* the client has acknowledged the endpoint's answer; UDP to an endpoint: always */
	FLOW_LOCAL_REAL = 1 << 8,     /* to a real server that is the host itself (here.h) */
	FLOW_ONE_WAY = 1 << 9,  /* only the client's packets were seen (direct, tunnel) */
	FLOW_RST_IN = 1 << 10,  /* the client has sent a reset that the endpoint may refuse */
	FLOW_RST_OUT = 1 << 11, /* the endpoint has sent a reset: it does not know the connection */
	FLOW_CLIENT_CLOSED = 1 << 12,   /* one way, closed by the client: kept with half-open flows, not counted */
};

struct flow {
	struct address host;   /* what the client has dialled */
	struct address client; /* the client, unless the endpoint sees it as it is */
	__be16 host_port;
	__be16 client_port;
	__u32 ifindex;         /* the link that the client came by */
	__u32 tick;            /* bpf_jiffies64 of the last packet, its lower half */
	__u32 link;            /* the host's link by which the endpoint's answers come */
	__u64 seen;            /* bpf_ktime_get_coarse_ns of the first in that tick */
	__u32 fin[2];          /* the sequence number after each FIN: inward, outward; while the flow
				* to an endpoint is not open, outward: after what the endpoint sent last */
	__u32 ack[2];          /* the last acknowledgement each way, or one shortly before; where
				* FLOW_ONE_WAY, ack[OUTWARD] is the client's next sequence number */
	__u32 flags;
	__u32 slot;            /* the slot of the lead, or with REAL_BIT of the real server, that it goes by */
};

/* Flows of each protocol have a map of their own, so that a storm of
 * datagrams cannot push idle connections out.
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

/* A client whose address and port the endpoint cannot be shown, because it
 * would take two flows for one, see itself, or could not answer a link-local
 * address, has an alias.
 */
struct alias_key {
	struct address client;
	struct address host;
	__be16 client_port;
	__be16 host_port;
	__u32 class; /* with the client's link, if its address is valid there only (scoped) */
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

/* Whether any client ever had one: as long as none had, none is looked for. */
struct {
	__uint(type, BPF_MAP_TYPE_ARRAY);
	__uint(max_entries, 1);
	__type(key, __u32);
	__type(value, __u32);
} fl_aliased SEC(".maps");

/* The connections of clients to virtual services, by what the client has
 * dialled: which real server each has, whatever has become of the table since.
 * The flow has all else.
 */
struct conn {
	struct flow_key to;
	__u32 real; /* the slot of the real server */
	__u32 generation; /* and which of those that it has held */
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

/* Connections that are not open yet have maps of their own, so that a flood of
 * SYNs pushes out no open connection. Those to endpoints and to real servers
 * share fl_young_flows.
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

/* The ports of a fragmented datagram, for the fragments that carry none. */
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
