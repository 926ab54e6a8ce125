package ipvs

import (
	"net/netip"
	"testing"
	"time"

	"fairlead/internal/model"
	"fairlead/internal/plan"
)

// everyService returns services with each scheduler and forwarding method that a
// plan can have.
func everyService() []plan.IPVSService {
	var all []plan.IPVSService
	for i, s := range []model.Scheduler{"rr", "wrr", "lc", "wlc", "sh", "mh", "sed", "nq"} {
		for _, f := range forwardings(i) {
			v := plan.IPVSService{Proto: model.TCP, At: netip.MustParseAddrPort("192.0.2.80:80"), Scheduler: s,
				Forward: f.forward, Tunnel: f.tunnel,
				Persistence: time.Duration(i) * time.Minute, Reals: []plan.Backend{
					{At: netip.MustParseAddrPort("10.0.0.1:80"), Weight: 1},
					{At: netip.MustParseAddrPort("10.0.0.2:81")}}}
			if i%2 == 0 {
				v.Proto, v.At = model.UDP, netip.MustParseAddrPort("[2001:db8::80]:53")
			}
			all = append(all, v)
		}
	}
	return all
}

// forwarding is a forwarding method with its tunnel.
type forwarding struct {
	forward model.Forward
	tunnel  model.Tunnel
}

// forwardings returns all forwarding methods, NAT first. The index selects the kind
// of tunnel.
func forwardings(i int) []forwarding {
	tunnels := []model.Tunnel{{}, {Type: model.TunnelGUE, Port: 6080},
		{Type: model.TunnelGUE, Port: 6081, Checksum: model.TunnelSummed},
		{Type: model.TunnelGUE, Port: ipvsRealMark, Checksum: model.TunnelRemoteSummed}}
	return []forwarding{{forward: model.ForwardNAT}, {forward: model.ForwardDirect},
		{model.ForwardTunnel, tunnels[i%len(tunnels)]}}
}

func destinations(s plan.IPVSService) []Destination {
	var all []Destination
	for _, r := range s.Reals {
		// The kernel lists real servers in reverse order.
		all = append([]Destination{toDestination(s, r)}, all...)
	}
	return all
}

func TestVirtualServicesAreReadBack(t *testing.T) {
	for _, s := range everyService() {
		if got := fromIPVS(toIPVS(s), destinations(s)); !plan.Equal(got, s) {
			t.Errorf("%+v is read as %+v", s, got)
		}
	}
}

// TestForeignChangesDiffer makes changes that no plan makes: each one must differ
// from the plan.
func TestForeignChangesDiffer(t *testing.T) {
	s := everyService()[0]
	for name, harm := range map[string]func(*Service, []Destination){
		"scheduler":       func(v *Service, _ []Destination) { v.Scheduler = "dh" },
		"scheduler flags": func(v *Service, _ []Destination) { v.Flags |= Ports },
		"one packet":      func(v *Service, _ []Destination) { v.Flags |= OnePacket },
		"persistence": func(v *Service, _ []Destination) {
			v.Flags, v.Timeout = v.Flags|Persistent, 9
		},
		"netmask":      func(v *Service, _ []Destination) { v.Bits = 24 },
		"engine":       func(v *Service, _ []Destination) { v.PE = "sip" },
		"weight":       func(_ *Service, d []Destination) { d[0].Weight++ },
		"forward":      func(_ *Service, d []Destination) { d[0].Forward = Direct },
		"last forward": func(_ *Service, d []Destination) { d[1].Forward = Local },
		"threshold":    func(_ *Service, d []Destination) { d[1].Upper = 5 },
		"tunnel":       func(_ *Service, d []Destination) { d[1].TunnelType = GUE },
		"GRE":          func(_ *Service, d []Destination) { d[0].TunnelType, d[1].TunnelType = 2, 2 },
	} {
		v, d := toIPVS(s), destinations(s)
		harm(&v, d)
		if alike(fromIPVS(v, d), s) {
			t.Errorf("%s: the changed service does not differ", name)
		}
	}
}

// TestMarks checks that a service is recognised by its flags or by the mark of a
// real server.
func TestMarks(t *testing.T) {
	ours := toIPVS(everyService()[0])
	edited := ours
	edited.Flags &^= ipvsMarked
	made := []Destination{{}, {TunnelPort: ipvsRealMark}}
	for _, c := range []struct {
		service Service
		reals   []Destination
		want    bool
	}{
		{ours, nil, true}, {edited, made, true}, {edited, nil, false}, {edited, made[:1], false},
		{edited, []Destination{{TunnelType: GUE, TunnelPort: ipvsRealMark}}, false}, // GUE with the same port
	} {
		if got := isMarked(c.service, c.reals); got != c.want {
			t.Errorf("isMarked(%+v, %+v) returns %t", c.service, c.reals, got)
		}
	}
}
