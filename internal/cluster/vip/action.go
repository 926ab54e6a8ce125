package vip

import (
	"time"

	"fairlead/internal/cluster/kv"
)

// Time is a time of CLOCK_BOOTTIME on one host.
type Time = time.Duration

// Action is what a Machine wants to be done: Commit, Open, Extend, Close or Ask. Actions
// are carried out in their order: a Close that failed must not be followed by the Commit
// after it.
type Action interface{ action() }

// Commit sends a transaction. The result goes to Machine.Answered with the same ID.
type Commit struct {
	ID  int64
	Txn kv.Txn
	// Timeout ends the request. Its outcome is unknown then.
	Timeout time.Duration
}

// Open makes this node answer for the address until the deadline.
type Open struct{ Deadline Time }

// Extend moves the deadline of an address that is open.
type Extend struct{ Deadline Time }

// Close makes this node stop answering for the address at once.
type Close struct{ Reason string }

// Ask asks nodes for their promise. Their answers go to Machine.Promised with the same
// round.
type Ask struct {
	Round   int64
	Nodes   []string
	Request Request
	Timeout time.Duration
}

func (Commit) action() {}
func (Open) action()   {}
func (Extend) action() {}
func (Close) action()  {}
func (Ask) action()    {}

// Request is a holder's question to another node: "Do you promise not to claim this
// address for 1.1 Hold + 100 ms?"
type Request struct {
	Address string        `json:"address"`
	Holder  string        `json:"holder"`
	Epoch   int64         `json:"epoch"`
	Hold    time.Duration `json:"hold"`
}

// Promise is the answer to a Request.
type Promise struct {
	Promised bool `json:"promised"`
	// Reason says why the node refuses.
	Reason string `json:"reason,omitempty"`
}
