package ipvlan_test

import (
	"net/netip"
	"testing"

	"fairlead/internal/driver/ipvlan"
	"fairlead/internal/model"
	"fairlead/internal/plan"
	"fairlead/test/drivertest"
)

var addr = netip.MustParseAddr

// mode returns a network of a mode, with changes.
func mode(m model.Mode, changes ...func(*model.Network)) model.Network {
	return drivertest.OnLAN(ipvlan.Driver{}, append(changes, func(n *model.Network) { n.Mode = m })...)
}

func TestDriver(t *testing.T) {
	s := drivertest.SubLinks(ipvlan.Driver{})
	one := drivertest.Only(drivertest.Web, 0)
	s.Plans = append(s.Plans,
		drivertest.Plan{Name: "l3", Network: mode(model.ModeL3), Endpoints: []model.Endpoint{drivertest.Web}},
		drivertest.Plan{Name: "l3s v4 only", Network: mode(model.ModeL3S, drivertest.V4), Endpoints: one})
	s.Refusals = append(s.Refusals,
		drivertest.Refusal{Name: "an unknown mode", Network: mode(model.ModeBridge),
			Want: []string{"want l2, l3 or l3s"}})
	drivertest.Conform(t, s)
}

// TestCompleteGatewayOfL3 checks that in the modes l3 and l3s the host itself is the
// gateway, and not a router of the LAN.
func TestCompleteGatewayOfL3(t *testing.T) {
	for m, gateway := range map[model.Mode]string{model.ModeL2: "192.0.2.1", model.ModeL3: "192.0.2.254",
		model.ModeL3S: "192.0.2.254"} {
		n := ipvlan.Driver{}.Complete(mode(m), drivertest.Parent())
		if got := n.Subnets[0].GatewayAddress(); got != addr(gateway) ||
			n.Subnets[0].HostAddress() != addr("192.0.2.254") {
			t.Errorf("mode %s: gateway %s, the host's %s", m, got, n.Subnets[0].HostAddress())
		}
	}
}

func TestValidateAcceptsAWirelessParent(t *testing.T) {
	wireless := drivertest.Parent().Links["eth0"]
	wireless.Wireless = true
	if err := (ipvlan.Driver{}).Validate(drivertest.OnLAN(ipvlan.Driver{}),
		plan.Facts{Links: map[string]plan.HostLink{"eth0": wireless}}); err != nil {
		t.Error(err)
	}
}

func TestAttachment(t *testing.T) { drivertest.AttachesSubLinks(t, ipvlan.Driver{}) }
