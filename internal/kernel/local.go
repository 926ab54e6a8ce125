package kernel

import "fairlead/internal/kernel/steer"

func (h *Host) setLocalClients(*steer.Plane) error { return nil }
func (h *Host) delLocalClients(*steer.Plane) error { return nil }
func (h *Host) hasLocalClients(*steer.Plane) bool  { return true }
