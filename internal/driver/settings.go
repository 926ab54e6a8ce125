package driver

import (
	"fmt"
	"slices"

	"fairlead/internal/model"
)

// Setting is a setting of a network that not every driver has.
type Setting int

// The settings that some drivers have. The overlay's, the model refuses itself.
const (
	Filter Setting = iota
	Hairpin
	Parent
	Mode
	VLAN
	PKey
)

// CheckSettings refuses what the network sets of other drivers' settings; own
// are those of its driver.
func CheckSettings(n model.Network, own ...Setting) error {
	for _, s := range []struct {
		Setting
		set     bool
		text    string
		drivers string
	}{
		{Filter, n.Filter != model.FilterKeep, fmt.Sprint("filter ", n.Filter), "bridge and vxlan"},
		{Hairpin, n.Hairpin, "hairpin", "bridge and vxlan"},
		{Parent, n.Parent != "", "parent " + n.Parent, "macvlan, ipvlan and device"},
		{Mode, n.Mode != "", fmt.Sprint("mode ", n.Mode), "macvlan and ipvlan"},
		{VLAN, n.VLAN != 0, fmt.Sprint("vlan ", n.VLAN), "macvlan and ipvlan"},
		{PKey, n.PKey != 0, fmt.Sprintf("pkey %#x", n.PKey), "device"},
	} {
		if s.set && !slices.Contains(own, s.Setting) {
			return fmt.Errorf("%s: it is for networks of driver %s, and this one is of driver %s: leave it out, or choose another driver", s.text, s.drivers, n.Driver)
		}
	}
	return nil
}
