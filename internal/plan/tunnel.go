package plan

import (
	"fmt"
	"net/netip"

	"fairlead/internal/escape"
)

// Tunnel is a VXLAN link that is a port of a bridge (RFC 7348). The bridge
// answers ARP and neighbour solicitations for what is behind it, as far as it
// knows the answer.
type Tunnel struct {
	Name string
	VNI  uint32
	// Port is the UDP port. It is always given: the kernel's own default, 8472,
	// is nobody's.
	Port uint16
	// Local is the host's address; unspecified, it is the route's to each peer,
	// and says only which family they are of.
	Local netip.Addr
	// Underlay is the link that carries the tunnel; empty leaves it to routes.
	Underlay string
	// Group is the multicast group that gets what has no known place.
	Group netip.Addr
	// Learning notes behind which host a sender is. A packet from another
	// address than the known one is dropped, so it needs hosts that speak from
	// one address each.
	Learning bool
	MTU      int
	// MAC is the hardware address, the bridge's: so that frames for the host are
	// known as such when they come out.
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

// Adjusts reports whether a living link can be brought from old to this state:
// the kernel changes hardly anything of a VXLAN that is there.
func (t Tunnel) Adjusts(old Tunnel) bool {
	old.MTU, old.MAC, old.Owner, old.Master, old.IPv6 = t.MTU, t.MAC, t.Owner, t.Master, t.IPv6
	return old == t
}

// Alias returns the link's mark.
func (t Tunnel) Alias() string { return Mark + ":" + t.Owner }

// Key implements Object. It is that of any link of the name.
func (t Tunnel) Key() string { return Link{Name: t.Name}.Key() }

// Add implements Object.
func (t Tunnel) Add() []string {
	ip := "ip"
	if t.Local.Is6() {
		ip = "ip -6"
	}
	add := fmt.Sprintf("%s link add %s address %s mtu %d type vxlan id %d dstport %d", ip, escape.Shell(t.Name), t.MAC, t.MTU, t.VNI, t.Port)
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

// set returns the commands that a new link and an adjusted one have in common.
func (t Tunnel) set() []string {
	return append(writeSettings(t.settings()),
		fmt.Sprintf("ip link set %s alias %s address %s mtu %d addrgenmode none master %s up", escape.Shell(t.Name), escape.Shell(t.Alias()), t.MAC, t.MTU, escape.Shell(t.Master)),
		fmt.Sprintf("ip link set %s type bridge_slave neigh_suppress on", escape.Shell(t.Name)))
}

// change returns the commands that bring the link from another state.
func (t Tunnel) change(old Object) []string {
	if t.adjusts(old) {
		return t.set()
	}
	return append(old.Del(), t.Add()...)
}

// Del implements Object.
func (t Tunnel) Del() []string { return []string{"ip link del " + escape.Shell(t.Name)} }

// Forwarding says behind which host of a tunnel a hardware address is. That
// of zeroes stands for all that are not known: each host listed so gets a copy.
type Forwarding struct {
	Link string
	MAC  string
	// Remote is the host's address.
	Remote netip.Addr
	// Underlay is the link that leads there, where the address does not say it
	// (link-local).
	Underlay string
}

// Unknown is the hardware address that stands for all that are not known.
const Unknown = "00:00:00:00:00:00"

// Floods reports whether the host gets what has no known place.
func (f Forwarding) Floods() bool { return f.MAC == Unknown }

// Key implements Object.
func (f Forwarding) Key() string {
	if f.Floods() {
		return "fdb " + f.Link + " " + f.MAC + " " + f.Remote.String()
	}
	return "fdb " + f.Link + " " + f.MAC
}

// Add implements Object. The bridge must know the way to the tunnel too, or it
// would ask all its ports.
func (f Forwarding) Add() []string {
	if f.Floods() {
		return []string{"bridge fdb append " + f.entry() + " self permanent"}
	}
	return []string{"bridge fdb replace " + f.entry() + " self master static"}
}

// Del implements Object. With a host goes what the link has learnt of it.
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

// Neighbor is a permanent neighbour entry: nobody has to ask for the address.
type Neighbor struct {
	Link string
	Addr netip.Addr
	MAC  string
}

// Key implements Object.
func (n Neighbor) Key() string { return "neighbor " + n.Link + " " + n.Addr.String() }

// Add implements Object.
func (n Neighbor) Add() []string {
	return []string{fmt.Sprintf("ip neigh replace %s lladdr %s dev %s nud permanent", n.Addr, n.MAC, escape.Shell(n.Link))}
}

// Del implements Object.
func (n Neighbor) Del() []string {
	return []string{fmt.Sprintf("ip neigh del %s dev %s", n.Addr, escape.Shell(n.Link))}
}

func (n Neighbor) base() string { return end("", n.Link) }
