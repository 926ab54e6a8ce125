package tunnel

import (
	"errors"
	"net"
	"net/netip"
	"slices"

	"fairlead/internal/kernel/nlutil"
	"fairlead/internal/plan"

	"github.com/vishvananda/netlink"
	"github.com/vishvananda/netlink/nl"
	"golang.org/x/sys/unix"
)

// SetForwarding adds an entry to the tunnel's forwarding table. Unless the entry
// floods frames to unknown addresses, it is also added to the bridge's table.
func (h *Handle) SetForwarding(f plan.Forwarding) error {
	if f.Floods() {
		return h.fdb(unix.RTM_NEWNEIGH, unix.NLM_F_CREATE|unix.NLM_F_APPEND, f, netlink.NTF_SELF, netlink.NUD_PERMANENT)
	}
	return h.fdb(unix.RTM_NEWNEIGH, unix.NLM_F_CREATE|unix.NLM_F_REPLACE, f, netlink.NTF_SELF|netlink.NTF_MASTER,
		static)
}

// static is the state of an entry that does not age, as in bridge(8).
const static = netlink.NUD_NOARP | netlink.NUD_REACHABLE

// DelForwarding removes an entry. With a flooding entry it also removes what the
// tunnel has learnt from that remote host, because learnt entries would misdirect
// frames until they expire.
func (h *Handle) DelForwarding(f plan.Forwarding) error {
	if !f.Floods() {
		// Two requests, because the kernel stops at the first missing entry.
		master := h.fdb(unix.RTM_DELNEIGH, 0, f, netlink.NTF_MASTER, static)
		if err := h.fdb(unix.RTM_DELNEIGH, 0, f, netlink.NTF_SELF, static); err != nil && !nlutil.Absent(err) {
			return err
		}
		return master
	}
	learnt, err := h.forwardings(f.Link)
	errs := []error{err, h.fdb(unix.RTM_DELNEIGH, 0, f, netlink.NTF_SELF, netlink.NUD_PERMANENT)}
	for _, l := range learnt {
		if !l.fixed && l.self && l.Remote == f.Remote {
			errs = append(errs, h.DelForwarding(l.Forwarding))
		}
	}
	return errors.Join(slices.DeleteFunc(errs, func(err error) bool { return err == nil || nlutil.Absent(err) })...)
}

// fdb sends a request for one forwarding entry. The netlink library does not
// support the attribute for the underlay link.
func (h *Handle) fdb(kind, flags int, f plan.Forwarding, tables, state int) error {
	handle, link, err := h.Link("", f.Link)
	if err != nil {
		return err
	}
	mac, err := net.ParseMAC(f.MAC)
	if err != nil {
		return err
	}
	req := nl.NewNetlinkRequest(kind, flags|unix.NLM_F_ACK)
	req.AddData(&netlink.Ndmsg{Family: unix.AF_BRIDGE, Index: uint32(link.Attrs().Index), State: uint16(state),
		Flags: uint8(tables)})
	req.AddData(nl.NewRtAttr(netlink.NDA_LLADDR, mac))
	if f.Remote.IsValid() && tables&netlink.NTF_SELF != 0 {
		req.AddData(nl.NewRtAttr(netlink.NDA_DST, f.Remote.AsSlice()))
	}
	if f.Underlay != "" {
		under, err := handle.LinkByName(f.Underlay)
		if err != nil {
			return err
		}
		req.AddData(nl.NewRtAttr(netlink.NDA_IFINDEX, nl.Uint32Attr(uint32(under.Attrs().Index))))
	}
	return h.ns.Do(func() error {
		_, err := req.Execute(unix.NETLINK_ROUTE, 0)
		return err
	})
}

// entry is an entry of a forwarding table.
type entry struct {
	plan.Forwarding
	// self means that the entry is in the tunnel's table, not in the bridge's.
	self bool
	// fixed means that the entry was configured and not learnt.
	fixed bool
}

// forwardings returns the entries of the tunnel, and those of the bridge for the
// tunnel's port.
func (h *Handle) forwardings(name string) ([]entry, error) {
	handle, link, err := h.Link("", name)
	if err != nil {
		return nil, err
	}
	list, err := nlutil.Retry(func() ([]netlink.Neigh,
		error) {
		return handle.NeighList(link.Attrs().Index, unix.AF_BRIDGE)
	})
	var found []entry
	for _, n := range list {
		e := entry{self: n.MasterIndex == 0, fixed: n.State&(netlink.NUD_NOARP|netlink.NUD_PERMANENT) != 0}
		e.Link, e.MAC = name, n.HardwareAddr.String()
		if remote, ok := netip.AddrFromSlice(n.IP); ok {
			e.Remote = remote.Unmap()
		}
		if e.self || n.State&netlink.NUD_PERMANENT == 0 { // a permanent bridge entry is the port's own address
			found = append(found, e)
		}
	}
	return found, err
}

// ReadForwarding requests a single entry, because there may be thousands. Only
// flooding entries can exist several times for one hardware address, so for those
// it lists the table.
func (h *Handle) ReadForwarding(want plan.Forwarding) (plan.Object, error) {
	if want.Floods() {
		list, err := h.forwardings(want.Link)
		return plan.OrNil(want, slices.ContainsFunc(list, func(e entry) bool {
			return e.self && e.fixed && e.MAC == want.MAC && e.Remote == want.Remote
		})), err
	}
	link, err := h.LinkByName("", want.Link)
	if err != nil || link.Attrs().MasterIndex == 0 { // the tunnel is not a bridge port
		return nil, err
	}
	mac, err := net.ParseMAC(want.MAC)
	if err != nil {
		return nil, err
	}
	ask := func(table int) (*netlink.Neigh, error) {
		return h.neighbor(netlink.Ndmsg{Family: unix.AF_BRIDGE, Index: uint32(link.Attrs().Index), Flags: uint8(table)},
			netlink.NDA_LLADDR, mac)
	}
	above, err := ask(netlink.NTF_MASTER)
	if err != nil {
		return nil, err
	}
	own, err := ask(netlink.NTF_SELF)
	if err != nil || above.LinkIndex != link.Attrs().Index || above.State&netlink.NUD_NOARP == 0 ||
		own.State&netlink.NUD_NOARP == 0 {
		return nil, err
	}
	remote, _ := netip.AddrFromSlice(own.IP)
	want.Remote = remote.Unmap()
	return want, nil
}

// neighbor requests one entry of a neighbour or forwarding table.
func (h *Handle) neighbor(of netlink.Ndmsg, attribute int, value []byte) (found *netlink.Neigh, err error) {
	err = h.ns.Do(func() error {
		req := nl.NewNetlinkRequest(unix.RTM_GETNEIGH, 0)
		req.AddData(&of)
		req.AddData(nl.NewRtAttr(attribute, value))
		answers, err := req.Execute(unix.NETLINK_ROUTE, unix.RTM_NEWNEIGH)
		if err == nil && len(answers) == 0 {
			return unix.ENOENT
		}
		if err == nil {
			found, err = netlink.NeighDeserialize(answers[0])
		}
		return err
	})
	return found, err
}

// SetNeighbor sets a permanent neighbour entry.
func (h *Handle) SetNeighbor(n plan.Neighbor) error {
	return h.onNeighbor(n, (*netlink.Handle).NeighSet)
}

// DelNeighbor deletes the neighbor.
func (h *Handle) DelNeighbor(n plan.Neighbor) error {
	return h.onNeighbor(n, (*netlink.Handle).NeighDel)
}

func (h *Handle) onNeighbor(n plan.Neighbor, do func(*netlink.Handle, *netlink.Neigh) error) error {
	handle, link, err := h.Link("", n.Link)
	if err != nil {
		return err
	}
	mac, err := net.ParseMAC(n.MAC)
	if err != nil {
		return err
	}
	return do(handle, &netlink.Neigh{LinkIndex: link.Attrs().Index, State: netlink.NUD_PERMANENT, IP: n.Addr.AsSlice(),
		HardwareAddr: mac})
}

// neighbors returns the permanent neighbour entries of a link.
func (h *Handle) neighbors(name string) ([]plan.Neighbor, error) {
	handle, link, err := h.Link("", name)
	if err != nil {
		return nil, err
	}
	var found []plan.Neighbor
	for _, family := range []int{unix.AF_INET, unix.AF_INET6} {
		list, err := nlutil.Retry(func() ([]netlink.Neigh,
			error) {
			return handle.NeighList(link.Attrs().Index, family)
		})
		if err != nil {
			return nil, err
		}
		for _, n := range list {
			if addr, ok := netip.AddrFromSlice(n.IP); ok && n.State == netlink.NUD_PERMANENT {
				found = append(found, plan.Neighbor{Link: name, Addr: addr.Unmap(), MAC: n.HardwareAddr.String()})
			}
		}
	}
	return found, nil
}

// ReadNeighbor returns the neighbor as the kernel has it; nil if it is missing.
func (h *Handle) ReadNeighbor(want plan.Neighbor) (plan.Object, error) {
	link, err := h.LinkByName("", want.Link)
	if err != nil {
		return nil, err
	}
	family := unix.AF_INET6
	if want.Addr.Is4() {
		family = unix.AF_INET
	}
	found, err := h.neighbor(netlink.Ndmsg{Family: uint8(family), Index: uint32(link.Attrs().Index)}, netlink.NDA_DST,
		want.Addr.AsSlice())
	if err != nil || found.State != netlink.NUD_PERMANENT {
		return nil, err
	}
	want.MAC = found.HardwareAddr.String()
	return want, nil
}

// leftoverEntries returns the entries in an overlay's tables that are in no plan:
// configured entries, and learnt entries of a host that is no longer a peer.
func (h *Handle) leftoverEntries(tunnel *netlink.Vxlan, known map[string]bool) (plan.Plan, error) {
	var found plan.Plan
	list, err := h.forwardings(tunnel.Name)
	if err != nil {
		return nil, err
	}
	for _, e := range list {
		peer := e.Forwarding
		peer.MAC = plan.Unknown
		learnt := !e.fixed && (tunnel.Group != nil || known[peer.Key()])
		if e.self && !known[e.Key()] && !learnt && !e.Remote.IsMulticast() {
			found = append(found, e.Forwarding)
		}
	}
	handle, err := h.At("")
	if err != nil {
		return nil, err
	}
	bridge, err := handle.LinkByIndex(tunnel.MasterIndex)
	if err != nil {
		return found, nil // the tunnel is not a bridge port
	}
	neighbors, err := h.neighbors(bridge.Attrs().Name)
	for _, n := range neighbors {
		if !known[n.Key()] {
			found = append(found, n)
		}
	}
	return found, err
}
