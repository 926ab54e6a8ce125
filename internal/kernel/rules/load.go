package rules

import (
	"github.com/google/nftables"
	"github.com/google/nftables/expr"
)

func (d *decoder) load(reg uint32, field Field, width, size int) {
	d.registers[slot(reg)] = register{field: field, width: width, size: size}
}

func (d *decoder) meta(e *expr.Meta) {
	if e.SourceRegister {
		switch e.Key {
		case expr.MetaKeyMARK:
			d.assign(Mark, e.Register)
		case expr.MetaKeyPRIORITY, expr.MetaKeyNFTRACE, expr.MetaKeySECMARK:
		default:
			d.other()
		}
		return
	}
	fields := map[expr.MetaKey]register{
		expr.MetaKeyL4PROTO: {field: Protocol, width: 1}, expr.MetaKeyNFPROTO: {field: Family, width: 1},
		expr.MetaKeyIIFNAME: {field: InLink, width: linkName}, expr.MetaKeyOIFNAME: {field: OutLink, width: linkName},
		expr.MetaKeyIIF: {field: InLink, width: 4}, expr.MetaKeyOIF: {field: OutLink, width: 4},
		expr.MetaKeyIIFGROUP: {groupOf: InLink, width: 4}, expr.MetaKeyOIFGROUP: {groupOf: OutLink, width: 4},
		expr.MetaKeyMARK:     {field: Mark, width: 4, assign: &Assign{Mark: allBits}},
		expr.MetaKeyPROTOCOL: {field: EtherType, width: 2},
	}
	r := fields[e.Key]
	r.size = r.width
	d.registers[slot(e.Register)] = r
}

func (d *decoder) ct(e *expr.Ct) {
	switch {
	case e.SourceRegister && e.Key == expr.CtKeyMARK:
		d.assign(CtMark, e.Register)
	case e.SourceRegister && e.Key == expr.CtKeyLABELS, e.SourceRegister && e.Key == expr.CtKeyEVENTMASK:
	case e.SourceRegister:
		d.other()
	case e.Key == expr.CtKeyMARK:
		d.registers[slot(e.Register)] = register{field: CtMark, width: 4, size: 4, assign: &Assign{CtMark: allBits}}
	default:
		d.load(e.Register, map[expr.CtKey]Field{expr.CtKeySTATE: State, expr.CtKeySTATUS: Status}[e.Key], 4, 4)
	}
}

// payload recognises addresses, ports and protocols by their offsets in the headers
// (RFC 791, RFC 8200, RFC 9293).
func (d *decoder) payload(e *expr.Payload) {
	if e.OperationType == expr.PayloadWrite {
		d.other()
		return
	}
	type place struct {
		base   expr.PayloadBase
		offset uint32
	}
	v4 := map[place]register{
		{expr.PayloadBaseNetworkHeader, 9}:  {field: Protocol, width: 1},
		{expr.PayloadBaseNetworkHeader, 12}: {field: Source, width: 4},
		{expr.PayloadBaseNetworkHeader, 16}: {field: Destination, width: 4},
	}
	v6 := map[place]register{
		{expr.PayloadBaseNetworkHeader, 6}:  {field: Protocol, width: 1},
		{expr.PayloadBaseNetworkHeader, 8}:  {field: Source, width: 16},
		{expr.PayloadBaseNetworkHeader, 24}: {field: Destination, width: 16},
	}
	ports := map[place]register{
		{expr.PayloadBaseTransportHeader, 0}: {field: SourcePort, width: 2},
		{expr.PayloadBaseTransportHeader, 2}: {field: Port, width: 2},
		// Only rules for TCP use this offset.
		{expr.PayloadBaseTransportHeader, 13}: {field: Flags, width: 1},
		{expr.PayloadBaseLLHeader, 0}:         {field: EtherDestination, width: 6},
		{expr.PayloadBaseLLHeader, 6}:         {field: EtherSource, width: 6},
		{expr.PayloadBaseLLHeader, 12}:        {field: EtherType, width: 2},
	}
	arp := map[place]register{
		{expr.PayloadBaseNetworkHeader, 6}:  {field: ARPOperation, width: 2},
		{expr.PayloadBaseNetworkHeader, 14}: {field: Source, width: 4},
		{expr.PayloadBaseNetworkHeader, 24}: {field: Destination, width: 4},
	}
	at := place{e.Base, e.Offset}
	r, found := ports[at]
	if found && at == (place{expr.PayloadBaseTransportHeader, 0}) && e.Len == 1 { // a port has two bytes
		r = register{field: ICMPType, width: 1}
	}
	if !found && d.family == nftables.TableFamilyARP {
		r, found = arp[at]
	}
	if !found && d.family != nftables.TableFamilyIPv6 {
		r, found = v4[at]
	}
	if !found && d.family != nftables.TableFamilyIPv4 {
		// In the bridge family, 4 bytes at this offset are an address in an ARP
		// message.
		if r = v6[at]; r.width == 16 && e.Len == 4 && d.family != nftables.TableFamilyIPv6 &&
			d.family != nftables.TableFamilyINet {
			r.field = ""
		}
	}
	r.size = int(e.Len)
	if r.size > r.width { // several fields at once
		r.field = ""
	}
	d.registers[slot(e.DestRegister)] = r
}

func (d *decoder) fib(e *expr.Fib) {
	field := map[bool]Field{true: DestinationType, false: SourceType}[e.FlagDADDR]
	switch {
	case e.ResultOIF && e.FlagPRESENT && e.FlagSADDR && e.FlagIIF && !e.FlagDADDR && !e.FlagOIF && !e.FlagMARK:
		field = ReturnRoute
	case !e.ResultADDRTYPE || e.FlagIIF || e.FlagOIF:
		field = ""
	}
	d.load(e.Register, field, 4, 4)
}
