package nft

import (
	"fmt"

	"fairlead/internal/kernel/nlutil"
	"fairlead/internal/model"
	"fairlead/internal/plan"

	"github.com/google/nftables"
	"github.com/google/nftables/binaryutil"
	"github.com/google/nftables/expr"
	"golang.org/x/sys/unix"
)

func serviceTable() *nftables.Table {
	return &nftables.Table{Name: plan.ServicesTable, Family: nftables.TableFamilyINet}
}

// The flags of TCP (RFC 9293), as in the 14th byte of its header.
const (
	tcpFin = 0x01
	tcpSyn = 0x02
	tcpRst = 0x04
	tcpAck = 0x10
)

// sharedSets returns the maps and sets that all services of the table share.
func sharedSets() []*nftables.Set {
	concat := nftables.MustConcatSetType
	proto, port := nftables.TypeInetProto, nftables.TypeInetService
	var sets []*nftables.Set
	for _, f := range families {
		for name, key := range map[string]nftables.SetDatatype{
			plan.MapServices:   concat(f.addrType, proto, port),
			plan.MapSourceNAT:  concat(f.addrType, proto, f.addrType, port, port),
			plan.MapPersistent: concat(f.addrType, proto, f.addrType, port, port),
			plan.SetFrontends:  concat(f.addrType, proto, port),
		} {
			s := &nftables.Set{Table: serviceTable(), Name: name + f.suffix, KeyType: key, Concatenation: true}
			if name != plan.SetFrontends {
				s.IsMap, s.DataType, s.Counter = true, nftables.TypeVerdict, name != plan.MapPersistent
			}
			sets = append(sets, s)
		}
	}
	return sets
}

// serviceChains returns the skeleton's chains; each rule is the netlink form of
// the line at the same place of plan.ServiceTableText.
func serviceChains() []chain {
	var mapping [][]expr.Any
	translated := [][]expr.Any{rule(ctKey(expr.CtKeySTATE, expr.CtStateBitESTABLISHED|expr.CtStateBitRELATED),
		verdict(expr.VerdictAccept, ""))}
	opened := rule(ctKey(expr.CtKeySTATE, expr.CtStateBitNEW), dnatted(), verdict(expr.VerdictJump, "opened"))
	for _, f := range families {
		frontend := rule(f.is(), f.load(f.dst, reg1), loadProtoPort(f.afterAddr, f.afterProto))
		mapping = append(mapping, rule(frontend, verdictIn(plan.MapServices+f.suffix)))
		translated = append(translated, rule(ctKey(expr.CtKeySTATE, expr.CtStateBitINVALID), isProto(unix.IPPROTO_TCP),
			frontend, lookup(plan.SetFrontends+f.suffix), resetTCP()))
	}
	afterMapping := nftables.ChainPriorityRef(*nftables.ChainPriorityNATDest + 1)
	return []chain{
		{"prerouting", nftables.ChainHookPrerouting, nftables.ChainPriorityNATDest, nftables.ChainTypeNAT, mapping},
		{"output", nftables.ChainHookOutput, nftables.ChainPriorityNATDest, nftables.ChainTypeNAT, mapping},
		{"translated", nftables.ChainHookPrerouting, afterMapping, nftables.ChainTypeFilter,
			append(translated, opened)},
		{"translated-local", nftables.ChainHookOutput, afterMapping, nftables.ChainTypeFilter, [][]expr.Any{opened}},
		{"postrouting", nftables.ChainHookPostrouting, nftables.ChainPriorityNATSource, nftables.ChainTypeNAT,
			openedTo(dnatted(), plan.MapSourceNAT)},
		{name: "opened", rules: openedTo(nil, plan.MapPersistent)},
		{name: "masqueraded", rules: [][]expr.Any{{&expr.Masq{}}}},
	}
}

func isProto(number byte) []expr.Any {
	return rule(meta(expr.MetaKeyL4PROTO, reg1), equal([]byte{number}))
}

// verdictIn looks up the loaded key in the map and applies the verdict found.
func verdictIn(name string) []expr.Any {
	return []expr.Any{&expr.Lookup{SourceRegister: reg1, DestRegister: unix.NFT_REG_VERDICT, IsDestRegSet: true,
		SetName: name}}
}

func resetTCP() []expr.Any { return []expr.Any{&expr.Reject{Type: unix.NFT_REJECT_TCP_RST}} }

// serviceRules returns the rules of a service's chain; each is the netlink form
// of the line at the same place of plan.NFTService's Rules.
func serviceRules(s plan.NFTService) [][]expr.Any {
	if len(s.Ring) == 0 {
		if s.Proto == model.TCP {
			return [][]expr.Any{rule(isProto(unix.IPPROTO_TCP), resetTCP())}
		}
		return [][]expr.Any{{&expr.Reject{Type: unix.NFT_REJECT_ICMPX_UNREACH,
			Code: unix.NFT_REJECT_ICMPX_PORT_UNREACH}}}
	}
	var rules [][]expr.Any
	if s.Proto == model.TCP && !s.Hashes() {
		rules = append(rules, rule(isProto(unix.IPPROTO_TCP), tcpFlags(tcpFin|tcpSyn|tcpRst|tcpAck, tcpSyn),
			resetTCP()))
	}
	f := familyOf(s)
	proto := isProto(nlutil.Protocols[s.Proto])
	if s.Remembers() {
		client := []expr.Any{&expr.Lookup{SourceRegister: reg1, DestRegister: regReal, IsDestRegSet: true,
			SetName: s.Clients()}}
		rules = append(rules, rule(proto, f.is(), f.load(f.src, reg1), client, f.toClients(s)))
	}
	return append(rules, rule(proto, f.choose(s), f.toReal(s)))
}

// keepRule is the netlink form of plan.NFTService's KeepRule.
func keepRule(s plan.NFTService) []expr.Any {
	f := familyOf(s)
	data := f.load(f.dst, reg2)
	if f.nfproto == unix.NFPROTO_IPV4 && !s.KeepsPort() {
		// The second register begins at the fifth of 4 bytes.
		data = rule(isProto(nlutil.Protocols[s.Proto]), data,
			payload(expr.PayloadBaseTransportHeader, 2, 2, unix.NFT_REG32_04+f.addrLen/4))
	}
	return rule(f.is(), data, f.load(f.src, reg1),
		[]expr.Any{&expr.Dynset{SrcRegKey: reg1, SrcRegData: reg2, SetName: s.Clients(),
			Operation: unix.NFT_DYNSET_OP_UPDATE, Timeout: s.Persistence}})
}

// The registers for the choice of a real server: the third has the real server,
// and the last 4 bytes of the fourth have the bucket.
const (
	regReal   = unix.NFT_REG_3
	regBucket = unix.NFT_REG32_15
)

// choose computes the bucket and looks up its real server.
func (f family) choose(s plan.NFTService) []expr.Any {
	var bucket []expr.Any
	mod := uint32(len(s.Ring))
	switch s.Scheduler.Traits().Hashes {
	case model.FullKey:
		// Every field of a concatenation is padded to 4 bytes.
		bucket = rule(f.is(), f.load(f.src, reg1), payload(expr.PayloadBaseTransportHeader, 0, 2, f.afterAddr),
			hash(f.addrLen+4, mod))
	case model.ClientKey:
		bucket = rule(f.is(), f.load(f.src, reg1), hash(f.addrLen, mod))
	default:
		bucket = []expr.Any{&expr.Numgen{Register: regBucket, Modulus: mod, Type: unix.NFT_NG_INCREMENTAL}}
	}
	return rule(bucket, []expr.Any{&expr.Lookup{SourceRegister: regBucket, DestRegister: regReal, IsDestRegSet: true,
		SetName: s.Reals()}})
}

func hash(length, mod uint32) []expr.Any {
	return []expr.Any{&expr.Hash{SourceRegister: reg1, DestRegister: regBucket, Length: length, Modulus: mod,
		Seed: plan.HashSeed}}
}

// toReal rewrites the destination to the real server that was found.
func (f family) toReal(s plan.NFTService) []expr.Any {
	nat := &expr.NAT{Type: expr.NATTypeDestNAT, Family: uint32(f.nfproto), RegAddrMin: regReal}
	if !s.KeepsPort() {
		// The third register begins at the ninth of 4 bytes.
		nat.RegProtoMin = unix.NFT_REG32_08 + f.addrLen/4
	}
	return []expr.Any{nat}
}

// clientsSet returns the map of clients. It has no size: a map that rules write
// to then has room for 65,535 elements. For a stated size the kernel would
// allocate the memory at once.
func clientsSet(s plan.NFTService) *nftables.Set {
	set := &nftables.Set{Table: serviceTable(), Name: s.Clients(), IsMap: true, KeyType: familyOf(s).addrType,
		DataType: realType(s), Dynamic: true, HasTimeout: true}
	if s.ClientsPort() != 0 {
		set.DataType = familyOf(s).addrType
	}
	return set
}

// toClients rewrites the destination to the real server that was recorded for the
// client.
func (f family) toClients(s plan.NFTService) []expr.Any {
	p := s.ClientsPort()
	if p == 0 {
		return f.toReal(s)
	}
	return []expr.Any{&expr.Immediate{Register: reg1, Data: port(p)[:2]},
		&expr.NAT{Type: expr.NATTypeDestNAT, Family: uint32(f.nfproto), RegAddrMin: regReal, RegProtoMin: reg1,
			Specified: true}}
}

// realsSet returns the service's map of buckets to real servers.
func realsSet(s plan.NFTService) *nftables.Set {
	return &nftables.Set{Table: serviceTable(), Name: s.Reals(), IsMap: true, KeyType: nftables.TypeInteger,
		KeyByteOrder: binaryutil.NativeEndian,
		DataType:     realType(s), Size: uint32(len(s.Ring))}
}

func realType(s plan.NFTService) nftables.SetDatatype {
	f := familyOf(s)
	if s.KeepsPort() {
		return f.addrType
	}
	return nftables.MustConcatSetType(f.addrType, nftables.TypeInetService)
}

// serviceComment returns the comment of the rules in a service's chain: the mark,
// and the settings that the rules depend on.
func serviceComment(s plan.NFTService) string {
	return fmt.Sprintf("%s: %s %s %d %s", plan.Mark, s.Proto, s.Scheduler, len(s.Ring), s.Persistence)
}
