package plan

import "net/netip"

// Feature is something that a kernel may lack.
type Feature string

// The features that drivers and ways to publish ask for.
const (
	FeatureVeth         Feature = "veth"
	FeatureBridge       Feature = "bridge"
	FeatureBridgeFilter Feature = "br_netfilter"
	FeatureNAT          Feature = "nftables-nat"
	FeatureNFTServices  Feature = "nftables-services"
	FeatureIPv6         Feature = "ipv6"
	FeatureEBPF         Feature = "ebpf-data-path"
	FeatureCgroupHooks  Feature = "ebpf-cgroup-hooks"
	FeatureServices     Feature = "ebpf-services"
	FeatureMacvlan      Feature = "macvlan"
	FeatureIPvlan       Feature = "ipvlan"
	FeatureVXLAN        Feature = "vxlan"
	FeatureVLAN         Feature = "vlan"
	FeatureWireGuard    Feature = "wireguard"
	FeatureIPVS         Feature = "ipvs"
)

// Since returns the first Linux release, as major and minor, in which the
// feature is whole: veth(4), br_netfilter as a module of its own and per
// bridge, NAT in inet tables and interval maps of several fields, the cookie
// of a socket's namespace, by which our eBPF programs know the host; reject in
// prerouting; ipvlan,
// VXLAN over IPv6, WireGuard; IPVS that forgets the flows of removed servers.
func (f Feature) Since() (major, minor int) {
	switch f {
	case FeatureBridgeFilter:
		return 3, 18
	case FeatureIPvlan:
		return 3, 19
	case FeatureVXLAN:
		return 3, 12
	case FeatureWireGuard:
		return 5, 6
	case FeatureNAT:
		return 5, 6
	case FeatureIPVS:
		return 5, 9
	case FeatureNFTServices:
		return 5, 9
	case FeatureEBPF, FeatureCgroupHooks, FeatureServices:
		return 5, 14
	default:
		return 3, 0
	}
}

// The host-wide switches of br_netfilter.
const (
	SysctlBridgeFilter4 = "net.bridge.bridge-nf-call-iptables"
	SysctlBridgeFilter6 = "net.bridge.bridge-nf-call-ip6tables"
)

// Facts is what a plan needs to know of the host it is made for.
type Facts struct {
	// Kernel is the release, as `uname -r` prints it.
	Kernel string
	// Missing holds the features that the kernel lacks, each with the
	// reason and what would mend it.
	Missing map[Feature]string
	// Links holds what a plan asks about (model.Network.Asks): by a link's name
	// or the host's address on it, that link; by another host's address, the
	// link that leads there. What the host has not is missing.
	Links map[string]HostLink
	// Own are the host's own addresses; known where there are virtual services.
	Own map[netip.Addr]bool
	// Firewalls are those in which Docker drops forwarded packets.
	Firewalls []Firewall
	// Shaped are the endpoints whose Attachment is; known where they are real
	// servers.
	Shaped map[string]bool
	// Internal are the endpoints of internal networks; known as Shaped is.
	Internal map[string]bool
}

// HostLink is a link of the host that is not ours to change.
type HostLink struct {
	Name string
	// Kind is as in `ip link add … type KIND`; empty for a physical device.
	Kind string
	// Encap is the link layer, as `ip link` prints it after "link/": ether,
	// infiniband, loopback, none.
	Encap string
	// Wireless says that it is an 802.11 station.
	Wireless bool
	Up       bool
	// MTU in bytes; where the question was another host's address, of the route
	// that leads there.
	MTU int
	MAC string
	// Master is the bridge or bond that the link is a port of.
	Master string
	// Addresses are the host's on the link.
	Addresses []netip.Prefix
	// Source is the host's address that another host is spoken to from, where
	// the question was its address.
	Source netip.Addr
}

// Has reports whether the kernel has the feature.
func (f Facts) Has(feature Feature) bool {
	_, missing := f.Missing[feature]
	return !missing
}
