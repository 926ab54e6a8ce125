package ipvs_test

import (
	"net/netip"
	"testing"
	"time"

	"fairlead/internal/balance/ipvs"
	"fairlead/internal/model"
	"fairlead/internal/plan"
	"fairlead/test/planetest"
)

func addr(s string) netip.Addr { return netip.MustParseAddr(s) }

// suite is what the data plane plans and refuses. The sandboxes are on a bridge.
var suite = planetest.Suite{
	Plane:     ipvs.Plane{},
	Base:      func() model.VirtualService { return service(func(*model.VirtualService) {}) },
	Services:  scenarios,
	Attach:    planetest.OnBridge,
	Skeletons: []string{plan.IPVSTable{}.Add()[0], "# the table " + plan.IPVSTableName},
	Changes: []planetest.Change{
		{Name: "change to draining and down", From: "sandboxes", To: "draining and down"},
		{Name: "change to persistent wlc", From: "draining and down", To: "persistent wlc"},
		{Name: "change to both kinds", From: "persistent wlc", To: "both kinds"},
		{Name: "change to direct", From: "both kinds", To: "direct"},
		{Name: "change to tunnel in UDP", From: "direct", To: "tunnel in UDP"},
		{Name: "change to servers elsewhere", From: "tunnel in UDP", To: "servers elsewhere"},
		{Name: "removal", From: "servers elsewhere"},
	},
	Refusals: []planetest.Refusal{
		{Want: "another address family", Change: func(v *model.VirtualService) {
			v.Reals[0].Address = addr("fd00::1")
		}},
		{Want: "plane ebpf", Change: func(v *model.VirtualService) { v.Check.Passive = true }},
		{Want: "forward by nat", Change: func(v *model.VirtualService) { v.Forward = model.ForwardDirect }},
		{Want: "forward by nat", Change: func(v *model.VirtualService) {
			v.Forward, v.Reals = model.ForwardTunnel, []model.RealServer{{Select: model.Select{Name: "web-*"}}}
		}},
	},
}

func TestConform(t *testing.T) { planetest.Conform(t, suite) }

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

func TestNeeds(t *testing.T) {
	if got := (ipvs.Plane{}).Needs(service(scenarios["sandboxes"])); len(got) != 2 {
		t.Errorf("nat needs %v", got)
	}
	if got := (ipvs.Plane{}).Needs(service(scenarios["direct"])); len(got) != 1 {
		t.Errorf("direct needs %v", got)
	}
}
