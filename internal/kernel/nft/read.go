package nft

import (
	"encoding/binary"
	"net/netip"
	"strings"

	"fairlead/internal/kernel/nlutil"
	"fairlead/internal/kernel/rules"
	"fairlead/internal/model"
	"fairlead/internal/plan"

	"github.com/google/nftables"
	"golang.org/x/sys/unix"
)

// ReadTable returns table fairlead and every element in it, as the kernel has
// them. It returns nothing if the table is missing or damaged, and a damaged table
// without elements if its replacement was interrupted.
func (h *Handle) ReadTable() (plan.Plan, error) {
	h.mu.Lock()
	defer h.mu.Unlock()
	if h.nft == nil {
		return nil, nil
	}
	if interrupted, err := h.exists(standInOf(table().Table)); err != nil || interrupted {
		return plan.Plan{plan.Table{Damaged: true}}, err
	}
	whole, err := h.nft.readWhole(table())
	if err != nil || !whole {
		return nil, err
	}
	have := plan.Plan{plan.Table{}}
	for _, s := range table().sets {
		elements, err := h.nft.elements(s)
		if err != nil {
			return nil, missing(err)
		}
		for _, e := range elements {
			have = append(have, decodeElement(s.Name, e))
		}
	}
	return have, nil
}

// decodeElement is the reverse of encodeElement.
func decodeElement(set string, e nftables.SetElement) plan.Object {
	name, addrLen := set[:len(set)-1], 4
	if strings.HasSuffix(set, "6") {
		addrLen = 16
	}
	switch name {
	case plan.MapPorts, plan.MapAnyPorts, plan.MapRanges:
		return decodeMapping(name, addrLen, e)
	case plan.SetHairpin, plan.SetOutbound, plan.SetRenumbered, plan.SetSandboxes:
		return plan.Member{Set: name,
			Src: decodePrefix(e.Key[:addrLen], e.KeyEnd[:addrLen]),
			Dst: decodePrefix(e.Key[addrLen:], e.KeyEnd[addrLen:])}
	case plan.SetProxied:
		e.Val = make([]byte, addrLen)
		m := decodeMapping(plan.MapRanges, addrLen, e)
		return plan.Proxied{Host: m.Host, Proto: m.Proto, Ports: m.Ports}
	default:
		return plan.Member{Set: set, Link: unix.ByteSliceToString(e.Key)}
	}
}

func decodeMapping(name string, addrLen int, e nftables.SetElement) plan.NFTMapping {
	key := e.Key
	host := netip.IPv4Unspecified()
	if addrLen == 16 {
		host = netip.IPv6Unspecified()
	}
	if name != plan.MapAnyPorts {
		host, _ = netip.AddrFromSlice(key[:addrLen])
		key = key[addrLen:]
	}
	first := binary.BigEndian.Uint16(key[4:])
	m := plan.NFTMapping{Host: host, Proto: model.TCP, Ports: model.Port(first)}
	if key[0] == nlutil.Protocols[model.UDP] {
		m.Proto = model.UDP
	}
	m.To, _ = netip.AddrFromSlice(e.Val[:addrLen])
	if name == plan.MapRanges {
		m.Ports.Last = binary.BigEndian.Uint16(e.KeyEnd[len(e.KeyEnd)-4:])
	} else {
		m.ToPort = binary.BigEndian.Uint16(e.Val[addrLen:])
	}
	return m
}

// decodePrefix returns the prefix whose first and last addresses are given.
func decodePrefix(first, last []byte) netip.Prefix {
	p, _ := rules.Range{First: first, Last: last}.Prefix()
	return p
}
