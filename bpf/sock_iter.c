/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
/* fl_tcp_iter and fl_udp_iter iterate over the host's sockets when user space reads them.
 * They select sockets that are connected to an endpoint to which the dialled address is
 * no longer translated. For each they write the request that closes it (SOCK_DESTROY of
 * sock_diag(7)). The list of sock_diag lacks the dialled addresses. An iterator over the
 * map with these addresses would visit fewer sockets, but some kernels refuse iterators
 * over maps.
 */
#include "include/local.h"

#include <linux/inet_diag.h>
#include <bpf/bpf_core_read.h>

/* The fields of the kernel's sockets that the programs read via BTF. */
struct sock_common {
	__be32 skc_daddr, skc_rcv_saddr;
	__be16 skc_dport;
	__u16 skc_num;
	unsigned short skc_family;
	volatile unsigned char skc_state;
	int skc_bound_dev_if;
	struct in6_addr skc_v6_daddr, skc_v6_rcv_saddr;
} __attribute__((preserve_access_index));

struct udp_sock;

struct bpf_iter_meta {
	struct seq_file *seq;
} __attribute__((preserve_access_index));

struct bpf_iter__tcp {
	struct bpf_iter_meta *meta;
	struct sock_common *sk_common;
} __attribute__((preserve_access_index));

struct bpf_iter__udp {
	struct bpf_iter_meta *meta;
	struct udp_sock *udp_sk; /* begins with a struct sock_common */
} __attribute__((preserve_access_index));

/* read_socket identifies the socket in the request. */
inline_always void read_socket(struct inet_diag_req_v2 *r, struct sock_common *c, __u32 protocol)
{
	__u64 cookie = bpf_get_socket_cookie(c);

	r->sdiag_family = c->skc_family;
	r->sdiag_protocol = protocol;
	r->idiag_states = ~0;
	r->id.idiag_sport = bpf_htons(c->skc_num);
	r->id.idiag_dport = c->skc_dport;
	r->id.idiag_if = c->skc_bound_dev_if;
	r->id.idiag_cookie[0] = cookie;
	r->id.idiag_cookie[1] = cookie >> 32;
	if (c->skc_family == AF_INET) {
		r->id.idiag_src[0] = c->skc_rcv_saddr;
		r->id.idiag_dst[0] = c->skc_daddr;
	} else if (bpf_core_field_exists(c->skc_v6_daddr)) { /* false in a kernel without IPv6 */
		copy_words((struct address *)r->id.idiag_src, c->skc_v6_rcv_saddr.in6_u.u6_addr32);
		copy_words((struct address *)r->id.idiag_dst, c->skc_v6_daddr.in6_u.u6_addr32);
	}
}

/* is_stale_socket reports whether the translation that connected the socket to its peer
 * no longer exists.
 */
global_func int is_stale_socket(const struct dialled *d, const struct dialled_slot *peer, __u32 udp)
{
	__u32 slot = dialled_slot_of(d, peer);
	const struct dialled_slot *s;
	struct mapping *l;
	__u16 port;

	if (!d || slot >= DIALLED_SLOTS)
		return 0;
	s = &d->slots[slot];
	if (s->real)
		return !is_current_real(s->real, s->generation);
	port = bpf_ntohs(s->host_port);
	l = find_mapping(CLASS(!is_v4(&s->host), udp), &s->host, port, &slot);
	return !l || (l->flags & MAPPING_GRANT) || !same(&l->to, &s->to) || endpoint_port_of(l, port) != s->to_port;
}

/* is_connected reports whether the socket has a peer and is not closed. */
inline_always int is_connected(struct sock_common *c)
{
	return c->skc_state != BPF_TCP_CLOSE && c->skc_num && c->skc_dport;
}

/* list_if_stale writes the request that closes the socket if its translation is stale. */
inline_always int list_if_stale(struct seq_file *list, struct sock_common *c, __u32 protocol)
{
	struct inet_diag_req_v2 end = {};
	struct dialled_slot peer = {};
	struct dialled *d;

	if (!c || !is_connected(c))
		return 0;
	d = bpf_sk_storage_get(&fl_dialled, c, 0, 0);
	if (!d)
		return 0;
	read_socket(&end, c, protocol);
	peer.to_port = end.id.idiag_dport;
	if (end.sdiag_family == AF_INET)
		map_v4(&peer.to, end.id.idiag_dst[0]);
	else
		copy_words(&peer.to, end.id.idiag_dst);
	if (is_stale_socket(d, &peer, protocol == IPPROTO_UDP))
		bpf_seq_write(list, &end, sizeof(end));
	return 0;
}

SEC("iter/tcp")
int fl_tcp_iter(struct bpf_iter__tcp *ctx)
{
	return list_if_stale(ctx->meta->seq, ctx->sk_common, IPPROTO_TCP);
}

SEC("iter/udp")
int fl_udp_iter(struct bpf_iter__udp *ctx)
{
	return list_if_stale(ctx->meta->seq, (struct sock_common *)ctx->udp_sk, IPPROTO_UDP);
}
