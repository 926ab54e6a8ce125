package model

import (
	"cmp"
	"errors"
	"fmt"
)

// sharing checks that two networks with the same parent are compatible. A VLAN of a
// link is a different parent than the link.
func (s State) sharing(i int) error {
	n := s.Networks[i]
	for _, o := range s.Networks[:i] {
		if !n.Traits().SubLinks || !o.Traits().SubLinks || o.Parent != n.Parent || o.VLAN != n.VLAN {
			continue
		}
		switch {
		case n.Driver != o.Driver:
			return fmt.Errorf("network %s: parent %s carries network %s of driver %s: a parent can have only one kind of link: use that driver for both networks, or another parent", n.Name, n.Parent, o.Name, o.Driver)
		case n.Mode == ModePassthru || o.Mode == ModePassthru:
			return fmt.Errorf("network %s: parent %s also carries network %s: in mode passthru, only one network can use a parent: use mode bridge for both networks, or another parent", n.Name, n.Parent, o.Name)
		case n.sharedMode() != o.sharedMode():
			return fmt.Errorf("network %s: parent %s carries network %s in mode %s: all %s networks of a parent must have the same mode: change the mode, or use another parent", n.Name, n.Parent, o.Name, o.sharedMode(), n.Driver)
		}
	}
	return nil
}

// sharedMode returns the mode that the network shares with the others on its parent,
// or "" if their modes may differ.
func (n Network) sharedMode() Mode {
	if n.Traits().SharedMode == "" {
		return ""
	}
	return cmp.Or(n.Mode, n.Traits().SharedMode)
}

// validateSubLink checks an endpoint of a network whose links are on top of a parent.
func (s State) validateSubLink(n Network, e Endpoint) error {
	for _, o := range s.Endpoints {
		if n.Mode != ModePassthru {
			break
		}
		if o.Network == n.Name && o.Name != e.Name {
			return fmt.Errorf("endpoint %s is also in network %s, and in mode passthru only one endpoint can use parent %s: use mode bridge, or another parent", o.Name, n.Name, n.Parent)
		}
	}
	switch {
	case !n.Traits().SubLinks:
	case e.MAC != "" && (n.Traits().ParentMAC || n.Mode == ModePassthru):
		return fmt.Errorf("mac %s: in network %s, sandboxes have the hardware address of parent %s: omit it, or use driver macvlan in mode bridge", e.MAC, n.Name, n.Parent)
	case e.Limit.In != 0:
		return errors.New("limit in: packets to the endpoint pass no link of the host that could queue them: " +
			"limit their senders, or use driver bridge or routed")
	}
	return nil
}
