package engine_test

import (
	"context"
	"errors"
	"fmt"
	"net"
	"net/netip"
	"strings"
	"testing"
	"time"

	"fairlead/internal/lab/topology"
	"fairlead/internal/model"
	"fairlead/test/place"

	"golang.org/x/sys/unix"
)

func TestChangesKeepOtherConnections(t *testing.T) {
	w := world(t)
	s := dual(t, w, model.DriverBridge, "web", "app")
	for i, via := range modes {
		publish(&s, "web", via, model.TCP, 8000+uint16(i), 80)
		publish(&s, "web", via, model.UDP, 8000+uint16(i), 80)
	}
	mustSet(t, w, s)
	serve(t, in(w, "web"), "web", ":80")
	serve(t, in(w, "app"), "app", ":80")
	var talks []talk
	for i := range modes {
		for _, proto := range protos {
			for _, addr := range server(8000 + i) {
				talks = append(talks, dial(t, w.DoClient, proto, addr))
			}
		}
	}
	all := func(step string) {
		t.Helper()
		for _, talk := range talks {
			if got, err := talk.ask(); err != nil || got != "web" {
				t.Errorf("after %s: %s answers %q, %v", step, talk.conn.RemoteAddr(), got, err)
			}
		}
		undrifted(t, w)
	}
	all("the start")
	base := s
	for _, step := range []struct {
		name   string
		change func(*model.State)
	}{
		{"a larger MTU", func(s *model.State) { s.Networks[0].MTU = 9000 }},
		{"a smaller MTU", func(s *model.State) { s.Networks[0].MTU = 1400 }},
		{"another filter", func(s *model.State) { s.Networks[0].Filter = model.FilterOn }},
		{"no filter", func(s *model.State) { s.Networks[0].Filter = model.FilterOff }},
		{"more publishes", func(s *model.State) {
			publish(s, "app", model.ViaNAT, model.TCP, 9000, 80)
			publish(s, "app", model.ViaProxy, model.TCP, 9001, 80)
			s.Publishes = append(s.Publishes, model.Publish{Endpoint: "app", Via: model.ViaNAT, Proto: model.TCP,
				HostPorts: model.PortRange{First: 9100, Last: 9200}, Ports: model.PortRange{First: 9100, Last: 9200}})
		}},
		{"the other publish mode for those", func(s *model.State) {
			publish(s, "app", model.ViaProxy, model.TCP, 9000, 80)
			publish(s, "app", model.ViaNAT, model.TCP, 9001, 80)
			s.Publishes = append(s.Publishes, model.Publish{Endpoint: "app", Via: model.ViaNAT, Proto: model.TCP,
				HostPorts: model.PortRange{First: 9050, Last: 9150}, Ports: model.PortRange{First: 9050, Last: 9150}})
		}},
		{"another endpoint's move",
			func(s *model.State) { s.Endpoints[1].Addresses = []netip.Addr{netip.MustParseAddr("172.30.0.77")} }},
		{"fewer publishes", func(*model.State) {}},
	} {
		s := base
		s.Networks = append([]model.Network(nil), base.Networks...)
		s.Endpoints = append([]model.Endpoint(nil), base.Endpoints...)
		s.Publishes = append([]model.Publish(nil), base.Publishes...)
		step.change(&s)
		if _, err := w.Engine.Set(context.Background(), s); err != nil {
			t.Fatalf("%s: %v", step.name, err)
		}
		all(step.name)
	}
}

func TestMTUAppliesToEveryLink(t *testing.T) {
	for _, d := range []model.Driver{model.DriverBridge, model.DriverRouted} {
		t.Run(string(d), func(t *testing.T) {
			w := world(t)
			s := dual(t, w, d, "web", "app")
			serve(t, in(w, "web"), "web", ":80")
			for _, mtu := range []int{9000, 1300} {
				s.Networks[0].MTU = mtu
				full := mustSet(t, w, s)
				undrifted(t, w)
				for _, in := range []place.Place{w.DoServer, in(w, "web"), in(w, "app")} {
					for _, line := range strings.Split(sh(t, in, "ip -o link | grep -v 'lo:\\|wire0'"), "\n") {
						if line != "" && !strings.Contains(line, fmt.Sprintf("mtu %d ", mtu)) {
							t.Errorf("want mtu %d: %s", mtu, line)
						}
					}
				}
				for _, addr := range full.Endpoints[0].Addresses {
					c := dial(t, in(w, "app"), model.UDP, netip.AddrPortFrom(addr, 80).String()).conn.(*net.UDPConn)
					sendWhole(t, c, mtu)
				}
			}
		})
	}
}

// sendWhole sends packets of exactly mtu bytes, with fragmentation forbidden,
// until one is answered. A packet that is one byte larger must be refused.
func sendWhole(t *testing.T, c *net.UDPConn, mtu int) {
	t.Helper()
	level, option, header := unix.IPPROTO_IP, unix.IP_MTU_DISCOVER, 28
	if c.RemoteAddr().(*net.UDPAddr).IP.To4() == nil {
		level, option, header = unix.IPPROTO_IPV6, unix.IPV6_MTU_DISCOVER, 48
	}
	raw, err := c.SyscallConn()
	if err != nil {
		t.Fatal(err)
	}
	if err := raw.Control(func(fd uintptr) {
		err = unix.SetsockoptInt(int(fd), level, option, unix.IP_PMTUDISC_DO)
	}); err != nil {
		t.Fatal(err)
	}
	for deadline := time.Now().Add(place.Timeout); ; {
		if _, err := c.Write(make([]byte, mtu-header)); err != nil {
			t.Errorf("send %d bytes: %v", mtu, err)
		}
		c.SetReadDeadline(time.Now().Add(again))
		_, err := c.Read(make([]byte, 16))
		if err == nil {
			break
		}
		if time.Now().After(deadline) {
			t.Fatalf("%d bytes did not arrive: %v", mtu, err)
		}
	}
	if _, err := c.Write(make([]byte, mtu-header+1)); !errors.Is(err, unix.EMSGSIZE) {
		t.Errorf("send %d bytes: %v, want message too long", mtu+1, err)
	}
}

// TestMoves moves an endpoint. Its publishes must follow, and nothing may be
// left of the old configuration.
func TestMoves(t *testing.T) {
	worlds := shared(t)
	for _, move := range []struct {
		name   string
		change func(*model.State)
	}{
		{"to another sandbox",
			func(s *model.State) { s.Endpoints[0].Sandbox = s.Endpoints[1].Sandbox; s.Endpoints = s.Endpoints[:1] }},
		{"to another interface", func(s *model.State) { s.Endpoints[0].Interface = "net1" }},
		{"to another address", func(s *model.State) {
			s.Endpoints[0].Addresses = []netip.Addr{netip.MustParseAddr("172.30.0.99"),
				netip.MustParseAddr("fd00:30::99")}
		}},
		{"to another name", func(s *model.State) {
			s.Endpoints[0].Name = "renamed"
			for i := range s.Publishes {
				s.Publishes[i].Endpoint = "renamed"
			}
		}},
		{"to another driver", func(s *model.State) {
			if s.Networks[0].Driver = model.DriverBridge; s.Networks[0].Filter == model.FilterKeep {
				s.Networks[0].Driver = model.DriverRouted
			}
		}},
		{"to another network", func(s *model.State) {
			s.Networks[0].Name = "other"
			for i := range s.Endpoints {
				s.Endpoints[i].Network = "other"
			}
		}},
		{"to another gateway", func(s *model.State) {
			s.Networks[0].Subnets = []model.Subnet{
				{Prefix: netip.MustParsePrefix("172.30.0.0/24"), Address: netip.MustParseAddr("172.30.0.254")},
				{Prefix: netip.MustParsePrefix("fd00:30::/64"), Address: netip.MustParseAddr("fd00:30::fe")}}
		}},
		{"to a wider subnet", func(s *model.State) {
			s.Networks[0].Subnets = []model.Subnet{{Prefix: netip.MustParsePrefix("172.30.0.0/16")},
				{Prefix: netip.MustParsePrefix("fd00:30::/48")}}
		}},
	} {
		for _, d := range []model.Driver{model.DriverBridge, model.DriverRouted} {
			t.Run(string(d)+" "+move.name, func(t *testing.T) {
				w := worlds(t)
				before := snapshot(t, w)
				s := dual(t, w, d, "web", "spare")
				for i, via := range modes {
					for _, proto := range protos {
						publish(&s, "web", via, proto, 8000+uint16(i), 80)
					}
				}
				mustSet(t, w, s)
				move.change(&s)
				mustSet(t, w, s)
				undrifted(t, w)
				serve(t, in(w, "web"), "web", ":80")
				want := "web"
				if s.Endpoints[0].Sandbox != mustSandbox(t, w, "web") {
					want = "spare"
					serve(t, in(w, "spare"), "spare", ":80")
				}
				for i := range modes {
					for _, proto := range protos {
						for _, addr := range server(8000 + i) {
							hears(t, w.DoClient, proto, addr, want)
						}
					}
				}
				if err := w.Engine.TearDown(context.Background()); err != nil {
					t.Fatal(err)
				}
				unchanged(t, w, before)
				for _, box := range []string{"web", "spare"} {
					if out := sh(t, in(w, box), "ip -o link | grep -v ': lo:'; ip route; true"); out != "" {
						t.Errorf("left in the sandbox %s:\n%s", box, out)
					}
				}
			})
		}
	}
}

func mustSandbox(t testing.TB, w *topology.World, name string) string {
	t.Helper()
	path, err := w.Sandbox(name)
	if err != nil {
		t.Fatal(err)
	}
	return path
}

func TestSettingsAreRestoredUnlessChangedByOthers(t *testing.T) {
	const forward, filter = "net.ipv4.ip_forward", "net.bridge.bridge-nf-call-iptables"
	for _, c := range []struct {
		name              string
		before, meanwhile string
		wantForward       string
		wantFilter        string
	}{
		{"unchanged", "true", "true", "0", "1"},
		{"already set before", "sysctl -qw " + forward + "=1 " + filter + "=0", "true", "1", "0"},
		{"changed meanwhile", "true", "sysctl -qw " + forward + "=0 " + filter + "=1", "0", "1"},
	} {
		t.Run(c.name, func(t *testing.T) {
			w := world(t)
			onServer(t, w, c.before)
			s := dual(t, w, model.DriverBridge, "web")
			s.Networks[0].Filter = model.FilterOff
			mustSet(t, w, s)
			if got := onServer(t, w, "sysctl -n "+forward+" "+filter); got != "1\n0\n" {
				t.Fatalf("while the network exists: %q", got)
			}
			onServer(t, w, c.meanwhile)
			mustSet(t, w, model.State{})
			if got := onServer(t, w, "sysctl -n "+forward+" "+filter); got != c.wantForward+"\n"+c.wantFilter+"\n" {
				t.Errorf("afterwards: %q, want %s and %s", got, c.wantForward, c.wantFilter)
			}
		})
	}
	t.Run("of a link that stays", func(t *testing.T) {
		w := world(t)
		s := dual(t, w, model.DriverBridge, "web")
		publish(&s, "web", model.ViaNAT, model.TCP, 8080, 80)
		mustSet(t, w, s)
		s.Publishes = nil
		mustSet(t, w, s)
		if got := onServer(t, w, "sysctl -n net.ipv4.conf.fl-net.route_localnet"); got != "0\n" {
			t.Errorf("route_localnet without a publish: %s", got)
		}
	})
}

// TestSocketsOfTheProxyTakeOverPortsFromEBPF changes the publish mode of a port.
// While the proxy binds the port, the bind hooks still refuse it to all others.
func TestSocketsOfTheProxyTakeOverPortsFromEBPF(t *testing.T) {
	w := world(t)
	s := dual(t, w, model.DriverBridge, "web")
	mustSet(t, w, s)
	serve(t, in(w, "web"), "web", ":80")
	for _, via := range []model.Via{model.ViaEBPF, model.ViaProxy, model.ViaEBPF, model.ViaNAT} {
		next := s
		for _, proto := range protos {
			publish(&next, "web", via, proto, 8080, 80)
		}
		mustSet(t, w, next)
		for _, proto := range protos {
			for _, addr := range server(8080) {
				if got, err := dial(t, w.DoClient, proto, addr).ask(); err != nil || got != "web" {
					t.Errorf("%s: %s/%s answers %q, %v", via, addr, proto, got, err)
				}
			}
		}
		undrifted(t, w)
	}
}
