package plan

import (
	"fmt"
	"net/netip"
	"strings"

	"fairlead/internal/escape"
)

// Kind is the type of a link, as in `ip link add … type KIND`.
type Kind string

// The kinds of link. Loopback exists in every namespace; Add only sets it up.
const (
	Loopback Kind = "loopback"
	Bridge   Kind = "bridge"
	Veth     Kind = "veth"
)

// Link is a network interface. Every link that Fairlead creates has an alias that
// starts with Mark.
type Link struct {
	// Netns is the path of the namespace; empty is the engine's namespace.
	Netns string
	Name  string
	Kind  Kind
	MTU   int
	// MAC is the hardware address, e.g. "02:f1:0a:00:00:02"; empty keeps the
	// kernel's choice.
	MAC string
	// Owner completes the alias: the name of the network or endpoint.
	Owner string
	// Group is the link's device group; 0 leaves an existing link's group as it is.
	Group LinkGroup
	// Filter makes a bridge pass its frames to the IP rules, regardless of the
	// host's bridge-nf-call sysctls.
	Filter bool
	// Master is the bridge that this link is a port of. Hairpin is the port's mode.
	Master  string
	Hairpin bool
	// Peer, PeerNetns and PeerMAC describe the other end of a veth.
	Peer      string
	PeerNetns string
	PeerMAC   string
	// Inside is true if the other end is created on the host for another program (a
	// container engine), which moves it into the sandbox with the path Sandbox. After
	// that, Fairlead does not manage the other end, except that both ends get
	// another MTU together.
	Inside  bool
	Sandbox string
	// IPv6 and PeerIPv6 are the modes of the link and of the other end of a veth.
	IPv6, PeerIPv6 IPv6
}

// Ends returns the link's ends. A veth pair has two, possibly in different
// namespaces.
func (l Link) Ends() []string {
	ends := []string{end(l.Netns, l.Name)}
	if l.Kind == Veth {
		ends = append(ends, end(l.PeerNetns, l.Peer))
	}
	return ends
}

func end(netns, name string) string { return netns + " " + name }

// adjusts reports whether the link can be changed from old to this state without
// being recreated. A loopback always exists.
func (l Link) adjusts(old Object) bool {
	o, ok := old.(Link)
	return l.Kind == Loopback || ok && o.Kind == l.Kind && o.Peer == l.Peer && o.PeerNetns == l.PeerNetns &&
		o.Inside == l.Inside
}

// Alias returns the link's alias, which starts with Mark.
func (l Link) Alias() string { return Mark + ":" + l.Owner }

// Key implements Object.
func (l Link) Key() string { return keyed("link", l.Netns, l.Name) }

func (l Link) netns() string { return l.Netns }

// Add implements Object.
func (l Link) Add() []string {
	ip := in(l.Netns, "ip")
	if l.Kind == Loopback {
		return []string{ip + " link set lo up"}
	}
	make := fmt.Sprintf("%s link add %s", ip, escape.Shell(l.Name))
	if l.MAC != "" {
		make += " address " + l.MAC
	}
	make += fmt.Sprintf(" mtu %d type %s", l.MTU, l.Kind)
	if l.Filter {
		make += " nf_call_iptables 1 nf_call_ip6tables 1"
	}
	if l.Kind == Veth {
		make += fmt.Sprintf(" peer name %s address %s mtu %d", escape.Shell(l.Peer), l.PeerMAC, l.MTU)
	}
	if l.Kind == Veth && !l.Inside {
		make += " netns " + escape.Shell(netnsName(l.PeerNetns))
	}
	cmds := append([]string{make}, writeSettings(l.settings())...)
	set := fmt.Sprintf("%s link set %s alias %s%s", ip, escape.Shell(l.Name), escape.Shell(l.Alias()), l.Group.option())
	if l.Master != "" {
		set += " master " + escape.Shell(l.Master)
	}
	cmds = append(cmds, set+" up")
	if l.Master != "" {
		cmds = append(cmds, fmt.Sprintf("%s link set %s type bridge_slave hairpin %s", ip, escape.Shell(l.Name),
			onOff(l.Hairpin)))
	}
	if l.Kind == Veth && !l.Inside {
		cmds = append(cmds, in(l.PeerNetns, "ip")+" link set "+escape.Shell(l.Peer)+" up")
	}
	return cmds
}

// change implements changer.
func (l Link) change(old Object) []string {
	if !l.adjusts(old) {
		return append(old.Del(), l.Add()...)
	}
	o := old.(Link)
	ip := in(l.Netns, "ip") + " link set " + escape.Shell(l.Name)
	var cmds []string
	if o.MTU != l.MTU {
		cmds = append(cmds, fmt.Sprintf("%s mtu %d", ip, l.MTU))
	}
	if o.MAC != l.MAC && l.MAC != "" {
		cmds = append(cmds, ip+" address "+l.MAC)
	}
	if o.Group != l.Group && l.Group != 0 {
		cmds = append(cmds, ip+l.Group.option())
	}
	if o.Filter != l.Filter {
		flag := map[bool]int{true: 1}[l.Filter]
		cmds = append(cmds, fmt.Sprintf("%s type bridge nf_call_iptables %d nf_call_ip6tables %d", ip, flag, flag))
	}
	if o.IPv6 != l.IPv6 || o.PeerIPv6 != l.PeerIPv6 {
		cmds = append(cmds, writeSettings(l.settings())...)
	}
	return append(append(cmds, l.changePort(o, ip)...), l.changePeer(o)...)
}

func (l Link) changePort(o Link, ip string) []string {
	var cmds []string
	if o.Master != l.Master && l.Master == "" {
		return []string{ip + " nomaster"}
	}
	if o.Master != l.Master {
		cmds = append(cmds, ip+" master "+escape.Shell(l.Master))
	}
	if l.Master != "" && (o.Master != l.Master || o.Hairpin != l.Hairpin) {
		cmds = append(cmds, ip+" type bridge_slave hairpin "+onOff(l.Hairpin))
	}
	return cmds
}

func (l Link) changePeer(o Link) []string {
	if l.Kind != Veth || l.Inside {
		return nil
	}
	var cmds []string
	ip := in(l.PeerNetns, "ip") + " link set " + escape.Shell(l.Peer)
	if o.MTU != l.MTU {
		cmds = append(cmds, fmt.Sprintf("%s mtu %d", ip, l.MTU))
	}
	if o.PeerMAC != l.PeerMAC {
		cmds = append(cmds, ip+" address "+l.PeerMAC)
	}
	return cmds
}

// Del implements Object.
func (l Link) Del() []string {
	if l.Kind == Loopback {
		return nil
	}
	return []string{in(l.Netns, "ip") + " link del " + escape.Shell(l.Name)}
}

// Address is an IP address on a link.
type Address struct {
	Netns  string
	Link   string
	Prefix netip.Prefix
}

// Key implements Object.
func (a Address) Key() string { return keyed("address", a.Netns, a.Link+" "+a.Prefix.Addr().String()) }

func (a Address) netns() string { return a.Netns }

// Add implements Object. IPv6 addresses skip duplicate address detection, because
// the lease guarantees that they are unique, and detection would delay the service
// by one second.
func (a Address) Add() []string { return []string{a.command("replace") + a.flags()} }

// Del implements Object.
func (a Address) Del() []string { return []string{a.command("del")} }

// change implements changer. It changes the prefix length. The kernel does not add
// an IPv6 address twice, so the old one is deleted first. A link loses its IPv4
// routes with its last IPv4 address, so the new one is added first.
func (a Address) change(old Object) []string {
	if a.Prefix.Addr().Is4() {
		return append(a.Add(), old.Del()...)
	}
	return append(old.Del(), a.Add()...)
}

func (a Address) base() string { return end(a.Netns, a.Link) }

func (a Address) command(verb string) string {
	return fmt.Sprintf("%s addr %s %s dev %s", in(a.Netns, "ip"), verb, a.Prefix, escape.Shell(a.Link))
}

// flags returns the options that package kernel sets besides the prefix.
func (a Address) flags() string {
	switch {
	case a.Prefix.Addr().Is6():
		return " nodad"
	case a.Prefix.Bits() < 31:
		return " brd +"
	}
	return ""
}

// Route is an entry of the main routing table.
type Route struct {
	Netns string
	// To is the destination; 0.0.0.0/0 and ::/0 are the default routes.
	To netip.Prefix
	// Via is the next hop; the zero value means directly on the link.
	Via  netip.Addr
	Link string
	// Src is the host's source address; the zero value keeps the kernel's choice.
	Src netip.Addr
}

// Key implements Object.
func (r Route) Key() string { return keyed("route", r.Netns, r.To.String()+" "+r.Link) }

func (r Route) netns() string { return r.Netns }

// Add implements Object.
func (r Route) Add() []string { return []string{r.command("replace")} }

// Del implements Object.
func (r Route) Del() []string { return []string{r.command("del")} }

func (r Route) base() string { return end(r.Netns, r.Link) }

func (r Route) command(verb string) string {
	parts := []string{in(r.Netns, "ip")}
	if r.To.Addr().Is6() {
		parts = append(parts, "-6")
	}
	to := r.To.String()
	if r.To.Bits() == 0 {
		to = "default"
	}
	parts = append(parts, "route", verb, to)
	if r.Via.IsValid() {
		parts = append(parts, "via", r.Via.String())
	}
	parts = append(parts, "dev", escape.Shell(r.Link), "proto", fmt.Sprint(RouteProtocol))
	if r.Src.IsValid() {
		parts = append(parts, "src", r.Src.String())
	}
	return strings.Join(parts, " ")
}

// Sysctl is a kernel setting. Removing it restores the value that the host had
// before Fairlead changed it.
type Sysctl struct {
	Netns string
	// Name is dotted, as sysctl(8) prints it: a dot in a link's name is a slash.
	Name  string
	Value string
	// Unless is a value that Fairlead leaves unchanged, because another program turned
	// something off with it. The setting is then that of another program's link: if
	// the link does not exist, there is nothing to set.
	Unless string
}

// LinkSetting returns the name of a setting of a link. The family is ipv4 or ipv6.
func LinkSetting(family, link, setting string) string {
	return "net." + family + ".conf." + strings.ReplaceAll(link, ".", "/") + "." + setting
}

// LinkForwarding makes the host route packets of a family (IPv4 if v4) that arrive at
// a link.
func LinkForwarding(v4 bool, link string) Sysctl {
	family := "ipv6"
	if v4 {
		family = "ipv4"
	}
	return Sysctl{Name: LinkSetting(family, link, "forwarding"), Value: "1"}
}

// AcceptRA makes the host accept router advertisements on a link although it forwards
// IPv6 packets. With the value 1 it accepts them only while it does not
// (Documentation/networking/ip-sysctl.rst).
func AcceptRA(link string) Sysctl {
	return Sysctl{Name: LinkSetting("ipv6", link, "accept_ra"), Value: "2", Unless: "0"}
}

// Allows reports whether the setting may have the value.
func (s Sysctl) Allows(value string) bool {
	return value == s.Value || s.Unless != "" && value == s.Unless
}

// Link returns the link of a setting such as net.ipv4.conf.eth0.forwarding; empty if
// it is not a setting of a link.
func (s Sysctl) Link() string {
	parts := strings.Split(s.Name, ".")
	if len(parts) != 5 || parts[2] != "conf" || parts[3] == "all" || parts[3] == "default" {
		return ""
	}
	return strings.ReplaceAll(parts[3], "/", ".")
}

// IPForwarding makes the host route packets of a family (IPv4 if v4).
func IPForwarding(v4 bool) Sysctl {
	if v4 {
		return Sysctl{Name: "net.ipv4.ip_forward", Value: "1"}
	}
	return Sysctl{Name: "net.ipv6.conf.all.forwarding", Value: "1"}
}

// Key implements Object.
func (s Sysctl) Key() string { return keyed("sysctl", s.Netns, s.Name) }

func (s Sysctl) netns() string { return s.Netns }

func (s Sysctl) base() string {
	if link := s.Link(); link != "" {
		return end(s.Netns, link)
	}
	return ""
}

// Inherited returns the setting from which a new link gets the initial value of
// this one; false if this is not a setting of a link.
func (s Sysctl) Inherited() (Sysctl, bool) {
	if s.Link() == "" {
		return s, false
	}
	parts := strings.Split(s.Name, ".")
	parts[3] = "default"
	s.Name = strings.Join(parts, ".")
	return s, true
}

// Add implements Object.
func (s Sysctl) Add() []string {
	return []string{fmt.Sprintf("%s -w %s=%s", in(s.Netns, "sysctl"), escape.Shell(s.Name), s.Value)}
}

// Del implements Object. Only the engine knows the earlier value.
func (s Sysctl) Del() []string {
	return []string{fmt.Sprintf("# %s %s gets back its earlier value", in(s.Netns, "sysctl"), escape.Shell(s.Name))}
}

func netnsName(path string) string {
	if path == "" {
		return "1"
	}
	if name, ok := strings.CutPrefix(path, "/run/netns/"); ok {
		return name
	}
	return path
}

func onOff(b bool) string {
	if b {
		return "on"
	}
	return "off"
}
