/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
/* Theory of operation. A workload in the host's network namespace binds the ports that
 * it chooses: its container ports. For each of them it may have been granted a host
 * port. When it binds, the hooks of its cgroup replace the container port with the host
 * port. When it asks for the address of its socket, they replace the host port with the
 * container port. Its sockets are the host's, and its packets pass no program.
 *
 *	workload ── bind 80 ──[fl_wl_bind4]── 8080 ── the host's stack
 *	workload ── getsockname ──[fl_wl_getsock4]── 80
 *	workload ── connect 127.0.0.1:80 ──[fl_wl_connect4]── 127.0.0.1:8080
 *
 * Every other port is unpublished. For a bind to such a port the workload's policy
 * applies (enum unpublished).
 */
#pragma once

#include "local.h"

#define MAX_GRANTS 128
#define MAX_LEVEL 32

enum unpublished {
	UNPUBLISHED_LOOPBACK,
	UNPUBLISHED_DENY,
	UNPUBLISHED_ALLOW,
};

/* A grant: host ports from host_first on for container ports. */
struct grant {
	struct address host; /* the host address, unless any */
	__u16 container_first, container_last; /* in host byte order */
	__u16 host_first;
	__u8 class;
	__u8 any; /* every host address of the family */
};

struct workload {
	__u32 unpublished;
	__u32 count;
	struct grant grants[MAX_GRANTS];
};

/* The workloads in the host's network namespace, by cgroup id. All Fairlead processes on
 * the host share this map, so that workloads can find each other.
 */
struct {
	__uint(type, BPF_MAP_TYPE_HASH);
	__uint(max_entries, 4096);
	__uint(map_flags, BPF_F_NO_PREALLOC);
	__type(key, __u64);
	__type(value, struct workload);
} fl_workloads SEC(".maps");

/* The addresses that sockets of workloads dialled. The hooks at the root cgroup run
 * after those of the workload and store their own entries, so they must not share a map.
 */
struct {
	__uint(type, BPF_MAP_TYPE_SK_STORAGE);
	__uint(map_flags, BPF_F_NO_PREALLOC);
	__type(key, int);
	__type(value, struct dialled);
} fl_wl_dialled SEC(".maps");

/* The port that a workload passed to bind, and the port that the socket got. */
struct bound {
	__be16 requested;
	__be16 assigned;
};

struct {
	__uint(type, BPF_MAP_TYPE_SK_STORAGE);
	__uint(map_flags, BPF_F_NO_PREALLOC);
	__type(key, int);
	__type(value, struct bound);
} fl_bound SEC(".maps");

/* workload_cgroup returns the id of the caller's workload, 0 if the caller is not in
 * one. The hooks run for sockets that were created in the workload's cgroup.
 */
static __noinline __u64 workload_cgroup(void)
{
	for (int level = 1; level <= MAX_LEVEL; level++) {
		__u64 id = bpf_get_current_ancestor_cgroup_id(level);

		if (!id || bpf_map_lookup_elem(&fl_workloads, &id))
			return id;
	}
	return 0;
}

/* is_outside returns 0 if the port is one of first to last. It has no branches, because
 * the verifier follows each of them for each grant.
 */
inline_always __u32 is_outside(__u32 port, __u32 first, __u32 last)
{
	return (port - first) >> 31 | (last - port) >> 31;
}

/* grant_of_part does what grant_index does, for PART grants from first on. */
global_func __u32 grant_of_part(const struct workload *w, __u32 first, __u32 class, __u32 port)
{
	if (!w)
		return MAX_GRANTS;
	for (__u32 i = 0; i < PART; i++) {
		__u32 at = first + i;
		const struct grant *g;

		barrier_var(at); /* keeps the compiler from computing the address before the bounds check */
		if (at >= MAX_GRANTS || at >= w->count)
			return MAX_GRANTS;
		g = &w->grants[at];
		if (!((g->class ^ class) | is_outside(port, g->container_first, g->container_last)))
			return at;
	}
	return MAX_GRANTS;
}

/* grant_index returns the index of the grant for a container port (host byte order),
 * MAX_GRANTS if there is none.
 */
global_func __u32 grant_index(const struct workload *w, __u32 class, __u32 port)
{
	__u32 at = MAX_GRANTS;

	if (!w)
		return MAX_GRANTS;
	for (__u32 i = 0; i < MAX_GRANTS && i < w->count && at >= MAX_GRANTS; i += PART)
		at = grant_of_part(w, i, class, port);
	return at;
}

/* grant_of returns the grant for a container port, NULL if there is none. */
inline_always struct grant *grant_of(struct workload *w, __u32 class, __u32 port)
{
	__u32 i = grant_index(w, class, port);

	if (i >= MAX_GRANTS)
		return 0;
	barrier_var(i); /* keeps the compiler from computing the address before the bounds check */
	return &w->grants[i];
}

/* granted_port returns the host port, in network byte order, for a container port. */
inline_always __be16 granted_port(const struct grant *g, __u32 port)
{
	return bpf_htons(g->host_first + (port - g->container_first));
}

/* host_port_grant_of_part does what host_port_grant_index does, for PART grants from first on. */
global_func __u32 host_port_grant_of_part(const struct workload *w, __u32 first, __u32 class, __u32 port)
{
	if (!w)
		return MAX_GRANTS;
	for (__u32 i = 0; i < PART; i++) {
		__u32 at = first + i;
		const struct grant *g;

		barrier_var(at); /* keeps the compiler from computing the address before the bounds check */
		if (at >= MAX_GRANTS || at >= w->count)
			return MAX_GRANTS;
		g = &w->grants[at];
		if (!((g->class ^ class) | is_outside(port, g->host_first, g->host_first + (g->container_last - g->container_first))))
			return at;
	}
	return MAX_GRANTS;
}

/* host_port_grant_index returns the index of the grant that contains a host port (host
 * byte order), MAX_GRANTS if there is none.
 */
global_func __u32 host_port_grant_index(const struct workload *w, __u32 class, __u32 port)
{
	__u32 at = MAX_GRANTS;

	if (!w)
		return MAX_GRANTS;
	for (__u32 i = 0; i < MAX_GRANTS && i < w->count && at >= MAX_GRANTS; i += PART)
		at = host_port_grant_of_part(w, i, class, port);
	return at;
}
