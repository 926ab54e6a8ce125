package nft

import (
	"net/netip"

	"fairlead/internal/plan"

	"github.com/google/nftables"
	"github.com/google/nftables/binaryutil"
	"github.com/google/nftables/expr"
	"golang.org/x/sys/unix"
)

// The nftables registers. Registers 1 to 4 have 16 bytes each. The numbers from 8
// on address the same memory in steps of 4 bytes: register 1 is 8 to 11, register
// 2 is 12 to 15.
const (
	reg1  = unix.NFT_REG_1
	reg2  = unix.NFT_REG_2
	reg9  = unix.NFT_REG32_00 + 1
	reg10 = unix.NFT_REG32_00 + 2
	reg13 = unix.NFT_REG32_00 + 5
)

// family describes the differences between IPv4 and IPv6 in a rule.
type family struct {
	suffix     string
	nfproto    byte
	addrLen    uint32
	src, dst   uint32
	addrType   nftables.SetDatatype
	afterAddr  uint32 // the register that follows an address in reg1
	afterProto uint32
}

var families = []family{
	{"4", unix.NFPROTO_IPV4, 4, 12, 16, nftables.TypeIPAddr, reg9, reg10},
	{"6", unix.NFPROTO_IPV6, 16, 8, 24, nftables.TypeIP6Addr, reg2, reg13},
}

// familyOf returns the family of an address, or of an object with addresses of one family.
func familyOf(of interface{ Is4() bool }) family {
	if of.Is4() {
		return families[0]
	}
	return families[1]
}

func table() *nftables.Table {
	return &nftables.Table{Name: plan.Mark, Family: nftables.TableFamilyINet}
}

// tableSets returns every set and map of the skeleton, in the order of
// plan.TableText.
func tableSets() []*nftables.Set {
	concat := nftables.MustConcatSetType
	proto, port := nftables.TypeInetProto, nftables.TypeInetService
	var sets []*nftables.Set
	add := func(name string, interval bool, key nftables.SetDatatype, data *nftables.SetDatatype) {
		s := &nftables.Set{Table: table(), Name: name, KeyType: key, Interval: interval, Concatenation: true}
		if data != nil {
			s.IsMap, s.DataType, s.Counter = true, *data, true
		}
		sets = append(sets, s)
	}
	for _, f := range families {
		addrPort := concat(f.addrType, port)
		add(plan.MapPorts+f.suffix, false, concat(f.addrType, proto, port), &addrPort)
		add(plan.MapAnyPorts+f.suffix, false, concat(proto, port), &addrPort)
		add(plan.MapRanges+f.suffix, true, concat(f.addrType, proto, port), &f.addrType)
		add(plan.SetHairpin+f.suffix, true, concat(f.addrType, f.addrType), nil)
		add(plan.SetOutbound+f.suffix, true, concat(f.addrType, f.addrType), nil)
		add(plan.SetSandboxes+f.suffix, true, concat(f.addrType, f.addrType), nil)
	}
	v4 := families[0]
	add(plan.SetRenumbered+v4.suffix, true, concat(v4.addrType, v4.addrType), nil)
	for _, name := range []string{plan.SetLinks, plan.SetLAN, plan.SetIsolated} {
		// Without the byte order nft(8) shows the names as empty.
		sets = append(sets, &nftables.Set{Table: table(), Name: name, KeyType: nftables.TypeIFName,
			KeyByteOrder: binaryutil.NativeEndian})
	}
	add(plan.SetWithin, false, concat(nftables.TypeIFName, nftables.TypeIFName), nil)
	for _, f := range families {
		add(plan.SetProxied+f.suffix, true, concat(f.addrType, proto, port), nil)
	}
	return sets
}

// chain is a chain of the skeleton with its rules.
type chain struct {
	name  string
	hook  *nftables.ChainHook
	prio  *nftables.ChainPriority
	kind  nftables.ChainType
	rules [][]expr.Any
}

// tableChains returns the skeleton's chains; each rule is the netlink form
// of the line at the same place of plan.TableText.
func tableChains() []chain {
	accept, drop := verdict(expr.VerdictAccept, ""), verdict(expr.VerdictDrop, "")
	masquerade := []expr.Any{&expr.Masq{}}
	notEstablished := ctKey(expr.CtKeySTATE, expr.CtStateBitINVALID|expr.CtStateBitNEW|expr.CtStateBitUNTRACKED)
	fromSandboxes := linkOf(expr.MetaKeyIIFGROUP, plan.SandboxLinks)
	fromInternal := linkOf(expr.MetaKeyIIFGROUP, plan.InternalLinks)
	toPublish := rule(localDestination(), verdict(expr.VerdictJump, "publish"))
	var publish [][]expr.Any
	for _, f := range families {
		publish = append(publish,
			rule(f.is(), loadProtoPort(reg1, reg9), f.dnat(plan.MapAnyPorts, true)),
			rule(f.is(), f.load(f.dst, reg1), loadProtoPort(f.afterAddr, f.afterProto), f.dnat(plan.MapPorts, true)),
			rule(f.is(), f.load(f.dst, reg1), loadProtoPort(f.afterAddr, f.afterProto), f.dnat(plan.MapRanges, false)),
		)
	}
	v4, v6 := families[0], families[1]
	beforeDNAT := nftables.ChainPriorityRef(*nftables.ChainPriorityNATDest - 10)
	linkLocal := rule(v6.is(), v6.linkLocalNet(v6.dst), accept)
	return []chain{
		{"sources", nftables.ChainHookPrerouting, nftables.ChainPriorityRaw, nftables.ChainTypeFilter, [][]expr.Any{
			rule(fromSandboxes, verdict(expr.VerdictJump, "sandbox_sources")),
			rule(fromInternal, verdict(expr.VerdictJump, "internal_sources")),
		}},
		{name: "sandbox_sources", rules: [][]expr.Any{
			rule(hasMark(plan.SourceValid), clearMark(plan.SourceValid), accept),
			rule(localSource(), drop),
		}},
		{name: "internal_sources", rules: [][]expr.Any{
			rule(localSource(), drop),
			rule(notBehindLink(), drop),
		}},
		{"datagrams", nftables.ChainHookPrerouting, beforeDNAT, nftables.ChainTypeNAT, [][]expr.Any{
			rule(isProto(unix.IPPROTO_UDP), localDestination(), verdict(expr.VerdictJump, "datagram_sources")),
		}},
		{name: "datagram_sources", rules: [][]expr.Any{
			rule(fromLoopback(), accept),
			rule(localSource(), drop),
			rule(fromSandboxes, linkNotIn(expr.MetaKeyIIFNAME, plan.SetLAN), notBehindLink(), drop),
			rule(v4.pair(plan.SetSandboxes), notBehindLink(), drop),
			rule(v6.pair(plan.SetSandboxes), notBehindLink(), drop),
		}},
		{"guard", nftables.ChainHookInput, nftables.ChainPriorityRaw, nftables.ChainTypeFilter, [][]expr.Any{
			rule(v4.is(), loopbackNet(v4.dst), verdict(expr.VerdictGoto, "loopback")),
			rule(v4.is(), loopbackNet(v4.src), verdict(expr.VerdictGoto, "loopback")),
			rule(fromInternal, verdict(expr.VerdictJump, "internal_ports")),
		}},
		{name: "loopback", rules: [][]expr.Any{
			rule(fromSandboxes, verdict(expr.VerdictJump, "loopback_links")),
			rule(fromInternal, verdict(expr.VerdictJump, "loopback_links")),
		}},
		{name: "loopback_links", rules: [][]expr.Any{
			rule(v4.is(), loopbackNet(v4.src), drop),
			rule(notEstablished, drop),
		}},
		{name: "internal_ports", rules: [][]expr.Any{
			rule(v4.toProxy(), notEstablished, drop),
			rule(v6.toProxy(), notEstablished, drop),
		}},
		{"prerouting", nftables.ChainHookPrerouting, nftables.ChainPriorityNATDest, nftables.ChainTypeNAT, [][]expr.Any{
			rule(v4.is(), loopbackNet(v4.dst), accept),
			linkLocal,
			toPublish,
		}},
		{"output", nftables.ChainHookOutput, nftables.ChainPriorityNATDest, nftables.ChainTypeNAT, [][]expr.Any{
			rule(v6.is(), v6.load(v6.dst, reg1), equal(netip.IPv6Loopback().AsSlice()), accept),
			linkLocal,
			toPublish,
		}},
		{name: "publish", rules: publish},
		{"forward", nftables.ChainHookForward, nftables.ChainPriorityFilter, nftables.ChainTypeFilter, [][]expr.Any{
			rule(fromInternal, ctKey(expr.CtKeySTATE, expr.CtStateBitRELATED), drop),
			rule(ctKey(expr.CtKeySTATE, expr.CtStateBitESTABLISHED|expr.CtStateBitRELATED), accept),
			rule(meta(expr.MetaKeyIIFNAME, reg1), meta(expr.MetaKeyOIFNAME, reg2), lookup(plan.SetWithin), accept),
			rule(fromInternal, drop),
			rule(dnatted(), accept),
			rule(linkOf(expr.MetaKeyOIFGROUP, plan.InternalLinks), drop),
			rule(linkIn(expr.MetaKeyOIFNAME, plan.SetIsolated), drop),
			rule(ctKey(expr.CtKeySTATE, expr.CtStateBitINVALID), v4.pair(plan.SetOutbound), drop),
			rule(ctKey(expr.CtKeySTATE, expr.CtStateBitINVALID), v6.pair(plan.SetOutbound), drop),
		}},
		{"postrouting", nftables.ChainHookPostrouting, nftables.ChainPriorityNATSource, nftables.ChainTypeNAT,
			[][]expr.Any{
				rule(dnatted(), verdict(expr.VerdictJump, "returns")),
				rule(linkIn(expr.MetaKeyOIFNAME, plan.SetLinks), linkNotIn(expr.MetaKeyOIFNAME, plan.SetLAN), accept),
				rule(unprivileged(unix.IPPROTO_TCP), v4.pair(plan.SetRenumbered), v4.pair(plan.SetOutbound),
					renumber()),
				rule(unprivileged(unix.IPPROTO_UDP), v4.pair(plan.SetRenumbered), v4.pair(plan.SetOutbound),
					renumber()),
				rule(v4.pair(plan.SetOutbound), masquerade),
				rule(v6.pair(plan.SetOutbound), masquerade),
			}},
		{name: "returns", rules: [][]expr.Any{
			rule(v4.pair(plan.SetHairpin), masquerade),
			rule(v6.pair(plan.SetHairpin), masquerade),
			rule(v4.is(), loopbackNet(v4.src), linkIn(expr.MetaKeyOIFNAME, plan.SetLinks), masquerade),
		}},
	}
}

// unprivileged matches packets of a protocol with an unprivileged source port.
func unprivileged(proto byte) []expr.Any {
	first := binaryutil.BigEndian.PutUint16(firstUnprivileged)
	return rule(isProto(proto), payload(expr.PayloadBaseTransportHeader, 0, 2, reg1),
		[]expr.Any{&expr.Cmp{Op: expr.CmpOpGte, Register: reg1, Data: first}})
}

// firstUnprivileged is the first port that is not privileged.
const firstUnprivileged = 1024

// renumber masquerades with ports that outbound flows do not have.
func renumber() []expr.Any {
	return []expr.Any{
		&expr.Immediate{Register: reg1, Data: binaryutil.BigEndian.PutUint16(plan.FirstHostPort)},
		&expr.Immediate{Register: reg2, Data: binaryutil.BigEndian.PutUint16(plan.LastHostPort)},
		masqueradeTo{first: reg1, last: reg2},
	}
}

// masqueradeTo is an expression that masquerades with a port between those in two registers.
// The library does not write the flag without which the kernel ignores them (google/nftables
// 0.3.0).
type masqueradeTo struct {
	expr.Any
	first, last uint32
}

func (e masqueradeTo) write(m *messages) {
	m.text(unix.NFTA_EXPR_NAME, "masq")
	m.nest(unix.NFTA_EXPR_DATA, func() {
		m.number(unix.NFTA_MASQ_FLAGS, unix.NF_NAT_RANGE_PROTO_SPECIFIED)
		m.number(unix.NFTA_MASQ_REG_PROTO_MIN, e.first)
		m.number(unix.NFTA_MASQ_REG_PROTO_MAX, e.last)
	})
}

func rule(parts ...[]expr.Any) []expr.Any {
	var all []expr.Any
	for _, p := range parts {
		all = append(all, p...)
	}
	return all
}

func verdict(kind expr.VerdictKind, chain string) []expr.Any {
	return []expr.Any{&expr.Verdict{Kind: kind, Chain: chain}}
}

func meta(key expr.MetaKey, reg uint32) []expr.Any {
	return []expr.Any{&expr.Meta{Key: key, Register: reg}}
}

func lookup(set string) []expr.Any {
	return []expr.Any{&expr.Lookup{SourceRegister: reg1, SetName: set}}
}

func linkIn(key expr.MetaKey, set string) []expr.Any {
	return rule(meta(key, reg1), lookup(set))
}

// linkOf matches the device group of the packet's link.
func linkOf(key expr.MetaKey, group plan.LinkGroup) []expr.Any {
	return rule(meta(key, reg1), equal(binaryutil.NativeEndian.PutUint32(uint32(group))))
}

func linkNotIn(key expr.MetaKey, set string) []expr.Any {
	return rule(meta(key, reg1), []expr.Any{&expr.Lookup{SourceRegister: reg1, SetName: set, Invert: true}})
}

// fromLoopback matches the host's own packets to itself. The index of lo is 1 in every
// network namespace.
func fromLoopback() []expr.Any {
	return rule(meta(expr.MetaKeyIIF, reg1), equal(binaryutil.NativeEndian.PutUint32(1)))
}

func equal(data []byte) []expr.Any {
	return []expr.Any{&expr.Cmp{Op: expr.CmpOpEq, Register: reg1, Data: data}}
}

func payload(base expr.PayloadBase, offset, length, reg uint32) []expr.Any {
	return []expr.Any{&expr.Payload{Base: base, Offset: offset, Len: length, DestRegister: reg}}
}

func localDestination() []expr.Any {
	return rule([]expr.Any{&expr.Fib{Register: reg1, ResultADDRTYPE: true, FlagDADDR: true}},
		equal(binaryutil.NativeEndian.PutUint32(unix.RTN_LOCAL)))
}

// localSource matches packets from an address of the host.
func localSource() []expr.Any {
	return rule([]expr.Any{&expr.Fib{Register: reg1, ResultADDRTYPE: true, FlagSADDR: true}},
		equal(binaryutil.NativeEndian.PutUint32(unix.RTN_LOCAL)))
}

// hasMark matches packets with the bit in their mark.
func hasMark(bit uint32) []expr.Any {
	return rule(meta(expr.MetaKeyMARK, reg1), masked(bit), equal(binaryutil.NativeEndian.PutUint32(bit)))
}

// clearMark clears the bit in the packet's mark.
func clearMark(bit uint32) []expr.Any {
	return rule(meta(expr.MetaKeyMARK, reg1), masked(^bit),
		[]expr.Any{&expr.Meta{Key: expr.MetaKeyMARK, SourceRegister: true, Register: reg1}})
}

// masked keeps those bits of the first register.
func masked(bits uint32) []expr.Any {
	return []expr.Any{&expr.Bitwise{SourceRegister: reg1, DestRegister: reg1, Len: 4,
		Mask: binaryutil.NativeEndian.PutUint32(bits), Xor: make([]byte, 4)}}
}

// notBehindLink matches packets whose source address the host does not reach
// through the link that they came in on. In prerouting every kernel with fib
// accepts this expression.
func notBehindLink() []expr.Any {
	return rule([]expr.Any{&expr.Fib{Register: reg1, ResultOIF: true, FlagSADDR: true, FlagIIF: true,
		FlagPRESENT: true}},
		equal(make([]byte, 4)))
}

func ctKey(key expr.CtKey, bits uint32) []expr.Any {
	return rule([]expr.Any{&expr.Ct{Key: key, Register: reg1}}, masked(bits),
		[]expr.Any{&expr.Cmp{Op: expr.CmpOpNeq, Register: reg1, Data: make([]byte, 4)}})
}

// dnatted matches flows whose destination was rewritten: IPS_DST_NAT of
// linux/netfilter/nf_conntrack_common.h.
func dnatted() []expr.Any { return ctKey(expr.CtKeySTATUS, 1<<5) }

// loopbackNet matches 127.0.0.0/8 in the IPv4 address at the offset.
func loopbackNet(offset uint32) []expr.Any {
	return rule(payload(expr.PayloadBaseNetworkHeader, offset, 1, reg1), equal([]byte{127}))
}

// linkLocalNet matches fe80::/10 in the IPv6 address at the offset. The kernel
// forwards no packet with such a source, so the proxy handles these clients.
func (f family) linkLocalNet(offset uint32) []expr.Any {
	mask, network := make([]byte, f.addrLen), make([]byte, f.addrLen)
	copy(mask, []byte{0xff, 0xc0})
	copy(network, []byte{0xfe, 0x80})
	return rule(f.load(offset, reg1),
		[]expr.Any{&expr.Bitwise{SourceRegister: reg1, DestRegister: reg1, Len: f.addrLen, Mask: mask,
			Xor: make([]byte, f.addrLen)}},
		equal(network))
}

// loadProtoPort loads the transport protocol and destination port.
func loadProtoPort(protoReg, portReg uint32) []expr.Any {
	return rule(meta(expr.MetaKeyL4PROTO, protoReg), payload(expr.PayloadBaseTransportHeader, 2, 2, portReg))
}

func (f family) is() []expr.Any {
	return rule(meta(expr.MetaKeyNFPROTO, reg1), equal([]byte{f.nfproto}))
}

func (f family) load(offset, reg uint32) []expr.Any {
	return payload(expr.PayloadBaseNetworkHeader, offset, f.addrLen, reg)
}

func (f family) pair(set string) []expr.Any {
	return rule(f.is(), f.load(f.src, reg1), f.load(f.dst, f.afterAddr), lookup(set+f.suffix))
}

// toProxy matches packets to ports of the proxy.
func (f family) toProxy() []expr.Any {
	return rule(f.is(), f.load(f.dst, reg1), loadProtoPort(f.afterAddr, f.afterProto), lookup(plan.SetProxied+f.suffix))
}

// dnat looks up the loaded key in a map and rewrites the destination to the
// address, and the port if port is set, that it finds.
func (f family) dnat(name string, port bool) []expr.Any {
	nat := &expr.NAT{Type: expr.NATTypeDestNAT, Family: uint32(f.nfproto), RegAddrMin: reg1}
	if port {
		nat.RegProtoMin = f.afterAddr
	}
	return []expr.Any{&expr.Lookup{SourceRegister: reg1, DestRegister: reg1, IsDestRegSet: true, SetName: name +
		f.suffix}, nat}
}
