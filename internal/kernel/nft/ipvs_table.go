package nft

import (
	"encoding/binary"
	"net/netip"
	"slices"

	"fairlead/internal/kernel/nlutil"
	"fairlead/internal/model"
	"fairlead/internal/plan"

	"github.com/google/nftables"
	"github.com/google/nftables/expr"
)

func ipvsTable() *nftables.Table {
	return &nftables.Table{Name: plan.IPVSTableName, Family: nftables.TableFamilyINet}
}

// ipvsSets returns the table's sets in the order of plan.IPVSTableText.
func ipvsSets() []*nftables.Set {
	var sets []*nftables.Set
	for _, f := range families {
		frontend := nftables.MustConcatSetType(f.addrType, nftables.TypeInetProto, nftables.TypeInetService)
		for _, name := range []string{plan.SetIPVSKept, plan.SetIPVSMixed, plan.SetIPVSHidden} {
			sets = append(sets, &nftables.Set{Table: ipvsTable(), Name: name + f.suffix, KeyType: frontend,
				Concatenation: true})
		}
		sets = append(sets, &nftables.Set{Table: ipvsTable(), Name: plan.SetIPVSMasqueraded + f.suffix,
			KeyType: f.addrType},
			&nftables.Set{Table: ipvsTable(), Name: plan.SetIPVSHairpin + f.suffix, Interval: true, Concatenation: true,
				KeyType: nftables.MustConcatSetType(f.addrType, f.addrType)})
	}
	return sets
}

// ipvsChains returns the table's chains. Each rule is the netlink form of the
// corresponding line of plan.IPVSTableText.
func ipvsChains() []chain {
	isNew := rule(ctKey(expr.CtKeySTATE, expr.CtStateBitNEW), verdict(expr.VerdictJump, "opened"))
	masquerade := []expr.Any{&expr.Masq{}}
	past := verdict(expr.VerdictJump, "past")
	var opened, hairpins [][]expr.Any
	returns := [][]expr.Any{
		rule(labelled(plan.LabelIPVSHidden), masquerade),
		rule(labelled(plan.LabelIPVSKept), past),
		rule(labelled(plan.LabelIPVSMixed), past),
	}
	for _, f := range families {
		frontend := rule(f.is(), f.load(f.dst, reg1), loadProtoPort(f.afterAddr, f.afterProto))
		for _, s := range []struct {
			set   string
			label int
		}{{plan.SetIPVSKept, plan.LabelIPVSKept}, {plan.SetIPVSMixed, plan.LabelIPVSMixed},
			{plan.SetIPVSHidden, plan.LabelIPVSHidden}} {
			opened = append(opened, rule(frontend, lookup(s.set+f.suffix), setLabel(s.label)))
		}
		returns = append(returns, rule(labelled(plan.LabelIPVSMixed), f.is(), f.load(f.dst, reg1),
			lookup(plan.SetIPVSMasqueraded+f.suffix), masquerade))
		hairpins = append(hairpins, rule(f.pair(plan.SetIPVSHairpin), masquerade))
	}
	return []chain{
		{"prerouting", nftables.ChainHookPrerouting, nftables.ChainPriorityMangle, nftables.ChainTypeFilter,
			[][]expr.Any{isNew}},
		{"output", nftables.ChainHookOutput, nftables.ChainPriorityMangle, nftables.ChainTypeFilter,
			[][]expr.Any{isNew}},
		{name: "opened", rules: opened},
		{"postrouting", nftables.ChainHookPostrouting, nftables.ChainPriorityNATSource, nftables.ChainTypeNAT, returns},
		{name: "past", rules: hairpins},
	}
}

// label returns a conntrack label: one of 128 bits.
func label(bit int) []byte {
	b := make([]byte, 16)
	b[bit/8] = 1 << (bit % 8)
	return b
}

func setLabel(bit int) []expr.Any {
	return []expr.Any{&expr.Immediate{Register: reg1, Data: label(bit)},
		&expr.Ct{Key: expr.CtKeyLABELS, Register: reg1, SourceRegister: true}}
}

func labelled(bit int) []expr.Any {
	return []expr.Any{
		&expr.Ct{Key: expr.CtKeyLABELS, Register: reg1},
		&expr.Bitwise{SourceRegister: reg1, DestRegister: reg1, Len: 16, Mask: label(bit), Xor: make([]byte, 16)},
		&expr.Cmp{Op: expr.CmpOpNeq, Register: reg1, Data: make([]byte, 16)},
	}
}

// SetIPVSTable creates the table, or replaces a damaged one, in one transaction. It
// does not change an intact table.
func (h *Handle) SetIPVSTable(plan.IPVSTable) error {
	h.mu.Lock()
	defer h.mu.Unlock()
	if h.nft == nil {
		return h.noNft
	}
	if whole, err := h.nft.readWhole(ipvsTable(), ipvsChains()); err != nil || whole {
		return err
	}
	b := h.begin()
	b.makeTable(ipvsTable(), ipvsSets(), ipvsChains())
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
	sets := ipvsSets()
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
	whole, err := h.nft.readWhole(ipvsTable(), ipvsChains())
	if err != nil {
		return nil, err
	}
	for _, s := range ipvsSets() {
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
