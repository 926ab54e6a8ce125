package model

import (
	"errors"
	"fmt"
)

// branches reports whether the network's sandboxes branch from its parent.
func (n Network) branches() bool { return n.Driver == DriverMacvlan || n.Driver == DriverIPvlan }

// sharing checks what two networks of one parent cannot have otherwise than
// the other. A VLAN of a link is another parent than the link.
func (s State) sharing(i int) error {
	n := s.Networks[i]
	for _, o := range s.Networks[:i] {
		if !n.branches() || !o.branches() || o.Parent != n.Parent || o.VLAN != n.VLAN {
			continue
		}
		switch {
		case n.Driver != o.Driver:
			return fmt.Errorf("network %s: parent %s carries network %s of driver %s: a link carries links of one kind: use that driver for both, or another parent", n.Name, n.Parent, o.Name, o.Driver)
		case n.Mode == ModePassthru || o.Mode == ModePassthru:
			return fmt.Errorf("network %s: parent %s carries network %s too: mode passthru gives it to one alone: use mode bridge for both, or another parent", n.Name, n.Parent, o.Name)
		case n.Driver == DriverIPvlan && n.Mode.ofIPvlan() != o.Mode.ofIPvlan():
			return fmt.Errorf("network %s: parent %s carries network %s in mode %s: all ipvlan networks of a parent have one mode", n.Name, n.Parent, o.Name, o.Mode.ofIPvlan())
		}
	}
	return nil
}

// ofIPvlan fills in the mode of an ipvlan network that names none.
func (m Mode) ofIPvlan() Mode {
	if m == "" {
		return ModeL2
	}
	return m
}

// validateSubLink checks what an endpoint asks of a link that branches from the
// network's parent.
func (s State) validateSubLink(n Network, e Endpoint) error {
	for _, o := range s.Endpoints {
		if n.Mode != ModePassthru {
			break
		}
		if o.Network == n.Name && o.Name != e.Name {
			return fmt.Errorf("endpoint %s is in network %s too, and mode passthru gives parent %s to one alone: use mode bridge, or another parent", o.Name, n.Name, n.Parent)
		}
	}
	switch {
	case !n.branches():
	case e.MAC != "" && (n.Driver == DriverIPvlan || n.Mode == ModePassthru):
		return fmt.Errorf("mac %s: in network %s sandboxes have the hardware address of parent %s: leave it out, or use driver macvlan in mode bridge", e.MAC, n.Name, n.Parent)
	case e.Limit.In != 0:
		return errors.New("limit in: what the endpoint receives passes no link of the host's where it could wait: bound what its peers send, or attach it by driver bridge or routed")
	}
	return nil
}
