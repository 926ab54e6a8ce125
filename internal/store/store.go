// Package store keeps the desired state at rest, together with what is
// needed to put a host back as it was, and what users have asked for besides.
// It does not interpret them.
package store

import (
	"maps"
	"net/netip"
	"slices"
	"sync"

	"fairlead/internal/ipam"
	"fairlead/internal/model"
)

// Record is all that is kept of one host.
type Record struct {
	Desired model.State
	Leases  ipam.Leases
	// Settings holds every sysctl that we changed and have not put back.
	Settings []Setting
	// Inside holds every link that may be in a sandbox and leaves no trace on
	// the host, until we have taken it away.
	Inside []Inside
	// Virtual holds every address of a service that we have put on a link of the
	// host, until it is taken away: what else is there was there before us.
	Virtual []Virtual
	// Devices holds what every device of the host that was handed over was before,
	// until it is given back.
	Devices []Device
}

// Device is a network device of the host that a sandbox has.
type Device struct {
	// Device is its name on the host, or its PCI address.
	Device string
	// Was is the kernel package's description of the device.
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
	// handed over; empty for a link that we have made.
	Device string
}

// Setting is a sysctl of ours, with the value that the host had before.
type Setting struct {
	// Netns is the path of the namespace; empty is the host's.
	Netns string
	// Name is dotted, as sysctl(8) prints it.
	Name string
	// Value is what we set, Before what was there.
	Value, Before string
}

// Setting returns the entry for the sysctl of that name in that namespace.
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
	c.Desired = r.Desired.Clone()
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

// Memory keeps the record for as long as the process lives. It is safe for
// concurrent use.
type Memory struct {
	mu     sync.Mutex
	record Record
	wanted model.Desired
}

// Load returns the record last saved, the zero Record at first.
func (m *Memory) Load() (Record, error) {
	m.mu.Lock()
	defer m.mu.Unlock()
	return m.record.Clone(), nil
}

// Save replaces the record.
func (m *Memory) Save(r Record) error {
	m.take(r.Clone())
	return nil
}

// take makes the record ours.
func (m *Memory) take(r Record) {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.record = r
}

// Desired returns the wishes last saved, none at first.
func (m *Memory) Desired() (model.Desired, error) {
	m.mu.Lock()
	defer m.mu.Unlock()
	return m.wanted.Clone(), nil
}

// SaveDesired replaces the wishes.
func (m *Memory) SaveDesired(w model.Desired) error {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.wanted = w.Clone()
	return nil
}
