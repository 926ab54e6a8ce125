package kernel

import (
	"errors"
	"fmt"
	"net"
	"net/netip"
	"slices"
	"strings"
	"time"

	"fairlead/internal/plan"

	"github.com/vishvananda/netlink"
	"github.com/vishvananda/netlink/nl"
	"golang.org/x/sys/unix"
)

// setLink makes the link or brings ours to the wanted state. A foreign link
// of that name is an error, never a victim.
func (h *Host) setLink(want plan.Link) error {
	handle, err := h.at(want.Netns)
	if err != nil {
		return err
	}
	if want.Kind == plan.Loopback {
		return linkUp(handle, "lo")
	}
	if want.Kind == plan.Veth {
		// Before anything goes: is there a sandbox at all?
		if _, err := h.at(want.PeerNetns); err != nil {
			return err
		}
	}
	have, err := handle.LinkByName(want.Name)
	switch {
	case err != nil && !absent(err):
		return err
	case err == nil && !ours(have):
		return fmt.Errorf("a link of that name exists and is not Fairlead's: rename it or choose another name")
	case err == nil && !h.samePeer(have, want):
		if err := handle.LinkDel(have); err != nil {
			return fmt.Errorf("replace: %w", err)
		}
		fallthrough
	case err != nil:
		if have, err = h.addLink(handle, want); err != nil {
			return err
		}
	}
	return h.adjustLink(handle, have, want)
}

func ours(l netlink.Link) bool { return strings.HasPrefix(l.Attrs().Alias, plan.Mark+":") }

// samePeer reports whether an existing link is the wanted one: of the same
// kind, and a veth's other end where it belongs.
func (h *Host) samePeer(have netlink.Link, want plan.Link) bool {
	if have.Type() != string(want.Kind) {
		return false
	}
	if want.Kind != plan.Veth {
		return true
	}
	peer, err := h.peer(want)
	return err == nil && peer.Attrs().ParentIndex == have.Attrs().Index &&
		have.Attrs().ParentIndex == peer.Attrs().Index && h.knownAs(want.PeerNetns, have.Attrs().NetNsID)
}

// peer returns the far end of a veth.
func (h *Host) peer(l plan.Link) (netlink.Link, error) {
	_, peer, err := h.link(l.PeerNetns, l.Peer)
	return peer, err
}

// knownAs reports whether the host knows the namespace by that id; interface
// indices alone are alike in many namespaces. -1 is the host's own.
func (h *Host) knownAs(path string, id int) bool {
	ns, err := h.open(path)
	if err != nil {
		return false
	}
	defer ns.Close()
	host, err := h.at("")
	if err != nil {
		return false
	}
	known, err := host.GetNetNsIdByFd(int(ns.File().Fd()))
	return err == nil && known == id
}

// addLink makes the link and marks it at once.
func (h *Host) addLink(handle *netlink.Handle, want plan.Link) (netlink.Link, error) {
	attrs := netlink.NewLinkAttrs()
	attrs.Name, attrs.MTU = want.Name, want.MTU
	var err error
	if attrs.HardwareAddr, err = parseMAC(want.MAC); err != nil {
		return nil, err
	}
	var link netlink.Link = &netlink.Bridge{LinkAttrs: attrs}
	if want.Kind == plan.Veth {
		ns, err := h.open(want.PeerNetns)
		if err != nil {
			return nil, err
		}
		defer ns.Close()
		veth := netlink.NewVeth(attrs)
		veth.PeerName, veth.PeerMTU = want.Peer, uint32(want.MTU)
		veth.PeerNamespace = netlink.NsFd(ns.File().Fd())
		if veth.PeerHardwareAddr, err = parseMAC(want.PeerMAC); err != nil {
			return nil, err
		}
		link = veth
	}
	if err := handle.LinkAdd(link); err != nil {
		if errors.Is(err, unix.EEXIST) && want.Kind == plan.Veth {
			return nil, fmt.Errorf("the sandbox has an interface %s already: name another in the endpoint", want.Peer)
		}
		return nil, err
	}
	if err := handle.LinkSetAlias(link, want.Alias()); err != nil {
		return nil, errors.Join(err, handle.LinkDel(link))
	}
	return link, nil
}

// adjustLink sets what can change on a living link, and brings it up.
func (h *Host) adjustLink(handle *netlink.Handle, have netlink.Link, want plan.Link) error {
	if err := adjustEnd(handle, have, want.MTU, want.MAC); err != nil {
		return err
	}
	if err := adjustMaster(handle, have, want); err != nil {
		return err
	}
	if want.Kind == plan.Bridge {
		if err := h.setBridgeFilter(have, want.Filter); err != nil {
			return err
		}
	}
	if want.Kind == plan.Veth {
		if err := h.adjustPeer(want); err != nil {
			return err
		}
	}
	return handle.LinkSetUp(have)
}

// adjustEnd sets what both ends of a link have.
func adjustEnd(handle *netlink.Handle, have netlink.Link, mtu int, mac string) error {
	if have.Attrs().MTU != mtu {
		if err := handle.LinkSetMTU(have, mtu); err != nil {
			return fmt.Errorf("set mtu: %w", err)
		}
	}
	if mac == "" || have.Attrs().HardwareAddr.String() == mac {
		return nil
	}
	addr, err := net.ParseMAC(mac)
	if err == nil {
		err = handle.LinkSetHardwareAddr(have, addr)
	}
	if err != nil {
		return fmt.Errorf("set hardware address: %w", err)
	}
	return nil
}

func adjustMaster(handle *netlink.Handle, have netlink.Link, want plan.Link) error {
	if want.Master == "" {
		if have.Attrs().MasterIndex == 0 {
			return nil
		}
		return handle.LinkSetNoMaster(have)
	}
	master, err := handle.LinkByName(want.Master)
	if err != nil {
		return fmt.Errorf("find bridge %s: %w", want.Master, err)
	}
	if err := handle.LinkSetMasterByIndex(have, master.Attrs().Index); err != nil {
		return err
	}
	return handle.LinkSetHairpin(have, want.Hairpin)
}

func (h *Host) adjustPeer(want plan.Link) error {
	inside, err := h.at(want.PeerNetns)
	if err != nil {
		return err
	}
	peer, err := inside.LinkByName(want.Peer)
	if err != nil {
		return err
	}
	if err := adjustEnd(inside, peer, want.MTU, want.PeerMAC); err != nil {
		return err
	}
	return inside.LinkSetUp(peer)
}

// The attributes of a bridge that make its frames pass the IP rules whatever
// the host's sysctls say (linux/if_link.h, since Linux 3.18); netlink's
// library does not set them.
const (
	bridgeCallIptables  = unix.IFLA_BR_NF_CALL_IPTABLES
	bridgeCallIp6tables = unix.IFLA_BR_NF_CALL_IP6TABLES
)

// setBridgeFilter writes the bridge's own br_netfilter flags. A kernel
// without br_netfilter knows no such attribute; off needs nothing there.
func (h *Host) setBridgeFilter(bridge netlink.Link, on bool) error {
	err := h.ns.Do(func() error {
		req := nl.NewNetlinkRequest(unix.RTM_NEWLINK, unix.NLM_F_ACK)
		msg := nl.NewIfInfomsg(unix.AF_UNSPEC)
		msg.Index = int32(bridge.Attrs().Index)
		req.AddData(msg)
		info := nl.NewRtAttr(unix.IFLA_LINKINFO, nil)
		info.AddRtAttr(nl.IFLA_INFO_KIND, nl.NonZeroTerminated("bridge"))
		data := info.AddRtAttr(nl.IFLA_INFO_DATA, nil)
		var flag byte
		if on {
			flag = 1
		}
		data.AddRtAttr(bridgeCallIptables, []byte{flag})
		data.AddRtAttr(bridgeCallIp6tables, []byte{flag})
		req.AddData(info)
		_, err := req.Execute(unix.NETLINK_ROUTE, 0)
		return err
	})
	if err != nil && on {
		return fmt.Errorf("set bridge filter: %w", err)
	}
	return nil
}

// bridgeFilter reads the bridge's own br_netfilter flags: true when both are
// set, false when none is there.
func (h *Host) bridgeFilter(bridge netlink.Link) (on bool, err error) {
	err = h.ns.Do(func() error {
		req := nl.NewNetlinkRequest(unix.RTM_GETLINK, unix.NLM_F_ACK)
		msg := nl.NewIfInfomsg(unix.AF_UNSPEC)
		msg.Index = int32(bridge.Attrs().Index)
		req.AddData(msg)
		links, err := req.Execute(unix.NETLINK_ROUTE, 0)
		if err != nil || len(links) != 1 {
			return err
		}
		attrs := links[0][unix.SizeofIfInfomsg:]
		for _, nested := range []uint16{unix.IFLA_LINKINFO, nl.IFLA_INFO_DATA} {
			attrs = attribute(attrs, nested)
		}
		v4, v6 := attribute(attrs, bridgeCallIptables), attribute(attrs, bridgeCallIp6tables)
		on = len(v4) == 1 && v4[0] == 1 && len(v6) == 1 && v6[0] == 1
		return nil
	})
	return on, err
}

// attribute returns the value of a netlink attribute, nil when it is missing.
func attribute(attrs []byte, kind uint16) []byte {
	list, err := nl.ParseRouteAttr(attrs)
	for _, a := range list {
		if err == nil && a.Attr.Type&nl.NLA_TYPE_MASK == kind {
			return a.Value
		}
	}
	return nil
}

func (h *Host) delLink(l plan.Link) error {
	if l.Kind == plan.Loopback {
		return nil
	}
	handle, err := h.at(l.Netns)
	if err != nil {
		return err
	}
	have, err := handle.LinkByName(l.Name)
	if err != nil {
		return err
	}
	if !ours(have) {
		return nil
	}
	return handle.LinkDel(have)
}

// setAddress adds the address, and drops the same one with another prefix
// length: IPv6 first, because the kernel takes only one, IPv4 after, because
// a link's routes go with its last address.
func (h *Host) setAddress(a plan.Address) error {
	if a.Prefix.Addr().Is4() {
		return errors.Join(h.onAddress(a, (*netlink.Handle).AddrReplace), h.dropWidths(a))
	}
	if err := h.dropWidths(a); err != nil {
		return err
	}
	if err := h.onAddress(a, (*netlink.Handle).AddrReplace); err != nil {
		return err
	}
	return h.awaitLocal(a)
}

// dropWidths removes the address with any other prefix length.
func (h *Host) dropWidths(a plan.Address) error {
	have, err := h.addresses(a.Netns, a.Link)
	for _, p := range have {
		if p.Addr() == a.Prefix.Addr() && p != a.Prefix {
			err = errors.Join(err, h.delAddress(plan.Address{Netns: a.Netns, Link: a.Link, Prefix: p}))
		}
	}
	return err
}

// addresses returns those of a link.
func (h *Host) addresses(netns, name string) ([]netip.Prefix, error) {
	handle, link, err := h.link(netns, name)
	if err != nil {
		return nil, err
	}
	list, err := retry(func() ([]netlink.Addr, error) { return handle.AddrList(link, unix.AF_UNSPEC) })
	var prefixes []netip.Prefix
	for _, a := range list {
		prefixes = append(prefixes, toPrefix(a.IPNet.IP, a.Mask))
	}
	return prefixes, err
}

// delAddress removes an address and nothing else: with the first IPv4 address
// of a subnet the kernel drops the others, unless it is told to promote one.
func (h *Host) delAddress(a plan.Address) error {
	have, err := h.addresses(a.Netns, a.Link)
	if err != nil {
		return err
	}
	promote := plan.Sysctl{Netns: a.Netns, Name: "net.ipv4.conf." + a.Link + ".promote_secondaries", Value: "1"}
	before := promote
	if slices.ContainsFunc(have, func(p netip.Prefix) bool {
		return p != a.Prefix && p.Masked() == a.Prefix.Masked() && p.Addr().Is4()
	}) {
		if before.Value, err = h.ReadSysctl(promote); err != nil {
			return err
		}
		if err := h.WriteSysctl(promote); err != nil {
			return err
		}
	}
	err = h.onAddress(a, (*netlink.Handle).AddrDel)
	if before != promote {
		err = errors.Join(err, h.WriteSysctl(before))
	}
	return err
}

// awaitLocal waits until the kernel answers on an IPv6 address of a link that
// is up. It does so from a work queue, even without duplicate address
// detection; a socket that connects before that gets a route out of the link
// and keeps it.
func (h *Host) awaitLocal(a plan.Address) error {
	const often, patience = time.Millisecond, 2 * time.Second
	handle, link, err := h.link(a.Netns, a.Link)
	if err != nil || link.Attrs().RawFlags&unix.IFF_UP == 0 || a.Prefix.Addr().IsLinkLocalUnicast() {
		return err
	}
	for deadline := time.Now().Add(patience); time.Now().Before(deadline); time.Sleep(often) {
		routes, err := handle.RouteGet(a.Prefix.Addr().AsSlice())
		if err == nil && len(routes) == 1 && routes[0].Type == unix.RTN_LOCAL {
			return nil
		}
	}
	return nil // policy routing may hide the route; the address is set all the same
}

func (h *Host) onAddress(a plan.Address, do func(*netlink.Handle, netlink.Link, *netlink.Addr) error) error {
	handle, link, err := h.link(a.Netns, a.Link)
	if err != nil {
		return err
	}
	addr := &netlink.Addr{IPNet: ipNet(a.Prefix)}
	if a.Prefix.Addr().Is6() {
		addr.Flags = unix.IFA_F_NODAD
	}
	return do(handle, link, addr)
}

// setRoute adds a route, or replaces one of ours to the same destination; a
// foreign one is an error, never a victim.
func (h *Host) setRoute(r plan.Route) error {
	err := h.onRoute(r, (*netlink.Handle).RouteAdd)
	if !errors.Is(err, unix.EEXIST) {
		return err
	}
	own, err := h.routes(r.Netns)
	if err != nil {
		return err
	}
	if !slices.ContainsFunc(own, func(o plan.Route) bool { return o.To == r.To }) {
		return fmt.Errorf("a route to %s exists and is not Fairlead's: remove it, or leave it to Fairlead", r.To)
	}
	return h.onRoute(r, (*netlink.Handle).RouteReplace)
}

func (h *Host) delRoute(r plan.Route) error { return h.onRoute(r, (*netlink.Handle).RouteDel) }

func (h *Host) onRoute(r plan.Route, do func(*netlink.Handle, *netlink.Route) error) error {
	handle, link, err := h.link(r.Netns, r.Link)
	if err != nil {
		return err
	}
	route := &netlink.Route{Dst: ipNet(r.To), LinkIndex: link.Attrs().Index, Protocol: plan.RouteProtocol}
	if r.Via.IsValid() {
		route.Gw = r.Via.AsSlice()
	} else if r.To.Addr().Is4() {
		route.Scope = netlink.SCOPE_LINK
	}
	return do(handle, route)
}

func (h *Host) link(netns, name string) (*netlink.Handle, netlink.Link, error) {
	handle, err := h.at(netns)
	if err != nil {
		return nil, nil, err
	}
	link, err := handle.LinkByName(name)
	return handle, link, err
}

func (n *Netns) loopbackUp() error {
	h := &Host{ns: n, handles: map[string]*netlink.Handle{}}
	defer h.Release()
	handle, err := h.at("")
	if err != nil {
		return err
	}
	return linkUp(handle, "lo")
}

func linkUp(handle *netlink.Handle, name string) error {
	link, err := handle.LinkByName(name)
	if err != nil {
		return err
	}
	return handle.LinkSetUp(link)
}

func parseMAC(s string) (net.HardwareAddr, error) {
	if s == "" {
		return nil, nil
	}
	return net.ParseMAC(s)
}

func ipNet(p netip.Prefix) *net.IPNet {
	return &net.IPNet{IP: p.Addr().AsSlice(), Mask: net.CIDRMask(p.Bits(), p.Addr().BitLen())}
}
