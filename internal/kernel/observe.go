package kernel

import (
	"errors"
	"fmt"
	"net/netip"
	"slices"
	"strings"

	"fairlead/internal/plan"

	"github.com/vishvananda/netlink"
	"github.com/vishvananda/netlink/nl"
	"golang.org/x/sys/unix"
)

// Observe returns the observed state of the objects of two plans: should, which
// was applied last, and want, which is desired. It adds every other object in the
// host's namespace that has Fairlead's mark. It does not read listeners and
// reservations: these belong to the proxy.
func (h *Host) Observe(should, want plan.Plan) (plan.Plan, error) {
	h.Release() // the cached state may be outdated
	defer h.Release()
	have, err := h.readTable()
	if err != nil {
		return nil, err
	}
	services, err := h.readServices(want, should)
	if err != nil {
		return nil, err
	}
	have = append(have, services...)
	h.bpf.Lock()
	defer h.bpf.Unlock()
	mappings, err := h.readMappings(nil)
	if err != nil {
		return nil, fmt.Errorf("read the eBPF table: %w", err)
	}
	have = append(have, mappings...)
	known := map[string]bool{}
	for _, o := range slices.Concat(should, want) {
		if known[o.Key()] {
			continue
		}
		found, err := h.read(o)
		if err != nil {
			return nil, fmt.Errorf("read %s: %w", o.Key(), err)
		}
		if found != nil {
			known[o.Key()] = true
			have = append(have, found)
		}
	}
	// A damaged link that is wanted is repaired, not removed.
	for _, o := range want {
		known[o.Key()] = true
	}
	hooks, err := h.leftoverBindHooks(known)
	if err != nil {
		return nil, fmt.Errorf("list workloads: %w", err)
	}
	tables, err := h.leftoverNoTrack(known)
	if err != nil {
		return nil, err
	}
	guard, err := h.leftoverGuard(known)
	if err != nil {
		return nil, err
	}
	filters, err := h.leftoverFilters(known)
	if err != nil {
		return nil, err
	}
	tables = append(append(tables, guard...), filters...)
	balanced, err := h.leftoverServices(known)
	if err != nil {
		return nil, err
	}
	leftovers, err := h.leftovers(known)
	return slices.Concat(have, hooks, tables, balanced, leftovers), err
}

// read returns the object as the kernel has it, nil when it is missing.
func (h *Host) read(o plan.Object) (plan.Object, error) {
	var found plan.Object
	var err error
	switch o := o.(type) {
	case plan.Link:
		found, err = h.readLink(o)
	case plan.SubLink:
		found, err = h.readSubLink(o)
	case plan.Address:
		found, err = h.readAddress(o)
	case plan.Route:
		found, err = h.readRoute(o)
	case plan.Shaper:
		found, err = h.readShaper(o)
	case plan.Device:
		found, err = h.readDevice(o)
	case plan.IPoIB:
		found, err = h.readIPoIB(o)
	case plan.StaleLink:
		found, err = h.readStaleLink(o)
	case plan.Tunnel:
		found, err = h.readTunnel(o)
	case plan.Forwarding:
		found, err = h.readForwarding(o)
	case plan.Neighbor:
		found, err = h.readNeighbor(o)
	case plan.WireGuard:
		found, err = h.readWireGuard(o)
	case plan.WireGuardPeer:
		found, err = h.readWireGuardPeer(o)
	case plan.NoTrack:
		found, err = h.readNoTrack(o)
	case plan.VirtualAddress:
		found, err = h.readVirtual(o)
	case plan.Guard:
		found, err = h.readGuard(o)
	case plan.IPVSService:
		found, err = h.readIPVS(o)
	case plan.IPVSTable, plan.IPVSMember:
		found, err = h.readOfIPVSTable(o)
	case plan.LocalRoute:
		found, err = h.readLocalRoute(o)
	case plan.FilterChain:
		found, err = h.readFilter(o)
	case plan.Sysctl:
		o.Value, err = h.ReadSysctl(o)
		found = o
	case plan.Uplinks, plan.LocalRealEgress, plan.FastPath, plan.Ingress, plan.LocalClients, plan.BindHooks:
		found, err = h.readBPF(o)
	}
	if err != nil && (absent(err) || errors.Is(err, ErrNoSetting)) {
		return nil, nil
	}
	return found, err
}

// readLink returns the link with the properties that the kernel has. It returns
// nil if the link is missing or not Fairlead's, or if an end of it is down.
func (h *Host) readLink(want plan.Link) (plan.Object, error) {
	handle, link, err := h.link(want.Netns, want.Name)
	if err != nil {
		return nil, err
	}
	attrs := link.Attrs()
	if want.Kind == plan.Loopback {
		return orNil(want, isUp(link)), nil
	}
	if !isUp(link) || !ours(link) || !h.samePeer(link, want) {
		return nil, nil
	}
	found := want
	found.MTU = attrs.MTU
	found.Owner = strings.TrimPrefix(attrs.Alias, plan.Mark+":")
	found.Master, found.Hairpin = h.readPort(handle, link)
	if want.MAC != "" {
		found.MAC = attrs.HardwareAddr.String()
	}
	if found.IPv6, err = h.readIPv6(want, want.IPv6); err != nil {
		return nil, err
	}
	switch want.Kind {
	case plan.Bridge:
		found.Filter, err = h.bridgeFilter(link)
	case plan.Veth:
		if !want.Inside {
			return h.readPeer(found, want)
		}
	}
	return found, err
}

// readPeer adds the differences at the far end of a veth. It returns nil if the
// far end is down.
func (h *Host) readPeer(found, want plan.Link) (plan.Object, error) {
	peer, err := h.peer(found)
	if err != nil || !isUp(peer) {
		return nil, err
	}
	if mtu := peer.Attrs().MTU; mtu != want.MTU {
		found.MTU = mtu
	}
	if want.PeerMAC != "" {
		found.PeerMAC = peer.Attrs().HardwareAddr.String()
	}
	return found, nil
}

// readStaleLink returns the link if it still exists and is Fairlead's.
func (h *Host) readStaleLink(r plan.StaleLink) (plan.Object, error) {
	_, link, err := h.link(r.Netns, r.Name)
	if err != nil {
		return nil, err
	}
	return orNil(r, ours(link)), nil
}

func isUp(l netlink.Link) bool { return l.Attrs().RawFlags&unix.IFF_UP != 0 }

// readPort returns the bridge that the link is a port of, and the port's hairpin
// mode.
func (h *Host) readPort(handle *netlink.Handle, link netlink.Link) (master string, hairpin bool) {
	if link.Attrs().MasterIndex == 0 {
		return "", false
	}
	if m, err := handle.LinkByIndex(link.Attrs().MasterIndex); err == nil {
		master = m.Attrs().Name
	}
	hairpin, _ = h.hairpin(link.Attrs().Index) // an unreadable mode is set again
	return master, hairpin
}

// readAddress returns the address with the prefix length that it has.
func (h *Host) readAddress(want plan.Address) (plan.Object, error) {
	have, err := h.addresses(want.Netns, want.Link)
	var found plan.Object
	for _, p := range have {
		if p == want.Prefix {
			return want, nil
		}
		if p.Addr() == want.Prefix.Addr() {
			found = plan.Address{Netns: want.Netns, Link: want.Link, Prefix: p}
		}
	}
	return found, err
}

func (h *Host) readRoute(want plan.Route) (plan.Object, error) {
	routes, err := h.seenRoutes(want.Netns)
	for _, r := range routes {
		if r == want {
			return want, nil
		}
	}
	return nil, err
}

// routes returns the routes of a namespace that have Fairlead's protocol number.
func (h *Host) routes(netns string) ([]plan.Route, error) {
	handle, err := h.at(netns)
	if err != nil {
		return nil, err
	}
	filter := &netlink.Route{Protocol: plan.RouteProtocol, Table: unix.RT_TABLE_MAIN}
	list, err := retry(func() ([]netlink.Route, error) {
		return handle.RouteListFiltered(unix.AF_UNSPEC, filter, netlink.RT_FILTER_PROTOCOL|netlink.RT_FILTER_TABLE)
	})
	if err != nil {
		return nil, err
	}
	var routes []plan.Route
	for _, r := range list {
		link, err := handle.LinkByIndex(r.LinkIndex)
		if err != nil {
			continue
		}
		route := plan.Route{Netns: netns, To: toPrefix(r.Dst.IP, r.Dst.Mask), Link: link.Attrs().Name}
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

// leftovers returns Fairlead's links and routes in the host's namespace that are
// in no plan.
func (h *Host) leftovers(known map[string]bool) (plan.Plan, error) {
	handle, err := h.at("")
	if err != nil {
		return nil, err
	}
	links, err := retry(handle.LinkList)
	if err != nil {
		return nil, fmt.Errorf("list links: %w", err)
	}
	var found plan.Plan
	for _, l := range links {
		o := plan.Link{Name: l.Attrs().Name, Kind: plan.Kind(l.Type()), MTU: l.Attrs().MTU,
			Owner: strings.TrimPrefix(l.Attrs().Alias, plan.Mark+":")}
		if ours(l) && !known[o.Key()] {
			found = append(found, o)
		} else if ours(l) {
			inside, err := h.leftoverParts(l, known)
			if err != nil {
				return nil, err
			}
			found = append(found, inside...)
		}
	}
	for _, d := range leftoverDevices(links) {
		if !known[d.Key()] {
			found = append(found, d)
		}
	}
	routes, err := h.routes("")
	for _, r := range routes {
		if !known[r.Key()] {
			found = append(found, r)
		}
	}
	return found, err
}

// LocalAddrs returns the addresses of the host's namespace.
func (h *Host) LocalAddrs() ([]netip.Addr, error) {
	handle, err := h.at("")
	if err != nil {
		return nil, err
	}
	list, err := retry(func() ([]netlink.Addr, error) { return handle.AddrList(nil, unix.AF_UNSPEC) })
	if err != nil {
		return nil, fmt.Errorf("list addresses: %w", err)
	}
	var addrs []netip.Addr
	for _, a := range list {
		addrs = append(addrs, toPrefix(a.IPNet.IP, a.Mask).Addr())
	}
	return addrs, nil
}

// retry repeats a dump that is inconsistent because the table changed meanwhile
// (NLM_F_DUMP_INTR), at most ten times.
func retry[T any](dump func() (T, error)) (T, error) {
	for range 10 {
		list, err := dump()
		if !errors.Is(err, nl.ErrDumpInterrupted) {
			return list, err
		}
	}
	return dump()
}

func toPrefix(ip []byte, mask []byte) netip.Prefix {
	addr, _ := netip.AddrFromSlice(ip)
	addr = addr.Unmap()
	bits := 0
	for _, b := range mask {
		for ; b != 0; b <<= 1 {
			bits++
		}
	}
	if len(mask) == 16 && addr.Is4() {
		bits -= 96
	}
	return netip.PrefixFrom(addr, bits)
}

func orNil(o plan.Object, ok bool) plan.Object {
	if ok {
		return o
	}
	return nil
}
