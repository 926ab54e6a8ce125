package model

import (
	"errors"
	"fmt"
	"net/netip"
	"path"
	"slices"
	"strconv"
	"strings"
	"unicode"
	"unicode/utf8"
)

// Validate checks everything that can be checked without the host. It returns all
// mistakes at once, each with the object's name. The error wraps a *PortTakenError for
// each publish that collides with another one.
func (s State) Validate() error {
	var errs []error
	names := map[string]bool{}
	for i, n := range s.Networks {
		if names["network "+n.Name] {
			errs = append(errs, fmt.Errorf("network %s: this name is used twice: rename one", n.Name))
		}
		names["network "+n.Name] = true
		errs = append(errs, wrap("network", n.Name, n.validate()), s.overlap(i), s.sharing(i))
	}
	by := s.index()
	for _, e := range s.Endpoints {
		if names["endpoint "+e.Name] {
			errs = append(errs, fmt.Errorf("endpoint %s: this name is used twice: rename one", e.Name))
		}
		names["endpoint "+e.Name] = true
		errs = append(errs, wrap("endpoint", e.Name, by.validateEndpoint(e)))
	}
	for _, p := range s.Publishes {
		errs = append(errs, wrap("publish", p.String(), by.validatePublish(p)))
	}
	return errors.Join(slices.Concat(errs, []error{s.tooMany()}, s.collisions(), s.ownPorts(), s.validateServices())...)
}

func wrap(kind, name string, err error) error {
	if err == nil {
		return nil
	}
	return fmt.Errorf("%s %s: %w", kind, name, err)
}

// maxName limits names in bytes, so that a link's alias has room for Fairlead's
// mark and the name.
const maxName = 128

// ValidName checks the name of a network, an endpoint or a set of files.
func ValidName(name string) error {
	switch {
	case name == "":
		return errors.New("it needs a name")
	case len(name) > maxName:
		return fmt.Errorf("the name has %d bytes: want at most %d", len(name), maxName)
	case !utf8.ValidString(name), strings.ContainsFunc(name, func(c rune) bool { return !unicode.IsPrint(c) }):
		return fmt.Errorf("name %q: want no control characters and no other invisible characters", name)
	case name == ".", name == "..", strings.Contains(name, "/"), strings.HasPrefix(name, "-"):
		return fmt.Errorf("name %q: want no slash and no dash at the beginning, because it must not look like a path or a flag", name)
	}
	return nil
}

// validText checks a text that names an object of the host, e.g. a link.
func validText(what, text string) error {
	switch {
	case len(text) > maxText:
		return fmt.Errorf("%s: it has %d bytes: want at most %d", what, len(text), maxText)
	case !utf8.ValidString(text), strings.ContainsFunc(text, func(c rune) bool { return !unicode.IsPrint(c) }):
		return fmt.Errorf("%s %q: want no control characters and no other invisible characters", what, text)
	}
	return nil
}

// linkMarks are the characters besides letters and digits that Fairlead accepts in
// names of links. The kernel accepts nearly all characters, including those that
// are special in shells; rename such a link first (ip link set NAME name NEW). The
// colon is for PCI addresses and IPv6.
const linkMarks = "- _ . : @ + = %"

// validLink reports whether a text may be the name of a link, or a PCI address.
func validLink(name string) bool {
	odd := func(c rune) bool {
		return !(c >= 'a' && c <= 'z' || c >= 'A' && c <= 'Z' || c >= '0' && c <= '9' || c != ' ' &&
			strings.ContainsRune(linkMarks, c))
	}
	return name != "" && name != "." && name != ".." && name[0] != '-' && len(name) <= maxLink &&
		!strings.ContainsFunc(name, odd)
}

// ValidLink checks the name of a link.
func ValidLink(name string) error {
	if len(name) > 15 || !validLink(name) {
		return fmt.Errorf("link %q: want the name of a link: at most 15 letters, digits and %s", name, linkMarks)
	}
	return nil
}

// ValidInterface checks the name of an endpoint's link in its sandbox.
func ValidInterface(name string) error {
	if len(name) > 15 || name == "lo" || strings.ContainsAny(name, ".:") || !validLink(name) {
		return fmt.Errorf("interface %q: want at most 15 letters, digits and - _ @ + = %%, without dot or colon, and not "+
			"lo", name)
	}
	return nil
}

// maxLink is the length of an IPv6 address with a zone, which is longer than the
// name of a link.
const maxLink = 64

// maxText is the maximum length of a path in the kernel.
const maxText = 4095

func (n Network) validate() error {
	if err := errors.Join(ValidName(n.Name), validText("parent", n.Parent),
		validText("key file", n.Overlay.KeyFile)); err != nil {
		return err
	}
	for _, link := range append([]string{n.Parent}, n.Overlay.Underlays...) {
		if link != "" && !validLink(link) {
			return fmt.Errorf("link %q: want the name of a link: letters, digits and %s", link, linkMarks)
		}
	}
	if n.MTU != 0 && (n.MTU < 68 || n.MTU > 65535) {
		return fmt.Errorf("mtu %d: want 68 to 65535 bytes, 1280 or more with IPv6", n.MTU)
	}
	if n.Filter != FilterKeep && n.Filter != FilterOn && n.Filter != FilterOff {
		return fmt.Errorf("filter %q: want on, off, or nothing to keep the host's setting", n.Filter)
	}
	if !slices.Contains([]Outbound{OutboundNFT, OutboundEBPF, OutboundAuto}, n.Outbound) {
		return fmt.Errorf("outbound %q: want nft, ebpf or auto", n.Outbound)
	}
	if n.Outbound != OutboundNFT && n.Internal {
		return fmt.Errorf("outbound %s: an internal network sends nothing outside: leave it out", n.Outbound)
	}
	if n.Flowtable && n.Internal {
		return errors.New("flowtable: an internal network has no connections with other hosts: leave it out")
	}
	if n.VLAN > 4094 {
		return fmt.Errorf("vlan %d: want 1 to 4094", n.VLAN)
	}
	seen := map[bool]bool{}
	for _, sub := range n.Subnets {
		if err := sub.validate(n.MTU); err != nil {
			return err
		}
		if v4 := sub.Prefix.Addr().Is4(); seen[v4] {
			return fmt.Errorf("subnet %s: a network has at most one subnet per address family", sub.Prefix)
		} else {
			seen[v4] = true
		}
	}
	return errors.Join(n.validateParts(), n.validateOverlay())
}

// validateParts checks the parts of the subnets that this host and others have.
func (n Network) validateParts() error {
	within := func(r netip.Prefix) bool {
		return r.IsValid() && slices.ContainsFunc(n.Subnets, func(s Subnet) bool { return s.holds(r) })
	}
	for _, r := range n.FurtherRanges {
		if !within(r) {
			return fmt.Errorf("range %s: want a part of a subnet of the network", r)
		}
	}
	if len(n.Remote) > 0 && !n.Traits().Remote {
		return fmt.Errorf("remote: only networks with driver %s have parts on other hosts, and this network has driver %s: omit it",
			OneOf(Drivers(func(t Traits) bool { return t.Remote })), n.Driver)
	}
	for _, r := range n.Remote {
		if !within(r.To) || !r.Via.IsValid() || r.Via.Is4() != r.To.Addr().Is4() {
			return fmt.Errorf("remote %s via %s: want a part of a subnet and the address of a host, of the same family",
				r.To, r.Via)
		}
	}
	return nil
}

func (s Subnet) validate(mtu int) error {
	if !s.Prefix.IsValid() {
		return errors.New("subnet: want an address and a prefix length, e.g. 172.30.0.0/24")
	}
	if s.Prefix.Addr().Is4In6() {
		return fmt.Errorf("subnet %s: write an IPv4 range in IPv4 notation", s.Prefix)
	}
	if s.Prefix.Addr().BitLen()-s.Prefix.Bits() < 2 {
		return fmt.Errorf("subnet %s: it has no room for a gateway and a sandbox", s.Prefix)
	}
	if s.Prefix.Addr().Is6() && mtu != 0 && mtu < 1280 {
		return fmt.Errorf("mtu %d: IPv6 needs 1280 bytes or more", mtu)
	}
	if s.Range.IsValid() && (!s.Prefix.Overlaps(s.Range) || s.Range.Bits() < s.Prefix.Bits()) {
		return fmt.Errorf("range %s: want a part of the subnet %s", s.Range, s.Prefix)
	}
	for _, a := range []netip.Addr{s.HostAddress(), s.GatewayAddress()} {
		if !s.Prefix.Contains(a) {
			return fmt.Errorf("address %s is outside the subnet %s", a, s.Prefix)
		}
		if !s.Usable(a) {
			return fmt.Errorf("address %s is the first or the broadcast address of %s: choose another", a, s.Prefix)
		}
	}
	return nil
}

// overlap compares the subnets of network i with those of the networks before it.
func (s State) overlap(i int) error {
	for _, o := range s.Networks[:i] {
		for _, a := range s.Networks[i].Subnets {
			for _, b := range o.Subnets {
				if a.Prefix.IsValid() && b.Prefix.IsValid() && a.Prefix.Overlaps(b.Prefix) {
					return fmt.Errorf("network %s: subnet %s overlaps %s of network %s: choose another",
						s.Networks[i].Name, a.Prefix, b.Prefix, o.Name)
				}
			}
		}
	}
	return nil
}

func (s index) validateEndpoint(e Endpoint) error {
	if err := ValidName(e.Name); err != nil {
		return err
	}
	n, ok := s.network(e.Network)
	if !ok {
		return fmt.Errorf("there is no network %q: add it, or name one of %s", e.Network, s.networkNames())
	}
	if err := errors.Join(validText("sandbox", e.Sandbox), validText("cgroup", e.Cgroup)); err != nil {
		return err
	}
	if (e.Sandbox == "") != n.Traits().HostNetns {
		return fmt.Errorf("sandbox %q: every driver but host needs the path of a network namespace, and host takes none", e.Sandbox)
	}
	if e.Sandbox != "" && !strings.HasPrefix(e.Sandbox, "/") {
		return fmt.Errorf("sandbox %q: want an absolute path, e.g. /run/netns/web", e.Sandbox)
	}
	if err := errors.Join(e.validateCgroup(n), e.validateLink(), s.validateDevice(n, e),
		s.validateSubLink(n, e)); err != nil {
		return err
	}
	if err := ValidInterface(e.InterfaceName()); err != nil {
		return err
	}
	if e.HostInterface != "" && (n.Traits().NoLink || n.Traits().MovesDevice) {
		return fmt.Errorf("hostInterface %s: driver %s has no link that another program can move into the sandbox",
			e.HostInterface, n.Driver)
	}
	if len(e.Prefixes) > 0 && len(n.Subnets) > 0 {
		return fmt.Errorf("address %s: network %s has subnets: want an address in one of them, without a prefix length",
			e.Prefixes[0], n.Name)
	}
	for i, a := range e.Addresses {
		if slices.ContainsFunc(e.Addresses[:i], func(b netip.Addr) bool { return a.Is4() == b.Is4() }) {
			return fmt.Errorf("address %s: an endpoint has at most one address per family", a)
		}
		i := slices.IndexFunc(n.Subnets, func(sub Subnet) bool { return sub.Prefix.Contains(a) })
		if i < 0 {
			return fmt.Errorf("address %s is in no subnet of network %s", a, n.Name)
		}
		if !n.Subnets[i].Usable(a) {
			return fmt.Errorf("address %s is the first or the broadcast address of %s: choose another", a,
				n.Subnets[i].Prefix)
		}
		// On a parent's LAN, the driver checks which addresses are in use.
		if !n.Traits().SubLinks && (a == n.Subnets[i].HostAddress() || a == n.Subnets[i].GatewayAddress()) {
			return fmt.Errorf("address %s is the gateway's", a)
		}
	}
	return s.twice(e)
}

// validateLink checks an endpoint's link settings and routes.
func (e Endpoint) validateLink() error {
	if e.MAC != "" && !unicast(e.MAC) {
		return fmt.Errorf("mac %q: want a unicast address of six bytes, e.g. 02:42:ac:11:00:02", e.MAC)
	}
	for i, prefix := range e.Prefixes {
		if !prefix.IsValid() || prefix.Addr().Is4In6() || prefix.Addr().IsUnspecified() || prefix.Addr().IsMulticast() {
			return fmt.Errorf("address %s: want an address and a prefix length, e.g. 192.0.2.7/24", prefix)
		}
		if slices.ContainsFunc(e.Prefixes[:i],
			func(p netip.Prefix) bool { return p.Addr().Is4() == prefix.Addr().Is4() }) {
			return fmt.Errorf("address %s: an endpoint has at most one address per family", prefix)
		}
	}
	for i, g := range e.Gateways {
		if !g.IsValid() || slices.ContainsFunc(e.Gateways[:i], func(o netip.Addr) bool { return o.Is4() == g.Is4() }) {
			return fmt.Errorf("gateway %s: want at most one per address family", g)
		}
	}
	for _, r := range e.Routes {
		switch {
		case !r.To.IsValid() || r.To != r.To.Masked():
			return fmt.Errorf("route to %s: want an address range, e.g. 10.0.0.0/8", r.To)
		case r.Via.IsValid() && r.Via.Is4() != r.To.Addr().Is4():
			return fmt.Errorf("route to %s via %s: want both of the same address family", r.To, r.Via)
		}
	}
	for direction, rate := range map[string]uint64{"out": e.Limit.Out, "in": e.Limit.In} {
		if rate != 0 && rate < minLimit {
			return fmt.Errorf("limit %s %d bit/s: want at least %d", direction, rate, minLimit)
		}
	}
	return nil
}

// unicast reports whether the text is a unicast hardware address.
func unicast(mac string) bool {
	bytes := strings.Split(mac, ":")
	for i, b := range bytes {
		n, err := strconv.ParseUint(b, 16, 8)
		if err != nil || len(b) != 2 || i == 0 && n&1 != 0 {
			return false
		}
	}
	return len(bytes) == 6
}

// minLimit is the lowest limit in bits per second. With less, a token bucket that
// holds one large segment takes seconds to fill.
const minLimit = 64_000

func (e Endpoint) validateCgroup(n Network) error {
	switch e.Unpublished {
	case "", UnpublishedLoopback, UnpublishedDeny, UnpublishedAllow:
	default:
		return fmt.Errorf("unpublished %q: want loopback, deny or allow", e.Unpublished)
	}
	switch {
	case e.Cgroup == "" && e.Unpublished != "":
		return fmt.Errorf("unpublished %s: only endpoints with a cgroup have this policy: set a cgroup, or omit the policy", e.Unpublished)
	case e.Cgroup == "":
		return nil
	case !n.Traits().HostNetns:
		return fmt.Errorf("cgroup %s: only endpoints of driver host have one, as others have a sandbox", e.Cgroup)
	case !path.IsAbs(e.Cgroup) || path.Clean(e.Cgroup) != e.Cgroup:
		return fmt.Errorf("cgroup %q: want an absolute path without . and .., e.g. /sys/fs/cgroup/system.slice/nginx.service", e.Cgroup)
	}
	return nil
}

// within reports whether a cgroup is the other one or is below it.
func within(cgroup, other string) bool {
	return other != "" && (cgroup == other || strings.HasPrefix(cgroup, other+"/"))
}

func (s State) networkNames() string {
	var names []string
	for _, n := range s.Networks {
		names = append(names, n.Name)
	}
	return "[" + strings.Join(names, ", ") + "]"
}

func (s index) validatePublish(p Publish) error {
	e, ok := s.endpoint(p.Endpoint)
	if !ok {
		return fmt.Errorf("there is no endpoint %q", p.Endpoint)
	}
	if n, _ := s.network(e.Network); n.Internal {
		return fmt.Errorf("network %s is internal: its endpoints cannot be published", n.Name)
	}
	if p.Proto != TCP && p.Proto != UDP {
		return fmt.Errorf("protocol %q: want tcp or udp", p.Proto)
	}
	if p.HostAddr.Is4In6() || p.HostAddr.Zone() != "" {
		return fmt.Errorf("host address %s: want IPv4 in IPv4 notation, and IPv6 without a zone", p.HostAddr)
	}
	if p.HostPorts.First == 0 || p.Ports.First == 0 || p.HostPorts.Len() < 1 {
		return fmt.Errorf("ports %s to %s: want 1 to 65535, the first no greater than the last", p.HostPorts, p.Ports)
	}
	if p.HostPorts.Len() != p.Ports.Len() {
		return fmt.Errorf("%d host ports for %d container ports: both ranges must have the same length",
			p.HostPorts.Len(), p.Ports.Len())
	}
	if p.ProxyProtocol < 0 || p.ProxyProtocol > 2 {
		return fmt.Errorf("PROXY protocol version %d: want 1 or 2, or 0 for none", p.ProxyProtocol)
	}
	return nil
}
