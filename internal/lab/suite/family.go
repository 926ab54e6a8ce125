package suite

// Path returns the path of that name, which must exist, in the suite's family.
func (s Suite) Path(name string) Path {
	p, _ := FindPath(name)
	p.Family = s.Family
	return p
}

// WithoutFamily returns why the path cannot carry its address family; "" if it can.
func (p Path) WithoutFamily() string {
	switch {
	case !p.Family.Is6():
		return ""
	case p.Virtual:
		return "the laboratory measures virtual addresses of IPv4 only"
	case p.Clustered:
		return "an overlay of a cluster has one IPv4 subnet"
	case p.Peer.Name == Slirp4netns.Name:
		return "slirp4netns forwards IPv4 ports only (its API has no IPv6 host addresses)"
	case p.Peer.InDocker && !p.Driver.Traits().HostNetns:
		return "the laboratory does not configure IPv6 networks of a Docker engine"
	}
	return ""
}
