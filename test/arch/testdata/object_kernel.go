package link

import "fairlead/internal/plan"

// SetTrial creates the object.
func (h *Handle) SetTrial(plan.Trial) error { return nil }

// DelTrial removes the object.
func (h *Handle) DelTrial(plan.Trial) error { return nil }

// ReadTrial returns the object as the kernel has it.
func (h *Handle) ReadTrial(t plan.Trial) (plan.Object, error) { return t, nil }
