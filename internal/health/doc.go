// Package health checks real servers, and computes from the results which real
// servers a virtual service may use. It opens sockets and runs commands like any
// client, and changes nothing in the kernel; the user of a Monitor applies its
// results.
//
// Theory of operation.
//
//	services → Monitor.Set → one heap, ordered by time
//	                            │ at most InFlight checks at a time
//	                            ▼
//	                         Checker: one file per type     data plane → Monitor.Signal
//	                            │ Result                            │ (failed clients)
//	                            ▼                                   ▼
//	                         machine: rise, fall, slow start, hold (no clock inside)
//	                            │ Change, in batches
//	                            ▼
//	services → Effective: states, weights, panic, quorum, sorry server → the engine
//
// A check opens a new connection each time and ends it with a reset. So it sees
// what a new client sees, unlike a check on an old connection, and it leaves no
// TIME_WAIT behind. A TCP check needs four system calls if the server is on this
// host or answers at once, so keeping connections would save nothing.
//
// Measured on two busy cores of an AMD EPYC, both ends on loopback and the
// kernel's work for both counted: 40 to 60 µs of CPU for a TCP check, 80 to 110 for
// an HTTP check (BenchmarkChecks). 10,000 real servers every 2 s take a quarter of
// a core, or about half of one.
//
// attempt.go describes how checks of one server overlap.
//
// A server may answer a check with anything. The package limits what it reads in
// bytes and in time, and shows one short line of it.
package health
