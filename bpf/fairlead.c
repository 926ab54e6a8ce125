/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
/* One object holds all programs, so that they share their maps. */
#include "uplink.c"
#include "sandbox.c"
#include "homeward.c"
#include "fast.c"
#include "connect.c"
#include "sendmsg.c"
#include "recvmsg.c"
#include "getpeername.c"
#include "release.c"
#include "astray.c"
#include "bind.c"
#include "own_bind.c"
#include "own_post_bind.c"
#include "own_getsockname.c"
#include "own_connect.c"
#include "own_getpeername.c"

char __license[] SEC("license") = "Dual BSD/GPL";
