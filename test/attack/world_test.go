package attack_test

import (
	"context"
	"fmt"
	"net/netip"
	"os"
	"slices"
	"strconv"
	"sync/atomic"
	"testing"

	"fairlead/internal/model"
	"fairlead/internal/threat"
	"fairlead/test/fabric"
)

// tries returns how often each attack on a published port is repeated; FAIRLEAD_TRIES overrides it.
func tries() int {
	if n, err := strconv.Atoi(os.Getenv("FAIRLEAD_TRIES")); err == nil {
		return n
	}
	return 2
}

// workPort is the port on which containers listen.
const workPort = 80

// world is a host with networks of every driver, its LAN and a second uplink.
//
//	client ──┐                         ┌── DRIVER-victim, -evil, -third
//	LAN    ──┴ switch 0 ── host ───────┼── other (another bridge network)
//	uplink ─── switch 1 ───┘           └── inner (an internal bridge network)
//
// The host uses reverse path filtering on the second uplink.
type world struct {
	t                        *testing.T
	fabric                   *fabric.Fabric
	host, client, lan, other *fabric.Host
	// plain is another host, which does not forward IPv6.
	plain      *fabric.Host
	plainState model.State
	state      model.State
	// drivers are the drivers of the host's networks, which have the setting.
	drivers []model.Driver
	setting threat.Setting
	// servers contains the servers of the containers and of the hosts, by name.
	servers map[string]server
	// reflector is in the sandboxes that may exchange datagrams endlessly.
	reflector *reflector
	ports     atomic.Uint32
}

// newWorld returns a world with networks of all drivers, without settings.
func newWorld(t *testing.T) *world {
	t.Helper()
	w := prepare(t, threat.Default)
	w.set()
	return w
}

// prepare returns a world without networks. They are for the drivers that have the setting.
func prepare(t *testing.T, setting threat.Setting) *world {
	t.Helper()
	f := fabric.New(t, fabric.Options{Hosts: 5, Switches: 2})
	w := &world{t: t, fabric: f, host: f.Hosts[0], client: f.Hosts[1], lan: f.Hosts[2], other: f.Hosts[3],
		plain: f.Hosts[4], servers: map[string]server{}, setting: setting}
	for _, d := range threat.Drivers() {
		if setting == threat.Default || slices.Contains(threat.Settings(d), setting) {
			w.drivers = append(w.drivers, d)
		}
	}
	w.ports.Store(1500)
	w.state = w.desired()
	return w
}

// set creates the networks, the sandboxes and their servers.
func (w *world) set() {
	t := w.t
	t.Helper()
	full, err := w.host.Engine.Set(context.Background(), w.state)
	if err != nil {
		t.Fatal(err)
	}
	w.state = full
	for _, e := range w.state.Endpoints {
		w.serve(position(w.host.In(e.Name)), e.Name, workPort)
	}
	for _, h := range []*fabric.Host{w.host, w.plain} {
		w.serve(h.Do, "host", hostServicePort)
	}
	w.serve(w.client.Do, outsideName, outsidePort)
	w.reflect()
	w.route()
	if w.plainState, err = w.plain.Engine.Set(context.Background(), w.plainDesired()); err != nil {
		t.Fatal(err)
	}
}

func (w *world) serve(in position, name string, port uint16) {
	w.t.Helper()
	s, err := in.serve(name, port)
	if err != nil {
		w.t.Fatal(err)
	}
	w.servers[name] = s
	w.t.Cleanup(s.close)
}

// sh runs a script that must succeed.
func (w *world) sh(in position, script string) string {
	w.t.Helper()
	out, err := in.sh(script)
	if err != nil {
		w.t.Fatal(err)
	}
	return out
}

func victim(d model.Driver) string { return string(d) + "-victim" }
func evil(d model.Driver) string   { return string(d) + "-evil" }
func third(d model.Driver) string  { return string(d) + "-third" }

// The sandboxes of the other networks.
const (
	otherBox = "other"
	innerBox = "inner"
)

// desired returns the host's desired state.
func (w *world) desired() model.State {
	var s model.State
	add := func(network string, names ...string) {
		for _, name := range names {
			s.Endpoints = append(s.Endpoints, model.Endpoint{Name: name, Network: network,
				Sandbox: w.host.Sandbox(name)})
		}
	}
	for i, d := range w.drivers {
		n := w.network(string(d), d, i)
		n.Flowtable = w.setting == threat.Flowtable
		if w.setting == threat.OutboundEBPF {
			n.Outbound = model.OutboundEBPF
		}
		s.Networks = append(s.Networks, n)
		add(string(d), victim(d), evil(d), third(d))
		for _, via := range threat.Vias(d) {
			for _, proto := range []model.Proto{model.TCP, model.UDP} {
				s.Publishes = append(s.Publishes, model.Publish{Endpoint: victim(d), Via: via, Proto: proto,
					HostPorts: model.Port(hostPort(d, via)), Ports: model.Port(workPort)})
			}
			s.Publishes = append(s.Publishes, loopPublishes(d, via)...)
		}
	}
	s.Networks = append(s.Networks, w.network(otherBox, model.DriverBridge, 10),
		w.network(innerBox, model.DriverBridge, 11))
	s.Networks[len(s.Networks)-1].Internal = true
	add(otherBox, otherBox)
	add(innerBox, innerBox)
	return s
}

// plainBoxes returns the sandboxes of the plain host: one on a network without IPv6, and one on an
// internal network with IPv6.
func plainBoxes(d model.Driver) []string {
	boxes := []string{string(d) + "-plain"}
	if d == model.DriverBridge {
		boxes = append(boxes, string(d)+"-closed")
	}
	return boxes
}

// plainDesired returns the plain host's desired state.
func (w *world) plainDesired() model.State {
	var s model.State
	for i, d := range w.drivers {
		for j, name := range plainBoxes(d) {
			n := w.network(name, d, 20+2*i+j)
			if n.Internal = j > 0; !n.Internal {
				n.Subnets = n.Subnets[:1]
			}
			if d == model.DriverMacvlan {
				n.Subnets[0].Range = netip.MustParsePrefix("198.51.100.64/26")
			}
			s.Networks = append(s.Networks, n)
			s.Endpoints = append(s.Endpoints, model.Endpoint{Name: name, Network: name, Sandbox: w.plain.Sandbox(name)})
		}
	}
	return s
}

// plainGateway returns the plain host's address in a sandbox's network.
func (w *world) plainGateway(name string) netip.Addr {
	for _, n := range w.plainState.Networks {
		if n.Name == name {
			return n.Subnets[0].HostAddress()
		}
	}
	panic("no network " + name)
}

// network returns the network with that number.
func (w *world) network(name string, d model.Driver, number int) model.Network {
	prefix := func(format string) netip.Prefix { return netip.MustParsePrefix(fmt.Sprintf(format, 30+number)) }
	n := model.Network{Name: name, Driver: d,
		Subnets: []model.Subnet{{Prefix: prefix("172.%d.0.0/24")}, {Prefix: prefix("fd00:%d::/64")}}}
	switch d {
	case model.DriverMacvlan:
		n.Parent = fabric.Underlay(0)
		n.Subnets = []model.Subnet{
			{Prefix: netip.MustParsePrefix("198.51.100.0/24"), Range: netip.MustParsePrefix("198.51.100.128/25")},
			{Prefix: netip.MustParsePrefix("2001:db8::/64"), Range: netip.MustParsePrefix("2001:db8::1:0/112")}}
	case model.DriverVXLAN:
		n.Overlay = model.Overlay{VNI: 7, Peers: []model.Peer{{Address: w.client.Address(0, true)}}}
		for i, s := range n.Subnets {
			n.Subnets[i].Range = s.Prefix
		}
	}
	return n
}

// hostPort returns the host port on which a victim is published.
func hostPort(d model.Driver, via model.Via) uint16 {
	for i, driver := range threat.Drivers() {
		for j, v := range threat.Vias(d) {
			if driver == d && v == via {
				return 8000 + 100*uint16(i) + 10*uint16(j)
			}
		}
	}
	panic("unknown path")
}

// address returns the address of an endpoint.
func (w *world) address(name string, v4 bool) netip.Addr {
	e, _ := w.state.Endpoint(name)
	a, ok := e.Address(v4)
	if !ok {
		w.t.Fatalf("%s has no address", name)
	}
	return a
}

// gateway returns the host's address in an endpoint's network.
func (w *world) gateway(name string, v4 bool) netip.Addr {
	e, _ := w.state.Endpoint(name)
	for _, n := range w.state.Networks {
		for _, s := range n.Subnets {
			if n.Name == e.Network && s.Prefix.Addr().Is4() == v4 {
				return s.GatewayAddress()
			}
		}
	}
	panic("no subnet")
}

// own returns the host's address on which ports are published.
func (w *world) own(v4 bool) netip.Addr { return w.host.Address(0, v4) }

// route configures the attackers' routes. Hosts outside reach every subnet via the host. Hosts
// behind the second uplink use only that uplink. The inner sandbox has a default route.
func (w *world) route() {
	w.t.Helper()
	type via struct {
		from position
		sw   int
	}
	for _, v4 := range []bool{true, false} {
		ip := map[bool]string{true: "ip", false: "ip -6"}[v4]
		for _, at := range []via{{w.client.Do, 0}, {w.lan.Do, 0}, {w.other.Do, 1}} {
			for _, n := range w.state.Networks {
				for _, s := range n.Subnets {
					if s.Prefix.Addr().Is4() == v4 && n.Parent == "" {
						w.sh(at.from, fmt.Sprintf("%s route add %s via %s", ip, s.Prefix, w.host.Address(at.sw, v4)))
					}
				}
			}
		}
		w.sh(w.other.Do, fmt.Sprintf("ip addr flush dev %s; %s route add %s via %s", fabric.Underlay(0), ip, w.own(v4),
			w.host.Address(1, v4)))
		w.sh(w.other.Do, fmt.Sprintf("%s route add %s via %s", ip,
			map[bool]string{true: "198.51.100.0/24", false: "2001:db8::/64"}[v4], w.host.Address(1, v4)))
		w.sh(w.host.In(innerBox), fmt.Sprintf("%s route add default via %s", ip, w.gateway(innerBox, v4)))
	}
	boxes := []string{otherBox, innerBox}
	for _, d := range w.drivers {
		boxes = append(boxes, evil(d))
	}
	for _, name := range boxes {
		w.sh(w.host.In(name), fmt.Sprintf("ip addr add %s/32 dev lo; ip addr add %s/128 dev lo nodad",
			unusedAddress(true), unusedAddress(false)))
	}
	w.sh(w.host.Do, "sysctl -qw net.ipv4.conf."+fabric.Underlay(1)+".rp_filter=1")
}

// from returns the place of an attacker.
func (w *world) from(a threat.Attacker, d model.Driver) position {
	switch a {
	case threat.SameNetwork:
		return w.host.In(evil(d))
	case threat.OtherNetwork:
		return w.host.In(otherBox)
	case threat.InternalNetwork:
		return w.host.In(innerBox)
	case threat.LANHost:
		return w.lan.Do
	}
	return w.other.Do
}

// box returns the name of an attacker's sandbox; empty for a host outside.
func box(a threat.Attacker, d model.Driver) string {
	return map[threat.Attacker]string{threat.SameNetwork: evil(d), threat.OtherNetwork: otherBox,
		threat.InternalNetwork: innerBox}[a]
}

// port returns an unused port: neither a published one nor one that Linux chooses.
func (w *world) port() uint16 {
	port := w.ports.Add(1)
	if port >= hostServicePort {
		port += 2000 // skip the published ports
	}
	if port >= 32768 {
		panic("too many tries: no unused port is left")
	}
	return uint16(port)
}

// source returns the attacker's real address.
func (w *world) source(a threat.Attacker, d model.Driver, v4 bool) netip.Addr {
	switch a {
	case threat.LANHost:
		return w.lan.Address(0, v4)
	case threat.OtherUplink:
		return w.other.Address(1, v4)
	}
	return w.address(box(a, d), v4)
}

// unusedAddress is an address that every attacker's sandbox has on its loopback, and to which the
// host has no route.
func unusedAddress(v4 bool) netip.Addr {
	if v4 {
		return netip.MustParseAddr("203.0.113.9")
	}
	return netip.MustParseAddr("2001:db8:dead::9")
}
