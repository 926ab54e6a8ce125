package kernel

import (
	"errors"
	"fmt"
	"slices"

	"fairlead/internal/kernel/steer"
	"fairlead/internal/model"
	"fairlead/internal/plan"
)

// Lead carries out the steps on the eBPF table, and ends the flows that they
// leave stale: those to a lead that went or leads elsewhere now.
func (h *Host) Lead(ops []plan.Op) error {
	h.bpf.Lock()
	defer h.bpf.Unlock()
	links, err := h.indices()
	if err != nil {
		return err
	}
	p, err := h.plane()
	if err != nil {
		return err
	}
	served := slices.DeleteFunc(slices.Clone(ops), func(op plan.Op) bool { return !isServed(op.Object) })
	ops = slices.DeleteFunc(slices.Clone(ops), func(op plan.Op) bool { return isServed(op.Object) })
	p.Table().Restore()
	var changes []steer.Change
	gone := goneLeads{}
	for _, op := range ops {
		c, err := links.change(h, op)
		if err != nil {
			return fmt.Errorf("set %s: %w", op.Object.Key(), err)
		}
		if c.Old != nil || !p.Table().Has(*c.New) { // else it is restored
			changes = append(changes, c)
		}
		gone.note(op)
	}
	local, err := h.LocalAddrs()
	if err != nil {
		return err
	}
	if err := p.SetAddresses(local); err != nil {
		return err
	}
	// Nobody else grants the same ports meanwhile.
	unlock, err := h.lock()
	if err != nil {
		return err
	}
	defer unlock()
	if err := elsewhere(p, changes); err != nil {
		return err
	}
	if err := p.Table().Apply(changes); err != nil {
		return fmt.Errorf("change the eBPF table: %w", err)
	}
	if err := tellGrants(p); err != nil {
		return err
	}
	if err := h.endFlows(p, gone); err != nil {
		return err
	}
	if err := h.serve(p, links, served); err != nil {
		return err
	}
	return h.unloadIdle()
}

// indices maps the names of the host's links to their indices.
type indices map[string]uint32

func (h *Host) indices() (indices, error) {
	handle, err := h.at("")
	if err != nil {
		return nil, err
	}
	list, err := retry(handle.LinkList)
	if err != nil {
		return nil, fmt.Errorf("list links: %w", err)
	}
	links := indices{}
	for _, l := range list {
		links[l.Attrs().Name] = uint32(l.Attrs().Index)
	}
	return links, nil
}

// change turns a step into a change of the table.
func (links indices) change(h *Host, op plan.Op) (c steer.Change, err error) {
	if op.Del {
		c.Old, err = links.entry(h, op.Object)
		return c, err
	}
	if op.Old != nil {
		if c.Old, err = links.entry(h, op.Old); err != nil {
			return c, err
		}
	}
	c.New, err = links.entry(h, op.Object)
	return c, err
}

// entry turns a lead or grant into the table's form. That of a lead whose
// link is gone has no link.
func (links indices) entry(h *Host, o plan.Object) (*steer.Lead, error) {
	switch o := o.(type) {
	case plan.Lead:
		return links.lead(o), nil
	case plan.Grant:
		return h.grantEntry(o)
	}
	return nil, fmt.Errorf("%T is no entry of the eBPF table", o)
}

func (links indices) lead(o plan.Lead) *steer.Lead {
	l := &steer.Lead{
		Host: steer.Address(o.Host), To: steer.Address(o.To), Masquerade: steer.Address(o.Masquerade),
		Ifindex: links[o.Link],
		First:   o.Ports.First, Last: o.Ports.Last, ToFirst: o.ToPorts.First,
		Plane: steer.PlaneOf(o.Host.Is4(), o.Proto == model.UDP),
	}
	for flag, on := range map[uint8]bool{
		steer.LeadAny: o.Host.IsUnspecified(), steer.LeadHeld: o.Held, steer.LeadReset: o.Reset,
		steer.LeadLocal: o.Host.Is4() != o.To.Is4(),
	} {
		if on {
			l.Flags |= flag
		}
	}
	return l
}

// leadObject turns an entry of the table back into a lead.
func (h *Host) leadObject(l steer.Lead) plan.Lead {
	o := leadWithoutLink(l)
	o.Link = h.linkName(l.Ifindex)
	return o
}

func leadWithoutLink(l steer.Lead) plan.Lead {
	o := plan.Lead{
		Proto: model.TCP, Host: steer.Netip(l.Host), To: steer.Netip(l.To), Masquerade: steer.Netip(l.Masquerade),
		Ports: model.PortRange{First: l.First, Last: l.Last},
		Held:  l.Flags&steer.LeadHeld != 0, Reset: l.Flags&steer.LeadReset != 0,
	}
	o.ToPorts = model.PortRange{First: l.ToFirst, Last: l.ToFirst + (l.Last - l.First)}
	if l.Plane&1 != 0 {
		o.Proto = model.UDP
	}
	return o
}

// linkName returns the name of the host's link with the index, empty where
// there is none.
func (h *Host) linkName(index uint32) string {
	handle, err := h.at("")
	if err != nil {
		return ""
	}
	link, err := handle.LinkByIndex(int(index))
	if err != nil {
		return ""
	}
	return link.Attrs().Name
}

// isServed reports whether the object is a virtual service of the eBPF table.
func isServed(o plan.Object) bool {
	_, served := o.(plan.Steered)
	return served
}

// readLeads returns what the table holds: the entries of those keys, or all.
func (h *Host) readLeads(keys map[string]bool) (plan.Plan, error) {
	p, err := h.planeIfAny()
	if err != nil || p == nil {
		return nil, err
	}
	all, err := h.readServed(keys)
	if err != nil {
		return nil, err
	}
	hurt := map[steer.Lead]bool{}
	for _, l := range p.Table().Hurt() {
		hurt[l] = true
	}
	for _, l := range p.Table().Leads() {
		if hurt[l] {
			continue // Lead writes it again
		}
		if l.Flags&steer.LeadGrant == 0 {
			if keys == nil || keys[leadWithoutLink(l).Key()] {
				all = append(all, h.leadObject(l))
			}
			continue
		}
		g, err := h.grantObject(l)
		if err != nil {
			return nil, err
		}
		if keys == nil || keys[g.Key()] {
			all = append(all, g)
		}
	}
	return all, nil
}

// goneLeads are the leads whose flows must end, by protocol and port.
type goneLeads map[protoPort][]plan.Lead

type protoPort struct {
	proto model.Proto
	port  uint16
}

// note remembers what a step takes away.
func (g goneLeads) note(op plan.Op) {
	old, ok := op.Old.(plan.Lead)
	if op.Del {
		old, ok = op.Object.(plan.Lead)
	}
	if !ok {
		return
	}
	for port := int(old.Ports.First); port <= int(old.Ports.Last); port++ {
		at := protoPort{old.Proto, uint16(port)}
		g[at] = append(g[at], old)
	}
}

// of returns the lead that the flow went by, if it is gone and no other leads
// to the same: part of a range may stay where it was.
func (g goneLeads) of(t *steer.Table, f steer.Flow) (plan.Lead, bool) {
	if f.Real != 0 {
		return plan.Lead{}, false
	}
	proto := model.TCP
	if f.UDP {
		proto = model.UDP
	}
	for _, l := range g[protoPort{proto, f.Host.Port()}] {
		if l.To == f.Endpoint.Addr() && l.ToPorts.First+(f.Host.Port()-l.Ports.First) == f.Endpoint.Port() && (l.Host == f.Host.Addr() || l.Host.IsUnspecified() && l.Host.Is4() == f.Host.Addr().Is4()) {
			return l, !t.LeadsTo(f.UDP, f.Host, f.Endpoint)
		}
	}
	return plan.Lead{}, false
}

// endFlows forgets the flows of the leads that are gone, and resets the
// connections that were to be.
func (h *Host) endFlows(p *steer.Plane, gone goneLeads) error {
	if len(gone) == 0 {
		return nil
	}
	var ended, reset []steer.Flow
	err := p.Flows(func(f steer.Flow) {
		if l, ok := gone.of(p.Table(), f); ok {
			ended = append(ended, f)
			if l.Reset && !f.UDP && !f.Stale {
				reset = append(reset, f)
			}
		}
	})
	if err != nil {
		return err
	}
	if err := errors.Join(p.Forget(ended), h.endLocal(p)); err != nil {
		return err
	}
	return h.ns.Do(func() error {
		var errs []error
		for _, f := range reset {
			errs = append(errs, resetFlow(f))
		}
		return errors.Join(errs...)
	})
}
