/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
/* sandbox runs where packets come to the host from a sandbox: what is no
 * answer may be for a published port.
 */
#include "include/steer.h"

SEC("tc")
int sandbox(struct __sk_buff *skb)
{
	struct packet p = {};
	int act;

	if (read_packet(skb, &p))
		return UNTOUCHED;
	act = outward(skb, &p);
	if (act == NOT_AN_ANSWER || (act == UNTOUCHED && p.kind == PACKET_ERROR))
		act = inward(skb, &p, FLOW_PEER);
	return act;
}
