package balance_test

import (
	"context"
	"fmt"
	"net/netip"
	"path/filepath"
	"slices"
	"time"

	"fairlead/internal/model"
	"fairlead/internal/plan"
)

// everyKind returns services of every kind that nftables supports, each on its own port. empty have
// no real servers, kept do not translate the port, and others are all remaining kinds.
func (l *lan) everyKind(proto model.Proto, v4 bool) (empty, kept, others []model.VirtualService) {
	var n uint16
	add := func(to *[]model.VirtualService, s model.Scheduler, persistent bool, change func(*model.VirtualService),
		reals ...string) {
		v := l.service(proto, v4, reals...)
		v.Name, v.Ports, v.Scheduler = fmt.Sprintf("%s-%d", v.Name, n), []model.PortRange{model.Port(8081 + n)}, s
		if n++; persistent {
			v.Persistence = 5 * time.Minute
		}
		change(&v)
		*to = append(*to, v)
	}
	asItIs := func(*model.VirtualService) {}
	for _, s := range []model.Scheduler{model.MaglevHashing, model.SourceHashing, model.RoundRobin,
		model.WeightedRoundRobin} {
		for _, persistent := range []bool{false, true} {
			add(&others, s, persistent, asItIs, "a", "b", "far1", "far2")
			add(&others, s, persistent, func(v *model.VirtualService) {
				v.Reals[0].State, v.Reals[1].State, v.Reals[2].Weight = model.RealDraining, model.RealDown, 3
			}, "a", "b", "c", "far1")
			add(&kept, s, persistent, func(v *model.VirtualService) {
				// A port that is not translated must be a port that the servers listen on.
				v.Addresses, v.Ports = l.others(v4, int(n)), []model.PortRange{{First: 8080, Last: 8083}}
				for i := range v.Reals {
					v.Reals[i].Port = 0
				}
			}, "a", "far2")
		}
	}
	add(&empty, model.MaglevHashing, false, asItIs)
	add(&empty, model.RoundRobin, true, func(v *model.VirtualService) { v.Reals[0].State = model.RealDown }, "a")
	return empty, kept, others
}

// others returns additional virtual addresses that the client can reach.
func (l *lan) others(v4 bool, n int) []netip.Addr {
	l.Helper()
	a, line := netip.MustParseAddr(fmt.Sprintf("2001:db8:80::1:%d", n)), "ip -6 route replace %s via 2001:db8:1::2"
	if v4 {
		a, line = netip.AddrFrom4([4]byte{192, 0, 2, byte(100 + n)}), "ip route replace %s via 198.51.100.2"
	}
	l.sh(l.DoClient, fmt.Sprintf(line, a))
	return []netip.Addr{a}
}

// loads checks that rules saved with nft(8) and loaded again are unchanged: Verify reports no
// difference, packets still pass, and clients are still recorded. The loaded rules can be changed.
func (l *lan) loads(proto model.Proto, v4 bool) {
	empty, kept, others := l.everyKind(proto, v4)
	all := append(append(kept, others...), empty...)
	l.set(all...)
	before := map[string]string{}
	var talks []conversation
	for _, v := range append(kept, others...) {
		t, s := l.talkWith(v)
		before[v.Name], talks = s.by, append(talks, conversation{t, s.by})
	}
	l.sh(l.DoServer, fmt.Sprintf("nft list ruleset > %[1]s && nft flush ruleset && nft -f %[1]s",
		filepath.Join(l.TempDir(), "rules")))
	if ops, err := l.Engine.Verify(context.Background()); err != nil || len(ops) > 0 {
		l.Errorf("the loaded rules differ from the saved ones: %v\n%s", err, plan.Text(ops))
	}
	l.continues(talks)
	for _, v := range append(kept, others...) {
		_, s := l.talkWith(v)
		if !l.gets(v, s.by) || v.Persistence > 0 && s.by != before[v.Name] {
			l.Errorf("%s %s: %q answers, before it was %q", v.Name, v.Scheduler, s.by, before[v.Name])
		}
	}
	for _, v := range empty {
		l.isRefused(l.DoClient, proto, v4, int(v.Ports[0].First))
	}
	for i := range others {
		others[i] = others[i].Clone()
		others[i].Reals = others[i].Reals[2:3]
	}
	l.set(append(others, kept...)...)
	for _, v := range others {
		if _, s := l.talkWith(v); !l.gets(v, s.by) {
			l.Errorf("%s %s: %s answers although it was removed", v.Name, v.Scheduler, s.by)
		}
	}
}

// gets reports whether a service gives new flows to the server with that name.
func (l *lan) gets(v model.VirtualService, name string) bool {
	at := l.real(name, v.Addresses[0].Is4()).Address
	return slices.ContainsFunc(v.Reals, func(r model.RealServer) bool {
		return r.Address == at &&
			r.State == model.RealUp
	})
}

// talkWith opens a conversation with a service and returns the first answer.
func (l *lan) talkWith(v model.VirtualService) (talk, said) {
	l.Helper()
	t, err := l.dialTo(l.DoClient, netip.Addr{}, v.Proto, netip.AddrPortFrom(v.Addresses[0], v.Ports[0].First))
	if err != nil {
		l.Fatalf("dial %s: %v", v.Name, err)
	}
	return t, t.hears()
}
