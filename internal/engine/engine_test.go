package engine_test

import (
	"context"
	"net/netip"
	"os"
	"testing"

	"fairlead/internal/child"
	"fairlead/internal/model"
	"fairlead/internal/plan"
	"fairlead/internal/proxy"
	"fairlead/test/process"
)

func TestMain(m *testing.M) {
	child.Dispatch(child.Roles{proxy.Role: proxy.Main, setLoopRole: process.Main(runSetLoop)})
	os.Exit(m.Run())
}

func TestPublishReachesTheSandboxAndTearDownLeavesNothing(t *testing.T) {
	for _, d := range []model.Driver{model.DriverBridge, model.DriverRouted} {
		for _, via := range modes {
			t.Run(string(d)+"/"+string(via), func(t *testing.T) {
				w := world(t)
				before := snapshot(t, w)
				s := dual(t, w, d, "web")
				publish(&s, "web", via, model.TCP, 8080, 80)
				publish(&s, "web", via, model.UDP, 8080, 80)
				mustSet(t, w, s)
				serve(t, in(w, "web"), "web", ":80")
				for _, proto := range protos {
					for _, addr := range server(8080) {
						hears(t, w.DoClient, proto, addr, "web")
						hears(t, in(w, "web"), proto, addr, "web")
					}
					for _, addr := range everywhere(8080) {
						hears(t, w.DoServer, proto, addr, "web")
					}
				}
				undrifted(t, w)
				if err := w.Engine.TearDown(context.Background()); err != nil {
					t.Fatal(err)
				}
				unchanged(t, w, before)
			})
		}
	}
}

func TestSettingTwiceChangesNothing(t *testing.T) {
	w := world(t)
	s := dual(t, w, model.DriverBridge, "web", "app")
	publish(&s, "web", model.ViaNAT, model.TCP, 8080, 80)
	publish(&s, "app", model.ViaProxy, model.UDP, 8081, 80)
	full := mustSet(t, w, s)
	ops, err := w.Engine.Plan(s)
	if err != nil || len(ops) != 0 {
		t.Errorf("setting it again would: %v\n%s", err, plan.Text(ops))
	}
	before := snapshot(t, w)
	again := mustSet(t, w, s)
	unchanged(t, w, before)
	for i, e := range full.Endpoints {
		if got := again.Endpoints[i].Addresses; len(got) != 2 || got[0] != e.Addresses[0] || got[1] != e.Addresses[1] {
			t.Errorf("endpoint %s moved from %v to %v", e.Name, e.Addresses, got)
		}
	}
	undrifted(t, w)
}

func TestFilterHairpinAndInternalNetworks(t *testing.T) {
	for _, filter := range []model.Filter{model.FilterKeep, model.FilterOn, model.FilterOff} {
		t.Run("filter="+string(filter), func(t *testing.T) {
			w := world(t)
			before := snapshot(t, w)
			s := dual(t, w, model.DriverBridge, "web", "app")
			s.Networks[0].Filter = filter
			publish(&s, "web", model.ViaNAT, model.TCP, 8080, 80)
			publish(&s, "web", model.ViaNAT, model.UDP, 8080, 80)
			mustSet(t, w, s)
			undrifted(t, w)
			serve(t, in(w, "web"), "web", ":80")
			for _, proto := range protos {
				for _, addr := range server(8080) {
					hears(t, in(w, "web"), proto, addr, "web")
					hears(t, in(w, "app"), proto, addr, "web")
				}
			}
			if err := w.Engine.TearDown(context.Background()); err != nil {
				t.Fatal(err)
			}
			unchanged(t, w, before)
		})
	}
	for _, d := range []model.Driver{model.DriverBridge, model.DriverRouted} {
		t.Run("internal "+string(d), func(t *testing.T) {
			w := world(t)
			s := dual(t, w, d, "web", "out")
			s.Networks[0].Internal = true
			s.Networks = append(s.Networks, model.Network{Name: "open", Driver: d,
				Subnets: []model.Subnet{{Prefix: netip.MustParsePrefix("172.31.0.0/24")}}})
			s.Endpoints[1].Network = "open"
			full := mustSet(t, w, s)
			undrifted(t, w)
			for _, n := range s.Networks {
				for _, sub := range n.Subnets {
					if err := w.Route(sub.Prefix); err != nil {
						t.Fatal(err)
					}
				}
			}
			serve(t, in(w, "web"), "web", ":80")
			serve(t, w.DoClient, "lan", ":90")
			addr, _ := full.Endpoints[0].Address(true)
			hears(t, w.DoServer, model.TCP, addr.String()+":80", "web")
			hears(t, in(w, "out"), model.TCP, "198.51.100.1:90", "lan")
			// A sandbox that adds a default route still cannot reach the LAN.
			sh(t, in(w, "web"), "ip route replace default via 172.30.0.1 dev eth0")
			deaf(t, in(w, "web"), []string{"198.51.100.1:90"})
		})
	}
}
