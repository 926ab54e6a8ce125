package engine_test

import (
	"errors"
	"net/netip"
	"strings"
	"testing"

	"fairlead/internal/engine"
	"fairlead/internal/kernel"
	"fairlead/internal/model"
	"fairlead/internal/store"
	"fairlead/test/features"
)

// refusingKernel is a kernel that refuses the eBPF programs for services.
type refusingKernel struct{ *kernel.Host }

func (refusingKernel) Balances() error { return errors.New("too complex a program") }

// TestDataPlaneThatTheKernelRefuses checks that auto chooses the next data
// plane, and that an error with the cause is returned if a service names it.
func TestDataPlaneThatTheKernelRefuses(t *testing.T) {
	host, err := kernel.Open("", kernel.Options{})
	if err != nil {
		t.Fatal(err)
	}
	defer host.Close()
	e := engine.New(engine.Config{Kernel: refusingKernel{host}, Flows: refusingKernel{host},
		Inspector: refusingKernel{host}, Store: &store.Memory{}, Facts: features.Facts(t)})
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
