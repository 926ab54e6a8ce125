package kernel

import (
	"errors"
	"fmt"
	"net"
	"net/netip"
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
	have, err := handle.LinkByName(want.Name)
	if err == nil && !ours(have) {
		return fmt.Errorf("a link of that name exists and is not Fairlead's: rename it or choose another name")
	}
	if err == nil && !h.samePeer(have, want) {
		if err := handle.LinkDel(have); err != nil {
			return fmt.Errorf("replace: %w", err)
		}
		have = nil
	}
	if err != nil && !absent(err) {
		return err
	}
	if have == nil || err != nil {
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
	inside, err := h.at(want.PeerNetns)
	if err != nil {
		return false
	}
	peer, err := inside.LinkByName(want.Peer)
	return err == nil && peer.Attrs().ParentIndex == have.Attrs().Index && have.Attrs().ParentIndex == peer.Attrs().Index
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
	if have.Attrs().MTU != want.MTU {
		if err := handle.LinkSetMTU(have, want.MTU); err != nil {
			return err
		}
	}
	if want.Master != "" {
		master, err := handle.LinkByName(want.Master)
		if err != nil {
			return err
		}
		if err := handle.LinkSetMasterByIndex(have, master.Attrs().Index); err != nil {
			return err
		}
		if err := handle.LinkSetHairpin(have, want.Hairpin); err != nil {
			return err
		}
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

func (h *Host) adjustPeer(want plan.Link) error {
	inside, err := h.at(want.PeerNetns)
	if err != nil {
		return err
	}
	peer, err := inside.LinkByName(want.Peer)
	if err != nil {
		return err
	}
	if peer.Attrs().MTU != want.MTU {
		if err := inside.LinkSetMTU(peer, want.MTU); err != nil {
			return err
		}
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

func (h *Host) setAddress(a plan.Address) error {
	if err := h.onAddress(a, (*netlink.Handle).AddrReplace); err != nil || a.Prefix.Addr().Is4() {
		return err
	}
	return h.awaitLocal(a)
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

func (h *Host) delAddress(a plan.Address) error { return h.onAddress(a, (*netlink.Handle).AddrDel) }

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

func (h *Host) setRoute(r plan.Route) error { return h.onRoute(r, (*netlink.Handle).RouteReplace) }

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
