package engine_test

import (
	"net/netip"
	"slices"
	"strings"
	"testing"

	"fairlead/internal/engine"
	"fairlead/internal/kernel"
	"fairlead/internal/model"
	"fairlead/internal/plan"
	"fairlead/internal/store"
	"fairlead/test/features"
)

// refusingKernel is a kernel that refuses the eBPF programs of a feature.
type refusingKernel struct {
	*kernel.Host
	lacks plan.Feature
}

// Lacks implements engine.Inspector.
func (k refusingKernel) Lacks(features ...plan.Feature) (map[plan.Feature]string, error) {
	if !slices.Contains(features, k.lacks) {
		return nil, nil
	}
	return map[plan.Feature]string{k.lacks: "too complex a program"}, nil
}

func newRefusing(t *testing.T, lacks plan.Feature) *engine.Engine {
	t.Helper()
	host, err := kernel.Open("", kernel.Options{})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { host.Close() })
	k := refusingKernel{host, lacks}
	return engine.New(engine.Config{Kernel: k, Flows: k, Inspector: k, Store: &store.Memory{},
		Facts: features.Facts(t)})
}

// TestDataPlaneThatTheKernelRefuses checks that auto chooses the next data
// plane, and that an error with the cause is returned if a service names it.
func TestDataPlaneThatTheKernelRefuses(t *testing.T) {
	e := newRefusing(t, plan.FeatureServices)
	v := model.VirtualService{Name: "web", Addresses: []netip.Addr{netip.MustParseAddr("192.0.2.80")},
		Ports: []model.PortRange{model.Port(80)}, Proto: model.TCP,
		Reals: []model.RealServer{{Address: netip.MustParseAddr("192.0.2.1"), Port: 80}}}
	full, err := e.Complete(model.State{Services: []model.VirtualService{v}})
	if err != nil || full.Services[0].Plane != model.PlaneNFT {
		t.Errorf("%+v, %v", full.Services, err)
	}
	v.Plane = model.PlaneEBPF
	if _, err := e.Complete(model.State{Services: []model.VirtualService{v}}); err == nil ||
		!strings.Contains(err.Error(),
			"this kernel does not support plane ebpf: ebpf-services: too complex a program") {
		t.Errorf("it is refused: %v", err)
	}
}

// TestPublishModeThatTheKernelRefuses does the same for publish modes.
func TestPublishModeThatTheKernelRefuses(t *testing.T) {
	e := newRefusing(t, plan.FeatureEBPF)
	s := model.State{Networks: []model.Network{{Name: "net", Driver: model.DriverBridge,
		Subnets: []model.Subnet{{Prefix: netip.MustParsePrefix("172.30.0.0/24")}}}},
		Endpoints: []model.Endpoint{{Name: "web", Network: "net", Sandbox: "/run/netns/web"}}}
	publish(&s, "web", model.ViaAuto, model.TCP, 8080, 80)
	full, err := e.Complete(s)
	if err != nil || full.Publishes[0].Via != model.ViaNAT {
		t.Errorf("%+v, %v", full.Publishes, err)
	}
	s.Publishes[0].Via = model.ViaEBPF
	if _, err := e.Complete(s); err == nil ||
		!strings.Contains(err.Error(), "via ebpf cannot work on this host: ebpf-data-path: too complex a program") {
		t.Errorf("it is refused: %v", err)
	}
}
