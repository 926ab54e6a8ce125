package rules

import (
	"strings"

	"github.com/google/nftables/expr"
	"golang.org/x/sys/unix"
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
			d.other("meta set")
		}
		return
	}
	fields := map[expr.MetaKey]register{
		expr.MetaKeyL4PROTO: {field: Protocol, width: 1}, expr.MetaKeyNFPROTO: {field: Family, width: 1},
		expr.MetaKeyIIFNAME: {field: InLink, width: linkName}, expr.MetaKeyOIFNAME: {field: OutLink, width: linkName},
		expr.MetaKeyIIF: {field: InLink, width: 4}, expr.MetaKeyOIF: {field: OutLink, width: 4},
		expr.MetaKeyIIFGROUP: {kindOf: InLink, width: 4}, expr.MetaKeyOIFGROUP: {kindOf: OutLink, width: 4},
		expr.MetaKeyIIFTYPE: {kindOf: InLink, width: 2}, expr.MetaKeyOIFTYPE: {kindOf: OutLink, width: 2},
		expr.MetaKeyMARK:     {field: Mark, width: 4, assign: &Assign{Mark: allBits}},
		expr.MetaKeyPROTOCOL: {field: EtherType, width: 2},
	}
	r, ok := fields[e.Key]
	if r.size = r.width; !ok {
		r.what = metaName(e.Key)
	}
	d.registers[slot(e.Register)] = r
}

func (d *decoder) ct(e *expr.Ct) {
	switch {
	case e.SourceRegister && e.Key == expr.CtKeyMARK:
		d.assign(CtMark, e.Register)
	case e.SourceRegister && e.Key == expr.CtKeyLABELS, e.SourceRegister && e.Key == expr.CtKeyEVENTMASK:
	case e.SourceRegister:
		d.other(ctName(e.Key) + " set")
	case e.Key == expr.CtKeyMARK:
		d.registers[slot(e.Register)] = register{field: CtMark, width: 4, size: 4, assign: &Assign{CtMark: allBits}}
	case e.Key == expr.CtKeySTATE:
		d.load(e.Register, State, 4, 4)
	case e.Key == expr.CtKeySTATUS:
		d.load(e.Register, Status, 4, 4)
	case e.Key == expr.CtKeyDIRECTION:
		d.load(e.Register, Direction, 1, 1)
	default:
		d.registers[slot(e.Register)] = register{what: ctName(e.Key)}
	}
}

// ctNames are the names of conntrack's keys by number, as nft writes them
// (linux/netfilter/nf_tables.h: enum nft_ct_keys).
var ctNames = []string{"state", "direction", "status", "mark", "secmark", "expiration", "helper", "l3proto", "saddr",
	"daddr", "protocol", "proto-src", "proto-dst", "label", "packets", "bytes", "avgpkt", "zone", "event", "ip saddr",
	"ip daddr", "ip6 saddr", "ip6 daddr", "id"}

func ctName(key expr.CtKey) string {
	if int(key) < len(ctNames) {
		return "ct " + ctNames[key]
	}
	return "ct"
}

// metaNames are the names of keys of meta that are not supported.
var metaNames = map[expr.MetaKey]string{expr.MetaKeyLEN: "length", expr.MetaKeyPRIORITY: "priority",
	expr.MetaKeySKUID: "skuid", expr.MetaKeySKGID: "skgid",
	expr.MetaKeyPKTTYPE: "pkttype", expr.MetaKeyCPU: "cpu", expr.MetaKeyCGROUP: "cgroup", expr.MetaKeyPRANDOM: "random",
	expr.MetaKeyRTCLASSID: "rtclassid", expr.MetaKeyBRIIIFNAME: "ibrname", expr.MetaKeyBRIOIFNAME: "obrname"}

func metaName(key expr.MetaKey) string { return strings.TrimSpace("meta " + metaNames[key]) }

func (d *decoder) fib(e *expr.Fib) {
	field := map[bool]Field{true: DestinationType, false: SourceType}[e.FlagDADDR]
	switch {
	case e.ResultOIF && e.FlagPRESENT && e.FlagSADDR && e.FlagIIF && !e.FlagDADDR && !e.FlagOIF && !e.FlagMARK:
		field = ReturnRoute
	case !e.ResultADDRTYPE || e.FlagIIF || e.FlagOIF:
		d.registers[slot(e.Register)] = register{what: "fib"}
		return
	}
	d.load(e.Register, field, 4, 4)
}

// exthdr recognises the offset in a fragment header of IPv6 (RFC 8200, section 4.5). An expression without a register
// removes a TCP option.
func (d *decoder) exthdr(e *expr.Exthdr) {
	switch {
	case e.SourceRegister != 0 || e.DestRegister == 0:
		d.other("extension header set")
	case e.Op == expr.ExthdrOpIpv6 && e.Type == unix.IPPROTO_FRAGMENT && e.Offset == 2 && e.Len == 2 && e.Flags == 0:
		d.load(e.DestRegister, FragmentOffset, 2, 2)
	default:
		d.registers[slot(e.DestRegister)] = register{what: "extension header"}
	}
}
