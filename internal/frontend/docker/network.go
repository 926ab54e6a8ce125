package docker

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net/netip"
	"regexp"
	"slices"

	"fairlead/internal/model"
)

// gwAllocCheck reports for which families a network needs no gateway address. In
// ipvlan's routed modes no link has it.
func (d *Driver) gwAllocCheck(_ context.Context, r gwAllocRequest) (any, error) {
	given, err := generic(r.Options)
	if err != nil {
		return nil, err
	}
	var n network
	if err := readOptions(&n, given); err != nil {
		return nil, err
	}
	skip := gatewayless(n.Network)
	return gwAllocResponse{skip, skip}, nil
}

// gatewayless reports whether containers need no gateway, because their default
// route is the link.
func gatewayless(n model.Network) bool {
	return n.Mode == model.ModeL3 || n.Mode == model.ModeL3S
}

func (d *Driver) createNetwork(_ context.Context, r networkRequest) (any, error) {
	n, err := d.readNetwork(r)
	if err != nil {
		return nil, err
	}
	if n.Cluster, err = d.clusterOf(n, slices.Concat(r.IPv4Data, r.IPv6Data)); err != nil {
		return nil, err
	}
	if n.Cluster != "" {
		return nothing{}, d.standIn(n)
	}
	if err := keeps(n.Driver, n.settings); err != nil {
		return nil, err
	}
	if err := d.cfg.Lasting.Put(map[string]any{settingsKey(n.Name): n.settings}); err != nil {
		return nil, err
	}
	if _, err := d.cfg.Daemon.CreateNetwork(n.Network, false); err != nil {
		return nil, errors.Join(err, d.cfg.Lasting.Put(map[string]any{settingsKey(n.Name): nil}))
	}
	return nothing{}, nil
}

// readNetwork converts Docker's request to a network.
func (d *Driver) readNetwork(r networkRequest) (network, error) {
	var n network
	name, err := NetworkName(r.NetworkID)
	if err != nil {
		return n, err
	}
	given, err := generic(r.Options)
	if err != nil {
		return n, err
	}
	if err := readOptions(&n, given); err != nil {
		return n, err
	}
	n.Name, n.Origin, n.Internal = name, model.FromDocker, r.Options.flag(keyInternal)
	d.splitVLAN(&n.Network)
	for _, data := range append(r.IPv4Data[:len(r.IPv4Data):len(r.IPv4Data)], r.IPv6Data...) {
		s, err := subnet(n.Network, data)
		if err != nil {
			return n, err
		}
		if s.Prefix.Bits() > 0 { // Docker's null IPAM gives 0.0.0.0/0
			n.Subnets = append(n.Subnets, s)
		}
	}
	return n, nil
}

// vlanLink matches the name that Docker's drivers use for a VLAN of a parent.
var vlanLink = regexp.MustCompile(`^(.+)\.([0-9]{1,4})$`)

// splitVLAN changes the parent eth0.100 to VLAN 100 on eth0, unless the host has a
// link with that name.
func (d *Driver) splitVLAN(n *model.Network) {
	parts := vlanLink.FindStringSubmatch(n.Parent)
	if parts == nil || n.VLAN != 0 || n.Traits().MovesDevice || d.cfg.Host.HasLink(n.Parent) {
		return
	}
	if id, err := number(parts[2]); err == nil {
		n.Parent, n.VLAN = parts[1], id
	}
}

// subnet converts a range. The range's gateway is the host's own address, except on
// a parent's LAN: there an auxiliary address named host or fairlead is the host's.
func subnet(n model.Network, data ipamData) (s model.Subnet, err error) {
	if s.Prefix, err = netip.ParsePrefix(data.Pool); err != nil {
		return s, fmt.Errorf("pool %.64q: want an address range", data.Pool)
	}
	s.Prefix = s.Prefix.Masked()
	gateway, err := address(data.Gateway)
	if err != nil {
		return s, fmt.Errorf("gateway %.64q: want an IP address", data.Gateway)
	}
	switch {
	case !n.Traits().OnLAN:
		s.Address = gateway
	case !gatewayless(n):
		s.Gateway = gateway
	}
	for _, name := range []string{"host", Name} {
		own, err := address(data.AuxAddresses[name])
		if err != nil {
			return s, fmt.Errorf("auxiliary address %s: want an IP address", name)
		}
		if own.IsValid() && s.Address.IsValid() {
			s.Gateway = s.Address
		}
		if own.IsValid() {
			s.Address = own
		}
	}
	return s, nil
}

// address parses an address with or without a prefix length. It returns the zero
// value for "".
func address(text string) (netip.Addr, error) {
	if text == "" {
		return netip.Addr{}, nil
	}
	if p, err := netip.ParsePrefix(text); err == nil {
		return p.Addr(), nil
	}
	return netip.ParseAddr(text)
}

// deleteNetwork removes a network and its remaining endpoints, which Docker has
// forgotten. A network of the cluster stays there.
func (d *Driver) deleteNetwork(_ context.Context, r networkRequest) (any, error) {
	name, err := NetworkName(r.NetworkID)
	if err != nil {
		return nil, err
	}
	network := d.networkOf(name)
	for _, a := range d.cfg.Daemon.Attachments() {
		if a.Network != network || a.Origin != model.FromDocker {
			continue
		}
		if err := d.cfg.Daemon.Remove(a.Name); err != nil {
			return nil, err
		}
	}
	if network == name { // a network of the cluster stays
		if _, err := d.cfg.Daemon.RemoveNetwork(name); err != nil {
			return nil, err
		}
	}
	return nothing{}, d.cfg.Lasting.Put(map[string]any{settingsKey(name): nil, settingsKey(network): nil})
}

func settingsKey(network string) string { return "docker network " + network }

// settings returns the stored settings of a network.
func (d *Driver) settings(network string) settings {
	s := settings{Via: model.ViaAuto}
	if raw, ok := d.cfg.Lasting.All()[settingsKey(network)]; ok {
		if err := json.Unmarshal(raw, &s); err != nil {
			d.cfg.Log.Error("read a network's settings", "network", network, "error", err)
		}
	}
	return s
}
