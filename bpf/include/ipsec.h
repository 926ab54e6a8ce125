/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
/* The IPsec policies of the host.
 *
 * Theory of operation. A redirected packet bypasses the kernel's IPsec policies: a reply
 * would leave in cleartext although a policy protects it, and a request in cleartext
 * would be accepted. Therefore the programs create no flow that a policy covers, and
 * leave its packets to the kernel. User space writes the selectors of the policies, and
 * ends the flows that a new policy covers. The programs search the policies only for a
 * new flow.
 */
#pragma once

#include "flows.h"

#define MAX_POLICIES 128

/* The selector of a policy. The local end is this host or behind it. The bits of the
 * masks are those that are compared.
 */
struct policy {
	struct address local, local_mask;
	struct address remote, remote_mask;
	__be16 local_port, local_port_mask;
	__be16 remote_port, remote_port_mask;
	__u32 classes; /* a bit for each class of packets */
};

struct policies {
	__u32 count;
	struct policy all[MAX_POLICIES];
};

struct {
	__uint(type, BPF_MAP_TYPE_ARRAY);
	__uint(max_entries, 1);
	__type(key, __u32);
	__type(value, struct policies);
} fl_policies SEC(".maps");

/* differs reports whether an address does not have the prefix. */
inline_always __u32 differs(const struct address *a, const struct address *prefix, const struct address *mask)
{
	return ((a->w[0] ^ prefix->w[0]) & mask->w[0]) | ((a->w[1] ^ prefix->w[1]) & mask->w[1]) |
	       ((a->w[2] ^ prefix->w[2]) & mask->w[2]) | ((a->w[3] ^ prefix->w[3]) & mask->w[3]);
}

/* The parts of a selector that is_protected compares. */
enum selector_parts {
	SELECT_ADDRESSES = 0,
	SELECT_PORTS = 0xffffffff, /* and the protocol */
};

/* selects reports whether the policy covers packets between the host and the client of
 * the key. The verifier checks it once, and not for each policy.
 */
global_func int selects(const struct policy *p, const struct alias_key *name, __u32 parts)
{
	__u32 class;

	if (!p || !name)
		return 0;
	class = ~(p->classes >> (name->class & 3)) & 1;
	return !(differs(&name->host, &p->local, &p->local_mask) | differs(&name->client, &p->remote, &p->remote_mask) |
		 (parts & (class | ((name->host_port ^ p->local_port) & p->local_port_mask) |
			   ((name->client_port ^ p->remote_port) & p->remote_port_mask))));
}

/* has_policies reports whether the host has any policy. */
inline_always int has_policies(void)
{
	__u32 slot = 0;
	struct policies *p = bpf_map_lookup_elem(&fl_policies, &slot);

	return p && p->count;
}

/* is_protected_by_part does what is_protected does, for PART policies from first on. */
global_func int is_protected_by_part(const struct policies *p, __u32 first, const struct alias_key *name, __u32 parts)
{
	if (!p || !name)
		return 0;
	for (__u32 i = 0; i < PART; i++) {
		__u32 at = first + i;

		barrier_var(at); /* keeps the compiler from computing the address before the bounds check */
		if (at >= MAX_POLICIES || at >= p->count)
			return 0;
		if (selects(&p->all[at], name, parts))
			return 1;
	}
	return 0;
}

/* is_protected reports whether an IPsec policy covers packets between the host and the
 * client of the key. parts are a value of enum selector_parts.
 */
global_func int is_protected(const struct alias_key *name, __u32 parts)
{
	struct policies *p;
	__u32 slot = 0;

	if (!name)
		return 0;
	p = bpf_map_lookup_elem(&fl_policies, &slot);
	if (!p)
		return 0;
	for (__u32 i = 0; i < MAX_POLICIES && i < p->count; i += PART) {
		if (is_protected_by_part(p, i, name, parts))
			return 1;
	}
	return 0;
}
