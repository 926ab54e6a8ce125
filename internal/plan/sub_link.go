package plan

import (
	"fmt"

	"fairlead/internal/escape"
)

// The kinds of link that depend on a parent.
const (
	Macvlan Kind = "macvlan"
	IPvlan  Kind = "ipvlan"
	VLAN    Kind = "vlan"
)

// SubLink is a network interface that shares the wire of a link of the host, its
// parent. The kernel creates it directly in its namespace, so the interface never
// appears on the host.
type SubLink struct {
	// Netns is the path of the interface's namespace. Empty is the engine's
	// namespace, where the parent always is.
	Netns string
	Name  string
	Kind  Kind
	// Mode is the mode of a macvlan or ipvlan, e.g. "bridge" or "l2".
	Mode   string
	Parent string
	// VLAN is the VLAN ID of kind vlan.
	VLAN uint16
	MTU  int
	// MAC is the hardware address. Empty keeps the kernel's choice: the parent's
	// for ipvlan, vlan and a macvlan in mode passthru.
	MAC string
	// Owner completes the alias: the network's or endpoint's name.
	Owner string
	// Group is the link's device group; 0 leaves an existing link's group as it is.
	Group LinkGroup
	// Inside is the path of a sandbox if another program (a container engine) moves
	// the interface from the host into that sandbox. Fairlead does not manage the
	// interface after that.
	Inside string
	// IPv6 is the link's mode.
	IPv6 IPv6
	// Quiet is for interfaces that stay on the host. The interface answers ARP only
	// to neighbours that the host's routes reach through it, and its ARP requests
	// name only its own address. If it were not quiet, the host would answer on the
	// parent's wire with two links, and neighbours would send all of the host's
	// traffic to this interface, even after it is removed.
	Quiet bool
}

// Ends implements linker.
func (b SubLink) Ends() []string { return []string{end(b.Netns, b.Name)} }

// Claims returns what only one of the interfaces can have: the names of the object's ends and, if it is a SubLink, its
// hardware address among the links of its parent, and its owner there. The owner stands for its IP addresses: links with
// the hardware address of their parent cannot have the same one.
func Claims(o Object) []string {
	claims := Ends(o)
	b, ok := o.(SubLink)
	if !ok {
		return claims
	}
	if b.MAC != "" {
		claims = append(claims, "on "+b.Parent+" "+b.MAC)
	}
	return append(claims, "on "+b.Parent+" of "+b.Owner)
}

// adjusts reports whether the link can be changed from old to this state without
// being recreated.
func (b SubLink) adjusts(old Object) bool {
	o, ok := old.(SubLink)
	return ok && o.Kind == b.Kind && o.Mode == b.Mode && o.Parent == b.Parent && o.VLAN == b.VLAN &&
		(o.Inside == "") == (b.Inside == "")
}

// base returns the parent, which may be a SubLink itself.
func (b SubLink) base() string { return end("", b.Parent) }

// Alias returns the link's alias, which starts with Mark.
func (b SubLink) Alias() string { return Mark + ":" + b.Owner }

// Key implements Object. It equals the key of any link with this name.
func (b SubLink) Key() string { return Link{Netns: b.Netns, Name: b.Name}.Key() }

func (b SubLink) netns() string { return b.Netns }

func (b SubLink) inSandbox() (netns, name string) { return b.Netns, b.Name }

// Add implements Object.
func (b SubLink) Add() []string {
	add := fmt.Sprintf("ip link add link %s name %s", escape.Shell(b.Parent), escape.Shell(b.Name))
	if b.Netns != "" {
		add += " netns " + escape.Shell(netnsName(b.Netns))
	}
	if b.MAC != "" {
		add += " address " + b.MAC
	}
	add += fmt.Sprintf(" mtu %d type %s", b.MTU, b.Kind)
	if b.Kind == VLAN {
		add += fmt.Sprintf(" id %d", b.VLAN)
	} else {
		add += " mode " + escape.Shell(b.Mode)
	}
	set := fmt.Sprintf("%s link set %s alias %s%s", in(b.Netns, "ip"), escape.Shell(b.Name), escape.Shell(b.Alias()),
		b.Group.option())
	if b.Inside != "" {
		return []string{add, set}
	}
	cmds := append([]string{add}, writeSettings(b.settings())...)
	if b.Quiet {
		cmds = append(cmds, b.quiet())
	}
	return append(cmds, set+" up")
}

func (b SubLink) quiet() string {
	return fmt.Sprintf("sysctl -w net.ipv4.conf.%[1]s.arp_filter=1 net.ipv4.conf.%[1]s.arp_announce=2",
		escape.Shell(b.Name))
}

// change implements changer.
func (b SubLink) change(old Object) []string {
	if !b.adjusts(old) {
		return append(old.Del(), b.Add()...)
	}
	o := old.(SubLink)
	if b.Inside != "" {
		return nil
	}
	ip := in(b.Netns, "ip") + " link set " + escape.Shell(b.Name)
	var cmds []string
	if o.MTU != b.MTU {
		cmds = append(cmds, fmt.Sprintf("%s mtu %d", ip, b.MTU))
	}
	if o.MAC != b.MAC && b.MAC != "" {
		cmds = append(cmds, ip+" address "+b.MAC)
	}
	if o.Owner != b.Owner {
		cmds = append(cmds, ip+" alias "+escape.Shell(b.Alias()))
	}
	if o.Group != b.Group && b.Group != 0 {
		cmds = append(cmds, ip+b.Group.option())
	}
	if o.IPv6 != b.IPv6 {
		cmds = append(cmds, writeSettings(b.settings())...)
	}
	if b.Quiet && !o.Quiet {
		cmds = append(cmds, b.quiet())
	}
	return cmds
}

// Del implements Object.
func (b SubLink) Del() []string {
	return []string{in(b.Netns, "ip") + " link del " + escape.Shell(b.Name)}
}
