package inspect

import (
	"cmp"
	"fmt"
	"net/netip"
	"slices"

	"fairlead/internal/kernel/netns"
	"fairlead/internal/kernel/nlutil"
	"fairlead/internal/kernel/rtnl"
	"fairlead/internal/kernel/sockdiag"
	"fairlead/internal/plan"

	"github.com/vishvananda/netlink"
	"golang.org/x/sys/unix"
)

// Inside is the state of a sandbox's network namespace, including what Fairlead has
// not configured.
type Inside struct {
	Links     []InsideLink        `json:"links"`
	Routes    []InsideRoute       `json:"routes"`
	Listeners []sockdiag.Listener `json:"listeners"`
}

// InsideLink is an interface in a sandbox.
type InsideLink struct {
	Name string `json:"name"`
	// Kind is the kind in `ip -d link`, "loopback", or "device" for physical links.
	Kind string `json:"kind"`
	Up   bool   `json:"up"`
	MTU  int    `json:"mtu"`
	MAC  string `json:"mac,omitempty"`
	// Addresses does not contain link-local addresses, which the kernel adds
	// itself.
	Addresses []netip.Prefix `json:"addresses,omitempty"`
	// LinkLocal means that the link has an IPv6 link-local address, which neighbour
	// queries need as their source.
	LinkLocal bool `json:"-"`
	// Peer is the host's end of a veth. Bridge is the bridge that Peer is a port
	// of.
	Peer   string `json:"peer,omitempty"`
	Bridge string `json:"bridge,omitempty"`
	// Owner is the endpoint that Fairlead has created the link for.
	Owner     string `json:"owner,omitempty"`
	RxBytes   uint64 `json:"rxBytes"`
	RxPackets uint64 `json:"rxPackets"`
	TxBytes   uint64 `json:"txBytes"`
	TxPackets uint64 `json:"txPackets"`
}

// InsideRoute is a route in the main table of a sandbox.
type InsideRoute struct {
	To   netip.Prefix `json:"to"`
	Via  netip.Addr   `json:"via,omitzero"`
	Link string       `json:"link,omitempty"`
	Src  netip.Addr   `json:"src,omitzero"`
}

// Inside reads the state of the sandbox at path. It finds the other ends of the
// sandbox's links on the host. It is safe for concurrent use.
func (h *Reader) Inside(path string) (Inside, error) {
	var in Inside
	reader, err := h.readOnly()
	if err != nil {
		return in, err
	}
	defer reader.rtnl.Release()
	if in.Links, err = reader.insideLinks(path); err == nil {
		in.Routes, err = reader.insideRoutes(path)
	}
	if err == nil {
		in.Listeners, err = listenersIn(h.ns, path)
	}
	if err != nil {
		return in, fmt.Errorf("inspect sandbox %s: %w", path, err)
	}
	return in, nil
}

func (h *Reader) insideLinks(path string) ([]InsideLink, error) {
	list, err := h.rtnl.Dump(path)
	if err != nil {
		return nil, err
	}
	links := make([]InsideLink, len(list))
	for i, l := range list {
		a := l.Attrs()
		links[i] = InsideLink{Name: a.Name, Kind: l.Kind(), Up: rtnl.IsUp(l), MTU: a.MTU, MAC: a.HardwareAddr.String(),
			Owner: rtnl.Owner(l)}
		if links[i].Kind == string(plan.Loopback) {
			links[i].MAC = "" // it is all zeros
		}
		if a.Statistics != nil {
			s := a.Statistics
			links[i].RxBytes, links[i].RxPackets, links[i].TxBytes, links[i].TxPackets = s.RxBytes, s.RxPackets,
				s.TxBytes, s.TxPackets
		}
		links[i].LinkLocal = slices.ContainsFunc(l.Addresses,
			func(p netip.Prefix) bool { return p.Addr().Is6() && p.Addr().IsLinkLocalUnicast() })
		links[i].Addresses = slices.DeleteFunc(l.Addresses,
			func(p netip.Prefix) bool { return p.Addr().IsLinkLocalUnicast() })
		h.otherEnd(path, l, &links[i])
	}
	return links, nil
}

// otherEnd sets Peer, Bridge and Owner of a veth whose other end is in the host's
// namespace.
func (h *Reader) otherEnd(path string, l netlink.Link, in *InsideLink) {
	if l.Type() != "veth" {
		return
	}
	// The index may be that of a link in a third namespace.
	end, err := h.rtnl.LinkByIndex("", l.Attrs().ParentIndex)
	if err != nil || end.Type() != "veth" || end.Attrs().ParentIndex != l.Attrs().Index ||
		!h.rtnl.KnownAs(path, end.Attrs().NetNsID) {
		return
	}
	in.Peer = end.Attrs().Name
	in.Bridge, _ = h.rtnl.ReadPort("", end)
	in.Owner = cmp.Or(in.Owner, rtnl.Owner(end))
}

func (h *Reader) insideRoutes(path string) ([]InsideRoute, error) {
	list, err := h.rtnl.MainRoutes(path)
	if err != nil {
		return nil, err
	}
	var routes []InsideRoute
	for _, r := range list {
		if r.Type != unix.RTN_UNICAST || r.Dst == nil {
			continue
		}
		route := InsideRoute{To: nlutil.Prefix(r.Dst.IP, r.Dst.Mask)}
		if route.To.Addr().IsLinkLocalUnicast() && r.Gw == nil {
			continue // the kernel adds it to every link
		}
		if link, err := h.rtnl.LinkByIndex(path, r.LinkIndex); err == nil {
			route.Link = link.Attrs().Name
		}
		if via, ok := netip.AddrFromSlice(r.Gw); ok {
			route.Via = via.Unmap()
		}
		if src, ok := netip.AddrFromSlice(r.Src); ok {
			route.Src = src.Unmap()
		}
		routes = append(routes, route)
	}
	return routes, nil
}

// listenersIn lists the listening sockets in the namespace at path.
func listenersIn(host *netns.Namespace, path string) ([]sockdiag.Listener, error) {
	ns, err := host.Open(path)
	if err != nil {
		return nil, err
	}
	defer ns.Close()
	return sockdiag.New(ns).Listeners()
}
