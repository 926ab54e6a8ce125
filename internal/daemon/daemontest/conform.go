package daemontest

import (
	"errors"
	"net/netip"
	"slices"
	"testing"

	"fairlead/internal/api"
	"fairlead/internal/engine"
	"fairlead/internal/model"
)

// External is what a container engine's front end uses of a daemon.
type External interface {
	CreateNetwork(n model.Network, dry bool) (api.Result, error)
	RemoveNetwork(name string) (api.Result, error)
	Networks() []model.Network
	Attachments() []api.View
	Reserve(model.Attachment) (engine.SandboxConfig, error)
	Join(name, path string) (model.Endpoint, engine.SandboxConfig, error)
	Expose(name string, publishes []model.Publish) error
	Leave(name string) error
	Displace(name string) (bool, error)
	Remove(name string) error
}

// Conform tests what the front end relies on. start returns a daemon without networks.
func Conform(t *testing.T, start func(*testing.T) External) {
	for name, test := range map[string]func(*subject){
		"networks": (*subject).networks, "endpoints": (*subject).endpoints,
		"unknown endpoints": (*subject).unknown, "publishes": (*subject).publishes,
	} {
		t.Run(name, func(t *testing.T) { test(&subject{t, start(t)}) })
	}
}

// subject is the daemon under test.
type subject struct {
	*testing.T
	External
}

func bridge(name, subnet string) model.Network {
	return model.Network{Name: name, Driver: model.DriverBridge, Origin: model.FromDocker,
		Subnets: []model.Subnet{{Prefix: netip.MustParsePrefix(subnet)}}}
}

// path returns the namespace of an endpoint's sandbox, which need not exist.
func path(name string) string { return "/run/daemontest/" + name }

// must fails the test on an error.
func (s *subject) must(err error) {
	s.Helper()
	if err != nil {
		s.Fatal(err)
	}
}

// isNotFound fails the test unless the error is a Fault with code NotFound.
func (s *subject) isNotFound(what string, err error) {
	s.Helper()
	var fault *api.Fault
	if !errors.As(err, &fault) || fault.Code != api.NotFound {
		s.Errorf("%s: %v, want a fault with code %v", what, err, api.NotFound)
	}
}

// join creates a network, and reserves and joins endpoints.
func (s *subject) join(names ...string) {
	s.Helper()
	_, err := s.CreateNetwork(bridge("lan", "172.30.0.0/16"), false)
	s.must(err)
	for i, name := range names {
		a := model.Attachment{Origin: model.FromDocker, Ref: "docker:" + name,
			Endpoint: model.Endpoint{Name: name, Network: "lan",
				HostInterface: "fd-" + name, Addresses: []netip.Addr{netip.AddrFrom4([4]byte{172, 30, 0,
					byte(2 + i)})}}}
		for range 2 {
			_, err = s.Reserve(a)
			s.must(err)
		}
		if v := s.view(name); v.Sandbox != "" {
			s.Errorf("%s is reserved for sandbox %q", name, v.Sandbox)
		}
		e, _, err := s.Join(name, path(name))
		s.must(err)
		if e.Name != name || e.HostInterface != a.HostInterface || !slices.Equal(e.Addresses, a.Addresses) {
			s.Errorf("joined %+v, reserved %+v", e, a.Endpoint)
		}
	}
}

// view returns the only attachment with a name.
func (s *subject) view(name string) api.View {
	s.Helper()
	all := slices.DeleteFunc(s.Attachments(), func(v api.View) bool { return v.Name != name })
	if len(all) != 1 {
		s.Fatalf("%d attachments are named %s", len(all), name)
	}
	return all[0]
}

func (s *subject) networks() {
	for _, subnet := range []string{"172.31.0.0/16", "172.30.0.0/16"} { // the second replaces the first
		_, err := s.CreateNetwork(bridge("lan", subnet), false)
		s.must(err)
	}
	if _, err := s.CreateNetwork(bridge("other", "172.30.4.0/24"), false); err == nil {
		s.Error("the subnets of two networks overlap")
	}
	want := bridge("lan", "172.30.0.0/16")
	if all := s.Networks(); len(all) != 1 || all[0].Name != want.Name || !slices.Equal(all[0].Subnets, want.Subnets) {
		s.Errorf("networks: %+v, want %+v", all, want)
	}
	_, err := s.RemoveNetwork("lan")
	s.must(err)
	if all := s.Networks(); len(all) != 0 {
		s.Errorf("left: %+v", all)
	}
}

func (s *subject) endpoints() {
	s.join("web", "db")
	if got := s.view("web").Sandbox; got != path("web") {
		s.Errorf("joined sandbox %q", got)
	}
	if gone, err := s.Displace("web"); gone || err != nil {
		s.Errorf("displace an endpoint that starts: %v, %v", gone, err)
	}
	s.must(s.Leave("web"))
	if got := s.view("web").Sandbox; got != "" {
		s.Errorf("left, but in sandbox %q", got)
	}
	for range 2 {
		s.must(s.Remove("web"))
	}
	s.view("db")
	if all := s.Attachments(); len(all) != 1 {
		s.Errorf("attachments: %+v", all)
	}
}

func (s *subject) unknown() {
	_, _, err := s.Join("web", path("web"))
	s.isNotFound("join", err)
	s.isNotFound("expose", s.Expose("web", []model.Publish{tcp(8080)}))
	s.must(s.Expose("web", nil))
	s.must(s.Leave("web"))
	if gone, err := s.Displace("web"); !gone || err != nil {
		s.Errorf("displace: %v, %v", gone, err)
	}
}

// tcp publishes port 80 at a host port.
func tcp(port uint16) model.Publish {
	return model.Publish{Via: model.ViaNAT, Proto: model.TCP, Origin: model.FromDocker, HostPorts: model.Port(port),
		Ports: model.Port(80)}
}

// has fails the test unless the endpoint is published at exactly these host ports.
func (s *subject) has(name string, want ...uint16) {
	s.Helper()
	var got []uint16
	for _, p := range s.view(name).Publishes {
		got = append(got, p.HostPorts.First)
		if p.Endpoint != name {
			s.Errorf("%s has a publish of %q", name, p.Endpoint)
		}
	}
	if !slices.Equal(got, want) {
		s.Errorf("%s is published at %v, want %v", name, got, want)
	}
}

func (s *subject) publishes() {
	s.join("web", "db")
	s.must(s.Expose("web", []model.Publish{tcp(8080)}))
	s.has("web", 8080)
	var taken *model.PortTakenError
	if err := s.Expose("db", []model.Publish{tcp(8080)}); !errors.As(err, &taken) {
		s.Errorf("a port of another endpoint: %v, want that it is taken", err)
	}
	s.has("db")
	s.must(s.Expose("web", []model.Publish{tcp(8081)}))
	s.has("web", 8081)
	s.must(s.Expose("db", []model.Publish{tcp(8080)}))
	s.has("db", 8080)
	s.must(s.Leave("web"))
	s.has("web")
	s.must(s.Expose("db", nil))
	s.has("db")
}
