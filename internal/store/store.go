// Package store saves the daemon's state: the desired state (networks, attachments,
// publishes, services, the gateway), the applied state that the daemon derived from
// it, and a record of what the daemon changed on the host, so that it can restore
// the previous values. The package does not interpret what it saves.
package store

import (
	"maps"
	"net/netip"
	"slices"
	"sync"

	"fairlead/internal/ipam"
	"fairlead/internal/model"
)

// Record is what the daemon saves about one host.
type Record struct {
	// Applied is the state that the host has, or that the engine was applying when
	// its process ended: the endpoints that run and the real servers in use. It
	// cannot be derived from the desired state, which does not know either.
	Applied model.State
	Leases  ipam.Leases
	// Settings lists every sysctl that the daemon changed and has not restored.
	Settings []Setting
	// Inside lists every link that may be in a sandbox and has no counterpart on
	// the host, until the daemon has removed it.
	Inside []Inside
	// Virtual lists every service address that the daemon added to a link of the
	// host, until it removes it. Other addresses on these links existed before.
	Virtual []Virtual
	// Devices lists every host device that was moved into a sandbox, with its
	// earlier configuration, until the device is back on the host.
	Devices []Device
}

// Device is a network device of the host that was moved into a sandbox.
type Device struct {
	// Device is its name on the host, or its PCI address.
	Device string
	// Was describes the device before the move, in the format of package kernel.
	Was string
}

// Virtual is an address of a service on a link of the host.
type Virtual struct {
	Link string
	Addr netip.Addr
}

// Inside is a link in a sandbox.
type Inside struct {
	// Netns is the path of the sandbox's namespace, and Link the name there.
	Netns, Link string
	// Device is the name on the host, or the PCI address, of a device that was
	// moved into the sandbox. It is empty for a link that the daemon created.
	Device string
}

// Setting is a sysctl that the daemon changed, with its earlier value.
type Setting struct {
	// Netns is the path of the namespace. If empty, it is the host's.
	Netns string
	// Name is dotted, as sysctl(8) prints it.
	Name string
	// Value is the value that the daemon set, Before the earlier value. Value is empty
	// if the kernel changes this setting together with one that the daemon set.
	Value, Before string
}

// Setting returns the entry for the sysctl with that name in that namespace.
func (r Record) Setting(netns, name string) (Setting, bool) {
	i := slices.IndexFunc(r.Settings, func(s Setting) bool { return s.Netns == netns && s.Name == name })
	if i < 0 {
		return Setting{}, false
	}
	return r.Settings[i], true
}

// Clone returns a copy that shares nothing with r.
func (r Record) Clone() Record {
	c := r
	c.Applied = r.Applied.Clone()
	c.Leases = maps.Clone(r.Leases)
	for name, addrs := range c.Leases {
		c.Leases[name] = slices.Clone(addrs)
	}
	c.Settings = slices.Clone(r.Settings)
	c.Inside = slices.Clone(r.Inside)
	c.Virtual = slices.Clone(r.Virtual)
	c.Devices = slices.Clone(r.Devices)
	return c
}

// Memory keeps the record and the desired state in memory. It is safe for
// concurrent use.
type Memory struct {
	mu      sync.Mutex
	record  Record
	desired model.Desired
}

// Load returns a copy of the record last saved, or the zero Record.
func (m *Memory) Load() (Record, error) {
	m.mu.Lock()
	defer m.mu.Unlock()
	return m.record.Clone(), nil
}

// Save replaces the record with a copy of r.
func (m *Memory) Save(r Record) error {
	m.setRecord(r.Clone())
	return nil
}

// setRecord replaces the record with r itself, which the caller must not use
// any more.
func (m *Memory) setRecord(r Record) {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.record = r
}

// Desired returns a copy of the desired state last saved, or the zero value.
func (m *Memory) Desired() (model.Desired, error) {
	m.mu.Lock()
	defer m.mu.Unlock()
	return m.desired.Clone(), nil
}

// SaveDesired replaces the desired state with a copy of d.
func (m *Memory) SaveDesired(d model.Desired) error {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.desired = d.Clone()
	return nil
}
