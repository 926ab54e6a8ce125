package driver

import (
	"fmt"
	"slices"

	"fairlead/internal/model"
)

// Setting is a setting of a network that not every driver supports.
type Setting int

// The settings that only some drivers support. The model itself checks the
// settings of overlays.
const (
	Filter Setting = iota
	Hairpin
	Parent
	Mode
	VLAN
	PKey
	Outbound
	Flowtable
)

// CheckSettings returns an error if the network has a setting that its driver does
// not support. own are the settings that the driver supports.
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
		{Outbound, n.Outbound != model.OutboundNFT, fmt.Sprint("outbound ", n.Outbound), "bridge"},
		{Flowtable, n.Flowtable, "flowtable", "bridge and routed"},
	} {
		if s.set && !slices.Contains(own, s.Setting) {
			return fmt.Errorf("%s: only networks of driver %s have it, and this network has driver %s: leave it out, or choose another driver", s.text, s.drivers, n.Driver)
		}
	}
	return nil
}
