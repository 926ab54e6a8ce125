package services

import (
	"errors"
	"log/slog"
	"net/netip"
	"testing"
	"time"

	"fairlead/internal/daemon/leases"
	"fairlead/internal/daemon/networks"
	"fairlead/internal/daemon/resets"
	"fairlead/internal/daemon/sockets"
	"fairlead/internal/daemon/state"
	"fairlead/internal/daemon/step"
	"fairlead/internal/engine"
	"fairlead/internal/health"
	"fairlead/internal/model"
	"fairlead/internal/store"
)

// noStore is a store that cannot be read, so that nothing can be applied.
type noStore struct{ engine.Store }

var errNoStore = errors.New("the store cannot be read")

func (noStore) Load() (store.Record, error) { return store.Record{}, errNoStore }

// TestFailedChangeKeepsHealth: a change of services that fails leaves their servers as they were. A server that is
// down is not up again, because it was removed, or checked in another way, for a moment.
func TestFailedChangeKeepsHealth(t *testing.T) {
	real := func(address string) model.RealServer {
		return model.RealServer{Address: netip.MustParseAddr(address), Port: 80, Weight: 1}
	}
	web := model.VirtualService{Name: "web", Addresses: []netip.Addr{netip.MustParseAddr("192.0.2.10")},
		Ports: []model.PortRange{model.Port(80)}, Proto: model.TCP, Check: model.Check{Passive: true},
		Reals: []model.RealServer{real("10.0.0.2"), real("10.0.0.3")}}
	fewer, unchecked := web.Clone(), web.Clone()
	fewer.Reals, unchecked.Check = fewer.Reals[:1], model.Check{}
	for name, next := range map[string]model.Desired{
		"the service is removed":     {},
		"the server is removed":      {Services: []model.VirtualService{fewer}},
		"the check of it is other":   {Services: []model.VirtualService{unchecked}},
		"another service is added":   {Services: []model.VirtualService{web, {Name: "other", Proto: model.TCP}}},
		"the service stays as it is": {Services: []model.VirtualService{web}},
	} {
		s := state.New(state.Config{Log: slog.New(slog.DiscardHandler), Life: t.Context()})
		queue := resets.New(s)
		steps := step.NewRunner(s, sockets.NewProxies(sockets.Config{}), queue, leases.New(leases.Config{}))
		e := engine.New(engine.Config{Store: noStore{}})
		all := New(Config{State: s, Steps: steps, Networks: networks.New(s, e, nil, 0), Engine: e, Resets: queue,
			Applied: func(time.Duration, error) {}})
		if err := all.health.Set([]model.VirtualService{web}); err != nil {
			t.Fatal(err)
		}
		down := web.Reals[1].At(0)
		all.health.Signal("web", down, health.Signal{Failed: 1000})
		before := all.health.StatusOf(web)
		if err := steps.Once(func() error { return all.Apply(next) }); !errors.Is(err, errNoStore) {
			t.Fatalf("%s: %v, want %v", name, err, errNoStore)
		}
		after := all.health.StatusOf(web)
		if len(after.Servers) != 2 || after.Servers[1].State != model.RealDown ||
			after.Servers[1].Cause != before.Servers[1].Cause {
			t.Errorf("%s, which fails: the servers are %+v, want %+v", name, after.Servers, before.Servers)
		}
	}
}
