package nft

import (
	"encoding/binary"
	"fmt"
	"net/netip"
	"strconv"
	"strings"

	"github.com/google/nftables"
	"github.com/google/nftables/binaryutil"
	"github.com/google/nftables/expr"
	"golang.org/x/sys/unix"
)

// reg1 is the first register. Those behind it are numbered in steps of 4 bytes.
const reg1 = unix.NFT_REG32_00

// field is a property of a packet that rules load.
type field struct {
	name string
	kind nftables.SetDatatype
	load func(register uint32) expr.Any
	// of is the match of the packets that have the field; empty if all have it.
	of string
	// mask are the bits that belong to the field; nil means all.
	mask []byte
	// bits is true if values are sets of bits, of which one must be set.
	bits bool
}

// longestField is the maximum number of words of a field.
const longestField = 5

// fields are the fields by their names.
var fields = map[string]field{
	"meta l4proto": {kind: nftables.TypeInetProto, load: meta(expr.MetaKeyL4PROTO)},
	"meta nfproto": {kind: nftables.TypeNFProto, load: meta(expr.MetaKeyNFPROTO)},
	"meta mark":    {kind: nftables.TypeMark, load: meta(expr.MetaKeyMARK)},
	"meta nftrace": {kind: nftables.TypeBoolean, load: meta(expr.MetaKeyNFTRACE)},
	"iif":          {kind: nftables.TypeIFIndex, load: meta(expr.MetaKeyIIF)},
	"iifname":      {kind: nftables.TypeIFName, load: meta(expr.MetaKeyIIFNAME)},
	"oifname":      {kind: nftables.TypeIFName, load: meta(expr.MetaKeyOIFNAME)},
	"iifgroup":     {kind: nftables.TypeDevGroup, load: meta(expr.MetaKeyIIFGROUP)},
	"oifgroup":     {kind: nftables.TypeDevGroup, load: meta(expr.MetaKeyOIFGROUP)},

	"ip saddr":  {kind: nftables.TypeIPAddr, load: network(12, 4), of: "meta nfproto ipv4"},
	"ip daddr":  {kind: nftables.TypeIPAddr, load: network(16, 4), of: "meta nfproto ipv4"},
	"ip6 saddr": {kind: nftables.TypeIP6Addr, load: network(8, 16), of: "meta nfproto ipv6"},
	"ip6 daddr": {kind: nftables.TypeIP6Addr, load: network(24, 16), of: "meta nfproto ipv6"},
	// The library lacks a name for the offset of a fragment, whose lowest three bits do not belong to it.
	"frag frag-off": {kind: nftables.TypeInetService, of: "meta nfproto ipv6", mask: []byte{0xff, 0xf8},
		load: func(to uint32) expr.Any {
			return &expr.Exthdr{DestRegister: to, Type: unix.IPPROTO_FRAGMENT, Offset: 2, Len: 2}
		}},

	"th sport":  {kind: nftables.TypeInetService, load: transport(0, 2)},
	"th dport":  {kind: nftables.TypeInetService, load: transport(2, 2)},
	"tcp sport": {kind: nftables.TypeInetService, load: transport(0, 2), of: "meta l4proto tcp"},
	"tcp dport": {kind: nftables.TypeInetService, load: transport(2, 2), of: "meta l4proto tcp"},
	"tcp flags": {kind: nftables.TypeTCPFlag, load: transport(13, 1), of: "meta l4proto tcp"},
	"udp sport": {kind: nftables.TypeInetService, load: transport(0, 2), of: "meta l4proto udp"},
	"udp dport": {kind: nftables.TypeInetService, load: transport(2, 2), of: "meta l4proto udp"},

	"ct state":              {kind: nftables.TypeCTState, load: ct(expr.CtKeySTATE), bits: true},
	"ct status":             {kind: nftables.TypeCTStatus, load: ct(expr.CtKeySTATUS), bits: true},
	"ct label":              {kind: nftables.TypeCTLabel, load: ct(expr.CtKeyLABELS), bits: true},
	"ct original ip daddr":  {kind: nftables.TypeIPAddr, load: originally(ctDstIP), of: "meta nfproto ipv4"},
	"ct original ip6 daddr": {kind: nftables.TypeIP6Addr, load: originally(ctDstIP6), of: "meta nfproto ipv6"},
	"ct original proto-dst": {kind: nftables.TypeInetService, load: originally(uint32(expr.CtKeyPROTODST))},

	"fib saddr type": {kind: nftables.TypeFIBAddr, load: fib(expr.Fib{ResultADDRTYPE: true, FlagSADDR: true})},
	"fib daddr type": {kind: nftables.TypeFIBAddr, load: fib(expr.Fib{ResultADDRTYPE: true, FlagDADDR: true})},
	// In prerouting every kernel with fib accepts this expression.
	"fib saddr . iif oif": {kind: nftables.TypeIFIndex,
		load: fib(expr.Fib{ResultOIF: true, FlagSADDR: true, FlagIIF: true, FlagPRESENT: true})},
}

func meta(key expr.MetaKey) func(uint32) expr.Any {
	return func(to uint32) expr.Any { return &expr.Meta{Key: key, Register: to} }
}

func network(offset, length uint32) func(uint32) expr.Any {
	return payload(expr.PayloadBaseNetworkHeader, offset, length)
}

func transport(offset, length uint32) func(uint32) expr.Any {
	return payload(expr.PayloadBaseTransportHeader, offset, length)
}

func payload(base expr.PayloadBase, offset, length uint32) func(uint32) expr.Any {
	return func(to uint32) expr.Any {
		return &expr.Payload{Base: base, Offset: offset, Len: length, DestRegister: to}
	}
}

func ct(key expr.CtKey) func(uint32) expr.Any {
	return func(to uint32) expr.Any { return &expr.Ct{Key: key, Register: to} }
}

func fib(of expr.Fib) func(uint32) expr.Any {
	return func(to uint32) expr.Any {
		e := of
		e.Register = to
		return &e
	}
}

// The conntrack keys of the original destination address of one family
// (linux/netfilter/nf_tables.h, Linux 4.17).
const (
	ctDstIP  = 20
	ctDstIP6 = 22
)

func originally(key uint32) func(uint32) expr.Any {
	return func(to uint32) expr.Any { return original{key: key, register: to} }
}

// original is an expression that loads a field of the flow's original direction
// from conntrack. The library supports neither a direction nor an address of one
// family (google/nftables 0.3.0).
type original struct {
	expr.Any
	key, register uint32
}

func (o original) write(m *messages) {
	m.text(unix.NFTA_EXPR_NAME, "ct")
	m.nest(unix.NFTA_EXPR_DATA, func() {
		m.number(unix.NFTA_CT_KEY, o.key)
		m.number(unix.NFTA_CT_DREG, o.register)
		m.attr(unix.NFTA_CT_DIRECTION, []byte{0}) // IP_CT_DIR_ORIGINAL
	})
}

// values are the values that have names: numbers, and masks of bits.
var values = map[string]uint32{
	"icmp": unix.IPPROTO_ICMP, "ipv6-icmp": unix.IPPROTO_ICMPV6, "tcp": unix.IPPROTO_TCP, "udp": unix.IPPROTO_UDP,
	"ipv4": unix.NFPROTO_IPV4, "ipv6": unix.NFPROTO_IPV6,
	`"lo"`:  1, // its index in every network namespace
	"local": unix.RTN_LOCAL, "unicast": unix.RTN_UNICAST, "missing": 0,
	"invalid": expr.CtStateBitINVALID, "established": expr.CtStateBitESTABLISHED, "related": expr.CtStateBitRELATED,
	"new": expr.CtStateBitNEW, "untracked": expr.CtStateBitUNTRACKED,
	"dnat": 1 << 5, // IPS_DST_NAT of linux/netfilter/nf_conntrack_common.h
	"fin":  0x01, "syn": 0x02, "rst": 0x04, "ack": 0x10,
}

// valueOf returns a value as the kernel compares it: in the byte order of the packet or of the host. Several bits have
// commas between them.
func valueOf(kind nftables.SetDatatype, text string) []byte {
	switch kind {
	case nftables.TypeIPAddr, nftables.TypeIP6Addr:
		return netip.MustParseAddr(text).AsSlice()
	case nftables.TypeCTLabel: // the number of a bit
		label, bit := make([]byte, kind.Bytes), numberOf(text)
		label[bit/8] = 1 << (bit % 8)
		return label
	}
	var n uint32
	for word := range strings.SplitSeq(text, ",") {
		n |= numberOf(word)
	}
	switch kind.Bytes {
	case 1:
		return []byte{byte(n)}
	case 2:
		return binary.BigEndian.AppendUint16(nil, uint16(n))
	}
	return binaryutil.NativeEndian.PutUint32(n)
}

func numberOf(word string) uint32 {
	if n, named := values[word]; named {
		return n
	}
	n, err := strconv.ParseUint(word, 0, 32)
	if err != nil {
		panic(fmt.Sprintf("compile an nft rule: %q is not a number", word))
	}
	return uint32(n)
}
