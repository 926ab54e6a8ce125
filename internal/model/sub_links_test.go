package model_test

import (
	"strings"
	"testing"

	"fairlead/internal/model"
)

// TestNetworksWithSameParent covers settings in which networks of one parent must
// not differ, and settings that their endpoints cannot have.
func TestNetworksWithSameParent(t *testing.T) {
	state := func(d model.Driver, mode model.Mode) model.State {
		return model.State{
			Networks: []model.Network{{Name: "a", Driver: d, Parent: "eth0", Mode: mode,
				Subnets: []model.Subnet{subnet("192.0.2.0/24")}},
				{Name: "b", Driver: d, Parent: "eth0", Mode: mode, Subnets: []model.Subnet{subnet("198.51.100.0/24")}}},
			Endpoints: []model.Endpoint{{Name: "web", Network: "a", Sandbox: "/run/netns/web"}}}
	}
	for _, c := range []struct {
		name   string
		driver model.Driver
		mode   model.Mode
		change func(*model.State)
		want   string // empty: it is good
	}{
		{"two macvlan networks", model.DriverMacvlan, "", func(*model.State) {}, ""},
		{"of different modes", model.DriverMacvlan, "", func(s *model.State) { s.Networks[1].Mode = model.ModePrivate },
			""},
		{"two ipvlan networks", model.DriverIPvlan, "", func(s *model.State) { s.Networks[1].Mode = model.ModeL2 }, ""},
		{"ipvlan of different modes", model.DriverIPvlan, "",
			func(s *model.State) { s.Networks[1].Mode = model.ModeL3 }, "must have the same mode"},
		{"on different VLANs", model.DriverIPvlan, "",
			func(s *model.State) { s.Networks[1].Mode, s.Networks[1].VLAN = model.ModeL3, 7 }, ""},
		{"macvlan and ipvlan", model.DriverMacvlan, "",
			func(s *model.State) { s.Networks[1].Driver = model.DriverIPvlan }, "only one kind of link"},
		{"passthru beside another", model.DriverMacvlan, "",
			func(s *model.State) { s.Networks[1].Mode = model.ModePassthru }, "only one"},
		{"a second endpoint of passthru", model.DriverMacvlan, model.ModePassthru, func(s *model.State) {
			s.Networks = s.Networks[:1]
			s.Endpoints = append(s.Endpoints, model.Endpoint{Name: "app", Network: "a", Sandbox: "/run/netns/app"})
		}, "only one endpoint can use parent eth0"},
		{"a hardware address on ipvlan", model.DriverIPvlan, "",
			func(s *model.State) { s.Endpoints[0].MAC = "02:00:00:00:00:01" }, "hardware address of parent eth0"},
		{"a limit for incoming traffic", model.DriverMacvlan, "",
			func(s *model.State) { s.Endpoints[0].Limit.In = 1e6 }, "limit in"},
		{"a limit for outgoing traffic", model.DriverMacvlan, "",
			func(s *model.State) { s.Endpoints[0].Limit.Out = 1e6 }, ""},
	} {
		s := state(c.driver, c.mode)
		c.change(&s)
		err := s.Validate()
		if c.want == "" && err != nil || c.want != "" && (err == nil || !strings.Contains(err.Error(), c.want)) {
			t.Errorf("%s: got %v, want %q", c.name, err, c.want)
		}
	}
}
