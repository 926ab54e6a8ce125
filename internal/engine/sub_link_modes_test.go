package engine_test

import (
	"context"
	"net/netip"
	"slices"
	"strings"
	"testing"

	"fairlead/internal/lab/topology"
	"fairlead/internal/model"
	"fairlead/internal/plan"
	"fairlead/test/features"
	"fairlead/test/place"
)

// TestModesOfMacvlan checks which sandboxes reach each other, in each mode.
func TestModesOfMacvlan(t *testing.T) {
	for _, c := range []struct {
		mode        model.Mode
		peers, host bool
	}{{model.ModeBridge, true, true}, {model.ModePrivate, false, false}, {model.ModeVEPA, false, false}} {
		t.Run(string(c.mode), func(t *testing.T) {
			w := world(t)
			s := onLAN(t, w, model.DriverMacvlan, "web", "app")
			s.Networks[0].Mode = c.mode
			full := mustSet(t, w, s)
			undrifted(t, w)
			serve(t, in(w, "web"), "web", ":80")
			to := addressesOf(t, full, "web", 80)
			hearsAll(t, w.DoClient, to, "web")
			for from, reached := range map[string]bool{"app": c.peers, "host": c.host} {
				at := place.Place(w.DoServer)
				if from == "app" {
					at = in(w, "app")
				}
				if reached {
					hearsAll(t, at, to, "web")
				} else {
					deaf(t, at, to)
				}
			}
			publish(&s, "web", model.ViaNAT, model.TCP, 8080, 80)
			if _, err := w.Engine.Set(context.Background(), s); c.host != (err == nil) || err != nil &&
				!strings.Contains(err.Error(), "mode "+string(c.mode)) {
				t.Errorf("publish: %v", err)
			}
		})
	}
	t.Run("vepa by a switch that sends back", func(t *testing.T) {
		w := world(t)
		s := onLAN(t, w, model.DriverMacvlan, "web", "app")
		s.Networks[0].Mode = model.ModeVEPA
		full := mustSet(t, w, s)
		serve(t, in(w, "web"), "web", ":80")
		sh(t, w.DoClient,
			"set -e; ip link add br0 type bridge; ip link set br0 up; ip link set wire0 master br0; ip link set wire0 type bridge_slave hairpin on")
		hearsAll(t, in(w, "app"), addressesOf(t, full, "web", 80), "web")
	})
	t.Run("passthru", func(t *testing.T) {
		w := world(t)
		before := snapshot(t, w)
		s := onLAN(t, w, model.DriverMacvlan, "web")
		s.Networks[0].Mode = model.ModePassthru
		full := mustSet(t, w, s)
		undrifted(t, w)
		serve(t, in(w, "web"), "web", ":80")
		hearsAll(t, w.DoClient, addressesOf(t, full, "web", 80), "web")
		mustSet(t, w, model.State{})
		unchanged(t, w, before)
		// Another program's macvlan uses the parent.
		onServer(t, w, "ip link add link wire0 name foreign type macvlan mode bridge")
		if _, err := w.Engine.Set(context.Background(), s); err == nil ||
			!strings.Contains(err.Error(), "mode passthru allows only one macvlan") {
			t.Errorf("with another macvlan on the parent: %v", err)
		}
		onServer(t, w, "ip link del foreign")
		unchanged(t, w, before)
	})
}

// TestModesOfIPvlan routes where the sandboxes have no frames of the LAN.
func TestModesOfIPvlan(t *testing.T) {
	if !slices.Contains(subLinkDrivers(t), model.DriverIPvlan) {
		unwanted(t, model.Network{Name: "net", Driver: model.DriverIPvlan, Parent: topology.Wire}, "module ipvlan")
		return
	}
	for _, mode := range []model.Mode{model.ModeL3, model.ModeL3S} {
		t.Run(string(mode), func(t *testing.T) {
			w := world(t)
			before := snapshot(t, w)
			s := dual(t, w, model.DriverIPvlan, "web", "app")
			s.Networks[0].Parent, s.Networks[0].Mode = topology.Wire, mode
			for _, proto := range protos {
				publish(&s, "web", model.ViaAuto, proto, 8080, 80)
			}
			full := mustSet(t, w, s)
			undrifted(t, w)
			for _, sub := range s.Networks[0].Subnets {
				if err := w.Route(sub.Prefix); err != nil {
					t.Fatal(err)
				}
			}
			serve(t, in(w, "web"), "web", ":80")
			serve(t, w.DoClient, "lan", ":90")
			for _, from := range []place.Place{w.DoClient, w.DoServer, in(w, "app")} {
				hearsAll(t, from, addressesOf(t, full, "web", 80), "web")
				hearsAll(t, from, server(8080), "web")
			}
			hearsAll(t, in(w, "web"), both(topology.ClientAddr4.String(), topology.ClientAddr6.String(), 90), "lan")
			if err := w.Engine.TearDown(context.Background()); err != nil {
				t.Fatal(err)
			}
			unchanged(t, w, before)
		})
	}
}

// unwanted fails the test unless Set refuses the network with an error that
// contains the text.
func unwanted(t *testing.T, n model.Network, want string) {
	t.Helper()
	w := world(t)
	if _, err := w.Engine.Set(context.Background(), model.State{Networks: []model.Network{n}}); err == nil ||
		!strings.Contains(err.Error(), want) {
		t.Errorf("got %v, want an error with %q", err, want)
	}
}

// TestVLANOfTheParent checks that only a client in the VLAN reaches the sandbox.
func TestVLANOfTheParent(t *testing.T) {
	if missing := features.Facts(t).Missing[plan.FeatureVLAN]; missing != "" {
		if *whole {
			t.Fatal(missing)
		}
		unwanted(t, model.Network{Name: "net", Driver: model.DriverMacvlan, Parent: topology.Wire, VLAN: 100},
			"vlan 100: "+missing)
		return
	}
	for _, d := range subLinkDrivers(t) {
		t.Run(string(d), func(t *testing.T) {
			w := world(t)
			before := snapshot(t, w)
			sh(t, w.DoClient,
				"set -e; ip link add link wire0 name wire0.100 type vlan id 100; ip link set wire0.100 up;"+
					" ip addr add 203.0.113.1/24 dev wire0.100; ip addr add 2001:db8:3::1/64 dev wire0.100 nodad")
			s := onLAN(t, w, d, "web", "app")
			s.Networks[0].VLAN = 100
			s.Networks[0].Subnets = []model.Subnet{{Prefix: netip.MustParsePrefix("203.0.113.0/24")},
				{Prefix: netip.MustParsePrefix("2001:db8:3::/64")}}
			second := onLAN(t, w, d).Networks[0]
			second.Name, second.VLAN = "second", 100
			s.Networks, s.Endpoints[1].Network = append(s.Networks, second), "second"
			for _, proto := range protos {
				publish(&s, "web", model.ViaNAT, proto, 8080, 80)
			}
			full := mustSet(t, w, s)
			undrifted(t, w)
			serve(t, in(w, "web"), "web", ":80")
			hearsAll(t, w.DoClient, addressesOf(t, full, "web", 80), "web")
			hearsAll(t, w.DoServer, addressesOf(t, full, "web", 80), "web")
			hearsAll(t, w.DoClient, server(8080), "web")
			sh(t, w.DoClient,
				"ip link set wire0.100 down; ip route add 203.0.113.0/24 dev wire0; ip -6 route add 2001:db8:3::/64 dev wire0")
			deaf(t, w.DoClient, addressesOf(t, full, "web", 80))
			s.Networks[1].VLAN = 0 // off the VLAN that both shared
			mustSet(t, w, s)
			undrifted(t, w)
			if err := w.Engine.TearDown(context.Background()); err != nil {
				t.Fatal(err)
			}
			unchanged(t, w, before)
			onServer(t, w, "ip link set wire0 down")
			s.Networks[1].VLAN = 100
			if _, err := w.Engine.Set(context.Background(), s); err == nil ||
				!strings.Contains(err.Error(), "parent wire0 is down") {
				t.Errorf("on a parent that is down: %v", err)
			}
			onServer(t, w, "ip link add link wire0 name theirs type vlan id 100")
			if _, err := w.Engine.Set(context.Background(), s); err == nil ||
				!strings.Contains(err.Error(), "already has a link for VLAN 100") {
				t.Errorf("with a foreign link for the VLAN: %v", err)
			}
		})
	}
}
