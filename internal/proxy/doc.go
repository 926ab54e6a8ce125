// Package proxy forwards published TCP and UDP ports in user space: one
// process serves every port of a host. It does not decide which ports exist
// (package plan does), resolves no names, and looks at no payload.
//
// # Theory of operation
//
// The parent (Start, Set, Stats) and the child (Main) speak JSON over a
// socketpair. Set carries the whole desired state; the child's registry
// diffs it, binds what is new, and only when all of it is bound changes
// anything. The child ends when its end of the socketpair reads EOF, unless it
// is kept.
//
//	parent ──Set──▶ registry ──post──▶ worker 0 ─┬─ epoll ─ listening sockets
//	                (binds)           worker 1  │         connections (2 fds)
//	                                    …       └─        flows (1 fd)
//
// A proxy that Keep starts outlives its parent. It listens on a unix socket,
// where Find of the next parent asks what it holds and goes on from there; no
// socket of the data path is touched. One that runs another program than the
// parent does is replaced by a successor, which gets copies of its sockets
// (handover.go) while it goes on with the connections that it has. A kept
// proxy ends when it holds nothing. Parent and proxy each check via SO_PEERCRED that
// the other runs as root or as the same user.
//
// A worker is an epoll loop that owns its sockets outright: nothing on the
// data path takes a lock. A TCP listener belongs to one worker, which keeps
// the connections that it accepts unless it has many more than another;
// streams that prove bulky are spread evenly. A UDP port and its flows stay
// on one worker.
//
// TCP moves bytes through the worker's one buffer as long as transfers are
// small: it costs no descriptors and no memory a connection. A direction
// that keeps filling the buffer gets a pipe and is spliced, so its pages are
// never copied; it gives the pipe back when it falls quiet. A peer that
// reads slowly leaves the rest in the pipe, and its sender is not read until
// that has drained. Sockets are registered once, edge-triggered, for both
// directions; work a wake-up is bounded, and what is left goes on after the
// other sockets had their turn.
//
// The local ports of connections to targets are the worker's own choice,
// because the kernel's would run dry in TIME_WAIT; see dial.go.
//
// UDP reads and writes in batches (recvmmsg, sendmmsg), and sends equal
// datagrams as segments of one large packet. A client address
// and the local address it sent to make a flow with its own connected
// socket towards the target; answers leave from that local address.
//
// System calls that cannot block are made as raw ones, and a worker waits
// a few milliseconds raw before it parks: the Go scheduler then never takes
// the worker's processor away in the middle of traffic, which costs two
// thread switches a time. GOMAXPROCS is one above the number of workers, so
// that the control loop always finds a processor.
//
// # Limits
//
// Linux 4.19 (TCP_REPAIR_OFF_NO_WP) and a 64-bit machine. Reservations and
// listeners that overlap need CAP_NET_ADMIN. A connection to the target
// takes one local port, so one target port takes at most as many connections
// at a time as net.ipv4.ip_local_port_range holds ports. A program that bound a TCP port with SO_REUSEADDR and does not listen yet has
// agreed to share it, and loses it to a listener of ours.
package proxy
