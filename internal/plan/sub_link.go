package plan

import (
	"fmt"

	"fairlead/internal/escape"
)

// The kinds of link that branch from a parent.
const (
	Macvlan Kind = "macvlan"
	IPvlan  Kind = "ipvlan"
	VLAN    Kind = "vlan"
)

// SubLink is a network interface that shares the wire of a link of the host,
// its parent. The kernel makes it in the namespace where it belongs, so the
// host never sees it pass by.
type SubLink struct {
	// Netns is the path of the namespace that holds the interface; empty is the
	// engine's host, where the parent always is.
	Netns string
	Name  string
	Kind  Kind
	// Mode is that of macvlan and ipvlan, e.g. "bridge" or "l2".
	Mode   string
	Parent string
	// VLAN is the VLAN ID of kind vlan.
	VLAN uint16
	MTU  int
	// MAC is the hardware address; empty leaves the kernel's choice, which is
	// the parent's for ipvlan, vlan and a macvlan in mode passthru.
	MAC string
	// Owner completes the alias: the network's or endpoint's name.
	Owner string
	// Inside says that somebody else takes the interface from the host into a
	// sandbox: into that of the path, if it is there. How it is then is not ours.
	Inside string
	// IPv6 is the link's mode.
	IPv6 IPv6
	// Quiet is for branches that the host itself holds: it answers ARP only to those whom its routes reach by the
	// branch, and asks only in the name of the branch's own address. Otherwise it
	// would speak on the parent's wire by two links, and who hears its question
	// would look for all of the host there, also when the branch has gone.
	Quiet bool
}

// Ends implements linker.
func (b SubLink) Ends() []string { return []string{end(b.Netns, b.Name)} }

// adjusts reports whether the link can be brought from old to this state.
func (b SubLink) adjusts(old Object) bool {
	o, ok := old.(SubLink)
	return ok && o.Kind == b.Kind && o.Mode == b.Mode && o.Parent == b.Parent && o.VLAN == b.VLAN &&
		(o.Inside == "") == (b.Inside == "")
}

// base is the parent, which may be a branch itself.
func (b SubLink) base() string { return end("", b.Parent) }

// Alias returns the link's mark.
func (b SubLink) Alias() string { return Mark + ":" + b.Owner }

// Key implements Object. It is that of any link of the name.
func (b SubLink) Key() string { return Link{Netns: b.Netns, Name: b.Name}.Key() }

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
	set := fmt.Sprintf("%s link set %s alias %s", in(b.Netns, "ip"), escape.Shell(b.Name), escape.Shell(b.Alias()))
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
	return fmt.Sprintf("sysctl -w net.ipv4.conf.%[1]s.arp_filter=1 net.ipv4.conf.%[1]s.arp_announce=2", escape.Shell(b.Name))
}

// change returns the commands that bring the link from another state.
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
