package kernel

import (
	"net/netip"

	"fairlead/internal/kernel/ebpf"
	"fairlead/internal/model"
)

// PublishedPorts are the host ports of one port mapping, of the eBPF table or of
// the nft table fairlead.
type PublishedPorts struct {
	Proto model.Proto
	// Host is unspecified for every address of its family.
	Host  netip.Addr
	Ports model.PortRange
	// To is the endpoint's address.
	To netip.Addr
}

// PublishCount counts the traffic of published ports.
type PublishCount struct {
	PublishedPorts
	Traffic
	// Flows is the number of flows begun.
	Flows uint64
	// Live is the number of current flows.
	Live uint64
}

// TableFill is the number of entries in a table of the kernel, and its maximum.
type TableFill struct {
	Entries uint64 `json:"entries"`
	Max     uint64 `json:"max"`
}

// EBPFMappingTraffic returns the traffic of each port mapping of the eBPF table,
// and how full the table of flows is; false if there is no eBPF data path. Flows
// includes those that the host's processes have begun. The packets of these pass no
// program: their bytes and their end are not counted.
func (h *Host) EBPFMappingTraffic() ([]PublishCount, TableFill, bool, error) {
	h.bpf.Lock()
	defer h.bpf.Unlock()
	p, err := h.datapathIfAny()
	if err != nil || p == nil {
		return nil, TableFill{}, false, err
	}
	counted, err := p.Counts()
	if err != nil {
		return nil, TableFill{}, false, err
	}
	all := make([]PublishCount, 0, len(counted))
	for _, c := range counted {
		if c.Mapping.Flags&ebpf.MappingGrant == 0 {
			all = append(all, mappingCount(c))
		}
	}
	entries, most := p.Fill()
	return all, TableFill{uint64(entries), uint64(most)}, true, nil
}

func mappingCount(c ebpf.Counted) PublishCount {
	n := PublishCount{
		PublishedPorts: PublishedPorts{Proto: model.TCP, Host: ebpf.Netip(c.Host), To: ebpf.Netip(c.To),
			Ports: model.PortRange{First: c.First, Last: c.Last}},
		Traffic: Traffic{Bytes: inOut(c.Bytes), Packets: inOut(c.Packets), Drops: inOut(c.Drops)},
		Flows:   c.Flows, Live: c.Live,
	}
	if c.Class&1 != 0 {
		n.Proto = model.UDP
	}
	return n
}

func inOut(n [2]uint64) InOut { return InOut{n[ebpf.Inward], n[ebpf.Outward]} }
