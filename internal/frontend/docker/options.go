package docker

import (
	"encoding/json"
	"fmt"
	"maps"
	"net/netip"
	"slices"
	"strconv"
	"strings"

	"fairlead/internal/frontend/text"
	"fairlead/internal/model"
	"fairlead/internal/paths"
)

// network is one that Docker asks for: what the daemon knows, and the rest.
type network struct {
	model.Network
	settings
}

// settings are what a network adds to its endpoints. They outlive a reboot.
type settings struct {
	// Via and Promises are for published ports.
	Via      model.Via `json:"via,omitempty"`
	Promises []string  `json:"promises,omitempty"`
	// HostAddr is where ports are published for which no address is named.
	HostAddr netip.Addr `json:"hostAddr,omitzero"`
	// Prefix begins the names of interfaces in the containers.
	Prefix string `json:"prefix,omitempty"`
}

// Option is one of `docker network create -o`.
type Option struct {
	Name, Value, What string
	set               func(*network, string) error
}

// Options returns those that networks have.
func Options() []Option {
	own := []Option{
		{"driver", "DRIVER", "how containers are attached: " + strings.Join(text.Drivers(), ", ") + "; without it, what the other options ask for, and else bridge", setDriver},
		{"via", "WAY", "how their ports are published: auto, proxy, nat, ebpf (auto, unless it is set)", setVia},
		{"promises", "NAME,...", "what the way must promise; `auto` chooses by them", func(n *network, v string) error { n.Promises = list(v); return nil }},
		{"mtu", "BYTES", "MTU of the network's links", setMTU},
		{"parent", "LINK", "the host's link that macvlan and ipvlan branch from, or the device to hand over; eth0.100 is VLAN 100 on eth0", setText(func(n *network) *string { return &n.Parent })},
		{"mode", "MODE", "macvlan: bridge, private, vepa, passthru; ipvlan: l2, l3, l3s", func(n *network, v string) error { n.Mode = model.Mode(v); return nil }},
		{"vlan", "ID", "VLAN on the parent", func(n *network, v string) (err error) { n.VLAN, err = number(v); return err }},
		{"pkey", "KEY", "partition key of an InfiniBand child", func(n *network, v string) (err error) { n.PKey, err = text.PKey(v); return err }},
		{"filter", "on|off", "whether frames on the bridge pass iptables", func(n *network, v string) error { n.Filter = model.Filter(v); return nil }},
		{"hairpin", "true", "let a bridge port send frames back where they came from", setFlag(func(n *network) *bool { return &n.Hairpin })},
		{"allow-overlap", "true", "allow a subnet that overlaps one of the host's links or routes; by default it is refused", setFlag(func(n *network) *bool { return &n.AllowOverlap })},
		{"vni", "ID", "VXLAN network identifier", setVNI},
		{"peers", "ADDRESS[=RANGE,...] ...", "hosts of the overlay, with their parts of the subnets, a space between two", setPeers},
		{"group", "ADDRESS", "multicast group that finds the peers", func(n *network, v string) (err error) { n.Overlay.Group, err = text.Group(v); return err }},
		{"underlay", "LINK,...", "links or addresses of the host that carry the overlay", func(n *network, v string) error { n.Overlay.Underlays = list(v); return nil }},
		{"port", "PORT", "UDP port of the overlay on the wire", func(n *network, v string) (err error) { n.Overlay.Port, err = number(v); return err }},
		{"encrypt", "true", "carry the overlay in WireGuard", setFlag(func(n *network) *bool { return &n.Overlay.Encrypt })},
		{"key-file", "PATH", "file with the secret that all hosts of the overlay share", setText(func(n *network) *string { return &n.Overlay.KeyFile })},
	}
	return append(own, dockersOptions()...)
}

// dockersOptions are those of Docker's own drivers that mean something here.
func dockersOptions() []Option {
	const bridge = keyPrefix + "bridge."
	return []Option{
		{keyPrefix + "driver.mtu", "BYTES", "as mtu", setMTU},
		{"macvlan_mode", "MODE", "as driver=macvlan and mode", mode(model.DriverMacvlan)},
		{"ipvlan_mode", "MODE", "as driver=ipvlan and mode", mode(model.DriverIPvlan)},
		{keyPrefix + "container_iface_prefix", "PREFIX", "begins the names of interfaces in the containers (eth)", setText(func(n *network) *string { return &n.Prefix })},
		{bridge + "host_binding_ipv4", "ADDRESS", "host address of ports that are published without one", setHostAddr},
		{bridge + "enable_icc", "true", "containers reach each other: always so", only("true", "", "separate networks keep containers apart")},
		{bridge + "enable_ip_masquerade", "true", "what leaves is masqueraded: always so", only("true", "", "driver=routed keeps the containers' addresses")},
		{bridge + "gateway_mode_ipv4", "nat", "always so, but with driver=routed", only("nat", "", "driver=routed keeps the containers' addresses")},
		{bridge + "gateway_mode_ipv6", "nat", "always so, but with driver=routed", only("nat", "", "driver=routed keeps the containers' addresses")},
	}
}

// readOptions applies what the user gave to the network.
func readOptions(n *network, given map[string]string) error {
	known := Options()
	for _, name := range slices.Sorted(maps.Keys(given)) {
		i := slices.IndexFunc(known, func(o Option) bool { return o.Name == name })
		if i < 0 {
			var names []string
			for _, o := range known {
				names = append(names, o.Name)
			}
			return fmt.Errorf("option %.64q: there is none of that name: want one of %s", name, strings.Join(names, ", "))
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
	return paths.Keeps(n.Driver, model.Publish{Via: n.Via, Proto: model.TCP, Promises: n.Promises})
}

// generic returns the options of `docker network create -o`.
func generic(o options) (map[string]string, error) {
	given := map[string]string{}
	if raw, ok := o[keyGeneric]; ok {
		if err := json.Unmarshal(raw, &given); err != nil {
			return nil, fmt.Errorf("options: want words: %w", err)
		}
	}
	return given, nil
}

// implied returns the driver that the options of a network are of, where none
// is named.
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
	switch model.Driver(value) {
	case model.DriverHost, model.DriverNone:
		return fmt.Errorf("it attaches nothing: Docker's own --network %s is that", value)
	}
	n.Driver, err = text.Driver(value)
	return err
}

func setVia(n *network, value string) error {
	n.Via = model.Via(value)
	if n.Via == model.ViaSocket {
		return fmt.Errorf("it is for containers on the host's network")
	}
	if _, known := paths.Mode(n.Via); !known && n.Via != model.ViaAuto {
		return fmt.Errorf("there is no such way: want auto, proxy, nat or ebpf")
	}
	return nil
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
		peer, err := text.Peer(word)
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
			return fmt.Errorf("the network is of driver %s", n.Driver)
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

// only takes the values that say what is done anyway.
func only(value, other, instead string) func(*network, string) error {
	return func(_ *network, given string) error {
		if given != value && given != other {
			return fmt.Errorf("it is not to be had: %s", instead)
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

// list reads words with commas between them.
func list(value string) []string {
	return strings.FieldsFunc(value, func(c rune) bool { return c == ',' || c == ' ' })
}
