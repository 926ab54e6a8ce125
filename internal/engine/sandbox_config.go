package engine

import (
	"fmt"

	"fairlead/internal/driver"
	"fairlead/internal/model"
	"fairlead/internal/paths"
)

// SandboxConfig is the configuration of an endpoint's link in its sandbox.
type SandboxConfig = driver.SandboxConfig

// SandboxConfig computes the configuration of the endpoint's link in its sandbox.
// It ignores addresses that are already leased and other objects on the host.
func (e *Engine) SandboxConfig(n model.Network, ep model.Endpoint) (SandboxConfig, error) {
	by, ok := paths.Driver(n.Driver)
	if !ok {
		return SandboxConfig{}, fmt.Errorf("network %s: there is no driver %q: `fairlead paths` lists them", n.Name,
			n.Driver)
	}
	full, err := e.Complete(model.State{Networks: []model.Network{n}, Endpoints: []model.Endpoint{ep}})
	if err != nil {
		return SandboxConfig{}, err
	}
	return driver.Inside(by, full.Networks[0], full.Endpoints[0]), nil
}
