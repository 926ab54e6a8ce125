package hostview

import (
	"context"
	"errors"
	"fmt"
	"net/netip"
	"slices"

	"fairlead/internal/explain/facts"
	"fairlead/internal/explain/flow"
	"fairlead/internal/kernel/inspect"
	"fairlead/internal/kernel/netns"
	"fairlead/internal/kernel/rtnl"
	"fairlead/internal/kernel/sockdiag"
	"fairlead/internal/sandbox"
)

// ProxyTarget implements flow.Ports.
func (w *World) ProxyTarget(l sockdiag.Listener) (netip.AddrPort, bool) {
	p, ok := facts.Of(l).DockerProxy()
	return p.To, ok
}

// MinTTL implements flow.Ports. It opens the socket of the process for a moment, to read
// its option. It returns 0 if the process has closed it. It reads the descriptors of each
// process only once.
func (w *World) MinTTL(l sockdiag.Listener, v4 bool) int {
	of, _ := w.descriptors.of(l.Process.PID, func() (sockdiag.Descriptors, error) {
		return sockdiag.DescriptorsOf(l.Process.PID), nil
	})
	return of.MinTTL(l, v4)
}

// SocketFilters implements flow.Ports. It reads the programs of each cgroup only once.
func (w *World) SocketFilters(l sockdiag.Listener) ([]string, error) {
	return w.filters.of(l.CgroupID, func() ([]string, error) { return inspect.SocketFilters(l.CgroupID) })
}

// Holder implements flow.Namespaces. It prefers a namespace that is linked to the host.
func (w *World) Holder(a netip.Addr) (netns string, linked, ok bool) {
	for _, path := range w.paths[1:] {
		links, err := w.Links(path)
		if err != nil || !slices.ContainsFunc(links, func(l rtnl.NetLink) bool {
			return flow.End{Netns: path, NetLink: l}.Has(a)
		}) {
			continue
		}
		if w.linked(path, map[string]bool{}) {
			return path, true, true
		}
		if !ok {
			netns, ok = path, true
		}
	}
	return netns, false, ok
}

// linked reports whether a namespace is linked to the host, also through other namespaces. Those in seen are not
// asked again.
func (w *World) linked(netns string, seen map[string]bool) bool {
	if seen[netns] || netns == "" {
		return netns == ""
	}
	seen[netns] = true
	links, _ := w.Links(netns)
	return slices.ContainsFunc(links, func(l rtnl.NetLink) bool {
		end, ok := w.Peer(netns, l)
		return ok && w.linked(end.Netns, seen)
	})
}

// Find implements flow.Namespaces.
func (w *World) Find(name string) (string, error) {
	if path, ok := w.opt.Sandboxes[name]; ok {
		return w.known(path)
	}
	s, err := w.opt.Finder.Resolve(context.Background(), name)
	if errors.Is(err, sandbox.ErrHost) {
		return "", nil
	}
	if err != nil {
		return "", err
	}
	return w.known(s.Path)
}

// known returns the World's path of the namespace at another path.
func (w *World) known(path string) (string, error) {
	ns, err := netns.Open(path)
	if err != nil {
		return "", err
	}
	defer ns.Close()
	want, err := inode(ns.File())
	if err != nil {
		return "", err
	}
	for _, p := range w.paths {
		if w.spaces[p].id == want {
			return p, nil
		}
	}
	return "", fmt.Errorf("the namespace at %s no longer exists", path)
}

// IsLocal reports whether the host has an address.
func (w *World) IsLocal(a netip.Addr) bool {
	links, err := w.Links("")
	return a.IsLoopback() || err == nil &&
		slices.ContainsFunc(links, func(l rtnl.NetLink) bool { return flow.End{NetLink: l}.Has(a) })
}
