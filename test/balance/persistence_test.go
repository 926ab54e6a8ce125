package balance_test

import (
	"context"
	"fmt"
	"net/netip"
	"slices"
	"time"

	"fairlead/internal/model"
	"fairlead/internal/plan"
	"fairlead/test/place"
)

// clientAddresses adds addresses to the client and returns them.
func (l *lan) clientAddresses(v4 bool) []netip.Addr {
	l.Helper()
	base, ip, route := "2001:db8:1:1::%x", "ip -6", "2001:db8:1:1::/64 via 2001:db8:1::1"
	if v4 {
		base, ip, route = "198.51.100.%d", "ip", "198.51.100.16/28 via 198.51.100.1"
	}
	var all []netip.Addr
	for i := range 8 {
		a := netip.MustParseAddr(fmt.Sprintf(base, 20+i))
		l.sh(l.DoClient, fmt.Sprintf("%s addr replace %s dev lo", ip, netip.PrefixFrom(a, a.BitLen())))
		all = append(all, a)
	}
	l.sh(l.DoServer, ip+" route replace "+route)
	l.Cleanup(func() { l.sh(l.DoServer, ip+" route del "+route) })
	return all
}

// answers returns the server that answers a new flow from an address.
func (l *lan) answers(from place.Place, at netip.Addr, proto model.Proto, v4 bool, port int) string {
	l.Helper()
	t, err := l.dialFrom(from, at, proto, v4, port)
	if err != nil {
		l.Fatal(err)
	}
	return t.hears().by
}

// persistent returns a persistent service. Without persistence it would distribute flows in turn.
func (l *lan) persistent(proto model.Proto, v4 bool, reals ...string) model.VirtualService {
	v := l.service(proto, v4, reals...)
	v.Persistence, v.Scheduler = 5*time.Minute, model.RoundRobin
	return v
}

// persists checks that a client address keeps its server, that not all clients have the same
// server, and that the server still receives the client's address. The same applies to servers
// outside of Fairlead. Other tools can read Fairlead's rules while clients are recorded.
func (l *lan) persists(proto model.Proto, v4 bool) {
	clientAddresses := l.clientAddresses(v4)
	for _, servers := range [][]string{boxes, {"far1", "far2"}} {
		l.set(l.persistent(proto, v4, servers...))
		with := map[netip.Addr]string{}
		by := map[string]bool{}
		for range 3 {
			for _, from := range clientAddresses {
				name := l.answers(l.DoClient, from, proto, v4, 8080)
				if with[from] != "" && with[from] != name {
					l.Errorf("%s had server %s and gets %s", from, with[from], name)
				}
				with[from], by[name] = name, true
			}
		}
		if len(by) != len(servers) {
			l.Errorf("the clients together use the servers %v, want all of %v", by, servers)
		}
		l.readable()
		if ops, err := l.Engine.Verify(context.Background()); err != nil || len(ops) > 0 {
			l.Errorf("recorded clients are reported as differences: %v\n%s", err, plan.Text(ops))
		}
	}
	l.set(l.persistent(proto, v4, boxes...))
	if _, s := l.talk(l.DoClient, proto, v4); s.sees != clientAddr(v4) {
		l.Errorf("the server receives the request from %s", s.sees)
	}
}

// readable fails the test unless nft(8) lists the host's rules as text and as
// JSON.
func (l *lan) readable() {
	l.Helper()
	l.sh(l.DoServer, "nft list ruleset > /dev/null && nft -j list ruleset > /dev/null")
}

// persistsLocally checks persistence for clients on the host itself and in sandboxes.
func (l *lan) persistsLocally(proto model.Proto, v4 bool) {
	l.set(l.persistent(proto, v4, "a", "b", "far1"))
	for name, from := range map[string]place.Place{"the host": l.DoServer, "c": l.in("c"), "a": l.in("a")} {
		if got := l.spread(from, proto, v4, 6); len(got) != 1 {
			l.Errorf("several servers answer a client on %s: %v", name, got)
		}
	}
}

// persistsOverPorts checks that a client has the same server for all ports of a
// service.
func (l *lan) persistsOverPorts(proto model.Proto, v4 bool) {
	v := l.persistent(proto, v4, boxes...)
	v.Ports = []model.PortRange{{First: 8080, Last: 8082}}
	for i := range v.Reals {
		v.Reals[i].Port = 0
	}
	l.set(v)
	first := l.answers(l.DoClient, netip.Addr{}, proto, v4, 8080)
	for port := 8080; port <= 8082; port++ {
		t, err := l.dial(l.DoClient, proto, v4, port)
		if err != nil {
			l.Fatal(err)
		}
		if s := t.hears(); s.by != first || s.port != port {
			l.Errorf("%s answers port %d at its port %d, but %s answered port 8080", s.by, port, s.port, first)
		}
	}
}

// persistsAfterRemoval checks that a client whose server becomes unavailable gets another server
// and keeps it when the first is available again. A client of another server keeps its server.
func (l *lan) persistsAfterRemoval(proto model.Proto, v4 bool) {
	clientAddresses := l.clientAddresses(v4)
	v := l.persistent(proto, v4, boxes...)
	l.set(v)
	with := map[netip.Addr]string{}
	for _, from := range clientAddresses {
		with[from] = l.answers(l.DoClient, from, proto, v4, 8080)
	}
	for how, leave := range map[string]func(*model.VirtualService, int){
		"drains":       func(v *model.VirtualService, i int) { v.Reals[i].State = model.RealDraining },
		"is down":      func(v *model.VirtualService, i int) { v.Reals[i].State = model.RealDown },
		"has weight 0": func(v *model.VirtualService, i int) { v.Reals[i].Weight = 0 },
		"is removed":   func(v *model.VirtualService, i int) { v.Reals = slices.Delete(v.Reals, i, i+1) },
	} {
		gone := with[clientAddresses[0]]
		without := v.Clone()
		leave(&without, slices.Index(boxes, gone))
		l.set(without)
		for _, then := range []model.VirtualService{without, v} {
			l.set(then)
			for _, from := range clientAddresses {
				name := l.answers(l.DoClient, from, proto, v4, 8080)
				if with[from] == gone && name != gone {
					with[from] = name
				}
				if name != with[from] {
					l.Errorf("%s %s: client %s had %s and gets %s", gone, how, from, with[from], name)
				}
			}
		}
		for from, name := range with {
			if name == gone {
				l.Errorf("%s %s, but still answers the client %s", gone, how, from)
			}
		}
	}
}
