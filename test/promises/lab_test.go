package promises_test

import (
	"context"
	"fmt"
	"net"
	"net/netip"
	"strings"
	"sync"
	"testing"

	"fairlead/internal/lab/topology"
	"fairlead/internal/model"
	"fairlead/internal/paths"
	"fairlead/internal/plan"
	"fairlead/test/place"
	"fairlead/test/shell"

	"golang.org/x/sys/unix"
)

// The sandboxes of a lab. far and old are on a separate network, which has only IPv4.
const (
	web     = "web"     // the workload
	peer    = "peer"    // its neighbour
	mallory = "mallory" // another neighbour, which routes 127.0.0.1 to its gateway
	far     = "far"
	old     = "old" // a workload without IPv6
)

// The ports on which a workload listens, one per use, and the port of the LAN's server.
const (
	workPort = 80
	lanPort  = 90
)

// use is the purpose of a publish.
type use uint16

const (
	open     use = iota // every address
	loopback            // 127.0.0.1 only
	filtered            // a rule in INPUT will close the port
	fenced              // a rule in FORWARD will close the port
	covered             // an IPsec policy covers the packets of the LAN's client
	oldOnly             // published for old
)

// uses lists all purposes.
var uses = []use{open, loopback, filtered, fenced, covered, oldOnly}

// targetPort returns the workload's port for a use.
func targetPort(u use) uint16 { return workPort + uint16(u) }

// workloadOf returns the workload to which the publishes of a use belong.
func workloadOf(u use) string {
	if u == oldOnly {
		return old
	}
	return web
}

// addresses returns the addresses on which a workload listens for its uses. If host is empty, it
// listens via IPv6 and IPv4.
func addresses(name, host string) []string {
	var all []string
	for _, u := range uses {
		if workloadOf(u) == name {
			all = append(all, net.JoinHostPort(host, fmt.Sprint(targetPort(u))))
		}
	}
	return all
}

// lab is a world with one driver and every publish mode.
type lab struct {
	t      *testing.T
	driver model.Driver
	world  *topology.World
	state  model.State
	// workers contains the workloads that are processes of the host.
	workers []*worker
	// doomed is another world with the same driver, whose engine is killed.
	doomed *doomed

	firewall sync.Mutex
}

// hostPort returns the host port of the publish mode for the use.
func hostPort(via model.Via, u use) uint16 {
	for i, w := range paths.Modes() {
		if w.Name() == via {
			return 8000 + 100*uint16(i) + uint16(u)
		}
	}
	panic("unknown publish mode " + via)
}

func newLab(t *testing.T, facts plan.Facts, table []paths.Path, d model.Driver) *lab {
	t.Helper()
	w := newWorld(t, facts)
	modes := modesOf(table, d)
	l := &lab{t: t, driver: d, world: w, state: desired(t, w, d, modes)}
	addPolicies(t, w, modes)
	full, err := w.Engine.Set(context.Background(), l.state)
	if err != nil {
		t.Fatalf("set up driver %s: %v", d, err)
	}
	l.state = full
	serve(t, w.DoClient, "lan", fmt.Sprint(":", lanPort))
	if len(modes) == 0 || !l.sandboxed() {
		serve(t, l.workload, web, addresses(web, "")...)
	}
	if len(modes) > 0 {
		l.workers = startWorkloads(t, w, l.state)
	}
	if l.sandboxed() || len(modes) > 0 {
		l.routeIntruders()
	}
	if len(modes) > 0 {
		shell.Run(t, w.DoServer,
			"nft 'add table inet probe; add chain inet probe input { type filter hook input priority 0; };"+
				" add chain inet probe forward { type filter hook forward priority 0; };"+
				" add chain inet probe raw { type filter hook prerouting priority -400; }'")
		l.doomed = newDoomed(t, facts, d, modes)
	}
	return l
}

// addPolicies adds IPsec policies for the LAN's client at the covered ports. "level use" encrypts if
// there is a key. There is none, so packets that the policies apply to pass in cleartext.
func addPolicies(t *testing.T, w *topology.World, modes []model.Via) {
	t.Helper()
	const policy = "xfrm policy add dir %s src %s dst %s proto %d %s %d tmpl proto esp mode transport level use\n"
	var batch strings.Builder
	for _, via := range modes {
		for _, f := range flavors {
			client, server, port := clientAddr(f.v4), serverAddr(f.v4), hostPort(via, covered)
			fmt.Fprintf(&batch, policy, "in", client, server, protocol(f.proto), "dport", port)
			fmt.Fprintf(&batch, policy, "out", server, client, protocol(f.proto), "sport", port)
		}
	}
	shell.Run(t, w.DoServer, "ip -batch - <<'EOF'\n"+batch.String()+"EOF")
}

// protocol returns the number of a protocol: not all hosts have /etc/protocols, which ip needs for its name.
func protocol(p model.Proto) int {
	return map[model.Proto]int{model.TCP: unix.IPPROTO_TCP, model.UDP: unix.IPPROTO_UDP}[p]
}

func newWorld(t *testing.T, facts plan.Facts) *topology.World {
	t.Helper()
	w, err := topology.New(facts, topology.Options{})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := w.Close(); err != nil {
			t.Error(err)
		}
	})
	return w
}

func modesOf(table []paths.Path, d model.Driver) []model.Via {
	var modes []model.Via
	for _, p := range table {
		if p.Driver == d && p.Via != "" {
			modes = append(modes, p.Via)
		}
	}
	return modes
}

// desired returns the state of a lab: networks of one driver, their sandboxes, and one publish per
// publish mode, use and protocol.
func desired(t *testing.T, w *topology.World, d model.Driver, modes []model.Via) model.State {
	t.Helper()
	if d == model.DriverDevice {
		return movedIn(t, w)
	}
	s := model.State{Networks: networks(t, w, d)}
	for _, name := range []string{web, peer, mallory, far, old} {
		e := model.Endpoint{Name: name, Network: "net"}
		if name == far || name == old {
			e.Network = "net4"
		}
		if d != model.DriverHost {
			var err error
			if e.Sandbox, err = w.Sandbox(name); err != nil {
				t.Fatal(err)
			}
		} else if name == web || name == old {
			e.Cgroup = newCgroup(t, name)
		}
		s.Endpoints = append(s.Endpoints, e)
	}
	for _, via := range modes {
		for _, proto := range []model.Proto{model.TCP, model.UDP} {
			for _, u := range uses {
				p := model.Publish{Endpoint: workloadOf(u), Via: via, Proto: proto,
					HostPorts: model.Port(hostPort(via, u)), Ports: model.Port(targetPort(u))}
				if u == loopback {
					p.HostAddr = netip.MustParseAddr("127.0.0.1")
				}
				s.Publishes = append(s.Publishes, p)
			}
		}
	}
	return s
}

// networks returns the networks of a lab: one with both families, and one with only IPv4.
func networks(t *testing.T, w *topology.World, d model.Driver) []model.Network {
	t.Helper()
	both, v4 := model.Network{Name: "net", Driver: d}, model.Network{Name: "net4", Driver: d}
	prefix := netip.MustParsePrefix
	switch d {
	case model.DriverNone, model.DriverHost:
	case model.DriverMacvlan, model.DriverIPvlan:
		// The wire is the LAN, and the client host its router.
		both.Parent, v4.Parent = topology.Wire, topology.Wire
		both.Subnets = []model.Subnet{{Prefix: prefix("198.51.100.0/24"), Range: prefix("198.51.100.128/25")},
			{Prefix: prefix("2001:db8:1::/64"), Range: prefix("2001:db8:1::1:0/112")}}
		v4.Subnets = []model.Subnet{{Prefix: prefix("203.0.113.0/24")}}
		shell.Run(t, w.DoClient, "sysctl -qw net.ipv4.ip_forward=1; ip addr add 203.0.113.1/24 dev "+topology.Wire)
	default:
		both.Subnets = []model.Subnet{{Prefix: prefix("172.30.0.0/24")}, {Prefix: prefix("fd00:30::/64")}}
		v4.Subnets = []model.Subnet{{Prefix: prefix("172.31.0.0/24")}}
	}
	all := []model.Network{both, v4}
	if d == model.DriverVXLAN {
		overlay(all)
	}
	return all
}

// overlay turns the networks into overlays with the client as the other host.
func overlay(networks []model.Network) {
	for i, n := range networks {
		networks[i].Overlay = model.Overlay{VNI: uint32(i + 1), Peers: []model.Peer{{Address: topology.ClientAddr4}}}
		for j, s := range n.Subnets {
			networks[i].Subnets[j].Range = s.Prefix
		}
	}
}

// routeIntruders adds routes to the server on the client host: to the server's subnets, and to
// 127.0.0.1. mallory gets a route to 127.0.0.1 via the host's address in its network. Both lose
// 127.0.0.1 as a local address.
func (l *lab) routeIntruders() {
	l.t.Helper()
	for _, n := range l.state.Networks {
		for _, s := range n.Subnets {
			if n.Parent != "" {
				continue
			}
			if err := l.world.Route(s.Prefix); err != nil {
				l.t.Fatal(err)
			}
		}
	}
	if len(l.state.Publishes) == 0 {
		return
	}
	l.routeLoopback(l.world.DoClient, topology.Wire, topology.ServerAddr4)
	if !l.sandboxed() {
		return // mallory is the host itself
	}
	l.routeLoopback(l.in(mallory), "eth0", l.state.Networks[0].Subnets[0].HostAddress())
}

func (l *lab) routeLoopback(in place.Place, link string, via netip.Addr) {
	l.t.Helper()
	shell.Run(l.t, in, fmt.Sprintf("sysctl -qw net.ipv4.conf.%[1]s.route_localnet=1 net.ipv4.conf.%[1]s.rp_filter=0 &&"+
		" ip addr del 127.0.0.1/8 dev lo && ip route add 127.0.0.0/8 via %[2]s dev %[1]s", link, via))
}

// sandboxed reports whether the driver's workloads have namespaces.
func (l *lab) sandboxed() bool { return l.driver != model.DriverHost }

// in returns the place of a sandbox. With the driver host, it returns the host.
func (l *lab) in(sandbox string) place.Place {
	if !l.sandboxed() {
		return l.world.DoServer
	}
	return func(fn func() error) error { return l.world.DoSandbox(sandbox, fn) }
}

func (l *lab) workload(fn func() error) error { return l.in(web)(fn) }

// address returns the address at which a sandbox is reachable, and false if it has none.
func (l *lab) address(name string, v4 bool) (netip.Addr, bool) {
	if !l.sandboxed() {
		return serverAddr(v4), true
	}
	e, _ := l.state.Endpoint(name)
	return e.Address(v4)
}

func serverAddr(v4 bool) netip.Addr {
	if v4 {
		return topology.ServerAddr4
	}
	return topology.ServerAddr6
}

func clientAddr(v4 bool) netip.Addr {
	if v4 {
		return topology.ClientAddr4
	}
	return topology.ClientAddr6
}
