package pool

import (
	"net/netip"
	"path"
	"slices"
	"strings"

	"fairlead/internal/model"
)

// HasSelector reports whether the service has a selector.
func HasSelector(v model.VirtualService) bool {
	return slices.ContainsFunc(v.Reals, func(r model.RealServer) bool { return !r.Select.IsZero() })
}

// Sandboxes are the attached sandboxes, which can be real servers.
type Sandboxes struct {
	all    []attachedSandbox
	byAddr map[netip.Addr]int
	byName map[string]bool
}

// attachedSandbox is an attachment with its addresses and its container.
type attachedSandbox struct {
	model.Attachment
	addrs     []netip.Addr
	container Container
}

// NewSandboxes returns the attachments whose endpoints exist, sorted by name. known are
// the endpoints with their leased addresses, as far as these are known, and containers
// the containers by the attachments' references.
func NewSandboxes(attachments []model.Attachment, endpoints, known []model.Endpoint,
	containers map[string]Container) Sandboxes {
	s := Sandboxes{byAddr: map[netip.Addr]int{}, byName: map[string]bool{}}
	leased := make(map[string][]netip.Addr, len(endpoints))
	for _, e := range known {
		leased[e.Name] = e.AllAddresses()
	}
	for _, e := range endpoints {
		s.byName[e.Name] = true
		if addrs := e.AllAddresses(); len(addrs) > 0 && len(leased[e.Name]) == 0 {
			leased[e.Name] = addrs
		}
	}
	for _, a := range attachments {
		if s.byName[a.Name] {
			s.all = append(s.all, attachedSandbox{a, leased[a.Name], containers[a.Ref]})
		}
	}
	slices.SortFunc(s.all, func(a, b attachedSandbox) int { return strings.Compare(a.Name, b.Name) })
	for i, b := range s.all {
		for _, addr := range b.addrs {
			s.byAddr[addr] = i
		}
	}
	return s
}

// Alive reports whether the endpoint exists.
func (s Sandboxes) Alive(endpoint string) bool { return s.byName[endpoint] }

// Owns returns the sandbox that has the address.
func (s Sandboxes) Owns(addr netip.Addr) (Found, bool) {
	i, known := s.byAddr[addr]
	if !known {
		return Found{}, false
	}
	return s.all[i].found(addr), true
}

func (b attachedSandbox) found(addr netip.Addr) Found {
	return Found{b.Name, b.Ref, addr, b.container.Leaves(), b.container.RunsOn, b.container.Health}
}

// Selects returns what a selector finds, one attachment of each sandbox.
func (s Sandboxes) Selects(by model.Select, v4 bool) []Found {
	var all []Found
	taken := map[string]bool{}
	for _, b := range s.all {
		i := slices.IndexFunc(b.addrs, func(a netip.Addr) bool { return a.Is4() == v4 })
		if i < 0 || taken[b.Ref] || !b.fits(by) {
			continue
		}
		taken[b.Ref] = true
		all = append(all, b.found(b.addrs[i]))
	}
	return all
}

// fits reports whether the sandbox matches all parts of the selector.
func (b attachedSandbox) fits(by model.Select) bool {
	if by.Network != "" && by.Network != b.Network {
		return false
	}
	if by.Name != "" && !matches(by.Name, b.Name) && !matches(by.Name, b.container.Name) {
		_, name, _ := strings.Cut(b.Ref, ":")
		if !matches(by.Name, name) {
			return false
		}
	}
	if by.Label == "" {
		return true
	}
	key, value, valued := strings.Cut(by.Label, "=")
	have, there := b.container.Labels[key]
	return there && (!valued || have == value)
}

func matches(pattern, name string) bool {
	ok, _ := path.Match(pattern, name) // the pattern is valid
	return ok && name != ""
}
