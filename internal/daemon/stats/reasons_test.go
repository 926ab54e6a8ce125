package stats

import (
	"net/netip"
	"strings"
	"testing"

	"fairlead/internal/api"
	"fairlead/internal/kernel/counter"
	"fairlead/internal/model"
	"fairlead/internal/paths"
)

// TestAbsentFiguresHaveReasons: for each driver, publish mode and data plane, a figure is
// counted, or absent with the reason.
func TestAbsentFiguresHaveReasons(t *testing.T) {
	n := &counter.InOut{In: 1}
	s := api.Stats{}
	for _, d := range paths.Drivers() {
		s.Networks = append(s.Networks, api.NetworkStats{Driver: d.Name(), Traffic: &counter.Traffic{}})
		s.Endpoints = append(s.Endpoints, api.EndpointStats{Driver: d.Name()})
	}
	for _, m := range paths.Modes() {
		for _, proto := range []model.Proto{model.TCP, model.UDP} {
			p := model.Publish{Via: m.Name(), Proto: proto}
			s.Publishes = append(s.Publishes, api.PublishStats{Publish: p},
				api.PublishStats{Publish: p, Bytes: n}, api.PublishStats{Publish: p, Bytes: n, Packets: n, Drops: n})
		}
	}
	explain(&s)
	for _, n := range s.Networks {
		if (n.Traffic == nil) != (n.NotCounted != "") || n.Driver.Traits().NoLink && n.Traffic != nil {
			t.Errorf("network with driver %s: %+v, %q", n.Driver, n.Traffic, n.NotCounted)
		}
	}
	for _, e := range s.Endpoints {
		if e.NotCounted == "" {
			t.Errorf("endpoint with driver %s: no reason", e.Driver)
		}
	}
	for _, p := range s.Publishes {
		if (p.Bytes == nil || p.Packets == nil) && p.NotCounted == "" {
			t.Errorf("%s: no reason for %+v", p.Publish, p)
		}
	}
}

// TestReals: what a data plane does not count of a real server is absent, and has a reason.
func TestReals(t *testing.T) {
	at := model.RealServer{Address: netip.MustParseAddr("10.0.0.2")}
	view := func(plane model.Plane, forward model.Forward) api.ServiceView {
		return api.ServiceView{PlaneInUse: plane,
			VirtualService: model.VirtualService{Name: "web", Forward: forward}}
	}
	full := RealCount{Begun: 3, Packets: counter.InOut{In: 5, Out: 4}}
	for _, c := range []struct {
		v             api.ServiceView
		n             *RealCount
		flows         bool
		in, out, some bool
		why           string
	}{
		{view(model.PlaneIPVS, ""), &full, true, true, true, false, ""},
		{view(model.PlaneIPVS, model.ForwardDirect), &full, true, true, false, true, "from the real server"},
		{view(model.PlaneEBPF, model.ForwardTunnel), &full, true, true, false, true, "from the real server"},
		{view(model.PlaneEBPF, ""), &full, true, true, true, true, "this host's own processes"},
		{view(model.PlaneEBPF, ""), &RealCount{LiveOnly: true}, false, false, false, true, "no counters left"},
		{view(model.PlaneNFT, ""), &full, true, false, false, true, "only the first packet"},
		{view(model.PlaneNFT, ""), nil, false, false, false, true, "has not reported"},
		{view("", model.ForwardLocal), nil, false, false, false, true, "other hosts"},
	} {
		counts := RealCounts{}
		if c.n != nil {
			counts.Add("web", at.At(80), *c.n)
		}
		r := api.RealStats{Real: at.At(80)}
		counts.AddReal(&r, c.v)
		in, out := r.Packets != nil && r.Packets.In != nil, r.Packets != nil && r.Packets.Out != nil
		if (r.Flows != nil) != c.flows || in != c.in || out != c.out || (r.NotCounted != "") != c.some ||
			!strings.Contains(r.NotCounted, c.why) {
			t.Errorf("%s, forward %q: %+v", c.v.PlaneInUse, c.v.Forward, r)
		}
	}
}
