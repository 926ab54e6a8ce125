// Package host runs a workload in the host's own network namespace. It adds
// nothing to the kernel.
//
// Theory of operation. The workload's sockets are sockets of the host, so its
// packets take the same path as those of every process of the host. Two workloads
// cannot listen on the same port, and the LAN can reach every port. This driver is
// the laboratory's baseline.
package host

import (
	"errors"

	"fairlead/internal/driver"
	"fairlead/internal/model"
	"fairlead/internal/plan"
)

// Driver implements driver.Driver.
type Driver struct{}

// Name implements driver.Driver.
func (Driver) Name() model.Driver { return model.DriverHost }

// Needs implements driver.Driver.
func (Driver) Needs() []plan.Feature { return nil }

// Validate implements driver.Driver.
func (Driver) Validate(n model.Network, _ plan.Facts) error {
	if len(n.Subnets) != 0 {
		return errors.New("a network of driver host has the host's addresses: leave the subnets out")
	}
	return driver.CheckSettings(n)
}

// Complete implements driver.Driver. It changes nothing.
func (Driver) Complete(n model.Network, _ plan.Facts) model.Network { return n }

// Network implements driver.Driver.
func (Driver) Network(model.Network, plan.Facts) plan.Plan { return nil }

// Endpoint implements driver.Driver.
func (Driver) Endpoint(model.Network, model.Endpoint) plan.Plan { return nil }

// Attachment implements driver.Driver.
func (Driver) Attachment(_ model.Network, e model.Endpoint) plan.Attachment {
	return plan.Attachment{Cgroup: e.Cgroup, Unpublished: e.Unpublished}
}
