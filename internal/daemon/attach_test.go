package daemon_test

import (
	"context"
	"strings"
	"testing"

	"fairlead/internal/api"
	"fairlead/internal/model"
)

func TestAttachAndDetach(t *testing.T) {
	w := newWorld(t).start()
	before := w.snapshot()
	b := w.watchedSandbox()
	w.network(lan)
	w.unchanged(before) // until the first attachment
	r := w.attach(to(b))
	if len(r.Attachments) != 1 || !r.Changed {
		t.Fatalf("%+v", r)
	}
	v := r.Attachments[0]
	if v.Name != "pid-"+b.pid || v.Interface != "eth0" || len(v.Addresses) != 2 || v.Status != api.Up {
		t.Errorf("attached as %+v", v)
	}
	stop := w.serves(":7001")
	for _, addr := range []string{"172.30.0.1:7001", "[fd00:30::1]:7001"} {
		b.reaches(t, addr)
	}
	stop()

	links := w.links()
	if again := w.attach(to(b)); again.Changed || again.Attachments[0].Addresses[0] != v.Addresses[0] {
		t.Errorf("attach again: %+v", again)
	}
	if now := w.links(); now != links {
		t.Errorf("attach again changed links:\n%s\n%s", links, now)
	}
	if _, err := w.Detach(context.Background(), api.DetachRequest{Network: "lan", Sandbox: b.pid}); err != nil {
		t.Fatal(err)
	}
	w.unchanged(before)
	if r, err := w.Detach(context.Background(), api.DetachRequest{Name: v.Name}); err != nil || r.Changed {
		t.Errorf("detach again: %+v, %v", r, err)
	}
	if out := b.sh(t, "ip -o link"); strings.Contains(out, "eth0") {
		t.Errorf("the sandbox still has %s", out)
	}
}

// TestDetachBySandbox detaches a sandbox with one attachment by the sandbox's PID.
func TestDetachBySandbox(t *testing.T) {
	w := newWorld(t).start()
	before := w.snapshot()
	b := w.watchedSandbox()
	w.network(lan)
	w.attach(to(b))
	r, err := w.Detach(context.Background(), api.DetachRequest{Name: b.pid})
	if err != nil || !r.Changed || len(r.Attachments) != 1 || r.Attachments[0].Name != "pid-"+b.pid {
		t.Errorf("%+v, %v", r, err)
	}
	w.unchanged(before)
}

// TestSecondNetwork: attaching to a second network keeps the sandbox's default route.
func TestSecondNetwork(t *testing.T) {
	w := newWorld(t).start()
	b := w.watchedSandbox()
	w.network(lan)
	dmz := model.Network{Name: "dmz", Driver: model.DriverRouted,
		Subnets: []model.Subnet{{Prefix: lan.Subnets[0].Prefix}}}
	dmz.Subnets[0].Prefix = prefix("172.31.0.0/24")
	w.network(dmz)
	w.attach(to(b))
	req := to(b)
	req.Network = "dmz"
	r := w.attach(req)
	v := r.Attachments[0]
	if v.Name != "pid-"+b.pid+"-dmz" || v.Interface != "eth1" || !v.NoDefault || len(r.Notes) != 1 {
		t.Errorf("%+v", r)
	}
	if out := b.sh(t, "ip route show default"); !strings.Contains(out, "dev eth0") || strings.Contains(out, "eth1") {
		t.Errorf("default route: %s", out)
	}
	if again := w.attach(req); again.Changed {
		t.Errorf("attach again: %+v", again)
	}
	req.Gateways = addrs("172.31.0.9")
	if _, err := w.Attach(context.Background(), req); api.CodeOf(err) != api.Conflict {
		t.Errorf("a second gateway: %v", err)
	}
}

func TestAttachUpdates(t *testing.T) {
	w := newWorld(t).start()
	b, other := w.watchedSandbox(), w.watchedSandbox()
	w.network(lan)
	req := to(b)
	req.Name, req.Interface = "web", "net7"
	w.attach(req)
	req.Addresses = addrs("172.30.7.7")
	req.Limit.Out = 10_000_000
	if r := w.attach(req); !r.Changed || r.Attachments[0].Addresses[0].String() != "172.30.7.7" {
		t.Errorf("with an address: %+v", r)
	}
	if out := b.sh(t, "ip -o addr show net7; tc qdisc show dev net7"); !strings.Contains(out, "172.30.7.7/16") ||
		!strings.Contains(out, "rate 10Mbit") {
		t.Errorf("the sandbox has %s", out)
	}
	taken := to(other)
	taken.Name = "web"
	if _, err := w.Attach(context.Background(), taken); api.CodeOf(err) != api.Conflict {
		t.Errorf("use the name for another sandbox: %v", err)
	}
	taken.Name, taken.Addresses = "app", addrs("172.30.7.7")
	before := w.snapshot()
	if _, err := w.Attach(context.Background(), taken); api.CodeOf(err) != api.Conflict {
		t.Errorf("use the address for another sandbox: %v", err)
	}
	w.unchanged(before)
	if all := w.Attachments(); len(all) != 1 {
		t.Errorf("attached: %+v", all)
	}
}

func TestDryRun(t *testing.T) {
	w := newWorld(t).start()
	b := w.watchedSandbox()
	w.network(lan)
	before := w.snapshot()
	req := to(b)
	req.DryRun = true
	r := w.attach(req)
	if !strings.Contains(r.Plan, "ip link add fl-lan") || !strings.Contains(r.Plan, "type veth peer name eth0") ||
		!r.Changed {
		t.Errorf("plan:\n%s", r.Plan)
	}
	w.unchanged(before)
	if len(w.Attachments()) != 0 || !w.Empty() {
		t.Error("a dry run has attached the sandbox")
	}
}

func TestMistakes(t *testing.T) {
	w := newWorld(t).start()
	b := w.watchedSandbox()
	w.network(lan)
	for name, c := range map[string]struct {
		req  func(*api.AttachRequest)
		code api.Code
		says string
	}{
		"no network": {func(r *api.AttachRequest) { r.Network = "wan" }, api.NotFound,
			`there is no network "wan"`},
		"no sandbox": {func(r *api.AttachRequest) { r.Sandbox = "pid:999999999" }, api.NotFound,
			"no such sandbox"},
		"outside the subnet": {func(r *api.AttachRequest) { r.Addresses = addrs("10.9.9.9") }, api.Invalid,
			"in no subnet"},
		"odd interface":      {func(r *api.AttachRequest) { r.Interface = "a/b" }, api.Invalid, "interface"},
		"existing interface": {func(r *api.AttachRequest) { r.Interface = "lo" }, api.Invalid, "lo"},
		"cgroup":             {func(r *api.AttachRequest) { r.Cgroup = "/x" }, api.Invalid, "fairlead run"},
		"prefix in no subnet": {func(r *api.AttachRequest) { r.Prefixes = prefixes("10.0.0.1/8") }, api.Invalid,
			"has subnets"},
	} {
		req := to(b)
		c.req(&req)
		_, err := w.Attach(context.Background(), req)
		if err == nil || api.CodeOf(err) != c.code || !strings.Contains(err.Error(), c.says) {
			t.Errorf("%s: %v (%s); want %s", name, err, api.CodeOf(err), c.code)
		}
	}
}

func TestNetworks(t *testing.T) {
	w := newWorld(t).start()
	b := w.watchedSandbox()
	w.network(lan)
	if r, err := w.CreateNetwork(lan, false); err != nil || r.Changed {
		t.Errorf("create the network again: %+v, %v", r, err)
	}
	bad := lan
	bad.Name = "other"
	if _, err := w.CreateNetwork(bad, false); api.CodeOf(err) != api.Invalid {
		t.Errorf("create an overlapping network: %v", err)
	}
	bad.Subnets = nil
	if _, err := w.CreateNetwork(bad, false); api.CodeOf(err) != api.Invalid ||
		!strings.Contains(err.Error(), "subnet") {
		t.Errorf("a bridge without subnet: %v", err)
	}
	w.attach(to(b))
	if _, err := w.RemoveNetwork("lan"); api.CodeOf(err) != api.Conflict ||
		!strings.Contains(err.Error(), "pid-"+b.pid) {
		t.Errorf("remove a network in use: %v", err)
	}
	wider := lan
	wider.MTU = 1400
	w.network(wider)
	if out := b.sh(t, "ip -o link show eth0"); !strings.Contains(out, "mtu 1400") {
		t.Errorf("after a change of the network: %s", out)
	}
	if _, err := w.Detach(context.Background(), api.DetachRequest{Name: "pid-" + b.pid}); err != nil {
		t.Fatal(err)
	}
	if r, err := w.RemoveNetwork("lan"); err != nil || !r.Changed || len(w.Networks()) != 0 {
		t.Errorf("%+v, %v, %+v", r, err, w.Networks())
	}
}

// TestAttachPublishes attaches a sandbox and publishes its ports with one request. If a port
// is taken, nothing is attached.
func TestAttachPublishes(t *testing.T) {
	w := newWorld(t).start()
	before := w.snapshot()
	b, other := w.watchedSandbox(), w.watchedSandbox()
	w.network(lan)
	request := to(b)
	request.Publishes = published(model.ViaNAT, 8080, 8081)
	request.DryRun = true
	if r := w.attach(request); r.Plan == "" || !r.Changed {
		t.Errorf("dry run: %+v", r)
	}
	w.unchanged(before)
	request.DryRun = false
	if r := w.attach(request); !r.Changed || len(r.Attachments) != 1 || len(r.Attachments[0].Publishes) != 2 {
		t.Errorf("%+v", r)
	}
	b.serves(t, ":80")
	for _, port := range []string{"8080", "8081"} {
		if err := w.host.Do(func() error { return dial("127.0.0.1:" + port) }); err != nil {
			t.Error(err)
		}
	}
	if r := w.attach(request); r.Changed {
		t.Errorf("attach again: %+v", r)
	}
	attached := w.snapshot()
	taken := to(other)
	taken.Publishes = published(model.ViaNAT, 8082, 8080)
	if _, err := w.Attach(context.Background(), taken); api.CodeOf(err) != api.Conflict {
		t.Errorf("a port that another attachment publishes: %v", err)
	}
	w.unchanged(attached)
	if all := w.Attachments(); len(all) != 1 {
		t.Errorf("%d attachments", len(all))
	}
}
