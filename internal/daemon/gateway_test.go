package daemon

import (
	"context"
	"errors"
	"log/slog"
	"testing"

	"fairlead/internal/api"
	"fairlead/internal/model"
	"fairlead/internal/model/gateway"
)

// fakeGateway records what it must run, or fails.
type fakeGateway struct {
	ran []*model.Gateway
	err error
}

func (f *fakeGateway) Check(model.Gateway) (api.Mistakes, []string) { return nil, nil }

func (f *fakeGateway) Run(_ context.Context, g *model.Gateway) error {
	f.ran = append(f.ran, g)
	return f.err
}

// TestGatewayRuns checks when the gateway gets values, and what a failure does.
func TestGatewayRuns(t *testing.T) {
	fake := &fakeGateway{}
	s := newState(Config{Gateway: fake, Log: slog.New(slog.DiscardHandler)})
	defer s.end()
	g := &gateways{state: s, services: newServices(s, newNetworks(s))}
	apply := func(w model.Desired) error {
		s.desired = w
		return g.apply(w)
	}
	if err := apply(model.Desired{}); err != nil || len(fake.ran) != 1 || fake.ran[0] != nil {
		t.Fatalf("%v, %v: want what an earlier daemon has left ended", err, fake.ran)
	}
	one := model.Desired{Gateway: &model.Gateway{Config: gateway.Config{HTTP: gateway.HTTP{
		Services: map[string]*gateway.Service{"s": {LoadBalancer: &gateway.LoadBalancer{Servers: []gateway.Server{{
			URL: "http://192.0.2.1"}}}}}}}}}
	for range 2 {
		if err := apply(one); err != nil || len(fake.ran) != 2 {
			t.Fatalf("%v, ran %d times, want once for equal values", err, len(fake.ran)-1)
		}
	}
	fake.err = errors.New("port taken")
	two := model.Desired{Gateway: &model.Gateway{Static: gateway.Static{Default: []string{"web"}}}}
	if err := apply(two); err == nil {
		t.Fatal("the failure of a request is not returned")
	}
	// A failure without a request is a problem, and is tried again.
	if g.refresh() || s.problems[gatewayProblem] != "port taken" {
		t.Errorf("problems: %v", s.problems)
	}
	fake.err = nil
	before := len(fake.ran)
	if !g.refresh() || s.problems[gatewayProblem] != "" || len(fake.ran) != before+1 {
		t.Errorf("problems after another attempt: %v", s.problems)
	}
}
