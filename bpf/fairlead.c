/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
/* One object contains all programs, so that they share their maps. */
#include "uplink.c"
#include "sandbox.c"
#include "sandbox_out.c"
#include "local_real_egress.c"
#include "xdp.c"
#include "connect.c"
#include "sendmsg.c"
#include "recvmsg.c"
#include "getpeername.c"
#include "release.c"
#include "sock_iter.c"
#include "bind.c"
#include "workload_bind.c"
#include "workload_post_bind.c"
#include "workload_getsockname.c"
#include "workload_connect.c"
#include "workload_getpeername.c"

char __license[] SEC("license") = "Dual BSD/GPL";
