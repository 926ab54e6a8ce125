// Package proxy forwards published TCP and UDP ports in user space: one
// process serves all ports of a host. Package plan decides which ports exist.
// The proxy resolves no names and does not read the payload.
//
// # Theory of operation
//
// The parent (Start, Set, Stats) and the child (Main) exchange JSON over a
// socketpair. Set carries the whole desired state. The child's registry
// compares it with the current one and binds the new sockets; only when all of
// them are bound does it change anything. The child ends when its end of the
// socketpair reads EOF, unless it was started by Keep.
//
//	parent ──Set──▶ registry ──post──▶ worker 0 ─┬─ epoll ─ listening sockets
//	                (binds)           worker 1  │         connections (2 fds)
//	                                    …       └─        flows (1 fd)
//	                                  worker n ─── epoll ─ bulk streams (2 fds)
//	                                    …
//
// A proxy that Keep starts (a kept proxy) outlives its parent. It listens on a
// unix socket, where the next parent finds it (Find) and reads its
// configuration; this touches no socket of the data path. If it runs another
// version of the program than the parent, a successor replaces it: the
// successor gets copies of its sockets (handover.go), and the old proxy keeps
// only its open connections. A kept proxy ends when it has no sockets and no
// connections. Parent and proxy each check via SO_PEERCRED that
// the other runs as root or as the same user.
//
// A worker is an epoll loop. Only the worker uses its sockets, so nothing on
// the data path takes a lock. A TCP listener belongs to one worker, which keeps
// the connections that it accepts unless it has many more than another worker.
// A UDP port and its flows stay on one worker. There are as many workers again for
// bulk streams only: a connection moves to one of them while it is a bulk stream, so
// that small transfers do not wait for a thread that never sleeps.
//
// TCP bytes are copied through the worker's only buffer as long as transfers
// are small: this needs no descriptors and no memory per connection. A
// direction that fills the buffer repeatedly gets a pipe and is spliced, so its
// pages are not copied. It returns the pipe when transfers become small again.
// A user without CAP_SYS_RESOURCE may have too many pages in pipes; then the
// direction continues with the buffer. If a peer reads slowly, the rest stays in
// the pipe or in memory, and nothing more is read from the sender until it is sent. Sockets are registered once,
// edge-triggered, for both directions. A worker waits for events, serves those of
// small transfers, and gives one stream one turn of limited size; then it waits again,
// for no time if streams are left.
//
// The worker chooses the local ports of connections to targets itself, because
// the kernel's choice would run out of ports in TIME_WAIT; see dial.go.
//
// UDP is read and written in batches (recvmmsg, sendmmsg), and datagrams of
// equal size are sent as segments of one large packet (UDP GSO). A client
// address and the local address that it sent to identify a flow. Each flow has
// a connected socket towards the target; answers are sent from that local
// address.
//
// System calls that cannot block are made as raw system calls, and a worker
// first waits for a few milliseconds in a raw epoll_pwait before it waits
// through the Go runtime. So the Go scheduler does not take the worker's
// processor away during traffic, which would cost two thread switches each
// time. GOMAXPROCS is the number of workers plus one, so that the control loop
// always gets a processor.
//
// # Limits
//
// Linux 4.19 (TCP_REPAIR_OFF_NO_WP) and a 64-bit machine. Reservations and
// listeners that overlap need CAP_NET_ADMIN. A connection to the target
// uses one local port, so one target port can have at most as many connections
// at a time as net.ipv4.ip_local_port_range has ports. If another program has
// bound a TCP port with SO_REUSEADDR and does not listen yet, a listener of the
// proxy can take that port.
package proxy
