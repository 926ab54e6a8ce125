/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
/* fl_local_egress runs at the egress of links while there are real servers that are the
 * host itself.
 */
#include "include/local_real.h"

SEC("tc")
int fl_local_egress(struct __sk_buff *skb)
{
	struct packet p = {};

	if (!balancing || skb->ingress_ifindex || read_packet(skb, &p))
		return UNTOUCHED;
	return rewrite_local_reply(skb, &p);
}
