package model_test

import (
	"strings"
	"testing"

	"fairlead/internal/model"
)

func TestDeviceIsInOneSandboxOnly(t *testing.T) {
	device := func(name string, pkey uint16) model.Network {
		return model.Network{Name: name, Driver: model.DriverDevice, Parent: "eth2", PKey: pkey}
	}
	endpoint := func(name, network string) model.Endpoint {
		return model.Endpoint{Name: name, Network: network, Sandbox: "/run/netns/" + name}
	}
	for _, c := range []struct {
		name  string
		state model.State
		want  string // part of the error; empty for none
	}{
		{"one", model.State{Networks: []model.Network{device("nic", 0)},
			Endpoints: []model.Endpoint{endpoint("web", "nic")}}, ""},
		{"two sandboxes", model.State{Networks: []model.Network{device("nic", 0)},
			Endpoints: []model.Endpoint{endpoint("web", "nic"), endpoint("app", "nic")}},
			"device eth2 already belongs to endpoint web"},
		{"two networks with one device", model.State{Networks: []model.Network{device("nic", 0), device("same", 0)},
			Endpoints: []model.Endpoint{endpoint("web", "nic"), endpoint("app", "same")}},
			"device eth2 already belongs to endpoint web"},
		{"children of one parent", model.State{Networks: []model.Network{device("part", 0x8001),
			device("other", 0x8002)},
			Endpoints: []model.Endpoint{endpoint("web", "part"), endpoint("app", "part"), endpoint("db", "other")}},
			""},
		{"a child with a hardware address", model.State{Networks: []model.Network{device("part", 0x8001)},
			Endpoints: []model.Endpoint{{Name: "web", Network: "part", Sandbox: "/run/netns/web",
				MAC: "02:00:00:00:00:01"}}}, "omit it"},
		{"a limit for incoming traffic", model.State{Networks: []model.Network{device("nic", 0)},
			Endpoints: []model.Endpoint{{Name: "web", Network: "nic", Sandbox: "/run/netns/web",
				Limit: model.Limit{In: 1_000_000}}}}, "at the switch"},
	} {
		err := c.state.Validate()
		if c.want == "" && err != nil || c.want != "" && (err == nil || !strings.Contains(err.Error(), c.want)) {
			t.Errorf("%s: want %q, got %v", c.name, c.want, err)
		}
	}
}
