package virtual

import "net/netip"

// index finds links without a look at each: a host can have a thousand links, and hundreds of virtual addresses. It is
// replaced when a link changes.
type index struct {
	names map[string]*link
	// owners are the links that have an address, and at the prefixes with which they have it.
	owners map[netip.Addr]owned
	// subnets are the addresses of links by their subnets, and bits the lengths of these.
	subnets map[netip.Prefix][]owned
	bits    map[int]bool
}

// owned is an address of a link.
type owned struct {
	link *link
	at   netip.Prefix
}

func newIndex(links map[int]*link) *index {
	x := &index{names: map[string]*link{}, owners: map[netip.Addr]owned{}, subnets: map[netip.Prefix][]owned{},
		bits: map[int]bool{}}
	for _, l := range links {
		if other := x.names[l.Name]; other == nil || l.better(other) {
			x.names[l.Name] = l
		}
		for _, a := range l.addresses {
			o := owned{l, a}
			if other, known := x.owners[a.Addr()]; !known || l.Index < other.link.Index {
				x.owners[a.Addr()] = o
			}
			x.subnets[a.Masked()] = append(x.subnets[a.Masked()], o)
			x.bits[a.Bits()] = true
		}
	}
	return x
}

// find returns the link with the name or, if the name is empty, the best one with an address in the subnet of p; nil
// if there is none. Either subnet may be the larger one, if each has the other's address.
func (x *index) find(p netip.Prefix, name string) (found *link) {
	if name != "" {
		return x.names[name]
	}
	for bits := range x.bits {
		subnet, err := p.Addr().Prefix(bits)
		if err != nil { // of the other family
			continue
		}
		for _, o := range x.subnets[subnet] {
			if p.Contains(o.at.Addr()) && (found == nil || o.link.better(found)) {
				found = o.link
			}
		}
	}
	return found
}
