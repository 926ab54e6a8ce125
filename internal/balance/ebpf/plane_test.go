package ebpf_test

import (
	"net/netip"
	"slices"
	"testing"

	"fairlead/internal/balance/ebpf"
	"fairlead/internal/model"
	"fairlead/internal/plan"
	"fairlead/test/planetest"
)

// service has three real servers: a sandbox, a server on another host, and a sandbox
// on the LAN.
func service() model.VirtualService {
	return model.VirtualService{Name: "web", Proto: model.TCP,
		Addresses: []netip.Addr{netip.MustParseAddr("192.0.2.80")}, Ports: []model.PortRange{model.Port(80)},
		Reals: []model.RealServer{
			{Address: netip.MustParseAddr("172.30.0.2"), Port: 8000, Weight: 1, Endpoint: "box"},
			{Address: netip.MustParseAddr("203.0.113.11"), Weight: 2, State: model.RealDraining},
			{Address: netip.MustParseAddr("203.0.113.12"), Weight: 1, Endpoint: "lan"},
			{Address: netip.MustParseAddr("203.0.113.13"), Weight: 1, State: model.RealDown},
		}}
}

// suite is what the data plane plans and refuses. The endpoint slow has a limit on what it receives.
var suite = planetest.Suite{
	Plane: ebpf.Plane{},
	Base:  service,
	Attach: func(endpoint string) plan.Attachment {
		return plan.Attachment{Port: map[string]string{"box": "fv-box"}[endpoint], Shaped: endpoint == "slow",
			Gateways: []netip.Addr{netip.MustParseAddr("172.30.0.1")}}
	},
	Services: map[string]func(*model.VirtualService){
		"all kinds": func(*model.VirtualService) {},
		"tunnel":    func(v *model.VirtualService) { v.Forward = model.ForwardTunnel },
		"tunnel in UDP": func(v *model.VirtualService) {
			v.Forward, v.Tunnel = model.ForwardTunnel, model.Tunnel{Type: model.TunnelGUE, Port: 6080}
		},
		"another weight and state": func(v *model.VirtualService) {
			v.Reals[0].Weight, v.Reals[2].State = 5, model.RealDown
		},
	},
	Changes: []planetest.Change{
		{Name: "change to another weight and state", From: "all kinds", To: "another weight and state"},
		{Name: "change to tunnel in UDP", From: "tunnel", To: "tunnel in UDP"},
		{Name: "removal", From: "all kinds"},
	},
	Refusals: []planetest.Refusal{
		{Want: "sed", Change: func(v *model.VirtualService) { v.Scheduler = model.ShortestExpectedDelay }},
		{Want: "nq", Change: func(v *model.VirtualService) { v.Scheduler = model.NeverQueue }},
		{Want: "load", Change: func(v *model.VirtualService) {
			v.Scheduler, v.Reals = model.LeastConnection, make([]model.RealServer, 257)
		}},
		{Want: "the limit on what slow receives", Change: func(v *model.VirtualService) {
			v.Reals[0].Endpoint = "slow"
		}},
		{Want: "adds no checksum", Change: func(v *model.VirtualService) {
			v.Forward, v.Tunnel = model.ForwardTunnel,
				model.Tunnel{Type: model.TunnelGUE, Port: 6080, Checksum: model.TunnelSummed}
		}},
		{Want: "another", Change: func(v *model.VirtualService) {
			v.Reals[1].Address = netip.MustParseAddr("2001:db8::1")
		}},
	},
}

func TestConform(t *testing.T) { planetest.Conform(t, suite) }

func usesEBPF(t *testing.T, v model.VirtualService) plan.EBPFService {
	t.Helper()
	p := ebpf.Plane{}.Service(v, suite.Sandboxes(v))
	return p[len(p)-1].(plan.EBPFService)
}

func TestMasquerade(t *testing.T) {
	v := service()
	for _, c := range []struct {
		answers model.SourceNAT
		forward model.Forward
		want    []bool
	}{
		{"", "", []bool{false, true, true}}, {model.SourceNATRouted, "", []bool{false, false, false}},
		{model.SourceNATMasqueraded, "", []bool{true, true, true}},
		{"", model.ForwardDirect, []bool{false, false, false}},
	} {
		v.SourceNAT, v.Forward = c.answers, c.forward
		for i, b := range usesEBPF(t, v).Backends {
			if b.Masquerade != c.want[i] {
				t.Errorf("source NAT %q, forward %q: %s is masqueraded: %v", c.answers, c.forward, b.At, b.Masquerade)
			}
		}
	}
}

// TestLocalReal checks a service whose only real server is the host itself. With
// nat, the plan has the program that rewrites its answers. It has no forwarding to
// other hosts.
func TestLocalReal(t *testing.T) {
	v := service()
	v.Reals = []model.RealServer{{Address: netip.MustParseAddr("192.0.2.9"), Weight: 1, Local: true}}
	for forward, localRealEgress := range map[model.Forward]bool{model.ForwardNAT: true, model.ForwardDirect: false,
		model.ForwardTunnel: false} {
		v.Forward = forward
		p := ebpf.Plane{}.Service(v, suite.Sandboxes(v))
		if slices.Contains(p, plan.Object(plan.LocalRealEgress{})) != localRealEgress {
			t.Errorf("forward %s: %v", forward, p)
		}
		for _, none := range []plan.Object{plan.IPForwarding(true), plan.FastPath{}} {
			if slices.Contains(p, none) {
				t.Errorf("forward %s wants %s", forward, none.Key())
			}
		}
		if b := usesEBPF(t, v).Backends[0]; !b.Local || b.Masquerade || b.Tunnel {
			t.Errorf("forward %s: %+v", forward, b)
		}
	}
}

// TestTablesHaveABound checks that a table fits into one value of the programs' map.
func TestTablesHaveABound(t *testing.T) {
	v := service()
	for i := range 1000 {
		v.Reals = append(v.Reals, model.RealServer{Address: netip.AddrFrom4([4]byte{10, 0, byte(i / 256), byte(i)}),
			Weight: 1})
	}
	if n := len(usesEBPF(t, v).Ring); n != 262139 {
		t.Errorf("a table of 1,000 has %d buckets", n)
	}
}

// TestForwarding: bpf_fib_lookup returns a next hop to another machine only if the
// kernel forwards packets.
func TestForwarding(t *testing.T) {
	forwards := func(v model.VirtualService) bool {
		return slices.Contains(ebpf.Plane{}.Service(v, suite.Sandboxes(v)), plan.Object(plan.IPForwarding(true)))
	}
	v := service()
	if !forwards(v) {
		t.Error("the plan does not enable forwarding for servers on other hosts")
	}
	v.Reals = v.Reals[:1]
	if forwards(v) {
		t.Error("the plan enables forwarding for a sandbox")
	}
}

// TestFastPathIsPlanned checks that the fast path is planned only for unchanged
// packets to other hosts.
func TestFastPathIsPlanned(t *testing.T) {
	fast := func(v model.VirtualService) bool {
		return slices.Contains(ebpf.Plane{}.Service(v, suite.Sandboxes(v)), plan.Object(plan.FastPath{}))
	}
	v := service()
	for forward, want := range map[model.Forward]bool{model.ForwardNAT: false, model.ForwardDirect: true,
		model.ForwardTunnel: true} {
		if v.Forward = forward; fast(v) != want {
			t.Errorf("forward %s: the fast path is planned: %v", forward, !want)
		}
	}
	if v.Reals = v.Reals[:1]; fast(v) {
		t.Error("the fast path is planned for a sandbox")
	}
}
