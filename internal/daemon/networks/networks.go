// Package networks decides which networks can exist on the host now, and which state without virtual services the host
// must have for a desired state. It also checks the paths to the other hosts of overlays, and answers their checks. It
// applies nothing.
//
// A network that cannot exist on this host for now, because its parent is missing, is unavailable: its attachments have
// a problem, and everything else continues. They are applied again, with their earlier addresses, as soon as the host
// has what they need.
package networks

import (
	"net/netip"
	"time"

	"fairlead/internal/daemon/state"
	"fairlead/internal/engine"
	"fairlead/internal/kernel/rtnl"
)

// Kernel is the part of a host that has its links. *kernel.Host implements it.
type Kernel interface {
	Net() *rtnl.Reader
}

// Networks decides which networks can exist on this host. Its methods expect that the mutex of the state is locked.
type Networks struct {
	state  *state.State
	engine *engine.Engine
	kernel Kernel
	// unavailable has the unavailable networks; keptAddresses has the earlier addresses of
	// their attachments, by the attachments' names.
	unavailable   map[string]bool
	keptAddresses map[string][]netip.Addr
	// outbound has the choices for networks with outbound auto, by their names. hold is how long
	// no rule must decide before ebpf is chosen again.
	outbound map[string]Choice
	hold     time.Duration
}

// New returns Networks of which none is unavailable. hold is how long no rule of the host must
// decide about a network's connections before outbound auto chooses ebpf again.
func New(s *state.State, e *engine.Engine, k Kernel, hold time.Duration) *Networks {
	return &Networks{state: s, engine: e, kernel: k, unavailable: map[string]bool{},
		keptAddresses: map[string][]netip.Addr{}, outbound: map[string]Choice{}, hold: hold}
}
