// Package daemon keeps a host in its desired state: networks, attachments of running
// sandboxes, publishes and virtual services. When a sandbox ends, the daemon removes
// what belonged to it. The package does not decide how sandboxes are attached or ports
// published; package engine does.
//
// Theory of operation. The daemon writes each request to the store, as part of the
// desired state of type model.Desired, before it acts. From that it derives a
// model.State with the sandboxes that run now, and the engine always applies the
// complete state. Messages from outside only trigger a check: the kernel reports the end
// of a namespace (RTM_DELNSID), a pidfd the end of a process, and package sandbox that
// a name or a container may have appeared or disappeared. The daemon identifies a
// sandbox by the cookie of its namespace, so that another sandbox at the same path is
// not mistaken for it.
//
//	API ──► model.Desired ──► store
//	          │ of running sandboxes
//	          ▼
//	     model.State ──► engine ──► kernel
//	          ▲
//	namespaces, processes, names, leases
//
// If an attached sandbox ends while the engine applies a step, the step fails. The
// daemon then removes what was desired for that sandbox and repeats the step. An
// attachment with Keep set waits for its sandbox instead.
//
// Each part is a package below this one, owns its fields, and uses only parts below it:
//
//	daemon       requests; creates the parts (assemble)
//	├─ repair     repairs what differs on the host
//	├─ endpoints  requests of container engines
//	├─ applier    saves and applies desired states
//	├─ services   pools of virtual services, their application and requests
//	├─ watched    sandboxes that are watched
//	├─ networks   networks that cannot exist on this host for now; overlays
//	├─ step       runs steps under the mutex, and repeats them
//	├─ stats      counters
//	└─ state      desired state, applied state, problems, and the mutex
//
// The mutex is that of state.State. It protects the fields of all these parts, and is held while the engine applies a
// step. Its holder waits for no other process, network or slow disk (ADR 64, package lock). What waits has a goroutine
// and a mutex of its own: leases, sockets, resets, gateway. The comment of each type says whether its methods lock the
// mutex or expect it. The order of locks is stats.Reader, state.State, then any other.
package daemon

import (
	"context"

	"fairlead/internal/daemon/applier"
	"fairlead/internal/daemon/endpoints"
	"fairlead/internal/daemon/gateway"
	"fairlead/internal/daemon/leases"
	"fairlead/internal/daemon/networks"
	"fairlead/internal/daemon/repair"
	"fairlead/internal/daemon/resets"
	"fairlead/internal/daemon/services"
	"fairlead/internal/daemon/state"
	"fairlead/internal/daemon/stats"
	"fairlead/internal/daemon/step"
	"fairlead/internal/daemon/watched"
	"fairlead/internal/engine"
)

// Daemon keeps one host in its desired state. Its methods may be called concurrently: they handle the requests, and
// lock the mutex of the state themselves, unless their comments say that it must be locked.
type Daemon struct {
	// The methods of these parts are requests, too.
	*engineRequests
	*serviceRequests
	*counters

	cfg    Config
	end    context.CancelFunc
	state  *state.State
	steps  *step.Runner
	engine *engine.Engine
	resets *resets.Queue
	// leases are the DHCP clients of attachments.
	leases    *leases.Clients
	networks  *networks.Networks
	overlays  *networks.Overlays
	sandboxes *watched.Sandboxes
	services  *services.Services
	applier   *applier.Applier
	healer    *repair.Healer
	// keeper gives the HTTP gateway what it shall serve. It is nil if none can be declared.
	keeper *gateway.Keeper
}

// The parts that handle requests themselves. The names keep them from the users of a Daemon.
type (
	engineRequests  = endpoints.Endpoints
	serviceRequests = services.Requests
	counters        = stats.Reader
)
