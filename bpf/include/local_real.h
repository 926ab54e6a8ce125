/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
/* Real servers that are the host itself.
 *
 * Theory of operation. A packet for such a real server is translated at ingress like any
 * other. Then it continues in the kernel, which delivers it to a socket of the host. So
 * the host's own packet filter rules apply to it. The reply leaves like any packet of
 * the host. At the link's egress, after routing and netfilter, its source becomes the
 * address that the client dialled.
 *
 *	client ── uplink ─[balance]── INPUT ── socket
 *	client ── uplink ─[fl_local_egress]── POSTROUTING ── OUTPUT ── socket
 *
 * Forwarded packets, and packets that these programs have redirected, are not replies of
 * the host. They have an ingress link, so the program skips them after reading that
 * field.
 *
 * With direct and tunnel forwarding nothing is rewritten, and replies do not need this
 * program.
 *
 * Limit: a client can connect to the service and to the host's server at its own address
 * from the same client port at the same time. The two connections cannot be
 * distinguished.
 */
#pragma once

#include "datapath.h"

/* rewrite_local_reply gives a reply of the host the source address and port that the
 * client dialled. The kernel sends it.
 */
inline_always int rewrite_local_reply(struct __sk_buff *skb, struct packet *p)
{
	struct flow_key key = {};
	struct ends to;
	struct flow *f;
	int last;

	if (p->kind == PACKET_ERROR)
		return error_outward(skb, p, FROM_HOST);
	reply_key(&key, p);
	f = find_flow(&key);
	if (!f || !(f->flags & FLOW_LOCAL_REAL))
		return UNTOUCHED;
	if (is_stale(f, p->class)) {
		end_flow(f, &key);
		return UNTOUCHED;
	}
	count_reset(f, p);
	last = track_reply(skb->len, f, p);
	reply_ends(&to, f);
	if (rewrite(skb, p, &to))
		return count_drop(f->slot, OUTWARD);
	if (last)
		end_flow(f, &key);
	return UNTOUCHED;
}
