package rules

import (
	"bytes"
	"encoding/binary"
	"fmt"
	"math/bits"
	"net/netip"
	"strings"

	"fairlead/internal/model"

	"golang.org/x/sys/unix"
)

// String formats the rule as nft does.
func (r Rule) String() string {
	var parts []string
	for _, c := range r.Conditions {
		parts = append(parts, c.String())
	}
	if r.Partial {
		parts = append(parts, "…")
	}
	for _, a := range r.Assigns {
		parts = append(parts, a.String())
	}
	action := string(r.Action)
	switch {
	case r.Chain != "":
		action += " " + r.Chain
	case r.To.IsValid() && r.ToPorts != model.PortRange{}:
		action += " to " + endpoint(r.To, r.ToPorts)
	case r.To.IsValid():
		action += " to " + r.To.String()
	case r.ToPorts != model.PortRange{}:
		action += " to :" + r.ToPorts.String()
	}
	if action = strings.TrimSpace(action); action != "" {
		parts = append(parts, action)
	}
	return strings.Join(parts, " ")
}

func endpoint(a netip.Addr, ports model.PortRange) string {
	if a.Is6() {
		return "[" + a.String() + "]:" + ports.String()
	}
	return a.String() + ":" + ports.String()
}

// String formats the condition as nft does.
func (c Condition) String() string {
	var names []string
	for i, f := range c.Fields {
		name := string(f)
		if (f == Source || f == Destination) && len(c.In) > 0 {
			name = map[bool]string{true: "ip ", false: "ip6 "}[len(c.In[0][i].First) == 4] + name
		} else if f == Port || f == SourcePort {
			name = "th " + name
		}
		names = append(names, name)
	}
	var values []string
	for _, tuple := range c.In {
		var parts []string
		for i, r := range tuple {
			parts = append(parts, r.text(c.Fields[i]))
		}
		values = append(values, strings.Join(parts, " . "))
	}
	if c.Any != nil {
		values = []string{flags(c.Fields[0], c.Any)}
	}
	text := strings.Join(values, ", ")
	if len(values) > 1 {
		text = "{ " + text + " }"
	}
	if c.Not {
		text = "!= " + text
	}
	if c.Mask != nil {
		names[0] += fmt.Sprintf(" & 0x%x", c.Mask)
	}
	return strings.Join(names, " . ") + " " + text
}

// text formats a range of a field's values.
func (r Range) text(f Field) string {
	same := bytes.Equal(r.First, r.Last)
	switch f {
	case Source, Destination:
		return addressRange(r)
	case Port, SourcePort:
		p, _ := r.Ports()
		return p.String()
	case Protocol:
		for name, number := range protocols {
			if same && r.First[0] == number {
				return string(name)
			}
		}
	case Family:
		return map[byte]string{unix.NFPROTO_IPV4: "ipv4", unix.NFPROTO_IPV6: "ipv6"}[r.First[0]]
	case InLink, OutLink:
		name := unix.ByteSliceToString(r.First)
		if !same {
			name += "*"
		}
		return `"` + name + `"`
	case DestinationType, SourceType:
		if len(r.First) == 4 && binary.NativeEndian.Uint32(r.First) == unix.RTN_LOCAL {
			return "local"
		}
	}
	return fmt.Sprintf("0x%x", r.First)
}

func addressRange(r Range) string {
	if p, ok := r.Prefix(); ok {
		if p.IsSingleIP() {
			return p.Addr().String()
		}
		return p.String()
	}
	first, _ := netip.AddrFromSlice(r.First)
	last, _ := netip.AddrFromSlice(r.Last)
	return first.String() + "-" + last.String()
}

// Prefix returns the range of addresses as a prefix, and false if it is not one.
func (r Range) Prefix() (netip.Prefix, bool) {
	first, ok := netip.AddrFromSlice(r.First)
	if !ok || len(r.First) != len(r.Last) {
		return netip.Prefix{}, false
	}
	n := len(r.First) * 8
	for i := range r.First {
		if diff := r.First[i] ^ r.Last[i]; diff != 0 {
			n = i*8 + bits.LeadingZeros8(diff)
			break
		}
	}
	p := netip.PrefixFrom(first, n)
	return p, p.Masked().Addr() == first && bytes.Equal(LastOf(p), r.Last)
}

// LastOf returns the last address of a prefix.
func LastOf(p netip.Prefix) []byte {
	last := p.Masked().Addr().AsSlice()
	for i := p.Bits(); i < len(last)*8; i++ {
		last[i/8] |= 0x80 >> (i % 8)
	}
	return last
}

// Ports returns the range as ports, and false if the values are not ports.
func (r Range) Ports() (model.PortRange, bool) {
	if len(r.First) != 2 || len(r.Last) != 2 {
		return model.PortRange{}, false
	}
	return model.PortRange{First: binary.BigEndian.Uint16(r.First), Last: binary.BigEndian.Uint16(r.Last)}, true
}

// bitNames are the names of the bits of conntrack's state and status.
var bitNames = map[Field][]string{
	State:   {"invalid", "established", "related", "new", "", "", "untracked"},
	Status:  {"expected", "seen-reply", "assured", "confirmed", "snat", "dnat"},
	XTState: {"invalid", "established", "related", "new", "", "", "snat", "dnat", "untracked"},
}

func flags(f Field, mask []byte) string {
	if len(mask) != 4 {
		return fmt.Sprintf("& 0x%x != 0", mask)
	}
	n := binary.NativeEndian.Uint32(mask)
	var names []string
	for i, name := range bitNames[f] {
		if n&(1<<i) != 0 && name != "" {
			names = append(names, name)
		}
	}
	if names == nil {
		return fmt.Sprintf("& 0x%x != 0", n)
	}
	return strings.Join(names, ",")
}
