package kernel

import (
	"errors"
	"net/netip"
	"strings"
	"testing"
	"time"

	"fairlead/internal/kernel/ipvs"
	"fairlead/internal/model"
	"fairlead/internal/plan"

	"golang.org/x/sys/unix"
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
					{At: netip.MustParseAddrPort("10.0.0.1:80"), Weight: 1}, {At: netip.MustParseAddrPort("10.0.0.2:81")}}}
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
	tunnels := []model.Tunnel{{}, {Type: model.TunnelGUE, Port: 6080}, {Type: model.TunnelGUE, Port: 6081, Checksum: model.TunnelSummed},
		{Type: model.TunnelGUE, Port: ipvsRealMark, Checksum: model.TunnelRemoteSummed}}
	return []forwarding{{forward: model.ForwardNAT}, {forward: model.ForwardDirect},
		{model.ForwardTunnel, tunnels[i%len(tunnels)]}}
}

func destinations(s plan.IPVSService) []ipvs.Destination {
	var all []ipvs.Destination
	for _, r := range s.Reals {
		// The kernel lists real servers in reverse order.
		all = append([]ipvs.Destination{toDestination(s, r)}, all...)
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
	for name, harm := range map[string]func(*ipvs.Service, []ipvs.Destination){
		"scheduler":       func(v *ipvs.Service, _ []ipvs.Destination) { v.Scheduler = "dh" },
		"scheduler flags": func(v *ipvs.Service, _ []ipvs.Destination) { v.Flags |= ipvs.Ports },
		"one packet":      func(v *ipvs.Service, _ []ipvs.Destination) { v.Flags |= ipvs.OnePacket },
		"persistence": func(v *ipvs.Service, _ []ipvs.Destination) {
			v.Flags, v.Timeout = v.Flags|ipvs.Persistent, 9
		},
		"netmask":      func(v *ipvs.Service, _ []ipvs.Destination) { v.Bits = 24 },
		"engine":       func(v *ipvs.Service, _ []ipvs.Destination) { v.PE = "sip" },
		"weight":       func(_ *ipvs.Service, d []ipvs.Destination) { d[0].Weight++ },
		"forward":      func(_ *ipvs.Service, d []ipvs.Destination) { d[0].Forward = ipvs.Direct },
		"last forward": func(_ *ipvs.Service, d []ipvs.Destination) { d[1].Forward = ipvs.Local },
		"threshold":    func(_ *ipvs.Service, d []ipvs.Destination) { d[1].Upper = 5 },
		"tunnel":       func(_ *ipvs.Service, d []ipvs.Destination) { d[1].TunnelType = ipvs.GUE },
		"GRE":          func(_ *ipvs.Service, d []ipvs.Destination) { d[0].TunnelType, d[1].TunnelType = 2, 2 },
	} {
		v, d := toIPVS(s), destinations(s)
		harm(&v, d)
		if alike(fromIPVS(v, d), s) {
			t.Errorf("%s: the changed service does not differ", name)
		}
	}
}

// TestErrorWithoutIPVS expects advice in the error if the kernel has no IPVS.
func TestErrorWithoutIPVS(t *testing.T) {
	h := openTestHost(t)
	err := h.Set(everyService()[0])
	var none *ipvs.NotSupportedError
	switch {
	case errors.As(err, &none):
		if !strings.Contains(err.Error(), "modprobe ip_vs") {
			t.Errorf("error without advice: %v", err)
		}
	case err != nil && !errors.Is(err, unix.ENOENT): // the scheduler's module is missing
		t.Error(err)
	}
	if err := h.Del(everyService()[0]); err != nil {
		t.Errorf("remove a missing service: %v", err)
	}
	if found, err := h.Observe(plan.Plan{everyService()[0]}, nil); err != nil || len(found) != 0 {
		t.Errorf("found %v, %v", found, err)
	}
}

// TestMarks checks that a service is recognised by its flags or by the mark of a
// real server.
func TestMarks(t *testing.T) {
	ours := toIPVS(everyService()[0])
	edited := ours
	edited.Flags &^= ipvsMarked
	made := []ipvs.Destination{{}, {TunnelPort: ipvsRealMark}}
	for _, c := range []struct {
		service ipvs.Service
		reals   []ipvs.Destination
		want    bool
	}{
		{ours, nil, true}, {edited, made, true}, {edited, nil, false}, {edited, made[:1], false},
		{edited, []ipvs.Destination{{TunnelType: ipvs.GUE, TunnelPort: ipvsRealMark}}, false}, // GUE with the same port
	} {
		if got := isMarked(c.service, c.reals); got != c.want {
			t.Errorf("isMarked(%+v, %+v) returns %t", c.service, c.reals, got)
		}
	}
}

func TestIPVSReleases(t *testing.T) {
	for release, want := range map[string]bool{"5.8.0-63-generic": false, "4.18.0": false, "5.9.0": true, "5.10.0-28-amd64": true, "6.1.0-56-cloud-amd64": true, "odd": true} {
		if got := since(release, plan.FeatureIPVS); got != want {
			t.Errorf("release %s supports the feature: %t", release, got)
		}
	}
}
