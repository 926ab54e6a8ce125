package kernel

import (
	"errors"
	"fmt"
	"slices"

	"fairlead/internal/kernel/ebpf"
	"fairlead/internal/model"
	"fairlead/internal/plan"
)

// ApplyEBPF carries out the steps on the eBPF table, and ends the flows that they
// leave stale: those to a lead that went or leads elsewhere now.
func (h *Host) ApplyEBPF(ops []plan.Op) error {
	h.bpf.Lock()
	defer h.bpf.Unlock()
	links, err := h.indices()
	if err != nil {
		return err
	}
	p, err := h.datapath()
	if err != nil {
		return err
	}
	served := slices.DeleteFunc(slices.Clone(ops), func(op plan.Op) bool { return !isServed(op.Object) })
	ops = slices.DeleteFunc(slices.Clone(ops), func(op plan.Op) bool { return isServed(op.Object) })
	p.Table().Restore()
	var changes []ebpf.Change
	gone := removedMappings{}
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
	if err := reportGrants(p); err != nil {
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
func (links indices) change(h *Host, op plan.Op) (c ebpf.Change, err error) {
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
func (links indices) entry(h *Host, o plan.Object) (*ebpf.Mapping, error) {
	switch o := o.(type) {
	case plan.EBPFMapping:
		return links.mapping(o), nil
	case plan.Grant:
		return h.grantEntry(o)
	}
	return nil, fmt.Errorf("%T is no entry of the eBPF table", o)
}

func (links indices) mapping(o plan.EBPFMapping) *ebpf.Mapping {
	l := &ebpf.Mapping{
		Host: ebpf.Address(o.Host), To: ebpf.Address(o.To), Masquerade: ebpf.Address(o.Masquerade),
		Ifindex: links[o.Link],
		First:   o.Ports.First, Last: o.Ports.Last, ToFirst: o.ToPorts.First,
		Plane: ebpf.ClassOf(o.Host.Is4(), o.Proto == model.UDP),
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

// mappingObject turns an entry of the table back into a lead.
func (h *Host) mappingObject(l ebpf.Mapping) plan.EBPFMapping {
	o := mappingWithoutLink(l)
	o.Link = h.linkName(l.Ifindex)
	return o
}

func mappingWithoutLink(l ebpf.Mapping) plan.EBPFMapping {
	o := plan.EBPFMapping{
		Proto: model.TCP, Host: ebpf.Netip(l.Host), To: ebpf.Netip(l.To), Masquerade: ebpf.Netip(l.Masquerade),
		Ports:    model.PortRange{First: l.First, Last: l.Last},
		Reserved: l.Flags&ebpf.MappingReserved != 0, Reset: l.Flags&ebpf.MappingReset != 0,
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
	_, served := o.(plan.EBPFService)
	return served
}

// readMappings returns what the table holds: the entries of those keys, or all.
func (h *Host) readMappings(keys map[string]bool) (plan.Plan, error) {
	p, err := h.datapathIfAny()
	if err != nil || p == nil {
		return nil, err
	}
	all, err := h.readServed(keys)
	if err != nil {
		return nil, err
	}
	hurt := map[ebpf.Mapping]bool{}
	for _, l := range p.Table().Hurt() {
		hurt[l] = true
	}
	for _, l := range p.Table().Mappings() {
		if hurt[l] {
			continue // Lead writes it again
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

// removedMappings are the leads whose flows must end, by protocol and port.
type removedMappings map[protoPort][]plan.EBPFMapping

type protoPort struct {
	proto model.Proto
	port  uint16
}

// note remembers what a step takes away.
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

// of returns the lead that the flow went by, if it is gone and no other leads
// to the same: part of a range may stay where it was.
func (g removedMappings) of(t *ebpf.Table, f ebpf.Flow) (plan.EBPFMapping, bool) {
	if f.Real != 0 {
		return plan.EBPFMapping{}, false
	}
	proto := model.TCP
	if f.UDP {
		proto = model.UDP
	}
	for _, l := range g[protoPort{proto, f.Host.Port()}] {
		if l.To == f.Endpoint.Addr() && l.ToPorts.First+(f.Host.Port()-l.Ports.First) == f.Endpoint.Port() && (l.Host == f.Host.Addr() || l.Host.IsUnspecified() && l.Host.Is4() == f.Host.Addr().Is4()) {
			return l, !t.TranslatesTo(f.UDP, f.Host, f.Endpoint)
		}
	}
	return plan.EBPFMapping{}, false
}

// endFlows forgets the flows of the leads that are gone, and resets the
// connections that were to be.
func (h *Host) endFlows(p *ebpf.Datapath, gone removedMappings) error {
	if len(gone) == 0 {
		return nil
	}
	var ended, reset []ebpf.Flow
	err := p.Flows(func(f ebpf.Flow) {
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
