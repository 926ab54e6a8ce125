package kernel

import (
	"errors"

	"fairlead/internal/kernel/steer"
	"fairlead/internal/plan"
)

var errNotBuilt = errors.New("not built yet")

func (h *Host) setBounds(*steer.Plane, plan.Bounds) error                 { return errNotBuilt }
func (h *Host) delBounds(*steer.Plane, plan.Bounds) error                 { return errNotBuilt }
func (h *Host) readBounds(*steer.Plane, plan.Bounds) (plan.Object, error) { return nil, errNotBuilt }
func (h *Host) grantEntry(plan.Grant) (*steer.Lead, error)                { return nil, errNotBuilt }
func (h *Host) grantObject(steer.Lead) (plan.Grant, error)                { return plan.Grant{}, errNotBuilt }
