package datapath

import (
	"fairlead/internal/kernel/counter"
	"fairlead/internal/kernel/ebpf"
	"fairlead/internal/model"
)

// MappingTraffic returns the traffic of each port mapping of the eBPF table,
// and how full the table of flows is; false if there is no eBPF data path. Flows
// includes those that the host's processes have begun. The packets of these pass no
// program: their bytes and their end are not counted.
func (h *Handle) MappingTraffic() ([]counter.Publish, counter.Fill, bool, error) {
	h.mu.Lock()
	defer h.mu.Unlock()
	p, err := h.datapathIfAny()
	if err != nil || p == nil {
		return nil, counter.Fill{}, false, err
	}
	counted, err := p.Table().Counts(p.Flows())
	if err != nil {
		return nil, counter.Fill{}, false, err
	}
	all := make([]counter.Publish, 0, len(counted))
	for _, c := range counted {
		if c.Mapping.Flags&ebpf.MappingGrant == 0 {
			all = append(all, mappingCount(c))
		}
	}
	return all, fillOf(p), true, nil
}

// Fill returns how full the table of port mappings is; false if there is no eBPF data path.
func Fill(h *Handle) (counter.Fill, bool, error) {
	h.mu.Lock()
	defer h.mu.Unlock()
	p, err := h.datapathIfAny()
	if err != nil || p == nil {
		return counter.Fill{}, false, err
	}
	return fillOf(p), true, nil
}

func fillOf(p *ebpf.Datapath) counter.Fill {
	entries, most := p.Table().Fill()
	return counter.Fill{Entries: uint64(entries), Max: uint64(most)}
}

func mappingCount(c ebpf.Counted) counter.Publish {
	n := counter.Publish{
		PublishedPorts: counter.PublishedPorts{Proto: model.TCP, Host: ebpf.Netip(c.Host), To: ebpf.Netip(c.To),
			Ports: model.PortRange{First: c.First, Last: c.Last}},
		Traffic: counter.Traffic{Bytes: inOut(c.Bytes), Packets: inOut(c.Packets), Drops: inOut(c.Drops)},
		Flows:   c.Flows, Live: c.Live,
	}
	if c.Class&1 != 0 {
		n.Proto = model.UDP
	}
	return n
}

func inOut(n [2]uint64) counter.InOut { return counter.InOut{In: n[ebpf.Inward], Out: n[ebpf.Outward]} }
