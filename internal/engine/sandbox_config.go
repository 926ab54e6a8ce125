package engine

import (
	"fmt"

	"fairlead/internal/driver"
	"fairlead/internal/model"
	"fairlead/internal/paths"
)

// SandboxConfig is what an endpoint's link has in its sandbox.
type SandboxConfig = driver.SandboxConfig

// SandboxConfig works out what the endpoint's link will have in its sandbox, without
// regard to what the host holds.
func (e *Engine) SandboxConfig(n model.Network, ep model.Endpoint) (SandboxConfig, error) {
	by, ok := paths.Driver(n.Driver)
	if !ok {
		return SandboxConfig{}, fmt.Errorf("network %s: there is no driver %q: `fairlead paths` lists them", n.Name, n.Driver)
	}
	full, err := e.Complete(model.State{Networks: []model.Network{n}, Endpoints: []model.Endpoint{ep}})
	if err != nil {
		return SandboxConfig{}, err
	}
	return driver.Inside(by, full.Networks[0], full.Endpoints[0]), nil
}
