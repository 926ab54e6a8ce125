package engine

import (
	"fairlead/internal/driver"
	"fairlead/internal/model"
)

// SandboxConfig is the configuration of an endpoint's link in its sandbox.
type SandboxConfig = driver.SandboxConfig

// SandboxConfig computes the configuration of the endpoint's link in its sandbox.
// It ignores addresses that are already leased and other objects on the host.
func (e *Engine) SandboxConfig(n model.Network, ep model.Endpoint) (SandboxConfig, error) {
	g, err := e.completed(model.State{Networks: []model.Network{n}, Endpoints: []model.Endpoint{ep}})
	if err != nil {
		return SandboxConfig{}, err
	}
	return driver.Inside(g.networks[0].driver, g.state.Networks[0], g.state.Endpoints[0]), nil
}
