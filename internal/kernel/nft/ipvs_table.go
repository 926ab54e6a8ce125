package nft

import (
	"encoding/binary"
	"net/netip"
	"slices"

	"fairlead/internal/kernel/nlutil"
	"fairlead/internal/model"
	"fairlead/internal/plan"

	"github.com/google/nftables"
)

// SetIPVSTable creates the table, or replaces a damaged one, in one transaction. It
// does not change an intact table.
func (h *Handle) SetIPVSTable(plan.IPVSTable) error {
	h.mu.Lock()
	defer h.mu.Unlock()
	if h.nft == nil {
		return h.noNft
	}
	if whole, err := h.nft.readWhole(ipvsTable()); err != nil || whole {
		return err
	}
	b := h.begin()
	b.makeTable(ipvsTable())
	return b.commit()
}

// DelIPVSTable deletes the table for IPVS.
func (h *Handle) DelIPVSTable(plan.IPVSTable) error { return h.drop(ipvsTable()) }

// SetIPVSMember adds an element. Adding an existing element is not an error.
func (h *Handle) SetIPVSMember(m plan.IPVSMember) error {
	return h.onIPVSSet(m, (*batch).addElements)
}

// DelIPVSMember deletes an element of the table for IPVS.
func (h *Handle) DelIPVSMember(m plan.IPVSMember) error {
	return h.onIPVSSet(m, (*batch).delElements)
}

func (h *Handle) onIPVSSet(m plan.IPVSMember, do func(*batch, *nftables.Set, []nftables.SetElement)) error {
	sets := ipvsTable().sets
	i := slices.IndexFunc(sets, func(s *nftables.Set) bool { return s.Name == m.Name() })
	return h.change(func(b *batch) { do(b, sets[i], []nftables.SetElement{encodeIPVSMember(m)}) })
}

func encodeIPVSMember(m plan.IPVSMember) nftables.SetElement {
	switch m.Set {
	case plan.SetIPVSHairpin:
		return encodeMember(plan.Member{Set: m.Set, Src: m.Src, Dst: m.Dst})
	case plan.SetIPVSMasqueraded:
		return nftables.SetElement{Key: m.At.Addr().AsSlice()}
	}
	return nftables.SetElement{Key: slices.Concat(m.At.Addr().AsSlice(), []byte{nlutil.Protocols[m.Proto], 0, 0, 0},
		port(m.At.Port()))}
}

func decodeIPVSMember(set string, e nftables.SetElement) plan.IPVSMember {
	m := plan.IPVSMember{Set: set[:len(set)-1]}
	length := map[byte]int{'4': 4, '6': 16}[set[len(set)-1]]
	if m.Set == plan.SetIPVSHairpin {
		pair := decodeElement(plan.SetHairpin+set[len(set)-1:], e).(plan.Member)
		m.Src, m.Dst = pair.Src, pair.Dst
		return m
	}
	addr, _ := netip.AddrFromSlice(e.Key[:length])
	m.At = netip.AddrPortFrom(addr, 0)
	if rest := e.Key[length:]; len(rest) > 0 {
		m.At = netip.AddrPortFrom(addr, binary.BigEndian.Uint16(rest[4:]))
		m.Proto = model.TCP
		if rest[0] == nlutil.Protocols[model.UDP] {
			m.Proto = model.UDP
		}
	}
	return m
}

// inIPVSTable returns the table and its content, or nothing if the table is missing
// or damaged.
func (h *Handle) inIPVSTable() (map[plan.Object]bool, error) {
	h.mu.Lock()
	defer h.mu.Unlock()
	if h.nft == nil || h.seenIPVSTable != nil {
		return h.seenIPVSTable, nil
	}
	found := map[plan.Object]bool{}
	whole, err := h.nft.readWhole(ipvsTable())
	if err != nil {
		return nil, err
	}
	for _, s := range ipvsTable().sets {
		if !whole {
			break
		}
		found[plan.IPVSTable{}] = true
		elements, err := h.nft.elements(s)
		if err != nil {
			found = map[plan.Object]bool{}
			if err := missing(err); err != nil {
				return nil, err
			}
			break
		}
		for _, e := range elements {
			found[decodeIPVSMember(s.Name, e)] = true
		}
	}
	h.seenIPVSTable = found
	return found, nil
}

// ReadOfIPVSTable returns an object of the table for IPVS; nil if it is missing.
func (h *Handle) ReadOfIPVSTable(o plan.Object) (plan.Object, error) {
	all, err := h.inIPVSTable()
	return plan.OrNil(o, all[o]), err
}

// LeftoverOfIPVSTable returns the objects in the table that are in no plan. The
// table itself comes first.
func (h *Handle) LeftoverOfIPVSTable(known map[string]bool) (plan.Plan, error) {
	all, err := h.inIPVSTable()
	var found plan.Plan
	for o := range all {
		if known[o.Key()] {
			continue
		}
		if _, table := o.(plan.IPVSTable); table {
			found = slices.Insert(found, 0, o)
		} else {
			found = append(found, o)
		}
	}
	return found, err
}
