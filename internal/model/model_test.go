package model_test

import (
	"errors"
	"net/netip"
	"strings"
	"testing"

	"fairlead/internal/model"
)

var (
	addr   = netip.MustParseAddr
	subnet = func(s string) model.Subnet { return model.Subnet{Prefix: netip.MustParsePrefix(s)} }
)

// good returns a valid state.
func good() model.State {
	return model.State{
		Networks: []model.Network{{Name: "net", Driver: model.DriverBridge,
			Subnets: []model.Subnet{subnet("172.30.0.0/24"), subnet("fd00:30::/64")}},
			{Name: "host", Driver: model.DriverHost}},
		Endpoints: []model.Endpoint{{Name: "web", Network: "net", Sandbox: "/run/netns/web"},
			{Name: "app", Network: "net", Sandbox: "/run/netns/app"},
			{Name: "bare", Network: "host"}},
		Publishes: []model.Publish{{Endpoint: "web", Via: model.ViaNAT, Proto: model.TCP, HostPorts: model.Port(8080),
			Ports: model.Port(80)}},
	}
}

func TestValidate(t *testing.T) {
	if err := good().Validate(); err != nil {
		t.Fatalf("a valid state is refused: %v", err)
	}
	for _, c := range []struct {
		name   string
		change func(*model.State)
		want   string // part of the error
	}{
		{"network without a name", func(s *model.State) { s.Networks[0].Name = "" }, "needs a name"},
		{"name of many bytes", func(s *model.State) { s.Networks[0].Name = strings.Repeat("x", 129) }, "at most 128"},
		{"name of two lines", func(s *model.State) { s.Endpoints[0].Name = "a\nb" }, "control characters"},
		{"two networks with one name", func(s *model.State) { s.Networks[1].Name = "net" },
			"network net: this name is used twice"},
		{"two endpoints with one name", func(s *model.State) { s.Endpoints[1].Name = "web" },
			"endpoint web: this name is used twice"},
		{"tiny mtu", func(s *model.State) { s.Networks[0].MTU = 67 }, "mtu 67"},
		{"mtu too small for IPv6", func(s *model.State) { s.Networks[0].MTU = 1279 }, "IPv6 needs 1280"},
		{"unknown filter", func(s *model.State) { s.Networks[0].Filter = "maybe" }, `filter "maybe"`},
		{"two subnets of a family", func(s *model.State) { s.Networks[0].Subnets[1] = subnet("172.31.0.0/24") },
			"one subnet per address family"},
		{"subnet without a prefix", func(s *model.State) { s.Networks[0].Subnets[0] = model.Subnet{} },
			"want an address and a prefix length"},
		{"subnet without room", func(s *model.State) { s.Networks[0].Subnets[0] = subnet("172.30.0.0/31") }, "no room"},
		{"mapped subnet", func(s *model.State) { s.Networks[0].Subnets[0] = subnet("::ffff:172.30.0.0/120") },
			"in IPv4 notation"},
		{"gateway outside", func(s *model.State) { s.Networks[0].Subnets[0].Gateway = addr("172.31.0.1") },
			"172.31.0.1 is outside"},
		{"host's address is broadcast",
			func(s *model.State) { s.Networks[0].Subnets[0].Address = addr("172.30.0.255") }, "broadcast address of"},
		{"subnets overlap", func(s *model.State) {
			s.Networks = append(s.Networks, model.Network{Name: "other", Driver: model.DriverRouted,
				Subnets: []model.Subnet{subnet("172.30.0.128/25")}})
		}, "subnet 172.30.0.128/25 overlaps 172.30.0.0/24 of network net"},
		{"no such network", func(s *model.State) { s.Endpoints[0].Network = "nit" },
			`there is no network "nit": add it, or name one of [net, host]`},
		{"bridge without a sandbox", func(s *model.State) { s.Endpoints[0].Sandbox = "" },
			"needs the path of a network namespace"},
		{"host with a sandbox", func(s *model.State) { s.Endpoints[2].Sandbox = "/run/netns/bare" }, "host takes none"},
		{"relative sandbox", func(s *model.State) { s.Endpoints[0].Sandbox = "web" }, "absolute path"},
		{"long interface", func(s *model.State) { s.Endpoints[0].Interface = "averyverylonginterface" }, "at most 15"},
		{"interface with a dot", func(s *model.State) { s.Endpoints[0].Interface = "eth0.1" }, "without dot"},
		{"interface lo", func(s *model.State) { s.Endpoints[0].Interface = "lo" }, "not lo"},
		{"one interface for two", func(s *model.State) { s.Endpoints[1].Sandbox = "/run/netns/web" },
			"interface eth0 of sandbox /run/netns/web already belongs"},
		{"address outside", func(s *model.State) { s.Endpoints[0].Addresses = []netip.Addr{addr("10.0.0.1")} },
			"in no subnet of network net"},
		{"address of the gateway", func(s *model.State) { s.Endpoints[0].Addresses = []netip.Addr{addr("172.30.0.1")} },
			"is the gateway's"},
		{"address of the subnet", func(s *model.State) { s.Endpoints[0].Addresses = []netip.Addr{addr("172.30.0.0")} },
			"broadcast address of"},
		{"two addresses of a family", func(s *model.State) {
			s.Endpoints[0].Addresses = []netip.Addr{addr("172.30.0.5"), addr("172.30.0.6")}
		}, "one address per family"},
		{"address taken", func(s *model.State) {
			s.Endpoints[0].Addresses, s.Endpoints[1].Addresses = []netip.Addr{addr("172.30.0.5")},
				[]netip.Addr{addr("172.30.0.5")}
		}, "address 172.30.0.5 already belongs to endpoint"},
		{"range outside the subnet",
			func(s *model.State) { s.Networks[0].Subnets[0].Range = netip.MustParsePrefix("10.0.0.0/25") },
			"a part of the subnet"},
		{"range wider than the subnet",
			func(s *model.State) { s.Networks[0].Subnets[0].Range = netip.MustParsePrefix("172.30.0.0/16") },
			"a part of the subnet"},
		{"vlan too large", func(s *model.State) { s.Networks[0].VLAN = 4095 }, "want 1 to 4094"},
		{"prefix beside subnets",
			func(s *model.State) { s.Endpoints[0].Prefixes = []netip.Prefix{netip.MustParsePrefix("10.0.0.5/24")} },
			"without a prefix length"},
		{"two prefixes of a family", func(s *model.State) {
			s.Networks[0].Subnets = nil
			s.Endpoints[0].Prefixes = []netip.Prefix{netip.MustParsePrefix("10.0.0.5/24"),
				netip.MustParsePrefix("10.0.0.6/24")}
		}, "one address per family"},
		{"two gateways of a family", func(s *model.State) {
			s.Endpoints[0].Gateways = []netip.Addr{addr("10.0.0.1"),
				addr("10.0.0.2")}
		}, "one per address family"},
		{"route of two families", func(s *model.State) {
			s.Endpoints[0].Routes = []model.Route{{To: netip.MustParsePrefix("10.0.0.0/8"), Via: addr("fd00:30::1")}}
		}, "both of the same address family"},
		{"route to a host's address",
			func(s *model.State) { s.Endpoints[0].Routes = []model.Route{{To: netip.MustParsePrefix("10.0.0.1/8")}} },
			"want an address range"},
		{"multicast mac", func(s *model.State) { s.Endpoints[0].MAC = "01:00:5e:00:00:01" }, "unicast"},
		{"mac of five bytes", func(s *model.State) { s.Endpoints[0].MAC = "02:00:00:00:01" }, "six bytes"},
		{"tiny limit", func(s *model.State) { s.Endpoints[0].Limit.In = 1000 }, "limit in 1000 bit/s"},
		{"cgroup of a sandbox", func(s *model.State) { s.Endpoints[0].Cgroup = "/sys/fs/cgroup/web" },
			"only endpoints of driver host"},
		{"relative cgroup", func(s *model.State) { s.Endpoints[2].Cgroup = "system.slice/web" }, "absolute path"},
		{"unknown policy", func(s *model.State) {
			s.Endpoints[2].Cgroup, s.Endpoints[2].Unpublished = "/sys/fs/cgroup/web", "maybe"
		}, "want loopback, deny or allow"},
		{"policy without a cgroup", func(s *model.State) { s.Endpoints[2].Unpublished = model.UnpublishedDeny },
			"only endpoints with a cgroup"},
		{"cgroup in a cgroup", func(s *model.State) {
			s.Endpoints[2].Cgroup = "/sys/fs/cgroup/web"
			s.Endpoints = append(s.Endpoints, model.Endpoint{Name: "inner", Network: "host",
				Cgroup: "/sys/fs/cgroup/web/inner"})
		}, "is the cgroup of endpoint bare or below it"},
		{"container port published twice", func(s *model.State) {
			s.Endpoints[2].Cgroup = "/sys/fs/cgroup/web"
			for _, port := range []uint16{9001, 9002} {
				s.Publishes = append(s.Publishes, model.Publish{Endpoint: "bare", Via: model.ViaSocket,
					Proto: model.TCP, HostPorts: model.Port(port), Ports: model.Port(80)})
			}
		}, "port 80 is already published (9001/tcp -> bare:80 via socket)"},
		{"no such endpoint", func(s *model.State) { s.Publishes[0].Endpoint = "wob" }, `there is no endpoint "wob"`},
		{"internal network", func(s *model.State) { s.Networks[0].Internal = true },
			"its endpoints cannot be published"},
		{"unknown protocol", func(s *model.State) { s.Publishes[0].Proto = "sctp" }, `protocol "sctp"`},
		{"port 0", func(s *model.State) { s.Publishes[0].HostPorts = model.Port(0) }, "want 1 to 65535"},
		{"backward range", func(s *model.State) { s.Publishes[0].HostPorts = model.PortRange{First: 9, Last: 8} },
			"no greater than the last"},
		{"ranges of different length", func(s *model.State) {
			s.Publishes[0].Ports = model.PortRange{First: 80,
				Last: 81}
		}, "both ranges must have the same length"},
		{"PROXY 3", func(s *model.State) { s.Publishes[0].ProxyProtocol = 3 }, "version 3"},
		{"mapped host address", func(s *model.State) { s.Publishes[0].HostAddr = addr("::ffff:127.0.0.1") },
			"IPv4 notation"},
		{"host address with a zone", func(s *model.State) { s.Publishes[0].HostAddr = addr("fe80::1%eth0") },
			"without a zone"},
	} {
		t.Run(c.name, func(t *testing.T) {
			s := good()
			c.change(&s)
			if err := s.Validate(); err == nil || !strings.Contains(err.Error(), c.want) {
				t.Errorf("got %v, want an error about %q", err, c.want)
			}
		})
	}
}

func TestValidateReportsEveryMistake(t *testing.T) {
	s := good()
	s.Networks[0].MTU, s.Endpoints[1].Network, s.Publishes[0].Proto = 1, "nit", "sctp"
	for _, want := range []string{"network net: mtu 1", "endpoint app: there is no network",
		`publish 8080/sctp -> web:80 via nat: protocol "sctp"`} {
		if err := s.Validate(); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%q is missing in: %v", want, err)
		}
	}
}

func TestCollisions(t *testing.T) {
	for _, c := range []struct {
		name     string
		at, with string // host addresses; empty is any
		proto    model.Proto
		ports    model.PortRange
		want     bool
	}{
		{"the same", "", "", model.TCP, model.Port(8080), true},
		{"another protocol", "", "", model.UDP, model.Port(8080), false},
		{"another port", "", "", model.TCP, model.Port(8081), false},
		{"a range around it", "", "", model.TCP, model.PortRange{First: 8000, Last: 8100}, true},
		{"any and one address", "", "192.0.2.1", model.TCP, model.Port(8080), true},
		{"any and every IPv6", "", "::", model.TCP, model.Port(8080), true},
		{"every IPv4 and every IPv6", "0.0.0.0", "::", model.TCP, model.Port(8080), false},
		{"every IPv4 and one of them", "0.0.0.0", "127.0.0.1", model.TCP, model.Port(8080), true},
		{"every IPv4 and an IPv6", "0.0.0.0", "::1", model.TCP, model.Port(8080), false},
		{"two addresses", "192.0.2.1", "192.0.2.2", model.TCP, model.Port(8080), false},
	} {
		t.Run(c.name, func(t *testing.T) {
			s := good()
			other := model.Publish{Endpoint: "app", Via: model.ViaProxy, Proto: c.proto, HostPorts: c.ports,
				Ports: c.ports}
			if c.at != "" {
				s.Publishes[0].HostAddr = addr(c.at)
			}
			if c.with != "" {
				other.HostAddr = addr(c.with)
			}
			s.Publishes = append(s.Publishes, other)
			err := s.Validate()
			var taken *model.PortTakenError
			if got := errors.As(err, &taken); got != c.want {
				t.Errorf("collision %v, want %v: %v", got, c.want, err)
			}
			if other.Collides(s.Publishes[0]) != s.Publishes[0].Collides(other) {
				t.Error("Collides gives another result in the other direction")
			}
			if c.want && (taken.Publish.String() != other.String() ||
				!strings.Contains(taken.Error(), "taken by endpoint web")) {
				t.Errorf("the error does not name the publish and its owner: %v", taken)
			}
		})
	}
}

func TestParsePortRange(t *testing.T) {
	for in, want := range map[string]model.PortRange{"80": model.Port(80), "8000-8100": {First: 8000, Last: 8100},
		"1-65535": {First: 1, Last: 65535}, "7-7": model.Port(7)} {
		got, err := model.ParsePortRange(in)
		if err != nil || got != want {
			t.Errorf("%q: %v, %v", in, got, err)
		}
		if back, err := model.ParsePortRange(got.String()); err != nil || back != got {
			t.Errorf("%q is written as %q", in, got)
		}
	}
	for _, in := range []string{"", "0", "65536", "9-8", "-", "80-", "-80", "http", "80-90-100", "0x50"} {
		if got, err := model.ParsePortRange(in); err == nil {
			t.Errorf("%q is parsed as %v, want an error", in, got)
		}
	}
}
