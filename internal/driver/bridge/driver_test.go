package bridge_test

import (
	"fmt"
	"net/netip"
	"slices"
	"strings"
	"testing"

	"fairlead/internal/driver"
	"fairlead/internal/driver/bridge"
	"fairlead/internal/model"
	"fairlead/internal/plan"
	"fairlead/test/golden"
)

var (
	addr   = netip.MustParseAddr
	subnet = func(s string) model.Subnet { return model.Subnet{Prefix: netip.MustParsePrefix(s)} }
	dual   = []model.Subnet{subnet("172.30.0.0/24"), subnet("fd00:30::/64")}
	web    = model.Endpoint{Name: "web", Network: "net", Sandbox: "/run/netns/web",
		Addresses: []netip.Addr{addr("172.30.0.2"), addr("fd00:30::2")}}
)

func TestPlan(t *testing.T) {
	only := func(e model.Endpoint, i int) model.Endpoint { e.Addresses = e.Addresses[i : i+1]; return e }
	for _, c := range []struct {
		name      string
		network   model.Network
		endpoints []model.Endpoint
	}{
		{"dual stack", model.Network{Subnets: dual}, []model.Endpoint{web}},
		{"v4 only", model.Network{Subnets: dual[:1]}, []model.Endpoint{only(web, 0)}},
		{"v6 only", model.Network{Subnets: dual[1:]}, []model.Endpoint{only(web, 1)}},
		{"v4 endpoint in a dual network", model.Network{Subnets: dual}, []model.Endpoint{only(web, 0)}},
		{"own address and another gateway", model.Network{Subnets: []model.Subnet{
			{Prefix: netip.MustParsePrefix("172.30.0.0/24"), Address: addr("172.30.0.254"),
				Gateway: addr("172.30.0.253")}}}, []model.Endpoint{only(web, 0)}},
		{"mtu", model.Network{Subnets: dual[:1], MTU: 9000}, []model.Endpoint{only(web, 0)}},
		{"filter on", model.Network{Subnets: dual[:1], Filter: model.FilterOn}, []model.Endpoint{only(web, 0)}},
		{"filter off", model.Network{Subnets: dual[:1], Filter: model.FilterOff}, []model.Endpoint{only(web, 0)}},
		{"filter off with hairpin", model.Network{Subnets: dual[:1], Filter: model.FilterOff, Hairpin: true},
			[]model.Endpoint{only(web, 0)}},
		{"internal", model.Network{Subnets: dual, Internal: true}, []model.Endpoint{web}},
		{"a process's sandbox", model.Network{Subnets: dual[:1]}, []model.Endpoint{
			{Name: "a name too long for a link", Network: "net", Sandbox: "/proc/4711/ns/net", Interface: "net1",
				Addresses: web.Addresses[:1]}}},
	} {
		t.Run(c.name, func(t *testing.T) {
			c.network.Name, c.network.Driver = "net", model.DriverBridge
			if err := (bridge.Driver{}).Validate(c.network, plan.Facts{}); err != nil {
				t.Fatal(err)
			}
			p := bridge.Driver{}.Network(c.network, plan.Facts{})
			for _, e := range c.endpoints {
				p = slices.Concat(p, bridge.Driver{}.Endpoint(c.network, e))
			}
			golden.Text(t, c.name, golden.Session(p))
		})
	}
}

func TestRefuses(t *testing.T) {
	without := plan.Facts{Missing: map[plan.Feature]string{plan.FeatureBridgeFilter: "modprobe br_netfilter"}}
	for name, n := range map[string]model.Network{
		"no subnet":                   {},
		"a filter without its module": {Subnets: dual, Filter: model.FilterOn},
	} {
		if err := (bridge.Driver{}).Validate(n, without); err == nil {
			t.Errorf("%s is accepted", name)
		}
	}
	if p := (bridge.Driver{}).Network(model.Network{Subnets: dual, Filter: model.FilterOff},
		without); slices.Contains(p, plan.Object(plan.Sysctl{Name: plan.SysctlBridgeFilter4, Value: "0"})) {
		t.Error("the plan has a sysctl that this kernel does not have")
	}
}

func TestAttachment(t *testing.T) {
	at := bridge.Driver{}.Attachment(model.Network{Name: "net", Subnets: dual}, web)
	if at.Link != "fl-net" || !slices.Equal(at.Addresses, web.Addresses) ||
		!slices.Equal(at.Bypass, []plan.Bypass{plan.Within(dual[0].Prefix), plan.Within(dual[1].Prefix)}) {
		t.Errorf("wrong attachment: %+v", at)
	}
}

// TestSameLinkName plans two networks whose names have the same hash.
func TestSameLinkName(t *testing.T) {
	of := map[string]string{}
	for i := 0; ; i++ {
		name := fmt.Sprintf("a network with a long name %d", i)
		link := driver.BridgeLink(name)
		first, same := of[link]
		if of[link] = name; !same {
			continue
		}
		parts := make([]plan.Part, 2)
		for i, n := range []string{first, name} {
			net := model.Network{Name: n, Subnets: dual[i : i+1]}
			parts[i] = plan.NewPart(bridge.Driver{}.Network(net, plan.Facts{}))
		}
		_, err := plan.Merge(parts...)
		if err == nil || !strings.Contains(err.Error(), "choose another name than "+name) {
			t.Errorf("the networks %q and %q have the link %s, and the error is: %v", first, name, link, err)
		}
		return
	}
}
