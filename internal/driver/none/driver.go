// Package none gives a sandbox only its loopback interface. It does not change
// other links in the network namespace.
//
// Theory of operation. The driver brings the sandbox's lo up. There is no link to
// the outside, so no packet enters or leaves the sandbox, and no port can be
// published.
package none

import (
	"errors"

	"fairlead/internal/driver"
	"fairlead/internal/model"
	"fairlead/internal/plan"
)

// Driver implements driver.Driver.
type Driver struct{}

// Name implements driver.Driver.
func (Driver) Name() model.Driver { return model.DriverNone }

// Needs implements driver.Driver.
func (Driver) Needs() []plan.Feature { return nil }

// Validate implements driver.Driver.
func (Driver) Validate(n model.Network, _ plan.Facts) error {
	if len(n.Subnets) != 0 {
		return errors.New("a network of driver none has no addresses: leave the subnets out")
	}
	return driver.CheckSettings(n)
}

// Complete implements driver.Driver. It changes nothing.
func (Driver) Complete(n model.Network, _ plan.Facts) model.Network { return n }

// Network implements driver.Driver.
func (Driver) Network(model.Network, plan.Facts) plan.Plan { return nil }

// Endpoint implements driver.Driver.
func (Driver) Endpoint(_ model.Network, e model.Endpoint) plan.Plan {
	return plan.Plan{plan.Link{Netns: e.Sandbox, Name: "lo", Kind: plan.Loopback}}
}

// Attachment implements driver.Driver.
func (Driver) Attachment(model.Network, model.Endpoint) plan.Attachment { return plan.Attachment{} }
