package daemon_test

import (
	"context"
	"errors"
	"testing"
	"time"

	"fairlead/internal/api"
	"fairlead/internal/engine"
	"fairlead/internal/model"
	"fairlead/test/process"
)

// TestSilentProxy: while the proxy does not answer, sandboxes are attached and detached, ports are published by other
// modes, real servers drain and are listed. A publish that needs the proxy waits, and works when it answers again.
func TestSilentProxy(t *testing.T) {
	w := newWorld(t)
	w.countProxies()
	w.start()
	w.sh("ip link set lo up")
	w.network(lan)
	shop := w.watchedSandbox()
	w.attach(to(shop))
	shop.serves(t, "0.0.0.0:80")
	publish := func(port uint16, via model.Via) error {
		_, err := w.Publish(context.Background(), api.PublishRequest{Target: shop.pid, Publishes: []model.Publish{{
			Proto: model.TCP, HostPorts: model.Port(port), Ports: model.Port(80), Via: via}}})
		return err
	}
	if err := publish(8080, model.ViaProxy); err != nil {
		t.Fatal(err)
	}
	if err := publish(8083, model.ViaEBPF); err != nil {
		t.Fatal(err)
	}
	w.loadServices()
	goOn := process.Pause(t, w.proxy)
	waits := make(chan error, 1)
	go func() { waits <- publish(8081, model.ViaProxy) }()
	w.serve(site("web", at("10.0.0.2", 8080), at("10.0.0.3", 8080)))
	w.do(api.DrainReal, "web", "10.0.0.2")
	w.attach(to(w.watchedSandbox()))
	if err := publish(8082, model.ViaEBPF); err != nil {
		t.Error(err)
	}
	if all := w.Attachments(); len(all) != 2 {
		t.Errorf("%d attachments are listed, want 2", len(all))
	}
	select {
	case err := <-waits:
		t.Errorf("the publish did not wait for the proxy: %v", err)
	default:
	}
	goOn()
	if err := <-waits; err != nil {
		t.Fatal(err)
	}
	for _, to := range []string{"127.0.0.1:8080", "127.0.0.1:8081"} {
		if err := w.host.Do(func() error { return dial(to) }); err != nil {
			t.Errorf("%s: %v", to, err)
		}
	}
}

// loadServices makes the kernel verify the programs for services now. A busy machine takes longer for that than a
// request waits for the proxy.
func (w *world) loadServices() {
	w.Helper()
	early := site("early", at("10.0.0.4", 8080))
	early.Ports = []model.PortRange{model.Port(81)}
	w.serve(early)
}

// slowMeter delays each step that needs ports of the proxy until the proxy has opened them.
type slowMeter struct{}

// Applied implements daemon.Meter.
func (slowMeter) Applied(_ time.Duration, err error) {
	var unopened *engine.UnopenedError
	if errors.As(err, &unopened) {
		<-unopened.Done
	}
}

// Healed implements daemon.Meter.
func (slowMeter) Healed(string, int) {}

// TestServiceWaitsForPortsOfTheProxy starts a daemon again whose proxy has ended. A service has its real server,
// although the proxy opens the ports right after the step has failed.
func TestServiceWaitsForPortsOfTheProxy(t *testing.T) {
	w := newWorld(t)
	w.meter = slowMeter{}
	w.start()
	w.network(lan)
	shop := w.watchedSandbox()
	request := to(shop)
	request.Name = "shop"
	w.attach(request)
	w.serve(site("web", model.RealServer{Select: model.Select{Name: "shop"}, Port: 8080, Weight: 1}))
	w.publish(shop, []model.Publish{{Proto: model.TCP, HostPorts: model.Port(8080), Ports: model.Port(80),
		Via: model.ViaProxy}})
	w.stop()
	w.start()
	if got := w.servers("web"); got != "172.30.0.2:8080 up" {
		t.Errorf("the service has %q", got)
	}
	for _, e := range w.Events() {
		if e.Kind == api.Unhealed {
			t.Errorf("an event: %+v", e)
		}
	}
}
