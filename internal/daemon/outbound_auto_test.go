package daemon_test

import (
	"net"
	"net/netip"
	"strings"
	"testing"
	"time"

	"fairlead/internal/api"
	"fairlead/internal/model"
	"fairlead/internal/plan"
	"fairlead/test/place"

	"github.com/google/nftables"
)

// autoWorld is a host with a network with outbound auto, whose sandbox web connects to a host of
// the LAN.
type autoWorld struct {
	*lanWorld
	box    watchedSandbox
	events <-chan api.Event
}

// newAutoWorld starts a daemon that chooses ebpf again after hold.
func newAutoWorld(t *testing.T, hold time.Duration) *autoWorld {
	t.Helper()
	w := &autoWorld{lanWorld: newLANWorld(t)}
	w.hold = hold
	w.sh("nft add table inet others; nft add chain inet others c '{ type filter hook forward priority 0; " +
		"policy drop; }'; nft add rule inet others c iifname docker0 drop; nft add rule inet others c accept")
	place.Answer(t, w.client.Do, "198.51.100.1:9000", func(r place.Request) string { return r.Client.String() })
	w.start()
	w.events = w.FollowEvents(t.Context())
	n := lan
	n.Outbound = model.OutboundAuto
	w.network(n)
	w.box = w.watchedSandbox()
	w.attach(api.AttachRequest{Endpoint: model.Endpoint{Name: "web", Network: n.Name, Sandbox: w.box.pid}})
	return w
}

// bypasses awaits the choice of ebpf, and checks with packets that it is applied.
func (w *autoWorld) bypasses(why string) {
	w.Helper()
	w.awaitsEvent(w.events, "outbound ebpf")
	for _, network := range []string{"tcp", "udp"} {
		from, err := w.box.asks(network, place.Timeout)
		if err != nil || !plan.IsOutboundPort(from.Port()) {
			w.Errorf("%s: %s comes from %s, %v", why, network, from, err)
		}
	}
}

// autoRules are rules of other programs that decide about the packets of the sandbox web, or about
// the answers, and a part of the reason that the daemon gives.
var autoRules = []struct{ add, remove, reason string }{
	{"nft add table inet t; nft add chain inet t c '{ type filter hook forward priority 0; }'; " +
		"nft add rule inet t c ip daddr 198.51.100.1 drop", "nft delete table inet t", "chain c (inet t)"},
	{"iptables -I FORWARD -d 198.51.100.0/24 -j DROP", "iptables -D FORWARD -d 198.51.100.0/24 -j DROP",
		"chain FORWARD (ip filter)"},
	{"iptables-legacy -I FORWARD -d 198.51.100.0/24 -j DROP", "iptables-legacy -D FORWARD -d 198.51.100.0/24 -j DROP",
		"chain FORWARD (ip filter (legacy))"},
	{"iptables-legacy -t mangle -I PREROUTING -s 198.51.100.1 -j DROP",
		"iptables-legacy -t mangle -D PREROUTING -s 198.51.100.1 -j DROP", "chain PREROUTING (ip mangle (legacy))"},
	{"nft add table bridge t; nft add chain bridge t c '{ type filter hook prerouting priority 0; }'; " +
		"nft add rule bridge t c iifname fv-web ether type ip drop", "nft delete table bridge t", "chain c (bridge t)"},
	{"nft add table bridge t; nft add chain bridge t c '{ type filter hook output priority 0; }'; " +
		"nft add rule bridge t c oifname fv-web ether type ip drop", "nft delete table bridge t", "chain c (bridge t)"},
	{"nft add table netdev t; nft add chain netdev t c '{ type filter hook ingress device " + wire + " priority 0; }'; " +
		"nft add rule netdev t c ip saddr 198.51.100.1 drop", "nft delete table netdev t", "chain c (netdev t)"},
}

// TestOutboundAuto adds rules of other programs that would decide about outbound connections,
// and removes them. While there is one, the connections obey it. Rules about other packets
// change nothing.
func TestOutboundAuto(t *testing.T) {
	w := newAutoWorld(t, 10*time.Millisecond)
	w.bypasses("without rules")
	for _, rule := range autoRules {
		w.sh(rule.add)
		w.awaitsEvent(w.events, "outbound nft")
		for _, network := range []string{"tcp", "udp"} {
			if from, err := w.box.asks(network, 100*time.Millisecond); err == nil {
				t.Errorf("%s: %s comes from %s", rule.add, network, from)
			}
		}
		if got := w.Outbound()[lan.Name].String(); !strings.Contains(got, rule.reason) {
			t.Errorf("%s: the choice is %q", rule.add, got)
		}
		w.sh(rule.remove)
		w.bypasses(rule.remove)
	}
	w.box.kill()
}

// TestOutboundAutoHolds: ebpf is not chosen as soon as the rule is gone. Another daemon keeps
// what was chosen, with its connections.
func TestOutboundAutoHolds(t *testing.T) {
	w := newAutoWorld(t, time.Hour)
	open := w.connects()
	w.stop()
	w.start()
	w.events = w.FollowEvents(t.Context())
	w.bypasses("with another daemon")
	if err := converse(open, place.Timeout); err != nil {
		t.Errorf("the connection does not continue with another daemon: %v", err)
	}
	rule := autoRules[0]
	w.sh(rule.add)
	w.awaitsEvent(w.events, "outbound nft")
	w.sh(rule.remove)
	w.until("ebpf has a time", func() bool { return !w.Outbound()[lan.Name].Until.IsZero() })
	for _, network := range []string{"tcp", "udp"} {
		if from, err := w.box.asks(network, place.Timeout); err != nil || plan.IsOutboundPort(from.Port()) {
			t.Errorf("while it waits, %s comes from %s, %v", network, from, err)
		}
	}
	w.box.kill()
}

// TestOutboundAutoFollowsLinks: a rule decides as soon as the host has the link that it names.
func TestOutboundAutoFollowsLinks(t *testing.T) {
	w := newAutoWorld(t, 10*time.Millisecond)
	w.sh("nft add table inet t; nft add chain inet t c '{ type filter hook forward priority 0; }'; " +
		"nft add rule inet t c oifname { later0, wan0 } drop")
	w.bypasses("links that the rule does not name")
	w.sh("ip link add later0 type veth peer name later1")
	w.awaitsEvent(w.events, "outbound nft")
	w.sh("ip link delete later0")
	w.bypasses("without the link")
	w.sh("ip link set " + wire + " down; ip link set " + wire + " name wan0; ip link set wan0 up")
	w.awaitsEvent(w.events, "outbound nft")
	for _, network := range []string{"tcp", "udp"} {
		if from, err := w.box.asks(network, 100*time.Millisecond); err == nil {
			t.Errorf("%s comes from %s", network, from)
		}
	}
	w.box.kill()
}

// TestOutboundAutoFollowsElements: elements of sets expire without a message of the kernel. Then a
// rule decides about the connections that it did not decide about before, or the reverse.
func TestOutboundAutoFollowsElements(t *testing.T) {
	w := newAutoWorld(t, 10*time.Millisecond)
	w.bypasses("without rules")
	w.sh("nft -f - <<end\ntable inet t {\nset s { type ipv4_addr; flags interval, timeout; " +
		"elements = { 0.0.0.0/1 timeout 1s, 128.0.0.0/1 timeout 1s }; }\n" +
		"chain c { type filter hook forward priority 0; ct state established,related accept; ip saddr @s accept; drop; }\n" +
		"}\nend")
	w.awaitsEvent(w.events, "outbound nft")
	for _, network := range []string{"tcp", "udp"} {
		if from, err := w.box.asks(network, 100*time.Millisecond); err == nil {
			t.Errorf("without the elements, %s comes from %s", network, from)
		}
	}
	w.sh("nft -f - <<end\nflush chain inet t c\nadd map inet t m { type ipv4_addr : verdict; flags timeout; }\n" +
		"add element inet t m { 198.51.100.1 timeout 1s : drop }\nadd rule inet t c ip daddr vmap @m\nend")
	w.bypasses("without the element")
	w.box.kill()
}

// TestOutboundAutoFollowsPorts: the host may connect from the ports of outbound flows, of which the
// kernel sends no message. Then the kernel translates the connections.
func TestOutboundAutoFollowsPorts(t *testing.T) {
	w := newAutoWorld(t, 10*time.Millisecond)
	w.bypasses("without rules")
	w.sh("sysctl -qw net.ipv4.ip_local_port_range='1024 65535'")
	w.awaitsEvent(w.events, "outbound nft")
	for _, network := range []string{"tcp", "udp"} {
		if from, err := w.box.asks(network, place.Timeout); err != nil || plan.IsOutboundPort(from.Port()) {
			t.Errorf("%s comes from %s, %v", network, from, err)
		}
	}
	w.sh("sysctl -qw net.ipv4.ip_local_port_range='32768 60999'")
	w.bypasses("with other ports")
	w.box.kill()
}

// TestOutboundAutoWaits: another program changes its rules faster than they can be read, for a
// second. That resets no connection, and a rule that decides afterwards counts.
func TestOutboundAutoWaits(t *testing.T) {
	w := newAutoWorld(t, 10*time.Millisecond)
	open := w.connects()
	burst := &nftables.Table{Name: "burst", Family: nftables.TableFamilyINet}
	if err := w.host.Do(func() error {
		c, err := nftables.New()
		for end := time.Now().Add(time.Second); err == nil && time.Now().Before(end); {
			c.AddTable(burst)
			if err = c.Flush(); err == nil {
				c.DelTable(burst)
				err = c.Flush()
			}
		}
		return err
	}); err != nil {
		t.Fatal(err)
	}
	if err := converse(open, place.Timeout); err != nil {
		t.Errorf("the connection does not continue: %v", err)
	}
	w.sh(autoRules[0].add)
	w.awaitsEvent(w.events, "outbound nft: the rule")
	w.box.kill()
}

// connects opens a connection of the sandbox that bypasses the rules, and uses it.
func (w *autoWorld) connects() net.Conn {
	w.Helper()
	place.Serve(w, w.client.Do, "198.51.100.1:9001", place.Echo)
	w.bypasses("without rules")
	open, err := place.Dial(w.box.in, "tcp", "198.51.100.1:9001", place.Timeout)
	if err != nil {
		w.Fatal(err)
	}
	w.Cleanup(func() { open.Close() })
	if err := converse(open, place.Timeout); err != nil {
		w.Fatal(err)
	}
	return open
}

// awaitsEvent waits for the event that something was chosen.
func (w *world) awaitsEvent(events <-chan api.Event, choice string) {
	w.Helper()
	for end := time.After(place.Timeout); ; {
		select {
		case e := <-events:
			if e.Kind == api.OutboundChosen && e.Object == "network "+lan.Name {
				if !strings.HasPrefix(e.Detail, choice) {
					w.Fatalf("the event says %q, want %q", e.Detail, choice)
				}
				return
			}
		case <-end:
			w.Fatalf("timeout: no event that says %q", choice)
		}
	}
}

// asks returns the address and port from which a server on the LAN sees the sandbox.
func (b watchedSandbox) asks(network string, wait time.Duration) (netip.AddrPort, error) {
	c, err := place.Dial(b.in, network, "198.51.100.1:9000", wait)
	if err != nil {
		return netip.AddrPort{}, err
	}
	defer c.Close()
	_ = c.SetDeadline(time.Now().Add(wait))
	if _, err := c.Write([]byte("who am I\n")); err != nil {
		return netip.AddrPort{}, err
	}
	answer := make([]byte, 256)
	size, err := c.Read(answer)
	if err != nil {
		return netip.AddrPort{}, err
	}
	return netip.ParseAddrPort(strings.TrimSpace(string(answer[:size])))
}
