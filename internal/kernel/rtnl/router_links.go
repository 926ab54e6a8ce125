package rtnl

import (
	"fairlead/internal/plan"

	"golang.org/x/sys/unix"
)

// RouterLink is a link of the host that can receive router advertisements.
type RouterLink struct {
	Link string
	// AcceptRA is the link's accept_ra: 0 never, 1 unless it forwards, 2 always.
	AcceptRA string
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
	routing := map[int]bool{0: true}
	for _, l := range list {
		routing[l.Attrs().Index] = l.Type() == "vrf"
	}
	var all []RouterLink
	for _, l := range list {
		a := l.Attrs()
		value, known := confs[a.Name].value(confIndex["net.ipv6.conf..accept_ra"])
		if known && a.RawFlags&unix.IFF_LOOPBACK == 0 && routing[a.MasterIndex] {
			all = append(all, RouterLink{a.Name, value})
		}
	}
	return all, nil
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
