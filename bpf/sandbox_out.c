/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
/* fl_sandbox_out runs at the egress of the link of a sandbox whose outbound connections are
 * translated. Packets that the programs redirect into the sandbox do not pass it, so each
 * datagram here belongs to an exchange that the kernel forwards (outbound.h).
 */
#include "include/datapath.h"

SEC("tc")
int fl_sandbox_out(struct __sk_buff *skb)
{
	struct packet p = {};

	if (!read_packet(skb, &p) && !p.v6 && p.class & 1 && p.kind == PACKET_L4)
		note_exchange(&p);
	return UNTOUCHED;
}
