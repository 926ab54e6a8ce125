// Package vip decides which node of a cluster holds a virtual address. At most one node
// answers for an address at any time, whatever fails. The package talks to no kernel and
// no network: its Machine is a pure state machine for one address. It returns what to do:
// transactions, questions to the other nodes, deadlines of the fence.
//
// # Theory of operation
//
// The record of an address (record.Address) has its holder. A holder answers until a
// deadline by its own CLOCK_BOOTTIME. The kernel enforces the deadline: the fence
// (bpf/fence.c) drops ARP, neighbour discovery and IP packets of the address when the
// deadline has passed, also while the daemon is stopped or dead. All protocol steps only
// decide by how much the deadline may be extended.
//
// Holding. The holder changes the record every quarter of the hold time H: sequence+1, on
// condition that the record has the revision that the holder knows. If the store answers
// that the change is committed, the deadline is the time at which the request was sent,
// plus H. A lost or unclear answer extends nothing.
//
// Claiming. A candidate waits until it has not seen a change of the record for
// 1.1 H + 100 ms of its own clock. It then claims the address with one transaction on the
// revision that it saw last, with epoch+1. If the holder has changed the record since, the
// claim fails. If not, the holder sent its last committed request before the candidate saw
// the result, so the holder's deadline has passed. Offsets of clocks do not matter. Rates
// may differ by 10 %: see MaxHold. A candidate waits for the same time after it has seen a
// record for the first time, e.g. after a start, because it does not know what it
// promised earlier, and whether a record with the same name existed before.
//
// Releasing. A holder that stops, is drained, loses its carrier, or moves the address to
// another node closes the fence first. Then it deletes itself from the record, and a
// candidate may claim at once. A node that is drained keeps the address while no other node can take it:
// nodes report in their leased records which addresses they cannot hold. An old report moves no deadline, so it
// can only delay a node that takes the address.
//
// Without the store. If no request was answered for H/2, the holder asks the nodes that
// the record lists (Listed) to promise that they do not claim. A node promises for 1.1 H
// + 100 ms of its own clock, and refuses while it has a claim in flight or holds the
// address itself. If all promise, the deadline is the time at which the question was
// sent, plus H; if they answered different questions, the first of these counts. So a
// node may restart meanwhile, and its answer may take longer than H/4, after which the
// holder asks again. If one does not promise, the holder's deadline passes. Listed is
// changed only by the holder, in the same transactions as the sequence, so a node that
// the holder does not know of cannot claim. A holder that has sent a change of Listed
// without an answer asks the nodes of both lists. It stores its Memory before it sends
// such a change. So after a start it can ask, too. Without the Memory, it does not ask
// before the store has answered it once.
//
// When the lease has ended, promises do not begin another one: a candidate may have claimed the
// address since, moved it to a node that this holder does not list, and forgotten both by a
// restart, because its mirror's file can be some seconds old. Only the store knows. So an address
// is lost until the store is back if a listed node, or the holder's own daemon, is away for the
// hold time while the store is.
//
// Restored stores. A record with a lower revision than before is of a store that was
// restored from a snapshot. Package mirror freezes then. If an administrator accepts the
// restored store, each Machine waits as after a start.
//
// What is not covered: a virtual machine that is paused does not count the time, so that
// its fence is open for up to H after it resumes. A forced claim (Machine.Force) ignores Listed: the
// administrator guarantees that the previous holder is down.
package vip
