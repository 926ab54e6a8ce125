package engine_test

import (
	"context"
	"fmt"
	"net/netip"
	"os"
	"strings"
	"testing"

	"fairlead/internal/lab/topology"
	"fairlead/internal/model"
	"fairlead/internal/plan"
	"fairlead/internal/store"
	"fairlead/test/place"
)

// TestHealsSubLinks damages a host whose sandboxes have sub-links of a parent.
// Verify must list the damage, and Heal must restore the traffic.
func TestHealsSubLinks(t *testing.T) {
	for _, damage := range []struct {
		name    string
		sandbox bool // where the command runs
		command string
		// want is part of a step that Verify lists.
		want string
	}{
		{"shim deleted", false, "ip link del fm-net", "name fm-net address"},
		{"shim down", false, "ip link set fm-net down", "name fm-net address"},
		{"shim of another mode", false, "ip link set fm-net type macvlan mode vepa", "name fm-net address"},
		{"shim's MTU changed", false, "ip link set fm-net mtu 1400", "ip link set fm-net mtu 1500"},
		{"shim answers the LAN", false, "sysctl -qw net.ipv4.conf.fm-net.arp_filter=0", "arp_filter=1"},
		{"shim listens to routers", false, "sysctl -qw net.ipv6.conf.fm-net.accept_ra=1", "accept_ra=0"},
		{"shim's address deleted", false, "ip addr flush dev fm-net", "addr replace 198.51.100.254/32 dev fm-net"},
		{"host's routes deleted", false, "ip route flush dev fm-net; ip -6 route flush dev fm-net proto 250",
			"route replace 198.51.100.128/32 dev fm-net"},
		{"left-over shim", false,
			"ip link add link wire0 name fm-old type macvlan mode bridge && ip link set fm-old alias fairlead:old",
			"ip link del fm-old"},
		{"masquerading deleted", false, "nft delete element inet fairlead lan '{ fm-net }'",
			"add element inet fairlead lan '{ fm-net }'"},
		{"sub-link deleted", true, "ip link del eth0", "type macvlan mode bridge"},
		{"sub-link down", true, "ip link set eth0 down", "type macvlan mode bridge"},
		{"sub-link of another mode", true, "ip link set eth0 type macvlan mode private", "type macvlan mode bridge"},
		{"sub-link renamed", true, "ip link set eth0 down && ip link set eth0 name eth9", "type macvlan mode bridge"},
		{"sub-link's address changed", true, "ip link set eth0 address 02:00:00:00:00:01",
			"ip link set eth0 address 02:f1:c6:33:64:80"},
		{"route to the host deleted", true, "ip -6 route del 2001:db8:1::2", "-6 route replace 2001:db8:1::2/128 via"},
	} {
		t.Run(damage.name, func(t *testing.T) {
			w := world(t)
			s := onLAN(t, w, model.DriverMacvlan, "web", "app")
			for _, proto := range protos {
				publish(&s, "web", model.ViaNAT, proto, 8080, 80)
			}
			full := mustSet(t, w, s)
			where := place.Place(w.DoServer)
			if damage.sandbox {
				where = in(w, "web")
			}
			sh(t, where, damage.command)
			heals(t, w, damage.want)
			serve(t, in(w, "web"), "web", ":80")
			for _, from := range []place.Place{w.DoClient, w.DoServer, in(w, "app")} {
				hearsAll(t, from, addressesOf(t, full, "web", 80), "web")
				hearsAll(t, from, server(8080), "web")
			}
		})
	}
}

// heals fails the test unless Verify lists the step and Heal executes it.
func heals(t *testing.T, w *topology.World, want string) {
	t.Helper()
	ops, err := w.Engine.Verify(context.Background())
	if err != nil || !strings.Contains(plan.Text(ops), want) {
		t.Errorf("Verify does not list %q: %v\n%s", want, err, plan.Text(ops))
	}
	if _, err := w.Engine.Heal(context.Background()); err != nil {
		t.Fatal(err)
	}
	undrifted(t, w)
}

// TestTheMTUFollowsTheParent changes the parent's MTU while the network exists.
func TestTheMTUFollowsTheParent(t *testing.T) {
	for _, d := range subLinkDrivers(t) {
		t.Run(string(d), func(t *testing.T) {
			w := world(t)
			s := onLAN(t, w, d, "web", "app")
			narrow := onLAN(t, w, d).Networks[0]
			narrow.Name, narrow.MTU, narrow.Subnets = "narrow", 1300, nil
			s.Networks, s.Endpoints[1].Network = append(s.Networks, narrow), "narrow"
			full := mustSet(t, w, s)
			for _, c := range []struct{ parent, web, app int }{{1500, 1500, 1300}, {9000, 9000, 1300},
				{1400, 1400, 1300}} {
				for _, end := range []place.Place{w.DoClient, w.DoServer} {
					sh(t, end, fmt.Sprintf("ip link set %s mtu %d", topology.Wire, c.parent))
				}
				if _, err := w.Engine.Heal(context.Background()); err != nil {
					t.Fatal(err)
				}
				undrifted(t, w)
				for link, want := range map[string]int{"web": c.web, "app": c.app} {
					if got := sh(t, in(w, link), "ip -o link show eth0"); !strings.Contains(got,
						fmt.Sprintf(" mtu %d ", want)) {
						t.Errorf("on a parent of %d bytes %s has %s; want %d", c.parent, link, got, want)
					}
				}
			}
			serve(t, in(w, "web"), "web", ":80")
			hearsAll(t, w.DoServer, addressesOf(t, full, "web", 80), "web")
			s.Networks[1].MTU = 1401
			if _, err := w.Engine.Set(context.Background(), s); err == nil ||
				!strings.Contains(err.Error(), "mtu 1401: parent wire0 takes 1400 bytes") {
				t.Errorf("MTU larger than the parent's: %v", err)
			}
		})
	}
}

// TestDeletedParentReturns deletes the parent, and with it the sub-links, and
// creates it again. Heal restores the sub-links, and TearDown leaves nothing.
func TestDeletedParentReturns(t *testing.T) {
	for _, d := range subLinkDrivers(t) {
		t.Run(string(d), func(t *testing.T) {
			w := world(t)
			lan := strings.Replace(mustSandbox(t, w, "lan"), "self", fmt.Sprint(os.Getpid()), 1)
			plug := "set -e; ip link add lan0 type veth peer name lan0 netns " + lan +
				"; ip link set lan0 up; ip addr add 203.0.113.9/24 dev lan0"
			join := "ip link set lan0 up; ip addr add 203.0.113.1/24 dev lan0"
			before := snapshot(t, w)
			onServer(t, w, plug)
			sh(t, in(w, "lan"), join)
			s := onLAN(t, w, d, "web")
			s.Networks[0].Parent = "lan0"
			s.Networks[0].Subnets = s.Networks[0].Subnets[:1]
			s.Networks[0].Subnets[0].Prefix, s.Networks[0].Subnets[0].Range = netip.MustParsePrefix("203.0.113.0/24"),
				netip.MustParsePrefix("203.0.113.128/25")
			publish(&s, "web", model.ViaNAT, model.TCP, 8080, 80)
			full := mustSet(t, w, s)
			onServer(t, w, "ip link del lan0")
			if _, err := w.Engine.Heal(context.Background()); err == nil ||
				!strings.Contains(err.Error(), "network net: parent lan0: the host has no such link") {
				t.Errorf("without its parent: %v", err)
			}
			onServer(t, w, plug)
			sh(t, in(w, "lan"), join)
			heals(t, w, "type "+string(d))
			serve(t, in(w, "web"), "web", ":80")
			for _, from := range []place.Place{in(w, "lan"), w.DoServer} {
				hearsAll(t, from, addressesOf(t, full, "web", 80), "web")
			}
			hears(t, w.DoClient, model.TCP, "198.51.100.2:8080", "web")
			onServer(t, w, "ip link del lan0")
			if err := w.Engine.TearDown(context.Background()); err != nil {
				t.Errorf("tear down without the parent: %v", err)
			}
			unchanged(t, w, before)
		})
	}
}

// TestSubLinkEndsWithItsSandbox deletes a sandbox. Nothing of it is left, and a
// new namespace at its path is attached.
func TestSubLinkEndsWithItsSandbox(t *testing.T) {
	for _, d := range subLinkDrivers(t) {
		t.Run(string(d), func(t *testing.T) {
			w := world(t)
			before := snapshot(t, w)
			name := fmt.Sprintf("fairlead-branch-%d", os.Getpid())
			onServer(t, w, "ip netns add "+name)
			t.Cleanup(func() { onServer(t, w, "ip netns del "+name) })
			s := onLAN(t, w, d, "app")
			s.Endpoints = append(s.Endpoints, model.Endpoint{Name: "web", Network: "net", Sandbox: "/run/netns/" +
				name})
			publish(&s, "web", model.ViaNAT, model.TCP, 8080, 80)
			mustSet(t, w, s)
			onServer(t, w, "ip netns del "+name+" && ip netns add "+name)
			if _, err := w.Engine.Heal(context.Background()); err != nil {
				t.Fatal(err)
			}
			undrifted(t, w)
			onServer(t, w, "ip netns del "+name)
			s.Endpoints, s.Publishes = s.Endpoints[:1], nil
			full := mustSet(t, w, s)
			undrifted(t, w)
			serve(t, in(w, "app"), "app", ":80")
			hearsAll(t, w.DoServer, addressesOf(t, full, "app", 80), "app")
			onServer(t, w, "ip netns add "+name)
			if err := w.Engine.TearDown(context.Background()); err != nil {
				t.Fatal(err)
			}
			unchanged(t, w, before)
		})
	}
}

// TestSandboxesDieDuringAttach deletes sandboxes at many moments of an attach.
// The attach may fail or not, but nothing may be left.
func TestSandboxesDieDuringAttach(t *testing.T) {
	for _, d := range subLinkDrivers(t) {
		t.Run(string(d), func(t *testing.T) {
			w := world(t)
			before := snapshot(t, w)
			name := fmt.Sprintf("fairlead-dies-%d", os.Getpid())
			died, attached := 0, 0
			for i := range 40 {
				onServer(t, w, "ip netns add "+name)
				s := onLAN(t, w, d)
				s.Endpoints = []model.Endpoint{{Name: "web", Network: "net", Sandbox: "/run/netns/" + name}}
				publish(&s, "web", model.ViaNAT, model.TCP, 8080, 80)
				done := make(chan error)
				go func() {
					_, err := w.Engine.Set(context.Background(), s)
					done <- err
				}()
				onServer(t, w, fmt.Sprintf("sleep 0.%03d; ip netns del %s", i, name))
				if err := <-done; err != nil {
					died++
				} else {
					attached++
				}
				if _, err := w.Engine.Set(context.Background(), model.State{}); err != nil {
					t.Fatal(err)
				}
			}
			t.Logf("%d died before they were attached, %d after", died, attached)
			unchanged(t, w, before)
		})
	}
}

// TestExistingInterfaceIsAnError checks that Set fails and changes nothing if
// the sandbox already has an interface of the endpoint's name.
func TestExistingInterfaceIsAnError(t *testing.T) {
	for _, d := range subLinkDrivers(t) {
		w := world(t)
		before := snapshot(t, w)
		s := onLAN(t, w, d, "web")
		sh(t, in(w, "web"), "ip link add eth0 type veth peer name other")
		if _, err := w.Engine.Set(context.Background(), s); err == nil ||
			!strings.Contains(err.Error(), "the sandbox has an interface eth0 already: name another") {
			t.Errorf("%s: %v", d, err)
		}
		unchanged(t, w, before)
		s.Endpoints[0].Interface = "lan0"
		mustSet(t, w, s)
		undrifted(t, w)
	}
}

// TestDeletedSubLinkLeavesTheRecord checks that the record lists a sandbox only
// while it can contain a sub-link.
func TestDeletedSubLinkLeavesTheRecord(t *testing.T) {
	for _, d := range subLinkDrivers(t) {
		t.Run(string(d), func(t *testing.T) {
			w := world(t)
			s := onLAN(t, w, d, "web", "app")
			s.Networks[0].Subnets = s.Networks[0].Subnets[:1] // IPv6 adds settings, which the record also lists
			var kept store.Memory
			e, stop := daemon(t, w, &kept)
			defer stop()
			for _, left := range []int{2, 1} {
				s.Endpoints = s.Endpoints[:left]
				if _, err := e.Set(t.Context(), s); err != nil {
					t.Fatal(err)
				}
			}
			if record, err := kept.Load(); err != nil || len(record.Inside) != 1 ||
				record.Inside[0].Netns != s.Endpoints[0].Sandbox {
				t.Errorf("the record lists %v, %v", record.Inside, err)
			}
		})
	}
}
