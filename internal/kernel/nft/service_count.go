package nft

import (
	"encoding/binary"
	"net/netip"
	"slices"
	"strings"

	"fairlead/internal/kernel/conntrack"
	"fairlead/internal/kernel/nlutil"
	"fairlead/internal/model"
	"fairlead/internal/plan"

	"github.com/google/nftables"
)

// NFTCount counts the flows of one frontend to one real server, for a service on
// the data plane nft.
type NFTCount struct {
	model.Frontend
	// Real is the address and port of the real server; its port is never 0.
	Real netip.AddrPort
	// Begun counts the flows that were assigned to the real server since it was
	// added or its service was last created. Active counts those of them that
	// conntrack still has and that have not ended.
	Begun, Active uint64
}

// NFTCounts counts the flows of all services on the data plane nft. It lists
// conntrack once if there is such a service.
func (h *Handle) NFTCounts() ([]NFTCount, error) {
	all, err := h.nftBegun()
	if err != nil || len(all) == 0 {
		return nil, err
	}
	type pair struct {
		model.Frontend
		real netip.AddrPort
	}
	index := make(map[pair]int, len(all))
	for i, c := range all {
		index[pair{c.Frontend, c.Real}] = i
	}
	err = conntrack.Open(h.ns).Tracked(func(f conntrack.TrackedFlow) {
		if i, ok := index[pair{model.Frontend{Proto: f.Proto, At: f.Host}, f.Target}]; ok && !f.Over {
			all[i].Active++
		}
	})
	return all, err
}

// nftBegun reads the counters of the source NAT maps: each has an element for
// each pair of a frontend and a real server.
func (h *Handle) nftBegun() ([]NFTCount, error) {
	h.mu.Lock()
	defer h.mu.Unlock()
	if h.nft == nil {
		return nil, nil
	}
	if err := h.nft.find(serviceTable().Table); err != nil {
		return nil, missing(err)
	}
	var all []NFTCount
	for _, s := range serviceTable().sets {
		if !strings.HasPrefix(s.Name, plan.MapSourceNAT) {
			continue
		}
		elements, err := h.nft.elements(s)
		if err != nil {
			return nil, err
		}
		for _, e := range elements {
			if c, ok := decodeSourceNAT(e); ok {
				all = append(all, c)
			}
		}
	}
	slices.SortFunc(all, func(a, b NFTCount) int {
		if c := a.At.Compare(b.At); c != 0 {
			return c
		}
		return a.Real.Compare(b.Real)
	})
	return all, nil
}

// decodeSourceNAT reads an element of a source NAT map. Its key is the virtual
// address, the protocol, the real server's address and port, and the virtual
// port.
func decodeSourceNAT(e nftables.SetElement) (c NFTCount, ok bool) {
	n := (len(e.Key) - 12) / 2
	if n != 4 && n != 16 {
		return c, false
	}
	at := func(addr, port int) netip.AddrPort {
		a, _ := netip.AddrFromSlice(e.Key[addr : addr+n])
		return netip.AddrPortFrom(a, binary.BigEndian.Uint16(e.Key[port:]))
	}
	c = NFTCount{Frontend: model.Frontend{Proto: model.TCP, At: at(0, 2*n+8)}, Real: at(n+4, 2*n+4)}
	if e.Key[n] == nlutil.Protocols[model.UDP] {
		c.Proto = model.UDP
	}
	if e.Counter != nil {
		c.Begun = e.Counter.Packets
	}
	return c, true
}
