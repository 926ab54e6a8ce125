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
// Clocks are never mixed. Each side reads its counters together with its own
// CLOCK_MONOTONIC at both edges, and rates are its bytes over its interval. On a
// saturated machine a control message may arrive milliseconds late, which moves
// the window but does not change the rate.
//
// Every stream has one locked OS thread and a raw blocking descriptor outside
// the Go poller, counters on cache lines of their own and buffers made before
// the traffic starts; the garbage collector is off for the whole run. A bulk
// receiver sleeps until a whole buffer is there. So a bulk stream is not
// slower than iperf3's on the same cores, and a `block` transaction what
// netperf's or qperf's costs. A `spin` stream polls a non-blocking descriptor
// as sockperf does, for at most a millisecond, then waits in poll(2).
//
// A TCP stream opens with a hello that says which run and direction it
// belongs to, and the server acknowledges it: a proxy may split or merge the
// bytes, and one that accepts for a dead server is found out. A UDP stream
// repeats the hello until it is answered; the server answers the source that
// it sees (there may be NAT) from a connected socket of its own, which from
// then on receives that flow. Later datagrams carry the token and the
// sender's phase, so loss is taken over exactly those sent in the window.
//
// tcp-crr has no hello, because its one request is the whole connection. With
// close=fin the server closes first and the client waits for that FIN:
// TIME_WAIT then stays at the server, where a new SYN may reuse it at once,
// and the client never runs out of source ports, whatever tcp_tw_reuse says.
// With close=rst the client resets, the server waits for that, and no
// TIME_WAIT is left anywhere. Neither binds the client's address, so ports
// are picked at connect(2) against the whole four-tuple.
//
// What a connection costs its two ends hides what it costs the path, so it has
// as few segments as TCP allows. With close=fin these are SYN, SYN with ACK,
// request with ACK, answer with FIN, FIN with ACK, ACK: those of a client that
// has its request ready, and of a server that knows its answer to be the last.
//
// Live flows are other UDP flows to the same port, for paths that remember
// flows: one datagram each, before the streams are opened, and then silence.
// Each comes from a source (address, port) of its own, bound and closed again.
//
// With a fixed Rate each stream follows a schedule that is computed beforehand:
// clock_nanosleep to an absolute time, then (for transactions) a short spin.
// Latency counts from the intended time, so it includes the delay of requests
// that a stalled path has blocked. The service time, from the actual sending, is
// recorded too. Lateness is the generator's own delay: the time from when it
// should and could send until it did.
//
// Linux only; recvmmsg and UDP_SEGMENT/UDP_GRO want kernel 5.0.
package load
