package plan

import (
	"fmt"
	"net/netip"

	"fairlead/internal/escape"
)

// Tunnel is a VXLAN link that is a port of a bridge (RFC 7348). The bridge answers
// ARP and neighbour solicitations for addresses behind the tunnel if it knows the
// answer.
type Tunnel struct {
	Name string
	VNI  uint32
	// Port is the UDP port. It is always set, because the kernel's default, 8472,
	// is not the assigned port.
	Port uint16
	// Local is the host's address. If it is unspecified, the route to each peer
	// selects the address, and Local only names the peers' family.
	Local netip.Addr
	// Underlay is the link that carries the tunnel; empty lets routes select it.
	Underlay string
	// Group is the multicast group that gets frames for unknown destinations.
	Group netip.Addr
	// Learning records the host of each sender. The kernel drops a packet from
	// another host than the recorded one, so every host must send from one address
	// only.
	Learning bool
	MTU      int
	// MAC is the hardware address. It is the bridge's, so that the bridge accepts
	// frames for the host that leave the tunnel.
	MAC string
	// Owner completes the alias: the network's name.
	Owner  string
	Master string
	// IPv6 is the link's mode.
	IPv6 IPv6
}

// Ends implements linker.
func (t Tunnel) Ends() []string { return []string{end("", t.Name)} }

// adjusts implements linker.
func (t Tunnel) adjusts(old Object) bool {
	o, ok := old.(Tunnel)
	return ok && t.Adjusts(o)
}

// Adjusts reports whether an existing link can be changed from old to this state.
// The kernel can change few settings of an existing VXLAN link.
func (t Tunnel) Adjusts(old Tunnel) bool {
	old.MTU, old.MAC, old.Owner, old.Master, old.IPv6 = t.MTU, t.MAC, t.Owner, t.Master, t.IPv6
	return old == t
}

// Alias returns the link's alias, which starts with Mark.
func (t Tunnel) Alias() string { return Mark + ":" + t.Owner }

// Key implements Object. It equals the key of any link with this name.
func (t Tunnel) Key() string { return Link{Name: t.Name}.Key() }

// Add implements Object.
func (t Tunnel) Add() []string {
	ip := "ip"
	if t.Local.Is6() {
		ip = "ip -6"
	}
	add := fmt.Sprintf("%s link add %s address %s mtu %d type vxlan id %d dstport %d", ip, escape.Shell(t.Name), t.MAC,
		t.MTU, t.VNI, t.Port)
	if !t.Local.IsUnspecified() {
		add += " local " + t.Local.String()
	}
	if t.Group.IsValid() {
		add += " group " + t.Group.String()
	}
	if t.Underlay != "" {
		add += " dev " + escape.Shell(t.Underlay)
	}
	if !t.Learning {
		add += " nolearning"
	}
	return append([]string{add}, t.set()...)
}

// set implements settable.
func (t Tunnel) set() []string {
	return append(writeSettings(t.settings()),
		fmt.Sprintf("ip link set %s alias %s address %s mtu %d addrgenmode none master %s up", escape.Shell(t.Name),
			escape.Shell(t.Alias()), t.MAC, t.MTU, escape.Shell(t.Master)),
		fmt.Sprintf("ip link set %s type bridge_slave neigh_suppress on", escape.Shell(t.Name)))
}

// Del implements Object.
func (t Tunnel) Del() []string { return []string{"ip link del " + escape.Shell(t.Name)} }

// Forwarding maps a hardware address to the host of a tunnel behind which it is.
// The hardware address Unknown stands for all unknown destinations: each host with
// such an entry gets a copy.
type Forwarding struct {
	Link string
	MAC  string
	// Remote is the host's address.
	Remote netip.Addr
	// Underlay is the link of the route to the host, if the address does not
	// determine it (link-local).
	Underlay string
}

// Unknown is the hardware address that stands for all unknown destinations.
const Unknown = "00:00:00:00:00:00"

// Floods reports whether the host gets frames for unknown destinations.
func (f Forwarding) Floods() bool { return f.MAC == Unknown }

// Key implements Object.
func (f Forwarding) Key() string {
	if f.Floods() {
		return "fdb " + f.Link + " " + f.MAC + " " + f.Remote.String()
	}
	return "fdb " + f.Link + " " + f.MAC
}

// Add implements Object. The entry is also added to the bridge, which would flood
// the frames to all its ports without it.
func (f Forwarding) Add() []string {
	if f.Floods() {
		return []string{"bridge fdb append " + f.entry() + " self permanent"}
	}
	return []string{"bridge fdb replace " + f.entry() + " self master static"}
}

// Del implements Object. With the entry for unknown destinations, it also deletes
// the entries that the link has learned for the host.
func (f Forwarding) Del() []string {
	if f.Floods() {
		return []string{"bridge fdb del " + f.entry() + " self",
			fmt.Sprintf("bridge fdb flush dev %s self dst %s dynamic", escape.Shell(f.Link), f.Remote)}
	}
	return []string{"bridge fdb del " + f.entry() + " self master"}
}

func (f Forwarding) entry() string {
	e := fmt.Sprintf("%s dev %s dst %s", f.MAC, escape.Shell(f.Link), f.Remote)
	if f.Underlay != "" {
		e += " via " + escape.Shell(f.Underlay)
	}
	return e
}

func (f Forwarding) base() string { return end("", f.Link) }

// Neighbor is a permanent neighbour entry, which makes ARP and neighbour discovery
// for the address unnecessary.
type Neighbor struct {
	Link string
	Addr netip.Addr
	MAC  string
}

// Key implements Object.
func (n Neighbor) Key() string { return "neighbor " + n.Link + " " + n.Addr.String() }

// Add implements Object.
func (n Neighbor) Add() []string {
	return []string{fmt.Sprintf("ip neigh replace %s lladdr %s dev %s nud permanent", n.Addr, n.MAC,
		escape.Shell(n.Link))}
}

// Del implements Object.
func (n Neighbor) Del() []string {
	return []string{fmt.Sprintf("ip neigh del %s dev %s", n.Addr, escape.Shell(n.Link))}
}

func (n Neighbor) base() string { return end("", n.Link) }
