package none_test

import (
	"net/netip"
	"testing"

	"fairlead/internal/driver/none"
	"fairlead/internal/model"
	"fairlead/test/drivertest"
)

func TestDriver(t *testing.T) {
	subnet := model.Subnet{Prefix: netip.MustParsePrefix("172.30.0.0/24")}
	drivertest.Conform(t, drivertest.Suite{Driver: none.Driver{}, Unpublished: true,
		Plans: []drivertest.Plan{{Name: "plan",
			Endpoints: []model.Endpoint{{Name: "web", Network: "net", Sandbox: "/run/netns/web"}}}},
		Refusals: []drivertest.Refusal{{Name: "a subnet", Network: model.Network{Subnets: []model.Subnet{subnet}},
			Want: []string{"leave the subnets out"}}}})
}
