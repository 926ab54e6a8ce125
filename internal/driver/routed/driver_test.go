package routed_test

import (
	"net/netip"
	"slices"
	"testing"

	"fairlead/internal/driver/routed"
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
	drivertest.Conform(t, drivertest.Suite{Driver: routed.Driver{}, Plans: []drivertest.Plan{
		{Name: "dual stack", Network: model.Network{Subnets: dual}, Endpoints: []model.Endpoint{web}},
		{Name: "v4 only", Network: model.Network{Subnets: dual[:1]}, Endpoints: []model.Endpoint{only(web, 0)}},
		{Name: "v6 only", Network: model.Network{Subnets: dual[1:]}, Endpoints: []model.Endpoint{only(web, 1)}},
		{Name: "another gateway", Network: model.Network{Subnets: []model.Subnet{
			{Prefix: netip.MustParsePrefix("172.30.0.0/24"), Gateway: addr("172.30.0.254")}}},
			Endpoints: []model.Endpoint{only(web, 0)}},
		{Name: "mtu", Network: model.Network{Subnets: dual[:1], MTU: 9000}, Endpoints: []model.Endpoint{only(web, 0)}},
		{Name: "flowtable", Network: model.Network{Subnets: dual[:1], Flowtable: true},
			Endpoints: []model.Endpoint{only(web, 0)}},
		{Name: "internal", Network: model.Network{Subnets: dual, Internal: true}, Endpoints: []model.Endpoint{web}},
	}, Refusals: []drivertest.Refusal{
		{Name: "no subnet", Want: []string{"needs a subnet"}},
		{Name: "a bridge's filter", Network: model.Network{Subnets: dual, Filter: model.FilterOff},
			Want: []string{"filter off"}},
		{Name: "a bridge's mode", Network: model.Network{Subnets: dual, Hairpin: true}, Want: []string{"hairpin"}},
	}})
}

func TestAttachment(t *testing.T) {
	at := routed.Driver{}.Attachment(model.Network{Name: "net", Subnets: dual}, web)
	if at.Link != "fv-web" || !slices.Equal(at.Addresses, web.Addresses) ||
		!slices.Equal(at.Bypass, []plan.Bypass{plan.Within(netip.MustParsePrefix("172.30.0.2/32")),
			plan.Within(netip.MustParsePrefix("fd00:30::2/128"))}) {
		t.Errorf("wrong attachment: %+v", at)
	}
}
