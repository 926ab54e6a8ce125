package docker

import (
	"encoding/json"
	"fmt"
	"maps"
	"net/netip"
	"slices"
	"strconv"
	"strings"

	"fairlead/internal/model"
	"fairlead/internal/paths"
	"fairlead/internal/syntax"
)

// network is a network that Docker requests: the model's network, and settings
// that only this package knows.
type network struct {
	model.Network
	settings
}

// settings apply to all endpoints of a network. They survive a reboot.
type settings struct {
	// Via and Promises are for published ports.
	Via      model.Via `json:"via,omitempty"`
	Promises []string  `json:"promises,omitempty"`
	// HostAddr is the host address of ports that are published without one.
	HostAddr netip.Addr `json:"hostAddr,omitzero"`
	// Prefix is the prefix of interface names in the containers.
	Prefix string `json:"prefix,omitempty"`
	// Cluster is the name of the cluster's network for which the network stands.
	Cluster string `json:"cluster,omitempty"`
}

// Option is an option of `docker network create -o`.
type Option struct {
	Name, Value, What string
	set               func(*network, string) error
}

// Options returns all options of networks.
func Options() []Option {
	own := []Option{
		{"driver", "DRIVER", "driver that connects the containers: " + strings.Join(syntax.Drivers(),
			", ") + " (default: the driver that the other options imply, or bridge)", setDriver},
		{"via", "MODE", "publish mode of the containers' ports: " + strings.Join(vias(), ", ") +
			" (default auto)", setVia},
		{"promises", "NAME,...", "promises that the publish mode must keep; `auto` chooses a mode that keeps them",
			func(n *network, v string) error { n.Promises = list(v); return nil }},
		{"mtu", "BYTES", "MTU of the network's links", setMTU},
		{"parent", "LINK", "parent link of macvlan and ipvlan links on the host, or the device to move into the " +
			"container; eth0.100 is VLAN 100 on eth0", setText(func(n *network) *string { return &n.Parent })},
		{"mode", "MODE", "mode for macvlan: bridge, private, vepa, passthru; for ipvlan: l2, l3, l3s",
			func(n *network, v string) error { n.Mode = model.Mode(v); return nil }},
		{"vlan", "ID", "VLAN ID on the parent", func(n *network, v string) (err error) {
			n.VLAN,
				err = number(v)
			return err
		}},
		{"pkey", "KEY", "partition key of an InfiniBand child",
			func(n *network, v string) (err error) { n.PKey, err = syntax.PKey(v); return err }},
		{"filter", "on|off", "whether frames on the bridge pass iptables (default: the host's setting)",
			func(n *network, v string) error { n.Filter = model.Filter(v); return nil }},
		{"hairpin", "true", "allow a bridge port to send frames back to the port that they came from",
			setFlag(func(n *network) *bool { return &n.Hairpin })},
		{"outbound", "nft|ebpf|auto", "what translates connections to hosts outside: nft (default), ebpf past the host's " +
			"FORWARD rules, or auto: ebpf while no such rule would decide", func(n *network, v string) error { return syntax.Outbound(&n.Network, v) }},
		{"flowtable", "true", "forward established connections with other hosts through an nftables flowtable, past the " +
			"host's FORWARD rules", setFlag(func(n *network) *bool { return &n.Flowtable })},
		{"allow-overlap", "true", "allow a subnet that overlaps a subnet of the host's links or routes; by default " +
			"it is refused", setFlag(func(n *network) *bool { return &n.AllowOverlap })},
		{"vni", "ID", "VXLAN network identifier", setVNI},
		{"peers", "ADDRESS[=RANGE,...] ...", "other hosts of the overlay with their ranges of the subnets, " +
			"separated by spaces", setPeers},
		{"group", "ADDRESS", "multicast group through which the hosts of the overlay find each other; not with " +
			"encrypt", func(n *network, v string) (err error) { n.Overlay.Group, err = syntax.Group(v); return err }},
		{"underlay", "LINK,...", "links or addresses of the host that carry the overlay's packets", func(n *network,
			v string) error {
			n.Overlay.Underlays = list(v)
			return nil
		}},
		{"port", "PORT", "UDP port of the overlay's outer packets (default 4789, with encrypt 51820)",
			func(n *network, v string) (err error) { n.Overlay.Port, err = number(v); return err }},
		{"encrypt", "true", "encrypt the overlay with WireGuard (default: not encrypted)",
			setFlag(func(n *network) *bool { return &n.Overlay.Encrypt })},
		{"key-file", "PATH", "absolute path of the file with the 32-byte secret that all hosts of the overlay " +
			"share, for encrypt", setText(func(n *network) *string { return &n.Overlay.KeyFile })},
		{keyCluster, "NAME", "network of the cluster that the Docker network stands for on this host; needs " +
			"--ipam-driver fairlead --ipam-opt cluster=NAME", setText(func(n *network) *string { return &n.Cluster })},
	}
	return append(own, dockersOptions()...)
}

// dockersOptions returns the options of Docker's own drivers that this driver
// accepts.
func dockersOptions() []Option {
	const bridge = keyPrefix + "bridge."
	return []Option{
		{keyPrefix + "driver.mtu", "BYTES", "same as mtu", setMTU},
		{"macvlan_mode", "MODE", "same as driver=macvlan and mode", mode(model.DriverMacvlan)},
		{"ipvlan_mode", "MODE", "same as driver=ipvlan and mode", mode(model.DriverIPvlan)},
		{keyPrefix + "container_iface_prefix", "PREFIX", "prefix of interface names in the containers (default eth)",
			setText(func(n *network) *string { return &n.Prefix })},
		{bridge + "host_binding_ipv4", "ADDRESS", "host address of ports that are published without one", setHostAddr},
		{bridge + "enable_icc", "true", "containers of a network reach each other; false is refused", only("true",
			"use separate networks to isolate containers")},
		{bridge + "enable_ip_masquerade", "true", "packets that leave the host are masqueraded; false is refused",
			only("true", "driver=routed keeps the containers' addresses")},
		{bridge + "gateway_mode_ipv4", "nat", "always nat, except with driver=routed; other values are refused",
			only("nat", "driver=routed keeps the containers' addresses")},
		{bridge + "gateway_mode_ipv6", "nat", "always nat, except with driver=routed; other values are refused",
			only("nat", "driver=routed keeps the containers' addresses")},
	}
}

// readOptions applies the given options to the network.
func readOptions(n *network, given map[string]string) error {
	known := Options()
	for _, name := range slices.Sorted(maps.Keys(given)) {
		i := slices.IndexFunc(known, func(o Option) bool { return o.Name == name })
		if i < 0 {
			var names []string
			for _, o := range known {
				names = append(names, o.Name)
			}
			return fmt.Errorf("option %.64q: it does not exist: want one of %s", name, strings.Join(names, ", "))
		}
		if err := known[i].set(n, given[name]); err != nil {
			return fmt.Errorf("option %s=%.256s: %w", name, given[name], err)
		}
	}
	if n.Driver == "" {
		n.Driver = implied(n.Network)
	}
	if n.Via == "" {
		n.Via = model.ViaAuto
	}
	return nil
}

// keeps returns an error if ports cannot be published with these settings.
func keeps(driver model.Driver, s settings) error {
	return paths.Keeps(driver, model.Publish{Via: s.Via, Proto: model.TCP, Promises: s.Promises}, nil)
}

// generic returns the options of `docker network create -o`.
func generic(o options) (map[string]string, error) {
	given := map[string]string{}
	if raw, ok := o[keyGeneric]; ok {
		if err := json.Unmarshal(raw, &given); err != nil {
			return nil, fmt.Errorf("read options: want strings: %w", err)
		}
	}
	return given, nil
}

// implied returns the driver that the other options of a network imply, if none is
// given.
func implied(n model.Network) model.Driver {
	switch {
	case !n.Overlay.IsZero():
		return model.DriverVXLAN
	case slices.Contains([]model.Mode{model.ModeL2, model.ModeL3, model.ModeL3S}, n.Mode):
		return model.DriverIPvlan
	case n.PKey != 0:
		return model.DriverDevice
	case n.Parent != "" || n.Mode != "":
		return model.DriverMacvlan
	}
	return model.DriverBridge
}

func setDriver(n *network, value string) (err error) {
	if model.Driver(value).Traits().NoLink {
		return fmt.Errorf("it does not connect containers to a network: use Docker's own --network %s", value)
	}
	n.Driver, err = syntax.Driver(value)
	return err
}

// vias returns the publish modes for the containers of a network.
func vias() []string {
	names := []string{string(model.ViaAuto)}
	for _, via := range paths.SandboxModes(paths.Modes()) {
		names = append(names, string(via))
	}
	return names
}

func setVia(n *network, value string) error {
	n.Via = model.Via(value)
	if slices.Contains(vias(), value) {
		return nil
	}
	if _, known := paths.Mode(n.Via); known {
		return fmt.Errorf("this mode is for containers on the host's network only: want %s", model.OneOf(vias()))
	}
	return fmt.Errorf("this publish mode does not exist: want %s", model.OneOf(vias()))
}

func setMTU(n *network, value string) error {
	mtu, err := number(value)
	n.MTU = int(mtu)
	return err
}

func setVNI(n *network, value string) error {
	vni, err := strconv.ParseUint(value, 10, 32)
	if err != nil {
		return fmt.Errorf("want a number")
	}
	n.Overlay.VNI = uint32(vni)
	return nil
}

func setPeers(n *network, value string) error {
	for _, word := range strings.FieldsFunc(value, func(c rune) bool { return c == ' ' || c == ';' }) {
		peer, err := syntax.Peer(word)
		if err != nil {
			return err
		}
		n.Overlay.Peers = append(n.Overlay.Peers, peer)
	}
	return nil
}

func setHostAddr(n *network, value string) (err error) {
	n.HostAddr, err = netip.ParseAddr(value)
	return err
}

func mode(driver model.Driver) func(*network, string) error {
	return func(n *network, value string) error {
		if n.Driver != "" && n.Driver != driver {
			return fmt.Errorf("the network has the driver %s: leave out one of the two", n.Driver)
		}
		n.Driver, n.Mode = driver, model.Mode(value)
		return nil
	}
}

func setText(field func(*network) *string) func(*network, string) error {
	return func(n *network, value string) error { *field(n) = value; return nil }
}

func setFlag(field func(*network) *bool) func(*network, string) (err error) {
	return func(n *network, value string) (err error) {
		if *field(n), err = strconv.ParseBool(value); err != nil {
			return fmt.Errorf("want true or false")
		}
		return nil
	}
}

// only accepts the value that requests the driver's fixed behaviour, or none.
func only(value, instead string) func(*network, string) error {
	return func(_ *network, given string) error {
		if given != value && given != "" {
			return fmt.Errorf("this value is not supported: %s", instead)
		}
		return nil
	}
}

func number(value string) (uint16, error) {
	n, err := strconv.ParseUint(value, 10, 16)
	if err != nil {
		return 0, fmt.Errorf("want a number up to 65535")
	}
	return uint16(n), nil
}

// list splits words that are separated by commas or spaces.
func list(value string) []string {
	return strings.FieldsFunc(value, func(c rune) bool { return c == ',' || c == ' ' })
}
