package balance_test

import (
	"flag"
	"fmt"
	"net/netip"
	"slices"
	"strings"
	"testing"
	"time"

	"fairlead/internal/lab/topology"
	"fairlead/internal/model"
	"fairlead/test/place"
)

// planes are the data planes to test; another kernel may need others.
var planes = flag.String("planes", "nft,ebpf", "comma-separated data planes to test")

// can lists the optional features of each data plane. A data plane must refuse all other features.
var can = map[model.Plane][]string{
	model.PlaneNFT: {"rr", "wrr", "sh", "mh", "persistence", "persistent-ports", "sandboxes", "local", "saved",
		"local-server"},
	model.PlaneEBPF: {"rr", "wrr", "lc", "wlc", "sh", "mh", "direct", "tunnel", "gue", "for-sandboxes", "persistence",
		"persistent-ports", "sandboxes", "local", "local-server", "local-server-direct"},
	model.PlaneIPVS: {"rr", "wrr", "lc", "wlc", "sh", "mh", "sed", "nq", "direct", "tunnel", "gue", "persistence",
		"sandboxes", "local", "ipvs", "local-server", "local-server-direct"},
}

// trials lists the tests by name.
var trials = []struct {
	name string
	// needs is the feature that the data plane must have.
	needs string
	try   func(*lan, model.Proto, bool)
}{
	{"spread over sandboxes", "", (*lan).spreads},
	{"servers outside the host", "", (*lan).outside},
	{"hop limit", "", (*lan).hops},
	{"local clients", "local", (*lan).locals},
	{"clients in sandboxes", "sandboxes", (*lan).sandboxed},
	{"conversations outlive changes", "", (*lan).changes},
	{"draining", "", (*lan).drains},
	{"a failed server", "", (*lan).dies},
	{"a removed service", "", (*lan).removed},
	{"forged SYNs", "", (*lan).forged},
	{"a client that crashed", "", (*lan).crashes},
	{"a range of ports", "", (*lan).ranged},
	{"round robin", "rr", (*lan).robin},
	{"weights", "wrr", (*lan).weighs},
	{"least connections", "lc", (*lan).least},
	{"persistence", "persistence", (*lan).persists},
	{"persistence of local clients", "persistence", (*lan).persistsLocally},
	{"persistence over ports", "persistent-ports", (*lan).persistsOverPorts},
	{"persistence and removed servers", "persistence", (*lan).persistsAfterRemoval},
	{"source hashing", "sh", (*lan).hashes},
	{"direct", "direct", (*lan).direct},
	{"tunnel", "tunnel", (*lan).tunnels},
	{"tunnel in UDP", "gue", (*lan).tunnelsInUDP},
	{"expected delay", "sed", (*lan).fair},
	{"services of other programs", "ipvs", (*lan).foreign},
	{"leftovers", "ipvs", (*lan).leftovers},
	{"counts", "ipvs", (*lan).counts},
	{"rules saved and loaded", "saved", (*lan).loads},
	{"direct to sandboxes", "for-sandboxes", (*lan).directToSandboxes},
	{"tunnel to sandboxes", "for-sandboxes", (*lan).tunnelsToSandboxes},
	{"the host itself", "local-server", (*lan).local},
	{"the host itself among others", "local-server", (*lan).localAmongOthers},
	{"the host itself, direct", "local-server-direct", (*lan).localDirect},
}

// TestConformance runs every test on every data plane, for both protocols and both
// families.
func TestConformance(t *testing.T) {
	for name := range strings.SplitSeq(*planes, ",") {
		plane := model.Plane(name)
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			l := newLAN(t, plane, topology.Options{})
			for _, trial := range trials {
				if trial.needs != "" && !slices.Contains(can[plane], trial.needs) {
					continue
				}
				for _, proto := range []model.Proto{model.TCP, model.UDP} {
					for _, v4 := range []bool{true, false} {
						t.Run(fmt.Sprintf("%s/%s/ipv%d", trial.name, proto, map[bool]int{true: 4, false: 6}[v4]),
							func(t *testing.T) {
								trial.try(l.of(t), proto, v4)
							})
					}
				}
			}
			l.refuses()
			l.over()
		})
	}
}

// refuses requests features that the data plane lacks. It must return an error and change nothing.
func (l *lan) refuses() {
	l.Helper()
	l.set(l.service(model.TCP, true, "a"))
	for _, s := range []model.Scheduler{"rr", "wrr", "lc", "wlc", "sh", "mh", "sed", "nq"} {
		v := l.service(model.TCP, true, "a")
		v.Scheduler = s
		l.fits(v, string(s))
	}
	for _, f := range []model.Forward{model.ForwardDirect, model.ForwardTunnel} {
		v := l.service(model.TCP, true, "far1")
		v.Forward, v.Reals[0].Port = f, 0
		l.fits(v, string(f))
	}
	persistent := l.service(model.TCP, true, "a")
	persistent.Persistence = time.Minute
	l.fits(persistent, "persistence")
	mixed := l.service(model.TCP, true, "a")
	mixed.Reals = append(mixed.Reals, l.real("b", false))
	if err := l.trySet(mixed); err == nil {
		l.Error("a real server of another family is accepted")
	}
	if got := l.spread(l.DoClient, model.TCP, true, 2); got["a"] != 2 {
		l.Errorf("servers that answer after refusals: %v", got)
	}
}

// fits fails the test unless the data plane has the requested feature and installs the service, or
// refuses it with an error that names the feature.
func (l *lan) fits(v model.VirtualService, ability string) {
	l.Helper()
	err := l.trySet(v)
	switch able := slices.Contains(can[l.plane], ability); {
	case able && err != nil:
		l.Errorf("%s: %v", ability, err)
	case !able && (err == nil || !strings.Contains(err.Error(), ability) ||
		!strings.Contains(err.Error(), string(l.plane))):
		l.Errorf("%s: the error must name the feature and the data plane, got: %v", ability, err)
	}
	l.set(l.service(model.TCP, true, "a"))
}

// only fails the test unless exactly the named servers answer.
func (l *lan) only(count map[string]int, names ...string) {
	l.Helper()
	for _, name := range names {
		if count[name] == 0 {
			l.Errorf("%s never answers: %v", name, count)
		}
	}
	if len(count) != len(names) {
		l.Errorf("servers that answer: %v, want %v", count, names)
	}
}

// clientAddr is the client's address on the wire.
func clientAddr(v4 bool) netip.Addr {
	if v4 {
		return netip.MustParseAddr("198.51.100.1")
	}
	return netip.MustParseAddr("2001:db8:1::1")
}

// spreads checks that new flows reach all sandboxes, and that the sandboxes receive the client's
// address.
func (l *lan) spreads(proto model.Proto, v4 bool) {
	l.set(l.service(proto, v4, boxes...))
	l.sh(l.DoServer, "nft list ruleset") // nft must be able to list Fairlead's tables
	l.only(l.spread(l.DoClient, proto, v4, 60), boxes...)
	if _, s := l.talk(l.DoClient, proto, v4); s.sees != clientAddr(v4) || s.port != 80 {
		l.Errorf("the server receives the request at port %d from %s, want port 80 from %s", s.port, s.sees,
			clientAddr(v4))
	}
	l.set()
	l.isGone(l.DoClient, proto, v4)
}

// isGone fails the test if a server answers at the virtual address. The client must get an error,
// or no answer if there is no route.
func (l *lan) isGone(from place.Place, proto model.Proto, v4 bool) {
	l.Helper()
	t, err := l.dialUntil(soon(), from, netip.Addr{}, proto, netip.AddrPortFrom(vip(v4), 8080))
	if err != nil {
		return
	}
	if s, err := t.askUntil(soon()); err == nil {
		l.Errorf("%s answers at an address without a service", s.by)
	}
}

// outside checks that servers outside of Fairlead answer through the host, even to clients that
// they could reach directly.
func (l *lan) outside(proto model.Proto, v4 bool) {
	l.set(l.service(proto, v4, "far1", "far2"))
	l.only(l.spread(l.DoClient, proto, v4, 30), "far1", "far2")
	onLAN := netip.MustParseAddr("2001:db8:113::100")
	if v4 {
		onLAN = netip.MustParseAddr("203.0.113.100")
	}
	for range 4 {
		t, err := l.dialFrom(l.DoClient, onLAN, proto, v4, 8080)
		if err != nil {
			l.Fatal(err)
		}
		t.hears()
	}
}

// locals checks that processes of the host can be clients.
func (l *lan) locals(proto model.Proto, v4 bool) {
	l.set(l.service(proto, v4, "a", "b", "far1"))
	l.only(l.spread(l.DoServer, proto, v4, 60), "a", "b", "far1")
}

// sandboxed checks that sandboxes can be clients, including a sandbox that is itself a real server.
func (l *lan) sandboxed(proto model.Proto, v4 bool) {
	l.set(l.service(proto, v4, "a", "b"))
	for _, from := range []string{"c", "a"} {
		l.only(l.spread(l.in(from), proto, v4, 40), "a", "b")
	}
}

// changes checks that a conversation keeps its server when other servers are added, changed or
// removed.
func (l *lan) changes(proto model.Proto, v4 bool) {
	v := l.service(proto, v4, "a", "b")
	l.set(v)
	talks := l.talks(proto, v4, 8)
	more := l.service(proto, v4, boxes...)
	l.set(more)
	l.continues(talks)
	l.only(l.spread(l.DoClient, proto, v4, 60), boxes...)
	heavy := more.Clone()
	heavy.Reals[2].Weight = 100
	l.set(heavy)
	l.continues(talks)
	l.set(v)
	l.continues(talks)
}

// conversation is an open conversation and the server that answered first.
type conversation struct {
	talk
	with string
}

func (l *lan) talks(proto model.Proto, v4 bool, n int) []conversation {
	l.Helper()
	var all []conversation
	for range n {
		t, s := l.talk(l.DoClient, proto, v4)
		all = append(all, conversation{t, s.by})
	}
	return all
}

func (l *lan) continues(all []conversation) {
	l.Helper()
	for _, c := range all {
		if s := c.hears(); s.by != c.with {
			l.Errorf("%s answers in a conversation with %s", s.by, c.with)
		}
	}
}

// drains checks that a server that drains or has weight 0 keeps its conversations and gets no new
// ones, even if no other server is left.
func (l *lan) drains(proto model.Proto, v4 bool) {
	v := l.service(proto, v4, "a", "b")
	l.set(v)
	talks := l.talks(proto, v4, 12)
	for _, quiet := range []func(*model.RealServer){
		func(r *model.RealServer) { r.State = model.RealDraining },
		func(r *model.RealServer) { r.Weight = 0 },
	} {
		one := v.Clone()
		quiet(&one.Reals[0])
		l.set(one)
		l.continues(talks)
		l.only(l.spread(l.DoClient, proto, v4, 20), "b")
		both := one.Clone()
		quiet(&both.Reals[1])
		l.set(both)
		l.continues(talks)
		l.isRefused(l.DoClient, proto, v4, 8080)
		l.set(v)
		l.continues(talks)
	}
}

// dies checks that a client is reset at once when its server is down or removed, even if the client
// sends nothing, and that it can connect again from the same port. Conversations with other servers
// continue, including those with a server that drains.
func (l *lan) dies(proto model.Proto, v4 bool) {
	const many = 40 // a hash does not send all of these to one server
	for i, servers := range [][]string{{"a", "b"}, {"far1", "far2"}} {
		v := l.service(proto, v4, servers...)
		l.set(v)
		talks := l.talks(proto, v4, many)
		for _, from := range []place.Place{l.DoServer, l.in("c")} {
			for range 4 {
				t, s := l.talk(from, proto, v4)
				talks = append(talks, conversation{t, s.by})
			}
		}
		without := v.Clone()
		without.Reals[1].State = model.RealDraining
		l.set(without)
		if without.Reals[0].State = model.RealDown; i == 1 {
			without.Reals = without.Reals[1:]
		}
		l.set(without)
		for _, c := range talks {
			switch {
			case c.with == servers[1]:
				l.continues([]conversation{c})
			case proto == model.TCP:
				c.endsByReset()
			}
		}
		without.Reals[len(without.Reals)-1].State = model.RealUp
		l.set(without)
		l.moveTo(proto, v4, talks[:many], servers[1])
		l.only(l.spread(l.DoClient, proto, v4, 20), servers[1])
	}
}

// moveTo checks that clients of a server that is down reach the other server.
func (l *lan) moveTo(proto model.Proto, v4 bool, talks []conversation, to string) {
	l.Helper()
	talks = slices.DeleteFunc(talks, func(c conversation) bool { return c.with == to })
	if len(talks) == 0 {
		l.Fatalf("all conversations are with %s", to)
	}
	for _, c := range talks {
		if proto == model.TCP {
			c.again(l.DoClient)
		} else if s := c.hears(); s.by != to {
			l.Errorf("%s answers although it is down", s.by)
		}
	}
}

// removed checks that clients of a removed service are reset when the service and its address are
// removed, even if they send nothing.
func (l *lan) removed(proto model.Proto, v4 bool) {
	if proto == model.UDP {
		return // UDP has no resets
	}
	for _, servers := range [][]string{boxes, {"far1", "far2"}} {
		v := l.service(proto, v4, servers...)
		l.set(v)
		talks := l.talks(proto, v4, 4)
		for _, from := range []place.Place{l.DoServer, l.in("a")} {
			t, s := l.talk(from, proto, v4)
			talks = append(talks, conversation{t, s.by})
		}
		l.set()
		for _, c := range talks {
			c.endsByReset()
		}
		l.set(v)
		talks[0].again(l.DoClient)
	}
}

// ranged checks that the port number does not change within a range.
func (l *lan) ranged(proto model.Proto, v4 bool) {
	v := l.service(proto, v4, "a", "b")
	v.Ports = []model.PortRange{{First: 8080, Last: 8082}}
	for i := range v.Reals {
		v.Reals[i].Port = 0
	}
	l.set(v)
	for port := 8080; port <= 8082; port++ {
		t, err := l.dial(l.DoClient, proto, v4, port)
		if err != nil {
			l.Fatal(err)
		}
		if s := t.hears(); s.port != port {
			l.Errorf("port %d is translated to %d", port, s.port)
		}
	}
}

// robin checks that each server gets the same number of flows.
func (l *lan) robin(proto model.Proto, v4 bool) {
	v := l.service(proto, v4, boxes...)
	v.Scheduler = model.RoundRobin
	l.set(v)
	for name, n := range l.spread(l.DoClient, proto, v4, 30) {
		if n != 10 {
			l.Errorf("%s gets %d of 30 flows", name, n)
		}
	}
}

// weighs checks that each server gets flows in proportion to its weight.
func (l *lan) weighs(proto model.Proto, v4 bool) {
	v := l.service(proto, v4, boxes...)
	v.Scheduler = model.WeightedRoundRobin
	for i := range v.Reals {
		v.Reals[i].Weight = i + 1
	}
	l.set(v)
	got := l.spread(l.DoClient, proto, v4, 60)
	for i, name := range boxes {
		if got[name] != 10*(i+1) {
			l.Errorf("%s has weight %d and gets %d of 60 flows", name, i+1, got[name])
		}
	}
}

// least checks that new flows go to the server with the fewest flows.
func (l *lan) least(proto model.Proto, v4 bool) {
	v := l.service(proto, v4, "a", "b")
	v.Scheduler = model.LeastConnection
	l.set(v)
	l.talks(proto, v4, 8)
	more := l.service(proto, v4, boxes...)
	more.Scheduler = model.LeastConnection
	l.set(more)
	for _, c := range l.talks(proto, v4, 3) {
		if c.with != "c" {
			l.Errorf("%s gets a flow although the new server c has fewer", c.with)
		}
	}
}

// hashes checks that one client address always gets the same server, and that several addresses get
// more than one.
func (l *lan) hashes(proto model.Proto, v4 bool) {
	v := l.service(proto, v4, boxes...)
	v.Scheduler = model.SourceHashing
	l.set(v)
	if got := l.spread(l.DoClient, proto, v4, 10); len(got) != 1 {
		l.Errorf("several servers answer one client: %v", got)
	}
	by := map[string]bool{}
	for _, from := range l.clientAddresses(v4) {
		by[l.answers(l.DoClient, from, proto, v4, 8080)] = true
	}
	if len(by) < 2 {
		l.Errorf("one server answers all eight clients: %v", by)
	}
}

// direct checks that a server that has the virtual address itself receives the client's address and
// answers the client directly.
func (l *lan) direct(proto model.Proto, v4 bool) {
	for name := range far {
		l.prepare(name, v4)
	}
	v := l.service(proto, v4, "far1", "far2")
	v.Forward = model.ForwardDirect
	for i := range v.Reals {
		v.Reals[i].Port = 0
	}
	l.set(v)
	l.reaches(40, proto, v4, "far1", "far2")
}

// prepare configures the virtual address on a server outside of Fairlead until the test ends,
// without announcing it.
func (l *lan) prepare(name string, v4 bool) {
	l.Helper()
	address := fmt.Sprintf("%s/%d dev lo", vip(v4), vip(v4).BitLen())
	l.sh(l.servers[name].Do,
		"sysctl -qw net.ipv4.conf.all.arp_ignore=1 net.ipv4.conf.all.arp_announce=2; ip addr replace "+address)
	l.Cleanup(func() { l.sh(l.servers[name].Do, "ip addr del "+address) })
}

// directToSandboxes checks that Fairlead prepares its sandboxes for direct forwarding, and that
// they receive the client's address.
func (l *lan) directToSandboxes(proto model.Proto, v4 bool) {
	v := l.service(proto, v4, boxes...)
	v.Forward = model.ForwardDirect
	l.toSandboxes(v, proto, v4)
}

// toSandboxes connects to sandboxes that receive packets for the virtual address itself.
func (l *lan) toSandboxes(v model.VirtualService, proto model.Proto, v4 bool) {
	l.Helper()
	for i := range v.Reals {
		v.Reals[i].Port = 0
	}
	l.set(v)
	l.only(l.spread(l.DoClient, proto, v4, 60), boxes...)
	if _, s := l.talk(l.DoClient, proto, v4); s.sees != clientAddr(v4) || s.port != 8080 {
		l.Errorf("the server receives the request at port %d from %s, want port 8080 from %s", s.port, s.sees,
			clientAddr(v4))
	}
}
