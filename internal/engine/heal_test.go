package engine_test

import (
	"context"
	"fmt"
	"os"
	"strings"
	"testing"

	"fairlead/internal/kernel/netns"
	"fairlead/internal/model"
	"fairlead/internal/plan"
	"fairlead/test/place"
)

// TestHeals damages a running host in each known manner. Verify must list the
// damage, and Heal must restore the traffic.
func TestHeals(t *testing.T) {
	const table = "inet " + plan.Mark
	worlds := shared(t)
	for _, damage := range []struct {
		name    string
		sandbox bool // where the command runs
		command string
		// want is part of a step that Verify lists.
		want string
	}{
		{"ruleset flushed", false, "nft flush ruleset", "nft -f -"},
		{"table deleted", false, "nft delete table " + table, "nft -f -"},
		{"rule deleted", false, "nft flush chain " + table + " publish", "nft -f -"},
		{"rule added", false, "nft insert rule " + table + " forward drop", "nft -f -"},
		{"element deleted", false, "nft delete element " + table + " anyports4 '{ tcp . 8000 }'", "add element " +
			table + " anyports4 '{ tcp . 8000 : 172.30.0.2 . 80 }'"},
		{"element changed", false, "nft 'delete element " + table + " anyports4 { tcp . 8000 }; add element " + table +
			" anyports4 { tcp . 8000 : 172.30.0.9 . 80 }'", "nft 'delete element " + table +
			" anyports4 { tcp . 8000 }; add element " + table + " anyports4 { tcp . 8000 : 172.30.0.2 . 80 }'"},
		{"foreign element in our map", false, "nft add element " + table + " anyports4 '{ tcp . 7 : 172.30.0.2 . 80 }'",
			"delete element " + table + " anyports4 '{ tcp . 7 }'"},
		{"foreign element in our set", false, "nft add element " + table + " links '{ wire0 }'", "delete element " +
			table + " links '{ wire0 }'"},
		{"bridge deleted", false, "ip link del fl-net", "ip link add fl-net"},
		{"bridge down", false, "ip link set fl-net down", "ip link add fl-net"},
		{"bridge's address deleted", false, "ip addr flush dev fl-net", "ip addr replace 172.30.0.1/24 dev fl-net"},
		{"bridge's MTU changed", false, "ip link set fl-net mtu 1400", "ip link set fl-net mtu 1500"},
		{"bridge's filter changed", false, "ip link set fl-net type bridge nf_call_iptables 0",
			"ip link set fl-net type bridge nf_call_iptables 1"},
		{"veth deleted", false, "ip link del fv-web", "ip link add fv-web"},
		{"veth off the bridge", false, "ip link set fv-web nomaster", "ip link set fv-web master fl-net"},
		{"left-over link with our alias", false,
			"ip link add fl-old type bridge && ip link set fl-old alias fairlead:old", "ip link del fl-old"},
		{"setting changed", false, "sysctl -qw net.ipv4.ip_forward=0", "net.ipv4.ip_forward=1"},
		{"address deleted in the sandbox", true, "ip addr flush dev eth0 scope global",
			"ip addr replace 172.30.0.2/24 dev eth0"},
		{"route deleted in the sandbox", true, "ip route del default; ip -6 route del default",
			"route replace default via 172.30.0.1 dev eth0"},
		{"link down in the sandbox", true, "ip link set eth0 down", "ip link add fv-web"},
		{"link renamed in the sandbox", true, "ip link set eth0 down && ip link set eth0 name eth9",
			"ip link add fv-web"},
		{"link's address changed in the sandbox", true, "ip link set eth0 address 02:00:00:00:00:01",
			"ip link set eth0 address 02:f1:ac:1e:00:02"},
		{"loopback down in the sandbox", true, "ip link set lo down", "ip link set lo up"},
		{"IPv6 disabled in the sandbox", true, "sysctl -qw net.ipv6.conf.eth0.disable_ipv6=1", "disable_ipv6=0"},
	} {
		t.Run(damage.name, func(t *testing.T) {
			w := worlds(t)
			s := dual(t, w, model.DriverBridge, "web")
			s.Networks[0].Filter = model.FilterOn
			for i, via := range modes {
				for _, proto := range protos {
					publish(&s, "web", via, proto, 8000+uint16(i), 80)
				}
			}
			mustSet(t, w, s)
			where := place.Place(w.DoServer)
			if damage.sandbox {
				where = in(w, "web")
			}
			sh(t, where, damage.command)
			ops, err := w.Engine.Verify(context.Background())
			if err != nil || !strings.Contains(plan.Text(ops), damage.want) {
				t.Errorf("Verify does not list %q: %v\n%s", damage.want, err, plan.Text(ops))
			}
			if _, err := w.Engine.Heal(context.Background()); err != nil {
				t.Fatal(err)
			}
			undrifted(t, w)
			serve(t, in(w, "web"), "web", ":80")
			for i := range modes {
				for _, proto := range protos {
					for _, addr := range server(8000 + i) {
						hears(t, w.DoClient, proto, addr, "web")
					}
				}
			}
		})
	}
}

func TestHealsTheRoutedHost(t *testing.T) {
	for name, command := range map[string]string{
		"route deleted":   "ip route del 172.30.0.2",
		"address deleted": "ip addr del 172.30.0.1/32 dev fv-web",
		"veth deleted":    "ip link del fv-web",
		"left-over route": "ip route add 203.0.113.9/32 dev wire0 proto 250",
	} {
		t.Run(name, func(t *testing.T) {
			w := world(t)
			s := dual(t, w, model.DriverRouted, "web")
			publish(&s, "web", model.ViaNAT, model.TCP, 8080, 80)
			mustSet(t, w, s)
			onServer(t, w, command)
			if ops, err := w.Engine.Heal(context.Background()); err != nil || len(ops) == 0 {
				t.Fatalf("heal: %v %v", ops, err)
			}
			undrifted(t, w)
			serve(t, in(w, "web"), "web", ":80")
			hears(t, w.DoClient, model.TCP, "198.51.100.2:8080", "web")
		})
	}
}

func TestHealRestartsADeadProxy(t *testing.T) {
	w := world(t)
	s := dual(t, w, model.DriverBridge, "web")
	publish(&s, "web", model.ViaProxy, model.TCP, 8080, 80)
	mustSet(t, w, s)
	serve(t, in(w, "web"), "web", ":80")
	if err := w.Proxy.Close(); err != nil {
		t.Fatal(err)
	}
	ops, err := w.Engine.Heal(context.Background())
	if err != nil || !strings.Contains(plan.Text(ops), "fairlead-proxy listen tcp *:8080 to 172.30.0.2:80") {
		t.Errorf("heal: %v\n%s", err, plan.Text(ops))
	}
	undrifted(t, w)
	hears(t, w.DoClient, model.TCP, "198.51.100.2:8080", "web")
}

func TestSetRestartsADeadProxy(t *testing.T) {
	w := world(t)
	s := dual(t, w, model.DriverBridge, "web")
	publish(&s, "web", model.ViaProxy, model.TCP, 8080, 80)
	mustSet(t, w, s)
	serve(t, in(w, "web"), "web", ":80")
	if err := w.Proxy.Close(); err != nil {
		t.Fatal(err)
	}
	publish(&s, "web", model.ViaProxy, model.TCP, 8081, 80)
	mustSet(t, w, s)
	undrifted(t, w)
	hears(t, w.DoClient, model.TCP, "198.51.100.2:8080", "web")
	hears(t, w.DoClient, model.TCP, "198.51.100.2:8081", "web")
}

// TestRestartedSandboxIsAttachedAgain puts a new namespace at the path of a
// sandbox, as a container engine does when a container restarts.
func TestRestartedSandboxIsAttachedAgain(t *testing.T) {
	w := world(t)
	name := fmt.Sprintf("fairlead-heal-%d", os.Getpid())
	onServer(t, w, "ip netns add "+name)
	t.Cleanup(func() { onServer(t, w, "ip netns del "+name) })
	s := dual(t, w, model.DriverBridge, "web")
	s.Endpoints[0].Sandbox = "/run/netns/" + name
	publish(&s, "web", model.ViaNAT, model.TCP, 8080, 80)
	mustSet(t, w, s)
	onServer(t, w, "ip netns del "+name+" && ip netns add "+name)
	if _, err := w.Engine.Heal(context.Background()); err != nil {
		t.Fatal(err)
	}
	undrifted(t, w)
	ns, err := netns.Open("/run/netns/" + name)
	if err != nil {
		t.Fatal(err)
	}
	defer ns.Close()
	serve(t, ns.Do, "web", ":80")
	hears(t, w.DoClient, model.TCP, "198.51.100.2:8080", "web")
}

// TestSetAfterAnOutsideFlush changes the state while the engine's cached plan
// no longer matches the host.
func TestSetAfterAnOutsideFlush(t *testing.T) {
	w := world(t)
	s := dual(t, w, model.DriverBridge, "web")
	publish(&s, "web", model.ViaNAT, model.TCP, 8080, 80)
	publish(&s, "web", model.ViaNAT, model.TCP, 8081, 80)
	mustSet(t, w, s)
	serve(t, in(w, "web"), "web", ":80")
	onServer(t, w, "nft flush ruleset")
	s.Publishes = s.Publishes[:1]
	mustSet(t, w, s)
	undrifted(t, w)
	hears(t, w.DoClient, model.TCP, "198.51.100.2:8080", "web")
}
