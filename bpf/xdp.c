/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
/* fl_xdp runs in the driver of an uplink (XDP). */
#include "include/xdp.h"

SEC("xdp")
int fl_xdp(struct xdp_md *ctx)
{
	struct work *w = work_of();
	struct packet p = {};
	struct flow *f;

	if (!w || !has_services(SERVED_REMOTE) || xdp_read(ctx, &p))
		return XDP_PASS;
	f = xdp_find_flow(ctx, &p, w);
	return f ? xdp_forward(ctx, &p, f) : XDP_PASS;
}
