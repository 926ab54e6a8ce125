/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
/* fl_wl_postbind4 and fl_wl_postbind6 refuse a socket of a workload whose port differs
 * from the one that fl_wl_bind4/6 assigned, because another program's hook has changed
 * it since.
 */
#include "include/workload.h"

inline_always int check_bound(struct bpf_sock *sk, const struct address *a)
{
	__u64 id = workload_cgroup();
	struct workload *w = bpf_map_lookup_elem(&fl_workloads, &id);
	struct bound *b = bpf_sk_storage_get(&fl_bound, sk, 0, 0);

	if (!w || !b || w->unpublished == UNPUBLISHED_ALLOW || is_loopback(a))
		return PROCEED;
	return sk->src_port == bpf_ntohs(b->assigned);
}

SEC("cgroup/post_bind4")
int fl_wl_postbind4(struct bpf_sock *sk)
{
	struct address a;

	map_v4(&a, sk->src_ip4);
	return check_bound(sk, &a);
}

SEC("cgroup/post_bind6")
int fl_wl_postbind6(struct bpf_sock *sk)
{
	struct address a;

	copy_words(&a, sk->src_ip6);
	return check_bound(sk, &a);
}
