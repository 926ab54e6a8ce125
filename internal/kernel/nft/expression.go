package nft

import (
	"fairlead/internal/kernel/nlutil"
	"fairlead/internal/kernel/rules"

	"github.com/google/nftables"
	"github.com/google/nftables/expr"
	"golang.org/x/sys/unix"
)

// decode returns the rule with its expressions. An expression that cannot be read is
// opaque: see rules.Opaque.
func (r foundRule) decode() *nftables.Rule {
	t := &nftables.Table{Name: r.table, Family: r.family}
	rule := &nftables.Rule{Table: t, Chain: &nftables.Chain{Name: r.chain, Table: t}, Handle: r.handle,
		UserData: r.data}
	nlutil.Attributes(r.exprs, func(_ uint16, attrs []byte) {
		rule.Exprs = append(rule.Exprs, decodeExpression(r.family, attrs))
	})
	return rule
}

// libraryExpressions are the expressions that the nftables library reads and that
// Fairlead evaluates.
var libraryExpressions = map[string]func() expr.Any{
	"range": func() expr.Any { return &expr.Range{} }, "meta": func() expr.Any { return &expr.Meta{} },
	"cmp": func() expr.Any { return &expr.Cmp{} }, "counter": func() expr.Any { return &expr.Counter{} },
	"objref": func() expr.Any { return &expr.Objref{} }, "payload": func() expr.Any { return &expr.Payload{} },
	"lookup": func() expr.Any { return &expr.Lookup{} }, "immediate": func() expr.Any { return &expr.Immediate{} },
	"bitwise": func() expr.Any { return &expr.Bitwise{} }, "redir": func() expr.Any { return &expr.Redir{} },
	"nat": func() expr.Any { return &expr.NAT{} }, "dynset": func() expr.Any { return &expr.Dynset{} },
	"log": func() expr.Any { return &expr.Log{} }, "match": func() expr.Any { return &expr.Match{} },
	"target": func() expr.Any { return &expr.Target{} }, "queue": func() expr.Any { return &expr.Queue{} },
	"flow_offload": func() expr.Any { return &expr.FlowOffload{} }, "reject": func() expr.Any { return &expr.Reject{} },
	"masq": func() expr.Any { return &expr.Masq{} }, "hash": func() expr.Any { return &expr.Hash{} },
	"synproxy": func() expr.Any { return &expr.SynProxy{} }, "fib": func() expr.Any { return &expr.Fib{} },
	"exthdr": func() expr.Any { return &expr.Exthdr{} },
}

// decodeExpression decodes one expression: its name and its attributes.
func decodeExpression(family nftables.TableFamily, attrs []byte) expr.Any {
	name := nlutil.Text(attrs, unix.NFTA_EXPR_NAME)
	data := nlutil.Attribute(attrs, unix.NFTA_EXPR_DATA)
	switch name {
	case "ct":
		return decodeCt(data)
	case "byteorder":
		n := numbersOf(data)
		return &expr.Byteorder{SourceRegister: n[unix.NFTA_BYTEORDER_SREG], DestRegister: n[unix.NFTA_BYTEORDER_DREG],
			Size: n[unix.NFTA_BYTEORDER_SIZE]}
	case "notrack": // it has no attributes
		return &expr.Notrack{}
	}
	if e := decodeByLibrary(family, name, data); e != nil {
		return e
	}
	return rules.Opaque(name)
}

// decodeByLibrary returns nil if the library cannot read the expression. The library
// panics on attributes that are shorter than it expects.
func decodeByLibrary(family nftables.TableFamily, name string, data []byte) (e expr.Any) {
	empty := libraryExpressions[name]
	if empty == nil {
		return nil
	}
	defer func() {
		if recover() != nil {
			e = nil
		}
	}()
	e = empty()
	if expr.Unmarshal(byte(family), data, e) != nil {
		return nil
	}
	if i, ok := e.(*expr.Immediate); !ok || i.Register != unix.NFT_REG_VERDICT || len(i.Data) > 0 {
		return e
	}
	e = &expr.Verdict{} // the library has a type of its own for it
	if expr.Unmarshal(byte(family), data, e) != nil {
		return nil
	}
	return e
}

// decodeCt decodes a conntrack expression. The library expects 4 bytes of the
// direction, of which the kernel sends 1, and leaves out the source register.
func decodeCt(data []byte) expr.Any {
	n := numbersOf(data)
	e := &expr.Ct{Key: expr.CtKey(n[unix.NFTA_CT_KEY]), Register: n[unix.NFTA_CT_DREG],
		Direction: n[unix.NFTA_CT_DIRECTION]}
	if source := n[unix.NFTA_CT_SREG]; source != 0 {
		e.Register, e.SourceRegister = source, true
	}
	return e
}

// numbersOf returns the attributes that are numbers of 1 or 4 bytes.
func numbersOf(attrs []byte) map[uint16]uint32 {
	all := map[uint16]uint32{}
	nlutil.Attributes(attrs, func(kind uint16, value []byte) {
		if len(value) == 1 {
			all[kind] = uint32(value[0])
		} else if len(value) == 4 {
			all[kind] = uint32Of(value)
		}
	})
	return all
}
