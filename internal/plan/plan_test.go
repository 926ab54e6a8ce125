package plan_test

import (
	"fmt"
	"math/rand/v2"
	"net/netip"
	"slices"
	"strings"
	"testing"

	"fairlead/internal/model"
	"fairlead/internal/plan"
	"fairlead/test/golden"
)

var (
	addr, prefix = netip.MustParseAddr, netip.MustParsePrefix

	bridge = plan.Link{Name: "fl-net", Kind: plan.Bridge, MTU: 1500, Owner: "net"}
	veth   = plan.Link{Name: "fv-web", Kind: plan.Veth, MTU: 1500, Owner: "web", Peer: "eth0",
		PeerNetns: "/run/netns/web", PeerMAC: "02:f1:0a:00:00:02"}
	inside  = plan.Address{Netns: "/run/netns/web", Link: "eth0", Prefix: prefix("10.0.0.2/24")}
	route   = plan.Route{Netns: "/run/netns/web", To: prefix("0.0.0.0/0"), Via: addr("10.0.0.1"), Link: "eth0"}
	own     = plan.Address{Link: "fv-web", Prefix: prefix("10.0.0.1/32")}
	local   = plan.Sysctl{Name: "net.ipv4.conf.fv-web.route_localnet", Value: "1"}
	global  = plan.Sysctl{Name: "net.ipv4.ip_forward", Value: "1"}
	mapping = plan.NFTMapping{Host: addr("0.0.0.0"), Proto: model.TCP, Ports: model.Port(8080), To: addr("10.0.0.2"),
		ToPort: 80}
	elsewhere = plan.NFTMapping{Host: addr("0.0.0.0"), Proto: model.TCP, Ports: model.Port(8080), To: addr("10.0.0.3"),
		ToPort: 80}
	slow = plan.Shaper{Link: "fv-web", Rate: 1_000_000}
	fast = plan.Shaper{Netns: "/run/netns/web", Link: "eth0", Rate: 10_000_000_000}
	host = plan.Address{Link: "fl-net", Prefix: prefix("10.0.0.1/24")}
)

var (
	shim    = plan.SubLink{Name: "fm-net", Kind: plan.Macvlan, Mode: "bridge", Parent: "eth0", MTU: 1500, Owner: "net"}
	reached = plan.Route{To: prefix("10.0.0.2/32"), Link: "fm-net", Src: addr("10.0.0.1")}
)

func subLink(change func(*plan.SubLink)) plan.SubLink { b := shim; change(&b); return b }

func with(l plan.Link, change func(*plan.Link)) plan.Link { change(&l); return l }

func TestDiff(t *testing.T) {
	all := plan.Plan{global, bridge, host, veth, inside, route, own, local}
	for _, c := range []struct {
		name       string
		have, want plan.Plan
	}{
		{"from nothing", nil, all},
		{"to nothing", all, nil},
		{"nothing to do", all, all},
		{"another order is no change", plan.Plan{veth, bridge}, plan.Plan{bridge, veth}},
		{"mtu changes in place", all, plan.Plan{global, bridge, host, with(veth, func(l *plan.Link) { l.MTU = 9000 }),
			inside, route, own, local}},
		{"everything that changes in place", plan.Plan{bridge, with(veth, func(l *plan.Link) { l.Master = "fl-net" })},
			plan.Plan{with(bridge, func(l *plan.Link) {
				l.Filter, l.MAC, l.Group = true, "02:f1:0a:00:00:01", plan.InternalLinks
			}),
				with(veth, func(l *plan.Link) {
					l.Master, l.Hairpin, l.PeerMAC = "fl-net", true, "02:f1:0a:00:00:09"
				})}},
		{"off the bridge", plan.Plan{with(veth, func(l *plan.Link) { l.Master = "fl-net" })}, plan.Plan{veth}},
		{"a publish with a new target", plan.Plan{mapping}, plan.Plan{elsewhere}},
		{"a recreated link recreates its dependents", all,
			plan.Plan{global, bridge, host, with(veth, func(l *plan.Link) { l.PeerNetns = "/run/netns/app" }),
				plan.Address{Netns: "/run/netns/app", Link: "eth0", Prefix: inside.Prefix}, own, local}},
		{"a missing link recreates its dependents", plan.Plan{global, bridge, host, inside, own}, all},
		{"a wider prefix replaces", plan.Plan{bridge, host},
			plan.Plan{bridge, plan.Address{Link: "fl-net", Prefix: prefix("10.0.0.1/16")}}},
		{"a sub-link changes in place", plan.Plan{shim, reached},
			plan.Plan{subLink(func(b *plan.SubLink) {
				b.MTU, b.MAC, b.Owner, b.Quiet, b.Group = 9000, "02:f1:0a:00:00:09", "lan", true, plan.SandboxLinks
			}), reached}},
		{"a sub-link with a different parent", plan.Plan{shim, reached},
			plan.Plan{subLink(func(b *plan.SubLink) { b.Parent = "eth1" }), reached}},
		{"limits are removed with a recreated link", plan.Plan{veth, slow, fast},
			plan.Plan{with(veth, func(l *plan.Link) { l.PeerNetns = "/run/netns/app" }), slow}},
	} {
		t.Run(c.name, func(t *testing.T) {
			golden.Text(t, "diff "+c.name, plan.Text(plan.Diff(c.have, c.want)))
		})
	}
}

// TestShaperDependsOnItsLink recreates a link whose name a shell must quote.
func TestShaperDependsOnItsLink(t *testing.T) {
	link := with(veth, func(l *plan.Link) { l.Name = "it's" })
	shaper := plan.Shaper{Link: link.Name, Rate: 1e6}
	moved := with(link, func(l *plan.Link) { l.PeerNetns = "/run/netns/app" })
	ops := plan.Diff(plan.Plan{link, shaper}, plan.Plan{moved, shaper})
	if len(ops) != 2 || !plan.Equal(ops[1].Object, shaper) {
		t.Errorf("a recreated link recreates its shaper: %+v", ops)
	}
}

func TestTextInShell(t *testing.T) {
	odd := with(veth, func(l *plan.Link) {
		l.Owner, l.PeerNetns = "it's $(odd)", "/proc/4711/ns/net with blanks"
	})
	golden.Text(t, "odd names", plan.Text(plan.Diff(nil,
		plan.Plan{odd, plan.Address{Netns: odd.PeerNetns, Link: "eth0", Prefix: inside.Prefix}})))
}

func TestRemovedSettingGetsItsOldValue(t *testing.T) {
	op := plan.Op{Object: global, Del: true}
	if got := strings.Join(op.Commands(), "\n"); !strings.HasPrefix(got, "# ") {
		t.Errorf("without a known old value, the command is %q", got)
	}
	op.Old = plan.Sysctl{Name: global.Name, Value: "0"}
	if got := strings.Join(op.Commands(), "\n"); got != "sysctl -w net.ipv4.ip_forward=0" {
		t.Errorf("got %q", got)
	}
}

func TestInherited(t *testing.T) {
	if got, ok := local.Inherited(); !ok || got.Name != "net.ipv4.conf.default.route_localnet" {
		t.Errorf("%v %v", got, ok)
	}
	for _, name := range []string{"net.ipv4.ip_forward", "net.ipv6.conf.all.forwarding",
		"net.ipv6.conf.default.forwarding", plan.SysctlBridgeFilter4} {
		if got, ok := (plan.Sysctl{Name: name}).Inherited(); ok {
			t.Errorf("%s is inherited from %s", name, got.Name)
		}
	}
}

func TestMerge(t *testing.T) {
	p, err := plan.Merge(plan.NewPart(plan.Plan{global, bridge}), plan.NewPart(plan.Plan{global, veth}),
		plan.NewPart(nil))
	if err != nil || len(p) != 3 || p[0] != plan.Object(global) || p[1] != plan.Object(bridge) ||
		p[2] != plan.Object(veth) {
		t.Errorf("%v %v", p, err)
	}
	off := global
	off.Value = "0"
	if _, err := plan.Merge(plan.NewPart(plan.Plan{global}), plan.NewPart(plan.Plan{off})); err == nil ||
		!strings.Contains(err.Error(), global.Name) {
		t.Errorf("a conflict gives %v", err)
	}
}

func TestListenersOverlap(t *testing.T) {
	at := func(host string, first, last uint16) plan.Listener {
		l := plan.Listener{Proto: model.TCP, Ports: model.PortRange{First: first, Last: last}}
		if host != "" {
			l.Host = addr(host)
		}
		return l
	}
	for _, c := range []struct {
		a, b plan.Listener
		want bool
	}{
		{at("", 80, 80), at("127.0.0.1", 80, 80), true},
		{at("", 80, 80), at("::", 80, 80), true},
		{at("", 80, 80), at("", 81, 81), false},
		{at("0.0.0.0", 80, 90), at("127.0.0.1", 85, 85), true},
		{at("0.0.0.0", 80, 90), at("::1", 85, 85), false},
		{at("::", 80, 80), at("::1", 80, 80), true},
		{at("192.0.2.1", 80, 80), at("192.0.2.2", 80, 80), false},
	} {
		if c.a.Overlaps(c.b) != c.want || c.b.Overlaps(c.a) != c.want {
			t.Errorf("%s and %s: want %v", c.a.Key(), c.b.Key(), c.want)
		}
	}
}

// TestKeysNameTheHostByNothing: the key of an object on the host has no namespace, and no second space in its place.
func TestKeysNameTheHostByNothing(t *testing.T) {
	to := prefix("192.0.2.1/32")
	for want, o := range map[string]plan.Object{
		"link fl-web":                  plan.Link{Name: "fl-web"},
		"link /run/netns/web eth0":     plan.Link{Netns: "/run/netns/web", Name: "eth0"},
		"address fl-web 192.0.2.1":     plan.Address{Link: "fl-web", Prefix: to},
		"route 192.0.2.1/32 fl-web":    plan.Route{To: to, Link: "fl-web"},
		"sysctl net.ipv4.ip_forward":   plan.IPForwarding(true),
		"shaper fl-web":                plan.Shaper{Link: "fl-web"},
		"shaper /run/netns/web fl-web": plan.Shaper{Netns: "/run/netns/web", Link: "fl-web"},
	} {
		if got := o.Key(); got != want {
			t.Errorf("key %q, want %q", got, want)
		}
	}
}

// TestDiffOfAnyPlans compares Diff with a simpler implementation.
func TestDiffOfAnyPlans(t *testing.T) {
	random := rand.New(rand.NewPCG(1, 2))
	for range 5000 {
		have, want := anyPlan(random), anyPlan(random)
		if random.IntN(2) == 0 { // neighbouring objects change
			at := random.IntN(len(have) + 1)
			want = slices.Concat(have[:at], plan.Plan{plan.Link{Name: "new", Kind: plan.Bridge}},
				have[min(at+random.IntN(3), len(have)):])
		}
		if got, plain := plan.Diff(have, want), plainDiff(have, want); !slices.Equal(got, plain) {
			t.Fatalf("from\n%+v to\n%+v: %+v; want %+v", have, want, got, plain)
		}
	}
}

// anyPlan returns a random plan of a few links and their addresses.
func anyPlan(random *rand.Rand) plan.Plan {
	var p plan.Plan
	for i := range 4 {
		name := fmt.Sprint("link", i)
		if random.IntN(3) > 0 {
			p = append(p, plan.Link{Name: name, Kind: plan.Veth, MTU: 1500 + random.IntN(2),
				Peer: fmt.Sprint("eth", random.IntN(2)), PeerNetns: "box"})
		}
		if random.IntN(3) > 0 {
			p = append(p, plan.Address{Link: name, Prefix: netip.PrefixFrom(netip.IPv4Unspecified(), 8+random.IntN(2))})
		}
	}
	random.Shuffle(len(p), func(i, j int) {
		if random.IntN(4) == 0 {
			p[i], p[j] = p[j], p[i]
		}
	})
	return p
}

func plainDiff(have, want plan.Plan) []plan.Op {
	find := func(p plan.Plan, key string) plan.Object {
		i := slices.IndexFunc(p, func(o plan.Object) bool { return o.Key() == key })
		if i < 0 {
			return nil
		}
		return p[i]
	}
	var ops []plan.Op
	remade := map[string]bool{}
	for _, o := range want {
		old := find(have, o.Key())
		if old == o && !remade[plan.Base(o)] {
			continue
		}
		ops = append(ops, plan.Op{Object: o, Old: old})
		l, isLink := o.(plan.Link)
		if was, ok := old.(plan.Link); isLink &&
			(!ok || was.Kind != l.Kind || was.Peer != l.Peer || was.PeerNetns != l.PeerNetns) {
			for _, end := range l.Ends() {
				remade[end] = true
			}
		}
	}
	for _, o := range slices.Backward(have) {
		if find(want, o.Key()) == nil {
			ops = append(ops, plan.Op{Object: o, Del: true})
		}
	}
	return ops
}
