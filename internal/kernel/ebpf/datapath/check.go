package datapath

import (
	"time"

	"fairlead/internal/kernel/ebpf"
)

// recountInterval is the time between two counts of the flows of real servers.
const recountInterval = 10 * time.Second

// Check reports whether the programs are attached and pinned, and whether their
// maps contain what Fairlead has written. If a service compares the load of real servers,
// it also counts their flows again every recountInterval.
func (h *Handle) Check() (attached, intact bool) {
	h.mu.Lock()
	defer h.mu.Unlock()
	attached = h.overlays.programs == nil || h.overlays.programs.AllAttached()
	p := h.ebpfState
	if p == nil {
		return attached, true
	}
	h.recount.check(p.Balancer(), p.Flows())
	h.sweep.check(p.Flows())
	return attached && p.Attached() && p.Pinned(), len(p.Table().Hurt()) == 0 && p.Balancer().AllIntact()
}

// RenewHost passes the host's current addresses and IPsec policies to the eBPF programs.
// It is safe for concurrent use.
func (h *Handle) RenewHost() error {
	h.mu.Lock()
	defer h.mu.Unlock()
	if h.ebpfState == nil {
		return nil
	}
	return h.describeHost(h.ebpfState)
}

// describeHost passes the host's current addresses and IPsec policies to the programs of
// a data path.
func (h *Handle) describeHost(p *ebpf.Datapath) error {
	policies, err := h.rtnl.IPsecPolicies()
	if err == nil {
		err = p.Sources().SetPolicies(policies)
	}
	if err != nil {
		return err
	}
	local, err := h.rtnl.LocalAddrs()
	if err != nil {
		return err
	}
	if err := p.Sources().SetAddresses(local); err != nil {
		return err
	}
	return describeUplinks(h, p)
}

// recount corrects the numbers of flows with which the programs compare real servers: a
// flow that was pushed out of its map, or that is silent, is not subtracted.
type recount struct{ last time.Time }

// check counts the flows again, at most once in recountInterval.
func (r *recount) check(b *ebpf.Balancer, flows ebpf.FlowMaps) {
	if !b.ComparesLoad() || time.Since(r.last) < recountInterval {
		return
	}
	r.last = time.Now()
	_, _ = b.RealCounts(flows) // the next check tries again
}
