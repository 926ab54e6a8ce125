package hold

import (
	"fmt"
	"maps"
	"net"
	"net/netip"
	"time"

	"fairlead/internal/api"
	"fairlead/internal/kernel/virtual"
)

// Role says what this node is for an address.
type Role string

// The roles.
const (
	// Holder answers for the address.
	Holder Role = "holder"
	// Candidate takes the address if the holder fails.
	Candidate Role = "candidate"
	// Observer cannot take the address now; State.Barred says why.
	Observer Role = "observer"
)

// Conflict is the last time that another host has answered for an address that this node
// holds. Its zero value means never.
type Conflict struct {
	By net.HardwareAddr
	At time.Time
}

func (c Conflict) describe(link string) string {
	return fmt.Sprintf("the host %s on link %s answers for it, too: find it and remove the address there", c.By, link)
}

// State is a virtual address as this node sees it.
type State struct {
	Address netip.Addr
	// Link is the link of this host that has the address, or would have it; empty if none.
	Link string
	// Holder is the id of the node that has the address by the newest snapshot; empty if none
	// has. Since is when it took the address.
	Holder string
	Since  time.Time
	Epoch  int64
	Hold   time.Duration
	// Target is the id of the node to which the address is being moved; empty if none.
	Target string
	Role   Role
	// Remaining is how long this node answers without a further promise; 0 if it does not.
	Remaining time.Duration
	// Barred is why this node does not take the address even if no node has it.
	Barred   string
	Conflict Conflict
}

// States returns the virtual addresses of the cluster, in their order.
func (r *Runner) States() []State {
	r.mu.Lock()
	defer r.mu.Unlock()
	now := virtual.Now()
	var all []State
	for _, a := range r.sorted() {
		if a.entry.Value == nil {
			continue
		}
		s := State{Address: a.addr, Link: a.on.Name, Holder: a.rec.Holder, Since: a.rec.Since, Epoch: a.rec.Epoch,
			Hold: a.rec.Hold, Target: a.rec.Target, Role: Candidate, Remaining: max(0, a.deadline-now),
			Barred: a.machine.Barred(), Conflict: a.conflict}
		switch {
		case a.open && s.Remaining > 0:
			s.Role = Holder
		case s.Barred != "":
			s.Role = Observer
		}
		all = append(all, s)
	}
	return all
}

// Force makes this node claim an address although the record does not list it. The
// administrator guarantees that the holder is down. Returns an api.NotFound fault if the
// cluster does not have the address, and api.Conflict if this node cannot have it.
func (r *Runner) Force(addr netip.Addr) error {
	r.mu.Lock()
	defer r.mu.Unlock()
	a := r.known[addr]
	if a == nil || a.entry.Value == nil {
		return api.Faultf(api.NotFound, "the cluster has no virtual address %s", addr)
	}
	if why := a.machine.Barred(); why != "" {
		return api.Faultf(api.Conflict, "claim %s: this node cannot have it: %s", addr, why)
	}
	r.do(a, a.machine.Force(virtual.Now()))
	r.settle()
	return nil
}

// Unable returns the addresses of which this node is a candidate, but which it cannot hold now, and why.
func (r *Runner) Unable() map[netip.Addr]string {
	r.mu.Lock()
	defer r.mu.Unlock()
	all := map[netip.Addr]string{}
	for addr, a := range r.known {
		if a.entry.Value != nil && a.view.Unable != "" && a.rec.Candidate(r.self.Node) {
			all[addr] = a.view.Unable
		}
	}
	return all
}

// problems returns why this node cannot do its part for addresses.
func (r *Runner) problems() (all []string) {
	for _, a := range sortedByAddress(maps.Keys(r.troubled)) {
		if a.entry.Value != nil && a.view.Unable != "" {
			all = append(all, "address "+a.addr.String()+": "+a.view.Unable)
		}
		if a.open && time.Since(a.conflict.At) < conflictEvery {
			all = append(all, "address "+a.addr.String()+": "+a.conflict.describe(a.on.Name))
		}
	}
	return all
}
