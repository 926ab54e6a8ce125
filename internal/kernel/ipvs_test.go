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

// everyService are services of each kind that a plan has.
func everyService() []plan.IPVSService {
	var all []plan.IPVSService
	for i, s := range []model.Scheduler{"rr", "wrr", "lc", "wlc", "sh", "mh", "sed", "nq"} {
		for _, hop := range nextHopsToForward(i) {
			v := plan.IPVSService{Proto: model.TCP, At: netip.MustParseAddrPort("192.0.2.80:80"), Scheduler: s, Forward: hop.forward, Tunnel: hop.tunnel,
				Persistence: time.Duration(i) * time.Minute, Reals: plan.PackBackends([]plan.Backend{
					{At: netip.MustParseAddrPort("10.0.0.1:80"), Weight: 1}, {At: netip.MustParseAddrPort("10.0.0.2:81")}})}
			if i%2 == 0 {
				v.Proto, v.At = model.UDP, netip.MustParseAddrPort("[2001:db8::80]:53")
			}
			all = append(all, v)
		}
	}
	return all
}

// nextHopToForward is how a virtual service forwards, and through what tunnel.
type nextHopToForward struct {
	forward model.Forward
	tunnel  model.Tunnel
}

// nextHopsToForward are all that there are, tunnels by turns; the first is nat.
func nextHopsToForward(i int) []nextHopToForward {
	tunnels := []model.Tunnel{{}, {Type: model.TunnelGUE, Port: 6080}, {Type: model.TunnelGUE, Port: 6081, Checksum: model.TunnelSummed},
		{Type: model.TunnelGUE, Port: ipvsRealMark, Checksum: model.TunnelRemoteSummed}}
	return []nextHopToForward{{forward: model.ForwardNAT}, {forward: model.ForwardDirect}, {model.ForwardTunnel, tunnels[i%len(tunnels)]}}
}

func destinations(s plan.IPVSService) []ipvs.Destination {
	var all []ipvs.Destination
	for _, r := range s.Reals.List() {
		// The kernel lists the last first.
		all = append([]ipvs.Destination{toDestination(s, r)}, all...)
	}
	return all
}

func TestVirtualServicesAreReadAsTheyWereWritten(t *testing.T) {
	for _, s := range everyService() {
		if got := fromIPVS(toIPVS(s), destinations(s)); got != s {
			t.Errorf("%+v is read as %+v", s, got)
		}
	}
}

// TestWhatNoPlanHasDiffers: whatever others do to a virtual service, it is not
// taken for what it should be.
func TestWhatNoPlanHasDiffers(t *testing.T) {
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
			t.Errorf("%s: another is taken for what it should be", name)
		}
	}
}

// TestAKernelWithoutIPVSSaysWhatToDo asks for it in a namespace of its own.
func TestAKernelWithoutIPVSSaysWhatToDo(t *testing.T) {
	h := openTestHost(t)
	err := h.Set(everyService()[0])
	var none *ipvs.NotSupportedError
	switch {
	case errors.As(err, &none):
		if !strings.Contains(err.Error(), "modprobe ip_vs") {
			t.Errorf("the error is %v", err)
		}
	case err != nil && !errors.Is(err, unix.ENOENT): // no module of the scheduler
		t.Error(err)
	}
	if err := h.Del(everyService()[0]); err != nil {
		t.Errorf("removing what cannot be there: %v", err)
	}
	if found, err := h.Observe(plan.Plan{everyService()[0]}, nil); err != nil || len(found) != 0 {
		t.Errorf("found %v, %v", found, err)
	}
}

// TestMarksAreKnown: a service is ours by its flags or by a real server's.
func TestMarksAreKnown(t *testing.T) {
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
		{edited, []ipvs.Destination{{TunnelType: ipvs.GUE, TunnelPort: ipvsRealMark}}, false}, // GUE to that very port
	} {
		if got := isMarked(c.service, c.reals); got != c.want {
			t.Errorf("%+v with %+v is ours: %t", c.service, c.reals, got)
		}
	}
}

func TestReleasesAreTold(t *testing.T) {
	for release, want := range map[string]bool{"5.8.0-63-generic": false, "4.18.0": false, "5.9.0": true, "5.10.0-28-amd64": true, "6.1.0-56-cloud-amd64": true, "odd": true} {
		if got := since(release, plan.FeatureIPVS); got != want {
			t.Errorf("%s has IPVS as we need it: %t", release, got)
		}
	}
}
