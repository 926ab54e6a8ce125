// Package applier saves desired states and applies them to the host. It omits what belonged to sandboxes that have
// ended, and applies attachments again whose sandboxes run again. It does not decide what is desired.
package applier

import (
	"context"

	"fairlead/internal/daemon/leases"
	"fairlead/internal/daemon/networks"
	"fairlead/internal/daemon/services"
	"fairlead/internal/daemon/state"
	"fairlead/internal/daemon/step"
	"fairlead/internal/daemon/watched"
	"fairlead/internal/engine"
	"fairlead/internal/sandbox"
)

// Applier saves and applies desired states. It has no state of its own: its fields are the parts that it uses. Its
// methods expect that the mutex of the state is locked, unless they say something else.
type Applier struct {
	State     *state.State
	Steps     *step.Runner
	Networks  *networks.Networks
	Sandboxes *watched.Sandboxes
	Services  *services.Services
	Engine    *engine.Engine
	Leases    *leases.Clients
	// Resolve finds a running sandbox.
	Resolve func(ctx context.Context, text string) (sandbox.Sandbox, error)
	// Applied is called with the mutex of the state after a desired state was applied.
	Applied func()
}
