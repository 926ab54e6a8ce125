// Package device moves the host's devices into sandboxes and back, and creates
// IPoIB links for sandboxes.
package device

import (
	"errors"
	"sync"

	"fairlead/internal/kernel/netns"
	"fairlead/internal/kernel/rtnl"
	"fairlead/internal/kernel/rtnl/handles"
	"fairlead/internal/kernel/rtnl/link"
)

// Handle moves the devices of a host. Only one goroutine at a time may use it.
type Handle struct {
	*rtnl.Reader
	*handles.Cache
	ns    *netns.Namespace
	links *link.Handle

	mu sync.Mutex
	// devices are the host's devices that this process has moved into sandboxes, by
	// the plan object's key.
	devices map[string]movedDevice
	// recorded are the recorded states of moved devices, by plan.Device.Device.
	recorded map[string]recordedDevice
}

// New returns a Handle for the host of the links.
func New(links *link.Handle) *Handle {
	return &Handle{Reader: links.Reader, Cache: links.Cache, ns: links.Host(), links: links,
		devices: map[string]movedDevice{}}
}

// Close closes the references to the sandboxes of moved devices.
func (h *Handle) Close() error {
	h.mu.Lock()
	defer h.mu.Unlock()
	var errs []error
	for _, moved := range h.devices {
		errs = append(errs, moved.ns.Close())
	}
	return errors.Join(errs...)
}
