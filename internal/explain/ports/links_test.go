package ports_test

import (
	"net/netip"
	"slices"
	"testing"

	"fairlead/internal/explain/facts"
	"fairlead/internal/explain/ports"
	"fairlead/internal/kernel/inspect"

	"github.com/google/go-cmp/cmp"
)

// dnat translates port 8080 to a container behind docker0.
const dnat = "*nat\n:PREROUTING ACCEPT [0:0]\n" +
	"-A PREROUTING -p tcp -m tcp --dport 8080 -j DNAT --to-destination 172.17.0.2:80\nCOMMIT\n"

// TestSocketsOfLinks: a socket that is bound to a link is reached only via it.
func TestSocketsOfLinks(t *testing.T) {
	bound := func(link string, port string, pid int) facts.Listener {
		l := listener("0.0.0.0:"+port, "server", pid)
		l.Link = link
		return l
	}
	got := lines(ports.List(host("", bound("eth0", "81", 1), bound("docker0", "82", 1), bound("lo", "83", 1),
		bound("eth0", "84", 2), bound("docker0", "84", 2)), nil, nil))
	want := []string{
		"0.0.0.0 81/tcp server via host: loopback no, host yes, containers no, LAN yes, firewall none",
		"0.0.0.0 82/tcp server via host: loopback no, host no, containers yes, LAN no, firewall none",
		"0.0.0.0 83/tcp server via host: loopback yes, host no, containers no, LAN no, firewall none",
		"0.0.0.0 84/tcp server via host: loopback no, host yes, containers no, LAN yes, firewall none",
		"0.0.0.0 84/tcp server via host: loopback no, host no, containers yes, LAN no, firewall none",
	}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("ports (-want +got):\n%s", diff)
	}
}

// TestLinksThatDoNotForward: translated packets and their answers need the forwarding of
// the links on which they arrive.
func TestLinksThatDoNotForward(t *testing.T) {
	for off, want := range map[string]string{
		"":        "containers yes, LAN yes",
		"eth0":    "containers yes, LAN no",
		"docker0": "containers no, LAN no",
	} {
		f := host(dnat)
		f.Settings = map[string]string{facts.Forwarding("eth0", true): "1", facts.Forwarding("docker0", true): "1"}
		if off != "" {
			f.Settings[facts.Forwarding(off, true)] = "0"
		}
		got := lines(ports.List(f, nil, nil))
		line := "0.0.0.0 8080/tcp web via other nat: loopback no, host no, " + want + ", firewall none"
		if !slices.Equal(got, []string{line}) {
			t.Errorf("without forwarding on %q: got %q, want %q", off, got, line)
		}
	}
}

// TestMostSpecificRoute: the rules see the link of the most specific route, in any order.
func TestMostSpecificRoute(t *testing.T) {
	const filter = "*filter\n:FORWARD ACCEPT [0:0]\n-A FORWARD -o vpn0 -j DROP\nCOMMIT\n"
	wide := inspect.InsideRoute{To: netip.MustParsePrefix("172.16.0.0/12"), Link: "vpn0"}
	narrow := inspect.InsideRoute{To: netip.MustParsePrefix("172.17.0.2/32"), Link: "docker0"}
	for _, more := range [][]inspect.InsideRoute{{wide}, {wide, narrow}, {narrow, wide}} {
		f := host(dnat + filter)
		f.Routes = append(more, f.Routes...)
		if got := ports.List(f, nil, nil); len(got) != 1 || got[0].Reach.LAN.String() != "yes" {
			t.Errorf("with the routes %v: %v, want the LAN to reach it via docker0", more, lines(got))
		}
		f.Routes = append([]inspect.InsideRoute{{To: netip.MustParsePrefix("172.17.0.0/24"), Link: "vpn0"}},
			f.Routes...)
		want := map[bool]string{true: "no", false: "yes"}[len(more) == 1]
		if got := ports.List(f, nil, nil); got[0].Reach.LAN.String() != want {
			t.Errorf("with a longer prefix via vpn0 and %v: %v, want %s", more, lines(got), want)
		}
	}
}

// TestUnreadRules: without the rules, nothing that they could prevent is certain.
func TestUnreadRules(t *testing.T) {
	f := host("", listener("0.0.0.0:80", "nginx", 1))
	f.RulesUnread = true
	const want = "0.0.0.0 80/tcp nginx via host: loopback maybe, host maybe, containers maybe, LAN maybe, firewall unknown"
	if got := lines(ports.List(f, nil, nil)); !slices.Equal(got, []string{want}) {
		t.Errorf("got %q, want %q", got, want)
	}
}
