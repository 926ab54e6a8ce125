// Package device hands a whole network device of the host to one sandbox, or a
// child of an InfiniBand link to each. It does not publish ports, and does not
// choose devices.
//
// Theory of operation. A network device belongs to one network namespace at a
// time: the driver moves it into the sandbox's and gives it a new name there.
// Packets go from the sandbox's stack to the card's queues and back; the host
// has no part in it, in software, in its routing or in its firewall.
//
//	sandbox eth0 = the card itself, or a virtual function of it ── LAN
//
// The device carries with it, as its alias, what it was on the host: name,
// MTU, hardware address, addresses, alias, up or down. When its endpoint goes
// it comes back and is made that again. The namespace of a sandbox that dies is
// kept until the device has been fetched. When Fairlead itself has been killed,
// the kernel brings a physical device back to the machine's first namespace,
// where the next Fairlead finds the mark; a virtual one (veth, VLAN) ends with
// its sandbox then.
//
// An InfiniBand link carries no macvlan: its neighbours know a queue pair and
// not an Ethernet address. What it has instead are children (ip-link(8), type
// ipoib), each in a partition and with a queue pair of its own. With a pkey
// the driver makes one in each sandbox, and deletes it with the endpoint.
//
// Limits: the host cannot use the device meanwhile, and reaches the sandbox
// over the LAN only. What is not put back: routes (a device with routes that
// would be lost is refused), addresses with a lifetime, queueing disciplines
// and sysctls. Wireless cards move with their radio, by `iw phy`. Kernel: any
// since 3.0; children of InfiniBand links need ib_ipoib, Linux 3.7.
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

// Needs implements driver.Driver: every kernel moves devices.
func (Driver) Needs() []plan.Feature { return nil }

// fullMember is the bit of a partition key that says so; the kernel sets it.
const fullMember = 0x8000

// Validate implements driver.Driver. The host's link with the parent's name
// is inspected when it is moved into the sandbox: until it comes back, that is another
// link or none.
func (Driver) Validate(n model.Network, f plan.Facts) error {
	switch {
	case n.Parent == "":
		return errors.New("a device network needs its device as parent: the name of a link, or a PCI address, e.g. 0000:3b:02.1")
	case !nameable(n.Parent):
		return fmt.Errorf("parent %q: want the name of a link, or a PCI address, e.g. 0000:3b:02.1", n.Parent)
	case n.Internal:
		return errors.New("internal: a device connects to networks outside the host: leave it out")
	case n.VLAN != 0:
		return fmt.Errorf("vlan %d: make the VLAN's link on the host, and name it as parent", n.VLAN)
	}
	if err := driver.CheckSettings(n, driver.Parent, driver.PKey); err != nil || n.PKey == 0 {
		return err
	}
	return validateChild(n, f)
}

// nameable reports whether a device can be called that.
func nameable(parent string) bool {
	if plan.PCIAddress(parent) {
		return !strings.ContainsFunc(parent, func(c rune) bool { return !strings.ContainsRune("0123456789abcdefABCDEF:.", c) })
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
		return fmt.Errorf("pkey %#04x: a port joins as full member: write %#04x", n.PKey, n.PKey|fullMember)
	case !there:
		return fmt.Errorf("parent %s: the host has no such link: a child needs its parent on the host", n.Parent)
	case parent.Encap != "infiniband":
		return fmt.Errorf("parent %s is no InfiniBand link (%s): leave the pkey out to hand over the device itself, or use macvlan on it", n.Parent, parent.Encap)
	}
	return nil
}

// Complete implements driver.Driver: a device keeps its MTU, and the parent of
// a child is called by its name.
func (Driver) Complete(n model.Network, f plan.Facts) model.Network {
	if parent, there := f.Links[n.Parent]; there && n.PKey != 0 {
		n.Parent = parent.Name
	}
	return n
}

// Network implements driver.Driver: endpoints share nothing.
func (Driver) Network(model.Network, plan.Facts) plan.Plan { return nil }

// Endpoint implements driver.Driver.
func (Driver) Endpoint(n model.Network, e model.Endpoint) plan.Plan {
	p, ipv6 := driver.Sandbox(n, e), driver.EndpointIPv6(n, e)
	if n.PKey != 0 {
		p = append(p, plan.IPoIB{Netns: e.Sandbox, Name: e.InterfaceName(), Parent: n.Parent, PKey: n.PKey, MTU: n.MTU, Owner: e.Name, IPv6: ipv6})
	} else {
		p = append(p, plan.Device{Device: n.Parent, Netns: e.Sandbox, Name: e.InterfaceName(), MTU: n.MTU, MAC: e.MAC, IPv6: ipv6})
	}
	return slices.Concat(p, driver.Addressing(n, e))
}

// Attachment implements driver.Driver.
func (Driver) Attachment(n model.Network, _ model.Endpoint) plan.Attachment {
	return plan.Attachment{Closed: fmt.Sprintf("the sandbox has %s for itself, so it is on the LAN with its own address, where each of its ports is open already: connect to that, or attach it to another network too and publish there", n.Parent)}
}
