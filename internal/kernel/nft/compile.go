package nft

import (
	"fmt"
	"net"
	"net/netip"
	"slices"
	"strings"
	"time"

	"github.com/google/nftables"
	"github.com/google/nftables/expr"
	"golang.org/x/sys/unix"
)

// Theory of operation. Package plan writes each of Fairlead's tables and rules in the language of nft(8). The functions
// of this file translate the text into the expressions that the kernel gets, so that users read the rules that the
// kernel has. They know the words that these texts use, and panic on others: all words are those of the program.
//
// A rule is a list of matches and statements. A match loads fields of the packet into registers from the first one on,
// and then compares them. Each field begins at a multiple of 4 bytes. Some fields exist only in some packets: a match
// of the packet's family or protocol comes before them, if the rule does not have it yet. nft(8) does not show it.

// register returns the number of the register that begins after so many times 4 bytes.
func register(words uint32) uint32 { return unix.NFT_REG32_00 + words }

// The registers of values: of an element that a rule adds, and of a port that a rule states. They are behind the
// longest key and the longest address.
var regValue, regPort = register(4), register(8)

// ruleCompiler compiles one rule.
type ruleCompiler struct {
	words
	exprs []expr.Any
	// sets are the maps whose types matter.
	sets []*nftables.Set
	// has are the matches of the family and the protocol.
	has map[string]bool
}

// compileRule returns the expressions of a rule that may look up these maps.
func compileRule(text words, sets []*nftables.Set) []expr.Any {
	c := ruleCompiler{words: text, sets: sets, has: map[string]bool{}}
	for len(c.words) > 0 {
		if key := c.key(); key != nil {
			c.match(key)
		} else {
			c.statement()
		}
	}
	return c.exprs
}

func (c *ruleCompiler) add(all ...expr.Any) { c.exprs = append(c.exprs, all...) }

// key takes one field or several with dots between them; nil if there are none.
func (c *ruleCompiler) key() (all []field) {
	for {
		n := min(longestField, len(c.words))
		for n > 0 && fields[c.phrase(n)].load == nil {
			n--
		}
		if n == 0 {
			return all
		}
		f := fields[c.phrase(n)]
		f.name, c.words = c.phrase(n), c.words[n:]
		all = append(all, f)
		if !c.take(".") {
			return all
		}
	}
}

// load loads fields into the registers from one on, and returns the length in steps of 4 bytes.
func (c *ruleCompiler) load(key []field, to uint32) (length uint32) {
	for _, f := range key {
		if f.of != "" && !c.has[f.of] {
			c.has[f.of] = true
			c.add(compileRule(split(f.of), nil)...)
		}
	}
	for _, f := range key {
		c.add(f.load(to + length))
		length += (f.kind.Bytes + 3) / 4
	}
	return length
}

// match compiles what follows a key.
func (c *ruleCompiler) match(key []field) {
	f := key[0]
	if c.take("set") {
		c.set(f)
		return
	}
	c.load(key, reg1)
	not := c.take("!=")
	switch word := c.next(); {
	case strings.HasPrefix(word, "@"):
		c.add(&expr.Lookup{SourceRegister: reg1, SetName: word[1:], Invert: not})
	case word == "vmap":
		c.add(&expr.Lookup{SourceRegister: reg1, DestRegister: unix.NFT_REG_VERDICT, IsDestRegSet: true,
			SetName: c.name()})
	case word == "&":
		c.add(masked(valueOf(f.kind, c.next())))
		c.compare(c.next() == "!=", valueOf(f.kind, c.next()))
	case word == ">=":
		c.add(&expr.Cmp{Op: expr.CmpOpGte, Register: reg1, Data: valueOf(f.kind, c.next())})
	case f.bits:
		c.add(masked(valueOf(f.kind, word)))
		c.compare(true, make([]byte, f.kind.Bytes))
	case strings.Contains(word, "/"):
		c.prefix(netip.MustParsePrefix(word))
	default:
		if f.mask != nil {
			c.add(masked(f.mask))
		}
		c.compare(not, valueOf(f.kind, word))
		c.has[f.name+" "+word] = !not
	}
}

func (c *ruleCompiler) compare(not bool, data []byte) {
	op := expr.CmpOpEq
	if not {
		op = expr.CmpOpNeq
	}
	c.add(&expr.Cmp{Op: op, Register: reg1, Data: data})
}

// prefix compares the loaded address with a prefix. If its length is in whole bytes, only these are loaded.
func (c *ruleCompiler) prefix(p netip.Prefix) {
	address, first := c.exprs[len(c.exprs)-1].(*expr.Payload), p.Addr().AsSlice()
	if n := p.Bits() / 8; p.Bits()%8 == 0 {
		address.Len, first = uint32(n), first[:n]
	} else {
		c.add(masked(net.CIDRMask(p.Bits(), len(first)*8)))
	}
	c.compare(false, first)
}

// masked keeps those bits of the first registers.
func masked(mask []byte) expr.Any {
	return &expr.Bitwise{SourceRegister: reg1, DestRegister: reg1, Len: uint32(len(mask)), Mask: mask,
		Xor: make([]byte, len(mask))}
}

// set compiles the assignment of a constant to a field, or of some bits of a field to itself.
func (c *ruleCompiler) set(f field) {
	if from := c.key(); from != nil {
		c.load(from, reg1)
		c.expect("&")
		c.add(masked(valueOf(f.kind, c.next())))
	} else {
		c.add(&expr.Immediate{Register: reg1, Data: valueOf(f.kind, c.next())})
	}
	switch e := f.load(reg1).(type) {
	case *expr.Meta:
		e.SourceRegister = true
		c.add(e)
	case *expr.Ct:
		e.SourceRegister = true
		c.add(e)
	}
}

// statement compiles a statement other than an assignment.
func (c *ruleCompiler) statement() {
	switch word := c.next(); word {
	case "accept":
		c.add(&expr.Verdict{Kind: expr.VerdictAccept})
	case "drop":
		c.add(&expr.Verdict{Kind: expr.VerdictDrop})
	case "jump":
		c.add(&expr.Verdict{Kind: expr.VerdictJump, Chain: c.next()})
	case "goto":
		c.add(&expr.Verdict{Kind: expr.VerdictGoto, Chain: c.next()})
	case "notrack":
		c.add(&expr.Notrack{})
	case "masquerade":
		c.masquerade()
	case "dnat":
		c.dnat()
	case "update":
		c.update()
	case "reject":
		c.expect("with")
		if c.take("tcp") {
			c.expect("reset")
			c.add(&expr.Reject{Type: unix.NFT_REJECT_TCP_RST})
			return
		}
		c.expect("icmpx")
		c.expect("type")
		c.expect("port-unreachable")
		c.add(&expr.Reject{Type: unix.NFT_REJECT_ICMPX_UNREACH, Code: unix.NFT_REJECT_ICMPX_PORT_UNREACH})
	case "flow":
		c.expect("add")
		c.add(&expr.FlowOffload{Name: c.name()})
	case "comment": // that of all rules of a table
		c.next()
	default:
		panic(fmt.Sprintf("compile an nft rule: %q is not known", word))
	}
}

// masquerade compiles what follows masquerade: nothing, or a range of ports.
func (c *ruleCompiler) masquerade() {
	if !c.take("to") {
		c.add(&expr.Masq{})
		return
	}
	first, last, _ := strings.Cut(strings.TrimPrefix(c.next(), ":"), "-")
	c.add(&expr.Immediate{Register: reg1, Data: valueOf(nftables.TypeInetService, first)},
		&expr.Immediate{Register: regValue, Data: valueOf(nftables.TypeInetService, last)},
		masqueradeTo{first: reg1, last: regValue})
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

// dnat compiles the rewriting of the destination to what a map has for a key: an address, and a port if the map has
// ports or if the rule states one.
func (c *ruleCompiler) dnat() {
	nat := &expr.NAT{Type: expr.NATTypeDestNAT, Family: unix.NFPROTO_IPV4, RegAddrMin: reg1}
	address := nftables.TypeIPAddr
	if c.next() == "ip6" {
		nat.Family, address = unix.NFPROTO_IPV6, nftables.TypeIP6Addr
	}
	c.expect("to")
	c.number()
	c.expect("map")
	name := c.name()
	c.add(&expr.Lookup{SourceRegister: reg1, DestRegister: reg1, IsDestRegSet: true, SetName: name})
	of := slices.IndexFunc(c.sets, func(s *nftables.Set) bool { return s.Name == name })
	switch {
	case c.take(":"):
		c.add(&expr.Immediate{Register: regPort, Data: valueOf(nftables.TypeInetService, c.next())})
		nat.RegProtoMin = regPort
	case c.sets[of].DataType.Bytes > address.Bytes:
		nat.RegProtoMin = register(address.Bytes / 4)
	}
	c.add(nat)
}

// number compiles the key of a map: fields, a hash of fields, or a counter.
func (c *ruleCompiler) number() {
	switch {
	case c.take("jhash"):
		length := 4 * c.load(c.key(), reg1)
		h := &expr.Hash{SourceRegister: reg1, DestRegister: reg1, Length: length}
		c.expect("mod")
		h.Modulus = numberOf(c.next())
		c.expect("seed")
		h.Seed = numberOf(c.next())
		c.add(h)
	case c.take("numgen"):
		c.expect("inc")
		c.expect("mod")
		c.add(&expr.Numgen{Register: reg1, Modulus: numberOf(c.next()), Type: unix.NFT_NG_INCREMENTAL})
	default:
		c.load(c.key(), reg1)
	}
}

// update compiles the statement that adds an element to a map, or extends its time.
func (c *ruleCompiler) update() {
	to := &expr.Dynset{SrcRegKey: reg1, SrcRegData: regValue, SetName: c.name(), Operation: unix.NFT_DYNSET_OP_UPDATE}
	c.expect("{")
	key := c.key()
	c.expect("timeout")
	to.Timeout, _ = time.ParseDuration(c.next())
	c.expect(":")
	c.load(c.key(), regValue) // first, because its matches need the first register
	c.load(key, reg1)
	c.expect("}")
	c.add(to)
}
