package engine_test

import (
	"context"
	"fmt"
	"os"
	"strings"
	"testing"

	"fairlead/internal/kernel/kerneltest"
	"fairlead/internal/lab/topology"
	"fairlead/internal/model"
	"fairlead/test/place"
)

// routed makes the server host get its IPv6 default route and an address from a router
// at the wire: the client host.
func routed(t *testing.T, w *topology.World) {
	t.Helper()
	onServer(t, w, "sysctl -qw net.ipv6.conf.all.forwarding=0 net.ipv6.conf."+topology.Wire+".accept_ra=1")
	place.AwaitRouter(t, w.DoClient, topology.Wire, w.DoServer, "ip -6 route show default | grep -q 'proto ra' && "+
		"ip -6 addr show dev "+topology.Wire+" -tentative | grep -q 2001:db8:bad")
}

// reachable returns how the server host reaches others and is reached: its routes and
// addresses without their lifetimes, and what it accepts.
func reachable(t *testing.T, w *topology.World) string {
	t.Helper()
	return onServer(t, w, "(ip -4 route; ip -6 route) | grep -v -e 172.30.0 -e fd00:30 -e 'dev f[lv]-' | "+
		"sed 's/ expires [0-9]*sec//; s/ mtu 1280//' | sort; "+
		"ip -o addr | grep -v ' f[lv]-' | sed 's/^[0-9]*: //; s/valid_lft.*//; s/ tentative//' | sort; "+
		"sysctl net.ipv6.conf.all.forwarding net.ipv4.ip_forward net.ipv4.conf.all.accept_redirects "+
		"net.ipv6.conf."+topology.Wire+".accept_ra net.ipv4.conf.default.forwarding net.ipv6.conf.default.forwarding")
}

// withoutSettings leaves out the values of sysctls.
func withoutSettings(s string) string {
	var kept []string
	for line := range strings.Lines(s) {
		if !strings.HasPrefix(line, "net.") {
			kept = append(kept, line)
		}
	}
	return strings.Join(kept, "")
}

// TestHostKeepsItsRouter turns on IPv6 forwarding on a host whose default route is from
// router advertisements.
func TestHostKeepsItsRouter(t *testing.T) {
	w := world(t)
	routed(t, w)
	before := reachable(t, w)
	full := mustSet(t, w, dual(t, w, model.DriverBridge, "web"))
	if now := withoutSettings(reachable(t, w)); now != withoutSettings(before) {
		t.Errorf("the network changes how the host is reached, from\n%s\nto\n%s", withoutSettings(before), now)
	}
	undrifted(t, w)
	// The host still follows its router.
	onServer(t, w, "ip -6 route del default")
	place.AwaitRouter(t, w.DoClient, topology.Wire, w.DoServer, "ip -6 route show default | grep -q 'proto ra'")
	mustSet(t, w, full)
	if err := w.Engine.TearDown(context.Background()); err != nil {
		t.Fatal(err)
	}
	if now := reachable(t, w); now != before {
		t.Errorf("after the end the host is reached differently, before\n%s\nnow\n%s", before, now)
	}
}

// TestRouterAdvertisementsTurnedOff leaves a link alone whose administrator has turned
// off router advertisements meanwhile.
func TestRouterAdvertisementsTurnedOff(t *testing.T) {
	w := world(t)
	routed(t, w)
	s := mustSet(t, w, dual(t, w, model.DriverBridge, "web"))
	setting := "net.ipv6.conf." + topology.Wire + ".accept_ra"
	if is := onServer(t, w, "sysctl -n "+setting); strings.TrimSpace(is) != "2" {
		t.Fatalf("%s is %s", setting, is)
	}
	onServer(t, w, "sysctl -qw "+setting+"=0")
	if changed, err := w.Engine.FactsChanged(s); err != nil || !changed {
		t.Errorf("the change is not noticed: %v", err)
	}
	undrifted(t, w)
	mustSet(t, w, s)
	if err := w.Engine.TearDown(context.Background()); err != nil {
		t.Fatal(err)
	}
	if is := onServer(t, w, "sysctl -n "+setting); strings.TrimSpace(is) != "0" {
		t.Errorf("%s is %s", setting, is)
	}
}

// TestNewLinkKeepsItsRouter adds a macvlan on an uplink, with a dot in its name, while the
// host forwards, and removes it.
func TestNewLinkKeepsItsRouter(t *testing.T) {
	w := world(t)
	routed(t, w)
	s := mustSet(t, w, dual(t, w, model.DriverBridge, "web"))
	for _, c := range []struct{ command, want string }{
		{"ip link add link " + topology.Wire + " name eth0.7 type macvlan mode bridge", "2"},
		{"ip link del eth0.7", ""},
	} {
		onServer(t, w, c.command)
		if changed, err := w.Engine.FactsChanged(s); err != nil || !changed {
			t.Fatalf("%s is not noticed: %v", c.command, err)
		}
		mustSet(t, w, s)
		is := onServer(t, w, "cat /proc/sys/net/ipv6/conf/eth0.7/accept_ra 2>/dev/null || true")
		if strings.TrimSpace(is) != c.want {
			t.Errorf("%s: accept_ra is %q, want %q", c.command, is, c.want)
		}
		undrifted(t, w)
		mustSet(t, w, s)
	}
}

// TestLinksOfOthersGetNoRouter adds links to a sandbox of another program, before and
// after Fairlead makes the host forward: a veth, and a bridge with a veth. Advertisements
// of the sandbox must not change the host.
func TestLinksOfOthersGetNoRouter(t *testing.T) {
	w := world(t)
	routed(t, w)
	other := kerneltest.Netns(t)
	add := func(link, peer string) {
		onServer(t, w, fmt.Sprintf("ip link add %[1]s type veth peer name %[2]s netns /proc/%[3]d/fd/%[4]d; "+
			"ip link set %[1]s up", link, peer, os.Getpid(), other.File().Fd()))
		sh(t, other.Do, "ip link set "+peer+" up")
	}
	add("before", "peer1")
	s := mustSet(t, w, dual(t, w, model.DriverBridge, "web"))
	add("after", "peer2")
	add("port", "peer3")
	onServer(t, w, "ip link add bridge0 type bridge; ip link set bridge0 up; ip link set port master bridge0")
	if changed, err := w.Engine.FactsChanged(s); err != nil || changed {
		t.Errorf("links of others change the plan: %t, %v", changed, err)
	}
	mustSet(t, w, s)
	for link, peer := range map[string]string{"before": "peer1", "after": "peer2", "bridge0": "peer3"} {
		if is := onServer(t, w, "sysctl -n net.ipv6.conf."+link+".accept_ra"); strings.TrimSpace(is) != "1" {
			t.Errorf("accept_ra of %s is %s, want 1", link, is)
		}
		place.AwaitRouter(t, other.Do, peer, w.DoServer, "grep -E 'Icmp6InType134\\s+[1-9]' /proc/net/dev_snmp6/"+link)
		if got := onServer(t, w, "ip -6 route show default dev "+link+"; ip -6 addr show dev "+link+
			" scope global"); got != "" {
			t.Errorf("%s: another program's sandbox has changed the host's routes or addresses:\n%s", link, got)
		}
	}
	if err := w.Engine.TearDown(context.Background()); err != nil {
		t.Fatal(err)
	}
}

// TestForwardingIsRestoredPerLink restores what the kernel overwrites when forwarding is
// turned on and off for all links.
func TestForwardingIsRestoredPerLink(t *testing.T) {
	w := world(t)
	onServer(t, w, "sysctl -qw net.ipv6.conf.all.forwarding=0 net.ipv4.ip_forward=0 "+
		"net.ipv4.conf.all.accept_redirects=0 net.ipv4.conf."+topology.Wire+".forwarding=1 "+
		"net.ipv6.conf."+topology.Wire+".forwarding=1")
	read := func() string {
		return onServer(t, w, "sysctl -a --pattern 'net.ipv..conf.*.(forwarding|accept_redirects|accept_ra)$' 2>/dev/null | grep -v ' f[lv]-'")
	}
	before := read()
	s := mustSet(t, w, dual(t, w, model.DriverBridge, "web"))
	s.Endpoints = nil
	mustSet(t, w, s) // a change does not forget what to restore
	if err := w.Engine.TearDown(context.Background()); err != nil {
		t.Fatal(err)
	}
	if now := read(); now != before {
		t.Errorf("settings before\n%s\nafter\n%s", before, now)
	}
}

// TestForeignRuleWithDirection attaches, publishes and detaches beside a rule of another
// program that the engine cannot evaluate.
func TestForeignRuleWithDirection(t *testing.T) {
	w := world(t)
	onServer(t, w, "for t in iptables-nft ip6tables-nft; do $t -P FORWARD DROP; $t -N DOCKER-USER; done; "+
		"iptables-nft -A FORWARD -j DOCKER-USER; "+
		"for c in FORWARD DOCKER-USER; do nft add rule ip filter $c ct original ip daddr 192.0.2.1 accept; done; "+
		"nft add rule ip6 filter FORWARD ct original ip6 daddr 2001:db8::1 accept")
	before := snapshot(t, w)
	s := dual(t, w, model.DriverBridge, "web")
	publish(&s, "web", model.ViaNAT, model.TCP, 8080, 80)
	s = mustSet(t, w, s)
	if rules := onServer(t, w, "nft list chain ip filter DOCKER-USER"); !strings.Contains(rules, "jump FAIRLEAD") {
		t.Errorf("Fairlead's chain is not in use:\n%s", rules)
	}
	undrifted(t, w)
	mustSet(t, w, s)
	if err := w.Engine.TearDown(context.Background()); err != nil {
		t.Fatal(err)
	}
	unchanged(t, w, before)
}

// TestLinksWithStrangeNames attaches on a host with Docker's firewall and links whose
// names mean something else to iptables: a quote, an option, a wildcard.
func TestLinksWithStrangeNames(t *testing.T) {
	w := world(t)
	onServer(t, w, `for n in 'd"d' "q'q" -x x+ '!' '$(id)'; do ip link add name "$n" type veth peer name "p$n"; done; `+
		"for t in iptables-nft ip6tables-nft; do $t -P FORWARD DROP; $t -N DOCKER-USER; done")
	mustSet(t, w, dual(t, w, model.DriverBridge, "web"))
	if rules := onServer(t, w, "iptables-nft-save"); !strings.Contains(rules, "-o "+topology.Wire) ||
		strings.Contains(rules, "-o x+") {
		t.Errorf("the rules do not accept packets to the wire, or to links that begin with x:\n%s", rules)
	}
	undrifted(t, w)
}

// TestChainsWithNamesOfIPTables attaches on a host where a chain of another program has
// the name of a base chain of iptables.
func TestChainsWithNamesOfIPTables(t *testing.T) {
	for chain, base := range map[string]string{
		"FORWARD": "type filter hook postrouting priority 206; policy drop",
		"OUTPUT":  "type nat hook postrouting priority -180",
		"INPUT":   "type filter hook input priority 7",
	} {
		w := world(t)
		onServer(t, w, "nft 'table ip6 filter { chain "+chain+" { "+base+"; }; chain DOCKER-USER { }; }'; "+
			"nft add chain ip6 filter FORWARD '{ type filter hook forward priority 0; policy drop; }' 2>/dev/null || true")
		mustSet(t, w, dual(t, w, model.DriverBridge, "web"))
		undrifted(t, w)
	}
}
