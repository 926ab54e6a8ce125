package doctor

import (
	"fmt"
	"slices"

	"fairlead/internal/kernel"
)

// overhead is what tunnels put before a packet, in bytes, over IPv4.
var overhead = map[string]int{"vxlan": 50, "geneve": 50, "wireguard": 60, "ipip": 20, "gre": 24, "sit": 20}

// mtu reports links of containers whose packets are too big for the uplink.
func mtu(h Host) []Finding {
	up, ok := h.uplink()
	if !ok {
		return nil
	}
	var all []Finding
	for _, l := range h.Links {
		least, tunnel := overhead[l.Kind]
		if !l.Up || l.Name == up.Name || l.MTU <= up.MTU-least || !tunnel && l.Kind != "bridge" {
			continue
		}
		f := Finding{Severity: Warning,
			Seen: fmt.Sprintf("the MTU of %s %s is %d, and the uplink %s has %d", l.Kind, l.Name, l.MTU, up.Name, up.MTU),
			Why:  "large packets of containers are fragmented, or lost where something drops the ICMP messages that say so: connections that begin well and then stand still",
			Mend: fmt.Sprintf("ip link set dev %s mtu %d", l.Name, up.MTU-least)}
		if tunnel {
			f.Seen += fmt.Sprintf(", of which the tunnel takes %d", least)
		}
		all = append(all, f)
	}
	return all
}

// uplink is the link of the default route.
func (h Host) uplink() (kernel.InsideLink, bool) {
	for _, r := range h.Routes {
		i := slices.IndexFunc(h.Links, func(l kernel.InsideLink) bool { return l.Name == r.Link })
		if r.To.Bits() == 0 && i >= 0 {
			return h.Links[i], true
		}
	}
	return kernel.InsideLink{}, false
}
