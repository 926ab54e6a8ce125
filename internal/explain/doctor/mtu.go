package doctor

import (
	"fmt"
	"slices"
	"strings"

	"fairlead/internal/escape"
	"fairlead/internal/kernel/inspect"
)

// overhead is the size of the headers that each kind of tunnel adds over IPv4,
// in bytes.
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
			Seen: fmt.Sprintf("the MTU of %s %s is %d, but that of the uplink %s is %d", l.Kind, l.Name, l.MTU, up.Name,
				up.MTU),
			Why: "large packets of containers are fragmented. If a firewall drops the ICMP messages about it, they are lost: " +
				"connections open, and then hang",
			Fix: fmt.Sprintf("ip link set dev %s mtu %d", escape.Shell(l.Name), up.MTU-least)}
		if l.Owner != "" {
			f.Fix = fmt.Sprintf("fairlead network create %s --mtu %d, with the other options that the network has: the daemon resets an MTU that is set on the link itself",
				escape.Shell(networkName(l.Owner)), up.MTU-least)
		}
		if tunnel {
			f.Seen += fmt.Sprintf(", of which the tunnel's headers need %d", least)
		}
		all = append(all, f)
	}
	return all
}

// networkName returns a network's name for use in a command, or the placeholder
// "NAME" if the name has characters that the daemon does not allow.
func networkName(name string) string {
	odd := func(r rune) bool {
		return (r < 'a' || r > 'z') && (r < 'A' || r > 'Z') && (r < '0' || r > '9') && !strings.ContainsRune("._-", r)
	}
	if name == "" || name[0] == '-' || strings.ContainsFunc(name, odd) {
		return "NAME"
	}
	return name
}

// uplink returns the link of the first default route.
func (h Host) uplink() (inspect.InsideLink, bool) {
	for _, r := range h.Routes {
		i := slices.IndexFunc(h.Links, func(l inspect.InsideLink) bool { return l.Name == r.Link })
		if r.To.Bits() == 0 && i >= 0 {
			return h.Links[i], true
		}
	}
	return inspect.InsideLink{}, false
}
