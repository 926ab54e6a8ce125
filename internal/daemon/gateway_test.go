package daemon_test

import (
	"context"
	"errors"
	"strings"
	"testing"

	"fairlead/internal/api"
	"fairlead/internal/model"
	"fairlead/internal/model/gateway"
)

// silentGateway gets configurations and answers none of them until the test does.
type silentGateway struct {
	began   chan *model.Gateway
	answers chan error
}

func newSilentGateway() silentGateway {
	return silentGateway{make(chan *model.Gateway), make(chan error)}
}

func (silentGateway) Check(model.Gateway) (api.Mistakes, []string) { return nil, nil }

func (s silentGateway) Run(ctx context.Context, g *model.Gateway) error {
	select {
	case s.began <- g:
	case <-ctx.Done():
		return ctx.Err()
	}
	select {
	case err := <-s.answers:
		return err
	case <-ctx.Done():
		return ctx.Err()
	}
}

// declared is a set with a network and a gateway of one entry point.
func declared(entry string) api.Spec {
	return api.Spec{Set: "site", Networks: []model.Network{{Name: "site", Driver: model.DriverBridge,
		Subnets: []model.Subnet{{Prefix: prefix("172.31.0.0/24")}}}},
		Gateway: &model.Gateway{Static: gateway.Static{Default: []string{entry}}}}
}

// TestSilentGateway: while the gateway does not answer, sandboxes are attached and detached, real servers drain and
// are listed. An apply of the gateway waits, and reports the failure after it has restored what the set declared
// before, without what others have changed meanwhile.
func TestSilentGateway(t *testing.T) {
	w := newWorld(t)
	silent := newSilentGateway()
	w.gateway = silent
	w.start()
	w.network(lan)
	<-silent.began
	silent.answers <- nil
	first := make(chan error, 1)
	go func() {
		_, err := w.Apply(t.Context(), declared("web"), false)
		first <- err
	}()
	<-silent.began // the gateway has the declaration, and says nothing
	w.serve(site("shop", at("10.0.0.2", 8080), at("10.0.0.3", 8080)))
	w.do(api.DrainReal, "shop", "10.0.0.2")
	b := w.watchedSandbox()
	w.attach(to(b))
	if all := w.Attachments(); len(all) != 1 {
		t.Errorf("%d attachments are listed, want 1", len(all))
	}
	select {
	case err := <-first:
		t.Fatalf("the apply does not wait for the gateway: %v", err)
	default:
	}
	silent.answers <- errors.New("port taken")
	if err := <-first; err == nil || !strings.Contains(err.Error(), "apply: gateway: run the gateway: port taken") {
		t.Errorf("the apply: %v", err)
	}
	g := <-silent.began
	if g != nil { // the failed configuration was tried again before it was replaced
		silent.answers <- errors.New("port taken")
		g = <-silent.began
	}
	if g != nil {
		t.Errorf("the gateway got %+v after the failure, want none", g)
	}
	silent.answers <- nil
	var names []string
	for _, n := range w.Networks() {
		names = append(names, n.Name)
	}
	if got := strings.Join(names, " "); got != "lan" || len(w.Attachments()) != 1 {
		t.Errorf("networks %q and %d attachments after the failure, want those of the other requests", got,
			len(w.Attachments()))
	}
}

// TestGatewayRollsBackNothing: a gateway that fails because its servers have changed is a problem of its own. The
// attachment that changed them stays.
func TestGatewayRollsBackNothing(t *testing.T) {
	w := newWorld(t)
	silent := newSilentGateway()
	w.gateway = silent
	w.start()
	w.network(lan)
	<-silent.began
	silent.answers <- nil
	selecting := declared("web")
	selecting.Gateway.Config.HTTP.Services = map[string]*gateway.Service{"s": {LoadBalancer: &gateway.LoadBalancer{
		Servers: []gateway.Server{{Network: "lan", Name: "*", Port: "80"}}}}}
	applied := make(chan error, 1)
	go func() {
		_, err := w.Apply(t.Context(), selecting, false)
		applied <- err
	}()
	<-silent.began
	silent.answers <- nil
	if err := <-applied; err != nil {
		t.Fatal(err)
	}
	w.attach(to(w.watchedSandbox()))
	<-silent.began // it has another server
	silent.answers <- errors.New("the serving process has ended")
	<-silent.began // it is tried again
	if all := w.Attachments(); len(all) != 1 || all[0].Status != api.Up {
		t.Errorf("%+v: want the attachment", all)
	}
}

// TestGatewayUndoOpensPorts: a set that has removed a publish with a port of the proxy, and whose gateway fails, gets
// the publish back.
func TestGatewayUndoOpensPorts(t *testing.T) {
	w := newWorld(t)
	silent := newSilentGateway()
	w.gateway = silent
	w.start()
	w.network(lan)
	<-silent.began
	silent.answers <- nil
	w.named("shop")
	before := declared("web")
	before.Attachments = []api.Declared{{Endpoint: model.Endpoint{Network: "site", Sandbox: "netns:shop", Name: "shop"},
		Publishes: []model.Publish{{Via: model.ViaProxy, Proto: model.TCP, HostPorts: model.Port(8080),
			Ports: model.Port(80)}}}}
	apply := func(s api.Spec, answer error) error {
		applied := make(chan error, 1)
		go func() {
			_, err := w.Apply(t.Context(), s, false)
			applied <- err
		}()
		select {
		case <-silent.began:
			silent.answers <- answer
			return <-applied
		case err := <-applied:
			t.Fatalf("the apply does not wait for the gateway: %v", err)
			return err
		}
	}
	if err := apply(before, nil); err != nil {
		t.Fatal(err)
	}
	after := declared("other")
	after.Attachments = []api.Declared{before.Attachments[0]}
	after.Attachments[0].Publishes = nil
	if err := apply(after, errors.New("port taken")); err == nil || strings.Contains(err.Error(), "undo") {
		t.Errorf("the apply: %v, want the gateway's error, and that the undo succeeds", err)
	}
	all := w.Attachments()
	if len(all) != 1 || len(all[0].Publishes) != 1 || all[0].Publishes[0].Problem != "" {
		t.Errorf("%+v, want the publish that the set had before", all)
	}
	if w.host.Do(listens(":8080")) == nil {
		t.Error("the proxy does not listen at the port of the publish")
	}
}
