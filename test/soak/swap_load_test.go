package soak_test

import (
	"context"
	"fmt"
	"net/netip"
	"sync"
	"sync/atomic"
	"time"

	"fairlead/internal/lab/topology"
	"fairlead/internal/model"
	"fairlead/test/place"
)

// target is a port of a sandbox that is published: with a publish mode, by a service of a data plane, or by the
// gateway.
type target struct {
	sandbox, via, plane string
	port                uint16
}

// published are the targets by host port. Each has a container port of its own: a client may use the same source port
// for two host ports, and conntrack and the eBPF programs do not know of each other's connections.
var published = map[uint16]target{
	7000: {sandbox: "web", via: "nat", port: 9000}, 7001: {sandbox: "far", via: "nat", port: 9001},
	7002: {sandbox: "api", via: "ebpf", port: 9002}, 7003: {sandbox: "box", via: "ebpf", port: 9003},
	7004: {sandbox: "web", via: "proxy", port: 9004}, 7005: {sandbox: "far", via: "proxy", port: 9005},
	7006: {sandbox: "web", port: kept},
	7010: {sandbox: "api", plane: "nft", port: 9006}, 7011: {sandbox: "api", plane: "ebpf", port: 9007},
}

// The time between two requests of a load, and how long a request may take. A lost packet of TCP is sent again after a
// second at the latest, so only a connection that is lost takes as long.
const (
	swapPause = 50 * time.Millisecond
	swapLimit = 20 * time.Second
)

// swapLoad asks at one port from one place: on a connection that stays open, and on new connections.
type swapLoad struct {
	name string
	from place.Place
	to   netip.AddrPort
	// proto is that of both kinds of connections.
	proto  model.Proto
	want   string
	wrongs wrongs

	answers, came, slowest atomic.Int64
}

func (l *swapLoad) String() string { return l.name }

// loads returns the loads: from the client host to each port, and if long is set also over IPv6, from a sandbox and
// from the server host itself. UDP flows via proxy begin again at an upgrade (ADR 23), so they are not among them.
func (s *swapped) loads(long bool) []*swapLoad {
	places := []vantage{{"client host", s.w.DoClient, []netip.Addr{topology.ServerAddr4}}}
	if long {
		places = append(places, vantage{"client host", s.w.DoClient, []netip.Addr{topology.ServerAddr6}},
			vantage{serverHost, s.w.DoServer, []netip.Addr{topology.ServerAddr4}},
			vantage{"box", s.w.in("box"), []netip.Addr{topology.ServerAddr4}})
	}
	var all []*swapLoad
	for port, p := range published {
		for _, from := range places {
			for _, host := range from.hosts {
				for _, proto := range protos {
					if p.plane != "" && host.Is6() || proto == model.UDP && (p.via == "" || p.via == "proxy") {
						continue
					}
					to := netip.AddrPortFrom(host, port)
					name := fmt.Sprintf("%s%s %s from %s to %s", p.via, p.plane, proto, from.name, to)
					all = append(all, &swapLoad{name: name, from: from.place, to: to, proto: proto,
						want: fmt.Sprintf("%s:%d", p.sandbox, p.port)})
				}
			}
		}
	}
	return all
}

// begin starts the load, which continues until ctx ends or something is lost.
func (l *swapLoad) begin(ctx context.Context, running *sync.WaitGroup) {
	running.Go(func() { l.repeat(ctx, "a new connection", l.come) })
	conn, err := place.Dial(l.from, string(l.proto), l.to.String(), swapLimit)
	if err != nil {
		l.wrongs.note(fmt.Errorf("%s: %w", l, err))
		return
	}
	running.Go(func() {
		defer conn.Close()
		l.repeat(ctx, "the connection that stays open", func(n int) (string, error) {
			name, err := ask(conn, fmt.Sprintf("word-%d", n), swapLimit)
			if err == nil {
				l.answers.Add(1)
			}
			return name, err
		})
	})
}

// come asks once on a new connection.
func (l *swapLoad) come(int) (string, error) {
	began := time.Now()
	name, err := once(l.from, l.proto, l.to, swapLimit)
	if err == nil {
		l.came.Add(1)
		l.slowest.Store(max(l.slowest.Load(), int64(time.Since(began))))
	}
	return name, err
}

// repeat asks until ctx ends or the answer is wrong.
func (l *swapLoad) repeat(ctx context.Context, how string, ask func(n int) (string, error)) {
	for n := 0; ctx.Err() == nil; n++ {
		if name, err := ask(n); err != nil || name != l.want {
			l.wrongs.note(fmt.Errorf("%s: %s: %s: %q answers request %d, want %s: %w",
				time.Now().UTC().Format(time.RFC3339Nano), l, how, name, n, l.want, err))
			return
		}
		time.Sleep(swapPause)
	}
}

// await waits until each load has made more exchanges. It reports what the loads have lost.
func (s *swapped) await(loads []*swapLoad) {
	s.Helper()
	for _, l := range loads {
		answers, came := l.answers.Load()+exchanges, l.came.Load()+exchanges
		for end := time.Now().Add(place.Timeout); l.answers.Load() < answers || l.came.Load() < came; {
			l.wrongs.report(s.T)
			if s.Failed() {
				s.FailNow()
			}
			if time.Now().After(end) {
				s.Fatalf("%s: %d and %d answers in %v", l, l.answers.Load(), l.came.Load(), place.Timeout)
			}
			time.Sleep(time.Millisecond)
		}
	}
}
