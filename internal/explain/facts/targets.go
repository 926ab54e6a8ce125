package facts

import (
	"net/netip"
	"slices"

	"fairlead/internal/kernel"
	"fairlead/internal/sandbox"
)

// HasContainer reports whether a container of an engine that answered has the address.
func (f Facts) HasContainer(a netip.Addr) bool {
	return slices.ContainsFunc(f.Containers, func(c sandbox.Listed) bool {
		return slices.ContainsFunc(c.Networks, func(n sandbox.OnNetwork) bool {
			return slices.Contains(n.Addresses, a)
		})
	})
}

// targets finds the targets of docker-proxies that are not addresses of a known container,
// but of a network namespace of this host: an engine that did not answer may have made them.
func (f *Facts) targets(h *kernel.Host) {
	var unknown []netip.Addr
	for _, l := range f.Listeners {
		if p, ok := l.DockerProxy(); ok && !f.HasContainer(p.To.Addr()) && !slices.Contains(unknown, p.To.Addr()) {
			unknown = append(unknown, p.To.Addr())
		}
	}
	if len(unknown) == 0 {
		return
	}
	for _, path := range h.Net().Namespaces() {
		for _, a := range addressesIn(path) {
			if slices.Contains(unknown, a) {
				f.ProxyTargets = append(f.ProxyTargets, a)
			}
		}
	}
}

// addressesIn returns the addresses of a namespace; none if it has ended.
func addressesIn(path string) (all []netip.Addr) {
	h, err := kernel.Open(path, kernel.Options{})
	if err != nil {
		return nil
	}
	defer h.Close()
	links, _ := h.Net().NetLinks() // without an answer there are none
	for _, l := range links {
		for _, p := range l.Addresses {
			all = append(all, p.Addr())
		}
	}
	return all
}
