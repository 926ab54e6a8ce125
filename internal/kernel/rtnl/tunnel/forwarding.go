package tunnel

import (
	"errors"
	"fmt"
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

// fdb sends a request for one forwarding entry.
func (h *Handle) fdb(kind, flags int, f plan.Forwarding, tables, state int) error {
	mac, err := net.ParseMAC(f.MAC)
	if err != nil {
		return err
	}
	attributes := []*nl.RtAttr{nl.NewRtAttr(netlink.NDA_LLADDR, mac)}
	if f.Remote.IsValid() && tables&netlink.NTF_SELF != 0 {
		attributes = append(attributes, nl.NewRtAttr(netlink.NDA_DST, f.Remote.AsSlice()))
	}
	if f.Underlay != "" {
		under, err := h.index(f.Underlay)
		if err != nil {
			return err
		}
		attributes = append(attributes, nl.NewRtAttr(netlink.NDA_IFINDEX, nl.Uint32Attr(under)))
	}
	return h.change(kind, flags, f.Link, netlink.Ndmsg{Family: unix.AF_BRIDGE, State: uint16(state),
		Flags: uint8(tables)}, attributes...)
}

// change sends a request for one entry of a table of the link. An overlay has thousands, so it neither opens a
// socket nor reads the whole link.
func (h *Handle) change(kind, flags int, link string, of netlink.Ndmsg, attributes ...*nl.RtAttr) (err error) {
	if of.Index, err = h.index(link); err != nil {
		return err
	}
	_, err = h.request(kind, flags|unix.NLM_F_ACK, 0, of, attributes...)
	return err
}

// request sends a request for an entry, and returns the answers of a type.
func (h *Handle) request(kind, flags int, answers uint16, of netlink.Ndmsg,
	attributes ...*nl.RtAttr) ([][]byte, error) {
	socket, err := h.Entries()
	if err != nil {
		return nil, err
	}
	req := nl.NewNetlinkRequest(kind, flags)
	req.Sockets = map[int]*nl.SocketHandle{unix.NETLINK_ROUTE: socket}
	// The kernel refuses questions whose padding is not 0, and a copy of the whole struct may have any.
	header := new(netlink.Ndmsg)
	header.Family, header.Index = of.Family, of.Index
	header.State, header.Flags, header.Type = of.State, of.Flags, of.Type
	req.AddData(header)
	for _, a := range attributes {
		req.AddData(a)
	}
	return req.Execute(unix.NETLINK_ROUTE, answers)
}

// index returns the index of a link.
func (h *Handle) index(name string) (uint32, error) {
	socket, err := h.Entries()
	if err != nil {
		return 0, err
	}
	ask, err := unix.NewIfreq(name)
	if err != nil {
		return 0, fmt.Errorf("find link %s: %w", name, err)
	}
	if err := unix.IoctlIfreq(socket.Socket.GetFd(), unix.SIOCGIFINDEX, ask); err != nil {
		return 0, fmt.Errorf("find link %s: %w", name, err)
	}
	return ask.Uint32(), nil
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
	link, err := h.index(want.Link)
	if err != nil {
		return nil, err
	}
	mac, err := net.ParseMAC(want.MAC)
	if err != nil {
		return nil, err
	}
	ask := func(table int) (*netlink.Neigh, error) {
		return h.neighbor(netlink.Ndmsg{Family: unix.AF_BRIDGE, Index: link, Flags: uint8(table)},
			netlink.NDA_LLADDR, mac)
	}
	above, err := ask(netlink.NTF_MASTER)
	if errors.Is(err, unix.EINVAL) { // the tunnel is not a bridge port
		return nil, nil
	}
	if err != nil {
		return nil, err
	}
	own, err := ask(netlink.NTF_SELF)
	if err != nil || above.LinkIndex != int(link) || above.State&netlink.NUD_NOARP == 0 ||
		own.State&netlink.NUD_NOARP == 0 {
		return nil, err
	}
	remote, _ := netip.AddrFromSlice(own.IP)
	want.Remote = remote.Unmap()
	return want, nil
}

// neighbor requests one entry of a neighbour or forwarding table.
func (h *Handle) neighbor(of netlink.Ndmsg, attribute int, value []byte) (*netlink.Neigh, error) {
	answers, err := h.request(unix.RTM_GETNEIGH, 0, unix.RTM_NEWNEIGH, of, nl.NewRtAttr(attribute, value))
	if err == nil && len(answers) == 0 {
		err = unix.ENOENT
	}
	if err != nil {
		return nil, err
	}
	return netlink.NeighDeserialize(answers[0])
}

// SetNeighbor sets a permanent neighbour entry.
func (h *Handle) SetNeighbor(n plan.Neighbor) error {
	mac, err := net.ParseMAC(n.MAC)
	if err != nil {
		return err
	}
	return h.onNeighbor(unix.RTM_NEWNEIGH, unix.NLM_F_CREATE|unix.NLM_F_REPLACE, n,
		nl.NewRtAttr(netlink.NDA_LLADDR, mac))
}

// DelNeighbor deletes the neighbor.
func (h *Handle) DelNeighbor(n plan.Neighbor) error { return h.onNeighbor(unix.RTM_DELNEIGH, 0, n) }

// onNeighbor sends a request for a permanent neighbour entry.
func (h *Handle) onNeighbor(kind, flags int, n plan.Neighbor, attributes ...*nl.RtAttr) error {
	attributes = append(attributes, nl.NewRtAttr(netlink.NDA_DST, n.Addr.AsSlice()))
	return h.change(kind, flags, n.Link, netlink.Ndmsg{Family: familyOf(n.Addr), State: netlink.NUD_PERMANENT},
		attributes...)
}

func familyOf(a netip.Addr) uint8 {
	if a.Is4() {
		return unix.AF_INET
	}
	return unix.AF_INET6
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
	link, err := h.index(want.Link)
	if err != nil {
		return nil, err
	}
	found, err := h.neighbor(netlink.Ndmsg{Family: familyOf(want.Addr), Index: link}, netlink.NDA_DST,
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
