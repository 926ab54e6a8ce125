package ipvs

import (
	"errors"
	"net/netip"

	"fairlead/internal/model"
	"fairlead/internal/plan"

	"golang.org/x/sys/unix"
)

// ReadIPVS returns Fairlead's virtual service as the kernel has it. A service of
// another program is reported as missing.
func (h *Handle) ReadIPVS(want plan.IPVSService) (plan.Object, error) {
	b := &h.balancer
	b.mu.Lock()
	defer b.mu.Unlock()
	if err := h.listIPVS(); err != nil {
		return nil, err
	}
	there, ok := b.listed[idOf(want)]
	if !ok {
		return nil, nil
	}
	return b.readOurs(there)
}

// listIPVS lists all virtual services into b.listed, none if IPVS is not loaded.
func (h *Handle) listIPVS() error {
	b := &h.balancer
	if b.listed != nil {
		return nil
	}
	b.listed = map[ID]Service{}
	if there, err := b.reach(h.ns); err != nil || !there {
		return err
	}
	all, err := b.conn.Services()
	for _, s := range all {
		b.listed[s.ID] = s
	}
	return err
}

// forget clears the cached list.
func (b *balancer) forget() {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.listed = nil
}

// readOurs returns a service with its real servers if it is Fairlead's, and nil if
// not.
func (b *balancer) readOurs(s Service) (plan.Object, error) {
	ours, known := b.ours[s.ID]
	reals, err := b.conn.Destinations(s.ID)
	if errors.Is(err, unix.ESRCH) { // it was removed after it was listed
		return nil, nil
	}
	if err != nil || !known && !isMarked(s, reals) {
		return nil, err
	}
	now := fromIPVS(s, reals)
	if !known {
		b.ours[s.ID] = now
	} else if len(reals) == 0 {
		now.Forward, now.Tunnel = ours.Forward, ours.Tunnel
	}
	if s.Flags&ipvsMarked != ipvsMark {
		now.Scheduler = "" // differs from the plan, so that the mark is set again
	}
	return now, nil
}

// LeftoverIPVS returns Fairlead's virtual services that are in no plan.
func (h *Handle) LeftoverIPVS(known map[string]bool) (plan.Plan, error) {
	b := &h.balancer
	b.mu.Lock()
	defer b.mu.Unlock()
	if err := h.listIPVS(); err != nil {
		return nil, err
	}
	var found plan.Plan
	for _, s := range b.listed {
		if s.Mark != 0 || known[fromIPVS(s, nil).Key()] {
			continue
		}
		o, err := b.readOurs(s)
		if err != nil {
			return nil, err
		}
		if o != nil {
			found = append(found, o)
		}
	}
	return found, nil
}

// Differs reports whether one of Fairlead's virtual services differs from what
// this process has set. IPVS sends no events for changes.
func (h *Handle) Differs() (bool, error) {
	b := &h.balancer
	b.mu.Lock()
	defer b.mu.Unlock()
	if len(b.ours) == 0 {
		return false, nil
	}
	all, err := b.conn.Services()
	if err != nil {
		return false, err
	}
	remaining := len(b.ours)
	for _, s := range all {
		want, known := b.ours[s.ID]
		if !known {
			continue
		}
		remaining--
		reals, err := b.conn.Destinations(s.ID)
		if err != nil {
			return false, err
		}
		if s.Flags&ipvsMarked != ipvsMark || !alike(fromIPVS(s, reals), want) {
			return true, nil
		}
	}
	return remaining > 0, nil
}

// RealStats are the IPVS counters of one real server of a virtual service.
type RealStats struct {
	Frontend model.Frontend
	At       netip.AddrPort
	// Active is the number of established TCP connections. Inactive counts all
	// other flows: UDP, and TCP connections that are opening or closing.
	Active, Inactive uint32
	// Flows is the number of flows that were assigned to it. In counts traffic from
	// clients. Out counts replies through the host, of which there are none with
	// direct and tunnel forwarding.
	Flows                                    uint64
	InPackets, OutPackets, InBytes, OutBytes uint64
}

// Stats returns the counters of every real server of Fairlead's virtual
// services. The kernel updates the counters every two seconds. It is safe for
// concurrent use.
func (h *Handle) Stats() ([]RealStats, error) {
	b := &h.balancer
	b.mu.Lock()
	defer b.mu.Unlock()
	if len(b.ours) == 0 {
		return nil, nil
	}
	var all []RealStats
	for _, s := range b.ours {
		reals, err := b.conn.Destinations(idOf(s))
		if err != nil && !errors.Is(err, unix.ESRCH) {
			return nil, err
		}
		for _, d := range reals {
			all = append(all, RealStats{Frontend: model.Frontend{Proto: s.Proto, At: s.At}, At: d.At, Active: d.Active,
				Inactive: d.Inactive,
				Flows:    d.Stats.Conns, InPackets: d.Stats.InPackets, OutPackets: d.Stats.OutPackets,
				InBytes: d.Stats.InBytes, OutBytes: d.Stats.OutBytes})
		}
	}
	return all, nil
}
