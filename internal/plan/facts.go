package plan

import (
	"fmt"
	"net/netip"
)

// Feature is a capability that a kernel may lack.
type Feature string

// The features that drivers and publish modes need.
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
	FeatureFlowtable    Feature = "nftables-flowtable"
)

// Release names the first Linux release with full support of the feature, as in
// "Linux 5.4 or later".
func (f Feature) Release() string {
	major, minor := f.Since()
	return fmt.Sprintf("Linux %d.%d or later", major, minor)
}

// since is the first Linux release, as major and minor, with full support of a feature, if it is
// later than 3.0. The releases are those of veth(4); br_netfilter as a separate module
// and per bridge; ipvlan; VXLAN over IPv6; WireGuard; NAT in inet tables and
// interval maps of several fields; reject in prerouting; IPVS that forgets the
// flows of removed servers; the cookie of a socket's network namespace, with which
// the eBPF programs recognise the host's namespace; and flowtables that follow a
// bridge to its port.
var since = map[Feature][2]int{
	FeatureBridgeFilter: {3, 18},
	FeatureIPvlan:       {3, 19},
	FeatureVXLAN:        {3, 12},
	FeatureWireGuard:    {5, 6},
	FeatureNAT:          {5, 6},
	FeatureIPVS:         {5, 9},
	FeatureNFTServices:  {5, 9},
	FeatureEBPF:         {5, 14},
	FeatureCgroupHooks:  {5, 14},
	FeatureServices:     {5, 14},
	FeatureFlowtable:    {5, 13},
}

// Since returns the first Linux release, as major and minor, with full support of
// the feature.
func (f Feature) Since() (major, minor int) {
	if release, ok := since[f]; ok {
		return release[0], release[1]
	}
	return 3, 0
}

// The host-wide switches of br_netfilter.
const (
	SysctlBridgeFilter4 = "net.bridge.bridge-nf-call-iptables"
	SysctlBridgeFilter6 = "net.bridge.bridge-nf-call-ip6tables"
)

// Facts holds the facts about the host that a plan depends on.
type Facts struct {
	// Kernel is the release, as `uname -r` prints it.
	Kernel string
	// Missing holds the features that the kernel lacks, each with the reason and
	// the fix.
	Missing map[Feature]string
	// Untested are the features that the kernel was not asked about: Has assumes that it has them.
	Untested []Feature
	// Links answers the questions of model.Network.Asks. The key is a link's name
	// or the host's address on it, for that link; or another host's address, for
	// the link of the route to it. Questions without an answer are missing.
	Links map[string]HostLink
	// Own are the host's addresses. They are known if there are virtual services.
	Own map[netip.Addr]bool
	// Firewalls are the iptables filter tables in which Docker drops forwarded
	// packets.
	Firewalls []Firewall
	// IPsec are the IPsec policies that cover packets to an address of the host or of a
	// virtual service. They are known if there are publishes or services.
	IPsec []IPsecPolicy
}

// HostLink is a link of the host that Fairlead must not change.
type HostLink struct {
	Name string
	// Kind is as in `ip link add … type KIND`; empty for a physical device.
	Kind string
	// ParentOutside is true if the parent of the link is in another network namespace.
	ParentOutside bool
	// Encap is the link layer, as `ip link` prints it after "link/": ether,
	// infiniband, loopback, none.
	Encap string
	// Wireless is true if the link is an 802.11 station.
	Wireless bool
	Up       bool
	// MTU in bytes. If the question was another host's address, it is the MTU of
	// the route to it.
	MTU int
	MAC string
	// Master is the bridge or bond that the link is a port of.
	Master string
	// Addresses are the host's addresses on the link.
	Addresses []netip.Prefix
	// Source is the host's source address towards another host, if the question was
	// that host's address.
	Source netip.Addr
}

// Has reports whether the kernel has the feature.
func (f Facts) Has(feature Feature) bool {
	_, missing := f.Missing[feature]
	return !missing
}
