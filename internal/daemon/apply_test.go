package daemon_test

import (
	"context"
	"errors"
	"net/netip"
	"slices"
	"strings"
	"testing"

	"fairlead/internal/api"
	"fairlead/internal/model"
)

// shop returns a Spec with the sandbox shop in the network lan, and a published port.
func shop() api.Spec {
	return api.Spec{Networks: []model.Network{lan}, Attachments: []api.Declared{{
		Endpoint:  model.Endpoint{Network: "lan", Sandbox: "netns:shop"},
		Publishes: []model.Publish{port(8080, 80)}}}}
}

func port(host, container uint16) model.Publish {
	return model.Publish{Via: model.ViaNAT, Proto: model.TCP, HostPorts: model.Port(host), Ports: model.Port(container)}
}

func (w *world) apply(spec api.Spec) api.Result {
	w.Helper()
	r, err := w.Apply(context.Background(), spec, false)
	if err != nil {
		w.Fatal(err)
	}
	return r
}

// TestDeclaredWaits declares an attachment before its sandbox runs. The sandbox
// starts, ends and starts again, also under another daemon.
func TestDeclaredWaits(t *testing.T) {
	w := newWorld(t).start()
	before := w.snapshot()
	r := w.apply(shop())
	if len(r.Changes) != 3 || r.Attachments[0].Status != api.Waiting {
		t.Fatalf("%+v", r)
	}
	w.unchanged(before)
	up := func() bool { return w.Attachments()[0].Status == api.Up }
	for _, restart := range []bool{false, true} {
		w.named("shop")
		w.until("the sandbox is attached", up)
		v := w.Attachments()[0]
		if v.Interface != "eth0" || len(v.Addresses) != 2 || len(v.Publishes) != 1 || v.Origin != model.FromFile {
			t.Errorf("%+v", v)
		}
		if r := w.apply(shop()); r.Changed {
			t.Errorf("apply again: %+v", r.Changes)
		}
		if restart {
			w.stop()
			w.start()
		}
		w.unname("shop")
		w.until("it waits again", func() bool { return !up() })
		if r := w.apply(shop()); r.Changed {
			t.Errorf("apply again without the sandbox: %+v", r.Changes)
		}
	}
	if r := w.apply(api.Spec{}); len(r.Changes) != 3 || !w.Empty() || len(w.Networks()) != 0 {
		t.Errorf("%+v", r)
	}
	w.unchanged(before)
}

// TestDeclaredTakesTheFreeInterface attaches a sandbox to a second network: it already
// has an eth0 and a default route.
func TestDeclaredTakesTheFreeInterface(t *testing.T) {
	w := newWorld(t).start()
	w.apply(shop())
	w.named("shop")
	w.until("the sandbox is attached", func() bool { return w.Attachments()[0].Status == api.Up })
	second := lan
	second.Name, second.Subnets = "dmz", []model.Subnet{{Prefix: prefix("172.31.0.0/24")}}
	spec := shop()
	spec.Networks = append(spec.Networks, second)
	spec.Attachments = append(spec.Attachments,
		api.Declared{Endpoint: model.Endpoint{Network: "dmz", Sandbox: "netns:shop"}})
	w.apply(spec)
	for range 2 {
		i := slices.IndexFunc(w.Attachments(), func(v api.View) bool { return v.Network == "dmz" })
		if v := w.Attachments()[i]; v.Name != "shop-dmz" || v.Interface != "eth1" || !v.NoDefault {
			t.Errorf("%+v", v)
		}
		if r := w.apply(spec); r.Changed {
			t.Errorf("apply again: %+v", r.Changes)
		}
		w.unname("shop")
		w.until("it is gone", func() bool {
			return w.Attachments()[0].Status == api.Waiting && w.Attachments()[1].Status == api.Waiting
		})
		w.named("shop")
		w.until("it is back", func() bool {
			return w.Attachments()[0].Status == api.Up &&
				w.Attachments()[1].Status == api.Up
		})
	}
}

// TestApplyIsOneStep applies a Spec that fails halfway because another process uses a
// port: nothing is changed.
func TestApplyIsOneStep(t *testing.T) {
	w := newWorld(t).start()
	w.named("shop")
	w.apply(shop())
	wanted := w.Attachments()
	w.serves(":9090")
	before := w.snapshot()
	next := shop()
	next.Networks[0].MTU = 1400
	next.Attachments[0].Interface = "net7"
	taken := port(9090, 90)
	taken.Via = model.ViaProxy
	next.Attachments[0].Publishes = append(next.Attachments[0].Publishes, port(8081, 81), taken)
	_, err := w.Apply(context.Background(), next, false)
	var m api.Mistakes
	if api.CodeOf(err) != api.PortTaken || !errors.As(err, &m) || len(m) != 1 ||
		m[0].At != "attachments[0].publishes[2]" {
		t.Errorf("%s: %v", api.CodeOf(err), err)
	}
	w.unchanged(before)
	if now := w.Attachments(); len(now) != 1 || !now[0].Attachment.Equal(wanted[0].Attachment) {
		t.Errorf("desired:\n%+v\nbefore:\n%+v", now, wanted)
	}
}

// TestRefusalsHaveTheirPart: what the kernel or the proxy refuses names its part of the Spec, and changes nothing.
func TestRefusalsHaveTheirPart(t *testing.T) {
	absent := port(9090, 90)
	absent.Via, absent.HostAddr = model.ViaProxy, netip.MustParseAddr("203.0.113.1")
	for _, c := range []struct{ name, set, at, text string }{
		{"a bridge of another program", "ip link add fl-lan type bridge", "networks[0]",
			"network lan: set link fl-lan: a link of that name exists"},
		{"a link of another program", "ip link add fv-shop type bridge", "attachments[0]",
			"endpoint shop: set link fv-shop: a link of that name exists"},
		{"an address that the host does not have", "", "attachments[0].publishes[1]",
			"publish 203.0.113.1:9090/tcp -> shop:90 via proxy: open host ports: set proxy ports: bind"},
	} {
		t.Run(c.name, func(t *testing.T) {
			w := newWorld(t).start()
			w.named("shop")
			next := shop()
			if c.set == "" {
				next.Attachments[0].Publishes = append(next.Attachments[0].Publishes, absent)
			} else {
				w.sh(c.set)
			}
			before := w.snapshot()
			_, err := w.Apply(t.Context(), next, false)
			var m api.Mistakes
			if api.CodeOf(err) != api.Failed || !errors.As(err, &m) || len(m) != 1 || m[0].At != c.at ||
				!strings.HasPrefix(m[0].Text, c.text) {
				t.Errorf("%s: %v\nwant %s: %s", api.CodeOf(err), err, c.at, c.text)
			}
			w.unchanged(before)
		})
	}
}

// TestApplyReportsAllMistakes: Apply reports all mistakes of a Spec, each with its
// part.
func TestApplyReportsAllMistakes(t *testing.T) {
	w := newWorld(t).start()
	w.named("shop")
	w.network(model.Network{Name: "theirs", Driver: model.DriverBridge,
		Subnets: []model.Subnet{{Prefix: prefix("10.1.0.0/24")}}})
	at := func(network, sandbox string) api.Declared {
		return api.Declared{Endpoint: model.Endpoint{Network: network, Sandbox: sandbox}}
	}
	named := func(d api.Declared, name string) api.Declared { d.Name = name; return d }
	spec := api.Spec{
		Networks: []model.Network{lan, lan,
			{Name: "theirs", Driver: model.DriverRouted},
			{Name: "over", Driver: model.DriverBridge, Subnets: []model.Subnet{{Prefix: prefix("10.1.0.0/25")}}},
			{Name: "odd", Driver: "odd"}, {Name: "none", Driver: model.DriverNone},
			{Name: "../x", Driver: model.DriverBridge}},
		Attachments: []api.Declared{at("wan", "netns:shop"), at("lan", "4711"), at("lan", "db"),
			at("lan", "netns:../x"), named(at("lan", "netns:db"), "a/b"),
			named(at("lan", "netns:db"), "db"), named(at("lan", "netns:db"), "db")},
	}
	_, err := w.Apply(context.Background(), spec, true)
	var m api.Mistakes
	if !errors.As(err, &m) || api.CodeOf(err) != api.Invalid {
		t.Fatal(err)
	}
	want := []string{"networks[1]: network lan is declared twice",
		"networks[2]: network theirs differs from the file, and a command created it",
		"networks[5]: network none: driver none", "networks[6]: network ../x: name \"../x\"",
		"attachments[0]: there is no network \"wan\"",
		"attachments[1]: ", "attachments[2]: sandbox \"db\": no running sandbox has this name: add its kind",
		"attachments[3]: sandbox \"netns:../x\"",
		"attachments[4]: ", "attachments[6]: attachment db is declared twice"}
	lines := strings.Split(err.Error(), "\n")
	for i, line := range want {
		if i >= len(lines) || !strings.HasPrefix(lines[i], line) {
			t.Errorf("line %d of\n%v\nwant %s", i, err, line)
		}
	}
	if len(lines) != len(want) {
		t.Errorf("want %d lines:\n%v", len(want), err)
	}
	// Mistakes that show only in the complete state.
	spec.Networks = []model.Network{lan, spec.Networks[3]}
	spec.Attachments = []api.Declared{named(at("lan", "netns:shop"), "a"), named(at("lan", "netns:db"), "b")}
	for i := range spec.Attachments {
		spec.Attachments[i].Addresses = []netip.Addr{netip.MustParseAddr("172.30.0.9")}
		spec.Attachments[i].Publishes = []model.Publish{port(80, 80)}
	}
	_, err = w.Apply(context.Background(), spec, true)
	for _, line := range []string{"networks[1]: network over: subnet 10.1.0.0/25 overlaps",
		"attachments[1]: endpoint b: address 172.30.0.9 already belongs to endpoint a",
		"attachments[1].publishes[0]: publish 80/tcp -> b:80 via nat: port taken by endpoint a"} {
		if err == nil || !strings.Contains(err.Error(), line) {
			t.Errorf("%v\nwant %s", err, line)
		}
	}
	// A mistake that the driver reports.
	_, err = w.Apply(context.Background(), api.Spec{Networks: []model.Network{{Name: "odd", Driver: "odd"}}}, true)
	if err == nil || !strings.HasPrefix(err.Error(), "networks[0]: network odd: there is no driver") {
		t.Error(err)
	}
	if !w.Empty() {
		t.Error("a dry run has changed something")
	}
}

// TestSetsAreIndependent applies two named sets, and the state of both.
func TestSetsAreIndependent(t *testing.T) {
	w := newWorld(t).start()
	w.named("shop")
	w.named("db")
	one := shop()
	one.Set = "one"
	w.apply(one)
	two := api.Spec{Set: "two", Attachments: []api.Declared{{Endpoint: model.Endpoint{Network: "lan",
		Sandbox: "netns:db"}}}}
	w.apply(two)
	if _, err := w.Apply(context.Background(), api.Spec{Set: "one"}, false); err == nil ||
		!strings.Contains(err.Error(), "has attachments of another origin (db)") {
		t.Errorf("remove a network that another set uses: %v", err)
	}
	state, _ := w.State()
	want := []string{
		"already as declared: network lan, attachment shop, publish 8080/tcp -> shop:80 via nat " +
			"(the files of set one declare them, and files will not remove them)",
		"already as declared: attachment db (the files of set two declare it, and files will not remove it)"}
	if r := w.apply(state); r.Changed || !slices.Equal(r.Notes, want) {
		t.Errorf("apply the current state: %+v, want the notes %q", r, want)
	}
	if _, err := w.Publish(context.Background(),
		api.PublishRequest{Target: "shop", Publishes: []model.Publish{port(8080,
			90)}}); api.CodeOf(err) != api.Conflict {
		t.Errorf("change a declared publish by a command: %v", err)
	}
	w.apply(api.Spec{Set: "two"})
	if r := w.apply(api.Spec{Set: "one"}); len(r.Changes) != 3 || !w.Empty() {
		t.Errorf("%+v", r)
	}
}
