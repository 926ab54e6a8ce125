package peer

import (
	"context"
	"fmt"
	"net/netip"

	"fairlead/internal/lab/program"
	"fairlead/internal/lab/result"
	"fairlead/internal/lab/rig"
	"fairlead/internal/lab/suite"
	"fairlead/internal/lab/topology"
	"fairlead/internal/model"
)

// handTunnel is the VXLAN link that is made by hand. vxlanHeaders is the size of
// the headers in bytes, which reduce the MTU: Ethernet, UDP and VXLAN (RFC 7348) and,
// by its version, IP.
const (
	handTunnel   = "vx0"
	vxlanHeaders = 14 + 8 + 8
	ipv4Header   = 20
	ipv6Header   = 40
)

// handMade attaches the workload's sandbox with the commands that an administrator
// would run, with the same result as the path's driver.
type handMade struct{ rig.Base }

func newHandMade(p suite.Path) rig.Maker {
	m := &handMade{rig.Base{Path: p}}
	if p.Driver == model.DriverVXLAN {
		return &handOverlay{m}
	}
	return m
}

// Needs implements rig.Maker.
func (*handMade) Needs() rig.Needs { return rig.Needs{Programs: []rig.Program{ipCommand}} }

// handLinks are the commands that move a link into the sandbox, with its network
// namespace as their argument.
var handLinks = map[model.Driver]string{
	model.DriverMacvlan: "ip link add link " + topology.Wire + " name eth0 netns %s type macvlan mode bridge\n",
	model.DriverIPvlan:  "ip link add link " + topology.Wire + " name eth0 netns %s type ipvlan mode l2\n",
	model.DriverDevice:  "ip link set " + topology.SecondWire + " name eth0 netns %s\n",
}

// Start implements rig.Maker.
func (h *handMade) Start(_ context.Context, r *rig.Rig) error {
	box, err := r.World.Sandbox(rig.Workload)
	if err != nil {
		return err
	}
	box = program.ForOthers(box)
	link, up := fmt.Sprintf(handLinks[h.Path.Driver], box), "ip link set eth0 up"
	if mac := r.World.SandboxMAC(); mac != nil && h.Path.Driver == model.DriverMacvlan {
		link, up = fmt.Sprintf(handExposed, box, mac, h.Path.MTU), "ip link set eth0 arp off up"
	}
	return runByHand(r.World.DoServer, link+fmt.Sprintf("nsenter --net=%s sh -ec 'ip addr add %s dev eth0%s; %s'\n",
		box, topology.Subnet(h.Addr()), noDAD(h.Addr()), up))
}

// handExposed is the macvlan's command between two machines: the path's maker on the
// other machine must know its address. The kernel creates it on the machine's link
// instead of the wire, and would give it that link's MTU.
const handExposed = "ip link add link " + topology.Wire +
	" name eth0 netns %s address %s mtu %d type macvlan mode private\n"

func runByHand(host func(func() error) error, script string) error {
	if _, err := program.Shell(host, script); err != nil {
		return fmt.Errorf("set up by hand: %w", err)
	}
	return nil
}

// handOverlay makes a VXLAN overlay of two hosts. Its entries are static: nothing is flooded or
// learned.
type handOverlay struct{ *handMade }

// Links implements rig.Maker.
func (h *handOverlay) Links(c result.Client) []rig.Link {
	return append([]rig.Link{{Name: handTunnel}}, h.handMade.Links(c)...)
}

// overlayEnd is one host of an overlay that is made by hand.
type overlayEnd struct {
	do            func(func() error) error
	name, link    string
	gateway, addr netip.Addr
	local, remote netip.Addr
	// others are the addresses of the other host and of its sandbox in the overlay.
	others []netip.Addr
}

// Start implements rig.Maker.
func (h *handOverlay) Start(_ context.Context, r *rig.Rig) error {
	at := h.Addresses()
	return h.end(r, overlayEnd{r.World.DoServer, rig.Workload, handLink, at.Gateway, at.Workload, at.Server, at.Client,
		[]netip.Addr{at.ClientGateway, at.Visitor}})
}

// Join implements rig.Joining.
func (h *handOverlay) Join(_ context.Context, r *rig.Rig) error {
	at := h.Addresses()
	return h.end(r, overlayEnd{r.World.DoClient, rig.Visitor, "vvisitor", at.ClientGateway, at.Visitor, at.Client,
		at.Server, []netip.Addr{at.Gateway, at.Workload}})
}

// end makes one host's end of the overlay.
func (h *handOverlay) end(r *rig.Rig, at overlayEnd) error {
	box, err := r.World.Sandbox(at.name)
	if err != nil {
		return err
	}
	mtu, subnet := h.Path.MTU-vxlanHeaders-ipv4Header, h.Addresses().Subnet
	if at.local.Is6() {
		mtu = h.Path.MTU - vxlanHeaders - ipv6Header
	}
	box = program.ForOthers(box)
	return runByHand(at.do, handFilter(h.Path.Filter)+handBridge(subnet, at.gateway, mtu)+
		fmt.Sprintf("ip link set br0 address %s\n", handMAC(at.gateway))+handVXLAN(at, mtu)+
		handBridged(at.link, box, subnet, at.gateway, at.addr, mtu)+
		fmt.Sprintf("nsenter --net=%s ip link set eth0 address %s\n", box, handMAC(at.addr)))
}

// handMAC returns the hardware address of the host or sandbox with an address.
func handMAC(a netip.Addr) string {
	b := a.As16()
	return fmt.Sprintf("02:00:00:00:%02x:%02x", b[8], b[15])
}

// handVXLAN returns the commands for the tunnel to the other host, as a port of the bridge, with the
// entries for the addresses there. The bridge answers ARP requests and neighbour solicitations for
// them.
func handVXLAN(at overlayEnd, mtu int) string {
	script := fmt.Sprintf("ip link add %[1]s mtu %d type vxlan id %d dstport 4789 dev %s local %s nolearning\n"+
		"ip link set %[1]s master br0 up\n"+
		"bridge link set dev %[1]s learning off neigh_suppress on\n",
		handTunnel, mtu, rig.VNI, topology.Wire, at.local)
	for _, other := range at.others {
		script += fmt.Sprintf("bridge fdb add %[2]s dev %[1]s dst %[3]s\n"+
			"bridge fdb add %[2]s dev %[1]s master static\n"+
			"ip neigh add %[4]s lladdr %[2]s dev br0 nud permanent\n", handTunnel, handMAC(other), at.remote, other)
	}
	return script
}
