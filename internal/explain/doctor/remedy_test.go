package doctor_test

import (
	"fmt"
	"net/netip"
	"os"
	"regexp"
	"strings"
	"testing"

	"fairlead/internal/api"
	"fairlead/internal/explain/doctor"
	"fairlead/internal/explain/ports"
	"fairlead/internal/kernel/kerneltest"
	"fairlead/internal/kernel/netns"
	"fairlead/internal/kernel/rules"
	"fairlead/internal/model"
	"fairlead/test/place"
	"fairlead/test/shell"
)

// sh runs a line of a fix.
func (r *room) sh(line string) {
	r.t.Helper()
	r.ran = append(r.ran, line)
	shell.Run(r.t, r.Do, line)
}

// program matches a fix that begins with a command, of a program that a room can run.
var program = regexp.MustCompile(`^(sysctl|ip|nft|ip6?tables\S*|kill) `)

// unrun are the checks whose commands have no effect in a room, with the reason.
var unrun = map[string]string{"conntrack": "only the initial namespace can change the setting"}

// mustHaveRun checks that the test has run the command of a fix as it is printed, except for
// values in place of placeholders.
func (r *room) mustHaveRun(check, fix string) {
	r.t.Helper()
	if !program.MatchString(fix) || unrun[check] != "" {
		return
	}
	command, _, _ := strings.Cut(fix, ", or ")
	pieces := strings.Split(command, "GATEWAY")
	for _, line := range r.ran {
		if strings.HasPrefix(line, pieces[0]) && strings.Contains(line, pieces[len(pieces)-1]) {
			return
		}
	}
	r.t.Errorf("the fix is the command %q, and the test runs %q", fix, r.ran)
}

// fill runs the command of a fix with a value for its placeholder, without the alternative that
// the fix names.
func fill(placeholder, value string) func(*room, doctor.Finding) {
	return func(r *room, f doctor.Finding) {
		command, _, _ := strings.Cut(f.Fix, ", or ")
		if !strings.Contains(command, placeholder) {
			r.t.Errorf("the fix is %q, want the placeholder %s", f.Fix, placeholder)
		}
		r.sh(strings.ReplaceAll(command, placeholder, value))
	}
}

// behind moves the other end of a link of the room into a namespace of its own, and runs a
// line there.
func (r *room) behind(end, line string) *netns.Namespace {
	r.t.Helper()
	ns := kerneltest.Netns(r.t)
	path := strings.Replace(ns.Path(), "self", fmt.Sprint(os.Getpid()), 1)
	shell.Run(r.t, r.Do, "ip link set "+end+" netns "+path)
	shell.Run(r.t, ns.Do, "set -e; ip link set "+end+" up; "+line)
	return ns
}

// neighbourhood is a room with a network fl-web, two sandboxes on it and a host on the LAN. A
// port of the first sandbox is published by NAT.
type neighbourhood struct {
	*room
	web, peer, lan *netns.Namespace
}

// bridged makes the room's network. NAT publishes the port 8080 of the first sandbox.
const bridged = `set -e
ip link add fl-web type bridge
ip link set fl-web alias fairlead:web up
ip address add 172.30.0.1/24 dev fl-web
ip -6 address add fd01::1/64 dev fl-web nodad
for i in 2 3; do
	ip link add port$i type veth peer name end$i
	ip link set port$i master fl-web up
done
nft -f - <<'EOF'
table inet others {
	chain pre {
		type nat hook prerouting priority dstnat
		meta nfproto ipv4 fib daddr type local tcp dport 8080 dnat ip to 172.30.0.2:80
		meta nfproto ipv6 fib daddr type local tcp dport 8080 dnat ip6 to [fd01::2]:80
	}
}
EOF
`

func newNeighbourhood(t *testing.T) neighbourhood {
	t.Helper()
	n := neighbourhood{room: newRoom(t)}
	shell.Run(t, n.Do, bridged)
	boxes := []*netns.Namespace{nil, nil}
	for i := range boxes {
		boxes[i] = n.behind(fmt.Sprint("end", i+2), fmt.Sprintf(
			"ip address add 172.30.0.%d/24 dev end%[1]d; ip -6 address add fd01::%[1]d/64 dev end%[1]d nodad; "+
				"ip route add default via 172.30.0.1; ip -6 route add default via fd01::1", i+2))
		place.Serve(t, boxes[i].Do, ":80", place.Hangup)
	}
	n.web, n.peer = boxes[0], boxes[1]
	n.lan = n.behind("lan", "ip address add 192.0.2.1/24 dev lan; ip -6 address add 2001:db8:9::1/64 dev lan nodad; "+
		"ip route add default via 192.0.2.10; ip -6 route add default via 2001:db8:9::10")
	place.Serve(t, n.lan.Do, ":80", place.Hangup)
	return n
}

// opens checks that connections to the addresses open.
func opens(t *testing.T, from place.Place, to ...string) {
	t.Helper()
	for _, at := range to {
		conn, err := place.Dial(from, "tcp", at, place.Timeout)
		if err != nil {
			t.Errorf("after the fix: %v", err)
			continue
		}
		conn.Close()
	}
}

// repair runs the fixes that a check prints, one after the other, until it finds nothing.
func (r *room) repair(check string) {
	r.t.Helper()
	for range 2 { // there may be one for each address family
		found := r.run(check)
		if len(found) == 0 {
			return
		}
		r.sh(found[0].Fix)
	}
	if found := r.run(check); len(found) > 0 {
		r.t.Errorf("found after the fix: %+v", found)
	}
}

// TestFixLetsPacketsOut: after the command that doctor prints against a firewall, sandboxes
// reach the LAN, and the LAN reaches their published ports.
func TestFixLetsPacketsOut(t *testing.T) {
	for name, set := range map[string]string{
		"iptables":      "iptables -P FORWARD DROP; ip6tables -P FORWARD DROP",
		"legacy tables": "iptables-legacy -P FORWARD DROP; ip6tables-legacy -P FORWARD DROP",
		"Docker":        "iptables -P FORWARD DROP; iptables -N DOCKER-USER; iptables -A FORWARD -j DOCKER-USER",
		"Docker with legacy iptables": "iptables-legacy -P FORWARD DROP; iptables-legacy -N DOCKER-USER; " +
			"iptables-legacy -A FORWARD -j DOCKER-USER",
		"a rule before the jump to DOCKER-USER": "iptables -A FORWARD -i fl-web -j DROP; iptables -A FORWARD -o fl-web -j DROP; " +
			"iptables -N DOCKER-USER; iptables -A FORWARD -j DOCKER-USER",
		"mangle":   "iptables -t mangle -A FORWARD -i fl-web -j DROP; ip6tables -t mangle -A FORWARD -o uplink -j DROP",
		"nftables": "nft 'table inet fw { chain out { iifname fl-web drop; }; chain f { type filter hook forward priority 0; policy drop; jump out; }; }'",
		"nftables with the table filter": "nft 'table ip filter { chain forward { type filter hook forward priority 0; policy drop; }; }; " +
			"table ip6 filter { chain forward { type filter hook forward priority 0; policy drop; }; }'",
	} {
		t.Run(name, func(t *testing.T) {
			n := newNeighbourhood(t)
			if found := n.run("not-forwarded"); len(found) > 0 {
				t.Fatalf("found without a firewall: %+v", found)
			}
			shell.Run(t, n.Do, "set -e; "+set)
			if found := n.run("not-forwarded"); len(found) == 0 {
				t.Fatal("found nothing behind the firewall")
			}
			n.repair("not-forwarded")
			opens(t, n.web.Do, "192.0.2.1:80", "[2001:db8:9::1]:80")
			opens(t, n.lan.Do, "192.0.2.10:8080", "[2001:db8:9::10]:8080")
		})
	}
}

// TestFixLetsFramesPass: after the command that doctor prints against a firewall that drops
// frames on a bridge, its sandboxes reach each other.
func TestFixLetsFramesPass(t *testing.T) {
	for name, set := range map[string]string{
		"iptables":      "iptables -P FORWARD DROP; ip6tables -P FORWARD DROP",
		"legacy tables": "iptables-legacy -P FORWARD DROP; ip6tables-legacy -P FORWARD DROP",
		"nftables":      "nft 'table inet fw { chain f { type filter hook forward priority 0; policy drop; }; }'",
	} {
		t.Run(name, func(t *testing.T) {
			n := newNeighbourhood(t)
			shell.Run(t, n.Do, "set -e; sysctl -qw net.bridge.bridge-nf-call-iptables=1 net.bridge.bridge-nf-call-ip6tables=1; "+set)
			if found := n.run("peers-dropped"); len(found) == 0 {
				t.Fatal("found nothing behind the firewall")
			}
			n.repair("peers-dropped")
			opens(t, n.web.Do, "172.30.0.3:80", "[fd01::3]:80")
		})
	}
}

// part returns what a fix says for a tool, e.g. the rule after "nft: ".
func part(t *testing.T, fix, tool string) string {
	t.Helper()
	found := regexp.MustCompile(tool + `: ([^;)]+)`).FindStringSubmatch(fix)
	if found == nil {
		t.Fatalf("the fix says nothing for %s: %s", tool, fix)
	}
	return found[1]
}

// TestFixLetsClientsOfServicesPass: after one of the rules that doctor prints for a service
// whose packets a firewall drops, clients reach the service.
func TestFixLetsClientsOfServicesPass(t *testing.T) {
	for _, c := range []struct{ tool, set, add string }{
		{"iptables", "iptables -P FORWARD DROP", "iptables -A FORWARD "},
		{"iptables", "iptables-legacy -P FORWARD DROP", "iptables-legacy -A FORWARD "},
		{"nft", "nft 'table inet fw { chain f { type filter hook forward priority 0; policy drop; }; }'",
			"nft add rule inet fw f "},
	} {
		t.Run(c.add, func(t *testing.T) {
			n := newNeighbourhood(t)
			balancedTo("172.30.0.2:80")(n.room)
			shell.Run(t, n.Do, c.set)
			found := n.run("service-dropped")
			if len(found) != 1 {
				t.Fatalf("found %+v, want one finding", found)
			}
			shell.Run(t, n.Do, c.add+part(t, found[0].Fix, c.tool))
			if found := n.run("service-dropped"); len(found) > 0 {
				t.Errorf("found after the fix: %+v", found)
			}
			opens(t, n.lan.Do, "198.51.100.10:80")
		})
	}
}

// TestFixForServicesAtInput: packets to a service of IPVS are not translated when they pass
// INPUT, so the fix names the address.
func TestFixForServicesAtInput(t *testing.T) {
	for at, want := range map[string][]string{
		"198.51.100.10": {"(nft: ip daddr 198.51.100.10 tcp dport 80 accept;", "iptables: -d 198.51.100.10 -p tcp --dport 80 -j ACCEPT)"},
		"2001:db8::80":  {"(nft: ip6 daddr 2001:db8::80 tcp dport 80 accept;", "ip6tables: -d 2001:db8::80 -p tcp --dport 80 -j ACCEPT)"},
	} {
		p := ports.Port{Proto: model.TCP, Addresses: []netip.Addr{netip.MustParseAddr(at)}, Ports: model.Port(80),
			Service: &ports.Service{Name: "site", Plane: model.PlaneIPVS,
				Reals: []netip.AddrPort{netip.MustParseAddrPort("10.0.0.2:80")}},
			Reach: ports.Reach{LAN: rules.No, Decided: "inet fw in: drop"}}
		found := doctor.Examine(doctor.Host{Ports: []ports.Port{p}, Daemon: true})
		if len(found) != 1 || !strings.Contains(found[0].Fix, want[0]) || !strings.Contains(found[0].Fix, want[1]) {
			t.Errorf("found %+v, want a fix with %q", found, want)
		}
	}
}

// TestUnpublishNamesTheAddress: the command that removes a publish names the address on which
// it is published. Without it, the command removes nothing.
func TestUnpublishNamesTheAddress(t *testing.T) {
	for at, want := range map[string]string{"127.0.0.1": "fairlead unpublish web 127.0.0.1:80/tcp",
		"::1": "fairlead unpublish web '[::1]:80/tcp'"} {
		v := api.View{Attachment: model.Attachment{Endpoint: model.Endpoint{Name: "web"}}}
		v.Publishes = []api.PublishedView{{Problem: "port is taken", Publish: model.Publish{Endpoint: "web",
			Proto: model.TCP, HostAddr: netip.MustParseAddr(at), HostPorts: model.Port(80), Ports: model.Port(80)}}}
		found := doctor.Examine(doctor.Host{Attachments: []api.View{v}, Daemon: true})
		if len(found) != 1 || !strings.HasSuffix(found[0].Fix, want) {
			t.Errorf("found %+v, want a fix that ends with %s", found, want)
		}
	}
}
