package rules

import (
	"bytes"
	"encoding/binary"
	"slices"

	"github.com/google/nftables"
	"github.com/google/nftables/expr"
	"github.com/google/nftables/userdata"
	"golang.org/x/sys/unix"
)

// Sets returns the elements of a set in the rule's table, by the set's name.
type Sets func(name string) ([]nftables.SetElement, error)

// Decode converts a rule in a table of the family. It returns one rule, or one per
// element if the rule looks up its action in a map.
func Decode(family nftables.TableFamily, rule *nftables.Rule, sets Sets, links Links) []Rule {
	d := &decoder{family: family, sets: sets, links: links, registers: map[uint32]register{}}
	d.rule.Handle = rule.Handle
	d.rule.Comment = comment(rule.UserData)
	for _, e := range rule.Exprs {
		d.step(e)
	}
	if d.branches == nil {
		return []Rule{d.rule}
	}
	return d.branched()
}

// opaque is an expression that cannot be read.
type opaque struct {
	expr.Any
	name string
}

// Opaque returns a placeholder for an expression of which only the name is known.
func Opaque(name string) expr.Any { return opaque{name: name} }

// opaque handles an expression of which only the name is known.
func (d *decoder) opaque(name string) {
	switch name {
	case "dup", "last": // these only copy or count packets
	case "fwd", "tproxy":
		d.other(name)
	case "immediate", "nat", "redir", "masq", "reject", "queue", "synproxy", "target", "exthdr": // it may decide
		d.other(name)
		fallthrough
	default:
		clear(d.registers)
		d.unread(name)
	}
}

// unread records that the rule has a condition that is not supported. The other
// conditions still decide whether the rule can match.
func (d *decoder) unread(what string) {
	d.rule.Partial = true
	if what != "" && !slices.Contains(d.rule.Unread, what) {
		d.rule.Unread = append(d.rule.Unread, what)
	}
}

// comment returns the comment in a rule's user data, which is a list of entries
// with a type, a length and a value. The kernel does not validate it, and
// userdata.GetString panics if it is truncated.
func comment(data []byte) string {
	for len(data) >= 2 && len(data) >= 2+int(data[1]) {
		if userdata.Type(data[0]) == userdata.TypeComment {
			return string(bytes.TrimSuffix(data[2:2+int(data[1])], []byte{0}))
		}
		data = data[2+int(data[1]):]
	}
	return ""
}

// decoder evaluates a rule's expressions and tracks the content of the registers.
type decoder struct {
	family    nftables.TableFamily
	sets      Sets
	links     Links
	rule      Rule
	registers map[uint32]register
	// branches are the elements of the map that was looked up by the fields. The
	// looked-up values are in the registers from at on.
	branches []nftables.SetElement
	fields   []part
	at       uint32
	// verdicts means that the map contains verdicts, and looked is the rule up to the lookup. resolve reads
	// the map's other values into a rule.
	verdicts bool
	looked   Rule
	resolve  func(r *Rule, value []byte)
}

var native, big = binary.NativeEndian, binary.BigEndian

// register is the content of a register: a field of the packet, or a constant.
type register struct {
	field Field
	// parts are the fields in the register, if it has several or only a part of one.
	parts []part
	// what describes the content if it is not supported.
	what string
	// kindOf is the field of the link whose device group (4 bytes) or type of hardware (2
	// bytes) this is, or "".
	kindOf Field
	// width is the field's length in bytes, size the number of bytes that were
	// loaded.
	width, size int
	mask        []byte
	value       []byte
	// swapped means that the rule has converted the mark to network byte order.
	swapped bool
	// assign is the value as a function of marks, or nil if it is not one.
	assign *Assign
	// mapped means that the value comes from a map lookup.
	mapped bool
}

// isMark reports whether the register contains a mark.
func (r register) isMark() bool { return r.field == Mark || r.field == CtMark }

// name describes the content of the register.
func (r register) name() string {
	if r.field != "" {
		return string(r.field)
	}
	for _, p := range r.parts {
		if p.field == Unread {
			return p.what
		}
	}
	if len(r.parts) > 0 {
		return string(r.parts[0].field)
	}
	return r.what
}

// part is a field, or a part of one, in a register or in the key of a set.
type part struct {
	field Field
	// width and size are as in register.
	width, size int
	// native means that it is a mark in the byte order of the host.
	native bool
	// what describes a field that is Unread.
	what string
}

// slot converts both kinds of register numbers to offsets in steps of 4 bytes.
func slot(reg uint32) uint32 {
	if reg < unix.NFT_REG32_00 {
		return (reg - unix.NFT_REG_1) * 4
	}
	return reg - unix.NFT_REG32_00
}

func (d *decoder) step(e expr.Any) {
	switch e := e.(type) {
	case *expr.Meta:
		d.meta(e)
	case *expr.Payload:
		d.payload(e)
	case *expr.Ct:
		d.ct(e)
	case *expr.Exthdr:
		d.exthdr(e)
	case *expr.Fib:
		d.fib(e)
	case *expr.Bitwise:
		d.bitwise(e)
	case *expr.Byteorder:
		r := d.registers[slot(e.SourceRegister)]
		if r.swapped = r.isMark() && r.mask == nil && e.Size == 4; !r.swapped {
			r = register{what: r.name()}
		}
		d.registers[slot(e.DestRegister)] = r
	case *expr.Cmp:
		d.compare(e)
	case *expr.Range:
		if r := d.registers[slot(e.Register)]; r.mask == nil && r.parts == nil && (!r.isMark() || r.swapped) {
			d.condition(r, e.Op == expr.CmpOpNeq, Range{e.FromData, e.ToData})
		} else {
			d.unread(r.name())
		}
	case *expr.Lookup:
		d.lookup(e)
	case *expr.Immediate:
		r := register{value: e.Data}
		if len(e.Data) == 4 {
			r.assign = &Assign{Xor: native.Uint32(e.Data)}
		}
		d.registers[slot(e.Register)] = r
	case opaque:
		d.opaque(e.name)
	case *expr.Match:
		d.match(e)
	default:
		d.act(e)
	}
}
