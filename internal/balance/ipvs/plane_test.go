package ipvs_test

import (
	"net/netip"
	"strings"
	"testing"
	"time"

	"fairlead/internal/balance"
	"fairlead/internal/balance/ipvs"
	"fairlead/internal/model"
	"fairlead/internal/plan"
	"fairlead/test/golden"
)

func addr(s string) netip.Addr { return netip.MustParseAddr(s) }

// sandboxes returns the attachments of the real servers that are sandboxes on a bridge.
func sandboxes(v model.VirtualService) balance.Sandboxes {
	at := &plan.Attachment{Link: "br0", Bypass: []plan.Bypass{
		plan.Within(netip.MustParsePrefix("172.30.0.0/24")), plan.Within(netip.MustParsePrefix("fd00:30::/64"))}}
	in := make(balance.Sandboxes, len(v.Reals))
	for i, r := range v.Reals {
		if r.Endpoint != "" {
			in[i] = at
		}
	}
	return in
}

func service(change func(*model.VirtualService)) model.VirtualService {
	v := model.VirtualService{Name: "web", Addresses: []netip.Addr{addr("192.0.2.80")},
		Ports: []model.PortRange{model.Port(8080)}, Proto: model.TCP,
		Reals: []model.RealServer{
			{Address: addr("172.30.0.12"), Port: 80, Weight: 2, Endpoint: "b"},
			{Address: addr("172.30.0.11"), Port: 80, Weight: 1, Endpoint: "a"}}}
	change(&v)
	return v
}

var far = model.RealServer{Address: addr("203.0.113.11"), Weight: 1}

// elsewhere replaces all real servers by far.
func elsewhere(v *model.VirtualService) { v.Reals = []model.RealServer{far} }

// scenarios are changes of a service, by what the service then has.
var scenarios = map[string]func(*model.VirtualService){
	"sandboxes":         func(*model.VirtualService) {},
	"servers elsewhere": elsewhere,
	"both kinds":        func(v *model.VirtualService) { v.Reals = append(v.Reals, far) },
	"routed":            func(v *model.VirtualService) { elsewhere(v); v.SourceNAT = model.SourceNATRouted },
	"masqueraded":       func(v *model.VirtualService) { v.SourceNAT = model.SourceNATMasqueraded },
	"direct":            func(v *model.VirtualService) { elsewhere(v); v.Forward = model.ForwardDirect },
	"tunnel over udp": func(v *model.VirtualService) {
		elsewhere(v)
		v.Forward, v.Proto = model.ForwardTunnel, model.UDP
	},
	"tunnel in UDP": func(v *model.VirtualService) {
		elsewhere(v)
		v.Forward, v.Tunnel = model.ForwardTunnel,
			model.Tunnel{Type: model.TunnelGUE, Port: 6080, Checksum: model.TunnelRemoteSummed}
	},
	"persistent wlc": func(v *model.VirtualService) {
		v.Scheduler, v.Persistence = model.WeightedLeastConnection, 5*time.Minute
	},
	"source hashing": func(v *model.VirtualService) { v.Scheduler = model.SourceHashing },
	"draining and down": func(v *model.VirtualService) {
		v.Reals[0].State, v.Reals[1].State = model.RealDraining, model.RealDown
	},
	"on an interface": func(v *model.VirtualService) { v.Interface = "eth0" },
	"no real server":  func(v *model.VirtualService) { v.Reals = nil },
	"two ports unchanged": func(v *model.VirtualService) {
		v.Ports[0].Last, v.Reals[0].Port, v.Reals[1].Port = 8081, 0, 0
	},
	"IPv6": func(v *model.VirtualService) {
		v.Addresses = []netip.Addr{addr("2001:db8::80")}
		v.Reals = []model.RealServer{{Address: addr("fd00:30::11"), Port: 80, Weight: 1, Endpoint: "a"}}
	},
}

func TestPlan(t *testing.T) {
	for name, change := range scenarios {
		t.Run(name, func(t *testing.T) {
			v := service(change)
			if err := (ipvs.Plane{}).Validate(v, nil, plan.Facts{}); err != nil {
				t.Fatal(err)
			}
			golden.Text(t, name, text(t, nil, planned(t, v)))
		})
	}
}

// planned returns the whole plan of a service.
func planned(t *testing.T, v model.VirtualService) plan.Plan {
	t.Helper()
	p, err := plan.Merge(plan.NewPart(ipvs.Plane{}.Shared(nil)), plan.NewPart(ipvs.Plane{}.Service(v, sandboxes(v))))
	if err != nil {
		t.Fatal(err)
	}
	return p
}

func text(t *testing.T, have, want plan.Plan) string {
	t.Helper()
	return strings.Replace(plan.Text(plan.Diff(have, want)), plan.IPVSTable{}.Add()[0], "# the table "+
		plan.IPVSTableName, 1)
}

// TestChanges changes the service from each scenario to the next, and then removes
// it.
func TestChanges(t *testing.T) {
	from := service(scenarios["sandboxes"])
	for _, to := range []string{"draining and down", "persistent wlc", "both kinds", "direct", "tunnel in UDP",
		"servers elsewhere"} {
		next := service(scenarios[to])
		golden.Text(t, "change to "+to, text(t, planned(t, from), planned(t, next)))
		from = next
	}
	golden.Text(t, "removal", text(t, planned(t, from), nil))
}

func TestRefuses(t *testing.T) {
	for name, c := range map[string]struct {
		change func(*model.VirtualService)
		want   string
	}{
		"another family": {func(v *model.VirtualService) { v.Reals[0].Address = addr("fd00::1") },
			"another address family"},
		"passive checks":    {func(v *model.VirtualService) { v.Check.Passive = true }, "plane ebpf"},
		"direct to sandbox": {func(v *model.VirtualService) { v.Forward = model.ForwardDirect }, "forward by nat"},
		"tunnel to selected": {func(v *model.VirtualService) {
			v.Forward, v.Reals = model.ForwardTunnel, []model.RealServer{{Select: model.Select{Name: "web-*"}}}
		}, "forward by nat"},
	} {
		t.Run(name, func(t *testing.T) {
			if err := (ipvs.Plane{}).Validate(service(c.change), nil, plan.Facts{}); err == nil ||
				!strings.Contains(err.Error(), c.want) {
				t.Errorf("got error %v, want one that contains %q", err, c.want)
			}
		})
	}
}

// TestOrderOfRealServersIsCanonical checks that the plan does not depend on the order
// of the real servers, so that all hosts with the same set have the same list.
func TestOrderOfRealServersIsCanonical(t *testing.T) {
	v := service(func(*model.VirtualService) {})
	w := v.Clone()
	w.Reals[0], w.Reals[1] = w.Reals[1], w.Reals[0]
	if got := text(t, planned(t, v), planned(t, w)); got != "" {
		t.Errorf("the plan depends on the order:\n%s", got)
	}
}

func TestNeeds(t *testing.T) {
	if got := (ipvs.Plane{}).Needs(service(scenarios["sandboxes"])); len(got) != 2 {
		t.Errorf("nat needs %v", got)
	}
	if got := (ipvs.Plane{}).Needs(service(scenarios["direct"])); len(got) != 1 {
		t.Errorf("direct needs %v", got)
	}
}
