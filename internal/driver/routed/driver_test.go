package routed_test

import (
	"net/netip"
	"slices"
	"testing"

	"fairlead/internal/driver/routed"
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
		{"another gateway", model.Network{Subnets: []model.Subnet{
			{Prefix: netip.MustParsePrefix("172.30.0.0/24"), Gateway: addr("172.30.0.254")}}},
			[]model.Endpoint{only(web, 0)}},
		{"mtu", model.Network{Subnets: dual[:1], MTU: 9000}, []model.Endpoint{only(web, 0)}},
		{"internal", model.Network{Subnets: dual, Internal: true}, []model.Endpoint{web}},
	} {
		t.Run(c.name, func(t *testing.T) {
			c.network.Name, c.network.Driver = "net", model.DriverRouted
			if err := (routed.Driver{}).Validate(c.network, plan.Facts{}); err != nil {
				t.Fatal(err)
			}
			p := routed.Driver{}.Network(c.network, plan.Facts{})
			for _, e := range c.endpoints {
				p = slices.Concat(p, routed.Driver{}.Endpoint(c.network, e))
			}
			golden.Text(t, c.name, golden.Session(p))
		})
	}
}

func TestRefuses(t *testing.T) {
	for name, n := range map[string]model.Network{
		"no subnet":         {},
		"a bridge's filter": {Subnets: dual, Filter: model.FilterOff},
		"a bridge's mode":   {Subnets: dual, Hairpin: true},
	} {
		if err := (routed.Driver{}).Validate(n, plan.Facts{}); err == nil {
			t.Errorf("%s is accepted", name)
		}
	}
}

func TestAttachment(t *testing.T) {
	at := routed.Driver{}.Attachment(model.Network{Name: "net", Subnets: dual}, web)
	if at.Link != "fv-web" || !slices.Equal(at.Addresses, web.Addresses) ||
		!slices.Equal(at.Bypass, []plan.Bypass{plan.Within(netip.MustParsePrefix("172.30.0.2/32")),
			plan.Within(netip.MustParsePrefix("fd00:30::2/128"))}) {
		t.Errorf("wrong attachment: %+v", at)
	}
}
