package rules

import (
	"net/netip"
	"slices"

	"fairlead/internal/model"

	"github.com/google/nftables/expr"
	"github.com/google/nftables/xt"
)

// match decodes a condition of iptables that iptables-nft does not translate to
// nftables expressions, at least not in older releases.
func (d *decoder) match(e *expr.Match) {
	switch info := e.Info.(type) {
	case *xt.Comment:
		d.rule.Comment = string(*info)
	case *xt.AddrTypeV1:
		d.addressType(SourceType, info.Source, info.Flags&invertSource != 0)
		d.addressType(DestinationType, info.Dest, info.Flags&invertDestination != 0)
		if info.Flags&limitLinks != 0 {
			d.unread("addrtype --limit-iface")
		}
	case *xt.AddrType:
		d.addressType(SourceType, info.Source, info.InvertSource)
		d.addressType(DestinationType, info.Dest, info.InvertDest)
	case *xt.Tcp:
		d.portRange(SourcePort, info.SrcPorts, info.InvFlags&xt.TcpInvSrcPorts != 0)
		d.portRange(Port, info.DstPorts, info.InvFlags&xt.TcpInvDestPorts != 0)
		if info.Option != 0 {
			d.unread("tcp --tcp-option")
		}
		if info.FlagsMask != 0 {
			d.add(flagsCondition(info.FlagsMask, info.FlagsCmp, info.InvFlags&xt.TcpInvFlags != 0))
		}
	case *xt.Udp:
		d.portRange(SourcePort, info.SrcPorts, info.InvFlags&xt.UdpInvSrcPorts != 0)
		d.portRange(Port, info.DstPorts, info.InvFlags&xt.UdpInvDestPorts != 0)
	case *xt.ConntrackMtinfo3:
		d.tracked(info.ConntrackMtinfo2)
	case *xt.ConntrackMtinfo2:
		d.tracked(*info)
	case *xt.Unknown:
		if !d.unknownMatch(e.Name, *info) {
			d.unread("match " + e.Name)
		}
	default:
		d.unread("match " + e.Name)
	}
}

// unknownMatch decodes a match that the library does not support. It returns false
// if the match is not supported here either.
func (d *decoder) unknownMatch(name string, b []byte) bool {
	switch {
	case name == "multiport":
		return d.multiport(b)
	case (name == "mark" || name == "connmark") && len(b) > 8: // struct xt_mark_mtinfo1: mark, mask, invert
		f := map[string]Field{"mark": Mark, "connmark": CtMark}[name]
		d.add(markCondition(f, native.Uint32(b), native.Uint32(b[4:]), b[8] != 0))
	case (name == "icmp" || name == "icmp6") && len(b) > 3 && b[0] != 255: // struct ipt_icmp: type, codes, inverted
		kind := Range{[]byte{b[0]}, []byte{b[0]}}
		if b[1] != 0 || b[2] != 0xff {
			d.unread(name + " code")
		}
		d.add(Condition{Fields: []Field{ICMPType}, Not: b[3]&1 != 0, In: [][]Range{{kind}}})
	case name == "mac" && len(b) > 8: // struct xt_mac_info: address, padding, invert as an int
		d.add(Condition{Fields: []Field{EtherSource}, Not: native.Uint32(b[8:]) != 0, In: [][]Range{{{b[:6], b[:6]}}}})
	default:
		return false
	}
	return true
}

// flagsCondition matches if the masked TCP flags have these values.
func flagsCondition(mask, flags byte, not bool) Condition {
	return Condition{Fields: []Field{Flags}, Mask: []byte{mask}, Not: not,
		In: [][]Range{{{[]byte{flags}, []byte{flags}}}}}
}

// markCondition matches if the masked mark has the value.
func markCondition(f Field, value, mask uint32, not bool) Condition {
	data := big.AppendUint32(nil, value)
	c := Condition{Fields: []Field{f}, Not: not, In: [][]Range{{{data, data}}}}
	if mask != allBits {
		c.Mask = big.AppendUint32(nil, mask)
	}
	return c
}

// Flags of linux/netfilter/xt_addrtype.h, revision 1.
const (
	invertSource      = 1
	invertDestination = 2
	limitLinks        = 4 | 8
)

// addressType adds a condition for a mask of route types; the bits are the types'
// numbers.
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
		d.rule.Conditions = append(d.rule.Conditions,
			Condition{Fields: []Field{f}, Not: not, In: [][]Range{{portsOf(ports[0], ports[1])}}})
	}
}

func portsOf(first, last uint16) Range {
	return Range{big.AppendUint16(nil, first), big.AppendUint16(nil, last)}
}

// tracked decodes conntrack states and statuses.
func (d *decoder) tracked(info xt.ConntrackMtinfo2) {
	if info.MatchFlags&^uint16(xt.ConntrackState|xt.ConntrackStatus|xt.ConntrackStateAlias) != 0 {
		d.unread("match conntrack")
	}
	add := func(flag xt.ConntrackFlags, c Condition) {
		if info.MatchFlags&uint16(flag) != 0 {
			c.Not = info.InvertFlags&uint16(flag) != 0
			d.rule.Conditions = append(d.rule.Conditions, c)
		}
	}
	add(xt.ConntrackState, stateCondition(info.StateMask))
	add(xt.ConntrackStatus, Condition{Fields: []Field{Status}, Any: native.AppendUint32(nil, uint32(info.StatusMask))})
}

// The bits of XTState (linux/netfilter/xt_conntrack.h: XT_CONNTRACK_STATE_*). Those up
// to new are the same as in State.
const (
	xtSourceNAT      = 1 << 6
	xtDestinationNAT = 1 << 7
	xtUntracked      = 1 << 8
	xtShared         = 1<<4 - 1
)

// stateCondition matches if the connection has one of the states. Without those that
// nftables does not have, it is a condition on State.
func stateCondition(mask uint16) Condition {
	f := XTState
	switch {
	case mask&^xtShared == 0:
		f = State
	case mask == xtDestinationNAT:
		f, mask = Status, statusNAT
	}
	return Condition{Fields: []Field{f}, Any: native.AppendUint32(nil, uint32(mask))}
}

// multiport decodes struct xt_multiport_v1: a byte that selects source, destination
// or both; the number of ports; 15 ports; 15 bytes that mark the beginnings of
// ranges; and a byte that inverts the condition.
func (d *decoder) multiport(b []byte) bool {
	const ports, begins, invert = 2, 32, 47
	if len(b) <= invert || b[0] > 1 || b[1] > 15 { // 2: ports of either end
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

// target decodes an action of iptables.
func (d *decoder) target(e *expr.Target) {
	actions := map[string]Action{"DNAT": DNAT, "SNAT": SNAT, "REDIRECT": Redirect, "MASQUERADE": Masquerade,
		"REJECT": Reject, "NOTRACK": NoTrack}
	action, known := actions[e.Name]
	switch {
	case known:
		d.rule.Action = action
	case slices.Contains(harmless, e.Name):
		d.rule.alters(e.Name)
	case e.Name == "MARK" || e.Name == "CONNMARK" || e.Name == "CT":
		d.marks(e)
	default:
		d.other("target " + e.Name)
	}
	switch info := e.Info.(type) {
	case *xt.NatRange:
		d.natRange(*info)
	case *xt.NatRange2:
		d.natRange(info.NatRange)
	case *xt.NatIPv4MultiRangeCompat:
		for _, r := range *info {
			d.natRange(xt.NatRange(r))
		}
	}
}

// harmless are the targets that neither decide nor change a property that rules
// check.
var harmless = []string{"LOG", "NFLOG", "TCPMSS", "AUDIT", "CHECKSUM", "CLASSIFY", "CONNSECMARK", "DSCP", "IDLETIMER",
	"LED", "RATEEST", "SECMARK", "SET", "TOS", "TRACE"}

// altering are those of them that change the packet.
var altering = []string{"DSCP", "TCPMSS", "TOS"}

// alters records that the rule changes the packet, if the target does.
func (r *Rule) alters(target string) {
	if slices.Contains(altering, target) {
		r.Alters = target
	}
}

// marks decodes a target that sets a mark (struct xt_mark_tginfo2 and
// xt_connmark_tginfo1) or controls connection tracking (xt_ct_target_info).
func (d *decoder) marks(e *expr.Target) {
	info, ok := e.Info.(*xt.Unknown)
	if !ok {
		d.other("target " + e.Name)
		return
	}
	b := []byte(*info)
	word := func(n int) uint32 { return native.Uint32(b[4*n:]) }
	switch {
	case e.Name == "MARK" && e.Rev == 2 && len(b) >= 8:
		d.rule.Assigns = append(d.rule.Assigns, Assign{To: Mark, Mark: ^word(1), Xor: word(0)})
	case e.Name == "CONNMARK" && e.Rev == 1 && len(b) > 12 && b[12] <= connmarkRestore:
		d.rule.Assigns = append(d.rule.Assigns, connmark(b[12], word(0), word(1), word(2)))
	case e.Name == "CONNMARK" && e.Rev == 2 && len(b) > 14 && b[13] == 0 && b[14] <= connmarkRestore: // without a shift
		d.rule.Assigns = append(d.rule.Assigns, connmark(b[14], word(0), word(1), word(2)))
	case e.Name == "CT" && len(b) >= 4 && native.Uint16(b)&ctNoTrack != 0:
		d.rule.Action = NoTrack
	case e.Name == "CT" && len(b) >= 4 && native.Uint16(b)&ctZoneMark == 0 && native.Uint16(b[2:]) == 0:
	default:
		d.other("target " + e.Name)
	}
}

// Flags of CT (linux/netfilter/xt_CT.h). With the target's other name, NOTRACK, there is
// one more flag.
const (
	ctNoTrack  = 1 << 0
	ctZoneMark = 1 << 4
)

// The modes of CONNMARK (linux/netfilter/xt_connmark.h).
const (
	connmarkSet = iota
	connmarkSave
	connmarkRestore
)

// connmark returns the effect of CONNMARK (net/netfilter/xt_connmark.c).
func connmark(mode byte, value, ctmask, nfmask uint32) Assign {
	switch mode {
	case connmarkSave:
		return Assign{To: CtMark, CtMark: ^ctmask, Mark: nfmask}
	case connmarkRestore:
		return Assign{To: Mark, Mark: ^nfmask, CtMark: ctmask}
	}
	return Assign{To: CtMark, CtMark: ^ctmask, Xor: value}
}

func (d *decoder) natRange(info xt.NatRange) {
	if info.Flags&uint(xt.NatRangeMapIPs) != 0 {
		to, _ := netip.AddrFromSlice(info.MinIP)
		last, _ := netip.AddrFromSlice(info.MaxIP)
		d.rule.To = to.Unmap()
		d.rule.lastAddress(last.Unmap())
	}
	if info.Flags&uint(xt.NatRangeProtoSpecified) != 0 {
		d.rule.ToPorts = model.PortRange{First: info.MinPort, Last: info.MaxPort}
		random := info.Flags&uint(xt.NatRangeProtoRandom|xt.NatRangeProtoRandomFully) != 0
		shifted := info.Flags&uint(xt.NatRangeProtoOffset) != 0 // by the port of the packet
		d.rule.Choice = d.rule.Choice || (random || shifted) && info.MinPort != info.MaxPort
	}
}
