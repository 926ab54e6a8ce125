package model

import (
	"errors"
	"fmt"
)

// validateDevice checks what an endpoint asks of a network that hands over a
// device: it goes to one sandbox, and there is no other end of it here.
func (s State) validateDevice(n Network, e Endpoint) error {
	if n.Driver != DriverDevice {
		return nil
	}
	if e.Limit.In != 0 {
		return errors.New("limit in: the host sees nothing of what a device receives: bound it where it is sent, or at the switch")
	}
	if n.PKey != 0 && e.MAC != "" {
		return fmt.Errorf("mac %s: the child of an InfiniBand link has an address of its parent's: leave it out", e.MAC)
	}
	for _, o := range s.Endpoints {
		on, _ := s.Network(o.Network)
		if o.Name != e.Name && on.Driver == DriverDevice && on.Parent == n.Parent && on.PKey == 0 && n.PKey == 0 {
			return fmt.Errorf("device %s is endpoint %s's already: a device goes to one sandbox", n.Parent, o.Name)
		}
	}
	return nil
}
