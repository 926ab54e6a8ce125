package plan

// Feature is something that a kernel may lack.
type Feature string

// The features that drivers and ways to publish ask for.
const (
	FeatureVeth         Feature = "veth"
	FeatureBridge       Feature = "bridge"
	FeatureBridgeFilter Feature = "br_netfilter"
	FeatureNAT          Feature = "nftables-nat"
	FeatureIPv6         Feature = "ipv6"
	FeatureSteering     Feature = "ebpf-steering"
	FeatureCgroupHooks  Feature = "ebpf-cgroup-hooks"
)

// Since returns the first Linux release, as major and minor, in which the
// feature is whole: veth(4), br_netfilter as a module of its own and per
// bridge, NAT in inet tables and interval maps of several fields, the cookie
// of a socket's namespace, by which our eBPF programs know the host.
func (f Feature) Since() (major, minor int) {
	switch f {
	case FeatureBridgeFilter:
		return 3, 18
	case FeatureNAT:
		return 5, 6
	case FeatureSteering, FeatureCgroupHooks:
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
}

// Has reports whether the kernel has the feature.
func (f Facts) Has(feature Feature) bool {
	_, missing := f.Missing[feature]
	return !missing
}
