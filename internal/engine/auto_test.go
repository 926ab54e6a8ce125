package engine_test

import (
	"context"
	"errors"
	"reflect"
	"strings"
	"syscall"
	"testing"

	"fairlead/internal/lab/topology"
	"fairlead/internal/model"
	"fairlead/internal/plan"
	"fairlead/internal/promise"
	"fairlead/test/place"
)

// promising sets mode auto and these promises for the last publish.
func promising(s *model.State, promises ...promise.Question) {
	p := &s.Publishes[len(s.Publishes)-1]
	p.Via = model.ViaAuto
	for _, q := range promises {
		p.Promises = append(p.Promises, string(q))
	}
}

// TestAutoKeepsPromises publishes one sandbox twice via auto, with different
// promises. A firewall rule and the sandbox show which path the packets take.
func TestAutoKeepsPromises(t *testing.T) {
	w := world(t)
	before := snapshot(t, w)
	s := dual(t, w, model.DriverBridge, "web")
	for _, proto := range protos {
		publish(&s, "web", model.ViaAuto, proto, 8080, 80)
		promising(&s, promise.InputFirewall)
		publish(&s, "web", model.ViaAuto, proto, 8081, 80)
		promising(&s, promise.LANSource)
	}
	full := mustSet(t, w, s)
	for _, p := range full.Publishes {
		if p.Via == model.ViaAuto || (p.Via == model.ViaProxy) != (p.HostPorts.First == 8080) {
			t.Errorf("the completed state has %s", p)
		}
	}
	serve(t, in(w, "web"), "web", ":80")
	heard := func(port int) {
		t.Helper()
		for _, proto := range protos {
			for _, addr := range server(port) {
				hears(t, w.DoClient, proto, addr, "web")
			}
		}
	}
	heard(8080)
	// Ports whose packets pass INPUT now refuse, at once and on both protocols.
	onServer(t, w, "nft 'add table inet probe; add chain inet probe input { type filter hook input priority 0; };"+
		" add rule inet probe input iifname "+topology.Wire+
		" meta l4proto { tcp, udp } th dport { 8080, 8081 } reject'")
	for _, proto := range protos {
		for _, addr := range server(8080) {
			refused(t, w.DoClient, proto, addr)
		}
	}
	heard(8081)
	undrifted(t, w)
	onServer(t, w, "nft delete table inet probe")
	if err := w.Engine.TearDown(context.Background()); err != nil {
		t.Fatal(err)
	}
	unchanged(t, w, before)
}

// refused fails the test unless the host refuses the connection or datagram.
func refused(t *testing.T, from place.Place, proto model.Proto, to string) {
	t.Helper()
	conn, err := place.Dial(from, string(proto), to, place.Timeout)
	if err == nil {
		defer conn.Close()
		_, err = talk{t, conn}.ask()
	}
	if !errors.Is(err, syscall.ECONNREFUSED) {
		t.Errorf("%s %s: %v, want it refused", proto, to, err)
	}
}

// TestAutoChoiceIsStable plans the same state again, and states that name the
// chosen mode. None of these plans has a step.
func TestAutoChoiceIsStable(t *testing.T) {
	w := world(t)
	s := dual(t, w, model.DriverBridge, "web")
	publish(&s, "web", model.ViaAuto, model.TCP, 8080, 80)
	full := mustSet(t, w, s)
	if s.Publishes[0].Via != model.ViaAuto {
		t.Errorf("Set changed its argument to %s", s.Publishes[0])
	}
	if endpoints, err := w.Engine.Lease(s); err != nil || !reflect.DeepEqual(full.Endpoints, endpoints) {
		t.Errorf("Set returned %+v, Lease %+v, %v", full.Endpoints, endpoints, err)
	}
	named := s.Clone()
	named.Publishes[0].Via = full.Publishes[0].Via
	for _, again := range []model.State{s, named, full} {
		if ops, err := w.Engine.Plan(again); err != nil || len(ops) != 0 {
			t.Errorf("setting %s again would: %v\n%s", again.Publishes[0], err, plan.Text(ops))
		}
	}
	undrifted(t, w)
}

func TestPromisesThatCannotBeKeptAreRefused(t *testing.T) {
	for _, c := range []struct {
		name    string
		publish func(*model.State)
		want    []string
	}{
		{"no mode keeps them", func(s *model.State) { promising(s, promise.LANSource, promise.InputFirewall) },
			[]string{"publish 8080/tcp -> web:80 via auto: no publish mode fits",
				"nat (it does not promise input-firewall", "proxy (it does not promise lan-source"}},
		{"the named mode does not keep them",
			func(s *model.State) { s.Publishes[0].Promises = []string{"input-firewall"} },
			[]string{"publish 8080/tcp -> web:80 via nat: it does not promise input-firewall: forwarded packets pass FORWARD, never INPUT: publish via auto"}},
		{"unknown, via auto", func(s *model.State) { promising(s, "world-peace") },
			[]string{`via auto: no publish mode promises "world-peace": want one or more of lan, `}},
		{"unknown, by name", func(s *model.State) { s.Publishes[0].Promises = []string{"world-peace"} },
			[]string{`via nat: no publish mode promises "world-peace"`}},
		{"without a network", func(s *model.State) {
			s.Networks[0] = model.Network{Name: "net", Driver: model.DriverNone}
			promising(s)
		}, []string{"no publish mode supports driver none"}},
		{"on a port that is taken", func(s *model.State) {
			promising(s)
			publish(s, "web", model.ViaProxy, model.TCP, 8080, 80)
		}, []string{"port taken by endpoint web (8080/tcp -> web:80 via auto)"}},
	} {
		t.Run(c.name, func(t *testing.T) {
			w := world(t)
			before := snapshot(t, w)
			s := dual(t, w, model.DriverBridge, "web")
			publish(&s, "web", model.ViaNAT, model.TCP, 8080, 80)
			c.publish(&s)
			_, err := w.Engine.Set(context.Background(), s)
			for _, want := range c.want {
				if err == nil || !strings.Contains(err.Error(), want) {
					t.Errorf("want an error about %q, got: %v", want, err)
				}
			}
			unchanged(t, w, before)
		})
	}
}
