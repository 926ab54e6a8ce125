package nft

import (
	"bytes"
	"slices"

	"fairlead/internal/kernel/nlutil"
	"fairlead/internal/plan"

	"github.com/google/nftables"
	"github.com/google/nftables/expr"
	"golang.org/x/sys/unix"
)

func guardTable() *nftables.Table {
	return &nftables.Table{Name: plan.GuardTable, Family: nftables.TableFamilyINet}
}

// guardSet is a set of the guard's table with its elements.
type guardSet struct {
	*nftables.Set
	elements []nftables.SetElement
}

func guardSets(g plan.Guard) []guardSet {
	var sets []guardSet
	for _, f := range families {
		addresses := guardSet{Set: &nftables.Set{Table: guardTable(), Name: plan.SetGuarded + f.suffix,
			KeyType: f.addrType}}
		for _, a := range g.Addresses {
			if key := a.Addr().AsSlice(); len(key) == int(f.addrLen) {
				addresses.elements = append(addresses.elements, nftables.SetElement{Key: key})
			}
		}
		ports := guardSet{Set: &nftables.Set{Table: guardTable(), Name: plan.SetGuardedPorts + f.suffix,
			Concatenation: true,
			KeyType:       nftables.MustConcatSetType(f.addrType, nftables.TypeInetProto, nftables.TypeInetService)}}
		for _, o := range g.Open() {
			if addr := o.At.Addr().AsSlice(); len(addr) == int(f.addrLen) {
				ports.elements = append(ports.elements, nftables.SetElement{
					Key: slices.Concat(addr, []byte{nlutil.Protocols[o.Proto], 0, 0, 0}, port(o.At.Port()))})
			}
		}
		sets = append(sets, addresses, ports)
	}
	return sets
}

// guardRules returns the table's chains. They correspond to the text of
// plan.Guard.Add.
func guardRules() []chain {
	accept := verdict(expr.VerdictAccept, "")
	var input, to, from [][]expr.Any
	for _, f := range families {
		input = append(input, rule(f.is(), f.load(f.dst, reg1), lookup(plan.SetGuarded+f.suffix),
			verdict(expr.VerdictJump, "closed")))
		to = append(to, rule(f.is(), f.load(f.dst, reg1), loadProtoPort(f.afterAddr, f.afterProto),
			lookup(plan.SetGuardedPorts+f.suffix), accept))
		source := rule(meta(expr.MetaKeyL4PROTO, f.afterAddr),
			payload(expr.PayloadBaseTransportHeader, 0, 2, f.afterProto))
		from = append(from, rule(f.is(), f.load(f.src, reg1), source, lookup(plan.SetGuardedPorts+f.suffix), accept))
	}
	closed := slices.Concat([][]expr.Any{
		rule(isProto(unix.IPPROTO_ICMP), accept),
		rule(isProto(unix.IPPROTO_ICMPV6), accept),
		rule(laterFragment(), accept),
	}, to, from, [][]expr.Any{
		rule(isProto(unix.IPPROTO_TCP), tcpFlags(tcpSyn|tcpAck, tcpSyn), accept),
		rule(isProto(unix.IPPROTO_TCP), resetTCP()),
		{&expr.Reject{Type: unix.NFT_REJECT_ICMPX_UNREACH, Code: unix.NFT_REJECT_ICMPX_PORT_UNREACH}},
	})
	afterNAT := nftables.ChainPriorityRef(*nftables.ChainPriorityNATSource + 1)
	return []chain{
		{"input", nftables.ChainHookInput, afterNAT, nftables.ChainTypeFilter, input},
		{name: "closed", rules: closed},
	}
}

// laterFragment matches IPv6 fragments behind the first one of their packet. Without connection tracking the kernel
// reassembles them behind this hook, and they have no ports. They are of no use without the first fragment, which has
// the ports (RFC 8200, section 4.5). The kernel has reassembled IPv4 packets before this hook. Before Linux 5.13 it also
// reads extension headers of IPv6 from IPv4 packets.
func laterFragment() []expr.Any {
	const offsetField = 2 // its lowest three bits are no part of the offset
	ipv6 := families[1]
	return rule(ipv6.is(), []expr.Any{
		&expr.Exthdr{DestRegister: reg1, Type: unix.IPPROTO_FRAGMENT, Offset: offsetField, Len: 2},
		&expr.Bitwise{SourceRegister: reg1, DestRegister: reg1, Len: 2, Mask: []byte{0xff, 0xf8}, Xor: []byte{0, 0}},
		&expr.Cmp{Op: expr.CmpOpNeq, Register: reg1, Data: []byte{0, 0}},
	})
}

// tcpFlags matches segments whose flags under the mask differ from the given ones.
func tcpFlags(mask, flags byte) []expr.Any {
	return rule(payload(expr.PayloadBaseTransportHeader, 13, 1, reg1), []expr.Any{
		&expr.Bitwise{SourceRegister: reg1, DestRegister: reg1, Len: 1, Mask: []byte{mask}, Xor: []byte{0}},
		&expr.Cmp{Op: expr.CmpOpNeq, Register: reg1, Data: []byte{flags}}})
}

// SetGuard creates or replaces the table in one transaction.
func (h *Handle) SetGuard(g plan.Guard) error {
	return h.change(func(b *batch) {
		b.replaceTable(guardTable())
		for _, s := range guardSets(g) {
			b.addSet(s.Set)
			b.addElements(s.Set, s.elements)
		}
		b.addChains(guardTable(), guardRules())
	})
}

// DelGuard deletes the guard.
func (h *Handle) DelGuard(plan.Guard) error { return h.drop(guardTable()) }

// ReadGuard returns g if its table exists and is complete. It returns an empty
// Guard if the table exists but differs.
func (h *Handle) ReadGuard(g plan.Guard) (plan.Object, error) {
	h.mu.Lock()
	defer h.mu.Unlock()
	if h.nft == nil {
		return nil, nil
	}
	if err := h.nft.find(guardTable()); err != nil {
		return nil, missing(err)
	}
	whole, err := h.nft.readWhole(guardTable(), guardRules())
	if err != nil {
		return nil, err
	}
	if !whole {
		return plan.Guard{}, nil
	}
	for _, s := range guardSets(g) {
		have, err := h.nft.elements(s.Set)
		if err != nil {
			return plan.Guard{}, missing(err)
		}
		if !sameKeys(have, s.elements) {
			return plan.Guard{}, nil
		}
	}
	return g, nil
}

// sameKeys reports whether two lists of elements have the same keys.
func sameKeys(a, b []nftables.SetElement) bool {
	byKey := func(x, y nftables.SetElement) int { return bytes.Compare(x.Key, y.Key) }
	a, b = slices.SortedFunc(slices.Values(a), byKey), slices.SortedFunc(slices.Values(b), byKey)
	return slices.EqualFunc(a, b, func(x, y nftables.SetElement) bool { return bytes.Equal(x.Key, y.Key) })
}

// LeftoverGuard returns the table if no plan contains it.
func (h *Handle) LeftoverGuard(known map[string]bool) (plan.Plan, error) {
	return leftover(h, plan.Guard{}, guardTable(), known)
}
