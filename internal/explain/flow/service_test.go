package flow_test

import (
	"net/netip"
	"testing"
	"time"

	"fairlead/internal/explain/flow"
	"fairlead/internal/kernel/ebpf/datapath"
	"fairlead/internal/kernel/inspect"
	"fairlead/internal/kernel/rtnl"
	"fairlead/internal/model"
	"fairlead/internal/plan"

	"github.com/google/go-cmp/cmp"
	"golang.org/x/sys/unix"
)

// site returns a service at 198.51.100.10:80 in a data plane.
func site(plane model.Plane, forward model.Forward, reals ...plan.Backend) inspect.InstalledService {
	s := inspect.InstalledService{Plane: plane,
		Balanced: plan.Balanced{Service: "site", Proto: model.TCP, Scheduler: model.RoundRobin, Forward: forward,
			Frontends: []netip.AddrPort{at("198.51.100.10:80")}, Backends: reals}}
	if plane == model.PlaneIPVS {
		s.Service = "" // IPVS has no names
	}
	return s
}

// TestServices follows packets to virtual services in every data plane, and with
// every forwarding method.
func TestServices(t *testing.T) {
	box := plan.Backend{At: at("10.9.0.2:80"), Weight: 1, Link: "port"}
	remote := plan.Backend{At: at("192.0.2.7:8080"), Weight: 1, Masquerade: true}
	known := flow.Known{Name: "site", Frontends: []model.Frontend{{Proto: model.TCP, At: at("198.51.100.10:80")}},
		Reals: []flow.Candidate{{At: at("10.9.0.2:80"), Endpoint: "web", Weight: 1, State: "up"},
			{At: at("10.9.0.9:80"), Weight: 1, State: "down", Cause: "connection refused"}}}
	gue := site(model.PlaneEBPF, model.ForwardTunnel, plan.Backend{At: at("192.0.2.7:0"), Weight: 1})
	gue.Tunnel = model.Tunnel{Type: model.TunnelGUE, Port: 6080}
	const local, uplink = "fl_connect4", "fl_uplink"
	for name, c := range map[string]struct {
		inUse []inspect.InstalledService
		known []flow.Known
		want  string
		taken string
	}{
		"ipvs with nat": {[]inspect.InstalledService{site(model.PlaneIPVS, model.ForwardNAT, box)}, []flow.Known{known},
			"begin host eth0, route host eth0, nat host eth0, route host eth0, bridge host br0, link web eth0, route web eth0, socket web eth0, answer host br0 = delivered: delivered to nginx (pid 7) in web",
			"site up, down"},
		"ipvs to another machine, which sees the host": {[]inspect.InstalledService{site(model.PlaneIPVS,
			model.ForwardNAT, remote)},
			[]flow.Known{{Name: "site", Frontends: known.Frontends, Reals: []flow.Candidate{{At: remote.At}}}},
			"begin host eth0, route host eth0, nat host eth0, route host eth0, nat host eth0, link host eth0 = leaves: it leaves this host via eth0, to 192.0.2.7", "site "},
		"ipvs of another program": {[]inspect.InstalledService{site(model.PlaneIPVS, model.ForwardDirect,
			plan.Backend{At: at("192.0.2.7:80"), Weight: 1})}, nil,
			"begin host eth0, route host eth0, route host eth0, route host eth0, link host eth0 = leaves: it leaves this host via eth0, to 192.0.2.7", " "},
		"ipvs with a tunnel": {[]inspect.InstalledService{site(model.PlaneIPVS, model.ForwardTunnel,
			plan.Backend{At: at("192.0.2.7:80"), Weight: 1})}, nil,
			"begin host eth0, route host eth0, route host eth0, link host eth0 = leaves: it leaves via eth0, encapsulated in a packet to 192.0.2.7, which must have the virtual address", " "},
		"ebpf with a GUE tunnel": {[]inspect.InstalledService{gue}, nil,
			"begin host eth0, ebpf host eth0, link host eth0 = leaves: it leaves via eth0, encapsulated in a packet to 192.0.2.7, which must have the virtual address", "site "},
		"ebpf with direct": {[]inspect.InstalledService{site(model.PlaneEBPF, model.ForwardDirect,
			plan.Backend{At: at("192.0.2.7:0"), Weight: 1})}, nil,
			"begin host eth0, ebpf host eth0, route host eth0, link host eth0 = leaves: it leaves this host via eth0, to 192.0.2.7", "site "},
		"ebpf, no server accepts new flows": {[]inspect.InstalledService{site(model.PlaneEBPF, model.ForwardNAT,
			plan.Backend{At: box.At, Weight: 1, Draining: true})}, []flow.Known{known},
			"begin host eth0, ebpf host eth0 = refused: service site has no real server that accepts new flows: the client's connection is reset", "site up, down"},
		"nft": {[]inspect.InstalledService{site(model.PlaneNFT, model.ForwardNAT, box)}, []flow.Known{known},
			"begin host eth0, nat host eth0, route host eth0, bridge host br0, link web eth0, route web eth0, socket web eth0, answer host eth0 = delivered: delivered to nginx (pid 7) in web",
			"site up, down"},
	} {
		t.Run(name, func(t *testing.T) {
			w := newFake()
			w.routes[" 198.51.100.10"] = rtnl.RouteFound{Type: unix.RTN_LOCAL, Link: "lo"}
			w.ebpfState = datapath.State{Programs: []datapath.Program{{Name: uplink, Link: "eth0"}, {Name: local}}}
			w.services = flow.Merge(c.inUse, c.known)
			e := explained(t, w, "192.0.2.7 to 198.51.100.10:80")
			if diff := cmp.Diff(c.want, summary(e)); diff != "" {
				t.Errorf("(-want +got)\n%s", diff)
			}
			if got := choice(e); got != c.taken {
				t.Errorf("the candidates are %q, want %q", got, c.taken)
			}
		})
	}
}

func explained(t *testing.T, w *fake, text string) flow.Explanation {
	t.Helper()
	f, err := flow.Parse([]string{text})
	if err != nil {
		t.Fatal(err)
	}
	e, err := flow.Explain(w.world(), f)
	if err != nil {
		t.Fatal(err)
	}
	return e
}

// choice returns the service's name and the states of its candidates.
func choice(e flow.Explanation) string {
	for _, h := range e.Hops {
		if h.Balance == nil {
			continue
		}
		text := h.Balance.Service
		for i, c := range h.Balance.Candidates {
			text += map[bool]string{true: " ", false: ", "}[i == 0] + c.State
		}
		return text
	}
	return "none"
}

// TestFailedService: a note names a service that the daemon could not install.
func TestFailedService(t *testing.T) {
	w := newFake()
	w.failed = []flow.Known{{Name: "site", Frontends: []model.Frontend{{Proto: model.TCP, At: at("192.0.2.2:80")}},
		Problem: "no such link"}}
	e := explained(t, w, "192.0.2.7 to :80")
	if len(e.Notes) != 1 ||
		e.Notes[0] != "service site at 192.0.2.2:80, which could not be installed in the kernel: no such link" {
		t.Errorf("the notes are %q", e.Notes)
	}
}

// TestUncertain: a choice that depends on more than the flow is uncertain.
func TestUncertain(t *testing.T) {
	two := []plan.Backend{{At: at("10.9.0.2:80"), Weight: 1, Link: "port"},
		{At: at("10.9.0.3:80"), Weight: 1, Link: "port"}}
	for name, c := range map[string]struct {
		from    string
		change  func(*inspect.InstalledService)
		certain bool
	}{
		"Maglev, and the client's port is known": {"192.0.2.7:4000",
			func(s *inspect.InstalledService) { s.Scheduler = model.MaglevHashing }, true},
		"Maglev, and it is not known": {"192.0.2.7",
			func(s *inspect.InstalledService) { s.Scheduler = model.MaglevHashing }, false},
		"source hashing": {"192.0.2.7",
			func(s *inspect.InstalledService) { s.Scheduler = model.SourceHashing }, true},
		"round robin": {"192.0.2.7:4000", func(*inspect.InstalledService) {}, false},
		"source hashing with persistence": {"192.0.2.7", func(s *inspect.InstalledService) {
			s.Scheduler, s.Persistence = model.SourceHashing, time.Minute
		}, false},
	} {
		t.Run(name, func(t *testing.T) {
			w := newFake()
			w.routes[" 198.51.100.10"] = rtnl.RouteFound{Type: unix.RTN_LOCAL, Link: "lo"}
			inUse := site(model.PlaneNFT, model.ForwardNAT, two...)
			inUse.Ring = []uint16{0, 1, 0, 1, 1, 0, 1}
			c.change(&inUse)
			w.services = flow.Merge([]inspect.InstalledService{inUse}, nil)
			f, err := flow.Parse([]string{c.from, "198.51.100.10:80"})
			if err != nil {
				t.Fatal(err)
			}
			for _, server := range []string{"10.9.0.2:80", "10.9.0.3:80"} {
				f.Server = netip.MustParseAddrPort(server)
				e, err := flow.Explain(w.world(), f)
				if err != nil {
					t.Fatal(err)
				}
				b := e.Hops[1].Balance
				if b == nil || b.Certain != c.certain || !c.certain && e.Hops[1].Destination != f.Server {
					t.Errorf("it goes to %s: %+v", e.Hops[1].Destination, b)
				}
			}
		})
	}
}
