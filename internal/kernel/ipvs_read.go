package kernel

import (
	"errors"
	"fmt"
	"net/netip"
	"slices"

	"fairlead/internal/kernel/ipvs"
	"fairlead/internal/model"
	"fairlead/internal/plan"

	"golang.org/x/sys/unix"
)

// readIPVS returns the virtual service of ours as the kernel has it. What is
// not ours is not there, for as long as it does not do the same.
func (h *Host) readIPVS(want plan.IPVSService) (plan.Object, error) {
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

// listIPVS lists all virtual services, none where IPVS is not loaded.
func (h *Host) listIPVS() error {
	b := &h.balancer
	if b.listed != nil {
		return nil
	}
	b.listed = map[ipvs.ID]ipvs.Service{}
	if there, err := b.reach(h.ns); err != nil || !there {
		return err
	}
	all, err := b.conn.Services()
	for _, s := range all {
		b.listed[s.ID] = s
	}
	return err
}

// forget lets go of what was listed.
func (b *balancer) forget() {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.listed = nil
}

// readOurs returns a service if it is ours, with its real servers.
func (b *balancer) readOurs(s ipvs.Service) (plan.Object, error) {
	inUse, known := b.inUse[s.ID]
	reals, err := b.conn.Destinations(s.ID)
	if errors.Is(err, unix.ESRCH) { // gone since it was listed
		return nil, nil
	}
	if err != nil || !known && !isMarked(s, reals) {
		return nil, err
	}
	now := fromIPVS(s, reals)
	if !known {
		b.inUse[s.ID] = now
	} else if len(reals) == 0 {
		now.Forward, now.Tunnel = inUse.Forward, inUse.Tunnel
	}
	if s.Flags&ipvsMarked != ipvsMark {
		now.Scheduler = "" // it is to be marked again
	}
	return now, nil
}

// leftoverServices returns what of ours is in no plan: virtual services, local
// routes, and elements of the nft table for them.
func (h *Host) leftoverServices(known map[string]bool) (plan.Plan, error) {
	services, err := h.leftoverIPVS(known)
	if err != nil {
		return nil, fmt.Errorf("list virtual services: %w", err)
	}
	rules, err := h.leftoverOfIPVSTable(known)
	if err != nil {
		return nil, err
	}
	routes, err := h.leftoverLocalRoutes(known)
	return slices.Concat(rules, routes, services), err
}

// leftoverIPVS returns the virtual services of ours that are in no plan.
func (h *Host) leftoverIPVS(known map[string]bool) (plan.Plan, error) {
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

// ipvsDiffers reports whether a virtual service of ours, or a local route, is
// otherwise than we have left it. IPVS tells nobody of changes.
func (h *Host) ipvsDiffers() (bool, error) {
	if differing, err := h.localRoutesDiffer(); err != nil || differing {
		return differing, err
	}
	b := &h.balancer
	b.mu.Lock()
	defer b.mu.Unlock()
	if len(b.inUse) == 0 {
		return false, nil
	}
	all, err := b.conn.Services()
	if err != nil {
		return false, err
	}
	left := len(b.inUse)
	for _, s := range all {
		want, ours := b.inUse[s.ID]
		if !ours {
			continue
		}
		left--
		reals, err := b.conn.Destinations(s.ID)
		if err != nil {
			return false, err
		}
		if s.Flags&ipvsMarked != ipvsMark || !alike(fromIPVS(s, reals), want) {
			return true, nil
		}
	}
	return left > 0, nil
}

// RealStats is what IPVS has counted of one real server of a virtual service.
type RealStats struct {
	Frontend model.Frontend
	At       netip.AddrPort
	// Active flows are established TCP connections, Inactive all others: UDP,
	// and TCP that begins or ends.
	Active, Inactive uint32
	// Flows is how many it has been given. In is what clients have sent, Out
	// what it has answered through the host: nothing by direct and tunnel.
	Flows                                    uint64
	InPackets, OutPackets, InBytes, OutBytes uint64
}

// IPVSStats returns what the kernel has counted of every real server of the
// virtual services of ours; nothing where there is none. It adds up flows,
// packets and bytes every two seconds.
func (h *Host) IPVSStats() ([]RealStats, error) {
	b := &h.balancer
	b.mu.Lock()
	defer b.mu.Unlock()
	if len(b.inUse) == 0 {
		return nil, nil
	}
	var all []RealStats
	for _, s := range b.inUse {
		reals, err := b.conn.Destinations(idOf(s))
		if err != nil && !errors.Is(err, unix.ESRCH) {
			return nil, err
		}
		for _, d := range reals {
			all = append(all, RealStats{Frontend: model.Frontend{Proto: s.Proto, At: s.At}, At: d.At, Active: d.Active, Inactive: d.Inactive,
				Flows: d.Stats.Conns, InPackets: d.Stats.InPackets, OutPackets: d.Stats.OutPackets, InBytes: d.Stats.InBytes, OutBytes: d.Stats.OutBytes})
		}
	}
	return all, nil
}
