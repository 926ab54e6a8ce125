package spec

import (
	"errors"
	"fmt"
	"testing"

	"fairlead/internal/model"
)

// TestRefused: an error of the engine is about the objects whose names its text begins with.
func TestRefused(t *testing.T) {
	publish := model.Publish{Endpoint: "web", Proto: model.TCP, HostPorts: model.Port(8080), Ports: model.Port(80),
		Via: model.ViaAuto}
	chosen, other := publish, publish
	chosen.Via, other.HostPorts = model.ViaNAT, model.Port(80)
	w := model.Desired{Networks: []model.Network{{Name: "lan"}, {Name: "lan2"}},
		Attachments: []model.Attachment{{Endpoint: model.Endpoint{Name: "web", Network: "lan"}},
			{Endpoint: model.Endpoint{Name: "web2", Network: "lan"}},
			{Endpoint: model.Endpoint{Name: "lan", Network: "lan2"}}},
		Services: []model.VirtualService{{Name: "web"}}, Publishes: []model.Publish{publish, other}}
	for _, c := range []struct {
		err  error
		want string
	}{
		{errors.New("endpoint web: no such file"), "[] [web] [] []"},
		{errors.New("network lan: no such link"), "[lan] [web web2] [] []"},
		{errors.New("service web: no such plane"), "[] [] [web] []"},
		{&model.PortTakenError{Publish: chosen, Owner: "nginx"}, "[] [] [] [8080]"},
		{fmt.Errorf("publish %s: no such address", publish), "[] [] [] [8080]"},
		{errors.New("endpoint we: no such file"), "[] [] [] []"},
		{errors.New("open host ports: endpoint web: no such file"), "[] [] [] []"},
	} {
		r := Refused(w, c.err)
		var networks, attachments, services, ports []string
		for _, n := range r.Networks {
			networks = append(networks, n.Name)
		}
		for _, a := range r.Attachments {
			attachments = append(attachments, a.Name)
		}
		for _, v := range r.Services {
			services = append(services, v.Name)
		}
		for _, p := range r.Publishes {
			ports = append(ports, p.HostPorts.String())
		}
		if got := fmt.Sprint(networks, attachments, services, ports); got != c.want {
			t.Errorf("%v: got %s, want %s", c.err, got, c.want)
		}
	}
}
