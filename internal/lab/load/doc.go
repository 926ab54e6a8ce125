// Package load generates the laboratory's traffic: one child process per side,
// each in its own network namespace and cgroup, moves bytes over a path and counts
// them. It does not build paths, evaluate results or account for CPU time beyond
// its own two processes.
//
// # Theory of operation
//
//	parent ──control (JSON lines over a socketpair)── client child
//	  │                                                   ║ traffic
//	  └─────control─────────────────────────────────── server child
//
// The parent sends the server a Spec and a random token, makes the client
// connect, lets the traffic warm up, marks the begin and end of the window on
// both sides, stops the senders and collects the results. The control channel
// never shares a wire with traffic, so no loss affects start and stop. A child
// ends itself when its control channel closes, or is silent for longer than the
// run may take.
//
// Clocks are never mixed. Each side reads its counters together with its own
// CLOCK_MONOTONIC at both edges, and rates are its bytes over its interval. On a
// saturated machine a control message may arrive milliseconds late, which moves
// the window but does not change the rate.
//
// Every stream has one locked OS thread and a raw blocking descriptor outside
// the Go poller, counters on cache lines of their own and buffers made before
// the traffic starts; the garbage collector is off for the whole run. A bulk
// receiver sleeps until a whole buffer has arrived. So a bulk stream is not
// slower than iperf3's on the same cores, and a `block` transaction costs as much
// as netperf's or qperf's. A `spin` stream polls a non-blocking descriptor as
// sockperf does, for at most a millisecond, then waits in poll(2).
//
// A TCP stream opens with a hello that says which run and direction it
// belongs to, and the server acknowledges it. So a proxy may split or merge the
// bytes, and a proxy that accepts connections for a dead server is detected. A
// UDP stream repeats the hello until it is answered. The server answers the source
// address that it sees, which NAT may have changed, from a new socket connected to
// that source; that socket then receives the flow. Later datagrams carry the token
// and the sender's phase, so loss counts exactly the datagrams sent in the window.
//
// tcp-crr has no hello, because its one request is the whole connection. With
// close=fin the server closes first and the client waits for that FIN:
// TIME_WAIT then stays at the server, where a new SYN may reuse it at once,
// and the client never runs out of source ports, whatever the value of
// tcp_tw_reuse. With close=rst the client resets the connection, the server waits
// for the reset, and neither side enters TIME_WAIT. With close=client-fin the client
// closes first, as most clients do: each connection then keeps its source port for a
// minute (TIME_WAIT), on the client and wherever a path translates its address. Both ends
// acknowledge as the kernel does by default: some stacks in user space wait for that. With a
// number of attempts, a run shows when these ports run out: each connection is tried
// once, and those that fail are counted by reason. In all modes the client's
// address is not bound, so connect(2) chooses a port that is free for the whole
// four-tuple. The same holds for HTTP: the client waits for the server's FIN if each
// request has a connection, and at the end of a run it resets those that are kept,
// which can be 10,000.
//
// The cost of a connection at its two ends hides its cost on the path, so a
// connection has as few segments as TCP allows. With close=fin these are SYN, SYN
// with ACK, request with ACK, answer with FIN, FIN with ACK, ACK: the client has
// its request ready, and the server knows that its answer is the last data.
//
// udp-query has no hello either: each question and its answer are one datagram of a
// socket of their own, so each is a new flow for the path. The server answers from the
// listener's socket and from the address that the question was sent to. A question
// carries the run's token and a number, which its answer repeats.
//
// Streams in the background of tcp-rr are streams of tcp-bulk with a mark in their
// hello. They show the latency of a path under load: the requests wait in the same
// queues as the bulk data. Only transactions have latencies, and only the bulk data
// counts as throughput.
//
// Live flows are additional UDP flows to the same port, for paths that keep flow
// state. Each sends one datagram before the streams are opened, and nothing after
// it. Each has a different source (address and port), which is bound and closed
// again.
//
// With a fixed Rate each stream follows a schedule that is computed beforehand:
// clock_nanosleep to an absolute time, then (for transactions) a short spin.
// Latency counts from the intended time, so it includes the delay of requests
// that a stalled path has blocked. The service time, from the actual sending, is
// recorded too. Lateness is the generator's own delay: the time from when it
// should and could send until it did.
//
// Linux only; recvmmsg and UDP_SEGMENT/UDP_GRO need kernel 5.0.
package load
