// Package driver holds what all drivers share: the interface they fill and
// the names and numbers they derive. A driver turns a network and its
// endpoints into a plan; it never touches the kernel.
package driver

import (
	"fmt"
	"hash/fnv"
	"net/netip"

	"fairlead/internal/model"
	"fairlead/internal/plan"
	"fairlead/internal/promise"
)

// Driver is a way to attach a sandbox. All methods are pure.
type Driver interface {
	// Name is the driver's name in the model.
	Name() model.Driver
	// Needs lists the kernel features without which it cannot work.
	Needs() []plan.Feature
	// Validate says what in the network this driver cannot do.
	Validate(model.Network, plan.Facts) error
	// Complete returns the network with what the user left open filled in; it
	// has been validated.
	Complete(model.Network, plan.Facts) model.Network
	// Network plans what all endpoints of the network share.
	Network(model.Network, plan.Facts) plan.Plan
	// Endpoint plans one sandbox's attachment.
	Endpoint(model.Network, model.Endpoint) plan.Plan
	// Attachment returns how publish modes reach the endpoint. The zero value
	// means that nothing can be published there.
	Attachment(model.Network, model.Endpoint) plan.Attachment
	// Promises answers every question of promise.Driver.
	Promises() promise.Set
}

// maxLinkName is IFNAMSIZ less the final NUL.
const maxLinkName = 15

// BridgeLink returns the name of a network's bridge on the host.
func BridgeLink(network string) string { return linkName("fl-", network) }

// ShimLink returns the name of the link by which the host itself takes part in
// a network whose sandboxes branch from a parent.
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

// MAC derives a locally administered unicast address from an IP address, so
// that a sandbox which comes back with its lease is known to its neighbours
// at once.
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

// Forwarding lets the host route between the network and the world, for each
// family that the network has.
func Forwarding(n model.Network) plan.Plan {
	var p plan.Plan
	for _, s := range n.Subnets {
		p = append(p, plan.IPForwarding(s.Prefix.Addr().Is4()))
	}
	return p
}

// Host returns the prefix that holds just the address.
func Host(a netip.Addr) netip.Prefix { return netip.PrefixFrom(a, a.BitLen()) }

// Default returns the default route's destination in the family of a.
func Default(a netip.Addr) netip.Prefix {
	if a.Is4() {
		return netip.PrefixFrom(netip.IPv4Unspecified(), 0)
	}
	return netip.PrefixFrom(netip.IPv6Unspecified(), 0)
}

// LinkLocal is the host's IPv6 link-local address on our links. Given
// explicitly it is usable at once: the automatic one waits a second or two
// for duplicate address detection, and until then the kernel forwards no
// IPv6 packet to a neighbour that it must first solicit.
var LinkLocal = netip.MustParsePrefix("fe80::1/64")
