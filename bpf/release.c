/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
/* fl_release runs when the last descriptor of a socket is closed. The real server's
 * number of sockets is decremented. Sockets that the kernel itself created do not
 * trigger this hook.
 */
#include "include/local.h"

SEC("cgroup/sock_release")
int fl_release(struct bpf_sock *sk)
{
	struct dialled *d;

	if (!balancing)
		return PROCEED;
	d = bpf_sk_storage_get(&fl_dialled, sk, 0, 0);
	if (!d)
		return PROCEED;
	for (int i = 0; i < DIALLED_SLOTS; i++)
		count_socket(&d->slots[i], -1);
	return PROCEED;
}
