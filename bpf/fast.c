/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
/* fast runs in the driver of an uplink (XDP). */
#include "include/fast.h"

SEC("xdp")
int fast(struct xdp_md *ctx)
{
	struct work *w = work_of();
	struct packet p = {};
	struct flow *f;

	if (!w || !is_served_any(SERVED_REMOTE) || read_fast(ctx, &p))
		return XDP_PASS;
	f = pick_fast(ctx, &p, w);
	return f ? lead_fast(ctx, &p, w, f) : XDP_PASS;
}
