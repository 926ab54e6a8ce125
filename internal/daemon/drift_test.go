package daemon_test

import (
	"context"
	"errors"
	"fmt"
	"net"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"fairlead/internal/api"
	"fairlead/internal/kernel"
	"fairlead/internal/kernel/kerneltest"
	"fairlead/internal/model"
	"fairlead/test/place"
	"fairlead/test/shell"

	"golang.org/x/sys/unix"
)

// The link to the client, and the addresses at its ends.
const (
	wire    = "wire0"
	hosts4  = "198.51.100.2"
	hosts6  = "2001:db8::2"
	wireNet = "ip addr add 198.51.100.%[1]d/24 dev wire0; ip addr add 2001:db8::%[1]d/64 dev wire0 nodad; ip link set wire0 up"
)

// lanWorld is a host with a client on a direct link, and a directory for pins.
type lanWorld struct {
	*world
	client *kernel.Host
}

func newLANWorld(t testing.TB) *lanWorld {
	t.Helper()
	root := filepath.Join(t.TempDir(), "bpf")
	shell.Run(t, func(fn func() error) error { return fn() }, "mkdir "+root)
	if err := unix.Mount("bpf", root, "bpf", 0, ""); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := unix.Unmount(root, unix.MNT_DETACH); err != nil {
			t.Error(err)
		}
	})
	open := func(opt kernel.Options) *kernel.Host {
		ns := kerneltest.Netns(t)
		h, err := kernel.Open(ns.Path(), opt)
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() {
			if err := h.Close(); err != nil {
				t.Error(err)
			}
		})
		return h
	}
	pins := filepath.Join(root, "fairlead")
	w := &lanWorld{client: open(kernel.Options{}), world: worldOf(t, open(kernel.Options{Pins: pins, Rest: true}))}
	w.pins = pins
	w.cable()
	return w
}

// cable connects the host and the client.
func (w *lanWorld) cable() {
	w.Helper()
	if err := kernel.Wire(w.host, w.client, wire, 1500); err != nil {
		w.Fatal(err)
	}
	w.sh(fmt.Sprintf(wireNet, 2))
	shell.Run(w, w.client.Do, fmt.Sprintf(wireNet, 1))
}

// web creates a network with the sandbox web, which serves port 80 and publishes it.
func (w *lanWorld) web(n model.Network, limit model.Limit, publishes []model.Publish) watchedSandbox {
	w.Helper()
	w.network(n)
	b := w.watchedSandbox()
	w.attach(api.AttachRequest{Endpoint: model.Endpoint{Name: "web", Network: n.Name, Sandbox: b.pid, Limit: limit}})
	b.serves(w, ":80")
	w.publish(b, publishes)
	return b
}

// kernelPublishes returns publishes without user space: one via nat and one via ebpf.
func kernelPublishes() []model.Publish {
	return append(published(model.ViaNAT, 8080), published(model.ViaEBPF, 8081)...)
}

// reached connects to the ports at all addresses until each answers.
func (w *lanWorld) reached(ports ...int) {
	w.Helper()
	for _, port := range ports {
		for _, host := range []string{hosts4, hosts6} {
			w.answers(w.client.Do, net.JoinHostPort(host, fmt.Sprint(port)))
		}
	}
}

// answers connects to an address repeatedly until it answers.
func (w *lanWorld) answers(from func(func() error) error, addr string) {
	w.Helper()
	err := errors.New("no attempt was made")
	for deadline := time.Now().Add(place.Timeout); err != nil && time.Now().Before(deadline); {
		var conn net.Conn
		if conn, err = place.Dial(from, "tcp", addr, 200*time.Millisecond); err == nil {
			err = conn.Close()
		}
	}
	if err != nil {
		w.Errorf("%s never answers again: %v", addr, err)
	}
}

// awaitEvent waits for an event about an object that contains the text.
func (w *lanWorld) awaitEvent(events <-chan api.Event, kind api.EventKind, text string) api.Event {
	w.Helper()
	deadline := time.After(place.Timeout)
	for {
		select {
		case e := <-events:
			if e.Kind == kind && strings.Contains(e.Object+" "+strings.Join(e.Commands, "; "), text) {
				return e
			}
		case <-deadline:
			w.Errorf("no event %s about %q", kind, text)
			return api.Event{}
		}
	}
}

// discard discards the events that are pending.
func discard(events <-chan api.Event) {
	for {
		select {
		case <-events:
		default:
			return
		}
	}
}

// damage is a change that another program makes on a host, and the repair that the
// daemon reports.
type damage struct {
	name    string
	inside  bool // whether it is done in the sandbox
	command string
	healed  string
}

// suffers does each damage, and checks that it is repaired and that traffic flows
// again.
func (w *lanWorld) suffers(b watchedSandbox, all []damage, ports ...int) {
	w.Helper()
	ctx, cancel := context.WithCancel(context.Background())
	defer cancel()
	events := w.FollowEvents(ctx)
	w.reached(ports...)
	for _, d := range all {
		discard(events)
		if d.inside {
			b.sh(w, d.command)
		} else {
			w.sh(d.command)
		}
		w.awaitEvent(events, api.Healed, d.healed)
		w.reached(ports...)
		if w.Failed() {
			w.Fatalf("that was after %s", d.name)
		}
	}
}

// TestHealBridge damages the parts of a bridge, its sandboxes and their publishes.
func TestHealBridge(t *testing.T) {
	w := newLANWorld(t)
	w.sh("sysctl -qw net.ipv4.ip_forward=0")
	w.start()
	before := w.snapshot()
	n := lan
	n.Filter = model.FilterOn
	b := w.web(n, model.Limit{Out: 1 << 30}, kernelPublishes())
	const table = "inet fairlead"
	pinned := "$(ls -d " + w.pins + "/*/links/"
	w.suffers(b, []damage{
		{"ruleset flushed", false, "nft flush ruleset", "nft table"},
		{"table deleted", false, "nft delete table " + table, "nft table"},
		{"rule deleted", false, "nft flush chain " + table + " publish", "nft table"},
		{"rule added", false, "nft insert rule " + table + " forward drop", "nft table"},
		{"element deleted", false, "nft delete element " + table + " anyports4 '{ tcp . 8080 }'", "add element " +
			table + " anyports4"},
		{"foreign element", false, "nft add element " + table + " lan '{ fl-lan }'", "delete element " + table +
			" lan"},
		{"bridge deleted", false, "ip link del fl-lan", "ip link add fl-lan"},
		{"bridge down", false, "ip link set fl-lan down", "link fl-lan"},
		{"bridge down and up again", false,
			"ip link set fl-lan down; ip link set fl-lan up; ip addr flush dev fl-lan scope global", "fl-lan"},
		{"bridge renamed", false, renamed("fl-lan", "other"), "link fl-lan"},
		{"bridge's MTU", false, "ip link set fl-lan mtu 1400", "mtu 1500"},
		{"bridge's group", false, "ip link set fl-lan group default", "link set fl-lan group 1717660019"},
		{"bridge's filter", false, "ip link set fl-lan type bridge nf_call_iptables 0", "nf_call_iptables 1"},
		{"bridge's address", false, "ip addr flush dev fl-lan scope global", "address fl-lan"},
		{"veth deleted", false, "ip link del fv-web", "ip link add fv-web"},
		{"veth down", false, "ip link set fv-web down", "link fv-web"},
		{"veth off the bridge", false, "ip link set fv-web nomaster", "master fl-lan"},
		{"veth moved", false, elsewhere, "link fv-web"},
		{"port's mode", false, "bridge link set dev fv-web hairpin off", "hairpin on"},
		{"shaper", true, "tc qdisc del dev eth0 root", "tbf"},
		{"shaper's rate", true, "tc qdisc change dev eth0 root handle fa1e: tbf rate 1mbit burst 80k latency 50ms",
			"tbf"},
		{"forwarding", false, "sysctl -qw net.ipv4.ip_forward=0", "net.ipv4.ip_forward=1"},
		{"router advertisements", false, "sysctl -qw net.ipv6.conf.fl-lan.accept_ra=2",
			"net.ipv6.conf.fl-lan.accept_ra=0"},
		{"redirects at a port", false, "sysctl -qw net.ipv4.conf.fv-web.accept_redirects=1",
			"net.ipv4.conf.fv-web.accept_redirects=0"},
		{"program detached from the uplink", false, "bpftool link detach pinned " + pinned + "fl_uplink-*)",
			"bpf uplinks"},
		{"program detached from the sandbox", false, "bpftool link detach pinned " + pinned + "fl_sandbox-*)",
			"bpf ingress"},
		{"hook detached from the cgroup", false, "bpftool link detach pinned " + pinned + "fl_connect4-root)",
			"bpf local clients"},
		{"pin removed", false, "rm " + pinned + "fl_sandbox-*)", "bpf ingress"},
		{"all pins removed", false, "rm -r " + w.pins + "/*", "bpf uplinks"},
		{"mapping overwritten", false, mappingGone(w), "# ebpf: map tcp 0.0.0.0:8081"},
		{"sandbox's address", true, "ip addr flush dev eth0 scope global", "address"},
		{"sandbox's route", true, "ip route del default; ip -6 route del default", "default via"},
		{"sandbox's link down", true, "ip link set eth0 down", "link fv-web"},
		{"sandbox's link down for a moment", true, "ip link set eth0 down; ip link set eth0 up", "default via"},
		{"sandbox's link renamed", true, renamed("eth0", "eth9"), "link fv-web"},
		{"sandbox's hardware address", true, "ip link set eth0 address 02:00:00:00:00:01", "address 02:f1:"},
		{"sandbox's loopback", true, "ip link set lo down", "link set lo up"},
		{"sandbox's IPv6", true, "sysctl -qw net.ipv6.conf.eth0.disable_ipv6=1", "disable_ipv6=0"},
	}, 8080, 8081)
	b.kill()
	w.nothingLeft(before)
}

// TestForeignObjectInTheWay puts another program's object in the place of one of
// Fairlead's. It stays, everything else is repaired, and Fairlead's object is created
// when the other one is removed.
func TestForeignObjectInTheWay(t *testing.T) {
	w := newLANWorld(t)
	w.start()
	b := w.web(lan, model.Limit{}, published(model.ViaNAT, 8080))
	events := w.FollowEvents(t.Context())
	w.reached(8080)
	b.sh(t, "ip route replace default via 172.30.0.77 dev eth0")
	w.awaitEvent(events, api.Unhealed, "0.0.0.0/0")
	w.suffers(b, []damage{{"ruleset flushed", false, "nft flush ruleset", "nft table"}})
	w.answers(w.client.Do, net.JoinHostPort(hosts6, "8080"))
	if out := b.sh(t, "ip route show default"); !strings.Contains(out, "172.30.0.77") {
		t.Errorf("the foreign route was removed: %s", out)
	}
	b.sh(t, "ip route del default via 172.30.0.77")
	w.awaitEvent(events, api.Healed, "default via 172.30.0.1")
	w.reached(8080)
	// A failed repair is reported even right after a successful one. The daemon may
	// create its link again between the two commands: then they are repeated.
	w.suffers(b, []damage{{"veth deleted", false, "ip link del fv-web", "ip link add fv-web"}}, 8080)
	w.sh("until printf 'link del fv-web\nlink add fv-web type veth peer name theirs\n' | ip -batch - 2>/dev/null; do :; done")
	w.awaitEvent(events, api.Unhealed, "link fv-")
	w.sh("ip link del theirs")
	w.awaitEvent(events, api.Healed, "ip link add fv-")
	w.reached(8080)
}

// elsewhere is a command that moves a link to a namespace that then ends.
const elsewhere = `unshare -n sleep 100 >/dev/null 2>&1 &
until [ "$(readlink /proc/$!/ns/net)" != "$(readlink /proc/$$/ns/net)" ]; do :; done
ip link set fv-web netns $!; kill $!`

// renamed returns a command that renames a link, and waits until a link has the name
// again: the repair of the link's state may be reported before that.
func renamed(link, as string) string {
	return fmt.Sprintf("ip link set %[1]s down; ip link set %[1]s name %[2]s; until ip link show %[1]s >/dev/null 2>&1; do :; done", link, as)
}

// mappingGone returns a command that clears the list of mappings of a port.
func mappingGone(w *lanWorld) string {
	// 8081 as the index of IPv4 and TCP, in the machine's order.
	return "bpftool map update pinned $(ls -d " + w.pins + "/*/maps/fl_ports) key hex 91 1f 00 00 value hex 00 00 00 00"
}
