// Package driver has the interface that every driver implements, and the names
// and addresses that all drivers derive in the same way. A driver turns a network
// and its endpoints into a plan. It never changes the kernel.
package driver

import (
	"fmt"
	"hash/fnv"
	"net/netip"

	"fairlead/internal/model"
	"fairlead/internal/plan"
	"fairlead/internal/promise"
)

// Driver plans how sandboxes are attached to networks. All methods are pure functions
// of their arguments.
type Driver interface {
	// Name returns the driver's name in the model.
	Name() model.Driver
	// Needs lists the kernel features without which it cannot work.
	Needs() []plan.Feature
	// Validate returns an error if the driver does not support a setting of the
	// network on this host.
	Validate(model.Network, plan.Facts) error
	// Complete returns the network with defaults for the settings that the user
	// has not set. The network has passed Validate.
	Complete(model.Network, plan.Facts) model.Network
	// Network plans what all endpoints of the network share.
	Network(model.Network, plan.Facts) plan.Plan
	// Endpoint plans the attachment of one sandbox.
	Endpoint(model.Network, model.Endpoint) plan.Plan
	// Attachment returns how publish modes reach the endpoint. The zero value
	// means that its ports cannot be published.
	Attachment(model.Network, model.Endpoint) plan.Attachment
	// Promises answers every question of promise.Driver.
	Promises() promise.Set
}

// maxLinkName is IFNAMSIZ without the final NUL.
const maxLinkName = 15

// BridgeLink returns the name of a network's bridge on the host.
func BridgeLink(network string) string { return linkName("fl-", network) }

// ShimLink returns the name of the link through which the host itself takes part
// in a macvlan or ipvlan network.
func ShimLink(network string) string { return linkName("fm-", network) }

// VLANLink returns the name of the link that carries a VLAN of a parent.
func VLANLink(parent string, id uint16) string {
	return linkName("fq-", fmt.Sprintf("%s-%d", parent, id))
}

// VethLink returns the name of an endpoint's link on the host.
func VethLink(endpoint string) string { return linkName("fv-", endpoint) }

// TunnelLink returns the name of a network's VXLAN link on the host.
func TunnelLink(network string) string { return linkName("fx-", network) }

// WireGuardLink returns the name of a network's WireGuard link on the host.
func WireGuardLink(network string) string { return linkName("fw-", network) }

// linkName keeps a short plain name readable and hashes any other. A dot or
// slash would make the link's sysctls ambiguous.
func linkName(prefix, name string) string {
	if len(prefix)+len(name) <= maxLinkName && plain(name) {
		return prefix + name
	}
	h := fnv.New32a()
	h.Write([]byte(name))
	return fmt.Sprintf("%s%08x", prefix[:2]+"_", h.Sum32())
}

func plain(name string) bool {
	for _, c := range name {
		if !(c >= 'a' && c <= 'z' || c >= 'A' && c <= 'Z' || c >= '0' && c <= '9' || c == '-' || c == '_') {
			return false
		}
	}
	return true
}

// MAC derives a locally administered unicast MAC address from IP addresses. So a
// sandbox that is attached again with the same lease has the MAC address that its
// neighbours have cached.
func MAC(addrs ...netip.Addr) string {
	h := fnv.New32a()
	for _, a := range addrs {
		h.Write(a.AsSlice())
	}
	sum := h.Sum32()
	if len(addrs) > 0 && addrs[0].Is4() {
		b := addrs[0].As4()
		return fmt.Sprintf("02:f1:%02x:%02x:%02x:%02x", b[0], b[1], b[2], b[3])
	}
	return fmt.Sprintf("02:f6:%02x:%02x:%02x:%02x", byte(sum>>24), byte(sum>>16), byte(sum>>8), byte(sum))
}

// Forwarding enables IP forwarding on the host for each address family of the
// network.
func Forwarding(n model.Network) plan.Plan {
	var p plan.Plan
	for _, s := range n.Subnets {
		p = append(p, plan.IPForwarding(s.Prefix.Addr().Is4()))
	}
	return p
}

// RoutedRanges returns the traffic that the host routes within each of the networks,
// also from their parts on other hosts. Internal networks have none.
func RoutedRanges(networks []model.Network) (all []plan.RoutedRange) {
	for _, n := range networks {
		if !n.Traits().RoutesPeers || n.Internal {
			continue
		}
		for _, s := range n.Subnets {
			all = append(all, plan.RoutedRange{From: s.Prefix.Masked(), To: s.Prefix.Masked()})
			for _, r := range n.Remote {
				if r.To.Addr().Is4() == s.Prefix.Addr().Is4() {
					all = append(all, plan.RoutedRange{From: r.To.Masked(), To: s.Prefix.Masked(), Remote: true})
				}
			}
		}
	}
	return all
}

// Host returns the prefix that contains only the address.
func Host(a netip.Addr) netip.Prefix { return netip.PrefixFrom(a, a.BitLen()) }

// Default returns the destination of the default route in the address family of
// a.
func Default(a netip.Addr) netip.Prefix {
	if a.Is4() {
		return netip.PrefixFrom(netip.IPv4Unspecified(), 0)
	}
	return netip.PrefixFrom(netip.IPv6Unspecified(), 0)
}

// LinkLocal is the host's IPv6 link-local address on Fairlead's links. An address
// that is set explicitly is usable at once. The automatic one waits one or two
// seconds for duplicate address detection, and until then the kernel forwards no
// IPv6 packet to a neighbour that it must first solicit.
var LinkLocal = netip.MustParsePrefix("fe80::1/64")
