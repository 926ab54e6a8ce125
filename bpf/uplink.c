/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
/* fl_uplink runs at the ingress of uplinks. */
#include "include/datapath.h"

SEC("tc")
int fl_uplink(struct __sk_buff *skb)
{
	struct packet p = {};
	int act;

	if (skb->pkt_type != 0 || read_packet(skb, &p))
		return UNTOUCHED;
	if (!p.v6 && (p.kind == PACKET_ERROR ? is_outbound_port(p.inner_sport) : is_outbound_port(p.dport))) {
		act = p.kind == PACKET_ERROR ? outbound_error(skb, &p) : answer_outbound(skb, &p);
		if (act != UNTOUCHED)
			return act;
	}
	if (has_services(SERVED_REMOTE)) {
		act = outward(skb, &p, 1);
		if (act != NOT_A_REPLY && (act != UNTOUCHED || p.kind != PACKET_ERROR))
			return act;
	}
	return inward(skb, &p, 0);
}
