package ports_test

import (
	"fmt"
	"net/netip"
	"strings"
	"testing"

	"fairlead/internal/api"
	"fairlead/internal/explain/facts"
	"fairlead/internal/explain/ports"
	"fairlead/internal/kernel/inspect"
	"fairlead/internal/kernel/rules"
	"fairlead/internal/kernel/sockdiag"
	"fairlead/internal/model"
	"fairlead/internal/plan"
	"fairlead/internal/sandbox"

	"github.com/google/go-cmp/cmp"
)

// host returns a host with an uplink and Docker's bridge. saved are its rules in
// the format of iptables-save.
func host(saved string, listeners ...facts.Listener) facts.Facts {
	return facts.Facts{
		Listeners: listeners,
		Rules:     rules.Saved("ip", saved),
		Links: []inspect.InsideLink{
			{Name: "lo", Kind: "loopback", Up: true},
			{Name: "eth0", Up: true, Addresses: []netip.Prefix{netip.MustParsePrefix("192.0.2.10/24"),
				netip.MustParsePrefix("2001:db8::10/64")}},
			{Name: "docker0", Kind: "bridge", Up: true,
				Addresses: []netip.Prefix{netip.MustParsePrefix("172.17.0.1/16")}},
		},
		Routes: []inspect.InsideRoute{{To: netip.MustParsePrefix("0.0.0.0/0"), Link: "eth0"}},
		Containers: []sandbox.Listed{{ID: "0123456789ab", Name: "web",
			Networks: []sandbox.OnNetwork{{Name: "bridge",
				Addresses: []netip.Addr{netip.MustParseAddr("172.17.0.2")}}}}},
	}
}

func listener(at, command string, pid int, args ...string) facts.Listener {
	l := facts.Listener{Args: append([]string{command}, args...)}
	l.Proto, l.At, l.Process = model.TCP, netip.MustParseAddrPort(at), sockdiag.Owner{PID: pid, Command: command}
	return l
}

// lines writes the fields that tests compare.
func lines(all []ports.Port) []string {
	var out []string
	for _, p := range all {
		var addresses, modes []string
		for _, a := range p.Addresses {
			addresses = append(addresses, a.String())
		}
		for _, w := range p.Modes {
			modes = append(modes, string(w))
		}
		owner := "-"
		if p.Container != nil {
			owner = p.Container.Name
		} else if p.Process != nil {
			owner = p.Process.Command
		}
		out = append(out, fmt.Sprintf("%s %s/%s %s via %s: loopback %s, host %s, containers %s, LAN %s, firewall %s",
			strings.Join(addresses, ","), p.Ports, p.Proto, owner, strings.Join(modes, " + "),
			p.Reach.Loopback, p.Reach.Host, p.Reach.Containers, p.Reach.LAN, p.Reach.Firewall))
	}
	return out
}

// TestListWithoutDaemon: the sandboxes of the last daemon's attachments still run, have
// ended, or are unknown.
func TestListWithoutDaemon(t *testing.T) {
	f := host("", listener("0.0.0.0:8082", "fairlead-proxy", 1))
	f.EBPFMappings = []plan.EBPFMapping{{Proto: model.TCP, Host: netip.IPv4Unspecified(), Ports: model.Port(8081),
		To: netip.MustParseAddr("172.30.0.2"), ToPorts: model.Port(80)}}
	published := func(name, addr string, via model.Via, port uint16, status api.Status) api.View {
		return api.View{Attachment: model.Attachment{Endpoint: model.Endpoint{Name: name,
			Addresses: []netip.Addr{netip.MustParseAddr(addr)}}}, Status: status,
			Publishes: []api.PublishedView{{Publish: model.Publish{Via: via, Proto: model.TCP,
				HostPorts: model.Port(port), Ports: model.Port(80)}}}}
	}
	views := func(status api.Status) []api.View {
		return []api.View{published("a", "172.30.0.2", model.ViaEBPF, 8081, status),
			published("b", "172.30.0.3", model.ViaProxy, 8082, status)}
	}
	for _, c := range []struct {
		what, answer string
		known        []api.View
	}{
		{"live", "yes", views(api.NoDaemon)}, {"ended", "no", views(api.Ended)}, {"unknown", "maybe", nil},
		{"another has the address now", "yes", append(views(api.Ended), views(api.NoDaemon)...)},
		{"another had the address", "yes", append(views(api.NoDaemon), views(api.Ended)...)},
	} {
		all := ports.List(f, c.known, nil)
		if len(all) != 2 {
			t.Fatalf("%s: %v", c.what, lines(all))
		}
		for _, p := range all {
			r := p.Reach
			if got := fmt.Sprint(r.Loopback, r.Host, r.Containers,
				r.LAN); got != strings.TrimSpace(strings.Repeat(c.answer+" ", 4)) || p.Ended != (c.answer == "no") {
				t.Errorf("%s: port %s is reached from loopback, host, containers, LAN: %s; ended: %t", c.what, p.Ports,
					got, p.Ended)
			}
		}
	}
}

// TestOwnersOfProxiedPorts checks that a port of Fairlead's proxy has the target and the engine's names, also if the
// container has addresses of one family only.
func TestOwnersOfProxiedPorts(t *testing.T) {
	for _, addr := range []string{"172.30.0.3", "fd00:30::3"} {
		f := host("", listener("[::]:8082", "fairlead-proxy", 1))
		to := netip.MustParseAddr(addr)
		f.Containers = append(f.Containers, sandbox.Listed{ID: "fedcba987654", Name: "shop",
			Networks: []sandbox.OnNetwork{{Name: "front", Addresses: []netip.Addr{to}}}})
		known := []api.View{{Attachment: model.Attachment{Origin: model.FromDocker, Ref: "docker:1b6b",
			Endpoint: model.Endpoint{Name: "docker-1b6b", Network: "docker-77aa", Addresses: []netip.Addr{to}}},
			Publishes: []api.PublishedView{{Publish: model.Publish{Via: model.ViaProxy, Proto: model.TCP,
				HostPorts: model.Port(8082), Ports: model.Port(80)}}}}}
		all := ports.List(f, known, nil)
		if len(all) != 1 || all[0].Container == nil || all[0].Container.Name != "shop" || all[0].Network != "front" ||
			all[0].To != to || all[0].ToPorts != model.Port(80) {
			t.Errorf("%s: %+v", addr, all)
		}
	}
}

func TestList(t *testing.T) {
	proxy := []string{"-proto", "tcp", "-host-ip", "0.0.0.0", "-host-port", "8080", "-container-ip", "172.17.0.2",
		"-container-port", "80"}
	for name, c := range map[string]struct {
		facts facts.Facts
		want  []string
	}{
		"two sockets of one program are one port, sockets of two programs are two": {
			host("", listener("0.0.0.0:80", "nginx", 1), listener("[::]:80", "nginx", 1),
				listener("127.0.0.1:81", "a", 2), listener("[::1]:81", "b", 3)),
			[]string{
				"0.0.0.0,:: 80/tcp nginx via host: loopback yes, host yes, containers yes, LAN yes, firewall none",
				"127.0.0.1 81/tcp a via host: loopback yes, host no, containers no, LAN no, firewall ",
				"::1 81/tcp b via host: loopback yes, host no, containers no, LAN no, firewall ",
			},
		},
		"adjacent ports are a range": {
			host("", listener("0.0.0.0:80", "nginx", 1), listener("0.0.0.0:81", "nginx", 1),
				listener("0.0.0.0:83", "nginx", 1)),
			[]string{
				"0.0.0.0 80-81/tcp nginx via host: loopback yes, host yes, containers yes, LAN yes, firewall none",
				"0.0.0.0 83/tcp nginx via host: loopback yes, host yes, containers yes, LAN yes, firewall none",
			},
		},
		"a firewall that depends on the client": {
			host("*filter\n:INPUT DROP [0:0]\n-A INPUT -i lo -j ACCEPT\n-A INPUT -s 198.51.100.0/24 -p tcp -m tcp --dport 22 -j ACCEPT\n-A INPUT -p tcp -m tcp --dport 80 -j ACCEPT\nCOMMIT\n",
				listener("192.0.2.10:22", "sshd", 1), listener("0.0.0.0:80", "nginx", 2),
				listener("0.0.0.0:81", "other", 3)),
			[]string{
				"192.0.2.10 22/tcp sshd via host: loopback no, host yes, containers no, LAN maybe, firewall depends",
				"0.0.0.0 80/tcp nginx via host: loopback yes, host yes, containers yes, LAN yes, firewall lets in",
				"0.0.0.0 81/tcp other via host: loopback yes, host yes, containers no, LAN no, firewall drops",
			},
		},
		"docker-proxy without its NAT rule is a mode": {
			host("", listener("0.0.0.0:8080", "docker-proxy", 1, proxy...)),
			[]string{"0.0.0.0 8080/tcp web via docker-proxy: loopback yes, host yes, containers yes, LAN yes, firewall none"},
		},
		"a NAT rule of another program takes some packets, a socket the others": {
			host("*nat\n:PREROUTING ACCEPT [0:0]\n-A PREROUTING -p tcp -m tcp --dport 8080 -j DNAT --to-destination 172.17.0.2:80\nCOMMIT\n", listener("0.0.0.0:8080", "other", 1)),
			[]string{
				"0.0.0.0 8080/tcp web via other nat: loopback no, host no, containers yes, LAN yes, firewall none",
				"0.0.0.0 8080/tcp other via host: loopback yes, host yes, containers yes, LAN yes, firewall none",
			},
		},
		"rules for addresses of other hosts are not ports of this host": {
			host("*nat\n:PREROUTING ACCEPT [0:0]\n-A PREROUTING -d 10.96.0.1/32 -p tcp -m tcp --dport 443 -j DNAT --to-destination 172.17.0.2:6443\nCOMMIT\n"),
			nil,
		},
	} {
		t.Run(name, func(t *testing.T) {
			if diff := cmp.Diff(c.want, lines(ports.List(c.facts, nil, nil))); diff != "" {
				t.Errorf("ports (-want +got):\n%s", diff)
			}
		})
	}
}

// TestLongestPrefix checks that a translated packet leaves by the most specific route.
func TestLongestPrefix(t *testing.T) {
	f := host("*nat\n:PREROUTING ACCEPT [0:0]\n-A PREROUTING -p tcp -m tcp --dport 8080 -j DNAT --to-destination 10.1.0.2:80\nCOMMIT\n" +
		"*filter\n:FORWARD DROP [0:0]\n-A FORWARD -o docker0 -j ACCEPT\nCOMMIT\n")
	f.Routes = append(f.Routes, inspect.InsideRoute{To: netip.MustParsePrefix("10.0.0.0/8"), Link: "eth0"},
		inspect.InsideRoute{To: netip.MustParsePrefix("10.1.0.0/16"), Link: "docker0"})
	want := []string{"0.0.0.0 8080/tcp - via other nat: loopback no, host no, containers yes, LAN yes, firewall none"}
	if diff := cmp.Diff(want, lines(ports.List(f, nil, nil))); diff != "" {
		t.Errorf("ports (-want +got):\n%s", diff)
	}
}
