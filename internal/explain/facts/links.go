package facts

import (
	"net/netip"
	"slices"

	"fairlead/internal/kernel/inspect"
)

// LinkTo returns the link of the host's route to an address: the one with the longest
// prefix among the main table's routes and the links' subnets. It is "" if none matches.
func (f Facts) LinkTo(a netip.Addr) string {
	best, link := -1, ""
	for _, l := range f.Links {
		for _, p := range l.Addresses {
			if p.Contains(a) && p.Bits() > best {
				best, link = p.Bits(), l.Name
			}
		}
	}
	for _, r := range f.Routes {
		if r.To.Contains(a) && r.To.Bits() > best {
			best, link = r.To.Bits(), r.Link
		}
	}
	return link
}

// LinkWith returns the link that has the address; "" if none has it.
func (f Facts) LinkWith(a netip.Addr) string {
	i := slices.IndexFunc(f.Links, func(l inspect.InsideLink) bool {
		return slices.ContainsFunc(l.Addresses, func(p netip.Prefix) bool { return p.Addr() == a })
	})
	if i < 0 {
		return ""
	}
	return f.Links[i].Name
}
