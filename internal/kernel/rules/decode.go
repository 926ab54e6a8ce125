package rules

import (
	"bytes"
	"encoding/binary"
	"net/netip"
	"slices"

	"fairlead/internal/model"

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
		d.other()
	case "immediate", "nat", "redir", "masq", "reject", "queue", "synproxy", "target": // it may be a verdict
		d.other()
		fallthrough
	default:
		clear(d.registers)
		d.rule.Partial = true
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
	fields   []register
	at       uint32
	// verdicts means that the map contains verdicts. resolve reads the map's other
	// values into a rule.
	verdicts bool
	resolve  func(r *Rule, value []byte)
}

var native, big = binary.NativeEndian, binary.BigEndian

// register is the content of a register: a field of the packet, or a constant.
type register struct {
	field Field
	// groupOf is the field of the link whose device group this is, or "".
	groupOf Field
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
	case *expr.Fib:
		field := map[bool]Field{true: DestinationType, false: SourceType}[e.FlagDADDR]
		switch {
		case e.ResultOIF && e.FlagPRESENT && e.FlagSADDR && e.FlagIIF && !e.FlagDADDR && !e.FlagOIF && !e.FlagMARK:
			field = ReturnRoute
		case !e.ResultADDRTYPE || e.FlagIIF || e.FlagOIF:
			field = ""
		}
		d.load(e.Register, field, 4, 4)
	case *expr.Bitwise:
		d.bitwise(e)
	case *expr.Byteorder:
		r := d.registers[slot(e.SourceRegister)]
		if r.swapped = r.isMark() && r.mask == nil && e.Size == 4; !r.swapped {
			r = register{}
		}
		d.registers[slot(e.DestRegister)] = r
	case *expr.Cmp:
		d.compare(e)
	case *expr.Range:
		d.condition(d.registers[slot(e.Register)], e.Op == expr.CmpOpNeq, Range{e.FromData, e.ToData})
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

// assign adds a statement that sets a mark to the content of a register.
func (d *decoder) assign(to Field, reg uint32) {
	r := d.registers[slot(reg)]
	switch {
	case r.mapped && d.branches != nil:
		before := d.resolve
		d.resolve = func(rule *Rule, value []byte) {
			if before != nil {
				before(rule, value)
			}
			a := Assign{To: to, Unknown: len(value) < 4}
			if !a.Unknown {
				a.Xor = native.Uint32(value)
			}
			rule.Assigns = append(slices.Clone(rule.Assigns), a)
		}
	case r.assign != nil:
		a := *r.assign
		a.To = to
		d.rule.Assigns = append(d.rule.Assigns, a)
	default:
		d.rule.Assigns = append(d.rule.Assigns, Assign{To: to, Unknown: true})
	}
}

// bitwise applies a mask to a register. Shifts, and operations on two registers
// that newer kernels have, come without a mask; their result is unknown.
func (d *decoder) bitwise(e *expr.Bitwise) {
	r := d.registers[slot(e.SourceRegister)]
	switch {
	case len(e.Mask) == 0:
		r = register{}
	case !zero(e.Xor):
		r.field = ""
	}
	if r.mask = e.Mask; len(e.Mask) == 4 && len(e.Xor) == 4 && r.assign != nil {
		a := r.assign.and(native.Uint32(e.Mask), native.Uint32(e.Xor))
		r.assign = &a
	} else {
		r.assign = nil
	}
	r.mapped = false
	d.registers[slot(e.DestRegister)] = r
}

// other records that the rule has an action that is not supported.
func (d *decoder) other() {
	if d.rule.Action == None {
		d.rule.Action = Other
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

func (d *decoder) compare(e *expr.Cmp) {
	r := d.registers[slot(e.Register)]
	equal := e.Op == expr.CmpOpEq || e.Op == expr.CmpOpNeq
	switch {
	case equal && r.groupOf != "" && r.mask == nil && len(e.Data) == 4:
		d.compareGroup(r, e)
	case r.field != Flags && (r.field == State || r.field == Status || r.mask != nil && zero(e.Data) &&
		e.Op == expr.CmpOpNeq):
		if r.field == "" || r.mask == nil || !zero(e.Data) || !equal {
			d.rule.Partial = true
			return
		}
		d.add(Condition{Fields: []Field{r.field}, Any: d.canonical(r, r.mask), Not: e.Op == expr.CmpOpEq})
	case equal && r.field != "" && r.mask != nil && (r.field == Flags || !prefix(r.mask) || r.isMark()):
		data := d.canonical(r, e.Data)
		d.add(Condition{Fields: []Field{r.field}, Mask: d.canonical(r, r.mask), Not: e.Op == expr.CmpOpNeq,
			In: [][]Range{{{data, data}}}})
	case equal:
		last := slices.Clone(e.Data)
		for i := range last {
			if i < len(r.mask) {
				last[i] |= ^r.mask[i]
			}
		}
		d.condition(r, e.Op == expr.CmpOpNeq, Range{e.Data, last})
	case r.mask != nil || r.isMark() && !r.swapped:
		d.rule.Partial = true
	case e.Op == expr.CmpOpGte:
		d.condition(r, false, Range{e.Data, bytes.Repeat([]byte{0xff}, len(e.Data))})
	case e.Op == expr.CmpOpGt:
		d.condition(r, true, Range{make([]byte, len(e.Data)), e.Data})
	case e.Op == expr.CmpOpLte:
		d.atMost(r, e.Data)
	case e.Op == expr.CmpOpLt:
		d.condition(r, true, Range{e.Data, bytes.Repeat([]byte{0xff}, len(e.Data))})
	default:
		d.rule.Partial = true
	}
}

// add adds a condition. A condition after a statement does not apply to that
// statement, so the statement may be executed although the condition does not
// match.
func (d *decoder) add(c Condition) {
	d.rule.Partial = d.rule.Partial || len(d.rule.Assigns) > 0
	d.rule.Conditions = append(d.rule.Conditions, c)
}

// canonical converts a mark to network byte order, as conditions store it, unless
// the rule has already done so.
func (d *decoder) canonical(r register, value []byte) []byte {
	if !r.isMark() || r.swapped || len(value) != 4 {
		return value
	}
	return big.AppendUint32(nil, native.Uint32(value))
}

// prefix reports whether all set bits of a mask are at its beginning.
func prefix(mask []byte) bool {
	ended := false
	for _, b := range mask {
		for bit := 7; bit >= 0; bit-- {
			set := b>>bit&1 == 1
			if set && ended {
				return false
			}
			ended = ended || !set
		}
	}
	return true
}

// atMost sets the end of the range that the previous condition has begun, or adds a
// range that begins at 0.
func (d *decoder) atMost(r register, last []byte) {
	if n := len(d.rule.Conditions); n > 0 && r.field != "" &&
		slices.Equal(d.rule.Conditions[n-1].Fields, []Field{r.field}) &&
		!d.rule.Conditions[n-1].Not && len(d.rule.Conditions[n-1].In) == 1 &&
		!slices.ContainsFunc(d.rule.Conditions[n-1].In[0][0].Last, func(b byte) bool { return b != 0xff }) {
		d.rule.Conditions[n-1].In[0][0].Last = d.whole(r, Range{last, last}).Last
		return
	}
	d.condition(r, false, Range{make([]byte, len(last)), last})
}

// condition adds a condition on a single field.
func (d *decoder) condition(r register, not bool, in Range) {
	if r.field == "" {
		d.rule.Partial = true
		return
	}
	d.add(Condition{Fields: []Field{r.field}, Not: not, In: [][]Range{{d.whole(r, in)}}})
}

// whole extends a range of a field's first bytes to the whole field, and converts
// link indices to names.
func (d *decoder) whole(r register, in Range) Range {
	if (r.field == InLink || r.field == OutLink) && r.width == 4 && len(in.First) >= 4 {
		name := make([]byte, linkName)
		copy(name, d.links.name(native.Uint32(in.First)))
		return Range{name, name}
	}
	if r.isMark() {
		in = Range{d.canonical(r, in.First), d.canonical(r, in.Last)}
	}
	out := Range{make([]byte, r.width), bytes.Repeat([]byte{0xff}, r.width)}
	if (r.field == InLink || r.field == OutLink) && bytes.IndexByte(in.Last, 0) >= 0 {
		clear(out.Last) // iptables includes the final NUL, so the name ends here
	}
	copy(out.First, in.First)
	copy(out.Last, in.Last)
	return out
}

// lookup adds a condition, or prepares one rule per element of a map.
func (d *decoder) lookup(e *expr.Lookup) {
	elements, err := d.sets(e.SetName)
	isCatchAll := func(e nftables.SetElement) bool { return len(e.Key) == 0 }
	if err != nil || slices.ContainsFunc(elements, isCatchAll) {
		d.rule.Partial = true
		if e.IsDestRegSet && e.DestRegister == unix.NFT_REG_VERDICT {
			d.other()
		}
		return
	}
	fields := d.concatenation(slot(e.SourceRegister), elements)
	if fields == nil && len(elements) > 0 {
		d.rule.Partial = true
	}
	if e.IsDestRegSet {
		d.rule.Partial = d.rule.Partial || d.branches != nil || len(d.rule.Assigns) > 0
		d.branches, d.fields = elements, fields
		if d.verdicts = e.DestRegister == unix.NFT_REG_VERDICT; !d.verdicts {
			d.at = slot(e.DestRegister)
			d.registers[d.at] = register{mapped: true}
		}
		if elements == nil {
			d.branches = []nftables.SetElement{}
		}
		return
	}
	if fields == nil && len(elements) > 0 { // a field that is not supported
		return
	}
	c := Condition{Not: e.Invert, In: [][]Range{}}
	for _, f := range fields {
		c.Fields = append(c.Fields, f.field)
	}
	for _, r := range ranges(elements) {
		c.In = append(c.In, d.tuple(fields, r))
	}
	if c.Fields == nil { // the set is empty
		c.Fields = []Field{Protocol}
	}
	d.add(c)
}

// concatenation returns the fields in the registers from at on, as many as the
// elements' keys have. It returns nil if one of them is not supported.
func (d *decoder) concatenation(at uint32, elements []nftables.SetElement) []register {
	if len(elements) == 0 {
		return nil
	}
	var fields []register
	for left := len(elements[0].Key); left > 0; {
		r := d.registers[at]
		if r.field == "" || r.mask != nil || r.size <= 0 {
			return nil
		}
		fields = append(fields, r)
		steps := (r.size + 3) / 4
		at += uint32(steps)
		left -= steps * 4
	}
	return fields
}

// element is an element of a set. If the set has intervals, last is the end of its
// interval.
type element struct {
	nftables.SetElement
	last []byte
}

// ranges joins the two ends of intervals. The kernel returns them as separate
// elements, in descending order, unless the key is a concatenation. The second
// element is the first key after the interval.
func ranges(elements []nftables.SetElement) []element {
	var found []element
	ends := slices.ContainsFunc(elements, func(e nftables.SetElement) bool { return e.IntervalEnd })
	list := slices.Clone(elements)
	if ends {
		slices.SortStableFunc(list, func(a, b nftables.SetElement) int { return bytes.Compare(a.Key, b.Key) })
	}
	for i, e := range list {
		last := e.Key
		switch {
		case e.IntervalEnd:
			continue
		case len(e.KeyEnd) > 0:
			last = e.KeyEnd
		case ends && i+1 < len(list):
			last = before(list[i+1].Key)
		case ends:
			last = bytes.Repeat([]byte{0xff}, len(e.Key))
		}
		found = append(found, element{e, last})
	}
	return found
}

// before returns the key minus one.
func before(key []byte) []byte {
	out := slices.Clone(key)
	for i := len(out) - 1; i >= 0; i-- {
		out[i]--
		if out[i] != 0xff {
			break
		}
	}
	return out
}

// tuple splits an element's key into the ranges of the fields.
func (d *decoder) tuple(fields []register, e element) []Range {
	var parts []Range
	at := 0
	for _, f := range fields {
		n := min(f.size, len(e.Key)-at, len(e.last)-at)
		if n < 0 {
			break
		}
		parts = append(parts, d.whole(f, Range{e.Key[at : at+n], e.last[at : at+n]}))
		at += (f.size + 3) / 4 * 4
	}
	return parts
}

// branched returns one rule per element of the map.
func (d *decoder) branched() []Rule {
	var all []Rule
	for _, e := range ranges(d.branches) {
		r := d.rule
		r.Conditions = slices.Clone(r.Conditions)
		if d.fields != nil {
			c := Condition{In: [][]Range{d.tuple(d.fields, e)}}
			for _, f := range d.fields {
				c.Fields = append(c.Fields, f.field)
			}
			r.Conditions = append(r.Conditions, c)
		}
		if v := elementVerdict(e.SetElement); d.verdicts && v != nil {
			r.verdict(v)
		} else if d.resolve != nil {
			d.resolve(&r, e.Val)
		} else {
			r.Partial = true
		}
		all = append(all, r)
	}
	return all
}

func zero(b []byte) bool { return !slices.ContainsFunc(b, func(c byte) bool { return c != 0 }) }

func portOf(b []byte) model.PortRange {
	if len(b) < 2 {
		return model.PortRange{}
	}
	return model.Port(big.Uint16(b))
}

func addressOf(b []byte, family uint32) netip.Addr {
	n := 4
	if family == unix.NFPROTO_IPV6 {
		n = 16
	}
	if len(b) < n {
		return netip.Addr{}
	}
	a, _ := netip.AddrFromSlice(b[:n])
	return a
}
