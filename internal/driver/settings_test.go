package driver_test

import (
	"net/netip"
	"strings"
	"testing"

	"fairlead/internal/driver"
	"fairlead/internal/driver/bridge"
	"fairlead/internal/driver/host"
	"fairlead/internal/driver/none"
	"fairlead/internal/driver/routed"
	"fairlead/internal/model"
	"fairlead/internal/plan"
)

// TestValidateRefusesSettingsOfOtherDrivers checks that drivers do not ignore
// settings that they do not support.
func TestValidateRefusesSettingsOfOtherDrivers(t *testing.T) {
	subnets := []model.Subnet{{Prefix: netip.MustParsePrefix("172.30.0.0/24")}}
	for _, d := range []driver.Driver{bridge.Driver{}, routed.Driver{}, none.Driver{}, host.Driver{}} {
		for want, n := range map[string]model.Network{
			"parent eth0": {Parent: "eth0"},
			"mode bridge": {Mode: model.ModeBridge},
			"vlan 7":      {VLAN: 7},
			"pkey 0x8001": {PKey: 0x8001},
			"filter off":  {Filter: model.FilterOff},
			"hairpin":     {Hairpin: true},
		} {
			if n.Driver = d.Name(); d.Name() == model.DriverBridge && (n.Hairpin || n.Filter != model.FilterKeep) {
				continue // its own
			}
			if d.Name() == model.DriverBridge || d.Name() == model.DriverRouted {
				n.Subnets = subnets
			}
			if err := d.Validate(n, plan.Facts{}); err == nil || !strings.Contains(err.Error(), want) {
				t.Errorf("%s: %v, want an error about %q", d.Name(), err, want)
			}
		}
	}
}
