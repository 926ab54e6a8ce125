// Package health finds out which real servers are well, and what that makes of
// a virtual service. It opens sockets and runs commands as any client does, and
// touches nothing in the kernel; who asks for a Monitor applies what it says.
//
// Theory of operation.
//
//	services → Monitor.Set → one heap of what is due when
//	                            │ at most InFlight at a time
//	                            ▼
//	                         Checker: one file a kind       the plane → Monitor.Signal
//	                            │ Result                            │ (failed clients)
//	                            ▼                                   ▼
//	                         machine: rise, fall, slow start, hold (no clock inside)
//	                            │ Change, in batches
//	                            ▼
//	services → Effective: states, weights, panic, quorum, sorry server → the engine
//
// A check opens a new connection each time and ends it with a reset: it sees
// what a new client sees, which a connection kept from before does not, and it
// leaves no TIME_WAIT behind. A TCP check is four system calls where the server
// is on this host or answers at once, so nothing is won by keeping connections.
//
// Measured on two busy cores of an AMD EPYC, both ends on loopback and the
// kernel's work for both counted: 40 to 60 µs of CPU for a TCP check, 80 to 110 for
// an HTTP check (BenchmarkChecks). 10,000 real servers every 2 s take a quarter of
// a core, or about half of one.
//
// How checks of one server overlap is told in attempt.go.
//
// A server answers a check with what it likes. What is read of it is bounded in
// bytes and in time, and what is shown of it is one short line.
package health
