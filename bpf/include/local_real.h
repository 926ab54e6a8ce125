/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
/* Real servers that are the host itself.
 *
 * Theory of operation. A packet for one gets its address and port where it comes
 * in, as for any other, and is then left to the kernel, which takes it for what
 * it is now: one for an address of the host's. So the host's own rules hold for
 * it. The answer leaves as any packet of the host's does, and at the link's
 * egress, behind routing and netfilter, it gets the address that the client has
 * dialled.
 *
 *	client ── uplink ─[balance]── INPUT ── socket
 *	client ── uplink ─[homeward]── POSTROUTING ── OUTPUT ── socket
 *
 * What the host only forwards, or our programs have sent out, is no answer of
 * the host's own, and known by the link that it came in by: so it costs no more
 * than to look at that.
 *
 * By direct and tunnel nothing is rewritten, and no answer comes by here.
 *
 * Limit: a client that at the same time dials the host's server at its own
 * address, from the very port that its connection to the service is from, cannot
 * be told from that.
 */
#pragma once

#include "datapath.h"

/* rewrite_local_reply gives an answer of the host's own the address and port that the
 * client has dialled. The kernel sends it.
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
	last = track(skb->len, f, p, OUTWARD);
	reply_ends(&to, f);
	if (rewrite(skb, p, &to))
		return count_drop(f->slot, OUTWARD);
	if (last)
		end_flow(f, &key);
	return UNTOUCHED;
}
