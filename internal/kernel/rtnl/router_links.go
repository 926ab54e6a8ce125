package rtnl

import (
	"fairlead/internal/plan"

	"github.com/vishvananda/netlink"
	"golang.org/x/sys/unix"
)

// RouterLink is a link of the host that can receive router advertisements.
type RouterLink struct {
	Link string
	// AcceptRA is the link's accept_ra: 0 never, 1 unless it forwards, 2 always.
	AcceptRA string
	// Expected says that the host uses a router on the link, or that the link connects it with other hosts: see expected.
	Expected bool
}

// Forwarding returns the setting with which the link forwards IPv6 packets.
func (l RouterLink) Forwarding() plan.Sysctl { return plan.LinkForwarding(false, l.Link) }

// RouterLinks returns the host's links that can receive router advertisements:
// neither loopback links nor ports, whose packets are the bridge's or bond's.
func (h *Reader) RouterLinks() ([]RouterLink, error) {
	list, err := h.ListLinks("")
	if err != nil {
		return nil, err
	}
	confs, err := h.ReadConfs("")
	if err != nil {
		return nil, err
	}
	x := expected{links: map[int]netlink.Link{}, ports: map[int][]int{}}
	for _, l := range list {
		x.links[l.Attrs().Index] = l
		x.ports[l.Attrs().MasterIndex] = append(x.ports[l.Attrs().MasterIndex], l.Attrs().Index)
	}
	if x.routed, err = routedLinks(h); err != nil {
		return nil, err
	}
	var all []RouterLink
	for _, l := range list {
		a := l.Attrs()
		value, known := confs[a.Name].value(confIndex["net.ipv6.conf..accept_ra"])
		master := x.links[a.MasterIndex]
		if known && a.RawFlags&unix.IFF_LOOPBACK == 0 && (master == nil || master.Type() == "vrf") {
			all = append(all, RouterLink{a.Name, value, x.on(a.Index, maxStacked)})
		}
	}
	return all, nil
}

// expected decides on which links of a host a router is expected: on those with a route or an address from a router
// advertisement or with a default route, on hardware and lines to a provider, and on VLANs, macvlans, ipvlans, bonds,
// teams and bridges on top of such links. Links to sandboxes and virtual machines (veth, tap) and tunnels are not among
// them: what is behind them may not become the host's router because Fairlead made the host forward.
type expected struct {
	links map[int]netlink.Link
	// ports are the ports of bridges, bonds and teams, by the index of the master.
	ports map[int][]int
	// routed are the links that have such a route or address.
	routed map[int]bool
}

// maxStacked is the number of links on top of each other that are followed.
const maxStacked = 8

// on reports whether a router is expected on the link with the index.
func (x expected) on(index, depth int) bool {
	l := x.links[index]
	if l == nil || depth == 0 {
		return false
	}
	if x.routed[index] {
		return true
	}
	switch a := l.Attrs(); l.Type() {
	case "device", "ppp", "wwan":
		return true
	case "vlan", "macvlan", "macvtap", "ipvlan", "ipvtap":
		return a.NetNsID < 0 && x.on(a.ParentIndex, depth-1)
	case "bond", "team", "bridge":
		for _, port := range x.ports[index] {
			if x.on(port, depth-1) {
				return true
			}
		}
	}
	return false
}

// routedLinks returns the indexes of the host's links that have a default route, or a route or an IPv6 address from a
// router advertisement. An address that the kernel deletes at some time is from one, or from a DHCP server on the same
// link.
func routedLinks(h *Reader) (map[int]bool, error) {
	routes, err := h.listRoutes("", &netlink.Route{Table: unix.RT_TABLE_UNSPEC}, netlink.RT_FILTER_TABLE)
	if err != nil {
		return nil, err
	}
	found := map[int]bool{}
	for _, r := range routes {
		ones := 0
		if r.Dst != nil {
			ones, _ = r.Dst.Mask.Size()
		}
		if r.Type != unix.RTN_UNICAST || ones > 0 && r.Protocol != unix.RTPROT_RA {
			continue
		}
		found[r.LinkIndex] = true
		for _, hop := range r.MultiPath {
			found[hop.LinkIndex] = true
		}
	}
	list, err := listAddresses(h, "", unix.AF_INET6)
	if err != nil {
		return nil, err
	}
	for _, a := range list {
		if a.Flags&unix.IFA_F_PERMANENT == 0 && !a.IP.IsLinkLocalUnicast() {
			found[a.LinkIndex] = true
		}
	}
	return found, nil
}

// Forwarders returns the links that forward packets of a family (IPv4 if v4), of those that ReadConfs returns.
func Forwarders(confs map[string]LinkConf, v4 bool) []string {
	at := confIndex["net.ipv6.conf..forwarding"]
	if v4 {
		at = confIndex["net.ipv4.conf..forwarding"]
	}
	var links []string
	for name, c := range confs {
		if value, _ := c.value(at); value == "1" {
			links = append(links, name)
		}
	}
	return links
}
