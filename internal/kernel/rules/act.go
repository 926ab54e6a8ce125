package rules

import (
	"fmt"
	"net/netip"
	"slices"
	"strings"

	"fairlead/internal/model"

	"github.com/google/nftables"
	"github.com/google/nftables/expr"
	"golang.org/x/sys/unix"
)

// act decodes an expression that is an action.
func (d *decoder) act(e expr.Any) {
	switch e := e.(type) {
	case *expr.Verdict:
		d.rule.verdict(e)
	case *expr.NAT:
		d.nat(e)
	case *expr.Redir:
		d.rule.Action = Redirect
		if e.RegisterProtoMin != 0 {
			d.rule.ToPorts = d.ports(e.RegisterProtoMin, e.RegisterProtoMax)
		}
	case *expr.Masq:
		d.rule.Action = Masquerade
	case *expr.Reject:
		d.rule.Action = Reject
	case *expr.Notrack:
		d.rule.Action = NoTrack
	case *expr.Target:
		d.target(e)
	case *expr.Counter, *expr.Log, *expr.FlowOffload:
	case *expr.Objref:
		switch {
		case e.Name == "": // a map chooses the object
			d.unread("object of a map")
		case e.Type == unix.NFT_OBJECT_QUOTA || e.Type == unix.NFT_OBJECT_LIMIT || e.Type == unix.NFT_OBJECT_CONNLIMIT:
			d.unread("object " + e.Name)
		case e.Type == unix.NFT_OBJECT_SYNPROXY || e.Type == unix.NFT_OBJECT_TUNNEL ||
			e.Type == unix.NFT_OBJECT_CT_HELPER:
			d.other("object " + e.Name)
		}
	case *expr.Queue:
		d.other("queue")
	case *expr.SynProxy:
		d.other("synproxy")
	case *expr.Hash:
		d.registers[slot(e.DestRegister)] = register{what: "hash"}
	case *expr.Dynset:
		d.unread("set " + e.SetName)
	default: // its result cannot be predicted
		clear(d.registers)
		d.unread(strings.ToLower(strings.TrimPrefix(fmt.Sprintf("%T", e), "*expr.")))
	}
}

func (r *Rule) verdict(v *expr.Verdict) {
	switch v.Kind {
	case expr.VerdictAccept:
		r.Action = Accept
	case expr.VerdictDrop:
		r.Action = Drop
	case expr.VerdictJump:
		r.Action, r.Chain = Jump, v.Chain
	case expr.VerdictGoto:
		r.Action, r.Chain = Goto, v.Chain
	case expr.VerdictReturn:
		r.Action = Return
	case expr.VerdictContinue, expr.VerdictBreak:
	default:
		r.Action = Other
	}
}

// nat decodes the new addresses and ports: values in registers, or values from an
// element of a map.
func (d *decoder) nat(e *expr.NAT) {
	d.rule.Action = DNAT
	if e.Type == expr.NATTypeSourceNAT {
		d.rule.Action = SNAT
	}
	if _, known := d.only(Family); !known && d.family == nftables.TableFamilyINet && e.Family != unix.NFPROTO_INET {
		// Packets of the other family are not translated (nft_nat_inet_eval).
		family := []byte{byte(e.Family)}
		d.rule.Conditions = append(d.rule.Conditions, Condition{Fields: []Field{Family}, In: [][]Range{{{family,
			family}}}})
	}
	if d.branches != nil {
		d.mapped(e)
		return
	}
	if e.RegAddrMin != 0 {
		if d.rule.To = addressOf(d.registers[slot(e.RegAddrMin)].value, e.Family); !d.rule.To.IsValid() {
			d.rule.Choice = true // it is computed
		}
	}
	if e.RegAddrMax != 0 && e.RegAddrMax != e.RegAddrMin {
		d.rule.lastAddress(addressOf(d.registers[slot(e.RegAddrMax)].value, e.Family))
	}
	if e.RegProtoMin != 0 {
		d.rule.ToPorts = d.ports(e.RegProtoMin, e.RegProtoMax)
	}
	random := (e.Random || e.FullyRandom) && d.rule.ToPorts.First != d.rule.ToPorts.Last
	d.rule.Choice = d.rule.Choice || e.Prefix || random
}

// lastAddress sets the end of a range of new addresses, if it has several.
func (r *Rule) lastAddress(a netip.Addr) {
	if a != r.To {
		r.ToLast, r.Choice = a, true
	}
}

// ports reads a range of ports from two registers. If last is 0, the range has one
// port.
func (d *decoder) ports(first, last uint32) model.PortRange {
	ports := portOf(d.registers[slot(first)].value)
	if last != 0 && last != first {
		ports.Last = portOf(d.registers[slot(last)].value).Last
	}
	return ports
}

// mapped reads the NAT target from each element of the map. The address is in the
// register of the lookup, and the port after it.
func (d *decoder) mapped(e *expr.NAT) {
	d.resolve = func(r *Rule, value []byte) {
		from := func(reg uint32) []byte {
			at := int(slot(reg)-d.at) * 4
			if reg == 0 || at < 0 || at > len(value) {
				return d.registers[slot(reg)].value // the map does not contain this value
			}
			return value[at:]
		}
		if e.RegAddrMin != 0 {
			r.To = addressOf(from(e.RegAddrMin), e.Family)
		}
		if e.RegProtoMin != 0 {
			r.ToPorts = portOf(from(e.RegProtoMin))
		}
	}
}

// elementVerdict parses the verdict in an element of a map. The library returns it
// as raw attributes (NFTA_VERDICT_CODE, NFTA_VERDICT_CHAIN).
func elementVerdict(e nftables.SetElement) *expr.Verdict {
	if e.VerdictData != nil {
		return e.VerdictData
	}
	var v expr.Verdict
	found := false
	for b := e.Val; len(b) >= unix.NLA_HDRLEN; {
		length, kind := int(native.Uint16(b)), native.Uint16(b[2:])&^unix.NLA_F_NESTED
		if length < unix.NLA_HDRLEN || length > len(b) {
			return nil
		}
		value := b[unix.NLA_HDRLEN:length]
		switch {
		case kind == unix.NFTA_VERDICT_CODE && len(value) == 4:
			v.Kind, found = expr.VerdictKind(int32(big.Uint32(value))), true
		case kind == unix.NFTA_VERDICT_CHAIN:
			v.Chain = unix.ByteSliceToString(value)
		}
		b = b[min(len(b), (length+unix.NLA_ALIGNTO-1)/unix.NLA_ALIGNTO*unix.NLA_ALIGNTO):]
	}
	if !found {
		return nil
	}
	return &v
}

// assign adds a statement that sets a mark to the content of a register.
func (d *decoder) assign(to Field, reg uint32) {
	r := d.registers[slot(reg)]
	switch {
	case r.mapped && d.branches != nil:
		before := d.resolve
		d.resolve = func(rule *Rule, value []byte) {
			if before != nil {
				before(rule, value)
			}
			a := Assign{To: to, Unknown: len(value) < 4}
			if !a.Unknown {
				a.Xor = native.Uint32(value)
			}
			rule.Assigns = append(slices.Clone(rule.Assigns), a)
		}
	case r.assign != nil:
		a := *r.assign
		a.To = to
		d.rule.Assigns = append(d.rule.Assigns, a)
	default:
		d.rule.Assigns = append(d.rule.Assigns, Assign{To: to, Unknown: true})
	}
}

// other records that the rule has an action that is not supported.
func (d *decoder) other(what string) {
	if d.rule.Action == None {
		d.rule.Action = Other
	}
	if !slices.Contains(d.rule.Unread, what) {
		d.rule.Unread = append(d.rule.Unread, what)
	}
}

func portOf(b []byte) model.PortRange {
	if len(b) < 2 {
		return model.PortRange{}
	}
	return model.Port(big.Uint16(b))
}

func addressOf(b []byte, family uint32) netip.Addr {
	n := 4
	if family == unix.NFPROTO_IPV6 {
		n = 16
	}
	if len(b) < n {
		return netip.Addr{}
	}
	a, _ := netip.AddrFromSlice(b[:n])
	return a
}
