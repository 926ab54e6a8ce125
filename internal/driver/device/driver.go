// Package device moves a whole network device of the host into one sandbox, or
// creates a child of an InfiniBand link in each sandbox. It does not publish
// ports, and does not choose devices.
//
// Theory of operation. A network device belongs to one network namespace at a
// time. The driver moves it into the sandbox's namespace and renames it there.
// Packets go from the sandbox's stack to the card's queues and back. The host's
// routing and firewall never see them.
//
//	sandbox eth0 = the card itself, or a virtual function of it ── LAN
//
// The alias of the device saves its settings on the host: name, MTU, hardware
// address, addresses, alias, up or down. When the endpoint is removed, the device
// returns to the host and gets these settings again. If the sandbox's processes
// end first, its namespace is kept open until the device has been moved back. If
// Fairlead is killed too, the kernel returns a physical device to the machine's
// first namespace, where the next Fairlead finds the alias. A virtual device (veth,
// VLAN) is then deleted with its sandbox.
//
// An InfiniBand link cannot have macvlan links: its neighbours are addressed by
// queue pair instead of Ethernet address. It can have children (ip-link(8), type
// ipoib), each in a partition and with its own queue pair. With a pkey the driver
// creates one child in each sandbox, and deletes it with the endpoint.
//
// Limits: while a sandbox has the device, the host cannot use it and reaches the
// sandbox only via the LAN. Routes (a device whose routes would be lost is
// refused), addresses with a lifetime, queueing disciplines and sysctls are not
// restored. Wireless cards move with their radio (`iw phy`). Kernel: any since
// 3.0; children of InfiniBand links need ib_ipoib, Linux 3.7.
package device

import (
	"errors"
	"fmt"
	"slices"
	"strings"
	"unicode"

	"fairlead/internal/driver"
	"fairlead/internal/model"
	"fairlead/internal/plan"
)

// Driver implements driver.Driver.
type Driver struct{}

// Name implements driver.Driver.
func (Driver) Name() model.Driver { return model.DriverDevice }

// Needs implements driver.Driver. Every kernel can move devices.
func (Driver) Needs() []plan.Feature { return nil }

// fullMember is the bit of a partition key for full membership. The kernel always
// sets it.
const fullMember = 0x8000

// Validate implements driver.Driver. It does not check the host's link with the
// parent's name: while a sandbox has the device, that is another link or none. The
// device is checked when it is moved.
func (Driver) Validate(n model.Network, f plan.Facts) error {
	switch {
	case n.Parent == "":
		return errors.New("a device network needs its device as parent: set parent to the name of a link or a PCI address, e.g. 0000:3b:02.1")
	case !nameable(n.Parent):
		return fmt.Errorf("parent %q: want the name of a link, or a PCI address, e.g. 0000:3b:02.1", n.Parent)
	case n.Internal:
		return errors.New("internal: a device connects to networks outside the host: leave it out")
	case n.VLAN != 0:
		return fmt.Errorf("vlan %d: make the VLAN's link on the host and set it as parent", n.VLAN)
	}
	if err := driver.CheckSettings(n, driver.Parent, driver.PKey); err != nil || n.PKey == 0 {
		return err
	}
	return validateChild(n, f)
}

// nameable reports whether parent is a valid PCI address or name of a link.
func nameable(parent string) bool {
	if plan.PCIAddress(parent) {
		return !strings.ContainsFunc(parent,
			func(c rune) bool { return !strings.ContainsRune("0123456789abcdefABCDEF:.", c) })
	}
	return len(parent) <= 15 && parent != "." && parent != ".." && !strings.ContainsAny(parent, "/:") &&
		!strings.ContainsFunc(parent, func(c rune) bool { return unicode.IsSpace(c) || unicode.IsControl(c) })
}

func validateChild(n model.Network, f plan.Facts) error {
	parent, there := f.Links[n.Parent]
	switch {
	case n.PKey == fullMember:
		return errors.New("pkey 0x8000 names no partition: the default one is 0xffff")
	case n.PKey&fullMember == 0:
		return fmt.Errorf("pkey %#04x: the kernel joins a partition only as a full member: write %#04x", n.PKey,
			n.PKey|fullMember)
	case !there:
		return fmt.Errorf("parent %s: the host has no such link: a child needs its parent on the host", n.Parent)
	case parent.Encap != "infiniband":
		return fmt.Errorf("parent %s is not an InfiniBand link (%s): leave the pkey out to move the device itself into the sandbox, or use driver macvlan", n.Parent, parent.Encap)
	}
	return nil
}

// Complete implements driver.Driver. It replaces the PCI address of a child's
// parent by the name of its link. A device keeps its MTU.
func (Driver) Complete(n model.Network, f plan.Facts) model.Network {
	if parent, there := f.Links[n.Parent]; there && n.PKey != 0 {
		n.Parent = parent.Name
	}
	return n
}

// Network implements driver.Driver. It returns nil: endpoints share nothing.
func (Driver) Network(model.Network, plan.Facts) plan.Plan { return nil }

// Endpoint implements driver.Driver.
func (Driver) Endpoint(n model.Network, e model.Endpoint) plan.Plan {
	p, ipv6 := driver.Sandbox(n, e), driver.EndpointIPv6(n, e)
	if n.PKey != 0 {
		p = append(p, plan.IPoIB{Netns: e.Sandbox, Name: e.InterfaceName(), Parent: n.Parent, PKey: n.PKey, MTU: n.MTU,
			Owner: e.Name, IPv6: ipv6})
	} else {
		p = append(p, plan.Device{Device: n.Parent, Netns: e.Sandbox, Name: e.InterfaceName(), MTU: n.MTU, MAC: e.MAC,
			IPv6: ipv6})
	}
	return slices.Concat(p, driver.Addressing(n, e))
}

// Attachment implements driver.Driver.
func (Driver) Attachment(n model.Network, _ model.Endpoint) plan.Attachment {
	return plan.Attachment{Closed: fmt.Sprintf("the sandbox has the device %s, so all its ports are open on the LAN at its own address: connect to that address, or attach the sandbox to another network too and publish there", n.Parent)}
}
