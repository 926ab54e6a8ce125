package rules

import (
	"net/netip"
	"slices"

	"fairlead/internal/model"

	"github.com/google/nftables/expr"
	"github.com/google/nftables/xt"
)

// match reads a condition of iptables that iptables-nft has no words of nftables
// for, or had none in older releases.
func (d *decoder) match(e *expr.Match) {
	switch info := e.Info.(type) {
	case *xt.Comment:
		d.rule.Comment = string(*info)
	case *xt.AddrTypeV1:
		d.addressType(SourceType, info.Source, info.Flags&invertSource != 0)
		d.addressType(DestinationType, info.Dest, info.Flags&invertDestination != 0)
		d.rule.Partial = d.rule.Partial || info.Flags&limitLinks != 0
	case *xt.AddrType:
		d.addressType(SourceType, info.Source, info.InvertSource)
		d.addressType(DestinationType, info.Dest, info.InvertDest)
	case *xt.Tcp:
		d.portRange(SourcePort, info.SrcPorts, info.InvFlags&xt.TcpInvSrcPorts != 0)
		d.portRange(Port, info.DstPorts, info.InvFlags&xt.TcpInvDestPorts != 0)
		d.rule.Partial = d.rule.Partial || info.FlagsMask != 0 || info.Option != 0
	case *xt.Udp:
		d.portRange(SourcePort, info.SrcPorts, info.InvFlags&xt.UdpInvSrcPorts != 0)
		d.portRange(Port, info.DstPorts, info.InvFlags&xt.UdpInvDestPorts != 0)
	case *xt.ConntrackMtinfo3:
		d.tracked(info.ConntrackMtinfo2)
	case *xt.ConntrackMtinfo2:
		d.tracked(*info)
	case *xt.Unknown:
		if e.Name != "multiport" || !d.multiport(*info) {
			d.rule.Partial = true
		}
	default:
		d.rule.Partial = true
	}
}

// Flags of linux/netfilter/xt_addrtype.h, revision 1.
const (
	invertSource      = 1
	invertDestination = 2
	limitLinks        = 4 | 8
)

// addressType holds a mask of route types, by their numbers.
func (d *decoder) addressType(f Field, mask uint16, not bool) {
	if mask == 0 {
		return
	}
	c := Condition{Fields: []Field{f}, Not: not}
	for kind := range 16 {
		if mask&(1<<kind) != 0 {
			value := native.AppendUint32(nil, uint32(kind))
			c.In = append(c.In, []Range{{value, value}})
		}
	}
	d.rule.Conditions = append(d.rule.Conditions, c)
}

func (d *decoder) portRange(f Field, ports [2]uint16, not bool) {
	if ports != [2]uint16{0, 65535} {
		d.rule.Conditions = append(d.rule.Conditions, Condition{Fields: []Field{f}, Not: not, In: [][]Range{{portsOf(ports[0], ports[1])}}})
	}
}

func portsOf(first, last uint16) Range {
	return Range{big.AppendUint16(nil, first), big.AppendUint16(nil, last)}
}

// tracked reads states, whose numbers are nftables' in another place
// (linux/netfilter/xt_conntrack.h: XT_CONNTRACK_STATE_*).
func (d *decoder) tracked(info xt.ConntrackMtinfo2) {
	if info.MatchFlags&^uint16(xt.ConntrackState|xt.ConntrackStatus|xt.ConntrackStateAlias) != 0 {
		d.rule.Partial = true
	}
	if info.MatchFlags&uint16(xt.ConntrackState) != 0 {
		const dnat = 1 << 7
		if info.StateMask&dnat != 0 {
			d.rule.Conditions = append(d.rule.Conditions, Condition{Fields: []Field{Status}, Any: native.AppendUint32(nil, statusNAT),
				Not: info.InvertFlags&uint16(xt.ConntrackState) != 0})
			return
		}
		d.rule.Conditions = append(d.rule.Conditions, Condition{Fields: []Field{State}, Any: native.AppendUint32(nil, uint32(info.StateMask)),
			Not: info.InvertFlags&uint16(xt.ConntrackState) != 0})
	}
	if info.MatchFlags&uint16(xt.ConntrackStatus) != 0 {
		d.rule.Conditions = append(d.rule.Conditions, Condition{Fields: []Field{Status}, Any: native.AppendUint32(nil, uint32(info.StatusMask)),
			Not: info.InvertFlags&uint16(xt.ConntrackStatus) != 0})
	}
}

// multiport reads struct xt_multiport_v1: a byte that says which ports, their
// number, 15 ports, 15 bytes that say that a range begins, and one that inverts.
func (d *decoder) multiport(b []byte) bool {
	const ports, begins, invert = 2, 32, 47
	if len(b) <= invert || b[0] > 1 || b[1] > 15 { // either way, ports of both ends
		return false
	}
	c := Condition{Fields: []Field{[]Field{SourcePort, Port}[b[0]]}, Not: b[invert] != 0}
	for i := 0; i < int(b[1]); i++ {
		first := native.Uint16(b[ports+2*i:])
		last := first
		if b[begins+i] != 0 && i+1 < int(b[1]) {
			i++
			last = native.Uint16(b[ports+2*i:])
		}
		c.In = append(c.In, []Range{portsOf(first, last)})
	}
	d.rule.Conditions = append(d.rule.Conditions, c)
	return true
}

// target reads an action of iptables.
func (d *decoder) target(e *expr.Target) {
	actions := map[string]Action{"DNAT": DNAT, "SNAT": SNAT, "REDIRECT": Redirect, "MASQUERADE": Masquerade, "REJECT": Reject, "NOTRACK": NoTrack}
	action, known := actions[e.Name]
	switch {
	case known:
		d.rule.Action = action
	case slices.Contains([]string{"LOG", "NFLOG", "MARK", "CONNMARK", "TCPMSS", "CT"}, e.Name):
	default:
		d.rule.Action = Other
	}
	switch info := e.Info.(type) {
	case *xt.NatRange:
		d.natRange(info.Flags, info.MinIP, info.MinPort, info.MaxPort)
	case *xt.NatRange2:
		d.natRange(info.Flags, info.MinIP, info.MinPort, info.MaxPort)
	case *xt.NatIPv4MultiRangeCompat:
		for _, r := range *info {
			d.natRange(r.Flags, r.MinIP, r.MinPort, r.MaxPort)
		}
	}
}

func (d *decoder) natRange(flags uint, to []byte, first, last uint16) {
	if flags&uint(xt.NatRangeMapIPs) != 0 {
		d.rule.To, _ = netip.AddrFromSlice(to)
		d.rule.To = d.rule.To.Unmap()
	}
	if flags&uint(xt.NatRangeProtoSpecified) != 0 {
		d.rule.ToPorts = model.PortRange{First: first, Last: last}
	}
}
