package truth_test

import (
	"fmt"
	"net/netip"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"fairlead/internal/explain/facts"
	"fairlead/internal/explain/flow"
	"fairlead/internal/explain/ports"
	"fairlead/internal/kernel/rules"
	"fairlead/internal/model"
	"fairlead/internal/sandbox"
	"fairlead/test/truth"
)

// ciPortHosts is the number of hosts without FAIRLEAD_TRUTH_PORTS.
const ciPortHosts = 16

// portTimeout is how long a client waits for an answer that should not come, and answerTimeout
// for one that should.
const (
	portTimeout   = 1500 * time.Millisecond
	answerTimeout = 20 * time.Second
)

// defaultRoutes make eth0 the uplink, and lan the default gateway.
var defaultRoutes = []string{"ip route add default via 198.18.0.7 dev eth0", "ip -6 route add default via fd18::7 dev eth0"}

// TestPortsOfGeneratedHosts compares what `fairlead ports` says of the reach of each port of
// generated hosts with the fate of real packets. FAIRLEAD_TRUTH_PORTS is the number of hosts,
// FAIRLEAD_TRUTH_FIRST the first seed.
func TestPortsOfGeneratedHosts(t *testing.T) {
	hosts, first := number(t, "FAIRLEAD_TRUTH_PORTS", ciPortHosts), number(t, "FAIRLEAD_TRUTH_FIRST", 1)
	counted, tested := map[truth.Judgement]int{}, 0
	var mu sync.Mutex
	together(hosts, func(i int) {
		g := truth.Generate(uint64(first + i))
		t.Run(fmt.Sprint(g.Seed), func(t *testing.T) {
			h := truth.Build(t, slices.Concat(defaultRoutes, g.Commands))
			all := reaches(t, h)
			var sent sync.WaitGroup
			for i := range all {
				sent.Go(func() { all[i].try(t, h) })
			}
			sent.Wait()
			mu.Lock()
			defer mu.Unlock()
			tested++
			for _, r := range all {
				counted[r.judgement]++
				if r.judgement == truth.Wrong {
					t.Errorf("seed %d: %s\n%s", g.Seed, r, strings.Join(g.Commands, "\n"))
				}
			}
		})
	})
	t.Logf("%d hosts: %v", tested, counted)
	if tested == hosts && counted[truth.Right] < counted[truth.Unknown] { // -run may leave out hosts
		t.Errorf("more is unknown than right: %v", counted)
	}
}

// reach is the answer for one port and one place, and the fates of packets.
type reach struct {
	port ports.Port
	// from are the clients of the place.
	from      []string
	dial      netip.AddrPort
	answer    rules.Answer
	fates     []truth.Fate
	judgement truth.Judgement
}

func (r reach) String() string {
	return fmt.Sprintf("from %s to %s/%s: %s, but the fates are %s (port %+v)", r.from, r.dial, r.port.Proto, r.answer, r.fates,
		r.port)
}

// reaches lists the ports of the host, and what is said of each place.
func reaches(t *testing.T, h *truth.Host) []reach {
	t.Helper()
	w, err := h.World()
	if err != nil {
		t.Fatal(err)
	}
	defer w.Close()
	f, err := facts.Gather(t.Context(), h.Kernel, sandbox.Finder{})
	if err != nil {
		t.Fatal(err)
	}
	var all []reach
	for _, p := range ports.ListAsked(f, nil, nil, func(f flow.Flow) (flow.Explanation, error) {
		return flow.Explain(w.Facts(), f)
	}) {
		for i, at := range p.Addresses {
			r := p.Reach
			if i > 0 && p.Reach6 != nil {
				r = *p.Reach6
			}
			all = append(all, places(p, at, r)...)
		}
	}
	// A command may have removed an address.
	return slices.DeleteFunc(all, func(r reach) bool {
		return !r.dial.Addr().IsLoopback() && f.LinkWith(r.dial.Addr()) == ""
	})
}

// places returns what is said of a port at one address.
func places(p ports.Port, at netip.Addr, r ports.Reach) []reach {
	family := map[bool]int{true: 1}[at.Is6()]
	loopback := []string{"127.0.0.1", "::1"}[family]
	host, bridge := []string{"198.18.0.1", "fd18::1"}[family], []string{"10.77.0.1", "fd77::1"}[family]
	if !at.IsUnspecified() {
		loopback, host, bridge = at.String(), at.String(), at.String()
	}
	var all []reach
	add := func(to string, answer rules.Answer, from ...string) {
		all = append(all, reach{port: p, from: from, answer: answer,
			dial: netip.AddrPortFrom(netip.MustParseAddr(to), p.Ports.First)})
	}
	if at.IsUnspecified() || at.IsLoopback() {
		add(loopback, r.Loopback, "host")
	}
	if !at.IsLoopback() {
		add(host, r.Host, "host")
		add(bridge, r.Containers, "a", "b")
		lan := "lan"
		if host == "10.78.0.1" || host == "fd78::1" { // its machines are behind the link vc
			lan = "c"
		}
		add(host, r.LAN, lan)
	}
	return all
}

// try sends a packet from each client, and judges the answer. It is wrong if it is yes and
// no client reaches the port, or no and all do.
func (r *reach) try(t *testing.T, h *truth.Host) {
	timeout := portTimeout
	if r.answer == rules.Yes {
		timeout = answerTimeout
	}
	reached, served := 0, 0
	for _, from := range r.from {
		fate, err := truth.Send(h.Places[from], r.dial, r.port.Proto == model.UDP, timeout)
		if err != nil {
			t.Error(err)
		}
		r.fates = append(r.fates, fate)
		if r.reaches(fate) {
			reached++
			timeout = portTimeout
		}
		if fate.By != "" {
			served++
		}
	}
	switch {
	case r.answer == rules.Maybe:
		r.judgement = truth.Unknown
	case r.answer == rules.Yes && reached == 0, r.answer == rules.No && served == len(r.from):
		r.judgement = truth.Wrong
	default:
		r.judgement = truth.Right
	}
}

// reaches reports whether a packet has reached the port. A sandbox may refuse it.
func (r *reach) reaches(f truth.Fate) bool {
	return f.Result == truth.Answered ||
		f.Result == truth.Refused && !slices.Equal(r.port.Modes, []ports.Mode{ports.Host})
}
