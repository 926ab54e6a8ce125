package model

import (
	"errors"
	"fmt"
)

// validateDevice checks an endpoint of a network that moves devices into sandboxes. A device can
// be in one sandbox only, and has no second end on the host.
func (s State) validateDevice(n Network, e Endpoint) error {
	if !n.Traits().MovesDevice {
		return nil
	}
	if e.Limit.In != 0 {
		return errors.New("limit in: packets to a device do not pass the host: limit them at their senders or at the switch")
	}
	if n.PKey != 0 && e.MAC != "" {
		return fmt.Errorf("mac %s: the child of an InfiniBand link gets its address from the parent: omit it", e.MAC)
	}
	for _, o := range s.Endpoints {
		on, _ := s.Network(o.Network)
		if o.Name != e.Name && on.Traits().MovesDevice && on.Parent == n.Parent && on.PKey == 0 && n.PKey == 0 {
			return fmt.Errorf("device %s already belongs to endpoint %s: a device can be in one sandbox only", n.Parent,
				o.Name)
		}
	}
	return nil
}
