package rules_test

import (
	"errors"
	"fmt"
	"net/netip"
	"slices"
	"strings"
	"testing"

	"fairlead/internal/kernel/rules"
	"fairlead/internal/model"

	"github.com/google/nftables"
	"github.com/google/nftables/expr"
	"github.com/google/nftables/xt"
)

// input returns the bytes of a fuzzer, followed by zeros.
type input []byte

func (in *input) byte() (b byte) {
	if len(*in) > 0 {
		b, *in = (*in)[0], (*in)[1:]
	}
	return b
}

func (in *input) bytes(most int) []byte {
	n := min(int(in.byte())%(most+1), len(*in))
	b := slices.Clone((*in)[:n])
	*in = (*in)[n:]
	return b
}

func (in *input) word() uint32 { return uint32(in.byte()) }

// expression returns an expression as the library reads it from the kernel, with
// any values.
func (in *input) expression() expr.Any {
	unknown := xt.Unknown(in.bytes(64))
	switch in.byte() % 14 {
	case 0:
		return &expr.Meta{Key: expr.MetaKey(in.word()), Register: in.word()}
	case 1:
		return &expr.Payload{DestRegister: in.word(), Base: expr.PayloadBase(in.word()), Offset: in.word(),
			Len: in.word()}
	case 2:
		return &expr.Ct{Key: expr.CtKey(in.word()), Register: in.word()}
	case 3:
		return &expr.Fib{Register: in.word(), ResultADDRTYPE: in.byte() > 9, FlagDADDR: in.byte() > 9}
	case 4:
		return &expr.Bitwise{SourceRegister: in.word(), DestRegister: in.word(), Len: in.word(), Mask: in.bytes(20),
			Xor: in.bytes(20)}
	case 5:
		return &expr.Cmp{Op: expr.CmpOp(in.word() % 7), Register: in.word(), Data: in.bytes(20)}
	case 6:
		return &expr.Range{Op: expr.CmpOp(in.word() % 2), Register: in.word(), FromData: in.bytes(20),
			ToData: in.bytes(20)}
	case 7:
		return &expr.Lookup{SourceRegister: in.word(), DestRegister: in.word(), IsDestRegSet: in.byte() > 99,
			SetName: fmt.Sprint(in.byte() % 3), Invert: in.byte() > 99}
	case 8:
		return &expr.Immediate{Register: in.word(), Data: in.bytes(20)}
	case 9:
		return &expr.Match{Name: "multiport", Info: &unknown}
	case 10:
		return &expr.Target{Name: "DNAT", Info: &xt.NatRange2{NatRange: xt.NatRange{Flags: uint(in.word()),
			MinIP: in.bytes(20), MinPort: uint16(in.word())}}}
	case 11:
		return &expr.NAT{Type: expr.NATType(in.word() % 2), Family: in.word(), RegAddrMin: in.word(),
			RegAddrMax: in.word(), RegProtoMin: in.word(), RegProtoMax: in.word()}
	case 12:
		return &expr.Verdict{Kind: expr.VerdictKind(int64(in.byte()) - 8), Chain: "c"}
	}
	return &expr.Redir{RegisterProtoMin: in.word(), RegisterProtoMax: in.word()}
}

// FuzzDecode decodes rules with any expressions, sets and user data, formats them,
// and follows a packet through them.
func FuzzDecode(f *testing.F) {
	f.Add([]byte{3, 'a', 'b', 'c'}, []byte{0, 200, 'x'})
	f.Add([]byte{}, []byte{0, 2, 'x', 0})
	f.Add([]byte("\x00\x01\x01\x10\x02\x02\x07\x01\x01\xff1\x00"), []byte{7, 0, 0, 1})
	f.Fuzz(func(t *testing.T, data, user []byte) {
		in := input(data)
		sets := func(name string) ([]nftables.SetElement, error) {
			var all []nftables.SetElement
			for range in.byte() % 4 {
				all = append(all, nftables.SetElement{Key: in.bytes(20), KeyEnd: in.bytes(20), Val: in.bytes(20),
					IntervalEnd: in.byte() > 99})
			}
			if name == "0" {
				return nil, errors.New("unreadable")
			}
			return all, nil
		}
		links := rules.Links{{Name: "link", Index: uint32(in.byte() % 2), Group: uint32(in.byte() % 2)}}
		rule := &nftables.Rule{UserData: user}
		for range in.byte() % 8 {
			rule.Exprs = append(rule.Exprs, in.expression())
		}
		c := rules.Chain{Table: "ip o", Name: "c", Hook: "input", Type: "filter",
			Rules: rules.Decode(nftables.TableFamilyIPv4, rule, sets, links)}
		for _, r := range c.Rules {
			_ = r.String()
		}
		rules.Ruleset{c}.Filter("input", rules.Packet{Proto: model.TCP, To: netip.MustParseAddrPort("192.0.2.1:80"),
			Local: true})
	})
}

// FuzzSaved parses possible output of iptables-legacy-save.
func FuzzSaved(f *testing.F) {
	f.Add("*filter\n:INPUT DROP [0:0]\n-A INPUT -p tcp -m tcp --dport 22 -m comment --comment \"a \\\" b\" -j ACCEPT\nCOMMIT\n")
	f.Add("*nat\n:x\n:PREROUTING ACCEPT\n-A PREROUTING ! -i lo+ -p udp --dports 1,2:3 -j DNAT --to-destination [fd00::2]:80-90\n-A\n:\n*\n-A x -s\n")
	f.Fuzz(func(t *testing.T, text string) {
		for _, family := range []string{"ip", "ip6"} {
			for _, c := range rules.Saved(family, text) {
				for _, r := range c.Rules {
					_ = r.String()
				}
			}
			rules.Saved(family, text).Filter("input",
				rules.Packet{Proto: model.TCP, To: netip.MustParseAddrPort("192.0.2.1:80"), Local: true})
		}
	})
}

// TestJumpsEnd follows a packet through chains with so many jumps that not every
// path through them can be followed.
func TestJumpsEnd(t *testing.T) {
	var text strings.Builder
	text.WriteString("*filter\n:INPUT ACCEPT [0:0]\n")
	for i := range 16 {
		fmt.Fprintf(&text, ":c%d - [0:0]\n", i)
	}
	for range 8 {
		text.WriteString("-A INPUT -j c0\n")
		for i := range 15 {
			fmt.Fprintf(&text, "-A c%d -j c%d\n", i, i+1)
		}
	}
	text.WriteString("-A INPUT -j DROP\n")
	v := rules.Saved("ip", text.String()).Filter("input",
		rules.Packet{Proto: model.TCP, To: netip.MustParseAddrPort("192.0.2.1:80"), Local: true})
	if v.Certain {
		t.Errorf("the verdict is certain: %s", v.Action)
	}
}
