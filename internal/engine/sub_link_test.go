package engine_test

import (
	"context"
	"flag"
	"fmt"
	"net/netip"
	"slices"
	"strings"
	"testing"

	"fairlead/internal/lab/topology"
	"fairlead/internal/model"
	"fairlead/internal/paths"
	"fairlead/test/features"
	"fairlead/test/place"
)

// whole is set in the virtual machine of test/vm, whose kernel must have every
// feature.
var whole = flag.Bool("whole", false, "fail for a kernel feature that is missing")

// subLinkDrivers lists the drivers with sub-links that this kernel supports.
func subLinkDrivers(t *testing.T) []model.Driver {
	t.Helper()
	facts := features.Facts(t)
	var drivers []model.Driver
	for _, d := range []model.Driver{model.DriverMacvlan, model.DriverIPvlan} {
		driver, _ := paths.Driver(d)
		missing := paths.Missing(facts, driver.Needs())
		switch {
		case missing == "":
			drivers = append(drivers, d)
		case *whole || d == model.DriverMacvlan:
			t.Fatal(missing)
		default:
			t.Logf("only test/vm proves %s: %s", d, missing)
		}
	}
	return drivers
}

// onLAN returns a network on the wire, with both families and one sandbox for
// each name. The client host is the LAN's other host and its router.
func onLAN(t testing.TB, w *topology.World, d model.Driver, names ...string) model.State {
	t.Helper()
	prefix := netip.MustParsePrefix
	s := model.State{Networks: []model.Network{{Name: "net", Driver: d, Parent: topology.Wire, Subnets: []model.Subnet{
		{Prefix: prefix("198.51.100.0/24"), Range: prefix("198.51.100.128/25")},
		{Prefix: prefix("2001:db8:1::/64"), Range: prefix("2001:db8:1::1:0/112")}}}}}
	for _, name := range names {
		s.Endpoints = append(s.Endpoints, model.Endpoint{Name: name, Network: "net", Sandbox: mustSandbox(t, w, name)})
	}
	return s
}

// addressesOf returns the endpoint's addresses with the port.
func addressesOf(t testing.TB, s model.State, name string, port int) []string {
	t.Helper()
	e, _ := s.Endpoint(name)
	var all []string
	for _, a := range e.AllAddresses() {
		all = append(all, netip.AddrPortFrom(a, uint16(port)).String())
	}
	if len(all) == 0 {
		t.Fatalf("endpoint %s has no address", name)
	}
	return all
}

// hostIn returns the host's addresses in the network, with the port.
func hostIn(t testing.TB, s model.State, network string, port int) []string {
	t.Helper()
	n, _ := s.Network(network)
	var all []string
	for _, sub := range n.Subnets {
		all = append(all, netip.AddrPortFrom(sub.HostAddress(), uint16(port)).String())
	}
	return all
}

// hearsAll calls hears for every protocol and address.
func hearsAll(t testing.TB, from place.Place, to []string, want string) {
	t.Helper()
	for _, proto := range protos {
		for _, addr := range to {
			hears(t, from, proto, addr, want)
		}
	}
}

// deaf fails the test if any address accepts a TCP connection. It waits for the
// duration silence at each address.
func deaf(t testing.TB, from place.Place, to []string) {
	t.Helper()
	for _, addr := range to {
		if c, err := place.Dial(from, "tcp", addr, silence); err == nil {
			c.Close()
			t.Errorf("%s answers", addr)
		}
	}
}

func TestShimExistsWhileEndpointsExist(t *testing.T) {
	for _, d := range subLinkDrivers(t) {
		t.Run(string(d), func(t *testing.T) {
			w := world(t)
			before := snapshot(t, w)
			s := onLAN(t, w, d, "web", "app")
			for i, names := range [][]string{{"web"}, {"web", "app"}, {"app"}, nil} {
				some := s
				some.Endpoints = slices.DeleteFunc(slices.Clone(s.Endpoints),
					func(e model.Endpoint) bool { return !slices.Contains(names, e.Name) })
				full := mustSet(t, w, some)
				undrifted(t, w)
				if shim := strings.Contains(onServer(t, w, "ip -br link"), "fm-net@"); shim != (len(names) > 0) {
					t.Errorf("with endpoints %v there is a shim: %v", names, shim)
				}
				for _, name := range names {
					port := 80 + i
					serve(t, in(w, name), name, fmt.Sprint(":", port))
					hearsAll(t, w.DoServer, addressesOf(t, full, name, port), name)
					hearsAll(t, w.DoClient, addressesOf(t, full, name, port), name)
				}
			}
			mustSet(t, w, model.State{})
			unchanged(t, w, before)
		})
	}
}

func TestPublishingToTheLANAndTearDownLeavesNothing(t *testing.T) {
	for _, d := range subLinkDrivers(t) {
		for _, via := range []model.Via{model.ViaNAT, model.ViaProxy, model.ViaAuto} {
			t.Run(string(d)+"/"+string(via), func(t *testing.T) {
				w := world(t)
				before := snapshot(t, w)
				s := onLAN(t, w, d, "web", "app")
				for _, proto := range protos {
					publish(&s, "web", via, proto, 8080, 80)
				}
				full := mustSet(t, w, s)
				undrifted(t, w)
				if via == model.ViaAuto && full.Publishes[0].Via != model.ViaNAT {
					t.Errorf("auto chooses %s", full.Publishes[0].Via)
				}
				serve(t, in(w, "web"), "web", ":80")
				for _, from := range []place.Place{w.DoClient, in(w, "app"), in(w, "web")} {
					hearsAll(t, from, server(8080), "web")
				}
				hearsAll(t, w.DoServer, everywhere(8080), "web")
				if err := w.Engine.TearDown(context.Background()); err != nil {
					t.Fatal(err)
				}
				unchanged(t, w, before)
			})
		}
	}
}

// TestAddressOutsideTheSubnets attaches endpoints with addresses from the LAN's
// DHCP server or administrator, to a network without subnets. The host reaches
// them from its address on the parent.
func TestAddressOutsideTheSubnets(t *testing.T) {
	w := world(t)
	serve(t, w.DoServer, "host", ":81")
	before := snapshot(t, w)
	s := onLAN(t, w, model.DriverMacvlan, "web", "app")
	s.Networks[0].Subnets = nil
	for i, host := range []string{"80", "81"} {
		s.Endpoints[i].Prefixes = []netip.Prefix{netip.MustParsePrefix("198.51.100." + host + "/24"),
			netip.MustParsePrefix("2001:db8:1::" + host + "/64")}
	}
	full := mustSet(t, w, s)
	undrifted(t, w)
	serve(t, in(w, "web"), "web", ":80")
	for _, from := range []place.Place{w.DoClient, w.DoServer, in(w, "app")} {
		hearsAll(t, from, addressesOf(t, full, "web", 80), "web")
	}
	hearsAll(t, in(w, "web"), server(81), "host")
	publish(&s, "web", model.ViaNAT, model.TCP, 8080, 80)
	if _, err := w.Engine.Set(context.Background(), s); err == nil ||
		!strings.Contains(err.Error(), "the network has no subnet") {
		t.Errorf("publish: %v", err)
	}
	mustSet(t, w, model.State{})
	unchanged(t, w, before)
}

// TestShimIsSilentOnTheLAN checks that the shim answers no neighbour discovery of
// the LAN: packets for the host must arrive on the parent.
func TestShimIsSilentOnTheLAN(t *testing.T) {
	w := world(t)
	s := onLAN(t, w, model.DriverMacvlan, "web")
	mustSet(t, w, s)
	serve(t, w.DoServer, "host", ":81")
	wire := strings.Fields(onServer(t, w, "ip -br link show "+topology.Wire))[2]
	for range 10 {
		sh(t, w.DoClient, "ip neigh flush dev "+topology.Wire)
		hearsAll(t, w.DoClient, server(81), "host")
		for _, host := range []netip.Addr{topology.ServerAddr4, topology.ServerAddr6} {
			if seen := sh(t, w.DoClient, "ip neigh show "+host.String()); !strings.Contains(seen, wire) {
				t.Errorf("the LAN finds %s at %s, want %s", host, seen, wire)
			}
		}
	}
	hearsAll(t, in(w, "web"), server(81), "host") // the sandbox reaches the host via the shim
	if routes := onServer(t, w,
		"ip -6 route show default; sysctl -n net.ipv6.conf.fm-net.accept_ra"); strings.TrimSpace(routes) != "0" {
		t.Errorf("the shim accepts router advertisements: %s", routes)
	}
}

// TestStrictReversePathsOnTheLAN checks that sandboxes reach the host's addresses
// on the parent with rp_filter on. Packets of an ipvlan sandbox arrive on the
// parent, and strict mode (1) drops them.
func TestStrictReversePathsOnTheLAN(t *testing.T) {
	for _, d := range subLinkDrivers(t) {
		t.Run(string(d), func(t *testing.T) {
			w := world(t)
			s := onLAN(t, w, d, "web", "app")
			publish(&s, "web", model.ViaNAT, model.TCP, 8080, 80)
			mustSet(t, w, s)
			serve(t, in(w, "web"), "web", ":80")
			for _, check := range []int{1, 2} {
				for _, link := range []string{topology.Wire, "fm-net"} {
					onServer(t, w, fmt.Sprintf("sysctl -qw net.ipv4.conf.%s.rp_filter=%d", link, check))
				}
				if d == model.DriverIPvlan && check == 1 {
					deaf(t, in(w, "app"), server(8080)[:1])
				} else {
					hears(t, in(w, "app"), model.TCP, server(8080)[0], "web")
				}
				hears(t, w.DoClient, model.TCP, server(8080)[0], "web")
			}
		})
	}
}

// TestNetworksOfOneParentAreApart checks two networks on one parent: their
// sandboxes reach each other only through the LAN's router.
func TestNetworksOfOneParentAreApart(t *testing.T) {
	for _, d := range subLinkDrivers(t) {
		t.Run(string(d), func(t *testing.T) {
			w := world(t)
			sh(t, w.DoClient, "sysctl -qw net.ipv4.ip_forward=1; ip addr add 203.0.113.1/24 dev "+topology.Wire)
			s := onLAN(t, w, d, "web", "app")
			s.Networks = append(s.Networks, model.Network{Name: "second", Driver: d, Parent: topology.Wire,
				Subnets: []model.Subnet{{Prefix: netip.MustParsePrefix("203.0.113.0/24")}}})
			s.Endpoints[1].Network = "second"
			full := mustSet(t, w, s)
			undrifted(t, w)
			serve(t, in(w, "web"), "web", ":80")
			serve(t, in(w, "app"), "app", ":80")
			for _, from := range []place.Place{w.DoServer, w.DoClient} {
				hearsAll(t, from, addressesOf(t, full, "web", 80), "web")
				hearsAll(t, from, addressesOf(t, full, "app", 80), "app")
			}
			hearsAll(t, in(w, "web"), addressesOf(t, full, "app", 80), "app") // through the LAN's router
		})
	}
}

// TestBridgedSandboxesReachSubLinks checks that packets of bridged sandboxes to
// sandboxes on the LAN are masqueraded, as for any host of the LAN, and that
// sandboxes on the LAN reach the published ports of bridged sandboxes.
func TestBridgedSandboxesReachSubLinks(t *testing.T) {
	for _, d := range subLinkDrivers(t) {
		for _, via := range modes {
			t.Run(string(d)+"/"+string(via), func(t *testing.T) {
				w := world(t)
				s := dual(t, w, model.DriverBridge, "inner")
				lan := onLAN(t, w, d, "web")
				lan.Networks[0].Name, lan.Endpoints[0].Network = "lan", "lan"
				s.Networks, s.Endpoints = append(s.Networks, lan.Networks...), append(s.Endpoints, lan.Endpoints...)
				for _, proto := range protos {
					publish(&s, "inner", via, proto, 8080, 80)
				}
				full := mustSet(t, w, s)
				undrifted(t, w)
				serve(t, in(w, "web"), "web", ":80")
				serve(t, in(w, "inner"), "inner", ":80")
				hearsAll(t, in(w, "inner"), addressesOf(t, full, "web", 80), "web")
				hearsAll(t, w.DoClient, server(8080), "inner")
				host := server(8080)
				if via == model.ViaEBPF && d == model.DriverIPvlan {
					// The answer leaves on the link on which the packet arrived: the parent.
					host = hostIn(t, full, "lan", 8080)
				}
				hearsAll(t, in(w, "web"), host, "inner")
			})
		}
	}
}

// TestSubLinkIsRenamed changes the name of an interface. Its hardware address and its IP addresses stay, which two links
// of one parent cannot have. If that fails, the sandbox has the interface that it had.
func TestSubLinkIsRenamed(t *testing.T) {
	for _, d := range subLinkDrivers(t) {
		for _, mode := range map[model.Driver][]model.Mode{model.DriverMacvlan: {model.ModeBridge, model.ModePassthru},
			model.DriverIPvlan: {model.ModeL2, model.ModeL3}}[d] {
			t.Run(string(d)+"/"+string(mode), func(t *testing.T) {
				w := world(t)
				s := onLAN(t, w, d, "web")
				s.Networks[0].Mode = mode
				s.Endpoints[0].Interface = "eth0"
				full := mustSet(t, w, s)
				s.Endpoints[0].Addresses = full.Endpoints[0].Addresses
				serve(t, in(w, "web"), "web", ":80")
				renamed := s
				renamed.Endpoints = slices.Clone(s.Endpoints)
				renamed.Endpoints[0].Interface = "lan0"
				sh(t, in(w, "web"), "ip link add lan0 type bridge")
				if _, err := w.Engine.Set(context.Background(), renamed); err == nil ||
					!strings.Contains(err.Error(), "the sandbox has an interface lan0 already") {
					t.Errorf("renamed to the name of another interface: %v", err)
				}
				undrifted(t, w)
				sh(t, in(w, "web"), "ip link del lan0")
				mustSet(t, w, renamed)
				undrifted(t, w)
				if links := sh(t, in(w, "web"), "ip -br link"); strings.Contains(links, "eth0") ||
					!strings.Contains(links, "lan0") {
					t.Errorf("the sandbox has %s", links)
				}
				from := place.Place(w.DoClient)
				if mode == model.ModeL3 { // the LAN has no route to the sandbox
					from = in(w, "web")
				}
				hearsAll(t, from, addressesOf(t, full, "web", 80), "web")
			})
		}
	}
}
