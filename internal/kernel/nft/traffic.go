package nft

import (
	"fairlead/internal/kernel/counter"
	"fairlead/internal/plan"
)

// MappingTraffic returns how many flows each port mapping of table fairlead has
// begun. It cannot count bytes and packets, because only the first packet of a
// flow is looked up in the maps. The result is empty before Linux 5.7, which has
// no counters in maps.
func (h *Handle) MappingTraffic() ([]counter.Publish, error) {
	h.mu.Lock()
	defer h.mu.Unlock()
	if h.nft == nil {
		return nil, nil
	}
	if err := h.nft.find(table().Table); err != nil {
		return nil, missing(err)
	}
	var all []counter.Publish
	for _, s := range table().sets {
		if !s.IsMap {
			continue
		}
		elements, err := h.nft.elements(s)
		if err != nil {
			return nil, err
		}
		for _, e := range elements {
			m, ok := decodeElement(s.Name, e).(plan.NFTMapping)
			if ok && e.Counter != nil {
				all = append(all, counter.Publish{
					PublishedPorts: counter.PublishedPorts{Proto: m.Proto, Host: m.Host, Ports: m.Ports, To: m.To},
					Flows:          e.Counter.Packets,
				})
			}
		}
	}
	return all, nil
}
