/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
/* sandbox runs where packets come to the host from a sandbox: what is no
 * answer may be for a published port. What is for many is neither. A frame
 * for a bridge counts as another host's at the bridge's port.
 */
#include "include/datapath.h"

#include <linux/if_packet.h>

SEC("tc")
int fl_sandbox(struct __sk_buff *skb)
{
	struct packet p = {};
	int act;

	if (skb->pkt_type == PACKET_BROADCAST || skb->pkt_type == PACKET_MULTICAST || read_packet(skb, &p))
		return UNTOUCHED;
	act = outward(skb, &p, 0);
	if (act == NOT_A_REPLY || (act == UNTOUCHED && p.kind == PACKET_ERROR))
		act = inward(skb, &p, FLOW_PEER);
	return act;
}
