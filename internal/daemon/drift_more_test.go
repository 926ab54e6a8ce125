package daemon_test

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"sync/atomic"
	"testing"

	"fairlead/internal/daemon"
	"fairlead/internal/kernel"
	"fairlead/internal/model"
	"fairlead/internal/plan"
	"fairlead/test/shell"
)

// TestHealsARoutedHost damages what the bridge's test has not.
func TestHealsARoutedHost(t *testing.T) {
	w := newLANWorld(t)
	w.start()
	before := w.snapshot()
	n := lan
	n.Driver = model.DriverRouted
	b := w.web(n, model.Limit{}, bothDirections())
	w.suffers(b, []damage{
		{"route deleted", false, "ip route del 172.30.0.2", "route  172.30.0.2/32"},
		{"routes flushed", false, "ip route flush proto 250; ip -6 route flush proto 250", "route  fd00:30::2/128"},
		{"address deleted", false, "ip addr del 172.30.0.1/32 dev fv-web", "address  fv-web"},
		{"veth deleted", false, "ip link del fv-web", "ip link add fv-web"},
		{"veth down and up again", false, "ip link set fv-web down; ip link set fv-web up", "route  172.30.0.2/32"},
		{"sandbox's link deleted", true, "ip link del eth0", "ip link add fv-web"},
		{"sandbox's MTU", true, "ip link set eth0 mtu 1300", "mtu 1500"},
	}, 8080, 8081)
	b.kill()
	w.nothingLeft(before)
}

// TestHealsOnTheLAN has a macvlan's parent go and come back: its sandboxes are
// parted, a bridge beside them is not, and they come back as they were.
func TestHealsOnTheLAN(t *testing.T) {
	w := newLANWorld(t)
	w.start()
	w.network(lan)
	w.network(model.Network{Name: "wired", Driver: model.DriverMacvlan, Parent: wire, Subnets: []model.Subnet{
		{Prefix: prefix("198.51.100.0/24"), Range: prefix("198.51.100.64/26")}, {Prefix: prefix("2001:db8::/64"), Range: prefix("2001:db8::1:0/112")}}})
	inner, first, second := w.watchedSandbox(), w.watchedSandbox(), w.watchedSandbox()
	w.attach(to(inner))
	inner.serves(t, ":80")
	w.publish(inner, published(model.ViaEBPF, 8080))
	attach := func(b watchedSandbox) model.Endpoint {
		return w.attach(daemon.AttachRequest{Endpoint: model.Endpoint{Network: "wired", Sandbox: b.pid}}).Attachments[0].Endpoint
	}
	attach(first)
	web := attach(second)
	second.serves(t, ":80")
	if _, err := w.Detach(context.Background(), daemon.DetachRequest{Network: "wired", Sandbox: first.pid}); err != nil {
		t.Fatal(err)
	}
	at := web.Addresses[0].String() + ":80"
	w.answers(w.client.Do, at)
	w.suffers(second, []damage{
		{"deleted", true, "ip link del eth0", "type macvlan"},
		{"down for a moment", true, "ip link set eth0 down; ip link set eth0 up", "default"},
		{"mode changed", true, "ip link set eth0 type macvlan mode vepa", "type macvlan"},
	})
	w.answers(w.client.Do, at)
	w.reached(8080)

	ctx, cancel := context.WithCancel(context.Background())
	defer cancel()
	events := w.FollowEvents(ctx)
	w.sh("ip link del " + wire)
	w.heard(events, daemon.NetworkUnavailable, "network wired")
	for _, v := range w.Attachments() {
		if (v.Status == daemon.Up) != (v.Network == "lan") || (v.Problem == "") != (v.Network == "lan") {
			t.Errorf("%s is %s: %s", v.Name, v.Status, v.Problem)
		}
	}
	// The rest is healed meanwhile, and others can come and go.
	w.suffers(inner, []damage{{"bridge deleted", false, "ip link del fl-lan", "ip link add fl-lan"}})
	w.answers(w.host.Do, "127.0.0.1:8080")
	another := w.watchedSandbox()
	w.attach(to(another))
	if _, err := w.Attach(context.Background(), daemon.AttachRequest{Endpoint: model.Endpoint{Network: "wired", Sandbox: another.pid}}); err == nil {
		t.Error("a sandbox is attached to a network without its parent")
	}
	w.cable()
	w.heard(events, daemon.NetworkAvailable, "network wired")
	w.answers(w.client.Do, at)
	w.reached(8080) // by a new uplink
}

// TestHealsAnOverlay damages tables that other hosts are found by.
func TestHealsAnOverlay(t *testing.T) {
	w := newLANWorld(t)
	w.start()
	before := w.snapshot()
	w.network(model.Network{Name: "over", Driver: model.DriverVXLAN, Subnets: []model.Subnet{{Prefix: prefix("10.9.0.0/16")}},
		Overlay: model.Overlay{VNI: 42, Peers: []model.Peer{
			{Address: addrs(hosts4)[0], Ranges: prefixes("10.9.1.0/24")},
			{Address: addrs("198.51.100.1")[0], Ranges: prefixes("10.9.2.0/24")}}}})
	b := w.watchedSandbox()
	req := to(b)
	req.Name, req.Network = "web", "over"
	w.attach(req)
	const gateway, mac = "10.9.2.0", "02:f1:0a:09:02:00" // the other host's own
	w.suffers(b, []damage{
		{"neighbour deleted", false, "ip neigh del " + gateway + " dev fl-over", "neighbor fl-over"},
		{"neighbour changed", false, "ip neigh replace " + gateway + " lladdr 02:00:00:00:00:01 dev fl-over nud permanent", "neighbor fl-over"},
		{"entry deleted", false, "bridge fdb del " + mac + " dev fx-over self master", "fdb fx-over"},
		{"tunnel deleted", false, "ip link del fx-over", "type vxlan"},
		{"table deleted", false, "nft delete table inet fairlead-udp-4789", "table fairlead-udp-4789"},
	})
	b.kill()
	w.nothingLeft(before)
}

// TestFollowsTheHostsAddresses leads what comes to an address that the host has
// got after the port was published.
func TestFollowsTheHostsAddresses(t *testing.T) {
	w := newLANWorld(t)
	w.start()
	w.web(lan, model.Limit{}, published(model.ViaEBPF, 8080))
	w.reached(8080)
	w.sh("ip addr add 198.51.100.77/24 dev " + wire)
	w.answers(w.client.Do, "198.51.100.77:8080")
	// And by a link that has come meanwhile.
	if err := kernel.Wire(w.host, w.client, "wire1", 1500); err != nil {
		t.Fatal(err)
	}
	w.sh("ip addr add 203.0.113.2/24 dev wire1; ip link set wire1 up")
	shell.Run(t, w.client.Do, "ip addr add 203.0.113.1/24 dev wire1; ip link set wire1 up")
	w.answers(w.client.Do, "203.0.113.2:8080")
}

// askedHost counts how often the kernel is asked what it holds. Its uplinks are
// not counted: a link that has come is looked at, for it needs our program, and
// once more when it is up, unless that comes at once.
type askedHost struct {
	*kernel.Host
	asked atomic.Int64
}

func (c *askedHost) Observe(should, want plan.Plan) (plan.Plan, error) {
	c.asked.Add(1)
	return c.Host.Observe(should, want)
}

func (c *askedHost) ObservePart(part plan.Plan) (plan.Plan, error) {
	if slices.ContainsFunc(part, func(o plan.Object) bool { return o != plan.Object(plan.Uplinks{}) }) {
		c.asked.Add(1)
	}
	return c.Host.ObservePart(part)
}

// TestLooksAtNothingAtRest has traffic, our own changes and foreign ones, none
// of which is a reason to look at what we hold.
func TestLooksAtNothingAtRest(t *testing.T) {
	w := newLANWorld(t)
	c := &askedHost{Host: w.host}
	w.wrap = c
	w.start()
	w.web(lan, model.Limit{}, bothDirections())
	routed := lan
	routed.Name, routed.Driver = "routed", model.DriverRouted
	routed.Subnets = []model.Subnet{{Prefix: prefix("172.31.0.0/16")}, {Prefix: prefix("fd00:31::/64")}}
	w.network(routed)
	before := c.asked.Load()
	foreign := "ip link add theirs type bridge; ip addr add 203.0.113.9/24 dev theirs; ip link set theirs up; ip route add 192.0.2.0/24 dev theirs;" +
		" nft add table ip theirs; nft add chain ip theirs c; sysctl -qw net.ipv4.conf.theirs.rp_filter=2"
	for i := range 3 {
		w.reached(8080, 8081)
		other := w.watchedSandbox()
		req := to(other)
		req.Name = fmt.Sprint("other", i)
		req.Limit.Out = 1 << 30
		w.attach(req)
		req.Network, req.Name = "routed", fmt.Sprint("routed", i)
		w.attach(req)
		if _, err := w.Publish(context.Background(), daemon.PublishRequest{Target: req.Name, Publishes: published(model.ViaNAT, uint16(9000+i))}); err != nil {
			t.Fatal(err)
		}
		w.sh(strings.ReplaceAll(foreign, "theirs", fmt.Sprint("theirs", i)))
		for _, name := range []string{fmt.Sprint("other", i), fmt.Sprint("routed", i)} {
			if _, err := w.Detach(context.Background(), daemon.DetachRequest{Name: name}); err != nil {
				t.Fatal(err)
			}
		}
	}
	settled(t, w)
	if asked := c.asked.Load() - before; asked != 1 { // see settled
		t.Errorf("the kernel was asked %d times what it holds", asked)
	}
	for i := range 3 {
		w.sh(fmt.Sprintf("ip route show 192.0.2.0/24 dev theirs%[1]d | grep -q . || test %[1]d != 0; nft list table ip theirs%[1]d; ip link del theirs%[1]d", i))
	}
	if all := w.Events(); len(all) != 1 { // see settled
		t.Errorf("events: %+v", all)
	}
}

// settled waits until the daemon has heard all that has happened so far: what
// it tells of next is a damage that comes after.
func settled(t *testing.T, w *lanWorld) {
	t.Helper()
	events := w.FollowEvents(t.Context())
	w.sh("sysctl -qw net.ipv4.ip_forward=0")
	w.heard(events, daemon.Healed, "ip_forward")
}

// TestSomebodyKeepsChanging wants a truce with who changes a thing again as soon
// as it is put right.
func TestSomebodyKeepsChanging(t *testing.T) {
	w := newLANWorld(t)
	w.start()
	w.web(lan, model.Limit{}, published(model.ViaNAT, 8080))
	events := w.FollowEvents(t.Context())
	for range 1000 {
		w.sh("nft flush ruleset")
		e := <-events
		if e.Kind == daemon.Conflicting {
			if !strings.Contains(e.Detail, "nft (process ") || !strings.Contains(e.Detail, "keeps changing nft table") {
				t.Errorf("who keeps changing it: %s", e.Detail)
			}
			w.heard(events, daemon.Healed, "nft table") // it is not given up
			return
		}
	}
	t.Error("the table is put right for ever")
}
