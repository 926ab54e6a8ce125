package kernel

import (
	"net/netip"

	"fairlead/internal/kernel/ebpf"
	"fairlead/internal/model"
)

// PublishedPorts are host ports that lead somewhere: a lead of the eBPF table,
// or an element of a map of our nft table.
type PublishedPorts struct {
	Proto model.Proto
	// Host is unspecified for every address of its family.
	Host  netip.Addr
	Ports model.PortRange
	// To is the endpoint's address.
	To netip.Addr
}

// PublishCount is what has gone by published ports.
type PublishCount struct {
	PublishedPorts
	Traffic
	// Flows counts those begun.
	Flows uint64
	// Live is how many there are now.
	Live uint64
}

// TableFill is how full a table of the kernel's is.
type TableFill struct {
	Entries uint64 `json:"entries"`
	Max     uint64 `json:"max"`
}

// EBPFMappingTraffic returns what has gone by each lead of the eBPF table, and how
// full that is; false while there is no table. Flows are also those that the
// host's own processes have begun, whose packets meet no program: neither
// their bytes nor their end is seen.
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
