package doctor_test

import (
	"context"
	"fmt"
	"io"
	"net/netip"
	"os"
	"os/exec"
	"slices"
	"strings"
	"testing"

	"fairlead/internal/api"
	"fairlead/internal/balance/nft"
	"fairlead/internal/explain/doctor"
	"fairlead/internal/explain/facts"
	"fairlead/internal/explain/ports"
	"fairlead/internal/kernel"
	"fairlead/internal/kernel/kerneltest"
	"fairlead/internal/model"
	"fairlead/internal/plan"
	"fairlead/internal/sandbox"
	"fairlead/test/place"
	"fairlead/test/shell"
)

// room is a network namespace that stands for a host, with an uplink and a
// sandbox behind it.
type room struct {
	*kernel.Host
	t *testing.T
	// adjust adds facts that a room cannot have, e.g. an engine or a daemon.
	adjust func(*doctor.Host)
	// ran are the lines that a fix has run.
	ran []string
}

const furnish = `
ip link set lo up
ip link add uplink type veth peer name lan
ip address add 192.0.2.10/24 dev uplink
ip -6 address add 2001:db8:9::10/64 dev uplink nodad
ip link set uplink up
ip link set lan up
ip route add default via 192.0.2.1
ip -6 route add default via 2001:db8:9::1
ip link add box type veth peer name inside
ip address add 10.0.0.1/24 dev box
ip -6 address add fd00::1/64 dev box nodad
ip link set box up
ip link set inside up
sysctl -qw net.ipv4.ip_forward=1 net.ipv6.conf.all.forwarding=1
`

func newRoom(t *testing.T) *room {
	t.Helper()
	ns := kerneltest.Netns(t)
	h, err := kernel.Open(ns.Path(), kernel.Options{})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { h.Close() })
	shell.Run(t, h.Do, furnish)
	return &room{Host: h, t: t, adjust: func(*doctor.Host) {}}
}

// run gathers the room's facts and returns the findings of one check.
func (r *room) run(check string) []doctor.Finding {
	r.t.Helper()
	f, err := facts.Gather(context.Background(), r.Host, sandbox.Finder{})
	if err != nil || len(f.Unseen) > 0 {
		r.t.Fatal(f.Unseen, err)
	}
	h := doctor.Host{Facts: f, Ports: ports.List(f, nil, nil), Daemon: true}
	r.adjust(&h)
	return slices.DeleteFunc(doctor.Examine(h), func(f doctor.Finding) bool { return f.Check != check })
}

// listen listens on a port until the test ends or end is called.
func (r *room) listen(at string) (end func()) {
	r.t.Helper()
	return place.Serve(r.t, r.Do, at, place.Hangup)
}

// dockerProxy runs Docker's program docker-proxy until the test ends, for a
// container that does not exist. The program reports on descriptor 3 that it
// listens.
func (r *room) dockerProxy() {
	r.t.Helper()
	ready, report, err := os.Pipe()
	if err != nil {
		r.t.Fatal(err)
	}
	defer ready.Close()
	cmd := exec.Command("docker-proxy", "-proto", "tcp", "-host-ip", "127.0.0.1", "-host-port", "8080", "-container-ip",
		proxied, "-container-port", "80")
	cmd.ExtraFiles = []*os.File{report}
	err = r.Do(cmd.Start)
	report.Close()
	if err != nil {
		r.t.Fatal(err)
	}
	r.t.Cleanup(func() { _ = cmd.Process.Kill(); _ = cmd.Wait() })
	if word, err := io.ReadAll(ready); err != nil || string(word) != "0\n" {
		r.t.Fatalf("docker-proxy reported %q, %v", word, err)
	}
}

// translated publishes a port by rules of another program.
const translated = `nft -f - <<'EOF'
table ip others {
	chain pre { type nat hook prerouting priority dstnat; fib daddr type local tcp dport 8080 dnat to 10.0.0.2:80; }
	chain out { type nat hook output priority -100; fib daddr type local tcp dport 8080 dnat to 10.0.0.2:80; }
}
EOF
`

// faults are rooms in which a check finds something, and how to fix it if the
// finding's fix is not a command that can be run unchanged.
var faults = []struct {
	name, check string
	set         string
	also        func(*room)
	severity    doctor.Severity
	fix         func(*room, doctor.Finding)
}{
	{name: "a host that does not forward", check: "ip-forward", set: translated + "sysctl -qw net.ipv4.ip_forward=0",
		severity: doctor.Problem},
	{name: "a host that does not forward IPv6", check: "ip-forward", severity: doctor.Problem,
		set: "nft 'add table ip6 o; add chain ip6 o pre { type nat hook prerouting priority dstnat; }; add rule ip6 o pre tcp dport 80 dnat to fd00::2'; sysctl -qw net.ipv6.conf.all.forwarding=0"},
	{name: "Docker's firewall drops a network's packets", check: "not-forwarded", severity: doctor.Problem,
		set: "ip link add fl-web type bridge; ip link set fl-web alias fairlead:web up; ip address add 172.30.0.1/24 dev fl-web\n" +
			"iptables -P FORWARD DROP; iptables -N DOCKER-USER; iptables -A FORWARD -j DOCKER-USER"},
	{name: "a firewall drops a network's packets", check: "not-forwarded", severity: doctor.Problem,
		set: "ip link add fl-web type bridge; ip link set fl-web alias fairlead:web up; ip address add fd01::1/64 dev fl-web nodad\n" +
			"ip6tables -A FORWARD -i fl-web -j DROP"},
	{name: "ufw drops a network's packets", check: "not-forwarded", severity: doctor.Problem,
		set: "ip link add fl-web type bridge; ip link set fl-web alias fairlead:web up; ip address add 172.30.0.1/24 dev fl-web\n" +
			"iptables -P FORWARD DROP; iptables -N ufw-user-forward; iptables -N ufw-before-forward; iptables -A FORWARD -j ufw-before-forward\n" +
			"iptables -A ufw-before-forward -m conntrack --ctstate RELATED,ESTABLISHED -j ACCEPT; iptables -A ufw-before-forward -j ufw-user-forward",
		fix: substitute("ufw route allow in on fl-web && ufw route allow out on fl-web", // ufw then adds these rules:
			"iptables -A ufw-user-forward -i fl-web -j ACCEPT; iptables -A ufw-user-forward -o fl-web -j ACCEPT")},
	{name: "firewalld drops a network's packets", check: "not-forwarded", severity: doctor.Problem,
		set: "ip link add fl-web type bridge; ip link set fl-web alias fairlead:web up; ip address add 172.30.0.1/24 dev fl-web\n" +
			"nft 'table inet firewalld { chain policies { }; chain filter_FORWARD { type filter hook forward priority 10; ct state established,related accept; jump policies; reject; }; }'",
		fix: substitute("firewall-cmd -q --permanent --zone=fairlead --add-interface=fl-web",
			"nft add rule inet firewalld policies iifname fl-web accept")},
	{name: "a firewall drops frames on a bridge", check: "peers-dropped", severity: doctor.Problem,
		set: "ip link add fl-web type bridge; ip link set fl-web alias fairlead:web up; ip address add fd01::1/64 dev fl-web nodad\n" +
			"sysctl -qw net.bridge.bridge-nf-call-ip6tables=1; ip6tables -P FORWARD DROP"},
	{name: "ufw drops frames on a bridge", check: "peers-dropped", severity: doctor.Problem,
		set: "ip link add fl-web type bridge; ip link set fl-web alias fairlead:web up; ip address add fd01::1/64 dev fl-web nodad\n" +
			"sysctl -qw net.bridge.bridge-nf-call-ip6tables=1; ip6tables -P FORWARD DROP; ip6tables -N ufw6-user-forward; ip6tables -A FORWARD -j ufw6-user-forward",
		fix: substitute("ufw route allow in on fl-web out on fl-web",
			"ip6tables -A ufw6-user-forward -i fl-web -o fl-web -j ACCEPT")},
	{name: "a firewall drops packets between sandboxes of a routed network", check: "peers-dropped",
		severity: doctor.Problem,
		set: "for i in 2 3; do ip link add fv-web$i type veth peer name box$i; ip link set fv-web$i up; ip link set box$i up; ip address add 172.30.0.1/32 dev fv-web$i; done\n" +
			"iptables -P FORWARD DROP; iptables -A FORWARD -s 172.30.0.0/24 ! -d 172.30.0.0/24 -j ACCEPT",
		also: func(r *room) {
			r.adjust = func(h *doctor.Host) {
				for i := range byte(2) {
					h.Attachments = append(h.Attachments, api.View{Driver: model.DriverRouted, Status: api.Up,
						Attachment: model.Attachment{Endpoint: model.Endpoint{Name: fmt.Sprint("web", i+2),
							Network: "net", Addresses: []netip.Addr{netip.AddrFrom4([4]byte{172, 30, 0, i + 2})}}}})
				}
			}
		},
		fix: run("iptables -I FORWARD -s 172.30.0.0/24 -d 172.30.0.0/24 -j ACCEPT")},
	{name: "no default route", check: "no-default-route", set: "ip route del default", severity: doctor.Warning,
		fix: fill("GATEWAY", "192.0.2.1")},
	{name: "no default route of IPv6", check: "no-default-route", set: "ip -6 route del default",
		severity: doctor.Warning, fix: fill("GATEWAY", "2001:db8:9::1")},
	{name: "a bridge that has the router's address", check: "gateway-conflict", severity: doctor.Problem,
		set: "ip link add br9 type bridge; ip link set br9 up; ip address add 192.0.2.1/28 dev br9"},
	{name: "a firewall that drops all ICMP", check: "icmp-blocked", severity: doctor.Warning,
		set: "nft 'add table inet fw; add chain inet fw in { type filter hook input priority 0; }; add rule inet fw in ct state established accept; add rule inet fw in ip protocol icmp drop'"},
	{name: "a firewall that drops all ICMPv6", check: "icmp-blocked", set: "ip6tables -A INPUT -p ipv6-icmp -j DROP",
		severity: doctor.Warning},
	{name: "a firewall that forwards no ICMP", check: "icmp-blocked", severity: doctor.Warning,
		set: "ip link add fl-web type bridge; ip link set fl-web alias fairlead:web up; ip address add 172.30.0.1/24 dev fl-web\n" +
			"iptables-legacy -A FORWARD -p icmp -j DROP"},
	{name: "a firewall that accepts no related packets", check: "icmp-blocked", severity: doctor.Warning,
		set: "nft 'add table ip fw; add chain ip fw in { type filter hook input priority 0; policy drop; }; add rule ip fw in ct state established accept; add rule ip fw in tcp dport 22 accept'"},
	{name: "a full connection tracking table", check: "conntrack", severity: doctor.Problem,
		set: "sysctl -qw net.netfilter.nf_conntrack_udp_timeout=600; nft 'add table ip o; add chain ip o out { type filter hook output priority 0; }; add rule ip o out ct state new accept'\n" +
			"bash -c 'for p in 1 2 3 4; do echo x > /dev/udp/127.0.0.1/$p; done'",
		also: func(r *room) { r.conntrackMax("4") },
		fix: func(r *room, f doctor.Finding) {
			_, most, _ := strings.Cut(f.Fix, "=")
			r.conntrackMax(most)
		}},
	{name: "127.0.0.1 open to the LAN", check: "route-localnet",
		set: "sysctl -qw net.ipv4.conf.uplink.route_localnet=1", severity: doctor.Problem},
	{name: "127.0.0.1 open to containers", check: "route-localnet", severity: doctor.Warning,
		set: "ip link add docker0 type bridge; ip link set docker0 up; sysctl -qw net.ipv4.conf.docker0.route_localnet=1"},
	{name: "a database on the LAN", check: "exposed", also: func(r *room) { r.listen("0.0.0.0:5432") },
		severity: doctor.Warning, fix: runInterimFix},
	{name: "Docker's API on the LAN", check: "exposed", also: func(r *room) { r.listen(":2375") },
		severity: doctor.Problem, fix: runInterimFix},
	{name: "a firewall that is bypassed", check: "firewall-bypassed", severity: doctor.Warning,
		set: translated +
			"nft 'add table inet fw; add chain inet fw in { type filter hook input priority 0; policy drop; }'",
		fix: run("nft 'add chain inet fw forward { type filter hook forward priority 0; policy drop; }'")},
	{name: "two kinds of iptables", check: "two-firewalls", severity: doctor.Warning,
		set: translated + "iptables-legacy -A INPUT -p tcp --dport 25 -j DROP; iptables-legacy -P INPUT DROP"},
	{name: "a bridge whose MTU is too large", check: "mtu",
		set:      "ip link set uplink mtu 1400; ip link add docker0 type bridge; ip link set docker0 up",
		severity: doctor.Warning},
	{name: "a tunnel whose MTU is too large", check: "mtu",
		set:      "ip link add vx type vxlan id 7 dstport 4789 remote 192.0.2.1; ip link set vx up mtu 1500",
		severity: doctor.Warning},
	{name: "strict return paths", check: "rp-filter", severity: doctor.Warning,
		set: "ip route add default dev box metric 9; sysctl -qw net.ipv4.conf.all.rp_filter=0 net.ipv4.conf.uplink.rp_filter=1 net.ipv4.conf.box.rp_filter=1"},
	{name: "answers with the address of a service of the cluster", check: "rp-filter", severity: doctor.Problem,
		set: "sysctl -qw net.ipv4.conf.all.rp_filter=0 net.ipv4.conf.box.rp_filter=1",
		also: func(r *room) {
			v := site
			v.Origin, v.Forward = model.FromCluster, model.ForwardDirect
			r.adjust = func(h *doctor.Host) {
				h.Balanced = []api.ServiceView{{VirtualService: v, Servers: []api.RealView{
					{Address: netip.MustParseAddr("10.0.0.2"), Endpoint: "web"}}}}
			}
		}},
	{name: "no answer on ::1", check: "localhost-v6", severity: doctor.Note, set: translated +
		"sysctl -qw net.ipv4.conf.box.route_localnet=1",
		also: func(r *room) { r.adjust = func(h *doctor.Host) { h.LocalhostV6 = true } },
		fix:  func(r *room, _ doctor.Finding) { r.listen("[::1]:8080") }},
	{name: "a port that clients may use as source port", check: "local-ports", severity: doctor.Warning,
		set: "nft 'add table ip o; add chain ip o pre { type nat hook prerouting priority dstnat; }; add rule ip o pre tcp dport 40000-40010 dnat to 10.0.0.2'"},
	{name: "a proxy without a container", check: "stale-docker-proxy", severity: doctor.Problem,
		also: func(r *room) { r.dockerProxy(); r.adjust = func(h *doctor.Host) { h.Engine = true } },
		fix:  killed},
	{name: "docker-proxy", check: "docker-proxy", also: (*room).dockerProxy, severity: doctor.Note,
		fix: func(r *room, _ doctor.Finding) { killed(r, r.stale()) }},
	{name: "bridges that filter", check: "bridge-filter", severity: doctor.Note,
		set: "ip link add docker0 type bridge; sysctl -qw net.bridge.bridge-nf-call-iptables=1 net.bridge.bridge-nf-call-ip6tables=0"},
	{name: "an uplink that does not forward", check: "ip-forward", severity: doctor.Problem,
		set: translated + "sysctl -qw net.ipv4.conf.uplink.forwarding=0"},
	{name: "a sandbox's link that does not forward", check: "ip-forward", severity: doctor.Problem,
		set: translated + "sysctl -qw net.ipv4.conf.box.forwarding=0"},
	{name: "a service behind a host that does not forward", check: "ip-forward", severity: doctor.Problem,
		also: balancedTo("10.0.0.2:80"),
		set:  "sysctl -qw net.ipv4.ip_forward=0"},
	{name: "a real server without a route", check: "service-no-route", severity: doctor.Problem,
		also: balancedTo("203.0.113.9:80"),
		set:  "ip route del default", fix: fill("GATEWAY", "10.0.0.2")},
	{name: "a service that a firewall drops", check: "service-dropped", severity: doctor.Problem,
		also: balancedTo("10.0.0.2:80"),
		set:  "nft 'add table inet fw; add chain inet fw forward { type filter hook forward priority 0; policy drop; }'",
		fix: func(r *room, f doctor.Finding) {
			r.sh("nft add rule inet fw forward " + part(r.t, f.Fix, "nft"))
		}},
	{name: "a data plane that costs more", check: "service-plane", severity: doctor.Note,
		also: func(r *room) {
			facts, err := kernel.Probe(plan.FeatureEBPF, plan.FeatureCgroupHooks)
			if err != nil {
				r.t.Fatal(err)
			}
			r.addService(facts, model.PlaneNFT)
		},
		fix: func(r *room, _ doctor.Finding) { r.addService(plan.Facts{}, model.PlaneAuto) }},
	{name: "services without a daemon", check: "daemon", severity: doctor.Warning,
		also: func(r *room) {
			balancedTo("10.0.0.2:80")(r)
			r.adjust = func(h *doctor.Host) { h.Daemon = false }
		},
		fix: func(r *room, _ doctor.Finding) { r.adjust = func(*doctor.Host) {} }},
	{name: "a port of a sandbox that has ended", check: "ended-sandbox", set: translated, severity: doctor.Problem,
		also: func(r *room) {
			v := api.View{Attachment: model.Attachment{Endpoint: model.Endpoint{Name: "web",
				Addresses: []netip.Addr{netip.MustParseAddr("10.0.0.2")}}},
				Status: api.Ended, Publishes: []api.PublishedView{{}}}
			r.adjust = func(h *doctor.Host) { h.Ports = ports.List(h.Facts, []api.View{v}, nil) }
		},
		fix: run("nft delete table ip others")}, // as the daemon does
	{name: "no daemon", check: "daemon", severity: doctor.Warning,
		also: func(r *room) {
			if _, err := r.Apply([]plan.Op{{Object: plan.Table{}}}); err != nil {
				r.t.Fatal(err)
			}
			r.adjust = func(h *doctor.Host) { h.Daemon = false }
		},
		fix: func(r *room, _ doctor.Finding) { r.adjust = func(*doctor.Host) {} }},
}

// site is a service in the data plane nft, at an address that no host has.
var site = model.VirtualService{Name: "site", Addresses: []netip.Addr{netip.MustParseAddr("198.51.100.10")},
	Ports: []model.PortRange{model.Port(80)}, Proto: model.TCP, Plane: model.PlaneNFT}

// balancedTo puts a service with one real server into the kernel.
func balancedTo(real string) func(*room) {
	return func(r *room) {
		at := netip.MustParseAddrPort(real)
		v := site
		v.Reals = []model.RealServer{{Address: at.Addr(), Port: at.Port(), Weight: 1}}
		all := append(nft.Plane{}.Shared(nil),
			nft.Plane{}.Service(v, nil)...)
		var ops []plan.Op
		for _, o := range all {
			if plan.GroupOf(o) == plan.GroupServices {
				ops = append(ops, plan.Op{Object: o})
			}
		}
		if _, err := r.Apply(ops); err != nil {
			r.t.Fatal(err)
		}
	}
}

// addService adds a daemon's service in a data plane to the facts.
func (r *room) addService(facts plan.Facts, plane model.Plane) {
	v := site
	v.Plane = plane
	r.adjust = func(h *doctor.Host) {
		h.Kernel, h.Balanced = &facts, []api.ServiceView{{VirtualService: v}}
	}
}

// conntrackMax replaces a setting that only the initial namespace can change.
func (r *room) conntrackMax(most string) {
	r.adjust = func(h *doctor.Host) { h.Settings[facts.ConntrackMax] = most }
}

// run fixes a finding that describes its fix in words.
func run(line string) func(*room, doctor.Finding) {
	return func(r *room, _ doctor.Finding) { r.sh(line) }
}

// substitute runs a line in place of a program that cannot run in a room. The fix
// must contain the program's command.
func substitute(command, line string) func(*room, doctor.Finding) {
	return func(r *room, f doctor.Finding) {
		if !strings.Contains(f.Fix, command) {
			r.t.Errorf("the fix is %q, want it to contain %q", f.Fix, command)
		}
		r.sh(line)
	}
}

// runInterimFix runs the command that the finding offers until the real fix.
func runInterimFix(r *room, f doctor.Finding) {
	_, line, found := strings.Cut(f.Fix, "or until then: ")
	if !found {
		r.t.Fatalf("the fix has no interim command: %s", f.Fix)
	}
	r.sh(line)
}

// stale returns the finding about the proxy; its fix names the process.
func (r *room) stale() doctor.Finding {
	r.adjust = func(h *doctor.Host) { h.Engine = true }
	return r.run("stale-docker-proxy")[0]
}

// killed runs the command and waits until the port is free.
func killed(r *room, f doctor.Finding) {
	r.sh(f.Fix + "; timeout 100 sh -c 'while ss -Hltn | grep -q :8080; do :; done'")
}

// TestRooms: on a real kernel each check finds its fault, and finds nothing
// before the fault and after its fix.
func TestRooms(t *testing.T) {
	for _, c := range faults {
		t.Run(c.name, func(t *testing.T) {
			r := newRoom(t)
			if found := r.run(c.check); len(found) > 0 {
				t.Fatalf("found on a healthy host: %+v", found)
			}
			shell.Run(t, r.Do, "set -e\n"+c.set+"\n:")
			if c.also != nil {
				c.also(r)
			}
			found := r.run(c.check)
			if len(found) != 1 || found[0].Severity != c.severity {
				t.Fatalf("found %+v, want one %s", found, c.severity)
			}
			if found[0].Seen == "" || found[0].Why == "" || found[0].Fix == "" {
				t.Errorf("the finding has an empty part: %+v", found[0])
			}
			if c.fix == nil {
				c.fix = run(found[0].Fix)
			}
			c.fix(r, found[0])
			r.mustHaveRun(c.check, found[0].Fix)
			if found := r.run(c.check); len(found) > 0 {
				t.Errorf("found after the fix: %+v", found)
			}
		})
	}
}
