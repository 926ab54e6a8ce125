/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
/* fl_sandbox runs at the ingress of a sandbox's link on the host. A packet that is not a
 * reply of an endpoint may be a packet to a published port. Broadcast and multicast are
 * ignored. At a bridge port the kernel marks frames for the bridge as PACKET_OTHERHOST.
 * A packet that is neither may open a connection to a host outside.
 * A real server of a service with direct forwarding answers from the service's address,
 * also to the checks of other hosts, for which there is no flow.
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
	if (act == UNTOUCHED && p.kind == PACKET_L4 && has_outbound(skb))
		act = open_outbound(skb, &p);
	if (act == UNTOUCHED && (is_endpoint_address(skb->ifindex, &p.src) || is_direct_answer(&p)))
		skb->mark |= SOURCE_VALID;
	return act;
}
