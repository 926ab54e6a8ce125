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
	"fairlead/test/drivertest"
)

var (
	addr   = netip.MustParseAddr
	subnet = func(s string) model.Subnet { return model.Subnet{Prefix: netip.MustParsePrefix(s)} }
	dual   = []model.Subnet{subnet("172.30.0.0/24"), subnet("fd00:30::/64")}
	web    = model.Endpoint{Name: "web", Network: "net", Sandbox: "/run/netns/web",
		Addresses: []netip.Addr{addr("172.30.0.2"), addr("fd00:30::2")}}
)

func TestDriver(t *testing.T) {
	only := func(e model.Endpoint, i int) model.Endpoint { e.Addresses = e.Addresses[i : i+1]; return e }
	drivertest.Conform(t, drivertest.Suite{Driver: bridge.Driver{}, Plans: []drivertest.Plan{
		{Name: "dual stack", Network: model.Network{Subnets: dual}, Endpoints: []model.Endpoint{web}},
		{Name: "v4 only", Network: model.Network{Subnets: dual[:1]}, Endpoints: []model.Endpoint{only(web, 0)}},
		{Name: "v6 only", Network: model.Network{Subnets: dual[1:]}, Endpoints: []model.Endpoint{only(web, 1)}},
		{Name: "v4 endpoint in a dual network", Network: model.Network{Subnets: dual},
			Endpoints: []model.Endpoint{only(web, 0)}},
		{Name: "own address and another gateway", Network: model.Network{Subnets: []model.Subnet{
			{Prefix: netip.MustParsePrefix("172.30.0.0/24"), Address: addr("172.30.0.254"),
				Gateway: addr("172.30.0.253")}}}, Endpoints: []model.Endpoint{only(web, 0)}},
		{Name: "mtu", Network: model.Network{Subnets: dual[:1], MTU: 9000}, Endpoints: []model.Endpoint{only(web, 0)}},
		{Name: "filter on", Network: model.Network{Subnets: dual[:1], Filter: model.FilterOn},
			Endpoints: []model.Endpoint{only(web, 0)}},
		{Name: "filter off", Network: model.Network{Subnets: dual[:1], Filter: model.FilterOff},
			Endpoints: []model.Endpoint{only(web, 0)}},
		{Name: "filter off with hairpin",
			Network:   model.Network{Subnets: dual[:1], Filter: model.FilterOff, Hairpin: true},
			Endpoints: []model.Endpoint{only(web, 0)}},
		{Name: "internal", Network: model.Network{Subnets: dual, Internal: true}, Endpoints: []model.Endpoint{web}},
		{Name: "outbound ebpf", Network: model.Network{Subnets: dual, Outbound: model.OutboundEBPF},
			Endpoints: []model.Endpoint{web}},
		{Name: "outbound ebpf with a limit", Network: model.Network{Subnets: dual[:1], Outbound: model.OutboundEBPF},
			Endpoints: []model.Endpoint{limited}},
		{Name: "flowtable", Network: model.Network{Subnets: dual[:1], Flowtable: true},
			Endpoints: []model.Endpoint{only(web, 0)}},
		{Name: "a process's sandbox", Network: model.Network{Subnets: dual[:1]}, Endpoints: []model.Endpoint{
			{Name: "a name too long for a link", Network: "net", Sandbox: "/proc/4711/ns/net", Interface: "net1",
				Addresses: web.Addresses[:1]}}},
	}, Refusals: []drivertest.Refusal{
		{Name: "no subnet", Want: []string{"needs a subnet"}},
		{Name: "a filter without its module", Network: model.Network{Subnets: dual, Filter: model.FilterOn},
			Facts: without, Want: []string{"modprobe br_netfilter"}},
	}})
}

// limited is an endpoint with a limit on what it receives.
var limited = model.Endpoint{Name: "web", Network: "net", Sandbox: "/run/netns/web", Addresses: web.Addresses[:1],
	Limit: model.Limit{In: 1_000_000}}

// without are the facts of a host without br_netfilter.
var without = plan.Facts{Missing: map[plan.Feature]string{plan.FeatureBridgeFilter: "modprobe br_netfilter"}}

func TestFilterOffWithoutItsModule(t *testing.T) {
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
