package ebpf_test

import (
	"net/netip"
	"slices"
	"strings"
	"testing"

	"fairlead/internal/balance"
	"fairlead/internal/balance/ebpf"
	"fairlead/internal/model"
	"fairlead/internal/plan"
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

// sandboxes returns the attachments of the real servers that are endpoints. One named slow has a limit.
func sandboxes(v model.VirtualService) balance.Sandboxes {
	in := make(balance.Sandboxes, len(v.Reals))
	for i, r := range v.Reals {
		if r.Endpoint != "" {
			in[i] = &plan.Attachment{Port: map[string]string{"box": "fv-box"}[r.Endpoint], Shaped: r.Endpoint == "slow",
				Gateways: []netip.Addr{netip.MustParseAddr("172.30.0.1")}}
		}
	}
	return in
}

func usesEBPF(t *testing.T, v model.VirtualService) plan.EBPFService {
	t.Helper()
	p := ebpf.Plane{}.Service(v, sandboxes(v))
	return p[len(p)-1].(plan.EBPFService)
}

func TestText(t *testing.T) {
	got := strings.Join(usesEBPF(t, service()).Add(), "\n")
	want := `# ebpf: serve web tcp at 192.0.2.80:80 scheduler mh forward nat
# ebpf: serve web to 172.30.0.2:8000 weight 1 dev fv-box
# ebpf: serve web to 203.0.113.11 weight 2 masquerade draining
# ebpf: serve web to 203.0.113.12 weight 1 masquerade
# ebpf: serve web ring 2039`
	if got != want {
		t.Errorf("it is typed as\n%s\nwant\n%s", got, want)
	}
}

func TestChange(t *testing.T) {
	v := service()
	v.Reals[0].Weight, v.Reals[2].State = 5, model.RealDown
	op := plan.Op{Object: usesEBPF(t, v), Old: usesEBPF(t, service())}
	want := []string{"# ebpf: unserve web to 203.0.113.12", "# ebpf: serve web to 172.30.0.2:8000 weight 5 dev fv-box",
		"# ebpf: serve web ring 2039 changed 1019"}
	if got := op.Commands(); !slices.Equal(got, want) {
		t.Errorf("a change is typed as %q, want %q", got, want)
	}
}

// TestTunnelsText checks that the text names the encapsulation, also for a change.
func TestTunnelsText(t *testing.T) {
	v := service()
	v.Forward = model.ForwardTunnel
	before := usesEBPF(t, v)
	v.Tunnel = model.Tunnel{Type: model.TunnelGUE, Port: 6080}
	want := []string{"# ebpf: serve web tcp at 192.0.2.80:80 scheduler mh forward tunnel gue:6080"}
	if got := (plan.Op{Object: usesEBPF(t, v), Old: before}).Commands(); !slices.Equal(got, want) {
		t.Errorf("a change is typed as %q, want %q", got, want)
	}
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

func TestRefuses(t *testing.T) {
	for name, change := range map[string]func(*model.VirtualService){
		"sed": func(v *model.VirtualService) { v.Scheduler = model.ShortestExpectedDelay },
		"nq":  func(v *model.VirtualService) { v.Scheduler = model.NeverQueue },
		"load": func(v *model.VirtualService) {
			v.Scheduler, v.Reals = model.LeastConnection, make([]model.RealServer, 257)
		},
		"the limit on what slow receives": func(v *model.VirtualService) { v.Reals[0].Endpoint = "slow" },
		"adds no checksum": func(v *model.VirtualService) {
			v.Forward, v.Tunnel = model.ForwardTunnel,
				model.Tunnel{Type: model.TunnelGUE, Port: 6080, Checksum: model.TunnelSummed}
		},
		"another": func(v *model.VirtualService) { v.Reals[1].Address = netip.MustParseAddr("2001:db8::1") },
	} {
		v := service()
		change(&v)
		err := (ebpf.Plane{}).Validate(v, sandboxes(v), plan.Facts{})
		if err == nil || !strings.Contains(err.Error(), name) {
			t.Errorf("%s: %v", name, err)
		}
	}
	if err := (ebpf.Plane{}).Validate(service(), sandboxes(service()), plan.Facts{}); err != nil {
		t.Error(err)
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
		p := ebpf.Plane{}.Service(v, sandboxes(v))
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
		return slices.Contains(ebpf.Plane{}.Service(v, sandboxes(v)), plan.Object(plan.IPForwarding(true)))
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
		return slices.Contains(ebpf.Plane{}.Service(v, sandboxes(v)), plan.Object(plan.FastPath{}))
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
