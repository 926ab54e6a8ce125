package plan

import (
	"fmt"
	"slices"
	"strings"

	"fairlead/internal/escape"
)

// DeviceMark begins the alias of a host device that was moved into a sandbox. It
// differs from the mark of links that Fairlead creates, because such a device is
// moved back and never deleted. The rest of the alias records the device's earlier
// state.
const DeviceMark = Mark + "-device:"

// Device is a network device of the host that is moved into a sandbox. Removing the
// object moves the device back and restores its earlier state.
type Device struct {
	// Device is its name on the host, or its PCI address, e.g. 0000:3b:02.1.
	Device string
	// Netns is the path of the sandbox, and Name the device's name there.
	Netns string
	Name  string
	// MTU in bytes; 0 keeps the MTU that the device has on the host.
	MTU int
	// MAC is the hardware address in the sandbox; empty keeps the address that the
	// device has on the host.
	MAC string
	// IPv6 is the device's mode in the sandbox.
	IPv6 IPv6
	// Down is true if the device was found down. It is never true in a desired
	// object.
	Down bool
}

// PCIAddress reports whether the string is a PCI address and not an interface name.
func PCIAddress(device string) bool {
	return strings.Count(device, ":") == 2 && strings.Contains(device, ".")
}

// Ends returns the device in its sandbox.
func (d Device) Ends() []string { return []string{end(d.Netns, d.Name)} }

// adjusts reports whether the device is already in its sandbox with this name and
// hardware address. To change one of these, the device must be set down, and it
// then loses its addresses and routes.
func (d Device) adjusts(old Object) bool {
	o, ok := old.(Device)
	return ok && o.Netns == d.Netns && o.Name == d.Name && o.MAC == d.MAC
}

// Key implements Object. It does not contain the sandbox, because a device can be
// in one sandbox only.
func (d Device) Key() string { return "device " + d.Device }

func (d Device) netns() string { return d.Netns }

func (d Device) inSandbox() (netns, name string) { return d.Netns, d.Name }

// Add implements Object.
func (d Device) Add() []string {
	name := escape.Shell(d.Device)
	if PCIAddress(d.Device) {
		name = fmt.Sprintf("$(ls /sys/bus/pci/devices/%s/net)", d.Device)
	}
	set := in(d.Netns, "ip") + " link set " + escape.Shell(d.Name)
	if d.MTU != 0 {
		set += fmt.Sprintf(" mtu %d", d.MTU)
	}
	if d.MAC != "" {
		set += " address " + d.MAC
	}
	move := fmt.Sprintf("ip link set %s netns %s name %s", name, escape.Shell(netnsName(d.Netns)), escape.Shell(d.Name))
	return slices.Concat([]string{move}, writeSettings(d.settings()), []string{set + " up"})
}

// Del implements Object. Only package kernel knows the device's earlier state.
func (d Device) Del() []string {
	back := fmt.Sprintf("# %s gets back its name, state, MTU, hardware address, addresses and alias",
		escape.Shell(d.Device))
	if d.Netns == "" {
		return []string{back}
	}
	return []string{in(d.Netns, "ip") + " link set " + escape.Shell(d.Name) + " netns 1", back}
}

// change returns the commands that change the device from another sandbox or state.
func (d Device) change(old Object) []string {
	o, ok := old.(Device)
	if !ok || o.Netns != d.Netns {
		return append(old.Del(), d.Add()...)
	}
	var cmds []string
	if ip := in(d.Netns, "ip") + " link set " + escape.Shell(o.Name); !d.adjusts(o) {
		cmds = []string{ip + " down", ip + " name " + escape.Shell(d.Name)}
	}
	return append(cmds, d.Add()[1:]...)
}

// IPoIB is a child of an InfiniBand link in a sandbox: the parent's port in one of
// its partitions. Its hardware address is nearly equal to the parent's.
type IPoIB struct {
	Netns string
	Name  string
	// Parent is the host's link. PKey is the partition key (16 bits; the highest
	// bit means full membership).
	Parent string
	PKey   uint16
	// MTU in bytes; 0 keeps the kernel's default.
	MTU int
	// Owner completes the alias: the endpoint's name.
	Owner string
	// IPv6 is the link's mode.
	IPv6 IPv6
}

// Alias returns the link's alias, which starts with Mark.
func (l IPoIB) Alias() string { return Mark + ":" + l.Owner }

// Ends returns the link.
func (l IPoIB) Ends() []string { return []string{end(l.Netns, l.Name)} }

func (l IPoIB) adjusts(old Object) bool {
	o, ok := old.(IPoIB)
	return ok && o.Parent == l.Parent && o.PKey == l.PKey
}

// Key implements Object. It equals the key of any link with this name.
func (l IPoIB) Key() string { return Link{Netns: l.Netns, Name: l.Name}.Key() }

func (l IPoIB) netns() string { return l.Netns }

func (l IPoIB) inSandbox() (netns, name string) { return l.Netns, l.Name }

// Add implements Object.
func (l IPoIB) Add() []string {
	add := fmt.Sprintf("ip link add link %s name %s netns %s type ipoib pkey %#04x", escape.Shell(l.Parent),
		escape.Shell(l.Name), escape.Shell(netnsName(l.Netns)), l.PKey)
	return append([]string{add}, l.set()...)
}

// set implements settable.
func (l IPoIB) set() []string {
	set := fmt.Sprintf("%s link set %s alias %s", in(l.Netns, "ip"), escape.Shell(l.Name), escape.Shell(l.Alias()))
	if l.MTU != 0 {
		set += fmt.Sprintf(" mtu %d", l.MTU)
	}
	return append(writeSettings(l.settings()), set+" up")
}

// Del implements Object.
func (l IPoIB) Del() []string {
	return []string{in(l.Netns, "ip") + " link del " + escape.Shell(l.Name)}
}
