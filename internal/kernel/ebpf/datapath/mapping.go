package datapath

import (
	"errors"
	"fmt"
	"slices"

	"fairlead/internal/kernel/ebpf"
	"fairlead/internal/model"
	"fairlead/internal/plan"
)

// ApplyEBPF applies the steps to the eBPF maps: port mappings, grants and virtual
// services. It ends the flows that become stale because their port mapping was
// removed or changed its target.
func (h *Handle) ApplyEBPF(ops []plan.Op) error {
	h.mu.Lock()
	defer h.mu.Unlock()
	found, err := h.rtnl.Indices()
	if err != nil {
		return err
	}
	links := indices(found)
	p, err := h.Datapath()
	if err != nil {
		return err
	}
	services := slices.DeleteFunc(slices.Clone(ops), func(op plan.Op) bool { return !isService(op.Object) })
	ops = slices.DeleteFunc(slices.Clone(ops), func(op plan.Op) bool { return isService(op.Object) })
	p.Table().Restore()
	var changes []ebpf.Change
	gone := removedMappings{}
	for _, op := range ops {
		c, err := links.change(h, op)
		if err != nil {
			return fmt.Errorf("set %s: %w", op.Object.Key(), err)
		}
		if c.Old != nil || !p.Table().Has(*c.New) { // a missing entry was restored above
			changes = append(changes, c)
		}
		gone.note(op)
	}
	if err := h.describeHost(p); err != nil {
		return err
	}
	// The lock keeps other processes from granting the same ports.
	unlock, err := h.lock()
	if err != nil {
		return err
	}
	defer unlock()
	if err := checkGrants(p, changes); err != nil {
		return err
	}
	if err := p.Table().Apply(changes); err != nil {
		return fmt.Errorf("change the eBPF table: %w", err)
	}
	if err := reportGrants(p); err != nil {
		return err
	}
	if err := h.endFlows(p, gone); err != nil {
		return err
	}
	if err := h.applyServices(p, links, services); err != nil {
		return err
	}
	return h.unloadIdle()
}

// indices maps the names of the host's links to their indices.
type indices map[string]uint32

// change converts a step into a change of the table.
func (links indices) change(h *Handle, op plan.Op) (c ebpf.Change, err error) {
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

// entry converts a port mapping or grant into a table entry. If a port mapping's
// link is gone, its entry has no link.
func (links indices) entry(h *Handle, o plan.Object) (*ebpf.Mapping, error) {
	switch o := o.(type) {
	case plan.EBPFMapping:
		return links.mapping(o), nil
	case plan.Grant:
		return h.grantEntry(o)
	}
	return nil, fmt.Errorf("%T does not belong in the eBPF table", o)
}

func (links indices) mapping(o plan.EBPFMapping) *ebpf.Mapping {
	l := &ebpf.Mapping{
		Host: ebpf.Address(o.Host), To: ebpf.Address(o.To), Masquerade: ebpf.Address(o.Masquerade),
		Ifindex: links[o.Link],
		First:   o.Ports.First, Last: o.Ports.Last, ToFirst: o.ToPorts.First,
		Class: ebpf.ClassOf(o.Host.Is4(), o.Proto == model.UDP),
	}
	for flag, on := range map[uint8]bool{
		ebpf.MappingAny: o.Host.IsUnspecified(), ebpf.MappingReserved: o.Reserved, ebpf.MappingReset: o.Reset,
		ebpf.MappingLocal: o.Host.Is4() != o.To.Is4(),
	} {
		if on {
			l.Flags |= flag
		}
	}
	return l
}

// mappingObject converts a table entry into a port mapping.
func (h *Handle) mappingObject(l ebpf.Mapping) plan.EBPFMapping {
	o := mappingWithoutLink(l)
	o.Link = h.rtnl.LinkName(l.Ifindex)
	return o
}

func mappingWithoutLink(l ebpf.Mapping) plan.EBPFMapping {
	o := plan.EBPFMapping{
		Proto: model.TCP, Host: ebpf.Netip(l.Host), To: ebpf.Netip(l.To), Masquerade: ebpf.Netip(l.Masquerade),
		Ports:    model.PortRange{First: l.First, Last: l.Last},
		Reserved: l.Flags&ebpf.MappingReserved != 0, Reset: l.Flags&ebpf.MappingReset != 0,
	}
	o.ToPorts = model.PortRange{First: l.ToFirst, Last: l.ToFirst + (l.Last - l.First)}
	if l.Class&1 != 0 {
		o.Proto = model.UDP
	}
	return o
}

// isService reports whether the object is a virtual service in the eBPF maps.
func isService(o plan.Object) bool {
	_, ok := o.(plan.EBPFService)
	return ok
}

// ReadMappings returns the content of the table: the objects with the given keys,
// or all if keys is nil.
func (h *Handle) ReadMappings(keys map[string]bool) (plan.Plan, error) {
	p, err := h.datapathIfAny()
	if err != nil || p == nil {
		return nil, err
	}
	all, err := h.readEBPFServices(keys)
	if err != nil {
		return nil, err
	}
	hurt := map[ebpf.Mapping]bool{}
	for _, l := range p.Table().Hurt() {
		hurt[l] = true
	}
	for _, l := range p.Table().Mappings() {
		if hurt[l] {
			continue // reported as missing, so that applyEBPF writes it again
		}
		if l.Flags&ebpf.MappingGrant == 0 {
			if keys == nil || keys[mappingWithoutLink(l).Key()] {
				all = append(all, h.mappingObject(l))
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

// removedMappings are the port mappings whose flows must end, by protocol and port.
type removedMappings map[protoPort][]plan.EBPFMapping

type protoPort struct {
	proto model.Proto
	port  uint16
}

// note records the port mapping that a step removes or replaces.
func (g removedMappings) note(op plan.Op) {
	old, ok := op.Old.(plan.EBPFMapping)
	if op.Del {
		old, ok = op.Object.(plan.EBPFMapping)
	}
	if !ok {
		return
	}
	for port := int(old.Ports.First); port <= int(old.Ports.Last); port++ {
		at := protoPort{old.Proto, uint16(port)}
		g[at] = append(g[at], old)
	}
}

// of returns the removed port mapping that the flow used. It returns false if
// another port mapping still translates the flow to the same endpoint: part of a
// range may have stayed.
func (g removedMappings) of(t *ebpf.Table, f ebpf.Flow) (plan.EBPFMapping, bool) {
	if f.Real != 0 {
		return plan.EBPFMapping{}, false
	}
	proto := model.TCP
	if f.UDP {
		proto = model.UDP
	}
	for _, l := range g[protoPort{proto, f.Host.Port()}] {
		to := l.ToPorts.First + (f.Host.Port() - l.Ports.First)
		hostMatches := l.Host == f.Host.Addr() || l.Host.IsUnspecified() && l.Host.Is4() == f.Host.Addr().Is4()
		if l.To == f.Endpoint.Addr() && to == f.Endpoint.Port() && hostMatches {
			return l, !t.TranslatesTo(f.UDP, f.Host, f.Endpoint)
		}
	}
	return plan.EBPFMapping{}, false
}

// endFlows removes the flows of the removed port mappings, and resets the TCP
// connections of those with Reset set.
func (h *Handle) endFlows(p *ebpf.Datapath, gone removedMappings) error {
	if len(gone) == 0 {
		return nil
	}
	var ended, reset []ebpf.Flow
	err := p.Flows().Each(func(f ebpf.Flow) {
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
	if err := errors.Join(p.Flows().Forget(ended), h.endLocal(p)); err != nil {
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
