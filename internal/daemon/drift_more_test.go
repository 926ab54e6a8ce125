package daemon_test

import (
	"context"
	"fmt"
	"maps"
	"slices"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"fairlead/internal/api"
	"fairlead/internal/kernel"
	"fairlead/internal/model"
	"fairlead/internal/plan"
	"fairlead/test/place"
	"fairlead/test/shell"
)

// TestHealRoutedNetwork does the damages that TestHealBridge does not.
func TestHealRoutedNetwork(t *testing.T) {
	w := newLANWorld(t)
	w.start()
	before := w.snapshot()
	n := lan
	n.Driver = model.DriverRouted
	b := w.web(n, model.Limit{}, kernelPublishes())
	w.suffers(b, []damage{
		{"route deleted", false, "ip route del 172.30.0.2", "route 172.30.0.2/32"},
		{"routes flushed", false, "ip route flush proto 250; ip -6 route flush proto 250", "route fd00:30::2/128"},
		{"address deleted", false, "ip addr del 172.30.0.1/32 dev fv-web", "address fv-web"},
		{"veth deleted", false, "ip link del fv-web", "ip link add fv-web"},
		{"veth down and up again", false, "ip link set fv-web down; ip link set fv-web up", "route 172.30.0.2/32"},
		{"veth's group", false, "ip link set fv-web group 7", "link set fv-web group 1717660019"},
		{"sandbox's link deleted", true, "ip link del eth0", "ip link add fv-web"},
		{"sandbox's MTU", true, "ip link set eth0 mtu 1300", "mtu 1500"},
	}, 8080, 8081)
	b.kill()
	w.nothingLeft(before)
}

// TestHealOnLAN deletes a macvlan's parent and creates it again. Meanwhile the network
// is unavailable, also one without attachments, and a bridge on the same host is not.
// Afterwards the sandboxes have their earlier addresses.
func TestHealOnLAN(t *testing.T) {
	w := newLANWorld(t)
	w.start()
	w.network(lan)
	w.network(model.Network{Name: "wired", Driver: model.DriverMacvlan, Parent: wire, Subnets: []model.Subnet{
		{Prefix: prefix("198.51.100.0/24"), Range: prefix("198.51.100.64/26")},
		{Prefix: prefix("2001:db8::/64"), Range: prefix("2001:db8::1:0/112")}}})
	w.network(model.Network{Name: "spare", Driver: model.DriverMacvlan, Parent: wire})
	unavailable := func() string {
		return strings.Join(slices.Sorted(maps.Keys(w.Unavailable())), " ")
	}
	inner, first, second := w.watchedSandbox(), w.watchedSandbox(), w.watchedSandbox()
	w.attach(to(inner))
	inner.serves(t, ":80")
	w.publish(inner, published(model.ViaEBPF, 8080))
	attach := func(b watchedSandbox) model.Endpoint {
		return w.attach(api.AttachRequest{Endpoint: model.Endpoint{Network: "wired",
			Sandbox: b.pid}}).Attachments[0].Endpoint
	}
	attach(first)
	web := attach(second)
	second.serves(t, ":80")
	if _, err := w.Detach(context.Background(), api.DetachRequest{Network: "wired", Sandbox: first.pid}); err != nil {
		t.Fatal(err)
	}
	at := web.Addresses[0].String() + ":80"
	w.answers(w.client.Do, at)
	w.suffers(second, []damage{
		{"deleted", true, "ip link del eth0", "type macvlan"},
		{"down for a moment", true, "ip link set eth0 down; ip link set eth0 up", "default"},
		{"shim's group", false, "ip link set fm-wired group default", "link set fm-wired group 1717660019"},
		{"mode changed", true, "ip link set eth0 type macvlan mode vepa", "type macvlan"},
	})
	w.answers(w.client.Do, at)
	w.reached(8080)

	ctx, cancel := context.WithCancel(context.Background())
	defer cancel()
	events := w.FollowEvents(ctx)
	w.sh("ip link del " + wire)
	w.awaitEvent(events, api.NetworkUnavailable, "network wired")
	if got := unavailable(); got != "spare wired" {
		t.Errorf("unavailable networks: %s", got)
	}
	for _, v := range w.Attachments() {
		if (v.Status == api.Up) != (v.Network == "lan") || (v.Problem == "") != (v.Network == "lan") {
			t.Errorf("%s is %s: %s", v.Name, v.Status, v.Problem)
		}
	}
	// Meanwhile the rest is repaired, and others can be attached.
	w.suffers(inner, []damage{{"bridge deleted", false, "ip link del fl-lan", "ip link add fl-lan"}})
	w.answers(w.host.Do, "127.0.0.1:8080")
	another := w.watchedSandbox()
	w.attach(to(another))
	if _, err := w.Attach(context.Background(),
		api.AttachRequest{Endpoint: model.Endpoint{Network: "wired", Sandbox: another.pid}}); err == nil {
		t.Error("a sandbox was attached to a network without its parent")
	}
	w.cable()
	w.awaitEvent(events, api.NetworkAvailable, "network wired")
	if got := unavailable(); got != "" {
		t.Errorf("unavailable networks after the parent is back: %s", got)
	}
	w.answers(w.client.Do, at)
	w.reached(8080) // by a new uplink
}

// TestHealOverlay damages the tables that contain the other hosts.
func TestHealOverlay(t *testing.T) {
	w := newLANWorld(t)
	w.start()
	before := w.snapshot()
	w.network(model.Network{Name: "over", Driver: model.DriverVXLAN,
		Subnets: []model.Subnet{{Prefix: prefix("10.9.0.0/16")}},
		Overlay: model.Overlay{VNI: 42, Peers: []model.Peer{
			{Address: addrs(hosts4)[0], Ranges: prefixes("10.9.1.0/24")},
			{Address: addrs("198.51.100.1")[0], Ranges: prefixes("10.9.2.0/24")}}}})
	b := w.watchedSandbox()
	req := to(b)
	req.Name, req.Network = "web", "over"
	w.attach(req)
	const gateway, mac = "10.9.2.0", "02:f1:0a:09:02:00" // the other host's own
	table := plan.NoTrack{Port: model.PortVXLAN, Local: addrs(hosts4)[0]}.Table()
	w.suffers(b, []damage{
		{"neighbour deleted", false, "ip neigh del " + gateway + " dev fl-over", "neighbor fl-over"},
		{"neighbour changed", false, "ip neigh replace " + gateway +
			" lladdr 02:00:00:00:00:01 dev fl-over nud permanent", "neighbor fl-over"},
		{"entry deleted", false, "bridge fdb del " + mac + " dev fx-over self master", "fdb fx-over"},
		{"tunnel deleted", false, "ip link del fx-over", "type vxlan"},
		{"table deleted", false, "nft delete table inet " + table, "table " + table},
	})
	b.kill()
	w.nothingLeft(before)
}

// TestFollowHostAddresses: a port is also published at addresses that the host gets
// later.
func TestFollowHostAddresses(t *testing.T) {
	w := newLANWorld(t)
	w.start()
	w.web(lan, model.Limit{}, published(model.ViaEBPF, 8080))
	w.reached(8080)
	w.sh("ip addr add 198.51.100.77/24 dev " + wire)
	w.answers(w.client.Do, "198.51.100.77:8080")
	// Also via a link that is created later.
	if err := kernel.Wire(w.host, w.client, "wire1", 1500); err != nil {
		t.Fatal(err)
	}
	w.sh("ip addr add 203.0.113.2/24 dev wire1; ip link set wire1 up")
	shell.Run(t, w.client.Do, "ip addr add 203.0.113.1/24 dev wire1; ip link set wire1 up")
	w.answers(w.client.Do, "203.0.113.2:8080")
}

// askedHost counts how often the kernel's state is read. Reads of the uplinks do not
// count: a new link is read because it needs Fairlead's programs, and again when it is
// up.
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

// TestNoReadsAtRest: traffic, the daemon's own changes and foreign changes do not make
// it read the kernel's state.
func TestNoReadsAtRest(t *testing.T) {
	w := newLANWorld(t)
	c := &askedHost{Host: w.host}
	w.wrap = c
	w.start()
	w.web(lan, model.Limit{}, kernelPublishes())
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
		if _, err := w.Publish(context.Background(),
			api.PublishRequest{Target: req.Name, Publishes: published(model.ViaNAT, uint16(9000+i))}); err != nil {
			t.Fatal(err)
		}
		w.sh(strings.ReplaceAll(foreign, "theirs", fmt.Sprint("theirs", i)))
		for _, name := range []string{fmt.Sprint("other", i), fmt.Sprint("routed", i)} {
			if _, err := w.Detach(context.Background(), api.DetachRequest{Name: name}); err != nil {
				t.Fatal(err)
			}
		}
	}
	settled(t, w)
	if asked := c.asked.Load() - before; asked != 1 { // see settled
		t.Errorf("the kernel's state was read %d times", asked)
	}
	for i := range 3 {
		w.sh(fmt.Sprintf("ip route show 192.0.2.0/24 dev theirs%[1]d | grep -q . || test %[1]d != 0; nft list table ip theirs%[1]d; ip link del theirs%[1]d", i))
	}
	if all := w.Events(); len(all) != 1 { // see settled
		t.Errorf("events: %+v", all)
	}
}

// settled waits until the daemon has handled all earlier events. To do so it causes
// one damage, and waits for its repair.
func settled(t *testing.T, w *lanWorld) {
	t.Helper()
	events := w.FollowEvents(t.Context())
	w.sh("sysctl -qw net.ipv4.ip_forward=0")
	w.awaitEvent(events, api.Healed, "ip_forward")
}

// TestConflict: if another program changes an object after each repair, the daemon
// reports a conflict and waits longer between repairs.
func TestConflict(t *testing.T) {
	w := newLANWorld(t)
	w.start()
	w.web(lan, model.Limit{}, published(model.ViaNAT, 8080))
	events := w.FollowEvents(t.Context())
	for range 1000 {
		w.sh("nft flush ruleset")
		var e api.Event
		select {
		case e = <-events:
		case <-time.After(place.Timeout):
			t.Fatal("timeout: no repair is reported")
		}
		if e.Kind == api.Conflicting {
			if !strings.Contains(e.Detail, "nft (process ") || !strings.Contains(e.Detail, "keeps changing nft table") {
				t.Errorf("the conflict's detail is %s", e.Detail)
			}
			w.awaitEvent(events, api.Healed, "nft table") // the daemon does not give up
			return
		}
	}
	t.Error("no conflict is reported after 1000 repairs")
}
